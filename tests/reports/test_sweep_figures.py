"""Figures of a sweep: drawn for whatever is there, with nothing of it lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.stats import spearmanr

from reports.sweep_figures import KINDS, _spearman, draw_sweep


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


NAMES = (
    "r2_hz",
    "r2_hz_in",
    "r2_hz_grid",
    "orthogonality_error",
    "bound",
    "recovery",
    "loss_tail",
    "r2_hz_uniform",
    "r2_hz_own",
)
AXES: dict[str, dict[str, list[Any]]] = {
    "two-d": {"mixing": ["spiral", "banana"], "objective": ["sigreg", "infonce"]},
    "grid": {"lam": [1e-2, 1e-3], "world.rho": [0.5, 0.9, 0.95]},
    "gennorm": {"mixing": ["spiral"], "objective": ["sigreg"], "world.source.alpha": [0.5, 2, 8]},
    "scaling": {"world.dim": [2, 64], "objective": ["sigreg", "whitening"]},
    "reacher": {"data": ["rho 0.5", "rho 0.9", "delta 1", "delta 8"], "recipe.lam": [1e-3, 5e-2]},
}


def some_cells(kind: str) -> list[Cell]:
    rng = np.random.default_rng(0)
    places: list[dict[str, Any]] = [{}]
    for axis, values in AXES[kind].items():
        places = [{**place, axis: value} for place in places for value in values]
    found = []
    for at in places:
        numbers = {}
        for name in NAMES:
            values = tuple(rng.uniform(0.2, 0.9, 3).tolist())
            numbers[name] = Number(float(np.mean(values)), values, 0.1, 0.95)
        found.append(Cell("main", at, numbers, {"r2_hz_in": 0.7, "r2_hz_grid": 0.6}))
    found[-1].numbers = {}  # its runs have diverged
    found.append(
        Cell("untrained", {axis: values[0] for axis, values in AXES[kind].items()}, found[0].numbers)
    )
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn(kind: str, tmp_path: Path) -> None:
    paths = draw_sweep(kind, some_cells(kind), "A title", tmp_path)
    assert [path.name for path in paths] == [f"{kind}.png", "bound.png", "predictivity.png"]
    for path in paths:
        with Image.open(path) as image:
            assert min(image.size) > 200
            assert len(np.unique(np.asarray(image.convert("L")))) > 20


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_and_nothing_of_the_paper(kind: str, tmp_path: Path) -> None:
    cells = some_cells(kind)[:1]
    cells[0].theirs = {}
    cells[0].numbers = {
        name: Number(0.5, (0.5,)) for name in ("r2_hz", "orthogonality_error", "r2_hz_uniform")
    }
    assert [path.name for path in draw_sweep(kind, cells, "A title", tmp_path)] == [f"{kind}.png"]


def test_the_rank_correlation_is_scipys() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 6, 40).astype(float), rng.normal(size=40).round(1)
    assert _spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert np.isnan(_spearman(a, np.ones(40)))
