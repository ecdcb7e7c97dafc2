"""From a source's numbers to radians: only by a unit that was said, never by one that was guessed.

No LeRobot set says in what unit its joints are. A declaration is applied joint by joint, with a calibration
where the unit needs one, and is refused where the values cannot be what it says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hardware.calibration import (
    RAW_UNITS,
    TICKS_PER_TURN,
    Calibration,
    LegacyMotor,
    Motor,
    RawUnit,
    is_gripper,
)
from hardware.errors import InputError
from hardware.schema import Joint, Unit

NO_ANGLE = (".vel", ".velocity", ".effort", ".torque", ".load", ".current", ".temperature", ".voltage")
BOUNDS = {
    "ticks": (-4096.0, 8192.0),
    "degrees": (-720.0, 720.0),
    "normalized": (-101.0, 101.0),
    "radians": (-40 * np.pi, 40 * np.pi),  # Reacher's shoulder, without end stops: 103 in 20 s of full torque
}
TWO_TURNS_RAD = 4 * np.pi  # most joints have end stops, within this; degrees and percents lie beyond
# LeRobot clips normalised values; its legacy percentages of LINEAR motors were let through from -10 to 110.
PERCENT_BOUNDS = {"degrees": (-10.0, 110.0), "normalized": (-1.0, 101.0)}


@dataclass(frozen=True)
class Seen:
    """Range of a joint over the whole set, and whether each of its values is a whole number."""

    low: float
    high: float
    whole: bool

    @property
    def travel(self) -> float:
        """Distance from the lowest to the highest value."""
        return self.high - self.low


def seen_in(states: Iterable[np.ndarray], joints: int) -> list[Seen]:
    """What each of the `joints` columns holds over arrays (n, joints); values that are not finite are left
    out.
    """
    low, high = np.full(joints, np.inf), np.full(joints, -np.inf)
    whole = np.ones(joints, bool)
    for state in states:
        finite = np.isfinite(state)
        low = np.minimum(low, np.where(finite, state, np.inf).min(axis=0, initial=np.inf))
        high = np.maximum(high, np.where(finite, state, -np.inf).max(axis=0, initial=-np.inf))
        whole &= (~finite | (state == np.round(state))).all(axis=0)
    return [Seen(*values) for values in zip(low.tolist(), high.tolist(), whole.tolist())]


@dataclass(frozen=True)
class Conversion:
    """How one joint's values become what the recording holds: `apply` maps (n,) to (n,)."""

    joint: Joint
    apply: Callable[[np.ndarray], np.ndarray]


def plan_conversions(
    names: Sequence[str],
    seen: Sequence[Seen],
    unit: str | None,
    calibrations: Mapping[str, Calibration],
    where: object,
) -> list[Conversion]:
    """A conversion a joint, in column order.

    Raises
    ------
    InputError
        without a unit (with a table of what each would mean), for a unit that the values cannot have, and
        for joints that need a calibration and have none.
    """
    if unit is None:
        raise InputError(
            where,
            "says nowhere in what unit its joints are, and units are not guessed",
            "say --unit ticks|degrees|normalized|radians (ticks and normalized need --calibration)\n"
            + unit_table(names, seen),
        )
    if unit not in RAW_UNITS:
        raise InputError("--unit", f"{unit!r} is not known", f"units: {', '.join(RAW_UNITS)}")
    if unit == "radians" and calibrations:
        raise InputError(
            "--calibration",
            "radians need no calibration",
            "leave it out, or declare the unit the values have",
        )
    raw_unit: RawUnit = unit  # type: ignore[assignment]
    motors = match_motors(names, calibrations)
    angles = [name for name in names if not name.endswith(NO_ANGLE)]
    without = [name for name in angles if name not in motors]
    if unit in ("ticks", "normalized") and without:
        raise InputError(
            where,
            f"{unit} become radians by a calibration, and there is none for {', '.join(without)}",
            "give the arm's own LeRobot file: --calibration FILE, or PREFIX=FILE for each of several arms",
        )
    _refuse_impossible(names, seen, unit, motors, where)
    return [_conversion(name, raw_unit, motors.get(name)) for name in names]


