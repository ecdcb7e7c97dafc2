"""An experiment: a YAML file that says which runs there are, and the runs that come of it.

    base:        a run, as `probe.experiments.jobs.Job` has it; nested keys, or paths with dots
    as:          what the settings `published` and `theorem` change of it
    vary:        axes; every combination of their values is a run
    controls:    further runs, each a change of the base with axes of its own
    seeds:       of every run

An axis is a path and its values, `lam: [1e-2, 1e-3]`. A value that brings others with it is a mapping of
paths, `objective: [{objective: sigreg, lam: 1e-3}, {objective: infonce}]`, called what it says under the
axis's own name, or under `label`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bars.strict_yaml import read_yaml
from bars.study_checks import nearest
from hardware.errors import InputError
from hardware.schema import Name, parse_model
from probe.experiments.jobs import build_job

FOLDER = Path(__file__).parent
RESTART_STRIDE = 1000
"""Between the seeds of restarts, as published."""

LABEL = "label"
AXES_OF_FIGURES = {
    "two-d": ("mixing", "objective"),
    "grid": ("lam", "world.rho"),
    "gennorm": ("mixing", "objective", "world.source.alpha"),
    "scaling": ("world.dim", "objective"),
    "reacher": ("data", "recipe.lam"),
}
NUMBERS = ("r2_", "orthogonality_error", "procrustes", "alignment", "variance", "loss_")

Setting = Literal["published", "theorem"]
Scalar = str | float | int | bool | None
Value = Scalar | dict[str, Any]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Control(_Entry):
    """Runs that show what an experiment tests: the base with some changes, over axes of their own."""

    about: str
    change: dict[str, Any]
    vary: dict[str, list[Value]] = {}


class As(_Entry):
    """A setting: what it changes of the base, and the values of axes that cannot be in it."""

    change: dict[str, Any] = {}
    without: dict[str, list[Value]] = {}

    def kept(self, vary: Mapping[str, Sequence[Value]]) -> dict[str, list[Value]]:
        """Axes less what cannot be."""
        return {
            axis: [value for value in values if label_of(axis, value) not in self.without.get(axis, [])]
            for axis, values in vary.items()
        }


class Restarts(_Entry):
    """Several encoders of one run, of which the one with the lowest loss counts.

    `as: published` their seeds change the world and the evaluation too, and the last batch's loss decides;
    `as: theorem` the world stays, and the mean of the last tenth of the kept losses decides.
    """

    count: int = Field(ge=1, le=100)
    up_to_dim: int = Field(ge=1)


class Experiment(_Entry):
    """A file of probe/experiments."""

    schema_: Literal["jointprobe-experiment/1"] = Field(alias="schema")
    name: Name
    title: str
    about: str
    kind: Literal["worlds", "reacher"] = "worlds"
    """What its runs are: `probe.experiments.jobs` or `probe.experiments.reacher_sets`."""
    figure: Literal["two-d", "grid", "gennorm", "scaling", "reacher"] | None = None
    """The one of its own, beside those that every experiment has; it needs certain axes."""
    seeds: int = Field(ge=1, le=1000)
    base: dict[str, Any]
    as_: dict[Setting, As] = Field(alias="as")
    vary: dict[str, list[Value]]
    controls: dict[str, Control] = {}
    restarts: Restarts | None = None
    shown: list[str] = ["r2_hz_in", "r2_hz", "orthogonality_error"]
    """Numbers of the table that people read."""
    published: list[dict[str, Any]] = []
    """Numbers of the paper: axes' values, then `r2`, `orthogonality_error` and so on."""

    @model_validator(mode="after")
    def _axes_are_there(self) -> Experiment:
        lacking = [axis for axis in AXES_OF_FIGURES.get(self.figure or "", ()) if axis not in self.vary]
        if lacking:
            raise ValueError(f"figure {self.figure} needs the axes {', '.join(lacking)} under vary")
        empty = [axis for axis, values in self.vary.items() if not values]
        if empty:
            raise ValueError(f"the axis {empty[0]} has no values")
        for entry in self.published:
            strange = [key for key in entry if key not in self.vary and not key.startswith(NUMBERS)]
            if strange:
                raise ValueError(f"published has {strange[0]}, which is neither an axis nor a number")
        return self

    def varied(self, axes: Mapping[str, Sequence[Any]]) -> Experiment:
        """With other values of some axes, of which controls keep theirs; a label picks its mapping."""
        vary = dict(self.vary)
        for axis, values in axes.items():
            if axis not in vary:
                raise InputError(f"experiment {self.name}", f"does not vary {axis}", nearest(axis, vary))
            known = {label_of(axis, one): one for one in vary[axis]}
            vary[axis] = [known.get(value, value) for value in values]
            for value in vary[axis]:
                if not isinstance(value, dict) and any(isinstance(one, dict) for one in known.values()):
                    shown = ", ".join(map(str, known))
                    raise InputError(f"experiment {self.name}", f"has no {axis} {value}", f"it has {shown}")
        controls = {
            name: control.model_copy(
                update={
                    "vary": {
                        axis: [one for one in values if axis not in axes or label_of(axis, one) in axes[axis]]
                        for axis, values in control.vary.items()
                    }
                }
            )
            for name, control in self.controls.items()
        }
        return self.model_copy(update={"vary": vary, "controls": controls})


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


