"""The life of a study: freeze, probe, report, verify. Each verb of the command line is one function here."""

from __future__ import annotations

import platform
import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

import bars
from bars import Event, Ledger, Results, VerifyLine, judge_study
from bars.freeze import refuse_mismatches
from bars.results import EncoderResult
from bars.seeds import base_encoder
from bars.study import STUDY_FILE, Study
from encoders import Encoder, LatentStore, recipe_sha256
from encoders import train as train_encoder
from hardware.checks import Check, Look
from hardware.disk import held_alone
from hardware.recording import Progress, host_facts, software_versions
from probe.checks import check_extraction, check_leakage, check_recording, look
from probe.facts import (
    SOFTWARE,
    DataEntry,
    check_recipes,
    encoder_recipe,
    evaluation_std,
    freeze_facts,
    git_commit,
    joints_of,
    open_data,
)
from probe.measure import Probed, fit_facts
from probe.power import Power, smallest_effects
from probe.study_measures import Extracted, measure_study

_POWER = 3  # stream of the study's seed; others are in probe/study_measures.py


def freeze_study(
    folder: str | Path, *, supersede: str | None = None, progress: Progress | None = None
) -> Event:
    """Register a study's claims, bars, data and encoders before any latent of an evaluation episode.

    Parameters
    ----------
    supersede : the reason for giving up a registration that is in force, if there is one.

    Raises
    ------
    InputError, StudyError : bad study.yaml, data or encoders; latents that exist already; an earlier freeze.
    """
    study = Study.load(folder)
    ledger = Ledger.open(study.folder)
    facts, _, _ = freeze_facts(study, bars.read_binding(study.folder, ledger), ledger, progress)
    check_recipes(study, facts)
    power = study_power(study, list(facts.data))
    facts = replace(facts, power={name: effects.to_json() for name, effects in power.items()})
    if supersede is not None:
        bars.supersede(study.folder, supersede)
    return bars.register(study.folder, facts)


def study_power(study: Study, names: Sequence[str]) -> dict[str, Power]:
    """What each data entry's evaluation episodes can show, from joints alone; one without a testable joint
    is left out.
    """
    found = {}
    for number, name in enumerate(names):
        entry = open_data(study, name)
        joints, clusters = joints_of(entry)
        _, testable = evaluation_std(entry, study.probe.min_std)
        effects = smallest_effects(
            joints,
            clusters,
            len(entry.evaluate),
            testable,
            entry.joints,
            np.random.default_rng(np.random.SeedSequence(study.seed, spawn_key=(_POWER, number))),
            level=study.probe.level,
        )
        if effects is not None:
            found[name] = effects
    return found


def probe_study(
    folder: str | Path, *, exploratory: bool = False, progress: Progress | None = None
) -> Results:
    """Train, extract, probe and judge what a study says; writes results.json and the card.

    Everything long is resumable: trained encoders and extracted episodes are not made again.

    Raises
    ------
    InputError, StudyError : bad input; nothing frozen or something bound has changed, unless `exploratory`.
    """
    study = Study.load(folder)
    with held_alone(study.folder / STUDY_FILE, "probed"):  # two at once would train into the same files
        return _probe(study, exploratory, progress)


