from __future__ import annotations

import errno
import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from watched_disk import WatchedDisk

from hardware import InputError, Recording, RecordingWriter
from hardware.episode_writer import EpisodeWriter
from hardware.journal import journal_path
from hardware.recovery import recover, unfinished
from tests.recordings import make_recording, small_info

REPOSITORY = Path(__file__).parents[2]
IN_ORDER = ["everything was in order"]


def append(episode: EpisodeWriter, rows: int, first: int = 0) -> None:
    """`rows` rows, 10 ms apart from the episode's start on, and a frame of each view with each."""
    start = episode._clocks["start_monotonic_ns"]
    for number in range(first, first + rows):
        time_ns = start + 10_000_000 * number
        episode.joints([time_ns], np.full((1, 2), number))
        episode.actions([time_ns], np.full((1, 2), number))
        episode.frame("front", time_ns, number, np.full((32, 32, 3), number % 256, np.uint8))
        episode.frame("side", time_ns, number, bytes([number % 256]) * (number + 1))


def cut_off(folder: Path, index: int = 0, committed: int = 30, lost: int = 7) -> Path:
    """A recording whose episode `index` was killed `lost` rows after its last commit."""
    writer = RecordingWriter.resume(folder, small_info())
    with writer, pytest.raises(ZeroDivisionError), writer.episode(index) as episode:
        append(episode, committed)
        if committed:
            episode.commit()
        append(episode, lost, committed)
        raise ZeroDivisionError
    return folder / f"episodes/{index:06d}.h5.partial"


