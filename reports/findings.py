"""Findings: sentences that the numbers decide.

Each rule looks at measurements and either says something about them or stays silent. None states more than
the intervals carry; none is said without the numbers that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from reports.comparison import compare, controls_of, path_on
from reports.fields import still
from reports.model import Card, JointRow, JointTable, Number
from reports.numbers import count, listed, plain

CLOSE_TO_CEILING = 0.02
FAR_BELOW_ZERO = -1.0
NEARLY_SOLVED = 0.9  # share of executed chunks ranked first


def findings(card: Card) -> tuple[str, ...]:
    """What the measurements say: model by model and data entry by data entry, then about the data itself."""
    lines: list[str] = []
    for table in card.joint_tables:
        for model in table.models:
            about = [*_mean(card, table, model), *_joints(table, model), *_anisotropy(card, table, model)]
            if about:
                lines.append(f"{model} on {table.data}: {' '.join([*about, *_ceilings(table, model)])}")
            lines += _outliers(table, model)
        lines += _models(card, table)
        lines += _ranking(card, table)
    lines += _untestable(card)
    lines += [
        f"Integrity check {check.name} says {check.state}: {sentence(check.message)}"
        for check in card.checks
        if check.tone in ("bad", "warn")
    ]
    return tuple(lines) or ("Nothing was measured.",)


def shown(number: Number) -> str:
    """`0.565 [0.510, 0.621]`"""
    return f"{number.text} {number.interval}".rstrip()


def sentence(text: str) -> str:
    """A text that ends with one full stop."""
    return text.rstrip(" .") + "."


def _mean(card: Card, table: JointTable, model: str) -> Iterator[str]:
    """The mean R2, against each control and against chance."""
    path = path_on(card, model, table.data, "r2.mean")
    own = card.numbers.get(path)
    if own is None or own.value is None:
        return
    parts = [f"mean R2 {shown(own)}"]
    as_well = []
    for control in controls_of(card, table, model):
        order = compare(card, path, path_on(card, control, table.data, "r2.mean"))
        if order.state == "missing":
            continue
        said = {"above": "above", "below": "below", "open": "not separated from"}[order.state]
        parts.append(f"{said} {control} ({order.words})")
        matched = [row.label for row in table.joints if _at_least(row, control, model)]
        if matched and order.state != "below":
            as_well.append(f"{control} on {listed(matched)}")
    parts += _chance(card, table, model, own)
    yield f"{', '.join(parts)}."
    if as_well:
        yield f"By point estimates it is matched or beaten by {listed(as_well)}."


def _chance(card: Card, table: JointTable, model: str, own: Number) -> Iterator[str]:
    """Whether the mean R2 lies above what the same probe reaches with targets exchanged between episodes."""
    null = card.numbers.get(path_on(card, model, table.data, "null.mean"))
    line = card.encoder(model)
    if own.value is None or null is None or null.value is None or line is None:
        return
    p = line.null_p.get(table.data)
    if p is not None:
        above = p <= 1 - card.level
    else:
        edge = null.high if null.high is not None else null.value
        above = (own.low if own.low is not None else own.value) > edge
    words = f"p = {p:.2g}" if p is not None else f"exchanged targets give {shown(null)}"
    if not above:
        yield f"not shown to be above chance ({words})"
    elif own.value > 0:
        yield f"above chance ({words})"
    else:  # exchanged targets are read even worse: no sign that anything is recovered
        yield f"less bad than with exchanged targets ({words}), but no better than guessing the joint's mean"


def _joints(table: JointTable, model: str) -> Iterator[str]:
    """Best and worst recovered joint."""
    values = _values(table, model)
    if not values:
        return
    (worst, low, _), (best, high, top) = values[0], values[-1]
    if len(values) == 1:
        yield f"Only {best.label} can be scored: R2 {shown(high)}."
    elif top <= 0:
        yield (
            f"No joint has an R2 above 0: {best.label}, the best, has {shown(high)}, which is no better than "
            "guessing its mean."
        )
    else:
        text = f"It recovers {best.label} best ({shown(high)}) and {worst.label} worst ({shown(low)})"
        if low.bounds is not None and high.bounds is not None and low.bounds[1] >= high.bounds[0]:
            text += "; the two intervals overlap, so that this order is not settled"
        if all(cell.bounds is not None and cell.bounds[0] <= 0 for _, cell, _ in values):
            text += "; every joint's interval reaches down to 0, so that none is shown to be recovered"
        yield f"{text}."


def _outliers(table: JointTable, model: str) -> Iterator[str]:
    """Joints whose squared error is beyond anything that noise makes."""
    values = _values(table, model)
    for row, cell, value in values:
        if value < FAR_BELOW_ZERO:
            yield (
                f"R2 {cell.text} of {model} for {row.label} on {table.data} means a squared error "
                f"{plain(1 - value, 1)} times the joint's own variance, as an offset between training and "
                "evaluation episodes makes it; the mean R2 of the other joints is "
                f"{plain(_mean_without(values, row))}."
            )


def _anisotropy(card: Card, table: JointTable, model: str) -> Iterator[str]:
    """Anisotropy beside its null: a maximum minus a minimum is above zero even where all joints are alike."""
    own, null, contrast = (
        card.numbers.get(path_on(card, model, table.data, metric))
        for metric in ("anisotropy", "anisotropy.null", "anisotropy.contrast")
    )
    if own is None or own.value is None:
        return
    if null is None or null.value is None:
        return
    beyond = own.value > (null.high if null.high is not None else null.value)
    chance = shown(null)
    if null.high is not None and null.low is None:  # a null has an upper end only
        chance = f"{null.text} on average, {plain(null.high)} in one case of twenty"
    text = (
        f"Its anisotropy is {shown(own)}, {'beyond' if beyond else 'within'} what joints of one common R2 "
        f"would give by chance ({chance})"
    )
    if contrast is not None and contrast.value is not None:
        text += f"; with best and worst joint chosen on training episodes it is {shown(contrast)}"
    yield f"{text}."


def _ceilings(table: JointTable, model: str) -> Iterator[str]:
    """Joints on which backlash, not the encoder, is the limit."""
    full = []
    for row, _, value in _values(table, model):
        if row.ceiling is not None and value >= row.ceiling - CLOSE_TO_CEILING:
            full.append(row.label)
    if full:
        yield (
            f"It comes within {CLOSE_TO_CEILING} of the backlash ceiling of {listed(full)}, where the arm is "
            "the limit more than the latent."
        )


def _models(card: Card, table: JointTable) -> Iterator[str]:
    """The order of the models by mean R2, each against the next, with what they were trained on."""
    paths = {model: path_on(card, model, table.data, "r2.mean") for model in table.models}
    values = {model: n.value for model, path in paths.items() if (n := card.numbers.get(path)) is not None}
    known = sorted(((m, v) for m, v in values.items() if v is not None), key=lambda item: -item[1])
    for (first, _), (second, _) in pairwise(known):
        order = compare(card, paths[first], paths[second])
        said = "reads more than" if order.state == "above" else "is not separated from"
        names = [name + _training(card, name) for name in (first, second)]
        yield f"Evaluated on {table.data}, {names[0]} {said} {names[1]}: mean R2 {order.words}."


def _ranking(card: Card, table: JointTable) -> Iterator[str]:
    """Where continuity of the action alone ranks chunks as well as any latent: G1b then says little."""
    alone = [
        number
        for name in table.columns
        if (number := card.numbers.get(path_on(card, name, table.data, "g1b.action_only"))) is not None
    ]
    ranked = [
        number
        for name in table.columns
        if (number := card.numbers.get(path_on(card, name, table.data, "g1b.top1"))) is not None
        and number.value is not None
    ]
    if not ranked or not alone or alone[0].value is None:
        return
    least, most = (pick(ranked, key=lambda number: number.value or 0.0) for pick in (min, max))
    if alone[0].value < (most.value or 0.0):
        return
    clear = all(n.bounds is not None and alone[0].bounds is not None for n in ranked) and all(
        n.bounds[1] < alone[0].bounds[0]  # type: ignore[index]
        for n in ranked
    )
    solved = "is nearly solved" if alone[0].value >= NEARLY_SOLVED else "is done as well"
    yield (
        f"The ranking of action chunks on {table.data} {solved} without latents: by continuity of the action "
        f"alone the executed chunk comes first in {shown(alone[0])}, "
        f"{'more often' if clear else 'by point estimates more often'} than by the latents of any encoder "
        f"({least.text} to {most.text}). G1b says little about latents here."
    )


def _training(card: Card, model: str) -> str:
    line = card.encoder(model)
    known = line is not None and line.trained_on and len(card.data) > 1
    return f" (trained on {line.trained_on})" if line is not None and known else ""


def _untestable(card: Card) -> Iterator[str]:
    for line in card.data:
        if not line.untestable:
            continue
        parts = [still(line, joint) for joint in line.untestable]
        yield (
            f"{count(len(parts), 'joint')} of {line.name} cannot be tested, being too still in the evaluated "
            f"episodes: {listed(parts)}; no R2 is given."
        )


def _values(table: JointTable, model: str) -> list[tuple[JointRow, Number, float]]:
    """The scored joints of a model, worst first."""
    known = [(row, row.cells[model]) for row in table.joints if row.testable and model in row.cells]
    values = [(row, cell, cell.value) for row, cell in known if cell.value is not None]
    return sorted(values, key=lambda item: item[2])


def _mean_without(values: list[tuple[JointRow, Number, float]], row: JointRow) -> float:
    rest = [value for other, _, value in values if other is not row]
    return sum(rest) / len(rest) if rest else float("nan")


def _at_least(row: JointRow, control: str, model: str) -> bool:
    """Whether a control does at least as well as the model on a joint, by point estimates."""
    a, b = row.cells.get(control), row.cells.get(model)
    return (
        a is not None and b is not None and a.value is not None and b.value is not None and a.value >= b.value
    )
