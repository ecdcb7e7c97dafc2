"""The figures of a sweep: theirs beside ours, a seed a point, controls in grey.

They are drawn from `cells`: where each stands (`arm`, `at`), its `numbers` by name, each with `mean`, `low`,
`high` and the `values` of its seeds, and the paper's own (`theirs`).
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from bars.files import write_whole
from reports.marks import CONTROL_COLOUR, FAINT, INK, MODEL_COLOURS, MODEL_MARKERS, STYLE

DPI = 150
PANEL_IN = 3.1
OBJECTIVES = {"sigreg": "SIGReg", "whitening": "whitening", "infonce": "InfoNCE"}
NAMES = {
    "r2_hz_in": "R2 of z from h, rows of the fit",
    "r2_hz": "R2 of z from h, new rows",
    "r2_hz_grid": "R2 on the grid [-3, 3]^2",
    "r2_hz_support": "R2 on the grid where latents are",
    "orthogonality_error": "orthogonality error",
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
    """Where runs differ by their seed only."""

    @property
    def arm(self) -> str: ...
    @property
    def at(self) -> Mapping[str, Any]: ...
    @property
    def numbers(self) -> Mapping[str, Number]: ...
    @property
    def theirs(self) -> Mapping[str, float]: ...


def draw_sweep(figure: str | None, cells: Sequence[Cell], title: str, folder: str | Path) -> list[Path]:
    """Draw what an experiment's kind of figure asks for, and the two that every experiment has.

    Parameters
    ----------
    figure : `two-d`, `grid`, `gennorm`, `scaling`, `reacher`, or None: the others alone.
    title : said above each.
    folder : where FIGURE.png, predictivity.png and, with two latents, bound.png are written.
    """
    own = {} if figure is None else {figure: KINDS[figure](cells, title)}
    drawn: dict[str, Figure | None] = {
        **own,
        "bound": _bound(cells, title),
        "predictivity": _predictivity(cells, title),
    }
    paths = []
    for name, one in drawn.items():
        if one is None:
            continue
        buffer = io.BytesIO()
        with mpl.rc_context(STYLE):
            one.savefig(buffer, format="png", dpi=DPI, metadata={"Software": "jointprobe"})
        paths.append(Path(folder) / f"{name}.png")
        write_whole(paths[-1], buffer.getvalue())
    return paths


def _canvas(rows: int, columns: int, title: str, *, width: float = PANEL_IN) -> tuple[Figure, np.ndarray]:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width * columns + 0.4, PANEL_IN * 0.92 * rows + 0.5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False)
        figure.suptitle(textwrap.fill(title, int(12 * width * columns)), fontsize="medium")
    return figure, axes


def _main(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.arm == "main"]


def _values_of(cells: Sequence[Cell], axis: str) -> list[Any]:
    return list(dict.fromkeys(cell.at[axis] for cell in cells if axis in cell.at))


# -- lambda x rho ------------------------------------------------------------------------------------------


def _grid(cells: Sequence[Cell], title: str) -> Figure:
    """Heat maps of R2 and of the orthogonality error, theirs and ours."""
    main = _main(cells)
    lams, rhos = _values_of(main, "lam"), _values_of(main, "world.rho")
    figure, axes = _canvas(2, 2, title, width=4.6)
    with mpl.rc_context(STYLE):
        for row, name in enumerate(("r2_hz_in", "orthogonality_error")):
            theirs = np.full((len(lams), len(rhos)), np.nan)
            ours = theirs.copy()
            for cell in main:
                place = lams.index(cell.at["lam"]), rhos.index(cell.at["world.rho"])
                theirs[place] = cell.theirs.get(name, np.nan)
                ours[place] = cell.numbers[name].mean if name in cell.numbers else np.nan
            for column, (whose, values) in enumerate((("theirs", theirs), ("ours", ours))):
                at = axes[row, column]
                image = at.imshow(values, vmin=0, vmax=1, cmap="viridis", aspect="auto")
                for (y, x), value in np.ndenumerate(values):
                    if math.isfinite(value):
                        colour = "white" if min(value, 1) < 0.6 else "black"
                        at.text(x, y, f"{value:.3f}", ha="center", va="center", color=colour, fontsize=7)
                at.set_xticks(range(len(rhos)), [f"{rho:g}" for rho in rhos])
                at.set_yticks(range(len(lams)), [f"{lam:.0e}" for lam in lams])
                at.set_title(f"{NAMES[name]}, {whose}", fontsize="small")
                at.set_xlabel("rho")
                at.set_ylabel("lambda" if column == 0 else "")
            figure.colorbar(image, ax=axes[row].tolist(), shrink=0.8)
    return figure


# -- a line of points --------------------------------------------------------------------------------------


def _line(
    at: Axes,
    cells: Sequence[Cell],
    axis: str,
    name: str,
    colour: str,
    marker: str,
    label: str,
    style: str = "-",
) -> None:
    """Means over seeds with their intervals, and each seed's own value."""
    shown = [cell for cell in cells if name in cell.numbers]
    x = [cell.at[axis] for cell in shown]
    numbers = [cell.numbers[name] for cell in shown]
    at.plot(x, [one.mean for one in numbers], style, color=colour, label=label, linewidth=1.4)
    for place, one in zip(x, numbers):
        if one.low is not None and one.high is not None:
            at.plot([place, place], [one.low, one.high], color=colour, linewidth=1.0, alpha=0.7)
        at.plot([place] * len(one.values), list(one.values), marker, color=colour, markersize=3, alpha=0.8)


