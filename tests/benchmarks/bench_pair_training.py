"""A training step of the paper's CNN on Reacher's pairs: the published loop beside ours, in the same run.

    PYTHONPATH=. python tests/benchmarks/bench_pair_training.py [--threads 2] [--rounds 5] [--pairs 4000]

A batch is 256 pairs, 512 images of 64 x 64. The published side is its loop in plain torch: images normalised
beforehand and kept in float32, contiguous, a data loader of four workers that hands out both members, the
direct formula of SIGReg. Each side has a process of its own, one computes at a time, they take turns within a
round. Printed: medians over rounds of milliseconds a step by the clock, how many times faster than the
published loop, and the memory that a process holds beyond its libraries. Only ratios travel between machines.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from encoders.cnn import Cnn
from encoders.pair_training import PairRecipe, train_on_pairs
from encoders.recipes import seeded
from encoders.training_loop import Reporting

BATCH, SLICES, STEPS = 256, 256, 6
SIDES = ("published, 4 workers", "published, no worker", "ours, fp32", "ours, bf16")


class Stop(Exception):
    """Raised when enough steps are timed."""


def some_images(pairs: int) -> np.ndarray:
    """Two images a pair, of a dot somewhere, uint8."""
    rng = np.random.default_rng(0)
    images = np.full((2 * pairs, 64, 64, 3), 90, np.uint8)
    for image, (y, x) in zip(images, rng.integers(8, 56, (2 * pairs, 2))):
        image[y - 6 : y + 6, x - 6 : x + 6] = (200, 60, 30)
    return images


class Published:
    """The published loop."""

    def __init__(self, images: np.ndarray, workers: int) -> None:
        both = images.reshape(-1, 2, 64, 64, 3)
        kept = [torch.from_numpy(np.ascontiguousarray(both[:, member])) for member in (0, 1)]  # uint8, kept
        floats = [one.permute(0, 3, 1, 2).float() / 255 for one in kept]
        mean, std = floats[0].mean(dim=(0, 2, 3)), floats[0].std(dim=(0, 2, 3))
        normed = [((one - mean.view(3, 1, 1)) / std.view(3, 1, 1)).contiguous() for one in floats]
        labels = torch.zeros(len(kept[0]), 2)
        self.kept = kept
        data = TensorDataset(*normed, labels, labels)
        self.loader = DataLoader(data, BATCH, shuffle=True, num_workers=workers, drop_last=True)
        self.network = Cnn(1, 2, generator=seeded(0, 0)).train()
        self.optimiser = torch.optim.AdamW(self.network.parameters(), lr=3e-3, weight_decay=1e-4)
        self.t = torch.linspace(0, 3, 17)
        self.target = torch.exp(-self.t.square() / 2)
        trapezoid = torch.full((17,), 2 * 3 / 16)
        trapezoid[[0, -1]] = 3 / 16
        self.weight = trapezoid * self.target

    def steps(self) -> float:
        """Milliseconds a step; the first batch, for which workers are forked, is not counted."""
        batches = iter(self.loader)
        self.step(next(batches))
        start = time.perf_counter()
        for _ in range(STEPS):
            self.step(next(batches))
        return (time.perf_counter() - start) / STEPS * 1e3

    def step(self, batch: list[torch.Tensor]) -> None:
        z = self.network([torch.cat(batch[:2])])
        directions = nn.functional.normalize(torch.randn(2, SLICES), dim=0)
        angle = (z @ directions).unsqueeze(-1) * self.t
        distance = (angle.cos().mean(0) - self.target).square() + angle.sin().mean(0).square()
        both = z.reshape(2, BATCH, 2)
        aligned = (both.mean(0) - both).square().mean()
        loss = 0.05 * (distance @ self.weight).mean() * len(z) + 0.95 * aligned
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()


def ours(images: np.ndarray, precision: str) -> float:
    """Milliseconds a step of `train_on_pairs`, without its start."""
    stamps: list[float] = []

    def told(done: int, total: int, what: str) -> None:
        stamps.append(time.perf_counter())
        if done == STEPS + 1:
            raise Stop

    pairs = np.arange(len(images)).reshape(-1, 2)
    recipe = PairRecipe(precision=precision, batch_size=BATCH, slices=SLICES)
    with tempfile.TemporaryDirectory() as folder:
        try:
            train_on_pairs(
                images, pairs, recipe, folder, data="bench", device="cpu", reporting=Reporting(told)
            )
        except Stop:
            pass
    return (stamps[-1] - stamps[0]) / STEPS * 1e3


def memory() -> float:
    """The most that this process has held, MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1e3


def side(name: str, pairs: int, threads: int, pipe: Connection) -> None:
    torch.set_num_threads(threads)
    before = memory()
    images = some_images(pairs)
    if name.startswith("published"):
        loop = Published(images, 4 if "4" in name else 0)
        del images
        measure = loop.steps
    else:
        measure = lambda: ours(images, name.rpartition(" ")[2])  # noqa: E731
    while pipe.recv():
        pipe.send(measure())
    pipe.send(memory() - before)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=4000)
    options = parser.parse_args()
    pipes, processes = [], []
    for name in SIDES:
        here, there = mp.Pipe()
        arguments = (name, options.pairs, options.threads, there)
        process = mp.get_context("spawn").Process(target=side, args=arguments)
        process.start()
        pipes.append(here)
        processes.append(process)
    taken = np.zeros((options.rounds + 1, len(SIDES)))
    for row in taken:
        for place, pipe in enumerate(pipes):
            pipe.send(True)
            row[place] = pipe.recv()
    print(f"{options.threads} threads, {options.pairs} pairs, batches of {BATCH}")
    print("| side | ms a step | faster than published | MB held |")
    print("|---|---|---|---|")
    for place, name in enumerate(SIDES):
        pipes[place].send(None)
        held = pipes[place].recv()
        processes[place].join()
        ratio = np.median(taken[1:, 0] / taken[1:, place])
        print(f"| {name} | {np.median(taken[1:, place]):.0f} | {ratio:.2f}x | {held:.0f} |")


if __name__ == "__main__":
    main()
