"""SIGReg, forward and backward, against the direct formula in plain torch, in the same run on the same data.

    python tests/benchmarks/bench_sigreg.py [--threads 1 2] [--rounds 9] [--sizes 512x64x256 2048x192x1024]

A size is samples x dimensions x slices; both sides start from z and the directions and end at the gradient of
z. Each side has a process of its own, one computes at a time, they take turns within a round, and medians of
rounds are printed. Only ratios travel between machines. Times are processor time over all threads, which
other programs on the machine lengthen little. 'products' are the matrix products z @ directions alone,
forward and backward: both sides contain them. Memory is what the first call adds to the process at its peak
(Linux; z, the directions and the libraries were there before). Errors are relative to float64 (gradient: of
norms).
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch

from encoders import losses

SIZES = [
    "512x2x256",
    "512x2x1024",
    "512x64x256",
    "512x256x256",
    "512x256x1024",
    "2048x192x256",
    "2048x192x1024",
]
SIDES = ("direct", "ours", "products")


def epps_pulley(samples: torch.Tensor) -> torch.Tensor:
    """The formula as it stands, (N, S) to (S,), by way of (N, S, 17)."""
    t, weight = losses.knots_and_weights(dtype=samples.dtype)
    angle = samples.unsqueeze(-1) * t
    distance = (angle.cos().mean(0) - torch.exp(-0.5 * t.square())).square() + angle.sin().mean(0).square()
    return len(samples) * (distance @ weight)


LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "direct": lambda z, directions: epps_pulley(z @ directions).mean(),
    "ours": lambda z, directions: losses.sigreg(z, directions),
    "products": lambda z, directions: (z @ directions).mean(),
}


def problem(size: str) -> tuple[torch.Tensor, torch.Tensor]:
    samples, dim, slices = map(int, size.split("x"))
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(samples, dim, generator=generator).requires_grad_()
    return z, losses.random_directions(dim, slices, generator)


def status(name: str) -> float:
    """A line of the process's memory, in MB of 1e6 bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name + ":")) * 1024 / 1e6


def side(name: str, size: str, threads: int, pipe: Connection) -> None:
    """Sends the memory, value and gradient of the first call, then a time for every message until None."""
    torch.set_num_threads(threads)
    z, directions = problem(size)
    loss = LOSSES[name]
    torch.autograd.grad(loss(z[:8], directions[:, :8]), z)  # libraries are loaded
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = status("VmRSS")
    value = loss(z, directions)
    (gradient,) = torch.autograd.grad(value, z)
    pipe.send((status("VmHWM") - before, value.item(), gradient.numpy()))
    del gradient
    start = time.process_time()
    torch.autograd.grad(loss(z, directions), z)
    calls = max(1, int(0.1 / (time.process_time() - start)))
    while pipe.recv():
        start = time.process_time()
        for _ in range(calls):
            torch.autograd.grad(loss(z, directions), z)
        pipe.send((time.process_time() - start) / calls * 1e3)


def exact(size: str) -> tuple[float, np.ndarray]:
    """Value and gradient in float64, a few directions at a time."""
    z, directions = problem(size)
    z = z.detach().double().requires_grad_()
    value, gradient = 0.0, torch.zeros_like(z)
    for some in directions.double().split(32, dim=1):
        part = epps_pulley(z @ some).sum() / directions.shape[1]
        value += part.item()
        gradient += torch.autograd.grad(part, z)[0]
    return value, gradient.numpy()


def bench(size: str, threads: int, rounds: int) -> None:
    pipes, processes, memory, errors = {}, [], {}, {}
    truth, slope = exact(size)
    for name in SIDES:
        pipes[name], theirs = mp.Pipe()
        process = mp.get_context("spawn").Process(target=side, args=(name, size, threads, theirs))
        process.start()
        processes.append(process)
        memory[name], value, gradient = pipes[name].recv()
        errors[name] = abs(value / truth - 1), np.linalg.norm(gradient - slope) / np.linalg.norm(slope)
    taken: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(rounds):
        for name in SIDES:  # one at a time: the others wait for their turn
            pipes[name].send(True)
            taken[name].append(pipes[name].recv())
    for pipe, process in zip(pipes.values(), processes):
        pipe.send(None)
        process.join()
    ms = {name: float(np.median(times)) for name, times in taken.items()}
    cells = (
        size,
        threads,
        f"{ms['direct']:.3g}",
        f"{ms['ours']:.3g}",
        f"{ms['direct'] / ms['ours']:.1f}x",
        f"{ms['products']:.2g}",
        f"{memory['direct']:.0f}",
        f"{memory['ours']:.1f}",
        f"{memory['direct'] / memory['ours']:.0f}x",
        *(f"{errors[name][place]:.0e}" for place in (0, 1) for name in ("direct", "ours")),
    )
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    options = parser.parse_args()
    print(
        "| size | threads | direct, ms | ours, ms | ratio | products, ms | direct, MB | ours, MB | ratio | "
        "value: direct | ours | gradient: direct | ours |\n|" + "---|" * 13
    )
    for threads in options.threads:
        for size in options.sizes:
            bench(size, threads, options.rounds)


if __name__ == "__main__":
    main()
