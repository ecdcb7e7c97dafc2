"""Training a LeWM: the published loss, seeded, exact after SIGKILL, and told when its latents collapse."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lewm_recipes import TINY_LEWM

from encoders import Encoder, load_encoder, train
from encoders.checkpoints import read_card
from encoders.collapse import CollapseWarning
from encoders.lewm import Lewm
from encoders.lewm_training import draws_of_step, uses_bf16
from encoders.losses import random_directions
from encoders.recipes import LewmRecipe, LewmSmallRecipe, parse_recipe, seeded, untrained_twin
from encoders.training_frames import decoded
from encoders.training_loop import batch_of_step, learning_rate
from encoders.training_state import logged_warnings
from encoders.windows import plan_windows
from hardware import InputError, Recording

ROOT = Path(__file__).resolve().parents[2]
VIEWS = ("front", "wrist")


def _weights(folder: Path) -> bytes:
    return (folder / "weights.safetensors").read_bytes()


def _log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "training.jsonl").read_text().splitlines()]


def test_the_first_step_is_the_published_one(acting: Recording, tmp_path: Path) -> None:
    """Loss and weights after one step, from the formulas: the target keeps its gradient."""
    recipe = LewmSmallRecipe(**{**TINY_LEWM, "steps": 1, "dropout": 0.0, "views": VIEWS, "seed": 3})
    trained = train(acting, [0, 1], recipe, tmp_path, device="cpu")

    plan = plan_windows(acting, [0, 1], recipe, VIEWS)
    chosen = batch_of_step(0, len(plan.groups), 8, 3)
    frames = np.concatenate(list(decoded(plan, 16)))[plan.groups[chosen]]  # (8, 3, 2, 16, 16, 3)
    pixels = (frames / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    images = torch.from_numpy(pixels).float().permute(0, 1, 2, 5, 3, 4)
    network = Lewm(2, recipe.architecture(2), generator=seeded(3, 0)).train()
    z = network(images.flatten(0, 1)).reshape(8, 3, 4)
    predicted = network.predict(z[:, :2], torch.from_numpy(plan.blocks(chosen)))
    prediction = ((predicted - z[:, 1:]) ** 2).sum() / (8 * 2 * 4)

    directions = random_directions(4, 16, seeded(3, 2, 0))
    statistics = []
    t = torch.linspace(0, 3, 17)
    window = torch.exp(-(t**2) / 2)
    for step in range(3):
        x = (z[:, step] @ directions)[:, :, None] * t  # (8, 16, 17)
        distance = (x.cos().mean(dim=0) - window) ** 2 + x.sin().mean(dim=0) ** 2
        statistics.append(8 * 2 * torch.trapezoid(distance * window, t))
    sigreg = torch.stack(statistics).mean()
    line = _log(tmp_path)[0]
    assert line["prediction"] == pytest.approx(prediction.item(), rel=1e-4)
    assert line["sigreg"] == pytest.approx(sigreg.item(), rel=1e-4)
    assert line["loss"] == pytest.approx((prediction + 0.09 * sigreg).item(), rel=1e-4)

    optimiser = torch.optim.AdamW(
        network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    (prediction + 0.09 * sigreg).backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimiser.step()
    found, compared = dict(trained.tensors()), 0
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None
        # Adam's first step has the learning rate's size and the gradient's sign, which may be rounding
        clear = parameter.grad.abs() > 1e-5
        torch.testing.assert_close(
            found[name][clear], parameter.detach()[clear], rtol=1e-5, atol=1e-2 * recipe.learning_rate
        )
        compared += int(clear.sum())
    assert compared > 3000, compared


def test_same_seed_same_bytes_and_nothing_global_is_drawn(acting: Recording, tmp_path: Path) -> None:
    before = torch.get_rng_state()
    one = train(acting, [0, 1], TINY_LEWM, tmp_path / "one", device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(11)  # a caller's draws must not matter either
    same = train(acting, [0, 1], TINY_LEWM, tmp_path / "same", device="cpu", log_every=1, checkpoint_every=5)
    other = train(acting, [0, 1], {**TINY_LEWM, "seed": 1}, tmp_path / "other", device="cpu")
    torch.set_rng_state(before)
    assert _weights(tmp_path / "one") == _weights(tmp_path / "same") != _weights(tmp_path / "other")
    assert one.fingerprint == same.fingerprint != other.fingerprint
    undropped = train(acting, [0, 1], {**TINY_LEWM, "dropout": 0.0}, tmp_path / "undropped", device="cpu")
    assert undropped.fingerprint != one.fingerprint  # so dropout was at work in what is compared here


_STOPPED = """
import json, os, signal, sys
from encoders import train
from hardware import Recording

