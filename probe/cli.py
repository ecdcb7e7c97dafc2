"""`jointprobe VERB`: each verb is one function that a notebook can call as well.

The verbs lie in *_verbs.py; this file runs them and turns errors into exit codes:
0 done, 1 a check or a verification failed, 2 bad input, 141 nobody reads the output any more. Heavy modules
are imported inside the verbs, so that `jointprobe --help` answers at once.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

import typer

from probe import (  # noqa: F401  for their verbs
    reacher_distributions_verb,
    reacher_verbs,
    recording_verbs,
    study_verbs,
    sweep_verbs,
)
from probe.terminal import DONE, INTERRUPTED, Terminal, disk_error, expected_errors, quiet_pipes
from probe.verbs import app

# the base of typer's own errors: click's, or the copy of click that newer versions carry
_USAGE_ERROR: Any = typer.BadParameter.__mro__[2]


def _unwrap_help() -> None:
    """Paragraphs of the verbs' docstrings as one line each: the terminal wraps them to its own width."""
    groups = [app, *(group.typer_instance for group in app.registered_groups if group.typer_instance)]
    for command in (command for group in groups for command in group.registered_commands):
        text = inspect.getdoc(command.callback) or ""
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def main(arguments: list[str] | None = None) -> None:
    """Entry point: errors that a person can act on become one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name in letters that the terminal lacks
    _unwrap_help()
    words = sys.argv[1:] if arguments is None else arguments
    with quiet_pipes():
        sys.exit(_run(words))


def _run(words: list[str]) -> int:
    """Run a verb; the exit code."""
    terminal = Terminal(as_json="--json" in words, quiet="--quiet" in words or "-q" in words)
    try:
        code: int = app(words, standalone_mode=False) or DONE
        if code == INTERRUPTED:  # newer typer turns Ctrl-C into this code, older ones into Abort
            raise KeyboardInterrupt
        return code
    except expected_errors() as error:
        return terminal.fail(error)
    except _USAGE_ERROR as error:  # a missing or unknown option, a value of the wrong type
        return terminal.fail_usage(error)
    except OSError as error:
        return terminal.fail(disk_error(error))
    except (KeyboardInterrupt, typer.Abort):
        return terminal.fail(KeyboardInterrupt())


if __name__ == "__main__":
    main()
