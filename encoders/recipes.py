"""Recipes: everything that decides what a training gives, and nothing else (no logging, no paths)."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from encoders.cnn import Trunk
from encoders.encoder import canonical_json
from encoders.lewm import LewmArchitecture
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


class _LewmSizes(_Recipe):
    """Sizes of a LeWM, whose defaults are the published ones; what each means: `encoders.lewm`."""

    image_size: int = 224
    patch_size: int = 14
    vit_width: int = 192
    vit_depth: int = 12
    vit_heads: int = 3
    latent_dim: int = 192
    projector_width: int = 2048
    history: int = 3
    """Latents that the predictor sees; a window of training holds these and the next one."""
    action_block: int = 5
    """Rows of a step, whose actions are laid side by side (the published frameskip)."""
    predictor_depth: int = 6
    predictor_heads: int = 16
    predictor_head_dim: int = 64
    predictor_mlp: int = 2048
    dropout: float = 0.1

    @model_validator(mode="after")
    def _sizes_fit(self) -> _LewmSizes:
        try:
            self.architecture(action_dim=1)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            message = first["msg"].removeprefix("Value error, ")
            raise ValueError(f"{field}: {message}" if field else message) from None
        return self

    @property
    def window_rows(self) -> int:
        """Rows from a window's first frame to its last."""
        return self.history * self.action_block + 1

    def architecture(self, action_dim: int) -> LewmArchitecture:
        """The network of these sizes for actions of `action_dim` numbers."""
        names = LewmArchitecture.model_fields.keys() - {"name", "action_dim"}
        return LewmArchitecture(action_dim=action_dim, **{name: getattr(self, name) for name in names})


class LewmRecipe(_LewmSizes):
    """LeWM (arXiv 2603.19312): L = prediction + lam * SIGReg, on windows of frames and actions.

    Defaults are the published ones, but for `steps`: published are ten epochs.
    """

    kind: Literal["lewm"] = "lewm"
    lam: float = Field(default=0.09, ge=0.0, le=1e6, allow_inf_nan=False)
    slices: int = Field(default=1024, ge=1, le=65536)
    steps: int = Field(default=20_000, ge=1, le=10_000_000)
    batch_size: int = Field(default=128, ge=2, le=65536)
    """Windows a step; each is `history` + 1 frames of every view."""
    learning_rate: float = Field(default=5e-5, gt=0.0, allow_inf_nan=False)
    """After the warm-up; a cosine takes it to zero at the last step."""
    warmup: float = Field(default=0.01, ge=0.0, lt=1.0)
    """Share of the steps in which the learning rate rises linearly."""
    weight_decay: float = Field(default=1e-3, ge=0.0, allow_inf_nan=False)
    grad_clip: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """`auto`: bf16 products on CUDA devices that have them, else fp32; weights and losses are fp32 always."""
    max_frames: int | None = Field(default=None, ge=2)
    """Most distinct frames used (equal-frames comparisons); windows are thinned evenly over time."""


class LewmSmallRecipe(LewmRecipe):
    """The same for laptops and the Jetson: small frames, a small network, a higher learning rate."""

    kind: Literal["lewm-small"] = "lewm-small"  # type: ignore[assignment]
    image_size: int = 64
    patch_size: int = 8
    vit_width: int = 48
    vit_depth: int = 2
    vit_heads: int = 2
    latent_dim: int = 64
    projector_width: int = 256
    predictor_depth: int = 2
    predictor_heads: int = 4
    predictor_head_dim: int = 16
    predictor_mlp: int = 128
    slices: int = Field(default=256, ge=1, le=65536)
    steps: int = Field(default=1100, ge=1, le=10_000_000)
    batch_size: int = Field(default=32, ge=2, le=65536)
    learning_rate: float = Field(default=2e-3, gt=0.0, allow_inf_nan=False)


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


class UntrainedLewmRecipe(_LewmSizes):
    """The control of a LeWM: its network as it stands at step 0 of a training with this seed."""

    kind: Literal["untrained"] = "untrained"
    of: Literal["lewm"] = "lewm"
    max_frames: int = Field(default=1024, ge=2, le=16384)
    """Most training frames on which the batch-norm statistics are measured."""


Recipe = CnnRecipe | LewmRecipe | PixelsRecipe | UntrainedRecipe | UntrainedLewmRecipe
RECIPES: dict[str, type[BaseModel]] = {
    "cnn": CnnRecipe,
    "lewm": LewmRecipe,
    "lewm-small": LewmSmallRecipe,
    "pixels": PixelsRecipe,
    "untrained": UntrainedRecipe,
}
UNTRAINED: dict[str, type[BaseModel]] = {"cnn": UntrainedRecipe, "lewm": UntrainedLewmRecipe}


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
    model = RECIPES[kind]
    if kind == "untrained":
        of = data.get("of", "cnn")
        if of not in UNTRAINED:
            raise InputError(where, f"there is no untrained {of!r}", f"write of: {' or '.join(UNTRAINED)}")
        model = UNTRAINED[of]
    return parse_model(model, dict(data), where)


def recipe_sha256(recipe: Mapping[str, Any] | Recipe) -> str:
    """SHA-256 of a recipe with its defaults filled in: what a freeze binds before anything is trained."""
    return hashlib.sha256(canonical_json(parse_recipe(recipe).model_dump(mode="json"))).hexdigest()


def seeded(seed: int, *stream: int) -> torch.Generator:
    """A torch generator of its own for each consumer of a recipe's seed.

    Streams: (0,) initial weights, (1, epoch) order of the pairs or windows, (2, step) directions of a step,
    (3, step) its dropout. They depend on the step alone and not on what was drawn before, so resuming and
    logging cannot change what is trained.
    """
    return torch.Generator().manual_seed(stream_seed(seed, *stream))


def stream_seed(seed: int, *stream: int) -> int:
    """The seed of such a stream, for what takes no generator (dropout)."""
    state = np.random.SeedSequence(seed, spawn_key=stream).generate_state(1, np.uint64)[0]
    return int(state) & 0x7FFF_FFFF_FFFF_FFFF


def untrained_twin(recipe: CnnRecipe | LewmRecipe) -> UntrainedRecipe | UntrainedLewmRecipe:
    """The control that belongs to a trained encoder: same views, architecture and seed."""
    if isinstance(recipe, LewmRecipe):
        shared = _LewmSizes.model_fields
        return UntrainedLewmRecipe(**{name: getattr(recipe, name) for name in shared})
    return UntrainedRecipe(
        views=recipe.views,
        seed=recipe.seed,
        image_size=recipe.image_size,
        latent_dim=recipe.latent_dim,
        trunk=recipe.trunk,
    )
