"""Classifiers of torchvision without their last layer: `torchvision:NAME`, `torchvision:NAME:WEIGHTS`."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import nn

from encoders.encoder import load_exactly
from encoders.frame_preprocessing import PixelSteps
from encoders.frozen import FrozenEncoder, Precision, Preprocess, Runtime
from encoders.model_files import WeightsUnavailable
from hardware.errors import InputError

MAX_WEIGHT_BYTES = 4 << 30
DENSENET_NAMES = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)")  # of before torchvision 0.2


class TorchvisionEncoder(FrozenEncoder):
    """A classifier of torchvision; its latent is what its last linear layer is given (`pooled`).

    Preprocessing is `transforms()` of the weights that are named; of the network's default ones for a file of
    the user's own.

    Parameters
    ----------
    name : `resnet50` (its default weights), `resnet50:IMAGENET1K_V1`, or `resnet50:FILE` with weights of that
        architecture: a state dict by torch.save, or safetensors; the last layer may be missing or of
        another width. Published weights are read from torch hub's cache and never fetched.
    base : folder that a relative FILE starts from.
    views, image_shapes, device, precision, runtime, preprocess : see `FrozenEncoder`.
    """

    kind = "torchvision"

    def __init__(
        self,
        name: str,
        *,
        views: Sequence[str] | None,
        image_shapes: Mapping[str, tuple[int, int]] | None = None,
        base: str | Path | None = None,
        device: torch.device | str = "cpu",
        precision: Precision = "fp32",
        runtime: Runtime = "torch",
        preprocess: Preprocess = "proven",
    ) -> None:
        self.name, self.where = name, f"encoder 'torchvision:{name}'"
        architecture, _, weights = name.partition(":")
        published, path = _weights_file(architecture, weights, Path(base or "."), self.where)
        self.network, width = _network(architecture, _read_state(path), path)
        self.outputs = {"pooled": width}
        self._transforms = published.transforms()
        self.architecture = {"name": architecture, "feature": "pooled"}
        steps, settings = _steps(self._transforms)
        super().__init__(
            steps,
            settings,
            views=views,
            image_shapes=image_shapes,
            device=device,
            precision=precision,
            runtime=runtime,
            preprocess=preprocess,
        )

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """State dict without the last layer and without counters that decide nothing."""
        for name, tensor in sorted(self.network.state_dict().items()):
            if not name.endswith("num_batches_tracked"):
                yield name, tensor

    def describe(self) -> dict[str, Any]:
        """Facts of every frozen encoder, and where this one came from."""
        import torchvision

        return {**super().describe(), "source": self.name, "torchvision": torchvision.__version__}

    def _published(self, images: np.ndarray) -> torch.Tensor:
        from torchvision.transforms.functional import to_pil_image

        # of Pillow's images, for which their accuracies are published; of tensors it resizes in floats
        return torch.stack([self._transforms(to_pil_image(image)) for image in images])

    def _features(self, values: torch.Tensor, outputs: Sequence[str]) -> tuple[torch.Tensor, ...]:
        return (self.network(values).flatten(1),)


def _weights_file(architecture: str, weights: str, base: Path, where: str) -> tuple[Any, Path]:
    """The published weights whose preprocessing is used, and the file with the tensors."""
    from torchvision import models

    if architecture not in models.list_models(module=models):
        known = ", ".join(models.list_models(module=models, include=[f"{architecture[:4]}*"]))
        raise InputError(
            where, f"torchvision has no classifier {architecture!r}", f"such are: {known or 'none'}"
        )
    published = models.get_model_weights(architecture)
    file = base / Path(weights).expanduser()
    if weights and (file.is_file() or weights not in published.__members__):
        if not file.is_file():
            names = ", ".join(published.__members__)
            raise WeightsUnavailable(
                where, f"there is no file {file}", f"name a file with its weights, or one of: {names}"
            )
        return published["DEFAULT"], file
    chosen = published[weights or "DEFAULT"]
    cached = Path(torch.hub.get_dir()) / "checkpoints" / os.path.basename(chosen.url)
    if not cached.is_file():
        raise WeightsUnavailable(
            f"weights of {where.removeprefix('encoder ')}",
            f"are not in torch hub's cache ({cached})",
            f"put {chosen.url} there, or name a file: torchvision:{architecture}:FILE",
        )
    return chosen, cached


def _read_state(path: Path) -> dict[str, torch.Tensor]:
    """Tensors by name of a file of torch.save (nothing else in it is run) or of safetensors."""
    if path.stat().st_size > MAX_WEIGHT_BYTES:
        raise InputError(
            path, f"is {path.stat().st_size:,} bytes, more than the {MAX_WEIGHT_BYTES:,} allowed"
        )
    try:
        if path.suffix == ".safetensors":
            state: Any = safetensors.torch.load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, KeyError, EOFError, pickle.UnpicklingError) as error:
        raise InputError(
            path,
            f"holds no weights that can be read: {str(error).splitlines()[0][:200]}",
            "give a state dict",
        ) from None
    except safetensors.SafetensorError as error:
        raise InputError(
            path, f"is not a whole safetensors file: {error}", "restore it from a copy"
        ) from None
    for key in ("state_dict", "model"):  # as training scripts wrap it
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise InputError(path, "is not a state dict: tensors by name", "save model.state_dict()")
    return {str(name).removeprefix("module."): tensor for name, tensor in state.items()}


def _network(architecture: str, state: Mapping[str, torch.Tensor], path: Path) -> tuple[nn.Module, int]:
    """The classifier with these weights, its last linear layer taken out, and what that layer was given."""
    import torchvision
    from torchvision import models

    settings = {"init_weights": False} if architecture in ("googlenet", "inception_v3") else {}
    network = models.get_model(architecture, weights=None, **settings).eval()
    linear = [name for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise InputError(
            f"encoder 'torchvision:{architecture}'",
            "has no linear layer at its end",
            "take another classifier",
        )
    parent, _, last = linear[-1].rpartition(".")
    width = int(network.get_submodule(linear[-1]).in_features)
    setattr(network.get_submodule(parent), last, nn.Identity())
    tensors = {
        DENSENET_NAMES.sub(r"\1\2", name): tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in state.items()
        if not name.startswith(f"{linear[-1]}.")
    }
    for name, counter in network.state_dict().items():
        if name.endswith("num_batches_tracked"):  # decides nothing; older files lack it
            tensors.setdefault(name, counter)
    missing = sorted(network.state_dict().keys() - tensors.keys())
    unknown = sorted(tensors.keys() - network.state_dict().keys())
    if missing or unknown:
        raise InputError(
            path,
            f"are not the weights of {architecture}: {len(missing)} tensors are missing "
            f"({', '.join(missing[:3])}...), {len(unknown)} unknown ({', '.join(unknown[:3])}...)",
            "name the network that they are of",
        )
    where = f"{path} for torchvision {torchvision.__version__}'s {architecture}"
    try:
        load_exactly(network, tensors, where)
    except InputError:
        raise
    except (ValueError, RuntimeError) as error:  # MNASNet wants to know a version that only pickles tell
        raise InputError(where, f"cannot be loaded: {error}", "take another network") from None
    return network, width


def _steps(transforms: Any) -> tuple[PixelSteps | None, dict[str, Any]]:
    """Our steps of a torchvision preset, None where it is another one, and its settings."""
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms._presets import ImageClassification

    if not isinstance(transforms, ImageClassification):
        return None, {"transforms": repr(transforms)}
    size = transforms.resize_size[0] if len(transforms.resize_size) == 1 else tuple(transforms.resize_size)
    crop = transforms.crop_size[0] if len(transforms.crop_size) == 1 else transforms.crop_size
    settings = {
        "resize": size if isinstance(size, int) else list(size),
        "crop": crop,
        "interpolation": transforms.interpolation.value,
        "antialias": transforms.antialias,
        "mean": list(transforms.mean),
        "std": list(transforms.std),
    }
    if (
        transforms.interpolation not in (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)
        or not transforms.antialias
    ):
        return None, settings
    window = (crop, crop) if isinstance(crop, int) else tuple(crop)
    steps = PixelSteps(
        size,
        "bilinear" if transforms.interpolation is InterpolationMode.BILINEAR else "bicubic",
        window,
        mean=tuple(transforms.mean),
        std=tuple(transforms.std),
        centre="even",
    )
    return steps, settings
