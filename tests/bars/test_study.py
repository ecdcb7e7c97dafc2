# ruff: noqa: E501 - messages stand whole, as they are read
from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from study_folder import make_study

from bars import Comparison, Study, StudyError

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def made(tmp_path):
    return make_study(tmp_path)


def test_a_study_as_written(made):
    study = Study.load(made.folder)
    assert study == Study.load(made.study_yaml)
    assert study.folder == made.folder
    assert study.name == "small" and study.seed == 7
    assert study.data["demos"].train_episodes == [0, 1, 2, 3]
    assert study.data["walk"].evaluate_episodes == [2, 3]
    assert study.data["walk"].joints == "all"
    assert study.encoders["W1walk"].train == {"kind": "cnn", "lam": 0.001}
    assert study.encoders["W1walk"].on == "walk"  # which YAML 1.1 would have read as True
    assert study.primary_claim.id == "C1" and study.first_data == "demos"
    assert study.bars[0].parsed == Comparison("W1.r2.mean", "<", 0.8)
    assert (study.bars[0].theirs, study.bars[1].theirs, study.bars[2].theirs) == (0.565, "0.02 to 0.74", None)
    assert [bar.id for bar in study.bars_of("C1")] == ["B1", "B2"]
    assert study.needed_paths() == [
        "W1.r2.mean",
        "W1.anisotropy",
        "W1walk/walk.r2.mean",
        "W1/walk.r2.mean",
        "W1walk/walk.r2.mean - W1/walk.r2.mean",
    ]
    assert (study.source("W1", "demos"), study.source("W1", "walk")) == ("W1", "W1/walk")


def test_the_hash_is_that_of_the_bytes(made):
    assert Study.sha256(made.folder) == hashlib.sha256(made.study_yaml.read_bytes()).hexdigest()


def test_settings_have_defaults(made):
    probe = Study.load(made.folder).probe
    assert probe.alphas[0] == 1e-3 and probe.alphas[-1] == 1e5 and len(probe.alphas) == 17
    assert (probe.folds, probe.resamples, probe.permutations, probe.level, probe.min_std) == (
        5,
        2000,
        200,
        0.95,
        0.02,
    )
    assert probe.max_rows_per_episode is None and probe.equal_rows is False


def test_folders_start_from_the_study(made):
    made.edit_study(
        "  dino: {",
        "  given: {load: 'cnn:weights/W1'}\n  users: {load: 'import:mine:make'}\n"
        "  twin: {load: 'untrained:cnn', twin_of: W1walk, on: walk}\n  hub: {load: 'transformers:weights/W1'}\n  dino: {",
    )
    study = Study.load(made.folder)
    assert study.recording_folder("demos").resolve() == made.root / "recordings" / "demos"
    assert study.encoder_folder("W1") == study.encoder_folder("given") == made.folder / "weights" / "W1"
    assert study.encoder_folder("users") is None
    assert study.encoder_folder("W1walk") == made.folder / "encoders" / "W1walk"
    assert (
        study.encoder_folder("dino") is None
        and study.encoder_folder("twin") == made.folder / "encoders" / "twin"
    )
    assert study.encoder_views("W1walk") == ["front", "wrist"]


def test_another_latent_of_an_encoder_has_its_views_and_weights(made):
    made.edit_study("  dino: {", "  'W1@cls': {role: control}\n  dino: {")
    made.edit_study("W1.r2.mean <", "W1@cls.r2.mean <")
    study = Study.load(made.folder)
    assert study.encoder_folder("W1@cls") == study.encoder_folder("W1")
    assert study.encoder_views("W1@cls") == study.encoder_views("W1")
    assert "W1@cls.r2.mean" in study.needed_paths()


UNKNOWN = [
    ("seed: 7", "sede: 7", "line 5, sede: is an unknown key (and 1 more to mend) - did you mean seed?"),
    ("train: 0-3,", "trian: 0-3,", "line 8, data.demos.trian: is an unknown key (and 1 more to mend) - did you mean train?"),
    ("optional: true", "optinal: true", "line 13, encoders.dino.optinal: is an unknown key - did you mean optional?"),
    ("not_proven: true", "notproven: true", "line 17, claims[2].notproven: is an unknown key - did you mean not_proven?"),
    ("theirs: 0.565", "thiers: 0.565", "line 19, bars[0].thiers: is an unknown key - did you mean theirs?"),
    ("title: A paper", "title: A paper, zzz: 1", "line 4, paper.zzz: is an unknown key - "
     "it can be title, authors, arxiv, url, code, goal, measured_by"),
    ("seed: 7", "seed: 7\nprobe: {fold: 5}", "line 6, probe.fold: is an unknown key - did you mean folds?"),
    ("seed: 7", "seed: 7\nseries: {name: a, position: 1, off: 2}",
     "line 6, series.off: is an unknown key (and 1 more to mend) - did you mean of?"),
]  # fmt: skip

