"""Motions as functions of time: what moves a simulated or a real arm, planned before it moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hardware.episode import ActionLog
from hardware.errors import InputError
from hardware.motions import PEAK_OF_MINIMUM_JERK, WalkPlan, blend, minimum_jerk

WALK_SECONDS = 30.0  # of one episode, where nobody says
HOLD_AFTER_WALK_S = 0.2  # so that a frame follows the last knot


class Motion(Protocol):
    """Whatever moves the arm: targets (rad, [J]) by time since its start, None when it is over."""

    def target(self, time_s: float) -> np.ndarray | None: ...


@dataclass(frozen=True)
class Walk:
    """A planned walk as a motion."""

    plan: WalkPlan
    period_s: float

    @property
    def knot_times_s(self) -> np.ndarray:
        """When each knot is reached, seconds after the start, float64 [k]."""
        return np.arange(len(self.plan.knots)) * self.period_s

    def target(self, time_s: float) -> np.ndarray | None:
        """The target at `time_s`; the last knot is held for a moment."""
        if time_s > self.knot_times_s[-1] + HOLD_AFTER_WALK_S:
            return None
        return minimum_jerk(self.plan.knots, self.period_s, time_s)


@dataclass(frozen=True)
class Replay:
    """Targets that were sent before, sent again at the same intervals; between two the line is followed.

    Parameters
    ----------
    time_s : seconds after the first, float64 [m], rising.
    targets : rad, float64 [m, J].
    """

    time_s: np.ndarray
    targets: np.ndarray

    @classmethod
    def of(cls, log: ActionLog | None, where: object) -> Replay:
        """The motion that repeats an episode's actions; InputError where there are none."""
        if log is None or len(log.time_ns) < 2:
            raise InputError(
                where, "has no actions to replay", "choose an episode of a walk, of teleoperation or of demos"
            )
        return cls((log.time_ns - log.time_ns[0]) / 1e9, log.target)

    def target(self, time_s: float) -> np.ndarray | None:
        """The target at `time_s`, None after the last."""
        if time_s > self.time_s[-1]:
            return None
        return np.array([np.interp(time_s, self.time_s, column) for column in self.targets.T])


@dataclass(frozen=True)
class Glide:
    """A slow minimum-jerk motion through `stops` (rad, [k, J]), resting at each; no joint passes
    `velocity_rad_s`.
    """

    stops: np.ndarray
    velocity_rad_s: float = 0.5
    shortest_s: float = 0.5

    @property
    def leg_seconds(self) -> np.ndarray:
        """Duration of each leg, float64 [k - 1]: peak speed is 1.875 |step| / T."""
        steps = np.abs(np.diff(self.stops, axis=0)).max(axis=1)
        return np.maximum(PEAK_OF_MINIMUM_JERK * steps / self.velocity_rad_s, self.shortest_s)

    def target(self, time_s: float) -> np.ndarray | None:
        """The target at `time_s`, None after the last stop."""
        ends = np.cumsum(self.leg_seconds)
        if len(ends) == 0 or time_s > ends[-1]:
            return None
        leg = int(np.searchsorted(ends, time_s))
        share = blend(1 - (ends[leg] - time_s) / self.leg_seconds[leg])
        return self.stops[leg] + share * (self.stops[leg + 1] - self.stops[leg])
