"""The terms of the objectives: SIGReg, alignment, whitening. Pure functions of latents.

An objective is L = lam * regulariser + (1 - lam) * alignment, the form of the identifiability paper
(arXiv 2605.26379, "When Does LeJEPA Learn a World Model?"). Published lambdas belong to one normalisation
each and do not carry over: here every member of a pair is one sample of size N (LeWM's way; others pool the
members into one sample of size 2N, which about doubles SIGReg), and alignment is a mean over pairs and
dimensions (the paper's text sums over dimensions, its code takes a quarter of the mean).
"""

from __future__ import annotations

import torch

KNOTS = 17
T_MAX = 3.0


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


def knots_and_weights(
    knots: int = KNOTS, t_max: float = T_MAX, *, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Knots t_k on [0, t_max] and weights w_k that integrate an even f against the Gaussian window.

        sum_k w_k f(t_k) ~ int f(t) exp(-t^2/2) dt over [-t_max, t_max]

    The trapezoid rule on the half line, doubled: 2 dt inside, dt at both ends, times the window.

    Returns
    -------
    two tensors (knots,)
    """
    t = torch.linspace(0.0, t_max, knots, dtype=dtype, device=device)
    step = t_max / (knots - 1)
    weight = torch.full((knots,), 2.0 * step, dtype=dtype, device=device)
    weight[0] = weight[-1] = step
    return t, weight * torch.exp(-0.5 * t.square())


def epps_pulley(samples: torch.Tensor, *, knots: int = KNOTS, t_max: float = T_MAX) -> torch.Tensor:
    """Epps-Pulley statistic of each column: how far its distribution is from a standard normal.

        EP = N * int |phi_N(t) - exp(-t^2/2)|^2 exp(-t^2/2) dt,    phi_N(t) = (1/N) sum_n exp(i t x_n)

    over [-t_max, t_max]. The integrand is even in t, so `knots` trapezoid knots on [0, t_max] carry it
    (LeJEPA, arXiv 2511.08544: 17 knots on [0, 3]). For N independent standard normal samples the
    expectation is int (1 - exp(-t^2)) exp(-t^2/2) dt = 1.053, whatever N; for a point mass at zero it grows
    as N.

    Parameters
    ----------
    samples : tensor (..., N, S), N samples of S variables.

    Returns
    -------
    tensor (..., S)
    """
    t, weight = knots_and_weights(knots, t_max, dtype=samples.dtype, device=samples.device)
    target = torch.exp(-0.5 * t.square())  # characteristic function of N(0, 1); real, since it is symmetric
    angle = samples.unsqueeze(-1) * t  # (..., N, S, K)
    real = angle.cos().mean(dim=-3)  # (..., S, K)
    imaginary = angle.sin().mean(dim=-3)
    distance = (real - target).square() + imaginary.square()
    return samples.shape[-2] * (distance @ weight)


def sigreg(
    z: torch.Tensor,
    directions: torch.Tensor | None = None,
    *,
    slices: int = 256,
    generator: torch.Generator | None = None,
    knots: int = KNOTS,
    t_max: float = T_MAX,
) -> torch.Tensor:
    """Sketched isotropic Gaussian regularisation: mean Epps-Pulley statistic over random directions.

        SIGReg(z) = (1/S) sum_s EP(z u_s),    |u_s| = 1

    From LeJEPA (Balestriero & LeCun, arXiv 2511.08544). By Cramer and Wold, z is N(0, I) exactly when each
    projection is N(0, 1); random directions test that without a covariance matrix.

    Parameters
    ----------
    z : tensor (..., N, D); leading axes are samples of their own (members of a pair, time steps), averaged
        over.
    directions : tensor (D, S) of unit columns, or None to draw `slices` of them from `generator`.
    generator : explicit source of the directions, needed when `directions` is None.

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
        directions = random_directions(z.shape[-1], slices, generator, dtype=z.dtype, device=z.device)
    if z.ndim < 2 or directions.ndim != 2 or directions.shape[0] != z.shape[-1]:
        raise ValueError(
            f"z {tuple(z.shape)} and directions {tuple(directions.shape)} do not fit (..., N, D) and (D, S)"
        )
    return epps_pulley(z @ directions, knots=knots, t_max=t_max).mean()


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
