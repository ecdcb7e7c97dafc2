"""The untrained control: a network with its initial weights, as it stands at step 0 of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from encoders.checkpoints import TrainedOn
from encoders.cnn import Cnn, CnnArchitecture, CnnEncoder, CnnPreprocessing, Normaliser
from encoders.encoder import check_views
from encoders.recipes import CnnRecipe, Recipe, UntrainedRecipe, parse_recipe, seeded, untrained_twin
from encoders.training_frames import (
    aligned_episodes,
    channel_statistics,
    sample_frames,
    trained_on,
    training_views,
)
from hardware.errors import InputError
from hardware.recording import Progress, Recording

CALIBRATE_AT_ONCE = 128


def untrained_cnn(
    recipe: UntrainedRecipe,
    views: Sequence[str],
    frames: np.ndarray | None,
    statistics: tuple[list[tuple[float, ...]], list[tuple[float, ...]]] | None,
    device: torch.device | str = "cpu",
) -> CnnEncoder:
    """Initial weights with input and batch-norm statistics measured on training frames.

    Batch norm makes "untrained" ambiguous. With its buffers at mean 0 and variance 1 the default
    initialisation shrinks the signal layer by layer until GELU is all but linear: a weaker network than the
    one training starts from. Measured on training frames (no label, no gradient), the buffers give that
    network exactly, which is the twin a trained encoder has to beat.

    Parameters
    ----------
    frames : uint8 (n, V, S, S, 3) of training episodes, or None to leave batch norm at identity.
    statistics : mean and std, (V, 3) each, or None for 0.5 and 0.25.
    """
    mean, std = statistics or ([(0.5,) * 3] * len(views), [(0.25,) * 3] * len(views))
    architecture = CnnArchitecture(latent_dim=recipe.latent_dim, trunk=recipe.trunk)
    size = (recipe.image_size, recipe.image_size)
    preprocessing = CnnPreprocessing(image_size=size, mean=mean, std=std)  # type: ignore[arg-type]
    network = Cnn(len(views), recipe.latent_dim, recipe.trunk, generator=seeded(recipe.seed, 0))
    if frames is not None:
        calibrate_batch_norm(network, frames, Normaliser(preprocessing, "cpu"))
    return CnnEncoder(network, views, architecture, preprocessing, "untrained:cnn", device)


def measured_untrained(
    recording: Recording,
    episodes: Sequence[int],
    recipe: UntrainedRecipe,
    views: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> tuple[CnnEncoder, TrainedOn]:
    """The control of a recipe, its statistics measured on frames of the training episodes."""
    chosen = training_views(recording, recipe.views, views)
    aligned = aligned_episodes(recording, chosen, episodes)
    frames = sample_frames(aligned, recipe.image_size, recipe.max_frames, progress)
    encoder = untrained_cnn(recipe, chosen, frames, channel_statistics(frames))
    return encoder, trained_on(recording, aligned, len(frames))


def calibrate_batch_norm(network: nn.Module, frames: np.ndarray, normalise: Normaliser) -> None:
    """Set batch-norm buffers to the plain average of their batch statistics over `frames`."""
    norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a cumulative average instead of an exponential one
    network.train()
    size = CALIBRATE_AT_ONCE
    starts = range(0, max(len(frames) - size, 0) + 1, size)  # whole batches only, or the one there is
    with torch.no_grad():
        for start in starts:
            network(normalise(torch.from_numpy(np.ascontiguousarray(frames[start : start + size]))))
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
) -> CnnEncoder:
    """What `untrained:cnn` means; see `load_encoder`."""
    if of != "cnn":
        raise InputError(f"encoder 'untrained:{of}'", "is not known", "write untrained:cnn")
    parsed = parse_recipe(recipe) if recipe is not None else UntrainedRecipe()
    if isinstance(parsed, CnnRecipe):
        parsed = untrained_twin(parsed)
    if not isinstance(parsed, UntrainedRecipe):
        raise InputError(
            "encoder 'untrained:cnn'", f"its recipe is of kind {parsed.kind!r}", "give a cnn recipe"
        )
    if recording is None:
        return untrained_cnn(
            parsed, check_views(views or parsed.views, "encoder 'untrained:cnn'"), None, None, device
        )
    encoder, _ = measured_untrained(recording, episodes or (), parsed, views)
    return encoder.to(device)
