"""Inverse kinematics, checked by the forward kinematics it never sees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.kinematics import reach
from sim.so101 import SimArm

START = np.array([0.0, -0.3, 0.3, 1.2, 0.0, 0.5])


@pytest.fixture(scope="module")
def arm() -> SimArm:
    return SimArm()


@settings(max_examples=40)
@given(
    radius=st.floats(0.16, 0.24),
    bearing=st.floats(-0.9, 0.9),
    height=st.floats(0.014, 0.08),
    yaw=st.floats(-0.8, 0.8),
)
def test_reachable_places_are_reached_from_above(
    arm: SimArm, radius: float, bearing: float, height: float, yaw: float
) -> None:
    place = np.array([0.0388 + radius * np.cos(bearing), radius * np.sin(bearing), height])
    found = reach(arm, place, yaw, START)
    at = arm.forward_kinematics(found.position, "grasp")
    assert np.linalg.norm(at - place) == pytest.approx(found.error_m, abs=1e-9)
    assert found.error_m < 2e-3
    assert found.lean_rad < 0.3  # roughly downward
    assert np.all(found.position >= arm.limits[:, 0]) and np.all(found.position <= arm.limits[:, 1])
    assert found.position[5] == START[5]


def test_the_jaws_open_along_the_wished_direction(arm: SimArm) -> None:
    for yaw in (-1.0, 0.0, 0.7, 1.4):
        found = reach(arm, np.array([0.21, 0.08, 0.03]), yaw, START)
        arm.reset(None, found.position)
        jaw_axis = arm.data.site("grasp").xmat.reshape(3, 3)[:, 0]
        np.testing.assert_allclose(jaw_axis, [np.cos(yaw), np.sin(yaw), 0], atol=0.02)


def test_a_place_out_of_reach_is_approached_and_the_distance_told(arm: SimArm) -> None:
    found = reach(arm, np.array([0.9, 0.0, 0.1]), 0.0, START)
    assert found.error_m > 0.3
    assert np.all(np.isfinite(found.position))
