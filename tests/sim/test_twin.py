"""The twin as a process: its bus and cameras answer, trouble can be asked for, and it outlives nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from raw_bus import RawBus

from hardware.calibration import RADIANS_PER_TICK, load_calibration
from hardware.errors import InputError
from hardware.frames import decode_jpeg
from hardware.so101 import JOINT_NAMES, LIMITS_RAD
from sim.so101 import SimArm
from sim.twin import main
from sim.twin_process import Twin

pytestmark = pytest.mark.realtime

REPOSITORY = Path(__file__).resolve().parents[2]
HANG_S = 60.0


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    with Twin(size=(160, 120), fps=10, hand="none", seed=3) as twin:
        yield twin


@pytest.fixture
def bus(twin: Twin) -> Iterator[RawBus]:
    with RawBus(twin.port, load_calibration(twin.calibration)) as bus:
        yield bus
        bus.torque(False)
        bus.read()


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether something comes true; waits for a while."""
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.05)
    return False


def gone(pid: int) -> bool:
    """Whether a process ended, its parent having asked for it or not."""

    def ended() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            return True

    return eventually(ended)


def truth(twin: Twin) -> dict[str, np.ndarray]:
    state = twin.command({"state": True})
    return {name: np.array(state[name]) for name in ("position", "velocity", "torque_share")}


def picture(url: str) -> np.ndarray:
    """The first picture that a view sends, RGB."""
    with urllib.request.urlopen(url, timeout=HANG_S) as stream:
        data = b""
        while b"\xff\xd9" not in data[data.find(b"\xff\xd8") + 1 :]:
            data += stream.read(1024)
    start = data.find(b"\xff\xd8")
    return decode_jpeg(data[start : data.find(b"\xff\xd9", start) + 2], "a view")


# -- what it is ----------------------------------------------------------------------------------------------


def test_it_says_where_its_parts_are(twin: Twin) -> None:
    assert Path(twin.port).exists() and twin.leader_port is None and twin.leader_calibration is None
    assert load_calibration(twin.calibration).names == list(JOINT_NAMES)
    assert list(twin.views) == ["front", "wrist"]
    assert twin.alive


def test_the_bus_tells_where_the_arm_is(twin: Twin, bus: RawBus) -> None:
    assert eventually(lambda: bool(truth(twin)["position"][2] > 1.2))  # it falls
    before, read_at, after = truth(twin)["position"], bus.position(), truth(twin)["position"]
    noise = 4 * RADIANS_PER_TICK
    assert np.all(read_at > np.minimum(before, after) - noise)
    assert np.all(read_at < np.maximum(before, after) + noise)
    read = bus.read()
    np.testing.assert_array_equal(read["Present_Voltage"], 74)
    assert np.all((read["Present_Temperature"] >= 25) & (read["Present_Temperature"] < 30))
    assert not read["Present_Load"].any() and not read["error"].any()
    assert not truth(twin)["torque_share"].any()


def test_goals_move_it_once_torque_is_on_and_gravity_loads_it(twin: Twin, bus: RawBus) -> None:
    bus.send(truth(twin)["position"])
    bus.torque(True)
    start, goal = truth(twin)["position"], np.array([0.5, -0.3, 0.2, 0.3, 0.6, 0.9])
    for share in np.linspace(0, 1, 60):
        bus.send(start + share * (goal - start))
        time.sleep(0.02)
    assert eventually(lambda: bool(np.abs(bus.position() - goal).max() < 0.02))
    assert eventually(lambda: bool(np.abs(truth(twin)["velocity"]).max() < 0.01))
    assert np.abs(truth(twin)["position"] - goal).max() < 0.02
    held = bus.read()
    assert abs(held["Present_Load"][1]) > 30 and np.sign(held["Present_Load"][1]) == np.sign(
        held["Present_Current"][1]
    )
    bus.write("Torque_Limit", [1000, 0, 1000, 1000, 1000, 1000])
    assert eventually(lambda: bool(truth(twin)["position"][1] > goal[1] + 0.3))  # the shoulder sinks
    np.testing.assert_array_equal(truth(twin)["torque_share"], [1, 0, 1, 1, 1, 1])
    bus.write("Torque_Limit", [1000] * 6)
    bus.torque(False)
    assert eventually(lambda: not truth(twin)["torque_share"].any())


def test_time_passes_as_on_the_wall(twin: Twin) -> None:
    before, start = twin.command({"state": True})["time_s"], time.monotonic()
    time.sleep(0.7)
    passed = twin.command({"state": True})["time_s"] - before
    assert passed == pytest.approx(time.monotonic() - start, abs=0.3)


