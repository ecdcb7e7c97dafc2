"""A few rows of a recording, with the frames that an encoder gets for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encoders import Encoder
from encoders.pairs import evenly_spaced
from hardware.alignment import AlignedEpisode, align
from hardware.frames import resize
from hardware.recording import Recording


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows of one episode: `rows` int (n,) of the aligned episode, their frames uint8 (n, V, H, W, 3)."""

    episode: AlignedEpisode
    rows: NDArray[np.int64]
    frames: NDArray[np.uint8]


def frames_at(
    episode: AlignedEpisode, rows: NDArray[np.int64], size: tuple[int, int] | None
) -> NDArray[np.uint8]:
    """Frames of aligned rows (in any order, repeats allowed), uint8 (n, V, H, W, 3); as recorded where no
    `size` (height, width) is given."""
    wanted, place = np.unique(rows, return_inverse=True)
    return np.concatenate(list(episode.batches(256, size, wanted)))[place.reshape(-1)]


def common_frame_size(recording: Recording, views: Sequence[str], encoder: Encoder) -> tuple[int, int] | None:
    """The size in which frames are held: as recorded where the views agree, else what the encoder takes."""
    sizes = {(recording.info.view(view).height, recording.info.view(view).width) for view in views}
    return None if len(sizes) == 1 else encoder.image_size


def sample_episodes(episodes: Sequence[int], most: int) -> list[int]:
    """At most `most` of the episodes, spread evenly."""
    return [episodes[place] for place in evenly_spaced(len(episodes), most)]


def take_sample(
    recording: Recording, views: Sequence[str], episode: int, count: int, size: tuple[int, int] | None
) -> Sample:
    """`count` rows spread evenly over an episode."""
    aligned = align(recording.episode(episode), views)
    rows = evenly_spaced(len(aligned), count)
    return Sample(aligned, rows, frames_at(aligned, rows, size))


def to_size(frames: NDArray[np.uint8], size: tuple[int, int] | None) -> NDArray[np.uint8]:
    """Frames (n, V, H, W, 3) at the size an encoder takes, as extraction resizes them."""
    if size is None or frames.shape[2:4] == size:
        return frames
    flat = frames.reshape(-1, *frames.shape[2:])
    return np.stack([resize(image, size) for image in flat]).reshape(*frames.shape[:2], *size, 3)
