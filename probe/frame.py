"""Rows of a result as a pandas frame, for those who have pandas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hardware.errors import InputError

if TYPE_CHECKING:
    import pandas


def to_frame(rows: Sequence[dict[str, Any]]) -> pandas.DataFrame:
    """Rows as a pandas frame; InputError where pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise InputError("to_frame", "pandas is not installed", "pip install pandas, or use rows()") from None
    return pandas.DataFrame(rows)
