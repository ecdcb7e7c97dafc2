"""A serial port that is a pty: bytes come out of it when they are due, and it can be unplugged.

One thread does everything: it hands over what the other side writes, and writes what was scheduled.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import queue
import select
import shutil
import tempfile
import threading
import time
import tty
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

SPIN_NS = 200_000  # the last stretch before something is due, and the first after it, is waited for awake
READ_BYTES = 4096
ASK_TIMEOUT_S = 30.0


class EmulatedPort:
    """The port at `path`, served by a thread from `start` to `stop`.

    Parameters
    ----------
    receive : called with what the other side wrote and when it was read (CLOCK_MONOTONIC).
    awake : whether the thread waits awake for up to 200 us around each delivery, to be on time.

    Attributes
    ----------
    dropped_bytes : bytes that the reader's full input had no room for.
    """

    def __init__(self, receive: Callable[[bytes, int], None], awake: bool) -> None:
        self.dropped_bytes = 0
        self._receive, self._awake = receive, awake
        self._in_flight: list[tuple[int, int, bytes]] = []  # heap of (due, order, bytes)
        self._scheduled = 0
        self._awake_until_ns = 0
        self._master = self._slave = -1
        self._folder: Path | None = None
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future]] = queue.SimpleQueue()
        self._wake_read = self._wake_write = -1
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._failure: BaseException | None = None

    @property
    def path(self) -> str:
        """What to open; the same after unplugging and plugging in again."""
        if self._folder is None:
            raise RuntimeError("the port has not been started")
        return str(self._folder / "servo-bus")

    def start(self) -> None:
        """Open the port and serve it."""
        self._folder = Path(tempfile.mkdtemp(prefix="jointprobe-bus-"))
        self._wake_read, self._wake_write = os.pipe()
        self._plug_in()
        self._thread = threading.Thread(target=self._serve, name="emulated-port", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port; RuntimeError from whatever ended the thread before, where something did."""
        if self._thread is None:
            return
        self._stopping = True
        os.write(self._wake_write, b"x")
        self._thread.join()
        self._thread = None
        os.close(self._wake_read)
        os.close(self._wake_write)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._failure is not None:
            raise RuntimeError("the emulated port broke down") from self._failure

    def schedule(self, due_ns: int, data: bytes) -> None:
        """Have these bytes arrive at this time; only from `receive`, in the port's own thread."""
        heapq.heappush(self._in_flight, (due_ns, self._scheduled, data))
        self._scheduled += 1

    def ask(self, what: Callable[[], Any]) -> Any:
        """Have the port's thread do this between two deliveries; returns what it returned."""
        if self._thread is None or not self._thread.is_alive():
            return what()
        future: Future = Future()
        self._asked.put((what, future))
        os.write(self._wake_write, b"x")
        return future.result(timeout=ASK_TIMEOUT_S)

    def unplug(self) -> None:
        """Hang the reader's end up, as a USB adapter's driver does, and take the path away."""
        self.ask(self._pull_out)

    def plug_in(self) -> None:
        """Be back at the same path."""
        self.ask(self._plug_in)

    def _plug_in(self) -> None:
        if self._master >= 0:
            return
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)  # else the line discipline would echo our own bytes until a driver opens it
        os.set_blocking(self._master, False)
        Path(self.path).symlink_to(os.ttyname(self._slave))

    def _pull_out(self) -> None:
        if self._master < 0:
            return
        Path(self.path).unlink(missing_ok=True)
        os.close(self._slave)
        os.close(self._master)
        self._master = self._slave = -1
        self._in_flight.clear()

    # -- the thread ------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while not self._stopping:
                now_ns = time.monotonic_ns()
                self._deliver(now_ns)
                if self._wait(now_ns):
                    self._listen()
        except BaseException as failure:  # told by stop(); the reader sees an unplugged port
            self._failure = failure
        finally:
            self._pull_out()

    def _deliver(self, now_ns: int) -> None:
        """Write what is due by now."""
        due = bytearray()
        while self._in_flight and self._in_flight[0][0] <= now_ns:
            due += heapq.heappop(self._in_flight)[2]
        if due:
            self._awake_until_ns = now_ns + SPIN_NS
            written = 0
            with contextlib.suppress(BlockingIOError):
                written = os.write(self._master, due)
            self.dropped_bytes += len(due) - written

    def _wait(self, now_ns: int) -> bool:
        """Until there is something to read or to do; whether the port may be readable."""
        due_ns = self._in_flight[0][0] if self._in_flight else None
        near = now_ns < self._awake_until_ns or (due_ns is not None and due_ns - now_ns < SPIN_NS)
        if self._awake and near and self._master >= 0 and self._asked.empty():
            return True
        early_ns = SPIN_NS if self._awake else 0
        timeout_s = None if due_ns is None else max(due_ns - now_ns - early_ns, 0) / 1e9
        ports = [self._master] if self._master >= 0 else []
        readable, _, _ = select.select([*ports, self._wake_read], [], [], timeout_s)
        if self._wake_read in readable:
            os.read(self._wake_read, READ_BYTES)
            self._do_what_was_asked()
        return bool(ports) and self._master == ports[0] and self._master in readable

    def _do_what_was_asked(self) -> None:
        while not self._asked.empty():
            what, future = self._asked.get()
            try:
                future.set_result(what())
            except Exception as error:
                future.set_exception(error)

    def _listen(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._master, READ_BYTES)
            self._receive(data, time.monotonic_ns())
