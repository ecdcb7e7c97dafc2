from __future__ import annotations

import pytest
from study_folder import make_study

from bars import BarResult, Measurement, Study, judge_study
from bars.verdict import judge_claim

FIRM, SOFT = BarResult("met", "firm", 0.5), BarResult("met", "undecided", 0.5, reason="few")
FAILED, SOFTLY_FAILED = (
    BarResult("not met", "firm", 0.9),
    BarResult("not met", "undecided", 0.9, reason="few"),
)
UNTESTED = BarResult("not tested", "", reason="W2.r2.mean was not measured")


@pytest.mark.parametrize(
    ("bars", "state", "firm", "reason"),
    [
        ([FIRM, FIRM], "reproduces", "firm", ""),
        ([FIRM, SOFT], "reproduces", "undecided", ""),
        ([FIRM, FAILED], "does not reproduce", "firm", ""),
        ([SOFTLY_FAILED, FAILED], "does not reproduce", "firm", ""),
        ([FIRM, SOFTLY_FAILED], "does not reproduce", "undecided", ""),
        ([UNTESTED, FAILED], "does not reproduce", "firm", ""),
        ([FIRM, UNTESTED], "not tested here", "", "B1: W2.r2.mean was not measured"),
        ([], "not tested here", "", "it has no bar in this study"),
    ],
)
def test_bars_decide_a_claim(bars, state, firm, reason):
    verdict = judge_claim({f"B{index}": bar for index, bar in enumerate(bars)})
    assert (verdict.state, verdict.firm, verdict.reason) == (state, firm, reason)
    assert verdict.bars == tuple(f"B{index}" for index in range(len(bars)))


@pytest.fixture
def study(tmp_path):
    return Study.load(make_study(tmp_path).folder)


REFERENCE = [
    Measurement("W1.r2.mean", 0.565, n_rows=8447, n_episodes=25, low=0.52, high=0.61),
    Measurement("W1.anisotropy", 0.639, n_rows=8447, n_episodes=25, low=0.5, high=0.75),
]


def test_the_primary_claim_is_the_verdict(study):
    verdict = judge_study(study, REFERENCE)
    assert (verdict.verdict, verdict.firm, verdict.primary) == ("reproduces", "firm", "C1")
    assert {name: claim.state for name, claim in verdict.claims.items()} == {
        "C1": "reproduces",
        "C2": "not tested here",
        "C3": "not tested here",
    }
    assert verdict.to_json() == {
        "verdict": "reproduces",
        "claims": {
            "C1": {"state": "reproduces", "firm": "firm"},
            "C2": {"state": "not tested here", "firm": ""},
            "C3": {"state": "not tested here", "firm": ""},
        },
        "bars": {
            "B1": {"state": "met", "firm": "firm", "value": 0.565, "low": 0.52, "high": 0.61, "reason": ""},
            "B2": {"state": "met", "firm": "firm", "value": 0.639, "low": 0.5, "high": 0.75, "reason": ""},
            "B3": {
                "state": "not tested",
                "firm": "",
                "value": None,
                "low": None,
                "high": None,
                "reason": "W1walk/walk.r2.mean was not measured",
            },
        },
    }


def test_a_bar_that_fails_is_the_verdict(study):
    mapping = {
        m.path: m
        for m in [REFERENCE[0], Measurement("W1.anisotropy", 0.1, n_episodes=25, low=0.05, high=0.15)]
    }
    assert judge_study(study, mapping).verdict == "does not reproduce"


def test_why_an_encoder_could_not_be_run_is_told(study):
    verdict = judge_study(study, REFERENCE, {"W1walk": "its weights are not in the cache"})
    reason = "W1walk is not available here: its weights are not in the cache"
    assert verdict.bars["B3"].reason == reason
    assert verdict.claims["C2"].reason == f"B3: {reason}"
