"""Training encoders from recordings. The theorem's own loss on pairs of frames, without actions, is here:

    L = lam * SIGReg(z) + (1 - lam) * alignment(z, z'),    z = cnn(frames at t), z' = cnn(frames at its
    partner)

LeWM's is in `encoders.lewm_training`. Command line:

    jointprobe train RECORDING --kind cnn --to FOLDER
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from encoders import losses
from encoders.checkpoints import CARD, TrainedOn, load_folder, read_card, save_encoder
from encoders.cnn import Cnn, CnnArchitecture, CnnEncoder, CnnPreprocessing, Normaliser
from encoders.encoder import Encoder, default_device
from encoders.lewm_training import train_lewm
from encoders.pixels import PixelsEncoder, principal_components
from encoders.recipes import (
    CnnRecipe,
    LewmRecipe,
    PixelsRecipe,
    Recipe,
    parse_recipe,
    recipe_sha256,
    seeded,
)
from encoders.training_frames import (
    aligned_episodes,
    cache_path,
    cached_frames,
    channel_statistics,
    plan_pairs,
    sample_frames,
    trained_on,
    training_views,
)
from encoders.training_loop import Reporting, StepLoss, batch_of_step, run_steps, summary_writer
from encoders.training_state import CHECKPOINT
from encoders.untrained import measured_untrained
from hardware.errors import InputError
from hardware.recording import Progress, Recording


def train(
    recording: Recording,
    episodes: Sequence[int],
    recipe: Mapping[str, Any] | Recipe,
    to: str | Path,
    progress: Progress | None = None,
    *,
    views: Sequence[str] | None = None,
    device: torch.device | str | None = None,
    checkpoint_every: int = 100,
    log_every: int = 10,
    tensorboard: str | Path | None = None,
) -> Encoder:
    """Fit an encoder on training episodes and save it in `to`.

    A run that was killed goes on from its last checkpoint and, on the CPU, ends with the very weights of a
    run that was not; a run that is finished is loaded instead of repeated.

    Parameters
    ----------
    recording, episodes : the frames; only these episodes are ever read.
    recipe : see `encoders.recipes`.
    to : folder of the encoder; also holds the checkpoint and the frame cache while training.
    progress : called once a frame batch read, and once a step.
    views : views in order where the recipe names none; None is all of the recording's.
    device : where to compute; None is CUDA where there is one.
    checkpoint_every, log_every : steps between checkpoints and lines of training.jsonl; neither changes the
        result.
    tensorboard : folder for TensorBoard, which must be installed; training.jsonl holds the same numbers.

    Warns
    -----
    CollapseWarning
        once, when the latents collapse (`encoders.collapse`); training goes on, and its log says so too.

    Raises
    ------
    InputError
        no pairs or windows, a loss that is not finite, a folder that holds something else, a full disk.
    """
    recipe = parse_recipe(recipe)
    to = Path(to)
    chosen = training_views(recording, recipe.views, views)
    recipe = recipe.model_copy(update={"views": chosen})  # what was trained is written down in full
    device = default_device() if device is None else torch.device(device)
    done = _finished(to, recipe, recording, episodes, device)
    if done is not None:
        return done
    reporting = Reporting(
        progress, checkpoint_every, log_every, None if tensorboard is None else Path(tensorboard)
    )
    if tensorboard is not None:
        summary_writer()  # refuse before frames are read
    if isinstance(recipe, CnnRecipe):
        return _train_cnn(recording, episodes, recipe, to, device, reporting)
    if isinstance(recipe, LewmRecipe):
        return train_lewm(recording, episodes, recipe, to, device, reporting)
    encoder: Encoder
    if isinstance(recipe, PixelsRecipe):
        encoder, fitted_on = _fit_pixels(recording, episodes, recipe, chosen, progress)
    else:
        encoder, fitted_on = measured_untrained(recording, episodes, recipe, chosen, progress)
    save_encoder(to, encoder, recipe=recipe, trained_on=fitted_on)
    return load_folder(to, device)


def _train_cnn(
    recording: Recording,
    episodes: Sequence[int],
    recipe: CnnRecipe,
    to: Path,
    device: torch.device,
    reporting: Reporting,
) -> Encoder:
    views = tuple(recipe.views or ())
    plan = plan_pairs(recording, episodes, recipe, views)
    frames = cached_frames(plan, recipe.image_size, to, reporting.progress)  # uint8 (n, V, S, S, 3), mapped

    mean, std = channel_statistics(frames)
    size = (recipe.image_size, recipe.image_size)
    preprocessing = CnnPreprocessing(image_size=size, mean=mean, std=std)  # type: ignore[arg-type]
    normalise = Normaliser(preprocessing, device)
    network = Cnn(len(views), recipe.latent_dim, recipe.trunk, generator=seeded(recipe.seed, 0))
    network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def loss_of(step: int) -> StepLoss:
        pairs = plan.pairs[batch_of_step(step, len(plan.pairs), recipe.batch_size, recipe.seed)]  # (B, 2)
        # both members go through the network together, so batch norm sees one distribution: (2 B, V, S, S, 3)
        images = torch.from_numpy(frames[pairs.T.reshape(-1)]).to(device)
        z = network(normalise(images)).float()  # (2 B, D), first members first
        members = z.reshape(2, recipe.batch_size, recipe.latent_dim)
        aligned = losses.alignment(members[0], members[1])
        if recipe.objective == "sigreg":
            regular = losses.sigreg(members, slices=recipe.slices, generator=seeded(recipe.seed, 2, step))
        else:
            regular = losses.whitening(members)
        total = recipe.lam * regular + (1 - recipe.lam) * aligned
        return StepLoss(total, {recipe.objective: regular, "alignment": aligned}, z)

    run = f"{recipe_sha256(recipe)} {plan.key(recipe.image_size)}"
    run_steps(network, recipe, loss_of, to, run, reporting)

    architecture = CnnArchitecture(latent_dim=recipe.latent_dim, trunk=recipe.trunk)
    encoder = CnnEncoder(network, views, architecture, preprocessing, "cnn", device)
    fitted_on = trained_on(recording, plan.aligned, plan.frames, pairs=len(plan.pairs))
    save_encoder(to, encoder, recipe=recipe, trained_on=fitted_on)
    for leftover in (to / CHECKPOINT, cache_path(to, plan, recipe.image_size)):  # the encoder is safe now
        leftover.unlink(missing_ok=True)
    return encoder


def _fit_pixels(
    recording: Recording,
    episodes: Sequence[int],
    recipe: PixelsRecipe,
    views: tuple[str, ...],
    progress: Progress | None,
) -> tuple[PixelsEncoder, TrainedOn]:
    aligned = aligned_episodes(recording, views, episodes)
    frames = sample_frames(aligned, recipe.image_size, recipe.max_frames, progress)
    mean, components = principal_components(frames, recipe.components)
    size = (recipe.image_size, recipe.image_size)
    return PixelsEncoder(mean, components, views, size), trained_on(recording, aligned, len(frames))


def _finished(
    to: Path, recipe: Recipe, recording: Recording, episodes: Sequence[int], device: torch.device
) -> Encoder | None:
    """The encoder that `to` holds already when it is this one, else None; another one there is an error."""
    if not (to / CARD).is_file():
        return None
    card = read_card(to)
    by_index = {line.episode: line.sha256 for line in recording.manifest}
    wanted = [by_index.get(index) for index in episodes]
    if (
        card.recipe is None
        or card.trained_on is None
        or card.trained_on.episode_sha256 != wanted
        or card.recipe != recipe.model_dump(mode="json")
    ):
        raise InputError(to, "holds another encoder already", "choose another folder, or remove this one")
    return load_folder(to, device)
