"""Frames to what a frozen network reads: our own steps on tensors, and the proof that they are the published.

A published processor works image by image, on planes that it has to copy together first. The same steps on
the frames as they lie in memory (rows of RGB pixels) take a quarter of the time. They are used only where
they are proven: `compare` holds both against each other on frames chosen to be hard.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch.nn import functional

INTERPOLATIONS: dict[int, Literal["bilinear", "bicubic"]] = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
KERNELS = {
    "bilinear": (torch.ops.aten._upsample_bilinear2d_aa, 1),
    "bicubic": (torch.ops.aten._upsample_bicubic2d_aa, 2),
}
"""What torch.nn.functional.interpolate(antialias=True) calls, and how many pixels to each side it reads."""
MOST_GREY_LEVELS = 2.01
"""A resize rounds to whole levels after each of its two passes; in each, libraries may differ by one."""
LEAST_COSINE = 0.9999
SAME_PIXELS = 0.01  # grey levels; nearer than that, pixels are the same up to the order of additions


@dataclass(frozen=True)
class PixelSteps:
    """Resize with antialiasing, cut out the centre, then (scale * grey level - mean) / std a channel.

    Attributes
    ----------
    resize : (height, width), or the length of the shorter side, or None: as it is.
    interpolation : `bilinear` or `bicubic`, as Pillow's antialiased filters of these names.
    crop : (height, width) cut from the centre, or None.
    centre : whether half a pixel is rounded down or to even, which is where the two libraries differ.
    """

    resize: tuple[int, int] | int | None
    interpolation: Literal["bilinear", "bicubic"]
    crop: tuple[int, int] | None
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    centre: Literal["down", "even"] = "down"

    def resized(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) of a frame after its resize."""
        if self.resize is None:
            return height, width
        if isinstance(self.resize, tuple):
            return self.resize
        longer = int(self.resize * max(height, width) / min(height, width))
        return (self.resize, longer) if height <= width else (longer, self.resize)

    def window(self, height: int, width: int) -> tuple[int, int, int, int]:
        """(top, left, height, width) of what is cut out of a resized frame; ValueError where it is larger."""
        if self.crop is None:
            return 0, 0, height, width
        if self.crop[0] > height or self.crop[1] > width:
            raise ValueError(f"{self.crop} cannot be cut out of {(height, width)}")
        whole = int if self.centre == "down" else round
        return whole((height - self.crop[0]) / 2), whole((width - self.crop[1]) / 2), *self.crop


def steps_of_processor(processor: Any) -> PixelSteps | None:
    """The steps that a processor of transformers is set to, None where they are not of this kind.

    What a processor does beyond its settings shows in `compare` and not here.
    """
    size, crop = getattr(processor, "size", None) or {}, getattr(processor, "crop_size", None) or {}
    interpolation = INTERPOLATIONS.get(int(getattr(processor, "resample", None) or 0))
    resize = _height_width(size) or _length(size, "shortest_edge")
    window = _height_width(crop) if getattr(processor, "do_center_crop", False) else None
    share = getattr(processor, "crop_pct", None)
    if share and isinstance(resize, int):  # ConvNeXt: a window of this size, of a frame that is larger
        resize, window = (int(resize / share), (resize, resize)) if resize < 384 else ((resize, resize), None)
    if not getattr(processor, "do_resize", False):
        resize = None
    if (
        interpolation is None
        or (resize is None and getattr(processor, "do_resize", False))
        or _length(size, "longest_edge")
    ):
        return None
    normalises = getattr(processor, "do_normalize", False)
    mean, std = (
        (_by_channel(processor.image_mean), _by_channel(processor.image_std))
        if normalises
        else ((0.0,) * 3, (1.0,) * 3)
    )
    scale = float(processor.rescale_factor) if getattr(processor, "do_rescale", False) else 1.0
    return PixelSteps(resize, interpolation, window, scale, mean, std)


def pixel_values(images: torch.Tensor, steps: PixelSteps) -> torch.Tensor:
    """What the network reads of frames: float32 (n, 3, h, w), channels last in memory.

    Parameters
    ----------
    images : uint8 (n, H, W, 3), contiguous, on the CPU: only there torch resizes in whole grey levels, as
        Pillow does and the same on every machine. In floats overshoots at edges are not cut off between the
        two passes, which moves pixels of a bicubic resize by up to 20 levels.

    Raises
    ------
    ValueError : the window is larger than the frame.
    """
    height, width = steps.resized(*images.shape[1:3])
    top, left, rows, columns = steps.window(height, width)
    # (scale x - mean) / std = x factor + offset; one row of pixels, R G B R G B ...
    std = torch.tensor(steps.std, dtype=torch.float64)
    factor = (steps.scale / std).float().repeat(columns)
    offset = (-torch.tensor(steps.mean, dtype=torch.float64) / std).float().repeat(columns)
    out = torch.empty((len(images), rows, columns, 3), dtype=torch.float32)
    for image, target in zip(images.split(1), out):  # one by one: it stays in the processor's cache
        small = _resized(image, (height, width), steps.interpolation, (top + rows, left + columns))
        flat = target.view(rows, 3 * columns)
        flat.copy_(small[top:, left:].reshape(rows, 3 * columns))
        torch.addcmul(offset, flat, factor, out=flat)
    return out.permute(0, 3, 1, 2)


