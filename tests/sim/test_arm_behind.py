"""MuJoCo behind the servo bus: ticks, gravity, warmth and time; and the hand that moves the limp arm."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from raw_bus import RawBus

from hardware.calibration import RADIANS_PER_TICK, Calibration, Motor, load_calibration
from hardware.so101 import JOINT_NAMES, LIMITS_RAD, MIDDLE_RAD
from hardware.trajectories import Motion
from sim.arm_behind import LONGEST_CATCH_UP_S, NOISE_TICKS, SUPPLY_V, LeaderArm, TwinArm
from sim.hand import Mind, demonstrations
from sim.servo import calibrated_servos
from sim.servo_bus import LockStepClock, ServoBusEmulator
from sim.so101 import REST_POSITION, SimArm
from sim.twin_calibration import twin_calibration

MS = 1_000_000
REST = np.array(REST_POSITION)


@pytest.fixture
def calibration(tmp_path: Path) -> Calibration:
    return twin_calibration(tmp_path / "twin.json", seed=5)


@pytest.fixture
def twin(calibration: Calibration) -> TwinArm:
    arm = SimArm(views=())
    arm.reset(np.random.default_rng(0))
    twin = TwinArm(arm, calibration, seed=2)
    twin.advance(0)
    return twin


def radians(calibration: Calibration, twin: TwinArm) -> np.ndarray:
    """What a recorder makes of the positions read, in the model's frame."""
    state = twin.state()
    ticks = np.array([[state[calibration.motor(name).id].position for name in JOINT_NAMES]], float)
    return calibration.to_radians(ticks, "ticks", list(JOINT_NAMES))[0] + MIDDLE_RAD


def send(
    calibration: Calibration, twin: TwinArm, target: np.ndarray, torque: bool = True, limit: int = 1000
) -> None:
    """Give all servos a goal, as a sync write does."""
    ticks = calibration.from_radians((target - MIDDLE_RAD)[None], "ticks", list(JOINT_NAMES))[0]
    for name, goal in zip(JOINT_NAMES, np.round(ticks).astype(int).tolist(), strict=True):
        twin.command(calibration.motor(name).id, goal, torque, limit)


def run(twin: TwinArm, start_ms: int, end_ms: int, period_ms: int = 10) -> None:
    for time_ms in range(start_ms, end_ms + 1, period_ms):
        twin.advance(time_ms * MS)


# -- the calibration -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_calibration_is_one_that_lerobot_could_have_written(tmp_path: Path, seed: int) -> None:
    calibration = twin_calibration(tmp_path / "twin.json", seed)
    assert load_calibration(tmp_path / "twin.json") == calibration
    entry = json.loads((tmp_path / "twin.json").read_text())["elbow_flex"]
    assert list(entry) == ["id", "drive_mode", "homing_offset", "range_min", "range_max"]
    assert calibration.form == "new" and calibration.names == list(JOINT_NAMES)
    assert [motor.id for motor in calibration.motors] == [1, 2, 3, 4, 5, 6]
    offsets = set()
    for motor, (lower, upper) in zip(calibration.motors, LIMITS_RAD, strict=True):
        assert isinstance(motor, Motor) and abs(motor.homing_offset) <= 2047
        offsets.add(motor.homing_offset)
        if motor.name == "wrist_roll":  # LeRobot does not sweep it
            assert (motor.range_min, motor.range_max) == (0, 4095)
            continue
        assert motor.limits_rad is not None and motor.limits_rad[1] <= (upper - lower) / 2
        assert motor.limits_rad[1] == pytest.approx((upper - lower) / 2, abs=RADIANS_PER_TICK)
    assert len(offsets) > 3


def test_calibrations_of_other_seeds_differ(tmp_path: Path) -> None:
    one, other = (twin_calibration(tmp_path / f"{seed}.json", seed) for seed in (1, 2))
    assert [motor.homing_offset for motor in one.motors] != [motor.homing_offset for motor in other.motors]
    assert twin_calibration(tmp_path / "again.json", 1).motors == one.motors


# -- positions -----------------------------------------------------------------------------------------------


def test_positions_read_are_the_arms_within_rounding_and_noise(
    calibration: Calibration, twin: TwinArm
) -> None:
    errors = []
    for time_ms in range(0, 3000, 10):
        twin.advance(time_ms * MS)  # it falls meanwhile
        errors.append(radians(calibration, twin) - twin.arm.position)
    ticks = np.array(errors) / RADIANS_PER_TICK
    assert np.ptp([twin.arm.position[2], REST[2]]) > 0.3
    assert np.abs(ticks).max() < 4.5 * NOISE_TICKS + 0.5
    assert np.abs(ticks.mean(axis=0)).max() < 0.15  # no bias: a wrong middle would be half a tick or more
    # noise and rounding add: sqrt(0.5^2 + 1/12) = 0.58 ticks
    np.testing.assert_allclose(ticks.std(axis=0), np.hypot(NOISE_TICKS, 1 / np.sqrt(12)), rtol=0.15)


