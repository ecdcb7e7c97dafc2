"""Names of the numbers that a run may have, so that a misspelt one is an error and not an empty column."""

from __future__ import annotations

from typing import Literal

Kind = Literal["worlds", "reacher"]

LOSSES = ("loss_last", "loss_tail")

_BETWEEN = ("r2_hz", "r2_zh", "r2_xz")
_REACHER = ("r2_hz", "r2_hz_uniform", "r2_hz_0", "r2_hz_1", "r2_zh", "r2_hz_sincos")

NUMBERS: dict[Kind, tuple[str, ...]] = {
    "worlds": (
        *(f"{name}{where}" for name in _BETWEEN for where in ("_in", "", "_uniform")),
        *("r2_hz_grid", "r2_hz_support", "support"),
        *("orthogonality_error", "orthogonality_error_grid", "scale", "shape_error", "variance", "alignment"),
        *("eps", "eps_floor", "delta", "delta_published", "d", "bound", "bound_published", "recovery"),
        *LOSSES,
    ),
    "reacher": (
        *(f"{name}{where}" for name in _REACHER for where in ("", "_own")),
        *("procrustes", "orthogonality_error", "variance"),
        *LOSSES,
    ),
}
"""By the kind of an experiment; what each is stands in `probe.experiments.training` and `.reacher`."""


def reads_latents(name: str) -> bool:
    """Whether a number is an R2 between latents and encodings; that of x says how hard a mixing is."""
    return name.startswith(("r2_hz", "r2_zh"))
