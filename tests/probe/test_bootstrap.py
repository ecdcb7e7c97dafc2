"""The three intervals against scipy and against definitions taken by hand, and what they really cover."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import r2_score

from probe.bootstrap import Bootstrap, Estimate, difference
from probe.clusters import EpisodeClusters
from probe.statistics import JointScores, ResidualSums, score_joints

ALL = np.ones(3, dtype=bool)


def evaluation(n_episodes: int = 9, *, seed: int = 0, noise=(0.2, 0.5, 1.0)):
    """True and predicted joints whose errors and positions are shared within an episode, and the episodes."""
    rng = np.random.default_rng(seed)
    labels = np.sort(np.concatenate([np.arange(n_episodes), rng.integers(0, n_episodes, 15 * n_episodes)]))
    y = rng.standard_normal((len(labels), 3)) + rng.standard_normal((n_episodes, 3))[labels]
    error = rng.standard_normal((len(labels), 3)) + rng.standard_normal((n_episodes, 3))[labels]
    return y, y + error * noise, EpisodeClusters.of(labels)


def scored(y, prediction, episodes, bootstrap) -> JointScores:
    return score_joints(ResidualSums.of(y, prediction, episodes), bootstrap, ALL)


def drawn(episodes, interval, *, seed=1, resamples=999, **options) -> Bootstrap:
    rng = np.random.default_rng(seed)
    return Bootstrap.draw(episodes.labels, rng, resamples=resamples, interval=interval, **options)


def mean_r2(y, prediction, episodes, taken) -> float:
    rows = np.concatenate([episodes.rows(int(e)) for e in taken])
    return float(r2_score(y[rows], prediction[rows]))


def scipys_bca(samples, statistic, draws):
    """The BCa interval scipy makes of given draws; rounded, so that a draw of every episode once ties."""
    found = stats.bootstrap(
        samples,
        lambda *taken: np.round(statistic(*taken), 12),
        n_resamples=0,
        bootstrap_result=SimpleNamespace(bootstrap_distribution=np.round(draws, 12)),
        method="BCa",
        vectorized=False,
    )
    return found.confidence_interval


@pytest.mark.parametrize("seed", range(4))
def test_bca_is_scipys(seed):
    y, prediction, episodes = evaluation(seed=seed)
    estimate = scored(y, prediction, episodes, drawn(episodes, "bca", seed=seed)).mean
    assert estimate.interval == "bca"
    everything = (np.arange(len(episodes)),)
    theirs = scipys_bca(everything, lambda taken: mean_r2(y, prediction, episodes, taken), estimate.draws)
    assert (estimate.low, estimate.high) == pytest.approx(tuple(theirs), rel=1e-9)


def test_jackknife_values_are_those_of_rows_left_out():
    y, prediction, episodes = evaluation()
    scores = scored(y, prediction, episodes, drawn(episodes, "percentile"))
    for left_out in range(len(episodes)):
        rows = episodes.index != left_out
        raw = r2_score(y[rows], prediction[rows], multioutput="raw_values")
        assert [joint.jackknife[left_out] for joint in scores.joints] == pytest.approx(
            raw.tolist(), rel=1e-11
        )
        assert scores.mean.jackknife[left_out] == pytest.approx(raw.mean(), rel=1e-11)
        assert scores.anisotropy.jackknife[left_out] == pytest.approx(np.ptp(raw), rel=1e-11)


def test_influence_is_the_derivative_by_an_episodes_weight():
    y, prediction, episodes = evaluation()
    bootstrap = drawn(episodes, "studentised", resamples=5)
    scores = scored(y, prediction, episodes, bootstrap)
    step = 1e-5
    for sample, weights in enumerate(np.concatenate([np.ones((1, len(episodes))), bootstrap.weights])):
        for episode in range(len(episodes)):
            shift = step * (np.arange(len(episodes)) == episode)
            wide = np.stack([weights - shift, weights + shift])
            around = replace(bootstrap, weights=wide, interval="percentile")
            moved = scored(y, prediction, episodes, around)
            for now, then in zip(
                (*scores.joints, scores.mean, scores.weighted, scores.anisotropy),
                (*moved.joints, moved.mean, moved.weighted, moved.anisotropy),
            ):
                slope = np.diff(then.draws)[0] / (2 * step)
                assert now.influence[sample, episode] == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_studentised_by_its_definition():
    y, prediction, episodes = evaluation()
    bootstrap = drawn(episodes, "studentised", level=0.9)
    estimate = scored(y, prediction, episodes, bootstrap).mean
    assert estimate.interval == "studentised"
    error = np.sqrt((estimate.influence[0] ** 2).sum())
    t = []
    for draw, weights, pull in zip(estimate.draws, bootstrap.weights, estimate.influence[1:]):
        taken = np.repeat(pull, weights.astype(int))  # each drawn episode, as often as it was drawn
        t.append((draw - estimate.value) / np.sqrt((taken**2).sum()))
    low, high = np.quantile(t, [0.05, 0.95])
    expected = estimate.value - high * error, estimate.value - low * error
    assert (estimate.low, estimate.high) == pytest.approx(expected, rel=1e-9)


def test_standard_errors_are_near_the_jackknifes():
    y, prediction, episodes = evaluation(60)
    scores = scored(y, prediction, episodes, drawn(episodes, "studentised", resamples=2))
    for each in (*scores.joints, scores.mean, scores.weighted, scores.anisotropy):
        jackknife = np.sqrt(59 / 60 * ((each.jackknife - each.jackknife.mean()) ** 2).sum())
        assert each.bootstrap.errors(each.influence)[0] == pytest.approx(jackknife, rel=0.1)


@pytest.mark.parametrize("interval", ["percentile", "bca", "studentised"])
def test_a_paired_difference_is_a_statistic_of_its_own(interval):
    y, prediction, episodes = evaluation()
    better = prediction + 0.3 * (y - prediction) ** 3
    bootstrap = drawn(episodes, interval)
    one, two = (scored(y, guess, episodes, bootstrap).mean for guess in (better, prediction))
    gap = difference(one, two)
    assert gap.interval == interval and gap.note.startswith("too few")
    if interval == "bca":
        both = lambda taken: mean_r2(y, better, episodes, taken) - mean_r2(y, prediction, episodes, taken)  # noqa: E731
        theirs = scipys_bca((np.arange(len(episodes)),), both, one.draws - two.draws)
        assert (gap.low, gap.high) == pytest.approx(tuple(theirs), rel=1e-9)
    if interval == "studentised":
        pull = one.influence - two.influence
        again = bootstrap.estimate(gap.value, gap.draws, influence=pull)
        assert (gap.low, gap.high) == (again.low, again.high)
        apart = np.hypot(*(np.sqrt((each.influence[0] ** 2).sum()) for each in (one, two)))
        assert np.sqrt((pull[0] ** 2).sum()) < apart  # what the two share is gone


def test_an_unpaired_difference_is_scipys_two_samples():
    a, b = evaluation(12), evaluation(7, seed=3, noise=(0.1, 0.3, 2.0))
    one = scored(*a, drawn(a[2], "bca", seed=1, name="walk")).mean
    two = scored(*b, drawn(b[2], "bca", seed=2, name="demos")).mean
    gap = difference(one, two)
    assert gap.interval == "bca" and gap.note.startswith("unpaired") and gap.jackknife is None
    samples = np.arange(12), np.arange(7)
    theirs = scipys_bca(
        samples, lambda mine, other: mean_r2(*a, mine) - mean_r2(*b, other), one.draws - two.draws
    )
    assert (gap.low, gap.high) == pytest.approx(tuple(theirs), rel=1e-9)


def test_an_unpaired_studentised_difference_adds_variances():
    a, b = evaluation(12), evaluation(11, seed=3)
    one = scored(*a, drawn(a[2], "studentised", seed=1, name="walk")).mean
    two = scored(*b, drawn(b[2], "studentised", seed=2, name="demos")).mean
    gap = difference(one, two)
    assert gap.interval == "studentised"
    errors = np.hypot(one.bootstrap.errors(one.influence), two.bootstrap.errors(two.influence))
    t = (one.draws - two.draws - gap.value) / errors[1:]
    low, high = np.quantile(t, [0.025, 0.975])
    expected = gap.value - high * errors[0], gap.value - low * errors[0]
    assert (gap.low, gap.high) == pytest.approx(expected, rel=1e-9)


def test_a_difference_of_differences_over_two_data_entries():
    a, b = evaluation(12), evaluation(11, seed=3)
    shared = [drawn(a[2], "bca", seed=1, name="walk"), drawn(b[2], "bca", seed=2, name="demos")]
    gains = []
    for (y, prediction, episodes), bootstrap in zip((a, b), shared):
        better = prediction + 0.3 * (y - prediction)
        gains.append(
            difference(*(scored(y, guess, episodes, bootstrap).mean for guess in (better, prediction)))
        )
    contrast = difference(*gains)
    assert contrast.interval == "bca" and contrast.value == gains[0].value - gains[1].value
    assert contrast.low < contrast.value < contrast.high
    # a third step can no longer be paired: it is told by the interval's name
    assert difference(contrast, gains[0]).interval == "percentile"


def estimates(bootstrap, value, draws, **how) -> Estimate:
    return bootstrap.estimate(value, np.asarray(draws, dtype=float), **how)


def test_draws_equal_to_the_value_count_half():
    bootstrap = drawn(EpisodeClusters.of(np.arange(12)), "bca", resamples=8, level=0.5)
    jackknife = np.tile([-1.0, 1.0], 6)  # symmetric: no acceleration
    noise = np.array([0, 1e-17, -1e-17, 0])  # rounding is not a side
    draws = np.concatenate([5 + 4 * noise, [1, 2, 8, 9]])
    estimate = estimates(bootstrap, 5.0, draws, jackknife=jackknife)
    assert (estimate.low, estimate.high) == pytest.approx(tuple(np.quantile(draws, [0.25, 0.75])))
    # one more below than above: z0 = Phi^-1(5/8), and ends at Phi(2 z0 + z)
    draws[6] = 3.0
    estimate = estimates(bootstrap, 5.0, draws, jackknife=jackknife)
    shares = stats.norm.cdf(2 * stats.norm.ppf(5 / 8) + stats.norm.ppf([0.25, 0.75]))
    assert (estimate.low, estimate.high) == pytest.approx(tuple(np.quantile(draws, shares)))


@pytest.mark.parametrize(
    ("jackknife", "draws", "why"),
    [
        (
            [0.5] * 12,
            np.arange(9.0),
            "leaving an episode out changes nothing, or leaves a joint that does not",
        ),
        ([0.5] * 11 + [np.nan], np.arange(9.0), "leaving an episode out changes nothing, or leaves a joint"),
        (range(12), np.arange(9.0) + 10, "all resamples lie on one side of the value"),
        (range(12), np.arange(9.0) - 10, "all resamples lie on one side of the value"),
        ([0.0] * 11 + [-1.0], [-1.0] * 9999 + [9.0], "one episode decides the value"),
    ],
)
def test_where_bca_is_undefined_percentiles_stand_and_say_so(jackknife, draws, why):
    bootstrap = drawn(EpisodeClusters.of(np.arange(12)), "bca", resamples=len(draws), level=0.999999)
    value = 4.0
    estimate = estimates(bootstrap, value, draws, jackknife=np.asarray(jackknife, dtype=float))
    assert estimate.interval == "percentile"
    assert estimate.note.startswith(f"percentile interval: {why}")
    assert (estimate.low, estimate.high) == pytest.approx(tuple(np.quantile(draws, [5e-7, 1 - 5e-7])))


def test_without_a_jackknife_or_influence_the_interval_says_what_it_is():
    episodes = EpisodeClusters.of(np.arange(12))
    draws = np.random.default_rng(0).standard_normal(99)
    for interval in ("bca", "studentised", "percentile"):
        plain = estimates(drawn(episodes, interval, resamples=99), 0.0, draws)
        assert (plain.interval, plain.note) == ("percentile", "")
    with_jackknife = estimates(
        drawn(episodes, "studentised", resamples=99), 0.0, draws, jackknife=np.arange(12.0)
    )
    assert with_jackknife.interval == "bca"
    nothing = estimates(drawn(episodes, "bca", resamples=99), None, draws)
    assert (nothing.interval, nothing.low) == ("", None)


def test_two_episodes_have_no_studentised_interval():
    y, prediction, episodes = evaluation(2)  # every second draw is one episode twice
    mean = scored(y, prediction, episodes, drawn(episodes, "studentised")).mean
    assert mean.interval == "percentile"
    assert "of the resamples have no spread between episodes" in mean.note


def test_another_interval_is_refused():
    with pytest.raises(ValueError, match="interval = 'normal': expected one of bca, percentile, studentised"):
        Bootstrap.draw(np.arange(5), np.random.default_rng(0), interval="normal")


# -- what the intervals cover


def simulated(n_episodes: int, between: float, failing: bool, rng: np.random.Generator):
    """A sample whose true R2 is 0.75 in each of three joints, and of a second probe with 0.70.

    between : share of the joints' variance that lies between episodes.
    failing : episodes of 10 to 50 rows (else 30), joints at one of two places, and a probe that fails in some
        episodes: residual variance log-normal between them (sigma 1.2).
    """
    count = rng.integers(10, 51, n_episodes) if failing else np.full(n_episodes, 30)
    index = np.repeat(np.arange(n_episodes), count)

    def values(share, places):
        within = np.sqrt(1 - share) * rng.standard_normal((len(index), 3))
        return within + np.sqrt(share) * places[index]

    place = rng.standard_normal((n_episodes, 3))
    y = np.sqrt(2) * values(between, np.sign(place) if failing else place)
    size = np.exp(rng.normal(-0.36, 0.6, (n_episodes, 1)))[index] if failing else 1.0  # mean square 1
    one, two = (size * values(0.5, rng.standard_normal((n_episodes, 3))) for _ in range(2))
    other = 0.8 * one + 0.6 * two  # its errors are those of the first probe for the most part
    return y, y - np.sqrt(0.5) * one, y - np.sqrt(0.6) * other, EpisodeClusters.of(index)


SIMULATIONS, DRAWS = 1000, 1000

# the table of probe/bootstrap.py: by (episodes, between, failing), percentile, BCa, studentised, in %
MEASURED = {
    (6, 0.15, False): (85.8, 84.1, 93.2),
    (12, 0.15, False): (91.0, 89.3, 94.0),
    (25, 0.15, False): (93.0, 91.7, 95.2),
    (50, 0.15, False): (93.3, 93.4, 94.6),
    (6, 0.5, False): (69.4, 72.3, 92.4),
    (12, 0.5, False): (80.7, 86.4, 94.2),
    (25, 0.5, False): (88.9, 92.0, 95.4),
    (50, 0.5, False): (92.0, 93.0, 94.5),
    (6, 0.15, True): (70.0, 71.4, 86.3),
    (12, 0.15, True): (79.5, 80.6, 89.0),
    (25, 0.15, True): (82.8, 84.9, 89.3),
    (50, 0.15, True): (86.8, 88.2, 90.5),
}


@pytest.mark.deep
@pytest.mark.parametrize(("n_episodes", "between", "failing"), MEASURED)
def test_how_often_the_intervals_hold_the_truth(n_episodes, between, failing):
    """Coverage of 95 % intervals of the mean R2 (truth 0.75) and of a paired difference (truth 0.05)."""
    rng = np.random.default_rng([n_episodes, int(100 * between), failing])
    intervals = ("percentile", "bca", "studentised")
    held, width = np.zeros((3, 2)), np.zeros((3, 2))
    for _ in range(SIMULATIONS):
        y, prediction, other, episodes = simulated(n_episodes, between, failing, rng)
        first = Bootstrap.draw(episodes.labels, rng, resamples=DRAWS)
        for i, interval in enumerate(intervals):
            bootstrap = replace(first, interval=interval)
            mean, second = (scored(y, guess, episodes, bootstrap).mean for guess in (prediction, other))
            for k, (estimate, truth) in enumerate(((mean, 0.75), (difference(mean, second), 0.05))):
                held[i, k] += estimate.low <= truth <= estimate.high
                width[i, k] += (estimate.high - estimate.low) / SIMULATIONS
    share = held / SIMULATIONS
    cells = " ".join(
        f"{name} {share[i, 0]:.1%} ({width[i, 0]:.2f}) / {share[i, 1]:.1%} ({width[i, 1]:.2f})"
        for i, name in enumerate(intervals)
    )
    print(f"\n{n_episodes} episodes, {between:.0%} between{', failing' * failing}: {cells}")
    print(f"   (mean / difference; {SIMULATIONS} simulations, standard error at 90 %: 0.9 points)")
    for measured, here in zip(MEASURED[n_episodes, between, failing], share[:, 0]):
        assert 100 * here == pytest.approx(measured, abs=2.5)
