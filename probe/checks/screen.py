"""Checks on the screen: what is wrong first, then what could not be tested, and the rest in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hardware.checks import Check
from hardware.checks.check import State

STYLES: dict[State, str] = {"fail": "bold red", "warn": "yellow", "not testable": "cyan", "pass": "green"}
LEAST_MESSAGE = 40  # columns: where less is left beside the names, messages stand below them
INDENT = 6


def check_screen(checks: Sequence[Check], width: int, verbose: bool = False) -> Iterator[RenderableType]:
    """What a terminal of so many columns is to show of the checks, block by block.

    Checks that passed are named only, unless `verbose`.
    """
    by_state = {state: [check for check in checks if check.state == state] for state in STYLES}
    for block in ([*by_state["fail"], *by_state["warn"]], by_state["not testable"]):
        if block:
            yield _block(block, width)
    passed = by_state["pass"]
    if passed and verbose:
        yield _block(passed, width)
    elif passed:
        names = Text(", ".join(check.name for check in passed))
        names.append(" (--verbose tells what they saw)", "dim")
        yield _grid([(Text("pass", STYLES["pass"]), names)])
    yield Text(summary(checks), "bold")


def summary(checks: Sequence[Check]) -> str:
    """`26 pass, 4 warn, 6 not testable`"""
    counts = Counter(check.state for check in checks)
    order: tuple[State, ...] = ("pass", "warn", "fail", "not testable")
    return ", ".join(f"{counts[state]} {state}" for state in order if counts[state])


def _block(checks: Sequence[Check], width: int) -> RenderableType:
    state_width = max(len(check.state) for check in checks)
    name_width = max(len(check.name) for check in checks)
    heads = [
        (Text(check.state.ljust(state_width), STYLES[check.state]), Text(check.name, "bold"))
        for check in checks
    ]
    if width - state_width - name_width - 4 >= LEAST_MESSAGE:
        return _grid([(*head, _said(check)) for head, check in zip(heads, checks)])
    parts: list[RenderableType] = []
    for (state, name), check in zip(heads, checks):
        parts += [Text("  ").join([state, name]), Padding(_said(check), (0, 0, 0, INDENT))]
    return Group(*parts)


def _said(check: Check) -> RenderableType:
    """The message, and below it what to do."""
    if not check.remedy:
        return Text(check.message)
    arrow = Table.grid(padding=(0, 1, 0, 0))
    arrow.add_row(Text("→", "dim"), Text(check.remedy, "dim"))
    return Group(Text(check.message), arrow)


def _grid(rows: Sequence[tuple[RenderableType, ...]]) -> Table:
    """Columns of which all but the last keep their width, and the last wraps under itself."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for _ in rows[0][:-1]:
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid
