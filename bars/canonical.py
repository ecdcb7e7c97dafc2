"""Canonical JSON, the bytes that are hashed, and the strict reader that goes with it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from bars.errors import StudyError


def canonical_json(value: object) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces; equal values give equal bytes on every machine.

    Floats are written in the shortest form that reads back to the same bits; other number types, which
    would not, are refused, and so are NaN, infinities, keys that are not text, lone surrogates and types
    that JSON lacks. The StudyError names where.
    """
    try:
        _check(value, "value")
    except RecursionError:
        raise StudyError("value", "is nested too deeply for JSON") from None
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def read_json(text: str | bytes, where: object) -> Any:
    """Parse JSON as strictly as it was written: no NaN, no key twice in one object, valid UTF-8."""
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        return json.loads(
            decoded, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except RecursionError:
        raise StudyError(where, "is nested too deeply to be JSON of ours") from None
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors too
        raise StudyError(where, f"is not valid JSON: {error}") from None


def _check(value: object, at: str) -> None:
    if value is None or type(value) in (bool, int):
        return
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise StudyError(at, "holds a lone surrogate, which UTF-8 cannot carry") from None
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise StudyError(at, f"is {value}, which JSON cannot carry", "store null instead")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise StudyError(at, f"has the key {key!r}, which is not text")
            _check(key, f"{at} (a key)")
            _check(item, f"{at}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check(item, f"{at}[{index}]")
    else:
        raise StudyError(at, f"is of type {type(value).__name__}, which JSON cannot carry")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands twice in one object")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large for a float")
    return number
