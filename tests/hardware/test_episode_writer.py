from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from watched_disk import WatchedDisk

import hardware.episode_writer
from hardware import Episode, InputError, Recording, RecordingInfo, RecordingWriter, View
from hardware.episode_writer import MAX_UNCOMMITTED_BYTES, EpisodeWriter
from hardware.journaled_file import JournaledFile
from hardware.recovery import recover
from tests.recordings import small_info

VIEWS = (
    View(name="front", width=32, height=32, fps=10, encoding="rgb8"),
    View(name="side", width=32, height=32, fps=10, encoding="jpeg"),
)


def picture(number: int) -> np.ndarray:
    return np.random.default_rng([3, number]).integers(0, 256, (32, 32, 3), dtype=np.uint8)


def jpeg(number: int) -> bytes:
    rng = np.random.default_rng([4, number])
    return rng.bytes(int(rng.integers(1, 3000)))


def write(episode: EpisodeWriter, rows: int, first: int = 0) -> None:
    """Rows of all streams, as a live run gives them: time goes on from row to row."""
    for number in range(first, first + rows):
        time_ns = 1_000 + number * 1_000
        episode.joints([time_ns], np.full((1, 2), number), velocity=np.full((1, 2), -number))
        episode.actions([time_ns], np.full((1, 2), number + 0.5))
        episode.frame("front", time_ns, number, picture(number))
        episode.frame("side", time_ns, number, jpeg(number))


def check(episode: Episode, rows: int | None = None) -> int:
    """Every stream is a run of rows from the first on; at least `rows` where given. Returns the fewest."""
    joints, actions = episode.joints(), episode.actions()
    n = len(joints.time_ns)
    assert np.array_equal(joints.position[:, 1], np.arange(n)) and joints.velocity is not None
    assert np.array_equal(joints.velocity[:, 0], -np.arange(n))
    assert np.array_equal(joints.time_ns, 1_000 + 1_000 * np.arange(n))
    counts = [n, 0 if actions is None else len(actions.time_ns)]
    if actions is not None:
        assert np.array_equal(actions.target[:, 0], np.arange(counts[1]) + 0.5)
    for view in ("front", "side"):
        counts.append(episode.frame_count(view) if episode.has_view(view) else 0)
    if episode.has_view("front"):
        assert all(np.array_equal(image, picture(i)) for i, image in enumerate(episode.frames("front")))
    assert stored_jpegs(episode) == [jpeg(number) for number in range(counts[3])]
    assert max(counts) - min(counts) <= 1  # a commit comes after a call, not after a row of all streams
    assert rows is None or min(counts) >= rows
    return min(counts)


def stored_jpegs(episode: Episode) -> list[bytes]:
    import h5py

    with h5py.File(episode.path) as file:
        if "views/side" not in file:
            return []
        group = file["views/side"]
        data = group["data"][()].tobytes()
        assert len(data) == group["length"][()].sum()
        assert list(group["sequence"]) == list(range(len(group["sequence"])))
        return [data[at : at + size] for at, size in zip(group["offset"][()], group["length"][()])]


def test_frames_are_written_in_blocks_and_come_back_in_order(tmp_path: Path) -> None:
    """A chunk of `front` holds 341 frames: commits cut through chunks."""
    with RecordingWriter.create(tmp_path / "r", small_info(VIEWS)) as writer:
        with writer.episode(0) as episode:
            write(episode, 200)
            episode.commit()
            write(episode, 3, 200)
            episode.commit()
            episode.commit()
            write(episode, 500, 203)
            assert episode.frame_count("side") == 703
    assert check(Recording.open(tmp_path / "r").episode(0)) == 703


def test_jpegs_larger_than_a_block(tmp_path: Path) -> None:
    large = [os.urandom(size) for size in (3 << 20, 0, 1, (1 << 20) - 1, 700_000, 700_000)]
    with RecordingWriter.create(tmp_path / "r", small_info(VIEWS)) as writer, writer.episode(0) as episode:
        episode.joints([1], np.zeros((1, 2)))
        for number, data in enumerate(large):
            episode.frame("side", number, number, data)
    assert stored_jpegs(Recording.open(tmp_path / "r").episode(0)) == large


def test_memory_is_bounded_without_a_clock(tmp_path: Path) -> None:
    held = []
    with RecordingWriter.create(tmp_path / "r", small_info(VIEWS)) as writer, writer.episode(0) as episode:
        for number in range(300):
            episode.frame("side", number, number, bytes(200_000))
            held.append(episode._disk.uncommitted_bytes)
    assert max(held) < MAX_UNCOMMITTED_BYTES + (2 << 20) and held.count(0) >= 5


