"""Joints at frame times: how streams that each have their own clock become rows (rule: FORMATS.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from hardware.episode import Episode
from hardware.errors import InputError
from hardware.frames import resize

MAX_GAP_PERIODS = 3.0
SHORTEST_STEP, LONGEST_STEP = 0.6, 1.6  # of the usual step between rows; see `steady_steps`


@dataclass(frozen=True)
class AlignedEpisode:
    """The rows of one episode: n moments at which every view has a frame and every joint a position.

    Attributes
    ----------
    anchor_frame, time_ns : int64 (n,), frame number in the first view and its capture time.
    position : float64 (n, J), joint positions at `time_ns`, in the recording's units.
    frame_index : for each view the frame numbers, int64 (n,).
    dropped : rows left out, by reason (`joints`, a view's name, or `unpaired`).
    """

    episode: Episode
    views: tuple[str, ...]
    time_ns: np.ndarray
    position: np.ndarray
    frame_index: dict[str, np.ndarray]
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def index(self) -> int:
        """Number of the episode in its recording."""
        return self.episode.index

    @property
    def sha256(self) -> str:
        """SHA-256 of the episode's file."""
        return self.episode.sha256

    @property
    def anchor_frame(self) -> np.ndarray:
        """Frame numbers of the first view, int64 (n,)."""
        return self.frame_index[self.views[0]]

    def __len__(self) -> int:
        return len(self.time_ns)

    def batches(
        self, size: int, image_size: tuple[int, int] | None = None, rows: np.ndarray | None = None
    ) -> Iterator[np.ndarray]:
        """Stream the frames as uint8 (b, V, H, W, 3) with b <= size, RGB.

        Parameters
        ----------
        image_size : (height, width) to resize each frame to; None keeps them: the views must be of one size.
        rows : rising row numbers to take; None for all.
        """
        if image_size is None:
            sizes = {
                name: (self.episode.info.view(name).height, self.episode.info.view(name).width)
                for name in self.views
            }
            if len(set(sizes.values())) > 1:
                shown = ", ".join(f"{name} {width}x{height}" for name, (height, width) in sizes.items())
                raise InputError(
                    "views", f"differ in size ({shown})", "choose views of one size or resize them"
                )
        chosen = np.arange(len(self)) if rows is None else np.asarray(rows)
        streams = [self.episode.frames(view, self.frame_index[view][chosen]) for view in self.views]
        batch: list[np.ndarray] = []
        for images in zip(*streams):
            batch.append(
                np.stack([image if image_size is None else resize(image, image_size) for image in images])
            )
            if len(batch) == size:
                yield np.stack(batch)
                batch = []
        if batch:
            yield np.stack(batch)


def align(episode: Episode, views: Sequence[str]) -> AlignedEpisode:
    """Align one episode; the first view anchors. InputError where a view or every row is missing."""
    if not views:
        raise InputError(
            episode.path, "no view was named", f"views: {', '.join(episode.info.view_names) or 'none'}"
        )
    for view in views:
        episode.info.view(view)
        if not episode.has_view(view):
            raise InputError(
                f"{episode.path.parent.parent}, episode {episode.index}",
                f"has no frames of view {view!r}",
                "leave the episode or the view out",
            )
    aligned = _by_row(episode, views) if episode.info.pairing == "row" else _by_clock(episode, views)
    if not len(aligned):
        raise InputError(
            f"{episode.path.parent.parent}, episode {episode.index}",
            f"no row has a frame of {' and '.join(views)} and a joint sample (dropped: {aligned.dropped})",
            "leave the episode out, or record it again",
        )
    return aligned


def _by_row(episode: Episode, views: Sequence[str]) -> AlignedEpisode:
    joints = episode.joints()
    times = {view: episode.frame_times(view) for view in views}
    rows = min(len(joints.time_ns), *(len(stamps) for stamps in times.values()))
    longest = max(len(joints.time_ns), *(len(stamps) for stamps in times.values()))
    dropped = {"unpaired": longest - rows} if longest > rows else {}
    index = np.arange(rows)
    return AlignedEpisode(
        episode,
        tuple(views),
        joints.time_ns[:rows],
        joints.position[:rows],
        {view: index for view in views},
        dropped,
    )


def _by_clock(episode: Episode, views: Sequence[str]) -> AlignedEpisode:
    joints = episode.joints()
    anchor = episode.frame_times(views[0])
    streams = {"joints": joints.time_ns, **{view: episode.frame_times(view) for view in views}}
    for stream, time_ns in streams.items():
        falls = np.flatnonzero(np.diff(time_ns) <= 0)
        if len(falls):
            raise InputError(
                f"{episode.path}, {stream}",
                f"its clock does not advance after row {falls[0]} ({len(falls)} such steps)",
                "leave the episode out: nothing can be aligned on a clock that stands or falls",
            )
    position, valid = interpolate(
        joints.time_ns, joints.position, anchor, max_gap_ns=MAX_GAP_PERIODS * 1e9 / episode.info.joints_hz
    )
    dropped = {"joints": int((~valid).sum())}
    frame_index = {views[0]: np.arange(len(anchor))}
    for view in views[1:]:
        nearest, near = nearest_frames(episode.frame_times(view), anchor, 1e9 / episode.info.view(view).fps)
        frame_index[view] = nearest
        dropped[view] = int((valid & ~near).sum())
        valid &= near
    return AlignedEpisode(
        episode,
        tuple(views),
        anchor[valid],
        position[valid],
        {view: index[valid] for view, index in frame_index.items()},
        {reason: count for reason, count in dropped.items() if count},
    )


def interpolate(
    time_ns: np.ndarray, values: np.ndarray, at_ns: np.ndarray, max_gap_ns: float
) -> tuple[np.ndarray, np.ndarray]:
    """Linear interpolation that never extrapolates and never bridges a gap.

    Parameters
    ----------
    time_ns : int64 (n,), rising.
    values : float64 (n, J).
    at_ns : int64 (m,), where values are wanted.
    max_gap_ns : widest bracket of samples that is bridged.

    Returns
    -------
    float64 (m, J) and bool (m,): the values, and where they are valid (NaN elsewhere).
    """
    out = np.full((len(at_ns), values.shape[1]), np.nan)
    if len(time_ns) == 0:
        return out, np.zeros(len(at_ns), bool)
    right = np.clip(np.searchsorted(time_ns, at_ns, side="left"), 0, len(time_ns) - 1)
    left = np.where(time_ns[right] == at_ns, right, np.maximum(right - 1, 0))
    gap = time_ns[right] - time_ns[left]
    valid = (time_ns[left] <= at_ns) & (at_ns <= time_ns[right]) & (gap <= max_gap_ns)
    # int64 differences first: nanoseconds since boot do not fit a float64's 53 bits for long
    weight = np.where(gap > 0, (at_ns - time_ns[left]) / np.where(gap > 0, gap, 1), 0.0)[:, None]
    mixed = (1 - weight) * values[left] + weight * values[right]
    out[valid] = mixed[valid]
    return out, valid


def nearest_frames(time_ns: np.ndarray, at_ns: np.ndarray, period_ns: float) -> tuple[np.ndarray, np.ndarray]:
    """The frame nearest to each moment, and whether it is the one that belongs there.

    It does where no frame is missing around the moment: half of the step between the frames on either side is
    then half the view's period as it was just there, jitter included, and the nearer one cannot be farther.
    Where that step is longer than `LONGEST_STEP` periods, and before the first frame and after the last, a
    frame within half the declared period does.

    Parameters
    ----------
    time_ns : int64 (n,), rising: the view's frames.
    at_ns : int64 (m,), rising: moments at which a frame is wanted.
    period_ns : the view's declared period.

    Returns
    -------
    int64 (m,) and bool (m,): indices into `time_ns`, and where they are valid.
    """
    if len(time_ns) == 0:
        return np.zeros(len(at_ns), np.int64), np.zeros(len(at_ns), bool)
    right = np.clip(np.searchsorted(time_ns, at_ns), 0, len(time_ns) - 1)
    left = np.maximum(right - 1, 0)
    nearest = np.where(at_ns - time_ns[left] <= time_ns[right] - at_ns, left, right)
    between = (time_ns[left] <= at_ns) & (at_ns <= time_ns[right])
    unbroken = time_ns[right] - time_ns[left] <= LONGEST_STEP * period_ns
    return nearest, (between & unbroken) | (np.abs(time_ns[nearest] - at_ns) <= period_ns / 2)


def held_actions(time_ns: np.ndarray, sent_ns: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The action in force at each moment `time_ns` [n]: the last one sent by then, held until the next.

    Parameters
    ----------
    sent_ns, target : [m], not falling, and [m, A]: when each action was sent, and what.

    Returns
    -------
    float64 [n, A], NaN before the first action; the last one stays in force.
    """
    if np.any(np.diff(sent_ns) < 0):
        raise ValueError(
            f"the clock of the actions falls after action {int(np.argmax(np.diff(sent_ns) < 0))}"
        )
    last = np.searchsorted(sent_ns, time_ns, side="right") - 1
    held = np.full((len(time_ns), target.shape[1]), np.nan)
    held[last >= 0] = target[last[last >= 0]]
    return held


def steady_steps(time_ns: np.ndarray, step_ns: float) -> np.ndarray:
    """Which steps between neighbouring rows last as usual, bool (n - 1,): 0.6 to 1.6 times `step_ns`, so that
    2:3 and 3:2 count as the same and 1:2, a dropped row, does not.
    """
    step = np.diff(time_ns)
    return (step >= SHORTEST_STEP * step_ns) & (step <= LONGEST_STEP * step_ns)


def unbroken(good: np.ndarray, steps: int) -> np.ndarray:
    """Rows from which the next `steps` steps are all good, int64, rising; `good` is bool (n - 1,)."""
    broken = np.concatenate([[0], np.cumsum(~good)])
    first = np.arange(max(len(good) + 1 - steps, 0))
    return first[broken[first + steps] == broken[first]]
