"""The bytes of a recording that a study binds, hashed from the files themselves with nothing but hashlib."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bars.canonical import read_json
from bars.errors import StudyError
from bars.files import read_bytes, sha256_file

MANIFEST_FILE = "manifest.jsonl"
RECORDING_FILE = "recording.yaml"
_MAX_MANIFEST_BYTES = 256 << 20


@dataclass(frozen=True)
class RecordingBytes:
    """What lies in a recording's folder; None where it is not there.

    Parameters
    ----------
    manifest_sha256, recording_sha256 : of manifest.jsonl and recording.yaml.
    episodes : episode -> SHA-256 of its file's bytes, None where the file is not there.
    unreadable : episode -> why its file could not be hashed although it seems to be there.
    """

    manifest_sha256: str | None
    recording_sha256: str | None
    episodes: Mapping[int, str | None]
    unreadable: Mapping[int, str] = field(default_factory=dict)


def hash_recording(
    folder: Path | str, episodes: Iterable[int], progress: Callable[[int, int, str], None] | None = None
) -> RecordingBytes:
    """Hash a recording's manifest, its recording.yaml, and the files of some of its episodes.

    The manifest says where an episode's file lies (`episodes/000000.h5` where it does not); a name that
    leads out of the folder is not followed.
    """
    folder = Path(folder)
    wanted = sorted(set(episodes))
    names = _file_names(folder)
    hashes: dict[int, str | None] = {}
    unreadable: dict[int, str] = {}
    for done, episode in enumerate(wanted):
        if progress is not None:
            progress(done, len(wanted), f"hashing {folder.name}, episode {episode}")
        name = names.get(episode, f"episodes/{episode:06d}.h5")
        hashes[episode], problem = _hash_inside(folder, name)
        if problem:
            unreadable[episode] = problem
    if progress is not None and wanted:
        progress(len(wanted), len(wanted), f"hashing {folder.name}")
    return RecordingBytes(
        _hash_inside(folder, MANIFEST_FILE)[0], _hash_inside(folder, RECORDING_FILE)[0], hashes, unreadable
    )


def _hash_inside(folder: Path, name: str) -> tuple[str | None, str]:
    """(hash or None, why not); a file that is simply absent has no reason."""
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            return None, f"{name!r} leads out of the recording's folder"
        return sha256_file(path), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        return None, f"{name!r} cannot be read: {getattr(error, 'strerror', None) or error}"


def _file_names(folder: Path) -> dict[int, str]:
    """Episode -> file name by the manifest; lines that cannot be read are left out (its hash shows them)."""
    names: dict[int, str] = {}
    try:
        content = read_bytes(folder / MANIFEST_FILE, _MAX_MANIFEST_BYTES)
    except StudyError:
        return names
    for line in content.splitlines():
        try:
            record = read_json(line, MANIFEST_FILE)
        except StudyError:
            continue
        if (
            isinstance(record, dict)
            and isinstance(record.get("file"), str)
            and type(record.get("episode")) is int
        ):
            names[record["episode"]] = record["file"]
    return names
