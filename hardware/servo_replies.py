"""The replies to one instruction, one behind the other: are they sound, what do they say, what is wrong."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hardware.bus_faults import BusFaultKind
from hardware.servo_protocol import STATUS_OVERHEAD, PacketError, parse_status
from hardware.servo_table import BLOCK_FIRST, BLOCK_LAST, REGISTERS, signed

BLOCK_SIZE = BLOCK_LAST + 1 - BLOCK_FIRST
_COLUMNS = ("error", "position", "velocity", "load", "voltage", "temperature", "status", "moving", "current")
_SIGN_BITS = {
    _COLUMNS.index(name): REGISTERS[f"Present_{name.title()}"].sign_bit or 0
    for name in ("position", "velocity", "load", "current")
}


class BlockRead(NamedTuple):
    """What n servos answered in one transaction; arrays are int64 [n] in register units, signs decoded.

    `time_ns` is the midpoint between `start_ns`, just before the instruction was handed to the driver, and
    `end_ns`, just after the last byte was taken from it; all three are of CLOCK_MONOTONIC. The servos measure
    one after the other, so at 1 Mbaud the first and the last of six are about 0.5 ms off it.
    """

    time_ns: int
    start_ns: int
    end_ns: int
    position: np.ndarray
    velocity: np.ndarray
    load: np.ndarray
    voltage: np.ndarray
    temperature: np.ndarray
    status: np.ndarray
    moving: np.ndarray
    current: np.ndarray
    error: np.ndarray
    """The error byte of each reply; `hardware.servo_table.error_names` decodes it."""


def sound(data: bytes, ids: Sequence[int], size: int) -> bool:
    """Whether `data` are the replies of `ids`, in this order, with `size` params each, and nothing else."""
    stride = STATUS_OVERHEAD + size
    if len(data) != len(ids) * stride:
        return False
    at = 0
    for head in _heads(tuple(ids), size):
        # The check byte is the complement of the sum of what it covers, so with it the sum is FF.
        if data[at : at + 4] != head or sum(data[at + 2 : at + stride]) & 0xFF != 0xFF:
            return False
        at += stride
    return True


def parse_block(data: bytes, size: int, start_ns: int, end_ns: int) -> BlockRead:
    """The block of each reply in `data`, sound replies of `size` params, of which the last are the block."""
    replies = len(data) // (STATUS_OVERHEAD + size)
    numbers = list(_layout(replies, size).unpack(data))
    for place, sign_bit in _signed_places(replies):
        if numbers[place] >> sign_bit:
            numbers[place] = signed(numbers[place], sign_bit)
    table = np.array(numbers, np.int64).reshape(replies, len(_COLUMNS)).T
    error, position, velocity, load, voltage, temperature, status, moving, current = table
    return BlockRead(
        (start_ns + end_ns) // 2,
        start_ns,
        end_ns,
        position,
        velocity,
        load,
        voltage,
        temperature,
        status,
        moving,
        current,
        error,
    )


@lru_cache
def _heads(ids: tuple[int, ...], size: int) -> tuple[bytes, ...]:
    return tuple(bytes((0xFF, 0xFF, servo_id, size + 2)) for servo_id in ids)


@lru_cache
def _layout(replies: int, size: int) -> struct.Struct:
    """Of each reply the error byte and the block at the end of its params, in the order of `_COLUMNS`."""
    return struct.Struct("<" + replies * f"4xB{size - BLOCK_SIZE}xHHHBBxBBxxHx")


@lru_cache
def _signed_places(replies: int) -> tuple[tuple[int, int], ...]:
    """Where in the numbers of so many replies the signed ones are, and their sign bits."""
    return tuple(
        (reply * len(_COLUMNS) + column, sign_bit)
        for reply in range(replies)
        for column, sign_bit in _SIGN_BITS.items()
    )


def diagnosis(data: bytes, ids: Sequence[int], size: int) -> tuple[BusFaultKind, tuple[int, ...], str]:
    """What is wrong with replies that are not sound: the kind of the first fault, the servos without a sound
    reply anywhere, and a sentence.
    """
    stride = STATUS_OVERHEAD + size
    silent = tuple(servo_id for servo_id in ids if not _answered(data, servo_id, size))
    for index, servo_id in enumerate(ids):
        try:
            parse_status(data[index * stride :], servo_id, size)
        except PacketError as error:
            # The next servo's reply in place of this one's, and too few bytes: this one said nothing.
            skipped = error.kind == "wrong_id" and servo_id in silent and len(data) < len(ids) * stride
            if error.kind != "short" and not skipped:
                return error.kind, silent or (servo_id,), str(error)
            break
    who = f"servo {silent[0]}" if len(silent) == 1 else f"servos {', '.join(map(str, silent))}"
    return "timeout", silent, f"no whole answer from {who} ({len(data)} of {len(ids) * stride} bytes came)"


def _answered(data: bytes, servo_id: int, size: int) -> bool:
    head = bytes((0xFF, 0xFF, servo_id, size + 2))
    at = data.find(head)
    while at >= 0:
        if sound(data[at : at + STATUS_OVERHEAD + size], (servo_id,), size):
            return True
        at = data.find(head, at + 1)
    return False
