"""The ledger: an append-only chain of events, each holding the hash of the one before.

What it proves: no line was edited, dropped or inserted between two others, and in which order things were
written down. What it does not prove: that the clock was right, that no other ledger was kept beside it, or
that its last lines were not cut off; the head that stands in results.json and on the card shows the latter.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time as clock
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bars.canonical import canonical_json, read_json
from bars.errors import StudyError
from bars.events import BODIES, AnyBody, Body, read_body
from bars.files import read_bytes, write_whole

LEDGER_FILE = "ledger.jsonl"
FIRST_PREVIOUS = "0" * 64
MAX_BYTES = 256 << 20
_FIELDS = {"seq", "event", "time", "previous", "body", "hash"}
_LOCK_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Event:
    """One line. `time` is UTC, ISO 8601, to the second; `hash` covers the other five fields."""

    seq: int
    event: str
    time: str
    previous: str
    body: dict[str, Any]
    hash: str

    @classmethod
    def make(cls, seq: int, event: str, time: str, previous: str, body: dict[str, Any]) -> Event:
        return cls(seq, event, time, previous, body, event_hash(seq, event, time, previous, body))

    def line(self) -> bytes:
        """The bytes of its line in ledger.jsonl: canonical JSON and a newline."""
        return canonical_json(self.__dict__) + b"\n"

    def read(self, kind: type[AnyBody]) -> AnyBody:
        """The body as its model; StudyError names the line where it is not one."""
        return read_body(kind, self.body, f"{LEDGER_FILE}, line {self.seq + 1}")

    def read_known(self) -> Body:
        """The body as the model of its kind; StudyError for an unknown kind as well."""
        if self.event not in BODIES:
            where = f"{LEDGER_FILE}, line {self.seq + 1}"
            raise StudyError(where, f"{self.event!r} is no kind of event", f"it can be {', '.join(BODIES)}")
        return self.read(BODIES[self.event])


def event_hash(seq: int, event: str, time: str, previous: str, body: dict[str, Any]) -> str:
    """SHA-256 of the canonical JSON of the five fields."""
    five = {"seq": seq, "event": event, "time": time, "previous": previous, "body": body}
    return hashlib.sha256(canonical_json(five)).hexdigest()


def verify_chain(path: Path | str) -> list[Event]:
    """Every event of a ledger; StudyError names the first line that is wrong and what does not match."""
    path = ledger_file(path)
    remedy = "a study has a ledger from its freeze on: jointprobe freeze STUDY"
    return read_chain(read_bytes(path, MAX_BYTES, remedy), path)


def read_chain(content: bytes, path: Path | str) -> list[Event]:
    """Every event of a ledger's bytes; errors name `path` and the line."""
    events: list[Event] = []
    lines = content.split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        events.append(_read_line(f"{path}, line {number}", line, events))
    if lines[-1]:
        raise StudyError(
            f"{path}, line {len(lines)}",
            "the last line is torn: it does not end with a newline",
            f"restore the ledger from a copy; the {len(events)} lines before it are whole",
        )
    return events


def _read_line(where: str, line: bytes, before: list[Event]) -> Event:
    edited = "the ledger was edited or damaged here: restore it from a copy"
    record = read_json(line, where)
    if not isinstance(record, dict) or set(record) != _FIELDS:
        raise StudyError(where, f"does not hold exactly {', '.join(sorted(_FIELDS))}", edited)
    types = {"seq": int, "body": dict}
    for name in sorted(_FIELDS):
        if type(record[name]) is not types.get(name, str):
            raise StudyError(where, f"{name} is of type {type(record[name]).__name__}", edited)
    event = Event(**record)
    if event.seq != len(before):
        raise StudyError(where, f"seq is {event.seq} where {len(before)} comes next", edited)
    previous = before[-1].hash if before else FIRST_PREVIOUS
    if event.previous != previous:
        found = f"previous is {event.previous[:12]}... where the line before has the hash {previous[:12]}..."
        raise StudyError(where, found, edited)
    try:
        recomputed = event_hash(event.seq, event.event, event.time, event.previous, event.body)
    except StudyError as error:
        raise StudyError(where, f"{error.where} {error.problem}", edited) from None
    if event.hash != recomputed:
        raise StudyError(
            where, f"hash is {event.hash[:12]}... but its content hashes to {recomputed[:12]}...", edited
        )
    if event.line() != line + b"\n":
        raise StudyError(
            where, "is not written in canonical form (spaces, key order or escapes differ)", edited
        )
    return event


