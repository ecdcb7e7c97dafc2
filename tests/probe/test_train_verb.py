"""`jointprobe train` of a world model as a user calls it: its figure, its warnings, its errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bars import Results
from encoders import load_encoder
from probe.cli import main
from tests.probe.studies import make_study
from tests.recordings import make_recording

Run = Callable[..., tuple[int, str, str]]

TINY = {
    "image_size": 16,
    "patch_size": 8,
    "vit_width": 16,
    "vit_depth": 1,
    "latent_dim": 4,
    "projector_width": 32,
    "history": 2,
    "action_block": 2,
    "predictor_depth": 1,
    "predictor_heads": 2,
    "predictor_head_dim": 4,
    "predictor_mlp": 8,
    "slices": 16,
    "steps": 100,
    "batch_size": 8,
    "learning_rate": 0.003,
}
WORDS = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, " ".join(err.split())

    return call


@pytest.fixture(scope="module")
def moves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_recording(tmp_path_factory.mktemp("verb") / "moves", episodes=3, frames=40).folder


def test_a_lewm_is_trained_drawn_and_loaded(run: Run, moves: Path, tmp_path: Path) -> None:
    words = ("train", moves, "--kind", "lewm-small", "--episodes", "0-1", "--to", tmp_path / "w", *WORDS)
    code, out, err = run(*words, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["warnings"] == [] and "collapse" not in err
    assert Path(result["figure"]).read_bytes()[:4] == b"\x89PNG"
    encoder = load_encoder(f"lewm:{tmp_path / 'w'}", views=["front", "side"], device="cpu")
    assert encoder.fingerprint == result["fingerprint"] and encoder.width == 4
    card = json.loads((tmp_path / "w" / "encoder.json").read_text())
    assert card["trained_on"]["episodes"] == [0, 1] and card["recipe"]["steps"] == 100


def test_a_collapse_is_told_on_stderr_and_in_the_result(run: Run, moves: Path, tmp_path: Path) -> None:
    words = ("train", moves, "--kind", "lewm-small", "--to", tmp_path / "w", *WORDS, "--set", "lam=0")
    code, out, err = run(*words, "--json")
    assert code == 0
    (warning,) = json.loads(out)["warnings"]
    assert "the latents collapse at step" in warning and "raise lam (now 0)" in warning
    assert err.count("the latents collapse at step") == 1 and "CollapseWarning" not in err
    code, out, err = run(*words, "--json")  # finished: loaded, and the result still says it
    assert code == 0 and json.loads(out)["warnings"] == [warning] and "the latents collapse" not in err


def test_what_cannot_be_trained_is_one_line(run: Run, moves: Path, tmp_path: Path) -> None:
    to = ("--to", tmp_path / "w")
    code, _, err = run("train", moves, "--kind", "lewm-small", *to, "--set", "image_size=60", "--quiet")
    assert code == 2 and "image_size 60 is no multiple of patch_size 8: write 56" in err
    code, _, err = run("train", moves, "--kind", "lewm", "--episodes", "0", *to, "--quiet")
    assert code == 2 and "give 25 window(s) of 16 rows, fewer than one batch of 128" in err
    code, _, err = run("train", moves, "--kind", "lewm-smal", *to, "--quiet")
    assert code == 2 and "did you mean 'lewm-small'?" in err
    assert not (tmp_path / "w").exists()


STUDY_OF_LEWM = f"""
schema: jointprobe-study/1
name: small
title: A small study
summary: Two joints move a square; a world model sees it.
paper: {{title: A paper, authors: [Nobody]}}
seed: 5
data:
  moves: {{recording: ../../recordings/moves, views: [front, side], joints: all, train: 0-3, evaluate: 4-5}}
encoders:
  W1: {{train: {json.dumps({"kind": "lewm-small", **TINY, "steps": 20})}, on: moves}}
  "W1@cls": {{role: control}}
  "W1@front": {{role: control}}
  untrained: {{load: "untrained:lewm", twin_of: W1, role: control}}
probe: {{resamples: 200, permutations: 20, refits: 20, mlp: false, learning_curve: false}}
ranking: {{horizon: 4, candidates: 4, beside: [2]}}
claims:
  - {{id: C1, text: It reads., primary: true}}
bars:
  - {{id: B1, claim: C1, bar: W1.r2.mean - untrained.r2.mean > -5}}
  - {{id: B2, claim: C1, bar: W1@cls.r2.mean > -5}}
  - {{id: B3, claim: C1, bar: W1@front.r2.mean > -5}}
"""


def test_a_study_trains_a_lewm_and_its_untrained_twin(run: Run, tmp_path: Path) -> None:
    study = make_study(tmp_path, STUDY_OF_LEWM)
    for verb in ("freeze", "probe"):
        code, _, err = run(verb, study, "--json")
        assert code == 0, err
    measured = Results.load(study).by_path
    paths = ("W1.r2.mean", "W1@cls.r2.mean", "W1@front.r2.mean", "untrained.r2.mean")
    assert len({measured[path].value for path in paths}) == 4
    assert (study / "encoders" / "W1" / "training.png").is_file()
    assert (
        json.loads((study / "encoders" / "untrained" / "encoder.json").read_text())["kind"]
        == "untrained:lewm"
    )
    code, _, err = run("verify", study, "--quiet")
    assert code == 0, err


def test_a_twin_of_another_kind_is_refused_before_the_freeze(run: Run, tmp_path: Path) -> None:
    study = make_study(tmp_path, STUDY_OF_LEWM.replace("untrained:lewm", "untrained:cnn"))
    code, _, err = run("freeze", study)
    assert code == 2 and "W1 is a lewm-small - write untrained:lewm" in err


def test_a_recipe_without_windows_is_refused_before_the_freeze(run: Run, tmp_path: Path) -> None:
    study = make_study(tmp_path, STUDY_OF_LEWM.replace('"action_block": 2', '"action_block": 15'))
    code, _, err = run("freeze", study)
    assert code == 2 and "fewer than one batch of 8" in err
