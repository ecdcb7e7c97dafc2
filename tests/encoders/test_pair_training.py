"""The paper's CNN on pairs of images: one step by the formulas, resuming, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from encoders import losses
from encoders.cnn import Cnn, CnnArchitecture
from encoders.pair_training import PairRecipe, train_on_pairs
from encoders.recipes import seeded
from encoders.training_loop import Reporting, batch_of_step
from hardware import InputError


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """A dot that wanders over a grey ramp, uint8 (60, 64, 64, 3)."""
    rows, columns = np.mgrid[0:64, 0:64]
    angle = np.linspace(0, 2 * np.pi, 60)
    made = np.repeat((40 + rows)[None, :, :, None], 60, axis=0).repeat(3, axis=3)
    for image, at in zip(made, angle):
        near = (rows - 32 - 16 * np.sin(at)) ** 2 + (columns - 32 - 16 * np.cos(at)) ** 2 < 30
        image[near] = [250, 30, 90]
    return made.astype(np.uint8)


PAIRS = np.stack([np.arange(58), np.arange(58) + 2], axis=1)
RECIPE = PairRecipe(steps=3, batch_size=16, slices=8, seed=4)


def weights(encoder: object) -> dict[str, torch.Tensor]:
    return dict(encoder.tensors())  # type: ignore[attr-defined]


def test_a_step_is_the_published_one(images: np.ndarray, tmp_path: Path) -> None:
    """The loss, the clipping and AdamW by hand, in plain torch, on images normalised beforehand."""
    recipe = RECIPE.model_copy(update={"steps": 1})
    trained = train_on_pairs(images, PAIRS, recipe, tmp_path, data="x", device="cpu")
    used = images[np.unique(PAIRS)] / 255.0
    mean, std = used.mean(axis=(0, 1, 2)), used.std(axis=(0, 1, 2))
    members = PAIRS[batch_of_step(0, len(PAIRS), 16, 4)]
    both = [
        torch.from_numpy((images[one] / 255.0 - mean) / std).float().permute(0, 3, 1, 2) for one in members.T
    ]
    network = Cnn(1, 2, generator=seeded(4, 0)).train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-4)
    z = network([torch.cat(both)])
    directions = losses.random_directions(2, 8, seeded(4, 2, 0))
    t = torch.linspace(0, 3, 17)
    trapezoid = torch.full((17,), 2 * 3 / 16)
    trapezoid[[0, -1]] = 3 / 16
    angle = (z @ directions)[..., None] * t
    target = torch.exp(-t.square() / 2)
    distance = (angle.cos().mean(0) - target).square() + angle.sin().mean(0).square()
    sigreg = 32 * (distance @ (trapezoid * target)).mean()
    aligned = functional.mse_loss(z[:16], z[16:]) / 4
    loss = 0.05 * sigreg + 0.95 * aligned
    loss.backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimiser.step()
    expected = network.state_dict()
    moved = [name for name, value in weights(trained).items() if value.ndim > 1 or name == "head.3.bias"]
    assert len(moved) == 7  # a bias before a batch norm has no gradient but rounding
    for name in moved:
        # the first step of AdamW is the gradient's sign, and that of nearly nothing is rounding's as well
        close = torch.isclose(weights(trained)[name], expected[name], rtol=1e-3, atol=1e-5).float().mean()
        assert close > 0.97, name


def test_killed_and_resumed_ends_with_the_same_weights(images: np.ndarray, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def kill(done: int, total: int, what: str) -> None:
        if done == 2:
            raise Killed

    whole = train_on_pairs(images, PAIRS, RECIPE, tmp_path / "whole", data="x", device="cpu")
    with pytest.raises(Killed):
        train_on_pairs(
            images, PAIRS, RECIPE, tmp_path / "killed", data="x", device="cpu", reporting=Reporting(kill, 1)
        )
    resumed = train_on_pairs(images, PAIRS, RECIPE, tmp_path / "killed", data="x", device="cpu")
    assert all(torch.equal(one, weights(whole)[name]) for name, one in weights(resumed).items())
    assert resumed.fingerprint == whole.fingerprint
    assert not list((tmp_path / "killed").glob("*checkpoint*"))
    calls: list[int] = []
    again = train_on_pairs(
        images,
        PAIRS,
        RECIPE,
        tmp_path / "whole",
        data="x",
        device="cpu",
        reporting=Reporting(lambda *_: calls.append(1)),
    )
    assert again.fingerprint == whole.fingerprint and calls == []


def test_bf16_is_near_and_another_training(images: np.ndarray, tmp_path: Path) -> None:
    exact = train_on_pairs(images, PAIRS, RECIPE, tmp_path / "fp32", data="x", device="cpu")
    half = RECIPE.model_copy(update={"precision": "bf16"})
    near = train_on_pairs(images, PAIRS, half, tmp_path / "bf16", data="x", device="cpu")
    frames = images[:40:4, None]
    one, other = exact.encode(frames), near.encode(frames)
    assert exact.fingerprint != near.fingerprint
    assert np.abs(one - other).max() < 0.2 * np.abs(one).max()


def test_what_is_refused(images: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pairs: are 58, fewer than a batch of 256"):
        train_on_pairs(images, PAIRS, PairRecipe(), tmp_path, data="x", device="cpu")
    train_on_pairs(images, PAIRS, RECIPE, tmp_path, data="x", device="cpu")
    for data, pairs in (("y", PAIRS), ("x", PAIRS[::-1].copy())):
        with pytest.raises(InputError, match="holds another encoder already"):
            train_on_pairs(images, pairs, RECIPE, tmp_path, data=data, device="cpu")


def test_untrained_is_the_first_network_with_its_batch_norm_measured(
    images: np.ndarray, tmp_path: Path
) -> None:
    recipe = RECIPE.model_copy(update={"steps": 0})
    encoder = train_on_pairs(images, PAIRS, recipe, tmp_path, data="x", device="cpu")
    first = Cnn(1, 2, generator=seeded(4, 0)).state_dict()
    found = weights(encoder)
    assert all(
        torch.equal(found[name], value)
        for name, value in first.items()
        if "running" not in name and "num" not in name
    )
    assert not torch.equal(found["head.1.running_mean"], first["head.1.running_mean"])
    again = train_on_pairs(images, PAIRS, recipe, tmp_path, data="x", device="cpu")  # loaded
    np.testing.assert_array_equal(again.encode(images[:5, None]), encoder.encode(images[:5, None]))


def test_without_batch_norm_and_back_from_its_file(images: np.ndarray, tmp_path: Path) -> None:
    recipe = RECIPE.model_copy(update={"batch_norm": False})
    encoder = train_on_pairs(images, PAIRS, recipe, tmp_path, data="x", device="cpu")
    assert not any("running" in name for name in weights(encoder))
    again = train_on_pairs(images, PAIRS, recipe, tmp_path, data="x", device="cpu")
    np.testing.assert_array_equal(again.encode(images[:5, None]), encoder.encode(images[:5, None]))
    with pytest.raises(InputError, match="holds another encoder already"):
        train_on_pairs(images, PAIRS, RECIPE, tmp_path, data="x", device="cpu")
    # what was written before the field existed keeps its hash
    assert "batch_norm" not in RECIPE.model_dump() and recipe.model_dump()["batch_norm"] is False
    assert "batch_norm" not in CnnArchitecture(latent_dim=2).model_dump(mode="json")
