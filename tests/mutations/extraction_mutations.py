"""Mistakes on the way from frames to stored latents.

A slip of one extraction leaves a good encoder and wrong latents ("stored"): to encode again shows it. A
mistake in the encoder's own code is made again by every check ("always"): only its response shows it.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import h5py
import numpy as np
import torch
from bench import EVALUATE, SIDE, TRAIN, WIDTH, Bench, ExposedBy, Mutation, check_latents
from checked_recording import VIEWS, Mistaken
from torch import nn

from encoders import Encoder, LatentStore
from encoders.cnn import CnnEncoder
from encoders.latents import DATASETS
from hardware.checks import Check

FrameChange = Callable[[np.ndarray], np.ndarray]
EPISODES = [*TRAIN, *EVALUATE]


def _mutation(
    name: str,
    mistake: str,
    named_by: str,
    run: Callable[[Bench, Path, np.random.Generator], list[Check]],
    exposed_by: ExposedBy = "the set itself",
) -> Mutation:
    return Mutation(name, mistake, "extraction", exposed_by, tuple(named_by.split(",")), run)


def _extracted(bench: Bench, folder: Path, encoder: Encoder) -> Path:
    LatentStore(folder / "latents").extract(encoder, bench.recording, VIEWS, EPISODES)
    return folder / "latents"


def stored(name: str, mistake: str, named_by: str, change: FrameChange, raw: bool = False) -> Mutation:
    """Frames were changed before they were encoded, in one extraction; `raw` before they were resized."""

    def run(bench: Bench, folder: Path, rng: np.random.Generator) -> list[Check]:
        slip = Mistaken(bench.encoder, change)
        if raw:
            slip.image_size = None
        return check_latents(bench, bench.encoder, _extracted(bench, folder, slip))

    return _mutation(name, mistake, named_by, run)


def always(
    name: str,
    mistake: str,
    named_by: str,
    spoil: Callable[[CnnEncoder, Bench], Encoder],
    exposed_by: ExposedBy = "the set itself",
) -> Mutation:
    """The encoder itself is wrong: `spoil` gives one, of a copy."""

    def run(bench: Bench, folder: Path, rng: np.random.Generator) -> list[Check]:
        encoder = copy.deepcopy(bench.encoder)
        encoder.__dict__.pop("fingerprint", None)
        wrong = spoil(encoder, bench)
        return check_latents(bench, wrong, _extracted(bench, folder, wrong))

    return _mutation(name, mistake, named_by, run, exposed_by)


def spoiled(
    name: str,
    mistake: str,
    named_by: str,
    change: Callable[[list[h5py.Group], np.random.Generator], None],
) -> Mutation:
    """True latents, changed in the store; `change` gets the groups of all episodes."""

    def run(bench: Bench, folder: Path, rng: np.random.Generator) -> list[Check]:
        store = LatentStore(shutil.copytree(bench.latents, folder / "latents"))
        with h5py.File(store.path(bench.encoder.fingerprint), "r+") as file:
            change([file[bench.recording.episode(index).sha256] for index in EPISODES], rng)
        return check_latents(bench, bench.encoder, store.folder)

    return _mutation(name, mistake, named_by, run)


# -- frames -----------------------------------------------------------------------------------------------


def in_channels(*channels: int) -> FrameChange:
    return lambda frames: frames[..., list(channels)]


def nearest_neighbour(frames: np.ndarray) -> np.ndarray:
    flat = [
        cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_NEAREST) for view in frames for image in view
    ]
    return np.stack(flat).reshape(*frames.shape[:2], SIDE, SIDE, 3)


# -- encoders ---------------------------------------------------------------------------------------------


def training_mode(encoder: CnnEncoder, bench: Bench) -> Encoder:
    encoder.network.train()
    return encoder


def unscaled(encoder: CnnEncoder, bench: Bench) -> Encoder:
    encoder._normalise.scale = torch.ones_like(encoder._normalise.scale)
    encoder._normalise.shift = torch.zeros_like(encoder._normalise.shift)
    return encoder


def scaled_twice(encoder: CnnEncoder, bench: Bench) -> Encoder:
    encoder._normalise.scale = encoder._normalise.scale / 255
    return encoder


def collapsed(encoder: CnnEncoder, bench: Bench) -> Encoder:
    with torch.no_grad():
        encoder.network.head[-1].weight[:4] = 0
    return encoder


class _Dropout(nn.Module):
    """Dropout that nobody switched off."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.1, training=True)


def dropout_left_on(encoder: CnnEncoder, bench: Bench) -> Encoder:
    encoder.network.head[2] = nn.Sequential(encoder.network.head[2], _Dropout())
    return encoder


# -- latents in the store ---------------------------------------------------------------------------------


