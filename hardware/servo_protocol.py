"""The packets of the Feetech servo bus (protocol 0), as pure functions of bytes.

Half duplex, 8N1: who instructs writes a packet, the servo addressed answers with a status packet.

    instruction   FF FF ID LENGTH CODE  params... CHECKSUM     LENGTH = number of params + 2
    status        FF FF ID LENGTH ERROR params... CHECKSUM     CHECKSUM = ~(sum of ID..last param) & FF

To a sync read (broadcast) every servo named answers with a status packet of its own, in the order named.
Nothing in a packet says which instruction it answers, and the checksum is a sum of 8 bits: it notices any
change of one byte, and misses about 1 in 256 changes of several. What is done about that is in
`hardware/bus.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

PING, READ, WRITE, SYNC_READ, SYNC_WRITE = 0x01, 0x02, 0x03, 0x82, 0x83
BROADCAST = 0xFE
MAX_ID = 0xFD
HEADER = b"\xff\xff"
STATUS_OVERHEAD = 6  # bytes of a status packet beside its params
BITS_PER_BYTE = 10  # start bit, 8, stop bit

PacketFault = Literal["short", "header", "wrong_id", "wrong_length", "checksum"]


class PacketError(ValueError):
    """Bytes that are not the status packet expected; `kind` says by what it shows (the first that fails, in
    the order of `PacketFault`).
    """

    def __init__(self, kind: PacketFault, message: str) -> None:
        self.kind: PacketFault = kind
        super().__init__(message)


@dataclass(frozen=True)
class Status:
    """The content of a status packet."""

    error: int
    params: bytes


def checksum(body: bytes) -> int:
    """The check byte over `body`, the bytes from the id to the last param."""
    return ~sum(body) & 0xFF


def instruction(servo_id: int, code: int, params: bytes = b"") -> bytes:
    """The packet that instructs `servo_id` (or BROADCAST) to do `code`."""
    return _packet(servo_id, code, params)


def status(servo_id: int, error: int, params: bytes = b"") -> bytes:
    """The packet with which a servo answers."""
    return _packet(servo_id, error, params)


def read(servo_id: int, address: int, size: int) -> bytes:
    """Instruction to send `size` bytes from `address`."""
    return _packet(servo_id, READ, bytes((address, size)))


def write(servo_id: int, address: int, data: bytes) -> bytes:
    """Instruction to store `data` at `address`."""
    return _packet(servo_id, WRITE, bytes((address,)) + data)


def sync_read(ids: Sequence[int], address: int, size: int) -> bytes:
    """Instruction to each of `ids` to send `size` bytes from `address`, one after the other."""
    return _packet(BROADCAST, SYNC_READ, bytes((address, size, *ids)))


def sync_write(address: int, data: Mapping[int, bytes]) -> bytes:
    """Instruction to each servo id in `data` to store its bytes (all of one length) at `address`; no servo
    answers.
    """
    sizes = {len(values) for values in data.values()}
    if len(sizes) != 1:
        raise ValueError(f"a sync write needs values of one length, got lengths {sorted(sizes)}")
    body = b"".join(bytes((servo_id,)) + values for servo_id, values in data.items())
    return _packet(BROADCAST, SYNC_WRITE, bytes((address, sizes.pop())) + body)


def parse_status(data: bytes, servo_id: int, size: int) -> Status:
    """The status packet of `servo_id` with `size` params at the start of `data`.

    Raises
    ------
    PacketError
        `short` where `data` ends before the packet does and shows no other fault, else `header`, `wrong_id`,
        `wrong_length` or `checksum`.
    """
    end = STATUS_OVERHEAD + size
    if data[:2] != HEADER[: len(data)]:
        raise PacketError("header", f"no packet begins with {data[:2].hex(' ')}")
    if len(data) > 2 and data[2] != servo_id:
        raise PacketError("wrong_id", f"servo {data[2]} answered in place of servo {servo_id}")
    if len(data) > 3 and data[3] != size + 2:
        raise PacketError("wrong_length", f"servo {servo_id} sent length {data[3]} instead of {size + 2}")
    if len(data) < end:
        raise PacketError("short", f"servo {servo_id} sent {len(data)} of {end} bytes")
    if checksum(data[2 : end - 1]) != data[end - 1]:
        raise PacketError("checksum", f"the checksum of servo {servo_id}'s reply is wrong")
    return Status(data[4], bytes(data[5 : end - 1]))


def wire_time_s(n_bytes: int, baudrate: int) -> float:
    """Seconds that `n_bytes` take on the wire."""
    return n_bytes * BITS_PER_BYTE / baudrate


def _packet(servo_id: int, code: int, params: bytes) -> bytes:
    if not (0 <= servo_id <= BROADCAST and len(params) <= 253):
        raise ValueError(f"no packet has id {servo_id} and {len(params)} params")
    body = bytes((servo_id, len(params) + 2, code)) + params
    return HEADER + body + bytes((checksum(body),))
