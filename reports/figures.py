"""The card's figures: small, deterministic SVG that reads on a phone and for colour-blind eyes.

Every figure is drawn from a `Card` alone, with the marks of `marks.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from reports.marks import (
    CLIP_FLOOR,
    CLIP_TOP,
    CONTROL_COLOUR,
    CONTROL_MARKERS,
    FAINT,
    GAP_IN,
    INK,
    LINE_IN,
    MODEL_COLOURS,
    MODEL_MARKERS,
    STYLE,
    WIDTH_IN,
    Series,
    canvas,
    figure_svg,
    handle,
    legend,
    mark,
    whisker,
)
from reports.model import (
    EXCHANGED,
    MEAN,
    Card,
    DataLine,
    FigureLine,
    JointRow,
    JointTable,
    Number,
    TransferTable,
)
from reports.numbers import clipped, listed

_NULL = Series("targets exchanged", CONTROL_COLOUR, "x")
_CEILING = Series("ceiling", INK, "|")


@dataclass(frozen=True)
class Picture:
    """A drawn figure and the line the card says about it."""

    line: FigureLine
    figure: Figure

    @cached_property
    def svg(self) -> str:
        return figure_svg(self.figure)


def draw_figures(card: Card) -> tuple[Picture, ...]:
    """Draw every figure a card has numbers for.

    Parameters
    ----------
    card : Card

    Returns
    -------
    tuple of Picture
        Per-joint R2 of each data entry with its controls, the trained-on x evaluated-on comparison, and how
        much each joint moves. Empty where nothing was measured.
    """
    pictures = []
    below = "The numbers stand in the table below it."
    for table in card.joint_tables:
        if not any(cell.value is not None for row in table.rows for cell in row.cells.values()):
            continue
        caption = (
            f"R2 per joint on {table.data}, with {card.level:.0%} intervals over evaluation episodes. "
            "Grey marks are controls; an arrow says that an interval goes on beyond the axis."
        )
        alt = f"Dot plot of R2 per joint on {table.data} for {listed(table.columns)}. {below}"
        pictures.append(Picture(_line(table.figure, caption, alt), draw_joints(card, table)))
    if card.transfer is not None:
        caption = "Mean R2 by data trained on and data evaluated on, and its distance from each control."
        names = listed([row.encoder for row in card.transfer.values])
        alt = f"Dot plot of the mean R2 of {names} on {listed(card.transfer.data)}, beside controls. {below}"
        pictures.append(Picture(_line("transfer", caption, alt), draw_transfer(card, card.transfer)))
    if any(_radians(line) for line in card.data):
        caption = "How far each joint moves in the evaluated episodes. Compare R2 only where it moves alike."
        alt = f"Dot plot of each joint's standard deviation on {listed([line.name for line in card.data])}."
        pictures.append(Picture(_line("spread", caption, alt), draw_spread(card)))
    return tuple(pictures)


def draw_joints(card: Card, table: JointTable) -> Figure:
    """Dot and whisker of every encoder on every joint of one data entry, controls in grey."""
    styles = _encoder_series(card, table.columns)
    exchanged = table.row(EXCHANGED)
    rows = [row for row in table.rows if row.joint or row.label == MEAN]
    lines: list[list[tuple[Series, Number]]] = []
    for row in rows:
        marks = [(styles[name], row.cells[name]) for name in table.columns] if row.testable else []
        null = _highest_null(row, exchanged)
        lines.append(marks + ([(_NULL, null)] if null is not None and row.testable else []))
    left = _left_edge([number for line in lines for _, number in line])
    heights = [LINE_IN * max(len(line), 1) + GAP_IN for line in lines]
    tops = [-sum(heights[:index]) for index in range(len(rows))]
    series = list(dict.fromkeys(style for line in lines for style, _ in line))
    legend_in = 0.22 * -(-(len(series) + 1) // 3)
    with mpl.rc_context(STYLE):
        figure, axes = canvas(sum(heights) + 0.7 + legend_in)
        axes.set_xlim(left, CLIP_TOP)
        axes.set_ylim(-sum(heights), 0)
        axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
        axes.set_xlabel("R2 on held-out episodes")
        for row, line, top, height in zip(rows, lines, tops, heights, strict=True):
            middle = top - height / 2
            if top:
                axes.axhline(top, color=FAINT, linewidth=0.8, zorder=0)
            if not row.testable:
                axes.text(
                    max(left, 0.0) + 0.02,
                    middle,
                    "not testable: it hardly moves",
                    va="center",
                    style="italic",
                )
            if row.ceiling is not None and row.ceiling > left:
                reach = [middle - 0.4 * height, middle + 0.4 * height]
                axes.plot([row.ceiling] * 2, reach, color=INK, linewidth=1.6, alpha=0.55)
            for place, (style, number) in enumerate(line):
                whisker(axes, number, middle + ((len(line) - 1) / 2 - place) * LINE_IN, style, left)
        axes.set_yticks(
            [top - height / 2 for top, height in zip(tops, heights, strict=True)],
            [clipped(r.label) for r in rows],
        )
        for label, row in zip(axes.get_yticklabels(), rows, strict=True):
            label.set_fontweight("normal" if row.joint else "bold")
        handles = [handle(style) for style in series]
        if any(row.ceiling is not None for row in rows):
            handles.append(handle(_CEILING))
        legend(figure, handles)
    return figure


def draw_transfer(card: Card, transfer: TransferTable) -> Figure:
    """Two panels: mean R2 by data evaluated on, and each trained encoder's difference from each control."""
    rows = (*transfer.values, *transfer.controls)
    styles = _encoder_series(card, [row.encoder for row in rows])
    trained = {row.encoder: f"{row.encoder}, trained on {row.trained_on}" for row in transfer.values}
    handles = [handle(styles[row.encoder], trained.get(row.encoder)) for row in rows]
    for control in dict.fromkeys(difference.control for difference in transfer.differences):
        handles.append(handle(replace(styles[control], colour=INK), f"minus {control}"))
    values = [[(styles[row.encoder], row.cells[data]) for row in rows] for data in transfer.data]
    differences = [
        [
            (replace(styles[d.control], colour=styles[d.encoder].colour), d.cells[data])
            for d in transfer.differences
        ]
        for data in transfer.data
    ]
    heights = [
        len(transfer.data) * (LINE_IN * 1.2 * max(len(panel[0]), 1) + GAP_IN)
        for panel in (values, differences)
    ]
    with mpl.rc_context(STYLE):
        figure = Figure(
            figsize=(WIDTH_IN, sum(heights) + 1.35 + 0.22 * -(-len(handles) // 2)), layout="constrained"
        )
        FigureCanvasSVG(figure)
        upper, lower = figure.subplots(2, 1, height_ratios=heights)
        left = _left_edge([number for line in values for _, number in line])
        _panel(upper, "mean R2", transfer.data, values, (left, CLIP_TOP))
        edges = _difference_edges([number for line in differences for _, number in line])
        _panel(lower, "difference in mean R2 from a control", transfer.data, differences, edges)
        legend(figure, handles, columns=2)
    return figure


def draw_spread(card: Card) -> Figure:
    """Standard deviation of each joint in the evaluated episodes, a dot a data entry, on a log axis.

    Joints that are not logged in rad have no place on it.
    """
    entries = {line.name: _radians(line) for line in card.data}
    joints = list(dict.fromkeys(joint for stds in entries.values() for joint in stds))
    everything = [std for stds in entries.values() for std in stds.values()]
    low, high = min(0.75 * card.min_std, min(everything) / 1.3), max(0.5, 1.3 * max(everything))
    with mpl.rc_context(STYLE):
        figure, axes = canvas(0.34 * len(joints) + 0.95)
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        axes.set_ylim(-len(joints) + 0.4, 0.6)
        for place in range(len(joints)):
            axes.axhline(-place, color=FAINT, linewidth=0.8, zorder=0)
        axes.axvline(card.min_std, color=INK, linewidth=0.9, linestyle=(0, (3, 2)), zorder=0)
        handles = []
        for index, (name, stds) in enumerate(entries.items()):
            style = Series(
                name, MODEL_COLOURS[index % len(MODEL_COLOURS)], MODEL_MARKERS[index % len(MODEL_MARKERS)]
            )
            offset = 0.09 * (len(entries) - 1) - 0.18 * index
            for joint, std in stds.items():
                mark(axes, std, offset - joints.index(joint), style)
            handles.append(handle(style))
        ticks = [digit * 10.0**power for power in range(-4, 5) for digit in (1, 2, 5)]
        axes.set_xticks([tick for tick in ticks if low <= tick <= high])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks([-place for place in range(len(joints))], [clipped(joint) for joint in joints])
        axes.set_xlabel(f"std of the joint, rad (dashed: {card.min_std:g})")
        legend(figure, handles)
    return figure


def _radians(line: DataLine) -> dict[str, float]:
    """Joint -> std in rad, where above what a logarithmic axis can show."""
    known = {joint: std for joint, std in line.evaluate_std.items() if line.units.get(joint, "rad") == "rad"}
    return {joint: max(std, 1e-4) for joint, std in known.items()}


def _encoder_series(card: Card, names: Sequence[str]) -> dict[str, Series]:
    """A colour and a marker for each encoder; models keep theirs in every figure of a card."""
    models = [line.name for line in card.encoders if line.is_model]
    families = [_control_family(card, name) for name in names]
    styles = {}
    for index, name in enumerate(names):
        if name in models:
            place = models.index(name)
            styles[name] = _model_series(name, place)
        else:  # the second control of a kind is hollow
            first = families[index] not in families[:index]
            marker = CONTROL_MARKERS.get(families[index], "d")
            styles[name] = Series(name, CONTROL_COLOUR, marker, filled=first)
    return styles


def _model_series(name: str, place: int) -> Series:
    return Series(name, MODEL_COLOURS[place % len(MODEL_COLOURS)], MODEL_MARKERS[place % len(MODEL_MARKERS)])


def _control_family(card: Card, name: str) -> str:
    line = card.encoder(name)
    return (line.kind if line else name).split(":")[0]


def _highest_null(row: JointRow, exchanged: JointRow | None) -> Number | None:
    """Of a row's permutation nulls the highest: what chance alone reaches."""
    nulls = row.nulls if row.joint or exchanged is None else exchanged.cells
    known = [null for null in nulls.values() if null.value is not None]
    return max(known, key=lambda null: null.value or 0.0) if known else None


def _left_edge(numbers: Sequence[Number]) -> float:
    """Where the axis starts: low enough for every value above CLIP_FLOOR, never lower."""
    lows = [
        number.low if number.low is not None else number.value
        for number in numbers
        if number.value is not None
    ]
    values = [low for low in lows if low is not None]
    return max(CLIP_FLOOR, min([-0.05, *values]) - 0.03)


def _difference_edges(numbers: Sequence[Number]) -> tuple[float, float]:
    values = [
        edge for n in numbers if n.value is not None for edge in (n.low, n.high, n.value) if edge is not None
    ]
    low, high = min([-0.1, *values]), max([0.1, *values])
    pad = 0.06 * (min(high, 1.5) - max(low, -1.0))
    return max(low, -1.0) - pad, min(high, 1.5) + pad


def _panel(
    axes: Axes,
    title: str,
    names: Sequence[str],
    groups: Sequence[Sequence[tuple[Series, Number]]],
    edges: tuple[float, float],
) -> None:
    """A group of marks for each data entry evaluated on, one under the other."""
    axes.set_title(title)
    axes.set_xlim(*edges)
    axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
    pitch = max(len(group) for group in groups) + 1
    axes.set_yticks([-index * pitch for index in range(len(names))], [f"on {name}" for name in names])
    axes.set_ylim(-(len(names) - 0.5) * pitch, 0.5 * pitch)
    for index, group in enumerate(groups):
        if index:
            axes.axhline(-(index - 0.5) * pitch, color=FAINT, linewidth=0.8, zorder=0)
        for place, (style, number) in enumerate(group):
            whisker(axes, number, -index * pitch + (len(group) - 1) / 2 - place, style, *edges)


def _line(name: str, caption: str, alt: str) -> FigureLine:
    return FigureLine(name=name, file=f"figures/{name}.svg", caption=caption, alt=alt)
