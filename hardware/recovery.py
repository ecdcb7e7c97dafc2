"""What a killed run left behind, sealed: nothing committed is lost, and nothing sealed is ever rewritten."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from hardware.disk import disk_errors, fsync_path
from hardware.episode import Episode, _refuse_foreign
from hardware.episode_writer import SEALED_IS_SAFE, EpisodeWriter, Unreadable
from hardware.errors import InputError
from hardware.journal import journal_path, replay
from hardware.manifest import NEWLINE, manifest_line
from hardware.recording import Progress, RecordingWriter, is_unborn
from hardware.schema import RecordingInfo

COLUMNS = {  # what a row of each stream has; further columns of the group belong to it as well
    "joints": ("time_ns", "position"),
    "actions": ("time_ns", "target"),
    "knots": ("time_ns", "position"),
    "rgb8": ("time_ns", "sequence", "frames"),
    "jpeg": ("time_ns", "sequence", "offset", "length"),
    "video": ("time_ns", "sequence", "pts"),
}


@dataclass(frozen=True)
class Salvaged:
    """What is left of an episode that was cut off."""

    seconds: float
    rows: int
    frames: dict[str, int]


@dataclass(frozen=True)
class RecoveryReport:
    """What `recover` found and did; empty where the recording was in order.

    Attributes
    ----------
    adopted : whole episodes that the manifest lacked.
    salvaged : episodes that were cut off and are sealed now.
    empty : files without a row, removed.
    unreadable : files that are no episode, as they are named now.
    changed : sealed episodes that are missing or are not what the manifest says; they were left alone.
    cut_torn_line : whether a last line of the manifest was cut off.
    """

    adopted: list[int] = field(default_factory=list)
    salvaged: dict[int, Salvaged] = field(default_factory=dict)
    empty: list[int] = field(default_factory=list)
    unreadable: list[Path] = field(default_factory=list)
    changed: dict[int, str] = field(default_factory=dict)
    cut_torn_line: bool = False

    def lines(self) -> list[str]:
        """The report in sentences."""
        said = []
        if self.cut_torn_line:
            said.append("the manifest's last line was torn and is cut")
        said += [f"episode {index} was whole and is in the manifest now" for index in self.adopted]
        for index, left in self.salvaged.items():
            frames = ", ".join(f"{view} {count}" for view, count in left.frames.items())
            said.append(
                f"episode {index} was cut off and is sealed: {left.seconds:.1f} s, {left.rows} joint rows"
                + (f", frames {frames}" if frames else "")
            )
        said += [f"episode {index} held nothing yet and is removed" for index in self.empty]
        said += [f"{path} is no episode any more: set aside" for path in self.unreadable]
        said += [f"episode {index} {problem}: left alone" for index, problem in self.changed.items()]
        return said or ["everything was in order"]


def unfinished(folder: str | Path) -> bool:
    """Whether `folder` is a recording that a run left with something to recover; changes nothing."""
    folder = Path(folder)
    if not (folder / "recording.yaml").is_file():
        return False
    manifest = folder / "manifest.jsonl"
    data = manifest.read_bytes() if manifest.is_file() else b""
    torn = bool(data) and not data.endswith(NEWLINE)
    files = (folder / "episodes").glob("*.h5")
    return (
        torn
        or bool(_partials(folder))
        or any(f'"episodes/{path.name}"'.encode() not in data for path in files)
    )


def recover(folder: str | Path, progress: Progress | None = None) -> RecoveryReport:
    """Seal what a killed run left behind in a recording; may be killed and repeated.

    A `.partial` file is brought to its last commit, trimmed to rows that are whole in every column, given the
    end clocks and the fault `recovered` of an episode that was cut off, and sealed.

    Raises
    ------
    InputError
        where `folder` is no recording, is being written by another process, or cannot be written.
    """
    folder = Path(folder)
    if is_unborn(folder):
        return RecoveryReport()
    with RecordingWriter.reopen(folder) as writer:
        report = RecoveryReport(cut_torn_line=writer.cut_torn_line)
        sealed, unlisted, partials = writer.manifest, writer.unlisted(), _partials(folder)
        total, done = len(sealed) + len(unlisted) + len(partials), itertools.count(1)
        for line in sealed:
            try:
                Episode(folder, writer.info, line).verify()
            except InputError as error:
                report.changed[line.episode] = error.problem
            _tell(progress, next(done), total, f"checking episode {line.episode}")
        for path in unlisted:
            try:
                found = manifest_line(path, writer.info, int(path.stem))
            except InputError:
                report.unreadable.append(_set_aside(path))
            else:
                writer.add(found)
                report.adopted.append(found.episode)
            _tell(progress, next(done), total, f"adopting {path.name}")
        for path in partials:
            _salvage(writer, path, report)
            _tell(progress, next(done), total, f"salvaging {path.name}")
        _tidy(folder)
    return report


def _salvage(writer: RecordingWriter, path: Path, report: RecoveryReport) -> None:
    index = int(path.name.partition(".")[0])
    if index in writer.sealed:
        report.unreadable.append(_set_aside(path))
        return
    with disk_errors(path, SEALED_IS_SAFE):
        replay(path)
        if path.stat().st_size == 0:  # killed before its first commit
            path.unlink()
            report.empty.append(index)
            return
    try:
        episode = EpisodeWriter(writer.folder, writer.info, index, reopen=True)
    except Unreadable:
        report.unreadable.append(_set_aside(path))
        return
    try:
        rows, cut = _trim(episode.file, writer.info)
        if rows == 0:
            episode.discard()
            report.empty.append(index)
            return
        if cut or not episode.is_whole:
            _cut_off(episode, cut)
        line = episode.seal()
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        episode.abandon()
        if isinstance(error, InputError) and not isinstance(error, Unreadable):  # of the disk
            raise
        report.unreadable.append(_set_aside(path))
        return
    except BaseException:
        episode.abandon()
        raise
    writer.add(line)
    report.salvaged[index] = Salvaged(line.seconds, line.joint_rows, line.frames)


def _cut_off(episode: EpisodeWriter, cut: list[str]) -> None:
    """Give an episode the end and the fault of one that was cut off."""
    stamps: list[np.ndarray] = []
    episode.file.visititems(
        lambda name, item: stamps.append(item[()]) if name.endswith("time_ns") and len(item) else None
    )
    first, last = min(int(times[0]) for times in stamps), max(int(times[-1]) for times in stamps)
    start = episode.file.attrs.get("start_monotonic_ns")
    wall = episode.file.attrs.get("start_wall_ns")
    if start is None or wall is None or start > first:  # simulated time: its wall clock is not known
        start, wall = first, 0
    episode.clocks(start=(int(start), int(wall)), end=(last, int(wall) + last - int(start) if wall else 0))
    message = f"the run was killed: the episode ends with its last commit, {(last - start) / 1e9:.2f} s in"
    episode.fault("recovered", "episode", "; ".join([message, *cut]), last)


def _trim(file: h5py.File, info: RecordingInfo) -> tuple[int, list[str]]:
    """Cut every stream to the rows that are whole; (rows left in all of them, what was cut, in words)."""
    try:
        _refuse_foreign(file, Path(file.filename))
    except InputError as error:
        raise Unreadable(error.where, error.problem) from None
    views = [(f"views/{view.name}", view.encoding) for view in info.views]
    rows, cut = 0, []
    for name, kind in [("joints", "joints"), ("actions", "actions"), ("knots", "knots"), *views]:
        if name in file:
            before, left = _trim_stream(file[name], kind)
            rows += left
            if left < before:
                cut.append(f"{before - left} of {before} rows of {name} were damaged and are cut")
    if len(file["joints/time_ns"]) != len(file["joints/position"]):
        raise KeyError("joints")
    if "faults" in file:
        faults = file["faults"]
        faults.resize(_whole_lines(faults[: _readable(faults)].tobytes()), axis=0)
    return rows, cut


def _trim_stream(group: h5py.Group, kind: str) -> tuple[int, int]:
    """(rows that its longest column claims, rows left)."""
    whole = {"jpeg": "data", "video": "video"}.get(kind)  # a column of bytes, not of rows
    columns = [group[name] for name in group if name != whole]
    before = rows = max(map(len, columns), default=0)
    needed = {*COLUMNS[kind], *([whole] if whole else [])}
    rows = min(map(_readable, columns)) if needed <= set(group) else 0
    if kind == "jpeg" and rows:
        rows = _whole_frames(group, rows)
        group["data"].resize(
            sum(int(group[name][rows - 1]) for name in ("offset", "length")) if rows else 0, axis=0
        )
    if kind == "video" and rows and _readable(group["video"]) < len(group["video"]):
        rows = 0
    for column in columns:
        if len(column) > rows:
            column.resize(rows, axis=0)
    if rows == 0 and kind != "joints":
        del group.file[group.name]
    return before, rows


def _readable(data: h5py.Dataset) -> int:
    """Rows before the first chunk that is damaged: its checksum says so."""
    for start in range(0, len(data), data.chunks[0]):
        try:
            data[start : start + data.chunks[0]]
        except (OSError, RuntimeError):
            return start
    return len(data)


def _whole_frames(group: h5py.Group, rows: int) -> int:
    """Frames, of the first `rows`, whose bytes follow each other and are there."""
    offset, length = group["offset"][:rows], group["length"][:rows]
    ends = offset + length
    good = (offset == np.r_[0, ends[:-1]]) & (length >= 0) & (ends <= _readable(group["data"]))
    return rows if good.all() else int(np.argmin(good))


def _whole_lines(text: bytes) -> int:
    """Bytes of the JSON lines before the first that is none."""
    size = 0
    for line in text.split(NEWLINE)[:-1]:
        try:
            json.loads(line)["kind"]
        except (ValueError, KeyError, TypeError):
            break
        size += len(line) + len(NEWLINE)
    return size


def _partials(folder: Path) -> list[Path]:
    found = sorted((folder / "episodes").glob("*.h5.partial"))
    return [path for path in found if path.name.partition(".")[0].isdigit()]


def _set_aside(path: Path) -> Path:
    """Rename a file (and its journal) to `*.unreadable`, over nothing; returns its new path."""
    with disk_errors(path, SEALED_IS_SAFE):
        for number in itertools.count():
            ending = ".unreadable" + (f".{number}" if number else "")
            new = path.with_name(path.name + ending)
            if not new.exists():
                break
        if journal_path(path).exists():
            os.rename(journal_path(path), journal_path(new))
        os.rename(path, new)
        fsync_path(path.parent)
    return new


def _tidy(folder: Path) -> None:
    """Remove what belongs to nothing any more: half-written temporaries, journals of what is sealed."""
    episodes = folder / "episodes"
    left = [*folder.glob("*.yaml.partial"), *folder.glob("thumbnails/*.partial")]
    left += episodes.glob("*.journal.partial")
    left += [path for path in episodes.glob("*.partial.journal") if not path.with_suffix("").exists()]
    for path in left:
        with disk_errors(path):
            path.unlink()


def _tell(progress: Progress | None, done: int, total: int, what: str) -> None:
    if progress is not None:
        progress(done, total, what)
