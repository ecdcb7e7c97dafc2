"""One HDF5 file of many episodes, as LeWM and stable-worldmodel read and write them.

    reacher.h5
      pixels              [N, H, W, 3]  uint8; other uint8 columns of pictures are views as well
      action              [N, A]        optional; NaN where nothing was sent: at the boundaries of episodes
      qpos, proprio, ...  [N, J]        numbers; one of them holds the joints
      ep_len, ep_offset   [E]           rows of each episode, and its first row
      ep_idx, step_idx    [N]           optional (episode_idx in older files): held against ep_len, ep_offset

N counts the rows of all episodes; rows pair by number. There is no clock in them: the rate has to be
declared, or stands in the attribute `fps` that our own export writes.

Pictures: [N, H, W, 3]; or channels first, [N, 3, H, W], where the second axis is 3 and the last neither 3
nor 1. They are stored as arrays, as they are.

Joints: the column that was declared; else `qpos`, which is MuJoCo's name for joint positions; else the one of
`proprio`, `observation` and `state` that is there. More than one is a question for a person.

Actions: a row that is NaN throughout holds none, and none is stored (LeWM itself makes zeros of them while it
trains). Such rows inside an episode say that one ends there, so they contradict `ep_len`.

Names: those of the attribute `names`, which our own export writes; else joints and actions are numbered.

The files may come from anybody, and may be larger than the memory: links and data outside the file are
refused, sizes are bounded before anything is allocated, pictures are read a chunk at a time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401  registers compressions with HDF5
import numpy as np

from hardware.errors import InputError
from hardware.importers.episode_files import require_rate
from hardware.importers.episode_spans import LENGTHS, OFFSETS, episode_spans
from hardware.importers.hdf5_columns import (
    RESTORE,
    are_channels_first,
    is_column,
    is_pictures,
    is_table,
    number_column,
    number_rows,
    opened_foreign,
    picture_column,
    picture_rows,
    text_attribute,
)
from hardware.importers.lerobot import NAME
from hardware.importers.pictures import Header, Pictures
from hardware.importers.source import Disagreements, Rows, SourceView
from hardware.schema import EPISODE_SCHEMA

KNOWN = "LeWM's and stable-worldmodel's HDF5 (a file with pixels, ep_len and ep_offset)"
ACTION, PIXELS = "action", "pixels"
MAY_BE_JOINTS = (
    "proprio",
    "observation",
    "state",
)  # columns that may hold the joints, where there is no qpos
QPOS = "qpos"
EPISODE_NUMBERS, STEP_NUMBERS = ("ep_idx", "episode_idx"), "step_idx"
SUFFIXES = (".h5", ".hdf5")


def detect(path: Path) -> bool:
    """Whether `path` is an HDF5 file by its name, or a folder that holds one with `ep_len`."""
    return path.suffix in SUFFIXES if path.is_file() else bool(_files_in(path))


def read(path: Path, fps: float | None = None, joints_from: str | None = None) -> WorldModelSet:
    """The set in `path`, whose rows were recorded at `fps`; `joints_from` names the column of the joints."""
    files = _files_in(path) if path.is_dir() else [path]
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise InputError(path, f"holds more than one set ({names})", "give the file")
    return WorldModelSet(files[0], fps, joints_from)


class WorldModelSet:
    """The set in one HDF5 file."""

    format = "LeWM / stable-worldmodel HDF5"
    version = "unversioned"
    robot = "unknown"

    def __init__(self, path: Path, fps: float | None, joints_from: str | None) -> None:
        self.folder = path
        self.missing: list[str] = ["time stamps: row i of an episode is taken at i / fps"]
        self.facts: dict[str, str] = {"episode numbers": f"counted, as {LENGTHS} lists them"}
        self._claimed: dict[int, int] = {}  # the file's own number of an episode: ours
        with _opened(path) as file:
            self._lengths, self._offsets = episode_spans(file)
            self.episodes = list(range(len(self._lengths)))
            self.fps = self._rate(file, fps)
            self._joints = self._find_joints(file, joints_from)
            self._actions = ACTION if ACTION in file else None
            self._numbers = next((name for name in EPISODE_NUMBERS if name in file), None)
            self._steps = STEP_NUMBERS if STEP_NUMBERS in file else None
            self.views, self._columns = self._take_views(file)
            rows = self._take_rows(file)
            self.joint_names = self._names(file, self._joints, "joint")
            self.action_names = self._names(file, self._actions, "action") if self._actions else []
            self._note_last_action(file)
            self._note_others(file, rows)
            self.metadata_sha256 = self._sha256(file)

    # -- what the importer asks for --------------------------------------------------------------------------

    def rows(self, episode: int, disagreements: Disagreements) -> Rows:
        """The joints and actions of an episode."""
        start, count = int(self._offsets[episode]), int(self._lengths[episode])
        if count == 0:
            raise InputError(
                f"{self.folder}, {LENGTHS}",
                f"is 0 for episode {episode}: it has no rows",
                "--lenient leaves it out",
            )
        with _opened(self.folder) as file:
            state = number_rows(file[self._joints], start, count).astype(np.float64)
            self._compare_numbers(file, episode, start, count, disagreements)
            if self._actions is None:
                return Rows(state, None, None, count)
            action = number_rows(file[self._actions], start, count).astype(np.float64)
        acted = self._acted(action, disagreements)
        return (
            Rows(state, None, action[acted], count, acted) if len(acted) else Rows(state, None, None, count)
        )

    def clip(self, episode: int, view: str, disagreements: Disagreements) -> Pictures | None:
        """The pictures of an episode."""
        column, header = self._columns[view]
        start, count = int(self._offsets[episode]), int(self._lengths[episode])

        def each() -> Iterator[np.ndarray]:
            with _opened(self.folder) as file:
                yield from picture_rows(file, column, start, count)

        return Pictures(header, count, each)

    # -- taking stock ----------------------------------------------------------------------------------------

    def _rate(self, file: h5py.File, fps: float | None) -> float:
        value = file.attrs.get("fps")
        declared = float(value) if isinstance(value, np.floating) else None
        if fps is not None and declared is not None and fps != declared:
            raise InputError("--fps", f"{fps:g}: {self.folder} declares {declared:g}", "leave --fps out")
        rate = fps if declared is None else declared
        if rate is None:
            raise InputError(
                self.folder,
                "holds rows without a clock, and rates are not guessed",
                "say --fps, rows a second",
            )
        by = "declared by whoever imported it" if declared is None else "declared by the file's attribute fps"
        self.facts["rate"] = by
        return require_rate(rate)

    def _find_joints(self, file: h5py.File, declared: str | None) -> str:
        """The column that holds the joints."""
        tables = [name for name, data in file.items() if is_table(data) and name != ACTION]
        shown = ", ".join(f"{name} ({file[name].shape[1]} columns)" for name in tables) or "none"
        if declared is not None:
            if declared not in tables:
                raise InputError("--joints-from", f"{declared!r} is no table of numbers", f"tables: {shown}")
            self.facts["joints"] = f"column {declared}, declared by whoever imported it"
            return declared
        if QPOS in file:
            self.facts["joints"] = f"column {QPOS}, by its name"
            return QPOS
        named = [name for name in MAY_BE_JOINTS if name in tables]
        if len(named) == 1:
            self.facts["joints"] = f"column {named[0]}, the only one whose name fits"
            return named[0]
        problem = f"{' and '.join(named)} may each hold the joints" if named else f"has no column {QPOS}"
        raise InputError(self.folder, problem, f"say which holds the joints: --joints-from; tables: {shown}")

    def _take_views(self, file: h5py.File) -> tuple[list[SourceView], dict[str, tuple[str, Header]]]:
        """(views, {view: (column, size)}): `pixels` first, under the name that our export noted there."""
        if PIXELS in file and not is_pictures(file[PIXELS]):
            data = file[PIXELS]
            found = f"{data.dtype} {data.shape}" if is_column(data) else "no column"
            raise InputError(
                f"{self.folder}, {PIXELS}",
                f"is {found}; pictures are uint8 (N, H, W, 3) or (N, 3, H, W)",
                "convert it",
            )
        pictures = sorted(
            (name for name, data in file.items() if is_pictures(data)),
            key=lambda name: (name != PIXELS, name),
        )
        views, columns = [], {}
        for column in pictures:
            noted = text_attribute(file[column], "view") if column == PIXELS else None
            view = noted if noted and NAME.fullmatch(noted) and noted not in pictures else column
            if not NAME.fullmatch(view):
                raise InputError(f"{self.folder}, {view[:80]!r}", "is no usable name for a view", "rename it")
            header = picture_column(file, column)
            views.append(SourceView(view, self.fps, header.width, header.height, "rgb8"))
            columns[view] = (column, header)
            if are_channels_first(file[column]):
                self.facts[f"axes of {column}"] = "channels first: the second is 3, the last neither 3 nor 1"
        if not views:
            self.missing.append(f"pictures: no column is uint8 (N, H, W, 3), such as {PIXELS}")
        return views, columns

    def _take_rows(self, file: h5py.File) -> int:
        """The number of rows, which all columns that are used have, and which holds every episode."""
        used = {self._joints: number_column(file, self._joints, "fiu", 2)}
        if self._actions is not None:
            used[self._actions] = number_column(file, self._actions, "fiu", 2)
        for name in (self._numbers, self._steps):
            if name is not None:
                one_column = is_table(file[name]) and file[name].shape[1] == 1
                used[name] = number_column(file, name, "iu", 2 if one_column else 1)
        used |= {column: file[column] for column, _ in self._columns.values()}
        rows = len(used[self._joints])
        for name, data in used.items():
            if len(data) != rows:
                raise InputError(
                    f"{self.folder}, {name}", f"has {len(data):,} rows, {self._joints} has {rows:,}", RESTORE
                )
        beyond = np.flatnonzero(self._offsets > rows - self._lengths)
        if len(beyond):
            first = beyond[0]
            raise InputError(
                f"{self.folder}, {LENGTHS}, {OFFSETS}",
                f"episode {first}, {self._lengths[first]:,} rows from row {self._offsets[first]:,} on, ends "
                f"beyond the {rows:,} rows of {self._joints}",
                RESTORE,
            )
        return rows

    def _names(self, file: h5py.File, column: str, stem: str) -> list[str]:
        width = int(file[column].shape[1])
        try:
            noted = json.loads(text_attribute(file[column], "names") or "null")
        except (ValueError, RecursionError):
            noted = None
        if isinstance(noted, list) and len(noted) == width:
            names = [name for name in noted if isinstance(name, str) and NAME.fullmatch(name)]
            if len(set(names)) == width:
                self.facts[f"{stem} names"] = f"those of the attribute names of {column}"
                return names
        self.facts[f"{stem} names"] = "numbered; the file names none"
        return [f"{stem}_{number}" for number in range(width)]

    def _note_last_action(self, file: h5py.File) -> None:
        """Say so where the last row of an episode holds an action, since none was sent there."""
        there = np.flatnonzero(self._lengths > 1)
        if self._actions is None or not len(there):
            return
        last = int(self._offsets[there[0]] + self._lengths[there[0]]) - 1
        if np.isfinite(number_rows(file[self._actions], last, 1)).all():
            self.missing.append(
                "a NaN in the last action of an episode: kept as it came, but what stable-worldmodel 0.1.1 "
                "collected has there the action that was sent before the first row (its issue 293)"
            )

    def _note_others(self, file: h5py.File, rows: int) -> None:
        used = {self._joints, self._actions, self._numbers, self._steps, LENGTHS, OFFSETS}
        used |= {column for column, _ in self._columns.values()}
        others = [name for name in file if name not in used]
        if others:
            self.missing.append(f"not imported: {', '.join(others)[:500]}")
        outside = rows - int(self._lengths.sum())
        if outside:
            self.missing.append(f"{outside:,} of {rows:,} rows belong to no episode")

    def _sha256(self, file: h5py.File) -> str:
        """Over the file's size, its columns and its episodes: whether an import goes on with the same set."""
        columns = sorted(
            f"{name} {data.dtype} {data.shape}" for name, data in file.items() if is_column(data)
        )
        digest = hashlib.sha256("\n".join([str(self.folder.stat().st_size), *columns]).encode())
        digest.update(self._lengths.tobytes() + self._offsets.tobytes())
        return digest.hexdigest()

    # -- inside an episode -----------------------------------------------------------------------------------

    def _acted(self, action: np.ndarray, disagreements: Disagreements) -> np.ndarray:
        """Numbers of the rows that hold an action, int64."""
        there = ~np.isnan(action).all(axis=1)
        acted = np.flatnonzero(there)
        if not len(acted) and len(action) > 1:
            problem = f"{ACTION} is NaN in each of its {len(action)} rows: nothing was sent"
            disagreements.note("no_actions", "actions", problem, RESTORE)
        holes = [row for row in np.flatnonzero(~there) if len(acted) and acted[0] < row < acted[-1]]
        if holes:
            problem = (
                f"{ACTION} is NaN at row {holes[0]} ({len(holes)} such rows), inside the episode: "
                f"by {ACTION} one ends there, by {LENGTHS} none does"
            )
            disagreements.note("no_actions", "actions", problem, f"correct {LENGTHS}, or {ACTION}")
        return acted

    def _compare_numbers(
        self, file: h5py.File, episode: int, start: int, count: int, disagreements: Disagreements
    ) -> None:
        """The numbers that rows carry must be what `ep_len` and `ep_offset` make of them."""
        problems = []
        if self._numbers is not None:
            own = number_rows(file[self._numbers], start, count).reshape(count).astype(np.int64)
            other = np.flatnonzero(own != own[0])
            claimed_by = self._claimed.setdefault(int(own[0]), episode)
            if len(other):
                row = other[0]
                problems.append(f"{self._numbers} is {own[0]} at row 0 and {own[row]} at row {row}")
            elif claimed_by != episode:
                problems.append(f"{self._numbers} is {own[0]}, as in episode {claimed_by}")
        if self._steps is not None:
            steps = number_rows(file[self._steps], start, count).reshape(count).astype(np.int64)
            wrong = np.flatnonzero(steps != np.arange(count))
            if len(wrong):
                problems.append(f"{self._steps} is {steps[wrong[0]]} at row {wrong[0]}")
        for problem in problems:
            disagreements.note(
                "count",
                "joints",
                f"{problem}; by {LENGTHS} and {OFFSETS} its rows are 0 to {count - 1} of episode {episode}",
                "correct one or the other",
            )


