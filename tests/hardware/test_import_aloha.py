"""HDF5 episodes laid out as ALOHA writes them: whole ones come out as they are, others give a clear error."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import lerobot_sets as sets
import numpy as np
import pytest

from hardware import InputError, Recording
from hardware.checks import check_recording
from hardware.frames import decode_jpeg
from hardware.importers import import_recording
from hardware.importers.aloha import JOINTS_OF_TWO_ARMS

FPS = 50
VIEWS = ("cam_high", "cam_low", "cam_left_wrist")  # not in alphabetical order, as ALOHA's own are not


def qpos(rows: int, joints: int, seed: int = 0) -> np.ndarray:
    """float64 (rows, joints): angles in rad that could be an arm's."""
    rng = np.random.default_rng(seed)
    return np.sin(np.linspace(0, 3, rows)[:, None] + rng.uniform(0, 6, joints))


def images(view: int, rows: int) -> np.ndarray:
    """uint8 (rows, H, W, 3)."""
    return np.stack([sets.picture(view, number) for number in range(rows)])


def jpegs(view: int, rows: int) -> list[bytes]:
    return [sets.encoded(image, ".jpg") for image in images(view, rows)]


def write(
    path: Path,
    rows: int = 6,
    joints: int = 14,
    *,
    compress: bool = False,
    views: tuple[str, ...] = VIEWS,
    replace: Mapping[str, Any] | None = None,
) -> Path:
    """One episode as ALOHA's recorder writes it; `replace` gives datasets other values (None: none)."""
    data: dict[str, Any] = {
        "observations/qpos": qpos(rows, joints),
        "observations/qvel": np.zeros((rows, joints)),
        "observations/effort": np.zeros((rows, joints)),
        "action": qpos(rows, joints) + 0.1,
    }
    encoded = {view: jpegs(number, rows) for number, view in enumerate(views)}
    longest = max((len(one) for mine in encoded.values() for one in mine), default=0)
    for number, view in enumerate(views):
        name = f"observations/images/{view}"
        data[name] = padded(encoded[view], longest) if compress else images(number, rows)
    if compress and views:
        data["compress_len"] = np.array([[len(one) for one in encoded[view]] for view in views], np.float32)
    data |= replace or {}
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs["sim"] = False
        file.attrs["compress"] = compress
        for name, values in data.items():
            if values is not None:
                chunks = (1, *values.shape[1:]) if name.startswith("observations/images") else None
                file.create_dataset(name, data=values, chunks=chunks if values.size else None)
    return path


def padded(encoded: list[bytes], length: int) -> np.ndarray:
    """uint8 (rows, length): the bytes of each picture, and zeros."""
    return np.stack([np.frombuffer(one.ljust(length, b"\0"), np.uint8) for one in encoded])


