"""The recorder's joint loop on the simulated arm, over real bytes on a pty, in simulated time.

Each cycle of the loop moves the physics by exactly one joint period, so an hour of walk takes minutes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hardware.arm import Arm, JointSample
from hardware.bus import ServoBus
from hardware.drivers import Driver, Hold, Watch
from hardware.joint_loop import JointLoop
from hardware.safety import Guard, SafetyLimits
from sim.arm_behind import TwinArm
from sim.servo import calibrated_servos
from sim.servo_bus import LockStepClock, ServoBusEmulator
from sim.so101 import SimArm
from sim.twin_calibration import twin_calibration

PERIOD_NS = 10_000_000
# Real time passes while simulated time stands, so only the limits that are not about time are the defaults.
PATIENT = SafetyLimits(blind_s=5.0)


class StepClock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        return self.ns

    def wait_until(self, time_ns: int) -> None:
        self.ns = time_ns


@dataclass
class Notes:
    """A sink that keeps everything, samples by the cycle that read them."""

    clock: StepClock
    cycles_ns: list[int] = field(default_factory=list)
    samples: list[JointSample] = field(default_factory=list)
    targets: list[np.ndarray] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)

    def joints(self, sample: JointSample) -> None:
        self.cycles_ns.append(self.clock.ns - PERIOD_NS)  # a sample is handed on one cycle after its reading
        self.samples.append(sample)

    def sent(self, time_ns: int, target: np.ndarray) -> None:
        self.targets.append(target)

    def fault(self, kind: str, stream: str, message: str, time_ns: int) -> None:
        self.faults.append((kind, message))

    @property
    def position(self) -> np.ndarray:
        """rad, float64 [n, 6]."""
        return np.array([sample.position for sample in self.samples])


class LockStep:
    """The loop, the arm and the emulator, run cycle by cycle."""

    def __init__(
        self,
        loop: JointLoop,
        clock: StepClock,
        notes: Notes,
        twin: TwinArm,
        bus: ServoBusEmulator,
        steps: LockStepClock,
    ) -> None:
        self.loop, self.clock, self.notes, self.twin, self.bus = loop, clock, notes, twin, bus
        self.steps = steps
        self.arm = loop.arm

    def run(self, cycles: int) -> None:
        """So many cycles, or fewer when something trips."""
        for _ in range(cycles):
            busy = self.loop.faults["bus_busy"]
            self.loop.cycle()
            self.clock.ns += PERIOD_NS
            if self.loop.faults["bus_busy"] > busy:
                # Nothing was asked, and the arm moves on all the same. The bus waits in real time, which
                # simulated time must not run ahead of.
                self.steps.tick()
                time.sleep(PERIOD_NS / 1e9)
            if self.loop.trip is not None or self.loop.lost is not None:
                return

    def power(self, position: np.ndarray) -> None:
        """Put the simulated arm somewhere, as somebody's hands would, and switch its torque on there."""
        with self.twin.lock:
            self.twin.arm.reset(None, position)
        self.run(5)
        self.arm.enable_torque()
        self.loop.drive(Hold(position))
        self.run(30)

    def drive(self, driver: Driver, cycles: int = 10**9) -> None:
        """Until the driver is done."""
        self.loop.drive(driver)
        while not driver.finished and cycles > 0 and self.loop.trip is None and self.loop.lost is None:
            self.run(1)
            cycles -= 1

    def let_go(self) -> None:
        """Nothing is commanded any more."""
        self.loop.drive(Watch())


@contextmanager
def lock_step(folder: Path, limits: SafetyLimits = PATIENT) -> Iterator[LockStep]:
    """An emulated arm on a pty and the joint loop on its other end, in simulated time."""
    calibration = twin_calibration(folder / "calibration.json")
    twin = TwinArm(SimArm(), calibration)
    steps = LockStepClock(PERIOD_NS)
    servos = calibrated_servos(calibration)
    with ServoBusEmulator(twin, servos, paced=False, clock=steps, on_read=steps.tick) as bus:
        arm = Arm(ServoBus(bus.port), calibration)
        arm.learn()
        clock = StepClock()
        notes = Notes(clock)
        try:
            loop = JointLoop(arm, 1e9 / PERIOD_NS, notes, Guard(arm.joint_names, limits), clock)
            yield LockStep(loop, clock, notes, twin, bus, steps)
        finally:
            arm.close()
