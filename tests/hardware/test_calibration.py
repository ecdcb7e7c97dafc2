from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware import InputError
from hardware.calibration import LegacyMotor, Motor, load_calibration

ARM = {
    "shoulder_pan": {"id": 1, "drive_mode": 0, "homing_offset": 143, "range_min": 677, "range_max": 3429},
    "elbow_flex": {"id": 3, "drive_mode": 1, "homing_offset": -78, "range_min": 824, "range_max": 3037},
    "gripper": {"id": 6, "drive_mode": 0, "homing_offset": 655, "range_min": 1288, "range_max": 2490},
}
LEGACY = {
    "homing_offset": [-2019, 2992, -2241],
    "drive_mode": [0, 1, 0],
    "start_pos": [2031, 3045, 2048],
    "end_pos": [3043, -1968, 3265],
    "calib_mode": ["DEGREE", "DEGREE", "LINEAR"],
    "motor_names": ["shoulder_pan", "shoulder_lift", "gripper"],
}

# What each file of the shared folder is: a form with its number of joints, or the words its error must hold.
SIX, LEGACY_SIX = ("new", 6), ("legacy", 6)
SHARED: dict[str, tuple[str, int] | list[str]] = {
    **{f"{number:02d}.json": SIX for number in (1, 3, 4, 7, 8, 9, 10, 11, 12, 14, 16, 17, 18, 19, 23)},
    "02.json": ("new", 1),
    "05.json": ["joint shoulder_pan", "unknown field 'hw_range_min'", "did you mean 'range_min'"],
    "06.json": LEGACY_SIX,
    "13.json": LEGACY_SIX,
    "15.json": ["joint shoulder_pan", "-90 to 90 is no range of ticks within 0..4095"],
    "20.json": ("legacy", 9),
    "21.json": ("legacy", 9),
    "22.json": LEGACY_SIX,
    "overflow.json": [
        "joint shoulder_lift",
        "-2326",
        "+-2047",
        "wrist_flex -2169",
        "nearer the middle of its travel",
    ],
}


