"""The permutation null against exchanging and refitting by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import probe.permutation as permutation
from probe.bootstrap import Bootstrap
from probe.clusters import EpisodeClusters
from probe.permutation import (
    circular_shifts,
    episode_exchanges,
    permutation_null,
    selectivity,
    stretch,
)
from probe.ridge import fit_ridge
from probe.statistics import ResidualSums, score_joints

ALL = np.ones(2, dtype=bool)


def rows(n_rows: int, n_episodes: int, n_features: int, seed: int, *, signal: float = 1.0):
    """Latents, joints and episodes of unequal length; the same linear map for every seed."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(n_episodes), rng.integers(0, n_episodes, n_rows - n_episodes)])
    x = rng.standard_normal((n_rows, n_features)) + rng.standard_normal((n_episodes, n_features))[labels] + 2
    weight = np.random.default_rng(99).standard_normal((n_features, 2)) / np.sqrt(n_features)
    y = signal * x @ weight + 0.3 * rng.standard_normal((n_rows, 2)) + [1.0, -3.0]
    return x, y, EpisodeClusters.of(labels)


@given(st.integers(1, 300), st.integers(1, 300))
def test_stretching_takes_the_nearest_row_in_order(n_from, n_to):
    taken = stretch(n_from, n_to)
    assert taken.shape == (n_to,)
    assert (np.diff(taken) >= 0).all() and taken[0] >= 0 and taken[-1] < n_from
    assert taken.tolist() == [math.floor((2 * i + 1) * n_from / (2 * n_to)) for i in range(n_to)]
    if n_from == n_to:
        assert taken.tolist() == list(range(n_to))


@given(st.integers(2, 30), st.integers(1, 50), st.integers(0, 2**31))
def test_no_episode_keeps_its_own_targets(n_episodes, n, seed):
    donors, exhaustive = episode_exchanges(n_episodes, n, np.random.default_rng(seed))
    assert (np.sort(donors, axis=1) == np.arange(n_episodes)).all()
    assert (donors != np.arange(n_episodes)).all()
    assert len(donors) == n or (exhaustive and len(donors) < n)


def test_few_episodes_are_exchanged_in_every_way_once():
    rng = np.random.default_rng(0)
    for n_episodes, count in ((1, 0), (2, 1), (3, 2), (4, 9), (5, 44), (6, 265)):
        donors, exhaustive = episode_exchanges(n_episodes, 300, rng)
        assert exhaustive and len(donors) == len(np.unique(donors, axis=0)) == count
    donors, exhaustive = episode_exchanges(6, 264, rng)
    assert not exhaustive and len(donors) == 264
    donors, _ = episode_exchanges(4, 8, rng)
    assert len(donors) == 8


def test_random_exchanges_are_uniform():
    donors, exhaustive = episode_exchanges(8, 14_000, np.random.default_rng(0))  # of 14,833
    assert not exhaustive
    for episode in range(8):
        counts = np.bincount(donors[:, episode], minlength=8)
        assert counts[episode] == 0
        assert abs(np.delete(counts, episode) - 2000).max() < 200


@pytest.mark.parametrize(
    ("n_features", "alpha"),
    [(5, 3.0), (5, np.array([0.1, 50.0])), (90, 3.0)],
    ids=["one alpha", "two", "wide"],
)
def test_the_null_is_refitting_to_exchanged_targets_by_hand(n_features, alpha, monkeypatch):
    x, y, train = rows(70, 6, n_features, 0)
    xe, ye, _ = rows(40, 4, n_features, 1)
    x[:, 2] = 0.1
    monkeypatch.setattr(permutation, "_BLOCK_BYTES", 8 * 2 * n_features * 7)  # several blocks
    null = permutation_null(
        x, y, train, xe, ye, alpha=alpha, testable=ALL, rng=np.random.default_rng(4), exchanges=25
    )
    donors, _ = episode_exchanges(6, 25, np.random.default_rng(4))
    assert null.draws.shape == (25, 2) and not null.exhaustive and null.note == ""
    for draw, exchange in zip(null.draws, donors):
        exchanged = np.empty_like(y)
        for e, donor in enumerate(exchange):
            n = train.count[e]
            nearest = [math.floor((i + 0.5) * train.count[donor] / n) for i in range(n)]
            exchanged[train.rows(e)] = y[train.rows(donor)][nearest]
        fit = make_pipeline(StandardScaler(), Ridge(alpha=alpha)).fit(x, exchanged)
        np.testing.assert_allclose(
            draw, r2_score(ye, fit.predict(xe), multioutput="raw_values"), rtol=1e-8, atol=1e-10
        )
    true = make_pipeline(StandardScaler(), Ridge(alpha=alpha)).fit(x, y)
    observed = r2_score(ye, true.predict(xe), multioutput="raw_values")
    assert [joint.observed for joint in null.joints] == pytest.approx(observed.tolist(), rel=1e-8)
    assert null.mean.observed == pytest.approx(observed.mean(), rel=1e-8)
    mean = null.draws.mean(axis=1)
    assert null.mean.mean == pytest.approx(mean.mean()) and null.mean.q95 == pytest.approx(
        np.quantile(mean, 0.95)
    )
    assert null.mean.p_value == (1 + (mean >= null.mean.observed).sum()) / 26


