"""What is bound after the freeze, one dated event each: recordings, trained encoders, extracted latents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bars.binding import Binding, DataFacts, read_binding
from bars.errors import StudyError
from bars.events import Extracted, Trained
from bars.freeze import HOW_TO_SUPERSEDE, check_data, shorten
from bars.ledger import Event, Ledger
from bars.study import Study


def bind_data(study_folder: Path | str, name: str, facts: DataFacts) -> Event:
    """Bind a recording that was made after the registration (`data` event)."""
    study, ledger, binding = _in_force(study_folder)
    check_data(study, name, facts)
    if name in binding.data:
        raise StudyError(f"recording {name}", "is bound already", HOW_TO_SUPERSEDE)
    return ledger.append("data", {"name": name, **facts.binding()}, expect_head=ledger.head)


def bind_trained(
    study_folder: Path | str,
    encoder: str,
    *,
    fingerprint: str,
    recipe_sha256: str | None = None,
    data: str | None = None,
    episodes: Iterable[int] = (),
) -> Event:
    """Bind the fingerprint of an encoder that was trained, or whose weights came, after the registration.

    Binding the same fingerprint again returns the event that holds it. Another one needs a `corrected`
    event, after the first, that says why.
    """
    study, ledger, binding = _in_force(study_folder)
    if encoder not in study.networks:
        raise StudyError(f"encoder {encoder}", "is not in study.yaml")
    bound = binding.encoders.get(encoder, {})
    recipe = bound.get("recipe_sha256")
    if recipe is not None and recipe_sha256 != recipe:
        found = "no recipe" if recipe_sha256 is None else f"the recipe {shorten(recipe_sha256)}"
        raise StudyError(
            f"encoder {encoder}",
            f"was trained by {found}, and registered is {shorten(recipe)}",
            HOW_TO_SUPERSEDE,
        )
    if "fingerprint" in bound:
        holds = _since(ledger, binding, "trained", lambda event: event.read(Trained).encoder == encoder)
        if bound["fingerprint"] == fingerprint:
            return holds
        _need_correction(ledger, holds, f"encoder {encoder}", bound["fingerprint"], fingerprint)
    body = {
        "encoder": encoder,
        "recipe_sha256": recipe_sha256,
        "fingerprint": fingerprint,
        "data": data,
        "episodes": sorted(episodes),
    }
    return ledger.append("trained", body, expect_head=ledger.head)


def record_extracted(
    study_folder: Path | str,
    encoder: str,
    data: str,
    *,
    fingerprint: str,
    latents_sha256: str,
    episodes: Iterable[int],
    exploratory: bool = False,
) -> Event:
    """Write down that latents of evaluation episodes exist (`extracted` event).

    The same latents again return the event that holds them. Other ones need a `corrected` event, after the
    first, that says why. Exploratory ones, and those without a freeze, bind nothing; they are written down
    all the same, and stand in the way of a first freeze on these episodes.
    """
    ledger = Ledger.open(study_folder)
    binding = read_binding(study_folder, ledger)
    body: dict[str, Any] = {
        "encoder": encoder,
        "fingerprint": fingerprint,
        "data": data,
        "latents_sha256": latents_sha256,
        "episodes": sorted(episodes),
    }
    if exploratory:
        body["exploratory"] = True
    if binding.registered is None or exploratory:
        said = [event for event in ledger.all("extracted") if event.body == body]
        return said[-1] if said else ledger.append("extracted", body, expect_head=ledger.head)
    bound = binding.latents.get((encoder, data))
    if bound is not None:
        what = f"latents of the evaluation episodes of {data} (encoder {encoder})"

        def holds_them(event: Event) -> bool:
            body = event.read(Extracted)
            return (body.encoder, body.data) == (encoder, data)

        holds = _since(ledger, binding, "extracted", holds_them)
        if (bound.latents_sha256, bound.fingerprint) == (latents_sha256, fingerprint):
            return holds
        if bound.fingerprint == fingerprint:
            _need_correction(ledger, holds, what, bound.latents_sha256, latents_sha256)
        # Latents of another fingerprint: that one was bound by `trained`, with its own correction.
    return ledger.append("extracted", body, expect_head=ledger.head)


def _in_force(study_folder: Path | str) -> tuple[Study, Ledger, Binding]:
    study, ledger = Study.load(study_folder), Ledger.open(study_folder)
    binding = read_binding(study_folder, ledger)
    if binding.registered is None:
        raise StudyError(study_folder, "is not frozen", "freeze it first: jointprobe freeze STUDY")
    if binding.study_sha256 != Study.sha256(study_folder):
        raise StudyError(study_folder, "study.yaml has changed since it was frozen", HOW_TO_SUPERSEDE)
    return study, ledger, binding


def _since(ledger: Ledger, binding: Binding, kind: str, holds: Callable[[Event], bool]) -> Event:
    """The latest event of a kind since the registration that holds it; else the registration itself."""
    assert binding.registered is not None
    later = ledger.events[binding.registered.seq + 1 :]
    return next((e for e in reversed(later) if e.event == kind and holds(e)), binding.registered)


def _need_correction(ledger: Ledger, since: Event, what: str, expected: str, found: str) -> None:
    correction = ledger.last("corrected")
    if correction is None or correction.seq < since.seq:
        raise StudyError(
            what,
            f"is bound as {shorten(expected)}, and this is {shorten(found)}",
            "a correction is dated and says why: append a `corrected` event first",
        )
