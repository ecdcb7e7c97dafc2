"""`jointprobe reacher` as a user calls it: sets of each kind, their picture, and bad input."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from probe.reacher_picture import draw_pair_set, pair_correlations
from sim.reacher_draws import draw_evaluation, draw_ou, draw_trajectory
from sim.reacher_pairs import PairSet, write_pair_set
from sim.reacher_trajectories import episodes_of
from tests.probe.command_line import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of each kind."""
    to = tmp_path_factory.mktemp("reacher")
    draws = {
        "ou": draw_ou((0.3, 0.9), 40),
        "traj": draw_trajectory(episodes_of("random", 5, 0), (1, 64), 45),
        "eval": draw_evaluation(9),
    }
    for name, draw in draws.items():
        write_pair_set(draw, to / name, workers=1)
    return to


def test_ou_makes_a_set_and_called_again_opens_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "ou"
    words = ("reacher", "ou", "--rho", "0.3, 0.9", "--pairs", 40, "--to", to, "--workers", 1)
    code, out, err = run(capsys, *words, "--json")
    made: dict[str, Any] = json.loads(out)
    assert code == 0 and "rendering: 120 of 120" in err
    assert (made["condition"], made["values"], made["count"], made["states"]) == ("ou", [0.3, 0.9], 40, 120)
    np.testing.assert_array_equal(PairSet.open(to).states, draw_ou((0.3, 0.9), 40).states)
    code, out, err = run(capsys, *words)
    assert code == 0 and "rendering" not in err
    assert "ou, 40 pairs each, 120 different images" in " ".join(out.split())
    assert f"rho 0.9 correlation of pairs: shoulder {made['correlations']['0.9'][0]:.3f}" in " ".join(
        out.split()
    )
    code, _, err = run(capsys, *words, "--seed", 1)
    assert code == 2 and "holds another pair set: seed is 9999, here 1" in err


def test_traj_says_what_the_episodes_look_like(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("reacher", "traj", "--delta", "1,64", "--source", "random", "--pairs", 45)
    code, out, _ = run(capsys, *words, "--to", tmp_path / "traj", "--workers", 1)
    text = " ".join(out.split())
    assert code == 0 and "random: 5 episodes" in text and "(0.915, 0.863)" in text
    assert "largest difference from the paper's" in text and "(0: independent)" in text
    code, out, _ = run(capsys, *words, "--to", tmp_path / "traj", "--json")
    made = json.loads(out)
    assert code == 0 and made["source"]["name"] == "random" and made["source"]["used"] == 5
    assert set(made["episodes"]["autocorrelation"]) == {"1", "2", "4", "8", "16", "32", "64"}


def test_eval_makes_single_images_in_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "reacher", "eval", "--images", 9, "--to", tmp_path / "eval", "--quiet")
    assert (code, out, err) == (0, "", "")
    np.testing.assert_array_equal(PairSet.open(tmp_path / "eval").states, draw_evaluation(9).states)


def test_show_draws_every_kind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shapes = []
    for kind in ("ou", "traj", "eval"):
        code, out, _ = run(capsys, "reacher", "show", folder / kind, "--verify", "--json")
        path = Path(json.loads(out)["picture"])
        assert code == 0 and path == folder / f"{kind}.png"
        shapes.append(np.asarray(Image.open(path)).shape)
    assert shapes[0][0] > shapes[2][0] > 300  # two values take more room than one row of images
    code, out, _ = run(capsys, "reacher", "show", folder / "ou", "--to", folder / "new" / "one.png")
    assert code == 0 and (folder / "new" / "one.png").is_file() and "one.png" in " ".join(out.split())


def test_the_picture_shows_the_sets_own_images(folder: Path) -> None:
    pairs = PairSet.open(folder / "ou")
    drawn = np.asarray(Image.open(io.BytesIO(draw_pair_set(pairs))).convert("RGB")).astype(int)
    red = (drawn[..., 0] > 180) & (drawn[..., 1] < 140) & (drawn[..., 2] < 140)  # the targets
    blue = (abs(drawn - [38, 79, 118]).sum(axis=2) < 60).mean()  # the arena
    assert red.sum() > 32 * 20 and blue > 0.2


def test_correlations_are_those_of_the_stored_pairs(folder: Path) -> None:
    pairs = PairSet.open(folder / "ou")
    first, second = (pairs.states[side] for side in pairs.pairs(0.9).T)
    expected = [np.corrcoef(first[:, joint], second[:, joint])[0, 1] for joint in range(2)]
    np.testing.assert_allclose(pair_correlations(pairs)[0.9], expected, atol=1e-12)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ou", "--rho", "0.5,x", "--to", "T"], "--rho: is '0.5,x' - write numbers separated by commas"),
        (["ou", "--rho", "1.2", "--to", "T"], "--rho: 1.2 is not within [0, 1)"),
        (["ou", "--rho", ",", "--to", "T"], "--rho: names no value"),
        (["traj", "--delta", "1.5", "--source", "random", "--to", "T"], "1.5 is no whole number of rows"),
        (
            ["traj", "--delta", "300", "--source", "random", "--pairs", "10", "--to", "T"],
            "300 rows do not fit",
        ),
        (["traj", "--delta", "1", "--source", "sac", "--to", "T"], "'sac' is no policy and no file"),
        (["show", "T"], "T: holds no pair set: it has no pairs.yaml"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, "reacher", *words)
    assert code == 2 and message in err and "Traceback" not in err
    assert not any(tmp_path.iterdir())
