"""Cluster bootstrap over evaluation episodes: resamples, estimates with intervals, and their differences.

One `Bootstrap` serves every encoder evaluated on the same data: the same episodes are drawn for all, so the
interval of a difference is a paired one. It resamples evaluation episodes only; the fitted probe is held as
it is (`probe.refit` draws training episodes too).

Three intervals are made from the same draws (Efron 1987; DiCiccio & Efron 1996, "Bootstrap confidence
intervals", Statistical Science 11):

bca : percentiles corrected for bias (the share of draws below the value) and for acceleration (skewness of
    the values with one episode left out).
percentile : plain quantiles of the draws.
studentised : quantiles of (draw - value) / (the draw's own standard error), put back around the value; also
    called bootstrap-t.

Coverage of 95 % intervals of a mean R2, in %, as measured by the deep tests (tests/probe/test_bootstrap.py;
1,000 simulations a cell, standard error about 1 point; in brackets the mean width). "Between" is the share of
the joints' variance that lies between episodes. "Failing" is 15 % between, with joints at one of two places,
episodes of 10 to 50 rows, and residual variance log-normal between episodes.

    | episodes | between | percentile   | BCa          | studentised  |
    |----------|---------|--------------|--------------|--------------|
    | 6        | 15 %    | 85.8 (0.17)  | 84.1 (0.17)  | 93.2 (0.33)  |
    | 12       | 15 %    | 91.0 (0.13)  | 89.3 (0.13)  | 94.0 (0.17)  |
    | 25       | 15 %    | 93.0 (0.09)  | 91.7 (0.09)  | 95.2 (0.10)  |
    | 50       | 15 %    | 93.3 (0.06)  | 93.4 (0.06)  | 94.6 (0.07)  |
    | 6        | 50 %    | 69.4 (0.26)  | 72.3 (0.20)  | 92.4 (0.41)  |
    | 12       | 50 %    | 80.7 (0.18)  | 86.4 (0.15)  | 94.2 (0.21)  |
    | 25       | 50 %    | 88.9 (0.12)  | 92.0 (0.11)  | 95.4 (0.13)  |
    | 50       | 50 %    | 92.0 (0.08)  | 93.0 (0.08)  | 94.5 (0.09)  |
    | 6        | failing | 70.0 (0.50)  | 71.4 (0.57)  | 86.3 (5.86)  |
    | 12       | failing | 79.5 (0.39)  | 80.6 (0.45)  | 89.0 (1.40)  |
    | 25       | failing | 82.8 (0.30)  | 84.9 (0.36)  | 89.3 (0.79)  |
    | 50       | failing | 86.8 (0.24)  | 88.2 (0.28)  | 90.5 (0.42)  |

Percentiles lie too low where much variance lies between episodes: SS_tot about the sample's own mean is too
small, in a resample once more. BCa takes part of that away, the studentised interval nearly all of it, at the
price of width. Episodes that the probe fails in, few and far, none of them can know of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from probe.moments import FloatArray

Interval = Literal["bca", "percentile", "studentised"]

ANYWHERE = (-float("inf"), float("inf"))
R2_RANGE, SHARE_RANGE, NOT_NEGATIVE = (-float("inf"), 1.0), (0.0, 1.0), (0.0, float("inf"))
TOO_FEW = 10  # evaluation episodes; below this an interval is shown but nothing is called firm
_MOST_DEGENERATE = 0.05  # share of resamples without a value above which there is no interval
_ROUNDING = 1e-13  # share of a value below which its changes are rounding
_TIE = 1e-9  # draws nearer to the value than this share of their own spread are the value


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Resamples of evaluation episodes, drawn once and used for every encoder evaluated on them.

    Attributes
    ----------
    name : of the data entry; with `episodes` it says which intervals may be paired.
    episodes : [E], labels.
    weights : [B, E], how often each episode is drawn; each row sums to E. No rows where E < 2: a single
        episode says nothing about the next one.
    level : of the intervals.
    interval : which one is asked for; an `Estimate` says which one it has.
    """

    name: str
    episodes: NDArray[Any]
    weights: FloatArray
    level: float
    interval: Interval = "bca"

    @classmethod
    def draw(
        cls,
        episodes: NDArray[Any],
        rng: np.random.Generator,
        *,
        resamples: int = 2000,
        level: float = 0.95,
        name: str = "",
        interval: Interval = "bca",
    ) -> Bootstrap:
        """Draw `resamples` times E episodes with replacement. Give each data entry a generator of its own."""
        if not 0 < level < 1 or resamples < 1:
            raise ValueError(
                f"level must lie between 0 and 1 and resamples be positive: {level}, {resamples}"
            )
        if interval not in get_args(Interval):
            raise ValueError(f"interval = {interval!r}: expected one of {', '.join(get_args(Interval))}")
        n_episodes = len(episodes)
        if n_episodes < 2:
            return cls(name, np.asarray(episodes), np.zeros((0, n_episodes)), level, interval)
        weights = rng.multinomial(n_episodes, np.full(n_episodes, 1 / n_episodes), size=resamples)
        return cls(name, np.asarray(episodes), weights.astype(np.float64), level, interval)

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def left_out(self) -> FloatArray:
        """Weights of the jackknife, [E, E]: row e counts every episode but e once. No rows where E < 2."""
        n_episodes = len(self.episodes)
        return 1 - np.eye(n_episodes) if n_episodes > 1 else np.zeros((0, n_episodes))

    def pairs_with(self, other: Bootstrap) -> bool:
        """Whether both draw the same episodes of the same data in the same order."""
        return (
            self.name == other.name
            and np.array_equal(self.episodes, other.episodes)
            and np.array_equal(self.weights, other.weights)
        )

    def errors(self, influence: FloatArray) -> FloatArray:
        """Standard errors, [1 + B], of a value and of its draws, from their `influence` [1 + B, E].

        The variance of a sum over independent episodes, of which a draw holds each `weights` times:

            se^2 = sum_e w_e U_e^2,    U_e = d value / d w_e      (infinitesimal jackknife)
        """
        weights = np.concatenate([np.ones((1, len(self.episodes))), self.weights])
        return np.sqrt(np.einsum("be,be,be->b", weights, influence, influence))

    def estimate(
        self,
        value: float | None,
        draws: FloatArray,
        note: str = "",
        *,
        jackknife: FloatArray | None = None,
        influence: FloatArray | None = None,
        within: tuple[float, float] = ANYWHERE,
    ) -> Estimate:
        """`value` with the interval of its resampled values.

        Parameters
        ----------
        value : on all episodes; None where it would mean nothing.
        draws : [B], the value in each resample, NaN where it has none.
        note : what a reader should know, before what is said about the interval.
        jackknife : [E], the value with each episode left out (`left_out`), which BCa needs.
        influence : [1 + B, E], derivative of the value and of each draw by each episode's weight, which the
            studentised interval needs.
        within : what values the number can have at all. An interval of few episodes may reach beyond; it ends
            there, which takes nothing from its coverage.

        Without influence a studentised interval becomes BCa, without a jackknife BCa becomes percentile.
        Where the interval is not defined on these draws it is the percentile one too; the note says why.
        """
        skewness = None if jackknife is None else _acceleration(jackknife)
        errors = None if influence is None else self.errors(influence)
        low, high, name, notes = _interval(self, value, draws, note, skewness, errors)
        if low is not None and high is not None:
            low, high = (min(max(end, within[0]), within[1]) for end in (low, high))
        return Estimate(value, low, high, name, notes, self, draws, jackknife, influence, within)


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number, its interval, and the resampled values behind it.

    Attributes
    ----------
    value : the point estimate on all evaluation episodes, never a resample; None where it would mean nothing.
    low, high : interval at `level`; None where there is none (`note` says why).
    interval : which one it is: "bca", "percentile", "studentised", or "" where there is none.
    note : what a reader should know, in words.
    bootstrap : the resamples that made `draws`.
    draws : [B], the value in each resample, NaN where it has none.
    jackknife : [E], the value with each episode left out; None where unknown, and in an unpaired difference.
    influence : [1 + B, E], see `Bootstrap.estimate`; None unless the interval is studentised.
    within : what values the number can have at all.
    """

    value: float | None
    low: float | None
    high: float | None
    interval: str
    note: str
    bootstrap: Bootstrap
    draws: FloatArray
    jackknife: FloatArray | None = None
    influence: FloatArray | None = None
    within: tuple[float, float] = ANYWHERE

    @property
    def level(self) -> float:
        return self.bootstrap.level

    @property
    def n_episodes(self) -> int:
        return len(self.bootstrap.episodes)

    @property
    def too_few(self) -> bool:
        """Fewer than 10 evaluation episodes stand behind the interval."""
        return self.n_episodes < TOO_FEW


def difference(a: Estimate, b: Estimate) -> Estimate:
    """a - b with its interval: paired where both stand on the same episodes, else as independent samples.

    Paired, the jackknife values and influences are subtracted episode by episode. As independent samples, the
    acceleration is that of both sets of episodes together, and squared standard errors add up. The difference
    of two paired differences (on two data entries) is thus an ordinary unpaired one.

    Raises
    ------
    ValueError : the bootstraps differ in number of resamples or level, or are of different data but were
        drawn from one generator state, which would couple samples that have nothing to do with each other.
    """
    one, two = a.bootstrap, b.bootstrap
    paired = one.pairs_with(two)
    if not paired:
        if one.level != two.level or (len(one) and len(two) and len(one) != len(two)):
            raise ValueError(
                f"{len(one)} resamples at level {one.level} and {len(two)} at {two.level} do not compare"
            )
        if len(one) and np.array_equal(one.weights, two.weights):
            raise ValueError(
                f"data {one.name!r} and {two.name!r} were resampled from the same generator state: "
                "their difference needs independent draws, one spawned generator each"
            )
    fewer = min((one, two), key=lambda bootstrap: len(bootstrap.episodes))
    draws = a.draws - b.draws if len(one) and len(two) else np.zeros(0)
    if a.value is None or b.value is None:
        missing = a if a.value is None else b
        return fewer.estimate(None, draws, missing.note)
    value = a.value - b.value
    if paired:
        return fewer.estimate(
            value,
            draws,
            jackknife=_each(np.subtract, a.jackknife, b.jackknife),
            influence=_each(np.subtract, a.influence, b.influence),
        )
    skewness = _each(lambda left, right: _acceleration(left, -right), a.jackknife, b.jackknife)
    errors = _each(
        lambda left, right: np.hypot(one.errors(left), two.errors(right)), a.influence, b.influence
    )
    made = _interval(fewer, value, draws, "unpaired: evaluated on different episodes", skewness, errors)
    return Estimate(value, *made, fewer, draws)


def mean_estimate(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of estimates that stand on the same episodes, with its interval over those episodes.

    The same episodes are drawn for all of them, so draws, jackknife values and influences are means as well.
    What the estimates differ in besides (the seed of a training) is held as it is: the interval says nothing
    about a further one.

    Raises
    ------
    ValueError : the estimates do not pair.
    """
    first = estimates[0]
    if not all(one.bootstrap.pairs_with(first.bootstrap) for one in estimates):
        raise ValueError("only estimates on the same episodes have a mean with an interval")
    if any(one.value is None for one in estimates):
        missing = next(one for one in estimates if one.value is None)
        return first.bootstrap.estimate(None, missing.draws, missing.note)

    def mean(*values: FloatArray) -> FloatArray:
        return np.asarray(np.mean(values, axis=0), dtype=np.float64)

    return first.bootstrap.estimate(
        float(np.mean([one.value for one in estimates])),
        mean(*(one.draws for one in estimates)),
        jackknife=_each(mean, *(one.jackknife for one in estimates)),
        influence=_each(mean, *(one.influence for one in estimates)),
        within=first.within,
    )


