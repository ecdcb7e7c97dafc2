"""What is measured of an encoder of several seeds: the means over its networks, from their own measurements.

Intervals are those of the mean over evaluation episodes, the seeds held as they are; how far the seeds lie
apart stands in each note. Differences of two encoders are paired by episode, as those of two networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bars import Measurement
from probe.bootstrap import Estimate, mean_estimate
from probe.rows import measurement


@dataclass(frozen=True, eq=False)
class SeedMeans:
    """Of one encoder on one data entry: the same three things as of a single network."""

    measurements: list[Measurement]
    estimates: dict[str, Estimate]
    curve: list[dict[str, Any]]


def mean_over_seeds(
    source: str,
    networks: Sequence[str],
    measurements: Mapping[str, Measurement],
    estimates: Mapping[str, Estimate],
    curves: Mapping[str, list[dict[str, Any]]],
) -> SeedMeans:
    """Means of everything that was measured of all networks.

    Parameters
    ----------
    source, networks : `W1/walk`, and `W1_s0/walk`, ...: how their paths start.
    measurements, estimates : by path; an estimate brings its mean an interval.
    curves : by network, learning curves.
    """
    found: list[Measurement] = []
    means: dict[str, Estimate] = {}
    for path in measurements:
        if not path.startswith(f"{networks[0]}.") or " - " in path:
            continue
        metric = path.removeprefix(networks[0])
        paths = [f"{network}{metric}" for network in networks]
        if not all(one in measurements for one in paths):
            continue
        of_seeds = [measurements[one] for one in paths]
        if all(one in estimates for one in paths):
            means[f"{source}{metric}"] = mean = mean_estimate([estimates[one] for one in paths])
            rows = min(one.n_rows for one in of_seeds)
            found.append(measurement(f"{source}{metric}", mean, rows, note=_spread(of_seeds)))
        else:
            found.append(_bare_mean(f"{source}{metric}", of_seeds))
    return SeedMeans(found, means, _mean_curve([curves[one] for one in networks if one in curves]))


def _bare_mean(path: str, of_seeds: Sequence[Measurement]) -> Measurement:
    """The mean of numbers without an interval; nulls keep the mean of their 95th percentiles."""
    first = of_seeds[0]

    def mean(name: str) -> float | None:
        values = [getattr(one, name) for one in of_seeds]
        return None if any(value is None for value in values) else float(np.mean(values))

    value = mean("value")
    return Measurement(
        path,
        value,
        first.unit,
        min(one.n_rows for one in of_seeds),
        first.n_episodes,
        high=None if value is None else mean("high"),
        level=first.level,
        method=first.method,
        testable=value is not None,
        note=_spread(of_seeds),
    )


def _spread(of_seeds: Sequence[Measurement]) -> str:
    """`mean of 3 seeds, 0.512, 0.530, 0.498 (standard deviation 0.016)`, or why one of them has no number."""
    values = [one.value for one in of_seeds if one.value is not None]
    if len(values) < len(of_seeds):
        return next(one.note for one in of_seeds if one.value is None)
    shown = ", ".join(f"{value:.3f}" for value in values)
    return f"mean of {len(values)} seeds, {shown} (standard deviation {np.std(values, ddof=1):.3f})"


def _mean_curve(curves: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Learning curves of the same sizes, averaged; their lowest and highest are those of all seeds."""
    if not curves or any(len(curve) != len(curves[0]) for curve in curves):
        return []
    return [
        {
            **points[0],
            "r2_mean": float(np.mean([point["r2_mean"] for point in points])),
            "r2_low": min(point["r2_low"] for point in points),
            "r2_high": max(point["r2_high"] for point in points),
        }
        for points in zip(*curves)
    ]
