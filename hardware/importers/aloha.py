"""HDF5 episodes laid out as ALOHA and ACT write them.

    episode_0.hdf5
      attrs sim, compress
      observations/qpos          [T, J]        joints
      observations/images/NAME   [T, H, W, 3]  uint8 pictures; or [T, L] uint8, JPEG bytes padded with zeros
      action                     [T, A]        optional
      compress_len               [views, T]    optional: bytes of each JPEG; which view is which is not said

Rows pair by number. There is no clock in them, so the rate has to be declared. Pictures are stored as
`hardware.importers.pictures` says.

Colours: arrays are taken for RGB, as ALOHA's own readers take them. JPEGs are stored as they came. ALOHA
hands what its camera node gave to OpenCV's encoder, which takes it for BGR: where the node gave RGB, red and
blue are exchanged in the JPEGs. Nothing in the file tells, and nothing is changed here; the import says so.

Names: joints are numbered. Fourteen of them are called as ALOHA's two arms, by their number alone. Its
grippers are shares of their travel (0 to 1) and not angles, whatever unit is declared.

`observations/qvel` and `observations/effort` are left where they are: their units are said nowhere.

The files may come from anybody: links and data outside the file are refused, sizes are bounded by what the
file really stores before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401  registers compressions with HDF5
import numpy as np

from hardware.episode import _array, _dataset, _read
from hardware.errors import InputError
from hardware.frames import MAX_PIXELS
from hardware.importers.episode_files import episode_files, files_sha256, require_rate
from hardware.importers.hdf5_columns import opened_foreign
from hardware.importers.lerobot import NAME
from hardware.importers.pictures import Header, NotPicture, Pictures, encoded_pictures, picture_header
from hardware.importers.source import Disagreements, Rows, SourceView

KNOWN = "ALOHA-style episodes (a folder of episode_*.hdf5 with observations/qpos)"
QPOS, IMAGES, ACTION, LENGTHS = "observations/qpos", "observations/images", "action", "compress_len"
ARM = ("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate", "gripper")
JOINTS_OF_TWO_ARMS = [f"{side}_{joint}" for side in ("left", "right") for joint in ARM]
MAX_JOINTS = 256
SMALL_BYTES = 64 << 20  # a table of less is read whatever the file stores
MAX_COMPRESSION = 1100  # deflate gives 1032 at most
STEP_BYTES = 8 << 20  # pictures held in memory at once
RESTORE = "restore the file, or take it out of the folder"


def detect(folder: Path) -> bool:
    """Whether `folder` holds HDF5 episodes."""
    return any(folder.glob("*.hdf5"))


def read(folder: Path, fps: float | None = None) -> AlohaSet:
    """The set in `folder`, whose rows were recorded at `fps`."""
    if fps is None:
        raise InputError(
            folder,
            "holds rows without a clock, and rates are not guessed",
            "say --fps, rows a second (ALOHA's own recorder runs at 50; nothing says that it made these)",
        )
    return AlohaSet(folder, require_rate(fps))


class AlohaSet:
    """The set in one folder of HDF5 episodes."""

    format = "ALOHA-style HDF5"
    version = "unversioned"

    def __init__(self, folder: Path, fps: float) -> None:
        self.folder = folder
        self.fps = fps
        self.missing: list[str] = ["time stamps: row i is taken at i / fps"]
        self.facts = {"rate": "declared by whoever imported it"}
        self._files, self.facts["episode numbers"] = episode_files(folder, "*.hdf5")
        self.episodes = list(self._files)
        self.metadata_sha256 = files_sha256(self._files)
        self.views: list[SourceView] = []
        self._headers: dict[str, Header] = {}
        self._first = self._take_stock()

    # -- what the importer asks for --------------------------------------------------------------------------

    def rows(self, episode: int, disagreements: Disagreements) -> Rows:
        """The joints and actions of an episode."""
        path = self._files[episode]
        with _opened(path) as file:
            state = _numbers(file, QPOS)
            acts = ACTION in file
            action = _numbers(file, ACTION) if self.action_names and acts else None
            images = file.get(IMAGES)
            more = set(images) - set(self._headers) if isinstance(images, h5py.Group) else set()
        if more:
            raise InputError(
                f"{path}, {IMAGES}",
                f"has the views {', '.join(sorted(more))}, which {self._first.name} lacks",
                "import files with other views apart",
            )
        if not len(state):
            raise InputError(f"{path}, {QPOS}", "has no rows", RESTORE)
        for name, table, names in ((QPOS, state, self.joint_names), (ACTION, action, self.action_names)):
            if table is not None and table.shape[1] != len(names):
                raise InputError(
                    f"{path}, {name}",
                    f"has {table.shape[1]} columns, that of {self._first.name} {len(names)}",
                    "import files of other robots apart",
                )
        if bool(self.action_names) != acts:
            one, other = (self._first.name, path.name) if self.action_names else (path.name, self._first.name)
            problem = f"{other} has no {ACTION}, {one} has one"
            disagreements.note("no_actions", "actions", problem, RESTORE)
        elif action is not None and len(action) != len(state):
            problem = f"{path.name}: {len(action)} rows of {ACTION}, {len(state)} of {QPOS}"
            disagreements.note("count", "actions", problem, RESTORE)
            action = action[: len(state)]
        return Rows(state, None, action, None)

    def clip(self, episode: int, view: str, disagreements: Disagreements) -> Pictures | None:
        """The pictures of an episode."""
        path, name = self._files[episode], f"{IMAGES}/{view}"
        with _opened(path) as file:
            if name not in file:
                problem = f"view {view}: {path.name} has no {name}"
                disagreements.note("no_pictures", view, problem, RESTORE)
                return None
            found = _pictures_in(file, name)
            if found.ndim == 4:
                header = _raw_header(found)
                return Pictures(header, len(found), lambda: _raw(path, name))
        lengths: list[int] = []

        def read() -> Iterator[bytes | None]:
            for data in _padded(path, name):
                lengths.append(len(data or b""))
                yield data

        pictures = encoded_pictures(read, self._headers[view], path.name)
        if pictures.problem is None:
            self._compare_lengths(path, view, np.array(lengths), disagreements)
        return pictures

    def _compare_lengths(
        self, path: Path, view: str, found: np.ndarray, disagreements: Disagreements
    ) -> None:
        """The bytes of each JPEG must be those that `compress_len` has, in one of its rows."""
        with _opened(path) as file:
            if LENGTHS not in file:
                return
            try:
                claimed = _numbers(file, LENGTHS)
            except InputError as error:
                disagreements.note("count", view, f"view {view}: {error.where} {error.problem}", RESTORE)
                return
        if not any(np.array_equal(row[: len(found)], found) for row in claimed):
            problem = f"view {view}: the lengths of its JPEGs in {path.name} are no row of {LENGTHS}"
            disagreements.note("count", view, problem, RESTORE)

    # -- taking stock ----------------------------------------------------------------------------------------

    def _take_stock(self) -> Path:
        """Joints, actions and views by the first file that can be read; the others must have the same."""
        refused: InputError | None = None
        for path in self._files.values():
            try:
                with _opened(path) as file:
                    self._name(file)
                    self._headers = self._headers_of(file, path)
                    self._note_others(file)
                self.views = [
                    SourceView(name, self.fps, header.width, header.height, header.encoding)
                    for name, header in self._headers.items()
                ]
                return path
            except InputError as error:
                refused = refused or error
        assert refused is not None  # there is at least one file
        raise refused

    def _name(self, file: h5py.File) -> None:
        joints, actions = _width(file, QPOS), _width(file, ACTION) if ACTION in file else 0
        known = joints == len(JOINTS_OF_TWO_ARMS)
        self.joint_names = JOINTS_OF_TWO_ARMS if known else [f"joint_{number}" for number in range(joints)]
        of_joints = known and actions == joints
        self.action_names = (
            JOINTS_OF_TWO_ARMS if of_joints else [f"action_{number}" for number in range(actions)]
        )
        self.facts["joint names"] = (
            "those of ALOHA's two arms, by their number; the files name none" if known else "numbered"
        )
        if known:
            self.facts["grippers"] = "of an ALOHA: shares of their travel (0 to 1), not angles"
        simulated = file.attrs.get("sim")
        self.robot = "aloha" if known else "unknown"
        if isinstance(simulated, (bool, np.bool_)):
            self.facts["simulated"] = "yes, by attribute sim" if simulated else "no, by attribute sim"

    def _headers_of(self, file: h5py.File, path: Path) -> dict[str, Header]:
        """Encoding and size of each view, by its first picture."""
        if IMAGES not in file:
            self.missing.append(f"pictures: there is no {IMAGES}")
            return {}
        if not isinstance(file[IMAGES], h5py.Group):
            raise InputError(f"{path}, {IMAGES}", "is no group of views", RESTORE)
        headers = {}
        for name in file[IMAGES]:
            if not NAME.fullmatch(name):
                raise InputError(
                    f"{path}, {IMAGES}", f"{name[:80]!r} is no usable name for a view", "rename it"
                )
            found = _pictures_in(file, f"{IMAGES}/{name}")
            headers[name] = _raw_header(found) if found.ndim == 4 else _first_header(found)
        if any(header.encoding == "jpeg" for header in headers.values()):
            self.missing.append(
                "the order of colours in its JPEGs: stored as they came; where RGB was handed to OpenCV's "
                "encoder, red and blue are exchanged: look at one (jointprobe show)"
            )
        return headers

    def _note_others(self, file: h5py.File) -> None:
        groups = {"": file, "observations/": file["observations"]}
        others = [
            f"{prefix}{name}"
            for prefix, group in groups.items()
            for name in group
            if f"{prefix}{name}" not in ("observations", QPOS, IMAGES, ACTION, LENGTHS)
        ]
        if others:
            self.missing.append(f"not imported, since their units are not said: {', '.join(others)}")


# -- inside a file -----------------------------------------------------------------------------------------


def _opened(path: Path) -> AbstractContextManager[h5py.File]:
    """Open for reading; refuse what reaches outside the file, and files of other kinds."""
    return opened_foreign(path, _refuse_others, RESTORE)


def _refuse_others(file: h5py.File, path: Path) -> None:
    if not isinstance(file.get("observations"), h5py.Group):
        raise InputError(path, "holds no group 'observations': it is no ALOHA-style episode", RESTORE)


def _table(file: h5py.File, name: str) -> h5py.Dataset:
    """A table of numbers, whose size the file can really hold."""
    where = f"{file.filename}, {name}"
    if name not in file or not isinstance(file[name], h5py.Dataset):
        raise InputError(where, "is missing", "give episodes as ALOHA writes them")
    data = file[name]
    if data.dtype.kind not in "fiu" or data.ndim != 2:
        raise InputError(
            where, f"is {data.dtype} with {data.ndim} axes, expected numbers with 2: rows, columns", RESTORE
        )
    stored = min(data.id.get_storage_size(), Path(file.filename).stat().st_size)
    if data.nbytes > max(SMALL_BYTES, MAX_COMPRESSION * stored):
        raise InputError(where, f"claims {data.nbytes:,} bytes and stores {stored:,}", RESTORE)
    return _dataset(file, name, data.dtype, 2)


def _numbers(file: h5py.File, name: str) -> np.ndarray:
    """A table, float64 (rows, columns)."""
    return np.asarray(_array(file, name, _table(file, name).dtype, 2), np.float64)


def _width(file: h5py.File, name: str) -> int:
    columns = int(_table(file, name).shape[1])
    if not 0 < columns <= MAX_JOINTS:
        raise InputError(f"{file.filename}, {name}", f"has {columns} columns, not 1 to {MAX_JOINTS}", RESTORE)
    return columns


def _pictures_in(file: h5py.File, name: str) -> h5py.Dataset:
    """The dataset of a view: uint8, (T, H, W, 3) or (T, L)."""
    where, data = f"{file.filename}, {name}", file[name]
    shaped = isinstance(data, h5py.Dataset) and (data.ndim == 2 or (data.ndim == 4 and data.shape[3] == 3))
    if not shaped or data.dtype != np.uint8:
        found = f"{data.dtype} {data.shape}" if isinstance(data, h5py.Dataset) else "a group"
        raise InputError(
            where, f"is {found}; pictures are uint8 (T, H, W, 3), or (T, L) of padded JPEG bytes", RESTORE
        )
    if not 0 < int(np.prod(data.shape[1:], dtype=object)) <= 3 * MAX_PIXELS:
        raise InputError(where, f"claims pictures of {' x '.join(map(str, data.shape[1:]))} bytes", RESTORE)
    return _dataset(file, name, np.uint8, data.ndim)


def _raw_header(data: h5py.Dataset) -> Header:
    height, width = data.shape[1:3]
    return Header("rgb8", int(width), int(height))


def _first_header(data: h5py.Dataset) -> Header:
    where = f"{data.file.filename}, {data.name}, row 0"
    if not len(data):
        raise InputError(where, "is not there", RESTORE)
    try:
        return picture_header(_unpadded(_read(data, 0)) or b"")
    except NotPicture as error:
        raise InputError(where, f"its picture {error}", RESTORE) from None


def _raw(path: Path, name: str) -> Iterator[np.ndarray]:
    with _opened(path) as file:
        for block in _blocks(_pictures_in(file, name)):
            yield from block


def _padded(path: Path, name: str) -> Iterator[bytes | None]:
    with _opened(path) as file:
        for block in _blocks(_pictures_in(file, name)):
            for row in block:
                yield _unpadded(row)


def _blocks(data: h5py.Dataset) -> Iterator[np.ndarray]:
    """Rows of a dataset, as many at a time as fit STEP_BYTES, or one."""
    step = max(1, STEP_BYTES // max(1, int(np.prod(data.shape[1:], dtype=np.int64))))
    for start in range(0, len(data), step):
        yield _read(data, slice(start, start + step))


def _unpadded(row: np.ndarray) -> bytes | None:
    """A picture without its padding: no JPEG (and no PNG) ends in a zero. None for a row of nothing."""
    return row.tobytes().rstrip(b"\0") or None
