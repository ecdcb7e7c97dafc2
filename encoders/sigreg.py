"""The Epps-Pulley statistic, the one-dimensional test that SIGReg averages: fast, in plain torch.

It needs the empirical characteristic function of every column at the knots t_k = k dt: sums over samples of
cos(k a) and sin(k a), with a = dt x. Its gradient needs sums of the same waves over the knots. Written out,
these are tensors (N, S, K), several of them. Here a knot is a centre plus an offset: centres 0, p, 2p, .. and
offsets -h .. h with p = 2h + 1 (17 knots: 0, 7, 14 and -3 .. 3), for by the angle-sum identities

    cos((c + j) a) = cos(c a) cos(j a) - sin(c a) sin(j a)

the sums over samples are one small matrix product a column, (waves at centres) (waves at offsets)^t, and the
gradient is another: about 2 sqrt(2 K) waves instead of 2 K, and nothing of size K. Columns are taken in
blocks whose waves stay in the cache. The result is that of the direct formula up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

KNOTS = 17
T_MAX = 3.0

BLOCK_NUMBERS = 2**20  # held for a block of columns, 4 MiB in float32: about what a core's caches hold
BLOCK_NUMBERS_GPU = 2**23  # 32 MiB: there a call costs more than its arithmetic on a small block


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


def epps_pulley(
    samples: torch.Tensor, *, knots: int = KNOTS, t_max: float = T_MAX, group: ProcessGroup | None = None
) -> torch.Tensor:
    """Epps-Pulley statistic of each column: how far its distribution is from a standard normal.

        EP = N * int |phi_N(t) - exp(-t^2/2)|^2 exp(-t^2/2) dt,    phi_N(t) = (1/N) sum_n exp(i t x_n)

    over [-t_max, t_max]. The integrand is even in t, so `knots` trapezoid knots on [0, t_max] carry it
    (LeJEPA, arXiv 2511.08544: 17 knots on [0, 3]). For N independent standard normal samples the
    expectation is int (1 - exp(-t^2)) exp(-t^2/2) dt = 1.053, whatever N; for a point mass at zero it grows
    as N.

    Differentiable once. Half precision is computed, and returned, in float32, also under autocast.

    **Several processes.** With `group`, the samples of all its processes are one sample: the means run over
    all of them and N is their total, so the statistic is not that of any local batch, nor a mean of local
    ones. Local batches may be uneven, leading axes and S may not. Every process gets the same value, and for
    its own samples W times the gradient of that value, W the number of processes: parameter gradients are
    sum over processes of (d local samples / d parameter)^t (d EP / d local samples), while
    DistributedDataParallel takes their mean, which the W makes up for. (Peers drop the reduced tensor, or
    reduce without a gradient and end at 1/W.) This holds when every process weighs the statistic alike in its
    loss; backward itself communicates nothing. The default group is `torch.distributed.group.WORLD`.

    Parameters
    ----------
    samples : tensor (..., N, S), N samples of S variables.
    knots : at least 2.
    group : the processes that share a batch, or None for this process alone.

    Returns
    -------
    tensor (..., S)

    Raises
    ------
    ValueError
        with fewer than two axes, or fewer than two knots.
    RuntimeError
        in backward with create_graph=True: second derivatives are not implemented.
    """
    if samples.ndim < 2 or knots < 2:
        raise ValueError(f"samples {tuple(samples.shape)} at {knots} knots: need (..., N, S) and two knots")
    if samples.dtype != torch.float64:
        samples = samples.float()
    wanted = torch.is_grad_enabled() and samples.requires_grad
    found: torch.Tensor = _EppsPulley.apply(samples, knots, t_max, group, wanted)
    return found


@dataclass(frozen=True)
class _Knots:
    """The knots t_1 .. t_(K-1) as centre + offset; (centre c, cos or sin, j) stands for k = c p + j - h.

    At t = 0 every characteristic function is 1, so that knot adds nothing; k < 1 and k > K - 1 weigh nothing.
    """

    centres: int  # C
    offsets: int  # h
    step: float  # dt
    recombine: torch.Tensor  # (2 p, 2 p) products of waves to waves, see `_angle_sums`
    derive: torch.Tensor  # (2 p, 2 p) from the derivatives of those waves by their angle back to products
    target: torch.Tensor  # (C 2 p,) characteristic function of N(0, 1); its sine part is 0
    weight: torch.Tensor  # (C 2 p,) w
    slope: torch.Tensor  # (C 2 p,) 2 w t

    @property
    def pitch(self) -> int:
        return 2 * self.offsets + 1

    @property
    def rows(self) -> int:
        """Numbers that a sample needs."""
        return 4 * self.centres + self.pitch + 1


@lru_cache(maxsize=16)
def _knots(knots: int, t_max: float, dtype: torch.dtype, device: torch.device) -> _Knots:
    # as few waves as possible; among equals the fewest centres, whose waves are made by repeated addition
    offsets = min(range(1, knots + 1), key=lambda h: (h + _centres(knots, h), -h))
    centres, pitch = _centres(knots, offsets), 2 * offsets + 1
    t, of_knot = knots_and_weights(knots, t_max, dtype=torch.float64)
    target, weight, slope = (torch.zeros(centres, 2, pitch, dtype=torch.float64) for _ in range(3))
    for k in range(1, knots):
        centre, place = divmod(k + offsets, pitch)
        target[centre, 0, place] = torch.exp(-0.5 * t[k].square())
        weight[centre, :, place] = of_knot[k]
        slope[centre, :, place] = 2 * of_knot[k] * t[k]
    sums = _angle_sums(offsets)
    derivative = torch.cat([-sums[:, pitch:], sums[:, :pitch]], dim=1)  # cos' = -sin, sin' = cos
    tensors = (sums, derivative.T, target.flatten(), weight.flatten(), slope.flatten())
    return _Knots(centres, offsets, t_max / (knots - 1), *(x.to(device, dtype) for x in tensors))


def _centres(knots: int, offsets: int) -> int:
    """How many centres 0, p, 2p, .. reach the last knot, K - 1."""
    return 1 + max(0, -(-(knots - 1 - offsets) // (2 * offsets + 1)))


def _angle_sums(offsets: int) -> torch.Tensor:
    """The angle-sum identities as a matrix (2 p, 2 p), the same for every centre a.

    Rows are the products (cos a, sin a) x (1, cos 1, .., cos h, sin 1, .., sin h); columns cos(a + j) and
    sin(a + j) for j = -h .. h.
    """
    pitch = 2 * offsets + 1
    matrix = torch.zeros(2, pitch, 2, pitch, dtype=torch.float64)
    for j in range(-offsets, offsets + 1):
        cos, sin, column = abs(j), offsets + abs(j), j + offsets
        matrix[0, cos, 0, column] = 1.0
        matrix[1, cos, 1, column] = 1.0
        if j:
            sign = 1.0 if j > 0 else -1.0  # sin(-b) = -sin(b)
            matrix[1, sin, 0, column] = -sign
            matrix[0, sin, 1, column] = sign
    return matrix.reshape(2 * pitch, 2 * pitch)


class _Waves:
    """cos and sin of a block of C columns at the centres and at the offsets, in memory that is used again."""

    def __init__(self, knots: _Knots, columns: int, samples: int, like: torch.Tensor) -> None:
        self.knots = knots
        around, pitch = 2 * knots.centres, knots.pitch
        # one allocation: the C library keeps it for the next call, where it would give several back to the
        # system, and new pages take longer to get than to fill
        memory = like.new_empty(knots.rows, columns, samples)
        self.at_centres, self.at_offsets, partial, angle = memory.split([around, pitch, around, 1])
        # rows of at_centres: cos, sin, cos, sin, ..; of at_offsets: 1, cos .. cos, sin .. sin
        self.partial, self._angle = partial.view(columns, around, samples), angle[0]
        self.at_centres[0] = 1.0  # the centre 0
        self.at_centres[1] = 0.0
        self.at_offsets[0] = 1.0
        # a view costs as much as arithmetic on a small block: all are made once
        self._centre_rows = self.at_centres.unbind(0)
        self._offset_rows = self.at_offsets.unbind(0)
        self._partial_rows = self.partial.unbind(1)

    def fill(self, columns: torch.Tensor) -> None:
        """Take a block (C, N)."""
        h, centre = self.knots.offsets, self._centre_rows
        cos, sin = self._offset_rows[1 : h + 1], self._offset_rows[h + 1 :]
        torch.mul(columns, self.knots.step, out=self._angle)
        torch.cos(self._angle, out=cos[0])
        torch.sin(self._angle, out=sin[0])
        for j in range(1, h):
            _add_angles((cos[j - 1], sin[j - 1]), (cos[0], sin[0]), out=(cos[j], sin[j]))
        if self.knots.centres > 1:
            self._angle.mul_(self.knots.pitch)
            torch.cos(self._angle, out=centre[2])
            torch.sin(self._angle, out=centre[3])
        for a in range(4, len(centre), 2):
            _add_angles(centre[a - 2 : a], centre[2:4], out=centre[a : a + 2])

    def sums(self) -> torch.Tensor:
        """Sums over samples of cos and sin at all knots, (C, centres * 2 p)."""
        products = torch.bmm(self.at_centres.transpose(0, 1), self.at_offsets.permute(1, 2, 0))
        of_centre = products.view(-1, 2 * self.knots.pitch)  # (C centres, 2 p)
        return (of_centre @ self.knots.recombine).view(len(products), -1)

    def gradient(self, distance: torch.Tensor, out: torch.Tensor) -> None:
        """d EP / d samples from phi_N - phi, (C, centres * 2 p), into out (C, N).

        d EP / dx = sum_k 2 w_k t_k (Im_k cos(t_k x) - (Re_k - phi_k) sin(t_k x)): the N of EP and the 1/N of
        the mean cancel.
        """
        knots = self.knots
        of_products = (distance * knots.slope).view(-1, 2 * knots.pitch) @ knots.derive
        of_products = of_products.view(len(distance), 2 * knots.centres, knots.pitch)
        torch.bmm(of_products, self.at_offsets.transpose(0, 1), out=self.partial)  # (C, 2 centres, N)
        out.copy_(self._partial_rows[0])  # the waves of centre 0 are 1 and 0
        for wave, partial in zip(self._centre_rows[2:], self._partial_rows[2:]):
            out.addcmul_(wave, partial)


def _add_angles(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor], *, out: Sequence[torch.Tensor]) -> None:
    """(cos, sin) of the sum of two angles, from theirs."""
    torch.mul(a[0], b[0], out=out[0]).addcmul_(a[1], b[1], value=-1)
    torch.mul(a[1], b[0], out=out[1]).addcmul_(a[0], b[1])


class _EppsPulley(torch.autograd.Function):
    """Value and gradient together: the waves are made once, and what is kept for backward is one tensor."""

    @staticmethod
    def forward(
        ctx: Any,
        samples: torch.Tensor,
        count: int,
        t_max: float,
        group: ProcessGroup | None,
        wanted: bool,
    ) -> torch.Tensor:
        columns = samples.mT.flatten(0, -2)  # no copy where samples of a column are adjacent
        knots = _knots(count, t_max, samples.dtype, samples.device)
        with torch.autocast(samples.device.type, enabled=False), _full_precision():
            value, gradient = _value_and_gradient(columns, knots, group, wanted)
        shape = samples.mT.shape
        if gradient is not None:
            ctx.save_for_backward(gradient.view(shape).mT)
        return value.view(shape[:-1])

    @staticmethod
    def backward(ctx: Any, outer: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
        if torch.is_grad_enabled():  # only with create_graph=True
            raise RuntimeError("the Epps-Pulley statistic (SIGReg) can be differentiated only once")
        (gradient,) = ctx.saved_tensors
        return gradient * outer.unsqueeze(-2), None, None, None, None


def _value_and_gradient(
    columns: torch.Tensor, knots: _Knots, group: ProcessGroup | None, wanted: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """EP (C,) of columns (C, N) and, if wanted, its gradient (C, N)."""
    count = columns.shape[1]
    gradient = torch.empty_like(columns) if wanted else None
    distance = columns.new_empty(len(columns), knots.target.numel())  # phi_N - phi
    for block, waves in _blocks(columns, knots):
        sums = waves.sums()
        if group is not None:
            distance[block] = sums
            continue
        distance[block] = torch.add(sums.div_(count), knots.target, alpha=-1)
        if gradient is not None:
            waves.gradient(distance[block], out=gradient[block])
    if group is None:
        return count * (distance.square() @ knots.weight), gradient
    everywhere = torch.cat([distance.flatten(), distance.new_full((1,), count)])
    distributed.all_reduce(everywhere, group=group)
    total = everywhere[-1]
    distance = everywhere[:-1].view_as(distance) / total - knots.target
    if gradient is not None:
        for block, waves in _blocks(columns, knots):
            waves.gradient(distance[block], out=gradient[block])
        gradient *= distributed.get_world_size(group)  # see `epps_pulley`
    return total * (distance.square() @ knots.weight), gradient


def _blocks(columns: torch.Tensor, knots: _Knots) -> Iterator[tuple[slice, _Waves]]:
    """Blocks of columns (C, N), each with its waves, which the next block overwrites."""
    total, samples = columns.shape
    if not total:
        return
    numbers = max(1, samples) * knots.rows  # that a column needs
    held = BLOCK_NUMBERS if columns.device.type == "cpu" else BLOCK_NUMBERS_GPU
    count = -(-total // max(1, held // numbers))
    size = -(-total // count)
    waves = _Waves(knots, size, samples, like=columns)
    for start in range(0, total, size):
        start = min(start, total - size)  # the last block repeats a few columns rather than be shorter
        block = slice(start, start + size)
        waves.fill(columns[block])
        yield block, waves


@contextmanager
def _full_precision() -> Iterator[None]:
    """Float32 matrix products in float32, whatever the process allows: TF32 or bfloat16 would cost 1e-3."""
    backends = [b.matmul for b in (torch.backends.cuda, torch.backends.mkldnn) if hasattr(b, "matmul")]
    if all(hasattr(matmul, "fp32_precision") for matmul in backends):
        before = [matmul.fp32_precision for matmul in backends]
        try:
            for matmul in backends:
                matmul.fp32_precision = "ieee"
            yield
        finally:
            for matmul, precision in zip(backends, before):
                matmul.fp32_precision = precision
    else:  # before torch 2.9
        allowed = torch.get_float32_matmul_precision()
        try:
            torch.set_float32_matmul_precision("highest")
            yield
        finally:
            torch.set_float32_matmul_precision(allowed)
