"""A recording: a folder of sealed episodes, its manifest and its recording.yaml (see FORMATS.md)."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hardware.alignment import AlignedEpisode, align
from hardware.episode import Episode
from hardware.episode_writer import EpisodeWriter, _disk_errors, fsync_path, manifest_line
from hardware.errors import InputError
from hardware.schema import ManifestLine, RecordingInfo, load_yaml, parse_model

NEWLINE = b"\n"

Progress = Callable[[int, int, str], None]
"""progress(done, total, what): called by long work; the command line draws a bar from it."""


class Recording:
    """A recording opened for reading: streams of each episode, and rows that align them."""

    def __init__(self, folder: Path, info: RecordingInfo, manifest: list[ManifestLine]) -> None:
        self.folder = folder
        self.info = info
        self.manifest = manifest

    @classmethod
    def open(cls, folder: str | Path) -> Recording:
        """Open a recording's folder; InputError says what is wrong with it."""
        folder = Path(folder)
        if not folder.is_dir():
            raise InputError(folder, "is not a folder", "give the folder that holds recording.yaml")
        if not (folder / "recording.yaml").is_file():
            raise InputError(
                folder, "is not a recording: it holds no recording.yaml", "make one with jointprobe import"
            )
        info = parse_model(RecordingInfo, load_yaml(folder / "recording.yaml"), folder / "recording.yaml")
        manifest = read_manifest(folder / "manifest.jsonl")
        if not manifest:
            raise InputError(folder, "holds no sealed episode", "record or import at least one")
        return cls(folder, info, manifest)

    def __repr__(self) -> str:
        return f"Recording({self.folder}, {len(self.manifest)} episodes, views {self.info.view_names})"

    @property
    def manifest_sha256(self) -> str:
        """SHA-256 of manifest.jsonl: it binds every episode's bytes."""
        return hashlib.sha256((self.folder / "manifest.jsonl").read_bytes()).hexdigest()

    @property
    def episode_indices(self) -> list[int]:
        """Numbers of the sealed episodes, rising."""
        return [line.episode for line in self.manifest]

    def episode(self, index: int) -> Episode:
        """One episode by its number."""
        for line in self.manifest:
            if line.episode == index:
                return Episode(self.folder, self.info, line)
        there = self.episode_indices
        raise InputError(
            f"{self.folder}, episode {index}",
            "does not exist",
            f"it holds {len(there)}: {there[0]} to {there[-1]}",
        )

    def frames(
        self, view: str, episodes: Sequence[int] | None = None
    ) -> Iterator[tuple[int, int, np.ndarray]]:
        """Stream (episode, frame number, RGB uint8 (H, W, 3)); episodes without the view are an error."""
        for index in self.episode_indices if episodes is None else episodes:
            for number, image in enumerate(self.episode(index).frames(view)):
                yield index, number, image

    def aligned(
        self, views: Sequence[str], episodes: Sequence[int] | None = None
    ) -> Iterator[AlignedEpisode]:
        """Stream the rows of each episode: the first view anchors, joints are interpolated at its times."""
        for index in self.episode_indices if episodes is None else episodes:
            yield align(self.episode(index), views)


