"""The joint loop on an emulated arm: what it hands on, what it calls a fault, and when it stops the arm."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hardware.drivers import LONGEST_STEP_S, Follow, Hold, Teleop
from hardware.safety import SafetyLimits
from hardware.trajectories import Glide
from sim.bus_faults import BusFaults
from tests.lock_step import PATIENT, PERIOD_NS, LockStep, lock_step

pytestmark = pytest.mark.realtime

START = np.array([0.2, -0.6, 0.5, 0.6, 0.1, 0.4])
RAISED = START + np.array([0.3, -0.1, 0.1, 0.2, -0.4, 0.3])


def kinds(run: LockStep) -> Counter[str]:
    return Counter(kind for kind, _ in run.notes.faults)


def powered(run: LockStep) -> LockStep:
    run.power(START)
    return run


def test_watching_reads_every_cycle_and_writes_nothing(tmp_path: Path) -> None:
    with lock_step(tmp_path) as run:
        run.run(101)
        assert len(run.notes.samples) + sum(run.loop.faults.values()) == 100  # the last waits to be confirmed
        assert len(run.notes.samples) > 90 and run.notes.targets == []
        assert set(run.bus.received) <= {1, 2, 0x82}
        assert all(not servo.writes for servo in run.bus.servos.values())


def test_an_arm_that_is_sent_somewhere_goes_there_and_the_sink_gets_what_was_really_sent(
    tmp_path: Path,
) -> None:
    with lock_step(tmp_path) as run:
        powered(run).drive(Follow(Glide(np.stack([START, RAISED]))))
        run.run(50)
        np.testing.assert_allclose(run.loop.latest.position, RAISED, atol=0.03)
        tick = 2 * np.pi / 4096
        np.testing.assert_allclose(run.notes.targets[-1], RAISED, atol=tick)
        in_ticks = run.notes.targets[-1] / tick - run.notes.targets[0] / tick
        np.testing.assert_allclose(in_ticks, np.round(in_ticks), atol=1e-6)  # whole ticks apart


def test_a_lost_reply_marks_a_sample_and_the_stream_goes_on(tmp_path: Path) -> None:
    with lock_step(tmp_path) as run:
        run.run(20)
        before = len(run.notes.samples)
        for _ in range(5):
            run.bus.inject("lost", 3)
            run.run(20)
        assert sum(run.loop.faults.values()) >= 5 or run.loop.arm.bus.faults.total() >= 5
        assert len(run.notes.samples) > before + 80 and run.loop.lost is None


def test_error_bits_are_faults_that_name_the_joint_once(tmp_path: Path) -> None:
    with lock_step(tmp_path) as run:
        run.run(10)
        run.bus.servos[4].raise_flags("voltage")
        run.run(50)
        run.bus.servos[4].clear_flags()
        run.run(10)
        run.bus.servos[4].raise_flags("voltage")
        run.run(10)
        told = [message for kind, message in run.notes.faults if kind == "servo_voltage"]
        assert told == ["the servo of wrist_flex reports voltage"] * 2


def test_an_overloaded_servo_stops_the_arm_where_it_is(tmp_path: Path) -> None:
    with lock_step(tmp_path) as run:
        powered(run)
        run.drive(Follow(Glide(np.stack([START, RAISED]))), cycles=60)
        run.bus.servos[2].raise_flags("overload")
        run.run(20)
        assert run.loop.trip is not None
        assert (run.loop.trip.kind, run.loop.trip.joint) == ("servo_error", "shoulder_lift")
        assert isinstance(run.loop.driver, Hold) and kinds(run)["stopped_servo_error"] == 1
        np.testing.assert_allclose(run.notes.targets[-1], run.loop.driver.target, atol=0.002)
        assert np.abs(run.notes.targets[-1] - RAISED).max() > 0.05


def test_a_joint_that_is_held_by_something_trips_before_it_burns(tmp_path: Path) -> None:
    limits = SafetyLimits(blind_s=5.0, tracking_rad=0.3)
    with lock_step(tmp_path, limits) as run:
        powered(run)
        run.bus.servos[1].set("Torque_Limit", 0)  # as good as held: it cannot go where it is sent
        run.drive(Follow(Glide(np.stack([START, START + np.eye(6)[0] * 1.2]))), cycles=500)
        assert run.loop.trip is not None and run.loop.trip.kind == "stall"
        assert run.loop.trip.joint == "shoulder_pan"


def test_a_servo_that_goes_silent_is_named(tmp_path: Path) -> None:
    with lock_step(tmp_path, SafetyLimits(blind_s=1.5)) as run:
        powered(run)
        run.bus.servos[5].dead = True
        run.run(200)
        assert run.loop.trip is not None and run.loop.trip.kind == "bus_silent"
        assert list(run.loop.last_silent) == ["wrist_roll"]
        assert ("servo_silent", "no answer from wrist_roll") in run.notes.faults


def test_a_pulled_cable_ends_the_loop_and_says_so(tmp_path: Path) -> None:
    with lock_step(tmp_path) as run:
        run.run(10)
        run.bus.unplug()
        run.run(10)
        assert run.loop.lost is not None and kinds(run)["bus_lost"] == 1
        assert run.bus.port in str(run.loop.lost)


def test_a_follower_catches_up_slowly_and_then_keeps_to_its_leader(tmp_path: Path) -> None:
    (tmp_path / "leader").mkdir()
    with lock_step(tmp_path) as run, lock_step(tmp_path / "leader", PATIENT) as leader:
        powered(run)
        leader.power(RAISED)
        driver = Teleop(leader.arm, START, velocity_rad_s=2.0)
        run.drive(driver, cycles=40)
        assert not driver.caught_up
        steps = np.abs(np.diff(run.notes.targets[-40:], axis=0)).max()
        assert steps <= 0.6 * PERIOD_NS / 1e9 + 0.002  # a tick more, for the rounding
        run.drive(driver, cycles=160)
        assert driver.caught_up and driver.missed < 20
        leader.loop.drive(Hold(START))
        leader.run(60)
        run.run(60)
        np.testing.assert_allclose(run.loop.latest.position, START, atol=0.06)


@pytest.mark.parametrize("hz", [50.0, 200.0])
def test_the_thread_keeps_its_rate_on_the_real_clock(tmp_path: Path, hz: float) -> None:
    """Only that it reads again and again and can be stopped: how evenly is the benchmark's."""
    import time

    from hardware.joint_loop import JointLoop
    from tests.lock_step import Notes, StepClock

    with lock_step(tmp_path) as run:
        notes = Notes(StepClock())
        loop = JointLoop(run.arm, hz, notes)
        loop.start()
        until = time.monotonic() + 20
        while len(notes.samples) < 20 and time.monotonic() < until:
            time.sleep(0.01)
        loop.stop()
        count = len(notes.samples)
        assert count >= 20
        time.sleep(0.1)
        assert len(notes.samples) == count
        times = np.array([sample.time_ns for sample in notes.samples])
        assert (np.diff(times) > 0).all()


