"""The card in a terminal, at 80 columns and up."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from reports.fields import SYMBOLS, size
from reports.model import BarLine, BesideTable, Card, JointRow, JointTable, Number, TransferTable
from reports.numbers import shorten

_TONES = {"good": "green", "bad": "red", "open": "yellow", "warn": "yellow"}
_LABEL_COLUMN = 22  # widths, the padding to the next column included: a joint's name,
_BESIDE_COLUMN = 24  # the name of a measurement beside the read-out,
_FACT_COLUMN = 9  # its std and its ceiling,
_NUMBER_COLUMN = 17  # and `[-0.123, -0.045]`


def print_card(card: Card, console: Console, folder: str = "FOLDER") -> None:
    """Print a card: verdict, bars, per-joint numbers beside their controls, the 2 x 2, findings, ledger head.

    Wide tables are cut into several of as many columns as the console holds; no number is dropped.
    `folder`: the study's folder as whoever reads it would name it, for the command that checks the card.
    """
    print_verdict(card, console)
    if card.summary:
        console.print(Padding(Text(card.summary), (1, 1, 0, 1)))
    console.print(Padding(_sizes(card), (1, 1, 0, 1)))
    _section(console, "Bars", _bars(card))
    for table in card.joint_tables:
        _section(console, f"R2 per joint on {table.data}", *_joints(table, console.width))
    if card.transfer is not None:
        _section(console, "Trained on x evaluated on (mean R2)", *_transfer(card.transfer))
    for beside in card.beside_tables:
        _section(console, f"Beside the read-out, on {beside.data}", *_beside(beside, console.width))
    _section(console, "Findings", _bullets(card.findings))
    _section(console, "What the gap means", _bullets(card.gap))
    if any(check.tone in ("bad", "warn") for check in card.checks):
        _section(console, "Integrity checks", *_checks(card))
    console.print(Padding(_trust(card, folder), (1, 1, 0, 1)))


def print_verdict(card: Card, console: Console) -> None:
    """Print the verdict alone, with every reason to trust it less: a card's first lines, and its last."""
    console.print(_banner(card))


def _banner(card: Card) -> Panel:
    colour = _TONES[card.tone]
    verdict = Text.assemble((f"{SYMBOLS[card.tone]} {card.standing}", f"bold {colour}"))
    for part in card.beside:
        verdict.append(f"  {part}", "bold" if part == card.firm else "bold yellow")
    lines: list[RenderableType] = [Text(card.banner, "bold red")] if card.banner else []
    lines += [Text(text, "red") for text in card.mismatches]
    lines += [verdict, *(Text(line, "bold yellow") for line in card.caveats)]
    lines += [Text(card.claim_tested), Text(card.title, "dim")]
    return Panel(Group(*lines), border_style=colour, box=box.HEAVY, padding=(0, 1))


def _sizes(card: Card) -> Table:
    table = Table.grid(padding=(0, 1))
    for line in card.data:
        table.add_row(Text("n", "bold"), Text(size(line)))
    return table


