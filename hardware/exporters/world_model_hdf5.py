"""A recording as one HDF5 file that LeWM and stable-worldmodel read (FORMATS.md says what is in it).

Chosen by measuring, frames of 224 x 224 read in windows of 20 rows from memory:

- Zstd at level 1 in chunks of about 1 MiB. Rendered frames take 2 % of their size and are read at 85 % of
  the speed of uncompressed ones, those decoded from a video 38 % at 59 %, noisy ones 99 % at the same speed.
  Blosc with LZ4 takes 6, 78 and 100 %. The published files are Zstd as well; their chunks of 100 frames are
  read 1.5 to 3 times slower.
- The file format of HDF5 1.10: what `libver="latest"` writes under HDF5 2 cannot be read by 1.14.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np

from hardware.alignment import align
from hardware.disk import disk_error, free_bytes
from hardware.episode import Episode
from hardware.errors import InputError
from hardware.exporters.choices import chosen_episodes, chosen_views, refuse_target
from hardware.exporters.report import REASONS
from hardware.exporters.rows import UNEVEN_PERIODS, actions_in_force
from hardware.exporters.staging import staging
from hardware.frames import resize
from hardware.importers.lerobot import ranges
from hardware.journaled_file import JournaledFile
from hardware.recording import Progress, Recording, software_versions
from hardware.schema import RecordingInfo

PIXELS = "pixels"
JOINTS = ("qpos", "proprio", "observation")  # one table under the names that configurations ask for
COLUMNS = (PIXELS, "action", *JOINTS, "ep_len", "ep_offset", "ep_idx", "step_idx")
CHUNK_BYTES = 1 << 20
CHUNK_ROWS = 4096  # of tables
SAMPLED_EPISODES = 8  # that say how well frames compress, where the space is short
SPARE = 1.1
NOTHING_KEPT = "nothing was kept, and the recording is as it was"


@dataclass(frozen=True)
class WorldModelRows:
    """The rows of one episode as they are exported.

    Attributes
    ----------
    episode : what they were recorded as.
    frame_index : frame numbers by view, int64 (n,).
    time_ns : int64 (n,), capture times of the first view's frames.
    position : float64 (n, J), in the recording's units.
    action : float64 (n, A), the action in force, NaN where none is and in the last row; None where none were
        recorded.
    dropped : rows left out, by reason.
    """

    episode: Episode
    frame_index: dict[str, np.ndarray]
    time_ns: np.ndarray
    position: np.ndarray
    action: np.ndarray | None
    dropped: dict[str, int]

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True)
class WorldModelReport:
    """What an export made.

    Attributes
    ----------
    file : the HDF5 file, and its size in `bytes`.
    episodes : their numbers in the recording; in the file they are counted from 0.
    rows, rate_hz : rows of all episodes, and rows a second as they were captured (median).
    columns : {column: view} of the pictures.
    units, action_units : unit of each joint, and of each action; no actions where none were recorded.
    dropped, left_out : rows left out, by reason, and episodes without frames of a view.
    uneven : steps between rows that are longer than 1.5 periods.
    """

    file: Path
    episodes: list[int]
    rows: int
    rate_hz: float
    columns: dict[str, str]
    units: dict[str, str]
    action_units: dict[str, str]
    dropped: dict[str, int]
    left_out: list[int]
    uneven: int
    bytes: int = 0
    software: dict[str, str] = field(default_factory=lambda: software_versions("hdf5plugin"))

    def lines(self) -> list[str]:
        """What was made and what to know about it, for a terminal."""
        pictures = ", ".join(f"{column} = {view}" for column, view in self.columns.items())
        size = f"{self.bytes / 1e6:,.1f} MB"
        lines = [
            f"{self.file}: {len(self.episodes)} episodes, {self.rows:,} rows, {size}, {pictures}",
            f"  captured at {self.rate_hz:.2f} rows a second; the format has no clock of its own",
        ]
        if not self.action_units:
            lines.append("  no action: the recording holds none; LeWM cannot be trained on it")
        if len({*self.units.values(), *self.action_units.values()}) > 1:
            lines.append(f"  units: {', '.join(f'{name} {unit}' for name, unit in self.units.items())}")
        if self.uneven:
            lines.append(f"  {self.uneven} steps are longer than 1.5 periods: rows are missing there")
        lines += [
            f"  {count} rows dropped: {REASONS.get(why, f'no frame of {why} close enough')}"
            for why, count in self.dropped.items()
        ]
        if self.left_out:
            lines.append(f"  left out: episodes {ranges(self.left_out)}, which lack frames of a view")
        return lines

    def describe(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "file": str(self.file)}


def export_world_model(
    recording: Recording | str | Path,
    to: str | Path,
    *,
    anchor: str | None = None,
    views: Sequence[str] | None = None,
    episodes: Sequence[int] | None = None,
    image_size: int | None = None,
    progress: Progress | None = None,
) -> WorldModelReport:
    """Write one HDF5 file for LeWM and stable-worldmodel.

    A row is a frame of the anchor view, `pixels`, with each other view's nearest frame, the joints at its
    time and the action in force (see FORMATS.md).

    Parameters
    ----------
    recording : opened, or its folder.
    to : file to make; it appears when it is whole.
    anchor : view whose frames make the rows; the first of `views` by default.
    views : views to export; all by default. Those beside the anchor are columns of their own names.
    episodes : numbers of the episodes; all that have frames of each view by default.
    image_size : pixels a side to resize frames to, each axis by itself; None leaves them as they are.
    progress : called as progress(frames done, frames, what).

    Raises
    ------
    InputError
        where `to` exists; for views or episodes that are not there, and view names that the format has for
        other columns; where nothing aligns; where the disk has no room.
    """
    recording = recording if isinstance(recording, Recording) else Recording.open(recording)
    to, info = Path(to), recording.info
    chosen = chosen_views(info, anchor, views)
    columns = _columns(chosen)
    if image_size is not None and not 0 < image_size <= 4096:
        raise InputError(
            "--image-size", f"{image_size} is no size of a picture", "use 1 to 4096 pixels a side"
        )
    refuse_target(recording, to)
    numbers, left_out = chosen_episodes(recording, chosen, episodes)
    rows = [_rows(recording.episode(number), chosen) for number in numbers]
    report = _report(to, info, columns, rows, left_out)
    sizes = {view: (image_size, image_size) if image_size else _size(info, view) for view in chosen}
    with staging(to) as path:
        _require_room(to, rows, sizes)
        _write(path, recording, report, rows, sizes, progress)
        report = replace(report, bytes=path.stat().st_size)
    return report


# -- what is written ---------------------------------------------------------------------------------------


def _columns(views: Sequence[str]) -> dict[str, str]:
    """{column: view}, the anchor under `pixels`."""
    for view in views[1:]:
        if view in COLUMNS:
            raise InputError(
                f"view {view}",
                "has the name of another column of the format",
                f"make it the anchor: --anchor {view}",
            )
    return {PIXELS: views[0], **{view: view for view in views[1:]}}


def _size(info: RecordingInfo, view: str) -> tuple[int, int]:
    return info.view(view).height, info.view(view).width


def _rows(episode: Episode, views: Sequence[str]) -> WorldModelRows:
    """The rows of one episode, from the first on at which an action is in force."""
    aligned = align(episode, views)
    log, dropped, first, action = episode.actions(), dict(aligned.dropped), 0, None
    if log is not None and len(log.time_ns):
        in_force = actions_in_force(aligned, log)
        there = np.flatnonzero(in_force >= 0)
        if not len(there):
            raise InputError(
                f"{episode.path}, actions", "all were sent after the last row", "leave the episode out"
            )
        first = int(there[0])
        action = np.where(in_force[:, None] >= 0, log.target[in_force], np.nan)[first:]
        action[-1] = np.nan  # what is sent there leads to no row
        if first:
            dropped["actions"] = first
    return WorldModelRows(
        episode,
        {view: index[first:] for view, index in aligned.frame_index.items()},
        aligned.time_ns[first:],
        aligned.position[first:],
        action,
        dropped,
    )


def _report(
    to: Path,
    info: RecordingInfo,
    columns: dict[str, str],
    rows: Sequence[WorldModelRows],
    left_out: list[int],
) -> WorldModelReport:
    without = [one.episode.index for one in rows if one.action is None]
    if info.actions is not None and 0 < len(without) < len(rows):
        raise InputError(
            "actions", f"are missing in episodes {ranges(without)}", "export those episodes apart"
        )
    steps = np.concatenate([np.diff(one.time_ns) for one in rows])
    steps = steps[steps > 0]
    fps = info.view(columns[PIXELS]).fps
    dropped: dict[str, int] = {}
    for one in rows:
        for reason, count in one.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    actions = None if without else info.actions
    return WorldModelReport(
        file=to,
        episodes=[one.episode.index for one in rows],
        rows=sum(map(len, rows)),
        rate_hz=round(float(1e9 / np.median(steps)), 4) if len(steps) else fps,
        columns=columns,
        units={joint.name: joint.unit for joint in info.joints},
        action_units={name: actions.unit for name in actions.names} if actions else {},
        dropped=dropped,
        left_out=left_out,
        uneven=int((steps > UNEVEN_PERIODS * 1e9 / fps).sum()),
    )


def _frames(rows: Sequence[WorldModelRows], view: str, size: tuple[int, int]) -> Iterator[np.ndarray]:
    """The frames of a view in all episodes, uint8 (H, W, 3)."""
    for one in rows:
        for image in one.episode.frames(view, one.frame_index[view]):
            yield resize(image, size)


# -- writing -----------------------------------------------------------------------------------------------


def _write(
    path: Path,
    recording: Recording,
    report: WorldModelReport,
    rows: Sequence[WorldModelRows],
    sizes: dict[str, tuple[int, int]],
    progress: Progress | None,
) -> None:
    """Write the whole file. HDF5 must not see errors of the disk: it could not close the file any more."""
    disk = JournaledFile.create(path)
    try:
        with h5py.File(disk, "w", libver=("v110", "v110")) as file:
            file.attrs["made_by"] = f"jointprobe {report.software['jointprobe']}"
            file.attrs["recording"] = recording.folder.resolve().name
            file.attrs["manifest_sha256"] = recording.manifest_sha256
            file.attrs["episodes"] = ranges(sorted(report.episodes))
            file.attrs["fps"] = report.rate_hz
            _write_tables(file, recording.info, report, rows)
            done, total = 0, report.rows * len(report.columns)
            for column, view in report.columns.items():
                data = _picture_dataset(file, column, report.rows, sizes[view])
                data.attrs["view"] = view
                frames, at = _frames(rows, view, sizes[view]), 0
                while block := list(islice(frames, data.chunks[0])):
                    data[at : at + len(block)] = np.stack(block)
                    disk.raise_error()
                    at, done = at + len(block), done + len(block)
                    if progress is not None:
                        progress(done, total, f"view {view}")
        disk.raise_error()
        disk.finish()
    except (OSError, RuntimeError) as error:
        raise disk_error(report.file, disk.error or error, NOTHING_KEPT) from None
    finally:
        disk.close()


def _write_tables(
    file: h5py.File, info: RecordingInfo, report: WorldModelReport, rows: Sequence[WorldModelRows]
) -> None:
    """Everything but the pictures: a few numbers a row."""
    lengths = [len(one) for one in rows]
    position = np.concatenate([one.position for one in rows])
    tables = {
        "ep_len": np.array(lengths, np.int32),
        "ep_offset": np.cumsum([0, *lengths[:-1]], dtype=np.int64),
        "ep_idx": np.repeat(np.arange(len(rows)), lengths),
        "step_idx": np.concatenate([np.arange(length) for length in lengths]),
        "qpos": position,  # as MuJoCo has it, float64; what networks are fed is float32, as published
        "proprio": position.astype(np.float32),
        "observation": position.astype(np.float32),
    }
    if report.action_units:
        tables["action"] = np.concatenate([one.action for one in rows]).astype(np.float32)
    for name, values in tables.items():
        chunks = (min(len(values), CHUNK_ROWS), *values.shape[1:])
        file.create_dataset(name, data=values, chunks=chunks, maxshape=(None, *values.shape[1:]))
    for name in JOINTS:
        _describe(file[name], list(report.units), list(report.units.values()))
    if report.action_units:
        _describe(file["action"], list(report.action_units), list(report.action_units.values()))
        file["action"].attrs["meaning"] = info.actions.meaning if info.actions else ""


def _describe(data: h5py.Dataset, names: list[str], units: list[str]) -> None:
    data.attrs["names"], data.attrs["units"] = json.dumps(names), json.dumps(units)


def _picture_dataset(file: h5py.File, name: str, rows: int, size: tuple[int, int]) -> h5py.Dataset:
    shape = (*size, 3)
    chunk = min(rows, max(1, CHUNK_BYTES // int(np.prod(shape))))
    return file.create_dataset(
        name,
        (rows, *shape),
        np.uint8,
        chunks=(chunk, *shape),
        maxshape=(None, *shape),
        **hdf5plugin.Zstd(clevel=1),
    )


# -- room on the disk --------------------------------------------------------------------------------------


def _require_room(to: Path, rows: Sequence[WorldModelRows], sizes: dict[str, tuple[int, int]]) -> None:
    """InputError where the file will not fit; how well frames compress is tried where it might not."""
    total, free = sum(map(len, rows)), free_bytes(to)
    tables = total * (rows[0].position.shape[1] * 16 + 64)
    raw = {view: total * int(np.prod(size)) * 3 for view, size in sizes.items()}
    if (tables + sum(raw.values())) * SPARE <= free:
        return
    needed = SPARE * (tables + sum(raw[view] * _share(rows, view, size) for view, size in sizes.items()))
    if needed > free:
        raise InputError(
            to,
            f"would take about {needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free",
            "free space, or export fewer episodes or smaller frames: --episodes, --image-size",
        )


def _share(rows: Sequence[WorldModelRows], view: str, size: tuple[int, int]) -> float:
    """The share of their size that frames take, by the first chunk of some episodes."""
    sampled = rows[:: -(-len(rows) // SAMPLED_EPISODES)]
    with h5py.File("sample", "w", driver="core", backing_store=False) as file:
        stored = raw = 0
        for number, one in enumerate(sampled):
            chunk = min(len(one), max(1, CHUNK_BYTES // (int(np.prod(size)) * 3)))
            data = _picture_dataset(file, str(number), chunk, size)
            data[:] = np.stack(list(islice(_frames([one], view, size), chunk)))
            file.flush()
            stored, raw = stored + data.id.get_storage_size(), raw + data.nbytes
    return stored / raw
