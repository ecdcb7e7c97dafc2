"""Encoders on disk: whole or not at all, refused by name when wrong, and the texts that name them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from encoders import Encoder, load_encoder, save_encoder, train
from encoders.checkpoints import TrainedOn, load_folder
from encoders.recipes import PixelsRecipe, UntrainedRecipe
from hardware import InputError, Recording

VIEWS = ["front", "wrist"]
SMALL = UntrainedRecipe(image_size=16, latent_dim=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_encoder(tmp_path / "encoder", _untrained(SMALL), recipe=SMALL)
    return tmp_path / "encoder"


def _untrained(recipe: UntrainedRecipe) -> Encoder:
    return load_encoder("untrained:cnn", views=VIEWS, recipe=recipe, device="cpu")


def _edit(folder: Path, **changes: object) -> None:
    path = folder / "encoder.json"
    card = json.loads(path.read_text())
    path.write_text(json.dumps({**card, **changes}))


def _edit_weights(folder: Path, change) -> None:
    path = folder / "weights.safetensors"
    tensors = safetensors.torch.load_file(path)
    change(tensors)
    path.write_bytes(safetensors.torch.save(tensors))


def test_an_encoder_comes_back_as_it_was(folder: Path) -> None:
    before = _untrained(SMALL)
    after = load_folder(folder)
    assert after.fingerprint == before.fingerprint and after.describe() == before.describe()
    frames = np.random.default_rng(0).integers(0, 256, (3, 2, 16, 16, 3), dtype=np.uint8)
    np.testing.assert_array_equal(before.encode(frames), after.encode(frames))
    assert sorted(path.name for path in folder.iterdir()) == ["encoder.json", "weights.safetensors"]
    card = json.loads((folder / "encoder.json").read_text())
    assert list(card) == [
        "schema", "kind", "views", "architecture", "preprocessing", "recipe", "trained_on"
    ]  # fmt: skip
    assert card["schema"] == "jointprobe-encoder/1" and card["kind"] == "untrained:cnn"


def test_provenance_is_no_part_of_the_fingerprint(folder: Path) -> None:
    before = load_folder(folder)
    facts = TrainedOn(manifest_sha256="0" * 64, episodes=[1], episode_sha256=["1" * 64], frames=5)
    save_encoder(folder, before, recipe=PixelsRecipe(), trained_on=facts)
    assert load_folder(folder).fingerprint == before.fingerprint


def test_a_kill_between_the_two_files_leaves_no_encoder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import encoders.checkpoints as module

    class Killed(BaseException):
        pass

    original = module.write_atomically

    def stop_at_the_card(path: Path, data: bytes) -> None:
        if path.name == "encoder.json":
            raise Killed
        original(path, data)

    monkeypatch.setattr(module, "write_atomically", stop_at_the_card)
    with pytest.raises(Killed):
        save_encoder(folder, _untrained(SMALL.model_copy(update={"seed": 9})))
    with pytest.raises(InputError, match=r"holds no encoder\.json"):
        load_folder(folder)


def test_one_weight_or_one_setting_changes_the_fingerprint(folder: Path) -> None:
    before = load_folder(folder).fingerprint

    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors["head.3.bias"][0] += 1e-6

    _edit_weights(folder, change)
    weights = load_folder(folder).fingerprint
    card = json.loads((folder / "encoder.json").read_text())
    card["preprocessing"]["std"][0][0] += 1e-9
    _edit(folder, preprocessing=card["preprocessing"])
    assert len({before, weights, load_folder(folder).fingerprint}) == 3


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"archtecture": {}}, r"unknown key 'archtecture' - did you mean 'architecture'\?"),
        ({"kind": "other"}, r"field 'kind'"),
        ({"schema": "jointprobe-encoder/9"}, r"field 'schema'"),
        (
            {"architecture": {"name": "cnn", "latent_dim": 3, "depth": 4}},
            r"architecture: unknown key 'depth'",
        ),
        ({"architecture": {"name": "cnn", "latent_dim": 4}}, r"weights: head\.3\.\w+ is torch\.float32 \(3"),
        ({"architecture": {"name": "cnn", "latent_dim": 10**9}}, r"latent_dim"),
        ({"views": ["front"]}, r"mean and std must have one row"),
        ({"views": ["front", "front"]}, r"a view is named twice"),
    ],
)
def test_a_wrong_card_is_named(folder: Path, changes: dict, message: str) -> None:
    _edit(folder, **changes)
    with pytest.raises(InputError, match=message):
        load_folder(folder)


def test_image_sizes_are_bounded_before_anything_is_built(folder: Path) -> None:
    card = json.loads((folder / "encoder.json").read_text())
    for size in ([8, 8], [10**6, 10**6]):
        _edit(folder, preprocessing={**card["preprocessing"], "image_size": size})
        with pytest.raises(InputError, match=r"image_size .* is not in 16\.\.4096"):
            load_folder(folder)


def test_wrong_weights_are_named(folder: Path) -> None:
    _edit_weights(folder, lambda tensors: tensors.update(extra=tensors.pop("head.3.bias")))
    with pytest.raises(InputError, match=r"missing tensors: \['head\.3\.bias'\]; unknown: \['extra'\]"):
        load_folder(folder)


def test_weights_that_are_not_finite_are_refused(folder: Path) -> None:
    _edit_weights(folder, lambda tensors: tensors["head.3.bias"].fill_(float("nan")))
    with pytest.raises(InputError, match=r"head\.3\.bias holds values that are not finite"):
        load_folder(folder)


def test_damaged_missing_and_oversized_files_are_input_errors(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, card = folder / "weights.safetensors", folder / "encoder.json"
    whole = weights.read_bytes()
    for damage in (whole[: len(whole) // 2], b"", b"\xff" * 64, whole[:8] + b"{" * 100):
        weights.write_bytes(damage)
        with pytest.raises(InputError, match="not a whole safetensors file"):
            load_folder(folder)
    weights.unlink()
    with pytest.raises(InputError, match=r"weights\.safetensors: does not exist"):
        load_folder(folder)
    weights.write_bytes(whole)
    monkeypatch.setattr("encoders.checkpoints.MAX_CARD_BYTES", 10)
    with pytest.raises(InputError, match="more than the 10 allowed"):
        load_folder(folder)
    monkeypatch.undo()
    card.write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        load_folder(folder)
    card.write_text("[" * 100_000)
    with pytest.raises(InputError, match="is not JSON"):
        load_folder(folder)


def test_specs_lead_to_their_encoders(folder: Path, demos: Recording, tmp_path: Path) -> None:
    named = load_encoder(str(folder), views=VIEWS)
    assert named.kind == "untrained:cnn"
    assert load_encoder("encoder", base=tmp_path).fingerprint == named.fingerprint
    trained = train(demos, [0], {"kind": "pixels", "image_size": 4, "components": 3}, tmp_path / "pixels")
    loaded = load_encoder("pixels:pixels", base=tmp_path, views=VIEWS)
    assert loaded.fingerprint == trained.fingerprint and loaded.kind == "pixels"
    with pytest.raises(InputError, match=r"holds 'pixels' - write pixels:pixels"):
        load_encoder("cnn:pixels", base=tmp_path)
    with pytest.raises(InputError, match=r"made for the views front, wrist, asked for wrist, front"):
        load_encoder("pixels:pixels", base=tmp_path, views=["wrist", "front"])
    with pytest.raises(InputError, match=r"there is no folder .*or write one of: cnn:FOLDER"):
        load_encoder("lewm:somewhere", base=tmp_path)
    with pytest.raises(InputError, match=r"nowhere: does not exist"):
        load_encoder("cnn:nowhere", base=tmp_path)
