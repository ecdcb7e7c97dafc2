"""The losses against slow definitions, known expectations, and their symmetries."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from encoders import losses


def _draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def _epps_pulley_by_definition(x: np.ndarray, t_max: float = 3.0) -> float:
    """N int |phi_N(t) - exp(-t^2/2)|^2 exp(-t^2/2) dt over [-t_max, t_max] by adaptive quadrature."""

    def integrand(t: float) -> float:
        empirical = sum(np.exp(1j * t * value) for value in x) / len(x)
        return abs(empirical - np.exp(-(t**2) / 2)) ** 2 * np.exp(-(t**2) / 2)

    return len(x) * integrate.quad(integrand, -t_max, t_max, epsabs=1e-10, epsrel=1e-10)[0]


def _trapezoid_by_definition(x: np.ndarray, knots: int = 17, t_max: float = 3.0) -> float:
    """The same integral over the whole line with 2 * knots - 1 trapezoid knots: no use of the symmetry."""
    t = np.linspace(-t_max, t_max, 2 * knots - 1)
    empirical = np.exp(1j * t[:, None] * x[None, :]).mean(axis=1)
    return len(x) * np.trapezoid(abs(empirical - np.exp(-(t**2) / 2)) ** 2 * np.exp(-(t**2) / 2), t)


@pytest.mark.parametrize("scale, shift", [(1.0, 0.0), (0.3, 0.0), (1.7, 0.4), (0.01, -1.0)])
def test_epps_pulley_is_the_trapezoid_rule_of_its_definition(scale: float, shift: float) -> None:
    x = scale * _draw(40, 3, seed=1) + shift
    found = losses.epps_pulley(x)
    expected = [_trapezoid_by_definition(column) for column in x.numpy().T]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("scale", [0.5, 1.0, 1.5])
def test_seventeen_knots_integrate_to_a_percent_and_many_knots_exactly(scale: float) -> None:
    x = scale * _draw(25, 1, seed=2)
    exact = _epps_pulley_by_definition(x.numpy()[:, 0])
    assert losses.epps_pulley(x).item() == pytest.approx(exact, rel=1e-2)
    assert losses.epps_pulley(x, knots=2001).item() == pytest.approx(exact, rel=1e-6)


def test_sigreg_is_the_mean_over_slices_and_leading_axes() -> None:
    z = _draw(2, 30, 4, seed=3)
    directions = losses.random_directions(4, 7, torch.Generator().manual_seed(5), dtype=torch.float64)
    slow = np.mean(
        [
            _trapezoid_by_definition(member.numpy() @ direction)
            for member in z
            for direction in directions.numpy().T
        ]
    )
    assert losses.sigreg(z, directions).item() == pytest.approx(slow, rel=1e-12)


def test_sigreg_of_standard_normal_samples_has_its_known_expectation() -> None:
    # E|phi_N - phi|^2 = (1 - phi^2) / N, so E[EP] = int_-3^3 (1 - exp(-t^2)) exp(-t^2/2) dt, whatever N.
    expected = integrate.quad(lambda t: (1 - np.exp(-(t**2))) * np.exp(-(t**2) / 2), -3, 3)[0]
    assert expected == pytest.approx(1.053, abs=2e-3)
    for samples in (32, 512):
        z = _draw(300, samples, 4, seed=samples)
        found = losses.sigreg(z, slices=32, generator=torch.Generator().manual_seed(0)).item()
        assert found == pytest.approx(expected, rel=0.04)


def test_collapse_is_large_and_grows_with_the_number_of_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    directions = losses.random_directions(6, 64, generator, dtype=torch.float64)
    point = [
        losses.sigreg(torch.zeros(samples, 6, dtype=torch.float64), directions).item()
        for samples in (64, 128)
    ]
    assert point[0] > 10 and point[1] == pytest.approx(2 * point[0])
    line = _draw(512, 1, seed=1) * torch.tensor([[1.0, 0, 0, 0, 0, 0]], dtype=torch.float64)
    assert losses.sigreg(line, directions).item() > 10 * losses.sigreg(_draw(512, 6), directions).item()
    assert losses.whitening(torch.zeros(64, 6, dtype=torch.float64)).item() == pytest.approx(6.0)


def test_whitening_and_alignment_are_their_definitions() -> None:
    z, other = _draw(20, 5, seed=4), _draw(20, 5, seed=5)
    slow = np.linalg.norm(np.cov(z.numpy().T) - np.eye(5), "fro") ** 2
    assert losses.whitening(z).item() == pytest.approx(slow, rel=1e-12)
    batched = losses.whitening(torch.stack([z, other])).item()
    assert batched == pytest.approx((losses.whitening(z).item() + losses.whitening(other).item()) / 2)
    slow = sum((z[n, d] - other[n, d]).item() ** 2 for n in range(20) for d in range(5)) / 100
    assert losses.alignment(z, other).item() == pytest.approx(slow, rel=1e-12)


def test_alignment_of_correlated_normals_is_two_times_one_minus_rho() -> None:
    z, noise = _draw(200_000, 2, seed=6), _draw(200_000, 2, seed=7)
    moved = 0.95 * z + np.sqrt(1 - 0.95**2) * noise
    assert losses.alignment(z, moved).item() == pytest.approx(2 * (1 - 0.95), rel=0.02)


def test_gradients_are_right() -> None:
    z, other = _draw(9, 3, seed=8).requires_grad_(), _draw(9, 3, seed=9).requires_grad_()
    directions = losses.random_directions(3, 4, torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda a: losses.sigreg(a, directions), (z,))
    assert torch.autograd.gradcheck(losses.whitening, (z,))
    assert torch.autograd.gradcheck(losses.alignment, (z, other))


@given(seed=st.integers(0, 2**16), dim=st.integers(1, 6), samples=st.integers(2, 40))
def test_symmetries(seed: int, dim: int, samples: int) -> None:
    z = _draw(samples, dim, seed=seed)
    directions = losses.random_directions(dim, 5, torch.Generator().manual_seed(seed), dtype=torch.float64)
    rotation = torch.linalg.qr(_draw(dim, dim, seed=seed + 1))[0]
    order = torch.from_numpy(np.random.default_rng(seed).permutation(samples))
    value = losses.sigreg(z, directions).item()
    assert losses.sigreg(z[order], directions).item() == pytest.approx(value)
    assert losses.sigreg(-z, directions).item() == pytest.approx(value)
    assert losses.sigreg(z @ rotation, rotation.T @ directions).item() == pytest.approx(value)
    white = losses.whitening(z).item()
    assert losses.whitening(z @ rotation + 3.0).item() == pytest.approx(white)
    assert losses.alignment(z @ rotation + 1.0, z[order] @ rotation + 1.0).item() == pytest.approx(
        losses.alignment(z, z[order]).item()
    )
    assert value >= 0 and white >= 0


def test_directions_are_unit_uniform_and_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    directions = losses.random_directions(3, 20_000, torch.Generator().manual_seed(2))
    again = losses.random_directions(3, 20_000, torch.Generator().manual_seed(2))
    losses.sigreg(_draw(4, 3), slices=8, generator=torch.Generator().manual_seed(3))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(directions, again)
    torch.testing.assert_close(directions.norm(dim=0), torch.ones(20_000))
    torch.testing.assert_close(directions @ directions.T / 20_000, torch.eye(3) / 3, atol=0.01, rtol=0)


def test_misuse_is_refused() -> None:
    z = _draw(5, 3)
    with pytest.raises(ValueError, match="either directions or a generator"):
        losses.sigreg(z)
    with pytest.raises(ValueError, match=r"z \(5, 3\) and directions \(4, 2\)"):
        losses.sigreg(z, torch.ones(4, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match="two samples"):
        losses.whitening(z[:1])
    with pytest.raises(ValueError, match="differ in shape"):
        losses.alignment(z, z[:2])
