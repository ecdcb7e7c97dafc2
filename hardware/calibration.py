"""LeRobot calibration files, and what turns a servo's numbers into radians.

Two forms are in the field, both JSON.

*New form* (LeRobot from mid 2025), one entry a joint: `id`, `drive_mode`, `homing_offset`, `range_min`,
`range_max`. The homing offset is applied inside the servo, so logged ticks are already homed. With mid =
(range_min + range_max) / 2:

    ticks        rad = (ticks - mid) * 2 pi / 4096                      a turn of the STS3215 is 4096 ticks
    normalized   ticks = range_min + (+-n + 100) / 200 * (range_max - range_min)   minus where drive_mode is 1
                 a gripper is 0..100 instead: ticks = range_min + p / 100 * (range_max - range_min), 100 - p
                 where drive_mode is 1
    degrees      rad = degrees * pi / 180; a gripper is 0..100 as above

LeRobot makes its degrees as (ticks - mid) * 360 / 4095 (`MotorsBus._normalize` divides by the resolution
less one), so they are 0.024 % larger than the angle turned (0.04 degrees at 180). They are taken at their
word, with pi / 180. `drive_mode` flips normalised values of Feetech servos and never degrees or ticks, hence
never the radians either. (LeRobot's Dynamixel bus writes the field and does not apply it: normalised sets of
such arms with drive_mode 1 come out mirrored.)

*Legacy form*, lists over motors: `homing_offset`, `drive_mode`, `start_pos`, `end_pos`, `calib_mode`,
`motor_names`. Here the homing offset is applied in software, so it knows no register's bounds
(`FeetechMotorsBus.apply_calibration`, LeRobot 0.1):

    DEGREE motors   degrees = (+-ticks + homing_offset) * 360 / 4096   minus where drive_mode is 1
    LINEAR motors   percent = (ticks - start_pos) / (end_pos - start_pos) * 100
                    rad = (ticks - (start_pos + end_pos) / 2) * 2 pi / 4096, zero in the middle
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hardware.errors import InputError
from hardware.servo_table import RADIANS_PER_TICK, TICKS_PER_TURN

MAX_HOMING_OFFSET = 2047  # the Homing_Offset register: sign and 11 bits
MAX_CALIBRATION_BYTES = 1 << 20

RawUnit = Literal["ticks", "degrees", "normalized", "radians"]
RAW_UNITS: tuple[str, ...] = get_args(RawUnit)


def is_gripper(name: str) -> bool:
    """Whether a joint of this name is one that LeRobot logs as 0..100 of its travel."""
    return "gripper" in re.split(r"[._\-]", name.lower())


@dataclass(frozen=True)
class Motor:
    """One servo of the new form; the formulas are in the module's docstring. Ranges are ticks, inclusive."""

    name: str
    id: int
    drive_mode: int
    homing_offset: int
    range_min: int
    range_max: int

    @property
    def middle(self) -> float:
        """Ticks at which the joint reads 0 rad."""
        return (self.range_min + self.range_max) / 2

    @property
    def limits_rad(self) -> tuple[float, float] | None:
        """Ends of the calibrated range, in rad."""
        half = (self.range_max - self.range_min) / 2 * RADIANS_PER_TICK
        return (-half, half)

    def is_percent(self, unit: str) -> bool:
        """Whether values declared as `unit` are 0..100 of this motor's travel."""
        return unit in ("degrees", "normalized") and is_gripper(self.name)

    def to_radians(self, values: np.ndarray, unit: RawUnit) -> np.ndarray:
        """Radians, float64 (n,), of `values` (n,) in `unit`."""
        values = np.asarray(values, np.float64)
        if unit == "radians":
            return values
        if unit == "degrees" and not self.is_percent(unit):
            return np.deg2rad(values)
        return (self._to_ticks(values, unit) - self.middle) * RADIANS_PER_TICK

    def from_radians(self, radians: np.ndarray, unit: RawUnit) -> np.ndarray:
        """The inverse of `to_radians`, float64 (n,); ticks are not rounded and nothing is clipped."""
        radians = np.asarray(radians, np.float64)
        if unit == "radians":
            return radians
        if unit == "degrees" and not self.is_percent(unit):
            return np.rad2deg(radians)
        ticks = radians / RADIANS_PER_TICK + self.middle
        if unit == "ticks":
            return ticks
        share = (ticks - self.range_min) / (self.range_max - self.range_min)
        if self.is_percent(unit):
            return 100 * (1 - share) if self.drive_mode else 100 * share
        return 100 - 200 * share if self.drive_mode else 200 * share - 100

    def _to_ticks(self, values: np.ndarray, unit: RawUnit) -> np.ndarray:
        if unit == "ticks":
            return values
        if self.is_percent(unit):
            share = (100 - values if self.drive_mode else values) / 100
        else:
            share = ((-values if self.drive_mode else values) + 100) / 200
        return self.range_min + share * (self.range_max - self.range_min)


