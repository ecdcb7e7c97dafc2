"""Reading one sealed episode. The file may come from anybody: nothing is allocated before it is bounded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401  registers the Blosc filter with HDF5
import numpy as np

from hardware.errors import InputError
from hardware.frames import decode_jpeg, decode_video
from hardware.jpeg import NotJpeg, damage_in
from hardware.schema import EPISODE_SCHEMA, ManifestLine, RecordingInfo

MAX_ARRAY_BYTES = 2 << 30
MAX_CHUNK_BYTES = 256 << 20
JOINT_QUANTITIES = ("velocity", "load", "current", "temperature", "voltage")


@dataclass(frozen=True)
class JointLog:
    """The joint stream: `time_ns` (n,), the others (n, J) or None where not measured (units: FORMATS.md)."""

    time_ns: np.ndarray
    position: np.ndarray
    velocity: np.ndarray | None = None
    load: np.ndarray | None = None
    current: np.ndarray | None = None
    temperature: np.ndarray | None = None
    voltage: np.ndarray | None = None
    raw: np.ndarray | None = None
    source_timestamp: np.ndarray | None = None


@dataclass(frozen=True)
class ActionLog:
    """What was sent: `time_ns` (m,), `target` (m, A), and `raw` (m, A) for imports."""

    time_ns: np.ndarray
    target: np.ndarray
    raw: np.ndarray | None = None


@dataclass(frozen=True)
class KnotLog:
    """A walk's knots: `time_ns` (k,) when each is reached, `position` (k, J) in rad."""

    time_ns: np.ndarray
    position: np.ndarray


