"""LeWM's weights as others save them: found, translated to the names of `encoders.lewm`, and checked.

    lewm-reacher/{weights.pt, config.json}             Hugging Face, quentinll/lewm-*
    run/{weights_epoch_N.pt, config.json}              stable-worldmodel; the newest epoch, or the file named
    reacher_weight.ckpt, *.safetensors                 a state dict
    last.ckpt                                          Lightning; the weights lie under `state_dict.model.`
    reacher_object.ckpt                                a pickled network (`trust_pickle`)

The ViT's names are those of transformers 4 or 5. Sizes are told by the shapes, and config.json is held
against them; the numbers of heads, which no shape tells, come from there. A checkpoint has one view, and does
not say how its training actions were standardised: it predicts nothing, unless the recording that it was
trained on is there to be measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any

import torch

from encoders.checkpoint_files import CheckpointFile, read_checkpoint
from encoders.checkpoints import CARD, load_folder, save_encoder
from encoders.encoder import check_views
from encoders.lewm import LewmArchitecture
from encoders.lewm_config import CONFIG, LewmConfig, read_config
from encoders.lewm_encoder import LewmEncoder, LewmPreprocessing
from encoders.lewm_names import ours, published_shapes, transformers_4_name, transformers_5_name
from encoders.windows import ActionStatistics, measure_actions
from hardware.errors import InputError
from hardware.recording import Recording
from hardware.schema import parse_model

HEAD_DIM = 64  # of every head of the published networks
PUBLISHED_BLOCK = 5
SHOWN = 10  # tensors that an error names
SIGN = "predictor.pos_embedding"  # the tensor by which a LeWM is found among others

# SHA-256 of the published files, as three independent users of them list them
RELEASED = {
    "48938400ae3464c9680731287f583a9cb516f55a8ec64ea13a91be47fb15b607": "quentinll/lewm-pusht",
    "2839a907362f403f9136383016e91774373a295d958ae75121791f22a9fddf89": "quentinll/lewm-cube",
    "566f223624ea4bfb39dbfe6ae731198dd6ea73b7b8919fed6b1ecafca810f7dd": "quentinll/lewm-tworooms",
    "eb70b1fd5409f8f81875d62f5ee5a20dd220a3128a477de66b5760f475f0f469": "quentinll/lewm-reacher",
}

PARTS = ("encoder", "predictor", "action_encoder", "projector", "pred_proj")
# what a transformers ViT may have beside, and the class token of its last layer does not depend on
NOT_NEEDED = ("encoder.pooler.dense.weight", "encoder.pooler.dense.bias", "encoder.embeddings.mask_token")


@dataclass(frozen=True)
class LewmCheckpoint:
    """A LeWM of others, translated.

    Attributes
    ----------
    family : `transformers 4` or `transformers 5`, whose names the ViT's tensors have.
    prefix : where in the file the network lies, `state_dict.model.`; often empty.
    tensors : by the names of `encoders.lewm.Lewm` for one view.
    unused : groups of tensors that are no part of the encoder or its predictor, with their numbers.
    notes : what was assumed or is not known, in words.
    """

    file: CheckpointFile
    family: str
    prefix: str
    architecture: LewmArchitecture
    tensors: dict[str, torch.Tensor]
    unused: dict[str, int]
    notes: tuple[str, ...]

    def encoder(
        self,
        views: Sequence[str] | None,
        device: torch.device | str = "cpu",
        actions: ActionStatistics | None = None,
    ) -> LewmEncoder:
        """The encoder, for its one view; it predicts where its training `actions` were measured."""
        where = self.file.path
        named = check_views(views, where)
        if len(named) > 1:
            raise InputError(
                where, f"has one view, and {', '.join(named)} were asked for", "name the one it is to see"
            )
        side = self.architecture.image_size
        prepared = LewmPreprocessing(image_size=(side, side))
        if actions is not None:
            known, taken = len(actions.mean), self.architecture.action_dim
            if known != taken:
                raise InputError(
                    where,
                    f"takes {taken} actions a row, and the recording has {known}",
                    "give the recording that it was trained on",
                )
            prepared = prepared.model_copy(
                update={"action_mean": actions.mean, "action_std": actions.std, "row_s": actions.row_s}
            )
        return LewmEncoder.from_parts(
            "lewm",
            named,
            self.architecture.model_dump(mode="json"),
            prepared.model_dump(mode="json"),
            self.tensors,
            where,
            device,
        )

    def source(self) -> dict[str, Any]:
        """JSON-able facts of where the weights are from, for encoder.json."""
        return {
            "file": self.file.path.name,
            "sha256": self.file.sha256,
            "released_as": RELEASED.get(self.file.sha256),
            "form": self.file.form,
            "family": self.family,
            "prefix": self.prefix,
            "unused": self.unused,
            "notes": list(self.notes),
        }


def read_lewm(path: str | Path, *, trust_pickle: bool = False) -> LewmCheckpoint:
    """Read a checkpoint, a file or a folder, in any of the layouts above.

    Raises
    ------
    InputError : when it is damaged, no LeWM, or a pickle that is not trusted; when a tensor is missing, has
        another shape than the others explain or is not finite; when config.json says something else; and when
        a tensor of the network has no place in ours, whose latents would then be others.
    """
    file = read_checkpoint(Path(path), trust_pickle=trust_pickle)
    prefix, named, unused = _network_of(file)
    config_path = file.path.parent / CONFIG
    config = read_config(config_path) if config_path.is_file() else LewmConfig(config_path)
    tensors, family = _as_transformers_4(file, named)
    architecture, notes = _architecture(file, tensors, config)
    _check(file, tensors, architecture, family)
    if file.passed_over:
        notes.append(f"passed over in the folder: {file.passed_over}")
    if config.not_read:
        notes.append(f"{CONFIG}: not read: {', '.join(config.not_read[:SHOWN])}")
    return LewmCheckpoint(file, family, prefix, architecture, ours(tensors), unused, tuple(notes))


def import_lewm(
    path: str | Path,
    to: str | Path,
    views: Sequence[str],
    *,
    trust_pickle: bool = False,
    actions_of: Recording | None = None,
) -> tuple[LewmEncoder, LewmCheckpoint]:
    """Write a checkpoint as an encoder of ours, `{encoder.json, weights.safetensors}`.

    Parameters
    ----------
    views : the one view that it is to see.
    trust_pickle : take the weights out of a pickled network; see `encoders.pickled`.
    actions_of : the recording that it was trained on, over all of whose known actions these are standardised,
        as the published training does; without it nothing is predicted.

    Raises
    ------
    InputError : as `read_lewm` and `measure_actions`, and when `to` holds another encoder.
    """
    to = Path(to)
    checkpoint = read_lewm(path, trust_pickle=trust_pickle)
    actions = None if actions_of is None else measure_actions(actions_of, check_views(views, path))
    encoder = checkpoint.encoder(views, actions=actions)
    if (to / CARD).is_file() and load_folder(to).fingerprint != encoder.fingerprint:
        raise InputError(to, "holds another encoder already", "choose another folder, or remove this one")
    source = checkpoint.source()
    if actions_of is not None:
        source["actions_of"] = {"recording": actions_of.folder.name, "manifest": actions_of.manifest_sha256}
    save_encoder(to, encoder, source=source)
    return encoder, checkpoint


def _network_of(file: CheckpointFile) -> tuple[str, dict[str, str], dict[str, int]]:
    """Where the network lies, its tensors' places in the file by their names, and what else there is."""
    plain = {name.replace("_orig_mod.", ""): name for name in file.tensors}  # torch.compile's
    if len(plain) != len(file.tensors):
        raise InputError(file.path, "holds tensors twice, compiled and not", "save one of them")
    prefixes = sorted(name.removesuffix(SIGN) for name in plain if name == SIGN or name.endswith(f".{SIGN}"))
    if not prefixes:
        some = ", ".join(list(file.tensors)[:4]) or "none"
        raise InputError(
            file.path,
            f"holds no LeWM: none of its {len(file.tensors)} tensors is called {SIGN} (they are {some}, ...)",
            "give the weights of a LeWM",
        )
    if len(prefixes) > 1:
        raise InputError(
            file.path, f"holds several networks: under {', '.join(map(repr, prefixes))}", "save one of them"
        )
    prefix = prefixes[0]
    named: dict[str, str] = {}
    unused: Counter[str] = Counter()
    for name, place in plain.items():
        inner = name.removeprefix(prefix) if name.startswith(prefix) else ""
        if inner.partition(".")[0] in PARTS and inner not in NOT_NEEDED:
            named[inner] = place
        else:
            unused[_group(name, prefix)] += 1
    return prefix, named, dict(sorted(unused.items()))


