"""Encoders on disk: saved whole or not at all, loaded by the text that a study names them by."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import safetensors
import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, Field

from encoders.cnn import CnnEncoder
from encoders.encoder import Encoder, default_device
from encoders.frozen import Precision, Runtime
from encoders.imported import ImportedEncoder
from encoders.lewm_encoder import LewmEncoder
from encoders.onnx_models import OnnxEncoder
from encoders.pixels import PixelsEncoder
from encoders.recipes import Recipe
from encoders.torchvision_models import TorchvisionEncoder
from encoders.transformers_models import TransformersEncoder
from hardware.disk import disk_errors, write_atomically
from hardware.errors import InputError
from hardware.recording import Recording
from hardware.schema import parse_model

CARD, WEIGHTS = "encoder.json", "weights.safetensors"
MAX_CARD_BYTES = 4 << 20
MAX_WEIGHT_BYTES = 4 << 30
SPECS = (
    "cnn:FOLDER, pixels:FOLDER, lewm:PATH, FOLDER, untrained:cnn, untrained:lewm, transformers:ID_OR_FOLDER, "
    "torchvision:NAME[:WEIGHTS], onnx:FILE, import:MODULE:FACTORY"
)


class TrainedOn(BaseModel):
    """The frames an encoder was fitted on: which manifest, which episodes, how many."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    manifest_sha256: str
    episodes: list[int]
    episode_sha256: list[str]
    frames: int = Field(ge=0)
    pairs: int | None = None
    windows: int | None = None


class EncoderCard(BaseModel):
    """The content of encoder.json."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_: Literal["jointprobe-encoder/1"] = Field(default="jointprobe-encoder/1", alias="schema")
    kind: Literal["cnn", "pixels", "lewm", "untrained:cnn", "untrained:lewm"]
    views: list[str]
    architecture: dict[str, Any]
    preprocessing: dict[str, Any]
    recipe: dict[str, Any] | None = None
    trained_on: TrainedOn | None = None
    source: dict[str, Any] | None = None  # of imported weights: file, hash, what was assumed


def save_encoder(
    folder: str | Path,
    encoder: Encoder,
    *,
    recipe: Recipe | None = None,
    trained_on: TrainedOn | None = None,
    source: dict[str, Any] | None = None,
) -> None:
    """Write `encoder.json` and `weights.safetensors`; a folder without encoder.json holds no encoder.

    An encoder.json of before goes first and the new one comes last, each by fsync and rename, so that a
    kill at any moment leaves the old encoder, the new one or none, never a mixture.
    """
    folder = Path(folder)
    card = EncoderCard(
        kind=encoder.kind,  # type: ignore[arg-type]
        views=list(encoder.views or ()),
        architecture=encoder.architecture,
        preprocessing=encoder.preprocessing,
        recipe=None if recipe is None else recipe.model_dump(mode="json"),
        trained_on=trained_on,
        source=source,
    )
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in encoder.tensors()}
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CARD).unlink(missing_ok=True)
        write_atomically(folder / WEIGHTS, safetensors.torch.save(tensors))
        facts = card.model_dump(mode="json", by_alias=True)
        if source is None:
            del facts["source"]
        text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
        write_atomically(folder / CARD, text.encode())


def read_card(folder: Path) -> EncoderCard:
    """Parse a folder's encoder.json; unknown keys are named, its size is bounded."""
    path = folder / CARD
    if not path.is_file():
        problem = "does not exist" if not folder.exists() else f"holds no {CARD}"
        raise InputError(
            folder, problem, "give the folder that `jointprobe train --to` made, once it is done"
        )
    if path.stat().st_size > MAX_CARD_BYTES:
        raise InputError(path, f"is {path.stat().st_size:,} bytes, more than the {MAX_CARD_BYTES:,} allowed")
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"is not JSON: {error}", "restore it from a copy or train again") from None
    return parse_model(EncoderCard, data, path)


def read_tensors(path: Path, max_bytes: int = MAX_WEIGHT_BYTES) -> dict[str, torch.Tensor]:
    """Tensors of a safetensors file; InputError when it is missing, too large or damaged."""
    if not path.is_file():
        raise InputError(path, "does not exist", "restore it from a copy or train again")
    if path.stat().st_size > max_bytes:
        raise InputError(path, f"is {path.stat().st_size:,} bytes, more than the {max_bytes:,} allowed")
    try:
        return safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise InputError(
            path, f"is not a whole safetensors file: {error}", "restore it from a copy"
        ) from None


def load_folder(folder: str | Path, device: torch.device | str = "cpu") -> Encoder:
    """Load what `save_encoder` wrote."""
    folder = Path(folder)
    card = read_card(folder)
    tensors = read_tensors(folder / WEIGHTS)
    makers: dict[str, type[PixelsEncoder] | type[LewmEncoder]] = {
        "pixels": PixelsEncoder,
        "lewm": LewmEncoder,
        "untrained:lewm": LewmEncoder,
    }
    return makers.get(card.kind, CnnEncoder).from_parts(
        card.kind, card.views, card.architecture, card.preprocessing, tensors, folder, device
    )


