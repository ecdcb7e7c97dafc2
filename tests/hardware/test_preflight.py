"""Preflight on real bytes: each thing that can be wrong is found, named and has a remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from pty_servos import PtyServos, nothing

from hardware import InputError
from hardware.arm import Arm
from hardware.bus import BusLost, ServoBus
from hardware.calibration import RADIANS_PER_TICK, load_calibration
from hardware.preflight import Finding, preflight, require
from hardware.so101 import JOINT_NAMES, JOINTS, LIMITS_RAD

pytestmark = pytest.mark.realtime


def calibration_of_stops() -> dict[str, dict[str, int]]:
    """As LeRobot writes it when every joint was swept from stop to stop; the roll has its full turn."""
    data = {}
    for joint in JOINTS:
        half = round((joint.upper - joint.lower) / 2 / RADIANS_PER_TICK)
        lower, upper = (0, 4095) if joint.full_turn else (2047 - half, 2047 + half)
        data[joint.name] = {
            "id": joint.servo_id,
            "drive_mode": 0,
            "homing_offset": 100 * joint.servo_id,
            "range_min": lower,
            "range_max": upper,
        }
    return data


@contextmanager
def arm_of(folder: Path, data: dict[str, dict[str, int]] | None = None) -> Iterator[tuple[Arm, PtyServos]]:
    """An arm whose servos hold what `calibration_of_stops` says; `data` is the file's content."""
    with PtyServos() as servos:
        for entry in calibration_of_stops().values():
            servos.set(
                entry["id"],
                Homing_Offset=entry["homing_offset"],
                Min_Position_Limit=entry["range_min"],
                Max_Position_Limit=entry["range_max"],
            )
        path = folder / "arm.json"
        path.write_text(json.dumps(calibration_of_stops() if data is None else data))
        arm = Arm(ServoBus(servos.port, margin_s=2.0), load_calibration(path))
        yield arm, servos
        arm.close()


def of_state(findings: list[Finding], state: str) -> list[Finding]:
    return [finding for finding in findings if finding.state == state]


def steady(findings: list[Finding]) -> list[Finding]:
    """Without what a busy machine may add: how long trial readings took."""
    return [finding for finding in findings if "latency timer" not in finding.remedy]


@pytest.mark.parametrize("observing", [True, False])
def test_a_sound_arm_passes_and_nothing_is_written(tmp_path: Path, observing: bool) -> None:
    with arm_of(tmp_path) as (arm, servos):
        findings = steady(preflight(arm, observing))
        assert {finding.state for finding in findings} == {"pass"}
        assert "6 servos answer, firmware 3.10, 7.4 V" in str(findings[0])
        assert all(name in str(findings[1]) for name in JOINT_NAMES)
        require(findings)
        assert not servos.written
        assert arm.limits_rad == pytest.approx(LIMITS_RAD, abs=2 * RADIANS_PER_TICK)


Change = Callable[[PtyServos], None]

CASES: list[tuple[str, Change, str, str, str]] = [
    # what is wrong, state when moved, state when observed, what the finding says
    ("model", lambda s: s.set(3, Model_Number=2825), "fail", "fail", "elbow_flex: is a servo of model 2825"),
    (
        "firmware",
        lambda s: s.set(6, Firmware_Minor_Version=9),
        "fail",
        "warn",
        "firmware differs: .*shoulder_pan 3.10.*gripper 3.9",
    ),
    ("delay", lambda s: s.set(2, Return_Delay_Time=250), "warn", "warn", "up to 250.*3.0 ms a reading"),
    ("status level", lambda s: s.set(2, Response_Status_Level=0), "fail", "warn", "does not acknowledge"),
    ("mode", lambda s: s.set(5, Operating_Mode=1), "fail", "warn", "wrist_roll: is in operating mode 1"),
    ("turns", lambda s: s.set(5, Phase=28), "warn", "warn", "wrist_roll: counts over several turns"),
    ("torque", lambda s: s.set(1, Max_Torque_Limit=0), "fail", "warn", "shoulder_pan: has no torque"),
    (
        "offset",
        lambda s: s.set(4, Homing_Offset=-2000),
        "fail",
        "fail",
        "wrist_flex: holds the homing offset -2000, the calibration 400",
    ),
    (
        "limits",
        lambda s: s.set(3, Min_Position_Limit=1000),
        "fail",
        "fail",
        r"elbow_flex: holds the limits 1000\.\.\d+, the calibration \d+\.\.\d+",
    ),
    (
        "no limits",
        lambda s: s.set(3, Min_Position_Limit=0, Max_Position_Limit=4095),
        "warn",
        "warn",
        r"elbow_flex: holds the limits 0\.\.4095",
    ),
    ("error", lambda s: s.errors.update({6: 33}), "fail", "warn", "gripper: reports voltage, overload"),
    ("status", lambda s: s.set(2, Status=4), "fail", "warn", "shoulder_lift: reports overheat"),
    ("no power", lambda s: s.set(1, Present_Voltage=35), "fail", "warn", "shoulder_pan: has 3.5 V"),
    ("wrong power", lambda s: s.set(1, Present_Voltage=121), "fail", "warn", r"has 12.1 V.*4.0\.\.8.0 V"),
    ("warm", lambda s: s.set(2, Present_Temperature=58), "warn", "warn", "shoulder_lift: is at 58 degrees"),
    ("hot", lambda s: s.set(2, Present_Temperature=71), "fail", "warn", "shoulder_lift: is at 71 degrees"),
    (
        "outside",
        lambda s: s.set(3, Present_Position=3900),
        "fail",
        "warn",
        "elbow_flex: stands at tick 3900, 66 degrees outside",
    ),
]


