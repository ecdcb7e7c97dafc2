"""The batch-norm CNN of the identifiability paper (arXiv 2605.26379), for one view or several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from encoders.encoder import Encoder, check_views, load_exactly, prepare_frames
from hardware.errors import InputError
from hardware.schema import parse_model

CHANNELS = (32, 64, 128, 256)
FEATURES = 256
ENCODE_AT_ONCE = 256

Trunk = Literal["own", "shared"]


class CnnArchitecture(BaseModel):
    """Shape of a `Cnn`: what encoder.json says under `architecture`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["cnn"] = "cnn"
    latent_dim: int = Field(ge=1, le=4096)
    trunk: Trunk = "own"
    batch_norm: bool = Field(default=True, exclude_if=bool)  # hashes older than the field stay as they are


class CnnPreprocessing(BaseModel):
    """What happens to a frame before the network: resize by area, scale to [0, 1], (x - mean) / std a
    channel.

    `mean` and `std` are (V, 3), measured on the training frames, each view by itself.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    image_size: tuple[int, int]
    resize: Literal["area"] = "area"
    colour: Literal["rgb"] = "rgb"
    mean: list[tuple[float, float, float]]
    std: list[tuple[float, float, float]]


class Cnn(nn.Module):
    """Per view Conv(3-32-64-128-256, 4x4, stride 2, pad 1) - BN - GELU and a pool; a head over all views.

        view v:  conv - BN - GELU, four times -> mean over the plane -> 256 features
        head:    Linear(256 V, 256) - BN - GELU - Linear(256, D)

    With one view and D = 2 this is the published network (757,922 parameters); its AvgPool(4) on 64x64
    input is a mean over the whole plane, which other sizes get too. Several views are fused by
    concatenation before the head.

    Each view has a trunk of its own by default: cameras are fixed, so a view has its own statistics, and a
    shared trunk would normalise all views by one mixture (batch norm) and be no faster. `trunk="shared"` is
    for interchangeable cameras.

    Parameters
    ----------
    views : number of views V.
    latent_dim : D.
    batch_norm : without it the BN above are left out: a control, since training may then collapse.
    generator : source of the initial weights; U(-1/sqrt(fan_in), 1/sqrt(fan_in)), torch's own rule.
    """

    def __init__(
        self,
        views: int,
        latent_dim: int,
        trunk: Trunk = "own",
        *,
        batch_norm: bool = True,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.views = views
        with torch.device("meta"):  # no memory and no draw from the global generator
            self.trunks = nn.ModuleList([_trunk(batch_norm) for _ in range(views if trunk == "own" else 1)])
            self.head = nn.Sequential(
                nn.Linear(FEATURES * views, FEATURES),
                *([nn.BatchNorm1d(FEATURES)] if batch_norm else []),
                nn.GELU(),
                nn.Linear(FEATURES, latent_dim),
            )
        self.to_empty(device="cpu")
        self._initialise(generator)

    def _initialise(self, generator: torch.Generator) -> None:
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, (nn.Conv2d, nn.Linear)):
                    bound = module.weight[0].numel() ** -0.5  # weight[0] holds the fan-in of one output
                    module.weight.uniform_(-bound, bound, generator=generator)
                    assert module.bias is not None
                    module.bias.uniform_(-bound, bound, generator=generator)
                elif isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.reset_parameters()  # ones and zeros: nothing is drawn

    def forward(self, images: Sequence[torch.Tensor]) -> torch.Tensor:
        """Latents (B, D) of V normalised images, float (B, 3, H, W) each."""
        trunks = self.trunks if len(self.trunks) > 1 else [self.trunks[0]] * self.views
        features = [trunk(image) for trunk, image in zip(trunks, images)]  # V times (B, 256)
        return self.head(torch.cat(features, dim=1))


def _trunk(batch_norm: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    before = 3
    for channels in CHANNELS:
        layers += [
            nn.Conv2d(before, channels, kernel_size=4, stride=2, padding=1),
            *([nn.BatchNorm2d(channels)] if batch_norm else []),
            nn.GELU(),
        ]
        before = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Normaliser:
    """uint8 frames to what the network reads, in two passes over memory.

    x_norm = (x / 255 - mean) / std = x * scale - shift
    """

    def __init__(self, preprocessing: CnnPreprocessing, device: torch.device | str) -> None:
        std = torch.tensor(preprocessing.std, dtype=torch.float64)
        mean = torch.tensor(preprocessing.mean, dtype=torch.float64)
        self.scale = (1.0 / (255.0 * std)).float().to(device)  # (V, 3)
        self.shift = (mean / std).float().to(device)

    def __call__(self, frames: torch.Tensor) -> list[torch.Tensor]:
        """uint8 (B, V, H, W, 3) to V float tensors (B, 3, H, W) in channels-last memory."""
        return [
            frames[:, view].float().mul_(self.scale[view]).sub_(self.shift[view]).permute(0, 3, 1, 2)
            for view in range(frames.shape[1])
        ]


class CnnEncoder(Encoder):
    """A `Cnn` with its preprocessing, in evaluation mode."""

    def __init__(
        self,
        network: Cnn,
        views: Sequence[str],
        architecture: CnnArchitecture,
        preprocessing: CnnPreprocessing,
        kind: str = "cnn",
        device: torch.device | str = "cpu",
    ) -> None:
        self.kind = kind
        self.views = tuple(views)
        self.width = architecture.latent_dim
        self.image_size = preprocessing.image_size
        self.architecture = architecture.model_dump(mode="json")
        self.preprocessing = preprocessing.model_dump(mode="json")
        self.network = network.eval()
        self._preprocessing = preprocessing
        self.to(device)

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
    ) -> CnnEncoder:
        """Build from the parts of encoder.json and its weights; InputError names what does not fit."""
        views = check_views(views, where)
        shape = parse_model(CnnArchitecture, dict(architecture), f"{where}, architecture")
        prepared = parse_model(CnnPreprocessing, dict(preprocessing), f"{where}, preprocessing")
        if not len(prepared.mean) == len(prepared.std) == len(views):
            raise InputError(f"{where}, preprocessing", f"mean and std must have one row for each of {views}")
        height, width = prepared.image_size
        if not (16 <= height <= 4096 and 16 <= width <= 4096):  # four halvings need 16 pixels
            raise InputError(f"{where}, preprocessing", f"image_size {height}x{width} is not in 16..4096")
        network = Cnn(
            len(views),
            shape.latent_dim,
            shape.trunk,
            batch_norm=shape.batch_norm,
            generator=torch.Generator(),
        )
        load_exactly(network, tensors, where)
        return cls(network, views, shape, prepared, kind, device)

    def to(self, device: torch.device | str) -> CnnEncoder:
        """Move the network to a device."""
        self.device = torch.device(device)
        self.network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._normalise = Normaliser(self._preprocessing, self.device)
        return self

    def tensors(self) -> Iterable[tuple[str, torch.Tensor]]:
        """Weights and batch-norm statistics, by name."""
        return sorted(self.network.state_dict().items())

    def encode(self, frames: np.ndarray) -> np.ndarray:
        """Latents float32 (B, D) of uint8 frames (B, V, H, W, 3)."""
        assert self.views is not None
        frames = prepare_frames(frames, len(self.views), self.image_size)
        latents = np.empty((len(frames), self.width), np.float32)
        with torch.inference_mode():
            for start in range(0, len(frames), ENCODE_AT_ONCE):
                part = torch.from_numpy(frames[start : start + ENCODE_AT_ONCE]).to(self.device)
                latents[start : start + ENCODE_AT_ONCE] = self.network(self._normalise(part)).cpu().numpy()
        return latents

    def preprocessed(self, frames: np.ndarray) -> np.ndarray:
        """Normalised frames, float32 (B, V, 3, h, w)."""
        assert self.views is not None
        frames = prepare_frames(frames, len(self.views), self.image_size)
        views = self._normalise(torch.from_numpy(frames).to(self.device))
        return np.stack([view.cpu().numpy() for view in views], axis=1)
