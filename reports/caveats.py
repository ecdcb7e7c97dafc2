"""What must stand under a verdict: that an encoder of the primary claim is not shown to beat a control.

The pre-registered bars decide the verdict and nothing here changes it. But "recovery is partial" is met by a
network that learnt nothing as well, and whoever reads a card is told so on its second line.
"""

from __future__ import annotations

from collections.abc import Iterator

from bars.bar import bar_paths, parse_bar
from reports.comparison import Order, compare, controls_of, path_on
from reports.model import Card, EncoderLine, JointTable
from reports.numbers import listed


def caveats(card: Card) -> tuple[str, ...]:
    """A sentence for each model and data entry of the primary claim that is not shown to beat a control."""
    lines: list[str] = []
    for model, data in primary_sources(card):
        table = next((table for table in card.joint_tables if table.data == data), None)
        if table is not None and model in table.models:
            lines += _not_better(card, table, model)
            lines += _no_twin(card, table, model)
    return tuple(dict.fromkeys(lines))


def primary_sources(card: Card) -> list[tuple[str, str]]:
    """(model, data entry) of everything that the primary claim's bars name, once, in the card's order."""
    paths = [
        path
        for claim in card.claims
        if claim.primary
        for bar in claim.bars
        for path in bar_paths(parse_bar(bar.text))
    ]
    named = {(path.encoder, path.data or card.data[0].name) for path in paths}
    models = [line.name for line in card.encoders if line.is_model]
    return [(model, data.name) for model in models for data in card.data if (model, data.name) in named]


def orders_of(card: Card, table: JointTable, model: str) -> dict[str, Order]:
    """How a model's mean R2 stands to that of each of its controls, where both were measured."""
    own = path_on(card, model, table.data, "r2.mean")
    orders = {
        control: compare(card, own, path_on(card, control, table.data, "r2.mean"))
        for control in controls_of(card, table, model)
    }
    return {control: order for control, order in orders.items() if order.state != "missing"}


def called(card: Card, control: str, model: str) -> str:
    """`its untrained twin`, `an untrained network`, or the control's name."""
    line, own = card.encoder(control), card.encoder(model)
    if line is None or own is None or not _untrained(line):
        return control
    return "its untrained twin" if line.is_twin_of(own) else "an untrained network"


def _not_better(card: Card, table: JointTable, model: str) -> Iterator[str]:
    weak = [control for control, order in orders_of(card, table, model).items() if order.state != "above"]
    if not weak:
        return
    names = list(dict.fromkeys(f"than {called(card, control, model)}" for control in weak))
    values = [card.numbers[path_on(card, name, table.data, "r2.mean")].text for name in (model, *weak)]
    where = f" on {table.data}" if len(card.data) > 1 else ""
    yield (
        f"{model} is not shown to carry more about the joints {listed(names, 'or')}{where} "
        f"(mean R2 {values[0]} against {listed(values[1:])})."
    )


def _no_twin(card: Card, table: JointTable, model: str) -> Iterator[str]:
    """What was trained here is worth only what its training added, which its untrained network tells."""
    own = card.encoder(model)
    if own is None or not own.trained_on or own.kind == "pixels" or _untrained(own):
        return
    controls = (card.encoder(name) for name in controls_of(card, table, model))
    if not any(line is not None and _untrained(line) for line in controls):
        yield f"No untrained twin of {model} was measured: nothing here shows what its training added."


def _untrained(line: EncoderLine) -> bool:
    return bool(line.twin_of or line.twin_kind) or line.kind.startswith("untrained")