@dataclass(frozen=True)
class LegacyMotor:
    """One motor of the legacy form; the formulas are in the module's docstring."""

    name: str
    id: int
    drive_mode: int
    homing_offset: int
    start_pos: int
    end_pos: int
    calib_mode: str

    @property
    def limits_rad(self) -> tuple[float, float] | None:
        """Ends of a LINEAR motor's travel; the legacy form does not hold those of a DEGREE motor."""
        if self.calib_mode != "LINEAR":
            return None
        half = abs(self.end_pos - self.start_pos) / 2 * RADIANS_PER_TICK
        return (-half, half)

    def is_percent(self, unit: str) -> bool:
        """Whether values declared as `unit` are 0..100 of this motor's travel."""
        return unit == "degrees" and self.calib_mode == "LINEAR"

    def to_radians(self, values: np.ndarray, unit: RawUnit) -> np.ndarray:
        """Radians, float64 (n,), of `values` (n,) in `unit`."""
        values = np.asarray(values, np.float64)
        self._require_known(unit)
        if unit == "radians":
            return values
        if self.calib_mode == "LINEAR":
            travel = self.end_pos - self.start_pos
            ticks = values if unit == "ticks" else self.start_pos + values / 100 * travel
            return (ticks - (self.start_pos + self.end_pos) / 2) * RADIANS_PER_TICK
        if unit == "degrees":
            return np.deg2rad(values)
        return ((-values if self.drive_mode else values) + self.homing_offset) * RADIANS_PER_TICK

    def from_radians(self, radians: np.ndarray, unit: RawUnit) -> np.ndarray:
        """The inverse of `to_radians`, float64 (n,); ticks are not rounded and nothing is clipped."""
        radians = np.asarray(radians, np.float64)
        self._require_known(unit)
        if unit == "radians":
            return radians
        if self.calib_mode == "LINEAR":
            ticks = radians / RADIANS_PER_TICK + (self.start_pos + self.end_pos) / 2
            return (
                ticks if unit == "ticks" else (ticks - self.start_pos) / (self.end_pos - self.start_pos) * 100
            )
        if unit == "degrees":
            return np.rad2deg(radians)
        ticks = radians / RADIANS_PER_TICK - self.homing_offset
        return -ticks if self.drive_mode else ticks

    def _require_known(self, unit: str) -> None:
        if unit == "normalized":
            raise InputError(
                f"joint {self.name}",
                "a legacy calibration holds no range, so -100..100 cannot be turned into an angle",
                "legacy LeRobot logged degrees, and 0..100 for LINEAR motors: that is --unit degrees",
            )


