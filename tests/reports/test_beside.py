"""What stands beside the read-out on a card: ranking and geometry by encoder, curves, similarity, checks."""

from __future__ import annotations

import dataclasses

from report_studies import small, with_measurements

from bars import Measurement
from reports import render_html
from reports.beside import plain_tables
from reports.lines import _passed, _unpassed
from reports.markdown import render_markdown
from reports.model import CheckLine


def test_rows_are_there_for_what_was_measured_and_only_for_that(full) -> None:
    (table,) = full.beside_tables
    assert table.columns == ("W1", "dinov2") and table.models == ("W1", "dinov2")
    assert [row.label for row in table.rows] == ["G1b top-1", "G1b mrr"]
    markdown = render_markdown(full)
    assert "### Beside the read-out, on demos" in markdown
    assert "| G1b top-1 | 0.605 [0.575, 0.635] | 0.646 [0.616, 0.676] |" in markdown


def test_tables_of_the_results_become_tables_of_the_card() -> None:
    curves, similarity, width = plain_tables(
        {
            "learning_curves": {
                "W1": [{"episodes": 2, "r2_mean": 0.2}, {"episodes": 8, "r2_mean": 0.55}],
                "W2": [{"episodes": 8, "r2_mean": None}],
            },
            "similarity": [
                {"pair": ["W1", "W2"], "cka_by_episode": 0.31, "low": 0.2, "high": 0.4, "cka_by_row": 0.5}
            ],
            "equal_width": [
                {
                    "encoder": "W2",
                    "at_the_width_of": "W1",
                    "width": 32,
                    "r2_mean": 0.4,
                    "low": None,
                    "high": None,
                    "variance_kept": 0.91,
                }
            ],
        }
    )
    assert curves.head == ("encoder", "2 episodes", "8 episodes")
    assert curves.rows == (("W1", "0.200", "0.550"), ("W2", "", "not measured"))
    assert similarity.rows == (("W1 and W2", "0.310 [0.200, 0.400]", "0.500"),)
    assert width.rows == (("W2", "W1", "32", "0.400", "0.910"),)
    assert plain_tables({}) == ()


def test_checks_that_passed_are_one_line_and_those_without_an_answer_are_told_with_their_reason() -> None:
    lines = [
        CheckLine("demos: hashes", "pass", "6 files"),
        CheckLine("demos: lag_front", "not testable", "fewer than 2 episodes"),
        CheckLine("demos: clock_rate", "warn", "9 Hz"),
        CheckLine("demos: black_frames", "fail", "black"),
        CheckLine("demos: counts", "pass", "as the manifest says"),
    ]
    assert _passed(lines) == [CheckLine("demos", "pass", "2 checks passed: hashes, counts")]
    assert _unpassed(lines) == [
        CheckLine("demos: black_frames", "fail", "black"),
        CheckLine("demos: clock_rate", "warn", "9 Hz"),
        CheckLine("demos: lag_front", "not testable", "fewer than 2 episodes"),
    ]
    assert _unpassed(lines)[-1].tone == "open"  # neither good nor an alarm


def test_rankings_that_were_not_done_are_told_once(card_of) -> None:
    made = with_measurements(small(), {f"{name}.g1b.h1.top1": 0.2 for name in ("W1", "untrained", "pixels")})
    note = "16 candidates; 155 anchors dropped: their episodes have fewer than 16 x 8 windows; no anchor"
    made.extra += [
        Measurement(f"{name}.g1b.{part}", None, testable=False, note=note)
        for name in ("W1", "untrained", "pixels")
        for part in ("top1", "mrr", "h4.top1", "own.mrr")
    ]
    card = card_of(made)
    (table,) = card.beside_tables
    assert [row.label for row in table.rows] == ["top-1, 1 ahead"]
    assert table.notes == (
        "Not measured: G1b top-1; G1b mrr; top-1, 4 ahead. "
        "Because: 155 anchors dropped: their episodes have fewer than 16 x 8 windows.",
    )
    for text in (render_markdown(card), render_html(card)):
        assert text.count("anchors dropped") == 1


def test_an_encoders_own_predictor_has_its_rows_and_its_reason(card_of) -> None:
    own = {"W1.g1b.own.top1": 0.5, "W1.g1b.own_anchor.top1": 0.4, "W1.g1b.own_ridge.top1": 0.3}
    made = with_measurements(small(), own)
    why = "its action step is 0.2 s, and rows are 0.1 s apart"
    made.extra.append(Measurement("pixels.g1b.own.top1", None, testable=False, note=why))
    (table,) = card_of(made).beside_tables
    assert {row.label: row.cells["W1"].text for row in table.rows} == {
        "top-1, own predictor": "0.500",
        "the same, from one latent": "0.400",
        "ridge on the same anchors": "0.300",
    }
    assert table.notes == (f"Not measured of pixels: top-1, own predictor. Because: {why}.",)


def test_a_number_over_orders_of_magnitude_is_written_as_one(card_of) -> None:
    made = with_measurements(small(), {"W1.map.rcond": 2.34e-5, "pixels.map.rcond": 0.0}, half=0.0)
    (table,) = card_of(made).beside_tables
    assert [table.rows[0].cells[name].text for name in ("W1", "pixels")] == ["2.3e-05", "0"]


def test_every_other_number_is_folded_and_last(card_of) -> None:
    made = with_measurements(small(), {"W1.shift_null.pan": -0.1})
    made.extra[-1] = dataclasses.replace(made.extra[-1], note="95th percentile 0.2")
    card = card_of(made)
    html, markdown = render_html(card), render_markdown(card)
    assert html.index("<h2>Ledger</h2>") < html.rindex("<details><summary>") < html.index("W1.shift_null.pan")
    assert '<td class="number muted">4,080 rows of 12 episodes</td>' in html  # on one line
    assert markdown.index("## Ledger") < markdown.index("## Every other measurement")
