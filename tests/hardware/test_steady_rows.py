"""Actions held between rows, and runs of rows without a gap, against a slow reading of the rule."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.alignment import held_actions, steady_steps, unbroken


def test_an_action_is_in_force_until_the_next_one() -> None:
    rng = np.random.default_rng(0)
    sent_ns = np.sort(rng.integers(0, 1000, 40))
    target = rng.normal(size=(40, 2))
    time_ns = np.sort(rng.integers(-50, 1100, 200))
    held = held_actions(time_ns, sent_ns, target)
    for at, found in zip(time_ns, held):
        before = np.flatnonzero(sent_ns <= at)
        wanted = target[before[-1]] if len(before) else [np.nan, np.nan]
        np.testing.assert_array_equal(found, wanted)
    assert np.isnan(held_actions(time_ns, sent_ns[:0], target[:0])).all()


@pytest.mark.parametrize(
    "share, counts", [(0.59, False), (0.6, True), (1.6, True), (1.61, False), (2, False)]
)
def test_a_step_counts_from_three_fifths_to_eight_fifths(share: float, counts: bool) -> None:
    times = np.array([0, round(100_000 * share), round(100_000 * share) + 100_000])
    assert steady_steps(times, 100_000).tolist() == [counts, True]


def test_runs_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(1)
    for rows in (0, 1, 2, 5, 60):
        good = rng.random(max(rows - 1, 0)) > 0.15
        for steps in (1, 2, 7):
            wanted = [first for first in range(rows - steps) if all(good[first : first + steps])]
            assert unbroken(good, steps).tolist() == wanted, (rows, steps)
