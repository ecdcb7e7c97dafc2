"""Panels of a sweep's figures: cells as points with their intervals, axes, and a legend of them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from reports.marks import (
    CLIP_FLOOR,
    CLIP_TOP,
    FAINT,
    GROUND,
    INK,
    STYLE,
    Series,
)
from reports.numbers import plain
from reports.sweep_cells import Cell, Number, Strand

T = TypeVar("T")
PANEL_IN = 3.1
SMALL = 8  # points, of labels of ticks
MARGIN = 2.0  # a logarithmic axis of y goes on by this factor beyond its points
TINY = 1e-300  # below all that a logarithmic axis shows


@dataclass(frozen=True)
class Measure:
    """How a number is drawn.

    Parameters
    ----------
    name, label : of the number, and what its axis says.
    lacking : 1 - R2 in place of R2, so that values near 1 can be told apart.
    logarithmic : the axis.
    """

    name: str
    label: str
    lacking: bool = False
    logarithmic: bool = False

    def drawn(self, value: float) -> float:
        """Where a value stands on the axis, which may have no place for it."""
        return 1 - value if self.lacking else value

    def place(self, value: float) -> float:
        """Where a value stands; nan where it is none, and on a logarithmic axis where it is not positive."""
        drawn = self.drawn(value)
        return drawn if math.isfinite(drawn) and (drawn > 0 or not self.logarithmic) else math.nan


@dataclass(frozen=True)
class Point(Generic[T]):
    """A value over x, and what its place is called."""

    x: float
    value: T
    where: str


class Panel:
    """Points of one measure over a numeric axis; it remembers what it cannot show.

    Attributes
    ----------
    hidden : values that a logarithmic axis has no place for, in words.
    cut : whether an interval goes on below the axis.
    intervals, seeds, hollow : whether any was drawn, for the legend.
    """

    def __init__(self, axes: Axes, measure: Measure) -> None:
        self.axes, self.measure = axes, measure
        self.hidden: list[str] = []
        self.cut = self.intervals = self.seeds = self.hollow = False
        self._points: list[tuple[float, float]] = []

    def ours(self, points: Sequence[Point[Number | None]], series: Series, line: str = "-") -> None:
        """Means over seeds with their intervals, and each seed's own value; None breaks the line."""
        points = sorted(points, key=lambda one: one.x)
        colour, label = series.colour, series.label
        y = [math.nan if one.value is None else self._place(one, one.value.mean, label) for one in points]
        x = [one.x for one in points]
        self.axes.plot(
            x, y, marker=series.marker, color=colour, ms=5.5, linestyle=line, lw=1.3, zorder=3, label=label
        )
        for one in points:
            if one.value is None:
                continue
            if len(one.value.values) > 1:
                self.seeds = True
                seeds = [self._place(one, value, f"a seed of {label}") for value in one.value.values]
                self.axes.plot(
                    [one.x] * len(seeds), seeds, "o", ms=3.2, mew=0.5, mec=GROUND, color=colour, zorder=3.5,
                    label=f"{label}, seeds",
                )  # fmt: skip
            self._interval(one.x, one.value, series)

    def _interval(self, place: float, one: Number, series: Series) -> None:
        if one.low is None or one.high is None:
            return
        low, high = sorted(self.measure.drawn(end) for end in (one.low, one.high))
        if self.measure.logarithmic and low <= 0:
            self.cut, low = True, TINY
        if high > low:
            self.intervals = True
            label = f"{series.label}, interval"
            self.axes.plot([place] * 2, [low, high], color=series.colour, marker="_", ms=6, lw=1, label=label)

    def theirs(self, points: Sequence[Point[float]], series: Series, line: str = "--") -> None:
        """The paper's values, hollow."""
        points = sorted(points, key=lambda one: one.x)
        if not points:
            return
        self.hollow = True
        y = [self._place(one, one.value, f"theirs of {series.label}") for one in points]
        self.axes.plot(
            [one.x for one in points], y, marker=series.marker, color=series.colour, mfc="none", ms=8.5,
            mew=1.1, linestyle=line, lw=0.8, zorder=4, label=f"{series.label}, theirs",
        )  # fmt: skip

    def across(self, one: Number | None, series: Series, line: str) -> None:
        """A control that does not differ over the axis: a line across it."""
        point = Point(math.nan, one, "")
        if one is not None and math.isfinite(y := self._place(point, one.mean, series.label)):
            self.axes.axhline(y, color=series.colour, linestyle=line, lw=1, label=series.label)

    def _place(self, at: Point[Any], value: float, what: str) -> float:
        y = self.measure.place(value)
        if math.isfinite(y):
            self._points.append((at.x, y))
        elif math.isfinite(value):
            number = "R2" if self.measure.lacking else self.measure.label.partition(",")[0]
            where = f" at {at.where}" if at.where else ""
            self.hidden.append(f"{what}{where} ({number} {value:g})")
        return y

    def finish(self, *, title: str = "", xlabel: str = "") -> None:
        """Limits that no point lies beyond, ticks, names."""
        found = [y for _, y in self._points]
        if not found:
            self.axes.text(0.5, 0.5, "no number", transform=self.axes.transAxes, ha="center", color=INK)
            self.axes.set_yticks([])
        elif self.measure.logarithmic:
            logarithmic(self.axes, "y", found)
        else:
            low, high = min(found), max(found)
            self.axes.set_ylim(max(min(-0.03, low - 0.05), CLIP_FLOOR), max(CLIP_TOP, high + 0.05))
            below: dict[float, float] = {}
            for x, y in self._points:
                if y < CLIP_FLOOR:
                    below[x] = min(below.get(x, y), y)
            for x, y in below.items():
                self._below(x, y)
            self.axes.tick_params(axis="y", labelsize=SMALL)
        name_axes(self.axes, title=title, xlabel=xlabel, ylabel=self.measure.label)

    def _below(self, x: float, y: float) -> None:
        """An arrow at the lower edge, with the least value that lies beyond it."""
        place = float(np.mean(self.axes.get_xlim())) if math.isnan(x) else x
        self.axes.annotate(
            f"to {plain(y, 2)}", (place, CLIP_FLOOR), (0, 12), textcoords="offset points", ha="center",
            fontsize=6,
            arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 0.7, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip


def name_axes(at: Axes, *, title: str = "", xlabel: str = "", ylabel: str = "") -> None:
    """What is measured, in words, and a faint grid."""
    at.set_title(title, fontsize="small")
    at.set_xlabel(xlabel, fontsize="small")
    at.set_ylabel(ylabel, fontsize="small")
    at.grid(color=FAINT, linewidth=0.8)
    at.set_axisbelow(True)


def logarithmic(at: Axes, which: str, values: Iterable[float], margin: float = MARGIN) -> None:
    """A logarithmic axis around positive values, with numbers written out, however near they are."""
    found = list(values)
    low, high = min(found) / margin, max(found) * margin
    (at.set_xlim if which == "x" else at.set_ylim)(low, high)
    (at.set_xscale if which == "x" else at.set_yscale)("log")
    _ticks(at, which, log_ticks(low, high, most=5 if which == "x" else 8))


def at_values(at: Axes, values: Sequence[float], *, base: int | None = None) -> None:
    """An x axis with a tick at each value that there is, logarithmic where it has a base."""
    if not values:
        return
    if base is not None and min(values) > 0:
        at.set_xlim(min(values) / 1.5, max(values) * 1.5)
        at.set_xscale("log", base=base)
    _ticks(at, "x", values)


def _ticks(at: Axes, which: str, values: Sequence[float]) -> None:
    axis = at.xaxis if which == "x" else at.yaxis
    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_ticklabels([f"{value:g}" for value in values], fontsize=SMALL)
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from low to high: powers of ten where these suffice, at most `most`."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for digits in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
        every = [float(f"{digit}e{power}") for power in powers for digit in digits]
        ticks = [tick for tick in every if low <= tick <= high]
        if len(ticks) >= 3:
            break
    return ticks[:: max(1, math.ceil(len(ticks) / most))]


# -- a figure ----------------------------------------------------------------------------------------------


def canvas(
    rows: int, columns: int, title: str, *, width: float = PANEL_IN, height: float = PANEL_IN * 0.92
) -> tuple[Figure, np.ndarray]:
    """A figure and its axes (rows, columns), width and height those of one, in inches."""
    with mpl.rc_context(STYLE):
        whole = width * columns + 0.4
        lines = textwrap.wrap(title, max(20, int(11 * whole)))
        figure = Figure(figsize=(whole, height * rows + 0.25 + 0.2 * len(lines)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False)
        figure.suptitle("\n".join(lines), fontsize="medium")
    return figure, axes


def line_handle(series: Series, line: str = "none") -> Line2D:
    """What stands for a series in a legend."""
    face = series.colour if series.filled else "none"
    return Line2D(
        [], [], color=series.colour, marker=series.marker, mfc=face, ms=5, lw=1.2, linestyle=line,
        label=series.label,
    )  # fmt: skip


def explain(
    figure: Figure, found: Sequence[Strand], panels: Sequence[Panel], cells: Sequence[Cell], *, line: bool
) -> None:
    """The legend of panels: each strand, what hollow, bars and dots are, and what could not be shown."""
    handles: list[Artist] = [line_handle(one.series, one.line if line else "none") for one in found]
    if any(panel.hollow for panel in panels):
        style = "--" if line else "none"
        handles.append(line_handle(Series("hollow: the paper's", INK, "o", filled=False), style))
    if any(panel.seeds for panel in panels):
        handles.append(Line2D([], [], color=INK, marker=".", ms=4, linestyle="none", label="dot: one seed"))
    if any(panel.intervals for panel in panels):
        bar = "bar: 95 % of the mean over seeds"
        handles.append(Line2D([], [], color=INK, marker="_", ms=6, linestyle="-", lw=1, label=bar))
    notes = []
    if any(panel.cut for panel in panels):
        notes.append("A bar that leaves a logarithmic axis at its lower end goes on to 0 or beyond.")
    hidden = list(dict.fromkeys(one for panel in panels for one in panel.hidden))
    if hidden:
        rest = f" and {len(hidden) - 6} more" if len(hidden) > 6 else ""
        notes.append(f"Not on a logarithmic axis: {', '.join(hidden[:6])}{rest}.")
    legend(figure, handles, [*notes, *diverged_note(cells)])


def diverged_note(cells: Sequence[Cell]) -> list[str]:
    """How many runs have no numbers, where any has none."""
    failed = sum(cell.failed for cell in cells)
    return [f"{failed} of {sum(cell.seeds for cell in cells)} runs diverged and have no numbers."] * (
        failed > 0
    )


def legend(figure: Figure, handles: Sequence[Artist], notes: Sequence[str]) -> None:
    """Below all panels, with the notes above it; the figure grows by what it takes."""
    width, height = figure.get_size_inches()
    longest = max((len(str(one.get_label())) for one in handles), default=1)
    columns = max(1, min(len(handles), int((width - 0.3) / (0.064 * longest + 0.5))))
    text = "\n".join(textwrap.fill(note, max(20, int(15 * width))) for note in notes)
    rows = math.ceil(len(handles) / columns) + (text.count("\n") + 1 if text else 0)
    if not rows:
        return
    with mpl.rc_context(STYLE):
        figure.set_size_inches(width, height + 0.16 * rows + 0.1)
        figure.legend(
            handles=list(handles), loc="outside lower center", ncols=columns, fontsize="x-small",
            title=text or None, title_fontsize="x-small", alignment="left",
        )  # fmt: skip
