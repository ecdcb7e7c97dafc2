"""An experiment: a YAML file that says which runs there are, and what the paper has found in them.

    base:        a run, as `probe.experiments.jobs.Job` has it; nested keys, or paths with dots
    as:          what the settings `published` and `theorem` change of it
    vary:        axes; every combination of their values is a run
    controls:    further runs, each a change of the base with axes of its own
    seeds:       of every run
    published:   the paper's numbers: a value of each axis, then numbers by name
    choose:      an axis whose best value is taken at each place of the others, as the paper does with lambda

An axis is a path and its values, `lam: [1e-2, 1e-3]`. A value that brings others with it is a mapping of
paths, `objective: [{objective: sigreg, lam: 1e-3}, {objective: infonce}]`, called what it says under the
axis's own name, or under `label`.

`probe.experiments.plan` makes the runs of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bars.strict_yaml import read_yaml
from bars.study_checks import nearest
from hardware.errors import InputError
from hardware.schema import Name, parse_model
from probe.experiments.numbers import NUMBERS, Kind

FOLDER = Path(__file__).parent
MAIN = "main"
"""The arm of the runs that are not a control's."""

LABEL = "label"
AXES_OF_FIGURES = {
    "two-d": ("mixing", "objective"),
    "grid": ("lam", "world.rho"),
    "gennorm": ("mixing", "objective", "world.source.alpha"),
    "scaling": ("world.dim", "objective"),
    "reacher": ("data", "recipe.lam"),
}
MOST_SEEDS = 1000

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


class Choose(_Entry):
    """At each place of the other axes, the value of one whose mean over seeds is the greatest.

    Parameters
    ----------
    axis : whose value is chosen.
    by : the number that decides, in each setting.
    published : the paper's numbers of what it chose: a value of each other axis, then numbers by name.
    """

    axis: str
    by: dict[Setting, str]
    published: list[dict[str, Any]] = []


class Experiment(_Entry):
    """A file of probe/experiments."""

    schema_: Literal["jointprobe-experiment/1"] = Field(alias="schema")
    name: Name
    title: str
    about: str
    kind: Kind = "worlds"
    """What its runs are: `probe.experiments.jobs` or `probe.experiments.reacher_sets`."""
    figure: Literal["two-d", "grid", "gennorm", "scaling", "reacher"] | None = None
    """The one of its own, beside those that every experiment has; it needs certain axes."""
    seeds: int = Field(ge=1, le=MOST_SEEDS)
    base: dict[str, Any]
    as_: dict[Setting, As] = Field(alias="as", min_length=1)
    vary: dict[str, list[Value]]
    controls: dict[str, Control] = {}
    restarts: Restarts | None = None
    shown: list[str] = ["r2_hz_in", "r2_hz", "orthogonality_error"]
    """Numbers of the table that people read."""
    published: list[dict[str, Any]] = []
    choose: Choose | None = None

    @model_validator(mode="after")
    def _axes_are_there(self) -> Experiment:
        lacking = [axis for axis in AXES_OF_FIGURES.get(self.figure or "", ()) if axis not in self.vary]
        if lacking:
            raise ValueError(f"figure {self.figure} needs the axes {', '.join(lacking)} under vary")
        if MAIN in self.controls:
            raise ValueError(f"a control cannot be called {MAIN}, as what is no control is")
        for axis, values in self.vary.items():
            _check_labels(f"vary: {axis}", axis, values)
        for name, control in self.controls.items():
            for axis, values in control.vary.items():
                _check_labels(f"controls, {name}: {axis}", axis, values)
        for setting, as_ in self.as_.items():
            for axis, values in as_.without.items():
                for value in values:
                    _check_label(f"{setting}, without", axis, value, self._labels(axis))
        return self

    @model_validator(mode="after")
    def _numbers_are_there(self) -> Experiment:
        for name in self.shown:
            self._check_number("shown", name)
        for entry in self.published:
            self._check_published(entry, [*self.vary])
        if self.choose is not None:
            axis = self.choose.axis
            if axis not in self.vary:
                near = nearest(axis, self.vary)
                raise ValueError(f"choose has the axis {axis}, which vary has not: {near}")
            for name in self.choose.by.values():
                self._check_number("choose", name)
            for entry in self.choose.published:
                self._check_published(entry, [one for one in self.vary if one != axis])
        return self

    def _labels(self, axis: str) -> list[Any]:
        """All values that an axis has, in the runs and in their controls."""
        every = [self.vary, *(control.vary for control in self.controls.values())]
        return [label_of(axis, value) for vary in every for value in vary.get(axis, [])]

    def _check_number(self, where: str, name: str, axes: Sequence[str] = ()) -> None:
        known = NUMBERS[self.kind]
        if name not in known:
            what = "neither an axis nor a number" if axes else "no number"
            raise ValueError(
                f"{where} has {name}, which is {what} of a run: {nearest(name, [*axes, *known])}"
            )

    def _check_published(self, entry: Mapping[str, Any], axes: Sequence[str]) -> None:
        for axis in axes:
            if axis not in entry:
                raise ValueError(f"published has an entry without {axis}: {dict(entry)}")
            _check_label("published", axis, entry[axis], [label_of(axis, one) for one in self.vary[axis]])
        for name, value in entry.items():
            if name in axes:
                continue
            self._check_number("published", name, axes)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ValueError(f"published has {name} {value!r}, which is no number")

    def varied(self, axes: Mapping[str, Sequence[Any]]) -> Experiment:
        """With other values of some axes; a label picks its mapping.

        Controls keep those of their own values that are among them. Where none is, they take the new ones,
        unless theirs bring others with them.

        Raises
        ------
        InputError : an axis that there is not, a value given twice, a label that there is not.
        """
        where = f"experiment {self.name}"
        vary = dict(self.vary)
        for axis, values in axes.items():
            if axis not in vary:
                raise InputError(where, f"does not vary {axis}", nearest(axis, vary))
            known = {label_of(axis, one): one for one in vary[axis]}
            vary[axis] = [known.get(value, value) for value in values]
            for value in vary[axis]:
                if not isinstance(value, dict) and any(isinstance(one, dict) for one in known.values()):
                    shown = ", ".join(map(str, known))
                    raise InputError(where, f"has no {axis} {value}", f"it has {shown}")
            try:
                _check_labels(axis, axis, vary[axis])
            except ValueError as error:
                raise InputError(where, str(error), "give each value once") from None
        controls = {
            name: control.model_copy(
                update={
                    "vary": {axis: _narrowed(axis, values, axes) for axis, values in control.vary.items()}
                }
            )
            for name, control in self.controls.items()
        }
        return self.model_copy(update={"vary": vary, "controls": controls})


