from __future__ import annotations

import dataclasses
import hashlib
import re
from typing import Any

import pytest
from study_folder import FINGERPRINT, RECIPE, TRAINED, make_study

from bars import (
    Ledger,
    Mismatch,
    Study,
    StudyError,
    bind_data,
    bind_trained,
    check_frozen,
    is_registered,
    latent_words,
    read_binding,
    record_extracted,
    refuse_mismatches,
    register,
    supersede,
    verify_chain,
)
from bars.freeze import HOW_TO_SUPERSEDE

LATENTS = hashlib.sha256(b"latents").hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()


@pytest.fixture
def made(tmp_path):
    return make_study(tmp_path)


@pytest.fixture
def frozen(made):
    register(made.folder, made.facts())
    return made


def found(made, **changes):
    return [str(mismatch) for mismatch in check_frozen(made.folder, made.facts(**changes))]


def refused(function, *arguments, **named):
    with pytest.raises(StudyError) as error:
        function(*arguments, **named)
    return str(error.value)


def short(sha):
    return f"{sha[:12]}..."


# --- registering ---


def test_what_a_registration_binds(made):
    assert not is_registered(made.folder)
    event = register(made.folder, made.facts())
    assert is_registered(made.folder)
    sha = {name: hashlib.sha256(made.episode(*name).read_bytes()).hexdigest() for name in
           [("demos", i) for i in range(6)] + [("walk", i) for i in range(4)]}  # fmt: skip

    def binding(name):
        folder = made.root / "recordings" / name
        return {
            "recording": f"../../recordings/{name}",
            "manifest_sha256": hashlib.sha256((folder / "manifest.jsonl").read_bytes()).hexdigest(),
            "recording_sha256": hashlib.sha256((folder / "recording.yaml").read_bytes()).hexdigest(),
            "episodes": {str(i): h for (data, i), h in sha.items() if data == name},
            "untestable": {"lift": 0.01},
        }

    assert event.body == {
        "study_sha256": hashlib.sha256(made.study_yaml.read_bytes()).hexdigest(),
        "data": {"demos": binding("demos"), "walk": binding("walk")},
        "encoders": {"W1": {"fingerprint": FINGERPRINT}, "W1walk": {"recipe_sha256": RECIPE}},
        "git_commit": "c0ffee",
        "software": {"jointprobe": "0.1.0"},
    }
    assert verify_chain(made.folder) == [event]
    assert check_frozen(made.folder, made.facts()) == []


def test_latents_of_an_evaluation_episode_stand_in_the_way(made):
    prior = [latent_words("W1", "demos", 4), latent_words("W1", "demos", 5)]
    assert refused(register, made.folder, made.facts(prior_latents=prior)) == (
        f"{made.folder}: latents of evaluation episode 4 of demos (encoder W1) exist already (and 1 more) - "
        "bars are frozen before any latent of an evaluation episode: evaluate on episodes that no encoder "
        "has seen, or run jointprobe probe --exploratory, and the card will say so"
    )
    assert not (made.folder / "ledger.jsonl").exists()


def test_latents_that_the_ledger_remembers_do_as_well(made):
    extracted: dict[str, Any] = {"fingerprint": FINGERPRINT, "latents_sha256": LATENTS, "episodes": [0, 5]}
    record_extracted(made.folder, "W1", "demos", **extracted)  # exploratory, and the file is deleted since
    told = refused(register, made.folder, made.facts())
    assert told.startswith(
        f"{made.folder}: latents of evaluation episode 5 of demos (encoder W1) exist already - "
    )


def test_exploring_twice_says_it_once(made):
    extracted: dict[str, Any] = {"fingerprint": FINGERPRINT, "latents_sha256": LATENTS, "episodes": [0, 5]}
    first = record_extracted(made.folder, "W1", "demos", **extracted)
    assert record_extracted(made.folder, "W1", "demos", **extracted) == first
    assert verify_chain(made.folder) == [first]


def test_latents_of_training_episodes_do_not(made):
    extracted: dict[str, Any] = {"fingerprint": FINGERPRINT, "latents_sha256": LATENTS, "episodes": [0, 1]}
    record_extracted(made.folder, "W1", "demos", **extracted)
    register(made.folder, made.facts())


