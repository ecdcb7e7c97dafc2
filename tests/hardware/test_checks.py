"""Each check against a recording made wrong in that one way; the real sets are in test_import_shared.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import lerobot_sets as sets
import numpy as np
import pyarrow.parquet as pq
import pytest

from hardware import Actions, Joint, Recording, RecordingWriter, View
from hardware.checks import Check, check_recording
from hardware.checks.check import counted, in_words, short
from hardware.importers import import_recording
from tests.recordings import make_recording, small_info

ROWS, FRAMES = 205, 20
PERIOD_NS, FRAME_NS = 10_000_000, 100_000_000
JOINT_NAMES = [
    *("hashes", "contiguity", "joints", "counts", "clock_order", "clock_rate", "clock_steps", "still_joints"),
    *("joint_limits", "joint_offsets", "units", "sentinels", "joint_leaps", "raw_ticks", "stuck_joints"),
    *("actions_readable", "actions", "action_lag", "directions", "joint_order", "faults"),
]
NAMES = [
    *(*JOINT_NAMES, "decoded", "black_frames", "repeated_frames", "frozen_frames", "repeat_pattern"),
    *("torn_frames", "identical_views", "shared_frames", "first_frames"),
]

Change = Callable[[dict], None]


def parts_of(index: int) -> dict:
    """The streams of a sound episode: two joints at 100 Hz that swing, one view at 10 Hz of noise."""
    rng = np.random.default_rng(index)
    seconds = np.arange(ROWS) / 100
    return {
        "joint_ns": np.arange(ROWS) * PERIOD_NS,
        "position": np.sin(3 * seconds[:, None] + rng.uniform(0, 6, 2)),
        "target": np.cos(5 * seconds[:, None] + rng.uniform(0, 6, 2)),
        "frame_ns": np.arange(FRAMES) * FRAME_NS,
        "images": rng.integers(20, 255, (FRAMES, 16, 16, 3), np.uint8),
        "faults": [],
    }


def record(
    folder: Path, change: Change | None = None, episodes: tuple[int, ...] = (0, 1, 2), **info
) -> Recording:
    """Episodes of which number 1 is changed."""
    view = View(name="front", width=16, height=16, fps=10, encoding="rgb8")
    with RecordingWriter.create(folder, small_info(views=(view,)).model_copy(update=info)) as writer:
        for index in episodes:
            parts = parts_of(index)
            if change is not None and index == 1:
                change(parts)
            with writer.episode(index) as episode:
                episode.joints(parts["joint_ns"], parts["position"])
                if writer.info.actions is not None:
                    episode.actions(parts["joint_ns"][: len(parts["target"])], parts["target"])
                for number, (time_ns, image) in enumerate(zip(parts["frame_ns"], parts["images"])):
                    episode.frame("front", int(time_ns), number, image)
                for fault in parts["faults"]:
                    episode.fault(*fault)
    return Recording.open(folder)


def checked(recording: Recording) -> dict[str, Check]:
    checks = check_recording(recording)
    assert [check.name for check in checks] == NAMES
    return {check.name: check for check in checks}


def alarms(checks: dict[str, Check]) -> dict[str, str]:
    return {name: check.state for name, check in checks.items() if check.alarm}


def test_a_sound_recording_passes_everything(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    recording = record(tmp_path / "rec")
    assert alarms(checked(recording)) == {}
    check_recording(recording, progress=lambda *step: seen.append(step))
    assert seen[-1] == (3, 3, "episode 2, view front")
    assert [check.name for check in check_recording(recording, frames=False)] == JOINT_NAMES


def still(parts: dict) -> None:
    parts["images"][5:15] = parts["images"][5]


def late(parts: dict) -> None:
    parts["joint_ns"] = (
        np.cumsum(np.where(np.arange(ROWS) % 10 == 5, 3 * PERIOD_NS, PERIOD_NS * 7 // 9)) - PERIOD_NS
    )


def black(parts: dict) -> None:
    parts["images"][3:6] = 0


def beyond(parts: dict) -> None:
    parts["position"][7, 0] = 2.5


def fault(parts: dict) -> None:
    parts["faults"] += [("stale", "joints", "the bus answered late"), ("stale", "joints", "and again")]


CASES: list[tuple[Change, dict[str, str], str, str]] = [
    (still, {"repeated_frames": "warn", "frozen_frames": "warn"}, "repeated_frames", "episode 1 front"),
    (black, {"black_frames": "warn", "repeated_frames": "warn"}, "black_frames", "episode 1 front 3 of 20"),
    (late, {"clock_steps": "warn"}, "clock_steps", "joints: steps of 0.008 to 0.030 s"),
    (
        beyond,
        {"joint_limits": "warn", "joint_leaps": "warn"},
        "joint_limits",
        "(1.0 deg): joint0 up to 0.500 rad (29 deg) beyond, in 1 of 3 episodes, most in 1",
    ),
    (
        fault,
        {"faults": "warn"},
        "faults",
        "stale 2 times, in episode 1; first of each: episode 1: the bus answered late",
    ),
]


@pytest.mark.parametrize(("change", "states", "name", "words"), CASES)
def test_what_is_wrong_is_seen_and_named(
    tmp_path: Path, change: Change, states: dict[str, str], name: str, words: str
) -> None:
    checks = checked(record(tmp_path / "rec", change))
    found = alarms(checks)
    assert found.keys() >= states.keys()
    assert {key: found[key] for key in states} == states
    assert not found.keys() - states.keys() - {"clock_rate", "repeated_frames"}
    assert words in checks[name].message
    assert checks[name].evidence["episodes"] == [1]
    assert checks[name].remedy


def test_a_clock_of_coarse_ticks_runs_at_its_mean_rate(tmp_path: Path) -> None:
    def coarse(parts: dict) -> None:
        parts["frame_ns"] = parts["frame_ns"] // 35_000_000 * 35_000_000  # steps of 70 and 105 ms

    assert alarms(checked(record(tmp_path / "rec", coarse, episodes=(1,)))) == {}


def test_a_gap_between_episodes(tmp_path: Path) -> None:
    check = checked(record(tmp_path / "rec", episodes=(0, 1, 4)))["contiguity"]
    assert (check.state, check.evidence["episodes"]) == ("warn", [2, 3])
    assert "2 episodes absent between 0 and 4: 2, 3" in check.message


def test_a_changed_byte_fails_and_stops_no_other_check(tmp_path: Path) -> None:
    recording = record(tmp_path / "rec")
    with h5py.File(tmp_path / "rec/episodes/000001.h5", "r+") as file:
        file["joints/position"][3, 1] = np.nan
    checks = checked(recording)
    assert alarms(checks) == {"hashes": "fail", "joints": "fail"}
    assert "has changed since it was sealed" in checks["hashes"].message
    assert "row 3, joint joint1" in checks["joints"].message
    assert checks["hashes"].evidence["episodes"] == checks["joints"].evidence["episodes"] == [1]


def test_a_lost_file_is_a_failed_check(tmp_path: Path) -> None:
    recording = record(tmp_path / "rec")
    (tmp_path / "rec/episodes/000001.h5").write_bytes(b"gone")
    found = alarms(checked(recording))
    assert {"hashes", "joints", "decoded"} <= found.keys()


def test_no_readable_episode_at_all(tmp_path: Path) -> None:
    recording = record(tmp_path / "rec", episodes=(0,))
    (tmp_path / "rec/episodes/000000.h5").unlink()
    found = alarms(checked(recording))
    assert found["hashes"] == found["joints"] == found["still_joints"] == "fail"


def test_a_joint_turned_inside_an_episode_was_not_calibrated_anew(tmp_path: Path) -> None:
    with RecordingWriter.create(tmp_path / "rec", small_info(views=(), actions=None)) as writer:
        for index in range(3):
            parts = parts_of(index)
            turned = (np.arange(ROWS) >= 80) if index == 1 else np.full(ROWS, index == 2)
            parts["position"][:, 1] = 0.001 * parts["position"][:, 1] + 0.5 * turned
            with writer.episode(index) as episode:
                episode.joints(parts["joint_ns"], parts["position"])
    checks = {check.name: check for check in check_recording(Recording.open(tmp_path / "rec"))}
    offsets = checks["joint_offsets"]
    assert alarms(checks).keys() - {"joint_leaps"} == {"joint_offsets"}
    assert "joint1 moved from 0.00 to 0.50 rad at row 80 of episode 1 and stayed there" in offsets.message
    assert offsets.evidence["episodes"] == [1] and "calibrated again" not in offsets.remedy


def test_joints_that_are_slightly_beyond_are_told_but_no_alarm(tmp_path: Path) -> None:
    def slightly(parts: dict) -> None:
        parts["position"][:, 0] *= 2.01

    check = checked(record(tmp_path / "rec", slightly, episodes=(1,)))["joint_limits"]
    assert check.state == "pass" and "joint0 up to 0.0" in check.message
    assert "within the tolerance of 0.017 rad (1.0 deg)" in check.message


def test_what_has_nothing_to_look_at_is_no_pass(tmp_path: Path) -> None:
    joints = [Joint(name="a"), Joint(name="b")]
    recording = record(tmp_path / "rec", episodes=(0,), joints=joints, actions=None)
    checks = checked(recording)
    untestable = {name for name, check in checks.items() if check.state == "not testable"}
    assert untestable == {
        *("joint_limits", "joint_offsets", "raw_ticks", "actions_readable", "actions", "action_lag"),
        *("directions", "joint_order", "units", "identical_views", "shared_frames", "first_frames"),
    }
    assert not any(checks[name].alarm for name in untestable)


def test_numbers_and_names_in_words() -> None:
    assert short([0, 2, 3, 7, 8, 9, 24]) == "0, 2, 3, 7-9, 24"
    assert short(range(0, 40, 2)) == "0, 2, 4, 6, 8, 10, 12, 14 and 12 more"
    assert in_words([4]) == "episode 4" and in_words(range(7, 25)) == "episodes 7-24"
    assert counted(1, "row") == "1 row" and counted(0, "row") == "0 rows"


def test_still_and_offset_joints(tmp_path: Path) -> None:
    def make(folder: Path, rest: float) -> dict[str, Check]:
        with RecordingWriter.create(folder, small_info(views=(), actions=None)) as writer:
            for index in range(3):
                parts = parts_of(index)
                parts["position"][:, 1] = 0.001 * parts["position"][:, 1] + (rest if index == 2 else 0)
                with writer.episode(index) as episode:
                    episode.joints(parts["joint_ns"], parts["position"])
        return {check.name: check for check in check_recording(Recording.open(folder))}

    checks = make(tmp_path / "still", 0.0)
    assert alarms(checks) == {"still_joints": "warn"}
    assert checks["still_joints"].evidence["joints"] == ["joint1"]
    checks = make(tmp_path / "offset", 0.5)
    assert alarms(checks) == {"joint_offsets": "warn"}
    assert "joint1 moved from 0.00 to 0.50 rad between episodes 1 and 2" in checks["joint_offsets"].message
    assert "calibrated again" in checks["joint_offsets"].remedy
    assert "within an episode" not in checks["joint_offsets"].remedy


def test_actions_that_are_the_joints_of_the_next_row(tmp_path: Path) -> None:
    def copy(parts: dict) -> None:
        parts["target"] = np.roll(parts["position"], -1, axis=0)

    check = checked(record(tmp_path / "rec", copy, episodes=(1,)))["actions"]
    assert check.state == "warn"
    assert "action[t] equals joints[t+1] in 100.0% of the rows that move" in check.message


def test_joints_that_are_no_angles_are_no_still_joints(tmp_path: Path) -> None:
    joints = [Joint(name="a"), Joint(name="b", unit="source")]

    def small(parts: dict) -> None:
        parts["position"][:, 1] *= 1e-3

    recording = record(
        tmp_path / "rec", small, episodes=(1,), joints=joints, actions=Actions(names=["x"] * 2, unit="source")
    )
    assert alarms(checked(recording)) == {}


def test_a_recording_without_angles(tmp_path: Path) -> None:
    joints = [Joint(name="a", unit="percent"), Joint(name="b", unit="source")]
    checks = checked(record(tmp_path / "rec", still, episodes=(1,), joints=joints, actions=None))
    assert alarms(checks) == {}  # nothing says by how much these move: no view is accused


def test_a_view_frozen_for_most_of_an_episode_fails(tmp_path: Path) -> None:
    def frozen(parts: dict) -> None:
        parts["images"][2:] = parts["images"][2]

    check = checked(record(tmp_path / "rec", frozen))["repeated_frames"]
    assert (check.state, check.evidence["episodes"]) == ("fail", [1])


# -- imported ------------------------------------------------------------------------------------------------


def imported(tmp_path: Path, stamps: Callable[[np.ndarray], np.ndarray]) -> dict[str, Check]:
    source = sets.write_v21(tmp_path / "set", [30, 30])
    path = source / "data/chunk-000/episode_000001.parquet"
    table = pq.read_table(path)
    values = stamps(table.column("timestamp").to_numpy()).astype(np.float32)
    pq.write_table(table.set_column(table.column_names.index("timestamp"), "timestamp", [values]), path)
    import_recording(source, tmp_path / "rec", unit="degrees")
    return checked(Recording.open(tmp_path / "rec"))


def test_time_stamps_that_run_slower_than_the_video(tmp_path: Path) -> None:
    check = imported(tmp_path, lambda stamps: stamps * 1.5)["clock_rate"]
    assert check.state == "warn"
    assert check.evidence["episodes"] == [1]
    assert check.evidence["widest_apart_s"] == pytest.approx(29 / 30 * 0.5, abs=1e-3)
    assert check.evidence["median_hz"]["view front"] == pytest.approx(30)
    assert "rows pair by number" in check.remedy


@pytest.mark.parametrize(("instead", "words"), [(5, "-0.133333"), (9, "+0.000000")])
def test_time_stamps_that_go_back_or_stand(tmp_path: Path, instead: int, words: str) -> None:
    check = imported(tmp_path, lambda stamps: np.r_[stamps[:10], stamps[instead], stamps[11:]])["clock_order"]
    assert (check.state, check.evidence["episodes"]) == ("fail", [1])
    assert f"joints: row 10 is {words} s after the row before it" in check.message


def test_sound_time_stamps(tmp_path: Path) -> None:
    states = alarms(imported(tmp_path, lambda stamps: stamps))
    assert set(states) <= {"actions", "faults"}  # the helper's actions are its states


def test_a_video_cut_short_inside_the_episode_file(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [12])
    import_recording(source, tmp_path / "rec", unit="degrees")
    sets.encode(tmp_path / "short.mp4", 7, 0)
    content = np.frombuffer((tmp_path / "short.mp4").read_bytes(), np.uint8)
    with h5py.File(tmp_path / "rec/episodes/000000.h5", "r+") as file:
        file["views/front/video"].resize(len(content), axis=0)
        file["views/front/video"][:] = content
    check = checked(Recording.open(tmp_path / "rec"))["decoded"]
    assert check.state == "fail"
    assert "episode 0, view front" in check.message and "ends before frame 7" in check.message


def test_an_interrupted_recording_is_named(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", episodes=2, frames=6)
    assert {one.name: one.state for one in check_recording(recording, frames=False)}["contiguity"] == "pass"
    (recording.folder / "episodes/000002.h5.partial").write_bytes(b"half")
    (check,) = [one for one in check_recording(recording, frames=False) if one.name == "contiguity"]
    assert (
        check.state == "fail"
        and "000002.h5.partial" in check.message
        and "run the same command" in check.remedy
    )


def test_episodes_that_were_meant_and_are_not_there_are_named(tmp_path: Path) -> None:
    info = small_info(motion_settings={"episodes": 3})
    with RecordingWriter.create(tmp_path / "r", info) as writer, writer.episode(0) as episode:
        episode.joints([1, 2], np.zeros((2, 2)))
    (check,) = [
        one
        for one in check_recording(Recording.open(tmp_path / "r"), frames=False)
        if one.name == "contiguity"
    ]
    assert check.state == "fail" and "2 of 3 episodes not sealed" in check.message


def resized(file: h5py.File, name: str, values: np.ndarray | None) -> None:
    del file[name]
    if values is not None:
        file.create_dataset(name, data=values, fletcher32=True, chunks=True)


@pytest.mark.parametrize(
    ("damage", "check", "said"),
    [
        (
            lambda file: resized(file, "actions/target", file["actions/target"][:-5]),
            "actions_readable",
            "rows",
        ),
        (
            lambda file: resized(file, "actions/target", np.zeros((ROWS, 7))),
            "actions_readable",
            "has 7 columns, recording.yaml names 2",
        ),
        (
            lambda file: resized(file, "actions/target", np.full((ROWS, 2), np.nan)),
            "actions_readable",
            f"{ROWS} rows of its {ROWS} actions hold no number",
        ),
        (lambda file: resized(file, "actions", None), "actions_readable", "it has no action, and"),
        (
            lambda file: resized(file, "views/front/frames", file["views/front/frames"][:-3]),
            "decoded",
            f"stores {FRAMES - 3} frames, and its time_ns counts more",
        ),
    ],
)
def test_streams_that_contradict_each_other_are_named(
    tmp_path: Path, damage: Callable[[h5py.File], None], check: str, said: str
) -> None:
    recording = record(tmp_path / "rec")
    with h5py.File(tmp_path / "rec/episodes/000001.h5", "r+") as file:
        damage(file)
    found = checked(recording)[check]
    assert found.state == "fail" and said in found.message and "1" in found.message


def test_a_file_in_another_episodes_place(tmp_path: Path) -> None:
    """Hashes are those of the bytes, so a manifest made anew hides what the file itself says."""
    recording = record(tmp_path / "rec")
    with h5py.File(tmp_path / "rec/episodes/000001.h5", "r+") as file:
        file.attrs["index"] = 2
    found = checked(recording)
    assert found["joints"].state == found["decoded"].state == "fail"
    assert found["joints"].evidence["episodes"] == [1]
    assert "000001.h5: is episode 2 by its own word" in found["joints"].message


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (lambda numbers: numbers[::-1].copy(), "view front: frame 1 has sequence number 18 after 19"),
        (lambda numbers: np.r_[numbers[:7], 6, numbers[8:]], "frame 7 has sequence number 6 after 6"),
        (lambda numbers: numbers[:-1], "has 19 numbers, its time_ns counts 20 frames"),
    ],
)
def test_a_cameras_counter_that_falls(
    tmp_path: Path, numbers: Callable[[np.ndarray], np.ndarray], said: str
) -> None:
    recording = record(tmp_path / "rec")
    with h5py.File(tmp_path / "rec/episodes/000001.h5", "r+") as file:
        resized(file, "views/front/sequence", numbers(file["views/front/sequence"][()]))
    order = checked(recording)["clock_order"]
    assert order.state == "fail" and order.evidence["episodes"] == [1]
    assert order.message.startswith("episode 1: ") and said in order.message


def cut_short(parts: dict) -> None:
    parts["target"] = parts["target"][:0]
    parts["faults"].append(("ended_early", "episode", "ended by camera_lost: front"))


def test_an_episode_cut_short_before_its_first_action_is_no_damage(tmp_path: Path) -> None:
    found = checked(record(tmp_path / "rec", cut_short))["actions_readable"]
    assert found.state == "warn" and found.message == "cut short before the first action: episode 1"
    assert found.evidence == {"episodes": [1]} and "jointprobe record" in found.remedy


def test_damage_beside_an_episode_cut_short_still_fails(tmp_path: Path) -> None:
    recording = record(tmp_path / "rec", cut_short)
    with h5py.File(tmp_path / "rec/episodes/000002.h5", "r+") as file:
        resized(file, "actions", None)
    found = checked(recording)["actions_readable"]
    assert found.state == "fail" and found.evidence["episodes"] == [2]
    assert found.message.startswith("episode 2: it has no action, and recording.yaml declares them; ")
    assert found.message.endswith("cut short before the first action: episode 1")


def test_an_episode_cut_short_whose_actions_are_damaged_fails(tmp_path: Path) -> None:
    def change(parts: dict) -> None:
        cut_short(parts)
        parts["target"] = np.full((ROWS, 2), np.nan)

    assert checked(record(tmp_path / "rec", change))["actions_readable"].state == "fail"
