"""ONNX networks that the tests export by hand, node by node, and run with onnxruntime."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encoders import Encoder, WeightsUnavailable, load_encoder
from encoders.frame_preprocessing import PixelSteps, pixel_values
from hardware import InputError

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install -e .[jetson]")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e .[jetson]")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it may be missing

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WEIGHT = np.random.default_rng(0).normal(size=(3 * 8 * 10, 5)).astype(np.float32)


def write_network(
    path: Path,
    *,
    batch: int | str = "n",
    dtype: int = TensorProto.FLOAT,
    layout: str = "NCHW",
    tokens: bool = False,
    metadata: dict[str, Any] | None = None,
) -> None:
    """latent = flattened pixels times WEIGHT; with `tokens` a second output (n, 4, 60) of the raw pixels."""
    axes = [3, 8, 10] if layout == "NCHW" else [8, 10, 3]
    nodes = [
        helper.make_node("Cast", ["pixels"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["floats"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weight"], ["latent"]),
    ]
    outputs = [helper.make_tensor_value_info("latent", TensorProto.FLOAT, [batch, 5])]
    shape = numpy_helper.from_array(np.array([-1, 4, 60]), "shape")
    if tokens:
        nodes.append(helper.make_node("Reshape", ["flat", "shape"], ["tokens"]))
        outputs.append(helper.make_tensor_value_info("tokens", TensorProto.FLOAT, [batch, 4, 60]))
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("pixels", dtype, [batch, *axes])],
        outputs,
        [numpy_helper.from_array(WEIGHT, "weight"), shape],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if metadata is not None:
        helper.set_model_props(model, {"jointprobe": json.dumps(metadata)})
    onnx.save(model, path)


def _card(path: Path, **changes: Any) -> None:
    card = {"image_size": [8, 10], "mean": MEAN, "std": STD, **changes}
    path.with_suffix(".json").write_text(json.dumps({k: v for k, v in card.items() if v is not None}))


def _load(folder: Path, spec: str = "network.onnx", **settings: Any) -> Encoder:
    views = settings.pop("views", ["front"])
    return load_encoder(f"onnx:{spec}", views=views, base=folder, device="cpu", **settings)


def _frames(count: int = 3, views: int = 1) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, views, 24, 32, 3), dtype=np.uint8)


def _pixels(frames: np.ndarray, view: int = 0) -> np.ndarray:
    steps = PixelSteps((8, 10), "bilinear", None, mean=MEAN, std=STD)
    return pixel_values(torch.from_numpy(np.ascontiguousarray(frames[:, view])), steps).numpy()


def test_latents_are_the_networks_of_the_declared_pixels(tmp_path: Path) -> None:
    write_network(tmp_path / "network.onnx")
    _card(tmp_path / "network.onnx")
    encoder = _load(tmp_path, views=["front", "wrist"])
    frames = _frames(views=2)
    latents = encoder.encode(frames)
    assert latents.shape == (3, 10) == (3, encoder.width) and latents.dtype == np.float32
    for view in range(2):
        expected = _pixels(frames, view).reshape(3, -1) @ WEIGHT
        np.testing.assert_allclose(latents[:, 5 * view : 5 * view + 5], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(encoder.preprocessed(frames[:1])[0], _pixels(frames)[0], atol=1e-6)
    described = encoder.describe()
    assert described["providers"] == ["CPUExecutionProvider"] and described["source"] == "network.onnx"
    assert encoder.preprocessing["by"] == "published" and list(encoder.tensors()) == []


@pytest.mark.parametrize("batch", [1, 4])
def test_a_fixed_batch_is_filled_up(tmp_path: Path, batch: int) -> None:
    write_network(tmp_path / "network.onnx", batch=batch)
    _card(tmp_path / "network.onnx")
    frames = _frames(11)
    expected = _pixels(frames).reshape(11, -1) @ WEIGHT
    np.testing.assert_allclose(_load(tmp_path).encode(frames), expected, rtol=1e-4, atol=1e-4)


def test_layout_and_bytes(tmp_path: Path) -> None:
    write_network(tmp_path / "network.onnx", layout="NHWC", dtype=TensorProto.UINT8)
    _card(tmp_path / "network.onnx", mean=None, std=None, layout="NHWC")
    frames = _frames()
    levels = pixel_values(
        torch.from_numpy(np.ascontiguousarray(frames[:, 0])), PixelSteps((8, 10), "bilinear", None, scale=1.0)
    )
    expected = levels.permute(0, 2, 3, 1).reshape(3, -1).numpy() @ WEIGHT
    np.testing.assert_allclose(_load(tmp_path).encode(frames), expected, rtol=1e-4, atol=0.1)
    _card(tmp_path / "network.onnx", layout="NHWC")
    with pytest.raises(InputError, match="reads uint8, so its JSON cannot have mean and std"):
        _load(tmp_path)


def test_half_precision_input(tmp_path: Path) -> None:
    write_network(tmp_path / "network.onnx", dtype=TensorProto.FLOAT16)
    _card(tmp_path / "network.onnx")
    expected = _pixels(_frames()).reshape(3, -1) @ WEIGHT
    np.testing.assert_allclose(_load(tmp_path).encode(_frames()), expected, atol=0.05)


def test_tokens(tmp_path: Path) -> None:
    write_network(tmp_path / "network.onnx", tokens=True)
    tokens = _pixels(_frames()).reshape(3, 4, 60)
    _card(tmp_path / "network.onnx", output="tokens", feature="cls")
    np.testing.assert_allclose(_load(tmp_path).encode(_frames()), tokens[:, 0], atol=1e-5)
    _card(tmp_path / "network.onnx", output="tokens", feature="mean", tokens_before_patches=1)
    mean = _load(tmp_path)
    np.testing.assert_allclose(mean.encode(_frames()), tokens[:, 1:].mean(1), atol=1e-5)
    assert mean.with_output("mean").fingerprint == mean.fingerprint
    _card(tmp_path / "network.onnx", output="tokens")
    with pytest.raises(InputError, match=r"its output tokens is \(1, 4, 60\), which is no pooled feature"):
        _load(tmp_path)
    _card(tmp_path / "network.onnx", feature="cls")
    with pytest.raises(InputError, match="which is no cls feature"):
        _load(tmp_path)


def test_a_window_of_the_middle(tmp_path: Path) -> None:
    write_network(tmp_path / "network.onnx")
    _card(tmp_path / "network.onnx", shorter_side=12, interpolation="bicubic")
    steps = PixelSteps(12, "bicubic", (8, 10), mean=MEAN, std=STD)
    expected = pixel_values(torch.from_numpy(_frames()[:, 0]), steps).reshape(3, -1).numpy() @ WEIGHT
    np.testing.assert_allclose(_load(tmp_path).encode(_frames()), expected, rtol=1e-4, atol=1e-4)


def test_preprocessing_inside_the_file(tmp_path: Path) -> None:
    write_network(tmp_path / "network.onnx", metadata={"image_size": [8, 10], "mean": MEAN, "std": STD})
    inside = _load(tmp_path)
    expected = _pixels(_frames()).reshape(3, -1) @ WEIGHT
    np.testing.assert_allclose(inside.encode(_frames()), expected, rtol=1e-4, atol=1e-4)
    _card(tmp_path / "network.onnx", image_size=[8, 10], mean=[0.5, 0.5, 0.5])
    assert _load(tmp_path).fingerprint != inside.fingerprint  # the JSON beside comes first


def test_fingerprint_is_of_the_bytes_and_the_card(tmp_path: Path) -> None:
    write_network(tmp_path / "network.onnx")
    _card(tmp_path / "network.onnx")
    first = _load(tmp_path).fingerprint
    _card(tmp_path / "network.onnx", interpolation="bicubic")
    second = _load(tmp_path).fingerprint
    _card(tmp_path / "network.onnx")
    write_network(tmp_path / "network.onnx", metadata={"image_size": [8, 10]})
    third = _load(tmp_path).fingerprint
    assert len({first, second, third}) == 3
    (tmp_path / "moved").mkdir()
    write_network(tmp_path / "moved" / "other.onnx")
    _card(tmp_path / "moved" / "other.onnx")
    assert _load(tmp_path, "moved/other.onnx").fingerprint == first


def test_weights_outside_the_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash covers one file, so another one must not decide what is computed."""
    write_network(tmp_path / "network.onnx")
    model = onnx.load(tmp_path / "network.onnx")
    onnx.save(
        model, tmp_path / "network.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    _card(tmp_path / "network.onnx")
    assert (tmp_path / "w.bin").is_file()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="weights"):
        _load(tmp_path)


