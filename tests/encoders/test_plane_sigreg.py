"""SIGReg of the plane by rings of frequencies against the direct formula: values, gradients, and where it
ends."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special

from encoders import losses, plane_sigreg
from encoders.plane_sigreg import MAX_TERMS, plane_epps_pulley
from encoders.recipes import seeded


def _samples(scale: float, *shape: int, seed: int = 0) -> torch.Tensor:
    drawn = np.random.default_rng(seed).standard_normal((*shape, 2))
    return torch.from_numpy(np.clip(scale * drawn, -3.7 * scale, 3.7 * scale))


def _directions(runs: int, slices: int) -> torch.Tensor:
    return torch.stack(
        [losses.random_directions(2, slices, seeded(run), dtype=torch.float64) for run in range(runs)]
    )


def _both(
    z: torch.Tensor, directions: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Value and gradient by rings in `dtype`, and by the direct formula in float64."""
    found = []
    for cast, statistic in (
        (dtype, plane_epps_pulley),
        (torch.float64, lambda z, u: losses.epps_pulley(z @ u.unsqueeze(1))),
    ):
        own = z.to(cast, copy=True).requires_grad_()
        value = statistic(own, directions.to(cast))
        assert value.shape == (z.shape[0], z.shape[1], directions.shape[-1])
        (gradient,) = torch.autograd.grad((value * torch.linspace(0.5, 2, value.shape[-1])).sum(), own)
        found += [value.detach().double(), gradient.double()]
    return tuple(found)  # type: ignore[return-value]


def _relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return ((found - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("scale", [0.0, 1e-3, 0.3, 1.0, 1.4, 2.1])
@pytest.mark.parametrize("dtype, within", [(torch.float64, 1e-12), (torch.float32, 5e-6)])
def test_rings_give_the_direct_formula(
    scale: float, dtype: torch.dtype, within: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    z = _samples(scale, 3, 2, 50) + (0.1 if scale else 0.0)
    if scale == 2.1 and dtype == torch.float64:
        z = z * 0.5
    monkeypatch.setattr(plane_sigreg, "epps_pulley", None)  # no sample is far: the direct formula has no part
    value, gradient, direct, direct_gradient = _both(z, _directions(3, 33), dtype)
    assert _relative(value, direct) < within
    assert _relative(gradient, direct_gradient) < within if scale else gradient.abs().max() < within


def test_directions_on_the_axes_and_opposite_ones() -> None:
    axes = [[1.0, -1.0, 0.0, 0.0, 0.6, -0.6], [0.0, 0.0, 1.0, -1.0, 0.8, -0.8]]
    u = torch.tensor(axes, dtype=torch.float64)
    value, gradient, direct, direct_gradient = _both(_samples(1.0, 1, 1, 40), u[None], torch.float64)
    assert _relative(value, direct) < 1e-12 and _relative(gradient, direct_gradient) < 1e-12
    torch.testing.assert_close(value[..., ::2], value[..., 1::2], rtol=1e-12, atol=0)  # EP(x) = EP(-x)


def test_a_run_that_is_far_takes_the_direct_formula_and_one_that_is_nan_stays_alone() -> None:
    z = _samples(1.0, 4, 2, 30)
    z[1] *= 1e3
    z[2, 0, 0] = np.inf
    value, gradient, direct, direct_gradient = _both(z, _directions(4, 9), torch.float32)
    for run, within in ((0, 5e-6), (1, 1e-3), (3, 5e-6)):  # a thousand times as far loses as many digits
        assert _relative(value[run], direct[run]) < within
        assert _relative(gradient[run], direct_gradient[run]) < within or run == 1
    assert value[2, 0].isnan().all() and value[:2].isfinite().all() and value[3].isfinite().all()
    everything_far = plane_epps_pulley(z[1:2], _directions(4, 9)[1:2])
    assert _relative(everything_far, direct[1:2]) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_the_series_leave_out_is_below_rounding(dtype: torch.dtype) -> None:
    before = 0.0
    for terms in range(8, MAX_TERMS + 1, 4):
        reach = plane_sigreg._reach(terms, dtype)
        left_out = 4 * np.abs(special.jv(np.arange(terms, terms + 60), reach)).sum()
        assert left_out < torch.finfo(dtype).eps
        assert before < reach <= terms
        assert plane_sigreg._terms(reach, dtype) == terms
        before = reach
    assert before / losses.T_MAX > (8 if dtype == torch.float32 else 5)  # standard deviations that fit
