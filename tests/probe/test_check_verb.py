"""`jointprobe check` as a user calls it: every finding at once, with pictures; one line for bad input."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from hardware import Recording, RecordingWriter
from probe.cli import main
from sim.record import record_simulated
from tests.recordings import make_recording

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
    ],
)
def test_bad_input_is_one_line(
    run: Run, clean: Path, tmp_path: Path, words: tuple[str, str], problem: str
) -> None:
    (tmp_path / "FILE").write_text("")
    given = [tmp_path / word if word == "FILE" else word for word in words]
    code, out, err = run("check", clean, *given)
    assert code == 2 and problem in err and "Traceback" not in err and "pass" not in out


def test_a_damaged_episode_stops_nothing_else(run: Run, clean: Path, tmp_path: Path) -> None:
    shutil.copytree(clean, tmp_path / "moves")
    path = tmp_path / "moves" / "episodes" / "000001.h5"
    path.write_bytes(path.read_bytes()[:-4000])
    code, out, _ = run("check", tmp_path / "moves")
    assert code == 1 and "fail hashes episode 1" in out and ", clock_order, " in out
