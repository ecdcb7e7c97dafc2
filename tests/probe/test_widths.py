"""Latents cut to another encoder's width, against scikit-learn done by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probe.bootstrap import Bootstrap
from probe.clusters import EpisodeClusters
from probe.widths import Projection, probe_at_width


class Problem:
    """Three joints spread over 30 dimensions among 6 strong other things."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        mixing = rng.standard_normal((9, 30))

        def rows(n: int) -> tuple[np.ndarray, np.ndarray, EpisodeClusters]:
            y, other = rng.standard_normal((n * 30, 3)), 3 * rng.standard_normal((n * 30, 6))
            x = np.hstack([y, other]) @ mixing + 0.3 * rng.standard_normal((n * 30, 30)) + 50
            return x.astype(np.float32), y, EpisodeClusters.of(np.repeat(np.arange(n), 30))

        self.x_train, self.y_train, self.train = rows(12)
        self.x, self.y, self.evaluate = rows(11)
        self.bootstrap = Bootstrap.draw(self.evaluate.labels, np.random.default_rng(1), resamples=100)

    def probe(self, width: int, alphas=(3.0,)):
        return probe_at_width(
            width,
            self.x_train,
            self.y_train,
            self.train,
            self.x,
            self.y,
            self.evaluate,
            alphas=alphas,
            testable=np.ones(3, dtype=bool),
            bootstrap=self.bootstrap,
        )


def test_it_is_pca_of_training_rows_and_then_the_probe() -> None:
    problem = Problem()
    found = problem.probe(7)
    model = make_pipeline(PCA(7, svd_solver="full"), StandardScaler(), Ridge(3.0))
    model.fit(problem.x_train.astype(np.float64), problem.y_train)
    assert found.scores.mean.value == pytest.approx(
        r2_score(problem.y, model.predict(problem.x.astype(np.float64))), abs=1e-8
    )
    assert found.projection.explained == pytest.approx(model[0].explained_variance_ratio_.sum(), abs=1e-10)
    assert "from 7 of 30 dimensions" in str(found)


def test_components_do_not_depend_on_evaluation_rows() -> None:
    problem = Problem()
    before = problem.probe(7)
    problem.x = problem.x * 5
    after = problem.probe(7)
    np.testing.assert_array_equal(before.projection.components, after.projection.components)


def test_r2_falls_with_width_and_is_whole_at_full_rank() -> None:
    problem = Problem()
    alphas = np.logspace(-3, 3, 7)
    values = [problem.probe(width, alphas).scores.mean.value for width in (3, 9, 30)]
    assert values[0] < 0.6 < 0.95 < values[1]
    assert values[2] == pytest.approx(values[1], abs=0.01)
    assert problem.probe(9).projection.explained > 0.98


def test_all_components_are_a_rotation() -> None:
    problem = Problem()
    projection = Projection.fit(problem.x_train, 30)
    narrow = projection.apply(problem.x)
    x = problem.x.astype(np.float64) - problem.x_train.mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(narrow @ narrow.T, x @ x.T, rtol=1e-6, atol=1e-3)
    assert projection.explained == pytest.approx(1)


@pytest.mark.parametrize(("rows", "width"), [(360, 31), (360, 0), (5, 5)])
def test_widths_that_do_not_exist(rows: int, width: int) -> None:
    with pytest.raises(ValueError, match=f"30-dimensional latents of {rows} rows have no {width} components"):
        Projection.fit(Problem().x_train[:rows], width)
