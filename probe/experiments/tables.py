"""Results of an experiment as tables: a row a run, then means over seeds beside the paper's numbers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import stats

from encoders.encoder import canonical_json
from hardware.disk import disk_errors, write_atomically
from probe.experiments.experiment import MAIN, Experiment, Setting
from probe.experiments.numbers import reads_latents
from probe.experiments.pair_checks import PairCheck, pairs_table
from probe.experiments.plan import Planned
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
        rows.append(
            {
                "arm": one.arm,
                **one.at,
                "seed": one.seed,
                "restart": one.restart,
                "job": one.job.key,
                **result.numbers,
                "loss_last": result.losses.last,
                "loss_tail": result.losses.tail,
                "seconds_of_training": result.seconds_of_training,
                "machine": result.machine,
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
        theirs = _theirs(experiment.published, at) if arm == MAIN else {}
        found.append(Cell(arm, at, numbers, len(members), failed, theirs))
    return found


_PLACES = ("arm", "seed", "restart", "job", "machine")


def _axes(experiment: Experiment) -> list[str]:
    every = [*experiment.vary, *(axis for control in experiment.controls.values() for axis in control.vary)]
    return list(dict.fromkeys(every))


def _theirs(published: Sequence[Mapping[str, Any]], at: Mapping[str, Any]) -> dict[str, float]:
    for entry in published:
        if all(entry[axis] == value for axis, value in at.items()):
            return {name: value for name, value in entry.items() if name not in at}
    return {}


def chosen(experiment: Experiment, setting: Setting, found: Sequence[Cell]) -> list[Cell]:
    """At each place of the other axes the cell whose deciding number is greatest, beside the paper's choice.

    Nothing for an experiment that chooses nothing, and none of a place where no cell has that number.
    """
    choose = experiment.choose
    if choose is None or setting not in choose.by:
        return []
    best: dict[tuple[Any, ...], Cell] = {}
    by = choose.by[setting]
    for cell in found:
        if cell.arm == MAIN and by in cell.numbers:
            elsewhere = {axis: value for axis, value in cell.at.items() if axis != choose.axis}
            place = tuple(elsewhere.values())
            held = best.get(place)
            if held is None or cell.numbers[by].mean > held.numbers[by].mean:
                best[place] = replace(cell, theirs=_theirs(choose.published, elsewhere))
    return list(best.values())


def with_choice(experiment: Experiment, setting: Setting, found: Sequence[Cell]) -> list[Cell]:
    """Cells as a figure shows them: one that was chosen has the paper's numbers of its choice too."""
    picked = {canonical_json(cell.at): cell.theirs for cell in chosen(experiment, setting, found)}
    return [
        replace(cell, theirs={**picked.get(canonical_json(cell.at), {}), **cell.theirs})
        if cell.arm == MAIN
        else cell
        for cell in found
    ]


# -- files -------------------------------------------------------------------------------------------------


def write_tables(
    experiment: Experiment,
    setting: Setting,
    rows: Sequence[Row],
    folder: Path,
    checks: Sequence[PairCheck] = (),
) -> tuple[list[Cell], dict[str, Any]]:
    """runs.csv, runs.parquet, summary.csv, results.json and table.md in `folder`; the cells that they show,
    and what results.json holds.
    """
    found = cells(experiment, setting, rows)
    results = results_json(experiment, setting, rows, found, checks)
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
        text = json.dumps(results, indent=1, allow_nan=False)
        write_atomically(folder / "results.json", text.encode() + b"\n")
        lines = [markdown(experiment, setting, found), *(f"{line}\n" for line in pairs_table(checks))]
        write_atomically(folder / "table.md", "".join(lines).encode())
    return found, results


