"""The permutation null: what a probe scores when joints no longer belong to the frames they are paired with.

Targets are exchanged between whole training episodes, the probe is refitted at the alpha chosen on the true
ones, and R2 is taken on the true evaluation rows. Exchanging whole episodes keeps what autocorrelation and a
common course of all episodes (every demonstration starts at rest) can feign, so the null need not be at 0.

Features stay where they are, so one decomposition serves all refits. Cross products are computed once for
each pair of episodes; an exchange is a sum of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probe.clusters import EpisodeClusters
from probe.moments import FloatArray, Moments, check_rows
from probe.spectrum import Spectrum
from probe.statistics import r2

_BLOCK_BYTES = 256 * 2**20  # cross products of a block of exchanges: bounds the memory


@dataclass(frozen=True)
class NullValue:
    """One null distribution, and where the true value lies in it.

    Attributes
    ----------
    mean, q95 : of R2 under exchange.
    observed : R2 with the true targets.
    p_value : (1 + k) / (1 + n), k of the n exchanges reaching the observed value.
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
    draws : [P, J], R2 of each exchange.
    exhaustive : these are all exchanges there are, each once.
    note : why there is no null, or how few exchanges there are.
    """

    joints: tuple[NullValue | None, ...]
    mean: NullValue | None
    draws: FloatArray
    exhaustive: bool
    note: str


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
) -> PermutationNull:
    """R2 on the evaluation rows after refits to exchanged training targets.

    Parameters
    ----------
    x_train, y_train, train : latents [N, D], joints [N, J] and their episodes.
    x_evaluate, y_evaluate : [M, D], [M, J], never exchanged.
    alpha : of the probe, one or [J] (`RidgeFit.alpha_by_joint`); it is not chosen again.
    testable : bool [J].
    exchanges : most exchanges, see `episode_exchanges`. Where lengths differ, targets are stretched
        (`stretch`).

    Raises
    ------
    ValueError : shapes that disagree, or values that are not finite.
    """
    testable = np.asarray(testable, dtype=bool)
    check_rows(x_train, y_train, train)
    n_joints = y_train.shape[1]
    donors, exhaustive = episode_exchanges(len(train), exchanges, rng)
    if not len(donors):
        note = "no null: nothing to exchange with a single training episode"
        return PermutationNull((None,) * n_joints, None, np.zeros((0, n_joints)), True, note)
    alphas = np.broadcast_to(np.asarray(alpha, dtype=np.float64), (n_joints,))
    spectrum = Spectrum.primal(_moments(x_train, y_train))
    evaluate = _moments(x_evaluate, y_evaluate)
    errors = _Errors.of(spectrum, evaluate)
    # the true pairing goes through the same steps, as exchange 0
    donors = np.concatenate([np.arange(len(train))[None], donors])
    residual_ss = np.concatenate(
        [
            errors.residual_ss(cross, shift, alphas)
            for cross, shift in _cross_products(x_train, y_train, train, spectrum, donors)
        ]
    )
    total_ss = evaluate.yy[0] - evaluate.y_sum[0] ** 2 / evaluate.count[0]
    table = r2(residual_ss, np.where(np.ptp(y_evaluate, axis=0) > 0, total_ss, 0.0))
    usable = testable & np.isfinite(table[0])
    possible = f"{len(donors) - 1} exchange{'s' if len(donors) > 2 else ''}"
    note = f"{len(train)} training episodes allow only {possible}" if exhaustive else ""
    return PermutationNull(
        joints=tuple(_null_value(table[:, j]) if usable[j] else None for j in range(n_joints)),
        mean=_null_value(table[:, usable].mean(axis=1)) if usable.any() else None,
        draws=table[1:],
        exhaustive=exhaustive,
        note=note,
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


def _cross_products(
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


@dataclass(frozen=True, eq=False)
class _Errors:
    """Squared errors on the evaluation rows of refits, in the eigenbasis V of the training Gram matrix.

    Xe are the evaluation rows, standardised as the training rows are; Ye those of y - y_mean.
    gram : V'Xe'Xe V [D, D]; cross : Ye'Xe V [J, D]; x_sum : V'Xe'1 [D]; y_sum, square : of Ye, [J].
    """

    spectrum: Spectrum
    gram: FloatArray
    cross: FloatArray
    x_sum: FloatArray
    y_sum: FloatArray
    square: FloatArray
    n_rows: float

    @classmethod
    def of(cls, spectrum: Spectrum, evaluate: Moments) -> _Errors:
        gram, cross, square = spectrum.standardised(evaluate)
        n, v = float(evaluate.count[0]), spectrum.vectors
        inverse = np.where(spectrum.kept, 1 / spectrum.scale, 0.0)
        x_sum = (evaluate.x_sum[0] - n * (spectrum.mean - evaluate.x_origin)) * inverse
        y_sum = evaluate.y_sum[0] - n * (spectrum.y_mean - evaluate.y_origin)
        return cls(spectrum, v.T @ gram @ v, cross.T @ v, x_sum @ v, y_sum, square, n)

    def residual_ss(self, cross: FloatArray, shift: FloatArray, alphas: FloatArray) -> FloatArray:
        """Of the fits to targets with Y_p'Xs = `cross` [p, J, D] and mean y_mean + `shift` [p, J]; [p, J]."""
        p, n_joints, n_features = cross.shape
        values = self.spectrum.values
        # c = (L + alpha)^-1 V'Xs'Y_p, the coefficients in the eigenbasis; none in null directions
        coef = (cross.reshape(-1, n_features) @ self.spectrum.vectors).reshape(cross.shape)
        coef *= np.where(values > 0, 1 / (values + alphas[:, None]), 0.0)
        # sum (y - shift - x'c)^2 = sum (y - x'c)^2 - 2 shift sum (y - x'c) + n shift^2
        fitted = (coef.reshape(-1, n_features) @ self.gram).reshape(p, n_joints, n_features)
        centred = self.square + np.einsum("pjd,pjd->pj", coef, fitted - 2 * self.cross)
        left = self.y_sum - coef @ self.x_sum
        return np.maximum(centred - 2 * shift * left + self.n_rows * shift**2, 0.0)
