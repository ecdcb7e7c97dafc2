"""Training: learns, is seeded, resumes exactly after SIGKILL, and says clearly what is wrong."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from encoders import load_encoder, train
from encoders.checkpoints import read_card
from encoders.recipes import CnnRecipe, parse_recipe, recipe_sha256, seeded
from encoders.training_frames import cached_frames, channel_statistics, plan_pairs, sample_frames
from encoders.training_loop import batch_of_step
from hardware import InputError, Recording

ROOT = Path(__file__).resolve().parents[2]
TINY = {"kind": "cnn", "image_size": 16, "latent_dim": 2, "steps": 12, "batch_size": 8, "stride_s": 0.3}


def _weights(folder: Path) -> bytes:
    return (folder / "weights.safetensors").read_bytes()


def test_same_seed_same_bytes_another_seed_others_and_nothing_global_is_drawn(
    demos: Recording, tmp_path: Path
) -> None:
    torch_before = torch.get_rng_state()
    numpy_before = np.random.get_state()[1].copy()  # noqa: NPY002  it must stay as it is
    one = train(demos, [0, 1], TINY, tmp_path / "one", device="cpu")
    torch.rand(3)  # a caller's draws must not matter either
    same = train(demos, [0, 1], TINY, tmp_path / "same", device="cpu", log_every=1, checkpoint_every=5)
    other = train(demos, [0, 1], {**TINY, "seed": 1}, tmp_path / "other", device="cpu")
    torch.set_rng_state(torch_before)
    assert _weights(tmp_path / "one") == _weights(tmp_path / "same") != _weights(tmp_path / "other")
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002
    train(demos, [0, 1], TINY, tmp_path / "again", device="cpu")
    assert torch.equal(torch.get_rng_state(), torch_before)


def test_what_is_left_behind_is_the_encoder_and_its_log(demos: Recording, tmp_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    encoder = train(demos, [0, 1], TINY, tmp_path, lambda *call: calls.append(call), device="cpu")
    assert sorted(os.listdir(tmp_path)) == ["encoder.json", "training.jsonl", "weights.safetensors"]
    lines = [json.loads(line) for line in (tmp_path / "training.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [10, 12]
    spread = {"effective_rank", "smallest_std", "median_std"}
    assert set(lines[0]) == {"step", "loss", "sigreg", "alignment", "learning_rate"} | spread
    recipe = CnnRecipe(**TINY)
    assert lines[0]["loss"] == pytest.approx(
        recipe.lam * lines[0]["sigreg"] + (1 - recipe.lam) * lines[0]["alignment"], rel=1e-5
    )
    steps = [call[:2] for call in calls if "training" in call[2]]
    assert steps == [(step, 12) for step in range(1, 13)]
    card = read_card(tmp_path)
    assert card.views == ["front", "wrist"] and card.recipe is not None and card.recipe["lam"] == recipe.lam
    assert card.trained_on is not None and card.trained_on.episodes == [0, 1]
    assert card.trained_on.manifest_sha256 == demos.manifest_sha256
    assert card.trained_on.pairs == 2 * 37 and card.trained_on.frames == 80
    loaded = load_encoder(f"cnn:{tmp_path}", views=["front", "wrist"], device="cpu")
    assert loaded.fingerprint == encoder.fingerprint
    (episode,) = demos.aligned(["front", "wrist"], [2])
    batch = next(episode.batches(8))
    np.testing.assert_array_equal(loaded.encode(batch), encoder.encode(batch))


@pytest.mark.parametrize("objective, lam, least", [("sigreg", 0.1, 0.8), ("whitening", 0.5, 0.5)])
def test_it_learns_the_dot(walk: Recording, tmp_path: Path, objective: str, lam: float, least: float) -> None:
    """After a short training a linear read-out of the latents gives the dot's position."""
    recipe = {**TINY, "objective": objective, "lam": lam, "steps": 150, "batch_size": 12, "views": ["front"]}
    encoder = train(walk, [0, 1, 2], {**recipe, "pairs": "stride"}, tmp_path, device="cpu")
    lines = [json.loads(line) for line in (tmp_path / "training.jsonl").read_text().splitlines()]
    assert lines[-1]["loss"] < 0.7 * lines[0]["loss"]
    latents, positions = [], []
    for episode in walk.aligned(["front"]):
        latents.append(np.concatenate([encoder.encode(batch) for batch in episode.batches(40)]))
        positions.append(episode.position)
    z, q = np.concatenate(latents), np.concatenate(positions)
    z1 = np.c_[z, np.ones(len(z))]
    residual = q - z1 @ np.linalg.lstsq(z1, q, rcond=None)[0]
    assert 1 - residual.var() / q.var() > least
    assert z.std(axis=0).min() > 0.3 and z.std(axis=0).max() < 3