def test_features_that_repeat_each_other_do_not_blow_up_a_small_alpha():
    # each of two copies takes half a coefficient: the same as one, at half the alpha, on the mean of both
    x, y, train = rows(70, 6, 5, 0)
    xe, ye, _ = rows(40, 4, 5, 1)
    other = xe + np.random.default_rng(2).standard_normal(xe.shape)
    options = {"testable": ALL, "exchanges": 20}
    once = permutation_null(
        x, y, train, (xe + other) / 2, ye, alpha=1e-13, rng=np.random.default_rng(0), **options
    )
    twice = permutation_null(
        np.hstack([x, x]),
        y,
        train,
        np.hstack([xe, other]),
        ye,
        alpha=2e-13,
        rng=np.random.default_rng(0),
        **options,
    )
    np.testing.assert_allclose(twice.draws, once.draws, rtol=1e-8)


def test_a_real_signal_stands_out_and_none_does_not():
    x, y, train = rows(600, 12, 6, 0)
    xe, ye, _ = rows(300, 6, 6, 1)
    null = permutation_null(x, y, train, xe, ye, alpha=1.0, testable=ALL, rng=np.random.default_rng(0))
    assert null.mean.p_value == 1 / 201
    assert null.mean.observed > 0.5 > null.mean.q95 > null.mean.mean


def test_p_values_are_uniform_where_there_is_no_signal():
    p_values = []
    for seed in range(60):
        x, y, train = rows(80, 10, 4, 2 * seed, signal=0)
        xe, ye, _ = rows(60, 6, 4, 2 * seed + 1, signal=0)
        null = permutation_null(
            x, y, train, xe, ye, alpha=1.0, testable=ALL, rng=np.random.default_rng(seed), exchanges=39
        )
        p_values.append(null.mean.p_value)
    p_values = np.sort(p_values)
    assert np.abs(p_values - (np.arange(60) + 0.5) / 60).max() < 0.21  # Kolmogorov-Smirnov at 1 %


def test_what_all_episodes_have_in_common_stays_in_the_null():
    # every episode runs through the same course, and the latent is a clock: exchanges change nothing
    n = 40
    time = np.tile(np.linspace(0, 1, n), 8)[:, None]
    episodes = EpisodeClusters.of(np.repeat(np.arange(8), n))
    y = np.hstack([time, time**2])
    null = permutation_null(
        time, y, episodes, time, y, alpha=1e-3, testable=ALL, rng=np.random.default_rng(0)
    )
    assert null.mean.mean == pytest.approx(null.mean.observed, abs=1e-9)


def test_with_one_training_episode_there_is_no_null():
    x, y, train = rows(30, 1, 4, 0)
    null = permutation_null(x, y, train, x, y, alpha=1.0, testable=ALL, rng=np.random.default_rng(0))
    assert null.mean is None and null.joints == (None, None) and null.draws.shape == (0, 2)
    assert null.note == "no null: nothing to exchange with a single training episode"


def test_with_two_training_episodes_p_cannot_be_small():
    x, y, train = rows(60, 2, 4, 0)
    null = permutation_null(x, y, train, x, y, alpha=1.0, testable=ALL, rng=np.random.default_rng(0))
    assert null.exhaustive and null.mean.p_value == 0.5
    assert null.note == "2 training episodes allow only 1 exchange"