def error_of(source: Path, to: Path, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        import_recording(source, to, **{"unit": "radians", "fps": FPS, **options})
    return str(error.value)


# -- whole sets --------------------------------------------------------------------------------------------


def test_raw_arrays_are_kept_as_they_are(tmp_path: Path) -> None:
    for number, rows in ((0, 6), (2, 7), (10, 5)):
        write(tmp_path / f"set/episode_{number}.hdf5", rows)
    report = import_recording(tmp_path / "set", tmp_path / "rec", unit="radians", fps=FPS)
    assert report.episodes == [0, 2, 10]
    assert (report.rows, report.frames) == (18, {"cam_high": 18, "cam_left_wrist": 18, "cam_low": 18})
    assert report.missing == [
        "time stamps: row i is taken at i / fps",
        "not imported, since their units are not said: observations/effort, observations/qvel",
    ]
    assert report.faults == []
    recording = Recording.open(tmp_path / "rec")
    info = recording.info
    assert info.joint_names == JOINTS_OF_TWO_ARMS
    assert (info.robot, info.joints_hz, info.pairing) == ("aloha", 50, "row")
    assert {view.encoding for view in info.views} == {"rgb8"}
    assert info.source is not None
    assert info.source["facts"] == {
        "rate": "declared by whoever imported it",
        "episode numbers": "those of the file names",
        "joint names": "those of ALOHA's two arms, by their number; the files name none",
        "grippers": "of an ALOHA: shares of their travel (0 to 1), not angles",
        "simulated": "no, by attribute sim",
    }
    for number, rows in ((0, 6), (2, 7), (10, 5)):
        episode = recording.episode(number)
        log, actions = episode.joints(), episode.actions()
        np.testing.assert_array_equal(log.position, qpos(rows, 14))
        np.testing.assert_array_equal(log.raw, qpos(rows, 14))
        np.testing.assert_array_equal(log.time_ns, np.arange(rows) * 20_000_000)
        assert log.source_timestamp is None
        assert actions is not None
        np.testing.assert_array_equal(actions.target, qpos(rows, 14) + 0.1)
        for view, name in enumerate(VIEWS):
            np.testing.assert_array_equal(np.stack(list(episode.frames(name))), images(view, rows))
            np.testing.assert_array_equal(episode.frame_times(name), log.time_ns)
    states = {check.name: check.state for check in check_recording(recording)}
    assert states["counts"] == states["decoded"] == states["clock_rate"] == "pass"


def test_jpegs_are_stored_as_they_came_without_their_padding(tmp_path: Path) -> None:
    write(tmp_path / "set/episode_0.hdf5", compress=True)
    report = import_recording(tmp_path / "set", tmp_path / "rec", unit="radians", fps=FPS)
    assert report.faults == []
    assert any(line.startswith("the order of colours in its JPEGs") for line in report.missing)
    recording = Recording.open(tmp_path / "rec")
    for number, view in enumerate(VIEWS):
        assert recording.info.view(view).encoding == "jpeg"
        with h5py.File(recording.folder / "episodes/000000.h5") as file:
            assert file[f"views/{view}/data"][()].tobytes() == b"".join(jpegs(number, 6))
        shown = recording.episode(0).frames(view)
        expected = [decode_jpeg(data, "") for data in jpegs(number, 6)]
        assert all(np.array_equal(one, other) for one, other in zip(shown, expected, strict=True))


def test_other_arms_are_numbered(tmp_path: Path) -> None:
    write(tmp_path / "set/episode_0.hdf5", joints=7, views=(), replace={"action": qpos(6, 8)})
    report = import_recording(tmp_path / "set", tmp_path / "rec", unit="radians", fps=FPS)
    info = Recording.open(tmp_path / "rec").info
    assert info.joint_names == [f"joint_{number}" for number in range(7)]
    assert info.actions is not None and info.actions.names == [f"action_{number}" for number in range(8)]
    assert (info.robot, info.actions.unit, report.frames) == ("unknown", "source", {})
    assert "pictures: there is no observations/images" in report.missing
    assert info.source is not None and info.source["facts"]["joint names"] == "numbered"


def test_an_episode_without_actions(tmp_path: Path) -> None:
    write(tmp_path / "set/episode_0.hdf5", replace={"action": None, "observations/qvel": None})
    import_recording(tmp_path / "set", tmp_path / "rec", unit="radians", fps=FPS)
    assert Recording.open(tmp_path / "rec").info.actions is None


def test_a_destination_that_is_a_loop_of_links(tmp_path: Path) -> None:
    write(tmp_path / "set/episode_0.hdf5")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises((InputError, OSError), match=r"loop|cannot be written"):
        import_recording(tmp_path / "set", tmp_path / "loop", unit="radians", fps=FPS)


def test_actions_that_the_first_episode_lacks_are_not_dropped_silently(tmp_path: Path) -> None:
    write(tmp_path / "set/episode_0.hdf5", replace={"action": None})
    write(tmp_path / "set/episode_1.hdf5")
    said = "episode_0.hdf5 has no action, episode_1.hdf5 has one"
    assert said in error_of(tmp_path / "set", tmp_path / "rec")
    report = import_recording(tmp_path / "set", tmp_path / "lenient", unit="radians", fps=FPS, lenient=True)
    assert said in report.faults[0] and Recording.open(tmp_path / "lenient").info.actions is None


def test_the_rate_is_asked_for_and_never_guessed(tmp_path: Path) -> None:
    write(tmp_path / "set/episode_0.hdf5")
    text = error_of(tmp_path / "set", tmp_path / "rec", fps=None)
    assert "holds rows without a clock, and rates are not guessed - say --fps" in text
    for fps in (0, -1, float("nan"), 1e-9, 1e-320, 1e9):  # int64 nanoseconds would overflow
        assert "is no rate" in error_of(tmp_path / "set", tmp_path / "rec", fps=fps)
    assert "says nowhere in what unit" in error_of(tmp_path / "set", tmp_path / "rec", unit=None)


# -- what is not as it should be ---------------------------------------------------------------------------


def both(tmp_path: Path, replace: Mapping[str, Any], **options: Any) -> tuple[str, Any]:
    """(the error, the report of the lenient import) of a set whose second episode has `replace`."""
    source = tmp_path / "set"
    write(source / "episode_0.hdf5", **options)
    write(source / "episode_1.hdf5", replace=replace, **options)
    text = error_of(source, tmp_path / "rec")
    return text, import_recording(source, tmp_path / "lenient", unit="radians", fps=FPS, lenient=True)


CAM = "observations/images/cam_low"
SHORT = padded(jpegs(1, 6), 20_000)
SHORT[3, 900:] = 0
EMPTY = padded(jpegs(1, 6), 20_000)
EMPTY[2] = 0


@pytest.mark.parametrize(
    ("compress", "replace", "words", "fault", "frames"),
    [
        (False, {CAM: images(1, 4)}, "6 rows, 4 decoded frames", "count", 10),
        (False, {CAM: images(1, 8)}, "6 rows, 8 decoded frames", "count", 12),
        (
            False,
            {"action": qpos(5, 14)},
            "episode_1.hdf5: 5 rows of action, 6 of observations/qpos",
            "count",
            12,
        ),
        (False, {"action": None}, "episode_1.hdf5 has no action, episode_0.hdf5 has one", "no_actions", 12),
        (False, {CAM: None}, f"episode_1.hdf5 has no {CAM}", "no_pictures", 6),
        (False, {CAM: images(1, 6)[:, :24]}, "its pictures are 64x24", "picture_size", 6),
        (
            False,
            {CAM: padded(jpegs(1, 6), 9000)},
            "is JPEG, the view's first picture is not",
            "picture_kind",
            6,
        ),
        (True, {CAM: images(1, 6)}, "its pictures are no jpeg", "picture_kind", 6),
        (True, {CAM: SHORT}, "row 3 of episode_1.hdf5 of 900 bytes is cut off", "picture_unreadable", 9),
        (True, {CAM: EMPTY}, "row 2 of episode_1.hdf5 has no picture", "picture_missing", 8),
        (True, {"compress_len": np.ones((3, 6))}, "are no row of compress_len", "count", 12),
        (True, {"compress_len": np.ones(6)}, "compress_len is float64 with 1 axes", "count", 12),
    ],
)
def test_an_episode_that_disagrees(
    tmp_path: Path, compress: bool, replace: dict, words: str, fault: str, frames: int
) -> None:
    text, report = both(tmp_path, replace, compress=compress)
    assert words in text and "episode 1" in text and "--lenient" in text
    assert Recording.open(tmp_path / "rec").episode_indices == [0]
    assert report.faults[0].startswith(f"episode 1: {fault}: ") and words in report.faults[0]
    assert (report.rows, report.frames["cam_low"]) == (12, frames)
    assert {check.name: check.state for check in check_recording(Recording.open(tmp_path / "lenient"))}[
        "faults"
    ] == "warn"


@pytest.mark.parametrize(
    ("replace", "where", "words"),
    [
        ({"observations/qpos": None}, "observations/qpos", "is missing"),
        ({"observations/qpos": np.zeros((6, 14, 1))}, "observations/qpos", "is float64 with 3 axes"),
        ({"observations/qpos": np.full((6, 14), b"x")}, "observations/qpos", "is |S1 with 2 axes"),
        (
            {"observations/qpos": np.zeros((6, 9))},
            "observations/qpos",
            "has 9 columns, that of episode_0.hdf5 14",
        ),
        ({"observations/qpos": np.zeros((0, 14))}, "observations/qpos", "has no rows"),
        ({"action": np.zeros((6, 3))}, "action", "has 3 columns, that of episode_0.hdf5 14"),
        ({"observations/images/more": images(0, 6)}, "observations/images", "has the views more, which"),
    ],
)
def test_an_episode_that_cannot_be_read(tmp_path: Path, replace: dict, where: str, words: str) -> None:
    text, report = both(tmp_path, replace)
    assert f"episode_1.hdf5, {where}" in text and words in text
    assert not (tmp_path / "rec").exists()  # all tables are read before anything is written
    assert report.episodes == [0] and "episode 1 is left out" in report.missing[-1]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros((6, 8, 8, 3), np.float32), "is float32 (6, 8, 8, 3); pictures are uint8 (T, H, W, 3)"),
        (np.zeros((6, 8, 8, 4), np.uint8), "is uint8 (6, 8, 8, 4)"),
        (np.zeros((6, 90), np.uint8), "row 0: its picture is neither JPEG nor PNG: it starts with nothing"),
        (
            np.full((6, 90), 7, np.uint8),
            "row 0: its picture is neither JPEG nor PNG: it starts with 07070707",
        ),
        (np.zeros((6, 0), np.uint8), "claims pictures of 0 bytes"),
    ],
)
def test_views_that_are_no_pictures(tmp_path: Path, values: np.ndarray, words: str) -> None:
    write(tmp_path / "set/episode_0.hdf5", replace={CAM: values})
    text = error_of(tmp_path / "set", tmp_path / "rec")
    assert f"episode_0.hdf5, {CAM}" in text.replace(", /", ", ") and words in text


