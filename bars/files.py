"""Files of a study: read within a bound, hashed in pieces, written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from bars.errors import StudyError

_PIECE = 1 << 20


def read_bytes(path: Path, max_bytes: int, remedy: str = "") -> bytes:
    """The file's bytes; StudyError where it is absent, not a file, or larger than `max_bytes`."""
    try:
        with open(path, "rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise StudyError(path, f"cannot be read: {error.strerror or error}", remedy) from None
    if len(content) > max_bytes:
        raise StudyError(path, f"is larger than {max_bytes} bytes", "it is not read any further")
    return content


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, lower-case hex. Raises OSError where it cannot be read."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def write_whole(path: Path, content: bytes) -> None:
    """Replace `path` by `content` atomically: temporary file, fsync, rename, fsync of the folder.

    A reader sees the old bytes or the new ones; a full disk or a kill leaves the old ones.
    """
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), _mode_for(path))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        temporary = None
        _sync_folder(path.parent)
    except OSError as error:
        raise StudyError(
            path, f"could not be written: {error.strerror or error}", "what was there before is untouched"
        ) from None
    finally:
        if temporary is not None:
            try:
                os.unlink(temporary)
            except OSError:
                pass  # the disk that refused the write may refuse this as well


def _mode_for(path: Path) -> int:
    """Permissions of the file that is replaced, else what the umask gives (mkstemp alone gives 0600)."""
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