def moved_by(rows: int) -> Callable[[list[h5py.Group], np.random.Generator], None]:
    def change(groups: list[h5py.Group], rng: np.random.Generator) -> None:
        for group in groups:
            z = group["latent"][()]
            group["latent"][...] = z[np.clip(np.arange(len(z)) + rows, 0, len(z) - 1)]

    return change


def joints_moved(groups: list[h5py.Group], rng: np.random.Generator) -> None:
    for group in groups:
        position = group["position"][()]
        group["position"][...] = np.concatenate([position[:1], position[:-1]])


def shuffled_within(groups: list[h5py.Group], rng: np.random.Generator) -> None:
    for group in groups:
        group["latent"][...] = rng.permutation(group["latent"][()])


def shuffled_across(groups: list[h5py.Group], rng: np.random.Generator) -> None:
    z = rng.permutation(np.concatenate([group["latent"][()] for group in groups]))
    ends = np.cumsum([len(group["latent"]) for group in groups])
    for group, part in zip(groups, np.split(z, ends[:-1])):
        group["latent"][...] = part


def of_another_episode(groups: list[h5py.Group], rng: np.random.Generator) -> None:
    other, own = groups[6]["latent"][()], groups[2]["latent"]
    count = min(len(other), len(own))
    own[:count] = other[:count]


def dropped_row(groups: list[h5py.Group], rng: np.random.Generator) -> None:
    for name in DATASETS:
        kept = np.delete(groups[2][name][()], 40, axis=0)
        del groups[2][name]
        groups[2][name] = kept


def doubled_row(groups: list[h5py.Group], rng: np.random.Generator) -> None:
    z = groups[2]["latent"][()]
    groups[2]["latent"][...] = np.concatenate([z[:41], z[40:-1]])


def not_finite(groups: list[h5py.Group], rng: np.random.Generator) -> None:
    groups[1]["latent"][7, 3] = np.nan


def other_weights(groups: list[h5py.Group], rng: np.random.Generator) -> None:
    for group in groups[:4]:
        group["latent"][...] = group["latent"][()] @ np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0]


def _same(encoder: CnnEncoder, change: FrameChange) -> Encoder:
    return Mistaken(encoder, change)


AGAIN = "z: re-extraction"

EXTRACTION_MUTATIONS = (
    stored("red only, stored", "one extraction read the red channel only", AGAIN, in_channels(0, 0, 0)),
    always(
        "red only, always",
        "the encoder's code reads the red channel only",
        "z: channels",
        lambda encoder, _: _same(encoder, in_channels(0, 0, 0)),
    ),
    stored("BGR, stored", "one extraction exchanged red and blue", AGAIN, in_channels(2, 1, 0)),
    always(
        "BGR, always",
        "the encoder's code exchanges red and blue, and always did",
        "*",
        lambda encoder, _: _same(encoder, in_channels(2, 1, 0)),
        "nothing",
    ),
    stored(
        "views swapped, stored", "one extraction took the views in another order", AGAIN, lambda f: f[:, ::-1]
    ),
    always(
        "one view twice",
        "the encoder reads the first view in the place of both",
        "z: views",
        lambda encoder, _: _same(encoder, lambda f: f[:, [0, 0]]),
    ),
    stored("scaled twice, stored", "one extraction divided by 255 twice", AGAIN, lambda f: f // 255),
    always("scaled twice, always", "the encoder divides by 255 twice", "z: normalisation", scaled_twice),
    always("unscaled", "the network reads 0 to 255 as they are", "z: normalisation", unscaled),
    stored(
        "no antialias, stored",
        "one extraction shrank frames without antialias",
        AGAIN,
        nearest_neighbour,
        raw=True,
    ),
    always("training mode", "batch norm was left in training mode", "z: batch independence", training_mode),
    always(
        "dropout left on",
        "dropout was left on",
        "z: determinism,z: batch independence",
        dropout_left_on,
    ),
    always("collapsed", "a quarter of the dimensions never moves", "z: dimensions that move", collapsed),
    spoiled("latents one later", "each row holds the latent of the next one", AGAIN, moved_by(1)),
    spoiled("latents one earlier", "each row holds the latent of the one before", AGAIN, moved_by(-1)),
    spoiled(
        "joints one off", "the joints beside each latent are those of the row before", "z: rows", joints_moved
    ),
    spoiled("shuffled within", "latents are shuffled within episodes", AGAIN, shuffled_within),
    spoiled("shuffled across", "latents are shuffled across episodes", AGAIN, shuffled_across),
    spoiled("another episode's", "an episode holds the latents of another", AGAIN, of_another_episode),
    spoiled("dropped row", "one row of an episode is missing", "z: rows", dropped_row),
    spoiled("doubled row", "one row is there twice, all after it are one late", "z: rows", doubled_row),
    spoiled("not a number", "one latent holds a NaN", "z: finite latents", not_finite),
    spoiled(
        "other weights", "half of the latents come from another version of the encoder", AGAIN, other_weights
    ),
)
