"""The import itself: a source in, a recording out, each count compared on the way."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

from hardware.calibration import Calibration, load_calibration
from hardware.episode_writer import EpisodeWriter
from hardware.errors import InputError
from hardware.importers import aloha, lerobot_formats, parquet_folder, world_model_hdf5
from hardware.importers.pictures import Pictures
from hardware.importers.source import Disagreements, Rows, Source
from hardware.importers.units import Conversion, Seen, plan_actions, plan_conversions, seen_in
from hardware.importers.video import Clip, VideoUnreadable
from hardware.recording import Progress, Recording, RecordingWriter, host_facts, software_versions
from hardware.schema import Actions, RecordingInfo, View, parse_model

FORMATS: tuple[ModuleType, ...] = (lerobot_formats, parquet_folder, world_model_hdf5, aloha)
"""Formats that can be imported: modules with `KNOWN` (for people), `detect(path)`, `read(path, fps)`."""


MANY_EPISODES = 500  # whose tables take long enough to be told of


@dataclass(frozen=True)
class ImportReport:
    """What an import made.

    Attributes
    ----------
    recording : folder of the recording.
    episodes : numbers of its episodes, which are those of the source.
    rows, frames : joint rows, and frames by view.
    missing : what the source names and does not hold, in words.
    faults : recorded disagreements, in words, each with its episode.
    """

    recording: Path
    episodes: list[int]
    rows: int
    frames: dict[str, int]
    missing: list[str]
    faults: list[str]


def import_recording(
    source: str | Path,
    to: str | Path,
    *,
    unit: str | None = None,
    calibrations: Mapping[str, str | Path] | None = None,
    lenient: bool = False,
    fps: float | None = None,
    joints_from: str | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Make a recording of a set in another format.

    Called again with the same arguments it goes on with the episodes that are not sealed yet.

    Parameters
    ----------
    source : folder or file of the set; it is only read.
    to : folder of the recording, new or begun by the same import.
    unit : `ticks`, `degrees`, `normalized` or `radians`, of every joint of the set. It is never guessed:
        without it, an InputError shows the ranges and what each unit would mean.
    calibrations : LeRobot calibration files, by the prefix of the joints they serve ("" for all).
    lenient : keep what disagrees (counts, positions, values that are not numbers, damaged pictures) as
        recorded faults.
    fps : declared rows a second of a set that declares none. Where the set has a clock, its stamps are kept
        as they are all the same; where it has none, row i is at i / fps.
    joints_from : the column that holds the joints, of a set in LeWM's HDF5 whose names do not tell.
    progress : called as progress(done, total, what) after each episode; of a large set also before, while its
        tables are read.
    """
    folder = Path(source)
    opened = open_source(folder, fps, joints_from)
    inside = Path(os.path.realpath(to))  # Path.resolve raises on a loop of links
    if inside.is_relative_to(os.path.realpath(folder)):
        raise InputError(
            to, f"lies inside the source {folder}, which is only read", "choose a folder outside of it"
        )
    loaded = {prefix: load_calibration(path) for prefix, path in (calibrations or {}).items()}
    episodes, seen, left_out = _survey(opened, lenient, progress)
    conversions = plan_conversions(opened.joint_names, seen, unit, loaded, folder)
    missing = [*opened.missing, *left_out]
    info = _describe(opened, conversions, str(unit), loaded, missing, lenient, episodes)
    with RecordingWriter.resume(to, info) as writer:
        for done, episode in enumerate(episodes, start=1):
            if episode not in writer.sealed:
                _import_episode(writer, opened, episode, conversions, lenient)
            if progress is not None:
                progress(done, len(episodes), f"episode {episode}")
    return _report(Recording.open(to), missing)


def open_source(path: Path, fps: float | None = None, joints_from: str | None = None) -> Source:
    """The set in `path`, a folder or a file, by the first format that knows it."""
    if not path.exists():
        raise InputError(
            path,
            "is not a folder, nor a file",
            "give the folder of the set (for LeRobot, the one that holds meta/)",
        )
    for known in FORMATS:
        if known.detect(path):
            if known is world_model_hdf5:
                return known.read(path, fps, joints_from)
            if joints_from is not None:
                raise InputError(
                    "--joints-from", f"is for {world_model_hdf5.KNOWN} alone", "leave it out: the format says"
                )
            return known.read(path, fps)
    names = "; ".join(known.KNOWN for known in FORMATS)
    raise InputError(path, "is in no format that can be imported", f"known: {names}")


def _survey(
    source: Source, lenient: bool, progress: Progress | None
) -> tuple[list[int], list[Seen], list[str]]:
    """Read every table once: (episodes that can be read, what their joints hold, words for the others).

    An episode that cannot be read is an error unless lenient.
    """
    episodes: list[int] = []
    left_out: list[str] = []

    def states() -> Iterator[np.ndarray]:
        for done, episode in enumerate(source.episodes, start=1):
            if progress is not None and len(source.episodes) >= MANY_EPISODES:
                progress(done, len(source.episodes), "reading tables")
            try:
                state = source.rows(episode, Disagreements(str(source.folder), lenient=True)).state
                if lenient and not np.isfinite(state[0]).all():
                    raise InputError(
                        f"{source.folder}, episode {episode}", "its first row already holds no numbers"
                    )
            except InputError as error:
                if not lenient:
                    raise
                left_out.append(f"episode {episode} is left out: {error.where}: {error.problem}")
            else:
                episodes.append(episode)
                yield state

    seen = seen_in(states(), len(source.joint_names))
    if not episodes:
        raise InputError(
            source.folder, f"no episode can be read ({'; '.join(left_out)[:300]})", "restore the set"
        )
    return episodes, seen, left_out


def _describe(
    source: Source,
    conversions: list[Conversion],
    unit: str,
    calibrations: Mapping[str, Calibration],
    missing: list[str],
    lenient: bool,
    episodes: list[int],
) -> RecordingInfo:
    actions = None
    if source.action_names:
        action_unit, meaning, _ = plan_actions(source.action_names, conversions)
        actions = Actions(names=source.action_names, unit=action_unit, meaning=meaning)
    sized = [view for view in source.views if view.width and view.height]
    missing.extend(
        f"view {view.name}: no video of it can be read" for view in source.views if view not in sized
    )
    fields = dict(
        robot=source.robot,
        joints=[conversion.joint for conversion in conversions],
        actions=actions,
        views=[
            {
                "name": view.name,
                "width": view.width,
                "height": view.height,
                "fps": view.fps,
                "encoding": view.encoding,
            }
            for view in sized
        ],
        joints_hz=source.fps,
        pairing="row",
        motion="imported",
        calibration={prefix or "all": one.describe() for prefix, one in calibrations.items()} or None,
        source={
            "format": source.format,
            "version": source.version,
            "unit": unit,
            "fps": source.fps,
            "robot_type": source.robot,
            "lenient": lenient,
            "missing": missing,
            "episodes": episodes,
            "info_sha256": source.metadata_sha256,
            **({"facts": source.facts} if source.facts else {}),
        },
        software=software_versions("av", "pyarrow"),
        host=host_facts(),
    )
    return parse_model(RecordingInfo, fields, source.folder)


def _import_episode(
    writer: RecordingWriter, source: Source, episode: int, conversions: list[Conversion], lenient: bool
) -> None:
    where = f"{source.folder}, episode {episode}"
    disagreements = Disagreements(where, lenient)
    rows = source.rows(episode, disagreements)
    clips = {view.name: _clip(source, episode, view, disagreements) for view in writer.info.views}
    counted = {
        name: clip
        for name, clip in clips.items()
        if clip is not None and not (isinstance(clip, Pictures) and clip.problem)  # whose end is explained
    }
    _compare_counts(rows, counted, disagreements)
    keep = _finite_rows(rows, source, disagreements)
    time_ns = _row_times(rows, source.fps)[:keep]
    with writer.episode(episode) as sealed:
        _write_joints(sealed, rows, time_ns, source, conversions)
        for name, clip in clips.items():
            if isinstance(clip, Pictures):
                _write_pictures(sealed, name, clip, time_ns, disagreements)
            elif clip is not None and len(clip):
                _write_clip(sealed, name, clip, min(keep, len(clip)))
        for fault in disagreements.faults:
            sealed.fault(fault.kind, fault.stream, fault.message)


def _clip(source: Source, episode: int, view: View, disagreements: Disagreements) -> Clip | Pictures | None:
    """The frames of an episode; where none can be used, a fault says so and the joints stay."""
    try:
        clip = source.clip(episode, view.name, disagreements)
    except VideoUnreadable as error:
        disagreements.note(
            "video_unreadable",
            view.name,
            f"view {view.name}: {error.where} {error.problem}",
            error.remedy,
        )
        return None
    if clip is None and view.encoding == "video":
        disagreements.record("no_video", view.name, f"view {view.name}: its video is not in the source")
    elif isinstance(clip, Pictures) and clip.header.encoding != view.encoding:
        message = f"view {view.name}: its pictures are no {view.encoding}, as those of the other episodes are"
        disagreements.note("picture_kind", view.name, message, "import the episode apart")
        return None
    elif clip is not None and len(clip) and (clip.width, clip.height) != (view.width, view.height):
        pictures = isinstance(clip, Pictures)
        disagreements.note(
            "picture_size" if pictures else "video_size",
            view.name,
            f"view {view.name}: its {'pictures are' if pictures else 'video is'} {clip.width}x{clip.height}, "
            f"that of the other episodes {view.width}x{view.height}",
            "restore the pictures" if pictures else "restore the video",
        )
        return None
    if isinstance(clip, Pictures) and clip.problem is not None:
        message = f"view {view.name}: {clip.problem.message}"
        if disagreements.lenient:
            message += f"; its frames from {len(clip)} on are left out, since rows pair by number"
        disagreements.note(
            clip.problem.kind, view.name, message, "restore the file, or leave the episode out"
        )
    if isinstance(clip, Pictures) and clip.damaged:
        first, *others = clip.damaged.values()
        message = f"view {view.name}: {first}" + (f" (and {len(others)} more)" if others else "")
        if disagreements.lenient:
            message += "; kept as it came"
        remedy = "restore the file, or leave the episode out"
        disagreements.note("picture_damaged", view.name, message, remedy)
    return clip


