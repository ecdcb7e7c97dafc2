"""The simplest arm behind emulated servos: joints that lag behind their goals, and sag when limp."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sim.servo import ServoCommand, ServoState

LAG_S = 0.06  # of a joint behind its goal
SAG_S = 0.8  # of a limp joint on its way down
HOLDING_LOAD = 80  # 0.1 % of torque: what gravity asks of a joint, and the least that holds it up
LOAD_PER_TICK = 4.0
CURRENT_PER_LOAD = 0.2


class LaggingArm:
    """An `ArmBehind` (see `sim.servo_bus`) without MuJoCo, for tests and benchmarks.

    Parameters
    ----------
    start_ticks : where each servo is at first, by id.
    limp_ticks : where gravity takes it when it is limp; None: it stays where it is.
    """

    def __init__(
        self, start_ticks: Mapping[int, float], limp_ticks: Mapping[int, float] | None = None
    ) -> None:
        self.ticks = dict(start_ticks)
        self._limp_ticks = dict(limp_ticks or {})
        self._velocity = dict.fromkeys(self.ticks, 0.0)
        self._load = dict.fromkeys(self.ticks, 0.0)
        self._commands = {servo: ServoCommand(round(ticks), False, 0) for servo, ticks in self.ticks.items()}
        self._now_ns: int | None = None

    def advance(self, now_ns: int) -> None:
        """Move each joint exactly along its exponential, however long the step."""
        passed_s = 0.0 if self._now_ns is None else (now_ns - self._now_ns) / 1e9
        self._now_ns = now_ns
        if passed_s <= 0:
            return
        for servo, ticks in self.ticks.items():
            command = self._commands[servo]
            holds = command.torque_enabled and command.torque_limit >= HOLDING_LOAD
            aim = command.goal_ticks if holds else self._limp_ticks.get(servo, ticks)
            lag_s = LAG_S if holds else SAG_S
            reached = aim + (ticks - aim) * math.exp(-passed_s / lag_s)
            self.ticks[servo] = reached
            self._velocity[servo] = (aim - reached) / lag_s
            pull = HOLDING_LOAD + LOAD_PER_TICK * (aim - reached) if holds else 0.0
            self._load[servo] = max(-command.torque_limit, min(command.torque_limit, pull))

    def state(self) -> dict[int, ServoState]:
        """What each servo measures, by id."""
        return {
            servo: ServoState(
                round(ticks) % 4096,
                round(self._velocity[servo]),
                round(self._load[servo]),
                round(self._load[servo] * CURRENT_PER_LOAD),
            )
            for servo, ticks in self.ticks.items()
        }

    def command(self, servo_id: int, goal_ticks: int, torque_enabled: bool, torque_limit: int) -> None:
        """From the time it was last advanced to, this joint goes for another goal."""
        self._commands[servo_id] = ServoCommand(goal_ticks, torque_enabled, torque_limit)
