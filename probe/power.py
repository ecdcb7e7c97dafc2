"""What a study can decide, before any encoder: the smallest effect that its evaluation episodes show.

Only joints are needed. Evaluation sets of the study's size are drawn, as whole episodes with replacement,
from all episodes whose joints are known, and an encoder of a given R2 is simulated on them: its residuals are
Gaussian, wander as slowly as the joint does within an episode, and lie between episodes in the same share as
the joint's own variance (what an encoder misses tends to be a part of what there is). The spread of the mean
R2 over such draws is its standard error, and

    smallest effect = (z(1 - (1 - level) / 2) + z(power)) * standard error          (Cohen 1988, ch. 2)

is how far the mean R2 must lie from a mark for the study to say so with this power. Two encoders on the same
episodes are compared in pairs; their residuals are taken to correlate by `SHARED`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.signal import lfilter
from scipy.stats import norm

from bars import power_words
from probe.clusters import EpisodeClusters
from probe.moments import FloatArray
from probe.statistics import r2

SHARED = 0.5  # correlation of two encoders' residuals
DRAWS = 64  # residuals simulated for each episode; an evaluation set takes one of them
R2_LEVELS = (0.3, 0.6, 0.9)


@dataclass(frozen=True)
class Power:
    """The smallest effects of one data entry.

    Attributes
    ----------
    n_episodes : evaluation episodes.
    mean, difference : by the R2 of the encoder: distance of its mean R2 from a mark, and of two encoders'
        mean R2 from each other, that is shown with probability `power` at `level`.
    between : joint -> share of its variance that lies between episodes.
    simulations : how many evaluation sets were drawn.
    """

    n_episodes: int
    mean: Mapping[float, float]
    difference: Mapping[float, float]
    between: Mapping[str, float]
    simulations: int
    level: float
    power: float

    def to_json(self) -> dict[str, Any]:
        """What a freeze keeps of it; effects are rounded to what their simulation can tell."""
        return {
            "evaluation_episodes": self.n_episodes,
            "smallest_effect_on_mean_r2": {f"{key:g}": round(one, 3) for key, one in self.mean.items()},
            "smallest_difference_of_mean_r2": {
                f"{key:g}": round(one, 3) for key, one in self.difference.items()
            },
            "variance_between_episodes": {joint: round(share, 3) for joint, share in self.between.items()},
            "level": self.level,
            "power": self.power,
            "simulations": self.simulations,
        }

    def __str__(self) -> str:
        return power_words(self.to_json())


def smallest_effects(
    y: FloatArray,
    clusters: EpisodeClusters,
    n_evaluate: int,
    testable: np.ndarray,
    joints: Sequence[str],
    rng: np.random.Generator,
    *,
    r2_levels: Sequence[float] = R2_LEVELS,
    simulations: int = 400,
    level: float = 0.95,
    power: float = 0.8,
) -> Power | None:
    """Smallest effects of an evaluation set of `n_evaluate` episodes.

    Parameters
    ----------
    y : joints [N, J] of every episode that is known, training and evaluation.
    clusters : their episodes.
    testable : bool [J].
    joints : names of the J columns.

    Returns
    -------
    None where no joint is testable or fewer than two episodes are known: there is nothing to draw from.
    """
    columns = np.flatnonzero(testable)
    if len(columns) == 0 or len(clusters) < 2 or n_evaluate < 2:
        return None
    y = y[:, columns] - y[:, columns].mean(axis=0)
    variance = (y**2).mean(axis=0)
    count = clusters.count.astype(np.float64)
    y_sum, yy_sum = clusters.sums(y), clusters.sums(y**2)
    between = (y_sum**2 / count[:, None]).sum(axis=0) / yy_sum.sum(axis=0)
    drawn = _drawn_residuals(y, clusters, between, rng)
    picked = rng.integers(len(clusters), size=(simulations, n_evaluate))
    draw = rng.integers(DRAWS, size=picked.shape)
    n = count[picked].sum(axis=1)[:, None]
    total_ss = yy_sum[picked].sum(axis=1) - y_sum[picked].sum(axis=1) ** 2 / n
    residual_ss = drawn[:, draw, picked].sum(axis=2)  # [2, simulations, J], of unit variance
    z = norm.ppf(1 - (1 - level) / 2) + norm.ppf(power)
    mean, difference = {}, {}
    for target in r2_levels:
        one, other = r2((1 - target) * variance * residual_ss, total_ss).mean(axis=2)
        mean[float(target)] = float(z * one.std(ddof=1))
        difference[float(target)] = float(z * (one - other).std(ddof=1))
    named = {joints[column]: float(share) for column, share in zip(columns, between)}
    return Power(n_evaluate, mean, difference, named, simulations, level, power)


def _drawn_residuals(
    y: FloatArray, clusters: EpisodeClusters, between: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Sums of squares of simulated residuals of unit variance, [2 encoders, DRAWS, E, J]."""
    out = np.empty((2, DRAWS, len(clusters), y.shape[1]))
    series = [y[clusters.rows(e)] - y[clusters.rows(e)].mean(axis=0) for e in range(len(clusters))]
    lagged = sum((one[1:] * one[:-1]).sum(axis=0) for one in series)
    memory = lagged / np.maximum(sum((one**2).sum(axis=0) for one in series), 1e-30)
    for e, one in enumerate(series):
        # what both encoders miss, and what each misses alone
        common, *own = (_noise(len(one), between, memory, rng) for _ in range(3))
        for encoder, alone in enumerate(own):
            residual = np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * alone
            out[encoder, :, e] = (residual**2).sum(axis=1)
    return out


def _noise(n: int, between: FloatArray, memory: FloatArray, rng: np.random.Generator) -> FloatArray:
    """DRAWS series of n rows and J columns of variance 1: an offset an episode and an AR(1) process."""
    white = rng.standard_normal((DRAWS, n, len(between)))
    within = np.empty_like(white)
    for joint, phi in enumerate(np.clip(memory, 0.0, 0.999)):
        shocks = white[:, :, joint] * np.sqrt(1 - phi**2)
        shocks[:, 0] = white[:, 0, joint]  # begin in the stationary distribution
        within[:, :, joint] = lfilter([1.0], [1.0, -phi], shocks, axis=1)
    offset = rng.standard_normal((DRAWS, 1, len(between)))
    return np.sqrt(between) * offset + np.sqrt(1 - between) * within
