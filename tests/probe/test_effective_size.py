"""Effective sample size against closed forms, against sums by hand, and against the spread of real means."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from probe.clusters import EpisodeClusters
from probe.effective_size import autocovariance_sums, effective_size


def autoregressive(phi: float, lengths, rng: np.random.Generator, *, columns: int = 1):
    """Episodes of a stationary AR(1) of variance 1."""
    pieces = []
    for length in lengths:
        noise = np.sqrt(1 - phi**2) * rng.standard_normal((length + 200, columns))
        pieces.append(lfilter([1], [1, -phi], noise, axis=0)[200:])
    return np.concatenate(pieces), EpisodeClusters.of(np.repeat(np.arange(len(lengths)), lengths))


def test_sums_are_those_taken_by_hand():
    rng = np.random.default_rng(0)
    values, episodes = autoregressive(0.5, [7, 1, 12], rng, columns=2)
    order = rng.permutation(len(values))  # episodes interleaved, their own order kept
    labels = episodes.index[order]
    mixed = np.zeros_like(values)
    for e in range(3):
        mixed[labels == e] = values[episodes.index == e]
    sums = autocovariance_sums(mixed, EpisodeClusters.of(labels))
    centred = values - values.mean(axis=0)
    for lag in range(12):
        slow = sum(
            (centred[rows][: len(rows) - lag] * centred[rows][lag:]).sum(axis=0)
            for rows in (episodes.rows(e) for e in range(3))
            if len(rows) > lag
        )
        np.testing.assert_allclose(sums[lag], slow, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_an_autoregression_has_its_closed_form(phi):
    # tau = (1 + phi) / (1 - phi)
    values, episodes = autoregressive(phi, [4000] * 20, np.random.default_rng(0), columns=3)
    found = effective_size(values, episodes)
    np.testing.assert_allclose(found.tau, (1 + phi) / (1 - phi), rtol=0.06)
    np.testing.assert_allclose(found.size, 80_000 / found.tau)
    assert found.n_rows == 80_000 and (found.lags < 400).all()


def test_it_is_the_number_of_rows_whose_mean_would_spread_as_much():
    rng = np.random.default_rng(1)
    lengths = [30, 80, 50, 120, 40, 60, 90, 70, 110, 100]
    samples = [autoregressive(0.8, lengths, rng) for _ in range(400)]
    spread = np.var([values.mean() for values, _ in samples])
    sizes = [effective_size(*sample).size[0] for sample in samples]
    assert np.median(sizes) == pytest.approx(1 / spread, rel=0.2)  # the process has variance 1


def test_what_is_constant_within_episodes_is_worth_one_row_each():
    rng = np.random.default_rng(2)
    index = np.repeat(np.arange(40), 100)
    place = rng.standard_normal(40)[index]
    values = np.stack([place, place + 1e-3 * rng.standard_normal(4000)], axis=1)
    found = effective_size(values, EpisodeClusters.of(index))
    np.testing.assert_allclose(found.size, 40, rtol=0.05)
    assert found.lags.tolist() == [99, 99]


def test_alternating_rows_are_worth_no_more_than_their_number():
    values = np.tile([1.0, -1.0], 50)[:, None] + 0.1 * np.random.default_rng(0).standard_normal((100, 1))
    assert effective_size(values, EpisodeClusters.of(np.zeros(100))).size.tolist() == [100]


def test_units_do_not_matter_and_constants_have_none():
    values, episodes = autoregressive(0.7, [50] * 8, np.random.default_rng(0), columns=3)
    values[:, 2] = 0.1
    one, two = effective_size(values, episodes), effective_size(-100 * values + 7, episodes)
    np.testing.assert_allclose(two.tau[:2], one.tau[:2], rtol=1e-8)
    assert np.isnan(one.tau[2]) and np.isnan(one.size[2]) and one.lags[2] == 0
    single = effective_size(np.arange(3.0)[:, None], EpisodeClusters.of(np.arange(3)))
    assert single.size.tolist() == [3]


def test_bad_input_is_named():
    episodes = EpisodeClusters.of(np.zeros(5))
    with pytest.raises(ValueError, match=r"expected values \[5, J\], got shape \(4, 2\)"):
        effective_size(np.zeros((4, 2)), episodes)
    with pytest.raises(ValueError, match="not finite have no autocorrelation"):
        effective_size(np.full((5, 1), np.nan), episodes)
