"""Is h a rotation of z? The paper's numbers for worlds whose state is known, as arrays.

    z [n, N]    the world's latents, of mean zero and unit variance
    h [n, D]    what an encoder makes of the observations of z

The numbers of the identifiability paper (arXiv 2605.26379). Everything linear is fitted by least squares with
an intercept, of least norm where an encoder has collapsed, so that R2 is defined there too (and near 0).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import orthogonal_procrustes

FloatArray = NDArray[np.float64]

SMALLEST_SHARE = 1e-12
"""Of the largest eigenvalue of a covariance: what lies below is rounding, and is not divided by."""


@dataclass(frozen=True, eq=False)
class LinearMap:
    """y = x A + b by least squares.

    Attributes
    ----------
    matrix : A, [a, b].
    offset : b, [b].
    """

    matrix: FloatArray
    offset: FloatArray

    def __call__(self, x: FloatArray) -> FloatArray:
        return np.asarray(x @ self.matrix + self.offset)


def fit_linear(x: FloatArray, y: FloatArray) -> LinearMap:
    """The map of x [n, a] to y [n, b] of least squared error; of least norm where x is degenerate.

    By the eigenvectors of x's covariance, n a^2 products: at a = 1,024 and n = 10,000 ten times sooner than a
    singular value decomposition of x, and of R2 and the map no digit differs that anybody looks at.
    """
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    centred = x - x_mean
    values, vectors = np.linalg.eigh(centred.T @ centred)
    kept = values > SMALLEST_SHARE * max(float(values[-1]), np.finfo(float).tiny)
    turned = vectors[:, kept].T @ (centred.T @ (y - y_mean))
    matrix = vectors[:, kept] @ (turned / values[kept, None])
    return LinearMap(matrix, y_mean - x_mean @ matrix)


def r2_pooled(y: FloatArray, predicted: FloatArray) -> float:
    """1 - sum |y - predicted|^2 / sum |y - mean(y)|^2 over rows and dimensions: weighted by variance.

    Nan where y does not vary.
    """
    if not np.ptp(y, axis=0).any():
        return float("nan")
    return 1 - float(np.square(y - predicted).sum() / np.square(y - y.mean(axis=0)).sum())


def r2_uniform(y: FloatArray, predicted: FloatArray) -> float:
    """The mean over the dimensions of y of each one's R2; nan where one does not vary."""
    if not np.ptp(y, axis=0).all():
        return float("nan")
    shares = np.square(y - predicted).sum(axis=0) / np.square(y - y.mean(axis=0)).sum(axis=0)
    return 1 - float(shares.mean())


def orthogonality_error(matrix: FloatArray) -> float:
    """||Q'Q - I||_F / sqrt(N) of h = Q z, from `fit_linear(z, h).matrix` = Q' [N, D].

    0 for a rotation. A global scale c alone makes it |c^2 - 1|.
    """
    gram = matrix @ matrix.T
    return float(np.linalg.norm(gram - np.eye(len(gram))) / np.sqrt(len(gram)))


def scale_and_shape(matrix: FloatArray) -> tuple[float, float]:
    """The scale c of a map, the root mean square of Q's singular values, and `orthogonality_error` of Q / c.

    The second is what the first leaves of the error: 0 for any multiple of a rotation; nan for a map of 0.
    """
    scale = float(np.sqrt(np.square(matrix).sum() / len(matrix)))
    return scale, orthogonality_error(matrix / scale) if scale > 0 else float("nan")


def whitened_procrustes(z: FloatArray, h: FloatArray) -> float:
    """What is left between z and h once both are white and h is turned, as published for Reacher.

        min over orthogonal R of ||Z W_z R - H W_h||_F / sqrt(n N) = sqrt(2 (1 - mean canonical correlation))

    0 where one is a linear map of the other, whatever its scale and shape; sqrt(2) where they have nothing in
    common.

    Parameters
    ----------
    z, h : [n, N], [n, N].
    """
    bases = []
    for x in (z, h):
        centred = x - x.mean(axis=0)
        values, vectors = np.linalg.eigh(centred.T @ centred)
        kept = values > SMALLEST_SHARE * max(float(values[-1]), np.finfo(float).tiny)
        bases.append((centred @ vectors[:, kept]) / np.sqrt(values[kept]))
    correlations = np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)
    return float(np.sqrt(max(0.0, 2 * (1 - correlations.sum() / z.shape[1]))))


@dataclass(frozen=True)
class Bound:
    """Theorem 5.3: recovery error <= D + (eps + D)^2, with D = delta / (2 rho (1 - rho)).

    Attributes
    ----------
    eps : ||Cov(h) - I||_F.
    eps_floor : what n samples of an exactly white h would show of it, sqrt(N (N + 1) / n).
    delta : alignment gap, E|h - h'|^2 - 2 (1 - rho) E|h - E h|^2 over pairs of correlation rho: the least
        that latents of this variance can have is taken off, which needs no Cov(h) = I.
    delta_published : E|h - h'|^2 - 2 (1 - rho) N, at least 0, as the published code has it.
    d : D of `delta`, at least 0.
    bound, bound_published : D + (eps + D)^2 of either.
    recovery : min over orthogonal Q of E|h - Q z|^2 with both centred; what is bounded.
    """

    eps: float
    eps_floor: float
    delta: float
    delta_published: float
    d: float
    bound: float
    bound_published: float
    recovery: float


def approximate_bound(z: FloatArray, h: FloatArray, h_next: FloatArray, rho: float) -> Bound:
    """The terms of theorem 5.3.

    Parameters
    ----------
    z, h : [n, N], [n, N], latents and what they are encoded to.
    h_next : [n, N], the encoded partners: z' = rho z + sqrt(1 - rho^2) eta.
    rho : in (0, 1).
    """
    n, dim = z.shape
    h_centred, z_centred = h - h.mean(axis=0), z - z.mean(axis=0)
    covariance = h_centred.T @ h_centred / (n - 1)
    eps = float(np.linalg.norm(covariance - np.eye(dim)))
    apart = float(np.square(h - h_next).sum(axis=1).mean())
    # both members have the variance of h, and their mean uses both
    variance = float(np.trace(covariance) + np.trace(np.cov(h_next.T).reshape(dim, dim))) / 2
    delta = apart - 2 * (1 - rho) * variance
    delta_published = max(0.0, apart - 2 * (1 - rho) * dim)
    gap = 2 * rho * (1 - rho)
    d, d_published = max(0.0, delta) / gap, delta_published / gap
    turn, _ = orthogonal_procrustes(z_centred, h_centred)
    recovery = float(np.square(h_centred - z_centred @ turn).sum(axis=1).mean())
    return Bound(
        eps,
        float(np.sqrt(dim * (dim + 1) / n)),
        delta,
        delta_published,
        d,
        d + (eps + d) ** 2,
        d_published + (eps + d_published) ** 2,
        recovery,
    )
