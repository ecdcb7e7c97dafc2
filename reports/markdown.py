"""The card as Markdown: every field, section and table, and no text that a renderer would take for markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from reports.fields import (
    SYMBOLS,
    VERIFY,
    card_fields,
    describe_data,
    describe_encoder,
    describe_table,
    penalties,
    reasons,
    theirs_ours,
)
from reports.model import BesideTable, Card, ClaimLine, JointTable, Link, Number, TransferTable
from reports.numbers import behind, shorten

# What could start markup inside a line. Of brackets only `](`, `][`, `]:` make links, and `[ ]` a box.
_SPECIAL = re.compile(
    r"[\\`*|~]|<(?=[A-Za-z/!?])|\](?=[(\[:])|\[(?=[ xX]\])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|&(?=#?\w+;)"
)


def render_markdown(card: Card) -> str:
    """Lay a card out as GitHub-flavoured Markdown; text from the study is escaped, so that it reads verbatim.

    Figures are referred to by their path under the study folder.
    """
    parts = [_banner(card)] if card.banner else []
    parts += [
        f"# {inline(card.title)}",
        _verdict(card),
        block(card.summary),
        _table(
            ("", ""), [(field.label, "<br>".join(map(_link, field.lines))) for field in card_fields(card)]
        ),
        "## Claims, one by one",
        _list(_claim(claim) for claim in card.claims),
        "## Bars",
        _bars(card),
        _reasons(card),
        block(card.bars_note),
        "## Findings",
        _list(inline(line) for line in card.findings),
        "## What the paper claims and how it measures it",
        block(card.goal),
        block(card.measured_by),
        "## What I ran",
        _list(f"{inline(label).capitalize()}: {inline(text)}" for label, text in card.registration),
        *(f"**Data: {inline(line.name)}.** {inline(describe_data(line))}" for line in card.data),
        _encoders(card),
        _table(("probe setting", ""), [(inline(label), inline(value)) for label, value in card.settings]),
        "## Their number / my number",
        _list(inline(theirs_ours(bar)) for bar in card.bars),
    ]
    for table in card.joint_tables:
        parts += [f"### R2 per joint on {inline(table.data)}", _figure(card, table.figure), _joints(table)]
    if card.transfer is not None:
        parts += ["### Trained on x evaluated on", _figure(card, "transfer"), *_transfer(card.transfer)]
    for beside in card.beside_tables:
        parts += [f"### Beside the read-out, on {inline(beside.data)}", _beside(beside)]
    for plain in card.plain_tables:
        parts += [
            f"### {inline(plain.title)}",
            inline(plain.about),
            _table(tuple(map(inline, plain.head)), [tuple(map(inline, row)) for row in plain.rows]),
        ]
    parts += [
        _figure(card, "spread"),
        "## What the gap means",
        _list(inline(line) for line in card.gap),
        "## What would change it",
        block(card.what_would_change_it),
        _list(inline(line) for line in card.change),
        "## Compute",
        block(card.compute),
        _table(("", ""), [(inline(label), inline(value)) for label, value in card.provenance]),
        "## Integrity checks",
        _checks(card),
        "## Ledger",
        _ledger(card),
    ]
    if card.others:
        parts += ["## Every other measurement", _others(card)]
    parts += [
        "---",
        f"Card {card.reproduce_id} of study {inline(card.name)}. "
        f"Check it on any machine: {code(VERIFY)}, where FOLDER is the folder that this card lies in.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def inline(text: str) -> str:
    """Escape a text so that it stands on one line of Markdown, or in a cell, and reads as it was written."""
    return _SPECIAL.sub(_escape, " ".join(text.split()))


def code(text: str) -> str:
    """A code span, for the notation of bars; text that could end one is escaped instead."""
    return inline(text) if not text or set("`|\n") & set(text) else f"`{text}`"


def block(text: str) -> str:
    """Escape a text of one or several paragraphs; blank lines part them, single line breaks do not."""
    paragraphs = [start(inline(paragraph)) for paragraph in re.split(r"\n\s*\n", text.strip())]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def start(escaped: str) -> str:
    """Keep the start of an escaped line from being read as a heading, a quote, a list or a rule."""
    return re.sub(r"^(?=[#>+=-])|^(\d{1,9})(?=[.)])", r"\1\\", escaped)


def _escape(match: re.Match[str]) -> str:
    found = match[0]
    return {"<": "&lt;", "&": "&amp;"}.get(found, f"\\{found}")


def _banner(card: Card) -> str:
    lines = [f"> **{card.banner}**", *(f"> {inline(text)}" for text in card.mismatches)]
    return "\n>\n".join(lines)


def _verdict(card: Card) -> str:
    line = " · ".join(
        [
            f"**Verdict: {SYMBOLS[card.tone]} {card.standing}**",
            *(f"**{inline(part)}**" for part in card.beside),
        ]
    )
    return "\\\n".join([line, *(f"**{inline(caveat)}**" for caveat in card.caveats)])  # each on its own line


def _claim(claim: ClaimLine) -> str:
    state = f"{SYMBOLS[claim.tone]} {claim.standing}" + (", firm" if claim.firm == "firm" else "")
    text = f"**{inline(claim.id)}**{' (primary)' if claim.primary else ''}: **{state}**. {inline(claim.text)}"
    if claim.hypothesis:
        text += f"\n  - Hypothesis: {inline(claim.hypothesis)}"
    if claim.theirs:
        text += f"\n  - Theirs: {inline(claim.theirs)}"
    return text + ("\n  - Not proven by this card." if claim.not_proven else "")


def _bars(card: Card) -> str:
    head = ("bar", "claim", "asks for", "mark", "theirs", "ours", "interval", "state", "why")
    rows = [
        (
            inline(bar.id),
            inline(bar.claim),
            code(bar.text),
            code(bar.mark_text),
            inline(bar.theirs),
            inline(bar.ours or "not measured"),
            bar.interval,
            f"{SYMBOLS[bar.tone]} {bar.standing}" + (", firm" if bar.firm == "firm" else ""),
            inline(bar.reason),
        )
        for bar in card.bars
    ]
    return _table(head, rows)


def _reasons(card: Card) -> str:
    lines = _list(inline(line) for line in reasons(card))
    return f"Why the marks stand where they do:\n\n{lines}" if lines else ""


def _encoders(card: Card) -> str:
    rows = [
        (
            inline(line.name),
            inline(line.role),
            inline(line.kind),
            inline(describe_encoder(line)),
            str(line.width or ""),
            inline(penalties(line)),
            f"`{shorten(line.fingerprint)}`" if line.fingerprint else "",
        )
        for line in card.encoders
    ]
    return _table(("encoder", "role", "kind", "from", "width", "penalty", "fingerprint"), rows)


def _joints(table: JointTable) -> str:
    head = ["joint", "std (rad)", "ceiling", *map(inline, table.columns)]
    head += [f"null of {inline(model)}" for model in table.null_models]
    rows = []
    for row in table.rows:
        label = inline(row.label) if row.joint else f"**{inline(row.label)}**"
        cells = [_number(row.cells[name]) for name in table.columns] + [
            _number(row.nulls[name]) if name in row.nulls else "" for name in table.null_models
        ]
        rows.append(
            (
                label,
                row.std_text,
                row.ceiling_text,
                *cells,
            )
        )
    return f"{inline(describe_table(table))}\n\n{_table(head, rows)}"


def _beside(table: BesideTable) -> str:
    rows = [
        (inline(row.label), *(_number(row.cells[name]) for name in table.columns), inline(row.about))
        for row in table.rows
    ]
    notes = [start(inline(note)) for note in table.notes]
    return "\n\n".join([_table(("", *map(inline, table.columns), "what it is"), rows), *notes])


def _others(card: Card) -> str:
    rows = [
        (inline(one.path), _number(one), behind(one.n_rows, one.n_episodes), inline(one.note))
        for one in card.others
    ]
    return _table(("path", "value", "n", "note"), rows)


def _transfer(transfer: TransferTable) -> list[str]:
    on = [f"on {inline(data)}" for data in transfer.data]
    rows = [
        (
            inline(row.encoder),
            inline(row.trained_on),
            *(_number(row.cells[data]) for data in transfer.data),
        )
        for row in (*transfer.values, *transfer.controls)
    ]
    parts = [
        "Mean R2. The ridge is fitted on the training episodes of the data evaluated on.",
        _table(("encoder", "trained on", *on), rows),
    ]
    if transfer.differences:
        rows = [
            (
                inline(f"{row.encoder} - {row.control}"),
                inline(row.trained_on),
                *(_number(row.cells[data], difference=True) for data in transfer.data),
                "paired by episode" if row.paired else "none (not paired)",
            )
            for row in transfer.differences
        ]
        parts += [
            "Difference in mean R2 from each control.",
            _table(("difference", "trained on", *on, "interval"), rows),
        ]
    return parts


def _checks(card: Card) -> str:
    if not card.checks:
        return "None were recorded in results.json."
    rows = [
        (
            inline(line.name),
            inline(line.state),
            inline(line.message + (f" ({line.remedy})" if line.remedy and line.tone != "good" else "")),
        )
        for line in card.checks
    ]
    return _table(("check", "state", "what was seen"), rows)


def _ledger(card: Card) -> str:
    if not card.ledger:
        return "The ledger is empty: nothing was registered."
    rows = [
        (
            inline(line.event + (f" ({line.about})" if line.about else "")),
            inline(line.time),
            f"`{shorten(line.hash)}`",
            f"`{line.hash}`",
        )
        for line in card.ledger
    ]
    return _table(("event", "time", "short", "hash"), rows)


def _figure(card: Card, name: str) -> str:
    line = next((figure for figure in card.figures if figure.name == name), None)
    return "" if line is None else f"![{inline(line.alt)}]({line.file})\n\n*{inline(line.caption)}*"


def _number(number: Number, difference: bool = False) -> str:
    text = number.difference_text if difference else number.text
    return f"{text} {number.interval}" if number.interval else text


def _link(link: Link) -> str:
    return f"[{inline(link.text)}]({link.href})" if link.href else inline(link.text)


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {start(line)}" for line in lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
