"""The card as a whole: golden Markdown, every field of the reference card, dates, refusals."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from datetime import timedelta
from pathlib import Path

import pytest
from report_studies import START, Made, sha, small

from bars import Ledger, StudyError, sha256_file
from reports import load_card, render_html, render_markdown, write_report
from reports.figures import draw_figures

GOLDEN = Path(__file__).parents[1] / "golden" / "card.md"
FIELDS = [
    "Paper's goal",
    "Hypotheses",
    "Verdict",
    "Claim tested",
    "Bar",
    "n",
    "Theirs vs ours",
    "Not proven",
    "Paper",
    "Code",
    "Compute and cost",
    "Reproduce",
    "First published",
    "Updated",
    "Series",
]
SECTIONS = [
    "Claims, one by one",
    "Bars",
    "Findings",
    "What the paper claims and how it measures it",
    "What I ran",
    "Their number / my number",
    "What the gap means",
    "What would change it",
    "Compute",
    "Integrity checks",
    "Ledger",
]
PUBLISHED = START + timedelta(hours=6)


def test_golden_card(tmp_path):
    """The whole Markdown of a small card. JOINTPROBE_GOLDEN=write replaces the file: read the difference."""
    folder = small().write(tmp_path / "lejepa")
    card = load_card(folder, PUBLISHED)
    card = dataclasses.replace(card, figures=tuple(picture.line for picture in draw_figures(card)))
    text = _without_hashes(render_markdown(card))
    if os.environ.get("JOINTPROBE_GOLDEN") == "write":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def _without_hashes(text: str) -> str:
    """Hashes follow every other room's bytes; what they are is tested where they are made."""
    text = re.sub(r"\b[0-9a-f]{64}\b", "f" * 64, text)
    return re.sub(r"jp-[0-9a-f]{12}\b", "jp-" + "f" * 12, re.sub(r"`[0-9a-f]{12}`", f"`{'f' * 12}`", text))


def test_hashes_of_the_ledger_stand_whole_and_short(full, full_html):
    markdown, html = render_markdown(full), full_html
    assert len(full.ledger) == 7
    for line in full.ledger:
        assert f"| {line.time} | `{line.hash[:12]}` | `{line.hash}` |" in markdown
        assert f"<b>{line.hash[:12]}</b> {line.hash}" in html
    assert full.ledger_head == full.ledger[-1].hash


def test_every_field_and_section_in_order(full, full_html):
    markdown, html = render_markdown(full), full_html
    places = [markdown.index(f"\n| {field} | ") for field in FIELDS]
    places += [markdown.index(f"\n## {section}\n") for section in SECTIONS]
    assert places == sorted(places)
    places = [html.index(f"<dt>{field.replace(chr(39), '&#39;')}</dt>") for field in FIELDS]
    places += [html.index(f"<h2>{section}</h2>") for section in SECTIONS]
    assert places == sorted(places)


def test_numbers_of_the_reference_result(full):
    markdown = render_markdown(full)
    assert "**Verdict: ✓ reproduces** · **firm**\n" in markdown
    assert "W1.r2.mean: theirs 0.565, ours 0.565 [0.525, 0.597]" in markdown
    assert (
        "| shoulder_pan | 0.420 | 0.999 | 0.58 [0.51, 0.63] | 0.66 [0.59, 0.71] | 0.92 [0.85, 0.97] |"
        in markdown
    )
    assert (
        "| **mean** |  |  | 0.565 [0.525, 0.597] | 0.543 [0.504, 0.576] | 0.867 [0.827, 0.899] |" in markdown
    )
    assert "r2.mean: dinov2 0.867 > W1 0.565; g1b.top1: dinov2 0.646 > W1 0.605" in markdown
    assert "| G1b mrr | 0.700 [0.670, 0.730] | not measured |" in markdown


