"""What goes wrong on a servo bus, in a small closed set of kinds.

    timeout        a servo did not answer, or not to the end, in time
    header         bytes came where a packet should begin, and none begins so
    wrong_id       a servo answered that was not the one in turn
    wrong_length   a servo sent another number of bytes than asked for: it answers an earlier question
    checksum       a reply's check byte is wrong
    late           bytes came behind a transaction that had looked whole: its values are doubtful
    busy           nothing could be asked before the deadline: no time left, or the line did not fall silent
    refused        a servo acknowledged a write and does not hold what was written
    echo           the adapter sent our own instruction back; it is taken out and does no harm
    lost           the port is gone

`ServoBus.faults` counts each of them but `lost`, which is the last one; those that end a transaction are
raised as `BusFault` when no try is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

BusFaultKind = Literal[
    "timeout",
    "header",
    "wrong_id",
    "wrong_length",
    "checksum",
    "late",
    "busy",
    "refused",
    "echo",
    "lost",
]
BUS_FAULT_KINDS: tuple[str, ...] = get_args(BusFaultKind)


class BusFault(Exception):
    """A transaction failed, in spite of retries; `kind` is that of the last try, `ids` the servos without a
    sound reply.
    """

    def __init__(self, kind: BusFaultKind, ids: Sequence[int], message: str) -> None:
        self.kind: BusFaultKind = kind
        self.ids = tuple(ids)
        super().__init__(message)


class BusLost(BusFault):
    """The port is gone (unplugged, or its other end closed); nothing works on this bus any more."""

    def __init__(self, port: str, reason: str) -> None:
        super().__init__("lost", (), f"the serial port {port} is gone: {reason}")
