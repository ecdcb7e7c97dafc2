"""Vision models of transformers: `transformers:ID_OR_FOLDER`, `transformers:ID_OR_FOLDER@LATENT`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch

from encoders.frame_preprocessing import steps_of_processor
from encoders.frozen import FrozenEncoder, Precision, Preprocess, Runtime
from encoders.model_files import model_folder, processor_file, read_json, stored_tensors
from hardware.errors import InputError

VOLATILE = ("transformers_version", "_name_or_path", "torch_dtype", "dtype", "id2label", "label2id")
"""Keys of the config that decide no latent."""
LATENTS = ("cls", "pooled", "mean", "cls_mean")
CLASS_TOKENS = {"cls_token", "class_embedding"}
CLIP_MODELS = ("videomae", "vivit", "timesformer")  # their input is named as that of images; V-JEPA 2 tells


class TransformersEncoder(FrozenEncoder):
    """A vision model of transformers with its own processor.

    Everything is read from a folder, which for a hub id is its snapshot in the local cache, so that the
    fingerprint is that of the files (config, processor, tensors as stored) and the same under every version
    of transformers.

    Its latents, of which each model has some; the first is the default:

    - `cls` : the class token after the last layer.
    - `pooled` : what the model itself makes of all positions (`pooler_output`).
    - `mean` : the mean over patches, without class, register and distillation tokens; of a model without
      tokens, the mean over positions.
    - `cls_mean` : `cls` and `mean` side by side.

    A model of clips (V-JEPA 2, VideoMAE) makes one latent of the frames up to and with a row; its patches
    are those of the whole clip.

    Parameters
    ----------
    name : folder with config.json, preprocessor_config.json (or video_preprocessor_config.json) and
        safetensors weights, or a hub id.
    clip_frames, clip_stride : frames of a clip, and how many rows apart they are; None takes as many as the
        model was trained on.
    views, image_shapes, device, precision, runtime, preprocess : see `FrozenEncoder`.
    """

    kind = "transformers"

    def __init__(
        self,
        name: str,
        *,
        views: Sequence[str] | None,
        image_shapes: Mapping[str, tuple[int, int]] | None = None,
        device: torch.device | str = "cpu",
        precision: Precision = "fp32",
        runtime: Runtime = "torch",
        preprocess: Preprocess = "proven",
        clip_frames: int | None = None,
        clip_stride: int = 1,
    ) -> None:
        self.name, self.where = name, f"encoder 'transformers:{name}'"
        self.folder = model_folder(name)
        self.network, self.processor, missing = _load_model(self.folder)
        self._takes_clips = _takes_clips(self.network)
        if clip_stride < 1 or (clip_frames is not None and (clip_frames < 1 or not self._takes_clips)):
            raise InputError(
                self.where,
                f"cannot have clip_frames {clip_frames}, clip_stride {clip_stride}",
                "leave them out",
            )
        if self._takes_clips:
            self.clip_frames, self.clip_stride = clip_frames or _trained_clip(self.network), clip_stride
        settings = processor_file(self.folder)
        self.outputs = self._found_outputs(missing)
        self.architecture = {
            "config": read_json(self.folder / "config.json", drop=VOLATILE),
            "feature": next(iter(self.outputs)),
        }
        if self._takes_clips:
            self.architecture["clip"] = {"frames": self.clip_frames, "stride": self.clip_stride}
        super().__init__(
            steps_of_processor(self.processor),
            read_json(settings, drop=VOLATILE),
            views=views,
            image_shapes=image_shapes,
            device=device,
            precision=precision,
            runtime=runtime,
            preprocess=preprocess,
        )

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Tensors as the files hold them, by name."""
        return stored_tensors(self.folder)

    def describe(self) -> dict[str, Any]:
        """Facts of every frozen encoder, and where this one came from."""
        import transformers

        return {
            **super().describe(),
            "source": self.name,
            "processor_class": type(self.processor).__name__,
            "transformers": transformers.__version__,
        }

    def _published(self, images: np.ndarray) -> torch.Tensor:
        settings: dict[str, Any] = {"return_tensors": "pt", "input_data_format": "channels_last"}
        if hasattr(self.processor, "sample_frames"):  # a processor of clips; ours have their frames already
            found = self.processor(videos=[images], do_sample_frames=False, **settings)
        else:
            found = self.processor(list(images), **settings)
        values: torch.Tensor = found.get("pixel_values_videos", found.get("pixel_values"))
        return values.reshape(-1, *values.shape[-3:])

    def _features(self, values: torch.Tensor, outputs: Sequence[str]) -> tuple[torch.Tensor, ...]:
        found = self._run(values)
        return tuple(self._feature(found, name) for name in outputs)

    def _run(self, values: torch.Tensor) -> Any:
        taken = inspect.signature(self.network.forward).parameters
        name = "pixel_values_videos" if "pixel_values_videos" in taken else "pixel_values"
        only_encoder = {"skip_predictor": True} if "skip_predictor" in taken else {}
        if self._takes_clips and values.ndim == 4:
            values = values[:, None]  # a clip of one frame
        return self.network(**{name: values}, **only_encoder)

    def _feature(self, output: Any, feature: str) -> torch.Tensor:
        """One of the features (n, d) of a model's output."""
        if feature == "cls_mean":
            return torch.cat([self._feature(output, one) for one in ("cls", "mean")], dim=1)
        if feature == "pooled":
            return output.pooler_output.flatten(1)
        hidden: torch.Tensor = output.last_hidden_state
        if feature == "cls":
            return hidden[:, 0]
        if hidden.ndim == 4:  # (n, d, h, w) of a convolutional network
            return hidden.flatten(2).mean(dim=2)
        return hidden[:, self._prefix :].mean(dim=1)

    def _found_outputs(self, missing: Sequence[str]) -> dict[str, int]:
        """The latents that this model has and their widths, found on a grey frame; the default first."""
        try:
            values = self._published(np.full((self.clip_frames, 64, 64, 3), 127, np.uint8))
            values = values[None] if self._takes_clips else values
            with torch.inference_mode():
                output = self._run(values)
            hidden = output.last_hidden_state
        except (ValueError, TypeError, RuntimeError, AttributeError, KeyError) as error:
            clips = f" with clips of {self.clip_frames} frames" if self._takes_clips else ""
            raise InputError(
                self.folder,
                f"cannot encode what its processor gives{clips}: {type(error).__name__}: {str(error)[:300]}",
                "check that its processor's frame size is the model's, and leave clip_frames out"
                if clips
                else "check that it is a model of images, and its processor's frame size the model's",
            ) from error
        names = {name.rsplit(".", 1)[-1] for name, _ in self.network.named_parameters()}
        cls = bool(names & CLASS_TOKENS) and hidden.ndim == 3
        pooled = getattr(output, "pooler_output", None) is not None
        prefix = _prefix_tokens(self.network, hidden, values, names) if cls else 0
        self._prefix = prefix or 0
        has = {"cls": cls, "pooled": pooled, "mean": prefix is not None, "cls_mean": bool(cls and prefix)}
        untrained = [key for key in missing if "pooler" in key or ".head." in key]
        if untrained and (cls or not pooled):
            has["pooled"] = False
            missing = [key for key in missing if key not in untrained]
        if missing:
            raise InputError(
                self.folder,
                f"its weights do not fit its config ({', '.join(missing[:4])}): parts would be random",
                "use the matching files",
            )
        return {name: self._feature(output, name).shape[1] for name in LATENTS if has[name]}


