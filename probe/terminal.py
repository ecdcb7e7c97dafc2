"""The edge of the command line: draws progress, prints results, turns errors into exit codes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

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

DONE, FAILED, BAD_INPUT, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143
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
        """The verb's result for machines, printed under --json alone."""
        if self.as_json:
            sys.stdout.write(json.dumps(data, indent=2, default=str) + "\n")
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
        with Progress(*columns, console=self.err, refresh_per_second=4, expand=True) as bars:
            job = _Job(bars, self.err)
            yield job

    def fail_usage(self, error: Any) -> int:
        """Print what is wrong with the command line itself, with its usage; returns the exit code."""
        text = error.format_message()
        if self.as_json:
            sys.stdout.write(json.dumps({"error": text, "exit_code": BAD_INPUT}) + "\n")
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
            sys.stdout.write(json.dumps({"error": text, "exit_code": code}) + "\n")
        self.err.print(f"jointprobe: {text}", style="bold red", markup=False, soft_wrap=True)
        return code


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
