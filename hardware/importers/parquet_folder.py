"""A folder of parquet files, one an episode, with the pictures inside and nothing beside them that says what
the columns are.

What is taken from a table:

- joints: the list column `observation.state` (its joints are numbered, joint_0 ...), else every column of
  numbers that is neither a clock, a counter nor an action, under its own name;
- actions: the list column `action`, else columns called `action.NAME` or `action_NAME`;
- views: columns of JPEG or PNG bytes, or of structs with `bytes` (see `hardware.importers.pictures`);
- clock: `timestamp` or `t`, in seconds, kept as it is; without one, row i is at i / fps.

The rate that a recording declares is the one in the meta/info.json of the LeRobotDataset whose data folder it
is (data/chunk-NNN), else what the caller declares, else the median of the clock's own steps; the recording
says which. The stamps are the same in each case, so that a wrong declaration shows against them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from hardware.errors import InputError
from hardware.importers.episode_files import episode_files, files_sha256, require_rate
from hardware.importers.lerobot import ACTION, NAME, STATE, read_info
from hardware.importers.parquet import (
    column_1d,
    column_2d,
    column_time,
    column_values,
    first_header,
    is_picture_column,
    note_rows_out_of_step,
    read_schema,
    read_table,
    stream_pictures,
)
from hardware.importers.pictures import Header, Pictures, encoded_pictures
from hardware.importers.source import Disagreements, Rows, SourceView

KNOWN = "a folder of parquet files, one an episode, with JPEG or PNG bytes inside"
CLOCKS = ("timestamp", "t")
EPISODE = ("episode_index", "episode")
COUNTERS = (*EPISODE, "frame_index", "frame", "index", "task_index", "step", "next.reward")
MAX_JOINTS = 256
SHORTEST_STEP_S, LONGEST_STEP_S = 1e-4, 1e3  # of a clock that tells a rate


def detect(folder: Path) -> bool:
    """Whether `folder` holds parquet files."""
    return any(folder.glob("*.parquet"))


def read(folder: Path, fps: float | None = None) -> ParquetFolder:
    """The set in `folder`; `fps` is its declared rate, where the set lies in none that declares one."""
    return ParquetFolder(folder, fps)


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are what. `joints` and `actions` are one list column, or a column each."""

    clock: str | None
    joints: list[str]
    actions: list[str]
    pictures: list[str]
    ignored: list[str]

    @classmethod
    def of(cls, schema: pa.Schema) -> Columns:
        """Sort the columns of a table by name and type."""
        names, kinds = schema.names, dict(zip(schema.names, schema.types))
        clock = next((name for name in CLOCKS if name in names), None)
        numbers = [
            name
            for name in names
            if (pa.types.is_floating(kinds[name]) or pa.types.is_integer(kinds[name]))
            and name not in CLOCKS + COUNTERS
        ]
        own = [name for name in numbers if name == ACTION or name.startswith(("action.", "action_"))]
        joints = [STATE] if STATE in names else [name for name in numbers if name not in own]
        actions = [ACTION] if ACTION in names and _is_list(kinds[ACTION]) else own
        pictures = [name for name in names if is_picture_column(kinds[name])]
        used = {clock, *joints, *actions, *pictures, *CLOCKS, *COUNTERS}
        return cls(clock, joints, actions, pictures, [name for name in names if name not in used])


