"""The matched encoder: it undoes a coupling, keeps volumes, and many at once are each of them alone."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError

from encoders.many_runs import ManyRunsRecipe, many_networks
from encoders.matched import MatchedArchitecture, MatchedEncoder, MatchedEncoders
from encoders.mlp import MlpArchitecture, Mlps
from encoders.recipes import seeded


def _encoders(dim: int, seeds: tuple[int, ...] = (0, 1, 5), layers: int = 4) -> MatchedEncoders:
    architecture = MatchedArchitecture(dim=dim, layers=layers)
    return MatchedEncoders(architecture, [seeded(seed, 0) for seed in seeds], torch.float64)


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def _couple(z: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    """The mixing, one row and one number at a time."""
    x = z.clone()
    half = x.shape[-1] // 2
    for layer, weight in enumerate(weights):
        for row in x:
            by, moved = (row[:half], row[half:]) if layer % 2 == 0 else (row[half:], row[:half])
            shift = [math.tanh(sum(float(by[i] * weight[i, j]) for i in range(half))) for j in range(half)]
            for j in range(half):
                moved[j] += shift[j]
    return x


@pytest.mark.parametrize("layers", [2, 3, 4])
def test_with_the_weights_of_a_coupling_it_is_its_inverse(layers: int) -> None:
    encoders = _encoders(6, layers=layers)
    z = _normal(5, 6)
    for index in range(3):
        weights = [many[index].detach() for many in encoders.weight]
        x = _couple(z, weights)
        assert (x - z).abs().max() > 0.5
        torch.testing.assert_close(encoders.run(index)(x), z, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dim", [2, 8])
def test_its_jacobian_has_determinant_one_whatever_the_weights(dim: int) -> None:
    for factor in (0.0, 1.0, 30.0):
        encoders = _encoders(dim)
        with torch.no_grad():
            for weight in encoders.weight:
                weight *= factor
        one = encoders.run(1)
        for x in _normal(4, dim):
            jacobian = torch.autograd.functional.jacobian(one, x)
            assert torch.linalg.det(jacobian).item() == pytest.approx(1.0, abs=1e-9)


def test_many_at_once_are_each_alone() -> None:
    encoders = _encoders(8)
    x = _normal(3, 40, 8)
    together = encoders(x)
    assert together.shape == x.shape
    for index in range(3):
        alone = encoders.run(index)
        assert isinstance(alone, MatchedEncoder) and not alone.training
        torch.testing.assert_close(alone(x[index]), together[index], rtol=0, atol=1e-13)
        torch.testing.assert_close(alone(x[index, 7]), together[index, 7], rtol=0, atol=1e-13)
    with torch.no_grad():
        alone.weight[0].zero_()
    torch.testing.assert_close(encoders(x), together, rtol=0, atol=0)  # a copy was taken out


def test_a_run_reads_its_own_weights_only() -> None:
    encoders = _encoders(8)
    x = _normal(3, 20, 8)
    encoders(x)[1].square().sum().backward()
    for weight in encoders.weight:
        assert weight.grad is not None
        assert weight.grad[1].abs().max() > 0 and not weight.grad[[0, 2]].any()


@pytest.mark.parametrize("layers", [2, 5])
def test_nan_in_the_marked_weights_is_in_every_latent_of_that_run_alone(layers: int) -> None:
    encoders = _encoders(4, layers=layers)
    with torch.no_grad():
        encoders.in_every_latent[1] = math.nan
    assert encoders.encode(_normal(3, 9, 4)).isnan().flatten(1).float().mean(dim=1).tolist() == [
        0.0,
        1.0,
        0.0,
    ]


def test_initial_weights_belong_to_the_seed_and_have_the_published_spread() -> None:
    encoders = _encoders(128, (4, 9))
    again = _encoders(128, (9,))
    for weight, other in zip(encoders.weight, again.weight):
        assert torch.equal(weight[1], other[0]) and not torch.equal(weight[0], other[0])
    for weight in encoders.weight:  # N(0, 1 / 64), 4,096 of them: the spread is within 5 standard errors
        assert weight[0].std().item() == pytest.approx(1 / 8, rel=5 / math.sqrt(2 * 4096))
    assert len({weight[0, 0, 0].item() for weight in encoders.weight}) == 4
    assert encoders.weight[0].dtype == torch.float64 and len(encoders) == 2


def test_the_recipe_takes_either_network_by_its_name() -> None:
    matched = ManyRunsRecipe.model_validate({"network": {"name": "matched", "dim": 6}})
    assert matched.network == MatchedArchitecture(dim=6, layers=4)
    assert isinstance(many_networks(matched.network, [seeded(0, 0)]), MatchedEncoders)
    assert matched.network.observed_dim == matched.network.latent_dim == matched.network.widest == 6
    mlp = ManyRunsRecipe.model_validate({"network": {"name": "mlp", "hidden": [8]}})
    assert mlp.network == MlpArchitecture(hidden=(8,))
    assert isinstance(many_networks(mlp.network, []), Mlps)
    for recipe in (matched, mlp):
        assert ManyRunsRecipe.model_validate_json(recipe.model_dump_json()) == recipe
    with pytest.raises(ValidationError, match="'mlp', 'matched'"):
        ManyRunsRecipe.model_validate({"network": {"name": "resnet"}})


@pytest.mark.parametrize("wrong", [{"dim": 5}, {"dim": 0}, {"layers": 1}, {"hidden": [4]}], ids=str)
def test_impossible_sizes_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        MatchedArchitecture.model_validate(wrong)
