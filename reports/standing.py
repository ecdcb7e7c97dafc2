"""How a verdict, a claim or a bar is said: one wording and one tone wherever it stands.

The state is what the pre-registered rule makes of the point estimate; where the interval or the number of
episodes does not bear it out it reads "undecided (would ...)", and never wears the colour of a decision.
"""

from __future__ import annotations

UNDECIDED = "undecided"
_WOULD = {
    "reproduces": "would reproduce",
    "does not reproduce": "would not reproduce",
    "met": "would be met",
    "not met": "would not be met",
}
_TONES = {"reproduces": "good", "met": "good", "does not reproduce": "bad", "not met": "bad"}


def standing(state: str, firm: str) -> str:
    """`reproduces`, `not met`, `not tested here`, or `undecided (would reproduce)`."""
    return f"{UNDECIDED} ({_WOULD[state]})" if firm == UNDECIDED and state in _WOULD else state


def tone_of(state: str, firm: str) -> str:
    """good, bad or open; open where nothing was tested and where nothing is decided."""
    return "open" if firm == UNDECIDED else _TONES.get(state, "open")
