"""The emulated servo bus in a process of its own, so that its pacing and its reader share no interpreter.

with ServoBusProcess(partial(ServoBusEmulator, LaggingArm(...), [EmulatedServo(1), ...])) as bus:
    serial.Serial(bus.port, 1_000_000)
    bus.ask("inject", "late", delay_s=0.12)     # calls a method of the emulator in there
    truth = bus.ask("truth")                    # or fetches an attribute
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from sim.servo_bus import ServoBusEmulator

START_TIMEOUT_S = 60.0


class ServoBusProcess:
    """An emulator made by `make()` in a new interpreter; a context manager.

    Parameters
    ----------
    make : picklable, since the process is spawned; the emulator is started there.
    """

    def __init__(self, make: Callable[[], ServoBusEmulator]) -> None:
        self._make = make
        self.port = ""

    def __enter__(self) -> ServoBusProcess:
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._make, theirs), daemon=True)
        self._process.start()
        theirs.close()
        if not self._line.poll(START_TIMEOUT_S):
            self._process.kill()
            raise RuntimeError(f"the emulated bus did not start within {START_TIMEOUT_S:.0f} s")
        self.port = self._answer()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._line.close()  # the end of the line is the end of the process
        self._process.join(10)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()

    def ask(self, what: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of the emulator, or of one of its servos as `servos.3.raise_flags`; of an attribute
        the value.
        """
        self._line.send((what, arguments, named))
        return self._answer()

    def _answer(self) -> Any:
        answer = self._line.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


def _serve(make: Callable[[], ServoBusEmulator], line: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this, who ends it in turn
    emulator = make()
    gc.freeze()  # what was imported needs no looking through; a collection would make a reply late
    with emulator:
        line.send(emulator.port)
        while True:
            try:
                what, arguments, named = line.recv()
            except (EOFError, OSError):  # whoever started this is done, or gone
                return
            try:
                found = _find(emulator, what)
                answer = found(*arguments, **named) if callable(found) else found
            except Exception as error:
                answer = error
            line.send(answer)


def _find(emulator: ServoBusEmulator, path: str) -> Any:
    found: Any = emulator
    for name in path.split("."):
        found = found[int(name)] if isinstance(found, dict) else getattr(found, name)
    return found
