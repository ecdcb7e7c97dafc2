"""Checks of joints, units and actions, each against a clean recording and one made wrong in that one way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lerobot_sets as sets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rewritten_recordings import Streams, rewritten

from hardware import Recording
from hardware.checks import Check, check_recording
from hardware.checks.offsets import moves_between, shift_between
from hardware.checks.units import quantum
from hardware.importers import import_recording
from hardware.schema import Actions
from sim.record import record_simulated

TICK = 2 * np.pi / 4096


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    to = tmp_path_factory.mktemp("sim") / "demos"
    return record_simulated(to, motion="demos", episodes=3, seed=8, image_size=32)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    to = tmp_path_factory.mktemp("sim") / "walk"
    return record_simulated(
        to, motion="walk", episodes=12, seed=2, seconds=3, image_size=32, views=("front",)
    )


def checked(recording: Recording, frames: bool = False) -> dict[str, Check]:
    return {check.name: check for check in check_recording(recording, frames=frames)}


def wrong(checks: dict[str, Check]) -> dict[str, str]:
    return {name: check.state for name, check in checks.items() if check.alarm}


@pytest.mark.parametrize("motion", ["walk", "demos"])
def test_clean_recordings_pass(motion: str, request: pytest.FixtureRequest) -> None:
    checks = checked(request.getfixturevalue(motion), frames=True)
    assert wrong(checks) == {}
    untestable = {name for name, one in checks.items() if one.state == "not testable"}
    assert untestable == {"raw_ticks", *(["identical_views"] if motion == "walk" else [])}  # one view
    assert checks["units"].message == "the numbers look like radians, as stored"
    assert checks["action_lag"].evidence["velocity"] is False
    assert 0 <= checks["action_lag"].evidence["lag_s"] <= 0.06


def all_but_two_are_minus_one(episodes: list[Streams]) -> None:
    episodes[1].position[:, :4] = -1


def a_read_failed(episodes: list[Streams]) -> None:
    episodes[1].position[100:103, [1, 2, 4]] = -2.5


def a_read_of_one_joint_failed(episodes: list[Streams]) -> None:
    episodes[1].position[200, 2] = -np.pi


def wraps(episodes: list[Streams]) -> None:
    roll = episodes[1].position[:, 4] + 2.9  # crosses half a turn where the roll passes 0.24
    episodes[1].position[:, 4] = (roll + np.pi) % (2 * np.pi) - np.pi


def leaps(episodes: list[Streams]) -> None:
    episodes[1].position[150, 1] += 0.9


def one_joint_sticks(episodes: list[Streams]) -> None:
    position = episodes[1].position
    first = int(np.argmax(np.abs(position[60:, 0] - position[:-60, 0])))
    position[first : first + 60, 0] = position[first, 0]


def one_joint_sticks_and_comes_back(episodes: list[Streams]) -> None:
    """Nothing leaps; but its last digit flickers whenever else it rests, and other joints move."""
    position = episodes[1].position
    away = np.abs(position[60:, 0] - position[:-60, 0])
    others = np.array([np.ptp(position[row : row + 60, 1:5], axis=0).max() for row in range(len(away))])
    first = int(np.argmin(np.where(others > 0.3, away, np.inf)))
    position[first : first + 60, 0] = position[first, 0]


def all_joints_stick(episodes: list[Streams]) -> None:
    moving = np.abs(np.gradient(episodes[1].position, axis=0)).max(axis=1)
    first = int(np.argmax(np.convolve(moving[:-90], np.ones(60), "valid")))
    episodes[1].position[first : first + 60] = episodes[1].position[first]


def degrees_for_radians(episodes: list[Streams]) -> None:
    for one in episodes:
        one.position *= np.pi / 180


def radians_for_degrees(episodes: list[Streams]) -> None:
    for one in episodes:
        one.position *= 180 / np.pi


def smooth_degrees_for_radians(episodes: list[Streams]) -> None:
    """As above, from a source that filters its joints: only the range tells."""
    for one in episodes:
        kernel = np.hanning(9) / np.hanning(9).sum()
        smooth = [np.convolve(np.pad(column, 4, "edge"), kernel, "valid") for column in one.position.T]
        one.position = np.stack(smooth, axis=1) * np.pi / 180


def gripper_reversed(episodes: list[Streams]) -> None:
    for one in episodes:
        one.position[:, 5] = 1.57 - one.position[:, 5]


def columns_swapped(episodes: list[Streams]) -> None:
    for one in episodes:
        one.position[:, [2, 3]] = one.position[:, [3, 2]]


def actions_are_velocities(episodes: list[Streams]) -> None:
    for one in episodes:
        one.target = np.gradient(one.target, axis=0) * 50


def actions_come_late(episodes: list[Streams]) -> None:
    for one in episodes:
        one.target = np.concatenate([np.repeat(one.target[:1], 8, axis=0), one.target[:-8]])


def actions_copy_three_rows_ahead(episodes: list[Streams]) -> None:
    for one in episodes:
        one.action_ns, one.target = one.joint_ns, np.roll(one.position, -3, axis=0)


CASES: list[tuple[Callable[[list[Streams]], None], str, str, list[int], str]] = [
    (all_but_two_are_minus_one, "sentinels", "fail", [1], "wrist_flex are -1 in all rows of episode 1"),
    (
        a_read_failed,
        "sentinels",
        "fail",
        [1],
        "elbow_flex, wrist_roll leap to a constant and back in 3 rows of episode 1",
    ),
    (
        a_read_of_one_joint_failed,
        "sentinels",
        "fail",
        [1],
        "elbow_flex leaps to a constant and back in 1 row of episode 1, first at row 200",
    ),
    (wraps, "joint_leaps", "fail", [1], "wrist_roll steps by"),
    (leaps, "joint_leaps", "warn", [1], "shoulder_lift moves at"),
    (one_joint_sticks, "stuck_joints", "warn", [1], "shoulder_pan in rows"),
    (one_joint_sticks_and_comes_back, "stuck_joints", "warn", [1], "shoulder_pan in rows"),
    (all_joints_stick, "stuck_joints", "warn", [1], "rows"),
    (degrees_for_radians, "units", "fail", [], "look like radians taken for degrees"),
    (radians_for_degrees, "units", "fail", [], "look like degrees"),
    (smooth_degrees_for_radians, "units", "fail", [], "no joint moves more than"),
    (gripper_reversed, "directions", "fail", [], "gripper polarity differs: gripper moves against"),
    (columns_swapped, "joint_order", "fail", [], "elbow_flex follows the action of wrist_flex"),
    (actions_are_velocities, "action_lag", "warn", [], "actions are velocities"),
    (actions_come_late, "action_lag", "warn", [], "the action follows the joints by"),
    (actions_copy_three_rows_ahead, "actions", "warn", [], "action[t] equals joints[t+3]"),
]


@pytest.mark.parametrize(("change", "name", "state", "episodes", "words"), CASES)
def test_what_is_wrong_with_joints_is_named(
    tmp_path: Path,
    demos: Recording,
    change: Callable[[list[Streams]], None],
    name: str,
    state: str,
    episodes: list[int],
    words: str,
) -> None:
    checks = checked(rewritten(demos, tmp_path / "rec", change), frames=True)
    check = checks[name]
    assert check.state == state, check
    assert check.evidence.get("episodes", []) == episodes
    assert words in check.message
    assert check.remedy


def test_rows_of_a_failed_read_are_named(tmp_path: Path, demos: Recording) -> None:
    check = checked(rewritten(demos, tmp_path / "rec", a_read_failed))["sentinels"]
    assert check.evidence["rows"] == {"1": [100, 101, 102]}
    assert check.evidence["joints"] == {"1": ["shoulder_lift", "elbow_flex", "wrist_roll"]}


def test_the_row_of_a_leap_is_named(tmp_path: Path, demos: Recording) -> None:
    check = checked(rewritten(demos, tmp_path / "rec", leaps))["joint_leaps"]
    assert [leap[:3] for leap in check.evidence["leaps"]] == [
        [1, 150, "shoulder_lift"],
        [1, 151, "shoulder_lift"],
    ]


def test_two_heaps_a_turn_apart_are_seen_without_a_step_between(tmp_path: Path, demos: Recording) -> None:
    def wrapped_between_episodes(episodes: list[Streams]) -> None:
        episodes[1].position[:, 4] -= 2 * np.pi

    check = checked(rewritten(demos, tmp_path / "rec", wrapped_between_episodes))["joint_leaps"]
    assert check.state == "warn" and list(check.evidence["heaps"]) == ["wrist_roll"]


def test_a_zero_that_shifts_for_good_in_joints_that_move(tmp_path: Path, walk: Recording) -> None:
    def calibrated_again(episodes: list[Streams]) -> None:
        for one in episodes[7:]:
            one.position[:, 4] += 6.0  # far more than the walk wanders from episode to episode

    check = checked(rewritten(walk, tmp_path / "rec", calibrated_again))["joint_offsets"]
    assert (check.state, check.evidence["episodes"]) == ("warn", [6, 7])
    assert "wrist_roll keeps another middle or start from episode 7 on, by" in check.message
    assert "calibrated again" in check.remedy


def test_starts_that_shift_for_good(tmp_path: Path, walk: Recording) -> None:
    def home(episodes: list[Streams], shift: float) -> None:
        rng = np.random.default_rng(0)
        for one in episodes:
            one.position[:5] = np.round(rng.normal(0.1, 0.01, 6) / TICK) * TICK
            one.position[:, 2] += shift if one.index >= 6 else 0.0

    def homed(episodes: list[Streams]) -> None:
        home(episodes, 0.0)

    def recalibrated(episodes: list[Streams]) -> None:
        home(episodes, 0.2)

    assert checked(rewritten(walk, tmp_path / "sound", homed))["joint_offsets"].state == "pass"
    check = checked(rewritten(walk, tmp_path / "rec", recalibrated))["joint_offsets"]
    assert list(check.evidence["step_rad"]) == ["elbow_flex"] and check.evidence["episodes"] == [5, 6]


@pytest.mark.slow
@pytest.mark.parametrize("episodes", [10, 12, 25, 50])
def test_medians_that_wander_seldom_shift_for_good(episodes: int) -> None:
    """False alarms of 12 series a recording (6 joints, medians and starts) stay under 1 in 500."""
    rng = np.random.default_rng(episodes)
    alarms = 0
    for _ in range(12_000):
        levels = rng.normal(0, 0.4, episodes)
        for number in range(1, episodes):  # episodes resemble the one before
            levels[number] = 0.5 * levels[number - 1] + np.sqrt(0.75) * levels[number]
        alarms += shift_between(levels)[0] > 0.15
    assert alarms / 12_000 * 12 < 1 / 500


def test_raw_ticks_beyond_the_encoder(tmp_path: Path, demos: Recording) -> None:
    def overflow(episodes: list[Streams]) -> None:
        for one in episodes:
            one.raw = np.round(one.position / TICK) + 2048
        episodes[1].raw[40, 3] = -17

    check = checked(rewritten(demos, tmp_path / "rec", overflow))["raw_ticks"]
    assert (check.state, check.evidence["episodes"]) == ("warn", [1])
    assert "wrist_flex -17 at row 40 of episode 1" in check.message
    assert "calibrate the arm again" in check.remedy


def test_a_constant_in_the_place_of_readings_is_no_wrap(tmp_path: Path, demos: Recording) -> None:
    """It is told by `sentinels`, and is no encoder's wrap, no joint beyond its range, and no offset."""

    def failed_reads(episodes: list[Streams]) -> None:
        for one in episodes:
            one.raw = np.round(one.position / TICK) + 2048
        episodes[1].raw[:, [0, 1]] = -1
        episodes[1].position[:, [0, 1]] = (-1 - 2048) * TICK

    checks = checked(rewritten(demos, tmp_path / "rec", failed_reads))
    assert checks["sentinels"].state == "fail"
    ticks = checks["raw_ticks"]
    assert (ticks.state, ticks.evidence["joints"]) == ("warn", ["shoulder_pan", "shoulder_lift"])
    assert "shoulder_pan, shoulder_lift hold -1 in episode 1" in ticks.message
    assert "see sentinels" in ticks.remedy and "calibrate" not in ticks.remedy
    assert checks["joint_limits"].state == checks["joint_offsets"].state == "pass"


