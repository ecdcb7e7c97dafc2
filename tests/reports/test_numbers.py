"""How numbers are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.links import link
from reports.numbers import against, clipped, count, duration, flat, listed, plain, signed

FINITE = st.floats(-1e6, 1e6)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.565, "0.565"),
        (-24.04, "-24.0"),
        (1234.5, "1234"),
        (-0.0001, "0.000"),
        (9.9999, "10.000"),
        (0.0, "0.000"),
    ],
)
def test_plain(value, text):
    assert plain(value) == text


@given(FINITE)
def test_plain_reads_back_close(value):
    assert float(plain(value)) == pytest.approx(value, rel=0.01, abs=0.0006)


@given(FINITE)
def test_a_sign_is_there_exactly_where_the_number_is_not_zero(value):
    text = signed(value)
    assert text[0] in "+-" or float(text) == 0


@given(FINITE, FINITE)
def test_against_lies_on_the_right_side_of_the_mark(value, mark):
    shown = float(against(value, mark))
    if abs(value - mark) > 1e-6:
        assert (shown < mark) == (value < mark) or shown == pytest.approx(value, rel=1e-9)


def test_against():
    assert against(0.79996, 0.80) == "0.79996"
    assert against(0.565, 0.80) == "0.565"
    assert against(0.8, 0.8) == "0.800"


def test_words():
    assert count(1, "episode") == "1 episode"
    assert count(8447, "frame") == "8,447 frames"
    assert listed([]) == ""
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"], "or") == "a, b or c"
    assert clipped("a  long\nname that goes on", 12) == "a long name…"
    assert [duration(s) for s in (3.21, 42, 200, 7500)] == ["3.2 s", "42 s", "3 min 20 s", "2 h 05 min"]
    assert flat({"a": 1.5, "b": [True, None, "x"]}) == "a 1.5, b yes, , x"


@pytest.mark.parametrize(
    "text",
    [
        "javascript:alert(1)",
        " https://a.b",
        "https://a.b/<x>",
        'https://a.b/"x',
        "ftp://a.b",
        "https://",
        "data:text/html,x",
        "https://a.b/x\n",
        "http://[",
    ],
)
def test_what_is_no_link(text):
    assert link(text).href == ""
    assert link(text).text == text


def test_links_hold_nothing_that_ends_one_in_markdown():
    assert link("https://a.b/x_(y)|z").href == "https://a.b/x_%28y%29%7Cz"
