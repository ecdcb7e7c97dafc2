from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watched_disk import Killed, WatchedDisk

import hardware.journaled_file
from hardware.journal import PAGE, journal_path, replay
from hardware.journaled_file import JournaledFile

Step = tuple[str, int, bytes]


def script(seed: int, steps: int = 14) -> list[Step]:
    """Writes as HDF5 makes them (appends, small and large changes below), cuts, and commits."""
    rng = np.random.default_rng(seed)
    size = 0
    made: list[Step] = []
    for _ in range(steps):
        kind = rng.choice(
            ["append", "change", "beyond", "cut", "grow", "commit"], p=[0.3, 0.25, 0.05, 0.08, 0.07, 0.25]
        )
        data = rng.bytes(int(rng.choice([1, 90, 512, PAGE, 9000])))
        if kind == "append":
            made.append(("write", size, data))
        elif kind == "change":
            made.append(("write", int(rng.integers(0, size + 1)), data))
        elif kind == "beyond":
            made.append(("write", size + int(rng.integers(0, 5000)), data))
        elif kind == "cut":
            made.append(("truncate", int(rng.integers(0, size + 1)), b""))
        elif kind == "grow":
            made.append(("truncate", size + int(rng.integers(0, 9000)), b""))
        else:
            made.append(("commit", 0, b""))
        if made[-1][0] == "truncate":
            size = made[-1][1]
        elif made[-1][0] == "write":
            size = max(size, made[-1][1] + len(data))
    return [*made, ("commit", 0, b"")]


class Model:
    """The same file in plain memory, with the states that a recovery may find."""

    def __init__(self) -> None:
        self.now = bytearray()
        self.allowed = [b""]

    def run(self, file: JournaledFile, steps: list[Step]) -> None:
        for what, at, data in steps:
            if what == "commit":
                self.allowed.append(bytes(self.now))
                file.commit()
                self.allowed = [bytes(self.now)]
                continue
            if what == "write":
                self.now.extend(bytes(max(at - len(self.now), 0)))
                self.now[at : at + len(data)] = data
                file.seek(at)
                file.write(data)
            else:
                del self.now[at:]
                self.now.extend(bytes(at - len(self.now)))
                file.truncate(at)
            assert contents(file) == self.now


def contents(file: JournaledFile) -> bytes:
    file.seek(0)
    buffer = bytearray(file.size + 7)
    assert file.readinto(buffer) == file.size
    return bytes(buffer[: file.size])


