"""Sufficient statistics of a least-squares problem, one set a group of rows.

Everything a linear probe needs from its rows is in their counts, sums and Gram matrices. They are computed
once, in float64 and about the mean of all rows (latents far from zero would otherwise lose digits); folds,
resamples and the full fit are then sums over groups, and no row is touched again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probe.clusters import EpisodeClusters

FloatArray = NDArray[np.float64]

_BLOCK_ROWS = 4096  # rows converted to float64 at once: bounds the memory, long enough for BLAS


@dataclass(frozen=True, eq=False)
class Moments:
    """Per-group sums over rows of features x and targets y, both taken about a common origin.

    Memory is G x D x D x 8 bytes: 168 MB for 5 folds at D = 2048, 354 MB for 75 episodes at D = 768.

    Attributes
    ----------
    count : [G], rows (or weight of rows) in each group.
    x_sum, y_sum : [G, D], [G, J], sums of x - x_origin, y - y_origin.
    xx, xy, yy : [G, D, D], [G, D, J], [G, J], sums of products; of yy the diagonal alone.
    x_origin, y_origin : [D], [J], the mean over all rows, of all groups.
    """

    count: FloatArray
    x_sum: FloatArray
    y_sum: FloatArray
    xx: FloatArray
    xy: FloatArray
    yy: FloatArray
    x_origin: FloatArray
    y_origin: FloatArray

    @classmethod
    def of(cls, x: NDArray[Any], y: NDArray[Any], clusters: EpisodeClusters) -> Moments:
        """Moments of `x` [N, D] and `y` [N, J], one group a cluster; N D (D + J) multiplications."""
        check_rows(x, y, clusters)
        n_groups, n_features, n_targets = len(clusters), x.shape[1], y.shape[1]
        x_origin = x.mean(axis=0, dtype=np.float64)
        y_origin = y.mean(axis=0, dtype=np.float64)
        x_sum, y_sum = np.zeros((n_groups, n_features)), np.zeros((n_groups, n_targets))
        xx, xy = np.zeros((n_groups, n_features, n_features)), np.zeros((n_groups, n_features, n_targets))
        yy = np.zeros((n_groups, n_targets))
        for group in range(n_groups):
            rows = clusters.rows(group)
            for first in range(0, len(rows), _BLOCK_ROWS):
                block = rows[first : first + _BLOCK_ROWS]
                xb, yb = x[block] - x_origin, y[block] - y_origin  # float64: the origins are
                x_sum[group] += xb.sum(axis=0)
                y_sum[group] += yb.sum(axis=0)
                xx[group] += xb.T @ xb
                xy[group] += xb.T @ yb
                yy[group] += np.einsum("nj,nj->j", yb, yb)
        return cls(clusters.count.astype(np.float64), x_sum, y_sum, xx, xy, yy, x_origin, y_origin)

    def __len__(self) -> int:
        return len(self.count)

    @property
    def n_features(self) -> int:
        return self.xx.shape[1]

    @property
    def n_targets(self) -> int:
        return self.yy.shape[1]

    def pick(self, group: int) -> Moments:
        """The moments of one group, as a set of one."""
        return self._sets(lambda sums: sums[group : group + 1])

    def total(self, leaving_out: int | None = None) -> Moments:
        """The moments of all groups together, as a set of one; without the group `leaving_out`.

        The other groups are added up, rather than the left-out one subtracted from the whole: where a feature
        is constant outside the left-out group no digits cancel, and its variance is recognisable as rounding.
        """
        groups = [group for group in range(len(self)) if group != leaving_out]

        def add(sums: FloatArray) -> FloatArray:
            out = np.zeros((1, *sums.shape[1:]))
            for group in groups:
                out[0] += sums[group]
            return out

        return self._sets(add)

    def weighted(self, weights: FloatArray) -> Moments:
        """The moments with group g counted `weights[g]` times, [G], as a set of one: a resample of groups."""
        weights = np.asarray(weights, dtype=np.float64)
        return self._sets(lambda sums: np.tensordot(weights, sums, axes=1)[None])

    def merged(self, group_of: NDArray[np.int64]) -> Moments:
        """Moments of groups of groups: g goes to `group_of[g]`, [G], values 0 .. n-1 all present."""
        n_groups = int(np.max(group_of)) + 1

        def merge(sums: FloatArray) -> FloatArray:
            out = np.zeros((n_groups, *sums.shape[1:]))
            np.add.at(out, group_of, sums)
            return out

        return self._sets(merge)

    def _sets(self, of: Callable[[FloatArray], FloatArray]) -> Moments:
        sums = (self.count, self.x_sum, self.y_sum, self.xx, self.xy, self.yy)
        count, x_sum, y_sum, xx, xy, yy = (of(values) for values in sums)
        return Moments(count, x_sum, y_sum, xx, xy, yy, self.x_origin, self.y_origin)


def check_rows(x: NDArray[Any], y: NDArray[Any], clusters: EpisodeClusters) -> None:
    """Raise ValueError unless x [N, D], y [N, J] and the clusters agree on N and every value is finite."""
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] == 0 or y.shape[1] == 0:
        raise ValueError(f"expected features [N, D] and targets [N, J], got shapes {x.shape} and {y.shape}")
    if not len(x) == len(y) == clusters.n_rows:
        raise ValueError(
            f"{len(x)} rows of features, {len(y)} of targets, {clusters.n_rows} of episodes: not the same"
        )
    for values, what in ((x, "features"), (y, "targets")):
        bad = ~np.isfinite(values)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise ValueError(
                f"{what}: {int(bad.sum())} of {bad.size} values are not finite; the first is in row {row}, "
                f"column {column} (episode {clusters.labels[clusters.index[row]]})"
            )