def test_equal_data_make_equal_bytes_however_long_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, step in (("quick", 0.0), ("slow", 0.7)):
        now = SimpleNamespace(s=0.0)

        def monotonic(now: SimpleNamespace = now, step: float = step) -> float:
            now.s += step
            return now.s

        monkeypatch.setattr(
            hardware.episode_writer,
            "time",
            SimpleNamespace(monotonic=monotonic, monotonic_ns=time.monotonic_ns, time_ns=time.time_ns),
        )
        with (
            RecordingWriter.create(tmp_path / name, small_info(VIEWS)) as writer,
            writer.episode(0) as episode,
        ):
            write(episode, 60)
            episode.clocks(start=(0, 0), end=(1, 1))
    one, two = (Recording.open(tmp_path / name).manifest for name in ("quick", "slow"))
    assert one == two


def test_it_commits_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every moment of a run whose clock is ours, nothing older than the period is uncommitted."""
    now = SimpleNamespace(s=100.0)
    clock = SimpleNamespace(monotonic=lambda: now.s, monotonic_ns=time.monotonic_ns, time_ns=time.time_ns)
    monkeypatch.setattr(hardware.episode_writer, "time", clock)
    commits: list[float] = []
    commit = JournaledFile.commit
    monkeypatch.setattr(JournaledFile, "commit", lambda file: (commit(file), commits.append(now.s)))
    with RecordingWriter.create(tmp_path / "r", small_info(VIEWS)) as writer:
        with writer.episode(0, commit_every_s=0.5) as episode:
            for number in range(100):
                now.s += 0.03
                write(episode, 1, number)
                assert now.s - (commits[-1] if commits else 100.0) <= 0.5
    assert 5 <= len(commits) <= 8


def test_a_row_belongs_to_all_columns(tmp_path: Path) -> None:
    with RecordingWriter.create(tmp_path / "r", small_info(VIEWS)) as writer, writer.episode(0) as episode:
        episode.joints([1], np.zeros((1, 2)), velocity=np.ones((1, 2)))
        with pytest.raises(InputError, match="columns position after position, velocity"):
            episode.joints([2], np.zeros((1, 2)))
        with pytest.raises(InputError, match=r"joints/velocity: rows have shape \(1, 2\), expected \(2, 2\)"):
            episode.joints([2, 3], np.zeros((2, 2)), velocity=np.ones((1, 2)))
        with pytest.raises(InputError, match="its clock does not advance"):
            episode.joints([1], np.zeros((1, 2)), velocity=np.ones((1, 2)))
        episode.joints([2], np.ones((1, 2)), velocity=np.ones((1, 2)))
    joints = Recording.open(tmp_path / "r").episode(0).joints()
    assert joints.time_ns.tolist() == [1, 2] and len(joints.velocity) == 2


@pytest.mark.parametrize("step_s, seen", [(3600.0, True), (-3600.0, True), (0.2, False)])
def test_a_wall_clock_that_is_set_is_a_fault(tmp_path: Path, step_s: float, seen: bool) -> None:
    with RecordingWriter.create(tmp_path / "r", small_info(VIEWS)) as writer, writer.episode(0) as episode:
        write(episode, 2)
        start = 1_700_000_000_000_000_000
        episode.clocks(start=(5, start), end=(5 + 10**9, start + 10**9 + int(step_s * 1e9)))
    recording = Recording.open(tmp_path / "r")
    faults = recording.episode(0).faults()
    assert recording.manifest[0].faults == ({"wall_clock_stepped": 1} if seen else {})
    assert not seen or f"{step_s:+.1f} s" in faults[0]["message"]
    assert recording.episode(0).joints().time_ns.tolist() == [1000, 2000]


def test_clocks_that_are_not_known_are_no_fault(tmp_path: Path) -> None:
    with RecordingWriter.create(tmp_path / "r", small_info(VIEWS)) as writer, writer.episode(0) as episode:
        episode.clocks(start=(0, 0), end=(10**12, 0))
        episode.notes({"draws": 3, "rejected": {"limits": 1}})
    assert Recording.open(tmp_path / "r").manifest[0].faults == {}


def test_a_discarded_episode_leaves_nothing_and_may_be_written_again(tmp_path: Path) -> None:
    with RecordingWriter.create(tmp_path / "r", small_info(VIEWS)) as writer:
        with pytest.raises(ZeroDivisionError), writer.episode(0) as episode:
            write(episode, 5)
            episode.commit()
            raise ZeroDivisionError
        assert len(os.listdir(tmp_path / "r/episodes")) == 2
        episode.discard()
        assert os.listdir(tmp_path / "r/episodes") == []
        with writer.episode(0) as episode:
            write(episode, 3)
    assert check(Recording.open(tmp_path / "r").episode(0)) == 3
    assert os.listdir(tmp_path / "r/episodes") == ["000000.h5"]


def test_killed_at_any_call_no_committed_row_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder before each call that reaches the disk, and as a loss of power then may leave it."""
    folder = tmp_path / "r"
    moments: list[tuple[Path, int]] = []
    committed = 0
    rng = np.random.default_rng(7)

    def look(number: int) -> None:
        killed, dark = tmp_path / f"{number}-killed", tmp_path / f"{number}-dark"
        shutil.copytree(folder, killed)
        shutil.copytree(folder, dark)
        for path in (dark / "episodes").iterdir():
            path.unlink()
        disk.lose_power(dark / "episodes", rng)
        moments.extend([(killed, committed), (dark, committed)])

    writer = RecordingWriter.create(folder, small_info(VIEWS))
    with monkeypatch.context() as patch:
        disk = WatchedDisk(patch, folder / "episodes", before_call=look)
        with writer, writer.episode(0) as episode:
            for first in range(0, 24, 6):
                write(episode, 6, first)
                episode.commit()
                committed = first + 6
    assert len(moments) > 60
    kept = set()
    for name in ("fsync", "fdatasync"):  # no power is lost from here on
        monkeypatch.setattr(os, name, lambda _: None)
    for moment, committed in moments:
        report = recover(moment)
        assert report.unreadable == [] and report.changed == {}
        if committed:
            episode = Recording.open(moment).episode(0)
            episode.verify()
            kept.add(check(episode, committed))
        assert recover(moment).lines() == ["everything was in order"]
        shutil.rmtree(moment)
    assert kept == {6, 12, 18, 24}


