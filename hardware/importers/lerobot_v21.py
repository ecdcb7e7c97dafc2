"""LeRobotDataset v2.1 (LeRobot up to 0.3): a parquet file an episode, an mp4 an episode and camera, JSON
lines in meta/.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from hardware.errors import InputError
from hardware.importers.lerobot import ACTION, STATE, Info, LeRobotSet, read_bounded
from hardware.importers.parquet import column_1d, read_table
from hardware.importers.source import Disagreements
from hardware.importers.video import Clip, whole_file


class LeRobotV21(LeRobotSet):
    """One v2.1 set. Its videos are kept as they are, byte by byte."""

    def __init__(self, folder: Path, info: Info, metadata_sha256: str) -> None:
        super().__init__(folder, info, metadata_sha256)
        self.lengths = read_episodes_jsonl(folder / "meta" / "episodes.jsonl")
        self._take_stock()

    def _clip(self, episode: int, view: str, disagreements: Disagreements) -> Clip | None:
        """The episode's own mp4."""
        path = self._video_file(episode, self.view_key(view))
        return whole_file(path) if path.is_file() else None

    def _fields(self, episode: int) -> dict[str, int]:
        # Sets converted by hand call the chunk of an episode by the key that v3.0 uses.
        chunk = episode // self.info.chunks_size
        return {"episode_chunk": chunk, "chunk_index": chunk, "episode_index": episode}

    def _data_file(self, episode: int) -> Path:
        return self.path(self.info.data_path, **self._fields(episode))

    def _video_file(self, episode: int, key: str) -> Path:
        if self.info.video_path is None:
            return self.folder / "videos" / "none"
        return self.path(self.info.video_path, video_key=key, **self._fields(episode))

    def _table(self, episode: int, disagreements: Disagreements) -> pa.Table:
        path = self._data_file(episode)
        table = read_table(path, [STATE, ACTION, "timestamp", "frame_index", "episode_index"])
        if "episode_index" in table.column_names and table.num_rows:
            found = np.unique(column_1d(table, "episode_index", path))
            if not np.array_equal(found, [episode]):
                shown = ", ".join(f"{value:g}" for value in found[:5])
                disagreements.note(
                    "episode_index",
                    "joints",
                    f"{path.name} holds rows of episode {shown}",
                    "restore the data file",
                )
        return table


def read_episodes_jsonl(path: Path) -> dict[int, int]:
    """{episode: rows claimed} of meta/episodes.jsonl, whose episode_index must rise."""
    lengths: dict[int, int] = {}
    last = -1
    for number, line in enumerate(read_bounded(path).splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            entry = json.loads(line)
            episode, length = entry["episode_index"], entry["length"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                where,
                f"is no episode ({type(error).__name__}: {error})",
                "expected JSON with episode_index and length",
            ) from None
        last = require_next(episode, length, last, where)
        lengths[episode] = length
    return lengths


def require_next(episode: object, length: object, last: int, where: str) -> int:
    """`episode`, when it follows `last` and both it and `length` are whole numbers."""
    for name, value in (("episode_index", episode), ("length", length)):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 40:
            raise InputError(where, f"{name} is {str(value)[:40]!r}, not a count", "restore the episode list")
    assert isinstance(episode, int)
    if episode <= last:
        what = "twice" if episode == last else f"after {last}"
        raise InputError(
            where, f"lists episode {episode} {what}: episode_index must rise", "restore the episode list"
        )
    return episode
