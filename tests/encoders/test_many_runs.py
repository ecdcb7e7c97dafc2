"""Batched trainings: every run equals itself alone, and a plain torch loop; neighbours, order, cuts and kills
change nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from encoders import losses, run_losses
from encoders.many_runs import ManyRuns, ManyRunsRecipe, RunSpec, learning_rate, train_many
from encoders.matched import MatchedArchitecture
from encoders.mlp import MlpArchitecture, Mlps
from encoders.recipes import seeded
from hardware import InputError

NETWORK = MlpArchitecture(observed_dim=3, hidden=(24, 16), latent_dim=2)
MATCHED = MatchedArchitecture(dim=6, layers=4)
BATCH = 24
STEPS = 50


class Ou(RunSpec):
    """A run of an Ornstein-Uhlenbeck world."""

    rho: float = 0.9
    spoilt_from: int | None = None


def ou_pairs(runs: Sequence[Ou], step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """z' = rho z + sqrt(1 - rho^2) eta, seen through a bend into three dimensions; float64 (R, BATCH, 3)."""
    first, second = [], []
    for run in runs:
        z, eta = torch.randn(2, BATCH, 2, generator=seeded(run.seed, 1, step), dtype=torch.float64)
        partner = run.rho * z + math.sqrt(1 - run.rho**2) * eta
        if run.spoilt_from is not None and step >= run.spoilt_from:
            z = z * math.inf
        for members, latent in ((first, z), (second, partner)):
            members.append(torch.stack([latent[:, 0], latent[:, 1], latent.prod(dim=1)], dim=1))
    return torch.stack(first), torch.stack(second)