def _group(name: str, prefix: str) -> str:
    """What an unused tensor belongs to: one part of its name more than it shares with the network's."""
    parts, shared = name.split("."), prefix.split(".")[:-1]
    same = next((i for i, (a, b) in enumerate(zip(parts, shared)) if a != b), min(len(parts), len(shared)))
    return ".".join(parts[: same + 1])


def _as_transformers_4(file: CheckpointFile, named: Mapping[str, str]) -> tuple[dict[str, torch.Tensor], str]:
    """Tensors by the names of transformers 4, floating ones as float32; and whose names they had."""
    tensors: dict[str, torch.Tensor] = {}
    newer = False
    for given, place in named.items():
        name, of_5 = transformers_4_name(given)
        newer = newer or of_5
        if name in tensors:
            raise InputError(file.path, f"holds {name} under two names", "save one of them")
        tensor = file.tensors[place]
        tensors[name] = tensor.float() if tensor.is_floating_point() else tensor
    return tensors, "transformers 5" if newer else "transformers 4"


def _architecture(
    file: CheckpointFile, tensors: Mapping[str, torch.Tensor], config: LewmConfig
) -> tuple[LewmArchitecture, list[str]]:
    """Sizes by the shapes, held against config.json; and what had to be assumed."""

    def shape(name: str, axes: int) -> tuple[int, ...]:
        if name not in tensors:
            raise InputError(file.path, f"lacks {name}", "give the weights of a whole LeWM")
        if tensors[name].ndim != axes:
            raise InputError(file.path, f"{name} is {tuple(tensors[name].shape)}, expected {axes} axes")
        return tuple(tensors[name].shape)

    notes: list[str] = []
    width, _, _, patch = shape("encoder.embeddings.patch_embeddings.projection.weight", 4)
    tokens = shape("encoder.embeddings.position_embeddings", 3)[1] - 1
    side = isqrt(max(tokens, 0))
    if side * side != tokens:
        raise InputError(file.path, f"has {tokens} image tokens, which make no square")
    projector_width, _ = shape("projector.net.0.weight", 2)
    latent = shape("projector.net.3.weight", 2)[0]
    inner = shape("predictor.transformer.layers.0.attn.to_qkv.weight", 2)[0] // 3
    actions = shape("action_encoder.patch_embed.weight", 3)[1]
    vit_heads, said = _heads(file.path, config, "vit_heads", width, config.number("vit_heads"))
    notes += said
    heads = config.number("predictor_heads")
    if heads is None and (head_dim := config.number("predictor_head_dim")):
        heads = inner / head_dim
    predictor_heads, said = _heads(file.path, config, "predictor_heads", inner, heads)
    notes += said
    block = PUBLISHED_BLOCK if actions % PUBLISHED_BLOCK == 0 else 1
    facts: dict[str, Any] = {
        "image_size": side * patch,
        "patch_size": patch,
        "vit_width": width,
        "vit_depth": _layers(tensors, "encoder.encoder.layer."),
        "vit_heads": vit_heads,
        "latent_dim": latent,
        "projector_width": projector_width,
        "history": shape(SIGN, 3)[1],
        "action_block": block,
        "action_dim": actions // block,
        "predictor_depth": _layers(tensors, "predictor.transformer.layers."),
        "predictor_heads": predictor_heads,
        "predictor_head_dim": inner // predictor_heads,
        "predictor_mlp": shape("predictor.transformer.layers.0.mlp.net.1.weight", 2)[0],
    }
    for name, value in (*facts.items(), ("actions", actions)):
        config.check(name, value)
    if (dropout := config.number("dropout")) is not None:
        facts["dropout"] = dropout
    notes.append(
        f"{actions} numbers a step taken as {block} {'rows' if block > 1 else 'row'} of {actions // block} "
        "actions, and how these were standardised is not told"
    )
    return parse_model(LewmArchitecture, facts, file.path), notes


