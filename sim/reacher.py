"""DM Control's Reacher: two links in a plane, the shoulder unbounded, the wrist within 160 degrees.

The model is the suite's own file. A state is the two joint angles in rad, (shoulder, wrist); both zero points
along x. Steps are those of `suite.load("reacher", "hard")`: 0.02 s, two torques in [-1, 1].
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mujoco import rollout

from hardware.errors import InputError
from sim.rendering import mujoco  # from there: it imports also where OpenGL is missing

JOINTS = ("shoulder", "wrist")
LINKS_M = (0.12, 0.12)  # shoulder to wrist, wrist to fingertip
WRIST_LIMIT_RAD = float(np.deg2rad(160))
CONTROL_STEP_S = 0.02
FINGER_RADIUS_M = 0.01
HARD_TARGET_RADIUS_M, EASY_TARGET_RADIUS_M = 0.015, 0.05
TARGET_DISTANCE_M = (0.05, 0.20)  # targets of an episode lie that far from the shoulder


def load_model() -> mujoco.MjModel:
    """The suite's model, compiled from dm_control's own file.

    Raises
    ------
    InputError : dm_control is missing, or has no such file.
    """
    package = importlib.util.find_spec("dm_control")  # found, not imported: that takes seconds
    if package is None or not package.submodule_search_locations:
        raise InputError("dm_control", "is not installed", "pip install 'dm_control>=1.0.50'")
    path = Path(package.submodule_search_locations[0]) / "suite" / "reacher.xml"
    try:
        return mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise InputError(path, f"cannot be compiled: {error}", "reinstall dm_control") from None


def wrist_position(angles: np.ndarray) -> np.ndarray:
    """Where the wrist is, m: (..., 2) of angles (..., 2)."""
    shoulder = np.asarray(angles, np.float64)[..., 0]
    return LINKS_M[0] * np.stack([np.cos(shoulder), np.sin(shoulder)], axis=-1)


def fingertip(angles: np.ndarray) -> np.ndarray:
    """Where the fingertip is, m: (..., 2) of angles (..., 2)."""
    both = np.asarray(angles, np.float64).sum(axis=-1)
    return wrist_position(angles) + LINKS_M[1] * np.stack([np.cos(both), np.sin(both)], axis=-1)


def inverse_kinematics(points: np.ndarray) -> np.ndarray:
    """The two joint angles that bring the fingertip to points, by the law of cosines.

    Parameters
    ----------
    points : (..., 2), m.

    Returns
    -------
    (..., 2, 2) rad: the solution whose wrist is bent to the left (positive), then its mirror image; the
    shoulder within (-pi, pi]. NaN where the point is out of reach or needs more than the wrist's limit.
    """
    points = np.asarray(points, np.float64)
    first, second = LINKS_M
    distance = np.linalg.norm(points, axis=-1)
    with np.errstate(invalid="ignore"):
        # |p|^2 = l1^2 + l2^2 + 2 l1 l2 cos(wrist)
        wrist = np.arccos((distance**2 - first**2 - second**2) / (2 * first * second))
    wrist = np.where(wrist <= WRIST_LIMIT_RAD, wrist, np.nan)
    wrists = np.stack([wrist, -wrist], axis=-1)
    aim = np.arctan2(points[..., 1], points[..., 0])[..., None]
    bend = np.arctan2(second * np.sin(wrists), first + second * np.cos(wrists))
    shoulders = wrap(aim - bend)
    return np.stack([np.where(np.isnan(wrists), np.nan, shoulders), wrists], axis=-1)


def wrap(angle: np.ndarray) -> np.ndarray:
    """Angles as the same directions within (-pi, pi]."""
    return -(np.mod(-np.asarray(angle) + np.pi, 2 * np.pi) - np.pi)


def random_states(count: int, rng: np.random.Generator) -> np.ndarray:
    """Angles (count, 2) as the suite begins its episodes: uniform, the wrist within its limit."""
    return np.stack(
        [rng.uniform(-np.pi, np.pi, count), rng.uniform(-WRIST_LIMIT_RAD, WRIST_LIMIT_RAD, count)], axis=1
    )


def random_targets(count: int, rng: np.random.Generator) -> np.ndarray:
    """Points (count, 2) in m as the suite places its targets: direction and distance are both uniform."""
    direction, distance = rng.uniform(0, 2 * np.pi, count), rng.uniform(*TARGET_DISTANCE_M, count)
    return distance[:, None] * np.stack([np.sin(direction), np.cos(direction)], axis=1)


@dataclass(frozen=True)
class Motion:
    """What arms did: row t of an episode is the state before its action t.

    Attributes
    ----------
    qpos, qvel : (E, T + 1, 2), rad and rad/s.
    """

    qpos: np.ndarray
    qvel: np.ndarray


class Arms:
    """Many arms that move independently of each other, stepped together as the suite's environment steps one.

    Parameters
    ----------
    qpos, qvel : where they start, (E, 2) in rad and rad/s; at rest without `qvel`.
    """

    def __init__(self, qpos: np.ndarray, qvel: np.ndarray | None = None) -> None:
        self._model = load_model()
        self._data = mujoco.MjData(self._model)
        count = len(qpos)
        self._state = np.zeros((count, 1 + 2 + 2))  # MuJoCo's full state: time, qpos, qvel
        self._state[:, 1:3] = qpos
        if qvel is not None:
            self._state[:, 3:5] = qvel

    @property
    def qpos(self) -> np.ndarray:
        """Angles now, (E, 2) rad."""
        return self._state[:, 1:3].copy()

    @property
    def qvel(self) -> np.ndarray:
        """Velocities now, (E, 2) rad/s."""
        return self._state[:, 3:5].copy()

    def step(self, actions: np.ndarray) -> None:
        """Take T control steps under actions (E, T, 2), or one under (E, 2); beyond [-1, 1] they are cut."""
        self.follow(actions if np.ndim(actions) == 3 else np.asarray(actions)[:, None])

    def follow(self, actions: np.ndarray) -> Motion:
        """Take T control steps under actions (E, T, 2); the states before, between and after them."""
        actions = np.ascontiguousarray(actions, np.float64)
        before = self._state
        if not len(before) or not actions.shape[1]:
            return Motion(before[:, None, 1:3].copy(), before[:, None, 3:5].copy())
        states, _ = rollout.rollout(self._model, self._data, before, actions)
        self._state = np.ascontiguousarray(states[:, -1])
        states = np.concatenate([before[:, None], states], axis=1)
        return Motion(states[..., 1:3].copy(), states[..., 3:5].copy())
