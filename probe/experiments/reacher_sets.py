"""Reacher's experiment: from its fields to jobs, the pair sets that these need, and the work on one.

TO/pairs/ou-100000-HASH       the pairs of some rho; all share the images of z
TO/pairs/traj-100000-HASH     those of some strides
TO/pairs/eval-10000           the evaluation images
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from encoders.pair_training import PairRecipe
from hardware.errors import InputError
from hardware.recording import Progress
from hardware.schema import parse_model
from probe.experiments.reacher import ReacherJob, States, train_and_measure
from probe.experiments.sweep import Outcome, Perform, read_result
from sim.reacher_draws import (
    PAIRS_PER_EPISODE,
    PUBLISHED_SEED,
    Draw,
    draw_evaluation,
    draw_ou,
    draw_trajectory,
)
from sim.reacher_pairs import PairSet, write_pair_set
from sim.reacher_trajectories import POLICIES, Episodes, episodes_of, read_lewm

FOLDER = "pairs"


def build_reacher_job(fields: Mapping[str, Any], *, where: object) -> ReacherJob:
    """A job from nested fields: those of `ReacherJob`, `epochs` for the recipe's steps, and `seed`.

    Raises
    ------
    InputError : a field that is wrong or lacks, named together with `where`.
    """
    whole = dict(fields)
    own = whole.pop("recipe", {})
    if not isinstance(own, dict):
        raise InputError(where, f"recipe is {own!r}, where it has fields", "set recipe.lam and others")
    recipe = {**own, "seed": whole.pop("seed")}
    epochs, steps = whole.pop("epochs", 100), whole.pop("steps", None)
    parsed: PairRecipe = parse_model(PairRecipe, recipe, f"{where}, recipe")
    pairs, held_out = whole.get("pairs"), whole.get("held_out", 0.0)
    if not isinstance(pairs, int) or not isinstance(epochs, int) or epochs < 1:
        raise InputError(where, f"has pairs {pairs} and epochs {epochs}", "give whole numbers from 1 on")
    if steps is None:
        steps = epochs * ((pairs - round(held_out * pairs)) // parsed.batch_size)
        if steps < 1:
            raise InputError(
                where,
                f"has {pairs} pairs, fewer than a batch of {parsed.batch_size}",
                "make more pairs, or set recipe.batch_size",
            )
    if whole.get("condition") == "ou":
        whole["source"] = ""
    elif (source := str(whole.get("source", "random"))) not in POLICIES:
        whole["source"] = _episodes_of_file(source).sha256
    whole["recipe"] = parsed.model_copy(update={"steps": steps})
    job: ReacherJob = parse_model(ReacherJob, whole, where)
    return job


def make_sets(
    jobs: Sequence[ReacherJob],
    to: str | Path,
    *,
    source: str = "random",
    workers: int | None = None,
    progress: Progress | None = None,
) -> Perform:
    """Render what jobs without a result need; gives the work on one job, for `run_sweep`.

    Parameters
    ----------
    source : name of the policy or path of the file that trajectories are from.
    workers : processes that render.
    """
    to = Path(to)
    values: dict[tuple[str, str, int], set[float]] = {}
    for job in jobs:
        values.setdefault((job.condition, job.source, job.pairs), set()).add(job.value)
    todo = [job for job in jobs if read_result(to, job) is None]
    needed = {(job.condition, job.source, job.pairs) for job in todo}
    folders: dict[tuple[str, str, int], Path] = {}
    draws: dict[Path, Draw] = {}
    for (condition, of, pairs), some in sorted(values.items()):
        if (condition, of, pairs) in needed:
            folder = to / FOLDER / _folder_name(condition, of, pairs, some)
            folders[condition, of, pairs] = folder
            draws[folder] = _draw(condition, source, pairs, sorted(some))
    for count in sorted({job.evaluation for job in todo}):
        draws[to / FOLDER / f"eval-{count}"] = draw_evaluation(count)
    for folder, draw in draws.items():
        write_pair_set(draw, folder, workers=workers, progress=progress)
    return partial(perform, to / FOLDER, folders)


def perform(
    root: Path,
    folders: Mapping[tuple[str, str, int], Path],
    jobs: Sequence[ReacherJob],
    checkpoints: Path,
    progress: Progress,
) -> list[Outcome]:
    """Train and measure jobs, one after the other."""
    outcomes = []
    for job in jobs:
        opened = PairSet.open(folders[job.condition, job.source, job.pairs])
        images, pairs = opened.subset(job.value)
        used = np.unique(opened.pairs(job.value))
        evaluation = PairSet.open(root / f"eval-{job.evaluation}")
        outcomes.append(
            train_and_measure(
                job,
                States(images, opened.states[used]),
                pairs,
                States(evaluation, evaluation.states),
                checkpoints / job.key,
                progress,
            )
        )
    return outcomes


def _draw(condition: str, source: str, pairs: int, values: Sequence[float]) -> Draw:
    if condition == "ou":
        return draw_ou(values, pairs)
    episodes = episodes_of(source, -(-pairs // PAIRS_PER_EPISODE), PUBLISHED_SEED)
    return draw_trajectory(episodes, [int(value) for value in values], pairs)


@lru_cache(maxsize=1)  # every job of a plan asks for it
def _episodes_of_file(source: str) -> Episodes:
    if not Path(source).exists():
        known = ", ".join(POLICIES)
        raise InputError(
            "source", f"is {source!r}, no file and no policy", f"write one of: {known}, or a path"
        )
    return read_lewm(source)


def _folder_name(condition: str, source: str, pairs: int, values: set[float]) -> str:
    text = f"{source} {sorted(values)}"
    return f"{condition}-{pairs}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
