"""Servos of a few lines behind a real pty, whose replies a test scripts byte by byte."""

from __future__ import annotations

import heapq
import os
import select
import threading
import time
import tty
from collections import deque
from collections.abc import Callable, Sequence

from hardware import servo_protocol as protocol
from hardware.servo_table import REGISTERS

Reply = tuple[float, bytes]  # seconds from now, and what comes then
Script = Callable[[bytes, list[bytes]], Sequence[Reply]]
"""From an instruction and the sound replies to it (one a servo) to what really comes."""

EEPROM = {
    "Firmware_Major_Version": 3,
    "Firmware_Minor_Version": 10,
    "Model_Number": 777,
    "Response_Status_Level": 1,
    "Max_Position_Limit": 4095,
    "Max_Temperature_Limit": 70,
    "Max_Voltage_Limit": 80,
    "Min_Voltage_Limit": 40,
    "Max_Torque_Limit": 1000,
}
PRESENT = {
    "Torque_Limit": 1000,
    "Present_Position": 2048,
    "Present_Voltage": 74,
    "Present_Temperature": 31,
}


def sound(_: bytes, replies: list[bytes]) -> list[Reply]:
    return [(0.0, reply) for reply in replies]


def nothing(_: bytes, replies: list[bytes]) -> list[Reply]:
    return []


def late(seconds: float, which: slice = slice(None)) -> Script:
    """Those replies come so much later."""

    def script(_: bytes, replies: list[bytes]) -> list[Reply]:
        delayed = replies[which]
        return [(seconds if reply in delayed else 0.0, reply) for reply in replies]

    return script


class PtyServos:
    """Use as a context manager; `port` is what the driver opens.

    Attributes
    ----------
    memory : the registers of each servo, by id.
    errors : the error byte each servo puts into its replies.
    silent : ids that do not answer.
    script : what happens to the next instructions, one each; `always` to those after.
    on_sync_read : called before each sync read is answered.
    instructions : all that came whole: (id, code, params).
    """

    def __init__(self, ids: Sequence[int] = (1, 2, 3, 4, 5, 6)) -> None:
        self.memory = {servo_id: bytearray(87) for servo_id in ids}
        self.errors = dict.fromkeys(ids, 0)
        self.silent: set[int] = set()
        self.script: deque[Script] = deque()
        self.always: Script = sound
        self.on_sync_read: Callable[[], None] = lambda: None
        self.instructions: list[tuple[int, int, bytes]] = []
        self.frozen: dict[tuple[int, str], int] = {}  # registers that take no value
        for servo_id in ids:
            self.set(servo_id, ID=servo_id, **EEPROM, **PRESENT)
        self._master, slave = os.openpty()
        # While nobody has the other end open the port is "readable" (it hung up). If a driver opens it before
        # we read there is nothing to read after all, and a read that waits would wait for ever.
        os.set_blocking(self._master, False)
        tty.setraw(slave)
        self.port = os.ttyname(slave)
        os.close(slave)
        self._wake, self._stop = os.pipe()
        self._due: list[tuple[float, int, bytes]] = []
        self._count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def set(self, servo_id: int, **values: int) -> None:
        for name, value in values.items():
            register = REGISTERS[name]
            data = value.to_bytes(register.size, "little") if value >= 0 else register.encode(value)
            self.memory[servo_id][register.address : register.address + register.size] = data

    def get(self, servo_id: int, name: str) -> int:
        register = REGISTERS[name]
        return register.decode(bytes(self.memory[servo_id][register.address :][: register.size]))

    @property
    def written(self) -> list[tuple[int, int, bytes]]:
        """Instructions that store something."""
        return [entry for entry in self.instructions if entry[1] in (protocol.WRITE, protocol.SYNC_WRITE)]

    def say(self, data: bytes) -> None:
        """Bytes that nobody asked for."""
        os.write(self._master, data)

    def halt(self) -> None:
        """Neither read nor answer any more; the port stays."""
        if self._thread.is_alive():
            os.write(self._stop, b"x")
            self._thread.join()

    def unplug(self) -> None:
        """The port goes."""
        self.halt()
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def __enter__(self) -> PtyServos:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.unplug()
        os.close(self._wake)
        os.close(self._stop)

    def _run(self) -> None:
        pending = b""
        while True:
            wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            try:
                ready, _, _ = select.select([self._master, self._wake], [], [], wait)
                if self._wake in ready:
                    return
                if ready:
                    pending = self._take(pending + os.read(self._master, 4096))
            except OSError:  # nobody has the other end open, or nothing has come after all
                time.sleep(0.001)
            while self._due and self._due[0][0] <= time.monotonic():
                os.write(self._master, heapq.heappop(self._due)[2])

    def _take(self, data: bytes) -> bytes:
        while len(data) >= 4 and len(data) >= data[3] + 4:
            packet, data = data[: data[3] + 4], data[data[3] + 4 :]
            assert packet[:2] == b"\xff\xff" and protocol.checksum(packet[2:-1]) == packet[-1]
            self.instructions.append((packet[2], packet[4], packet[5:-1]))
            replies = self._answers(packet[2], packet[4], packet[5:-1])
            script = self.script.popleft() if self.script else self.always
            for delay, reply in script(packet, replies):
                self._count += 1
                heapq.heappush(self._due, (time.monotonic() + delay, self._count, reply))
        return data

    def _answers(self, servo_id: int, code: int, params: bytes) -> list[bytes]:
        if code == protocol.SYNC_READ:
            self.on_sync_read()
            return [self._read(one, params[0], params[1]) for one in params[2:] if self._hears(one)]
        if code == protocol.SYNC_WRITE:
            stride = params[1] + 1
            for at in range(2, len(params), stride):
                self._store(params[at], params[0], params[at + 1 : at + stride])
            return []
        if not self._hears(servo_id):
            return []
        if code == protocol.READ:
            return [self._read(servo_id, params[0], params[1])]
        if code == protocol.WRITE:
            self._store(servo_id, params[0], params[1:])
        return [protocol.status(servo_id, self.errors[servo_id])]

    def _hears(self, servo_id: int) -> bool:
        return servo_id in self.memory and servo_id not in self.silent

    def _read(self, servo_id: int, address: int, size: int) -> bytes:
        data = bytes(self.memory[servo_id][address : address + size])
        return protocol.status(servo_id, self.errors[servo_id], data)

    def _store(self, servo_id: int, address: int, data: bytes) -> None:
        self.memory[servo_id][address : address + len(data)] = data
        for (one, name), value in self.frozen.items():
            self.set(one, **{name: value})
