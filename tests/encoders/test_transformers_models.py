"""Every family of vision models that the adapter claims, small, with random weights; latents by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from bars import Study, StudyError
from encoders import LatentStore, load_encoder
from encoders.transformers_models import TransformersEncoder
from hardware import InputError, Recording
from probe.run import freeze_study
from tests.probe.studies import STUDY, make_study

TINY: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 16,
}
DINOV2: dict[str, Any] = {key: TINY[key] for key in TINY if key != "intermediate_size"}
SQUARE = {"height": 32, "width": 32}
SHAPES = {"front": (48, 64), "wrist": (48, 64)}


def _bit() -> Any:
    return hf.BitImageProcessor(size={"shortest_edge": 36}, crop_size=SQUARE)


def _vit() -> Any:
    return hf.ViTImageProcessor(size=SQUARE)


def _clip_processor() -> Any:
    return hf.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=SQUARE)


def _vjepa2() -> Any:
    config = hf.VJEPA2Config(
        patch_size=16,
        crop_size=32,
        frames_per_clip=4,
        tubelet_size=2,
        hidden_size=36,
        num_attention_heads=2,
        num_hidden_layers=2,
        pred_hidden_size=24,
        pred_num_attention_heads=2,
        pred_num_hidden_layers=1,
        pred_num_mask_tokens=2,
    )
    return hf.VJEPA2Model(config)


def _vjepa2_processor() -> Any:
    return hf.VJEPA2VideoProcessor(size={"shortest_edge": 36}, crop_size=SQUARE)


# family: model, processor, tokens before the patches (None: no tokens), latents in order, the default first
FAMILIES: dict[str, tuple[Callable[[], Any], Callable[[], Any], int | None, str]] = {
    "DINOv2": (lambda: hf.Dinov2Model(hf.Dinov2Config(**DINOV2)), _bit, 1, "cls pooled mean cls_mean"),
    "DINOv2 with registers": (
        lambda: hf.Dinov2WithRegistersModel(hf.Dinov2WithRegistersConfig(**DINOV2, num_register_tokens=3)),
        _bit,
        4,
        "cls pooled mean cls_mean",
    ),
    "DINOv3": (
        lambda: hf.DINOv3ViTModel(hf.DINOv3ViTConfig(**TINY, num_register_tokens=4)),
        lambda: hf.DINOv3ViTImageProcessor(size=SQUARE),
        5,
        "cls pooled mean cls_mean",
    ),
    "SigLIP's eye": (
        lambda: hf.SiglipVisionModel(hf.SiglipVisionConfig(**TINY)),
        lambda: hf.SiglipImageProcessor(size=SQUARE),
        0,
        "pooled mean",
    ),
    "CLIP's eye": (
        lambda: hf.CLIPVisionModel(hf.CLIPVisionConfig(**TINY)),
        _clip_processor,
        1,
        "cls pooled mean cls_mean",
    ),
    "CLIP": (
        lambda: hf.CLIPModel(
            hf.CLIPConfig(vision_config=TINY, text_config={"hidden_size": 16, "num_hidden_layers": 1})
        ),
        _clip_processor,
        1,
        "cls pooled mean cls_mean",
    ),
    "ViT": (lambda: hf.ViTModel(hf.ViTConfig(**TINY)), _vit, 1, "cls pooled mean cls_mean"),
    "ViT of a classifier": (
        lambda: hf.ViTForImageClassification(hf.ViTConfig(**TINY)),
        _vit,
        1,
        "cls mean cls_mean",  # its pooler was never trained
    ),
    "DeiT": (lambda: hf.DeiTModel(hf.DeiTConfig(**TINY)), _vit, 2, "cls pooled mean cls_mean"),
    "MAE": (lambda: hf.ViTMAEModel(hf.ViTMAEConfig(**TINY)), _vit, 1, "cls mean cls_mean"),
    "I-JEPA": (lambda: hf.IJepaModel(hf.IJepaConfig(**TINY)), _vit, 0, "mean"),
    "ResNet": (
        lambda: hf.ResNetModel(hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])),
        lambda: hf.ConvNextImageProcessor(size={"shortest_edge": 56}),
        None,
        "pooled mean",
    ),
    "ConvNeXt": (
        lambda: hf.ConvNextModel(hf.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)),
        lambda: hf.ConvNextImageProcessor(size={"shortest_edge": 32}),
        None,
        "pooled mean",
    ),
    "Swin": (
        lambda: hf.SwinModel(
            hf.SwinConfig(
                image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4
            )
        ),
        _vit,
        0,
        "pooled mean",
    ),
    "V-JEPA 2": (_vjepa2, _vjepa2_processor, 0, "mean"),
    "VideoMAE": (
        lambda: hf.VideoMAEModel(hf.VideoMAEConfig(**TINY, num_frames=4)),
        lambda: hf.VideoMAEImageProcessor(size={"shortest_edge": 32}, crop_size=SQUARE),
        0,
        "mean",
    ),
    "ViViT": (
        lambda: hf.VivitModel(
            hf.VivitConfig(
                **{key: TINY[key] for key in TINY if key != "patch_size"},
                num_frames=4,
                tubelet_size=[2, 16, 16],
            )
        ),
        lambda: hf.VivitImageProcessor(size={"shortest_edge": 36}, crop_size=SQUARE),
        1,
        "cls pooled mean cls_mean",
    ),
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a family, as save_pretrained writes it."""
    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            torch.manual_seed(0)
            model, processor, _, _ = FAMILIES[family]
            made[family] = tmp_path_factory.mktemp("models") / "model"
            model().save_pretrained(made[family])
            processor().save_pretrained(made[family])
        return made[family]

    return folder


