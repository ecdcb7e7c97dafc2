from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bars import format_episodes, parse_episodes


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("0-23", tuple(range(24))),
        ("0-3,7", (0, 1, 2, 3, 7)),
        ("7, 0 - 3", (0, 1, 2, 3, 7)),
        ([2, 0, 1], (0, 1, 2)),
        (["0-2", 5], (0, 1, 2, 5)),
        (7, (7,)),
        ("7", (7,)),
        ("3-3", (3,)),
        ("", ()),
        ([], ()),
    ],
)
def test_ranges_and_lists(written, meant):
    assert parse_episodes(written) == meant


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("0..3", "'0..3' is not a range of episodes; write 0-23 or 0-3,7"),
        ("0-3,", "'0-3,' is not a range of episodes; write 0-23 or 0-3,7"),
        ("5-2", "the range 5-2 runs backwards; write 2-5"),
        ("0-3,2", "episode 2 is listed twice"),
        ([1, 1], "episode 1 is listed twice"),
        (-1, "episode -1 is negative"),
        (True, "True is not a range of episodes; write 0-23 or [0, 1, 2]"),
        (1.0, "1.0 is not a range of episodes; write 0-23 or [0, 1, 2]"),
        ({"a": 1}, "{'a': 1} is not a range of episodes; write 0-23 or [0, 1, 2]"),
        ("0-999999999", "the range 0-999999999 holds more than 1000000 episodes"),
        ("٣", "'٣' is not a range of episodes; write 0-23 or 0-3,7"),
    ],
)
def test_what_is_no_range_is_said(written, told):
    with pytest.raises(ValueError) as error:
        parse_episodes(written)
    assert str(error.value) == told


@given(st.sets(st.integers(0, 300), max_size=60))
def test_format_and_parse_are_inverse(episodes):
    assert parse_episodes(format_episodes(episodes)) == tuple(sorted(episodes))


def test_the_shortest_text():
    assert format_episodes([7, 3, 2, 1, 0]) == "0-3,7"
