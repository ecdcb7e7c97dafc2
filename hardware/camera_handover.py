"""Who listens to a camera: frames and faults go from its threads to two callbacks, one call at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from hardware.camera_watch import STALLED_AFTER_S, CameraWatch, Fault


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame.

    time_ns : of its capture, CLOCK_MONOTONIC, strictly rising: the driver's stamp, else the arrival.
    sequence : rising; a gap says that the camera numbered, or sent and we dropped, what is missing.
    jpeg : the bytes.
    arrived_ns : when they were here.
    """

    time_ns: int
    sequence: int
    jpeg: bytes
    arrived_ns: int


class Handover:
    """Frames and faults of one camera on their way to whoever listens, if anybody does.

    Everything that happens to the camera is told here, listened to or not; the watch that turns it into
    faults is a new one each time somebody begins to listen, so that what is wrong by then is told again.

    Attributes
    ----------
    watch : what was seen since `begin`.
    """

    def __init__(self, timeout_s: float = STALLED_AFTER_S) -> None:
        self._timeout_s = timeout_s
        self._lock = threading.RLock()  # one call at a time, and faults in the order of what they are about
        self._deliver: Callable[[Frame], None] | None = None
        self._fault: Callable[[str, str, int], None] | None = None
        self._lost: str | None = None
        self.watch = CameraWatch(time.monotonic_ns(), None, timeout_s)

    @property
    def listened_to(self) -> bool:
        """Whether anybody listens."""
        return self._deliver is not None

    def begin(
        self,
        deliver: Callable[[Frame], None],
        fault: Callable[[str, str, int], None],
        declared_hz: float | None,
    ) -> None:
        """Hand over from now on."""
        with self._lock:
            now_ns = time.monotonic_ns()
            self.watch = CameraWatch(now_ns, declared_hz, self._timeout_s)
            self._deliver, self._fault = deliver, fault
            if self._lost is not None:
                self._tell(self.watch.lost(now_ns, self._lost))

    def end(self, wait_s: float) -> None:
        """Hand over nothing more; waits up to `wait_s` for a call that runs just now."""
        self._deliver = self._fault = None
        if self._lock.acquire(timeout=wait_s):
            self._lock.release()

    # -- what happens to the camera --------------------------------------------------------------------------

    def frame(self, frame: Frame, repeated: bool, brightness: float | None) -> None:
        """A good frame; `repeated` when it is byte for byte the one before."""
        with self._lock:
            self._lost = None
            self._tell(self.watch.frame(frame.arrived_ns, repeated, brightness))
            deliver = self._deliver
            if deliver is not None:
                deliver(frame)

    def garbage(self, now_ns: int, reason: str) -> None:
        """Something was dropped."""
        with self._lock:
            self._tell(self.watch.garbage(now_ns, reason))

    def lost(self, reason: str) -> None:
        """The connection is gone."""
        with self._lock:
            self._lost = reason
            self._tell(self.watch.lost(time.monotonic_ns(), reason))

    def tick(self, now_ns: int) -> None:
        """Time went by."""
        with self._lock:
            self._tell(self.watch.tick(now_ns))

    def _tell(self, faults: list[Fault]) -> None:
        for one in faults:
            fault = self._fault
            if fault is not None:
                fault(*one)