class Ledger:
    """A verified ledger in memory. Appending re-reads the file under a lock, so that two writers chain."""

    def __init__(self, path: Path, events: list[Event]) -> None:
        self.path = path
        self.events: tuple[Event, ...] = tuple(events)

    @classmethod
    def open(cls, path: Path | str) -> Ledger:
        """Read and verify the chain. A ledger that does not exist yet is an empty one.

        Parameters
        ----------
        path : a study's folder or its ledger.jsonl.
        """
        path = ledger_file(path)
        return cls(path, verify_chain(path) if path.exists() else [])

    @property
    def head(self) -> str:
        """Hash of the last event; 64 zeros for an empty ledger."""
        return self.events[-1].hash if self.events else FIRST_PREVIOUS

    def last(self, event: str) -> Event | None:
        """The latest event of a kind."""
        return next((found for found in reversed(self.events) if found.event == event), None)

    def all(self, event: str) -> list[Event]:
        """Every event of a kind, in order."""
        return [found for found in self.events if found.event == event]

    def append(
        self,
        event: str,
        body: dict[str, Any],
        time: datetime | None = None,
        *,
        expect_head: str | None = None,
    ) -> Event:
        """Add one event: whole on disk (fsync) when this returns, absent when it raises.

        Parameters
        ----------
        event, body : one of the kinds of FORMATS.md and what it must say.
        time : now when left out.
        expect_head : refuse when another process has appended since.

        Raises
        ------
        StudyError : unknown kind, wrong body, damaged ledger, moved head, or a disk that refuses.
        """
        if event not in BODIES:
            raise StudyError(
                f"event {event!r}", "is no kind of ledger event", f"it can be {', '.join(BODIES)}"
            )
        plain = read_body(BODIES[event], body, f"event {event!r}").to_json()
        # As it will be read back, so that the event returned now equals the one read later.
        plain = read_json(canonical_json(plain), f"event {event!r}")
        with _locked(self.path):
            on_disk = verify_chain(self.path) if self.path.exists() else []
            if [e.hash for e in on_disk[: len(self.events)]] != [e.hash for e in self.events]:
                raise StudyError(
                    self.path, "has lost or changed lines since it was read", "restore it from a copy"
                )
            head = on_disk[-1].hash if on_disk else FIRST_PREVIOUS
            if expect_head is not None and head != expect_head:
                raise StudyError(self.path, "another process has appended to it meanwhile", "try again")
            # The time is what this machine's clock says, even where it lies before the last event's: the
            # order of events is the chain's, and a clock made to agree would be a false date.
            added = Event.make(len(on_disk), event, _stamp(time), head, plain)
            write_whole(self.path, b"".join(e.line() for e in (*on_disk, added)))
            self.events = (*on_disk, added)
        return added


def ledger_file(path: Path | str) -> Path:
    """The ledger.jsonl of a study folder; a file is taken as it is."""
    path = Path(path)
    return path / LEDGER_FILE if path.is_dir() else path


def _stamp(time: datetime | None) -> str:
    if time is not None and time.tzinfo is None:
        raise StudyError("event time", f"{time} has no time zone", "give it in UTC")
    return (time or datetime.now(timezone.utc)).astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file; the ledger itself is replaced by each append, so it cannot carry a lock."""
    lock = path.with_name(f".{path.name}.lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise StudyError(
            lock, f"cannot be locked: {error.strerror or error}", "can this folder be written?"
        ) from None
    try:
        deadline = clock.monotonic() + _LOCK_PATIENCE_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock.monotonic() > deadline:
                    raise StudyError(
                        lock,
                        f"another process has held it for {_LOCK_PATIENCE_S:.0f} s",
                        "wait for that one to end",
                    ) from None
                clock.sleep(0.02)
            except OSError as error:
                raise StudyError(lock, f"cannot be locked: {error.strerror or error}") from None
        yield
    finally:
        os.close(handle)  # which unlocks it as well
