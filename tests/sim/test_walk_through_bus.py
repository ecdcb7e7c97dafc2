"""The walk on the emulated arm: what was measured, not what was sent, is the process that was asked for."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from hardware.programmes import Walks
from hardware.safety import CLEARANCE_M
from sim.so101 import SimArm
from tests.lock_step import LockStep, lock_step

pytestmark = pytest.mark.realtime

RHO = 0.9


def walk(run: LockStep, seconds: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Walk; returns the knots asked for and those measured, rad [k, 6] each, and sigma [6]."""
    allowed = partial(SimArm().blocked, clearance_m=CLEARANCE_M)
    walks = Walks(run.arm.limits_rad, allowed, seconds=seconds, seed=seed)
    assert walks.walk.rho == RHO
    plan = walks.plan(0)
    run.power(plan.knots[0])
    driver = walks.driver(0, plan.knots[0])
    run.drive(driver)
    run.run(2)
    assert run.loop.trip is None and run.loop.lost is None, (run.loop.trip, run.loop.lost)
    assert len(driver.knots) == len(plan.knots)
    cycles = np.array(run.notes.cycles_ns)
    position = run.notes.position
    measured = np.array(
        [
            [np.interp(time_ns, cycles, position[:, joint]) for joint in range(position.shape[1])]
            for time_ns, _ in driver.knots
        ]
    )
    return plan.knots, measured, plan.sigma


def contacts(run: LockStep) -> list[str]:
    """What the arm would be touching at the angles it was measured at."""
    model = SimArm()
    return [hit for row in run.notes.position[::5] if (hit := model.blocked(row)) is not None]


def test_a_minute_of_walk_meets_its_knots_and_nothing_else(tmp_path: Path) -> None:
    with lock_step(tmp_path) as run:
        asked, measured, sigma = walk(run, 60.0)
        assert np.abs(measured - asked).max() < 0.1 * sigma.max()
        assert contacts(run) == []
        low, high = run.arm.limits_rad[:, 0], run.arm.limits_rad[:, 1]
        assert ((run.notes.position > low) & (run.notes.position < high)).all()
        assert set(run.bus.received) <= {1, 2, 3, 0x82, 0x83}
        assert all(servo.eeprom_writes == [] for servo in run.bus.servos.values())


@pytest.mark.slow
def test_what_is_measured_at_the_knots_is_the_process_that_was_asked_for(tmp_path: Path) -> None:
    with lock_step(tmp_path) as run:
        _asked, measured, sigma = walk(run, 900.0, seed=1)
        assert contacts(run) == []
        low, high = run.arm.limits_rad[:, 0], run.arm.limits_rad[:, 1]
        assert ((run.notes.position > low) & (run.notes.position < high)).all()
    centre = np.array([0.0, -0.45, 0.35, 0.7, 0.05, 0.785])
    z = (measured - centre) / sigma
    pairs = len(z) - 1
    correlation = (z[:-1] * z[1:]).sum(0) / np.sqrt((z[:-1] ** 2).sum(0) * (z[1:] ** 2).sum(0))
    # Bartlett: the standard error of an AR(1)'s lag-one correlation is sqrt((1 - rho^2) / n)
    error = np.sqrt((1 - RHO**2) / pairs)
    assert np.abs(correlation - RHO).max() < 4 * error, correlation
    # the variance of an AR(1)'s sample variance is 2 sigma^4 / n times (1 + rho^2) / (1 - rho^2)
    spread = np.sqrt(2 / pairs * (1 + RHO**2) / (1 - RHO**2))
    assert np.abs((z**2).mean(0) - 1).max() < 4 * spread, (z**2).mean(0)
