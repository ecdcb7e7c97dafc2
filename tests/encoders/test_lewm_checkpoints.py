"""LeWM's checkpoints in every layout they come in: found, checked, refused by name, and equal in numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import torchvision

from encoders import load_encoder
from encoders.lewm_checkpoints import import_lewm, read_lewm
from encoders.lewm_encoder import LewmEncoder
from hardware import InputError
from probe.cli import main
from tests.encoders.conftest import make_recording
from tests.encoders.official_lewm import (
    Sizes,
    config_json,
    network_of,
    predicted,
    projected,
    state_dict,
    their_modules,
    transformers_cls,
)

SMALL = Sizes()
ODD = Sizes(heads=4, predictor_heads=4, head_dim=6)  # heads that only a config.json tells
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return state_dict(SMALL)


def hugging_face(folder: Path, tensors: dict[str, Any], config: dict[str, Any] | None) -> Path:
    """weights.pt and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(tensors, folder / "weights.pt")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def refused(path: Path, message: str, **options: Any) -> str:
    with pytest.raises(InputError, match=message) as stopped:
        read_lewm(path, **options)
    return str(stopped.value)


# -- layouts -----------------------------------------------------------------------------------------------


def as_weights_pt(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    return hugging_face(folder, tensors, config_json(SMALL))


def as_epochs(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    for epoch in (9, 10):  # of which the first sorts last as a text
        torch.save(
            {k: v if epoch == 10 else v * 0 for k, v in tensors.items()}, folder / f"weights_epoch_{epoch}.pt"
        )
    (folder / "config.json").write_text(json.dumps(config_json(SMALL)))
    return folder


def as_lightning(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    inside = {f"model.{name}": tensor for name, tensor in tensors.items()}
    inside |= {
        "model.sigreg.t": torch.zeros(17),
        "model.sigreg.phi": torch.zeros(17),
        "probe.weight": torch.ones(2),
    }
    moments = {
        "state": {0: {"step": torch.tensor(5.0), "exp_avg": torch.zeros(4)}},
        "param_groups": [{"lr": 5e-5}],
    }
    torch.save(
        {
            "epoch": 9,
            "global_step": 1000,
            "state_dict": inside,
            "optimizer_states": [moments],
            "loops": {"a": None},
        },
        folder / "last.ckpt",
    )
    return folder


def as_weight_ckpt(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    torch.save(tensors, folder / "reacher_weight.ckpt")
    return folder / "reacher_weight.ckpt"


def as_safetensors(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    return folder


def as_old_torch(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    torch.save(tensors, folder / "weights.pt", _use_new_zipfile_serialization=False)
    return folder


def as_compiled(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    return hugging_face(folder, {f"_orig_mod.{name}": tensor for name, tensor in tensors.items()}, None)


def as_pickled(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    with their_modules() as (jepa, part):
        torch.save(network_of(tensors, jepa, part), folder / "lewm_epoch_10_object.ckpt")
    return folder


LAYOUTS = [
    as_weights_pt,
    as_epochs,
    as_lightning,
    as_weight_ckpt,
    as_safetensors,
    as_old_torch,
    as_compiled,
    as_pickled,
]


@pytest.mark.parametrize("family", [4, 5])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_encoder(
    tmp_path: Path, layout: Callable[[Path, dict[str, torch.Tensor]], Path], family: int
) -> None:
    tensors = state_dict(SMALL, family)
    where = layout(tmp_path / "theirs", tensors)
    found = read_lewm(where, trust_pickle=layout is as_pickled)
    assert found.family == f"transformers {family}"
    sizes = found.architecture
    assert (sizes.image_size, sizes.patch_size, sizes.vit_width, sizes.vit_depth) == (28, 14, 64, 2)
    assert (sizes.vit_heads, sizes.predictor_heads, sizes.predictor_head_dim) == (1, 2, 64)
    assert (sizes.latent_dim, sizes.projector_width, sizes.history, sizes.predictor_depth) == (24, 40, 3, 2)
    assert (sizes.action_block, sizes.action_dim) == (5, 2)
    plain = read_lewm(hugging_face(tmp_path / "plain", state_dict(SMALL, 4), None))
    assert found.encoder(["front"]).fingerprint == plain.encoder(["front"]).fingerprint
    assert sum(tensor.numel() for tensor in found.tensors.values()) == sum(
        t.numel() for t in tensors.values()
    )


def test_what_is_no_part_of_the_network_is_named(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    found = read_lewm(as_lightning(tmp_path / "run", weights))
    assert found.prefix == "state_dict.model."
    assert found.unused == {"optimizer_states": 2, "state_dict.model.sigreg": 2, "state_dict.probe": 1}
    beside = {
        "encoder.pooler.dense.weight": torch.ones(2, 2),
        "encoder.embeddings.mask_token": torch.ones(1),
        "sigreg.t": torch.ones(17),
    }
    assert read_lewm(hugging_face(tmp_path / "b", weights | beside, None)).unused == {
        "encoder": 2,
        "sigreg": 1,
    }


def test_an_epoch_that_is_named_is_taken(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    folder = as_epochs(tmp_path / "run", weights)
    newest = read_lewm(folder)
    assert newest.file.path.name == "weights_epoch_10.pt"
    assert "passed over in the folder: weights_epoch_9.pt" in newest.notes
    assert not read_lewm(folder / "weights_epoch_9.pt").tensors["projector.net.0.weight"].any()


def test_weights_are_taken_rather_than_the_pickle_beside_them(
    tmp_path: Path, weights: dict[str, torch.Tensor]
) -> None:
    folder = as_pickled(tmp_path / "archive", weights)
    torch.save(weights, folder / "reacher_weight.ckpt")
    assert read_lewm(folder).file.path.name == "reacher_weight.ckpt"


def test_two_layouts_in_one_folder_are_a_question(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    folder = as_epochs(tmp_path / "run", weights)
    torch.save(weights, folder / "weights.pt")
    refused(folder, r"holds several: weights\.pt, weights_epoch_10\.pt - name the one that is meant")
    assert read_lewm(folder / "weights.pt").file.path.name == "weights.pt"


# -- the same numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [4, 5])
@pytest.mark.parametrize("sizes", [SMALL, ODD], ids=["small", "odd heads"])
def test_latents_and_predictions_are_those_of_the_published_network(
    tmp_path: Path, sizes: Sizes, family: int
) -> None:
    tensors = state_dict(sizes, family, seed=family)
    found = read_lewm(hugging_face(tmp_path, tensors, config_json(sizes)))
    encoder = found.encoder(["front"])
    frames = np.random.default_rng(0).integers(0, 256, (5, 1, 28, 28, 3), dtype=np.uint8)
    images = torch.from_numpy((frames[:, 0] / 255 - MEAN) / STD).permute(0, 3, 1, 2).float()
    cls = transformers_cls(tensors, sizes, images)
    z = projected(tensors, "projector", cls)
    assert cls.std() > 0.3 and z.std() > 0.1
    np.testing.assert_allclose(encoder.with_output("cls").encode(frames), cls, atol=1e-5, rtol=0)
    np.testing.assert_allclose(encoder.encode(frames), z, atol=1e-5, rtol=0)
    generator = torch.Generator().manual_seed(1)
    history, actions = (
        torch.randn(5, 3, sizes.latent, generator=generator),
        torch.randn(5, 3, 10, generator=generator),
    )
    with torch.inference_mode():
        for steps in (1, 2, 3):
            ours = encoder.network.predict(history[:, :steps], actions[:, :steps])
            plain = predicted(tensors, sizes, history[:, :steps], actions[:, :steps])
            assert plain.std() > 0.1
            torch.testing.assert_close(ours, plain, atol=1e-5, rtol=0)


def test_the_published_size_from_file_to_latent(tmp_path: Path) -> None:
    sizes = Sizes.published()
    tensors = state_dict(sizes)
    assert len(tensors) == 303 and sum(name.startswith("encoder.") for name in tensors) == 198
    encoder = load_encoder(f"lewm:{hugging_face(tmp_path, tensors, config_json(sizes))}", views=["front"])
    assert isinstance(encoder, LewmEncoder)
    assert sum(one.numel() for one in encoder.network.parameters()) == 18_034_478
    assert encoder.architecture["vit_heads"] == 3 and encoder.architecture["predictor_heads"] == 16
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    cls = transformers_cls(tensors, sizes, images)
    with torch.inference_mode():
        torch.testing.assert_close(encoder.network.cls(images[:, None])[:, 0], cls, atol=1e-5, rtol=0)
        z = projected(tensors, "projector", cls)
        torch.testing.assert_close(encoder.network(images[:, None]), z, atol=1e-5, rtol=0)
    assert encoder.preprocessing["image_size"] == [224, 224]
    np.testing.assert_allclose(encoder.preprocessing["mean"], MEAN)
    np.testing.assert_allclose(encoder.preprocessing["std"], STD)


def test_half_precision_is_widened(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    halved = {k: v.bfloat16() if v.is_floating_point() else v for k, v in weights.items()}
    found = read_lewm(hugging_face(tmp_path, halved, None))
    for name in ("pred_proj.net.0.weight", "predictor.pos_embedding"):
        assert found.tensors[name].dtype == torch.float32
        torch.testing.assert_close(found.tensors[name], halved[name].float(), atol=0, rtol=0)


# -- what is refused ---------------------------------------------------------------------------------------


def test_missing_tensors_are_counted_and_named(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    kept = {k: v for k, v in weights.items() if not k.startswith("encoder.encoder.layer.0.")}
    text = refused(
        hugging_face(tmp_path / "a", kept, None),
        r"lacks 16 of a LeWM's 91 tensors: encoder\.encoder\.layer\.0",
    )
    assert text.count("layer.0.") == 10 and text.endswith(", ...")
    for name in (
        "projector.net.1.running_var",
        "predictor.transformer.norm.bias",
        "encoder.layernorm.weight",
    ):
        fewer = {k: v for k, v in weights.items() if k != name}
        refused(
            hugging_face(tmp_path / "b", fewer, None), f"lacks 1 of a LeWM's 91 tensors: {re.escape(name)}$"
        )
    fewer = {k: v for k, v in weights.items() if k != "projector.net.3.weight"}
    refused(hugging_face(tmp_path / "c", fewer, None), r"lacks projector\.net\.3\.weight")


def test_a_tensor_that_changes_the_network_is_refused(
    tmp_path: Path, weights: dict[str, torch.Tensor]
) -> None:
    more = weights | {"predictor.transformer.input_proj.weight": torch.ones(24, 24)}
    refused(
        hugging_face(tmp_path, more, None),
        r"of which a LeWM has none \(1\): predictor\.transformer\.input_proj",
    )


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        (
            "encoder.encoder.layer.1.attention.attention.key.weight",
            (64, 32),
            r"key\.weight is \(64, 32\), .* \(64, 64\)",
        ),
        ("projector.net.0.weight", (40, 128), r"projector\.net\.0\.weight is \(40, 128\)"),
        ("predictor.transformer.layers.1.mlp.net.4.bias", (1,), r"mlp\.net\.4\.bias is \(1,\)"),
        ("encoder.embeddings.position_embeddings", (1, 4, 64), r"3 image tokens, which make no square"),
        ("predictor.pos_embedding", (3, 24), r"expected 3 axes"),
        ("projector.net.3.weight", (0, 40), r"field 'latent_dim'"),
    ],
)
def test_wrong_shapes_are_named(
    tmp_path: Path, weights: dict[str, torch.Tensor], name: str, shape: tuple[int, ...], message: str
) -> None:
    refused(hugging_face(tmp_path, weights | {name: torch.ones(shape)}, None), message)


def test_values_that_are_not_finite_are_named(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    name = "encoder.encoder.layer.1.attention.attention.value.bias"
    bad = weights[name].clone()
    bad[3] = float("nan")
    refused(
        hugging_face(tmp_path, weights | {name: bad}, None), r"value\.bias holds values that are not finite"
    )


def test_a_tensor_larger_than_its_file_is_refused(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    huge = weights | {"predictor.pos_embedding": torch.zeros(1).expand(1, 1 << 20, 1 << 20)}
    refused(hugging_face(tmp_path, huge, None), r"predictor\.pos_embedding is no plain tensor")
    twice: dict[str, Any] = {}
    for _ in range(40):
        twice = {"a": twice, "b": twice}
    refused(hugging_face(tmp_path, twice, None), r"holds more than any checkpoint does")


def test_networks_of_others_are_refused(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    resnet = torchvision.models.resnet18(weights=None).state_dict()
    refused(hugging_face(tmp_path / "a", resnet, None), r"holds no LeWM: none of its 122 .* conv1\.weight")
    both = weights | state_dict(SMALL, 5)
    refused(hugging_face(tmp_path / "b", both, None), r"encoder\.encoder\.layer\.0\..* under two names")
    two = {f"{who}.{name}": tensor for who in ("student", "teacher") for name, tensor in weights.items()}
    refused(hugging_face(tmp_path / "c", two, None), r"several networks: under 'student\.', 'teacher\.'")
    refused(hugging_face(tmp_path / "d", {}, None), r"none of its 0 tensors")


def test_files_that_are_no_checkpoints_are_refused(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    whole = hugging_face(tmp_path / "whole", weights, None) / "weights.pt"
    data = whole.read_bytes()
    for number, damaged in enumerate(
        (data[: len(data) // 2], data[:100], data[:-10], data[:200] + data[300:])
    ):
        file = tmp_path / f"{number}.pt"
        file.write_bytes(damaged)
        refused(file, r"cut short or damaged|no file of weights|not one that torch\.save")
    old = as_old_torch(tmp_path / "old", weights) / "weights.pt"
    (tmp_path / "old.pt").write_bytes(old.read_bytes()[:5000])
    refused(tmp_path / "old.pt", r"cut short or damaged|no file of weights")
    for name, content in (
        ("a.pt", b"weights are here\n"),
        ("b.ckpt", b""),
        ("c.pth", b"\x89HDF\r\n\x1a\n" * 9),
    ):
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, "is no checkpoint: neither torch.save nor safetensors wrote it")
    (tmp_path / "d.safetensors").write_bytes(b"\xff" * 64)
    refused(tmp_path / "d.safetensors", "not a whole safetensors file")
    np.savez(tmp_path / "e", a=np.ones(3))
    (tmp_path / "e.npz").rename(tmp_path / "e.pt")
    refused(tmp_path / "e.pt", "is a zip archive, but not one that torch.save wrote")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "holds no checkpoint")
    refused(tmp_path / "nowhere", "does not exist")


def test_sizes_of_files_are_bounded(
    tmp_path: Path, weights: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    hugging_face(tmp_path, weights, None)
    monkeypatch.setattr("encoders.checkpoint_files.MAX_WEIGHT_BYTES", 1000)
    refused(tmp_path, "more than the 1,000 allowed")


# -- config.json -------------------------------------------------------------------------------------------


def changed(config: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(config))
    here = copy
    *path, last = place.split("/")
    for step in path:
        here = here.setdefault(step, {})
    here[last] = value
    return copy


@pytest.mark.parametrize("swm", [True, False])
def test_heads_are_told_by_config_json_alone(tmp_path: Path, swm: bool) -> None:
    tensors = state_dict(ODD)
    found = read_lewm(hugging_face(tmp_path / "with", tensors, config_json(ODD, swm)))
    sizes = found.architecture
    assert (sizes.vit_heads, sizes.predictor_heads, sizes.predictor_head_dim) == (4, 4, 6)
    assert not any("heads" in note for note in found.notes)
    refused(
        hugging_face(tmp_path / "without", tensors, None),
        r"how many heads the predictor has, whose width of 24 is no multiple of 64 - put the config\.json",
    )
    assumed = read_lewm(hugging_face(tmp_path / "small", state_dict(SMALL), None))
    assert "no config.json tells the heads of the ViT: taken as 1 of 64, as published" in assumed.notes


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("_target_", "os.system", r"_target_ is 'os\.system', which is no LeWM's - known: jepa\.JEPA"),
        ("_target_", "stable_worldmodel.wm.prejepa.PreJEPA", r"'stable_worldmodel\.wm\.prejepa\.PreJEPA'"),
        ("encoder/_target_", "builtins.eval", r"encoder\._target_ is 'builtins\.eval'"),
        (
            "projector/norm_fn/_target_",
            "torch.nn.LayerNorm",
            r"projector\.norm_fn\._target_ is 'torch\.nn\.Lay",
        ),
        (
            "predictor/hook/_target_",
            "os.system",
            r"predictor\.hook\._target_ is 'os\.system', where a LeWM has",
        ),
        ("predictor/depth", 6, r"predictor\.depth is 6, and the weights have 2"),
        ("action_encoder/input_dim", 25, r"action_encoder\.input_dim is 25, and the weights have 10"),
        ("encoder/image_size", 224, r"encoder\.image_size is 224, and the weights have 28"),
        ("encoder/num_attention_heads", 5, r"5 heads of the ViT do not share a width of 64"),
        ("predictor/heads", "16; import os", r"predictor\.heads is '16; import os'"),
        ("predictor/heads", True, r"predictor\.heads is 'True'"),
        ("predictor/heads", 10**12, r"predictor\.heads is '10+'"),
        ("predictor/dim_head", -64, r"predictor\.dim_head is '-64'"),
        ("predictor/dropout", 1.5, r"field 'dropout'"),
        ("encoder/hidden_act", "relu", r"encoder\.hidden_act is relu, and a LeWM has gelu"),
        ("encoder/size", "colossal", r"encoder\.size is 'colossal' - known: tiny"),
    ],
)
def test_a_config_that_is_not_this_networks_is_refused(
    tmp_path: Path, weights: dict[str, torch.Tensor], place: str, value: Any, message: str
) -> None:
    refused(hugging_face(tmp_path, weights, changed(config_json(SMALL), place, value)), message)


def test_a_config_that_is_damaged_is_refused(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    hugging_face(tmp_path, weights, None)
    for text, message in (
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1]", "it is no object"),
        ('{"_target_": "jepa.JEPA", "encoder": ' + '{"a": ' * 400 + "1" + "}" * 401, "is no object"),
        (" " * (1 << 21), "larger than"),
    ):
        (tmp_path / "config.json").write_text(text)
        refused(tmp_path, rf"config\.json: .*{message}")


def test_what_a_config_says_beside_is_noted(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    config = changed(config_json(SMALL), "predictor/horizon_conditioned", True)
    assert (
        "config.json: not read: predictor.horizon_conditioned"
        in read_lewm(hugging_face(tmp_path, weights, config)).notes
    )


# -- views, actions, and what a user types -----------------------------------------------------------------


def test_a_checkpoint_has_one_view(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    folder = hugging_face(tmp_path, weights, None)
    assert load_encoder(f"lewm:{folder}", views=["wrist"]).views == ("wrist",)
    assert load_encoder("lewm:weights.pt", views=["wrist"], base=tmp_path).views == ("wrist",)
    with pytest.raises(InputError, match="has one view, and front, wrist were asked for"):
        load_encoder(f"lewm:{folder}", views=["front", "wrist"])
    with pytest.raises(InputError, match="no view was named"):
        load_encoder(f"lewm:{folder}")


@pytest.mark.parametrize(("actions", "block", "each"), [(10, 5, 2), (25, 5, 5), (7, 1, 7)])
def test_a_step_is_five_rows_where_its_actions_divide(
    tmp_path: Path, actions: int, block: int, each: int
) -> None:
    found = read_lewm(hugging_face(tmp_path, state_dict(Sizes(actions=actions)), None))
    assert (found.architecture.action_block, found.architecture.action_dim) == (block, each)
    encoder = found.encoder(["front"])
    assert "not known how its training actions were standardised" in encoder.why_no_prediction(each, 0.1)


def test_an_imported_encoder_is_the_one_that_was_read(
    tmp_path: Path, weights: dict[str, torch.Tensor]
) -> None:
    source = as_lightning(tmp_path / "run", weights)
    encoder, checkpoint = import_lewm(source, tmp_path / "ours", ["front"])
    assert sorted(one.name for one in (tmp_path / "ours").iterdir()) == [
        "encoder.json",
        "weights.safetensors",
    ]
    loaded = load_encoder(f"lewm:{tmp_path / 'ours'}", views=["front"])
    assert loaded.fingerprint == encoder.fingerprint
    assert load_encoder(f"lewm:{source}", views=["front"]).fingerprint == encoder.fingerprint
    card = json.loads((tmp_path / "ours/encoder.json").read_text())
    assert card["kind"] == "lewm" and card["source"] == checkpoint.source()
    assert card["source"]["unused"]["optimizer_states"] == 2 and len(card["source"]["sha256"]) == 64
    import_lewm(source, tmp_path / "ours", ["front"])  # the same again is no harm
    with pytest.raises(InputError, match="holds another encoder already"):
        import_lewm(source, tmp_path / "ours", ["wrist"])
    refused(tmp_path / "ours", "holds an encoder of our own")


def test_it_predicts_where_its_training_actions_can_be_measured(
    tmp_path: Path, weights: dict[str, torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    source = hugging_face(tmp_path / "lewm", weights, None)  # two actions a row, in blocks of five
    trained_on = make_recording(tmp_path / "pixels", views=("pixels",), actions_from_s=0.5)
    encoder, checkpoint = import_lewm(source, tmp_path / "ours", ["pixels"], actions_of=trained_on)
    prepared = encoder.preprocessing
    known = []
    for aligned in trained_on.aligned(["pixels"]):
        log = aligned.episode.actions()
        assert log is not None
        place = np.searchsorted(log.time_ns, aligned.time_ns, side="right") - 1
        known.append(log.target[place[place >= 0]])
    known = np.concatenate(known)
    np.testing.assert_allclose(prepared["action_mean"], known.mean(axis=0))
    np.testing.assert_allclose(prepared["action_std"], known.std(axis=0, ddof=1))
    assert prepared["row_s"] == pytest.approx(0.1) and encoder.why_no_prediction(2, 0.1) == ""
    same = load_encoder(f"lewm:{tmp_path / 'ours'}", views=["pixels"])
    assert same.fingerprint == encoder.fingerprint != checkpoint.encoder(["pixels"]).fingerprint
    said = json.loads((tmp_path / "ours/encoder.json").read_text())["source"]["actions_of"]
    assert said == {"recording": "pixels", "manifest": trained_on.manifest_sha256}

    words = ("import", source, "--to", tmp_path / "theirs", "--view", "pixels")
    code, text, _ = run(capsys, *words)
    assert code == 0 and "it predicts nothing: give --actions-of" in text
    code, text, _ = run(capsys, *words[:3], tmp_path / "ours", *words[4:], "--actions-of", trained_on.folder)
    assert code == 0 and "it predicts: actions standardised as those of" in text
    still = make_recording(tmp_path / "still", views=("pixels",))
    code, _, problem = run(capsys, *words, "--actions-of", still.folder)
    assert code == 2 and "holds no actions" in problem
    code, _, problem = run(capsys, *words, "--actions-of", tmp_path / "nowhere")
    assert code == 2 and "nowhere" in problem
    other = hugging_face(tmp_path / "other", state_dict(Sizes(actions=15)), None)
    with pytest.raises(InputError, match="takes 3 actions a row, and the recording has 2"):
        import_lewm(other, tmp_path / "three", ["pixels"], actions_of=trained_on)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), " ".join(out.split()), " ".join(err.split())


def test_import_says_what_it_found(
    tmp_path: Path, weights: dict[str, torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    source = as_pickled(tmp_path / "archive", weights)
    code, _, problem = run(capsys, "import", source, "--to", tmp_path / "ours", "--view", "front")
    assert code == 2 and "is a pickled object" in problem and "--trust-pickle --view NAME --to" in problem
    assert not (tmp_path / "ours").exists()
    trusted = ("import", source, "--to", tmp_path / "ours", "--trust-pickle")
    code, _, problem = run(capsys, *trusted)
    assert code == 2 and problem == (
        "jointprobe: --view: is missing: which camera is the encoder to see? - for example --view front"
    )
    code, text, _ = run(capsys, *trusted, "--view", "front")
    assert code == 0 and "LeWM of" in text and "pickled network, names of transformers 4" in text
    assert "10 numbers a step taken as 5 rows of 2 actions" in text
    code, text, _ = run(capsys, *trusted, "--view", "front", "--json")
    assert code == 0 and load_encoder(str(tmp_path / "ours")).fingerprint == json.loads(text)["fingerprint"]


def test_import_refuses_options_that_say_nothing(
    tmp_path: Path, weights: dict[str, torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    source = hugging_face(tmp_path / "lewm", weights, None)
    code, _, problem = run(
        capsys, "import", source, "--to", tmp_path / "a", "--view", "front", "--unit", "ticks"
    )
    assert code == 2 and problem == "jointprobe: --unit: says nothing about weights - leave it out"
    (tmp_path / "frames").mkdir()
    code, _, problem = run(capsys, "import", tmp_path / "frames", "--to", tmp_path / "a", "--view", "front")
    assert code == 2 and problem == "jointprobe: --view: says nothing about recordings - leave it out"
    assert not (tmp_path / "a").exists()


def test_a_released_file_is_known_by_its_hash(
    tmp_path: Path,
    weights: dict[str, torch.Tensor],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = hugging_face(tmp_path / "lewm", weights, config_json(SMALL))
    monkeypatch.setattr(
        "encoders.lewm_checkpoints.RELEASED", {read_lewm(source).file.sha256: "quentinll/lewm-reacher"}
    )
    code, text, _ = run(capsys, "import", source, "--to", tmp_path / "ours", "--view", "front")
    assert code == 0 and "as released: quentinll/lewm-reacher" in text
    card = json.loads((tmp_path / "ours/encoder.json").read_text())
    assert card["source"]["released_as"] == "quentinll/lewm-reacher"
