"""The matched encoder of the identifiability paper (arXiv 2605.26379), many of them side by side.

It has the structure of the inverse of an additive coupling mixing, and weights of its own. With the halves
a, b of an observation and the layers taken from the last to the first,

    b <- b - tanh(a V_l)    for even l,        a <- a - tanh(b V_l)    for odd l.

At V = the mixing's weights it is the inverse itself. A layer changes one half by something that the other
half alone decides, so whatever V is, the encoder is one-to-one and its Jacobian has determinant 1: it keeps
volumes and with them the entropy of its input. It cannot collapse, with or without a regulariser, and as it
has no factor behind the last layer it cannot scale all latents either, as an MLP does under InfoNCE; it can
only stretch some directions at the expense of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from encoders.run_networks import RunNetworks


class MatchedArchitecture(BaseModel):
    """Shape of a matched encoder: `layers` additive couplings of `dim` numbers, (dim / 2)^2 weights each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["matched"] = "matched"
    dim: int = Field(default=2, ge=2, le=4096, multiple_of=2)
    layers: int = Field(default=4, ge=2, le=64)
    """As many as the mixing has."""

    @property
    def observed_dim(self) -> int:
        """Numbers of an observation."""
        return self.dim

    @property
    def latent_dim(self) -> int:
        """Numbers of a latent, as many."""
        return self.dim

    @property
    def widest(self) -> int:
        """Numbers of its widest layer for one observation."""
        return self.dim

    def one(self) -> MatchedEncoder:
        """The network of one run; its weights are still to be loaded."""
        return MatchedEncoder(self)


class MatchedEncoder(nn.Module):
    """A single matched encoder: observations (..., dim) to latents (..., dim)."""

    def __init__(self, architecture: MatchedArchitecture) -> None:
        super().__init__()
        half = architecture.dim // 2
        empty = [nn.Parameter(torch.empty(half, half)) for _ in range(architecture.layers)]
        self.weight = nn.ParameterList(empty)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Latents (..., dim) of observations (..., dim)."""
        return uncouple(x, list(self.weight))


class MatchedEncoders(RunNetworks):
    """R independent matched encoders of one architecture as one network of batched matrix products.

    Parameters
    ----------
    architecture : size of all runs.
    generators : one a run, source of its initial weights: normal with mean 0 and variance 1 / (dim / 2), as
        in the published code, a quarter of the variance of the mixing's. Drawn in float32 on the CPU so that
        a seed means the same weights everywhere.
    """

    architecture: MatchedArchitecture

    def __init__(
        self,
        architecture: MatchedArchitecture,
        generators: Sequence[torch.Generator],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.architecture = architecture
        half, runs = architecture.dim // 2, len(generators)
        self.weight = nn.ParameterList()
        for _ in range(architecture.layers):
            weight = torch.empty(runs, half, half)
            for row, generator in zip(weight, generators):
                torch.randn(half, half, generator=generator, out=row)
            self.weight.append(nn.Parameter((weight / half**0.5).to(dtype)))

    @property
    def in_every_latent(self) -> nn.Parameter:
        """Weights of the layer that comes first: they reach one half, and by the next layer the other."""
        parameter: nn.Parameter = self.weight[-1]
        return parameter

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Latents (R, N, D) of observations (R, N, D), row r of both by run r."""
        return uncouple(x, list(self.weight))

    def run(self, index: int) -> MatchedEncoder:
        """Run `index` as an ordinary module in evaluation mode: a copy, on the CPU."""
        one = self.architecture.one().to(self.weight[-1].dtype)
        with torch.no_grad():
            for own, many in zip(one.weight, self.weight):
                own.copy_(many[index])
        return one.eval()


def uncouple(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """Undo additive couplings of these weights, the last one first.

    Parameters
    ----------
    x : (..., 2 h).
    weights : L tensors (..., h, h); even ones moved the second half, odd ones the first.

    Returns
    -------
    (..., 2 h)
    """
    halves = list(x.chunk(2, dim=-1))
    for layer in reversed(range(len(weights))):
        moved = 1 - layer % 2
        halves[moved] = halves[moved] - torch.tanh(halves[1 - moved] @ weights[layer])
    return torch.cat(halves, dim=-1)
