"""Encoders of different width, compared at the same one.

A ridge probe on 768 dimensions has more to read from than one on 192, and its held-out R2 shows it. The wider
encoder's latents are therefore also projected onto their first principal components, as many as the narrower
one has dimensions, and go through the same probe. The narrower encoder stays as it is.

Components are those of the covariance of the latents as they are, of training rows only. The probe then
standardises them like any features, so the small ones count as much as the large. PCA chooses by variance,
not by what it says about joints: R2 at equal width is a lower bound on what so many dimensions could hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from probe.bootstrap import Bootstrap
from probe.clusters import EpisodeClusters
from probe.moments import FloatArray
from probe.ridge import RidgeFit, fit_ridge
from probe.statistics import JointScores, ResidualSums, score_joints


@dataclass(frozen=True, eq=False)
class Projection:
    """The first principal components of a training set.

    Attributes
    ----------
    mean : [D], of the training rows; components : [W, D], orthonormal, by falling variance.
    explained : share of the training rows' variance that they hold.
    """

    mean: FloatArray
    components: FloatArray
    explained: float

    @classmethod
    def fit(cls, x: NDArray[Any], width: int) -> Projection:
        """From training latents `x` [N, D]; ValueError unless 1 <= width <= min(N - 1, D)."""
        most = min(len(x) - 1, x.shape[1])
        if not 1 <= width <= most:
            raise ValueError(f"{x.shape[1]}-dimensional latents of {len(x)} rows have no {width} components")
        pca = PCA(width, svd_solver="covariance_eigh").fit(np.asarray(x, dtype=np.float64))
        return cls(pca.mean_, pca.components_, float(pca.explained_variance_ratio_.sum()))

    def apply(self, x: NDArray[Any]) -> FloatArray:
        """Components [N, W] of latents `x` [N, D]."""
        projected: FloatArray = (x - self.mean) @ self.components.T
        return projected


@dataclass(frozen=True, eq=False)
class NarrowedProbe:
    """The probe of a wide encoder at another's width.

    Attributes
    ----------
    projection : onto the principal components.
    fit : ridge on them, with an alpha of its own.
    scores : on the evaluation rows, comparable and paired with those of any encoder on the same rows.
    """

    projection: Projection
    fit: RidgeFit
    scores: JointScores

    def __str__(self) -> str:
        width, of = self.projection.components.shape
        mean = self.scores.mean
        value = "-" if mean.value is None else f"{mean.value:.3f}"
        interval = "" if mean.low is None else f" [{mean.low:.3f}, {mean.high:.3f}]"
        share = f"{self.projection.explained:.1%} of their variance"
        return f"mean R2 {value}{interval} from {width} of {of} dimensions ({share})"


def probe_at_width(
    width: int,
    x_train: NDArray[Any],
    y_train: NDArray[Any],
    train: EpisodeClusters,
    x_evaluate: NDArray[Any],
    y_evaluate: NDArray[Any],
    evaluate: EpisodeClusters,
    *,
    alphas: Sequence[float] | FloatArray,
    testable: NDArray[np.bool_],
    bootstrap: Bootstrap,
    folds: int = 5,
) -> NarrowedProbe:
    """Project latents to `width` principal components of the training rows, then probe as always.

    Parameters and errors as `fit_ridge`, `score_joints` and `Projection.fit`.
    """
    projection = Projection.fit(x_train, width)
    narrow = projection.apply(x_train)
    fit = fit_ridge(narrow, y_train, train, alphas=alphas, folds=folds, testable=testable)
    predicted = fit.predict(projection.apply(x_evaluate))
    scores = score_joints(ResidualSums.of(y_evaluate, predicted, evaluate), bootstrap, testable)
    return NarrowedProbe(projection, fit, scores)
