"""Colours: grey frames by themselves, red and blue exchanged against a reference."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hardware.checks import Look
from hardware.recording import Recording
from probe.checks import check_pixels, check_recording, look
from probe.checks.colours import check_colours, check_grey
from probe.checks.pictures import picture_of
from sim.record import record_simulated


def recoloured(
    looks: list[Look], change: Callable[[np.ndarray], np.ndarray], view: str = "front"
) -> list[Look]:
    return [
        replace(one, small=np.ascontiguousarray(change(one.small))) if one.view == view else one
        for one in looks
    ]


def test_colour_passes_and_one_channel_copied_warns(looks: list[Look]) -> None:
    assert check_grey(looks).state == "pass"
    check = check_grey(recoloured(looks, lambda small: small[..., [0, 0, 0]]))
    assert check.state == "warn"
    assert list(check.evidence["views"]) == ["front"]


def test_bgr_is_named_against_a_reference_with_other_blocks(looks: list[Look], tmp_path: Path) -> None:
    other = record_simulated(
        tmp_path / "reference", motion="demos", episodes=2, seed=5, image_size=64, seconds=6.0, fps=10.0
    )
    reference = look(other)
    assert check_colours(looks, reference).state == "pass"
    check = check_colours(recoloured(looks, lambda small: small[..., ::-1], "wrist"), reference)
    assert (check.state, check.evidence["views"]) == ("fail", ["wrist"])


def test_a_grey_reference_is_not_testable(looks: list[Look]) -> None:
    grey = recoloured(
        recoloured(looks, lambda small: small[..., [1, 1, 1]]), lambda s: s[..., [1, 1, 1]], "wrist"
    )
    assert check_colours(looks, grey).state == "not testable"


def test_a_finding_about_frames_comes_with_frames(recording: Recording, looks: list[Look]) -> None:
    grey = recoloured(looks, lambda small: small[..., [0, 0, 0]])
    found = {check.name: check for check in check_pixels(recording, grey)}
    picture = picture_of(found["grey"], recording, grey, {})
    assert picture is not None and picture.dtype == np.uint8 and picture.ndim == 3


@pytest.mark.slow
def test_every_check_passes_on_the_clean_recording(recording: Recording) -> None:
    checks = check_recording(recording, reference=recording)
    names = {check.name for check in checks}
    assert {
        "view_map",
        "views_within",
        "lag_front",
        "own_video_wrist",
        "views_reference",
        "colours_reference",
    } <= names
    assert {"hashes", "repeated_frames"} <= names
    own = [check for check in checks if check.alarm]
    assert own == []


def test_without_frames_only_files_are_checked(recording: Recording) -> None:
    assert "view_map" not in {check.name for check in check_recording(recording, frames=False)}


def test_checking_a_recording_needs_no_torch() -> None:
    code = "import sys, probe.checks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
