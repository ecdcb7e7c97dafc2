"""Joints against a reference: a sign or an order that is wrong on both sides alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probe.checks import PixelRows
from probe.checks.reference import check_joints_against

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
    assert check_joints_against(here, renamed).message.startswith("not testable")