def test_the_cameras_show_the_arm(twin: Twin, bus: RawBus) -> None:
    assert eventually(lambda: bool(np.abs(truth(twin)["velocity"]).max() < 0.1))
    seen = {view: picture(url).astype(float) for view, url in twin.views.items()}
    assert all(image.shape == (120, 160, 3) for image in seen.values())
    with SimArm(views=("front", "wrist"), image_size=(160, 120)) as arm:
        scene = arm.scene
        scene[:6] = truth(twin)["position"]
        arm.show(scene)
        for view, image in seen.items():
            # the blocks lie elsewhere; the rest is the same but for noise and JPEG
            assert np.median(np.abs(image - arm.render(view))) < 6, view
        assert np.median(np.abs(seen["front"] - arm.render("wrist"))) > 12
    before = seen["front"]
    bus.send(truth(twin)["position"])
    bus.torque(True)
    bus.send(truth(twin)["position"] + [0.6, -0.5, 0, 0, 0, 0])
    assert eventually(
        lambda: bool((np.abs(picture(twin.views["front"]) - before).max(axis=2) > 40).mean() > 0.02)
    )


# -- trouble on request --------------------------------------------------------------------------------------


def test_servos_have_trouble_on_request(twin: Twin, bus: RawBus) -> None:
    twin.command({"servo": 3, "flag": "overload"})
    np.testing.assert_array_equal(bus.read()["error"], [0, 0, 32, 0, 0, 0])
    twin.command({"servo": 3, "flag": None})
    assert not bus.read()["error"].any()
    twin.command({"servo": 4, "dead": True})
    assert not bus.answers(4) and bus.answers(5)
    twin.command({"servo": 4, "dead": False})
    assert bus.answers(4)
    twin.command({"servo": 2, "register": "Present_Load", "value": 5})
    twin.command({"servo": 2, "power_cycle": True})
    assert bus.answers(2)


def test_the_bus_has_trouble_on_request(twin: Twin) -> None:
    calibration = load_calibration(twin.calibration)
    with RawBus(twin.port, calibration) as bus:
        twin.command({"bus": "hang"})
        assert not bus.answers(1)
        twin.command({"bus": "resume"})
        assert bus.answers(1)
        twin.command({"bus": "lost", "servo": 1})
        assert not bus.answers(1)
        assert bus.answers(1)
        assert twin.command({"state": True})["faults"]["follower"]["lost"] == 1
        twin.command({"bus": "faults", "shares": {"lost": 1.0}})
        assert not bus.answers(1)
        twin.command({"bus": "faults", "shares": {}})
        assert bus.answers(1)
        twin.command({"bus": "unplug"})
        assert not Path(twin.port).exists()
        twin.command({"bus": "plug_in"})
    with RawBus(twin.port, calibration) as bus:
        assert np.abs(bus.position()).max() < 4


