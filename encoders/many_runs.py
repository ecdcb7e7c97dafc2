"""Training of many small encoders at once: a grid over lambda, data and seed as one batched model.

    L_r = lam_r * regulariser(z_r) + (1 - lam_r) * alignment(z_r, z'_r)    for every run r    (or InfoNCE)

Small networks leave a computer waiting: a step of one run is short products between long queues of small
operations. Here every parameter has a leading axis of runs and each product is one for all of them; a
sequential training is the same function with one run. A run is alone with its seed: its initial weights and
directions come from it and from the step, so it ends with the same weights in any grid, in any order. (Single
and batched products round differently: equal to 1e-9 over 50 steps in float64, later within what
rounding grows to.) One file, read from top to bottom: the loop is `_train_group`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Generic, Literal, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from encoders import run_losses
from encoders.encoder import canonical_json, default_device
from encoders.matched import MatchedArchitecture, MatchedEncoders
from encoders.mlp import MlpArchitecture, Mlps
from encoders.recipes import seeded
from encoders.run_losses import Normalisation
from encoders.run_networks import RunNetworks
from encoders.training_state import Checkpoint
from hardware.disk import disk_errors
from hardware.errors import InputError
from hardware.recording import Progress

AT_ONCE = 8
"""About the fastest on two cores (4, 21 and 63 runs took 4 to 34 % longer); on a GPU try many more."""
TERMS = ("loss", "regulariser", "alignment")
NEVER = -1

Network = Annotated[MlpArchitecture | MatchedArchitecture, Field(discriminator="name")]
"""What the networks of a grid are."""


class RunSpec(BaseModel):
    """What one run of a grid has for itself. A subclass adds what its data depends on (rho, a mixing ...).

    All fields together identify the run: two runs of the same fields, recipe and data are the same training.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(ge=0, lt=1 << 63)
    lam: float | None = Field(default=None, ge=0.0, le=1.0)
    """Weight of the regulariser; InfoNCE has none."""


class ManyRunsRecipe(BaseModel):
    """What all runs of a grid share. The defaults are the paper's 2-D experiments with SIGReg."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    network: Network = MlpArchitecture()
    objective: Literal["sigreg", "whitening", "infonce"] = "sigreg"
    normalisation: Normalisation = "members"
    """Of SIGReg, whitening and alignment; see `encoders.run_losses`. A lambda belongs to one of them."""
    slices: int = Field(default=256, ge=1, le=65536)
    sigma: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)
    """Width of InfoNCE's kernel."""
    steps: int = Field(default=20_000, ge=1, le=100_000_000)
    learning_rate: float = Field(default=3e-3, gt=0.0, allow_inf_nan=False)
    hold: float = Field(default=0.5, ge=0.0, le=1.0)
    """Share of the steps at the full learning rate; a cosine takes it to zero over the rest."""
    weight_decay: float = Field(default=0.01, ge=0.0, allow_inf_nan=False)
    """The paper says 0; its code leaves torch's default, which is this."""
    grad_clip: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    """Most that a run's gradient norm may be; each run is clipped by itself."""
    dtype: Literal["float32", "float64"] = "float32"
    log_every: int = Field(default=100, ge=1)
    """Steps between the losses that are kept; changes nothing else."""


Run = TypeVar("Run", bound=RunSpec)
Pairs = Callable[[Sequence[Run], int], tuple[torch.Tensor, torch.Tensor]]
"""pairs(runs, step) -> first, second: observations (len(runs), N, d) each; row n of both is one positive pair
of that run. What a run is given must depend on the run and the step alone, not on its neighbours or on what
was asked before: then grids, groups and resumed trainings are all the same training."""


