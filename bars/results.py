"""results.json: the measurements of a study with what they stand on. This is its one reader and writer."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)

from bars.canonical import read_json
from bars.errors import StudyError
from bars.files import read_bytes, write_whole
from bars.measurement import Measurement

RESULTS_FILE = "results.json"
RESULTS_SCHEMA = "jointprobe-results/1"
MAX_BYTES = 256 << 20


class _Facts(BaseModel):
    """Facts in plain JSON; more may stand beside the declared ones."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        return plain_json(value) if isinstance(value, Mapping) else value


class EncoderResult(_Facts):
    """What an encoder was. Further facts may stand beside these.

    Parameters
    ----------
    width : of its latents.
    alpha : data entry -> the ridge penalty that cross-validation chose there.
    unavailable : why it could not be run here; empty where it was.
    """

    kind: str
    width: int | None = None
    fingerprint: str | None = None
    role: str = "model"
    about: str = ""
    alpha: dict[str, float | None] = {}
    unavailable: str = ""


class DataResult(_Facts):
    """What a data entry gave. Further facts may stand beside these.

    Parameters
    ----------
    joints : names of the probed joints, in the recording's order.
    untestable : joint -> its evaluation std in rad, where under the study's `min_std`.
    evaluate_std : joint -> std in rad over the evaluation rows.
    ceiling : joint -> the R2 that backlash alone would leave.
    """

    recording: str = ""
    train_rows: int = 0
    evaluate_rows: int = 0
    train_episodes: int = 0
    evaluate_episodes: int = 0
    joints: list[str] = []
    untestable: dict[str, float | None] = {}
    evaluate_std: dict[str, float | None] = {}
    ceiling: dict[str, float | None] = {}


class Results(BaseModel):
    """Everything that a card is written from.

    Parameters
    ----------
    study, study_sha256, ledger_head : which study, as it was when probed; the ledger's head by then.
    exploratory : the bars were not frozen.
    made_at : UTC, ISO 8601.
    measurements : every number, controls and paired differences included.
    checks : integrity checks, each {name, state, message, ...}.
    tables : name -> rows ready to print (the 2 x 2 table of walk against demos, ...).
    provenance : software, host, commands, durations.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, arbitrary_types_allowed=True
    )

    schema_: Literal["jointprobe-results/1"] = Field(default="jointprobe-results/1", alias="schema")
    study: str
    study_sha256: str
    ledger_head: str
    exploratory: bool
    made_at: str = ""
    measurements: list[Measurement] = []
    encoders: dict[str, EncoderResult] = {}
    data: dict[str, DataResult] = {}
    checks: list[dict[str, Any]] = []
    tables: dict[str, Any] = {}
    provenance: dict[str, Any] = {}

    @field_validator("measurements", mode="before")
    @classmethod
    def _read_measurements(cls, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return value
        read = [
            m if isinstance(m, Measurement) else Measurement.from_json(m, f"measurements[{i}]")
            for i, m in enumerate(value)
        ]
        paths = [measurement.path for measurement in read]
        if len(set(paths)) < len(paths):
            twice = next(path for path in paths if paths.count(path) > 1)
            raise ValueError(f"{twice} is measured twice")
        return read

    @field_serializer("measurements")
    def _write_measurements(self, value: list[Measurement]) -> list[dict[str, Any]]:
        return [measurement.to_json() for measurement in value]

    @property
    def by_path(self) -> dict[str, Measurement]:
        return {measurement.path: measurement for measurement in self.measurements}

    @property
    def unavailable(self) -> dict[str, str]:
        """Encoder -> why it could not be run here, as `judge_study` takes it."""
        return {name: encoder.unavailable for name, encoder in self.encoders.items() if encoder.unavailable}

    def to_bytes(self) -> bytes:
        """Indented UTF-8 JSON, keys in declared order, entries in the study's order, no NaN."""
        plain = plain_json(self.model_dump(by_alias=True))
        return (json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")

    def save(self, path: Path | str) -> str:
        """Write results.json whole or not at all; returns the SHA-256 of its bytes.

        Parameters
        ----------
        path : a study's folder or the file itself.
        """
        content = self.to_bytes()
        write_whole(results_file(path), content)
        return hashlib.sha256(content).hexdigest()

    @classmethod
    def load(cls, path: Path | str) -> Results:
        """Read results.json; StudyError names the field that is wrong."""
        path = results_file(path)
        record = read_json(read_bytes(path, MAX_BYTES, "jointprobe probe STUDY writes it"), path)
        if not isinstance(record, dict) or record.get("schema") != RESULTS_SCHEMA:
            found = record.get("schema") if isinstance(record, dict) else None
            raise StudyError(
                path, f"has the schema {found!r}, not {RESULTS_SCHEMA}", "probe again with this version"
            )
        try:
            return cls.model_validate(record)
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in detail["loc"])
            raise StudyError(path, f"{field}: {detail['msg'].removeprefix('Value error, ')}") from None


def results_file(path: Path | str) -> Path:
    """The results.json of a study folder; a file is taken as it is."""
    path = Path(path)
    return path / RESULTS_FILE if path.is_dir() else path


def plain_json(value: Any) -> Any:
    """numpy scalars and arrays as plain numbers and lists; numbers that are not finite as None."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    if value is None or isinstance(value, (str, bool, int)):
        return value
    raise StudyError("results.json", f"{value!r} is of type {type(value).__name__}, which JSON cannot carry")