class ParquetFolder:
    """The set in one folder of parquet files."""

    format = "parquet"
    version = "unversioned"

    def __init__(self, folder: Path, fps: float | None) -> None:
        self.folder = folder
        self.missing: list[str] = []
        self.facts: dict[str, str] = {}
        self._files, self.facts["episode numbers"] = episode_files(folder, "*.parquet")
        self.episodes = list(self._files)
        self.metadata_sha256 = files_sha256(self._files)
        self._first, self._columns = self._first_table()
        self.joint_names = self._names(self._columns.joints, "joint")
        self.action_names = self._names(self._columns.actions, "action")
        if not self.joint_names:
            raise InputError(
                self._first,
                f"holds no joints: neither a list column {STATE!r} nor columns of numbers",
                "give a set with joint states",
            )
        if self._columns.ignored:
            self.missing.append(f"columns that are not imported: {', '.join(self._columns.ignored)}")
        self.robot = "unknown"
        self.fps = self._rate(fps)
        self._keys: dict[str, str] = {}
        self._headers: dict[str, Header] = {}
        self.views = [self._view(key) for key in self._columns.pictures]
        if not self.views:
            self.missing.append("pictures: no column holds any")

    # -- what the importer asks for --------------------------------------------------------------------------

    def rows(self, episode: int, disagreements: Disagreements) -> Rows:
        """The table of an episode."""
        path = self._files[episode]
        self._require_columns(path)
        columns = self._columns
        wanted = [*columns.joints, *columns.actions, *CLOCKS, *EPISODE, "frame_index"]
        table = read_table(path, wanted)
        if table.num_rows == 0:
            raise InputError(path, "has no rows", "take it out of the set")
        for name in set(EPISODE) & set(table.column_names):
            if len(found := column_values(table, name)) > 1:
                raise InputError(
                    path,
                    f"column {name!r} holds {len(found)} episodes: {', '.join(map(str, found))[:60]}",
                    "split it into a file an episode; of a LeRobotDataset give the folder that holds meta/",
                )
        note_rows_out_of_step(table, path, disagreements)
        stamps = None if columns.clock is None else self._stamps(table, columns.clock, path)
        state = self._values(table, columns.joints, self.joint_names, path)
        action = self._values(table, columns.actions, self.action_names, path) if columns.actions else None
        return Rows(state, stamps, action, None)

    def clip(self, episode: int, view: str, disagreements: Disagreements) -> Pictures:
        """The pictures of an episode."""
        path, key = self._files[episode], self._keys[view]
        return encoded_pictures(lambda: stream_pictures(path, key), self._headers[view], path.name)

    # -- taking stock ----------------------------------------------------------------------------------------

    def _first_table(self) -> tuple[Path, Columns]:
        """The first file that can be read, and its columns, which the others must have as well."""
        refused: InputError | None = None
        for path in self._files.values():
            try:
                return path, Columns.of(read_schema(path))
            except InputError as error:
                refused = refused or error
        assert refused is not None  # there is at least one file
        raise refused

    def _require_columns(self, path: Path) -> None:
        found, expected = Columns.of(read_schema(path)), self._columns
        for what in ("clock", "joints", "actions", "pictures"):
            here, there = getattr(found, what), getattr(expected, what)
            if set(here or ()) != set(there or ()):
                raise InputError(
                    path,
                    f"its {what}: {_shown(here)}; those of {self._first.name}: {_shown(there)}",
                    "files of one folder need the same columns: import the others apart",
                )

    def _names(self, columns: Sequence[str], stem: str) -> list[str]:
        """A name for each number: of a list column numbered, else the columns' own."""
        if list(columns) in ([STATE], [ACTION]):
            width = self._width(columns[0])
            self.missing.append(f"names of {columns[0]}: called {stem}_0 to {stem}_{width - 1}")
            return [f"{stem}_{number}" for number in range(width)]
        names = [name.removesuffix(".pos") for name in columns]
        if stem == "action":
            names = [name[len("action.") :] for name in names]
        bad = [column for column, name in zip(columns, names) if not NAME.fullmatch(name)]
        if bad or len(set(names)) < len(names) or len(names) > MAX_JOINTS:
            raise InputError(
                self._first,
                f"its columns give no usable names of {stem}s: {', '.join(bad or columns)[:200]}",
                f"up to {MAX_JOINTS}, each with a name of its own, of letters, digits and _ . -",
            )
        return names

    def _width(self, column: str) -> int:
        array = read_table(self._first, [column]).column(column)
        first = array[0].as_py() if len(array) else None
        if not isinstance(first, list) or not 0 < len(first) <= MAX_JOINTS:
            raise InputError(
                self._first,
                f"column {column!r} is {array.type}, its first row no list of 1 to {MAX_JOINTS} numbers",
                "restore the table",
            )
        return len(first)

    def _view(self, key: str) -> SourceView:
        name = key.removeprefix("observation.").removeprefix("images.").removesuffix("_image")
        if not NAME.fullmatch(name) or name in self._keys:
            raise InputError(self._first, f"column {key!r} gives no usable name for a view", "rename it")
        header = first_header(((path, None) for path in self._files.values()), key)
        if header is None:
            raise InputError(self._first, f"column {key!r} cannot be read", "restore the file")
        self._keys[name], self._headers[name] = key, header
        return SourceView(name, self.fps, header.width, header.height, header.encoding)

    def _rate(self, declared: float | None) -> float:
        """Declared rows a second; `facts` says who declared it."""
        if self.folder.resolve().parent.name == "data":
            owner = self.folder.resolve().parents[1]
            if (owner / "meta" / "info.json").is_file():
                info, _ = read_info(owner)
                if declared not in (None, info.fps):
                    raise InputError(
                        "--fps",
                        f"{declared:g}: meta/info.json of the set around the folder declares {info.fps:g}",
                        "leave --fps out",
                    )
                self.robot = info.robot_type or "unknown"
                self.facts["rate"] = "declared by meta/info.json of the LeRobotDataset around the folder"
                return float(info.fps)
        if declared is not None:
            self.facts["rate"] = "declared by whoever imported it"
            return require_rate(declared)
        if self._columns.clock is not None:
            table = read_table(self._first, [self._columns.clock])
            steps = np.diff(self._stamps(table, self._columns.clock, self._first))
            if len(steps) and SHORTEST_STEP_S <= np.median(steps) <= LONGEST_STEP_S:
                self.facts["rate"] = f"median step of {self._columns.clock!r} in {self._first.name}"
                return round(float(1 / np.median(steps)), 3)
        raise InputError(
            self.folder,
            f"says nowhere at what rate its rows were recorded: no column {' or '.join(CLOCKS)} tells it",
            "say --fps, rows a second",
        )

    def _stamps(self, table: pa.Table, column: str, path: Path) -> np.ndarray:
        kind = table.schema.field(column).type
        if not pa.types.is_floating(kind):  # counts of what, since when?
            raise InputError(
                path,
                f"column {column!r} holds {kind}, expected seconds as floating-point numbers",
                "convert it",
            )
        return column_time(table, column, path)

    def _values(self, table: pa.Table, columns: list[str], names: list[str], path: Path) -> np.ndarray:
        """float64 (n, len(names)) of one list column, or of a column each."""
        if columns in ([STATE], [ACTION]):
            return column_2d(table, columns[0], len(names), path)
        return np.stack([column_1d(table, column, path) for column in columns], axis=1)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _shown(columns: list[str] | str | None) -> str:
    return ", ".join(columns) if isinstance(columns, list) and columns else str(columns or "none")
