"""The obstacle check in its own process against the model in this one, and what happens when it is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hardware.errors import InputError
from hardware.motions import WalkSettings, walk_knots
from sim.json_process import JsonProcess
from sim.obstacles_process import Obstacles
from sim.so101 import SimArm

REPOSITORY = Path(__file__).resolve().parents[2]
CENTRE = (0.0, -0.45, 0.35, 0.7, 0.05, 0.785)


@pytest.fixture(scope="module")
def obstacles() -> Iterator[Obstacles]:
    with Obstacles() as obstacles:
        yield obstacles


def gone(pid: int) -> bool:
    """Whether a process ended; waits for a while."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return True
        if status.rsplit(")", 1)[1].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_it_says_what_the_model_says(obstacles: Obstacles) -> None:
    poses = np.random.default_rng(3).normal(CENTRE, 0.6, (400, 6))
    with SimArm(views=()) as arm:
        expected = [arm.blocked(pose) for pose in poses]
        np.testing.assert_array_equal(obstacles.limits, arm.limits)
        assert obstacles.joint_names == arm.joint_names
        near = [arm.blocked(pose, 0.01) for pose in poses]
    assert {None, "table", "arm"} <= set(expected)
    assert obstacles.path(poses) == expected
    assert [obstacles(pose) for pose in poses[:20]] == expected[:20]
    assert obstacles.path(np.zeros((0, 6))) == []
    assert near != expected
    with Obstacles(clearance_m=0.01) as careful:
        assert careful.path(poses) == near


def test_a_walk_planned_through_it_is_the_walk_planned_on_the_model(obstacles: Obstacles) -> None:
    settings = WalkSettings(centre_rad=(0.0, -0.1, 0.5, 0.8, 0.05, 0.785))  # near the table
    asked = walk_knots(settings, obstacles.limits, 60, obstacles, np.random.default_rng(1))
    with SimArm(views=()) as arm:
        known = walk_knots(settings, arm.limits, 60, arm.blocked, np.random.default_rng(1))
    np.testing.assert_array_equal(asked.knots, known.knots)
    assert asked.rejected == known.rejected and "table" in " ".join(asked.rejected)


@pytest.mark.parametrize(
    ("poses", "said"),
    [([[0.0] * 5], "shape"), ([[np.nan] * 6], "not finite"), ([[0.0] * 6, [0.0] * 6], None)],
)
def test_what_is_no_pose_is_refused_and_the_next_one_answered(
    obstacles: Obstacles, poses: list[list[float]], said: str | None
) -> None:
    if said is None:
        assert obstacles.path(poses) == [None, None]
    else:
        with pytest.raises(InputError, match=said):
            obstacles.path(poses)
    assert obstacles(np.zeros(6)) is None


def test_lines_that_are_not_json_get_an_error_and_the_end_of_input_ends_it() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "sim.obstacles"],
        cwd=REPOSITORY,
        input='no json\n{"p": 1}\n{"q": [[0, 1.2, 0.5, 0, 0, 0], [0, 0, 0, 0, 0, 0]]}\n',
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    hello, one, two, three = (json.loads(line) for line in run.stdout.splitlines())
    assert len(hello["joints"]) == len(hello["limits"]) == 6
    assert "not understood" in one["error"] and "not understood" in two["error"]
    assert three == {"blocked": ["table", None]}


def test_a_killed_service_is_an_error_and_not_a_hang() -> None:
    with Obstacles() as obstacles:
        os.kill(obstacles.pid, signal.SIGKILL)
        assert gone(obstacles.pid)
        for _attempt in range(2):
            with pytest.raises(InputError, match="the obstacle check"):
                obstacles(np.zeros(6))


def test_a_service_that_hangs_is_an_error_and_leaves_no_process() -> None:
    process = JsonProcess("sim.obstacles", [], "the obstacle check", 60.0)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(InputError, match="did not answer within 0"):
        process.ask({"q": [[0.0] * 6]}, 0.3)
    process.close()
    assert gone(process.pid)
    with pytest.raises(InputError, match="closed"):
        process.ask({"q": []}, 1.0)


def test_a_model_it_cannot_use_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        Obstacles(tmp_path / "none.xml")


def test_it_ends_when_the_process_that_asks_is_killed() -> None:
    code = (
        "import os, sys, time; from sim.obstacles_process import Obstacles; o = Obstacles()\n"
        "if os.fork() == 0: time.sleep(600)  # a child that keeps the pipe open\n"
        "print(o.pid, 'mujoco' in sys.modules, 'torch' in sys.modules, flush=True); time.sleep(600)"
    )
    asker = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert asker.stdout is not None
        pid, mujoco, torch = asker.stdout.readline().split()
        assert (mujoco, torch) == ("False", "False")
        os.kill(asker.pid, signal.SIGKILL)
        asker.wait()
        assert gone(int(pid))
    finally:
        os.killpg(asker.pid, signal.SIGKILL)
