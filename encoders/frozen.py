"""Frozen vision models of transformers: from a folder, the local cache, or the hub if it answers."""

from __future__ import annotations

import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch

from encoders.encoder import Encoder, check_views, common_size, prepare_frames
from hardware.errors import InputError

MODEL_FILES = (
    "config.json",
    "preprocessor_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
)
MAX_JSON_BYTES = 16 << 20
REACH_TIMEOUT_S = 5.0
VOLATILE = ("transformers_version", "_name_or_path", "torch_dtype", "dtype", "id2label", "label2id")
"""Keys of the config that decide no latent."""
IMAGES_AT_ONCE = 32


class WeightsUnavailable(InputError):
    """Weights that are neither here nor to be had; a study may go on without an optional encoder."""


class TransformersEncoder(Encoder):
    """A vision model of transformers with its own image processor; views are encoded one by one and
    concatenated.

    The latent of a view is the class token where the model has one, else the model's pooled output, else
    the mean over positions; `architecture["feature"]` says which. Everything is read from a folder, which
    for a hub id is its snapshot in the local cache, so that the fingerprint is that of the files (config,
    processor, tensors as stored) and the same under every version of transformers.

    Parameters
    ----------
    name : folder with config.json, preprocessor_config.json and safetensors weights, or a hub id.
    views : views to encode, in order.
    image_shapes : (height, width) of each view as recorded; see `load_encoder`.
    """

    kind = "transformers"

    def __init__(
        self,
        name: str,
        *,
        views: Sequence[str] | None,
        image_shapes: Mapping[str, tuple[int, int]] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.views = check_views(views, f"encoder 'transformers:{name}'")
        self.image_size = common_size(self.views, image_shapes)
        self.name = name
        self.folder = model_folder(name)
        self.model, self.processor = _load_model(self.folder)
        feature = _feature_kind(self.model)
        self.architecture = {
            "config": _read_json(self.folder / "config.json", drop=VOLATILE),
            "feature": feature,
            "fusion": "concatenated views",
        }
        self.preprocessing = {
            "processor": _read_json(self.folder / "preprocessor_config.json", drop=VOLATILE),
            "resized_to": None if self.image_size is None else list(self.image_size),
        }
        self.to(device)
        grey = np.full((1, len(self.views), *(self.image_size or (64, 64)), 3), 127, np.uint8)
        self.width = self.encode(grey).shape[1]

    def to(self, device: torch.device | str) -> TransformersEncoder:
        """Move the model to a device."""
        self.device = torch.device(device)
        self.model.to(self.device)
        return self

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Tensors as the files hold them, by name."""
        where: dict[str, Path] = {}
        for path in _weight_files(self.folder):
            with safetensors.safe_open(path, framework="pt") as file:
                where |= {name: path for name in file.keys()}  # noqa: SIM118  safe_open is no mapping
        for name in sorted(where):
            with safetensors.safe_open(where[name], framework="pt") as file:
                yield name, file.get_tensor(name)

    def describe(self) -> dict[str, Any]:
        """Facts of every encoder, and where this one came from."""
        import transformers

        return {
            **super().describe(),
            "source": self.name,
            "processor_class": type(self.processor).__name__,
            "transformers": transformers.__version__,
        }

    def encode(self, frames: np.ndarray) -> np.ndarray:
        """Latents float32 (B, V * d) of uint8 frames (B, V, H, W, 3)."""
        images = self._images(frames)
        parts = []
        with torch.inference_mode():
            for start in range(0, len(images), IMAGES_AT_ONCE):
                pixel_values = self._pixel_values(images[start : start + IMAGES_AT_ONCE])
                output = self.model(pixel_values=pixel_values.to(self.device))
                parts.append(_feature(output, self.architecture["feature"]).float().cpu().numpy())
        flat = np.concatenate(parts)  # (B V, d)
        return np.ascontiguousarray(flat.reshape(len(frames), -1), np.float32)

    def preprocessed(self, frames: np.ndarray) -> np.ndarray:
        """What the processor makes of the frames, float32 (B V, 3, h, w)."""
        return self._pixel_values(self._images(frames)).float().numpy()

    def _images(self, frames: np.ndarray) -> np.ndarray:
        """All views as single images, (B V, H, W, 3)."""
        assert self.views is not None
        frames = prepare_frames(frames, len(self.views), self.image_size)
        return frames.reshape(-1, *frames.shape[2:])

    def _pixel_values(self, images: np.ndarray) -> torch.Tensor:
        inputs = self.processor(images=list(images), return_tensors="pt", input_data_format="channels_last")
        pixel_values: torch.Tensor = inputs["pixel_values"]
        return pixel_values


def model_folder(name: str) -> Path:
    """Folder that holds the files of a model: the one named, or a hub id's snapshot, fetched when it can be.

    The local cache comes first and needs no network. The hub is asked only when it answers within seconds and
    HF_HUB_OFFLINE is not set.
    """
    if Path(name).is_dir():
        folder = Path(name)
        lacking = _lacking_files(folder)
        if lacking:
            raise WeightsUnavailable(
                folder,
                f"lacks {lacking}",
                "give a folder made by save_pretrained of the model and its processor",
            )
        return folder
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or not name:
        raise InputError(f"encoder 'transformers:{name}'", "the folder does not exist", "check the path")
    import huggingface_hub
    from huggingface_hub import constants
    from huggingface_hub.errors import HFValidationError

    remedy = (
        f"run `huggingface-cli download {name}` where the hub can be reached, or name a folder with its files"
    )
    lacking = "is not in the local cache"
    try:
        cached = Path(
            huggingface_hub.snapshot_download(name, local_files_only=True, allow_patterns=list(MODEL_FILES))
        )
        missing = _lacking_files(cached)
        if not missing:
            return cached
        lacking = f"lacks {missing} in the local cache"
    except HFValidationError as error:
        raise InputError(
            f"encoder 'transformers:{name}'", f"is no hub id: {error}", "write OWNER/NAME"
        ) from None
    except OSError:  # LocalEntryNotFoundError is one
        pass
    if constants.HF_HUB_OFFLINE or os.environ.get("TRANSFORMERS_OFFLINE", "0") not in ("", "0"):
        raise WeightsUnavailable(f"weights of {name}", f"{lacking}, and offline mode is set", remedy)
    if not _reachable(constants.ENDPOINT):
        raise WeightsUnavailable(f"weights of {name}", f"{lacking}, and the hub cannot be reached", remedy)
    try:
        fetched = Path(
            huggingface_hub.snapshot_download(
                name, allow_patterns=list(MODEL_FILES), etag_timeout=REACH_TIMEOUT_S
            )
        )
    except Exception as error:  # the hub's own errors, and those of whichever HTTP library it uses
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise WeightsUnavailable(
            f"weights of {name}", f"{lacking}, and the hub says: {reason}", remedy
        ) from None
    missing = _lacking_files(fetched)
    if missing:
        raise WeightsUnavailable(
            f"weights of {name}",
            f"the hub's copy lacks {missing}",
            "pickled weights are not read; convert them",
        )
    return fetched


def _reachable(endpoint: str) -> bool:
    """Whether the hub answers at all; in a thread of its own, since looking up a name has no timeout."""
    answered = threading.Event()

    def ask() -> None:
        try:
            request = urllib.request.Request(endpoint, method="HEAD")
            urllib.request.urlopen(request, timeout=REACH_TIMEOUT_S).close()
        except urllib.error.HTTPError:
            pass  # an error page is an answer
        except (OSError, ValueError):
            return
        answered.set()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(REACH_TIMEOUT_S)
    return answered.is_set()


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(_read_json(index).get("weight_map", {}).values()))
        bad = [name for name in names if Path(name).name != name]
        if bad:
            raise InputError(index, f"names files outside its folder: {bad[0]!r}")
        return [folder / name for name in names]
    return [folder / "model.safetensors"]


def _lacking_files(folder: Path) -> str:
    needed = [folder / "config.json", folder / "preprocessor_config.json", *_weight_files(folder)]
    return ", ".join(path.name for path in needed if not path.is_file())


def _read_json(path: Path, drop: Sequence[str] = ()) -> dict[str, Any]:
    if path.stat().st_size > MAX_JSON_BYTES:
        raise InputError(path, f"is larger than the {MAX_JSON_BYTES:,} bytes allowed")
    try:
        data = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(path, f"is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InputError(path, "is not a JSON object")
    return {key: value for key, value in data.items() if key not in drop}


def _load_model(folder: Path) -> tuple[Any, Any]:
    import transformers
    from transformers import AutoImageProcessor, AutoModel

    # the tensor processor in both generations; the one of PIL gives other latents in the third digit
    tensor_processor = {"use_fast": True} if int(transformers.__version__.split(".")[0]) < 5 else {}
    try:
        with _quiet_transformers():
            processor = AutoImageProcessor.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, **tensor_processor
            )
            model, info = AutoModel.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,  # pickles are never read
                dtype=torch.float32,
                output_loading_info=True,
            )
    except (OSError, ValueError, KeyError, RuntimeError, safetensors.SafetensorError) as error:
        raise InputError(folder, f"is no vision model that transformers loads: {str(error)[:300]}") from None
    model = getattr(model, "vision_model", model)  # of a model of images and text, the half that sees
    used = _feature_kind(model) == "pooled"
    missing = sorted(
        key for key in info["missing_keys"] if "text" not in key and (used or "pooler" not in key)
    )
    if missing or info["mismatched_keys"]:
        wrong = ", ".join(missing[:4]) or "mismatched shapes"
        raise InputError(
            folder,
            f"its weights do not fit its config ({wrong}): parts would be random",
            "use the matching files",
        )
    return model.eval(), processor


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    from transformers.utils import logging

    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def _feature_kind(model: Any) -> str:
    names = {name.rsplit(".", 1)[-1] for name, _ in model.named_parameters()}
    if names & {"cls_token", "class_embedding"}:
        return "class token"
    pools = getattr(model, "pooler", None) is not None or getattr(model, "head", None) is not None
    return "pooled" if pools else "mean"


def _feature(output: Any, kind: str) -> torch.Tensor:
    """Features (n, d) of a model's output."""
    hidden = output.last_hidden_state
    if kind == "class token":
        return hidden[:, 0]
    pooled = getattr(output, "pooler_output", None)
    if kind == "pooled" and pooled is not None:
        return pooled.flatten(1)
    return hidden.flatten(2).mean(dim=2) if hidden.ndim == 4 else hidden.mean(dim=1)
