"""LeRobotDataset v3.0 (LeRobot from 0.4): many episodes share a parquet file and an mp4; metadata is parquet
as well.

Where an episode begins in its mp4 is the sum of the lengths before it in that file: integers. The metadata's
own `from_timestamp` (a float, and a sum of floats) is compared with it, as is the number of frames in the
file; see `_place`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hardware.errors import InputError
from hardware.importers.lerobot import ACTION, STATE, Info, LeRobotSet
from hardware.importers.lerobot_v21 import require_next
from hardware.importers.parquet import column_1d, read_table
from hardware.importers.source import Disagreements
from hardware.importers.video import Clip, SharedVideo


@dataclass(frozen=True)
class _Entry:
    """A row of meta/episodes: where the episode's rows lie, and for each camera its (chunk, file,
    from_timestamp).
    """

    episode: int
    length: int
    chunk: int
    file: int
    first_row: int
    stop_row: int
    videos: dict[str, tuple[int, int, float]]


@dataclass(frozen=True)
class _Place:
    """Frames [first, first + count) of a shared mp4 are the episode's; `doubt` says what does not agree
    about that.
    """

    first: int
    count: int
    doubt: str = ""


class LeRobotV30(LeRobotSet):
    """One v3.0 set. The packets of an episode are copied into an mp4 of their own, never encoded again."""

    def __init__(self, folder: Path, info: Info, metadata_sha256: str) -> None:
        super().__init__(folder, info, metadata_sha256)
        keys = [key for key, feature in info.features.items() if feature.dtype == "video"]
        self._entries = {entry.episode: entry for entry in read_episodes(folder / "meta" / "episodes", keys)}
        self.lengths = {episode: entry.length for episode, entry in self._entries.items()}
        self._by_video: dict[tuple[str, int, int], list[_Entry]] = {}
        self._last_table: tuple[Path, pa.Table] | None = None
        self._last_video: dict[str, tuple[Path, SharedVideo]] = {}
        self._take_stock()

    def _clip(self, episode: int, view: str, disagreements: Disagreements) -> Clip | None:
        """The episode's frames, cut out of the mp4 it shares."""
        key = self.view_key(view)
        path = self._video_file(episode, key)
        if not path.is_file():
            return None
        if self._last_video.get(view, (None,))[0] != path:
            self._last_video[view] = (path, SharedVideo(path))
        video = self._last_video[view][1]
        place = self._place(episode, key, len(video))
        if place.doubt:
            disagreements.note("video_position", view, place.doubt, "restore the metadata of the set")
        return video.cut(place.first, place.count)

    def _place(self, episode: int, key: str, frames: int) -> _Place:
        """Where the episode lies among the `frames` of its mp4.

        - The lengths add up to the file's frames: each episode begins at the sum of the lengths before it. A
          from_timestamp that says otherwise is a doubt about the metadata, not about the frames.
        - They do not add up: frames were lost (LeRobot's encoder drops them and keeps the rows) or are left
          over. Then from_timestamp, which LeRobot takes from the encoded files, is the only witness of where
          each episode begins; how many frames it has follows from where the next one begins, and the
          comparison of counts names it.
        """
        sharing = self._sharing(episode, key)
        lengths = [entry.length for entry in sharing]
        own = [entry.episode for entry in sharing].index(episode)
        claimed = self._frame_at(sharing[own].videos[key][2])
        if sum(lengths) == frames:
            summed, doubt = sum(lengths[:own]), ""
            if claimed != summed:
                doubt = (
                    f"view {key}: from_timestamp {sharing[own].videos[key][2]!r} s is frame {claimed}, "
                    f"the lengths of the episodes before it in the file sum to {summed}"
                )
            return _Place(summed, lengths[own], doubt)
        first = min(claimed, frames)
        stop = self._frame_at(sharing[own + 1].videos[key][2]) if own + 1 < len(sharing) else frames
        return _Place(first, max(0, min(stop, frames) - first))

    def _sharing(self, episode: int, key: str) -> list[_Entry]:
        """The episodes whose frames lie in the same mp4, in their order."""
        if not self._by_video:
            for entry in self._entries.values():
                for camera, (chunk, file, _) in entry.videos.items():
                    self._by_video.setdefault((camera, chunk, file), []).append(entry)
        chunk, file, _ = self._entries[episode].videos[key]
        return self._by_video[key, chunk, file]

    def _frame_at(self, seconds: float) -> int:
        return round(Fraction(seconds) * Fraction(self.info.fps))

    def _data_file(self, episode: int) -> Path:
        entry = self._entries[episode]
        return self.path(self.info.data_path, chunk_index=entry.chunk, file_index=entry.file)

    def _video_file(self, episode: int, key: str) -> Path:
        chunk, file, _ = self._entries[episode].videos[key]
        template = self.info.video_path or "videos/none"
        return self.path(template, video_key=key, chunk_index=chunk, file_index=file)

    def _shared_table(self, episode: int) -> pa.Table:
        """The whole table that holds the episode; the last one is kept, since episodes share it."""
        path = self._data_file(episode)
        if self._last_table is None or self._last_table[0] != path:
            self._last_table = (
                path,
                read_table(path, [STATE, ACTION, "timestamp", "frame_index", "episode_index"]),
            )
        table = self._last_table[1]
        if "episode_index" not in table.column_names:
            raise InputError(
                path, "the table has no column 'episode_index': its rows belong to no episode", "restore it"
            )
        return table

    def _row_numbers(self, episode: int) -> np.ndarray:
        table = self._shared_table(episode)
        return np.flatnonzero(column_1d(table, "episode_index", self._data_file(episode)) == episode)

    def _table(self, episode: int, disagreements: Disagreements) -> pa.Table:
        table = self._shared_table(episode)
        table = table.filter(pc.equal(table.column("episode_index"), episode))
        entry = self._entries[episode]
        if entry.stop_row - entry.first_row != entry.length:
            disagreements.note(
                "count",
                "joints",
                f"the metadata gives it rows {entry.first_row} to {entry.stop_row}, length {entry.length}",
                "restore the metadata of the set",
            )
        return table


