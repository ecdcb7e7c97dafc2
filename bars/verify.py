"""Verification: recompute what the ledger of a study folder holds, on any machine, and say what differs.

Nothing of a recording is parsed but the names in its manifest: files are hashed as bytes. What is not there
reads "not checked". Fingerprints and latent hashes need readers of those formats, which are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bars.binding import Binding, read_binding
from bars.bound import hash_recording
from bars.errors import StudyError
from bars.events import Extracted, Judged, Probed, Published
from bars.files import sha256_file
from bars.freeze import shorten
from bars.ledger import LEDGER_FILE, Ledger
from bars.results import RESULTS_FILE, Results
from bars.study import STUDY_FILE, Study
from bars.verdict import judge_study

CARD_FILES = ("card.md", "card.html")
NOT_RECORDED = "none: the ledger's end is missing, or the last run was interrupted (run it again)"

VerifyState = Literal["match", "differs", "not checked"]


@dataclass(frozen=True)
class VerifyLine:
    """One thing that the ledger holds: its state, what the ledger says, and what was found or why not."""

    what: str
    state: VerifyState
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        if self.state == "match":
            return f"{self.what}: match"
        if self.state == "differs":
            expected, found = shorten(self.expected), shorten(self.found)
            return f"{self.what}: differs, the ledger holds {expected}, found {found}"
        return f"{self.what}: not checked, {self.found}"


def verify_study(
    folder: Path | str,
    ledger_only: bool = False,
    *,
    fingerprint_of: Callable[[str], str] | None = None,
    fingerprint_by_name: Callable[[str], str | None] | None = None,
    latents_sha256_of: Callable[[str, list[str]], str] | None = None,
    recordings: Mapping[str, Path] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[VerifyLine]:
    """Check a study folder against its ledger.

    Parameters
    ----------
    ledger_only : recompute the chain and the small files of the folder, not recordings, encoders, latents.
    fingerprint_of : folder of an encoder (encoder.json, weights), or FOLDER@LATENT -> fingerprint.
    fingerprint_by_name : encoder name -> fingerprint, for encoders that have no such folder; None where it
        cannot be had here.
    latents_sha256_of : (fingerprint, SHA-256 of each evaluation episode's file) -> hash of those latents.
    recordings : data entry -> folder, where it lies elsewhere than the ledger says.

    Returns
    -------
    Lines in the order of trust: the chain first, then what it binds. A damaged chain is the only line.
    """
    folder = Path(folder)
    try:
        ledger = Ledger.open(folder)
        for event in ledger.events:
            event.read_known()
        binding = read_binding(folder, ledger)
    except StudyError as error:
        return [VerifyLine(LEDGER_FILE, "differs", "an unbroken chain of events", str(error))]
    if not ledger.events:
        return [VerifyLine(LEDGER_FILE, "not checked", "a chain of events", "it is not there")]
    study = _study(folder)
    lines = [VerifyLine(LEDGER_FILE, "match", ledger.head, ledger.head), _order(ledger, study)]
    if binding.registered is None:
        lines.append(VerifyLine("the freeze", "differs", "a registration in force", "none"))
    else:
        lines.append(_file(STUDY_FILE, folder, STUDY_FILE, binding.study_sha256))
    lines += _results(folder, ledger)
    lines += _judged(folder, ledger, study)
    lines += _published(folder, ledger)
    deep = [
        _recordings(folder, binding, ledger_only, recordings or {}, progress),
        _encoders(study, binding, ledger_only, fingerprint_of, fingerprint_by_name),
        _latents(folder, binding, ledger_only, latents_sha256_of),
    ]
    for part in deep:
        lines += part
    return lines


def first_difference(lines: Sequence[VerifyLine]) -> VerifyLine | None:
    return next((line for line in lines if line.state == "differs"), None)


def summarise(lines: Sequence[VerifyLine]) -> str:
    """One sentence: the first thing that differs, else what was not checked, else that all matches."""
    counts = {
        state: sum(line.state == state for line in lines) for state in ("match", "differs", "not checked")
    }
    total = f"{counts['match']} match, {counts['differs']} differ, {counts['not checked']} not checked"
    first = first_difference(lines)
    if first is not None:
        return f"{first} ({total})"
    unchecked = [line for line in lines if line.state == "not checked"]
    if unchecked:
        return f"nothing differs, but {unchecked[0]} ({total})"
    return f"all {len(lines)} match"


def verified(lines: Sequence[VerifyLine], ledger_only: bool = False) -> bool:
    """Whether `jointprobe verify` exits with 0: nothing differs, and all that was asked for was checked."""
    allowed = {"match", "not checked"} if ledger_only else {"match"}
    return all(line.state in allowed for line in lines) and any(line.state == "match" for line in lines)


def _order(ledger: Ledger, study: Study | None) -> VerifyLine:
    """No latent of an evaluation episode exists before the first registration."""
    what, expected = "the order of events", "registered before extracted"
    for event in ledger.events:
        if event.event == "registered":
            break
        if event.event == "extracted" and _evaluates(event.read(Extracted), study):
            return VerifyLine(
                what, "differs", expected, f"extracted on line {event.seq + 1}, before any freeze"
            )
    return VerifyLine(what, "match", expected, expected)


def _evaluates(extracted: Extracted, study: Study | None) -> bool:
    """Whether latents are of evaluation episodes; they are taken to be where study.yaml cannot tell."""
    if study is None or extracted.data not in study.data:
        return True
    return not set(extracted.episodes).isdisjoint(study.data[extracted.data].evaluate)


def _study(folder: Path) -> Study | None:
    try:
        return Study.load(folder)
    except StudyError:
        return None  # its own line says so


def _compare(what: str, expected: str, found: str | None, why_not: str = "it is not there") -> VerifyLine:
    if found is None:
        return VerifyLine(what, "not checked", expected, why_not)
    return VerifyLine(what, "match" if found == expected else "differs", expected, found)


def _file(what: str, folder: Path, name: str, expected: str) -> VerifyLine:
    """A file within the study folder, hashed; a name that leads out of it differs."""
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            return VerifyLine(what, "differs", expected, "a name that leads out of the study's folder")
        return _compare(what, expected, sha256_file(path))
    except FileNotFoundError:
        return _compare(what, expected, None)
    except (OSError, ValueError) as error:
        return _compare(what, expected, None, f"it cannot be read: {error}")


def _results(folder: Path, ledger: Ledger) -> Iterator[VerifyLine]:
    event = ledger.last("probed")
    if event is None:
        if (folder / RESULTS_FILE).exists():
            yield VerifyLine(RESULTS_FILE, "differs", "a `probed` event that records it", NOT_RECORDED)
        return
    line = _file(RESULTS_FILE, folder, RESULTS_FILE, event.read(Probed).results_sha256)
    yield line
    if line.state != "match":
        return
    try:
        head = Results.load(folder).ledger_head
    except StudyError as error:
        yield VerifyLine(f"{RESULTS_FILE}, ledger_head", "differs", "a head of this ledger", str(error))
        return
    known = next((e.hash for e in ledger.events[: event.seq] if e.hash == head), None)
    if known is None:
        yield VerifyLine(f"{RESULTS_FILE}, ledger_head", "differs", "a head of this ledger", head)
    else:
        yield VerifyLine(f"{RESULTS_FILE}, ledger_head", "match", known, head)


def _judged(folder: Path, ledger: Ledger, study: Study | None) -> Iterator[VerifyLine]:
    """Judge again, from study.yaml and results.json as they lie here."""
    event = ledger.last("judged")
    if event is None:
        return
    registered = event.read(Judged)
    expected = _states(registered.verdict, registered.claims, registered.bars)
    try:
        results = Results.load(folder)
    except StudyError as error:
        yield VerifyLine("the verdict", "not checked", expected, str(error))
        return
    if study is None:
        yield VerifyLine("the verdict", "not checked", expected, "study.yaml cannot be read")
        return
    body = judge_study(study, results.measurements, results.unavailable).to_json()
    yield _compare("the verdict", expected, _states(body["verdict"], body["claims"], body["bars"]))


def _states(verdict: str, claims: Mapping[str, Any], bars: Mapping[str, Any]) -> str:
    """`reproduces; C1 reproduces firm; B1 met firm; ...`: what two judgements must agree in."""
    parts = []
    for name, judged in sorted((*claims.items(), *bars.items())):
        found = judged if isinstance(judged, dict) else {}
        parts.append(f"{name} {found.get('state')} {found.get('firm')}".strip())
    return "; ".join((verdict, *parts))


def _published(folder: Path, ledger: Ledger) -> Iterator[VerifyLine]:
    event = ledger.last("published")
    recorded = set() if event is None else set(event.read(Published).files)
    for name in CARD_FILES:
        if name not in recorded and (folder / name).exists():
            yield VerifyLine(name, "differs", "a `published` event that records it", NOT_RECORDED)
    if event is not None:
        for name, expected in event.read(Published).files.items():
            yield _file(name, folder, name, expected)


def _recordings(
    folder: Path,
    binding: Binding,
    ledger_only: bool,
    elsewhere: Mapping[str, Path],
    progress: Callable[[int, int, str], None] | None,
) -> Iterator[VerifyLine]:
    for name, bound in binding.data.items():
        what = f"recording {name}"
        episodes = {int(index): sha for index, sha in bound["episodes"].items()}
        if ledger_only:
            yield VerifyLine(what, "not checked", bound["manifest_sha256"], "only the ledger was asked for")
            continue
        source = elsewhere.get(name, folder / bound["recording"])
        if not source.is_dir():
            yield VerifyLine(
                what, "not checked", bound["manifest_sha256"], f"there is no folder {bound['recording']}"
            )
            continue
        now = hash_recording(source, episodes, progress)
        for episode, sha in sorted(episodes.items()):
            why = now.unreadable.get(episode, "it is not there")
            yield _compare(f"{what}, episode {episode}", sha, now.episodes[episode], why)
        if "recording_sha256" in bound:
            yield _compare(f"{what}, recording.yaml", bound["recording_sha256"], now.recording_sha256)
        yield _compare(f"{what}, manifest.jsonl", bound["manifest_sha256"], now.manifest_sha256)


def _encoders(
    study: Study | None,
    binding: Binding,
    ledger_only: bool,
    fingerprint_of: Callable[[str], str] | None,
    fingerprint_by_name: Callable[[str], str | None] | None,
) -> Iterator[VerifyLine]:
    for name, bound in binding.encoders.items():
        what = f"encoder {name}"
        expected = bound.get("fingerprint")
        if expected is None:
            yield VerifyLine(what, "not checked", bound.get("recipe_sha256", ""), "it was never trained")
            continue
        if ledger_only:
            yield VerifyLine(what, "not checked", expected, "only the ledger was asked for")
            continue
        weights = study.encoder_folder(name) if study is not None and name in study.networks else None
        _, at, latent = name.partition("@")
        try:
            if weights is not None and (weights / "encoder.json").is_file() and fingerprint_of is not None:
                yield _compare(what, expected, fingerprint_of(f"{weights}{at}{latent}"))
            elif fingerprint_by_name is not None:
                yield _compare(what, expected, fingerprint_by_name(name), "its weights are not here")
            else:
                yield _compare(what, expected, None, "its weights are not here, or nothing here reads them")
        except (ValueError, OSError) as error:
            yield VerifyLine(what, "differs", expected, f"weights that cannot be read: {error}")


def _latents(
    folder: Path,
    binding: Binding,
    ledger_only: bool,
    latents_sha256_of: Callable[[str, list[str]], str] | None,
) -> Iterator[VerifyLine]:
    for (encoder, data), extracted in binding.latents.items():
        what = f"latents of the evaluation episodes of {data} (encoder {encoder})"
        expected = extracted.latents_sha256
        if ledger_only:
            yield VerifyLine(what, "not checked", expected, "only the ledger was asked for")
        elif not (folder / "latents" / f"{extracted.fingerprint}.h5").is_file():
            yield _compare(what, expected, None)
        elif latents_sha256_of is None:
            yield _compare(what, expected, None, "nothing here reads latents")
        else:
            episodes = binding.data.get(data, {}).get("episodes", {})
            shas = [episodes.get(str(episode)) for episode in extracted.episodes]
            if None in shas:
                yield VerifyLine(what, "differs", expected, f"episodes of {data} that are not bound")
                continue
            try:
                yield _compare(what, expected, latents_sha256_of(extracted.fingerprint, shas))
            except (ValueError, OSError) as error:
                yield VerifyLine(what, "differs", expected, f"latents that cannot be read: {error}")