def test_joints_that_are_not_numbers(tmp_path: Path) -> None:
    values = qpos(6, 14)
    values[4, 2] = np.nan
    text, report = both(tmp_path, {"observations/qpos": values})
    assert "episode 1: row 4, joint left_elbow: nan is not a number" in text
    assert report.rows == 10 and report.frames["cam_low"] == 10


def test_files_that_are_no_episodes(tmp_path: Path) -> None:
    source = tmp_path / "set"
    path = write(source / "episode_3.hdf5")
    with h5py.File(path, "a") as file:
        file.move("observations", "state")
    assert "episode_3.hdf5: holds no group 'observations'" in error_of(source, tmp_path / "rec")
    path.write_bytes(b"no HDF5")
    assert "episode_3.hdf5: is not a readable HDF5 file" in error_of(source, tmp_path / "rec")
    write(path)
    path.write_bytes(path.read_bytes()[:-5000])
    assert "episode_3.hdf5: is truncated" in error_of(source, tmp_path / "rec")
    path.unlink()
    path.mkdir()
    assert "episode_3.hdf5: is no file" in error_of(source, tmp_path / "rec")


# -- what reaches outside ----------------------------------------------------------------------------------


def _soft(file: h5py.File, outside: Path) -> None:
    file["observations/images/cam_low"] = h5py.SoftLink("/observations/images/cam_high")


