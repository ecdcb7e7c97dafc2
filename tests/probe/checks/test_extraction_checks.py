"""Extraction: each mistake on the way from frames to latents is named, and a clean extraction passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from checked_recording import EVALUATE, TRAIN, VIEWS, Extracted, Mistaken, tiny_encoder

from encoders import Encoder, LatentStore
from hardware.checks import Look
from hardware.recording import Recording
from probe.checks import check_extraction
from probe.checks.extraction import (
    check_batches,
    check_channels,
    check_preprocessed,
    check_views_reach,
)
from probe.checks.latents import check_collapse, check_finite


@pytest.fixture(scope="module")
def frames(recording: Recording) -> np.ndarray:
    """A few rows of every episode, uint8 (16, 2, 64, 64, 3)."""
    aligned = recording.aligned(VIEWS)
    return np.concatenate([next(iter(one.batches(2, None, np.array([40, 100])))) for one in aligned])


def test_a_clean_extraction_passes(extracted: Extracted, recording: Recording, looks: list[Look]) -> None:
    store = LatentStore(extracted.folder)
    checks = check_extraction("z", extracted.encoder, recording, store, TRAIN, EVALUATE, VIEWS, looks=looks)
    assert [check for check in checks if check.alarm] == []
    assert [check.name for check in checks if check.state == "not testable"] == ["z: calibration step"]
    assert all(check.name.startswith("z: ") for check in checks)


@pytest.mark.parametrize(
    ("channels", "deaf"), [([0, 0, 0], "green and blue"), ([0, 1, 1], "blue"), ([2, 2, 2], "red and green")]
)
def test_a_channel_that_does_not_arrive_is_named(
    extracted: Extracted, frames: np.ndarray, channels: list[int], deaf: str
) -> None:
    assert check_channels("c", extracted.encoder, frames).state == "pass"
    check = check_channels("c", Mistaken(extracted.encoder, lambda f: f[..., channels]), frames)
    assert check.state == "fail"
    assert check.message.startswith(deaf)


def test_grey_encoders_and_grey_frames_are_told_apart(extracted: Extracted, frames: np.ndarray) -> None:
    def grey(f: np.ndarray) -> np.ndarray:
        return np.repeat(f.mean(axis=-1, keepdims=True).round().astype(np.uint8), 3, axis=-1)

    encoder = Mistaken(extracted.encoder, grey)
    assert check_channels("c", encoder, frames).state == "warn"
    encoder.preprocessing["colour"] = "grey"
    assert check_channels("c", encoder, frames).state == "pass"
    on_grey = check_channels("c", extracted.encoder, grey(frames))
    assert on_grey.state == "not testable" and "frames themselves are grey" in on_grey.message


def test_a_view_that_does_not_arrive_is_named(extracted: Extracted, frames: np.ndarray) -> None:
    assert check_views_reach("v", extracted.encoder, frames).state == "pass"
    check = check_views_reach("v", Mistaken(extracted.encoder, lambda f: f[:, [0, 0]]), frames)
    assert (check.state, check.message) == ("fail", "latents do not move with wrist")


def test_batch_norm_in_training_mode_is_named(recording: Recording, frames: np.ndarray) -> None:
    encoder = tiny_encoder(recording)
    assert check_batches("b", encoder, frames).state == "pass"
    encoder.network.train()
    check = check_batches("b", encoder, frames)
    assert check.state == "fail"
    assert "training mode" in check.remedy


def test_batch_statistics_are_named_where_single_frames_pass(
    extracted: Extracted, frames: np.ndarray
) -> None:
    def brightened(f: np.ndarray) -> np.ndarray:
        return (f - f.mean() + 127).clip(0, 255).astype(np.uint8)

    check = check_batches("b", Mistaken(extracted.encoder, brightened), frames)
    assert check.state == "fail"
    assert "statistics taken from the batch" in check.remedy


def test_chance_in_the_encoder_is_named(extracted: Extracted, frames: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    noisy = Mistaken(extracted.encoder, lambda f: f // 2 + rng.integers(0, 100, f.shape).astype(np.uint8))
    check = check_batches("b", noisy, frames)
    assert (check.state, "chance" in check.remedy) == ("fail", True)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (lambda f: f.astype(np.float32), "unscaled"),
        (lambda f: f / 255.0 / 255.0, "scaled twice"),
        (lambda f: f / 255.0 + 9, "far from 0"),
        (lambda f: (f / 255.0 - 0.5) / 0.25, ""),
    ],
)
def test_what_the_network_reads(
    extracted: Extracted, frames: np.ndarray, values: Callable[[np.ndarray], np.ndarray], said: str
) -> None:
    encoder = Mistaken(extracted.encoder, lambda f: f)
    assert check_preprocessed("p", encoder, frames).state == "not testable"
    encoder.preprocessed = values  # type: ignore[attr-defined]
    check = check_preprocessed("p", encoder, frames)
    assert check.state == ("fail" if said else "pass")
    assert said in check.message


def test_latents_that_are_not_numbers_or_do_not_move() -> None:
    z = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    assert check_finite("f", z, z).state == "pass"
    assert check_collapse("f", z).state == "pass"
    bad, still = z.copy(), z.copy()
    bad[3, 1], still[:, 2] = np.nan, 5.0
    assert check_finite("f", z, bad).evidence["not_finite"] == 1
    assert check_collapse("f", still).evidence["collapsed"] == 1


class Clips(Encoder):
    """Colours of the two frames of a clip, at a few places."""

    kind, clip_frames = "import", 2

    def __init__(self) -> None:
        self.views, self.width = tuple(VIEWS), 2 * 2 * 16 * 3
        self.architecture, self.preprocessing = {}, {}

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        return []

    def encode(self, frames: np.ndarray) -> np.ndarray:
        assert frames.ndim == 6 and frames.shape[1:3] == (2, 2)
        places = frames[:, :, :, ::16, ::16][:, :, :, :4, :4]
        return places.reshape(len(frames), -1).astype(np.float32) / 255


def test_an_encoder_of_clips_is_checked_on_clips_that_stand_still(
    recording: Recording, tmp_path: Path
) -> None:
    encoder, store = Clips(), LatentStore(tmp_path)
    store.extract(encoder, recording, VIEWS, [*TRAIN, *EVALUATE])
    found = check_extraction("clips", encoder, recording, store, TRAIN, EVALUATE, VIEWS)
    state = {check.name.removeprefix("clips: "): check.state for check in found}
    assert state["channels"] == state["views"] == state["batch independence"] == "pass"
    assert state["re-extraction"] == "not testable"