def test_two_by_two_with_differences_from_controls(full):
    transfer = full.transfer
    assert [row.encoder for row in transfer.values] == ["W1", "W1walk"]
    assert [row.trained_on for row in transfer.values] == ["demos", "walk"]
    assert transfer.values[0].cells["walk"].text == "0.390"
    differences = {(d.encoder, d.control): d for d in transfer.differences}
    assert set(differences) == {(m, c) for m in ("W1", "W1walk") for c in ("untrained", "pixels")}
    assert differences["W1walk", "untrained"].cells["walk"].difference_text == "+0.347"
    assert differences["W1", "pixels"].cells["walk"].interval == "[-0.078, -0.018]"
    assert all(difference.paired for difference in transfer.differences)


def test_differences_without_a_paired_measurement_have_no_interval(card_of):
    card = card_of(Made(drop=("W1.r2.mean - ", "W1/walk.r2.mean - ", "untrained.r2.mean - ")))
    difference = next(d for d in card.transfer.differences if (d.encoder, d.control) == ("W1", "untrained"))
    assert difference.cells["demos"].difference_text == "+0.138"
    assert difference.cells["demos"].interval == ""
    assert not difference.paired
    assert "| W1 - untrained | demos | +0.138 | +0.055 | none (not paired) |" in render_markdown(card)


def test_one_data_entry_has_no_two_by_two(card_of):
    card = card_of(small())
    assert card.transfer is None
    assert "evaluated on" not in "\n".join(
        line for line in render_markdown(card).splitlines() if line[:1] == "#"
    )


def test_exploratory_stands_at_the_very_top(card_of):
    made = small()
    made.exploratory = True
    made.provenance["mismatches"] = ["recording demos, episode 24: frozen as 1234..., now 5678..."]
    card = card_of(made)
    lines = render_markdown(card).splitlines()
    assert lines[0] == "> **exploratory: bars were not frozen**"
    assert "episode 24: frozen as 1234" in lines[2]
    html = render_html(card)
    assert html.index("exploratory: bars were not frozen") < html.index("<h1>")
    assert card.tone == "open"  # it may say "reproduces", and never in green
    assert any("nothing on this card confirms a claim" in line for line in card.gap)


def test_results_without_a_registration_are_exploratory_whatever_they_say(tmp_path):
    folder = small().write(tmp_path / "lejepa")
    card = load_card(folder)
    assert not card.exploratory
    Ledger.open(folder).append("superseded", {"reason": "wrong split", "what": "study.yaml"}, PUBLISHED)
    card = load_card(folder)
    assert card.exploratory
    assert card.corrections == ("2026-10-29 15:00 UTC, superseded (study.yaml): wrong split",)


def test_too_few_episodes_stands_beside_the_verdict(card_of):
    made = small()
    made.study["data"]["demos"]["evaluate"] = "24-25"
    card = card_of(made)
    markdown = render_markdown(card)
    assert (
        "**Verdict: ○ undecided (would reproduce)** · **too few episodes: 2, and 10 are needed**" in markdown
    )
    assert "- **C1** (primary): **○ undecided (would reproduce)**." in markdown
    assert "| ○ undecided (would be met) | too few episodes: 2, and 10 are needed |" in markdown
    html = render_html(card)
    assert "○ undecided (would reproduce)" in html and "✓ reproduces" not in html and "✓ met" not in html
    assert "31 % at 2" in card.gap[-1]
    assert any(line.startswith("B1 and B2 are undecided: too few episodes") for line in card.change)


def test_ten_episodes_are_enough(card_of):
    made = small()
    made.study["data"]["demos"]["evaluate"] = "24-33"
    assert card_of(made).too_few == ""


def test_not_testable_joints_have_no_number_anywhere(card_of):
    made = small()
    made.untestable = {"demos": ("wrist_roll",)}
    card = card_of(made)
    row = card.joint_tables[0].row("wrist_roll")
    assert not row.testable and all(cell.value is None for cell in row.cells.values())
    markdown = render_markdown(card)
    assert "| wrist_roll | 0.004 |  | not testable | not testable | not testable |" in markdown
    assert "wrist_roll (std 0.004 rad); no R2 is given." in markdown
    assert "0.30 [" not in markdown and "0.08 [" not in markdown  # what it would have scored
    assert "not testable" in render_html(card)


