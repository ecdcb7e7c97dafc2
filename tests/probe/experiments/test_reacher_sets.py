"""Reacher's experiment: from fields to jobs, pair sets rendered once, a sweep to its table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hardware import InputError
from probe.cli import main
from probe.experiments.experiment import load_experiment
from probe.experiments.plan import plan
from probe.experiments.reacher_sets import build_reacher_job, make_sets
from sim.reacher_pairs import PairSet

FIELDS = {
    "condition": "ou",
    "value": 0.9,
    "pairs": 100,
    "evaluation": 50,
    "epochs": 3,
    "seed": 1,
    "held_out": 0.1,
}


def test_epochs_are_steps_of_whole_batches() -> None:
    job = build_reacher_job({**FIELDS, "recipe": {"batch_size": 20, "lam": 0.3}}, where="here")
    assert (job.recipe.steps, job.recipe.seed, job.recipe.lam) == (3 * (90 // 20), 1, 0.3)
    assert (
        build_reacher_job({**FIELDS, "steps": 7, "recipe": {"batch_size": 20}}, where="here").recipe.steps
        == 7
    )
    published = plan(load_experiment("reacher"), "published")
    main = [one for one in published if one.arm == "main"]
    assert len(main) == 14 * 4 * 3 and {one.job.recipe.steps for one in main} == {39_000}
    assert {one.arm: one.job.recipe.steps for one in published if one.arm != "main"} == {
        "no regulariser": 39_000,
        "no batch norm": 39_000,
        "untrained": 0,
    }
    assert {one.job.held_out for one in plan(load_experiment("reacher"), "theorem")} == {0.1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": 10}, "here: has 10 pairs, fewer than a batch of 256"),
        ({"recipe": 3}, "here: recipe is 3, where it has fields - set recipe.lam"),
        ({"pairs": "many"}, "has pairs many and epochs 3"),
        ({"condition": "walk"}, "field 'condition'"),
        ({"recipe": {"lambda": 1}}, "here, recipe: unknown key 'lambda' - did you mean 'lam'"),
        ({"pair": 4}, "unknown key 'pair' - did you mean 'pairs'"),
        (
            {"condition": "traj", "source": "no.h5"},
            "source: is 'no.h5', no file and no policy - write one of: random",
        ),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_reacher_job({**FIELDS, "pairs": 1000, **change}, where="here")


def test_a_set_is_rendered_once_for_all_of_its_jobs(tmp_path: Path) -> None:
    small = {**FIELDS, "pairs": 40, "evaluation": 20, "recipe": {"batch_size": 10}}
    jobs = [
        build_reacher_job({**small, "value": value, "seed": seed}, where="")
        for value in (0.5, 0.9)
        for seed in (0, 1)
    ]
    make_sets(jobs, tmp_path, workers=1)
    folders = sorted(path.name.rpartition("-")[0] for path in (tmp_path / "pairs").iterdir())
    assert folders == ["eval", "ou-40"]
    (ou,) = (tmp_path / "pairs").glob("ou-*")
    opened = PairSet.open(ou)
    assert opened.rhos == (0.5, 0.9) and len(opened) == 3 * 40
    z, z_next = (opened.states[rows] for rows in opened.pairs(0.9).T)
    assert np.corrcoef(z.ravel(), z_next.ravel())[0, 1] > 0.7


def test_a_small_sweep_ends_with_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "--set pairs=80 --set evaluation=40 --set epochs=1 --set recipe.batch_size=32 --set images=40"
    axes = ["--vary", "data=rho 0.9,delta 8", "--vary", "recipe.lam=1e-2", "--workers", "1", "--no-controls"]
    with pytest.raises(SystemExit) as stopped:
        main(
            [
                "sweep",
                "reacher",
                *words.split(),
                *axes,
                "--seeds",
                "1",
                "--to",
                str(tmp_path / "to"),
                "--json",
            ]
        )
    assert not stopped.value.code
    result = json.loads(capsys.readouterr().out)
    cells = result["experiments"][0]["results"]["cells"]
    assert result["new"] == 2 and [cell["at"]["data"] for cell in cells] == ["rho 0.9", "delta 8"]
    assert cells[0]["theirs"] == {"r2_hz": 0.904} and cells[1]["theirs"] == {}
    picked = result["experiments"][0]["results"]["chosen"]  # Table 2, of the lambda that each chose
    assert [cell["theirs"].get("r2_hz_0") for cell in picked] == [None, 0.8]
    assert [cell["numbers"] for cell in picked] == [cell["numbers"] for cell in cells]
    assert {"r2_hz", "r2_hz_own", "r2_hz_sincos", "procrustes"} <= cells[0]["numbers"].keys()
    made = {path.name for path in (tmp_path / "to/reacher-published").iterdir()}
    assert {"table.md", "reacher.png", "results.json"} <= made
