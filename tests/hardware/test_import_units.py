from __future__ import annotations

import json
import re
from pathlib import Path

import lerobot_sets as sets
import numpy as np
import pytest

from hardware import InputError, Recording
from hardware.calibration import Calibration, Motor
from hardware.importers import import_recording
from hardware.importers.units import Seen, match_motors, plan_actions, plan_conversions, seen_in, unit_table

ARM = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")


def calibration(name: str = "arm.json", low: int = 1000, names: tuple[str, ...] = ARM) -> Calibration:
    motors = tuple(Motor(motor, number + 1, 0, 0, low, 3000) for number, motor in enumerate(names))
    return Calibration(name, "new", motors, "0" * 64)


def seen(low: float, high: float, whole: bool = False, joints: int = 6) -> list[Seen]:
    return [Seen(low, high, whole)] * joints


def refused(*arguments) -> str:
    with pytest.raises(InputError) as error:
        plan_conversions(*arguments, "set")
    return str(error.value)


def test_without_a_unit_the_error_is_a_table_of_what_each_would_mean(tmp_path: Path) -> None:
    states = np.array([[2007, 100, -1.5, 0.5, 7, 20], [2107, 150, 1.5, 0.75, 7, 60]], float)
    source = sets.write_v21(tmp_path / "set", [2], views=(), states={0: states})
    with pytest.raises(InputError) as error:
        import_recording(source, tmp_path / "rec")
    assert not (tmp_path / "rec").exists()
    first, *table = str(error.value).splitlines()
    assert "units are not guessed - say --unit ticks|degrees|normalized|radians" in first
    assert [re.split(r"\s{2,}", line.strip()) for line in table] == [
        ["joint", "lowest", "highest", "ticks", "degrees", "normalized", "radians"],
        ["shoulder_pan", "2007", "2107", "moves 8.8 deg", *["impossible"] * 3],
        ["shoulder_lift", "100", "150", "moves 4.4 deg", "moves 50.0 deg", *["impossible"] * 2],
        [
            "elbow_flex",
            "-1.5",
            "1.5",
            "impossible",
            "moves 3.0 deg",
            "moves 2 % of its range",
            "moves 171.9 deg",
        ],
        [
            "wrist_flex",
            "0.5",
            "0.75",
            "impossible",
            "moves 0.2 deg",
            "moves 0 % of its range",
            "moves 14.3 deg",
        ],
        ["wrist_roll", "7", "7", "moves 0.0 deg", "moves 0.0 deg", "moves 0 % of its range", "moves 0.0 deg"],
        ["gripper", "20", "60", "moves 3.5 deg", *["moves 40 % of its range"] * 2, "moves 2291.8 deg"],
    ]
    assert len({line.index("moves") for line in table[1:3]}) == 1  # columns are aligned


def test_table_of_joints_without_values_or_angles() -> None:
    table = unit_table(["a", "spin.vel"], [Seen(np.inf, -np.inf, True), Seen(0, 200, True)])
    assert table.count("no value") == 4
    assert table.count("not an angle") == 4


def test_seen_in_leaves_out_what_is_not_a_number() -> None:
    one, two = seen_in([np.array([[1.0, np.nan], [3.0, 2.5]]), np.array([[-4.0, np.inf]])], 2)
    assert one == Seen(-4, 3, True)
    assert two == Seen(2.5, 2.5, False)
    assert one.travel == 7


