"""Classifiers of torchvision with random weights, from files that the tests write; nothing is fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torchvision import models
from torchvision.transforms.functional import to_pil_image

from encoders import Encoder, WeightsUnavailable, load_encoder
from hardware import InputError

SHAPES = {"front": (60, 80), "wrist": (60, 80)}


def _state(name: str = "shufflenet_v2_x0_5") -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    state: dict[str, torch.Tensor] = models.get_model(name, weights=None).state_dict()
    return state


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """weights.pth, and the same in other wrappings."""
    made = tmp_path_factory.mktemp("torchvision")
    state = _state()
    torch.save(state, made / "weights.pth")
    safetensors.torch.save_file(state, made / "weights.safetensors")
    torch.save(
        {"state_dict": {f"module.{name}": value for name, value in state.items()}}, made / "wrapped.pth"
    )
    headless = {name: value for name, value in state.items() if not name.startswith("fc.")}
    torch.save({"model": headless}, made / "headless.pth")
    torch.save({**state, "fc.weight": torch.ones(7, 1024), "fc.bias": torch.ones(7)}, made / "seven.pth")
    counted = {name: value for name, value in state.items() if "num_batches" not in name}
    torch.save(counted, made / "old.pth")
    return made


def _load(spec: str, folder: Path | None = None, **settings: Any) -> Encoder:
    views = settings.pop("views", ["front"])
    return load_encoder(
        f"torchvision:{spec}", views=views, image_shapes=SHAPES, base=folder, device="cpu", **settings
    )


def _frames(count: int = 3, views: int = 1) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, views, 60, 80, 3), dtype=np.uint8)


def test_latents_are_what_the_classifier_is_given(folder: Path) -> None:
    encoder = _load("shufflenet_v2_x0_5:weights.pth", folder, views=["front", "wrist"])
    assert encoder.width == 2048 and encoder.architecture["feature"] == "pooled"
    frames = _frames(views=2)
    network = models.shufflenet_v2_x0_5()
    network.load_state_dict(torch.load(folder / "weights.pth", weights_only=True))
    transforms = models.ShuffleNet_V2_X0_5_Weights.DEFAULT.transforms()
    given: list[torch.Tensor] = []
    network.eval().fc.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    with torch.inference_mode():
        network(torch.stack([transforms(to_pil_image(image)) for image in frames[:, 1]]))
    # Pillow rounds to other grey levels here and there
    np.testing.assert_allclose(encoder.encode(frames)[:, 1024:], given[0], atol=0.05)
    exact = _load("shufflenet_v2_x0_5:weights.pth", folder)
    exact.preprocessing["by"] = "published"
    np.testing.assert_allclose(exact.encode(frames[:, 1:]), given[0], atol=1e-5)


def test_preprocessing_is_that_of_the_weights_and_proven(folder: Path) -> None:
    encoder = _load("shufflenet_v2_x0_5:weights.pth", folder)
    assert encoder.preprocessing == {
        "published": {
            "resize": 256,
            "crop": 224,
            "interpolation": "bilinear",
            "antialias": True,
            "mean": [0.485, 0.456, 0.406],
            "std": [0.229, 0.224, 0.225],
        },
        "by": "tensors",
        "resized_to": None,
    }
    assert encoder.describe()["comparison"]["80x60"].startswith("1 grey levels apart")
    transforms = models.ShuffleNet_V2_X0_5_Weights.DEFAULT.transforms()
    frames = _frames()
    expected = torch.stack([transforms(to_pil_image(image)) for image in frames[:, 0]])
    np.testing.assert_allclose(encoder.preprocessed(frames), expected, atol=1.01 / 255 / 0.224)


@pytest.mark.parametrize("file", ["weights.safetensors", "wrapped.pth", "headless.pth", "old.pth"])
def test_the_same_weights_in_other_wrappings_are_the_same_encoder(folder: Path, file: str) -> None:
    assert (
        _load(f"shufflenet_v2_x0_5:{file}", folder).fingerprint
        == _load("shufflenet_v2_x0_5:weights.pth", folder).fingerprint
    )


def test_another_number_of_classes_is_no_matter_but_other_weights_are(folder: Path) -> None:
    seven, one = (
        _load("shufflenet_v2_x0_5:seven.pth", folder),
        _load("shufflenet_v2_x0_5:weights.pth", folder),
    )
    assert seven.width == one.width and seven.fingerprint == one.fingerprint
    state = _state()
    state["conv1.0.weight"][0, 0, 0, 0] += 1e-6
    torch.save(state, folder / "other.pth")
    assert _load("shufflenet_v2_x0_5:other.pth", folder).fingerprint != one.fingerprint


def test_published_weights_come_from_torch_hubs_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    with pytest.raises(
        WeightsUnavailable, match=r"are not in torch hub's cache .*shufflenetv2_x0\.5-f707e7126e\.pth"
    ):
        _load("shufflenet_v2_x0_5")
    (tmp_path / "checkpoints").mkdir()
    published = tmp_path / "checkpoints" / "shufflenetv2_x0.5-f707e7126e.pth"
    published.write_bytes((folder / "weights.pth").read_bytes())
    assert (
        _load("shufflenet_v2_x0_5").fingerprint == _load("shufflenet_v2_x0_5:weights.pth", folder).fingerprint
    )
    assert _load("shufflenet_v2_x0_5:IMAGENET1K_V1").fingerprint == _load("shufflenet_v2_x0_5").fingerprint


@pytest.mark.parametrize(
    ("name", "width"), [("mobilenet_v3_small", 1024), ("efficientnet_b0", 1280), ("densenet121", 1024)]
)
def test_other_architectures(tmp_path: Path, name: str, width: int) -> None:
    state = _state(name)
    if name == "densenet121":  # whose published file has the names of torchvision 0.1
        old = {key.replace("norm1.", "norm.1.").replace("conv2.", "conv.2."): state[key] for key in state}
        assert old.keys() != state.keys()
        state = old
    torch.save(state, tmp_path / "weights.pth")
    encoder = _load(f"{name}:weights.pth", tmp_path)
    assert encoder.encode(_frames(1)).shape == (1, width) == (1, encoder.width)


def test_what_is_wrong_is_said(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="no classifier 'resnet19' - such are: resnet101, resnet152, resnet18"
    ):
        _load("resnet19")
    with pytest.raises(WeightsUnavailable, match=r"no file .*nowhere\.pth - .* or one of: IMAGENET1K_V1"):
        _load("shufflenet_v2_x0_5:nowhere.pth", folder)
    with pytest.raises(
        InputError, match=r"not the weights of resnet18: .* missing \(bn1\.bias, .*unknown \("
    ):
        _load("resnet18:weights.pth", folder)
    with pytest.raises(InputError, match="has no linear layer at its end"):
        torch.save(_state("squeezenet1_0"), tmp_path / "squeezenet.pth")
        _load("squeezenet1_0:squeezenet.pth", tmp_path)
    with pytest.raises(InputError, match="has no latent 'cls' - write one of: pooled"):
        _load("shufflenet_v2_x0_5:weights.pth@cls", folder)
    (tmp_path / "half.pth").write_bytes((folder / "weights.pth").read_bytes()[:100_000])
    (tmp_path / "half.safetensors").write_bytes((folder / "weights.safetensors").read_bytes()[:100_000])
    torch.save([1, 2], tmp_path / "list.pth")
    torch.save(models.shufflenet_v2_x0_5(), tmp_path / "pickled.pth")  # a module: reading it would run code
    for file in ("half.pth", "half.safetensors", "pickled.pth"):
        with pytest.raises(InputError, match=r"holds no weights|not a whole safetensors"):
            _load(f"shufflenet_v2_x0_5:{file}", tmp_path)
    with pytest.raises(InputError, match="is not a state dict"):
        _load("shufflenet_v2_x0_5:list.pth", tmp_path)


def test_bf16(folder: Path) -> None:
    exact = _load("shufflenet_v2_x0_5:weights.pth", folder)
    rounded = _load("shufflenet_v2_x0_5:weights.pth", folder, precision="bf16")
    one, other = exact.encode(_frames()), rounded.encode(_frames())
    cosine = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    assert cosine.min() > 0.999 and rounded.fingerprint != exact.fingerprint
