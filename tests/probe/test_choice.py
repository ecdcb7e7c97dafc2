"""Choosing a setting on training episodes: what is read, what wins, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from encoders import LatentStore, load_encoder
from hardware import Recording
from probe.choice import choose_setting
from probe.cli import main
from tests.recordings import make_recording

RECIPE = {"kind": "pixels", "image_size": 8, "views": ["front", "side"]}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("choice") / "moves"
    make_recording(folder, episodes=10, frames=30)
    return folder


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    return int(stopped.value.code or 0)


def test_the_value_read_best_on_held_out_episodes_wins(recording: Path, tmp_path: Path) -> None:
    """More components read more of where the square is; scored once more with scikit-learn."""
    from sklearn.linear_model import Ridge
    from sklearn.metrics import r2_score
    from sklearn.preprocessing import StandardScaler

    opened = Recording.open(recording)
    choice = choose_setting(opened, range(8), RECIPE, "components", [1, 12], tmp_path)
    assert choice.held_out == (3, 7) and choice.fitted == (0, 1, 2, 4, 5, 6)
    assert choice.best.value == 12 and choice.best is choice.candidates[1] and choice.at_the_edge
    for candidate in choice.candidates:
        folder = tmp_path / f"components={candidate.value}"
        encoder = load_encoder(str(folder))
        store = LatentStore(folder / "latents")
        held = {opened.episode(index).sha256 for index in (8, 9)}
        assert not held & set(store.episodes(encoder.fingerprint))  # no other episode was read
        parts = {
            split: [store.read(encoder.fingerprint, opened.episode(index).sha256) for index in episodes]
            for split, episodes in (("fit", choice.fitted), ("held", choice.held_out))
        }
        x, y = (
            {split: np.concatenate([getattr(one, name) for one in read]) for split, read in parts.items()}
            for name in ("latent", "position")
        )
        scaler = StandardScaler().fit(x["fit"])
        scores = [
            r2_score(
                y["held"],
                Ridge(alpha).fit(scaler.transform(x["fit"]), y["fit"]).predict(scaler.transform(x["held"])),
            )
            for alpha in np.logspace(-3, 5, 17)
        ]
        assert min(scores) - 1e-6 <= candidate.r2.value <= max(scores) + 1e-6
    written = json.loads((tmp_path / "choice.json").read_text())
    assert written == json.loads(json.dumps(choice.to_json()))


def test_the_verb_trains_with_what_it_chose(recording: Path, tmp_path: Path, capsys) -> None:
    words = ["train", recording, "--kind", "pixels", "--set", "image_size=8", "--episodes", "0-7"]
    words += ["--to", tmp_path / "W", "--choose", "components=12,1"]
    assert run(*words) == 0
    said = capsys.readouterr().out
    assert "chosen" in said and "of 2 held-out training episodes" in said
    assert "12 is at the edge of the values tried" in said
    card = json.loads((tmp_path / "W" / "encoder.json").read_text())
    assert card["recipe"]["components"] == 12 and len(card["trained_on"]["episodes"]) == 8
    assert (tmp_path / "W" / "choice" / "choice.png").read_bytes().startswith(b"\x89PNG")
    before = (tmp_path / "W" / "choice" / "components=1" / "encoder.json").stat().st_mtime_ns
    assert run(*words, "--json") == 0  # goes on: nothing is trained again
    assert json.loads(capsys.readouterr().out)["choice"]["chosen"] == 12
    assert (tmp_path / "W" / "choice" / "components=1" / "encoder.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--choose", "components=1,2", "--episodes", "0-6"], "needs 8 training episodes and has 7"),
        (["--choose", "components"], "'components' is not KEY=V1,V2,..."),
        (["--choose", "components=4"], "needs two different values"),
        (["--choose", "components=4,4"], "needs two different values"),
        (["--choose", "components=4,-1"], "choosing components, -1"),
        (["--choose", "compnents=4,5"], "compnents"),
        (["--choose", "kind=cnn,pixels"], "kind is set already"),
    ],
)
def test_what_cannot_be_chosen_is_refused(
    recording: Path, tmp_path: Path, capsys, words: list[str], told: str
) -> None:
    assert run("train", recording, "--kind", "pixels", "--to", tmp_path / "W", *words) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "W" / "choice" / "choice.json").exists()
