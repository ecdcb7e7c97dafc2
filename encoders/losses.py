"""The terms of the objectives: SIGReg, alignment, whitening. Pure functions of latents.

An objective is L = lam * regulariser + (1 - lam) * alignment, the form of the identifiability paper
(arXiv 2605.26379, "When Does LeJEPA Learn a World Model?"). Published lambdas belong to one normalisation
each and do not carry over: here every member of a pair is one sample of size N (LeWM's way; others pool the
members into one sample of size 2N, which about doubles SIGReg), and alignment is a mean over pairs and
dimensions (the paper's text sums over dimensions, its code takes a quarter of the mean).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import distributed

from encoders.sigreg import KNOTS, T_MAX, epps_pulley, knots_and_weights

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = [
    "sigreg",
    "sigreg_each",
    "alignment",
    "whitening",
    "epps_pulley",
    "random_directions",
    "knots_and_weights",
    "KNOTS",
    "T_MAX",
]


def random_directions(
    dim: int,
    slices: int,
    generator: torch.Generator,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Unit vectors drawn uniformly from the sphere.

    Drawn on the generator's device and then moved, so that a seed means the same directions on every device.

    Returns
    -------
    tensor (dim, slices), each column of length 1.
    """
    drawn = torch.randn(dim, slices, generator=generator, device=generator.device, dtype=torch.float32)
    drawn = drawn.to(device=device, dtype=dtype)
    return drawn / drawn.norm(dim=0, keepdim=True)


def sigreg(
    z: torch.Tensor,
    directions: torch.Tensor | None = None,
    *,
    slices: int = 256,
    generator: torch.Generator | None = None,
    knots: int = KNOTS,
    t_max: float = T_MAX,
    group: ProcessGroup | None = None,
) -> torch.Tensor:
    """Sketched isotropic Gaussian regularisation: mean Epps-Pulley statistic over random directions.

        SIGReg(z) = (1/S) sum_s EP(z u_s),    |u_s| = 1

    From LeJEPA (Balestriero & LeCun, arXiv 2511.08544). By Cramer and Wold, z is N(0, I) exactly when each
    projection is N(0, 1); random directions test that without a covariance matrix.

    Parameters
    ----------
    z : tensor (..., N, D); leading axes are samples of their own (members of a pair, time steps), averaged
        over.
    directions : tensor (D, S) of unit columns, or (..., D, S) with leading axes that broadcast to those of
        z, or None to draw `slices` of them from `generator`.
    generator : explicit source of the directions, needed when `directions` is None.
    group : processes whose z are parts of one batch, see `epps_pulley`. Drawn directions are those of its
        first process on all of them; given ones must be the same everywhere.

    Returns
    -------
    scalar tensor

    Raises
    ------
    ValueError
        with neither or both of `directions` and `generator`, or with shapes that do not fit.
    """
    if (directions is None) == (generator is None):
        raise ValueError(
            "give either directions or a generator: nothing here draws from the global generator"
        )
    if directions is None:
        assert generator is not None
        directions = random_directions(
            z.shape[-1], slices, generator, dtype=_computed_in(z.dtype), device=z.device
        )
        if group is not None:
            distributed.broadcast(directions, src=distributed.get_global_rank(group, 0), group=group)
    return sigreg_each(z, directions, knots=knots, t_max=t_max, group=group).mean()


def sigreg_each(
    z: torch.Tensor,
    directions: torch.Tensor,
    *,
    knots: int = KNOTS,
    t_max: float = T_MAX,
    group: ProcessGroup | None = None,
) -> torch.Tensor:
    """SIGReg of each leading axis by itself: `sigreg` without the mean over them.

    Many runs at once, z (R, 2, N, D) with directions of their own (R, 1, D, S), give (R, 2).

    Parameters
    ----------
    z, directions, knots, t_max, group
        as in `sigreg`.

    Returns
    -------
    tensor (...), the leading axes of z.

    Raises
    ------
    ValueError
        with shapes that do not fit.
    """
    leading = z.shape[:-2]
    if z.ndim < 2 or directions.ndim < 2 or directions.shape[-2] != z.shape[-1]:
        fit = False
    else:
        pairs = zip(reversed(directions.shape[:-2]), reversed(leading))
        fit = directions.ndim <= z.ndim and all(ours in (1, theirs) for ours, theirs in pairs)
    if not fit:
        raise ValueError(
            f"z {tuple(z.shape)} and directions {tuple(directions.shape)} do not fit (..., N, D) and (D, S), "
            "or (..., D, S) with the same leading axes"
        )
    dtype = _computed_in(z.dtype)
    with torch.autocast(z.device.type, enabled=False):
        # (..., S, N), so that the samples of a column lie side by side; expanded, because a plain (S, D)
        # would be multiplied in the other order and laid out as (..., N, S)
        rows = directions.to(dtype).mT.expand(*leading, -1, -1) @ z.to(dtype).mT
    return epps_pulley(rows.mT, knots=knots, t_max=t_max, group=group).mean(dim=-1)


def alignment(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Mean squared distance between the members of positive pairs.

        alignment = (1 / (N D)) sum_n sum_d (first_nd - second_nd)^2

    The mean is over pairs and over dimensions, so its size does not depend on D: for standard normal
    latents whose members correlate by rho it is 2 (1 - rho). (Paper: sum over dimensions, D times this; its
    code: a quarter of this.)

    Parameters
    ----------
    first, second : tensors (..., N, D), row n of both is one pair.

    Returns
    -------
    scalar tensor
    """
    if first.shape != second.shape:
        raise ValueError(f"pair members differ in shape: {tuple(first.shape)} and {tuple(second.shape)}")
    return (first - second).square().mean()


def whitening(z: torch.Tensor) -> torch.Tensor:
    """Distance of the covariance from the identity, the VICReg-style regulariser of the identifiability
    paper.

        whitening(z) = || Cov(z) - I ||_F^2,    Cov = Zc^t Zc / (N - 1),    Zc = z - mean(z)

    It fixes second moments only: unlike SIGReg it leaves the mean and the shape of the distribution free.

    Parameters
    ----------
    z : tensor (..., N, D) with N >= 2; leading axes are averaged over.

    Returns
    -------
    scalar tensor
    """
    if z.ndim < 2 or z.shape[-2] < 2:
        raise ValueError(f"a covariance needs at least two samples, got z {tuple(z.shape)}")
    centred = z - z.mean(dim=-2, keepdim=True)
    covariance = centred.transpose(-1, -2) @ centred / (z.shape[-2] - 1)  # (..., D, D)
    identity = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
    return (covariance - identity).square().sum(dim=(-1, -2)).mean()


def _computed_in(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
