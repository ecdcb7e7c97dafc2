"""A folder that holds a file an episode and nothing that describes them: which files, and which numbers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from hardware.errors import InputError

MAX_NUMBER = 1 << 40


def episode_files(folder: Path, pattern: str) -> tuple[dict[int, Path], str]:
    """({episode: file} by rising number, where the numbers come from) of the files that match `pattern`.

    A file's number is the digits at the end of its name, where each file has some of its own; else they are
    counted in the order of their names.
    """
    paths = sorted(folder.glob(pattern))
    for path in paths:
        if not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                path, "is no file, or a link that leads out of the folder", "copy the set with cp -rL"
            )
    digits = [re.search(r"(\d+)$", path.stem) for path in paths]
    numbers = [int(found.group(1)) if found else -1 for found in digits]
    if len(set(numbers)) == len(paths) and all(0 <= number < MAX_NUMBER for number in numbers):
        return dict(sorted(zip(numbers, paths))), "those of the file names"
    return dict(enumerate(paths)), "counted in the order of the file names"


def files_sha256(files: Mapping[int, Path]) -> str:
    """SHA-256 over number, name and size of each file: tells whether an import goes on with the same set."""
    lines = [f"{episode} {path.name} {path.stat().st_size}\n" for episode, path in files.items()]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def require_rate(fps: float) -> float:
    """`fps` as a float; InputError where no camera has such a rate."""
    if not 0.001 <= fps <= 10_000:
        raise InputError("--fps", f"{fps} is no rate", "use rows a second, 0.001 to 10000")
    return float(fps)