def read_episodes(folder: Path, video_keys: Sequence[str]) -> list[_Entry]:
    """The rows of meta/episodes/**.parquet by rising episode_index."""
    paths = sorted(folder.glob("chunk-*/file-*.parquet"))
    if not paths:
        raise InputError(
            folder, "holds no episode list", "LeRobot writes it when recording ends: record again"
        )
    names = [
        "episode_index",
        "length",
        "data/chunk_index",
        "data/file_index",
        "dataset_from_index",
        "dataset_to_index",
    ]
    video_names = [
        f"videos/{key}/{part}"
        for key in video_keys
        for part in ("chunk_index", "file_index", "from_timestamp")
    ]
    entries, last = [], -1
    for path in paths:
        table = read_table(path, names + video_names)
        absent = [name for name in names + video_names if name not in table.column_names]
        if absent:
            raise InputError(path, f"has no column {absent[0]!r}", "restore the metadata of the set")
        for row in table.to_pylist():
            last = require_next(row["episode_index"], row["length"], last, str(path))
            entries.append(_entry(row, video_keys, f"{path}, episode {last}"))
    return entries


def _entry(row: dict[str, Any], video_keys: Sequence[str], where: str) -> _Entry:
    for name, value in row.items():
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        seconds = (
            name.endswith("from_timestamp")
            and isinstance(value, (int, float))
            and np.isfinite(value)
            and value >= 0
        )
        if not (whole or seconds):
            raise InputError(where, f"{name} is {str(value)[:40]!r}", "restore the metadata of the set")
    videos = {
        key: (
            row[f"videos/{key}/chunk_index"],
            row[f"videos/{key}/file_index"],
            float(row[f"videos/{key}/from_timestamp"]),
        )
        for key in video_keys
    }
    return _Entry(
        row["episode_index"],
        row["length"],
        row["data/chunk_index"],
        row["data/file_index"],
        row["dataset_from_index"],
        row["dataset_to_index"],
        videos,
    )
