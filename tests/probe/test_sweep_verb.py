"""`jointprobe sweep` as a user calls it: a small one from nothing to tables and figures, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.probe.command_line import run
from tests.probe.experiments.small import SMALL, write_small


def test_a_sweep_ends_with_tables_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, to = write_small(tmp_path), tmp_path / "sweeps"
    words = ("sweep", path, "--to", to, "--workers", 1)
    code, out, _ = run(capsys, *words, "--plan")
    assert code == 0 and "10 runs, 10 to do, 240 run-steps" in " ".join(out.split()) and not to.exists()
    code, out, _ = run(capsys, *words, "--as", "both", "--json")
    assert code == 0
    result: dict[str, Any] = json.loads(out)
    assert result["new"] == 20 and [one["as"] for one in result["experiments"]] == ["published", "theorem"]
    first = result["experiments"][0]["results"]["cells"][0]
    assert first["at"] == {"mixing": "banana", "objective": "sigreg"} and first["theirs"] == {"r2_hz_in": 0.5}
    assert len(first["numbers"]["r2_hz"]["values"]) == 2
    for setting in ("published", "theorem"):
        made = {one.name for one in (to / f"small-{setting}").iterdir()}
        tables = {"runs.csv", "runs.parquet", "summary.csv", "results.json", "table.md"}
        assert made == tables | {"two-d.png", "bound.png", "predictivity.png"}
    code, out, _ = run(capsys, *words)
    assert code == 0 and "0 new results of 10" in " ".join(out.split())
    said = " ".join(run(capsys, *words, "--plan")[1].split())
    assert "varies: mixing=banana,coupling; objective=sigreg,infonce control untrained: nothing" in said
    code, out, _ = run(capsys, *words, "--seeds", "7,", "--plan", "--json")
    (planned,) = json.loads(out)["plan"]
    assert planned["seeds"] == [7] and planned["arms"]["untrained"] == {}
    code, out, _ = run(capsys, *words, "--seeds", "7", "--vary", "mixing=banana", "--no-controls", "--plan")
    assert code == 0 and "14 runs, 10 to do" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "experiment 'nothing': there is none of this name"),
        (["grid", "--as", "it is"], "--as: is 'it is' - write published, theorem or both"),
        (["grid", "--seeds", "0"], "--seeds: is '0' - write how many (5), or which (0,3,7, or 3, for one)"),
        (["grid", "--seeds", "1,1"], "--seeds: names a seed twice"),
        (["grid", "--vary", "lam"], "--vary: is 'lam' - write AXIS=VALUE,VALUE"),
        (["grid", "--vary", "lam=1,,2"], "has an empty value"),
        (["grid", "--vary", "lam=1", "--vary", "lam=2"], "gives lam twice"),
        (["grid", "--seeds", "1001"], "--seeds: asks for 1001 seeds, more than 1,000 - name one as 3,"),
        (["grid", "--seeds", "5000000000,"], "name seeds below 2,147,483,648"),
        (["two-d", "--set", "objective=infonce"], "varies objective, which decides objective"),
        (["grid", "--set", "network=mlp"], "network is 'mlp', where it has fields - set network.name"),
        (["all", "--vary", "dims=3"], "--vary dims: fits no experiment - see: jointprobe sweep all --plan"),
        (["grid", "--dims", "4"], "experiment grid: does not vary world.dim"),
        (["grid", "--vary", "lam=2"], "field 'lam'"),
        (["scaling", "--dims", "3"], "takes latents in two halves, and 3 is odd"),
        (
            ["two-d", "--vary", "mixing=apple"],
            "has no mixing apple - it has spiral, banana, sinusoid, coupling",
        ),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, out, err = run(capsys, "sweep", *words, "--to", tmp_path / "sweeps")
    assert code == 2 and out == "" and message in err
    assert err.count("jointprobe:") == 1 and not (tmp_path / "sweeps").exists()


def test_all_is_every_experiment_with_the_options_that_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--set", "batch_size=64", "--dims", "4,6", "--vary", "mixing=banana", "--set", "epochs=2")
    code, out, _ = run(capsys, "sweep", "all", *words, "--plan", "--json", "--to", tmp_path)
    plans = {one["experiment"]: one["arms"] for one in json.loads(out)["plan"]}
    assert code == 0 and list(plans) == ["two-d", "grid", "gennorm", "scaling", "reacher"]
    assert plans["scaling"]["main"]["world.dim"] == [4, 6] and plans["two-d"]["main"]["mixing"] == ["banana"]
    code, out, _ = run(capsys, "sweep", "scaling", "--dims", "4", "--plan", "--to", tmp_path)
    said = " ".join(out.split())
    assert "control no regulariser: world.dim=4" in said
    assert "scaling (as: published): no run of the control 'wider kernel' at these values" in said


def test_a_wrong_file_is_named_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_small(tmp_path, SMALL.replace("vary:\n  mixing", "vary: [\n  mixing", 1))
    code, _, err = run(capsys, "sweep", path, "--to", tmp_path / "sweeps")
    assert code == 2 and str(path) in err and "line" in err
