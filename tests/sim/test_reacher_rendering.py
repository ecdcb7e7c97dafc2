"""The Reacher's images, byte for byte against dm_control's, in one process and in several."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hardware.errors import InputError
from hardware.workers import WorkerPool
from sim import reacher_processes, reacher_rendering
from sim.reacher_processes import BLOCK, ReacherRenderers, render_states
from sim.reacher_rendering import ReacherRenderer

HERE = Path(__file__).parent
SEED = 77


def reference_of(angles: np.ndarray, folder: Path) -> np.ndarray:
    """dm_control's images, made in a process of its own."""
    np.save(folder / "angles.npy", angles)
    arguments = [str(HERE / "reacher_reference.py"), str(folder / "angles.npy"), str(folder / "frames.npy")]
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return np.load(folder / "frames.npy")


@pytest.fixture(scope="module")
def angles() -> np.ndarray:
    return np.random.default_rng(SEED).normal(0, 1.5, (300, 2))


@pytest.fixture(scope="module")
def expected(angles: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    return reference_of(angles, tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="module")
def renderer():
    with ReacherRenderer() as one:
        yield one


def test_300_images_are_dm_controls_to_the_byte(renderer, angles, expected) -> None:
    assert renderer.limits_shadows
    frames = renderer.render(angles)
    assert frames.shape == (300, 64, 64, 3) and frames.dtype == np.uint8
    assert len(np.unique(frames.reshape(300, -1), axis=0)) > 295  # they show different states
    np.testing.assert_array_equal(frames, expected)


def test_so_are_they_with_the_whole_shadow_map(angles, expected) -> None:
    # 3 ms more an image; the first hundred hold one whose pixel shows a missing shadow of the ground
    with ReacherRenderer(limit_shadows=False) as plain:
        assert not plain.limits_shadows
        np.testing.assert_array_equal(plain.render(angles[:100]), expected[:100])


@pytest.mark.slow
def test_3000_images_are_dm_controls_to_the_byte(renderer, tmp_path: Path) -> None:
    angles = np.random.default_rng(SEED).normal(0, 1.5, (3000, 2))
    np.testing.assert_array_equal(renderer.render(angles), reference_of(angles, tmp_path))


@pytest.mark.slow
def test_20000_images_are_the_same_however_the_shadow_map_is_drawn(renderer) -> None:
    # Folded, stretched and far beyond the limits: states that a normal draw of 3,000 rarely has.
    rng = np.random.default_rng(5)
    angles = np.concatenate([rng.normal(0, 1, (10_000, 2)), rng.uniform(-30, 30, (10_000, 2))])
    with ReacherRenderer(limit_shadows=False) as plain:
        for part in np.split(angles, 100):
            np.testing.assert_array_equal(renderer.render(part), plain.render(part))


def test_an_image_depends_on_its_state_alone(renderer, angles, expected) -> None:
    order = np.random.default_rng(0).permutation(60)
    np.testing.assert_array_equal(renderer.render(angles[order]), expected[order])
    for number in (3, 4, 4, 0):
        np.testing.assert_array_equal(renderer.render(angles[number : number + 1])[0], expected[number])


def test_the_box_that_is_drawn_again_holds_the_arms_shadow(renderer, angles) -> None:
    boxes = np.array(renderer._limit.boxes(angles))
    assert boxes[0].tolist() == [0, 0, 2048, 2048]
    area = ((boxes[1:, 2:] - boxes[1:, :2]) / 2048).prod(axis=1)
    assert 0.01 < area.mean() < 0.25
    # Half of each box's arm left out must be seen: else the box would not be what limits the drawing.
    limit, before = renderer._limit, renderer.render(angles[:20])
    honest = limit.boxes
    try:
        limit.boxes = lambda states: [(0, 0, 2048, 2048)] + [(1, 1, 2, 2)] * (len(states) - 1)
        assert (renderer.render(angles[:20]) != before).any()
    finally:
        limit.boxes = honest
    np.testing.assert_array_equal(renderer.render(angles[:20]), before)


def test_a_mujoco_that_draws_in_another_order_is_noticed(
    monkeypatch: pytest.MonkeyPatch, angles, expected
) -> None:
    # The list that should lift the box is put where it is drawn too late.
    monkeypatch.setattr(reacher_rendering._ShadowLimit, "add_first", lambda self, scene: None)
    with ReacherRenderer() as one:
        assert not one.limits_shadows
        np.testing.assert_array_equal(one.render(angles[:40]), expected[:40])


def test_without_pyopengl_it_renders_all_the_same(monkeypatch: pytest.MonkeyPatch, angles, expected) -> None:
    def missing(*_arguments: object) -> None:
        raise ImportError("no OpenGL")

    monkeypatch.setattr(reacher_rendering._ShadowLimit, "__init__", missing)
    with ReacherRenderer() as one:
        assert not one.limits_shadows
        np.testing.assert_array_equal(one.render(angles[:10]), expected[:10])


def test_two_renderers_and_the_simulated_arms_do_not_disturb_each_other(renderer, angles, expected) -> None:
    import mujoco

    from sim.rendering import SceneRenderer

    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><light pos='0 0 3'/><geom size='.3'/>"
        "<camera name='c' pos='0 -2 0' xyaxes='1 0 0 0 0 1'/></worldbody></mujoco>"
    )
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    other = SceneRenderer(model, 64, 64)
    ball = other.render(data, 0)
    with ReacherRenderer() as second:
        for number in range(5):
            for one in (renderer, second):
                np.testing.assert_array_equal(one.render(angles[number : number + 1])[0], expected[number])
            np.testing.assert_array_equal(other.render(data, 0), ball)
    np.testing.assert_array_equal(renderer.render(angles[:5]), expected[:5])
    other.close()


