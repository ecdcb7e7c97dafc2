"""LeWM (arXiv 2603.19312): a ViT encoder, and a predictor of the next latent from latents and actions.

    image of view v  --ViT-->  CLS (E)                  one encoder for all views
    CLS of all views, side by side (V E)  --projector-->  z (D)
    z_{t-2}, z_{t-1}, z_t and the actions after each  --predictor-->  z_{t+1}

With one view, the published sizes and two actions it has the published 18,034,478 parameters. A step is
`action_block` rows; the actions sent during a step are laid side by side and embedded together. Names of
modules are the published ones, except in the ViT, which is torchvision's (`encoders/lewm_names.py`
translates).
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import nn
from torchvision.models import VisionTransformer

SMOOTHED_ACTIONS = 10  # channels behind the action embedder's first layer
ACTION_MLP_SCALE = 4
VIT_NORM_EPS = 1e-12
INITIAL_STD = 0.02  # of the ViT's weights, a normal cut at two standard deviations


class LewmArchitecture(BaseModel):
    """Sizes of a `Lewm`; the defaults are the published ones.

    Parameters
    ----------
    image_size, patch_size : pixels; the ViT's tokens are (image_size / patch_size)^2 and the class token.
    vit_width, vit_depth, vit_heads : E, blocks and heads of the ViT, whose MLPs are 4 E wide.
    latent_dim : D.
    projector_width : hidden units of the two projectors.
    history : latents that the predictor sees.
    action_block : rows of a step, whose actions are embedded together (the published frameskip).
    action_dim : numbers in the action of one row.
    predictor_depth, predictor_heads, predictor_head_dim, predictor_mlp, dropout : of the predictor.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["lewm"] = "lewm"
    image_size: int = Field(default=224, ge=16, le=1024)
    patch_size: int = Field(default=14, ge=2, le=256)
    vit_width: int = Field(default=192, ge=8, le=4096)
    vit_depth: int = Field(default=12, ge=1, le=64)
    vit_heads: int = Field(default=3, ge=1, le=64)
    latent_dim: int = Field(default=192, ge=1, le=4096)
    projector_width: int = Field(default=2048, ge=1, le=65536)
    history: int = Field(default=3, ge=1, le=64)
    action_block: int = Field(default=5, ge=1, le=100)
    action_dim: int = Field(ge=1, le=1000)
    predictor_depth: int = Field(default=6, ge=1, le=64)
    predictor_heads: int = Field(default=16, ge=1, le=64)
    predictor_head_dim: int = Field(default=64, ge=1, le=1024)
    predictor_mlp: int = Field(default=2048, ge=1, le=65536)
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)

    @model_validator(mode="after")
    def _divides(self) -> LewmArchitecture:
        if self.image_size % self.patch_size:
            raise ValueError(
                f"image_size {self.image_size} is no multiple of patch_size {self.patch_size}: "
                f"write {self.image_size // self.patch_size * self.patch_size}"
            )
        if self.vit_width % self.vit_heads:
            raise ValueError(f"vit_width {self.vit_width} is no multiple of vit_heads {self.vit_heads}")
        return self


class Lewm(nn.Module):
    """The network; see the module's text.

    Parameters
    ----------
    views : number of views V.
    generator : source of the initial weights; nothing is drawn from the global one.
    """

    def __init__(self, views: int, sizes: LewmArchitecture, *, generator: torch.Generator) -> None:
        super().__init__()
        self.views, self.sizes = views, sizes
        width = sizes.latent_dim
        with torch.device("meta"):  # no memory and no draw from the global generator
            self.encoder = VisionTransformer(
                image_size=sizes.image_size,
                patch_size=sizes.patch_size,
                num_layers=sizes.vit_depth,
                num_heads=sizes.vit_heads,
                hidden_dim=sizes.vit_width,
                mlp_dim=4 * sizes.vit_width,
                num_classes=1,
                norm_layer=partial(nn.LayerNorm, eps=VIT_NORM_EPS),
            )
            self.encoder.heads = nn.Identity()  # what it gives is the class token
            self.projector = Projector(views * sizes.vit_width, sizes.projector_width, width)
            self.action_encoder = ActionEncoder(sizes.action_block * sizes.action_dim, width)
            self.predictor = Predictor(sizes)
            self.pred_proj = Projector(width, sizes.projector_width, width)
        self.to_empty(device="cpu")
        _initialise(self, generator)

    def cls(self, images: torch.Tensor) -> torch.Tensor:
        """Class tokens, float (B, V, E), of normalised images (B, V, 3, S, S)."""
        tokens: torch.Tensor = self.encoder(images.flatten(0, 1))
        return tokens.unflatten(0, images.shape[:2])

    def project(self, cls: torch.Tensor) -> torch.Tensor:
        """Latents z (B, D) of class tokens (B, V, E)."""
        z: torch.Tensor = self.projector(cls.flatten(1))
        return z

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Latents z (B, D) of normalised images (B, V, 3, S, S)."""
        return self.project(self.cls(images))

    def predict(self, z: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """The latent after each of some steps, from those up to it.

        Parameters
        ----------
        z : (B, T, D), T at most `history`.
        actions : (B, T, action_block * action_dim), sent between each latent and the next, as the training
            data's, standardised.

        Returns
        -------
        (B, T, D); place t predicts the latent after z[:, t].
        """
        predicted = self.predictor(z, self.action_encoder(actions))
        flat: torch.Tensor = self.pred_proj(predicted.flatten(0, 1))
        return flat.unflatten(0, z.shape[:2])


class Projector(nn.Module):
    """Linear - BatchNorm - GELU - Linear, (N, d) to (N, D)."""

    def __init__(self, width_in: int, hidden: int, width_out: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(width_in, hidden), nn.BatchNorm1d(hidden), nn.GELU(), nn.Linear(hidden, width_out)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.net(x)
        return out


class ActionEncoder(nn.Module):
    """Embedding of one step's actions, (B, T, block * A) to (B, T, D)."""

    def __init__(self, actions: int, width: int) -> None:
        super().__init__()
        hidden = ACTION_MLP_SCALE * width
        self.patch_embed = nn.Conv1d(actions, SMOOTHED_ACTIONS, kernel_size=1)
        self.embed = nn.Sequential(nn.Linear(SMOOTHED_ACTIONS, hidden), nn.SiLU(), nn.Linear(hidden, width))

    def forward(self, actions: torch.Tensor) -> torch.Tensor:
        smoothed = self.patch_embed(actions.transpose(1, 2)).transpose(1, 2)
        out: torch.Tensor = self.embed(smoothed)
        return out


