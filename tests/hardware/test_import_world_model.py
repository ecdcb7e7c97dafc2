"""HDF5 of LeWM and stable-worldmodel: whole files come out as they are, others give a clear error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from recordings import make_recording

from hardware import InputError, Recording
from hardware.checks import check_recording
from hardware.importers import import_recording, importing, open_source
from hardware.importers.aloha import AlohaSet

FPS = 10.0
LENGTHS = (6, 4, 5)
ROWS = sum(LENGTHS)
LAST = np.cumsum(LENGTHS) - 1  # last row of each episode


def joints(rows: int = ROWS, columns: int = 2, seed: int = 0) -> np.ndarray:
    """float64 (rows, columns): angles in rad."""
    return np.random.default_rng(seed).uniform(-3, 3, (rows, columns))


def pictures(rows: int = ROWS, seed: int = 1) -> np.ndarray:
    """uint8 (rows, 12, 16, 3)."""
    return np.random.default_rng(seed).integers(0, 255, (rows, 12, 16, 3), np.uint8)


def sent() -> np.ndarray:
    """float32 (ROWS, 2), NaN where nothing was sent: in the last row of each episode."""
    values = joints(seed=2).astype(np.float32)
    values[LAST] = np.nan
    return values


def write(path: Path, replace: Mapping[str, Any] | None = None, **options: Any) -> Path:
    """A file as stable-worldmodel writes it; `replace` gives columns other values (None: none)."""
    data: dict[str, Any] = {
        "pixels": pictures(),
        "action": sent(),
        "qpos": joints(),
        "qvel": joints(seed=3),
        "observation": joints(columns=6, seed=4),
        "ep_idx": np.repeat(np.arange(3), LENGTHS),
        "step_idx": np.concatenate([np.arange(length) for length in LENGTHS]),
        "ep_len": np.array(LENGTHS, np.int32),
        "ep_offset": np.array([0, 6, 10], np.int64),
    }
    data |= replace or {}
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, values in data.items():
            if values is not None:
                rows = np.ndim(values) > 1 and np.size(values)
                chunks = {"chunks": (1, *values.shape[1:]), **options} if rows else {}
                file.create_dataset(name, data=values, **chunks)
    return path


def imported(source: Path, to: Path, **options: Any) -> Recording:
    import_recording(source, to, **{"unit": "radians", "fps": FPS, **options})
    return Recording.open(to)


def error_of(source: Path, to: Path, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        import_recording(source, to, **{"unit": "radians", "fps": FPS, **options})
    assert error.value.remedy
    return str(error.value)


# -- whole files -------------------------------------------------------------------------------------------


def test_rows_pictures_and_actions_are_kept_as_they_are(tmp_path: Path) -> None:
    source = write(tmp_path / "reacher.h5")
    calls: list[tuple[int, int, str]] = []
    report = import_recording(
        source, tmp_path / "rec", unit="radians", fps=FPS, progress=lambda *call: calls.append(call)
    )
    assert report.episodes == [0, 1, 2] and report.faults == []
    assert (report.rows, report.frames) == (ROWS, {"pixels": ROWS})
    assert report.missing == [
        "time stamps: row i of an episode is taken at i / fps",
        "not imported: observation, qvel",
    ]
    assert calls == [(number, 3, f"episode {number - 1}") for number in (1, 2, 3)]
    recording = Recording.open(tmp_path / "rec")
    info = recording.info
    assert (info.joint_names, info.pairing, info.joints_hz) == (["joint_0", "joint_1"], "row", FPS)
    assert info.view("pixels").encoding == "rgb8"
    assert info.actions is not None and info.actions.unit == "source"  # torques, by all that is known
    assert info.source is not None
    assert info.source["format"] == "LeWM / stable-worldmodel HDF5"
    assert info.source["facts"] == {
        "rate": "declared by whoever imported it",
        "episode numbers": "counted, as ep_len lists them",
        "joints": "column qpos, by its name",
        "joint names": "numbered; the file names none",
        "action names": "numbered; the file names none",
    }
    start = 0
    for number, length in enumerate(LENGTHS):
        rows, episode = slice(start, start + length), recording.episode(number)
        log, actions = episode.joints(), episode.actions()
        np.testing.assert_array_equal(log.position, joints()[rows])
        np.testing.assert_array_equal(log.time_ns, np.arange(length) * 100_000_000)
        assert actions is not None
        np.testing.assert_array_equal(actions.target, sent()[rows][:-1].astype(np.float64))
        np.testing.assert_array_equal(actions.time_ns, log.time_ns[:-1])
        np.testing.assert_array_equal(np.stack(list(episode.frames("pixels"))), pictures()[rows])
        start += length
    states = {check.name: check.state for check in check_recording(recording)}
    assert states["counts"] == states["decoded"] == states["clock_rate"] == "pass"


def test_of_a_large_set_reading_its_tables_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "MANY_EPISODES", 3)
    calls: list[tuple[int, int, str]] = []
    source = write(tmp_path / "set.h5")
    import_recording(
        source, tmp_path / "rec", unit="radians", fps=FPS, progress=lambda *one: calls.append(one)
    )
    assert calls[:4] == [*((number, 3, "reading tables") for number in (1, 2, 3)), (1, 3, "episode 0")]


@pytest.mark.parametrize(
    "compression",
    [
        hdf5plugin.Blosc(cname="lz4"),
        hdf5plugin.Blosc(cname="zstd"),
        hdf5plugin.Blosc2(),
        hdf5plugin.Zstd(),
        hdf5plugin.LZ4(),
        {"compression": "gzip"},
        {"compression": "lzf"},
    ],
    ids=["blosc-lz4", "blosc-zstd", "blosc2", "zstd", "lz4", "gzip", "lzf"],
)
def test_each_compression_and_chunk_gives_the_same_recording(tmp_path: Path, compression: Any) -> None:
    plain = imported(write(tmp_path / "plain.h5"), tmp_path / "plain")
    source = write(tmp_path / "packed.h5", {"pixels": None})
    with h5py.File(source, "a") as file:  # chunks that reach across episodes
        file.create_dataset("pixels", data=pictures(), chunks=(4, 12, 16, 3), **dict(compression))
    packed = imported(source, tmp_path / "packed")
    for number in range(3):
        one, other = (list(each.episode(number).frames("pixels")) for each in (plain, packed))
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_other_picture_columns_are_views_and_channels_may_come_first(tmp_path: Path) -> None:
    first, wide = pictures(seed=5), np.random.default_rng(6).integers(0, 255, (ROWS, 3, 8, 3), np.uint8)
    source = write(
        tmp_path / "set.h5",
        {
            "pixels": first.transpose(0, 3, 1, 2),
            "wrist": pictures(seed=7),
            "goal": wide,
            "mask": wide[:, :, :, :1],
        },
    )
    recording = imported(source, tmp_path / "rec")
    assert recording.info.view_names == ["pixels", "goal", "wrist"]
    assert (recording.info.view("pixels").width, recording.info.view("pixels").height) == (16, 12)
    assert (recording.info.view("goal").width, recording.info.view("goal").height) == (8, 3)  # last axis is 3
    assert recording.info.source is not None
    assert recording.info.source["facts"]["axes of pixels"].startswith("channels first")
    assert "axes of goal" not in recording.info.source["facts"]
    for view, expected in (("pixels", first), ("wrist", pictures(seed=7)), ("goal", wide)):
        np.testing.assert_array_equal(np.stack(list(recording.episode(1).frames(view))), expected[6:10])
    assert "not imported: mask, observation, qvel" in recording.info.source["missing"]


def test_episodes_need_not_be_in_the_order_of_their_rows(tmp_path: Path) -> None:
    lengths, offsets = np.array([5, 6], np.int32), np.array([10, 0])
    source = write(tmp_path / "set.h5", {"ep_len": lengths, "ep_offset": offsets, "ep_idx": None})
    report = import_recording(source, tmp_path / "rec", unit="radians", fps=FPS)
    assert "4 of 15 rows belong to no episode" in report.missing
    np.testing.assert_array_equal(
        Recording.open(tmp_path / "rec").episode(0).joints().position, joints()[10:15]
    )


def test_a_folder_with_one_file_is_that_file_and_two_are_a_question(tmp_path: Path) -> None:
    write(tmp_path / "set/reacher.h5")
    (tmp_path / "set/notes.txt").write_text("of the archive")
    assert imported(tmp_path / "set", tmp_path / "rec").episode_indices == [0, 1, 2]
    write(tmp_path / "set/cube.hdf5")
    text = error_of(tmp_path / "set", tmp_path / "rec2")
    assert "holds more than one set (cube.hdf5, reacher.h5) - give the file" in text


# -- what has to be declared -------------------------------------------------------------------------------


def test_the_rate_and_the_unit_are_asked_for_and_never_guessed(tmp_path: Path) -> None:
    source = write(tmp_path / "set.h5")
    assert "rates are not guessed - say --fps" in error_of(source, tmp_path / "rec", fps=None)
    assert "says nowhere in what unit" in error_of(source, tmp_path / "rec", unit=None)
    assert "is no rate" in error_of(source, tmp_path / "rec", fps=0)
    with h5py.File(source, "a") as file:
        file.attrs["fps"] = 12.5
    assert "declares 12.5 - leave --fps out" in error_of(source, tmp_path / "rec")
    assert imported(source, tmp_path / "rec", fps=None).info.joints_hz == 12.5


def test_the_column_of_the_joints_is_declared_or_unambiguous(tmp_path: Path) -> None:
    several = write(tmp_path / "several.h5", {"qpos": None, "state": joints(columns=3, seed=8)})
    text = error_of(several, tmp_path / "rec")
    assert (
        "observation and state may each hold the joints - say which holds the joints: --joints-from" in text
    )
    assert "tables: observation (6 columns), qvel (2 columns), state (3 columns)" in text
    assert "'pixels' is no table of numbers" in error_of(several, tmp_path / "rec", joints_from="pixels")
    recording = imported(several, tmp_path / "rec", joints_from="state")
    np.testing.assert_array_equal(recording.episode(0).joints().position, joints(columns=3, seed=8)[:6])
    one = write(tmp_path / "one.h5", {"qpos": None})
    info = imported(one, tmp_path / "one").info
    assert info.source is not None
    assert info.source["facts"]["joints"] == "column observation, the only one whose name fits"
    none = write(tmp_path / "none.h5", {"qpos": None, "observation": None})
    assert "has no column qpos - say which holds the joints" in error_of(none, tmp_path / "none")


def test_names_that_the_file_notes_are_taken_where_they_are_names(tmp_path: Path) -> None:
    source = write(tmp_path / "set.h5")
    with h5py.File(source, "a") as file:
        file["qpos"].attrs["names"] = json.dumps(["shoulder", "wrist"])
        file["action"].attrs["names"] = json.dumps(["shoulder", "wrist"])
        file["pixels"].attrs["view"] = "front"
    info = imported(source, tmp_path / "rec").info
    assert (info.joint_names, info.view_names) == (["shoulder", "wrist"], ["front"])
    assert info.actions is not None and (info.actions.unit, info.actions.meaning) == ("rad", "target")
    bad = (["shoulder"], ["a", "a"], ["a", 1], ["a", "../b"], "shoulder", {"a": 1})
    for number, names in enumerate(bad):
        with h5py.File(source, "a") as file:
            file["qpos"].attrs["names"] = json.dumps(names)
            file["pixels"].attrs["view"] = "../front"
        info = imported(source, tmp_path / f"bad{number}").info
        assert (info.joint_names, info.view_names) == (["joint_0", "joint_1"], ["pixels"])


# -- actions -----------------------------------------------------------------------------------------------


def test_a_nan_action_at_the_first_row_is_no_action_either(tmp_path: Path) -> None:
    values = sent()
    values[[0, 6, 10]] = np.nan
    recording = imported(write(tmp_path / "set.h5", {"action": values}), tmp_path / "rec")
    actions = recording.episode(1).actions()
    assert actions is not None
    np.testing.assert_array_equal(actions.time_ns, [100_000_000, 200_000_000])
    np.testing.assert_array_equal(actions.target, values[7:9].astype(np.float64))


def test_an_episode_of_one_row_holds_no_action(tmp_path: Path) -> None:
    values = sent()
    values[[5, 6]] = np.nan
    replace = {"ep_len": np.array([6, 1, 8]), "ep_offset": np.array([0, 6, 7]), "action": values}
    source = write(tmp_path / "set.h5", {**replace, "ep_idx": None, "step_idx": None})
    recording = imported(source, tmp_path / "rec", lenient=True)
    assert recording.episode(1).actions() is None
    assert len(recording.episode(1).joints().time_ns) == 1


def test_a_last_action_that_is_a_number_is_kept_and_told(tmp_path: Path) -> None:
    values = np.nan_to_num(sent(), nan=0.5)
    recording = imported(write(tmp_path / "set.h5", {"action": values}), tmp_path / "rec")
    assert recording.info.source is not None
    assert any("stable-worldmodel 0.1.1" in line for line in recording.info.source["missing"])
    actions = recording.episode(0).actions()
    assert actions is not None and len(actions.target) == 6


def test_a_file_without_actions(tmp_path: Path) -> None:
    recording = imported(write(tmp_path / "set.h5", {"action": None}), tmp_path / "rec")
    assert recording.info.actions is None and recording.episode(0).actions() is None


# -- files that contradict themselves ----------------------------------------------------------------------


def with_(name: str, index: Any, value: Any) -> Callable[[], dict[str, Any]]:
    """A column with another value somewhere."""
    columns = {
        "qpos": joints,
        "action": sent,
        "ep_idx": lambda: np.repeat(np.arange(3), LENGTHS),
        "step_idx": lambda: np.concatenate([np.arange(length) for length in LENGTHS]),
    }

    def replace() -> dict[str, Any]:
        values = columns[name]().copy()
        values[index] = value
        return {name: values}

    return replace


@pytest.mark.parametrize(
    ("replace", "words", "fault"),
    [
        (with_("qpos", (7, 1), np.nan), "episode 1: row 1, joint joint_1: nan is not a number", "not_finite"),
        (
            with_("action", (7, 0), np.nan),
            "episode 1: row 1, action action_0: nan is not a number",
            "not_finite",
        ),
        (
            with_("action", (7, 0), np.inf),
            "episode 1: row 1, action action_0: inf is not a number",
            "not_finite",
        ),
        (with_("action", 8, np.nan), "episode 1: action is NaN at row 2 (1 such rows)", "no_actions"),
        (
            with_("action", slice(6, 10), np.nan),
            "episode 1: action is NaN in each of its 4 rows",
            "no_actions",
        ),
        (
            with_("ep_idx", 8, 2),
            "episode 1: ep_idx is 1 at row 0 and 2 at row 2; by ep_len and ep_offset its rows are 0 to 3",
            "count",
        ),
        (with_("ep_idx", slice(6, 10), 0), "episode 1: ep_idx is 0, as in episode 0; by ep_len", "count"),
        (with_("step_idx", 7, 0), "episode 1: step_idx is 0 at row 1; by ep_len and ep_offset", "count"),
    ],
)
def test_an_episode_that_disagrees(tmp_path: Path, replace: Any, words: str, fault: str) -> None:
    changed = replace()
    if words.startswith("episode 1: action is NaN at row 2"):
        changed["action"][9] = 0.5  # it goes on behind the hole
    source = write(tmp_path / "set.h5", changed)
    text = error_of(source, tmp_path / "rec")
    assert "set.h5, " in text and words in text and "--lenient" in text
    report = import_recording(source, tmp_path / "lenient", unit="radians", fps=FPS, lenient=True)
    assert len(report.faults) == 1 and report.faults[0].startswith(f"episode 1: {fault}: ")
    assert report.episodes == [0, 1, 2]


def test_older_files_call_it_episode_idx(tmp_path: Path) -> None:
    numbers = np.repeat([3, 8, 20], LENGTHS)[:, None]  # numbers of their own, in a column of one
    source = write(tmp_path / "a.h5", {"ep_idx": None, "episode_idx": numbers})
    assert imported(source, tmp_path / "a").episode_indices == [0, 1, 2]
    numbers[8] = 4
    source = write(tmp_path / "b.h5", {"ep_idx": None, "episode_idx": numbers})
    assert "episode_idx is 8 at row 0 and 4 at row 2" in error_of(source, tmp_path / "b")


def test_an_episode_without_rows_is_left_out_when_lenient(tmp_path: Path) -> None:
    replace = {"ep_len": np.array([6, 0, 4, 5]), "ep_offset": np.array([0, 6, 6, 10]), "ep_idx": None}
    source = write(tmp_path / "set.h5", replace)
    assert "set.h5, ep_len: is 0 for episode 1: it has no rows" in error_of(source, tmp_path / "rec")
    report = import_recording(source, tmp_path / "rec", unit="radians", fps=FPS, lenient=True)
    assert report.episodes == [0, 2, 3] and "episode 1 is left out" in report.missing[-1]


@pytest.mark.parametrize(
    ("replace", "words"),
    [
        (
            {"ep_len": np.array([6, 4, 9])},
            "ep_offset: episode 2, 9 rows from row 10 on, ends beyond the 15",
        ),
        ({"ep_len": np.array([6, 4])}, "ep_len, ep_offset: list 2 and 3 episodes"),
        (
            {"ep_len": np.array([7, 4, 5])},
            "episode 0 (from row 0 on, 7 rows) and episode 1 (from row 6 on",
        ),
        ({"ep_len": np.array([6, -4, 5])}, "ep_len, episode 1: is -4, and no number of rows is negative"),
        (
            {"ep_offset": np.array([0, -6, 10])},
            "ep_offset, episode 1: is -6, and no number of rows is negative",
        ),
        (
            {"ep_offset": np.array([0, 1 << 62, 10])},
            "episode 1, 4 rows from row 4,611,686,018,427,387,904 on",
        ),
        ({"ep_len": np.array([6.0, 4, 5])}, "ep_len: is float64 with 1 axes, expected whole numbers with 1"),
        ({"ep_len": np.zeros(0, int), "ep_offset": np.zeros(0, int)}, "list no episode: the set is empty"),
        ({"pixels": pictures(12)}, "set.h5, pixels: has 12 rows, qpos has 15"),
        ({"action": sent()[:14]}, "set.h5, action: has 14 rows, qpos has 15"),
        ({"step_idx": np.arange(3)}, "set.h5, step_idx: has 3 rows, qpos has 15"),
        ({"pixels": pictures() / 255}, "set.h5, pixels: is float64 (15, 12, 16, 3); pictures are uint8"),
        ({"pixels": pictures()[..., :1]}, "set.h5, pixels: is uint8 (15, 12, 16, 1); pictures are uint8"),
        ({"qpos": joints()[:, :, None]}, "set.h5, qpos: is float64 with 3 axes, expected numbers with 2"),
        ({"qpos": np.full((15, 2), b"x")}, "set.h5, qpos: is |S1 with 2 axes, expected numbers with 2"),
        ({"action": np.zeros((15, 300))}, "set.h5, action: has 300 columns, not 1 to 256"),
        ({"action": np.full((15, 2), b"x")}, "set.h5, action: is |S1 with 2 axes"),
        ({"ep_idx": np.zeros(15)}, "set.h5, ep_idx: is float64 with 1 axes, expected whole numbers"),
        ({"ep_offset": None}, "set.h5: has no ep_offset: it holds action, ep_idx, ep_len"),
        ({"ep_len": None, "ep_offset": None}, "set.h5: has no ep_len and ep_offset: it holds action"),
    ],
)
def test_a_file_that_cannot_be_a_set(tmp_path: Path, replace: dict[str, Any], words: str) -> None:
    source = write(tmp_path / "set.h5", replace)
    assert words in error_of(source, tmp_path / "rec")
    assert words in error_of(source, tmp_path / "rec", lenient=True)
    assert not (tmp_path / "rec").exists()


# -- files that are none, or damaged -----------------------------------------------------------------------


def test_files_that_are_no_hdf5_or_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "set.h5"
    path.write_text("not found: reacher.h5\n")
    assert "set.h5: is not a readable HDF5 file" in error_of(path, tmp_path / "rec")
    write(path)
    path.write_bytes(path.read_bytes()[:-3000])
    assert "set.h5: is truncated" in error_of(path, tmp_path / "rec")
    assert "is not a folder, nor a file" in error_of(tmp_path / "none.h5", tmp_path / "rec")


def _with_filter(path: Path, number: int) -> None:
    """Pixels whose chunks claim to have gone through a filter that nobody has."""
    write(path, {"pixels": None})
    with h5py.File(path, "a") as file:
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_chunk((1, 12, 16, 3))
        creation.set_filter(number, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple((ROWS, 12, 16, 3))
        data = h5py.h5d.create(file.id, b"pixels", h5py.h5t.STD_U8LE, space, creation)
        for row, picture in enumerate(pictures()):
            data.write_direct_chunk((row, 0, 0, 0), picture.tobytes(), filter_mask=0)


def test_a_compression_that_is_not_here_is_named(tmp_path: Path) -> None:
    _with_filter(tmp_path / "set.h5", 32999)
    text = error_of(tmp_path / "set.h5", tmp_path / "rec")
    assert "set.h5, pixels: is compressed by filter 32999" in text and "h5repack" in text


def test_a_damaged_chunk_ends_the_view(tmp_path: Path) -> None:
    source = write(tmp_path / "set.h5", {"pixels": None})
    with h5py.File(source, "a") as file:
        data = file.create_dataset("pixels", data=pictures(), chunks=(1, 12, 16, 3), fletcher32=True)
        place = data.id.get_chunk_info_by_coord((8, 0, 0, 0)).byte_offset
    content = bytearray(source.read_bytes())
    content[place + 5] ^= 1
    source.write_bytes(content)
    text = error_of(source, tmp_path / "rec")
    assert "set.h5, episode 1: view pixels, row 2:" in text and "is damaged" in text
    report = import_recording(source, tmp_path / "lenient", unit="radians", fps=FPS, lenient=True)
    assert (report.rows, report.frames) == (ROWS, {"pixels": 6 + 2 + 5})


def test_chunks_that_were_never_written_are_no_black_pictures(tmp_path: Path) -> None:
    for name, rows in (("pixels", pictures()), ("qpos", joints())):
        source = write(tmp_path / f"{name}.h5", {name: None})
        with h5py.File(source, "a") as file:
            data = file.create_dataset(name, rows.shape, rows.dtype, chunks=(1, *rows.shape[1:]))
            data[:9] = rows[:9]
        text = error_of(source, tmp_path / "rec")
        assert f"{name}.h5, {name}: stores 9 of its 15 chunks: the rest was never written" in text


def test_damaged_files_raise_input_errors_and_nothing_else(tmp_path: Path) -> None:
    content = write(tmp_path / "whole.h5").read_bytes()
    rng = np.random.default_rng(5)
    outcomes = {"imported": 0, "refused": 0}
    for trial in range(60):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), 40):
            damaged[place] ^= int(rng.integers(1, 256))
        source = tmp_path / f"set{trial}.h5"
        source.write_bytes(damaged)
        try:
            import_recording(source, tmp_path / f"rec{trial}", unit="radians", fps=FPS, lenient=trial % 2 > 0)
            outcomes["imported"] += 1
        except InputError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 0


# -- files that are hostile --------------------------------------------------------------------------------


def _soft(file: h5py.File, outside: Path) -> None:
    file["goal"] = h5py.SoftLink("/pixels")


def _external_link(file: h5py.File, outside: Path) -> None:
    file["goal"] = h5py.ExternalLink(str(outside), "/pixels")


def _virtual(file: h5py.File, outside: Path) -> None:
    layout = h5py.VirtualLayout((ROWS, 12, 16, 3), np.uint8)
    layout[:] = h5py.VirtualSource(str(outside), "pixels", (ROWS, 12, 16, 3))
    file.create_virtual_dataset("goal", layout)


def _external_storage(file: h5py.File, outside: Path) -> None:
    file.create_dataset("goal", (ROWS, 12, 16, 3), np.uint8, external=[(str(outside), 0, ROWS * 576)])


@pytest.mark.parametrize(
    ("reach", "words"),
    [
        (_soft, "is a soft or external link, which is refused"),
        (_external_link, "is a soft or external link, which is refused"),
        (_virtual, "stores its data outside the file, which is refused"),
        (_external_storage, "stores its data outside the file, which is refused"),
    ],
)
def test_what_reaches_outside_the_file_is_refused(tmp_path: Path, reach: Any, words: str) -> None:
    outside, source = write(tmp_path / "outside.h5"), write(tmp_path / "set.h5")
    with h5py.File(source, "a") as file:
        reach(file, outside)
    with pytest.raises(InputError, match="goal") as error:
        import_recording(source, tmp_path / "rec", unit="radians", fps=FPS, lenient=True)
    assert words in str(error.value)


def test_sizes_are_bounded_before_anything_is_allocated(tmp_path: Path) -> None:
    claims = {
        "pixels": (
            (4, 1 << 16, 1 << 16, 3),
            np.uint8,
            (1, 64, 64, 3),
            "claims pictures of 65536x65536 pixels",
        ),
        "qpos": (
            (10**9, 2),
            np.float64,
            (100, 2),
            "stores 0 of its 10,000,000 chunks|claims .* and stores none",
        ),
        "ep_len": ((1 << 23,), np.int32, (1 << 23,), "lists 8,388,608 numbers"),
    }
    for name, (shape, dtype, chunks, words) in claims.items():
        source = write(tmp_path / f"{name}.h5", {name: None})
        with h5py.File(source, "a") as file:
            data = file.create_dataset(name, shape, dtype, chunks=chunks, compression="gzip")
            if name == "ep_len":
                data[:] = 0
        with pytest.raises(InputError, match=f"{name}.*({words})"):
            import_recording(source, tmp_path / "rec", unit="radians", fps=FPS)


def test_an_episode_longer_than_is_read_at_once(tmp_path: Path) -> None:
    rows = 17_000_000  # of two columns: 272 MB
    source = tmp_path / "set.h5"
    with h5py.File(source, "w") as file:
        file.create_dataset("qpos", (rows, 2), np.float32, chunks=(1 << 20, 2), compression="gzip")[-1] = 1
        for at in range(0, rows, 1 << 20):
            file["qpos"][at] = 1  # touches each chunk
        file["ep_len"], file["ep_offset"] = np.array([rows]), np.array([0])
    assert "qpos: has 17,000,000 rows in one episode, more than is read at once" in error_of(
        source, tmp_path / "rec"
    )


# -- other formats -----------------------------------------------------------------------------------------


def _aloha(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["observations/qpos"], file["action"] = joints(4, 14), joints(4, 14)
    return path


def test_formats_do_not_take_each_others_files(tmp_path: Path) -> None:
    aloha = _aloha(tmp_path / "aloha/episode_0.hdf5")
    assert isinstance(open_source(aloha.parent, FPS), AlohaSet)
    assert "is one ALOHA-style episode - give the folder" in error_of(aloha, tmp_path / "rec")
    own = make_recording(tmp_path / "own", episodes=1, frames=3)
    episode = own.folder / "episodes/000000.h5"
    assert "is one episode of a recording of our own" in error_of(episode, tmp_path / "rec")
    for folder in (own.folder, episode.parent):
        assert "is in no format that can be imported" in error_of(folder, tmp_path / "rec")
    (tmp_path / "notes.txt").write_text("not a set")
    assert "is in no format that can be imported" in error_of(tmp_path / "notes.txt", tmp_path / "rec")
    world = write(tmp_path / "world/reacher.hdf5")  # ALOHA's suffix
    assert imported(world.parent, tmp_path / "rec").info.source["format"].startswith("LeWM")  # type: ignore[index]
    text = error_of(aloha.parent, tmp_path / "rec2", joints_from="qpos")
    assert "--joints-from: is for LeWM's and stable-worldmodel's HDF5" in text


# -- the way there -----------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from hardware.episode_writer import EpisodeWriter
from hardware.importers import import_recording
frame, count = EpisodeWriter.frame, [0]
def killing(self, *arguments):
    count[0] += 1
    if count[0] == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return frame(self, *arguments)
EpisodeWriter.frame = killing
import_recording(sys.argv[1], sys.argv[2], unit="radians", fps=10.0)
"""


def test_an_import_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    source = write(tmp_path / "set.h5")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(source), str(tmp_path / "rec")], env=environment, timeout=120
    )
    assert ended.returncode == -signal.SIGKILL
    assert Recording.open(tmp_path / "rec").episode_indices == [0]
    whole = imported(source, tmp_path / "whole")
    again = imported(source, tmp_path / "rec")
    assert [line.sha256 for line in again.manifest] == [line.sha256 for line in whole.manifest]
    with h5py.File(source, "a") as file:
        file["ep_len"][2] = 4
    assert "was started with other settings" in error_of(source, tmp_path / "rec")


READING = """
import resource, sys
from pathlib import Path
from hardware.importers import open_source
from hardware.importers.source import Disagreements
source = open_source(Path(sys.argv[1]), 10.0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = sum(image.shape == (256, 256, 3) for image in source.clip(0, "pixels", Disagreements("")))
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_holds_some_pictures_and_not_the_episode(tmp_path: Path) -> None:
    rows = 1500  # 295 MB of pictures
    source = tmp_path / "long.h5"
    with h5py.File(source, "w") as file:
        file.create_dataset("qpos", data=joints(rows))
        shape = (rows, 256, 256, 3)
        data = file.create_dataset(
            "pixels", shape, np.uint8, chunks=(10, 256, 256, 3), **hdf5plugin.Zstd(clevel=1)
        )
        for at in range(0, rows, 100):
            data[at : at + 100] = np.full((100, 256, 256, 3), at % 251, np.uint8)
        file["ep_len"], file["ep_offset"] = np.array([rows]), np.array([0])
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", READING, str(source)]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    count, grown = map(int, said.stdout.split())
    unit = 1 if sys.platform == "darwin" else 1024
    assert count == rows and grown * unit < 80e6