@pytest.mark.parametrize(
    ("states", "problem"),
    [(np.zeros(2), "shape"), (np.zeros((3, 3)), "shape"), (np.array([[0, 0], [np.nan, 1]]), "row 1")],
)
def test_states_that_are_none_are_refused(renderer, states: np.ndarray, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        renderer.render(states)


def test_no_states_make_no_images(renderer) -> None:
    assert renderer.render(np.zeros((0, 2))).shape == (0, 64, 64, 3)


def test_the_description_names_what_decides_the_bytes(renderer) -> None:
    told = renderer.description()
    assert set(told) == {"renderer", "opengl", "mujoco", "dm_control"} and all(told.values())


def test_processes_render_the_same_in_order(angles, expected) -> None:
    told: list[tuple[int, int]] = []
    frames = render_states(angles, workers=2, progress=lambda done, total, what: told.append((done, total)))
    np.testing.assert_array_equal(frames, expected)
    assert [done for done, _ in told] == [BLOCK, 2 * BLOCK, 3 * BLOCK, 300] and told[0][1] == 300


def test_rendering_goes_on_from_a_row(angles, expected) -> None:
    with ReacherRenderers(1) as renderers:
        blocks = list(renderers.blocks(angles[:200], BLOCK))
    assert [len(block) for block in blocks] == [BLOCK, 200 - 2 * BLOCK]
    np.testing.assert_array_equal(np.concatenate(blocks), expected[BLOCK:200])


def test_an_error_of_a_worker_arrives_as_it_was_and_its_death_as_one_error(monkeypatch) -> None:
    with WorkerPool(1) as pool:
        with pytest.raises(InputError, match="no context") as error:
            reacher_processes._result(pool.submit(_refuse))
        assert (error.value.where, error.value.remedy) == ("OpenGL (egl)", "install it")
        with pytest.raises(InputError, match="worker process died"):
            reacher_processes._result(pool.submit(_die))


def _refuse() -> None:
    raise InputError("OpenGL (egl)", "no context", "install it")


def _die() -> None:
    import os

    os._exit(9)