def test_a_number_that_comes_with_a_joint_that_is_not_testable_is_not_shown(tmp_path):
    made = small()
    made.untestable = {"demos": ("wrist_roll",)}
    folder = made.write(tmp_path / "lejepa")
    record = json.loads((folder / "results.json").read_text())
    for measurement in record["measurements"]:
        if measurement["path"] == "W1.r2.wrist_roll":
            measurement.update(value=0.987, low=0.98, high=0.99, testable=True)
    (folder / "results.json").write_text(json.dumps(record))
    body = {"results_sha256": sha256_file(folder / "results.json"), "exploratory": False}
    Ledger.open(folder).append("probed", body, PUBLISHED)
    card = load_card(folder)
    assert "0.987" not in render_markdown(card) + render_html(card)
    assert "0.99" not in card.joint_tables[0].row("wrist_roll").cells["W1"].text


def test_missing_measurements_are_said(card_of):
    card = card_of(Made(drop=("dinov2", "untrained/walk"), unavailable={"dinov2": "no weights offline"}))
    markdown = render_markdown(card)
    assert "not available here: no weights offline" in markdown
    assert "| B3 | C3 | `same_order(W1, dinov2; r2.mean; g1b.top1)` |" in markdown
    assert "B3 was not tested, because dinov2 is not available here: no weights offline" in markdown
    assert "| untrained | control | 0.427 [0.387, 0.459] | not measured |" in markdown
    assert "dinov2" not in card.joint_tables[0].columns


def test_nothing_measured_at_all(card_of):
    made = small()
    made.r2 = {}
    card = card_of(made)
    assert card.verdict == "not tested here"
    assert card.joint_tables == ()
    assert card.findings[0] == "Nothing was measured." or card.findings[0].startswith("Integrity check")
    assert "not measured" in render_markdown(card)
    assert render_html(card)


def test_dates_come_from_the_ledger(tmp_path):
    folder = small().write(tmp_path / "lejepa")
    assert load_card(folder).first_published == ""
    assert load_card(folder, PUBLISHED).first_published == "2026-10-29 15:00 UTC"
    ledger = Ledger.open(folder)
    ledger.append("published", {"files": {"card.md": sha("card")}}, PUBLISHED)
    ledger.append(
        "corrected", {"reason": "a typo in the title", "what": "card"}, PUBLISHED + timedelta(days=3)
    )
    card = load_card(folder)
    assert card.first_published == "2026-10-29 15:00 UTC"
    assert card.updated == "2026-11-01 15:00 UTC"
    assert "corrected (card): a typo in the title" in render_markdown(card)


def test_publishing_changes_neither_the_id_nor_a_byte(tmp_path):
    """Written again from the same ledger the card is the same, although `published` follows each."""
    folder = small().write(tmp_path / "lejepa")
    before = load_card(folder).reproduce_id
    files = write_report(folder, PUBLISHED)
    first = {path: path.read_bytes() for path in files}
    body = {"files": {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}}
    Ledger.open(folder).append("published", body, PUBLISHED)
    assert {path: path.read_bytes() for path in write_report(folder)} == first
    assert load_card(folder).reproduce_id == before


def test_the_id_follows_the_study_and_the_ledger(tmp_path):
    one, two = small(), small()
    two.study["seed"] = 1
    ids = {load_card(made.write(tmp_path / str(i))).reproduce_id for i, made in enumerate((one, two))}
    assert len(ids) == 2
    assert all(len(name) == 15 and name.startswith("jp-") for name in ids)


def test_files_that_are_written(tmp_path):
    folder = Made().write(tmp_path / "lejepa")
    names = [path.relative_to(folder).as_posix() for path in write_report(folder)]
    assert names == [
        "figures/joints-demos.svg",
        "figures/joints-walk.svg",
        "figures/transfer.svg",
        "figures/spread.svg",
        "card.md",
        "card.html",
    ]
    markdown = (folder / "card.md").read_text()
    assert all(f"]({name})" in markdown for name in names[:4])
    assert not list(folder.rglob("*.partial"))


def test_results_of_another_study_are_refused(tmp_path):
    folder = small().write(tmp_path / "lejepa")
    text = (folder / "study.yaml").read_text()
    (folder / "study.yaml").write_text(text.replace("0.80", "0.81"))
    with pytest.raises(StudyError, match=r"results\.json: was measured for another study\.yaml") as caught:
        load_card(folder)
    assert "jointprobe probe STUDY" in caught.value.remedy