_KILLED = """
import json, os, signal, sys
from encoders import train
from hardware import Recording

folder, to, recipe, kill_at = sys.argv[1:5]
def progress(done, total, what):
    if what.startswith("training") and done == int(kill_at):
        os.kill(os.getpid(), signal.SIGKILL)
recipe = json.loads(recipe)
train(Recording.open(folder), [0, 1], recipe, to, progress, device="cpu", checkpoint_every=4, log_every=1)
"""


def _run(demos: Recording, to: Path, recipe: dict, kill_at: int) -> int:
    command = [sys.executable, "-c", _KILLED, str(demos.folder), str(to), json.dumps(recipe), str(kill_at)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, timeout=300).returncode


def test_killed_and_resumed_equals_never_killed(demos: Recording, tmp_path: Path) -> None:
    assert _run(demos, tmp_path / "whole", TINY, -1) == 0
    killed = tmp_path / "killed"
    assert _run(demos, killed, TINY, 2) == -signal.SIGKILL  # before the first checkpoint
    assert not (killed / "encoder.json").exists()
    assert _run(demos, killed, TINY, 7) == -signal.SIGKILL  # three steps after a checkpoint
    assert (killed / "checkpoint.safetensors").exists()
    with pytest.raises(InputError, match=r"holds no encoder\.json"):
        load_encoder(str(killed))
    assert _run(demos, killed, TINY, -1) == 0
    assert _weights(killed) == _weights(tmp_path / "whole")
    assert (killed / "training.jsonl").read_bytes() == (tmp_path / "whole" / "training.jsonl").read_bytes()
    assert not (killed / "checkpoint.safetensors").exists()


def test_an_unfinished_training_is_not_continued_with_another_recipe(
    demos: Recording, tmp_path: Path
) -> None:
    class Stop(Exception):
        pass

    def stop(done: int, total: int, what: str) -> None:
        if what.startswith("training") and done == 6:
            raise Stop

    with pytest.raises(Stop):
        train(demos, [0, 1], TINY, tmp_path, stop, device="cpu", checkpoint_every=2)
    for changed in ({**TINY, "lam": 0.2}, {**TINY, "stride_s": 0.4}):
        with pytest.raises(InputError, match="unfinished training with another recipe"):
            train(demos, [0, 1], changed, tmp_path, device="cpu")
    with pytest.raises(InputError, match="unfinished training"):
        train(demos, [0, 2], TINY, tmp_path, device="cpu")


def test_a_finished_one_is_loaded_and_another_one_is_not_overwritten(
    demos: Recording, tmp_path: Path
) -> None:
    first = train(demos, [0, 1], TINY, tmp_path, device="cpu")
    calls: list[int] = []
    again = train(demos, [0, 1], TINY, tmp_path, lambda done, *_: calls.append(done), device="cpu")
    assert again.fingerprint == first.fingerprint and not calls
    with pytest.raises(InputError, match="holds another encoder already"):
        train(demos, [0, 1], {**TINY, "seed": 5}, tmp_path, device="cpu")
    with pytest.raises(InputError, match="holds another encoder already"):
        train(demos, [0], TINY, tmp_path, device="cpu")