def _prefix_tokens(network: Any, hidden: torch.Tensor, values: torch.Tensor, names: set[str]) -> int | None:
    """Tokens before the first patch of a model with a class token; None where the config does not explain
    their number.

    Both orders that exist, class token and then registers or a distillation token, put patches last.
    """
    config = network.config
    side = getattr(config, "patch_size", None)
    tubelet = getattr(config, "tubelet_size", 1)  # of ViViT: frames, height, width
    if side is None:
        side = tubelet
    height, width = (side, side) if isinstance(side, int) else side[-2:]
    patches = (values.shape[-2] // height) * (values.shape[-1] // width)
    if values.ndim == 5:
        patches *= values.shape[1] // (tubelet if isinstance(tubelet, int) else tubelet[0])
    prefix = 1 + (getattr(config, "num_register_tokens", 0) or 0) + int("distillation_token" in names)
    return prefix if hidden.shape[1] == prefix + patches else None


def _load_model(folder: Path) -> tuple[Any, Any, list[str]]:
    """The model, its processor, and the tensors of the half that sees which the files lack."""
    import transformers
    from transformers import AutoImageProcessor, AutoModel, AutoVideoProcessor

    files: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    # the tensor processor in both generations; the one of PIL gives other latents in the third digit
    tensor_processor = {"use_fast": True} if int(transformers.__version__.split(".")[0]) < 5 else {}
    try:
        with _quiet_transformers():
            if processor_file(folder).name.startswith("video"):
                processor = AutoVideoProcessor.from_pretrained(folder, **files)
            else:
                processor = AutoImageProcessor.from_pretrained(folder, **files, **tensor_processor)
            model, info = AutoModel.from_pretrained(
                folder,
                **files,
                use_safetensors=True,  # pickles are never read
                dtype=torch.float32,
                output_loading_info=True,
            )
    except (OSError, ValueError, KeyError, RuntimeError, safetensors.SafetensorError) as error:
        raise InputError(folder, f"is no vision model that transformers loads: {str(error)[:300]}") from None
    model = getattr(model, "vision_model", model)  # of a model of images and text, the half that sees
    if getattr(model.config, "mask_ratio", None):  # a masked autoencoder: nothing is masked when it is used
        model.config.mask_ratio = 0.0
    if info["mismatched_keys"]:
        raise InputError(
            folder,
            "its weights do not fit its config (mismatched shapes): parts would be random",
            "use the matching files",
        )
    unseen = ("text", "predictor") if hasattr(model, "predictor") else ("text",)
    missing = sorted(key for key in info["missing_keys"] if not any(part in key for part in unseen))
    return model.eval(), processor, missing


def _takes_clips(model: Any) -> bool:
    return model.main_input_name == "pixel_values_videos" or model.config.model_type in CLIP_MODELS


def _trained_clip(model: Any) -> int:
    return int(
        getattr(model.config, "frames_per_clip", None) or getattr(model.config, "num_frames", None) or 16
    )


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