def _each(of: Any, *values: FloatArray | None) -> Any:
    """`of(*values)`, None where one is missing."""
    return None if any(value is None for value in values) else of(*values)


def _interval(
    bootstrap: Bootstrap,
    value: float | None,
    draws: FloatArray,
    note: str,
    acceleration: float | None,
    errors: FloatArray | None,
) -> tuple[float | None, float | None, str, str]:
    """Low, high, which interval that is, and the notes."""
    n_episodes = len(bootstrap.episodes)
    notes = [note] if note else []
    defined = np.isfinite(draws)
    degenerate = float((~defined).mean()) if len(draws) else 0.0
    if value is None:
        return None, None, "", "; ".join(notes)
    if n_episodes < 2 or not len(draws):
        notes.append(f"no interval: {n_episodes} evaluation episode")
        return None, None, "", "; ".join(notes)
    if degenerate > _MOST_DEGENERATE:
        notes.append(f"no interval: {degenerate:.0%} of the resamples have no value")
        return None, None, "", "; ".join(notes)
    tails = np.array([(1 - bootstrap.level) / 2, (1 + bootstrap.level) / 2])
    kept, ends, name = draws[defined], None, "percentile"
    if bootstrap.interval == "studentised" and errors is not None:
        ends, undefined = _studentised(value, kept, tails, errors[0], errors[1:][defined])
        name = "studentised"
    elif bootstrap.interval != "percentile" and acceleration is not None:
        ends, undefined = _bca(value, kept, tails, acceleration)
        name = "bca"
    if ends is None:
        if name != "percentile":
            notes.append(f"percentile interval: {undefined}")
        ends, name = np.quantile(kept, tails), "percentile"
    if degenerate:
        notes.append(f"{degenerate:.1%} of the resamples left out: they have no value")
    if n_episodes < TOO_FEW:
        notes.append(f"too few episodes ({n_episodes} < {TOO_FEW}) for the interval to be trusted")
    return float(ends[0]), float(ends[1]), name, "; ".join(notes)


