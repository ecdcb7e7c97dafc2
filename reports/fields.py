"""The fields of the reference card, in its order, for every rendering that lays them out."""

from __future__ import annotations

from dataclasses import dataclass

from bars.episodes import format_episodes
from reports.model import EXCHANGED, BarLine, Card, DataLine, EncoderLine, JointTable, Link
from reports.numbers import count, listed, plain

VERIFY = "jointprobe verify FOLDER"  # a card travels: only its reader knows where its folder lies
SYMBOLS = {"good": "✓", "bad": "✗", "open": "○", "warn": "!"}


@dataclass(frozen=True)
class Field:
    """A label and the lines under it."""

    label: str
    lines: tuple[Link, ...]


def card_fields(card: Card) -> tuple[Field, ...]:
    """Every field of the reference card that stands above its sections; an empty one says so."""
    bars = [bar for claim in card.claims if claim.primary for bar in claim.bars]
    series = card.series
    bar_lines = [f"{bar.id}: {bar.text} ({_outcome(bar)})" for bar in bars]
    fields = [
        Field("Paper's goal", _texts(card.goal or "not stated in study.yaml")),
        Field(
            "Hypotheses", _texts(*(f"{c.id}: {c.standing}. {c.hypothesis or c.text}" for c in card.claims))
        ),
        Field("Verdict", _texts(", ".join((card.standing, *card.beside)), *card.caveats)),
        Field("Claim tested", _texts(card.claim_tested)),
        Field("Bar", _texts(*bar_lines or ["none"])),
        Field("n", _texts(*map(size, card.data))),
        Field(
            "Theirs vs ours", _texts(*[theirs_ours(bar) for bar in bars] or ["no bar on the primary claim"])
        ),
        Field("Not proven", _texts(*card.not_proven or ("nothing that the study names",))),
        Field("Paper", (Link(_paper(card)), *((card.paper_link,) if card.paper_link.text else ()))),
        Field("Code", (card.code_link if card.code_link.text else Link("none given"),)),
        Field("Compute and cost", _texts(card.compute or "not stated in study.yaml")),
        Field("Reproduce", _texts(card.reproduce_id, f"{VERIFY}, the folder that this card lies in")),
        Field("First published", _texts(card.first_published or "not published yet")),
        Field("Updated", _texts(card.updated or "never")),
    ]
    if card.corrections:
        fields.append(Field("Corrections", _texts(*card.corrections)))
    if series is not None:
        place = [Link(f"{series.name}, {series.position} of {series.of}")]
        place += [
            Link(f"{word}: {link.text}", link.href)
            for word, link in (("previous", series.previous), ("next", series.next))
            if link
        ]
        fields.append(Field("Series", tuple(place)))
    return tuple(fields)


def size(line: DataLine) -> str:
    """The n of a data entry, in one line."""
    evaluate = count(len(line.evaluate_episodes), "held-out episode")
    train = count(len(line.train_episodes), "training episode")
    if line.evaluate_rows is not None:
        evaluate = f"{count(line.evaluate_rows, 'row')} of {evaluate}"
    if line.train_rows is not None:
        train = f"{count(line.train_rows, 'row')} of {train}"
    return f"{line.name}: evaluated on {evaluate}, fitted on {train}"


def describe_data(line: DataLine) -> str:
    """What a data entry is, in a sentence or two."""
    joints = listed(line.joints) if line.joints else "all"
    views = "view" if len(line.views) == 1 else "views"
    text = (
        f"Recording {line.recording}, {views} {listed(line.views)}, joints {joints}. "
        f"Fitted on episodes {format_episodes(line.train_episodes)}, "
        f"evaluated on episodes {format_episodes(line.evaluate_episodes)}"
    )
    if line.evaluate_rows is not None and line.train_rows is not None:
        text += f" ({line.train_rows:,} and {line.evaluate_rows:,} rows)"
    if line.untestable:
        hardly = listed([still(line, joint) for joint in line.untestable])
        text += f". Not testable, because it hardly moves: {hardly}"
    return text + "."


def still(line: DataLine, joint: str) -> str:
    """A joint that cannot be tested, with how little it moves where that is known."""
    std = line.untestable[joint]
    return joint if std is None else f"{joint} (std {plain(std)} {line.units.get(joint, 'rad')})"


def describe_encoder(line: EncoderLine) -> str:
    """Where an encoder comes from, and what is to be known about it."""
    return ". ".join(part.rstrip(".") for part in (line.source, line.about, line.note) if part)


def penalties(line: EncoderLine) -> str:
    """The ridge penalties that were chosen: `1000`, or one a data entry."""
    if len(set(line.alpha.values())) == 1:
        return f"{next(iter(line.alpha.values())):g}"
    return ", ".join(f"{data} {alpha:g}" for data, alpha in line.alpha.items())


def describe_table(table: JointTable) -> str:
    """The caption of a per-joint table: its n, and what its columns are."""
    n = count(table.n_episodes, "held-out episode") if table.n_episodes is not None else "held-out episodes"
    if table.n_rows is not None:
        n = f"{count(table.n_rows, 'row')} of {n}"
    text = f"R2 on {n}, with cluster-bootstrap intervals over episodes."
    controls = [name for name in table.columns if name not in table.models]
    if controls:
        text += f" Controls: {listed(controls)}."
    if any(row.ceiling is not None for row in table.rows):
        text += " Ceiling: the R2 that about 1 degree of backlash still allows."
    if table.row(EXCHANGED) is not None:
        text += (
            " Targets exchanged: the same probe, fitted to targets of other episodes; what chance reaches."
        )
    return text


def reasons(card: Card) -> tuple[str, ...]:
    """Why each mark stands where it does."""
    return tuple(f"{bar.id}: {bar.why}" for bar in card.bars if bar.why)


def theirs_ours(bar: BarLine) -> str:
    """`W1.r2.mean: theirs 0.565, ours 0.581 [0.512, 0.640]`."""
    ours = " ".join(part for part in (bar.ours or "not measured", bar.interval) if part)
    return f"{bar.measures}: theirs {bar.theirs or 'not given'}, ours {ours}"


def _outcome(bar: BarLine) -> str:
    said = bar.standing.replace(" (", ", ").rstrip(")")
    return f"{said}, firm" if bar.firm == "firm" else said


def _paper(card: Card) -> str:
    return f"{card.paper} ({card.authors})" if card.authors else card.paper


def _texts(*lines: str) -> tuple[Link, ...]:
    return tuple(Link(line) for line in lines)
