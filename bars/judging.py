"""Judging one bar: the point estimate decides, the interval says how firm the decision is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bars.bar import OPERATORS, Bar, Comparison, Difference, Equals, SameOrder
from bars.measurement import Measurement, difference_path, finite

BarState = Literal["met", "not met", "not tested"]
Firmness = Literal["firm", "undecided", ""]

# A cluster bootstrap over episodes covers 92 % at 25 episodes, 77 % at 6 and 31 % at 2 (design.md).
FEWEST_EPISODES = 10


@dataclass(frozen=True)
class BarResult:
    """What became of a bar.

    Parameters
    ----------
    state : by the point estimate alone, as registered.
    firm : `firm` or `undecided`; empty where the bar was not tested.
    value, low, high : the number that was compared, and its interval. For `same_order` the share of
        encoder pairs in the same order.
    reason : why it was not tested, or why it is undecided; empty otherwise.
    n_rows, n_episodes : what the number stands on (the least, where several numbers are needed).
    """

    state: BarState
    firm: Firmness
    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    n_rows: int = 0
    n_episodes: int = 0

    def to_json(self) -> dict[str, Any]:
        """What the ledger's `judged` event keeps of it; numbers that are not finite become None."""
        return {
            "state": self.state,
            "firm": self.firm,
            "value": finite(self.value),
            "low": finite(self.low),
            "high": finite(self.high),
            "reason": self.reason,
        }


def judge(bar: Bar, measurements: Mapping[str, Measurement]) -> BarResult:
    """Judge a bar on measurements, keyed by path (paired differences under `"A - B"`)."""
    if isinstance(bar, Comparison):
        measurement = measurements.get(bar.path)
        if problem := _untested(bar.path, measurement):
            return problem
        assert measurement is not None
        return _against_mark(measurement, bar.op, bar.mark)
    if isinstance(bar, Difference):
        return _difference(bar, measurements)
    if isinstance(bar, SameOrder):
        return _same_order(bar, measurements)
    return _equals(bar, measurements)


def _untested(path: str, measurement: Measurement | None) -> BarResult | None:
    """A `not tested` result where there is no number to judge, else None."""
    if measurement is None:
        return BarResult("not tested", "", reason=f"{path} was not measured")
    counts = {"n_rows": measurement.n_rows, "n_episodes": measurement.n_episodes}
    note = f": {measurement.note}" if measurement.note else ""
    if not measurement.testable:
        return BarResult("not tested", "", reason=f"{path} is not testable{note}", **counts)
    if finite(measurement.value) is None:
        return BarResult("not tested", "", reason=f"{path} is not a number{note}", **counts)
    return None


def _against_mark(
    measurement: Measurement, op: str, mark: float, no_interval: str = "no interval"
) -> BarResult:
    value, low, high = measurement.value, finite(measurement.low), finite(measurement.high)
    assert value is not None
    holds = OPERATORS[op]
    met = holds(value, mark)
    if low is None or high is None:
        reason = no_interval
    elif holds(low, mark) != met or holds(high, mark) != met:
        reason = f"the interval straddles {mark!r}"
    else:
        reason = _too_few(measurement.n_episodes)
    return BarResult(
        "met" if met else "not met",
        "undecided" if reason else "firm",
        float(value),
        low,
        high,
        reason,
        measurement.n_rows,
        measurement.n_episodes,
    )


def _too_few(n_episodes: int) -> str:
    if n_episodes >= FEWEST_EPISODES:
        return ""
    return f"too few episodes: {n_episodes}, and {FEWEST_EPISODES} are needed"


def _difference(bar: Difference, measurements: Mapping[str, Measurement]) -> BarResult:
    for path in bar.paths():
        measurement = measurements.get(path)
        if measurement is not None and (problem := _untested(path, measurement)):
            return problem
    name = difference_path(bar.a, bar.b)
    paired = measurements.get(name)
    if paired is None:
        for path in bar.paths():
            if path not in measurements:
                return BarResult("not tested", "", reason=f"{path} was not measured")
        paired = _unpaired(name, measurements[bar.a], measurements[bar.b])
        return _against_mark(paired, bar.op, bar.mark, no_interval="no paired interval")
    if problem := _untested(name, paired):
        return problem
    return _against_mark(paired, bar.op, bar.mark)


