"""Vision models of transformers, from folders that the tests make; the hub is never asked."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

from encoders import WeightsUnavailable, load_encoder
from encoders.model_files import model_folder
from encoders.transformers_models import TransformersEncoder
from hardware import InputError

VIEWS = ["front", "wrist"]


def _save(folder: Path, model: transformers.PreTrainedModel) -> Path:
    model.save_pretrained(folder)
    processor = transformers.BitImageProcessor(
        size={"shortest_edge": 32},
        crop_size={"height": 28, "width": 28},
        image_mean=[0.5] * 3,
        image_std=[0.25] * 3,
    )
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def dinov2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DINOv2 with random weights, 32 features, and its processor."""
    torch.manual_seed(0)
    config = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14
    )
    return _save(tmp_path_factory.mktemp("models") / "dinov2", transformers.Dinov2Model(config))


@pytest.fixture
def copy(dinov2: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dinov2, tmp_path / "copy"))


def _frames(count: int = 3, views: int = 2, side: int = 40) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, views, side, side, 3), dtype=np.uint8)


def test_latents_are_the_class_tokens_of_the_views_side_by_side(dinov2: Path) -> None:
    encoder = load_encoder(f"transformers:{dinov2}", views=VIEWS, device="cpu")
    frames = _frames()
    latents = encoder.encode(frames)
    assert latents.shape == (3, 64) == (3, encoder.width) and latents.dtype == np.float32
    model = transformers.AutoModel.from_pretrained(dinov2, local_files_only=True).eval()
    for row in range(3):
        for view in range(2):
            pixels = encoder.processor(images=frames[row, view], return_tensors="pt")["pixel_values"]  # type: ignore[attr-defined]
            with torch.inference_mode():
                expected = model(pixel_values=pixels).last_hidden_state[0, 0]
            np.testing.assert_allclose(latents[row, 32 * view : 32 * view + 32], expected, atol=1e-5)


def test_one_view_and_its_processor_matter(dinov2: Path) -> None:
    one = load_encoder(f"transformers:{dinov2}", views=["front"], device="cpu")
    both = load_encoder(f"transformers:{dinov2}", views=VIEWS, device="cpu")
    frames = _frames()
    np.testing.assert_allclose(one.encode(frames[:, :1]), both.encode(frames)[:, :32], atol=1e-5)
    assert one.fingerprint != both.fingerprint
    with pytest.raises(InputError, match="no view was named"):
        load_encoder(f"transformers:{dinov2}")


def test_fingerprint_is_that_of_the_files(dinov2: Path, copy: Path) -> None:
    def fingerprint() -> str:
        return load_encoder(f"transformers:{copy}", views=VIEWS, device="cpu").fingerprint

    original = load_encoder(f"transformers:{dinov2}", views=VIEWS, device="cpu").fingerprint
    assert fingerprint() == original  # the folder's name is no part of it
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "transformers_version": "9.9"}))
    assert fingerprint() == original  # nor is the version that wrote it
    (copy / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-5}))
    prints = {original, fingerprint()}
    (copy / "config.json").write_text(json.dumps(config))
    processor = json.loads((copy / "preprocessor_config.json").read_text())
    (copy / "preprocessor_config.json").write_text(json.dumps({**processor, "image_mean": [0.5, 0.5, 0.4]}))
    prints.add(fingerprint())
    (copy / "preprocessor_config.json").write_text(json.dumps(processor))
    tensors = safetensors.torch.load_file(copy / "model.safetensors")
    tensors["layernorm.bias"][0] += 1e-6
    safetensors.torch.save_file(tensors, copy / "model.safetensors", {"format": "pt"})
    prints.add(fingerprint())
    assert len(prints) == 4


def test_shards_give_the_same_fingerprint_as_one_file(dinov2: Path, copy: Path) -> None:
    before = load_encoder(f"transformers:{copy}", views=VIEWS, device="cpu")
    (copy / "model.safetensors").unlink()
    transformers.AutoModel.from_pretrained(dinov2).save_pretrained(copy, max_shard_size="40KB")
    assert (copy / "model.safetensors.index.json").is_file()
    after = load_encoder(f"transformers:{copy}", views=VIEWS, device="cpu")
    assert after.fingerprint == before.fingerprint
    np.testing.assert_allclose(after.encode(_frames()), before.encode(_frames()), atol=1e-6)
    index = json.loads((copy / "model.safetensors.index.json").read_text())
    index["weight_map"]["layernorm.bias"] = "../elsewhere.safetensors"
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match="names files outside its folder"):
        load_encoder(f"transformers:{copy}", views=VIEWS)


