"""The guard stops what passes a limit for too long, and slow motions go round what is in the way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardware.arm import JointSample
from hardware.errors import InputError
from hardware.safety import Guard, SafetyLimits, Trip, glide, safe_path

NAMES = ("shoulder", "elbow", "wrist")
LIMITS = SafetyLimits(
    velocity_rad_s=2, current_a=1, temperature_c=60, tracking_rad=0.3, patience_s=0.4, blind_s=0.25
)
CYCLE_NS = 10_000_000


def sample(**changes: object) -> JointSample:
    """A healthy arm at rest at zero, but for `changes`."""
    still = np.zeros(3)
    fields = dict(
        time_ns=0,
        position=still,
        velocity=still,
        load=still,
        current=still,
        temperature=np.full(3, 30.0),
        voltage=np.full(3, 7.4),
        ticks=np.full(3, 2048),
        error={},
    )
    return JointSample(**{**fields, **changes})


def cycles(seen: JointSample | None, seconds: float, target: np.ndarray | None = None) -> Trip | None:
    """The first trip while `seen` is read again and again for `seconds`."""
    guard = Guard(NAMES, LIMITS)
    guard.start(0)
    for cycle in range(round(seconds * 100)):
        trip = guard.check(seen, target, cycle * CYCLE_NS)
        if trip is not None:
            return trip
    return None


def one_joint(value: float) -> np.ndarray:
    return np.array([0.0, value, 0.0])


@pytest.mark.parametrize(
    ("changes", "target", "kind"),
    [
        ({"velocity": one_joint(-2.5)}, None, "overspeed"),
        ({"current": one_joint(-1.2)}, None, "over_current"),
        ({"position": one_joint(0.2)}, one_joint(-0.2), "stall"),
    ],
)
def test_a_limit_may_be_passed_for_a_moment_but_not_for_long(
    changes: dict[str, np.ndarray], target: np.ndarray | None, kind: str
) -> None:
    seen = sample(**changes)
    assert cycles(seen, 0.38, target) is None
    trip = cycles(seen, 0.6, target)
    assert trip is not None and (trip.kind, trip.joint) == (kind, "elbow")


def test_passing_a_limit_again_and_again_for_a_moment_is_no_trip() -> None:
    guard = Guard(NAMES, LIMITS)
    guard.start(0)
    fast, slow = sample(velocity=one_joint(2.5)), sample()
    for cycle in range(500):
        assert guard.check(fast if cycle % 30 else slow, None, cycle * CYCLE_NS) is None


def test_heat_and_latched_errors_stop_at_once() -> None:
    trip = cycles(sample(temperature=np.array([30, 30, 60.0])), 0.01)
    assert trip is not None and (trip.kind, trip.joint) == ("overheat", "wrist")
    trip = cycles(sample(error={"elbow": ("overload",)}), 0.01)
    assert (
        trip is not None and (trip.kind, trip.joint) == ("servo_error", "elbow") and "overload" in str(trip)
    )
    assert cycles(sample(error={"elbow": ("angle",)}), 1.0) is None


def test_a_gripper_may_press_but_not_burn() -> None:
    guard = Guard(("shoulder", "elbow", "gripper"), LIMITS)
    guard.start(0)
    pressing = sample(current=np.array([0, 0, 2.0]), position=np.array([0, 0, 0.9]))
    for cycle in range(200):
        assert guard.check(pressing, np.zeros(3), cycle * CYCLE_NS) is None
    trip = guard.check(sample(temperature=np.array([30, 30, 61.0])), np.zeros(3), 200 * CYCLE_NS)
    assert trip is not None and trip.joint == "gripper"


def test_a_blind_arm_is_stopped() -> None:
    assert cycles(None, 0.24) is None
    trip = cycles(None, 0.4)
    assert trip is not None and trip.kind == "bus_silent"


def wall(low: float, high: float) -> object:
    """Something in the way of joint 0 between two angles, unless joint 1 is raised."""

    def clear(positions: np.ndarray) -> list[str | None]:
        return ["table" if low < row[0] < high and row[1] < 0.5 else None for row in positions]

    return clear


def test_a_free_way_is_straight_and_a_blocked_one_goes_over_the_middle() -> None:
    start, goal, via = np.array([0.0, 0.0]), np.array([1.0, 0.0]), np.array([0.5, 2.0])
    np.testing.assert_array_equal(safe_path(start, goal, wall(5, 6), via, "x"), [start, goal])
    np.testing.assert_array_equal(safe_path(start, goal, wall(0.45, 0.55), via, "x"), [start, via, goal])
    with pytest.raises(InputError, match="would meet the table"):
        safe_path(start, goal, wall(0.45, 0.55), None, "x")
    with pytest.raises(InputError, match="would meet the table"):
        safe_path(start, goal, wall(0.1, 0.9), np.array([0.5, 0.1]), "x")


def test_an_arm_that_lies_on_the_table_may_rise_from_it_and_come_back() -> None:
    lying, free = np.array([0.0, 0.0]), np.array([1.0, 0.0])
    on_the_table = wall(-0.1, 0.3)
    for way in ((lying, free), (free, lying)):
        np.testing.assert_array_equal(safe_path(*way, on_the_table, None, "x"), way)
    with pytest.raises(InputError, match="would meet the table"):  # that is no rising, that is ploughing
        safe_path(lying, np.array([2.0, 0.0]), wall(-0.1, 1.5), None, "x")


def test_a_glide_without_a_model_is_straight() -> None:
    way = glide(np.zeros(2), np.ones(2), None, None, "x")
    np.testing.assert_array_equal(way.stops, [[0, 0], [1, 1]])


def test_limits_can_be_set() -> None:
    guard = Guard(NAMES, replace(LIMITS, temperature_c=25))
    guard.start(0)
    trip = guard.check(sample(), None, 1)
    assert trip is not None and trip.kind == "overheat"
