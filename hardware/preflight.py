"""What is looked at before an arm is recorded or moved: every problem at once, each with its remedy.

Only reads. With `observing` a problem that matters to a moving arm alone is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hardware.arm import REACH_TICKS, Arm
from hardware.bus import BlockRead, BusFault, BusLost
from hardware.calibration import Motor
from hardware.errors import InputError
from hardware.servo_table import (
    MODEL_STS3215,
    RADIANS_PER_TICK,
    SECONDS_PER_DELAY_UNIT,
    TICKS_PER_TURN,
    VOLTS_PER_UNIT,
    error_names,
)
from hardware.so101 import joint

State = Literal["pass", "warn", "fail"]

WARM_C = 55
TRIAL_READS = 20
SLOW_CYCLE_S = 0.005
MIDDLE_DOUBT_WARN_RAD, MIDDLE_DOUBT_FAIL_RAD = np.deg2rad(6), np.deg2rad(20)
_MULTI_TURN = 16  # bit of Phase

RECALIBRATE = "give the calibration file of this arm, or calibrate it with LeRobot"


@dataclass(frozen=True)
class Finding:
    """What one check found. `joint` is empty where it is about the whole arm, `remedy` where there is nothing
    to do.
    """

    state: State
    joint: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.joint}: {self.message}" if self.joint else self.message
        return text + (f" - {self.remedy}" if self.remedy else "")


def preflight(arm: Arm, observing: bool) -> list[Finding]:
    """Check bus, servos and calibration. BusLost where the port goes.

    Parameters
    ----------
    arm : its `eeprom` and `limits_rad` are filled and narrowed on the way.
    observing : whether the arm will only be read.
    """
    silent = arm.silent_joints()
    if len(silent) == len(arm.joint_names):
        remedy = "switch the arm's power on, check that this is its port, and the cable to its first servo"
        return [Finding("fail", "", f"no servo answers on {arm.bus.port}", remedy)]
    arm.learn()
    answering = list(arm.eeprom)
    problems = [
        Finding("fail", name, "its servo does not answer", _CABLES)
        for name in arm.joint_names
        if name not in answering
    ]
    moving: State = "warn" if observing else "fail"
    problems += [*_identity(arm, moving), *_settings(arm, moving), *_against_calibration(arm, moving)]
    ids = [servo_id for name, servo_id in zip(arm.joint_names, arm.servo_ids) if name in answering]
    try:
        present = arm.bus.read_block(ids)
        torque = [arm.bus.read(servo_id, "Torque_Enable") for servo_id in ids]
    except BusLost:
        raise
    except BusFault as fault:
        return [*problems, Finding("fail", "", f"the servos cannot be read together: {fault}", _CABLES)]
    problems += _state(arm, present, moving)
    if observing and any(torque):
        on = ", ".join(name for name, value in zip(answering, torque) if value)
        remedy = "to move the arm by hand, switch its power off and on: observing never touches the torque"
        problems.append(Finding("warn", "", f"the torque of {on} is on: the arm is stiff", remedy))
    return [*problems, *_line(arm, ids), *_passed(arm, present, problems)]


def require(findings: Sequence[Finding]) -> None:
    """InputError naming all that failed; nothing where nothing did."""
    failed = [finding for finding in findings if finding.state == "fail"]
    if not failed:
        return
    if len(failed) == 1:
        what = f"{failed[0].joint}: {failed[0].message}" if failed[0].joint else failed[0].message
        raise InputError("the arm is not ready", what, failed[0].remedy)
    raise InputError("the arm is not ready", "; ".join(map(str, failed)))


_CABLES = "check the cable between this servo and the one before it, its id (LeRobot sets it), and the power"


def _identity(arm: Arm, moving: State) -> Iterator[Finding]:
    for name, found in arm.eeprom.items():
        if found["Model_Number"] != MODEL_STS3215:
            message = f"is a servo of model {found['Model_Number']}, not an STS3215 ({MODEL_STS3215})"
            yield Finding("fail", name, message, "its registers may mean other things: use an STS3215")
    firmware = {name: _firmware(found) for name, found in arm.eeprom.items()}
    if len(set(firmware.values())) > 1:
        each = ", ".join(f"{name} {version}" for name, version in firmware.items())
        remedy = "bring them to one version with Feetech's own software"
        yield Finding(moving, "", f"the servos' firmware differs: {each}", remedy)


def _settings(arm: Arm, moving: State) -> Iterator[Finding]:
    slow = {name: found["Return_Delay_Time"] for name, found in arm.eeprom.items()}
    if any(slow.values()):
        cost_ms = len(slow) * max(slow.values()) * SECONDS_PER_DELAY_UNIT * 1e3
        yield Finding(
            "warn",
            "",
            f"servos wait before they answer (Return_Delay_Time up to {max(slow.values())}): "
            f"{cost_ms:.1f} ms a reading",
            "LeRobot's setup sets it to 0",
        )
    for name, found in arm.eeprom.items():
        if found["Response_Status_Level"] == 0:
            yield Finding(moving, name, "does not acknowledge writes", "set its Response_Status_Level to 1")
        if found["Operating_Mode"] != 0:
            message = f"is in operating mode {found['Operating_Mode']}, not position control"
            yield Finding(moving, name, message, "LeRobot's configuration sets Operating_Mode to 0")
        if found["Phase"] & _MULTI_TURN:
            message = "counts over several turns (Phase bit 4), so a position may be a turn off"
            yield Finding("warn", name, message, "LeRobot 0.6 clears the bit")
        if found["Max_Torque_Limit"] == 0:
            yield Finding(moving, name, "has no torque (Max_Torque_Limit 0)", "LeRobot's setup sets it")


def _against_calibration(arm: Arm, moving: State) -> Iterator[Finding]:
    for motor in arm.motors:
        if motor.name not in arm.eeprom:
            continue
        found = arm.eeprom[motor.name]
        if not isinstance(motor, Motor):
            if found["Homing_Offset"] != 0:
                message = (
                    f"holds the homing offset {found['Homing_Offset']}, which a legacy calibration lacks"
                )
                yield Finding("fail", motor.name, message, RECALIBRATE)
            continue
        if found["Homing_Offset"] != motor.homing_offset:
            message = (
                f"holds the homing offset {found['Homing_Offset']}, the calibration {motor.homing_offset}"
            )
            yield Finding("fail", motor.name, message, RECALIBRATE)
        limits = found["Min_Position_Limit"], found["Max_Position_Limit"]
        if limits != (motor.range_min, motor.range_max):
            unset = limits in ((0, TICKS_PER_TURN - 1), (0, 0))
            message = f"holds the limits {limits[0]}..{limits[1]}, "
            message += f"the calibration {motor.range_min}..{motor.range_max}"
            yield Finding("warn" if unset else "fail", motor.name, message, RECALIBRATE)
        yield from _against_model(motor, moving)
    if not arm.commandable:
        message = "a legacy calibration: angles have its zero, not the model's, and the arm cannot be moved"
        yield Finding(moving, "", message, "calibrate the arm with LeRobot 0.3 or newer")


def _against_model(motor: Motor, moving: State) -> Iterator[Finding]:
    """The middle of the swept range stands for the middle of the model's: is the sweep as wide?"""
    known = joint(motor.name)
    if known is None or known.full_turn:  # no sweep, nothing to compare
        return
    swept = (motor.range_max - motor.range_min) * RADIANS_PER_TICK
    doubt = abs(swept - (known.upper - known.lower)) / 2
    if doubt <= MIDDLE_DOUBT_WARN_RAD:
        return
    message = (
        f"was calibrated over {np.rad2deg(swept):.0f} degrees, the model has "
        f"{np.rad2deg(known.upper - known.lower):.0f}: its zero may be {np.rad2deg(doubt):.0f} degrees off"
    )
    state: State = moving if doubt > MIDDLE_DOUBT_FAIL_RAD else "warn"
    yield Finding(state, motor.name, message, "calibrate again, moving the joint from stop to stop")


