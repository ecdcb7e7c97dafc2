"""The pipeline of extraction: one decoding for several encoders, clips, a thread that ends with its work."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from test_latents import VIEWS, MeanEncoder

from encoders import LatentStore
from encoders.encoder import Encoder, prepare_frames
from encoders.extraction import BATCH_BYTES, ahead, clips, rows_at_once
from hardware import InputError, Recording
from hardware.alignment import AlignedEpisode


class ClipEncoder(Encoder):
    """Mean colour of each frame of a clip: its latent says which frames it was given."""

    kind = "import"

    def __init__(self, frames: int, stride: int) -> None:
        self.views, self.clip_frames, self.clip_stride = tuple(VIEWS), frames, stride
        self.width = 2 * frames * 3
        self.architecture, self.preprocessing = {"frames": frames, "stride": stride}, {}

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        return []

    def encode(self, frames: np.ndarray) -> np.ndarray:
        assert frames.shape[1:3] == (2, self.clip_frames)
        return frames.mean(axis=(3, 4)).reshape(len(frames), -1).astype(np.float32)


class SizedEncoder(MeanEncoder):
    """It brings frames to its own size, as every encoder does."""

    def encode(self, frames: np.ndarray) -> np.ndarray:
        return super().encode(prepare_frames(frames, 2, self.image_size))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each decoding was asked for."""
    asked: list[int] = []
    batches = AlignedEpisode.batches

    def counted(
        self: AlignedEpisode,
        size: int,
        image_size: tuple[int, int] | None = None,
        rows: np.ndarray | None = None,
    ) -> Iterator[np.ndarray]:
        asked.append(len(self) if rows is None else len(rows))
        return batches(self, size, image_size, rows)

    monkeypatch.setattr(AlignedEpisode, "batches", counted)
    return asked


def test_several_encoders_share_one_decoding_and_give_what_each_gives_alone(
    demos: Recording, tmp_path: Path, decoded: list[int]
) -> None:
    small, other = SizedEncoder(), SizedEncoder(salt=1.0)
    other.image_size = (8, 8)
    alone, together = LatentStore(tmp_path / "alone"), LatentStore(tmp_path / "together")
    for encoder in (small, other):
        alone.extract(encoder, demos, VIEWS, [0, 1])
    assert decoded == [40] * 4
    decoded.clear()
    calls: list[tuple[int, int]] = []
    together.extract_all(
        [small, other], demos, VIEWS, [0, 1], batch_size=32, progress=lambda *call: calls.append(call[:2])
    )
    assert decoded == [40] * 2
    assert calls == [(done, 160) for done in (32, 64, 72, 80, 112, 144, 152, 160)]
    for encoder in (small, other):
        for index in (0, 1):
            sha256 = demos.episode(index).sha256
            one, same = (store.read(encoder.fingerprint, sha256) for store in (alone, together))
            np.testing.assert_array_equal(one.latent, same.latent)
            np.testing.assert_array_equal(one.time_ns, same.time_ns)


def test_what_one_of_them_has_already_is_not_done_again(
    demos: Recording, tmp_path: Path, decoded: list[int]
) -> None:
    done, new, store = MeanEncoder(), MeanEncoder(salt=1.0), LatentStore(tmp_path)
    store.extract(done, demos, VIEWS, [0])
    done.batches.clear()
    store.extract_all([done, new], demos, VIEWS, [0])
    assert done.batches == [] and new.batches == [40] and decoded == [40, 40]


class TwoLatents(MeanEncoder):
    """Colours as they are, and doubled; says what it was asked for."""

    def __init__(self, output: str, asked: list[list[str]]) -> None:
        super().__init__(salt=float(len(output)))
        self.output, self.asked = output, asked

    @property
    def pass_shared_with(self) -> object:
        return self.asked

    def encode_outputs(self, frames: np.ndarray, outputs: Sequence[str]) -> list[np.ndarray]:
        self.asked.append(list(outputs))
        one = super().encode(frames)
        return [one if name == "one" else 2 * one for name in outputs]


