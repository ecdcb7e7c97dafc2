"""One finding of a check, and how lists of findings are put into words."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

State = Literal["pass", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One finding. `evidence` holds the numbers, and under `episodes` the episodes they come from.

    `picture` is RGB uint8 (h, w, 3), at most about 640 pixels wide, where a picture shows it better.
    """

    name: str
    state: State
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)
    remedy: str = ""
    picture: np.ndarray | None = field(default=None, compare=False, repr=False)


def and_more(found: Sized) -> str:
    """How many findings there are beside the one shown."""
    return f" (and {len(found) - 1} more)" if len(found) > 1 else ""


def short(numbers: Sequence[int]) -> str:
    """The first few of many numbers."""
    return ", ".join(map(str, numbers[:8])) + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")