def _probe(study: Study, exploratory: bool, progress: Progress | None) -> Results:
    started = clock.monotonic()
    ledger = Ledger.open(study.folder)
    binding = bars.read_binding(study.folder, ledger)
    facts, loaded, unavailable = freeze_facts(study, binding, ledger, progress)
    frozen = True
    if binding.registered is not None:
        for name in [name for name in facts.data if name not in binding.data]:
            bars.bind_data(study.folder, name, facts.data[name])
        for name in [
            name for name in facts.encoders if name not in binding.encoders
        ]:  # optional weights came
            bars.bind_trained(study.folder, name, fingerprint=facts.encoders[name]["fingerprint"])
    mismatches = bars.check_frozen(study.folder, facts)
    if mismatches:
        if not exploratory:
            refuse_mismatches(study.folder, mismatches)
        frozen = False
    entries = {name: open_data(study, name) for name in study.data}
    encoders = _make_encoders(study, entries, loaded, frozen, progress)
    latents, checks = _extract(study, entries, encoders, frozen, progress)
    measured = measure_study(study, entries, encoders, latents, progress)
    results = Results(
        study=study.name,
        study_sha256=Study.sha256(study.folder),
        ledger_head=Ledger.open(study.folder).head,
        exploratory=not frozen,
        made_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        measurements=measured.measurements,
        encoders=_encoder_results(study, encoders, unavailable, measured.probed),
        data=measured.data,
        checks=checks,
        tables=measured.tables,
        provenance={
            "software": software_versions(*SOFTWARE),
            "host": {**host_facts(), "processor": platform.processor()},
            "git_commit": git_commit(study.folder),
            "seconds": round(clock.monotonic() - started, 1),
            "mismatches": [str(one) for one in mismatches],
        },
    )
    sha = results.save(study.folder)
    verdict = judge_study(study, results.measurements, results.unavailable)
    _append_new(study.folder, "probed", {"results_sha256": sha, "exploratory": not frozen})
    _append_new(study.folder, "judged", verdict.to_json())
    report_study(study.folder)
    return results


def report_study(folder: str | Path) -> list[Path]:
    """Write the card and its figures from what is on disk, and note their hashes in the ledger."""
    from reports import write_report

    study = Study.load(folder)
    now = datetime.now(timezone.utc)
    written = write_report(study.folder, now)
    files = {path.relative_to(study.folder).as_posix(): bars.sha256_file(path) for path in written}
    _append_new(study.folder, "published", {"files": files}, now)
    return written


@dataclass(frozen=True)
class Verification:
    """What `verify` found, line by line; `ok` is what its exit code tells."""

    lines: Sequence[VerifyLine]
    summary: str
    ok: bool


def verify_study_folder(
    folder: str | Path, *, ledger_only: bool = False, progress: Progress | None = None
) -> Verification:
    """Recompute a study's chain, on any machine; bytes that are not there read "not checked".

    With `ledger_only` that is no failure; what is there is checked all the same.
    """
    from encoders.checkpoints import load_encoder
    from probe.facts import given_encoder

    study = Study.load(folder)
    store = LatentStore(study.folder / "latents")

    def by_name(name: str) -> str | None:
        try:
            return None if encoder_recipe(study, name) else given_encoder(study, name).fingerprint
        except ValueError:
            return None

    lines = bars.verify_study(
        study.folder,
        fingerprint_of=lambda folder: load_encoder(folder).fingerprint,
        fingerprint_by_name=by_name,
        latents_sha256_of=store.sha256,
        progress=progress,
    )
    return Verification(lines, bars.summarise(lines), bars.verified(lines, ledger_only))


# -- the steps of a probe


def _make_encoders(
    study: Study,
    entries: dict[str, DataEntry],
    loaded: dict[str, Encoder],
    frozen: bool,
    progress: Progress | None,
) -> dict[str, Encoder]:
    from reports.training_figure import draw_training

    for name in sorted(study.networks, key=lambda name: "@" in name):  # another latent of W1 comes after W1
        made = encoder_recipe(study, name)
        if name not in loaded and made is not None:
            recipe, on = made
            entry = entries[on]
            base, at, latent = name.partition("@")
            if at:
                loaded[name] = loaded[base].with_output(latent)
            else:
                to = study.folder / "encoders" / name
                told = _named(progress, name)
                loaded[name] = train_encoder(entry.recording, entry.train, recipe, to, progress=told)
                draw_training(to)
            if frozen:
                bars.bind_trained(
                    study.folder,
                    name,
                    fingerprint=loaded[name].fingerprint,
                    recipe_sha256=recipe_sha256(recipe),
                    data=on,
                    episodes=entry.train,
                )
    return {name: loaded[name] for name in study.networks if name in loaded}


