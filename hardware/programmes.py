"""What a recording session does in each of its episodes: watch, follow a leader, walk, or repeat."""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from hardware.arm import Arm
from hardware.bus import BusFault, BusLost
from hardware.drivers import Driver, Follow, Teleop, Watch
from hardware.errors import InputError
from hardware.motions import WalkPlan, WalkSettings, walk_knots
from hardware.recording import Recording
from hardware.so101 import WALK_CENTRE_RAD
from hardware.trajectories import WALK_SECONDS, Replay, Walk

LEADER_TRIES = 20
PATH_POINTS = 12  # asked about between two knots: a few degrees apart


class Programme(ABC):
    """One motion of `jointprobe record`; what most of them do not need does nothing.

    Attributes
    ----------
    motion : its name in recording.yaml.
    moves : whether the arm is commanded, and so powered, watched over and let go of at the end.
    by_hand : whether a person's hand makes the motion, so that each episode waits for the person.
    settings : what made it, for recording.yaml; nothing in it depends on how many episodes there are.
    """

    motion: str
    moves: bool
    by_hand: bool

    @property
    def settings(self) -> dict[str, Any]:
        return {}

    def start(self, index: int) -> np.ndarray | None:
        """Where the arm must stand before episode `index`, rad [J]; None: anywhere."""
        return None

    @abstractmethod
    def driver(self, index: int, here: np.ndarray) -> Driver:
        """What drives episode `index`; `here` is where the arm was last sent, rad [J]."""

    def notes(self, index: int) -> dict[str, Any]:
        """What to keep with episode `index` beside its streams."""
        return {}

    def close(self) -> None:
        """Let go of what it holds itself."""
        return None


class Observe(Programme):
    """The arm is moved by hand and only ever read: no register is written, no torque touched."""

    motion, moves, by_hand = "observe", False, True

    def driver(self, index: int, here: np.ndarray) -> Driver:
        return Watch()


class Teleoperate(Programme):
    """The arm follows a leader arm on a second bus, which is only ever read."""

    motion, moves, by_hand = "teleop", True, True

    def __init__(self, leader: Arm, velocity_rad_s: float = 4.0) -> None:
        self.leader = leader
        self.velocity_rad_s = velocity_rad_s
        self._driver: Teleop | None = None

    @property
    def settings(self) -> dict[str, Any]:
        return {"velocity_rad_s": self.velocity_rad_s, "leader": self.leader.calibration.describe()}

    def start(self, index: int) -> np.ndarray | None:
        """Where the leader is before the first episode; after that the follower is there already."""
        return None if self._driver is not None else self._leader_position()

    def driver(self, index: int, here: np.ndarray) -> Driver:
        if self._driver is None:  # between episodes the follower goes on following
            self._driver = Teleop(self.leader, here, self.velocity_rad_s)
        return self._driver

    def close(self) -> None:
        self.leader.close()

    def _leader_position(self) -> np.ndarray:
        for _ in range(LEADER_TRIES):
            try:
                sample = self.leader.read()
            except BusLost:
                raise
            except BusFault:
                continue
            time.sleep(0.002)
            if self.leader.confirm():
                return sample.position
        raise InputError(
            self.leader.bus.port, "the leader arm gives no sound reading", "check its power and its cables"
        )