def _encoder(folder: Path, **settings: Any) -> TransformersEncoder:
    return TransformersEncoder(
        str(folder), views=settings.pop("views", ["front"]), image_shapes=SHAPES, **settings
    )


def _frames(encoder: TransformersEncoder, count: int = 3, views: int = 1) -> np.ndarray:
    clip = () if encoder.clip_frames == 1 else (encoder.clip_frames,)
    return np.random.default_rng(0).integers(0, 256, (count, views, *clip, 48, 64, 3), dtype=np.uint8)


def _by_hand(folder: Path, images: np.ndarray) -> Any:
    """The model's output as transformers' documentation gets it: of one image, or of one clip."""
    model = hf.AutoModel.from_pretrained(folder, local_files_only=True).eval()
    model = getattr(model, "vision_model", model)
    with torch.inference_mode():
        if (folder / "video_preprocessor_config.json").is_file():
            processor = hf.AutoVideoProcessor.from_pretrained(folder, local_files_only=True)
            inputs = processor(images, return_tensors="pt")
            return model(**inputs, skip_predictor=True)
        if hasattr(model.config, "mask_ratio"):
            model.config.mask_ratio = 0.0
        processor = hf.AutoImageProcessor.from_pretrained(folder, local_files_only=True)
        given = images if images.ndim == 3 else list(images)
        return model(**processor(given, return_tensors="pt"))


@pytest.mark.parametrize("family", FAMILIES)
def test_latents_of_each_family(folders: Callable[[str], Path], family: str) -> None:
    _, _, before_patches, names = FAMILIES[family]
    encoder = _encoder(folders(family))
    assert list(encoder.outputs) == names.split()
    assert encoder.architecture["feature"] == names.split()[0]
    assert encoder.preprocessing["by"] == ("published" if family == "ViViT" else "tensors")  # it shifts by -1
    if family == "DINOv3":  # whose processor resizes in floats: half a level here and there
        encoder = _encoder(folders(family), preprocess="published")
    frames = _frames(encoder)
    outputs = [_by_hand(folders(family), frame[0]) for frame in frames]
    hidden = torch.cat([output.last_hidden_state for output in outputs])
    expected: dict[str, torch.Tensor] = {}
    if "cls" in encoder.outputs:
        expected["cls"] = hidden[:, 0]
    if "pooled" in encoder.outputs:
        expected["pooled"] = torch.cat([output.pooler_output.flatten(1) for output in outputs])
    if before_patches is None:
        expected["mean"] = hidden.mean(dim=(2, 3))
    else:
        patches = hidden[:, before_patches:]
        clip = encoder.clip_frames // 2 if encoder.clip_frames > 1 else 1
        assert patches.shape[1] == (16 if family == "Swin" else 4 * clip)
        expected["mean"] = patches.mean(dim=1)
    if "cls_mean" in encoder.outputs:
        expected["cls_mean"] = torch.cat([expected["cls"], expected["mean"]], dim=1)
    assert expected.keys() == encoder.outputs.keys()
    prints = set()
    for latents, together in zip(expected.values(), encoder.encode_outputs(frames, list(expected))):
        np.testing.assert_allclose(together, latents, atol=2e-5)
    for name, latents in expected.items():
        other = encoder.with_output(name)
        assert other.pass_shared_with is encoder.pass_shared_with
        assert other.width == latents.shape[1]
        np.testing.assert_allclose(other.encode(frames), latents, atol=2e-5)
        prints.add(other.fingerprint)
    assert len(prints) == len(expected)


def test_a_latent_is_named_behind_the_folder(folders: Callable[[str], Path]) -> None:
    spec = f"transformers:{folders('DINOv2')}"
    mean = load_encoder(f"{spec}@mean", views=["front"], image_shapes=SHAPES, device="cpu")
    default = load_encoder(spec, views=["front"], image_shapes=SHAPES, device="cpu")
    assert mean.fingerprint == default.with_output("mean").fingerprint != default.fingerprint
    assert default.with_output("cls").fingerprint == default.fingerprint
    with pytest.raises(InputError, match="has no latent 'top' - write one of: cls, pooled, mean, cls_mean"):
        load_encoder(f"{spec}@top", views=["front"], device="cpu")


