"""What the tests of the checks share: which views and episodes, and a small encoder of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from encoders import Encoder, parse_recipe
from encoders.cnn import CnnEncoder
from encoders.recipes import UntrainedRecipe
from encoders.untrained import measured_untrained
from hardware.recording import Recording

VIEWS = ("front", "wrist")
TRAIN, EVALUATE = (0, 1, 2, 3, 4), (5, 6, 7)


@dataclass(frozen=True)
class Extracted:
    """An encoder and the folder of its true latents, to be copied before it is spoiled."""

    encoder: CnnEncoder
    folder: Path


def tiny_encoder(recording: Recording) -> CnnEncoder:
    """An untrained network with statistics of the training episodes."""
    recipe = parse_recipe(
        {"kind": "untrained", "latent_dim": 16, "image_size": 32, "seed": 0, "max_frames": 256}
    )
    assert isinstance(recipe, UntrainedRecipe)
    return measured_untrained(recording, TRAIN, recipe, VIEWS)[0]


class Mistaken(Encoder):
    """Another encoder whose frames are changed on the way in, under the other's fingerprint."""

    def __init__(self, of: Encoder, change: Callable[[np.ndarray], np.ndarray]) -> None:
        self.of, self.change = of, change
        self.kind, self.views, self.width, self.image_size = of.kind, of.views, of.width, of.image_size
        self.architecture, self.preprocessing = of.architecture, dict(of.preprocessing)

    def tensors(self) -> Iterable[tuple[str, torch.Tensor]]:
        return self.of.tensors()

    def encode(self, frames: np.ndarray) -> np.ndarray:
        return self.of.encode(np.ascontiguousarray(self.change(frames)))
