"""Images of the Reacher a second: dm_control's own way beside ours, every image compared.

    python tests/benchmarks/bench_reacher.py [IMAGES]

Each way has its processes, which are started first and wait; rounds go through all ways in turn, with other
states in each, so that ratios of one run are comparable on a machine that is busy with other things. "theirs"
is the published data's per-frame path with its default threads, "theirs, 2 processes" the same twice with
LP_NUM_THREADS=0, as many states to each. The goals: 2.3 times the first and 1.4 times the second with two
processes. Prints medians over the rounds, CPU time an image, and how many images are theirs to the byte.
Then the cost of one store: bytes an image, and images read a second.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

ROUNDS = 5
_one: Any = None


def start(kind: str) -> None:
    """In a worker: open a renderer, and compile its shaders by some images."""
    global _one
    if kind == "theirs":
        from tests.sim.reacher_reference import Reference

        _one = Reference()
    else:
        from sim.reacher_rendering import ReacherRenderer

        _one = ReacherRenderer(limit_shadows=kind == "ours")
        assert _one.limits_shadows is (kind == "ours")
    _one.render(np.random.default_rng(0).normal(0, 1.5, (20, 2)))


def render(angles: np.ndarray) -> tuple[np.ndarray, float]:
    """In a worker: images, and the CPU seconds they took."""
    before = time.process_time()
    frames = _one.render(angles)
    return frames, time.process_time() - before


@contextmanager
def environment(**variables: str):
    """Variables for processes that are started in the block."""
    before = dict(os.environ)
    os.environ.update(variables)
    yield
    os.environ.clear()
    os.environ.update(before)


@dataclass
class Way:
    """A way to render, and what its rounds came to."""

    name: str
    kind: str
    processes: int
    variables: dict[str, str] = field(default_factory=dict)
    pools: list[ProcessPoolExecutor] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    same: int = 0

    def open(self, stack: ExitStack) -> None:
        """Start its processes and wait until they can render."""
        context = multiprocessing.get_context("spawn")
        with environment(MUJOCO_GL="egl", OMP_NUM_THREADS="1", **self.variables):
            for _ in range(self.processes):
                pool = ProcessPoolExecutor(1, mp_context=context, initializer=start, initargs=(self.kind,))
                self.pools.append(stack.enter_context(pool))
                pool.submit(render, np.zeros((1, 2))).result()

    def round(self, angles: np.ndarray) -> np.ndarray:
        """All states, shared out evenly; the images."""
        begin = time.perf_counter()
        parts = np.array_split(angles, self.processes)
        futures = [pool.submit(render, part) for pool, part in zip(self.pools, parts)]
        made = [future.result() for future in futures]
        self.seconds.append((time.perf_counter() - begin) / len(angles))
        self.cpu.append(sum(cpu for _, cpu in made) / len(angles))
        return np.concatenate([frames for frames, _ in made])


def rendering(images: int) -> None:
    """Print the table of ways."""
    single = {"LP_NUM_THREADS": "0"}
    ways = [
        Way("theirs", "theirs", 1),
        Way("theirs, 2 processes", "theirs", 2, single),
        Way("ours, whole shadow map", "whole", 1, single),
        Way("ours, whole shadow map, 2 processes", "whole", 2, single),
        Way("ours", "ours", 1, single),
        Way("ours, 2 processes", "ours", 2, single),
    ]
    with ExitStack() as stack:
        for way in ways:
            way.open(stack)
        for number in range(ROUNDS):
            angles = np.random.default_rng(number).normal(0, 1.5, (images, 2))
            expected: np.ndarray | None = None
            for way in ways:
                frames = way.round(angles)
                expected = frames if expected is None else expected
                way.same += int((frames == expected).all(axis=(1, 2, 3)).sum())
    base, two = (statistics.median(way.seconds) for way in ways[:2])
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {ROUNDS} rounds of {images} images")
    print(f"{'':36}images/s  CPU ms/image   x theirs   x theirs twice   identical")
    for way in ways:
        wall, cpu = statistics.median(way.seconds), statistics.median(way.cpu)
        print(
            f"{way.name:36}{1 / wall:8.0f}{cpu * 1e3:14.2f}{base / wall:11.2f}{two / wall:17.2f}"
            f"   {way.same} of {ROUNDS * images}"
        )


def storing(states: int) -> None:
    """Print what a set costs on disk, and how fast it is read."""
    from sim.reacher_draws import draw_ou
    from sim.reacher_frames import FRAMES
    from sim.reacher_pairs import write_pair_set

    with tempfile.TemporaryDirectory() as folder:
        pairs = write_pair_set(draw_ou((0.95,), states // 2), Path(folder) / "set")
        size = (Path(folder) / "set" / FRAMES).stat().st_size

        def rate(read: Callable[[], np.ndarray]) -> float:
            times = []
            for _ in range(ROUNDS):
                begin = time.perf_counter()
                count = len(read())
                times.append((time.perf_counter() - begin) / count)
            return 1 / statistics.median(times)

        shuffled = np.random.default_rng(0).permutation(len(pairs))
        print(f"\nstore of {len(pairs)} images: {size / len(pairs):.0f} bytes each, of {64 * 64 * 3}")
        print(
            f"read in order {rate(pairs.frames):,.0f} images/s, shuffled {rate(lambda: pairs[shuffled]):,.0f}"
        )


def main() -> None:
    """Print both."""
    images = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    rendering(images)
    storing(2 * images)


if __name__ == "__main__":
    main()