@dataclass(frozen=True)
class ManyRuns(Generic[Run]):
    """A trained grid.

    Attributes
    ----------
    runs, recipe : what was trained.
    networks : all runs as one network with a leading axis R, in evaluation mode.
    steps : int64 (L,), finished steps at which losses were kept; the last is the last step.
    history : float64 (L, 3, R): loss, regulariser and alignment of each run's batch at those steps.
    diverged_at : int64 (R,), step whose loss was the first that is not finite, -1 where there is none. Such a
        run's latents are NaN; the others know nothing of it.
    """

    runs: tuple[Run, ...]
    recipe: ManyRunsRecipe
    networks: RunNetworks
    steps: np.ndarray
    history: np.ndarray
    diverged_at: np.ndarray

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Latents (R, N, D) of observations (R, N, d); `x.expand(R, -1, -1)` gives all runs the same."""
        return self.networks.encode(x)

    def run(self, index: int) -> nn.Module:
        """One run as an ordinary module (a copy, on the CPU, evaluation mode)."""
        if not 0 <= index < len(self.runs):
            raise ValueError(f"there is no run {index} among {len(self.runs)}")
        return self.networks.run(index)


def train_many(
    runs: Sequence[Run],
    pairs: Pairs[Run],
    recipe: ManyRunsRecipe | None = None,
    *,
    device: torch.device | str | None = None,
    at_once: int = AT_ONCE,
    to: str | Path | None = None,
    checkpoint_every: int = 1000,
    progress: Progress | None = None,
) -> ManyRuns[Run]:
    """Train every run of a grid.

    Parameters
    ----------
    runs : the grid, in any order.
    pairs : source of the data, see `Pairs`; tensors on any device.
    recipe : what all runs share.
    device : where to compute; None is CUDA where there is one.
    at_once : most runs in one batch; bounds memory (about 12 MB a run at the published size) and, up to
        rounding, changes nothing.
    to : folder of the checkpoints, one file a group of runs. Killed and called again with the same grid,
        recipe and `at_once`, training goes on from there and, on the CPU, ends with the very same weights;
        groups that were finished are loaded.
    checkpoint_every : steps between checkpoints.
    progress : called after each step of a group with steps done and steps of all groups.

    Raises
    ------
    InputError
        no runs, a lambda that lacks or that nobody reads, data of another shape, a full disk.
    """
    recipe = recipe or ManyRunsRecipe()
    _check(runs, recipe, at_once)
    device = default_device() if device is None else torch.device(device)
    groups = np.array_split(np.arange(len(runs)), math.ceil(len(runs) / at_once))
    trained: list[_Group] = []
    for number, group in enumerate(groups):
        members = [runs[index] for index in group]
        told = _told(progress, number, len(groups), recipe.steps, f"runs {group[0] + 1}-{group[-1] + 1}")
        trained.append(_train_group(members, pairs, recipe, device, to, checkpoint_every, told).cpu())
    whole = _Group(many_networks(recipe.network, [], getattr(torch, recipe.dtype)), recipe)
    whole.join(trained)
    return ManyRuns(
        tuple(runs),
        recipe,
        whole.networks.to(device).eval(),
        _kept_steps(recipe),
        whole.history.double().numpy(),
        whole.diverged_at.numpy(),
    )


def _train_group(
    runs: Sequence[Run],
    pairs: Pairs[Run],
    recipe: ManyRunsRecipe,
    device: torch.device,
    to: str | Path | None,
    checkpoint_every: int,
    told: Callable[[int], None],
) -> _Group:
    dtype: torch.dtype = getattr(torch, recipe.dtype)
    networks = many_networks(recipe.network, [seeded(run.seed, 0) for run in runs], dtype)
    group = _Group(networks, recipe).to(device)
    optimiser = _optimiser(group, recipe)
    checkpoint = _checkpoint(to, runs, recipe)
    start = checkpoint.restore(group, optimiser) if checkpoint else 0
    lam = torch.tensor([run.lam or 0.0 for run in runs], dtype=dtype, device=device)
    parameters = list(networks.parameters())
    kept = {int(step): row for row, step in enumerate(_kept_steps(recipe))}
    networks.train()
    for step in range(start, recipe.steps):
        for parameter_group in optimiser.param_groups:
            parameter_group["lr"] = learning_rate(recipe, step)

        first, second = _checked(pairs(runs, step), len(runs), recipe.network.observed_dim)
        # both members go through the network together, so that batch norm sees one distribution
        x = torch.cat([first, second], dim=1).to(device=device, dtype=dtype)  # (R, 2N, d)
        z = networks(x).unflatten(1, (2, -1))  # (R, 2, N, D)
        aligned = run_losses.alignment(z, recipe.normalisation)  # (R,)
        if recipe.objective == "infonce":
            regular = run_losses.infonce(z, recipe.sigma)
            loss = regular
        else:
            if recipe.objective == "sigreg":
                directions = _directions(runs, step, recipe.slices, like=z)
                regular = run_losses.sigreg(z, directions, recipe.normalisation)
            else:
                regular = run_losses.whitening(z, recipe.normalisation)
            loss = lam * regular + (1 - lam) * aligned

        optimiser.zero_grad()
        loss.sum().backward()  # a run's loss knows its own parameters only
        if recipe.grad_clip is not None:
            clip_each_run(parameters, recipe.grad_clip)
        group.mark(step, loss.detach())
        optimiser.step()

        finished = step + 1
        if finished in kept:
            group.history[kept[finished]] = torch.stack([loss, regular, aligned]).detach()
        if checkpoint and finished % checkpoint_every == 0 and finished < recipe.steps:
            checkpoint.save(group, optimiser, finished)
        told(finished)
    group.mark_weights(recipe.steps)
    if checkpoint and start < recipe.steps:
        checkpoint.save(group, _optimiser(group, recipe), recipe.steps)  # nobody needs the moments any more
    return group


def many_networks(
    network: Network, generators: Sequence[torch.Generator], dtype: torch.dtype = torch.float32
) -> RunNetworks:
    """Untrained networks of one architecture, one a generator (of a run: `seeded(seed, 0)`)."""
    if isinstance(network, MatchedArchitecture):
        return MatchedEncoders(network, generators, dtype)
    return Mlps(network, generators, dtype)


def learning_rate(recipe: ManyRunsRecipe, step: int) -> float:
    """The published schedule: constant for a share `hold` of the steps, then half a cosine to zero."""
    held = recipe.hold * recipe.steps
    if step < held:
        return recipe.learning_rate
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - held) / (recipe.steps - held)))


def clip_each_run(parameters: Sequence[nn.Parameter], most: float) -> None:
    """Scale the gradient of each run (leading axis) to a norm of at most `most`, as `clip_grad_norm_`."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients])
    scale = (most / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)  # (R,)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.ndim - 1)))


