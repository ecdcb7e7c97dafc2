"""What the capturing threads put in and the one writer takes out: memory between them and the disk."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np

from hardware.arm import JointSample
from hardware.cameras import Frame
from hardware.episode import JOINT_QUANTITIES
from hardware.episode_writer import EpisodeWriter

MAX_WAITING_BYTES = 512 << 20
SAMPLE_BYTES = 512  # of a joint sample as it waits, roughly


class Tape:
    """Samples, frames, targets and faults since `roll`; `drain` writes them to an episode.

    Any thread may add; one thread drains. What was captured before `roll` or after `cut` is not taken, so an
    episode's streams all begin and end together.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[str, Any]] = deque()
        self._start_ns: int | None = None
        self._end_ns: int | None = None
        self.waiting_bytes = 0
        self.rows = 0

    def roll(self, now_ns: int) -> None:
        """Take what is captured from now on."""
        with self._lock:
            self._waiting.clear()
            self.waiting_bytes = self.rows = 0
            self._start_ns, self._end_ns = now_ns, None

    def cut(self, now_ns: int) -> None:
        """Take nothing that is captured after now."""
        with self._lock:
            self._end_ns = now_ns

    def stop(self) -> None:
        """Take nothing."""
        with self._lock:
            self._start_ns = None

    @property
    def full(self) -> bool:
        """Whether the disk has fallen so far behind that recording must end."""
        return self.waiting_bytes > MAX_WAITING_BYTES

    def joints(self, sample: JointSample) -> None:
        """Add one joint sample."""
        if self._add("joints", sample.time_ns, sample, SAMPLE_BYTES):
            self.rows += 1

    def sent(self, time_ns: int, target: np.ndarray) -> None:
        """Add a target that was sent, rad, [J]."""
        self._add("sent", time_ns, (time_ns, target), SAMPLE_BYTES)

    def frame(self, view: str, frame: Frame) -> None:
        """Add a camera's frame."""
        self._add("frame", frame.time_ns, (view, frame), len(frame.jpeg))

    def fault(self, kind: str, stream: str, message: str, time_ns: int) -> None:
        """Add a fault; one that comes late still belongs to the episode."""
        self._add("fault", None, (kind, stream, message, time_ns), len(message))

    def _add(self, what: str, time_ns: int | None, item: Any, size: int) -> bool:
        with self._lock:
            if self._start_ns is None:
                return False
            if time_ns is not None and (
                time_ns < self._start_ns or (self._end_ns is not None and time_ns > self._end_ns)
            ):
                return False
            self._waiting.append((what, item))
            self.waiting_bytes += size
            return True

    def drain(self, episode: EpisodeWriter) -> None:
        """Write all that waits, joints and targets in blocks."""
        with self._lock:
            taken, self._waiting = self._waiting, deque()
            self.waiting_bytes = 0
        samples = [item for what, item in taken if what == "joints"]
        if samples:
            quantities = {
                name: np.array([getattr(one, name) for one in samples]) for name in JOINT_QUANTITIES
            }
            episode.joints(
                np.array([one.time_ns for one in samples]),
                np.array([one.position for one in samples]),
                raw=np.array([one.ticks for one in samples]),
                **quantities,
            )
        targets = [item for what, item in taken if what == "sent"]
        if targets:
            episode.actions(
                np.array([time_ns for time_ns, _ in targets]), np.array([target for _, target in targets])
            )
        for what, item in taken:
            if what == "frame":
                view, frame = item
                episode.frame(view, frame.time_ns, frame.sequence, frame.jpeg)
            elif what == "fault":
                kind, stream, message, time_ns = item
                episode.fault(kind, stream, message, time_ns)