def test_cameras_have_trouble_on_request(twin: Twin) -> None:
    def taken(view: str) -> int:
        return int(twin.command({"state": True})["pictures"][view])

    twin.command({"camera": "front", "fault": "stall"})
    stalled, other = taken("front"), taken("wrist")
    assert eventually(lambda: taken("wrist") > other + 3)
    assert taken("front") <= stalled + 1
    twin.command({"camera": "front", "fault": None})
    assert eventually(lambda: taken("front") > stalled + 2)
    twin.command({"camera": "wrist", "fault": "black"})
    assert eventually(lambda: picture(twin.views["wrist"]).mean() < 10)
    twin.command({"camera": "wrist", "fault": None})
    assert eventually(lambda: picture(twin.views["wrist"]).mean() > 40)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"bus": "melt"}, "melt"),
        ({"bus": "unplug", "arm": "leader"}, "no arm 'leader'"),
        ({"bus": "faults", "shares": {"lost": 2}}, "probabilities"),
        ({"servo": 9, "flag": "overload"}, "KeyError"),
        ({"servo": 1, "flag": "sorrow"}, "KeyError"),
        ({"servo": 1}, "KeyError"),
        ({"camera": "side", "fault": "stall"}, "no view 'side'"),
        ({"camera": "front", "fault": "rain"}, "rain"),
        ({"weather": "rain"}, "none of state"),
    ],
)
def test_what_it_does_not_understand_is_an_error(twin: Twin, request_: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        twin.command(request_)
    assert twin.command({"state": True})["time_s"] > 0


# -- by hand -------------------------------------------------------------------------------------------------


def test_a_leader_is_moved_and_the_arm_can_follow_it() -> None:
    with Twin(views=(), leader=True, seed=1) as twin:
        assert twin.leader_port and twin.leader_calibration and twin.views == {}
        own, other = load_calibration(twin.leader_calibration), load_calibration(twin.calibration)
        assert [motor.homing_offset for motor in own.motors] != [
            motor.homing_offset for motor in other.motors
        ]
        with RawBus(twin.leader_port, own) as leader, RawBus(twin.port, other) as follower:
            follower.send(follower.position())
            follower.torque(True)
            led, gaps = [], []
            for tick in range(200):
                led.append(leader.position())
                follower.send(led[-1])
                time.sleep(0.01)
                if tick > 50:
                    gaps.append(np.abs(follower.position() - led[-1]).max())
        led_limits = np.array(led)
        assert np.ptp(led_limits, axis=0).max() > 0.3
        assert np.all((led_limits >= LIMITS_RAD[:, 0] - 0.01) & (led_limits <= LIMITS_RAD[:, 1] + 0.01))
        assert np.median(gaps) < 0.15


def test_a_hand_moves_the_limp_arm_and_lets_go_when_torque_is_on() -> None:
    with (
        Twin(views=(), hand="demos", seed=2) as twin,
        RawBus(twin.port, load_calibration(twin.calibration)) as bus,
    ):
        places = []
        assert eventually(
            lambda: places.append(bus.position()) is None and bool(np.ptp(places, axis=0).max() > 0.4)  # type: ignore[func-returns-value]
        )
        bus.send(bus.position())
        bus.torque(True)
        assert eventually(lambda: bool(truth(twin)["torque_share"].all()))
        assert eventually(lambda: bool(np.abs(truth(twin)["velocity"]).max() < 0.02))
        held = truth(twin)["position"]
        time.sleep(1.0)
        assert np.abs(truth(twin)["position"] - held).max() < 0.01
        bus.torque(False)
        assert eventually(lambda: bool(np.abs(truth(twin)["position"] - held).max() > 0.1))


# -- its life ------------------------------------------------------------------------------------------------


def test_it_ends_with_its_front_and_leaves_nothing() -> None:
    twin = Twin(views=())
    port, calibration = Path(twin.port), twin.calibration
    assert port.exists() and calibration.exists()
    twin.close()
    twin.close()
    assert gone(twin.pid) and not twin.alive
    assert not port.exists() and not calibration.parent.exists()
    with pytest.raises(InputError, match="the twin: has been closed"):
        twin.command({"state": True})


def test_sigterm_ends_it_cleanly_and_its_front_says_so() -> None:
    with Twin(views=("front",), size=(64, 48), fps=5) as twin:
        folder = twin.calibration.parent
        os.kill(twin.pid, signal.SIGTERM)
        assert gone(twin.pid)
        assert not folder.exists() and not Path(twin.port).exists()
        with pytest.raises(InputError, match="the twin: ended with exit code 0"):
            twin.command({"state": True})


OWNER = """
import os, sys, time
from sim.twin_process import Twin
twin = Twin(views=())
if os.fork() == 0:  # a child that keeps the pipe open
    time.sleep(600)
print(twin.pid, *sorted({"mujoco", "torch"} & set(sys.modules)), flush=True)
time.sleep(600)
"""


def test_it_does_not_outlive_a_killed_parent() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert owner.stdout is not None
        words = owner.stdout.readline().split()
        assert len(words) == 1, words  # no heavy module came with the front
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        assert gone(int(words[0]))
    finally:
        os.killpg(owner.pid, signal.SIGKILL)


def test_an_interrupt_at_the_terminal_is_not_for_it(twin: Twin) -> None:
    assert os.getpgid(twin.pid) != os.getpgid(0)  # Ctrl-C goes to the recorder's group: it needs its bus yet


def test_a_view_it_cannot_show_is_named_by_the_front() -> None:
    with pytest.raises(InputError, match="no camera 'side'") as error:
        Twin(views=("side",))
    assert error.value.where == "the twin"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--size", "4x4"], "image size"),
        (["--size", "big"], "--size"),
        (["--faults", "rain=0.5"], "--faults"),
        (["--faults", "lost=1.5"], "--faults"),
        (["--faults", "lost"], "--faults"),
        (["--fps", "0"], "--fps"),
        (["--seed", "-1"], "--seed"),
        (["--mjcf", "nowhere.xml"], "there is no such file"),
    ],
)
def test_what_it_cannot_start_with_is_named(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_the_front_door_opens_without_mujoco_and_leads_to_all_it_names() -> None:
    code = (
        "import sys, sim, sim.twin_process, sim.obstacles_process\n"
        "heavy = {'mujoco', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert sim.Twin is sim.twin_process.Twin and 'mujoco' not in sys.modules\n"
        "from sim import rendering\n"
        "assert all(getattr(sim, name) is not None for name in sim.__all__)\n"
        "assert sim.SimArm.__name__ == 'SimArm' and rendering.SceneRenderer\n"
        "try: sim.nothing\n"
        "except AttributeError as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "no attribute 'nothing'" in run.stdout
