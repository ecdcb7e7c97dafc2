"""The edge of the command line: draws progress, prints results, turns errors into exit codes."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TextIO, cast

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from hardware.disk import is_full
from hardware.errors import InputError

DONE, FAILED, BAD_INPUT, INTERRUPTED, CLOSED_PIPE, TERMINATED = 0, 1, 2, 130, 141, 143
LOG_EVERY_S = 15.0


@dataclass
class Terminal:
    """Results go to stdout (text, or one JSON object), progress and errors to stderr."""

    as_json: bool = False
    quiet: bool = False
    out: Console = field(default_factory=lambda: Console(highlight=False))
    err: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))

    @property
    def talks(self) -> bool:
        """Whether a person is listening: neither --json nor --quiet."""
        return not (self.as_json or self.quiet)

    def say(self, text: str, head: str = "", style: str = "bold") -> None:
        """A line for a person, `head` before it in `style`; brackets in either are brackets, never markup."""
        if self.talks:
            self.out.print(Text.assemble((head, style), text))

    def note(self, text: str, style: str = "") -> None:
        """A line on stderr about what happens while it happens; silent under --quiet."""
        if not self.quiet:
            self.err.print(Text(text, style=style), soft_wrap=True)

    def result(self, data: dict[str, Any]) -> None:
        """The verb's result for machines, under --json alone; numbers that are not finite are null."""
        if self.as_json:
            written = json.dumps(data, default=_plain)  # JSON has no NaN and no Infinity, Python's has
            standard = json.loads(written, parse_constant=lambda name: None)
            sys.stdout.write(json.dumps(standard, indent=2) + "\n")
            sys.stdout.flush()

    @contextmanager
    def progress(self) -> Iterator[Any]:
        """A callable `progress(done, total, what)`: a bar a job on stderr, or lines where stderr is a log.

        A job begins where the total changes or the count falls back; `what` may change while it runs.
        """
        if self.quiet:
            yield None
            return
        columns = (
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=2)),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        log = not self.err.is_terminal
        with Progress(*columns, console=self.err, refresh_per_second=4, expand=True, disable=log) as bars:
            job = _Job(bars, self.err)
            yield job

    def fail_usage(self, error: Any) -> int:
        """Print what is wrong with the command line itself, with its usage; returns the exit code."""
        text = error.format_message()
        if self.as_json:
            self._tell_error(text, BAD_INPUT)
        else:
            error.show()
        return BAD_INPUT

    def fail(self, error: BaseException) -> int:
        """Print an error as one clear line (or JSON) and return its exit code."""
        code = BAD_INPUT
        if isinstance(error, KeyboardInterrupt):
            text, code = "stopped; run the same command again to go on", INTERRUPTED
        else:
            text = str(error)
        if self.as_json:
            self._tell_error(text, code)
        with suppress(OSError):
            self.err.print(f"jointprobe: {text}", style="bold red", markup=False, soft_wrap=True)
        return code

    @staticmethod
    def _tell_error(text: str, code: int) -> None:
        with suppress(OSError):  # stdout may be what is full
            sys.stdout.write(json.dumps({"error": text, "exit_code": code}) + "\n")
            sys.stdout.flush()


def _plain(value: Any) -> Any:
    """What JSON has no type for: numpy's numbers and arrays as numbers and lists, all else as text."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else str(value)


@contextmanager
def quiet_pipes() -> Iterator[None]:
    """Where whoever reads our output has gone (`jointprobe check RECORDING | head -1`), the process ends as
    other programs do that are told so: silently, and with 141 (128 + SIGPIPE), never with a verdict's 1.

    SIGPIPE itself stays ignored: it would end the process at once, with an arm under torque.
    """
    own = sys.stdout, sys.stderr
    # None where the shell closed it (>&-)
    outputs = [_Output(stream or open(os.devnull, "w")) for stream in own]  # noqa: SIM115
    sys.stdout, sys.stderr = (cast(TextIO, output) for output in outputs)
    try:
        yield
    except BrokenPipeError:  # written past us, to the bytes below the text
        for output in outputs:
            output.drop()
        raise SystemExit(CLOSED_PIPE) from None
    finally:
        sys.stdout, sys.stderr = own
        for output in outputs:
            output.finish()


class _Output:
    """stdout or stderr, whose reader may go away: what is written then ends the process, once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """As a stream's; SystemExit where nobody reads it any more."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self.drop()
            raise SystemExit(CLOSED_PIPE) from None

    def flush(self) -> None:
        """As a stream's; SystemExit where nobody reads it any more."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self.drop()
            raise SystemExit(CLOSED_PIPE) from None

    def finish(self) -> None:
        """Flush, or give up what cannot be written: the interpreter would complain of it at its end."""
        try:
            self.flush()
        except OSError:
            self.drop()

    def drop(self) -> None:
        """What is written from here on, and what still waits, goes nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


class _Job:
    """The job that is running, as a bar or as lines of a log."""

    def __init__(self, bars: Progress, console: Console) -> None:
        self.bars, self.console = bars, console
        self.task: TaskID | None = None
        self.done, self.total, self.logged = 0, -1, 0.0

    def __call__(self, done: int, total: int, what: str) -> None:
        begins = total != self.total or done < self.done
        self.done, self.total = done, total
        if self.console.is_terminal:
            if begins or self.task is None:
                self.task = self.bars.add_task(what, total=total)
            self.bars.update(self.task, description=what, completed=done)
        elif begins or done == total or time.monotonic() - self.logged > LOG_EVERY_S:
            self.logged = time.monotonic()
            self.console.print(f"{what}: {done} of {total}", markup=False, soft_wrap=True)


def expected_errors() -> tuple[type[Exception], ...]:
    """Errors that a person can act on; those of studies only where something has loaded studies at all."""
    studies = sys.modules.get("bars.errors")
    return (InputError,) if studies is None else (InputError, studies.StudyError)


def disk_error(error: OSError) -> InputError:
    """The InputError that an operating-system error amounts to, naming the file."""
    remedy = "free space" if is_full(error) else "check the path and its permissions"
    where = error.filename or "the disk"
    return InputError(where, error.strerror or str(error), f"{remedy}; nothing sealed is lost")
