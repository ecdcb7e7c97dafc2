"""An hour of walk on the emulated arm: what was measured at the knots beside the process that was asked for.

    python tests/benchmarks/walk_figure.py [--seconds 3600] [--to walk.png]

Real bytes on a pty, MuJoCo behind it, in simulated time (minutes for an hour). Prints draws and refusals, the
nearest approach to a soft limit, contacts, autocorrelation and spread a joint, and draws them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from hardware.motions import WalkPlan
from hardware.programmes import Walks
from hardware.safety import CLEARANCE_M
from hardware.so101 import JOINT_NAMES, WALK_CENTRE_RAD
from sim.so101 import SimArm
from tests.lock_step import lock_step

LAGS = np.arange(0, 16)


def main() -> None:
    """Walk, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, default=Path("walk.png"))
    asked = parser.parse_args()
    plan, measured, rho = _walk(asked.seconds, asked.seed)
    z = (measured - np.array(WALK_CENTRE_RAD)) / plan.sigma
    found = np.array([_autocorrelation(z[:, joint]) for joint in range(6)])
    error = np.sqrt((1 - rho**2) / (len(z) - 1))
    spread_error = np.sqrt(0.5 / (len(z) - 1) * (1 + rho**2) / (1 - rho**2))
    print(
        f"{'joint':<15}{'rho':>8}{'(asked)':>9}{'+-se':>7}{'sigma/asked':>13}{'+-se':>7}{'largest |z|':>13}"
    )
    for joint, name in enumerate(JOINT_NAMES):
        share = np.sqrt((z[:, joint] ** 2).mean())
        print(
            f"{name:<15}{found[joint, 1]:>8.4f}{rho:>9.2f}{error:>7.4f}{share:>13.3f}{spread_error:>7.3f}"
            f"{np.abs(z[:, joint]).max():>13.2f}"
        )
    _draw(z, found, rho, len(z), asked.to)
    print(f"drew {asked.to}")


def _walk(seconds: float, seed: int) -> tuple[WalkPlan, np.ndarray, float]:
    model = SimArm()
    with tempfile.TemporaryDirectory() as folder, lock_step(Path(folder)) as run:
        walks = Walks(
            run.arm.limits_rad, partial(model.blocked, clearance_m=CLEARANCE_M), seconds=seconds, seed=seed
        )
        plan = walks.plan(0)
        run.power(plan.knots[0])
        driver, began = walks.driver(0, plan.knots[0]), time.monotonic()
        run.drive(driver)
        run.run(2)
        passed = time.monotonic() - began
        if run.loop.trip is not None or run.loop.lost is not None:
            raise SystemExit(f"the walk ended early: {run.loop.trip or run.loop.lost}")
        cycles, position = np.array(run.notes.cycles_ns), run.notes.position
        faults, cycles_run = sum(run.loop.faults.values()), run.loop.cycles
        limits = run.arm.limits_rad
    times = np.array([time_ns for time_ns, _ in driver.knots])
    measured = np.array([np.interp(times, cycles, column) for column in position.T]).T
    touching = [hit for row in position if (hit := model.blocked(row)) is not None]
    margin = np.minimum(position - limits[:, 0], limits[:, 1] - position).min(axis=0)
    counts = f"{cycles_run:,} cycles, {len(position):,} samples, {faults} faults"
    print(f"{seconds:g} s of walk in {passed:.0f} s: {counts}")
    print(f"{plan.draws:,} draws for {len(plan.knots):,} knots; refused: {plan.rejected or 'none'}")
    nearest = ", ".join(f"{name} {value:.2f}" for name, value in zip(JOINT_NAMES, margin))
    print(f"samples in contact: {len(touching)}; nearest to a joint limit (rad): {nearest}")
    print(f"measured less asked at the knots: at most {np.abs(measured - plan.knots).max():.4f} rad")
    return plan, measured, walks.walk.rho


def _autocorrelation(z: np.ndarray) -> np.ndarray:
    """About the known centre, at LAGS."""
    return np.array([(z[: len(z) - lag] * z[lag:]).mean() for lag in LAGS]) / (z**2).mean()


def _draw(z: np.ndarray, found: np.ndarray, rho: float, count: int, to: Path) -> None:
    figure, axes = plt.subplots(2, 6, figsize=(15, 5.2), constrained_layout=True, sharey="row")
    grid = np.linspace(-4, 4, 200)
    for joint, name in enumerate(JOINT_NAMES):
        top, bottom = axes[0, joint], axes[1, joint]
        top.hist(z[:, joint], bins=np.linspace(-4, 4, 41), density=True, color="#9db8d2")
        top.plot(grid, stats.norm.pdf(grid), color="#b03a2e", lw=1.3)
        top.set_title(name)
        top.set_xlabel("measured at knots, sigmas")
        # Bartlett's band for an AR(1): it widens to the sum of all squared correlations
        band = 1.96 * np.sqrt(
            ((1 + rho**2) * (1 - rho ** (2 * LAGS)) / (1 - rho**2) - 2 * LAGS * rho ** (2 * LAGS)) / count
        )
        bottom.fill_between(LAGS, rho**LAGS - band, rho**LAGS + band, color="#f2c9c3", lw=0)
        bottom.plot(LAGS, rho**LAGS, color="#b03a2e", lw=1.3)
        bottom.plot(LAGS, found[joint], "o", color="#1f4e79", ms=3.5)
        bottom.set_xlabel("lag, knots")
    axes[0, 0].set_ylabel("density")
    axes[1, 0].set_ylabel("autocorrelation")
    asked = f"OU with rho = {rho:g} asked for (red, 95 % band)"
    figure.suptitle(f"The walk as measured on the emulated arm: {count:,} knots; {asked}")
    figure.savefig(to, dpi=80)
    plt.close(figure)


if __name__ == "__main__":
    main()
