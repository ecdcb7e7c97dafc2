"""A folder or a file that appears whole or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hardware.disk import disk_errors, fsync_path
from hardware.errors import InputError

MARKER = "jointprobe-export"


@contextmanager
def staging(to: Path) -> Iterator[Path]:
    """Give the path of a folder or a file to make: it becomes `to` when the block ends well, else it is gone.

    It lies in `to`.partial, which is locked meanwhile; what a killed export left there is taken away.
    """
    partial = to.with_name(f"{to.name}.partial")
    with disk_errors(to, "nothing was kept, and the recording is as it was"):
        if partial.exists() and not (partial / MARKER).is_file():
            raise InputError(partial, "is in the way, and no leftover of an export", "move it away")
        partial.mkdir(parents=True, exist_ok=True)
        with (partial / MARKER).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(to, "is being written by another process", "wait for it") from None
            try:
                if (partial / "dataset").is_dir():
                    shutil.rmtree(partial / "dataset")
                (partial / "dataset").unlink(missing_ok=True)
                yield partial / "dataset"
                _settle(partial / "dataset")
                if to.exists():
                    raise InputError(to, "was made by another process meanwhile", "choose another name")
                os.replace(partial / "dataset", to)
                fsync_path(to.parent)
            finally:
                shutil.rmtree(partial, ignore_errors=True)


def _settle(root: Path) -> None:
    """Give every file the usual mode (LeRobot leaves videos as 0600) and bring it to the disk."""
    mask = os.umask(0)
    os.umask(mask)
    for path in sorted(root.rglob("*")):
        if path.is_file():
            path.chmod(0o666 & ~mask)
        fsync_path(path)
    fsync_path(root)