def _unpaired(name: str, a: Measurement, b: Measurement) -> Measurement:
    """The bare difference of two point estimates, which has no interval."""
    assert a.value is not None and b.value is not None
    return Measurement(
        path=name,
        value=a.value - b.value,
        unit=a.unit,
        n_rows=min(a.n_rows, b.n_rows),
        n_episodes=min(a.n_episodes, b.n_episodes),
    )


def _same_order(bar: SameOrder, measurements: Mapping[str, Measurement]) -> BarResult:
    for path in bar.paths():
        if problem := _untested(path, measurements.get(path)):
            return problem
    stands_on = [measurements[path] for path in bar.paths()]
    n_rows = min(m.n_rows for m in stands_on)
    n_episodes = min(m.n_episodes for m in stands_on)
    pairs = bar.differences()
    half = len(pairs) // 2
    signs = [_sign(measurements[a], measurements[b]) for a, b in pairs]
    for (a, b), sign in zip(pairs[:half], signs[:half]):
        if sign == 0:
            reason = f"{a} and {b} are equal, so neither is the higher"
            return BarResult("not tested", "", reason=reason, n_rows=n_rows, n_episodes=n_episodes)
    agreeing = sum(first == second for first, second in zip(signs[:half], signs[half:]))
    met = agreeing == half
    if met:
        decisive = pairs
    else:  # one pair that is surely in the other order is enough to say that the orders differ
        reversed_ = [i for i in range(half) if signs[i] != signs[half + i]]
        sure = [i for i in reversed_ if all(_settled(*pairs[j], measurements) for j in (i, half + i))]
        best = (sure or reversed_)[0]
        decisive = [pairs[best], pairs[half + best]]
    unsettled = [pair for pair in decisive if not _settled(*pair, measurements)]
    reason = _too_few(n_episodes)
    if unsettled:
        reason = f"the interval of {difference_path(*unsettled[0])} is missing or straddles 0"
    return BarResult(
        "met" if met else "not met",
        "undecided" if reason else "firm",
        agreeing / half,
        None,
        None,
        reason,
        n_rows,
        n_episodes,
    )


def _sign(a: Measurement, b: Measurement) -> int:
    assert a.value is not None and b.value is not None
    return (a.value > b.value) - (a.value < b.value)


def _settled(a: str, b: str, measurements: Mapping[str, Measurement]) -> bool:
    """Whether the order of two measurements is beyond doubt.

    By the interval of their paired difference, in either direction; where that was not measured, by
    intervals that do not overlap, which asks for more.
    """
    sign = _sign(measurements[a], measurements[b])
    for first, second, direction in ((a, b, sign), (b, a, -sign)):
        paired = measurements.get(difference_path(first, second))
        if paired is not None:
            low, high = finite(paired.low), finite(paired.high)
            if low is None or high is None:
                return False
            return low > 0 if direction > 0 else high < 0 if direction < 0 else False
    ends = [finite(end) for path in (a, b) for end in (measurements[path].low, measurements[path].high)]
    if any(end is None for end in ends):
        return False
    low_a, high_a, low_b, high_b = (float(end) for end in ends if end is not None)
    return low_a > high_b if sign > 0 else low_b > high_a if sign < 0 else False


def _equals(bar: Equals, measurements: Mapping[str, Measurement]) -> BarResult:
    """Equivalence: met only where the whole interval lies within the margin.

    A point estimate within the margin whose interval is not shows no equivalence: `not met`, undecided.
    """
    measurement = measurements.get(bar.path)
    if problem := _untested(bar.path, measurement):
        return problem
    assert measurement is not None and measurement.value is not None
    value, low, high = float(measurement.value), finite(measurement.low), finite(measurement.high)
    counts = {"n_rows": measurement.n_rows, "n_episodes": measurement.n_episodes}
    if low is None or high is None:
        reason = f"{bar.path} has no interval, and equivalence needs one"
        return BarResult("not tested", "", value, low, high, reason, **counts)
    bottom, top = bar.mark - bar.margin, bar.mark + bar.margin
    met = all(bottom <= end <= top for end in (low, value, high))
    reason = _too_few(measurement.n_episodes)
    if not met and high >= bottom and low <= top:
        reason = f"the interval reaches out of {_short(bottom)} .. {_short(top)}"
        if not bottom <= value <= top:
            reason = f"the interval reaches into {_short(bottom)} .. {_short(top)}"
    return BarResult(
        "met" if met else "not met", "undecided" if reason else "firm", value, low, high, reason, **counts
    )


def _short(number: float) -> str:
    return f"{number:.6g}" if math.isfinite(number) else str(number)
