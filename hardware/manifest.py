"""The manifest: one line a sealed episode, which can always be made again from the files."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import h5py

from hardware.disk import disk_errors
from hardware.episode import sha256_of_file
from hardware.errors import InputError
from hardware.schema import ManifestLine, RecordingInfo, parse_model

NEWLINE = b"\n"


def manifest_line(path: Path, info: RecordingInfo, index: int) -> ManifestLine:
    """Count and hash a whole episode file; InputError where it is none, or another's."""
    try:
        with h5py.File(path, "r") as file:
            own = int(file.attrs["index"])
            joint_rows = len(file["joints/time_ns"])
            frames = {
                view.name: len(file[f"views/{view.name}/time_ns"]) if f"views/{view.name}" in file else 0
                for view in info.views
            }
            seconds = (int(file.attrs["end_monotonic_ns"]) - int(file.attrs["start_monotonic_ns"])) / 1e9
            lines = file["faults"][()].tobytes().decode().splitlines() if "faults" in file else []
            faults = Counter(json.loads(line)["kind"] for line in lines)
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise InputError(path, f"is not a whole episode: {error}", "move it out of the folder") from None
    if own != index:
        raise InputError(path, f"is episode {own} by its own word", "move it out of the folder")
    return ManifestLine(
        episode=index,
        file=f"episodes/{index:06d}.h5",
        sha256=sha256_of_file(path),
        bytes=path.stat().st_size,
        joint_rows=joint_rows,
        frames=frames,
        seconds=round(seconds, 6),
        faults=dict(faults),
    )


def read_manifest(path: Path) -> list[ManifestLine]:
    """Lines of a manifest by rising episode; InputError names the line that is wrong."""
    if not path.is_file():
        return []
    data = path.read_bytes()
    if _torn_from(data) < len(data):
        raise InputError(
            f"{path}, line {data.count(NEWLINE) + 1}",
            "is torn (the last write was interrupted)",
            "run the same import or recording again, or jointprobe record --recover",
        )
    lines = []
    for number, text in enumerate(data.splitlines(), start=1):
        try:
            parsed = json.loads(text)
        except ValueError as error:
            raise InputError(
                f"{path}, line {number}", f"is not JSON: {error}", "restore the manifest"
            ) from None
        lines.append(parse_model(ManifestLine, parsed, f"{path}, line {number}"))
    seen: set[int] = set()
    for line in lines:
        if line.episode in seen:
            raise InputError(path, f"lists episode {line.episode} twice", "restore the manifest from a copy")
        if line.file != f"episodes/{line.episode:06d}.h5":
            raise InputError(
                path, f"episode {line.episode} points to {line.file}", "restore the manifest from a copy"
            )
        seen.add(line.episode)
    return sorted(lines, key=lambda line: line.episode)


def cut_torn_line(path: Path) -> bool:
    """Cut a last line without its newline (a kill amid a write) off the manifest; whether there was one.

    Its episode's file is whole, and is adopted.
    """
    data = path.read_bytes() if path.is_file() else b""
    whole = _torn_from(data)
    if whole == len(data):
        return False
    with disk_errors(path), path.open("r+b") as file:
        file.truncate(whole)
        os.fsync(file.fileno())
    return True


def _torn_from(data: bytes) -> int:
    return data.rfind(NEWLINE) + 1
