"""Sheets: what pictures of evidence are made of, frames in a row above traces with a spot marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

WIDTH_PX, DPI = 640, 100
EDGE, GAP = 0.12, 0.08  # inches
TRACE, FRAME_CAPTION, TALLEST_FRAME = 1.45, 0.2, 2.0
LEFT, TITLE, BELOW = 0.75, 0.24, 0.42  # around a trace: its numbers, its title, its axis
FRAMES_A_ROW, LONGEST_TITLE = 5, 76


@dataclass(frozen=True, eq=False)
class Line:
    """One curve of a trace: label, x (n,), y (n,); `dots` where single rows matter, `dashed` for actions."""

    label: str
    x: ArrayLike
    y: ArrayLike
    colour: int = 0
    dashed: bool = False
    dots: bool = False


@dataclass(frozen=True, eq=False)
class Trace:
    """Curves over one axis.

    Attributes
    ----------
    spots : stretches of x to be marked, (from, to); the same twice for a line.
    range : lower and upper limit, beyond which the ground is shaded where it comes into view.
    least_span : of the y axis (4 degrees): the noise of a joint at rest must look like rest.
    """

    title: str
    lines: Sequence[Line]
    x: str = "seconds"
    y: str = "rad"
    spots: Sequence[tuple[float, float]] = ()
    range: tuple[float, float] | None = None
    whole_numbers: bool = False
    least_span: float = 0.07


@dataclass(frozen=True, eq=False)
class Sheet:
    """Frames RGB uint8 (h, w, 3) under their captions, then traces, from the top down."""

    frames: Sequence[tuple[NDArray[np.uint8], str]] = ()
    traces: Sequence[Trace] = field(default_factory=tuple)

    def draw(self) -> NDArray[np.uint8]:
        """The sheet as RGB uint8 (h, 640, 3)."""
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        from reports.marks import STYLE

        width = WIDTH_PX / DPI
        rows = [self.frames[at : at + FRAMES_A_ROW] for at in range(0, len(self.frames), FRAMES_A_ROW)]
        heights = [_frame_height(row, width) for row in rows]
        each = TITLE + TRACE + BELOW
        height = EDGE + sum(FRAME_CAPTION + one + GAP for one in heights) + each * len(self.traces)
        with mpl.rc_context({**STYLE, "font.size": 8.5}):
            figure = Figure(figsize=(width, height), dpi=DPI)
            canvas = FigureCanvasAgg(figure)
            top = EDGE
            for row, tall in zip(rows, heights):
                _draw_frames(figure, row, top, tall, width, height)
                top += FRAME_CAPTION + tall + GAP
            for trace in self.traces:
                box = (LEFT, top + TITLE, width - LEFT - EDGE, TRACE)
                _draw_trace(_axes(figure, box, width, height), trace)
                top += each
            canvas.draw()
            return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _frame_height(row: Sequence[tuple[NDArray[np.uint8], str]], width: float) -> float:
    each = (width - 2 * EDGE - (len(row) - 1) * GAP) / len(row)
    return min(TALLEST_FRAME, max(each * image.shape[0] / image.shape[1] for image, _ in row))


def _axes(figure: Any, box: tuple[float, float, float, float], width: float, height: float) -> Any:
    """Axes at (left, top, width, height) in inches from the sheet's upper left corner."""
    left, top, wide, tall = box
    return figure.add_axes((left / width, 1 - (top + tall) / height, wide / width, tall / height))


def _draw_frames(
    figure: Any,
    row: Sequence[tuple[NDArray[np.uint8], str]],
    top: float,
    tall: float,
    width: float,
    height: float,
) -> None:
    each = (width - 2 * EDGE - (len(row) - 1) * GAP) / len(row)
    for place, (image, caption) in enumerate(row):
        left = EDGE + place * (each + GAP)
        axes = _axes(figure, (left, top + FRAME_CAPTION, each, tall), width, height)
        how = "nearest" if image.shape[1] < each * DPI else "antialiased"
        axes.imshow(image, interpolation=how)
        axes.set_anchor("NW")
        axes.set_axis_off()
        figure.text(left / width, 1 - (top + 0.13) / height, caption, fontsize=8, va="baseline")


def _draw_trace(axes: Any, trace: Trace) -> None:
    from matplotlib.ticker import MaxNLocator

    from reports.marks import FAINT, MODEL_COLOURS
    from reports.numbers import clipped

    for line in trace.lines:
        axes.plot(
            np.asarray(line.x),
            np.asarray(line.y),
            color=MODEL_COLOURS[line.colour % len(MODEL_COLOURS)],
            linewidth=1.0 if line.dashed else 1.4,
            linestyle="--" if line.dashed else "-",
            marker="o" if line.dots else None,
            markersize=3.2,
            label=line.label,
            zorder=4 if line.dashed else 3,
        )
    axes.margins(x=0.02, y=0.12)
    low, high = axes.get_ylim()
    room = max(0.0, trace.least_span - (high - low)) / 2
    axes.set_ylim(low - room, high + room)
    _mark(axes, trace)
    axes.set_title(clipped(trace.title, LONGEST_TITLE), fontsize=9, pad=4)
    axes.set_xlabel(trace.x, fontsize=8, labelpad=1)
    axes.set_ylabel(trace.y, fontsize=8, labelpad=2)
    axes.tick_params(labelsize=8, length=2)
    axes.grid(axis="y", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    if trace.whole_numbers:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(trace.lines) > 1 or trace.lines[0].label:
        axes.legend(loc="best", fontsize=7.5, ncols=min(3, len(trace.lines)), borderpad=0.1)


def _mark(axes: Any, trace: Trace) -> None:
    """The spots, and what lies beyond the range."""
    from probe.episode_page import BEYOND, FAULT

    for first, last in trace.spots:
        if last > first:
            axes.axvspan(first, last, color=FAULT, alpha=0.15, linewidth=0, zorder=1)
        else:
            axes.axvline(first, color=FAULT, linewidth=1.0, zorder=1)
    if trace.range is None:
        return
    low, high = axes.get_ylim()
    room = 0.1 * (high - low)
    low, high = min(low, trace.range[1] - room), max(high, trace.range[0] + room)  # all beyond one limit
    for limit, end in ((trace.range[0], low), (trace.range[1], high)):
        if low < limit < high:
            axes.axhspan(limit, end, color=BEYOND, linewidth=0, zorder=0)
            axes.axhline(limit, color=FAULT, linewidth=0.7, zorder=1)
    axes.set_ylim(low, high)
