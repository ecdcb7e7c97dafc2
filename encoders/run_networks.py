"""Many independent networks of one architecture as one module: what every kind of them has in common."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

NUMBERS_AT_ONCE = 1 << 25
"""Numbers of a layer of all runs together that `RunNetworks.encode` holds at a time, 128 MiB in float32."""


class Architecture(Protocol):
    """What a network's description tells of its size."""

    @property
    def observed_dim(self) -> int:
        """Numbers of an observation."""
        ...

    @property
    def latent_dim(self) -> int:
        """Numbers of a latent."""
        ...

    @property
    def widest(self) -> int:
        """Numbers of its widest layer for one observation."""
        ...


class RunNetworks(nn.Module):
    """R networks side by side. Every parameter and every statistic has a leading axis R; run r reads and
    writes index r only, so that neither its values nor its gradients depend on its neighbours.
    """

    architecture: Architecture

    @property
    def in_every_latent(self) -> nn.Parameter:
        """A parameter (R, ...) that all latents of its run depend on: NaN there is NaN in all of them."""
        raise NotImplementedError

    def run(self, index: int) -> nn.Module:
        """Run `index` as an ordinary module in evaluation mode: a copy, on the CPU."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.in_every_latent.shape[0]

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Latents (R, N, D) of observations (R, N, d) in evaluation mode, in bounded memory."""
        if x.ndim != 3 or x.shape[0] != len(self) or x.shape[2] != self.architecture.observed_dim:
            raise ValueError(
                f"observations {tuple(x.shape)} do not fit (R, N, d) = "
                f"({len(self)}, N, {self.architecture.observed_dim})"
            )
        like = self.in_every_latent
        rows = max(1, NUMBERS_AT_ONCE // (len(self) * self.architecture.widest))
        training = self.training
        self.eval()
        with torch.no_grad():
            latents = torch.cat(
                [self(part.to(device=like.device, dtype=like.dtype)) for part in x.split(rows, dim=1)], dim=1
            )
        self.train(training)
        return latents