def _bca(
    value: float, draws: FloatArray, tails: FloatArray, acceleration: float
) -> tuple[FloatArray | None, str]:
    """Ends of the BCa interval, or None and why there is none (Efron 1987, equation 2.3)."""
    if np.isnan(acceleration):
        return None, "leaving an episode out changes nothing, or leaves a joint that does not move"
    # z0 = Phi^-1(share of draws below the value), ties counted half
    tie = np.abs(draws - value) <= _TIE * np.std(draws)
    below = float((draws[~tie] < value).sum() + tie.sum() / 2) / len(draws)
    if not 0 < below < 1:
        return None, "all resamples lie on one side of the value"
    # alpha' = Phi(z0 + (z0 + z) / (1 - a (z0 + z)))
    z0 = ndtri(below)
    shifted = z0 + ndtri(tails)
    shrink = 1 - acceleration * shifted
    if (shrink <= 0).any():
        return None, "one episode decides the value"
    return np.quantile(draws, ndtr(z0 + shifted / shrink)), ""


def _studentised(
    value: float, draws: FloatArray, tails: FloatArray, error: float, errors: FloatArray
) -> tuple[FloatArray | None, str]:
    """Ends of the bootstrap-t interval, or None and why there is none (DiCiccio & Efron 1996, section 4)."""
    if not error > 0:
        return None, "the value has no standard error"
    # a draw of one episode, many times over, has no spread of its own
    spread = np.isfinite(errors) & (errors > _TIE * error)
    if 1 - spread.mean() > _MOST_DEGENERATE:
        return None, f"{1 - spread.mean():.0%} of the resamples have no spread between episodes"
    t = np.quantile((draws[spread] - value) / errors[spread], tails)
    return np.asarray(value - t[::-1] * error, dtype=np.float64), ""


def _acceleration(*jackknife: FloatArray) -> float:
    """Skewness of the episodes' influence over 6, of one sample or of independent ones; NaN without spread.

        a = sum L^3 / (6 (sum L^2)^(3/2)),    L = (mean of the jackknife - jackknife) (E - 1) / E

    Over several samples both sums run over all of them (Davison & Hinkley 1997, section 5.3.2).
    """
    if not all(len(values) for values in jackknife):
        return float("nan")
    pulls = [(values.mean() - values) * (len(values) - 1) / len(values) for values in jackknife]
    pull = np.concatenate(pulls)
    squares = float((pull**2).sum())
    largest = max(float(np.abs(values).max()) for values in jackknife)
    if not squares > len(pull) * (_ROUNDING * largest) ** 2:  # NaN, too, has none
        return float("nan")
    return float((pull**3).sum() / (6 * squares**1.5))
