"""A world's data depend on the world, the seed and the step alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from hardware.errors import InputError
from hardware.schema import parse_model
from sim.mixings import Mixing, Mixings
from sim.sources import Source
from sim.worlds import World, evaluation_latents, evaluation_pairs, observe, training_pairs

SPIRAL = Mixing(name="spiral")


@dataclass(frozen=True)
class Run:
    world: World
    seed: int
    batch_size: int = 64


def _gennorm(alpha: float, pairs: str) -> World:
    return World(source=Source(name="gennorm", alpha=alpha), pairs=pairs, mixing=SPIRAL)


RUNS = [
    Run(World(mixing=SPIRAL, pairs="published", rho=0.3), 0),
    Run(World(mixing=SPIRAL, pairs="published", rho=0.99), 0),
    Run(World(mixing=SPIRAL, source=Source(name="laplace")), 4),
    Run(_gennorm(0.5, "ou"), 4),
    Run(_gennorm(8.0, "stationary"), 5),
]


def test_a_run_is_given_the_same_alone_and_in_any_company() -> None:
    before = torch.get_rng_state()
    first, second = training_pairs(RUNS, 7)
    assert first.shape == second.shape == (5, 64, 2)
    order = [3, 1, 4, 0, 2]
    mixed = training_pairs([RUNS[index] for index in order], 7)
    for place, index in enumerate(order):
        alone = training_pairs([RUNS[index]], 7)
        for whole, shuffled, single in zip((first, second), mixed, alone):
            torch.testing.assert_close(shuffled[place], whole[index], rtol=0, atol=1e-6)
            torch.testing.assert_close(single[0], whole[index], rtol=0, atol=1e-6)
    assert torch.equal(torch.get_rng_state(), before)  # nothing global was drawn


def test_steps_and_seeds_are_different_draws() -> None:
    run = RUNS[0]
    drawn = [training_pairs([run], step)[0] for step in (0, 1)]
    drawn.append(training_pairs([Run(run.world, 1)], 0)[0])
    drawn.append(observe([run.world], evaluation_latents(run.world, 64, 0, 0)[None]))
    drawn.append(observe([run.world], evaluation_latents(run.world, 64, 0, 1)[None]))
    for a in range(len(drawn)):
        for b in range(a):
            assert (drawn[a] - drawn[b]).abs().min() > 0


def test_observations_are_the_mixing_of_the_pairs() -> None:
    runs = [
        Run(
            World(dim=8, rho=rho, pairs=pairs, mixing=Mixing(name="coupling", layers=4, seed=seed)),
            seed,
            20_000,
        )
        for seed, (rho, pairs) in enumerate([(0.9, "published"), (0.6, "stationary")])
    ]
    inverse = Mixings(tuple(run.world.mixing for run in runs), 8).inverse
    first, second = (inverse(x.double()) for x in training_pairs(runs, 3))
    for index, expected in enumerate((0.81, 0.6)):  # published pairs correlate by the square of rho
        both = np.corrcoef(first[index].numpy(), second[index].numpy(), rowvar=False)
        np.testing.assert_allclose(np.diag(both[:8, 8:]), expected, atol=0.03)
        apart = both - np.diag(np.diag(both)) - np.eye(16, k=8) * both - np.eye(16, k=-8) * both
        assert np.abs(apart).max() < 0.04  # coordinates are independent


def test_evaluation_pairs_correlate_by_rho_whatever_is_trained_on() -> None:
    for world in (RUNS[0].world, _gennorm(0.5, "published"), _gennorm(8.0, "stationary")):
        world = world.model_copy(update={"rho": 0.8})
        first, second = evaluation_pairs(world, 30_000, 2)
        for column in range(2):
            found = np.corrcoef(first[:, column], second[:, column])[0, 1]
            assert found == pytest.approx(0.8, abs=0.02)


def test_worlds_are_hashable_and_survive_json() -> None:
    for run in RUNS:
        again = World.model_validate_json(run.world.model_dump_json())
        assert again == run.world and hash(again) == hash(run.world)


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"dim": 4}, "spiral is a mixing of two latents, not of 4"),
        ({"source": {"name": "gennorm", "alpha": 0.5}, "pairs": "stationary"}, "no spectral gap"),
        ({"rho": 1.0}, "field 'rho'"),
        ({"pairs": "brownian"}, "'published', 'ou' or 'stationary'"),
        ({"roh": 0.9}, "did you mean 'rho'"),
    ],
)
def test_what_cannot_be_is_said(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_model(World, {"mixing": {"name": "spiral"}, **wrong}, "study.yaml")