@pytest.mark.parametrize(
    ("step", "offset"), [(1.0, 0.5), (360 / 4096, 12.3), (360 / 4095, 0.0), (TICK, 1e-3), (0.113, -40.0)]
)
def test_quantum_of_an_encoder_in_any_unit(step: float, offset: float) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-700, 700, 900) * step + offset
    assert quantum(values) == pytest.approx(step, rel=1e-6)
    assert quantum(values.astype(np.float32).astype(float)) == pytest.approx(step, rel=2e-3)


def test_filtered_values_have_no_quantum() -> None:
    rng = np.random.default_rng(0)
    assert quantum(np.cumsum(rng.normal(size=2000))) is None
    assert quantum(rng.uniform(-1, 1, 500).astype(np.float32).astype(float)) is None
    assert quantum(np.repeat([0.0, 1.0], 50)) is None


@pytest.mark.parametrize(
    ("made", "declared", "state"), [("degrees", "degrees", "pass"), ("degrees", "radians", "fail")]
)
def test_units_of_an_imported_set(tmp_path: Path, made: str, declared: str, state: str) -> None:
    """A set in degrees whose joints move so little that they could be radians too."""
    source = sets.write_v21(tmp_path / "set", [120, 120])
    rng = np.random.default_rng(0)
    for path in sorted((source / "data/chunk-000").glob("*.parquet")):
        ticks = np.cumsum(rng.integers(-3, 4, (120, 6)), axis=0) * 1.0
        replace_states(path, (ticks * 360 / 4096).astype(np.float32))
    import_recording(source, tmp_path / "rec", unit=declared)
    check = checked(Recording.open(tmp_path / "rec"))["units"]
    assert check.state == state, check
    if state == "fail":
        assert f"declared {declared}, but the numbers look like {made}" in check.message


