"""The steps of a training, the same for every objective: learning rate, clipping, log, checkpoint, alarm."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from encoders.collapse import CollapseWarning, CollapseWatch, Spread
from encoders.kept_memory import keep_freed_memory
from encoders.recipes import CnnRecipe, LewmRecipe
from encoders.training_state import CHECKPOINT, LOG, Checkpoint, Log
from hardware.errors import InputError
from hardware.recording import Progress


class Diverged(InputError):
    """A training whose loss is not finite any more."""


@dataclass(frozen=True)
class Reporting:
    """What is told while a training runs; nothing of it changes the result.

    Attributes
    ----------
    progress : called once a step.
    checkpoint_every, log_every : steps between checkpoints, and between lines of training.jsonl.
    tensorboard : folder that the lines are written to for TensorBoard as well.
    """

    progress: Progress | None = None
    checkpoint_every: int = 100
    log_every: int = 10
    tensorboard: Path | None = None


@dataclass(frozen=True)
class StepLoss:
    """One step's loss (a scalar with gradients), the terms it is made of, and the batch's latents (N, D)."""

    total: torch.Tensor
    terms: Mapping[str, torch.Tensor]
    z: torch.Tensor


def run_steps(
    network: nn.Module,
    recipe: CnnRecipe | LewmRecipe,
    loss_of: Callable[[int], StepLoss],
    to: Path,
    run: str,
    reporting: Reporting,
) -> None:
    """Train `network` in place with AdamW for the recipe's steps, from the last checkpoint in `to` on.

    Parameters
    ----------
    loss_of : of a step's number, on which alone it depends: so a resumed run repeats what would have come.
    run : see `Checkpoint`.

    Raises
    ------
    Diverged : a loss or a gradient that is not finite.
    InputError : another training's checkpoint, a full disk.
    """
    keep_freed_memory()
    network.train()
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
    )
    state = Checkpoint(to / CHECKPOINT, run)
    start = state.restore(network, optimiser)
    with ExitStack() as closing:
        log = Log(to / LOG, keep_steps_to=start)
        closing.callback(log.close)
        board = None
        if reporting.tensorboard is not None:
            board = summary_writer()(str(reporting.tensorboard), purge_step=start + 1)
            closing.callback(board.close)
        watch: CollapseWatch | None = None
        for step in range(start, recipe.steps):
            rate = learning_rate(recipe, step)
            for group in optimiser.param_groups:
                group["lr"] = rate
            loss = loss_of(step)

            optimiser.zero_grad()
            loss.total.backward()
            norm = nn.utils.clip_grad_norm_(network.parameters(), recipe.grad_clip)
            terms = {"loss": loss.total.item(), **{name: term.item() for name, term in loss.terms.items()}}
            if not (math.isfinite(terms["loss"]) and math.isfinite(norm.item())):
                raise Diverged(
                    f"training in {to}, step {step}",
                    f"the loss is not finite any more ({_shown(terms)}, gradient norm {norm.item():.3g})",
                    f"lower learning_rate (now {recipe.learning_rate}) or lam (now {recipe.lam})",
                )
            optimiser.step()

            finished = step + 1
            if watch is None:
                watch = _watch(recipe, loss.z, log)
            if finished % reporting.log_every == 0 or finished == recipe.steps:
                line = {"step": finished, **terms, "learning_rate": rate, **Spread.of(loss.z).terms()}
                warning = watch.look(finished, line)
                log.write({**line, "warning": warning} if warning else line)
                if warning:
                    warnings.warn(f"training in {to}: {warning}", CollapseWarning, stacklevel=2)
                if board is not None:
                    for name, value in line.items():
                        if name != "step":
                            board.add_scalar(name, value, finished)
            if finished % reporting.checkpoint_every == 0 and finished < recipe.steps:
                state.save(network, optimiser, finished)
            if reporting.progress:
                collapsed = "collapsed, " if watch.told else ""
                what = f"training {recipe.kind}, {collapsed}{_shown(terms)}"
                reporting.progress(finished, recipe.steps, what)
    network.eval()


def learning_rate(recipe: CnnRecipe | LewmRecipe, step: int) -> float:
    """A cosine from the recipe's rate to zero at the last step, behind LeWM's linear warm-up."""
    warm = round(recipe.warmup * recipe.steps) if isinstance(recipe, LewmRecipe) else 0
    if step < warm:
        return recipe.learning_rate * (step + 1) / warm
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / (recipe.steps - warm)))


def batch_of_step(step: int, count: int, batch_size: int, seed: int) -> np.ndarray:
    """Numbers of one step's pairs or windows of `count`, int64 (batch_size,): each epoch has a new order,
    less its remainder.
    """
    a_epoch = count // batch_size
    epoch, position = divmod(step, a_epoch)
    order = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1, epoch))).permutation(count)
    return order[position * batch_size : (position + 1) * batch_size]


def summary_writer() -> Any:
    """TensorBoard's SummaryWriter; InputError where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError(
            "--tensorboard",
            "TensorBoard is not installed",
            f"pip install tensorboard, or leave the option out: {LOG} and training.png show the same",
        ) from None
    return SummaryWriter


def _watch(recipe: CnnRecipe | LewmRecipe, z: torch.Tensor, log: Log) -> CollapseWatch:
    """A watch that knows what was logged before this process went on."""
    remedy = f"raise lam (now {recipe.lam:g}), or lower learning_rate (now {recipe.learning_rate:g})"
    watch = CollapseWatch(recipe.steps, min(z.shape[1], len(z) - 1), remedy)
    for line in log.kept:
        watch.look(line["step"], line)
    return watch


def _shown(terms: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in terms.items())
