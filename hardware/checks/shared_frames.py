"""Frames that are found where they do not belong: in two views, in two episodes, in the episode after."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from hardware.checks.check import Check, and_more, counted, not_testable
from hardware.checks.frames import Look
from hardware.checks.pictures import strip
from hardware.recording import Recording

MANY = 0.5  # share of the different frames of one that are found in the other
FEW_FRAMES = 8  # fewer different frames tell nothing
# Two views or episodes are one video, encoded twice, where 3 of 4 averaged frames differ by less than this
# share of what either varies over time. (A JPEG of a tiny picture differs by 0.05 to 0.3; other episodes of
# one scene by 1.1 at least and other views by 1.8, in 26 simulated recordings and both real ones.)
NEAR, THREE_OF_FOUR = 0.25, 0.75
SAME_MOTION_RAD = 0.05  # two episodes whose joints stay this close, as in a replay, may well look alike
VARIES = 1.0  # grey levels: what varies less over time tells nothing
SAMPLES = 16  # frames that stand for an episode when each is compared with each
# The first frame is the previous episode's when it is this many times nearer to that one's last frame than to
# the second of its own, and that step is this many times each of the next ones (1.8 at most in clean
# episodes, which are not nearer either).
NEARER, JUMP, NEXT_STEPS = 3.0, 2.0, 10
JUMP_LEVEL = 1.0  # grey levels, of the frames averaged down: less is no other picture
LATE_STARTS = 3  # frames at the start that may be stale


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(np.float32) - other).mean())


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    """The distance that 3 of 4 frames, (n, 16, 16, 3) each, stay within."""
    distances = np.abs(one.astype(np.float32) - other).mean(axis=(1, 2, 3))
    return float(np.quantile(distances, THREE_OF_FOUR))


def _variation(small: np.ndarray) -> float:
    """Mean absolute departure from the mean frame, in grey levels."""
    return float(np.abs(small - small.mean(axis=0, dtype=np.float32)).mean())


def check_identical_views(recording: Recording, looks: list[Look]) -> Check:
    """Two views of an episode with the same pictures: exactly, or encoded once more."""
    found: list[tuple[Look, Look]] = []
    by_episode: dict[int, list[Look]] = {}
    for look in looks:
        by_episode.setdefault(look.episode, []).append(look)
    for together in by_episode.values():
        found += [pair for pair in combinations(together, 2) if _one_video(*pair)]
    if not any(len(together) > 1 for together in by_episode.values()):
        return not_testable("identical_views", "no episode has two views")
    if not found:
        return Check("identical_views", "pass", "views differ from one another")
    one, other = found[0]
    middle = min(one.frame_count, other.frame_count) // 2
    return Check(
        "identical_views",
        "fail",
        f"views {one.view} and {other.view} show the same pictures in episode {one.episode}{and_more(found)}",
        {
            "episodes": sorted({one.episode for one, _ in found}),
            "views": sorted({f"{one.view} = {other.view}" for one, other in found}),
        },
        "one camera was stored under two names: leave one view out",
        strip(recording, [(look.episode, look.view, middle) for look in (one, other)]),
    )


def _shared(one: Look, other: Look) -> float:
    """The larger share of either's different frames, black ones left out, that is found in the other."""
    mine, theirs = (np.unique(look.digest[~look.black]) for look in (one, other))
    fewer = min(len(mine), len(theirs))
    return len(np.intersect1d(mine, theirs)) / fewer if fewer >= FEW_FRAMES else 0.0


def _one_video(one: Look, other: Look) -> bool:
    if _shared(one, other) > MANY:
        return True
    count = min(one.frame_count, other.frame_count)
    if count < FEW_FRAMES:
        return False
    varies = min(_variation(one.small[:count]), _variation(other.small[:count]))
    return varies > VARIES and _apart(one.small[:count], other.small[:count]) < NEAR * varies


def check_shared_frames(recording: Recording, looks: list[Look]) -> Check:
    """A view whose frames in one episode are those of another: a video that was stored twice."""
    found: list[tuple[Look, Look]] = []
    by_view: dict[str, list[Look]] = {}
    for look in looks:
        by_view.setdefault(look.view, []).append(look)
    for alike in by_view.values():
        found += _shared_pairs(alike)
    if not any(len(alike) > 1 for alike in by_view.values()):
        return not_testable("shared_frames", "no view has frames in two episodes")
    if not found:
        return Check("shared_frames", "pass", "no two episodes share their frames")
    said = ", ".join(f"episodes {a.episode} and {b.episode} in {a.view}" for a, b in found[:5])
    one, other = found[0]
    middle = min(one.frame_count, other.frame_count) // 2
    return Check(
        "shared_frames",
        "fail",
        f"the same frames in two episodes: {said}{and_more(found[4:])}",
        {
            "episodes": sorted({look.episode for pair in found for look in pair}),
            "pairs": [[a.view, a.episode, b.episode] for a, b in found],
        },
        "a video was stored under two episodes, of which one lost its own: import the set again, or leave "
        "both out",
        strip(recording, [(look.episode, look.view, middle) for look in (one, other)]),
    )


