"""The card in a terminal: it fits, it says what matters, and it drops no number."""

from __future__ import annotations

import io

import pytest
from report_studies import Made, small, with_measurements
from rich.console import Console

from reports import print_card


def shown(card, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), record=True, highlight=False)
    print_card(card, console, "my studies/lejepa")
    return console.export_text()


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_fits_and_drops_no_number(full, width):
    text = shown(full, width)
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    for table in full.joint_tables:
        for row in table.rows:
            for cell in row.cells.values():
                assert cell.text in text and cell.interval in text
    for line in full.transfer.differences:
        assert all(cell.difference_text in text for cell in line.cells.values())


def test_what_stands_where(full):
    text = shown(full, 100)
    order = [
        "✓ reproduces  firm",
        "When Does LeJEPA",
        "Bars",
        "W1.r2.mean < 0.80",
        "ours 0.565 [0.525, 0.597]   theirs 0.565",
        "R2 per joint on demos",
        "Trained on x evaluated on",
        "Findings",
        "What the gap means",
        "card    jp-",
        full.ledger_head,
        "check it with: jointprobe verify 'my studies/lejepa'",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_banner_of_an_exploratory_card_with_too_few_episodes(card_of):
    made = small()
    made.exploratory = True
    made.provenance["mismatches"] = ["encoder W1: frozen as 1, now 2"]
    made.study["data"]["demos"]["evaluate"] = "24-25"
    lines = shown(card_of(made), 80).splitlines()
    assert "exploratory: bars were not frozen" in lines[1]
    assert "encoder W1: frozen as 1, now 2" in lines[2]
    assert "○ undecided (would reproduce)  too few episodes: 2, and 10 are needed" in lines[3]


def test_the_second_line_says_that_a_control_is_not_beaten(card_of):
    made = small()
    made.r2["W1", "demos"] = (0.5, 0.74, 0.08)
    lines = shown(card_of(made), 120).splitlines()
    assert "✓ reproduces  firm" in lines[1]
    assert "W1 is not shown to carry more about the joints than pixels or than its untrained twin" in lines[2]


def test_rows_and_columns_of_dashes_are_left_out(card_of):
    made = with_measurements(small(), {"W1.null.pan": 0.1, "W1.null.lift": 0.2, "W1.null.wrist_roll": 0.1})
    text = shown(card_of(made), 60)  # so narrow that the null has a table of its own
    table = text[text.index("null of W1") :].split("\n\n")[0]
    assert "wrist_roll" in table and "anisotropy" not in table
    assert not any(set(line.split()[1:]) == {"-"} for line in text.splitlines())


def test_not_testable_and_not_measured(card_of):
    made = Made(untestable={"demos": ("gripper",)}, drop=("dinov2", "pixels.r2.elbow_flex"))
    text = shown(card_of(made), 100)
    assert "not testable" in text and "not measured" in text
    assert "dinov2.r2.mean was not measured" in text


def test_checks_are_shown_only_where_one_did_not_pass(card_of):
    made = small()
    assert "Integrity checks" in shown(card_of(made), 80)
    made.checks = made.checks[:1]
    assert "Integrity checks" not in shown(card_of(made), 80)
