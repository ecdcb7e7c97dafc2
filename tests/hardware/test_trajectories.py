"""Motions by time: walks hold their last knot, replays repeat, glides keep their speed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.drivers import LONGEST_STEP_S, PAUSE_RAMP_S, Follow
from hardware.episode import ActionLog
from hardware.errors import InputError
from hardware.motions import WalkPlan
from hardware.trajectories import HOLD_AFTER_WALK_S, Glide, Replay, Walk

PERIOD_NS = 10_000_000


def a_walk(knots: int = 5, joints: int = 2, seed: int = 0) -> Walk:
    drawn = np.random.default_rng(seed).normal(0, 0.3, (knots, joints))
    return Walk(WalkPlan(drawn, np.zeros(joints), np.full(joints, 0.3)), 0.6)


def test_a_walk_passes_its_knots_and_holds_the_last_for_a_moment() -> None:
    walk = a_walk()
    for time_s, knot in zip(walk.knot_times_s, walk.plan.knots):
        np.testing.assert_allclose(walk.target(time_s), knot, atol=1e-12)
    end = walk.knot_times_s[-1]
    np.testing.assert_allclose(walk.target(end + HOLD_AFTER_WALK_S / 2), walk.plan.knots[-1])
    assert walk.target(end + HOLD_AFTER_WALK_S + 0.01) is None


def test_a_replay_gives_the_targets_at_their_times_and_lines_between() -> None:
    log = ActionLog(
        np.array([5_000, 6_000, 9_000]) * 1_000_000, np.array([[0.0, 1.0], [1.0, 1.0], [4.0, -2.0]])
    )
    replay = Replay.of(log, "here")
    for time_s, target in zip((0.0, 1.0, 4.0), log.target):
        np.testing.assert_allclose(replay.target(time_s), target)
    np.testing.assert_allclose(replay.target(2.5), [2.5, -0.5])
    assert replay.target(4.001) is None


@pytest.mark.parametrize("log", [None, ActionLog(np.array([1]), np.zeros((1, 2)))])
def test_nothing_to_replay_is_said(log: ActionLog | None) -> None:
    with pytest.raises(InputError, match="no actions to replay"):
        Replay.of(log, "episode 3")


@given(
    steps=st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=2, max_size=4),
    velocity=st.floats(0.1, 2.0),
)
def test_a_glide_meets_its_stops_and_is_never_faster_than_asked(
    steps: list[tuple[float, float]], velocity: float
) -> None:
    stops = np.array(steps)
    glide = Glide(stops, velocity)
    ends = np.concatenate([[0.0], np.cumsum(glide.leg_seconds)])
    for end, stop in zip(ends, stops):
        np.testing.assert_allclose(glide.target(float(end)), stop, atol=1e-9)
    assert glide.target(float(ends[-1]) + 1e-6) is None
    times = np.linspace(0, ends[-1], 400)
    path = np.array([glide.target(float(time)) for time in times])
    speed = np.abs(np.diff(path, axis=0)) / (times[1] - times[0])
    assert speed.max() <= velocity * (1 + 1e-6)


def run(driver: Follow, seconds: float, start_ns: int = 0) -> tuple[list[np.ndarray], int]:
    """Targets of `seconds` of cycles, and the time after them."""
    count = round(seconds * 1e9 / PERIOD_NS)
    return [driver.step(start_ns + PERIOD_NS * index) for index in range(count)], start_ns + PERIOD_NS * count


def test_knots_bear_the_instant_when_the_motion_reached_them() -> None:
    walk = a_walk()
    driver = Follow(walk)
    run(driver, 2.65, start_ns=7_000_000_000)
    reached = np.array([time_ns for time_ns, _ in driver.knots])
    np.testing.assert_allclose((reached - 7_000_000_000) / 1e9, walk.knot_times_s, atol=1e-9)
    np.testing.assert_array_equal([knot for _, knot in driver.knots], walk.plan.knots)
    assert driver.finished


def test_a_pause_halts_without_a_jump_and_knots_come_later_by_as_much() -> None:
    walk = a_walk()
    driver = Follow(walk)
    before, now = run(driver, 0.9)
    driver.paused = True
    halting, now = run(driver, 1.5, now)
    driver.paused = False
    after, _ = run(driver, 4.0, now)
    np.testing.assert_array_equal(halting[-1], halting[round(2 * PAUSE_RAMP_S / 0.01)])  # it stands still
    whole = np.array(before + halting + after)
    undisturbed = np.array(run(Follow(walk), 2.65)[0])
    assert np.abs(np.diff(whole, axis=0)).max() <= np.abs(np.diff(undisturbed, axis=0)).max() + 1e-9
    assert [len(driver.knots), driver.finished] == [5, True]
    lost_s = driver.knots[-1][0] / 1e9 - walk.knot_times_s[-1]
    assert lost_s == pytest.approx(1.5, abs=0.02)  # ramps down and up cost as much as they give


def test_a_cycle_that_comes_late_makes_no_jump() -> None:
    driver = Follow(a_walk())
    _, now = run(driver, 0.3)
    before = driver.time_s
    driver.step(now + 5_000_000_000)
    assert driver.time_s - before == pytest.approx(LONGEST_STEP_S)
