"""The permutation null: what a probe scores when joints no longer belong to the frames they are paired with.

Training targets are moved, the probe is refitted at the alpha chosen on the true ones, and R2 is taken on the
true evaluation rows. There are two ways to move them:

exchange : between whole episodes. It keeps what autocorrelation and a common course of all episodes (every
    demonstration starts at rest) can feign, so the null need not be at 0.
shift : circularly within each episode, by a random tenth of its length or more. It keeps an episode's own
    place and autocorrelation and breaks the common course: a probe that knows which episode a frame is from,
    and no more, scores as high here. It needs no second episode.

Features stay where they are, so one decomposition serves all refits; only cross products Xs'Y change. An
exchange is a sum of those of pairs of episodes, which matrix products give. All circular shifts of an episode
at once are one correlation, by FFT: its cost does not grow with the number of refits.

Real R2 minus that of such a control task is the probe's selectivity (Hewitt & Liang 2019, "Designing and
interpreting probes with control tasks").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from probe.bootstrap import Bootstrap, difference
from probe.clusters import EpisodeClusters
from probe.moments import FloatArray, Moments, check_rows
from probe.spectrum import Spectrum
from probe.statistics import JointScores, ResidualSums, r2, score_joints

Scheme = Literal["exchange", "shift"]

_BLOCK_BYTES = 256 * 2**20  # cross products of a block of exchanges: bounds the memory


@dataclass(frozen=True)
class NullValue:
    """One null distribution, and where the true value lies in it.

    Attributes
    ----------
    mean, q95 : of R2 under the null.
    observed : R2 with the true targets.
    p_value : (1 + k) / (1 + n), k of the n draws reaching the observed value.
    """

    mean: float
    q95: float
    observed: float
    p_value: float


@dataclass(frozen=True, eq=False)
class PermutationNull:
    """The null of each joint and of their mean.

    Attributes
    ----------
    joints : [J], None where the joint is not testable.
    mean : of the uniform mean over testable joints; None where there is none, or a single training episode.
    draws : [P, J], R2 of each exchange (or shift).
    exhaustive : these are all exchanges there are, each once.
    note : why there is no null, or how few exchanges there are.
    scheme : how targets were moved.
    control_ss : [E, J], squared errors on each evaluation episode, their mean over the refits; None unless
        evaluation episodes were given.
    """

    joints: tuple[NullValue | None, ...]
    mean: NullValue | None
    draws: FloatArray
    exhaustive: bool
    note: str
    scheme: Scheme = "exchange"
    control_ss: FloatArray | None = None


def stretch(n_from: int, n_to: int) -> NDArray[np.int64]:
    """Rows of an episode of `n_from` rows that stand in for `n_to` rows, [n_to].

    Row i is taken from the same share of the way through, floor((i + 1/2) n_from / n_to): the nearest row,
    never an interpolated value; the identity for equal lengths.
    """
    return ((2 * np.arange(n_to) + 1) * n_from) // (2 * n_to)


def episode_exchanges(n_episodes: int, n: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], bool]:
    """Exchanges that give every episode another one's targets (derangements), [P, E]: e those of `[p, e]`.

    P = n random ones, drawn independently and uniformly; where there are no more than n in all (up to 5
    episodes for n = 200), all of them once, and the second value is True. None exist for a single episode.
    """
    count = [1, 0]  # derangements of 0, 1, ... episodes: !k = (k - 1) (!(k-1) + !(k-2))
    while len(count) <= n_episodes and count[-1] <= n:
        count.append((len(count) - 1) * (count[-1] + count[-2]))
    if len(count) > n_episodes and count[n_episodes] <= n:
        every = [p for p in permutations(range(n_episodes)) if all(e != donor for e, donor in enumerate(p))]
        return np.array(every, dtype=np.int64).reshape(-1, n_episodes), True
    identity = np.arange(n_episodes)
    drawn = np.zeros((0, n_episodes), dtype=np.int64)
    while len(drawn) < n:  # one in e of all permutations has no fixed point
        tried = rng.permuted(np.tile(identity, (3 * n, 1)), axis=1)
        drawn = np.concatenate([drawn, tried[(tried != identity).all(axis=1)]])
    return drawn[:n], False


def circular_shifts(count: NDArray[np.int64], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Shifts of episodes of `count` [E] rows, [n, E]: row t takes the target of row t - shift, end to start.

    Uniform over those at least a tenth of the length away from 0, in either direction. An episode of one row
    stays as it is.
    """
    nearest = np.ceil(count / 10).astype(np.int64)
    past = np.maximum(count - nearest, nearest) + 1
    return np.where(count > 1, rng.integers(nearest, past, (n, len(count))), 0)


