"""The frame of a recording session: its settings, how it ended, and the process around it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hardware.disk import free_bytes
from hardware.errors import InputError
from hardware.safety import SafetyLimits

SWITCH_S = 0.0005


@dataclass(frozen=True)
class RecorderSettings:
    """How a session runs.

    Parameters
    ----------
    episodes : how many whole ones the recording holds in the end.
    seconds : length of an episode; None ends it by key, or with its motion.
    joints_hz : rate of the joint stream.
    rest_s : pause between episodes, to set the scene again.
    by_key : whether somebody at the keys says when the arm is powered, and when episodes by hand begin.
    limits : where a moving arm is stopped.
    """

    episodes: int
    seconds: float | None = None
    joints_hz: float = 100.0
    rest_s: float = 0.0
    by_key: bool = False
    limits: SafetyLimits = field(default_factory=SafetyLimits)


@dataclass
class RecordReport:
    """How a session ended. `ended` is a word, `problem` says what went wrong, or is empty."""

    sealed: list[int] = field(default_factory=list)
    ended: str = "done"
    problem: str = ""
    faults: Counter[str] = field(default_factory=Counter)


@contextmanager
def ended_by_signals(stop: Callable[[str], None]) -> Iterator[None]:
    """SIGINT, SIGTERM and a lost terminal call `stop` with their name, amid a sealing too.

    A lost terminal that is ignored stays so: that is what `nohup` is for.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {name: signal.getsignal(name) for name in names}
    if before[signal.SIGHUP] == signal.SIG_IGN:
        del before[signal.SIGHUP]
    for name in before:
        signal.signal(name, lambda number, _: stop(signal.Signals(number).name))
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


@contextmanager
def quick_threads() -> Iterator[None]:
    """Python hands its lock to the joints' thread after half a millisecond in place of five."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def require_space(to: Path, needed: int) -> None:
    """InputError where the disk under `to` has less than `needed` bytes left."""
    there = next(path for path in (to, *Path(os.path.realpath(to)).parents) if path.exists())
    free = free_bytes(there)
    if free < needed:
        raise InputError(
            to,
            f"the disk has {free / 1e6:.0f} MB left, {needed / 1e6:.0f} MB are wanted",
            "free space, or record to another disk",
        )
