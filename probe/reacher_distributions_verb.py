"""`jointprobe reacher distributions`: how pairs are distributed, as numbers, a table and figures.

    TO/distributions.json    all numbers, with their n
    TO/distributions.csv     a row a set, value and joint
    TO/table.md              for people
    TO/*.png                 marginals, differences, sigreg, autocorrelation

The same sets, seed and repeats give the same bytes.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from probe.reacher_verbs import reacher
from probe.terminal import Terminal
from probe.verbs import Json, Quiet

if TYPE_CHECKING:
    from reports.reacher_found import SetFound

RESULT, ROWS, TABLE = "distributions.json", "distributions.csv", "table.md"


@reacher.command()
def distributions(
    sets: Annotated[
        list[Path], typer.Argument(metavar="SET...", help="Folders of `reacher ou` and `reacher traj`.")
    ],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder of numbers, table and figures.")],
    repeats: Annotated[
        int,
        typer.Option(
            "--repeats",
            min=20,
            help="Gaussian samples for each floor, and draws of episodes for each interval.",
        ),
    ] = 200,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of floors and intervals.")] = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """How pairs are distributed, beside what the theorem wants and what the paper prints.

    Writes a table, figures and all numbers: angles of all states, differences of pairs, their
    autocorrelation, and SIGReg of both beside its floor, that of as many Gaussian samples. Pairs of one
    episode depend on each other: intervals draw whole episodes again, and one pair an episode is tested by
    itself.

    [bold]jointprobe reacher distributions reacher-ou reacher-traj --to reacher-distributions[/bold]
    """
    from hardware.disk import disk_errors, write_atomically
    from hardware.errors import InputError
    from probe.reacher_distributions import PUBLISHED_FLOOR, Gauge, measure_set, require_pairs
    from probe.reacher_distributions_written import as_csv, as_json, as_table
    from reports.reacher_distributions import draw_distributions
    from sim.reacher_pairs import INFO, PairSet

    terminal = Terminal(json, quiet)
    names = names_of_sets(sets)
    opened = [PairSet.open(folder) for folder in sets]
    for one in opened:
        require_pairs(one)
    if (to / INFO).exists():
        raise InputError("--to", f"{to} is a pair set", "choose another folder")
    gauge = Gauge(seed, repeats)
    with terminal.progress() as progress:
        found = [measure_set(one, name, gauge, progress) for one, name in zip(opened, names)]
    result = as_json(found, gauge, [one.info.draw_sha256 for one in opened])
    texts = {
        ROWS: as_csv(found),
        TABLE: as_table(found, gauge),
        RESULT: jsonlib.dumps(result, indent=1) + "\n",
    }
    with disk_errors(to):
        to.mkdir(parents=True, exist_ok=True)
    figures = draw_distributions(found, to, PUBLISHED_FLOOR)
    for name, text in texts.items():  # the numbers last
        with disk_errors(to / name):
            write_atomically(to / name, text.encode())
    _say(terminal, found)
    terminal.say(f": {TABLE}, {RESULT}, {ROWS}, " + ", ".join(path.name for path in figures), head=str(to))
    terminal.result(result)


def names_of_sets(folders: Sequence[Path]) -> list[str]:
    """What sets are called: their folders' names, with the parent's before where two are the same.

    Raises
    ------
    InputError : one given twice.
    """
    from hardware.errors import InputError

    whole = [folder.resolve() for folder in folders]
    for place, folder in enumerate(whole):
        if folder in whole[:place]:
            raise InputError(folders[place], "is given twice", "give each set once")
    names = [folder.name for folder in whole]
    depth = 1
    while len(set(names)) < len(names):
        depth += 1
        names = ["/".join(folder.parts[-depth:]) for folder in whole]
    return names


def _say(terminal: Terminal, found: Sequence[SetFound]) -> None:
    from probe.reacher_distributions import DEPENDENT, told_apart

    marks = {"yes": "*", DEPENDENT: "?"}
    for one in found:
        floors = one.values[0].of_differences
        ends = ", ".join(f"{tested.floor.high:.2f}" for tested in floors.values())
        terminal.say(
            f": {one.condition}, {one.count:,} pairs each; SIGReg of their differences", head=one.name
        )
        for of_value in one.values:
            parts = [
                f"{what.removeprefix('both, ')} {tested.sigreg:.2f}"
                + marks.get(told_apart(tested, of_value.once_differences.get(what), one.dependent), "")
                for what, tested in of_value.of_differences.items()
            ]
            terminal.say(f"  {one.letter} {of_value.value:<5g} " + ", ".join(parts))
        terminal.say(f"  of Gaussian pairs up to: {ends}")
    terminal.say("*: told apart from Gaussian pairs; ?: it would be, if pairs of an episode were independent")
