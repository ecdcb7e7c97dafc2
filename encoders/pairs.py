"""Which rows form positive pairs. Pure functions of times; a pair never leaves its episode."""

from __future__ import annotations

import numpy as np

STRIDE_TOLERANCE = 0.1
"""On an irregular clock a partner may be off by this share of the stride; by half a row's period always."""


def evenly_spaced(rows: int, count: int) -> np.ndarray:
    """`count` of `rows` row numbers, spread evenly from the first to the last; all where count >= rows."""
    if count >= rows:
        return np.arange(rows)
    return np.unique(np.round(np.linspace(0, rows - 1, count)).astype(np.int64))


def nearest_rows(time_ns: np.ndarray, at_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of the row nearest to each moment, and how far off it is in ns; `time_ns` must not fall."""
    right = np.clip(np.searchsorted(time_ns, at_ns), 0, len(time_ns) - 1)
    left = np.maximum(right - 1, 0)
    nearest = np.where(at_ns - time_ns[left] <= time_ns[right] - at_ns, left, right)
    return nearest, np.abs(time_ns[nearest] - at_ns)


def _half_period_ns(time_ns: np.ndarray) -> float:
    # a little more than half, so that clocks which beat against each other lose no row to rounding
    return 0.51 * float(np.median(np.diff(time_ns))) if len(time_ns) > 1 else 0.0


def stride_pairs(time_ns: np.ndarray, stride_s: float) -> np.ndarray:
    """Pairs of rows `stride_s` apart: each row with the row nearest to its time plus the stride.

    Parameters
    ----------
    time_ns : int64 (n,), times of an episode's rows.

    Returns
    -------
    int64 (P, 2), earlier row first; rows whose partner is missing are left out.
    """
    if len(time_ns) < 2:
        return np.empty((0, 2), np.int64)
    stride_ns = round(stride_s * 1e9)
    wanted = time_ns + stride_ns
    partner, off = nearest_rows(time_ns, wanted)
    first = np.arange(len(time_ns))
    near = off <= _half_period_ns(time_ns)
    inside = wanted <= time_ns[-1]  # past the end the tolerance would only shorten strides
    valid = (near | (inside & (off <= STRIDE_TOLERANCE * stride_ns))) & (partner > first)
    return np.stack([first[valid], partner[valid]], axis=1)


def knot_pairs(time_ns: np.ndarray, knot_ns: np.ndarray) -> np.ndarray:
    """Pairs of rows at consecutive knots of a walk: only there is the motion the process of the theorem.

    A knot's row is the nearest one, within half a row's period; a knot without one ends no pair and starts
    none.

    Parameters
    ----------
    time_ns : int64 (n,), times of an episode's rows.
    knot_ns : int64 (k,), when each knot is reached.

    Returns
    -------
    int64 (P, 2), earlier knot first.
    """
    if len(time_ns) < 2 or len(knot_ns) < 2:
        return np.empty((0, 2), np.int64)
    row, off = nearest_rows(time_ns, knot_ns)
    found = off <= _half_period_ns(time_ns)
    valid = found[:-1] & found[1:] & (row[1:] > row[:-1])
    return np.stack([row[:-1][valid], row[1:][valid]], axis=1)


def thin_pairs(pairs: list[np.ndarray], max_frames: int | None) -> list[np.ndarray]:
    """Keep evenly spaced pairs so that all episodes together use at most `max_frames` distinct frames.

    Parameters
    ----------
    pairs : one int64 (P, 2) an episode; windows (P, k) of more frames as well.

    Returns
    -------
    the same list with fewer pairs; each episode keeps its share of the frames.
    """
    used = [len(np.unique(episode)) for episode in pairs]
    if max_frames is None or sum(used) <= max_frames:
        return pairs
    share = max_frames / sum(used)
    return [_thin_episode(episode, int(share * frames)) for episode, frames in zip(pairs, used)]


def _thin_episode(pairs: np.ndarray, frames: int) -> np.ndarray:
    count = min(len(pairs), frames)  # every pair brings one frame at least
    while count > 0:
        kept = pairs[evenly_spaced(len(pairs), count)]
        excess = len(np.unique(kept)) - frames
        if excess <= 0:
            return kept
        count -= max(1, excess // pairs.shape[1])  # each one less leaves at most that many frames out
    return pairs[:0]
