"""Results of an experiment as tables: a row a run, then means over seeds beside the paper's numbers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import stats

from hardware.disk import disk_errors, write_atomically
from probe.experiments.experiment import Experiment, Planned, Setting
from probe.experiments.sweep import read_result

Row = dict[str, Any]
LEVEL = 0.95
CLOSE = 0.02
"""In R2: ours is called within reach of theirs where it is no farther off."""


@dataclass(frozen=True)
class Summary:
    """One number of one cell over its seeds.

    Attributes
    ----------
    mean, low, high : with the t-interval of the mean at 95 %; no interval from one seed.
    std : over seeds, dividing by n - 1; None from one.
    values : of each seed, in order of the seeds.
    """

    mean: float
    low: float | None
    high: float | None
    std: float | None
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary | None:
        """None where there is no value."""
        found = np.asarray(values, np.float64)
        if not len(found):
            return None
        mean = float(found.mean())
        if len(found) == 1:
            return cls(mean, None, None, None, (mean,))
        std = float(found.std(ddof=1))
        half = float(stats.t.ppf((1 + LEVEL) / 2, len(found) - 1)) * std / len(found) ** 0.5
        return cls(mean, mean - half, mean + half, std, tuple(found.tolist()))

    def shown(self, digits: int = 3) -> str:
        """`0.986 [0.985, 0.987]`."""
        if self.low is None or self.high is None:
            return f"{self.mean:.{digits}f}"
        return f"{self.mean:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


@dataclass(frozen=True)
class Cell:
    """Where runs differ by their seed only, and the numbers that they gave.

    Attributes
    ----------
    arm, at : `main` or a control; the value of each axis.
    numbers : by name.
    seeds, failed : how many runs there are, and how many of them have diverged.
    theirs : the paper's numbers of this place, by the same names.
    """

    arm: str
    at: dict[str, Any]
    numbers: dict[str, Summary]
    seeds: int
    failed: int
    theirs: dict[str, float]


def rows_of(planned: Sequence[Planned], to: str | Path) -> list[Row]:
    """A row a run that has a result: where it stands, its numbers, its losses."""
    rows = []
    for one in planned:
        result = read_result(to, one.job)
        if result is None:
            continue
        losses = result["losses"]
        rows.append(
            {
                "arm": one.arm,
                **one.at,
                "seed": one.seed,
                "restart": one.restart,
                "job": one.job.key,
                **result["numbers"],
                "loss_last": losses["last"],
                "loss_tail": losses["tail"],
                "seconds_of_training": result["seconds_of_training"],
                "machine": result["machine"],
            }
        )
    return rows


def of_best_restarts(rows: Sequence[Row], axes: Iterable[str], setting: Setting) -> list[Row]:
    """Of the restarts of one run the one with the lowest loss: the last batch's as published, or the tail's.

    A run that diverged has no loss and is taken only where all did.
    """
    by = "loss_last" if setting == "published" else "loss_tail"
    best: dict[tuple[Any, ...], Row] = {}
    names = ["arm", *axes, "seed"]
    for row in rows:
        place = tuple(row.get(name) for name in names)
        loss = np.inf if row[by] is None else row[by]
        held = best.get(place)
        if held is None or loss < (np.inf if held[by] is None else held[by]):
            best[place] = row
    return list(best.values())


def cells(experiment: Experiment, setting: Setting, rows: Sequence[Row]) -> list[Cell]:
    """Rows brought together over seeds, in the order in which they come."""
    axes = _axes(experiment)
    grouped: dict[tuple[Any, ...], list[Row]] = {}
    for row in of_best_restarts(rows, axes, setting):
        grouped.setdefault((row["arm"], *(row.get(axis) for axis in axes)), []).append(row)
    found = []
    for (arm, *values), members in grouped.items():
        at = {axis: value for axis, value in zip(axes, values) if axis in members[0]}
        every = dict.fromkeys(name for row in members for name in row)  # one that diverged has fewer
        names = [name for name in every if name not in _PLACES and name not in axes]
        numbers = {}
        for name in names:
            summary = Summary.of([row[name] for row in members if isinstance(row.get(name), (int, float))])
            if summary is not None:
                numbers[name] = summary
        failed = sum(row.get("r2_hz") is None for row in members)
        theirs = _theirs(experiment, at) if arm == "main" else {}
        found.append(Cell(arm, at, numbers, len(members), failed, theirs))
    return found


_PLACES = ("arm", "seed", "restart", "job", "machine")


def _axes(experiment: Experiment) -> list[str]:
    every = [*experiment.vary, *(axis for control in experiment.controls.values() for axis in control.vary)]
    return list(dict.fromkeys(every))


def _theirs(experiment: Experiment, at: Mapping[str, Any]) -> dict[str, float]:
    for entry in experiment.published:
        if all(axis not in entry or entry[axis] == value for axis, value in at.items()):
            return {name: value for name, value in entry.items() if name not in at and value is not None}
    return {}


# -- files -------------------------------------------------------------------------------------------------


def write_tables(experiment: Experiment, setting: Setting, rows: Sequence[Row], folder: Path) -> list[Cell]:
    """runs.csv, runs.parquet, summary.csv, results.json and table.md in `folder`; the cells they show."""
    found = cells(experiment, setting, rows)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        names = list(dict.fromkeys(name for row in rows for name in row if name != "machine"))
        write_atomically(
            folder / "runs.csv", _csv(names, ([row.get(name) for name in names] for row in rows))
        )
        table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer)
        write_atomically(folder / "runs.parquet", buffer.getvalue().to_pybytes())
        write_atomically(folder / "summary.csv", _summary_csv(found))
        text = json.dumps(results_json(experiment, setting, rows, found), indent=1, allow_nan=False)
        write_atomically(folder / "results.json", text.encode() + b"\n")
        write_atomically(folder / "table.md", markdown(experiment, setting, found).encode())
    return found


def results_json(
    experiment: Experiment, setting: Setting, rows: Sequence[Row], found: Sequence[Cell]
) -> dict[str, Any]:
    """What was found, in one JSON object: each cell's numbers with every seed's own, theirs, the machines."""
    machines = {json.dumps(row["machine"], sort_keys=True) for row in rows}
    return {
        "schema": "jointprobe-sweep/1",
        "experiment": experiment.name,
        "title": experiment.title,
        "as": setting,
        "machines": [json.loads(machine) for machine in sorted(machines)],
        "seconds_of_training": round(sum(row["seconds_of_training"] for row in rows), 1),
        "cells": [
            {
                "arm": cell.arm,
                "at": cell.at,
                "seeds": cell.seeds,
                "diverged": cell.failed,
                "numbers": {
                    name: {"mean": one.mean, "low": one.low, "high": one.high, "values": list(one.values)}
                    for name, one in cell.numbers.items()
                    if name != "seconds_of_training"
                },
                "theirs": cell.theirs,
            }
            for cell in found
        ],
    }


def _csv(names: Sequence[str], lines: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(["" if value is None else value for value in line] for line in lines)
    return text.getvalue().encode()


def _summary_csv(found: Sequence[Cell]) -> bytes:
    axes = list(dict.fromkeys(axis for cell in found for axis in cell.at))
    lines = [
        [
            cell.arm,
            *(cell.at.get(axis) for axis in axes),
            name,
            len(one.values),
            one.mean,
            one.low,
            one.high,
            one.std,
            cell.theirs.get(name),
        ]
        for cell in found
        for name, one in cell.numbers.items()
    ]
    return _csv(["arm", *axes, "number", "n", "mean", "low", "high", "std", "theirs"], lines)


def markdown(experiment: Experiment, setting: Setting, found: Sequence[Cell]) -> str:
    """The table that people read: R2 and orthogonality error, theirs beside ours, controls below."""
    axes = list(dict.fromkeys(axis for cell in found for axis in cell.at))
    shown = experiment.shown
    compared = [name for name in shown if any(name in cell.theirs for cell in found)]
    heads = ["", *(axis.rpartition(".")[2] for axis in axes)]
    for name in shown:
        heads += [f"{name}, theirs", "ours"] if name in compared else [name]
    lines = [
        f"# {experiment.title} (as: {setting})",
        "",
        experiment.about.strip(),
        "",
        _line(heads),
        _line(["---"] * len(heads)),
    ]
    for cell in found:
        values = ["" if cell.arm == "main" else cell.arm, *(_plain(cell.at.get(axis)) for axis in axes)]
        for name in shown:
            ours = cell.numbers.get(name)
            values += [_plain(cell.theirs.get(name))] if name in compared else []
            lost = "diverged" if cell.failed == cell.seeds else ""
            # an R2 of nearly 1 is told by its distance from it
            values.append(lost if ours is None else ours.shown(6 if 0 < 1 - ours.mean < 1e-3 else 4))
        if 0 < cell.failed < cell.seeds:
            values[0] += f" ({cell.failed} of {cell.seeds} diverged)"
        lines.append(_line(values))
    counts = sorted({cell.seeds for cell in found})
    lines += [
        "",
        f"Seeds a cell: {', '.join(map(str, counts))}. In brackets 95 %: t, of the mean over seeds.",
    ]
    apart = [
        (name, ours.mean - cell.theirs[name])
        for cell in found
        for name, ours in cell.numbers.items()
        if name in cell.theirs and name.startswith("r2")
    ]
    if apart:
        near = sum(abs(one) <= CLOSE for _, one in apart)
        lines.append(f"R2 within {CLOSE} of theirs: {near} of {len(apart)}.")
    for name, control in experiment.controls.items():
        if any(cell.arm == name for cell in found):
            lines.append(f"{name}: {control.about}")
    return "\n".join(lines) + "\n"


def _line(values: Sequence[str]) -> str:
    return "| " + " | ".join(values) + " |"


def _plain(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, (int, float)) else str(value)
