"""Collapse of a training, told early: how many directions the latents of a batch still use, and how far they
spread.

Without a regulariser that holds, predicting one's own latents is easiest when all of them are the same: the
loss falls and the encoder forgets the frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

START_SHARE = 0.1  # of the steps, in which an encoder may still be finding its directions
LEAST_RANK = 1.5
RANK_SHARE = 0.1  # of the way from one direction to all of them, where they are few
LEAST_STD = 0.1  # the regularisers hold each dimension near 1
IN_A_ROW = 2  # logged steps


class CollapseWarning(UserWarning):
    """A training's latents have collapsed, or are about to."""


@dataclass(frozen=True)
class Spread:
    """How the latents of a batch are spread.

    Attributes
    ----------
    effective_rank : exp of the entropy of the covariance's normalised eigenvalues (Roy & Vetterli 2007): k
        where k directions share the variance evenly, 1 for a line, 0 for a point.
    smallest_std, median_std : of the dimensions' standard deviations.
    most : the largest effective rank there could be, min(D, N - 1).
    """

    effective_rank: float
    smallest_std: float
    median_std: float
    most: int

    @classmethod
    def of(cls, z: torch.Tensor) -> Spread:
        """Of latents (N, D), N at least 2; without gradients and in float64."""
        z = z.detach().to("cpu", torch.float64)
        covariance = torch.cov(z.T).reshape(z.shape[1], z.shape[1])
        variance = torch.linalg.eigvalsh(covariance).clamp(min=0.0)
        total = variance.sum()
        rank = 0.0
        if total > 0:
            share = variance / total
            rank = float(torch.exp(-torch.xlogy(share, share).sum()))
        std = covariance.diagonal().clamp(min=0.0).sqrt()
        return cls(rank, float(std.min()), float(std.median()), min(z.shape[1], len(z) - 1))

    def terms(self) -> dict[str, float]:
        """What a line of training.jsonl says of it."""
        return {
            "effective_rank": self.effective_rank,
            "smallest_std": self.smallest_std,
            "median_std": self.median_std,
        }


class CollapseWatch:
    """Looks at the logged steps of one training and speaks once.

    Collapsed are latents whose median standard deviation is below 0.1, or whose effective rank is below 1.5
    (below 1 + 0.1 (most - 1) where there are fewer than six dimensions, which lets two be two), at two logged
    steps in a row after the first tenth of the steps. Both are needed: without SIGReg latents shrink towards
    a point in all directions alike, which no rank shows. The rank is not held against D: of the simulated arm
    with its six joints healthy latents have an effective rank of 4 to 13, and those with 4 read joints best.

    Parameters
    ----------
    steps : of the whole training.
    most : largest possible effective rank, min(D, N - 1).
    remedy : what to do about it, in the training's own terms.
    """

    def __init__(self, steps: int, most: int, remedy: str) -> None:
        self.steps, self.remedy = steps, remedy
        self.least_rank = min(LEAST_RANK, 1 + RANK_SHARE * (most - 1))
        self.most = most
        self._in_a_row = 0
        self.told = False

    def look(self, step: int, terms: Mapping[str, float]) -> str:
        """The warning that a logged step gives, else "". Feed it every step that was logged, in order."""
        rank, median = terms["effective_rank"], terms["median_std"]
        low = step > START_SHARE * self.steps and (rank < self.least_rank or median < LEAST_STD)
        self._in_a_row = self._in_a_row + 1 if low else 0
        if self.told or self._in_a_row < IN_A_ROW:
            return ""
        self.told = True
        return (
            f"the latents collapse at step {step:,} of {self.steps:,}: effective rank {rank:.1f} of "
            f"{self.most}, standard deviation {median:.3g} of the median dimension and "
            f"{terms['smallest_std']:.3g} of the smallest - {self.remedy}"
        )
