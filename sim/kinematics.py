"""Inverse kinematics of the simulated arm by damped least squares: a grasp point, an approach from above, a
turn of the jaws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.rendering import mujoco
from sim.so101 import SimArm

_DAMPING_M = 0.002
_ITERATIONS = 60
_CLOSE_ENOUGH_M, _CLOSE_ENOUGH_RAD = 1e-4, 1e-3
_LARGEST_CHANGE_RAD = 0.25  # of one iteration, so that the linearisation means something
_TURN_WEIGHT_M = 0.03  # one radian of wrong orientation counts as much as three centimetres of wrong place


@dataclass(frozen=True)
class Reach:
    """Joint angles (rad, [6]) and how far from the wished pose they put the grasp point: metres, and radians
    off the vertical.
    """

    position: np.ndarray
    error_m: float
    lean_rad: float


def reach(arm: SimArm, place: np.ndarray, jaw_yaw: float, start: np.ndarray) -> Reach:
    """Joint angles that put the `grasp` site at `place`, the fingers pointing down and opening along the
    direction `jaw_yaw`.

    The five arm joints cannot meet all six demands everywhere: the place comes first, the orientation as near
    as it goes.

    Parameters
    ----------
    place : m, [3].
    jaw_yaw : direction in the table's plane in which the jaws open, rad.
    start : where to search from, rad, [6]; its gripper angle is kept.
    """
    model, data = arm.model, mujoco.MjData(arm.model)
    data.qpos[:] = arm.data.qpos
    site, joints = model.site("grasp").id, [model.joint(name) for name in arm.joint_names[:5]]
    qpos, dofs = [joint.qposadr[0] for joint in joints], [joint.dofadr[0] for joint in joints]
    lower, upper = arm.limits[:5, 0] + 0.01, arm.limits[:5, 1] - 0.01
    wished = np.array(
        [[np.cos(jaw_yaw), -np.sin(jaw_yaw), 0.0], [np.sin(jaw_yaw), np.cos(jaw_yaw), 0.0], [0.0, 0.0, 1.0]]
    )
    q = np.clip(start[:5], lower, upper)
    data.qpos[[model.joint(arm.joint_names[5]).qposadr[0]]] = start[5]
    along, about = np.zeros((3, model.nv)), np.zeros((3, model.nv))
    for iteration in range(_ITERATIONS + 1):
        data.qpos[qpos] = q
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        turn = data.site_xmat[site].reshape(3, 3)
        offset = place - data.site_xpos[site]
        # half the sum of cross products of the axes: the rotation vector to first order
        rotation = 0.5 * np.cross(turn.T, wished.T).sum(axis=0)
        settled = (
            float(np.linalg.norm(offset)) < _CLOSE_ENOUGH_M
            and float(np.linalg.norm(rotation)) < _CLOSE_ENOUGH_RAD
        )
        if settled or iteration == _ITERATIONS:
            break
        weight = _TURN_WEIGHT_M if iteration < _ITERATIONS // 2 else _TURN_WEIGHT_M / 4
        mujoco.mj_jacSite(model, data, along, about, site)
        jacobian = np.vstack([along[:, dofs], weight * about[:, dofs]])
        error = np.concatenate([offset, weight * rotation])
        # dq = J' (J J' + damping^2 I)^-1 e
        change = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + _DAMPING_M**2 * np.eye(6), error)
        change *= min(1.0, _LARGEST_CHANGE_RAD / max(float(np.abs(change).max()), 1e-9))
        q = np.clip(q + change, lower, upper)
    return Reach(
        position=np.concatenate([q, start[5:6]]),
        error_m=float(np.linalg.norm(offset)),
        lean_rad=float(np.arccos(np.clip(turn[2, 2], -1, 1))),
    )
