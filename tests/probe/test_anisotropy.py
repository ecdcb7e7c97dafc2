"""The null of anisotropy and its cross-fitted contrast, by hand and by simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import r2_score

from probe.anisotropy import anisotropy_null, crossfit_contrast
from probe.bootstrap import Bootstrap
from probe.clusters import EpisodeClusters
from probe.ridge import fit_ridge
from probe.statistics import ResidualSums, score_joints


def evaluation(n_episodes: int, noise, rng: np.random.Generator, *, between: float = 0.15):
    """Joints of variance 1, errors of variance `noise` [J], half of it shared within an episode."""
    index = np.repeat(np.arange(n_episodes), 30)
    j = len(noise)

    def values(share):
        within = np.sqrt(1 - share) * rng.standard_normal((len(index), j))
        return within + np.sqrt(share) * rng.standard_normal((n_episodes, j))[index]

    y = values(between)
    return y, y - values(0.5) * np.sqrt(noise), EpisodeClusters.of(index)


def null_of(y, prediction, episodes, *, testable=None, resamples=400, seed=0, bootstrap=None):
    bootstrap = bootstrap or Bootstrap.draw(episodes.labels, np.random.default_rng(seed), resamples=resamples)
    sums = ResidualSums.of(y, prediction, episodes)
    testable = np.ones(y.shape[1], dtype=bool) if testable is None else testable
    return anisotropy_null(sums, score_joints(sums, bootstrap, testable), bootstrap)


def test_the_null_is_that_of_rows_with_scaled_residuals():
    y, prediction, episodes = evaluation(8, [0.1, 0.4, 0.7, 0.2], np.random.default_rng(1))
    testable = np.array([True, True, True, False])
    bootstrap = Bootstrap.draw(episodes.labels, np.random.default_rng(3), resamples=50)
    null = null_of(y, prediction, episodes, testable=testable, bootstrap=bootstrap)
    raw = r2_score(y, prediction, multioutput="raw_values")[:3]
    assert null.common_r2 == pytest.approx(raw.mean(), rel=1e-12)
    assert null.null.observed == pytest.approx(np.ptp(raw), rel=1e-12)
    scaled = y[:, :3] - (y - prediction)[:, :3] * np.sqrt((1 - raw.mean()) / (1 - raw))
    np.testing.assert_allclose(r2_score(y[:, :3], scaled, multioutput="raw_values"), raw.mean(), rtol=1e-12)
    gaps = []
    for weights in bootstrap.weights:
        rows = np.concatenate([np.tile(episodes.rows(e), int(w)) for e, w in enumerate(weights)])
        gaps.append(np.ptp(r2_score(y[rows][:, :3], scaled[rows], multioutput="raw_values")))
    np.testing.assert_allclose(null.draws, np.array(gaps) * np.sqrt(8 / 7), rtol=1e-10)
    assert null.null.mean == pytest.approx(null.draws.mean())
    assert null.null.q95 == pytest.approx(np.quantile(null.draws, 0.95))
    assert null.null.p_value == (1 + (null.draws >= null.null.observed).sum()) / 51


def test_joints_alike_have_a_gap_that_the_null_explains_and_unlike_ones_do_not():
    rng = np.random.default_rng(0)
    alike = null_of(*evaluation(20, [0.3] * 6, rng)).null
    unlike = null_of(*evaluation(20, [0.05, 0.1, 0.3, 0.5, 0.7, 0.9], rng)).null
    assert alike.mean > 0.05 and alike.p_value > 0.05
    assert unlike.p_value == pytest.approx(1 / 401)


def test_the_null_of_units_and_signs_is_the_same():
    y, prediction, episodes = evaluation(9, [0.2, 0.6], np.random.default_rng(2))
    factor = np.array([-100.0, 1e-3])
    one, two = null_of(y, prediction, episodes), null_of(y * factor, prediction * factor, episodes)
    np.testing.assert_allclose(two.draws, one.draws, rtol=1e-8)


def test_where_there_is_no_null_the_note_says_why():
    rng = np.random.default_rng(0)
    y, prediction, episodes = evaluation(8, [0.2, 0.6], rng)
    single = null_of(y, prediction, episodes, testable=np.array([True, False]))
    assert single.null is None and single.note == "needs two testable joints" and len(single.draws) == 0
    perfect = null_of(y, np.stack([y[:, 0], prediction[:, 1]], axis=1), episodes)
    assert perfect.null is None and perfect.note == "no null: a joint is predicted without any error"
    alone = null_of(*evaluation(1, [0.2, 0.6], rng))
    assert alone.null is None and alone.note == "no null: 1 evaluation episode"


def probed(seed: int, weights, n_train: int = 10, n_evaluate: int = 8, n_rows: int = 40):
    """A probe of joints that the latents hold with signal `weights` [J], and its scores."""
    rng = np.random.default_rng(seed)

    def rows(n_episodes):
        index = np.repeat(np.arange(n_episodes), n_rows)
        y = rng.standard_normal((len(index), len(weights)))
        x = (y * weights) @ np.eye(len(weights), 6) + rng.standard_normal((len(index), 6))
        return x, y, EpisodeClusters.of(index)

    train, evaluate = rows(n_train), rows(n_evaluate)
    fit = fit_ridge(*train, alphas=np.logspace(-2, 3, 6))
    bootstrap = Bootstrap.draw(evaluate[2].labels, rng, resamples=300)
    sums = ResidualSums.of(evaluate[1], fit.predict(evaluate[0]), evaluate[2])
    return fit, score_joints(sums, bootstrap, np.ones(len(weights), dtype=bool))


def test_the_contrast_is_chosen_on_training_episodes():
    fit, scores = probed(0, [3.0, 1.0, 0.1, 0.5])
    contrast = crossfit_contrast(fit, scores)
    row = int(np.flatnonzero(fit.alphas == fit.alpha)[0])
    np.testing.assert_array_equal(contrast.train_r2, fit.path.joint_scores()[row])
    assert (contrast.best, contrast.worst) == (0, 2)
    expected = scores.joints[0].value - scores.joints[2].value
    assert contrast.estimate.value == pytest.approx(expected)
    assert contrast.estimate.low < expected < contrast.estimate.high
    np.testing.assert_allclose(contrast.estimate.draws, scores.joints[0].draws - scores.joints[2].draws)
    # what the evaluation rows say about which is best has no part in it
    swapped = replace(scores, joints=scores.joints[::-1])
    assert (crossfit_contrast(fit, swapped).best, crossfit_contrast(fit, swapped).worst) == (0, 2)


def test_the_contrast_leaves_out_joints_that_are_not_testable_or_stand_still():
    fit, scores = probed(0, [3.0, 1.0, 0.1, 0.5])
    fewer = replace(scores, testable=np.array([False, True, False, True]))
    assert (crossfit_contrast(fit, fewer).best, crossfit_contrast(fit, fewer).worst) == (1, 3)
    still = replace(fit, path=replace(fit.path, total_ss=fit.path.total_ss * [1, 1, 0, 1]))
    assert crossfit_contrast(still, scores).worst == 3
    lost = replace(fit, path=replace(fit.path, total_ss=fit.path.total_ss * [1, 0, 0, 0]))
    contrast = crossfit_contrast(lost, scores)
    assert contrast.best is None and contrast.estimate.value is None
    assert contrast.estimate.note == "fewer than two joints vary in training"


def test_a_given_alpha_gives_no_contrast():
    fit, scores = probed(0, [3.0, 1.0])
    contrast = crossfit_contrast(replace(fit, path=None), scores)
    assert contrast.best is None and contrast.estimate.value is None
    assert contrast.estimate.note.startswith("no contrast: alpha was given")


@pytest.mark.slow
@pytest.mark.parametrize("between", [0.15, 0.5])
@pytest.mark.parametrize("n_episodes", [6, 12, 25, 50])
def test_how_often_the_null_is_rejected_where_all_joints_are_alike(n_episodes, between):
    """False-alarm rate of p <= 0.05, six joints of R2 0.7."""
    rng = np.random.default_rng([n_episodes, int(100 * between)])
    n = 1000
    p_values, gaps, means = np.zeros(n), np.zeros(n), np.zeros(n)
    for i in range(n):
        bootstrap = Bootstrap.draw(np.arange(n_episodes), rng, resamples=300, interval="percentile")
        null = null_of(*evaluation(n_episodes, [0.3] * 6, rng, between=between), bootstrap=bootstrap).null
        p_values[i], gaps[i], means[i] = null.p_value, null.observed, null.mean
    alarms = (p_values <= 0.05).mean()
    print(
        f"\n{n_episodes} episodes, {between:.0%} between: p <= 0.05 in {alarms:.1%} (standard error 0.7 "
        f"points); gap {gaps.mean():.3f}, its null {means.mean():.3f}"
    )
    assert alarms < 0.09
    assert 0.85 < means.mean() / gaps.mean() < 1.4


@pytest.mark.slow
def test_the_contrast_is_about_nothing_where_joints_are_alike_and_anisotropy_is_not():
    contrasts, gaps = [], []
    for seed in range(300):
        fit, scores = probed(seed, [0.5] * 4, n_evaluate=12)
        contrast = crossfit_contrast(fit, scores)
        contrasts.append(contrast.estimate.value)
        gaps.append(scores.anisotropy.value)
    error = np.std(contrasts) / np.sqrt(300)
    print(f"\ncontrast {np.mean(contrasts):.4f} (standard error {error:.4f}), anisotropy {np.mean(gaps):.4f}")
    assert abs(np.mean(contrasts)) < 3 * error
    assert np.mean(gaps) > 10 * error
