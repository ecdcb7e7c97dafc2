"""A study from freeze to verification, through the command line, and all that must be refused on the way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from bars import Ledger, Results, Study
from encoders import LatentStore
from hardware import InputError, Recording
from probe.cli import main
from probe.facts import encoder_recipe
from tests.probe.studies import STUDY, make_study
from tests.recordings import make_recording

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, " ".join(err.split())

    return call


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A frozen study that was not probed yet; tests copy it."""
    root = tmp_path_factory.mktemp("frozen")
    study = make_study(root)
    with pytest.raises(SystemExit) as stopped:
        main(["freeze", str(study), "--quiet"])
    assert not stopped.value.code
    return root


@pytest.fixture(scope="module")
def probed(frozen: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same study, probed; tests copy it."""
    root = tmp_path_factory.mktemp("probed") / "root"
    shutil.copytree(frozen, root)
    with pytest.raises(SystemExit) as stopped:
        main(["probe", str(root / "studies/small"), "--quiet"])
    assert not stopped.value.code
    return root


def copy(root: Path, to: Path) -> Path:
    shutil.copytree(root, to / "root")
    return to / "root" / "studies" / "small"


def test_a_study_is_judged_and_verifies(probed: Path, run: Run, tmp_path: Path) -> None:
    study = copy(probed, tmp_path)
    events = [event.event for event in Ledger.open(study).events]
    assert events[0] == "registered" and events[-3:] == ["probed", "judged", "published"]
    assert events.count("trained") == 3 and events.count("extracted") == 3
    results = Results.load(study)
    assert not results.exploratory and results.data["moves"].evaluate_episodes == 2
    measured = results.by_path
    assert measured["pixels.r2.mean"].value > 0.2  # the square is there to be seen
    joints = [measured[f"pixels.r2.joint{number}"].value for number in range(2)]
    assert measured["pixels.r2.mean"].value == pytest.approx(np.mean(joints))
    assert measured["pixels.anisotropy"].value == pytest.approx(abs(joints[0] - joints[1]))
    gap = measured["pixels.r2.mean - W1.r2.mean"]
    assert gap.value == pytest.approx(measured["pixels.r2.mean"].value - measured["W1.r2.mean"].value)
    assert measured["pixels.null.mean"].value < measured["pixels.r2.mean"].value
    code, out, _ = run("verify", study)
    assert code == 0 and "differs" not in out and "not checked" not in out
    card = (study / "card.md").read_text()
    assert "too few episodes" in card and Ledger.open(study).events[0].hash[:12] in card


def test_measurements_equal_a_second_computation(probed: Path) -> None:
    """R2 once more, with scikit-learn, from the latents as stored."""
    from sklearn.linear_model import Ridge
    from sklearn.metrics import r2_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    study = probed / "studies" / "small"
    results = Results.load(study)
    recording = Recording.open(probed / "recordings" / "moves")
    store, facts = LatentStore(study / "latents"), results.encoders["pixels"]

    def rows(episodes: range) -> tuple[np.ndarray, np.ndarray]:
        read = [store.read(str(facts.fingerprint), recording.episode(index).sha256) for index in episodes]
        return np.concatenate([one.latent for one in read]), np.concatenate([one.position for one in read])

    (x, y), (x_evaluate, y_evaluate) = rows(range(4)), rows(range(4, 6))
    probe = make_pipeline(StandardScaler(), Ridge(facts.alpha["moves"])).fit(x.astype(float), y)
    expected = r2_score(y_evaluate, probe.predict(x_evaluate.astype(float)), multioutput="raw_values")
    found = [results.by_path[f"pixels.r2.joint{number}"].value for number in range(2)]
    assert np.allclose(found, expected, rtol=1e-8)


def test_probing_again_changes_no_number_and_adds_no_training(probed: Path, run: Run, tmp_path: Path) -> None:
    study = copy(probed, tmp_path)
    before = Results.load(study)
    assert run("probe", study, "-q")[0] == 0
    assert Results.load(study).measurements == before.measurements
    events = [event.event for event in Ledger.open(study).events]
    assert events.count("trained") == 3 and events.count("extracted") == 3 and events.count("judged") == 1
    assert run("verify", study, "-q")[0] == 0


def test_probe_before_freeze_is_refused_and_exploratory_says_so(run: Run, tmp_path: Path) -> None:
    study = make_study(tmp_path)
    code, _, err = run("probe", study)
    assert code == 2 and "its bars are not frozen" in err
    assert "jointprobe freeze" in err and not (study / "latents").exists()
    assert run("probe", study, "--exploratory", "-q")[0] == 0
    card = (study / "card.md").read_text()
    assert "exploratory: bars were not frozen" in "\n".join(card.splitlines()[:6])
    assert Results.load(study).exploratory
    code, _, err = run("freeze", study)  # its latents have been seen now
    assert code == 2 and "latents of evaluation episode 4 of moves (encoder" in err and "exist already" in err


def test_one_character_of_the_study_is_named(probed: Path, run: Run, tmp_path: Path) -> None:
    study = copy(probed, tmp_path)
    path = study / "study.yaml"
    path.write_text(path.read_text().replace("pixels.r2.mean > 0.2", "pixels.r2.mean > 0.1"))
    code, _, err = run("probe", study)
    assert code == 2 and "study.yaml: frozen as" in err
    code, out, _ = run("verify", study)
    assert code == 1 and "differs study.yaml" in " ".join(out.split())
    code, _, err = run("freeze", study)
    assert code == 2 and "study.yaml has changed since" in err and "--supersede" in err


def test_one_byte_of_a_bound_episode_is_named(frozen: Path, run: Run, tmp_path: Path) -> None:
    study = copy(frozen, tmp_path)
    episode = study.parents[1] / "recordings/moves/episodes/000004.h5"
    data = bytearray(episode.read_bytes())
    data[len(data) // 2] ^= 1
    episode.write_bytes(data)
    code, _, err = run("probe", study)
    assert code == 2 and "recording moves, episode 4: frozen as" in err
    assert run("verify", study)[0] == 1


def test_one_weight_of_a_bound_encoder_is_named(probed: Path, run: Run, tmp_path: Path) -> None:
    study = copy(probed, tmp_path)
    weights = study / "encoders/W1/weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-2] ^= 1
    weights.write_bytes(data)
    code, _, err = run("probe", study)
    assert code == 2 and "encoder W1: frozen as" in err
    code, out, _ = run("verify", study)
    assert code == 1 and "differs encoder W1" in " ".join(out.split())


def test_latents_that_were_there_before_are_named(
    frozen: Path, probed: Path, run: Run, tmp_path: Path
) -> None:
    study = copy(frozen, tmp_path)
    shutil.copytree(probed / "studies/small/latents", study / "latents")
    code, _, err = run("probe", study)
    assert code == 2 and "latents of evaluation episode 4 of moves" in err and "none before the freeze" in err


def test_one_number_of_the_results_is_named(probed: Path, run: Run, tmp_path: Path) -> None:
    study = copy(probed, tmp_path)
    record = json.loads((study / "results.json").read_text())
    record["measurements"][0]["value"] = 0.999
    (study / "results.json").write_text(json.dumps(record))
    code, out, _ = run("verify", study)
    assert code == 1 and "differs results.json" in " ".join(out.split())
    code, _, err = run("report", study)
    assert code == 2 and "results.json" in err


def test_a_copied_study_folder_verifies_elsewhere(probed: Path, run: Run, tmp_path: Path) -> None:
    shutil.copytree(probed / "studies/small", tmp_path / "small")
    code, out, _ = run("verify", tmp_path / "small")
    assert (
        code == 1 and "not checked recording moves" in " ".join(out.split()) and "differs" not in out.split()
    )
    assert run("verify", tmp_path / "small", "--ledger-only", "-q")[0] == 0


def test_superseding_is_dated_and_binds_again(probed: Path, run: Run, tmp_path: Path) -> None:
    study = copy(probed, tmp_path)
    path = study / "study.yaml"
    path.write_text(path.read_text().replace("pixels.r2.mean > 0.2", "pixels.r2.mean > 0.1"))
    assert run("freeze", study, "--supersede", "the mark was mistyped", "-q")[0] == 0
    assert run("probe", study, "-q")[0] == 0
    assert "the mark was mistyped" in (study / "card.md").read_text()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("summary:", "sumary:", "study.yaml, line 5, sumary: is an unknown key - did you mean summary?"),
        ("train: 0-3, evaluate: 4-5", "train: 0-4, evaluate: 4-5", "episode 4"),
        ("evaluate: 4-5", "evaluate: 4-9", "has no episode 6"),
        ("views: [front, side]", "views: [front, wrist]", "'wrist' is not a view of"),
        ("joints: all", "joints: [elbow]", "'elbow' is not a joint"),
        ("train: 0-3, evaluate: 4-5", "train: 0-3, evaluate: []", "evaluate"),
        ("steps: 4", "step: 4", "did you mean 'steps'"),
        ("recordings/moves", "recordings/none", "recordings/none: is not a folder - record it"),
        ("pixels.r2.mean > 0.2", "pixels.r2.elbow > 0.2", "pixels.r2.elbow names no joint"),
    ],
)
def test_bad_studies_are_one_clear_error(run: Run, tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in STUDY
    study = make_study(tmp_path, STUDY.replace(old, new, 1))
    code, _, err = run("freeze", study)
    assert code == 2 and problem in err, err
    assert "Traceback" not in err and not (study / "ledger.jsonl").exists()


def test_one_training_episode_is_refused_with_the_remedy(run: Run, tmp_path: Path) -> None:
    study = make_study(tmp_path, STUDY.replace("train: 0-3", "train: [0]"), episodes=6)
    code, _, err = run("freeze", study)
    assert code == 2 and "data.moves.train: holds one episode only" in err and "probe.alphas" in err


def test_nan_joints_are_refused(run: Run, tmp_path: Path) -> None:
    study = make_study(tmp_path)
    path = tmp_path / "recordings/moves/episodes/000002.h5"
    with h5py.File(path, "r+") as file:
        file["joints/position"][7, 1] = np.nan
    code, _, err = run("freeze", study)
    assert code == 2 and "000002.h5" in err


def test_a_joint_that_hardly_moves_is_not_testable(run: Run, tmp_path: Path) -> None:
    text = STUDY.replace("permutations: 20", "permutations: 20, min_std: 0.7")
    study = make_study(tmp_path, text)
    assert run("freeze", study, "-q")[0] == 0
    untestable = Ledger.open(study).events[0].body["data"]["moves"]["untestable"]
    assert untestable, "the test's own motion must be under the mark"
    assert run("probe", study, "-q")[0] == 0
    for joint in untestable:
        assert Results.load(study).by_path[f"pixels.r2.{joint}"].value is None
    assert "not testable" in (study / "card.md").read_text()


def test_an_optional_encoder_without_weights_reads_not_tested(run: Run, tmp_path: Path) -> None:
    text = STUDY.replace(
        "probe: {", "  dino: {load: 'transformers:nobody/nothing', optional: true}\nprobe: {"
    )
    text += "  - {id: B3, claim: C2, bar: dino.r2.mean > 0.5}\n"
    text = text.replace("bars:\n", "  - {id: C2, text: Frozen reads.}\nbars:\n")
    study = make_study(tmp_path, text)
    assert run("freeze", study, "-q")[0] == 0 and run("probe", study, "-q")[0] == 0
    assert "dino is not available here" in (study / "card.md").read_text()
    required = make_study(tmp_path / "second", text.replace(", optional: true", ""))
    code, _, err = run("freeze", required)
    assert code == 2 and "nobody/nothing" in err


def test_machine_readable_output(probed: Path, run: Run, tmp_path: Path) -> None:
    study = copy(probed, tmp_path)
    code, out, _ = run("verify", study, "--json")
    assert code == 0 and json.loads(out)["ok"] is True
    code, out, _ = run("freeze", study, "--json")
    assert code == 2 and json.loads(out)["exit_code"] == 2
    code, out, _ = run("check", study.parents[1] / "recordings/moves", "--json")
    assert code == 0 and json.loads(out)["failed"] == []


def test_train_is_a_verb_of_its_own(run: Run, tmp_path: Path) -> None:
    make_recording(tmp_path / "moves", episodes=3, frames=20)
    words = ("--set", "steps=3", "--set", "batch_size=8", "--set", "stride_s=0.3", "--set", "image_size=32")
    code, out, _ = run("train", tmp_path / "moves", "--kind", "cnn", "--to", tmp_path / "w", *words, "--json")
    assert code == 0 and len(json.loads(out)["fingerprint"]) == 64
    code, _, err = run("train", tmp_path / "moves", "--to", tmp_path / "v", "--set", "step=3")
    assert code == 2 and "did you mean 'steps'" in err


def test_a_trained_encoder_that_is_loaded_has_its_twin_too(probed: Path, tmp_path: Path) -> None:
    """The twin's recipe is the one that the folder keeps, so it is the very control of the first study."""
    first = copy(probed, tmp_path)
    text = (first / "study.yaml").read_text()
    start, end = text.index("    train: {kind: cnn"), text.index("  untrained:")
    second = first.parent / "second"
    second.mkdir()
    (second / "study.yaml").write_text(f"{text[:start]}    load: ../small/encoders/W1\n{text[end:]}")
    study = Study.load(second)
    recipe, on = encoder_recipe(study, "untrained")
    assert (recipe, on) == encoder_recipe(Study.load(first), "untrained")
    (first / "encoders" / "W1" / "encoder.json").unlink()
    with pytest.raises(InputError, match="W1 was not trained by a cnn or lewm recipe, as far as"):
        encoder_recipe(study, "untrained")


def test_a_view_or_group_that_is_expected_and_not_there_is_refused_at_the_freeze(
    run: Run, tmp_path: Path
) -> None:
    for expected, said in (
        ("top: joint0", "'top' is not among its views"),
        ("front: arm9", "'arm9' is not a"),
    ):
        text = STUDY.replace("evaluate: 4-5}", f"evaluate: 4-5, expect: {{{expected}}}}}")
        study = make_study(tmp_path / expected[:3], text)
        code, _, err = run("freeze", study)
        assert code == 2 and said in err and "data.moves.expect" in err
