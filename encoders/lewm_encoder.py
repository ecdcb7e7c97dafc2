"""A `Lewm` with its preprocessing, in evaluation mode: latents of frames, and predicted latents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from encoders.cnn import CnnPreprocessing, Normaliser
from encoders.encoder import Encoder, check_views, load_exactly, prepare_frames
from encoders.lewm import Lewm, LewmArchitecture
from hardware.errors import InputError
from hardware.schema import parse_model

ENCODE_AT_ONCE = 32
SAME_PACE = 1.25  # rows further apart, or nearer, by this factor are not those of the training
PREDICT_AT_ONCE = 4096
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Rollout = Literal["history", "anchor"]


class LewmPreprocessing(BaseModel):
    """What happens before the network: frames resized by area, scaled to [0, 1], (x - mean) / std a channel;
    actions (a - action_mean) / action_std.

    `mean` and `std` are those of ImageNet, as published. `action_mean` and `action_std` (A,) are measured on
    the training actions, `row_s` is the usual time between training rows, in seconds; None where a checkpoint
    does not say, and without the actions' nothing is predicted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    image_size: tuple[int, int]
    resize: Literal["area"] = "area"
    colour: Literal["rgb"] = "rgb"
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    action_mean: tuple[float, ...] | None = None
    action_std: tuple[float, ...] | None = None
    row_s: float | None = None


