"""The controls: principal components of pixels, and the untrained twin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from encoders import load_encoder, train
from encoders.checkpoints import read_card
from encoders.cnn import Cnn, CnnPreprocessing, Normaliser
from encoders.pixels import flatten, principal_components
from encoders.recipes import CnnRecipe, seeded, untrained_twin
from encoders.training_frames import sample_frames
from encoders.untrained import calibrate_batch_norm
from hardware import InputError, Recording


def _frames(count: int, side: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    low = rng.normal(0, 40, (count, 3)) @ rng.normal(0, 1, (3, side * side * 3))
    return (
        np.clip(128 + low + rng.normal(0, 2, low.shape), 0, 255)
        .astype(np.uint8)
        .reshape(count, 1, side, side, 3)
    )


@pytest.mark.parametrize("count, side", [(30, 4), (90, 4)], ids=["more pixels", "more frames"])
def test_components_are_those_of_scikit_learn(count: int, side: int) -> None:
    frames = _frames(count, side)
    mean, components = principal_components(frames, 5)
    reference = PCA(5, svd_solver="full").fit(flatten(frames).astype(np.float64))
    np.testing.assert_allclose(mean, reference.mean_, atol=1e-12)
    signs = np.sign((components * reference.components_).sum(axis=1))
    np.testing.assert_allclose(components, signs[:, None] * reference.components_, atol=1e-7)
    assert np.all(components[np.arange(5), np.abs(components).argmax(axis=1)] > 0)


def test_components_are_capped_by_frames_and_rank() -> None:
    assert len(principal_components(_frames(4, 4), 64)[1]) == 3
    two_images = np.repeat(_frames(2, 4), 10, axis=0)
    assert len(principal_components(two_images, 64)[1]) == 1
    with pytest.raises(InputError, match="every training frame is the same"):
        principal_components(np.repeat(_frames(1, 4), 5, axis=0), 3)
    with pytest.raises(InputError, match=r"1 frame\(s\) are too few"):
        principal_components(_frames(1, 4), 3)


def test_pixels_are_fitted_on_training_frames_only(demos: Recording, tmp_path: Path) -> None:
    recipe = {"kind": "pixels", "image_size": 8, "components": 6}
    encoder = train(demos, [0, 2], recipe, tmp_path)
    frames = sample_frames(list(demos.aligned(["front", "wrist"], [0, 2])), 8, 4096)
    mean, components = principal_components(frames, 6)
    expected = (flatten(frames) - mean) @ components.T
    np.testing.assert_allclose(encoder.encode(frames), expected, atol=1e-4)
    assert encoder.width == 6 and read_card(tmp_path).trained_on.frames == len(frames)  # type: ignore[union-attr]
    latents = encoder.encode(frames)
    np.testing.assert_allclose(latents.mean(axis=0), 0, atol=1e-3)
    spread = latents.std(axis=0)
    assert np.all(np.diff(spread) <= 1e-6)


def test_the_untrained_twin_has_the_weights_that_training_starts_from(
    demos: Recording, tmp_path: Path
) -> None:
    recipe = CnnRecipe(image_size=16, latent_dim=3, seed=4, steps=1, batch_size=8, stride_s=0.3)
    twin = train(demos, [0, 1], untrained_twin(recipe), tmp_path / "twin", device="cpu")
    start = Cnn(2, 3, generator=seeded(4, 0)).state_dict()
    for name, tensor in twin.tensors():
        if "running" not in name and "num_batches" not in name:
            assert torch.equal(tensor, start[name]), name
    assert twin.kind == "untrained:cnn"
    trained = train(
        demos, [0, 1], recipe.model_copy(update={"learning_rate": 1e-12}), tmp_path / "cnn", device="cpu"
    )
    for name, tensor in trained.tensors():
        if name.endswith("weight"):
            torch.testing.assert_close(tensor, start[name], atol=1e-9, rtol=1e-5)


def test_its_batch_norm_makes_evaluation_agree_with_step_0_of_training() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (128, 1, 16, 16, 3), dtype=np.uint8)
    normalise = Normaliser(
        CnnPreprocessing(image_size=(16, 16), mean=[(0.5,) * 3], std=[(0.3,) * 3]),  # type: ignore[list-item]
        "cpu",
    )
    network = Cnn(1, 4, generator=seeded(0, 0))
    calibrate_batch_norm(network, frames, normalise)
    assert not network.training
    with torch.no_grad():
        images = normalise(torch.from_numpy(frames))
        evaluated = network(images)
        in_training = network.train()(images)
    torch.testing.assert_close(evaluated, in_training, atol=2e-2, rtol=0)  # n against n - 1 in the variance
    network = Cnn(1, 4, generator=seeded(0, 0)).eval()
    with torch.no_grad():
        assert network(images).std() < 0.3 * evaluated.std()  # what identity buffers would have shown


def test_untrained_by_spec_reads_training_frames_or_says_it_did_not(demos: Recording, tmp_path: Path) -> None:
    recipe = CnnRecipe(image_size=16, latent_dim=3, seed=4)
    views = ["front", "wrist"]
    spec = "untrained:cnn"
    measured = load_encoder(spec, views=views, recipe=recipe, recording=demos, episodes=[0, 1])
    saved = train(demos, [0, 1], untrained_twin(recipe), tmp_path, views=views)
    assert measured.fingerprint == saved.fingerprint
    other_frames = load_encoder(spec, views=views, recipe=recipe, recording=demos, episodes=[2])
    bare = load_encoder(spec, views=views, recipe=recipe)
    assert len({measured.fingerprint, other_frames.fingerprint, bare.fingerprint}) == 3
    assert bare.describe()["preprocessing"]["mean"] == [[0.5, 0.5, 0.5]] * 2
    with pytest.raises(InputError, match="no view was named"):
        load_encoder(spec, recipe=recipe)
    with pytest.raises(InputError, match=r"'untrained:lewm'.* - write untrained:cnn"):
        load_encoder("untrained:lewm", views=views)
    with pytest.raises(InputError, match="its recipe is of kind 'pixels'"):
        load_encoder(spec, views=views, recipe={"kind": "pixels"})