def sha256_of_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class Episode:
    """One sealed episode of a recording; opens its file for each read, so it can be passed around."""

    def __init__(self, folder: Path, info: RecordingInfo, line: ManifestLine) -> None:
        self.path = folder / line.file
        self.info = info
        self.line = line
        self.index = line.episode
        self.sha256 = line.sha256

    def __repr__(self) -> str:
        return f"Episode({self.path.name}, {self.line.joint_rows} joint rows, frames {self.line.frames})"

    def verify(self) -> None:
        """InputError when the file is missing or its SHA-256 is not the manifest's."""
        if not self.path.is_file():
            raise InputError(self.path, "is not there, or no file", "restore it from a copy")
        try:
            found = sha256_of_file(self.path)
        except OSError as error:
            raise InputError(self.path, f"cannot be read: {error.strerror}") from None
        if found != self.sha256:
            raise InputError(
                self.path,
                f"has changed since it was sealed (sha256 {found[:12]}..., manifest {self.sha256[:12]}...)",
                "restore the file from a copy",
            )

    def joints(self) -> JointLog:
        """The joint stream, checked: equal lengths, finite positions."""
        with _opened(self.path, self.index) as file:
            time_ns = _array(file, "joints/time_ns", np.int64, 1)
            wide = {
                name: _array(file, f"joints/{name}", np.float64, 2, optional=name != "position")
                for name in ("position", *JOINT_QUANTITIES, "raw")
            }
            stamps = _array(file, "joints/source_timestamp", np.float64, 1, optional=True)
            position = wide["position"]
            if position.shape[1] != len(self.info.joints):
                raise InputError(
                    self.path,
                    f"has {position.shape[1]} joint columns, recording.yaml names {len(self.info.joints)}",
                )
            for name, values in {**wide, "source_timestamp": stamps}.items():
                if values is not None and len(values) != len(time_ns):
                    raise InputError(
                        self.path, f"joints/{name} has {len(values)} rows, joints/time_ns has {len(time_ns)}"
                    )
            _require_finite(position, self.info.joint_names, f"{self.path}, joints/position")
            return JointLog(time_ns, source_timestamp=stamps, **wide)

    def actions(self) -> ActionLog | None:
        """What was sent to the arm, or None where it was not logged; equal lengths, as many columns as
        recording.yaml has names.
        """
        with _opened(self.path, self.index) as file:
            if "actions" not in file:
                return None
            log = ActionLog(
                _array(file, "actions/time_ns", np.int64, 1),
                _array(file, "actions/target", np.float64, 2),
                _array(file, "actions/raw", np.float64, 2, optional=True),
            )
        columns = log.target.shape[1]
        if self.info.actions is not None and columns != len(self.info.actions.names):
            raise InputError(
                f"{self.path}, actions/target",
                f"has {columns} columns, recording.yaml names {len(self.info.actions.names)}",
                "restore the file from a copy",
            )
        for name, values in (("target", log.target), ("raw", log.raw)):
            if values is not None and len(values) != len(log.time_ns):
                raise InputError(
                    f"{self.path}, actions/{name}",
                    f"has {len(values)} rows, actions/time_ns has {len(log.time_ns)}",
                    "restore the file from a copy",
                )
        return log

    def knots(self) -> KnotLog | None:
        """The knots of a walk, or None for other motions."""
        with _opened(self.path, self.index) as file:
            if "knots" not in file:
                return None
            return KnotLog(
                _array(file, "knots/time_ns", np.int64, 1), _array(file, "knots/position", np.float64, 2)
            )

    def has_view(self, view: str) -> bool:
        """Whether this episode holds frames of `view` (an import may lack a video)."""
        return self.line.frames.get(view, 0) > 0

    def frame_count(self, view: str) -> int:
        """Number of stored frames of `view`."""
        return len(self.frame_times(view))

    def frame_times(self, view: str) -> np.ndarray:
        """Capture times of the frames of `view`, int64 ns (n,)."""
        with _opened(self.path, self.index) as file:
            return _array(file, f"{self._group(file, view)}/time_ns", np.int64, 1)

    def sequence(self, view: str) -> np.ndarray:
        """The camera's counter at each frame of `view`, int64 (n,)."""
        with _opened(self.path, self.index) as file:
            group = self._group(file, view)
            numbers = _array(file, f"{group}/sequence", np.int64, 1)
            frames = len(_array(file, f"{group}/time_ns", np.int64, 1))
        if len(numbers) != frames:
            raise InputError(
                f"{self.path}, {group}/sequence",
                f"has {len(numbers)} numbers, its time_ns counts {frames} frames",
                "restore the file from a copy",
            )
        return numbers

    def pts(self, view: str) -> np.ndarray | None:
        """Presentation stamps of an imported video, int64 (n,) in the container's time base, else None."""
        with _opened(self.path, self.index) as file:
            return _array(file, f"{self._group(file, view)}/pts", np.int64, 1, optional=True)

    def faults(self) -> list[dict[str, Any]]:
        """Faults noted while recording or importing: dicts of time_ns, kind, stream, message."""
        with _opened(self.path, self.index) as file:
            text = _array(file, "faults", np.uint8, 1, optional=True)
        if text is None:
            return []
        try:
            return [json.loads(line) for line in text.tobytes().decode().splitlines()]
        except ValueError as error:
            raise InputError(self.path, f"its faults are not JSON lines: {error}") from None

    def notes(self) -> dict[str, Any]:
        """Facts kept beside the streams: of a walk how many draws were refused, and why."""
        with _opened(self.path, self.index) as file:
            text = file.attrs.get("notes", "{}")
        try:
            notes = json.loads(text)
        except (TypeError, ValueError) as error:
            raise InputError(self.path, f"its notes are not JSON: {error}") from None
        if not isinstance(notes, dict):
            raise InputError(self.path, "its notes are no JSON object")
        return notes

    def clocks(self) -> dict[str, int]:
        """The (monotonic, wall) clock pairs at start and end, in ns."""
        with _opened(self.path, self.index) as file:
            return {name: int(file.attrs[name]) for name in file.attrs if name.endswith("_ns")}

    def frames(self, view: str, indices: Sequence[int] | np.ndarray | None = None) -> Iterator[np.ndarray]:
        """Stream frames of `view` as RGB uint8 (H, W, 3).

        Parameters
        ----------
        view : name of the view.
        indices : frame numbers wanted, not decreasing (a number may repeat); None for all.
        """
        declared = self.info.view(view)
        with _opened(self.path, self.index) as file:
            group = self._group(file, view)
            count = len(_array(file, f"{group}/time_ns", np.int64, 1))
            wanted = np.arange(count) if indices is None else np.asarray(indices, np.int64)
            if len(wanted) and (wanted[0] < 0 or wanted[-1] >= count or np.any(np.diff(wanted) < 0)):
                raise InputError(
                    f"{self.path}, view {view}", f"frame numbers must rise from 0 to {count - 1}", "sort them"
                )
            read = {"rgb8": self._rgb8, "jpeg": self._jpeg, "video": self._video}[declared.encoding]
            for number, image in enumerate(read(file, group, wanted)):
                if image.shape != (declared.height, declared.width, 3):
                    raise InputError(
                        f"{self.path}, view {view}, frame {int(wanted[number])}",
                        f"is {image.shape[1]}x{image.shape[0]}, declared {declared.width}x{declared.height}",
                    )
                yield image

    def damaged_frames(self, view: str) -> dict[int, str]:
        """What is damaged in which frames of `view`, in libjpeg's words (`damage_in`); JPEGs alone tell."""
        if self.info.view(view).encoding != "jpeg":
            return {}
        damaged = {}
        with _opened(self.path, self.index) as file:
            group = self._group(file, view)
            count = len(_array(file, f"{group}/time_ns", np.int64, 1))
            for number, jpeg in enumerate(self._jpegs(file, group, np.arange(count))):
                try:
                    damage = damage_in(jpeg)
                except NotJpeg as error:
                    damage = str(error)
                if damage:
                    damaged[number] = damage
        return damaged

    def _require_frames(self, group: str, wanted: np.ndarray, stored: int) -> None:
        if len(wanted) and wanted[-1] >= stored:
            raise InputError(
                f"{self.path}, {group}",
                f"stores {stored} frames, and its time_ns counts more",
                "restore the file from a copy",
            )

    def _rgb8(self, file: h5py.File, group: str, wanted: np.ndarray) -> Iterator[np.ndarray]:
        data = _dataset(file, f"{group}/frames", np.uint8, 4)
        self._require_frames(group, wanted, len(data))
        step = data.chunks[0] if data.chunks else 1
        start, block = -1, np.empty(0)
        for index in wanted:
            if index // step != start:
                start = index // step
                block = _read(data, slice(start * step, (start + 1) * step))
            yield block[index - start * step]

    def _jpeg(self, file: h5py.File, group: str, wanted: np.ndarray) -> Iterator[np.ndarray]:
        for index, jpeg in zip(wanted, self._jpegs(file, group, wanted)):
            yield decode_jpeg(jpeg, f"{self.path}, {group}, frame {index}")

    def _jpegs(self, file: h5py.File, group: str, wanted: np.ndarray) -> Iterator[np.ndarray]:
        data = _dataset(file, f"{group}/data", np.uint8, 1)
        offset = _array(file, f"{group}/offset", np.int64, 1)
        length = _array(file, f"{group}/length", np.int64, 1)
        self._require_frames(group, wanted, min(len(offset), len(length)))
        for index in wanted:
            first, size = int(offset[index]), int(length[index])
            if first < 0 or size < 0 or first + size > len(data) or size > MAX_CHUNK_BYTES:
                raise InputError(f"{self.path}, {group}, frame {index}", "its bytes lie outside the file")
            yield _read(data, slice(first, first + size))

    def _video(self, file: h5py.File, group: str, wanted: np.ndarray) -> Iterator[np.ndarray]:
        data = _array(file, f"{group}/video", np.uint8, 1)
        skip = int(file[f"{group}/video"].attrs.get("skip", 0))
        where = f"{self.path}, {group}"
        position = 0
        decoded = enumerate(decode_video(data.tobytes(), where, skip))
        while position < len(wanted):
            try:
                number, image = next(decoded)
            except StopIteration:
                raise InputError(
                    where, f"the video ends before frame {int(wanted[position])}", "import the set again"
                ) from None
            while position < len(wanted) and wanted[position] == number:
                yield image
                position += 1

    def _group(self, file: h5py.File, view: str) -> str:
        self.info.view(view)
        if f"views/{view}" not in file:
            raise InputError(
                f"{self.path}, view {view}", "is missing in this episode", "leave the episode or the view out"
            )
        return f"views/{view}"