def _heads(
    path: Path, config: LewmConfig, name: str, width: int, said: float | None
) -> tuple[int, list[str]]:
    """How many heads share `width`: as config.json says, else of 64 each as published."""
    whose = "the ViT" if name == "vit_heads" else "the predictor"
    if said is not None:
        if said != int(said) or width % int(said):
            raise InputError(config.path, f"{said:g} heads of {whose} do not share a width of {width}")
        return int(said), []
    if width < HEAD_DIM or width % HEAD_DIM:
        raise InputError(
            path,
            f"does not tell how many heads {whose} has, whose width of {width} is no multiple of {HEAD_DIM}",
            f"put the {CONFIG} of this network beside it",
        )
    heads = width // HEAD_DIM
    return heads, [f"no {CONFIG} tells the heads of {whose}: taken as {heads} of {HEAD_DIM}, as published"]


def _layers(tensors: Mapping[str, torch.Tensor], prefix: str) -> int:
    numbers = [name[len(prefix) :].partition(".")[0] for name in tensors if name.startswith(prefix)]
    return 1 + max((int(number) for number in numbers if number.isdigit() and len(number) < 5), default=-1)


def _check(
    file: CheckpointFile, tensors: Mapping[str, torch.Tensor], sizes: LewmArchitecture, family: str
) -> None:
    """Every tensor is there, has its shape and is finite, and there is none that we have no place for."""
    shapes = published_shapes(sizes)

    def named(names: Iterable[str]) -> str:
        theirs = [transformers_5_name(name) if family == "transformers 5" else name for name in names]
        return ", ".join(theirs[:SHOWN]) + (", ..." if len(theirs) > SHOWN else "")

    missing = [name for name in shapes if name not in tensors]
    if missing:
        raise InputError(
            file.path, f"lacks {len(missing)} of a LeWM's {len(shapes)} tensors: {named(missing)}"
        )
    strange = [name for name in tensors if name not in shapes]
    if strange:
        raise InputError(
            file.path,
            f"has tensors of which a LeWM has none ({len(strange)}): {named(strange)}",
            "it is another network, and its latents would be wrong",
        )
    for name, shape in shapes.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != shape:
            raise InputError(
                file.path,
                f"{named([name])} is {tuple(tensor.shape)}, and the other sizes make it {shape}",
                "give the weights of one LeWM with one view",
            )
        if name.endswith("num_batches_tracked") == tensor.is_floating_point():
            raise InputError(file.path, f"{named([name])} is {str(tensor.dtype).removeprefix('torch.')}")
        if not torch.isfinite(tensor).all():
            raise InputError(
                file.path, f"{named([name])} holds values that are not finite", "take an earlier epoch"
            )
