"""Checks of frames, each against clean simulated recordings and one made wrong in that one way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from rewritten_recordings import Streams, rewritten

from hardware import Recording
from hardware.checks import Check, check_recording
from hardware.checks.stuck_frames import repeat_pattern, runs
from hardware.checks.torn_frames import seam, torn_candidates
from sim.record import record_simulated

FRAME_CHECKS = {
    *("decoded", "black_frames", "repeated_frames", "frozen_frames", "repeat_pattern"),
    *("torn_frames", "identical_views", "shared_frames", "first_frames"),
}


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    to = tmp_path_factory.mktemp("sim") / "walk"
    return record_simulated(to, motion="walk", episodes=3, seed=3, seconds=5, image_size=64)


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    to = tmp_path_factory.mktemp("sim") / "demos"
    return record_simulated(to, motion="demos", episodes=3, seed=5, image_size=64)


def checked(recording: Recording) -> dict[str, Check]:
    return {check.name: check for check in check_recording(recording)}


def wrong(checks: dict[str, Check]) -> set[str]:
    return {name for name, check in checks.items() if check.alarm}


@pytest.mark.parametrize("motion", ["walk", "demos"])
def test_clean_recordings_pass(motion: str, request: pytest.FixtureRequest) -> None:
    checks = checked(request.getfixturevalue(motion))
    assert wrong(checks) == set()
    assert checks.keys() >= FRAME_CHECKS


def frozen(episodes: list[Streams]) -> None:
    episodes[1].frames["front"][20:51] = episodes[1].frames["front"][20]


def every_third(episodes: list[Streams]) -> None:
    frames = episodes[1].frames["wrist"]
    frames[10:70:3] = frames[9:69:3]


def torn(episodes: list[Streams]) -> None:
    frames = episodes[1].frames["wrist"]
    sound = frames.copy()
    for number in range(12, 66, 6):
        frames[number, :30], frames[number, 30:] = sound[number - 1, :30], sound[number + 1, 30:]


def torn_from_the_next(episodes: list[Streams]) -> None:
    frames = episodes[1].frames["wrist"]
    sound = frames.copy()
    for number in range(12, 66, 6):
        frames[number, 30:] = sound[number + 1, 30:]


def one_camera(episodes: list[Streams]) -> None:
    for one in episodes:
        count = min(len(one.frames["front"]), len(one.frames["wrist"]))
        one.frames["wrist"][:count] = one.frames["front"][:count]


def one_camera_with_noise(episodes: list[Streams]) -> None:
    one_camera(episodes)
    rng = np.random.default_rng(0)
    for one in episodes:
        noise = rng.integers(-3, 4, one.frames["wrist"].shape)
        one.frames["wrist"] = np.clip(one.frames["wrist"] + noise, 0, 255).astype(np.uint8)


def stored_twice(episodes: list[Streams]) -> None:
    count = min(len(one.frames["front"]) for one in episodes)
    episodes[1].frames["front"][:count] = episodes[2].frames["front"][:count]


def stored_twice_as_jpeg(episodes: list[Streams]) -> None:
    count = min(len(one.frames["wrist"]) for one in episodes)
    for number, image in enumerate(episodes[2].frames["wrist"][:count]):
        episodes[1].frames["wrist"][number] = cv2.imdecode(cv2.imencode(".jpg", image)[1], 1)


def replayed(episodes: list[Streams]) -> None:
    """The same motion and pictures again, with the noise of another run."""
    rng = np.random.default_rng(0)
    again = episodes[2]
    noise = rng.normal(0, 0.002, again.position.shape)
    episodes[1] = dataclasses.replace(again, index=1, position=again.position + noise)


def copied(episodes: list[Streams]) -> None:
    episodes[1] = dataclasses.replace(episodes[2], index=1)


def begins_late(episodes: list[Streams]) -> None:
    for view in ("front", "wrist"):
        episodes[1].frames[view][0] = episodes[0].frames[view][-1]


def begins_late_twice(episodes: list[Streams]) -> None:
    episodes[1].frames["wrist"][:2] = episodes[0].frames["wrist"][-2:]


CASES: list[tuple[Callable[[list[Streams]], None], str, str, str, list[int], str]] = [
    (frozen, "walk", "frozen_frames", "warn", [1], "episode 1 front frames 20 to 50"),
    (every_third, "walk", "repeat_pattern", "warn", [1], "episode 1 wrist every 3 frames, from frame 10"),
    (torn, "walk", "torn_frames", "warn", [1], "at row 30"),
    (torn, "demos", "torn_frames", "warn", [1], "at row 30"),
    (torn_from_the_next, "walk", "torn_frames", "warn", [1], "at row 30"),
    (one_camera, "walk", "identical_views", "fail", [0, 1, 2], "views front and wrist"),
    (one_camera_with_noise, "demos", "identical_views", "fail", [0, 1, 2], "views front and wrist"),
    (stored_twice, "walk", "shared_frames", "fail", [1, 2], "episodes 1 and 2 in front"),
    (stored_twice_as_jpeg, "demos", "shared_frames", "fail", [1, 2], "episodes 1 and 2 in wrist"),
    (
        copied,
        "demos",
        "shared_frames",
        "fail",
        [1, 2],
        "episodes 1 and 2 in front, episodes 1 and 2 in wrist",
    ),
    (begins_late, "walk", "first_frames", "warn", [1], "episode 1 wrist (1)"),
    (begins_late_twice, "demos", "first_frames", "warn", [1], "episode 1 wrist (2)"),
]


@pytest.mark.parametrize(("change", "motion", "name", "state", "episodes", "words"), CASES)
def test_what_is_wrong_with_frames_is_named(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    change: Callable[[list[Streams]], None],
    motion: str,
    name: str,
    state: str,
    episodes: list[int],
    words: str,
) -> None:
    clean = request.getfixturevalue(motion)
    checks = checked(rewritten(clean, tmp_path / "rec", change))
    check = checks[name]
    assert (check.state, check.evidence["episodes"]) == (state, episodes), check
    assert words in check.message
    assert check.remedy
    picture = check.picture
    assert picture is not None and picture.dtype == np.uint8 and picture.ndim == 3
    assert 100 < picture.shape[1] <= 640 and np.ptp(picture) > 0
    # What repeats is seen as repeating while joints move as well; nothing else is accused.
    assert wrong(checks) - {name} <= {"repeated_frames"}


def test_the_torn_frames_are_those_that_were_torn(tmp_path: Path, walk: Recording) -> None:
    check = checked(rewritten(walk, tmp_path / "rec", torn))["torn_frames"]
    named = [frame for _, _, frame in check.evidence["frames"]]
    assert len(named) >= 5 and set(named) <= set(range(12, 66, 6))
    assert set(check.evidence["rows"]) == {30}


def test_a_motion_that_was_replayed_may_look_the_same(tmp_path: Path, walk: Recording) -> None:
    assert wrong(checked(rewritten(walk, tmp_path / "rec", replayed))) == set()


def test_runs() -> None:
    assert runs(np.array([True, True, False, True])) == [(0, 2), (3, 4)]
    assert runs(np.zeros(3, bool)) == [] and runs(np.zeros(0, bool)) == []


def test_a_beat_is_found_and_a_rest_is_none() -> None:
    same = np.zeros(60, bool)
    same[7:50:4] = True
    change = np.where(same, 0.0, 2.0)
    assert repeat_pattern(same, change) == (4, 7, 11)
    same[20:30] = True  # a rest in between hides three of them and is no beat itself
    assert repeat_pattern(same, np.where(same, 0.0, 2.0)) == (4, 7, 8)
    rest = np.zeros(60, bool)
    rest[20:50] = True
    assert repeat_pattern(rest, np.where(rest, 0.0, 2.0)) is None


def test_repeats_at_random_are_no_beat() -> None:
    rng = np.random.default_rng(0)
    for share in (0.1, 0.3, 0.5):
        for _ in range(300):
            same = rng.random(200) < share
            assert repeat_pattern(same, np.where(same, 0.0, 2.0)) is None


def test_a_resting_view_whose_codec_repeats_every_second_frame_is_no_beat() -> None:
    same = np.zeros(200, bool)
    same[100:130:2] = True  # a key frame at every 2nd frame changes a resting picture a little
    change = np.where(same, 0.02, np.where((np.arange(200) >= 98) & (np.arange(200) < 132), 1.0, 6.0))
    assert repeat_pattern(same, change) is None


def test_a_moving_picture_is_torn_only_where_it_was() -> None:
    rng = np.random.default_rng(1)
    wide = cv2.GaussianBlur(rng.integers(0, 255, (64, 400, 3), np.uint8), (0, 0), 3)
    frames = [wide[:, 5 * number : 5 * number + 64].copy() for number in range(20)]

    def bands(images: list[np.ndarray]) -> np.ndarray:
        pairs = zip(images[1:], images[:-1])
        change = [np.abs(a.astype(float) - b).reshape(32, -1).mean(axis=1) for a, b in pairs]
        return np.array([np.full(32, np.nan), *change])

    assert len(torn_candidates(bands(frames), "rgb8")) == 0
    assert all(seam(*frames[number : number + 3]) is None for number in range(18))
    half = frames[9].copy()
    half[:21], half[21:] = frames[8][:21], frames[10][21:]
    frames[9] = half
    assert torn_candidates(bands(frames), "rgb8").tolist() == [9]
    found = seam(*frames[8:11])
    assert found is not None and found[0] == 21


@pytest.mark.slow
def test_no_false_alarm_on_many_clean_recordings(tmp_path: Path) -> None:
    """40 recordings of both motions, several sizes and rates: nothing is accused."""
    accused = {}
    for number in range(40):
        motion = "walk" if number % 3 else "demos"
        recording = record_simulated(
            tmp_path / f"clean{number}",
            motion=motion,
            episodes=3,
            seed=1000 + number,
            views=("front", "wrist") if number % 2 else ("top", "wrist"),
            image_size=(48, 64, 96)[number % 3],
            fps=(10, 15, 30)[number // 3 % 3],
            seconds=4 + number % 4 if motion == "walk" else None,
        )
        if found := wrong(checked(recording)):
            accused[motion, 1000 + number] = found
    assert accused == {}
