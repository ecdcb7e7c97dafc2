"""What stands in for the sequence number that the servo protocol lacks.

A read may take along registers beside those wanted, and a sync read may name the servos in another turn.
Each such way to ask, a `Tag`, gets replies that look different, so an answer to one is never taken for an
answer to another. Only a failed transaction can have replies outstanding; its tag is *suspect* for two
seconds and is not used meanwhile. Two reads in a row never ask for the same number of bytes.

Of the tags that fit, the one that asks for fewest bytes in the usual turn is taken; other turns come only
once all 17 lengths of a block are suspect, and then with the length whose failure is longest ago. When every
tag is suspect (six servos: 102 failures in two seconds), it is the one whose failure is longest ago.
"""

from __future__ import annotations

import time
from typing import NamedTuple

SUSPECT_NS = 2_000_000_000  # a reply that is later than this is not expected
LONGER_READS = 16


class Tag(NamedTuple):
    """How a read is asked: for how many bytes, and with how many servos moved from the beginning of the order
    to its end.
    """

    size: int
    turn: int = 0


class ReadTags:
    """Gives each read its tag."""

    def __init__(self) -> None:
        self._last_size = 0
        self._suspect: dict[Tag, int] = {}

    def next(self, least: int, room: int, servos: int) -> Tag:
        """The tag of the next read.

        Parameters
        ----------
        least : bytes wanted of each servo.
        room : bytes that could be asked for.
        servos : how many are asked.
        """
        most = min(least + LONGER_READS, room)
        sizes = [size for size in range(least, most + 1) if size != self._last_size] or [least]
        if not self._suspect:
            return Tag(sizes[0])
        now_ns = time.monotonic_ns()
        self._suspect = {tag: at for tag, at in self._suspect.items() if now_ns - at < SUSPECT_NS}
        by_size = {tag.size: at for tag, at in sorted(self._suspect.items(), key=lambda item: item[1])}
        if servos == 1:  # one servo has no turn: its reply looks like its part of any other
            return Tag(min(sizes, key=lambda size: by_size.get(size, 0)))
        tags = (Tag(size, turn) for turn in range(servos) for size in sizes)
        return min(tags, key=lambda tag: (self._suspect.get(tag, 0), by_size.get(tag.size, 0)))

    def used(self, tag: Tag) -> None:
        """A read with this tag was sent."""
        self._last_size = tag.size

    def suspect(self, tag: Tag) -> None:
        """Replies to a read with this tag may still come."""
        self._suspect[tag] = time.monotonic_ns()
