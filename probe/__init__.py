"""probe: the room that puts everything together, and the command line.

The ridge probe and its statistics are pure functions of arrays. A study's life from freeze to verification
is in `probe.run`: `freeze_study`, `probe_study`, `report_study`, `verify_study_folder`. Each verb of
`jointprobe` is one function that a notebook can call as well.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probe.bootstrap import Bootstrap, Estimate, difference
    from probe.clusters import EpisodeClusters
    from probe.permutation import PermutationNull, permutation_null
    from probe.ridge import RidgeFit, fit_ridge
    from probe.statistics import JointScores, ResidualSums, score_joints

_HOMES = {
    "Bootstrap": "bootstrap",
    "EpisodeClusters": "clusters",
    "Estimate": "bootstrap",
    "JointScores": "statistics",
    "PermutationNull": "permutation",
    "ResidualSums": "statistics",
    "RidgeFit": "ridge",
    "difference": "bootstrap",
    "fit_ridge": "ridge",
    "permutation_null": "permutation",
    "score_joints": "statistics",
}

__all__ = [
    "Bootstrap",
    "EpisodeClusters",
    "Estimate",
    "JointScores",
    "PermutationNull",
    "ResidualSums",
    "RidgeFit",
    "difference",
    "fit_ridge",
    "permutation_null",
    "score_joints",
]


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used: the recorder's command line needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module 'probe' has no attribute {name!r}")
    return getattr(importlib.import_module(f"probe.{_HOMES[name]}"), name)
