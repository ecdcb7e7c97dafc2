"""What ends a motion of the arm: measured limits, and how long each may be passed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from hardware.arm import JointSample
from hardware.calibration import is_gripper
from hardware.errors import InputError
from hardware.trajectories import Glide

LATCHING_ERRORS = ("overload", "overheat", "over-current", "voltage")
PATH_STEP_RAD = 0.05
CLEARANCE_M = (
    0.012  # what a planned pose keeps from everything: the arm lags, sags and is not quite the model
)
LONGEST_CONTACT_RAD = 0.6  # of an arm that rises from where it lies

Clear = Callable[[np.ndarray], "Sequence[str | None]"]
"""Asks a model what is hit at joint angles (rad, [n, J]): "table", "arm" or None for each row."""


@dataclass(frozen=True)
class SafetyLimits:
    """Where a moving arm is stopped. The defaults suit an SO-101 whose servos are healthy.

    Parameters
    ----------
    sent_rad_s : no joint is sent faster than this, whatever a leader or a replayed recording asks for; a walk
        asks for at most 4.
    velocity_rad_s : measured joint speed.
    current_a : of one servo (an STS3215 stalls at about 2.5 A).
    temperature_c : of one servo; its own protection acts at 70.
    tracking_rad : how far a joint may be from where it was sent; more means it is held by something.
    patience_s : how long velocity, current and tracking may be passed.
    blind_s : how long there may be no good sample.
    """

    sent_rad_s: float = 5.0
    velocity_rad_s: float = 8.0
    current_a: float = 1.2
    temperature_c: float = 60.0
    tracking_rad: float = 0.6
    patience_s: float = 0.4
    blind_s: float = 0.25


TOUCHING = SafetyLimits(patience_s=3.0)
"""For motions that are meant to touch things: a servo that is overloaded protects itself before this."""


@dataclass(frozen=True)
class Trip:
    """Why a motion was stopped."""

    kind: str
    joint: str
    message: str

    def __str__(self) -> str:
        return f"{self.joint}: {self.message}" if self.joint else self.message


@dataclass
class Guard:
    """Watches a moving arm sample by sample; the first limit that is passed too long is a `Trip`.

    A gripper is meant to press against things: its current and where it was sent are left to the protection
    in its servo.
    """

    names: Sequence[str]
    limits: SafetyLimits = field(default_factory=SafetyLimits)
    _since: dict[tuple[str, int], int] = field(default_factory=dict)
    _seen_ns: int | None = None

    def start(self, now_ns: int) -> None:
        """Forget the past: a motion begins."""
        self._since.clear()
        self._seen_ns = now_ns

    def check(self, sample: JointSample | None, target: np.ndarray | None, now_ns: int) -> Trip | None:
        """What stops the motion at `now_ns`, or None.

        Parameters
        ----------
        sample : what was read in this cycle; None where the read failed.
        target : where the arm was sent, rad, [J]; None where it was not sent anywhere.
        """
        if sample is None:
            silence_s = 0.0 if self._seen_ns is None else (now_ns - self._seen_ns) / 1e9
            if silence_s <= self.limits.blind_s:
                return None
            return Trip("bus_silent", "", f"no good reading for {silence_s:.2f} s")
        self._seen_ns = now_ns
        for joint, errors in sample.error.items():
            latched = [error for error in errors if error in LATCHING_ERRORS]
            if latched:
                return Trip("servo_error", joint, f"the servo reports {', '.join(latched)}")
        hot = int(np.argmax(sample.temperature))
        if sample.temperature[hot] >= self.limits.temperature_c:
            return Trip("overheat", self.names[hot], f"{sample.temperature[hot]:.0f} deg C")
        away = np.zeros(len(self.names)) if target is None else np.abs(sample.position - target)
        for kind, values, limit, text in (
            ("overspeed", np.abs(sample.velocity), self.limits.velocity_rad_s, "moves at {:.1f} rad/s"),
            ("over_current", np.abs(sample.current), self.limits.current_a, "draws {:.2f} A"),
            ("stall", away, self.limits.tracking_rad, "is {:.2f} rad from where it was sent"),
        ):
            for index, name in enumerate(self.names):
                presses = is_gripper(name) and kind != "overspeed"
                if values[index] <= limit or presses:
                    self._since.pop((kind, index), None)
                elif (now_ns - self._since.setdefault((kind, index), now_ns)) / 1e9 > self.limits.patience_s:
                    return Trip(kind, name, text.format(values[index]))
        return None


def safe_path(
    start: np.ndarray, goal: np.ndarray, clear: Clear, via: np.ndarray | None, what: str
) -> np.ndarray:
    """Stops of a glide from `start` to `goal` that hits nothing: straight, or else over `via`.

    An arm at rest lies on something, so the path may begin in contact, and, since the same way leads back,
    end in it; in between it must be free.

    Parameters
    ----------
    start, goal, via : rad, [J].
    clear : says what is hit at joint angles.
    what : names the motion in the error.

    Returns
    -------
    rad, float64 [2 or 3, J].
    """
    ways = [np.stack([start, goal])]
    if via is not None:
        ways.append(np.stack([start, via, goal]))
    hits: list[str] = []
    for way in ways:
        hit = _hit_on(way, clear)
        if hit is None:
            return way
        hits.append(hit)
    raise InputError(
        what,
        f"would meet the {hits[0]}",
        "move the arm by hand to where it stands free, and start again",
    )


def _hit_on(stops: np.ndarray, clear: Clear) -> str | None:
    """What a path meets between its first and its last free point; a path that is never free meets that."""
    points = [stops[:1]]
    for one, other in pairwise(stops):
        count = max(2, int(np.ceil(np.abs(other - one).max() / PATH_STEP_RAD)) + 1)
        points.append(one + np.linspace(0, 1, count)[1:, None] * (other - one))
    found = list(clear(np.concatenate(points)))
    free = [index for index, hit in enumerate(found) if hit is None]
    allowed = round(LONGEST_CONTACT_RAD / PATH_STEP_RAD)
    if not free or free[0] > allowed:
        return found[0]
    if len(found) - 1 - free[-1] > allowed:
        return found[-1]
    return next((hit for hit in found[free[0] : free[-1] + 1] if hit is not None), None)


def glide(
    start: np.ndarray, goal: np.ndarray, clear: Clear | None, via: np.ndarray | None, what: str
) -> Glide:
    """A slow motion from `start` to `goal`, checked where there is something to ask."""
    stops = np.stack([start, goal]) if clear is None else safe_path(start, goal, clear, via, what)
    return Glide(stops)