def experiment_names() -> list[str]:
    """Those that ship, in the paper's order."""
    return ["two-d", "grid", "gennorm", "scaling", "reacher"]


def load_experiment(name: str) -> Experiment:
    """One that ships by its name, or a YAML file.

    Raises
    ------
    InputError : no such experiment; a field that is wrong, with its name.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.is_file():
        known = experiment_names()
        raise InputError(f"experiment {name!r}", "there is none of this name", nearest(name, known))
    experiment: Experiment = parse_model(Experiment, read_yaml(path).data, path)
    return experiment


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
    InputError : a run that cannot be, with its experiment and what is wrong.
    """
    if setting not in experiment.as_:
        known = ", ".join(experiment.as_)
        raise InputError(f"experiment {experiment.name}", f"has no setting {setting}", f"it has {known}")
    arms = {"main": Control(about="", change={}, vary=experiment.vary)}
    if controls:
        arms |= experiment.controls
    repeated = range(experiment.seeds) if seeds is None else seeds
    return [
        planned
        for arm, control in arms.items()
        for at, own in _combinations(experiment.as_[setting].kept(control.vary))
        for seed in repeated
        for planned in _repetitions(
            experiment, setting, arm, at, [change or {}, control.change, own], seed, steps
        )
    ]


def _repetitions(
    experiment: Experiment,
    setting: Setting,
    arm: str,
    at: dict[str, Any],
    changes: Sequence[Mapping[str, Any]],
    seed: int,
    steps: int | None,
) -> Iterator[Planned]:
    fields: dict[str, Any] = {}
    for change in (experiment.base, experiment.as_[setting].change, *changes):
        _merge(fields, change)
    if steps is not None and fields.get("steps") != 0:
        fields["steps"] = steps
    where = f"experiment {experiment.name}, {arm} at {_shown(at)}"
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
            _merge(change, {path: one for path, one in paths.items() if path != LABEL})
        yield labels, change


def label_of(axis: str, value: Value) -> Any:
    """What a value is called: itself, or what a mapping says of itself."""
    return value.get(LABEL, value.get(axis)) if isinstance(value, dict) else value


def _merge(fields: dict[str, Any], change: Mapping[str, Any]) -> None:
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
            _merge(below, value)
            inner[last] = below
        else:
            inner[last] = value


def _shown(at: Mapping[str, Any]) -> str:
    return ", ".join(f"{axis} {value}" for axis, value in at.items()) or "its base"
