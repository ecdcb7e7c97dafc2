"""What a card shows: plain frozen values, computed once, that every rendering only lays out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from reports.numbers import NOT_MEASURED, NOT_TESTABLE, interval, plain, scientific, signed
from reports.standing import UNDECIDED, standing, tone_of

EXPLORATORY = "exploratory: bars were not frozen"
TOO_FEW = "too few episodes"
MEAN, EXCHANGED = "mean", "mean, targets exchanged"  # rows of a per-joint table that figures look for


@dataclass(frozen=True)
class Number:
    """One measured number, its interval, and what stands behind it.

    `value` is None where nothing was measured or where the joint is not testable; `testable` tells which.
    `powers`: it spans orders of magnitude, and is written as 2.3e-05.
    """

    path: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    n_rows: int = 0
    n_episodes: int = 0
    testable: bool = True
    note: str = ""
    digits: int = 3
    powers: bool = False

    @property
    def missing(self) -> bool:
        return self.value is None

    @property
    def text(self) -> str:
        if not self.testable:
            return NOT_TESTABLE
        if self.value is None:
            return NOT_MEASURED
        return scientific(self.value) if self.powers else plain(self.value, self.digits)

    @property
    def difference_text(self) -> str:
        return self.text if self.value is None else signed(self.value, self.digits)

    @property
    def interval(self) -> str:
        return "" if self.value is None else interval(self.low, self.high, self.digits)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The interval (low, high), or None where there is none."""
        if self.value is None or self.low is None or self.high is None:
            return None
        return self.low, self.high


@dataclass(frozen=True)
class Link:
    """A text, and an address where it is a safe one."""

    text: str
    href: str = ""


@dataclass(frozen=True)
class SeriesPlace:
    name: str
    position: int
    of: int
    previous: Link | None
    next: Link | None


@dataclass(frozen=True)
class BarLine:
    """One bar as judged: `text` as registered, `measures` the path (or the two) it reads.

    `number` is what was measured, `mark` and `theirs_value` what to compare it with, or None.
    `reason` says what kept it from being firm or tested, `why` why its mark stands where it does.
    """

    id: str
    claim: str
    text: str
    measures: str
    mark_text: str
    theirs: str
    ours: str
    interval: str
    state: str
    firm: str
    reason: str
    why: str
    number: Number
    mark: float | None
    theirs_value: float | None
    n_episodes: int = 0

    @property
    def tone(self) -> str:
        return tone_of(self.state, self.firm)

    @property
    def standing(self) -> str:
        return standing(self.state, self.firm)


@dataclass(frozen=True)
class ClaimLine:
    """One claim, its state and the bars that decided it."""

    id: str
    text: str
    hypothesis: str
    primary: bool
    not_proven: bool
    theirs: str
    state: str
    firm: str
    reason: str
    bars: tuple[BarLine, ...]

    @property
    def tone(self) -> str:
        return tone_of(self.state, self.firm)

    @property
    def standing(self) -> str:
        return standing(self.state, self.firm)


@dataclass(frozen=True)
class DataLine:
    """One data entry: the n behind its numbers. Each std is in the joint's unit, rad by default."""

    name: str
    recording: str
    views: tuple[str, ...]
    joints: tuple[str, ...]
    train_episodes: tuple[int, ...]
    evaluate_episodes: tuple[int, ...]
    train_rows: int | None
    evaluate_rows: int | None
    evaluate_std: dict[str, float]
    train_std: dict[str, float]
    ceiling: dict[str, float]
    untestable: dict[str, float | None]
    units: dict[str, str]
    manifest_sha256: str


@dataclass(frozen=True)
class EncoderLine:
    """One encoder. `kind` is `cnn`, `pixels`, ...; `trained_on` the data entry that its recipe ran on."""

    name: str
    role: str
    kind: str
    about: str
    source: str
    trained_on: str
    twin_of: str  # the encoder whose untrained twin this is, where study.yaml names it
    twin_kind: str  # of an untrained network: the kind it would be if it were trained
    width: int | None
    alpha: dict[str, float]
    null_p: dict[str, float]
    fingerprint: str
    measured: bool
    note: str = ""

    @property
    def is_model(self) -> bool:
        return self.role == "model"

    def is_twin_of(self, model: EncoderLine) -> bool:
        """Whether this is the model's own network without its training."""
        if self.twin_of:
            return self.twin_of == model.name
        return bool(self.twin_kind) and bool(model.trained_on) and self.twin_kind == model.kind


@dataclass(frozen=True)
class JointRow:
    """One line of a per-joint table: a joint, or a summary (mean, weighted mean, anisotropy)."""

    label: str
    joint: bool
    std: float | None
    unit: str
    ceiling: float | None
    testable: bool
    cells: dict[str, Number]
    nulls: dict[str, Number]

    @property
    def std_text(self) -> str:
        """Its standard deviation; the unit is said where it is not rad."""
        if self.std is None:
            return ""
        return plain(self.std) if self.unit in ("", "rad") else f"{plain(self.std)} {self.unit}"

    @property
    def ceiling_text(self) -> str:
        return "" if self.ceiling is None else plain(self.ceiling)


