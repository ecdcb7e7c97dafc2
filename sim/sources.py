"""Latents of synthetic worlds: their distribution, and how the members of a pair move.

Coordinates are independent, of mean 0 and variance 1. How z goes over into its partner z':

    published    both members are rho z + sqrt(1 - rho^2) eta of one common z, so they correlate by rho^2:
                 what the identifiability paper's code trains on (arXiv 2605.26379)
    ou           z and rho z + sqrt(1 - rho^2) eta, eta Gaussian: stationary for a Gaussian z, and only there
    stationary   z' has the distribution of z, whatever that is, and correlates with it by rho:
                 Gaussian: `ou`; Laplace: the autoregression z' = rho z + e whose noise makes it so;
                 generalised normal with alpha >= 1: Langevin dynamics. Below alpha 1 there is none with a
                 spectral gap

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
from scipy.linalg import eigh_tridiagonal
from scipy.optimize import brentq
from scipy.special import gammaln

Pairing = Literal["published", "ou", "stationary"]

LEAST_ALPHA, MOST_ALPHA = 0.05, 64.0
LANGEVIN_STEP = 0.002
"""Of time, at most; the noise of a step is then 0.063 standard deviations."""
GENERATOR_POINTS, GENERATOR_REACH = 801, 1e-14


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


@dataclass(frozen=True)
class Langevin:
    """The stationary diffusion dz = -U'(z) dt + sqrt(2) dW of a source, alpha >= 1.

    Attributes
    ----------
    gap : its spectral gap, by finite volumes.
    time : after which z' correlates with z by rho.
    steps : in which that time is gone through, each Metropolis-adjusted, so that it keeps the distribution.
    """

    gap: float
    time: float
    steps: int


@lru_cache(maxsize=64)
def langevin(source: Source, rho: float) -> Langevin:
    """The diffusion of a source that takes correlation rho, in (0, 1).

    The correlation after time t is sum_k c_k exp(-lambda_k t) over the eigenmodes of the generator; c_k are
    the squared coefficients of z in them.
    """
    reach = source.scale * (-math.log(GENERATOR_REACH)) ** (1 / source.power)
    z = np.linspace(-reach, reach, GENERATOR_POINTS)
    width = z[1] - z[0]
    mass = source.density(z)
    between = np.sqrt(mass[1:] * mass[:-1])  # flows between neighbours, symmetric in them
    out = np.zeros_like(z)
    out[:-1] += between / mass[:-1]
    out[1:] += between / mass[1:]
    values, modes = eigh_tridiagonal(out / width**2, -np.ones(len(z) - 1) / width**2)
    weight = np.square(modes.T @ (z * np.sqrt(mass)))
    weight[0] = 0.0  # the constant mode, of which z has nothing but rounding
    weight /= weight.sum()

    def correlation(time: float) -> float:
        return float(weight @ np.exp(-np.clip(values, 0, None) * time))

    time = float(brentq(lambda t: correlation(t) - rho, 0.0, 1e3, xtol=1e-10))
    return Langevin(float(values[1]), time, max(1, math.ceil(time / LANGEVIN_STEP)))


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
    check_stationary(source)
    if source.power == 1:
        # phi(t) / phi(rho t) = rho^2 + (1 - rho^2) phi(t) for phi = 1 / (1 + s^2 t^2): with probability rho^2
        # no noise at all, else noise as Laplace as z itself
        noise = source.sample(tuple(z.shape), generator)
        return rho * z + noise * (torch.rand(z.shape, generator=generator) >= rho**2)
    return _metropolis_adjusted(source, langevin(source, rho), z, generator)


def _metropolis_adjusted(
    source: Source, how: Langevin, z: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Langevin steps, some refused, so that none changes the distribution (MALA; Roberts, Tweedie 1996)."""
    dt = how.time / how.steps
    power, scale = source.power, source.scale
    force, energy = source.force(z), (z / scale).abs().pow(power)
    for _ in range(how.steps):
        noise = torch.randn(z.shape, generator=generator)
        there = z + dt * force + math.sqrt(2 * dt) * noise
        force_there, energy_there = source.force(there), (there / scale).abs().pow(power)
        back = (z - there - dt * force_there).square()
        accept = energy - energy_there - back / (4 * dt) + noise.square() / 2
        taken = torch.rand(z.shape, generator=generator).log() < accept
        z = torch.where(taken, there, z)
        force, energy = torch.where(taken, force_there, force), torch.where(taken, energy_there, energy)
    return z


def draw_pairs(
    source: Source, rho: float, pairing: Pairing, shape: tuple[int, ...], generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both members of independent pairs, float32 of this shape each."""
    z = source.sample(shape, generator)
    if pairing != "published":
        return z, move(source, rho, pairing, z, generator)
    noise = math.sqrt(1 - rho**2) * torch.randn(2, *shape, generator=generator)
    return rho * z + noise[0], rho * z + noise[1]


def check_stationary(source: Source) -> None:
    """ValueError for a source that no stationary additive-noise dynamics with a spectral gap has."""
    if not source.stationary_pairs:
        raise ValueError(
            f"latents of alpha {source.power:g} have independent draws only: below 1 their tails are so "
            "heavy that Langevin dynamics have no spectral gap"
        )


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
