"""The verdict of a study: bars decide claims, and the primary claim decides the study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bars.events import Verdict
from bars.judging import BarResult, Firmness, judge
from bars.measurement import Measurement, MeasurementPath
from bars.study import Study


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim's state, how firm it is, the ids of its bars, and why where it was not tested."""

    state: Verdict
    firm: Firmness
    bars: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True)
class StudyVerdict:
    """A study's verdict, which is that of its primary claim, with every claim and bar beside it."""

    verdict: Verdict
    firm: Firmness
    primary: str
    claims: Mapping[str, ClaimVerdict]
    bars: Mapping[str, BarResult]

    def to_json(self) -> dict[str, Any]:
        """The body of the ledger's `judged` event."""
        return {
            "verdict": self.verdict,
            "claims": {
                name: {"state": claim.state, "firm": claim.firm} for name, claim in self.claims.items()
            },
            "bars": {name: bar.to_json() for name, bar in self.bars.items()},
        }


def judge_study(
    study: Study,
    measurements: Mapping[str, Measurement] | Sequence[Measurement],
    unavailable: Mapping[str, str] | None = None,
) -> StudyVerdict:
    """Judge every bar and claim of a study.

    Parameters
    ----------
    measurements : by path, or as a list.
    unavailable : encoder -> why it could not be run here, told by the bars that needed it.
    """
    if not isinstance(measurements, Mapping):
        measurements = {measurement.path: measurement for measurement in measurements}
    bars = {}
    for entry in study.bars:
        bar = entry.parsed
        missing = _unavailable(bar.paths(), measurements, unavailable or {})
        bars[entry.id] = BarResult("not tested", "", reason=missing) if missing else judge(bar, measurements)
    claims = {
        claim.id: judge_claim({entry.id: bars[entry.id] for entry in study.bars_of(claim.id)})
        for claim in study.claims
    }
    primary = study.primary_claim.id
    return StudyVerdict(claims[primary].state, claims[primary].firm, primary, claims, bars)


def judge_claim(bars: Mapping[str, BarResult]) -> ClaimVerdict:
    """`reproduces` when all bars are met, `does not reproduce` when one is not, else `not tested here`.

    It is firm where the bars that decide it are: all of them for the first, one of those that are not met
    for the second.
    """
    ids = tuple(bars)
    failed = [bar for bar in bars.values() if bar.state == "not met"]
    untested = [name for name, bar in bars.items() if bar.state == "not tested"]
    if failed:
        return ClaimVerdict("does not reproduce", _firm(any(bar.firm == "firm" for bar in failed)), ids)
    if not bars:
        return ClaimVerdict("not tested here", "", ids, "it has no bar in this study")
    if untested:
        return ClaimVerdict("not tested here", "", ids, f"{untested[0]}: {bars[untested[0]].reason}")
    return ClaimVerdict("reproduces", _firm(all(bar.firm == "firm" for bar in bars.values())), ids)


def _firm(firm: bool) -> Firmness:
    return "firm" if firm else "undecided"


def _unavailable(paths: list[str], measurements: Mapping[str, object], unavailable: Mapping[str, str]) -> str:
    for path in paths:
        encoder = MeasurementPath.parse(path).encoder
        if path not in measurements and encoder in unavailable:
            return f"{encoder} is not available here: {unavailable[encoder]}"
    return ""
