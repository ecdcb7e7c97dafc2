"""What networks of one recipe and several seeds differ in: beside each mean, the numbers that it is of."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from bars.study import Study
from reports.model import Number, PlainTable
from reports.numbers import plain

_METRICS = {
    "r2.mean": "mean R2",
    "anisotropy": "anisotropy",
    "g1b.top1": "G1b top-1",
    "g1b.own.top1": "by its own",
}


def seeds_table(study: Study, numbers: Mapping[str, Number]) -> PlainTable:
    """A row for each encoder of several seeds on each data entry; no rows where a study has none."""
    rows = []
    for data in study.data:
        for name in study.encoders:
            sources = [study.source(network, data) for network in study.seeds_of(name)]
            cells = [_cell(numbers, sources, metric) for metric in _METRICS]
            if any(cells):
                rows.append((study.source(name, data), *cells))
    return PlainTable(
        "Seeds",
        "Each seed's own number, and their standard deviation. Everywhere else an encoder of several seeds "
        "has the mean over them; its intervals are over evaluation episodes, for these very seeds.",
        ("encoder", *_METRICS.values()),
        tuple(rows),
    )


def is_of_a_seed(study: Study, path: str) -> bool:
    """Whether a measurement is of one network of several seeds."""
    return any(
        path.startswith((f"{one}.", f"{one}/")) for one in study.networks.keys() - study.encoders.keys()
    )


def _cell(numbers: Mapping[str, Number], sources: list[str], metric: str) -> str:
    found = [numbers.get(f"{source}.{metric}") for source in sources]
    values = [number.value for number in found if number is not None and number.value is not None]
    if len(values) < 2:
        return ""
    return f"{', '.join(map(plain, values))} (sd {plain(statistics.stdev(values))})"
