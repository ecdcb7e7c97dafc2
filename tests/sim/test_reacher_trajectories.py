"""Episodes of the Reacher: LeWM's file, our policies, and the numbers that tell them apart."""

from __future__ import annotations

from pathlib import Path

import h5py
import hdf5plugin
import numpy as np
import pytest

from hardware.errors import InputError
from sim.reacher import Arms, fingertip, inverse_kinematics, random_targets
from sim.reacher_trajectories import (
    ACTION_REPEAT,
    POLICIES,
    PUBLISHED_AUTOCORRELATION,
    ROW_S,
    STRIDES,
    Episodes,
    diagnose,
    episodes_of,
    in_target,
    lagged_correlation,
    nearer_goal,
    read_lewm,
)
from sim.rendering import _load_triton_first

LENGTHS = np.array([5, 7, 6], np.int32)


def lewm_file(path: Path, **columns: np.ndarray | None) -> Path:
    """A small set in LeWM's layout; columns take the place of its own, None leaves one out."""
    rng = np.random.default_rng(0)
    own = {
        "ep_len": LENGTHS,
        "ep_offset": np.cumsum(LENGTHS).astype(np.int64) - LENGTHS,
        "qpos": rng.normal(0, 1, (18, 2)),
        "qvel": rng.normal(0, 1, (18, 2)),
        "action": rng.uniform(-1, 1, (18, 2)).astype(np.float32),
        "pixels": np.zeros((18, 8, 8, 3), np.uint8),
        "ep_idx": np.repeat(np.arange(3), LENGTHS),
    }
    with h5py.File(path, "w") as file:
        for name, values in (own | columns).items():
            if values is not None:
                file.create_dataset(name, data=values, chunks=True, **hdf5plugin.Blosc())
    return path


def test_lewms_file_gives_its_episodes(tmp_path: Path) -> None:
    path = lewm_file(tmp_path / "reacher.h5")
    episodes = read_lewm(path)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(episodes.qpos, file["qpos"][()])
        np.testing.assert_array_equal(episodes.actions, file["action"][()])
    assert len(episodes) == 3 and episodes.name == "reacher.h5" and episodes.targets is None
    assert episodes.lengths.tolist() == [5, 7, 6] and episodes.offsets.tolist() == [0, 5, 12]
    # the hash is of what is used: pictures and velocities do not count
    other = read_lewm(lewm_file(tmp_path / "other.h5", pixels=None, qvel=None, action=None))
    assert other.sha256 == episodes.sha256 and other.actions is None
    changed = episodes.qpos.copy()
    changed[3, 1] += 1e-12
    assert read_lewm(lewm_file(tmp_path / "third.h5", qpos=changed)).sha256 != episodes.sha256


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"qpos": None}, "has no qpos"),
        ({"ep_len": None}, "has no ep_len"),
        ({"qpos": np.zeros((18, 3))}, "has 3 columns"),
        ({"qpos": np.zeros((17, 2))}, "beyond the 17"),
        ({"qpos": np.full((18, 2), np.nan)}, "not finite in row 0"),
        ({"action": np.zeros((17, 2))}, "has 17 rows"),
        ({"qpos": np.zeros((18, 2), np.int64)}, "expected numbers"),
    ],
)
def test_files_that_do_not_fit_are_one_error(tmp_path: Path, columns: dict, problem: str) -> None:
    path = lewm_file(tmp_path / "reacher.h5", **columns)
    with pytest.raises(InputError, match=problem) as error:
        read_lewm(path)
    assert str(path) in str(error.value)


def test_a_damaged_file_and_a_word_that_is_no_source_are_named(tmp_path: Path) -> None:
    path = lewm_file(tmp_path / "reacher.h5")
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(InputError, match="truncated"):
        episodes_of(str(path), 3, 0)
    with pytest.raises(InputError, match="'sac' is no policy and no file - policies: random, goal"):
        episodes_of("sac", 3, 0)


@pytest.mark.parametrize("name", list(POLICIES))
def test_policies_move_the_arm_by_their_actions_and_by_the_seed_alone(name: str) -> None:
    episodes = episodes_of(name, 4, 11, rows=61)
    assert episodes.lengths.tolist() == [61] * 4 and episodes.offsets.tolist() == [0, 61, 122, 183]
    qpos, actions = episodes.qpos.reshape(4, 61, 2), episodes.actions.reshape(4, 61, 2)
    assert np.isnan(actions[:, -1]).all() and np.abs(actions[:, :-1]).max() <= 1
    again = Arms(qpos[:, 0]).follow(np.repeat(actions[:, :-1], ACTION_REPEAT, axis=1))
    np.testing.assert_allclose(again.qpos[:, ::ACTION_REPEAT], qpos, rtol=0, atol=1e-9)
    alone = episodes_of(name, 2, 11, rows=61)
    np.testing.assert_allclose(alone.qpos, episodes.qpos[: 2 * 61], rtol=0, atol=1e-9)
    assert alone.sha256 != episodes.sha256 == episodes_of(name, 4, 11, rows=61).sha256
    assert not np.allclose(episodes_of(name, 2, 12, rows=61).qpos, alone.qpos)
    assert ROW_S == 0.04


