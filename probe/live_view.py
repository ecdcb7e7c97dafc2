"""What `jointprobe record` shows while it runs: rates, jitter, faults, temperatures, the space left."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hardware.snapshot import Snapshot

LOG_EVERY_S = 15.0
DRAW_EVERY_S = 0.1
STALLED_S = 2.0
HOT_C, VERY_HOT_C = 50.0, 58.0
STATE_STYLES = {"running": "green", "stalled": "bold red", "frozen": "bold red", "lost": "bold red"}
PHASE_STYLES = {"recording": "bold red", "sealing": "bold yellow", "paused": "bold yellow"}


class Shown:
    """Shows snapshots and words from a thread of its own: a terminal that nobody reads (a stalled SSH,
    Ctrl-S) must hold up neither the recorder nor the arm. A snapshot not drawn yet gives way to the next.
    """

    def __init__(self, console: Console, screen: bool) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True) if screen else None
        self._words: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._snapshot: Snapshot | None = None
        self._logged_s = 0.0
        self._thread = threading.Thread(target=self._run, name="screen", daemon=True)

    def show(self, snapshot: Snapshot) -> None:
        """Show how it is now: a screen drawn anew, or a line now and then in a log."""
        self._snapshot = snapshot

    def word(self, text: str) -> None:
        """A line that stays."""
        self._words.put(text)

    def start(self) -> None:
        """Begin to show."""
        self._thread.start()

    def stop(self) -> None:
        """Show what is waiting, if the terminal takes it."""
        self._words.put(None)
        self._thread.join(STALLED_S)

    def _run(self) -> None:
        with self._live or nullcontext():
            while True:
                try:
                    text = self._words.get(timeout=DRAW_EVERY_S)
                except queue.Empty:
                    self._draw()
                    continue
                if text is None:
                    return
                self._console.print(Text(text), soft_wrap=True)

    def _draw(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            return
        if self._live is not None:
            self._live.update(draw(snapshot), refresh=True)
        elif time.monotonic() - self._logged_s > LOG_EVERY_S:
            self._logged_s = time.monotonic()
            self._console.print(line(snapshot), markup=False, soft_wrap=True)


class Silent:
    """Shows nothing."""

    show = None

    def word(self, text: str) -> None:
        """Says nothing."""


@contextmanager
def live_view(console: Console, quiet: bool, screen: bool = True) -> Iterator[Shown | Silent]:
    """What shows a session: a screen in a terminal, lines in a log or without `screen`, nothing if quiet."""
    if quiet:
        yield Silent()
        return
    shown = Shown(console, screen and console.is_terminal)
    shown.start()
    try:
        yield shown
    finally:
        shown.stop()


def line(snapshot: Snapshot) -> str:
    """A snapshot in one line, for logs."""
    parts = [
        f"{snapshot.phase}: {_episode(snapshot)}",
        f"{snapshot.seconds:.0f} s",
        f"joints {snapshot.joints_hz:.1f} Hz",
        *(f"{view.name} {view.rate_hz:.1f} fps" for view in snapshot.views),
    ]
    if snapshot.faults:
        parts.append(f"{sum(snapshot.faults.values())} faults")
    return ", ".join(parts)


def draw(snapshot: Snapshot) -> Panel:
    """A snapshot as a panel of tables."""
    keys = Text(snapshot.keys, style="cyan", no_wrap=True)  # on top: a small window cuts the bottom
    parts = (_head(snapshot), keys, _faults(snapshot), _joints(snapshot), _streams(snapshot))
    return Panel(Group(*parts), title="jointprobe record", title_align="left", border_style="dim")


def _episode(snapshot: Snapshot) -> str:
    number = "" if snapshot.episode is None else f"episode {snapshot.episode}, "
    return f"{number}{snapshot.sealed} of {snapshot.episodes} sealed"


def _head(snapshot: Snapshot) -> Text:
    mark = "● " if snapshot.phase == "recording" else ""
    text = Text.assemble((f"{mark}{snapshot.phase}", PHASE_STYLES.get(snapshot.phase, "bold")), "  ")
    text.append(_episode(snapshot))
    if snapshot.phase in ("recording", "paused"):
        text.append(f"   {snapshot.seconds:5.1f} s")
        if snapshot.limit_s is not None:
            text.append(f" of {snapshot.limit_s:g}")
    return text


def _joints(snapshot: Snapshot) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("joint", "deg", "sent", "load %", "A", "°C", "V", "servo"):
        table.add_column(name, justify="left" if name in ("joint", "servo") else "right")
    sample = snapshot.sample
    for number, name in enumerate(snapshot.joint_names):
        if sample is None:
            table.add_row(name, *("-",) * 6, "no reading yet")
            continue
        sent = "" if snapshot.target is None else f"{math.degrees(snapshot.target[number]):.1f}"
        hot = float(sample.temperature[number])
        style = "bold red" if hot >= VERY_HOT_C else "yellow" if hot >= HOT_C else ""
        errors = ", ".join(sample.error.get(name, ()))
        table.add_row(
            name,
            f"{math.degrees(sample.position[number]):.1f}",
            sent,
            f"{100 * sample.load[number]:.0f}",
            f"{sample.current[number]:.2f}",
            Text(f"{hot:.0f}", style=style),
            f"{sample.voltage[number]:.1f}",
            Text(errors or "ok", style="bold red" if errors else "green"),
        )
    return table


def _streams(snapshot: Snapshot) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("stream", "rate", "of", "rows", "jitter p50 / p99", "state"):
        table.add_column(name, justify="left" if name in ("stream", "state") else "right")
    p50, p99 = snapshot.jitter_ms
    table.add_row(
        "joints",
        _rate(snapshot.joints_hz, snapshot.declared_hz),
        f"{snapshot.declared_hz:g} Hz",
        f"{snapshot.rows:,}",
        f"{p50:.2f} / {p99:.2f} ms",
        f"{snapshot.overruns} cycles skipped" if snapshot.overruns else "",
    )
    for view in snapshot.views:
        state = Text(view.state, style=STATE_STYLES.get(view.state, ""))
        if view.repeated:
            state.append(f", {view.repeated} repeated", style="yellow")
        table.add_row(
            view.name,
            _rate(view.rate_hz, view.declared_hz),
            f"{view.declared_hz:g} fps",
            f"{view.frames:,}",
            "",
            state,
        )
    waiting = (
        f"   {snapshot.waiting_bytes / 1e6:.0f} MB wait for the disk" if snapshot.waiting_bytes > 20e6 else ""
    )
    table.caption = f"{snapshot.free_bytes / 1e9:.1f} GB left on the disk{waiting}"
    table.caption_justify = "left"
    return table


def _rate(rate_hz: float, declared_hz: float) -> Text:
    slow = rate_hz < 0.9 * declared_hz
    return Text("-" if np.isclose(rate_hz, 0) else f"{rate_hz:.1f}", style="yellow" if slow else "green")


def _faults(snapshot: Snapshot) -> Text:
    if not snapshot.faults:
        return Text("no faults", style="green")
    ordered = sorted(snapshot.faults.items(), key=lambda item: -item[1])
    return Text("faults: " + ", ".join(f"{kind} {count}" for kind, count in ordered), style="yellow")
