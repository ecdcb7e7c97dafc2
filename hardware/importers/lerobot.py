"""LeRobotDataset, what v2.1 and v3.0 share: info.json, names, path templates and the columns of the tables.

Everything in the folder may come from anybody: sizes are bounded before they are read, path templates know
four fields and nothing else, and no path leaves the folder.
"""

from __future__ import annotations

import hashlib
import json
import re
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hardware.errors import InputError
from hardware.importers.parquet import (
    column_2d,
    column_time,
    first_header,
    note_rows_out_of_step,
    stream_pictures,
)
from hardware.importers.pictures import Header, Pictures, encoded_pictures
from hardware.importers.source import Disagreements, Rows, SourceView
from hardware.importers.video import Clip, VideoUnreadable, frame_size

FORMAT = "LeRobotDataset"
MAX_JSON_BYTES = 64 << 20
STATE, ACTION = "observation.state", "action"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}")


class Feature(BaseModel):
    """One column or camera as info.json describes it; LeRobot writes more than is read here."""

    model_config = ConfigDict(extra="ignore")

    dtype: str
    shape: list[int] = Field(max_length=8)
    names: Any = None
    info: dict[str, Any] | None = None
    video_info: dict[str, Any] | None = None

    @property
    def details(self) -> dict[str, Any]:
        """What is said about a video; the key has had two names."""
        return self.info or self.video_info or {}


class Info(BaseModel):
    """meta/info.json; unknown keys are LeRobot's own business."""

    model_config = ConfigDict(extra="ignore")

    codebase_version: str
    robot_type: str | None = None
    fps: float = Field(ge=0.001, le=10_000)
    data_path: str
    video_path: str | None = None
    chunks_size: int = Field(1000, gt=0)
    total_episodes: int | None = None
    total_frames: int | None = None
    features: dict[str, Feature]


