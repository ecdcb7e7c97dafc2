"""A step of one run: the published way one by one, ours alone, ours batched, in the same run.

    python tests/benchmarks/bench_many_runs.py [--runs 1 4 8 21 63] [--threads 1 2]
        [--rounds 5] [--objective sigreg]

The size is the published 2-D experiment: 256 pairs of a spiral, 2-256-256-256-256-2, 256 slices, 607 MFLOP of
matrix products a step. The sequential side is that experiment's loop in plain torch: default AdamW, the
direct formula of SIGReg, and all losses computed whether used or not. Each side has a process of its own, one
computes at a time, they take turns within a round, and medians over rounds are printed: milliseconds of a
run-step by the clock and of processor, how many times faster than the sequential loop by either, and the rate
of the matrix products (by the clock) beside the best rate that one large product reached in the same rounds.
Only ratios travel between machines, and where others compute at the same time only those by processor do.
Both sides, the sequential one more, suffer from memory that is handed back to the system and taken again at
each step: MALLOC_MMAP_THRESHOLD_=8589934592 and MALLOC_TRIM_THRESHOLD_=17179869184 in the environment show
by how much.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import resource
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from multiprocessing.connection import Connection

import numpy as np
import torch
from torch import nn

from encoders import run_losses
from encoders.many_runs import ManyRunsRecipe, RunSpec, train_many
from encoders.mlp import MlpArchitecture
from encoders.recipes import seeded

PAIRS, SLICES, RHO = 256, 256, 0.95
WEIGHTS = 2 * 256 + 3 * 256 * 256 + 256 * 2
MFLOP = 6 * 2 * PAIRS * WEIGHTS / 1e6  # forward, and backward to weights and activations
LAM = {"sigreg": 1e-3, "whitening": 0.5, "infonce": None}


def spiral(z: torch.Tensor) -> torch.Tensor:
    """g(z) = R(pi |z|) z, (..., 2) to (..., 2)."""
    angle = torch.pi * z.norm(dim=-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([cos * z[..., 0] - sin * z[..., 1], sin * z[..., 0] + cos * z[..., 1]], dim=-1)


class Sequential:
    """The published loop for one run."""

    def __init__(self, objective: str) -> None:
        self.objective = objective
        torch.manual_seed(0)
        widths = MlpArchitecture().widths
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.GELU()]
        self.network = nn.Sequential(*layers[:-1])
        self.optimiser = torch.optim.AdamW(self.network.parameters(), lr=3e-3)
        self.t = torch.linspace(0, 3, 17)
        self.target = torch.exp(-self.t.square() / 2)
        trapezoid = torch.full((17,), 2 * 3 / 16)
        trapezoid[[0, -1]] = 3 / 16
        self.weight = trapezoid * self.target

    def step(self) -> None:
        z = RHO * torch.randn(1, PAIRS, 2) + (1 - RHO**2) ** 0.5 * torch.randn(2, PAIRS, 2)
        h = self.network(spiral(z).reshape(-1, 2))
        align = (h.reshape(2, PAIRS, 2).mean(0) - h.reshape(2, PAIRS, 2)).square().mean()
        sigreg = self.sigreg(h)
        whitening = (torch.cov(h.T) - torch.eye(2)).square().mean()
        if self.objective == "sigreg":
            loss = 1e-3 * sigreg + (1 - 1e-3) * align
        elif self.objective == "whitening":
            loss = 0.5 * whitening + 0.5 * align
        else:
            loss = self.infonce(*h.reshape(2, PAIRS, 2))
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def sigreg(self, h: torch.Tensor) -> torch.Tensor:
        directions = nn.functional.normalize(torch.randn(2, SLICES), dim=0)
        angle = (h @ directions).unsqueeze(-1) * self.t
        distance = (angle.cos().mean(0) - self.target).square() + angle.sin().mean(0).square()
        return (distance @ self.weight).mean() * len(h)

    def infonce(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        similarity = -0.5 * (first.unsqueeze(1) - second.unsqueeze(0)).square().sum(-1)
        against = similarity.logsumexp(0) + similarity.logsumexp(1)
        return (0.5 * against - similarity.diag()).mean()


def pairs(runs: Sequence[RunSpec], step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The spiral as the published loop draws it, from each run's own seed."""
    drawn = torch.stack([torch.randn(3, PAIRS, 2, generator=seeded(run.seed, 1, step)) for run in runs])
    x = spiral(RHO * drawn[:, :1] + (1 - RHO**2) ** 0.5 * drawn[:, 1:])
    return x[:, 0], x[:, 1]


