"""A recording: a folder of sealed episodes, its manifest and its recording.yaml (see FORMATS.md)."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hardware.alignment import AlignedEpisode, align
from hardware.disk import disk_errors, fsync_path, write_atomically
from hardware.episode import Episode
from hardware.episode_writer import EpisodeWriter
from hardware.errors import InputError
from hardware.manifest import cut_torn_line, manifest_line, read_manifest
from hardware.schema import ManifestLine, RecordingInfo, load_yaml, parse_model

OF_THE_RUN = {"software", "host", "devices"}  # may differ when a recording is continued

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
        info = read_info(folder)
        manifest = read_manifest(folder / "manifest.jsonl")
        if not manifest:
            raise InputError(
                folder,
                "holds no sealed episode",
                "record or import one, or jointprobe record --recover what was cut off",
            )
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
    """Makes or continues a recording; one writer at a time holds its folder.

    `create` begins one, `resume` continues one with the same settings, `reopen` takes it as it lies there.
    `cut_torn_line` tells whether `reopen` found a last line of the manifest that was cut short.
    """

    def __init__(self, folder: Path, info: RecordingInfo) -> None:
        self.folder = folder
        self.info = info
        self.cut_torn_line = False
        self._lock = os.open(folder / "recording.yaml", os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._unlock()
            raise InputError(
                folder, "is being written by another process", "wait for it, or stop it"
            ) from None
        try:
            self.cut_torn_line = cut_torn_line(folder / "manifest.jsonl")
            self._manifest = read_manifest(folder / "manifest.jsonl")
        except BaseException:
            self._unlock()
            raise

    @classmethod
    def create(cls, folder: str | Path, info: RecordingInfo) -> RecordingWriter:
        """Start a new recording; InputError when `folder` already holds something."""
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(folder, "already exists and is not empty", "choose another name")
        with disk_errors(folder):
            (folder / "episodes").mkdir(parents=True)
            write_atomically(folder / "recording.yaml", info.to_yaml().encode())
        return cls(folder, info)

    @classmethod
    def resume(cls, folder: str | Path, info: RecordingInfo) -> RecordingWriter:
        """Continue a recording that was interrupted, or create it.

        Whole episode files that the manifest lacks are adopted and a torn last line is cut; a `.partial` file
        is left until its episode is written again, or `hardware.recovery` seals it. The settings must be
        those it was started with; what belongs to the run (software, host, devices) may differ.
        """
        folder = Path(folder)
        if not (folder / "recording.yaml").is_file():
            if is_unborn(folder):
                (folder / "recording.yaml.partial").unlink(missing_ok=True)
                shutil.rmtree(folder / "episodes", ignore_errors=True)
            return cls.create(folder, info)
        started = read_info(folder)
        before, now = (json.loads(one.model_dump_json(exclude=OF_THE_RUN)) for one in (started, info))
        different = _differing(before, now)
        if different:
            raise InputError(
                folder,
                f"was started with other settings ({'; '.join(different)})",
                "choose another folder, or the same settings",
            )
        writer = cls(folder, started)
        try:
            for path in writer.unlisted():
                writer.adopt(path)
        except BaseException:
            writer.close()
            raise
        return writer

    @classmethod
    def reopen(cls, folder: str | Path) -> RecordingWriter:
        """Take a recording as it lies there; nothing but a torn line of the manifest is changed."""
        return cls(Path(folder), read_info(Path(folder)))

    @property
    def sealed(self) -> set[int]:
        """Numbers of the episodes that are sealed."""
        return {line.episode for line in self._manifest}

    @property
    def manifest(self) -> list[ManifestLine]:
        """Lines of the sealed episodes, by rising number."""
        return sorted(self._manifest, key=lambda line: line.episode)

    def line(self, index: int) -> ManifestLine:
        """The manifest's line of a sealed episode."""
        return next(line for line in self._manifest if line.episode == index)

    def unlisted(self) -> list[Path]:
        """Files that bear a sealed episode's name and that the manifest lacks."""
        return [
            path
            for path in sorted((self.folder / "episodes").glob("*.h5"))
            if path.stem.isdigit() and int(path.stem) not in self.sealed
        ]

    def adopt(self, path: Path) -> ManifestLine:
        """Put a whole episode file into the manifest; InputError where it is none."""
        line = manifest_line(path, self.info, int(path.name.partition(".")[0]))
        self.add(line)
        return line

    @contextmanager
    def episode(self, index: int, *, commit_every_s: float | None = None) -> Iterator[EpisodeWriter]:
        """Write one episode; it is sealed when the block ends well, and stays `.partial` when it does not.

        `commit_every_s` bounds what a kill can cost, see EpisodeWriter; a live recorder gives it.
        """
        if index in self.sealed:
            raise InputError(f"{self.folder}, episode {index}", "is sealed already", "choose the next number")
        writer = EpisodeWriter(self.folder, self.info, index, commit_every_s=commit_every_s)
        try:
            yield writer
            line = writer.seal()
        except BaseException:
            writer.abandon()
            raise
        self.add(line)

    def thumbnail(self, view: str, jpeg: bytes) -> Path:
        """Keep one picture of a view as `thumbnails/VIEW.jpg`, once; returns its path."""
        path = self.folder / "thumbnails" / f"{self.info.view(view).name}.jpg"
        if not path.exists():
            with disk_errors(path):
                path.parent.mkdir(exist_ok=True)
                write_atomically(path, jpeg)
                fsync_path(self.folder)
        return path

    def add(self, line: ManifestLine) -> None:
        """Append a sealed episode's line to the manifest, on disk when this returns."""
        path = self.folder / "manifest.jsonl"
        with disk_errors(path, "sealed episodes are safe"):
            with path.open("ab") as file:
                file.write((line.model_dump_json() + "\n").encode())
                file.flush()
                os.fsync(file.fileno())
            fsync_path(self.folder)
        self._manifest.append(line)

    def close(self) -> Recording:
        """Let go of the folder; returns the recording for reading."""
        self._unlock()
        return Recording(self.folder, self.info, self.manifest)

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self._unlock()

    def __del__(self) -> None:
        self._unlock()

    def _unlock(self) -> None:
        if getattr(self, "_lock", -1) >= 0:
            os.close(self._lock)
            self._lock = -1


