"""One finding of a check, and how lists of findings are put into words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

State = Literal["pass", "warn", "fail", "not testable"]


@dataclass(frozen=True)
class Check:
    """One finding. `evidence` holds the numbers, and under `episodes` the episodes they come from.

    `state` is "not testable" where there was nothing to look at, or too little to tell: that is no pass, and
    no alarm either. `picture` is RGB uint8 (h, w, 3), at most about 640 pixels wide, where a picture shows it
    better.
    """

    name: str
    state: State
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)
    remedy: str = ""
    picture: np.ndarray | None = field(default=None, compare=False, repr=False)

    @property
    def alarm(self) -> bool:
        """Whether it warns or fails."""
        return self.state in ("warn", "fail")


def not_testable(name: str, why: str, evidence: dict[str, Any] | None = None, remedy: str = "") -> Check:
    """A check that had nothing to look at, or too little to tell, and says why."""
    return Check(name, "not testable", why, evidence or {}, remedy)


def readable(name: str, unreadable: Mapping[int, str], sound: str, remedy: str) -> Check:
    """What a check says of episodes whose rows cannot be read: the first of them, and how many more."""
    if not unreadable:
        return Check(name, "pass", sound)
    first = next(iter(unreadable))
    message = f"episode {first}: {unreadable[first]}{and_more(unreadable)}"
    return Check(name, "fail", message, {"episodes": list(unreadable)}, remedy)


def and_more(found: Sized) -> str:
    """How many findings there are beside the one shown."""
    return f" (and {len(found) - 1} more)" if len(found) > 1 else ""


def counted(number: int, noun: str) -> str:
    """`1 row`, `12 rows`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def short(numbers: Sequence[int]) -> str:
    """Rising numbers in few words: `0, 2, 7-24`; the first eight such parts of many."""
    parts: list[tuple[int, int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    words: list[str] = []
    for first, last in parts:
        words += [f"{first}-{last}"] if last > first + 1 else [str(n) for n in range(first, last + 1)]
    return ", ".join(words[:8]) + (f" and {len(words) - 8} more" if len(words) > 8 else "")


def in_words(episodes: Sequence[int]) -> str:
    """`episode 3`, `episodes 0, 7-24`."""
    return f"{'episode' if len(episodes) == 1 else 'episodes'} {short(episodes)}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """The first few of many names."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
