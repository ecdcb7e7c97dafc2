"""Two figures that every experiment has: does the theorem's bound hold, and does the loss tell recovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray
from scipy import stats

from reports.marks import CONTROL_COLOUR, INK, MODEL_COLOURS, STYLE, Series
from reports.numbers import count
from reports.sweep_cells import CONTROL_MARKERS, MARKERS, OBJECTIVES, Cell, arms_of, main_of, said, values_of
from reports.sweep_panels import SMALL, canvas, diverged_note, legend, line_handle, logarithmic, name_axes

BEYOND = 1.05
"""Recovery error and bound are equal where an encoder has collapsed, but both are estimates, by default from
10,000 samples, so that one is above the other by a hundredth by chance."""
FEWEST = 5
"""Of four runs even a perfect order comes by chance once in twelve times, of five once in sixty."""
UNDER_IN = 0.5  # from a panel to what its groups tell, below the axis' name
NEAR = 3.0  # losses within this factor stand on an axis that is not logarithmic
MOST_NAMED = len(MODEL_COLOURS) * len(MARKERS)
LEAVE_LOSSES_ALIKE = ("mixing", "world.mixing", "network", "steps", "learning_rate", "hold", "weight_decay")
"""Axes, and beginnings of their paths, over which a loss stays what it is: the least that it can be does not
depend on how latents are observed, nor on the network."""

Floats = NDArray[np.float64]


def matched(cell: Cell, *names: str) -> Floats | None:
    """The runs of a cell as rows, with one column a number; None where it is not certain whose each value is.

    Values come in the order of the seeds, without those that a run does not have (one that diverged may have
    a loss and no R2). They are of the same runs for certain only where every run has them all.
    """
    lists = [cell.numbers[name].values if name in cell.numbers else () for name in names]
    if not cell.seeds or any(len(values) != cell.seeds for values in lists):
        return None
    return np.array(lists, np.float64).T


def _left_out(cells: Sequence[Cell], *names: str) -> list[Cell]:
    """Those that have values of some of these numbers, but not of every run."""
    return [
        cell
        for cell in cells
        if any(name in cell.numbers for name in names) and matched(cell, *names) is None
    ]


def _unmatched_note(lost: Sequence[Cell], cells: Sequence[Cell]) -> list[str]:
    text = f"{len(lost)} of {count(len(cells), 'cell')} left out: not all of their runs have both numbers."
    return [text] * bool(lost)


# -- theorem 5.3 -------------------------------------------------------------------------------------------


def is_gaussian(cell: Cell) -> bool:
    """Whether a cell's latents are Gaussian, as the theorem needs them, as far as its axes say."""
    shape = cell.at.get("world.source.alpha", 2)
    name = cell.at.get("world.source.name", "gaussian")
    return bool(shape == 2) and name in ("gaussian", "gennorm")


def bound_figure(cells: Sequence[Cell], title: str) -> Figure | None:
    """Recovery error against the bound of theorem 5.3, of Gaussian latents: nothing may lie above the line.

    None where no cell has both.
    """
    names = ("bound", "recovery")
    have = [cell for cell in cells if any(name in cell.numbers for name in names)]
    gaussian = [cell for cell in have if is_gaussian(cell)]
    points: list[tuple[Series, Floats]] = []
    hidden = 0
    for number, arm in enumerate(["main", *arms_of(gaussian)]):
        runs = [matched(cell, *names) for cell in gaussian if cell.arm == arm]
        found = [rows for rows in runs if rows is not None]
        if not found:
            continue
        every = np.concatenate(found)
        positive = (every > 0).all(axis=1)
        hidden += int((~positive).sum())
        above = int((every[:, 1] > BEYOND * every[:, 0]).sum())
        label = f"{arm} ({count(len(every), 'run')}, {above} above the line)"
        grey = CONTROL_MARKERS[(number - 1) % len(CONTROL_MARKERS)]
        look = (MODEL_COLOURS[0], "o") if arm == "main" else (CONTROL_COLOUR, grey)
        points.append((Series(label, *look), every[positive]))
    if not any(len(rows) for _, rows in points):
        return None
    figure, axes = canvas(1, 1, title, width=4.8, height=4.6)
    with mpl.rc_context(STYLE):
        at = axes[0, 0]
        for series, rows in points[::-1]:  # ours over the controls
            style = {"color": series.colour, "ms": 5, "alpha": 0.75, "label": series.label}
            at.plot(rows[:, 0], rows[:, 1], series.marker, linestyle="none", **style)
        both = np.concatenate([rows.ravel() for _, rows in points])
        _diagonal(at, both)
        name_axes(
            at,
            title="theorem 5.3, Gaussian latents",
            xlabel="bound, D + (eps + D)^2",
            ylabel="recovery error, min over rotations E|h - Q z|^2",
        )
        notes = [f"Above: by over {100 * (BEYOND - 1):.0f} %; a collapsed encoder stands on the line."]
        if len(gaussian) < len(have):
            left = len(have) - len(gaussian)
            notes.append(f"{left} of {count(len(have), 'cell')} left out: their latents are not Gaussian.")
        notes += _unmatched_note(_left_out(gaussian, *names), gaussian)
        if hidden:
            notes.append(f"{count(hidden, 'run')} not on a logarithmic axis: an error or a bound of 0.")
        legend(figure, [line_handle(series) for series, _ in points], [*notes, *diverged_note(gaussian)])
    return figure


