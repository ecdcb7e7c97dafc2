"""Joints that go round: logs that wrap, and a probe whose targets do not.

A joint that turns past +-pi jumps by 2 pi in its log, and no linear probe follows a jump: for angles spread
evenly over the circle, a probe that knows sine and cosine perfectly reaches R2 = 6 / pi^2 = 0.61 on the
logged angle. Here such a joint is probed through its sine and cosine, the predicted angle is their atan2, and
errors are taken the short way round.

    circular R2 = 1 - sum(1 - cos e) / (n (1 - R)),    e the wrapped error, R the mean resultant length

It is R2 with 1 - cos in the place of half a square. n (1 - R) is the sum of 1 - cos about the mean direction
of the evaluated angles (circular variance: Mardia and Jupp 2000, Directional Statistics, section 2.3), so
always guessing that direction scores 0; Lund (1999, J. Applied Statistics 26) takes the same distance for
regression. For small angles it is the ordinary R2. For angles spread over the whole circle no guess beats
another, 1 - R is near 1, and a worthless probe scores about 0 too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probe.bootstrap import Bootstrap, Estimate
from probe.clusters import EpisodeClusters
from probe.moments import FloatArray, check_rows
from probe.ridge import RidgeFit, fit_ridge
from probe.statistics import ResidualSums, r2


@dataclass(frozen=True, eq=False)
class Wraps:
    """Where logged angles jump by more than half a turn from one row of an episode to the next.

    Attributes
    ----------
    count : int64 [J], jumps of each joint.
    episodes : int64 [J], episodes with at least one.
    first_row : int64 [J], the row at which the first jump has happened; -1 where there is none.
    """

    count: NDArray[np.int64]
    episodes: NDArray[np.int64]
    first_row: NDArray[np.int64]

    @property
    def wrapping(self) -> NDArray[np.bool_]:
        """bool [J], joints that wrap at least once: those to probe by sine and cosine."""
        return self.count > 0

    def __str__(self) -> str:
        if not self.wrapping.any():
            return "no joint wraps"
        return "; ".join(
            f"joint {joint} wraps {self.count[joint]} times in {self.episodes[joint]} episodes, first at row "
            f"{self.first_row[joint]}"
            for joint in np.flatnonzero(self.wrapping)
        )


def find_wraps(angle_rad: NDArray[Any], episodes: EpisodeClusters) -> Wraps:
    """Wraps of logged angles [N, J] in rad; an episode's rows are in order of time.

    No arm turns half a turn between two rows, but a missing stretch of rows can look like one: count wraps
    before rows are dropped or thinned. Joints in other units (a gripper in percent) have no wraps to find.
    """
    if angle_rad.ndim != 2 or len(angle_rad) != episodes.n_rows:
        raise ValueError(f"expected angles [{episodes.n_rows}, J], got shape {angle_rad.shape}")
    n_joints = angle_rad.shape[1]
    jumps = np.zeros(angle_rad.shape, dtype=bool)
    where = np.zeros(n_joints, dtype=np.int64)
    for episode in range(len(episodes)):
        rows = episodes.rows(episode)
        jumps[rows[1:]] = np.abs(np.diff(angle_rad[rows], axis=0)) > np.pi
        where += jumps[rows].any(axis=0)
    first = np.where(jumps.any(axis=0), jumps.argmax(axis=0), -1)
    return Wraps(jumps.sum(axis=0), where, first)


def wrapped(angle_rad: NDArray[Any]) -> FloatArray:
    """The same angles in [-pi, pi)."""
    turned: FloatArray = (np.asarray(angle_rad, dtype=np.float64) + np.pi) % (2 * np.pi) - np.pi
    return turned


def sine_cosine(angle_rad: NDArray[Any]) -> FloatArray:
    """Targets of angles [N, J]: the J sines, then the J cosines, [N, 2J]."""
    angle = np.asarray(angle_rad, dtype=np.float64)
    return np.hstack([np.sin(angle), np.cos(angle)])


def angle_of(sine_and_cosine: NDArray[Any]) -> FloatArray:
    """Angles [N, J] in rad, [-pi, pi], of predicted sines and cosines [N, 2J], whatever their length."""
    sine, cosine = np.hsplit(np.asarray(sine_and_cosine, dtype=np.float64), 2)
    return np.arctan2(sine, cosine)


@dataclass(frozen=True, eq=False)
class AngleScore:
    """One joint probed through its sine and cosine.

    Attributes
    ----------
    r2 : circular R2 of the predicted angle.
    rmse_rad : root mean squared wrapped error.
    target_r2 : R2 of sine and cosine themselves, their squares added up; wherever the joint's zero lies, it
        is the same. SS_tot about the evaluated rows' mean, as everywhere.
    """

    r2: Estimate
    rmse_rad: Estimate
    target_r2: Estimate

    def __str__(self) -> str:
        def text(estimate: Estimate) -> str:
            if estimate.value is None:
                return "-"
            return f"{estimate.value:.3f}" + (
                "" if estimate.low is None else f" [{estimate.low:.3f}, {estimate.high:.3f}]"
            )

        return (
            f"circular R2 {text(self.r2)}, RMSE {text(self.rmse_rad)} rad, "
            f"R2 of sine and cosine {text(self.target_r2)}"
        )


@dataclass(frozen=True, eq=False)
class AngleProbe:
    """Probe of angles through sines and cosines.

    Attributes
    ----------
    fit : ridge on the 2J targets of `sine_cosine`; one alpha for all of them.
    scores : one a joint.
    prediction_rad : [M, J], predicted angles of the evaluation rows.
    """

    fit: RidgeFit
    scores: tuple[AngleScore, ...]
    prediction_rad: FloatArray


def probe_angles(
    x_train: NDArray[Any],
    angle_train: NDArray[Any],
    train: EpisodeClusters,
    x_evaluate: NDArray[Any],
    angle_evaluate: NDArray[Any],
    evaluate: EpisodeClusters,
    *,
    alphas: Sequence[float] | FloatArray,
    bootstrap: Bootstrap,
    folds: int = 5,
) -> AngleProbe:
    """Ridge from latents to sine and cosine of every joint given, scored on the evaluation rows.

    Parameters
    ----------
    x_train, angle_train, train : latents [N, D], angles [N, J] in rad (those that wrap, and no others; any
        multiple of 2 pi may be added to them) and their episodes.
    x_evaluate, angle_evaluate, evaluate : [M, D], [M, J] and their episodes.
    alphas, folds : as `fit_ridge`.
    bootstrap : of the evaluation episodes.

    Raises
    ------
    ValueError : as `fit_ridge`, and a bootstrap of other episodes.
    """
    fit = fit_ridge(x_train, sine_cosine(angle_train), train, alphas=alphas, folds=folds)
    predicted = fit.predict(x_evaluate)
    return AngleProbe(fit, score_angles(angle_evaluate, predicted, evaluate, bootstrap), angle_of(predicted))


def score_angles(
    angle_rad: NDArray[Any], predicted: NDArray[Any], episodes: EpisodeClusters, bootstrap: Bootstrap
) -> tuple[AngleScore, ...]:
    """Scores of predicted sines and cosines `predicted` [M, 2J] of true angles [M, J], one a joint.

    A joint that stands still has no circular R2 (value None).
    """
    check_rows(predicted, angle_rad, episodes)
    if not np.array_equal(episodes.labels, bootstrap.episodes):
        raise ValueError("the bootstrap was drawn for other episodes than the ones evaluated")
    n_joints = angle_rad.shape[1]
    targets = sine_cosine(angle_rad)
    sums = ResidualSums.of(targets, predicted, episodes)
    error = wrapped(angle_of(predicted) - angle_rad)
    away, square = episodes.sums(1 - np.cos(error)), episodes.sums(error**2)
    sine, cosine = np.hsplit(episodes.sums(targets), 2)

    def scores(weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Circular R2, RMSE and R2 of the targets in each resample, [B, J] each."""
        n = (weights @ episodes.count)[:, None]
        residual_ss, total_ss = (both[:, :n_joints] + both[:, n_joints:] for both in sums.squares(weights))
        # n (1 - R); a joint that stands still leaves only rounding of it, and no spread of its targets
        spread = n - np.hypot(weights @ sine, weights @ cosine)
        circular = r2(weights @ away, np.where(total_ss > 0, spread, 0.0))
        return circular, np.sqrt(weights @ square / n), r2(residual_ss, total_ss)

    point, draws, without = (
        scores(weights) for weights in (np.ones((1, len(episodes))), bootstrap.weights, bootstrap.left_out)
    )

    def estimate(which: int, joint: int) -> Estimate:
        value = float(point[which][0, joint])
        if np.isnan(value):
            return bootstrap.estimate(None, draws[which][:, joint], "the joint does not move")
        return bootstrap.estimate(value, draws[which][:, joint], jackknife=without[which][:, joint])

    return tuple(
        AngleScore(estimate(0, joint), estimate(1, joint), estimate(2, joint)) for joint in range(n_joints)
    )
