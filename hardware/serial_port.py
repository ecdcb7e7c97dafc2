"""A serial port held by one program alone, with reads that end at an instant of the monotonic clock.

pyserial opens, configures and locks it; the bytes go through its file descriptor, because a read by
pyserial costs several system calls and cannot end at a given time.
"""

from __future__ import annotations

import errno
import math
import os
import select
import stat
import time
from pathlib import Path
from typing import NoReturn

import serial
from serial.tools import list_ports

from hardware.bus_faults import BusFault, BusLost
from hardware.errors import InputError

_GONE = (errno.EIO, errno.ENXIO, errno.EBADF, errno.ENODEV, errno.EPIPE)
_SPIN_S = 1e-4  # poll counts in whole milliseconds; the rest of the last one is slept in steps of this


class SerialPort:
    """An open port: 8 data bits, no parity, one stop bit, raw.

    Parameters
    ----------
    path : the device, such as /dev/ttyACM0 or its link under /dev/serial/by-id.
    baudrate : in bits a second.

    Attributes
    ----------
    low_latency : whether the driver took the request to hand on bytes at once (FTDI and the like); CDC-ACM
        adapters and ptys have no such switch and need none.

    Raises
    ------
    InputError : no such port (the ones there are are listed), no permission, held by another program, or not
        a serial port.
    """

    def __init__(self, path: str | Path, baudrate: int) -> None:
        self.path, self.baudrate = str(path), baudrate
        self._serial = _opened(self.path, baudrate)
        self._fd: int = self._serial.fd
        self._gone = ""
        self.low_latency = _ask_for_low_latency(self._serial)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def send(self, data: bytes) -> None:
        """Hand all of `data` to the driver; it does not wait for the wire. BusLost, or BusFault `busy` where
        the driver takes no more.
        """
        self._require_here()
        try:
            taken = os.write(self._fd, data)
        except BlockingIOError:
            taken = 0
        except OSError as error:
            self._lose(error)
        if taken < len(data):
            raise BusFault("busy", (), f"{self.path} takes no more bytes: its adapter hangs")

    def pending(self) -> bytes:
        """What has come and was not read yet, without waiting."""
        self._require_here()
        return self._read(4096) if self._readable(0) else b""

    def receive(self, wanted: int, until_ns: int) -> bytes:
        """`wanted` bytes as soon as they are there, or those that have come by `until_ns`."""
        data = self.receive_some(wanted, until_ns)
        while 0 < len(data) < wanted:
            more = self.receive_some(wanted - len(data), until_ns)
            if not more:
                break
            data += more
        return data

    def receive_some(self, most: int, until_ns: int) -> bytes:
        """The next bytes to come, at most `most`, or none where nothing comes until `until_ns`."""
        self._require_here()
        while True:
            left_s = (until_ns - time.monotonic_ns()) / 1e9
            if self._readable(max(0, math.floor(left_s * 1e3))):
                return self._read(most)
            if left_s <= 0:
                return b""
            if left_s < 1e-3:
                time.sleep(min(_SPIN_S, left_s))

    def close(self) -> None:
        """Give the port back; harmless when it is gone or closed already."""
        self._gone = self._gone or "it was closed"
        try:
            self._serial.close()
        except (OSError, serial.SerialException):
            pass

    def _readable(self, wait_ms: int) -> bool:
        events = self._poll.poll(wait_ms)
        if not events:
            return False
        seen = events[0][1]
        if not seen & select.POLLIN:
            self._lose("it hung up")
        return True

    def _read(self, most: int) -> bytes:
        try:
            data = os.read(self._fd, most)
        except BlockingIOError:
            return b""
        except OSError as error:
            self._lose(error)
        if not data:  # readable, and nothing to read: the end of the file
            self._lose("it hung up")
        return data

    def _require_here(self) -> None:
        if self._gone:
            raise BusLost(self.path, self._gone)

    def _lose(self, error: OSError | str) -> NoReturn:
        if isinstance(error, OSError) and error.errno not in _GONE:
            raise error
        self._gone = error if isinstance(error, str) else (error.strerror or "it was unplugged")
        raise BusLost(self.path, self._gone)


def serial_ports() -> list[str]:
    """Serial ports of this machine, by their stable path under /dev/serial/by-id where they have one."""
    stable = {
        os.path.realpath(link): str(link)
        for folder in [Path("/dev/serial/by-id")]
        if folder.is_dir()
        for link in sorted(folder.iterdir())
    }
    return [stable.get(os.path.realpath(port.device), port.device) for port in list_ports.comports()]


def _opened(path: str, baudrate: int) -> serial.Serial:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        found = serial_ports()
        there = f"ports here: {', '.join(found)}" if found else "this machine has no serial port now"
        raise InputError(
            path, "is no serial port of this machine", f"plug the arm's adapter in; {there}"
        ) from None
    if not stat.S_ISCHR(mode):
        raise InputError(path, "is no serial port", "give a device such as /dev/ttyACM0")
    try:
        return serial.Serial(path, baudrate, timeout=0, exclusive=True)
    except (OSError, ValueError) as error:  # SerialException is an OSError
        raise _open_error(path, baudrate, error) from None


def _open_error(path: str, baudrate: int, error: OSError | ValueError) -> InputError:
    number = getattr(error, "errno", None)
    if number in (errno.EACCES, errno.EPERM):
        return InputError(
            path,
            "may not be opened by this user",
            "sudo usermod -aG dialout $USER, then log out and in again",
        )
    if number in (errno.EAGAIN, errno.EBUSY):
        return InputError(
            path,
            f"is in use by {_holder(path)}",
            "one program at a time can talk to the servos: end the other",
        )
    if number in (errno.EIO, errno.ENXIO, errno.ENODEV):
        return InputError(
            path, f"does not open: {os.strerror(number)}", "unplug the adapter and plug it in again"
        )
    if isinstance(error, ValueError):
        return InputError(path, f"does not take {baudrate} baud: {error}", "the SO-101 uses 1000000")
    return InputError(path, f"cannot be used as a serial port: {error}", "give a device such as /dev/ttyACM0")


def _holder(path: str) -> str:
    """Who has `path` open, as far as this user may see."""
    device = os.path.realpath(path)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.path.realpath(link) == device for link in (process / "fd").iterdir()):
                if int(process.name) == os.getpid():
                    return "this program already"
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                return f"process {process.name} ({command.strip()[:80]}), another recorder"
        except OSError:
            continue  # it ended, or it is somebody else's
    return "another program (another recorder?)"


def _ask_for_low_latency(port: serial.Serial) -> bool:
    try:
        port.set_low_latency_mode(True)
    except (OSError, ValueError, AttributeError, NotImplementedError):
        return False
    return True
