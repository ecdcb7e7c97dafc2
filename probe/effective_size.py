"""How many independent rows a recording is worth: effective sample size under autocorrelation.

Frames a thirtieth of a second apart say much the same. N rows whose autocorrelations are rho_k pin down a
mean as well as N / tau independent ones,

    tau = 1 + 2 sum_k rho_k,    the integrated autocorrelation time, in rows.

Episodes are pooled: products of rows k apart are summed within episodes only, about the mean of all rows, so
that what is constant within an episode counts as correlation over its whole length. The sum over lags ends
where pairs of neighbouring lags stop being positive and decreasing (Geyer 1992, "Practical Markov chain Monte
Carlo", initial monotone sequence), because what follows is noise.

It is shown for readers; no interval rests on it. Those resample whole episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from probe.clusters import EpisodeClusters
from probe.moments import FloatArray


@dataclass(frozen=True, eq=False)
class EffectiveSize:
    """Effective sample size of each column, of joints or of a probe's residuals.

    Attributes
    ----------
    n_rows : N.
    tau : [J], integrated autocorrelation time in rows, at least 1; NaN for a column that is constant.
    size : [J], N / tau.
    lags : int64 [J], lags that were summed; near the longest episode's length the sum was cut by the data.
    """

    n_rows: int
    tau: FloatArray
    size: FloatArray
    lags: NDArray[np.int64]


def effective_size(values: NDArray[Any], clusters: EpisodeClusters) -> EffectiveSize:
    """Effective sample size of `values` [N, J] in episodes `clusters`, each one's rows evenly spaced in time.

    Raises
    ------
    ValueError : shapes that disagree, or values that are not finite.
    """
    if values.ndim != 2 or len(values) != clusters.n_rows:
        raise ValueError(f"expected values [{clusters.n_rows}, J], got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("values that are not finite have no autocorrelation")
    products = autocovariance_sums(values, clusters)
    n_columns = values.shape[1]
    tau, lags = np.full(n_columns, np.nan), np.zeros(n_columns, dtype=np.int64)
    for column in np.flatnonzero(np.ptp(values, axis=0) > 0):
        rho = products[:, column] / products[0, column]
        rho = np.append(rho, 0.0) if len(rho) % 2 else rho
        pairs = rho[::2] + rho[1::2]
        ended = np.flatnonzero(pairs <= 0)
        kept = np.minimum.accumulate(pairs[: ended[0]] if len(ended) else pairs)
        tau[column] = max(2 * float(kept.sum()) - 1, 1.0)
        lags[column] = min(2 * len(kept), len(products)) - 1
    return EffectiveSize(len(values), tau, len(values) / tau, lags)


def autocovariance_sums(values: NDArray[Any], clusters: EpisodeClusters) -> FloatArray:
    """Sums over episodes of products of rows k apart, about the mean of all rows, [longest episode, J].

        c_k = sum_e sum_t d_t d_(t+k)

    They are divided by nothing. With c_0 = N times the variance, c_k / c_0 is the autocorrelation times the
    share of rows that have a partner k later, which is the weight it has in the variance of the mean.
    """
    centred = np.asarray(values, dtype=np.float64) - values.mean(axis=0, dtype=np.float64)
    sums = np.zeros((int(clusters.count.max()), values.shape[1]))
    for episode in range(len(clusters)):
        rows = centred[clusters.rows(episode)]
        size = fft.next_fast_len(2 * len(rows) - 1, real=True)  # padded: what leaves does not come round
        power = np.abs(fft.rfft(rows, n=size, axis=0)) ** 2
        sums[: len(rows)] += fft.irfft(power, n=size, axis=0)[: len(rows)]
    return sums
