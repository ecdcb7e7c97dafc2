"""Milliseconds a frame of the simulated arm, by view and image size, beside a physics step.

    python tests/benchmarks/bench_render.py

Prints a table of wall time and of this process's CPU time (what a machine busy with other work leaves
comparable); each cell is the median over rounds that go through all cells in turn. The goal: under 2 ms a
96x96 frame with software rendering.
"""

from __future__ import annotations

import os
import statistics
import time

import numpy as np

from sim.so101 import SimArm
from sim.so101_model import VIEWS

SIZES = (64, 96, 128, 224)
ROUNDS, FRAMES = 7, 60


def frame_ms(arm: SimArm, view: str) -> tuple[float, float]:
    """Mean wall and CPU time of FRAMES frames, the arm in another pose at each."""
    poses = np.random.default_rng(0).normal(0, 0.3, (FRAMES, 6))
    wall, cpu = time.perf_counter(), time.process_time()
    for pose in poses:
        arm.data.qpos[:6] = pose
        arm.render(view)
    return (time.perf_counter() - wall) / FRAMES * 1e3, (time.process_time() - cpu) / FRAMES * 1e3


def step_us(arm: SimArm) -> float:
    """Mean wall time of a physics step while the arm moves."""
    arm.reset(np.random.default_rng(0))
    start = time.perf_counter()
    for tick in range(200):
        arm.set_target([0.5 * np.sin(tick / 20), -0.4, 0.5, 0.9, np.sin(tick / 15), 0.5])
        arm.step(4)
    return (time.perf_counter() - start) / 800 * 1e6


def main() -> None:
    """Print the table."""
    cells: dict[tuple[int, str], list[tuple[float, float]]] = {
        (size, view): [] for size in SIZES for view in VIEWS
    }
    steps: list[float] = []
    arms = {size: SimArm(image_size=size) for size in SIZES}
    for _ in range(ROUNDS + 1):  # the first round compiles shaders
        for (size, view), times in cells.items():
            times.append(frame_ms(arms[size], view))
        steps.append(step_us(arms[SIZES[0]]))
    print(f"backend {os.environ.get('MUJOCO_GL')}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("size    " + "".join(f"{view:>14}" for view in VIEWS) + "   ms a frame, wall / CPU")
    for size in SIZES:
        row = ""
        for view in VIEWS:
            wall, cpu = (statistics.median(column) for column in zip(*cells[size, view][1:], strict=True))
            row += f"{wall:>7.2f} /{cpu:>5.2f}"
        print(f"{size:<8}{row}")
    print(f"physics {statistics.median(steps[1:]):.1f} us a step of {arms[SIZES[0]].timestep_s * 1e3:.0f} ms")
    for arm in arms.values():
        arm.close()


if __name__ == "__main__":
    main()