def _conversion(name: str, unit: RawUnit, motor: Motor | LegacyMotor | None) -> Conversion:
    if name.endswith(NO_ANGLE):
        return Conversion(Joint(name=name, unit="source"), lambda values: values)
    if motor is None:
        if unit == "degrees" and is_gripper(name):
            return Conversion(Joint(name=name, unit="percent", lower=0, upper=100), lambda values: values)
        return Conversion(Joint(name=name), np.deg2rad if unit == "degrees" else lambda values: values)
    lower, upper = motor.limits_rad or (None, None)
    return Conversion(
        Joint(name=name, lower=lower, upper=upper), lambda values: motor.to_radians(values, unit)
    )


def plan_actions(
    names: Sequence[str], joints: Sequence[Conversion]
) -> tuple[Unit, str, Callable[[np.ndarray], np.ndarray]]:
    """(unit, meaning, conversion of (n, A)) of an action table.

    Actions that carry the joints' names are in the joints' units. Others, and tables whose columns would end
    up in different units, are kept as they came.
    """
    by_name = {conversion.joint.name: conversion for conversion in joints}
    if any(name not in by_name for name in names):
        return (
            "source",
            "the source's action, which does not carry the joints' names: kept as it came",
            lambda values: values,
        )
    units = {by_name[name].joint.unit for name in names}
    if len(units) > 1:
        return "source", "target, of joints in different units: kept as it came", lambda values: values

    def apply(values: np.ndarray) -> np.ndarray:
        return np.stack([by_name[name].apply(values[:, column]) for column, name in enumerate(names)], axis=1)

    return units.pop(), "target", apply


def match_motors(
    names: Sequence[str], calibrations: Mapping[str, Calibration]
) -> dict[str, Motor | LegacyMotor]:
    """{joint: motor}. A calibration under a prefix serves the joints of that prefix, one under "" those that
    are left.

    Motors match by name. Where no name matches, joints numbered one after the other (`arm1_j1` ...
    `arm1_j6`) match a calibration of as many motors, by rising servo id; anything else is an error, not a
    guess.
    """
    matched: dict[str, Motor | LegacyMotor] = {}
    left = list(names)
    for prefix, calibration in sorted(calibrations.items(), key=lambda item: -len(item[0])):
        rests = {name: rest for name in left if (rest := _rest(name, prefix)) is not None}
        left = [name for name in left if name not in rests]
        shown = f"{prefix}=" if prefix else ""
        where = f"--calibration {shown}{calibration.where}"
        if not rests:
            raise InputError(where, f"no joint is left for prefix {prefix!r}", f"joints: {', '.join(names)}")
        by_name = {name: rest for name, rest in rests.items() if rest in calibration.names}
        if by_name:
            matched.update({name: calibration.motor(rest) for name, rest in by_name.items()})
            continue
        numbered = [name for name in rests if not name.endswith(NO_ANGLE)]
        if len(numbered) != len(calibration.motors) or not _are_consecutive(numbered):
            raise InputError(
                where,
                f"its motors ({', '.join(calibration.names)}) are not the joints {', '.join(rests)}",
                "names must match, or as many joints be numbered; several arms need PREFIX=FILE each",
            )
        matched.update(zip(numbered, calibration.motors))
    return matched


def _rest(name: str, prefix: str) -> str | None:
    """What follows `prefix` and a separator in `name`; None where the name does not begin with both."""
    prefix = prefix.rstrip("_.-")
    if not prefix:
        return name
    rest = name.removeprefix(prefix)
    return rest[1:] if rest != name and len(rest) > 1 and rest[0] in "_.-" else None


