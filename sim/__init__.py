"""The simulated arm: an SO-101 twin in MuJoCo, motions for it, and recordings of it.

A recording made here has the format, the clocks and the streams of one made on the arm, so that every later
step is the same code. `SimArm` is the arm, `record_simulated` records demonstrations or walks, `build_mjcf`
gives the model as text.
"""

from sim import rendering  # first: it imports mujoco, also where OpenGL is missing

# isort: split
from sim.record import record_simulated
from sim.so101 import SimArm
from sim.so101_model import JOINT_NAMES, VIEWS, build_mjcf

__all__ = ["JOINT_NAMES", "VIEWS", "SimArm", "build_mjcf", "record_simulated", "rendering"]
