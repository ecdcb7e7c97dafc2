"""Goal-directed motion as a person would teleoperate it: blocks carried between the two bowls.

A demonstration looks where a block is, hovers over it, hesitates, descends, closes the gripper, carries, lets
go and looks again. The segments are minimum-jerk and overlap (a hand does not stop at via points), each joint
starts and ends a little on its own, and a slow tremor lies over everything. Grasping is by friction alone: no
weld, so a badly aimed grasp misses, and the person tries again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from hardware.errors import InputError
from hardware.motions import PEAK_OF_MINIMUM_JERK, blend
from sim.kinematics import Reach, reach
from sim.rendering import mujoco
from sim.so101 import REST_POSITION, SimArm
from sim.so101_model import BLOCK_HALF_M, BLOCK_NAMES, BOWL_CENTRES_M, BOWL_RADIUS_M

LAST_PICK_S = 7.0  # no pick begins later; with the way home that makes 9 to 19 s, 12.7 on average
_GRASP_HEIGHT_M = 0.0035  # of the grasp point over a block's centre: the finger tips touch nothing below
_HELD_HEIGHT_M = 0.03  # a block this much higher than it lay is in the gripper
_START_SPREAD_RAD = (0.35, 0.14, 0.14, 0.22, 0.5, 0.15)
_GRIPPER = 5


@dataclass(frozen=True)
class Habits:
    """How this person moves in this episode."""

    peak_speed_rad_s: float  # of the fastest joint, before overlaps add to it
    opening_rad: float  # of the gripper, before a grasp
    squeeze_rad: float  # gripper target while holding; a block stops the jaws at about 0
    hover_m: float
    aim_sd_m: float
    hesitation_s: float  # mean
    tremor_rad: float  # root mean square

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Habits:
        """The habits of one episode."""
        return cls(
            peak_speed_rad_s=float(rng.uniform(1.3, 2.1)),
            opening_rad=float(rng.uniform(0.42, 0.62)),
            squeeze_rad=float(rng.uniform(-0.05, -0.025)),
            hover_m=float(rng.uniform(0.055, 0.085)),
            aim_sd_m=float(rng.uniform(0.001, 0.0025)),
            hesitation_s=float(rng.uniform(0.12, 0.35)),
            tremor_rad=float(rng.uniform(0.0015, 0.004)),
        )


@dataclass(frozen=True)
class Move:
    """A stroke to `goal` (rad, [6]) in `seconds`; the next begins `pause_s` after its end (negative: before
    it).
    """

    goal: np.ndarray
    seconds: float
    pause_s: float = 0.0


@dataclass
class Pick:
    """What one attempt to carry a block came to."""

    block: str
    held: bool = False
    delivered: bool = False


@dataclass
class _Stroke:
    start_s: float
    seconds: float
    change: np.ndarray
    lead: np.ndarray  # shares of the stroke by which each joint starts late and ends early
    tail: np.ndarray

    def at(self, time_s: float) -> np.ndarray:
        u = (time_s - self.start_s) / self.seconds
        return self.change * blend((u - self.lead) / (1 - self.lead - self.tail))


class Demonstration:
    """The targets of one demonstration; it looks at `arm` while it goes on, as a person would.

    Parameters
    ----------
    arm : our scene; `arm.reset` is called here, with a start pose of this episode's own.
    seconds : how long to go on; None ends with the arm home, mostly after 10 to 15 s.

    Attributes
    ----------
    picks : the attempts so far and what they came to.
    """

    def __init__(self, arm: SimArm, rng: np.random.Generator, seconds: float | None = None) -> None:
        _require_scene(arm)
        self.arm, self.rng, self.seconds = arm, rng, seconds
        self.habits = Habits.draw(rng)
        self.picks: list[Pick] = []
        self._tremor = _Tremor.draw(rng, self.habits.tremor_rad)
        self._command = _free_start(arm, rng)
        self._base = self._command.copy()
        self._strokes: list[_Stroke] = []
        self._next_s = float(rng.exponential(self.habits.hesitation_s))
        arm.reset(rng, self._command)
        self._moves = self._go_on()

    def target(self, time_s: float) -> np.ndarray | None:
        """The joint targets (rad, [6]) at `time_s`, which must not fall from call to call; None when it is
        over.
        """
        if self.seconds is not None and time_s > self.seconds:
            return None
        while time_s >= self._next_s:
            move = next(self._moves, None)
            if move is None:
                return None
            self._begin(move)
        for stroke in self._strokes[:]:
            if time_s >= stroke.start_s + stroke.seconds:
                self._base = self._base + stroke.change
                self._strokes.remove(stroke)
        going = sum((stroke.at(time_s) for stroke in self._strokes), np.zeros(len(self._base)))
        return self._base + going + self._tremor.at(time_s)

    def _begin(self, move: Move) -> None:
        change = move.goal - self._command
        lead, tail = self.rng.uniform(0, 0.12, (2, len(change)))
        self._strokes.append(_Stroke(self._next_s, move.seconds, change, lead, tail))
        self._command = move.goal
        self._next_s += move.seconds + max(move.pause_s, -0.35 * move.seconds)

    # -- what the person does --------------------------------------------------------------------------------

    def _go_on(self) -> Iterator[Move]:
        """Pick after pick, then home; each pick is planned when it begins, from where things lie then."""
        while self._next_s < (LAST_PICK_S if self.seconds is None else self.seconds):
            if self.picks and not self.picks[-1].held and self.rng.random() < 0.7:
                block = self.picks[-1].block  # try that one again
            else:
                done = [pick.block for pick in self.picks if pick.delivered]
                block = self._choose(
                    [name for name in self.arm.blocks if name not in done] or list(self.arm.blocks)
                )
            yield from self._carry(block)
        home = _free_start(self.arm, self.rng)
        yield self._stroke(home, pause_s=0.15)
        yield Move(home, 0.3)

    def _choose(self, names: list[str]) -> str:
        """A block within reach, nearer ones sooner."""
        places = self.arm.blocks
        tip = self.arm.forward_kinematics(self._command, "grasp")
        distance = [float(np.linalg.norm(places[name] - tip)) + self.rng.exponential(0.05) for name in names]
        return names[int(np.argmin(distance))]

    def _carry(self, block: str) -> Iterator[Move]:
        rng, habits = self.rng, self.habits
        lay = self.arm.blocks[block]
        pick = Pick(block)
        self.picks.append(pick)
        aim = lay + np.array([*rng.normal(0, habits.aim_sd_m, 2), _GRASP_HEIGHT_M])
        if rng.random() < 0.05:
            aim[:2] += rng.normal(0, 0.01, 2)  # a careless grasp
        low, yaw = self._grasp(block, aim)
        high = self._over(aim, yaw, low, habits.hover_m)
        yield self._stroke(high, pause_s=self._hesitate())
        if rng.random() < 0.35:  # looks, and corrects
            yield self._stroke(
                self._over(aim + np.array([*rng.normal(0, 0.008, 2), 0]), yaw, low, habits.hover_m * 0.8)
            )
        yield self._stroke(low, pause_s=self._hesitate() * 0.5, slowness=1.3)
        closed = _with_gripper(low, habits.squeeze_rad)
        yield Move(closed, float(rng.uniform(0.4, 0.55)), 0.1)
        lift = self._over(aim, yaw, closed, habits.hover_m + rng.uniform(0.0, 0.02))
        yield self._stroke(lift, pause_s=0.02)
        pick.held = bool(self.arm.blocks[block][2] > lay[2] + _HELD_HEIGHT_M)
        if not pick.held:
            yield self._stroke(_with_gripper(lift, habits.opening_rad), pause_s=self._hesitate())
            return
        bowl = self._destination(lay)
        drop = np.array([*(bowl + rng.normal(0, 0.009, 2)), BLOCK_HALF_M + rng.uniform(0.012, 0.03)])
        let_go = self._let_go(drop, yaw, lift)
        over = self._over(drop, let_go[1], let_go[0].position, habits.hover_m)
        yield self._stroke(over, pause_s=-0.1)
        yield self._stroke(let_go[0].position, pause_s=self._hesitate() * 0.5)
        opened = _with_gripper(let_go[0].position, habits.opening_rad + rng.normal(0, 0.05))
        yield Move(opened, float(rng.uniform(0.4, 0.55)), 0.05)
        yield self._stroke(_with_gripper(over, opened[_GRIPPER]), pause_s=-0.1)
        pick.delivered = bool(np.linalg.norm(self.arm.blocks[block][:2] - bowl) < BOWL_RADIUS_M)

    def _destination(self, lay: np.ndarray) -> np.ndarray:
        """The other bowl; from the table, either."""
        bowls = [np.array(centre) for centre in BOWL_CENTRES_M]
        others = [bowl for bowl in bowls if np.linalg.norm(lay[:2] - bowl) > BOWL_RADIUS_M]
        return others[int(self.rng.integers(len(others)))]

    def _grasp(self, block: str, aim: np.ndarray) -> tuple[np.ndarray, float]:
        """Joint angles at the block and the jaws' direction: of the four that fit its sides, one that is free
        and handy.
        """
        others = [place for name, place in self.arm.blocks.items() if name != block]
        start = _with_gripper(np.array([0.0, -0.3, 0.3, 1.2, 0.0, 0.0]), self.habits.opening_rad)
        best: tuple[float, Reach, float] | None = None
        for quarter in range(4):
            yaw = self.arm.block_yaw(block) + quarter * np.pi / 2
            found = reach(self.arm, aim, yaw, start)
            opens = aim[:2] + 0.035 * np.array([np.cos(yaw), np.sin(yaw)])  # where the moving jaw comes down
            near_block = sum(max(0.0, 0.03 - float(np.linalg.norm(place[:2] - opens))) for place in others)
            near_rim = max(
                (
                    max(0.0, float(np.linalg.norm(opens - centre)) - 0.8 * BOWL_RADIUS_M)
                    for centre in np.array(BOWL_CENTRES_M)
                    if np.linalg.norm(aim[:2] - centre) < BOWL_RADIUS_M
                ),
                default=0.0,
            )
            cost = (
                400 * found.error_m
                + 60 * (near_block + near_rim)
                + 0.25 * abs(found.position[4] - self._command[4])
                + 0.25 * abs(found.position[4])
            )
            cost += 0.5 * (self.arm.blocked(found.position) is not None) + self.rng.exponential(0.1)
            if best is None or cost < best[0]:
                best = (cost, found, yaw)
        assert best is not None
        return best[1].position, best[2]

    def _let_go(self, drop: np.ndarray, yaw: float, held: np.ndarray) -> tuple[Reach, float]:
        """Where to open the gripper: the jaws keep their direction or turn on the way, as far as the wrist
        allows.
        """
        options = [yaw + float(turn) for turn in self.rng.normal(0, 0.8, 3)]
        found = [(reach(self.arm, drop, option, held), option) for option in options]
        return min(found, key=lambda one: 100 * one[0].error_m + abs(one[0].position[4] - held[4]))

    def _over(self, place: np.ndarray, yaw: float, low: np.ndarray, height_m: float) -> np.ndarray:
        return reach(self.arm, place + np.array([0.0, 0.0, height_m]), yaw, low).position

    def _hesitate(self) -> float:
        return float(min(self.rng.exponential(self.habits.hesitation_s), 1.2))

    def _stroke(self, goal: np.ndarray, *, pause_s: float = 0.0, slowness: float = 1.0) -> Move:
        """A move whose fastest joint peaks at this person's speed."""
        farthest = float(np.abs(goal - self._command).max())
        seconds = (
            PEAK_OF_MINIMUM_JERK
            * farthest
            / self.habits.peak_speed_rad_s
            * slowness
            * self.rng.uniform(0.9, 1.15)
        )
        return Move(goal, max(0.35, seconds), pause_s)


