"""The simulated arm: an SO-101 twin in MuJoCo, motions for it, and recordings of it.

A recording made here has the format, the clocks and the streams of one made on the arm, so that every later
step is the same code. `SimArm` is the arm, `record_simulated` records demonstrations or walks, `build_mjcf`
gives the model as text. `Twin` hosts the arm in a process of its own, behind an emulated servo bus and
cameras; `Obstacles` asks such a process what a pose would hit. These two need no mujoco here: names are
imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim import rendering
    from sim.obstacles_process import Obstacles
    from sim.record import record_simulated
    from sim.so101 import SimArm
    from sim.so101_model import JOINT_NAMES, VIEWS, build_mjcf
    from sim.twin_process import Twin

_HOMES = {
    "JOINT_NAMES": "sim.so101_model",
    "VIEWS": "sim.so101_model",
    "build_mjcf": "sim.so101_model",
    "SimArm": "sim.so101",
    "record_simulated": "sim.record",
    "Twin": "sim.twin_process",
    "Obstacles": "sim.obstacles_process",
}

__all__ = [
    "JOINT_NAMES",
    "VIEWS",
    "Obstacles",
    "SimArm",
    "Twin",
    "build_mjcf",
    "record_simulated",
    "rendering",
]


def __getattr__(name: str) -> Any:
    if name == "rendering":
        return importlib.import_module("sim.rendering")
    if name not in _HOMES:
        raise AttributeError(f"module 'sim' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