def _narrowed(axis: str, values: Sequence[Value], axes: Mapping[str, Sequence[Any]]) -> list[Value]:
    if axis not in axes:
        return list(values)
    kept = [one for one in values if label_of(axis, one) in axes[axis]]
    plain = not any(isinstance(one, dict) for one in values)
    return kept or (list(axes[axis]) if plain else [])


def label_of(axis: str, value: Value) -> Any:
    """What a value is called: itself, or what a mapping says of itself."""
    return value.get(LABEL, value.get(axis)) if isinstance(value, dict) else value


def _check_labels(where: str, axis: str, values: Sequence[Value]) -> None:
    """ValueError where an axis has no value, one without a name, or two of one name."""
    if not values:
        raise ValueError(f"{where} has no values")
    labels = [label_of(axis, value) for value in values]
    for label, value in zip(labels, values):
        if isinstance(label, (list, dict)) or (label is None and isinstance(value, dict)):
            raise ValueError(f"{where} has a value that needs a name: {value}; give it a label")
        if isinstance(label, float) and not math.isfinite(label):
            raise ValueError(f"{where} has {label}, which is no number")
    twice = [label for number, label in enumerate(labels) if label in labels[:number]]
    if twice:
        raise ValueError(f"{where} has two values that are called {twice[0]}")


def _check_label(where: str, axis: str, label: Any, labels: Sequence[Any]) -> None:
    if label not in labels:
        known = f"it has {', '.join(map(str, labels))}" if labels else "there is no such axis"
        raise ValueError(f"{where} has {axis} {label}, which no run has: {known}")


def experiment_names() -> list[str]:
    """Those that ship, in the paper's order."""
    return ["two-d", "grid", "gennorm", "scaling", "reacher"]


def load_experiment(name: str) -> Experiment:
    """One that ships by its name, or a YAML file.

    Raises
    ------
    InputError : no such experiment; a field that is wrong, with its name.
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise InputError(path, "there is no such file", "give an experiment's name, or a YAML file")
    elif name in experiment_names():
        path = FOLDER / f"{name}.yaml"
    else:
        raise InputError(
            f"experiment {name!r}", "there is none of this name", nearest(name, experiment_names())
        )
    experiment: Experiment = parse_model(Experiment, read_yaml(path).data, path)
    return experiment
