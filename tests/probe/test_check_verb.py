"""`jointprobe check` as a user calls it: every finding at once, with pictures; one line for bad input."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest

from hardware import InputError, Recording, RecordingWriter
from probe.checks import check_recording
from probe.cli import main
from sim.record import record_simulated
from tests.recordings import make_recording, small_info

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), " ".join(out.split()), " ".join(err.split())

    return call


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_recording(tmp_path_factory.mktemp("clean") / "moves", episodes=4, frames=30).folder


@pytest.fixture(scope="module")
def dark(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with view `front` of episode 2 black."""
    opened, folder = Recording.open(clean), tmp_path_factory.mktemp("dark") / "moves"
    with RecordingWriter.resume(folder, opened.info) as writer:
        for index in opened.episode_indices:
            _copied(writer, opened, index, black=index == 2)
    return folder


def _copied(
    writer: RecordingWriter, opened: Recording, index: int, black: bool, frames_of: int | None = None
) -> None:
    episode = opened.episode(index)
    shows = episode if frames_of is None else opened.episode(frames_of)
    joints, actions = episode.joints(), episode.actions()
    assert actions is not None
    with writer.episode(index) as new:
        new.joints(joints.time_ns, joints.position)
        new.actions(actions.time_ns, actions.target)
        for view in opened.info.view_names:
            times = episode.frame_times(view)
            for number, image in enumerate(shows.frames(view)):
                shown = np.zeros_like(image) if black and view == "front" else image
                if view == "side":
                    done, data = cv2.imencode(".jpg", cv2.cvtColor(shown, cv2.COLOR_RGB2BGR))
                    assert done
                    new.frame(view, int(times[number]), number, data.tobytes())
                else:
                    new.frame(view, int(times[number]), number, shown)
        start, end = int(joints.time_ns[0]), int(joints.time_ns[-1])
        new.clocks(start=(start, start), end=(end, end))


def test_a_failure_is_told_with_its_remedy_and_its_picture(run: Run, dark: Path, tmp_path: Path) -> None:
    code, out, _ = run("check", dark, "--pictures", tmp_path / "seen")
    assert code == 1
    assert "fail black_frames black frames: episode 2 front 30 of 30 → leave these episodes out" in out
    assert "fail repeated_frames" in out and "2 fail" in out
    assert {path.name for path in (tmp_path / "seen").iterdir()} == {
        *("black_frames.png", "repeated_frames.png", "actions.png", "heat_map.svg")
    }
    assert "joint0" in (tmp_path / "seen" / "heat_map.svg").read_text()