class _opened:
    """Open an episode file for reading; refuse another episode's, and what reaches outside the file."""

    def __init__(self, path: Path, index: int) -> None:
        self.path, self.index = path, index

    def __enter__(self) -> h5py.File:
        if not self.path.is_file():
            raise InputError(self.path, "does not exist", "the manifest lists it: restore it from a copy")
        try:
            self.file = h5py.File(self.path, "r")
        except OSError as error:
            reason = "is truncated" if "truncated" in str(error) else "is not a readable HDF5 file"
            raise InputError(
                self.path, reason, "restore it from a copy; its manifest line has the sha256"
            ) from None
        try:
            _refuse_foreign(self.file, self.path)
            schema = self.file.attrs.get("schema")
            if schema != EPISODE_SCHEMA:
                raise InputError(self.path, f"has schema {schema!r}, this version reads {EPISODE_SCHEMA!r}")
            own = self.file.attrs.get("index")
            if not isinstance(own, np.integer) or own != self.index:
                raise InputError(
                    self.path,
                    f"is episode {own} by its own word",
                    "it lies in another's place: restore both files from a copy",
                )
        except BaseException:
            self.file.close()
            raise
        return self.file

    def __exit__(self, *exc: object) -> None:
        self.file.close()


def _refuse_foreign(group: h5py.Group, path: Path, depth: int = 0) -> None:
    if depth > 8:
        raise InputError(path, "its groups are nested too deeply")
    for name in group:
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise InputError(path, f"{group.name}/{name} is a soft or external link, which is refused")
        member = group[name]
        if isinstance(member, h5py.Group):
            _refuse_foreign(member, path, depth + 1)
        elif isinstance(member, h5py.Dataset) and (member.is_virtual or member.external):
            raise InputError(path, f"{member.name} stores its data outside the file, which is refused")


