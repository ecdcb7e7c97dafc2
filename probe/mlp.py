"""An MLP probe beside the linear one: what a nonlinear reader would get from the same latents.

It stands beside the ridge probe and never instead of it. A probe of high capacity learns the joints rather
than finding them, and so measures itself (Hewitt and Liang 2019; PhyIP, Internò et al. 2026); the paper's
claim is about a linear map. A large gap says that the joints are there but bent.

One hidden layer of 256 (ReLU), Adam, mean squared error over standardised joints: latents and joints are
standardised by the training rows, as the ridge probe's are, and R2 is taken by the same functions on the same
rows. The number of epochs is chosen as ridge's alpha is: whole training episodes are held out, never rows;
then a fresh network is trained on all training episodes for that number. On one machine the same seed and
number of threads give the same network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from probe.clusters import EpisodeClusters, balanced_folds
from probe.moments import FloatArray, check_rows

HIDDEN = 256
BATCH_ROWS = 256
LEARNING_RATE = 1e-3
PATIENCE = 10  # epochs without a better held-out error before the search for their number ends
_HELD_OUT_FOLDS = 5  # one of so many folds of episodes is held out


@dataclass(frozen=True, eq=False)
class MlpFit:
    """A trained MLP probe.

    Attributes
    ----------
    network : from standardised latents to standardised joints.
    mean, scale : [D], of the training latents; scale is 1 for a constant dimension.
    y_mean, y_scale : [J], of the training joints; scale is 1 for a constant joint.
    epochs : passes over the training rows.
    held_out_error : [T], mean squared error on the held-out training episodes after each epoch of the search,
        in standardised joints.
    at_limit : the best epoch was the last one allowed: more might have been better.
    """

    network: nn.Sequential
    mean: FloatArray
    scale: FloatArray
    y_mean: FloatArray
    y_scale: FloatArray
    epochs: int
    held_out_error: FloatArray
    at_limit: bool

    def predict(self, x: NDArray[Any]) -> FloatArray:
        """Joints [N, J], in their own units, from latents `x` [N, D]."""
        if x.ndim != 2 or x.shape[1] != len(self.mean):
            raise ValueError(f"the probe was fitted to {len(self.mean)} features, got shape {x.shape}")
        with torch.no_grad():
            out = self.network(_tensor((x - self.mean) / self.scale)).numpy()
        return out.astype(np.float64) * self.y_scale + self.y_mean

    def __str__(self) -> str:
        best = float(self.held_out_error.min())
        limit = ", the most allowed" if self.at_limit else ""
        return f"MLP of {HIDDEN} hidden units, {self.epochs} epochs{limit}; held-out squared error {best:.3f}"


def fit_mlp(
    x: NDArray[Any],
    y: NDArray[Any],
    episodes: EpisodeClusters,
    *,
    seed: int,
    testable: NDArray[np.bool_] | None = None,
    most_epochs: int = 100,
) -> MlpFit:
    """Choose the number of epochs on held-out training episodes, then train on all of them.

    Parameters
    ----------
    x, y : training latents [N, D] and joints [N, J]; finite.
    episodes : the training rows' episodes; at least two.
    seed : of the weights and of the order of rows; no global generator is read.
    testable : bool [J], the joints whose error is minimised, all by default; the others are predicted as
        their training mean.
    most_epochs : limit of the search.

    Raises
    ------
    ValueError : shapes that disagree, values that are not finite, a single training episode, or no joint.
    """
    check_rows(x, y, episodes)
    used = np.ones(y.shape[1], dtype=bool) if testable is None else np.asarray(testable, dtype=bool)
    if not used.any() or most_epochs < 1:
        raise ValueError(f"nothing to train: {int(used.sum())} testable joints, at most {most_epochs} epochs")
    held_out = np.isin(episodes.index, np.flatnonzero(balanced_folds(episodes.count, _HELD_OUT_FOLDS) == 0))
    mean, scale = _standard(x)
    y_mean, y_scale = _standard(y)
    xs, ys = _tensor((x - mean) / scale), _tensor((y - y_mean) / y_scale)
    mask = torch.from_numpy(used.astype(np.float32))

    search = _Trainer(xs.shape[1], mask, seed)
    keep, left_out = torch.from_numpy(~held_out), torch.from_numpy(held_out)
    errors: list[float] = []
    while len(errors) < most_epochs and len(errors) - int(np.argmin(errors or [0.0])) <= PATIENCE:
        search.epoch(xs[keep], ys[keep])
        errors.append(search.error(xs[left_out], ys[left_out]))
    epochs = int(np.argmin(errors)) + 1

    final = _Trainer(xs.shape[1], mask, seed)
    for _ in range(epochs):
        final.epoch(xs, ys)
    return MlpFit(
        network=final.finished(),
        mean=mean,
        scale=scale,
        y_mean=y_mean,
        y_scale=y_scale,
        epochs=epochs,
        held_out_error=np.array(errors),
        at_limit=epochs == most_epochs,
    )


class _Trainer:
    """A network, its optimiser and its own generator."""

    def __init__(self, width: int, mask: torch.Tensor, seed: int) -> None:
        self.mask, self.generator = mask, torch.Generator().manual_seed(seed)
        # empty weights first: torch's own initialisation would read the global generator
        first: nn.Linear = nn.utils.skip_init(nn.Linear, width, HIDDEN)
        self.last: nn.Linear = nn.utils.skip_init(nn.Linear, HIDDEN, len(mask))
        with torch.no_grad():
            for layer in (first, self.last):
                bound = 1 / math.sqrt(layer.in_features)
                layer.weight.uniform_(-bound, bound, generator=self.generator)
                layer.bias.uniform_(-bound, bound, generator=self.generator)
        self.network = nn.Sequential(first, nn.ReLU(), self.last)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE, fused=True)

    def epoch(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """One pass over the rows in a random order."""
        for rows in torch.randperm(len(x), generator=self.generator).split(BATCH_ROWS):
            self.optimiser.zero_grad()
            self._loss(x[rows], y[rows]).backward()
            self.optimiser.step()

    def error(self, x: torch.Tensor, y: torch.Tensor) -> float:
        """Mean squared error over rows and used joints."""
        with torch.no_grad():
            return float(self._loss(x, y))

    def finished(self) -> nn.Sequential:
        """The network; joints that were not trained are predicted as 0, their training mean."""
        with torch.no_grad():
            self.last.weight.mul_(self.mask[:, None])
            self.last.bias.mul_(self.mask)
        return self.network.requires_grad_(False)

    def _loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        squared = (self.network(x) - y) ** 2 * self.mask
        return squared.sum() / (len(x) * self.mask.sum())


def _standard(values: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of columns, the latter 1 where constant."""
    mean = values.mean(axis=0, dtype=np.float64)
    std = values.std(axis=0, dtype=np.float64)
    return mean, np.where(std > len(values) * np.finfo(np.float64).eps * np.abs(mean), std, 1.0)


def _tensor(values: FloatArray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
