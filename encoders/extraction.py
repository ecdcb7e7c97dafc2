"""Frames to latents as a pipeline: a thread decodes the next frames while encoders work on these.

Decoding releases Python's lock, and so does an encoder's arithmetic, so that both keep a core busy; on a GPU
decoding costs no time at all as long as it is faster than the network. Memory is bounded by the few batches
under way, whatever the length of a recording. Several encoders work on the same decoded frames.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from encoders.encoder import Encoder
from hardware.alignment import AlignedEpisode
from hardware.errors import InputError
from hardware.recording import Progress

BATCH_BYTES = 32 << 20  # of frames as decoded
MOST_ROWS = 256
DECODED_AHEAD = 2  # batches

T = TypeVar("T")


@dataclass(frozen=True)
class Work:
    """An episode and the rows of it that are wanted, rising int64 (n,)."""

    episode: AlignedEpisode
    rows: np.ndarray


def encoded(
    encoders: Sequence[Encoder],
    work: Sequence[Work],
    *,
    image_size: tuple[int, int] | None,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Iterator[list[np.ndarray]]:
    """Latents float32 (n, D), one array an encoder, episode after episode of `work`.

    Parameters
    ----------
    encoders : at least one; all with the same clips.
    image_size : (height, width) that frames are decoded to; None keeps them as recorded. Encoders bring them
        to their own size.
    batch_size : rows decoded at once; None takes as many as fit 32 MiB, 256 at most.
    progress : called after each batch with rows encoded, rows in all, and what is done.

    Raises
    ------
    InputError : a latent that is not finite; encoder, episode and frame are named.
    """
    passes = _by_pass(encoders)
    done, total = 0, sum(len(one.rows) for one in work) * len(encoders)
    for one, batches in _by_episode(work, _decoded(encoders[0], work, image_size, batch_size)):
        out = [np.empty((len(one.rows), encoder.width), np.float32) for encoder in encoders]
        start = 0
        for frames in batches:
            rows = one.rows[start : start + len(frames)]
            for places in passes:
                together = [encoders[place] for place in places]
                for place, latents in zip(places, _encoded_together(together, frames, one.episode, rows)):
                    out[place][start : start + len(frames)] = latents
                done += len(frames) * len(places)
                if progress:
                    progress(done, total, f"encoding {together[0].kind}, episode {one.episode.index}")
            start += len(frames)
        yield out


def _by_pass(encoders: Sequence[Encoder]) -> list[list[int]]:
    """Places of encoders that are latents of one network, which is run once for all of them."""
    shared: dict[int, list[int]] = {}
    for place, encoder in enumerate(encoders):
        shared.setdefault(id(encoder.pass_shared_with), []).append(place)
    return list(shared.values())


def _encoded_together(
    encoders: Sequence[Encoder], frames: np.ndarray, episode: AlignedEpisode, rows: np.ndarray
) -> list[np.ndarray]:
    found = encoders[0].encode_outputs(frames, [encoder.output for encoder in encoders])
    return [_checked(encoder, latents, episode, rows) for encoder, latents in zip(encoders, found)]


def _checked(encoder: Encoder, latents: np.ndarray, episode: AlignedEpisode, rows: np.ndarray) -> np.ndarray:
    bad = np.flatnonzero(~np.isfinite(latents).all(axis=1))
    if len(bad):
        frame = int(episode.anchor_frame[rows[bad[0]]])
        raise InputError(
            f"encoder {encoder.kind} {encoder.fingerprint[:12]}, episode {episode.index}, frame {frame}",
            f"its latent is not finite ({len(bad)} of {len(latents)} rows in this batch)",
            "the weights or the frame are damaged; nothing of this episode was kept",
        )
    return latents


# -- decoding ----------------------------------------------------------------------------------------------


def _decoded(
    encoder: Encoder, work: Sequence[Work], image_size: tuple[int, int] | None, batch_size: int | None
) -> Iterator[tuple[int, np.ndarray]]:
    """(place in `work`, frames) of every batch, decoded ahead in a thread."""

    def all_batches() -> Iterator[tuple[int, np.ndarray]]:
        for place, one in enumerate(work):
            size = batch_size or rows_at_once(one.episode, image_size)
            for frames in clips(
                one.episode, one.rows, size, image_size, encoder.clip_frames, encoder.clip_stride
            ):
                yield place, frames

    return ahead(all_batches(), DECODED_AHEAD)


def rows_at_once(episode: AlignedEpisode, image_size: tuple[int, int] | None) -> int:
    """As many rows as fit `BATCH_BYTES` once they are decoded."""
    info = episode.episode.info
    pixels = [(image_size or (info.view(view).height, info.view(view).width)) for view in episode.views]
    bytes_a_row = 3 * sum(height * width for height, width in pixels)
    return max(1, min(MOST_ROWS, BATCH_BYTES // bytes_a_row))


def clips(
    episode: AlignedEpisode,
    rows: np.ndarray,
    size: int,
    image_size: tuple[int, int] | None,
    clip_frames: int = 1,
    stride: int = 1,
) -> Iterator[np.ndarray]:
    """Batches of frames, uint8 (b, V, H, W, 3); of clips that end at each row, (b, V, T, H, W, 3).

    A clip holds every `stride`-th row up to the one it is for. Before the episode's first row there is
    nothing: there that row stands in, as if the arm had stood still.
    """
    if clip_frames == 1:
        yield from episode.batches(size, image_size, rows)
        return
    wanted = np.maximum(rows[:, None] + stride * np.arange(1 - clip_frames, 1), 0)  # (n, T)
    needed = np.unique(wanted)
    seen: dict[int, np.ndarray] = {}
    batch: list[np.ndarray] = []
    done, decoded = 0, 0
    for frames in episode.batches(size, image_size, needed):
        for image in frames:
            row = int(needed[decoded])
            seen[row], decoded = image, decoded + 1
            if done == len(rows) or row != rows[done]:
                continue
            batch.append(np.stack([seen[int(one)] for one in wanted[done]], axis=1))  # (V, T, H, W, 3)
            done += 1
            first = int(wanted[done, 0]) if done < len(rows) else row + 1
            for old in [one for one in seen if one < first]:
                del seen[old]
            if len(batch) == size:
                yield np.stack(batch)
                batch = []
    if batch:
        yield np.stack(batch)


def _by_episode(
    work: Sequence[Work], batches: Iterator[tuple[int, np.ndarray]]
) -> Iterator[tuple[Work, Iterator[np.ndarray]]]:
    """Each episode with its own batches, also one that has none; they must be taken in order."""
    held: list[tuple[int, np.ndarray]] = []

    def of(place: int) -> Iterator[np.ndarray]:
        while True:
            if not held:
                following = next(batches, None)
                if following is None:
                    return
                held.append(following)
            if held[0][0] != place:
                return
            yield held.pop()[1]

    for place, one in enumerate(work):
        yield one, of(place)


class _End:
    """Behind the last item; with the error that came in its place, if any."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def ahead(items: Iterator[T], depth: int) -> Iterator[T]:
    """The same items, made in a thread that is at most `depth` of them ahead.

    What making them raises is raised here. Whoever stops taking them ends the thread.
    """
    made: queue.Queue[T | _End] = queue.Queue(depth)
    unwanted = threading.Event()

    def put(item: T | _End) -> bool:
        while not unwanted.is_set():
            try:
                made.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def make() -> None:
        try:
            for item in items:
                if not put(item):
                    return
            put(_End())
        except BaseException as error:  # the taker's to see, whatever it is
            put(_End(error))

    thread = threading.Thread(target=make, name="decoding", daemon=True)
    thread.start()
    try:
        while True:
            item = made.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        unwanted.set()
        thread.join()