def wide_pairs(runs: Sequence[Ou], step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same latents and bends of them, six numbers: what a matched encoder of MATCHED takes."""
    first, second = ou_pairs(runs, step)
    return tuple(torch.cat([x, 0.5 * x.square() + x.roll(1, dims=-1)], dim=-1) for x in (first, second))


def _recipe(**settings: Any) -> ManyRunsRecipe:
    return ManyRunsRecipe(
        **{
            "network": NETWORK,
            "steps": STEPS,
            "slices": 12,
            "dtype": "float64",
            "log_every": 10,
            **settings,
        }
    )


def _train(runs: Sequence[Ou], recipe: ManyRunsRecipe, **options: Any) -> ManyRuns[Ou]:
    return train_many(runs, options.pop("pairs", ou_pairs), recipe, device="cpu", **options)


def _grid(objective: str = "sigreg") -> list[Ou]:
    lams = (None, None) if objective == "infonce" else (1e-3, 0.2)
    return [Ou(seed=seed, lam=lam, rho=rho) for lam in lams for rho in (0.3, 0.95) for seed in (0, 7)]


def _state(trained: ManyRuns[Ou], run: int) -> dict[str, torch.Tensor]:
    return {name: tensor[run] for name, tensor in trained.networks.state_dict().items()}


def _assert_same_run(a: ManyRuns[Ou], i: int, b: ManyRuns[Ou], j: int, atol: float) -> None:
    ours, theirs = _state(a, i), _state(b, j)
    assert ours.keys() == theirs.keys() and len(ours) >= 6
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=atol)
    np.testing.assert_allclose(a.history[:, :, i], b.history[:, :, j], rtol=0, atol=atol)


VARIANTS = [
    {"objective": "sigreg"},
    {"objective": "sigreg", "normalisation": "published", "grad_clip": 0.05},
    {"objective": "sigreg", "network": NETWORK.model_copy(update={"batch_norm": True}), "grad_clip": 0.5},
    {"objective": "whitening", "grad_clip": 0.05},
    {"objective": "whitening", "normalisation": "published", "hold": 0.0},
    {"objective": "infonce", "sigma": 0.7},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_run_of_a_grid_is_the_run_alone(variant: dict[str, Any]) -> None:
    runs, recipe = _grid(variant["objective"]), _recipe(**variant)
    together = _train(runs, recipe)
    assert np.all(together.diverged_at == -1)
    for index, run in enumerate(runs):
        _assert_same_run(together, index, _train([run], recipe), 0, atol=1e-9)
    first, second = _state(together, 0), _state(together, 1)  # and runs of other seeds are other runs
    assert all((first[name] - second[name]).abs().max() > 1e-3 for name in first if "norm" not in name)


MATCHED_VARIANTS = [
    {"objective": "sigreg", "normalisation": "published"},
    {"objective": "whitening", "grad_clip": 0.05},
    {"objective": "infonce", "sigma": 2.0},
]


@pytest.mark.parametrize("variant", MATCHED_VARIANTS, ids=str)
def test_a_matched_run_of_a_grid_is_the_run_alone(variant: dict[str, Any]) -> None:
    runs, recipe = _grid(variant["objective"]), _recipe(network=MATCHED, **variant)
    together = _train(runs, recipe, pairs=wide_pairs)
    assert np.all(together.diverged_at == -1)
    start = _train(runs, recipe.model_copy(update={"steps": 1}), pairs=wide_pairs)
    for index, run in enumerate(runs):
        alone = _train([run], recipe, pairs=wide_pairs)
        ours, theirs, before = _state(together, index), _state(alone, 0), _state(start, index)
        assert ours.keys() == theirs.keys() and len(ours) == 4
        for name, tensor in ours.items():
            torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=1e-9)
            assert (tensor - before[name]).abs().max() > 1e-2  # it was trained
        np.testing.assert_allclose(together.history[:, :, index], alone.history[:, :, 0], rtol=0, atol=1e-9)
    x = wide_pairs(runs, 99)[0]
    latents = together.encode(x)
    for index in range(len(runs)):
        torch.testing.assert_close(together.run(index)(x[index]), latents[index], rtol=0, atol=1e-12)


def test_a_matched_training_that_was_killed_goes_on_and_one_that_diverges_is_marked(tmp_path: Path) -> None:
    recipe, runs = _recipe(network=MATCHED, dtype="float32"), _grid()[:3]
    whole = _train(runs, recipe, pairs=wide_pairs, at_once=2)

    def stop(done: int, total: int, what: str) -> None:
        if done == 71:
            raise _Stopped

    with pytest.raises(_Stopped):
        _train(runs, recipe, pairs=wide_pairs, at_once=2, to=tmp_path, checkpoint_every=4, progress=stop)
    asked: list[int] = []

    def watched(of: Sequence[Ou], step: int) -> tuple[torch.Tensor, torch.Tensor]:
        asked.append(step)
        return wide_pairs(of, step)

    resumed = _train(runs, recipe, pairs=watched, at_once=2, to=tmp_path, checkpoint_every=4)
    assert asked == list(range(20, STEPS))  # the first group was finished, the second stood at step 20
    for name, tensor in whole.networks.state_dict().items():
        assert torch.equal(tensor, resumed.networks.state_dict()[name])
    np.testing.assert_array_equal(whole.history, resumed.history)

    spoilt = [runs[0], runs[1].model_copy(update={"spoilt_from": 5}), runs[2]]
    found = _train(spoilt, recipe, pairs=wide_pairs)
    assert found.diverged_at.tolist() == [-1, 5, -1]
    latents = found.encode(torch.ones(3, 4, 6))
    assert latents.isnan().flatten(1).float().mean(dim=1).tolist() == [0.0, 1.0, 0.0]


def _plain(run: Ou, recipe: ManyRunsRecipe) -> tuple[nn.Sequential, list[float]]:
    """One run as one writes it in plain torch, with the losses written out."""
    generator = seeded(run.seed, 0)
    network = recipe.network.one()
    for module in network:
        if isinstance(module, nn.Linear):
            nn.init.uniform_(module.weight, -(module.in_features**-0.5), module.in_features**-0.5, generator)
            nn.init.uniform_(module.bias, -(module.in_features**-0.5), module.in_features**-0.5, generator)
        elif isinstance(module, nn.BatchNorm1d):
            module.reset_parameters()
    network = network.double().train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=1.0, weight_decay=recipe.weight_decay)
    kept = []
    for step in range(recipe.steps):
        half = recipe.steps * recipe.hold
        cosine = 1.0 if step < half else 0.5 + 0.5 * np.cos(np.pi * (step - half) / (recipe.steps - half))
        optimiser.param_groups[0]["lr"] = recipe.learning_rate * cosine
        x = torch.cat([member[0] for member in ou_pairs([run], step)])
        first, second = network(x).chunk(2)
        members = torch.stack([first, second])
        if recipe.objective == "infonce":
            apart = first[:, None] - second[None, :]
            similarity = -apart.square().sum(-1) / (2 * recipe.sigma**2)
            target = torch.arange(BATCH)
            loss = 0.5 * (
                functional.cross_entropy(similarity, target) + functional.cross_entropy(similarity.T, target)
            )
        else:
            directions = torch.randn(2, recipe.slices, generator=seeded(run.seed, 2, step))
            directions = directions.double() / directions.double().norm(dim=0)
            pooled = torch.cat([first, second])
            if recipe.normalisation == "published":
                aligned = (members.mean(0) - members).square().mean()
                regular = losses.epps_pulley(pooled @ directions).mean()
                if recipe.objective == "whitening":
                    regular = (torch.cov(pooled.T) - torch.eye(2)).square().mean()
            else:
                aligned = losses.alignment(first, second)
                regular = losses.epps_pulley(members @ directions).mean()
                if recipe.objective == "whitening":
                    regular = losses.whitening(members)
            assert run.lam is not None
            loss = run.lam * regular + (1 - run.lam) * aligned
        optimiser.zero_grad()
        loss.backward()
        if recipe.grad_clip is not None:
            nn.utils.clip_grad_norm_(network.parameters(), recipe.grad_clip)
        optimiser.step()
        kept.append(loss.item())
    return network.eval(), kept


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_run_is_what_plain_torch_trains(variant: dict[str, Any]) -> None:
    recipe = _recipe(**variant, log_every=1)
    runs = _grid(variant["objective"])[2:5]
    trained = _train(runs, recipe)
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for index, run in enumerate(runs):
        network, kept = _plain(run, recipe)
        np.testing.assert_allclose(trained.history[:, 0, index], kept, rtol=0, atol=1e-9)
        ours = trained.run(index)
        for name, tensor in network.state_dict().items():
            if "num_batches" not in name:
                torch.testing.assert_close(ours.state_dict()[name], tensor, rtol=0, atol=1e-9)
        torch.testing.assert_close(ours(x), network(x), rtol=0, atol=1e-8)


def test_order_and_cuts_of_the_grid_change_nothing() -> None:
    runs, recipe = _grid(), _recipe()
    whole = _train(runs, recipe)
    order = [5, 0, 7, 2, 1, 6, 3, 4]
    for at_once in (3, 8):
        mixed = _train([runs[index] for index in order], recipe, at_once=at_once)
        assert mixed.runs == tuple(runs[index] for index in order)
        for place, index in enumerate(order):
            _assert_same_run(mixed, place, whole, index, atol=1e-9)


def test_nothing_global_is_drawn_and_logging_changes_nothing() -> None:
    before = torch.get_rng_state()
    one = _train(_grid()[:2], _recipe(steps=7))
    torch.rand(5)
    other = _train(_grid()[:2], _recipe(steps=7, log_every=3))
    torch.set_rng_state(before)
    _train(_grid()[:2], _recipe(steps=7)).run(0)
    assert torch.equal(torch.get_rng_state(), before)
    for name, tensor in one.networks.state_dict().items():
        assert torch.equal(tensor, other.networks.state_dict()[name])
    assert one.steps.tolist() == [7] and other.steps.tolist() == [3, 6, 7]
    np.testing.assert_array_equal(one.history[-1], other.history[-1])


def test_runs_that_diverge_are_marked_and_spoil_no_other() -> None:
    runs, recipe = _grid(), _recipe()
    clean = _train(runs, recipe)
    spoilt = [run.model_copy(update={"spoilt_from": {1: 0, 4: 23}.get(i)}) for i, run in enumerate(runs)]
    found = _train(spoilt, recipe)
    assert found.diverged_at.tolist() == [-1, 0, -1, -1, 23, -1, -1, -1]
    for index in (0, 2, 3, 5, 6, 7):  # not to the bit: how a group sums SIGReg depends on its farthest sample
        _assert_same_run(found, index, clean, index, atol=1e-12)
    latents = found.encode(torch.zeros(8, 5, 3))
    assert latents.isnan().all(dim=(1, 2)).tolist() == [i in (1, 4) for i in range(8)]
    np.testing.assert_allclose(found.history[:2, :, 4], clean.history[:2, :, 4], rtol=1e-12)
    assert np.isnan(found.history[2:, 0, 4]).all()


def test_one_step_that_is_spoilt_is_not_forgotten() -> None:
    """A run whose data is bad once must not look healthy afterwards, nor if its last update fails."""

    def once(at: int) -> Callable[[Sequence[Ou], int], tuple[torch.Tensor, torch.Tensor]]:
        def pairs(runs: Sequence[Ou], step: int) -> tuple[torch.Tensor, torch.Tensor]:
            first, second = ou_pairs(runs, step)
            first[0] *= math.nan if step == at else 1.0
            return first, second

        return pairs

    for at in (4, 11):
        found = _train(_grid()[:2], _recipe(steps=12), pairs=once(at))
        assert found.diverged_at.tolist() == [at, -1]
        assert found.encode(torch.zeros(2, 3, 3))[0].isnan().all()

    huge = _train(_grid()[:2], _recipe(steps=1, learning_rate=1e300, weight_decay=1e300))
    assert huge.diverged_at.tolist() == [1, 1]  # the loss of step 0 was finite; there is no finite next one


class _Stopped(Exception):
    pass


@pytest.mark.parametrize("dtype, batch_norm", [("float64", False), ("float32", True)])
def test_killed_and_resumed_equals_never_killed(tmp_path: Path, dtype: str, batch_norm: bool) -> None:
    runs = _grid()[:5]
    recipe = _recipe(dtype=dtype, network=NETWORK.model_copy(update={"batch_norm": batch_norm}))
    whole = _train(runs, recipe, at_once=2)
    asked: list[tuple[int, int]] = []

    def pairs(of: Sequence[Ou], step: int) -> tuple[torch.Tensor, torch.Tensor]:
        asked.append((len(of), step))
        return ou_pairs(of, step)

    for stop_at in (3, 17, 71, 72):  # before a checkpoint, after some, in the second group, at once again

        def stop(done: int, total: int, what: str, stop_at: int = stop_at) -> None:
            assert total == 3 * STEPS and what.startswith("training runs ")
            if done == stop_at:
                raise _Stopped

        with pytest.raises(_Stopped):
            _train(runs, recipe, at_once=2, pairs=pairs, to=tmp_path, checkpoint_every=4, progress=stop)
    resumed = _train(runs, recipe, at_once=2, pairs=pairs, to=tmp_path, checkpoint_every=4)
    first_group = [step for size, step in asked[: 17 + 3 + 34]]
    assert first_group[:3] == [0, 1, 2] and first_group[3:20] == list(range(17)) and first_group[20] == 16
    for name, tensor in whole.networks.state_dict().items():
        assert torch.equal(tensor, resumed.networks.state_dict()[name])
    np.testing.assert_array_equal(whole.history, resumed.history)

    asked.clear()
    loaded = _train(runs, recipe, at_once=2, pairs=pairs, to=tmp_path)
    assert not asked
    for name, tensor in whole.networks.state_dict().items():
        assert torch.equal(tensor, loaded.networks.state_dict()[name])
    _train(runs[:2], recipe, pairs=pairs, to=tmp_path)  # the first group by itself is known as well
    assert not asked
    _train(runs[:2], recipe.model_copy(update={"steps": 3}), pairs=pairs, to=tmp_path)
    assert len(asked) == 3  # another recipe is another training


def test_a_run_taken_out_gives_the_latents_of_the_grid() -> None:
    network = NETWORK.model_copy(update={"batch_norm": True})
    trained = _train(_grid(), _recipe(steps=5, network=network))
    x = torch.randn(8, 31, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    latents = trained.encode(x)
    assert latents.shape == (8, 31, 2) and not latents.requires_grad
    for index in range(8):
        torch.testing.assert_close(trained.run(index)(x[index]), latents[index], rtol=0, atol=1e-12)
    same = trained.encode(x[0].expand(8, -1, -1))
    torch.testing.assert_close(same[0], latents[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(same[3], trained.run(3)(x[0]), rtol=0, atol=1e-12)
    one = trained.run(2)
    with torch.no_grad():
        one[0].weight.zero_()
    torch.testing.assert_close(trained.encode(x), latents, rtol=0, atol=0)  # a copy was taken out
    with pytest.raises(ValueError, match="there is no run 8 among 8"):
        trained.run(8)
    with pytest.raises(ValueError, match=r"\(7, 31, 3\) do not fit \(R, N, d\) = \(8, N, 3\)"):
        trained.encode(x[:7])


def test_encoding_in_parts_is_encoding_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = Mlps(NETWORK, [seeded(seed, 0) for seed in range(3)])
    x = torch.randn(3, 50, 3, generator=torch.Generator().manual_seed(2))
    whole = networks.encode(x)
    monkeypatch.setattr("encoders.run_networks.NUMBERS_AT_ONCE", 21 * 24)
    torch.testing.assert_close(networks.encode(x), whole)
    assert networks.training


def test_the_published_network_and_schedule() -> None:
    networks = Mlps(MlpArchitecture(), [seeded(0, 0)])
    # 2-256-256-256-256-2
    expected = (2 * 256 + 256) + 3 * (256 * 256 + 256) + (256 * 2 + 2)
    assert sum(parameter.numel() for parameter in networks.parameters()) == expected == 198_658
    bound = networks.weight[1].abs().max().item()
    assert 0.99 / 16 < bound <= 1 / 16
    recipe = ManyRunsRecipe(steps=20_000)
    rates = [learning_rate(recipe, step) for step in (0, 9_999, 10_000, 15_000, 19_999)]
    assert rates[:3] == [3e-3] * 3 and rates[3] == pytest.approx(1.5e-3) and 0 < rates[4] < 1e-9


def _infonce_by_definition(first: np.ndarray, second: np.ndarray, sigma: float) -> float:
    total = 0.0
    for i in range(len(first)):
        kernel = lambda a, b: np.exp(-np.sum((a - b) ** 2) / (2 * sigma**2))  # noqa: E731
        positive = kernel(first[i], second[i])
        rows = sum(kernel(first[i], other) for other in second)
        columns = sum(kernel(other, second[i]) for other in first)
        total -= 0.5 * (np.log(positive / rows) + np.log(positive / columns))
    return total / len(first)


@pytest.mark.parametrize("dim", [5, 30, 60])  # fewer samples than dimensions: of a member, and pooled
def test_the_terms_of_all_runs_are_the_terms_of_each(dim: int) -> None:
    z = torch.from_numpy(np.random.default_rng(3).standard_normal((4, 2, 20, dim)))
    directions = torch.stack(
        [losses.random_directions(dim, 9, seeded(run), dtype=z.dtype) for run in range(4)]
    )
    for run in range(4):
        both, pooled = z[run], z[run].reshape(40, dim)
        for found, expected in (
            (run_losses.sigreg(z, directions, "members"), losses.sigreg(both, directions[run])),
            (run_losses.sigreg(z, directions, "published"), losses.sigreg(pooled, directions[run])),
            (run_losses.whitening(z, "members"), losses.whitening(both)),
            (run_losses.whitening(z, "published"), losses.whitening(pooled) / dim**2),
            (run_losses.alignment(z, "members"), losses.alignment(both[0], both[1])),
            (run_losses.alignment(z, "published"), losses.alignment(both[0], both[1]) / 4),
        ):
            assert found.shape == (4,)
            assert found[run].item() == pytest.approx(expected.item(), rel=1e-12)
        slow = _infonce_by_definition(both[0].numpy(), both[1].numpy(), 0.8)
        assert run_losses.infonce(z, 0.8)[run].item() == pytest.approx(slow, rel=1e-10)


def test_it_recovers_the_latents_and_without_a_regulariser_it_collapses() -> None:
    runs = [Ou(seed=seed, lam=lam, rho=0.95) for lam in (0.03, 0.0) for seed in (0, 1)]
    trained = _train(runs, _recipe(steps=400, dtype="float32", slices=16, learning_rate=1e-2))
    fresh, _ = ou_pairs([Ou(seed=99, lam=0.0)] * 40, 0)
    x = fresh.reshape(1, -1, 3)[:, :BATCH].double()
    x = torch.cat([ou_pairs([Ou(seed=99 + n)], 0)[0] for n in range(40)], dim=1)  # (1, 40 BATCH, 3)
    latents = trained.encode(x.expand(4, -1, -1)).double()
    for index in range(4):
        z = x[0, :, :2]
        h = torch.cat([latents[index], torch.ones(len(z), 1)], dim=1)
        residual = z - h @ torch.linalg.lstsq(h, z).solution
        r2 = 1 - (residual.var(dim=0) / z.var(dim=0)).mean().item()
        spread = latents[index].std(dim=0)
        if runs[index].lam:
            assert r2 > 0.8 and spread.min() > 0.5
        else:
            assert spread.max() < 0.05


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(InputError, match="grid: has no runs"):
        _train([], _recipe())
    with pytest.raises(InputError, match="at_once: is 0"):
        _train(_grid(), _recipe(), at_once=0)
    with pytest.raises(InputError, match="run 1, lam: is None with objective sigreg - give a number"):
        _train([Ou(seed=0, lam=0.1), Ou(seed=0)], _recipe())
    with pytest.raises(InputError, match=r"run 0, lam: is 0\.1 with objective infonce - leave it out"):
        _train([Ou(seed=0, lam=0.1)], _recipe(objective="infonce"))
    with pytest.raises(InputError, match=r"are \(1, 24, 3\) and \(1, 24, 3\), expected twice \(1, N, 2\)"):
        _train([Ou(seed=0, lam=0.1)], _recipe(network=MlpArchitecture()))
