"""The real sets: each fault that is known of them is named, and what is sound in them is not accused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hardware import Recording
from hardware.checks import Check, check_recording
from hardware.importers import import_recording


def checks_of(source: Path, to: Path, unit: str, calibrations: dict[str, Path]) -> dict[str, Check]:
    import_recording(source, to, unit=unit, calibrations=calibrations)
    return {check.name: check for check in check_recording(Recording.open(to))}


def accused(checks: dict[str, Check]) -> set[str]:
    return {name for name, check in checks.items() if check.alarm}


def untestable(checks: dict[str, Check]) -> set[str]:
    return {name for name, check in checks.items() if check.state == "not testable"}


@pytest.fixture(scope="module")
def arms(shared_data: Path) -> dict[str, Path]:
    return {arm: shared_data / f"so101_bimanual/{arm}.json" for arm in ("arm1", "arm2")}


@pytest.fixture(scope="module")
def bimanual(
    shared_data: Path, arms: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Check]:
    to = tmp_path_factory.mktemp("bimanual") / "rec"
    return checks_of(shared_data / "so101_bimanual", to, "ticks", arms)


@pytest.fixture(scope="module")
def cr5(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Check]:
    return checks_of(shared_data / "cr5", tmp_path_factory.mktemp("cr5") / "rec", "radians", {})


def test_1_a_black_view_and_one_that_repeats(bimanual: dict[str, Check]) -> None:
    assert bimanual["black_frames"].evidence["black"] == {"0/cam0": 348}
    assert bimanual["repeated_frames"].evidence["episodes"] == [0]
    frozen = bimanual["frozen_frames"]
    assert (frozen.state, frozen.evidence["episodes"]) == ("warn", [0])
    assert {view for _, view, _, _ in frozen.evidence["frames"]} == {"cam1"}  # black is said elsewhere
    assert frozen.picture is not None and frozen.picture.shape[1] <= 640


def test_2_three_clocks(bimanual: dict[str, Check]) -> None:
    message = bimanual["clock_rate"].message
    assert "joints 18.2 Hz" in message and "(20 declared)" in message
    assert "view cam0 20.0 Hz (20 declared, by the pts of its video)" in message


def test_4_sentinels_and_a_slow_clock(shared_data: Path, arms: dict[str, Path], tmp_path: Path) -> None:
    checks = checks_of(shared_data / "so101_bimanual/data/chunk-001", tmp_path / "rec", "ticks", arms)
    sentinels = checks["sentinels"]
    assert (sentinels.state, sentinels.evidence["episodes"]) == ("fail", [65, 70, 71])
    assert sentinels.evidence["constant_joints"]["70"] == [f"arm1_j{number}" for number in range(1, 7)]
    assert set(sentinels.evidence["constant_value"].values()) == {-1.0}
    assert checks["raw_ticks"].evidence["joints"] == [f"arm1_j{number}" for number in range(1, 7)]
    assert checks["raw_ticks"].remedy == "a constant in the place of readings is no position: see sentinels"
    assert set(checks["joint_limits"].evidence["beyond"]) == {"arm2_j2", "arm2_j4"}  # none of the constants
    assert "joints 4.8 Hz" in checks["clock_rate"].message


def test_5_a_wrist_that_was_mounted_anew(bimanual: dict[str, Check]) -> None:
    offsets = bimanual["joint_offsets"]
    assert offsets.state == "warn"
    inside, between = offsets.message.split(
        "; arm1_j1 moved from -0.06 to -0.63 rad between episodes 1 and 2"
    )
    assert "arm2_j5 moved from 0.02 to -0.24 rad at row 50 of episode 17 and stayed there" in inside
    assert "from 1.92 to 2.17 rad at row 87 of episode 12" in inside
    assert "arm1_j1 moved from -0.63 to -0.29 rad at row 25 of episode 2 and stayed there" in inside
    assert "arm2_j5" not in between
    assert "no sign of a new calibration" in offsets.remedy


def test_joints_beyond_their_range_are_all_named_as_often_as_they_are(bimanual: dict[str, Check]) -> None:
    message = bimanual["joint_limits"].message
    assert "arm2_j2 up to 0.216 rad (12 deg) beyond, in 25 of 25 episodes, most in 20" in message
    assert "arm2_j4 up to 0.170 rad (9.8 deg) beyond, in 15 of 25 episodes" in message
    assert "arm1_j4 up to 0.067 rad (3.9 deg) beyond, in 12 of 25 episodes" in message
    assert "by more than 0.017 rad (1.0 deg)" in message and "arm2_j6 within the tolerance" in message


def test_6_actions_are_the_next_state(bimanual: dict[str, Check]) -> None:
    assert bimanual["actions"].evidence["equal_share_by_lag"]["1"] == 1.0
    assert bimanual["action_lag"].evidence["lag_rows"] == 1
    assert bimanual["units"].message == (
        "the source's numbers look like ticks, as declared at import; once converted, the numbers look like "
        "radians, as stored"
    )


def test_7_velocities_and_an_uneven_clock(cr5: dict[str, Check]) -> None:
    lag = cr5["action_lag"]
    assert lag.state == "warn" and "actions are velocities" in lag.message
    assert lag.evidence["correlation_with_velocity"] > 0.95 > 0.5 > lag.evidence["correlation_with_position"]
    assert cr5["clock_steps"].state == "warn"
    assert cr5["still_joints"].evidence["joints"] == ["joint_4", "joint_5"]
    assert "no encoder's quantum" in cr5["units"].message  # its own encoders show none of 4096


def test_8_what_metadata_lists_and_is_not_there(bimanual: dict[str, Check], cr5: dict[str, Check]) -> None:
    assert "episodes 7-24 have no video" in bimanual["contiguity"].message
    assert "episodes 3-80 (78 of 81) have no data file here" in cr5["contiguity"].message


def test_what_is_sound_is_not_accused(bimanual: dict[str, Check], cr5: dict[str, Check]) -> None:
    assert accused(bimanual) == {
        *("clock_rate", "joint_limits", "joint_offsets", "actions", "faults"),
        *("black_frames", "repeated_frames", "frozen_frames"),
    }
    assert accused(cr5) == {"clock_rate", "clock_steps", "still_joints", "action_lag"}
    assert untestable(bimanual) == set()
    assert untestable(cr5) == {
        *("joint_limits", "units", "raw_ticks", "actions", "directions", "identical_views")
    }


@pytest.mark.parametrize(
    ("folder", "unit", "looks"),
    [
        ("joint_logs/koch/screwdriver_panel_ls_080225_4_e5", "normalized", "normalized"),
        ("joint_logs/so101_a", "normalized", "normalized"),
        ("joint_logs/so101_b", "degrees", "radians"),
    ],
)
def test_units_of_joint_logs(shared_data: Path, tmp_path: Path, folder: str, unit: str, looks: str) -> None:
    # These sets come without their arms' calibrations: another arm's stands in.
    stand_in = {"": shared_data / "calibrations" / "01.json"}
    checks = checks_of(shared_data / folder, tmp_path / "rec", unit, stand_in)
    assert accused(checks) == set()
    assert checks["units"].evidence["looks_like"] == looks


def test_normalized_values_declared_as_degrees(shared_data: Path, tmp_path: Path) -> None:
    checks = checks_of(shared_data / "joint_logs/so101_a", tmp_path / "rec", "degrees", {})
    assert checks["units"].state == "fail"
    assert "declared degrees, but the numbers look like normalized" in checks["units"].message
