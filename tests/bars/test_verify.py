from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from study_folder import FINGERPRINT, RECIPE, TRAINED, make_study

from bars import (
    Ledger,
    Measurement,
    Results,
    Study,
    VerifyLine,
    bind_trained,
    judge_study,
    record_extracted,
    register,
    summarise,
    verified,
    verify_study,
)

LATENTS = hashlib.sha256(b"latents").hexdigest()
MEASURED = [
    Measurement("W1.r2.mean", 0.565, n_rows=8447, n_episodes=25, low=0.52, high=0.61),
    Measurement("W1.anisotropy", 0.639, n_rows=8447, n_episodes=25, low=0.5, high=0.75),
]


def fingerprint_of(folder):
    return hashlib.sha256((Path(folder) / "weights.safetensors").read_bytes()).hexdigest()


def latents_sha256_of(fingerprint, episodes):
    assert fingerprint == FINGERPRINT and len(episodes) == 2 and all(len(sha) == 64 for sha in episodes)
    return LATENTS


READERS: dict[str, Any] = {"fingerprint_of": fingerprint_of, "latents_sha256_of": latents_sha256_of}


@pytest.fixture
def made(tmp_path):
    """A study that went all the way, in its own house."""
    made = make_study(tmp_path / "here")
    folder = made.folder
    register(folder, made.facts())
    weights = folder / "encoders" / "W1walk"
    weights.mkdir(parents=True)
    (weights / "encoder.json").write_text("{}")
    (weights / "weights.safetensors").write_bytes(b"W1walk")
    bind_trained(folder, "W1walk", fingerprint=TRAINED, recipe_sha256=RECIPE, data="walk", episodes=[0, 1])
    (folder / "latents").mkdir()
    (folder / "latents" / f"{FINGERPRINT}.h5").write_bytes(b"latents")
    record_extracted(folder, "W1", "demos", fingerprint=FINGERPRINT, latents_sha256=LATENTS, episodes=[4, 5])
    ledger = Ledger.open(folder)
    publish(made, ledger, exploratory=True)  # an earlier round: the latest counts
    publish(made, ledger, exploratory=False)
    return made


def publish(made, ledger, exploratory):
    study = Study.load(made.folder)
    results = Results(
        study=study.name,
        study_sha256=Study.sha256(made.folder),
        ledger_head=ledger.head,
        exploratory=exploratory,
        measurements=MEASURED,
    )
    ledger.append("probed", {"results_sha256": results.save(made.folder), "exploratory": exploratory})
    ledger.append("judged", judge_study(study, MEASURED).to_json())
    (made.folder / "card.md").write_text(f"# Card, exploratory: {exploratory}\n")
    sha = hashlib.sha256((made.folder / "card.md").read_bytes()).hexdigest()
    ledger.append("published", {"files": {"card.md": sha}})


def lines_of(made, **named):
    return {line.what: line for line in verify_study(made.folder, **{**READERS, **named})}


def differing(made, **named):
    return [what for what, line in lines_of(made, **named).items() if line.state == "differs"]


def test_all_of_it_matches_where_it_was_made(made):
    lines = verify_study(made.folder, **READERS)
    assert [line.what for line in lines if line.state == "match"] == [
        "ledger.jsonl",
        "the order of events",
        "study.yaml",
        "results.json",
        "results.json, ledger_head",
        "the verdict",
        "card.md",
        *(f"recording demos, episode {i}" for i in range(6)),
        "recording demos, recording.yaml",
        "recording demos, manifest.jsonl",
        *(f"recording walk, episode {i}" for i in range(4)),
        "recording walk, recording.yaml",
        "recording walk, manifest.jsonl",
        "encoder W1",
        "encoder W1walk",
        "latents of the evaluation episodes of demos (encoder W1)",
    ]
    assert verified(lines) and summarise(lines) == f"all {len(lines)} match"
    assert str(lines[0]) == "ledger.jsonl: match"