def _state(arm: Arm, present: BlockRead, moving: State) -> Iterator[Finding]:
    for index, (name, found) in enumerate(arm.eeprom.items()):
        errors = error_names(int(present.error[index] | present.status[index]))
        if errors:
            remedy = "let it cool down, take the load off and switch the arm's power off and on"
            yield Finding(moving, name, f"reports {', '.join(errors)}", remedy)
        volts = present.voltage[index] * VOLTS_PER_UNIT
        low, high = (found[key] * VOLTS_PER_UNIT for key in ("Min_Voltage_Limit", "Max_Voltage_Limit"))
        if not low <= volts <= high:
            remedy = "use the power supply the servos are made for (5 V or 7.4 V, or 12 V), and switch it on"
            yield Finding(moving, name, f"has {volts:.1f} V, its limits are {low:.1f}..{high:.1f} V", remedy)
        degrees, hottest = int(present.temperature[index]), found["Max_Temperature_Limit"]
        if degrees >= min(WARM_C, hottest):
            state: State = moving if degrees >= hottest else "warn"
            yield Finding(
                state, name, f"is at {degrees} degrees C, its limit is {hottest}", "let it cool down"
            )
        ticks = int(present.position[index])
        motor = arm.calibration.motor(name)
        if not isinstance(motor, Motor):
            continue
        beyond = max(motor.range_min - ticks, ticks - motor.range_max, 0)
        if beyond > REACH_TICKS:
            message = (
                f"stands at tick {ticks}, {beyond * 360 / TICKS_PER_TURN:.0f} degrees outside its calibrated "
                f"range {motor.range_min}..{motor.range_max}"
            )
            yield Finding(moving, name, message, "move it by hand into its range, or calibrate again")


