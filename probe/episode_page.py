"""The page that shows an episode: frames of each view, traces of the joints, what was sent, what went wrong.

Nothing is smoothed, resampled or aligned. Sizes are inches from the page's upper left corner, so that a
recording of two joints and one of twelve look alike.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from hardware.recording import Recording
from hardware.schema import Joint
from probe.episode_streams import Pace, Streams, by_kind, kind_of
from reports.marks import FAINT, INK, MODEL_COLOURS, STYLE
from reports.numbers import clipped

PAGE_STYLE = {**STYLE, "font.size": 9.0}
DPI = 120
MEASURED, SENT, FAULT = MODEL_COLOURS[0], MODEL_COLOURS[1], "#b3261e"
MUTED, BEYOND = "#5c6168", "#f3dcd5"
SENT_DASHES: Any = (0, (4, 4))

WIDTH, LEFT, RIGHT, EDGE = 13.0, 1.6, 0.85, 0.25
LINE = 0.19  # of text in the head
FRAMES_A_ROW, TALLEST_FRAME, FRAME_GAP, CAPTION = 10, 2.2, 0.06, 0.2
PANEL, PANEL_GAP, PANELS_A_COLUMN = 0.92, 0.12, 8
BETWEEN = 0.14  # strips
INCIDENT, INCIDENT_KINDS = 0.16, 8  # height of a line, and how many kinds of fault have one of their own
LEAST_SPAN = 4.0  # of a joint's axis, degrees or percent: the noise of a joint at rest must look like rest
COLUMNS = (EDGE, 2.6, 3.9, 4.9, 6.7, 8.3)  # of the head's table
FAULTS_AT = 9.0
SANE_WALL_NS = 946_684_800 * 10**9  # the year 2000; earlier wall clocks are simulated, or not known


class Page:
    """Lays an episode out from the top down: a head, a strip a view, a panel a joint, faults and gaps."""

    def __init__(self, recording: Recording, streams: Streams, frames: int) -> None:
        self.recording, self.streams = recording, streams
        self.info = streams.episode.info
        self.strips = {view: _Strip(self, view, frames) for view in streams.frames_ns}
        self.columns = 1 if len(self.info.joints) <= PANELS_A_COLUMN else 2
        self.per_column = -(-len(self.info.joints) // self.columns)
        self.kinds = list(by_kind(streams.timed_faults))
        self.kind_lines = min(len(self.kinds), INCIDENT_KINDS)
        self.incidents = self.kind_lines + len(streams.gaps_ns)
        self.head = 0.95 + LINE * (len(streams.paces) + 1)
        self.panels = self.head + sum(strip.height + BETWEEN for strip in self.strips.values()) + BETWEEN
        self.below = self.panels + self.per_column * (PANEL + PANEL_GAP)
        self.height = self.below + (0.3 + INCIDENT * self.incidents if self.incidents else 0.0) + 0.75
        self.figure = Figure(figsize=(WIDTH, self.height))
        FigureCanvasAgg(self.figure)
        self.time_limits = _time_limits(streams)
        self.shades = 0

    def draw(self) -> Figure:
        """The whole page."""
        self._draw_head()
        top = self.head
        for strip in self.strips.values():
            strip.draw(top)
            top += strip.height + BETWEEN
        width = (WIDTH - RIGHT - LEFT - (self.columns - 1) * (LEFT + RIGHT - EDGE)) / self.columns
        for number, joint in enumerate(self.info.joints):
            column, row = divmod(number, self.per_column)
            left = LEFT + column * (width + LEFT + RIGHT - EDGE)
            place = self.panels + row * (PANEL + PANEL_GAP)
            axes = self.axes(left, place, width, PANEL)
            self._draw_joint(axes, joint, number)
            self.text(left - LEFT + EDGE, place + 0.2, clipped(joint.name, 15), 10, "bold")
            self.text(left - LEFT + EDGE, place + 0.4, _unit(joint), colour=MUTED)
            lowest = row == self.per_column - 1 or number == len(self.info.joints) - 1
            self._set_time_axis(axes, ticks=lowest, words=lowest and not self.incidents)
        if self.incidents:
            self._draw_incidents(self.below + 0.3)
        self._draw_legend()
        return self.figure

    # -- head ------------------------------------------------------------------------------------------------

    def _draw_head(self) -> None:
        episode, there = self.streams.episode, self.recording.episode_indices
        name = clipped(self.recording.folder.resolve().name, 60)
        self.text(EDGE, 0.2, f"{name}, episode {episode.index}", 14, "bold")
        place = (
            f"one of {len(there)}, numbered {there[0]} to {there[-1]}" if len(there) > 1 else "the only one"
        )
        self.text(WIDTH - EDGE, 0.22, place, align="right", colour=MUTED)
        words = [clipped(self.info.robot, 30), self.info.motion, f"{episode.line.seconds:.1f} s"]
        if self.streams.start_wall_ns > SANE_WALL_NS:
            began = datetime.fromtimestamp(self.streams.start_wall_ns / 1e9, timezone.utc)
            words.append(f"{began:%Y-%m-%d %H:%M:%S} UTC")
        if self.info.pairing == "row":
            words.append("rows and frames pair by number")
        if self.streams.knots is not None:
            words.append(f"{len(self.streams.knots.time_ns):,} knots")
        words.append(self._words_on_actions())
        self.text(EDGE, 0.5, "  ·  ".join(words), 10)
        names = ("stream", "rows", "rate", "declared", "jitter p50 / p99", "longest step")
        self._draw_line(0.78, names, MUTED)
        for row, (stream, one) in enumerate(self.streams.paces.items(), start=1):
            self._draw_line(0.78 + LINE * row, (clipped(stream, 26), *_pace_in_words(one)), INK)
        self._draw_counts(0.78)

    def _words_on_actions(self) -> str:
        actions = self.streams.actions
        if actions is None or self.info.actions is None:
            return "no actions"
        if not self.streams.has_targets:
            return f"{len(actions.time_ns):,} actions, not drawn: {clipped(self.info.actions.meaning, 60)}"
        return f"{len(actions.time_ns):,} targets"

    def _draw_line(self, top: float, cells: tuple[str, ...], colour: str) -> None:
        for x, cell in zip(COLUMNS, cells, strict=True):
            self.text(x, top, cell, align="left" if x == COLUMNS[0] else "right", colour=colour)

    def _draw_counts(self, top: float) -> None:
        """Faults by kind, in as many lines as there are streams."""
        self.text(FAULTS_AT, top, "faults", colour=MUTED)
        counts = list(by_kind(self.streams.faults).items())
        lines = len(self.streams.paces)
        if not counts:
            self.text(FAULTS_AT, top + LINE, "none")
        own = counts if len(counts) <= lines else counts[: lines - 1]
        words = [f"{count:,}  {clipped(kind, 36)}" for kind, count in own]
        if len(own) < len(counts):
            rest = counts[len(own) :]
            words.append(
                f"{sum(count for _, count in rest):,}  of {len(rest)} {'other ' if own else ''}kinds"
            )
        for row, line in enumerate(words, start=1):
            self.text(FAULTS_AT, top + LINE * row, line, colour=FAULT)

    # -- joints ----------------------------------------------------------------------------------------------

    def _draw_joint(self, axes: Axes, joint: Joint, number: int) -> None:
        streams, scale = self.streams, _scale(joint)
        measured = streams.joints.position[:, number] * scale
        gaps_ns = streams.gaps_ns.get("joints", np.zeros((0, 2), np.int64))
        after = np.searchsorted(streams.joints.time_ns, gaps_ns[:, 1])
        times = np.insert(streams.seconds(streams.joints.time_ns), after, np.nan)
        unbridged = np.insert(measured, after, np.nan)  # no line where nothing was measured
        axes.plot(times, unbridged, color=MEASURED, linewidth=1.5, zorder=3, label="measured")
        drawn, target = [measured], streams.target(number)
        if target is not None and streams.actions is not None:
            axes.plot(
                streams.seconds(streams.actions.time_ns),
                target * scale,
                color=SENT,
                linewidth=0.8,
                linestyle=SENT_DASHES,
                drawstyle="steps-post",  # held until the next
                zorder=4,
                label="target",
            )
            drawn.append(target * scale)
        if streams.knots is not None:
            knots = streams.knots.position[:, number] * scale
            at = streams.seconds(streams.knots.time_ns)
            axes.plot(at, knots, "o", color=INK, markersize=2.6, zorder=5, label="knots")
            drawn.append(knots)
        self._set_span(axes, joint, scale, np.concatenate(drawn))
        for at in self._marked_times():
            axes.axvline(at, color=FAINT, linewidth=0.7, zorder=0)

    def _set_span(self, axes: Axes, joint: Joint, scale: float, values: np.ndarray) -> None:
        """The axis holds all that is drawn; limits are written, and shaded where they come into view."""
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
        least = 0.0 if joint.unit == "source" else LEAST_SPAN
        room = max(0.08 * (high - low), (least - (high - low)) / 2, 1e-9)
        low, high = low - room, high + room
        upper, lower = (None if limit is None else limit * scale for limit in (joint.upper, joint.lower))
        if upper is not None and upper < high:
            high = max(high, upper + room)
            self._shade(axes, upper, high)
        if lower is not None and lower > low:
            low = min(low, lower - room)
            self._shade(axes, lower, low)
        axes.set_ylim(low, high)
        words = [f"{limit:.0f}" for limit in (upper, lower) if limit is not None]
        if words:
            text = "limits\n" + "\n".join(words).replace("-", "−")
            axes.text(1.008, 0.5, text, transform=axes.transAxes, va="center", fontsize=7.5, color=MUTED)

    def _shade(self, axes: Axes, limit: float, end: float) -> None:
        axes.axhspan(limit, end, color=BEYOND, linewidth=0, zorder=1)
        axes.axhline(limit, color=FAULT, linewidth=0.6, zorder=1)
        self.shades += 1

    def _marked_times(self) -> np.ndarray:
        """Times of the frames that are shown of the first view."""
        strip = next(iter(self.strips.values()), None)
        return np.zeros(0) if strip is None else strip.times

    # -- faults and gaps -------------------------------------------------------------------------------------

    def _draw_incidents(self, top: float) -> None:
        """A line a kind of fault, a mark for each; below them a bar wherever a stream has a gap."""
        axes = self.axes(LEFT, top, WIDTH - LEFT - RIGHT, INCIDENT * self.incidents)
        rows = {kind: min(row, self.kind_lines - 1) for row, kind in enumerate(self.kinds)}
        timed = self.streams.timed_faults
        times = self.streams.seconds(np.array([fault["time_ns"] for fault in timed], np.int64))
        axes.plot(times, [rows[kind_of(fault)] for fault in timed], "|", color=FAULT, markersize=8)
        labels = [clipped(kind, 20) for kind in self.kinds[: self.kind_lines]]
        if len(self.kinds) > self.kind_lines:
            labels[-1] = f"{len(self.kinds) - self.kind_lines + 1} other kinds"
        for row, (stream, found) in enumerate(self.streams.gaps_ns.items(), start=self.kind_lines):
            begin, end = self.streams.seconds(found).T
            axes.hlines(np.full(len(found), row), begin, end, color=MUTED, linewidth=6)
            labels.append(f"{clipped(stream, 14)}: gap")
        axes.set_ylim(self.incidents - 0.5, -0.5)
        axes.set_yticks(range(self.incidents), labels)
        self._set_time_axis(axes, ticks=True, words=True)

    # -- common ----------------------------------------------------------------------------------------------

    def _set_time_axis(self, axes: Axes, *, ticks: bool, words: bool) -> None:
        axes.set_xlim(*self.time_limits)
        axes.spines["left"].set_visible(True)
        axes.spines["left"].set_color(FAINT)
        axes.spines["bottom"].set_color(INK if ticks else FAINT)
        axes.tick_params(axis="x", length=3 if ticks else 0, labelbottom=ticks, color=INK)
        axes.tick_params(axis="y", labelsize=8, pad=2)
        if words:
            axes.set_xlabel("seconds since the start of the episode", fontsize=8.5, color=MUTED, labelpad=2)

    def _draw_legend(self) -> None:
        handles: list[Any] = [Line2D([], [], color=MEASURED, linewidth=1.5, label="measured")]
        if self.streams.has_targets:
            handles.append(
                Line2D([], [], color=SENT, linewidth=1, linestyle=SENT_DASHES, label="target sent")
            )
        if self.streams.knots is not None:
            dot: dict[str, Any] = {"marker": "o", "markersize": 3, "linestyle": "none"}
            handles.append(Line2D([], [], color=INK, label="knot of the walk", **dot))
        if self.shades:
            handles.append(Patch(facecolor=BEYOND, edgecolor=FAULT, linewidth=0.6, label="beyond a limit"))
        if self.strips:
            words = f"a frame shown of {clipped(next(iter(self.strips)), 30)}"
            handles.append(Line2D([], [], color=FAINT, linewidth=1.2, label=words))
        self.figure.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(LEFT / WIDTH, 0.05 / self.height),
            ncols=len(handles),
            fontsize=8.5,
            borderpad=0,
        )

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes at inches from the page's upper left corner."""
        return self.figure.add_axes(
            (left / WIDTH, 1 - (top + height) / self.height, width / WIDTH, height / self.height)
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 9,
        weight: str = "normal",
        align: str = "left",
        colour: str = INK,
    ) -> None:
        """A line of text whose middle is `y` inches from the top."""
        at = (x / WIDTH, 1 - y / self.height)
        self.figure.text(*at, text, fontsize=size, fontweight=weight, ha=align, va="center", color=colour)