TYPES = [
    ("seed: 7\n", "", "line 1, seed: is missing - add seed: ..."),
    ("evaluate: 4-5", "", "line 7, data.demos.evaluate: is missing - add evaluate: ..."),
    ("seed: 7", "seed: seven", "line 5, seed: input should be a valid integer, unable to parse string as an integer, "
     "and is 'seven'"),
    ("seed: 7", "seed: -1", "line 5, seed: input should be greater than or equal to 0, and is -1"),
    ("title: A small study", "title: 2026", "line 3, title: input should be a valid string, and is 2026 - put it in quotes"),
    ("study/1", "study/2", "line 1, schema: input should be 'jointprobe-study/1', and is 'jointprobe-study/2'"),
    ("train: 0-3", "train: 3-0", "line 8, data.demos.train: the range 3-0 runs backwards; write 0-3"),
    ("views: [front, wrist], joints", "views: [], joints",
     "line 7, data.demos.views: list should have at least 1 item after validation, not 0, and is []"),
    ("joints: [pan, lift]", "joints: [pan, pan]", "line 7, data.demos.joints: pan is named twice"),
    ("joints: [pan, lift]", "joints: [1]", "line 7, data.demos.joints[0]: input should be a valid string, and is 1 - put it in quotes"),
    ("  dino: {", "  di-no: {", "line 13, encoders.di-no: the name 'di-no' has other characters than letters, digits and _ - rename it"),
    ("theirs: 0.565", "theirs: [1]", "line 19, bars[0].theirs: input should be a valid number, and is [1]"),
    ("{load: weights/W1}", "{about: none}",
     "line 11, encoders.W1: needs either load (a given encoder) or train (a recipe), one of the two"
     " - or name it ENCODER@W1, a latent of another"),
    ("{load: weights/W1}", "{load: a, train: {}, on: walk}",
     "line 11, encoders.W1: needs either load (a given encoder) or train (a recipe), one of the two"),
    (", on: walk}", "}", "line 12, encoders.W1walk: is trained, so it needs on: the data entry whose train episodes it sees"),
    ("{load: weights/W1}", "{load: weights/W1, on: walk}",
     "line 11, encoders.W1: is loaded, so it cannot have on, which is for trained encoders"),
    ("{load: weights/W1}", "{load: weights/W1, twin_of: W1walk}",
     "line 11, encoders.W1: has twin_of, which is for load: untrained:KIND only"),
    ("seed: 7", "seed: 7\nseries: {name: a, position: 3, of: 2}", "line 6, series: position 3 lies beyond the 2 of the series"),
    ("seed: 7", "seed: 7\nprobe: {alphas: [0]}", "line 6, probe.alphas[0]: input should be greater than 0, and is 0"),
    ("seed: 7", "seed: 7\nprobe: {level: .nan}",
     "line 6, probe.level: input should be a valid number, and is '.nan'"),
]  # fmt: skip

