"""probe.checks: integrity checks that need a probe, beside those of `hardware.checks`.

`check_recording` asks of a recording which view shows which joints, whether frames are early or late, whether
episodes have their own video, and whether colours are right, by ridge from 16 x 16 pixels. `check_extraction`
asks of stored latents whether every channel and view reached the encoder, whether they are those of their
frames, and `check_leakage` whether what is evaluated was trained on. All give `hardware.checks.Check`s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hardware.checks import Check, Look, look, not_testable
from hardware.checks import check_recording as check_recording_itself
from hardware.errors import InputError
from hardware.recording import Progress, Recording
from probe.checks.colours import check_colours, check_grey
from probe.checks.episodes import check_calibration_step, check_own_video, check_row_order
from probe.checks.lag import Lag, LagScan, check_lag, lag_scan, measure_lag
from probe.checks.leakage import check_near_duplicates, check_row_split, check_split
from probe.checks.pixels import PixelRows, pixel_rows
from probe.checks.reference import check_joints_against, check_reference, damaged_episodes
from probe.checks.view_map import (
    ViewMap,
    check_view_map,
    check_views_against,
    check_views_within,
    draw_view_map,
    measure_view_map,
)

if TYPE_CHECKING:
    from probe.checks.latents import check_extraction

__all__ = [
    "check_recording",
    "check_pixels",
    "check_extraction",
    "check_leakage",
    "check_row_split",
    "look",
    "lag_scan",
    "measure_lag",
    "Lag",
    "LagScan",
    "measure_view_map",
    "draw_view_map",
    "ViewMap",
    "pixel_rows",
    "PixelRows",
]


def __getattr__(name: str) -> Any:
    """Checks of an extraction need torch, those of a recording do not."""
    if name == "check_extraction":
        from probe.checks.latents import check_extraction

        return check_extraction
    raise AttributeError(f"module 'probe.checks' has no attribute {name!r}")


def check_recording(
    recording: Recording,
    *,
    frames: bool = True,
    looks: Sequence[Look] | None = None,
    reference: Recording | None = None,
    expect: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> list[Check]:
    """All checks of a recording: its own (`hardware.checks`), then those by a probe from small pixels.

    Parameters
    ----------
    frames : decode frames; without, only files, clocks and joints are checked, and neither `reference` nor
        `expect` can be served.
    looks : its frames, where they were looked at already (`look`).
    reference : a good recording of the same set-up, for what a recording cannot show by itself.
    expect : for views, the group of joints that each is meant to see best (`{"cam0": "arm1"}`).
    progress : called as progress(done, total, what).

    Raises
    ------
    InputError : a `reference` or `expect` without frames, or a reference of which nothing can be read.
    """
    if not frames:
        for option, given in (("--reference", reference is not None), ("--expect", bool(expect))):
            if given:
                problem = "is judged by what frames show, and --no-frames looks at none"
                raise InputError(option, problem, "leave out one of the two")
        return check_recording_itself(recording, frames=False)
    if not recording.info.views and reference is None:
        return check_recording_itself(recording, frames=False)
    looks = look(recording, progress) if looks is None else looks
    other = None if reference is None else look(reference, progress)
    return [
        *check_recording_itself(recording, looks=looks),
        *check_pixels(recording, looks, reference=reference, reference_looks=other, expect=expect),
    ]


def check_pixels(
    recording: Recording,
    looks: Sequence[Look],
    *,
    reference: Recording | None = None,
    reference_looks: Sequence[Look] | None = None,
    expect: Mapping[str, str] | None = None,
) -> list[Check]:
    """The checks by a probe from small pixels alone, of frames looked at already (`look`).

    Episodes of the reference that are damaged are left out, and named (`check_reference`).
    """
    rows = pixel_rows(recording, looks)
    radians = np.array([joint.unit == "rad" for joint in recording.info.joints])
    checks = [check_grey(looks), check_view_map(measure_view_map(rows), expect), check_views_within(rows)]
    for view, one in rows.items():
        checks += [check_lag(one)[0], check_row_order(one), check_own_video(one)]
        checks.append(
            check_calibration_step(
                f"calibration_step_{view}",
                one.features,
                one.position,
                one.clusters,
                one.joints,
                one.moving & radians,
            )
        )
    if reference is not None and reference_looks is not None:
        damaged = damaged_episodes(reference, reference_looks)
        sound = [one for one in reference_looks if one.episode not in damaged]
        there = pixel_rows(reference, sound)
        checks += [
            check_reference(reference, damaged),
            check_views_against(rows, there),
            check_colours(looks, sound),
            _joints_reference(recording, reference, rows, there),
        ]
    return checks


def _joints_reference(
    recording: Recording,
    reference: Recording,
    rows: Mapping[str, PixelRows],
    there: Mapping[str, PixelRows],
) -> Check:
    """`check_joints_against`, where a probe that was fitted to the reference can know.

    In demonstrations joints move together and a probe reads one by another; on a walk, in which each moves by
    itself, what it says is wrong (the gripper came out reversed in 2 of 50 clean walks).
    """
    motions = reference.info.motion, recording.info.motion
    if (motions[0] == "walk") == (motions[1] == "walk"):
        return check_joints_against(rows, there)
    why = f"the reference's motion is {motions[0]}, this one's {motions[1]}"
    return not_testable("joints_reference", why)


def check_leakage(
    recording: Recording,
    train: Sequence[int],
    evaluate: Sequence[int],
    looks: Sequence[Look] | None = None,
) -> list[Check]:
    """The split of a recording into training and evaluation episodes; near duplicates where frames were
    looked at (`look`)."""
    checks = [check_split(recording, train, evaluate)]
    if looks is not None:
        checks.append(check_near_duplicates(pixel_rows(recording, looks), train, evaluate))
    return checks
