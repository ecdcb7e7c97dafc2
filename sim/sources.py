"""Latents of synthetic worlds: their distribution, and how the members of a pair move.

Coordinates are independent, of mean 0 and variance 1. How z goes over into its partner z':

    published    both members are rho z + sqrt(1 - rho^2) eta of one common z, so they correlate by rho^2:
                 what the identifiability paper's code trains on (arXiv 2605.26379)
    ou           z and rho z + sqrt(1 - rho^2) eta, eta Gaussian: stationary for a Gaussian z, and only there
    stationary   z' has the distribution of z, whatever that is, and correlates with it by rho:
                 Gaussian: `ou`; Laplace: the autoregression z' = rho z + e whose noise makes it so;
                 generalised normal with alpha >= 1: Langevin dynamics (`sim.diffusion`). Below
                 alpha 1 there is none with a spectral gap

Everything is drawn from the generator that is given, and from nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from scipy.special import gammaln

from sim.diffusion import MOST_RHO, Transition, transition

Pairing = Literal["published", "ou", "stationary"]

LEAST_ALPHA, MOST_ALPHA = 0.05, 64.0


class Source(BaseModel):
    """The distribution of a coordinate: density proportional to exp(-|z / s|^alpha), s such that its variance
    is 1.

    Parameters
    ----------
    name : `gaussian` (alpha 2), `laplace` (alpha 1), or `gennorm` with its alpha.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["gaussian", "laplace", "gennorm"] = "gaussian"
    alpha: float | None = Field(default=None, ge=LEAST_ALPHA, le=MOST_ALPHA)

    @model_validator(mode="after")
    def _alpha_is_gennorms(self) -> Source:
        if (self.alpha is None) == (self.name == "gennorm"):
            said = "needs alpha" if self.alpha is None else "has no alpha, which is for gennorm"
            raise ValueError(f"{self.name} {said}")
        return self

    @property
    def power(self) -> float:
        """alpha: 2 for the Gaussian, 1 for Laplace."""
        return {"gaussian": 2.0, "laplace": 1.0}.get(self.name, self.alpha or 0.0)

    @property
    def scale(self) -> float:
        """s = sqrt(Gamma(1 / alpha) / Gamma(3 / alpha))."""
        return math.exp(0.5 * (gammaln(1 / self.power) - gammaln(3 / self.power)))

    @property
    def stationary_pairs(self) -> bool:
        """Whether pairs `stationary` exist: alpha of at least 1."""
        return self.power >= 1

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        """Independent draws, float32 of this shape, on the CPU.

        Generalised normal by z = s G^(1 / alpha) V with G ~ Gamma(1 + 1 / alpha) and V ~ U(-1, 1). For
        |z / s|^alpha is Gamma(1 / alpha), which is Gamma(1 + 1 / alpha) times U^alpha: so its small values,
        which a float32 cannot hold for a large alpha, are never needed.
        """
        if self.power == 2:
            return torch.randn(shape, generator=generator)
        even = 2 * torch.rand(shape, generator=generator) - 1
        if self.power == 1:  # Gamma(2) is the sum of two exponentials
            gamma = torch.empty(2, *shape).exponential_(generator=generator).sum(dim=0)
        else:
            gamma = torch._standard_gamma(torch.full(shape, 1 + 1 / self.power), generator)
        return self.scale * gamma.pow(1 / self.power) * even

    def density(self, z: np.ndarray) -> np.ndarray:
        """The density at z."""
        power, scale = self.power, self.scale
        norm = math.log(power / (2 * scale)) - gammaln(1 / power)
        return np.asarray(np.exp(norm - np.abs(np.asarray(z) / scale) ** power))

    def force(self, z: torch.Tensor) -> torch.Tensor:
        """-U'(z) of the potential U = |z / s|^alpha."""
        return -self.power / self.scale * z.sign() * (z / self.scale).abs().pow(self.power - 1)


@lru_cache(maxsize=32)
def langevin(source: Source, rho: float) -> Transition:
    """The source's diffusion as far as correlation rho, made once: 8 MiB, and a tenth of a second to make."""
    return transition(source, rho)


def move(
    source: Source, rho: float, pairing: Pairing, z: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Partners of z, any shape: one step of `ou` or `stationary`.

    Raises
    ------
    ValueError : a source without stationary pairs; `published`, whose members have no order (`draw_pairs`).
    """
    if pairing == "published":
        raise ValueError("published pairs are drawn together: neither member is the step of the other")
    if pairing == "ou" or source.power == 2:
        return rho * z + math.sqrt(1 - rho**2) * torch.randn(z.shape, generator=generator)
    check_stationary(source, rho)
    if source.power == 1:
        # phi(t) / phi(rho t) = rho^2 + (1 - rho^2) phi(t) for phi = 1 / (1 + s^2 t^2): with probability rho^2
        # no noise at all, else noise as Laplace as z itself
        noise = source.sample(tuple(z.shape), generator)
        return rho * z + noise * (torch.rand(z.shape, generator=generator) >= rho**2)
    return langevin(source, rho)(z, generator)


def draw_pairs(
    source: Source, rho: float, pairing: Pairing, shape: tuple[int, ...], generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both members of independent pairs, float32 of this shape each."""
    z = source.sample(shape, generator)
    if pairing != "published":
        return z, move(source, rho, pairing, z, generator)
    noise = math.sqrt(1 - rho**2) * torch.randn(2, *shape, generator=generator)
    return rho * z + noise[0], rho * z + noise[1]


def check_stationary(source: Source, rho: float) -> None:
    """ValueError for a source and correlation that no stationary pairs here have."""
    if not source.stationary_pairs:
        raise ValueError(
            f"latents of alpha {source.power:g} have independent draws only: below 1 their tails are so "
            "heavy that Langevin dynamics have no spectral gap"
        )
    if source.power not in (1, 2) and rho > MOST_RHO:
        raise ValueError(f"stationary pairs of alpha {source.power:g} need rho up to {MOST_RHO}, not {rho:g}")


@dataclass(frozen=True)
class MarginalError:
    """How far moved latents are from their source, and their correlation.

    Attributes
    ----------
    kolmogorov : largest distance of the distribution functions of z' and of the source.
    by_chance : what as many draws of the source itself show, 95 %: 1.36 / sqrt(n).
    variance : of z'.
    correlation : of z' with z.
    """

    kolmogorov: float
    by_chance: float
    variance: float
    correlation: float


def marginal_error(
    source: Source, rho: float, pairing: Pairing, n: int, generator: torch.Generator
) -> MarginalError:
    """Measured on n pairs of one coordinate; the second members where pairs are `published`."""
    from scipy.stats import gennorm, kstest

    first, second = (one.double().numpy() for one in draw_pairs(source, rho, pairing, (n,), generator))
    found = kstest(second, gennorm(source.power, scale=source.scale).cdf).statistic
    return MarginalError(
        float(found), 1.36 / math.sqrt(n), float(second.var()), float(np.corrcoef(first, second)[0, 1])
    )
