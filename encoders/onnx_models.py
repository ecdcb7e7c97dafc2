"""Networks in ONNX files, with their preprocessing declared beside them: `onnx:FILE.onnx`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from encoders.frame_preprocessing import PixelSteps, pixel_values
from encoders.frozen import FrozenEncoder
from encoders.model_files import WeightsUnavailable, read_json
from hardware.errors import InputError
from hardware.schema import parse_model

MAX_ONNX_BYTES = 2 << 30  # protobuf's own limit
EXTERNAL_WEIGHTS = "session.model_external_initializers_file_folder_path"
METADATA_KEY = "jointprobe"
PROVIDERS = ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")
INPUT_DTYPES = {"tensor(uint8)": np.uint8, "tensor(float)": np.float32, "tensor(float16)": np.float16}


class OnnxCard(BaseModel):
    """FILE.json beside FILE.onnx, or the same JSON in the file's metadata under `jointprobe`.

    Attributes
    ----------
    image_size : (height, width) that the network reads.
    resize : the frame is resized to it; with `shorter_side` its shorter side becomes as long as told and
        the centre is cut out.
    interpolation : antialiased, as Pillow's filters of these names.
    mean, std : (grey level / 255 - mean) / std a channel; left out where the network reads uint8.
    layout : order of its input's axes.
    output : name of the output that is the latent; the first where left out.
    feature : `pooled` (n, d) as it is, or of tokens (n, l, d) the class token `cls` (the first), or their
        `mean` without the first `tokens_before_patches`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    image_size: tuple[int, int]
    shorter_side: int | None = Field(default=None, ge=1)
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    output: str | None = None
    feature: Literal["pooled", "cls", "mean"] = "pooled"
    tokens_before_patches: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _is_possible(self) -> OnnxCard:
        if min(self.image_size) < 1 or max(self.image_size) > 1 << 14:
            raise ValueError("image_size is (height, width) in pixels")
        if self.std is not None and min(self.std) <= 0:
            raise ValueError("std must be above 0")
        if self.shorter_side is not None and self.shorter_side < max(self.image_size):
            raise ValueError("shorter_side must be as long as image_size at least")
        return self

    def steps(self, scaled: bool) -> PixelSteps:
        """The steps of this card; not `scaled`, grey levels stay 0 to 255."""
        scale, mean, std = (1 / 255, self.mean, self.std) if scaled else (1.0, None, None)
        return PixelSteps(
            self.shorter_side or self.image_size,
            self.interpolation,
            self.image_size if self.shorter_side else None,
            scale,
            mean or (0.0,) * 3,
            std or (1.0,) * 3,
        )


