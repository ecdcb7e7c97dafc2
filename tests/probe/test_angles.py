"""Angles that wrap: where they jump, what a linear probe of them can reach, and the wrapped scores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import circmean, circvar
from sklearn.metrics import r2_score

from probe.angles import angle_of, find_wraps, probe_angles, score_angles, sine_cosine, wrapped
from probe.bootstrap import Bootstrap
from probe.clusters import EpisodeClusters
from probe.ridge import fit_ridge

EPISODES = EpisodeClusters.of(np.repeat(np.arange(10), 200))


def bootstrap_of(episodes: EpisodeClusters) -> Bootstrap:
    return Bootstrap.draw(episodes.labels, np.random.default_rng(0), resamples=100)


def test_wraps_are_counted_within_episodes_only() -> None:
    turning = wrapped(np.arange(20) * 0.5)[:, None]  # 9.5 rad: two passages through pi, at rows 7 and 19
    still = np.zeros((20, 1))
    one = find_wraps(np.hstack([turning, still]), EpisodeClusters.of(np.zeros(20)))
    assert one.count.tolist() == [2, 0] and one.first_row.tolist() == [7, -1]
    assert one.wrapping.tolist() == [True, False]
    assert str(one) == "joint 0 wraps 2 times in 1 episodes, first at row 7"
    # the same jump from one episode to the next is none
    split = find_wraps(turning, EpisodeClusters.of(np.repeat([0, 1], [7, 13])))
    assert split.count.tolist() == [1] and split.first_row.tolist() == [19]
    assert str(find_wraps(still, EpisodeClusters.of(np.zeros(20)))) == "no joint wraps"
    # rows of episodes may alternate
    mixed = np.zeros((8, 1))
    mixed[1::2] = 3.5
    assert not find_wraps(mixed, EpisodeClusters.of(np.arange(8) % 2)).wrapping.any()
    with pytest.raises(ValueError, match=r"expected angles \[20, J\]"):
        find_wraps(np.zeros(20), EpisodeClusters.of(np.zeros(20)))


def test_angles_and_targets_are_inverse() -> None:
    angle = np.random.default_rng(0).uniform(-20, 20, (50, 3))
    np.testing.assert_allclose(np.exp(1j * angle_of(5 * sine_cosine(angle))), np.exp(1j * angle), atol=1e-12)
    np.testing.assert_allclose(wrapped(np.array([3 * np.pi, -0.1, 2 * np.pi])), [-np.pi, -0.1, 0], atol=1e-12)


def test_a_perfect_latent_of_a_turning_joint() -> None:
    """With sine and cosine in the latents circular R2 is 1; a probe of the logged angle stops at 6/pi^2."""
    rng = np.random.default_rng(1)
    angle = rng.uniform(-np.pi, np.pi, (4000, 1))
    x = sine_cosine(angle)
    train, evaluate = (EpisodeClusters.of(np.repeat(np.arange(10), 200)) for _ in range(2))
    found = probe_angles(
        x[:2000],
        angle[:2000],
        train,
        x[2000:],
        angle[2000:] + 2 * np.pi,
        evaluate,
        alphas=[1e-9],
        bootstrap=bootstrap_of(evaluate),
    )
    score = found.scores[0]
    assert score.r2.value == pytest.approx(1, abs=1e-9) and score.r2.low == pytest.approx(1, abs=1e-9)
    assert score.rmse_rad.value == pytest.approx(0, abs=1e-6)
    assert score.target_r2.value == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(found.prediction_rad, angle[2000:], atol=1e-6)
    linear = fit_ridge(x[:2000], angle[:2000], train, alphas=[1e-9])
    assert r2_score(angle[2000:], linear.predict(x[2000:])) == pytest.approx(6 / np.pi**2, abs=0.03)
    assert str(score).startswith("circular R2 1.000 [1.000, 1.000], RMSE 0.000")


def test_scores_are_their_definitions() -> None:
    rng = np.random.default_rng(2)
    angle = rng.vonmises(0.5, 2.0, (2000, 1))
    noise = rng.vonmises(0.0, 5.0, (2000, 1))
    predicted = 0.8 * sine_cosine(angle + noise)
    score = score_angles(angle, predicted, EPISODES, bootstrap_of(EPISODES))[0]
    expected = 1 - np.mean(1 - np.cos(noise)) / circvar(angle)
    assert score.r2.value == pytest.approx(expected, abs=1e-12)
    assert score.rmse_rad.value == pytest.approx(np.sqrt(np.mean(wrapped(noise) ** 2)), abs=1e-12)
    targets = sine_cosine(angle)
    assert score.target_r2.value == pytest.approx(
        r2_score(targets, predicted, multioutput="variance_weighted"), abs=1e-12
    )
    # a resample is the score of the rows it holds
    bootstrap = bootstrap_of(EPISODES)
    rows = np.concatenate([np.tile(EPISODES.rows(e), int(w)) for e, w in enumerate(bootstrap.weights[3])])
    expected = 1 - np.mean(1 - np.cos(noise[rows])) / circvar(angle[rows])
    assert score.r2.draws[3] == pytest.approx(expected, abs=1e-12)


def test_no_constant_guess_beats_zero() -> None:
    rng = np.random.default_rng(3)
    for angle in (rng.vonmises(3.0, 1.5, (2000, 1)), rng.uniform(-np.pi, np.pi, (2000, 1))):
        best = circmean(angle, high=np.pi, low=-np.pi)
        guesses = [best, best + 0.3, best - 0.3]
        values = [
            score_angles(angle, sine_cosine(np.full_like(angle, guess)), EPISODES, bootstrap_of(EPISODES))[
                0
            ].r2.value
            for guess in guesses
        ]
        assert values[0] == pytest.approx(0, abs=1e-9)
        assert max(values[1:]) <= 0


def test_small_angles_have_the_ordinary_r2() -> None:
    rng = np.random.default_rng(4)
    angle = 0.02 * rng.standard_normal((2000, 1))
    guess = angle + 0.01 * rng.standard_normal((2000, 1))
    score = score_angles(angle, sine_cosine(guess), EPISODES, bootstrap_of(EPISODES))[0]
    assert score.r2.value == pytest.approx(r2_score(angle, guess), abs=1e-3)


def test_neither_turns_nor_the_zero_matter() -> None:
    rng = np.random.default_rng(5)
    angle = rng.vonmises(0.0, 2.0, (2000, 2))
    guess = angle + 0.2 * rng.standard_normal(angle.shape)
    base = score_angles(angle, sine_cosine(guess), EPISODES, bootstrap_of(EPISODES))
    turns = 2 * np.pi * rng.integers(-2, 3, angle.shape)
    moved = score_angles(angle + 1 + turns, sine_cosine(guess + 1), EPISODES, bootstrap_of(EPISODES))
    for a, b in zip(base, moved):
        assert a.r2.value == pytest.approx(b.r2.value, abs=1e-9)
        assert a.rmse_rad.value == pytest.approx(b.rmse_rad.value, abs=1e-9)
        assert a.target_r2.value == pytest.approx(b.target_r2.value, abs=1e-9)


def test_a_joint_that_stands_still_has_no_r2() -> None:
    angle = np.full((2000, 1), 0.7)
    score = score_angles(angle, sine_cosine(angle + 0.1), EPISODES, bootstrap_of(EPISODES))[0]
    assert score.r2.value is None and score.target_r2.value is None
    assert score.rmse_rad.value == pytest.approx(0.1)
    assert "circular R2 -" in str(score)


def test_a_bootstrap_of_other_episodes_is_refused() -> None:
    other = EpisodeClusters.of(np.repeat(np.arange(5), 400))
    angle = np.zeros((2000, 1))
    with pytest.raises(ValueError, match="other episodes"):
        score_angles(angle, sine_cosine(angle), EPISODES, bootstrap_of(other))


def test_real_logs_of_arms_that_do_not_go_round(shared_data) -> None:
    """SO-101 logs in degrees: no joint of these recordings wraps."""
    pq = pytest.importorskip("pyarrow.parquet")
    files = sorted((shared_data / "joint_logs" / "so101_b").rglob("data/**/*.parquet"))
    assert files
    table = pq.read_table(files[0], columns=["observation.state", "episode_index"])
    degrees = np.array(table["observation.state"].to_pylist(), dtype=np.float64)
    episodes = EpisodeClusters.of(np.array(table["episode_index"]))
    assert not find_wraps(np.radians(degrees), episodes).wrapping.any()
    lifted = wrapped(np.radians(degrees) + np.pi)  # the same log with a joint's middle at the seam
    assert find_wraps(lifted, episodes).wrapping.any()
