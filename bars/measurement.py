"""Measurements and the paths under which bars name them: `ENCODER[/DATA].METRIC[.PART]`."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bars.errors import StudyError

NAME_PATTERN = r"[A-Za-z][A-Za-z0-9_]*"
ENCODER_PATTERN = rf"{NAME_PATTERN}(?:@[A-Za-z0-9][A-Za-z0-9_-]*)?"  # W1@cls: another latent of W1
_SEGMENTS = r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*"
PATH_PATTERN = rf"{ENCODER_PATTERN}(?:/{NAME_PATTERN})?\.{NAME_PATTERN}(?:\.{_SEGMENTS})?"
_PATH = re.compile(
    rf"(?P<encoder>{ENCODER_PATTERN})(?:/(?P<data>{NAME_PATTERN}))?"
    rf"\.(?P<metric>{NAME_PATTERN})(?:\.(?P<part>{_SEGMENTS}))?"
)

# What a bar may name. A metric that nobody measures would read "not tested here" for ever, so a bar with
# an unknown one is refused when the study is loaded: a new metric of the probe gets its line here.
METRICS: Mapping[str, str] = {
    "r2": "R2 of the ridge probe: mean, weighted, or a joint's name",
    "anisotropy": "max - min of per-joint R2; its parts are its null and its contrast",
    "null": "R2 after targets were exchanged between episodes: mean, or a joint's name",
    "shift_null": "R2 after targets were shifted within their episodes: mean, or a joint's name",
    "selectivity": "R2 minus that of the control task: mean, or a joint's name",
    "refit": "r2 and anisotropy with intervals that draw training episodes too: mean, anisotropy",
    "g1b": "ranking of action chunks: top1, mrr, action_only, oracle, agreement, easy.top1, own.top1, ...",
    "mlp": "R2 of an MLP probe: mean, or a joint's name",
    "angle": "circular R2 of a joint whose log wraps: the joint's name",
    "reverse": "R2 of the latents from the joints: mean, weighted",
    "procrustes": "what insisting on a rotation leaves: residual",
    "map": "the linear map from joints to latents: rcond, orthogonality_error",
    "mcc": "mean correlation with the joints: rotated",
    "width": "dimensions in use: rankme, participation",
    "planning": "joint paths of straight latent lines over the chord: ratio, above_oracle",
}
NEEDS_PART = tuple(metric for metric in METRICS if metric != "anisotropy")
USUAL_PART = {
    "g1b": "top1",
    "procrustes": "residual",
    "map": "rcond",
    "mcc": "rotated",
    "width": "rankme",
    "planning": "ratio",
}
R2_MEANS = ("mean", "weighted")


@dataclass(frozen=True)
class MeasurementPath:
    """A parsed path. `data` is None for the study's first data entry."""

    encoder: str
    data: str | None
    metric: str
    part: str | None

    @classmethod
    def parse(cls, text: str) -> MeasurementPath:
        match = _PATH.fullmatch(text)
        if match is None:
            raise StudyError(
                f"measurement path {text!r}",
                "is not ENCODER[/DATA].METRIC[.PART]",
                "write it like W1.r2.mean, W1.r2.wrist_flex, W1.anisotropy or W1/walk.r2.mean",
            )
        return cls(match["encoder"], match["data"], match["metric"], match["part"])

    @property
    def source(self) -> str:
        """`ENCODER` or `ENCODER/DATA`."""
        return self.encoder if self.data is None else f"{self.encoder}/{self.data}"

    def __str__(self) -> str:
        return f"{self.source}.{self.metric}" + (f".{self.part}" if self.part is not None else "")


def difference_path(first: str, second: str) -> str:
    """The path under which the paired difference of two measurements is stored."""
    return f"{first} - {second}"


def part_names(joints: Iterable[str]) -> dict[str, str]:
    """Joint name -> the part that names it in a path (`shoulder pan` -> `shoulder_pan`).

    Letters, digits, `_` and inner dots stay; everything else becomes `_`; a joint that is called like a
    mean of joints gets a `_` behind it. StudyError where two joints would share a part.
    """
    parts: dict[str, str] = {}
    taken: dict[str, str] = {}
    for joint in joints:
        part = re.sub(r"[^A-Za-z0-9_.]", "_", joint)
        part = ".".join(segment or "_" for segment in part.split("."))
        if part in R2_MEANS:
            part += "_"
        if part in taken:
            raise StudyError(
                f"joints {taken[part]!r} and {joint!r}",
                f"would both be measured as {part!r}",
                "rename one of them in recording.yaml",
            )
        parts[joint], taken[part] = part, joint
    return parts


@dataclass(frozen=True)
class Measurement:
    """A number with what it stands on.

    Parameters
    ----------
    path : under which bars name it; a paired difference is `"A - B"`.
    value : None where there is no number.
    unit : `""` for R2 and shares, `rad`, ...
    n_rows, n_episodes : evaluation rows and evaluation episodes behind it.
    low, high : the interval at `level`, None where there is none.
    method : how the interval was made, in words.
    testable : False where the data cannot answer (a joint that hardly moves); `note` says why.
    """

    path: str
    value: float | None
    unit: str = ""
    n_rows: int = 0
    n_episodes: int = 0
    low: float | None = None
    high: float | None = None
    level: float = 0.95
    method: str = ""
    testable: bool = True
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values in declared order; numbers that are not finite become None."""
        record = dataclasses.asdict(self)
        for name in ("value", "low", "high", "level"):
            record[name] = finite(record[name])
        for name in ("n_rows", "n_episodes"):
            record[name] = int(record[name])
        record["testable"] = bool(record["testable"])
        return record

    @classmethod
    def from_json(cls, record: object, where: object = "measurement") -> Measurement:
        """The inverse of `to_json`; StudyError on a missing, unknown or wrongly typed field."""
        if not isinstance(record, dict):
            raise StudyError(where, f"is not a measurement but {type(record).__name__}")
        expected = {field.name for field in dataclasses.fields(cls)}
        if set(record) != expected:
            odd = sorted(set(record) ^ expected)[0]
            raise StudyError(where, f"has the unknown field {odd!r}" if odd in record else f"lacks {odd!r}")
        for name, value in record.items():
            if not _FIELD_TYPES[name](value):
                raise StudyError(where, f"field {name!r} holds {value!r}")
        floats = {name: _float(record[name]) for name in ("value", "low", "high")}
        return cls(**{**record, **floats, "level": float(record["level"])})


def finite(value: Any) -> float | None:
    """A plain float, or None where there is no finite number."""
    return float(value) if value is not None and math.isfinite(value) else None


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_FIELD_TYPES = {
    **dict.fromkeys(("path", "unit", "method", "note"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("value", "low", "high"), lambda value: value is None or _is_number(value)),
    **dict.fromkeys(("n_rows", "n_episodes"), _is_count),
    "level": _is_number,
    "testable": lambda value: isinstance(value, bool),
}
