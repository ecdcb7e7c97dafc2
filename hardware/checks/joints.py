"""Joints: do they move, and within their limits; `offsets` asks whether from the same zero."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hardware.checks.check import Check, counted, not_testable
from hardware.checks.joint_values import sentinel_mask
from hardware.episode import JointLog
from hardware.recording import Recording
from hardware.schema import Joint

STILL_RAD = 0.02  # below this std a joint cannot be tested (see the probe)
# How far a joint may be beyond its calibrated range: the ends of a range are found by hand, and an arm has
# about a degree of backlash. Of a unit that is neither rad nor percent, a hundredth of the range.
LIMIT_TOLERANCE = {"rad": float(np.deg2rad(1.0)), "percent": 1.0}
LIMIT_SHARE = 0.01


def check_still_joints(recording: Recording, logs: dict[int, JointLog]) -> Check:
    if not any(len(log.position) for log in logs.values()):
        return Check("still_joints", "fail", "no episode can be read", {}, "restore its files from a copy")
    spread = np.concatenate([log.position for log in logs.values()]).std(axis=0)
    joints = recording.info.joints
    still = {
        joint.name: float(std)
        for joint, std in zip(joints, spread)
        if std < (STILL_RAD if joint.unit == "rad" else 1e-9)
    }
    evidence = {
        "std": {joint.name: round(float(std), 6) for joint, std in zip(joints, spread)},
        "joints": list(still),
    }
    if not still:
        words = "the only joint moves" if len(joints) == 1 else f"each of {len(joints)} joints moves"
        return Check("still_joints", "pass", words, evidence)
    alike: dict[str, list[str]] = {}
    for name, std in still.items():
        alike.setdefault(f"{std:.4f}", []).append(name)
    said = ", ".join(f"{', '.join(names)} (std {std})" for std, names in alike.items())
    return Check(
        "still_joints",
        "warn",
        f"{said}: under {STILL_RAD} rad over the whole recording",
        evidence,
        "an R2 on " + ("it" if len(still) == 1 else "them") + " means nothing: leave out what does not move",
    )


@dataclass(frozen=True)
class _Beyond:
    """How far a joint is beyond its range: at most, in which episode, and in how many episodes at all."""

    joint: Joint
    most: float
    episode: int
    count: int

    def __str__(self) -> str:
        return f"{self.joint.name} up to {_amount(self.joint, self.most)} beyond"


def check_limits(recording: Recording, logs: dict[int, JointLog]) -> Check:
    """Joints beyond their calibrated range by more than the tolerance; all of them, with how often."""
    # Constants in the place of readings are told by `check_sentinels`, and are no positions.
    read = {index: ~sentinel_mask(recording, log) for index, log in logs.items()}
    found: list[_Beyond] = []
    slight: list[_Beyond] = []
    bounded, tolerances, judged = 0, [], set()
    for column, joint in enumerate(recording.info.joints):
        if joint.lower is None or joint.upper is None:
            continue
        excess = {
            index: max(float(values.max() - joint.upper), float(joint.lower - values.min()))
            for index, log in logs.items()
            if len(values := log.position[read[index][:, column], column])
        }
        if not excess:
            continue
        bounded += 1
        judged |= set(excess)
        tolerance = LIMIT_TOLERANCE.get(joint.unit, LIMIT_SHARE * (joint.upper - joint.lower))
        if (words := _amount(joint, tolerance)) not in tolerances:
            tolerances.append(words)
        worst = max(excess, key=lambda index: excess[index])
        one = _Beyond(joint, excess[worst], worst, sum(amount > 0 for amount in excess.values()))
        if one.most > tolerance:
            found.append(one)
        elif one.most > 0:
            slight.append(one)
    if not bounded:
        return not_testable("joint_limits", "no joint has known limits")
    evidence = {
        "beyond": {one.joint.name: round(one.most, 4) for one in found},
        "most_in": {one.joint.name: one.episode for one in found},
        "episodes_beyond": {one.joint.name: one.count for one in [*found, *slight]},
        "within_tolerance": {one.joint.name: round(one.most, 4) for one in slight},
        "episodes": sorted({one.episode for one in found}),
    }
    tolerance_said = f"within the tolerance of {' or '.join(tolerances)}"
    if not found:
        message = f"{counted(bounded, 'joint')} within " + ("its" if bounded == 1 else "their") + " limits"
        if slight:
            message += f" ({', '.join(map(str, slight))}: {tolerance_said})"
        return Check("joint_limits", "pass", message, evidence)
    said = "; ".join(
        f"{one}, in {one.count} of {counted(len(judged), 'episode')}, most in {one.episode}" for one in found
    )
    rest = f"; {', '.join(one.joint.name for one in slight)} {tolerance_said}" if slight else ""
    return Check(
        "joint_limits",
        "warn",
        f"beyond the calibrated range by more than {' or '.join(tolerances)}: {said}{rest}",
        evidence,
        "the calibration may be another arm's, or older than the recording",
    )


def _amount(joint: Joint, amount: float) -> str:
    """`0.216 rad (12 deg)`, `3.1 percent`, or a number whose unit nobody knows."""
    if joint.unit == "rad":
        degrees = np.rad2deg(amount)
        return f"{amount:.3f} rad ({degrees:.{0 if degrees >= 9.95 else 1}f} deg)"
    return f"{amount:.3g} percent" if joint.unit == "percent" else f"{amount:.3g}"
