"""Marks: how a dot with its interval is drawn, in one style and one palette, and turned into SVG."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import offset_copy

from reports.model import Number
from reports.numbers import plain

# Okabe and Ito's palette without its yellow; grey for controls. `inline_svg` finds colours by these values.
MODEL_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
CONTROL_COLOUR = "#6f7378"
INK, FAINT, GROUND = "#1b1e23", "#d9dce1", "#fdfefe"
MODEL_MARKERS = ("o", "D", "P", "X", "v", "*")
CONTROL_MARKERS = {"pixels": "s", "untrained": "^", "null": "x"}

WIDTH_IN = 5.4
CLIP_FLOOR = -0.5  # R2 below this is drawn as an arrow at the edge, with its value written beside it
CLIP_TOP = 1.04
ARROW_PT = 6.5
LINE_IN, GAP_IN = 0.155, 0.2  # height of one mark, and between two groups of marks

STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.linewidth": 0.8,
    "axes.unicode_minus": True,
    "text.color": INK,
    "text.parse_math": False,  # a joint called "$x$" is a name
    "xtick.color": INK,
    "ytick.color": INK,
    "ytick.major.size": 0.0,
    "ytick.major.pad": 8.0,
    "figure.facecolor": GROUND,
    "axes.facecolor": "none",
    "savefig.facecolor": GROUND,
    "svg.fonttype": "none",
    "svg.hashsalt": "jointprobe",
    "legend.frameon": False,
    "legend.fontsize": 10.0,
    "legend.handletextpad": 0.3,
    "legend.columnspacing": 1.2,
}


@dataclass(frozen=True)
class Series:
    """One set of dots: a name, a colour, a marker, filled or not."""

    label: str
    colour: str
    marker: str
    filled: bool = True


def canvas(height_in: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.subplots()


def mark(axes: Axes, x: float, y: float, style: Series) -> None:
    """A dot."""
    axes.plot([x], [y], zorder=3, **_look(style))


def whisker(
    axes: Axes, number: Number, y: float, style: Series, left: float, right: float = CLIP_TOP
) -> None:
    """A dot with its interval; an interval that goes on beyond the axis ends in an arrow there.

    Where the value itself lies beyond, it is written beside the arrow.
    """
    if number.value is None:
        return
    low, high = number.bounds or (number.value, number.value)
    if high > left and low < right and high > low:
        reach = [max(low, left), min(high, right)]
        axes.plot(reach, [y, y], color=style.colour, linewidth=1.3, solid_capstyle="butt", zorder=2)
    if min(low, number.value) < left:
        _arrow(axes, left, y, style, "<")
    if max(high, number.value) > right:
        _arrow(axes, right, y, style, ">")
    if left <= number.value <= right:
        mark(axes, number.value, y, style)
        return
    below = number.value < left
    axes.text(
        left + 0.025 * (right - left) if below else right - 0.025 * (right - left),
        y,
        plain(number.value, number.digits).replace("-", "−"),
        va="center",
        ha="left" if below else "right",
        fontsize=9.5,
        color=style.colour,
        zorder=5,
        bbox={"facecolor": GROUND, "edgecolor": "none", "pad": 0.6},
    )


def _arrow(axes: Axes, edge: float, y: float, style: Series, marker: str) -> None:
    """An arrow whose tip touches the axis' end from within, so that it meets no label outside."""
    inward = 1 if marker == "<" else -1
    shift = offset_copy(axes.transData, axes.get_figure(root=True), x=inward * ARROW_PT / 2, units="points")
    axes.plot(
        [edge], [y], marker=marker, color=style.colour, markersize=ARROW_PT, linestyle="none",
        clip_on=False, zorder=4, transform=shift,
    )  # fmt: skip


def handle(style: Series, label: str | None = None) -> Line2D:
    """What stands for a series in a legend."""
    return Line2D([], [], label=label or style.label, **_look(style))


def _look(style: Series) -> dict[str, Any]:
    return {
        "color": style.colour,
        "marker": style.marker,
        "markerfacecolor": style.colour if style.filled else GROUND,
        "markersize": 5.2,
        "linestyle": "none",
    }


def legend(figure: Figure, handles: Sequence[Artist], columns: int = 3) -> None:
    if handles:
        figure.legend(handles=list(handles), loc="outside upper left", ncols=min(columns, len(handles)))


def figure_svg(figure: Figure) -> str:
    """The figure as SVG text: the same bytes for the same numbers (no date, no random ids)."""
    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "jointprobe"})
    return buffer.getvalue()


def inline_svg(svg: str, name: str, label: str) -> str:
    """An SVG to stand inside HTML: no prologue, sized by the page, colours as CSS variables, ids of its own.

    Parameters
    ----------
    svg : str
        What `figure_svg` gave.
    name : str
        Put before every id, so that several figures can stand in one page.
    label : str
        What a screen reader says; escaped here.
    """
    body = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    head, rest = body.split(">", 1)
    head = re.sub(r'\s(?:width|height)="[^"]*"', "", head)
    rest = re.sub(r'(\sid="|url\(#|xlink:href="#)', rf"\g<1>{name}-", rest)
    body = f'<svg role="img" aria-label="{html.escape(label)}"{head.removeprefix("<svg")}>{rest}'
    names = {colour: f"--series-{index}" for index, colour in enumerate(MODEL_COLOURS, start=1)}
    names |= {CONTROL_COLOUR: "--control", INK: "--ink", FAINT: "--line", GROUND: "--sheet"}
    for colour, variable in names.items():
        body = body.replace(colour, f"var({variable})")
    return body