class Walks(Programme):
    """The isotropic random walk; episode i depends on the seed and i alone.

    Parameters
    ----------
    limits : of the joints, rad [J, 2].
    allowed : says what the arm would hit at joint angles; asked before anything moves.
    """

    motion, moves, by_hand = "walk", True, False

    def __init__(
        self,
        limits: np.ndarray,
        allowed: Callable[[np.ndarray], str | None],
        *,
        settings: WalkSettings | None = None,
        seconds: float = WALK_SECONDS,
        seed: int = 0,
    ) -> None:
        walk = settings or WalkSettings(path_points=PATH_POINTS)
        if walk.centre_rad is None:
            walk = dataclasses.replace(walk, centre_rad=WALK_CENTRE_RAD)
        self.walk, self.limits, self.allowed, self.seed, self.seconds = walk, limits, allowed, seed, seconds
        self._plans: dict[int, WalkPlan] = {}

    @property
    def settings(self) -> dict[str, Any]:
        sigma = self.walk.sigma_fraction * (self.limits[:, 1] - self.limits[:, 0]) / 2
        return {
            "seed": self.seed,
            "seconds": self.seconds,
            **self.walk.describe(),
            "sigma_rad": np.round(sigma, 9).tolist(),
        }

    def plan(self, index: int) -> WalkPlan:
        """The knots of episode `index`."""
        if index not in self._plans:
            knots = int(self.seconds / self.walk.knot_period_s + 1e-9) + 1
            rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(index,)))
            self._plans[index] = walk_knots(self.walk, self.limits, knots, self.allowed, rng)
        return self._plans[index]

    def start(self, index: int) -> np.ndarray:
        return self.plan(index).knots[0]

    def driver(self, index: int, here: np.ndarray) -> Driver:
        return Follow(Walk(self.plan(index), self.walk.knot_period_s))

    def notes(self, index: int) -> dict[str, Any]:
        plan = self.plan(index)
        return {
            "draws": plan.draws,
            "rejected": plan.rejected,
            "acceptance": round(plan.acceptance, 6),
            "knot_correlation": [
                None if np.isnan(value) else round(float(value), 4) for value in plan.correlation()
            ],
        }


class Replays(Programme):
    """Sends an episode's targets again: episode i those of the source's i-th, or all those of one."""

    motion, moves, by_hand = "replay", True, False

    def __init__(self, source: Recording, episode: int | None, limits: np.ndarray, joints: list[str]) -> None:
        if source.info.actions is None or source.info.actions.unit != "rad":
            raise InputError(
                source.folder,
                "holds no actions in rad to replay",
                "choose a walk or a teleoperated recording",
            )
        if list(source.info.actions.names) != joints:
            raise InputError(
                source.folder,
                f"its actions are {', '.join(source.info.actions.names)}; this arm has {', '.join(joints)}",
                "choose a recording of the same arm",
            )
        if source.info.robot != "sim-so101" and source.info.motion_settings.get("frame") != "model":
            raise InputError(
                source.folder,
                "has angles from a calibration's own zero, which is not the model's",
                "replay what this recorder or the simulation recorded",
            )
        self.source, self.episode, self.limits = source, episode, limits

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "source_manifest_sha256": self.source.manifest_sha256,
            "source_episode": "the same number" if self.episode is None else self.episode,
        }

    def motion_of(self, index: int) -> Replay:
        """The targets of episode `index`; InputError where one lies outside the joint limits."""
        number = self.episode
        if number is None:
            there = self.source.episode_indices
            number = there[index % len(there)]
        where = f"{self.source.folder}, episode {number}"
        replay = Replay.of(self.source.episode(number).actions(), where)
        if not np.isfinite(replay.targets).all():
            raise InputError(where, "has a target that is no number", "replay another episode")
        slack = 0.02
        outside = (replay.targets < self.limits[:, 0] - slack) | (replay.targets > self.limits[:, 1] + slack)
        if outside.any():
            row, joint = np.argwhere(outside)[0]
            raise InputError(
                where,
                f"its target {row} sends joint {joint} to {replay.targets[row, joint]:.3f} rad, outside this "
                f"arm's {self.limits[joint, 0]:.3f}..{self.limits[joint, 1]:.3f}",
                "replay it on the arm it was recorded with, or check the calibration",
            )
        return replay

    def check(self) -> None:
        """InputError for any episode that cannot be replayed; asked before the arm is powered."""
        for index in range(1 if self.episode is not None else len(self.source.episode_indices)):
            self.motion_of(index)

    def start(self, index: int) -> np.ndarray:
        return self.motion_of(index).targets[0]

    def driver(self, index: int, here: np.ndarray) -> Driver:
        return Follow(self.motion_of(index))