def _external_link(file: h5py.File, outside: Path) -> None:
    file["observations/images/cam_low"] = h5py.ExternalLink(str(outside), "/observations/images/cam_high")


def _virtual(file: h5py.File, outside: Path) -> None:
    layout = h5py.VirtualLayout((6, 48, 64, 3), np.uint8)
    layout[:] = h5py.VirtualSource(str(outside), "observations/images/cam_high", (6, 48, 64, 3))
    file.create_virtual_dataset("observations/images/cam_low", layout)


def _external_storage(file: h5py.File, outside: Path) -> None:
    file.create_dataset(
        "observations/images/cam_low", (6, 48, 64, 3), np.uint8, external=[(str(outside), 0, 6 * 48 * 64 * 3)]
    )


@pytest.mark.parametrize(
    ("reach", "words"),
    [
        (_soft, "is a soft or external link, which is refused"),
        (_external_link, "is a soft or external link, which is refused"),
        (_virtual, "stores its data outside the file, which is refused"),
        (_external_storage, "stores its data outside the file, which is refused"),
    ],
)
def test_what_reaches_outside_the_file_is_refused(tmp_path: Path, reach, words: str) -> None:
    outside = write(tmp_path / "outside.hdf5")
    path = write(tmp_path / "set/episode_0.hdf5", replace={CAM: None})
    with h5py.File(path, "a") as file:
        reach(file, outside)
    text = error_of(tmp_path / "set", tmp_path / "rec", lenient=True)
    assert "cam_low" in text and words in text


def test_a_link_to_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside.hdf5")
    (tmp_path / "set").mkdir()
    (tmp_path / "set/episode_0.hdf5").symlink_to(outside)
    assert "a link that leads out of the folder" in error_of(tmp_path / "set", tmp_path / "rec")


def test_sizes_that_the_file_does_not_hold(tmp_path: Path) -> None:
    path = write(tmp_path / "set/episode_0.hdf5", replace={"observations/qpos": None})
    with h5py.File(path, "a") as file:  # 112 GB of which one chunk is there
        table = file.create_dataset("observations/qpos", (10**9, 14), np.float64, chunks=(100, 14))
        table[:100] = 1
    assert "observations/qpos: claims 112,000,000,000 bytes and stores 11,200" in error_of(
        tmp_path / "set", tmp_path / "rec"
    )
    with h5py.File(path, "a") as file:
        del file["observations/qpos"]
        file["observations/qpos"] = qpos(6, 14)
        del file[CAM]
        file.create_dataset(CAM, (6, 1 << 20, 1 << 20, 3), np.uint8, chunks=(1, 64, 64, 3))
    assert "claims pictures of 1048576 x 1048576 x 3 bytes" in error_of(tmp_path / "set", tmp_path / "rec")
    with h5py.File(path, "a") as file:
        del file[CAM]
        file.create_dataset(CAM, (6, 48, 64, 3), np.uint8)
    assert "claims 55,296 values and stores none" in error_of(tmp_path / "set", tmp_path / "rec")