def _their_line(at: Axes, cells: Sequence[Cell], axis: str, name: str, colour: str, label: str) -> None:
    shown = [cell for cell in cells if name in cell.theirs]
    x, y = [cell.at[axis] for cell in shown], [cell.theirs[name] for cell in shown]
    at.plot(x, y, "o--", color=colour, mfc="none", markersize=5, linewidth=0.8, alpha=0.8, label=label)


def _finish(at: Axes, *, title: str, xlabel: str, ylabel: str = "") -> None:
    at.set_title(title, fontsize="small")
    at.set_xlabel(xlabel)
    at.set_ylabel(ylabel)
    at.grid(color=FAINT, linewidth=0.8)
    at.set_axisbelow(True)


def _logarithmic(at: Axes, which: str, base: int = 10) -> None:
    """A logarithmic axis whose numbers are written out."""
    (at.set_xscale if which == "x" else at.set_yscale)("log", base=base)
    axis = at.xaxis if which == "x" else at.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _legend(figure: Figure, at: Axes) -> None:
    """What the lines of all panels are, below them."""
    handles, labels = at.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize="x-small")


def _gennorm(cells: Sequence[Cell], title: str) -> Figure:
    """R2 over alpha: on the published grid, and where the latents are; a column a mixing."""
    main = _main(cells)
    mixings = _values_of(main, "mixing")
    figure, axes = _canvas(2, len(mixings), title)
    with mpl.rc_context(STYLE):
        for column, mixing in enumerate(mixings):
            for row, name in enumerate(("r2_hz_grid", "r2_hz")):
                at = axes[row, column]
                for objective, colour, marker in zip(OBJECTIVES, MODEL_COLOURS, MODEL_MARKERS):
                    of_one = [c for c in main if (c.at["mixing"], c.at["objective"]) == (mixing, objective)]
                    axis, label = "world.source.alpha", OBJECTIVES[objective]
                    _line(at, of_one, axis, name, colour, marker, label)
                    _their_line(at, of_one, axis, name, colour, f"{label}, theirs")
                at.axvline(2, color=INK, linewidth=0.6)
                _logarithmic(at, "x", base=2)
                at.set_ylim(-0.03, 1.03)
                _finish(at, title=f"{mixing}: {NAMES[name]}", xlabel="alpha (2 is Gaussian)")
        _legend(figure, axes[0, -1])
    return figure


