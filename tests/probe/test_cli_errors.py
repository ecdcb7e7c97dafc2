"""The command line's promises: one clear line or one JSON object, exit code 2, never a traceback."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from bars import Results
from hardware import InputError, Recording, RecordingWriter
from probe.cli import main
from probe.run import freeze_study, probe_study, verify_study_folder
from probe.terminal import Terminal
from tests.probe.studies import STUDY, make_study
from tests.recordings import make_recording

USER_ENCODER = """
import numpy as np

class Mine:
    width = 3
    def encode(self, frames):
        {body}

def build():
    {build}
"""


def jointprobe(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "probe.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("import", "nowhere", "--unit", "degrees"), "--to"),
        (("banana",), "banana"),
        (("record", "--motion", "dance", "--to", "x"), "dance"),
        (("record", "--motion", "walk", "--to", "x", "--episodes", "-1"), "--episodes"),
        (("check", "nowhere"), "is not a folder"),
        (("verify", "nowhere"), "nowhere"),
    ],
)
def test_errors_are_one_json_object_on_stdout(words: tuple[str, ...], problem: str) -> None:
    done = jointprobe(*words, "--json")
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    said = json.loads(done.stdout)
    assert said["exit_code"] == 2 and problem in said["error"]


def strict(text: str) -> dict:
    """One JSON object, of a reader that knows neither NaN nor Infinity."""

    def never(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=never)


def test_numbers_that_are_not_finite_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal(as_json=True).result(
        {
            "plain": [math.nan, -math.inf, 1.5],
            "numpy": {"a": np.float32("inf"), "b": np.float64(0.5), "c": np.int64(3), "d": np.bool_(True)},
            "array": np.array([[1.0, math.nan]]),
            "path": Path("here"),
        }
    )
    assert strict(capsys.readouterr().out) == {
        "plain": [None, None, 1.5],
        "numpy": {"a": None, "b": 0.5, "c": 3, "d": True},
        "array": [[1.0, None]],
        "path": "here",
    }


def test_every_verb_of_a_study_prints_standard_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = make_study(tmp_path)
    moves = tmp_path / "recordings/moves"
    for words in (
        ("show", moves, "--to", tmp_path / "seen.png"),
        ("check", moves, "--no-frames"),
        ("export", "recording", moves, "--format", "lewm", "--to", tmp_path / "moves.h5"),
        ("train", moves, "--kind", "pixels", "--to", tmp_path / "pixels"),
        ("freeze", study),
        ("probe", study),
        ("report", study),
        ("verify", study),
    ):
        with pytest.raises(SystemExit) as stopped:
            main([*map(str, words), "--json"])
        assert stopped.value.code in (0, 1) and strict(capsys.readouterr().out), words


@pytest.mark.parametrize(
    ("words", "closed", "letters"),
    [
        (("check", "RECORDING"), "stdout", "C.UTF-8"),
        (("check", "RECORDING", "--no-frames", "--json"), "stdout", "C.UTF-8"),
        (("check", "RECORDING"), "stderr", "C.UTF-8"),
        (("show", "RECORDING", "--to", "PICTURE"), "stdout", "C.UTF-8"),
        (("verify", "nowhere", "--json"), "stdout", "C.UTF-8"),
        (("banana",), "stderr", "C.UTF-8"),
        (("banana",), "stderr", "C"),  # here the text is written past our streams
        (("--help",), "stdout", "C.UTF-8"),
    ],
)
def test_a_reader_that_has_gone_ends_it_quietly(
    tmp_path: Path, words: tuple[str, ...], closed: str, letters: str
) -> None:
    """As of `jointprobe check RECORDING | head -1`: 1 would say that a check failed."""
    paths = {"RECORDING": tmp_path / "moves", "PICTURE": tmp_path / "seen.png"}
    make_recording(paths["RECORDING"], episodes=2, frames=8)
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, closed: writer}
    command = [sys.executable, "-m", "probe.cli", *(str(paths.get(word, word)) for word in words)]
    environment = {**os.environ, "LC_ALL": letters, "PYTHONUTF8": "0"}
    done = subprocess.run(command, **streams, env=environment, timeout=120)
    os.close(writer)
    other = done.stderr if closed == "stdout" else done.stdout
    assert done.returncode == 141, other
    for noise in (b"Traceback", b"Broken", b"Exception ignored"):
        assert noise not in other


def test_a_full_disk_under_the_output_is_one_line(tmp_path: Path) -> None:
    make_recording(tmp_path / "moves", episodes=2, frames=8)
    for words in (("check", tmp_path / "moves", "--no-frames", "--json"), ("check", "nowhere", "--json")):
        command = [sys.executable, "-m", "probe.cli", *map(str, words)]
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
        assert done.returncode == 2 and done.stderr.startswith("jointprobe: "), done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--episodes", "abc"), "--episodes: "),
        (("--set", "steps=[1"), "--set steps: "),
        (("--set", "steps"), "is not KEY=VALUE"),
        (("--set", "learning_rate=.inf"), "learning_rate"),
        (("--set", "lam=7"), "lam"),
        (("--views", "wrist"), "wrist"),
    ],
)
def test_train_refuses_nonsense(tmp_path: Path, words: tuple[str, ...], problem: str) -> None:
    make_recording(tmp_path / "moves", episodes=2, frames=8)
    done = jointprobe("train", tmp_path / "moves", "--to", tmp_path / "w", *words)
    assert done.returncode == 2 and problem in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_brackets_in_names_are_brackets(tmp_path: Path) -> None:
    """A folder's name reaches progress, results and errors; none of them may read it as markup."""
    folder = tmp_path / "a[/b][red]c"
    done = jointprobe("record", "--motion", "demos", "--episodes", "1", "--size", "32", "--to", folder)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert "a[/b][red]c" in "".join(done.stdout.split())
    done = jointprobe("check", folder)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    study = make_study(folder)
    for words in (("freeze", study), ("probe", study), ("verify", study)):
        done = jointprobe(*words)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