def test_a_copied_study_folder_says_what_is_not_there(made, tmp_path):
    copy = tmp_path / "elsewhere" / "small"
    shutil.copytree(made.folder, copy)
    shutil.rmtree(copy / "latents")
    lines = verify_study(copy, **READERS)
    assert [str(line) for line in lines if line.state == "not checked"] == [
        "recording demos: not checked, there is no folder ../../recordings/demos",
        "recording walk: not checked, there is no folder ../../recordings/walk",
        "latents of the evaluation episodes of demos (encoder W1): not checked, it is not there",
    ]
    assert not verified(lines) and verified(lines, ledger_only=True)
    assert summarise(lines) == (
        "nothing differs, but recording demos: not checked, there is no folder ../../recordings/demos "
        "(9 match, 0 differ, 3 not checked)"
    )
    there = {name: made.root / "recordings" / name for name in ("demos", "walk")}
    states = [line.state for line in verify_study(copy, recordings=there, **READERS)]
    assert states.count("match") == len(states) - 1


def test_only_the_ledger(made):
    lines = verify_study(made.folder, ledger_only=True)
    assert {line.state for line in lines} == {"match", "not checked"}
    assert [line.what for line in lines if line.state == "not checked"] == [
        "recording demos",
        "recording walk",
        "encoder W1",
        "encoder W1walk",
        "latents of the evaluation episodes of demos (encoder W1)",
    ]
    assert verified(lines, ledger_only=True) and not verified(lines)


def test_without_readers_encoders_and_latents_are_not_checked(made):
    lines = {line.what: str(line) for line in verify_study(made.folder)}
    assert (
        lines["encoder W1"] == "encoder W1: not checked, its weights are not here, or nothing here reads them"
    )
    latents = "latents of the evaluation episodes of demos (encoder W1)"
    assert lines[latents] == f"{latents}: not checked, nothing here reads latents"


def flip(path):
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("studies/small/study.yaml", "study.yaml"),
        ("studies/small/results.json", "results.json"),
        ("studies/small/card.md", "card.md"),
        ("recordings/demos/episodes/000004.h5", "recording demos, episode 4"),
        ("recordings/walk/episodes/000000.h5", "recording walk, episode 0"),
        ("recordings/walk/manifest.jsonl", "recording walk, manifest.jsonl"),
        ("recordings/demos/recording.yaml", "recording demos, recording.yaml"),
        ("studies/small/weights/W1/weights.safetensors", "encoder W1"),
        ("studies/small/encoders/W1walk/weights.safetensors", "encoder W1walk"),
    ],
)
def test_one_byte_is_named(made, where, what):
    flip(made.root / where)
    lines = verify_study(made.folder, **READERS)
    assert [line.what for line in lines if line.state == "differs"] == [what]
    assert not verified(lines) and not verified(lines, ledger_only=True)
    assert summarise(lines).startswith(f"{what}: differs, the ledger holds ")


def test_one_bit_of_the_ledger_is_all_there_is_to_say(made):
    flip(made.folder / "ledger.jsonl")
    (line,) = verify_study(made.folder, **READERS)
    assert line.state == "differs" and "ledger.jsonl, line 9" in line.found


def test_a_ledger_that_is_not_there(made):
    (made.folder / "ledger.jsonl").unlink()
    lines = verify_study(made.folder)
    assert lines == [VerifyLine("ledger.jsonl", "not checked", "a chain of events", "it is not there")]
    assert not verified(lines) and not verified(lines, ledger_only=True)


def test_lines_cut_off_the_end_show_in_the_results(made):
    ledger = made.folder / "ledger.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:6]))
    assert differing(made) == ["results.json", "card.md"]


def test_results_of_another_ledger(made):
    results = Results.load(made.folder).model_copy(update={"ledger_head": "f" * 64})
    sha = results.save(made.folder)
    Ledger.open(made.folder).append("probed", {"results_sha256": sha, "exploratory": False})
    assert differing(made) == ["results.json, ledger_head"]