Spoil = Callable[[Path], None]
WRONG: dict[str, tuple[Spoil, type[InputError], str]] = {
    "no card": (lambda p: p.with_suffix(".json").unlink(), InputError, r"does not declare its preprocessing"),
    "size": (lambda p: _card(p, image_size=[10, 8]), InputError, r"reads \['n', 3, 8, 10\], its JSON tells"),
    "layout": (lambda p: _card(p, layout="NHWC"), InputError, "correct image_size or layout"),
    "unknown key": (lambda p: _card(p, meen=1), InputError, "meen"),
    "no size": (lambda p: _card(p, image_size=None), InputError, "image_size"),
    "std": (lambda p: _card(p, std=[0, 1, 1]), InputError, "std must be above 0"),
    "window": (lambda p: _card(p, shorter_side=4), InputError, "as long as image_size at least"),
    "output": (lambda p: _card(p, output="z"), InputError, "has no output 'z' - its outputs: latent"),
    "not JSON": (lambda p: _write(p.with_suffix(".json"), b"{"), InputError, "is not JSON"),
    "not ONNX": (lambda p: _write(p, b"no network"), InputError, "is no ONNX network that onnxruntime loads"),
    "no file": (lambda p: p.unlink(), WeightsUnavailable, "there is no file"),
    "integers": (lambda p: write_network(p, dtype=TensorProto.INT64), InputError, r"reads tensor\(int64\)"),
}


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said(tmp_path: Path, what: str) -> None:
    spoil, error, words = WRONG[what]
    write_network(tmp_path / "network.onnx")
    _card(tmp_path / "network.onnx")
    spoil(tmp_path / "network.onnx")
    with pytest.raises(error, match=words):
        _load(tmp_path)


def test_precision_is_the_files_own(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot compute in 'bf16'"):
        _load(tmp_path, precision="bf16")