def replace_states(path: Path, states: np.ndarray) -> None:
    table = pq.read_table(path)
    for name in ("observation.state", "action"):
        column = table.column_names.index(name)
        width = len(table[name][0])
        values = pa.array(list(states[:, :width]), type=table.schema.field(name).type)
        table = table.set_column(column, table.schema.field(name), values)
    pq.write_table(table, path)


def test_actions_without_the_joints_names_pair_by_order(tmp_path: Path, demos: Recording) -> None:
    names = [f"a{number}" for number in range(6)]
    recording = rewritten(
        demos,
        tmp_path / "rec",
        actions_are_velocities,
        actions=Actions(names=names, unit="source", meaning="joint velocity"),
    )
    check = checked(recording)["action_lag"]
    assert check.state == "pass" and "actions are velocities" in check.message  # as it says itself


@pytest.mark.parametrize("reverse", [False, True])
def test_velocities_are_no_targets_that_joints_could_reach(
    tmp_path: Path, demos: Recording, reverse: bool
) -> None:
    def change(episodes: list[Streams]) -> None:
        actions_are_velocities(episodes)
        for one in episodes:
            one.target[:, 5] *= -1 if reverse else 1

    check = checked(rewritten(demos, tmp_path / "rec", change))["directions"]
    assert check.state == ("fail" if reverse else "not testable")
    assert ("gripper moves against its action" in check.message) == reverse