def test_a_study_says_how_long_a_clip_is(folders: Callable[[str], Path], tmp_path: Path) -> None:
    spec = f"transformers:{folders('V-JEPA 2')}"
    prints = []
    for number, said in enumerate(("", ", clip_frames: 2", ", clip_frames: 2, clip_stride: 3")):
        entry = f'  video: {{load: "{spec}"{said}}}\nprobe:'
        study = make_study(tmp_path / str(number), STUDY.replace("probe:", entry, 1))
        prints.append(freeze_study(study).body["encoders"]["video"]["fingerprint"])
    assert len(set(prints)) == 3
    same = load_encoder(spec, views=["front", "side"], device="cpu", clip_frames=2, clip_stride=3)
    assert (same.clip_frames, same.clip_stride) == (2, 3) and same.fingerprint == prints[2]
    fixed = f"transformers:{folders('VideoMAE')}"  # its places in time are learnt, four of them
    with pytest.raises(InputError, match=r"with clips of 2 frames.* leave clip_frames out"):
        load_encoder(fixed, views=["front"], device="cpu", clip_frames=2)
    with pytest.raises(InputError, match="takes no clips - leave clip_frames and clip_stride out"):
        load_encoder("untrained:cnn", views=["front"], clip_stride=2)
    wrong = STUDY.replace("on: moves\n  untrained", "on: moves\n    clip_frames: 4\n  untrained", 1)
    (study / "study.yaml").write_text(wrong)
    with pytest.raises(StudyError, match="which are for load: transformers:ID"):
        Study.load(study)


def test_views_of_two_parts_stand_side_by_side(folders: Callable[[str], Path]) -> None:
    both = _encoder(folders("DINOv2"), views=["front", "wrist"]).with_output("cls_mean")
    one = _encoder(folders("DINOv2")).with_output("cls_mean")
    frames = _frames(both, views=2)  # type: ignore[arg-type]
    assert both.width == 128
    np.testing.assert_allclose(both.encode(frames)[:, 64:], one.encode(frames[:, 1:]), atol=1e-5)


def test_a_masked_autoencoder_masks_nothing(folders: Callable[[str], Path]) -> None:
    encoder = _encoder(folders("MAE"))
    frames = _frames(encoder)
    np.testing.assert_allclose(encoder.encode(frames), encoder.encode(frames), atol=1e-5)


