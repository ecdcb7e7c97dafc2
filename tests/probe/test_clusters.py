"""Rows, episodes and folds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import GroupKFold

from probe.clusters import EpisodeClusters, balanced_folds

episode_labels = st.lists(st.integers(0, 9), min_size=1, max_size=60)


@given(episode_labels)
def test_every_row_is_in_its_own_episode_and_in_no_other(labels):
    clusters = EpisodeClusters.of(labels)
    seen = np.concatenate([clusters.rows(e) for e in range(len(clusters))])
    assert sorted(seen.tolist()) == list(range(len(labels)))
    for e, label in enumerate(clusters.labels):
        assert clusters.rows(e).tolist() == [
            row for row, given_label in enumerate(labels) if given_label == label
        ]
        assert clusters.count[e] == len(clusters.rows(e))


@given(episode_labels, st.integers(0, 2**31))
def test_sums_equal_a_loop_over_rows(labels, seed):
    values = np.random.default_rng(seed).standard_normal((len(labels), 2))
    clusters = EpisodeClusters.of(labels)
    expected = np.zeros((len(clusters), 2))
    for row, label in enumerate(labels):
        expected[clusters.labels.tolist().index(label)] += values[row]
    np.testing.assert_allclose(clusters.sums(values), expected, atol=1e-12)


def test_labels_may_be_hashes():
    clusters = EpisodeClusters.of(np.array(["bb", "aa", "bb"]))
    assert clusters.labels.tolist() == ["aa", "bb"]
    assert clusters.index.tolist() == [1, 0, 1]


def test_no_rows_and_flat_labels_are_refused():
    with pytest.raises(ValueError, match="one a row and not empty"):
        EpisodeClusters.of([])
    with pytest.raises(ValueError, match=r"got shape \(2, 2\)"):
        EpisodeClusters.of([[1, 2], [3, 4]])
    with pytest.raises(ValueError, match="3 rows of values for 2 rows of episodes"):
        EpisodeClusters.of([0, 1]).sums(np.zeros((3, 1)))


@given(st.lists(st.integers(1, 500), min_size=6, max_size=40, unique=True), st.integers(2, 6))
def test_folds_are_those_of_group_k_fold(count, n_folds):
    # distinct lengths: ties are the one point in which we differ (ours go to the lower number)
    groups = np.repeat(np.arange(len(count)), count)
    expected = np.empty(len(count), dtype=int)
    splits = GroupKFold(n_folds).split(groups, groups=groups)
    parts = [set(groups[test].tolist()) for _, test in splits]
    for fold, part in enumerate(parts):
        expected[list(part)] = fold
    ours = balanced_folds(np.array(count), n_folds)
    assert {frozenset(np.flatnonzero(ours == f).tolist()) for f in range(n_folds)} == {
        frozenset(p) for p in parts
    }


def test_folds_with_ties_and_with_few_episodes():
    assert balanced_folds(np.array([5, 5, 5, 5]), 2).tolist() == [0, 1, 0, 1]
    assert balanced_folds(np.array([1, 9, 1]), 5).tolist() == [1, 0, 2]
    with pytest.raises(ValueError, match="only 1 training episode: give one fixed alpha"):
        balanced_folds(np.array([10]), 5)
    with pytest.raises(ValueError, match="folds = 1"):
        balanced_folds(np.array([10, 10]), 1)
