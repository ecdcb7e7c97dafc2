"""Joints against a reference: a sign or an order that is wrong on both sides alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hardware.checks import Look
from hardware.recording import Recording
from probe.checks import PixelRows, check_pixels, look
from probe.checks.reference import check_joints_against
from sim.record import record_simulated

PAN, GRIPPER = 0, 5


def halves(rows: dict[str, PixelRows]) -> tuple[dict[str, PixelRows], dict[str, PixelRows]]:
    """The first four episodes, as a recording, and the last four, as its reference."""
    out = []
    for first, past in ((0, 4), (4, 8)):
        part = {}
        for view, one in rows.items():
            keep = (one.clusters.index >= first) & (one.clusters.index < past)
            part[view] = replace(
                one,
                small=one.small[keep],
                position=one.position[keep],
                clusters=type(one.clusters).of(one.clusters.index[keep]),
            )
        out.append(part)
    return out[0], out[1]


def changed(rows: dict[str, PixelRows], columns: list[int], sign: float = 1.0) -> dict[str, PixelRows]:
    """Some columns of the joints in another order, the last one by another sign."""
    order = np.arange(next(iter(rows.values())).position.shape[1])
    order[sorted(columns)] = columns
    factor = np.where(order == GRIPPER, sign, 1.0)
    return {view: replace(one, position=one.position[:, order] * factor) for view, one in rows.items()}


def test_the_same_arm_passes(rows: dict[str, PixelRows]) -> None:
    check = check_joints_against(*halves(rows))
    assert check.state == "pass"
    assert {"shoulder_pan", "gripper"} <= set(check.evidence["read_by"])


def test_a_reversed_gripper_is_named(rows: dict[str, PixelRows]) -> None:
    here, there = halves(rows)
    check = check_joints_against(changed(here, [], sign=-1.0), there)
    assert (check.state, check.evidence["joints"]) == ("fail", ["gripper"])
    assert "gripper moves the other way" in check.message


def test_exchanged_joints_are_named(rows: dict[str, PixelRows]) -> None:
    here, there = halves(rows)
    check = check_joints_against(changed(here, [GRIPPER, PAN]), there)
    assert check.state == "fail"
    assert "gripper and shoulder_pan are exchanged" in check.message


def test_joints_are_compared_by_name(rows: dict[str, PixelRows]) -> None:
    here, there = halves(rows)
    other = {
        view: replace(one, joints=one.joints[::-1], moving=one.moving[::-1], position=one.position[:, ::-1])
        for view, one in here.items()
    }
    assert check_joints_against(other, there).state == "pass"


def test_other_joints_are_not_testable(rows: dict[str, PixelRows]) -> None:
    here, there = halves(rows)
    renamed = {view: replace(one, joints=tuple("abcdef")) for view, one in there.items()}
    assert check_joints_against(here, renamed).state == "not testable"


def test_a_reference_of_another_motion_says_nothing(
    recording: Recording, looks: Sequence[Look], tmp_path: Path
) -> None:
    walk = record_simulated(
        tmp_path / "walk", motion="walk", episodes=2, seed=0, image_size=32, seconds=4.0, fps=10.0
    )
    found = check_pixels(walk, look(walk), reference=recording, reference_looks=looks)
    check = next(check for check in found if check.name == "joints_reference")
    assert check.state == "not testable"
    assert check.message == "the reference's motion is demos, this one's walk"