class _Group(nn.Module):
    """All that changes in the training of a group, so that a checkpoint is one state dict."""

    history: torch.Tensor
    diverged_at: torch.Tensor

    def __init__(self, networks: RunNetworks, recipe: ManyRunsRecipe) -> None:
        super().__init__()
        self.networks = networks
        empty = torch.full((len(_kept_steps(recipe)), len(TERMS), len(networks)), math.nan)
        self.register_buffer("history", empty.to(networks.in_every_latent.dtype))
        self.register_buffer("diverged_at", torch.full((len(networks),), NEVER))

    def mark(self, step: int, loss: torch.Tensor) -> None:
        """Note the first step without a finite loss and make that run's latents NaN for good.

        Without a question to the device that it would have to stop for.
        """
        bad = ~torch.isfinite(loss)
        self.diverged_at.copy_(torch.where(bad & (self.diverged_at == NEVER), step, self.diverged_at))
        last = self.networks.in_every_latent
        assert last.grad is not None
        last.grad.masked_fill_((self.diverged_at != NEVER).view(-1, *[1] * (last.ndim - 1)), math.nan)

    def mark_weights(self, steps: int) -> None:
        """After the last step: what the next loss would have shown."""
        finite = torch.stack([torch.isfinite(p).flatten(1).all(dim=1) for p in self.networks.parameters()])
        bad = ~finite.all(dim=0)
        self.diverged_at.copy_(torch.where(bad & (self.diverged_at == NEVER), steps, self.diverged_at))

    def join(self, groups: Sequence[_Group]) -> None:
        """Become all the runs of several groups, in order."""
        states = [group.state_dict() for group in groups]
        for name, tensor in [*self.named_parameters(), *self.named_buffers()]:
            axis = tensor.ndim - 1 if name in ("history", "diverged_at") else 0
            tensor.data = torch.cat([state[name] for state in states], dim=axis)


def _optimiser(group: _Group, recipe: ManyRunsRecipe) -> torch.optim.AdamW:
    # AdamW is elementwise, hence per run as it stands
    return torch.optim.AdamW(
        group.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
    )


def _directions(runs: Sequence[RunSpec], step: int, slices: int, like: torch.Tensor) -> torch.Tensor:
    """Unit columns (R, D, S) of this step for latents `like`, each run's from its own seed."""
    drawn = torch.empty(len(runs), like.shape[-1], slices)
    for row, run in zip(drawn, runs):
        torch.randn(*row.shape, generator=seeded(run.seed, 2, step), out=row)
    drawn = drawn.to(like)
    return drawn / drawn.norm(dim=1, keepdim=True)


def _kept_steps(recipe: ManyRunsRecipe) -> np.ndarray:
    steps = np.arange(recipe.log_every, recipe.steps + 1, recipe.log_every)
    return steps if len(steps) and steps[-1] == recipe.steps else np.append(steps, recipe.steps)


def _checked(
    pairs: tuple[torch.Tensor, torch.Tensor], runs: int, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = pairs
    if first.ndim != 3 or first.shape != second.shape or first.shape[::2] != (runs, width):
        raise InputError(
            "pairs",
            f"are {tuple(first.shape)} and {tuple(second.shape)}, expected twice ({runs}, N, {width})",
            "give one batch of observations a run, as wide as the network's observed_dim",
        )
    return first, second


def _check(runs: Sequence[RunSpec], recipe: ManyRunsRecipe, at_once: int) -> None:
    if not runs:
        raise InputError("grid", "has no runs", "give at least one")
    if at_once < 1:
        raise InputError("at_once", f"is {at_once}", "train at least one run at a time")
    for number, run in enumerate(runs):
        if (run.lam is None) != (recipe.objective == "infonce"):
            raise InputError(
                f"run {number}, lam",
                f"is {run.lam} with objective {recipe.objective}",
                "leave it out" if recipe.objective == "infonce" else "give a number between 0 and 1",
            )


def _checkpoint(to: str | Path | None, runs: Sequence[RunSpec], recipe: ManyRunsRecipe) -> Checkpoint | None:
    if to is None:
        return None
    identity = {
        "recipe": recipe.model_dump(mode="json"),
        "runs": [run.model_dump(mode="json") for run in runs],
    }
    key = hashlib.sha256(canonical_json(identity)).hexdigest()
    with disk_errors(to):
        Path(to).mkdir(parents=True, exist_ok=True)
    return Checkpoint(Path(to) / f"runs-{key[:16]}.safetensors", run=key)


def _told(
    progress: Progress | None, group: int, groups: int, steps: int, which: str
) -> Callable[[int], None]:
    def told(finished: int) -> None:
        if progress:
            progress(group * steps + finished, groups * steps, f"training {which}")

    return told