def _extract(
    study: Study,
    entries: dict[str, DataEntry],
    encoders: dict[str, Encoder],
    frozen: bool,
    progress: Progress | None,
) -> tuple[dict[tuple[str, str], Extracted], list[dict[str, Any]]]:
    """Latents of every encoder on every data entry whose views it can see, and what checks say of both."""
    store = LatentStore(study.folder / "latents")
    head = Ledger.open(study.folder).head
    found: dict[tuple[str, str], Extracted] = {}
    checks: list[Check] = []
    looks: dict[str, list[Look]] = {}
    for data, entry in entries.items():
        looks[data] = look(entry.recording, _named(progress, f"looking at {data}"))
        seen = check_recording(entry.recording, looks=looks[data], expect=study.data[data].expect)
        seen += check_leakage(entry.recording, entry.train, entry.evaluate, looks[data])
        checks += [replace(check, name=f"{data}: {check.name}") for check in seen]
    for data, entry in entries.items():
        together: dict[tuple[str, ...], list[str]] = {}  # over one decoding
        for name in encoders:
            views = tuple(study.encoder_views(name))
            if set(views) <= set(entry.views):
                together.setdefault(views, []).append(name)
        for views, names in together.items():
            store.extract_all(
                [encoders[name] for name in names],
                entry.recording,
                views,
                [*entry.train, *entry.evaluate],
                max_rows=study.probe.max_rows_per_episode,
                progress=_named(progress, f"{', '.join(names)} on {data}"),
                ledger_head=head,
            )
    for name, encoder in encoders.items():
        views = tuple(study.encoder_views(name))
        for data, entry in entries.items():
            if not set(views) <= set(entry.views):
                continue
            shas = [entry.recording.episode(index).sha256 for index in entry.evaluate]
            bars.record_extracted(
                study.folder,
                name,
                data,
                fingerprint=encoder.fingerprint,
                latents_sha256=store.sha256(encoder.fingerprint, shas),
                episodes=entry.evaluate,
                exploratory=not frozen,
            )
            train, evaluate = (
                [store.read(encoder.fingerprint, entry.recording.episode(index).sha256) for index in split]
                for split in (entry.train, entry.evaluate)
            )
            found[name, data] = Extracted.of(train, evaluate, entry)
            checks += check_extraction(
                study.source(name, data),
                encoder,
                entry.recording,
                store,
                entry.train,
                entry.evaluate,
                views,
                looks=looks[data],
            )
    return found, [_facts(check) for check in checks]


def _facts(check: Check) -> dict[str, Any]:
    """A check as results.json holds it; its picture is the recording's to show (`jointprobe check`)."""
    return {key: getattr(check, key) for key in ("name", "state", "message", "evidence", "remedy")}


def _encoder_results(
    study: Study,
    encoders: dict[str, Encoder],
    unavailable: dict[str, str],
    probed: Mapping[tuple[str, str], Probed],
) -> dict[str, EncoderResult]:
    found: dict[str, EncoderResult] = {}
    for name, entry in study.networks.items():
        trained_on = study.networks[base_encoder(name)].on or ""
        shared = {"role": entry.role, "about": entry.about, "trained_on": trained_on}
        if name not in encoders:
            kind = (entry.load or "").partition(":")[0]
            found[name] = EncoderResult.model_validate(
                dict(shared, kind=kind, unavailable=unavailable.get(name, "not run"))
            )
            continue
        encoder = encoders[name]
        fits = {data: fit_facts(one) for (who, data), one in probed.items() if who == name}
        found[name] = EncoderResult.model_validate(
            dict(
                shared,
                kind=encoder.kind,
                width=encoder.width,
                fingerprint=encoder.fingerprint,
                alpha={data: fit["alpha"] for data, fit in fits.items()},
                views=study.encoder_views(name),
                fits=fits,
                describe=encoder.describe(),
            )
        )
    for name, entry in study.encoders.items():
        networks = study.seeds_of(name)
        if networks:
            first = found[networks[0]]
            found[name] = EncoderResult.model_validate(
                dict(kind=first.kind, width=first.width, role=entry.role, about=entry.about, seeds=networks)
            )
    return found


def _append_new(folder: Path, event: str, body: dict[str, Any], time: datetime | None = None) -> None:
    """Append an event unless the last one of its kind says the same."""
    ledger = Ledger.open(folder)
    last = ledger.last(event)
    if last is None or last.body != body:
        ledger.append(event, body, time, expect_head=ledger.head)


def _named(progress: Progress | None, name: str) -> Progress | None:
    """Progress whose bar says which encoder it is about."""
    if progress is None:
        return None
    return lambda done, total, what: progress(done, total, f"{name}: {what}")