@pytest.mark.parametrize(
    ("change", "moved", "observed", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_each_problem_is_found(tmp_path: Path, change: Change, moved: str, observed: str, text: str) -> None:
    for observing, state in ((False, moved), (True, observed)):
        with arm_of(tmp_path) as (arm, servos):
            change(servos)
            findings = [finding for finding in steady(preflight(arm, observing)) if finding.state != "pass"]
            assert [finding.state for finding in findings] == [state], findings
            assert re.search(text, str(findings[0])), str(findings[0])
            assert findings[0].remedy
            assert not servos.written
            if state == "fail":
                with pytest.raises(InputError, match=text.split(": ", 1)[-1]):
                    require(findings)
            else:
                require(findings)


def test_torque_that_is_on_is_told_when_the_arm_is_to_be_moved_by_hand(tmp_path: Path) -> None:
    with arm_of(tmp_path) as (arm, servos):
        servos.set(2, Torque_Enable=1)
        warned = of_state(steady(preflight(arm, observing=True)), "warn")
        assert len(warned) == 1 and "torque of shoulder_lift is on" in warned[0].message
        assert not of_state(steady(preflight(arm, observing=False)), "warn")
        assert not servos.written


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    with arm_of(tmp_path) as (arm, servos):
        arm.bus.margin_s = 0.05
        servos.silent = {1}
        servos.set(2, Homing_Offset=7)
        servos.set(6, Present_Temperature=80)
        failed = of_state(preflight(arm, observing=False), "fail")
        assert [finding.joint for finding in failed] == ["shoulder_pan", "shoulder_lift", "gripper"]
        with pytest.raises(InputError) as caught:
            require(failed)
        for text in ("shoulder_pan: its servo does not answer", "homing offset 7", "80 degrees", " - "):
            assert text in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_arm_without_power_is_one_finding(tmp_path: Path) -> None:
    with arm_of(tmp_path) as (arm, servos):
        arm.bus.margin_s, arm.bus.tries = 0.05, 1
        servos.silent = {1, 2, 3, 4, 5, 6}
        findings = preflight(arm, observing=True)
        assert [(finding.state, finding.joint) for finding in findings] == [("fail", "")]
        assert "no servo answers" in findings[0].message and "power" in findings[0].remedy


def test_servos_that_answer_only_one_at_a_time(tmp_path: Path) -> None:
    with arm_of(tmp_path) as (arm, servos):
        arm.bus.margin_s, arm.bus.tries = 0.1, 1
        servos.always = lambda packet, replies: (
            nothing(packet, replies) if len(replies) > 1 else [(0.0, reply) for reply in replies]
        )
        failed = of_state(preflight(arm, observing=True), "fail")
        assert len(failed) == 1 and "cannot be read together" in failed[0].message


@pytest.mark.parametrize(
    ("half_degrees", "moved", "observed"), [(103, None, None), (85, "warn", "warn"), (40, "fail", "warn")]
)
def test_a_sweep_that_is_not_the_models_range(
    tmp_path: Path, half_degrees: int, moved: str | None, observed: str | None
) -> None:
    """The shoulder lift's model has 100 degrees to either side."""
    half = round(half_degrees / 360 * 4096)
    data = calibration_of_stops()
    data["shoulder_lift"].update(range_min=2047 - half, range_max=2047 + half)
    for observing, state in ((False, moved), (True, observed)):
        with arm_of(tmp_path, data) as (arm, servos):
            servos.set(2, Min_Position_Limit=2047 - half, Max_Position_Limit=2047 + half)
            findings = [finding for finding in steady(preflight(arm, observing)) if finding.state != "pass"]
            assert [finding.state for finding in findings] == ([] if state is None else [state])
            if findings:
                assert f"its zero may be {100 - half_degrees} degrees off" in findings[0].message


def test_a_legacy_calibration_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    legacy = {
        "motor_names": list(JOINT_NAMES),
        "calib_mode": ["DEGREE"] * 5 + ["LINEAR"],
        "drive_mode": [0] * 6,
        "homing_offset": [-2048] * 6,
        "start_pos": [0] * 5 + [2000],
        "end_pos": [0] * 5 + [3000],
    }
    with arm_of(tmp_path, legacy) as (arm, servos):  # type: ignore[arg-type]
        failed = of_state(preflight(arm, observing=True), "fail")
        assert [finding.joint for finding in failed] == list(JOINT_NAMES)  # all have offsets in EEPROM
        for servo_id in servos.memory:
            servos.set(servo_id, Homing_Offset=0)
        findings = steady(preflight(arm, observing=True))
        assert not of_state(findings, "fail")
        assert ["legacy" in finding.message for finding in of_state(findings, "warn")] == [True]
        with pytest.raises(InputError, match="cannot be moved"):
            require(preflight(arm, observing=False))


def test_faults_of_the_trial_readings_are_told(tmp_path: Path) -> None:
    with arm_of(tmp_path) as (arm, servos):
        rng = np.random.default_rng(1)

        def noisy(_: bytes, replies: list[bytes]) -> list[tuple[float, bytes]]:
            if len(replies) == 6 and rng.random() < 0.3:
                return [(0.0, b"".join(replies)[:-1] + b"\x00")]
            return [(0.0, reply) for reply in replies]

        servos.always = noisy
        warned = of_state(steady(preflight(arm, observing=True)), "warn")
        assert len(warned) == 1 and "faults in 20 readings" in warned[0].message


def test_a_port_that_goes_is_lost(tmp_path: Path) -> None:
    with arm_of(tmp_path) as (arm, servos):
        servos.unplug()
        with pytest.raises(BusLost):
            preflight(arm, observing=True)
