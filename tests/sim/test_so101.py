"""The simulated arm against the published numbers of the SO-101, and what it says of models it cannot use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mujoco
import numpy as np
import pytest

from hardware.errors import InputError
from sim.rendering import choose_backend
from sim.so101 import SimArm
from sim.so101_model import CHAIN, JOINT_NAMES, VIEWS, build_mjcf

REPOSITORY = Path(__file__).resolve().parents[2]

# Joint: world axis and world anchor at q = 0, as published for the new calibration.
ANCHORS = {
    "shoulder_pan": ((0, 0, -1), (0.0388, 0, 0.0624)),
    "shoulder_lift": ((0, 1, 0), (0.0692, -0.0183, 0.1166)),
    "elbow_flex": ((0, 1, 0), (0.0972, -0.0183, 0.2292)),
    "wrist_flex": ((0, 1, 0), (0.2321, -0.0183, 0.2344)),
    "wrist_roll": ((-1, 0, 0), (0.2932, -0.0002, 0.2344)),
    "gripper": ((0, -0.999, -0.049), (0.3166, 0.0176, 0.2555)),
}
RANGES = {
    "shoulder_pan": (-1.91986, 1.91986),
    "shoulder_lift": (-1.74533, 1.74533),
    "elbow_flex": (-1.69, 1.69),
    "wrist_flex": (-1.65806, 1.65806),
    "wrist_roll": (-2.74385, 2.84121),
    "gripper": (-0.17453, 1.74533),
}
MASSES = {
    "base": 0.147,
    "shoulder": 0.100006,
    "upper_arm": 0.103,
    "lower_arm": 0.104,
    "wrist": 0.079,
    "gripper": 0.087,
    "moving_jaw_so101_v1": 0.012,
}


@pytest.fixture(scope="module")
def arm():
    with SimArm(image_size=64) as arm:
        yield arm


@pytest.fixture(autouse=True)
def full_torque(arm: SimArm) -> Iterator[None]:
    yield
    arm.set_torque(1)


@pytest.fixture
def bare() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(build_mjcf(scene=False))


@pytest.mark.parametrize("joint", JOINT_NAMES)
def test_each_joint_axis_and_anchor_is_where_it_was_published(bare: mujoco.MjModel, joint: str) -> None:
    data = mujoco.MjData(bare)
    mujoco.mj_forward(bare, data)
    axis, anchor = ANCHORS[joint]
    np.testing.assert_allclose(data.joint(joint).xaxis, axis, atol=6e-4)
    np.testing.assert_allclose(data.joint(joint).xanchor, anchor, atol=1e-4)


def test_the_gripper_frame_is_within_a_tenth_of_a_millimetre(arm: SimArm) -> None:
    assert np.linalg.norm(arm.forward_kinematics(np.zeros(6)) - (0.3914, 0, 0.2265)) < 1e-4


def test_successive_anchors_are_as_far_apart_as_published(bare: mujoco.MjModel) -> None:
    data = mujoco.MjData(bare)
    mujoco.mj_forward(bare, data)
    anchors = np.array([data.joint(name).xanchor for name in JOINT_NAMES])
    between_mm = np.linalg.norm(np.diff(anchors, axis=0), axis=1) * 1000
    np.testing.assert_allclose(between_mm, [64.8, 116.0, 135.0, 63.7, 36.2], atol=0.05)


def test_forward_kinematics_turns_the_whole_arm_with_the_pan(arm: SimArm) -> None:
    straight, turned = arm.forward_kinematics(np.zeros(6)), arm.forward_kinematics([0.5, 0, 0, 0, 0, 0])
    pivot = np.array([0.0388353, 0, 0])  # positive pan turns clockwise seen from above
    c, s = np.cos(-0.5), np.sin(-0.5)
    expected = pivot + np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ (straight - pivot)
    np.testing.assert_allclose(turned, expected, atol=1e-9)


def test_limits_masses_and_gains_are_the_published_ones(arm: SimArm, bare: mujoco.MjModel) -> None:
    np.testing.assert_allclose(arm.limits, list(RANGES.values()), atol=1e-6)
    for body, mass in MASSES.items():
        assert bare.body(body).mass[0] == pytest.approx(mass, rel=1e-5)
    assert bare.body_subtreemass[bare.body("base").id] == pytest.approx(0.632, abs=1e-4)
    for name in JOINT_NAMES:
        actuator, joint = bare.actuator(name), bare.joint(name)
        assert actuator.gainprm[0] == pytest.approx(998.22)
        np.testing.assert_allclose(actuator.biasprm[:3], [0, -998.22, -2.731])
        np.testing.assert_allclose(actuator.forcerange, [-3.35, 3.35])
        np.testing.assert_allclose(actuator.ctrlrange, RANGES[name], atol=1e-6)
        dynamics = [float(value[0]) for value in (joint.damping, joint.frictionloss, joint.armature)]
        assert dynamics == pytest.approx([0.60, 0.052, 0.028])


def test_the_inertia_of_a_link_is_that_of_its_shapes(bare: mujoco.MjModel) -> None:
    # Slow twin: a million points in the volume of the lower arm's shapes, weighted as their mass is.
    link = next(link for link in CHAIN if link.name == "lower_arm")
    rng, points, weights = np.random.default_rng(0), [], []
    for geom in link.geoms:
        ends = np.array(geom.ends).reshape(2, 3)
        length, radius = np.linalg.norm(ends[1] - ends[0]), geom.size[0]
        reach = length / 2 + (radius if geom.kind == "capsule" else 0)
        local = rng.uniform(-1, 1, (400_000, 3)) * [radius, radius, reach]
        beyond = np.maximum(np.abs(local[:, 2]) - length / 2, 0)
        local = local[np.hypot(np.hypot(local[:, 0], local[:, 1]), beyond) <= radius]
        along = (ends[1] - ends[0]) / length
        side = np.cross(along, [0.3, 0.5, 0.8])
        side /= np.linalg.norm(side)
        points.append(ends.mean(0) + local @ np.array([side, np.cross(along, side), along]))
        weights.append(np.full(len(local), geom.volume / len(local)))
    where, weight = np.concatenate(points), np.concatenate(weights)
    weight *= link.mass_kg / weight.sum()
    centred = where - (weight[:, None] * where).sum(0) / weight.sum()
    tensor = np.einsum("i,ij,ik->jk", weight, centred, centred)
    moments = np.linalg.eigvalsh(np.trace(tensor) * np.eye(3) - tensor)
    np.testing.assert_allclose(np.sort(bare.body("lower_arm").inertia), moments, rtol=0.01)


def test_the_servos_follow_a_slow_target_and_gravity_does_not_win(arm: SimArm) -> None:
    arm.reset(None)
    start, goal = arm.position, np.array([0.3, -0.4, 0.5, 0.9, 0.6, 0.9])
    for step in range(100):
        arm.set_target(start + (goal - start) * min(1.0, step / 80))
        arm.step(4)
    np.testing.assert_allclose(arm.position, goal, atol=5e-3)
    assert np.all(np.abs(arm.velocity) < 1e-2)
    assert np.all(np.abs(arm.load) < 0.5) and np.abs(arm.load[1]) > 0.02  # the shoulder holds the arm up
    assert arm.time_s == pytest.approx(100 * 4 * arm.timestep_s)


def test_targets_outside_the_limits_are_sent_as_the_limits(arm: SimArm) -> None:
    np.testing.assert_array_equal(arm.set_target(np.full(6, 9.0)), arm.limits[:, 1])


def test_without_torque_the_arm_falls_and_with_it_again_it_holds(arm: SimArm) -> None:
    arm.reset(None)
    start = arm.position
    arm.step(200)
    np.testing.assert_allclose(arm.position, start, atol=2e-3)
    arm.set_torque(0)
    arm.step(100)
    fallen = arm.position
    assert fallen[2] - start[2] > 0.1  # the forearm sinks
    assert not arm.torque.any() and not arm.current.any()
    assert abs(arm.velocity[2]) > 0.1
    arm.set_target(fallen)
    arm.set_torque(1)
    arm.step(200)
    np.testing.assert_allclose(arm.position, fallen, atol=5e-3)
    assert arm.current[2] == pytest.approx(arm.torque[2] * 2.7 / 2.94, rel=0.01)
    assert abs(arm.current[2]) > 0.1


def test_a_motor_that_runs_freely_draws_little(arm: SimArm) -> None:
    arm.reset(None)
    arm.set_target(arm.position + np.array([1.5, 0, 0, 0, 0, 0]), glide_s=1.0)
    arm.step(100)
    assert arm.velocity[0] == pytest.approx(1.5, rel=0.05)
    # The model's damping is mostly the motor's own voltage, which stands against the torque without current.
    assert arm.torque[0] > 0.8 and abs(arm.current[0]) < 0.1
    arm.step(300)


def test_a_servo_gives_no_more_than_its_share_of_the_torque(arm: SimArm) -> None:
    arm.reset(None)
    arm.set_torque([1, 1, 0.05, 1, 1, 1])
    arm.set_target(arm.position + np.array([0, 0, -0.6, 0, 0, 0]))
    largest = np.zeros(6)
    for _ in range(60):
        arm.step()
        largest = np.maximum(largest, np.abs(arm.load))
    assert largest[2] == pytest.approx(0.05)  # it would give all it has
    arm.set_torque(1)
    arm.step()
    assert abs(arm.load[2]) > 0.5
    arm.step(300)


def test_torque_given_back_leaves_the_model_as_it_was(arm: SimArm) -> None:
    names = ("actuator_gainprm", "actuator_biasprm", "actuator_forcerange")
    before = [getattr(arm.model, name).copy() for name in names]
    arm.set_torque([0, 0.2, 1, 0, 2, -1])
    arm.set_torque(1)
    for name, value in zip(names, before, strict=True):
        np.testing.assert_array_equal(getattr(arm.model, name), value)


def test_a_servo_without_a_bound_goes_limp_by_its_gains(tmp_path: Path) -> None:
    path = model_with(tmp_path, (r'forcerange="[^"]*"', ""))
    with SimArm(path, views=()) as arm:
        start = arm.position
        arm.set_torque(0)
        arm.step(100)
        assert not arm.torque.any() and arm.position[2] - start[2] > 0.1


def test_a_limp_servo_takes_a_target_without_gliding(arm: SimArm) -> None:
    arm.reset(None)
    arm.set_torque(0)
    arm.step(100)
    here = arm.position
    arm.set_target(here, glide_s=1.0)
    arm.set_torque(1)
    arm.step(20)
    np.testing.assert_allclose(arm.position, here, atol=5e-3)  # it would glide there from the old target


def test_a_hand_moves_a_limp_joint_until_it_lets_go(arm: SimArm) -> None:
    arm.reset(None)
    arm.set_torque(0)
    arm.push([1.0, 0, 0, 0, 0, 0])
    arm.step(60)
    pushed = arm.position[0]
    assert pushed > 0.1
    arm.push(np.zeros(6))
    arm.step(60)
    later = arm.position[0]
    arm.step(60)
    assert arm.position[0] == pytest.approx(later, abs=2e-3)
    arm.set_torque(1)


def test_blocks_scattered_anew_leave_the_arm_where_it_is(arm: SimArm) -> None:
    arm.reset(np.random.default_rng(1))
    arm.set_target([0.3, -0.4, 0.5, 0.9, 0.6, 0.9], glide_s=0.5)
    arm.step(80)
    before, lay = arm.position, np.array(list(arm.blocks.values()))
    arm.scatter(np.random.default_rng(2))
    np.testing.assert_array_equal(arm.position, before)
    arm.step(100)
    lies = np.array(list(arm.blocks.values()))
    assert np.linalg.norm(lies - lay, axis=1).max() > 0.01
    assert np.all((lies[:, 2] > 0.009) & (lies[:, 2] < 0.04))  # asleep or not, they fell down


def test_images_may_be_wider_than_high(arm: SimArm) -> None:
    with (
        SimArm(views=("front",), image_size=(80, 48)) as wide,
        SimArm(views=("front",), image_size=48) as square,
    ):
        image, middle = wide.render("front"), square.render("front")
    assert image.shape == (48, 80, 3)
    # the same height is seen: the middle of the wide image is the square one
    assert np.abs(image[:, 16:64].astype(int) - middle).mean() < 6
    assert np.abs(image[:, 0:48].astype(int) - middle).mean() > 10
    for size in ((80, 4), (5000, 48), 7):
        with pytest.raises(InputError, match="image size"):
            SimArm(image_size=size)


def test_blocked_tells_table_from_arm_and_lets_free_poses_pass(arm: SimArm) -> None:
    assert arm.blocked(np.zeros(6)) is None
    assert arm.blocked([0, 1.2, 0.5, 0, 0, 0]) == "table"
    assert arm.blocked([0, -1.7, 1.6, 1.5, 0, 0]) == "arm"
    before = arm.position
    arm.blocked([0, 1.2, 0.5, 0, 0, 0])
    np.testing.assert_array_equal(arm.position, before)  # asking moves nothing


def test_a_clearance_is_kept_from_what_stands_still_and_from_itself(arm: SimArm) -> None:
    def reached(clearance_m: float) -> float:
        """How far the arm can lean forward."""
        for lean in np.arange(0.3, 0.6, 0.002):
            if arm.blocked([0, lean, 0.3, 0, 0, 0.3], clearance_m) == "table":
                return float(lean)
        raise AssertionError("nothing was hit")

    def distance(lean: float) -> float:
        """Slow twin: the least distance of any shape of the arm to the table."""
        data, line = mujoco.MjData(arm.model), np.zeros(6)
        data.qpos[:] = arm.model.qpos0
        data.qpos[:6] = [0, lean, 0.3, 0, 0, 0.3]
        mujoco.mj_kinematics(arm.model, data)
        table, base = arm.model.geom("table").id, arm.model.body("base").id
        shapes = [n for n in range(arm.model.ngeom) if base < arm.model.geom_bodyid[n] <= base + 6]
        return min(mujoco.mj_geomDistance(arm.model, data, shape, table, 1.0, line) for shape in shapes)

    margins = arm.model.geom_margin.copy(), arm.model.body_margin.copy()
    for clearance_m in (0.0, 0.005, 0.01, 0.02):
        lean = reached(clearance_m)
        assert distance(lean) <= clearance_m < distance(lean - 0.002)
    assert arm.blocked(np.zeros(6)) is None and arm.blocked(np.zeros(6), 0.05) == "arm"
    np.testing.assert_array_equal(arm.model.geom_margin, margins[0])
    np.testing.assert_array_equal(arm.model.body_margin, margins[1])


def test_no_joint_alone_strikes_the_arm_within_most_of_its_range(arm: SimArm) -> None:
    # Shapes that overlapped at rest would make every pose "blocked".
    for joint in range(6):
        for share in (-0.7, -0.3, 0.3, 0.7):
            pose = np.zeros(6)
            pose[joint] = share * arm.limits[joint, 1]
            assert arm.blocked(pose) != "arm", (joint, share)


def test_reset_scatters_blocks_by_the_generator_alone(arm: SimArm) -> None:
    def scattered(seed: int) -> np.ndarray:
        arm.reset(np.random.default_rng(seed))
        return np.array(list(arm.blocks.values()))

    one = scattered(1)
    np.testing.assert_array_equal(one, scattered(1))
    assert np.abs(one - scattered(2)).max() > 1e-3
    assert np.all((one[:, 2] > 0.009) & (one[:, 2] < 0.04))  # they lie in a bowl or on the table


def test_views_show_the_arm_from_different_sides_and_follow_it(arm: SimArm) -> None:
    arm.reset(None)
    before = {view: arm.render(view) for view in VIEWS}
    assert all(image.shape == (64, 64, 3) and image.dtype == np.uint8 for image in before.values())
    assert all(image.std() > 15 for image in before.values())
    np.testing.assert_array_equal(arm.render("front"), before["front"])
    arm.set_target([0.8, -0.4, 0.5, 0.9, 1.2, 1.2])
    arm.step(400)
    for view in VIEWS:
        changed = np.abs(arm.render(view).astype(int) - before[view]).max(axis=2) > 30
        assert changed.mean() > 0.02, view
    with pytest.raises(InputError, match="no view 'side'"):
        arm.render("side")


def test_images_are_upright_and_in_rgb(arm: SimArm) -> None:
    arm.reset(None)
    front = arm.render("front").astype(float)
    wall, table = front[:6].mean((0, 1)), front[-6:, :20].mean((0, 1))
    assert wall[2] > wall[0]  # the wall behind, at the top, is bluish; the table below is not
    assert table[0] > table[2]


def model_with(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    text = build_mjcf()
    for old, new in changes:
        text, count = re.subn(old, new, text)
        assert count, old
    path = tmp_path / "model.xml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ([(r'joint(name| name)?="wrist_flex"', r'joint\1="flex"')], "no joint 'wrist_flex'"),
        ([(r'position name="gripper"', 'position name="jaw"')], "no actuator 'gripper'"),
        ([(r'camera name="top"', 'camera name="above"')], "no camera 'top'"),
        ([(r'<position name="gripper"[^>]*>', '<motor name="gripper" joint="gripper"/>')], "position servo"),
        ([(r'(name="gripper" joint=)"gripper"', r'\1"wrist_roll"')], "does not drive"),
        ([(r'(joint name="elbow_flex" class="so101") range="[^"]*"', r"\1")], "'elbow_flex' has no range"),
        ([(r"</worldbody>", "<broken>")], "MuJoCo cannot read it"),
    ],
)
def test_a_model_that_lacks_something_is_refused_by_its_name(
    tmp_path: Path, changes: list[tuple[str, str]], named: str
) -> None:
    with pytest.raises(InputError, match=named) as error:
        SimArm(model_with(tmp_path, *changes))
    assert "model.xml" in error.value.where and error.value.remedy


def test_a_users_own_model_moves_and_renders(tmp_path: Path) -> None:
    path = model_with(tmp_path, (r'timestep="0.005"', 'timestep="0.002"'))
    with SimArm(path, views=("wrist",), image_size=32) as arm:
        arm.set_target([0.2, 0, 0, 0, 0, 0])
        arm.step(300)
        assert arm.render("wrist").shape == (32, 32, 3)
        assert arm.timestep_s == 0.002
    with pytest.raises(InputError, match="there is no such file"):
        SimArm(tmp_path / "nowhere.xml")


def test_an_unstable_model_is_an_error_and_not_a_silent_restart(tmp_path: Path) -> None:
    path = model_with(
        tmp_path, (r'timestep="0.005"', 'timestep="0.5"'), (r"kp=", 'kp="1e9" dyntype="none" gear=')
    )
    with pytest.raises(InputError, match="unstable"):
        arm = SimArm(path)
        for _ in range(200):
            arm.set_target([1, -1, 1, -1, 1, 1])
            arm.step(10)
            arm.set_target([-1, 1, -1, 1, -1, 0])
            arm.step(10)


WITHOUT_EGL = """
import ctypes, ctypes.util

