"""The real sets: what they hold, what they lack, and that what comes out is what they hold."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import lerobot_sets as sets
import numpy as np
import pyarrow.parquet as pq
import pytest

from hardware import InputError, Recording
from hardware.checks import Check, check_recording
from hardware.importers import ImportReport, import_recording

KOCH = "joint_logs/koch/screwdriver_panel_ls_080225_4_e5"


@pytest.fixture(scope="module")
def bimanual(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ImportReport, Recording]:
    source, to = shared_data / "so101_bimanual", tmp_path_factory.mktemp("bimanual") / "rec"
    arms = {arm: source / f"{arm}.json" for arm in ("arm1", "arm2")}
    return import_recording(source, to, unit="ticks", calibrations=arms), Recording.open(to)


@pytest.fixture(scope="module")
def cr5(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ImportReport, Recording]:
    to = tmp_path_factory.mktemp("cr5") / "rec"
    return import_recording(shared_data / "cr5", to, unit="radians"), Recording.open(to)


@pytest.fixture(scope="module")
def bimanual_checks(bimanual: tuple[ImportReport, Recording]) -> dict[str, Check]:
    return {check.name: check for check in check_recording(bimanual[1])}


def test_bimanual_counts(bimanual: tuple[ImportReport, Recording]) -> None:
    report, recording = bimanual
    assert report.episodes == list(range(25))
    assert report.rows == 5541
    assert report.frames == {"cam0": 1810, "cam1": 1810}
    assert report.missing[:2] == [
        f"view {view}: episodes 7-24 have no video and are joint logs" for view in ("cam0", "cam1")
    ]
    assert report.missing[2].startswith(
        "3 data file(s) that the metadata does not list: data/chunk-001/episode_000065"
    )
    assert len(report.faults) == 2 * 18
    assert [joint.unit for joint in recording.info.joints] == ["rad"] * 12
    assert recording.info.view("cam0").fps == 20


def test_bimanual_joints_are_its_ticks_by_its_calibrations(
    shared_data: Path, bimanual: tuple[ImportReport, Recording]
) -> None:
    source = shared_data / "so101_bimanual"
    log = bimanual[1].episode(4).joints()
    table = pq.read_table(source / "data/chunk-000/episode_000004.parquet")
    ticks = np.array(table["observation.state"].to_pylist())
    np.testing.assert_array_equal(log.raw, ticks)
    np.testing.assert_array_equal(log.source_timestamp, table["timestamp"].to_numpy())
    for arm, columns in (("arm1", range(6)), ("arm2", range(6, 12))):
        motors = sorted(
            json.loads((source / f"{arm}.json").read_text()).values(), key=lambda motor: motor["id"]
        )
        for motor, column in zip(motors, columns, strict=True):
            middle = (motor["range_min"] + motor["range_max"]) / 2
            np.testing.assert_allclose(
                log.position[:, column], (ticks[:, column] - middle) * 2 * np.pi / 4096, atol=1e-12
            )


@pytest.mark.parametrize(("view", "episode"), [("cam0", 5), ("cam1", 0)])
def test_bimanual_frames_are_the_files_frames(
    shared_data: Path, bimanual: tuple[ImportReport, Recording], view: str, episode: int
) -> None:
    path = (
        shared_data / f"so101_bimanual/videos/chunk-000/observation.images.{view}/episode_{episode:06d}.mp4"
    )
    shown = bimanual[1].episode(episode).frames(view)
    assert all(np.array_equal(one, other) for one, other in zip(shown, sets.decoded(path), strict=True))


def test_bimanual_known_faults_stay_visible(bimanual_checks: dict[str, Check]) -> None:
    """The points of the data's own README."""
    black = bimanual_checks["black_frames"]
    assert (black.state, black.evidence["black"]) == ("fail", {"0/cam0": 348})
    repeated = bimanual_checks["repeated_frames"]
    assert repeated.state == "fail" and repeated.evidence["episodes"] == [0]
    assert repeated.evidence["repeated_while_moving"]["0/cam1"] == pytest.approx(0.715, abs=0.03)
    rate = bimanual_checks["clock_rate"]
    assert rate.state == "warn"
    assert rate.evidence["declared_hz"]["joints"] == 20
    assert rate.evidence["median_hz"]["joints"] == pytest.approx(18.2, abs=0.05)
    assert rate.evidence["median_hz"]["view cam0"] == pytest.approx(20)
    assert bimanual_checks["joint_offsets"].evidence["step_rad"]["arm2_j5"] == pytest.approx(0.27, abs=0.02)
    assert bimanual_checks["actions"].state == "warn"
    assert bimanual_checks["actions"].evidence["equal_share_by_lag"]["1"] == 1.0
    assert bimanual_checks["faults"].evidence["kinds"] == {"no_video": 36}
    for sound in ("hashes", "joints", "counts", "clock_order", "decoded"):
        assert bimanual_checks[sound].state == "pass", bimanual_checks[sound]