def _diagonal(at: Axes, values: Floats) -> None:
    """The same limits on both axes, and where recovery is what the bound allows at most: corner to corner."""
    logarithmic(at, "x", values)
    logarithmic(at, "y", values)
    at.axline((0, 0), (1, 1), transform=at.transAxes, color=INK, linewidth=0.9, label="recovery = bound")
    at.text(
        0.47, 0.5, "recovery = bound: none may lie above", transform=at.transAxes, rotation=45,
        transform_rotates_text=True, rotation_mode="anchor", ha="center", va="bottom", fontsize="x-small",
    )  # fmt: skip


# -- does the loss tell? -----------------------------------------------------------------------------------


def predictivity_figure(cells: Sequence[Cell], title: str) -> Figure | None:
    """Does the loss tell which run recovers more? A point a run, compared where losses mean the same.

    They do so among runs of one objective, one lambda (the loss is weighted by it), one number of latents and
    one kind of pairs: a panel an objective, a colour and marker a group, each with its own rank correlation.
    None where no run has both numbers.
    """
    main, names = main_of(cells), ("loss_tail", "r2_hz")
    there = [cell for cell in main if matched(cell, *names) is not None]
    kinds = values_of(there, "objective") or [None]
    of_kind = [
        _grouped([cell for cell in there if cell.at.get("objective") in (None, kind)]) for kind in kinds
    ]
    if not there:
        return None
    most = max(len(groups) for groups in of_kind)
    columns = 1 if most <= 12 else 3
    figure, axes = canvas(1, len(kinds), title, width=4.1 if columns == 1 else 8.4, height=3.4)
    width, height = figure.get_size_inches()
    lines = min(most, MOST_NAMED) / columns + 1
    figure.set_size_inches(width, height + 0.155 * lines)
    with mpl.rc_context(STYLE):
        hidden = 0
        for at, kind, groups in zip(axes[0], kinds, of_kind):
            hidden += _draw_groups(at, groups, columns)
            head = OBJECTIVES.get(str(kind), str(kind)) if kind is not None else "loss and recovery"
            name_axes(
                at,
                title=head,
                xlabel="loss, mean of the last tenth of the training",
                ylabel="1 - R2 of z from h",
            )
        notes = [
            "r: rank correlation of loss and 1 - R2 within a group, whose losses mean the same "
            f"(1: the lower the loss, the more is recovered); fewer than {FEWEST} runs cannot tell."
        ]
        notes += _unmatched_note(_left_out(main, *names), main)
        if hidden:
            notes.append(f"{count(hidden, 'run')} not on the axis: R2 of exactly 1.")
        legend(figure, [], [*notes, *diverged_note(main)])
    return figure