def _compare_counts(rows: Rows, clips: Mapping[str, Clip | Pictures], disagreements: Disagreements) -> None:
    """Rows, decoded frames and the metadata's length must be one number."""
    remedy = "frames or rows were lost when the set was written: leave the episode out"
    claimed = len(rows) if rows.length is None else rows.length
    in_metadata = "" if rows.length is None else f", {rows.length} in the metadata"
    if not clips and len(rows) != claimed:
        disagreements.note("count", "joints", f"{len(rows)} rows{in_metadata}", remedy)
    for name, clip in clips.items():
        if not len(rows) == len(clip) == claimed:
            paired = min(len(rows), len(clip))
            disagreements.note(
                "count",
                name,
                f"view {name}: {len(rows)} rows, {len(clip)} decoded frames{in_metadata}"
                + (f"; the first {paired} rows are paired with frames" if disagreements.lenient else ""),
                remedy,
            )


def _finite_rows(rows: Rows, source: Source, disagreements: Disagreements) -> int:
    """Number of rows to keep: all, or (lenient) those before the first whose joints are not numbers."""
    bad = np.argwhere(~np.isfinite(rows.state))
    keep = int(bad[0, 0]) if len(bad) else len(rows)
    if len(bad):
        message = _not_finite("joint", source.joint_names, rows.state, bad)
        if disagreements.lenient:
            message += f"; rows from {keep} are cut off, since one left out would part rows from frames"
        disagreements.note("not_finite", "joints", message, "leave the episode out")
    if rows.action is not None:
        bad = np.argwhere(~np.isfinite(rows.action))
        if len(bad):
            message = _not_finite("action", source.action_names, rows.action, bad, rows.acted)
            disagreements.note("not_finite", "actions", message, "leave the episode out")
    return keep


def _not_finite(
    what: str, names: list[str], values: np.ndarray, bad: np.ndarray, numbers: np.ndarray | None = None
) -> str:
    """Words for the first of `bad`, (row, column) of `values`, whose rows are `numbers` of the episode."""
    row, column = bad[0]
    number = row if numbers is None else numbers[row]
    value = values[row, column]
    return f"row {number}, {what} {names[column]}: {value} is not a number ({len(bad)} such values)"


def _row_times(rows: Rows, fps: float) -> np.ndarray:
    """int64 ns (n,): the source's own stamps, or where it has no clock i / fps of row i."""
    if rows.timestamp is None:
        return np.round(np.arange(len(rows)) * (1e9 / fps)).astype(np.int64)
    return np.round(rows.timestamp * 1e9).astype(np.int64)


def _write_joints(
    sealed: EpisodeWriter, rows: Rows, time_ns: np.ndarray, source: Source, conversions: list[Conversion]
) -> None:
    keep = len(time_ns)
    state = rows.state[:keep]
    position = np.stack(
        [conversion.apply(state[:, column]) for column, conversion in enumerate(conversions)], axis=1
    )
    stamps = None if rows.timestamp is None else rows.timestamp[:keep]
    sealed.joints(time_ns, position, raw=state, source_timestamp=stamps)
    if rows.action is not None:
        _, _, convert = plan_actions(source.action_names, conversions)
        acted = np.arange(len(rows.action)) if rows.acted is None else rows.acted
        acted = acted[acted < keep]
        action = rows.action[: len(acted)]
        sealed.actions(time_ns[acted], convert(action), raw=action)
    # The source's clock begins somewhere in each episode and says nothing of the time of day.
    sealed.clocks(start=(int(time_ns.min()), 0), end=(int(time_ns.max()), 0))


def _write_pictures(
    sealed: EpisodeWriter, view: str, pictures: Pictures, time_ns: np.ndarray, disagreements: Disagreements
) -> None:
    """Store the pictures row by row; the rows' times are theirs as well."""
    each = iter(pictures)
    for number, at in enumerate(time_ns.tolist()):
        try:
            picture = next(each, None)
        except InputError as error:  # arrays are not looked at before
            message = f"view {view}, row {number}: {error.where} {error.problem}"
            disagreements.note("picture_unreadable", view, message, error.remedy)
            return
        if picture is None:
            return
        sealed.frame(view, at, number, picture)


def _write_clip(sealed: EpisodeWriter, view: str, clip: Clip, count: int) -> None:
    sealed.video(
        view,
        clip.container,
        pts=clip.pts[:count],
        time_base=clip.time_base,
        time_ns=clip.time_ns()[:count],
        skip=clip.skip,
    )


def _report(recording: Recording, missing: list[str]) -> ImportReport:
    faults = []
    for index in recording.episode_indices:
        for fault in recording.episode(index).faults():
            faults.append(f"episode {index}: {fault['kind']}: {fault['message']}")
    return ImportReport(
        recording.folder,
        recording.episode_indices,
        sum(line.joint_rows for line in recording.manifest),
        {
            view: sum(line.frames.get(view, 0) for line in recording.manifest)
            for view in recording.info.view_names
        },
        missing,
        faults,
    )