def test_a_study_is_frozen_once(frozen):
    time = verify_chain(frozen.folder)[0].time
    told = f"{frozen.folder}: was frozen on {time}, and study.yaml has not changed - {HOW_TO_SUPERSEDE}"
    assert refused(register, frozen.folder, frozen.facts()) == told
    assert "superseded" in HOW_TO_SUPERSEDE and "reason" in HOW_TO_SUPERSEDE
    frozen.edit_study("< 0.80", "< 0.90")
    told = f"{frozen.folder}: was frozen on {time}, and study.yaml has changed since - {HOW_TO_SUPERSEDE}"
    assert refused(register, frozen.folder, frozen.facts()) == told
    assert len(verify_chain(frozen.folder)) == 1


def test_a_missing_episode_is_named(made):
    made.episode("demos", 5).unlink()
    assert refused(register, made.folder, made.facts()) == (
        "recording demos: has no episode 5 - record it, or change data.demos.evaluate"
    )
    made.episode("demos", 0).unlink()
    made.episode("demos", 1).unlink()
    told = "recording demos: has no episode 0 (and 1 more) - record it, or change data.demos.train"
    assert refused(register, made.folder, made.facts()) == told


def test_a_bar_on_a_joint_that_the_recording_lacks_is_refused(made):
    made.edit_study("W1walk/walk.r2.mean -", "W1walk/walk.r2.lifd -")
    told = f"{made.folder}/study.yaml, bar B3: W1walk/walk.r2.lifd names no joint - did you mean lift?"
    assert refused(register, made.folder, made.facts()) == told


def test_encoders_must_be_there_unless_they_are_optional(made):
    told = (
        "encoder W1walk: has neither weights nor a recipe to bind - "
        "give its weights, or write optional: true under encoders.W1walk"
    )
    assert refused(register, made.folder, made.facts(encoders={"W1": {"fingerprint": FINGERPRINT}})) == told
    strangers = {**made.facts().encoders, "W9": {"fingerprint": FINGERPRINT}}
    assert (
        refused(register, made.folder, made.facts(encoders=strangers)) == "encoder W9: is not in study.yaml"
    )
    register(made.folder, made.facts())  # dino is optional, and is not among the facts


def test_a_bad_study_is_not_frozen(made):
    made.edit_study("seed: 7", "sede: 7")
    assert "sede: is an unknown key" in refused(register, made.folder, made.facts)


# --- checking ---


def test_without_a_freeze_the_freeze_is_what_is_missing(made):
    mismatches = check_frozen(made.folder, made.facts())
    assert mismatches == [Mismatch("the freeze", "registered before any probing", "not frozen")]
    assert refused(refuse_mismatches, made.folder, mismatches) == (
        f"{made.folder}: its bars are not frozen - "
        "freeze it first: jointprobe freeze STUDY; or jointprobe probe --exploratory"
    )
    refuse_mismatches(made.folder, [])


def test_one_character_of_the_study(frozen):
    before = Study.sha256(frozen.folder)
    frozen.edit_study("< 0.80", "< 0.81")
    after = Study.sha256(frozen.folder)
    mismatches = check_frozen(frozen.folder, frozen.facts())
    assert mismatches == [Mismatch("study.yaml", before, after)]
    assert refused(refuse_mismatches, frozen.folder, mismatches) == (
        f"{frozen.folder}: study.yaml: frozen as {short(before)}, now {short(after)} - "
        f"restore it; {HOW_TO_SUPERSEDE}; or jointprobe probe --exploratory"
    )


def test_a_study_that_no_longer_parses_is_a_mismatch_too(frozen):
    facts = frozen.facts()
    frozen.study_yaml.write_text("gone: true\n")
    assert [mismatch.what for mismatch in check_frozen(frozen.folder, facts)] == ["study.yaml"]