MEANING = [
    ("evaluate: 4-5", "evaluate: 3-5", "line 8, data.demos.evaluate: episode 3 is in train as well - "
     "a split is by episode: no episode may be on both sides"),
    ("evaluate: 4-5", "evaluate: 2-5", "line 8, data.demos.evaluate: episode 2 is in train as well, and 1 more - "
     "a split is by episode: no episode may be on both sides"),
    ("evaluate: 4-5", "evaluate: ''", "line 8, data.demos.evaluate: holds no episode - write a range like 0-23"),
    ("train: 0-3", "train: []", "line 8, data.demos.train: holds no episode - write a range like 0-23"),
    ("evaluate: 4-5", "evaluate: 4", "line 8, data.demos.evaluate: holds one episode only, and an interval over "
     "episodes needs two at least - evaluate on more episodes (under 10 the card says too few)"),
    ("train: 0-3", "train: 0", "line 8, data.demos.train: holds one episode only, which cannot choose among 17 alphas "
     "by episode - train on more episodes, or state one value in probe.alphas"),
    ("on: walk", "on: wlak", "line 12, encoders.W1walk.on: there is no data entry wlak - did you mean walk?"),
    ("on: walk", "on: walk, views: [top]",
     "line 12, encoders.W1walk.views: the view top is not in data.walk.views - it can be front, wrist"),
    ("{load: weights/W1}", "{load: 'untrained:cnn', twin_of: dino}",
     "line 11, encoders.W1.twin_of: there is no encoder dino whose recipe it could share - it can be W1walk"),
    ("id: B2", "id: B1", "line 20, bars[1].id: the id B1 is given twice - rename one"),
    ("primary: true", "primary: false", "line 14, claims: no claim is primary - mark exactly one with primary: true"),
    ("the walk is better", "the walk is better, primary: true",
     "line 14, claims: C1, C2 are all primary - mark exactly one with primary: true"),
    ("claim: C2", "claim: C9", "line 21, bars[2].claim: there is no claim C9 - it can be C1, C2, C3"),
    ("claim: C1", "claim: C2", "line 15, claims[0]: the primary claim C1 has no bar, so that the study could have no "
     "verdict - give a bar claim: C1"),
    ("bar: W1.r2.mean <", "bar: w1.r2.mean <",
     "line 19, bars[0].bar: w1.r2.mean names no encoder of the study - did you mean W1?"),
    ("W1/walk.r2", "W1/wlak.r2", "line 21, bars[2].bar: W1/wlak.r2.mean names no data entry of the study - did you mean walk?"),
    ("bar: W1.r2.mean <", "bar: W1/demos.r2.mean <",
     "line 19, bars[0].bar: W1/demos.r2.mean names the first data entry, which paths leave out - write W1.r2.mean"),
    ("W1.anisotropy", "W1.anistropy", "line 20, bars[1].bar: W1.anistropy: nothing measures anistropy - did you mean anisotropy?"),
    ("W1.r2.mean", "W1.r2", "line 19, bars[0].bar: W1.r2 does not say which r2 - write W1.r2.mean"),
    ("W1.r2.mean <", "W1.r2.pam <", "line 19, bars[0].bar: W1.r2.pam names no joint - did you mean pan?"),
    ("W1/walk.r2.mean > 0", "W1.r2.mean > 0", "line 21, bars[2].bar: compares measurements on different data, walk and demos - "
     "R2 depends on what it is evaluated on: compare encoders on the same data"),
    ("W1.r2.mean < 0.80", "W1.r2.mean = 0.80", "line 19, bars[0].bar: bar 'W1.r2.mean = 0.80' is none of the forms a bar can have - "
     "write it like W1.r2.mean < 0.80, W1.r2.mean - W2.r2.mean > 0, same_order(W1, W2; r2.mean; g1b.top1) "
     "or equals(W1.r2.mean, 0.565, margin 0.05)"),
    ("  dino: {", "  'W2@cls': {}\n  dino: {",
     "line 13, encoders.W2@cls: there is no encoder W2 - it can be W1, W1walk, dino"),
    ("  dino: {", "  'W1@cls': {views: [front]}\n  dino: {",
     "line 13, encoders.W1@cls.views: is said of W1, of which W1@cls is another latent - leave it out"),
    ("  dino: {", "  'W1@c.s': {}\n  dino: {",
     "line 13, encoders.W1@c.s: the name 'W1@c.s' has other characters than letters, digits and _ - rename it"),
    ("W1.r2.mean <", "W1@cls.r2.mean <",
     "line 19, bars[0].bar: W1@cls.r2.mean names no encoder of the study - it can be W1, W1walk, dino"),
    ("W1.r2.mean < 0.80", "W1.g1b.h5.top1 > 0",
     "line 19, bars[0].bar: W1.g1b.h5.top1 is not measured: ranking.beside has no 5 - add 5 to it"),
    ("W1.r2.mean < 0.80", "W1.g1b.h8.top1 > 0",
     "line 19, bars[0].bar: W1.g1b.h8.top1 is what g1b.top1 means in this study - write W1.g1b.top1"),
    ("seed: 7\n", "seed: 7\nprobe: {refits: true}\n",
     "line 6, probe.refits: input should be a valid integer, and is True"),
    ("seed: 7\n", "seed: 7\nprobe: {mlp: 'no'}\n", "line 6, probe.mlp: input should be a valid boolean, and is 'no'"),
    ("{load: weights/W1}", "{load: weights/W1, views: [top]}", "line 19, bars[0].bar: W1.r2.mean: W1 sees the view top, "
     "which that data does not list - add the view"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "told"), UNKNOWN + TYPES + MEANING)
def test_what_is_wrong_is_named_with_its_line(made, old, new, told):
    made.edit_study(old, new)
    with pytest.raises(StudyError) as error:
        Study.load(made.folder)
    assert str(error.value) == f"{made.study_yaml}, {told}"


@pytest.mark.parametrize(("setting", "path"), [("mlp: false", "mlp.mean"), ("permutations: 0", "null.mean")])
def test_a_bar_on_what_the_settings_leave_out_is_refused(made, setting, path):
    made.edit_study("seed: 7", f"seed: 7\nprobe: {{{setting}}}")
    made.edit_study("W1.r2.mean < 0.80", f"W1.{path} > 0")
    with pytest.raises(StudyError, match=rf"W1\.{path} is not measured: probe\.{setting.split(':')[0]} is"):
        Study.load(made.folder)


def test_one_training_episode_will_do_with_one_alpha(made):
    made.edit_study("train: 0-3", "train: 0")
    made.edit_study("seed: 7", "seed: 7\nprobe: {alphas: [1e3]}")
    assert Study.load(made.folder).probe.alphas == [1000.0]


def test_a_joint_is_not_asked_for_where_all_are_meant(made):
    made.edit_study("W1walk/walk.r2.mean -", "W1walk/walk.r2.elbow -")
    Study.load(made.folder)


def test_nothing_of_a_study_can_be_changed(made):
    study = Study.load(made.folder)
    with pytest.raises(ValueError):
        study.seed = 8


def test_a_folder_without_a_study(tmp_path):
    with pytest.raises(StudyError, match=r"study\.yaml: cannot be read: No such file or directory"):
        Study.load(tmp_path)


def test_golden_file(made):
    """A default that changes would change what a study means that was frozen with it left out."""
    parsed = json.loads(Study.load(made.folder).model_dump_json(by_alias=True))
    assert parsed == json.loads((GOLDEN / "study.parsed.json").read_text("utf-8"))
