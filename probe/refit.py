"""Cluster bootstrap with refit: training episodes are drawn anew too, and the probe is fitted to each draw.

The bootstrap of `probe.bootstrap` holds the fitted probe as it is, so its interval is about this probe. This
one is about the recipe: another day's training episodes would have given another probe. Each draw takes E
training episodes with replacement, refits at the alpha chosen on the real ones (standardised anew), and
scores the refit on evaluation episodes drawn likewise.

A draw holds about 63 % of the episodes, some of them several times. A probe learns less from it than from as
many different ones, so refits score lower (or, at too small an alpha, higher) on average. That shift is
measured against the real probe on the same evaluation draws, taken out of the draws, and told in the note.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from probe.bootstrap import NOT_NEGATIVE, R2_RANGE, Bootstrap, Estimate
from probe.clusters import EpisodeClusters
from probe.moments import FloatArray, Moments, check_rows
from probe.ridge import refit_ridge
from probe.spectrum import feature_scale
from probe.statistics import JointScores, ResidualSums, score_table

_BLOCK_BYTES = 128 * 2**20  # Gram matrices of a block of draws: bounds the memory
_LEAST_PIVOT = 1e-6  # of a standardised feature's variance; below, the eigenvalues decide what is absent


def refit_scores(
    train: Moments,
    x_evaluate: NDArray[Any],
    y_evaluate: NDArray[Any],
    evaluate: EpisodeClusters,
    *,
    alpha: float | FloatArray,
    testable: NDArray[np.bool_],
    bootstrap: Bootstrap,
    training: Bootstrap,
    weighted: NDArray[np.bool_] | None = None,
) -> JointScores:
    """R2 by joint, mean, weighted mean and anisotropy, with intervals that include the training episodes.

    Parameters
    ----------
    train : moments of the training rows by episode (`Moments.of`; E x D x D x 8 bytes).
    x_evaluate, y_evaluate, evaluate : latents [M, D], joints [M, J] and their episodes.
    alpha : of the probe, one or [J]; it is not chosen again.
    testable, weighted : bool [J], as in `score_joints`.
    bootstrap : of the evaluation episodes. Its first draws are used, as many as `training` has.
    training : of the training episodes, 200 draws will do. Shared by all encoders trained on them, so that
        differences of what comes out are paired in both.

    The intervals are percentiles of the draws, recentred as the module says. In the deep tests they held the
    mean R2 that the recipe has over new training and evaluation episodes in 95 to 98 % of 300 simulations, of
    each of eight cases (6 to 60 training, 12 or 25 evaluation episodes); BCa of the held probe in 84 to 92 %.

    Raises
    ------
    ValueError : shapes that disagree, values that are not finite, or bootstraps of other episodes or with too
        few draws.
    """
    check_rows(x_evaluate, y_evaluate, evaluate)
    if len(training.episodes) != len(train) or not np.array_equal(bootstrap.episodes, evaluate.labels):
        raise ValueError("the bootstraps were drawn for other episodes than those trained on and evaluated")
    if len(training) > len(bootstrap) > 0:
        raise ValueError(f"{len(training)} refits need as many evaluation draws, there are {len(bootstrap)}")
    testable = np.asarray(testable, dtype=bool)
    pool = testable if weighted is None else testable & np.asarray(weighted, dtype=bool)
    alphas = np.broadcast_to(np.asarray(alpha, dtype=np.float64), (train.n_targets,))
    probe = refit_ridge(train, alphas)
    sums = ResidualSums.of(y_evaluate, probe.predict(x_evaluate), evaluate)
    n_draws = min(len(training), len(bootstrap))
    shared = replace(bootstrap, weights=bootstrap.weights[:n_draws], interval="percentile")

    held_ss, total_ss = sums.squares(shared.weights)
    held = score_table(held_ss, total_ss, testable, pool)
    refit_ss = np.zeros_like(held_ss)
    for draws, coef, intercept in _refits(train, training.weights[:n_draws], alphas):
        squares = _squares(x_evaluate, y_evaluate, evaluate, train.x_origin, coef, intercept)
        refit_ss[draws] = np.einsum("be,ebj->bj", shared.weights[draws], squares)
    refit = score_table(refit_ss, total_ss, testable, pool)
    point = score_table(*sums.squares(np.ones((1, len(sums)))), testable, pool)

    def estimate(
        value: FloatArray,
        drawn: FloatArray,
        of_probe: FloatArray,
        why_not: str,
        within: tuple[float, float] = R2_RANGE,
    ) -> Estimate:
        if why_not or np.isnan(value[0]):
            return shared.estimate(None, np.full(n_draws, np.nan), why_not or "the joint does not move")
        if not n_draws:
            few = "training" if len(train) < 2 else "evaluation"
            return shared.estimate(float(value[0]), np.zeros(0), f"no refit: a single {few} episode")
        shift = float(np.nanmean(drawn - of_probe)) if np.isfinite(drawn).any() else 0.0
        note = f"drawing training episodes with replacement shifts it by {shift:+.3f}, which is taken out"
        return shared.estimate(float(value[0]), drawn - shift, note, within=within)

    n_testable = int(testable.sum())
    none = "" if n_testable else "no testable joint"
    return JointScores(
        joints=tuple(
            estimate(point.r2[:, j], refit.r2[:, j], held.r2[:, j], "" if moves else "not testable")
            for j, moves in enumerate(testable)
        ),
        mean=estimate(point.mean, refit.mean, held.mean, none),
        weighted=estimate(
            point.weighted,
            refit.weighted,
            held.weighted,
            none or ("" if pool.any() else "no joint to weigh"),
        ),
        anisotropy=estimate(
            point.anisotropy,
            refit.anisotropy,
            held.anisotropy,
            none or ("" if n_testable > 1 else "needs two testable joints"),
            NOT_NEGATIVE,
        ),
        testable=testable,
    )


def _refits(
    train: Moments, weights: FloatArray, alphas: FloatArray
) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
    """Draws (a slice), raw coefficients [D, B, J] for x - x_origin and intercepts [B, J], by blocks."""
    n_features, n_targets = train.n_features, train.n_targets
    flat = train.xx.reshape(len(train), -1)
    block = max(1, _BLOCK_BYTES // (8 * n_features**2))
    for first in range(0, len(weights), block):
        draws = slice(first, min(first + block, len(weights)))
        chosen = weights[draws]
        grams = (chosen @ flat).reshape(-1, n_features, n_features)
        crosses = np.tensordot(chosen, train.xy, axes=1)
        counts, x_sums, y_sums = chosen @ train.count, chosen @ train.x_sum, chosen @ train.y_sum
        coef, intercept = np.zeros((n_features, len(chosen), n_targets)), np.zeros((len(chosen), n_targets))
        for b, n in enumerate(counts):
            mean, y_mean = x_sums[b] / n, y_sums[b] / n
            solved = _solve(grams[b], crosses[b], mean, y_mean, n, train.x_origin, alphas)
            if solved is None:
                fit = refit_ridge(train.weighted(chosen[b]), alphas)
                solved = fit.coef / fit.scale[:, None]
            coef[:, b] = solved
            intercept[b] = train.y_origin + y_mean - mean @ solved
        yield draws, coef, intercept


def _solve(
    gram: FloatArray,
    cross: FloatArray,
    mean: FloatArray,
    y_mean: FloatArray,
    n: float,
    x_origin: FloatArray,
    alphas: FloatArray,
) -> FloatArray | None:
    """Coefficients [D, J] of one draw for features in their own units; None where it is near singular.

    Standardising Xs = (X - m) diag(1/s) and undoing it is a penalty by variance on what is only centred:

        (Xc'Xc + alpha diag(s^2)) w = Xc'Yc
    """
    second = np.einsum("ii->i", gram) / n
    kept, scale = feature_scale(second - mean**2, second, x_origin + mean, n)
    centred = gram - np.outer(n * mean, mean)
    cross = cross - np.outer(n * mean, y_mean)
    if not kept.all():
        centred[~kept] = 0.0
        centred[:, ~kept] = 0.0
        cross[~kept] = 0.0
    diagonal = np.einsum("ii->i", centred).copy()
    coef = np.zeros_like(cross)
    for alpha in np.unique(alphas):
        np.einsum("ii->i", centred)[:] = diagonal + alpha * scale**2
        # a C-ordered symmetric matrix is its own transpose: nothing is copied into Fortran's order but once
        factor, failed = lapack.dpotrf(centred.T, lower=1, clean=0)
        if failed or (np.einsum("ii->i", factor) ** 2 < _LEAST_PIVOT * n * scale**2).any():
            return None
        columns = alphas == alpha
        coef[:, columns] = lapack.dpotrs(factor, cross[:, columns], lower=1)[0]
    return coef


def _squares(
    x: NDArray[Any],
    y: NDArray[Any],
    clusters: EpisodeClusters,
    x_origin: FloatArray,
    coef: FloatArray,
    intercept: FloatArray,
) -> FloatArray:
    """Squared errors of B refits on each evaluation episode, [E, B, J]."""
    squares = np.zeros((len(clusters), *intercept.shape))
    flat = coef.reshape(len(coef), -1)
    for episode in range(len(clusters)):
        rows = clusters.rows(episode)
        error = ((x[rows] - x_origin) @ flat).reshape(len(rows), *intercept.shape) + intercept
        error -= y[rows][:, None, :]
        squares[episode] = np.einsum("nbj,nbj->bj", error, error)
    return squares
