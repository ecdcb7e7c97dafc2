"""Experiments: what a file plans, what the settings change, and errors that name what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hardware import InputError
from probe.experiments.experiment import Experiment, experiment_names, load_experiment
from probe.experiments.jobs import Job, groups
from probe.experiments.numbers import NUMBERS
from probe.experiments.plan import FIELDS, fitting, plan
from probe.experiments.reacher import ReacherJob
from sim.mixings import Mixings
from tests.probe.experiments.small import SMALL, write_small


@pytest.fixture
def small(tmp_path: Path) -> Experiment:
    return load_experiment(str(write_small(tmp_path)))


@pytest.mark.parametrize("name", experiment_names())
@pytest.mark.parametrize("setting", ["published", "theorem"])
def test_every_experiment_that_ships_can_be_planned(name: str, setting: str) -> None:
    experiment = load_experiment(name)
    planned = plan(experiment, setting)  # type: ignore[arg-type]
    main = [one for one in planned if one.arm == "main"]
    assert {one.seed for one in main} == set(range(experiment.seeds))
    if experiment.kind == "worlds":
        pairing = "published" if setting == "published" else "stationary"
        assert {one.job.world.pairs for one in planned} == {pairing}
    places = [one.at for one in main]
    known = [entry for entry in experiment.published if any(_fits(entry, at) for at in places)]
    assert len(known) == len(experiment.published) or setting == "theorem"
    assert {one.arm for one in planned} == {"main", *experiment.controls}
    if experiment.kind == "worlds":
        for group in groups(
            [one.job for one in planned], 8
        ):  # what is trained together can be mixed together
            Mixings(tuple(job.world.mixing for job in group), group[0].world.dim)
    unknown = {name for entry in experiment.published for name in entry} - set(main[0].at)
    assert unknown <= set(NUMBERS[experiment.kind])


def _fits(entry: dict[str, Any], at: dict[str, Any]) -> bool:
    return all(axis not in entry or entry[axis] == value for axis, value in at.items())


def test_the_papers_settings() -> None:
    """Of the text and the published code, as the facts of this project list them."""
    grid = plan(load_experiment("grid"), "published", controls=False)
    assert len(grid) == 9 * 7 * 3
    job = grid[0].job
    assert (job.steps, job.batch_size, job.learning_rate, job.hold, job.slices) == (
        20_000,
        256,
        3e-3,
        0.5,
        256,
    )
    assert (job.weight_decay, job.normalisation) == (0.01, "published")
    assert job.network.widths == (2, 256, 256, 256, 256, 2)  # type: ignore[union-attr]
    scaling = plan(load_experiment("scaling"), "published", controls=False)
    assert {one.job.lam for one in scaling if one.at["objective"] == "sigreg"} == {1e-6}
    restarts = {one.at["world.dim"]: one.restart for one in scaling}  # the last of each
    assert restarts == {dim: 2 if dim <= 32 else 0 for dim in restarts} and len(restarts) == 10


def test_axes_multiply_and_a_mapping_brings_others_with_it(small: Experiment) -> None:
    planned = plan(small, "published")
    assert [(one.arm, one.at, one.seed) for one in planned] == [
        *(
            ("main", {"mixing": mixing, "objective": objective}, seed)
            for mixing in ("banana", "coupling")
            for objective in ("sigreg", "infonce")
            for seed in (0, 1)
        ),
        ("untrained", {}, 0),
        ("untrained", {}, 1),
    ]
    jobs = [one.job for one in planned]
    assert [job.lam for job in jobs] == [0.1, 0.1, None, None, 0.1, 0.1, None, None, 0.0, 0.0]
    assert [job.network.name for job in jobs] == ["mlp"] * 4 + ["matched"] * 4 + ["mlp"] * 2
    assert all(job.world.mixing.seed == job.seed for job in jobs)
    assert [job.steps for job in plan_jobs(small, steps=7)] == [7] * 8 + [0] * 2


def plan_jobs(experiment: Experiment, **options: int) -> list[Job]:
    return [one.job for one in plan(experiment, "published", **options)]  # type: ignore[arg-type]


def test_the_settings_differ_where_they_say(small: Experiment) -> None:
    published, theorem = (plan(small, setting)[0].job for setting in ("published", "theorem"))  # type: ignore[arg-type]
    ours, theirs = published.model_dump(), theorem.model_dump()
    assert {name for name in ours if ours[name] != theirs[name]} == {"world", "weight_decay"}
    assert {name for name in ours["world"] if ours["world"][name] != theirs["world"][name]} == {"pairs"}


def test_restarts_change_the_world_as_published_only(small: Experiment) -> None:
    restarted = small.model_copy(update={"restarts": load_experiment("scaling").restarts})
    published = [one for one in plan(restarted, "published") if one.at.get("objective") == "sigreg"]
    assert [(one.job.seed, one.job.world.mixing.seed) for one in published[:3]] == [
        (0, 0),
        (1000, 1000),
        (2000, 2000),
    ]
    theorem = plan(restarted, "theorem")[:3]
    assert [(one.job.seed, one.job.world.mixing.seed) for one in theorem] == [(0, 0), (1000, 0), (2000, 0)]
    assert [one.restart for one in plan(restarted, "published") if one.arm == "untrained"] == [0, 0]


def test_other_values_of_an_axis(small: Experiment) -> None:
    planned = plan(small.varied({"mixing": ["coupling"], "objective": ["infonce"]}), "published", seeds=[5])
    assert [(one.arm, one.seed) for one in planned] == [("main", 5), ("untrained", 5)]
    assert planned[0].job.network.name == "matched"
    with pytest.raises(InputError, match="does not vary mixin - did you mean mixing"):
        small.varied({"mixin": ["banana"]})
    with pytest.raises(InputError, match="has no mixing apple - it has banana, coupling"):
        small.varied({"mixing": ["apple"]})
    scaling = load_experiment("scaling").varied({"world.dim": [2, 6]})
    dims = {one.at["world.dim"] for one in plan(scaling, "published")}
    assert dims == {2, 6}  # controls too, where they have them


def test_the_key_is_of_all_that_decides_and_of_nothing_else(small: Experiment) -> None:
    job = plan_jobs(small)[0]
    assert job.key == Job.model_validate(job.model_dump()).key and len(job.key) == 24
    changed = {"seed": 3, "lam": 0.2, "steps": 31, "samples": 201, "batch_size": 17, "sigma": 2.0}
    others = [job.model_copy(update={name: value}).key for name, value in changed.items()]
    other_world = job.model_copy(update={"world": job.world.model_copy(update={"rho": 0.8})})
    assert len({job.key, *others, other_world.key}) == len(changed) + 2


def test_groups_hold_jobs_that_can_be_trained_together(small: Experiment) -> None:
    jobs = plan_jobs(small)
    found = groups([*jobs, jobs[0]], at_once=3)
    assert sorted(job.key for group in found for job in group) == sorted(job.key for job in jobs)
    assert max(map(len, found)) <= 3
    for group in found:
        assert len({(job.objective, job.steps, job.network.model_dump_json()) for job in group}) == 1
    wide = [one.job for one in plan(load_experiment("scaling"), "published", seeds=[0, 1])]
    assert all(len(group) == 1 for group in groups(wide, 8) if group[0].world.dim == 1024)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "lam: 0.1",
            "lamb: 0.1",
            "main at mixing banana, objective sigreg: unknown key 'lamb' - did you mean",
        ),
        ("lam: 0.1", "lam: 3", "field 'lam'"),
        ("{objective: sigreg, lam: 0.1}", "{objective: sigreg}", "has no lam, which sigreg needs"),
        ("rho: 0.9", "rho: 1.5", "field 'world.rho'"),
        ("dim: 2", "dim: 3", "is a mixing of two latents, not of 3"),
        ("name: gaussian", "name: gennorm, alpha: 0.5", ""),
        ("layers: 2", "layer: 2", "unknown key 'world.mixing.layer' - did you mean 'layers'"),
        ("hidden: [8]", "hiden: [8]", "unknown key 'network.mlp.hiden' - did you mean 'hidden'"),
        ("figure: two-d", "figure: pie", "field 'figure'"),
        ("figure: two-d", "figure: grid", "figure grid needs the axes lam, world.rho under vary"),
        ("name: small", "name: ../small", "field 'name'"),
        (
            "- {mixing: banana, objective: sigreg,",
            "- {mixing: banana, objective: sigreg, r2_hz_inn: 0.5,",
            "published has r2_hz_inn, which is neither an axis nor a number of a run: did you mean r2_hz_in",
        ),
        (
            "- {mixing: banana, objective: sigreg,",
            "- {mixing: banana,",
            "published has an entry without objective",
        ),
        (
            "- {mixing: banana, objective: sigreg,",
            "- {mixin: banana,",
            "published has an entry without mixing",
        ),
        (
            "- {mixing: banana, objective: sigreg,",
            "- {mixing: apple, objective: sigreg,",
            "published has mixing apple, which no run has: it has banana, coupling",
        ),
        ("r2_hz_in: 0.5", "r2_hz_in: high", "published has r2_hz_in 'high', which is no number"),
        ("r2_hz_in: 0.5", "r2_hz_in: true", "published has r2_hz_in True, which is no number"),
        ("shown: [r2_hz_in", "shown: [r2_in", "shown has r2_in, which is no number of a run: did you mean"),
        ("  untrained:", "  main:", "a control cannot be called main"),
        ("label: coupling, ", "label: banana, ", "vary: mixing has two values that are called banana"),
        ("label: coupling, ", "", "vary: mixing has a value that needs a name"),
        ("label: coupling, ", "label: [1], ", "vary: mixing has a value that needs a name"),
        (
            "weight_decay: 0}}",
            "weight_decay: 0}, without: {mixing: [bananas]}}",
            "theorem, without has mixing bananas, which no run has: it has banana, coupling",
        ),
        (
            "weight_decay: 0}}",
            "weight_decay: 0}, without: {mixed: [banana]}}",
            "without has mixed banana, which no run has: there is no such axis",
        ),
        (
            "network: {name: mlp, hidden: [8]}}",
            "network: mlp}",
            "network is 'mlp', where it has fields - set network.name",
        ),
        ("  published: {change", "  publish: {change", "as"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SMALL
    path = write_small(tmp_path, SMALL.replace(old, new, 1))
    if not message:  # independent draws are fine where pairs need not be stationary
        plan(load_experiment(str(path)), "published")
        with pytest.raises(InputError, match="have independent draws only"):
            plan(load_experiment(str(path)), "theorem")
        return
    with pytest.raises(InputError, match=message):
        plan(load_experiment(str(path)), "published")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 3}, "takes seed from the seeds - say which: --seeds 0,3,7"),
        ({"world.mixing.seed": 3}, "takes world.mixing.seed from the seeds"),
        ({"lam": 0.3}, "varies objective, which decides lam - say which values: --vary objective="),
        ({"network.hidden": [4]}, "varies mixing, which decides network.hidden"),
        ({"world.mixing.name": "spiral"}, "varies mixing, which decides world.mixing.name"),
        ({"world": "flat"}, "varies mixing, which decides world"),
    ],
)
def test_a_change_that_would_be_undone_is_refused(
    small: Experiment, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        plan(small, "published", change=change)
    grid = load_experiment("grid")
    with pytest.raises(
        InputError, match=r"world is 'flat', where it has fields of its own - set world.source"
    ):
        plan(grid.model_copy(update={"vary": {"lam": [0.1]}}), "published", change={"world": "flat"})


def test_an_axis_that_does_nothing_is_refused() -> None:
    message = (
        "has the same run at lam 0.5, world.rho 0.3 and at lam 0.1, world.rho 0.3 - give one value of lam"
    )
    with pytest.raises(InputError, match=message):
        plan(load_experiment("grid"), "published", change={"objective": "infonce"})


def test_a_setting_that_leaves_no_run_is_refused() -> None:
    heavy = load_experiment("gennorm").varied({"world.source.alpha": [0.5]})
    assert plan(heavy, "published")
    with pytest.raises(
        InputError, match=r"has no run left as theorem, which leaves out values of world.source"
    ):
        plan(heavy, "theorem")


def test_a_value_given_twice_is_refused(small: Experiment) -> None:
    for axis, values in (("mixing", ["banana", "banana"]), ("objective", ["infonce", "infonce"])):
        with pytest.raises(InputError, match=f"{axis} has two values that are called"):
            small.varied({axis: values})
    with pytest.raises(InputError, match="lam has two values that are called 1"):
        load_experiment("grid").varied({"lam": [1, 1.0]})
    with pytest.raises(InputError, match="lam has nan, which is no number"):
        load_experiment("grid").varied({"lam": [float("nan")]})


def test_controls_follow_an_axis_that_they_share() -> None:
    def arms(dims: list[int]) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for one in plan(load_experiment("scaling").varied({"world.dim": dims}), "published", seeds=[0]):
            found.setdefault(one.arm, set()).add(one.at["world.dim"])
        return found

    some = arms([2, 4, 16])
    assert some == {
        "main": {2, 4, 16},
        "no regulariser": {2, 16},
        "untrained": {2, 16},
        "wider kernel": {2, 16},
    }
    # none of theirs: they take the new ones, less the one whose values bring a width with them
    assert arms([4, 6]) == {"main": {4, 6}, "no regulariser": {4, 6}, "untrained": {4, 6}}


def test_all_experiments_take_what_fits_them() -> None:
    every = [load_experiment(name) for name in experiment_names()]
    change = {"batch_size": 64, "epochs": 2}
    fits = {
        one.name: (axes, its) for one, axes, its in fitting(every, {"world.dim": [4], "lam": [0.1]}, change)
    }
    assert fits["scaling"] == ({"world.dim": [4]}, {"batch_size": 64})
    assert fits["grid"] == ({"lam": [0.1]}, {"batch_size": 64}) and fits["reacher"] == ({}, {"epochs": 2})
    of_job = {*ReacherJob.model_fields} - {"kind", "condition", "value"}  # an axis gives these
    assert FIELDS["reacher"] == of_job | {"epochs", "steps"} and FIELDS["worlds"] == {*Job.model_fields}
    with pytest.raises(InputError, match=r"--vary wrold.dim: fits no experiment"):
        fitting(every, {"wrold.dim": [4]}, {})
    with pytest.raises(InputError, match="--set batchsize: fits no experiment"):
        fitting(every, {}, {"batchsize": 4})


def test_an_experiment_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.yaml: there is no such file"):
        load_experiment(str(tmp_path / "none.yaml"))
    with pytest.raises(InputError, match="there is none of this name - did you mean scaling"):
        load_experiment("scalin")
