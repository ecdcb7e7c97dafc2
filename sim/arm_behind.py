"""MuJoCo behind the emulated servo bus: ticks in, physics up to the clock's time, registers out.

`TwinArm` is the arm that the servos move, `LeaderArm` one whose joints simply are where a hand holds them.
Both are an `ArmBehind` (see `sim/servo_bus.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np

from hardware.calibration import Calibration, Motor
from hardware.servo_table import (
    AMPERES_PER_UNIT,
    FULL_TORQUE,
    LOAD_PER_UNIT,
    RADIANS_PER_TICK,
    TICKS_PER_TURN,
    VOLTS_PER_UNIT,
)
from hardware.so101 import JOINT_NAMES, MIDDLE_RAD
from sim.hand import Aim, Mind
from sim.servo import ServoState
from sim.so101 import SimArm

GLIDE_S = 0.02  # a servo takes a new goal over this time, as in sim/record.py
NOISE_TICKS = 0.5  # standard deviation of the encoder, as in sim/record.py
LONGEST_CATCH_UP_S = 5.0  # of physics in one go: a process that slept longer goes on from there

# A 7.4 V supply and the thin daisy chain behind it; the resistance is assumed.
SUPPLY_V, CHAIN_OHM = 7.4, 0.15
# A servo of this kind holding 1.47 Nm rose to 48 deg C within ten minutes and stayed there
# (TheRobotStudio/SO-ARM100 issue 134). From a room of 25 deg C, and at the 1.35 A that we estimate for it,
# that is 12.6 deg C a squared ampere; the time constant, a third of the ten minutes, is assumed.
ROOM_C, HEATING_C_A2, WARMING_S = 25.0, 12.6, 200.0


class Encoders:
    """From the model's angles to what the servos' encoders report, and back, by a calibration.

    A joint's calibrated middle is the middle of the model's range.

    Parameters
    ----------
    calibration : in LeRobot's new form, with the six joints of the arm.
    rng : of the encoders' noise.
    """

    def __init__(self, calibration: Calibration, rng: np.random.Generator) -> None:
        motors = [calibration.motor(name) for name in JOINT_NAMES]
        self.ids = [motor.id for motor in motors]
        self._middle = np.array([motor.middle for motor in motors if isinstance(motor, Motor)])
        self._rng = rng

    def ticks(self, position: np.ndarray) -> np.ndarray:
        """What the servos report at these angles (rad, [6]) this time: noisy, rounded, int [6]."""
        exact = self._middle + (position - MIDDLE_RAD) / RADIANS_PER_TICK
        noisy = exact + self._rng.normal(0, NOISE_TICKS, len(exact))
        return np.round(noisy).astype(int) % TICKS_PER_TURN

    def angle(self, servo_id: int, ticks: int) -> tuple[int, float]:
        """The joint's index and its angle in rad at a servo's ticks."""
        joint = self.ids.index(servo_id)
        return joint, float(MIDDLE_RAD[joint] + (ticks - self._middle[joint]) * RADIANS_PER_TICK)


class TwinArm:
    """The simulated arm behind a servo bus. Its methods may be called from several threads.

    The first time it is given is the time its physics starts from. Between two physics steps the angles are
    those of the step before, moved on with its velocities, so that what is read fits the time of reading.

    Parameters
    ----------
    arm : the arm; it is put limp, as servos are that were just switched on.
    calibration : of its servos.
    seed : of the encoders' noise.
    glide_s : time over which a servo goes to a new goal.

    Attributes
    ----------
    hand : whose aim moves the arm while no servo has torque; without one it hangs limp.
    lock : held while the arm is stepped, read or commanded.
    """

    def __init__(
        self, arm: SimArm, calibration: Calibration, seed: int = 0, glide_s: float = GLIDE_S
    ) -> None:
        self.arm, self.glide_s = arm, glide_s
        self.hand: Mind | None = None
        self.lock = threading.RLock()
        self._encoders = Encoders(
            calibration, np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0xE1,)))
        )
        self._step_ns = round(arm.timestep_s * 1e9)
        self._start_ns: int | None = None
        self._now_ns, self._steps = 0, 0
        self._goal, self._share = arm.position, np.zeros(len(JOINT_NAMES))
        self._temperature_c = np.full(len(JOINT_NAMES), ROOM_C)
        arm.set_torque(self._share)

    # -- the servo bus calls these ---------------------------------------------------------------------------

    def advance(self, now_ns: int) -> None:
        """Step the physics up to this time; an earlier time than the last does nothing."""
        with self.lock:
            if self._start_ns is None:
                self._start_ns = self._now_ns = now_ns
            if now_ns <= self._now_ns:
                return
            self._now_ns = now_ns
            due = (now_ns - self._start_ns) // self._step_ns - self._steps
            longest = round(LONGEST_CATCH_UP_S * 1e9) // self._step_ns
            if due > longest:
                self._start_ns += (due - longest) * self._step_ns
                due = longest
            self._step(due)

    def state(self) -> Mapping[int, ServoState]:
        """What each servo measures, by its id."""
        with self.lock:
            ticks = self._encoders.ticks(self.position)
            velocity = np.round(self.arm.velocity / RADIANS_PER_TICK).astype(int)
            load = np.round(self.arm.load / LOAD_PER_UNIT).astype(int)
            amperes = self.arm.current
            current = np.round(amperes / AMPERES_PER_UNIT).astype(int)
            volts = SUPPLY_V - CHAIN_OHM * float(np.abs(amperes).sum())
            warmth = np.round(self._temperature_c).astype(int)
        return {
            number: ServoState(
                position=int(ticks[joint]),
                velocity=int(velocity[joint]),
                load=int(load[joint]),
                current=int(current[joint]),
                voltage=round(volts / VOLTS_PER_UNIT),
                temperature=int(warmth[joint]),
            )
            for joint, number in enumerate(self._encoders.ids)
        }

    def command(self, servo_id: int, goal_ticks: int, torque_enabled: bool, torque_limit: int) -> None:
        """Aim a servo at `goal_ticks` with `torque_limit` (0.1 %) of its torque, or let it go limp."""
        with self.lock:
            joint, angle = self._encoders.angle(servo_id, goal_ticks)
            share = min(torque_limit, FULL_TORQUE) / FULL_TORQUE if torque_enabled else 0.0
            self._goal[joint], self._share[joint] = angle, share
            self.arm.set_target(self._goal, self.glide_s)  # before the torque: a limp servo needs no glide
            self.arm.set_torque(self._share)

    # -- the cameras and tests call these --------------------------------------------------------------------

    @property
    def position(self) -> np.ndarray:
        """Angles of the joints at the time last given, rad, float64 [6]; without noise."""
        with self.lock:
            start_ns = self._now_ns if self._start_ns is None else self._start_ns
            ahead_s = (self._now_ns - start_ns - self._steps * self._step_ns) / 1e9
            return self.arm.position + self.arm.velocity * ahead_s

    @property
    def time_s(self) -> float:
        """Of the physics, since the first time given."""
        return self._steps * self.arm.timestep_s

    @property
    def limp(self) -> bool:
        """Whether no servo has torque."""
        return not self._share.any()

    # -- physics ---------------------------------------------------------------------------------------------

    def _step(self, count: int) -> None:
        if count <= 0:
            return
        aim = self.hand.aim if self.hand is not None and self.limp else None
        if aim is None:
            self.arm.push(np.zeros(len(JOINT_NAMES)))
            self.arm.step(count)
        else:
            for step in range(count):
                time_s = self.time_s + step * self.arm.timestep_s
                self.arm.push(aim.push(time_s, self.arm.position, self.arm.velocity))
                self.arm.step()
        self._steps += count
        # T' = (room + heating I^2 - T) / warming, solved over these steps with the current as it is now
        settled = ROOM_C + HEATING_C_A2 * self.arm.current**2
        left = np.exp(-count * self.arm.timestep_s / WARMING_S)
        self._temperature_c = settled + (self._temperature_c - settled) * left


class LeaderArm:
    """A leader arm: six encoders that a hand turns. No physics: its joints are where the hand aims.

    Parameters
    ----------
    mind : whose hand it is; the leader starts where the arm that is to follow stands.
    calibration : of the leader's servos.
    """

    def __init__(self, mind: Mind, calibration: Calibration, seed: int = 0) -> None:
        self._mind = mind
        self._encoders = Encoders(
            calibration, np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0xE2,)))
        )
        self._aim = Aim(0.0, mind.twin.position, np.zeros(len(JOINT_NAMES)))

    @property
    def position(self) -> np.ndarray:
        """Angles of its joints, rad, float64 [6]; without noise."""
        return self._aim.at(self._mind.twin.time_s)

    def advance(self, now_ns: int) -> None:
        """Bring the arm that follows, and with it the time, up to this one."""
        self._mind.twin.advance(now_ns)
        self._aim = self._mind.aim or self._aim

    def state(self) -> Mapping[int, ServoState]:
        """What each servo measures, by its id: no load, since none of them works."""
        ticks = self._encoders.ticks(self.position)
        velocity = np.round(self._aim.pace / RADIANS_PER_TICK).astype(int)
        return {
            number: ServoState(
                position=int(ticks[joint]),
                velocity=int(velocity[joint]),
                voltage=round(SUPPLY_V / VOLTS_PER_UNIT),
                temperature=round(ROOM_C),
            )
            for joint, number in enumerate(self._encoders.ids)
        }

    def command(self, servo_id: int, goal_ticks: int, torque_enabled: bool, torque_limit: int) -> None:
        """Does nothing: the hand is stronger than the servos of a leader, whose gears were taken out."""
