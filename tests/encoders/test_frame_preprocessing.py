"""Our pixel steps beside the processors of transformers, pixel by pixel, and the proof that guards them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from encoders.frame_preprocessing import (
    PixelSteps,
    compare,
    hard_frames,
    pixel_values,
    steps_of_processor,
)

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SHORTEST, EXACT = {"shortest_edge": 36}, {"height": 30, "width": 34}
WINDOW = {"height": 32, "width": 30}

PROCESSORS: dict[str, Any] = {
    "DINOv2": transformers.BitImageProcessor(size=SHORTEST, crop_size=WINDOW, image_mean=MEAN, image_std=STD),
    "DINOv3": transformers.DINOv3ViTImageProcessor(size=EXACT),
    "SigLIP": transformers.SiglipImageProcessor(size=EXACT),
    "CLIP": transformers.CLIPImageProcessor(size=SHORTEST, crop_size=WINDOW),
    "ViT": transformers.ViTImageProcessor(size=EXACT),
    "ConvNeXt, cut out": transformers.ConvNextImageProcessor(size={"shortest_edge": 36}, crop_pct=0.875),
    "ConvNeXt, warped": transformers.ConvNextImageProcessor(size={"shortest_edge": 384}),
    "as it is": transformers.ViTImageProcessor(do_resize=False),
    "no scale": transformers.ViTImageProcessor(size=EXACT, do_rescale=False, image_mean=MEAN, image_std=STD),
    "not normalised": transformers.ViTImageProcessor(size=EXACT, do_normalize=False),
}


def _processed(processor: Any, frames: np.ndarray) -> torch.Tensor:
    values: torch.Tensor = processor(list(frames), return_tensors="pt", input_data_format="channels_last")[
        "pixel_values"
    ]
    return values


def _grey(steps: PixelSteps) -> torch.Tensor:
    return torch.tensor(steps.std).view(1, 3, 1, 1) / steps.scale


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("size", [(48, 64), (64, 48), (57, 61), (37, 90), (36, 36)])
def test_our_steps_give_the_pixels_of_the_tensor_processor(name: str, size: tuple[int, int]) -> None:
    frames = hard_frames(*size, 4)
    steps = steps_of_processor(PROCESSORS[name])
    assert steps is not None
    ours, theirs = pixel_values(torch.from_numpy(frames), steps), _processed(PROCESSORS[name], frames)
    assert ours.shape == theirs.shape and ours.dtype == torch.float32
    apart = float(((ours - theirs) * _grey(steps)).abs().max())
    assert apart < (1.6 if name == "DINOv3" else 1e-3)  # DINOv3's resizes in floats


@pytest.mark.parametrize("size", [(48, 64), (120, 90)])
def test_our_steps_are_within_two_levels_of_pillow(size: tuple[int, int]) -> None:
    settings: dict[str, Any] = {"size": SHORTEST, "crop_size": WINDOW, "image_mean": MEAN, "image_std": STD}
    frames = hard_frames(*size, 4)
    steps = steps_of_processor(transformers.BitImageProcessor(**settings))
    assert steps is not None
    theirs = _processed(transformers.BitImageProcessorPil(**settings), frames)
    assert float(((pixel_values(torch.from_numpy(frames), steps) - theirs) * _grey(steps)).abs().max()) < 2.01


def test_sizes_by_hand() -> None:
    steps = PixelSteps(256, "bicubic", (224, 224))
    assert steps.resized(480, 640) == (256, 341) and steps.window(256, 341) == (16, 58, 224, 224)
    assert steps.resized(640, 480) == (341, 256) and steps.window(341, 256) == (58, 16, 224, 224)
    assert steps.resized(480, 480) == (256, 256)
    even = PixelSteps(256, "bicubic", (224, 224), centre="even")
    assert even.window(227, 229) == (2, 2, 224, 224)  # 1.5 to 2, 2.5 to 2
    assert steps.window(227, 229) == (1, 2, 224, 224)
    with pytest.raises(ValueError, match="cannot be cut out"):
        steps.window(200, 300)


def test_a_constant_frame_is_normalised_as_the_formula_says() -> None:
    frame = np.empty((1, 20, 30, 3), np.uint8)
    frame[...] = (10, 100, 250)
    values = pixel_values(torch.from_numpy(frame), PixelSteps((8, 9), "bilinear", None, mean=MEAN, std=STD))
    assert values.shape == (1, 3, 8, 9)
    for channel, level in enumerate((10, 100, 250)):
        expected = (level / 255 - MEAN[channel]) / STD[channel]
        np.testing.assert_allclose(values[0, channel], expected, atol=1e-6)


def test_settings_that_are_not_ours_have_no_steps() -> None:
    nearest = transformers.ViTImageProcessor(size=EXACT, resample=0)
    lanczos = transformers.ViTImageProcessor(size=EXACT, resample=1)
    both = transformers.ViTImageProcessor(size={"shortest_edge": 30, "longest_edge": 40})
    assert [steps_of_processor(one) for one in (nearest, lanczos, both)] == [None] * 3


def _flat(values: torch.Tensor) -> torch.Tensor:
    return values.flatten(1)


def test_compare_tells_another_filter_another_window_and_another_channel_order() -> None:
    processor = PROCESSORS["DINOv2"]
    steps = steps_of_processor(processor)
    assert steps is not None
    same = compare(steps, lambda frames: _processed(processor, frames), _flat, (48, 64), 4)
    assert same.equal and same.grey_levels < 1e-3 and same.cosine == 1.0
    others = {
        "filter": transformers.BitImageProcessor(
            size=SHORTEST, crop_size=WINDOW, image_mean=MEAN, image_std=STD, resample=2
        ),
        "window": transformers.BitImageProcessor(
            size={"shortest_edge": 37}, crop_size=WINDOW, image_mean=MEAN, image_std=STD
        ),
    }
    for name, other in others.items():
        found = compare(steps, lambda frames, other=other: _processed(other, frames), _flat, (48, 64), 4)
        assert not found.equal and found.grey_levels > 10, name
    swapped = compare(steps, lambda frames: _processed(processor, frames)[:, [2, 1, 0]], _flat, (48, 64), 4)
    assert not swapped.equal
    shape = compare(steps, lambda frames: _processed(processor, frames)[:, :, 1:], _flat, (48, 64), 4)
    assert math.isinf(shape.grey_levels) and not shape.equal
    larger = compare(steps, lambda frames: _processed(processor, frames), _flat, (48, 20), 4)
    assert larger.equal  # the shorter side is enlarged to 36 first
    assert "grey levels apart at most" in str(same)


def test_compare_looks_at_latents_where_pixels_differ_a_little() -> None:
    """A network that blows half a grey level up is not given other pixels."""
    processor = PROCESSORS["DINOv2"]
    steps = steps_of_processor(processor)
    assert steps is not None
    grey = 1 / 255 / torch.tensor(STD).view(1, 3, 1, 1)

    def shifted(frames: np.ndarray) -> torch.Tensor:
        return _processed(processor, frames) + 0.5 * grey

    def sensitive(values: torch.Tensor) -> torch.Tensor:
        fraction = values / grey + 255 * torch.tensor(MEAN).view(1, 3, 1, 1)
        return torch.cos(2 * torch.pi * fraction).flatten(1)  # 1 for whole grey levels, -1 half way between

    calm = compare(steps, shifted, _flat, (48, 64), 4)
    assert calm.equal and calm.grey_levels == pytest.approx(0.5, abs=1e-3) and 0.9999 < calm.cosine < 1
    wild = compare(steps, shifted, sensitive, (48, 64), 4)
    assert not wild.equal and wild.grey_levels == pytest.approx(0.5, abs=1e-3) and wild.cosine < -0.9


def test_hard_frames_are_the_same_everywhere_and_hard() -> None:
    first, again = hard_frames(48, 64, 6), hard_frames(48, 64, 6)
    np.testing.assert_array_equal(first, again)
    assert first.shape == (6, 48, 64, 3) and first.dtype == np.uint8
    assert first[0].std() > 70 and set(np.unique(first[1])) == {0, 255}
    assert len(np.unique(first[2, :, 0, 0])) == 48 and len(np.unique(first[3].reshape(-1, 3), axis=0)) > 4
