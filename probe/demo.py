"""`jointprobe demo`: the whole job on the simulated arm, with nothing prepared and nothing left out.

Records demonstrations and the random walk, registers the study before anything is trained, trains the same
recipe on both, probes every encoder on both, and judges. Every number of its card comes from that run. There
are two studies: `demo`, of minutes, and `world-models`, of an hour or more: LeWM and the theorem's own loss,
three seeds each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import bars
from bars import Results
from hardware.errors import InputError
from hardware.recording import Progress
from probe.run import freeze_study, probe_study
from sim.record import record_simulated

VIEWS = ("front", "wrist")


@dataclass(frozen=True)
class DemoSettings:
    """A study on the simulated arm and its sizes; `STUDIES` has those that ship.

    Attributes
    ----------
    study : name of the shipped template; also of its folder.
    episodes, train : episodes a motion, of which the first `train` are trained on and the others evaluated.
    fps : frames a second of each camera.
    walk_seconds : length of a walk episode; demonstrations end by themselves.
    steps : of every training; None keeps the template's.
    """

    study: str = "demo"
    episodes: int = 36
    train: int = 24
    fps: float = 10.0
    image_size: int = 96
    walk_seconds: float = 30.0
    steps: int | None = None
    seed: int = 0


STUDIES = {
    "demo": DemoSettings(),
    "world-models": DemoSettings("world-models", episodes=60, train=48, walk_seconds=12.0, seed=20),
}


def run_demo(
    to: str | Path,
    *,
    mjcf: str | Path | None = None,
    settings: DemoSettings = DemoSettings(),
    progress: Progress | None = None,
) -> tuple[Path, Results]:
    """Record, freeze, train, probe and judge in the folder `to`; goes on where an earlier run stopped.

    Returns
    -------
    The study's folder and its results.
    """
    to = Path(to)
    motions: tuple[Literal["demos", "walk"], ...] = ("demos", "walk")
    for number, motion in enumerate(motions):
        record_simulated(
            to / "recordings" / motion,
            motion=motion,
            episodes=settings.episodes,
            seed=settings.seed + number,
            views=VIEWS,
            fps=settings.fps,
            image_size=settings.image_size,
            mjcf=mjcf,
            seconds=settings.walk_seconds if motion == "walk" else None,
            progress=progress,
        )
    study = to / "studies" / settings.study
    text = study_text(settings)
    if not (study / "study.yaml").is_file():
        study.mkdir(parents=True, exist_ok=True)
        bars.write_whole(study / "study.yaml", text.encode())
    elif (study / "study.yaml").read_text(encoding="utf-8") != text:
        raise InputError(
            study / "study.yaml", "is not the study of this demo", "choose another folder with --to"
        )
    if not bars.is_registered(study):
        freeze_study(study, progress=progress)
    return study, probe_study(study, progress=progress)


def study_text(settings: DemoSettings) -> str:
    """The shipped template, with the split and the steps of other sizes written in."""
    text = bars.template(settings.study)
    train, evaluate = f"0-{settings.train - 1}", f"{settings.train}-{settings.episodes - 1}"
    text = re.sub(r"(?m)^    train: [\d-]+$", f"    train: {train}", text)
    text = re.sub(r"(?m)^    evaluate: [\d-]+$", f"    evaluate: {evaluate}", text)
    return text if settings.steps is None else re.sub(r"\bsteps: \d+", f"steps: {settings.steps}", text)
