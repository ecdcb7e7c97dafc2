"""What a probe reads and what it says: rows of latents and joints, and an estimate as a measurement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bars import Measurement
from encoders.pairs import evenly_spaced
from probe.bootstrap import Estimate
from probe.clusters import EpisodeClusters

INTERVALS = {"bca": "BCa", "percentile": "percentile", "studentised": "studentised"}


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one split: latents `x` (N, D), joints `y` (N, J) in their units, `episode` (N,) of each row."""

    x: np.ndarray
    y: np.ndarray
    episode: np.ndarray

    @property
    def clusters(self) -> EpisodeClusters:
        """The rows by episode."""
        return EpisodeClusters.of(self.episode)

    def thinned(self, count: int) -> Rows:
        """At most `count` rows, evenly spread over all of them."""
        rows = evenly_spaced(len(self.y), count)
        return Rows(self.x[rows], self.y[rows], self.episode[rows])


def measurement(
    path: str, estimate: Estimate, rows: int, *, paired: bool = False, note: str = ""
) -> Measurement:
    """An estimate as results.json holds it, with the words for how its interval was made."""
    method = ""
    if estimate.low is not None:
        method = (
            f"{'paired ' if paired else ''}{INTERVALS[estimate.interval]} cluster bootstrap over evaluation "
            f"episodes, {len(estimate.bootstrap)} resamples, probe held fixed"
        )
    return Measurement(
        path,
        estimate.value,
        n_rows=rows,
        n_episodes=estimate.n_episodes,
        low=estimate.low,
        high=estimate.high,
        level=estimate.level,
        method=method,
        testable=estimate.value is not None,
        note="; ".join(part for part in (note, estimate.note) if part),
    )