def test_one_byte_of_a_bound_episode(frozen):
    file = frozen.episode("demos", 4)
    content = bytearray(file.read_bytes())
    before = hashlib.sha256(content).hexdigest()
    content[17] ^= 1
    file.write_bytes(content)
    after = hashlib.sha256(content).hexdigest()
    assert found(frozen) == [f"recording demos, episode 4: frozen as {short(before)}, now {short(after)}"]
    file.unlink()
    assert found(frozen) == [f"recording demos, episode 4: frozen as {short(before)}, now not there"]


def test_manifest_description_and_testable_joints(frozen):
    folder = frozen.root / "recordings" / "walk"
    for name in ("manifest.jsonl", "recording.yaml"):
        with open(folder / name, "a") as file:
            file.write("\n")
    walk = dataclasses.replace(frozen.data_facts("walk"), untestable={})
    told = found(frozen, data={"demos": frozen.data_facts("demos"), "walk": walk})
    assert [line.split(":")[0] for line in told] == [
        "recording walk, recording.yaml",
        "recording walk, manifest.jsonl",
        "recording walk, joints that are not testable",
    ]
    assert told[2].endswith("frozen as lift, now none")


def test_a_recording_that_is_gone_or_was_never_bound(made):
    register(made.folder, made.facts(data={"demos": made.data_facts("demos")}))
    assert found(made) == ["recording walk: frozen as not bound, now there, without a `data` event"]
    manifest = made.data_facts("demos").manifest_sha256
    assert found(made, data={}) == [f"recording demos: frozen as {short(manifest)}, now not there"]


def test_one_weight_of_a_bound_encoder(frozen):
    encoders = {"W1": {"fingerprint": OTHER}, "W1walk": {"recipe_sha256": RECIPE}}
    assert found(frozen, encoders=encoders) == [
        f"encoder W1: frozen as {short(FINGERPRINT)}, now {short(OTHER)}"
    ]
    encoders = {"W1walk": {"recipe_sha256": OTHER}}
    assert found(frozen, encoders=encoders) == [
        f"encoder W1: frozen as {short(FINGERPRINT)}, now not there",
        f"encoder W1walk, recipe: frozen as {short(RECIPE)}, now {short(OTHER)}",
    ]


def test_weights_that_no_event_binds(frozen):
    facts = {
        "W1": {"fingerprint": FINGERPRINT},
        "W1walk": {"fingerprint": TRAINED},
        "dino": {"fingerprint": OTHER},
    }
    assert found(frozen, encoders=facts) == [
        "encoder W1walk: frozen as a recipe, now weights without a `trained` event",
        "encoder dino: frozen as not bound, now there, without a `trained` event",
    ]
    bind_trained(
        frozen.folder, "W1walk", fingerprint=TRAINED, recipe_sha256=RECIPE, data="walk", episodes=[1, 0]
    )
    bind_trained(frozen.folder, "dino", fingerprint=OTHER)
    assert found(frozen, encoders=facts) == []
    del facts["dino"]  # optional: on a machine without its weights its bars read "not tested here"
    assert found(frozen, encoders=facts) == []
    facts["W1walk"] = {"fingerprint": OTHER}
    assert found(frozen, encoders=facts) == [
        f"encoder W1walk: frozen as {short(TRAINED)}, now {short(OTHER)}"
    ]


def test_latents(frozen):
    what = "latents of the evaluation episodes of demos (encoder W1)"
    latents = {("W1", "demos"): LATENTS}
    assert found(frozen, latents=latents) == [
        f"{what}: frozen as not bound, now there, without an `extracted` event"
    ]
    record_extracted(
        frozen.folder, "W1", "demos", fingerprint=FINGERPRINT, latents_sha256=LATENTS, episodes=[4, 5]
    )
    assert found(frozen, latents=latents) == []
    assert found(frozen, latents={("W1", "demos"): OTHER}) == [
        f"{what}: frozen as {short(LATENTS)}, now {short(OTHER)}"
    ]
    words = latent_words("W1", "demos", 5)
    assert found(frozen, prior_latents=[words]) == [f"{words}: frozen as none before the freeze, now there"]


def test_a_damaged_ledger_is_an_error(frozen):
    ledger = frozen.folder / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b"c0ffee", b"c0ffef"))
    assert re.search(r"ledger\.jsonl, line 1: hash is ", refused(check_frozen, frozen.folder, frozen.facts()))


