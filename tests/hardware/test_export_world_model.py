"""A recording as the HDF5 that LeWM and stable-worldmodel read: its layout, its rows, and the way back."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from export_recordings import hand_made, moving_pattern
from recordings import PERIOD_NS, START_NS, make_recording, scene, small_info

from hardware import InputError, Recording, RecordingWriter, View
from hardware.alignment import align, held_actions
from hardware.exporters import export_world_model, world_model_hdf5
from hardware.exporters.staging import MARKER
from hardware.frames import resize
from hardware.importers import import_recording


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return make_recording(tmp_path_factory.mktemp("export") / "rec", episodes=3, frames=24)


def frames_of(recording: Recording, index: int, view: str, anchor: str = "front") -> np.ndarray:
    """uint8 (n, H, W, 3): the frames of a view at the rows of an episode."""
    aligned = align(recording.episode(index), [anchor, *({"front", "side"} - {anchor})])
    return np.stack(list(aligned.episode.frames(view, aligned.frame_index[view])))


# -- the layout --------------------------------------------------------------------------------------------


def test_columns_rows_and_dtypes_are_those_of_the_format(recording: Recording, tmp_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    to = tmp_path / "set.h5"
    report = export_world_model(recording, to, progress=lambda *call: calls.append(call))
    assert (report.rows, report.episodes, report.dropped, report.uneven) == (72, [0, 1, 2], {}, 0)
    assert (report.columns, report.rate_hz) == ({"pixels": "front", "side": "side"}, 10.0)
    assert report.bytes == to.stat().st_size
    assert calls[-1] == (144, 144, "view side") and calls == sorted(calls)
    assert [path.name for path in tmp_path.iterdir()] == ["set.h5"]
    with h5py.File(to, "r", swmr=True) as file:  # as the reader opens it
        dtypes = {name: (data.dtype.name, data.shape) for name, data in file.items()}
        assert dtypes == {
            "pixels": ("uint8", (72, 32, 32, 3)),
            "side": ("uint8", (72, 32, 32, 3)),
            "action": ("float32", (72, 2)),
            "qpos": ("float64", (72, 2)),
            "proprio": ("float32", (72, 2)),
            "observation": ("float32", (72, 2)),
            "ep_len": ("int32", (3,)),
            "ep_offset": ("int64", (3,)),
            "ep_idx": ("int64", (72,)),
            "step_idx": ("int64", (72,)),
        }
        assert file["ep_len"][:].tolist() == [24, 24, 24] and file["ep_offset"][:].tolist() == [0, 24, 48]
        assert file["ep_idx"][:].tolist() == [number for number in range(3) for _ in range(24)]
        assert file["step_idx"][:].tolist() == list(range(24)) * 3
        assert json.loads(file["qpos"].attrs["names"]) == ["joint0", "joint1"]
        assert json.loads(file["action"].attrs["units"]) == ["rad", "rad"]
        assert file.attrs["manifest_sha256"] == recording.manifest_sha256
        assert file.attrs["episodes"] == "0-2" and file.attrs["fps"] == 10.0
        assert file.id.get_create_plist().get_version()[0] == 3  # the superblock that HDF5 1.10 to 2 read
        assert file["pixels"].id.get_create_plist().get_filter(0)[0] == 32015  # Zstd


def test_rows_hold_the_joints_and_the_action_in_force_at_their_frames(
    recording: Recording, tmp_path: Path
) -> None:
    export_world_model(recording, tmp_path / "set.h5")
    with h5py.File(tmp_path / "set.h5") as file:
        for index in range(3):
            rows = slice(24 * index, 24 * index + 24)
            aligned = align(recording.episode(index), ["front", "side"])
            log = recording.episode(index).actions()
            assert log is not None
            held = held_actions(aligned.time_ns, log.time_ns, log.target).astype(np.float32)
            np.testing.assert_array_equal(file["qpos"][rows], aligned.position)
            for name in ("proprio", "observation"):
                np.testing.assert_array_equal(file[name][rows], aligned.position.astype(np.float32))
            np.testing.assert_array_equal(file["action"][rows][:-1], held[:-1])
            assert np.isnan(file["action"][rows][-1]).all()
            for name, view in (("pixels", "front"), ("side", "side")):
                np.testing.assert_array_equal(file[name][rows], frames_of(recording, index, view))


def test_a_window_read_by_frameskip_has_each_action_between_its_frames(
    recording: Recording, tmp_path: Path
) -> None:
    """What the published reader does: every frameskip-th frame, and all actions, joined step by step."""
    export_world_model(recording, tmp_path / "set.h5", views=["front"])
    frameskip, steps, episode, start = 5, 4, 1, 2
    with h5py.File(tmp_path / "set.h5", "r", swmr=True) as file:
        first = file["ep_offset"][episode] + start
        span = slice(first, first + frameskip * steps)
        frames = file["pixels"][span][::frameskip]
        actions = file["action"][span].reshape(steps, -1)
    assert frames.shape == (4, 32, 32, 3) and actions.shape == (4, 10)
    aligned, log = align(recording.episode(1), ["front"]), recording.episode(1).actions()
    assert log is not None
    held = held_actions(aligned.time_ns, log.time_ns, log.target).astype(np.float32)
    images = list(recording.episode(1).frames("front"))
    for step in range(steps):
        row = start + step * frameskip
        np.testing.assert_array_equal(frames[step], images[row])
        np.testing.assert_array_equal(actions[step], held[row : row + frameskip].ravel())


def test_the_anchor_is_pixels_and_frames_are_resized(recording: Recording, tmp_path: Path) -> None:
    report = export_world_model(recording, tmp_path / "set.h5", anchor="side", episodes=[2, 0], image_size=20)
    assert report.columns == {"pixels": "side", "front": "front"} and report.episodes == [2, 0]
    with h5py.File(tmp_path / "set.h5") as file:
        expected = [resize(image, (20, 20)) for image in frames_of(recording, 2, "side", "side")]
        np.testing.assert_array_equal(file["pixels"][:24], np.stack(expected))
        assert file["front"].shape == (48, 20, 20, 3)


def test_views_of_different_sizes_keep_theirs_and_chunks_reach_across_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world_model_hdf5, "CHUNK_BYTES", 7 * 96 * 64 * 3)
    recording = moving_pattern(tmp_path / "rec", episodes=2, frames=10)  # 10 and 11
    report = export_world_model(recording, tmp_path / "set.h5")
    with h5py.File(tmp_path / "set.h5") as file:
        assert file["pixels"].shape == (21, 64, 96, 3) and file["pixels"].chunks == (7, 64, 96, 3)
        assert file["wrist"].shape == (21, 80, 64, 3)
        shown = [image for index in (0, 1) for image in recording.episode(index).frames("front")]
        np.testing.assert_array_equal(file["pixels"][:], np.stack(shown))
        assert "action" not in file
    assert any("no action: the recording holds none" in line for line in report.lines())


def test_rows_before_the_first_action_and_in_a_gap_are_dropped_and_told(tmp_path: Path) -> None:
    recording = hand_made(tmp_path / "rec", action_at_ms=[150], hole=(350, 640))
    report = export_world_model(recording, tmp_path / "set.h5")
    assert report.dropped == {"joints": 3, "actions": 2} and report.uneven == 1 and report.rows == 7
    text = "\n".join(report.lines())
    assert "2 rows dropped: before the first action" in text
    assert "3 rows dropped: no joint samples around the frame's time" in text
    assert "1 steps are longer than 1.5 periods: rows are missing there" in text
    with h5py.File(tmp_path / "set.h5") as file:
        images = list(recording.episode(0).frames("front"))
        expected = np.stack([images[number] for number in (2, 3, 7, 8, 9, 10, 11)])
        np.testing.assert_array_equal(file["pixels"][:], expected)
        assert np.isfinite(file["action"][:-1]).all() and np.isnan(file["action"][-1]).all()


# -- and back ----------------------------------------------------------------------------------------------


def test_the_way_there_and_back_keeps_frames_joints_actions_and_lengths(
    recording: Recording, tmp_path: Path
) -> None:
    export_world_model(recording, tmp_path / "set.h5")
    import_recording(tmp_path / "set.h5", tmp_path / "again", unit="radians")
    again = Recording.open(tmp_path / "again")
    info = again.info
    assert (info.joint_names, info.view_names) == (["joint0", "joint1"], ["front", "side"])
    assert info.actions is not None and (info.actions.unit, info.actions.meaning) == ("rad", "target")
    assert info.joints_hz == 10.0
    for index in range(3):
        aligned = align(recording.episode(index), ["front", "side"])
        episode = again.episode(index)
        log, sent = episode.joints(), episode.actions()
        original = recording.episode(index).actions()
        assert sent is not None and original is not None
        np.testing.assert_array_equal(log.position, aligned.position)
        held = held_actions(aligned.time_ns, original.time_ns, original.target)
        np.testing.assert_array_equal(sent.target, held[:-1].astype(np.float32))
        np.testing.assert_array_equal(sent.time_ns, log.time_ns[:-1])
        for view in ("front", "side"):
            np.testing.assert_array_equal(
                np.stack(list(episode.frames(view))), frames_of(recording, index, view)
            )
    # a second time nothing is left to be rounded: the same columns, byte for byte
    export_world_model(again, tmp_path / "twice.h5")
    with h5py.File(tmp_path / "set.h5") as one, h5py.File(tmp_path / "twice.h5") as other:
        assert set(one) == set(other)
        for name in one:
            np.testing.assert_array_equal(one[name][:], other[name][:])


def test_actions_between_rows_without_any_are_at_their_own_rows(tmp_path: Path) -> None:
    """An imported episode whose first row has no action: actions pair with rows by time, not by number."""
    values = np.arange(12, dtype=np.float32).reshape(6, 2) / 10
    values[[0, 5]] = np.nan
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["pixels"] = np.random.default_rng(0).integers(0, 255, (6, 8, 8, 3), np.uint8)
        file["qpos"], file["action"] = np.zeros((6, 2)), values
        file["ep_len"], file["ep_offset"] = np.array([6]), np.array([0])
    import_recording(tmp_path / "set.h5", tmp_path / "rec", unit="radians", fps=10)
    report = export_world_model(tmp_path / "rec", tmp_path / "again.h5")
    assert report.dropped == {"actions": 1}
    with h5py.File(tmp_path / "again.h5") as file:
        np.testing.assert_array_equal(file["action"][:], values[1:])


# -- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"views": []}, "there are none"),
        ({"anchor": "top"}, "is not in the recording - its views: front, side"),
        ({"episodes": [7]}, "episode 7: does not exist"),
        ({"image_size": 0}, "--image-size: 0 is no size of a picture"),
        ({"image_size": 99_999}, "--image-size: 99999 is no size of a picture"),
        ({"to": "{rec}"}, "already exists"),
        ({"to": "{rec}/set.h5"}, "lies inside the recording"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    recording: Recording, tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    options = dict(options)
    to = str(options.pop("to", tmp_path / "set.h5")).format(rec=recording.folder)
    with pytest.raises(InputError, match=words):
        export_world_model(recording.folder, to, **options)
    assert not any(tmp_path.iterdir())


def test_a_view_named_as_another_column_can_only_be_pixels(tmp_path: Path) -> None:
    views = tuple(
        View(name=name, width=32, height=32, fps=10, encoding="rgb8") for name in ("front", "observation")
    )
    with RecordingWriter.create(tmp_path / "rec", small_info(views=views)) as writer:
        with writer.episode(0) as episode:
            samples = START_NS + PERIOD_NS * np.arange(60)
            episode.joints(samples, np.zeros((60, 2)))
            episode.actions(samples, np.zeros((60, 2)))
            for number in range(5):
                for view in views:
                    episode.frame(view.name, START_NS + 100_000_000 * number, number, scene(np.zeros(2)))
    with pytest.raises(
        InputError, match=r"view observation: has the name of another column .* --anchor obser"
    ):
        export_world_model(tmp_path / "rec", tmp_path / "set.h5")
    report = export_world_model(tmp_path / "rec", tmp_path / "set.h5", anchor="observation")
    assert report.columns == {"pixels": "observation", "front": "front"}


# -- whole or not at all -----------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 20_000])
def test_a_full_disk_leaves_nothing(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    from hardware import journaled_file

    written, write = [0], journaled_file.pwrite_all

    def until_full(descriptor: int, data: Any, offset: int) -> None:
        written[0] += len(memoryview(data).cast("B"))
        if written[0] > after:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(descriptor, data, offset)

    monkeypatch.setattr(journaled_file, "pwrite_all", until_full)
    with pytest.raises(
        InputError, match=r"set\.h5: the disk is full - free space and start again: nothing was"
    ):
        export_world_model(recording, tmp_path / "set.h5")
    assert not any(tmp_path.iterdir())


def test_too_little_space_is_told_beforehand(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = 72 * 2 * 32 * 32 * 3
    monkeypatch.setattr(world_model_hdf5, "free_bytes", lambda path: 10_000)
    with pytest.raises(
        InputError, match=r"would take about .* GB, and 0.0 GB are free - free space, or export"
    ):
        export_world_model(recording, tmp_path / "set.h5")
    assert not any(tmp_path.iterdir())
    monkeypatch.setattr(world_model_hdf5, "free_bytes", lambda path: raw // 2)  # compressed it fits
    report = export_world_model(recording, tmp_path / "set.h5")
    assert report.bytes < raw // 2


def test_an_interrupt_leaves_nothing_and_a_killed_export_is_cleared_away(
    recording: Recording, tmp_path: Path
) -> None:
    def interrupt(done: int, total: int, what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_world_model(recording, tmp_path / "set.h5", progress=interrupt)
    assert not any(tmp_path.iterdir())
    left = tmp_path / "set.h5.partial"
    left.mkdir()
    (left / MARKER).touch()
    (left / "dataset").write_bytes(b"half a file")
    export_world_model(recording, tmp_path / "set.h5")
    assert [path.name for path in tmp_path.iterdir()] == ["set.h5"]
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "set.h5").stat().st_mode & 0o777 == 0o666 & ~mask
