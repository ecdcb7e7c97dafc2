"""How pairs of the Reacher are distributed, and which sets differ from Gaussian ones at their size.

The theorem (arXiv 2605.26379) wants N(0, I) states and differences z' - rho z of N(0, (1 - rho^2) I). The
paper takes z' - z of trajectories, z-scored, and puts their SIGReg beside a finite-sample floor: that of
i.i.d. standard normal samples, about 1.2. Our floor is z-scored as the samples are. As drawn, normal samples
have 1.053 on average whatever their number (`encoders.sigreg`); z-scored about a third of that, for their
mean and sd are fitted. So a z-scored sample can lie below the first though the second tells it from Gaussian
ones.

SIGReg here is n times a distance: of samples that are not Gaussian it grows with n.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from encoders.losses import sigreg
from hardware.errors import InputError
from hardware.recording import Progress
from reports.reacher_found import (
    BOTH,
    JOINTS,
    WHATS,
    WHITENED,
    Correlation,
    Floor,
    Outcome,
    SetFound,
    Shape,
    ValueFound,
)
from sim.reacher_pairs import PairSet
from sim.reacher_trajectories import PUBLISHED_AUTOCORRELATION

DIRECTIONS = 32  # of both joints, evenly spaced
LEAST = 10  # pairs, and episodes: with fewer a distribution says nothing
LEAST_REPEATS = 20
REPEATS = 200
RESAMPLES = 1000  # of episodes, for correlations
LEVEL = 0.95
DEPENDENT = "only if pairs were independent"
RAW = "both, neither z-scored nor whitened"
FASTEST_RAD_ROW = 1.0  # faster than any joint; a faster one is an angle that was wrapped

# The paper's appendix on the Reacher, printed there.
PUBLISHED_FLOOR = 1.2
PUBLISHED_BEYOND_PI = {"traj": (0.136, "13.6 %"), "ou": (0.002, "< 0.2 %")}
PUBLISHED_SIGREG = {
    1: "two or three orders of magnitude above the floor",
    2: "two or three orders of magnitude above the floor",
    8: "within a few times the floor",
    16: "within a few times the floor",
    64: "shoulder near the floor, wrist higher again",
}

Step = Callable[[], None]
"""Called after each step of long work."""

# Streams of a seed.
_FLOOR, _EPISODES, _CORRELATION = 1, 2, 3


# -- SIGReg ------------------------------------------------------------------------------------------------


def standardise(samples: np.ndarray) -> np.ndarray:
    """Samples (n, d) with mean 0 and sd 1 in each column."""
    centred = samples - samples.mean(axis=0)
    result: np.ndarray = centred / centred.std(axis=0)
    return result


def whiten(samples: np.ndarray) -> np.ndarray:
    """Samples (n, d) with mean 0 and covariance I, by the symmetric root: (x - mean) Cov^(-1/2)."""
    centred = standardise(samples)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    result: np.ndarray = centred @ (vectors / np.sqrt(values)) @ vectors.T
    return result


def prepared(samples: np.ndarray, what: str) -> np.ndarray:
    """What SIGReg is taken of, (n, 1) or (n, 2), by a name of `WHATS`: samples (n, 2) of both joints."""
    if what in JOINTS:
        return standardise(samples[:, [JOINTS.index(what)]])
    if what == BOTH:
        return standardise(samples)
    return whiten(samples) if what == WHITENED else samples


def sigreg_of(samples: np.ndarray, dtype: torch.dtype = torch.float64) -> float:
    """SIGReg of samples: of (n, 1) the Epps-Pulley statistic, of (n, 2) its mean over all directions.

    The paper's random directions are draws from that mean. In a plane evenly spaced ones give it: along the
    half circle the statistic is smooth and periodic, so from 16 on nothing changes in five digits.
    """
    angles = (
        torch.arange(DIRECTIONS if samples.shape[1] == 2 else 1, dtype=torch.float64) * np.pi / DIRECTIONS
    )
    directions = torch.stack([angles.cos(), angles.sin()])[: samples.shape[1]]
    return float(sigreg(torch.from_numpy(np.ascontiguousarray(samples)).to(dtype), directions.to(dtype)))


class Gauge:
    """SIGReg of samples, and of Gaussian ones of the same number.

    Parameters
    ----------
    seed : repeat r of n Gaussian samples depends on it, on n and on r alone.
    repeats : Gaussian samples for a floor, and sets of episodes drawn again for an interval; 20 at least.
    """

    def __init__(self, seed: int, repeats: int = REPEATS) -> None:
        if repeats < LEAST_REPEATS:
            raise InputError("--repeats", f"is {repeats}", f"a 95 % range takes {LEAST_REPEATS} or more")
        self.seed, self.repeats = seed, repeats
        self._floors: dict[int, dict[str, np.ndarray]] = {}

    def gaussian(self, n: int, progress: Progress | None = None) -> dict[str, np.ndarray]:
        """SIGReg of samples of n from N(0, I), by what is tested, and as they are (`RAW`): (repeats,) of both
        joints, (2 repeats,) of one, each column of a sample being one.
        """
        if n not in self._floors:
            names = (*WHATS, RAW)
            found = np.empty((self.repeats, len(names)))
            for repeat in range(self.repeats):
                samples = _generator(self.seed, _FLOOR, n, repeat).standard_normal((n, 2))
                found[repeat] = [sigreg_of(prepared(samples, what)) for what in names]
                if progress:
                    progress(repeat + 1, self.repeats, f"floor of {n:,} pairs")
            of_one = found[:, : len(JOINTS)].reshape(-1)
            self._floors[n] = {
                what: of_one if what in JOINTS else found[:, column] for column, what in enumerate(names)
            }
        return self._floors[n]

    def floor(self, n: int, what: str) -> Floor:
        """Mean and 95 % range of `gaussian`."""
        values = self.gaussian(n)[what]
        low, high = np.quantile(values, _ends())
        return Floor(n, len(values), float(values.mean()), float(low), float(high))

    def test(
        self,
        samples: np.ndarray,
        episodes: np.ndarray | None = None,
        step: Step | None = None,
    ) -> dict[str, Outcome]:
        """SIGReg of samples (n, 2) beside its floor, by `WHATS`; with the interval over episodes (n,)."""
        n = len(samples)
        found = {what: sigreg_of(prepared(samples, what)) for what in WHATS}
        gaussian = self.gaussian(n)
        intervals = self.intervals(samples, found, episodes, step)
        return {
            what: Outcome(
                n,
                value,
                self.floor(n, what),
                float((1 + (gaussian[what] >= value).sum()) / (1 + len(gaussian[what]))),
                intervals.get(what),
            )
            for what, value in found.items()
        }

    def intervals(
        self,
        samples: np.ndarray,
        found: dict[str, float],
        episodes: np.ndarray | None,
        step: Step | None = None,
    ) -> dict[str, tuple[float, float]]:
        """Intervals at 95 % by drawing episodes again, with all of their pairs.

        SIGReg is a squared distance, to which drawing again adds about a floor: the draws' spread around
        their own mean is laid around the value found.
        """
        groups = episode_rows(episodes)
        if groups is None:
            if step:
                step()
            return {}
        drawn: dict[str, list[float]] = {what: [] for what in found}
        for repeat in range(self.repeats):
            chosen = _generator(self.seed, _EPISODES, repeat).integers(0, len(groups), len(groups))
            again = samples[np.concatenate([groups[one] for one in chosen])]
            for what, values in drawn.items():
                value = sigreg_of(prepared(again, what), torch.float32)
                values.append(value * len(samples) / len(again))
            if step:
                step()
        result = {}
        for what, values in drawn.items():
            low, high = np.quantile(values, _ends()) - np.mean(values) + found[what]
            result[what] = (max(float(low), 0.0), float(high))
        return result


def told_apart(tested: Outcome, once: Outcome | None, dependent: bool) -> str:
    """Whether samples are told apart from Gaussian ones at their number, in a word or two.

    Pairs of one episode depend on each other, which lifts SIGReg of Gaussian pairs too. Above the floor of
    independent pairs, they count as told apart where the interval over episodes lies above that floor
    altogether, or where one pair an episode, which are independent, lies above its own.

    Parameters
    ----------
    once : one pair an episode, where that was tested.
    dependent : whether several share an episode, or may.
    """
    if not tested.above:
        return "no"
    if not dependent:
        return "yes"
    beyond = tested.interval is not None and tested.interval[0] > tested.floor.high
    return "yes" if beyond or (once is not None and once.above) else DEPENDENT


def episode_rows(episodes: np.ndarray | None) -> list[np.ndarray] | None:
    """Rows of each episode, of the episode of each row; None where there are too few to draw again."""
    if episodes is None:
        return None
    order = np.argsort(episodes, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(episodes[order])) + 1)
    return groups if len(groups) >= LEAST else None


# -- a set -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pairs:
    """The pairs of a value: members (P, 2) and, for trajectories, the episode (P,) of each pair."""

    first: np.ndarray
    second: np.ndarray
    episodes: np.ndarray | None


def measure_set(pairs: PairSet, name: str, gauge: Gauge, progress: Progress | None = None) -> SetFound:
    """All numbers of a pair set.

    Parameters
    ----------
    name : what it is called in what is written.

    Raises
    ------
    InputError : a set without pairs, with fewer than 10, with a joint that does not move, or with angles that
        were wrapped.
    """
    require_pairs(pairs)
    members = {value: _members(pairs, value) for value in pairs.info.values}
    _refuse_wrapped(pairs, members)
    one = next(iter(members.values()))
    gauge.gaussian(pairs.info.count, progress)
    for once in (_first_of_each(each.episodes) for each in members.values()):
        if once is not None:
            gauge.gaussian(len(once), progress)
    draws = gauge.repeats if episode_rows(one.episodes) else 1
    step = _steps(2 * draws * len(members), f"measuring {name}", progress)
    return SetFound(
        name,
        pairs.condition,
        pairs.info.source["name"] if pairs.info.source else None,
        pairs.info.seed,
        pairs.info.count,
        len(pairs),
        None if one.episodes is None else len(np.unique(one.episodes)),
        _shapes(pairs.states),
        PUBLISHED_BEYOND_PI[pairs.condition],
        tuple(
            measure_value(pairs.condition, value, of_value, gauge, step)
            for value, of_value in members.items()
        ),
    )


def require_pairs(pairs: PairSet) -> None:
    """InputError for a set that has no pairs, too few, or states that are not finite."""
    where, count = pairs.folder, pairs.info.count
    if pairs.condition == "eval":
        raise InputError(
            where,
            "is an evaluation set: single images, no pairs",
            "give sets of jointprobe reacher ou or reacher traj",
        )
    if count < LEAST:
        pairs_are = "pair" if count == 1 else "pairs"
        raise InputError(where, f"has {count} {pairs_are} of each value", f"make {LEAST} or more")
    if not np.isfinite(pairs.states).all():
        row = int(np.flatnonzero(~np.isfinite(pairs.states).all(axis=1))[0])
        raise InputError(where, f"has a state that is not finite, in row {row}", "make it again")


def measure_value(
    condition: str,
    value: float,
    pairs: _Pairs,
    gauge: Gauge,
    step: Step | None = None,
) -> ValueFound:
    """All numbers of the pairs of one rho or delta."""
    rho = value if condition == "ou" else 1.0
    differences = pairs.second - rho * pairs.first
    once = _first_of_each(pairs.episodes)
    return ValueFound(
        value,
        correlations(pairs.first, pairs.second, pairs.episodes, _expected(condition, value), gauge.seed),
        _shapes(differences),
        float(np.corrcoef(differences.T)[0, 1]),
        float(np.sqrt(1 - rho**2)) if condition == "ou" else None,
        gauge.test(differences, pairs.episodes, step),
        gauge.test(pairs.second, pairs.episodes, step),
        {} if once is None else gauge.test(differences[once]),
        {} if once is None else gauge.test(pairs.second[once]),
    )


def shape_of(samples: np.ndarray) -> Shape:
    """Moments of samples (n,), and their distances from N(0, 1) by `scipy.stats`."""
    mean, sd = float(samples.mean()), float(samples.std())
    return Shape(
        samples,
        mean,
        sd,
        float(stats.skew(samples)),
        float(stats.kurtosis(samples)),
        float(stats.kstest(samples, "norm").statistic),
        float(stats.kstest((samples - mean) / sd, "norm").statistic),
        float((np.abs(samples) > np.pi).mean()),
    )


def correlations(
    first: np.ndarray,
    second: np.ndarray,
    episodes: np.ndarray | None,
    expected: Sequence[float | None],
    seed: int,
) -> tuple[Correlation, Correlation]:
    """Pearson's correlation of both members (P, 2), of each joint.

    Its interval is Fisher's where pairs are independent, else that of episodes drawn again; none where there
    are fewer than ten.
    """
    x, y = first - first.mean(axis=0), second - second.mean(axis=0)
    sums = np.concatenate([x, y, x * x, y * y, x * y, np.ones((len(x), 1))], axis=1)
    values = _pearson(sums.sum(axis=0))
    if episodes is None:
        half = stats.norm.ppf((1 + LEVEL) / 2) / np.sqrt(len(x) - 3)
        with np.errstate(divide="ignore"):
            ends = np.tanh(np.arctanh(values) + np.array([[-half], [half]]))
    elif (groups := episode_rows(episodes)) is None:
        ends = np.full((2, 2), np.nan)
    else:
        of_episode = np.stack([sums[rows].sum(axis=0) for rows in groups])
        rng = _generator(seed, _CORRELATION, len(groups))
        drawn = rng.integers(0, len(groups), (RESAMPLES, len(groups)))
        again = np.stack([np.bincount(one, minlength=len(groups)) @ of_episode for one in drawn])
        ends = np.quantile(_pearson(again), _ends(), axis=0)
    shoulder, wrist = (
        Correlation(float(values[joint]), _known(ends[0, joint]), _known(ends[1, joint]), expected[joint])
        for joint in range(2)
    )
    return shoulder, wrist


def _pearson(sums: np.ndarray) -> np.ndarray:
    """Correlations (..., 2) of sums (..., 11): of x, y, x^2, y^2, xy (two joints each) and 1."""
    n = sums[..., 10:]
    x, y, xx, yy, xy = (sums[..., 2 * k : 2 * k + 2] / n for k in range(5))
    with np.errstate(invalid="ignore", divide="ignore"):
        result: np.ndarray = (xy - x * y) / np.sqrt((xx - x * x) * (yy - y * y))
    return result


def _shapes(samples: np.ndarray) -> tuple[Shape, Shape]:
    return shape_of(samples[:, 0]), shape_of(samples[:, 1])


def _members(pairs: PairSet, value: float) -> _Pairs:
    """The pairs of a value; an error where they leave nothing to standardise."""
    rows = pairs.pairs(value)
    first, second = pairs.states[rows[:, 0]], pairs.states[rows[:, 1]]
    rho = value if pairs.condition == "ou" else 1.0
    for name, samples in (
        ("first members", first),
        ("second members", second),
        ("differences", second - rho * first),
    ):
        still = samples.std(axis=0) <= 1e-12 * np.maximum(1, np.abs(samples).max(axis=0))
        if still.any():
            joint = JOINTS[int(np.flatnonzero(still)[0])]
            problem = f"the {joint} has the same {name} in all pairs of {value:g}: it does not move"
            raise InputError(pairs.folder, problem, "give a set of a moving arm")
        if abs(np.corrcoef(samples.T)[0, 1]) > 1 - 1e-9:
            problem = f"{name} of both joints are the same up to scale in all pairs of {value:g}"
            raise InputError(pairs.folder, problem, "give a set of two joints")
    return _Pairs(first, second, None if pairs.episodes is None else pairs.episodes[rows[:, 0]])


def _refuse_wrapped(pairs: PairSet, members: dict[float, _Pairs]) -> None:
    """InputError where differences of trajectories hold jumps of whole turns."""
    if pairs.condition != "traj":
        return
    for delta, one in members.items():
        moved = np.abs(one.second - one.first)
        jumps = ((moved > np.pi) & (moved > FASTEST_RAD_ROW * delta)).any(axis=1)
        if jumps.any():
            raise InputError(
                pairs.folder,
                f"{int(jumps.sum())} of {len(jumps):,} pairs of delta {delta:g} jump by up to "
                f"{moved.max():.2f} rad: the angles were wrapped",
                "make it from unwrapped angles (qpos)",
            )


def _expected(condition: str, value: float) -> tuple[float | None, float | None]:
    """Correlations of the shoulder and the wrist: rho, or the published ones."""
    return (value, value) if condition == "ou" else PUBLISHED_AUTOCORRELATION.get(int(value), (None, None))


def _first_of_each(episodes: np.ndarray | None) -> np.ndarray | None:
    """Rows of the first pair of each episode; None where they are too few, or all."""
    if episodes is None:
        return None
    _, rows = np.unique(episodes, return_index=True)
    return rows if LEAST <= len(rows) < len(episodes) else None


def _steps(total: int, what: str, progress: Progress | None) -> Step | None:
    """What is called after each of `total` steps."""
    if progress is None:
        return None
    done = itertools.count(1)
    return lambda: progress(next(done), total, what)


def _ends() -> list[float]:
    return [(1 - LEVEL) / 2, (1 + LEVEL) / 2]


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _generator(seed: int, *stream: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=stream))