def test_what_is_wrong_comes_first_and_what_passed_is_folded(run: Run, dark: Path) -> None:
    _, out, _ = run("check", dark)
    assert out.startswith("fail black_frames") and out.index("fail repeated") < out.index("not testable ")
    assert out.index("not testable lag_front") < out.index("pass hashes, contiguity, joints, counts,")
    assert "every clock advances" not in out
    found = json.loads(run("check", dark, "--json")[1])["checks"]
    counts = Counter(one["state"] for one in found)
    assert counts["not testable"] >= 5  # four episodes of 30 rows say little
    summary = f"{counts['pass']} pass, 1 warn, 2 fail, {counts['not testable']} not testable"
    assert (counts["warn"], counts["fail"]) == (1, 2)
    assert out.endswith(summary)
    _, out, _ = run("check", dark, "--verbose")
    assert "pass clock_order every clock advances with every row" in out and out.endswith(summary)


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_messages_hang_under_themselves_at_any_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, dark: Path, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        main(["check", str(dark)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    heads = ("fail ", "warn ", "not testable ", "pass ")
    assert all(line.startswith((*heads, "      ")) for line in lines[:-1]), lines
    assert not any("{" in line for line in lines)


def test_no_folder_is_left_without_a_picture(run: Run, tmp_path: Path) -> None:
    record_simulated(tmp_path / "demos", motion="demos", episodes=2, seed=0, image_size=32, seconds=3.0)
    code, out, _ = run("check", tmp_path / "demos", "--no-frames", "--pictures", tmp_path / "seen" / "here")
    assert code == 0 and out.endswith("no picture: nothing failed")
    assert not (tmp_path / "seen" / "here").exists()


def test_findings_that_cannot_be_seen_are_named(run: Run, clean: Path, tmp_path: Path) -> None:
    shutil.copytree(clean, tmp_path / "moves")
    path = tmp_path / "moves" / "episodes" / "000001.h5"
    path.write_bytes(path.read_bytes()[:-4000])
    code, out, _ = run("check", tmp_path / "moves", "--no-frames", "--pictures", tmp_path / "seen")
    assert code == 1 and "no picture of hashes" in out
    assert [path.name for path in (tmp_path / "seen").iterdir()] == ["actions.png"]


def test_a_finding_that_a_picture_shows_has_one(run: Run, clean: Path, tmp_path: Path) -> None:
    opened = Recording.open(clean)
    with RecordingWriter.resume(tmp_path / "moves", opened.info) as writer:
        for index in (0, 1):
            _copied(writer, opened, index, black=False, frames_of=0)
    code, out, _ = run("check", tmp_path / "moves", "--pictures", tmp_path / "seen")
    assert code == 1 and "fail shared_frames" in out
    picture = cv2.imread(str(tmp_path / "seen" / "shared_frames.png"))
    assert picture is not None and 32 < picture.shape[1] <= 640


def test_machines_get_every_check(run: Run, clean: Path, dark: Path) -> None:
    code, out, _ = run("check", clean, "--json")
    found = json.loads(out)
    assert code == 0 and found["failed"] == []  # what is not testable is no alarm
    assert "not testable" in {one["state"] for one in found["checks"]}
    assert {"hashes", "units", "torn_frames", "view_map", "lag_front"} <= {
        one["name"] for one in found["checks"]
    }
    code, out, _ = run("check", dark, "--json")
    (black,) = [one for one in json.loads(out)["checks"] if one["name"] == "black_frames"]
    assert code == 1 and black["evidence"]["episodes"] == [2] and "picture" not in black


def test_files_and_joints_alone(run: Run, dark: Path) -> None:
    code, out, _ = run("check", dark, "--no-frames")
    assert code == 0 and "black_frames" not in out and "hashes" in out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--expect", "front"), "'front' is not VIEW=GROUP"),
        (("--expect", "wrist=joint0"), "'wrist' is not a view of the recording - its views: front, side"),
        (("--expect", "front=leg"), "'leg' is not a group of its joints - its groups: joint0, joint1"),
        (("--reference", "nowhere"), "nowhere: is not a folder"),
        (("--pictures", "FILE"), "is a file - name a folder for the pictures"),
        (
            ("--expect", "front=joint0", "--expect", "front=joint1"),
            "--expect: 'front' is declared on joint0 and on joint1 - name the one group",
        ),
        (("--no-frames", "--expect", "front=joint0"), "--expect: is judged by what frames show"),
        (("--no-frames", "--reference", "ITSELF"), "--reference: is judged by what frames show"),
    ],
)
def test_bad_input_is_one_line(
    run: Run, clean: Path, tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    (tmp_path / "FILE").write_text("")
    paths = {"FILE": tmp_path / "FILE", "ITSELF": clean}
    given = [paths.get(word, word) for word in words]
    code, out, err = run("check", clean, *given)
    assert code == 2 and problem in err and "Traceback" not in err and "pass" not in out


def test_a_damaged_episode_stops_nothing_else(run: Run, clean: Path, tmp_path: Path) -> None:
    shutil.copytree(clean, tmp_path / "moves")
    path = tmp_path / "moves" / "episodes" / "000001.h5"
    path.write_bytes(path.read_bytes()[:-4000])
    code, out, _ = run("check", tmp_path / "moves")
    assert code == 1 and "fail hashes episode 1" in out and ", clock_order, " in out


def test_what_is_declared_twice_alike_is_declared_once(run: Run, clean: Path) -> None:
    given = ("--expect", "front=joint0")
    assert run("check", clean, *given, *given) == run("check", clean, *given)


def test_frames_that_are_not_looked_at_serve_no_declaration(clean: Path) -> None:
    opened = Recording.open(clean)
    with pytest.raises(InputError, match=r"^--expect: is judged by what frames show"):
        check_recording(opened, frames=False, expect={"front": "joint0"})
    with pytest.raises(InputError, match=r"^--reference: is judged by what frames show"):
        check_recording(opened, frames=False, reference=opened)


def test_a_reference_for_a_recording_without_views_is_not_testable(
    run: Run, clean: Path, tmp_path: Path
) -> None:
    with RecordingWriter.create(tmp_path / "blind", small_info(views=())) as writer:
        joints = Recording.open(clean).episode(0).joints()
        with writer.episode(0) as episode:
            episode.joints(joints.time_ns, joints.position)
    found = json.loads(run("check", tmp_path / "blind", "--reference", clean, "--json")[1])["checks"]
    states = {one["name"]: one["state"] for one in found}
    assert {states[f"{what}_reference"] for what in ("views", "colours", "joints")} == {"not testable"}


def _missing(path: Path) -> None:
    path.unlink()


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4000])


