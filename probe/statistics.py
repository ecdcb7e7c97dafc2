"""How well a probe does: R2 by joint, their mean and their anisotropy, with intervals over episodes.

    R2 = 1 - SS_res / SS_tot,    SS_tot about the mean of the evaluated sample (in a resample: its own)

Both sums of squares of any resample of episodes come from a few sums an episode and joint (`ResidualSums`),
so that thousands of resamples are one matrix product. A joint that hardly moves in the evaluation rows has no
R2 here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probe.bootstrap import NOT_NEGATIVE, R2_RANGE, Bootstrap, Estimate
from probe.clusters import EpisodeClusters
from probe.moments import FloatArray, check_rows

BACKLASH_RAD = float(np.radians(1.0))  # full play of an SO-101 joint, about 1 degree
_DEGENERATE = 1e-12  # SS_tot below this share of the squares it is left over from is rounding


@dataclass(frozen=True, eq=False)
class JointSpread:
    """Which joints move enough in the evaluation rows for an R2 to mean anything; decided from joints alone.

    Attributes
    ----------
    std, min_std : [J], [J], in the joints' own units (ddof 0).
    testable : bool [J], std >= min_std.
    """

    std: FloatArray
    min_std: FloatArray
    testable: NDArray[np.bool_]


def min_std_of_units(
    units: Sequence[str], *, min_std_rad: float = 0.02, min_std_percent: float = 1.0
) -> FloatArray:
    """Least std of each joint, [J]: by unit `rad` or `percent`; infinite for any other (never testable)."""
    return np.array([{"rad": min_std_rad, "percent": min_std_percent}.get(unit, np.inf) for unit in units])


def spread_of_joints(y: FloatArray, min_std: float | FloatArray) -> JointSpread:
    """Spread of joints `y` [N, J] (the evaluation rows) against one least std, or one a joint [J]."""
    least = np.broadcast_to(np.asarray(min_std, dtype=np.float64), (y.shape[1],)).copy()
    std = np.where(np.ptp(y, axis=0) > 0, y.std(axis=0), 0.0)
    return JointSpread(std, least, std >= least)


def backlash_ceiling(std: FloatArray, width_rad: float = BACKLASH_RAD) -> FloatArray:
    """Highest R2 that a joint's own play allows, [J], where joints have std [J] in rad; NaN where it is 0.

    The true angle is taken to be spread evenly over a range of full width `width_rad` (half to either side)
    around the logged one, independently of all else: what the log cannot show has variance width^2 / 12.
    """
    # ceiling = 1 - (w^2 / 12) / var
    variance = np.where(std > 0, np.asarray(std, dtype=np.float64) ** 2, np.nan)
    return 1 - width_rad**2 / 12 / variance


def r2(residual_ss: FloatArray, total_ss: FloatArray) -> FloatArray:
    """1 - residual_ss / total_ss, elementwise; NaN where the total is 0."""
    return 1 - residual_ss / np.where(total_ss > 0, total_ss, np.nan)


@dataclass(frozen=True, eq=False)
class ResidualSums:
    """Per-episode sums behind R2; y is taken about the mean of all evaluated rows, so that no digits cancel.

    Attributes
    ----------
    episodes : [E], labels; count : [E], rows.
    y_sum, yy_sum : [E, J], of y and y^2.
    r_sum, rr_sum : [E, J], of the residual y - prediction and its square.
    """

    episodes: NDArray[Any]
    count: FloatArray
    y_sum: FloatArray
    yy_sum: FloatArray
    r_sum: FloatArray
    rr_sum: FloatArray

    @classmethod
    def of(cls, y: NDArray[Any], prediction: NDArray[Any], clusters: EpisodeClusters) -> ResidualSums:
        """From true and predicted joints [N, J]; ValueError where they differ in shape or are not finite."""
        check_rows(prediction, y, clusters)
        if y.shape != prediction.shape:
            raise ValueError(f"targets {y.shape} and predictions {prediction.shape} differ in shape")
        centred = y - y.mean(axis=0, dtype=np.float64)
        residual = np.asarray(y, dtype=np.float64) - prediction
        y_sum, yy_sum, r_sum, rr_sum = (
            clusters.sums(values) for values in (centred, centred**2, residual, residual**2)
        )
        return cls(clusters.labels, clusters.count.astype(np.float64), y_sum, yy_sum, r_sum, rr_sum)

    def __len__(self) -> int:
        return len(self.count)

    def rmse(self) -> FloatArray:
        """Root mean squared residual of each episode and joint, [E, J], in the joint's unit."""
        return np.sqrt(self.rr_sum / self.count[:, None])

    def bias(self) -> FloatArray:
        """Mean residual, true - predicted, of each episode and joint, [E, J]; a moved neutral is a step."""
        return self.r_sum / self.count[:, None]

    def squares(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """SS_res and SS_tot, [B, J] each, of B resamples; in each, episode e counts `weights[b, e]` times.

        SS_tot is exactly 0 where all that is left of it is rounding.
        """
        # SS_tot = sum w yy - (sum w y)^2 / sum w n
        raw = weights @ self.yy_sum
        total = raw - (weights @ self.y_sum) ** 2 / (weights @ self.count)[:, None]
        return weights @ self.rr_sum, np.where(total > _DEGENERATE * raw, total, 0.0)

    def shares(self, weights: FloatArray) -> FloatArray:
        """What one more of each episode would add to SS_tot, d SS_tot / d w_e, [B, E, J]."""
        # with m the resample's mean: yy - 2 m y + n m^2
        mean = ((weights @ self.y_sum) / (weights @ self.count)[:, None])[:, None, :]
        return self.yy_sum - mean * (2 * self.y_sum - mean * self.count[:, None])


@dataclass(frozen=True, eq=False)
class JointScores:
    """R2 of one probe on one evaluation set.

    Attributes
    ----------
    joints : R2 of each joint; value None where the joint is not testable.
    mean : uniform mean over the testable joints.
    weighted : 1 - sum(SS_res) / sum(SS_tot) over the joints it was asked for: the variance-weighted mean.
    anisotropy : max - min over the testable joints, chosen anew in each resample; biased upward.
    testable : bool [J].
    """

    joints: tuple[Estimate, ...]
    mean: Estimate
    weighted: Estimate
    anisotropy: Estimate
    testable: NDArray[np.bool_]


def score_joints(
    sums: ResidualSums,
    bootstrap: Bootstrap,
    testable: NDArray[np.bool_],
    *,
    weighted: NDArray[np.bool_] | None = None,
) -> JointScores:
    """R2 by joint, mean, weighted mean and anisotropy, with intervals.

    Parameters
    ----------
    sums : of the probe's predictions.
    bootstrap : of the same episodes.
    testable : bool [J]; joints outside are None and enter nothing.
    weighted : bool [J], joints of the weighted mean (those testable by default); leave out joints of another
        unit, whose variance does not compare.

    A resample in which a joint does not move has no R2 for it, hence no mean and no anisotropy; it is left
    out of these, and where that happens in more than 5 % of the resamples there is no interval.

    Raises
    ------
    ValueError : sums and bootstrap are of different episodes.
    """
    if not np.array_equal(sums.episodes, bootstrap.episodes):
        raise ValueError("the bootstrap was drawn for other episodes than the ones evaluated")
    testable = np.asarray(testable, dtype=bool)
    pool = testable if weighted is None else testable & np.asarray(weighted, dtype=bool)
    weights = np.concatenate([np.ones((1, len(sums))), bootstrap.weights, bootstrap.left_out])
    drawn = 1 + len(bootstrap)  # the sample itself, its resamples, then the jackknife
    residual_ss, total_ss = sums.squares(weights)
    table = score_table(residual_ss, total_ss, testable, pool)
    pull = None
    if bootstrap.interval == "studentised":
        pull = _influence(sums, weights[:drawn], residual_ss[:drawn], total_ss[:drawn], testable, pool)

    def estimate(
        values: FloatArray,
        influence: FloatArray | None,
        why_not: str,
        within: tuple[float, float] = R2_RANGE,
    ) -> Estimate:
        if why_not or np.isnan(values[0]):
            nothing = np.full(len(bootstrap), np.nan)
            return bootstrap.estimate(None, nothing, why_not or "the joint does not move")
        return bootstrap.estimate(
            float(values[0]),
            values[1:drawn],
            jackknife=values[drawn:],
            influence=influence,
            within=within,
        )

    n_testable = int(testable.sum())
    none = "" if n_testable else "no testable joint"
    not_weighted = none or ("" if pool.any() else "no joint to weigh")
    one = none or ("" if n_testable > 1 else "needs two testable joints")
    return JointScores(
        joints=tuple(
            estimate(
                table.r2[:, joint],
                None if pull is None else pull.r2[:, :, joint],
                "" if moves else "not testable",
            )
            for joint, moves in enumerate(testable)
        ),
        mean=estimate(table.mean, None if pull is None else pull.mean, none),
        weighted=estimate(table.weighted, None if pull is None else pull.weighted, not_weighted),
        anisotropy=estimate(
            table.anisotropy, None if pull is None else pull.anisotropy, one, within=NOT_NEGATIVE
        ),
        testable=testable,
    )


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """R2 by joint [B, J], mean, weighted and anisotropy [B] of B samples; or their influence, [B, E, ...]."""

    r2: FloatArray
    mean: FloatArray
    weighted: FloatArray
    anisotropy: FloatArray


def score_table(
    residual_ss: FloatArray, total_ss: FloatArray, testable: NDArray[np.bool_], pool: NDArray[np.bool_]
) -> ScoreTable:
    """The scores of B samples from their squares [B, J]; `pool` are the joints of the weighted mean.

    NaN where a joint that counts does not move in a sample, or where no joint counts.
    """
    joint_r2, total = r2(residual_ss, total_ss), np.where(total_ss > 0, total_ss, np.nan)
    nothing = np.full(len(joint_r2), np.nan)
    of = joint_r2[:, testable]
    return ScoreTable(
        r2=joint_r2,
        mean=of.mean(axis=1) if testable.any() else nothing,
        weighted=1 - residual_ss[:, pool].sum(axis=1) / total[:, pool].sum(axis=1) if pool.any() else nothing,
        anisotropy=of.max(axis=1) - of.min(axis=1) if testable.any() else nothing,
    )


def _influence(
    sums: ResidualSums,
    weights: FloatArray,
    residual_ss: FloatArray,
    total_ss: FloatArray,
    testable: NDArray[np.bool_],
    pool: NDArray[np.bool_],
) -> ScoreTable:
    """Derivatives of the four numbers by each episode's weight in B samples: r2 [B, E, J], others [B, E]."""
    # R2 = 1 - R / T:  dR2/dw = -(dR/dw - (R / T) dT/dw) / T
    shares, total = sums.shares(weights), np.where(total_ss > 0, total_ss, np.nan)
    joint = ((residual_ss / total)[:, None] * shares - sums.rr_sum) / total[:, None]
    nothing = np.full(joint.shape[:2], np.nan)
    mean = weighted = anisotropy = nothing
    if testable.any():
        mean = joint[:, :, testable].mean(axis=2)
        r2_of = np.where(testable, 1 - residual_ss / total, np.nan)
        rows = np.arange(len(r2_of))
        lost = np.isnan(r2_of[:, testable]).any(axis=1)
        best = np.where(lost, 0, np.argmax(np.where(np.isnan(r2_of), -np.inf, r2_of), axis=1))
        worst = np.where(lost, 0, np.argmin(np.where(np.isnan(r2_of), np.inf, r2_of), axis=1))
        anisotropy = joint[rows, :, best] - joint[rows, :, worst]
    if pool.any():
        all_total, all_residual = total[:, pool].sum(axis=1), residual_ss[:, pool].sum(axis=1)
        ratio = (all_residual / all_total)[:, None]
        weighted = (ratio * shares[:, :, pool].sum(axis=2) - sums.rr_sum[:, pool].sum(axis=1)) / all_total[
            :, None
        ]
    return ScoreTable(r2=joint, mean=mean, weighted=weighted, anisotropy=anisotropy)
