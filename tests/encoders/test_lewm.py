"""LeWM's network and encoder: the published sizes, what depends on what, and its two rollouts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from encoders.lewm import Lewm, LewmArchitecture
from encoders.lewm_encoder import LewmEncoder, LewmPreprocessing
from hardware.errors import InputError

VIEWS = ("front", "wrist")
SMALL = LewmArchitecture(
    image_size=16,
    patch_size=8,
    vit_width=24,
    vit_depth=2,
    vit_heads=3,
    latent_dim=8,
    projector_width=32,
    action_block=2,
    action_dim=3,
    predictor_depth=2,
    predictor_heads=2,
    predictor_head_dim=8,
    predictor_mlp=32,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def awake(network: Lewm, seed: int = 1) -> Lewm:
    """The network with gates that are open: at the start every block of the predictor is the identity."""
    with torch.no_grad():
        for parameter in network.predictor.parameters():
            parameter.normal_(std=0.3, generator=seeded(seed))
    return network.eval()


def encoder(output: str = "z", **prepared: object) -> LewmEncoder:
    actions = {"action_mean": (0.1, 0.2, 0.3), "action_std": (1.0, 2.0, 0.5)}
    preprocessing = LewmPreprocessing.model_validate({"image_size": (16, 16), **actions, **prepared})
    return LewmEncoder(awake(Lewm(2, SMALL, generator=seeded())), VIEWS, SMALL, preprocessing, output=output)


@pytest.fixture
def frames() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (5, 2, 20, 24, 3), np.uint8)


# -- the network -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("actions", "parameters"), [(2, 18_034_478), (5, 18_034_628)])
def test_the_published_model_has_the_published_number_of_parameters(actions: int, parameters: int) -> None:
    network = Lewm(1, LewmArchitecture(action_dim=actions), generator=seeded())
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


def test_a_seed_gives_the_weights_and_the_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (Lewm(2, SMALL, generator=seeded(seed)).state_dict() for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["encoder.conv_proj.weight"], other["encoder.conv_proj.weight"])
    assert all(torch.isfinite(value).all() for value in one.values())


def test_at_the_start_the_actions_change_nothing_and_then_they_do() -> None:
    network = Lewm(1, SMALL, generator=seeded()).eval()
    z, actions = torch.randn(4, 3, 8, generator=seeded()), torch.randn(4, 3, 6, generator=seeded(1))
    assert torch.equal(network.predict(z, actions), network.predict(z, -actions))
    awake(network)
    assert (network.predict(z, actions) - network.predict(z, -actions)).abs().max() > 1e-3


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_prediction_sees_what_came_before_it_and_nothing_later(place: int) -> None:
    network = awake(Lewm(1, SMALL, generator=seeded()))
    z, actions = torch.randn(4, 3, 8, generator=seeded()), torch.randn(4, 3, 6, generator=seeded(1))
    before = network.predict(z, actions)
    for changed in (z, actions):
        changed[:, place] *= -1.0
    after = network.predict(z, actions)
    moved = (after - before).abs().amax(dim=(0, 2))
    assert (moved[:place] == 0).all() and (moved[place:] > 1e-5).all()


def test_every_view_counts_and_they_are_not_interchangeable(frames: np.ndarray) -> None:
    one = encoder()
    z = one.encode(frames)
    assert z.shape == (5, 8) and z.dtype == np.float32
    for view in (0, 1):
        other = frames.copy()
        other[:, view] = 255 - other[:, view]
        assert np.abs(one.encode(other) - z).max() > 1e-4
    assert np.abs(one.encode(frames[:, ::-1]) - z).max() > 1e-4


def test_sizes_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="image_size 100 is no multiple of patch_size 14: write 98"):
        LewmArchitecture(image_size=100, action_dim=2)
    with pytest.raises(ValueError, match="vit_width 100 is no multiple of vit_heads 3"):
        LewmArchitecture(vit_width=100, action_dim=2)


# -- its latents -------------------------------------------------------------------------------------------


def test_other_latents_of_the_same_network(frames: np.ndarray) -> None:
    z, cls, wrist = encoder(), encoder("cls"), encoder("wrist")
    assert (z.width, cls.width, wrist.width) == (8, 48, 24)
    np.testing.assert_allclose(cls.encode(frames)[:, 24:], wrist.encode(frames), atol=1e-6)
    with torch.inference_mode():
        projected = z.network.projector(torch.from_numpy(cls.encode(frames))).numpy()
    np.testing.assert_allclose(projected, z.encode(frames), atol=1e-5)
    assert len({each.fingerprint for each in (z, cls, wrist)}) == 3
    assert z.with_output("cls").fingerprint == cls.fingerprint


def test_several_latents_take_one_pass_and_are_those_of_each_alone(frames: np.ndarray) -> None:
    one, names = encoder(), ["wrist", "z", "cls", "front"]
    images: list[int] = []
    one.network.encoder.register_forward_pre_hook(lambda _, given: images.append(len(given[0])))
    together = one.encode_outputs(frames, names)
    assert images == [len(frames) * 2]
    for name, latents in zip(names, together):
        np.testing.assert_array_equal(latents, one.with_output(name).encode(frames))
        assert one.encode_outputs(frames[:0], [name])[0].shape == (0, one.with_output(name).width)


def test_a_latent_that_there_is_not() -> None:
    with pytest.raises(
        InputError, match=r"lewm@top: has no such latent - write one of: z, cls, front, wrist"
    ):
        encoder().with_output("top")


def test_weights_and_facts_go_round(frames: np.ndarray) -> None:
    for output in ("z", "front"):
        one = encoder(output, row_s=0.1)
        parts = one.kind, one.views, one.architecture, one.preprocessing, dict(one.tensors())
        again = LewmEncoder.from_parts(*parts, where="weights/W1")
        assert again.fingerprint == one.fingerprint
        np.testing.assert_array_equal(again.encode(frames), one.encode(frames))


def test_parts_that_do_not_fit_are_named() -> None:
    one = encoder()
    facts: dict[str, object] = {
        "kind": one.kind,
        "views": one.views,
        "architecture": one.architecture,
        "preprocessing": one.preprocessing,
        "tensors": dict(one.tensors()),
        "where": "weights/W1",
    }
    for change, said in (
        ({"views": ["front"]}, "projector.net.0.weight is torch.float32"),
        (
            {"preprocessing": {**one.preprocessing, "image_size": (32, 32)}},
            "image_size must be the ViT's, 16",
        ),
        ({"preprocessing": {**one.preprocessing, "action_std": (1.0,)}}, "action_std must have 3 numbers"),
        ({"tensors": {}}, "missing tensors"),
    ):
        with pytest.raises(InputError, match=said):
            LewmEncoder.from_parts(**{**facts, **change})  # type: ignore[arg-type]


# -- prediction --------------------------------------------------------------------------------------------


@dataclass
class Questions:
    """History, actions and chunks as `rank_chunks` asks them."""

    history: np.ndarray
    past: np.ndarray
    chunks: np.ndarray


@pytest.fixture
def asked() -> Questions:
    rng = np.random.default_rng(0)
    rows = encoder().history_rows
    assert rows == 5
    return Questions(
        rng.normal(size=(6, rows, 8)), rng.normal(size=(6, rows - 1, 3)), rng.normal(size=(6, 4, 6, 3))
    )


def scaled(model: LewmEncoder, actions: np.ndarray) -> torch.Tensor:
    """Rows of actions (n, rows, 3) as the network takes them, (n, rows / 2, 6)."""
    values = (actions - np.array([0.1, 0.2, 0.3])) / np.array([1.0, 2.0, 0.5])
    return torch.from_numpy(values.reshape(len(actions), -1, 6)).float()


def test_a_rollout_from_the_history_goes_step_by_step(asked: Questions) -> None:
    model = encoder()
    found = model.predict(asked.history, asked.past, asked.chunks)
    assert found.shape == (6, 4, 8)
    for chunk in range(4):
        z = torch.from_numpy(asked.history[:, ::2]).float()  # the present latent and two steps before it
        actions = scaled(model, np.concatenate([asked.past, asked.chunks[:, chunk]], axis=1))
        with torch.inference_mode():
            for step in range(3):
                seen = model.network.predict(z[:, -3:], actions[:, step : step + 3])
                z = torch.cat([z, seen[:, -1:]], dim=1)
        np.testing.assert_allclose(found[:, chunk], z[:, -1].numpy(), atol=1e-5)


def test_a_rollout_from_the_anchor_looks_at_nothing_before_it(asked: Questions) -> None:
    model = encoder()
    found = model.predict(asked.history, asked.past, asked.chunks, "anchor")
    with torch.inference_mode():
        z = torch.from_numpy(asked.history[:, -1:]).float()
        actions = scaled(model, asked.chunks[:, 0])
        for step in range(3):
            z = torch.cat([z, model.network.predict(z, actions[:, : step + 1])[:, -1:]], dim=1)
    np.testing.assert_allclose(found[:, 0], z[:, -1].numpy(), atol=1e-5)
    asked.history[:, :-1] += 1.0
    asked.past += 1.0
    np.testing.assert_array_equal(model.predict(asked.history, asked.past, asked.chunks, "anchor"), found)


def test_with_one_latent_of_history_both_rollouts_are_one() -> None:
    sizes = SMALL.model_copy(update={"history": 1})
    prepared = LewmPreprocessing(image_size=(16, 16), action_mean=(0.0,) * 3, action_std=(1.0,) * 3)
    model = LewmEncoder(awake(Lewm(2, sizes, generator=seeded())), VIEWS, sizes, prepared)
    rng = np.random.default_rng(0)
    asked = rng.normal(size=(6, 3, 8)), rng.normal(size=(6, 2, 3)), rng.normal(size=(6, 4, 4, 3))
    np.testing.assert_array_equal(model.predict(*asked), model.predict(*asked, "anchor"))


def test_why_nothing_is_predicted() -> None:
    assert encoder(row_s=0.1).why_no_prediction(3, 0.11) == ""
    assert encoder(row_s=0.1).why_no_prediction(3, 0.2) == (
        "it was trained on rows 0.1 s apart, and these are 0.2 s apart"
    )
    assert encoder().why_no_prediction(2, 0.1) == "it was trained with 3 actions, and these rows have 2"
    assert encoder("cls").why_no_prediction(3, 0.1) == "the predictor speaks of z, not of cls"
    assert "standardised" in encoder(action_mean=None).why_no_prediction(3, 0.1)
    with pytest.raises(ValueError, match="a step is 2 rows, and a chunk of 3 is no multiple"):
        encoder().predict(np.zeros((1, 5, 8)), np.zeros((1, 4, 3)), np.zeros((1, 2, 3, 3)))
