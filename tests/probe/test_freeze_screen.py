"""What a freeze says that it binds, and what can come of each bar; the last screens of probe and report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from probe.cli import main
from tests.probe.studies import STUDY, make_study

Run = Callable[..., tuple[int, str]]
MANY = STUDY.replace("train: 0-3, evaluate: 4-5", "train: 0-1, evaluate: 2-11")
MORE = """  - {id: B3, claim: C1, bar: pixels.width.rankme > 2}
  - {id: B4, claim: C1, bar: "equals(W1.r2.mean, 0.5, margin 0.1)"}
  - {id: B5, claim: C1, bar: dinov2.r2.mean - W1.r2.mean > 0}
  - {id: B6, claim: C1, bar: W1/later.r2.mean > 0}
"""
ABSENT = """  dinov2: {load: "transformers:nobody/nothing", optional: true}
probe:"""
LATER = """  later: {recording: ../../recordings/later, views: [front, side], train: 0-1, evaluate: 2-11}
encoders:"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> tuple[int, str]:
        with pytest.raises(SystemExit) as stopped:
            main([str(word) for word in words])
        return int(stopped.value.code or 0), capsys.readouterr().out

    return call


def said(out: str) -> str:
    return " ".join(out.split())


def test_few_episodes_leave_every_bar_undecided_and_freeze_says_so(run: Run, tmp_path: Path) -> None:
    study = make_study(tmp_path)
    code, out = run("freeze", study)
    text = said(out)
    assert code == 0, out
    order = [
        "data",
        "moves",
        "encoders",
        "W1",
        "untrained",
        "pixels",
        "claims",
        "C1",
        "B1",
        "B2",
        "study.yaml",
    ]
    places = [text.index(f" {word} ") for word in order]
    assert places == sorted(places)
    assert "train on 4 episodes (120 rows), evaluate on 2 episodes (60 rows)" in text
    assert "cnn, trained on moves by its recipe" in text and "untrained twin of W1, by its recipe" in text
    assert "B1 pixels.r2.mean > 0.2 undecided whatever comes: 2 evaluation episodes, 10 needed" in text
    assert f"next: jointprobe probe {study}" in out.replace("\n", "")


def test_each_bar_is_told_what_can_come_of_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    text = MANY.replace("probe:", ABSENT).replace("encoders:", LATER) + MORE
    study = make_study(tmp_path, text, episodes=12)
    code, out = run("freeze", study, "--json")
    assert code == 0, out
    bound = json.loads(out)["bound"]
    bars = {bar["bar"]: (bar["outlook"], bar["why"]) for bar in bound["bars"]}
    effects = json.loads(out)["body"]["power"]["moves"]
    least = effects["smallest_effect_on_mean_r2"]["0.3"]
    assert bars["B1"] == (
        "open",
        f"firm in 80% of such studies if it truly lies {least:.2f} or more from 0.2",
    )
    assert bars["B2"][1].endswith("from -5 (by their R2)")
    assert bars["B3"] == ("undecided", "width is measured without an interval")
    assert bars["B4"] == ("open", "met where the whole interval lies in 0.4 .. 0.6")
    assert bars["B5"] == ("not tested", "dinov2 is not here, unless its weights come before the probe")
    assert bars["B6"] == ("not tested", "later is not recorded, unless it is before the probe")
    assert bound["data"]["later"]["evaluate"] is None
    assert bound["encoders"]["dinov2"].startswith("not available: ")
    assert bound["data"]["moves"] == {
        "train": {"episodes": 2, "rows": 60},
        "evaluate": {"episodes": 10, "rows": 300},
        "untestable": {},
    }


def test_verdict_first_and_last_and_the_command_that_checks_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = STUDY.replace("pixels.r2.mean > 0.2", "W1.r2.mean < 0.8")
    make_study(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    assert run("freeze", "studies/small", "-q")[0] == 0
    code, out = run("probe", "studies/small")
    assert code == 0 and "○ undecided (would" in out
    caveat = "W1 is not shown to carry more about the joints than"
    assert caveat in out and "here: jointprobe report studies/small" in said(out)
    code, out = run("report", "studies/small")
    lines = [line for line in out.splitlines() if line.strip()]
    assert code == 0 and "○ undecided (would" in lines[1] and caveat in lines[2]
    end = next(index for index, line in enumerate(lines) if line.startswith("┗"))
    assert lines[-end - 1 :] == lines[: end + 1]  # the banner, once more
    assert "check it with: jointprobe verify studies/small" in said(out)
    assert run("verify", "studies/small")[0] == 0