@dataclass(frozen=True)
class Calibration:
    """The motors of one arm, by rising servo id. `form` is `new` or `legacy`, `sha256` that of the file."""

    where: str
    form: Literal["new", "legacy"]
    motors: tuple[Motor | LegacyMotor, ...]
    sha256: str

    @property
    def names(self) -> list[str]:
        """Names of the motors by rising servo id."""
        return [motor.name for motor in self.motors]

    def motor(self, name: str) -> Motor | LegacyMotor:
        """The motor called `name`; InputError lists the ones there are."""
        for motor in self.motors:
            if motor.name == name:
                return motor
        raise InputError(self.where, f"holds no joint {name!r}", f"its joints: {', '.join(self.names)}")

    def to_radians(self, values: np.ndarray, unit: RawUnit, names: list[str] | None = None) -> np.ndarray:
        """Radians, float64 (n, J), of `values` (n, J); column j is joint `names[j]` (None: by rising servo
        id).
        """
        return self._each("to_radians", values, unit, names)

    def from_radians(self, radians: np.ndarray, unit: RawUnit, names: list[str] | None = None) -> np.ndarray:
        """The inverse of `to_radians`, float64 (n, J)."""
        return self._each("from_radians", radians, unit, names)

    def describe(self) -> dict[str, Any]:
        """What a recording keeps of the calibration that made its radians."""
        joints = {
            motor.name: {key: value for key, value in asdict(motor).items() if key != "name"}
            for motor in self.motors
        }
        return {"file": Path(self.where).name, "sha256": self.sha256, "form": self.form, "joints": joints}

    def _each(self, method: str, values: np.ndarray, unit: RawUnit, names: list[str] | None) -> np.ndarray:
        values = np.asarray(values, np.float64)
        chosen = [self.motor(name) for name in (self.names if names is None else names)]
        if values.ndim != 2 or values.shape[1] != len(chosen):
            raise InputError(
                self.where,
                f"values of shape {values.shape} for joints {', '.join(motor.name for motor in chosen)}",
            )
        columns = [getattr(motor, method)(values[:, column], unit) for column, motor in enumerate(chosen)]
        return np.stack(columns, axis=1)


# -- reading -----------------------------------------------------------------------------------------------