class LewmEncoder(Encoder):
    """One of the latents of a `Lewm`.

    Parameters
    ----------
    output : `z`, the projected latent that the loss is about (D); `cls`, the class tokens of all views before
        the projector (V E); or a view's name, its class token (E).
    """

    def __init__(
        self,
        network: Lewm,
        views: Sequence[str],
        architecture: LewmArchitecture,
        preprocessing: LewmPreprocessing,
        kind: str = "lewm",
        output: str = "z",
        device: torch.device | str = "cpu",
    ) -> None:
        self.kind = kind
        self.views = tuple(views)
        self.output = output
        if output not in self.outputs:
            raise InputError(
                f"encoder {kind}@{output}", "has no such latent", f"write one of: {', '.join(self.outputs)}"
            )
        widths = {"z": architecture.latent_dim, "cls": architecture.vit_width * len(self.views)}
        self.width = widths.get(output, architecture.vit_width)
        self.image_size = preprocessing.image_size
        self.architecture = {**architecture.model_dump(mode="json"), "output": output}
        self.preprocessing = preprocessing.model_dump(mode="json")
        self.network = network.eval()
        self._sizes, self._preprocessing = architecture, preprocessing
        self.to(device)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the latents that there are; a view that is called `z` or `cls` is not among them."""
        assert self.views is not None
        return ("z", "cls", *(view for view in self.views if view not in ("z", "cls")))

    def with_output(self, output: str) -> LewmEncoder:
        """Another latent of the same network."""
        assert self.views is not None
        return LewmEncoder(
            self.network,
            self.views,
            self._sizes,
            self._preprocessing,
            self.kind,
            output,
            self.device,
        )

    @classmethod
    def from_parts(
        cls,
        kind: str,
        views: Sequence[str],
        architecture: Mapping[str, Any],
        preprocessing: Mapping[str, Any],
        tensors: Mapping[str, torch.Tensor],
        where: object,
        device: torch.device | str = "cpu",
    ) -> LewmEncoder:
        """Build from the parts of encoder.json and its weights; InputError names what does not fit."""
        views = check_views(views, where)
        facts = dict(architecture)
        output = str(facts.pop("output", "z"))
        sizes = parse_model(LewmArchitecture, facts, f"{where}, architecture")
        prepared = parse_model(LewmPreprocessing, dict(preprocessing), f"{where}, preprocessing")
        if prepared.image_size != (sizes.image_size, sizes.image_size):
            raise InputError(f"{where}, preprocessing", f"image_size must be the ViT's, {sizes.image_size}")
        for name in ("action_mean", "action_std"):
            values = getattr(prepared, name)
            if values is not None and len(values) != sizes.action_dim:
                raise InputError(f"{where}, preprocessing", f"{name} must have {sizes.action_dim} numbers")
        network = Lewm(len(views), sizes, generator=torch.Generator())
        load_exactly(network, tensors, where)
        return cls(network, views, sizes, prepared, kind, output, device)

    def to(self, device: torch.device | str) -> LewmEncoder:
        """Move the network to a device."""
        assert self.views is not None
        self.device = torch.device(device)
        self.network.to(self.device)
        prepared = self._preprocessing
        same = CnnPreprocessing(
            image_size=prepared.image_size,
            mean=[prepared.mean] * len(self.views),
            std=[prepared.std] * len(self.views),
        )
        self._normalise = Normaliser(same, self.device)
        return self

    def tensors(self) -> Iterable[tuple[str, torch.Tensor]]:
        """Weights and batch-norm statistics, by name."""
        return sorted(self.network.state_dict().items())

    def encode(self, frames: np.ndarray) -> np.ndarray:
        """Latents float32 (B, D) of uint8 frames (B, V, H, W, 3)."""
        return self.encode_outputs(frames, [self.output])[0]

    def encode_outputs(self, frames: np.ndarray, outputs: Sequence[str]) -> list[np.ndarray]:
        """Several latents in one pass.

        Every view is encoded for each of them, also for one view's class token alone: products of another
        size round differently, and a latent must not depend on what is asked for beside it.
        """
        assert self.views is not None
        frames = prepare_frames(frames, len(self.views), self.image_size)
        parts = []
        with torch.inference_mode():
            for start in range(0, len(frames), ENCODE_AT_ONCE):
                tokens = self.network.cls(self.images(frames[start : start + ENCODE_AT_ONCE]))
                parts.append([self._latent(tokens, name).cpu().numpy() for name in outputs])
        if not parts:
            return [np.empty((0, self.with_output(name).width), np.float32) for name in outputs]
        return [np.concatenate(of_one) for of_one in zip(*parts)]

    @property
    def pass_shared_with(self) -> object:
        return self.network

    def images(self, frames: np.ndarray) -> torch.Tensor:
        """Normalised frames, float (B, V, 3, S, S), of uint8 ones that have their size already."""
        return torch.stack(self._normalise(torch.from_numpy(frames).to(self.device)), dim=1)

    def _latent(self, tokens: torch.Tensor, output: str) -> torch.Tensor:
        """One of the latents of class tokens (B, V, E)."""
        assert self.views is not None
        if output in ("z", "cls"):
            return self.network.project(tokens) if output == "z" else tokens.flatten(1)
        return tokens[:, self.views.index(output)]

    def preprocessed(self, frames: np.ndarray) -> np.ndarray:
        """Normalised frames, float32 (B, V, 3, h, w)."""
        assert self.views is not None
        frames = prepare_frames(frames, len(self.views), self.image_size)
        return self.images(frames).cpu().numpy()

    # -- prediction ----------------------------------------------------------------------------------------

    @property
    def history_rows(self) -> int:
        """Rows up to and with the present one that `predict` is given."""
        return (self._sizes.history - 1) * self._sizes.action_block + 1

    @property
    def step_rows(self) -> int:
        """Rows of one predicted step."""
        return self._sizes.action_block

    def why_no_prediction(self, actions: int, row_s: float) -> str:
        """Why nothing is predicted from `actions` numbers a row and rows `row_s` seconds apart; empty where
        it is.
        """
        prepared = self._preprocessing
        if self.output != "z":
            return f"the predictor speaks of z, not of {self.output}"
        if prepared.action_mean is None or prepared.action_std is None:
            return "it is not known how its training actions were standardised"
        if actions != self._sizes.action_dim:
            return f"it was trained with {self._sizes.action_dim} actions, and these rows have {actions}"
        if prepared.row_s is not None and not 1 / SAME_PACE <= row_s / prepared.row_s <= SAME_PACE:
            return f"it was trained on rows {prepared.row_s:.3g} s apart, and these are {row_s:.3g} s apart"
        return ""

    def predict(
        self,
        history: NDArray[Any],
        past: NDArray[Any],
        chunks: NDArray[Any],
        rollout: Rollout = "history",
    ) -> NDArray[Any]:
        """Latents after each of some chunks of actions, step by step, each from what was predicted before.

        Parameters
        ----------
        history : (n, h, D), latents of the last h >= `history_rows` rows, the present one last.
        past : (n, h - 1, A), actions in force at all of these rows but the last.
        chunks : (n, K, H, A), actions from the present row on, H a multiple of the block; as they were sent.
        rollout : `history`, the present latent and those before it with the actions sent between them, and
            the chunk after them (stable-worldmodel's way); `anchor`, the present latent alone, and the first
            block of the chunk as the action that goes with it (how the published evaluation plans).

        Returns
        -------
        float32 (n, K, D), at the row after the last action.
        """
        block, steps = self._sizes.action_block, self._sizes.history
        n, candidates, rows, width = chunks.shape
        if rows % block:
            raise ValueError(f"a step is {block} rows, and a chunk of {rows} is no multiple of it")
        before = steps - 1 if rollout == "history" else 0
        places = np.arange(-before * block - 1, 0, block)  # rows of the latents that are given
        z = history[:, places]
        sent = past[:, past.shape[1] - before * block :].reshape(n, before, block * width)
        future = chunks.reshape(n, candidates, rows // block, block * width)
        every = np.concatenate([np.repeat(sent[:, None], candidates, axis=1), future], axis=2)
        return self._rolled(
            np.repeat(z[:, None], candidates, axis=1).reshape(n * candidates, before + 1, -1),
            every.reshape(n * candidates, before + rows // block, block * width),
        ).reshape(n, candidates, -1)

    def _rolled(self, z: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        """The latent after the last of `actions` (N, b + steps, block * A), from latents z (N, b + 1, D)."""
        prepared = self._preprocessing
        blocks = self._sizes.action_block
        mean = np.tile(np.asarray(prepared.action_mean, np.float64), blocks)
        std = np.tile(np.asarray(prepared.action_std, np.float64), blocks)
        out = np.empty((len(z), self.width), np.float32)
        with torch.inference_mode():
            for start in range(0, len(z), PREDICT_AT_ONCE):
                part = slice(start, start + PREDICT_AT_ONCE)
                known = torch.from_numpy(np.asarray(z[part], np.float32)).to(self.device)
                scaled = np.asarray((actions[part] - mean) / std, np.float32)
                out[part] = self._last(known, torch.from_numpy(scaled).to(self.device)).cpu().numpy()
        return out

    def _last(self, known: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        for step in range(known.shape[1], actions.shape[1] + 1):
            first = max(0, step - self._sizes.history)
            predicted = self.network.predict(known[:, first:step], actions[:, first:step])
            known = torch.cat([known, predicted[:, -1:]], dim=1)
        return known[:, -1]
