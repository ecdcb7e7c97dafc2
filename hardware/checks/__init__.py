"""hardware.checks: is a recording what it claims to be?

`check_recording` runs every check and gives a list of `Check`: what was seen, in which episodes, with which
numbers, and what to do about it. A check never stops the others: what cannot be read is a failed check. What
was wrong with an imported source stays visible here.
"""

from collections.abc import Sequence

import numpy as np

from hardware.checks.actions import (
    check_action_lag,
    check_actions,
    check_actions_readable,
    check_directions,
    check_joint_order,
    pair_actions,
    read_actions,
)
from hardware.checks.check import Check, State, not_testable
from hardware.checks.clocks import check_clock_order, check_clock_rate, check_clock_steps
from hardware.checks.files import (
    check_contiguity,
    check_counts,
    check_faults,
    check_hashes,
    check_joints_readable,
    read_joints,
)
from hardware.checks.frames import Look, check_black, check_decoded, check_repeated, look_at_frames
from hardware.checks.joint_values import (
    check_joint_leaps,
    check_raw_ticks,
    check_sentinels,
    check_stuck_joints,
)
from hardware.checks.joints import check_limits, check_still_joints
from hardware.checks.offsets import check_offsets
from hardware.checks.shared_frames import check_first_frames, check_identical_views, check_shared_frames
from hardware.checks.stuck_frames import check_frozen, check_repeat_pattern
from hardware.checks.torn_frames import check_torn
from hardware.checks.units import check_units
from hardware.recording import Progress, Recording

__all__ = ["Check", "Look", "State", "check_recording", "look", "look_at_frames", "not_testable"]


def look(recording: Recording, progress: Progress | None = None) -> list[Look]:
    """Decode every frame of a recording once; what all checks of frames judge by."""
    episodes = [recording.episode(index) for index in recording.episode_indices]
    logs, _ = read_joints(episodes)
    return list(look_at_frames(recording, episodes, logs, progress))


@np.errstate(over="ignore", invalid="ignore")  # absurd values are findings, not warnings of numpy
def check_recording(
    recording: Recording,
    *,
    frames: bool = True,
    looks: Sequence[Look] | None = None,
    progress: Progress | None = None,
) -> list[Check]:
    """All checks of a recording, in a fixed order.

    Parameters
    ----------
    frames : also decode every frame of every view, once (minutes for long recordings), to judge what they
        show.
    looks : its frames, where they were looked at already.
    progress : called as progress(done, total, what).
    """
    episodes = [recording.episode(index) for index in recording.episode_indices]
    logs, unreadable = read_joints(episodes)
    actions, without = read_actions(recording, logs)
    pairing = pair_actions(recording, logs, actions)
    if not frames:
        seen: list[Look] = []
    else:
        seen = list(look_at_frames(recording, episodes, logs, progress)) if looks is None else list(looks)
    checks = [
        check_hashes(episodes),
        check_contiguity(recording),
        check_joints_readable(unreadable),
        check_counts(recording, logs),
        check_clock_order(recording, logs),
        check_clock_rate(recording, logs),
        check_clock_steps(recording, logs),
        check_still_joints(recording, logs),
        check_limits(recording, logs),
        check_offsets(recording, logs),
        check_units(recording, logs),
        check_sentinels(recording, logs),
        check_joint_leaps(recording, logs),
        check_raw_ticks(recording, logs),
        check_stuck_joints(recording, logs, seen),
        check_actions_readable(recording, without),
        check_actions(recording, logs, actions),
        check_action_lag(recording, pairing),
        check_directions(pairing),
        check_joint_order(pairing),
        check_faults(episodes),
    ]
    if frames and recording.info.views:
        checks += [
            check_decoded(seen),
            check_black(seen),
            check_repeated(seen),
            check_frozen(recording, seen),
            check_repeat_pattern(recording, seen),
            check_torn(recording, seen),
            check_identical_views(recording, seen),
            check_shared_frames(recording, seen),
            check_first_frames(recording, seen),
        ]
    return checks
