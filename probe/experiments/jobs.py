"""A job: one small encoder in one world, trained and measured, and the hash that it is known by.

All that decides the result is a field of `Job`, and nothing else is: two experiments that share a run share
its result, and a sweep that is called again finds what is done by the hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from encoders.encoder import canonical_json
from encoders.many_runs import ManyRunsRecipe, Network, RunSpec
from encoders.run_losses import Normalisation
from hardware.errors import InputError
from hardware.schema import parse_model
from probe.experiments.sweep import key_of
from sim.worlds import World

VERSION = 1
"""Of what a job means: raised when the same fields would give another result."""


class JobRun(RunSpec):
    """What `train_many` needs to know of one run: its world beside its seed and lambda."""

    world: World
    batch_size: int


class Job(BaseModel):
    """One run of an experiment. The defaults are the paper's 2-D experiments.

    Parameters
    ----------
    world : latents, how pairs move, and the mixing that is observed.
    network : the encoder; as many dimensions in and out as the world has.
    objective, lam, sigma : see `encoders.many_runs`; InfoNCE has no lambda.
    batch_size : pairs of a step; every step has new ones.
    steps : 0 measures the untrained network.
    seed : of weights, pairs, directions and evaluation; the mixing has its own, in the world.
    samples : rows that a map is fitted to, and as many new ones that it is scored on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    world: World
    network: Network
    objective: Literal["sigreg", "whitening", "infonce"] = "sigreg"
    lam: float | None = Field(default=None, ge=0.0, le=1.0)
    sigma: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)
    normalisation: Normalisation = "published"
    slices: int = Field(default=256, ge=1, le=65536)
    batch_size: int = Field(default=256, ge=2, le=65536)
    steps: int = Field(default=20_000, ge=0, le=100_000_000)
    learning_rate: float = Field(default=3e-3, gt=0.0, allow_inf_nan=False)
    hold: float = Field(default=0.5, ge=0.0, le=1.0)
    weight_decay: float = Field(default=0.01, ge=0.0, allow_inf_nan=False)
    seed: int = Field(ge=0, lt=1 << 63)
    samples: int = Field(default=10_000, ge=16, le=10_000_000)

    @property
    def key(self) -> str:
        """24 hex digits of a SHA-256 over all fields."""
        return key_of(VERSION, self)

    @property
    def label(self) -> str:
        """What it is about, for progress."""
        return f"{self.objective}, {self.world.mixing.name} of {self.world.dim}"

    @property
    def run_steps(self) -> int:
        """Steps of its training."""
        return self.steps

    @property
    def cost(self) -> float:
        """About how long it takes."""
        return self.steps * max(16, self.world.dim)

    @property
    def recipe(self) -> ManyRunsRecipe:
        """How it is trained, which jobs that are trained together share; a few hundred losses are kept."""
        steps = max(1, self.steps)
        return ManyRunsRecipe(
            network=self.network,
            objective=self.objective,
            normalisation=self.normalisation,
            slices=self.slices,
            sigma=self.sigma,
            steps=steps,
            learning_rate=self.learning_rate,
            hold=self.hold,
            weight_decay=self.weight_decay,
            log_every=max(1, steps // 400),
        )

    @property
    def run(self) -> JobRun:
        """What it has for itself in such a training."""
        return JobRun(seed=self.seed, lam=self.lam, world=self.world, batch_size=self.batch_size)


def build_job(fields: Mapping[str, Any], *, world_seed: int, where: object) -> Job:
    """A job from nested fields; the network takes the world's dimensions, the mixing `world_seed`.

    Raises
    ------
    InputError : a field that is wrong or lacks, named together with `where`.
    """
    whole = {key: dict(value) if isinstance(value, dict) else value for key, value in fields.items()}
    world, network = whole.setdefault("world", {}), whole.setdefault("network", {})
    for name, value in (("world", world), ("network", network)):
        if not isinstance(value, dict):
            raise InputError(
                where, f"{name} is {value!r}, where it has fields", f"set {name}.name and others"
            )
    mixing = world.get("mixing")
    if not isinstance(mixing, dict):
        raise InputError(where, "has no world.mixing", "say which: world.mixing.name: spiral, for example")
    world["mixing"] = {**mixing, "seed": world_seed}
    network.setdefault("name", "mlp")
    for name in ("observed_dim", "latent_dim") if network.get("name") == "mlp" else ("dim",):
        network.setdefault(name, world.get("dim"))
    if network.get("name") == "matched":
        network.setdefault("layers", mixing.get("layers"))
    if whole.get("objective") == "infonce":
        whole["lam"] = None
    job: Job = parse_model(Job, whole, where)
    if job.objective != "infonce" and job.lam is None:
        raise InputError(where, f"has no lam, which {job.objective} needs", "give a number from 0 to 1")
    return job


def groups(jobs: Sequence[Job], at_once: int) -> list[list[Job]]:
    """Jobs that can be trained together, at most `at_once` of them; no job twice.

    The groups depend on the jobs alone, so that a sweep that is called again makes the same ones.
    """
    alike: dict[str, dict[str, Job]] = {}
    for job in jobs:
        shared = job.model_dump(mode="json", exclude={"seed", "lam", "world"})
        mixing = job.world.mixing  # mixings of one kind only are applied together
        shared["world"] = [job.world.dim, mixing.name, mixing.layers]
        alike.setdefault(canonical_json(shared).decode(), {}).setdefault(job.key, job)
    found = []
    for members in alike.values():
        listed = list(members.values())
        size = max(1, min(at_once, at_once * SMALL_DIM // listed[0].world.dim))
        found += [listed[start : start + size] for start in range(0, len(listed), size)]
    return found


SMALL_DIM = 64
"""Wider worlds are trained fewer at once: their products are large by themselves."""
