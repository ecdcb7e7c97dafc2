"""What bf16 costs: the share of a joint's variance that rounding moves, against its definition."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from checked_recording import EVALUATE, TRAIN, VIEWS

from encoders import Encoder, LatentStore, load_encoder
from hardware.recording import Recording
from probe.checks import check_extraction
from probe.checks.precision import MOST_SHARE, check_precision
from probe.clusters import EpisodeClusters


class Rounded(Encoder):
    """Latents that stand beside the frames; off by `error` unless they are asked for in fp32."""

    kind, views, architecture, preprocessing = "import", None, {}, {}

    def __init__(self, latents: np.ndarray, error: np.ndarray | float) -> None:
        self.latents, self.error, self.width = latents, error, latents.shape[1]

    def tensors(self) -> Iterable[tuple[str, torch.Tensor]]:
        return []

    def encode(self, frames: np.ndarray) -> np.ndarray:
        return (self.latents + self.error).astype(np.float32)

    def in_fp32(self) -> Encoder:
        return Rounded(self.latents, 0.0)


@pytest.mark.parametrize("times", [0.8, 1.2])
def test_the_share_is_that_of_the_joints_variance(times: float) -> None:
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(600, 5)), rng.normal(size=(5, 3))
    y = x @ weights
    error = rng.normal(size=(40, 5))
    wanted = np.square(error @ weights).mean(axis=0) / y.var(axis=0)
    error *= np.sqrt(times * MOST_SHARE / wanted[:2].max())  # the third joint is not looked at
    check = check_precision(
        "p",
        Rounded(rng.normal(size=(40, 5)), error),
        np.zeros((40, 1, 8, 8, 3), np.uint8),
        x.astype(np.float32),
        y,
        EpisodeClusters.of(np.repeat(np.arange(6), 100)),
        np.array([True, True, False]),
    )
    assert check is not None and check.state == ("pass" if times < 1 else "warn")
    expected = wanted[:2] * times * MOST_SHARE / wanted[:2].max()
    np.testing.assert_allclose(check.evidence["share_of_variance"], expected, rtol=0.01)


def test_a_frozen_network_in_bf16_is_held_against_itself_in_fp32(
    recording: Recording, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    config = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14
    )
    transformers.Dinov2Model(config).save_pretrained(tmp_path / "dinov2")
    size = {"size": {"shortest_edge": 32}, "crop_size": {"height": 28, "width": 28}}
    transformers.BitImageProcessor(**size).save_pretrained(tmp_path / "dinov2")
    store, names = LatentStore(tmp_path / "latents"), {}
    for precision in ("fp32", "bf16"):
        encoder = load_encoder(
            f"transformers:{tmp_path / 'dinov2'}", views=VIEWS, device="cpu", precision=precision
        )
        store.extract(encoder, recording, VIEWS)
        checks = check_extraction("z", encoder, recording, store, TRAIN, EVALUATE, VIEWS)
        names[precision] = {check.name: check for check in checks}
        exact = encoder.in_fp32()
        if precision == "fp32":
            same = encoder.fingerprint
            assert exact is None
        else:
            assert exact is not None and exact.fingerprint == same != encoder.fingerprint
    assert "z: precision" not in names["fp32"]
    found = names["bf16"]["z: precision"]
    assert found.state in ("pass", "warn") and 0 < max(found.evidence["share_of_variance"]) < 1