def _are_consecutive(names: Sequence[str]) -> bool:
    parts = [re.fullmatch(r"(.*?)(\d+)", name) for name in names]
    if not all(parts):
        return False
    stems = {part.group(1) for part in parts if part}
    numbers = [int(part.group(2)) for part in parts if part]
    return len(stems) == 1 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


# -- what the values can be --------------------------------------------------------------------------------


def _bounds(name: str, unit: str, motor: Motor | LegacyMotor | None) -> tuple[float, float]:
    percent = motor.is_percent(unit) if motor else unit in PERCENT_BOUNDS and is_gripper(name)
    return PERCENT_BOUNDS[unit] if percent else BOUNDS[unit]


def _refuse_impossible(
    names: Sequence[str],
    seen: Sequence[Seen],
    unit: str,
    motors: Mapping[str, Motor | LegacyMotor],
    where: object,
) -> None:
    wrong = []
    for name, joint in zip(names, seen):
        if name.endswith(NO_ANGLE) or joint.low > joint.high:
            continue
        low, high = _bounds(name, unit, motors.get(name))
        if joint.low < low or joint.high > high:
            wrong.append(
                f"{name} holds {joint.low:.6g} to {joint.high:.6g}, {unit} lie within {low:.6g} to {high:.6g}"
            )
        elif unit == "ticks" and not joint.whole:
            wrong.append(
                f"{name} holds {joint.low:.6g} to {joint.high:.6g} with fractions, ticks are whole numbers"
            )
    if unit == "radians" and not wrong:
        wrong = _mostly_beyond_two_turns(names, seen)
    if wrong:
        more = f" (and {len(wrong) - 1} more joints)" if len(wrong) > 1 else ""
        raise InputError(
            where,
            f"its joints cannot be {unit}: {wrong[0]}{more}",
            "declare the unit they have; each would mean\n" + unit_table(names, seen),
        )


def _mostly_beyond_two_turns(names: Sequence[str], seen: Sequence[Seen]) -> list[str]:
    """Words for the joints beyond two turns, where these are several and most: one may turn without end."""
    angles = [(n, one) for n, one in zip(names, seen) if not n.endswith(NO_ANGLE) and one.low <= one.high]
    beyond = [
        f"{name} holds {joint.low:.6g} to {joint.high:.6g}, beyond two turns, as most joints do"
        for name, joint in angles
        if max(-joint.low, joint.high) > TWO_TURNS_RAD
    ]
    return beyond if len(beyond) > max(1, len(angles) / 2) else []


def unit_table(names: Sequence[str], seen: Sequence[Seen]) -> str:
    """A table a person can read: each joint's range, and how far it would have moved in each unit."""
    header = ["joint", "lowest", "highest", "ticks", "degrees", "normalized", "radians"]
    rows = [header] + [[name, *_meanings(name, joint)] for name, joint in zip(names, seen)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows
    )


def _meanings(name: str, seen: Seen) -> list[str]:
    if seen.low > seen.high:
        return ["-", "-", *["no value"] * 4]
    cells = [f"{seen.low:.6g}", f"{seen.high:.6g}"]
    if name.endswith(NO_ANGLE):
        return [*cells, *["not an angle"] * 4]
    travel = {
        "ticks": f"moves {seen.travel * 360 / TICKS_PER_TURN:.1f} deg",
        "degrees": f"moves {seen.travel:.1f} deg",
        "normalized": f"moves {seen.travel / 2:.0f} % of its range",
        "radians": f"moves {math.degrees(seen.travel):.1f} deg",
    }
    if is_gripper(name):
        travel["degrees"] = travel["normalized"] = f"moves {seen.travel:.0f} % of its range"
    for unit in RAW_UNITS:
        low, high = _bounds(name, unit, None)
        if seen.low < low or seen.high > high or (unit == "ticks" and not seen.whole):
            travel[unit] = "impossible"
    return [*cells, *(travel[unit] for unit in ("ticks", "degrees", "normalized", "radians"))]
