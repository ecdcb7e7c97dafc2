"""The learning curve against the probe itself, refitted with scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probe.clusters import EpisodeClusters
from probe.learning import LearningCurve, halvings, learning_curve
from probe.ridge import fit_ridge

GRID = np.logspace(-2, 6, 9)


class Problem:
    """Latents of 40 dimensions that hold three joints, drowned in what differs from episode to episode."""

    def __init__(self, n_episodes: int = 16, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        weight = rng.standard_normal((3, 40))

        def rows(n: int) -> tuple[np.ndarray, np.ndarray, EpisodeClusters]:
            label = np.repeat(np.arange(n), 25)
            y = rng.standard_normal((len(label), 3)) + rng.standard_normal((n, 3))[label]
            x = y @ weight + 4 * rng.standard_normal((n, 40))[label] + rng.standard_normal((len(label), 40))
            return x, y, EpisodeClusters.of(label)

        self.x_train, self.y_train, self.train = rows(n_episodes)
        self.x, self.y, self.evaluate = rows(10)

    def curve(self, alphas: Any = GRID, seed: int = 0, **options: Any) -> LearningCurve:
        return learning_curve(
            self.x_train,
            self.y_train,
            self.train,
            self.x,
            self.y,
            self.evaluate,
            alphas=alphas,
            testable=options.pop("testable", np.ones(3, dtype=bool)),
            rng=np.random.default_rng(seed),
            **options,
        )


def test_halvings() -> None:
    assert halvings(75) == (2, 4, 9, 18, 37, 75)
    assert halvings(3) == (3,) and halvings(1) == (1,) and halvings(4) == (2, 4)


def test_each_point_is_the_probe_on_those_episodes() -> None:
    problem = Problem()
    found = problem.curve(orders=3)
    assert found.sizes.tolist() == [2, 4, 8, 16]
    assert len(np.unique(found.alpha)) > 1
    rng = np.random.default_rng(0)
    for order in range(3):
        episodes = rng.permutation(16)
        for step, size in enumerate(found.sizes):
            rows = np.isin(problem.train.index, episodes[:size])
            model = make_pipeline(StandardScaler(), Ridge(found.alpha[order, step]))
            model.fit(problem.x_train[rows], problem.y_train[rows])
            expected = r2_score(problem.y, model.predict(problem.x))
            assert found.r2[order, step] == pytest.approx(expected, abs=1e-8)
            assert found.rows[order, step] == rows.sum()


def test_the_last_point_is_the_probe_itself() -> None:
    problem = Problem()
    two = np.array([True, False, True])
    fit = fit_ridge(problem.x_train, problem.y_train, problem.train, alphas=GRID, testable=two)
    found = problem.curve(testable=two, orders=2)
    expected = r2_score(problem.y, fit.predict(problem.x), multioutput="raw_values")[two].mean()
    np.testing.assert_allclose(found.r2[:, -1], expected, atol=1e-12)
    assert (found.alpha[:, -1] == fit.alpha).all()


def test_it_rises_and_says_what_the_last_doubling_gave() -> None:
    found = Problem(n_episodes=64, seed=2).curve(orders=10)
    assert found.mean[-1] > found.mean[3] > found.mean[0]
    assert found.last_gain == pytest.approx(found.mean[-1] - found.mean[-2]) and found.last_gain > 0
    assert str(found).splitlines()[-1].startswith("  64 episodes,    1600 rows:  0.")
    assert np.isnan(Problem(n_episodes=3).curve().last_gain)


def test_an_alpha_that_many_episodes_chose_is_too_small_for_few() -> None:
    """Why it is chosen anew at every size."""
    few = []
    for seed in range(4):
        problem = Problem(n_episodes=32, seed=seed)
        fit = fit_ridge(problem.x_train, problem.y_train, problem.train, alphas=GRID)
        few.append([problem.curve(alphas).mean[0] for alphas in (GRID, [fit.alpha])])
    anew, kept = np.mean(few, axis=0)
    assert anew > kept + 0.03


def test_the_same_generator_gives_the_same_curve() -> None:
    problem = Problem()
    np.testing.assert_array_equal(problem.curve(seed=3).r2, problem.curve(seed=3).r2)
    assert not np.array_equal(problem.curve(seed=3).r2, problem.curve(seed=4).r2)


def test_sizes_are_checked() -> None:
    problem = Problem()
    assert problem.curve([10.0], sizes=[1, 5], orders=1).sizes.tolist() == [1, 5, 16]
    with pytest.raises(ValueError, match="only 1 training episode"):
        problem.curve(sizes=[1], orders=1)
    for sizes in ([0], [17]):
        with pytest.raises(ValueError, match=r"sizes must lie in 1 \.\. 16"):
            problem.curve(sizes=sizes)
    problem.y[:, 0] = 1.0
    with pytest.raises(ValueError, match="constant over the evaluation rows"):
        problem.curve()
