"""Jobs that are trained together, and the numbers of each trained encoder.

r2_hz     z from h, r2_zh h from z, r2_xz z from the observations x themselves, which says how hard the
          mixing is; pooled over dimensions (weighted by variance), `_uniform` their mean
_in       fitted and scored on the same rows, as published; without it: fitted on them, scored on new ones
_grid     fitted and scored on the even grid over [-3, 3]^2, as published, however little of the latents'
          mass lies there; `_support`: on those of its points that lie where latents do
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from encoders.many_runs import many_networks, train_many
from encoders.recipes import seeded
from encoders.run_networks import RunNetworks
from hardware.recording import Progress
from probe.experiments.identifiability import (
    FloatArray,
    approximate_bound,
    fit_linear,
    orthogonality_error,
    r2_pooled,
    r2_uniform,
    scale_and_shape,
)
from probe.experiments.jobs import Job
from probe.experiments.sweep import Outcome
from sim.worlds import evaluation_latents, evaluation_pairs, observe, training_pairs

CHECKPOINT_EVERY = 1000
GRID_SIDE, GRID_REACH = 100, 3.0
TAIL = 0.1
"""Share of the kept losses, the last ones, whose mean is `tail`."""
LOSSES_KEPT = 100

Encode = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class Trained:
    """Networks of several jobs after their training.

    Attributes
    ----------
    networks : row r is job r's.
    steps, history : when losses were kept, and what they were; see `encoders.many_runs.ManyRuns`. Empty for
        networks that were not trained.
    """

    jobs: tuple[Job, ...]
    networks: RunNetworks
    steps: np.ndarray
    history: np.ndarray

    def encoder(self, index: int) -> Encode:
        """Latents z (n, N) to what one job's network makes of their observations, float64 (n, D)."""
        world, network = self.jobs[index].world, self.networks.run(index)

        def encode(z: FloatArray) -> FloatArray:
            with torch.inference_mode():
                x = observe([world], torch.from_numpy(z).float()[None])[0]
                return np.asarray(network(x).double().numpy())

        return encode

    def losses(self, index: int) -> dict[str, Any]:
        """The last batch's loss, the mean of the last tenth of the kept ones, and some of them in between.

        None for a loss that is not finite, and where nothing was trained.
        """
        loss = self.history[:, 0, index] if len(self.steps) else np.array([])
        if not len(loss) or not np.isfinite(loss[-1]):
            return {"last": None, "tail": None, "steps": [], "loss": []}
        shown = np.unique(np.linspace(0, len(loss) - 1, LOSSES_KEPT).round().astype(int))
        names = ("loss", "regulariser", "alignment")
        kept = {name: self.history[shown, row, index] for row, name in enumerate(names)}
        return {
            "last": float(loss[-1]),
            "tail": float(loss[-max(1, round(TAIL * len(loss))) :].mean()),
            "steps": self.steps[shown].tolist(),
            **{name: [finite(value) for value in values] for name, values in kept.items()},
        }


def trained(
    jobs: Sequence[Job], checkpoints: str | Path | None = None, progress: Progress | None = None
) -> Trained:
    """Train jobs that share a recipe (`jobs.groups`) as one batched model.

    Parameters
    ----------
    checkpoints : folder from which a training that was killed goes on.
    progress : called once a step.
    """
    recipe = jobs[0].recipe
    if jobs[0].steps == 0:
        dtype = getattr(torch, recipe.dtype)
        generators = [seeded(job.seed, 0) for job in jobs]  # those of `train_many`
        networks = many_networks(recipe.network, generators, dtype).eval()
        return Trained(tuple(jobs), networks, np.array([], int), np.empty((0, 3, len(jobs))))
    found = train_many(
        [job.run for job in jobs],
        training_pairs,
        recipe,
        at_once=len(jobs),
        to=checkpoints,
        checkpoint_every=CHECKPOINT_EVERY,
        progress=progress,
    )
    return Trained(tuple(jobs), found.networks.cpu(), found.steps, found.history)


def perform(jobs: Sequence[Job], checkpoints: Path, progress: Progress) -> list[Outcome]:
    """Train jobs together and measure each: what a sweep of worlds does (`probe.experiments.sweep`)."""
    found = trained(jobs, checkpoints, progress)
    return [
        Outcome(measured(job, found.encoder(number)), found.losses(number)) for number, job in enumerate(jobs)
    ]


def measured(job: Job, encode: Encode) -> dict[str, float | None]:
    """The numbers of one encoder, None where they are not defined (a run that diverged).

    Parameters
    ----------
    encode : z (n, N) to h (n, D).
    """
    world, count, seed = job.world, job.samples, job.seed
    fit, new = (evaluation_latents(world, count, seed, stream).double().numpy() for stream in (0, 1))
    h_fit, h_new = encode(fit), encode(new)
    if not (np.isfinite(h_fit).all() and np.isfinite(h_new).all()):
        return {}
    x_fit, x_new = (_observed(job, z) for z in (fit, new))
    numbers = {
        **_r2("r2_hz", h_fit, fit, h_new, new),
        **_r2("r2_zh", fit, h_fit, new, h_new),
        **_r2("r2_xz", x_fit, fit, x_new, new),
    }
    matrix = fit_linear(fit, h_fit).matrix
    scale, shape = scale_and_shape(matrix)
    numbers |= {
        "orthogonality_error": orthogonality_error(matrix),
        "scale": scale,
        "shape_error": shape,
        "variance": float(h_fit.var(axis=0).mean()),
    }
    z, z_next = (one.double().numpy() for one in evaluation_pairs(world, count, seed))
    h, h_next = encode(z), encode(z_next)
    numbers["alignment"] = float(np.square(h - h_next).mean())
    if h.shape == z.shape:
        numbers |= dataclasses.asdict(approximate_bound(z, h, h_next, world.rho))
    if world.dim == 2:
        numbers |= _on_grid(encode, np.abs(fit).max(axis=0))
    return {name: finite(value) for name, value in numbers.items()}


def _r2(name: str, x: FloatArray, y: FloatArray, x_new: FloatArray, y_new: FloatArray) -> dict[str, float]:
    fitted = fit_linear(x, y)
    return {
        f"{name}_in": r2_pooled(y, fitted(x)),
        name: r2_pooled(y_new, fitted(x_new)),
        f"{name}_uniform": r2_uniform(y_new, fitted(x_new)),
    }


def _on_grid(encode: Encode, reach: FloatArray) -> dict[str, float]:
    """Numbers on the even grid, and on its part within `reach` (2,), as far out as latents were seen."""
    line = np.linspace(-GRID_REACH, GRID_REACH, GRID_SIDE)
    z = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    h = encode(z)
    inside = (np.abs(z) <= reach).all(axis=1)
    return {
        "r2_hz_grid": r2_pooled(z, fit_linear(h, z)(h)),
        "orthogonality_error_grid": orthogonality_error(fit_linear(z, h).matrix),
        "r2_hz_support": r2_pooled(z[inside], fit_linear(h[inside], z[inside])(h[inside])),
        "support": float(inside.mean()),
    }


def _observed(job: Job, z: FloatArray) -> FloatArray:
    return np.asarray(observe([job.world], torch.from_numpy(z).float()[None])[0].double().numpy())


def finite(value: float) -> float | None:
    """A number as JSON has it."""
    return float(value) if math.isfinite(value) else None
