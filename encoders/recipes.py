"""Recipes: everything that decides what a training gives, and nothing else (no logging, no paths)."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from encoders.cnn import Trunk
from encoders.encoder import canonical_json
from hardware.errors import InputError
from hardware.schema import parse_model

ImageSize = Annotated[int, Field(ge=16, le=512)]


class _Recipe(BaseModel):
    """What all recipes share."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    views: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Views in order; None takes those that the study, or else the recording, names."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)

    @model_validator(mode="after")
    def _views_differ(self) -> _Recipe:
        if self.views and len(set(self.views)) != len(self.views):
            raise ValueError(f"a view is named twice: {', '.join(self.views)}")
        return self


class CnnRecipe(_Recipe):
    """The theorem's own loss on pairs of frames: L = lam * regulariser + (1 - lam) * alignment."""

    kind: Literal["cnn"] = "cnn"
    image_size: ImageSize = 64
    """Side of the square that frames are resized to, in pixels; the paper's network reads 64."""
    latent_dim: int = Field(default=6, ge=1, le=4096)
    """The theorem needs as many dimensions as the world has; 6 is the arm's number of joints."""
    trunk: Trunk = "own"
    objective: Literal["sigreg", "whitening"] = "sigreg"
    lam: float = Field(default=0.1, ge=0.0, le=1.0)
    slices: int = Field(default=256, ge=1, le=65536)
    pairs: Literal["auto", "stride", "knots"] = "auto"
    """`knots`: frames at consecutive knots of a walk; `stride`: `stride_s` apart; `auto`: knots on walks."""
    stride_s: float = Field(default=0.6, gt=0.0, le=3600.0)
    steps: int = Field(default=600, ge=1, le=10_000_000)
    batch_size: int = Field(default=64, ge=2, le=65536)
    """Pairs a step; each pair is two frames of every view."""
    learning_rate: float = Field(default=3e-3, gt=0.0, allow_inf_nan=False)
    """At the start; a cosine takes it to zero at the last step."""
    weight_decay: float = Field(default=1e-4, ge=0.0, allow_inf_nan=False)
    grad_clip: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)
    max_frames: int | None = Field(default=None, ge=2)
    """Most distinct frames used (equal-frames comparisons); pairs are thinned evenly over time."""


class PixelsRecipe(_Recipe):
    """The raw-pixel baseline: principal components of small frames."""

    kind: Literal["pixels"] = "pixels"
    image_size: Annotated[int, Field(ge=1, le=64)] = 32
    components: int = Field(default=64, ge=1, le=4096)
    max_frames: int = Field(default=2048, ge=2, le=16384)
    """Most frames the components are fitted on, evenly spaced over the training episodes."""


class UntrainedRecipe(_Recipe):
    """The control: an architecture as it stands at step 0 of a training with this seed."""

    kind: Literal["untrained"] = "untrained"
    of: Literal["cnn"] = "cnn"
    image_size: ImageSize = 64
    latent_dim: int = Field(default=6, ge=1, le=4096)
    trunk: Trunk = "own"
    max_frames: int = Field(default=2048, ge=2)
    """Most training frames on which the input and batch-norm statistics are measured."""


Recipe = CnnRecipe | PixelsRecipe | UntrainedRecipe
RECIPES: dict[str, type[BaseModel]] = {"cnn": CnnRecipe, "pixels": PixelsRecipe, "untrained": UntrainedRecipe}


def parse_recipe(data: Mapping[str, Any] | Recipe, where: object = "recipe") -> Recipe:
    """Check a recipe; InputError names an unknown kind or key and the nearest valid one."""
    if isinstance(data, _Recipe):
        return data
    if not isinstance(data, Mapping):
        raise InputError(
            where, f"is {type(data).__name__}, expected a mapping", "write `kind: cnn` and its settings"
        )
    kind = data.get("kind")
    if kind not in RECIPES:
        near = difflib.get_close_matches(str(kind), RECIPES, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else f"known kinds: {', '.join(RECIPES)}"
        raise InputError(where, f"unknown kind {kind!r}" if kind else "has no kind", remedy)
    return parse_model(RECIPES[kind], dict(data), where)


def recipe_sha256(recipe: Mapping[str, Any] | Recipe) -> str:
    """SHA-256 of a recipe with its defaults filled in: what a freeze binds before anything is trained."""
    return hashlib.sha256(canonical_json(parse_recipe(recipe).model_dump(mode="json"))).hexdigest()


def seeded(seed: int, *stream: int) -> torch.Generator:
    """A torch generator of its own for each consumer of a recipe's seed.

    Streams: (0,) initial weights, (1, epoch) order of the pairs, (2, step) directions of a step. They
    depend on the step alone and not on what was drawn before, so resuming and logging cannot change what is
    trained.
    """
    state = np.random.SeedSequence(seed, spawn_key=stream).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) & 0x7FFF_FFFF_FFFF_FFFF)


def untrained_twin(recipe: CnnRecipe) -> UntrainedRecipe:
    """The control that belongs to a `cnn` recipe: same views, architecture and seed."""
    return UntrainedRecipe(
        views=recipe.views,
        seed=recipe.seed,
        image_size=recipe.image_size,
        latent_dim=recipe.latent_dim,
        trunk=recipe.trunk,
    )
