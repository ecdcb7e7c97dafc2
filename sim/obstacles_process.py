"""The front of `sim.obstacles`: what a pose would hit, without mujoco in the process that asks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sim.json_process import JsonProcess

_START_S, _ANSWER_S = 60.0, 30.0
_BATCH = 2000  # poses a request: a tenth of a second of work


class Obstacles:
    """Asks the model of the arm, in a process of its own, what it would hit.

    It is what `hardware.motions.walk_knots` wants as `allowed`.

    Parameters
    ----------
    mjcf : a model of the user's own; None takes ours.
    clearance_m : what comes nearer than this counts as hit.

    Attributes
    ----------
    joint_names : the joints, in the order of a pose.
    limits : of the model, rad, float64 [6, 2].
    pid : of the process.

    Raises
    ------
    InputError : when the model cannot be used, and at any question when the process has died.
    """

    def __init__(self, mjcf: Path | str | None = None, clearance_m: float = 0.0) -> None:
        arguments = ["--clearance", str(clearance_m)] + ([] if mjcf is None else ["--mjcf", str(mjcf)])
        self._process = JsonProcess("sim.obstacles", arguments, "the obstacle check", _START_S)
        self.joint_names = tuple(str(name) for name in self._process.hello["joints"])
        self.limits = np.asarray(self._process.hello["limits"], float)
        self.pid = self._process.pid

    def __call__(self, position: Sequence[float] | np.ndarray) -> str | None:
        """What the arm would hit at joint angles `position` (rad, [6]): "table", "arm" or None."""
        return self.path(np.asarray(position, float)[None])[0]

    def path(self, positions: Sequence[Sequence[float]] | np.ndarray) -> list[str | None]:
        """The same for each of `positions` (rad, [n, 6]); one request for many is far cheaper than many."""
        poses = np.asarray(positions, float)
        hits: list[str | None] = []
        for start in range(0, len(poses), _BATCH):
            request = {"q": poses[start : start + _BATCH].tolist()}
            hits += self._process.ask(request, _ANSWER_S)["blocked"]
        return hits

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def __enter__(self) -> Obstacles:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
