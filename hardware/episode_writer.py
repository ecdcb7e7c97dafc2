"""Writing one episode: a `.partial` file that becomes `.h5` only when it is whole and on disk."""

from __future__ import annotations

import errno
import io
import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np

from hardware.episode import JOINT_QUANTITIES, _require_finite, sha256_of_file
from hardware.errors import InputError
from hardware.schema import EPISODE_SCHEMA, ManifestLine, RecordingInfo

CHUNK_BYTES = 1 << 20  # auto-chunking reads 24 times slower
FLUSH_EVERY_S = 1.0


class EpisodeWriter:
    """Appends to the streams of one episode; `RecordingWriter.episode` makes one and seals it."""

    def __init__(self, folder: Path, info: RecordingInfo, index: int) -> None:
        self.info = info
        self.index = index
        self.final = folder / "episodes" / f"{index:06d}.h5"
        self.partial = self.final.with_suffix(".h5.partial")
        self._clocks: dict[str, int] = {}
        self._frames: dict[str, list[tuple[int, int, np.ndarray]]] = {view.name: [] for view in info.views}
        self._last_ns: dict[str, int] = {}
        self._faults: Counter[str] = Counter()
        self.clocks(start=(time.monotonic_ns(), time.time_ns()))
        self._flushed = time.monotonic()
        with _disk_errors(self.partial):
            self._disk = _Disk(self.partial, "w+b")
            self._file = h5py.File(self._disk, "w")  # default libver: the one that survived every SIGKILL
            self._file.attrs["schema"] = EPISODE_SCHEMA
            self._file.attrs["index"] = index
            self._create("joints/time_ns", np.int64, ())
            self._create("joints/position", np.float64, (len(info.joints),))

    # -- streams ---------------------------------------------------------------------------------------------

    def joints(
        self,
        time_ns: np.ndarray | Sequence[int],
        position: np.ndarray,
        *,
        raw: np.ndarray | None = None,
        source_timestamp: np.ndarray | None = None,
        **quantities: np.ndarray | None,
    ) -> None:
        """Append joint samples.

        Parameters
        ----------
        time_ns : int (n,), midpoint of each bus transaction.
        position : (n, J) in the joints' units; must be finite: a failed read has no row, but a fault.
        raw, source_timestamp : (n, J) and (n,), imports only: the values as they came.
        quantities : (n, J) each: `velocity` (rad/s), `load` (fraction), `current` (A), `temperature` (deg C),
            `voltage` (V).
        """
        unknown = set(quantities) - set(JOINT_QUANTITIES)
        if unknown:
            raise TypeError(
                f"unknown joint quantities {sorted(unknown)}; known: {', '.join(JOINT_QUANTITIES)}"
            )
        position = np.atleast_2d(np.asarray(position, np.float64))
        where = f"{self.final.name}, joints from row {len(self._file['joints/time_ns'])}"
        _require_finite(position, self.info.joint_names, where)
        self._times("joints", time_ns, len(position))
        self._append("joints/position", position, (len(self.info.joints),))
        for name, values in {**quantities, "raw": raw}.items():
            if values is not None:
                self._append(
                    f"joints/{name}", np.atleast_2d(np.asarray(values, np.float64)), (len(self.info.joints),)
                )
        if source_timestamp is not None:
            self._append("joints/source_timestamp", np.asarray(source_timestamp, np.float64), ())

    def actions(self, time_ns: Any, target: np.ndarray, raw: np.ndarray | None = None) -> None:
        """Append what was sent: `time_ns` (m,), `target` (m, A), `raw` (m, A) for imports."""
        if self.info.actions is None:
            raise InputError("actions", "recording.yaml declares none", "give RecordingInfo its actions")
        width = (len(self.info.actions.names),)
        target = np.atleast_2d(np.asarray(target, np.float64))
        self._times("actions", time_ns, len(target))
        self._append("actions/target", target, width)
        if raw is not None:
            self._append("actions/raw", np.atleast_2d(np.asarray(raw, np.float64)), width)

    def knots(self, time_ns: Any, position: np.ndarray) -> None:
        """Append knots of a walk: `time_ns` (k,), `position` (k, J) in rad."""
        position = np.atleast_2d(np.asarray(position, np.float64))
        self._times("knots", time_ns, len(position))
        self._append("knots/position", position, (len(self.info.joints),))

    def frame(self, view: str, time_ns: int, sequence: int, frame: np.ndarray | bytes) -> None:
        """Append one frame: uint8 RGB (H, W, 3) for `rgb8`, the camera's own bytes for `jpeg`."""
        declared = self.info.view(view)
        group = f"views/{view}"
        if declared.encoding == "rgb8":
            expected = (declared.height, declared.width, 3)
            if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.shape != expected:
                raise InputError(
                    f"view {view}", f"a frame is not uint8 {expected}", "render it at the declared size"
                )
            self._check_times(group, [time_ns], 1)
            pending = self._frames[view]
            pending.append((time_ns, sequence, frame.copy()))  # cameras and renderers reuse their buffers
            if len(pending) == _frames_a_chunk(frame.nbytes):  # whole chunks: each is compressed once
                self._write_pending(view)
            return
        if declared.encoding == "jpeg":
            data = np.frombuffer(bytes(frame), np.uint8)
            offset = len(self._file[f"{group}/data"]) if f"{group}/data" in self._file else 0
            self._append(f"{group}/data", data, (), chunk=CHUNK_BYTES // 4)
            self._append(f"{group}/offset", np.array([offset]), ())
            self._append(f"{group}/length", np.array([len(data)]), ())
        else:
            raise InputError(
                f"view {view}", "is a video: its packets are stored at once", "use EpisodeWriter.video"
            )
        self._times(group, [time_ns], 1)
        self._append(f"{group}/sequence", np.array([sequence]), ())

    def video(
        self,
        view: str,
        container: bytes,
        *,
        pts: np.ndarray,
        time_base: Fraction,
        time_ns: np.ndarray,
        skip: int = 0,
    ) -> None:
        """Store an episode's video as it came; its n frames, after `skip` decoded ones, have `pts` (n,)."""
        self.info.view(view)
        group = f"views/{view}"
        self._append(f"{group}/video", np.frombuffer(container, np.uint8), (), chunk=CHUNK_BYTES)
        attrs = self._file[f"{group}/video"].attrs
        attrs["skip"] = skip
        attrs["time_base_numerator"] = time_base.numerator
        attrs["time_base_denominator"] = time_base.denominator
        self._append(f"{group}/pts", np.asarray(pts, np.int64), ())
        self._times(group, time_ns, len(pts))
        self._append(f"{group}/sequence", np.arange(len(pts)), ())

    def fault(self, kind: str, stream: str, message: str, time_ns: int = 0) -> None:
        """Note a fault; it travels with the episode and is counted in the manifest."""
        self._faults[kind] += 1
        line = (
            json.dumps({"time_ns": int(time_ns), "kind": kind, "stream": stream, "message": message}) + "\n"
        )
        self._append("faults", np.frombuffer(line.encode(), np.uint8), (), chunk=4096)

    def clocks(self, *, start: tuple[int, int] | None = None, end: tuple[int, int] | None = None) -> None:
        """State (monotonic, wall) pairs in ns, where they are not 'now' (simulated time, imports)."""
        for name, pair in (("start", start), ("end", end)):
            if pair is not None:
                self._clocks[f"{name}_monotonic_ns"], self._clocks[f"{name}_wall_ns"] = map(int, pair)

    # -- sealing ---------------------------------------------------------------------------------------------

    def seal(self) -> ManifestLine:
        """Write what is pending, fsync, rename, fsync the folder; returns the line for the manifest."""
        if "end_wall_ns" not in self._clocks:
            self.clocks(end=(time.monotonic_ns(), time.time_ns()))
        with _disk_errors(self.partial):
            for view in self._frames:
                self._write_pending(view)
            for name, value in self._clocks.items():
                self._file.attrs[name] = value
            self._file.close()
            self._disk.raise_error()
            os.fsync(self._disk.fileno())
            self._disk.close()
        line = manifest_line(self.partial, self.info, self.index)
        with _disk_errors(self.partial):
            os.replace(self.partial, self.final)
            fsync_path(self.final.parent)
        return line

    def abandon(self) -> None:
        """Close without sealing; the `.partial` file stays for whoever wants to look into it."""
        self._file.close()
        self._disk.close()

    # -- inside ----------------------------------------------------------------------------------------------

    def _check_times(self, group: str, time_ns: Any, count: int) -> np.ndarray:
        times = np.atleast_1d(np.asarray(time_ns, np.int64))
        if len(times) != count:
            raise InputError(f"{self.final.name}, {group}", f"{len(times)} times for {count} rows")
        if self.info.pairing == "clock" and len(times):
            before = np.concatenate([[self._last_ns.get(group, -(1 << 62))], times])
            if np.any(np.diff(before) <= 0):
                raise InputError(
                    f"{self.final.name}, {group}", "its clock does not advance", "check the time source"
                )
            self._last_ns[group] = int(times[-1])
        return times

    def _times(self, group: str, time_ns: Any, count: int) -> None:
        self._append(f"{group}/time_ns", self._check_times(group, time_ns, count), ())
        if time.monotonic() - self._flushed > FLUSH_EVERY_S:
            with _disk_errors(self.partial):
                self._file.flush()
                self._disk.raise_error()
            self._flushed = time.monotonic()

    def _write_pending(self, view: str) -> None:
        if self._frames[view]:
            times, sequences, frames = zip(*self._frames[view])
            block = np.stack(frames)
            self._append(
                f"views/{view}/frames", block, block.shape[1:], chunk=_frames_a_chunk(block[0].nbytes)
            )
            self._append(f"views/{view}/sequence", np.array(sequences, np.int64), ())
            self._append(f"views/{view}/time_ns", np.array(times, np.int64), ())
            self._frames[view].clear()

    def _create(self, name: str, dtype: Any, shape: tuple[int, ...], chunk: int = 512) -> h5py.Dataset:
        compression: Any = hdf5plugin.Blosc(cname="zstd", clevel=3) if len(shape) == 3 else {}
        return self._file.create_dataset(
            name,
            (0, *shape),
            dtype,
            maxshape=(None, *shape),
            chunks=(chunk, *shape),
            fletcher32=True,
            **compression,
        )

    def _append(self, name: str, values: np.ndarray, shape: tuple[int, ...], chunk: int = 512) -> None:
        if values.shape[1:] != shape:
            raise InputError(
                f"{self.final.name}, {name}", f"rows have shape {values.shape[1:]}, expected {shape}"
            )
        with _disk_errors(self.partial):
            data = self._file[name] if name in self._file else self._create(name, values.dtype, shape, chunk)
            start = len(data)
            data.resize(start + len(values), axis=0)
            data[start:] = values
            self._disk.raise_error()


class _Disk(io.FileIO):
    """The file under an HDF5 file. It keeps the first error and then pretends to write.

    HDF5 cannot close a file whose disk is full: it leaves it half open and the process crashes at its end.
    """

    error: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        while len(rest) and self.error is None:
            try:
                rest = rest[super().write(rest) :]
            except OSError as error:
                self.error = error
        return size

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size or 0

    def raise_error(self) -> None:
        if self.error is not None:
            raise self.error


class _disk_errors:
    """Turn a full or failing disk into an InputError that says what is safe."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, InputError) or not isinstance(error, (OSError, RuntimeError)):
            return
        number = getattr(error, "errno", None)
        full = number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or any(
            text in str(error) for text in ("No space left", "File too large", "quota exceeded")
        )
        if full:
            raise InputError(
                self.path, "the disk is full", "free space and start again: sealed episodes are safe"
            ) from None
        raise InputError(
            self.path, f"cannot be written: {error}", "check the path and its permissions"
        ) from None


def _frames_a_chunk(frame_bytes: int) -> int:
    return max(1, CHUNK_BYTES // frame_bytes)


def fsync_path(path: Path) -> None:
    """fsync a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def manifest_line(path: Path, info: RecordingInfo, index: int) -> ManifestLine:
    """Count and hash a whole episode file; the manifest can always be made again from the files."""
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
    except (OSError, KeyError, ValueError) as error:
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
