"""A calibration of the simulated arm, as LeRobot would have written it after calibrating it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from hardware.calibration import (
    MAX_HOMING_OFFSET,
    RADIANS_PER_TICK,
    TICKS_PER_TURN,
    Calibration,
    load_calibration,
)
from hardware.so101 import JOINTS

_HOMED_MIDDLE = 2047  # where LeRobot's homing puts the pose in which it is begun: half a turn
_SPREAD_TICKS = 700  # of the homing offsets: how the horns happened to be screwed on


def twin_calibration(path: Path | str, seed: int = 0) -> Calibration:
    """Write a calibration in LeRobot's new form and load it, as a recorder loads a real arm's.

    Each joint was swept over the model's whole range, to within the tick, with its middle at the middle of
    that range; the wrist's roll, which LeRobot does not sweep, has a full turn about it. The homing offsets
    are drawn, and within what the servo's register holds.

    Parameters
    ----------
    path : the JSON file to write.
    seed : of the homing offsets.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0xCA1,)))
    motors = {}
    for joint in JOINTS:
        half = int(
            (joint.upper - joint.lower) / 2 / RADIANS_PER_TICK
        )  # rounded down: within the model's range
        offset = round(float(np.clip(rng.normal(0, _SPREAD_TICKS), -MAX_HOMING_OFFSET, MAX_HOMING_OFFSET)))
        swept = (0, TICKS_PER_TURN - 1) if joint.full_turn else (_HOMED_MIDDLE - half, _HOMED_MIDDLE + half)
        motors[joint.name] = {
            "id": joint.servo_id,
            "drive_mode": 0,
            "homing_offset": offset,
            "range_min": swept[0],
            "range_max": swept[1],
        }
    Path(path).write_text(json.dumps(motors, indent=4) + "\n")
    return load_calibration(path)
