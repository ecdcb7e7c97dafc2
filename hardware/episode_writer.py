"""Writing one episode: a `.partial` file that becomes `.h5` only when it is whole and on disk."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hardware.columns import Columns
from hardware.disk import disk_error, disk_errors, fsync_path
from hardware.episode import JOINT_QUANTITIES, _require_finite
from hardware.errors import InputError
from hardware.journal import journal_path
from hardware.journaled_file import JournaledFile
from hardware.manifest import manifest_line
from hardware.schema import EPISODE_SCHEMA, ManifestLine, RecordingInfo

CHUNK_BYTES = 1 << 20  # auto-chunking reads 24 times slower
MAX_UNCOMMITTED_BYTES = 8 << 20
WALL_CLOCK_STEP_S = 1.0
SEALED_IS_SAFE = "sealed episodes are safe"


class Unreadable(InputError):
    """A `.partial` file that is no episode any more."""


class EpisodeWriter:
    """Appends to the streams of one episode; `RecordingWriter.episode` makes one and seals it.

    One thread owns it. Whatever ends the program or the power, the `.partial` file is what it was at the last
    `commit` (hardware/journaled_file.py says how), and `hardware.recovery` seals that.

    Parameters
    ----------
    folder, info, index : the recording's folder, its settings, the episode's number.
    commit_every_s : commit by itself when the last one is so long ago. None commits after every few MiB only,
        so that equal data make equal bytes, as simulated recordings promise.
    reopen : go on with the `.partial` file of a run that ended; Unreadable where it is none.
    """

    def __init__(
        self,
        folder: Path,
        info: RecordingInfo,
        index: int,
        *,
        commit_every_s: float | None = None,
        reopen: bool = False,
    ) -> None:
        self.info = info
        self.index = index
        self.final = folder / "episodes" / f"{index:06d}.h5"
        self.partial = self.final.with_suffix(".h5.partial")
        self.commit_every_s = commit_every_s
        self._clocks: dict[str, int] = {}
        self._pending: dict[str, list[tuple[int, int, Any]]] = {view.name: [] for view in info.views}
        self._pending_bytes = dict.fromkeys(self._pending, 0)
        self._frames = dict.fromkeys(self._pending, 0)
        self._last_ns: dict[str, int] = {}
        self._names: dict[str, set[str]] = {}  # of each group's columns
        self._committed_s = time.monotonic()
        with disk_errors(self.partial, SEALED_IS_SAFE):
            self._disk = JournaledFile.reopen(self.partial) if reopen else JournaledFile.create(self.partial)
        try:
            self._reopen() if reopen else self._begin()
        except BaseException:
            self._disk.close()
            raise

    def _begin(self) -> None:
        with self._writing():
            self.file = h5py.File(self._disk, "w")  # default libver
            self._columns = Columns(self.file)
            self._set("schema", EPISODE_SCHEMA)
            self._set("index", self.index)
            self._columns.create("joints/time_ns", np.int64, ())
            self._columns.create("joints/position", np.float64, (len(self.info.joints),))
        self.clocks(start=(time.monotonic_ns(), time.time_ns()))

    def _reopen(self) -> None:
        try:
            self.file = h5py.File(self._disk, "r+")
            self._columns = Columns(self.file)
            schema, own = self.file.attrs["schema"], int(self.file.attrs["index"])
            joints = self.file["joints/position"].shape[1]
            self._clocks = {
                name: int(self.file.attrs[name]) for name in self.file.attrs if name.endswith("_ns")
            }
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise Unreadable(self.partial, f"is not an episode: {error}") from None
        if joints != len(self.info.joints):
            raise Unreadable(self.partial, f"has {joints} joints, the recording {len(self.info.joints)}")
        if (schema, own) != (EPISODE_SCHEMA, self.index):
            raise Unreadable(self.partial, f"is episode {own} of {schema} by its own word")

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
        """Append joint samples; each call gives the same columns.

        Parameters
        ----------
        time_ns : int (n,), midpoint of each bus transaction.
        position : (n, J) in the joints' units; must be finite: a failed read has no row, but a fault.
        raw : (n, J), the values as they came: ticks of a servo, or what an import's source says.
        source_timestamp : (n,), imports only: seconds, as they came.
        quantities : (n, J) each: `velocity` (rad/s), `load` (fraction), `current` (A), `temperature` (deg C),
            `voltage` (V).
        """
        unknown = set(quantities) - set(JOINT_QUANTITIES)
        if unknown:
            raise TypeError(
                f"unknown joint quantities {sorted(unknown)}; known: {', '.join(JOINT_QUANTITIES)}"
            )
        position = np.atleast_2d(np.asarray(position, np.float64))
        where = f"{self.final.name}, joints from row {self._columns.length('joints/time_ns')}"
        _require_finite(position, self.info.joint_names, where)
        columns = {"position": position, **quantities, "raw": raw}
        self._rows("joints", time_ns, columns, len(self.info.joints), {"source_timestamp": source_timestamp})

    def actions(self, time_ns: Any, target: np.ndarray, raw: np.ndarray | None = None) -> None:
        """Append what was sent: `time_ns` (m,), `target` (m, A), `raw` (m, A) for imports."""
        if self.info.actions is None:
            raise InputError("actions", "recording.yaml declares none", "give RecordingInfo its actions")
        self._rows("actions", time_ns, {"target": target, "raw": raw}, len(self.info.actions.names))

    def knots(self, time_ns: Any, position: np.ndarray) -> None:
        """Append knots of a walk: `time_ns` (k,), `position` (k, J) in rad."""
        self._rows("knots", time_ns, {"position": position}, len(self.info.joints))

    def frame(self, view: str, time_ns: int, sequence: int, frame: np.ndarray | bytes) -> None:
        """Append one frame: uint8 RGB (H, W, 3) for `rgb8`, the camera's own bytes for `jpeg`."""
        declared = self.info.view(view)
        group = f"views/{view}"
        if declared.encoding == "video":
            raise InputError(
                f"view {view}", "is a video: its packets are stored at once", "use EpisodeWriter.video"
            )
        if declared.encoding == "rgb8":
            expected = (declared.height, declared.width, 3)
            if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.shape != expected:
                raise InputError(
                    f"view {view}", f"a frame is not uint8 {expected}", "render it at the declared size"
                )
        self._check_times(group, [time_ns], 1)
        self._frames[view] += 1
        # copied: cameras and renderers reuse their buffers
        if isinstance(frame, np.ndarray) and declared.encoding == "rgb8":
            self._pending[view].append((time_ns, sequence, frame.copy()))
            self._pending_bytes[view] += frame.nbytes
            whole = self._frames[view] % _frames_a_chunk(frame) == 0  # each chunk is compressed once
        else:
            self._pending[view].append((time_ns, sequence, bytes(frame)))
            self._pending_bytes[view] += len(frame)
            whole = self._pending_bytes[view] >= CHUNK_BYTES
        if whole:
            self._write_pending(view)
        self._commit_if_due()

    def frame_count(self, view: str) -> int:
        """Frames of `view` so far."""
        return self._frames[view]

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
        times = self._check_times(group, time_ns, len(pts))
        with self._writing():
            self._columns.append(f"{group}/video", np.frombuffer(container, np.uint8), chunk=CHUNK_BYTES)
            attrs = self.file[f"{group}/video"].attrs
            attrs["skip"] = skip
            attrs["time_base_numerator"] = time_base.numerator
            attrs["time_base_denominator"] = time_base.denominator
            self._columns.append(f"{group}/pts", np.asarray(pts, np.int64))
            self._columns.append(f"{group}/time_ns", times)
            self._columns.append(f"{group}/sequence", np.arange(len(pts)))
        self._frames[view] += len(pts)
        self._commit_if_due()

    def fault(self, kind: str, stream: str, message: str, time_ns: int = 0) -> None:
        """Note a fault; it travels with the episode and is counted in the manifest."""
        line = (
            json.dumps({"time_ns": int(time_ns), "kind": kind, "stream": stream, "message": message}) + "\n"
        )
        with self._writing():
            self._columns.append("faults", np.frombuffer(line.encode(), np.uint8), chunk=4096)

    def notes(self, notes: Mapping[str, Any]) -> None:
        """Keep facts about the episode (JSON values, up to some KiB) beside its streams."""
        with self._writing():
            self._set("notes", json.dumps(notes, sort_keys=True))

    def clocks(self, *, start: tuple[int, int] | None = None, end: tuple[int, int] | None = None) -> None:
        """State (monotonic, wall) pairs in ns, where they are not 'now' (simulated time, imports)."""
        for name, pair in (("start", start), ("end", end)):
            for clock, value in zip(("monotonic", "wall"), pair or ()):
                self._clocks[f"{name}_{clock}_ns"] = int(value)
        self._write_clocks("start")  # an end in the file says that it is whole

    # -- commits and sealing ---------------------------------------------------------------------------------

    def commit(self) -> None:
        """Bring all that was appended to the disk: from now on it survives a kill and a loss of power."""
        with self._writing():
            for view in self._pending:
                self._write_pending(view)
            self.file.flush()
            self._disk.commit()
        self._committed_s = time.monotonic()

    def seal(self) -> ManifestLine:
        """Write what is pending, fsync, rename, fsync the folder; returns the line for the manifest."""
        if not self.is_whole:
            if "end_wall_ns" not in self._clocks:
                self.clocks(end=(time.monotonic_ns(), time.time_ns()))
            self._compare_clocks()
            self._write_clocks("end")
        with self._writing():
            for view in self._pending:
                self._write_pending(view)
            self.file.close()
            self._disk.raise_error()
            self._disk.finish()
            self._disk.close()
        line = manifest_line(self.partial, self.info, self.index)
        with disk_errors(self.partial, SEALED_IS_SAFE):
            os.replace(self.partial, self.final)
            fsync_path(self.final.parent)
            journal_path(self.partial).unlink(missing_ok=True)
        return line

    @property
    def is_whole(self) -> bool:
        """Whether the file is all that was to be sealed: a run may be killed just before the renaming."""
        return "end_monotonic_ns" in self.file.attrs

    def abandon(self) -> None:
        """Close without sealing; the `.partial` file stays, as of its last commit."""
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            self.file.close()
        self._disk.close()

    def discard(self) -> None:
        """Close and remove the `.partial` file."""
        self.abandon()
        with disk_errors(self.partial, SEALED_IS_SAFE):
            self.partial.unlink(missing_ok=True)  # before its journal: half of it must not look whole
            journal_path(self.partial).unlink(missing_ok=True)

    # -- inside ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """The disk's errors, which HDF5 must not see, and HDF5's own, as one InputError."""
        try:
            yield
            self._disk.raise_error()
        except (OSError, RuntimeError) as error:
            raise disk_error(self.partial, self._disk.error or error, SEALED_IS_SAFE) from None

    def _commit_if_due(self) -> None:
        waiting = self._disk.uncommitted_bytes + sum(self._pending_bytes.values())
        late = self.commit_every_s is not None and time.monotonic() - self._committed_s > self.commit_every_s
        if late or waiting > MAX_UNCOMMITTED_BYTES:
            self.commit()

    def _write_clocks(self, which: str) -> None:
        with self._writing():
            for name, value in self._clocks.items():
                if name.startswith(which):
                    self._set(name, value)

    def _compare_clocks(self) -> None:
        """A wall clock that was set during the episode is a fault; 0 stands for one that is not known."""
        start, end = (self._clocks[f"{name}_wall_ns"] for name in ("start", "end"))
        elapsed_ns = self._clocks["end_monotonic_ns"] - self._clocks["start_monotonic_ns"]
        step_s = (end - start - elapsed_ns) / 1e9
        if start and end and abs(step_s) > WALL_CLOCK_STEP_S:
            self.fault(
                "wall_clock_stepped",
                "clocks",
                f"the wall clock was set by {step_s:+.1f} s during the episode; all stamps are monotonic",
                self._clocks["end_monotonic_ns"],
            )

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

    def _rows(
        self,
        group: str,
        time_ns: Any,
        wide: Mapping[str, Any],
        width: int,
        narrow: Mapping[str, Any] | None = None,
    ) -> None:
        """Append rows to all columns of a group: `wide` ones (n, width), `narrow` ones (n,); None is none."""
        columns = {
            name: np.atleast_2d(np.asarray(values, np.float64))
            for name, values in wide.items()
            if values is not None
        }
        columns |= {
            name: np.asarray(values, np.float64)
            for name, values in (narrow or {}).items()
            if values is not None
        }
        count = len(next(iter(columns.values())))
        for name, values in columns.items():
            expected = (count, width) if name in wide else (count,)
            if values.shape != expected:
                where = f"{self.final.name}, {group}/{name}"
                raise InputError(where, f"rows have shape {values.shape}, expected {expected}")
        known = self._names.setdefault(group, set(columns))
        if known != set(columns):
            raise InputError(
                f"{self.final.name}, {group}",
                f"columns {', '.join(sorted(columns))} after {', '.join(sorted(known))}",
                "give each call the same columns: a row belongs to all of them",
            )
        times = self._check_times(group, time_ns, count)
        with self._writing():
            for name, values in columns.items():
                self._columns.append(f"{group}/{name}", values)
            self._columns.append(f"{group}/time_ns", times)
        self._commit_if_due()

    def _write_pending(self, view: str) -> None:
        if not self._pending[view]:
            return
        group = f"views/{view}"
        times, sequences, frames = zip(*self._pending[view])
        with self._writing():
            if isinstance(frames[0], bytes):
                lengths = np.array([len(frame) for frame in frames])
                start = self._columns.length(f"{group}/data")
                self._columns.append(
                    f"{group}/data", np.frombuffer(b"".join(frames), np.uint8), chunk=CHUNK_BYTES // 4
                )
                self._columns.append(f"{group}/offset", start + np.cumsum(lengths) - lengths)
                self._columns.append(f"{group}/length", lengths)
            else:
                self._columns.append(f"{group}/frames", np.stack(frames), chunk=_frames_a_chunk(frames[0]))
            self._columns.append(f"{group}/sequence", np.array(sequences, np.int64))
            self._columns.append(f"{group}/time_ns", np.array(times, np.int64))
        self._pending[view].clear()
        self._pending_bytes[view] = 0

    def _set(self, name: str, value: Any) -> None:
        """Set an attribute; in place where it exists, since h5py would make another under a random name."""
        if name in self.file.attrs:
            self.file.attrs.modify(name, value)
        else:
            self.file.attrs[name] = value


def _frames_a_chunk(frame: np.ndarray) -> int:
    return max(1, CHUNK_BYTES // frame.nbytes)