# -- inside a file -----------------------------------------------------------------------------------------


def _files_in(folder: Path) -> list[Path]:
    """The files of a folder that hold `ep_len` and `ep_offset`."""
    found = []
    for path in sorted(folder.glob("*")):
        if path.suffix in SUFFIXES and path.is_file():
            try:
                with h5py.File(path, "r") as file:
                    if LENGTHS in file and OFFSETS in file:
                        found.append(path)
            except (OSError, RuntimeError):  # of no format, or damaged: others say so
                continue
    return found


def _opened(path: Path) -> AbstractContextManager[h5py.File]:
    """Open for reading; refuse what reaches outside the file, and files of other kinds."""
    return opened_foreign(path, _refuse_others, RESTORE)


def _refuse_others(file: h5py.File, path: Path) -> None:
    """Say what an HDF5 file is, where it is none of these."""
    if LENGTHS in file and OFFSETS in file:
        return
    if file.attrs.get("schema") == EPISODE_SCHEMA:
        raise InputError(
            path, "is one episode of a recording of our own", "nothing is to be imported: use its folder"
        )
    if "observations/qpos" in file:
        raise InputError(path, "is one ALOHA-style episode", "give the folder that holds the episodes")
    absent = " and ".join(name for name in (LENGTHS, OFFSETS) if name not in file)
    raise InputError(
        path,
        f"has no {absent}: it holds {', '.join(file)[:300] or 'nothing'}",
        "give a file in which they list the episodes",
    )