class RecordingWriter:
    """Makes or continues a recording; one writer at a time holds its folder."""

    def __init__(self, folder: Path, info: RecordingInfo, manifest: list[ManifestLine]) -> None:
        self.folder = folder
        self.info = info
        self._manifest = manifest
        self._lock = os.open(folder / "recording.yaml", os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            self._lock = -1
            raise InputError(
                folder, "is being written by another process", "wait for it, or stop it"
            ) from None

    @classmethod
    def create(cls, folder: str | Path, info: RecordingInfo) -> RecordingWriter:
        """Start a new recording; InputError when `folder` already holds something."""
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(folder, "already exists and is not empty", "choose another name")
        with _disk_errors(folder):
            (folder / "episodes").mkdir(parents=True)
            temporary = folder / "recording.yaml.partial"
            temporary.write_text(info.to_yaml(), encoding="utf-8")
            fsync_path(temporary)
            os.replace(temporary, folder / "recording.yaml")
            fsync_path(folder)
        return cls(folder, info, [])

    @classmethod
    def resume(cls, folder: str | Path, info: RecordingInfo) -> RecordingWriter:
        """Continue a recording that was interrupted, or create it.

        Whole episode files that the manifest lacks are adopted and a torn last line is cut; a `.partial` file
        is left until its episode is written again. The settings must be those it was started with.
        """
        folder = Path(folder)
        if not (folder / "recording.yaml").is_file():
            if folder.is_dir() and set(os.listdir(folder)) <= {"episodes", "recording.yaml.partial"}:
                for leftover in (
                    folder / "recording.yaml.partial",
                    folder / "episodes",
                ):  # killed while creating
                    if leftover.is_dir() and not any(leftover.iterdir()):
                        leftover.rmdir()
                    elif leftover.is_file():
                        leftover.unlink()
            return cls.create(folder, info)
        started = parse_model(RecordingInfo, load_yaml(folder / "recording.yaml"), folder / "recording.yaml")
        own = {"software", "host"}
        before, now = (json.loads(one.model_dump_json(exclude=own)) for one in (started, info))
        different = _differing(before, now)
        if different:
            raise InputError(
                folder,
                f"was started with other settings ({'; '.join(different)})",
                "choose another folder, or the same settings",
            )
        manifest_path = folder / "manifest.jsonl"
        writer = cls(folder, started, read_manifest(manifest_path, cut_torn_line=True))
        for path in sorted((folder / "episodes").glob("*.h5")):
            if path.stem.isdigit() and int(path.stem) not in writer.sealed:
                writer._add(manifest_line(path, started, int(path.stem)))
        return writer

    @property
    def sealed(self) -> set[int]:
        """Numbers of the episodes that are sealed."""
        return {line.episode for line in self._manifest}

    @contextmanager
    def episode(self, index: int) -> Iterator[EpisodeWriter]:
        """Write one episode; it is sealed when the block ends well, and stays `.partial` when it does not."""
        if index in self.sealed:
            raise InputError(f"{self.folder}, episode {index}", "is sealed already", "choose the next number")
        writer = EpisodeWriter(self.folder, self.info, index)
        try:
            yield writer
            line = writer.seal()
        except BaseException:
            writer.abandon()
            raise
        self._add(line)

    def close(self) -> Recording:
        """Let go of the folder; returns the recording for reading."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        return Recording(self.folder, self.info, sorted(self._manifest, key=lambda line: line.episode))

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_lock", -1) >= 0:
            os.close(self._lock)

    def _add(self, line: ManifestLine) -> None:
        path = self.folder / "manifest.jsonl"
        with _disk_errors(path):
            with path.open("ab") as file:
                file.write((line.model_dump_json() + "\n").encode())
                file.flush()
                os.fsync(file.fileno())
            fsync_path(self.folder)
        self._manifest.append(line)


def _differing(before: dict[str, Any], now: dict[str, Any], at: str = "") -> list[str]:
    """What differs between two settings, in words: `motion_settings.episodes: 1, now 2`."""
    found = []
    for key in dict.fromkeys((*before, *now)):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differing(old, new, f"{at}{key}.")
        elif old != new:
            found.append(f"{at}{key}: {str(old)[:60]}, now {str(new)[:60]}")
    return found


def read_manifest(path: Path, cut_torn_line: bool = False) -> list[ManifestLine]:
    """Lines of a manifest by rising episode; InputError names the line that is wrong.

    With `cut_torn_line` a last line without its newline (a kill amid a write) is removed from the file.
    """
    if not path.is_file():
        return []
    data = path.read_bytes()
    if data and not data.endswith(NEWLINE):
        whole = data.rfind(NEWLINE) + 1
        if not cut_torn_line:
            raise InputError(
                f"{path}, line {data[:whole].count(NEWLINE) + 1}",
                "is torn (the last write was interrupted)",
                "run the same import or recording again to continue it",
            )
        with path.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
        data = data[:whole]
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


def software_versions(*packages: str) -> dict[str, str]:
    """Versions of Python, jointprobe, h5py, HDF5 and of `packages`, for provenance."""
    found = {"python": platform.python_version(), "h5py": h5py.__version__, "hdf5": h5py.version.hdf5_version}
    for package in ("jointprobe", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def host_facts() -> dict[str, str]:
    """What kind of machine this is; no names of people or hosts."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": str(os.cpu_count()),
        "byteorder": sys.byteorder,
    }