def read_info(folder: Path) -> RecordingInfo:
    """The settings of the recording in `folder`; InputError says what is wrong with it."""
    if not folder.is_dir():
        raise InputError(folder, "is not a folder", "give the folder that holds recording.yaml")
    path = folder / "recording.yaml"
    if not path.is_file():
        raise InputError(
            folder, "is not a recording: it holds no recording.yaml", "make one with jointprobe import"
        )
    return parse_model(RecordingInfo, load_yaml(path), path)


def is_unborn(folder: Path) -> bool:
    """Whether `folder` holds just what a kill leaves while a recording is created."""
    if not folder.is_dir() or not set(os.listdir(folder)) <= {"episodes", "recording.yaml.partial"}:
        return False
    return not (folder / "episodes").is_dir() or not any((folder / "episodes").iterdir())


def _differing(before: dict[str, Any], now: dict[str, Any], at: str = "") -> list[str]:
    """What differs between two settings, in words: `motion_settings.episodes: 1, now 2`; of another motion or
    robot nothing else is told, as all the rest follows from it.
    """
    found = []
    for key in dict.fromkeys((*(name for name in ("robot", "motion") if not at), *before, *now)):
        old, new = _by_name(before.get(key)), _by_name(now.get(key))
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differing(old, new, f"{at}{key}.")
        elif old != new:
            found.append(f"{at}{key}: {_short(old)}, now {_short(new)}")
            if not at and key in ("robot", "motion"):
                break
    return found


def _by_name(value: Any) -> Any:
    """Lists of named things (joints, views) as dicts by name, so that what differs can be named."""
    if isinstance(value, list) and value and all(isinstance(one, dict) and "name" in one for one in value):
        return {one["name"]: one for one in value}
    return value


def _short(value: Any) -> str:
    if value is None:
        return "not there"
    return "there" if isinstance(value, dict) else str(value)[:60]


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