@pytest.mark.parametrize(
    ("unit", "values", "words"),
    [
        (
            "radians",
            seen(-13, 3),
            "shoulder_pan holds -13 to 3, beyond two turns, as most joints do (and 5 more joints)",
        ),
        (
            "radians",
            [*seen(-1, 1, joints=5), Seen(0, 126, False)],
            "gripper holds 0 to 126, radians lie within -125.664 to 125.664",
        ),
        ("degrees", seen(-30, 721), "degrees lie within -720 to 720"),
        ("ticks", seen(0, 8193, whole=True), "ticks lie within -4096 to 8192"),
        ("ticks", seen(0, 4000), "with fractions, ticks are whole numbers"),
        ("normalized", seen(-30, 101.5), "normalized lie within -101 to 101"),
        ("normalized", seen(-30, 60), "gripper holds -30 to 60, normalized lie within -1 to 101"),
        (
            "degrees",
            [*seen(-90, 90, joints=5), Seen(-11, 50, False)],
            "gripper holds -11 to 50, degrees lie within -10 to 110",
        ),
    ],
)
def test_impossible_declarations(unit: str, values: list[Seen], words: str) -> None:
    given = {} if unit == "radians" else {"": calibration()}
    text = refused(ARM, values, unit, given)
    assert f"its joints cannot be {unit}: " in text and words in text
    assert "declare the unit they have; each would mean\n  joint" in text


def test_a_joint_without_end_stops_is_in_radians_and_most_joints_are_not() -> None:
    """Reacher: its shoulder turns as often as it likes, its wrist within 2.79 rad."""
    shoulder, wrist = Seen(-103.0, 20.0, False), Seen(-2.79, 2.79, False)
    plan = plan_conversions(("shoulder", "wrist"), [shoulder, wrist], "radians", {}, "set")
    assert [conversion.joint.unit for conversion in plan] == ["rad", "rad"]
    assert plan_conversions(("hinge",), [shoulder], "radians", {}, "set")
    of_velocity = ["hinge.vel", "spin.vel", "shoulder", "wrist"]
    assert plan_conversions(of_velocity, [*seen(-99, 99, joints=2), shoulder, wrist], "radians", {}, "set")
    degrees = [*seen(-40, 60, joints=4), *seen(-5, 5, joints=2)]  # two joints hardly moved
    assert "beyond two turns, as most joints do (and 3 more joints)" in refused(ARM, degrees, "radians", {})
    assert "beyond two turns" in refused(ARM[:3], seen(-60, 60), "radians", {})


def test_ticks_and_normalized_need_a_calibration_for_every_joint() -> None:
    assert "there is none for shoulder_pan, " in refused(ARM, seen(0, 4000, True), "ticks", {})
    names = [f"{arm}_{joint}" for arm in ("left", "right") for joint in ARM]
    text = refused(names, seen(0, 50, joints=12), "normalized", {"left": calibration()})
    assert "none for right_shoulder_pan, right_shoulder_lift" in text and "PREFIX=FILE" in text


def test_radians_take_no_calibration_and_unknown_units_are_named() -> None:
    assert "radians need no calibration" in refused(ARM, seen(-1, 1), "radians", {"": calibration()})
    assert "units: ticks, degrees, normalized, radians" in refused(ARM, seen(-1, 1), "turns", {})


def test_conversions_carry_units_and_limits() -> None:
    plan = plan_conversions([*ARM, "spin.vel"], seen(1, 99, True, 7), "ticks", {"": calibration()}, "set")
    assert [conversion.joint.unit for conversion in plan] == ["rad"] * 6 + ["source"]
    limit = 1000 * 2 * np.pi / 4096
    assert plan[0].joint.upper == pytest.approx(limit) and plan[0].joint.lower == pytest.approx(-limit)
    assert plan[6].joint.lower is None
    np.testing.assert_allclose(plan[0].apply(np.array([2000.0, 3000.0])), [0, limit])
    np.testing.assert_array_equal(plan[6].apply(np.array([7.0])), [7.0])

    plain = plan_conversions(ARM, seen(1, 99), "degrees", {}, "set")
    assert [conversion.joint.unit for conversion in plain] == ["rad"] * 5 + ["percent"]
    with_file = plan_conversions(ARM, seen(1, 99), "degrees", {"": calibration()}, "set")
    assert [conversion.joint.unit for conversion in with_file] == ["rad"] * 6
    np.testing.assert_allclose(with_file[5].apply(np.array([0.0, 50.0, 100.0])), [-limit, 0, limit])


