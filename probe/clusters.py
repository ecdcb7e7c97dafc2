"""Which episode a row belongs to: the one place where rows become clusters.

Rows of one episode are not independent of each other, so every fold, resample and exchange of this room moves
whole episodes. Whoever needs "by episode" gets it here: `ridge` (folds), `statistics` (resamples) and
`permutation` (exchanges).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class EpisodeClusters:
    """The episodes of N rows.

    Attributes
    ----------
    labels : [E], the episodes' labels (numbers or hashes), sorted, each once.
    index : int64 [N], position in `labels` of each row's episode.
    count : int64 [E], rows of each episode; never 0.
    """

    labels: NDArray[Any]
    index: NDArray[np.int64]
    count: NDArray[np.int64]
    _order: NDArray[np.int64]  # [N], rows sorted by episode, their own order kept within
    _start: NDArray[np.int64]  # [E], where each episode begins in _order

    @classmethod
    def of(cls, episode_of_row: ArrayLike) -> EpisodeClusters:
        """Clusters of rows labelled by `episode_of_row` [N]; an episode's rows need not be contiguous.

        Raises
        ------
        ValueError : where the labels are not one-dimensional, or there are no rows.
        """
        given = np.asarray(episode_of_row)
        if given.ndim != 1 or given.size == 0:
            raise ValueError(f"episode labels must be one a row and not empty, got shape {given.shape}")
        labels, index, count = np.unique(given, return_inverse=True, return_counts=True)
        index, count = index.reshape(-1).astype(np.int64), count.astype(np.int64)
        return cls(labels, index, count, np.argsort(index, kind="stable"), np.cumsum(count) - count)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_rows(self) -> int:
        return len(self.index)

    def rows(self, cluster: int) -> NDArray[np.int64]:
        """Row numbers of the episode `labels[cluster]`, increasing."""
        return self._order[self._start[cluster] : self._start[cluster] + self.count[cluster]]

    def sums(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Sum of `values` [N, ...] over the rows of each episode, [E, ...], in float64."""
        if len(values) != self.n_rows:
            raise ValueError(f"{len(values)} rows of values for {self.n_rows} rows of episodes")
        ordered = np.asarray(values, dtype=np.float64)[self._order]
        return np.add.reduceat(ordered, self._start, axis=0)

    def merged(self, group_of: NDArray[np.int64]) -> EpisodeClusters:
        """Clusters of whole groups of episodes: episode e goes to group `group_of[e]`, [E]; for folds."""
        group_of = np.asarray(group_of)
        if group_of.shape != (len(self),):
            raise ValueError(f"one group an episode expected, [{len(self)}], got shape {group_of.shape}")
        return EpisodeClusters.of(group_of[self.index])


def balanced_folds(count: NDArray[np.int64], n_folds: int) -> NDArray[np.int64]:
    """Fold of each episode, int64 [E]: longest episode first, each to the fold with the fewest rows so far.

    The assignment of scikit-learn's GroupKFold, but with ties (of length, of load) going to the lower number,
    so that it depends on the counts alone. With fewer episodes than folds each episode is its own fold.

    Raises
    ------
    ValueError : fewer than two folds, or fewer than two episodes: nothing can be left out.
    """
    count = np.asarray(count)
    if n_folds < 2:
        raise ValueError(f"folds = {n_folds}: cross-validation needs at least 2")
    if len(count) < 2:
        raise ValueError(
            f"cross-validation leaves whole episodes out, and there is only {len(count)} training episode: "
            "give one fixed alpha instead of a grid, or more training episodes"
        )
    n_folds = min(n_folds, len(count))
    fold_of = np.empty(len(count), dtype=np.int64)
    load = np.zeros(n_folds, dtype=np.int64)
    for episode in np.argsort(-count, kind="stable"):
        fold = int(np.argmin(load))
        fold_of[episode] = fold
        load[fold] += count[episode]
    return fold_of
