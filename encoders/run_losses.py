"""The objectives' terms of R runs at once: tensors (R, ...) in, one value a run out.

The terms of `encoders.losses`, which average over all leading axes. The normalisations are

    members     z and z' are two samples of size N; alignment is a mean over pairs and dimensions; whitening
                is a sum over the covariance's entries: the house's way, see `encoders.losses`
    published   as the identifiability paper's code has it (arXiv 2605.26379): both members are one sample of
                size 2N, alignment is a quarter of the mean, whitening a mean over the covariance's entries
"""

from __future__ import annotations

from typing import Literal

import torch

from encoders.losses import sigreg_each
from encoders.plane_sigreg import plane_epps_pulley

Normalisation = Literal["members", "published"]


def samples_of(z: torch.Tensor, normalisation: Normalisation) -> torch.Tensor:
    """What a regulariser takes for samples: (R, 2, N, D) as it is, or pooled to (R, 1, 2N, D)."""
    return z if normalisation == "members" else z.reshape(z.shape[0], 1, -1, z.shape[-1])


def sigreg(z: torch.Tensor, directions: torch.Tensor, normalisation: Normalisation) -> torch.Tensor:
    """SIGReg of each run: mean Epps-Pulley statistic over its own directions (LeJEPA, arXiv 2511.08544).

    Parameters
    ----------
    z : (R, 2, N, D), both members of N pairs.
    directions : (R, D, S) of unit columns.

    Returns
    -------
    (R,)
    """
    samples = samples_of(z, normalisation)  # (R, 2 or 1, N or 2N, D)
    if z.shape[-1] == 2:  # the same values, several times sooner
        return plane_epps_pulley(samples, directions).mean(dim=(1, 2))
    return sigreg_each(samples, directions.unsqueeze(1)).mean(dim=1)


def whitening(z: torch.Tensor, normalisation: Normalisation) -> torch.Tensor:
    """|| Cov(z) - I ||_F^2 of each run (published: divided by D^2); z (R, 2, N, D), returns (R,).

    Of fewer samples than dimensions by their products K = Zc Zc^t, N x N in place of D x D:

        || Cov - I ||_F^2 = || K ||_F^2 / (N - 1)^2 - 2 tr K / (N - 1) + D
    """
    z = samples_of(z, normalisation)
    samples, dim = z.shape[-2:]
    centred = (z - z.mean(dim=-2, keepdim=True)) / (samples - 1) ** 0.5
    if samples < dim:
        products = centred @ centred.transpose(-1, -2)  # (R, 2 or 1, N, N)
        trace = centred.square().sum(dim=(-1, -2))
        squares = products.square().sum(dim=(-1, -2)) - 2 * trace + dim
    else:
        covariance = centred.transpose(-1, -2) @ centred  # (R, 2 or 1, D, D)
        identity = torch.eye(dim, dtype=z.dtype, device=z.device)
        squares = (covariance - identity).square().sum(dim=(-1, -2))
    return squares.mean(dim=1) if normalisation == "members" else squares.mean(dim=1) / dim**2


def alignment(z: torch.Tensor, normalisation: Normalisation) -> torch.Tensor:
    """Mean squared distance between a run's members (published: a quarter); z (R, 2, N, D), returns (R,)."""
    distance = (z[:, 0] - z[:, 1]).square().mean(dim=(1, 2))
    return distance if normalisation == "members" else 0.25 * distance


def infonce(z: torch.Tensor, sigma: float) -> torch.Tensor:
    """Symmetric InfoNCE with a Gaussian kernel; a pair's negatives are the other pairs of its batch.

        s_ij = -|z_i - z'_j|^2 / (2 sigma^2)
        InfoNCE = -(1/N) sum_i [s_ii - (logsumexp_j s_ij + logsumexp_j s_ji) / 2]

    Parameters
    ----------
    z : (R, 2, N, D)

    Returns
    -------
    (R,)
    """
    first, second = z[:, 0], z[:, 1]
    scale = 0.5 / sigma**2
    # |a - b|^2 = |a|^2 + |b|^2 - 2 a.b needs (R, N, N) numbers where differences would need D times as many
    squares = first.square().sum(-1).unsqueeze(2) + second.square().sum(-1).unsqueeze(1)
    similarity = torch.baddbmm(squares, first, second.transpose(1, 2), beta=-scale, alpha=2 * scale)
    positive = -scale * (first - second).square().sum(-1)  # (R, N), without the cancellation
    against = 0.5 * (similarity.logsumexp(dim=2) + similarity.logsumexp(dim=1))
    return (against - positive).mean(dim=1)
