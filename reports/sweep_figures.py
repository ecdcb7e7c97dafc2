"""The figures of a sweep: theirs hollow beside ours, a seed a point, controls in grey.

They are drawn from `cells` (`reports.sweep_cells.Cell`); the two that every experiment has, of the theorem's
bound and of what the loss tells, are in `reports.sweep_theorem_figures`.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bars.files import write_whole
from reports.marks import CONTROL_COLOUR, FAINT, INK, STYLE
from reports.numbers import plain, signed
from reports.sweep_cells import Cell, Strand, main_of, number_of, said, strands, values_of
from reports.sweep_panels import (
    SMALL,
    Measure,
    Panel,
    Point,
    at_values,
    canvas,
    diverged_note,
    explain,
    legend,
)
from reports.sweep_theorem_figures import bound_figure, predictivity_figure

DPI = 150
CELL_IN = (0.5, 0.33)  # of a heat map: least width and height of a cell

ORTHOGONALITY = "orthogonality error, ||Q'Q - I|| / sqrt(N)"
LACKING = {
    "r2_hz": "1 - R2 of z from h, new rows",
    "r2_hz_in": "1 - R2 of z from h, rows of the fit",
    "r2_hz_grid": "1 - R2 of z from h, grid [-3, 3]^2",
}


def draw_sweep(figure: str | None, cells: Sequence[Cell], title: str, folder: str | Path) -> list[Path]:
    """Draw what an experiment's kind of figure asks for, and the two that every experiment has.

    Parameters
    ----------
    figure : `two-d`, `grid`, `gennorm`, `scaling`, `reacher`, or None: the others alone.
    title : said above each.
    folder : where FIGURE.png, predictivity.png and bound.png are written; one that these cells do not give is
        removed there, as it would show others.
    """
    own = {} if figure is None or not main_of(cells) else {figure: KINDS[figure](cells, title)}
    drawn: dict[str, Figure | None] = {
        **own,
        "bound": bound_figure(cells, title),
        "predictivity": predictivity_figure(cells, title),
    }
    paths = []
    for name, one in drawn.items():
        path = Path(folder) / f"{name}.png"
        if one is None:
            path.unlink(missing_ok=True)
            continue
        buffer = io.BytesIO()
        with mpl.rc_context(STYLE):
            one.savefig(buffer, format="png", dpi=DPI, metadata={"Software": "jointprobe"})
        paths.append(path)
        write_whole(path, buffer.getvalue())
    return paths


# -- lambda x rho ------------------------------------------------------------------------------------------


def _grid(cells: Sequence[Cell], title: str) -> Figure:
    """Heat maps of R2 and of the orthogonality error: theirs, ours, and ours less theirs."""
    rhos = values_of(cells, "world.rho")
    shown = {
        "r2_hz_in": "R2 of z from h (1: all of z)",
        "orthogonality_error": "orthogonality error (0: a rotation)",
    }
    every = strands(main_of(cells), ("lam", "world.rho"))
    controls = [cell for cell in cells if cell.arm != "main"]
    along = [one for one in strands(controls, ("world.rho",)) if any("world.rho" in c.at for c in one.cells)]
    with_theirs = any(name in cell.theirs for cell in cells for name in shown)
    lams = values_of(main_of(cells), "lam")[::-1]
    columns = ("theirs", "ours", "ours - theirs") if with_theirs else ("ours",)
    width = max(3.4, CELL_IN[0] * len(rhos) + 1.9)
    height = max(2.0, CELL_IN[1] * (len(lams) + len(along)) + 0.8)
    figure, axes = canvas(len(shown) * len(every), len(columns), title, width=width, height=height)
    places = [(one, name, of) for one in every for name, of in shown.items()]
    with mpl.rc_context(STYLE):
        for row, (strand, name, of) in zip(axes, places):
            at = {(cell.at["lam"], cell.at["world.rho"]): cell for cell in strand.cells}
            rows: list[tuple[str, list[Cell | None]]]
            rows = [(f"{lam:g}", [at.get((lam, rho)) for rho in rhos]) for lam in lams]
            grey: list[tuple[str, list[Cell | None]]] = []
            for one in along:
                of_rho = {cell.at.get("world.rho"): cell for cell in one.cells}
                grey.append((textwrap.fill(one.series.label, 14), [of_rho.get(rho) for rho in rhos]))
            for panel, whose in zip(row, columns):
                blank: list[tuple[str, list[Cell | None]]] = [("", [None] * len(rhos)) for _ in grey]
                lines = [*rows, *(grey if whose == "ours" else blank)]  # as high, to be read across
                label = of if whose != "ours - theirs" else f"ours - theirs, {of.partition(' (')[0]}"
                _heat_map(panel, lines, name, whose, label)
                panel.set_xticks(range(len(rhos)), [f"{rho:g}" for rho in rhos], fontsize=SMALL)
                panel.set_xlabel("rho of pairs", fontsize="small")
                panel.set_ylabel("lambda, SIGReg's weight" if panel is row[0] else "", fontsize="small")
                extra = f" ({strand.series.label})" if len(every) > 1 else ""
                panel.set_title(f"{of.partition(' (')[0]}, {whose}{extra}", fontsize="small")
    notes = ["Small: half of the 95 % interval of the mean over seeds."] * any(
        cell.numbers[name].low is not None for cell in cells for name in shown if name in cell.numbers
    )
    for cell in controls:
        if "world.rho" not in cell.at and any(name in cell.numbers for name in shown):
            told = [
                f"{of.partition(' (')[0]} {plain(cell.numbers[name].mean)}"
                for name, of in shown.items()
                if name in cell.numbers
            ]
            notes.append(f"Control {cell.arm}: {', '.join(told)}.")
    legend(figure, [], [*notes, *diverged_note(cells)])
    return figure


def _heat_map(
    at: Axes, rows: Sequence[tuple[str, Sequence[Cell | None]]], name: str, whose: str, label: str
) -> None:
    """One map with its numbers in it: a row a lambda, those of controls in grey below."""
    values = np.full((len(rows), len(rows[0][1])), np.nan)
    texts: dict[tuple[int, int], str] = {}
    for place in np.ndindex(values.shape):
        cell = rows[place[0]][1][place[1]]
        if cell is None:
            continue
        ours = cell.numbers.get(name)
        mean, theirs = math.nan if ours is None else ours.mean, cell.theirs.get(name, math.nan)
        values[place] = {"theirs": theirs, "ours": mean}.get(whose, mean - theirs)
        if math.isfinite(values[place]):
            texts[place] = signed(values[place]) if whose == "ours - theirs" else plain(values[place])
            if whose == "ours" and ours is not None and ours.low is not None:
                texts[place] += f"\n±{plain(ours.mean - ours.low)}"
        elif whose == "ours" and cell.failed:
            texts[place] = "diverged"
    differ = whose == "ours - theirs"
    reach = max(0.01, float(np.nanmax(np.abs(values), initial=0.0))) if differ else 1.0
    low, high = (-reach, reach) if differ else (0.0, 1.0)
    image = at.imshow(values, vmin=low, vmax=high, cmap="PuOr" if differ else "viridis", aspect="auto")
    for (y, x), text in texts.items():
        red, green, blue, _ = image.cmap(image.norm(values[y, x]))
        dark = math.isfinite(values[y, x]) and 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
        size = 5.5 if "\n" in text or text == "diverged" else 7
        at.text(x, y, text, ha="center", va="center", color="white" if dark else "black", fontsize=size)
    at.set_yticks(range(len(rows)), [of for of, _ in rows], fontsize=SMALL)
    for tick, (_, cells) in zip(at.get_yticklabels(), rows):
        if any(cell is not None and cell.arm != "main" for cell in cells):
            tick.set_color(CONTROL_COLOUR)
    under, over = bool((values < low).any()), bool((values > high).any())
    extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get((under, over), "neither")
    bar = at.figure.colorbar(image, ax=at, extend=extend, format="%g", pad=0.02)
    bar.set_label(label, fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)


# -- points over an axis -----------------------------------------------------------------------------------


def _over(
    panel: Panel, found: Sequence[Strand], axis: str, x: Callable[[Cell], float | None], spread: float
) -> None:
    """Strands over a numeric axis, a little apart (by factors of 2^spread, half an octave in all at most) so
    that none hides another.
    """
    name = panel.measure.name
    for number, one in enumerate(found):
        factor = 2 ** (min(spread, 0.5 / len(found)) * (number - (len(found) - 1) / 2))
        for cell in one.cells:
            if x(cell) is None:
                panel.across(cell.numbers.get(name), one.series, one.line)
        points = [
            Point(place * factor, cell, said(axis, cell.at[axis]))
            for cell in one.cells
            if (place := x(cell)) is not None
        ]
        _ours_and_theirs(panel, one, points, one.line, "--")


def _ours_and_theirs(
    panel: Panel, one: Strand, points: Sequence[Point[Cell]], line: str, hollow: str
) -> None:
    name = panel.measure.name
    if points:
        panel.ours([Point(at.x, at.value.numbers.get(name), at.where) for at in points], one.series, line)
    marks = [Point(at.x, at.value.theirs[name], at.where) for at in points if name in at.value.theirs]
    panel.theirs(marks, one.series, hollow)


def _scaling(cells: Sequence[Cell], title: str) -> Figure:
    """1 - R2 and the orthogonality error over the number of latents, on logarithmic axes."""
    axis = "world.dim"
    found = strands(cells, (axis,))
    measures = [
        Measure(name, LACKING[name], lacking=True, logarithmic=True) for name in ("r2_hz_in", "r2_hz")
    ]
    measures.append(Measure("orthogonality_error", ORTHOGONALITY, logarithmic=True))
    figure, axes = canvas(1, len(measures), title, width=4.0, height=3.3)
    panels = [Panel(at, measure) for at, measure in zip(axes[0], measures)]
    dims = [dim for dim in map(number_of, values_of(cells, axis)) if dim is not None]
    heads = ("fitted and scored on the same rows", "scored on new rows", "is the map a rotation?")
    with mpl.rc_context(STYLE):
        for panel, head in zip(panels, heads):
            _over(panel, found, axis, lambda cell: number_of(cell.at.get(axis)), 0.1)
            at_values(panel.axes, dims, base=2)
            panel.finish(title=head, xlabel="number of latents N")
            if panel.measure.lacking:
                panel.axes.axhline(1, color=INK, lw=0.7, zorder=1)  # R2 of 0: nothing is recovered
        explain(figure, found, panels, cells, line=True)
    return figure


def _gennorm(cells: Sequence[Cell], title: str) -> Figure:
    """R2 over alpha, on the published grid and where latents are; a column a mixing, one for controls."""
    axis = "world.source.alpha"
    columns: dict[Any, list[Cell]] = {mixing: [] for mixing in values_of(cells, "mixing")}
    for cell in cells:  # a control's mixing is not said where all of its runs share it
        columns.setdefault(cell.at.get("mixing", "controls"), []).append(cell)
    found = strands(cells, (axis, "mixing"))
    alphas = [alpha for alpha in map(number_of, values_of(cells, axis)) if alpha is not None]
    measures = [
        Measure("r2_hz_grid", "R2 of z from h, grid [-3, 3]^2"),
        Measure("r2_hz", "R2 of z from h, new rows"),
    ]
    figure, axes = canvas(len(measures), len(columns), title, width=3.1)
    panels = []
    with mpl.rc_context(STYLE):
        for row, measure in enumerate(measures):
            for at, (head, members) in zip(axes[row], columns.items()):
                panel = Panel(at, measure)
                there = [_only(one, members) for one in found]
                _over(panel, there, axis, lambda cell: number_of(cell.at.get(axis)), 0.06)
                at.axvline(2, color=INK, linewidth=0.7, linestyle=":")
                at_values(at, alphas, base=2)
                panel.finish(title=str(head), xlabel="alpha of the latents (2: Gaussian)")
                at.tick_params(axis="x", labelsize=7)
                if at is not axes[row, 0]:
                    at.set_ylabel("")
                panels.append(panel)
        explain(figure, found, panels, cells, line=True)
    return figure


def _only(one: Strand, members: Sequence[Cell]) -> Strand:
    kept = {id(cell) for cell in members}
    return Strand(one.series, tuple(cell for cell in one.cells if id(cell) in kept), one.line)


def _reacher(cells: Sequence[Cell], title: str) -> Figure:
    """R2 over the correlation and over the stride, a line a lambda: on the evaluation images, and at home.

    Theirs over rho is pooled over both angles, over delta the mean of both; ours is what stands beside it.
    """
    found = strands(cells, ("data",))
    panels = []
    kinds = [
        ("rho", "r2_hz", "pooled", "rho of pairs"),
        ("delta", "r2_hz_uniform", "mean of both", "delta, rows between the frames of a pair"),
    ]
    kinds = [one for one in kinds if any(_after(one[0], cell) is not None for cell in cells)] or kinds
    figure, axes = canvas(2, len(kinds), title, width=4.4, height=3.0)
    with mpl.rc_context(STYLE):
        for column, (kind, name, how, xlabel) in enumerate(kinds):
            of_kind = [cell for cell in cells if _after(kind, cell) is not None]
            there = [one for one in (_only(one, of_kind) for one in found) if one.cells]
            ends = (("", "on images of N(0, I) angles"), ("_own", "where it was trained"))
            for row, (end, where) in enumerate(ends):
                measure = Measure(name + end, f"R2 of the angles, {how}")
                panel = Panel(axes[row, column], measure)
                _over(panel, there, "data", lambda cell, kind=kind: _after(kind, cell), 0.0)  # type: ignore[misc]
                if kind == "delta" and of_kind:
                    at_values(panel.axes, sorted({_after(kind, cell) or 0.0 for cell in of_kind}), base=2)
                panel.axes.tick_params(axis="x", labelsize=SMALL)
                panel.finish(title=where, xlabel=xlabel)
                panels.append(panel)
        explain(figure, found, panels, cells, line=True)
    return figure


def _after(kind: str, cell: Cell) -> float | None:
    """The number of `rho 0.95`, where a cell is of that kind."""
    word, _, value = str(cell.at.get("data", "")).partition(" ")
    try:
        return float(value) if word == kind else None
    except ValueError:
        return None


# -- mixings side by side ----------------------------------------------------------------------------------


def _two_d(cells: Sequence[Cell], title: str) -> Figure:
    """1 - R2 and the orthogonality error of each mixing and objective, theirs beside ours."""
    measures = [
        Measure(name, LACKING[name], lacking=True, logarithmic=True) for name in ("r2_hz", "r2_hz_grid")
    ]
    label = "orthogonality error, grid [-3, 3]^2"
    measures.append(Measure("orthogonality_error_grid", label, logarithmic=True))
    found = strands(cells, ("mixing",))
    groups: dict[Any, list[tuple[Strand, Cell]]] = {mixing: [] for mixing in values_of(cells, "mixing")}
    for strand in found:  # a control's mixing is not said where all of its runs share it
        for cell in strand.cells:
            groups.setdefault(cell.at.get("mixing", cell.arm), []).append((strand, cell))
    x = _beside(groups)
    heads = ("where the latents are", "on the grid, as published", "is the map a rotation? on the grid")
    figure, axes = canvas(1, len(measures), title, width=max(3.6, 0.85 * len(groups) + 0.5), height=3.3)
    panels = [Panel(at, measure) for at, measure in zip(axes[0], measures)]
    with mpl.rc_context(STYLE):
        for panel, head in zip(panels, heads):
            for one in found:
                points = [Point(x[id(cell)], cell, str(cell.at.get("mixing", ""))) for cell in one.cells]
                _ours_and_theirs(panel, one, points, "none", "none")
            panel.finish(title=head)
            at = panel.axes
            at.set_xlim(-0.5, len(groups) - 0.5)
            labels = [textwrap.fill(str(group), 10) for group in groups]
            at.set_xticks(range(len(groups)), labels, fontsize=SMALL)
            at.grid(visible=False, axis="x")
            for edge in range(1, len(groups)):
                at.axvline(edge - 0.5, color=FAINT, lw=0.8)
        explain(figure, found, panels, cells, line=False)
    return figure


def _beside(groups: Mapping[Any, Sequence[tuple[Strand, Cell]]]) -> dict[int, float]:
    """Where each cell (by its id) stands in its group, whose own place is 0, 1, 2, ..."""
    step = 0.8 / max(3, *(len(members) for members in groups.values()))
    return {
        id(cell): place + step * (number - (len(members) - 1) / 2)
        for place, members in enumerate(groups.values())
        for number, (_, cell) in enumerate(members)
    }


KINDS: dict[str, Callable[[Sequence[Cell], str], Figure]] = {
    "two-d": _two_d,
    "grid": _grid,
    "gennorm": _gennorm,
    "scaling": _scaling,
    "reacher": _reacher,
}
