"""Lag: found where it is, to the row, claimed only where it is shown."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from probe import EpisodeClusters
from probe.checks import PixelRows, lag_scan, measure_lag
from probe.checks.lag import _flip_p, check_lag, lag_finding


def shifted(rows: PixelRows, by: int) -> PixelRows:
    """Frames of `by` rows later in place of each row's own."""
    index = np.concatenate(
        [
            np.clip(each + by, each[0], each[-1])
            for each in (rows.clusters.rows(e) for e in range(len(rows.clusters)))
        ]
    )
    return replace(rows, small=rows.small[index])


@pytest.mark.parametrize("view", ["front", "wrist"])
def test_frames_in_time_pass(rows: dict[str, PixelRows], view: str) -> None:
    check, lag = check_lag(rows[view])
    assert check.state == "pass"
    assert lag.decisive.peak == 0
    assert "own row" in check.message


@pytest.mark.parametrize(("by", "said"), [(1, "1 row early"), (-1, "1 row late"), (3, "3 rows early")])
def test_a_shift_is_named_to_the_row(rows: dict[str, PixelRows], by: int, said: str) -> None:
    check, lag = check_lag(shifted(rows["wrist"], by))
    assert (check.state, lag.decisive.peak) == ("warn", -by)
    assert said in check.message
    assert check.evidence["p_value"] < 0.05


def test_latents_that_lag_where_the_recording_does_not_fail(rows: dict[str, PixelRows]) -> None:
    one = rows["wrist"]
    true = measure_lag(one.features, one.position, one.clusters, moving=one.moving)
    late = shifted(one, -1)
    lag = measure_lag(late.features, late.position, late.clusters, moving=late.moving)
    assert lag_finding("z", "latents", lag, true).state == "fail"
    assert lag_finding("z", "latents", lag, lag).state == "warn"


def test_few_episodes_are_not_testable_but_have_a_curve(rows: dict[str, PixelRows]) -> None:
    one = shifted(rows["wrist"], 2)
    keep = one.clusters.index < 4
    scan = lag_scan(
        one.features[keep],
        one.position[keep],
        EpisodeClusters.of(one.clusters.index[keep]),
        moving=one.moving,
    )
    assert scan.p_value is None and not scan.shown
    assert "4 episodes are too few" in scan.note
    assert np.isfinite(scan.r2).all()


def test_flipping_signs_is_exact() -> None:
    gain = np.random.default_rng(3).normal(0.4, 1.0, size=(3, 7))

    def statistic(values: np.ndarray) -> float:
        n = values.shape[1]
        return float((values.mean(axis=1) / (values.std(axis=1, ddof=1) / np.sqrt(n))).max())

    drawn = [statistic(gain * np.array(signs)) for signs in product([1, -1], repeat=7)]
    expected = np.mean(np.array(drawn) >= statistic(gain) * (1 - 1e-12))
    assert _flip_p(gain) == pytest.approx(expected)


@pytest.mark.slow
def test_a_lag_that_is_not_there_is_seldom_claimed() -> None:
    """Latents without lag, noisy: at most as many claims as the level says (here almost none)."""
    claims = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        clusters = EpisodeClusters.of(np.repeat(np.arange(8), 80))
        walk = np.cumsum(rng.normal(size=(640, 2)), axis=0)
        x = walk @ rng.normal(size=(2, 6)) + rng.normal(scale=4.0, size=(640, 6))
        claims += lag_scan(x, walk, clusters).shown
    assert claims <= 10
