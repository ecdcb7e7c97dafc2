"""Mixings: from a world's latents to what is observed, invertible, many of them at once.

spiral      R(pi |z|) z, the plane turned the further the farther out
banana      (z0, z1 + z0^2)
sinusoid    (z0 + sin(1.5 z1), z1)
coupling    layers of b <- b + tanh(a W), the halves a and b taking turns, W = scale x orthogonal: what the
            identifiability paper's code calls RealNVP (arXiv 2605.26379)
realnvp     layers of b <- b exp(s(a)) + t(a), s and t small networks: what its text says
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

PLANE = ("spiral", "banana", "sinusoid")
REALNVP_HIDDEN = 16
MOST_STRETCH = 1.0
"""Of a realnvp layer, as a logarithm: it stretches by at most e."""


class Mixing(BaseModel):
    """Which mixing, and the seed of its weights where it has any.

    Parameters
    ----------
    layers : of `coupling` and `realnvp`.
    scale : of the orthogonal weights of a `coupling`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["spiral", "banana", "sinusoid", "coupling", "realnvp"]
    layers: int | None = Field(default=None, ge=1, le=64)
    scale: float = Field(default=2.0, gt=0.0, le=100.0)
    seed: int = Field(default=0, ge=0, lt=1 << 63)

    @model_validator(mode="after")
    def _layers_where_there_are_any(self) -> Mixing:
        if (self.layers is None) == (self.name not in PLANE):
            said = (
                "needs layers" if self.layers is None else "has no layers, which are for coupling and realnvp"
            )
            raise ValueError(f"{self.name} {said}")
        return self

    def check_dim(self, dim: int) -> None:
        """ValueError where there is no such mixing of `dim` latents."""
        if self.name in PLANE and dim != 2:
            raise ValueError(f"{self.name} is a mixing of two latents, not of {dim}")
        if self.name not in PLANE and dim % 2:
            raise ValueError(f"{self.name} takes latents in two halves, and {dim} is odd")


class Mixings:
    """Mixings of R runs: (R, n, N) to the same.

    Parameters
    ----------
    of : one a run, all of one name and as many layers.
    dim : N.
    """

    def __init__(self, of: tuple[Mixing, ...], dim: int) -> None:
        kinds = {(one.name, one.layers) for one in of}
        if len(kinds) != 1:
            raise ValueError(f"mixings of one kind are applied together, not {sorted(map(str, kinds))}")
        of[0].check_dim(dim)
        self.name, self.layers = of[0].name, of[0].layers or 0
        if self.name == "coupling":
            self._weight = torch.stack([_coupling_weights(one, dim) for one in of])  # (R, L, N/2, N/2)
        elif self.name == "realnvp":
            each = [_realnvp_weights(one, dim) for one in of]
            self._first, self._second = (torch.stack(parts) for parts in zip(*each))

    def __call__(self, z: torch.Tensor) -> torch.Tensor:
        """Observations of latents (R, n, N)."""
        return self._run(z, inverse=False)

    def inverse(self, x: torch.Tensor) -> torch.Tensor:
        """Latents of observations (R, n, N)."""
        return self._run(x, inverse=True)

    def _run(self, z: torch.Tensor, inverse: bool) -> torch.Tensor:
        sign = -1 if inverse else 1
        if self.name == "spiral":  # |g(z)| = |z|, so the angle to turn back by is known
            angle = sign * torch.pi * z.norm(dim=-1)
            cos, sin = angle.cos(), angle.sin()
            x, y = z.unbind(dim=-1)
            return torch.stack([cos * x - sin * y, sin * x + cos * y], dim=-1)
        if self.name == "banana":
            x, y = z.unbind(dim=-1)
            return torch.stack([x, y + sign * x.square()], dim=-1)
        if self.name == "sinusoid":
            x, y = z.unbind(dim=-1)
            return torch.stack([x + sign * (1.5 * y).sin(), y], dim=-1)
        halves = list(z.chunk(2, dim=-1))
        order = range(self.layers)
        for layer in reversed(order) if inverse else order:
            by, moved = layer % 2, 1 - layer % 2  # the first layer moves the second half
            if self.name == "coupling":
                shift = (halves[by] @ self._weight[:, layer].to(z)).tanh()
                halves[moved] = halves[moved] + sign * shift
            else:
                hidden = (halves[by] @ self._first[:, layer].to(z)).tanh()
                stretch, shift = (hidden @ self._second[:, layer].to(z)).chunk(2, dim=-1)
                stretch = MOST_STRETCH * stretch.tanh()
                if inverse:
                    halves[moved] = (halves[moved] - shift) * (-stretch).exp()
                else:
                    halves[moved] = halves[moved] * stretch.exp() + shift
        return torch.cat(halves, dim=-1)


@lru_cache(maxsize=32)
def mixings_of(of: tuple[Mixing, ...], dim: int) -> Mixings:
    """`Mixings`, made once: a training asks for the same at every step."""
    return Mixings(of, dim)


def _coupling_weights(mixing: Mixing, dim: int) -> torch.Tensor:
    """scale x orthogonal, uniform over the orthogonal group, float32 (L, N/2, N/2)."""
    rng = np.random.default_rng(np.random.SeedSequence(mixing.seed, spawn_key=(1, dim)))
    half = dim // 2
    made = []
    for _ in range(mixing.layers or 0):
        q, r = np.linalg.qr(rng.normal(size=(half, half)))
        made.append(mixing.scale * q * np.sign(np.diag(r)))
    return torch.from_numpy(np.stack(made)).float()


def _realnvp_weights(mixing: Mixing, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """First (L, N/2, hidden) and second (L, hidden, N) layers of the networks of s and t."""
    rng = np.random.default_rng(np.random.SeedSequence(mixing.seed, spawn_key=(2, dim)))
    half, layers = dim // 2, mixing.layers or 0
    hidden = max(REALNVP_HIDDEN, half)
    first = mixing.scale * rng.normal(size=(layers, half, hidden)) / half**0.5
    second = rng.normal(size=(layers, hidden, dim)) / hidden**0.5
    return torch.from_numpy(first).float(), torch.from_numpy(second).float()
