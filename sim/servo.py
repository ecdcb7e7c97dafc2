"""One emulated STS3215: its registers, and what it does with what is written there.

Its memory is laid out as the real one's: EEPROM at addresses 0..39, RAM from 40 on. A write to EEPROM holds
at once, and outlives `power_cycle` where Lock was 0. An error flag shows in Status and in the error byte of
every reply; the flags in Unloading_Condition (factory: overheat, over-current, overload) switch the torque
off, and keep it off until `clear_flags` or `power_cycle`. A new servo's goal is 0, so torque that is switched
on before a goal was given makes it leap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hardware.calibration import Calibration, Motor
from hardware.servo_table import (
    ERROR_BITS,
    FIRST_RAM_ADDRESS,
    FULL_TORQUE,
    MODEL_STS3215,
    REGISTERS,
    TICKS_PER_TURN,
    Register,
)

MEMORY_BYTES = 128
READ_ONLY = frozenset({*range(5), *range(56, 73)})
KEPT_WRITES = 10_000
SET_MIDDLE = 128  # this value in Torque_Enable makes the present position the middle, in EEPROM
MOVING_TICKS_PER_S = 5

FACTORY = {
    "Firmware_Major_Version": 3,
    "Firmware_Minor_Version": 10,
    "Model_Number": MODEL_STS3215,
    "Return_Delay_Time": 250,  # 500 us
    "Response_Status_Level": 1,  # writes are answered too
    "Max_Position_Limit": 4095,
    "Max_Temperature_Limit": 70,
    "Max_Voltage_Limit": 80,
    "Min_Voltage_Limit": 40,
    "Max_Torque_Limit": FULL_TORQUE,
    "Phase": 12,
    "Unloading_Condition": 44,
    "LED_Alarm_Condition": 47,
    "P_Coefficient": 32,
    "D_Coefficient": 32,
    "Minimum_Startup_Force": 16,
    "CW_Dead_Zone": 1,
    "CCW_Dead_Zone": 1,
    "Protection_Current": 500,
    "Angular_Resolution": 1,
    "Protective_Torque": 20,
    "Protection_Time": 200,
    "Overload_Torque": 80,
    "Torque_Limit": FULL_TORQUE,
    "Lock": 1,
    "Present_Voltage": 74,
    "Present_Temperature": 30,
}
"""What differs from 0 in a new servo; its id comes on top."""

_TORQUE_ENABLE, _TORQUE_LIMIT = REGISTERS["Torque_Enable"], REGISTERS["Torque_Limit"]
_GOAL, _HOMING = REGISTERS["Goal_Position"], REGISTERS["Homing_Offset"]
_LOWEST, _HIGHEST = REGISTERS["Min_Position_Limit"], REGISTERS["Max_Position_Limit"]
_POSITION, _VELOCITY = REGISTERS["Present_Position"], REGISTERS["Present_Velocity"]
_LOAD, _CURRENT = REGISTERS["Present_Load"], REGISTERS["Present_Current"]
_VOLTAGE, _TEMPERATURE = REGISTERS["Present_Voltage"], REGISTERS["Present_Temperature"]
_STATUS, _MOVING, _LOCK = REGISTERS["Status"], REGISTERS["Moving"], REGISTERS["Lock"]
_UNLOADING = REGISTERS["Unloading_Condition"]


class ServoState(NamedTuple):
    """What a servo measures, in its registers' units; the sign is that of the number."""

    position: int  # ticks, 0..4095
    velocity: int = 0  # ticks/s
    load: int = 0  # 0.1 % of the greatest torque, positive towards rising ticks
    current: int = 0  # 6.5 mA
    voltage: int | None = None  # 0.1 V; None: the register keeps what it has
    temperature: int | None = None  # deg C; likewise


class ServoCommand(NamedTuple):
    """What a servo has its motor do."""

    goal_ticks: int
    torque_enabled: bool
    torque_limit: int  # 0.1 %


@dataclass(frozen=True)
class RegisterWrite:
    """One write that reached a servo, at this time of the emulator's clock."""

    time_ns: int
    address: int
    data: bytes