def _bars(card: Card) -> Table:
    """A block a bar: its state, what it asks for, ours and theirs, and what keeps it from being firm."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for bar in card.bars:
        table.add_row(Text(bar.id, "bold"), _state(bar), _asked(bar))
    return table


def _asked(bar: BarLine) -> Text:
    text = Text(bar.text, "bold")
    ours = " ".join(part for part in (bar.ours or "not measured", bar.interval) if part)
    text.append(f"\nours {ours}", "not bold")
    text.append(f"   theirs {bar.theirs}" if bar.theirs else "", "not bold")
    return text.append(f"\n{bar.reason}", "not bold dim") if bar.reason else text


def _state(bar: BarLine) -> Text:
    head, _, rest = bar.standing.partition(" (")  # `undecided`, and under it `(would be met)`
    text = Text(f"{SYMBOLS[bar.tone]} {head}", _TONES[bar.tone])
    below = f"({rest}" if rest else bar.firm
    return text.append(f"\n  {below}", "dim") if below else text


def _joints(table: JointTable, width: int) -> Iterator[RenderableType]:
    """The per-joint table, in as many pieces as the width asks for; std and ceiling stand in the first."""
    columns = [(name, "cells") for name in table.columns] + [(model, "nulls") for model in table.null_models]
    start = 0
    while start < len(columns):
        facts = 0 if start else 2 * _FACT_COLUMN
        room = max(1, (width - 2 - _LABEL_COLUMN - facts) // _NUMBER_COLUMN)
        yield _joint_piece(table, columns[start : start + room], first=start == 0)
        start += room


def _joint_piece(table: JointTable, columns: Sequence[tuple[str, str]], first: bool) -> Table:
    piece = _plain_table()
    piece.add_column("joint", overflow="fold", width=_LABEL_COLUMN - 1)
    for label in ("std rad", "ceiling") if first else ():
        piece.add_column(label, justify="right", style="dim", overflow="fold", width=_FACT_COLUMN - 1)
    for name, kind in columns:
        style = "bold" if kind == "cells" and name in table.models else "dim"
        head = Text(name if kind == "cells" else f"null of {name}", style)
        piece.add_column(head, justify="right", overflow="fold", width=_NUMBER_COLUMN - 1)
    shown = [row for row in table.rows if first or any(_has(row, *column) for column in columns)]
    for index, row in enumerate(shown):
        facts = [row.std_text, row.ceiling_text] if first else []
        cells = [
            _cell(getattr(row, kind).get(name), row.testable, not place)
            if kind == "cells" or row.joint
            else Text()  # a null is measured joint by joint
            for place, (name, kind) in enumerate(columns)
        ]
        last = row.joint and index + 1 < len(shown) and not shown[index + 1].joint
        piece.add_row(Text(row.label, "" if row.joint else "bold"), *facts, *cells, end_section=last)
    return piece


def _has(row: JointRow, name: str, kind: str) -> bool:
    """Whether a row has anything to say in a column: a number, or that its joint is not testable."""
    number = getattr(row, kind).get(name)
    return not row.testable or (number is not None and not number.missing)


def _beside(table: BesideTable, width: int) -> Iterator[RenderableType]:
    """What stands beside the read-out, in as many pieces as the width asks for."""
    room = max(1, (width - 2 - _BESIDE_COLUMN) // _NUMBER_COLUMN)
    for start in range(0, len(table.columns), room):
        piece = _plain_table()
        piece.add_column("", overflow="fold", width=_BESIDE_COLUMN - 1)
        names = table.columns[start : start + room]
        for name in names:
            head = Text(name, "bold" if name in table.models else "dim")
            piece.add_column(head, justify="right", overflow="fold", width=_NUMBER_COLUMN - 1)
        for row in table.rows:
            piece.add_row(Text(row.label), *(_cell(row.cells[name]) for name in names))
        yield piece
    for note in table.notes:
        yield Padding(Text(note, "dim"), (1, 0, 0, 0))


def _transfer(transfer: TransferTable) -> Iterator[RenderableType]:
    table = _plain_table()
    table.add_column("encoder", overflow="fold")
    table.add_column("trained on", overflow="fold")
    for data in transfer.data:
        table.add_column(f"on {data}", justify="right", overflow="fold")
    for row in (*transfer.values, *transfer.controls):
        table.add_row(
            Text(row.encoder),
            Text(row.trained_on or "control", "dim"),
            *(_cell(row.cells[data]) for data in transfer.data),
        )
    yield table
    if transfer.differences:
        table = _plain_table()
        table.add_column("difference", overflow="fold")
        table.add_column("trained on", overflow="fold")
        for data in transfer.data:
            table.add_column(f"on {data}", justify="right", overflow="fold")
        for difference in transfer.differences:
            cells = [
                _stacked(n.difference_text, n.interval, n.missing)
                for n in (difference.cells[data] for data in transfer.data)
            ]
            table.add_row(
                Text(f"{difference.encoder} - {difference.control}"),
                Text(difference.trained_on, "dim"),
                *cells,
            )
        yield table


def _checks(card: Card) -> Iterator[RenderableType]:
    width = max(len(check.state) for check in card.checks)
    for check in card.checks:
        colour = _TONES[check.tone]
        yield Text.assemble(
            (f"{SYMBOLS[check.tone]} {check.state:{width}} ", colour),
            (f"{check.name}: ", "bold"),
            check.message,
        )


def _trust(card: Card, folder: str) -> Text:
    """The end of the card: its id, the head of the ledger, and the command that checks both."""
    text = Text(f"card    {card.reproduce_id}\n")
    if card.ledger:
        head = card.ledger[-1]
        text.append(f"ledger  {head.event} {head.time}\n        {head.hash}\n")
    else:
        text.append("ledger  empty: nothing was registered\n", "red")
    text.append(f"study   {shorten(card.study_sha256)}  ", "dim")
    return text.append(f"check it with: jointprobe verify {shlex.quote(folder)}", "dim")


def _cell(number: Number | None, testable: bool = True, first: bool = True) -> Text:
    if not testable:
        return Text("not testable" if first else "", "dim italic")
    return Text("-", "dim") if number is None else _stacked(number.text, number.interval, number.missing)


def _stacked(text: str, below: str, dim: bool = False) -> Text:
    cell = Text(text, "dim" if dim else "")
    return cell.append(f"\n{below}", "dim") if below else cell


def _bullets(lines: Sequence[str]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row("·", Text(line))
    return table


def _plain_table() -> Table:
    return Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 1, 0, 0)
    )


def _section(console: Console, title: str, *parts: RenderableType) -> None:
    console.print()
    console.rule(Text(title, "bold"), align="left", style="dim")
    for index, part in enumerate(parts):
        console.print(Padding(part, (1 if index and isinstance(part, Table) else 0, 1, 0, 1)))