class LeRobotSet:
    """A LeRobotDataset on disk; `lerobot_v21` and `lerobot_v30` know where the episodes lie.

    Cameras are videos (dtype `video`), or pictures within the tables (dtype `image`).
    A subclass sets `lengths` (episode: rows claimed) and calls `_take_stock`; it implements `_data_file`,
    `_video_file`, `_table`, `_clip`, and `_row_numbers` where episodes share a table.
    """

    format = FORMAT

    def __init__(self, folder: Path, info: Info, metadata_sha256: str) -> None:
        self.folder = folder
        self.info = info
        self.version = info.codebase_version
        self.robot = info.robot_type or "unknown"
        self.fps = float(info.fps)
        self.metadata_sha256 = metadata_sha256
        self.missing: list[str] = []
        self.facts: dict[str, str] = {}
        self.views: list[SourceView] = []
        self.episodes: list[int] = []
        self.lengths: dict[int, int] = {}
        self._view_keys: dict[str, str] = {}
        self._headers: dict[str, Header] = {}  # of the views that are pictures
        self.joint_names = self._names(STATE)
        self.action_names = self._names(ACTION) if ACTION in info.features else []

    # -- what a version knows --------------------------------------------------------------------------------

    def _data_file(self, episode: int) -> Path:
        raise NotImplementedError

    def _video_file(self, episode: int, key: str) -> Path:
        raise NotImplementedError

    def _table(self, episode: int, disagreements: Disagreements) -> pa.Table:
        raise NotImplementedError

    def _clip(self, episode: int, view: str, disagreements: Disagreements) -> Clip | None:
        raise NotImplementedError

    def _row_numbers(self, episode: int) -> np.ndarray | None:
        """Which rows of its data file are the episode's; None for all."""
        return None

    # -- rows ------------------------------------------------------------------------------------------------

    def rows(self, episode: int, disagreements: Disagreements) -> Rows:
        """The table of an episode: state (n, J), timestamp (n,), action (n, A)."""
        table = self._table(episode, disagreements)
        where = self.where(episode)
        if table.num_rows == 0:
            raise InputError(where, "has no rows", "take it out of the set")
        note_rows_out_of_step(table, where, disagreements)
        timestamp = column_time(table, "timestamp", where)
        action = column_2d(table, ACTION, len(self.action_names), where) if self.action_names else None
        return Rows(
            column_2d(table, STATE, len(self.joint_names), where), timestamp, action, self.lengths[episode]
        )

    # -- frames ----------------------------------------------------------------------------------------------

    def clip(self, episode: int, view: str, disagreements: Disagreements) -> Clip | Pictures | None:
        """The video or the pictures of an episode, or None where there are none."""
        header = self._headers.get(view)
        if header is None:
            return self._clip(episode, view, disagreements)
        path, key, rows = self._data_file(episode), self.view_key(view), self._row_numbers(episode)
        return encoded_pictures(lambda: stream_pictures(path, key, rows), header, path.name)

    def where(self, episode: int) -> str:
        """How an episode is named in errors."""
        return f"{self.folder}, episode {episode}"

    def view_key(self, view: str) -> str:
        """The feature that `view` comes from, such as observation.images.front."""
        return self._view_keys[view]

    # -- taking stock ----------------------------------------------------------------------------------------

    def _take_stock(self) -> None:
        """See which of the listed episodes and videos are here; words for the others go to `missing`."""
        if not self.lengths:
            raise InputError(
                self.folder, "lists no episode: the set is empty", "give a set that holds recordings"
            )
        listed = list(self.lengths)
        for name, claimed, found in (
            ("episodes", self.info.total_episodes, len(listed)),
            ("frames", self.info.total_frames, sum(self.lengths.values())),
        ):
            if claimed is not None and claimed != found:
                self.missing.append(f"info.json claims {claimed} {name}, the episode list has {found}")
        self.episodes = [episode for episode in listed if self._data_file(episode).is_file()]
        if not self.episodes:
            raise InputError(
                self.folder,
                f"holds no data file of its {len(listed)} episodes (looked for {self._data_file(listed[0])})",
                "copy the data folder of the set here",
            )
        absent = sorted(set(listed) - set(self.episodes))
        if absent:
            self.missing.append(
                f"episodes {ranges(absent)} ({len(absent)} of {len(listed)}) have no data file here"
            )
        for key, feature in self.info.features.items():
            self._take_view(key, feature)
        self._note_unlisted()

    def _take_view(self, key: str, feature: Feature) -> None:
        name = key.removeprefix("observation.").removeprefix("images.")
        if feature.dtype not in ("video", "image"):
            return
        if feature.details.get("video.is_depth_map") or feature.details.get("is_depth_map"):
            self.missing.append(f"view {name}: a depth map, which is not imported")
            return
        if not NAME.fullmatch(name) or name in self._view_keys:
            raise InputError(
                self.folder / "meta" / "info.json",
                f"feature {key!r} gives no usable name for a view",
                "rename the feature",
            )
        view = self._pictures(name, key) if feature.dtype == "image" else self._video(name, key, feature)
        if view is None:
            return
        self._view_keys[name] = key
        width, height = _declared_size(feature)
        if None not in (width, height) and (width, height) != (view.width, view.height):
            stored = "the video is" if view.encoding == "video" else "its pictures are"
            self.missing.append(
                f"view {name}: info.json claims {width}x{height}, {stored} {view.width}x{view.height}"
            )
        self.views.append(view)

    def _video(self, name: str, key: str, feature: Feature) -> SourceView | None:
        here = [episode for episode in self.episodes if self._video_file(episode, key).is_file()]
        if not here:
            self.missing.append(f"view {name}: no video file is here")
            return None
        without = sorted(set(self.episodes) - set(here))
        if without:
            self.missing.append(f"view {name}: episodes {ranges(without)} have no video and are joint logs")
        width, height = _declared_size(feature)
        for episode in here:  # the first header that can be read; decoding shows whether the others agree
            try:
                width, height = frame_size(self._video_file(episode, key))
                break
            except VideoUnreadable:
                continue
        fps = feature.details.get("video.fps") or self.fps
        if not isinstance(fps, (int, float)) or not 0.001 <= fps <= 10_000:
            raise InputError(
                self.folder / "meta" / "info.json", f"feature {key!r}: video.fps is {fps!r}", "correct it"
            )
        return SourceView(name, float(fps), width, height)

    def _pictures(self, name: str, key: str) -> SourceView | None:
        """A view by its first picture that can be read; the import looks at each of the others."""
        header = first_header(self._tables(), key)
        if header is None:
            self.missing.append(f"view {name}: no data file here has its pictures")
            return None
        self._headers[name] = header
        return SourceView(name, self.fps, header.width, header.height, header.encoding)

    def _tables(self) -> Iterator[tuple[Path, np.ndarray | None]]:
        """Data file and rows (None: all) of each episode whose file can be read."""
        for episode in self.episodes:
            try:
                rows = self._row_numbers(episode)
            except InputError:
                continue  # reading the episode says so
            yield self._data_file(episode), rows

    def _note_unlisted(self) -> None:
        listed = {self._data_file(episode) for episode in self.episodes}
        others = [path for path in sorted((self.folder / "data").rglob("*.parquet")) if path not in listed]
        if others:
            names = ", ".join(str(path.relative_to(self.folder)) for path in others[:3])
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            self.missing.append(f"{len(others)} data file(s) that the metadata does not list: {names}{more}")

    # -- names and paths -------------------------------------------------------------------------------------

    def _names(self, column: str) -> list[str]:
        where = self.folder / "meta" / "info.json"
        if column not in self.info.features:
            raise InputError(
                where, f"has no feature {column!r}: no joints are logged", "give a set with joint states"
            )
        feature = self.info.features[column]
        if len(feature.shape) != 1 or not 0 < feature.shape[0] <= 256:
            raise InputError(
                where, f"feature {column!r} has shape {feature.shape}, expected one axis of 1 to 256"
            )
        names = feature.names
        if isinstance(names, dict):  # {"motors": [...]}
            names = [name for part in names.values() for name in (part if isinstance(part, list) else [part])]
        if not names:
            stem = "joint" if column == STATE else "action"
            self.missing.append(f"names of {column}: called {stem}_0 to {stem}_{feature.shape[0] - 1}")
            return [f"{stem}_{number}" for number in range(feature.shape[0])]
        names = [str(name).removesuffix(".pos") for name in names]
        bad = [name for name in names if not NAME.fullmatch(name)]
        if len(names) != feature.shape[0] or len(set(names)) < len(names) or bad:
            raise InputError(
                where,
                f"feature {column!r} has {feature.shape[0]} columns and the names {', '.join(names)[:200]}",
                "each column needs a name of its own, of letters, digits and _ . -",
            )
        return names

    def path(self, template: str, **fields: int | str) -> Path:
        """Fill a path template of info.json; the result lies inside the folder or is an error."""
        where = self.folder / "meta" / "info.json"
        parts = []
        try:
            for literal, name, spec, conversion in string.Formatter().parse(template):
                parts.append(literal)
                if name is None:
                    continue
                if name not in fields or conversion or not re.fullmatch(r"(0?\d)?d?", spec or ""):
                    raise ValueError(f"{{{name}:{spec}}} is no field of it")
                value = fields[name]
                parts.append(format(value, spec or "") if isinstance(value, int) else value)
        except ValueError as error:
            raise InputError(
                where, f"path template {template!r}: {error}", f"known fields: {', '.join(fields)}"
            ) from None
        path = self.folder / "".join(parts)
        try:
            path.is_file()  # raises for names that no file can have
            inside = path.resolve().is_relative_to(self.folder.resolve())
        except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, links in a circle
            raise InputError(
                where, f"path template {template!r} gives no path: {error}", "correct it"
            ) from None
        if not inside:
            raise InputError(
                where,
                f"path template {template!r} leads out of the set, to {path}",
                "refused; if links in the set do it, copy the set with cp -rL",
            )
        return path


