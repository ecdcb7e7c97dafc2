"""A small experiment that trains in a second."""

from __future__ import annotations

from pathlib import Path

SMALL = """
schema: jointprobe-experiment/1
name: small
title: A small experiment
about: Two mixings and two objectives of a tiny network.
figure: two-d
seeds: 2
base:
  world: {source: {name: gaussian}, dim: 2, rho: 0.9}
  steps: 30
  batch_size: 16
  slices: 8
  samples: 200
as:
  published: {change: {world.pairs: published}}
  theorem: {change: {world.pairs: stationary, weight_decay: 0}}
vary:
  mixing:
    - {label: banana, world.mixing.name: banana, network: {name: mlp, hidden: [8]}}
    - {label: coupling, world.mixing: {name: coupling, layers: 2}, network.name: matched}
  objective:
    - {objective: sigreg, lam: 0.1}
    - {objective: infonce}
controls:
  untrained:
    about: before any training
    change:
      world.mixing.name: banana
      network: {name: mlp, hidden: [8]}
      objective: sigreg
      lam: 0
      steps: 0
shown: [r2_hz_in, r2_hz]
published:
  - {mixing: banana, objective: sigreg, r2_hz_in: 0.5}
"""


def write_small(folder: Path, text: str = SMALL) -> Path:
    """The experiment as a file."""
    path = folder / "small.yaml"
    path.write_text(text)
    return path
