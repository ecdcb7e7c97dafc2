"""Which of two measurements is the higher, as far as their intervals tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reports.model import Card, EncoderLine, JointTable
from reports.tables import control_of, difference_of


@dataclass(frozen=True)
class Order:
    """`above`, `below`, `open` (not separated) or `missing` (one was not measured), with words for it."""

    state: Literal["above", "below", "open", "missing"]
    words: str


def compare(card: Card, first: str, second: str) -> Order:
    """Whether the measurement at path `first` lies above that at `second`.

    By the interval of their paired difference where it was measured; else by intervals that do not overlap,
    which asks for more. Point estimates alone leave it open.
    """
    paired = difference_of(first, second, card.numbers)
    if paired.bounds is not None:
        low, high = paired.bounds
        words = f"{paired.difference_text} {paired.interval}"
        return Order("above" if low > 0 else "below" if high < 0 else "open", words)
    a, b = card.numbers.get(first), card.numbers.get(second)
    if a is None or b is None or a.value is None or b.value is None:
        return Order("missing", "")
    words = f"{a.text} against {b.text}"
    if a.bounds is None or b.bounds is None:
        return Order("open", f"{words}, without intervals")
    if a.bounds[0] > b.bounds[1]:
        return Order("above", f"{words}, intervals apart")
    if a.bounds[1] < b.bounds[0]:
        return Order("below", f"{words}, intervals apart")
    return Order("open", f"{words}, intervals overlap")


def path_on(card: Card, encoder: str, data: str, metric: str) -> str:
    """The path of a metric; the study's first data entry is left out of it."""
    return f"{encoder}.{metric}" if data == card.data[0].name else f"{encoder}/{data}.{metric}"


def controls_of(card: Card, table: JointTable, model: str) -> list[str]:
    """The controls of a table that stand beside a model."""
    lines: dict[str, EncoderLine] = {line.name: line for line in card.encoders}
    others = [name for name in table.columns if name not in table.models]
    return [name for name in others if control_of(lines[name], lines[model], card.encoders)]