def test_latents_of_one_network_are_made_in_one_pass(demos: Recording, tmp_path: Path) -> None:
    asked: list[list[str]] = []
    one, double = TwoLatents("one", asked), TwoLatents("double", asked)
    other, store = MeanEncoder(salt=9.0), LatentStore(tmp_path)
    store.extract_all([one, other, double], demos, VIEWS, [0])
    assert asked == [["one", "double"]] and other.batches == [40]
    sha256 = demos.episode(0).sha256
    single, twice = (store.read(encoder.fingerprint, sha256).latent for encoder in (one, double))
    np.testing.assert_array_equal(twice, 2 * single)


@pytest.mark.parametrize(("frames", "stride"), [(2, 1), (4, 3), (3, 50)])
@pytest.mark.parametrize("max_rows", [None, 7])
def test_a_clip_ends_at_its_row_and_never_begins_before_the_episode(
    demos: Recording, tmp_path: Path, frames: int, stride: int, max_rows: int | None
) -> None:
    encoder, store = ClipEncoder(frames, stride), LatentStore(tmp_path)
    store.extract(encoder, demos, VIEWS, [0, 1], batch_size=3, max_rows=max_rows)
    for episode in demos.aligned(VIEWS, [0, 1]):
        (images,) = episode.batches(100)
        means = images.mean(axis=(2, 3)).astype(np.float32)  # (n, V, 3)
        latents = store.read(encoder.fingerprint, episode.sha256)
        rows = np.searchsorted(episode.anchor_frame, latents.anchor_frame)
        wanted = np.maximum(rows[:, None] - stride * np.arange(frames)[::-1], 0)
        np.testing.assert_array_equal(
            latents.latent.reshape(len(rows), 2, frames, 3), means[wanted].transpose(0, 2, 1, 3)
        )


def test_clips_hold_no_more_frames_than_they_need(demos: Recording) -> None:
    (episode,) = demos.aligned(VIEWS, [0])
    rows = np.array([5, 30])
    shapes = [batch.shape[:3] for batch in clips(episode, rows, 8, None, clip_frames=2, stride=2)]
    assert shapes == [(2, 2, 2)]


def test_a_batch_is_bounded_by_its_bytes(demos: Recording) -> None:
    (episode,) = demos.aligned(VIEWS, [0])
    assert rows_at_once(episode, (16, 16)) == 256
    assert rows_at_once(episode, (720, 1280)) == BATCH_BYTES // (2 * 720 * 1280 * 3) == 6
    assert rows_at_once(episode, (8000, 8000)) == 1


def test_the_first_latent_that_is_not_finite_is_named_for_its_encoder(
    demos: Recording, tmp_path: Path
) -> None:
    sound, broken = MeanEncoder(), MeanEncoder(salt=float("inf"))
    broken.architecture = {"salt": float("inf"), "name": 1}
    broken.__dict__["fingerprint"] = "ab" * 32
    with pytest.raises(InputError, match="encoder cnn abababababab, episode 0, frame 0"):
        LatentStore(tmp_path).extract_all([sound, broken], demos, VIEWS, [0])
    assert not [thread for thread in threading.enumerate() if thread.name == "decoding"]


# -- the thread --------------------------------------------------------------------------------------------


def test_items_come_in_order_and_at_most_so_many_ahead() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(20):
            made.append(number)
            yield number

    taken = []
    for number in ahead(items(), 2):
        taken.append(number)
        time.sleep(0.002)
        assert len(made) <= len(taken) + 2 + 1  # two wait, one is being put
    assert taken == list(range(20))


def test_what_fails_ahead_is_raised_where_it_is_taken() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise InputError("frame 2", "is torn")

    source = ahead(items(), 2)
    assert next(source) == 1
    with pytest.raises(InputError, match="frame 2: is torn"):
        next(source)


def test_the_thread_ends_when_nobody_takes_any_more() -> None:
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    before = threading.active_count()
    source = ahead(items(), 1)
    next(source)
    source.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert closed.wait(5.0)