class OnnxEncoder(FrozenEncoder):
    """A network that onnxruntime runs, by TensorRT or CUDA where the installed one has them.

    Views are encoded one by one and concatenated. The fingerprint covers the file's bytes and its card, not
    the provider, which `describe` names. A fixed batch size of the file is kept to: what lacks is filled up.

    Parameters
    ----------
    name : path of FILE.onnx, weights inside; relative to `base`.
    device : `cpu` forbids the other providers; None takes the first there is.
    views, image_shapes : see `FrozenEncoder`.
    """

    kind = "onnx"

    def __init__(
        self,
        name: str,
        *,
        views: Sequence[str] | None,
        image_shapes: Mapping[str, tuple[int, int]] | None = None,
        base: str | Path | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.name, self.where = name, f"encoder 'onnx:{name}'"
        path = Path(base or ".") / Path(name).expanduser()
        if not path.is_file():
            raise WeightsUnavailable(self.where, f"there is no file {path}", "check the path, or export it")
        if path.stat().st_size > MAX_ONNX_BYTES:
            raise InputError(path, f"is larger than the {MAX_ONNX_BYTES:,} bytes allowed")
        data = path.read_bytes()
        self.session = _session(data, path, None if device is None else torch.device(device).type)
        self.card = _card(path, self.session)
        self._input = self.session.get_inputs()[0]
        self._check_input(path)
        outputs = [output.name for output in self.session.get_outputs()]
        self._output = self.card.output or outputs[0]
        if self._output not in outputs:
            raise InputError(path, f"has no output {self._output!r}", f"its outputs: {', '.join(outputs)}")
        self.architecture = {"sha256": hashlib.sha256(data).hexdigest(), "feature": self.card.feature}
        self._declared = self.card.steps(scaled=self._input.type != "tensor(uint8)")
        grey = self._published(np.full((1, *self.card.image_size, 3), 127, np.uint8))
        self.outputs = {self.card.feature: self._found(grey).shape[1]}
        super().__init__(
            None,  # nothing to compare with: what the card declares is carried out
            self.card.model_dump(mode="json"),
            views=views,
            image_shapes=image_shapes,
        )

    def tensors(self) -> Iterable[tuple[str, torch.Tensor]]:
        """Nothing: `architecture` holds the hash of the file, whose weights are not taken apart."""
        return []

    def describe(self) -> dict[str, Any]:
        """Facts of every frozen encoder, and what runs this one."""
        import onnxruntime

        return {
            **super().describe(),
            "source": self.name,
            "onnxruntime": onnxruntime.__version__,
            "providers": self.session.get_providers(),
        }

    def _published(self, images: np.ndarray) -> torch.Tensor:
        return pixel_values(torch.from_numpy(images), self._declared)

    def _features(self, values: torch.Tensor, outputs: Sequence[str]) -> tuple[torch.Tensor, ...]:
        return (self._found(values),)

    def _found(self, values: torch.Tensor) -> torch.Tensor:
        """Features (n, d) of pixel values, as the file gives them."""
        fixed = self._input.shape[0] if isinstance(self._input.shape[0], int) else len(values)
        parts = [self._run(values[start : start + fixed], fixed) for start in range(0, len(values), fixed)]
        found = np.concatenate(parts)
        if self.card.feature == "cls" and found.ndim == 3:
            found = found[:, 0]
        elif self.card.feature == "mean" and found.ndim == 3:
            found = found[:, self.card.tokens_before_patches :].mean(axis=1)
        elif self.card.feature != "pooled" or found.reshape(len(found), -1).shape[1] != found.shape[1]:
            raise InputError(
                self.where,
                f"its output {self._output} is {found.shape}, which is no {self.card.feature} feature",
                "name another output or feature in its JSON: (n, d) is pooled, (n, l, d) has cls and mean",
            )
        return torch.from_numpy(found.reshape(len(found), -1).astype(np.float32))

    def _run(self, values: torch.Tensor, size: int) -> np.ndarray:
        """Output for as many frames as are there, of a batch of `size`."""
        lacking = size - len(values)
        if lacking:
            values = torch.cat([values, values[-1:].expand(lacking, *values.shape[1:])])
        if self.card.layout == "NHWC":
            values = values.permute(0, 2, 3, 1)
        given = np.ascontiguousarray(values.numpy(), dtype=INPUT_DTYPES[self._input.type])
        try:
            output: np.ndarray = self.session.run([self._output], {self._input.name: given})[0]
        except Exception as error:  # onnxruntime's own classes, which it does not name in public
            reason = str(error).splitlines()[-1][:300]
            raise InputError(
                self.where,
                f"onnxruntime cannot run it on {given.dtype} {given.shape}: {reason}",
                "check image_size and layout in its JSON",
            ) from None
        if len(output) != size:
            raise InputError(
                self.where, f"gave {output.shape} for {size} frames", "its first axis must be the batch"
            )
        return output[: size - lacking]

    def _check_input(self, path: Path) -> None:
        if len(self.session.get_inputs()) != 1:
            names = ", ".join(one.name for one in self.session.get_inputs())
            raise InputError(path, f"wants several inputs: {names}", "export a network of images alone")
        if self._input.type not in INPUT_DTYPES:
            raise InputError(
                path, f"reads {self._input.type}", f"export it for one of: {', '.join(INPUT_DTYPES)}"
            )
        if self._input.type == "tensor(uint8)" and (self.card.mean or self.card.std):
            raise InputError(
                path, "reads uint8, so its JSON cannot have mean and std", "scale inside the network"
            )
        axes = (3, *self.card.image_size) if self.card.layout == "NCHW" else (*self.card.image_size, 3)
        wanted = self._input.shape
        fits = len(wanted) == 4 and all(
            not isinstance(one, int) or one == axis for one, axis in zip(wanted[1:], axes)
        )
        if not fits:
            raise InputError(
                path, f"reads {wanted}, its JSON tells (n, {axes})", "correct image_size or layout"
            )


def _session(data: bytes, path: Path, device: str | None) -> Any:
    """The network with the first providers that are there; of exactly the bytes that are hashed."""
    try:
        import onnxruntime
    except ImportError:
        raise WeightsUnavailable(
            f"encoder 'onnx:{path.name}'", "needs onnxruntime", "pip install 'jointprobe[jetson]'"
        ) from None
    available = onnxruntime.get_available_providers()
    providers = [
        name for name in PROVIDERS if name in available and (device != "cpu" or name == PROVIDERS[-1])
    ]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        with TemporaryDirectory() as empty:  # weights outside the file are not hashed, so none are found
            options.add_session_config_entry(EXTERNAL_WEIGHTS, empty)
            return onnxruntime.InferenceSession(data, options, providers=providers)
    except Exception as error:  # onnxruntime's own classes, which it does not name in public
        raise InputError(
            path,
            f"is no ONNX network that onnxruntime loads: {str(error).splitlines()[-1][:300]}",
            "export it again, with its weights inside the file",
        ) from None


def _card(path: Path, session: Any) -> OnnxCard:
    beside = path.with_suffix(".json")
    if beside.is_file():
        return parse_model(OnnxCard, read_json(beside), beside)
    declared = session.get_modelmeta().custom_metadata_map.get(METADATA_KEY)
    if declared is None:
        raise InputError(
            path,
            f"does not declare its preprocessing: no {beside.name}, and no metadata {METADATA_KEY!r}",
            'write {"image_size": [224, 224], "mean": [...], "std": [...]} into ' + beside.name,
        )
    try:
        return parse_model(OnnxCard, json.loads(declared), f"{path}, metadata {METADATA_KEY!r}")
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, metadata {METADATA_KEY!r}", f"is not JSON: {error}") from None
