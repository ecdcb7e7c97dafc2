"""What the ledger tells a card: the registration in force, dates, corrections, the id to reproduce it by."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from bars.canonical import canonical_json
from bars.events import Registered
from bars.freeze import power_words
from bars.ledger import Event
from reports.model import LedgerLine

_STAMP = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class History:
    """The ledger up to the last event that a card rests on: publications at its very end are left out.

    So a card that is written again from the same ledger is the same card, although `published` follows each.
    """

    events: tuple[Event, ...]
    published: str  # UTC time of the first publication, empty before it

    @classmethod
    def of(cls, events: Sequence[Event], time: datetime | None = None) -> History:
        """Read a verified ledger; `time` is when the card will be published, for one that never was."""
        kept = list(events)
        while kept and kept[-1].event == "published":
            kept.pop()
        first = next((event.time for event in events if event.event == "published"), "")
        if not first and time is not None:
            first = time.astimezone(timezone.utc).strftime(_STAMP)
        return cls(tuple(kept), first)

    @property
    def registration(self) -> Event | None:
        """The last registration, unless it was superseded."""
        kinds = ("registered", "superseded")
        last = next((event for event in reversed(self.events) if event.event in kinds), None)
        return last if last is not None and last.event == "registered" else None

    @property
    def first_published(self) -> str:
        return when(self.published) if self.published else ""

    @property
    def updated(self) -> str:
        """When the last event that changed the card was written down, if that was after its publication."""
        last = self.events[-1].time if self.events else ""
        return when(last) if self.published and last > self.published else ""

    @property
    def seen_before(self) -> str:
        """What must stand beside a verdict whose bars were frozen again after latents had been computed."""
        if self.registration is None:
            return ""
        seen = self.registration.read(Registered).seen_before
        if not seen:
            return ""
        return f"bars were frozen again after latents of {len(seen)} evaluation episodes had been computed"

    @property
    def power(self) -> tuple[tuple[str, str], ...]:
        """What the evaluation episodes of each data entry can show, as it was known at the freeze."""
        if self.registration is None:
            return ()
        known = self.registration.read(Registered).power
        return tuple((f"power, {name}", power_words(effects)) for name, effects in known.items())

    @property
    def corrections(self) -> tuple[str, ...]:
        """Dated additions, in words."""
        found = [event for event in self.events if event.event in ("corrected", "superseded")]
        return tuple(f"{when(e.time)}, {e.event} ({e.body['what']}): {e.body['reason']}" for e in found)

    @property
    def lines(self) -> tuple[LedgerLine, ...]:
        return tuple(
            LedgerLine(event.seq, event.event, when(event.time, seconds=True), event.hash, _about(event))
            for event in self.events
        )

    def reproduce_id(self, study_sha256: str) -> str:
        """A short name for exactly this study.yaml and this ledger."""
        head = self.events[-1].hash if self.events else ""
        digest = hashlib.sha256(canonical_json({"ledger": head, "study": study_sha256})).hexdigest()
        return f"jp-{digest[:12]}"

    def bound_data(self, name: str) -> Mapping[str, Any]:
        """How a data entry is bound, by its latest event; empty where it is not."""
        bound: Mapping[str, Any] = {}
        for event in self.events:
            if event.event == "registered":
                bound = event.body["data"].get(name, bound)
            elif event.event == "data" and event.body["name"] == name:
                bound = event.body
        return bound

    def judged(self) -> Event | None:
        """The judgement of the last probing, where it was written down."""
        last = next((e for e in reversed(self.events) if e.event in ("judged", "probed")), None)
        return last if last is not None and last.event == "judged" else None


def when(time: str, seconds: bool = False) -> str:
    """`2026-10-29 14:03 UTC` of `2026-10-29T14:03:00Z`; anything else as it is."""
    shown = r"\1 \2\3 UTC" if seconds else r"\1 \2 UTC"
    return re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(:\d\d)Z$", shown, time)


def _about(event: Event) -> str:
    """What an event is about, in a few words."""
    body = event.body
    if event.event == "probed":
        return "exploratory" if body["exploratory"] else ""
    if event.event == "extracted":
        return f"{body['encoder']} on {body['data']}"
    if event.event == "published":
        return f"{len(body['files'])} files"
    key = {
        "data": "name",
        "trained": "encoder",
        "judged": "verdict",
        "corrected": "reason",
        "superseded": "reason",
    }
    return str(body[key[event.event]]) if event.event in key else ""
