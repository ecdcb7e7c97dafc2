"""Epps-Pulley statistics of two-dimensional samples along many directions, by way of a few frequencies.

All that SIGReg asks of samples z_n of the plane is their characteristic function

    phi(w) = (1/N) sum_n exp(i w.z_n)    at w = t_k u_s:    16 rings, and on each of them all directions,

2 N * 4,096 sines and cosines for 256 directions by the direct formula. But phi is as smooth as its samples
are near. On ring k it is a Fourier series in the angle with coefficients of the size of the Bessel functions
J_m(t_k |z|), and along one axis exp(i w x) is a Chebyshev series in w / t_max with those of J_j(t_max |x|);
both vanish faster than any power once the order passes t_max |z|. So M terms of either, about 30, carry phi
to rounding, and everything between the samples and the distances is a product of matrices:

    samples -> phi at M x M Chebyshev nodes (a, b):  sum_n exp(i a x_n) exp(i b y_n) / N
            -> M Fourier coefficients of each ring:  a fixed matrix
            -> phi at the directions:                sums of cos m theta and sin m theta

The result is that of the direct formula up to rounding, not an estimate of it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch

from encoders.losses import KNOTS, T_MAX, epps_pulley, knots_and_weights

MAX_TERMS = 48


def plane_epps_pulley(z: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
    """Epps-Pulley statistic of `z @ directions`, column by column, as `losses.epps_pulley` defines it.

    A run with a sample farther out than MAX_TERMS carry (8 standard deviations in float32) takes
    `losses.epps_pulley` itself.

    Parameters
    ----------
    z : (R, V, N, 2), V samples of size N for each of R runs.
    directions : (R, 2, S) of unit columns, the same for all samples of a run; no gradient flows to them.

    Returns
    -------
    (R, V, S)
    """
    reach = T_MAX * z.detach().norm(dim=-1).amax(dim=(1, 2))  # (R,)
    far = reach > _reach(MAX_TERMS, z.dtype)  # what is NaN is not far, and stays NaN
    if not far.any():
        return _by_rings(z, directions, reach)
    near = ~far
    found = z.new_empty(z.shape[0], z.shape[1], directions.shape[-1])
    found = found.index_put((far,), epps_pulley(z[far] @ directions[far].unsqueeze(1)))
    return found.index_put((near,), _by_rings(z[near], directions[near], reach[near]))


def _by_rings(z: torch.Tensor, directions: torch.Tensor, reach: torch.Tensor) -> torch.Tensor:
    runs, members, samples, _ = z.shape
    if runs == 0:
        return z.new_empty(0, members, directions.shape[-1])
    terms = _terms(float(reach.nan_to_num(0.0).max()), z.dtype)
    half = terms // 2
    nodes, to_rings = _nodes_and_rings(terms, z.dtype, z.device)
    t, weight = knots_and_weights(KNOTS, T_MAX, dtype=z.dtype, device=z.device)
    t, weight = t[1:], weight[1:]  # every characteristic function is 1 at t = 0

    waves = []
    for x in z.flatten(0, 1).unbind(dim=2):  # (R V, N)
        angle = nodes.view(-1, 1) * x.unsqueeze(1)  # (R V, M / 2, N)
        waves.append(torch.cat([angle.cos(), angle.sin()], dim=1))  # (R V, M, N)
    products = torch.bmm(waves[0], waves[1].transpose(1, 2)) / samples  # (R V, M, M)
    products = products.view(runs * members, 2, half, 2, half)
    even = torch.stack(
        [products[:, 0, :, 0], products[:, 1, :, 1]], dim=1
    )  # cos cos, sin sin: to the real part
    odd = torch.stack(
        [products[:, 0, :, 1], products[:, 1, :, 0]], dim=1
    )  # cos sin, sin cos: to the imaginary
    series = torch.stack([even.flatten(1), odd.flatten(1)]) @ to_rings  # (2, R V, K M)
    series = series.view(2, runs, members * len(t), terms)
    phi = series @ _harmonics(directions, terms)  # (2, R, V K, S), real part and imaginary part
    real, imaginary = phi.view(2, runs, members, len(t), -1)
    target = torch.exp(-0.5 * t.square()).view(-1, 1)
    distance = (real - target).square() + imaginary.square()  # (R, V, K, S)
    return samples * (distance * weight.view(-1, 1)).sum(dim=2)


def _harmonics(directions: torch.Tensor, terms: int) -> torch.Tensor:
    """cos(m theta), then sin(m theta), of the even m below `terms` and of the odd ones, (2, R, terms, S).

    phi(-w) is the conjugate of phi(w): the real part has even harmonics only, the imaginary part odd ones.
    """
    x, y = directions.detach().double().unbind(dim=1)  # in float32, m theta would lose digits
    order = torch.arange(terms, dtype=torch.float64, device=x.device).view(-1, 2).T  # (2, M / 2)
    angle = torch.atan2(y, x).unsqueeze(1) * order.view(2, 1, -1, 1)  # (2, R, M / 2, S)
    return torch.cat([angle.cos(), angle.sin()], dim=2).to(directions.dtype)


@lru_cache(maxsize=16)
def _nodes_and_rings(
    terms: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positive Chebyshev nodes (M / 2,) and the matrices from products of waves to series, (2, M^2 / 2, K M).

    M Chebyshev nodes lie symmetrically about 0. A cosine is even in the frequency and a sine odd, so their
    values at the positive half tell all: even Chebyshev terms come from cosines, odd ones from sines,

        exp(i w x) = sum_j c_j T_j(w / t_max),
        c_j = (2 - [j = 0]) (2 / M) sum_(a < M/2) f(a x) T_j(a / t_max),    f = cos or i sin.

    Then a harmonic's coefficient on a ring is a mean over M angles of half the circle,

        (2 - [m = 0]) (1 / M) sum_q phi(t_k, theta_q) cos(m theta_q),    theta_q = pi q / M,    or sin
    """
    half = terms // 2
    order = torch.arange(terms, dtype=torch.float64)
    place = math.pi * (torch.arange(half, dtype=torch.float64) + 0.5) / terms
    chebyshev = (4.0 / terms) * torch.cos(order[:, None] * place)  # (M, M / 2)
    chebyshev[0] /= 2

    t, _ = knots_and_weights(KNOTS, T_MAX, dtype=torch.float64)
    theta = math.pi * order / terms
    unit = torch.stack([theta.cos(), theta.sin()])  # (2, Q)
    on_rings = (t[1:, None] / T_MAX) * unit.unsqueeze(1)  # w / t_max, (2 axes, K, Q)
    polynomial = torch.cos(order * torch.arccos(on_rings.clamp(-1, 1)).unsqueeze(-1))  # T_j, (2, K, Q, M)
    # value at a frequency of what is 1 at one node: (2 axes, K, Q, M / 2), for cosines and for sines
    cosine, sine = (polynomial[..., parity::2] @ chebyshev[parity::2] for parity in (0, 1))

    made = []
    pairs = (((cosine, cosine, 1.0), (sine, sine, -1.0)), ((cosine, sine, 1.0), (sine, cosine, 1.0)))
    for parity, blocks in enumerate(pairs):
        harmonic = order[parity::2, None] * theta  # (M / 2, Q)
        mean = torch.cat([harmonic.cos(), harmonic.sin()]) * (2.0 / terms)  # (M, Q)
        if parity == 0:
            mean[0] /= 2
        made.append(
            torch.cat(
                [
                    sign * torch.einsum("kqa,kqb,mq->abkm", x[0], y[1], mean).reshape(half * half, -1)
                    for x, y, sign in blocks
                ]
            )
        )
    nodes = T_MAX * torch.cos(place)
    return nodes.to(device=device, dtype=dtype), torch.stack(made).to(device=device, dtype=dtype)


def _terms(reach: float, dtype: torch.dtype) -> int:
    """Terms for samples with t_max |z| up to `reach`, a multiple of four."""
    return next(terms for terms in range(8, MAX_TERMS + 1, 4) if reach <= _reach(terms, dtype))


@lru_cache(maxsize=64)
def _reach(terms: int, dtype: torch.dtype) -> float:
    """Largest t_max |z| that `terms` terms carry to rounding.

    What is cut off is at most 4 sum_(j >= M) |J_j(x)| with |J_j(x)| <= (x / 2)^j / j!. While x <= M the sum
    is at most twice its first term; hence the largest x with 8 (x / 2)^M / M! <= eps / 4.
    """
    logarithm = (math.log(torch.finfo(dtype).eps / 32) + math.lgamma(terms + 1)) / terms
    return min(2 * math.exp(logarithm), float(terms))