def test_a_verdict_that_does_not_follow(made):
    ledger = Ledger.open(made.folder)
    judged = ledger.last("judged")
    assert judged is not None
    ledger.append("judged", {**judged.body, "verdict": "does not reproduce"})
    line = lines_of(made)["the verdict"]
    assert line.state == "differs"
    assert line.expected.startswith(
        "does not reproduce; B1 met firm; B2 met firm; B3 not tested; C1 reproduces firm"
    )
    assert line.found.startswith("reproduces; B1 met firm")


def test_latents_before_the_freeze_show_in_the_order(tmp_path):
    made = make_study(tmp_path)
    record_extracted(
        made.folder, "W1", "demos", fingerprint=FINGERPRINT, latents_sha256=LATENTS, episodes=[0]
    )
    register(made.folder, made.facts())
    line = lines_of(made)["the order of events"]
    assert (line.state, line.found) == ("match", "registered before extracted")  # of a training episode only
    assert lines_of(made)["encoder W1walk"].found == "it was never trained"
    made.edit_study("train: 0-3, evaluate: 4-5", "train: 2-3, evaluate: 0,4")
    line = lines_of(made)["the order of events"]
    assert (line.state, line.found) == ("differs", "extracted on line 1, before any freeze")


def test_names_that_lead_out_of_their_folder(made):
    ledger = Ledger.open(made.folder)
    sha = hashlib.sha256(made.episode("demos", 0).read_bytes()).hexdigest()
    outside = "../../recordings/demos/episodes/000000.h5"
    ledger.append("published", {"files": {outside: sha}})
    line = lines_of(made)[outside]
    assert (line.state, line.found) == ("differs", "a name that leads out of the study's folder")
    manifest = made.root / "recordings" / "demos" / "manifest.jsonl"
    records = [json.loads(text) for text in manifest.read_text().splitlines()]
    records[4]["file"] = "../../studies/small/card.md"
    manifest.write_text("\n".join(json.dumps(record) for record in records) + "\n")
    line = lines_of(made)["recording demos, episode 4"]
    assert line.state == "not checked" and "leads out of the recording's folder" in line.found


def test_a_manifest_of_nonsense_is_only_a_manifest_that_differs(made):
    manifest = made.root / "recordings" / "demos" / "manifest.jsonl"
    manifest.write_bytes(b'\xff\n{"episode": "4", "file": 3}\n[]\n{"episode": 3, "file": "a\\u0000b"}\n')
    assert differing(made) == ["recording demos, manifest.jsonl"]
    assert lines_of(made)["recording demos, episode 3"].state == "not checked"


def test_bodies_of_nonsense_in_a_chain_that_holds(made):
    from bars.ledger import Event

    path = made.folder / "ledger.jsonl"
    ledger = Ledger.open(path)
    odd = Event.make(len(ledger.events), "published", "2026-10-29T12:00:00Z", ledger.head, {"files": [1]})
    path.write_bytes(path.read_bytes() + odd.line())
    (line,) = verify_study(made.folder)
    assert line.state == "differs" and line.found.endswith(
        "line 10: files: Input should be a valid dictionary"
    )


def test_readers_that_fail_are_told(made):
    def torn(*_):
        raise ValueError("header is cut off")

    lines = lines_of(made, fingerprint_of=torn, latents_sha256_of=torn)
    assert lines["encoder W1"].found == "weights that cannot be read: header is cut off"
    assert lines["latents of the evaluation episodes of demos (encoder W1)"].state == "differs"


def test_encoders_without_a_folder_are_asked_for_by_name(made):
    shutil.rmtree(made.folder / "weights")
    assert lines_of(made, fingerprint_by_name={"W1": FINGERPRINT}.get)["encoder W1"].state == "match"
    line = lines_of(made, fingerprint_by_name=lambda name: None)["encoder W1"]
    assert str(line) == "encoder W1: not checked, its weights are not here"


def test_progress_is_told(made):
    told = []
    verify_study(made.folder, progress=lambda *step: told.append(step))
    assert told[0] == (0, 6, "hashing demos, episode 0") and told[6] == (6, 6, "hashing demos")
