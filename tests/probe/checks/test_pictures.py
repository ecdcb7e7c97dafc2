"""Pictures of evidence: each finding that can be seen has one, with the spot where the check says it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hardware.checks import Check, Look
from hardware.recording import Recording
from probe.checks import PixelRows, check_recording, look, pixel_rows
from probe.checks.episodes import check_own_video
from probe.checks.frame_pictures import draw_own_video, with_joint
from probe.checks.joint_pictures import draw_actions, draw_leaps, draw_limits, draw_offsets, draw_sentinels
from probe.checks.pictures import picture_of
from probe.checks.sheets import WIDTH_PX, Line, Sheet, Trace
from sim.record import record_simulated

sys.path.append(str(Path(__file__).resolve().parents[2] / "hardware"))

from rewritten_recordings import Streams, rewritten

RATE_HZ = 100.0


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    to = tmp_path_factory.mktemp("pictures") / "demos"
    return record_simulated(to, motion="demos", episodes=4, seed=3, image_size=32, seconds=5.0, fps=10.0)


def checked(recording: Recording) -> dict[str, Check]:
    return {check.name: check for check in check_recording(recording, frames=False)}


def turned_inside(episodes: list[Streams]) -> None:
    for one in episodes:
        one.position[:, 4] = 0.001 * one.position[:, 4]
        one.position[:, 4] += 0.4 * (
            (np.arange(len(one.position)) >= 200) if one.index == 2 else one.index > 2
        )


def failed_read(episodes: list[Streams]) -> None:
    episodes[1].position[100:103, [1, 2, 4]] = -2.5


def leap(episodes: list[Streams]) -> None:
    episodes[1].position[150, 1] += 0.9


def beyond(episodes: list[Streams]) -> None:
    episodes[3].position[250:260, 0] = 2.5


def copied(episodes: list[Streams]) -> None:
    for one in episodes:
        one.action_ns, one.target = one.joint_ns, np.roll(one.position, -1, axis=0)


def black(episodes: list[Streams]) -> None:
    episodes[2].frames["front"][12:20] = 0


def frozen(episodes: list[Streams]) -> None:
    episodes[2].frames["wrist"][5:45] = episodes[2].frames["wrist"][5]


def late(episodes: list[Streams]) -> None:
    for one in episodes:
        one.target = np.concatenate([np.repeat(one.target[:1], 12, axis=0), one.target[:-12]])


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (turned_inside, "joint_offsets"),
        (failed_read, "sentinels"),
        (leap, "joint_leaps"),
        (beyond, "joint_limits"),
        (copied, "actions"),
        (late, "action_lag"),
        (black, "black_frames"),
        (frozen, "frozen_frames"),
        (frozen, "repeated_frames"),
    ],
)
def test_a_finding_has_a_picture(
    tmp_path: Path, small: Recording, change: Callable[[list[Streams]], None], name: str
) -> None:
    recording = rewritten(small, tmp_path / "rec", change)
    looks = look(recording)
    (check,) = [one for one in check_recording(recording, looks=looks) if one.name == name and one.alarm]
    picture = picture_of(check, recording, looks, pixel_rows(recording, looks))
    assert picture is not None and picture.dtype == np.uint8
    assert picture.shape[1:] == (WIDTH_PX, 3) and picture.shape[0] > 150 and np.ptp(picture) > 200


def test_marks_are_where_the_check_says(tmp_path: Path, small: Recording) -> None:
    recording = rewritten(small, tmp_path / "offsets", turned_inside)
    (trace,) = draw_offsets(checked(recording)["joint_offsets"], recording).traces
    ((first, last),) = trace.spots
    assert first == last == pytest.approx(200 / RATE_HZ, abs=0.02) and "row 200" in trace.title
    recording = rewritten(small, tmp_path / "sentinels", failed_read)
    trace = draw_sentinels(checked(recording)["sentinels"], recording).traces[0]
    assert trace.title == "shoulder_lift, episode 1: row 100"
    assert [round(first * RATE_HZ) for first, _ in trace.spots] == [100, 101, 102]
    recording = rewritten(small, tmp_path / "leaps", leap)
    (trace,) = draw_leaps(checked(recording)["joint_leaps"], recording).traces  # out and back are one spot
    assert trace.spots[0][0] == pytest.approx(150 / RATE_HZ, abs=0.02)
    recording = rewritten(small, tmp_path / "limits", beyond)
    (trace,) = draw_limits(checked(recording)["joint_limits"], recording).traces
    joint = recording.info.joints[0]
    assert trace.range == (joint.lower, joint.upper) and trace.title.startswith("shoulder_pan, episode 3")
    recording = rewritten(small, tmp_path / "actions", copied)
    joints, actions = draw_actions(checked(recording)["actions"], recording).traces[0].lines
    np.testing.assert_array_equal(np.asarray(actions.y)[:-1], np.asarray(joints.y)[1:])


def test_frames_are_shown_with_their_times_and_the_joint_that_moves(small: Recording) -> None:
    (front, *_) = [one for one in look(small) if (one.episode, one.view) == (1, "front")]
    sheet = with_joint(small, front, [4, 20], (4, 20))
    times = small.episode(1).frame_times("front") - small.episode(1).joints().time_ns[0]
    assert [caption for _, caption in sheet.frames] == [
        f"frame {number}, {times[number] / 1e9:.2f} s" for number in (4, 20)
    ]
    shown = list(small.episode(1).frames("front", [4, 20]))
    np.testing.assert_array_equal(sheet.frames[1][0], shown[1])
    log = small.episode(1).joints()
    while_there = (log.time_ns >= log.time_ns[0] + times[4]) & (log.time_ns <= log.time_ns[0] + times[20])
    column = int(np.argmax(np.ptp(log.position[while_there], axis=0)))
    assert sheet.traces[0].title.startswith(small.info.joint_names[column])


def test_exchanged_videos_are_drawn_beside_both_episodes_joints(
    rows: dict[str, PixelRows], recording: Recording, looks: list[Look]
) -> None:
    from dataclasses import replace

    one = rows["wrist"]
    small, (a, b) = one.small.copy(), (one.clusters.rows(3), one.clusters.rows(4))
    n = min(len(a), len(b))
    small[a[:n]], small[b[:n]] = one.small[b[:n]], one.small[a[:n]]
    swapped = replace(one, small=small)
    check = check_own_video(swapped)
    assert check.alarm
    sheet = draw_own_video(check, recording, looks, swapped)
    assert len(sheet.frames) == 4 and len(sheet.traces) == 2
    for trace in sheet.traces:
        said, own, others = (np.asarray(line.y) for line in trace.lines)
        assert np.corrcoef(said, others)[0, 1] > np.corrcoef(said, own)[0, 1] + 0.2


def test_a_sheet_keeps_a_limit_in_sight_that_all_is_beyond() -> None:
    values = np.linspace(5.0, 6.0, 50)
    outside = Sheet(traces=[Trace("t", [Line("", np.arange(50), values)], range=(-1.0, 4.0))]).draw()
    inside = Sheet(traces=[Trace("t", [Line("", np.arange(50), values)], range=(-1.0, 9.0))]).draw()

    def shaded(picture: np.ndarray) -> int:
        return int((np.abs(picture.astype(int) - (0xF3, 0xDC, 0xD5)).max(axis=-1) < 3).sum())

    assert shaded(outside) > 20_000 > 100 > shaded(inside)
