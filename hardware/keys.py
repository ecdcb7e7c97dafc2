"""Single key presses from the terminal the recorder was started in: they work over SSH as on the desk."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable
from typing import Any


class Keys:
    """Calls `pressed(key)` from a thread for each key, while the block lasts; nothing without a terminal.

    The terminal is left in cbreak mode, so Ctrl-C still is SIGINT, and is put back at the end.
    """

    def __init__(self, pressed: Callable[[str], None]) -> None:
        self._pressed = pressed
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._before: list[Any] | None = None

    @staticmethod
    def available() -> bool:
        """Whether there is a terminal in the foreground to read keys from."""
        try:
            return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
        except (OSError, ValueError, AttributeError):
            return False

    def __enter__(self) -> Keys:
        if self.available():
            self._fd = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
            self._thread = threading.Thread(target=self._read, name="keys", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(1.0)
        if self._before is not None:
            with contextlib.suppress(termios.error, OSError):  # the terminal has gone
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def _read(self) -> None:
        while not self._stop.is_set():
            ready, _, _ = select.select([self._fd], [], [], 0.1)
            if ready:
                try:
                    text = os.read(self._fd, 32)
                except OSError:
                    return
                if not text:  # the terminal has gone
                    return
                for key in text.decode(errors="ignore"):
                    self._pressed(key)