def load_encoder(
    spec: str,
    *,
    views: Sequence[str] | None = None,
    image_shapes: Mapping[str, tuple[int, int]] | None = None,
    base: str | Path | None = None,
    recipe: Mapping[str, Any] | Recipe | None = None,
    recording: Recording | None = None,
    episodes: Sequence[int] | None = None,
    device: torch.device | str | None = None,
    precision: Precision = "fp32",
    runtime: Runtime = "torch",
    clip_frames: int | None = None,
    clip_stride: int = 1,
) -> Encoder:
    """The encoder that a text names.

    Parameters
    ----------
    spec : `cnn:FOLDER`, `pixels:FOLDER`, `lewm:FOLDER` or `FOLDER` (encoder.json tells), `lewm:PATH` (a LeWM
        as others save it, see `encoders.lewm_checkpoints`), `untrained:cnn`, `untrained:lewm`,
        `transformers:ID_OR_FOLDER`, `torchvision:NAME` or `torchvision:NAME:WEIGHTS`, `onnx:FILE`,
        `import:MODULE:FACTORY`. `@OUTPUT` behind it asks for another of its latents, as in `lewm:FOLDER@cls`.
    views : views it is to encode, in order. Frozen encoders need them; a trained one must agree with them.
    image_shapes : (height, width) of each view as recorded. Views that differ in size are brought to the
        largest height and width before a frozen encoder sees them.
    base : folder that relative FOLDERs start from; None is the working directory.
    recipe, recording, episodes : for `untrained:cnn` and `untrained:lewm`: the recipe (of the trained one, or
        an `untrained` one; defaults where None) and the training frames that input and batch-norm statistics
        are measured on. Without a recording those stay at identity (input mean 0.5, std 0.25).
    device : where to compute; None is CUDA where there is one.
    precision, runtime : `bf16` and `openvino` are for frozen networks, see `FrozenEncoder`.
    clip_frames, clip_stride : for those of transformers that take clips, see `TransformersEncoder`.

    Raises
    ------
    WeightsUnavailable
        when a hub's weights are neither in the local cache nor to be had.
    InputError
        for anything else that is wrong.
    """
    asked = device
    device = default_device() if device is None else torch.device(device)
    kind, colon, rest = spec.partition(":")
    if not kind or (colon and not rest):
        raise InputError(f"encoder {spec!r}", "names nothing", f"known: {SPECS}")
    whole, at, output = spec.rpartition("@")
    if at and kind != "import" and not _exists(spec, base) and not _exists(rest, base):
        encoder = load_encoder(
            whole,
            views=views,
            image_shapes=image_shapes,
            base=base,
            recipe=recipe,
            recording=recording,
            episodes=episodes,
            device=asked,
            precision=precision,
            runtime=runtime,
            clip_frames=clip_frames,
            clip_stride=clip_stride,
        )
        return encoder.with_output(output)
    if precision != "fp32" and kind not in ("transformers", "torchvision"):
        raise InputError(f"encoder {spec!r}", f"cannot compute in {precision!r}", "leave precision out")
    if runtime != "torch" and kind not in ("transformers", "torchvision"):
        raise InputError(f"encoder {spec!r}", f"cannot be run by {runtime!r}", "leave runtime out")
    if (clip_frames is not None or clip_stride != 1) and kind != "transformers":
        raise InputError(f"encoder {spec!r}", "takes no clips", "leave clip_frames and clip_stride out")
    if kind == "transformers":
        name = _existing_folder(rest, base) or rest
        return TransformersEncoder(
            name,
            views=views,
            image_shapes=image_shapes,
            device=device,
            precision=precision,
            runtime=runtime,
            clip_frames=clip_frames,
            clip_stride=clip_stride,
        )
    if kind == "torchvision":
        return TorchvisionEncoder(
            rest,
            views=views,
            image_shapes=image_shapes,
            base=base,
            device=device,
            precision=precision,
            runtime=runtime,
        )
    if kind == "onnx":
        return OnnxEncoder(rest, views=views, image_shapes=image_shapes, base=base, device=asked)
    if kind == "import":
        return ImportedEncoder(rest, views=views, image_shapes=image_shapes, base=base, device=device)
    if kind == "untrained":
        from encoders.untrained import (
            untrained_encoder,
        )  # it trains nothing, but reads recordings as training does

        return untrained_encoder(rest, recipe, views, recording, episodes, device)
    folder = Path(base or ".") / Path(rest if kind in ("cnn", "pixels", "lewm") else spec).expanduser()
    if not folder.exists() and kind not in ("cnn", "pixels"):
        raise InputError(
            f"encoder {spec!r}",
            f"there is no folder {folder}, and it is no other kind",
            f"make one (jointprobe train RECORDING --to {folder}), or write one of: {SPECS}",
        )
    if kind == "lewm" and not (folder / CARD).is_file():
        from encoders.lewm_checkpoints import read_lewm  # which reads encoders of ours as well

        return read_lewm(folder).encoder(views, device)
    encoder = load_folder(folder, device)
    if kind in ("cnn", "pixels", "lewm") and encoder.kind != kind:
        raise InputError(
            f"encoder {spec!r}", f"the folder holds {encoder.kind!r}", f"write {encoder.kind}:{rest}"
        )
    if views is not None and tuple(views) != encoder.views:
        raise InputError(
            f"encoder {spec!r}",
            f"was made for the views {', '.join(encoder.views or ())}, asked for {', '.join(views)}",
            "name the same views in the same order, or train one for these",
        )
    return encoder


def _exists(text: str, base: str | Path | None) -> bool:
    return bool(text) and (Path(base or ".") / Path(text).expanduser()).exists()


def _existing_folder(text: str, base: str | Path | None) -> str | None:
    folder = Path(base or ".") / Path(text).expanduser()
    return str(folder) if folder.is_dir() else None
