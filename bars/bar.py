"""Bars: the four forms in which a pass mark can be written, parsed and never evaluated as code."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from bars.errors import StudyError
from bars.measurement import ENCODER_PATTERN, NAME_PATTERN, PATH_PATTERN, MeasurementPath

FORMS = (
    "W1.r2.mean < 0.80, W1.r2.mean - W2.r2.mean > 0, same_order(W1, W2; r2.mean; g1b.top1) "
    "or equals(W1.r2.mean, 0.565, margin 0.05)"
)
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": lambda value, mark: value < mark,
    "<=": lambda value, mark: value <= mark,
    ">": lambda value, mark: value > mark,
    ">=": lambda value, mark: value >= mark,
}

_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_OPERATOR = r"<=|>=|<|>"
_SOURCE = rf"{ENCODER_PATTERN}(?:/{NAME_PATTERN})?"
_METRIC = rf"{NAME_PATTERN}(?:\.[A-Za-z0-9_]+)*"
_MARKED = re.compile(
    rf"(?P<a>{PATH_PATTERN})(?:\s+-\s+(?P<b>{PATH_PATTERN}))?\s*(?P<op>{_OPERATOR})\s*(?P<mark>{_NUMBER})"
)
_SAME_ORDER = re.compile(
    rf"same_order\s*\(\s*(?P<encoders>{_SOURCE}(?:\s*,\s*{_SOURCE})*)\s*;"
    rf"\s*(?P<first>{_METRIC})\s*;\s*(?P<second>{_METRIC})\s*\)"
)
_EQUALS = re.compile(
    rf"equals\s*\(\s*(?P<path>{PATH_PATTERN})\s*,\s*(?P<mark>{_NUMBER})\s*,\s*margin\s+(?P<margin>{_NUMBER})\s*\)"
)


@dataclass(frozen=True)
class Comparison:
    """`W1.r2.mean < 0.80`"""

    path: str
    op: str
    mark: float

    def paths(self) -> list[str]:
        return [self.path]

    def differences(self) -> list[tuple[str, str]]:
        return []

    def __str__(self) -> str:
        return f"{self.path} {self.op} {self.mark!r}"


@dataclass(frozen=True)
class Difference:
    """`W1walk/walk.r2.mean - W1/walk.r2.mean > 0`, a paired difference."""

    a: str
    b: str
    op: str
    mark: float

    def paths(self) -> list[str]:
        return [self.a, self.b]

    def differences(self) -> list[tuple[str, str]]:
        return [(self.a, self.b)]

    def __str__(self) -> str:
        return f"{self.a} - {self.b} {self.op} {self.mark!r}"


@dataclass(frozen=True)
class SameOrder:
    """`same_order(W1, W2; r2.mean; g1b.top1)`: who is higher in the first is higher in the second."""

    encoders: tuple[str, ...]
    first: str
    second: str

    def paths(self) -> list[str]:
        return [f"{encoder}.{metric}" for metric in (self.first, self.second) for encoder in self.encoders]

    def differences(self) -> list[tuple[str, str]]:
        """The paired differences that tell how firm an order is, each pair of encoders in each metric."""
        return [
            (f"{a}.{metric}", f"{b}.{metric}")
            for metric in (self.first, self.second)
            for a, b in itertools.combinations(self.encoders, 2)
        ]

    def __str__(self) -> str:
        return f"same_order({', '.join(self.encoders)}; {self.first}; {self.second})"


@dataclass(frozen=True)
class Equals:
    """`equals(W1.r2.mean, 0.565, margin 0.05)`: the whole interval lies within the margin."""

    path: str
    mark: float
    margin: float

    def paths(self) -> list[str]:
        return [self.path]

    def differences(self) -> list[tuple[str, str]]:
        return []

    def __str__(self) -> str:
        return f"equals({self.path}, {self.mark!r}, margin {self.margin!r})"


Bar = Comparison | Difference | SameOrder | Equals


def parse_bar(text: str) -> Bar:
    """A bar from its text; `str(bar)` is the canonical text, and parses to the same bar.

    Raises
    ------
    StudyError : names the bar and what is wrong with it, and lists the forms.
    """
    stripped = text.strip()
    if match := _MARKED.fullmatch(stripped):
        mark = _number(text, match["mark"])
        if match["b"] is None:
            return Comparison(match["a"], match["op"], mark)
        if match["a"] == match["b"]:
            raise StudyError(
                f"bar {text!r}", f"{match['a']} is subtracted from itself", "name two measurements"
            )
        return Difference(match["a"], match["b"], match["op"], mark)
    if match := _SAME_ORDER.fullmatch(stripped):
        return _same_order(text, match)
    if match := _EQUALS.fullmatch(stripped):
        margin = _number(text, match["margin"])
        if margin <= 0:
            raise StudyError(
                f"bar {text!r}", f"the margin {margin!r} is not above 0", "state a positive margin"
            )
        return Equals(match["path"], _number(text, match["mark"]), margin)
    raise StudyError(f"bar {text!r}", "is none of the forms a bar can have", f"write it like {FORMS}")


def bar_paths(bar: Bar) -> list[MeasurementPath]:
    """The parsed paths of the measurements that a bar needs."""
    return [MeasurementPath.parse(path) for path in bar.paths()]


def _same_order(text: str, match: re.Match[str]) -> SameOrder:
    encoders = tuple(name.strip() for name in match["encoders"].split(","))
    if len(encoders) < 2:
        raise StudyError(f"bar {text!r}", "an order needs at least two encoders", "name a second one")
    if len(set(encoders)) < len(encoders):
        twice = next(name for name in encoders if encoders.count(name) > 1)
        raise StudyError(f"bar {text!r}", f"{twice} is named twice", "name each encoder once")
    if match["first"] == match["second"]:
        raise StudyError(f"bar {text!r}", f"{match['first']} is compared with itself", "name two metrics")
    return SameOrder(encoders, match["first"], match["second"])


def _number(text: str, number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise StudyError(f"bar {text!r}", f"the number {number} is too large for a float")
    return value
