"""Recordings of the simulated arm: streams, clocks, sameness from a seed, going on after an interruption."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hardware.errors import InputError
from hardware.motions import WalkSettings
from hardware.recording import Recording
from hardware.servo_table import RADIANS_PER_TICK
from sim.record import ACTIONS_HZ, ENCODER_NOISE_RAD, record_simulated
from sim.so101 import SimArm
from sim.so101_model import build_mjcf

WALK = {
    "motion": "walk",
    "episodes": 3,
    "seed": 11,
    "views": ("front", "wrist"),
    "fps": 10,
    "image_size": 32,
    "seconds": 3.0,
}


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record_simulated(tmp_path_factory.mktemp("sim") / "walk", **WALK)


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record_simulated(
        tmp_path_factory.mktemp("sim") / "demos",
        motion="demos",
        episodes=2,
        seed=4,
        views=("top",),
        image_size=32,
    )


def test_it_is_a_recording_that_says_how_it_was_made(walk: Recording) -> None:
    info = Recording.open(walk.folder).info
    assert (info.robot, info.motion, info.pairing) == ("sim-so101", "walk", "clock")
    assert info.joint_names == list(SimArm.joint_names)
    assert all(joint.unit == "rad" and joint.lower is not None for joint in info.joints)
    settings = info.motion_settings
    assert settings["seed"] == 11 and settings["rho"] == 0.9 and settings["knot_period_s"] == 0.6
    assert settings["knots"] == 3 * 6
    assert settings["acceptance"] == pytest.approx(18 / (18 + sum(settings["rejected"].values())), abs=1e-6)
    assert len(settings["knot_correlation"]) == len(settings["sigma_rad"]) == 6
    assert "simulated" in info.host["clock"]


def test_each_stream_has_its_own_rate_and_clock(walk: Recording) -> None:
    for index in walk.episode_indices:
        episode = walk.episode(index)
        joints, actions = episode.joints(), episode.actions()
        assert set(np.diff(joints.time_ns)) == {10_000_000}
        assert set(np.diff(actions.time_ns)) == {round(1e9 / ACTIONS_HZ)}
        phases = []
        for view in ("front", "wrist"):
            times = episode.frame_times(view)
            assert np.diff(times).mean() == pytest.approx(1e8, rel=0.01)
            assert np.all(
                np.abs(np.diff(times) - 1e8) <= 5e6
            )  # a frame shows the physics step after its tick
            phases.append(times[0] - joints.time_ns[0])
        assert phases[0] != phases[1]
        assert len(joints.position) == pytest.approx(3.2 * 100, abs=2)
        assert joints.velocity is not None and joints.velocity.shape == joints.position.shape
        assert episode.faults() == []
        assert walk.manifest[index].seconds == pytest.approx(3.2, abs=0.05)


def test_positions_have_the_encoders_resolution_and_noise(walk: Recording) -> None:
    joints = walk.episode(0).joints()
    ticks = joints.position / RADIANS_PER_TICK
    np.testing.assert_allclose(ticks, np.round(ticks), atol=1e-6)
    resting = joints.position[-15:-2]  # the last knot is held
    assert np.ptp(resting, axis=0).max() <= 8 * ENCODER_NOISE_RAD + RADIANS_PER_TICK
    moved = (joints.position[6:] - joints.position[:-6]) / 0.06  # long enough that the noise is small
    assert np.corrcoef(moved.ravel(), joints.velocity[3:-3].ravel())[0, 1] > 0.99


def test_the_arm_is_at_each_knot_when_the_recording_says_so(walk: Recording) -> None:
    for index in walk.episode_indices:
        episode = walk.episode(index)
        joints, knots = episode.joints(), episode.knots()
        assert knots is not None
        times, positions = knots.time_ns, knots.position
        assert set(np.diff(times)) == {600_000_000}
        for joint in range(6):
            there = np.interp(times, joints.time_ns, joints.position[:, joint])
            np.testing.assert_allclose(there, positions[:, joint], atol=0.03)
        with SimArm() as arm:
            assert all(arm.blocked(knot) is None for knot in positions)


def test_actions_are_the_minimum_jerk_targets_and_the_joints_follow(walk: Recording) -> None:
    episode = walk.episode(1)
    joints, actions = episode.joints(), episode.actions()
    followed = np.array(
        [np.interp(actions.time_ns, joints.time_ns, joints.position[:, j]) for j in range(6)]
    ).T
    assert np.abs(followed[1:] - actions.target[:-1]).max() < 0.05
    np.testing.assert_allclose(actions.target[0], episode.knots().position[0], atol=1e-9)


def test_frames_show_the_pose_that_alignment_gives_them(walk: Recording) -> None:
    rows = next(iter(walk.aligned(["front", "wrist"], [0])))
    assert len(rows) > 25 and rows.position.shape == (len(rows), 6)
    images = list(walk.episode(0).frames("front"))
    with SimArm(views=("front",), image_size=32) as arm:
        arm.reset(None, rows.position[10])
        again = arm.render("front").astype(int)
    arm_colours = np.abs(images[rows.anchor_frame[10]].astype(int) - again).max(axis=2) > 40
    other = np.abs(images[rows.anchor_frame[-1]].astype(int) - again).max(axis=2) > 40
    assert arm_colours.mean() < 0.04 < other.mean()  # blocks lie elsewhere, the arm does not


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(walk: Recording, tmp_path: Path) -> None:
    again = record_simulated(tmp_path / "again", **WALK)
    assert [line.sha256 for line in again.manifest] == [line.sha256 for line in walk.manifest]
    other = record_simulated(tmp_path / "other", **{**WALK, "seed": 12, "episodes": 1})
    assert other.manifest[0].sha256 != walk.manifest[0].sha256


def test_an_episode_depends_on_the_seed_and_its_number_alone(walk: Recording, tmp_path: Path) -> None:
    fewer = record_simulated(tmp_path / "fewer", **{**WALK, "episodes": 1})
    assert fewer.manifest[0].sha256 == walk.manifest[0].sha256


def test_an_interrupted_recording_continues_to_the_same_episodes(walk: Recording, tmp_path: Path) -> None:
    class Interruption(Exception):
        pass

    def interrupt(done: int, total: int, what: str) -> None:
        if done == 2:
            raise Interruption

    with pytest.raises(Interruption):
        record_simulated(tmp_path / "walk", **WALK, progress=interrupt)
    assert len(Recording.open(tmp_path / "walk").manifest) == 2
    seen: list[tuple[int, int]] = []
    whole = record_simulated(
        tmp_path / "walk", **WALK, progress=lambda done, total, what: seen.append((done, total))
    )
    assert [line.sha256 for line in whole.manifest] == [line.sha256 for line in walk.manifest]
    assert seen == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(InputError, match="other settings"):
        record_simulated(tmp_path / "walk", **{**WALK, "seed": 12})


def test_demonstrations_are_recorded_with_what_was_sent(demos: Recording) -> None:
    assert demos.info.motion == "demos" and demos.info.view("top").fps == 15
    for index in demos.episode_indices:
        episode = demos.episode(index)
        assert episode.knots() is None
        assert 8 < demos.manifest[index].seconds < 20
        assert np.all(episode.joints().position.std(axis=0) > 0.05)
        assert len(episode.actions().target) == pytest.approx(
            demos.manifest[index].seconds * ACTIONS_HZ, abs=2
        )
        assert np.all(episode.actions().target <= [joint.upper for joint in demos.info.joints])
        moved = np.ptp(np.stack(list(episode.frames("top"))).astype(int), axis=0)
        assert (moved.max(axis=2) > 60).mean() > 0.05
    assert demos.manifest[0].sha256 != demos.manifest[1].sha256


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"motion": "dance"}, "motion"),
        ({"episodes": 0}, "episodes"),
        ({"seed": -1}, "seed"),
        ({"seconds": 0.1}, "seconds"),
        ({"fps": 0.0}, "fps"),
        ({"fps": 500.0}, "fps"),
        ({"joints_hz": 201.0}, "joints_hz"),
        ({"views": ()}, "views"),
        ({"views": ("front", "front")}, "views"),
        ({"views": ("side",)}, "camera 'side'"),
        ({"image_size": 2}, "image size"),
        ({"motion": "demos", "walk": WalkSettings()}, "walk settings"),
        ({"walk": WalkSettings(centre_rad=(0.0, 1.2, 0.5, 0.0, 0.0, 0.0), max_redraws=20)}, "walk knot"),
    ],
)
def test_what_makes_no_recording_is_named_and_nothing_is_written(
    tmp_path: Path, change: dict, named: str
) -> None:
    with pytest.raises(InputError, match=named):
        record_simulated(tmp_path / "none", **{**WALK, **change})
    assert not (tmp_path / "none").exists()


def test_a_users_own_model_is_recorded_and_named_by_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "mine.xml"
    path.write_text(build_mjcf(scene=False).replace('camera name="front"', 'camera name="kitchen"'))
    recording = record_simulated(tmp_path / "r", **{**WALK, "episodes": 1, "views": ("kitchen",)}, mjcf=path)
    assert recording.info.motion_settings["mjcf"]["file"] == "mine.xml"
    assert recording.episode(0).frame_count("kitchen") > 25
