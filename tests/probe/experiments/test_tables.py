"""Tables of a sweep: means over seeds by hand, restarts, theirs beside ours, files others read."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from hardware import InputError
from probe.experiments.experiment import Choose, Experiment, load_experiment
from probe.experiments.pair_checks import pair_checks
from probe.experiments.plan import plan
from probe.experiments.tables import Summary, cells, chosen, of_best_restarts, with_choice, write_tables
from tests.probe.experiments.small import SMALL, write_small


def row(mixing: str, objective: str, seed: int, r2: float | None, **more: Any) -> dict[str, Any]:
    place = {"arm": "main", "mixing": mixing, "objective": objective, "seed": seed, "restart": 0, "job": "x"}
    numbers = {} if r2 is None else {"r2_hz_in": r2, "r2_hz": r2 - 0.1}
    losses = {"loss_last": None if r2 is None else 1 - r2, "loss_tail": None if r2 is None else 1 - r2}
    return {**place, **numbers, **losses, "seconds_of_training": 1.0, "machine": {"cpu": "one"}, **more}


@pytest.fixture
def small(tmp_path: Path) -> Experiment:
    return load_experiment(str(write_small(tmp_path)))


def test_a_mean_and_its_interval() -> None:
    values = [0.5, 0.7, 0.9]
    found = Summary.of(values)
    assert found is not None
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert (found.mean, found.low, found.high) == pytest.approx((0.7, low, high))
    assert found.std == pytest.approx(np.std(values, ddof=1)) and found.values == (0.5, 0.7, 0.9)
    one = Summary.of([0.25])
    assert one == Summary(0.25, None, None, None, (0.25,)) and one.shown() == "0.250"
    assert Summary.of([]) is None


def test_cells_are_over_seeds_and_have_the_papers_number(small: Experiment) -> None:
    rows = [
        row("banana", "sigreg", 0, 0.4),
        row("banana", "sigreg", 1, 0.6),
        row("banana", "infonce", 0, 0.9),
        row("banana", "infonce", 1, None),
        {**row("", "", 0, 0.1), "arm": "untrained", "mixing": None, "objective": None},
    ]
    found = cells(small, "published", rows)
    assert [(cell.arm, cell.seeds, cell.failed) for cell in found] == [
        ("main", 2, 0),
        ("main", 2, 1),
        ("untrained", 1, 0),
    ]
    assert found[0].numbers["r2_hz_in"].mean == pytest.approx(0.5)
    assert found[0].theirs == {"r2_hz_in": 0.5} and found[1].theirs == {}
    assert found[1].numbers["r2_hz_in"].values == (0.9,)


def test_of_restarts_the_lowest_loss_counts_and_which_loss_the_setting_says() -> None:
    rows = [
        row("banana", "sigreg", 0, 0.5, loss_last=0.3, loss_tail=0.3),
        row("banana", "sigreg", 0, 0.8, loss_last=0.2, loss_tail=0.4, restart=1),
        row("banana", "sigreg", 0, None, restart=2),
        row("banana", "sigreg", 1, None),
    ]
    axes = ["mixing", "objective"]
    assert [one["restart"] for one in of_best_restarts(rows, axes, "published")] == [1, 0]
    assert [one["restart"] for one in of_best_restarts(rows, axes, "theorem")] == [0, 0]


def test_files_that_others_read(small: Experiment, tmp_path: Path) -> None:
    rows = [
        row("banana", "sigreg", 0, 0.49),
        row("banana", "sigreg", 1, 0.53),
        row("coupling", "sigreg", 0, None),
    ]
    write_tables(small, "published", rows, tmp_path / "out")
    with (tmp_path / "out/runs.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [one["r2_hz_in"] for one in read] == ["0.49", "0.53", ""]
    table = pq.read_table(tmp_path / "out/runs.parquet").to_pydict()
    assert table["r2_hz_in"] == [0.49, 0.53, None] and table["seed"] == [0, 1, 0]
    with (tmp_path / "out/summary.csv").open() as file:
        summary = {(one["mixing"], one["number"]): one for one in csv.DictReader(file)}
    assert summary["banana", "r2_hz_in"]["theirs"] == "0.5" and summary["banana", "r2_hz_in"]["n"] == "2"
    result = json.loads((tmp_path / "out/results.json").read_text())
    assert result["machines"] == [{"cpu": "one"}] and result["seconds_of_training"] == 3.0
    assert result["cells"][0]["numbers"]["r2_hz_in"]["values"] == [0.49, 0.53]
    assert (result["cells"][1]["diverged"], result["cells"][1]["numbers"]) == (1, {})
    text = (tmp_path / "out/table.md").read_text()
    assert "| 0.5 | 0.5100 [" in text and "| diverged |" in text
    assert "R2 between latents and encodings within 0.02 of theirs: 1 of 1." in text
    assert "r2_hz, theirs" not in text  # the paper has no such number


def test_a_seed_that_diverged_hides_no_other(small: Experiment, tmp_path: Path) -> None:
    rows = [row("banana", "sigreg", 0, None), row("banana", "sigreg", 1, 0.6)]
    ((cell,), _) = write_tables(small, "published", rows, tmp_path / "out")
    assert (cell.failed, cell.seeds, cell.numbers["r2_hz_in"].values) == (1, 2, (0.6,))
    assert "(1 of 2 diverged) | banana" in (tmp_path / "out/table.md").read_text()


def test_of_one_axis_the_best_value_is_chosen_at_each_place_of_the_others(
    small: Experiment, tmp_path: Path
) -> None:
    picks = Choose(
        axis="objective",
        by={"published": "r2_hz_in", "theorem": "r2_hz"},
        published=[{"mixing": "banana", "r2_hz": 0.52, "r2_zh": 0.3}],
    )
    choosing = small.model_copy(update={"choose": picks})
    rows = [
        row("banana", "sigreg", 0, 0.4, r2_zh=0.2),
        row("banana", "sigreg", 1, 0.5, r2_zh=0.4),
        row("banana", "infonce", 0, 0.6, r2_hz=0.1),
        row("banana", "infonce", 1, 0.8, r2_hz=0.3),
        row("coupling", "sigreg", 0, None),
        row("coupling", "infonce", 0, 0.1),
        {**row("banana", "sigreg", 0, 0.99), "arm": "untrained"},
    ]
    found, _ = write_tables(choosing, "published", rows, tmp_path / "out")
    by_fit, by_new = (chosen(choosing, setting, found) for setting in ("published", "theorem"))  # type: ignore[arg-type]
    assert [(one.at["mixing"], one.at["objective"]) for one in by_fit] == [
        ("banana", "infonce"),
        ("coupling", "infonce"),
    ]
    assert [one.at["objective"] for one in by_new] == ["sigreg", "infonce"]
    assert by_fit[0].theirs == {"r2_hz": 0.52, "r2_zh": 0.3} and by_fit[1].theirs == {}
    assert chosen(small, "published", found) == [] and with_choice(small, "published", found) == found
    shown = with_choice(choosing, "theorem", found)
    drawn = {tuple(one.at.values()): one.theirs for one in shown if one.arm == "main"}
    assert drawn["banana", "sigreg"] == {"r2_hz_in": 0.5, "r2_hz": 0.52, "r2_zh": 0.3}
    assert drawn["banana", "infonce"] == {}
    text = (tmp_path / "out/table.md").read_text()
    below = text[text.index("## The objective of the greatest r2_hz_in") :]
    assert "Of sigreg, infonce, by the mean over seeds." in below and "| banana | infonce |" in below
    assert "within 0.02 of theirs: 0 of 1." in below and "sigreg |" not in below
    written = json.loads((tmp_path / "out/results.json").read_text())["chosen"]
    assert [one["at"]["objective"] for one in written] == ["infonce", "infonce"]


def test_what_no_training_touches_and_what_nobody_sees_counts_for_nothing(tmp_path: Path) -> None:
    text = SMALL.replace("shown: [r2_hz_in, r2_hz]", "shown: [r2_hz_in, r2_xz]")
    text = text.replace("r2_hz_in: 0.5}", "r2_hz_in: 0.5, r2_xz: 0.7, r2_zh: 0.1}")
    experiment = load_experiment(str(write_small(tmp_path, text)))
    write_tables(experiment, "published", [row("banana", "sigreg", 0, 0.49, r2_xz=0.7, r2_zh=0.1)], tmp_path)
    assert "within 0.02 of theirs: 1 of 1." in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("axis: objectives", "choose has the axis objectives, which vary has not: did you mean objective"),
        ("by: {published: r2_h}", "choose has r2_h, which is no number of a run: did you mean r2_zh"),
        ("published: [{mixing: bananas}]", "published has mixing bananas, which no run has"),
        ("published: [{r2_hz: 1}]", "published has an entry without mixing"),
    ],
)
def test_a_choice_that_cannot_be_is_named(tmp_path: Path, change: str, message: str) -> None:
    right = {"axis": "axis: objective", "by": "by: {published: r2_hz}"}
    lines = {**right, change.partition(":")[0]: change}
    path = write_small(tmp_path, SMALL + "choose:\n" + "".join(f"  {line}\n" for line in lines.values()))
    with pytest.raises(InputError, match=message):
        load_experiment(str(path))


def test_what_training_pairs_are_is_measured_and_printed(tmp_path: Path) -> None:
    """The published ones correlate by the square of rho, and move latents that are not Gaussian."""
    gennorm = load_experiment("gennorm").varied({"mixing": ["spiral"], "world.source.alpha": [1, 2, 8]})
    found = {}
    for setting in ("published", "theorem"):
        checks = pair_checks(plan(gennorm, setting, seeds=[0]))  # type: ignore[arg-type]
        write_tables(gennorm, setting, [], tmp_path / setting, checks)  # type: ignore[arg-type]
        found[setting] = json.loads((tmp_path / setting / "results.json").read_text())["pairs"]
    assert [one["source"] for one in found["published"]] == ["gennorm 1", "gennorm 2", "gennorm 8"]
    for one in found["published"]:
        assert one["correlation"] == pytest.approx(0.95**2, abs=0.003)
        assert (one["kolmogorov"] > one["by_chance"]) == (one["source"] != "gennorm 2")
    for one in found["theorem"]:
        assert one["correlation"] == pytest.approx(0.95, abs=0.003) and one["variance"] == pytest.approx(
            1, abs=0.02
        )
        assert one["kolmogorov"] < 1.3 * one["by_chance"]
    assert "| gennorm 8 | 0.95 | published | 0.90" in (tmp_path / "published/table.md").read_text()
