"""Frames for training: decoded once, resized once, kept as uint8 on disk, read through the page cache."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoders.checkpoints import TrainedOn
from encoders.encoder import canonical_json
from encoders.pairs import evenly_spaced, knot_pairs, stride_pairs, thin_pairs
from encoders.recipes import CnnRecipe
from hardware.alignment import AlignedEpisode
from hardware.disk import disk_errors, fsync_path
from hardware.errors import InputError
from hardware.recording import Progress, Recording

DECODE_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class FramePlan:
    """Which rows of which episodes are decoded, and which of these frames belong together.

    Attributes
    ----------
    rows : for each episode its row numbers, rising.
    groups : int64 (P, k), numbers of frames in the order in which `rows` lists them: pairs, or windows.
    """

    views: tuple[str, ...]
    aligned: tuple[AlignedEpisode, ...]
    rows: tuple[np.ndarray, ...]
    groups: np.ndarray

    @property
    def frames(self) -> int:
        """Number of distinct moments."""
        return sum(len(rows) for rows in self.rows)

    def key(self, image_size: int) -> str:
        """Hash of everything that decides the cached frames and the groups."""
        head = [list(self.views), [episode.sha256 for episode in self.aligned], image_size]
        digest = hashlib.sha256(canonical_json(head))
        for array in (*self.rows, self.groups):
            digest.update(canonical_json(list(array.shape)) + np.ascontiguousarray(array, "<i8").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class PairPlan(FramePlan):
    """The frames of positive pairs; `motion_pairs` is `stride` or `knots`."""

    motion_pairs: str

    @property
    def pairs(self) -> np.ndarray:
        """int64 (P, 2), numbers of frames."""
        return self.groups


def training_views(recording: Recording, *named: Sequence[str] | None) -> tuple[str, ...]:
    """The first list of views that was named, else all views of the recording; each must exist."""
    views = tuple(next((names for names in named if names), recording.info.view_names))
    if not views:
        raise InputError(recording.folder, "has no views: it holds joints only", "encoders need frames")
    for view in views:
        recording.info.view(view)
    return views


def aligned_episodes(
    recording: Recording, views: Sequence[str], episodes: Sequence[int]
) -> list[AlignedEpisode]:
    """Aligned rows of the episodes (times only: no frame is decoded); no episode twice, at least one."""
    if not len(episodes):
        raise InputError(recording.folder, "no training episode was named", "name at least one episode")
    if len(set(episodes)) != len(episodes):
        raise InputError(recording.folder, "an episode is named twice", "name each training episode once")
    return list(recording.aligned(views, list(episodes)))


def plan_pairs(
    recording: Recording, episodes: Sequence[int], recipe: CnnRecipe, views: tuple[str, ...]
) -> PairPlan:
    """Choose the pairs of a recipe; InputError when there are no knots, or fewer pairs than a batch."""
    kind = recipe.pairs
    if kind == "auto":
        kind = "knots" if recording.info.motion == "walk" else "stride"
    aligned = aligned_episodes(recording, views, episodes)
    found = []
    for episode in aligned:
        where = f"{recording.folder}, episode {episode.index}"
        if np.any(np.diff(episode.time_ns) < 0):
            raise InputError(
                where, "its row times fall", "pairs need times that rise; look at the source's clock"
            )
        if kind == "stride":
            found.append(stride_pairs(episode.time_ns, recipe.stride_s))
            continue
        knots = episode.episode.knots()
        if knots is None:
            raise InputError(
                where,
                f"has no knots (motion {recording.info.motion!r})",
                "use pairs: stride, or record a walk",
            )
        found.append(knot_pairs(episode.time_ns, knots.time_ns))
    found = thin_pairs(found, recipe.max_frames)
    count = sum(len(pairs) for pairs in found)
    if count < recipe.batch_size:
        setting = f"at a stride of {recipe.stride_s} s" if kind == "stride" else "of consecutive knots"
        raise InputError(
            f"{recording.folder}, episodes {shown_episodes(episodes)}",
            f"give {count} pair(s) {setting}, fewer than one batch of {recipe.batch_size}",
            "use more episodes, a smaller batch_size, or another stride_s",
        )
    rows, pairs = number_frames(found)
    return PairPlan(views, tuple(aligned), rows, pairs, kind)


def number_frames(groups: Sequence[np.ndarray]) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Groups of rows (P, k) of each episode as the rows that are used, and groups of their numbers."""
    rows, numbered, start = [], [], 0
    for group in groups:
        used, inverse = np.unique(group, return_inverse=True)
        rows.append(used)
        numbered.append(inverse.reshape(group.shape).astype(np.int64) + start)
        start += len(used)
    return tuple(rows), np.concatenate(numbered)


