from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from watched_disk import Killed, WatchedDisk

from hardware import InputError
from hardware.disk import disk_errors, free_bytes, is_full, write_atomically

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_named_and_says_what_is_safe(number: int) -> None:
    with pytest.raises(InputError) as caught, disk_errors("x.h5", "sealed episodes are safe"):
        raise OSError(number, os.strerror(number))
    said = "x.h5: the disk is full - free space and start again: sealed episodes are safe"
    assert str(caught.value) == said


def test_an_error_that_is_no_lack_of_space_does_not_say_so() -> None:
    with pytest.raises(InputError) as caught, disk_errors("x.h5"):
        raise PermissionError(errno.EACCES, "Permission denied", "x.h5")
    said = "x.h5: cannot be written: Permission denied - check the path and its permissions"
    assert str(caught.value) == said
    with pytest.raises(InputError, match="cannot be written: Read-only file system"), disk_errors("y"):
        raise OSError(errno.EROFS, "Read-only file system")


def test_hdf5_says_in_words_that_the_disk_is_full() -> None:
    words = "can't write data (file write failed: errno = 28, error message = 'No space left on device')"
    assert is_full(RuntimeError(words)) and not is_full(RuntimeError("bad object header"))


def test_errors_that_are_not_the_disks_pass(tmp_path: Path) -> None:
    with pytest.raises(KeyError), disk_errors(tmp_path):
        raise KeyError("x")
    with pytest.raises(InputError, match=r"^a: b$"), disk_errors(tmp_path):
        raise InputError("a", "b")


def test_killed_at_any_call_an_atomic_write_is_the_old_file_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = b"old" * 1000, b"new" * 2000
    rng = np.random.default_rng(2)
    found: set[bytes] = set()
    for stop in range(12):
        for torn in (False, True):
            folder = tmp_path / f"{stop}{torn}"
            folder.mkdir()
            with monkeypatch.context() as patch:
                disk = WatchedDisk(patch, folder)
                write_atomically(folder / "f", old)
                disk.stop_at, disk.torn = disk.calls + stop, torn
                try:
                    write_atomically(folder / "f", new)
                    assert (folder / "f").read_bytes() == new
                except Killed:
                    pass
            found.add((folder / "f").read_bytes())
            for number in range(4):
                (folder / str(number)).mkdir()
                disk.lose_power(folder / str(number), rng)
                found.add((folder / str(number) / "f").read_bytes())
    assert found == {old, new}


def test_a_failed_atomic_write_leaves_nothing_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "f", b"old")
    for number in range(2):
        with monkeypatch.context() as patch:
            WatchedDisk(patch, tmp_path, full_from=0, torn=bool(number))
            with pytest.raises(InputError, match="the disk is full"), disk_errors(tmp_path / "f"):
                write_atomically(tmp_path / "f", b"new")
        assert os.listdir(tmp_path) == ["f"] and (tmp_path / "f").read_bytes() == b"old"


def test_a_real_limit_is_a_full_disk(tmp_path: Path) -> None:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))

    code = (
        "from pathlib import Path; from hardware.disk import *\n"
        f"path = Path({str(tmp_path / 'f')!r})\n"
        "write_atomically(path, b'a' * 5_000)\n"
        "with disk_errors(path): write_atomically(path, b'b' * 5_001)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, preexec_fn=limit, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1].endswith(
        "f: the disk is full - free space and start again: what is finished is safe"
    )
    assert (tmp_path / "f").read_bytes() == b"a" * 5_000 and os.listdir(tmp_path) == ["f"]


def test_free_bytes_are_those_of_the_disk_a_path_will_be_on(tmp_path: Path) -> None:
    facts = os.statvfs(tmp_path)
    free = free_bytes(tmp_path / "not/yet/there")
    assert 0 < free <= facts.f_frsize * facts.f_blocks
    assert free_bytes(Path("/dev/full")) >= 0 and free_bytes(Path("not/there")) > 0