def _resized(
    image: torch.Tensor, size: tuple[int, int], interpolation: str, wanted: tuple[int, int]
) -> torch.Tensor:
    """The top left `wanted` (h, w) of an image uint8 (1, H, W, 3) resized to `size`; uint8 (h, w, 3).

    What lies further down and to the right is not computed, and rows that only it needs are not read.
    """
    if image.shape[1:3] == size:
        return image[0, : wanted[0], : wanted[1]]
    kernel, reach = KERNELS[interpolation]
    shrink = [before / after for before, after in zip(image.shape[1:3], size)]
    rows = math.ceil(shrink[0] * wanted[0] + reach * max(shrink[0], 1.0)) + 1
    planes = image[:, :rows].permute(0, 3, 1, 2)  # a view: pixels stay where they are
    small: torch.Tensor = kernel(planes, list(wanted), False, *(1 / ratio for ratio in shrink))
    return small[0].permute(1, 2, 0)


@dataclass(frozen=True)
class Comparison:
    """How far our pixels and latents are from the published ones, at most.

    Attributes
    ----------
    grey_levels : largest difference of a pixel; infinite where shapes differ.
    cosine : smallest between latents; 1 where the pixels are the same.
    """

    grey_levels: float
    cosine: float

    @property
    def equal(self) -> bool:
        return self.grey_levels <= MOST_GREY_LEVELS and self.cosine >= LEAST_COSINE

    def __str__(self) -> str:
        return f"{self.grey_levels:.3g} grey levels apart at most, cosine of latents {self.cosine:.6f}"


def compare(
    steps: PixelSteps,
    published: Callable[[np.ndarray], torch.Tensor],
    latents: Callable[[torch.Tensor], torch.Tensor],
    size: tuple[int, int],
    count: int,
) -> Comparison:
    """Our steps beside the published processor, on hard frames of the size recorded.

    Parameters
    ----------
    published : pixel values (n, 3, h, w) of frames uint8 (n, H, W, 3).
    latents : latents (k, D) of such pixel values.
    count : frames that are looked at; a clip encoder needs a multiple of its frames.
    """
    frames = hard_frames(*size, count)
    theirs = published(frames).float()
    try:
        ours = pixel_values(torch.from_numpy(frames), steps)
    except ValueError:
        return Comparison(float("inf"), 0.0)
    if ours.shape != theirs.shape:
        return Comparison(float("inf"), 0.0)
    grey = torch.tensor(steps.std).view(1, 3, 1, 1) / steps.scale
    apart = float(((ours - theirs) * grey).abs().max())
    if not apart <= MOST_GREY_LEVELS or apart < SAME_PIXELS:
        return Comparison(apart, 1.0 if apart < SAME_PIXELS else 0.0)
    pairs = latents(ours).double().cpu(), latents(theirs).double().cpu()
    return Comparison(apart, float(functional.cosine_similarity(*pairs).min()))


def hard_frames(height: int, width: int, count: int) -> np.ndarray:
    """Noise, fine edges, slow gradients, and bright bars on black, in turn; uint8 (count, height, width, 3).

    Noise shows another filter, edges its overshoot and clipping, gradients an offset of the window.
    """
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:height, :width]
    frames = np.empty((count, height, width, 3), np.uint8)
    for number in range(count):
        if number % 4 == 0:
            frames[number] = rng.integers(0, 256, (height, width, 3))
        elif number % 4 == 1:
            period = 3 + number
            frames[number] = (255 * ((rows // period + columns // period) % 2))[..., None]
        elif number % 4 == 2:
            ramps = [rows / height, columns / width, (rows + columns) / (height + width)]
            frames[number] = np.round(255 * np.stack(ramps, axis=-1))
        else:
            bars = (columns * 7 // width)[..., None] >> np.arange(3)
            frames[number] = np.where(rows[..., None] > height // 3, 255 * (bars % 2), 0)
    return frames


def _length(size: Any, name: str) -> int | None:
    found = size.get(name) if isinstance(size, dict) else getattr(size, name, None)
    return int(found) if found else None


def _height_width(size: Any) -> tuple[int, int] | None:
    height, width = _length(size, "height"), _length(size, "width")
    return (height, width) if height and width else None


def _by_channel(value: Any) -> tuple[float, ...]:
    values = [value] * 3 if isinstance(value, (int, float)) else value
    return tuple(float(one) for one in values)
