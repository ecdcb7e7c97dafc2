"""`jointprobe record` on an emulated arm, as a script and as a person run it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from hardware import Recording
from sim.camera_server import CameraServer, moving_pictures
from sim.lagging_arm import LaggingArm
from sim.servo import calibrated_servos
from sim.servo_bus import ServoBusEmulator
from sim.twin_calibration import twin_calibration

pytestmark = pytest.mark.realtime

PATIENCE_S = 120.0


@dataclass
class Plugged:
    """An emulated arm and camera, and the words of the command line that name them."""

    folder: Path
    bus: ServoBusEmulator
    cameras: CameraServer

    @property
    def words(self) -> list[str]:
        arm = ["--robot", "so101", "--port", self.bus.port, "--calibration", str(self.folder / "arm.json")]
        return [*arm, "--view", f"front={self.cameras.url('front')}", "--joints-hz", "50"]

    def start(self, *words: object, to: str = "r") -> subprocess.Popen[str]:
        """Start `jointprobe record` without a terminal."""
        return start("record", *self.words, "--to", self.folder / to, *words)


def start(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "probe.cli", *map(str, words)]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def jointprobe(*words: object) -> tuple[int, str, str]:
    return end(start(*words))


def wait_for_rows(folder: Path, process: subprocess.Popen[str]) -> None:
    """Until an episode has been running for two seconds: four commits."""
    until = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < until:
        if list(folder.glob("episodes/*.partial")):
            time.sleep(2.0)
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing was recorded: {process.communicate()}")


@pytest.fixture()
def plugged(tmp_path: Path) -> Iterator[Plugged]:
    calibration = twin_calibration(tmp_path / "arm.json")
    arm = LaggingArm({motor.id: 2047.0 + 40 * motor.id for motor in calibration.motors})
    server = CameraServer({"front": moving_pictures(20, (64, 48))}, fps=20)
    with ServoBusEmulator(arm, calibrated_servos(calibration), paced=False) as bus, server:
        yield Plugged(tmp_path, bus, server)


def test_a_script_records_without_a_terminal_or_a_key(plugged: Plugged) -> None:
    code, out, err = end(plugged.start("--motion", "observe", "--episodes", "2", "--seconds", "1", "--json"))
    assert code == 0, err
    said = json.loads(out)
    assert said["sealed"] == [0, 1] and said["ended"] == "done" and said["problem"] == ""
    made = Recording.open(plugged.folder / "r")
    assert made.info.robot == "so101" and made.info.motion == "observe" and made.info.actions is None
    assert made.info.devices["cameras"]["front"]["jpeg_by"] == "camera"
    assert set(made.info.devices["arm"]["servos"]) == set(made.info.joint_names)
    assert made.info.calibration["form"] == "new" and made.info.motion_settings["frame"] == "model"
    assert all(not servo.writes for servo in plugged.bus.servos.values())
    code, out, err = jointprobe("check", plugged.folder / "r", "--json")
    assert set(json.loads(out)["failed"]) <= {"shared_frames"}, err  # the camera begins anew in each episode
    code, out, err = jointprobe("show", plugged.folder / "r", "--to", plugged.folder / "r.png", "--json")
    assert code == 0 and (plugged.folder / "r.png").stat().st_size > 10_000, err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_seals_the_episode_and_frees_the_arm(plugged: Plugged, number: int, code: int) -> None:
    process = plugged.start("--motion", "walk", "--seconds", "60", "--episodes", "3")
    wait_for_rows(plugged.folder / "r", process)
    process.send_signal(number)
    found, _, err = end(process)
    assert found == code, err
    episode = Recording.open(plugged.folder / "r").episode(0)
    episode.verify()
    assert episode.line.joint_rows > 10 and len(episode.actions().time_ns) > 10
    assert episode.line.faults["ended_early"] == 1
    assert len(episode.knots().time_ns) >= 1 and "acceptance" in episode.notes()
    assert [servo.get("Torque_Enable") for servo in plugged.bus.servos.values()] == [0] * 6
    assert all(servo.eeprom_writes == [] for servo in plugged.bus.servos.values())


def test_what_a_kill_leaves_is_sealed_by_recover_and_recording_goes_on(plugged: Plugged) -> None:
    process = plugged.start("--motion", "observe", "--seconds", "60", "--episodes", "2")
    wait_for_rows(plugged.folder / "r", process)
    process.kill()
    process.communicate()
    code, out, err = jointprobe("record", "--recover", plugged.folder / "r")
    assert code == 0 and "episode 0" in out, (out, err)
    line = Recording.open(plugged.folder / "r").episode(0).line
    assert line.joint_rows > 10 and line.faults["recovered"] == 1
    code, out, err = jointprobe("record", "--recover", plugged.folder / "r")
    assert code == 0, err
    code, out, err = end(plugged.start("--motion", "observe", "--seconds", "1", "--episodes", "2"))
    assert code == 0 and Recording.open(plugged.folder / "r").episode_indices == [0, 1, 2], err


def test_a_recording_is_continued_after_a_kill_without_being_told(plugged: Plugged) -> None:
    process = plugged.start("--motion", "observe", "--seconds", "60", "--episodes", "2")
    wait_for_rows(plugged.folder / "r", process)
    process.kill()
    process.communicate()
    code, _, err = end(plugged.start("--motion", "observe", "--seconds", "1", "--episodes", "2"))
    assert code == 0 and "episode 0" in err, err
    made = Recording.open(plugged.folder / "r")
    assert made.episode(0).line.faults["recovered"] == 1
    assert made.episode_indices == [0, 1, 2]  # what was cut off does not count


def test_a_pulled_cable_is_exit_code_1_and_one_line(plugged: Plugged) -> None:
    process = plugged.start("--motion", "observe", "--seconds", "60", "--episodes", "2")
    wait_for_rows(plugged.folder / "r", process)
    plugged.bus.unplug()
    code, _, err = end(process)
    assert code == 1 and "bus_lost" in err and "sealed" in err, err
    assert Recording.open(plugged.folder / "r").episode_indices == [0]


def test_a_second_recorder_on_the_port_is_refused(plugged: Plugged) -> None:
    process = plugged.start("--motion", "observe", "--seconds", "60")
    wait_for_rows(plugged.folder / "r", process)
    code, _, err = end(plugged.start("--motion", "observe", "--seconds", "1", to="other"))
    assert code == 2 and "in use" in err and not (plugged.folder / "other").exists(), err
    process.send_signal(signal.SIGINT)
    assert end(process)[0] == 130
    assert Recording.open(plugged.folder / "r").episode(0).line.joint_rows > 10


def test_a_full_disk_is_one_error_and_what_was_sealed_stays(plugged: Plugged) -> None:
    import resource

    def small_disk() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (800_000, 800_000))

    words = ["record", *plugged.words, "--to", plugged.folder / "r", "--motion", "observe", "--seconds", "1"]
    assert jointprobe(*words, "--episodes", "1")[0] == 0
    command = [sys.executable, "-m", "probe.cli", *map(str, words[:-1]), "60", "--episodes", "2"]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        preexec_fn=small_disk,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 2 and "disk is full" in done.stderr, done.stderr
    assert done.stderr.count("jointprobe:") == 1 and "Traceback" not in done.stderr
    made = Recording.open(plugged.folder / "r")
    made.episode(0).verify()
    assert jointprobe("record", "--recover", plugged.folder / "r")[0] == 0
    assert Recording.open(plugged.folder / "r").episode(1).line.joint_rows > 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--motion", "observe"), "--to"),
        (("--to", "x"), "--motion"),
        (("--to", "x", "--motion", "demos", "--robot", "so101"), "is not there for --robot so101"),
        (("--to", "x", "--motion", "teleop"), "is not there for --robot sim"),
        (("--to", "x", "--motion", "walk", "--port", "/dev/ttyACM0"), "--port"),
        (("--to", "x", "--motion", "observe", "--robot", "so101", "--seconds", "1"), "--port"),
        (("--to", "x", "--motion", "observe", "--robot", "twin"), "--seconds"),
        (("--to", "x", "--motion", "replay", "--robot", "twin"), "--replay"),
        (
            ("--to", "x", "--motion", "observe", "--robot", "twin", "--seconds", "1", "--size", "big"),
            "--size",
        ),
        (
            ("--to", "x", "--motion", "observe", "--robot", "so101", "--port", "/dev/nope", "--seconds", "1"),
            "--calibration",
        ),
        (("--recover", "nowhere"), "nowhere"),
    ],
)
def test_bad_words_are_one_error_that_names_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], problem: str
) -> None:
    code, _, err = jointprobe("record", *words)
    assert code == 2 and problem in err and err.count("jointprobe:") == 1, err
    assert not Path("x").exists()


def test_a_port_that_is_not_there_is_named(tmp_path: Path) -> None:
    twin_calibration(tmp_path / "arm.json")
    words = ("--port", tmp_path / "nope", "--calibration", tmp_path / "arm.json", "--seconds", "1")
    code, _, err = jointprobe(
        "record", "--robot", "so101", "--motion", "observe", "--to", tmp_path / "r", *words
    )
    assert code == 2 and "nope" in err and not (tmp_path / "r").exists(), err


def test_the_twin_is_watched_while_a_hand_moves_it(tmp_path: Path) -> None:
    code, _, err = jointprobe(
        "record", "--robot", "twin", "--motion", "observe", "--episodes", "1", "--seconds", "4",
        "--size", "160x120", "--fps", "8", "--to", tmp_path / "r", "--json",
    )  # fmt: skip
    assert code == 0, err
    made = Recording.open(tmp_path / "r")
    assert made.info.robot == "twin-so101" and made.info.view_names == ["front", "wrist"]
    position = made.episode(0).joints().position
    assert np.ptp(position, axis=0).max() > 0.2  # the hidden hand carries blocks about
    image = next(iter(made.episode(0).frames("wrist")))
    assert image.shape == (120, 160, 3) and image.std() > 10


def test_the_recorder_loads_neither_torch_nor_mujoco() -> None:
    code = "import sys, probe.cli, probe.recording, probe.live_view; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {"torch", "torchvision", "transformers", "mujoco", "dm_control", "matplotlib", "sklearn", "scipy"}
    assert heavy.isdisjoint(loaded.split())