def test_an_array_that_is_damaged_ends_the_view(tmp_path: Path) -> None:
    source = tmp_path / "set"
    write(source / "episode_0.hdf5")
    path = write(source / "episode_1.hdf5", replace={CAM: None})
    with h5py.File(path, "a") as file:
        data = file.create_dataset(CAM, data=images(1, 6), chunks=(1, 48, 64, 3), fletcher32=True)
        place = data.id.get_chunk_info_by_coord((0, 0, 0, 0)).byte_offset
    content = bytearray(path.read_bytes())
    content[place + 5] ^= 1
    path.write_bytes(content)
    text = error_of(source, tmp_path / "rec")
    assert "view cam_low, row 0" in text and "is damaged" in text
    report = import_recording(source, tmp_path / "lenient", unit="radians", fps=FPS, lenient=True)
    assert report.frames == {"cam_high": 12, "cam_left_wrist": 12, "cam_low": 6}
    assert report.faults[0].startswith("episode 1: picture_unreadable: view cam_low, row 0")


# -- the way there -----------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from hardware.episode_writer import EpisodeWriter
from hardware.importers import import_recording
frame, count = EpisodeWriter.frame, [0]
def killing(self, *arguments):
    count[0] += 1
    if count[0] == 25:
        os.kill(os.getpid(), signal.SIGKILL)
    return frame(self, *arguments)
EpisodeWriter.frame = killing
import_recording(sys.argv[1], sys.argv[2], unit="radians", fps=50)
"""


@pytest.mark.parametrize("compress", [False, True])
def test_an_import_that_was_killed_goes_on_and_ends_in_the_same_bytes(tmp_path: Path, compress: bool) -> None:
    for number in range(3):
        write(tmp_path / f"set/episode_{number}.hdf5", compress=compress)
    import_recording(tmp_path / "set", tmp_path / "whole", unit="radians", fps=FPS)
    command = [sys.executable, "-c", KILLED, str(tmp_path / "set"), str(tmp_path / "rec")]
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert sorted(path.name for path in (tmp_path / "rec/episodes").glob("*.h5")) == ["000000.h5"]
    report = import_recording(tmp_path / "set", tmp_path / "rec", unit="radians", fps=FPS)
    assert report.episodes == [0, 1, 2]
    whole, again = (Recording.open(tmp_path / name) for name in ("whole", "rec"))
    assert whole.manifest_sha256 == again.manifest_sha256
    assert sorted(os.listdir(tmp_path / "rec/episodes")) == [f"00000{number}.h5" for number in range(3)]
    assert "was started with other settings" in error_of(tmp_path / "set", tmp_path / "rec", fps=30)


@pytest.mark.parametrize("compress", [False, True])
def test_damaged_files_raise_input_errors_and_nothing_else(tmp_path: Path, compress: bool) -> None:
    whole = tmp_path / "whole"
    for number in range(2):
        write(whole / f"episode_{number}.hdf5", compress=compress, views=VIEWS[:1])
    rng = np.random.default_rng(5)
    outcomes = {"imported": 0, "refused": 0}
    for trial in range(24):
        source = tmp_path / f"set{trial}"
        shutil.copytree(whole, source)
        path = source / f"episode_{trial % 2}.hdf5"
        content = bytearray(path.read_bytes())
        for place in rng.integers(0, 4096 if trial % 3 else len(content), 30):  # the structure comes first
            content[place] = rng.integers(256)
        path.write_bytes(content[: -1 - trial] if trial % 10 == 0 else content)
        try:
            to = tmp_path / f"rec{trial}"
            import_recording(source, to, unit="radians", fps=FPS, lenient=trial % 4 > 0)
            recording = Recording.open(to)
            for episode in map(recording.episode, recording.episode_indices):
                if episode.line.frames.get("cam_high"):
                    assert len(list(episode.frames("cam_high"))) == episode.frame_count("cam_high")
            outcomes["imported"] += 1
        except InputError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 3, outcomes
