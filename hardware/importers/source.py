"""What an importer reads from: the shape that every foreign format is brought into before it becomes a
recording.

A format is a module with `detect(path) -> bool` and `read(path, fps) -> Source`, where `path` is a folder, or
the file of formats that are one file, and `fps` a rate that was declared by the caller, or None;
`hardware.importers.importing` lists them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from hardware.errors import InputError
from hardware.importers.pictures import Pictures
from hardware.importers.video import Clip


@dataclass(frozen=True)
class SourceView:
    """A camera of the source: its declared size in pixels (None where it does not say), its rate in Hz, and
    how its frames are stored.
    """

    name: str
    fps: float
    width: int | None = None
    height: int | None = None
    encoding: Literal["video", "jpeg", "rgb8"] = "video"


@dataclass(frozen=True)
class Rows:
    """The table of one episode, as it came.

    Attributes
    ----------
    state : float64 (n, J), joint values in the source's unit.
    timestamp : float64 (n,), seconds; None where the source has no clock: row i is at i / fps then.
    action : float64 (m, A) or None; m is n, or less where rows have none.
    length : number of rows that the source's metadata claims; None where it claims none.
    acted : int64 (m,), rising: the rows whose action each is; None where they are the first m.
    """

    state: np.ndarray
    timestamp: np.ndarray | None
    action: np.ndarray | None
    length: int | None
    acted: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.state)


class Source(Protocol):
    """A set of episodes in a foreign format. `missing` says in words what is named but is not here; `facts`
    says where rate, names and the like were taken from, where the format itself does not settle it.
    """

    folder: Path
    format: str
    version: str
    robot: str
    fps: float
    metadata_sha256: str
    joint_names: list[str]
    action_names: list[str]
    views: list[SourceView]
    episodes: list[int]
    missing: list[str]
    facts: dict[str, str]

    def rows(self, episode: int, disagreements: Disagreements) -> Rows:
        """The table of an episode."""
        ...

    def clip(self, episode: int, view: str, disagreements: Disagreements) -> Clip | Pictures | None:
        """The video or the pictures of an episode, decoded once to count them; None where there are none."""
        ...


@dataclass(frozen=True)
class Fault:
    """One disagreement within an episode, as the recording keeps it."""

    kind: str
    stream: str
    message: str


@dataclass
class Disagreements:
    """Where things that must agree do not: an error, or with `lenient` a fault that travels with the
    episode.
    """

    where: str
    lenient: bool = False
    faults: list[Fault] = field(default_factory=list)

    def note(self, kind: str, stream: str, problem: str, remedy: str = "") -> None:
        """Raise InputError, or keep a fault of this `kind` for `stream` when lenient."""
        if not self.lenient:
            hint = "or import with --lenient, which keeps it as a recorded fault"
            raise InputError(self.where, problem, f"{remedy}, {hint}" if remedy else hint[3:])
        self.faults.append(Fault(kind, stream, problem))

    def record(self, kind: str, stream: str, message: str) -> None:
        """Keep a fault that is no error even when strict."""
        self.faults.append(Fault(kind, stream, message))