def test_actions_are_compared_across_clocks(tmp_path: Path, demos: Recording) -> None:
    def copy_of_the_row_before(episodes: list[Streams]) -> None:
        for one in episodes:
            one.action_ns, one.target = one.joint_ns[1::3] + 2_000_000, one.position[0:-1:3]

    assert checked(demos)["actions"].state == "pass"
    check = checked(rewritten(demos, tmp_path / "rec", copy_of_the_row_before))["actions"]
    assert check.state == "warn" and "action[t] equals joints[t-1] in 100.0%" in check.message


def test_a_joint_that_went_elsewhere_is_placed_inside_or_between_episodes() -> None:
    rng = np.random.default_rng(0)
    rest = {index: 0.02 + rng.normal(0, 0.003, 200) for index in range(6)}
    inside = {index: values + (-0.27 if index > 3 else 0.0) for index, values in rest.items()}
    inside[3] = rest[3] - 0.27 * (np.arange(200) >= 60)
    (move,) = moves_between("roll", inside)
    assert (move.episode, move.row) == (3, 60)
    assert str(move) == "from 0.02 to -0.25 rad at row 60 of episode 3"
    between = {index: values + (-0.27 if index > 2 else 0.0) for index, values in rest.items()}
    (move,) = moves_between("roll", between)
    assert (move.episode, move.after, move.row) == (2, 3, None)
    both = inside | {index: inside[index] + 0.5 for index in (4, 5)}
    assert [(one.episode, one.row) for one in moves_between("roll", both)] == [(3, 60), (3, None)]


def test_a_joint_that_came_back_within_its_episode_went_nowhere() -> None:
    values = {index: np.full(200, 0.1) for index in range(6)}
    values[3] = np.where((np.arange(200) > 20) & (np.arange(200) < 180), 0.5, 0.1)
    assert moves_between("roll", values) == []
    assert moves_between("roll", {index: np.sin(np.arange(200.0) / 9) + index for index in range(6)}) == []


def test_too_little_is_not_testable(tmp_path: Path, demos: Recording) -> None:
    def short(episodes: list[Streams]) -> None:
        del episodes[1:]
        one = episodes[0]
        one.joint_ns, one.position = one.joint_ns[:15], one.position[:15]
        one.action_ns, one.target = one.action_ns[:5], one.target[:5]
        for view in one.frames:
            one.frames[view] = one.frames[view][:3]

    checks = checked(rewritten(demos, tmp_path / "rec", short), frames=True)
    for name in (
        "action_lag",
        "directions",
        "joint_order",
        "units",
        "torn_frames",
        "shared_frames",
        "first_frames",
    ):
        assert checks[name].state == "not testable" and not checks[name].alarm, checks[name]
