"""Frames that stand still: a frozen view, and one that repeats every n-th frame."""

from __future__ import annotations

import numpy as np

from hardware.checks.check import Check, and_more, counted, not_testable
from hardware.checks.frames import Look
from hardware.checks.pictures import strip
from hardware.recording import Recording

FROZEN_FRAMES, FROZEN_S = 8, 0.5  # a stretch is long from both on
# What moves this far (rad, about 11 degrees) in a stretch must be seen; smaller motions may stay inside a
# pixel of a small rendered picture, or outside of it. (In 31,775 frames of the clean twin no joint moved more
# than 0.005 rad while 4 frames or more were the same.)
SEEN_RAD = 0.2
# Joints that stay within this (rad, 3 ticks of 4096) from frame to frame rest. A live camera's noise makes
# each frame of a resting arm another one; a renderer gives the same one.
RESTING_RAD = 0.005
FEW_RESTING_STEPS = 20  # fewer tell nothing about a view's noise
LONGEST_PATTERN = 10  # every 2nd to every 10th frame
FEW_REPEATS = 6  # fewer are no pattern


def runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """[first, past last) of each stretch of True in `mask`, bool (n,)."""
    edges = np.diff(np.concatenate([[0], np.asarray(mask, np.int8), [0]]))
    return list(zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist()))


def check_frozen(recording: Recording, looks: list[Look]) -> Check:
    """Long stretches of one and the same frame, where the camera or the joints say that it cannot be.

    Either the joints moved far meanwhile, or this view shows noise whenever else the arm rests, so that two
    of its frames are never the same.
    """
    found = []
    for look in looks:
        shortest = max(FROZEN_FRAMES, FROZEN_S * recording.info.view(look.view).fps)
        stretches = [
            (first - 1, past)
            for first, past in runs(look.same & ~look.black)
            if past - first + 1 >= shortest and _cannot_be(look, first - 1, past)
        ]
        found += [(look, first, past) for first, past in stretches]
    if not any(look.frame_count > FROZEN_FRAMES and look.position.shape[1] for look in looks):
        return not_testable("frozen_frames", "too few frames, or nothing says what the arm did meanwhile")
    if not found:
        return Check("frozen_frames", "pass", "no view stands still for long against what its joints do")
    shares = {
        look: sum(past - first for other, first, past in found if other is look) / look.frame_count
        for look, _, _ in found
    }
    look, first, past = max(found, key=lambda one: one[2] - one[1])
    said = ", ".join(f"{one} frames {a} to {b - 1}" for one, a, b in found[:5])
    return Check(
        "frozen_frames",
        "fail" if max(shares.values()) > 0.5 else "warn",
        f"one and the same frame: {said}{and_more(found[4:])}",
        {
            "episodes": sorted({look.episode for look in shares}),
            "frames": [[one.episode, one.view, a, b - 1] for one, a, b in found],
            "share": {f"{one.episode}/{one.view}": round(share, 4) for one, share in shares.items()},
        },
        "the camera or its reader was stuck: leave these frames, episodes or views out",
        strip(
            recording,
            [(look.episode, look.view, n) for n in (max(0, first - 1), first, past - 1)],
        ),
    )


def _cannot_be(look: Look, first: int, past: int) -> bool:
    if not look.position.shape[1]:
        return False  # nothing says what the arm did
    position = look.position[first:past]
    if np.isfinite(position).all() and np.ptp(position, axis=0).max() > SEEN_RAD:
        return True
    steps = np.abs(np.diff(look.position, axis=0, prepend=np.nan)).max(axis=1)
    resting = steps < RESTING_RAD
    resting[first : past + 1] = False
    return int(resting.sum()) >= FEW_RESTING_STEPS and float(look.same[resting].mean()) < 0.05


def check_repeat_pattern(recording: Recording, looks: list[Look]) -> Check:
    """A view that repeats the frame before at every n-th frame, and hardly ever else."""
    found = {
        look: pattern for look in looks if (pattern := repeat_pattern(look.same, look.change)) is not None
    }
    if not any(look.frame_count > 2 * FEW_REPEATS for look in looks):
        return not_testable("repeat_pattern", f"no view of more than {counted(2 * FEW_REPEATS, 'frame')}")
    if not found:
        return Check("repeat_pattern", "pass", "no view repeats its frames at a regular beat")
    said = ", ".join(
        f"{look} every {period} frames, from frame {first} ({counted(count, 'time')})"
        for look, (period, first, count) in list(found.items())[:5]
    )
    look, (_, first, _) = next(iter(found.items()))
    return Check(
        "repeat_pattern",
        "warn",
        f"a frame repeats the one before at a regular beat: {said}{and_more(list(found)[4:])}",
        {
            "episodes": sorted({one.episode for one in found}),
            "every": {f"{one.episode}/{one.view}": pattern[0] for one, pattern in found.items()},
            "first_frame": {f"{one.episode}/{one.view}": pattern[1] for one, pattern in found.items()},
        },
        "the camera gives fewer frames than are stored: record or import it at the rate it has",
        strip(recording, [(look.episode, look.view, n) for n in (first - 1, first, first + 1)]),
    )


def repeat_pattern(same: np.ndarray, change: np.ndarray) -> tuple[int, int, int] | None:
    """(period, first frame, count) of a regular beat in `same`, bool (n,), or None.

    `change`, float (n,), must at the other frames be that of a view in motion: a codec with a key frame at
    every 2nd frame repeats pictures of a resting arm at that beat too.

    Stretches where everything stands still, and what comes before the first and after the last repeat, are
    left out. None was found in 80,000 views of 200 frames that repeat 5 to 50 % of them at random.
    """
    same = np.asarray(same, bool)
    still = np.zeros(len(same), bool)
    for first, past in runs(same):
        if past - first > 1:
            still[first:past] = True
    lone = np.flatnonzero(same & ~still)
    if len(lone) < FEW_REPEATS:
        return None
    numbers = np.arange(len(same))
    usual = float(np.nanmedian(change[~same]))
    known = ~still & (numbers >= lone[0]) & (numbers <= lone[-1])
    for period in range(2, LONGEST_PATTERN + 1):
        phases = numbers % period
        counts = np.bincount(phases[same & known], minlength=period)
        phase = int(np.argmax(counts))
        on = known & (phases == phase)
        off = known & (phases != phase)
        beats = counts[phase] >= FEW_REPEATS and same[on].mean() > 0.9 and same[off].mean() < 0.1
        if beats and np.median(change[off]) > 0.5 * usual:
            return period, int(lone[phases[lone] == phase][0]), int(counts[phase])
    return None
