"""A small study on a small recording, for the tests of a study's life."""

from __future__ import annotations

from pathlib import Path

from tests.recordings import make_recording

STUDY = """
schema: jointprobe-study/1
name: small
title: A small study
summary: Two joints move a square; pixels see it.
paper: {title: A paper, authors: [Nobody]}
seed: 5
data:
  moves: {recording: ../../recordings/moves, views: [front, side], joints: all, train: 0-3, evaluate: 4-5}
encoders:
  W1:
    train: {kind: cnn, image_size: 32, latent_dim: 4, steps: 4, batch_size: 8, stride_s: 0.3, pairs: stride}
    on: moves
  untrained: {load: "untrained:cnn", twin_of: W1, role: control}
  pixels: {train: {kind: pixels, image_size: 8, components: 8}, on: moves, role: baseline}
probe: {resamples: 200, permutations: 20, refits: 20, mlp: false, learning_curve: false}
claims:
  - {id: C1, text: It reads., primary: true}
bars:
  - {id: B1, claim: C1, bar: pixels.r2.mean > 0.2}
  - {id: B2, claim: C1, bar: pixels.r2.mean - W1.r2.mean > -5}
"""


def make_study(root: Path, text: str = STUDY, episodes: int = 6) -> Path:
    """A study folder beside its recording; nothing is frozen yet."""
    make_recording(root / "recordings" / "moves", episodes=episodes, frames=30)
    study = root / "studies" / "small"
    study.mkdir(parents=True)
    (study / "study.yaml").write_text(text)
    return study