def now() -> np.ndarray:
    """Seconds by the clock, and of processor over all threads, which other programs do not lengthen."""
    return np.array([time.perf_counter(), time.process_time()])


def batched(runs: int, steps: int, objective: str) -> np.ndarray:
    """Milliseconds of a run-step in `train_many`, without its start."""
    stamps: list[np.ndarray] = []
    recipe = ManyRunsRecipe(objective=objective, normalisation="published", slices=SLICES, steps=steps + 2)
    grid = [RunSpec(seed=seed, lam=LAM[objective]) for seed in range(runs)]
    told = lambda *_: stamps.append(now())  # noqa: E731
    train_many(grid, pairs, recipe, device="cpu", at_once=runs, progress=told)
    return (stamps[-1] - stamps[1]) / steps / runs * 1e3


def clock(job: Callable[[], object], times: int) -> np.ndarray:
    """Milliseconds of one call, the first one not counted."""
    job()
    start = now()
    for _ in range(times):
        job()
    return (now() - start) / times * 1e3


def sigreg_alone(runs: int) -> np.ndarray:
    """Milliseconds of SIGReg's value and gradient, a run."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(runs, 2, PAIRS, 2, generator=generator).requires_grad_()
    directions = nn.functional.normalize(torch.randn(runs, 2, SLICES, generator=generator), dim=1)
    job = lambda: torch.autograd.grad(run_losses.sigreg(z, directions, "published").sum(), z)  # noqa: E731
    return clock(job, max(2, 24 // runs)) / runs


def side(what: str, runs: int, objective: str, threads: int, pipe: Connection) -> None:
    """A process of its own: measures once for every message, until None; sends its peak memory last."""
    torch.set_num_threads(threads)
    if what == "product":
        square = torch.randn(2048, 2048)
        measure = lambda: clock(lambda: square @ square, 3)  # noqa: E731
    elif what == "sequential":
        sequential = Sequential(objective)
        measure = lambda: clock(sequential.step, 12)  # noqa: E731
    elif what == "sigreg":
        measure = lambda: sigreg_alone(runs)  # noqa: E731
    else:
        measure = lambda: batched(runs, max(3, 24 // runs), objective)  # noqa: E731
    while pipe.recv():
        pipe.send(measure())
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def bench(threads: int, grids: Sequence[int], rounds: int, objective: str) -> None:
    sides = [("product", 1), ("sequential", 1), *(("ours", runs) for runs in grids)]
    sides += [("sigreg", runs) for runs in grids if objective == "sigreg"]
    pipes, processes = [], []
    for what, runs in sides:
        ours, theirs = mp.Pipe()
        process = mp.get_context("spawn").Process(target=side, args=(what, runs, objective, threads, theirs))
        process.start()
        pipes.append(ours)
        processes.append(process)
    taken = np.zeros((rounds + 1, len(sides), 2))
    for row in taken:
        for place, pipe in enumerate(pipes):  # one at a time: the others wait for their turn
            pipe.send(True)
            row[place] = pipe.recv()
    memory = []
    for pipe, process in zip(pipes, processes):
        pipe.send(None)
        memory.append(pipe.recv())
        process.join()
    table(threads, sides, taken[1:], memory)  # the first round warms


def table(threads: int, sides: Sequence[tuple[str, int]], taken: np.ndarray, memory: Sequence[float]) -> None:
    median = dict(zip(sides, np.median(taken, axis=0)))
    peak = 2 * 2048**3 / taken[:, 0, 0].min() / 1e6
    slow = median["sequential", 1]
    for (what, runs), gib in zip(sides, memory):
        if what not in ("sequential", "ours"):
            continue
        ms, alone = median[what, runs], median.get(("sigreg", runs))
        cells = (
            str(threads),
            f"ours, {runs} at once" if what == "ours" else "one by one, published loop",
            *(f"{one:.2f}" for one in ms),
            f"{alone[1]:.2f}" if what == "ours" and alone is not None else "",
            *(f"{ratio:.1f}x" for ratio in slow / ms),
            f"{MFLOP / ms[0]:.0f} of {peak:.0f}",
            f"{gib:.2f}",
        )
        print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 4, 8, 21, 63])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--objective", choices=list(LAM), default="sigreg")
    options = parser.parse_args()
    print(f"{options.objective}, {MFLOP:.0f} MFLOP of matrix products a run-step\n")
    print("| threads | side | ms | processor ms | SIGReg of it | faster | by processor | GFLOP/s | GiB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for threads in options.threads:
        bench(threads, options.runs, options.rounds, options.objective)


if __name__ == "__main__":
    main()