def test_joints_that_are_not_testable_have_no_null():
    x, y, train = rows(60, 6, 4, 0)
    null = permutation_null(
        x,
        y,
        train,
        x,
        y,
        alpha=1.0,
        testable=np.array([False, True]),
        rng=np.random.default_rng(0),
        exchanges=20,
    )
    assert null.joints[0] is None
    assert null.mean == null.joints[1]
    nothing = permutation_null(
        x, y, train, x, y, alpha=1.0, testable=~ALL, rng=np.random.default_rng(0), exchanges=20
    )
    assert nothing.mean is None


@given(st.lists(st.integers(1, 200), min_size=1, max_size=6), st.integers(0, 2**31))
def test_shifts_stay_a_tenth_away_from_no_shift(count, seed):
    count = np.array(count)
    shifts = circular_shifts(count, 50, np.random.default_rng(seed))
    assert shifts.shape == (50, len(count))
    for n, of_episode in zip(count, shifts.T):
        if n == 1:
            assert not of_episode.any()
        else:
            assert (np.minimum(of_episode, n - of_episode) >= n / 10).all() and (of_episode < n).all()


def test_shifts_are_uniform_over_both_directions():
    shifts = circular_shifts(np.array([20]), 17_000, np.random.default_rng(0))[:, 0]
    counts = np.bincount(shifts, minlength=20)
    assert counts[:2].tolist() == [0, 0] and counts[19] == 0
    assert abs(counts[2:19] - 1000).max() < 130


@pytest.mark.parametrize(("n_features", "alpha"), [(5, 3.0), (5, np.array([0.1, 50.0])), (90, 3.0)])
def test_the_shifted_null_is_refitting_to_rolled_targets_by_hand(n_features, alpha, monkeypatch):
    x, y, train = rows(70, 6, n_features, 0)
    xe, ye, _ = rows(40, 4, n_features, 1)
    x[:, 2] = 0.1
    monkeypatch.setattr(permutation, "_BLOCK_BYTES", 8 * 2 * n_features * 7)  # several blocks
    options = {"alpha": alpha, "testable": ALL, "exchanges": 25, "scheme": "shift"}
    null = permutation_null(x, y, train, xe, ye, rng=np.random.default_rng(4), **options)
    shifts = circular_shifts(train.count, 25, np.random.default_rng(4))
    assert null.draws.shape == (25, 2) and null.scheme == "shift" and not null.exhaustive
    for draw, shift in zip(null.draws, shifts):
        moved = np.empty_like(y)
        for e in range(6):
            moved[train.rows(e)] = np.roll(y[train.rows(e)], shift[e], axis=0)
        fit = make_pipeline(StandardScaler(), Ridge(alpha=alpha)).fit(x, moved)
        np.testing.assert_allclose(
            draw, r2_score(ye, fit.predict(xe), multioutput="raw_values"), rtol=1e-8, atol=1e-10
        )
    true = make_pipeline(StandardScaler(), Ridge(alpha=alpha)).fit(x, y)
    observed = r2_score(ye, true.predict(xe), multioutput="raw_values")
    assert [joint.observed for joint in null.joints] == pytest.approx(observed.tolist(), rel=1e-8)


def test_a_common_course_is_broken_by_shifts_and_an_episodes_place_is_not():
    n = 40
    episodes = EpisodeClusters.of(np.repeat(np.arange(8), n))
    course = np.tile(np.sin(np.linspace(0, 6, n)), 8)[:, None]
    place = np.repeat(np.random.default_rng(0).standard_normal(8), n)[:, None]
    one = np.ones(1, dtype=bool)
    for y, least, most in ((course, -2.0, 0.3), (place, 0.99, 1.0)):
        null = permutation_null(
            y, y, episodes, y, y, alpha=1e-3, testable=one, rng=np.random.default_rng(0), scheme="shift"
        )
        assert null.mean.observed > 0.99
        assert least < null.mean.mean <= most


