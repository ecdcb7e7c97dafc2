"""Whoever moves the arm by hand: a mind that plays motion after motion, and a hand that pushes limp joints.

The two are apart because thinking takes its time (a demonstration plans a grasp in 5 to 40 ms), and neither
physics nor a bus may wait for it: `Mind.think` looks at a copy of the arm and leaves an aim, which the hand
holds on to meanwhile, as a person does who hesitates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hardware.motions import PEAK_OF_MINIMUM_JERK, blend
from hardware.trajectories import Motion
from sim.demonstrations import Demonstration
from sim.so101 import SimArm

if TYPE_CHECKING:
    from sim.arm_behind import TwinArm

_APPROACH_RAD_S = 1.2  # peak speed on the way to where a motion begins
_SHORTEST_APPROACH_S = 0.8
_LOOK_AHEAD_S = 0.02  # how far an aim is carried on at its pace while no newer one is there

# A grip firm enough that the arm follows it against its own friction. The damping is relative to where the
# hand goes, else its arm would trail behind.
_STIFFNESS_NM_RAD, _DAMPING_NM_S_RAD, _STRENGTH_NM = 80.0, 2.0, 4.0


class Player:
    """Motion after motion, each approached smoothly from where the arm is.

    Parameters
    ----------
    draw : gives the next motion.
    """

    def __init__(self, draw: Callable[[], Motion]) -> None:
        self._draw = draw
        self._motion: Motion | None = None
        self._start, self._goal = np.zeros(6), np.zeros(6)
        self._began_s, self._approach_s = 0.0, 0.0

    def target(self, time_s: float, position: np.ndarray) -> np.ndarray:
        """Where to be at `time_s` (rad, [6]); `position` is where the arm is, from which it is fetched when a
        motion begins.
        """
        if self._motion is None:
            return self._begin(time_s, position)
        since_s = time_s - self._began_s
        if since_s < self._approach_s:
            return self._start + blend(since_s / self._approach_s) * (self._goal - self._start)
        target = self._motion.target(since_s - self._approach_s)
        if target is None:
            return self._begin(time_s, self._goal)
        self._goal = target
        return target

    def stop(self) -> None:
        """Leave the motion; the next target begins another."""
        self._motion = None

    def _begin(self, time_s: float, position: np.ndarray) -> np.ndarray:
        self._motion = self._draw()
        goal = self._motion.target(0.0)
        self._start, self._goal = position.copy(), position.copy() if goal is None else goal
        farthest = float(np.abs(self._goal - self._start).max())
        self._began_s = time_s
        self._approach_s = max(_SHORTEST_APPROACH_S, PEAK_OF_MINIMUM_JERK * farthest / _APPROACH_RAD_S)
        return self._start


@dataclass(frozen=True)
class Aim:
    """Where a hand is to be at a time (rad, [6]), and how fast it goes on from there (rad/s, [6])."""

    time_s: float
    target: np.ndarray
    pace: np.ndarray

    def at(self, time_s: float) -> np.ndarray:
        """Where it is to be a moment later, rad, float64 [6]."""
        return self.target + self.pace * min(max(time_s - self.time_s, 0.0), _LOOK_AHEAD_S)

    def push(self, time_s: float, position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """What a hand with this aim exerts at joints in this state, Nm, float64 [6]."""
        torque = _STIFFNESS_NM_RAD * (self.at(time_s) - position) + _DAMPING_NM_S_RAD * (self.pace - velocity)
        return np.clip(torque, -_STRENGTH_NM, _STRENGTH_NM)


class Mind:
    """Decides where a hand aims, by motions that look at the arm.

    Parameters
    ----------
    twin : the arm.
    sight : another `SimArm` of the same model, into which the arm is copied to be looked at.
    draw : gives the next motion, as `demonstrations` does.
    at_arm : whether the hand is at this arm, and lets go while a servo of it has torque; one at a leader arm
        goes on.

    Attributes
    ----------
    aim : the newest; None while the hand is off, as before the first thought.
    """

    def __init__(
        self, twin: TwinArm, sight: SimArm, draw: Callable[[Mind], Motion], at_arm: bool = True
    ) -> None:
        self.twin, self.sight, self.at_arm = twin, sight, at_arm
        self.aim: Aim | None = None
        self._player = Player(lambda: draw(self))

    def think(self) -> None:
        """Look, and leave a new aim. Called again and again, by one thread."""
        time_s, limp = self._look()
        if self.at_arm and not limp:
            self._player.stop()
            self.aim = None
            return
        target = self._player.target(time_s, self.sight.position)
        last, pace = self.aim, np.zeros_like(target)
        if last is not None and last.time_s < time_s:
            pace = (target - last.target) / (time_s - last.time_s)
        self.aim = Aim(time_s, target, pace)

    def rearrange(self, rng: np.random.Generator) -> None:
        """Put the blocks into a bowl."""
        with self.twin.lock:
            self.twin.arm.scatter(rng)
        self._look()

    def _look(self) -> tuple[float, bool]:
        with self.twin.lock:
            scene, time_s, limp = self.twin.arm.scene, self.twin.time_s, self.twin.limp
        self.sight.show(scene)
        return time_s, limp


def demonstrations(seed: int) -> Callable[[Mind], Demonstration]:
    """Blocks carried between the bowls, demonstration after demonstration, for a `Mind`.

    Before each one the blocks are put into a bowl; the arm is left where it is, not set to the start.
    """
    stream = np.random.SeedSequence(seed, spawn_key=(0xDE,))

    def draw(mind: Mind) -> Demonstration:
        rng = np.random.default_rng(stream.spawn(1)[0])
        return Demonstration(_LeftWhereItIs(mind), rng)  # type: ignore[arg-type]

    return draw


class _LeftWhereItIs:
    """The arm as a demonstration sees it: a reset puts the blocks back and moves nothing else."""

    def __init__(self, mind: Mind) -> None:
        self._mind = mind

    def __getattr__(self, name: str) -> object:
        return getattr(self._mind.sight, name)

    def reset(self, rng: np.random.Generator, _position: np.ndarray) -> None:
        self._mind.rearrange(rng)