def results_json(
    experiment: Experiment,
    setting: Setting,
    rows: Sequence[Row],
    found: Sequence[Cell],
    checks: Sequence[PairCheck],
) -> dict[str, Any]:
    """What was found, in one JSON object: each cell's numbers with every seed's own, theirs, the machines."""
    picked = chosen(experiment, setting, found)
    machines = {json.dumps(row["machine"], sort_keys=True) for row in rows}
    return {
        "schema": "jointprobe-sweep/1",
        "experiment": experiment.name,
        "title": experiment.title,
        "as": setting,
        "machines": [json.loads(machine) for machine in sorted(machines)],
        "seconds_of_training": round(sum(row["seconds_of_training"] for row in rows), 1),
        "cells": [_cell_json(cell) for cell in found],
        **({"chosen": [_cell_json(cell) for cell in picked]} if picked else {}),
        **({"pairs": [check.to_json() for check in checks]} if checks else {}),
    }


def _cell_json(cell: Cell) -> dict[str, Any]:
    return {
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
    lines = [
        f"# {experiment.title} (as: {setting})",
        "",
        experiment.about.strip(),
        "",
        *_table(found, experiment.shown),
    ]
    counts = sorted({cell.seeds for cell in found})
    lines += [
        "",
        f"Seeds a cell: {', '.join(map(str, counts))}. In brackets 95 %: t, of the mean over seeds.",
    ]
    lines += _closeness(found, experiment.shown)
    for name, control in experiment.controls.items():
        if any(cell.arm == name for cell in found):
            lines.append(f"{name}: {control.about}")
    picked = chosen(experiment, setting, found)
    if picked and experiment.choose is not None:
        axis, by = experiment.choose.axis.rpartition(".")[2], experiment.choose.by[setting]
        published = [
            name for entry in experiment.choose.published for name in entry if name not in picked[0].at
        ]
        names = list(dict.fromkeys([by, *experiment.shown, *published]))
        values = ", ".join(map(_plain, _values(found, experiment.choose.axis)))
        lines += [
            "",
            f"## The {axis} of the greatest {by}",
            "",
            f"Of {values}, by the mean over seeds.",
            "",
            *_table(picked, names),
            "",
            *_closeness(picked, names),
        ]
    return "\n".join(lines) + "\n"


def _closeness(found: Sequence[Cell], names: Sequence[str]) -> list[str]:
    """A line about how many R2 are near theirs; of x, which no training touches, none is counted."""
    apart = [
        cell.numbers[name].mean - cell.theirs[name]
        for cell in found
        for name in names
        if reads_latents(name) and name in cell.theirs and name in cell.numbers
    ]
    near = sum(abs(one) <= CLOSE for one in apart)
    return [f"R2 between latents and encodings within {CLOSE} of theirs: {near} of {len(apart)}."] * bool(
        apart
    )


def _values(found: Sequence[Cell], axis: str) -> list[Any]:
    return list(dict.fromkeys(cell.at[axis] for cell in found if cell.arm == MAIN))


def _table(found: Sequence[Cell], names: Sequence[str]) -> list[str]:
    """A line a cell: its place, then the numbers of these names, theirs before ours where there are any."""
    axes = list(dict.fromkeys(axis for cell in found for axis in cell.at))
    compared = [name for name in names if any(name in cell.theirs for cell in found)]
    heads = ["", *(axis.rpartition(".")[2] for axis in axes)]
    for name in names:
        heads += [f"{name}, theirs", f"{name}, ours"] if name in compared else [name]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for cell in found:
        values = ["" if cell.arm == MAIN else cell.arm, *(_plain(cell.at.get(axis)) for axis in axes)]
        for name in names:
            ours = cell.numbers.get(name)
            values += [_plain(cell.theirs.get(name))] if name in compared else []
            lost = "diverged" if cell.failed == cell.seeds else ""
            # an R2 of nearly 1 is told by its distance from it
            nearly = ours is not None and name.startswith("r2") and 0 < 1 - ours.mean < 1e-3
            values.append(lost if ours is None else ours.shown(6 if nearly else 4))
        if 0 < cell.failed < cell.seeds:
            values[0] += f" ({cell.failed} of {cell.seeds} diverged)"
        lines.append(_line(values))
    return lines


def _line(values: Sequence[str]) -> str:
    return "| " + " | ".join(values) + " |"


def _plain(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, (int, float)) else str(value)
