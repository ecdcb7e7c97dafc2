"""An encoder of several seeds is as many networks, and what it is said of them once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bars import Study, StudyError
from bars.measurement import MeasurementPath
from bars.study_checks import path_problem

STUDY = """
schema: jointprobe-study/1
name: seeds
title: Three seeds
paper: {title: A paper}
seed: 5
data:
  moves: {recording: moves, views: [front], train: 0-3, evaluate: 4-5}
encoders:
  W1: {train: {kind: lewm-small, steps: 4}, on: moves, seeds: [0, 7]}
  W1@cls: {}
  untrained: {load: "untrained:lewm", twin_of: W1, role: control}
  pixels: {train: {kind: pixels}, on: moves, role: baseline}
claims: [{id: C1, text: It reads., primary: true}]
bars:
  - {id: B1, claim: C1, bar: W1.r2.mean - untrained.r2.mean > 0}
  - {id: B2, claim: C1, bar: W1_s7@cls.r2.mean > 0}
"""


def load(folder: Path, old: str = "", new: str = "") -> Study:
    assert old in STUDY
    (folder / "study.yaml").write_text(STUDY.replace(old, new, 1) if old else STUDY)
    return Study.load(folder)


def test_each_seed_is_a_network(tmp_path: Path) -> None:
    study = load(tmp_path)
    expected = ["W1_s0", "W1_s7", "W1_s0@cls", "W1_s7@cls", "untrained_s0", "untrained_s7", "pixels"]
    assert list(study.networks) == expected
    assert study.networks["W1_s7"].train == {"kind": "lewm-small", "steps": 4, "seed": 7}
    assert (
        study.networks["untrained_s7"].twin_of == "W1_s7" and study.networks["untrained_s7"].role == "control"
    )
    assert study.networks["pixels"] is study.encoders["pixels"]
    assert study.seeds_of("W1@cls") == ["W1_s0@cls", "W1_s7@cls"] and study.seeds_of("pixels") == []
    assert study.encoder_views("W1_s0@cls") == study.encoder_views("W1") == ["front"]
    assert study.encoder_folder("W1_s0@cls") == tmp_path / "encoders" / "W1_s0"


def test_bars_name_the_mean_or_a_seed(tmp_path: Path) -> None:
    study = load(tmp_path)
    for path in ("W1.r2.mean", "W1_s0.r2.mean", "untrained_s7.anisotropy"):
        assert path_problem(study, MeasurementPath.parse(path)) is None
    problem = path_problem(study, MeasurementPath.parse("W1_s1.r2.mean"))
    assert problem is not None and "names no encoder" in problem[0]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("seeds: [0, 7]", "seeds: [0]", "encoders.W1.seeds"),
        ("seeds: [0, 7]", "seeds: [7, 7]", "names a seed twice: 7, 7"),
        ("seeds: [0, 7]", "seeds: [0, true]", "encoders.W1.seeds"),
        ("steps: 4}", "steps: 4, seed: 1}", "has seeds beside the seed of its recipe"),
        ("W1@cls: {}", "W1@cls: {seeds: [0, 7]}", "has seeds, which are for a recipe"),
        ("twin_of: W1,", "twin_of: W1, seeds: [0, 1],", "an untrained twin has those of its twin"),
        ("  pixels:", "  W1_s7:", "has the name of one of the networks of W1, one for each seed"),
    ],
)
def test_what_is_wrong_with_seeds_is_named(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(StudyError) as refused:
        load(tmp_path, old, new)
    assert told in str(refused.value)
