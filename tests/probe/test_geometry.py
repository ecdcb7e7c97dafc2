"""Rotations, stretches and losses of made-up encoders, against scikit-learn, scipy and closed forms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.spatial import procrustes
from scipy.stats import ortho_group
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from probe.bootstrap import Bootstrap
from probe.clusters import EpisodeClusters
from probe.geometry import Geometry, fit_isometry, mean_correlation, measure_geometry, measure_map
from probe.ridge import fit_ridge

JOINTS = 4


@dataclass
class World:
    """Joints of independent episodes, in training and evaluation rows."""

    y_train: np.ndarray
    y: np.ndarray
    train: EpisodeClusters
    evaluate: EpisodeClusters

    @classmethod
    def of(cls, seed: int = 0, n_train: int = 12, n_evaluate: int = 8, length: int = 50) -> World:
        rng = np.random.default_rng(seed)

        def joints(n: int) -> np.ndarray:
            return rng.standard_normal((n * length, JOINTS)) * [0.3, 1.0, 2.0, 0.1] + [0.0, 1.0, -2.0, 5.0]

        return cls(
            joints(n_train),
            joints(n_evaluate),
            EpisodeClusters.of(np.repeat(np.arange(n_train), length)),
            EpisodeClusters.of(np.repeat(np.arange(n_evaluate), length)),
        )

    def standard(self, y: np.ndarray) -> np.ndarray:
        return (y - self.y_train.mean(axis=0)) / self.y_train.std(axis=0)

    def measure(
        self, x_train: np.ndarray, x: np.ndarray, alpha: float = 1e-8, testable: np.ndarray | None = None
    ) -> Geometry:
        testable = np.ones(JOINTS, dtype=bool) if testable is None else testable
        fit = fit_ridge(x_train, self.y_train, self.train, alphas=[alpha])
        bootstrap = Bootstrap.draw(self.evaluate.labels, np.random.default_rng(0), resamples=100)
        return measure_geometry(
            fit,
            x_train,
            self.y_train,
            self.train,
            x,
            self.y,
            self.evaluate,
            testable=testable,
            bootstrap=bootstrap,
        )


def rotated(world: World, width: int, scale: float = 3.0, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """h = scale Q z + w, with w in the directions at right angles to Q, and large; an offset besides."""
    rng = np.random.default_rng(seed)
    frame = ortho_group.rvs(width, random_state=seed)

    def latents(y: np.ndarray) -> np.ndarray:
        other = 10 * rng.standard_normal((len(y), width - JOINTS))
        return np.hstack([scale * world.standard(y), other]) @ frame + 20

    return latents(world.y_train), latents(world.y)


@pytest.mark.parametrize("width", [JOINTS, 12])
def test_a_rotated_copy_is_found_whatever_else_the_latents_hold(width: int) -> None:
    world = World.of()
    found = world.measure(*rotated(world, width))
    assert found.joints.value == pytest.approx(1, abs=1e-6)
    assert found.procrustes_residual.value == pytest.approx(0, abs=1e-6)
    assert found.procrustes_residual.high == pytest.approx(0, abs=1e-6)
    assert found.procrustes_scale == pytest.approx(1 / 3, rel=1e-6)
    np.testing.assert_allclose(found.frame.T @ found.frame, np.eye(JOINTS), atol=1e-12)
    assert found.mcc_after == pytest.approx(1, abs=1e-6)
    assert found.mcc_before < 0.9
    if width == JOINTS:
        assert found.latents_weighted.value == pytest.approx(1, abs=1e-9)
        assert found.joint_map.condition == pytest.approx(1, abs=1e-9)
        assert found.joint_map.orthogonality_error == pytest.approx(0, abs=1e-9)
        np.testing.assert_allclose(found.joint_map.singular_values, 3)
    else:  # the other directions dominate the latents' variance: 8 x 100 against 4 x 9
        assert found.latents_weighted.value == pytest.approx(36 / 836, abs=0.02)


def test_a_stretch_is_linear_but_no_rotation() -> None:
    world = World.of()
    stretch, turn = np.diag([4.0, 2.0, 1.0, 1.0]), ortho_group.rvs(JOINTS, random_state=3)
    x_train, x = (world.standard(y) @ stretch @ turn for y in (world.y_train, world.y))
    found = world.measure(x_train, x)
    assert found.joints.value == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(found.joint_map.singular_values, [4, 2, 1, 1], rtol=1e-9)
    assert found.joint_map.condition == pytest.approx(4)
    # B'B / s^2 has eigenvalues 16, 4, 1, 1 over their mean 5.5
    off = np.array([16, 4, 1, 1]) / 5.5 - 1
    assert found.joint_map.orthogonality_error == pytest.approx(np.sqrt((off**2).sum() / 4))
    # for uncorrelated z the best s Q leaves 1 - (tr A)^2 / (J tr A^2) of it
    expected = 1 - (4 + 2 + 1 + 1) ** 2 / (4 * 22)
    assert found.procrustes_residual.value == pytest.approx(expected, abs=0.03)


def test_the_residual_is_scipys_when_fitted_and_scored_on_the_same_rows() -> None:
    rng = np.random.default_rng(4)
    z = rng.standard_normal((80, 3))
    h = np.tanh(z @ rng.standard_normal((3, 3))) + 0.2 * rng.standard_normal((80, 3))
    z, h = z - z.mean(axis=0), h - h.mean(axis=0)
    frame, scale = fit_isometry(h, z, np.eye(3))
    residual = ((z - scale * h @ frame) ** 2).sum() / (z**2).sum()
    assert residual == pytest.approx(procrustes(z, h)[2], rel=1e-12)


def test_latents_narrower_than_the_joints_lose_what_they_cannot_hold() -> None:
    world = World.of()
    x_train, x = (world.standard(y)[:, :2] for y in (world.y_train, world.y))
    found = world.measure(x_train, x)
    assert found.procrustes_residual.value == pytest.approx(0.5, abs=0.03)  # two joints of four
    assert found.joint_map.condition == np.inf
    assert (found.joint_map.singular_values[2:] == 0).all()
    assert found.mcc_before == pytest.approx(0.5, abs=1e-9)
    assert found.frame.shape == (2, JOINTS)


def test_both_directions_are_scikit_learns() -> None:
    world = World.of(seed=5)
    rng = np.random.default_rng(5)
    mixing = rng.standard_normal((JOINTS, 6))
    x_train, x = (
        np.hstack([np.tanh(world.standard(y) @ mixing), np.full((len(y), 1), 7.0)])
        + np.hstack([0.3 * rng.standard_normal((len(y), 6)), np.zeros((len(y), 1))])
        for y in (world.y_train, world.y)
    )
    found = world.measure(x_train, x)
    read = LinearRegression().fit(x_train[:, :6], world.y_train).predict(x[:, :6])
    assert found.joints.value == pytest.approx(r2_score(world.y, read), abs=1e-7)
    weighted = r2_score(world.standard(world.y), world.standard(read), multioutput="variance_weighted")
    assert found.joints_weighted.value == pytest.approx(weighted, abs=1e-7)
    back = LinearRegression().fit(world.y_train, x_train).predict(world.y)
    assert found.latents.value == pytest.approx(r2_score(x[:, :6], back[:, :6]), abs=1e-10)
    assert found.latents_weighted.value == pytest.approx(
        r2_score(x, back, multioutput="variance_weighted"), abs=1e-10
    )


def test_only_the_weighted_r2_of_latents_is_blind_to_their_axes() -> None:
    world = World.of(seed=6)
    x_train, x = rotated(world, 8)
    turn = ortho_group.rvs(8, random_state=9)
    one, two = world.measure(x_train, x), world.measure(x_train @ turn, x @ turn)
    assert one.latents_weighted.value == pytest.approx(two.latents_weighted.value, abs=1e-9)
    assert one.procrustes_residual.value == pytest.approx(two.procrustes_residual.value, abs=1e-6)
    assert one.mcc_before != pytest.approx(two.mcc_before, abs=1e-3)
    assert one.latents.value != pytest.approx(two.latents.value, abs=1e-3)


def test_mean_correlation_undoes_permutation_and_sign_but_not_rotation() -> None:
    rng = np.random.default_rng(7)
    z = rng.standard_normal((500, 3))
    shuffled = np.hstack([-2 * z[:, [2]], rng.standard_normal((500, 1)), z[:, [0]] + 4, 3 * z[:, [1]]])
    assert mean_correlation(shuffled, z) == pytest.approx(1)
    assert mean_correlation(shuffled[:, :1], z) == pytest.approx(1 / 3)
    assert mean_correlation(np.hstack([z[:, :2], np.ones((500, 1))]), z) == pytest.approx(2 / 3, abs=0.01)
    angle = np.pi / 4
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    assert mean_correlation(z[:, :2] @ turn, z[:, :2]) == pytest.approx(np.sqrt(0.5), abs=0.03)


def drifting(rng: np.random.Generator, n_episodes: int, length: int, width: int) -> np.ndarray:
    """AR(1) noise of autocorrelation 0.95 and variance 1, episodes one after the other."""
    out = np.empty((n_episodes, length, width))
    out[:, 0] = rng.standard_normal((n_episodes, width))
    for t in range(1, length):
        out[:, t] = 0.95 * out[:, t - 1] + np.sqrt(1 - 0.95**2) * rng.standard_normal((n_episodes, width))
    return out.reshape(-1, width)


def test_noise_in_wide_latents_does_not_pass_for_an_encoded_joint() -> None:
    """One of three joints is not in the latents at all; 300 drifting noise dimensions would suggest it is."""
    rng = np.random.default_rng(8)
    episodes = EpisodeClusters.of(np.repeat(np.arange(40), 50))
    frame = ortho_group.rvs(300, random_state=8)[:2]
    raw, clean = [], []
    for _ in range(6):
        z = drifting(rng, 40, 50, 3)
        z = (z - z.mean(axis=0)) / z.std(axis=0)
        h = 4 * z[:, :2] @ frame + drifting(rng, 40, 50, 300)
        found = measure_map(h, z, episodes)
        clean.append(found.singular_values)
        raw.append(np.linalg.svd(np.linalg.lstsq(z, h - h.mean(axis=0), rcond=None)[0], compute_uv=False))
        assert 0.5 < raw[-1][2] / found.noise_floor < 2
    assert np.mean(raw, axis=0)[2] > 1.0
    np.testing.assert_allclose(np.mean(clean, axis=0)[:2], 4, rtol=0.12)
    assert np.mean(clean, axis=0)[2] < 0.5 * np.mean(raw, axis=0)[2]


def test_joints_that_are_not_testable_are_left_out() -> None:
    world = World.of(seed=9)
    world.y_train[:, 3] = world.y[:, 3] = 1.0
    moving = np.array([True, True, True, False])
    x_train, x = (y[:, :3] / world.y_train[:, :3].std(axis=0) for y in (world.y_train, world.y))
    found = world.measure(x_train, x, testable=moving)
    assert found.procrustes_residual.value == pytest.approx(0, abs=1e-9)
    assert len(found.joint_map.singular_values) == 3
    with pytest.raises(ValueError, match="constant over the training rows"):
        world.measure(x_train, x)
    with pytest.raises(ValueError, match="no testable joint"):
        world.measure(x_train, x, testable=np.zeros(JOINTS, dtype=bool))


def test_a_collapsed_encoder_says_so() -> None:
    world = World.of(seed=10)
    found = world.measure(np.ones((len(world.y_train), 5)), np.ones((len(world.y), 5)))
    assert found.procrustes_residual.value == pytest.approx(1, abs=0.05)
    assert found.latents.value is None and found.latents_weighted.value is None
    assert np.isnan(found.joint_map.condition) and found.mcc_after == 0
    assert "R2 joints -> latents" in str(found)


def test_it_prints() -> None:
    world = World.of()
    text = str(world.measure(*rotated(world, 12)))
    assert "Procrustes residual, scale free     0.000  [0.000, 0.000]" in text
    assert "MCC after rotation 1.000" in text and "condition" in text
