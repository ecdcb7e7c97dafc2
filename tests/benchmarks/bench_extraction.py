"""Extraction: decoding ahead in a thread beside decoding and encoding in turn; one decoding for two encoders.

    PYTHONPATH=. python tests/benchmarks/bench_extraction.py [--episodes 4] [--rounds 5]

Frames are 480 x 480, two views, compressed as the simulator stores them; every variant of a round runs once,
in turn, on the same recording. The sums of latents are printed too: variants of a kind give the same.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from encoders import load_encoder
from encoders.cnn import CnnEncoder
from encoders.extraction import Work, clips, encoded, rows_at_once
from hardware.recording import Recording
from sim.record import record_simulated

VIEWS = ("front", "wrist")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        recording = record_simulated(
            Path(folder) / "demos", motion="demos", episodes=arguments.episodes, seed=0, image_size=480
        )
        compare(recording, arguments.rounds)


def compare(recording: Recording, rounds: int) -> None:
    recipe = {"kind": "untrained", "image_size": 64, "latent_dim": 6}
    one = load_encoder("untrained:cnn", views=VIEWS, recipe=recipe, device="cpu")
    other = load_encoder("untrained:cnn", views=VIEWS, recipe={**recipe, "seed": 1}, device="cpu")
    assert isinstance(one, CnnEncoder)
    work = [Work(episode, np.arange(len(episode))) for episode in recording.aligned(VIEWS)]
    rows = sum(len(each.rows) for each in work)

    def in_turn(*encoders: object) -> list[np.ndarray]:
        out = []
        for encoder in (one, other)[: len(encoders)]:
            for each in work:
                size = rows_at_once(each.episode, one.image_size)
                for frames in clips(each.episode, each.rows, size, one.image_size):
                    out.append(encoder.encode(frames))
        return out

    def pipelined(*encoders: object) -> list[np.ndarray]:
        chosen = (one, other)[: len(encoders)]
        return [latents for each in encoded(chosen, work, image_size=one.image_size) for latents in each]

    variants: dict[str, Callable[[], list[np.ndarray]]] = {
        "one encoder, in turn": lambda: in_turn(one),
        "one encoder, decoding ahead": lambda: pipelined(one),
        "two encoders, each by itself": lambda: in_turn(one, other),
        "two encoders, one decoding": lambda: pipelined(one, other),
    }
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    sums: dict[str, float] = {}
    for _ in range(rounds):
        for name, run in variants.items():
            started = time.perf_counter()
            found = run()
            seconds[name].append(time.perf_counter() - started)
            sums[name] = float(sum(latents.sum(dtype=np.float64) for latents in found))
    print(f"{rows} rows of two views, {os.cpu_count()} cores, {torch.get_num_threads()} threads of torch")
    print(f"{'':32}{'rows/s':>8}{'ratio':>8}")
    for name, beside in zip(variants, (None, "one encoder, in turn", None, "two encoders, each by itself")):
        middle = float(np.median(seconds[name]))
        ratio = "" if beside is None else f"{np.median(np.divide(seconds[beside], seconds[name])):.2f}"
        print(f"{name:32}{rows / middle:8.0f}{ratio:>8}")
    print(f"sums of latents: {', '.join(f'{value:.6g}' for value in sums.values())}")


if __name__ == "__main__":
    main()
