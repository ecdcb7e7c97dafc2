"""What an experiment's training pairs really are: their correlation, and whether they keep their marginal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from probe.experiments.plan import Planned
from sim.sources import MarginalError, Pairing, Source, marginal_error

DRAWS = 200_000
"""Of one coordinate: a correlation is known to 0.001, a distribution function to 0.003."""


@dataclass(frozen=True)
class PairCheck:
    """Pairs of one kind, measured on `DRAWS` of them."""

    source: Source
    rho: float
    pairs: Pairing
    found: MarginalError

    @property
    def name(self) -> str:
        """`gaussian`, or `gennorm 0.5`."""
        alpha = "" if self.source.alpha is None else f" {self.source.alpha:g}"
        return f"{self.source.name}{alpha}"

    def to_json(self) -> dict[str, Any]:
        """All of it, flat."""
        return {
            "source": self.name,
            "rho": self.rho,
            "pairs": self.pairs,
            "draws": DRAWS,
            **asdict(self.found),
        }


def pair_checks(planned: Sequence[Planned]) -> list[PairCheck]:
    """Each kind of pairs that some runs of worlds are trained on, in the order in which they come."""
    kinds = {(one.job.world.source, one.job.world.rho, one.job.world.pairs): None for one in planned}
    return [
        PairCheck(
            source, rho, pairs, marginal_error(source, rho, pairs, DRAWS, torch.Generator().manual_seed(0))
        )
        for source, rho, pairs in kinds
    ]


def pairs_table(checks: Sequence[PairCheck]) -> list[str]:
    """The lines of a Markdown table; nothing of no pairs."""
    if not checks:
        return []
    lines = [
        "",
        "## Training pairs",
        "",
        f"Of one coordinate, {DRAWS:,} pairs. Distance: the largest between the distribution functions of a "
        "second member and of the latents; beyond what chance gives (95 %) they are not the same.",
        "",
        "| latents | rho | pairs | correlation | distance | by chance | variance |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in checks:
        found = one.found
        lines.append(
            f"| {one.name} | {one.rho:g} | {one.pairs} | {found.correlation:.4f} | {found.kolmogorov:.4f} "
            f"| {found.by_chance:.4f} | {found.variance:.4f} |"
        )
    return lines