folder, to, recipe, stop_at, how = sys.argv[1:6]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
def progress(done, total, what):
    if what.startswith("training") and done == int(stop_at):
        os.kill(os.getpid(), getattr(signal, how))
recipe = json.loads(recipe)
train(Recording.open(folder), [0, 1], recipe, to, progress, device="cpu", checkpoint_every=4, log_every=1)
"""


def _run(recording: Recording, to: Path, stop_at: int, how: str = "SIGKILL") -> int:
    words = [str(recording.folder), str(to), json.dumps(TINY_LEWM), str(stop_at), how]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _STOPPED, *words]
    return subprocess.run(
        command, cwd=ROOT, env=environment, timeout=300, stderr=subprocess.DEVNULL
    ).returncode


def test_killed_and_interrupted_and_resumed_equals_never_stopped(acting: Recording, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    assert _run(acting, stopped, 2) == -signal.SIGKILL  # before the first checkpoint
    assert _run(acting, stopped, 7) == -signal.SIGKILL  # three steps after a checkpoint
    assert (stopped / "checkpoint.safetensors").exists()
    assert _run(acting, stopped, 10, "SIGINT") == -signal.SIGINT  # Ctrl-C
    assert not (stopped / "encoder.json").exists()
    whole = train(acting, [0, 1], TINY_LEWM, tmp_path / "whole", device="cpu", log_every=1)
    resumed = train(acting, [0, 1], TINY_LEWM, stopped, device="cpu", log_every=1, checkpoint_every=4)
    assert resumed.fingerprint == whole.fingerprint and _weights(stopped) == _weights(tmp_path / "whole")
    assert (stopped / "training.jsonl").read_bytes() == (tmp_path / "whole" / "training.jsonl").read_bytes()
    assert sorted(os.listdir(stopped)) == ["encoder.json", "training.jsonl", "weights.safetensors"]


def test_what_is_left_behind_is_the_encoder_its_card_and_its_log(acting: Recording, tmp_path: Path) -> None:
    encoder = train(acting, [0, 2], TINY_LEWM, tmp_path, device="cpu")
    card = read_card(tmp_path)
    plan = plan_windows(acting, [0, 2], LewmSmallRecipe(**TINY_LEWM), VIEWS)
    assert card.kind == "lewm" and card.recipe is not None and card.recipe["kind"] == "lewm-small"
    assert card.preprocessing["action_mean"] == list(plan.action_mean)
    assert card.preprocessing["row_s"] == pytest.approx(0.1)
    assert card.trained_on is not None and card.trained_on.episodes == [0, 2]
    assert card.trained_on.windows == len(plan.groups) and card.trained_on.frames == plan.frames
    terms = {"loss", "prediction", "sigreg", "learning_rate", "effective_rank", "smallest_std", "median_std"}
    assert [set(line) - {"step"} for line in _log(tmp_path)] == [terms, terms]
    loaded = load_encoder(f"lewm:{tmp_path}", views=VIEWS, device="cpu")
    assert loaded.fingerprint == encoder.fingerprint
    assert loaded.why_no_prediction(2, 0.1) == ""  # type: ignore[attr-defined]
    again = train(acting, [0, 2], TINY_LEWM, tmp_path, device="cpu")
    assert again.fingerprint == encoder.fingerprint
    with pytest.raises(InputError, match="holds another encoder already"):
        train(acting, [0, 1], TINY_LEWM, tmp_path, device="cpu")


def test_its_latents_are_asked_for_by_suffix(acting: Recording, tmp_path: Path) -> None:
    folder = tmp_path / "W1@home"  # a folder may have the sign in its name
    train(acting, [0, 1], TINY_LEWM, folder, device="cpu")
    z = load_encoder(str(folder), device="cpu")
    latents = {
        name: load_encoder(f"lewm:{folder}@{name}", device="cpu") for name in ("z", "cls", "front", "wrist")
    }
    assert latents["z"].fingerprint == z.fingerprint
    assert len({encoder.fingerprint for encoder in latents.values()}) == 4
    assert [encoder.width for encoder in latents.values()] == [4, 32, 16, 16]
    assert load_encoder("W1@home@cls", base=tmp_path, device="cpu").fingerprint == latents["cls"].fingerprint
    (episode,) = acting.aligned(list(VIEWS), [2])
    frames = next(episode.batches(5, (16, 16)))
    found = {name: encoder.encode(frames) for name, encoder in latents.items()}
    np.testing.assert_allclose(
        found["cls"], np.concatenate([found["front"], found["wrist"]], axis=1), atol=1e-5
    )
    with pytest.raises(InputError, match="lewm@top: has no such latent - write one of: z, cls, front, wrist"):
        load_encoder(f"{folder}@top", device="cpu")


def test_learning_rate_rises_linearly_and_falls_as_a_cosine() -> None:
    recipe = LewmRecipe(steps=1000, learning_rate=2e-3)
    rates = [learning_rate(recipe, step) for step in range(1000)]
    np.testing.assert_allclose(rates[:10], np.arange(1, 11) * 2e-4)
    np.testing.assert_allclose(rates[10:], 1e-3 * (1 + np.cos(np.pi * np.arange(990) / 990)))
    assert rates[-1] < 1e-7
    assert (
        learning_rate(LewmRecipe(steps=10, learning_rate=2e-3), 0) == 2e-3
    )  # a hundredth of 10 steps is none


def test_dropout_of_a_step_depends_on_seed_and_step_alone() -> None:
    device = torch.device("cpu")

    def drawn(seed: int, step: int) -> list[bool]:
        with draws_of_step(seed, step, device):
            return (torch.nn.functional.dropout(torch.ones(40), 0.5) == 0).tolist()

    first = drawn(0, 5)
    torch.rand(7)
    assert drawn(0, 5) == first
    assert first not in (drawn(0, 6), drawn(1, 5))


def test_bf16_is_used_where_it_is_asked_for(acting: Recording, tmp_path: Path) -> None:
    cpu = torch.device("cpu")
    assert not uses_bf16(LewmRecipe(), cpu) and uses_bf16(LewmRecipe(precision="bf16"), cpu)
    for precision in ("auto", "fp32", "bf16"):
        recipe = {**TINY_LEWM, "precision": precision}
        train(acting, [0, 1], recipe, tmp_path / precision, device="cpu", log_every=1)
    assert _weights(tmp_path / "auto") == _weights(tmp_path / "fp32") != _weights(tmp_path / "bf16")
    exact, rounded = _log(tmp_path / "fp32")[0], _log(tmp_path / "bf16")[0]
    assert rounded["loss"] == pytest.approx(exact["loss"], rel=0.02) and rounded["loss"] != exact["loss"]
    assert not torch.is_autocast_enabled("cpu")


HEALTHY = {
    **TINY_LEWM,
    "patch_size": 4,
    "views": ["front"],
    "steps": 300,
    "batch_size": 32,
    "learning_rate": 2e-3,
    "lam": 0.2,
}
TRAINED, HELD_OUT = list(range(6)), [6, 7]  # episodes of `eight`


@pytest.fixture(scope="module")
def healthy(eight: Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("trained") / "lewm"
    with warnings.catch_warnings():
        warnings.simplefilter("error", CollapseWarning)
        train(eight, TRAINED, HEALTHY, to, device="cpu")
    return to


def test_a_healthy_training_warns_of_nothing(healthy: Path) -> None:
    lines = _log(healthy)
    assert logged_warnings(healthy) == [] and not any("warning" in line for line in lines)
    assert lines[-1]["median_std"] > 0.5 and lines[-1]["effective_rank"] > 2.5


def test_without_sigreg_the_collapse_is_told_once(eight: Recording, tmp_path: Path) -> None:
    recipe, to, told = {**HEALTHY, "lam": 0.0}, tmp_path / "lam0", []

    def stop(done: int, total: int, what: str) -> None:
        if done == 250 and what.startswith("training"):
            raise KeyboardInterrupt

    with pytest.warns(CollapseWarning, match=r"collapse at step \d+ of 300.*raise lam \(now 0\)") as caught:
        with pytest.raises(KeyboardInterrupt):
            train(eight, TRAINED, recipe, to, stop, device="cpu")
        train(eight, TRAINED, recipe, to, lambda *call: told.append(call[2]), device="cpu")
    assert len(caught) == 1  # and not again by the run that was resumed
    lines = _log(to)
    (warned,) = [line for line in lines if "warning" in line]
    assert 30 < warned["step"] <= 100 and logged_warnings(to) == [warned["warning"]]
    assert lines[-1]["median_std"] < 0.1
    assert told[-1].startswith("training lewm-small, collapsed, loss 0.0")


def test_the_cnn_is_watched_as_well(acting: Recording, tmp_path: Path) -> None:
    recipe = {
        "kind": "cnn",
        "image_size": 16,
        "latent_dim": 2,
        "steps": 100,
        "batch_size": 8,
        "stride_s": 0.3,
    }
    with pytest.warns(CollapseWarning, match=r"collapse at step \d+ of 100"):
        train(acting, [0, 1], {**recipe, "lam": 0.0}, tmp_path / "lam0", device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error", CollapseWarning)
        train(acting, [0, 1], recipe, tmp_path / "healthy", device="cpu")


def test_it_learns_the_dot_better_than_its_untrained_twin(
    eight: Recording, healthy: Path, tmp_path: Path
) -> None:
    twin = train(eight, TRAINED, untrained_twin(LewmSmallRecipe(**HEALTHY)), tmp_path, device="cpu")

    def rows(encoder: Encoder, episodes: list[int]) -> tuple[np.ndarray, np.ndarray]:
        aligned = list(eight.aligned(["front"], episodes))
        latents = [encoder.encode(batch) for episode in aligned for batch in episode.batches(64)]
        return np.concatenate(latents), np.concatenate([episode.position for episode in aligned])

    scores = []
    for encoder in (load_encoder(str(healthy), device="cpu"), twin):
        z, q = rows(encoder, TRAINED)
        weight = np.linalg.lstsq(np.c_[z, np.ones(len(z))], q, rcond=None)[0]
        z, q = rows(encoder, HELD_OUT)
        residual = q - np.c_[z, np.ones(len(z))] @ weight
        scores.append(1 - residual.var() / q.var())
    assert scores[0] > 0.4 and scores[0] > scores[1] + 0.3, scores


def test_published_sizes_have_the_published_parameters() -> None:
    network = Lewm(1, LewmRecipe().architecture(action_dim=2), generator=torch.Generator())
    assert sum(parameter.numel() for parameter in network.parameters()) == 18_034_478
    assert (LewmRecipe().lam, LewmRecipe().slices, LewmRecipe().batch_size) == (0.09, 1024, 128)


def test_recipes_say_which_size_does_not_fit() -> None:
    with pytest.raises(InputError, match="image_size 100 is no multiple of patch_size 14: write 98"):
        parse_recipe({"kind": "lewm", "image_size": 100})
    with pytest.raises(InputError, match="vit_depth: Input should be greater than or equal to 1"):
        parse_recipe({"kind": "lewm-small", "vit_depth": 0})
    with pytest.raises(InputError, match=r"there is no untrained 'pixels' - write of: cnn or lewm"):
        parse_recipe({"kind": "untrained", "of": "pixels"})
    with pytest.raises(InputError, match=r"unknown kind 'lewn' - did you mean 'lewm'\?"):
        parse_recipe({"kind": "lewn"})


def test_tensorboard_is_optional(acting: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, float, int]] = []

    class SummaryWriter:
        def __init__(self, log_dir: str, purge_step: int) -> None:
            assert log_dir == str(tmp_path / "board") and purge_step == 1

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

        def close(self) -> None:
            written.append(("closed", math.nan, -1))

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(
        InputError, match="--tensorboard: TensorBoard is not installed - pip install tensorboard"
    ):
        train(acting, [0, 1], TINY_LEWM, tmp_path / "lewm", device="cpu", tensorboard=tmp_path / "board")
    assert not (tmp_path / "lewm").exists()
    there = types.SimpleNamespace(SummaryWriter=SummaryWriter)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", there)
    train(acting, [0, 1], TINY_LEWM, tmp_path / "lewm", device="cpu", tensorboard=tmp_path / "board")
    lines = _log(tmp_path / "lewm")
    assert [entry for entry in written if entry[0] == "loss"] == [
        ("loss", line["loss"], line["step"]) for line in lines
    ]
    assert written[-1][0] == "closed"