def test_a_loss_that_is_not_finite_stops_with_its_terms(demos: Recording, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"step \d+: the loss is not finite any more .*lower learning_rate"):
        train(demos, [0, 1], {**TINY, "learning_rate": 1e30}, tmp_path, device="cpu")
    assert not (tmp_path / "encoder.json").exists()


def test_pairs_never_cross_episodes_and_knots_are_used_on_walks(demos: Recording, walk: Recording) -> None:
    views = ("front", "wrist")
    for recording, kind in ((demos, "stride"), (walk, "knots")):
        plan = plan_pairs(recording, [0, 2], CnnRecipe(**TINY), views)
        assert plan.motion_pairs == kind
        boundary = len(plan.rows[0])
        assert np.all((plan.pairs[:, 0] < boundary) == (plan.pairs[:, 1] < boundary))
        times = np.concatenate([plan.aligned[n].time_ns[rows] for n, rows in enumerate(plan.rows)])
        apart = np.diff(times[plan.pairs], axis=1) / 1e9
        np.testing.assert_allclose(apart, 0.3 if kind == "stride" else 0.6, atol=0.01)
    walks = plan_pairs(walk, [0], CnnRecipe(**{**TINY, "batch_size": 4}), views)
    knots = walk.episode(0).knots()
    assert knots is not None
    np.testing.assert_allclose(walks.aligned[0].position[walks.rows[0]], knots.position, atol=0.02)


def test_what_gives_no_pairs_is_said(
    demos: Recording, walk: Recording, tmp_path: Path, recording_maker: Callable[..., Recording]
) -> None:
    with pytest.raises(InputError, match=r"episode 0: has no knots \(motion 'demos'\)"):
        train(demos, [0, 1], {**TINY, "pairs": "knots"}, tmp_path)
    with pytest.raises(
        InputError, match=r"give 14 pair\(s\) at a stride of 3\.3 s, fewer than one batch of 64"
    ):
        train(demos, [0, 1], {**TINY, "batch_size": 64, "stride_s": 3.3}, tmp_path)
    with pytest.raises(InputError, match=r"give 6 pair\(s\) of consecutive knots"):
        train(walk, [0], TINY, tmp_path)
    with pytest.raises(InputError, match="no training episode"):
        train(demos, [], TINY, tmp_path)
    with pytest.raises(InputError, match="episode 9: does not exist"):
        train(demos, [0, 9], TINY, tmp_path)
    with pytest.raises(InputError, match=r"view 'top'.*its views: front, wrist"):
        train(demos, [0], {**TINY, "views": ["top"]}, tmp_path)
    assert not tmp_path.exists() or not list(tmp_path.iterdir())


def test_max_frames_makes_recordings_equal(demos: Recording, walk: Recording) -> None:
    knots = plan_pairs(walk, [0, 1, 2], CnnRecipe(**TINY), ("front",))
    capped = plan_pairs(demos, [0, 1, 2], CnnRecipe(**TINY, max_frames=knots.frames), ("front",))
    assert knots.frames - 3 <= capped.frames <= knots.frames < 40
    assert all(len(rows) > 0 for rows in capped.rows)


def test_frames_are_cached_once_and_read_back_equal(demos: Recording, tmp_path: Path) -> None:
    plan = plan_pairs(demos, [1, 2], CnnRecipe(**TINY), ("wrist", "front"))
    frames = cached_frames(plan, 16, tmp_path)
    assert isinstance(frames, np.memmap) and frames.shape == (plan.frames, 2, 16, 16, 3)
    direct = [
        batch for number in (0, 1) for batch in plan.aligned[number].batches(7, (16, 16), plan.rows[number])
    ]
    np.testing.assert_array_equal(frames, np.concatenate(direct))
    calls: list[int] = []
    again = cached_frames(plan, 16, tmp_path, lambda done, *_: calls.append(done))
    assert not calls and np.array_equal(again, frames)