def write(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "arm.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


@pytest.mark.parametrize("name", sorted(SHARED))
def test_every_shared_calibration_loads_or_says_why_not(shared_data: Path, name: str) -> None:
    expected = SHARED[name]
    path = shared_data / "calibrations" / name
    if isinstance(expected, tuple):
        calibration = load_calibration(path)
        assert (calibration.form, len(calibration.motors)) == expected
        ids = [motor.id for motor in calibration.motors]
        assert ids == sorted(ids)
    else:
        with pytest.raises(InputError) as error:
            load_calibration(path)
        for words in [name, *expected]:
            assert words in str(error.value)


def test_the_list_of_shared_calibrations_is_whole(shared_data: Path) -> None:
    assert {path.name for path in (shared_data / "calibrations").glob("*.json")} == set(SHARED)
    for arm in ("arm1.json", "arm2.json"):
        assert load_calibration(shared_data / "so101_bimanual" / arm).names[5] == "gripper"


def test_ticks_turn_about_the_middle_of_the_range(tmp_path: Path) -> None:
    calibration = load_calibration(write(tmp_path, ARM))
    ticks = np.array([[2053.0, 1930.5 + 1024, 1288.0]])
    expected = [0.0, np.pi / 2, (1288 - 1889) * 2 * np.pi / 4096]
    assert calibration.names == ["shoulder_pan", "elbow_flex", "gripper"]
    np.testing.assert_allclose(calibration.to_radians(ticks, "ticks")[0], expected, atol=1e-12)


def test_normalized_is_a_share_of_the_range_and_drive_mode_flips_it(tmp_path: Path) -> None:
    calibration = load_calibration(write(tmp_path, ARM))
    ends = calibration.to_radians(np.array([[-100.0, -100.0, 0.0], [100.0, 100.0, 100.0]]), "normalized")
    pan, elbow, gripper = (
        (high - low) / 2 * 2 * np.pi / 4096 for low, high in ((677, 3429), (824, 3037), (1288, 2490))
    )
    np.testing.assert_allclose(ends, [[-pan, elbow, -gripper], [pan, -elbow, gripper]], atol=1e-12)


def test_degrees_are_taken_at_their_word_and_a_gripper_is_percent(tmp_path: Path) -> None:
    calibration = load_calibration(write(tmp_path, ARM))
    radians = calibration.to_radians(np.array([[90.0, -90.0, 50.0]]), "degrees")
    np.testing.assert_allclose(radians[0], [np.pi / 2, -np.pi / 2, 0.0], atol=1e-12)
    # LeRobot's own degrees of a quarter turn, (ticks - mid) * 360 / 4095, are 0.024 % more than it.
    lerobot = 1024 * 360 / 4095
    from_degrees = calibration.motor("shoulder_pan").to_radians(np.array([lerobot]), "degrees")[0]
    assert from_degrees / (np.pi / 2) == pytest.approx(4096 / 4095)


def test_legacy_motors(tmp_path: Path) -> None:
    calibration = load_calibration(write(tmp_path, LEGACY))
    radians = calibration.to_radians(np.array([[2019.0 + 1024, 2992.0 - 512, 2048.0]]), "ticks")
    half = (3265 - 2048) / 2 * 2 * np.pi / 4096
    np.testing.assert_allclose(radians[0], [np.pi / 2, np.pi / 4, -half], atol=1e-12)
    radians = calibration.to_radians(np.array([[90.0, -45.0, 100.0]]), "degrees")
    np.testing.assert_allclose(radians[0], [np.pi / 2, -np.pi / 4, half], atol=1e-12)
    with pytest.raises(InputError, match=r"-100\.\.100 cannot be turned into an angle.*--unit degrees"):
        calibration.to_radians(np.zeros((1, 3)), "normalized")


MOTORS = st.builds(
    lambda name, mode, low, span: Motor(name, 1, mode, 0, low, low + span),
    st.sampled_from(["elbow_flex", "gripper", "left_gripper"]),
    st.integers(0, 1),
    st.integers(0, 2000),
    st.integers(1, 2095),
)
LEGACY_MOTORS = st.builds(
    lambda mode, homing, start, span, kind: LegacyMotor("m", 1, mode, homing, start, start + span, kind),
    st.integers(0, 1),
    st.integers(-4096, 4096),
    st.integers(-2000, 2000),
    st.integers(1, 3000) | st.integers(-3000, -1),
    st.sampled_from(["DEGREE", "LINEAR"]),
)


@given(MOTORS, st.sampled_from(["ticks", "degrees", "normalized", "radians"]), st.floats(-4096, 8192))
def test_motor_round_trip(motor: Motor, unit, value: float) -> None:
    there = motor.to_radians(np.array([value]), unit)
    assert motor.from_radians(there, unit)[0] == pytest.approx(value, abs=1e-7)


@given(LEGACY_MOTORS, st.sampled_from(["ticks", "degrees", "radians"]), st.floats(-4096, 8192))
def test_legacy_motor_round_trip(motor: LegacyMotor, unit, value: float) -> None:
    there = motor.to_radians(np.array([value]), unit)
    assert motor.from_radians(there, unit)[0] == pytest.approx(value, abs=1e-7)


@given(MOTORS, st.integers(0, 4095))
def test_lerobots_own_normalisation_comes_back_as_the_angle_of_the_ticks(motor: Motor, tick: int) -> None:
    # The formula of LeRobot's MotorsBus, written out here on its own: clip to the range, then scale.
    bounded = min(motor.range_max, max(motor.range_min, tick))
    share = (bounded - motor.range_min) / (motor.range_max - motor.range_min)
    if "gripper" in motor.name:
        logged = 100 - 100 * share if motor.drive_mode else 100 * share
    else:
        logged = -(200 * share - 100) if motor.drive_mode else 200 * share - 100
    radians = motor.to_radians(np.array([logged]), "normalized")[0]
    assert radians == pytest.approx((bounded - motor.middle) * 2 * np.pi / 4096, abs=1e-9)
    low, high = motor.limits_rad or (0.0, 0.0)
    assert low - 1e-9 <= radians <= high + 1e-9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"homing_offset": 2353},
            ["joint shoulder_pan", "homing_offset 2353", "nearer the middle of its travel"],
        ),
        ({"homing_offset": -2048}, ["homing_offset -2048"]),
        ({"range_min": 3429}, ["3429 to 3429 is no range"]),
        ({"range_max": 4096}, ["677 to 4096 is no range"]),
        ({"range_min": -1}, ["-1 to 3429 is no range"]),
        ({"drive_mode": 2}, ["drive_mode", "found '2'"]),
        ({"homing_offset": 1.5}, ["homing_offset", "found '1.5'"]),
        ({"homing_ofset": 3}, ["unknown field 'homing_ofset'", "did you mean 'homing_offset'"]),
        ({"id": 6}, ["share servo id 6"]),
    ],
)
def test_new_form_refuses(tmp_path: Path, change: dict, words: list[str]) -> None:
    path = write(tmp_path, {**ARM, "shoulder_pan": {**ARM["shoulder_pan"], **change}})
    with pytest.raises(InputError) as error:
        load_calibration(path)
    for word in [str(path), *words]:
        assert word in str(error.value)