def test_shifted_p_values_are_uniform_where_there_is_no_signal_but_slow_drift():
    p_values = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        walk = np.zeros((600 + 300, 6))
        for t in range(1, len(walk)):
            walk[t] = 0.9 * walk[t - 1] + rng.standard_normal(6)
        x, y, labels = walk[:, :4], walk[:, 4:], np.repeat(np.arange(9), 100)
        null = permutation_null(
            x[:600],
            y[:600],
            EpisodeClusters.of(labels[:600]),
            x[600:],
            y[600:],
            alpha=1.0,
            testable=ALL,
            rng=rng,
            exchanges=39,
            scheme="shift",
        )
        p_values.append(null.mean.p_value)
    p_values = np.sort(p_values)
    assert np.abs(p_values - (np.arange(60) + 0.5) / 60).max() < 0.21  # Kolmogorov-Smirnov at 1 %


def test_one_episode_can_be_shifted_and_one_row_cannot():
    x, y, train = rows(30, 1, 4, 0)
    options = {"alpha": 1.0, "testable": ALL, "rng": np.random.default_rng(0), "scheme": "shift"}
    assert permutation_null(x, y, train, x, y, **options).mean is not None
    single = EpisodeClusters.of(np.arange(30))
    null = permutation_null(x, y, single, x, y, **options)
    assert null.mean is None and null.note == "no null: nothing to shift in training episodes of one row"
    with pytest.raises(ValueError, match="scheme = 'roll': expected 'exchange' or 'shift'"):
        permutation_null(x, y, train, x, y, **{**options, "scheme": "roll"})


@pytest.mark.parametrize("scheme", ["exchange", "shift"])
def test_selectivity_is_the_probe_less_its_control_on_the_same_episodes(scheme, monkeypatch):
    x, y, train = rows(200, 6, 5, 0)
    xe, ye, evaluate = rows(150, 12, 5, 1)
    monkeypatch.setattr(permutation, "_BLOCK_BYTES", 8 * 2 * 5 * 7)  # several blocks
    null = permutation_null(
        x,
        y,
        train,
        xe,
        ye,
        alpha=3.0,
        testable=ALL,
        rng=np.random.default_rng(4),
        exchanges=30,
        scheme=scheme,
        evaluate=evaluate,
    )
    fit = fit_ridge(x, y, train, alphas=[3.0])
    bootstrap = Bootstrap.draw(evaluate.labels, np.random.default_rng(0), resamples=40)
    sums = ResidualSums.of(ye, fit.predict(xe), evaluate)
    scores = score_joints(sums, bootstrap, ALL)
    found = selectivity(sums, scores, null, bootstrap)
    # on all evaluation episodes: observed less the mean of the null
    for joint, null_joint in zip(found.joints, null.joints):
        assert joint.value == pytest.approx(null_joint.observed - null_joint.mean, rel=1e-9)
    assert found.mean.value == pytest.approx(null.mean.observed - null.mean.mean, rel=1e-9)
    # in a draw of them: the same of rows gathered by hand
    rng = np.random.default_rng(4)
    if scheme == "exchange":
        moves, _ = episode_exchanges(6, 30, rng)
    else:
        moves = circular_shifts(train.count, 30, rng)
    predictions = []
    for move in moves:
        moved = np.empty_like(y)
        for e, by in enumerate(move):
            of = y[train.rows(by)][stretch(train.count[by], train.count[e])] if scheme == "exchange" else None
            moved[train.rows(e)] = np.roll(y[train.rows(e)], by, axis=0) if of is None else of
        predictions.append(make_pipeline(StandardScaler(), Ridge(alpha=3.0)).fit(x, moved).predict(xe))
    for b in range(3):
        taken = np.concatenate(
            [np.tile(evaluate.rows(e), int(w)) for e, w in enumerate(bootstrap.weights[b])]
        )
        control = np.mean([r2_score(ye[taken], guess[taken]) for guess in predictions])
        real = r2_score(ye[taken], fit.predict(xe)[taken])
        assert found.mean.draws[b] == pytest.approx(real - control, rel=1e-8)
    assert found.mean.interval == "bca" and found.mean.low < found.mean.value < found.mean.high
    with pytest.raises(ValueError, match=r"selectivity needs permutation_null\(..., evaluate=EPISODES\)"):
        selectivity(sums, scores, replace(null, control_ss=None), bootstrap)