# --- after the freeze ---


def test_a_recording_made_later_is_bound_by_its_own_event(made):
    register(made.folder, made.facts(data={}))
    event = bind_data(made.folder, "walk", made.data_facts("walk"))
    assert event.body["name"] == "walk" and event.body["untestable"] == {"lift": 0.01}
    bind_data(made.folder, "demos", made.data_facts("demos"))
    assert found(made) == []
    told = f"recording walk: is bound already - {HOW_TO_SUPERSEDE}"
    assert refused(bind_data, made.folder, "walk", made.data_facts("walk")) == told
    made.episode("walk", 3).write_bytes(b"")
    assert [line.split(":")[0] for line in found(made)] == ["recording walk, episode 3"]


def test_nothing_is_bound_without_a_freeze_or_to_another_study(made):
    told = f"{made.folder}: is not frozen - freeze it first: jointprobe freeze STUDY"
    assert refused(bind_data, made.folder, "walk", made.data_facts("walk")) == told
    assert refused(bind_trained, made.folder, "W1walk", fingerprint=TRAINED, recipe_sha256=RECIPE) == told
    register(made.folder, made.facts())
    made.edit_study("< 0.80", "< 0.9")
    told = f"{made.folder}: study.yaml has changed since it was frozen - {HOW_TO_SUPERSEDE}"
    assert refused(bind_trained, made.folder, "W1walk", fingerprint=TRAINED, recipe_sha256=RECIPE) == told


def test_training_by_another_recipe_is_refused(frozen):
    registered = f"and registered is {short(RECIPE)} - {HOW_TO_SUPERSEDE}"
    told = f"encoder W1walk: was trained by the recipe {short(OTHER)}, {registered}"
    assert refused(bind_trained, frozen.folder, "W1walk", fingerprint=TRAINED, recipe_sha256=OTHER) == told
    told = f"encoder W1walk: was trained by no recipe, {registered}"
    assert refused(bind_trained, frozen.folder, "W1walk", fingerprint=TRAINED) == told
    assert (
        refused(bind_trained, frozen.folder, "W9", fingerprint=TRAINED) == "encoder W9: is not in study.yaml"
    )


def test_training_again_needs_a_correction(frozen):
    named: dict[str, Any] = {"recipe_sha256": RECIPE, "data": "walk", "episodes": [0, 1]}
    first = bind_trained(frozen.folder, "W1walk", fingerprint=TRAINED, **named)
    assert bind_trained(frozen.folder, "W1walk", fingerprint=TRAINED, **named) == first
    told = (
        f"encoder W1walk: is bound as {short(TRAINED)}, and this is {short(OTHER)} - "
        "a correction is dated and says why: append a `corrected` event first"
    )
    assert refused(bind_trained, frozen.folder, "W1walk", fingerprint=OTHER, **named) == told
    Ledger.open(frozen.folder).append("corrected", {"reason": "red channel only", "what": "W1walk"})
    bind_trained(frozen.folder, "W1walk", fingerprint=OTHER, **named)
    assert read_binding(frozen.folder).encoders["W1walk"] == {"recipe_sha256": RECIPE, "fingerprint": OTHER}
    assert "is bound as" in refused(bind_trained, frozen.folder, "W1walk", fingerprint=TRAINED, **named)


def test_an_encoder_bound_by_the_freeze_needs_one_as_well(frozen):
    registered = verify_chain(frozen.folder)[0]
    assert bind_trained(frozen.folder, "W1", fingerprint=FINGERPRINT) == registered
    assert "is bound as" in refused(bind_trained, frozen.folder, "W1", fingerprint=OTHER)
    Ledger.open(frozen.folder).append("corrected", {"reason": "wrong folder", "what": "W1"})
    assert bind_trained(frozen.folder, "W1", fingerprint=OTHER).event == "trained"


