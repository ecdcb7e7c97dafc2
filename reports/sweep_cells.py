"""Cells of a sweep: what a figure is drawn from, and which of them belong together.

A cell is what an experiment makes of runs that differ by their seed only: where it stands (`arm`, `at`), its
`numbers` by name, and the paper's own (`theirs`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from reports.marks import CONTROL_COLOUR, MODEL_COLOURS, Series

MARKERS = ("o", "D", "P", "X", "v", "*", "s", "^", "<", ">", "p")
CONTROL_MARKERS = ("s", "^", "x", "v", "P", "*", "D")
OBJECTIVES = {"sigreg": "SIGReg", "whitening": "whitening", "infonce": "InfoNCE"}
AXIS_NAMES = {
    "lam": "lambda",
    "recipe.lam": "lambda",
    "world.rho": "rho",
    "world.dim": "N",
    "world.source.alpha": "alpha",
}


class Number(Protocol):
    """One number over its seeds."""

    @property
    def mean(self) -> float: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...
    @property
    def values(self) -> Sequence[float]: ...


class Cell(Protocol):
    """Where runs differ by their seed only: `seeds` runs, of which `failed` diverged."""

    @property
    def arm(self) -> str: ...
    @property
    def at(self) -> Mapping[str, Any]: ...
    @property
    def numbers(self) -> Mapping[str, Number]: ...
    @property
    def seeds(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def theirs(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Strand:
    """Cells that differ only by where a figure puts them, and how they are drawn."""

    series: Series
    cells: tuple[Cell, ...]
    line: str = "-"


def main_of(cells: Sequence[Cell]) -> list[Cell]:
    """Those that are no control's."""
    return [cell for cell in cells if cell.arm == "main"]


def arms_of(cells: Sequence[Cell]) -> list[str]:
    """Names of the controls."""
    return list(dict.fromkeys(cell.arm for cell in cells if cell.arm != "main"))


def values_of(cells: Sequence[Cell], axis: str) -> list[Any]:
    """Values of an axis: numbers by size, others as they come."""
    found = list(dict.fromkeys(cell.at[axis] for cell in cells if axis in cell.at))
    return sorted(found) if all(_is_number(value) for value in found) else found


def number_of(value: Any) -> float | None:
    """A value of an axis as a coordinate, None where it is no number."""
    return float(value) if _is_number(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def said(axis: str, value: Any) -> str:
    """A value with what it is a value of: `lambda 0.01`; one that is a word stands for itself."""
    if not _is_number(value):
        return OBJECTIVES.get(str(value), str(value))
    return f"{AXIS_NAMES.get(axis, axis.rpartition('.')[2])} {value:g}"


def strands(cells: Sequence[Cell], placed: Sequence[str]) -> list[Strand]:
    """Cells brought together over the axes that a figure has a place for; the controls last, in grey."""
    grouped: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in [*main_of(cells), *(cell for cell in cells if cell.arm != "main")]:
        rest = tuple((axis, value) for axis, value in cell.at.items() if axis not in placed)
        grouped.setdefault((cell.arm, rest), []).append(cell)
    found, taken = [], 0
    colours, dashes = itertools.cycle(MODEL_COLOURS), itertools.cycle(("--", ":", "-."))
    markers, grey = itertools.cycle(MARKERS), itertools.cycle(CONTROL_MARKERS)
    known = list(OBJECTIVES)
    for (arm, rest), members in grouped.items():
        words = [said(axis, value) for axis, value in rest]
        if arm != "main":
            series = Series(", ".join([arm, *words]), CONTROL_COLOUR, next(grey))
            found.append(Strand(series, tuple(members), next(dashes)))
            continue
        colour, marker = next(colours), next(markers)
        if len(rest) == 1 and rest[0][1] in known:  # an objective looks the same in every figure
            place = known.index(rest[0][1])
            colour, marker = MODEL_COLOURS[place], MARKERS[place]
        taken += 1
        found.append(Strand(Series(", ".join(words) or "ours", colour, marker), tuple(members)))
    return found
