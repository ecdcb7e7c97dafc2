"""The raw-pixel baseline: principal components of small frames, fitted on training frames only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import scipy.linalg
import torch
from pydantic import BaseModel, ConfigDict, Field

from encoders.encoder import Encoder, check_views, prepare_frames
from hardware.errors import InputError
from hardware.schema import parse_model


class PixelsArchitecture(BaseModel):
    """What encoder.json says under `architecture`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["pca"] = "pca"
    components: int = Field(ge=1)


class PixelsPreprocessing(BaseModel):
    """Resize by area to `image_size`, scale to [0, 1], flatten all views and channels into one vector."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image_size: tuple[int, int]
    resize: Literal["area"] = "area"
    colour: Literal["rgb"] = "rgb"


class PixelsEncoder(Encoder):
    """z = W (x - mean): projections of pixels x on the leading principal components W.

    Parameters
    ----------
    mean : float32 (P,), P = V * height * width * 3.
    components : float32 (K, P), orthonormal rows by falling variance.
    """

    kind = "pixels"

    def __init__(
        self, mean: np.ndarray, components: np.ndarray, views: Sequence[str], image_size: tuple[int, int]
    ) -> None:
        self.views = tuple(views)
        self.mean = np.ascontiguousarray(mean, np.float32)
        self.components = np.ascontiguousarray(components, np.float32)
        self.width = len(components)
        self.image_size = image_size
        self.architecture = PixelsArchitecture(components=self.width).model_dump(mode="json")
        self.preprocessing = PixelsPreprocessing(image_size=image_size).model_dump(mode="json")

    @classmethod
    def from_parts(
        cls,
        kind: str,
        views: Sequence[str],
        architecture: Mapping[str, Any],
        preprocessing: Mapping[str, Any],
        tensors: Mapping[str, torch.Tensor],
        where: object,
        device: torch.device | str = "cpu",
    ) -> PixelsEncoder:
        """Build from the parts of encoder.json and its weights; InputError names what does not fit."""
        views = check_views(views, where)
        shape = parse_model(PixelsArchitecture, dict(architecture), f"{where}, architecture")
        prepared = parse_model(PixelsPreprocessing, dict(preprocessing), f"{where}, preprocessing")
        height, width = prepared.image_size
        pixels = len(views) * height * width * 3
        expected = {"components": (shape.components, pixels), "mean": (pixels,)}
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if found != expected:
            raise InputError(f"{where}, weights", f"hold {found}, the architecture needs {expected}")
        for name, tensor in tensors.items():
            if tensor.dtype != torch.float32 or not torch.isfinite(tensor).all():
                raise InputError(f"{where}, weights", f"{name} is not finite float32")
        return cls(tensors["mean"].numpy(), tensors["components"].numpy(), views, prepared.image_size)

    def tensors(self) -> Iterable[tuple[str, torch.Tensor]]:
        """The mean and the components."""
        return [("components", torch.from_numpy(self.components)), ("mean", torch.from_numpy(self.mean))]

    def encode(self, frames: np.ndarray) -> np.ndarray:
        """Latents float32 (B, K) of uint8 frames (B, V, H, W, 3)."""
        assert self.views is not None
        frames = prepare_frames(frames, len(self.views), self.image_size)
        x = flatten(frames)  # (B, P)
        return (x - self.mean) @ self.components.T


def flatten(frames: np.ndarray) -> np.ndarray:
    """uint8 (n, V, H, W, 3) to float32 (n, P) in [0, 1]."""
    return frames.reshape(len(frames), -1).astype(np.float32) / np.float32(255)


def principal_components(frames: np.ndarray, components: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and leading principal components of frames.

    Whichever of the two Gram matrices is smaller is diagonalised: Xc Xc^t (n, n) or Xc^t Xc (P, P) share
    their nonzero eigenvalues, and v = Xc^t u / |Xc^t u| turns an eigenvector u of the first into one of the
    second.

    Parameters
    ----------
    frames : uint8 (n, V, H, W, 3), n >= 2.
    components : most components wanted; capped at n - 1 and P, and at the rank that the frames have.

    Returns
    -------
    float64 (P,) and (K, P). The largest entry of each component is positive: eigenvectors have no sign of
    their own.
    """
    x = flatten(frames).astype(np.float64)
    mean = x.mean(axis=0)
    x -= mean
    samples, pixels = x.shape
    count = min(components, samples - 1, pixels)
    if count < 1:
        raise InputError(
            "pixels", f"{samples} frame(s) are too few for principal components", "use more episodes"
        )
    gram = x @ x.T if samples <= pixels else x.T @ x
    last = len(gram) - 1
    values, vectors = scipy.linalg.eigh(gram, subset_by_index=[last - count + 1, last])
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    if values[0] <= 0:
        raise InputError(
            "pixels", "every training frame is the same", "check that the camera delivered new frames"
        )
    kept = values > values[0] * 1e-12
    rows = (x.T @ vectors[:, kept]).T if samples <= pixels else vectors[:, kept].T  # (K, P)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    peak = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
    return mean, rows * np.sign(peak)[:, None]
