"""What can be wrong with a camera, told once when it begins and once when it is over.

Pure bookkeeping: it is told of frames, of bytes that were none, of a lost connection and of the time, and
returns the faults to report. No threads, no clock and no picture is looked at here.

| kind | begins | is over |
|---|---|---|
| `camera_stalled` | no good frame for `timeout_s` | a good frame |
| `camera_lost` | the connection is closed or the device gone | a good frame |
| `camera_frozen` | byte-identical frames for `FROZEN_AFTER_S`: a real sensor has noise | a different frame |
| `camera_black` | the mean brightness is under `BLACK_MEAN` | brightness is twice that |
| `camera_garbage` | no JPEG, or another size: dropped and counted | none for `GARBAGE_OVER_S` |
| `camera_slow` | under 70 % of the declared rate over 5 s; told once | - |

What is over is told as `camera_back`, with how long it took and how many frames it cost.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

STALLED_AFTER_S = 2.0
FROZEN_AFTER_S = 1.5
FROZEN_AT_LEAST = 3  # repeated frames; a slow camera needs more than the time for that
GARBAGE_OVER_S = 2.0
BLACK_MEAN = 8.0  # of 255, in the reduced grey picture
SLOW_SHARE = 0.7
SLOW_AFTER_S = 5.0
SLOW_WINDOW_S = 5.0  # a hiccup is no slow camera
RATE_WINDOW_S = 2.0
_S = 1_000_000_000


class Fault(NamedTuple):
    """One thing to report."""

    kind: str
    message: str
    time_ns: int


class RateMeter:
    """Frames per second over the last `window_s`, from arrival times in ns."""

    def __init__(self, window_s: float = RATE_WINDOW_S) -> None:
        self._times: deque[int] = deque()
        self._window_s = window_s

    def add(self, now_ns: int) -> None:
        """A frame arrived."""
        self._times.append(now_ns)
        while self._times[0] < now_ns - self._window_s * _S:
            self._times.popleft()

    def clear(self) -> None:
        """Forget what was before an interruption."""
        self._times.clear()

    @property
    def span_s(self) -> float:
        """From the first frame counted to the last."""
        return (self._times[-1] - self._times[0]) / _S if self._times else 0.0

    def hz(self, now_ns: int) -> float:
        """Intervals over their span; counts over the window once frames stay away."""
        times = [time for time in tuple(self._times) if time >= now_ns - self._window_s * _S]
        if len(times) < 2:
            return len(times) / self._window_s
        span = times[-1] - times[0]
        if now_ns - times[-1] > 3 * span / (len(times) - 1):
            return len(times) / self._window_s
        return (len(times) - 1) / max(span, 1) * _S


class CameraWatch:
    """The state of one camera from `start_ns` on.

    Parameters
    ----------
    start_ns : CLOCK_MONOTONIC; the first frame is waited for from here.
    declared_hz : frames a second it should give, or None.
    timeout_s : after which a missing frame is a stall.

    Attributes
    ----------
    frames, repeated, dropped : good frames; those byte-identical to the one before; bytes that were no frame.
    """

    def __init__(
        self, start_ns: int, declared_hz: float | None = None, timeout_s: float = STALLED_AFTER_S
    ) -> None:
        self.frames = self.repeated = self.dropped = 0
        self._start_ns, self._declared_hz, self._timeout_s = start_ns, declared_hz, timeout_s
        self._last_ns = start_ns  # of the last good frame
        self._since: dict[str, int] = {}  # conditions that hold, and since when
        self._count: dict[str, int] = {}  # frames each has cost
        self._same_since_ns: int | None = None
        self._garbage_ns = start_ns
        self._rate = RateMeter(SLOW_WINDOW_S)
        self._slow_told = False

    @property
    def state(self) -> str:
        """`running`, `stalled`, `frozen` or `lost`."""
        for kind in ("lost", "stalled", "frozen"):
            if f"camera_{kind}" in self._since:
                return kind
        return "running"

    def frame(self, now_ns: int, repeated: bool, brightness: float | None = None) -> list[Fault]:
        """A good frame arrived.

        Parameters
        ----------
        now_ns : when.
        repeated : whether its bytes are those of the frame before.
        brightness : mean of 0..255, where it was looked at.
        """
        self.frames += 1
        faults = self._arrived(now_ns)
        self._last_ns = now_ns
        faults += self._identical(now_ns, repeated)
        if brightness is not None:
            faults += self._brightness(now_ns, brightness)
        self._rate.add(now_ns)
        return faults + self._slow(now_ns) + self._garbage_over(now_ns)

    def garbage(self, now_ns: int, reason: str, count: int = 1) -> list[Fault]:
        """Something was dropped; `reason` completes "a frame ..."."""
        self.dropped += count
        self._garbage_ns = now_ns
        self._rate.clear()  # a camera whose frames are dropped is not slow
        return self._begin("camera_garbage", now_ns, f"dropped: a frame {reason}", count)

    def lost(self, now_ns: int, reason: str) -> list[Fault]:
        """The connection is gone; `reason` completes "the camera ..."."""
        return self._begin("camera_lost", now_ns, f"the camera {reason}")

    def tick(self, now_ns: int) -> list[Fault]:
        """Time went by; to be called a few times a second."""
        faults = self._garbage_over(now_ns)
        if now_ns - self._last_ns > self._timeout_s * _S and "camera_lost" not in self._since:
            since = (now_ns - self._last_ns) / _S
            faults += self._begin("camera_stalled", now_ns, f"no frame for {since:.1f} s")
        return faults

    # -- one condition each ----------------------------------------------------------------------------------

    def _arrived(self, now_ns: int) -> list[Fault]:
        """A frame ends a stall and a loss; both at once are one story."""
        faults = self._end("camera_stalled", now_ns, "") + self._end("camera_lost", now_ns, "")
        if not faults:
            return []
        self._rate.clear()  # the gap says nothing about the rate from here on,
        self._same_since_ns = now_ns  # nor about how long the picture stands still
        away = (now_ns - self._last_ns) / _S
        return [Fault("camera_back", f"frames again after {away:.1f} s without", now_ns)]

    def _identical(self, now_ns: int, repeated: bool) -> list[Fault]:
        if not repeated:
            self._same_since_ns = now_ns
            return self._end(
                "camera_frozen", now_ns, "frames differ again: {n} were identical over {s:.1f} s"
            )
        self.repeated += 1
        if self._same_since_ns is None:
            self._same_since_ns = now_ns
        self._count["camera_frozen"] = self._count.get("camera_frozen", 0) + 1
        still = now_ns - self._same_since_ns >= FROZEN_AFTER_S * _S
        if not still or self._count["camera_frozen"] < FROZEN_AT_LEAST:
            return []
        message = f"byte-identical frames for {FROZEN_AFTER_S} s: the picture stands still"
        return self._begin("camera_frozen", now_ns, message, 0, self._same_since_ns)

    def _brightness(self, now_ns: int, mean: float) -> list[Fault]:
        if mean < BLACK_MEAN:
            return self._begin("camera_black", now_ns, f"the picture is black: mean {mean:.1f} of 255")
        if mean > 2 * BLACK_MEAN:
            return self._end("camera_black", now_ns, "no longer black after {s:.1f} s")
        return []

    def _slow(self, now_ns: int) -> list[Fault]:
        if self._slow_told or self._declared_hz is None or now_ns - self._start_ns < SLOW_AFTER_S * _S:
            return []
        if self._rate.span_s < 0.9 * SLOW_WINDOW_S:
            return []
        measured = self._rate.hz(now_ns)
        if measured >= SLOW_SHARE * self._declared_hz:
            return []
        self._slow_told = True
        return [
            Fault(
                "camera_slow",
                f"{measured:.1f} frames a second of the {self._declared_hz:g} declared",
                now_ns,
            )
        ]

    def _garbage_over(self, now_ns: int) -> list[Fault]:
        if now_ns - self._garbage_ns < GARBAGE_OVER_S * _S:
            return []
        return self._end("camera_garbage", now_ns, "no garbage any more: {n} dropped over {s:.1f} s")

    # -- edges -----------------------------------------------------------------------------------------------

    def _begin(
        self, kind: str, now_ns: int, message: str, count: int = 1, since_ns: int | None = None
    ) -> list[Fault]:
        self._count[kind] = self._count.get(kind, 0) + count
        if kind in self._since:
            return []
        self._since[kind] = now_ns if since_ns is None else since_ns
        return [Fault(kind, message, now_ns)]

    def _end(self, kind: str, now_ns: int, message: str) -> list[Fault]:
        count = self._count.pop(kind, 0)
        since_ns = self._since.pop(kind, None)
        if since_ns is None:
            return []
        return [Fault("camera_back", message.format(n=count, s=(now_ns - since_ns) / _S), now_ns)]
