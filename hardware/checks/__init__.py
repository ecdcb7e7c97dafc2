"""hardware.checks: is a recording what it claims to be?

`check_recording` runs every check and gives a list of `Check`: what was seen, in which episodes, with which
numbers, and what to do about it. A check never stops the others: what cannot be read is a failed check. What
was wrong with an imported source stays visible here.
"""

from hardware.checks.check import Check, State
from hardware.checks.clocks import check_clock_order, check_clock_rate, check_clock_steps
from hardware.checks.files import (
    check_contiguity,
    check_counts,
    check_faults,
    check_hashes,
    check_joints_readable,
    read_joints,
)
from hardware.checks.frames import check_black, check_decoded, check_repeated, look_at_frames
from hardware.checks.joints import check_actions, check_limits, check_offsets, check_still_joints
from hardware.recording import Progress, Recording

__all__ = ["Check", "State", "check_recording"]


def check_recording(
    recording: Recording, *, frames: bool = True, progress: Progress | None = None
) -> list[Check]:
    """All checks of a recording, in a fixed order.

    Parameters
    ----------
    frames : also decode every frame of every view (minutes for long recordings) to count and compare them.
    progress : called as progress(done, total, what).
    """
    episodes = [recording.episode(index) for index in recording.episode_indices]
    logs, unreadable = read_joints(episodes)
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
        check_actions(recording, logs),
        check_faults(episodes),
    ]
    if frames and recording.info.views:
        looks = list(look_at_frames(recording, episodes, logs, progress))
        checks += [check_decoded(looks), check_black(looks), check_repeated(looks)]
    return checks
