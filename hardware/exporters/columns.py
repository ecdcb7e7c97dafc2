"""From a recording's radians to the numbers that LeRobot (0.4.4 and later) logs for an SO-101.

LeRobot counts a joint's degrees from the middle of its calibrated range, and a gripper from 0 (closed) to 100
(open) of its travel. So

    calibrated angle = model angle - middle of the model's range     recordings in the model's frame
    degrees          = calibrated angle * 180 / pi
    gripper          = 0..100 by its calibration; without one by the model's range; else degrees as well

Degrees are true ones; LeRobot's own are 4096/4095 of them (it divides by the resolution less one).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardware.calibration import Calibration, LegacyMotor, Motor, is_gripper
from hardware.errors import InputError
from hardware.importers.units import match_motors
from hardware.schema import Joint, RecordingInfo
from hardware.so101 import JOINT_NAMES, MIDDLE_RAD

DEGREES = "degrees from the middle of the calibrated range"
PERCENT = "0..100 of the travel, 0 is closed"
AS_RECORDED = "as in the recording, not converted"


@dataclass(frozen=True)
class Column:
    """One number of `observation.state` or `action`: LeRobot's name, its unit in words, and the conversion
    of (n,) recorded values.
    """

    name: str
    unit: str
    convert: Callable[[np.ndarray], np.ndarray]


def state_columns(info: RecordingInfo) -> list[Column]:
    """A column a joint, in the recording's order; InputError where a calibration does not fit the joints."""
    motors = _motors(info)
    return [_column(joint, motors.get(joint.name), in_model_frame(info)) for joint in info.joints]


def action_columns(info: RecordingInfo, state: list[Column]) -> list[Column]:
    """A column an action, converted like the joint of its name, else unchanged; [] without actions."""
    if info.actions is None:
        return []
    by_name = {joint.name: (joint.unit, column) for joint, column in zip(info.joints, state)}
    columns = []
    for name in info.actions.names:
        unit, column = by_name.get(name, ("", None))
        alike = column is not None and unit == info.actions.unit
        columns.append(column if column and alike else Column(name, AS_RECORDED, _unchanged))
    return columns


def in_model_frame(info: RecordingInfo) -> bool:
    """Whether the radians are those of the SO-101's published model, and not counted from the middle of a
    calibrated range as imported ones are.
    """
    return info.motion_settings.get("frame") == "model" or info.robot == "sim-so101"


def _column(joint: Joint, motor: Motor | LegacyMotor | None, model_frame: bool) -> Column:
    if joint.unit == "percent":
        return Column(_exported(joint.name), PERCENT, _unchanged)
    if joint.unit == "source":
        return Column(joint.name, AS_RECORDED, _unchanged)
    if isinstance(motor, LegacyMotor):
        model_frame = False  # a legacy calibration knows nothing of the model: its zero is its own
    middle = _middle(joint) if model_frame else 0.0
    if motor is not None:
        unit = PERCENT if motor.is_percent("degrees") else DEGREES
        return Column(
            _exported(joint.name), unit, lambda values: motor.from_radians(values - middle, "degrees")
        )
    if model_frame and is_gripper(joint.name) and joint.lower is not None and joint.upper is not None:
        lower, travel = joint.lower, joint.upper - joint.lower
        return Column(_exported(joint.name), PERCENT, lambda values: (values - lower) / travel * 100)
    unit = DEGREES if model_frame else "degrees from the recording's zero"
    return Column(_exported(joint.name), unit, lambda values: np.rad2deg(values - middle))


def _middle(joint: Joint) -> float:
    try:
        return float(MIDDLE_RAD[JOINT_NAMES.index(joint.name)])
    except ValueError:
        raise InputError(
            f"joint {joint.name!r}",
            "is recorded in the frame of the SO-101's model, which has no such joint",
            f"its joints: {', '.join(JOINT_NAMES)}",
        ) from None


def _exported(name: str) -> str:
    return name if name.endswith(".pos") else f"{name}.pos"


def _unchanged(values: np.ndarray) -> np.ndarray:
    return values


def _motors(info: RecordingInfo) -> dict[str, Motor | LegacyMotor]:
    """{joint: motor} by the calibration that the recording keeps: one arm's, or one by prefix (imports)."""
    kept: Mapping[str, Any] = info.calibration or {}
    by_prefix = {"all": kept} if "joints" in kept else kept
    calibrations = {
        "" if prefix == "all" else prefix: _calibration(prefix, entry) for prefix, entry in by_prefix.items()
    }
    return match_motors(info.joint_names, calibrations) if calibrations else {}


def _calibration(prefix: str, entry: Any) -> Calibration:
    try:
        kind = {"new": Motor, "legacy": LegacyMotor}[entry["form"]]
        motors = tuple(kind(name=name, **fields) for name, fields in entry["joints"].items())
        return Calibration(str(entry["file"]), entry["form"], motors, str(entry["sha256"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            "recording.yaml, calibration",
            f"{prefix}: is not what jointprobe writes ({type(error).__name__}: {error})",
            "restore recording.yaml from a copy",
        ) from None
