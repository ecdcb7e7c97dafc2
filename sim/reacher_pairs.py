"""A pair set on disk: states of the Reacher, their images once each, and which of them are pairs.

    DIR/pairs.yaml       what it is: condition, rho or delta, seed, source, what rendered it
    DIR/states.h5        states float64 (U, 2) in rad; pairs int64 (V, P, 2), rows of `states`; episodes (U,)
    DIR/frames.h5        frames uint8 (U, 64, 64, 3), in chunks of about 1 MiB, Blosc-zstd with checksums;
                         frames.h5.partial and its journal while it is written
    DIR/manifest.json    size and SHA-256 of each, written last: the set is whole

Stopped or killed and called again, writing goes on behind the last images that were brought to the disk.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Literal

import h5py
import hdf5plugin  # noqa: F401  registers compressions with HDF5
import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field

from hardware.disk import disk_errors, held_alone, write_atomically
from hardware.episode import sha256_of_file
from hardware.errors import InputError
from hardware.journal import journal_path
from hardware.recording import Progress
from hardware.schema import load_yaml, parse_model
from sim.reacher_draws import Condition, Draw
from sim.reacher_frames import FRAMES, REMAKE, STORED_IS_SAFE, read_frames, write_frames
from sim.reacher_processes import ReacherRenderers
from sim.reacher_rendering import SIDE

SCHEMA = "jointprobe-reacher-pairs/1"
INFO, STATES, MANIFEST = "pairs.yaml", "states.h5", "manifest.json"
DRAWN_BY = "numpy SeedSequence; the generator of the published states is not known"


class PairSetInfo(BaseModel):
    """The content of pairs.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_: Literal["jointprobe-reacher-pairs/1"] = Field(
        default="jointprobe-reacher-pairs/1", alias="schema"
    )
    condition: Condition
    values: list[float]
    """rho (`ou`) or delta in rows (`traj`) of each set of pairs."""
    count: int = Field(ge=1)
    """Pairs of each value, or single states (`eval`)."""
    states: int = Field(ge=1)
    """Different states, and images."""
    seed: int
    drawn_by: str
    draw_sha256: str
    """Of states and pairs."""
    source: dict[str, Any] | None = None
    rendered_by: dict[str, str]

    def to_yaml(self) -> str:
        """The text of pairs.yaml."""
        data = self.model_dump(by_alias=True, mode="json")
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)


def write_pair_set(
    draw: Draw, to: str | Path, *, workers: int | None = None, progress: Progress | None = None
) -> PairSet:
    """Render and store a draw; a set that is whole already is opened, one that was begun is gone on with.

    Parameters
    ----------
    to : the folder.
    workers : processes that render; None takes as many as there are cores.

    Raises
    ------
    InputError : the folder holds something else, another process writes it, the disk is full, OpenGL is
        missing, or is another one than the set was begun with.
    """
    to = Path(to)
    with disk_errors(to):
        if to.exists() and not (to / INFO).exists() and (not to.is_dir() or _others(to)):
            raise InputError(to, "is not empty, and no pair set", "choose another folder")
        to.mkdir(parents=True, exist_ok=True)
    with held_alone(to, "written"):
        begun = _read_info(to) if (to / INFO).exists() else None
        if begun is not None:
            _require_same(to, begun, draw)
        if not (to / MANIFEST).is_file():
            if not (to / FRAMES).is_file():
                _make(draw, to, begun, workers, progress)
            _seal(to)
    return PairSet.open(to)


