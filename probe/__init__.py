"""probe: the room that puts everything together, and the command line.

The ridge probe and its statistics are pure functions of arrays. A study's life from freeze to verification
is in `probe.run`: `freeze_study`, `probe_study`, `report_study`, `verify_study_folder`. Each verb of
`jointprobe` is one function that a notebook can call as well.
"""

from probe.bootstrap import Bootstrap, Estimate, difference
from probe.clusters import EpisodeClusters
from probe.permutation import PermutationNull, permutation_null
from probe.ridge import RidgeFit, fit_ridge
from probe.statistics import JointScores, ResidualSums, score_joints

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
