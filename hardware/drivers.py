"""What commands the arm, cycle by cycle: nothing, a motion, or a leader arm."""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np

from hardware.arm import Arm, JointSample
from hardware.bus import BusFault, BusLost
from hardware.trajectories import Motion, Walk

PAUSE_RAMP_S = 0.4
LONGEST_STEP_S = 0.05  # a late cycle never makes the motion jump
CATCH_UP_RAD_S = 0.6
CAUGHT_UP_RAD = 0.05
LEADER_SILENT_S = 0.25
LEADER_BUDGET_NS = 4_000_000  # of a cycle, for reading the leader


class Driver(Protocol):
    """Says where the arm is sent in this cycle (rad, [J]), or None: it is not commanded."""

    finished: bool

    def step(self, now_ns: int) -> np.ndarray | None: ...


class Watch:
    """Commands nothing: the arm is limp, or moved by somebody else."""

    finished = False

    def step(self, now_ns: int) -> np.ndarray | None:
        return None


class Hold:
    """Keeps the arm where it was last sent."""

    finished = True

    def __init__(self, target: np.ndarray) -> None:
        self.target = np.asarray(target, float)

    def step(self, now_ns: int) -> np.ndarray | None:
        return self.target


class Follow:
    """Follows a motion; its time can be halted and set going again without a jerk.

    Attributes
    ----------
    knots : of a walk: (time_ns, rad [J]) of each knot that has been reached, interpolated to when.
    """

    def __init__(self, motion: Motion) -> None:
        self.motion = motion
        self.finished = False
        self.paused = False
        self.knots: list[tuple[int, np.ndarray]] = []
        self.time_s = 0.0
        self._pace = 1.0
        self._last_ns: int | None = None
        self._target = motion.target(0.0)

    def step(self, now_ns: int) -> np.ndarray | None:
        if self._last_ns is None:
            self._last_ns = now_ns
            self._reach(0.0, now_ns, now_ns)
            return self._target
        passed_s = min((now_ns - self._last_ns) / 1e9, LONGEST_STEP_S)
        towards = 0.0 if self.paused else 1.0
        change = passed_s / PAUSE_RAMP_S
        self._pace += min(max(towards - self._pace, -change), change)
        before_ns, self._last_ns = self._last_ns, now_ns
        before_s, self.time_s = self.time_s, self.time_s + self._pace * passed_s
        self._reach(before_s, before_ns, now_ns)
        target = self.motion.target(self.time_s)
        if target is None:
            self.finished = True
            return self._target
        self._target = target
        return target

    def _reach(self, before_s: float, before_ns: int, now_ns: int) -> None:
        """Note each knot whose time has come, at the instant when the motion's time was the knot's."""
        if not isinstance(self.motion, Walk):
            return
        times = self.motion.knot_times_s
        while len(self.knots) < len(times) and times[len(self.knots)] <= self.time_s:
            due = times[len(self.knots)]
            share = 1.0 if self.time_s == before_s else (due - before_s) / (self.time_s - before_s)
            knot = self.motion.plan.knots[len(self.knots)]
            self.knots.append((before_ns + round(share * (now_ns - before_ns)), knot))


class Teleop:
    """Sends the arm where the leader arm is; the leader is only ever read.

    At first the follower moves slowly, until it has caught up; then no joint is sent faster than
    `velocity_rad_s`, however fast the leader is moved.
    """

    finished = False

    def __init__(self, leader: Arm, start: np.ndarray, velocity_rad_s: float) -> None:
        self.leader = leader
        self.velocity_rad_s = velocity_rad_s
        self.caught_up = False
        self.sample: JointSample | None = None
        self.silent_s = 0.0
        self.missed = 0
        self._pending: JointSample | None = None
        self._target = np.asarray(start, float)
        self._last_ns: int | None = None
        self._heard_ns: int | None = None

    def step(self, now_ns: int) -> np.ndarray | None:
        # A reading counts once the line stayed silent behind it, so the one before is followed.
        if self.leader.confirm() and self._pending is not None:
            self.sample, self._heard_ns = self._pending, now_ns
        try:
            self._pending = self.leader.read(deadline_ns=time.monotonic_ns() + LEADER_BUDGET_NS)
        except BusLost:
            raise
        except BusFault:
            self._pending = None
            self.missed += 1
        passed_s = 0.0 if self._last_ns is None else min((now_ns - self._last_ns) / 1e9, LONGEST_STEP_S)
        self._last_ns = now_ns
        self._heard_ns = self._heard_ns or now_ns
        self.silent_s = (now_ns - self._heard_ns) / 1e9
        if self.sample is None or self.silent_s > LEADER_SILENT_S:
            return self._target
        away = self.sample.position - self._target
        self.caught_up = self.caught_up or bool(np.abs(away).max() < CAUGHT_UP_RAD)
        step = (self.velocity_rad_s if self.caught_up else CATCH_UP_RAD_S) * passed_s
        self._target = self._target + np.clip(away, -step, step)
        return self._target
