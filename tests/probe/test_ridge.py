"""The ridge probe against scikit-learn, against closed forms, and against itself the slow way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probe.clusters import EpisodeClusters, balanced_folds
from probe.moments import Moments
from probe.ridge import RidgeFit, RidgePath, fit_ridge, refit_ridge, ridge_path
from probe.spectrum import Spectrum

GRID = np.logspace(-3, 5, 9)


class Problem:
    """A made-up probe: latents that say something about the joints, in episodes that differ."""

    def __init__(
        self, n_rows: int, n_features: int, *, n_episodes: int = 7, n_joints: int = 3, seed: int = 0
    ):
        rng = np.random.default_rng(seed)
        self.labels = np.sort(
            np.concatenate([np.arange(n_episodes), rng.integers(0, n_episodes, n_rows - n_episodes)])
        )
        self.episodes = EpisodeClusters.of(self.labels)
        offset = rng.standard_normal((n_episodes, n_features))[self.labels]
        self.x = (rng.standard_normal((n_rows, n_features)) + 0.5 * offset) * rng.uniform(
            0.1, 10, n_features
        ) + 3
        weight = rng.standard_normal((n_features, n_joints)) / np.sqrt(n_features)
        self.y = (
            self.x @ weight * 0.1
            + 0.3 * rng.standard_normal((n_rows, n_joints))
            + [[0.1, 1.0, -2.0][:n_joints]]
        )
        self.new = rng.standard_normal((20, n_features)) * 3


def duplicated() -> Problem:
    problem = Problem(120, 6)
    problem.x = np.hstack([problem.x, problem.x, problem.x @ np.ones((6, 2))])
    problem.new = np.hstack([problem.new, problem.new, problem.new @ np.ones((6, 2))])
    return problem


def constant_columns() -> Problem:
    problem = Problem(150, 8)
    problem.x[:, 2], problem.x[:, 5] = 0.1, 1e6  # 0.1 has no exact mean
    problem.x[:, 6] = 0
    return problem


def one_row_episodes() -> Problem:
    problem = Problem(40, 5, n_episodes=40)
    assert problem.episodes.count.tolist() == [1] * 40
    return problem


def constant_within_one_episode() -> Problem:
    problem = Problem(90, 5)
    problem.x[:, 1] = np.where(problem.labels == 2, problem.x[:, 1], 7.0)  # varies in one fold's episode only
    return problem


def scattered() -> Problem:
    problem = Problem(100, 6)
    order = np.random.default_rng(3).permutation(100)
    problem.x, problem.y, problem.labels = problem.x[order], problem.y[order], problem.labels[order]
    problem.episodes = EpisodeClusters.of(problem.labels)
    return problem


PROBLEMS = {
    "tall": lambda: Problem(400, 12),
    "wide": lambda: Problem(60, 200),
    "square": lambda: Problem(50, 50),
    "rows of a fold fewer than features": lambda: Problem(60, 55),
    "singular": duplicated,
    "constant columns": constant_columns,
    "constant but for one fold": constant_within_one_episode,
    "one row an episode": one_row_episodes,
    "rows not in order": scattered,
    "two episodes": lambda: Problem(60, 4, n_episodes=2),
    "one joint": lambda: Problem(80, 4, n_joints=1),
}


@pytest.fixture(params=PROBLEMS, ids=str)
def problem(request) -> Problem:
    return PROBLEMS[request.param]()


def sklearn_ridge(alpha: float):
    return make_pipeline(StandardScaler(), Ridge(alpha=alpha))


def slow_path(problem: Problem, alphas, fold_of) -> RidgePath:
    """Every fold and alpha fitted on its own rows by scikit-learn."""
    fold_of_row = fold_of[problem.episodes.index]
    folds = range(fold_of.max() + 1)
    residual = np.zeros((len(folds), len(alphas), problem.y.shape[1]))
    fold_ss = np.zeros((len(folds), problem.y.shape[1]))
    for fold in folds:
        held = fold_of_row == fold
        fold_ss[fold] = ((problem.y[held] - problem.y[held].mean(axis=0)) ** 2).sum(axis=0)
        for a, alpha in enumerate(alphas):
            fit = sklearn_ridge(alpha).fit(problem.x[~held], problem.y[~held])
            predicted = fit.predict(problem.x[held]).reshape(-1, problem.y.shape[1])
            residual[fold, a] = ((problem.y[held] - predicted) ** 2).sum(axis=0)
    total = ((problem.y - problem.y.mean(axis=0)) ** 2).sum(axis=0)
    return RidgePath(np.asarray(alphas), fold_of, residual, fold_ss, total)


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e4])
def test_a_fixed_alpha_is_scikit_learns_ridge(problem, alpha):
    ours = fit_ridge(problem.x, problem.y, problem.episodes, alphas=[alpha])
    theirs = sklearn_ridge(alpha).fit(problem.x, problem.y)
    expected = theirs.predict(problem.new).reshape(20, -1)
    np.testing.assert_allclose(
        ours.predict(problem.new), expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max()
    )
    coef = np.atleast_2d(theirs[-1].coef_).T
    np.testing.assert_allclose(ours.coef, coef, rtol=1e-8, atol=1e-8 * np.abs(coef).max())
    assert ours.alpha == alpha
    assert ours.path is None and ours.folds is None and ours.edge == "" and np.isnan(ours.cv_scores).all()


def test_the_path_is_every_fold_fitted_alone(problem):
    ours = ridge_path(problem.x, problem.y, problem.episodes, alphas=GRID, folds=5)
    slow = slow_path(problem, GRID, ours.fold_of)
    scale = slow.residual_ss.max()
    np.testing.assert_allclose(ours.residual_ss, slow.residual_ss, rtol=1e-8, atol=1e-12 * scale)
    np.testing.assert_allclose(ours.fold_ss, slow.fold_ss, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.total_ss, slow.total_ss, rtol=1e-10)
    np.testing.assert_allclose(ours.scores(), slow.scores(), rtol=1e-8, atol=1e-10)


def test_the_choice_is_that_of_grid_search(problem):
    if problem.episodes.count.max() == 1:
        pytest.skip("R2 of a fold of one row is not defined in scikit-learn")
    fold_of = balanced_folds(problem.episodes.count, 5)
    split = PredefinedSplit(fold_of[problem.episodes.index])
    search = GridSearchCV(sklearn_ridge(1.0), {"ridge__alpha": GRID}, cv=split, scoring="r2")
    search.fit(problem.x, problem.y)
    ours = fit_ridge(problem.x, problem.y, problem.episodes, alphas=GRID, score="folds")
    np.testing.assert_allclose(ours.cv_scores, search.cv_results_["mean_test_score"], rtol=1e-8, atol=1e-9)
    assert ours.alpha == search.best_params_["ridge__alpha"]
    expected = search.predict(problem.new).reshape(20, -1)
    np.testing.assert_allclose(
        ours.predict(problem.new), expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max()
    )


def test_the_pooled_score_is_one_r2_over_all_held_out_rows():
    problem = Problem(200, 6)
    fit = fit_ridge(problem.x, problem.y, problem.episodes, alphas=GRID)
    rows = fit.folds[problem.episodes.index]
    held_out = np.empty_like(problem.y)
    for fold in range(5):
        theirs = sklearn_ridge(fit.alpha).fit(problem.x[rows != fold], problem.y[rows != fold])
        held_out[rows == fold] = theirs.predict(problem.x[rows == fold])
    error = ((problem.y - held_out) ** 2).sum(axis=0) / ((problem.y - problem.y.mean(axis=0)) ** 2).sum(
        axis=0
    )
    assert fit.cv_scores.max() == pytest.approx((1 - error).mean(), rel=1e-10)
    assert fit.alpha == GRID[np.argmax(fit.cv_scores)]


@pytest.mark.parametrize("alpha", [1e-3, 10.0])
def test_closed_form_by_singular_values(alpha):
    # w = V diag(s / (s^2 + alpha)) U'y, without a Gram matrix
    problem = Problem(90, 15)
    xs = StandardScaler().fit_transform(problem.x)
    u, s, vt = np.linalg.svd(xs, full_matrices=False)
    expected = vt.T @ ((s / (s**2 + alpha))[:, None] * (u.T @ (problem.y - problem.y.mean(axis=0))))
    ours = fit_ridge(problem.x, problem.y, problem.episodes, alphas=[alpha])
    np.testing.assert_allclose(ours.coef, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.intercept, problem.y.mean(axis=0), rtol=1e-13)


@pytest.mark.parametrize(("n_rows", "n_features"), [(300, 2048), (2200, 2048)])
def test_as_many_features_as_a_large_encoder_has(n_rows, n_features):
    problem = Problem(n_rows, n_features)
    ours = fit_ridge(problem.x.astype(np.float32), problem.y, problem.episodes, alphas=[0.01])
    theirs = sklearn_ridge(0.01).fit(problem.x.astype(np.float32).astype(np.float64), problem.y)
    expected = theirs.predict(problem.new)
    np.testing.assert_allclose(ours.predict(problem.new), expected, atol=1e-8 * np.abs(expected).max())


def test_primal_and_dual_are_the_same_estimator():
    for n_rows, n_features in ((80, 10), (30, 60)):
        problem = Problem(n_rows, n_features)
        everything = Moments.of(problem.x, problem.y, EpisodeClusters.of(np.zeros(n_rows)))
        primal, dual = Spectrum.primal(everything), Spectrum.dual(problem.x, problem.y)
        np.testing.assert_allclose(primal.coef(GRID), dual.coef(GRID), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(
            primal.residual_ss(everything, GRID),
            dual.residual_ss_of_rows(problem.x, problem.y, GRID),
            rtol=1e-6,
            atol=1e-9,
        )


def test_an_alpha_far_below_rounding_does_not_blow_up_null_directions():
    problem = duplicated()
    ours = fit_ridge(problem.x, problem.y, problem.episodes, alphas=[1e-12])
    # so small an alpha leaves the least-squares solution of least norm
    xs = StandardScaler().fit_transform(problem.x)
    expected = np.linalg.lstsq(xs, problem.y - problem.y.mean(axis=0), rcond=1e-10)[0]
    np.testing.assert_allclose(ours.coef, expected, rtol=1e-7, atol=1e-9)


def test_latents_far_from_zero_lose_nothing():
    problem = Problem(300, 8)
    shift = 2.0**23
    x = problem.x.astype(np.float32).astype(np.float64)
    near = fit_ridge(x, problem.y, problem.episodes, alphas=GRID)
    far = fit_ridge(x + shift, problem.y, problem.episodes, alphas=GRID)
    np.testing.assert_allclose(far.cv_scores, near.cv_scores, rtol=1e-7)
    np.testing.assert_allclose(far.coef, near.coef, rtol=1e-6, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.booleans())
def test_units_of_the_latents_do_not_matter(seed, wide):
    problem = Problem(40 if wide else 120, 50 if wide else 6, seed=seed % 1000)
    rng = np.random.default_rng(seed)
    scale = 10 ** rng.uniform(-6, 6, problem.x.shape[1]) * rng.choice([-1, 1], problem.x.shape[1])
    shift = rng.uniform(-5, 5, problem.x.shape[1]) * np.abs(scale)
    one = fit_ridge(problem.x, problem.y, problem.episodes, alphas=GRID)
    two = fit_ridge(problem.x * scale + shift, problem.y, problem.episodes, alphas=GRID)
    assert one.alpha == two.alpha
    np.testing.assert_allclose(two.cv_scores, one.cv_scores, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(
        two.predict(problem.new * scale + shift), one.predict(problem.new), rtol=1e-6, atol=1e-8
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31))
def test_units_of_the_joints_and_the_order_of_rows_do_not_matter(seed):
    problem = Problem(120, 6, seed=seed % 1000)
    rng = np.random.default_rng(seed)
    factor, shift = 10 ** rng.uniform(-4, 4, 3), rng.uniform(-3, 3, 3)
    order = rng.permutation(120)
    one = fit_ridge(problem.x, problem.y, problem.episodes, alphas=GRID)
    two = fit_ridge(
        problem.x[order],
        problem.y[order] * factor + shift,
        EpisodeClusters.of(problem.labels[order]),
        alphas=GRID,
    )
    assert one.alpha == two.alpha
    np.testing.assert_allclose(two.cv_scores, one.cv_scores, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        two.predict(problem.new), one.predict(problem.new) * factor + shift, rtol=1e-7, atol=1e-9
    )


def test_an_alpha_of_its_own_for_each_joint():
    problem = Problem(60, 40)
    problem.y[:, 1] = np.random.default_rng(5).standard_normal(60)  # nothing to find: wants a large alpha
    together = fit_ridge(problem.x, problem.y, problem.episodes, alphas=GRID, per_joint=True)
    assert len(set(together.alpha_by_joint.tolist())) > 1
    with pytest.raises(ValueError, match="alpha differs by joint"):
        _ = together.alpha
    for joint in range(3):
        alone = fit_ridge(problem.x, problem.y[:, [joint]], problem.episodes, alphas=GRID)
        assert together.alpha_by_joint[joint] == alone.alpha
        np.testing.assert_allclose(together.coef[:, [joint]], alone.coef, rtol=1e-10)


def test_only_testable_joints_choose_alpha():
    problem = Problem(60, 40)
    problem.y[:, 2] = np.random.default_rng(5).standard_normal(60)
    mask = np.array([True, True, False])
    some = fit_ridge(problem.x, problem.y, problem.episodes, alphas=GRID, testable=mask)
    alone = fit_ridge(problem.x, problem.y[:, :2], problem.episodes, alphas=GRID)
    everyone = fit_ridge(problem.x, problem.y, problem.episodes, alphas=GRID)
    np.testing.assert_allclose(some.cv_scores, alone.cv_scores, rtol=1e-12)
    assert some.alpha == alone.alpha
    assert not np.allclose(some.cv_scores, everyone.cv_scores)
    assert some.coef.shape == (40, 3)


def test_a_joint_that_does_not_move_in_training_has_no_say():
    problem = Problem(80, 6)
    problem.y[:, 0] = 0.1
    fit = fit_ridge(problem.x, problem.y, problem.episodes, alphas=GRID)
    np.testing.assert_allclose(
        fit.cv_scores,
        fit_ridge(problem.x, problem.y[:, 1:], problem.episodes, alphas=GRID).cv_scores,
        rtol=1e-12,
    )
    np.testing.assert_allclose(fit.predict(problem.new)[:, 0], 0.1, rtol=1e-12)
    problem.y[:] = 0.1
    nothing = fit_ridge(problem.x, problem.y, problem.episodes, alphas=GRID)
    assert nothing.alpha == GRID[-1]
    assert np.isnan(nothing.cv_scores).all()
    assert "no testable joint varies over the training rows" in nothing.notes[0]


def test_an_alpha_at_the_edge_is_reported():
    problem = Problem(200, 6)
    inside = fit_ridge(problem.x, problem.y, problem.episodes, alphas=GRID)
    assert inside.edge == "" and inside.notes == ()
    low = fit_ridge(problem.x, problem.y, problem.episodes, alphas=[1e3, 1e4, 1e5])
    assert (low.alpha, low.edge) == (1e3, "low")
    assert low.notes == ("alpha 1000 is the smallest of the grid: extend the grid downwards",)
    noise = np.random.default_rng(0).standard_normal(problem.x.shape)
    high = fit_ridge(noise, problem.y, problem.episodes, alphas=[1e-3, 1e-2, 1e-1])
    assert (high.alpha, high.edge) == (1e-1, "high")
    assert "largest of the grid" in high.notes[0]


def test_ties_go_to_the_larger_alpha_and_collapsed_latents_predict_the_mean():
    problem = Problem(80, 6)
    flat = fit_ridge(np.full((80, 6), 0.1), problem.y, problem.episodes, alphas=GRID)
    assert np.ptp(flat.cv_scores) == 0
    assert flat.alpha == GRID[-1]
    assert flat.n_constant == 6 and not flat.coef.any()
    assert "every feature is constant" in flat.notes[-1]
    np.testing.assert_allclose(flat.predict(problem.new), np.tile(problem.y.mean(axis=0), (20, 1)))


def test_constant_features_are_dropped_and_counted():
    problem = constant_columns()
    fit = fit_ridge(problem.x, problem.y, problem.episodes, alphas=GRID)
    assert fit.n_constant == 3
    assert not fit.coef[[2, 5, 6]].any()
    assert fit.scale[[2, 5, 6]].tolist() == [1, 1, 1]
    assert fit.notes == ("3 of 8 features are constant over the training rows and were dropped",)
    moved = problem.new.copy()
    moved[:, [2, 5, 6]] += 1e9  # what a dropped feature does later is nothing to the probe
    np.testing.assert_array_equal(fit.predict(moved), fit.predict(problem.new))


@pytest.mark.parametrize("n_rows", [97, 300])
def test_a_feature_that_is_constant_in_training_is_recognised_whatever_its_value(n_rows):
    # constants that no float holds exactly, far from the origin (the mean with a left-out group that varies)
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [n_rows // 3, n_rows - n_rows // 3, 50])
    x = rng.uniform(-10, 10, 200) + np.where(labels == 2, 1.0, 0.0)[:, None] * rng.standard_normal(
        (len(labels), 200)
    )
    x[:, :3] = rng.standard_normal((len(labels), 3))
    y = rng.standard_normal((len(labels), 2))
    moments = Moments.of(x, y, EpisodeClusters.of(labels))
    train = labels < 2
    for spectrum in (Spectrum.primal(moments.total(leaving_out=2)), Spectrum.dual(x[train], y[train])):
        assert np.flatnonzero(spectrum.kept).tolist() == [0, 1, 2]
        assert (spectrum.scale[3:] == 1).all()


def test_a_resample_refit_is_a_fit_to_repeated_rows():
    problem = Problem(120, 9)
    moments = Moments.of(problem.x, problem.y, problem.episodes)
    weights = np.array([2, 0, 1, 3, 0, 0, 1.0])
    rows = np.concatenate([np.tile(problem.episodes.rows(e), int(w)) for e, w in enumerate(weights)])
    theirs = sklearn_ridge(2.0).fit(problem.x[rows], problem.y[rows])
    ours = refit_ridge(moments.weighted(weights), 2.0)
    assert ours.n_rows == len(rows)
    np.testing.assert_allclose(ours.predict(problem.new), theirs.predict(problem.new), rtol=1e-8, atol=1e-9)
    by_joint = refit_ridge(moments, np.array([1.0, 10.0, 1.0]))
    whole = fit_ridge(problem.x, problem.y, problem.episodes, alphas=[10.0])
    np.testing.assert_allclose(by_joint.coef[:, 1], whole.coef[:, 1], rtol=1e-10)


def test_moments_merge_and_leave_out():
    problem = Problem(100, 4)
    moments = Moments.of(problem.x, problem.y, problem.episodes)
    fold_of = np.array([0, 1, 0, 2, 1, 2, 0])
    merged = moments.merged(fold_of)
    direct = Moments.of(problem.x, problem.y, problem.episodes.merged(fold_of))
    rest = moments.total(leaving_out=3)
    fewer = moments.weighted(np.array([1, 1, 1, 0, 1, 1, 1]))
    for name in ("count", "x_sum", "y_sum", "xx", "xy", "yy"):
        np.testing.assert_allclose(getattr(merged, name), getattr(direct, name), rtol=1e-12, atol=1e-10)
        np.testing.assert_allclose(getattr(rest, name), getattr(fewer, name), rtol=1e-12, atol=1e-10)


def test_bad_input_is_named():
    problem = Problem(60, 4)
    x, y, episodes = problem.x, problem.y, problem.episodes
    with pytest.raises(ValueError, match="only 1 training episode: give one fixed alpha instead of a grid"):
        fit_ridge(x, y, EpisodeClusters.of(np.zeros(60)), alphas=GRID)
    fit_ridge(x, y, EpisodeClusters.of(np.zeros(60)), alphas=[1e3])
    for alphas in ([], [0.0, 1.0], [-1.0], [np.nan, 1.0], [np.inf]):
        with pytest.raises(ValueError, match="alphas must be positive, finite numbers"):
            fit_ridge(x, y, episodes, alphas=alphas)
    with pytest.raises(ValueError, match="60 rows of features, 59 of targets, 60 of episodes"):
        fit_ridge(x, y[:-1], episodes, alphas=GRID)
    with pytest.raises(ValueError, match="score = 'mean'"):
        fit_ridge(x, y, episodes, alphas=GRID, score="mean")
    broken = x.copy()
    broken[7, 2], broken[9, 1] = np.nan, np.inf
    label = problem.labels[7]
    with pytest.raises(
        ValueError,
        match=rf"features: 2 of 240 .* not finite; the first is in row 7, column 2 \(episode {label}\)",
    ):
        fit_ridge(broken, y, episodes, alphas=GRID)
    fit = fit_ridge(x, y, episodes, alphas=GRID)
    with pytest.raises(ValueError, match=r"fitted to 4 features, got shape \(60, 3\)"):
        fit.predict(x[:, :3])
    with pytest.raises(ValueError, match="prediction of row 7 is not finite"):
        fit.predict(broken)


def test_inputs_are_left_as_they_are():
    problem = Problem(60, 70)
    x, y = problem.x.copy(), problem.y.copy()
    fit_ridge(problem.x, problem.y, problem.episodes, alphas=GRID)
    fit_ridge(problem.x[:, :5], problem.y, problem.episodes, alphas=GRID)
    np.testing.assert_array_equal(problem.x, x)
    np.testing.assert_array_equal(problem.y, y)


def test_half_precision_latents_and_no_rows_to_predict():
    problem = Problem(60, 4)
    fit = fit_ridge(problem.x.astype(np.float16), problem.y, problem.episodes, alphas=GRID)
    same = fit_ridge(
        problem.x.astype(np.float16).astype(np.float64), problem.y, problem.episodes, alphas=GRID
    )
    np.testing.assert_allclose(fit.coef, same.coef, rtol=1e-12)
    assert isinstance(replace(fit, notes=("x",)), RidgeFit)
    assert fit.predict(np.zeros((0, 4))).shape == (0, 3)
