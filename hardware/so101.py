"""The SO-101 arm as a table: joints, servo ids and limits.

Angles are those of the published new-calibration model (the *model frame*). A calibration's own zero is the
middle of the range it swept; that middle is taken to be the middle of the model's range, so the gripper's
0 of the calibration is 0.785 rad here, and the shoulder's is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Joint:
    """One joint: the id its servo has by convention, and its limits in the model frame, rad."""

    name: str
    servo_id: int
    lower: float
    upper: float
    full_turn: bool = False
    """Whether LeRobot calibrates it without a sweep, as 0..4095 around the pose it was in."""


JOINTS = (
    Joint("shoulder_pan", 1, -1.91986, 1.91986),
    Joint("shoulder_lift", 2, -1.74533, 1.74533),
    Joint("elbow_flex", 3, -1.69, 1.69),
    Joint("wrist_flex", 4, -1.65806, 1.65806),
    Joint("wrist_roll", 5, -2.74385, 2.84121, full_turn=True),
    Joint("gripper", 6, -0.17453, 1.74533),
)
JOINT_NAMES: tuple[str, ...] = tuple(joint.name for joint in JOINTS)
SERVO_IDS: tuple[int, ...] = tuple(joint.servo_id for joint in JOINTS)
LIMITS_RAD = np.array([(joint.lower, joint.upper) for joint in JOINTS])
"""Lower and upper limits, float64 [6, 2]."""
MIDDLE_RAD = LIMITS_RAD.mean(axis=1)
"""Where a calibration's 0 lies, float64 [6]."""
WALK_CENTRE_RAD = (0.0, -0.45, 0.35, 0.7, 0.05, 0.785)
"""A pose above the table about which few draws of a walk are refused."""
LIMITS_RAD.setflags(write=False)
MIDDLE_RAD.setflags(write=False)


def joint(name: str) -> Joint | None:
    """The joint called `name`, or None."""
    return next((entry for entry in JOINTS if entry.name == name), None)