def tree(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below `folder`."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_cut_off_episode_is_sealed_as_of_its_last_commit(tmp_path: Path) -> None:
    make_recording(tmp_path / "r", episodes=1, frames=4)
    before = tree(tmp_path / "r")
    cut_off(tmp_path / "r", 1)
    assert unfinished(tmp_path / "r")
    said: list[tuple[int, int, str]] = []
    report = recover(tmp_path / "r", lambda *progress: said.append(progress))
    assert (report.adopted, report.empty, report.unreadable, report.changed) == ([], [], [], {})
    left = report.salvaged[1]
    assert (left.rows, left.frames) == (30, {"front": 30, "side": 30}) and left.seconds == pytest.approx(0.29)
    assert [done for done, _, _ in said] == [1, 2] and {total for _, total, _ in said} == {2}
    assert report.lines() == [
        "episode 1 was cut off and is sealed: 0.3 s, 30 joint rows, frames front 30, side 30"
    ]
    recording = Recording.open(tmp_path / "r")
    episode = recording.episode(1)
    episode.verify()
    clocks = episode.clocks()
    assert clocks["end_monotonic_ns"] == episode.joints().time_ns[-1]
    assert clocks["end_monotonic_ns"] - clocks["start_monotonic_ns"] == 290_000_000
    assert clocks["end_wall_ns"] - clocks["start_wall_ns"] == 290_000_000
    (fault,) = episode.faults()
    assert fault["kind"] == "recovered" and "ends with its last commit, 0.29 s in" in fault["message"]
    assert recording.manifest[1].faults == {"recovered": 1}
    assert [image[0, 0, 0] for image in episode.frames("front")] == list(range(30))
    after = tree(tmp_path / "r")
    assert after["episodes/000000.h5"] == before["episodes/000000.h5"]
    assert set(after) == {*before, "episodes/000001.h5"} and not unfinished(tmp_path / "r")
    assert recover(tmp_path / "r").lines() == IN_ORDER and tree(tmp_path / "r") == after


def test_the_recording_goes_on_after_it(tmp_path: Path) -> None:
    cut_off(tmp_path / "r")
    recover(tmp_path / "r")
    with RecordingWriter.resume(tmp_path / "r", small_info()) as writer:
        assert writer.sealed == {0}
        with writer.episode(1) as episode:
            append(episode, 3)
    assert Recording.open(tmp_path / "r").episode_indices == [0, 1]


@pytest.mark.parametrize("rows", [0, 9])
def test_an_episode_without_a_committed_row_is_removed(tmp_path: Path, rows: int) -> None:
    make_recording(tmp_path / "r", episodes=1, frames=4)
    cut_off(tmp_path / "r", 1, committed=0, lost=rows)
    assert recover(tmp_path / "r").lines() == ["episode 1 held nothing yet and is removed"]
    assert os.listdir(tmp_path / "r/episodes") == ["000000.h5"]


def test_an_empty_but_committed_episode_is_removed(tmp_path: Path) -> None:
    writer = RecordingWriter.create(tmp_path / "r", small_info())
    with writer, pytest.raises(ZeroDivisionError), writer.episode(0) as episode:
        episode.fault("bus_silent", "joints", "no answer")
        episode.commit()
        raise ZeroDivisionError
    assert recover(tmp_path / "r").empty == [0] and os.listdir(tmp_path / "r/episodes") == []


def test_a_torn_line_is_cut_and_its_whole_file_adopted(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", episodes=3, frames=4)
    path = tmp_path / "r/manifest.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    assert unfinished(tmp_path / "r")
    report = recover(tmp_path / "r")
    assert report.cut_torn_line and report.adopted == [2]
    assert path.read_bytes() == whole and Recording.open(tmp_path / "r").manifest == recording.manifest
    path.unlink()
    assert unfinished(tmp_path / "r") and recover(tmp_path / "r").adopted == [0, 1, 2]
    assert path.read_bytes() == whole


def test_sealed_files_that_changed_are_told_and_left_alone(tmp_path: Path) -> None:
    make_recording(tmp_path / "r", episodes=3, frames=4)
    damaged = bytearray((tmp_path / "r/episodes/000001.h5").read_bytes())
    damaged[3000] ^= 1
    (tmp_path / "r/episodes/000001.h5").write_bytes(damaged)
    (tmp_path / "r/episodes/000002.h5").unlink()
    before = tree(tmp_path / "r")
    report = recover(tmp_path / "r")
    assert list(report.changed) == [1, 2] and "has changed since it was sealed" in report.changed[1]
    assert "is not there" in report.changed[2] and tree(tmp_path / "r") == before
    assert report.lines()[0].startswith("episode 1 has changed since it was sealed")


@pytest.mark.parametrize("name", ["000001.h5", "000001.h5.partial"])
def test_what_cannot_be_opened_is_set_aside_and_never_deleted(tmp_path: Path, name: str) -> None:
    make_recording(tmp_path / "r", episodes=1, frames=4)
    path = tmp_path / "r/episodes" / name
    path.with_name(f"{name}.unreadable").write_bytes(b"of an earlier time")
    path.write_bytes(b"\x89HDF\r\n\x1a\n but no more than that")
    report = recover(tmp_path / "r")
    assert report.unreadable == [path.with_name(f"{name}.unreadable.1")]
    assert report.unreadable[0].read_bytes().endswith(b"no more than that") and not path.exists()
    assert path.with_name(f"{name}.unreadable").read_bytes() == b"of an earlier time"
    assert "set aside" in report.lines()[0] and recover(tmp_path / "r").lines() == IN_ORDER


def test_a_file_that_reaches_outside_itself_is_set_aside(tmp_path: Path) -> None:
    def reach_out(file: h5py.File) -> None:
        file["views/front/more"] = h5py.ExternalLink("elsewhere.h5", "/data")

    without_a_journal(tmp_path / "r", reach_out)
    assert len(recover(tmp_path / "r").unreadable) == 1


def test_another_episodes_file_is_set_aside(tmp_path: Path) -> None:
    make_recording(tmp_path / "r", episodes=1, frames=4)
    partial = cut_off(tmp_path / "r", 1)
    shutil.copy(partial, tmp_path / "r/episodes/000005.h5.partial")
    shutil.copy(partial, tmp_path / "r/episodes/000000.h5.partial")  # of one that is sealed
    report = recover(tmp_path / "r")
    assert list(report.salvaged) == [1] and len(report.unreadable) == 2
    Recording.open(tmp_path / "r").episode(0).verify()


def without_a_journal(folder: Path, change: Callable[[h5py.File], None]) -> None:
    """An episode as an HDF5 file without a journal is left: `change` tears it."""
    partial = cut_off(folder, lost=0)
    journal_path(partial).unlink()
    with h5py.File(partial, "r+") as file:
        change(file)


def shorten(name: str, rows: int) -> Callable[[h5py.File], None]:
    return lambda file: file[name].resize(rows, axis=0)


@pytest.mark.parametrize(
    "change, rows, frames, said",
    [
        (shorten("joints/position", 20), 20, (30, 30), "10 of 30 rows of joints were damaged"),
        (shorten("actions/time_ns", 1), 30, (30, 30), "29 of 30 rows of actions"),
        (shorten("views/front/frames", 11), 30, (11, 30), "19 of 30 rows of views/front"),
        (shorten("views/side/data", 22), 30, (30, 6), "24 of 30 rows of views/side"),  # 21 are six whole ones
        (shorten("views/side/offset", 0), 30, (30, 0), "30 of 30 rows of views/side"),
        (shorten("faults", 5), 30, (30, 30), ""),
    ],
)
def test_streams_are_trimmed_to_rows_that_are_whole(
    tmp_path: Path, change: Any, rows: int, frames: tuple[int, int], said: str
) -> None:
    def with_faults(file: h5py.File) -> None:
        text = b'{"time_ns": 1, "kind": "late", "stream": "joints", "message": "m"}\n{"time_ns": '
        data = np.frombuffer(text, np.uint8)
        file.create_dataset("faults", data=data, maxshape=(None,), chunks=(4096,), fletcher32=True)
        change(file)

    without_a_journal(tmp_path / "r", with_faults)
    left = recover(tmp_path / "r").salvaged[0]
    assert (left.rows, left.frames["front"], left.frames["side"]) == (rows, *frames)
    episode = Recording.open(tmp_path / "r").episode(0)
    joints, actions = episode.joints(), episode.actions()
    assert actions is not None and len(actions.time_ns) == len(actions.target)
    assert np.array_equal(joints.position[:, 0], np.arange(rows))
    assert [image[0, 0, 0] for image in episode.frames("front")] == list(range(frames[0]))
    kinds = [fault["kind"] for fault in episode.faults()]
    assert kinds == (["recovered"] if said == "" else ["late", "recovered"])
    assert said in episode.faults()[-1]["message"]


def test_a_damaged_chunk_ends_its_stream(tmp_path: Path) -> None:
    """1200 rows are three chunks; the second is damaged."""
    partial = cut_off(tmp_path / "r", committed=2, lost=0)
    journal_path(partial).unlink()
    with h5py.File(partial, "r+") as file:
        for name in ("time_ns", "position"):
            data = file[f"joints/{name}"]
            data.resize(1200, axis=0)
            data[...] = np.arange(1200)[(...,) + (None,) * (data.ndim - 1)]
        place = file["joints/position"].id.get_chunk_info(1).byte_offset
    content = bytearray(partial.read_bytes())
    content[place + 100] ^= 1
    partial.write_bytes(content)
    assert recover(tmp_path / "r").salvaged[0].rows == 512
    assert np.array_equal(Recording.open(tmp_path / "r").episode(0).joints().position[:, 0], np.arange(512))


def test_an_episode_whole_but_for_its_name_is_sealed_as_it_is(tmp_path: Path) -> None:
    """Killed between the last byte and the renaming: nothing was lost, so there is no fault."""
    recording = make_recording(tmp_path / "r", episodes=1, frames=4)
    path = recording.episode(0).path
    before = recording.manifest
    os.rename(path, path.with_name("000000.h5.partial"))
    (tmp_path / "r/manifest.jsonl").unlink()
    assert recover(tmp_path / "r").salvaged[0].rows == before[0].joint_rows
    assert Recording.open(tmp_path / "r").episode(0).faults() == []


def test_leftovers_that_belong_to_nothing_are_removed(tmp_path: Path) -> None:
    make_recording(tmp_path / "r", episodes=1, frames=4)
    before = tree(tmp_path / "r")
    (tmp_path / "r/thumbnails").mkdir()
    for name in (
        "recording.yaml.partial",
        "thumbnails/side.jpg.partial",
        "episodes/000000.h5.partial.journal",
        "episodes/000003.h5.partial.journal.partial",
    ):
        (tmp_path / "r" / name).write_bytes(b"half")
    assert recover(tmp_path / "r").lines() == IN_ORDER and tree(tmp_path / "r") == before


def test_a_recording_killed_at_birth_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "r/episodes").mkdir(parents=True)
    (tmp_path / "r/recording.yaml.partial").write_bytes(b"schema: joi")
    assert not unfinished(tmp_path / "r") and recover(tmp_path / "r").lines() == IN_ORDER
    assert len(make_recording(tmp_path / "r", episodes=1, frames=4).manifest) == 1


def test_what_is_no_recording_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    assert not unfinished(tmp_path)
    with pytest.raises(InputError, match=r"holds no recording\.yaml"):
        recover(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        recover(tmp_path / "x")


def test_a_running_recorder_keeps_its_folder(tmp_path: Path) -> None:
    with RecordingWriter.create(tmp_path / "r", small_info()) as writer, writer.episode(0) as episode:
        append(episode, 5)
        episode.commit()
        with pytest.raises(InputError, match="is being written by another process"):
            recover(tmp_path / "r")
        append(episode, 5, 5)
    assert recover(tmp_path / "r").lines() == IN_ORDER
    assert Recording.open(tmp_path / "r").manifest[0].joint_rows == 10


def test_a_read_only_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root passes every permission, so the system's answer is made here."""
    cut_off(tmp_path / "r")
    before = tree(tmp_path / "r")
    with monkeypatch.context() as patch:
        real = os.open

        def read_only(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return real(path, flags, *rest, **more)

        patch.setattr(os, "open", read_only)
        with pytest.raises(InputError, match=r"partial: cannot be written: Read-only file system"):
            recover(tmp_path / "r")
    assert tree(tmp_path / "r") == before
    assert recover(tmp_path / "r").salvaged[0].rows == 30


def test_a_full_disk_is_one_clear_error_and_recovery_goes_on_with_room(tmp_path: Path) -> None:
    partial = cut_off(tmp_path / "r", committed=300)
    size = partial.stat().st_size

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 40_000, size - 40_000))

    code = "import sys; from hardware.recovery import recover; recover(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "r"],
        cwd=REPOSITORY,
        preexec_fn=limit,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "the disk is full" in done.stderr.splitlines()[-1], done.stderr
    assert recover(tmp_path / "r").salvaged[0].rows == 300


def test_recovery_may_be_killed_at_any_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "r"
    make_recording(folder, episodes=2, frames=4)
    sealed = tree(folder)["episodes/000000.h5"]
    partial = cut_off(folder, 2)
    journal_path(partial).unlink()
    with h5py.File(partial, "r+") as file:
        file["joints/position"].resize(25, axis=0)
    lines = (folder / "manifest.jsonl").read_bytes()
    (folder / "manifest.jsonl").write_bytes(lines[:-9])
    moments: list[Path] = []

    def look(number: int) -> None:
        moments.append(tmp_path / str(number))
        shutil.copytree(folder, moments[-1])

    with monkeypatch.context() as patch:
        WatchedDisk(patch, folder / "episodes", before_call=look)
        recover(folder)
    moments.append(folder)
    assert len(moments) > 15
    for name in ("fsync", "fdatasync"):  # no power is lost from here on
        monkeypatch.setattr(os, name, lambda _: None)
    for moment in moments:
        recover(moment)
        assert recover(moment).lines() == IN_ORDER
        recording = Recording.open(moment)
        assert recording.episode_indices == [0, 1, 2] and tree(moment)["episodes/000000.h5"] == sealed
        for index in (0, 1, 2):
            recording.episode(index).verify()
        assert recording.manifest[2].joint_rows == 25 and recording.manifest[2].faults == {"recovered": 1}
        assert set(os.listdir(moment / "episodes")) == {f"00000{index}.h5" for index in range(3)}
