"""The registers of the STS3215, the servo of the SO-101, as data.

Numbers are little-endian. A register with a sign bit holds sign and magnitude (bit `sign_bit` set means
minus; bits above it mean nothing), any other is unsigned. Registers below 40 are EEPROM and survive a power
cycle: jointprobe reads them and never writes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hardware.errors import InputError

MODEL_STS3215 = 777
TICKS_PER_TURN = 4096
RADIANS_PER_TICK = 2 * math.pi / TICKS_PER_TURN  # position, and velocity per second
LOAD_PER_UNIT = 0.001  # share of the rated torque
VOLTS_PER_UNIT = 0.1
AMPERES_PER_UNIT = 0.0065
SECONDS_PER_DELAY_UNIT = 2e-6  # of Return_Delay_Time
FULL_TORQUE = 1000  # Torque_Limit and Max_Torque_Limit, in 0.1 %

FIRST_RAM_ADDRESS = 40
BLOCK_FIRST, BLOCK_LAST = 56, 70  # Present_Position to Present_Current: all a servo can tell about its state

ERROR_BITS = {1: "voltage", 2: "angle", 4: "overheat", 8: "over-current", 32: "overload"}
"""Bits of a reply's error byte and of the register Status."""


@dataclass(frozen=True)
class Register:
    """One register: where it lies, how many bytes it has, and what its number means. `highest` is the
    greatest number that may be stored, where that is less than fits.
    """

    name: str
    address: int
    size: int
    sign_bit: int | None = None
    unit: str = ""
    highest: int | None = None

    @property
    def eeprom(self) -> bool:
        """Whether a value written here would survive a power cycle."""
        return self.address < FIRST_RAM_ADDRESS

    @property
    def writable(self) -> bool:
        """Whether jointprobe may write it: the command registers in RAM, from Torque_Enable to Torque_Limit.

        Not Lock, which opens the EEPROM, nor what the servo measures, nor the factory's registers.
        """
        return FIRST_RAM_ADDRESS <= self.address < 50

    @property
    def minimum(self) -> int:
        """The lowest number it takes."""
        return 0 if self.sign_bit is None else -self.maximum

    @property
    def maximum(self) -> int:
        """The highest number it takes."""
        if self.highest is not None:
            return self.highest
        return (1 << (8 * self.size if self.sign_bit is None else self.sign_bit)) - 1

    def decode(self, data: bytes) -> int:
        """The number in `data`, `size` bytes as they lie in the servo."""
        if len(data) != self.size:
            raise ValueError(f"{self.name} has {self.size} bytes, not {len(data)}")
        number = int.from_bytes(data, "little")
        return number if self.sign_bit is None else signed(number, self.sign_bit)

    def encode(self, value: int) -> bytes:
        """The bytes of `value`; InputError where the register does not take it."""
        if not self.minimum <= value <= self.maximum:
            raise InputError(
                self.name, f"{value} is outside {self.minimum}..{self.maximum}", "give a value it takes"
            )
        sign = 1 << self.sign_bit if self.sign_bit is not None and value < 0 else 0
        return (abs(value) | sign).to_bytes(self.size, "little")


def signed(number: int, sign_bit: int) -> int:
    """The value of a sign and magnitude number."""
    magnitude = number & ((1 << sign_bit) - 1)
    return -magnitude if number >> sign_bit & 1 else magnitude


REGISTERS: dict[str, Register] = {
    register.name: register
    for register in (
        Register("Firmware_Major_Version", 0, 1),
        Register("Firmware_Minor_Version", 1, 1),
        Register("Model_Number", 3, 2),
        Register("ID", 5, 1),
        Register("Baud_Rate", 6, 1, None, "code: 0 = 1 Mbaud"),
        Register("Return_Delay_Time", 7, 1, None, "2 us"),
        Register("Response_Status_Level", 8, 1, None, "0 = only reads and pings are answered"),
        Register("Min_Position_Limit", 9, 2, None, "tick"),
        Register("Max_Position_Limit", 11, 2, None, "tick"),
        Register("Max_Temperature_Limit", 13, 1, None, "deg C"),
        Register("Max_Voltage_Limit", 14, 1, None, "0.1 V"),
        Register("Min_Voltage_Limit", 15, 1, None, "0.1 V"),
        Register("Max_Torque_Limit", 16, 2, None, "0.1 %"),
        Register("Phase", 18, 1, None, "bits; 16 = position counts over several turns"),
        Register("Unloading_Condition", 19, 1, None, "error bits"),
        Register("LED_Alarm_Condition", 20, 1, None, "error bits"),
        Register("P_Coefficient", 21, 1),
        Register("D_Coefficient", 22, 1),
        Register("I_Coefficient", 23, 1),
        Register("Minimum_Startup_Force", 24, 2, None, "0.1 %"),
        Register("CW_Dead_Zone", 26, 1, None, "tick"),
        Register("CCW_Dead_Zone", 27, 1, None, "tick"),
        Register("Protection_Current", 28, 2, None, "6.5 mA"),
        Register("Angular_Resolution", 30, 1),
        Register("Homing_Offset", 31, 2, 11, "tick"),
        Register("Operating_Mode", 33, 1, None, "0 = position"),
        Register("Protective_Torque", 34, 1, None, "1 %"),
        Register("Protection_Time", 35, 1, None, "10 ms"),
        Register("Overload_Torque", 36, 1, None, "1 %"),
        # 128 would make the present position the middle, in EEPROM
        Register("Torque_Enable", 40, 1, None, "", 1),
        Register("Acceleration", 41, 1, None, "100 tick/s^2"),
        Register("Goal_Position", 42, 2, 15, "tick"),
        Register("Goal_Time", 44, 2, None, "ms"),
        Register("Goal_Velocity", 46, 2, 15, "tick/s"),
        Register("Torque_Limit", 48, 2, None, "0.1 %", FULL_TORQUE),
        Register("Lock", 55, 1),
        Register("Present_Position", 56, 2, 15, "tick"),
        Register("Present_Velocity", 58, 2, 15, "tick/s"),
        Register("Present_Load", 60, 2, 10, "0.1 %"),
        Register("Present_Voltage", 62, 1, None, "0.1 V"),
        Register("Present_Temperature", 63, 1, None, "deg C"),
        Register("Status", 65, 1, None, "error bits"),
        Register("Moving", 66, 1),
        Register("Present_Current", 69, 2, 15, "6.5 mA"),
    )
}
"""By the names LeRobot gives them. Present_Current's sign bit is not in LeRobot's table."""


def error_names(byte: int) -> tuple[str, ...]:
    """Names of all the bits set in an error byte; one without a known meaning is `bit 4` and the like."""
    return tuple(ERROR_BITS.get(1 << bit, f"bit {bit}") for bit in range(8) if byte >> bit & 1)
