"""The paper's CNN on DM Control Reacher: jobs, and the numbers of each trained encoder.

The latents are the two joint angles z; what is observed is an image of them.

    r2_hz, r2_zh        z from h and h from z: fitted on images of the training pairs, scored on independent
                        N(0, I) images; pooled over both joints, as published. On trajectories that is another
                        distribution than the fit's, and R2 may be anything
    r2_hz_0, r2_hz_1    of each joint; r2_hz_uniform their mean
    r2_hz_sincos        of the sine and cosine of both angles, which an image can tell: a shoulder that turns
                        on looks the same every 2 pi
    ..._own             fitted and scored where training took place, on pairs that it did not see
    procrustes          whitened Procrustes residual, what the paper calls Reacher's orthogonality error
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from encoders.cnn import CnnEncoder
from encoders.collapse import CollapseWarning
from encoders.pair_training import Images, PairRecipe, train_on_pairs
from encoders.training_loop import Diverged, Reporting
from encoders.training_state import logged_lines
from hardware.recording import Progress
from probe.experiments.identifiability import (
    FloatArray,
    fit_linear,
    orthogonality_error,
    r2_pooled,
    r2_uniform,
    whitened_procrustes,
)
from probe.experiments.sweep import Outcome, key_of
from probe.experiments.training import finite

VERSION = 1
ENCODE_AT_ONCE = 512
TAIL = 0.1


class ReacherJob(BaseModel):
    """One training on Reacher's pairs.

    Parameters
    ----------
    condition, value : `ou` and rho, or `traj` and the stride delta.
    source : of trajectories: a policy's name, or the SHA-256 of a file's episodes.
    pairs, evaluation : how many pairs, and how many evaluation images; all drawn with the published seed.
    recipe : of the CNN.
    held_out : share of the pairs, the last ones, that are not trained on. As published 0: `..._own` is then
        taken on pairs that were trained on.
    images : most images that a map is fitted to, and most of those that it is scored on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["reacher"] = "reacher"
    condition: Literal["ou", "traj"]
    value: float
    source: str = ""
    pairs: int = Field(ge=2)
    evaluation: int = Field(ge=16)
    recipe: PairRecipe
    held_out: float = Field(default=0.0, ge=0.0, lt=1.0)
    images: int = Field(default=10_000, ge=16)

    @property
    def key(self) -> str:
        """24 hex digits of a SHA-256 over all fields."""
        return key_of(VERSION, self)

    @property
    def label(self) -> str:
        """What it is about, for progress."""
        name = "rho" if self.condition == "ou" else "delta"
        return f"{self.condition} {name} {self.value:g}, lam {self.recipe.lam:g}, seed {self.recipe.seed}"

    @property
    def run_steps(self) -> int:
        """Steps of its training."""
        return self.recipe.steps

    @property
    def cost(self) -> float:
        """About how long it takes, in the unit of jobs of worlds."""
        return self.recipe.steps * 5000.0


@dataclass(frozen=True)
class States:
    """Images and the joint angles in them.

    Attributes
    ----------
    images : see `encoders.pair_training.Images`.
    angles : float64 (n, 2), shoulder and wrist, rad, as the simulator counts them: unwrapped.
    """

    images: Images
    angles: FloatArray


def train_and_measure(
    job: ReacherJob,
    training: States,
    pairs: NDArray[np.int64],
    evaluation: States,
    to: Path,
    progress: Progress | None = None,
) -> Outcome:
    """Train on pairs, measure on the evaluation images; a training that diverges has no numbers.

    Parameters
    ----------
    pairs : (P, 2), rows of `training`, in the order in which they were drawn: of trajectories, episode by
        episode.
    to : folder of the training, which a call after a kill goes on from.
    """
    trained_on = pairs[: len(pairs) - round(job.held_out * len(pairs))]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)  # `variance` says it, in the table
            encoder = train_on_pairs(
                training.images,
                trained_on,
                job.recipe,
                to,
                data=job.key,
                reporting=Reporting(progress, checkpoint_every=200),
            )
    except Diverged:
        return Outcome({}, {"last": None, "tail": None, "steps": [], "loss": []})
    own = pairs[len(trained_on) :] if job.held_out else pairs[job.images :]
    return Outcome(
        measured(
            encoder,
            _some(training, trained_on[: job.images, 0]),
            _some(evaluation, np.arange(min(job.images, len(evaluation.angles)))),
            _some(training, own[: job.images, 0]),
        ),
        _losses(to),
    )


def measured(
    encoder: CnnEncoder,
    fit: tuple[NDArray[np.uint8], FloatArray],
    evaluation: tuple[NDArray[np.uint8], FloatArray],
    own: tuple[NDArray[np.uint8], FloatArray],
) -> dict[str, float | None]:
    """The numbers of an encoder on images and angles of these three kinds; see the top of this file."""
    (h_fit, z_fit), (h, z), (h_own, z_own) = (
        (_encoded(encoder, images), angles) for images, angles in (fit, evaluation, own)
    )
    numbers = {
        **_scores("", h_fit, z_fit, h, z),
        **(_scores("_own", h_fit, z_fit, h_own, z_own) if len(z_own) else {}),
        "procrustes": whitened_procrustes(z, h),
        "orthogonality_error": orthogonality_error(fit_linear(z, h).matrix),
        "variance": float(h.var(axis=0).mean()),
    }
    return {name: finite(value) for name, value in numbers.items()}


def _scores(
    suffix: str, h_fit: FloatArray, z_fit: FloatArray, h: FloatArray, z: FloatArray
) -> dict[str, float]:
    read = fit_linear(h_fit, z_fit)(h)
    circle, circle_fit = _sincos(z), _sincos(z_fit)
    return {
        f"r2_hz{suffix}": r2_pooled(z, read),
        f"r2_hz_uniform{suffix}": r2_uniform(z, read),
        **{f"r2_hz_{joint}{suffix}": r2_pooled(z[:, [joint]], read[:, [joint]]) for joint in (0, 1)},
        f"r2_zh{suffix}": r2_pooled(h, fit_linear(z_fit, h_fit)(z)),
        f"r2_hz_sincos{suffix}": r2_pooled(circle, fit_linear(h_fit, circle_fit)(h)),
    }


def _sincos(z: FloatArray) -> FloatArray:
    return np.concatenate([np.sin(z), np.cos(z)], axis=1)


def _some(states: States, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint8], FloatArray]:
    return states.images[rows], states.angles[rows]


def _encoded(encoder: CnnEncoder, images: NDArray[np.uint8]) -> FloatArray:
    parts = [
        encoder.encode(images[start : start + ENCODE_AT_ONCE, None])
        for start in range(0, len(images), ENCODE_AT_ONCE)
    ]
    return np.concatenate(parts).astype(np.float64) if parts else np.empty((0, encoder.width))


def _losses(to: Path) -> dict[str, Any]:
    log = logged_lines(to)
    loss = [line["loss"] for line in log]
    shown = np.unique(np.linspace(0, len(log) - 1, min(100, len(log))).round().astype(int)).tolist()
    return {
        "last": loss[-1] if loss else None,
        "tail": float(np.mean(loss[-max(1, round(TAIL * len(loss))) :])) if loss else None,
        "steps": [log[row]["step"] for row in shown],
        "loss": [loss[row] for row in shown],
    }
