"""The smallest effect that a number of episodes can show, against the spread that a probe's R2 really has."""

from __future__ import annotations

import numpy as np
import pytest

from probe.bootstrap import Bootstrap
from probe.clusters import EpisodeClusters
from probe.power import Power, smallest_effects
from probe.statistics import ResidualSums, score_joints

JOINTS = ("pan", "lift", "wrist")
Z = 1.959964 + 0.841621  # of a two-sided level of 95 % and a power of 80 %


def joints_of(
    episodes: int, rows: int, seed: int, between: float = 0.3
) -> tuple[np.ndarray, EpisodeClusters]:
    """Joints that wander within an episode, and whose means differ between episodes."""
    rng = np.random.default_rng(seed)
    walk = np.cumsum(rng.standard_normal((episodes, rows, 3)), axis=1)
    walk = (walk - walk.mean(axis=1, keepdims=True)) / walk.std()
    y = np.sqrt(between) * rng.standard_normal((episodes, 1, 3)) + np.sqrt(1 - between) * walk
    return y.reshape(-1, 3), EpisodeClusters.of(np.repeat(np.arange(episodes), rows))


def effects(n_evaluate: int, seed: int = 1, episodes: int = 40, **settings: float) -> Power:
    y, clusters = joints_of(episodes, 60, 0)
    found = smallest_effects(
        y, clusters, n_evaluate, np.ones(3, bool), JOINTS, np.random.default_rng(seed), **settings
    )
    assert found is not None
    return found


def test_more_episodes_and_better_encoders_show_smaller_effects() -> None:
    few, many = effects(8), effects(32)
    assert many.mean[0.6] < 0.7 * few.mean[0.6]  # about the square root of their number
    assert few.mean[0.9] < few.mean[0.6] < few.mean[0.3]
    assert few.difference[0.6] > 0
    assert str(few) == "8 evaluation episodes leave every bar undecided, whatever comes; 10 are needed"
    assert "32 evaluation episodes, 80% of such studies tell a mean R2 from a mark that lies" in str(many)
    assert f"{many.mean[0.6]:.2f} (R2 0.6)" in str(many)
    assert few == effects(8)


def test_the_share_between_episodes_is_the_joints_own() -> None:
    found = effects(10)
    y, clusters = joints_of(40, 60, 0)
    means = np.stack([y[clusters.rows(e)].mean(axis=0) for e in range(40)])
    np.testing.assert_allclose(list(found.between.values()), means.var(axis=0) / y.var(axis=0), rtol=1e-9)
    assert list(found.between) == list(JOINTS)


def test_the_smallest_effect_is_the_spread_of_a_probes_r2_over_new_evaluation_sets() -> None:
    """Evaluation sets of new episodes, encoders simulated row by row, R2 as the probe takes it."""
    rng = np.random.default_rng(3)
    values = []
    for seed in range(150):
        y, clusters = joints_of(12, 60, 1000 + seed)
        noise, _ = joints_of(12, 60, 5000 + seed)
        sums = ResidualSums.of(y, y - np.sqrt(0.4) * noise, clusters)
        bootstrap = Bootstrap.draw(clusters.labels, rng, resamples=100)
        values.append(score_joints(sums, bootstrap, np.ones(3, bool)).mean.value)
    assert effects(12, simulations=1000).mean[0.6] == pytest.approx(Z * np.std(values, ddof=1), rel=0.35)


def test_nothing_to_draw_from() -> None:
    y, clusters = joints_of(1, 60, 0)
    rng = np.random.default_rng(0)
    assert smallest_effects(y, clusters, 10, np.ones(3, bool), JOINTS, rng) is None
    y, clusters = joints_of(5, 60, 0)
    assert smallest_effects(y, clusters, 10, np.zeros(3, bool), JOINTS, rng) is None
