"""probe: the room that puts everything together, and the command line.

The ridge probe, its statistics, ranking and geometry are pure functions of arrays; `ridge_probe`,
`g1b_probe` and `check_recording` do in a notebook what the command does. A study's life from freeze to
verification is in `probe.run`: `freeze_study`, `probe_study`, `report_study`, `verify_study_folder`. Each
verb of `jointprobe` is one function that a notebook can call as well.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probe.angles import find_wraps, probe_angles
    from probe.anisotropy import anisotropy_null, crossfit_contrast
    from probe.bootstrap import Bootstrap, Estimate, difference
    from probe.checks import check_extraction, check_recording
    from probe.chunks import TimedRows, timed_rows
    from probe.clusters import EpisodeClusters
    from probe.geometry import measure_geometry
    from probe.learning import learning_curve
    from probe.mlp import fit_mlp
    from probe.notebook import RidgeProbe, g1b_probe, ridge_probe
    from probe.permutation import PermutationNull, permutation_null, selectivity
    from probe.planning import straight_line_plans
    from probe.power import smallest_effects
    from probe.ranking import Rankings, rank_chunks
    from probe.refit import refit_scores
    from probe.ridge import RidgeFit, fit_ridge
    from probe.similarity import effective_width, linear_cka
    from probe.statistics import JointScores, ResidualSums, score_joints
    from probe.widths import probe_at_width

_ROOMS = {
    "angles": ("find_wraps", "probe_angles"),
    "anisotropy": ("anisotropy_null", "crossfit_contrast"),
    "bootstrap": ("Bootstrap", "Estimate", "difference"),
    "checks": ("check_extraction", "check_recording"),
    "chunks": ("TimedRows", "timed_rows"),
    "clusters": ("EpisodeClusters",),
    "geometry": ("measure_geometry",),
    "learning": ("learning_curve",),
    "mlp": ("fit_mlp",),
    "notebook": ("RidgeProbe", "g1b_probe", "ridge_probe"),
    "permutation": ("PermutationNull", "permutation_null", "selectivity"),
    "planning": ("straight_line_plans",),
    "power": ("smallest_effects",),
    "ranking": ("Rankings", "rank_chunks"),
    "refit": ("refit_scores",),
    "ridge": ("RidgeFit", "fit_ridge"),
    "similarity": ("effective_width", "linear_cka"),
    "statistics": ("JointScores", "ResidualSums", "score_joints"),
    "widths": ("probe_at_width",),
}
_HOMES = {name: home for home, names in _ROOMS.items() for name in names}

__all__ = [
    "Bootstrap",
    "EpisodeClusters",
    "Estimate",
    "JointScores",
    "PermutationNull",
    "Rankings",
    "ResidualSums",
    "RidgeFit",
    "RidgeProbe",
    "TimedRows",
    "anisotropy_null",
    "check_extraction",
    "check_recording",
    "crossfit_contrast",
    "difference",
    "effective_width",
    "find_wraps",
    "fit_mlp",
    "fit_ridge",
    "g1b_probe",
    "learning_curve",
    "linear_cka",
    "measure_geometry",
    "permutation_null",
    "probe_angles",
    "probe_at_width",
    "rank_chunks",
    "refit_scores",
    "ridge_probe",
    "score_joints",
    "selectivity",
    "smallest_effects",
    "straight_line_plans",
    "timed_rows",
]


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used: the recorder's command line needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module 'probe' has no attribute {name!r}")
    return getattr(importlib.import_module(f"probe.{_HOMES[name]}"), name)