@pytest.mark.parametrize("torn", [False, True])
def test_full_at_any_write_is_one_error_and_loses_nothing_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bool
) -> None:
    full_from, errors = 1, 0
    while True:
        folder = tmp_path / str(full_from)
        writer = RecordingWriter.create(folder, small_info(VIEWS))
        committed = 0
        with monkeypatch.context() as patch:
            disk = WatchedDisk(patch, folder / "episodes", torn=torn, full_from=full_from)
            try:
                with writer, writer.episode(0) as episode:
                    for first in (0, 40):
                        write(episode, 40, first)
                        episode.commit()
                        committed = first + 40
            except InputError as error:
                assert "the disk is full - free space and start again: sealed episodes are safe" in str(error)
                errors += 1
        report = recover(folder)
        assert report.unreadable == []
        if committed or report.salvaged:
            check(Recording.open(folder).episode(0), committed)
        shutil.rmtree(folder)
        if disk.writes < full_from:
            break
        full_from += 7 if full_from > 12 else 1
    assert errors > 5


def test_devices_are_kept_and_say_nothing_where_there_were_none(tmp_path: Path) -> None:
    assert "devices" not in small_info().to_yaml()
    devices = {"arm": {"port": "/dev/ttyACM0", "firmware": "3.10"}, "front": {"jpeg_by": "camera"}}
    info = small_info(devices=devices)
    with RecordingWriter.create(tmp_path / "r", info) as writer, writer.episode(0) as episode:
        episode.joints([1], np.zeros((1, 2)))
    assert Recording.open(tmp_path / "r").info == info
    again: RecordingInfo = info.model_copy(update={"devices": None, "host": {"cpus": "1"}})
    with RecordingWriter.resume(tmp_path / "r", again) as writer:
        assert writer.info.devices == devices and writer.line(0).joint_rows == 1


def test_a_thumbnail_is_kept_once(tmp_path: Path) -> None:
    with RecordingWriter.create(tmp_path / "r", small_info(VIEWS)) as writer:
        path = writer.thumbnail("side", b"first")
        assert writer.thumbnail("side", b"second") == path == tmp_path / "r/thumbnails/side.jpg"
        assert path.read_bytes() == b"first"
        with pytest.raises(InputError, match="view 'top'"):
            writer.thumbnail("top", b"")