def _shared_pairs(looks: list[Look]) -> list[tuple[Look, Look]]:
    """Pairs of episodes of one view that hold one video: by exact frames first, then by near ones."""
    owners: dict[int, list[int]] = {}
    for number, look in enumerate(looks):
        for digest in np.unique(look.digest[~look.black]).tolist():
            owners.setdefault(digest, []).append(number)
    candidates = {
        pair for numbers in owners.values() if 1 < len(numbers) <= 8 for pair in combinations(numbers, 2)
    }
    exact = {(a, b) for a, b in candidates if _shared(looks[a], looks[b]) > MANY}
    pairs = [(looks[a], looks[b]) for a, b in sorted(exact | _near_pairs(looks))]
    return [pair for pair in pairs if not _replayed(*pair)]


def _replayed(one: Look, other: Look) -> bool:
    """Whether the joints moved alike in both, though not to the last digit: then pictures may be alike."""
    count = min(one.frame_count, other.frame_count)
    apart = np.abs(one.position[:count] - other.position[:count])
    if not apart.size or not np.isfinite(apart).all():
        return False
    return bool(apart.max() > 0) and float(np.quantile(apart.max(axis=1), THREE_OF_FOUR)) < SAME_MOTION_RAD


def _near_pairs(looks: list[Look]) -> set[tuple[int, int]]:
    lengths = [look.frame_count for look in looks]
    usable = [number for number, count in enumerate(lengths) if count >= FEW_FRAMES]
    if len(usable) < 2:
        return set()
    at = np.linspace(0, min(lengths[number] for number in usable) - 1, SAMPLES).round().astype(int)
    sampled = [looks[number].small[at].astype(np.float32) for number in usable]
    varies = [_variation(one) for one in sampled]
    near = {
        (usable[a], usable[b])
        for a, b in combinations(range(len(usable)), 2)
        if min(varies[a], varies[b]) > VARIES
        and _apart(sampled[a], sampled[b]) < NEAR * min(varies[a], varies[b])
    }
    return {(a, b) for a, b in near if _one_video(looks[a], looks[b])}


def check_first_frames(recording: Recording, looks: list[Look]) -> Check:
    """Episodes that begin with a frame of the one before: it was read before the scene was set anew."""
    found: list[tuple[Look, Look, int]] = []
    compared = 0
    last: dict[str, Look] = {}
    for look in sorted(looks, key=lambda one: one.episode):
        before = last.get(look.view)
        if before is not None and min(look.frame_count, before.frame_count) >= FEW_FRAMES:
            compared += 1
            stale = _stale_starts(look, before)
            if stale:
                found.append((look, before, stale))
        last[look.view] = look
    if not compared:
        why = f"no view of {counted(FEW_FRAMES, 'frame')} in two episodes"
        return not_testable("first_frames", why)
    if not found:
        return Check("first_frames", "pass", "each episode begins with a frame of its own")
    said = ", ".join(f"{look} ({stale})" for look, _, stale in found[:5])
    look, before, stale = found[0]
    return Check(
        "first_frames",
        "warn",
        f"first frames that are the previous episode's: {said}{and_more(found[4:])}",
        {
            "episodes": sorted({look.episode for look, _, _ in found}),
            "frames": {f"{look.episode}/{look.view}": stale for look, _, stale in found},
        },
        "the camera's buffer was read before the scene was set anew: drop the first frames",
        strip(
            recording,
            [
                (before.episode, before.view, before.frame_count - 1),
                (look.episode, look.view, 0),
                (look.episode, look.view, stale),
            ],
        ),
    )


def _stale_starts(look: Look, before: Look) -> int:
    """How many of the first frames are rather the previous episode's; 0 for none."""
    small = look.small.astype(np.float32)
    steps = np.abs(np.diff(small, axis=0)).mean(axis=(1, 2, 3))
    stale = int(np.argmax(steps[:LATE_STARTS])) + 1
    jump = float(steps[stale - 1])
    usual = float(steps[stale : stale + NEXT_STEPS].max())
    to_before = max(_distance(small[number], before.small[-1]) for number in range(stale))
    return stale if jump > max(JUMP_LEVEL, JUMP * usual) and to_before * NEARER < jump else 0