def _unreadable_frames(path: Path) -> None:
    """A picture that is none, in an episode that its manifest agrees with."""
    folder = path.parent.parent
    with h5py.File(path, "r+") as file:
        file["views/side/data"][: len(file["views/side/data"]) // 2] = 7
    lines = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    for line in lines:
        if line["file"] == f"episodes/{path.name}":
            line["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_missing, "000001.h5 is not there, or no file"),
        (_truncated, "000001.h5 has changed since it was sealed"),
        (_unreadable_frames, "episode 1 side: "),
    ],
)
def test_a_damaged_reference_is_named(
    run: Run, clean: Path, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    reference = tmp_path / "last-week"
    shutil.copytree(clean, reference)
    damage(reference / "episodes/000001.h5")
    code, out, _ = run("check", clean, "--reference", reference, "--json")
    (check,) = [one for one in json.loads(out)["checks"] if one["name"] == "reference"]
    assert code == 0 and check["state"] == "warn"
    assert f"episode 1 of {reference} left out, of 4: " in check["message"] and said in check["message"]
    assert check["evidence"]["reference_episodes"] == [1]
    for index in (0, 2, 3):
        damage(reference / f"episodes/{index:06d}.h5")
    code, out, err = run("check", clean, "--reference", reference)
    assert code == 2 and f"{reference}: cannot serve as a reference" in err and "(and 3 more)" in err
    assert "pass" not in out


def test_a_whole_reference_says_that_it_served(run: Run, clean: Path) -> None:
    found = json.loads(run("check", clean, "--reference", clean, "--json")[1])["checks"]
    (check,) = [one for one in found if one["name"] == "reference"]
    assert check["state"] == "pass" and check["message"] == f"4 episodes of {clean} served as reference"


def _never(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def test_absurd_values_are_standard_json(run: Run, tmp_path: Path) -> None:
    """Sums over them are infinite: null for machines, in words beside it."""
    with RecordingWriter.create(tmp_path / "absurd", small_info(views=())) as writer:
        for index in range(3):
            with writer.episode(index) as episode:
                time_ns = 1_000_000_000 + 10_000_000 * np.arange(200)
                position = np.sin(np.arange(200)[:, None] / 20 + [0.0, 1.0 + index])
                if index == 1:
                    position[50:60], position[60:70] = 1e308, -1e308
                episode.joints(time_ns, position)
                episode.actions(time_ns, position)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code, out, _ = run("check", tmp_path / "absurd", "--json")
    found = {one["name"]: one for one in json.loads(out, parse_constant=_never)["checks"]}
    assert code == 1 and found["units"]["state"] == "fail" and "inf rad" in found["units"]["message"]
    assert None in found["units"]["evidence"]["travel_rad"].values()