def permutation_null(
    x_train: NDArray[Any],
    y_train: NDArray[Any],
    train: EpisodeClusters,
    x_evaluate: NDArray[Any],
    y_evaluate: NDArray[Any],
    *,
    alpha: float | FloatArray,
    testable: NDArray[np.bool_],
    rng: np.random.Generator,
    exchanges: int = 200,
    scheme: Scheme = "exchange",
    evaluate: EpisodeClusters | None = None,
) -> PermutationNull:
    """R2 on the evaluation rows after refits to moved training targets.

    Parameters
    ----------
    x_train, y_train, train : latents [N, D], joints [N, J] and their episodes.
    x_evaluate, y_evaluate : [M, D], [M, J], never moved.
    alpha : of the probe, one or [J] (`RidgeFit.alpha_by_joint`); it is not chosen again.
    testable : bool [J].
    exchanges : refits; most of them, see `episode_exchanges`. Where lengths differ, exchanged targets are
        stretched (`stretch`).
    scheme : "exchange" between episodes, or circular "shift" within each (its rows in order of time).
    evaluate : episodes of the evaluation rows, which `selectivity` needs.

    Raises
    ------
    ValueError : shapes that disagree, values that are not finite, or an unknown scheme.
    """
    if scheme not in get_args(Scheme):
        raise ValueError(f"scheme = {scheme!r}: expected 'exchange' or 'shift'")
    testable = np.asarray(testable, dtype=bool)
    check_rows(x_train, y_train, train)
    n_joints = y_train.shape[1]
    if scheme == "exchange":
        moves, exhaustive = episode_exchanges(len(train), exchanges, rng)
        unmoved = np.arange(len(train))
        why_none = "nothing to exchange with a single training episode"
    else:
        moves, exhaustive = circular_shifts(train.count, exchanges, rng), False
        moves = moves if (train.count > 1).any() else moves[:0]
        unmoved = np.zeros(len(train), dtype=np.int64)
        why_none = "nothing to shift in training episodes of one row"
    if not len(moves):
        nothing = np.zeros((0, n_joints))
        return PermutationNull((None,) * n_joints, None, nothing, True, f"no null: {why_none}", scheme)
    alphas = np.broadcast_to(np.asarray(alpha, dtype=np.float64), (n_joints,))
    spectrum = Spectrum.primal(_moments(x_train, y_train))
    evaluation = _moments(x_evaluate, y_evaluate)
    errors = _Errors.of(spectrum, evaluation, alphas)
    products = _exchanged_products if scheme == "exchange" else _shifted_products
    control = None if evaluate is None else _Control.empty(spectrum, n_joints)
    residual_ss = []
    # the true pairing goes through the same steps, as draw 0
    for cross, shift in products(x_train, y_train, train, spectrum, np.concatenate([unmoved[None], moves])):
        coef = errors.coef(cross)
        residual_ss.append(errors.residual_ss(coef, shift))
        if control is not None:
            true_pairing = 1 if len(residual_ss) == 1 else 0
            control.add(coef[true_pairing:], shift[true_pairing:])
    total_ss = evaluation.yy[0] - evaluation.y_sum[0] ** 2 / evaluation.count[0]
    table = r2(np.concatenate(residual_ss), np.where(np.ptp(y_evaluate, axis=0) > 0, total_ss, 0.0))
    usable = testable & np.isfinite(table[0])
    possible = f"{len(moves)} exchange{'s' if len(moves) > 1 else ''}"
    return PermutationNull(
        joints=tuple(_null_value(table[:, j]) if usable[j] else None for j in range(n_joints)),
        mean=_null_value(table[:, usable].mean(axis=1)) if usable.any() else None,
        draws=table[1:],
        exhaustive=exhaustive,
        note=f"{len(train)} training episodes allow only {possible}" if exhaustive else "",
        scheme=scheme,
        control_ss=None
        if control is None or evaluate is None
        else control.squares(x_evaluate, y_evaluate, evaluate),
    )


