"""What every encoder is: frames in, latents out, a fingerprint over weights and preprocessing."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from hardware.errors import InputError
from hardware.frames import resize


class Encoder(ABC):
    """Turns the frames of one moment, all views together, into one latent.

    Attributes
    ----------
    kind : `cnn`, `pixels`, `untrained:cnn`, `transformers`, `import`.
    views : names of the views in the order it was made for, or None where any will do.
    width : number of latent dimensions D.
    image_size : (height, width) that frames are brought to before `encode`, or None to keep them as recorded.
    output : name of its latent among those of its network; empty where there is one only.
    clip_frames, clip_stride : frames that make one latent, every `clip_stride`-th row up to its own; 1 for
        encoders of single images.
    architecture, preprocessing : JSON-able facts; they are part of the fingerprint.
    """

    kind: str
    views: tuple[str, ...] | None
    width: int
    image_size: tuple[int, int] | None = None
    output: str = ""
    clip_frames: int = 1
    clip_stride: int = 1
    architecture: dict[str, Any]
    preprocessing: dict[str, Any]

    @abstractmethod
    def encode(self, frames: np.ndarray) -> np.ndarray:
        """Latents of a batch.

        Parameters
        ----------
        frames : uint8 (B, V, H, W, 3), RGB, views in the order of `views`; where `clip_frames` is above 1,
            (B, V, clip_frames, H, W, 3). Frames of another size than `image_size` are resized the way
            `hardware.frames.resize` does it.

        Returns
        -------
        float32 array (B, D)
        """

    def encode_outputs(self, frames: np.ndarray, outputs: Sequence[str]) -> list[np.ndarray]:
        """Several latents of the same network in one pass: what `with_output(name).encode(frames)` gives for
        each, byte for byte.
        """
        return [
            self.encode(frames) if name == self.output else self.with_output(name).encode(frames)
            for name in outputs
        ]

    @property
    def pass_shared_with(self) -> object:
        """The same object for encoders whose latents `encode_outputs` makes in one pass."""
        return self

    def preprocessed(self, frames: np.ndarray) -> np.ndarray | None:
        """What the first layer is given of such frames, float32, any shape; None where that cannot be told.

        Integrity checks look at its mean, spread and range.
        """
        return None

    @abstractmethod
    def tensors(self) -> Iterable[tuple[str, torch.Tensor]]:
        """Every tensor that decides the latents, as (name, tensor) by rising name."""

    def to(self, device: torch.device | str) -> Encoder:
        """Move the weights; encoders that live in numpy stay where they are."""
        return self

    def with_output(self, output: str) -> Encoder:
        """Another latent of the same encoder, such as `cls`; InputError where there is none of that name."""
        raise InputError(
            f"encoder {self.kind}", f"has one latent only, and none called {output!r}", "leave @... out"
        )

    def in_fp32(self) -> Encoder | None:
        """The same latent in float32 throughout, None where it is computed so as it is."""
        return None

    def identity(self) -> dict[str, Any]:
        """The JSON part of the fingerprint: kind, views, architecture, preprocessing."""
        return {
            "kind": self.kind,
            "views": None if self.views is None else list(self.views),
            "architecture": self.architecture,
            "preprocessing": self.preprocessing,
        }

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over `identity` and the tensors (FORMATS.md). Read once: weights do not change in use."""
        return fingerprint(self.identity(), self.tensors())

    def describe(self) -> dict[str, Any]:
        """JSON-able facts for provenance and the card."""
        return {**self.identity(), "width": self.width, "fingerprint": self.fingerprint}


def fingerprint(identity: Mapping[str, Any], tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """SHA-256 that changes with one weight, one name, one shape or one setting, and with nothing else.

    The bytes hashed are the canonical JSON of `identity`, then for each tensor, by sorted name, the canonical
    JSON of [name, dtype, shape] and its raw little-endian bytes in C order. Shape and dtype fix each
    length, so no two contents give the same bytes.

    Parameters
    ----------
    identity : JSON-able.
    tensors : (name, tensor) by rising name.
    """
    digest = hashlib.sha256(canonical_json(identity))
    before = ""
    for name, tensor in tensors:
        if before and name <= before:
            raise ValueError(f"tensors must come by rising name: {name!r} after {before!r}")
        before = name
        dtype = str(tensor.dtype).removeprefix("torch.")
        digest.update(canonical_json([name, dtype, list(tensor.shape)]))
        flat = tensor.detach().cpu().contiguous().reshape(-1)  # memory formats differ, the values do not
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys, no spaces, UTF-8; NaN is an error. The same value gives the same bytes."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def prepare_frames(frames: np.ndarray, views: int, image_size: tuple[int, int] | None) -> np.ndarray:
    """Check a batch and bring it to `image_size`; uint8 (B, V, H, W, 3), C-contiguous."""
    frames = np.asarray(frames)
    if frames.dtype != np.uint8 or frames.ndim != 5 or frames.shape[1] != views or frames.shape[4] != 3:
        raise InputError(
            "frames",
            f"are {frames.dtype} {frames.shape}, expected uint8 (B, {views}, H, W, 3)",
            "give RGB frames of the encoder's views, one batch axis first",
        )
    if image_size is not None and frames.shape[2:4] != image_size:
        flat = frames.reshape(-1, *frames.shape[2:])
        small = np.stack([resize(image, image_size) for image in flat]) if len(flat) else flat
        frames = small.reshape(len(frames), views, *image_size, 3)
    return np.ascontiguousarray(frames)


def load_exactly(network: nn.Module, tensors: Mapping[str, torch.Tensor], where: object) -> None:
    """Take weights in; InputError names tensors that lack, that nobody knows, or that do not fit."""
    expected = network.state_dict()
    missing, unknown = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or unknown:
        raise InputError(
            f"{where}, weights", f"missing tensors: {missing or 'none'}; unknown: {unknown or 'none'}"
        )
    for name, tensor in expected.items():
        if tensors[name].shape != tensor.shape or tensors[name].dtype != tensor.dtype:
            raise InputError(
                f"{where}, weights",
                f"{name} is {tensors[name].dtype} {tuple(tensors[name].shape)}, "
                f"the architecture needs {tensor.dtype} {tuple(tensor.shape)}",
            )
        if not torch.isfinite(tensors[name]).all():
            raise InputError(f"{where}, weights", f"{name} holds values that are not finite")
    network.load_state_dict(dict(tensors))


def check_views(views: Sequence[str] | None, where: object) -> tuple[str, ...]:
    """Views as a tuple; at least one, no name twice."""
    named = tuple(views or ())
    if not named:
        raise InputError(where, "no view was named", "name the views that are encoded, in order")
    if len(set(named)) != len(named):
        raise InputError(where, f"a view is named twice: {', '.join(named)}", "name each view once")
    return named


def common_size(
    views: Sequence[str], image_shapes: Mapping[str, tuple[int, int]] | None
) -> tuple[int, int] | None:
    """None where the views have one size; else the largest height and width, to which all are brought."""
    shapes = {tuple(image_shapes[view]) for view in views if view in image_shapes} if image_shapes else set()
    if len(shapes) < 2:
        return None
    return max(height for height, _ in shapes), max(width for _, width in shapes)


def default_device() -> torch.device:
    """CUDA where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
