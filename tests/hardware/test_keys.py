"""Keys are read from a real terminal (a pty), arrive at once, and leave the terminal as it was."""

from __future__ import annotations

import os
import pty
import select
import sys
import time

CHILD = """
import sys, termios, time
from hardware.keys import Keys
pressed = []
before = termios.tcgetattr(0)
with Keys(pressed.append) as keys:
    print("ready", flush=True)
    until = time.monotonic() + 20
    while "q" not in pressed and time.monotonic() < until:
        time.sleep(0.01)
print("pressed", "".join(pressed).encode(), termios.tcgetattr(0) == before, flush=True)
"""


def read_until(fd: int, word: bytes, seconds: float = 30.0) -> bytes:
    text, until = b"", time.monotonic() + seconds
    while word not in text and time.monotonic() < until:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                text += os.read(fd, 4096)
            except OSError:  # the child has gone
                break
    return text


def test_single_keys_arrive_without_enter_and_the_terminal_is_put_back() -> None:
    child, fd = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", CHILD])
    assert b"ready" in read_until(fd, b"ready")
    os.write(fd, b" rq")
    said = read_until(fd, b"True\r\n")
    os.waitpid(child, 0)
    assert b"pressed b' rq' True" in said, said


def test_without_a_terminal_there_are_no_keys() -> None:
    import subprocess

    code = "from hardware.keys import Keys\nwith Keys(print): print(Keys.available())"
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.stdout == "False\n", done.stderr
