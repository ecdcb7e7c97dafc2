"""Stored latents against latents made again: what is stored wrongly is named, and by which mistake."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest
from checked_recording import EVALUATE, TRAIN, VIEWS, Extracted, Mistaken

from encoders import Encoder, LatentStore
from encoders.latents import DATASETS
from hardware.checks import Check
from hardware.recording import Recording
from probe.checks.reextraction import check_reextraction

EPISODES = [*TRAIN, *EVALUATE]
SOME = [0, 3]


@pytest.fixture
def store(extracted: Extracted, tmp_path: Path) -> LatentStore:
    """The true latents, to be spoiled."""
    return LatentStore(shutil.copytree(extracted.folder, tmp_path / "latents"))


def spoil(
    store: LatentStore,
    encoder: Encoder,
    recording: Recording,
    episode: int,
    change: Callable[[h5py.Group], None],
) -> None:
    with h5py.File(store.path(encoder.fingerprint), "r+") as file:
        change(file[recording.episode(episode).sha256])


def identity(encoder: Encoder, recording: Recording, store: LatentStore) -> Check:
    return check_reextraction("z", encoder, recording, store, EPISODES, VIEWS)[-1]


def test_true_latents_pass(extracted: Extracted, recording: Recording) -> None:
    store = LatentStore(extracted.folder)
    checks = check_reextraction("z", extracted.encoder, recording, store, EPISODES, VIEWS)
    assert [check.state for check in checks] == ["pass"] * 3
    assert checks[-1].evidence["rows"] >= 8 * len(EPISODES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f[..., ::-1], "BGR"),
        (lambda f: f[..., [0, 0, 0]], "red channel only"),
        (lambda f: f[:, ::-1], "views in another order (wrist, front)"),
        (lambda f: f // 255, "scaled twice"),
        (np.zeros_like, "black"),
    ],
)
def test_latents_of_mistaken_frames_are_named(
    extracted: Extracted,
    recording: Recording,
    tmp_path: Path,
    change: Callable[[np.ndarray], np.ndarray],
    said: str,
) -> None:
    store = LatentStore(tmp_path / "latents")
    store.extract(Mistaken(extracted.encoder, change), recording, VIEWS, SOME)
    check = check_reextraction("z", extracted.encoder, recording, store, SOME, VIEWS)[-1]
    assert check.state == "fail"
    assert said in check.evidence["mistake"]
    assert check.evidence["episodes"] == SOME


def test_a_resize_without_antialias_is_named(
    extracted: Extracted, recording: Recording, tmp_path: Path
) -> None:
    def nearest(f: np.ndarray) -> np.ndarray:
        flat = [cv2.resize(image, (32, 32), interpolation=cv2.INTER_NEAREST) for view in f for image in view]
        return np.stack(flat).reshape(len(f), 2, 32, 32, 3)

    encoder = Mistaken(extracted.encoder, nearest)
    encoder.image_size = None  # it gets frames as recorded and shrinks them itself
    store = LatentStore(tmp_path / "latents")
    store.extract(encoder, recording, VIEWS, SOME)
    check = check_reextraction("z", extracted.encoder, recording, store, SOME, VIEWS)[-1]
    assert "without antialias (nearest neighbour)" in check.message


@pytest.mark.parametrize(("shift", "said"), [(1, "1 row later"), (-1, "1 row earlier"), (3, "3 rows later")])
def test_latents_of_other_rows_are_named(
    extracted: Extracted, recording: Recording, store: LatentStore, shift: int, said: str
) -> None:
    def change(group: h5py.Group) -> None:
        z = group["latent"][()]
        group["latent"][...] = z[np.clip(np.arange(len(z)) + shift, 0, len(z) - 1)]

    for episode in EPISODES:
        spoil(store, extracted.encoder, recording, episode, change)
    check = identity(extracted.encoder, recording, store)
    assert (check.state, said in check.message) == ("fail", True)


def test_latents_of_the_next_episode_are_named(
    extracted: Extracted, recording: Recording, store: LatentStore
) -> None:
    other = store.read(extracted.encoder.fingerprint, recording.episode(4).sha256).latent

    def change(group: h5py.Group) -> None:
        n = min(len(other), len(group["latent"]))
        group["latent"][:n] = other[:n]

    spoil(store, extracted.encoder, recording, 3, change)
    check = identity(extracted.encoder, recording, store)
    assert check.evidence["episodes"] == [3]
    assert "of the episode after" in check.message


def test_shuffled_latents_are_named(extracted: Extracted, recording: Recording, store: LatentStore) -> None:
    def change(group: h5py.Group) -> None:
        z, rng = group["latent"][()], np.random.default_rng(0)
        for start in range(0, len(z), 32):
            z[start : start + 32] = rng.permutation(z[start : start + 32])
        group["latent"][...] = z

    spoil(store, extracted.encoder, recording, 6, change)
    check = identity(extracted.encoder, recording, store)
    assert check.evidence["episodes"] == [6]
    assert "rows were shuffled" in check.message


def test_latents_of_other_weights_match_no_mistake(
    extracted: Extracted, recording: Recording, store: LatentStore
) -> None:
    def change(group: h5py.Group) -> None:
        group["latent"][...] = group["latent"][()][:, ::-1]

    spoil(store, extracted.encoder, recording, 1, change)
    assert "no known mistake" in identity(extracted.encoder, recording, store).message


def test_a_dropped_row_is_named(extracted: Extracted, recording: Recording, store: LatentStore) -> None:
    def change(group: h5py.Group) -> None:
        for name in DATASETS:
            kept = np.delete(group[name][()], 50, axis=0)
            del group[name]
            group[name] = kept

    spoil(store, extracted.encoder, recording, 2, change)
    check = check_reextraction("z", extracted.encoder, recording, store, EPISODES, VIEWS)[0]
    assert (check.state, check.evidence["episodes"]) == ("fail", [2])


def test_a_doubled_row_is_named(extracted: Extracted, recording: Recording, store: LatentStore) -> None:
    def change(group: h5py.Group) -> None:
        z = group["latent"][()]
        group["latent"][...] = np.concatenate(
            [z[:71], z[70:-1]]
        )  # the last one falls off: the count is right

    spoil(store, extracted.encoder, recording, 2, change)
    rows, _, same = check_reextraction("z", extracted.encoder, recording, store, EPISODES, VIEWS)
    assert (rows.state, rows.evidence["episodes"]) == ("fail", [2])
    assert "repeat the one before" in rows.message
    assert same.evidence["episodes"] == [2]
