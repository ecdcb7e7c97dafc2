"""The reader's end of an emulated servo bus in its plainest form, for tests of what lies behind it."""

from __future__ import annotations

import os
import select
import tty
from collections.abc import Sequence

import numpy as np

from hardware.calibration import Calibration
from hardware.servo_protocol import PING as PING_CODE
from hardware.servo_protocol import instruction, parse_status, sync_read, sync_write
from hardware.servo_table import BLOCK_FIRST, REGISTERS
from hardware.so101 import JOINT_NAMES, MIDDLE_RAD

HANG_S = 30.0
_SIZE = 15  # 56 to 70


class RawBus:
    """Reads and commands the six servos of one calibration; a context manager."""

    def __init__(self, port: str, calibration: Calibration) -> None:
        self.calibration = calibration
        self.ids = [calibration.motor(name).id for name in JOINT_NAMES]
        self.fd = os.open(port, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self.fd)

    def receive(self, count: int, within_s: float = HANG_S) -> bytes:
        """`count` bytes, or fewer where they do not come."""
        data = b""
        while len(data) < count and select.select([self.fd], [], [], within_s)[0]:
            data += os.read(self.fd, count - len(data))
        return data

    def read(self) -> dict[str, np.ndarray]:
        """What the block holds of each servo, by register, int [6]; `error` is the error bytes."""
        os.write(self.fd, sync_read(self.ids, BLOCK_FIRST, _SIZE))
        data = self.receive((_SIZE + 6) * len(self.ids))
        replies = [parse_status(data[(_SIZE + 6) * n :], number, _SIZE) for n, number in enumerate(self.ids)]
        names = [name for name in REGISTERS if name.startswith("Present_") or name in ("Moving", "Status")]
        values = {name: np.array([_number(name, reply.params) for reply in replies]) for name in names}
        return {**values, "error": np.array([reply.error for reply in replies])}

    def position(self) -> np.ndarray:
        """Angles in the model's frame, rad, float64 [6]."""
        ticks = self.read()["Present_Position"].astype(float)[None]
        return self.calibration.to_radians(ticks, "ticks", list(JOINT_NAMES))[0] + MIDDLE_RAD

    def write(self, name: str, values: Sequence[int]) -> None:
        """Put a number into the same register of each servo."""
        register = REGISTERS[name]
        data = {number: register.encode(int(value)) for number, value in zip(self.ids, values, strict=True)}
        os.write(self.fd, sync_write(register.address, data))

    def send(self, target: np.ndarray) -> None:
        """Goals in the model's frame, rad, [6]."""
        ticks = self.calibration.from_radians((target - MIDDLE_RAD)[None], "ticks", list(JOINT_NAMES))[0]
        self.write("Goal_Position", np.round(ticks).astype(int).tolist())

    def torque(self, on: bool) -> None:
        """Of all six."""
        self.write("Torque_Enable", [int(on)] * len(self.ids))

    def answers(self, servo_id: int) -> bool:
        """Whether a servo answers a ping."""
        os.write(self.fd, instruction(servo_id, PING_CODE))
        return len(self.receive(6, 0.5)) == 6

    def __enter__(self) -> RawBus:
        return self

    def __exit__(self, *_exception: object) -> None:
        os.close(self.fd)


def _number(name: str, block: bytes) -> int:
    register = REGISTERS[name]
    start = register.address - BLOCK_FIRST
    return register.decode(block[start : start + register.size])
