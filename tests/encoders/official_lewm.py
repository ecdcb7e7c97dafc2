"""Checkpoints as le-wm, stable-worldmodel and Lightning write them, and LeWM in plain functions on tensors.

Names and shapes are written out here a second time, from the published lists, and the arithmetic from the
paper: nothing is taken from `encoders`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import ViTConfig, ViTModel

NEW_NAMES = {
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
    "layernorm_before": "layernorm_before",
    "layernorm_after": "layernorm_after",
}
OLD_NAMES = {new: old for old, new in NEW_NAMES.items()}


@dataclass(frozen=True)
class Sizes:
    """Of a LeWM; the defaults are small, `Sizes.published()` the published ones."""

    image: int = 28
    patch: int = 14
    width: int = 64
    depth: int = 2
    heads: int = 1
    latent: int = 24
    hidden: int = 40
    history: int = 3
    actions: int = 10
    blocks: int = 2
    predictor_heads: int = 2
    head_dim: int = 64
    mlp: int = 48

    @staticmethod
    def published(actions: int = 10) -> Sizes:
        return Sizes(224, 14, 192, 12, 3, 192, 2048, 3, actions, 6, 16, 64, 2048)


def vit(sizes: Sizes) -> ViTModel:
    """transformers' own, as stable-pretraining makes it."""
    config = ViTConfig(
        hidden_size=sizes.width,
        num_hidden_layers=sizes.depth,
        num_attention_heads=sizes.heads,
        intermediate_size=4 * sizes.width,
        image_size=sizes.image,
        patch_size=sizes.patch,
    )
    return ViTModel(config, add_pooling_layer=False).eval()


def vit_name(name: str, family: int) -> str:
    """A name of the installed ViTModel's state dict, in the way of transformers 4 or 5."""
    match = re.fullmatch(r"(?:encoder\.)?layers?\.(\d+)\.(.+)\.(weight|bias)", name)
    if match is None:
        return name
    number, part, leaf = match.groups()
    old = OLD_NAMES.get(part, part)
    return (
        f"encoder.layer.{number}.{old}.{leaf}" if family == 4 else f"layers.{number}.{NEW_NAMES[old]}.{leaf}"
    )


