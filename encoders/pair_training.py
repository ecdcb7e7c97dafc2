"""The paper's CNN on pairs of single images, without a recording around them: DM Control Reacher.

    L = lam * SIGReg(z, z') + (1 - lam) * alignment(z, z')

As the published code trains it (arXiv 2605.26379): both members of a batch go through the network together
and are, for SIGReg, one sample of twice the batch; alignment is a quarter of the mean. Images stay uint8 and
are normalised batch by batch, channels last; each is kept once, however many pairs it is a member of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from pydantic import Field

from encoders import run_losses
from encoders.checkpoints import CARD, load_folder, read_card, save_encoder
from encoders.cnn import Cnn, CnnArchitecture, CnnEncoder, CnnPreprocessing, Normaliser
from encoders.encoder import default_device
from encoders.losses import random_directions
from encoders.recipes import CnnRecipe, recipe_sha256, seeded
from encoders.training_frames import channel_statistics
from encoders.training_loop import Reporting, StepLoss, batch_of_step, run_steps
from encoders.training_state import CHECKPOINT
from encoders.untrained import CALIBRATE_AT_ONCE, calibrate_batch_norm, whole_batches
from hardware.disk import disk_errors
from hardware.errors import InputError

VIEW = "camera"
UNTRAINED_IMAGES = 4096
"""Most images on which the batch norm of an untrained network is measured."""


class PairRecipe(CnnRecipe):
    """The published training of Reacher; the defaults are the paper's, for 100,000 pairs."""

    latent_dim: int = Field(default=2, ge=1, le=4096)
    lam: float = Field(default=5e-2, ge=0.0, le=1.0)
    batch_size: int = Field(default=256, ge=2, le=65536)
    steps: int = Field(default=39_000, ge=0, le=10_000_000)
    """100 epochs of 390 whole batches; 0 is the untrained network, its batch norm measured on the images."""
    batch_norm: bool = Field(default=True, exclude_if=bool)  # hashes older than the field stay as they are
    precision: Literal["fp32", "bf16"] = "fp32"
    """Of products and convolutions; weights and losses are fp32 always."""


class Images(Protocol):
    """Images that pairs are made of: `images[indices]` is uint8 (n, H, W, 3)."""

    def __getitem__(self, indices: np.ndarray, /) -> np.ndarray: ...
    def __len__(self) -> int: ...


def train_on_pairs(
    images: Images,
    pairs: np.ndarray,
    recipe: PairRecipe,
    to: str | Path,
    *,
    data: str,
    device: torch.device | str | None = None,
    reporting: Reporting | None = None,
) -> CnnEncoder:
    """Train the CNN; the last model is the result, as published.

    A run that was killed goes on from its last checkpoint; one that is finished is loaded.

    Parameters
    ----------
    images : all images, each once; anything that gives uint8 (n, H, W, 3) for indices, such as an array.
    pairs : int (P, 2), indices of both members.
    to : folder of the encoder, of its checkpoint and log.
    data : hash of what the pairs are; the folder of another training is refused.
    device : where to compute; None is CUDA where there is one.
    reporting : progress, and how often a checkpoint is written.

    Raises
    ------
    InputError : fewer pairs than a batch, a folder that holds another training, a loss that is not finite.
    """
    to = Path(to)
    device = default_device() if device is None else torch.device(device)
    if len(pairs) < recipe.batch_size:
        raise InputError(
            "pairs", f"are {len(pairs)}, fewer than a batch of {recipe.batch_size}", "make more of them"
        )
    run = f"{recipe_sha256(recipe)} {hashlib.sha256(data.encode() + pairs.tobytes()).hexdigest()}"
    done = _finished(to, run, device)
    if done is not None:
        return done
    with disk_errors(to):
        to.mkdir(parents=True, exist_ok=True)
    mean, std = _statistics(images, np.unique(pairs))
    height, width = images[pairs[:1, 0]].shape[1:3]
    preprocessing = CnnPreprocessing(image_size=(height, width), mean=mean, std=std)
    normalise = Normaliser(preprocessing, device)
    network = Cnn(1, recipe.latent_dim, batch_norm=recipe.batch_norm, generator=seeded(recipe.seed, 0))
    network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def loss_of(step: int) -> StepLoss:
        members = pairs[batch_of_step(step, len(pairs), recipe.batch_size, recipe.seed)].T.reshape(-1)
        batch = torch.from_numpy(images[members]).to(device)[:, None]  # (2 B, 1, H, W, 3)
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
            z = network(normalise(batch)).float()
        both = z.reshape(1, 2, recipe.batch_size, recipe.latent_dim)  # one run, both members
        aligned = run_losses.alignment(both, "published").squeeze()
        if recipe.objective == "sigreg":
            drawn = random_directions(
                recipe.latent_dim, recipe.slices, seeded(recipe.seed, 2, step), device=device
            )
            regular = run_losses.sigreg(both, drawn[None], "published").squeeze()
        else:
            regular = run_losses.whitening(both, "published").squeeze()
        total = recipe.lam * regular + (1 - recipe.lam) * aligned
        return StepLoss(total, {recipe.objective: regular, "alignment": aligned}, z)

    if recipe.steps:
        run_steps(network, recipe, loss_of, to, run, reporting or Reporting())
    else:
        members = np.unique(pairs)[:UNTRAINED_IMAGES]

        def forward(part: slice) -> None:
            network(normalise(torch.from_numpy(images[members[part]]).to(device)[:, None]))

        calibrate_batch_norm(network, whole_batches(len(members), CALIBRATE_AT_ONCE), forward)
    architecture = CnnArchitecture(latent_dim=recipe.latent_dim, batch_norm=recipe.batch_norm)
    encoder = CnnEncoder(network, [VIEW], architecture, preprocessing, "cnn", device)
    save_encoder(to, encoder, recipe=recipe, source={"pairs": run})
    (to / CHECKPOINT).unlink(missing_ok=True)
    return encoder


def _finished(to: Path, run: str, device: torch.device) -> CnnEncoder | None:
    if not (to / CARD).is_file():
        return None
    if (read_card(to).source or {}).get("pairs") != run:
        raise InputError(to, "holds another encoder already", "choose another folder, or remove this one")
    encoder = load_folder(to, device)
    assert isinstance(encoder, CnnEncoder)
    return encoder


def _statistics(
    images: Images, used: np.ndarray
) -> tuple[list[tuple[float, float, float]], list[tuple[float, float, float]]]:
    """Mean and standard deviation of each channel over the images used, (1, 3) each, in bounded memory."""
    return channel_statistics(_AsFrames(images, used))  # type: ignore[arg-type, return-value]


class _AsFrames(Sequence[np.ndarray]):
    """Some images as frames (n, 1, H, W, 3) of one view, made a slice at a time."""

    def __init__(self, images: Images, used: np.ndarray) -> None:
        self.images, self.used = images, used
        self.shape = (len(used), 1, *images[used[:1]].shape[1:])

    def __len__(self) -> int:
        return len(self.used)

    def __getitem__(self, part: slice) -> np.ndarray:  # type: ignore[override]
        return self.images[self.used[part]][:, None]