class Predictor(nn.Module):
    """A causal transformer over latents, its blocks conditioned on the actions by AdaLN-zero (DiT, arXiv
    2212.09748): at the start every block is the identity.
    """

    def __init__(self, sizes: LewmArchitecture) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, sizes.history, sizes.latent_dim))
        self.transformer = nn.Module()
        self.transformer.layers = nn.ModuleList(
            [ConditionedBlock(sizes) for _ in range(sizes.predictor_depth)]
        )
        self.transformer.norm = nn.LayerNorm(sizes.latent_dim)

    def forward(self, z: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """(B, T, D) of latents and embedded actions, both (B, T, D)."""
        x = z + self.pos_embedding[:, : z.shape[1]]
        for block in self.transformer.layers:  # type: ignore[union-attr]
            x = block(x, condition)
        out: torch.Tensor = self.transformer.norm(x)  # type: ignore[operator]
        return out


class ConditionedBlock(nn.Module):
    """Attention and an MLP, each scaled, shifted and gated by the condition."""

    def __init__(self, sizes: LewmArchitecture) -> None:
        super().__init__()
        width = sizes.latent_dim
        self.norm1 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.attn = CausalAttention(width, sizes.predictor_heads, sizes.predictor_head_dim, sizes.dropout)
        self.mlp = FeedForward(width, sizes.predictor_mlp, sizes.dropout)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaLN_modulation(condition).chunk(6, dim=-1)
        x = x + gate1 * self.attn(self.norm1(x) * (1 + scale1) + shift1)
        x = x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)
        return x


class CausalAttention(nn.Module):
    """Multi-head attention in which a place sees itself and those before it, (B, T, D) to (B, T, D)."""

    def __init__(self, width: int, heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm = nn.LayerNorm(width)
        self.to_qkv = nn.Linear(width, 3 * heads * head_dim, bias=False)
        self.to_out = nn.Sequential(nn.Linear(heads * head_dim, width), nn.Dropout(dropout))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.to_qkv(self.norm(x)).unflatten(2, (3, self.heads, -1))  # (B, T, 3, heads, head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (B, heads, T, head_dim) each
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        out: torch.Tensor = self.to_out(mixed.transpose(1, 2).flatten(2))
        return out


class FeedForward(nn.Module):
    """LayerNorm - Linear - GELU - Linear, (B, T, D) to (B, T, D)."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, width),
            nn.Dropout(dropout),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.net(x)
        return out


def _initialise(network: Lewm, generator: torch.Generator) -> None:
    """Initial weights, in the order of `modules`: the ViT's as transformers makes them, the rest as torch."""
    with torch.no_grad():
        inside_vit = set(network.encoder.modules())
        for module in network.modules():
            if isinstance(module, (nn.LayerNorm, nn.BatchNorm1d)):
                module.reset_parameters()  # ones and zeros: nothing is drawn
            elif module in inside_vit:
                _initialise_vit(module, generator)
            elif isinstance(module, (nn.Linear, nn.Conv1d)):
                bound = module.weight[0].numel() ** -0.5  # weight[0] holds the fan-in of one output
                module.weight.uniform_(-bound, bound, generator=generator)
                if module.bias is not None:
                    module.bias.uniform_(-bound, bound, generator=generator)
        network.predictor.pos_embedding.normal_(generator=generator)
        for block in network.predictor.transformer.layers:  # type: ignore[union-attr]
            block.adaLN_modulation[1].weight.zero_()
            block.adaLN_modulation[1].bias.zero_()


def _initialise_vit(module: nn.Module, generator: torch.Generator) -> None:
    for name, parameter in module.named_parameters(recurse=False):
        if name.endswith("bias"):
            parameter.zero_()
        else:
            nn.init.trunc_normal_(
                parameter, std=INITIAL_STD, a=-2 * INITIAL_STD, b=2 * INITIAL_STD, generator=generator
            )
