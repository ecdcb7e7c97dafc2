"""What an importer reads from: the shape that every foreign format is brought into before it becomes a
recording.

A format is a module with `detect(folder) -> bool` and `read(folder) -> Source`;
`hardware.importers.importing` lists them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from hardware.errors import InputError
from hardware.importers.video import Clip


@dataclass(frozen=True)
class SourceView:
    """A camera of the source: its declared size in pixels (None where it does not say) and rate in Hz."""

    name: str
    fps: float
    width: int | None = None
    height: int | None = None


@dataclass(frozen=True)
class Rows:
    """The table of one episode, as it came.

    Attributes
    ----------
    state : float64 (n, J), joint values in the source's unit.
    timestamp : float64 (n,), seconds.
    action : float64 (n, A) or None.
    length : number of rows that the source's metadata claims.
    """

    state: np.ndarray
    timestamp: np.ndarray
    action: np.ndarray | None
    length: int

    def __len__(self) -> int:
        return len(self.state)


class Source(Protocol):
    """A set of episodes in a foreign format. `missing` says in words what is named but is not here."""

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

    def rows(self, episode: int, disagreements: Disagreements) -> Rows:
        """The table of an episode."""
        ...

    def clip(self, episode: int, view: str, disagreements: Disagreements) -> Clip | None:
        """The video of an episode, decoded once to count it, or None where it is not here."""
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