def selectivity(
    sums: ResidualSums, scores: JointScores, null: PermutationNull, bootstrap: Bootstrap
) -> JointScores:
    """Real R2 minus R2 of the control task, by joint, of their means, and of the weighted means.

    Every draw of evaluation episodes scores the probe and, on the same episodes, the refits to moved targets
    (their mean R2): the intervals are paired. `anisotropy` is the difference of the two anisotropies.

    Parameters
    ----------
    sums, scores : of the probe on the evaluation rows.
    null : made with the episodes of the same rows (`permutation_null(..., evaluate=...)`).
    bootstrap : of the same episodes.

    Raises
    ------
    ValueError : the null has no errors by evaluation episode.
    """
    if null.control_ss is None or null.control_ss.shape != sums.rr_sum.shape:
        raise ValueError("selectivity needs permutation_null(..., evaluate=EPISODES) of the same rows")
    # mean over refits of 1 - SS_p / SS_tot = 1 - (mean of SS_p) / SS_tot, in every draw of episodes
    moved = score_joints(replace(sums, rr_sum=null.control_ss), bootstrap, scores.testable)
    return JointScores(
        joints=tuple(difference(real, control) for real, control in zip(scores.joints, moved.joints)),
        mean=difference(scores.mean, moved.mean),
        weighted=difference(scores.weighted, moved.weighted),
        anisotropy=difference(scores.anisotropy, moved.anisotropy),
        testable=scores.testable,
    )


def _null_value(values: FloatArray) -> NullValue:
    """Of [1 + P] values, the first being the observed one."""
    observed, null = float(values[0]), values[1:]
    reached = int((null >= observed).sum())
    return NullValue(
        mean=float(null.mean()),
        q95=float(np.quantile(null, 0.95)),
        observed=observed,
        p_value=(1 + reached) / (1 + len(null)),
    )


def _moments(x: NDArray[Any], y: NDArray[Any]) -> Moments:
    """Moments of all rows as one group."""
    return Moments.of(x, y, EpisodeClusters.of(np.zeros(len(x), dtype=np.int64)))


