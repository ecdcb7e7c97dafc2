# ruff: noqa: E501 - messages stand whole, as they are read
from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import bars.ledger
from bars import Ledger, StudyError, verify_chain
from bars.ledger import FIRST_PREVIOUS, Event, event_hash, read_chain

GOLDEN = Path(__file__).parents[1] / "golden"
TIME = datetime(2026, 10, 29, 12, 0, 0, tzinfo=timezone.utc)
HASH = hashlib.sha256(b"results").hexdigest()
PROBED = {"results_sha256": HASH, "exploratory": False}


def reason(text="red channel only"):
    return {"reason": text, "what": "latents of W1"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


def three_events(path):
    ledger = Ledger.open(path)
    ledger.append("corrected", reason("é €"), TIME)
    ledger.append("probed", PROBED, TIME + timedelta(hours=1))
    ledger.append("published", {"files": {"card.md": HASH}}, TIME + timedelta(hours=2))
    return ledger


def test_golden_hashes():
    """Another implementation must reach these: SHA-256 over canonical JSON of the other five fields."""
    first = event_hash(0, "corrected", "2026-10-29T12:00:00Z", FIRST_PREVIOUS, reason("é €"))
    five = (
        '{"body":{"reason":"é €","what":"latents of W1"},"event":"corrected","previous":"'
        + "0" * 64
        + '","seq":0,"time":"2026-10-29T12:00:00Z"}'
    )
    assert (
        first
        == hashlib.sha256(five.encode("utf-8")).hexdigest()
        == "555fb9e24fbf46282692d5fecec6bb86f0b390d119acca9c68730a7dcad463de"
    )
    second = event_hash(1, "probed", "2026-10-29T13:00:00Z", first, PROBED)
    assert second == "4c25a9f940a51b93e9734ad1a4b3afc47cc27a5ca886406c92a08470f7470ff1"


def test_golden_file(path):
    three_events(path)
    golden = (GOLDEN / "ledger.jsonl").read_bytes()
    assert path.read_bytes() == golden
    assert [event.event for event in verify_chain(GOLDEN / "ledger.jsonl")] == [
        "corrected",
        "probed",
        "published",
    ]


def test_a_chain_by_hand(path):
    ledger = three_events(path)
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    previous = "0" * 64
    for seq, record in enumerate(lines):
        assert record["seq"] == seq and record["previous"] == previous
        five = {key: value for key, value in record.items() if key != "hash"}
        text = json.dumps(five, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        previous = record["hash"]
        assert previous == hashlib.sha256(text.encode("utf-8")).hexdigest()
    assert ledger.head == previous
    assert verify_chain(path) == list(ledger.events) == list(Ledger.open(path.parent).events)


def test_an_empty_ledger(path):
    ledger = Ledger.open(path)
    assert (ledger.events, ledger.head, ledger.last("probed"), ledger.all("probed")) == (
        (),
        "0" * 64,
        None,
        [],
    )
    assert not path.exists()
    with pytest.raises(StudyError, match="cannot be read: No such file or directory"):
        verify_chain(path)


def test_the_latest_event_of_a_kind(path):
    ledger = three_events(path)
    ledger.append("probed", {**PROBED, "exploratory": True}, TIME)
    assert ledger.last("probed").body["exploratory"] is True
    assert [event.seq for event in ledger.all("probed")] == [1, 3]


def test_the_time_is_now_in_utc(path):
    event = Ledger.open(path).append("corrected", reason())
    told = datetime.strptime(event.time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    assert abs(datetime.now(timezone.utc) - told) < timedelta(minutes=5)
    other = timezone(timedelta(hours=2))
    assert (
        Ledger.open(path).append("corrected", reason(), TIME.astimezone(other)).time == "2026-10-29T12:00:00Z"
    )


@pytest.mark.parametrize(
    ("event", "body", "told"),
    [
        ("forgot", {}, "event 'forgot': is no kind of ledger event - it can be registered, data, trained, extracted, "
         "probed, judged, published, corrected, superseded"),
        ("probed", {"exploratory": False}, "event 'probed': results_sha256: is missing"),
        ("probed", {**PROBED, "by": "me"}, "event 'probed': by: is unknown"),
        ("probed", {**PROBED, "exploratory": 1}, "event 'probed': exploratory: Input should be a valid boolean"),
        ("probed", {**PROBED, "results_sha256": HASH + "\n"},
         "event 'probed': results_sha256: String should match pattern '^[0-9a-f]{64}$'"),
        ("corrected", {"reason": " ", "what": "x"}, "event 'corrected': reason: String should have at least 1 character"),
        ("judged", {"verdict": "reproduces", "claims": {}, "bars": {"B1": {"value": float("nan")}}},
         "value.bars.B1.value: is nan, which JSON cannot carry - store null instead"),
    ],
)  # fmt: skip
def test_a_body_that_is_wrong_leaves_the_ledger_alone(path, event, body, told):
    three_events(path)
    before = path.read_bytes()
    with pytest.raises(StudyError) as error:
        Ledger.open(path).append(event, body)
    assert str(error.value) == told
    assert path.read_bytes() == before


def test_a_time_needs_a_zone(path):
    with pytest.raises(
        StudyError, match=r"^event time: 2026-10-29 12:00:00 has no time zone - give it in UTC$"
    ):
        Ledger.open(path).append("corrected", reason(), TIME.replace(tzinfo=None))


# --- damage ---


def wrong(path):
    with pytest.raises(StudyError) as error:
        verify_chain(path)
    return str(error.value).removeprefix(str(path))


EDITED = "the ledger was edited or damaged here: restore it from a copy"


def test_an_edited_line_is_named(path):
    ledger = three_events(path)
    path.write_bytes(path.read_bytes().replace(b'"exploratory":false', b'"exploratory":true'))
    claimed = ledger.events[1]
    real = event_hash(1, "probed", claimed.time, claimed.previous, {**PROBED, "exploratory": True})
    assert wrong(path) == (
        f", line 2: hash is {claimed.hash[:12]}... but its content hashes to {real[:12]}... - {EDITED}"
    )


def test_a_line_rehashed_after_an_edit_breaks_the_next(path):
    ledger = three_events(path)
    forged = Event.make(
        1, "probed", ledger.events[1].time, ledger.events[0].hash, {**PROBED, "exploratory": True}
    )
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + forged.line() + lines[2])
    assert wrong(path) == (
        f", line 3: previous is {ledger.events[1].hash[:12]}... where the line before has the hash "
        f"{forged.hash[:12]}... - {EDITED}"
    )


def test_a_torn_last_line_is_named(path):
    three_events(path)
    path.write_bytes(path.read_bytes()[:-1])
    assert wrong(path) == (
        ", line 3: the last line is torn: it does not end with a newline - "
        "restore the ledger from a copy; the 2 lines before it are whole"
    )
    with pytest.raises(StudyError, match="line 3: the last line is torn"):
        Ledger.open(path)


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda lines: lines[1:], f", line 1: seq is 1 where 0 comes next - {EDITED}"),
        (lambda lines: [lines[0], lines[2]], f", line 2: seq is 2 where 1 comes next - {EDITED}"),
        (lambda lines: [lines[0], lines[0]], f", line 2: seq is 0 where 1 comes next - {EDITED}"),
        (lambda lines: [lines[0], b"\n", lines[1]], ", line 2: is not valid JSON: Expecting value: line 1 column 1 (char 0)"),
        (lambda lines: [b"[]\n"], f", line 1: does not hold exactly body, event, hash, previous, seq, time - {EDITED}"),
        (lambda lines: [lines[0].replace(b'"seq":0', b'"seq":0.0')], f", line 1: seq is of type float - {EDITED}"),
        (lambda lines: [lines[0].replace(b'"seq":0', b'"seq":false')], f", line 1: seq is of type bool - {EDITED}"),
        (lambda lines: [lines[0].replace(b":", b": ", 1)],
         f", line 1: is not written in canonical form (spaces, key order or escapes differ) - {EDITED}"),
        (lambda lines: [lines[0].replace("é".encode(), b"\\u00e9")],
         f", line 1: is not written in canonical form (spaces, key order or escapes differ) - {EDITED}"),
    ],
)  # fmt: skip
def test_other_damage_is_named(path, edit, told):
    three_events(path)
    path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))
    assert wrong(path) == told