def test_views_of_different_size_are_brought_to_the_largest(dinov2: Path) -> None:
    shapes = {"front": (40, 60), "wrist": (48, 48)}
    encoder = load_encoder(f"transformers:{dinov2}", views=VIEWS, image_shapes=shapes, device="cpu")
    assert encoder.image_size == (48, 60) and encoder.preprocessing["resized_to"] == [48, 60]
    same = {"front": (40, 60), "wrist": (40, 60)}
    assert (
        load_encoder(f"transformers:{dinov2}", views=VIEWS, image_shapes=same, device="cpu").image_size
        is None
    )


def test_models_without_a_class_token_are_pooled(tmp_path: Path) -> None:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    folder = _save(tmp_path, transformers.ResNetModel(config))
    encoder = load_encoder(f"transformers:{folder}", views=["front"], device="cpu")
    assert encoder.width == 16 and encoder.architecture["feature"] == "pooled"
    batch_norm = [name for name, _ in encoder.tensors() if "running_mean" in name]
    assert batch_norm and not encoder.network.training  # type: ignore[attr-defined]


def test_weights_that_do_not_fit_the_config_are_refused(copy: Path) -> None:
    tensors = safetensors.torch.load_file(copy / "model.safetensors")
    del tensors["encoder.layer.1.norm1.weight"]
    safetensors.torch.save_file(tensors, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match="parts would be random"):
        load_encoder(f"transformers:{copy}", views=VIEWS)


@pytest.mark.parametrize("missing", ["config.json", "preprocessor_config.json", "model.safetensors"])
def test_a_folder_that_lacks_a_file_names_it(copy: Path, missing: str) -> None:
    (copy / missing).unlink()
    with pytest.raises(WeightsUnavailable, match=f"lacks {missing} - give a folder made by save_pretrained"):
        load_encoder(f"transformers:{copy}", views=VIEWS)


def test_pickled_weights_are_not_read(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(b"not to be unpickled")
    with pytest.raises(WeightsUnavailable, match=r"lacks model\.safetensors"):
        load_encoder(f"transformers:{copy}", views=VIEWS)


def test_damaged_files_are_input_errors(copy: Path) -> None:
    whole = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError):
        load_encoder(f"transformers:{copy}", views=VIEWS)
    (copy / "model.safetensors").write_bytes(whole)
    (copy / "config.json").write_text('{"model_type": "no-such-model"}')
    with pytest.raises(InputError, match="no vision model that transformers loads"):
        load_encoder(f"transformers:{copy}", views=VIEWS)


def _cache(dinov2: Path, folder: Path, name: str) -> None:
    """A hub cache that holds the model under `name`, in the layout that huggingface_hub documents."""
    repository = folder / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    shutil.copytree(dinov2, repository / "snapshots" / ("0" * 40))


def test_the_local_cache_is_enough(dinov2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    _cache(dinov2, tmp_path, "someone/tiny")
    cached = TransformersEncoder("someone/tiny", views=VIEWS)
    assert cached.fingerprint == TransformersEncoder(str(dinov2), views=VIEWS).fingerprint
    assert cached.describe()["source"] == "someone/tiny"
    (model_folder("someone/tiny") / "preprocessor_config.json").unlink()
    with pytest.raises(WeightsUnavailable, match=r"lacks preprocessor_config\.json in the local cache"):
        TransformersEncoder("someone/tiny", views=VIEWS)


def test_offline_it_says_at_once_what_is_missing_and_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    start = time.monotonic()
    with pytest.raises(WeightsUnavailable) as caught:
        load_encoder("transformers:facebook/dinov2-small", views=VIEWS)
    assert time.monotonic() - start < 10
    assert str(caught.value) == (
        "weights of facebook/dinov2-small: is not in the local cache, and offline mode is set - run "
        "`huggingface-cli download facebook/dinov2-small` where the hub can be reached, "
        "or name a folder with its files"
    )


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "http://no-such-host.invalid"])
def test_a_hub_that_cannot_be_reached_is_found_out_in_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    for name, value in {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": False, "ENDPOINT": endpoint}.items():
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    start = time.monotonic()
    with pytest.raises(WeightsUnavailable, match="the hub cannot be reached"):
        model_folder("facebook/dinov2-small")
    assert time.monotonic() - start < 15


def test_names_that_are_neither_folder_nor_id(tmp_path: Path) -> None:
    for name in ("./nowhere", "/nowhere/at/all", "~/nowhere", "a/b/c"):
        with pytest.raises(InputError, match="the folder does not exist"):
            load_encoder(f"transformers:{name}", views=VIEWS)
    for spec in ("transformers:", "cnn:", ""):
        with pytest.raises(InputError, match="names nothing - known: cnn:FOLDER"):
            load_encoder(spec, views=VIEWS)
    with pytest.raises(InputError, match="is no hub id"):
        load_encoder("transformers:not an id", views=VIEWS)