def _exchanged_products(
    x: NDArray[Any], y: NDArray[Any], clusters: EpisodeClusters, spectrum: Spectrum, donors: NDArray[np.int64]
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Y_p'Xs [p, J, D] and the mean of Y_p - y_mean [p, J] of the exchanges `donors` [P, E], by blocks."""
    n_joints, n_features = y.shape[1], x.shape[1]
    inverse = np.where(spectrum.kept, 1 / spectrum.scale, 0.0)
    block = max(1, _BLOCK_BYTES // (8 * n_joints * n_features))
    for first in range(0, len(donors), block):
        chosen = donors[first : first + block]
        cross = np.zeros((len(chosen), n_joints * n_features))
        shift = np.zeros((len(chosen), n_joints))
        for e in range(len(clusters)):
            rows = clusters.rows(e)
            xs = (x[rows] - spectrum.mean) * inverse
            given, which = np.unique(chosen[:, e], return_inverse=True)
            # (n_e, K, J): the targets of K donors, stretched to this episode's length
            stretched = np.stack(
                [y[clusters.rows(d)[stretch(int(clusters.count[d]), len(rows))]] for d in given], axis=1
            )
            stretched = stretched - spectrum.y_mean
            pairs = stretched.reshape(len(rows), -1).T @ xs  # (K J, D)
            cross += pairs.reshape(len(given), -1)[which]
            shift += stretched.sum(axis=0)[which]
        yield cross.reshape(len(chosen), n_joints, n_features), shift / len(x)


def _shifted_products(
    x: NDArray[Any], y: NDArray[Any], clusters: EpisodeClusters, spectrum: Spectrum, shifts: NDArray[np.int64]
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """As `_exchanged_products`, of circular `shifts` [P, E]."""
    n_joints, n_features = y.shape[1], x.shape[1]
    inverse = np.where(spectrum.kept, 1 / spectrum.scale, 0.0)
    block = max(1, _BLOCK_BYTES // (8 * n_joints * n_features))
    for first in range(0, len(shifts), block):
        chosen = shifts[first : first + block]
        cross = np.zeros((len(chosen), n_joints, n_features))
        for e in range(len(clusters)):
            rows = clusters.rows(e)
            xs = fft.rfft((x[rows] - spectrum.mean) * inverse, axis=0)
            for joint in range(n_joints):
                # sum_t y[t - s] x[t] for every s:  F^-1(F(x) conj(F(y)))
                moved = fft.rfft(y[rows, joint] - spectrum.y_mean[joint]).conj()
                every = fft.irfft(xs * moved[:, None], n=len(rows), axis=0)
                cross[:, joint] += every[chosen[:, e]]
        yield cross, np.zeros((len(chosen), n_joints))  # a shift changes no episode's mean


@dataclass(frozen=True, eq=False)
class _Errors:
    """Squared errors on the evaluation rows of refits, in the eigenbasis V of the training Gram matrix.

    Xe are the evaluation rows, standardised as the training rows are; Ye those of y - y_mean.
    alphas : [J]; gram : V'Xe'Xe V [D, D]; cross : Ye'Xe V [J, D]; x_sum : V'Xe'1 [D]; y_sum, square : of
    Ye, [J].
    """

    spectrum: Spectrum
    alphas: FloatArray
    gram: FloatArray
    cross: FloatArray
    x_sum: FloatArray
    y_sum: FloatArray
    square: FloatArray
    n_rows: float

    @classmethod
    def of(cls, spectrum: Spectrum, evaluate: Moments, alphas: FloatArray) -> _Errors:
        gram, cross, square = spectrum.standardised(evaluate)
        n, v = float(evaluate.count[0]), spectrum.vectors
        inverse = np.where(spectrum.kept, 1 / spectrum.scale, 0.0)
        x_sum = (evaluate.x_sum[0] - n * (spectrum.mean - evaluate.x_origin)) * inverse
        y_sum = evaluate.y_sum[0] - n * (spectrum.y_mean - evaluate.y_origin)
        return cls(spectrum, alphas, v.T @ gram @ v, cross.T @ v, x_sum @ v, y_sum, square, n)

    def coef(self, cross: FloatArray) -> FloatArray:
        """Coefficients in the eigenbasis [p, J, D] of the fits to targets with Y_p'Xs = `cross` [p, J, D]."""
        values = self.spectrum.values
        # c = (L + alpha)^-1 V'Xs'Y_p; none in null directions
        coef = (cross.reshape(-1, cross.shape[2]) @ self.spectrum.vectors).reshape(cross.shape)
        coef *= np.where(values > 0, 1 / (values + self.alphas[:, None]), 0.0)
        return coef

    def residual_ss(self, coef: FloatArray, shift: FloatArray) -> FloatArray:
        """Squared errors [p, J] of fits with `coef` [p, J, D] and mean y_mean + `shift` [p, J]."""
        # sum (y - shift - x'c)^2 = sum (y - x'c)^2 - 2 shift sum (y - x'c) + n shift^2
        fitted = (coef.reshape(-1, coef.shape[2]) @ self.gram).reshape(coef.shape)
        fitted -= 2 * self.cross
        centred = self.square + np.einsum("pjd,pjd->pj", coef, fitted)
        left = self.y_sum - coef @ self.x_sum
        return np.maximum(centred - 2 * shift * left + self.n_rows * shift**2, 0.0)


@dataclass(eq=False)
class _Control:
    """First and second moments of the refits' coefficients, from which their mean squared errors follow.

    The constant counts as a last feature, whose coefficient is the shift of the mean.
    first : [J, D + 1], second : [J, D + 1, D + 1], sums over `n` refits.
    """

    spectrum: Spectrum
    first: FloatArray
    second: FloatArray
    n: int

    @classmethod
    def empty(cls, spectrum: Spectrum, n_joints: int) -> _Control:
        size = len(spectrum.values) + 1
        return cls(spectrum, np.zeros((n_joints, size)), np.zeros((n_joints, size, size)), 0)

    def add(self, coef: FloatArray, shift: FloatArray) -> None:
        whole = np.concatenate([coef, shift[:, :, None]], axis=2)
        self.first += whole.sum(axis=0)
        for joint in range(whole.shape[1]):
            self.second[joint] += whole[:, joint].T @ whole[:, joint]
        self.n += len(whole)

    def squares(self, x: NDArray[Any], y: NDArray[Any], clusters: EpisodeClusters) -> FloatArray:
        """Mean over the refits of the squared errors on each episode, [E, J]."""
        found = np.zeros((len(clusters), y.shape[1]))
        inverse = np.where(self.spectrum.kept, 1 / self.spectrum.scale, 0.0)
        for e in range(len(clusters)):
            rows = clusters.rows(e)
            z = np.ones((len(rows), self.first.shape[1]))
            z[:, :-1] = ((x[rows] - self.spectrum.mean) * inverse) @ self.spectrum.vectors
            centred = y[rows] - self.spectrum.y_mean
            # mean_p sum_t (y - z'c_p)^2 = y'y - 2 (mean c)'Z'y + tr(Z'Z mean(c c'))
            gram = z.T @ z
            squares = np.einsum("nj,nj->j", centred, centred)
            linear = np.einsum("jd,dj->j", self.first, z.T @ centred)
            found[e] = squares + (np.einsum("jde,de->j", self.second, gram) - 2 * linear) / self.n
        return found
