"""The verdict card: everything it shows is computed here, once, from a study, its results and its ledger."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from bars.errors import StudyError
from bars.files import sha256_file, write_whole
from bars.judging import FEWEST_EPISODES
from bars.ledger import Event, Ledger
from bars.results import DataResult, Results, results_file
from bars.study import Study
from bars.verdict import StudyVerdict, judge_study
from reports.beside import beside_tables, plain_tables
from reports.caveats import caveats
from reports.figures import draw_figures
from reports.findings import findings
from reports.history import History
from reports.lines import (
    bar_line,
    check_lines,
    claim_line,
    data_line,
    encoder_line,
    provenance_lines,
    settings_lines,
)
from reports.links import link, paper_link, series_place
from reports.markdown import render_markdown
from reports.meaning import change, gap
from reports.model import TOO_FEW, Card, Number
from reports.page import render_html
from reports.seeds import is_of_a_seed, seeds_table
from reports.tables import joint_tables, number_of, shown_paths, transfer_table

_AGAIN = "probe again: jointprobe probe STUDY"


def write_report(study_folder: Path | str, time: datetime | None = None) -> list[Path]:
    """Write a study's card: `figures/*.svg`, `card.md`, `card.html`, each whole or not at all.

    Written again from the same study.yaml, results.json and ledger, the files are the same.

    Parameters
    ----------
    study_folder : path
        Holds study.yaml, results.json and ledger.jsonl. Call it after `judged` was appended.
    time : datetime, optional
        When the card is published, for one that never was: the time that the caller gives the `published`
        event which follows. Now when left out.

    Returns
    -------
    list of Path
        The files, in the order in which they were written.

    Raises
    ------
    StudyError
        As `load_card`, or a file cannot be written.
    """
    folder = Path(study_folder)
    card = load_card(folder, time or datetime.now(timezone.utc))
    pictures = draw_figures(card)
    card = dataclasses.replace(card, figures=tuple(picture.line for picture in pictures))
    files = {folder / picture.line.file: picture.svg for picture in pictures}
    files |= {folder / "card.md": render_markdown(card), folder / "card.html": render_html(card, pictures)}
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"cannot be made: {error.strerror or error}"
            raise StudyError(path.parent, problem, "can the study's folder be written?") from None
        write_whole(path, text.encode("utf-8"))
    return list(files)


def load_card(study_folder: Path | str, time: datetime | None = None) -> Card:
    """The card of a study folder, from its study.yaml, results.json and ledger.jsonl.

    Raises
    ------
    StudyError
        A file is missing or damaged, or results.json is not of this study.yaml, or is not the file that the
        ledger recorded.
    """
    folder = Path(study_folder)
    study, results, ledger = Study.load(folder), Results.load(folder), Ledger.open(folder)
    _refuse_foreign(folder, study, results, ledger)
    verdict = judge_study(study, results.by_path, results.unavailable)
    return build_card(study, results, verdict, ledger.events, folder, time)


def build_card(
    study: Study,
    results: Results,
    verdict: StudyVerdict,
    events: Sequence[Event],
    folder: Path | str,
    time: datetime | None = None,
) -> Card:
    """Compute everything a card shows.

    Parameters
    ----------
    study, results, verdict
        What was asked, what was measured, what was judged.
    events : sequence of Event
        The study's ledger, verified.
    folder : path
        The study's folder; only neighbours of its series are looked up beside it.
    time : datetime, optional
        When the card is published, for one that never was.
    """
    history = History.of(events, time)
    numbers = {measurement.path: number_of(measurement) for measurement in results.measurements}
    bars = tuple(bar_line(entry, verdict.bars[entry.id], numbers) for entry in study.bars)
    encoders = tuple(encoder_line(study, results, name, numbers) for name in study.encoders)
    tables = joint_tables(study, results, encoders, numbers)
    transfer = transfer_table(study, encoders, numbers)
    beside = beside_tables(study, encoders, numbers)
    of_seeds = [table for table in (seeds_table(study, numbers),) if table.rows]
    shown = shown_paths(tables, beside) | {bar.number.path for bar in bars}
    mismatches = results.provenance.get("mismatches")
    card = Card(
        name=study.name,
        title=study.title,
        summary=study.summary,
        exploratory=results.exploratory or history.registration is None,
        mismatches=tuple(map(str, mismatches)) if isinstance(mismatches, list) else (),
        paper=study.paper.title,
        authors=", ".join(study.paper.authors),
        paper_link=paper_link(study.paper),
        code_link=link(study.paper.code),
        goal=study.paper.goal,
        measured_by=study.paper.measured_by or ("" if study.paper.goal else "Not stated in study.yaml."),
        verdict=verdict.verdict,
        firm=verdict.firm,
        too_few=_too_few(study, verdict),
        seen_before=history.seen_before,
        claim_tested=study.primary_claim.text,
        claims=tuple(claim_line(claim, verdict.claims[claim.id], bars) for claim in study.claims),
        bars=bars,
        bars_note=study.bars_note,
        registration=tuple(
            (name.replace("_", " "), text) for name, text in study.registration.model_dump().items() if text
        )
        + history.power,
        not_proven=tuple(claim.text for claim in study.claims if claim.not_proven),
        data=tuple(
            data_line(study, results.data.get(name, DataResult()), name, history) for name in study.data
        ),
        encoders=encoders,
        settings=settings_lines(study),
        joint_tables=tables,
        transfer=transfer,
        beside_tables=beside,
        plain_tables=(*of_seeds, *plain_tables(results.tables)),
        # Differences of everything from everything stay in results.json; bars and the 2 x 2 show theirs.
        others=tuple(
            n
            for path, n in numbers.items()
            if path not in shown and _stands_alone(path, n) and not is_of_a_seed(study, path)
        ),
        numbers=numbers,
        what_would_change_it=study.what_would_change_it,
        compute=study.compute,
        provenance=provenance_lines(results.provenance),
        checks=check_lines(results, verdict, history),
        ledger=history.lines,
        corrections=history.corrections,
        reproduce_id=history.reproduce_id(results.study_sha256),
        study_sha256=results.study_sha256,
        first_published=history.first_published,
        updated=history.updated,
        series=series_place(study, Path(folder)),
        level=study.probe.level,
        min_std=study.probe.min_std,
    )
    return dataclasses.replace(
        card, caveats=caveats(card), findings=findings(card), gap=gap(card), change=change(card)
    )


def _refuse_foreign(folder: Path, study: Study, results: Results, ledger: Ledger) -> None:
    """A card is written from the results that the ledger recorded for this very study.yaml, or not at all."""
    where, sha = results_file(folder), Study.sha256(folder)
    if results.study != study.name or results.study_sha256 != sha:
        other = (
            f"{results.study}, {results.study_sha256[:12]}..., and this one is {study.name}, {sha[:12]}..."
        )
        raise StudyError(where, f"was measured for another study.yaml ({other})", _AGAIN)
    probed = ledger.last("probed")
    if probed is None:
        if not results.exploratory:
            raise StudyError(where, "is not in the ledger, which holds no `probed` event", _AGAIN)
        return
    recorded, found = probed.body["results_sha256"], sha256_file(where)
    if recorded != found:
        problem = f"is not the file that the ledger recorded: {found[:12]}..., recorded {recorded[:12]}..."
        raise StudyError(where, problem, f"restore it, or {_AGAIN}")
    registered = History.of(ledger.events).registration
    if registered is not None and probed.seq < registered.seq and not results.exploratory:
        problem = f"was measured before the registration in force, of {registered.time}"
        raise StudyError(where, problem, _AGAIN)


def _stands_alone(path: str, number: Number) -> bool:
    """Whether a measurement belongs in the list of others: no difference, and no ranking that was not done,
    which the table of rankings says once.
    """
    return " - " not in path and not (number.missing and ".g1b." in path)


def _too_few(study: Study, verdict: StudyVerdict) -> str:
    """`too few episodes: 6, and 10 are needed`, for the numbers that the verdict stands on."""
    bars = [verdict.bars[name] for name in verdict.claims[verdict.primary].bars]
    counts = [bar.n_episodes for bar in bars if bar.n_episodes]
    fewest = min(counts) if counts else len(study.data[study.first_data].evaluate)
    return f"{TOO_FEW}: {fewest}, and {FEWEST_EPISODES} are needed" if fewest < FEWEST_EPISODES else ""
