"""Views and joints: which sees which, which are swapped, and when nothing can be said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hardware.importers import import_recording
from hardware.recording import Recording
from probe.checks import PixelRows, draw_view_map, look, measure_view_map, pixel_rows
from probe.checks.view_map import check_view_map, check_views_against, check_views_within, joint_groups
from reports.marks import figure_svg


def exchanged(rows: dict[str, PixelRows]) -> dict[str, PixelRows]:
    """The same views under each other's names."""
    return {"front": replace(rows["wrist"], view="front"), "wrist": replace(rows["front"], view="wrist")}


def test_groups_are_limbs_where_names_say_so() -> None:
    assert joint_groups(["arm1_j1", "arm1_j2", "arm2_j1", "arm2_j2"]) == {"arm1": [0, 1], "arm2": [2, 3]}
    assert joint_groups(["left.waist", "left.grip", "right.waist", "right.grip"]) == {
        "left": [0, 1],
        "right": [2, 3],
    }
    assert list(joint_groups(["shoulder_pan", "shoulder_lift", "gripper"])) == [
        "shoulder_pan",
        "shoulder_lift",
        "gripper",
    ]


def test_the_map_of_the_simulated_arm(rows: dict[str, PixelRows]) -> None:
    measured = measure_view_map(rows)
    assert measured is not None
    assert measured.views == ("front", "wrist")
    assert measured.best("wrist") == "gripper"  # its jaw fills the picture
    gripper = measured.groups.index("gripper")
    assert measured.r2[1, gripper] > 0.8 > 0.3 > measured.r2[0, gripper]
    assert (measured.low <= measured.high).all()


def test_a_map_of_which_nothing_is_declared_is_told_and_passes_nothing(rows: dict[str, PixelRows]) -> None:
    measured = measure_view_map(rows)
    assert measured is not None
    check = check_view_map(measured)
    assert check.state == "not testable" and "--expect front=GROUP" in check.remedy
    v, g = measured.views.index("wrist"), measured.groups.index("gripper")
    strongest = f"wrist sees gripper {measured.r2[v, g]:.2f} ({measured.own[v, g]:.2f}), "
    assert strongest in check.message  # the strongest first, with how much it says by itself
    assert check.message.count("(") == 1 + 2 * 3  # three of each view


def test_declared_rightly_passes_and_wrongly_fails(rows: dict[str, PixelRows]) -> None:
    measured = measure_view_map(rows)
    right = check_view_map(measured, {"wrist": "gripper", "front": "shoulder_pan"})
    wrong = check_view_map(measured, {"front": "gripper"})
    assert right.state == "pass"
    assert wrong.state == "fail"
    assert "front is on shoulder_pan, declared on gripper" in wrong.message


def test_declared_names_that_are_not_there_are_said(rows: dict[str, PixelRows]) -> None:
    check = check_view_map(measure_view_map(rows), {"top": "gripper"})
    assert (check.state, "view top" in check.message) == ("warn", True)


def test_two_arms_swapped_cameras_are_named(rows: dict[str, PixelRows]) -> None:
    """Two arms that never move alike, one camera on each: declared the other way round they look swapped."""
    half = 4
    one, other = rows["wrist"], rows["wrist"]
    keep, late = one.clusters.index < half, other.clusters.index >= half
    count = min(keep.sum(), late.sum())
    first, second = np.flatnonzero(keep)[:count], np.flatnonzero(late)[:count]
    joints = tuple(f"{arm}_{joint}" for arm in ("arm1", "arm2") for joint in one.joints)
    position = np.hstack([one.position[first], other.position[second]])
    clusters = type(one.clusters).of(one.clusters.index[first])
    moving = np.concatenate([one.moving, other.moving])
    both = {
        "cam0": PixelRows("cam0", joints, one.small[first], position, clusters, moving),
        "cam1": PixelRows("cam1", joints, other.small[second], position, clusters, moving),
    }
    measured = measure_view_map(both)
    assert check_view_map(measured, {"cam0": "arm1", "cam1": "arm2"}).state == "pass"
    check = check_view_map(measured, {"cam0": "arm2", "cam1": "arm1"})
    assert check.state == "fail"
    assert "cam0 and cam1 look swapped" in check.message


def test_views_against_a_reference(rows: dict[str, PixelRows]) -> None:
    assert check_views_against(rows, rows).state == "pass"
    check = check_views_against(exchanged(rows), rows)
    assert (check.state, "front and wrist look swapped" in check.message) == ("fail", True)


def test_views_exchanged_in_one_episode(rows: dict[str, PixelRows]) -> None:
    assert check_views_within(rows).state == "pass"
    front, wrist = rows["front"], rows["wrist"]
    of = {view: one.clusters.rows(3) for view, one in rows.items()}
    n = min(map(len, of.values()))
    small = {view: one.small.copy() for view, one in rows.items()}
    small["front"][of["front"][:n]] = wrist.small[of["wrist"][:n]]
    small["wrist"][of["wrist"][:n]] = front.small[of["front"][:n]]
    check = check_views_within({view: replace(one, small=small[view]) for view, one in rows.items()})
    assert check.state == "fail"
    assert check.evidence["episodes"] == [3]


def test_one_episode_is_not_testable(rows: dict[str, PixelRows]) -> None:
    one = rows["front"]
    first = one.clusters.rows(0)
    single = replace(
        one,
        small=one.small[first],
        position=one.position[first],
        clusters=type(one.clusters).of(np.zeros(len(first), int)),
    )
    assert check_view_map(measure_view_map({"front": single})).state == "not testable"


def test_the_heat_map_is_drawn_from_the_numbers(rows: dict[str, PixelRows]) -> None:
    measured = measure_view_map(rows)
    assert measured is not None
    svg = figure_svg(draw_view_map(measured))
    for name in (*measured.views, *measured.groups):
        assert name in svg
    assert f"{measured.r2[1, -1]:.2f}" in svg


@pytest.mark.slow
def test_the_real_pair_of_arms(shared_data: Path, tmp_path: Path) -> None:
    """Its source says cam0 is on arm1; its pixels say the other way round."""
    source = shared_data / "so101_bimanual"
    arms = {arm: source / f"{arm}.json" for arm in ("arm1", "arm2")}
    import_recording(source, tmp_path / "rec", unit="ticks", calibrations=arms)
    recording = Recording.open(tmp_path / "rec")
    measured = measure_view_map(pixel_rows(recording, look(recording)))
    assert measured is not None
    assert (measured.best("cam0"), measured.best("cam1")) == ("arm2", "arm1")
    check = check_view_map(measured, {"cam0": "arm1", "cam1": "arm2"})
    assert check.state == "fail" and "cam0 is on arm2, declared on arm1" in check.message
    assert check_view_map(measured, {"cam0": "arm2", "cam1": "arm1"}).state == "pass"