def _scaling(cells: Sequence[Cell], title: str) -> Figure:
    """1 - R2 and the orthogonality error over the number of latents, on logarithmic axes."""
    main, axis = _main(cells), "world.dim"
    figure, axes = _canvas(1, 3, title, width=3.9)
    with mpl.rc_context(STYLE):
        for at, name in zip(axes[0], ("r2_hz", "r2_hz_in", "orthogonality_error")):
            for objective, colour, marker in zip(OBJECTIVES, MODEL_COLOURS, MODEL_MARKERS):
                of_one = [cell for cell in main if cell.at["objective"] == objective]
                label = OBJECTIVES[objective]
                _line(at, of_one, axis, name, colour, marker, label)
                _their_line(at, of_one, axis, name, colour, f"{label}, theirs")
            for arm, style in zip(_arms(cells), ("--", ":", "-.")):
                of_one = [cell for cell in cells if cell.arm == arm]
                _line(at, of_one, axis, name, CONTROL_COLOUR, ".", arm, style)
            _logarithmic(at, "x", base=2)
            if name == "orthogonality_error":
                _logarithmic(at, "y")
            else:
                at.set_ylim(-0.03, 1.03)
            _finish(at, title=NAMES[name], xlabel="latents N")
        _legend(figure, axes[0, 0])
    return figure


def _arms(cells: Sequence[Cell]) -> list[str]:
    return [arm for arm in dict.fromkeys(cell.arm for cell in cells) if arm != "main"]


def _two_d(cells: Sequence[Cell], title: str) -> Figure:
    """R2 of each mixing and objective, theirs beside ours."""
    main = _main(cells)
    mixings = _values_of(main, "mixing")
    names = ("r2_hz", "r2_hz_grid", "orthogonality_error")
    figure, axes = _canvas(1, len(names), title, width=4.2)
    with mpl.rc_context(STYLE):
        for at, name in zip(axes[0], names):
            for shift, (objective, colour) in enumerate(zip(OBJECTIVES, MODEL_COLOURS)):
                for cell in main:
                    if cell.at["objective"] != objective:
                        continue
                    x = mixings.index(cell.at["mixing"]) + 0.25 * (shift - 1)
                    first = cell.at["mixing"] == mixings[0]
                    if name in cell.numbers:
                        one = cell.numbers[name]
                        label = OBJECTIVES[objective] if first else None
                        at.plot([x] * len(one.values), list(one.values), "o", color=colour, ms=4, label=label)
                        at.plot([x - 0.08, x + 0.08], [one.mean] * 2, color=colour, linewidth=2)
                    if name in cell.theirs:
                        at.plot(x, cell.theirs[name], "D", color=colour, mfc="none", ms=7)
            at.set_xticks(range(len(mixings)), mixings)
            if name == "orthogonality_error":
                _logarithmic(at, "y")
            _finish(at, title=NAMES[name] + " (diamonds: theirs)", xlabel="")
        _legend(figure, axes[0, 0])
    return figure


# -- figures of every experiment ---------------------------------------------------------------------------


def _bound(cells: Sequence[Cell], title: str) -> Figure | None:
    """Recovery error against the bound of theorem 5.3: nothing may lie above the line."""
    shown = [cell for cell in cells if "bound" in cell.numbers and "recovery" in cell.numbers]
    if not shown:
        return None
    figure, axes = _canvas(1, 1, title, width=4.6)
    with mpl.rc_context(STYLE):
        at = axes[0, 0]
        for arm in ["main", *_arms(shown)]:
            of_arm = [cell for cell in shown if cell.arm == arm]
            bound = [value for cell in of_arm for value in cell.numbers["bound"].values]
            recovery = [value for cell in of_arm for value in cell.numbers["recovery"].values]
            colour = MODEL_COLOURS[0] if arm == "main" else CONTROL_COLOUR
            at.plot(bound, recovery, "o", color=colour, markersize=4, alpha=0.7, label=arm)
        ends = np.array([*at.get_xlim(), *at.get_ylim()])
        least = min([value for value in ends if value > 0], default=1e-3)
        at.plot([least, ends.max()], [least, ends.max()], color=INK, linewidth=0.8)
        _logarithmic(at, "x")
        _logarithmic(at, "y")
        at.legend(fontsize="x-small")
        _finish(at, title="theorem 5.3", xlabel="D + (eps + D)^2", ylabel="recovery error, min E|h - Q z|^2")
    return figure


