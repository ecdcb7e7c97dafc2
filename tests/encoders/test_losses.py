"""The losses against slow definitions, known expectations, and their symmetries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from torch.utils._python_dispatch import TorchDispatchMode

from encoders import losses
from encoders import sigreg as kernel


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


def _direct(samples: torch.Tensor, knots: int = 17, t_max: float = 3.0) -> torch.Tensor:
    """The statistic as one writes it in plain torch, (..., N, S) to (..., S), by way of (..., N, S, K)."""
    t, weight = losses.knots_and_weights(knots, t_max, dtype=samples.dtype)
    angle = samples.unsqueeze(-1) * t
    real, imaginary = angle.cos().mean(dim=-3), angle.sin().mean(dim=-3)
    distance = (real - torch.exp(-0.5 * t.square())).square() + imaginary.square()
    return samples.shape[-2] * (distance @ weight)


def _value_and_gradient(
    statistic: Callable[[torch.Tensor], torch.Tensor], samples: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The statistic of each column, and the gradient of a sum of them that weighs each differently."""
    samples = samples.detach().requires_grad_()
    value = statistic(samples)
    weights = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype).view_as(value)
    (gradient,) = torch.autograd.grad((weights * value).sum(), samples)
    return value.detach(), gradient


def _relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


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


@settings(deadline=None)
@given(
    leading=st.lists(st.integers(1, 3), max_size=2),
    samples=st.integers(1, 30),
    slices=st.integers(1, 9),
    knots=st.integers(2, 60),
    t_max=st.floats(0.5, 8.0),
    scale=st.sampled_from([1e-3, 0.5, 1.0, 30.0]),
    block=st.sampled_from([1, 500, 2**20]),
    seed=st.integers(0, 2**16),
)
def test_epps_pulley_and_its_gradient_are_those_of_the_direct_formula(
    leading: list[int],
    samples: int,
    slices: int,
    knots: int,
    t_max: float,
    scale: float,
    block: int,
    seed: int,
) -> None:
    x = scale * _draw(*leading, samples, slices, seed=seed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kernel, "BLOCK_NUMBERS", block)
        found = _value_and_gradient(lambda y: losses.epps_pulley(y, knots=knots, t_max=t_max), x)
    exact = _value_and_gradient(lambda y: _direct(y, knots, t_max), x)
    assert found[0].shape == (*leading, slices)
    for ours, theirs in zip(found, exact):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


# the sizes of the published experiments: samples, latent dimensions, slices
SIZES = [(512, 2, 1024), (512, 64, 256), (512, 256, 1024), (2048, 192, 256), (64, 1024, 256)]


@pytest.mark.parametrize("samples, dim, slices", SIZES)
@pytest.mark.parametrize("scale", [1.0, 0.05])
def test_float32_is_accurate(samples: int, dim: int, slices: int, scale: float) -> None:
    directions = losses.random_directions(dim, slices, torch.Generator().manual_seed(0))
    x = (scale * _draw(samples, dim).float()) @ directions
    value, gradient = _value_and_gradient(losses.epps_pulley, x)
    parts = [_value_and_gradient(_direct, part) for part in x.double().split(64, dim=1)]
    weights = torch.linspace(0.5, 1.5, slices, dtype=torch.float64).split(64)
    own = torch.linspace(0.5, 1.5, 64, dtype=torch.float64)
    # another CPU adds in another order: 1.2e-6 was seen on one, half of it on others
    assert _relative(value, torch.cat([part[0] for part in parts])) < 3e-6
    exact = torch.cat([part[1] / own * weight for part, weight in zip(parts, weights)], dim=1)
    assert _relative(gradient, exact) < 3e-6