def test_homing_offset_at_the_registers_end_is_accepted(tmp_path: Path) -> None:
    arm = {**ARM, "shoulder_pan": {**ARM["shoulder_pan"], "homing_offset": -2047}}
    assert load_calibration(write(tmp_path, arm)).motor("shoulder_pan").homing_offset == -2047


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({**LEGACY, "homing_offset": [1, 2]}, "the lists differ in length"),
        ({**LEGACY, "calib_mode": ["DEGREE", "DEGREE", "CIRCLE"]}, "calib_mode.2"),
        ({**LEGACY, "end_pos": [1, 2, 2048]}, "start_pos and end_pos are both 2048"),
        ({**LEGACY, "drive_mode": [0, 3, 0]}, "joint shoulder_lift: drive_mode 3"),
        ({**LEGACY, "motor_names": ["a", "a", "b"]}, "names a motor twice"),
        ({**LEGACY, "model": "x"}, "unknown field 'model'"),
        ({key: value for key, value in LEGACY.items() if key != "end_pos"}, "field 'end_pos' is missing"),
        ({"shoulder_pan": {"id": 1}}, "field 'drive_mode' is missing"),
        ({}, "is no LeRobot calibration"),
        ([1, 2], "is no LeRobot calibration"),
        ("{", "is not valid JSON"),
        ('{"a": {"id": 1}, "a": {"id": 2}}', "the key 'a' appears twice"),
        ("[" * 100_000, "is n"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, data: object, words: str) -> None:
    path = write(tmp_path, data)
    with pytest.raises(InputError) as error:
        load_calibration(path)
    assert str(path) in str(error.value)
    assert words in str(error.value)


def test_absent_and_oversized_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load_calibration(tmp_path / "none.json")
    path = tmp_path / "big.json"
    path.write_bytes(b" " * (1 << 20) + b"{}")
    with pytest.raises(InputError, match="too large for a calibration"):
        load_calibration(path)


def test_unknown_joint_and_wrong_width(tmp_path: Path) -> None:
    calibration = load_calibration(write(tmp_path, ARM))
    with pytest.raises(InputError, match=r"holds no joint 'wrist'.*shoulder_pan, elbow_flex, gripper"):
        calibration.motor("wrist")
    with pytest.raises(InputError, match=r"values of shape \(4, 2\)"):
        calibration.to_radians(np.zeros((4, 2)), "ticks")


def test_describe_keeps_what_made_the_radians(tmp_path: Path) -> None:
    described = load_calibration(write(tmp_path, ARM)).describe()
    assert described["file"] == "arm.json"
    assert described["joints"]["gripper"] == ARM["gripper"]
    assert len(described["sha256"]) == 64
