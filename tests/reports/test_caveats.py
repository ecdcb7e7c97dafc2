"""What stands under a verdict: said where a control is not beaten, and only there, in every rendering."""

from __future__ import annotations

import pytest
from report_studies import Made, small

from reports import render_html, render_markdown
from reports.standing import standing, tone_of


def near_useless() -> Made:
    """W1 is partial and uneven, as its bars ask, and no better than the network it started from."""
    made = small()
    made.r2["W1", "demos"] = (0.5, 0.74, 0.08)
    return made


def test_a_met_bar_does_not_hide_that_training_added_nothing(card_of):
    card = card_of(near_useless())
    assert (card.verdict, card.firm) == ("reproduces", "firm")  # the pre-registered rule stands
    said = "W1 is not shown to carry more about the joints than pixels or than its untrained twin"
    assert card.caveats == (f"{said} (mean R2 0.440 against 0.517 and 0.437).",)
    lines = render_markdown(card).splitlines()
    assert lines[2].startswith("**Verdict: ✓ reproduces**") and lines[3].startswith(f"**{said}")
    html = render_html(card)
    banner = html[html.index('<div class="verdict') : html.index("</header>")]
    assert banner.index("✓ reproduces") < banner.index(said) < banner.index(card.claim_tested)


def test_nothing_is_said_of_a_model_that_beats_its_controls(card_of, full):
    assert card_of(small()).caveats == ()
    assert full.caveats == ()  # W1walk is not what the primary claim speaks of, and W1 is above both


def test_only_the_primary_claim_is_looked_at(card_of):
    made = Made()
    made.r2["W1", "demos"] = made.r2["untrained", "demos"]
    assert any("on demos" in line for line in card_of(made).caveats)
    made.study["claims"][0].pop("primary")
    made.study["claims"][1]["primary"] = True  # its bars name the walk alone
    assert not any("on demos" in line for line in card_of(made).caveats)


def test_the_data_entry_of_the_bar_is_the_one_that_counts(card_of):
    made = Made()
    made.r2["W1walk", "walk"] = made.r2["untrained", "walk"]
    made.study["claims"][0].pop("primary")
    made.study["claims"][1]["primary"] = True  # its bars name W1walk and W1 on walk
    first, *_ = card_of(made).caveats
    assert first.startswith("W1 is not shown to carry more about the joints than pixels on walk")
    assert any(
        "W1walk is not shown" in line and "its untrained twin" in line for line in card_of(made).caveats
    )


def test_a_missing_twin_is_said(card_of):
    made = small()
    made.study["encoders"].pop("untrained")
    made.r2.pop(("untrained", "demos"))
    assert card_of(made).caveats == (
        "No untrained twin of W1 was measured: nothing here shows what its training added.",
    )


@pytest.mark.parametrize(
    ("state", "firm", "said", "tone"),
    [
        ("reproduces", "firm", "reproduces", "good"),
        ("reproduces", "undecided", "undecided (would reproduce)", "open"),
        ("does not reproduce", "undecided", "undecided (would not reproduce)", "open"),
        ("not met", "firm", "not met", "bad"),
        ("not met", "undecided", "undecided (would not be met)", "open"),
        ("not tested here", "", "not tested here", "open"),
    ],
)
def test_one_wording_and_one_tone(state, firm, said, tone):
    assert standing(state, firm) == said and tone_of(state, firm) == tone