class Leap:
    """A driver that wants to be elsewhere at once."""

    finished = False

    def __init__(self, target: np.ndarray) -> None:
        self.target = target

    def step(self, now_ns: int) -> np.ndarray:
        return self.target


def test_whatever_a_driver_asks_for_no_joint_is_sent_faster_than_allowed(tmp_path: Path) -> None:
    with lock_step(tmp_path) as run:
        powered(run)
        sent = len(run.notes.targets)
        there = START + np.array([1.0, 0, 0, 0, -1.0, 0])
        run.loop.drive(Leap(there))
        run.run(10)
        run.clock.ns += 1_000_000_000  # a cycle that comes a second late catches nothing up
        run.run(60)
        steps = np.abs(np.diff(run.notes.targets[sent - 1 :], axis=0)).max(axis=1)
        tick = 2 * np.pi / 4096
        assert (steps[:10] <= 5.0 * PERIOD_NS / 1e9 + tick).all()
        assert steps.max() <= 5.0 * LONGEST_STEP_S + tick
        np.testing.assert_allclose(run.notes.targets[-1], there, atol=tick)


def test_a_blind_arm_is_held_without_a_jump(tmp_path: Path) -> None:
    with lock_step(tmp_path, SafetyLimits(blind_s=0.25)) as run:
        powered(run)
        there = START + np.array([1.0, 0, 0, 0, -1.0, 0])
        run.drive(Follow(Glide(np.stack([START, there]), velocity_rad_s=3.0)), cycles=30)
        sent = len(run.notes.targets)
        run.bus.set_faults(BusFaults(lost=1.0))  # it hears, and is not heard
        run.run(60)
        assert run.loop.trip is not None and run.loop.trip.kind == "bus_silent"
        steps = np.abs(np.diff(run.notes.targets[sent - 1 :], axis=0)).max()
        assert steps < 0.05


def test_a_bus_that_is_deaf_for_a_moment_makes_the_motion_wait(tmp_path: Path) -> None:
    with lock_step(tmp_path, SafetyLimits(blind_s=1.0)) as run:
        powered(run)
        there = START + np.array([1.0, 0, 0, 0, -1.0, 0])
        run.drive(Follow(Glide(np.stack([START, there]), velocity_rad_s=3.0)), cycles=30)
        run.bus.hang()
        run.run(20)
        run.bus.hang(False)
        run.run(150)
        assert run.loop.trip is None
        assert np.abs(np.diff(run.notes.targets, axis=0)).max() <= 3.0 * LONGEST_STEP_S + 0.01


def test_after_a_trip_no_motion_can_be_begun(tmp_path: Path) -> None:
    with lock_step(tmp_path) as run:
        powered(run)
        run.bus.servos[2].raise_flags("overload")
        run.run(5)
        assert run.loop.trip is not None
        run.loop.drive(Follow(Glide(np.stack([START, RAISED]))))
        assert isinstance(run.loop.driver, Hold)