def _declared_size(feature: Feature) -> tuple[int | None, int | None]:
    """(width, height) by a camera's shape, whose axes are in the order of its names."""
    if isinstance(feature.names, list) and len(feature.names) == len(feature.shape):
        axes = {str(name): size for name, size in zip(feature.names, feature.shape)}
        if "width" in axes and "height" in axes:
            return axes["width"], axes["height"]
    return None, None


def read_json(path: Path) -> tuple[Any, str]:
    """(value, sha256 of the bytes) of a JSON file of bounded size."""
    content = read_bounded(path)
    try:
        return json.loads(content), hashlib.sha256(content).hexdigest()
    except (ValueError, RecursionError) as error:
        raise InputError(
            path, f"is not valid JSON: {error}", "restore it from the source of the set"
        ) from None


def read_bounded(path: Path) -> bytes:
    """The bytes of a metadata file."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise InputError(path, f"is {path.stat().st_size:,} bytes, more than metadata may have")
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            path, f"cannot be read: {error.strerror}", "restore it from the source of the set"
        ) from None


def read_info(folder: Path) -> tuple[Info, str]:
    """(meta/info.json, its sha256); InputError names the first key that is missing or wrong."""
    path = folder / "meta" / "info.json"
    data, sha256 = read_json(path)
    try:
        return Info.model_validate(data), sha256
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the document"
        problem = f"has no {field!r}" if first["type"] == "missing" else f"{field}: {first['msg']}"
        raise InputError(
            path, problem, "restore it from the source of the set; without it nothing can be named"
        ) from None


def ranges(numbers: Sequence[int]) -> str:
    """Rising numbers in short: "0-3, 7"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
