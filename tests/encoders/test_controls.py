"""The controls: principal components of pixels, and the untrained twin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from lewm_recipes import TINY_LEWM
from sklearn.decomposition import PCA

from encoders import load_encoder, train
from encoders.checkpoints import read_card
from encoders.cnn import Cnn, CnnPreprocessing, Normaliser
from encoders.lewm import Lewm
from encoders.lewm_training import draws_of_step, initial_lewm, latents_and_predictions
from encoders.pixels import flatten, principal_components
from encoders.recipes import CnnRecipe, LewmSmallRecipe, seeded, untrained_twin
from encoders.training_frames import decoded, sample_frames
from encoders.untrained import calibrate_batch_norm
from encoders.windows import plan_windows
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
    calibrate_batch_norm(network, [frames], lambda part: network(normalise(torch.from_numpy(part))))
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
    with pytest.raises(InputError, match=r"'untrained:dino'.* - write untrained:cnn or untrained:lewm"):
        load_encoder("untrained:dino", views=views)
    with pytest.raises(InputError, match="its recipe is of kind 'cnn' - give a lewm recipe"):
        load_encoder("untrained:lewm", views=views, recipe=recipe)
    with pytest.raises(InputError, match="its recipe is of kind 'pixels'"):
        load_encoder(spec, views=views, recipe={"kind": "pixels"})


def test_the_untrained_lewm_is_what_its_training_starts_from(acting: Recording, tmp_path: Path) -> None:
    recipe = LewmSmallRecipe(**TINY_LEWM, seed=4)
    control = untrained_twin(recipe).model_copy(update={"max_frames": 60})  # one batch of windows
    twin = train(acting, [0, 1], control, tmp_path / "twin", device="cpu")
    start = Lewm(2, recipe.architecture(2), generator=seeded(4, 0)).state_dict()
    for name, tensor in twin.tensors():
        if "running" not in name and "num_batches" not in name:
            assert torch.equal(tensor, start[name]), name
    plan = plan_windows(acting, [0, 1], control, ("front", "wrist"))
    frames = np.concatenate(list(decoded(plan, 16)))[plan.groups]
    step_0 = initial_lewm(recipe, ("front", "wrist"), plan, "lewm")
    step_0.network.train()
    with draws_of_step(0, 0, torch.device("cpu")):
        wanted, _ = latents_and_predictions(step_0, frames, plan.blocks(np.arange(len(frames))))
    found = twin.encode(frames.reshape(-1, *frames.shape[2:]))
    np.testing.assert_allclose(found, wanted.flatten(0, 1).detach(), atol=2e-2)  # n against n - 1
    bare = load_encoder("untrained:lewm", views=["front", "wrist"], recipe=control, device="cpu")
    shrunk = bare.encode(frames.reshape(-1, *frames.shape[2:]))  # through identity buffers
    assert shrunk.std(axis=0).max() < 0.2 * found.std(axis=0).min()

    assert twin.kind == "untrained:lewm"
    assert twin.why_no_prediction(2, 0.1) == "" and bare.why_no_prediction(2, 0.1)  # type: ignore[attr-defined]
    card = read_card(tmp_path / "twin")
    assert card.trained_on is not None and card.trained_on.windows == len(plan.groups)
    measured = load_encoder(
        "untrained:lewm@cls", recipe=control, recording=acting, episodes=[0, 1], device="cpu"
    )
    saved = load_encoder(f"{tmp_path / 'twin'}@cls", device="cpu")
    assert measured.fingerprint == saved.fingerprint != twin.fingerprint
    other_frames = load_encoder(
        "untrained:lewm", recipe=control, recording=acting, episodes=[2], device="cpu"
    )
    assert len({twin.fingerprint, other_frames.fingerprint, bare.fingerprint}) == 3


def test_dropout_neither_acts_nor_draws_while_batch_norm_is_measured(
    acting: Recording, tmp_path: Path
) -> None:
    recipe = untrained_twin(LewmSmallRecipe(**{**TINY_LEWM, "dropout": 0.5}))
    before = torch.get_rng_state()
    one = train(acting, [0], recipe, tmp_path / "one", device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    undropped = recipe.model_copy(update={"dropout": 0.0})
    other = train(acting, [0], undropped, tmp_path / "other", device="cpu")
    for (name, tensor), (_, same) in zip(one.tensors(), other.tensors()):
        assert torch.equal(tensor, same), name