def test_extracting_again_needs_a_correction(frozen):
    named: dict[str, Any] = {"fingerprint": FINGERPRINT, "episodes": [4, 5]}
    first = record_extracted(frozen.folder, "W1", "demos", latents_sha256=LATENTS, **named)
    assert record_extracted(frozen.folder, "W1", "demos", latents_sha256=LATENTS, **named) == first
    told = (
        f"latents of the evaluation episodes of demos (encoder W1): is bound as {short(LATENTS)}, "
        f"and this is {short(OTHER)} - a correction is dated and says why: append a `corrected` event first"
    )
    assert refused(record_extracted, frozen.folder, "W1", "demos", latents_sha256=OTHER, **named) == told
    Ledger.open(frozen.folder).append("corrected", {"reason": "red channel only", "what": "latents of W1"})
    record_extracted(frozen.folder, "W1", "demos", latents_sha256=OTHER, **named)
    assert read_binding(frozen.folder).latents["W1", "demos"].latents_sha256 == OTHER


def test_exploring_after_the_freeze_binds_nothing_and_is_remembered(frozen):
    named: dict[str, Any] = {"fingerprint": FINGERPRINT, "episodes": [4, 5]}
    record_extracted(frozen.folder, "W1", "demos", latents_sha256=LATENTS, **named)
    event = record_extracted(frozen.folder, "W1", "demos", latents_sha256=OTHER, exploratory=True, **named)
    assert event.body["exploratory"] is True and "exploratory" not in verify_chain(frozen.folder)[1].body
    assert read_binding(frozen.folder).latents["W1", "demos"].latents_sha256 == LATENTS
    named["episodes"] = [4]
    record_extracted(frozen.folder, "dino", "demos", latents_sha256=OTHER, exploratory=True, **named)
    supersede(frozen.folder, "the mark was mistyped")
    seen = register(frozen.folder, frozen.facts()).body["seen_before"]
    assert latent_words("dino", "demos", 4) in seen


def test_what_came_after_the_freeze_is_known_by_the_head(frozen):
    ledger = Ledger.open(frozen.folder)
    binding = read_binding(frozen.folder, ledger)
    assert binding.covers(ledger, ledger.head)
    assert not binding.covers(ledger, "0" * 64) and not binding.covers(ledger, OTHER)


# --- superseding ---


def test_superseding_is_dated_reasoned_and_remembered(frozen):
    record_extracted(
        frozen.folder, "W1", "demos", fingerprint=FINGERPRINT, latents_sha256=LATENTS, episodes=[4, 5]
    )
    first = verify_chain(frozen.folder)[0]
    told = f"{frozen.folder}: a registration is not superseded without a reason - give one"
    assert refused(supersede, frozen.folder, "  ") == told
    event = supersede(frozen.folder, "the mark was mistyped")
    assert event.body == {"reason": "the mark was mistyped", "what": "study.yaml"} and event.time
    assert not is_registered(frozen.folder)
    assert check_frozen(frozen.folder, frozen.facts()) == [
        Mismatch("the freeze", "registered before any probing", "superseded, and not frozen again")
    ]
    told = f"{frozen.folder}: has no registration in force to supersede - jointprobe freeze STUDY"
    assert refused(supersede, frozen.folder, "again") == told

    frozen.edit_study("< 0.80", "< 0.81")
    prior = [latent_words("W1", "demos", 4)]
    assert "exist already" in refused(register, frozen.folder, frozen.facts(prior_latents=prior))
    second = register(frozen.folder, frozen.facts())
    assert second.body["supersedes"] == first.hash
    assert second.body["seen_before"] == [latent_words("W1", "demos", 4), latent_words("W1", "demos", 5)]
    assert found(frozen) == []
    binding = read_binding(frozen.folder)
    assert binding.registrations == 2 and len(binding.seen_before) == 2 and not binding.latents
    frozen.edit_study("< 0.81", "< 0.80")
    assert [line.split(":")[0] for line in found(frozen)] == ["study.yaml"]


def test_what_was_bound_before_does_not_bind_the_new_registration(frozen):
    bind_trained(frozen.folder, "W1walk", fingerprint=TRAINED, recipe_sha256=RECIPE)
    supersede(frozen.folder, "more episodes were recorded")
    register(frozen.folder, frozen.facts())
    assert read_binding(frozen.folder).encoders["W1walk"] == {"recipe_sha256": RECIPE}
