"""What stands in for the sequence number that the servo protocol lacks: for how many bytes a read asks.

A read may take along registers beside those wanted, so the same question can be asked for many lengths (17
for a block), and an answer to one is never taken for an answer to another. Only a failed transaction can
have answers outstanding. The length it asked for is avoided for two seconds and not used at all for half a
second; two reads in a row never ask for the same. So no answer that is up to `OUTSTANDING_NS` late is ever
taken for another read's, whatever else goes wrong meanwhile.

The price is that lengths can run out. A line that is deaf would use them up in a tenth of a second and then
nobody could ask for the rest of the half: hence, after a few failures in a row, one question every
`PATIENT_NS`, for which there is always a length, and the arm is seen again that soon after the line is well.
Failures between good readings only run out of lengths where there are more than 34 of them a second.

Nothing weaker does in place of a length: where two answers may look alike, as when a sync read merely names
the servos in another turn, a late one fits wherever its servo's own is missing.
"""

from __future__ import annotations

import time

OUTSTANDING_NS = 500_000_000  # an answer that is later than this is not expected
AVOIDED_NS = 2_000_000_000
QUICK_FAILURES = 4  # in a row, before questions are spaced
PATIENT_NS = 50_000_000
# 4 quick ones and 10 spaced ones in any half second: of a block's 17 lengths three are left for what works.


class ReadLengths:
    """Gives each read the number of bytes it asks for."""

    def __init__(self) -> None:
        self._last = 0
        self._failed_ns: dict[int, int] = {}
        self._in_a_row = 0
        self._last_failure_ns = 0

    def next(self, least: int, most: int) -> tuple[int, int]:
        """The least length that has not failed lately, else the one whose failure is longest ago.

        Parameters
        ----------
        least : bytes wanted of each servo.
        most : bytes that could be asked for.

        Returns
        -------
        The length, and the time (CLOCK_MONOTONIC, ns) before which it may not be asked for; 0 where it may be
        at once.
        """
        now_ns = time.monotonic_ns()
        self._failed_ns = {n: at for n, at in self._failed_ns.items() if now_ns - at < AVOIDED_NS}
        lengths = [n for n in range(least, most + 1) if n != self._last] or [least]
        length = min(lengths, key=lambda n: self._failed_ns.get(n, 0))
        failed_ns = self._failed_ns.get(length)
        free_ns = 0 if failed_ns is None else failed_ns + OUTSTANDING_NS
        if self._in_a_row >= QUICK_FAILURES:
            free_ns = max(free_ns, self._last_failure_ns + PATIENT_NS)
        return length, free_ns

    def used(self, length: int) -> None:
        """A read of so many bytes was sent."""
        self._last = length

    def answered(self) -> None:
        """A read was answered soundly."""
        self._in_a_row = 0

    def failed(self, length: int) -> None:
        """Answers to a read of so many bytes may still come."""
        self._failed_ns[length] = self._last_failure_ns = time.monotonic_ns()
        self._in_a_row += 1
