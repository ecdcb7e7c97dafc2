"""The joint stream: read all servos, command them, watch over them, a hundred times a second."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import numpy as np

from hardware.arm import Arm, JointSample
from hardware.bus import BusFault, BusLost
from hardware.drivers import LONGEST_STEP_S, Driver, Hold, Teleop, Watch
from hardware.pace import Pace
from hardware.safety import Guard, Trip

SHARE_FOR_READING = 0.8  # of the period; retries end there, so that a bad cycle never eats the next
ASK_WHO_IS_SILENT_S = 1.0
LEADER_GONE_S = 3.0


class Clock(Protocol):
    """Monotonic time and waiting for it; tests run the same loop on simulated time."""

    def now_ns(self) -> int: ...

    def wait_until(self, time_ns: int) -> None: ...


class MonotonicClock:
    """The machine's CLOCK_MONOTONIC."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def wait_until(self, time_ns: int) -> None:
        rest_s = (time_ns - time.monotonic_ns()) / 1e9
        if rest_s > 0:
            time.sleep(rest_s)


class Sink(Protocol):
    """Where the loop's samples go; `hardware.tape.Tape` is one."""

    def joints(self, sample: JointSample) -> None: ...

    def sent(self, time_ns: int, target: np.ndarray) -> None: ...

    def fault(self, kind: str, stream: str, message: str, time_ns: int) -> None: ...


