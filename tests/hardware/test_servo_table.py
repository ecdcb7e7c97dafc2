"""Registers: what a number is in the servo's bytes, and which may be written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware import InputError
from hardware.servo_table import ERROR_BITS, REGISTERS, Register, error_names

registers = st.sampled_from(list(REGISTERS.values()))


@given(registers, st.data())
def test_numbers_survive_the_round_trip(register: Register, data: st.DataObject) -> None:
    value = data.draw(st.integers(register.minimum, register.maximum))
    encoded = register.encode(value)
    assert len(encoded) == register.size
    assert register.decode(encoded) == value


@given(registers, st.integers())
def test_what_a_register_does_not_take_is_refused(register: Register, value: int) -> None:
    if register.minimum <= value <= register.maximum:
        register.encode(value)
    else:
        with pytest.raises(InputError, match=register.name):
            register.encode(value)


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("Present_Position", 0x0800, 2048),
        ("Present_Position", 0x8005, -5),
        ("Present_Velocity", 0x8000, 0),  # minus zero
        ("Present_Load", 0x0400 | 250, -250),
        ("Present_Load", 250, 250),
        ("Present_Current", 0x8000 | 12, -12),
        ("Homing_Offset", 0x0800 | 2047, -2047),
        ("Max_Torque_Limit", 0xFFFF, 65535),
    ],
)
def test_sign_and_magnitude(name: str, raw: int, value: int) -> None:
    assert REGISTERS[name].decode(raw.to_bytes(REGISTERS[name].size, "little")) == value


def test_registers_do_not_overlap_and_lie_where_lerobot_has_them() -> None:
    taken: dict[int, str] = {}
    for name, register in REGISTERS.items():
        for address in range(register.address, register.address + register.size):
            assert address not in taken, f"{name} and {taken.get(address)} share address {address}"
            taken[address] = name
    assert {REGISTERS[name].address for name in ("Torque_Enable", "Goal_Position", "Present_Current")} == {
        40,
        42,
        69,
    }


def test_the_registers_agree_with_lerobots_table() -> None:
    tables = pytest.importorskip("lerobot.motors.feetech.tables")
    theirs = tables.STS_SMS_SERIES_CONTROL_TABLE
    signs = tables.STS_SMS_SERIES_ENCODINGS_TABLE
    for name, register in REGISTERS.items():
        assert tuple(theirs[name]) == (register.address, register.size), name
        if name != "Present_Current":  # they decode it as unsigned
            assert signs.get(name, register.sign_bit) == register.sign_bit, name


def test_only_command_registers_may_be_written() -> None:
    assert {name for name, register in REGISTERS.items() if register.writable} == {
        "Torque_Enable",
        "Acceleration",
        "Goal_Position",
        "Goal_Time",
        "Goal_Velocity",
        "Torque_Limit",
    }
    assert not any(register.writable for register in REGISTERS.values() if register.eeprom)


def test_the_value_that_would_move_the_middle_is_refused() -> None:
    with pytest.raises(InputError, match=r"Torque_Enable: 128 is outside 0\.\.1"):
        REGISTERS["Torque_Enable"].encode(128)


def test_every_error_bit_is_named() -> None:
    assert error_names(0) == ()
    assert error_names(0b100101) == ("voltage", "overheat", "overload")
    assert error_names(0b11010000) == ("bit 4", "bit 6", "bit 7")
    assert error_names(sum(ERROR_BITS)) == tuple(ERROR_BITS.values())
