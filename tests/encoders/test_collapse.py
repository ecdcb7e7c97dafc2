"""Effective rank and spread against known cases, and when the watch speaks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from encoders.collapse import CollapseWatch, Spread


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_effective_rank_counts_even_directions(rank: int) -> None:
    torch.manual_seed(0)
    basis, _ = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))
    samples, _ = torch.linalg.qr(torch.randn(500, 9, dtype=torch.float64))
    samples = samples - samples.mean(dim=0)  # close to even: qr of centred samples would be exactly so
    samples, _ = torch.linalg.qr(samples)
    z = 5 + samples[:, :rank] @ basis[:rank]
    assert Spread.of(z).effective_rank == pytest.approx(rank, rel=1e-2)


def test_it_is_the_entropy_of_squared_singular_values() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 5)) @ rng.normal(size=(5, 7)) + 3
    singular = np.linalg.svd(z - z.mean(axis=0), compute_uv=False)
    share = singular**2 / (singular**2).sum()
    share = share[share > 1e-15]
    found = Spread.of(torch.from_numpy(z).float().requires_grad_())
    assert found.effective_rank == pytest.approx(np.exp(-(share * np.log(share)).sum()), rel=1e-4)
    std = z.std(axis=0, ddof=1)
    assert found.smallest_std == pytest.approx(std.min(), rel=1e-5)
    assert found.median_std == pytest.approx(np.sort(std)[3], rel=1e-5)
    assert found.most == 7 and Spread.of(torch.from_numpy(z[:4])).most == 3


def test_a_point_has_rank_zero_and_one_dimension_rank_one() -> None:
    assert Spread.of(torch.ones(10, 3)).terms() == {"effective_rank": 0, "smallest_std": 0, "median_std": 0}
    assert Spread.of(torch.arange(10.0)[:, None]).effective_rank == pytest.approx(1)


def _terms(rank: float, std: float) -> dict[str, float]:
    return {"effective_rank": rank, "smallest_std": std / 2, "median_std": std}


def test_it_speaks_once_at_the_second_low_step_after_the_start() -> None:
    watch = CollapseWatch(100, 21, "raise lam")
    assert not any(watch.look(step, _terms(1, 0)) for step in (5, 10))  # the first tenth
    assert not watch.look(20, _terms(1, 0.5))
    assert not watch.look(30, _terms(1.6, 0.5))  # recovered: the count begins again
    assert not watch.look(40, _terms(9, 0.09))
    said = watch.look(50, _terms(1.44, 0.5))
    assert said == (
        "the latents collapse at step 50 of 100: effective rank 1.4 of 21, standard deviation 0.5 of the "
        "median dimension and 0.25 of the smallest - raise lam"
    )
    assert watch.told and not watch.look(60, _terms(1, 0))


def test_two_dimensions_may_be_two() -> None:
    watch = CollapseWatch(10, 2, "")
    assert not any(watch.look(step, _terms(1.2, 0.8)) for step in range(10))
    assert not watch.look(10, _terms(1.05, 0.8)) and watch.look(11, _terms(1.05, 0.8))


def test_an_arm_of_few_joints_needs_few_directions() -> None:
    watch = CollapseWatch(100, 192, "")
    assert not any(watch.look(step, _terms(2.3, 0.8)) for step in range(0, 101, 10))