class _Strip:
    """Some frames of one view, evenly spread, the first and the last among them."""

    def __init__(self, page: Page, view: str, frames: int) -> None:
        self.page, self.view = page, view
        self.declared = page.info.view(view)
        stamps = page.streams.frames_ns[view]
        self.numbers = np.unique(np.linspace(0, len(stamps) - 1, frames).round().astype(int))
        self.times = page.streams.seconds(stamps[self.numbers])
        self.per_row = -(-frames // -(-frames // FRAMES_A_ROW))
        self.cell = (WIDTH - LEFT - EDGE) / self.per_row
        shape = self.declared.height / self.declared.width
        self.frame_height = min((self.cell - FRAME_GAP) * shape, TALLEST_FRAME)
        self.frame_width = self.frame_height / shape
        self.height = -(-len(self.numbers) // self.per_row) * (self.frame_height + CAPTION)

    def draw(self, top: float) -> None:
        page, view = self.page, self.declared
        page.text(EDGE, top + 0.16, clipped(self.view, 14), 10, "bold")
        page.text(EDGE, top + 0.36, f"{view.width} x {view.height}", colour=MUTED)
        page.text(EDGE, top + 0.53, view.encoding, colour=MUTED)
        images = page.streams.episode.frames(self.view, self.numbers)
        for place, (image, number, at) in enumerate(zip(images, self.numbers, self.times)):
            row, column = divmod(place, self.per_row)
            left, above = LEFT + column * self.cell, top + row * (self.frame_height + CAPTION)
            axes = page.axes(left, above, self.frame_width, self.frame_height)
            axes.imshow(image, aspect="auto")
            axes.set_axis_off()
            below = above + self.frame_height + 0.09
            page.text(left, below, f"{round(at, 2) + 0.0:.2f} s", 8)  # + 0.0: no negative zero
            if self.frame_width > 1:
                page.text(left + 0.62, below, f"#{number}", 8, colour=MUTED)


def _pace_in_words(pace: Pace) -> tuple[str, ...]:
    declared = f"{pace.declared_hz:g} Hz"
    if pace.rate_hz is None:
        return f"{pace.rows:,}", "-", declared, "-", "-"
    return (
        f"{pace.rows:,}",
        f"{pace.rate_hz:.2f} Hz",
        declared,
        f"{pace.jitter_p50_ms:.2f} / {pace.jitter_p99_ms:.2f} ms",
        f"{pace.longest_step_ms:,.1f} ms",
    )


def _time_limits(streams: Streams) -> tuple[float, float]:
    """The seconds that hold every stream."""
    stamps = [streams.joints.time_ns, *streams.frames_ns.values()]
    stamps += [log.time_ns for log in (streams.actions, streams.knots) if log is not None]
    stamps.append(np.array([fault["time_ns"] for fault in streams.timed_faults], np.int64))
    ends = [streams.seconds(np.array([one.min(), one.max()])) for one in stamps if len(one)]
    low, high = np.min(ends, initial=0.0), np.max(ends, initial=0.0)
    room = 0.01 * max(high - low, 1e-3)
    return float(low - room), float(high + room)


def _scale(joint: Joint) -> float:
    return 180 / np.pi if joint.unit == "rad" else 1.0


def _unit(joint: Joint) -> str:
    return {"rad": "degrees", "percent": "% of travel", "source": "as it came"}[joint.unit]