class JointLoop:
    """Runs the bus of one arm in a thread of its own.

    Each cycle confirms and hands on the sample of the cycle before (a block counts once the line stayed
    silent behind it), reads the next, asks the driver where to go, sends that and checks the limits. A
    failed read is a fault and leaves no sample. When a limit is passed the arm is held where it is and `trip`
    says why; who runs the loop decides what then.

    Parameters
    ----------
    arm : the arm; only this thread touches it while the loop runs, unless in `between_cycles`.
    hz : cycles a second.
    sink : takes samples, targets and faults.
    guard : limits of a moving arm; None for one that is not commanded.
    clock : time; the machine's by default.
    """

    def __init__(
        self, arm: Arm, hz: float, sink: Sink, guard: Guard | None = None, clock: Clock | None = None
    ) -> None:
        self.arm, self.sink, self.guard = arm, sink, guard
        self.clock = clock or MonotonicClock()
        self.period_ns = round(1e9 / hz)
        self.pace = Pace()
        self.latest: JointSample | None = None
        self.trip: Trip | None = None
        self.lost: BusLost | None = None
        self.crash: Exception | None = None  # of the thread itself
        self.faults: Counter[str] = Counter()
        self.overruns = 0
        self.cycles = 0
        self.last_silent: tuple[str, ...] = ()
        self._driver: Driver = Watch()
        self._target: np.ndarray | None = None
        self._sent_ns: int | None = None
        self._pending: JointSample | None = None
        self._errors: set[tuple[str, str]] = set()
        self._good_ns: int | None = None
        self._asked_ns = 0
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read, at once and until `stop`."""
        self._thread = threading.Thread(target=self._run, name="joints", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the cycle in progress; the bus is free then."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def between_cycles(self, act: Callable[[Arm], None]) -> None:
        """Let `act` use the arm between two cycles."""
        with self._turn:
            self._confirm()
            act(self.arm)

    def drive(self, driver: Driver) -> None:
        """Hand the arm to another driver from the next cycle on; after a trip only to rest."""
        with self._turn:
            if self.trip is not None and not isinstance(driver, (Hold, Watch)):
                return  # whoever decided this did not know yet
            self._driver = driver
            if isinstance(driver, Watch):
                self._target = None
            if self.guard is not None:
                self.guard.start(self.clock.now_ns())

    @property
    def driver(self) -> Driver:
        """What commands the arm now."""
        return self._driver

    @property
    def target(self) -> np.ndarray | None:
        """Where the arm was last sent, rad [J], or None while it is not commanded."""
        return self._target

    @property
    def silent_s(self) -> float:
        """Seconds since the last good sample; 0 before the first."""
        return 0.0 if self._good_ns is None else (self.clock.now_ns() - self._good_ns) / 1e9

    def _run(self) -> None:
        due = self.clock.now_ns()
        while not self._stop.is_set() and self.lost is None:
            try:
                with self._turn:
                    self.cycle()
            except Exception as error:  # whoever runs the loop must hear of it: the arm may be moving
                self.crash = error
                return
            due += self.period_ns
            late = self.clock.now_ns() - due
            if late > self.period_ns:  # skip what cannot be caught up with
                missed = late // self.period_ns
                self.overruns += missed
                due += missed * self.period_ns
            self.clock.wait_until(due)

    # -- one cycle -------------------------------------------------------------------------------------------

    def cycle(self) -> None:
        """One period's work; called by the thread, or by a test step by step."""
        now_ns = self.clock.now_ns()
        self.cycles += 1
        try:
            self._confirm()
            sample = self._read(now_ns)
            self._command(sample, now_ns)
        except BusLost as error:
            self.lost = error
            self._fault("bus_lost", str(error), now_ns)

    def _confirm(self) -> None:
        pending, self._pending = self._pending, None
        if self.arm.confirm():
            if pending is not None:
                self.sink.joints(pending)
                self.pace.add(pending.time_ns)
        elif pending is not None:
            self._fault("bus_late", "bytes came after the reading: it is left out", pending.time_ns)

    def _read(self, now_ns: int) -> JointSample | None:
        try:
            sample = self.arm.read(deadline_ns=time.monotonic_ns() + int(SHARE_FOR_READING * self.period_ns))
        except BusLost:
            raise
        except BusFault as error:
            self._fault(f"bus_{error.kind}", str(error), now_ns)
            self._ask_who_is_silent(now_ns)
            return None
        self._pending = self.latest = sample
        self._good_ns = now_ns
        errors = {(joint, name) for joint, names in sample.error.items() for name in names}
        for joint, name in sorted(errors - self._errors):
            self._fault(
                f"servo_{name.replace('-', '_')}", f"the servo of {joint} reports {name}", sample.time_ns
            )
        self._errors = errors
        return sample

    def _ask_who_is_silent(self, now_ns: int) -> None:
        """After a while without a reading, ping each servo once: the one that does not answer has a name."""
        if self._good_ns is None or now_ns - max(self._good_ns, self._asked_ns) < ASK_WHO_IS_SILENT_S * 1e9:
            return
        self._asked_ns = now_ns
        self.last_silent = self.arm.silent_joints()
        if self.last_silent:
            self._fault("servo_silent", f"no answer from {', '.join(self.last_silent)}", now_ns)

    def _command(self, sample: JointSample | None, now_ns: int) -> None:
        driver = self._driver
        if isinstance(driver, Watch):
            return
        if self.guard is not None and self.trip is None:
            trip = self.guard.check(sample, self._target, now_ns)
            if trip is not None:
                self._trip(trip, now_ns)
                return
        if sample is None:
            return  # blind: the motion waits for the next reading
        try:
            target = driver.step(now_ns)
        except BusLost as error:  # the leader's; the arm's own bus is well
            self._trip(Trip("leader_lost", "", str(error)), now_ns)
            return
        if isinstance(driver, Teleop) and driver.silent_s > LEADER_GONE_S and self.trip is None:
            self._trip(Trip("leader_silent", "", "the leader arm does not answer"), now_ns)
            return
        if target is None:
            return
        self._send(self._within_speed(target, now_ns), now_ns)

    def _within_speed(self, target: np.ndarray, now_ns: int) -> np.ndarray:
        """The target, or as much of the way to it as the limit on speed allows since the last was sent."""
        if self.guard is None or self._target is None or self._sent_ns is None:
            return target
        passed_s = min((now_ns - self._sent_ns) / 1e9, LONGEST_STEP_S)
        step = self.guard.limits.sent_rad_s * passed_s
        return self._target + np.clip(target - self._target, -step, step)

    def _send(self, target: np.ndarray, now_ns: int) -> None:
        """Send it and hand on what was really sent: nothing, where the line is not free in this cycle."""
        try:
            self._target = self.arm.send(target)
            self._sent_ns = now_ns
        except BusLost:
            raise
        except BusFault as error:
            self._fault(f"bus_{error.kind}", f"nothing was sent: {error}", now_ns)
            return
        self.sink.sent(self.clock.now_ns(), self._target)

    def _trip(self, trip: Trip, now_ns: int) -> None:
        """Stop the arm where it was last seen or, when it is not seen any more, where it was last sent."""
        here = self._target
        if self.latest is not None and trip.kind != "bus_silent":
            here = self.latest.position
        assert here is not None  # nothing trips before the first reading or target
        self._driver = Hold(here)
        self._target = here
        self.trip = trip
        self._send(here, now_ns)
        self._fault(f"stopped_{trip.kind}", str(trip), now_ns)

    def _fault(self, kind: str, message: str, time_ns: int) -> None:
        self.faults[kind] += 1
        self.sink.fault(kind, "joints", message, time_ns)
