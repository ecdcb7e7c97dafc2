"""Packets: written as the vendor documents them, and no single wrong byte passes."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hardware import servo_protocol as protocol
from hardware.servo_protocol import PacketError, Status, instruction, parse_status, status

ids = st.integers(0, protocol.MAX_ID)
byte = st.integers(0, 255)
params = st.binary(max_size=40)


def test_packets_of_the_vendors_manual() -> None:
    """The examples of Feetech's protocol manual."""
    assert instruction(1, protocol.PING) == bytes.fromhex("FF FF 01 02 01 FB")
    assert status(1, 0) == bytes.fromhex("FF FF 01 02 00 FC")
    assert protocol.read(1, 0x38, 2) == bytes.fromhex("FF FF 01 04 02 38 02 BE")
    assert status(1, 0, bytes.fromhex("18 05")) == bytes.fromhex("FF FF 01 04 00 18 05 DD")
    assert protocol.write(0xFE, 5, b"\x01") == bytes.fromhex("FF FF FE 04 03 05 01 F4")


def test_sync_packets() -> None:
    packet = protocol.sync_read((1, 2, 6), 56, 15)
    assert packet[:7] == bytes((0xFF, 0xFF, 0xFE, 7, 0x82, 56, 15)) and packet[7:-1] == bytes((1, 2, 6))
    assert len(protocol.sync_read((1, 2, 3, 4, 5, 6), 56, 15)) == 14
    packet = protocol.sync_write(42, {1: b"\x00\x08", 3: b"\x01\x08"})
    assert packet[4:-1] == bytes((0x83, 42, 2, 1, 0, 8, 3, 1, 8))
    with pytest.raises(ValueError, match="lengths \\[1, 2\\]"):
        protocol.sync_write(42, {1: b"\x00", 2: b"\x00\x01"})
    with pytest.raises(ValueError, match="lengths \\[\\]"):
        protocol.sync_write(42, {})


@given(ids, byte, params, st.binary(max_size=9))
def test_a_status_packet_survives_the_round_trip(
    servo_id: int, error: int, data: bytes, behind: bytes
) -> None:
    packet = status(servo_id, error, data)
    assert len(packet) == protocol.STATUS_OVERHEAD + len(data)
    assert parse_status(packet + behind, servo_id, len(data)) == Status(error, data)


@given(ids, byte, params, st.data())
def test_any_one_wrong_byte_is_caught(servo_id: int, error: int, data: bytes, draw: st.DataObject) -> None:
    packet = bytearray(status(servo_id, error, data))
    place = draw.draw(st.integers(0, len(packet) - 1))
    packet[place] ^= draw.draw(st.integers(1, 255))
    with pytest.raises(PacketError) as caught:
        parse_status(bytes(packet), servo_id, len(data))
    expected = {0: "header", 1: "header", 2: "wrong_id", 3: "wrong_length"}.get(place, "checksum")
    assert caught.value.kind == expected


@given(ids, byte, params, st.data())
def test_a_cut_packet_is_short(servo_id: int, error: int, data: bytes, draw: st.DataObject) -> None:
    packet = status(servo_id, error, data)
    kept = draw.draw(st.integers(0, len(packet) - 1))
    with pytest.raises(PacketError) as caught:
        parse_status(packet[:kept], servo_id, len(data))
    assert caught.value.kind == "short"


@given(ids, ids, params, params)
def test_another_servos_reply_or_another_length_is_caught(
    servo_id: int, other: int, data: bytes, longer: bytes
) -> None:
    assume(servo_id != other)
    with pytest.raises(PacketError) as caught:
        parse_status(status(other, 0, data), servo_id, len(data))
    assert caught.value.kind == "wrong_id"
    assume(len(data) != len(longer))
    with pytest.raises(PacketError) as caught:
        parse_status(status(servo_id, 0, longer), servo_id, len(data))
    assert caught.value.kind == "wrong_length"


def test_bounds_of_a_packet() -> None:
    for servo_id, size in ((-1, 0), (255, 0), (1, 254)):
        with pytest.raises(ValueError, match="no packet"):
            instruction(servo_id, protocol.READ, bytes(size))
    assert instruction(1, protocol.WRITE, bytes(253))[3] == 255


def test_wire_time() -> None:
    """The figures of the recorder's budget: a block of six, and the position alone."""
    asked = len(protocol.sync_read((1, 2, 3, 4, 5, 6), 56, 15))
    assert protocol.wire_time_s(asked + 6 * 21, 1_000_000) == pytest.approx(1.40e-3)
    assert protocol.wire_time_s(asked + 6 * 8, 1_000_000) == pytest.approx(0.62e-3)