load, find = ctypes.CDLL.__init__, ctypes.util.find_library

def refuse(self, name, *rest, **options):
    if name and "EGL" in str(name):
        raise OSError(f"{name}: cannot open shared object file: No such file or directory")
    load(self, name, *rest, **options)

ctypes.CDLL.__init__ = refuse
ctypes.util.find_library = lambda name: None if name == "EGL" else find(name)

from hardware.errors import InputError
from sim.so101 import SimArm

arm = SimArm()
assert arm.blocked([0] * 6) is None  # the physics needs no OpenGL
try:
    arm.render("front")
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize("backend", ["egl", None])
def test_without_the_opengl_library_the_packages_to_install_are_named(backend: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("MUJOCO_GL", "DISPLAY")}
    if backend:
        environment["MUJOCO_GL"] = backend
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_EGL], cwd=REPOSITORY, capture_output=True, text=True, env=environment
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("OpenGL (egl): no context")
    assert "apt-get install libegl1 " in run.stdout and "libgl1-mesa-dri" in run.stdout


def test_the_backend_is_chosen_by_environment_and_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    assert choose_backend() == "egl" and os.environ["MUJOCO_GL"] == "egl"
    monkeypatch.setenv("MUJOCO_GL", "vulkan")
    with pytest.raises(InputError, match="MUJOCO_GL"):
        choose_backend()
