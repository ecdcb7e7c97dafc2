"""The paper's numbers against scikit-learn, closed forms and the theorem itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from probe.experiments.identifiability import (
    approximate_bound,
    fit_linear,
    orthogonality_error,
    r2_pooled,
    r2_uniform,
    scale_and_shape,
    whitened_procrustes,
)


def rotation(dim: int, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(dim, dim)))[0]


@pytest.mark.parametrize("dim", [1, 2, 7])
def test_the_linear_map_and_both_r2_are_those_of_scikit_learn(dim: int) -> None:
    rng = np.random.default_rng(dim)
    x = rng.normal(size=(300, 5)) * [1, 3, 0.01, 1, 1] + 4
    y = x @ rng.normal(size=(5, dim)) + rng.normal(size=(300, dim)) * np.arange(1, dim + 1)
    ours, theirs = fit_linear(x[:200], y[:200]), LinearRegression().fit(x[:200], y[:200])
    np.testing.assert_allclose(ours.matrix.T, theirs.coef_.reshape(dim, 5), rtol=1e-7)
    predicted = ours(x[200:])
    np.testing.assert_allclose(predicted, theirs.predict(x[200:]).reshape(100, dim), rtol=1e-9, atol=1e-9)
    held = y[200:]
    assert r2_pooled(held, predicted) == pytest.approx(
        r2_score(held, predicted, multioutput="variance_weighted")
    )
    assert r2_uniform(held, predicted) == pytest.approx(r2_score(held, predicted))


def test_collapsed_latents_have_a_small_r2_and_no_error() -> None:
    rng = np.random.default_rng(0)
    z, flat = rng.normal(size=(400, 2)), np.full((400, 3), 0.7)
    assert r2_pooled(z, fit_linear(flat, z)(flat)) == pytest.approx(0, abs=1e-12)
    line = rng.normal(size=(400, 1)) @ np.array([[1.0, 2.0, 3.0]])
    expected = LinearRegression().fit(line[:, :1], z).score(line[:, :1], z)
    assert r2_uniform(z, fit_linear(line, z)(line)) == pytest.approx(expected, abs=1e-9)
    assert np.isnan(r2_pooled(flat, flat)) and np.isnan(r2_uniform(flat, flat))


def test_a_scale_alone_is_the_error_and_no_shape() -> None:
    rng = np.random.default_rng(1)
    turn = rotation(4, rng)
    assert orthogonality_error(turn) == pytest.approx(0, abs=1e-12)
    scale, shape = scale_and_shape(1.5 * turn)
    assert (scale, shape) == pytest.approx((1.5, 0.0), abs=1e-12)
    assert orthogonality_error(1.5 * turn) == pytest.approx(1.5**2 - 1)
    stretched = turn @ np.diag([2.0, 1, 1, 1])
    assert orthogonality_error(stretched.T) == pytest.approx(3 / 2)  # ||diag(3, 0, 0, 0)|| / sqrt(4)
    assert np.isnan(scale_and_shape(np.zeros((2, 2)))[1])


@pytest.mark.parametrize("rho", [0.5, 0.95])
def test_the_theorem_holds_and_is_tight_at_a_rotation(rho: float) -> None:
    rng = np.random.default_rng(2)
    z = rng.normal(size=(40_000, 2))
    z_next = rho * z + np.sqrt(1 - rho**2) * rng.normal(size=z.shape)
    turn = rotation(2, rng)
    exact = approximate_bound(z, z @ turn, z_next @ turn, rho)
    assert exact.recovery == pytest.approx(0, abs=1e-12)
    assert abs(exact.delta) < 0.02 and exact.eps < 3 * exact.eps_floor
    # h = (z0, (z1^2 - 1) / sqrt 2): of the second nothing is linear, and E|h - h'|^2 is known in closed form
    encode = lambda w: np.column_stack([w[:, 0], (w[:, 1] ** 2 - 1) / np.sqrt(2)])  # noqa: E731
    bent = approximate_bound(z, encode(z), encode(z_next), rho)
    expected = 2 * (1 - rho) + 2 * (1 - rho**2) - 4 * (1 - rho)
    assert bent.delta == pytest.approx(expected, rel=0.1)
    assert bent.delta_published == pytest.approx(expected, rel=0.15)
    assert bent.d == pytest.approx(1, rel=0.1)  # exactly the variance that is not linear
    assert bent.recovery == pytest.approx(2, rel=0.05) and bent.recovery <= bent.bound * 1.05


def test_half_the_size_has_no_gap_and_all_of_eps() -> None:
    rng = np.random.default_rng(3)
    z = rng.normal(size=(20_000, 3))
    z_next = 0.9 * z + np.sqrt(1 - 0.81) * rng.normal(size=z.shape)
    half = approximate_bound(z, z / 2, z_next / 2, 0.9)
    assert abs(half.delta) < 0.01 and half.delta_published == 0
    assert half.eps == pytest.approx(0.75 * np.sqrt(3), rel=0.02)
    assert half.recovery == pytest.approx(3 / 4, rel=0.02) and half.recovery <= half.bound


def test_the_whitened_residual_is_that_of_its_definition() -> None:
    rng = np.random.default_rng(4)
    z = rng.normal(size=(3000, 2)) @ rng.normal(size=(2, 2))
    h = z @ rng.normal(size=(2, 2)) + 0.3 * rng.normal(size=(3000, 2))
    white = [
        np.linalg.solve(np.linalg.cholesky(np.cov(x.T, ddof=0)), (x - x.mean(axis=0)).T).T for x in (z, h)
    ]
    turn, _ = orthogonal_procrustes(*white)
    expected = np.linalg.norm(white[0] @ turn - white[1]) / np.sqrt(3000 * 2)
    assert whitened_procrustes(z, h) == pytest.approx(expected, rel=1e-9)
    assert whitened_procrustes(z, z @ rng.normal(size=(2, 2)) + 4) == pytest.approx(0, abs=1e-6)
    assert whitened_procrustes(z, rng.normal(size=(3000, 2))) == pytest.approx(np.sqrt(2), rel=0.03)
    assert whitened_procrustes(z, np.ones((3000, 2))) == pytest.approx(np.sqrt(2))
