"""Cells of a sweep, made for tests of its figures, and what is read off a figure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D


@dataclass
class Number:
    mean: float
    values: tuple[float, ...]
    low: float | None = None
    high: float | None = None


@dataclass
class Cell:
    arm: str
    at: dict[str, Any]
    numbers: dict[str, Number]
    theirs: dict[str, float] = field(default_factory=dict)
    seeds: int = 3
    failed: int = 0


NAMES = (
    "r2_hz",
    "r2_hz_in",
    "r2_hz_grid",
    "r2_hz_uniform",
    "r2_hz_own",
    "r2_hz_uniform_own",
    "orthogonality_error",
    "orthogonality_error_grid",
    "bound",
    "recovery",
    "loss_tail",
)
AXES: dict[str, dict[str, list[Any]]] = {
    "two-d": {"mixing": ["spiral", "banana"], "objective": ["sigreg", "infonce"]},
    "grid": {"lam": [1e-2, 1e-3], "world.rho": [0.5, 0.9, 0.95]},
    "gennorm": {"mixing": ["spiral"], "objective": ["sigreg"], "world.source.alpha": [0.5, 2, 8]},
    "scaling": {"world.dim": [2, 64], "objective": ["sigreg", "whitening"]},
    "reacher": {"data": ["rho 0.5", "rho 0.9", "delta 1", "delta 8"], "recipe.lam": [1e-3, 5e-2]},
}
MANY: dict[str, dict[str, list[Any]]] = {
    "two-d": {"mixing": ["spiral", "banana", "sinusoid", "coupling"], "objective": ["sigreg", "whitening"]},
    "grid": {
        "lam": [10.0**-power for power in range(27)],
        "world.rho": [0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99],
    },
    "gennorm": {
        "mixing": ["spiral", "banana", "sinusoid", "coupling"],
        "objective": ["sigreg", "whitening", "infonce"],
        "world.source.alpha": [0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32],
    },
    "scaling": {
        "world.dim": [2**power for power in range(1, 11)],
        "objective": ["sigreg", "whitening", "infonce"],
    },
    "reacher": {
        "data": ["rho 0.5", *(f"delta {2**power}" for power in range(7))],
        "recipe.lam": [1e-3, 5e-2],
    },
}


def number(*values: float) -> Number:
    mean = float(np.mean(values))
    half = 2 * float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return Number(mean, values, mean - half, mean + half) if len(values) > 1 else Number(mean, values)


def places(axes: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def some_cells(axes: dict[str, list[Any]]) -> list[Cell]:
    """Cells of three seeds, the last of which has diverged, and two controls."""
    rng = np.random.default_rng(0)
    found = [
        Cell("main", at, {name: number(*rng.uniform(0.2, 0.9, 3)) for name in NAMES}, {"r2_hz_in": 0.7})
        for at in places(axes)
    ]
    found[-1].numbers, found[-1].failed = {}, 3
    first = {axis: values[0] for axis, values in axes.items()}
    return [*found, *(Cell(arm, first, found[0].numbers) for arm in ("untrained", "no regulariser"))]


def line(at: Axes, label: str) -> Line2D:
    (found,) = [one for one in at.lines if one.get_label() == label]
    return found


def xy(at: Axes, label: str) -> np.ndarray:
    return np.asarray(line(at, label).get_xydata())


def labels(at: Axes) -> list[str]:
    return [str(one.get_label()) for one in at.lines]


def below(figure: Figure) -> str:
    """All that the figure's legend says."""
    return "\n".join(
        text
        for legend in figure.legends
        for text in (
            legend.get_title().get_text().replace("\n", " "),
            *(one.get_text() for one in legend.texts),
        )
    )


def names(ticks: Sequence[Any]) -> list[str]:
    return [tick.get_text() for tick in ticks]
