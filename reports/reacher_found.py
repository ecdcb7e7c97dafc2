"""What is found of pair sets of the Reacher: the numbers that their tables and figures show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

JOINTS = ("shoulder", "wrist")
BOTH, WHITENED = "both", "both, whitened"
WHATS = (*JOINTS, BOTH, WHITENED)
"""What is tested: a joint, both as a plane with each joint z-scored (the paper's), both without their
correlation."""


@dataclass(frozen=True, eq=False)
class Shape:
    """One variable beside N(0, 1).

    Attributes
    ----------
    samples : (n,), as measured.
    mean, sd : of them.
    skewness, excess_kurtosis : 0 and 0 for a Gaussian.
    ks : largest distance of their distribution function from that of N(0, 1) (Kolmogorov and Smirnov).
    ks_standardised : the same once mean and sd are taken out: of the shape alone.
    beyond_pi : share of them beyond half a turn either way.
    """

    samples: np.ndarray
    mean: float
    sd: float
    skewness: float
    excess_kurtosis: float
    ks: float
    ks_standardised: float
    beyond_pi: float

    @property
    def standardised(self) -> np.ndarray:
        """The samples, mean 0 and sd 1."""
        return (self.samples - self.mean) / self.sd


@dataclass(frozen=True)
class Floor:
    """SIGReg of `repeats` truly Gaussian samples of the same number n, treated alike: mean and 95 % range."""

    n: int
    repeats: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Outcome:
    """SIGReg of one sample beside its floor.

    Attributes
    ----------
    n : how many.
    sigreg : of them.
    floor : of as many independent Gaussian ones.
    share : of Gaussian samples, and this one, whose SIGReg is at least as large.
    interval : at 95 %, by resampling episodes; None where pairs are independent, or one episode is all.
    """

    n: int
    sigreg: float
    floor: Floor
    share: float
    interval: tuple[float, float] | None = None

    @property
    def above(self) -> bool:
        """Whether it lies above the range of Gaussian samples."""
        return self.sigreg > self.floor.high

    @property
    def excess(self) -> float:
        """(SIGReg - mean of the floor) / n: SIGReg of a sample that is not Gaussian grows with n, this does
        not.
        """
        return (self.sigreg - self.floor.mean) / self.n


@dataclass(frozen=True)
class Correlation:
    """Of both members of pairs: measured, its interval at 95 %, and what is expected (rho) or published."""

    value: float
    low: float | None
    high: float | None
    theirs: float | None


@dataclass(frozen=True)
class ValueFound:
    """Pairs of one rho or delta.

    Attributes
    ----------
    value : rho or delta.
    correlations : of the shoulder and the wrist.
    differences : of each joint, z' - rho z or z' - z.
    joint_correlation : of both joints' differences with each other.
    sd_expected : of the differences; None but for `ou`.
    of_differences, of_marginals : by what is tested, see `WHATS`.
    once_differences, once_marginals : the same of one pair an episode, which are independent; else empty.
    """

    value: float
    correlations: tuple[Correlation, Correlation]
    differences: tuple[Shape, Shape]
    joint_correlation: float
    sd_expected: float | None
    of_differences: dict[str, Outcome]
    of_marginals: dict[str, Outcome]
    once_differences: dict[str, Outcome]
    once_marginals: dict[str, Outcome]


@dataclass(frozen=True)
class SetFound:
    """A pair set.

    Attributes
    ----------
    name : what it is called in figures and tables.
    condition : `ou` or `traj`.
    source : where its episodes come from; None for `ou`.
    seed : it was drawn with.
    count : pairs a value.
    states : different ones.
    episodes : that its pairs come from; None for `ou`.
    marginals : of all states, shoulder and wrist.
    beyond_theirs : the published share of the shoulder beyond half a turn, and how it is written.
    values : by rho or delta.
    """

    name: str
    condition: str
    source: str | None
    seed: int
    count: int
    states: int
    episodes: int | None
    marginals: tuple[Shape, Shape]
    beyond_theirs: tuple[float, str]
    values: tuple[ValueFound, ...]

    @property
    def letter(self) -> str:
        """What its values are."""
        return "rho" if self.condition == "ou" else "delta"

    @property
    def dependent(self) -> bool:
        """Whether several of its pairs share an episode, or may."""
        return self.condition == "traj" and (self.episodes is None or self.episodes < self.count)