def test_bimanual_without_a_unit(shared_data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        import_recording(shared_data / "so101_bimanual", tmp_path / "rec")
    assert "arm1_j1  1700    2076     moves 33.0 deg   impossible  impossible  impossible" in str(error.value)


@pytest.mark.parametrize("unit", ["degrees", "radians", "normalized"])
def test_bimanual_ticks_declared_as_something_else(shared_data: Path, tmp_path: Path, unit: str) -> None:
    source = shared_data / "so101_bimanual"
    arms = {} if unit == "radians" else {arm: source / f"{arm}.json" for arm in ("arm1", "arm2")}
    with pytest.raises(InputError, match=f"its joints cannot be {unit}: arm1_j1 holds 1700 to 2076"):
        import_recording(source, tmp_path / "rec", unit=unit, calibrations=arms)


@pytest.fixture(scope="module")
def chunk_001(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ImportReport, Recording]:
    source, to = shared_data / "so101_bimanual", tmp_path_factory.mktemp("chunk") / "rec"
    arms = {arm: source / f"{arm}.json" for arm in ("arm1", "arm2")}
    report = import_recording(source / "data/chunk-001", to, unit="ticks", calibrations=arms)
    return report, Recording.open(to)


def test_chunk_001_is_what_its_tables_hold(
    shared_data: Path, chunk_001: tuple[ImportReport, Recording]
) -> None:
    report, recording = chunk_001
    assert (report.episodes, report.rows) == ([65, 70, 71], 66 + 53 + 44)
    assert (report.frames, report.missing, report.faults) == ({"cam0": 163, "cam1": 163}, [], [])
    assert recording.info.robot == "so101_bimanual"
    assert {(view.encoding, view.width, view.height) for view in recording.info.views} == {("jpeg", 320, 240)}
    for episode in report.episodes:
        table = pq.read_table(shared_data / f"so101_bimanual/data/chunk-001/episode_{episode:06d}.parquet")
        log = recording.episode(episode).joints()
        np.testing.assert_array_equal(log.source_timestamp, table["t"].to_numpy())
        for column, name in enumerate(recording.info.joint_names):
            np.testing.assert_array_equal(log.raw[:, column], table[name].to_numpy())
        with h5py.File(recording.folder / f"episodes/{episode:06d}.h5") as file:
            for view in ("cam0", "cam1"):
                assert file[f"views/{view}/data"][()].tobytes() == b"".join(
                    table[f"{view}_image"].to_pylist()
                )


def test_chunk_001_known_faults_stay_visible(chunk_001: tuple[ImportReport, Recording]) -> None:
    recording = chunk_001[1]
    checks = {check.name: check for check in check_recording(recording)}
    rate = checks["clock_rate"]
    assert rate.state == "warn"
    assert rate.evidence["declared_hz"]["joints"] == 20  # by the set around it
    assert rate.evidence["median_hz"]["joints"] == pytest.approx(4.8, abs=0.05)
    assert checks["still_joints"].evidence["joints"] == [f"arm1_j{number}" for number in range(1, 7)]
    raw = recording.episode(70).joints().raw
    assert raw is not None and set(raw[:, :6].ravel()) == {-1.0}
    for sound in ("hashes", "joints", "counts", "clock_order", "decoded"):
        assert checks[sound].state == "pass", checks[sound]


def test_chunk_001_elsewhere_has_the_rate_of_its_clock(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "so101_bimanual"
    arms = {arm: source / f"{arm}.json" for arm in ("arm1", "arm2")}
    for path in (source / "data/chunk-001").iterdir():
        (tmp_path / "set").mkdir(exist_ok=True)
        (tmp_path / "set" / path.name).write_bytes(path.read_bytes())
    import_recording(tmp_path / "set", tmp_path / "rec", unit="ticks", calibrations=arms)
    info = Recording.open(tmp_path / "rec").info
    assert info.joints_hz == pytest.approx(4.83, abs=0.01)
    assert info.source is not None
    assert info.source["facts"]["rate"] == "median step of 't' in episode_000065.parquet"


def test_cr5(shared_data: Path, cr5: tuple[ImportReport, Recording]) -> None:
    report, recording = cr5
    assert (report.episodes, report.rows, report.frames, report.faults) == ([0, 1, 2], 687, {"top": 687}, [])
    assert report.missing == ["episodes 3-80 (78 of 81) have no data file here"]
    assert recording.info.actions is not None
    assert recording.info.actions.unit == "source"  # velocities and a gripper: not the joints
    assert recording.info.actions.names[6] == "gripper"
    log = recording.episode(1).joints()
    np.testing.assert_array_equal(log.raw, log.position)
    path = shared_data / "cr5/videos/chunk-000/observation.images.top/episode_000001.mp4"
    shown = recording.episode(1).frames("top")
    assert all(np.array_equal(one, other) for one, other in zip(shown, sets.decoded(path), strict=True))


def test_cr5_known_faults_stay_visible(cr5: tuple[ImportReport, Recording]) -> None:
    checks = {check.name: check for check in check_recording(cr5[1], frames=False)}
    assert checks["clock_steps"].state == "warn"
    assert checks["clock_steps"].evidence["step_s"]["joints"] == [
        pytest.approx(0.060, abs=1e-3),
        pytest.approx(0.274, abs=1e-3),
    ]
    assert checks["clock_steps"].evidence["step_s"]["view top"] == [0.1, 0.1]
    assert checks["still_joints"].evidence["joints"] == ["joint_4", "joint_5"]
    assert "decoded" not in checks


@pytest.mark.parametrize(
    ("folder", "version", "unit", "with_file", "episodes", "rows", "units"),
    [
        (KOCH, "v2.1", "normalized", True, 5, 1217, ["rad"] * 5 + ["source"]),
        ("joint_logs/so101_a", "v3.0", "normalized", True, 4, 1492, ["rad"] * 6),
        ("joint_logs/so101_b", "v3.0", "degrees", False, 20, 15980, ["rad"] * 5 + ["percent"]),
        ("joint_logs/so101_b", "v3.0", "degrees", True, 20, 15980, ["rad"] * 6),
    ],
)
def test_joint_logs(
    shared_data: Path,
    tmp_path: Path,
    folder: str,
    version: str,
    unit: str,
    with_file: bool,
    episodes: int,
    rows: int,
    units: list[str],
) -> None:
    # These sets come without their arms' calibrations: another arm's stands in where the unit needs one.
    files = {"": shared_data / "calibrations" / "01.json"} if with_file else {}
    report = import_recording(shared_data / folder, tmp_path / "rec", unit=unit, calibrations=files)
    assert (len(report.episodes), report.rows, report.frames, report.faults) == (episodes, rows, {}, [])
    assert report.missing and all(text.endswith("no video file is here") for text in report.missing)
    recording = Recording.open(tmp_path / "rec")
    assert recording.info.source is not None and recording.info.source["version"] == version
    assert [joint.unit for joint in recording.info.joints] == units
    assert [check for check in check_recording(recording) if check.alarm] == []


def test_so101_b_is_not_normalized(shared_data: Path, tmp_path: Path) -> None:
    files = {"": shared_data / "calibrations" / "01.json"}
    with pytest.raises(InputError, match=r"wrist_roll holds -73\.4505 to 122\.154"):
        import_recording(
            shared_data / "joint_logs/so101_b", tmp_path / "rec", unit="normalized", calibrations=files
        )
