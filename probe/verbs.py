"""The application that the verbs are hung on, and the arguments that many of them share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Honest, hardware-grounded tests of world-model papers.\n\n"
    "The order of a study: [b]record[/b] or [b]import[/b] recordings, [b]check[/b] them, write study.yaml, "
    "[b]freeze[/b] its bars before any latent exists, [b]probe[/b], [b]report[/b], let others [b]verify[/b]. "
    "[b]demo[/b] walks through all of it on the simulated arm.",
    epilog="Exit codes: 0 done, 1 a check or a verification failed, 2 bad input.",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print neither progress nor text.")]
StudyFolder = Annotated[
    Path, typer.Argument(metavar="STUDY", help="The study's folder, which holds study.yaml.")
]
RecordingFolder = Annotated[Path, typer.Argument(metavar="RECORDING", help="A recording's folder.")]


def names_of(text: str) -> tuple[str, ...]:
    """The names of a list that is separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def episodes_of(text: str) -> list[int]:
    """The numbers of `0-23`, or `0-3,7`."""
    from bars import parse_episodes
    from hardware.errors import InputError

    try:
        return list(parse_episodes(text))
    except ValueError as error:
        raise InputError("--episodes", str(error), "write 0-23, or 0-3,7") from None