def test_an_interrupt_says_how_to_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "probe.cli", "record", "--motion", "demos", "--to", str(tmp_path / "r")]
    process = subprocess.Popen(
        [*command, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a suite in the background ignores it
    )
    while process.poll() is None and not (tmp_path / "r/manifest.jsonl").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "run the same command again" in json.loads(out)["error"], err
    assert Recording.open(tmp_path / "r").episode_indices


@pytest.mark.parametrize(
    ("body", "build", "problem"),
    [
        ("raise KeyError('lost')", "return Mine()", "encode failed: KeyError"),
        ("return np.full((len(frames), 3), np.nan)", "return Mine()", "not finite"),
        ("return np.zeros(len(frames))", "return Mine()", "gave float64"),
        ("return np.zeros((len(frames), 2))", "return Mine()", "gave 2 dimensions, its width is 3"),
        ("return None", "raise SystemExit(3)", "build() failed: SystemExit"),
        ("return None", "return 5", "neither an object with encode"),
    ],
)
def test_a_users_own_encoder_that_misbehaves_is_named(
    tmp_path: Path, body: str, build: str, problem: str
) -> None:
    text = STUDY.replace("probe: {", "  mine: {load: 'import:mine.py:build'}\nprobe: {")
    study = make_study(tmp_path, text)
    (study / "mine.py").write_text(USER_ENCODER.format(body=body, build=build))
    with pytest.raises(InputError) as refused:
        freeze_study(study)
        probe_study(study)
    assert problem in str(refused.value) and "import" in str(refused.value)


def test_results_without_their_event_are_not_believed(tmp_path: Path) -> None:
    """Cutting a ledger's end and editing what it recorded must not pass."""
    study = make_study(tmp_path)
    freeze_study(study)
    probe_study(study)
    assert verify_study_folder(study).ok
    lines = (study / "ledger.jsonl").read_text().splitlines(keepends=True)
    for cut in (1, 2, 3):
        (study / "ledger.jsonl").write_text("".join(lines[:-cut]))
        outcome = verify_study_folder(study)
        assert not outcome.ok and "differs" in {line.state for line in outcome.lines}, cut
        assert not verify_study_folder(study, ledger_only=True).ok
    record = json.loads((study / "results.json").read_text())
    record["measurements"][0]["value"] = 0.97
    (study / "results.json").write_text(json.dumps(record))
    assert "results.json: differs" in verify_study_folder(study).summary


def test_missing_encoders_read_not_checked(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    freeze_study(study)
    probe_study(study)
    shutil.rmtree(study / "encoders")
    states = {line.what: line.state for line in verify_study_folder(study).lines}
    assert {states[f"encoder {name}"] for name in ("W1", "untrained", "pixels")} == {"not checked"}


def test_two_probes_at_once_are_refused(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    freeze_study(study)
    with (study / "study.yaml").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="being probed by another process"):
            probe_study(study)


@pytest.mark.parametrize(
    "change", [("stride_s: 0.3", "stride_s: 3000"), ("batch_size: 8", "batch_size: 60000")]
)
def test_a_recipe_that_cannot_train_is_refused_at_the_freeze(tmp_path: Path, change: tuple[str, str]) -> None:
    study = make_study(tmp_path, STUDY.replace(*change))
    with pytest.raises(InputError, match="pair"):
        freeze_study(study)
    assert not (study / "ledger.jsonl").exists()


def test_a_changed_episode_is_named_before_it_is_read(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    freeze_study(study)
    path = tmp_path / "recordings/moves/episodes/000005.h5"
    with h5py.File(path, "r+") as file:
        file["joints/position"][3, 0] = np.nan
    with pytest.raises(ValueError, match="recording moves, episode 5: frozen as"):
        probe_study(study)


def test_a_clock_that_falls_is_refused(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", episodes=1, frames=6)
    with h5py.File(recording.episode(0).path, "r+") as file:
        file["joints/time_ns"][...] = file["joints/time_ns"][()][::-1]
    with pytest.raises(InputError, match=r"joints: its clock does not advance after row 0"):
        next(recording.aligned(["front"]))


def test_a_foreign_episode_is_not_adopted(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", episodes=2, frames=4)
    shutil.copy(recording.episode(0).path, recording.folder / "episodes/000007.h5")
    with pytest.raises(InputError, match=r"000007\.h5: is episode 0 by its own word - move it out"):
        RecordingWriter.resume(recording.folder, recording.info)


def test_settings_that_differ_are_named(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", episodes=1, frames=4)
    changed = recording.info.model_copy(update={"motion_settings": {"episodes": 2}})
    with pytest.raises(InputError, match=r"\(motion_settings\.episodes: not there, now 2\)"):
        RecordingWriter.resume(recording.folder, changed)
    narrower = [view.model_copy(update={"width": 16}) for view in recording.info.views]
    changed = recording.info.model_copy(update={"views": narrower})
    with pytest.raises(
        InputError, match=r"\(views\.front\.width: 32, now 16; views\.side\.width: 32, now 16\)"
    ):
        RecordingWriter.resume(recording.folder, changed)
    changed = changed.model_copy(update={"motion": "observe", "motion_settings": {"frame": "model"}})
    with pytest.raises(InputError, match=r"\(motion: demos, now observe\)"):  # the rest follows from it
        RecordingWriter.resume(recording.folder, changed)


def test_a_full_disk_while_probing_keeps_what_was_frozen(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    freeze_study(study)
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000));"
        "from probe.cli import main; main(['probe', sys.argv[1]])"
    )
    done = subprocess.run([sys.executable, "-c", script, study], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "the disk is full" in done.stderr or "File too large" in done.stderr
    probe_study(study)
    assert verify_study_folder(study).ok and Results.load(study).by_path["pixels.r2.mean"].value is not None