def test_velocity_and_load_have_the_sign_of_the_motion(calibration: Calibration, twin: TwinArm) -> None:
    run(twin, 0, 300)
    elbow = twin.state()[calibration.motor("elbow_flex").id]
    assert (
        elbow.velocity == pytest.approx(twin.arm.velocity[2] / RADIANS_PER_TICK, abs=1) and elbow.velocity > 0
    )
    assert elbow.load == elbow.current == 0
    send(calibration, twin, twin.arm.position)
    run(twin, 310, 600)
    held = twin.state()[calibration.motor("elbow_flex").id]
    assert held.load < -20 and held.current < 0  # it pulls up, against the fall
    assert held.load == pytest.approx(twin.arm.load[2] * 1000, abs=1)
    assert held.current == pytest.approx(twin.arm.current[2] / 0.0065, abs=1)


def test_between_physics_steps_positions_go_on(twin: TwinArm) -> None:
    run(twin, 0, 400)
    before, speed = twin.position, twin.arm.velocity
    assert abs(speed[2]) > 0.2
    twin.advance(403 * MS)  # no step of 5 ms is due
    np.testing.assert_allclose(twin.position, before + speed * 0.003, atol=1e-12)
    twin.advance(405 * MS)
    np.testing.assert_allclose(twin.position, twin.arm.position)
    np.testing.assert_allclose(twin.position, before + speed * 0.005, atol=5e-4)


# -- torque --------------------------------------------------------------------------------------------------


def test_switched_on_it_is_limp_and_a_goal_with_torque_moves_it(
    calibration: Calibration, twin: TwinArm
) -> None:
    goal = np.array([0.4, -0.5, 0.4, 0.8, 0.5, 0.9])
    send(calibration, twin, goal, torque=False)
    run(twin, 0, 1000)
    assert twin.arm.position[2] > REST[2] + 0.2 and abs(twin.arm.position[0]) < 0.02  # it fell, and no more
    send(calibration, twin, goal)
    run(twin, 1010, 2500)
    np.testing.assert_allclose(radians(calibration, twin), goal, atol=0.01)
    send(calibration, twin, goal, torque=False)
    run(twin, 2510, 3500)
    assert np.abs(twin.arm.position - goal).max() > 0.2


def test_a_torque_limit_holds_what_it_can(calibration: Calibration, twin: TwinArm) -> None:
    start = twin.arm.position
    stretched = np.array([0.0, 0.2, 0.0, 0.0, 0.0, 0.3])  # the arm held out: the shoulder bears it all
    send(calibration, twin, start)
    send(calibration, twin, stretched)
    run(twin, 0, 3000)
    np.testing.assert_allclose(twin.arm.position, stretched, atol=0.02)
    load = abs(twin.arm.load[1])
    assert load > 0.1
    send(calibration, twin, stretched, limit=round(1000 * load / 3))
    run(twin, 3010, 4500)
    assert twin.arm.position[1] > stretched[1] + 0.1  # it sinks
    assert np.abs(twin.arm.load).max() <= load / 3 + 1e-3


def test_torque_switched_on_at_the_present_position_does_not_jerk(
    calibration: Calibration, twin: TwinArm
) -> None:
    run(twin, 0, 1000)  # far from where its last goal was
    here = twin.arm.position
    send(calibration, twin, here, torque=False)
    send(calibration, twin, here)
    farthest = 0.0
    for time_ms in range(1005, 1300, 5):
        twin.advance(time_ms * MS)
        farthest = max(farthest, float(np.abs(twin.arm.position - here).max()))
    assert farthest < 0.01


