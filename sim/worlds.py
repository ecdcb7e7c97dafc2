"""Synthetic worlds: latents that move in pairs, seen through a mixing.

    z, z'  ~  source and pairing            x, x' = g(z), g(z')

What a world gives depends on the world, the seed and the step alone, never on what was drawn before or on the
worlds beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from sim.mixings import Mixing, mixings_of
from sim.sources import Pairing, Source, check_stationary, draw_pairs, move

TRAINING, EVALUATION = 10, 11  # streams of a run's seed


class World(BaseModel):
    """Latents, how pairs of them move, and what is seen of them.

    Parameters
    ----------
    source : distribution of each latent.
    dim : how many latents, N; as many numbers are observed.
    rho : correlation of a latent with the same latent one step later.
    pairs : see `sim.sources`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Source = Source()
    dim: int = Field(default=2, ge=2, le=8192)
    rho: float = Field(default=0.95, gt=0.0, lt=1.0)
    pairs: Pairing = "stationary"
    mixing: Mixing

    @model_validator(mode="after")
    def _fits(self) -> World:
        self.mixing.check_dim(self.dim)
        if self.pairs == "stationary":
            check_stationary(self.source, self.rho)
        return self


class WorldRun(Protocol):
    """A training of one encoder in one world."""

    @property
    def world(self) -> World: ...
    @property
    def seed(self) -> int: ...
    @property
    def batch_size(self) -> int: ...


def training_pairs(runs: Sequence[WorldRun], step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Observations (R, batch, N) of both members of each run's pairs at a step; all runs of one size."""
    drawn = [
        draw_pairs(
            run.world.source,
            run.world.rho,
            run.world.pairs,
            (run.batch_size, run.world.dim),
            generator(run.seed, TRAINING, step),
        )
        for run in runs
    ]
    z = torch.stack([torch.cat(pair) for pair in drawn])  # (R, 2 batch, N)
    first, second = observe([run.world for run in runs], z).chunk(2, dim=1)
    return first, second


def observe(worlds: Sequence[World], z: torch.Tensor) -> torch.Tensor:
    """Observations (R, n, N) of latents (R, n, N), row r through the mixing of world r."""
    return mixings_of(tuple(world.mixing for world in worlds), worlds[0].dim)(z)


def evaluation_latents(world: World, count: int, seed: int, stream: int) -> torch.Tensor:
    """Independent latents, float32 (count, N); another set for another `stream`."""
    return world.source.sample((count, world.dim), generator(seed, EVALUATION, stream))


def evaluation_pairs(world: World, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents and their partners of correlation rho, (count, N) each, whatever the world trains on.

    Stationary where the source has such pairs, else by Gaussian noise as the published evaluation has it.
    """
    own = generator(seed, EVALUATION, 2)
    z = world.source.sample((count, world.dim), own)
    pairing: Pairing = "stationary" if world.source.stationary_pairs else "ou"
    return z, move(world.source, world.rho, pairing, z, own)


def generator(seed: int, *stream: int) -> torch.Generator:
    """A generator for one purpose of a run's seed."""
    state = np.random.SeedSequence(seed, spawn_key=stream).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state))
