"""How fast a stream really comes: its rate and its jitter over the last seconds."""

from __future__ import annotations

from collections import deque

import numpy as np


class Pace:
    """Rate and jitter of a stream from its last `keep` stamps."""

    def __init__(self, keep: int = 500) -> None:
        self._stamps: deque[int] = deque(maxlen=keep)

    def add(self, time_ns: int) -> None:
        """Note one stamp, ns."""
        self._stamps.append(time_ns)

    @property
    def rate_hz(self) -> float:
        """Stamps a second; 0 before there are two."""
        stamps = self._stamps
        if len(stamps) < 2 or stamps[-1] == stamps[0]:
            return 0.0
        return (len(stamps) - 1) * 1e9 / (stamps[-1] - stamps[0])

    def jitter_ms(self, *percentiles: float) -> list[float]:
        """Percentiles of |interval - median interval|, ms; zeros before there are three stamps."""
        if len(self._stamps) < 3:
            return [0.0] * len(percentiles)
        intervals = np.diff(np.array(self._stamps, np.int64)) / 1e6
        return [
            float(value) for value in np.percentile(np.abs(intervals - np.median(intervals)), percentiles)
        ]
