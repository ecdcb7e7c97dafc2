"""From an experiment to its runs: every combination of its axes, of its controls' axes, and the seeds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hardware.errors import InputError
from probe.experiments.experiment import LABEL, MAIN, Control, Experiment, Setting, Value, label_of
from probe.experiments.jobs import Job, build_job

RESTART_STRIDE = 1000
"""Between the seeds of restarts, as published."""

FIELDS = {
    "worlds": {*Job.model_fields},
    "reacher": {"pairs", "evaluation", "epochs", "steps", "source", "held_out", "images", "recipe"},
}
"""What can be set of a run, by the kind of its experiment."""

OF_SEEDS = ("seed", "recipe.seed", "world.mixing.seed")


@dataclass(frozen=True)
class Planned:
    """A run of an experiment and where it stands in it.

    Attributes
    ----------
    job : what is trained and evaluated, by the kind of its experiment.
    arm : `main`, or a control's name.
    at : the value of each axis.
    seed, restart : which repetition.
    """

    job: Any
    arm: str
    at: dict[str, Any]
    seed: int
    restart: int


def plan(
    experiment: Experiment,
    setting: Setting,
    *,
    seeds: Sequence[int] | None = None,
    steps: int | None = None,
    change: Mapping[str, Any] | None = None,
    controls: bool = True,
) -> list[Planned]:
    """Every run of an experiment.

    Parameters
    ----------
    setting : `published` or `theorem`, wherever the published code departs from the theorem.
    seeds : those to repeat with; None takes 0, 1, ... as many as the experiment has.
    steps : of every training that has any; None keeps the experiment's.
    change : paths and values that the base has instead of its own.
    controls : with the further runs.

    Raises
    ------
    InputError : a run that cannot be, with its experiment and what is wrong; a change that seeds or an axis
        would undo; two places of the axes that are one and the same run; no run at all.
    """
    where = f"experiment {experiment.name}"
    if setting not in experiment.as_:
        raise InputError(where, f"has no setting {setting}", f"it has {', '.join(experiment.as_)}")
    change = change or {}
    _require_free(experiment, change)
    arms = {MAIN: Control(about="", change={}, vary=experiment.vary)}
    if controls:
        arms |= experiment.controls
    repeated = range(experiment.seeds) if seeds is None else seeds
    found = [
        planned
        for arm, control in arms.items()
        for at, own in _combinations(experiment.as_[setting].kept(control.vary))
        for seed in repeated
        for planned in _repetitions(experiment, setting, arm, at, [change, control.change, own], seed, steps)
    ]
    if not any(planned.arm == MAIN for planned in found):
        gone = ", ".join(experiment.as_[setting].without)
        raise InputError(where, f"has no run left as {setting}, which leaves out values of {gone}")
    _require_different(where, found)
    return found


def fitting(
    experiments: Sequence[Experiment], axes: Mapping[str, Any], change: Mapping[str, Any]
) -> list[tuple[Experiment, dict[str, Any], dict[str, Any]]]:
    """Each experiment with those other values of axes, and those changes, that can be meant for it.

    Raises
    ------
    InputError : what fits none of them.
    """
    fits = []
    for experiment in experiments:
        fields = FIELDS[experiment.kind]
        its = {path: value for path, value in change.items() if path.partition(".")[0] in fields}
        fits.append((experiment, {axis: axes[axis] for axis in axes if axis in experiment.vary}, its))
    for option, name, used in (
        *(("--vary", axis, any(axis in its for _, its, _ in fits)) for axis in axes),
        *(("--set", path, any(path in its for _, _, its in fits)) for path in change),
    ):
        if not used:
            raise InputError(f"{option} {name}", "fits no experiment", "see: jointprobe sweep all --plan")
    return fits


def _require_free(experiment: Experiment, change: Mapping[str, Any]) -> None:
    """InputError where a change would be undone by what each run has for itself."""
    where = f"experiment {experiment.name}"
    for path in change:
        if path in OF_SEEDS:
            raise InputError(where, f"takes {path} from the seeds", "say which: --seeds 0,3,7")
        for axis, values in experiment.vary.items():
            decided = {leaf for value in values for leaf in _leaves(axis, value)}
            if any(_overlap(path, leaf) for leaf in decided):
                raise InputError(
                    where, f"varies {axis}, which decides {path}", f"say which values: --vary {axis}=..."
                )


def _leaves(axis: str, value: Value) -> Iterator[str]:
    """The paths that a value of an axis sets."""
    if not isinstance(value, dict):
        yield axis
        return
    for path, one in value.items():
        if isinstance(one, dict):
            yield from (f"{path}.{below}" for below in _leaves("", one))
        elif path != LABEL:
            yield path


def _overlap(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.")


def _require_different(where: str, planned: Sequence[Planned]) -> None:
    """InputError where two places of one arm are one run: their difference would be none."""
    places: dict[tuple[str, str], Planned] = {}
    for one in planned:
        other = places.setdefault((one.arm, one.job.key), one)
        if other.at != one.at:
            apart = [axis for axis in one.at if one.at[axis] != other.at.get(axis)]
            raise InputError(
                f"{where}, {one.arm}",
                f"has the same run at {_shown(other.at)} and at {_shown(one.at)}",
                f"give one value of {' and '.join(apart)}, or change what makes it have no effect",
            )


def _repetitions(
    experiment: Experiment,
    setting: Setting,
    arm: str,
    at: dict[str, Any],
    changes: Sequence[Mapping[str, Any]],
    seed: int,
    steps: int | None,
) -> Iterator[Planned]:
    where = f"experiment {experiment.name}, {arm} at {_shown(at)}"
    fields: dict[str, Any] = {}
    for change in (experiment.base, experiment.as_[setting].change, *changes):
        _merge(fields, change, where)
    if steps is not None and fields.get("steps") != 0:
        fields["steps"] = steps
    if experiment.kind == "reacher":
        from probe.experiments.reacher_sets import build_reacher_job  # loads the simulator

        yield Planned(build_reacher_job({**fields, "seed": seed}, where=where), arm, at, seed, 0)
        return
    first = build_job({**fields, "seed": seed}, world_seed=seed, where=where)
    yield Planned(first, arm, at, seed, 0)
    restarts = experiment.restarts
    if restarts is None or first.world.dim > restarts.up_to_dim or first.steps == 0:
        return
    for restart in range(1, restarts.count):
        own = seed + RESTART_STRIDE * restart
        world = own if setting == "published" else seed
        yield Planned(
            build_job({**fields, "seed": own}, world_seed=world, where=where), arm, at, seed, restart
        )


def _combinations(vary: Mapping[str, Sequence[Value]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each combination of the axes' values: its labels, and the change of the base that it is."""
    for values in itertools.product(*vary.values()):
        labels = {axis: label_of(axis, value) for axis, value in zip(vary, values)}
        change: dict[str, Any] = {}
        for axis, value in zip(vary, values):
            paths = value if isinstance(value, dict) else {axis: value}
            _merge(change, {path: one for path, one in paths.items() if path != LABEL}, axis)
        yield labels, change


def _merge(fields: dict[str, Any], change: Mapping[str, Any], where: str) -> None:
    """Take a change in: mappings are merged, paths with dots lead into them, the rest replaces."""
    for path, value in change.items():
        *outer, last = path.split(".")
        inner = fields
        for name in outer:
            if not isinstance(inner.get(name), dict):
                inner[name] = {}
            inner = inner[name]
        if isinstance(value, Mapping):
            below = dict(inner[last]) if isinstance(inner.get(last), dict) else {}
            _merge(below, value, where)
            inner[last] = below
        elif isinstance(inner.get(last), dict):
            keys = ", ".join(f"{path}.{key}" for key in inner[last])
            raise InputError(where, f"{path} is {value!r}, where it has fields of its own", f"set {keys}")
        else:
            inner[last] = value


def _shown(at: Mapping[str, Any]) -> str:
    return ", ".join(f"{axis} {value}" for axis, value in at.items()) or "its base"
