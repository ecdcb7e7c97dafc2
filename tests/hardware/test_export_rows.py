"""What an export makes of a recording before LeRobot sees it: units, rows, a folder whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import json
import os
from pathlib import Path

import lerobot_sets as sets
import numpy as np
import pytest
from export_recordings import hand_made

from hardware import Actions, InputError, Joint, Recording, RecordingInfo, View
from hardware.alignment import align
from hardware.calibration import Calibration, LegacyMotor, Motor
from hardware.exporters.columns import AS_RECORDED, PERCENT, action_columns, state_columns
from hardware.exporters.rows import ExportRows, export_rows
from hardware.exporters.staging import MARKER, staging
from hardware.importers import import_recording
from hardware.so101 import JOINT_NAMES, LIMITS_RAD, MIDDLE_RAD

# -- units -------------------------------------------------------------------------------------------------


def arm_calibration(drive_mode: int = 0) -> Calibration:
    ranges = ((700, 3300), (900, 3200), (850, 3100), (800, 3200), (0, 4095), (2000, 3500))
    return Calibration(
        "arm.json",
        "new",
        tuple(
            Motor(name, number + 1, drive_mode, 0, *limits)
            for number, (name, limits) in enumerate(zip(JOINT_NAMES, ranges))
        ),
        "0" * 64,
    )


def arm_info(**changes: object) -> RecordingInfo:
    """An SO-101 recorded in the frame of its model."""
    fields = dict(
        robot="so101",
        joints=[
            Joint(name=name, lower=low, upper=high) for name, (low, high) in zip(JOINT_NAMES, LIMITS_RAD)
        ],
        actions=Actions(names=list(JOINT_NAMES)),
        views=[View(name="front", width=32, height=32, fps=10, encoding="rgb8")],
        joints_hz=100,
        motion="observe",
        motion_settings={"frame": "model"},
        calibration=arm_calibration().describe(),
    )
    return RecordingInfo(**{**fields, **changes})


def converted(columns: list, values: np.ndarray) -> np.ndarray:
    return np.stack([column.convert(values[:, number]) for number, column in enumerate(columns)], axis=1)


# -- units -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drive_mode", [0, 1])
def test_an_arm_in_the_frame_of_its_model_gets_the_numbers_of_lerobot(drive_mode: int) -> None:
    calibration = arm_calibration(drive_mode)
    ticks = np.random.default_rng(0).uniform(900, 3000, (5, 6))
    model = calibration.to_radians(ticks, "ticks", list(JOINT_NAMES)) + MIDDLE_RAD
    columns = state_columns(arm_info(calibration=calibration.describe()))
    middles = np.array([(motor.range_min + motor.range_max) / 2 for motor in calibration.motors])
    expected = (ticks - middles) * 360 / 4096
    expected[:, 5] = (ticks[:, 5] - 2000) / 1500 * 100  # drive_mode turns only what LeRobot normalises
    if drive_mode:
        expected[:, 5] = 100 - expected[:, 5]
    np.testing.assert_allclose(converted(columns, model), expected, atol=1e-9)
    assert [column.name for column in columns] == [f"{name}.pos" for name in JOINT_NAMES]
    assert [column.unit.split()[0] for column in columns] == ["degrees"] * 5 + ["0..100"]


@pytest.mark.skipif(importlib.util.find_spec("lerobot") is None, reason="LeRobot is not installed")
@pytest.mark.parametrize("drive_mode", [0, 1])
def test_lerobots_own_bus_gives_the_same_numbers(drive_mode: int) -> None:
    from lerobot.motors import Motor as TheirMotor
    from lerobot.motors import MotorCalibration, MotorNormMode
    from lerobot.motors.feetech import FeetechMotorsBus

    calibration = arm_calibration(drive_mode)
    modes = [MotorNormMode.DEGREES] * 5 + [MotorNormMode.RANGE_0_100]
    bus = FeetechMotorsBus(
        "/dev/null",
        {one.name: TheirMotor(one.id, "sts3215", mode) for one, mode in zip(calibration.motors, modes)},
        {
            one.name: MotorCalibration(
                one.id, one.drive_mode, one.homing_offset, one.range_min, one.range_max
            )
            for one in calibration.motors
        },
    )
    ticks = np.array([1000, 1500, 2222, 3000, 4000, 2345])
    theirs = np.array(list(bus._normalize(dict(enumerate(ticks.tolist(), start=1))).values()))
    model = calibration.to_radians(ticks[None].astype(float), "ticks", list(JOINT_NAMES)) + MIDDLE_RAD
    ours = converted(state_columns(arm_info(calibration=calibration.describe())), model)[0]
    theirs[:5] *= 4095 / 4096  # it divides a turn by the resolution less one
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_the_simulated_arm_counts_like_an_arm_calibrated_over_the_whole_range() -> None:
    columns = state_columns(arm_info(robot="sim-so101", motion_settings={}, calibration=None))
    at_limits = converted(columns, LIMITS_RAD.T)
    half = np.rad2deg(LIMITS_RAD[:, 1] - MIDDLE_RAD)
    np.testing.assert_allclose(at_limits[:, :5], [-half[:5], half[:5]])
    np.testing.assert_allclose(at_limits[:, 5], [0, 100])


def test_an_uncalibrated_gripper_of_no_known_travel_is_in_degrees() -> None:
    bare = [Joint(name=name) for name in JOINT_NAMES]
    columns = state_columns(arm_info(joints=bare, calibration=None))
    np.testing.assert_allclose(columns[5].convert(np.array([MIDDLE_RAD[5] + np.pi / 2])), 90)
    assert columns[5].unit.startswith("degrees")


@pytest.mark.parametrize("unit", ["degrees", "ticks", "normalized"])
def test_an_imported_set_gets_lerobots_numbers_back(tmp_path: Path, unit: str) -> None:
    calibration = arm_calibration()
    calibration_file = tmp_path / "arm.json"
    calibration_file.write_text(
        json.dumps(
            {
                name: {key: value for key, value in entry.items()}
                for name, entry in calibration.describe()["joints"].items()
            }
        )
    )
    degrees = sets.joint_states(8, seed=3) / 2
    degrees[:, 5] = np.linspace(0, 100, 8)
    radians = calibration.to_radians(degrees, "degrees", list(JOINT_NAMES))
    states = calibration.from_radians(radians, unit, list(JOINT_NAMES))  # type: ignore[arg-type]
    if unit == "ticks":
        states = np.round(states)
    source = sets.write_v21(tmp_path / "set", [8], views=(), states={0: states})
    import_recording(source, tmp_path / "rec", unit=unit, calibrations={"": calibration_file})
    recording = Recording.open(tmp_path / "rec")
    columns = state_columns(recording.info)
    back = converted(columns, recording.episode(0).joints().position)
    np.testing.assert_allclose(back, degrees, atol=0.1 if unit == "ticks" else 1e-4)
    assert [column.name for column in columns] == sets.NAMES


def test_several_arms_each_use_their_own_calibration() -> None:
    wide, narrow = arm_calibration(), arm_calibration()
    narrow = Calibration(
        "b.json", "new", (*narrow.motors[:5], Motor("gripper", 6, 0, 0, 2000, 2750)), "0" * 64
    )
    names = [f"{arm}_{name}" for arm in ("left", "right") for name in JOINT_NAMES]
    columns = state_columns(
        arm_info(
            robot="two",
            joints=[Joint(name=name) for name in names],
            motion_settings={},
            calibration={"left": wide.describe(), "right": narrow.describe()},
        )
    )
    a_tick = np.array([100 * 2 * np.pi / 4096])  # from the middle of each range
    assert columns[5].convert(a_tick)[0] == pytest.approx(50 + 100 / 1500 * 100)
    assert columns[11].convert(a_tick)[0] == pytest.approx(50 + 100 / 750 * 100)


def test_a_legacy_gripper_is_a_percentage_as_well() -> None:
    motors = tuple(LegacyMotor(name, n + 1, 0, 0, 0, 0, "DEGREE") for n, name in enumerate(JOINT_NAMES[:5]))
    gripper = LegacyMotor("gripper", 6, 0, 0, 3000, 1000, "LINEAR")
    legacy = Calibration("old.json", "legacy", (*motors, gripper), "0" * 64)
    columns = state_columns(arm_info(motion_settings={}, calibration=legacy.describe()))
    assert columns[5].unit == PERCENT
    np.testing.assert_allclose(
        columns[5].convert(np.array([np.pi / 2, 0, -np.pi / 4])), [-1.2, 50, 75.6], atol=0.1
    )
    np.testing.assert_allclose(columns[0].convert(np.array([np.pi])), [180])
    # a live arm with such a calibration has that calibration's angles, whatever its recording says
    live = state_columns(arm_info(calibration=legacy.describe()))
    np.testing.assert_allclose(live[4].convert(np.array([np.pi])), [180])


def test_what_is_no_angle_is_not_converted() -> None:
    info = arm_info(
        robot="other",
        joints=[Joint(name="a"), Joint(name="gripper", unit="percent"), Joint(name="a.vel", unit="source")],
        actions=Actions(names=["a", "speed"], unit="rad"),
        motion_settings={},
        calibration=None,
    )
    state = state_columns(info)
    values = np.array([[np.pi, 30.0, 7.0]])
    np.testing.assert_allclose(converted(state, values), [[180, 30, 7]])
    assert [column.name for column in state] == ["a.pos", "gripper.pos", "a.vel"]
    action = action_columns(info, state)
    np.testing.assert_allclose(converted(action, np.array([[np.pi, 2.0]])), [[180, 2]])
    assert [(column.name, column.unit) for column in action][1] == ("speed", AS_RECORDED)
    assert action_columns(arm_info(actions=None), state) == []
    unlike = arm_info(actions=Actions(names=list(JOINT_NAMES), unit="source"))
    assert {column.unit for column in action_columns(unlike, state_columns(unlike))} == {AS_RECORDED}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"joints": [Joint(name="elbow")], "calibration": None}, "has no such joint"),
        ({"calibration": {"joints": {"gripper": {"id": 6}}, "form": "new"}}, "is not what jointprobe writes"),
        ({"calibration": {"all": {"form": "newest"}}}, "is not what jointprobe writes"),
        ({"calibration": {"all": ["form"]}}, "is not what jointprobe writes"),
        ({"joints": [Joint(name="x"), Joint(name="y")], "motion_settings": {}}, "are not the joints x, y"),
    ],
)
def test_joints_and_calibration_that_do_not_fit_are_refused(changes: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        state_columns(arm_info(**changes))


# -- rows --------------------------------------------------------------------------------------------------


def rows_of(recording: Recording, index: int = 0) -> ExportRows:
    state = state_columns(recording.info)
    aligned = align(recording.episode(index), recording.info.view_names)
    return export_rows(aligned, state, action_columns(recording.info, state))


def test_the_action_is_what_was_sent_last_and_rows_before_the_first_are_dropped(tmp_path: Path) -> None:
    rows = rows_of(hand_made(tmp_path / "rec", action_at_ms=[204, 205, 406, 707, 709]))
    # frames come at 5, 105, 205 ... ms; an action at the very time of a frame is in force
    assert rows.frame_index["front"].tolist() == list(range(2, 12))
    assert rows.dropped == {"actions": 2}
    in_force = [1, 1, 1, 2, 2, 2, 4, 4, 4, 4]
    expected = np.rad2deg(np.arange(10).reshape(-1, 2))[in_force]
    np.testing.assert_allclose(rows.action, expected, rtol=1e-6)
    np.testing.assert_allclose(rows.state[:, 0], np.rad2deg(np.arange(2, 12) / 10 + 0.005), rtol=1e-6)
    assert rows.state.dtype == rows.action.dtype == np.float32
    assert rows.rate_hz == pytest.approx(10)


def test_rows_without_joints_are_dropped_and_the_gap_is_counted(tmp_path: Path) -> None:
    rows = rows_of(hand_made(tmp_path / "rec", action_at_ms=[0], hole=(350, 640)))
    assert rows.frame_index["front"].tolist() == [0, 1, 2, 3, 7, 8, 9, 10, 11]
    assert rows.dropped == {"joints": 3}
    assert rows.uneven(10) == 1


def test_imported_rows_pair_their_actions_by_number(tmp_path: Path) -> None:
    states = sets.joint_states(6, seed=0)
    source = sets.write_v21(tmp_path / "set", [6], states={0: states})
    import_recording(source, tmp_path / "rec", unit="degrees")
    recording = Recording.open(tmp_path / "rec")
    rows = rows_of(recording)
    np.testing.assert_allclose(rows.state, states, atol=1e-4)
    np.testing.assert_allclose(rows.action, recording.episode(0).actions().raw, atol=1e-4)


def test_without_actions_there_is_none(tmp_path: Path) -> None:
    assert rows_of(hand_made(tmp_path / "rec", action_at_ms=None)).action is None


# -- whole or not at all -----------------------------------------------------------------------------------


def test_a_folder_appears_when_its_block_ended_well(tmp_path: Path) -> None:
    with staging(tmp_path / "deep" / "set") as root:
        root.mkdir()
        (root / "a").write_text("x")
        (root / "a").chmod(0o600)
        assert not (tmp_path / "deep" / "set").exists()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["set"]
    assert (tmp_path / "deep" / "set" / "a").stat().st_mode & 0o044 == 0o044 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system"),
        (InputError("view", "is wrong"), "view: is wrong"),
    ],
)
def test_nothing_is_left_of_a_failure(tmp_path: Path, error: Exception, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        with staging(tmp_path / "set") as root:
            root.mkdir()
            raise error
    assert not any(tmp_path.iterdir())


def test_what_a_killed_export_left_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / "set.partial" / "dataset").mkdir(parents=True)
    (tmp_path / "set.partial" / MARKER).touch()
    with staging(tmp_path / "set") as root:
        assert not root.exists()
        root.mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "set.partial").mkdir()
    (tmp_path / "set.partial" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="is in the way"), staging(tmp_path / "set"):
        pass
    assert (tmp_path / "set.partial" / "thesis.txt").read_text() == "mine"


def test_a_second_export_to_the_same_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set.partial").mkdir()
    with (tmp_path / "set.partial" / MARKER).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with (
            pytest.raises(InputError, match="is being written by another process"),
            staging(tmp_path / "set"),
        ):
            pass
    assert (tmp_path / "set.partial" / MARKER).exists()
