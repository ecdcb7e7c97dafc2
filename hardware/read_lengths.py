"""What stands in for the sequence number that the servo protocol lacks: for how many bytes a read asks.

A read may take along registers beside those wanted, so the same question can be asked for many lengths (17
for a block), and an answer to one is never taken for an answer to another. Only a failed transaction can
have answers outstanding. The length it asked for is avoided for two seconds and not used at all for half a
second; two reads in a row never ask for the same. So no answer that is up to `OUTSTANDING_NS` late is ever
taken for another read's, whatever else goes wrong meanwhile. The price: on a bus that fails more than 34
times a second fewer questions are asked.

Nothing weaker does in place of a length: where two answers may look alike, as when a sync read merely names
the servos in another turn, a late one fits wherever its servo's own is missing.
"""

from __future__ import annotations

import time

OUTSTANDING_NS = 500_000_000  # an answer that is later than this is not expected
AVOIDED_NS = 2_000_000_000


class ReadLengths:
    """Gives each read the number of bytes it asks for."""

    def __init__(self) -> None:
        self._last = 0
        self._failed_ns: dict[int, int] = {}

    def next(self, least: int, most: int) -> tuple[int, int]:
        """The least length that has not failed lately, else the one whose failure is longest ago.

        Parameters
        ----------
        least : bytes wanted of each servo.
        most : bytes that could be asked for.

        Returns
        -------
        The length, and the time (CLOCK_MONOTONIC, ns) before which it may not be asked for.
        """
        now_ns = time.monotonic_ns()
        self._failed_ns = {n: at for n, at in self._failed_ns.items() if now_ns - at < AVOIDED_NS}
        lengths = [n for n in range(least, most + 1) if n != self._last] or [least]
        length = min(lengths, key=lambda n: self._failed_ns.get(n, 0))
        failed_ns = self._failed_ns.get(length)
        return length, 0 if failed_ns is None else failed_ns + OUTSTANDING_NS

    def used(self, length: int) -> None:
        """A read of so many bytes was sent."""
        self._last = length

    def failed(self, length: int) -> None:
        """Answers to a read of so many bytes may still come."""
        self._failed_ns[length] = time.monotonic_ns()