def _line(arm: Arm, ids: Sequence[int]) -> Iterator[Finding]:
    """A few readings on trial: how long they take and how many fail."""
    before = sum(arm.bus.faults.values())
    took_s = []
    for _ in range(TRIAL_READS):
        try:
            block = arm.bus.read_block(ids)
        except BusLost:
            raise
        except BusFault:
            continue
        took_s.append((block.end_ns - block.start_ns) / 1e9)
    faults = sum(arm.bus.faults.values()) - before
    if faults:
        message = f"{faults} faults in {TRIAL_READS} readings"
        yield Finding(
            "warn", "", message, "check the cables and the power supply; a busy computer does this too"
        )
    if took_s and np.median(took_s) > SLOW_CYCLE_S:
        message = f"a reading takes {np.median(took_s) * 1e3:.1f} ms"
        remedy = "set the adapter's latency timer to 1 ms (/sys/bus/usb-serial/devices/*/latency_timer)"
        yield Finding("warn", "", message, remedy)


def _passed(arm: Arm, present: BlockRead, problems: list[Finding]) -> Iterator[Finding]:
    firmware = sorted({_firmware(found) for found in arm.eeprom.values()})
    yield Finding(
        "pass",
        "",
        f"{len(arm.eeprom)} servos answer, firmware {', '.join(firmware)}, "
        f"{present.voltage.min() * VOLTS_PER_UNIT:.1f} V, {present.temperature.max()} degrees C at most",
    )
    concerned = {finding.joint for finding in problems}
    sound = [name for name in arm.eeprom if name not in concerned]
    if sound and arm.commandable:
        yield Finding("pass", "", f"servos and calibration agree: {', '.join(sound)}")


def _firmware(found: dict[str, int]) -> str:
    return f"{found['Firmware_Major_Version']}.{found['Firmware_Minor_Version']}"
