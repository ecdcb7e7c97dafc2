"""The whole job on the simulated arm, at a size that a test can afford."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bars import Ledger, Results, template
from hardware import InputError
from probe.demo import STUDIES, DemoSettings, run_demo, study_text
from probe.run import verify_study_folder

SMALL = DemoSettings(episodes=6, train=4, walk_seconds=16, steps=3, image_size=64)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    said: list[str] = []
    study, results = run_demo(
        tmp_path_factory.mktemp("demo"), settings=SMALL, progress=lambda done, total, what: said.append(what)
    )
    assert len(said) > 50, "progress is visible all the time"
    return study, results


def test_every_number_of_the_two_by_two_table_is_measured(demo: tuple[Path, Results]) -> None:
    measured = demo[1].by_path
    for encoder in ("W1", "W1walk", "untrained", "pixels", "pixelswalk"):
        for path in (f"{encoder}.r2.mean", f"{encoder}/walk.r2.mean", f"{encoder}/walk.r2.gripper"):
            assert measured[path].value is not None and measured[path].n_episodes == 2, path
    assert measured["W1walk/walk.r2.mean - W1/walk.r2.mean"].value == pytest.approx(
        measured["W1walk/walk.r2.mean"].value - measured["W1/walk.r2.mean"].value
    )
    rows = {name: data.train_rows for name, data in demo[1].data.items()}
    assert rows["demos"] == rows["walk"], "the comparison is made with equal frames"


def test_the_freeze_comes_before_anything_is_trained(demo: tuple[Path, Results]) -> None:
    events = [event.event for event in Ledger.open(demo[0]).events]
    assert events[0] == "registered" and events[1] == "trained"
    assert demo[1].encoders["dinov2"].unavailable and not demo[1].exploratory


def test_the_card_is_whole_and_verifies(demo: tuple[Path, Results]) -> None:
    card = (demo[0] / "card.md").read_text()
    for text in ("not tested here", "too few episodes", "W1walk", "Ornstein-Uhlenbeck", "Compute"):
        assert text in card, text
    assert (demo[0] / "card.html").stat().st_size > 10_000
    assert verify_study_folder(demo[0]).ok


def test_a_second_run_goes_on_and_repeats_every_number(demo: tuple[Path, Results], tmp_path: Path) -> None:
    root = tmp_path / "demo"
    shutil.copytree(demo[0].parents[1], root)
    _, again = run_demo(root, settings=SMALL)
    assert again.measurements == demo[1].measurements
    with pytest.raises(InputError, match="settings"):
        run_demo(root, settings=DemoSettings(episodes=6, train=4, walk_seconds=16, steps=3, image_size=96))


@pytest.mark.parametrize("name", STUDIES)
def test_the_full_size_is_the_template_itself(name: str) -> None:
    assert study_text(STUDIES[name]) == template(name)
    small = study_text(replace(STUDIES[name], episodes=6, train=4, steps=3))
    assert small.count("train: 0-3\n") == small.count("evaluate: 4-5\n") == 2
    assert set(re.findall(r"steps: (\d+)", small)) == {"3"}


@pytest.mark.slow
def test_the_study_of_world_models_has_every_number_that_it_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a size that says nothing about the arm, and without frozen networks, whose checks take minutes."""
    less = template("world-models").replace("seeds: [0, 1, 2]", "seeds: [0, 1]")
    less = less.replace("permutations: 200", "permutations: 20\n  refits: 20\n  mlp: false")
    less = less.replace("import:encoders.efficientnet_lite0:build", "transformers:nobody/has-this")
    monkeypatch.setattr("bars.template", lambda name: less)
    small = replace(STUDIES["world-models"], episodes=6, train=4, walk_seconds=16, steps=3, image_size=64)
    study, results = run_demo(tmp_path, settings=small)
    measured = results.by_path
    for encoder in ("W1", "W1@cls", "W1walk", "CNN", "CNNwalk", "untrained", "CNNuntrained", "pixels"):
        for path in (f"{encoder}.r2.mean", f"{encoder}/walk.r2.mean", f"{encoder}/walk.anisotropy"):
            assert measured[path].value is not None, path
    for metric in ("r2.mean", "anisotropy", "g1b.own.top1", "g1b.own_anchor.top1", "g1b.own_ridge.top1"):
        seeds = [measured[f"W1walk_s{seed}/walk.{metric}"].value for seed in range(2)]
        assert measured[f"W1walk/walk.{metric}"].value == pytest.approx(sum(seeds) / 2), metric
    judged = Ledger.open(study).last("judged").body["bars"]
    assert {"B9", "B10"} <= {name for name, bar in judged.items() if bar["state"] == "not tested"}
    assert "outside of what the theorem speaks of" in (study / "card.md").read_text()
    assert verify_study_folder(study).ok