def test_a_full_disk_is_said_and_leaves_nothing_half_done(
    demos: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("encoders.training_frames.os.posix_fallocate", full)
    with pytest.raises(InputError, match=r"frames-.*\.npy: the disk is full - free space and start again"):
        train(demos, [0, 1], TINY, tmp_path, device="cpu")
    assert os.listdir(tmp_path) == []
    monkeypatch.undo()
    fsync = os.fsync

    def full_for_weights(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("safetensors.partial"):
            full()
        fsync(descriptor)

    monkeypatch.setattr("hardware.disk.os.fsync", full_for_weights)
    with pytest.raises(InputError, match="the disk is full"):
        train(demos, [0, 1], TINY, tmp_path, device="cpu")
    assert not list(tmp_path.glob("*.partial")) and not (tmp_path / "encoder.json").exists()


def test_channel_statistics_are_those_of_all_pixels() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (700, 2, 4, 5, 3), dtype=np.uint8)
    frames[:, 1, :, :, 2] = 9  # a dead channel must not divide by zero
    mean, std = channel_statistics(frames)
    np.testing.assert_allclose(mean, frames.mean(axis=(0, 2, 3)) / 255, rtol=1e-12)
    expected = frames.std(axis=(0, 2, 3)) / 255
    expected[1, 2] = 1 / 255
    np.testing.assert_allclose(std, expected, rtol=1e-12)


def test_an_epoch_uses_each_pair_once() -> None:
    batches = [batch_of_step(step, 50, 8, 3) for step in range(6)]
    assert len(np.unique(np.concatenate(batches))) == 48
    assert not np.array_equal(batch_of_step(6, 50, 8, 3), batches[0])
    assert np.array_equal(batch_of_step(4, 50, 8, 3), batches[4])


def test_seeded_streams_differ() -> None:
    drawn = [torch.rand(4, generator=seeded(*key)).tolist() for key in ((0, 0), (1, 0), (0, 2, 0), (0, 2, 1))]
    assert len({tuple(values) for values in drawn}) == 4
    assert drawn[0] == torch.rand(4, generator=seeded(0, 0)).tolist()


def test_sample_frames_spreads_over_episodes(demos: Recording) -> None:
    aligned = list(demos.aligned(["front"]))
    assert len(sample_frames(aligned, 8, 10_000)) == 120
    few = sample_frames(aligned, 8, 31)
    assert len(few) == 30 and few.shape[1:] == (1, 8, 8, 3)


def test_recipes_name_the_key_that_nobody_reads() -> None:
    with pytest.raises(InputError, match=r"unknown key 'lamda' - did you mean 'lam'\?"):
        parse_recipe({"kind": "cnn", "lamda": 0.1})
    with pytest.raises(InputError, match=r"unknown kind 'pixel' - did you mean 'pixels'\?"):
        parse_recipe({"kind": "pixel"})
    with pytest.raises(
        InputError, match="has no kind - known kinds: cnn, lewm, lewm-small, pixels, untrained"
    ):
        parse_recipe({})
    with pytest.raises(InputError, match="view is named twice"):
        parse_recipe({"kind": "pixels", "views": ["a", "a"]})


def test_recipe_hash_fills_in_defaults_and_sees_every_field() -> None:
    assert recipe_sha256({"kind": "cnn"}) == recipe_sha256({"kind": "cnn", "image_size": 64, "seed": 0})
    changed = {"lam": 0.2, "seed": 1, "views": ["front"], "latent_dim": 7, "steps": 9, "max_frames": 99}
    hashes = {recipe_sha256({"kind": "cnn", key: value}) for key, value in changed.items()}
    assert len(hashes | {recipe_sha256({"kind": "cnn"})}) == len(changed) + 1
