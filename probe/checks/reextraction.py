"""Stored latents against latents made again: the same, or which named mistake made them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from math import ceil
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from encoders import Encoder, EpisodeLatents, LatentStore
from encoders.pairs import evenly_spaced
from hardware.alignment import AlignedEpisode, align
from hardware.checks import Check
from hardware.errors import InputError
from hardware.recording import Recording
from probe.checks.extraction import distances, typical_distance
from probe.checks.samples import common_frame_size, frames_at, sample_episodes, to_size

MATCH = 0.02  # typical distances: other devices and kernels stay below, another frame does not
SHARE = 0.01  # of all rows, made again
ROWS, EPISODES = 8, 16  # at least so many rows of an episode, of at most so many episodes
NEAR = 64  # rows to either side in which shuffled ones are looked for: a batch


@dataclass(frozen=True, eq=False)
class _Stored:
    """Sampled rows of one episode: `rows` of the aligned episode, their stored latents, and all others."""

    aligned: AlignedEpisode
    rows: NDArray[np.int64]  # (n,) of the aligned episode
    places: NDArray[np.int64]  # (n,) of the stored latents
    latents: EpisodeLatents

    @property
    def stored(self) -> NDArray[np.float32]:
        return self.latents.latent[self.places]


def check_reextraction(
    name: str,
    encoder: Encoder,
    recording: Recording,
    store: LatentStore,
    episodes: Sequence[int],
    views: Sequence[str],
) -> list[Check]:
    """Encode 1 % of the rows again, at least 8 of an episode, and compare with what is stored.

    Returns three checks: rows (the store holds one latent for each row that was to be extracted, and no frame
    twice), determinism, and identity of the latents. Where stored latents are not those made again, the
    mistakes that are known are tried on the frames, and the one that gives the stored latents is named.
    """
    counted, samples = _read(f"{name}: rows", encoder, recording, store, episodes, views)
    if not samples:
        return [counted]
    size = common_frame_size(recording, views, encoder)
    frames = [frames_at(one.aligned, one.rows, size) for one in samples]
    again = _encode(encoder, frames)
    typical = typical_distance(again)
    twice = float(distances(_encode(encoder, frames), again, typical).max())
    determinism = Check(
        f"{name}: determinism",
        "pass" if twice <= MATCH else "fail",
        f"{len(again)} rows encoded twice differ by at most {twice:.1e} typical distances",
        {"rows": len(again), "apart": twice},
        ""
        if twice <= MATCH
        else "something random is left on (dropout, augmentation): call eval() before encoding",
    )
    return [
        counted,
        determinism,
        _identity(f"{name}: re-extraction", encoder, recording, samples, frames, again, typical),
    ]


def _read(
    name: str,
    encoder: Encoder,
    recording: Recording,
    store: LatentStore,
    episodes: Sequence[int],
    views: Sequence[str],
) -> tuple[Check, list[_Stored]]:
    """Row counts of every episode, and the sample."""
    problems: dict[int, str] = {}
    read: dict[int, tuple[AlignedEpisode, NDArray[np.int64], EpisodeLatents]] = {}
    total = 0
    for index in episodes:
        try:
            latents = store.read(encoder.fingerprint, recording.episode(index).sha256)
            aligned = align(recording.episode(index), views)
        except InputError as error:
            problems[index] = str(error)
            continue
        taken = evenly_spaced(len(aligned), latents.facts.get("max_rows") or len(aligned))
        total += len(latents)
        if len(latents) != len(taken):
            problems[index] = f"{len(latents)} latents for {len(taken)} rows"
        elif not np.array_equal(latents.anchor_frame, aligned.anchor_frame[taken]):
            place = int(np.argmax(latents.anchor_frame != aligned.anchor_frame[taken]))
            problems[index] = f"from row {place} on, latents are of other frames than the rows"
        elif not np.allclose(latents.position, aligned.position[taken], rtol=0, atol=1e-6):
            place = int(np.argmax(np.abs(latents.position - aligned.position[taken]).max(axis=1) > 1e-6))
            problems[index] = f"from row {place} on, joints beside the latents are not the recording's"
        if len(latents) == len(taken):
            read[index] = (aligned, taken, latents)
    repeated = {index: count for index, one in read.items() if (count := _repeats(encoder, *one))}
    problems |= {
        index: f"{count} latents repeat the one before while the frame does not"
        for index, count in repeated.items()
        if index not in problems
    }
    chosen = sample_episodes(list(read), EPISODES)
    per = max(ROWS, ceil(SHARE * total / max(len(chosen), 1)))
    samples = [
        _Stored(aligned, taken[places], places, latents)
        for aligned, taken, latents in (read[index] for index in chosen)
        for places in [evenly_spaced(len(taken), per)]
    ]
    if not problems:
        return Check(name, "pass", f"{total:,} latents, one for each row", {"rows": total}), samples
    first = next(iter(problems))
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return (
        Check(
            name,
            "fail",
            f"episode {first}: {problems[first]}{more}",
            {"episodes": list(problems), "problems": {str(k): v for k, v in problems.items()}},
            "remove the latents of these episodes and extract them again",
        ),
        samples,
    )


def _repeats(
    encoder: Encoder, aligned: AlignedEpisode, taken: NDArray[np.int64], latents: EpisodeLatents
) -> int:
    """How many of the first 32 latents that equal the one before are of a frame that does not, as the encoder
    gets it: what changes by less than a grey level once frames are shrunk cannot reach it."""
    size = encoder.image_size or (None if _one_size(aligned) else (64, 64))
    same = np.flatnonzero(np.all(latents.latent[1:] == latents.latent[:-1], axis=1))
    count = 0
    for place in same[:32]:
        pair = frames_at(aligned, taken[[place, place + 1]], size)
        count += int(not np.array_equal(pair[0], pair[1]))
    return count


def _one_size(aligned: AlignedEpisode) -> bool:
    info = aligned.episode.info
    return len({(info.view(view).height, info.view(view).width) for view in aligned.views}) == 1


def _encode(encoder: Encoder, frames: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
    return np.concatenate([encoder.encode(to_size(part, encoder.image_size)) for part in frames])


def _identity(
    name: str,
    encoder: Encoder,
    recording: Recording,
    samples: Sequence[_Stored],
    frames: Sequence[NDArray[np.uint8]],
    again: NDArray[np.float32],
    typical: float,
) -> Check:
    stored = np.concatenate([one.stored for one in samples])
    apart = distances(again, stored, typical)
    owner = np.repeat([one.aligned.index for one in samples], [len(one.rows) for one in samples])
    wrong = sorted({int(index) for index in owner[apart > MATCH]})
    evidence: dict[str, Any] = {
        "rows": len(apart),
        "apart": {"median": float(np.median(apart)), "most": float(apart.max())},
        "episodes": wrong,
    }
    if not wrong:
        message = f"{len(apart)} rows of {len(samples)} episodes made again are what is stored"
        return Check(name, "pass", f"{message} (at most {apart.max():.1e} typical distances apart)", evidence)
    suspects = [k for k, one in enumerate(samples) if one.aligned.index in wrong]
    found, tried = _name_mistake(
        encoder, recording, [samples[k] for k in suspects], [frames[k] for k in suspects], typical
    )
    evidence["tried"] = tried
    where = f"in {len(wrong)} of {len(samples)} episodes"
    message = (
        f"stored latents are not those of their frames {where} ({(apart > MATCH).sum()} of {len(apart)} rows)"
    )
    if found:
        evidence["mistake"] = found
        return Check(
            name, "fail", f"{message}: they are {found}", evidence, "correct that, then extract again"
        )
    return Check(
        name,
        "fail",
        f"{message}; no known mistake gives them",
        evidence,
        "weights, preprocessing or library changed since, or the network was in training mode: extract again",
    )


def _name_mistake(
    encoder: Encoder,
    recording: Recording,
    samples: Sequence[_Stored],
    frames: Sequence[NDArray[np.uint8]],
    typical: float,
) -> tuple[str, dict[str, float]]:
    """The first mistake whose latents are those stored, in words, and how far off each one tried was."""
    suspects = _Suspects(encoder, recording, samples, frames, typical)
    tried: dict[str, float] = {}
    for told, distance in _mistakes(suspects):
        apart = distance()
        if apart is not None:
            tried[told] = apart
            if apart <= MATCH:
                return told, tried
    return "", tried


def _mistakes(suspects: _Suspects) -> Iterator[tuple[str, Callable[[], float | None]]]:
    """What goes wrong, in words, and how to try it; the likeliest first."""
    remade, views = suspects.remade, suspects.views
    yield "BGR: red and blue exchanged", partial(remade, lambda f: f[..., ::-1])
    for c, channel in enumerate(("red", "green", "blue")):
        yield f"of the {channel} channel only, copied into all three", partial(remade, _only_channel(c))
    for shift in (1, -1, 2, -2, 3, -3):
        rows = f"{abs(shift)} row{'s' if abs(shift) > 1 else ''}"
        yield f"of the frames {rows} {'later' if shift > 0 else 'earlier'}", partial(suspects.moved, shift)
    if len(views) <= 3:
        for order in list(permutations(range(len(views))))[1:]:
            told = f"of the views in another order ({', '.join(views[v] for v in order)})"
            yield told, partial(remade, _in_order(order))
    for step in (1, -1):
        yield f"of the episode {'after' if step > 0 else 'before'}", partial(suspects.neighbour, step)
    size = suspects.encoder.image_size
    if size is not None and suspects.frames[0].shape[2:4] != size:
        for how, code in (("nearest neighbour", cv2.INTER_NEAREST), ("bilinear", cv2.INTER_LINEAR)):
            change = partial(_resized, size=size, code=code)
            yield f"of frames resized without antialias ({how})", partial(remade, change)
    yield "of frames scaled twice, all but black", partial(remade, lambda f: f // 255)
    yield "of black frames", partial(remade, np.zeros_like)
    told = "those of other rows nearby: rows were shuffled, one was dropped or one was doubled"
    yield told, suspects.rows_nearby


@dataclass(frozen=True, eq=False)
class _Suspects:
    """Sampled rows whose stored latents are not theirs; each method gives how far (0.9 quantile over rows, in
    typical distances) the latents of a mistake are from those stored."""

    encoder: Encoder
    recording: Recording
    samples: Sequence[_Stored]
    frames: Sequence[NDArray[np.uint8]]
    typical: float

    @property
    def views(self) -> tuple[str, ...]:
        return self.samples[0].aligned.views

    @property
    def size(self) -> tuple[int, int] | None:
        return common_frame_size(self.recording, self.views, self.encoder)

    def off(self, made: Sequence[NDArray[np.uint8]], valid: NDArray[np.bool_] | None = None) -> float:
        """Of frames made anew, over the rows that are valid."""
        stored = np.concatenate([one.stored for one in self.samples])
        apart = distances(_encode(self.encoder, made), stored, self.typical)
        return float(np.quantile(apart if valid is None else apart[valid], 0.9))

    def remade(self, change: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]) -> float:
        """Of the same frames, changed."""
        return self.off([np.ascontiguousarray(change(part)) for part in self.frames])

    def moved(self, shift: int) -> float:
        """Of frames `shift` rows later."""
        rows = [one.rows + shift for one in self.samples]
        inside = [(r >= 0) & (r < len(one.aligned)) for one, r in zip(self.samples, rows)]
        made = [
            frames_at(one.aligned, np.clip(r, 0, len(one.aligned) - 1), self.size)
            for one, r in zip(self.samples, rows)
        ]
        return self.off(made, np.concatenate(inside))

    def neighbour(self, step: int) -> float | None:
        """Of the same rows of the episode `step` after; None where there is none."""
        made, valid = [], []
        indices = self.recording.episode_indices
        for one in self.samples:
            place = indices.index(one.aligned.index) + step
            other, there = one.aligned, False
            if 0 <= place < len(indices):
                try:
                    other, there = align(self.recording.episode(indices[place]), self.views), True
                except InputError:
                    pass  # it lacks a view: nobody has extracted it
            made.append(frames_at(other, np.minimum(one.rows, len(other) - 1), self.size))
            valid.append((one.rows < len(other)) & there)
        keep = np.concatenate(valid)
        return self.off(made, keep) if keep.any() else None

    def rows_nearby(self) -> float:
        """Of a few rows, from the nearest latent that is stored for a row within a batch."""
        nearest = []
        for one in self.samples[:4]:
            few = evenly_spaced(len(one.places), 4)
            made = _encode(self.encoder, [frames_at(one.aligned, one.rows[few], self.size)])
            for latent, place in zip(made, one.places[few]):
                near = one.latents.latent[max(0, place - NEAR) : place + NEAR + 1]
                nearest.append(distances(near, np.broadcast_to(latent, near.shape), self.typical).min())
        return float(np.quantile(nearest, 0.9))


def _only_channel(c: int) -> Callable[[NDArray[np.uint8]], NDArray[np.uint8]]:
    return lambda frames: frames[..., [c, c, c]]


def _in_order(order: Sequence[int]) -> Callable[[NDArray[np.uint8]], NDArray[np.uint8]]:
    return lambda frames: frames[:, list(order)]


def _resized(frames: NDArray[np.uint8], size: tuple[int, int], code: int) -> NDArray[np.uint8]:
    flat = frames.reshape(-1, *frames.shape[2:])
    small = np.stack([cv2.resize(image, size[::-1], interpolation=code) for image in flat])
    return small.reshape(*frames.shape[:2], *size, 3)