def test_layout_does_not_matter() -> None:
    x = _draw(3, 20, 6)
    expected = _value_and_gradient(losses.epps_pulley, x)
    padded = torch.zeros(3, 41, 12, dtype=x.dtype)
    padded[:, 1::2, ::2] = x
    backwards = torch.empty(6, 3, 20, dtype=x.dtype).permute(1, 2, 0).copy_(x)
    for same in (padded[:, 1::2, ::2], backwards, x.mT.contiguous().mT):
        assert not same.is_contiguous()
        for ours, theirs in zip(_value_and_gradient(losses.epps_pulley, same), expected):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    one = x[0, :, :1]
    repeated = losses.epps_pulley(one.expand(-1, 4))
    torch.testing.assert_close(repeated, losses.epps_pulley(one).expand(4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    z = _draw(300, 8).to(dtype).requires_grad_()
    exact = z.detach().double().requires_grad_()
    directions = losses.random_directions(8, 32, torch.Generator().manual_seed(0))
    value = losses.sigreg(z, directions)
    value.backward()
    _direct(exact @ directions.double()).mean().backward()
    assert z.grad is not None and exact.grad is not None
    assert value.dtype == torch.float32 and z.grad.dtype == dtype
    assert value.item() == pytest.approx(_direct(exact @ directions.double()).mean().item(), rel=1e-5)
    assert _relative(z.grad, exact.grad) < torch.finfo(dtype).eps  # it is only handed back in half precision


def test_reduced_precision_of_the_network_does_not_reach_the_statistic() -> None:
    x = _draw(300, 32).float()
    expected = _value_and_gradient(losses.epps_pulley, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = _value_and_gradient(losses.epps_pulley, x)
        drawn = losses.sigreg(x, slices=16, generator=torch.Generator().manual_seed(0))
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        fast = _value_and_gradient(losses.epps_pulley, x)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    for ours in (cast, fast):
        torch.testing.assert_close(ours, expected, rtol=0, atol=0)
    again = losses.sigreg(x, slices=16, generator=torch.Generator().manual_seed(0))
    assert drawn.dtype == torch.float32 and torch.equal(drawn, again)


class _Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that anything made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.elements = max(self.elements, result.untyped_storage().nbytes() // result.element_size())
        return result


def test_no_tensor_is_larger_than_the_samples_or_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "BLOCK_NUMBERS", 30_000)
    x = _draw(200, 300).float().requires_grad_()
    with _Largest() as direct:
        _direct(x).sum().backward()
    with _Largest() as ours:
        losses.epps_pulley(x).sum().backward()
    assert direct.elements == 17 * x.numel()
    assert ours.elements == x.numel()


def test_one_value_for_each_leading_axis_with_directions_of_its_own() -> None:
    z = _draw(3, 2, 30, 4).requires_grad_()
    each = torch.stack(
        [
            losses.random_directions(4, 7, torch.Generator().manual_seed(run), dtype=torch.float64)
            for run in range(3)
        ]
    )
    found = losses.sigreg_each(z, each.unsqueeze(1))
    expected = torch.stack([_direct(z[run] @ each[run]).mean(dim=-1) for run in range(3)])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    assert losses.sigreg(z, each.unsqueeze(1)).item() == pytest.approx(expected.mean().item(), rel=1e-12)
    assert losses.sigreg_each(z[0, 0], each[0]).shape == ()
    ours, theirs = (torch.autograd.grad(value.square().sum(), z)[0] for value in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)


def test_gradients_of_the_statistic() -> None:
    x = _draw(2, 5, 3).requires_grad_()
    assert torch.autograd.gradcheck(losses.epps_pulley, (x,))
    assert torch.autograd.gradcheck(lambda y: losses.epps_pulley(y, knots=40, t_max=5.0), (x,))
    z, directions = _draw(6, 3).requires_grad_(), _draw(3, 2).requires_grad_()
    assert torch.autograd.gradcheck(losses.sigreg, (z, directions))
    value = losses.epps_pulley(x).sum()
    first, again = (torch.autograd.grad(value, x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, again)
    with pytest.raises(RuntimeError, match="only once"):
        torch.autograd.grad(value, x, create_graph=True)


def test_nothing_is_differentiated_where_nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(*_: object, **__: object) -> None:
        raise AssertionError("made a gradient")

    monkeypatch.setattr(kernel._Waves, "gradient", unwanted)
    x = _draw(5, 3)
    losses.epps_pulley(x)
    with torch.no_grad():
        losses.epps_pulley(x.requires_grad_())
    with pytest.raises(AssertionError, match="made a gradient"):
        losses.epps_pulley(x)


def test_misuse_is_refused() -> None:
    z = _draw(5, 3)
    with pytest.raises(ValueError, match=r"samples \(5,\) at 17 knots"):
        losses.epps_pulley(z[:, 0])
    with pytest.raises(ValueError, match="two knots"):
        losses.epps_pulley(z, knots=1)
    for shape in ((3,), (2, 3, 4), (4, 2)):
        with pytest.raises(ValueError, match="do not fit"):
            losses.sigreg_each(z, torch.ones(shape, dtype=z.dtype))
    with pytest.raises(ValueError, match="either directions or a generator"):
        losses.sigreg(z)
    with pytest.raises(ValueError, match=r"z \(5, 3\) and directions \(4, 2\)"):
        losses.sigreg(z, torch.ones(4, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match="two samples"):
        losses.whitening(z[:1])
    with pytest.raises(ValueError, match="differ in shape"):
        losses.alignment(z, z[:2])