@dataclass(frozen=True)
class JointTable:
    """Per-joint numbers of every encoder on one data entry, models first, their controls beside them."""

    data: str
    columns: tuple[str, ...]
    models: tuple[str, ...]
    rows: tuple[JointRow, ...]
    n_rows: int | None
    n_episodes: int | None

    @property
    def figure(self) -> str:
        """The name of the figure that shows this table."""
        return f"joints-{re.sub('[^A-Za-z0-9_-]+', '-', self.data).strip('-') or 'data'}"

    @property
    def null_models(self) -> tuple[str, ...]:
        """The models whose permutation null was measured joint by joint."""
        return tuple(
            m for m in self.models if any(m in row.nulls and not row.nulls[m].missing for row in self.rows)
        )

    @property
    def joints(self) -> tuple[JointRow, ...]:
        return tuple(row for row in self.rows if row.joint)

    @property
    def summaries(self) -> tuple[JointRow, ...]:
        return tuple(row for row in self.rows if not row.joint)

    def row(self, label: str) -> JointRow | None:
        return next((row for row in self.rows if row.label == label), None)


@dataclass(frozen=True)
class TransferRow:
    """An encoder (by what it was trained on) and its mean R2 on each data entry."""

    encoder: str
    trained_on: str
    cells: dict[str, Number]


@dataclass(frozen=True)
class TransferDifference:
    """How far an encoder lies above one control, on each data entry; `paired`: with intervals of it."""

    encoder: str
    trained_on: str
    control: str
    cells: dict[str, Number]
    paired: bool


@dataclass(frozen=True)
class TransferTable:
    """Trained on x evaluated on: values, and differences from the controls."""

    data: tuple[str, ...]
    values: tuple[TransferRow, ...]
    controls: tuple[TransferRow, ...]
    differences: tuple[TransferDifference, ...]


@dataclass(frozen=True)
class BesideRow:
    """One measurement of every encoder; `about` says what it is, in words for a reader who never met it."""

    label: str
    about: str
    cells: dict[str, Number]


@dataclass(frozen=True)
class BesideTable:
    """What was measured beside the read-out on one data entry; encoders in columns, models first.

    `notes`: what could not be measured there, and why, once for all encoders.
    """

    data: str
    columns: tuple[str, ...]
    models: tuple[str, ...]
    rows: tuple[BesideRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlainTable:
    """Rows of text under a heading; `about` says how to read them. The first cell of a row is its label."""

    title: str
    about: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class CheckLine:
    name: str
    state: str
    message: str
    remedy: str = ""

    @property
    def tone(self) -> str:
        return {"pass": "good", "match": "good", "fail": "bad", "differs": "bad", "warn": "warn"}.get(
            self.state, "open"
        )


@dataclass(frozen=True)
class LedgerLine:
    seq: int
    event: str
    time: str
    hash: str
    about: str = ""


@dataclass(frozen=True)
class FigureLine:
    """A figure that belongs to the card: its file under the study folder, and what it shows."""

    name: str
    file: str
    caption: str
    alt: str


@dataclass(frozen=True)
class Card:
    """Everything a verdict card shows."""

    name: str
    title: str
    summary: str
    exploratory: bool
    mismatches: tuple[str, ...]
    # the paper
    paper: str
    authors: str
    paper_link: Link
    code_link: Link
    goal: str
    measured_by: str
    # the verdict; what must stand beside it is empty where there is nothing to say
    verdict: str
    firm: str
    too_few: str
    seen_before: str
    claim_tested: str
    claims: tuple[ClaimLine, ...]
    bars: tuple[BarLine, ...]
    bars_note: str
    registration: tuple[tuple[str, str], ...]
    not_proven: tuple[str, ...]
    # what was run, and the numbers
    data: tuple[DataLine, ...]
    encoders: tuple[EncoderLine, ...]
    settings: tuple[tuple[str, str], ...]
    joint_tables: tuple[JointTable, ...]
    transfer: TransferTable | None
    beside_tables: tuple[BesideTable, ...]
    plain_tables: tuple[PlainTable, ...]
    others: tuple[Number, ...]
    numbers: Mapping[str, Number]  # every measurement by its path
    # compute, trust, place
    what_would_change_it: str
    compute: str
    provenance: tuple[tuple[str, str], ...]
    checks: tuple[CheckLine, ...]
    ledger: tuple[LedgerLine, ...]
    corrections: tuple[str, ...]
    reproduce_id: str
    study_sha256: str
    first_published: str
    updated: str
    series: SeriesPlace | None
    level: float = 0.95
    min_std: float = 0.02  # rad; a joint that moves less is not testable
    # sentences that the numbers decide, and the figures drawn from the rest
    caveats: tuple[
        str, ...
    ] = ()  # what keeps the primary claim's encoders from meaning much (reports/caveats.py)
    findings: tuple[str, ...] = ()
    gap: tuple[str, ...] = ()
    change: tuple[str, ...] = ()
    figures: tuple[FigureLine, ...] = ()

    @property
    def beside(self) -> tuple[str, ...]:
        """What stands beside the verdict: `firm`, and every reason to trust it less."""
        firm = "" if self.firm == UNDECIDED else self.firm  # the standing says that it is undecided
        return tuple(part for part in (firm, self.too_few, self.seen_before) if part)

    @property
    def standing(self) -> str:
        """The verdict in the words that every rendering begins with."""
        return standing(self.verdict, self.firm)

    @property
    def tone(self) -> str:
        """Neutral for an exploratory card, which confirms nothing, and for a verdict that is not firm."""
        return "open" if self.exploratory else tone_of(self.verdict, self.firm)

    @property
    def ledger_head(self) -> str:
        return self.ledger[-1].hash if self.ledger else ""

    @property
    def banner(self) -> str:
        return EXPLORATORY if self.exploratory else ""

    def encoder(self, name: str) -> EncoderLine | None:
        return next((line for line in self.encoders if line.name == name), None)
