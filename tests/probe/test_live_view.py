"""The recorder's screen: what matters is on it, at 80 columns, and in a log it is a line."""

from __future__ import annotations

import io
import os
import select
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from hardware.arm import JointSample
from hardware.snapshot import Snapshot, ViewState
from probe.live_view import draw, line, live_view

pytestmark = pytest.mark.realtime

SAMPLE = JointSample(
    time_ns=0,
    position=np.deg2rad([10.0, -20.0]),
    velocity=np.zeros(2),
    load=np.array([0.05, -0.31]),
    current=np.array([0.02, 0.3]),
    temperature=np.array([31.0, 59.0]),
    voltage=np.full(2, 7.3),
    ticks=np.zeros(2),
    error={"gripper": ("overload", "overheat")},
)
SNAPSHOT = Snapshot(
    phase="recording",
    episode=3,
    sealed=2,
    episodes=36,
    seconds=12.4,
    limit_s=30.0,
    rows=1240,
    joints_hz=71.3,
    declared_hz=100.0,
    jitter_ms=(0.05, 0.41),
    overruns=4,
    sample=SAMPLE,
    target=None,
    joint_names=["shoulder_pan", "gripper"],
    views=[ViewState("front", "running", 29.9, 30, 372, 0), ViewState("wrist", "stalled", 0.0, 30, 140, 12)],
    faults={"bus_timeout": 3, "camera_stalled": 1},
    free_bytes=231 * 10**9,
    waiting_bytes=50 * 10**6,
    keys="Enter ends the episode",
)


def screen(snapshot: Snapshot) -> str:
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    console.print(draw(snapshot))
    return console.file.getvalue()


def test_what_a_person_at_the_arm_needs_is_on_one_screen_of_80_columns() -> None:
    text = screen(SNAPSHOT)
    for word in (
        "recording", "episode 3, 2 of 36 sealed", "12.4 s of 30", "10.0", "-20.0", "-31", "59", "7.3",
        "overload, overheat", "71.3", "0.05 / 0.41 ms", "4 cycles skipped", "stalled, 12 repeated",
        "231.0 GB left", "50 MB wait", "bus_timeout 3, camera_stalled 1", "Enter ends the episode",
    ):  # fmt: skip
        assert word in text, f"{word} is not on\n{text}"
    assert max(map(len, text.splitlines())) <= 80


def test_before_the_first_reading_and_without_faults_it_says_so() -> None:
    text = screen(replace(SNAPSHOT, sample=None, faults={}, episode=None, phase="starting", views=[]))
    assert "no reading yet" in text and "no faults" in text


def test_a_log_gets_a_line_and_quiet_gets_nothing() -> None:
    console = Console(width=200, file=io.StringIO(), force_terminal=False)
    with live_view(console, quiet=False) as view:
        view.show(SNAPSHOT)
        wait_for("recording: episode 3", console)
        view.show(SNAPSHOT)
        view.word("a [b]word[/b]")
    assert console.file.getvalue().splitlines() == [line(SNAPSHOT), "a [b]word[/b]"]
    assert "joints 71.3 Hz, front 29.9 fps, wrist 0.0 fps, 4 faults" in line(SNAPSHOT)
    with live_view(console, quiet=True) as view:
        assert view.show is None
        view.word("nothing")
    assert "nothing" not in console.file.getvalue()


def test_a_terminal_gets_a_screen_that_is_drawn_anew() -> None:
    console = Console(width=80, file=io.StringIO(), force_terminal=True)
    with live_view(console, quiet=False) as view:
        view.show(SNAPSHOT)
        wait_for("jointprobe record", console)
        view.show(replace(SNAPSHOT, phase="sealing"))
        wait_for("sealing", console)


def test_a_terminal_that_takes_nothing_holds_nobody_up() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stuck:
        console = Console(width=80, file=stuck, force_terminal=True)
        began = time.monotonic()
        with live_view(console, quiet=False) as view:
            for _ in range(400):
                view.word("x" * 1000)  # far more than the pipe holds
                view.show(SNAPSHOT)
            handed_over = time.monotonic() - began
        assert handed_over < 1 and time.monotonic() - began < 20
        thread = next(one for one in threading.enumerate() if one.name == "screen")
        while thread.is_alive():  # somebody reads again
            if select.select([reading], [], [], 0.1)[0]:  # it may have said all, and be about to end
                os.read(reading, 1 << 16)
    os.close(reading)


def wait_for(text: str, console: Console) -> None:
    until = time.monotonic() + 20
    while text not in console.file.getvalue():
        assert time.monotonic() < until, console.file.getvalue()
        time.sleep(0.01)