def test_every_flip_of_a_byte_is_detected(path):
    """Each of the 8 bits at each position of a short ledger, and random substitutions: none is silent."""
    three_events(path)
    content = path.read_bytes()
    rng = random.Random(7)
    for position in range(len(content)):
        masks = {1 << bit for bit in range(8)} | {rng.randrange(1, 256) for _ in range(2)}
        for mask in masks:
            flipped = bytearray(content)
            flipped[position] ^= mask
            with pytest.raises(StudyError, match=r"^ledger, line [1-4]: "):
                read_chain(bytes(flipped), "ledger")


def test_every_cut_inside_a_line_is_detected(path):
    three_events(path)
    content = path.read_bytes()
    ends = {index + 1 for index, byte in enumerate(content) if byte == ord("\n")} | {0}
    for length in range(len(content)):
        if length in ends:
            # Whole lines cut off the end leave a shorter, valid chain: the head in results.json shows it.
            read_chain(content[:length], "ledger")
        else:
            with pytest.raises(StudyError, match="is torn"):
                read_chain(content[:length], "ledger")


# --- writers ---


def test_a_second_writer_is_chained(path):
    one, other = Ledger.open(path), Ledger.open(path)
    one.append("corrected", reason("one"), TIME)
    event = other.append("corrected", reason("other"), TIME)
    assert event.seq == 1 and [e.body["reason"] for e in verify_chain(path)] == ["one", "other"]
    assert list(other.events) == verify_chain(path)