class PairSet:
    """A whole pair set; `PairSet.open` reads its states and pairs, and images as they are asked for.

    Attributes
    ----------
    info : what it is.
    states : float64 (U, 2), rad.
    episodes : int64 (U,), the episode of each state; None but for `traj`.
    """

    def __init__(
        self,
        folder: Path,
        info: PairSetInfo,
        states: np.ndarray,
        pairs: np.ndarray,
        episodes: np.ndarray | None,
    ) -> None:
        self.folder, self.info, self.states, self.episodes = folder, info, states, episodes
        self._pairs = pairs

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = False) -> PairSet:
        """Open a set.

        Parameters
        ----------
        verify : hash the images as well; else damage to them is found when they are read, by the checksums
            of their chunks.

        Raises
        ------
        InputError : no set, one that is not whole, or damaged files, by their names.
        """
        folder = Path(folder)
        if not (folder / INFO).is_file():
            raise InputError(folder, f"holds no pair set: it has no {INFO}", "make one: jointprobe reacher")
        if not (folder / MANIFEST).is_file():
            raise InputError(
                folder, "is not whole: its images are still being made", "run the command that began it again"
            )
        _check_files(folder, (INFO, STATES, FRAMES) if verify else (INFO, STATES))
        info = _read_info(folder)
        path = folder / STATES
        try:
            with h5py.File(path, "r") as file:
                states, pairs = file["states"][()], file["pairs"][()]
                episodes = file["episodes"][()] if "episodes" in file else None
            with h5py.File(folder / FRAMES, "r") as file:
                path, shape, kind = folder / FRAMES, file["frames"].shape, file["frames"].dtype
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise InputError(path, f"is damaged ({str(error)[:150]})", REMAKE) from None
        expected = (info.states, SIDE, SIDE, 3)
        if shape != expected or kind != np.uint8:
            raise InputError(folder / FRAMES, f"holds {kind} {shape}, expected uint8 {expected}", REMAKE)
        fits = states.shape == (info.states, 2) and pairs.shape[0] == len(info.values)
        if not fits or (pairs.size and not 0 <= pairs.min() <= pairs.max() < len(states)):
            raise InputError(folder / STATES, f"does not fit to {INFO}", REMAKE)
        return cls(folder, info, states, pairs, episodes)

    @property
    def condition(self) -> Condition:
        """`ou`, `traj` or `eval`."""
        return self.info.condition

    @property
    def rhos(self) -> tuple[float, ...]:
        """Correlations of its pairs; none but for `ou`."""
        return tuple(self.info.values) if self.condition == "ou" else ()

    @property
    def deltas(self) -> tuple[int, ...]:
        """Strides of its pairs, in rows; none but for `traj`."""
        return tuple(map(int, self.info.values)) if self.condition == "traj" else ()

    def pairs(self, value: float) -> np.ndarray:
        """The pairs of a rho or delta, int64 (P, 2): rows of `states` of the first and the second member.

        Raises
        ------
        InputError : the set has no pairs of that value.
        """
        if value not in self.info.values:
            there = ", ".join(f"{one:g}" for one in self.info.values) or "none"
            raise InputError(self.folder, f"has no pairs of {value:g}", f"it has {there}")
        return self._pairs[self.info.values.index(value)]

    def frames(self, indices: np.ndarray | None = None, progress: Progress | None = None) -> np.ndarray:
        """Images of states by their rows, uint8 (n, 64, 64, 3); all of them without `indices`.

        Each chunk is decompressed once, whatever the order and however often a row is asked for.

        Raises
        ------
        InputError : a row that is not there; damaged images.
        """
        rows = np.arange(len(self)) if indices is None else np.asarray(indices, np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self):
            raise InputError(self.folder, f"has no images beyond row {len(self) - 1}", "see its states")
        return read_frames(self.folder, rows, progress)

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        return self.frames(indices)

    def subset(self, value: float, progress: Progress | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The images that the pairs of a value use, each once, and those pairs as rows of them.

        Returns
        -------
        uint8 (n, 64, 64, 3) and int64 (P, 2).
        """
        used, places = np.unique(self.pairs(value), return_inverse=True)
        return self.frames(used, progress), places.reshape(-1, 2)


# -- writing -----------------------------------------------------------------------------------------------


def _make(
    draw: Draw, to: Path, begun: PairSetInfo | None, workers: int | None, progress: Progress | None
) -> None:
    """Everything but the manifest."""
    with ReacherRenderers(workers, len(draw.states)) as renderers:
        info = _info(draw, renderers.description())
        if begun is None:
            _write(to / INFO, info.to_yaml().encode())
        elif begun != info:
            raise InputError(to / INFO, *_difference(begun, info))
        _write(to / STATES, _states_file(draw))
        write_frames(to, draw.states, renderers, progress)


def _others(to: Path) -> list[str]:
    """What a folder without pairs.yaml holds, but for what a kill while that was written leaves."""
    return [path.name for path in to.iterdir() if path.name != f"{INFO}.partial"]


def _seal(to: Path) -> None:
    with disk_errors(to, STORED_IS_SAFE):
        journal_path(to / f"{FRAMES}.partial").unlink(missing_ok=True)
        files = {
            name: {"bytes": (to / name).stat().st_size, "sha256": sha256_of_file(to / name)}
            for name in (INFO, STATES, FRAMES)
        }
    _write(to / MANIFEST, json.dumps({"schema": SCHEMA, "files": files}, indent=1).encode() + b"\n")


def _info(draw: Draw, rendered_by: dict[str, str]) -> PairSetInfo:
    return PairSetInfo(
        condition=draw.condition,
        values=list(draw.values),
        count=draw.count,
        states=len(draw.states),
        seed=draw.seed,
        drawn_by=DRAWN_BY,
        draw_sha256=draw.sha256,
        source=draw.source,
        rendered_by=rendered_by,
    )


def _require_same(to: Path, info: PairSetInfo, draw: Draw) -> None:
    asked = _info(draw, info.rendered_by)
    if info != asked:
        problem, _ = _difference(info, asked)
        raise InputError(to, f"holds another pair set: {problem}", "choose another folder, or remove it")


def _difference(begun: PairSetInfo, asked: PairSetInfo) -> tuple[str, str]:
    """What is wrong, and the remedy, where two sets differ."""
    one, other = begun.model_dump(), asked.model_dump()
    field = next(name for name in one if one[name] != other[name])
    problem = f"{field} is {one[field]}, here {other[field]}"[:500]
    return problem, "go on where the set was begun, or make it again in another folder"


def _states_file(draw: Draw) -> bytes:
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        columns = {
            "states": draw.states,
            "pairs": np.stack(draw.pairs) if draw.pairs else np.zeros((0, 0, 2), np.int64),
        }
        if draw.episodes is not None:
            columns["episodes"] = draw.episodes
        for name, values in columns.items():
            file.create_dataset(name, data=values, fletcher32=bool(values.size), track_times=False)
    return memory.getvalue()


def _write(path: Path, data: bytes) -> None:
    with disk_errors(path, STORED_IS_SAFE):
        write_atomically(path, data)


# -- reading -----------------------------------------------------------------------------------------------


def _read_info(folder: Path) -> PairSetInfo:
    info: PairSetInfo = parse_model(PairSetInfo, load_yaml(folder / INFO), folder / INFO)
    return info


def _check_files(folder: Path, hashed: tuple[str, ...]) -> None:
    """Sizes of all files, and the hashes of some, against the manifest."""
    path = folder / MANIFEST
    try:
        files = json.loads(path.read_text("utf-8"))["files"]
        noted = {
            name: (int(files[name]["bytes"]), str(files[name]["sha256"])) for name in (INFO, STATES, FRAMES)
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(path, f"is damaged ({error})", REMAKE) from None
    for name, (size, sha256) in noted.items():
        if not (folder / name).is_file():
            raise InputError(folder / name, "is missing", REMAKE)
        found = (folder / name).stat().st_size
        if found != size:
            raise InputError(folder / name, f"has {found:,} bytes, the manifest says {size:,}", REMAKE)
        if name in hashed and sha256_of_file(folder / name) != sha256:
            raise InputError(folder / name, "is damaged: its SHA-256 is not the manifest's", REMAKE)
