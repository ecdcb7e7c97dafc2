"""R2 and its intervals, against scikit-learn and against resampling the rows themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import r2_score

from probe.bootstrap import Bootstrap, Estimate, difference
from probe.clusters import EpisodeClusters
from probe.statistics import (
    JointScores,
    ResidualSums,
    backlash_ceiling,
    min_std_of_units,
    score_joints,
    spread_of_joints,
)

ALL = np.ones(3, dtype=bool)


def evaluation(n_rows: int = 200, n_episodes: int = 12, *, seed: int = 0, noise=(0.2, 0.5, 1.0)):
    """True and predicted joints whose errors and positions are shared within an episode, and the episodes."""
    rng = np.random.default_rng(seed)
    labels = np.sort(
        np.concatenate([np.arange(n_episodes), rng.integers(0, n_episodes, n_rows - n_episodes)])
    )
    y = rng.standard_normal((n_rows, 3)) + rng.standard_normal((n_episodes, 3))[labels] + [0.5, -1.0, 3.0]
    error = rng.standard_normal((n_rows, 3)) + rng.standard_normal((n_episodes, 3))[labels]
    return y, y + error * noise, EpisodeClusters.of(labels + 100)


def scored(y, prediction, episodes, bootstrap=None, testable=ALL, **options) -> JointScores:
    bootstrap = bootstrap or Bootstrap.draw(episodes.labels, np.random.default_rng(1), resamples=300)
    return score_joints(ResidualSums.of(y, prediction, episodes), bootstrap, testable, **options)


def test_point_values_are_scikit_learns():
    y, prediction, episodes = evaluation()
    scores = scored(y, prediction, episodes)
    raw = r2_score(y, prediction, multioutput="raw_values")
    np.testing.assert_allclose([joint.value for joint in scores.joints], raw, rtol=1e-12)
    assert scores.mean.value == pytest.approx(raw.mean(), rel=1e-12)
    assert scores.weighted.value == pytest.approx(
        r2_score(y, prediction, multioutput="variance_weighted"), rel=1e-12
    )
    assert scores.anisotropy.value == pytest.approx(raw.max() - raw.min(), rel=1e-12)
    assert scores.mean.n_episodes == 12 and scores.mean.level == 0.95
    assert not scores.mean.too_few and scores.mean.note == ""


def test_resamples_are_those_of_rows_gathered_by_hand():
    y, prediction, episodes = evaluation()
    rng = np.random.default_rng(2)
    bootstrap = Bootstrap.draw(episodes.labels, rng, resamples=40, level=0.9, interval="percentile")
    scores = scored(y, prediction, episodes, bootstrap)
    slow = []
    for weights in bootstrap.weights:
        rows = np.concatenate([np.tile(episodes.rows(e), int(w)) for e, w in enumerate(weights)])
        slow.append(r2_score(y[rows], prediction[rows], multioutput="raw_values"))
    slow = np.array(slow)
    np.testing.assert_allclose(np.stack([joint.draws for joint in scores.joints], axis=1), slow, rtol=1e-11)
    np.testing.assert_allclose(scores.mean.draws, slow.mean(axis=1), rtol=1e-11)
    np.testing.assert_allclose(scores.anisotropy.draws, slow.max(axis=1) - slow.min(axis=1), rtol=1e-11)
    for estimate, draws in ((scores.joints[1], slow[:, 1]), (scores.mean, slow.mean(axis=1))):
        assert (estimate.low, estimate.high) == pytest.approx(
            tuple(np.quantile(draws, [0.05, 0.95])), rel=1e-11
        )


def test_resamples_draw_every_episode_equally_often_and_repeat_from_the_seed():
    labels = np.arange(8)
    bootstrap = Bootstrap.draw(labels, np.random.default_rng(0), resamples=4000)
    assert bootstrap.weights.shape == (4000, 8)
    assert (bootstrap.weights.sum(axis=1) == 8).all()
    np.testing.assert_allclose(bootstrap.weights.mean(axis=0), 1, atol=0.06)  # 4 standard errors
    np.testing.assert_allclose(bootstrap.weights.var(axis=0), 7 / 8, atol=0.1)
    again = Bootstrap.draw(labels, np.random.default_rng(0), resamples=4000)
    assert bootstrap.pairs_with(again)
    assert not bootstrap.pairs_with(Bootstrap.draw(labels, np.random.default_rng(1), resamples=4000))
    assert not bootstrap.pairs_with(Bootstrap.draw(labels + 1, np.random.default_rng(0), resamples=4000))


@settings(max_examples=60)
@given(st.integers(0, 2**31), st.floats(-4, 4), st.floats(-1e3, 1e3), st.sampled_from([-1, 1]))
def test_r2_does_not_depend_on_the_joints_units(seed, decades, shift, sign):
    y, prediction, episodes = evaluation(60, 5, seed=seed % 1000)
    factor = sign * 10**decades
    one = scored(y, prediction, episodes)
    two = scored(y * factor + shift * factor, prediction * factor + shift * factor, episodes)
    for a, b in zip((*one.joints, one.mean, one.anisotropy), (*two.joints, two.mean, two.anisotropy)):
        np.testing.assert_allclose([b.value, b.low, b.high], [a.value, a.low, a.high], rtol=1e-7, atol=1e-9)


def test_joints_far_from_zero_lose_nothing():
    y, prediction, episodes = evaluation()
    y, prediction = np.round(y * 2**20) / 2**20, np.round(prediction * 2**20) / 2**20
    near, far = scored(y, prediction, episodes), scored(y + 2**20, prediction + 2**20, episodes)
    np.testing.assert_allclose(far.mean.draws, near.mean.draws, rtol=1e-9)


@given(st.integers(0, 2**31))
@settings(max_examples=20)
def test_an_encoder_differs_from_itself_by_exactly_nothing(seed):
    y, prediction, episodes = evaluation(80, 6, seed=seed % 1000)
    bootstrap = Bootstrap.draw(episodes.labels, np.random.default_rng(seed), resamples=200)
    one, two = scored(y, prediction, episodes, bootstrap), scored(y, prediction.copy(), episodes, bootstrap)
    for a, b in zip(
        (*one.joints, one.mean, one.weighted, one.anisotropy),
        (*two.joints, two.mean, two.weighted, two.anisotropy),
    ):
        nothing = difference(a, b)
        assert (nothing.value, nothing.low, nothing.high) == (0.0, 0.0, 0.0)


def test_pairing_takes_out_what_encoders_share():
    y, prediction, episodes = evaluation(600, 15)
    better = prediction + 0.15 * (y - prediction)
    rng = np.random.default_rng(7)
    shared = Bootstrap.draw(episodes.labels, rng, name="demos")
    paired = difference(
        scored(y, better, episodes, shared).mean, scored(y, prediction, episodes, shared).mean
    )
    other = Bootstrap.draw(episodes.labels, rng, name="walk")
    apart = difference(scored(y, better, episodes, shared).mean, scored(y, prediction, episodes, other).mean)
    assert paired.value == pytest.approx(apart.value)
    assert paired.low > 0  # decided, though the two intervals overlap
    assert paired.high - paired.low < 0.6 * (apart.high - apart.low)
    assert paired.note == "" and apart.note == "unpaired: evaluated on different episodes"


def test_differences_that_make_no_sense_are_refused():
    y, prediction, episodes = evaluation()
    labels = episodes.labels

    def mean(seed, name, **options) -> Estimate:
        bootstrap = Bootstrap.draw(labels, np.random.default_rng(seed), name=name, **options)
        return scored(y, prediction, episodes, bootstrap).mean

    with pytest.raises(ValueError, match="'demos' and 'walk' were resampled from the same generator state"):
        difference(mean(0, "demos"), mean(0, "walk"))
    with pytest.raises(ValueError, match=r"2000 resamples at level 0.95 and 100 at 0.95 do not compare"):
        difference(mean(0, "demos"), mean(1, "walk", resamples=100))
    with pytest.raises(ValueError, match=r"at level 0.95 and 2000 at 0.9 do not compare"):
        difference(mean(0, "demos"), mean(1, "walk", level=0.9))
    with pytest.raises(ValueError, match="drawn for other episodes"):
        scored(y, prediction, episodes, Bootstrap.draw(labels + 1, np.random.default_rng(0)))
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        Bootstrap.draw(labels, np.random.default_rng(0), level=95)


def test_one_episode_has_a_value_and_no_interval():
    y, prediction, episodes = evaluation(30, 1)
    scores = scored(y, prediction, episodes)
    assert scores.mean.value == pytest.approx(r2_score(y, prediction), rel=1e-12)
    assert scores.mean.low is None and scores.mean.high is None and len(scores.mean.draws) == 0
    assert scores.mean.note == "no interval: 1 evaluation episode"
    assert scores.mean.too_few
    assert difference(scores.mean, scores.mean).low is None


def test_fewer_than_ten_episodes_are_too_few():
    for n_episodes, few in ((2, True), (9, True), (10, False)):
        y, prediction, episodes = evaluation(100, n_episodes)
        mean = scored(y, prediction, episodes).mean
        assert mean.low < mean.high
        assert mean.too_few is few
        assert ("too few episodes" in mean.note) is few


def test_joints_that_do_not_move_enough_have_no_r2():
    y, prediction, episodes = evaluation()
    y[:, 1] = 0.001 * y[:, 1]
    spread = spread_of_joints(y, 0.02)
    assert spread.testable.tolist() == [True, False, True]
    np.testing.assert_allclose(spread.std, y.std(axis=0), rtol=1e-12)
    scores = scored(y, prediction, episodes, testable=spread.testable)
    assert scores.joints[1].value is None and scores.joints[1].low is None
    assert scores.joints[1].note == "not testable"
    kept = [scores.joints[0].value, scores.joints[2].value]
    assert scores.mean.value == pytest.approx(np.mean(kept))
    assert scores.anisotropy.value == pytest.approx(np.ptp(kept))
    np.testing.assert_allclose(
        scores.weighted.draws,
        scored(y[:, [0, 2]], prediction[:, [0, 2]], episodes, testable=ALL[:2]).weighted.draws,
    )
    gap = difference(scores.joints[1], scores.joints[0])
    assert gap.value is None and gap.note == "not testable"


def test_without_two_testable_joints():
    y, prediction, episodes = evaluation()
    single = scored(y, prediction, episodes, testable=np.array([False, True, False]))
    assert single.mean.value == single.joints[1].value
    assert single.anisotropy.value is None and single.anisotropy.note == "needs two testable joints"
    none = scored(y, prediction, episodes, testable=~ALL)
    for estimate in (none.mean, none.weighted, none.anisotropy):
        assert estimate.value is None and estimate.low is None and estimate.note == "no testable joint"


def test_the_weighted_mean_may_leave_out_other_units():
    y, prediction, episodes = evaluation()
    percent = y.copy(), prediction.copy()
    for values in percent:
        values[:, 2] *= 100  # a gripper in percent would be all there is to a variance-weighted mean
    angles = np.array([True, True, False])
    mixed = scored(*percent, episodes, weighted=angles)
    assert mixed.weighted.value == pytest.approx(
        r2_score(y[:, :2], prediction[:, :2], multioutput="variance_weighted"), rel=1e-12
    )
    assert scored(*percent, episodes).weighted.value == pytest.approx(mixed.joints[2].value, abs=1e-3)
    assert scored(*percent, episodes, weighted=~ALL).weighted.note == "no joint to weigh"


def test_least_spread_by_unit():
    assert min_std_of_units(["rad", "percent", "source"]).tolist() == [0.02, 1.0, np.inf]
    assert min_std_of_units(["rad", "percent"], min_std_rad=0.1, min_std_percent=5).tolist() == [0.1, 5]
    y = np.array([[0.0, 0.0, 0.0], [0.04, 1.9, 1e9]])  # std 0.02, 0.95, 5e8
    assert spread_of_joints(y, min_std_of_units(["rad", "percent", "source"])).testable.tolist() == [
        True,
        False,
        False,
    ]
    assert spread_of_joints(np.full((9, 1), 0.1), 0.0).std.tolist() == [0.0]


def test_resamples_in_which_a_joint_stands_still():
    # of 12 episodes one moves joint 0: a resample lacks it with probability (11/12)^12 = 35 %
    y, prediction, episodes = evaluation()
    y[:, 0] = np.where(episodes.index == 3, y[:, 0], 0.1)
    scores = scored(y, prediction, episodes)
    missing = (scores.joints[0].bootstrap.weights[:, 3] == 0) & True
    assert np.array_equal(np.isnan(scores.joints[0].draws), missing)
    assert np.array_equal(np.isnan(scores.mean.draws), missing)
    assert scores.joints[0].value is not None and scores.joints[0].low is None
    assert scores.joints[0].note.startswith("no interval: 3")
    assert scores.joints[1].low is not None and scores.joints[1].note == ""
    # two of three still ones among 40: rarely missing, so the others make the interval and the share is told
    y, prediction, episodes = evaluation(400, 40)
    y[:, 0] = np.where(episodes.index < 5, y[:, 0], 0.1)
    bootstrap = Bootstrap.draw(episodes.labels, np.random.default_rng(0), interval="percentile")
    rare = scored(y, prediction, episodes, bootstrap).joints[0]
    share = np.isnan(rare.draws).mean()
    assert 0 < share < 0.05
    assert rare.note == f"{share:.1%} of the resamples left out: they have no value"
    assert rare.low == pytest.approx(np.nanquantile(rare.draws, 0.025))


def test_a_constant_joint_is_not_a_number_even_if_called_testable():
    y, prediction, episodes = evaluation()
    y[:, 0] = 0.1
    scores = scored(y, prediction, episodes)
    assert scores.joints[0].value is None and scores.joints[0].note == "the joint does not move"
    assert scores.mean.value is None and scores.anisotropy.value is None


def test_backlash_ceiling_is_what_uniform_play_leaves():
    width = np.radians(1.0)
    rng = np.random.default_rng(0)
    log = rng.normal(0, 0.05, 400_000)
    true = log + rng.uniform(-width / 2, width / 2, log.size)
    # what the log cannot show, as a share of the joint's variance
    expected = 1 - ((true - log) ** 2).mean() / log.var()
    assert backlash_ceiling(np.array([log.std()]))[0] == pytest.approx(expected, abs=1e-4)
    assert backlash_ceiling(np.array([0.02]))[0] == pytest.approx(0.9365, abs=1e-4)
    assert np.isnan(backlash_ceiling(np.array([0.0]))[0])


def test_residuals_by_episode():
    y, prediction, episodes = evaluation()
    prediction[episodes.index == 4, 2] += 0.3  # a neutral that moved
    sums = ResidualSums.of(y, prediction, episodes)
    rows = episodes.rows(4)
    np.testing.assert_allclose(sums.bias()[4], (y - prediction)[rows].mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(
        sums.rmse()[4], np.sqrt(((y - prediction)[rows] ** 2).mean(axis=0)), rtol=1e-12
    )


def test_bad_input_is_named():
    y, prediction, episodes = evaluation()
    with pytest.raises(ValueError, match=r"targets \(200, 3\) and predictions \(200, 2\) differ in shape"):
        ResidualSums.of(y, prediction[:, :2], episodes)
    prediction[5, 1] = np.nan
    with pytest.raises(ValueError, match="1 of 600 values are not finite"):
        ResidualSums.of(y, prediction, episodes)


def test_no_interval_reaches_beyond_what_is_possible() -> None:
    """Episodes that are read with very different errors: the studentised interval alone would pass 1."""
    rng = np.random.default_rng(0)
    clusters = EpisodeClusters.of(np.repeat(np.arange(5), 40))
    y, failing = rng.normal(size=(200, 2)), np.exp(rng.normal(size=5))[clusters.index][:, None]
    sums = ResidualSums.of(y, y + 0.1 * failing * rng.normal(size=y.shape), clusters)
    bootstrap = Bootstrap.draw(clusters.labels, rng, resamples=500, interval="studentised")
    scores = score_joints(sums, bootstrap, np.ones(2, bool))
    for one in (scores.mean, scores.weighted):
        assert one.interval == "studentised" and one.low < one.value < one.high == 1.0
    assert scores.anisotropy.low == 0.0 < scores.anisotropy.value < scores.anisotropy.high
