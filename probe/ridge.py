"""The ridge probe: from latents to joints, with alpha chosen by leaving training episodes out.

The estimator is that of scikit-learn's `make_pipeline(StandardScaler(), Ridge(alpha))`: features standardised
over the training rows, an unpenalised intercept, and coefficients that minimise

    ||(Y - mean(Y)) - Xs W||^2 + alpha ||W||^2        (a sum over rows, so alpha grows with their number)

Alpha comes from a grid by grouped cross-validation: folds of whole episodes, one eigendecomposition a fold
for all alphas, standardised and centred anew on each fold's own training rows. Only training rows ever come
in here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from probe.clusters import EpisodeClusters, balanced_folds
from probe.moments import FloatArray, Moments, check_rows
from probe.spectrum import Spectrum
from probe.statistics import r2

Score = Literal["pooled", "folds"]

_TIE = 1e-12  # scores (R2) nearer than this are the same number; the larger alpha is taken


@dataclass(frozen=True, eq=False)
class RidgePath:
    """Held-out errors along a grid of alphas: all that a choice of alpha may rest on.

    Attributes
    ----------
    alphas : [A], increasing.
    fold_of : int64 [E], the fold in which each training episode is held out.
    residual_ss : [F, A, J], squared errors on the fold's held-out rows of the fit to all other folds.
    fold_ss : [F, J], squares of the held-out targets about the mean of that fold.
    total_ss : [J], squares of all training targets about their common mean.
    """

    alphas: FloatArray
    fold_of: NDArray[np.int64]
    residual_ss: FloatArray
    fold_ss: FloatArray
    total_ss: FloatArray

    def joint_scores(self, score: Score = "pooled") -> FloatArray:
        """Held-out R2 of each alpha and joint, [A, J].

        pooled : 1 - (sum over folds of residual_ss) / total_ss. Every training row counts once, predicted by
            the one fit that has not seen its episode; a fold in which a joint hardly moves cannot blow it up.
            The default. NaN for a joint that is constant over the training rows.
        folds : mean over folds of 1 - residual_ss / fold_ss, which is what scikit-learn's GridSearchCV
            averages. NaN for a joint that is constant in any fold.
        """
        if score == "pooled":
            return r2(self.residual_ss.sum(axis=0), self.total_ss)
        if score == "folds":
            return r2(self.residual_ss, self.fold_ss[:, None]).mean(axis=0)
        raise ValueError(f"score = {score!r}: expected 'pooled' or 'folds'")

    def scores(self, joints: NDArray[np.bool_] | None = None, score: Score = "pooled") -> FloatArray:
        """Uniform mean of `joint_scores` over `joints` [J] (all) that vary, [A]; NaN where none does."""
        table = self.joint_scores(score)
        usable = np.isfinite(table).all(axis=0) & (True if joints is None else np.asarray(joints, dtype=bool))
        return table[:, usable].mean(axis=1) if usable.any() else np.full(len(self.alphas), np.nan)


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """A fitted probe: prediction = ((x - mean) / scale) @ coef + intercept, in the joints' own units.

    Attributes
    ----------
    coef : [D, J], per standard deviation of a feature; exactly 0 for a feature that is constant in training.
    intercept : [J], the training rows' mean joint position.
    mean, scale : [D], [D], of the training rows; scale is 1 for a constant feature.
    alpha_by_joint : [J], all the same unless `per_joint` was asked for.
    alphas : [A], the grid, increasing.
    cv_scores : [A], mean held-out R2 over the testable joints (`RidgePath.scores`); NaN for a fixed alpha.
    path : what the scores came from; None for a fixed alpha.
    n_rows, n_constant : training rows; constant features among the D.
    edge : "low", "high", "both" or "": the end of the grid at which a chosen alpha lies ("both": with
        `per_joint` only).
    notes : what a reader should know, in words.
    """

    coef: FloatArray
    intercept: FloatArray
    mean: FloatArray
    scale: FloatArray
    alpha_by_joint: FloatArray
    alphas: FloatArray
    cv_scores: FloatArray
    path: RidgePath | None
    n_rows: float
    n_constant: int
    edge: str
    notes: tuple[str, ...]

    @property
    def alpha(self) -> float:
        """The one alpha of all joints; ValueError where they differ (see `alpha_by_joint`)."""
        if np.ptp(self.alpha_by_joint) != 0:
            raise ValueError(f"alpha differs by joint: {self.alpha_by_joint.tolist()}; use alpha_by_joint")
        return float(self.alpha_by_joint[0])

    @property
    def folds(self) -> NDArray[np.int64] | None:
        """Fold of each training episode, int64 [E]; None for a fixed alpha."""
        return None if self.path is None else self.path.fold_of

    def predict(self, x: NDArray[Any]) -> FloatArray:
        """Joints [N, J] predicted from latents `x` [N, D].

        Raises
        ------
        ValueError : latents of another width, or a prediction that is not finite.
        """
        if x.ndim != 2 or x.shape[1] != len(self.mean):
            raise ValueError(f"the probe was fitted to {len(self.mean)} features, got shape {x.shape}")
        weight = self.coef / self.scale[:, None]
        predicted = np.concatenate(
            [(x[i : i + 4096] - self.mean) @ weight + self.intercept for i in range(0, max(len(x), 1), 4096)]
        )
        if not np.isfinite(predicted).all():
            row = int(np.argmax(~np.isfinite(predicted).all(axis=1)))
            raise ValueError(
                f"the prediction of row {row} is not finite: its latent is not, or is absurdly large"
            )
        return predicted


def fit_ridge(
    x: NDArray[Any],
    y: NDArray[Any],
    episodes: EpisodeClusters,
    *,
    alphas: Sequence[float] | FloatArray,
    folds: int = 5,
    testable: NDArray[np.bool_] | None = None,
    per_joint: bool = False,
    score: Score = "pooled",
) -> RidgeFit:
    """Choose alpha on the training episodes, then fit all of them.

    Parameters
    ----------
    x, y : training latents [N, D] (any float type) and joints [N, J]; finite.
    episodes : the training rows' episodes; folds are made of whole episodes (`balanced_folds`).
    alphas : grid of positive numbers; a grid of one value is used as it is, without cross-validation.
    folds : most folds; with fewer episodes each is its own.
    testable : bool [J], the joints whose mean R2 chooses alpha, all by default; the others are fitted at the
        same alpha.
    per_joint : choose an alpha for each joint from its own held-out R2.
    score : how held-out R2 is taken, see `RidgePath.joint_scores`.

    Ties (within 1e-12) go to the larger alpha. Where no joint can be scored the largest alpha is taken, and a
    note says so.

    Raises
    ------
    ValueError : shapes that disagree, values that are not finite, a bad grid, or a grid and one training
        episode.
    """
    grid = _grid(alphas)
    if len(grid) == 1:
        check_rows(x, y, episodes)
        path, chosen = None, np.full(y.shape[1], grid[0])
        scores = np.full(1, np.nan)
        notes: list[str] = []
        wide = len(x) < x.shape[1]
        spectrum = Spectrum.dual(x, y) if wide else Spectrum.primal(Moments.of(x, y, _one(episodes)))
    else:
        fold_of = balanced_folds(episodes.count, folds)
        path, spectrum = _path_and_spectrum(x, y, episodes.merged(fold_of), grid, fold_of)
        scores = path.scores(testable, score)
        chosen, notes = _choose(path, scores, testable, per_joint, score)
    return _finish(spectrum, chosen, grid, scores, path, len(x), notes)


def ridge_path(
    x: NDArray[Any],
    y: NDArray[Any],
    episodes: EpisodeClusters,
    *,
    alphas: Sequence[float] | FloatArray,
    folds: int = 5,
) -> RidgePath:
    """Held-out errors for every alpha of the grid; parameters and errors as `fit_ridge`."""
    fold_of = balanced_folds(episodes.count, folds)
    return _path_and_spectrum(x, y, episodes.merged(fold_of), _grid(alphas), fold_of)[0]


def refit_ridge(moments: Moments, alpha: float | FloatArray) -> RidgeFit:
    """Fit all groups of `moments` at a given alpha, one or [J], without any cross-validation.

    With `moments.weighted(w)` this is the refit of a resample of the training episodes.
    """
    chosen = np.broadcast_to(np.asarray(alpha, dtype=np.float64), (moments.n_targets,)).copy()
    grid = _grid(chosen)
    total = moments.total()
    scores = np.full(len(grid), np.nan)
    return _finish(Spectrum.primal(total), chosen, grid, scores, None, float(total.count[0]), [])


def _path_and_spectrum(
    x: NDArray[Any], y: NDArray[Any], folds: EpisodeClusters, alphas: FloatArray, fold_of: NDArray[np.int64]
) -> tuple[RidgePath, Spectrum]:
    """The held-out errors, and the decomposition of all rows, from one pass over them."""
    check_rows(x, y, folds)
    if len(x) < x.shape[1]:
        residual_ss = np.stack([_dual_fold(x, y, folds.rows(fold), alphas) for fold in range(len(folds))])
        spectrum = Spectrum.dual(x, y)
    else:
        moments = Moments.of(x, y, folds)
        rest = [Spectrum.primal(moments.total(leaving_out=fold)) for fold in range(len(folds))]
        residual_ss = np.stack([fit.residual_ss(moments.pick(f), alphas) for f, fit in enumerate(rest)])
        spectrum = Spectrum.primal(moments.total())
    fold_ss = np.stack([_squares(y[folds.rows(fold)]) for fold in range(len(folds))])
    return RidgePath(alphas, fold_of, residual_ss, fold_ss, _squares(y)), spectrum


def _dual_fold(x: NDArray[Any], y: NDArray[Any], rows: NDArray[np.int64], alphas: FloatArray) -> FloatArray:
    """Squared errors on `rows` of the fit to all other rows, [A, J]."""
    train = np.ones(len(x), dtype=bool)
    train[rows] = False
    return Spectrum.dual(x[train], y[train]).residual_ss_of_rows(x[rows], y[rows], alphas)


def _choose(
    path: RidgePath, scores: FloatArray, testable: NDArray[np.bool_] | None, per_joint: bool, score: Score
) -> tuple[FloatArray, list[str]]:
    """Alpha of each joint, [J], and what is to be said about the choice."""
    table = path.joint_scores(score)
    notes = []
    if not np.isfinite(scores).all():
        notes.append("no testable joint varies over the training rows: the largest alpha was taken unchosen")
    common = path.alphas[_last_best(scores)]
    chosen = np.full(table.shape[1], common)
    if per_joint:
        own = np.isfinite(table).all(axis=0)
        chosen[own] = [path.alphas[_last_best(table[:, joint])] for joint in np.flatnonzero(own)]
    return chosen, notes


def _last_best(scores: FloatArray) -> int:
    """Position of the largest alpha whose score is the best one (within `_TIE`); the last one where scores
    are NaN."""
    if not np.isfinite(scores).all():
        return len(scores) - 1
    return int(np.flatnonzero(scores >= scores.max() - _TIE)[-1])


def _finish(
    spectrum: Spectrum,
    chosen: FloatArray,
    grid: FloatArray,
    scores: FloatArray,
    path: RidgePath | None,
    n_rows: float,
    notes: list[str],
) -> RidgeFit:
    distinct, which = np.unique(chosen, return_inverse=True)
    coef = spectrum.coef(distinct)[:, which, np.arange(len(chosen))]
    low, high = (path is not None and bool((chosen == end).any()) for end in (grid[0], grid[-1]))
    if low:
        notes.append(f"alpha {grid[0]:g} is the smallest of the grid: extend the grid downwards")
    if high:
        notes.append(f"alpha {grid[-1]:g} is the largest of the grid: extend it, or the latents say little")
    n_features, n_constant = len(spectrum.kept), int((~spectrum.kept).sum())
    if n_constant == n_features:
        notes.append("every feature is constant over the training rows: the probe predicts each joint's mean")
    elif n_constant:
        notes.append(
            f"{n_constant} of {n_features} features are constant over the training rows and were dropped"
        )
    return RidgeFit(
        coef=coef,
        intercept=spectrum.y_mean,
        mean=spectrum.mean,
        scale=spectrum.scale,
        alpha_by_joint=chosen,
        alphas=grid,
        cv_scores=scores,
        path=path,
        n_rows=n_rows,
        n_constant=n_constant,
        edge="both" if low and high else "low" if low else "high" if high else "",
        notes=tuple(notes),
    )


def _grid(alphas: Sequence[float] | FloatArray) -> FloatArray:
    """The grid, increasing, each alpha once."""
    grid = np.unique(np.asarray(alphas, dtype=np.float64))
    if grid.size == 0 or not np.isfinite(grid).all() or grid[0] <= 0:
        raise ValueError(
            f"alphas must be positive, finite numbers, at least one, got {np.asarray(alphas).tolist()}"
        )
    return grid


def _squares(y: NDArray[Any]) -> FloatArray:
    """Squares about the mean, [J]; exactly 0 for a column that is constant."""
    centred = np.where(np.ptp(y, axis=0) > 0, y - y.mean(axis=0, dtype=np.float64), 0.0)
    return np.einsum("nj,nj->j", centred, centred)


def _one(episodes: EpisodeClusters) -> EpisodeClusters:
    """All rows as one cluster."""
    return episodes.merged(np.zeros(len(episodes), dtype=np.int64))