def test_random_actions_are_uniform_and_independent() -> None:
    episodes = episodes_of("random", 200, 0)
    actions = episodes.actions[~np.isnan(episodes.actions).any(axis=1)]
    np.testing.assert_allclose(
        np.quantile(actions, [0.1, 0.5, 0.9], axis=0).T, [[-0.8, 0, 0.8]] * 2, atol=0.02
    )
    assert np.abs(diagnose(episodes).action_lag1).max() < 0.02


def test_the_published_autocorrelations_are_those_of_random_actions_and_not_of_a_goal() -> None:
    random, goal = (diagnose(episodes_of(name, 1500, 0)).autocorrelation for name in ("random", "goal"))
    assert tuple(random) == STRIDES == tuple(PUBLISHED_AUTOCORRELATION)

    def off(found: dict[int, tuple[float, float]]) -> float:
        return max(
            np.abs(np.subtract(found[stride], PUBLISHED_AUTOCORRELATION[stride])).max() for stride in STRIDES
        )

    assert off(random) < 0.006  # 1,500 episodes' own spread; 10,000 come within 0.002
    assert off(goal) > 0.05


def test_the_goal_policy_reaches_target_after_target() -> None:
    episodes = episodes_of("goal", 40, 0)
    targets = episodes.targets.reshape(40, 201, 2)
    changed = np.any(targets[:, 1:] != targets[:, :-1], axis=2)
    assert 5 < changed.sum(axis=1).mean() < 20
    reached = in_target(episodes.qpos, episodes.targets).reshape(40, 201)
    # what ended most of the goals is that the arm was in the target
    assert reached[:, :-1][changed].mean() > 0.8
    assert diagnose(episodes).in_target > 0.1 > 2 * diagnose(episodes_of("random", 40, 0)).in_target


def test_the_nearer_of_both_goals_is_taken_the_short_way_round() -> None:
    rng = np.random.default_rng(0)
    qpos, target = rng.normal(0, 6, (300, 2)), random_targets(300, rng)
    goal = nearer_goal(qpos, target)
    np.testing.assert_allclose(fingertip(goal), target, atol=1e-9)
    assert np.abs(goal[:, 0] - qpos[:, 0]).max() <= np.pi + 1e-9
    # brute force: both solutions, the shoulder turned by any number of whole turns
    turns = 2 * np.pi * np.arange(-8, 9)[:, None, None, None] * np.array([1.0, 0.0])
    every = inverse_kinematics(target)[None] + turns
    least = np.abs(every - qpos[None, :, None]).sum(axis=-1).min(axis=(0, 2))
    np.testing.assert_allclose(np.abs(goal - qpos).sum(axis=1), least, atol=1e-9)


def test_lagged_correlations_are_pearsons_over_pairs_within_episodes() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1, (40, 3)).cumsum(axis=0)
    values[7, 1] = np.nan
    lengths, offsets = np.array([12, 3, 20]), np.array([25, 22, 0])
    for stride in (1, 4):
        first, second = [], []
        for length, offset in zip(lengths, offsets):  # slow twin
            for row in range(offset, offset + length - stride):
                if not (np.isnan(values[row]).any() or np.isnan(values[row + stride]).any()):
                    first.append(values[row])
                    second.append(values[row + stride])
        expected = [np.corrcoef(np.array(first)[:, c], np.array(second)[:, c])[0, 1] for c in range(3)]
        np.testing.assert_allclose(lagged_correlation(values, lengths, offsets, stride), expected, atol=1e-12)
    assert np.isnan(lagged_correlation(values, lengths, offsets, 64)).all()


def test_a_diagnosis_has_what_the_episodes_know() -> None:
    qpos = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, -1.0], [3.0, -1.0], [50.0, 50.0]])
    episodes = Episodes(qpos, np.array([4]), np.array([0]), "by hand", "0")
    found = diagnose(episodes, (1, 2, 8))
    assert found.mean == (1.5, 0.0) and found.std == (
        pytest.approx(np.sqrt(1.25)),
        1.0,
    )  # the fifth row is of none
    assert found.action_lag1 is None and found.in_target is None
    assert found.autocorrelation[1] == (pytest.approx(1.0), pytest.approx(0.5))
    assert np.isnan(found.autocorrelation[8]).all()


def test_the_target_is_touched_where_the_suite_rewards_it() -> None:
    _load_triton_first()  # dm_control's import loads Mesa's LLVM (see sim/rendering.py)
    from dm_control import suite

    environment = suite.load("reacher", "hard", task_kwargs={"random": 0})
    environment.reset()
    physics, rng = environment.physics, np.random.default_rng(0)
    seen = set()
    for state in rng.normal(0, 1, (200, 2)):
        physics.data.qpos[:] = state
        physics.named.model.geom_pos["target", :2] = fingertip(state) + rng.normal(0, 0.015, 2)
        physics.forward()
        rewarded = environment.task.get_reward(physics) == 1
        place = physics.named.model.geom_pos["target", :2]
        assert bool(in_target(state, place)) is bool(rewarded)
        seen.add(bool(rewarded))
    assert seen == {True, False}
