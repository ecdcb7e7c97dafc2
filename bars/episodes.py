"""Episode ranges as a study writes them: `0-23`, `0-3,7` or a list."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PIECE = re.compile(r"([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?")
_MOST = 1_000_000


def parse_episodes(value: object) -> tuple[int, ...]:
    """Episode indices, increasing; ValueError says what is wrong and how a range is written.

    Parameters
    ----------
    value : `"0-23"` (both ends included), `"0-3,7"`, `7`, or a list of such.
    """
    if isinstance(value, bool) or not isinstance(value, (int, str, list, tuple)):
        raise ValueError(f"{value!r} is not a range of episodes; write 0-23 or [0, 1, 2]")
    if isinstance(value, int):
        if value < 0:
            raise ValueError(f"episode {value} is negative")
        return (value,)
    pieces = [parse_episodes(item) for item in value] if not isinstance(value, str) else _pieces(value)
    episodes = [episode for piece in pieces for episode in piece]
    if len(set(episodes)) < len(episodes):
        twice = sorted({e for e in episodes if episodes.count(e) > 1}) if len(episodes) < 10_000 else ["some"]
        raise ValueError(f"episode {twice[0]} is listed twice")
    if len(episodes) > _MOST:
        raise ValueError(f"{len(episodes)} episodes are more than {_MOST}")
    return tuple(sorted(episodes))


def format_episodes(episodes: Iterable[int]) -> str:
    """The shortest range text: `0-3,7`; the inverse of `parse_episodes` on increasing indices."""
    runs: list[list[int]] = []
    for episode in sorted(episodes):
        if runs and episode == runs[-1][1] + 1:
            runs[-1][1] = episode
        else:
            runs.append([episode, episode])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def _pieces(text: str) -> list[tuple[int, ...]]:
    if not text.strip():
        return []
    found = []
    for piece in text.split(","):
        match = _PIECE.fullmatch(piece.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a range of episodes; write 0-23 or 0-3,7")
        first = int(match[1])
        last = int(match[2]) if match[2] is not None else first
        if last < first:
            raise ValueError(f"the range {piece.strip()} runs backwards; write {last}-{first}")
        if last - first >= _MOST:
            raise ValueError(f"the range {piece.strip()} holds more than {_MOST} episodes")
        found.append(tuple(range(first, last + 1)))
    return found
