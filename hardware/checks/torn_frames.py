"""Torn frames: the upper part of one moment over the lower part of another.

A buffer that is read while the camera still fills it gives a frame whose upper rows are of one moment and
whose lower rows of the next, or the other way round. Seen over time, one part of a torn frame t then equals
the same part of frame t - 1 ("late") or of frame t + 1 ("early"), although that part moves before and after,
and the other part does something else; and at the seam between them neighbouring rows do not fit, which they
do in the frames before and after.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np

from hardware.checks.check import Check, and_more, counted, not_testable
from hardware.checks.frames import BANDS, SAME_LEVEL, Look
from hardware.checks.pictures import strip
from hardware.errors import InputError
from hardware.recording import Recording

EDGE = 4  # a part has at least so many of the 32 bands
# Grey levels: a part that changes less from frame to frame moves too little to tell. Where only one part is
# another moment's, more is asked for: parts of rendered pictures do stand still for a frame.
ACTIVE, ACTIVE_ONE = 0.5, 1.5
# A part equals its neighbour in time when it changes by under this share of what it changes before and after.
# A copied part changes by nothing; JPEG and video leave room for what coding adds (chosen, not measured).
EQUAL = {"rgb8": 0.0, "jpeg": 0.1, "video": 0.25}
TWICE = 1.2  # a part that skips a moment then changes by more than the steps around it
OTHER = 0.4  # the whole part changes from frame to frame evenly within this ratio
FEW_FRAMES = 6  # a frame is compared with the two on either side
FEW_TORN = 2  # in a view of an episode; one alone can be a coincidence (none in 31,775 clean rendered frames,
# 2 in 3,620 of a real set, of which nobody knows whether they are torn)
# At the seam the step from row to row exceeds that of the frames before and after by this many grey levels,
# and by this many times what it does at 9 of 10 other rows.
SEAM_LEVEL, SEAM_RATIO = 1.0, 4.0


@dataclass(frozen=True)
class _Torn:
    look: Look
    frame: int
    row: int


def check_torn(recording: Recording, looks: list[Look]) -> Check:
    """Frames whose upper and lower part are of different moments."""
    found = []
    for look in looks:
        torn = list(_torn_frames(recording, look))
        found += torn if len(torn) >= FEW_TORN else []
    if not any(look.frame_count >= FEW_FRAMES for look in looks):
        return not_testable("torn_frames", f"no view of {counted(FEW_FRAMES, 'frame')}")
    if not found:
        return Check("torn_frames", "pass", "no frame is torn")
    said = ", ".join(f"{one.look} frame {one.frame} at row {one.row}" for one in found[:5])
    first = found[0]
    return Check(
        "torn_frames",
        "warn",
        f"the upper and the lower part are of different moments: {said}{and_more(found[4:])}",
        {
            "episodes": sorted({one.look.episode for one in found}),
            "frames": [[one.look.episode, one.look.view, one.frame] for one in found],
            "rows": [one.row for one in found],
        },
        "a buffer was read while the camera filled it: leave these frames out, and lock the buffer",
        strip(
            recording,
            [(first.look.episode, first.look.view, first.frame + step) for step in (-1, 0, 1)],
        ),
    )


def _torn_frames(recording: Recording, look: Look) -> Iterator[_Torn]:
    candidates = torn_candidates(look.band_change, look.encoding)
    if not len(candidates):
        return
    wanted = np.unique((candidates[:, None] + np.arange(-1, 2)).ravel())
    try:
        images = dict(
            zip(wanted.tolist(), recording.episode(look.episode).frames(look.view, wanted), strict=True)
        )
    except (InputError, ValueError):
        return  # counted by check_decoded
    seams = {
        frame: found
        for frame in candidates.tolist()
        if (found := seam(*(images[frame + step] for step in (-1, 0, 1)))) is not None
    }
    for frame, (row, excess) in seams.items():
        # The neighbour of a torn frame differs from it in one part only, and may look torn itself.
        beside = [seams[other][1] for other in (frame - 1, frame + 1) if other in seams]
        if excess >= max(beside, default=0.0):
            yield _Torn(look, frame, row)


def torn_candidates(band_change: np.ndarray, encoding: str) -> np.ndarray:
    """Frames of which one part equals its neighbour in time and the other does not, int64 (c,).

    Parameters
    ----------
    band_change : float (n, 32), mean absolute difference to the frame before by bands of rows.
    encoding : how the frames were stored.
    """
    n = len(band_change)
    if n < FEW_FRAMES:
        return np.zeros(0, np.int64)
    change = np.nan_to_num(band_change).astype(np.float64)
    at = np.arange(2, n - 2)
    total = np.concatenate([np.zeros((n, 1)), np.cumsum(change, axis=1)], axis=1)  # (n, 33)
    split = np.arange(EDGE, BANDS - EDGE)  # the band that holds the seam belongs to neither part
    upper = total[:, split] / split  # (n, splits), mean change of the bands above
    lower = (total[:, -1:] - total[:, split + 1]) / (BANDS - 1 - split)
    states = [_states(part, at, encoding) for part in (upper, lower)]
    activity = np.minimum(states[0].activity, states[1].activity)
    torn = np.zeros((len(at), len(split)), bool)
    for one, other in (states, states[::-1]):
        torn |= one.late & other.early & (activity > ACTIVE)  # each part is a neighbour's
        alone = (one.late | one.early) & one.twice & other.even  # one part is, the other is its own
        torn |= alone & (activity > ACTIVE_ONE)
    return at[torn.any(axis=1)]


@dataclass(frozen=True)
class _States:
    """What one part of the frames does, bool (frames, splits); activity in grey levels."""

    late: np.ndarray
    early: np.ndarray
    twice: np.ndarray
    even: np.ndarray
    activity: np.ndarray


def _states(part: np.ndarray, at: np.ndarray, encoding: str) -> _States:
    before, to, onward, after = (part[at + step] for step in (-1, 0, 1, 2))
    floor = SAME_LEVEL if encoding == "video" else 0.0
    equal = EQUAL[encoding]
    return _States(
        late=to <= np.maximum(equal * np.minimum(before, onward), floor),
        early=onward <= np.maximum(equal * np.minimum(to, after), floor),
        twice=np.maximum(to, onward) > TWICE * np.maximum(before, after),
        even=np.minimum(to, onward) > OTHER * np.maximum(to, onward),
        activity=np.minimum(np.minimum(before, after), np.maximum(to, onward)),
    )


def seam(before: np.ndarray, frame: np.ndarray, after: np.ndarray) -> tuple[int, float] | None:
    """(first row of the lower part, excess there in grey levels) where `frame` is torn, or None.

    `before`, `frame` and `after` are RGB uint8 (H, W, 3).
    """
    steps = [_row_steps(image) for image in (before, frame, after)]
    excess = steps[1] - np.maximum(steps[0], steps[2])
    row = int(np.argmax(excess))
    usual = float(np.quantile(np.maximum(excess, 0), 0.9))
    return (row + 1, float(excess[row])) if excess[row] > max(SEAM_LEVEL, SEAM_RATIO * usual) else None


def _row_steps(image: np.ndarray) -> np.ndarray:
    """Mean absolute difference of each row to the next, float (H - 1,)."""
    steps = cv2.reduce(cv2.absdiff(image[1:], image[:-1]), 1, cv2.REDUCE_AVG, dtype=cv2.CV_32F)
    return np.asarray(steps.reshape(len(image) - 1, 3).mean(axis=1))
