"""The Reacher's states and steps, against dm_control's own environment."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from hardware.errors import InputError
from sim import reacher
from sim.reacher import (
    CONTROL_STEP_S,
    FINGER_RADIUS_M,
    HARD_TARGET_RADIUS_M,
    JOINTS,
    LINKS_M,
    WRIST_LIMIT_RAD,
    Arms,
    fingertip,
    inverse_kinematics,
    load_model,
    random_states,
    random_targets,
    wrap,
    wrist_position,
)
from sim.rendering import _load_triton_first, mujoco


@pytest.fixture(scope="module")
def environment():
    _load_triton_first()  # dm_control's import loads Mesa's LLVM (see sim/rendering.py)
    from dm_control import suite

    return suite.load("reacher", "hard", task_kwargs={"random": 3})


def test_the_model_is_the_suites(environment) -> None:
    ours, theirs = load_model(), environment.physics.model.ptr
    size = mujoco.mj_sizeModel(ours)
    assert size == mujoco.mj_sizeModel(theirs)
    buffers = [np.empty(size, np.uint8), np.empty(size, np.uint8)]
    mujoco.mj_saveModel(ours, None, buffers[0])
    mujoco.mj_saveModel(theirs, None, buffers[1])
    # The buffers hold the model's name and its path as well; all numbers are compared.
    for name in (
        "geom_size",
        "geom_pos",
        "geom_rgba",
        "body_inertia",
        "dof_damping",
        "actuator_gear",
        "tex_data",
    ):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_the_constants_are_the_models(environment) -> None:
    model = load_model()
    assert tuple(model.joint(number).name for number in range(model.njnt)) == JOINTS
    assert not model.jnt_limited[0] and model.jnt_limited[1]
    assert model.jnt_range[1] == pytest.approx([-WRIST_LIMIT_RAD, WRIST_LIMIT_RAD], abs=1e-12)
    assert environment.control_timestep() == CONTROL_STEP_S
    assert model.geom("finger").size[0] == FINGER_RADIUS_M
    environment.reset()
    assert environment.physics.named.model.geom_size["target", 0] == HARD_TARGET_RADIUS_M


def test_forward_kinematics_are_the_models() -> None:
    model = load_model()
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    for angles in rng.normal(0, 1.5, (50, 2)):
        data.qpos[:] = angles
        mujoco.mj_kinematics(model, data)
        np.testing.assert_allclose(fingertip(angles), data.geom("finger").xpos[:2], atol=1e-12)
        np.testing.assert_allclose(wrist_position(angles), data.body("hand").xpos[:2], atol=1e-12)


def test_both_inverse_solutions_reach_the_point_and_are_all_there_are() -> None:
    rng = np.random.default_rng(1)
    angles = random_states(500, rng)
    found = inverse_kinematics(fingertip(angles))
    np.testing.assert_allclose(fingertip(found), np.repeat(fingertip(angles)[:, None], 2, 1), atol=1e-9)
    assert np.all(found[:, 0, 1] >= 0) and np.all(found[:, 1, 1] <= 0)
    # the angles that made the point are one of the two
    off = np.abs(wrap(found - angles[:, None])).max(axis=-1).min(axis=1)
    assert off.max() < 1e-6
    assert np.all(np.abs(found[..., 0]) <= np.pi)


def test_points_out_of_reach_have_no_solution() -> None:
    near = 2 * LINKS_M[0] * np.cos(WRIST_LIMIT_RAD / 2)  # the nearest that a wrist at its limit comes
    points = np.array([[0.241, 0], [0, near - 1e-4], [0, near + 1e-4], [0.239, 0]])
    assert np.isnan(inverse_kinematics(points)).all(axis=(1, 2)).tolist() == [True, True, False, False]


def test_wrapped_angles_keep_their_direction() -> None:
    angles = np.array([np.pi, -np.pi, 3 * np.pi, 0.1, -0.1 - 6 * np.pi, 4.0])
    np.testing.assert_allclose(wrap(angles), [np.pi, np.pi, np.pi, 0.1, -0.1, 4.0 - 2 * np.pi], atol=1e-12)


def environment_motion(environment, qpos, qvel, actions) -> tuple[np.ndarray, np.ndarray]:
    """Slow twin: the environment's own steps from a state."""
    environment.reset()
    physics = environment.physics
    with physics.reset_context():
        physics.data.qpos[:], physics.data.qvel[:] = qpos, qvel
    states = [(physics.position(), physics.velocity())]
    for action in actions:
        environment.step(action)
        states.append((physics.position(), physics.velocity()))
    return np.array([one[0] for one in states]), np.array([one[1] for one in states])


def test_arms_move_as_the_environment_steps_them(environment) -> None:
    rng = np.random.default_rng(0)
    qpos, qvel = random_states(6, rng), rng.normal(0, 1, (6, 2))
    actions = rng.uniform(-1, 1, (6, 150, 2))
    actions[2:4] = np.sign(actions[2:4])
    actions[4:] = 1.3 * np.abs(actions[4:])  # into the wrist's limit, and beyond what is taken
    moved = Arms(qpos, qvel).follow(actions)
    for arm in range(6):
        expected = environment_motion(environment, qpos[arm], qvel[arm], actions[arm])
        np.testing.assert_allclose(moved.qpos[arm], expected[0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(moved.qvel[arm], expected[1], rtol=0, atol=1e-11)
    assert moved.qpos[4:, :, 1].max() > WRIST_LIMIT_RAD  # the limit is soft, and was reached
    assert np.abs(moved.qpos[:, -1] - qpos).max() > 1


def test_single_steps_and_a_walk_of_them_are_the_same() -> None:
    rng = np.random.default_rng(2)
    qpos, actions = random_states(5, rng), rng.uniform(-1, 1, (5, 40, 2))
    whole, single = Arms(qpos), Arms(qpos)
    moved = whole.follow(actions)
    assert moved.qpos.shape == (5, 41, 2)
    np.testing.assert_array_equal(moved.qpos[:, 0], qpos)
    for step in range(40):
        single.step(actions[:, step])
    np.testing.assert_allclose(single.qpos, whole.qpos, rtol=0, atol=1e-12)
    np.testing.assert_allclose(single.qvel, whole.qvel, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(whole.follow(actions[:, :0]).qpos[:, 0], whole.qpos)


def test_starts_and_targets_are_spread_as_the_suites(environment) -> None:
    rng = np.random.default_rng(0)
    states, targets = random_states(4000, rng), random_targets(4000, rng)
    theirs = []
    for _ in range(300):
        environment.reset()
        place = environment.physics.named.model.geom_pos["target", :2].copy()
        theirs.append((*environment.physics.position(), *place))
    theirs = np.array(theirs)
    from scipy.stats import ks_2samp

    distance = np.linalg.norm(targets, axis=1), np.linalg.norm(theirs[:, 2:], axis=1)
    direction = np.arctan2(*targets.T), np.arctan2(*theirs[:, 2:].T)
    for ours, its in ((states[:, 0], theirs[:, 0]), (states[:, 1], theirs[:, 1]), distance, direction):
        assert ks_2samp(ours, its).pvalue > 1e-3


def test_without_dm_control_its_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(reacher.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="dm_control: is not installed"):
        load_model()


def test_the_model_needs_no_import_of_dm_control() -> None:
    import subprocess

    code = "import sys; from sim.reacher import load_model; load_model(); print('dm_control' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
