"""Frames: do they decode, are they black, does a view stand still while the joints move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np

from hardware.checks.check import Check, and_more
from hardware.episode import Episode, JointLog
from hardware.errors import InputError
from hardware.recording import Progress, Recording

BLACK_LEVEL = 3.0  # mean grey level under which a frame shows nothing
SAME_LEVEL = (
    0.1  # mean grey difference up to which a lossy codec may give a repeated frame; live cameras exceed 0.2
)
# A joint that moves this far (rad) between two frames must be seen to move: by a camera, whose noise alone
# differs from frame to frame, and by a renderer, which draws one picture for all motions smaller than a
# pixel.
MOVING_RAD = {"video": 0.02, "jpeg": 0.02, "rgb8": 0.1}


@dataclass(frozen=True)
class _Look:
    """What one view of one episode shows."""

    view: str
    episode: int
    expected: int
    decoded: int
    black: int
    same: int
    moving: int
    same_moving: int
    error: str = ""


def look_at_frames(
    recording: Recording, episodes: list[Episode], logs: dict[int, JointLog], progress: Progress | None
) -> Iterator[_Look]:
    work = [(e, view.name) for e in episodes for view in recording.info.views if e.has_view(view.name)]
    for done, (episode, view) in enumerate(work, start=1):
        yield _look(recording, episode, view, logs.get(episode.index))
        if progress is not None:
            progress(done, len(work), f"episode {episode.index}, view {view}")


def _look(recording: Recording, episode: Episode, view: str, log: JointLog | None) -> _Look:
    lossy = recording.info.view(view).encoding == "video"
    black = decoded = 0
    same: list[bool] = []
    moved = np.zeros(0, bool)
    error, before = "", None
    try:
        for image in episode.frames(view):
            decoded += 1
            black += float(image.mean()) < BLACK_LEVEL
            if before is not None:
                apart = float(cv2.absdiff(image, before).mean())
                same.append(apart < SAME_LEVEL if lossy else apart == 0)
            before = image
        moved = _moved(recording, episode, view, log) if log is not None and len(log.time_ns) else moved
    except InputError as problem:
        error = str(problem)
    moved = moved[: len(same)]
    repeated = np.array(same[: len(moved)], bool)
    expected = episode.line.frames.get(view, 0)
    return _Look(
        view,
        episode.index,
        expected,
        decoded,
        black,
        sum(same),
        int(moved.sum()),
        int((repeated & moved).sum()),
        error,
    )


def _moved(recording: Recording, episode: Episode, view: str, log: JointLog) -> np.ndarray:
    """Whether some joint clearly moves from each frame to the next, bool (frames - 1,)."""
    columns = [column for column, joint in enumerate(recording.info.joints) if joint.unit == "rad"]
    position = log.position[:, columns]
    if not columns:
        return np.zeros(0, bool)
    if recording.info.pairing == "clock":
        times = episode.frame_times(view)
        origin = log.time_ns[0]
        clock = (log.time_ns - origin).astype(np.float64)
        position = np.stack(
            [
                np.interp((times - origin).astype(np.float64), clock, position[:, column])
                for column in range(len(columns))
            ],
            axis=1,
        )
    far = MOVING_RAD[recording.info.view(view).encoding]
    return np.any(np.abs(np.diff(position, axis=0)) > far, axis=1)


def check_decoded(looks: list[_Look]) -> Check:
    wrong = [look for look in looks if look.error or look.decoded != look.expected]
    total = sum(look.decoded for look in looks)
    if not wrong:
        return Check(
            "decoded", "pass", f"{total} frames decode, as many as the manifest says", {"frames": total}
        )
    first = wrong[0]
    reason = first.error or f"{first.decoded} frames decode, the manifest says {first.expected}"
    return Check(
        "decoded",
        "fail",
        f"episode {first.episode}, view {first.view}: {reason}{and_more(wrong)}",
        {"episodes": sorted({look.episode for look in wrong})},
        "restore the episode file from a copy, or import the set again",
    )


def check_black(looks: list[_Look]) -> Check:
    dark = [look for look in looks if look.black]
    if not dark:
        return Check("black_frames", "pass", "no frame is black")
    said = ", ".join(
        f"episode {look.episode} {look.view} {look.black} of {look.decoded}" for look in dark[:5]
    )
    return Check(
        "black_frames",
        "fail" if any(look.black > look.decoded / 2 for look in dark) else "warn",
        f"black frames: {said}{and_more(dark[4:])}",
        {
            "episodes": sorted({look.episode for look in dark}),
            "black": {f"{look.episode}/{look.view}": look.black for look in dark},
        },
        "leave these episodes out, or the view",
    )


def check_repeated(looks: list[_Look]) -> Check:
    """Frames that repeat the one before while a joint clearly moves."""
    shares = {look: look.same_moving / look.moving for look in looks if look.moving >= 5}
    stuck = {look: share for look, share in shares.items() if share > 0.1}
    evidence = {
        "episodes": sorted({look.episode for look in stuck}),
        "repeated_while_moving": {
            f"{look.episode}/{look.view}": round(share, 4) for look, share in stuck.items()
        },
        "repeated": {
            f"{look.episode}/{look.view}": round(look.same / max(1, look.decoded - 1), 4) for look in stuck
        },
    }
    if not stuck:
        return Check("repeated_frames", "pass", "no view repeats frames while the joints move", evidence)
    said = ", ".join(
        f"episode {look.episode} {look.view} {share:.0%} of {look.moving} moving steps"
        f" ({look.same / max(1, look.decoded - 1):.0%} of all)"
        for look, share in list(stuck.items())[:5]
    )
    return Check(
        "repeated_frames",
        "fail" if max(stuck.values()) > 0.5 else "warn",
        f"a frame repeats the one before while joints move: {said}{and_more(list(stuck)[4:])}",
        evidence,
        "the camera was stuck or slower than declared: leave these episodes or views out",
    )
