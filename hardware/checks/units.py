"""Units: what the numbers look like, by their smallest step and their range, against what is declared.

A 12-bit encoder gives 4096 values a turn, so its numbers are whole multiples of a quantum: 1 in ticks, 360 /
4096 (LeRobot: 360 / 4095) in degrees, 2 pi / 4096 in radians; values normalised to +-100 have another quantum
for each joint, 200 / (range in ticks). A constant added to them (a calibration's middle) changes no step.
Numbers that were filtered, averaged or come from another encoder show no quantum: then the range alone
speaks, and where it decides nothing the check says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hardware.calibration import is_gripper
from hardware.checks.check import Check, not_testable
from hardware.episode import JointLog
from hardware.recording import Recording

FEW_VALUES = 20  # a quantum is not read off fewer different values
WHOLE = 0.95  # share of the steps between neighbouring values that are whole multiples of a quantum,
NEAR_WHOLE = 0.1  # within this much of one
SAME_QUANTUM = 0.01  # quanta are the same within 1 %: float32 and 4095 against 4096 are well inside
QUANTA = {
    "ticks": 1.0,
    "degrees": 360 / 4096,
    "radians": 2 * np.pi / 4096,
    "radians taken for degrees": 2 * np.pi / 4096 * np.pi / 180,
}
TICKS_BEYOND = 400.0  # whole numbers beyond a turn of degrees are ticks
MOST = 2 / 3  # of the joints whose quantum can be read must agree
TURN_RAD = 2 * np.pi
# Radians that were converted as degrees once more leave a whole turn in 0.11 rad.
TINY_RAD = TURN_RAD * np.pi / 180
SMOOTH = 30.0  # travel in mean steps: 72 and more in real motions, up to 8 in noise around a rest


def check_units(recording: Recording, logs: dict[int, JointLog]) -> Check:
    """Whether the numbers look like the unit they are declared to have, as they came and as radians."""
    columns = [
        column
        for column, joint in enumerate(recording.info.joints)
        if joint.unit == "rad" and not is_gripper(joint.name)
    ]
    rows = sum(len(log.position) for log in logs.values())
    if not columns or rows < FEW_VALUES:
        return not_testable("units", "no joints that are angles, or too few rows")
    names = [recording.info.joint_names[column] for column in columns]
    position = np.concatenate([log.position[:, columns] for log in logs.values()])
    travel = np.ptp(position, axis=0)
    evidence: dict[str, Any] = {
        "travel_rad": {name: round(float(one), 4) for name, one in zip(names, travel)}
    }
    imported = raw_unit(recording) if recording.info.source else None
    stored = "declared radians" if imported == "radians" else "stored as radians"
    if imported not in (None, "radians"):
        stored += f" (declared {imported} at import)"
    remedy = "say the unit the numbers have: jointprobe import --unit ticks|degrees|normalized|radians"
    agreed: dict[str, str] = {}
    for which, declared, values in _declared(recording, logs, columns, position):
        quanta = {name: one for name, column in zip(names, values.T) if (one := quantum(column)) is not None}
        shown = looks_like(np.array(list(quanta.values())), values)
        if not agreed:
            evidence |= {
                "declared": declared,
                "looks_like": shown or "cannot tell",
                "quantum": {name: round(one, 8) for name, one in quanta.items()},
            }
        if shown is not None and shown != declared:
            steps = ", ".join(f"{name} {one:.4g}" for name, one in list(quanta.items())[:3])
            said = stored if which == "stored" else f"declared {declared}"
            message = f"{said}, but the numbers look like {shown}: their smallest steps are {steps}"
            return Check("units", "fail", message, evidence, remedy)
        if shown is not None:
            agreed[which] = shown
    if agreed:
        return Check("units", "pass", _agreed_in_words(agreed, imported), evidence)
    if (travel > TURN_RAD * 1.05).mean() > MOST:
        most = names[int(np.argmax(travel))]
        return Check(
            "units",
            "fail",
            f"most joints move more than a turn ({most} by {travel.max():.1f} rad): these are no radians",
            evidence,
            remedy,
        )
    if _tiny_motions(logs, columns, travel):
        return Check(
            "units",
            "fail",
            f"no joint moves more than {np.rad2deg(travel.max()):.2f} degrees, though smoothly and in steps "
            "finer than an encoder's: radians taken for degrees?",
            evidence,
            remedy,
        )
    why = f"{stored}; the numbers show no encoder's quantum, and their range decides nothing"
    return not_testable("units", why, evidence)


def _agreed_in_words(agreed: Mapping[str, str], imported: str | None) -> str:
    """What looks like its unit: the numbers that are stored, those of the source, or both."""
    if imported is None:
        return "the numbers look like radians, as stored"
    if imported == "radians":
        return "the numbers look like radians, as declared at import"
    own = f"the source's numbers look like {imported}, as declared at import" if "source" in agreed else ""
    if "stored" not in agreed:
        return own
    stored = "the numbers look like radians, as stored"
    return f"{own}; once converted, {stored}" if own else f"{stored} (declared {imported} at import)"


def raw_unit(recording: Recording) -> str:
    """The unit of `raw`: what an import declared; the recorder keeps ticks."""
    return str(recording.info.source.get("unit")) if recording.info.source else "ticks"


def _declared(
    recording: Recording, logs: dict[int, JointLog], columns: list[int], position: np.ndarray
) -> Iterator[tuple[str, str, np.ndarray]]:
    """(which, unit, values (n, columns)): the radians that are stored, and the source's numbers, of which
    they were made."""
    yield "stored", "radians", position
    raw = [log.raw[:, columns] for log in logs.values() if log.raw is not None]
    if len(raw) == len(logs):
        yield "source", raw_unit(recording), np.concatenate(raw)


def quantum(values: np.ndarray) -> float | None:
    """The step of which all steps between neighbouring values, float (n,), are multiples; None without one.

    float32 keeps 7 digits: steps under 10^-6 of the largest value are rounding and not looked at.
    """
    different = np.unique(values)
    largest = float(np.abs(different).max(initial=0.0))
    gaps = np.diff(different)
    gaps = gaps[gaps > 1e-6 * max(largest, 1e-9)]
    if len(gaps) < FEW_VALUES:
        return None
    smallest = float(np.quantile(gaps, 0.05))
    step = float(np.median(gaps[gaps < 1.5 * smallest]))
    multiples = gaps / step
    near = np.abs(multiples - np.round(multiples)) < NEAR_WHOLE
    return step if near.mean() > WHOLE and (np.round(multiples) == 1).mean() > 0.1 else None


def looks_like(quanta: np.ndarray, values: np.ndarray) -> str | None:
    """The unit that quanta (k,) of joints and values (n, J) show, or None."""
    if len(quanta) < 2:
        return None
    for unit, one in QUANTA.items():
        if (np.abs(quanta / one - 1) < SAME_QUANTUM).mean() > MOST:
            if unit == "ticks" and np.abs(values).max() < TICKS_BEYOND:
                return None  # whole degrees or percents as well
            return unit
    differ = quanta.max() / quanta.min() > 1 + 2 * SAME_QUANTUM
    percents = np.abs(values).max() <= 101.0 and quanta.min() > 200 / 4096 * (1 - SAME_QUANTUM)
    return "normalized" if differ and percents else None


def _tiny_motions(logs: dict[int, JointLog], columns: list[int], travel: np.ndarray) -> bool:
    """Whether no joint leaves 0.11 rad although some make long, smooth motions in it."""
    if travel.max() > TINY_RAD:
        return False
    steps = np.concatenate([np.abs(np.diff(log.position[:, columns], axis=0)) for log in logs.values()])
    mean = steps.mean(axis=0)
    moving = mean > 0
    return bool(moving.any() and np.median(travel[moving] / mean[moving]) > SMOOTH)