def test_motors_match_by_name_or_by_number_and_never_by_chance() -> None:
    arms = {"arm1": calibration("arm1.json", low=100), "arm2": calibration("arm2.json", low=200)}
    names = [f"{arm}_j{number}" for arm in arms for number in range(1, 7)]
    matched = match_motors(names, arms)
    assert [(matched[name].name, matched[name].range_min) for name in names] == [  # type: ignore[union-attr]
        (motor, low) for low in (100, 200) for motor in ARM
    ]
    named = [f"left_{joint}" for joint in ARM] + [f"right_{joint}" for joint in ARM]
    matched = match_motors(
        named, {"left": arms["arm1"], "": calibration(names=tuple(f"right_{joint}" for joint in ARM))}
    )
    assert matched["left_gripper"].name == "gripper" and matched["right_gripper"].name == "right_gripper"
    # a prefix ends at a separator: arm1 does not serve arm10
    tenth = [f"arm10_j{number}" for number in range(1, 7)]
    assert list(match_motors([*names[:6], *tenth], {"arm1": arms["arm1"]})) == names[:6]


@pytest.mark.parametrize(
    ("names", "given", "words"),
    [
        (("a", "b", "c", "d", "e", "f"), {"": calibration()}, "are not the joints a, b, c, d, e, f"),
        (("j1", "j2", "j3"), {"": calibration()}, "are not the joints j1, j2, j3"),
        (("j1", "j2", "j3", "j4", "j6", "j5"), {"": calibration()}, "or as many joints be numbered"),
        (("j1", "j2", "j3", "j4", "j5", "k6"), {"": calibration()}, "or as many joints be numbered"),
        (ARM, {"arm3": calibration()}, "no joint is left for prefix 'arm3'"),
        (ARM, {"": calibration(), "left": calibration()}, "no joint is left for prefix 'left'"),
    ],
)
def test_calibrations_of_other_joints(names: tuple[str, ...], given: dict, words: str) -> None:
    with pytest.raises(InputError) as error:
        match_motors(names, given)
    assert words in str(error.value)


def test_actions_of_mixed_units_are_kept_as_they_came() -> None:
    joints = plan_conversions(ARM, seen(1, 99), "degrees", {}, "set")
    unit, meaning, convert = plan_actions(ARM[:5], joints)
    assert (unit, meaning) == ("rad", "target")
    np.testing.assert_allclose(convert(np.full((2, 5), 180.0)), np.pi)
    unit, meaning, convert = plan_actions(ARM, joints)
    assert unit == "source" and "different units" in meaning
    np.testing.assert_array_equal(convert(np.full((2, 6), 180.0)), 180.0)
    assert plan_actions(["joint_0_vel"], joints)[0] == "source"


def test_two_arms_by_their_own_files(tmp_path: Path) -> None:
    names = [f"{arm}_j{number}" for arm in ("arm1", "arm2") for number in range(1, 7)]
    states = np.tile(np.arange(1500.0, 1508.0)[:, None], (1, 12))
    source = sets.write_v21(tmp_path / "set", [8], views=(), names=names, states={0: states})
    paths = {}
    for arm, low in (("arm1", 500), ("arm2", 900)):
        entries = {
            motor: {
                "id": number + 1,
                "drive_mode": 0,
                "homing_offset": 0,
                "range_min": low,
                "range_max": 3000,
            }
            for number, motor in enumerate(ARM)
        }
        paths[arm] = tmp_path / f"{arm}.json"
        paths[arm].write_text(json.dumps(entries))
    import_recording(source, tmp_path / "rec", unit="ticks", calibrations=paths)
    recording = Recording.open(tmp_path / "rec")
    position = recording.episode(0).joints().position
    np.testing.assert_allclose(position[:, 0], (states[:, 0] - 1750) * 2 * np.pi / 4096, atol=1e-12)
    np.testing.assert_allclose(position[:, 11], (states[:, 11] - 1950) * 2 * np.pi / 4096, atol=1e-12)
    assert recording.info.calibration is not None
    assert recording.info.calibration["arm2"]["file"] == "arm2.json"
    assert recording.info.calibration["arm2"]["joints"]["gripper"]["range_min"] == 900
    assert str(tmp_path) not in (tmp_path / "rec/recording.yaml").read_text()