def _dataset(file: h5py.File, name: str, dtype: Any, ndim: int) -> h5py.Dataset:
    where = f"{file.filename}, {name}"
    if name not in file or not isinstance(file[name], h5py.Dataset):
        raise InputError(where, "is missing")
    data = file[name]
    if data.dtype != np.dtype(dtype) or data.ndim != ndim:
        raise InputError(
            where, f"is {data.dtype} with {data.ndim} axes, expected {np.dtype(dtype)} with {ndim}"
        )
    chunk_bytes = int(np.prod(data.chunks or data.shape)) * data.dtype.itemsize
    if chunk_bytes > MAX_CHUNK_BYTES and data.chunks:
        raise InputError(where, f"has chunks of {chunk_bytes:,} bytes, more than is read at once")
    if data.size and data.id.get_storage_size() == 0:
        raise InputError(where, f"claims {data.size:,} values and stores none")
    return data


def _array(file: h5py.File, name: str, dtype: Any, ndim: int, optional: bool = False) -> Any:
    if optional and name not in file:
        return None
    data = _dataset(file, name, dtype, ndim)
    if data.nbytes > MAX_ARRAY_BYTES:
        raise InputError(
            f"{file.filename}, {name}", f"claims {data.nbytes:,} bytes, more than is read at once"
        )
    return _read(data, ())


def _read(data: h5py.Dataset, selection: Any) -> np.ndarray:
    try:
        return data[selection]
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{data.file.filename}, {data.name}", f"is damaged ({error})", "restore the file from a copy"
        ) from None


def _require_finite(values: np.ndarray, names: Sequence[str], where: str) -> None:
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = bad[0]
        raise InputError(
            where,
            f"row {row}, joint {names[column]}: {values[row, column]} is not a number ({len(bad)} such)",
            "a failed read must leave no row; remove the episode or record it again",
        )