def test_volts_sag_with_the_current_and_servos_warm_slowly(calibration: Calibration, twin: TwinArm) -> None:
    cold = twin.state()[2]
    assert (cold.voltage, cold.temperature, cold.load) == (round(SUPPLY_V * 10), 25, 0)
    stretched = np.array([0.0, 0.2, 0.0, 0.0, 0.0, 0.3])
    send(calibration, twin, twin.arm.position)
    send(calibration, twin, stretched)
    run(twin, 0, 4000)
    amperes = twin.arm.current[1]
    volts = SUPPLY_V - 0.15 * np.abs(twin.arm.current).sum()
    assert twin.state()[2].voltage == pytest.approx(volts * 10, abs=0.51)
    assert twin.state()[2].voltage < round(SUPPLY_V * 10)
    soon = twin._temperature_c[1]
    run(twin, 4010, 304_000, period_ms=1000)
    later = twin._temperature_c[1]
    settled = 25 + 12.6 * amperes**2
    assert 25 < soon < 26 < later < settled
    assert later == pytest.approx(settled + (soon - settled) * np.exp(-300 / 200), abs=0.3)
    assert twin.state()[2].temperature == round(later)
    assert twin.state()[5].temperature < later  # the wrist bears little


# -- time ----------------------------------------------------------------------------------------------------


def test_time_is_the_clocks_however_often_it_is_asked(calibration: Calibration) -> None:
    def at_one_second(times_ms: list[int]) -> np.ndarray:
        arm = SimArm(views=())
        arm.reset(None)
        twin = TwinArm(arm, calibration)
        for time_ms in times_ms:
            twin.advance(7_000_000_123 + time_ms * MS)
        assert twin.time_s == pytest.approx(1.0)
        return twin.arm.position

    expected = at_one_second([0, 1000])
    np.testing.assert_array_equal(at_one_second(list(range(0, 1001, 10))), expected)
    odd = sorted(np.random.default_rng(0).integers(0, 1000, 200).tolist())
    np.testing.assert_array_equal(at_one_second([0, *odd, 1000]), expected)
    np.testing.assert_array_equal(at_one_second([0, 600, 300, 600, 1000]), expected)  # no way back


def test_after_a_long_sleep_it_goes_on_from_there(twin: TwinArm) -> None:
    twin.advance(3_600_000 * MS)
    assert twin.time_s == pytest.approx(LONGEST_CATCH_UP_S)
    twin.advance(3_600_100 * MS)
    assert twin.time_s == pytest.approx(LONGEST_CATCH_UP_S + 0.1)


def test_in_lock_step_it_is_the_arm_driven_directly(calibration: Calibration, twin: TwinArm) -> None:
    direct = SimArm(views=())
    direct.reset(np.random.default_rng(0))
    start = direct.position
    send(calibration, twin, start)
    worst = 0.0
    for tick in range(400):
        time_s = tick / 100
        target = start + 0.5 * np.sin(2 * np.pi * 0.5 * time_s) * np.array([1, 0.4, -0.5, 0.6, 1, 0.5])
        send(calibration, twin, target)
        direct.set_target(target, glide_s=twin.glide_s)
        twin.advance((tick + 1) * 10 * MS)
        direct.step(2)
        worst = max(worst, float(np.abs(twin.arm.position - direct.position).max()))
        assert np.abs(radians(calibration, twin) - direct.position).max() < 4 * RADIANS_PER_TICK
    assert worst < RADIANS_PER_TICK  # the goal's rounding to ticks
    assert np.ptp([twin.arm.position, start]) > 0.05


def test_through_the_bus_in_lock_step_it_is_the_arm_driven_directly(
    calibration: Calibration, twin: TwinArm
) -> None:
    direct = SimArm(views=())
    direct.reset(np.random.default_rng(0))
    start = direct.position
    clock = LockStepClock(10 * MS)
    emulator = ServoBusEmulator(
        twin, calibrated_servos(calibration), paced=False, clock=clock, on_read=clock.tick
    )
    with emulator, RawBus(emulator.port, calibration) as bus:
        bus.send(start)
        bus.torque(True)
        swing = np.array([1, 0.4, -0.5, 0.6, 1, 0.5])
        read, true, followed = [], [], []
        for tick in range(300):
            target = start + 0.5 * np.sin(2 * np.pi * 0.5 * tick / 100) * swing
            bus.send(target)
            read.append(bus.position())
            direct.set_target(target, glide_s=twin.glide_s)
            direct.step(2)
            true.append(direct.position)
            followed.append(twin.arm.position)
    error_ticks = (np.array(read) - true) / RADIANS_PER_TICK
    assert np.abs(np.array(followed) - true).max() < RADIANS_PER_TICK  # the goals' rounding to ticks
    assert np.abs(error_ticks).max() < 0.5 + 0.5 + 4.5 * NOISE_TICKS
    assert np.sqrt((error_ticks**2).mean()) < 1.0
    assert np.ptp(np.array(true)[:, 0]) > 0.8
    assert twin.time_s == pytest.approx(3.0)


# -- by hand -------------------------------------------------------------------------------------------------


