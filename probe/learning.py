"""R2 against the number of training episodes: would more episodes have helped?

Random orders of the training episodes are drawn; the first 2, 4, 9, ... of each are a nested series of
training sets, from a few up to all. Each point is the whole probe on them, alpha chosen anew by leaving
episodes of that set out, scored on the full evaluation set: what would have been reported with so many
episodes. One alpha kept for all sizes would be cheaper and wrong at the small end: rows of one episode are
not independent, so the best alpha falls as episodes are added. A grid of one alpha keeps it all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probe.clusters import EpisodeClusters
from probe.moments import FloatArray, check_rows
from probe.ridge import fit_ridge
from probe.statistics import ResidualSums, r2


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Mean R2 over the testable joints for growing sets of training episodes.

    The spread over orders says how much the choice of episodes matters; of the evaluation episodes' own
    luck, common to all points, it says nothing.

    Attributes
    ----------
    sizes : int64 [S], increasing; the last one is all training episodes.
    r2 : [K, S], of each of K random orders; in the last column all are the probe's own mean R2.
    rows : int64 [K, S], training rows.
    alpha : [K, S], as chosen on each set.
    """

    sizes: NDArray[np.int64]
    r2: FloatArray
    rows: NDArray[np.int64]
    alpha: FloatArray

    @property
    def mean(self) -> FloatArray:
        """[S], over the orders."""
        return self.r2.mean(axis=0)

    @property
    def last_gain(self) -> float:
        """What the step to all episodes from the size before added to the mean; nan for a single size."""
        return float(self.mean[-1] - self.mean[-2]) if len(self.sizes) > 1 else float("nan")

    def __str__(self) -> str:
        columns = (self.sizes, self.rows.mean(axis=0), self.mean, self.r2.min(axis=0), self.r2.max(axis=0))
        head = f"mean R2 over {len(self.r2)} orders of the training episodes, and its range"
        return "\n".join(
            [head]
            + [
                f"{size:4d} episodes, {rows:7.0f} rows: {mean:6.3f}  ({low:.3f} to {high:.3f})"
                for size, rows, mean, low, high in zip(*columns)
            ]
        )


def halvings(n_episodes: int, fewest: int = 2) -> tuple[int, ...]:
    """Sizes from all episodes down by halves to no fewer than `fewest`, increasing: 75 -> 2 4 9 18 37 75."""
    sizes = [n_episodes]
    while sizes[-1] // 2 >= fewest:
        sizes.append(sizes[-1] // 2)
    return tuple(reversed(sizes))


def learning_curve(
    x_train: NDArray[Any],
    y_train: NDArray[Any],
    train: EpisodeClusters,
    x_evaluate: NDArray[Any],
    y_evaluate: NDArray[Any],
    evaluate: EpisodeClusters,
    *,
    alphas: Sequence[float] | FloatArray,
    testable: NDArray[np.bool_],
    rng: np.random.Generator,
    folds: int = 5,
    sizes: Sequence[int] | None = None,
    orders: int = 5,
) -> LearningCurve:
    """Probe anew on nested random subsets of the training episodes.

    With halved sizes an order costs as much as one probe for its rows and one a size for its decompositions.

    Parameters
    ----------
    x_train, y_train, train : latents [N, D], joints [N, J] and their episodes.
    x_evaluate, y_evaluate, evaluate : [M, D], [M, J] and their episodes.
    alphas, folds : as `fit_ridge`; sets of fewer than `folds` episodes leave out one at a time.
    testable : bool [J], joints of the mean.
    rng : for the orders.
    sizes : numbers of episodes; `halvings` of all by default. All episodes are always among them.
    orders : random orders of the episodes.

    Raises
    ------
    ValueError : as `fit_ridge`; sizes beyond 1 .. E, or of 1 with a grid of alphas; no testable joint, or one
        that is constant over the evaluation rows.
    """
    check_rows(x_train, y_train, train)
    testable = np.asarray(testable, dtype=bool)
    n_episodes = len(train)
    steps = np.unique([*(halvings(n_episodes) if sizes is None else sizes), n_episodes]).astype(np.int64)
    if steps[0] < 1 or steps[-1] > n_episodes or orders < 1:
        raise ValueError(
            f"sizes must lie in 1 .. {n_episodes} and orders be positive, got {steps.tolist()} and {orders}"
        )

    def score(chosen: NDArray[np.int64]) -> tuple[float, int, float]:
        """Mean R2, rows and alpha of the probe on the episodes `chosen`."""
        rows = np.isin(train.index, chosen)
        fit = fit_ridge(
            x_train[rows],
            y_train[rows],
            EpisodeClusters.of(train.index[rows]),
            alphas=alphas,
            folds=folds,
            testable=testable,
        )
        sums = ResidualSums.of(y_evaluate, fit.predict(x_evaluate), evaluate)
        residual_ss, total_ss = sums.squares(np.ones((1, len(sums))))
        of_joint = r2(residual_ss[0], total_ss[0])[testable]
        if not np.isfinite(of_joint).all() or not testable.any():
            raise ValueError("no testable joint, or one that is constant over the evaluation rows")
        return float(of_joint.mean()), int(rows.sum()), fit.alpha

    values = np.empty((orders, len(steps)))
    n_rows, alpha = np.empty(values.shape, dtype=np.int64), np.empty(values.shape)
    whole = score(np.arange(n_episodes))
    for order in range(orders):
        episodes = rng.permutation(n_episodes)
        for step, size in enumerate(steps):
            found = whole if size == n_episodes else score(episodes[:size])
            values[order, step], n_rows[order, step], alpha[order, step] = found
    return LearningCurve(steps, values, n_rows, alpha)
