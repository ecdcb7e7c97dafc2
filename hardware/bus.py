"""The servo bus of an SO-101: all that six servos know about themselves in one transaction, and no value
that is another transaction's.

The protocol does not number its packets, so a reply that comes too late looks like the answer to the next
question. (The vendor's SDK takes it for that, for ever after: each reading is then one transaction old.)
Here it cannot:

- Every reply is checked: header, id, length, checksum, and each servo in its turn.
- Consecutive reads ask for other numbers of bytes (a block starts at register 56 or 55), and none asks for
  as many as one that failed in the last half second, see `hardware/read_lengths.py`: a late reply shows
  itself by its length. Where nothing answers, questions are spaced so that a length is left for each.
- After a failed transaction nothing is sent until the line has been silent for `silence_s`; what comes
  meanwhile is thrown away and counted.
- A late reply that still fitted would push the true one behind the end, where no byte may come: `confirm`
  says whether the line stayed silent behind the last block, and only then the block counts.

Retries end at the deadline. EEPROM is never written, and nothing at all unless `write` or `sync_write` is
called.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from hardware import servo_protocol as protocol
from hardware.bus_faults import BUS_FAULT_KINDS, BusFault, BusLost
from hardware.errors import InputError
from hardware.read_lengths import ReadLengths
from hardware.serial_port import SerialPort, serial_ports
from hardware.servo_replies import BLOCK_SIZE, BlockRead, diagnosis, parse_block, sound
from hardware.servo_table import BLOCK_LAST, FIRST_RAM_ADDRESS, REGISTERS, Register

__all__ = ["BUS_FAULT_KINDS", "BlockRead", "BusFault", "BusLost", "ServoBus", "serial_ports"]

PATIENT_MARGIN_S = 0.05  # where there is no deadline: the machine may be busy, and nobody is in a hurry
NOISE_S = 0.02  # how much longer than `silence_s` silence is waited for where there is no deadline
_ACKNOWLEDGEMENT = 0  # bytes of its params

T = TypeVar("T")


class ServoBus:
    """STS3215 servos on one serial port, which it holds alone. One thread may use it at a time.

    Parameters
    ----------
    port : the device.
    baudrate : of the servos; an SO-101 runs at 1 Mbaud.
    margin_s : how much longer than its time on the wire a transaction with a deadline may take (USB, the
        servos' thinking); others wait longer.
    silence_s : how long the line must have been silent after a failure.
    tries : of one transaction; fewer where the deadline does not allow them.

    Attributes
    ----------
    faults : how many of each kind (see `hardware.bus_faults`) there were, retried ones included.
    discarded : bytes thrown away.
    return_delay_s : what the servos are set to wait before they answer; whoever knows it says it here.

    Raises
    ------
    InputError : the port cannot be opened, see `SerialPort`.
    """

    def __init__(
        self,
        port: str | Path,
        baudrate: int = 1_000_000,
        *,
        margin_s: float = 0.003,
        silence_s: float = 0.002,
        tries: int = 3,
    ) -> None:
        self._port = SerialPort(port, baudrate)
        self.port, self.baudrate = self._port.path, baudrate
        self.margin_s, self.silence_s, self.tries = margin_s, silence_s, tries
        self.return_delay_s = 0.0
        self.faults: Counter[str] = Counter()
        self.discarded = 0
        self._lengths = ReadLengths()
        self._length = _ACKNOWLEDGEMENT  # of the last transaction
        self._quarantined = True  # nobody knows what a program before us has asked
        self._heard_ns = time.monotonic_ns()  # until when the line was not silent
        self._doubtful = False
        self._unanswered = b""  # sync writes sent, whose echo may still come
        self._echo_until_ns = 0

    # -- reading -----------------------------------------------------------------------------------------

    def read_block(self, ids: Sequence[int], deadline_ns: int | None = None) -> BlockRead:
        """Position, velocity, load, voltage, temperature, status, moving and current of `ids`, in one
        transaction.

        The values count once `confirm` has said so, before the next transaction.

        Parameters
        ----------
        ids : servo ids, in the order wanted.
        deadline_ns : of CLOCK_MONOTONIC; neither a try nor the wait for silence goes beyond it. None: as many
            tries as the bus has, however long they take.

        Raises
        ------
        BusFault : of the last try.
        BusLost : the port is gone.
        """
        wanted = tuple(ids)
        self._doubtful = True
        block = self._tried(lambda: self._block(wanted, deadline_ns), deadline_ns)
        self._doubtful = False
        return block

    def confirm(self) -> bool:
        """Whether the line stayed silent since the last block, so that the block counts. BusLost."""
        stray = self._port.pending()
        if stray:
            self._take_stray(stray)
        return not self._doubtful

    def read(self, servo_id: int, name: str) -> int:
        """The number in one register. BusFault, BusLost."""
        return self.read_registers(servo_id, (name,))[name]

    def read_registers(self, servo_id: int, names: Sequence[str]) -> dict[str, int]:
        """The numbers in several registers, all EEPROM or all RAM, in one transaction. BusFault, BusLost."""
        registers = [REGISTERS[name] for name in names]
        first = min(register.address for register in registers)
        last = max(register.address + register.size - 1 for register in registers)
        if (first < FIRST_RAM_ADDRESS) != (last < FIRST_RAM_ADDRESS):
            raise ValueError(f"{', '.join(names)} lie partly in EEPROM and partly in RAM")
        start, data = self._tried(lambda: self._bytes(servo_id, first, last + 1 - first))
        return {
            register.name: register.decode(data[register.address - start :][: register.size])
            for register in registers
        }

    def ping(self, servo_id: int) -> int | None:
        """The servo's model number, or None where no sound answer comes. BusLost.

        It reads the number: the answer to a ping instruction cannot be told from the echo of it where the
        servo reports its voltage.
        """
        try:
            return self.read(servo_id, "Model_Number")
        except BusLost:
            raise
        except BusFault:
            return None

    # -- writing -----------------------------------------------------------------------------------------

    def write(self, servo_id: int, name: str, value: int) -> int:
        """Store `value`, wait for the servo's acknowledgement and read it back.

        Returns
        -------
        The error byte of the acknowledgement.

        Raises
        ------
        InputError : `name` is EEPROM or not to be written, or does not take `value`.
        BusFault : no acknowledgement, or kind `refused`: the servo does not hold the value.
        """
        register = _writable(name)
        packet = protocol.write(servo_id, register.address, register.encode(value))
        error = self._tried(lambda: self._acknowledged(servo_id, packet))
        held = self.read(servo_id, name)
        if held != value:
            message = f"servo {servo_id} holds {held} in {name}, not the {value} sent to it"
            raise self._counted(BusFault("refused", (servo_id,), message))
        return error

    def sync_write(self, name: str, values: Mapping[int, int]) -> None:
        """Store a value in each servo of `values` (by id), all at once; no servo acknowledges.

        Raises
        ------
        InputError : as in `write`, before anything is sent.
        BusFault : kind `busy`, the line does not fall silent.
        BusLost : the port is gone.
        """
        register = _writable(name)
        packet = protocol.sync_write(
            register.address, {servo_id: register.encode(value) for servo_id, value in values.items()}
        )
        try:
            self._await_silence(None)
            self._send(packet)
        except BusLost:
            raise
        except BusFault as fault:
            raise self._counted(fault) from None
        self._unanswered += packet
        wire_s = protocol.wire_time_s(len(self._unanswered), self.baudrate)
        self._echo_until_ns = time.monotonic_ns() + round((wire_s + self.margin_s) * 1e9)

    def close(self) -> None:
        """Give the port back. What was written to the servos stays."""
        self._port.close()

    def __enter__(self) -> ServoBus:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- one transaction ---------------------------------------------------------------------------------

    def _block(self, ids: tuple[int, ...], deadline_ns: int | None) -> BlockRead:
        length, free_ns = self._lengths.next(BLOCK_SIZE, BLOCK_LAST + 1 - FIRST_RAM_ADDRESS)
        packet = protocol.sync_read(ids, BLOCK_LAST + 1 - length, length)
        data, start_ns, end_ns = self._exchange(packet, ids, length, deadline_ns, free_ns)
        return parse_block(data, length, start_ns, end_ns)

    def _bytes(self, servo_id: int, address: int, size: int) -> tuple[int, bytes]:
        """`size` bytes from `address` and some of their neighbours; the first one's address comes along."""
        ram = address >= FIRST_RAM_ADDRESS
        first, last = (FIRST_RAM_ADDRESS, BLOCK_LAST) if ram else (0, FIRST_RAM_ADDRESS - 1)
        length, free_ns = self._lengths.next(size, last + 1 - first)
        start = min(address, last + 1 - length)
        packet = protocol.read(servo_id, start, length)
        data, _, _ = self._exchange(packet, (servo_id,), length, None, free_ns)
        return start, data[5:-1]

    def _acknowledged(self, servo_id: int, packet: bytes) -> int:
        data, _, _ = self._exchange(packet, (servo_id,), _ACKNOWLEDGEMENT, None)
        return data[4]

    def _exchange(
        self,
        packet: bytes,
        ids: tuple[int, ...],
        length: int,
        deadline_ns: int | None,
        not_before_ns: int = 0,
    ) -> tuple[bytes, int, int]:
        """Send `packet` when its time has come; return the sound replies of `ids`, and the times before
        sending and after the last byte.
        """
        wanted = len(ids) * (protocol.STATUS_OVERHEAD + length)
        wire_s = protocol.wire_time_s(len(self._unanswered) + len(packet) + wanted, self.baudrate)
        need_ns = round((wire_s + len(ids) * self.return_delay_s) * 1e9)
        self._await_silence(deadline_ns, need_ns, not_before_ns)
        self._length = length
        if length:
            self._lengths.used(length)
        start_ns = time.monotonic_ns()
        if deadline_ns is None:
            until_ns = start_ns + need_ns + round(max(self.margin_s, PATIENT_MARGIN_S) * 1e9)
        else:
            until_ns = min(start_ns + need_ns + round(self.margin_s * 1e9), deadline_ns)
        self._send(packet)
        data = self._port.receive(wanted, until_ns)
        for sent in (self._unanswered, packet):
            if sent and data and data[: len(sent)] == sent[: len(data)]:
                data = self._without_echo(data, sent, until_ns)
        end_ns = time.monotonic_ns()
        if not sound(data, ids, length):
            # An answer is still on its way until its time on the wire is over.
            self._heard_ns = max(end_ns if data else 0, start_ns + need_ns)
            self._fail(data, ids, length)
        self._heard_ns = end_ns
        self._unanswered = b""
        self._lengths.answered()
        return data, start_ns, end_ns

    def _send(self, packet: bytes) -> None:
        try:
            self._port.send(packet)
        except BusFault:
            self._quarantined = True  # part of it may have gone out
            raise

    def _without_echo(self, data: bytes, sent: bytes, until_ns: int) -> bytes:
        """`data` without the instruction that the adapter sent back, filled up again."""
        whole = data + self._port.receive(len(sent), until_ns)
        if not whole.startswith(sent):
            return whole
        self.faults["echo"] += 1
        return whole[len(sent) :]

    def _fail(self, data: bytes, ids: tuple[int, ...], length: int) -> NoReturn:
        kind, silent, message = diagnosis(data, ids, length)
        self.discarded += len(data)
        self._quarantined = True
        self._unanswered = b""
        self._lengths.failed(length)
        raise self._counted(BusFault(kind, silent, message))

    def _counted(self, fault: BusFault) -> BusFault:
        self.faults[fault.kind] += 1
        return fault

    def _tried(self, once: Callable[[], T], deadline_ns: int | None = None) -> T:
        """`once` until it succeeds, or the tries or the time end; then the last fault is raised."""
        last: BusFault | None = None
        for _ in range(self.tries):
            try:
                return once()
            except BusLost:
                raise
            except BusFault as fault:
                if fault.kind == "busy":
                    # No time for another try: then it is the first one's fault that is told.
                    last = last or self._counted(fault)
                    break
                last = fault  # counted where it was found
                if deadline_ns is not None and time.monotonic_ns() >= deadline_ns:
                    break
        assert last is not None
        raise last

    # -- silence -----------------------------------------------------------------------------------------

    def _take_stray(self, stray: bytes) -> None:
        """Bytes that nobody waits for: the echo of a sync write is harmless, all else makes the last block
        doubtful.
        """
        self._heard_ns = time.monotonic_ns()
        if self._unanswered.startswith(stray):
            self._unanswered = self._unanswered[len(stray) :]
            if not self._unanswered:
                self.faults["echo"] += 1
            return
        self.discarded += len(stray)
        if not self._quarantined:
            self.faults["late"] += 1
            self._quarantined = True
            self._lengths.failed(self._length)
        self._doubtful = True

    def _await_silence(self, deadline_ns: int | None, need_ns: int = 0, not_before_ns: int = 0) -> None:
        """Take what lies in the input, and go on doing so until `not_before_ns`; after a failure also until
        nothing has come for `silence_s`.

        BusFault `busy` where that leaves less than `need_ns` before the deadline.
        """
        stray = self._port.pending()
        if stray:
            self._take_stray(stray)
        now_ns = time.monotonic_ns()
        if now_ns > self._echo_until_ns:
            self._unanswered = b""
        patience_ns = round((self.silence_s + NOISE_S) * 1e9)
        end_ns = max(now_ns, not_before_ns) + patience_ns if deadline_ns is None else deadline_ns - need_ns
        while True:
            silent_ns = self._heard_ns + round(self.silence_s * 1e9) if self._quarantined else 0
            if not_before_ns > max(end_ns, silent_ns):
                raise BusFault(
                    "busy", (), "nothing was asked: the last reads have failed, and late answers may come"
                )
            if silent_ns > end_ns:
                raise BusFault("busy", (), "the line did not fall silent in time")
            if now_ns > end_ns:
                raise BusFault("busy", (), "no time was left to ask the servos")
            ready_ns = max(silent_ns, not_before_ns)
            if now_ns >= ready_ns:
                self._quarantined = False
                return
            stray = self._port.receive_some(4096, ready_ns)
            if stray:
                self._take_stray(stray)
            now_ns = time.monotonic_ns()


def _writable(name: str) -> Register:
    register = REGISTERS[name]
    if not register.writable:
        what = "is EEPROM" if register.eeprom else "is no command register"
        raise InputError(name, f"{what}: jointprobe never writes it", "change it with the maker's own tool")
    return register
