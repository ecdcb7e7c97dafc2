"""`jointprobe import` and `export recording --format lewm`: what is said, and which options belong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import pytest

from tests.recordings import make_recording


def jointprobe(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "probe.cli", *words.split()]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verbs")
    make_recording(folder / "rec", episodes=2, frames=6)
    return folder


def test_out_and_in_again(folder: Path) -> None:
    options = "--anchor side --image-size 24 --episodes 1"
    done = jointprobe(f"export recording rec --format lewm --to set.h5 {options}", folder)
    assert done.returncode == 0
    assert "set.h5: 1 episodes, 6 rows, " in done.stdout and "pixels = side, front = front" in done.stdout
    assert "view front: 12 of 12" in done.stderr
    done = jointprobe("import set.h5 --to again --unit radians --joints-from proprio", folder)
    assert done.returncode == 0 and "again: 1 episodes, 6 rows, views: side, front" in done.stdout
    assert "episode 0: 1 of 1" in done.stderr
    done = jointprobe("export recording again --format lewm --to twice.h5 --json", folder)
    result = json.loads(done.stdout)
    assert (result["format"], result["file"], result["rows"]) == ("lewm", "twice.h5", 6)
    with h5py.File(folder / "twice.h5") as file:
        assert file["pixels"].shape == (6, 24, 24, 3)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            "export recording rec --format lewm --to a --task stack",
            "--task: says nothing about --format lewm",
        ),
        ("export recording rec --format lewm --to a --images", "--images: says nothing about --format lewm"),
        ("export recording rec --to a --image-size 64", "--image-size: says nothing about --format lerobot"),
        ("import rec --to a --joints-from qpos", "is in no format that can be imported"),
    ],
)
def test_options_of_another_format_are_refused(folder: Path, words: str, problem: str) -> None:
    done = jointprobe(words, folder)
    assert done.returncode == 2 and problem in done.stderr
    assert not (folder / "a").exists()
