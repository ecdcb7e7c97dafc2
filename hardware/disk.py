"""The disk under our files: whole or not at all, and errors in words a person can act on."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hardware.errors import InputError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FULL_IN_WORDS = ("No space left", "File too large", "quota exceeded")  # HDF5 keeps the text, not the number
FINISHED_IS_SAFE = "what is finished is safe"


def is_full(error: BaseException) -> bool:
    """Whether an error says that there is no room: no space, a quota, or a limit on the file's size."""
    return getattr(error, "errno", None) in FULL or any(text in str(error) for text in FULL_IN_WORDS)


def disk_error(where: object, error: BaseException, safe: str = FINISHED_IS_SAFE) -> InputError:
    """The InputError that a failed write of `where` amounts to; `safe` says what is not lost."""
    if is_full(error):
        return InputError(where, "the disk is full", f"free space and start again: {safe}")
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(where, f"cannot be written: {reason}", "check the path and its permissions")


@contextmanager
def disk_errors(where: object, safe: str = FINISHED_IS_SAFE) -> Iterator[None]:
    """Turn the operating system's errors in a block that writes `where` into an InputError."""
    try:
        yield
    except OSError as error:
        raise disk_error(where, error, safe) from None


@contextmanager
def held_alone(path: Path, under_way: str) -> Iterator[None]:
    """Hold a file or a folder for the time of a block, against other processes that do the same.

    Parameters
    ----------
    under_way : what another process that holds it is then said to do, "is being ...".

    Raises
    ------
    InputError : it is held, is not there, or cannot be opened.
    """
    with disk_errors(path):
        descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                path, f"is being {under_way} by another process", "wait for it, or stop it"
            ) from None
        yield
    finally:
        os.close(descriptor)


def fsync_path(path: Path) -> None:
    """fsync a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def pwrite_all(descriptor: int, data: Any, offset: int) -> None:
    """Write all of `data` (any buffer) at `offset`, in as many writes as the system takes; OSError else."""
    rest = memoryview(data).cast("B")
    while len(rest):
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def write_atomically(path: Path, data: bytes) -> None:
    """Temporary file, fsync, rename, fsync of the folder: the old file or the new one, never half of one."""
    temporary = path.with_name(path.name + ".partial")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            pwrite_all(descriptor, data, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)  # on a full disk half a file would only be in the way
        raise
    fsync_path(path.parent)


def free_bytes(path: Path) -> int:
    """Bytes that can still be written where `path` is, or will be."""
    path = path.absolute()
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    facts = os.statvfs(there)
    return facts.f_bavail * facts.f_frsize