@pytest.fixture(autouse=True)
def short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware.journaled_file, "MAX_JOURNAL_BYTES", 30_000)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_it_reads_as_a_plain_file_does(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    path = tmp_path_factory.mktemp("file") / "f"
    model = Model()
    with JournaledFile.create(path) as file:
        model.run(file, script(seed, 30))
        assert path.read_bytes() == model.now
    with JournaledFile.reopen(path) as file:
        assert contents(file) == model.now
        rng = np.random.default_rng(seed)
        for _ in range(5):
            at = file.seek(int(rng.integers(0, len(model.now) + 1)))
            assert file.read(5000) == model.now[at : at + 5000] and file.tell() == min(at + 5000, file.size)


def test_nothing_reaches_the_committed_part_before_its_journal(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with JournaledFile.create(path) as file:
        file.write(b"a" * 10_000)
        file.commit()
        file.seek(100)
        file.write(b"b" * 9_000)
        file.seek(0, os.SEEK_END)
        file.write(b"c" * 10_000)
        assert path.read_bytes()[:10_000] == b"a" * 10_000
        assert replay(path) and path.read_bytes() == b"a" * 10_000


def runs_killed_at_any_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, before: Callable[[Path], Model], begin: Any
) -> int:
    """Kill a script at each of its calls, and amid each write; checks what a kill and a loss of power leave.

    `before` makes what lies there already, `begin` opens the file. Returns how often there was content.
    """
    rng = np.random.default_rng([1, seed])
    stop, found = 0, 0
    while True:
        for torn in (False, True):
            folder = tmp_path / f"{stop}{torn}"
            folder.mkdir()
            path = folder / "f"
            with monkeypatch.context() as patch:
                disk = WatchedDisk(patch, folder)
                model = before(path)
                disk.stop_at, disk.torn = disk.calls + stop, torn
                try:
                    with begin(path) as file:
                        if file.size == 0:
                            model.now.clear()  # an older file of the name
                        model.run(file, script(seed, 40))
                except Killed:
                    pass
            for number in range(3):
                left = folder / str(number)
                left.mkdir()
                disk.lose_power(left, rng)
                found += check_recovers(left / "f", model)
            found += check_recovers(path, model)
            shutil.rmtree(folder)
        if disk.calls < disk.stop_at:
            assert stop > 30 and found > 100
            return found
        stop += 1


@pytest.mark.parametrize("seed", range(6))
def test_killed_at_any_call_it_is_its_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    runs_killed_at_any_call(tmp_path, monkeypatch, seed, lambda _: Model(), JournaledFile.create)


@pytest.mark.parametrize("seed", range(3))
def test_killed_while_it_goes_on_it_is_its_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Opened again with a commit that is in the journal alone, and with more that was never committed."""
    monkeypatch.setattr(hardware.journaled_file, "MAX_JOURNAL_BYTES", 1 << 30)  # it is still in there

    def before(path: Path) -> Model:
        model = Model()
        with JournaledFile.create(path) as file:
            model.run(file, script(seed + 10, 20))
            committed = path.read_bytes()
            file.seek(100)
            file.write(b"a" * 3000)
            file.commit()
            model.now[100:3100] = b"a" * 3000
            model.allowed = [bytes(model.now)]
            file.write(b"never committed")
        path.write_bytes(committed)  # the pages did not reach the file yet
        return model

    runs_killed_at_any_call(tmp_path, monkeypatch, seed, before, JournaledFile.reopen)


@pytest.mark.parametrize("seed", range(3))
def test_killed_while_it_replaces_another_it_is_that_or_nothing_or_its_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    def before(path: Path) -> Model:
        model = Model()
        with JournaledFile.create(path) as file:
            file.write(b"old" * 3000)
            file.commit()
            if seed:  # a journal that is begun anew vouches for the length alone
                file.finish()
        if seed:
            JournaledFile.reopen(path).close()
        model.allowed = [path.read_bytes(), b""]
        return model

    runs_killed_at_any_call(tmp_path, monkeypatch, seed, before, JournaledFile.create)


def check_recovers(path: Path, model: Model) -> bool:
    """The file is a state that is allowed; whether it has content."""
    if path.exists() and replay(path):
        found = path.read_bytes()
        assert found in model.allowed
        assert replay(path) and path.read_bytes() == found  # it can be repeated
        return len(found) > 0
    assert b"" in model.allowed  # the power went before the first commit
    return False


@pytest.mark.parametrize("seed", range(3))
def test_replay_may_be_killed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    path, model = tmp_path / "f", Model()
    steps = script(seed, 40)
    with monkeypatch.context() as patch:
        disk = WatchedDisk(patch, tmp_path)
        with JournaledFile.create(path) as file:
            model.run(file, steps)
            calls = disk.calls
    for stop in range(1, 12):  # the last commit is in the journal, and not yet, or half, in the file
        with monkeypatch.context() as patch:
            disk = WatchedDisk(patch, tmp_path, calls - stop)
            model = Model()
            try:
                with JournaledFile.create(path) as file:
                    model.run(file, steps)
            except Killed:
                pass
        for again in range(4):
            with monkeypatch.context() as patch:
                WatchedDisk(patch, tmp_path, again, torn=True)
                try:
                    replay(path)
                except Killed:
                    pass
        check_recovers(path, model)


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_full_at_any_write_it_says_so_once_and_keeps_its_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, torn: bool
) -> None:
    full_from, failed = 1, 0
    while True:
        folder = tmp_path / str(full_from)
        folder.mkdir()
        model, path = Model(), folder / "f"
        with monkeypatch.context() as patch:
            disk = WatchedDisk(patch, folder, torn=torn, full_from=full_from)
            with JournaledFile.create(path) as file:
                try:
                    model.run(file, script(seed, 40))
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    failed += 1
                    assert contents(file) == model.now  # HDF5 goes on to see what it wrote
                    with pytest.raises(OSError, match="No space left"):
                        file.commit()
        check_recovers(path, model)
        if disk.writes < full_from:
            break
        full_from += 1
    assert failed == full_from - 2 > 5


@pytest.fixture
def half_done(tmp_path: Path) -> tuple[Path, int, list[bytes]]:
    """A file whose third commit is in its journal alone; where that begins; the second and third state."""
    path = tmp_path / "f"
    with JournaledFile.create(path) as file:
        for letter in (b"a" * 20_000, b"b" * 6_000, b"c" * 9_000):
            before, begins = path.read_bytes(), journal_path(path).stat().st_size
            file.seek(1)
            file.write(letter)
            file.commit()
        after = path.read_bytes()
    path.write_bytes(before)
    return path, begins, [before, after]


def test_a_torn_record_is_no_commit(half_done: tuple[Path, int, list[bytes]]) -> None:
    path, begins, (before, after) = half_done
    journal = journal_path(path).read_bytes()
    for length in [*range(0, len(journal), 97), len(journal) - 1]:
        journal_path(path).write_bytes(journal[:length])
        found = replay(path)
        assert not (found and length < 80)  # a header
        if length >= begins:  # earlier records are synced: a disk does not lose them
            assert found and path.read_bytes() == before
        path.write_bytes(before)
    journal_path(path).write_bytes(journal)
    assert replay(path) and path.read_bytes() == after


def test_flipped_bits_in_the_journal_are_never_applied(half_done: tuple[Path, int, list[bytes]]) -> None:
    path, begins, (before, _) = half_done
    journal = journal_path(path).read_bytes()
    rng = np.random.default_rng(4)
    for place in [*range(0, 80), *range(begins, begins + 80), *rng.integers(begins, len(journal), 200)]:
        damaged = bytearray(journal)
        damaged[place] ^= 1 << int(rng.integers(8))
        journal_path(path).write_bytes(damaged)
        replay(path)
        assert path.read_bytes() == before


def test_the_journal_of_another_file_is_not_applied(tmp_path: Path) -> None:
    for folder, letter in (("one", b"x"), ("two", b"y")):
        (tmp_path / folder).mkdir()
        with JournaledFile.create(tmp_path / folder / "f") as file:
            file.write(letter * 9000)
            file.commit()
    stranger = (tmp_path / "two/f").read_bytes()
    os.replace(journal_path(tmp_path / "one/f"), journal_path(tmp_path / "two/f"))  # of the same name
    assert not replay(tmp_path / "two/f") and (tmp_path / "two/f").read_bytes() == stranger
    with JournaledFile.reopen(tmp_path / "one/f"):
        pass
    os.rename(journal_path(tmp_path / "one/f"), journal_path(tmp_path / "one/g"))  # of another name
    os.rename(tmp_path / "one/f", tmp_path / "one/g")
    assert not replay(tmp_path / "one/g")


def test_a_journal_of_before_is_not_applied_to_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for letter in (b"x", b"y"):
        with JournaledFile.create(path) as file:
            file.write(letter * 9000)
            file.commit()
            file.seek(5)
            file.write(letter)
            file.commit()
    with JournaledFile.create(path):
        pass
    assert replay(path) and path.read_bytes() == b""


def test_a_finished_file_needs_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with JournaledFile.create(path) as file:
        file.write(b"a" * 10_000)
        file.commit()
        file.seek(10)
        file.write(b"b" * 10)
        file.truncate(9_000)
        file.finish()
    assert path.read_bytes() == b"a" * 10 + b"b" * 10 + b"a" * 8_980
    assert replay(path) and path.read_bytes()[:20] == b"a" * 10 + b"b" * 10


def test_killed_while_it_is_finished_it_is_its_last_commit_or_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut to whole pages, so that no page differs: the length alone must not go before the journal."""
    for stop in range(6):
        path = tmp_path / str(stop) / "f"
        path.parent.mkdir()
        with monkeypatch.context() as patch:
            disk = WatchedDisk(patch, path.parent)
            with pytest.raises(Killed), JournaledFile.create(path) as file:
                file.write(b"a" * 20_000)
                file.commit()
                file.truncate(2 * PAGE)
                disk.stop_at = disk.calls + stop
                file.finish()
                raise Killed
        assert replay(path) and path.read_bytes() in (b"a" * 20_000, b"a" * 2 * PAGE)


def test_an_interrupted_commit_ends_the_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with JournaledFile.create(tmp_path / "f") as file:
        file.write(b"a" * 5000)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                file.commit()
        with pytest.raises(OSError, match="interrupted"):
            file.commit()
    assert replay(tmp_path / "f")


def test_pages_that_did_not_change_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware.journaled_file, "MAX_JOURNAL_BYTES", 1 << 30)
    with JournaledFile.create(tmp_path / "f") as file:
        file.write(b"a" * 1_000_000)
        file.commit()
        before = journal_path(tmp_path / "f").stat().st_size
        file.seek(0)
        file.write(b"a" * 500_000 + b"b" + b"a" * 400_000)
        assert file.uncommitted_bytes > 900_000
        file.commit()
        assert journal_path(tmp_path / "f").stat().st_size - before < 2 * PAGE
        assert file.uncommitted_bytes == 0
