"""Frozen networks by OpenVINO: the latents of torch, under another fingerprint, bound by a freeze."""

from __future__ import annotations

import builtins
import platform
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
import transformers

from bars import Study, StudyError
from encoders import WeightsUnavailable, load_encoder
from hardware import InputError
from probe.run import freeze_study
from tests.probe.studies import STUDY, make_study

VIEWS = ["front", "side"]
needs_openvino = pytest.mark.skipif(platform.machine() != "x86_64", reason="OpenVINO is for x86_64")


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DINOv2 with random weights and its processor."""
    folder = tmp_path_factory.mktemp("openvino") / "dinov2"
    torch.manual_seed(0)
    config = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14
    )
    transformers.Dinov2Model(config).save_pretrained(folder)
    transformers.BitImageProcessor(
        size={"shortest_edge": 32}, crop_size={"height": 28, "width": 28}
    ).save_pretrained(folder)
    return folder


def frames_of(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 2, 40, 40, 3), dtype=np.uint8)


def least_cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Of rows, once their common mean is taken away, which would hide most differences."""
    a, b = a - b.mean(axis=0), b - b.mean(axis=0)
    return float(((a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


@needs_openvino
def test_latents_are_those_of_torch(dinov2: Path) -> None:
    pytest.importorskip("openvino")
    frames = frames_of(11)  # of two views: batches of eight, the last one filled up
    encoders = {
        runtime: load_encoder(f"transformers:{dinov2}@cls_mean", views=VIEWS, device="cpu", runtime=runtime)
        for runtime in ("torch", "openvino")
    }
    by_torch, by_openvino = (one.encode(frames) for one in encoders.values())
    assert by_openvino.shape == (11, 128) and by_openvino.dtype == np.float32
    assert least_cosine(by_openvino, by_torch) > 0.99999
    np.testing.assert_array_equal(encoders["openvino"].encode(frames), by_openvino)
    np.testing.assert_array_equal(encoders["openvino"].encode(frames[:3]), by_openvino[:3])
    assert encoders["openvino"].encode(frames[:0]).shape == (0, 128)
    assert encoders["torch"].fingerprint != encoders["openvino"].fingerprint
    assert encoders["openvino"].describe()["openvino"]
    cls = encoders["openvino"].with_output("cls")
    np.testing.assert_array_equal(cls.encode(frames)[:, :32], by_openvino[:, :32])
    both = cls.encode_outputs(frames, ["cls_mean", "cls"])
    np.testing.assert_array_equal(both[0], by_openvino)
    np.testing.assert_array_equal(both[1], cls.encode(frames))


@needs_openvino
def test_bf16_is_near(dinov2: Path) -> None:
    pytest.importorskip("openvino")
    frames = frames_of(16)
    exact = load_encoder(f"transformers:{dinov2}", views=VIEWS, device="cpu").encode(frames)
    try:
        encoder = load_encoder(
            f"transformers:{dinov2}", views=VIEWS, device="cpu", precision="bf16", runtime="openvino"
        )
    except WeightsUnavailable as refused:
        pytest.skip(str(refused))  # a CPU without bfloat16
    latents = encoder.encode(frames)
    assert least_cosine(latents, exact) > 0.99 and not np.array_equal(latents, exact)


@needs_openvino
@pytest.mark.slow
def test_a_torchvision_network(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    torch.manual_seed(0)
    torch.save(torchvision.models.resnet18(weights=None).state_dict(), tmp_path / "weights.pth")
    spec = f"torchvision:resnet18:{tmp_path / 'weights.pth'}"
    frames = frames_of(2)
    one, other = (
        load_encoder(spec, views=VIEWS, device="cpu", runtime=runtime).encode(frames)
        for runtime in ("torch", "openvino")
    )
    np.testing.assert_allclose(other, one, atol=1e-3 * np.abs(one).max())


def test_what_it_cannot_run_is_refused(dinov2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="cannot be run by 'openvino'"):
        load_encoder("untrained:cnn", views=VIEWS, runtime="openvino")
    spec = f"transformers:{dinov2}"
    with monkeypatch.context() as here:
        here.setattr("platform.machine", lambda: "aarch64")
        with pytest.raises(WeightsUnavailable, match="for x86_64; this machine is aarch64"):
            load_encoder(spec, views=VIEWS, runtime="openvino")
    real = builtins.__import__

    def without(name: str, *rest: object, **more: object) -> object:
        if name == "openvino":
            raise ImportError(name)
        return real(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(WeightsUnavailable, match=r"pip install -e '\.\[openvino\]'"):
        load_encoder(spec, views=VIEWS, runtime="openvino")


@needs_openvino
def test_a_study_binds_the_runtime(dinov2: Path, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    prints = {}
    for runtime in ("torch", "openvino"):
        entry = f'  frozen: {{load: "transformers:{dinov2}", runtime: {runtime}}}\nprobe:'
        study = make_study(tmp_path / runtime, STUDY.replace("probe:", entry, 1))
        prints[runtime] = freeze_study(study).body["encoders"]["frozen"]["fingerprint"]
    assert prints["torch"] != prints["openvino"]
    wrong = STUDY.replace("on: moves\n  untrained", "on: moves\n    runtime: openvino\n  untrained", 1)
    (tmp_path / "torch/studies/small/study.yaml").write_text(wrong)
    with pytest.raises(StudyError, match="has runtime, which is for given networks"):
        Study.load(tmp_path / "torch/studies/small")
