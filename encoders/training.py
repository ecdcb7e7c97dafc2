"""Training encoders from recordings: the theorem's own loss on pairs of frames, without actions.

    L = lam * SIGReg(z) + (1 - lam) * alignment(z, z'),    z = cnn(frames at t), z' = cnn(frames at its
    partner)

One file, read from top to bottom: the loop is `_train_cnn`. Command line:

    jointprobe train RECORDING --kind cnn --to FOLDER
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import nn

from encoders import losses
from encoders.checkpoints import (
    CARD,
    TrainedOn,
    load_folder,
    read_card,
    read_tensors,
    save_encoder,
)
from encoders.cnn import Cnn, CnnArchitecture, CnnEncoder, CnnPreprocessing, Normaliser
from encoders.encoder import Encoder, default_device
from encoders.pixels import PixelsEncoder, principal_components
from encoders.recipes import (
    CnnRecipe,
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
from encoders.untrained import measured_untrained
from hardware.disk import disk_errors, write_atomically
from hardware.errors import InputError
from hardware.recording import Progress, Recording

CHECKPOINT = "checkpoint.safetensors"
LOG = "training.jsonl"


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

    Raises
    ------
    InputError
        no pairs, a loss that is not finite, a folder that holds something else, a full disk.
    """
    recipe = parse_recipe(recipe)
    to = Path(to)
    chosen = training_views(recording, recipe.views, views)
    recipe = recipe.model_copy(update={"views": chosen})  # what was trained is written down in full
    device = default_device() if device is None else torch.device(device)
    done = _finished(to, recipe, recording, episodes, device)
    if done is not None:
        return done
    if isinstance(recipe, CnnRecipe):
        return _train_cnn(recording, episodes, recipe, to, progress, device, checkpoint_every, log_every)
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
    progress: Progress | None,
    device: torch.device,
    checkpoint_every: int,
    log_every: int,
) -> Encoder:
    views = tuple(recipe.views or ())
    plan = plan_pairs(recording, episodes, recipe, views)
    frames = cached_frames(plan, recipe.image_size, to, progress)  # uint8 (n, V, S, S, 3), memory-mapped

    mean, std = channel_statistics(frames)
    size = (recipe.image_size, recipe.image_size)
    preprocessing = CnnPreprocessing(image_size=size, mean=mean, std=std)  # type: ignore[arg-type]
    normalise = Normaliser(preprocessing, device)
    network = Cnn(len(views), recipe.latent_dim, recipe.trunk, generator=seeded(recipe.seed, 0))
    network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.train()
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
    )

    state = _Checkpoint(to / CHECKPOINT, run=f"{recipe_sha256(recipe)} {plan.key(recipe.image_size)}")
    start = state.restore(network, optimiser)
    log = _Log(to / LOG, keep_steps_to=start)
    for step in range(start, recipe.steps):
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * step / recipe.steps))

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
        loss = recipe.lam * regular + (1 - recipe.lam) * aligned

        optimiser.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(network.parameters(), recipe.grad_clip)
        terms = {"loss": loss.item(), recipe.objective: regular.item(), "alignment": aligned.item()}
        if not (math.isfinite(terms["loss"]) and math.isfinite(norm.item())):
            raise InputError(
                f"training in {to}, step {step}",
                f"the loss is not finite any more ({_shown(terms)}, gradient norm {norm.item():.3g})",
                f"lower learning_rate (now {recipe.learning_rate}) or lam (now {recipe.lam})",
            )
        optimiser.step()

        finished = step + 1
        if finished % log_every == 0 or finished == recipe.steps:
            log.write({"step": finished, **terms, "learning_rate": optimiser.param_groups[0]["lr"]})
        if finished % checkpoint_every == 0 and finished < recipe.steps:
            state.save(network, optimiser, finished)
        if progress:
            progress(finished, recipe.steps, f"training cnn, {_shown(terms)}")
    log.close()

    architecture = CnnArchitecture(latent_dim=recipe.latent_dim, trunk=recipe.trunk)
    encoder = CnnEncoder(network, views, architecture, preprocessing, "cnn", device)
    fitted_on = trained_on(recording, plan.aligned, plan.frames, len(plan.pairs))
    save_encoder(to, encoder, recipe=recipe, trained_on=fitted_on)
    del frames
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


def batch_of_step(step: int, pairs: int, batch_size: int, seed: int) -> np.ndarray:
    """Numbers of one step's pairs, int64 (batch_size,): each epoch has a new order, less its remainder."""
    a_epoch = pairs // batch_size
    epoch, position = divmod(step, a_epoch)
    order = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1, epoch))).permutation(pairs)
    return order[position * batch_size : (position + 1) * batch_size]


def _shown(terms: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in terms.items())


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


class _Checkpoint:
    """Network, optimiser and step in one safetensors file: one rename makes all of them new at once."""

    def __init__(self, path: Path, run: str) -> None:
        self.path = path
        self.run = run

    def save(self, network: nn.Module, optimiser: torch.optim.Optimizer, step: int) -> None:
        tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
        for number, state in optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{number}.{name}": value for name, value in state.items()}
        # contiguous: safetensors knows no channels-last memory; the values are the same
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        data = safetensors.torch.save(tensors, {"step": str(step), "run": self.run})
        with disk_errors(self.path):
            write_atomically(self.path, data)

    def restore(self, network: nn.Module, optimiser: torch.optim.Optimizer) -> int:
        """Load what was saved, if anything; returns the number of steps done."""
        if not self.path.is_file():
            return 0
        tensors = read_tensors(self.path)
        with safetensors.safe_open(self.path, framework="pt") as file:
            facts = file.metadata() or {}
        if facts.get("run") != self.run:
            raise InputError(
                self.path.parent,
                "holds an unfinished training with another recipe, other episodes or other frames",
                "choose another folder, or remove this one",
            )
        own = network.state_dict()
        for name, value in own.items():
            value.copy_(tensors[f"network.{name}"])
        state: dict[int, dict[str, torch.Tensor]] = {}
        parameters = list(network.parameters())
        for name, tensor in tensors.items():
            if name.startswith("optimiser."):
                _, number, entry = name.split(".")
                like = parameters[int(number)]
                if tensor.shape == like.shape:  # moments live in their parameter's memory format
                    tensor = torch.empty_like(like).copy_(tensor)
                state.setdefault(int(number), {})[entry] = tensor
        optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
        return int(facts["step"])


class _Log:
    """training.jsonl: loss terms every few steps; a resumed run cuts the lines it will write again."""

    def __init__(self, path: Path, keep_steps_to: int) -> None:
        with disk_errors(path):
            kept = [line for line in _whole_lines(path) if json.loads(line)["step"] <= keep_steps_to]
            write_atomically(path, "".join(f"{line}\n" for line in kept).encode())
            self._file = path.open("a", encoding="utf-8")
        self.path = path

    def write(self, terms: Mapping[str, float]) -> None:
        with disk_errors(self.path):
            self._file.write(json.dumps(terms) + "\n")
            self._file.flush()  # so that one can watch it grow

    def close(self) -> None:
        with disk_errors(self.path):
            self._file.close()


def _whole_lines(path: Path) -> Iterator[str]:
    """Lines that end in a newline: a kill may have torn the last one."""
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield line.rstrip("\n")
