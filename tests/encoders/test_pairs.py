"""Pairs of rows: strides, knots, and thinning to a number of frames."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoders.pairs import evenly_spaced, knot_pairs, stride_pairs, thin_pairs


def _ns(seconds: np.ndarray | list[float]) -> np.ndarray:
    return np.round(np.asarray(seconds) * 1e9).astype(np.int64)


def test_stride_pairs_are_the_stride_apart() -> None:
    assert stride_pairs(_ns(np.arange(8) / 10), 0.3).tolist() == [[0, 3], [1, 4], [2, 5], [3, 6], [4, 7]]


def test_a_gap_takes_pairs_away_and_never_stretches_them() -> None:
    time_s = np.concatenate([np.arange(5) / 10, 2.0 + np.arange(5) / 10])
    assert stride_pairs(_ns(time_s), 0.3).tolist() == [[0, 3], [1, 4], [5, 8], [6, 9]]


def test_a_stride_between_two_rows_takes_the_nearer_and_one_under_half_a_period_gives_none() -> None:
    assert stride_pairs(_ns(np.arange(4) / 10), 0.14).tolist() == [[0, 1], [1, 2], [2, 3]]
    assert len(stride_pairs(_ns(np.arange(4) / 10), 0.04)) == 0
    assert len(stride_pairs(_ns([0.0]), 0.1)) == 0


@given(
    gaps=st.lists(st.floats(0.01, 0.3), min_size=2, max_size=60),
    stride=st.floats(0.05, 2.0),
)
def test_stride_pairs_keep_their_promise_on_irregular_clocks(gaps: list[float], stride: float) -> None:
    time_ns = _ns(np.cumsum(gaps))
    pairs = stride_pairs(time_ns, stride)
    apart = (time_ns[pairs[:, 1]] - time_ns[pairs[:, 0]]) / 1e9
    tolerance = max(0.51 * float(np.median(np.diff(time_ns))) / 1e9, 0.1 * stride)
    assert np.all(apart > 0) and np.all(abs(apart - stride) <= tolerance + 1e-9)


def test_knot_pairs_take_the_row_nearest_each_of_two_consecutive_knots() -> None:
    time_ns = _ns(np.arange(31) / 15)  # 15 fps against knots every 0.6 s
    assert knot_pairs(time_ns, _ns([0.0, 0.6, 1.2, 1.8])).tolist() == [[0, 9], [9, 18], [18, 27]]
    offset = _ns(np.arange(31) / 15 + 0.02)
    assert knot_pairs(offset, _ns([0.0, 0.6, 1.2, 1.8])).tolist() == [[0, 9], [9, 18], [18, 27]]


def test_a_knot_without_a_frame_ends_no_pair_and_starts_none() -> None:
    time_ns = np.delete(_ns(np.arange(31) / 10), [12])  # the frame at the third knot was dropped
    assert knot_pairs(time_ns, _ns([0.0, 0.6, 1.2, 1.8, 2.4])).tolist() == [[0, 6], [17, 23]]
    assert len(knot_pairs(time_ns, _ns([0.0]))) == 0


def test_evenly_spaced_keeps_both_ends() -> None:
    assert evenly_spaced(10, 4).tolist() == [0, 3, 6, 9]
    assert evenly_spaced(3, 10).tolist() == [0, 1, 2]
    assert evenly_spaced(5, 1).tolist() == [0]


@given(
    lengths=st.lists(st.integers(2, 80), min_size=1, max_size=6),
    step=st.integers(1, 8),
    share=st.floats(0.05, 1.2),
)
def test_thinning_keeps_to_its_number_of_frames(lengths: list[int], step: int, share: float) -> None:
    pairs = [np.stack([np.arange(n - 1), np.minimum(np.arange(n - 1) + step, n - 1)], 1) for n in lengths]
    cap = max(2, int(share * sum(lengths)))
    thinned = thin_pairs(pairs, cap)
    assert sum(len(np.unique(episode)) for episode in thinned) <= max(cap, 0)
    for before, after in zip(pairs, thinned):
        assert {tuple(pair) for pair in after.tolist()} <= {tuple(pair) for pair in before.tolist()}


def test_thinning_uses_most_of_what_it_may_and_spreads_over_the_episode() -> None:
    pairs = [stride_pairs(_ns(np.arange(200) / 10), 0.5)]
    (kept,) = thin_pairs(pairs, 100)
    assert 90 <= len(np.unique(kept)) <= 100
    assert kept[0, 0] == 0 and kept[-1, 1] == 199
    assert thin_pairs(pairs, None) is pairs and thin_pairs(pairs, 200) is pairs


@pytest.mark.parametrize("count", [1, 2, 7])
def test_thinning_never_returns_more_than_asked_for_a_tiny_cap(count: int) -> None:
    (kept,) = thin_pairs([np.array([[0, 1], [2, 3], [4, 5]])], count)
    assert len(np.unique(kept)) <= count
