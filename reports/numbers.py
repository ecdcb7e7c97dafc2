"""How numbers are written: one rule for the card, the figures and the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

NOT_MEASURED = "not measured"
NOT_TESTABLE = "not testable"


def plain(value: float, digits: int = 3) -> str:
    """Write a number with `digits` decimals, fewer where it is large (-24.0, 1250).

    A value that rounds to zero never carries a minus sign.
    """
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    size = abs(value)
    decimals = 0 if size >= 1000 else min(digits, 1) if size >= 10 else digits
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text


def signed(value: float, digits: int = 3) -> str:
    """Write a difference, with its sign always there (0 has none)."""
    text = plain(value, digits)
    return f"+{text}" if value > 0 and float(text) != 0 else text


def scientific(value: float) -> str:
    """Write a number that spans orders of magnitude: 2.3e-05, 0.148 where it is not small, 0 for none."""
    if value == 0:
        return "0"
    return plain(value) if not math.isfinite(value) or abs(value) >= 0.01 else f"{value:.1e}"


def against(value: float, mark: float, digits: int = 3) -> str:
    """Write a number with as many decimals as it takes to see on which side of `mark` it lies (at most 9)."""
    for decimals in range(digits, 10):
        text = plain(value, decimals)
        seen = float(text)
        if value == mark or (seen < mark, seen > mark) == (value < mark, value > mark):
            return text
    return repr(value)


def interval(low: float | None, high: float | None, digits: int = 3) -> str:
    """Write an interval, or nothing where there is none."""
    if low is None or high is None:
        return ""
    return f"[{plain(low, digits)}, {plain(high, digits)}]"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Write `1 episode`, `8,447 frames`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(words: Sequence[str], last: str = "and") -> str:
    """Join words as a sentence does: a, b and c."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def shorten(text: str, length: int = 12) -> str:
    """The first characters of a hash."""
    return text[:length]


def clipped(text: str, length: int = 22) -> str:
    """A name on one line of at most `length` characters; a longer one ends in an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def duration(seconds: float) -> str:
    """Write a duration: 42 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def flat(value: object) -> str:
    """Write a provenance value (a number, a text, a list, a mapping) on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {flat(item)}" for key, item in value.items())
    if isinstance(value, str) or value is None:
        return value or ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Sequence):
        return ", ".join(flat(item) for item in value)
    return str(value)


def behind(n_rows: int, n_episodes: int) -> str:
    """Write the n behind a number; nothing where it is not known."""
    parts = [count(n_rows, "row")] if n_rows else []
    return " of ".join([*parts, count(n_episodes, "episode")] if n_episodes else parts)
