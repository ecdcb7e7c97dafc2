"""What frozen encoders share: networks that others trained, fed as they were published, view by view."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from encoders.encoder import Encoder, check_views, common_size, prepare_frames
from encoders.frame_preprocessing import Comparison, PixelSteps, compare, pixel_values
from encoders.model_files import WeightsUnavailable as WeightsUnavailable
from encoders.openvino_runtime import IMAGES_AT_ONCE as OPENVINO_IMAGES_AT_ONCE
from encoders.openvino_runtime import OpenVinoNetwork, import_openvino
from hardware.errors import InputError

Precision = Literal["fp32", "bf16"]
Runtime = Literal["torch", "openvino"]
Preprocess = Literal["proven", "tensors", "published"]

IMAGES_AT_ONCE = {"cpu": 8, "cuda": 32}
"""On a CPU, 4 and 16 are slower (ViT-S); memory of products of 16 is mapped anew for each, page by page."""
UNKNOWN_SIZE = (480, 640)  # for the proof, where the recording's is not known
PROOF_FRAMES = 4


class FrozenEncoder(Encoder):
    """A network with its published preprocessing; views are encoded one by one and concatenated.

    A subclass loads its network, sets `where` (for errors), `outputs` (its latents' names and numbers of
    dimensions, of one view) and `architecture` (with one of these names under `feature`), then calls this
    constructor; it defines `_published` and `_features`.

    Preprocessing is done by our own steps on tensors where these are proven equal to the published code on
    frames of the recorded size (`encoders.frame_preprocessing`), else by the published code.
    `preprocessing["by"]` says which, `tensors` or `published`, and `describe()["comparison"]` how far the two
    are apart.

    Parameters
    ----------
    steps : our steps, None where there are none.
    settings : JSON-able facts of the published preprocessing.
    views : views to encode, in order.
    image_shapes : (height, width) of each view as recorded; see `load_encoder`.
    precision : `fp32`, or `bf16`: matrix products and convolutions in bfloat16, sums and norms in float32.
        It is part of the fingerprint; a device without bfloat16 gives the same latents, more slowly.
    runtime : `torch`, or `openvino` (x86_64, on the CPU whatever the device), which is part of the
        fingerprint as well.
    preprocess : `proven`, or one of the two in any case: then `tensors` is an error where it is not equal.
    """

    where: str
    outputs: Mapping[str, int]
    network: Any = None  # an nn.Module, where torch runs it

    def __init__(
        self,
        steps: PixelSteps | None,
        settings: Any,
        *,
        views: Sequence[str] | None,
        image_shapes: Mapping[str, tuple[int, int]] | None = None,
        device: torch.device | str = "cpu",
        precision: Precision = "fp32",
        runtime: Runtime = "torch",
        preprocess: Preprocess = "proven",
    ) -> None:
        self.views = check_views(views, self.where)
        self.image_size = common_size(self.views, image_shapes)
        if precision not in ("fp32", "bf16"):
            raise InputError(self.where, f"has no precision {precision!r}", "write fp32 or bf16")
        if runtime not in ("torch", "openvino"):
            raise InputError(self.where, f"has no runtime {runtime!r}", "write torch or openvino")
        if runtime == "openvino":
            import_openvino(self.where)  # before anything that takes long
        self.precision, self.runtime = precision, runtime
        self.architecture = {**self.architecture, "fusion": "concatenated views", "precision": precision}
        if runtime != "torch":  # which encoders of before there was a choice do not name
            self.architecture["runtime"] = runtime
        self.steps = steps
        self.to(device)
        recorded = (
            {image_shapes[view] for view in self.views if view in image_shapes} if image_shapes else set()
        )
        size = self.image_size or next(iter(recorded), UNKNOWN_SIZE)  # with two sizes there is an image_size
        self._compared: dict[tuple[int, int], Comparison] = {}
        by = "published" if preprocess == "published" or steps is None else "tensors"
        if steps is None and preprocess == "tensors":
            raise InputError(self.where, "its preprocessing has steps that ours has not", "leave it proven")
        if by == "tensors" and not self._compare(size).equal:
            if preprocess == "tensors":
                raise self._unequal(size)
            by = "published"
        self.preprocessing = {
            "published": settings,
            "by": by,
            "resized_to": None if self.image_size is None else list(self.image_size),
        }
        self.width = len(self.views) * self.outputs[self.architecture["feature"]]
        self._converted: dict[torch.Size, OpenVinoNetwork] = {}  # of pixel values of this shape
        if (
            runtime == "openvino"
        ):  # now, so that a study is not frozen with a network that cannot be converted
            grey = np.full((self._clips_at_once * self.clip_frames, *size, 3), 127, np.uint8)
            self._openvino(self._clips(self._pixel_values(grey)))

    @abstractmethod
    def _published(self, images: np.ndarray) -> torch.Tensor:
        """Pixel values (n, 3, h, w) of frames uint8 (n, H, W, 3), by the published preprocessing."""

    @abstractmethod
    def _features(self, values: torch.Tensor, outputs: Sequence[str]) -> tuple[torch.Tensor, ...]:
        """Features (n, d) by these names of pixel values (n, 3, h, w), of clips (n, T, 3, h, w)."""

    def to(self, device: torch.device | str) -> FrozenEncoder:
        """Move the network to a device; one that OpenVINO runs stays on the CPU."""
        self.device = torch.device(device if self.runtime == "torch" else "cpu")
        if self.network is not None:
            self.network.to(self.device)
            for layer in self.network.modules():
                if isinstance(layer, nn.Conv2d):  # in the order that pixel values come in
                    layer.to(memory_format=torch.channels_last)
        return self

    def with_output(self, output: str) -> FrozenEncoder:
        """Another latent of the same network, which both share: one of `outputs`."""
        if output not in self.outputs:
            raise InputError(
                self.where, f"has no latent {output!r}", f"write one of: {', '.join(self.outputs)}"
            )
        other = copy.copy(self)
        other.__dict__.pop("fingerprint", None)  # cached
        other.architecture = {**self.architecture, "feature": output}
        other.width = len(self.views or ()) * self.outputs[output]
        return other

    def in_fp32(self) -> FrozenEncoder | None:
        """The same network by torch in fp32, which both share; None where this one is in fp32."""
        if self.precision == "fp32":
            return None
        other = copy.copy(self)
        other.__dict__.pop("fingerprint", None)  # cached
        other.precision, other.runtime = "fp32", "torch"
        other.architecture = {**self.architecture, "precision": "fp32"}
        other.architecture.pop("runtime", None)
        return other

    def describe(self) -> dict[str, Any]:
        """Facts of every encoder, and how equal its preprocessing is to the published one."""
        comparison = {f"{size[1]}x{size[0]}": str(found) for size, found in self._compared.items()}
        facts = {**super().describe(), "comparison": comparison}
        if self.runtime == "openvino":
            facts["openvino"] = import_openvino(self.where).get_version()
        return facts

    @property
    def output(self) -> str:  # type: ignore[override]
        """Name of its latent, one of `outputs`."""
        return str(self.architecture["feature"])

    @property
    def pass_shared_with(self) -> object:
        return self if self.network is None else self.network

    def encode(self, frames: np.ndarray) -> np.ndarray:
        """Latents float32 (B, V * d) of uint8 frames (B, V, H, W, 3), of clips (B, V, T, H, W, 3)."""
        return self.encode_outputs(frames, [self.output])[0]

    def encode_outputs(self, frames: np.ndarray, outputs: Sequence[str]) -> list[np.ndarray]:
        """Several latents in one pass of the network."""
        images = self._images(frames)
        if not len(images):
            return [np.empty((0, self.with_output(name).width), np.float32) for name in outputs]
        step = self._clips_at_once * self.clip_frames
        batches = (
            self._filled(self._clips(self._pixel_values(images[start : start + step])))
            for start in range(0, len(images), step)
        )
        by = self._by_openvino if self.runtime == "openvino" else self._by_torch
        whole = [np.concatenate(parts)[: len(images) // self.clip_frames] for parts in by(batches, outputs)]
        return [np.ascontiguousarray(latents.reshape(len(frames), -1), np.float32) for latents in whole]

    def _by_torch(
        self, batches: Iterable[torch.Tensor], outputs: Sequence[str]
    ) -> Iterable[Sequence[np.ndarray]]:
        parts = []
        for values in batches:
            with torch.inference_mode(), self._arithmetic():
                features = self._features(values.to(self.device), outputs)
                parts.append([one.float().cpu().numpy() for one in features])
        return zip(*parts)

    def _by_openvino(
        self, batches: Iterable[torch.Tensor], outputs: Sequence[str]
    ) -> Iterable[Sequence[np.ndarray]]:
        batches = iter(batches)
        first = next(batches)
        places = [list(self.outputs).index(name) for name in outputs]
        return zip(*self._openvino(first).run(chain([first], batches), places))

    def _openvino(self, values: torch.Tensor) -> OpenVinoNetwork:
        """The network converted for pixel values of this shape; once for each."""
        if values.shape not in self._converted:
            self._converted[values.shape] = OpenVinoNetwork(
                self.network,
                lambda values: self._features(values, list(self.outputs)),
                values,
                self.precision,
                self.where,
            )
        return self._converted[values.shape]

    def preprocessed(self, frames: np.ndarray) -> np.ndarray:
        """What the network reads of the frames, float32 (B V T, 3, h, w)."""
        return self._pixel_values(self._images(frames)).float().numpy()

    def _images(self, frames: np.ndarray) -> np.ndarray:
        """All frames of all clips of all views as single images, (B V T, H, W, 3)."""
        views, frames = len(self.views or ()), np.asarray(frames)
        if self.clip_frames > 1:
            if frames.ndim != 6 or frames.shape[1:3] != (views, self.clip_frames):
                axes = f"(B, {views}, {self.clip_frames}, H, W, 3)"
                raise InputError(
                    "frames",
                    f"are {frames.dtype} {frames.shape}, expected uint8 {axes}",
                    f"{self.where} makes a latent of {self.clip_frames} frames: give clips",
                )
            frames = frames.reshape(len(frames), -1, *frames.shape[3:])
        frames = prepare_frames(frames, views * self.clip_frames, self.image_size)
        return frames.reshape(-1, *frames.shape[2:])

    def _clips(self, values: torch.Tensor) -> torch.Tensor:
        return values if self.clip_frames == 1 else values.unflatten(0, (-1, self.clip_frames))

    @property
    def _clips_at_once(self) -> int:
        """Clips in a batch, of one frame each but for encoders of clips."""
        images = (
            IMAGES_AT_ONCE.get(self.device.type, 8) if self.runtime == "torch" else OPENVINO_IMAGES_AT_ONCE
        )
        return max(1, images // self.clip_frames)

    def _filled(self, values: torch.Tensor) -> torch.Tensor:
        """A batch of the usual size in bf16, since another takes other kernels, whose rounding shows; and for
        OpenVINO, whose networks are made for one."""
        size = self._clips_at_once
        if (self.precision == "fp32" and self.runtime == "torch") or len(values) == size:
            return values
        return torch.cat([values, values[-1:].expand(size - len(values), *values.shape[1:])])

    def _pixel_values(self, images: np.ndarray) -> torch.Tensor:
        """Float32 (n, 3, h, w) on the CPU."""
        if self.preprocessing["by"] == "published" or self.steps is None:
            return self._published(images)
        size: tuple[int, int] = images.shape[1], images.shape[2]
        if not self._compare(size).equal:
            raise self._unequal(size)
        return pixel_values(torch.from_numpy(images), self.steps)

    def _compare(self, size: tuple[int, int]) -> Comparison:
        """Our steps beside the published ones at a frame size; made once for each."""
        if size not in self._compared:
            assert self.steps is not None

            def latents(values: torch.Tensor) -> torch.Tensor:
                with torch.inference_mode():  # in fp32, so that the answer hangs on the pixels alone
                    return self._features(self._clips(values.to(self.device)), [self.output])[0]

            count = PROOF_FRAMES if self.clip_frames == 1 else self.clip_frames
            self._compared[size] = compare(self.steps, self._published, latents, size, count)
        return self._compared[size]

    def _unequal(self, size: tuple[int, int]) -> InputError:
        return InputError(
            self.where,
            f"our preprocessing of {size[1]} x {size[0]} frames differs from the published one: "
            f"{self._compared[size]}",
            "load it for frames of that size, and do not force `tensors`: then the published one is used",
        )

    def _arithmetic(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")
