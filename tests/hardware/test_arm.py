"""The arm in the model's radians, on real bytes: readings, targets, torque."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pty_servos import PtyServos, nothing

from hardware import InputError
from hardware import servo_protocol as protocol
from hardware.arm import Arm
from hardware.bus import BusFault, BusLost, ServoBus
from hardware.calibration import RADIANS_PER_TICK, Calibration, load_calibration
from hardware.servo_table import REGISTERS
from hardware.so101 import JOINT_NAMES, JOINTS, LIMITS_RAD, MIDDLE_RAD, SERVO_IDS

pytestmark = pytest.mark.realtime

PATIENT_S = 2.0


def new_form(folder: Path, **changes: dict[str, int]) -> Calibration:
    """Every joint swept over 3000 ticks around 2000; `changes` by joint."""
    entry = {"drive_mode": 0, "homing_offset": 0, "range_min": 500, "range_max": 3500}
    data = {
        name: {"id": servo_id, **entry, **changes.get(name, {})}
        for name, servo_id in zip(JOINT_NAMES, SERVO_IDS)
    }
    path = folder / "new.json"
    path.write_text(json.dumps(data))
    return load_calibration(path)


def legacy_form(folder: Path) -> Calibration:
    path = folder / "legacy.json"
    path.write_text(
        json.dumps(
            {
                "motor_names": list(JOINT_NAMES),
                "calib_mode": ["DEGREE"] * 5 + ["LINEAR"],
                "drive_mode": [0, 1, 0, 0, 0, 0],
                "homing_offset": [-2048, 1024, 0, 0, 0, 0],
                "start_pos": [0, 0, 0, 0, 0, 2000],
                "end_pos": [0, 0, 0, 0, 0, 3000],
            }
        )
    )
    return load_calibration(path)


@pytest.fixture(scope="module")
def servos() -> Iterator[PtyServos]:
    with PtyServos() as running:
        yield running


@pytest.fixture
def arm(tmp_path: Path) -> Iterator[Arm]:
    with PtyServos() as running:
        opened = Arm(ServoBus(running.port, margin_s=PATIENT_S), new_form(tmp_path))
        opened.servos = running  # type: ignore[attr-defined]
        yield opened
        opened.close()


def behind(arm: Arm) -> PtyServos:
    return arm.servos  # type: ignore[attr-defined, no-any-return]


def registers(arm: Arm, name: str) -> list[int]:
    return [behind(arm).get(servo_id, name) for servo_id in SERVO_IDS]


# -- the table of the arm ----------------------------------------------------------------------------------


def test_the_table_is_the_simulations() -> None:
    model = pytest.importorskip("sim.so101_model")
    assert JOINT_NAMES == model.JOINT_NAMES
    limits = {link.joint: link.limits for link in model.CHAIN}
    for joint in JOINTS:
        assert limits[joint.name] == pytest.approx((joint.lower, joint.upper))


# -- reading -----------------------------------------------------------------------------------------------


def test_a_sample_in_units(arm: Arm) -> None:
    behind(arm).set(1, Present_Position=2000 + 1024, Present_Velocity=-4096, Present_Load=-250)
    behind(arm).set(
        6, Present_Position=2000, Present_Current=-100, Present_Voltage=121, Present_Temperature=44
    )
    sample = arm.read()
    assert arm.confirm()
    assert sample.position[0] == pytest.approx(np.pi / 2)
    # The calibration's middle is the middle of the model's range, which for the gripper is not 0.
    assert sample.position[5] == pytest.approx((-0.17453 + 1.74533) / 2)
    assert sample.velocity[0] == pytest.approx(-2 * np.pi)
    assert sample.load[0] == pytest.approx(-0.25)
    assert sample.current[5] == pytest.approx(-0.65)
    assert sample.voltage[5] == pytest.approx(12.1) and sample.temperature[5] == 44
    assert sample.error == {}
    for values in (sample.position, sample.velocity, sample.load, sample.current, sample.temperature):
        assert values.shape == (6,) and values.dtype == np.float64
    assert not behind(arm).written


def test_error_bits_are_named_by_joint(arm: Arm) -> None:
    behind(arm).errors[3] = 1 | 32
    behind(arm).set(6, Status=4)
    assert arm.read().error == {"elbow_flex": ("voltage", "overload"), "gripper": ("overheat",)}


def test_drive_mode_turns_no_angle(tmp_path: Path) -> None:
    with PtyServos() as servos:
        servos.set(2, Present_Position=2100)
        calibration = new_form(tmp_path, shoulder_lift={"drive_mode": 1})
        arm = Arm(ServoBus(servos.port, margin_s=PATIENT_S), calibration)
        assert arm.read().position[1] == pytest.approx(100 * RADIANS_PER_TICK)
        arm.close()


def test_joints_in_another_order_and_servos_with_other_ids(tmp_path: Path) -> None:
    with PtyServos((11, 12, 13, 14, 15, 16)) as servos:
        ids = {name: {"id": 10 + servo_id} for name, servo_id in zip(JOINT_NAMES, SERVO_IDS)}
        servos.set(11, Present_Position=2001)
        names = tuple(reversed(JOINT_NAMES))
        arm = Arm(ServoBus(servos.port, margin_s=PATIENT_S), new_form(tmp_path, **ids), names)
        assert arm.joint_names == names and arm.servo_ids == (16, 15, 14, 13, 12, 11)
        assert arm.read().position[5] == pytest.approx(RADIANS_PER_TICK)
        assert arm.limits_rad[0] == pytest.approx(LIMITS_RAD[5])
        arm.close()


def test_a_joint_that_is_none(tmp_path: Path) -> None:
    with PtyServos() as servos, ServoBus(servos.port) as bus:
        with pytest.raises(InputError, match="holds no joint 'tail'"):
            Arm(bus, new_form(tmp_path), ("shoulder_pan", "tail"))


def test_the_legacy_form_can_be_watched_and_not_moved(tmp_path: Path) -> None:
    with PtyServos() as servos:
        servos.set(1, Present_Position=2148)
        servos.set(2, Present_Position=1000, Present_Velocity=100, Present_Load=300, Present_Current=5)
        servos.set(6, Present_Position=2600)
        calibration = legacy_form(tmp_path)
        arm = Arm(ServoBus(servos.port, margin_s=PATIENT_S), calibration)
        sample = arm.read()
        expected = calibration.to_radians(
            np.array([[2148, 1000, 2048, 2048, 2048, 2600]]), "ticks", list(JOINT_NAMES)
        )
        assert sample.position == pytest.approx(expected[0])
        assert sample.velocity[1] == pytest.approx(-100 * RADIANS_PER_TICK)  # its drive mode is 1
        assert sample.load[1] == pytest.approx(-0.3) and sample.current[1] < 0
        assert arm.limits_rad[5] == pytest.approx([-500 * RADIANS_PER_TICK, 500 * RADIANS_PER_TICK])
        assert not arm.commandable
        for act in (
            lambda: arm.send(np.zeros(6)),
            arm.hold,
            arm.enable_torque,
            lambda: arm.set_torque_limit(1),
        ):
            with pytest.raises(InputError, match="legacy calibration"):
                act()
        assert arm.release() == ()
        assert not servos.written
        arm.close()


def test_a_failed_reading_names_the_joint(arm: Arm) -> None:
    arm.bus.margin_s, arm.bus.tries = 0.05, 1
    behind(arm).silent = {3, 6}
    with pytest.raises(BusFault, match=r"^elbow_flex, gripper: no whole answer from servos 3, 6"):
        arm.read()
    assert arm.silent_joints() == ("elbow_flex", "gripper")
    assert not behind(arm).written


# -- limits and targets ------------------------------------------------------------------------------------


def test_limits_are_those_of_the_model_the_calibration_and_the_servos(tmp_path: Path) -> None:
    with PtyServos() as servos:
        narrow = {"range_min": 1500, "range_max": 2500}
        arm = Arm(ServoBus(servos.port, margin_s=PATIENT_S), new_form(tmp_path, elbow_flex=narrow))
        half = 500 * RADIANS_PER_TICK
        assert arm.limits_rad[0] == pytest.approx(LIMITS_RAD[0])
        assert arm.limits_rad[2] == pytest.approx([-half, half])
        servos.set(1, Min_Position_Limit=1900, Max_Position_Limit=4095)
        servos.set(2, Min_Position_Limit=3900, Max_Position_Limit=4000)  # not this calibration's at all
        arm.learn()
        assert arm.limits_rad[0] == pytest.approx([-100 * RADIANS_PER_TICK, LIMITS_RAD[0, 1]])
        assert arm.limits_rad[1] == pytest.approx(LIMITS_RAD[1])
        assert not servos.written
        arm.close()


def test_the_return_delay_is_allowed_for(arm: Arm) -> None:
    behind(arm).set(4, Return_Delay_Time=250)
    arm.learn()
    assert arm.bus.return_delay_s == pytest.approx(500e-6)
    assert arm.eeprom["wrist_flex"]["Return_Delay_Time"] == 250
    assert set(arm.eeprom["gripper"]) == {name for name, register in REGISTERS.items() if register.eeprom}


@pytest.fixture(scope="module")
def any_arm(servos: PtyServos, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arm]:
    opened = Arm(ServoBus(servos.port, margin_s=PATIENT_S), new_form(tmp_path_factory.mktemp("arm")))
    yield opened
    opened.close()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(-10, 10), min_size=6, max_size=6))
def test_what_is_sent_is_what_the_servos_get(any_arm: Arm, servos: PtyServos, target: list[float]) -> None:
    sent = any_arm.send(np.array(target))
    any_arm.read()  # the goals have been heard by now
    goals = np.array([servos.get(servo_id, "Goal_Position") for servo_id in SERVO_IDS])
    assert sent == pytest.approx((goals - 2000) * RADIANS_PER_TICK + MIDDLE_RAD, abs=1e-12)
    limits = any_arm.limits_rad
    assert (sent >= limits[:, 0]).all() and (sent <= limits[:, 1]).all()
    within = np.clip(target, limits[:, 0], limits[:, 1])
    assert np.abs(sent - within).max() <= RADIANS_PER_TICK


@pytest.mark.parametrize(
    "target", [np.full(6, np.nan), np.zeros(5), np.zeros((1, 6)), np.array([0, 0, np.inf, 0, 0, 0])]
)
def test_a_target_that_is_none_is_not_sent(arm: Arm, target: np.ndarray) -> None:
    with pytest.raises(ValueError, match="no target"):
        arm.send(target)
    assert not behind(arm).instructions


# -- torque ------------------------------------------------------------------------------------------------


def test_torque_comes_on_where_the_arm_is(arm: Arm) -> None:
    for servo_id in SERVO_IDS:
        behind(arm).set(servo_id, Present_Position=2000 + servo_id, Goal_Position=4000)
    behind(arm).set(6, Max_Torque_Limit=500)
    arm.enable_torque()
    assert registers(arm, "Goal_Position") == [2001, 2002, 2003, 2004, 2005, 2006]
    assert registers(arm, "Torque_Enable") == [1] * 6
    assert registers(arm, "Torque_Limit") == [1000] * 5 + [500]
    for servo_id in SERVO_IDS:
        addresses = [params[0] for one, _, params in behind(arm).written if one == servo_id]
        goal, torque = REGISTERS["Goal_Position"].address, REGISTERS["Torque_Enable"].address
        assert addresses.index(goal) < addresses.index(torque)


def test_a_joint_outside_its_limits_keeps_the_torque_off(arm: Arm) -> None:
    behind(arm).set(2, Present_Position=3900)
    behind(arm).set(4, Present_Position=10)
    with pytest.raises(InputError, match=r"shoulder_lift by \d+, wrist_flex by \d+ degrees: they would jump"):
        arm.enable_torque()
    assert not behind(arm).written


def test_a_joint_just_outside_its_limits_moves_by_less_than_two_degrees(arm: Arm) -> None:
    top = int(np.floor(2000 + LIMITS_RAD[0, 1] / RADIANS_PER_TICK))
    behind(arm).set(1, Present_Position=top + 20)
    arm.enable_torque()
    assert behind(arm).get(1, "Goal_Position") == top


def test_a_servo_that_does_not_answer_keeps_the_torque_off(arm: Arm) -> None:
    arm.bus.margin_s = 0.05
    behind(arm).silent = {5}
    with pytest.raises(BusFault, match="wrist_roll"):
        arm.enable_torque()
    assert not behind(arm).written


def test_a_torque_that_does_not_come_on_is_named(arm: Arm) -> None:
    behind(arm).frozen[(4, "Torque_Enable")] = 0
    with pytest.raises(BusFault, match="wrist_flex: servo 4 holds 0 in Torque_Enable"):
        arm.enable_torque()
    assert arm.release(0.0) == ()  # those before it are let go
    assert registers(arm, "Torque_Enable") == [0] * 6


def test_hold_and_torque_share(arm: Arm) -> None:
    behind(arm).set(6, Max_Torque_Limit=500)
    arm.enable_torque(0.5)
    assert registers(arm, "Torque_Limit") == [500] * 5 + [250]
    behind(arm).set(1, Present_Position=2345)
    held = arm.hold()
    arm.set_torque_limit(0.1)
    arm.read()
    assert behind(arm).get(1, "Goal_Position") == 2345
    assert held[0] == pytest.approx(345 * RADIANS_PER_TICK)
    assert registers(arm, "Torque_Limit") == [100] * 5 + [50]
    with pytest.raises(ValueError, match="no share"):
        arm.set_torque_limit(1.5)


def test_release_fades_lets_go_and_restores(arm: Arm) -> None:
    behind(arm).set(6, Max_Torque_Limit=500)
    arm.enable_torque()
    seen: list[list[int]] = []
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        arm.read()
        seen.append(registers(arm, "Torque_Limit"))
        assert registers(arm, "Torque_Enable") == [1] * 6

    assert arm.release(0.5, sleep) == ()
    assert sum(slept) == pytest.approx(0.5)
    assert [limits[0] for limits in seen] == sorted((limits[0] for limits in seen), reverse=True)
    assert len(seen) == 10 and seen[0][0] == 900 and seen[-1] == [0] * 6
    assert registers(arm, "Torque_Enable") == [0] * 6
    assert registers(arm, "Torque_Limit") == [1000] * 5 + [500]
    written = len(behind(arm).written)
    assert arm.release() == () and len(behind(arm).written) == written


def test_release_without_torque_writes_nothing(arm: Arm) -> None:
    arm.read()
    assert arm.release() == ()
    assert not behind(arm).written


def test_a_servo_that_went_silent_does_not_keep_the_others(arm: Arm) -> None:
    arm.enable_torque()
    arm.bus.margin_s = 0.05
    behind(arm).silent = {1, 4}
    assert arm.release(0.0) == ("shoulder_pan", "wrist_flex")
    # It hears what is said to all, so it let go as well, though that is not known; its limit stays at 0.
    assert registers(arm, "Torque_Enable") == [0] * 6
    assert registers(arm, "Torque_Limit") == [0, 1000, 1000, 0, 1000, 1000]
    behind(arm).silent = set()
    assert arm.release(0.0) == ()
    assert registers(arm, "Torque_Limit") == [1000] * 6


def test_release_when_the_fade_is_interrupted(arm: Arm) -> None:
    arm.enable_torque()

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        arm.release(1.0, interrupted)
    assert registers(arm, "Torque_Enable") == [0] * 6


def test_release_of_an_unplugged_arm_names_all_joints(arm: Arm) -> None:
    arm.enable_torque()
    behind(arm).unplug()
    assert arm.release(0.0) == JOINT_NAMES
    with pytest.raises(BusLost):
        arm.read()
    arm.close()


def test_no_act_of_the_arm_writes_eeprom(arm: Arm) -> None:
    arm.enable_torque()
    arm.send(np.zeros(6))
    arm.hold()
    arm.set_torque_limit(0.5)
    behind(arm).script.extend([nothing] * 2)
    arm.bus.margin_s = 0.05
    arm.release(0.1, lambda _: None)
    for _, _, params in behind(arm).written:
        assert REGISTERS["Torque_Enable"].address <= params[0] <= REGISTERS["Torque_Limit"].address
    assert {code for _, code, _ in behind(arm).written} == {protocol.WRITE, protocol.SYNC_WRITE}
