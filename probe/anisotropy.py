"""Two things that stand beside anisotropy, max - min of R2 over joints, because it is biased upward.

Choosing the largest and the smallest of several noisy numbers makes a gap even where there is none. Its null
says how large: the gap that joints of one common R2 would show on as many episodes. The contrast takes the
choice away from the evaluation rows: best and worst joint are named by held-out R2 on training episodes
alone, and only their difference is measured on evaluation episodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probe.bootstrap import Bootstrap, Estimate, difference
from probe.moments import FloatArray
from probe.permutation import NullValue
from probe.ridge import RidgeFit
from probe.statistics import JointScores, ResidualSums, r2, score_table


@dataclass(frozen=True, eq=False)
class AnisotropyNull:
    """Max - min of R2 where all testable joints have one R2.

    Attributes
    ----------
    null : mean and 95th percentile over resamples, the observed anisotropy, and
        p = (1 + k) / (1 + n), k of the n resamples reaching it; None where `note` says why.
    common_r2 : the R2 all joints were drawn to, their uniform mean; NaN where there is no null.
    draws : [B], max - min in each resample, NaN where a joint does not move in it.
    """

    null: NullValue | None
    common_r2: float
    draws: FloatArray
    note: str


def anisotropy_null(sums: ResidualSums, scores: JointScores, bootstrap: Bootstrap) -> AnisotropyNull:
    """Resample anisotropy with every testable joint's residuals scaled until its R2 is the common mean.

        r_j -> r_j sqrt((1 - mean R2) / (1 - R2_j))

    Which episodes are hard, and for which joints together, stays as it is: episodes are drawn whole. Draws of
    E episodes from E spread less than E new ones would, by sqrt((E - 1) / E): their gaps are widened by the
    inverse.

    Parameters
    ----------
    sums : of the probe's predictions.
    scores : the same probe's.
    bootstrap : of the same episodes.
    """
    testable = scores.testable
    if scores.anisotropy.value is None:
        return AnisotropyNull(None, np.nan, np.zeros(0), scores.anisotropy.note)
    residual_ss, total_ss = sums.squares(np.ones((1, len(sums))))
    lost = 1 - r2(residual_ss, total_ss)[0, testable]
    if not (lost > 0).all():
        return AnisotropyNull(None, np.nan, np.zeros(0), "no null: a joint is predicted without any error")
    if not len(bootstrap):
        note = f"no null: {len(sums)} evaluation episode"
        return AnisotropyNull(None, np.nan, np.zeros(0), note)
    residual_ss, total_ss = sums.squares(bootstrap.weights)
    scale = lost.mean() / lost
    every = np.ones(len(lost), dtype=bool)
    table = score_table(residual_ss[:, testable] * scale, total_ss[:, testable], every, every)
    draws = table.anisotropy * np.sqrt(len(sums) / (len(sums) - 1))
    return AnisotropyNull(_null(scores.anisotropy.value, draws), float(1 - lost.mean()), draws, "")


def _null(observed: float, draws: FloatArray) -> NullValue:
    defined = draws[np.isfinite(draws)]
    return NullValue(
        mean=float(defined.mean()),
        q95=float(np.quantile(defined, 0.95)),
        observed=observed,
        p_value=float((1 + (defined >= observed).sum()) / (1 + len(defined))),
    )


@dataclass(frozen=True, eq=False)
class Contrast:
    """Best minus worst joint, chosen on training episodes, measured on evaluation episodes.

    Attributes
    ----------
    best, worst : columns of the joints; None where there is no choice (`estimate.note` says why).
    train_r2 : [J], held-out R2 on training episodes at the chosen alpha, by which they were chosen; empty
        where the fit was not cross-validated.
    estimate : R2 of `best` minus R2 of `worst` with its paired interval. It may well be below 0.
    """

    best: int | None
    worst: int | None
    train_r2: FloatArray
    estimate: Estimate


def crossfit_contrast(fit: RidgeFit, scores: JointScores) -> Contrast:
    """The difference of the two joints that training episodes call best and worst, of those testable.

    Parameters
    ----------
    fit : chosen by cross-validation; one of a fixed alpha has no held-out R2 and gives no contrast.
    scores : of the same probe on evaluation episodes.
    """
    bootstrap = scores.anisotropy.bootstrap
    nothing = np.full(len(bootstrap), np.nan)
    if fit.path is None:
        note = "no contrast: alpha was given, so training episodes have no held-out R2"
        return Contrast(None, None, np.zeros(0), bootstrap.estimate(None, nothing, note))
    row = np.searchsorted(fit.path.alphas, fit.alpha_by_joint)
    train_r2 = fit.path.joint_scores()[row, np.arange(len(row))]
    usable = np.flatnonzero(scores.testable & np.isfinite(train_r2))
    if len(usable) < 2:
        note = (
            scores.anisotropy.note if scores.testable.sum() < 2 else "fewer than two joints vary in training"
        )
        return Contrast(None, None, train_r2, bootstrap.estimate(None, nothing, note))
    best = int(usable[np.argmax(train_r2[usable])])
    worst = int(usable[np.argmin(train_r2[usable])])
    return Contrast(best, worst, train_r2, difference(scores.joints[best], scores.joints[worst]))
