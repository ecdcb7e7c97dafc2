"""A recording as a LeRobotDataset, written by LeRobot itself (extra `lerobot`: 0.4.4 or 0.6.1, by Python).

LeRobot keeps no capture times (its `timestamp` is frame_index / fps) and loses frames quietly where a disk is
full. So the true times go along as int64 columns, and the finished set is read back by our own importer,
frame for frame, before it gets its name. The columns are called `time_ns...`, since LeRobot would feed
anything called `observation...` to a policy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hardware.alignment import align
from hardware.errors import InputError
from hardware.exporters.choices import chosen_episodes, chosen_views, refuse_target
from hardware.exporters.columns import Column, action_columns, state_columns
from hardware.exporters.report import ExportedEpisode, ExportReport, write_description
from hardware.exporters.rows import ExportRows, export_rows
from hardware.exporters.staging import staging
from hardware.importers import open_source
from hardware.importers.lerobot import ranges
from hardware.importers.source import Disagreements
from hardware.recording import Progress, Recording
from hardware.schema import RecordingInfo

SMALLEST_VIDEO = 32  # pixels a side; LeRobot's AV1 encoder ends the process on narrower frames
ROBOT_TYPES = {"so101": "so_follower"}  # LeRobot's own word, where there is one
LOST_FRAMES = "nothing was kept: look for space on the disk, then export again"
ROWS_A_STEP = 64  # between two calls of progress


def export_lerobot(
    recording: Recording | str | Path,
    to: str | Path,
    *,
    anchor: str | None = None,
    views: Sequence[str] | None = None,
    episodes: Sequence[int] | None = None,
    task: str | None = None,
    images: bool = False,
    progress: Progress | None = None,
) -> ExportReport:
    """Write a LeRobotDataset (v3.0) of a recording.

    A row is a frame of the anchor view with each other view's nearest frame and the joints interpolated at
    its time (see FORMATS.md, alignment). `action` is the target last sent at that time.

    Parameters
    ----------
    recording : opened, or its folder.
    to : folder to make; written as `to`.partial and renamed when it is whole and was read back.
    anchor : view whose frames make the rows; the first of `views` by default.
    views : views to export; all by default.
    episodes : numbers of the episodes; all that have frames of each view by default.
    task : what LeRobot calls the task; the motion's name by default.
    images : store PNG in the tables (lossless) and not AV1 video (LeRobot's default; small and lossy).
    progress : called as progress(rows done, rows, what).

    Raises
    ------
    InputError
        without the extra `lerobot`; where `to` exists; for views or episodes that are not there; where
        nothing aligns; when what LeRobot wrote is not what it was given.
    """
    recording = recording if isinstance(recording, Recording) else Recording.open(recording)
    to = Path(to)
    info = recording.info
    chosen = chosen_views(info, anchor, views)
    if not images:
        _refuse_tiny(info, chosen)
    refuse_target(recording, to)
    numbers, left_out = chosen_episodes(recording, chosen, episodes)
    state = state_columns(info)
    action = action_columns(info, state)
    writer = _lerobot()
    rows = [export_rows(align(recording.episode(number), chosen), state, action) for number in numbers]
    action = _agreed(rows, action)
    fps = max(1, round(info.view(chosen[0]).fps))
    rates = [one.rate_hz for one in rows if one.rate_hz is not None]
    report = ExportReport(
        dataset=to,
        lerobot=version("lerobot"),
        fps=fps,
        rate_hz=float(np.median(rates)) if rates else None,
        views=chosen,
        stored="images" if images else "video",
        task=task or info.motion,
        units={column.name: column.unit for column in state},
        action_units={column.name: column.unit for column in action},
        episodes=[_exported(one, fps) for one in rows],
        left_out=left_out,
    )
    with staging(to) as root:
        _write(writer, root, info, report, rows, progress)
        _read_back(root, rows, report)
        write_description(root, recording, report)
    return report


# -- what is asked for -------------------------------------------------------------------------------------


def _refuse_tiny(info: RecordingInfo, views: Sequence[str]) -> None:
    """InputError for views that LeRobot's video encoder cannot take."""
    for view in map(info.view, views):
        if min(view.width, view.height) < SMALLEST_VIDEO:
            raise InputError(
                f"view {view.name}",
                f"is {view.width}x{view.height}, and LeRobot's video needs {SMALLEST_VIDEO} pixels a side",
                "store images: --images",
            )


def _agreed(rows: Sequence[ExportRows], action: list[Column]) -> list[Column]:
    """The action columns, or none where no episode has any; some with and some without is an error."""
    empty = [one.episode.index for one in rows if not len(one)]
    if empty:
        raise InputError(f"episodes {ranges(empty)}", "hold no row after the first action", "leave them out")
    without = [one.episode.index for one in rows if one.action is None]
    if action and 0 < len(without) < len(rows):
        raise InputError(
            "actions", f"are missing in episodes {ranges(without)}", "export those episodes apart"
        )
    return [] if without else action


def _exported(rows: ExportRows, fps: int) -> ExportedEpisode:
    clocks = rows.episode.clocks()
    return ExportedEpisode(
        episode=rows.episode.index,
        rows=len(rows),
        dropped=rows.dropped,
        rate_hz=rows.rate_hz,
        uneven=rows.uneven(fps),
        start_monotonic_ns=clocks.get("start_monotonic_ns", 0),
        start_wall_ns=clocks.get("start_wall_ns", 0),
    )


# -- writing -----------------------------------------------------------------------------------------------


def _lerobot() -> Any:
    """LeRobot's dataset class, imported only now: it pulls in torch."""
    try:
        from lerobot.datasets.lerobot_dataset import LeRobotDataset
    except ImportError as error:
        raise InputError(
            "export to lerobot", f"needs LeRobot ({error})", "pip install 'jointprobe[lerobot]'"
        ) from None
    return LeRobotDataset


def _features(info: RecordingInfo, report: ExportReport) -> dict[str, dict[str, Any]]:
    features: dict[str, dict[str, Any]] = {}
    for key, units in (("observation.state", report.units), ("action", report.action_units)):
        if units:
            features[key] = {"dtype": "float32", "shape": (len(units),), "names": list(units)}
    for name in ("", *report.views):
        features[time_key(name)] = {"dtype": "int64", "shape": (1,), "names": None}
    for name in report.views:
        view = info.view(name)
        features[f"observation.images.{name}"] = {
            "dtype": "image" if report.stored == "images" else "video",
            "shape": (view.height, view.width, 3),
            "names": ["height", "width", "channels"],
        }
    return features


def time_key(view: str) -> str:
    """The column of a view's capture times; "" is that of the joints."""
    return f"time_ns.{view}" if view else "time_ns"


def _write(
    writer: Any,
    root: Path,
    info: RecordingInfo,
    report: ExportReport,
    rows: Sequence[ExportRows],
    progress: Progress | None,
) -> None:
    with _quiet():
        dataset = writer.create(
            repo_id=f"local/{report.dataset.name}",
            fps=report.fps,
            features=_features(info, report),
            root=root,
            robot_type=ROBOT_TYPES.get(info.robot, info.robot),
            use_videos=report.stored == "video",
            video_backend="pyav",  # only reading would use it, but finding a default is noisy
        )
        done, total = 0, sum(len(one) for one in rows)
        try:
            for one in rows:
                what = f"episode {one.episode.index}"
                for frame in _frames(one, report):
                    dataset.add_frame(frame)
                    done += 1
                    if progress is not None and done % ROWS_A_STEP == 0:
                        progress(done, total, what)
                # One encoder at a time: each uses all cores, and forking beside torch's threads is a risk.
                dataset.save_episode(parallel_encoding=False)
                if progress is not None:
                    progress(done, total, what)
        except (
            FileNotFoundError
        ) as error:  # an image that LeRobot failed to write, with no more than a message
            name = Path(str(error.filename)).name
            raise InputError(report.dataset, f"LeRobot could not write {name}", LOST_FRAMES) from None
        finally:
            dataset.finalize()  # else LeRobot writes its tables when it is garbage collected, anywhere
    shutil.rmtree(root / "images", ignore_errors=True)  # LeRobot's workspace, empty by now


def _frames(rows: ExportRows, report: ExportReport) -> Iterator[dict[str, Any]]:
    """Each row as LeRobot's `add_frame` takes it."""
    streams = [rows.episode.frames(view, rows.frame_index[view]) for view in report.views]
    for number, pictures in enumerate(zip(*streams, strict=True)):
        frame: dict[str, Any] = {"task": report.task, "observation.state": rows.state[number]}
        if rows.action is not None:
            frame["action"] = rows.action[number]
        for name, times in rows.time_ns.items():
            frame[time_key(name)] = times[number : number + 1]
        for name, picture in zip(report.views, pictures):
            frame[f"observation.images.{name}"] = picture
        yield frame


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the chatter of libav, of its encoder and of `datasets` out of our progress; errors still show."""
    import av
    import datasets

    os.environ.setdefault("SVT_LOG", "1")  # the encoder's own switch; 1 is errors
    were_off = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    av.logging.set_libav_level(av.logging.ERROR)
    try:
        yield
    finally:
        av.logging.set_libav_level(av.logging.INFO)  # libav's default; it cannot be asked
        if not were_off:
            datasets.enable_progress_bars()


# -- reading back ------------------------------------------------------------------------------------------


def _read_back(root: Path, rows: Sequence[ExportRows], report: ExportReport) -> None:
    """Read the set with our own importer: each row, and as many decodable frames as rows."""
    source = open_source(root)
    if source.episodes != list(range(len(rows))):
        raise _not_as_given(report, f"episodes {ranges(source.episodes)}, not 0-{len(rows) - 1}")
    for number, one in enumerate(rows):
        what = f"episode {number} (recorded as {one.episode.index})"
        try:
            table = source.rows(number, Disagreements(what))
            clips = {view.name: source.clip(number, view.name, Disagreements(what)) for view in source.views}
        except InputError as error:
            raise _not_as_given(report, f"in {error.where} something that {error.problem}") from None
        if not np.array_equal(np.float32(table.state), one.state):
            raise _not_as_given(report, f"{what}: {len(table)} rows that are not the {len(one)} written")
        if one.action is not None and not np.array_equal(np.float32(table.action), one.action):
            raise _not_as_given(report, f"{what}: actions that are not those written")
        for view, clip in clips.items():
            found = 0 if clip is None else len(clip)
            if found != len(one):
                raise _not_as_given(report, f"{what}: {found} frames of {view} for {len(one)} rows")


def _not_as_given(report: ExportReport, found: str) -> InputError:
    return InputError(
        report.dataset,
        f"LeRobot {report.lerobot} did not write what it was given; the set held {found}",
        LOST_FRAMES,
    )
