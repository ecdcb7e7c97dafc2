"""A module of ours running in a process of its own, spoken to in JSON lines: what its fronts share.

The child's standard input is its life line: it ends when that closes, so nothing is left behind when this
process is killed. What it writes to standard error is kept, and its last line becomes the error of the front.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any

from hardware.errors import InputError

_PATIENCE_S = 5.0  # for a child that was told to end, before it is killed


class JsonProcess:
    """Starts `python -m MODULE` and waits for its first line.

    Parameters
    ----------
    module : to run, "sim.twin".
    arguments : of its command line.
    name : what errors call it, "the twin".
    start_s : how long its first line may take.

    Attributes
    ----------
    hello : the first line, an object.
    pid : of the process.

    Raises
    ------
    InputError : when it ends before its first line, with the last line of its standard error; or when that
        line does not come in time.
    """

    def __init__(self, module: str, arguments: Sequence[str], name: str, start_s: float) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._unread = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-c", _run_as_here(module), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for this process, which then ends the other in its own time
        )
        self.pid = self._process.pid
        try:
            self.hello = self._read(start_s)
        except BaseException:
            self.close()
            raise

    def ask(self, request: dict[str, Any], within_s: float) -> dict[str, Any]:
        """Send one object and return the answer to it.

        Raises
        ------
        InputError : when the process has ended, does not answer within `within_s`, or answers with an
            `error`; one that did not answer in time is ended, as its answers would no longer fit the
            questions.
        """
        with self._lock:
            if self._process.stdin is None or self._process.stdin.closed:
                raise InputError(self.name, "has been closed", "start another one")
            try:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
            except OSError as error:
                raise self._ended() from error
            answer = self._read(within_s)
        if "error" in answer:
            raise InputError(self.name, str(answer["error"]), str(answer.get("remedy", "")))
        return answer

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process; a second call does nothing."""
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:
                pass  # a pipe whose reader is gone
        for end in (None, self._process.terminate, self._process.kill):
            if end is not None:
                end()
            try:
                self._process.wait(_PATIENCE_S)
                break
            except subprocess.TimeoutExpired:
                continue
        self._errors.close()

    def _read(self, within_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        deadline = time.monotonic() + within_s
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([self._process.stdout], [], [], left)[0]
            if not ready:
                self._process.kill()
                raise InputError(
                    self.name,
                    f"did not answer within {within_s:.0f} s",
                    "try again when the machine is less busy",
                )
            received = os.read(self._process.stdout.fileno(), 1 << 16)
            if not received:
                raise self._ended()
            self._unread += received
        line, self._unread = self._unread.split(b"\n", 1)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise InputError(self.name, f"answered {line[:80]!r}, which is no JSON object")
        return answer

    def _ended(self) -> InputError:
        """What to say of a process that is gone."""
        try:
            code: int | None = self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            code = None
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        problem = said[-1][:300] if said else f"ended with exit code {code}"
        return InputError(self.name, problem, "" if said else "start it again")

    def __enter__(self) -> JsonProcess:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _run_as_here(module: str) -> str:
    """Python code that runs a module as -m would, finding modules where this process finds them and not in
    whatever folder it was started from.
    """
    start = f"import runpy, sys; sys.path[:] = {sys.path!r}"
    return f"{start}; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
