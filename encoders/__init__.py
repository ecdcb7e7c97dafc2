"""encoders: from frames to latents.

The losses of the identifiability paper, its CNN and LeWM with their training, many small networks trained at
once, the frozen and control encoders that stand beside (transformers, torchvision, ONNX, a user's own,
pixels, untrained), and the store of extracted latents. An encoder turns uint8 frames (B, V, H, W, 3) into
float32 latents (B, D) and has a fingerprint over weights and preprocessing.
"""

from encoders.checkpoints import load_encoder, save_encoder
from encoders.collapse import CollapseWarning
from encoders.encoder import Encoder
from encoders.latents import EpisodeLatents, LatentStore
from encoders.many_runs import ManyRuns, ManyRunsRecipe, RunSpec, train_many
from encoders.model_files import WeightsUnavailable
from encoders.recipes import (
    CnnRecipe,
    LewmRecipe,
    LewmSmallRecipe,
    PixelsRecipe,
    UntrainedLewmRecipe,
    UntrainedRecipe,
    parse_recipe,
    recipe_sha256,
)
from encoders.training import train

__all__ = [
    "Encoder",
    "load_encoder",
    "save_encoder",
    "train",
    "train_many",
    "RunSpec",
    "ManyRunsRecipe",
    "ManyRuns",
    "CnnRecipe",
    "LewmRecipe",
    "LewmSmallRecipe",
    "PixelsRecipe",
    "UntrainedRecipe",
    "UntrainedLewmRecipe",
    "CollapseWarning",
    "parse_recipe",
    "recipe_sha256",
    "LatentStore",
    "EpisodeLatents",
    "WeightsUnavailable",
]
