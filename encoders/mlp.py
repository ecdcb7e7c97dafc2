"""The multilayer perceptron of the identifiability paper (arXiv 2605.26379), many of them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn
from torch.nn import functional

from encoders.run_networks import RunNetworks


class MlpArchitecture(BaseModel):
    """Shape of an MLP encoder: Linear - (batch norm) - GELU for each hidden width, and a last Linear.

    The published one for two latents is the default: 2-256-256-256-256-2, no batch norm, 198,658 parameters.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["mlp"] = "mlp"
    observed_dim: int = Field(default=2, ge=1, le=65536)
    hidden: tuple[int, ...] = (256, 256, 256, 256)
    latent_dim: int = Field(default=2, ge=1, le=4096)
    batch_norm: bool = False

    @property
    def widths(self) -> tuple[int, ...]:
        """Numbers of features from the observation to the latent."""
        return (self.observed_dim, *self.hidden, self.latent_dim)

    @property
    def widest(self) -> int:
        """Numbers of its widest layer for one observation."""
        return max(self.widths)

    def one(self) -> nn.Sequential:
        """The network of one run as plain torch writes it; its weights are still to be loaded."""
        layers: list[nn.Module] = []
        with torch.device("meta"):  # no draw from the global generator
            for before, after in pairwise(self.widths[:-1]):
                norm = [nn.BatchNorm1d(after)] if self.batch_norm else []
                layers += [nn.Linear(before, after), *norm, nn.GELU()]
            layers.append(nn.Linear(self.widths[-2], self.widths[-1]))
        return nn.Sequential(*layers).to_empty(device="cpu")


class Mlps(RunNetworks):
    """R independent MLPs of one architecture as one network of batched matrix products.

    Activations are kept as (R, features, N): weights are then stored as `nn.Linear` stores them, and batch
    norm sees (run, feature) pairs as channels without a copy.

    Parameters
    ----------
    architecture : widths of all runs.
    generators : one a run, source of its initial weights; U(-1/sqrt(fan_in), 1/sqrt(fan_in)), torch's own
        rule, drawn in float32 on the CPU so that a seed means the same weights everywhere.
    """

    architecture: MlpArchitecture

    def __init__(
        self,
        architecture: MlpArchitecture,
        generators: Sequence[torch.Generator],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.architecture = architecture
        widths, runs = architecture.widths, len(generators)
        self.weight, self.bias = nn.ParameterList(), nn.ParameterList()
        for before, after in pairwise(widths):
            weight, bias = torch.empty(runs, after, before), torch.empty(runs, after, 1)
            bound = before**-0.5
            for run, generator in enumerate(generators):
                weight[run].uniform_(-bound, bound, generator=generator)
                bias[run].uniform_(-bound, bound, generator=generator)
            self.weight.append(nn.Parameter(weight.to(dtype)))
            self.bias.append(nn.Parameter(bias.to(dtype)))
        self.norm = nn.ModuleList(
            _BatchNorm(runs, width, dtype) for width in architecture.hidden if architecture.batch_norm
        )

    @property
    def in_every_latent(self) -> nn.Parameter:
        """The bias of the latents."""
        parameter: nn.Parameter = self.bias[-1]
        return parameter

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Latents (R, N, D) of observations (R, N, d), row r of both by run r."""
        h = x.transpose(1, 2).contiguous()  # (R, d, N)
        last = len(self.weight) - 1
        for layer, (weight, bias) in enumerate(zip(self.weight, self.bias)):
            h = torch.baddbmm(bias, weight, h)  # W h + b, (R, after, N)
            if layer < last:
                if self.architecture.batch_norm:
                    h = self.norm[layer](h)
                h = functional.gelu(h)
        return h.transpose(1, 2)

    def run(self, index: int) -> nn.Sequential:
        """Run `index` as an ordinary module in evaluation mode: a copy, on the CPU."""
        one = self.architecture.one().to(self.bias[-1].dtype)
        linear = [module for module in one if isinstance(module, nn.Linear)]
        norms = [module for module in one if isinstance(module, nn.BatchNorm1d)]
        with torch.no_grad():
            for module, weight, bias in zip(linear, self.weight, self.bias):
                module.weight.copy_(weight[index])
                module.bias.copy_(bias[index, :, 0])
            for norm, many in zip(norms, self.norm):
                norm.reset_parameters()
                for name, value in many.state_dict().items():
                    norm.state_dict()[name].copy_(value[index])
        return one.eval()


class _BatchNorm(nn.Module):
    """`nn.BatchNorm1d` of R runs: statistics over a run's own batch, eps 1e-5, momentum 0.1."""

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, runs: int, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(runs, width, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(runs, width, dtype=dtype))
        self.register_buffer("running_mean", torch.zeros(runs, width, dtype=dtype))
        self.register_buffer("running_var", torch.ones(runs, width, dtype=dtype))

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """(R, width, N) to the same."""
        runs, width, samples = h.shape
        normed = functional.batch_norm(
            h.reshape(1, runs * width, samples),  # a channel a (run, feature)
            self.running_mean.view(-1),
            self.running_var.view(-1),
            self.weight.view(-1),
            self.bias.view(-1),
            training=self.training,
        )
        return normed.view(runs, width, samples)
