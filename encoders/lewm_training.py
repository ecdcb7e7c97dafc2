"""Training a LeWM (arXiv 2603.19312) on windows of frames and actions, by the published loss:

    L = mean (predicted z_{t+1} - z_{t+1})^2 + lam * SIGReg(z)

The target is the encoder's own latent and is not detached: alone, the first term would have all latents be
the same, and SIGReg, one statistic a time step, holds them apart. Command line:

    jointprobe train RECORDING --kind lewm --to FOLDER
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from encoders import losses
from encoders.checkpoints import save_encoder
from encoders.lewm import Lewm
from encoders.lewm_encoder import LewmEncoder, LewmPreprocessing
from encoders.recipes import LewmRecipe, UntrainedLewmRecipe, recipe_sha256, seeded, stream_seed
from encoders.training_frames import cache_path, cached_frames, trained_on
from encoders.training_loop import Reporting, StepLoss, batch_of_step, run_steps
from encoders.training_state import CHECKPOINT
from encoders.windows import WindowPlan, plan_windows
from hardware.recording import Recording


def train_lewm(
    recording: Recording,
    episodes: Sequence[int],
    recipe: LewmRecipe,
    to: Path,
    device: torch.device,
    reporting: Reporting,
) -> LewmEncoder:
    """Fit a LeWM on training episodes and save it in `to`; see `encoders.training.train`."""
    views = tuple(recipe.views or ())
    plan = plan_windows(recording, episodes, recipe, views)
    frames = cached_frames(plan, recipe.image_size, to, reporting.progress)  # uint8 (n, V, S, S, 3), mapped
    encoder = initial_lewm(recipe, views, plan, "lewm", device)
    bf16 = uses_bf16(recipe, device)

    def loss_of(step: int) -> StepLoss:
        chosen = batch_of_step(step, len(plan.groups), recipe.batch_size, recipe.seed)
        with draws_of_step(recipe.seed, step, device), torch.autocast(device.type, torch.bfloat16, bf16):
            z, predicted = latents_and_predictions(encoder, frames[plan.groups[chosen]], plan.blocks(chosen))
        z, predicted = z.float(), predicted.float()  # (B, T, D) and (B, T - 1, D)
        prediction = (predicted - z[:, 1:]).square().mean()
        regular = losses.sigreg(
            z.transpose(0, 1), slices=recipe.slices, generator=seeded(recipe.seed, 2, step)
        )
        total = prediction + recipe.lam * regular
        return StepLoss(total, {"prediction": prediction, "sigreg": regular}, z.flatten(0, 1))

    run = f"{recipe_sha256(recipe)} {plan.key(recipe.image_size)}"
    run_steps(encoder.network, recipe, loss_of, to, run, reporting)
    fitted_on = trained_on(recording, plan.aligned, plan.frames, windows=len(plan.groups))
    save_encoder(to, encoder, recipe=recipe, trained_on=fitted_on)
    for leftover in (to / CHECKPOINT, cache_path(to, plan, recipe.image_size)):  # the encoder is safe now
        leftover.unlink(missing_ok=True)
    return encoder


def initial_lewm(
    recipe: LewmRecipe | UntrainedLewmRecipe,
    views: Sequence[str],
    plan: WindowPlan | None,
    kind: str,
    device: torch.device | str = "cpu",
) -> LewmEncoder:
    """A LeWM with its initial weights, which standardises actions as the plan's; without a plan it takes one
    number a row and predicts nothing.
    """
    preprocessing = LewmPreprocessing(image_size=(recipe.image_size, recipe.image_size))
    if plan is not None:
        measured = {"action_mean": plan.action_mean, "action_std": plan.action_std, "row_s": plan.row_s}
        preprocessing = preprocessing.model_copy(update=measured)
    architecture = recipe.architecture(action_dim=1 if plan is None else len(plan.action_mean))
    network = Lewm(len(views), architecture, generator=seeded(recipe.seed, 0))
    return LewmEncoder(network, views, architecture, preprocessing, kind, device=device)


def latents_and_predictions(
    encoder: LewmEncoder, frames: np.ndarray, actions: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents of windows and what is predicted for all but the first of each.

    All frames go through the network together, so batch norm sees one distribution.

    Parameters
    ----------
    frames : uint8 (B, T, V, S, S, 3).
    actions : float32 (B, T - 1, block * A), standardised.

    Returns
    -------
    (B, T, D) and (B, T - 1, D); place t of the second predicts place t + 1 of the first.
    """
    images = encoder.images(frames.reshape(-1, *frames.shape[2:]))  # (B T, V, 3, S, S)
    z = encoder.network(images).unflatten(0, frames.shape[:2])
    sent = torch.from_numpy(actions).to(encoder.device)
    return z, encoder.network.predict(z[:, :-1], sent)


def uses_bf16(recipe: LewmRecipe, device: torch.device) -> bool:
    """Whether products are computed in bf16: where the recipe says so, or leaves it to a device that can."""
    if recipe.precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return recipe.precision == "bf16"


@contextmanager
def draws_of_step(seed: int, step: int, device: torch.device) -> Iterator[None]:
    """What is drawn from torch's global generator (dropout) depends on the seed and the step alone, and the
    generator is afterwards what it was before.
    """
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        drawn = stream_seed(seed, 3, step)
        torch.default_generator.manual_seed(drawn)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(drawn)
        yield