@dataclass(frozen=True)
class _Tremor:
    """A few slow sinusoids a joint: smooth, small, never the same twice."""

    frequency_hz: np.ndarray = field(repr=False)
    phase: np.ndarray = field(repr=False)
    amplitude: np.ndarray = field(repr=False)

    @classmethod
    def draw(cls, rng: np.random.Generator, rms_rad: float, waves: int = 4) -> _Tremor:
        weights = rng.uniform(0.3, 1.0, (waves, 6))
        amplitude = rms_rad * np.sqrt(2) * weights / np.sqrt((weights**2).sum(0))
        return cls(rng.uniform(0.3, 3.0, (waves, 6)), rng.uniform(0, 2 * np.pi, (waves, 6)), amplitude)

    def at(self, time_s: float) -> np.ndarray:
        return (self.amplitude * np.sin(2 * np.pi * self.frequency_hz * time_s + self.phase)).sum(axis=0)


def _with_gripper(position: np.ndarray, gripper_rad: float) -> np.ndarray:
    position = position.copy()
    position[_GRIPPER] = gripper_rad
    return position


def _free_start(arm: SimArm, rng: np.random.Generator) -> np.ndarray:
    """A pose about the rest pose that touches nothing."""
    for _attempt in range(100):
        pose = np.array(REST_POSITION) + rng.normal(0, _START_SPREAD_RAD)
        pose = np.clip(pose, arm.limits[:, 0] + 0.05, arm.limits[:, 1] - 0.05)
        if arm.blocked(pose) is None:
            return pose
    return np.array(REST_POSITION)


def _require_scene(arm: SimArm) -> None:
    """Demonstrations need the blocks and the grasp point; another model may not have them."""
    missing = [f"joint {name!r}" for name in BLOCK_NAMES if name not in arm.blocks]
    if mujoco.mj_name2id(arm.model, mujoco.mjtObj.mjOBJ_SITE.value, "grasp") < 0:
        missing.append("site 'grasp'")
    if missing:
        raise InputError(
            arm.where,
            f"has no {missing[0]}, which demonstrations need",
            "add free bodies and the site under these names, or record walks",
        )