def _predictivity(cells: Sequence[Cell], title: str) -> Figure | None:
    """Does the loss tell which run recovers the latents? A point a run, a panel an objective."""
    kinds = _values_of(_main(cells), "objective") or [None]
    figure, axes = _canvas(1, len(kinds), title, width=3.6)
    found = False
    with mpl.rc_context(STYLE):
        for at, objective in zip(axes[0], kinds):
            of_one = [cell for cell in _main(cells) if objective in (None, cell.at.get("objective"))]
            pairs = [
                (loss, r2)
                for cell in of_one
                if "loss_tail" in cell.numbers and "r2_hz" in cell.numbers
                for loss, r2 in zip(cell.numbers["loss_tail"].values, cell.numbers["r2_hz"].values)
            ]
            if not pairs:
                continue
            found = True
            loss, r2 = np.array(pairs).T
            at.plot(loss, r2, "o", color=MODEL_COLOURS[0], markersize=3.5, alpha=0.7)
            if loss.min() > 0:
                _logarithmic(at, "x")
            name = OBJECTIVES.get(str(objective), "")
            rank = f", rank correlation {_spearman(loss, r2):.2f} ({len(loss)} runs)" if len(loss) > 2 else ""
            _finish(at, title=name + rank, xlabel="loss at the end", ylabel=NAMES["r2_hz"])
    return figure if found else None


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation; ties share their rank."""

    def ranks(x: np.ndarray) -> np.ndarray:
        _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

    if len(np.unique(a)) < 2 or len(np.unique(b)) < 2:
        return float("nan")
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def _reacher(cells: Sequence[Cell], title: str) -> Figure:
    """R2 over the correlation and over the stride, a line a lambda: on the evaluation images, and at home."""
    figure, axes = _canvas(2, 2, title, width=4.2)
    main = _main(cells)
    with mpl.rc_context(STYLE):
        for column, (kind, unit) in enumerate((("rho", "rho"), ("delta", "delta, rows"))):
            found = [(_after(kind, cell), cell) for cell in main]
            numbered = sorted([(at, cell) for at, cell in found if at is not None], key=lambda one: one[0])
            for row, name in enumerate(("r2_hz_uniform", "r2_hz_own")):
                at = axes[row, column]
                for colour, marker, lam in zip(MODEL_COLOURS, MODEL_MARKERS, _values_of(main, "recipe.lam")):
                    of_one = [one for one in numbered if one[1].at["recipe.lam"] == lam]
                    shown = [(x, cell.numbers[name]) for x, cell in of_one if name in cell.numbers]
                    label = f"lambda {lam:g}"
                    at.plot([x for x, _ in shown], [one.mean for _, one in shown], color=colour, label=label)
                    for x, one in shown:
                        at.plot([x] * len(one.values), list(one.values), marker, color=colour, ms=4)
                    theirs = "r2_hz" if kind == "rho" else "r2_hz_uniform"
                    marks = [(x, cell.theirs[theirs]) for x, cell in of_one if theirs in cell.theirs]
                    if row == 0 and marks:
                        hollow = colour if kind == "rho" else INK
                        at.plot(*zip(*marks), "o--", color=hollow, mfc="none", ms=6, linewidth=0.8)
                if kind == "delta":
                    _logarithmic(at, "x", base=2)
                at.set_ylim(-0.5, 1.03)
                where = "on N(0, I) images (hollow: theirs)" if row == 0 else "where it was trained"
                _finish(at, title=f"R2 of the angles {where}", xlabel=unit)
        _legend(figure, axes[0, 0] if axes[0, 0].lines else axes[0, 1])
    return figure


def _after(kind: str, cell: Cell) -> float | None:
    """The number of `rho 0.95`, where a cell is of that kind."""
    word, _, value = str(cell.at.get("data", "")).partition(" ")
    return float(value) if word == kind else None


KINDS: dict[str, Callable[[Sequence[Cell], str], Figure]] = {
    "two-d": _two_d,
    "grid": _grid,
    "gennorm": _gennorm,
    "scaling": _scaling,
    "reacher": _reacher,
}