class EmulatedServo:
    """A servo of this id with a new one's registers, but for `values` (register name: number).

    Attributes
    ----------
    dead : it neither hears nor answers, as with its plug pulled (its motor goes on as it was told last).
    eeprom_writes : every write into EEPROM, and every `Torque_Enable = 128`, which ends there too.
    writes : the last 10,000 writes of any kind.
    changes : goes up with everything that may change `command`.
    """

    def __init__(self, servo_id: int, values: Mapping[str, int] | None = None) -> None:
        self.id = servo_id
        self.dead = False
        self.changes = 0
        self.eeprom_writes: list[RegisterWrite] = []
        self.writes: deque[RegisterWrite] = deque(maxlen=KEPT_WRITES)
        self.memory = bytearray(MEMORY_BYTES)
        for name, value in {**FACTORY, "ID": servo_id, **(values or {})}.items():
            self.set(name, value)
        self._factory_ram = bytes(self.memory[FIRST_RAM_ADDRESS:])
        self._saved = bytes(self.memory[:FIRST_RAM_ADDRESS])

    # -- registers -------------------------------------------------------------------------------------------

    def get(self, name: str) -> int:
        """The number in a register."""
        return self._number(REGISTERS[name])

    def set(self, name: str, value: int) -> None:
        """Put a number into a register, read-only ones included, without a trace in `writes`."""
        self._store(REGISTERS[name], value)
        self.changes += 1

    def read(self, address: int, length: int) -> bytes:
        """`length` bytes from `address`; zeros beyond the memory."""
        return bytes(self.memory[address : address + length].ljust(length, b"\0"))

    def write(self, address: int, data: bytes, time_ns: int) -> None:
        """What a write instruction does: bytes of read-only registers are let go by."""
        record = RegisterWrite(time_ns, address, bytes(data))
        self.writes.append(record)
        sets_middle = address <= _TORQUE_ENABLE.address < address + len(data) and (
            data[_TORQUE_ENABLE.address - address] == SET_MIDDLE
        )
        if address < FIRST_RAM_ADDRESS or sets_middle:
            self.eeprom_writes.append(record)
        for place, byte in enumerate(data, address):
            if place < MEMORY_BYTES and place not in READ_ONLY:
                self.memory[place] = byte
        if sets_middle:
            self._set_middle()
        if not self._number(_LOCK):
            self._saved = bytes(self.memory[:FIRST_RAM_ADDRESS])
        self._unload()

    def measure(self, state: ServoState) -> None:
        """Put what the servo measures into its registers, as far as they hold it."""
        self._store(_POSITION, state.position)
        self._store(_VELOCITY, _held(_VELOCITY, state.velocity))
        self._store(_LOAD, _held(_LOAD, state.load))
        self._store(_CURRENT, _held(_CURRENT, state.current))
        self._store(_MOVING, int(abs(state.velocity) > MOVING_TICKS_PER_S))
        if state.voltage is not None:
            self._store(_VOLTAGE, _held(_VOLTAGE, state.voltage))
        if state.temperature is not None:
            self._store(_TEMPERATURE, _held(_TEMPERATURE, state.temperature))

    @property
    def command(self) -> ServoCommand:
        """What the registers have the motor do: the goal within the position limits, where there are any."""
        goal = self._number(_GOAL)
        lowest, highest = self._number(_LOWEST), self._number(_HIGHEST)
        if lowest < highest:
            goal = min(max(goal, lowest), highest)
        return ServoCommand(goal, self._number(_TORQUE_ENABLE) == 1, self._number(_TORQUE_LIMIT))

    # -- what happens to it ----------------------------------------------------------------------------------

    @property
    def error(self) -> int:
        """The error byte of its replies."""
        return self._number(_STATUS)

    def raise_flags(self, *names: str) -> None:
        """Set error flags ("overload", "overheat", "voltage", ...; see `ERROR_BITS`)."""
        bits = {name: bit for bit, name in ERROR_BITS.items()}
        self.memory[_STATUS.address] |= sum({bits[name] for name in names})
        self._unload()

    def clear_flags(self) -> None:
        """The trouble is over; torque stays off until it is switched on."""
        self.memory[_STATUS.address] = 0

    def power_cycle(self) -> None:
        """RAM as after switching on, EEPROM as last saved."""
        self.memory[:] = self._saved + self._factory_ram
        self.changes += 1
        self.memory[_STATUS.address] = 0

    def _unload(self) -> None:
        self.changes += 1
        if self.error & self._number(_UNLOADING):
            self.memory[_TORQUE_ENABLE.address] = 0

    def _set_middle(self) -> None:
        actual = (self._number(_POSITION) + self._number(_HOMING)) % TICKS_PER_TURN
        self._store(_HOMING, _held(_HOMING, actual - TICKS_PER_TURN // 2))
        self.memory[_TORQUE_ENABLE.address] = 0

    def _number(self, register: Register) -> int:
        return register.decode(bytes(self.memory[register.address : register.address + register.size]))

    def _store(self, register: Register, value: int) -> None:
        self.memory[register.address : register.address + register.size] = register.encode(value)


def calibrated_servos(
    calibration: Calibration, values: Mapping[str, int] | None = None
) -> list[EmulatedServo]:
    """Servos as LeRobot leaves them after calibrating: homing offset and position limits in their EEPROM, no
    return delay. Of a legacy calibration, which stays in software, they know nothing.
    """
    servos = []
    for motor in calibration.motors:
        own: dict[str, int] = {"Return_Delay_Time": 0}
        if isinstance(motor, Motor):
            own |= {
                "Homing_Offset": motor.homing_offset,
                "Min_Position_Limit": motor.range_min,
                "Max_Position_Limit": motor.range_max,
            }
        servos.append(EmulatedServo(motor.id, {**own, **(values or {})}))
    return servos


def _held(register: Register, value: int) -> int:
    """The number nearest to `value` that the register holds."""
    return min(max(value, register.minimum), register.maximum)
