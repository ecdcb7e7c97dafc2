"""Demonstrations are what their name says: they deliver blocks, move every joint, and move like a hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hardware.errors import InputError
from sim.demonstrations import Demonstration
from sim.so101 import SimArm
from sim.so101_model import build_mjcf

PERIOD_S = 0.02
STEPS = 4


def perform(
    arm: SimArm, seed: int, seconds: float | None = None
) -> tuple[Demonstration, np.ndarray, np.ndarray]:
    demonstration = Demonstration(arm, np.random.default_rng(seed), seconds)
    sent, reached = [], []
    while (target := demonstration.target(len(sent) * PERIOD_S)) is not None:
        sent.append(target)
        arm.set_target(target, glide_s=PERIOD_S)
        arm.step(STEPS)
        reached.append(arm.position)
    return demonstration, np.array(sent), np.array(reached)


@pytest.fixture(scope="module")
def arm() -> SimArm:
    return SimArm()


@pytest.fixture(scope="module")
def ten(arm: SimArm) -> list[tuple[Demonstration, np.ndarray, np.ndarray]]:
    return [perform(arm, seed) for seed in range(10)]


def test_most_grasps_deliver_their_block_into_the_other_bowl(ten: list) -> None:
    picks = [pick for demonstration, _, _ in ten for pick in demonstration.picks]
    assert len(picks) >= 15
    assert sum(pick.delivered for pick in picks) >= 0.6 * len(picks)
    assert all(pick.held for pick in picks if pick.delivered)


def test_they_last_some_ten_seconds(ten: list) -> None:
    lengths = [len(sent) * PERIOD_S for _, sent, _ in ten]
    assert min(lengths) > 8 and max(lengths) < 20
    assert len(set(lengths)) > 5


def test_every_joint_moves_in_every_demonstration(ten: list) -> None:
    for _, _, reached in ten:
        assert np.all(reached.std(axis=0) > 0.05)


def test_goal_directed_motion_is_correlated_between_joints(ten: list) -> None:
    everything = np.concatenate([reached for _, _, reached in ten])
    correlation = np.corrcoef(everything.T)
    assert (
        correlation[1, 2] < -0.4 and correlation[2, 3] < -0.4
    )  # lift, elbow and wrist keep the gripper upright


def test_targets_are_smooth_and_the_arm_keeps_up(ten: list) -> None:
    for _, sent, reached in ten:
        velocity = np.diff(sent, axis=0) / PERIOD_S
        assert np.abs(velocity).max() < 4.5
        assert np.abs(np.diff(velocity, axis=0)).max() / PERIOD_S < 60
        lag = np.abs(sent - reached)[:, :5]
        assert np.median(lag) < 0.01


def test_starts_vary_and_seeds_decide(arm: SimArm, ten: list) -> None:
    starts = np.array([sent[0] for _, sent, _ in ten])
    assert np.all(starts.std(axis=0) > 0.03)
    np.testing.assert_array_equal(perform(arm, 3)[2], ten[3][2])


def test_with_a_length_it_goes_on_to_the_end_of_it(arm: SimArm) -> None:
    assert len(perform(arm, 1, seconds=3.0)[1]) == pytest.approx(3.0 / PERIOD_S, abs=1)
    assert len(perform(arm, 1, seconds=20.0)[1]) > 18 / PERIOD_S


def test_a_model_without_blocks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bare.xml"
    path.write_text(build_mjcf(scene=False))
    with pytest.raises(InputError, match="no joint 'block_red', which demonstrations need"):
        Demonstration(SimArm(path), np.random.default_rng(0))