def beside_the_vit(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all other tensors."""
    d, inner = sizes.latent, sizes.predictor_heads * sizes.head_dim
    shapes: dict[str, tuple[int, ...]] = {"predictor.pos_embedding": (1, sizes.history, d)}
    for n in range(sizes.blocks):
        layer = {
            "attn.norm.weight": (d,),
            "attn.norm.bias": (d,),
            "attn.to_qkv.weight": (3 * inner, d),
            "attn.to_out.0.weight": (d, inner),
            "attn.to_out.0.bias": (d,),
            "mlp.net.0.weight": (d,),
            "mlp.net.0.bias": (d,),
            "mlp.net.1.weight": (sizes.mlp, d),
            "mlp.net.1.bias": (sizes.mlp,),
            "mlp.net.4.weight": (d, sizes.mlp),
            "mlp.net.4.bias": (d,),
            "adaLN_modulation.1.weight": (6 * d, d),
            "adaLN_modulation.1.bias": (6 * d,),
        }
        shapes.update({f"predictor.transformer.layers.{n}.{name}": shape for name, shape in layer.items()})
    shapes.update({f"predictor.transformer.norm.{leaf}": (d,) for leaf in ("weight", "bias")})
    shapes.update(
        {
            "action_encoder.patch_embed.weight": (10, sizes.actions, 1),
            "action_encoder.patch_embed.bias": (10,),
            "action_encoder.embed.0.weight": (4 * d, 10),
            "action_encoder.embed.0.bias": (4 * d,),
            "action_encoder.embed.2.weight": (d, 4 * d),
            "action_encoder.embed.2.bias": (d,),
        }
    )
    for part, given in (("projector", sizes.width), ("pred_proj", d)):
        shapes[f"{part}.net.0.weight"] = (sizes.hidden, given)
        for leaf in ("0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"):
            shapes[f"{part}.net.{leaf}"] = (sizes.hidden,)
        shapes[f"{part}.net.1.num_batches_tracked"] = ()
        shapes[f"{part}.net.3.weight"] = (d, sizes.hidden)
        shapes[f"{part}.net.3.bias"] = (d,)
    return shapes


def state_dict(sizes: Sizes, family: int = 4, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random weights of the size that training leaves, by the names of the published files."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {
        f"encoder.{vit_name(name, family)}": value.shape for name, value in vit(sizes).state_dict().items()
    }
    tensors: dict[str, torch.Tensor] = {}
    for name, shape in sorted((shapes | beside_the_vit(sizes)).items(), key=lambda item: _order(item[0])):
        drawn = torch.randn(*shape, generator=generator) if shape else torch.tensor(0.0)
        if name.endswith("num_batches_tracked"):
            tensors[name] = torch.tensor(1234)
        elif name.endswith("running_var"):
            tensors[name] = drawn.abs() + 0.5
        elif len(shape) == 1:
            tensors[name] = 0.2 * drawn + (1.0 if name.endswith("weight") else 0.0)
        else:
            fan_in = drawn[0].numel() if len(shape) != 3 else drawn.shape[-1]
            tensors[name] = drawn / fan_in**0.5
    return tensors


def _order(name: str) -> str:
    """Sorts a name of either family to the same place, so that both get the same numbers."""
    return "encoder." + vit_name(name.removeprefix("encoder."), 4) if name.startswith("encoder.") else name


def config_json(sizes: Sizes, swm: bool = True) -> dict[str, Any]:
    """The config.json of a checkpoint, with stable-worldmodel's names or le-wm's."""
    module = "stable_worldmodel.wm.lewm.module." if swm else "module."
    published = sizes == Sizes.published(sizes.actions)
    encoder: dict[str, Any] = {
        "_target_": "stable_pretraining.backbone.utils.vit_hf",
        "size": "tiny",
        "patch_size": sizes.patch,
        "image_size": sizes.image,
        "pretrained": False,
        "use_mask_token": False,
    }
    if not published:
        encoder |= {
            "hidden_size": sizes.width,
            "num_hidden_layers": sizes.depth,
            "num_attention_heads": sizes.heads,
        }

    def mlp(given: int) -> dict[str, Any]:
        return {
            "_target_": f"{module}MLP",
            "input_dim": given,
            "output_dim": sizes.latent,
            "hidden_dim": sizes.hidden,
            "norm_fn": {"_target_": "torch.nn.BatchNorm1d", "_partial_": True},
        }

    return {
        "_target_": "stable_worldmodel.wm.lewm.LeWM" if swm else "jepa.JEPA",
        "encoder": encoder,
        "predictor": {
            "_target_": f"{module}Predictor" if swm else f"{module}ARPredictor",
            "num_frames": sizes.history,
            "input_dim": sizes.latent,
            "hidden_dim": sizes.latent,
            "output_dim": sizes.latent,
            "depth": sizes.blocks,
            "heads": sizes.predictor_heads,
            "mlp_dim": sizes.mlp,
            "dim_head": sizes.head_dim,
            "dropout": 0.1,
            "emb_dropout": 0.0,
        },
        "action_encoder": {
            "_target_": f"{module}Embedder",
            "input_dim": sizes.actions,
            "emb_dim": sizes.latent,
        },
        "projector": mlp(sizes.width),
        "pred_proj": mlp(sizes.latent),
    }


# -- pickled networks --------------------------------------------------------------------------------------


@contextmanager
def their_modules() -> Iterator[tuple[type[nn.Module], type[nn.Module]]]:
    """Classes `jepa.JEPA` and `module.Part` while a network is pickled; afterwards nobody can import them."""
    made = []
    for module, name in (("jepa", "JEPA"), ("module", "Part")):
        made.append(type(name, (nn.Module,), {"__module__": module, "__qualname__": name}))
        sys.modules[module] = ModuleType(module)
        setattr(sys.modules[module], name, made[-1])
    try:
        yield made[0], made[1]
    finally:
        del sys.modules["jepa"], sys.modules["module"]


def network_of(
    tensors: Mapping[str, torch.Tensor], root: type[nn.Module], part: type[nn.Module]
) -> nn.Module:
    """A tree of modules with these parameters and buffers, and a buffer that is not saved."""
    network = root()
    for name, tensor in tensors.items():
        *path, leaf = name.split(".")
        here = network
        for step in path:
            if step not in here._modules:
                here.add_module(step, part())
            here = here.get_submodule(step)
        if "running_" in leaf or leaf == "num_batches_tracked":
            here.register_buffer(leaf, tensor.clone())
        else:
            here.register_parameter(leaf, nn.Parameter(tensor.clone()))
    network.register_buffer("scratch", torch.zeros(3), persistent=False)
    return network


# -- LeWM, plainly -----------------------------------------------------------------------------------------


def transformers_cls(tensors: Mapping[str, torch.Tensor], sizes: Sizes, images: torch.Tensor) -> torch.Tensor:
    """The class token (B, E) that transformers' own ViT gives of normalised images (B, 3, S, S)."""
    model = vit(sizes)
    by_order = {_order(name): tensor for name, tensor in tensors.items()}
    model.load_state_dict({name: by_order[_order(f"encoder.{name}")] for name in model.state_dict()})
    with torch.inference_mode():
        return model(images, interpolate_pos_encoding=True).last_hidden_state[:, 0]


def projected(tensors: Mapping[str, torch.Tensor], part: str, x: torch.Tensor) -> torch.Tensor:
    """Linear, batch norm by its running statistics, GELU, linear."""
    t = {name.removeprefix(f"{part}.net."): tensor for name, tensor in tensors.items()}
    x = F.linear(x, t["0.weight"], t["0.bias"])
    x = (x - t["1.running_mean"]) / (t["1.running_var"] + 1e-5).sqrt() * t["1.weight"] + t["1.bias"]
    return F.linear(F.gelu(x), t["3.weight"], t["3.bias"])


def predicted(
    tensors: Mapping[str, torch.Tensor], sizes: Sizes, z: torch.Tensor, actions: torch.Tensor
) -> torch.Tensor:
    """The latent after each of z (B, T, D), whose steps' actions (B, T, block * A) are standardised."""
    a = F.linear(actions, tensors["action_encoder.patch_embed.weight"][..., 0])
    a = a + tensors["action_encoder.patch_embed.bias"]
    a = F.silu(F.linear(a, tensors["action_encoder.embed.0.weight"], tensors["action_encoder.embed.0.bias"]))
    a = F.linear(a, tensors["action_encoder.embed.2.weight"], tensors["action_encoder.embed.2.bias"])
    steps, d = z.shape[1], sizes.latent
    x = z + tensors["predictor.pos_embedding"][:, :steps]
    for n in range(sizes.blocks):
        t = {
            name.removeprefix(f"predictor.transformer.layers.{n}."): tensor
            for name, tensor in tensors.items()
        }
        scales = F.linear(F.silu(a), t["adaLN_modulation.1.weight"], t["adaLN_modulation.1.bias"])
        shift1, scale1, gate1, shift2, scale2, gate2 = scales.split(d, dim=-1)
        y = F.layer_norm(x, (d,), eps=1e-6) * (1 + scale1) + shift1
        y = F.layer_norm(y, (d,), t["attn.norm.weight"], t["attn.norm.bias"])
        q, k, v = F.linear(y, t["attn.to_qkv.weight"]).chunk(3, dim=-1)
        mixed = []
        for head in range(sizes.predictor_heads):
            own = slice(head * sizes.head_dim, (head + 1) * sizes.head_dim)
            scores = q[..., own] @ k[..., own].transpose(1, 2) / sizes.head_dim**0.5
            scores = scores.masked_fill(torch.ones(steps, steps).triu(1).bool(), float("-inf"))
            mixed.append(scores.softmax(dim=-1) @ v[..., own])
        out = F.linear(torch.cat(mixed, dim=-1), t["attn.to_out.0.weight"], t["attn.to_out.0.bias"])
        x = x + gate1 * out
        y = F.layer_norm(x, (d,), eps=1e-6) * (1 + scale2) + shift2
        y = F.layer_norm(y, (d,), t["mlp.net.0.weight"], t["mlp.net.0.bias"])
        y = F.gelu(F.linear(y, t["mlp.net.1.weight"], t["mlp.net.1.bias"]))
        x = x + gate2 * F.linear(y, t["mlp.net.4.weight"], t["mlp.net.4.bias"])
    x = F.layer_norm(
        x, (d,), tensors["predictor.transformer.norm.weight"], tensors["predictor.transformer.norm.bias"]
    )
    return projected(tensors, "pred_proj", x)
