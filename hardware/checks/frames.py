"""Frames: do they decode, are they black, does a view stand still while the joints move."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np

from hardware.checks.check import Check, and_more, counted, not_testable
from hardware.episode import Episode, JointLog
from hardware.errors import InputError
from hardware.recording import Progress, Recording

SMALL, BANDS = 16, 32  # sides of what is kept of a frame, and its bands of rows
BLACK_LEVEL = 3.0  # mean grey level under which a frame shows nothing
SAME_LEVEL = (
    0.1  # mean grey difference up to which a lossy codec may give a repeated frame; live cameras exceed 0.2
)
# A joint that moves this far (rad) between two frames must be seen to move: by a camera, whose noise alone
# differs from frame to frame, and by a renderer, which draws one picture for all motions smaller than a
# pixel.
MOVING_RAD = {"video": 0.02, "jpeg": 0.02, "rgb8": 0.1}


@dataclass(frozen=True, eq=False)
class Look:
    """What one view of one episode shows, frame by frame: n frames were decoded, `expected` were listed.

    Attributes
    ----------
    error : why decoding ended early, or empty.
    damaged : what is damaged in which frames, though they can be decoded.
    small : the frames averaged down, RGB uint8 (n, 16, 16, 3).
    level : mean grey level of each frame, float32 (n,).
    change : mean absolute difference to the frame before, float32 (n,); NaN for the first.
    band_change : the same for 32 bands of rows from top to bottom, float32 (n, 32).
    digest : a hash of the exact pixels, uint64 (n,).
    position : the joints that are angles when each frame was taken, rad (n, R); R is 0 where unknown.
    moving : whether a joint clearly moves from the frame before to this one, bool (n,).
    encoding : how the frames are stored; repeated frames of a video may differ a little.
    """

    view: str
    episode: int
    expected: int
    error: str
    small: np.ndarray
    level: np.ndarray
    change: np.ndarray
    band_change: np.ndarray
    digest: np.ndarray
    position: np.ndarray
    moving: np.ndarray
    encoding: str
    damaged: dict[int, str]

    @property
    def frame_count(self) -> int:
        """How many frames could be decoded."""
        return len(self.level)

    @property
    def black(self) -> np.ndarray:
        """Frames that show nothing, bool (n,)."""
        return self.level < BLACK_LEVEL

    @property
    def same(self) -> np.ndarray:
        """Frames that repeat the one before, bool (n,)."""
        return self.change < SAME_LEVEL if self.encoding == "video" else self.change == 0

    def __str__(self) -> str:
        return f"episode {self.episode} {self.view}"


def look_at_frames(
    recording: Recording, episodes: list[Episode], logs: dict[int, JointLog], progress: Progress | None
) -> Iterator[Look]:
    """Decode every frame of every view once; all checks of frames judge by what is kept of them."""
    work = [(e, view.name) for e in episodes for view in recording.info.views if e.has_view(view.name)]
    for done, (episode, view) in enumerate(work, start=1):
        yield look_at_view(recording, episode, view, logs.get(episode.index))
        if progress is not None:
            progress(done, len(work), f"episode {episode.index}, view {view}")


def look_at_view(recording: Recording, episode: Episode, view: str, log: JointLog | None) -> Look:
    """Decode one view of one episode; an unreadable frame ends it and is told in `error`."""
    small: list[np.ndarray] = []
    level: list[float] = []
    bands: list[np.ndarray] = []
    digest: list[int] = []
    error, before = "", None
    damaged: dict[int, str] = {}
    position = np.zeros((0, 0))
    try:
        for image in episode.frames(view):
            small.append(cv2.resize(image, (SMALL, SMALL), interpolation=cv2.INTER_AREA))
            level.append(sum(cv2.mean(image)[:3]) / 3)
            digest.append(int.from_bytes(hashlib.blake2b(image.tobytes(), digest_size=8).digest(), "little"))
            bands.append(np.full(BANDS, np.nan) if before is None else _band_change(image, before))
            before = image
        damaged = episode.damaged_frames(view)
        if log is not None and len(log.time_ns):
            position = _position_at_frames(recording, episode, view, log)
    except InputError as problem:
        error = str(problem)
    count = len(level)
    if len(position) < count:  # fewer rows than frames: the rest is not paired
        position = np.concatenate([position, np.full((count - len(position), position.shape[1]), np.nan)])
    position = position[:count]
    moving = np.zeros(count, bool)
    far = MOVING_RAD[recording.info.view(view).encoding]
    moving[1:] = np.any(np.abs(np.diff(position, axis=0)) > far, axis=1)
    band_change = np.array(bands, np.float32).reshape(count, BANDS)
    return Look(
        view=view,
        episode=episode.index,
        expected=episode.line.frames.get(view, 0),
        error=error,
        small=np.array(small, np.uint8).reshape(count, SMALL, SMALL, 3),
        level=np.array(level, np.float32),
        change=band_change.mean(axis=1),
        band_change=band_change,
        digest=np.array(digest, np.uint64),
        position=position,
        moving=moving,
        encoding=recording.info.view(view).encoding,
        damaged=damaged,
    )


def _band_change(image: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Mean absolute difference by bands of rows, float (BANDS,)."""
    rows = cv2.reduce(cv2.absdiff(image, before), 1, cv2.REDUCE_AVG, dtype=cv2.CV_32F)
    by_row = rows.reshape(len(image), 3).mean(axis=1, keepdims=True)
    return np.asarray(cv2.resize(by_row, (1, BANDS), interpolation=cv2.INTER_AREA))[:, 0]


