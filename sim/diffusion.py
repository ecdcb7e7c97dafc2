"""The stationary diffusion of a source, gone through in one draw however long it takes.

    dz = -U'(z) dt + sqrt(2) dW,    U = |z / s|^alpha,    alpha >= 1

One coordinate's line is cut into cells. Between neighbouring cells i, i + 1 of masses m the diffusion flows
at the rate p(edge) / (width m_i), which is symmetric when weighted by m: a reversible chain whose stationary
distribution is the source's own, cell by cell. Its transition after time t is an exponential of a symmetric
tridiagonal matrix, known to rounding. A partner of z is drawn by its cell's row, and within the cell that it
comes to from the source itself; so partners have the source's distribution whatever the cells' width, and
only how they depend on z is as coarse as a cell (0.004 to 0.022 standard deviations).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from scipy.optimize import brentq
from scipy.special import gammaincc, gammainccinv

if TYPE_CHECKING:
    from sim.sources import Source

CELLS = 1024
"""Even, so that 0, where the Laplace density has its kink, is an edge."""
OUTSIDE = 1e-7
"""Mass beyond the outermost edges, in the outermost cells."""
PARTS = 8
"""Of equal mass in a cell, within which the density is taken for even."""
MOST_RHO = 0.999
"""Beyond it a step is no longer than a few cells."""


@dataclass(frozen=True, eq=False)
class Transition:
    """z to z' of one source and correlation.

    Attributes
    ----------
    gap, time : the diffusion's spectral gap, and after which time the correlation is rho.
    first, width : the lowest edge, and what a cell measures.
    rows : float64 (CELLS^2,), ascending: i + P(z' in a cell <= j | z in cell i) at i CELLS + j.
    inside : float64 (CELLS, PARTS + 1), quantiles of the source within each cell.
    """

    gap: float
    time: float
    first: float
    width: float
    rows: torch.Tensor
    inside: torch.Tensor

    def __call__(self, z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Partners of z, any shape."""
        jump, place = torch.rand(2, *z.shape, generator=generator, dtype=torch.float64)
        cell = ((z.double() - self.first) / self.width).floor().clamp(0, CELLS - 1)
        found = torch.searchsorted(self.rows, cell + jump, right=True) - cell.long() * CELLS
        place = place * PARTS
        part = place.long()
        at = found.clamp(0, CELLS - 1) * (PARTS + 1) + part
        low, high = self.inside.take(at), self.inside.take(at + 1)
        return (low + (place - part) * (high - low)).to(z.dtype)


def transition(source: Source, rho: float) -> Transition:
    """The diffusion of a source with alpha >= 1, as far as correlation rho.

    The correlation is that of the drawn pairs: sum_ij m_i P_ij c_i c_j with the cells' means c. It must be
    at most MOST_RHO.
    """
    power, scale = source.power, source.scale
    shape = 1 / power
    reach = scale * float(gammainccinv(shape, OUTSIDE)) ** shape
    edges = np.linspace(0, reach, CELLS // 2 + 1)  # of the upper half; the lower one mirrors it
    beyond = gammaincc(shape, (edges / scale) ** power) / 2
    beyond[-1] = 0.0
    mass = beyond[:-1] - beyond[1:]
    share = np.tile(np.arange(PARTS + 1) / PARTS, (CELLS // 2, 1))
    share[-1, -1] -= 0.5 / PARTS  # the outermost cell has no end
    tail = beyond[:-1, None] - mass[:, None] * share
    inside = scale * gammainccinv(shape, np.clip(2 * tail, 0, 1)) ** shape  # ascending within a cell
    inside = np.concatenate([-inside[::-1, ::-1], inside])
    mean = (inside[:, 1:] + inside[:, :-1]).mean(axis=1) / 2  # of what is drawn
    mass = np.concatenate([mass[::-1], mass])
    mass /= mass.sum()

    width = edges[1]
    flow = source.density(np.linspace(-reach, reach, CELLS + 1)[1:-1]) / width
    out = np.zeros(CELLS)
    out[:-1] += flow
    out[1:] += flow
    root = np.sqrt(mass)
    values, modes = eigh_tridiagonal(out / mass, -flow / (root[1:] * root[:-1]))
    values = np.clip(values, 0, None)
    weight = np.square(modes.T @ (mean * root))
    weight[0] = 0.0  # the constant mode, of which z has nothing but rounding

    time = float(brentq(lambda t: weight @ np.exp(-values * t) - rho, 0.0, 1e3, xtol=1e-12))
    rows = (modes * np.exp(-values * time)) @ modes.T * root / root[:, None]
    rows = np.cumsum(np.clip(rows, 0, None), axis=1)
    rows = rows / rows[:, -1:] + np.arange(CELLS)[:, None]
    return Transition(
        float(values[1]), time, -reach, float(width), torch.from_numpy(rows.ravel()), torch.from_numpy(inside)
    )
