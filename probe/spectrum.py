"""One training set, standardised and decomposed: the ridge of any alpha is then one product away.

Features are standardised by the training rows' own mean and standard deviation (ddof 0) and targets are
centred. With more rows than features the Gram matrix Xs'Xs is decomposed (primal, D x D), from moments alone;
with fewer, the kernel matrix Xs Xs' (dual, n x n), from rows.

A Gram matrix squares the condition number: directions whose singular value is below about 1e-7 of the largest
one count as absent. Latents are stored as float32, whose own rounding is of that size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probe.moments import FloatArray, Moments

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigendecomposition of a standardised training set of n rows, D features, J targets.

    Attributes
    ----------
    mean, scale : [D], [D], of the training rows; scale is 1 where a feature is constant.
    kept : bool [D], the features that vary.
    y_mean : [J].
    values : [R], eigenvalues, R = D (primal) or n (dual); exactly 0 where they are rounding.
    vectors : [R, R], eigenvectors V in columns.
    target : [R, J], V'Xs'Y (primal) or V'Y (dual); exactly 0 where values are.
    rows : None (primal), or the standardised rows Xs [n, D] (dual).
    """

    mean: FloatArray
    scale: FloatArray
    kept: NDArray[np.bool_]
    y_mean: FloatArray
    values: FloatArray
    vectors: FloatArray
    target: FloatArray
    rows: FloatArray | None

    @classmethod
    def primal(cls, moments: Moments) -> Spectrum:
        """From the moments of one group."""
        n = float(moments.count[0])
        mean, y_mean = moments.x_sum[0] / n, moments.y_sum[0] / n  # about the origins
        second = np.einsum("ii->i", moments.xx[0]) / n
        kept, scale = feature_scale(second - mean**2, second, moments.x_origin + mean, n)
        # Xs'Xs = diag(1/s) (X'X - n m m') diag(1/s)      Xs'Y = diag(1/s) (X'Y - n m ybar')
        inverse = np.where(kept, 1 / scale, 0.0)
        gram = (moments.xx[0] - n * np.outer(mean, mean)) * inverse[:, None] * inverse
        cross = (moments.xy[0] - n * np.outer(mean, y_mean)) * inverse[:, None]
        values, vectors, target = _decompose(gram, cross)
        mean, y_mean = moments.x_origin + mean, moments.y_origin + y_mean
        return cls(mean, scale, kept, y_mean, values, vectors, target, None)

    @classmethod
    def dual(cls, x: NDArray[Any], y: NDArray[Any]) -> Spectrum:
        """From rows, x [n, D] and y [n, J]."""
        mean, y_mean = x.mean(axis=0, dtype=np.float64), y.mean(axis=0, dtype=np.float64)
        rows = x - mean
        variance = np.einsum("nd,nd->d", rows, rows) / len(rows)
        kept, scale = feature_scale(variance, variance, mean, len(rows))
        rows *= np.where(kept, 1 / scale, 0.0)
        values, vectors, target = _decompose(rows @ rows.T, y - y_mean)
        return cls(mean, scale, kept, y_mean, values, vectors, target, rows)

    def coef(self, alphas: FloatArray) -> FloatArray:
        """Coefficients for standardised features, [D, A, J], of the alphas [A]."""
        # primal: w = V (L + alpha)^-1 V'Xs'Y      dual: w = Xs'V (L + alpha)^-1 V'Y
        shrunk = self.target[:, None, :] / (self.values[:, None] + alphas)[:, :, None]
        flat = self.vectors @ shrunk.reshape(len(self.values), -1)
        if self.rows is not None:
            flat = self.rows.T @ flat
        flat[~self.kept] = 0.0
        return flat.reshape(-1, len(alphas), self.target.shape[1])

    def standardised(self, moments: Moments) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Other rows' moments (one group) about this training set's means, in its standard deviations.

        Returns Xs'Xs [D, D], Xs'Yc [D, J] and the squares of Yc [J].
        """
        n = float(moments.count[0])
        mean, y_mean = self.mean - moments.x_origin, self.y_mean - moments.y_origin
        x_sum, y_sum = moments.x_sum[0], moments.y_sum[0]
        inverse = np.where(self.kept, 1 / self.scale, 0.0)
        outer = np.outer(x_sum, mean)
        gram = (moments.xx[0] - outer - outer.T + n * np.outer(mean, mean)) * inverse[:, None] * inverse
        cross = moments.xy[0] - np.outer(x_sum, y_mean) - np.outer(mean, y_sum) + n * np.outer(mean, y_mean)
        square = moments.yy[0] - 2 * y_mean * y_sum + n * y_mean**2
        return gram, cross * inverse[:, None], square

    def residual_ss(self, held_out: Moments, alphas: FloatArray) -> FloatArray:
        """Squared errors on the rows behind `held_out` (moments of one group), [A, J]."""
        gram, cross, square = self.standardised(held_out)
        coef = self.coef(alphas)
        # sum (y - x'w)^2 = y'y - 2 w'X'y + w'X'X w, which rounding can push below 0 for a perfect fit
        fitted = (gram @ coef.reshape(len(gram), -1)).reshape(coef.shape)
        fitted -= 2 * cross[:, None, :]
        return np.maximum(square + np.einsum("daj,daj->aj", coef, fitted), 0.0)

    def residual_ss_of_rows(self, x: NDArray[Any], y: NDArray[Any], alphas: FloatArray) -> FloatArray:
        """Squared errors on rows x [m, D], y [m, J], [A, J]."""
        coef = self.coef(alphas) / self.scale[:, None, None]
        error = ((x - self.mean) @ coef.reshape(len(coef), -1)).reshape(len(x), len(alphas), -1)
        error -= (y - self.y_mean)[:, None, :]
        return np.einsum("maj,maj->aj", error, error)


def feature_scale(
    variance: FloatArray, second: FloatArray, mean: FloatArray, n: float
) -> tuple[NDArray[np.bool_], FloatArray]:
    """Which features vary, [D], and their standard deviation (1 where they do not), [D].

    A variance counts as rounding below n eps times the second moment that it was computed from (about an
    origin which need not be the mean), and below the square of n eps times the feature's mean (the bound of
    scikit-learn's StandardScaler).
    """
    kept = variance > np.maximum(n * _EPS * second, (n * _EPS * mean) ** 2)
    return kept, np.sqrt(np.where(kept, variance, 1.0))


def _decompose(matrix: FloatArray, right: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Eigenvalues, eigenvectors V and V'right of a positive semi-definite matrix; null directions exactly 0.

    In a null direction V'right is 0 as well, in exact arithmetic (`right` lies in the matrix's range); as
    computed it is rounding, which a small alpha would blow up.
    """
    values, vectors = np.linalg.eigh(matrix)
    target = vectors.T @ right
    null = values <= len(values) * _EPS * max(float(values[-1]), 0.0)
    values[null] = 0.0
    target[null] = 0.0
    return values, vectors, target