def _position_at_frames(recording: Recording, episode: Episode, view: str, log: JointLog) -> np.ndarray:
    """The joints that are angles at the time of each frame, rad (n, R)."""
    position = log.position[:, angle_columns(recording)]
    if recording.info.pairing == "row" or not position.shape[1]:
        return position
    times = episode.frame_times(view)
    origin = log.time_ns[0]  # float64 holds nanoseconds exactly only where they are few
    clock = (log.time_ns - origin).astype(np.float64)
    at = (times - origin).astype(np.float64)
    return np.stack([np.interp(at, clock, column) for column in position.T], axis=1)


def angle_columns(recording: Recording) -> list[int]:
    """Columns of the joints that are angles in rad."""
    return [column for column, joint in enumerate(recording.info.joints) if joint.unit == "rad"]


def check_decoded(looks: list[Look]) -> Check:
    wrong = [look for look in looks if look.error or look.frame_count != look.expected]
    total = sum(look.frame_count for look in looks)
    if not looks:
        return not_testable("decoded", "no episode has frames")
    if not wrong:
        return _check_damaged(looks, total)
    first = wrong[0]
    reason = (
        first.error or f"{counted(first.frame_count, 'frame')} decoded, the manifest says {first.expected}"
    )
    return Check(
        "decoded",
        "fail",
        f"episode {first.episode}, view {first.view}: {reason}{and_more(wrong)}",
        {"episodes": sorted({look.episode for look in wrong})},
        "restore the episode file from a copy, or import the set again",
    )


def _check_damaged(looks: list[Look], total: int) -> Check:
    """Frames that decode and are damaged: a warning, as some cameras write each of theirs a little wrong."""
    damaged = [look for look in looks if look.damaged]
    if not damaged:
        message = f"{total:,} frames decode, as many as the manifest says"
        return Check("decoded", "pass", message, {"frames": total})
    first, number = damaged[0], next(iter(damaged[0].damaged))
    count = sum(len(look.damaged) for look in damaged)
    return Check(
        "decoded",
        "warn",
        f"{count:,} of {total:,} frames decode with damage: episode {first.episode}, view {first.view}, "
        f"frame {number}: {first.damaged[number]}" + (f" (and {count - 1} more)" if count > 1 else ""),
        {
            "episodes": sorted({look.episode for look in damaged}),
            "frames": total,
            "damaged": {f"{look.episode}/{look.view}": list(look.damaged) for look in damaged},
        },
        "parts of them may be grey or garbled: look at them, and leave these episodes or views out",
    )


def check_black(looks: list[Look]) -> Check:
    dark = {look: int(look.black.sum()) for look in looks if look.black.any()}
    if not any(look.frame_count for look in looks):
        return not_testable("black_frames", "no frame can be read")
    if not dark:
        return Check("black_frames", "pass", "no frame is black")
    said = ", ".join(f"{look} {count} of {look.frame_count}" for look, count in list(dark.items())[:5])
    return Check(
        "black_frames",
        "fail" if any(count > look.frame_count / 2 for look, count in dark.items()) else "warn",
        f"black frames: {said}{and_more(list(dark)[4:])}",
        {
            "episodes": sorted({look.episode for look in dark}),
            "black": {f"{look.episode}/{look.view}": count for look, count in dark.items()},
        },
        "leave these episodes out, or the view",
    )


def check_repeated(looks: list[Look]) -> Check:
    """Frames that repeat the one before while a joint clearly moves."""
    moving = {look: int(look.moving.sum()) for look in looks}
    shares = {look: (look.same & look.moving).sum() / n for look, n in moving.items() if n >= 5}
    stuck = {look: float(share) for look, share in shares.items() if share > 0.1}
    of_all = {look: float(look.same.sum() / max(1, look.frame_count - 1)) for look in stuck}
    evidence = {
        "episodes": sorted({look.episode for look in stuck}),
        "repeated_while_moving": {
            f"{look.episode}/{look.view}": round(share, 4) for look, share in stuck.items()
        },
        "repeated": {f"{look.episode}/{look.view}": round(share, 4) for look, share in of_all.items()},
    }
    if not shares:
        return not_testable("repeated_frames", "joints move in fewer than 5 steps from frame to frame")
    if not stuck:
        return Check("repeated_frames", "pass", "no view repeats frames while the joints move", evidence)
    said = ", ".join(
        f"{look} {share:.0%} of {moving[look]} moving steps ({of_all[look]:.0%} of all)"
        for look, share in list(stuck.items())[:5]
    )
    return Check(
        "repeated_frames",
        "fail" if max(stuck.values()) > 0.5 else "warn",
        f"a frame repeats the one before while joints move: {said}{and_more(list(stuck)[4:])}",
        evidence,
        "the camera was stuck or slower than declared: leave these episodes or views out",
    )
