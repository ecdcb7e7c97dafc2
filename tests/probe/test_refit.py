"""The bootstrap with refit against resampling and refitting rows by hand, and what its interval covers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import probe.refit as refit
from probe.bootstrap import Bootstrap, difference
from probe.clusters import EpisodeClusters
from probe.moments import Moments
from probe.refit import refit_scores
from probe.ridge import fit_ridge
from probe.statistics import ResidualSums, score_joints

ALL = np.ones(3, dtype=bool)


class World:
    """Latents that hold three joints and more that is shared within an episode."""

    def __init__(self, n_features: int, seed: int, *, nuisance: float = 0.7, between: float = 0.15):
        self.rng = np.random.default_rng(seed)
        self.mixing = np.random.default_rng(99).standard_normal((3, n_features)) / 2
        self.nuisance, self.between = nuisance, between

    def rows(self, n_episodes: int, n: int = 30):
        index = np.repeat(np.arange(n_episodes), n)
        place = self.rng.standard_normal((n_episodes, 3))[index]
        y = np.sqrt(1 - self.between) * self.rng.standard_normal((len(index), 3))
        y = y + np.sqrt(self.between) * place
        shared = self.rng.standard_normal((n_episodes, self.mixing.shape[1]))[index]
        x = y @ self.mixing + 0.5 * self.rng.standard_normal(shared.shape) + self.nuisance * shared
        return x + 2, y + np.array([0.1, 1.0, -2.0]), EpisodeClusters.of(index)


def draws_of(n_train: int, n_evaluate: int, seed: int = 5, *, refits: int = 30):
    rng = np.random.default_rng(seed)
    evaluation = Bootstrap.draw(np.arange(n_evaluate), rng, resamples=200)
    return evaluation, Bootstrap.draw(np.arange(n_train), rng, resamples=refits)


def scores_of(train, evaluate, bootstrap, training, *, alpha=3.0, testable=ALL, **options):
    return refit_scores(
        Moments.of(*train),
        *evaluate,
        alpha=alpha,
        testable=testable,
        bootstrap=bootstrap,
        training=training,
        **options,
    )


def gathered(clusters: EpisodeClusters, weights) -> np.ndarray:
    return np.concatenate([np.tile(clusters.rows(e), int(w)) for e, w in enumerate(weights)])


def by_hand(train, evaluate, bootstrap, training, alpha) -> tuple[np.ndarray, np.ndarray]:
    """R2 of refits and of the held probe on the same evaluation draws, [B, J] each, by scikit-learn."""
    held = make_pipeline(StandardScaler(), Ridge(alpha=alpha)).fit(*train[:2])
    refitted, kept = [], []
    for of_train, of_evaluation in zip(training.weights, bootstrap.weights):
        rows, new = gathered(train[2], of_train), gathered(evaluate[2], of_evaluation)
        fit = make_pipeline(StandardScaler(), Ridge(alpha=alpha)).fit(train[0][rows], train[1][rows])
        for model, found in ((fit, refitted), (held, kept)):
            found.append(
                r2_score(evaluate[1][new], model.predict(evaluate[0][new]), multioutput="raw_values")
            )
    return np.array(refitted), np.array(kept)


@pytest.mark.parametrize("alpha", [3.0, np.array([0.5, 3.0, 200.0])], ids=["one alpha", "three"])
@pytest.mark.parametrize("blocks", [False, True])
def test_a_draw_is_a_refit_to_the_rows_drawn(alpha, blocks, monkeypatch):
    world = World(8, 0)
    train, evaluate = world.rows(7), world.rows(5)
    train[0][:, 3] = 0.1  # constant in every draw
    train[0][:, 4] = np.where(train[2].index < 2, train[0][:, 4], 7.0)  # constant in some
    if blocks:
        monkeypatch.setattr(refit, "_BLOCK_BYTES", 8 * 8 * 8 * 4)
    bootstrap, training = draws_of(7, 5)
    scores = scores_of(train, evaluate, bootstrap, training, alpha=alpha)
    refitted, held = by_hand(train, evaluate, bootstrap, training, alpha)
    shift = (refitted - held).mean(axis=0)
    for j, joint in enumerate(scores.joints):
        np.testing.assert_allclose(joint.draws, refitted[:, j] - shift[j], rtol=1e-8, atol=1e-10)
        low, high = np.quantile(joint.draws, [0.025, 0.975])
        assert (joint.low, joint.high) == pytest.approx((low, high), rel=1e-12)
        assert joint.interval == "percentile"
        assert f"shifts it by {shift[j]:+.3f}, which is taken out" in joint.note
    gap, mean = np.ptp(refitted, axis=1), refitted.mean(axis=1)
    moved = (gap - np.ptp(held, axis=1)).mean()
    np.testing.assert_allclose(scores.anisotropy.draws, gap - moved, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(scores.mean.draws, mean - shift.mean(), rtol=1e-8, atol=1e-10)


def test_near_singular_draws_go_by_their_eigenvalues():
    # repeated features and fewer distinct rows than features: an alpha of 1e-9 leaves the least-norm solution
    world = World(6, 0)
    train, evaluate = world.rows(5, 4), world.rows(5)
    train = (np.hstack([train[0], train[0]]), *train[1:])
    evaluate = (np.hstack([evaluate[0], evaluate[0]]), *evaluate[1:])
    bootstrap, training = draws_of(5, 5)
    twice = scores_of(train, evaluate, bootstrap, training, alpha=2e-9)
    half = [(values[0][:, :6], *values[1:]) for values in (train, evaluate)]
    once = scores_of(*half, bootstrap, training, alpha=1e-9)
    np.testing.assert_allclose(twice.mean.draws, once.mean.draws, rtol=1e-5)


def test_values_are_those_of_the_probe_itself():
    world = World(8, 0)
    train, evaluate = world.rows(7), world.rows(12)
    bootstrap, training = draws_of(7, 12)
    fit = fit_ridge(*train, alphas=[3.0])
    held = score_joints(ResidualSums.of(evaluate[1], fit.predict(evaluate[0]), evaluate[2]), bootstrap, ALL)
    scores = scores_of(train, evaluate, bootstrap, training)
    for a, b in zip(
        (*scores.joints, scores.mean, scores.weighted, scores.anisotropy),
        (*held.joints, held.mean, held.weighted, held.anisotropy),
    ):
        assert a.value == pytest.approx(b.value, rel=1e-9)
    # every draw of the training episodes being the episodes themselves, nothing is added
    same = Bootstrap("", training.episodes, np.ones_like(training.weights), 0.95)
    still = scores_of(train, evaluate, bootstrap, same)
    np.testing.assert_allclose(still.mean.draws, held.mean.draws[:30], rtol=1e-9)


def test_encoders_refitted_on_the_same_draws_are_paired():
    world = World(8, 0)
    train, evaluate = world.rows(10), world.rows(12)
    bootstrap, training = draws_of(10, 12, refits=200)
    one = scores_of(train, evaluate, bootstrap, training)
    two = scores_of(train, evaluate, bootstrap, training, alpha=3.3)
    gap = difference(one.mean, two.mean)
    assert gap.high - gap.low < 0.1 * (one.mean.high - one.mean.low)


def test_joints_left_out_and_single_episodes():
    world = World(4, 0)
    train, evaluate = world.rows(6), world.rows(5)
    bootstrap, training = draws_of(6, 5)
    scores = scores_of(train, evaluate, bootstrap, training, testable=np.array([True, False, False]))
    assert scores.joints[1].value is None and scores.joints[1].note == "not testable"
    assert scores.mean.value == scores.joints[0].value
    assert scores.anisotropy.value is None and scores.anisotropy.note == "needs two testable joints"
    alone = world.rows(1)
    scores = scores_of(alone, evaluate, *draws_of(1, 5))
    assert scores.mean.value is not None and scores.mean.low is None
    assert "no refit: a single training episode" in scores.mean.note
    scores = scores_of(train, alone, *draws_of(6, 1))
    assert scores.mean.low is None and "no refit: a single evaluation episode" in scores.mean.note


def test_draws_that_do_not_belong_are_refused():
    world = World(4, 0)
    train, evaluate = world.rows(6), world.rows(5)
    bootstrap, training = draws_of(6, 5)
    with pytest.raises(ValueError, match="drawn for other episodes than those trained on and evaluated"):
        scores_of(train, evaluate, bootstrap, draws_of(7, 5)[1])
    with pytest.raises(ValueError, match="drawn for other episodes than those trained on and evaluated"):
        scores_of(train, evaluate, draws_of(6, 4)[0], training)
    with pytest.raises(ValueError, match="300 refits need as many evaluation draws, there are 200"):
        scores_of(train, evaluate, bootstrap, draws_of(6, 5, refits=300)[1])


@pytest.mark.deep
@pytest.mark.parametrize(("nuisance", "between"), [(0.7, 0.15), (1.5, 0.5)])
@pytest.mark.parametrize(("n_train", "n_evaluate"), [(6, 12), (12, 12), (25, 25), (60, 25)])
def test_how_often_the_interval_holds_what_the_recipe_scores_on_average(
    n_train, n_evaluate, nuisance, between
):
    """Coverage of mean R2 over new training and evaluation episodes; beside it that of the held probe."""
    world = World(24, n_train, nuisance=nuisance, between=between)
    x_new, y_new, _ = world.rows(1500)
    refitted, held, truth = [], [], []
    for _ in range(300):
        train, evaluate = world.rows(n_train), world.rows(n_evaluate)
        bootstrap = Bootstrap.draw(np.arange(n_evaluate), world.rng, resamples=400)
        training = Bootstrap.draw(np.arange(n_train), world.rng, resamples=200)
        moments = Moments.of(*train)
        fit = fit_ridge(*train, alphas=[30.0])
        truth.append(r2_score(y_new, fit.predict(x_new)))
        sums = ResidualSums.of(evaluate[1], fit.predict(evaluate[0]), evaluate[2])
        held.append(score_joints(sums, bootstrap, ALL).mean)
        refitted.append(
            refit_scores(
                moments, *evaluate, alpha=30.0, testable=ALL, bootstrap=bootstrap, training=training
            ).mean
        )
    goal = np.mean(truth)
    cover = [np.mean([e.low <= goal <= e.high for e in kind]) for kind in (refitted, held)]
    width = [np.mean([e.high - e.low for e in kind]) for kind in (refitted, held)]
    print(
        f"\n{n_train} training, {n_evaluate} evaluation episodes, nuisance {nuisance}, {between:.0%} "
        f"between, R2 {goal:.2f}: with refit {cover[0]:.1%} ({width[0]:.2f}), held BCa {cover[1]:.1%} "
        f"({width[1]:.2f}); 300 simulations, standard error 1.7 points"
    )
    assert cover[0] >= 0.92 and cover[0] > cover[1]
