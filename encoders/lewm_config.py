"""The config.json beside a LeWM's weights: numbers are read from it, and nothing is made of it.

It is a tree of Hydra's: `_target_` names what would be called with the other keys. Only the names of a LeWM's
parts are known here, and they are compared, never looked up; each number is held against the weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from encoders.lewm import ACTION_MLP_SCALE, SMOOTHED_ACTIONS, VIT_NORM_EPS
from hardware.errors import InputError

CONFIG = "config.json"
MAX_CONFIG_BYTES = 1 << 20
MAX_NUMBER = 1 << 20
MAX_DEPTH = 5

_MLP = ("module.MLP", "stable_worldmodel.wm.lewm.module.MLP")

# the names that each part may have, as le-wm and stable-worldmodel write them
TARGETS: dict[str, tuple[str, ...]] = {
    "": ("jepa.JEPA", "stable_worldmodel.wm.lewm.LeWM"),
    "encoder": ("stable_pretraining.backbone.utils.vit_hf",),
    "predictor": ("module.ARPredictor", "stable_worldmodel.wm.lewm.module.Predictor"),
    "action_encoder": ("module.Embedder", "stable_worldmodel.wm.lewm.module.Embedder"),
    "projector": _MLP,
    "pred_proj": _MLP,
    "projector.norm_fn": ("torch.nn.BatchNorm1d",),
    "pred_proj.norm_fn": ("torch.nn.BatchNorm1d",),
    "projector.act_fn": ("torch.nn.GELU",),
    "pred_proj.act_fn": ("torch.nn.GELU",),
}

# what each number says about a `LewmArchitecture`; `actions` is the width of a whole step's
NUMBERS: dict[str, str] = {
    "encoder.image_size": "image_size",
    "encoder.patch_size": "patch_size",
    "encoder.hidden_size": "vit_width",
    "encoder.num_hidden_layers": "vit_depth",
    "encoder.num_attention_heads": "vit_heads",
    "predictor.num_frames": "history",
    "predictor.input_dim": "latent_dim",
    "predictor.hidden_dim": "latent_dim",
    "predictor.output_dim": "latent_dim",
    "predictor.depth": "predictor_depth",
    "predictor.heads": "predictor_heads",
    "predictor.dim_head": "predictor_head_dim",
    "predictor.mlp_dim": "predictor_mlp",
    "predictor.dropout": "dropout",
    "action_encoder.input_dim": "actions",
    "action_encoder.emb_dim": "latent_dim",
    "projector.input_dim": "vit_width",
    "projector.hidden_dim": "projector_width",
    "projector.output_dim": "latent_dim",
    "pred_proj.input_dim": "latent_dim",
    "pred_proj.hidden_dim": "projector_width",
    "pred_proj.output_dim": "latent_dim",
}

# what vit_hf's `size` stands for
VIT_KEYS = ("encoder.hidden_size", "encoder.num_hidden_layers", "encoder.num_attention_heads")
VIT_SIZES = {
    "tiny": (192, 12, 3),
    "small": (384, 12, 6),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "huge": (1280, 32, 16),
}

# what changes the network without a trace in the weights: it must be what a LeWM has
FIXED: dict[str, Any] = {
    "encoder.hidden_act": "gelu",
    "encoder.layer_norm_eps": VIT_NORM_EPS,
    "encoder.qkv_bias": True,
    "action_encoder.smoothed_dim": SMOOTHED_ACTIONS,
    "action_encoder.mlp_scale": ACTION_MLP_SCALE,
}

# what matters in training only, or shows in the weights
INDIFFERENT = (
    "encoder.pretrained",
    "encoder.use_mask_token",
    "encoder.intermediate_size",
    "predictor.emb_dropout",
)


@dataclass(frozen=True)
class LewmConfig:
    """What a config.json says.

    Attributes
    ----------
    sizes : by the fields of `LewmArchitecture`, and `actions`; each with the key that says it.
    not_read : keys that mean nothing here.
    """

    path: Path
    sizes: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    not_read: tuple[str, ...] = ()

    def number(self, name: str) -> float | None:
        """What it says of one size, None where it says nothing."""
        said = self.sizes.get(name)
        return said[0][1] if said else None

    def check(self, name: str, found: float) -> None:
        """InputError where it says something else than the weights do."""
        for key, value in self.sizes.get(name, []):
            if value != found:
                raise InputError(
                    self.path,
                    f"{key} is {value:g}, and the weights have {found:g}",
                    "find the config.json of these",
                )


def read_config(path: Path) -> LewmConfig:
    """Read a config.json; InputError names what is not a LeWM's, or is no number in bounds."""
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise InputError(path, f"is larger than the {MAX_CONFIG_BYTES:,} bytes allowed")
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"is not JSON: {str(error)[:100]}", "fetch it again") from None
    sizes: dict[str, list[tuple[str, float]]] = {}
    not_read: list[str] = []
    settings = _settings(path, data)
    for key, value in settings.items():
        if key in NUMBERS:
            sizes.setdefault(NUMBERS[key], []).append((key, _number(path, key, value)))
        elif key in FIXED:
            if value != FIXED[key]:
                raise InputError(path, f"{key} is {str(value)[:40]}, and a LeWM has {FIXED[key]}")
        elif key == "encoder.size":
            if value not in VIT_SIZES:
                raise InputError(path, f"{key} is {str(value)[:40]!r}", f"known: {', '.join(VIT_SIZES)}")
            for key_beside, number in zip(VIT_KEYS, VIT_SIZES[value]):
                if key_beside not in settings:  # there it has the last word
                    sizes.setdefault(NUMBERS[key_beside], []).append((key, number))
        elif key not in INDIFFERENT:
            not_read.append(key)
    return LewmConfig(path, sizes, tuple(not_read))


def _settings(path: Path, data: Any, place: str = "") -> dict[str, Any]:
    """Settings by their place, such as `predictor.depth`; every `_target_` is checked."""
    if not isinstance(data, Mapping) or place.count(".") > MAX_DEPTH:
        raise InputError(path, f"{place or 'it'} is no object", "fetch it again")
    target = data.get("_target_")
    if place in TARGETS and target not in TARGETS[place] and (target is not None or not place):
        raise InputError(
            path,
            f"{place + '.' if place else ''}_target_ is {str(target)[:80]!r}, which is no LeWM's",
            f"known: {', '.join(TARGETS[place])}",
        )
    if place not in TARGETS and target is not None:
        raise InputError(path, f"{place[:80]}._target_ is {str(target)[:80]!r}, where a LeWM has nothing")
    found: dict[str, Any] = {}
    for key, value in data.items():
        inner = f"{place}.{key}" if place else key
        if isinstance(value, Mapping):
            found.update(_settings(path, value, inner))
        elif key not in ("_target_", "_partial_"):
            found[inner] = value
    return found


def _number(path: Path, key: str, value: Any) -> float:
    whole = key != "predictor.dropout"
    fits = type(value) is int or (type(value) is float and not whole)
    if not fits or not (1 if whole else 0) <= value <= MAX_NUMBER:
        raise InputError(
            path, f"{key} is {str(value)[:40]!r}", "write a whole number above 0" if whole else ""
        )
    return float(value)
