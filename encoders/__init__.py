"""encoders: from frames to latents.

The losses of the identifiability paper, its CNN and the training of it, the frozen and control encoders
that stand beside (transformers, a user's own, pixels, untrained), and the store of extracted latents. An
encoder turns uint8 frames (B, V, H, W, 3) into float32 latents (B, D) and has a fingerprint over weights
and preprocessing.
"""

from encoders.checkpoints import load_encoder, save_encoder
from encoders.encoder import Encoder
from encoders.frozen import WeightsUnavailable
from encoders.latents import EpisodeLatents, LatentStore
from encoders.recipes import CnnRecipe, PixelsRecipe, UntrainedRecipe, parse_recipe, recipe_sha256
from encoders.training import train

__all__ = [
    "Encoder",
    "load_encoder",
    "save_encoder",
    "train",
    "CnnRecipe",
    "PixelsRecipe",
    "UntrainedRecipe",
    "parse_recipe",
    "recipe_sha256",
    "LatentStore",
    "EpisodeLatents",
    "WeightsUnavailable",
]