def shown_episodes(episodes: Sequence[int]) -> str:
    listed = ", ".join(map(str, episodes[:6]))
    return listed + (f" ... ({len(episodes)} of them)" if len(episodes) > 6 else "")


def trained_on(
    recording: Recording,
    aligned: Sequence[AlignedEpisode],
    frames: int,
    *,
    pairs: int | None = None,
    windows: int | None = None,
) -> TrainedOn:
    """The provenance that encoder.json keeps."""
    return TrainedOn(
        manifest_sha256=recording.manifest_sha256,
        episodes=[episode.index for episode in aligned],
        episode_sha256=[episode.sha256 for episode in aligned],
        frames=frames,
        pairs=pairs,
        windows=windows,
    )


def cached_frames(
    plan: FramePlan, image_size: int, folder: Path, progress: Progress | None = None
) -> np.ndarray:
    """The plan's frames, uint8 (n, V, S, S, 3), memory-mapped from `folder`: memory stays bounded for any
    length.

    The file is named by the plan's key and written by rename, so a killed run finds it whole or decodes
    again.
    """
    path = cache_path(folder, plan, image_size)
    shape = (plan.frames, len(plan.views), image_size, image_size, 3)
    if path.is_file():
        frames = np.load(path, mmap_mode="r", allow_pickle=False)
        if frames.shape == shape and frames.dtype == np.uint8:
            return frames
    temporary = path.with_suffix(".partial")
    with disk_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
        target = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
        _reserve(temporary, target.offset + target.nbytes)
    done = 0
    for batch in decoded(plan, image_size, progress):
        target[done : done + len(batch)] = batch
        done += len(batch)
    with disk_errors(path):
        target.flush()
        del target
        fsync_path(temporary)
        os.replace(temporary, path)
        fsync_path(folder)
    return np.load(path, mmap_mode="r", allow_pickle=False)


def decoded(plan: FramePlan, image_size: int, progress: Progress | None = None) -> Iterator[np.ndarray]:
    """The plan's frames in their order, in batches uint8 (b, V, S, S, 3)."""
    done = 0
    for episode, rows in zip(plan.aligned, plan.rows):
        for batch in episode.batches(DECODE_AT_ONCE, (image_size, image_size), rows) if len(rows) else ():
            yield batch
            done += len(batch)
            if progress:
                progress(done, plan.frames, f"reading frames, episode {episode.index}")


def _reserve(path: Path, size: int) -> None:
    """Take a file's blocks now: a full disk is an error here, and a bus error once a map is written to."""
    try:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def cache_path(folder: Path, plan: FramePlan, image_size: int) -> Path:
    """Where the frames of a plan are cached."""
    return folder / f"frames-{plan.key(image_size)[:16]}.npy"


def sample_frames(
    aligned: Sequence[AlignedEpisode], image_size: int, max_frames: int, progress: Progress | None = None
) -> np.ndarray:
    """At most `max_frames` frames spread evenly over episodes and time, uint8 (n, V, S, S, 3), in memory."""
    lengths = [len(episode) for episode in aligned]
    share = min(1.0, max_frames / sum(lengths))
    rows = [evenly_spaced(length, max(1, int(share * length))) for length in lengths]
    total = sum(map(len, rows))
    parts: list[np.ndarray] = []
    done = 0
    for episode, chosen in zip(aligned, rows):
        for batch in episode.batches(DECODE_AT_ONCE, (image_size, image_size), chosen):
            parts.append(batch)
            done += len(batch)
            if progress:
                progress(done, total, f"reading frames, episode {episode.index}")
    return np.concatenate(parts)


def channel_statistics(frames: np.ndarray) -> tuple[list[tuple[float, ...]], list[tuple[float, ...]]]:
    """Mean and standard deviation of each view's channels, on the [0, 1] scale, each (V, 3).

    Sums of uint8 are exact in integers, so the result depends on no order and no chunk size. A constant
    channel (a black camera) gets the standard deviation of one grey level instead of zero.
    """
    total = np.zeros((frames.shape[1], 3), np.int64)
    squares = np.zeros((frames.shape[1], 3), np.int64)
    count = 0
    for part in _chunks(frames, 512):
        wide = part.astype(np.int64)
        total += wide.sum(axis=(0, 2, 3))
        squares += np.square(wide).sum(axis=(0, 2, 3))
        count += part.shape[0] * part.shape[2] * part.shape[3]
    mean = total / count
    variance = np.maximum(squares / count - mean**2, 0.0)
    std = np.maximum(np.sqrt(variance), 1.0)
    return [tuple(row) for row in (mean / 255).tolist()], [tuple(row) for row in (std / 255).tolist()]


def _chunks(frames: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(frames), size):
        yield frames[start : start + size]