class _MotorFields(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: int = Field(ge=0, le=253)
    drive_mode: int = Field(ge=0, le=1)
    homing_offset: int
    range_min: int
    range_max: int


class _LegacyFields(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    homing_offset: list[int] = Field(min_length=1, max_length=64)
    drive_mode: list[int]
    start_pos: list[int]
    end_pos: list[int]
    calib_mode: list[Literal["DEGREE", "LINEAR"]]
    motor_names: list[str]

    @model_validator(mode="after")
    def _columns_fit(self) -> _LegacyFields:
        lengths = {name: len(getattr(self, name)) for name in type(self).model_fields}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"the lists differ in length: {', '.join(f'{k} {n}' for k, n in lengths.items())}"
            )
        return self


def load_calibration(path: str | Path) -> Calibration:
    """Read a LeRobot calibration file of either form.

    Raises
    ------
    InputError
        naming the file, the joint and the value: not JSON, neither form, an unknown or missing field, a
        homing offset that the servo's register cannot hold, a range outside 0..4095 or empty, a servo id or
        a name used twice.
    """
    path = Path(path)
    data, sha256 = _read_json(path)
    if isinstance(data, dict) and "motor_names" in data:
        return Calibration(str(path), "legacy", _legacy_motors(path, data), sha256)
    if isinstance(data, dict) and data and all(isinstance(entry, dict) for entry in data.values()):
        return Calibration(str(path), "new", _new_motors(path, data), sha256)
    raise InputError(
        path,
        "is no LeRobot calibration",
        "expected an entry a joint with id, drive_mode, homing_offset, range_min, range_max, "
        "or the legacy lists with motor_names",
    )


def _new_motors(path: Path, data: dict[str, Any]) -> tuple[Motor, ...]:
    motors = []
    for name, entry in data.items():
        try:
            motors.append(Motor(name, **_MotorFields.model_validate(entry).model_dump()))
        except ValidationError as error:
            raise _field_error(f"{path}, joint {name}", error, list(_MotorFields.model_fields)) from None
    beyond = [motor for motor in motors if abs(motor.homing_offset) > MAX_HOMING_OFFSET]
    if beyond:
        others = "".join(f", as is {motor.name} {motor.homing_offset}" for motor in beyond[1:])
        raise InputError(
            f"{path}, joint {beyond[0].name}",
            f"homing_offset {beyond[0].homing_offset} is beyond the servo's register "
            f"(+-{MAX_HOMING_OFFSET}){others}",
            "calibrate again with the joint nearer the middle of its travel",
        )
    for motor in motors:
        if not (0 <= motor.range_min < motor.range_max < TICKS_PER_TURN):
            raise InputError(
                f"{path}, joint {motor.name}",
                f"{motor.range_min} to {motor.range_max} is no range of ticks within 0..4095",
                "calibrate again; a range in degrees or in another unit is not a LeRobot servo calibration",
            )
    return tuple(sorted(_with_unique_ids(path, motors), key=lambda motor: motor.id))


def _with_unique_ids(path: Path, motors: list[Motor]) -> list[Motor]:
    seen: dict[int, str] = {}
    for motor in motors:
        if motor.id in seen:
            raise InputError(
                path, f"joints {seen[motor.id]} and {motor.name} share servo id {motor.id}", "correct the ids"
            )
        seen[motor.id] = motor.name
    return motors


def _legacy_motors(path: Path, data: dict[str, Any]) -> tuple[LegacyMotor, ...]:
    try:
        fields = _LegacyFields.model_validate(data)
    except ValidationError as error:
        raise _field_error(str(path), error, list(_LegacyFields.model_fields)) from None
    motors = []
    for column, name in enumerate(fields.motor_names):
        motor = LegacyMotor(
            name,
            column + 1,
            fields.drive_mode[column],
            fields.homing_offset[column],
            fields.start_pos[column],
            fields.end_pos[column],
            fields.calib_mode[column],
        )
        where = f"{path}, joint {name}"
        if motor.drive_mode not in (0, 1):
            raise InputError(where, f"drive_mode {motor.drive_mode} is neither 0 nor 1", "correct the file")
        for field in ("homing_offset", "start_pos", "end_pos"):
            if abs(getattr(motor, field)) > 1 << 20:
                raise InputError(
                    where, f"{field} {getattr(motor, field)} is no number of ticks", "calibrate again"
                )
        if motor.calib_mode == "LINEAR" and motor.start_pos == motor.end_pos:
            raise InputError(
                where, f"start_pos and end_pos are both {motor.start_pos}: no travel", "calibrate again"
            )
        motors.append(motor)
    if len(set(fields.motor_names)) < len(motors):
        raise InputError(path, f"names a motor twice: {', '.join(fields.motor_names)}", "correct motor_names")
    return tuple(motors)


def _read_json(path: Path) -> tuple[Any, str]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:
                raise ValueError(f"the key {key!r} appears twice")
        return dict(pairs)

    try:
        if path.stat().st_size > MAX_CALIBRATION_BYTES:
            raise InputError(path, f"is {path.stat().st_size:,} bytes: too large for a calibration")
        content = path.read_bytes()
        return json.loads(content, object_pairs_hook=unique), hashlib.sha256(content).hexdigest()
    except OSError as error:
        raise InputError(
            path, f"cannot be read: {error.strerror}", "check the path of the calibration"
        ) from None
    except RecursionError:
        raise InputError(path, "is nested too deeply for a calibration") from None
    except (
        ValueError
    ) as error:  # JSON and UTF-8 errors are ValueErrors; an InputError raised above passes unchanged
        if isinstance(error, InputError):
            raise
        raise InputError(path, f"is not valid JSON: {error}", "give a LeRobot calibration file") from None


def _field_error(where: str, error: ValidationError, known: list[str]) -> InputError:
    """One line for what pydantic found: unknown fields first, since a misspelt field is also a missing
    one.
    """
    found = sorted(error.errors(), key=lambda entry: entry["type"] != "extra_forbidden")
    first = found[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(field, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return InputError(
            where, f"unknown field {field!r}", f"{hint}a LeRobot calibration holds {', '.join(known)}"
        )
    if first["type"] == "missing":
        return InputError(
            where, f"field {field!r} is missing", f"a LeRobot calibration holds {', '.join(known)}"
        )
    value = "" if isinstance(first["input"], (dict, list)) else f" (found {str(first['input'])[:60]!r})"
    return InputError(
        where, f"{field + ': ' if field else ''}{first['msg']}{value}", "calibrate again or correct the file"
    )
