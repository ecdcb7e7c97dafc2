"""The untrained control: a network with its initial weights, as it stands at step 0 of a training.

Batch norm makes "untrained" ambiguous. With its buffers at mean 0 and variance 1 the default initialisation
shrinks the signal layer by layer until GELU is all but linear: a weaker network than the one training starts
from. Measured on training frames (no label, no gradient), the buffers give that network exactly, which is the
twin a trained encoder has to beat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from encoders.checkpoints import TrainedOn
from encoders.cnn import Cnn, CnnArchitecture, CnnEncoder, CnnPreprocessing, Normaliser
from encoders.encoder import check_views
from encoders.lewm_encoder import LewmEncoder
from encoders.lewm_training import initial_lewm, latents_and_predictions
from encoders.recipes import (
    UNTRAINED,
    CnnRecipe,
    LewmRecipe,
    Recipe,
    UntrainedLewmRecipe,
    UntrainedRecipe,
    parse_recipe,
    seeded,
    untrained_twin,
)
from encoders.training_frames import (
    aligned_episodes,
    channel_statistics,
    decoded,
    sample_frames,
    trained_on,
    training_views,
)
from encoders.windows import plan_windows
from hardware.errors import InputError
from hardware.recording import Progress, Recording

CALIBRATE_AT_ONCE = 128  # frames

Batch = TypeVar("Batch")


def measured_untrained(
    recording: Recording,
    episodes: Sequence[int],
    recipe: UntrainedRecipe | UntrainedLewmRecipe,
    views: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> tuple[CnnEncoder | LewmEncoder, TrainedOn]:
    """The control of a recipe, its statistics measured on frames of the training episodes."""
    chosen = training_views(recording, recipe.views, views)
    measure = _measured_cnn if isinstance(recipe, UntrainedRecipe) else _measured_lewm
    return measure(recording, episodes, recipe, chosen, progress)  # type: ignore[arg-type]


def _measured_cnn(
    recording: Recording,
    episodes: Sequence[int],
    recipe: UntrainedRecipe,
    views: tuple[str, ...],
    progress: Progress | None,
) -> tuple[CnnEncoder, TrainedOn]:
    aligned = aligned_episodes(recording, views, episodes)
    frames = sample_frames(aligned, recipe.image_size, recipe.max_frames, progress)
    encoder, normalise = _initial_cnn(recipe, views, channel_statistics(frames))

    def forward(part: slice) -> None:
        encoder.network(normalise(torch.from_numpy(np.ascontiguousarray(frames[part]))))

    calibrate_batch_norm(encoder.network, whole_batches(len(frames), CALIBRATE_AT_ONCE), forward)
    return encoder, trained_on(recording, aligned, len(frames))


def _measured_lewm(
    recording: Recording,
    episodes: Sequence[int],
    recipe: UntrainedLewmRecipe,
    views: tuple[str, ...],
    progress: Progress | None,
) -> tuple[LewmEncoder, TrainedOn]:
    plan = plan_windows(recording, episodes, recipe, views)
    frames = np.concatenate(list(decoded(plan, recipe.image_size, progress)))
    encoder = initial_lewm(recipe, views, plan, "untrained:lewm")
    every = np.arange(len(plan.groups))

    def forward(part: slice) -> None:
        latents_and_predictions(encoder, frames[plan.groups[part]], plan.blocks(every[part]))

    at_once = max(1, CALIBRATE_AT_ONCE // plan.groups.shape[1])
    calibrate_batch_norm(encoder.network, whole_batches(len(every), at_once), forward)
    return encoder, trained_on(recording, plan.aligned, plan.frames, windows=len(plan.groups))


def _initial_cnn(
    recipe: UntrainedRecipe,
    views: Sequence[str],
    statistics: tuple[list[tuple[float, ...]], list[tuple[float, ...]]] | None,
) -> tuple[CnnEncoder, Normaliser]:
    """Initial weights; `statistics` are the input's mean and std, (V, 3) each, or None for 0.5 and 0.25."""
    mean, std = statistics or ([(0.5,) * 3] * len(views), [(0.25,) * 3] * len(views))
    architecture = CnnArchitecture(latent_dim=recipe.latent_dim, trunk=recipe.trunk)
    size = (recipe.image_size, recipe.image_size)
    preprocessing = CnnPreprocessing(image_size=size, mean=mean, std=std)  # type: ignore[arg-type]
    network = Cnn(len(views), recipe.latent_dim, recipe.trunk, generator=seeded(recipe.seed, 0))
    encoder = CnnEncoder(network, views, architecture, preprocessing, "untrained:cnn")
    return encoder, Normaliser(preprocessing, "cpu")


def whole_batches(count: int, size: int) -> list[slice]:
    """Whole batches only, or the one there is."""
    return [slice(start, start + size) for start in range(0, max(count - size, 0) + 1, size)]


def calibrate_batch_norm(
    network: nn.Module, batches: Iterable[Batch], forward: Callable[[Batch], object]
) -> None:
    """Set batch-norm buffers to the plain average of their batch statistics; nothing else trains, or drops
    out.

    Parameters
    ----------
    forward : sends one of `batches` through the network.
    """
    norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    network.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a cumulative average instead of an exponential one
        norm.train()
    with torch.no_grad():
        for batch in batches:
            forward(batch)
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum
    network.eval()


def untrained_encoder(
    of: str,
    recipe: Mapping[str, Any] | Recipe | None,
    views: Sequence[str] | None,
    recording: Recording | None,
    episodes: Sequence[int] | None,
    device: torch.device | str = "cpu",
) -> CnnEncoder | LewmEncoder:
    """What `untrained:cnn` and `untrained:lewm` mean; see `load_encoder`."""
    where = f"encoder 'untrained:{of}'"
    if of not in UNTRAINED:
        known = " or ".join(f"untrained:{kind}" for kind in UNTRAINED)
        raise InputError(where, "is not known", f"write {known}")
    parsed = parse_recipe(recipe if recipe is not None else {"kind": "untrained", "of": of})
    control = untrained_twin(parsed) if isinstance(parsed, CnnRecipe | LewmRecipe) else parsed
    if not isinstance(control, UntrainedRecipe | UntrainedLewmRecipe) or control.of != of:
        raise InputError(where, f"its recipe is of kind {parsed.kind!r}", f"give a {of} recipe")
    if recording is not None:
        encoder, _ = measured_untrained(recording, episodes or (), control, views)
        return encoder.to(device)
    named = check_views(views or control.views, where)
    if isinstance(control, UntrainedLewmRecipe):
        return initial_lewm(control, named, None, "untrained:lewm", device)
    return _initial_cnn(control, named, None)[0].to(device)