def test_a_moved_head_can_be_refused(path):
    one, other = Ledger.open(path), Ledger.open(path)
    one.append("corrected", reason(), TIME)
    with pytest.raises(StudyError) as error:
        other.append("corrected", reason(), TIME, expect_head=other.head)
    assert str(error.value) == f"{path}: another process has appended to it meanwhile - try again"


def test_a_ledger_that_was_swapped_is_not_appended_to(path):
    ledger = three_events(path)
    path.unlink()
    Ledger.open(path).append("corrected", reason("another history"), TIME)
    before = path.read_bytes()
    with pytest.raises(StudyError) as error:
        ledger.append("probed", PROBED)
    assert str(error.value) == f"{path}: has lost or changed lines since it was read - restore it from a copy"
    assert path.read_bytes() == before


def _append_many(path, name, count):
    ledger = Ledger.open(path)
    for index in range(count):
        ledger.append("corrected", reason(f"{name} {index}"))


def test_processes_that_write_at_once_lose_nothing(path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_many, args=(path, name, 8)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    events = verify_chain(path)
    assert sorted(event.body["reason"] for event in events) == sorted(
        f"{n} {i}" for n in "abc" for i in range(8)
    )


def test_a_lock_that_is_held_is_named(path, monkeypatch):
    monkeypatch.setattr(bars.ledger, "_LOCK_PATIENCE_S", 0.0)
    with bars.ledger._locked(path):
        with pytest.raises(StudyError) as error:
            Ledger.open(path).append("corrected", reason())
    told = f"{path.parent}/.ledger.jsonl.lock: another process has held it for 0 s - wait for that one to end"
    assert str(error.value) == told


def test_a_full_disk_leaves_the_ledger_as_it_was(path, monkeypatch):
    three_events(path)
    before = path.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    ledger = Ledger.open(path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StudyError) as error:
        ledger.append("probed", PROBED)
    assert str(error.value) == (
        f"{path}: could not be written: No space left on device - what was there before is untouched"
    )
    assert path.read_bytes() == before and len(ledger.events) == 3
    assert sorted(os.listdir(path.parent)) == [".ledger.jsonl.lock", "ledger.jsonl"]
    monkeypatch.undo()
    assert ledger.append("probed", PROBED).seq == 3


@pytest.mark.parametrize("step", ["mkstemp", "write", "fsync", "replace"])
def test_a_kill_at_any_step_leaves_the_old_or_the_new_ledger(path, step, monkeypatch):
    three_events(path)
    child = os.fork()
    if child == 0:
        import tempfile

        def die(*_args, **_kwargs):
            os._exit(9)

        owner = {"mkstemp": tempfile, "write": os, "fsync": os, "replace": os}[step]
        monkeypatch.setattr(owner, {"write": "fchmod"}.get(step, step), die)
        Ledger.open(path).append("probed", PROBED)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    assert len(verify_chain(path)) == 3
    assert Ledger.open(path).append("probed", PROBED).seq == 3


def test_a_folder_that_cannot_be_written(tmp_path):
    with pytest.raises(StudyError) as error:
        Ledger.open(tmp_path / "gone" / "ledger.jsonl").append("corrected", reason())
    assert str(error.value) == (
        f"{tmp_path}/gone/.ledger.jsonl.lock: cannot be locked: No such file or directory - can this folder be written?"
    )


def test_bodies_are_read_as_their_kind(path):
    ledger = three_events(path)
    assert ledger.last("published").read_known().files == {"card.md": HASH}
    odd = Event.make(3, "published", "2026-10-29T12:00:00Z", ledger.head, {"files": 1})
    with pytest.raises(StudyError) as error:
        odd.read_known()
    assert str(error.value) == "ledger.jsonl, line 4: files: Input should be a valid dictionary"
    with pytest.raises(
        StudyError, match=r"^ledger\.jsonl, line 4: 'future' is no kind of event - it can be registered, "
    ):
        Event.make(3, "future", "", ledger.head, {}).read_known()