def test_registers_that_the_config_denies_leave_no_mean(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the number of tokens is not explained, nothing is called a mean over patches."""
    from encoders import transformers_models

    encoder = _encoder(folders("DINOv2 with registers"))
    monkeypatch.setattr(encoder.network.config, "num_register_tokens", 0)
    values = torch.zeros(1, 3, 32, 32)
    hidden = encoder.network(values).last_hidden_state
    assert transformers_models._prefix_tokens(encoder.network, hidden, values, {"cls_token"}) is None


# -- clips -------------------------------------------------------------------------------------------------


def test_clips_are_what_the_model_was_trained_on_unless_told(folders: Callable[[str], Path]) -> None:
    trained = _encoder(folders("V-JEPA 2"))
    assert (trained.clip_frames, trained.clip_stride) == (4, 1)
    told = _encoder(folders("V-JEPA 2"), clip_frames=2, clip_stride=3)
    assert (told.clip_frames, told.clip_stride) == (2, 3)
    apart = _encoder(folders("V-JEPA 2"), clip_frames=2)
    assert len({trained.fingerprint, told.fingerprint, apart.fingerprint}) == 3
    frames = _frames(told)
    np.testing.assert_allclose(
        told.encode(frames)[1:2],
        _by_hand(folders("V-JEPA 2"), frames[1, 0]).last_hidden_state.mean(dim=1),
        atol=2e-5,
    )
    with pytest.raises(InputError, match=r"expected uint8 \(B, 1, 4, H, W, 3\)"):
        trained.encode(np.zeros((2, 1, 48, 64, 3), np.uint8))
    with pytest.raises(InputError, match="cannot have clip_frames 2"):
        _encoder(folders("DINOv2"), clip_frames=2)
    with pytest.raises(InputError, match="clip_stride 0"):
        _encoder(folders("V-JEPA 2"), clip_stride=0)


def test_latents_of_clips_in_the_store(
    folders: Callable[[str], Path], demos: Recording, tmp_path: Path
) -> None:
    """Each row's latent is that of the frames up to it; before the first row the first one stands in."""
    encoder = load_encoder(
        f"transformers:{folders('V-JEPA 2')}",
        views=["front", "wrist"],
        image_shapes={"front": (32, 32), "wrist": (32, 32)},
        device="cpu",
    )
    store = LatentStore(tmp_path)
    store.extract(encoder, demos, episodes=[1], batch_size=7)
    latents = store.read(encoder.fingerprint, demos.episode(1).sha256).latent
    aligned = next(iter(demos.aligned(["front", "wrist"], [1])))
    frames = np.concatenate(list(aligned.batches(64)))  # (n, V, H, W, 3)
    assert latents.shape == (len(frames), 72)
    for row in (0, 2, 3, 20, len(frames) - 1):
        clip = frames[np.maximum(np.arange(row - 3, row + 1), 0)]  # (T, V, H, W, 3)
        expected = encoder.encode(clip.swapaxes(0, 1)[None])
        np.testing.assert_allclose(latents[row], expected[0], atol=1e-5)


# -- precision ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["DINOv2", "DINOv3", "SigLIP's eye", "ResNet", "ConvNeXt", "V-JEPA 2"])
def test_bf16_is_close_to_fp32_and_another_encoder(folders: Callable[[str], Path], family: str) -> None:
    exact = _encoder(folders(family))
    rounded = _encoder(folders(family), precision="bf16")
    assert rounded.architecture["precision"] == "bf16" and rounded.fingerprint != exact.fingerprint
    assert rounded.preprocessing == exact.preprocessing
    frames = _frames(exact, count=5)
    one, other = exact.encode(frames).astype(float), rounded.encode(frames).astype(float)
    cosine = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    assert cosine.min() > 0.999 and np.abs(one - other).max() > 1e-5
    assert next(iter(rounded.network.parameters())).dtype == torch.float32  # weights stay as published


def test_in_bf16_too_a_latent_is_its_frames_own(folders: Callable[[str], Path]) -> None:
    encoder = _encoder(folders("DINOv2"), precision="bf16")
    frames = _frames(encoder, count=19)
    together = encoder.encode(frames)
    alone = np.concatenate([encoder.encode(frames[row : row + 1]) for row in range(len(frames))])
    np.testing.assert_array_equal(together, alone)


def test_a_precision_that_is_none(folders: Callable[[str], Path]) -> None:
    with pytest.raises(InputError, match="has no precision 'fp16' - write fp32 or bf16"):
        load_encoder(f"transformers:{folders('DINOv2')}", views=["front"], precision="fp16")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="cannot compute in 'bf16'"):
        load_encoder("untrained:cnn", views=["front"], precision="bf16")


# -- preprocessing -----------------------------------------------------------------------------------------


def test_the_processors_own_code_is_used_where_ours_differs(folders: Callable[[str], Path]) -> None:
    encoder = _encoder(folders("ViViT"))
    assert encoder.preprocessing["by"] == "published"
    assert "128 grey levels apart" in encoder.describe()["comparison"]["64x48"]
    with pytest.raises(InputError, match="our preprocessing of 64 x 48 frames differs from the published"):
        _encoder(folders("ViViT"), preprocess="tensors")


def test_both_ways_give_the_same_latents_and_are_told_apart(folders: Callable[[str], Path]) -> None:
    ours, theirs = (
        _encoder(folders("DINOv2"), preprocess="tensors"),
        _encoder(folders("DINOv2"), preprocess="published"),
    )
    frames = _frames(ours)
    np.testing.assert_allclose(ours.encode(frames), theirs.encode(frames), atol=1e-5)
    np.testing.assert_allclose(ours.preprocessed(frames), theirs.preprocessed(frames), atol=1e-5)
    assert theirs.describe()["comparison"] == {} and ours.fingerprint != theirs.fingerprint


def test_frames_of_a_new_size_are_compared_before_they_are_encoded(folders: Callable[[str], Path]) -> None:
    encoder = _encoder(folders("DINOv2"))
    assert list(encoder.describe()["comparison"]) == ["64x48"]
    encoder.encode(np.zeros((1, 1, 50, 70, 3), np.uint8))
    assert list(encoder.describe()["comparison"]) == ["64x48", "70x50"]


def test_a_processor_whose_frames_the_model_refuses_is_named(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    hf.AutoModel.from_pretrained(folders("ViT")).save_pretrained(folder)
    hf.ViTImageProcessor(size={"height": 48, "width": 48}).save_pretrained(folder)
    with pytest.raises(
        InputError, match="cannot encode what its processor gives: ValueError: Input image size"
    ):
        _encoder(folder)


def test_describe_is_json(folders: Callable[[str], Path]) -> None:
    for family in ("DINOv2", "V-JEPA 2"):
        described = _encoder(folders(family)).describe()
        assert json.loads(json.dumps(described)) == described
