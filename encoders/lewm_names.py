"""Names and shapes of LeWM's tensors: those of transformers 4 and 5, in which others save it, and ours."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from encoders.lewm import ACTION_MLP_SCALE, SMOOTHED_ACTIONS, LewmArchitecture

VIT_LAYER = re.compile(r"encoder\.(?:encoder\.)?layers?\.(\d{1,4})\.(.+)\.(weight|bias)", re.ASCII)
# names of transformers 5, and those of transformers 4 for the same
VIT_5_TO_4 = {
    "attention.q_proj": "attention.attention.query",
    "attention.k_proj": "attention.attention.key",
    "attention.v_proj": "attention.attention.value",
    "attention.o_proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}
# names of transformers 4, and torchvision's, which `encoders.lewm` has
VIT_OURS = {
    "encoder.embeddings.cls_token": "encoder.class_token",
    "encoder.embeddings.position_embeddings": "encoder.encoder.pos_embedding",
    "encoder.embeddings.patch_embeddings.projection.weight": "encoder.conv_proj.weight",
    "encoder.embeddings.patch_embeddings.projection.bias": "encoder.conv_proj.bias",
    "encoder.layernorm.weight": "encoder.encoder.ln.weight",
    "encoder.layernorm.bias": "encoder.encoder.ln.bias",
}
VIT_LAYER_OURS = {
    "layernorm_before": "ln_1",
    "attention.output.dense": "self_attention.out_proj",
    "layernorm_after": "ln_2",
    "intermediate.dense": "mlp.0",
    "output.dense": "mlp.3",
}


def transformers_4_name(name: str) -> tuple[str, bool]:
    """The name that transformers 4 gives a tensor, and whether `name` is one that it does not have."""
    match = VIT_LAYER.fullmatch(name)
    if match is None:
        return name, False
    part = VIT_5_TO_4.get(match[2], match[2])
    return f"encoder.encoder.layer.{int(match[1])}.{part}.{match[3]}", part != match[2]


def transformers_5_name(name: str) -> str:
    """The name that transformers 5 gives a tensor, of its name in transformers 4."""
    match = VIT_LAYER.fullmatch(name)
    if match is None:
        return name
    part = {old: new for new, old in VIT_5_TO_4.items()}.get(match[2], match[2])
    return f"encoder.layers.{match[1]}.{part}.{match[3]}"


def published_shapes(sizes: LewmArchitecture) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of a LeWM with one view, by the names of transformers 4; 303 as published."""
    e, d, p = sizes.vit_width, sizes.latent_dim, sizes.patch_size
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.embeddings.cls_token": (1, 1, e),
        "encoder.embeddings.position_embeddings": (1, (sizes.image_size // p) ** 2 + 1, e),
        "encoder.embeddings.patch_embeddings.projection.weight": (e, 3, p, p),
        "encoder.embeddings.patch_embeddings.projection.bias": (e,),
    }

    def affine(name: str, *shape: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, (shape[0],)

    for layer in range(sizes.vit_depth):
        here = f"encoder.encoder.layer.{layer}."
        for part in ("query", "key", "value"):
            affine(f"{here}attention.attention.{part}", e, e)
        affine(f"{here}attention.output.dense", e, e)
        affine(f"{here}intermediate.dense", 4 * e, e)
        affine(f"{here}output.dense", e, 4 * e)
        affine(f"{here}layernorm_before", e)
        affine(f"{here}layernorm_after", e)
    affine("encoder.layernorm", e)
    shapes["predictor.pos_embedding"] = (1, sizes.history, d)
    inner = sizes.predictor_heads * sizes.predictor_head_dim
    for layer in range(sizes.predictor_depth):
        here = f"predictor.transformer.layers.{layer}."
        affine(f"{here}attn.norm", d)
        shapes[f"{here}attn.to_qkv.weight"] = (3 * inner, d)
        affine(f"{here}attn.to_out.0", d, inner)
        affine(f"{here}mlp.net.0", d)
        affine(f"{here}mlp.net.1", sizes.predictor_mlp, d)
        affine(f"{here}mlp.net.4", d, sizes.predictor_mlp)
        affine(f"{here}adaLN_modulation.1", 6 * d, d)
    affine("predictor.transformer.norm", d)
    affine("action_encoder.patch_embed", SMOOTHED_ACTIONS, sizes.action_block * sizes.action_dim, 1)
    affine("action_encoder.embed.0", ACTION_MLP_SCALE * d, SMOOTHED_ACTIONS)
    affine("action_encoder.embed.2", d, ACTION_MLP_SCALE * d)
    for name, given in (("projector", e), ("pred_proj", d)):
        affine(f"{name}.net.0", sizes.projector_width, given)
        affine(f"{name}.net.1", sizes.projector_width)
        shapes[f"{name}.net.1.running_mean"] = (sizes.projector_width,)
        shapes[f"{name}.net.1.running_var"] = (sizes.projector_width,)
        shapes[f"{name}.net.1.num_batches_tracked"] = ()
        affine(f"{name}.net.3", d, sizes.projector_width)
    return shapes


def ours(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors by the names of `encoders.lewm`, where query, key and value of the ViT are one tensor."""
    renamed: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        match = VIT_LAYER.fullmatch(name)
        if match is None:
            renamed[VIT_OURS.get(name, name)] = tensor
            continue
        number, part, leaf = match.groups()
        here = f"encoder.encoder.layers.encoder_layer_{number}."
        if part in VIT_LAYER_OURS:
            renamed[f"{here}{VIT_LAYER_OURS[part]}.{leaf}"] = tensor
        elif part == "attention.attention.query":
            beside = [name.replace(".query.", f".{other}.") for other in ("key", "value")]
            renamed[f"{here}self_attention.in_proj_{leaf}"] = torch.cat(
                [tensor, *(tensors[one] for one in beside)]
            )
    return renamed
