"""What README.md shows must work as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bars import Study, template
from encoders import load_encoder, parse_recipe
from tests.recordings import make_recording

README = Path(__file__).parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_the_study_in_thirty_lines_is_a_study(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    (tmp_path / "study.yaml").write_text(text)
    study = Study.load(tmp_path)
    assert study.data["demos"].evaluate_episodes == list(range(24, 36))
    parse_recipe({**study.encoders["W1"].train, "views": ["front", "wrist"]})


def test_the_encoder_of_ones_own_is_one(tmp_path: Path) -> None:
    text = next(block for block in blocks("python") if "class Mine" in block)
    (tmp_path / "mine.py").write_text(text)
    encoder = load_encoder("import:mine.py:build", views=["front", "wrist"], base=tmp_path)
    assert encoder.encode(np.zeros((4, 2, 8, 8, 3), np.uint8)).shape == (4, 6)


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = next(block for block in blocks("python") if "ridge_probe" in block)
    make_recording(tmp_path / "recordings" / "bowls")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = {
        "latents": rng.standard_normal((1440, 4)),
        "joints": rng.standard_normal((1440, 2)),
        "actions": rng.standard_normal((1440, 2)),
        "time_s": np.tile(np.arange(40) * 0.1, 36),
    }
    exec(text, {**rows, "episodes": np.repeat(np.arange(36), 40)})


def test_the_first_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (README.parent / "Makefile").read_text()
    commands = re.findall(r"^make ([a-z-]+)", "\n".join(blocks("console")), flags=re.MULTILINE)
    assert commands[:2] == ["demo", "test"]
    assert all(f"\n{command}:" in makefile for command in commands)


def test_every_verb_that_is_shown_exists() -> None:
    from probe.cli import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    shown = set(re.findall(r"^jointprobe ([a-z]+)", "\n".join(blocks("console")), flags=re.MULTILINE))
    assert shown and shown <= known


def test_templates_in_the_readme_ship() -> None:
    names = re.findall(r"bars/templates/([a-z]+)\.yaml", README.read_text())
    assert names and all(template(name) for name in names)
