"""A picture of each finding of which there is something to see, drawn where somebody asks for it.

Some checks bring one (`Check.picture`: suspect frames beside their neighbours). Of the others, and where the
joints' course says more, it is drawn here from the check's evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hardware.checks import Check, Look
from hardware.checks.pictures import strip
from hardware.errors import InputError
from hardware.recording import Recording
from probe.checks import frame_pictures as of_frames
from probe.checks import joint_pictures as of_joints
from probe.checks.pixels import PixelRows
from probe.checks.sheets import Sheet

OF_JOINTS: dict[str, Callable[[Check, Recording], Sheet]] = {
    "joint_offsets": of_joints.draw_offsets,
    "joint_limits": of_joints.draw_limits,
    "sentinels": of_joints.draw_sentinels,
    "raw_ticks": of_joints.draw_raw_ticks,
    "joint_leaps": of_joints.draw_leaps,
    "stuck_joints": of_joints.draw_stuck,
    "actions": of_joints.draw_actions,
    "action_lag": of_joints.draw_followed,
    "directions": of_joints.draw_followed,
    "joint_order": of_joints.draw_followed,
    "clock_rate": of_joints.draw_clocks,
    "clock_steps": of_joints.draw_clocks,
    "clock_order": of_joints.draw_clocks,
}
OF_FRAMES: dict[str, Callable[[Check, Recording, Sequence[Look]], Sheet]] = {
    "black_frames": of_frames.draw_black,
    "repeated_frames": of_frames.draw_repeated,
    "frozen_frames": of_frames.draw_frozen,
    "repeat_pattern": of_frames.draw_beat,
}
# Of these a frame of each view, of an episode concerned and of another one, is what there is to see.
SHOWN_BY_FRAMES = ("grey", "view_map", "views_within", "views_reference", "colours_reference")


def picture_of(
    check: Check, recording: Recording, looks: Sequence[Look], rows: Mapping[str, PixelRows]
) -> NDArray[np.uint8] | None:
    """What there is to see of a warning or a failure, RGB uint8 (h, w, 3); None where there is nothing.

    Parameters
    ----------
    looks, rows : the recording's frames as looked at, and the rows of each view (`pixel_rows`); empty where
        only files and joints were checked.
    """
    try:
        sheet = _sheet(check, recording, looks, rows)
        if sheet is not None:
            return sheet.draw() if sheet.frames or sheet.traces else None
        if check.name in SHOWN_BY_FRAMES and looks:
            return _frames_of_episodes(check, recording, looks)
    except InputError:
        return None  # a damaged file: what is wrong with it is told by other checks
    return check.picture


def _sheet(
    check: Check, recording: Recording, looks: Sequence[Look], rows: Mapping[str, PixelRows]
) -> Sheet | None:
    name = check.name
    if name in OF_JOINTS:
        return OF_JOINTS[name](check, recording)
    if name in OF_FRAMES:
        return OF_FRAMES[name](check, recording, looks)
    if name.startswith("own_video_"):
        view = name.removeprefix("own_video_")
        return of_frames.draw_own_video(check, recording, looks, rows[view])
    if name.startswith("row_order_"):
        return of_frames.draw_row_order(check, recording, looks)
    if name.startswith("lag_"):
        return of_frames.draw_lag(check)
    return of_frames.draw_calibration_step(check) if name.startswith("calibration_step_") else None


def _frames_of_episodes(
    check: Check, recording: Recording, looks: Sequence[Look]
) -> NDArray[np.uint8] | None:
    """A frame of each view from the first episode concerned, and from another one."""
    counts = {(one.episode, one.view): one.frame_count for one in looks}
    episodes = list(dict.fromkeys(episode for episode, _ in counts))
    named = [episode for episode in check.evidence.get("episodes", ()) if episode in episodes]
    first = named[0] if named else episodes[0]
    other = next((episode for episode in episodes if episode not in named), first)
    views = recording.info.view_names[:3]
    shown = [(e, view) for e in dict.fromkeys((first, other)) for view in views if counts.get((e, view))]
    return strip(recording, [(e, view, counts[e, view] // 2) for e, view in shown])