class Circle:
    """A motion of two seconds about the rest pose."""

    def target(self, time_s: float) -> np.ndarray | None:
        if time_s > 2:
            return None
        swing = np.sin(np.pi * time_s) * np.array([0.4, 0.2, -0.2, 0.2, 0.5, 0.2])
        return REST + swing


def mind_of(twin: TwinArm, motion: type[Circle] = Circle, **options: bool) -> Mind:
    def draw(_mind: Mind) -> Motion:
        return motion()

    return Mind(twin, SimArm(views=()), draw, **options)


def test_a_hand_moves_the_limp_arm_along_its_motion(twin: TwinArm) -> None:
    mind = twin.hand = mind_of(twin)
    gaps, places = [], []
    for time_ms in range(0, 6000, 5):
        mind.think()
        twin.advance(time_ms * MS)
        assert mind.aim is not None
        gaps.append(np.abs(mind.aim.target - twin.arm.position).max())
        places.append(twin.arm.position)
    assert max(gaps) < 0.08 and np.median(gaps) < 0.03
    assert np.ptp(np.array(places)[:, 0]) > 0.7  # both ways, twice over: the motion begins again
    assert not twin.arm.torque.any()


def test_the_hand_lets_go_of_an_arm_with_torque_and_takes_it_again(
    calibration: Calibration, twin: TwinArm
) -> None:
    mind = twin.hand = mind_of(twin)
    for time_ms in range(0, 1300, 5):
        mind.think()
        twin.advance(time_ms * MS)
    here = twin.arm.position
    send(calibration, twin, here)
    for time_ms in range(1300, 2300, 5):
        mind.think()
        twin.advance(time_ms * MS)
    assert mind.aim is None
    np.testing.assert_allclose(twin.arm.position, here, atol=0.01)
    send(calibration, twin, here, torque=False)
    jumps, last = [], twin.arm.position
    for time_ms in range(2300, 4000, 5):
        mind.think()
        twin.advance(time_ms * MS)
        jumps.append(np.abs(twin.arm.position - last).max() / 0.005)
        last = twin.arm.position
    assert mind.aim is not None and np.abs(last - here).max() > 0.1
    assert max(jumps) < 2.0  # rad/s: it is fetched from where it is


def test_a_hand_that_stops_to_think_holds_on(twin: TwinArm) -> None:
    mind = twin.hand = mind_of(twin)
    for time_ms in range(0, 1100, 5):
        mind.think()
        twin.advance(time_ms * MS)
    run(twin, 1100, 1300, 5)
    held = twin.arm.position
    run(twin, 1300, 1800, 5)
    np.testing.assert_allclose(twin.arm.position, held, atol=0.01)
    assert mind.aim is not None and twin.limp


def test_demonstrations_by_hand_carry_blocks(twin: TwinArm) -> None:
    mind = twin.hand = Mind(twin, SimArm(views=()), demonstrations(0))
    highest, last, fastest = 0.0, twin.arm.position, 0.0
    for time_ms in range(0, 30_000, 5):
        mind.think()
        twin.advance(time_ms * MS)
        highest = max(highest, *(float(place[2]) for place in twin.arm.blocks.values()))
        fastest = max(fastest, float(np.abs(twin.arm.position - last).max() / 0.005))
        last = twin.arm.position
    assert highest > 0.05  # a block was lifted
    assert fastest < 6.0  # and the arm was never put anywhere at once


def test_a_leader_is_where_the_hand_holds_it_and_the_arm_can_follow(
    calibration: Calibration, twin: TwinArm, tmp_path: Path
) -> None:
    own = twin_calibration(tmp_path / "leader.json", seed=99)
    mind = mind_of(twin, at_arm=False)
    leader = LeaderArm(mind, own, seed=3)
    send(calibration, twin, twin.arm.position)
    errors, gaps = [], []
    for time_ms in range(0, 5000, 10):
        mind.think()
        leader.advance(time_ms * MS)
        state = leader.state()
        ticks = np.array([[state[own.motor(name).id].position for name in JOINT_NAMES]], float)
        read = own.to_radians(ticks, "ticks", list(JOINT_NAMES))[0] + MIDDLE_RAD
        errors.append(read - leader.position)
        send(calibration, twin, read)
        gaps.append(np.abs(leader.position - twin.arm.position).max())
    assert np.abs(errors).max() < 3 * RADIANS_PER_TICK
    assert max(gaps[150:]) < 0.1 and mind.aim is not None and not twin.limp
    assert all(entry.load == entry.current == 0 for entry in leader.state().values())
