"""What stands beside the read-out on a card: ranking and geometry by encoder, curves, similarity, checks."""

from __future__ import annotations

from reports.beside import plain_tables
from reports.lines import _passed
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


def test_checks_that_passed_are_one_line_and_those_without_an_answer_another() -> None:
    lines = [
        CheckLine("demos: hashes", "pass", "6 files"),
        CheckLine("demos: lag_front", "pass", "not testable: fewer than 2 episodes"),
        CheckLine("demos: black_frames", "fail", "black"),
        CheckLine("demos: counts", "pass", "as the manifest says"),
    ]
    assert _passed(lines) == [
        CheckLine("demos", "pass", "2 checks passed: hashes, counts"),
        CheckLine("demos", "not testable", "could not be tested here: lag_front"),
    ]
