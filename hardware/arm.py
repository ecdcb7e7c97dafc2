"""An SO-101 on its bus, in radians of the model frame (see `hardware/so101.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from hardware.bus import BusFault, BusLost, ServoBus
from hardware.calibration import Calibration, LegacyMotor, Motor
from hardware.errors import InputError
from hardware.servo_table import (
    AMPERES_PER_UNIT,
    FULL_TORQUE,
    LOAD_PER_UNIT,
    RADIANS_PER_TICK,
    REGISTERS,
    SECONDS_PER_DELAY_UNIT,
    TICKS_PER_TURN,
    VOLTS_PER_UNIT,
    error_names,
)
from hardware.so101 import JOINT_NAMES, Joint, joint

EEPROM_NAMES = tuple(name for name, register in REGISTERS.items() if register.eeprom)
REACH_TICKS = 23  # 2 degrees: how far outside its limits a joint may be when its torque is switched on
RAMP_STEP_S = 0.05

T = TypeVar("T")


@dataclass(frozen=True)
class JointSample:
    """What the joints measured in one transaction; arrays are float64 [J] in the order of the arm's joints.

    Units: ns of CLOCK_MONOTONIC (midpoint of the transaction), rad, rad/s, fraction of the rated torque, A,
    degrees C, V; `ticks` are the position as the servos gave it. `error` names the error bits of each servo
    that reports any.
    """

    time_ns: int
    position: np.ndarray
    velocity: np.ndarray
    load: np.ndarray
    current: np.ndarray
    temperature: np.ndarray
    voltage: np.ndarray
    ticks: np.ndarray
    error: dict[str, tuple[str, ...]]


class Arm:
    """The joints of one arm. Observing (`read`, `confirm`, `learn`, `silent_joints`) writes nothing.

    Parameters
    ----------
    bus : the servo bus; it belongs to the arm from now on.
    calibration : what says which ticks are which angles; with the legacy form the arm can only be observed,
        and its angles are those of that form's zero, not of the model.
    names : the joints, in the order of all arrays.

    Attributes
    ----------
    joint_names, servo_ids : in the order of all arrays.
    limits_rad : where `send` lets the joints go, float64 [J, 2]: the model's range and the calibrated one,
        and, after `learn`, the servos' own position limits.
    commandable : False with a legacy calibration.
    eeprom : what `learn` read, by joint and register name.

    Raises
    ------
    InputError : the calibration lacks a joint, or a name is not a joint of the SO-101.
    """

    def __init__(self, bus: ServoBus, calibration: Calibration, names: Sequence[str] = JOINT_NAMES) -> None:
        self.bus, self.calibration = bus, calibration
        self.joint_names = tuple(names)
        self.motors = [calibration.motor(name) for name in names]
        self.servo_ids = tuple(motor.id for motor in self.motors)
        self.commandable = calibration.form == "new"
        self.eeprom: dict[str, dict[str, int]] = {}
        frames = [_frame(motor, _joint(name)) for motor, name in zip(self.motors, names)]
        self._zero_tick = np.array([frame.zero_tick for frame in frames])
        self._rad_per_tick = np.array([frame.rad_per_tick for frame in frames])
        self._reach = np.array([frame.reach for frame in frames])  # ticks, [J, 2]
        self._direction = np.sign(self._rad_per_tick)
        self._full_torque: list[int] = []
        self._torque_was_on = False

    # -- observing ---------------------------------------------------------------------------------------

    @property
    def limits_rad(self) -> np.ndarray:
        """See the class."""
        ends = (self._reach - self._zero_tick[:, None]) * self._rad_per_tick[:, None]
        return np.sort(ends, axis=1)

    def read(self, deadline_ns: int | None = None) -> JointSample:
        """All joints in one transaction; the sample counts once `confirm` has said so.

        Raises
        ------
        BusFault : after the tries that `deadline_ns` (CLOCK_MONOTONIC) allows; it names the joints.
        BusLost : the port is gone.
        """
        block = self._named(self.bus.read_block, self.servo_ids, deadline_ns)
        errors = block.error | block.status
        return JointSample(
            time_ns=block.time_ns,
            position=(block.position - self._zero_tick) * self._rad_per_tick,
            velocity=block.velocity * self._rad_per_tick,
            load=block.load * LOAD_PER_UNIT * self._direction,
            current=block.current * AMPERES_PER_UNIT * self._direction,
            temperature=block.temperature.astype(np.float64),
            voltage=block.voltage * VOLTS_PER_UNIT,
            ticks=block.position.astype(np.float64),
            error={
                self.joint_names[index]: error_names(int(errors[index])) for index in np.flatnonzero(errors)
            },
        )

    def confirm(self) -> bool:
        """Whether the last sample counts, as the line stayed silent behind it; asked before the next
        transaction.
        """
        return self.bus.confirm()

    def silent_joints(self) -> tuple[str, ...]:
        """Pings each servo; the joints whose servo does not answer. BusLost."""
        return tuple(
            name
            for name, servo_id in zip(self.joint_names, self.servo_ids)
            if self.bus.ping(servo_id) is None
        )

    def learn(self) -> None:
        """Read each servo's EEPROM: its limits narrow `limits_rad`, its return delay is allowed for.

        A servo that does not answer is left out of `eeprom`. BusLost.
        """
        self.eeprom = {}
        for index, (name, servo_id) in enumerate(zip(self.joint_names, self.servo_ids)):
            try:
                found = self.bus.read_registers(servo_id, EEPROM_NAMES)
            except BusLost:
                raise
            except BusFault:
                continue
            self.eeprom[name] = found
            lower = max(self._reach[index, 0], found["Min_Position_Limit"])
            upper = min(self._reach[index, 1], found["Max_Position_Limit"])
            if lower < upper:  # else they are another calibration's: preflight says so
                self._reach[index] = lower, upper
        delays = [found["Return_Delay_Time"] for found in self.eeprom.values()]
        self.bus.return_delay_s = max(delays, default=0) * SECONDS_PER_DELAY_UNIT

    # -- commanding --------------------------------------------------------------------------------------

    def send(self, target_rad: np.ndarray) -> np.ndarray:
        """Send all joints to `target_rad` [J], clipped to `limits_rad`.

        Returns
        -------
        What was really sent, rad, float64 [J]: the angles of whole ticks.

        Raises
        ------
        InputError : the arm cannot be commanded.
        ValueError : a target that is not finite, or not one a joint.
        BusFault, BusLost : nothing was sent.
        """
        self._require_commandable()
        target = np.asarray(target_rad, np.float64)
        if target.shape != self._zero_tick.shape or not np.isfinite(target).all():
            raise ValueError(f"no target for {', '.join(self.joint_names)}: {target_rad}")
        lower, upper = np.ceil(self._reach[:, 0]), np.floor(self._reach[:, 1])
        return self._send_ticks(np.clip(np.rint(target / self._rad_per_tick + self._zero_tick), lower, upper))

    def hold(self) -> np.ndarray:
        """Send the joints to where they are now; returns that, rad [J]. InputError, BusFault, BusLost."""
        self._require_commandable()
        present = self._named(self.bus.read_block, self.servo_ids).position
        return self._send_ticks(np.clip(present, 0, TICKS_PER_TURN - 1))

    def enable_torque(self, share: float = 1.0) -> None:
        """Switch the torque on, joint by joint, with the present position as goal: nothing jumps.

        Parameters
        ----------
        share : of each servo's own greatest torque, 0..1.

        Raises
        ------
        InputError : the arm cannot be commanded, or a joint is so far outside its limits that it would jump.
        BusFault : a servo does not do as told; the torque of the joints before it is on.
        """
        self._require_commandable()
        self._full_torque = self._known_torque()
        goals = self._present_goals()
        self._torque_was_on = True
        for servo_id, goal, limit in zip(self.servo_ids, goals, self._torque_limits(share)):
            for register, value in (("Goal_Position", goal), ("Torque_Limit", limit), ("Torque_Enable", 1)):
                self._named(self.bus.write, servo_id, register, value)

    def set_torque_limit(self, share: float) -> None:
        """Let each servo use at most `share` (0..1) of its own greatest torque.

        InputError, BusFault, BusLost.
        """
        self._require_commandable()
        self._full_torque = self._full_torque or self._known_torque()
        self.bus.sync_write("Torque_Limit", dict(zip(self.servo_ids, self._torque_limits(share))))

    def release(self, seconds: float = 1.0, sleep: Callable[[float], None] = time.sleep) -> tuple[str, ...]:
        """Let go of the arm: the torque fades over `seconds`, is switched off, and its limit is restored.

        Nothing is written where this object never switched torque on. Each joint is let go whatever happens
        to the others on the way, and no bus fault is raised.

        Returns
        -------
        The joints of which it is not known that they let go.
        """
        if not self._torque_was_on:
            return ()
        steps = max(1, round(seconds / RAMP_STEP_S))
        try:
            for step in range(1, steps + 1):
                self._try(self.set_torque_limit, 1 - step / steps)
                sleep(seconds / steps)
        finally:
            held = self._let_go()
        return held

    def close(self) -> None:
        """Give the port back; the torque stays as it is."""
        self.bus.close()

    # -- inside ------------------------------------------------------------------------------------------

    def _require_commandable(self) -> None:
        if not self.commandable:
            raise InputError(
                self.calibration.where,
                "is a legacy calibration, whose zero is not the model's: the arm can be observed, not moved",
                "calibrate the arm with LeRobot 0.3 or newer",
            )

    def _send_ticks(self, ticks: np.ndarray) -> np.ndarray:
        goals = {servo_id: int(tick) for servo_id, tick in zip(self.servo_ids, ticks)}
        self.bus.sync_write("Goal_Position", goals)
        return (ticks - self._zero_tick) * self._rad_per_tick

    def _present_goals(self) -> list[int]:
        """The present positions as goals, ticks; InputError names the joints outside their limits."""
        present = self._named(self.bus.read_block, self.servo_ids).position
        lower, upper = np.ceil(self._reach[:, 0]), np.floor(self._reach[:, 1])
        goals = np.clip(present, lower, upper)
        away = np.flatnonzero(np.abs(goals - present) > REACH_TICKS)
        if len(away):
            degrees = np.abs(goals - present) * 360 / TICKS_PER_TURN
            beyond = ", ".join(f"{self.joint_names[index]} by {degrees[index]:.0f}" for index in away)
            raise InputError(
                self.bus.port,
                f"outside their limits are {beyond} degrees: they would jump",
                "move them by hand into their range",
            )
        return [int(goal) for goal in goals]

    def _known_torque(self) -> list[int]:
        """Of each servo, the torque limit that it loads when it is switched on, 0.1 %. BusFault, BusLost."""
        if len(self.eeprom) < len(self.joint_names):
            self.learn()
        unknown = [name for name in self.joint_names if name not in self.eeprom]
        if unknown:
            ids = [self.servo_ids[self.joint_names.index(name)] for name in unknown]
            raise BusFault("timeout", ids, f"no answer from {', '.join(unknown)}")
        return [min(self.eeprom[name]["Max_Torque_Limit"], FULL_TORQUE) for name in self.joint_names]

    def _torque_limits(self, share: float) -> list[int]:
        if not 0 <= share <= 1:
            raise ValueError(f"{share} is no share of the torque")
        return [round(share * full) for full in self._full_torque]

    def _let_go(self) -> tuple[str, ...]:
        """Torque off, and its limit as it was; returns the joints that did not acknowledge."""
        held = list(self.joint_names)
        # Once to all, as a servo whose answers are not heard may still hear, and then to each.
        self._try(self.bus.sync_write, "Torque_Enable", dict.fromkeys(self.servo_ids, 0))
        for name, servo_id, full in zip(self.joint_names, self.servo_ids, self._full_torque):
            if self._try(self.bus.write, servo_id, "Torque_Enable", 0):
                held.remove(name)
                self._try(self.bus.write, servo_id, "Torque_Limit", full)
        self._torque_was_on = bool(held)
        return tuple(held)

    def _try(self, act: Callable[..., object], *arguments: object) -> bool:
        try:
            act(*arguments)
        except BusFault:
            return False
        return True

    def _named(self, act: Callable[..., T], *arguments: object) -> T:
        """`act`, with the joints named in its fault."""
        try:
            return act(*arguments)
        except BusLost:
            raise
        except BusFault as fault:
            who = [name for name, servo_id in zip(self.joint_names, self.servo_ids) if servo_id in fault.ids]
            message = f"{', '.join(who)}: {fault}" if who else str(fault)
            raise BusFault(fault.kind, fault.ids, message) from None


@dataclass(frozen=True)
class _Frame:
    zero_tick: float
    rad_per_tick: float
    reach: tuple[float, float]


def _joint(name: str) -> Joint:
    found = joint(name)
    if found is None:
        raise InputError(name, "is no joint of the SO-101", f"its joints: {', '.join(JOINT_NAMES)}")
    return found


def _frame(motor: Motor | LegacyMotor, known: Joint) -> _Frame:
    """Where a joint's zero and its limits lie, in ticks."""
    if isinstance(motor, LegacyMotor):
        zero, one = motor.from_radians(np.array([0.0, RADIANS_PER_TICK]), "ticks")
        ends = motor.limits_rad
        ticks = [0.0, TICKS_PER_TURN - 1.0] if ends is None else motor.from_radians(np.array(ends), "ticks")
        sign = 1 if one > zero else -1
        return _Frame(float(zero), sign * RADIANS_PER_TICK, (float(min(ticks)), float(max(ticks))))
    zero_tick = motor.middle - (known.lower + known.upper) / 2 / RADIANS_PER_TICK
    lower, upper = (zero_tick + np.array([known.lower, known.upper]) / RADIANS_PER_TICK).tolist()
    return _Frame(
        zero_tick, RADIANS_PER_TICK, (max(lower, float(motor.range_min)), min(upper, float(motor.range_max)))
    )