def _grouped(cells: Sequence[Cell]) -> Mapping[str, Floats]:
    """Runs (n, 2), loss and 1 - R2, of cells whose losses mean the same, by what these have in common."""
    found: dict[tuple[tuple[str, Any], ...], list[Floats]] = {}
    for cell in cells:
        rows = matched(cell, "loss_tail", "r2_hz")
        shared = tuple(
            (axis, value)
            for axis, value in cell.at.items()
            if axis != "objective" and not _leaves_alike(axis)
        )
        if rows is not None:
            found.setdefault(shared, []).append(np.column_stack((rows[:, 0], 1 - rows[:, 1])))
    order = {axis: values_of(cells, axis) for cell in cells for axis in cell.at}
    ordered = sorted(found.items(), key=lambda one: [order[axis].index(value) for axis, value in one[0]])
    return {
        ", ".join(said(axis, value) for axis, value in shared) or "all runs": np.concatenate(rows)
        for shared, rows in ordered
    }


def _leaves_alike(axis: str) -> bool:
    return any(axis == one or axis.startswith(f"{one}.") for one in LEAVE_LOSSES_ALIKE)


def _draw_groups(at: Axes, groups: Mapping[str, Floats], columns: int) -> int:
    """Points of each group, and below the panel what each tells; how many runs have no place on the axes."""
    handles: list[Artist] = []
    named = list(groups.items())[:MOST_NAMED]
    for number, (name, rows) in enumerate(named):
        colour = MODEL_COLOURS[number % len(MODEL_COLOURS)]
        marker = MARKERS[(number // len(MODEL_COLOURS) + number) % len(MARKERS)]
        series = Series(f"{name}: {_told(rows)}", colour, marker)
        _points(at, rows, series, 4.5)
        handles.append(line_handle(series))
    others = list(groups.values())[MOST_NAMED:]
    if others:  # more than can be told apart
        series = Series(f"{len(others)} more: {_told_together(others)}", INK, ".")
        _points(at, np.concatenate(others), series, 3)
        handles.append(line_handle(series))
    every = np.concatenate(list(groups.values()))
    positive = every[every[:, 1] > 0, 1]
    if len(positive):
        logarithmic(at, "y", positive)
    least, greatest = every[:, 0].min(), every[:, 0].max()
    if least > 0 and greatest > NEAR * least:
        logarithmic(at, "x", every[:, 0], margin=1.3)
    else:
        at.xaxis.set_major_locator(MaxNLocator(4))
        at.xaxis.set_major_formatter("{x:g}")
        at.tick_params(axis="x", labelsize=SMALL)
    under = ScaledTranslation(0, -UNDER_IN, at.figure.dpi_scale_trans)
    at.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=at.transAxes + under,
        ncols=columns, fontsize="x-small", borderaxespad=0,
    )  # fmt: skip
    return len(every) - len(positive)


def _points(at: Axes, rows: Floats, series: Series, size: float) -> None:
    y = np.where(rows[:, 1] > 0, rows[:, 1], np.nan)
    at.plot(
        rows[:, 0], y, series.marker, color=series.colour, ms=size, alpha=0.75, linestyle="none",
        label=series.label,
    )  # fmt: skip


def _told(rows: Floats) -> str:
    """What a group's runs tell, and how many they are."""
    if len(rows) < FEWEST:
        return f"too few to tell (n {len(rows)})"
    r = _spearman(rows[:, 0], rows[:, 1])
    return f"r {r:+.2f} (n {len(rows)})" if np.isfinite(r) else f"all alike (n {len(rows)})"


def _told_together(groups: Sequence[Floats]) -> str:
    """The same of many groups."""
    every = [_spearman(rows[:, 0], rows[:, 1]) for rows in groups if len(rows) >= FEWEST]
    found = [r for r in every if np.isfinite(r)]
    few = len(groups) - len(every)
    told = [f"r {min(found):+.2f} to {max(found):+.2f}, median {np.median(found):+.2f}"] if found else []
    return ", ".join([*told, *([f"{few} with fewer than {FEWEST} runs"] if few else [])]) or "all alike"


def _spearman(a: Floats, b: Floats) -> float:
    """Rank correlation; ties share their rank; nan where one of both is the same everywhere."""
    if len(np.unique(a)) < 2 or len(np.unique(b)) < 2:
        return float("nan")
    return float(stats.spearmanr(a, b).statistic)