def test_results_that_the_ledger_does_not_hold_are_refused(tmp_path):
    folder = small().write(tmp_path / "lejepa")
    text = (folder / "results.json").read_text()
    (folder / "results.json").write_text(text.replace("0.91", "0.92"))
    with pytest.raises(StudyError, match="is not the file that the ledger recorded"):
        write_report(folder)
    assert not (folder / "card.md").exists()


def test_results_older_than_the_registration_in_force_are_refused(tmp_path):
    folder = small().write(tmp_path / "lejepa")
    ledger = Ledger.open(folder)
    registered = ledger.last("registered").body
    ledger.append("superseded", {"reason": "again", "what": "study.yaml"}, PUBLISHED)
    ledger.append("registered", registered, PUBLISHED)
    with pytest.raises(StudyError, match="before the registration in force"):
        load_card(folder)


def test_a_second_freeze_after_latents_were_seen_stands_beside_the_verdict(tmp_path):
    folder = small().write(tmp_path / "lejepa")
    ledger = Ledger.open(folder)
    body = {**ledger.last("registered").body, "seen_before": ["latents of evaluation episode 24 of demos"]}
    probed = ledger.last("probed").body
    ledger.append("superseded", {"reason": "again", "what": "study.yaml"}, PUBLISHED)
    ledger.append("registered", body, PUBLISHED)
    ledger.append("probed", probed, PUBLISHED)
    card = load_card(folder)
    assert "bars were frozen again after latents of 1 evaluation" in render_markdown(card).split("\n\n")[1]
    assert any("could have known these numbers" in line for line in card.gap)


def test_a_judgement_that_no_longer_follows_is_a_failed_check(tmp_path):
    folder = small().write(tmp_path / "lejepa")
    body = {**Ledger.open(folder).last("judged").body, "verdict": "does not reproduce"}
    Ledger.open(folder).append("judged", body, PUBLISHED)
    check = load_card(folder).checks[-1]
    assert (check.name, check.state) == ("judgement", "fail")
    assert "does not reproduce, and the same numbers give reproduces now" in check.message


@pytest.mark.parametrize("name", ["study.yaml", "results.json"])
def test_a_missing_file_is_named(tmp_path, name):
    folder = small().write(tmp_path / "lejepa")
    (folder / name).unlink()
    with pytest.raises(StudyError, match=name.replace(".", r"\.")):
        load_card(folder)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    folder = small().write(tmp_path / "lejepa")
    (folder / "figures").write_text("a file where the folder should be")
    with pytest.raises(StudyError, match="figures: cannot be made"):
        write_report(folder)


def test_neighbours_in_the_series_are_linked_where_their_cards_lie(tmp_path):
    folder = Made().write(tmp_path / "lejepa")
    neighbour = tmp_path / "2026-10-22-vjepa"
    assert load_card(folder).series.previous.href == ""
    neighbour.mkdir()
    (neighbour / "card.html").write_text("a card")
    card = dataclasses.replace(load_card(folder), joint_tables=(), transfer=None, data=())  # nothing to draw
    assert card.series.previous.href == "../2026-10-22-vjepa/card.html"
    assert "[previous: 2026-10-22-vjepa](../2026-10-22-vjepa/card.html)" in render_markdown(card)
    assert 'previous: <a href="../2026-10-22-vjepa/card.html">' in render_html(card)


def test_rounding_never_hides_the_side_of_the_mark(card_of):
    made = small()
    made.r2["W1", "demos"] = (0.7999, 0.7998, 0.7996)
    bar = card_of(made).bars[0]
    assert (bar.state, bar.ours) == ("met", "0.7998")


def test_time_zone_and_provenance(card_of):
    made = small()
    made.provenance["durations_s"] = {"training": 125.0, "probing": 3.21}
    rows = dict(card_of(made).provenance)
    assert rows["durations"] == "training 2 min 05 s, probing 3.2 s"
    assert rows["run time"] == "7 min 11 s"
    assert rows["software"] == "jointprobe 0.1.0, numpy 2.3.5"
