"""Pair sets of the Reacher: what is drawn, how it is stored, and what an interruption leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from hardware.disk import held_alone
from hardware.errors import InputError
from sim import reacher_frames, reacher_pairs
from sim.reacher_draws import PAIRS_PER_EPISODE, Draw, draw_evaluation, draw_ou, draw_trajectory
from sim.reacher_frames import FRAMES
from sim.reacher_pairs import INFO, MANIFEST, STATES, PairSet, write_pair_set
from sim.reacher_processes import BLOCK
from sim.reacher_rendering import ReacherRenderer
from sim.reacher_trajectories import Episodes, episodes_of
from tests.hardware.watched_disk import Killed, WatchedDisk

REPOSITORY = Path(__file__).resolve().parents[2]


class FastImages:
    """Takes the place of `ReacherRenderers`: an image is noise by its state, so that each differs."""

    stops_after: int | None = None
    opengl = "none"
    made = 0

    def __init__(self, workers: int | None = None, images: int | None = None) -> None:
        pass

    def __enter__(self) -> FastImages:
        return self

    def __exit__(self, *_exception: object) -> None:
        pass

    def description(self) -> dict[str, str]:
        return {"renderer": "a test", "opengl": type(self).opengl}

    def blocks(self, states: np.ndarray, start: int = 0) -> Iterator[np.ndarray]:
        for number, first in enumerate(range(start, len(states), BLOCK)):
            if number == type(self).stops_after:
                raise KeyboardInterrupt
            type(self).made += 1
            yield images_of(states[first : first + BLOCK])


def images_of(states: np.ndarray) -> np.ndarray:
    """uint8 (n, 64, 64, 3): a few numbers of the state's own, the rest zeros."""
    images = np.zeros((len(states), 64, 64, 3), np.uint8)
    images.reshape(len(states), 64 * 64 * 3)[:, : states.itemsize * 2] = np.ascontiguousarray(states).view(
        np.uint8
    )
    return images


@pytest.fixture()
def fast(monkeypatch: pytest.MonkeyPatch) -> type[FastImages]:
    monkeypatch.setattr(reacher_pairs, "ReacherRenderers", FastImages)
    monkeypatch.setattr(reacher_frames, "_COMMIT_BLOCKS", 1)
    for name, value in (("stops_after", None), ("made", 0), ("opengl", "none")):
        monkeypatch.setattr(FastImages, name, value)
    return FastImages


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# -- draws -------------------------------------------------------------------------------------------------


def test_ou_pairs_have_the_transitions_moments() -> None:
    draw = draw_ou((0.3, 0.95), 40_000, 1)
    assert draw.states.shape == (120_000, 2) and draw.count == 40_000
    for rho, pairs in zip(draw.values, draw.pairs):
        z, after = draw.states[pairs[:, 0]], draw.states[pairs[:, 1]]
        both = np.corrcoef(np.concatenate([z, after], axis=1).T)
        expected = np.kron([[1, rho], [rho, 1]], np.eye(2))
        np.testing.assert_allclose(both, expected, atol=0.02)
        np.testing.assert_allclose(after.std(axis=0), 1, atol=0.02)
        residual = (after - rho * z) / np.sqrt(1 - rho**2)  # eta, independent of z
        assert np.abs(np.corrcoef(np.concatenate([z, residual], axis=1).T)[:2, 2:]).max() < 0.02


def test_what_is_drawn_depends_on_seed_and_value_alone() -> None:
    one, both = draw_ou((0.5,), 100, 7), draw_ou((0.3, 0.5), 100, 7)
    np.testing.assert_array_equal(one.states[one.pairs[0]], both.states[both.pairs[1]])
    np.testing.assert_array_equal(both.pairs[0][:, 0], both.pairs[1][:, 0])  # z is shared
    assert not np.array_equal(one.states, draw_ou((0.5,), 100, 8).states)
    evaluation = draw_evaluation(100, 7)
    assert not np.isin(evaluation.states, both.states).any() and evaluation.count == 100
    assert one.sha256 != both.sha256 and one.sha256 == draw_ou((0.5,), 100, 7).sha256


@pytest.fixture(scope="module")
def episodes() -> Episodes:
    return episodes_of("random", 20, 0)


def test_trajectory_pairs_lie_a_stride_apart_in_their_own_episode(episodes: Episodes) -> None:
    draw = draw_trajectory(episodes, (1, 8, 64), 200, 3)
    rows = {tuple(state): row for row, state in enumerate(episodes.qpos)}
    assert len(np.unique(draw.states, axis=0)) == len(draw.states) < 6 * 200  # each once
    assert draw.episodes is not None and draw.source is not None
    for delta, pairs in zip(draw.values, draw.pairs):
        assert pairs.shape == (200, 2)
        first, second = (np.array([rows[tuple(draw.states[one])] for one in side]) for side in pairs.T)
        np.testing.assert_array_equal(second - first, delta)
        own = first // 201
        np.testing.assert_array_equal(own, second // 201)
        np.testing.assert_array_equal(own, draw.episodes[pairs[:, 0]])
        np.testing.assert_array_equal(np.bincount(own), np.full(20, PAIRS_PER_EPISODE))
        assert first.min() % 201 < 201 - delta
    alone = draw_trajectory(episodes, (8,), 200, 3)
    np.testing.assert_array_equal(alone.states[alone.pairs[0]], draw.states[draw.pairs[1]])
    assert draw.source["sha256"] == episodes.sha256


def test_first_rows_of_trajectory_pairs_are_uniform() -> None:
    episodes = Episodes(
        np.arange(2.0 * 1000 * 21).reshape(-1, 2), np.full(1000, 21), 21 * np.arange(1000), "counted", "0"
    )
    draw = draw_trajectory(episodes, (16,), 10_000, 0)
    first = (draw.states[draw.pairs[0][:, 0], 0] / 2) % 21
    counts = np.bincount(first.astype(int))
    assert len(counts) == 5 and np.abs(counts - 2000).max() < 200


def test_episodes_may_lie_in_any_order_and_pairs_may_be_any_number() -> None:
    qpos = np.arange(200.0).reshape(-1, 2)
    episodes = Episodes(qpos, np.array([30, 20, 40]), np.array([60, 40, 0]), "mixed", "0")
    draw = draw_trajectory(episodes, (2,), 25, 0)
    first = (draw.states[draw.pairs[0][:, 0], 0] / 2).astype(int)
    assert np.all((first[:10] >= 60) & (first[:10] < 88)) and np.all(
        (first[10:20] >= 40) & (first[10:20] < 58)
    )
    assert np.all(first[20:] < 38) and len(first) == 25
    assert draw.episodes is not None
    np.testing.assert_array_equal(draw.episodes[draw.pairs[0][:, 1]], np.repeat([0, 1, 2], 10)[:25])


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda episodes: draw_ou((), 10), "names no value"),
        (lambda episodes: draw_ou((1.0,), 10), "1 is not within"),
        (lambda episodes: draw_ou((0.5, 0.5), 10), "twice"),
        (lambda episodes: draw_trajectory(episodes, (0,), 10), "0 is not a whole"),
        (lambda episodes: draw_trajectory(episodes, (1.5,), 10), "1.5 is not a whole"),
        (lambda episodes: draw_trajectory(episodes, (1,), 201), "need 21 episodes"),
        (lambda episodes: draw_trajectory(episodes, (1, 201), 10), "201 rows do not fit into episode 0"),
    ],
)
def test_draws_that_cannot_be_are_one_error(make, problem: str, episodes: Episodes) -> None:
    with pytest.raises(InputError, match=problem):
        make(episodes)


# -- store -------------------------------------------------------------------------------------------------


def test_a_set_holds_dm_controls_images_of_its_states(tmp_path: Path) -> None:
    told: list[int] = []
    pairs = write_pair_set(
        draw_ou((0.5,), 60), tmp_path / "ou", workers=1, progress=lambda done, total, what: told.append(done)
    )
    assert pairs.condition == "ou" and pairs.rhos == (0.5,) and pairs.deltas == () and len(pairs) == 120
    assert told == [BLOCK, 120]
    with ReacherRenderer() as renderer:
        np.testing.assert_array_equal(pairs.frames(), renderer.render(pairs.states))
    assert pairs.info.rendered_by["mujoco"] and pairs.info.seed == 9999
    assert sorted(path.name for path in (tmp_path / "ou").iterdir()) == sorted(
        [INFO, STATES, FRAMES, MANIFEST]
    )


def test_images_are_read_in_any_order(tmp_path: Path, fast: type[FastImages]) -> None:
    draw = draw_ou((0.3, 0.9), 200)
    pairs = write_pair_set(draw, tmp_path / "set")
    rng = np.random.default_rng(0)
    for rows in (rng.integers(0, 600, 1000), np.array([599, 0, 599]), np.zeros(0, np.int64)):
        np.testing.assert_array_equal(pairs.frames(rows), images_of(draw.states[rows]))
        np.testing.assert_array_equal(pairs[rows], images_of(draw.states[rows]))
    images, places = pairs.subset(0.9)
    assert len(images) == 400
    np.testing.assert_array_equal(images[places], images_of(draw.states)[pairs.pairs(0.9)])
    np.testing.assert_array_equal(pairs.states, draw.states)
    for wrong in ([600], [-1]):
        with pytest.raises(InputError, match="beyond row 599"):
            pairs.frames(np.array(wrong))
    with pytest.raises(InputError, match=r"no pairs of 0\.7 - it has 0\.3, 0\.9"):
        pairs.pairs(0.7)


def test_the_store_is_chunked_checked_and_small(tmp_path: Path, fast: type[FastImages]) -> None:
    write_pair_set(draw_evaluation(300), tmp_path / "eval")
    with h5py.File(tmp_path / "eval" / FRAMES) as file:
        frames = file["frames"]
        assert frames.chunks == (BLOCK, 64, 64, 3) and frames.fletcher32
        assert frames.id.get_storage_size() < 0.05 * frames.nbytes


def test_trajectory_and_evaluation_sets_come_back(
    tmp_path: Path, fast: type[FastImages], episodes: Episodes
) -> None:
    draw = draw_trajectory(episodes, (1, 16), 100)
    pairs = write_pair_set(draw, tmp_path / "traj")
    assert pairs.condition == "traj" and pairs.deltas == (1, 16) and pairs.rhos == ()
    np.testing.assert_array_equal(pairs.pairs(16), draw.pairs[1])
    np.testing.assert_array_equal(pairs.episodes, draw.episodes)
    assert pairs.info.source == draw.source
    single = write_pair_set(draw_evaluation(30), tmp_path / "eval")
    assert single.condition == "eval" and len(single) == 30 and single.episodes is None
    with pytest.raises(InputError, match="it has none"):
        single.pairs(1)


def test_called_again_a_whole_set_is_opened_and_another_refused(
    tmp_path: Path, fast: type[FastImages]
) -> None:
    write_pair_set(draw_ou((0.5,), 100), tmp_path / "set")
    before, made = contents(tmp_path / "set"), fast.made
    assert len(write_pair_set(draw_ou((0.5,), 100), tmp_path / "set")) == 200
    assert fast.made == made and contents(tmp_path / "set") == before
    for draw in (draw_ou((0.6,), 100), draw_ou((0.5,), 101), draw_ou((0.5,), 100, 1), draw_evaluation(100)):
        with pytest.raises(InputError, match="holds another pair set"):
            write_pair_set(draw, tmp_path / "set")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    with pytest.raises(InputError, match="no pair set"):
        write_pair_set(draw_ou((0.5,), 100), tmp_path / "mine")


def test_stopped_it_goes_on_where_it_was(tmp_path: Path, fast: type[FastImages]) -> None:
    draw = draw_ou((0.5,), 3 * BLOCK)
    write_pair_set(draw, tmp_path / "whole")
    fast.stops_after, fast.made = 2, 0
    with pytest.raises(KeyboardInterrupt):
        write_pair_set(draw, tmp_path / "stopped")
    with pytest.raises(InputError, match="not whole"):
        PairSet.open(tmp_path / "stopped")
    fast.stops_after = None
    write_pair_set(draw, tmp_path / "stopped")
    assert fast.made == 6  # two before, four after
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


def test_killed_at_any_call_to_the_disk_it_ends_with_the_same_bytes(
    tmp_path: Path, fast: type[FastImages], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = draw_ou((0.5,), BLOCK + 10)
    expected = write_pair_set(draw, tmp_path / "whole").frames()
    with monkeypatch.context() as patch:
        watched = WatchedDisk(patch, tmp_path / "counted")
        write_pair_set(draw, tmp_path / "counted")
    assert watched.calls > 30
    for number in range(0, watched.calls):
        folder = tmp_path / f"killed-{number}"
        with monkeypatch.context() as patch:
            WatchedDisk(patch, folder, stop_at=number, torn=number % 2 == 0)
            with pytest.raises(Killed):
                write_pair_set(draw, folder)
        pairs = write_pair_set(draw, folder)
        np.testing.assert_array_equal(pairs.frames(), expected)
        assert sorted(path.name for path in folder.iterdir()) == sorted([INFO, STATES, FRAMES, MANIFEST])
        PairSet.open(folder, verify=True)
        shutil.rmtree(folder)


def test_a_full_disk_is_one_error_and_what_is_stored_is_kept(
    tmp_path: Path, fast: type[FastImages], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = draw_ou((0.5,), 3 * BLOCK)
    expected = write_pair_set(draw, tmp_path / "whole").frames()
    with monkeypatch.context() as patch:
        watched = WatchedDisk(patch, tmp_path / "counted")
        write_pair_set(draw, tmp_path / "counted")
    for writes in range(0, watched.writes, 5):
        folder = tmp_path / f"full-{writes}"
        with monkeypatch.context() as patch:
            WatchedDisk(patch, folder, full_from=writes, torn=True)
            with pytest.raises(InputError, match="the disk is full - free space"):
                write_pair_set(draw, folder)
        np.testing.assert_array_equal(write_pair_set(draw, folder).frames(), expected)


KILLED = """
import sys, time
from pathlib import Path
from sim import reacher_frames, reacher_pairs
from sim.reacher_draws import draw_ou
from tests.sim.test_reacher_pairs import FastImages

class Slow(FastImages):
    def blocks(self, states, start=0):
        for block in super().blocks(states, start):
            time.sleep(0.02)
            yield block

reacher_pairs.ReacherRenderers = Slow
reacher_frames._COMMIT_BLOCKS = 2
reacher_pairs.write_pair_set(draw_ou((0.5,), 2000), Path(sys.argv[1]))
"""


def test_a_process_that_is_killed_leaves_what_goes_on(tmp_path: Path, fast: type[FastImages]) -> None:
    expected = write_pair_set(draw_ou((0.5,), 2000), tmp_path / "whole").frames()
    for kill in range(2):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "set")], cwd=REPOSITORY)
        partial = tmp_path / "set" / f"{FRAMES}.partial"
        size, patience = partial.stat().st_size if kill else 0, time.monotonic() + 60
        while not partial.exists() or partial.stat().st_size <= size + 20_000:
            assert process.poll() is None and time.monotonic() < patience
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    fast.made = 0
    np.testing.assert_array_equal(write_pair_set(draw_ou((0.5,), 2000), tmp_path / "set").frames(), expected)
    assert fast.made < -(-4000 // BLOCK)  # not all of it again


def test_images_of_an_interrupted_set_that_are_damaged_are_named(
    tmp_path: Path, fast: type[FastImages]
) -> None:
    draw, partial = draw_ou((0.5,), 200), tmp_path / "set" / f"{FRAMES}.partial"
    fast.stops_after = 2
    with pytest.raises(KeyboardInterrupt):
        write_pair_set(draw, tmp_path / "set")
    fast.stops_after = None
    partial.write_bytes(bytes(partial.stat().st_size))
    partial.with_name(partial.name + ".journal").unlink()
    with pytest.raises(InputError, match=r"frames\.h5\.partial: is damaged .* remove it"):
        write_pair_set(draw, tmp_path / "set")
    partial.unlink()
    np.testing.assert_array_equal(write_pair_set(draw, tmp_path / "set").frames(), images_of(draw.states))


def test_another_opengl_does_not_go_on(tmp_path: Path, fast: type[FastImages]) -> None:
    fast.stops_after = 1
    with pytest.raises(KeyboardInterrupt):
        write_pair_set(draw_ou((0.5,), 200), tmp_path / "set")
    fast.stops_after, fast.opengl = None, "a newer Mesa"
    with pytest.raises(InputError, match="a newer Mesa"):
        write_pair_set(draw_ou((0.5,), 200), tmp_path / "set")


def test_two_do_not_write_at_once(tmp_path: Path, fast: type[FastImages]) -> None:
    (tmp_path / "set").mkdir()
    with held_alone(tmp_path / "set", "written"):
        with pytest.raises(InputError, match="being written by another process"):
            write_pair_set(draw_ou((0.5,), 100), tmp_path / "set")


# -- damage ------------------------------------------------------------------------------------------------


@pytest.fixture()
def stored(tmp_path: Path, fast: type[FastImages]) -> PairSet:
    return write_pair_set(draw_ou((0.5,), 150), tmp_path / "set")


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("name", [INFO, STATES, FRAMES, MANIFEST])
def test_a_file_that_is_missing_cut_or_changed_is_named(stored: PairSet, name: str) -> None:
    path = stored.folder / name
    whole = path.read_bytes()
    for damage in ("changed", "cut", "missing"):
        path.write_bytes(whole)
        if damage == "changed":
            flip(path, len(whole) // 2)
        elif damage == "cut":
            path.write_bytes(whole[: len(whole) // 2])
        else:
            path.unlink()
        with pytest.raises(InputError) as error:
            PairSet.open(stored.folder, verify=True)
        assert name in str(error.value) or (name == MANIFEST and "not whole" in str(error.value))


def test_damage_to_an_image_is_found_when_it_is_read(stored: PairSet) -> None:
    path = stored.folder / FRAMES
    with h5py.File(path) as file:
        chunk = file["frames"].id.get_chunk_info(1)
    flip(path, chunk.byte_offset + chunk.size // 2)
    pairs = PairSet.open(stored.folder)
    pairs.frames(np.arange(BLOCK))  # the first chunk is sound
    with pytest.raises(InputError, match=r"frames\.h5: is damaged"):
        pairs.frames()


def test_contents_that_do_not_fit_each_other_are_refused(stored: PairSet) -> None:
    def resealed(name: str, change) -> None:
        with h5py.File(stored.folder / name, "r+") as file:
            change(file)
        manifest = json.loads((stored.folder / MANIFEST).read_text())
        manifest["files"][name] = {
            "bytes": (stored.folder / name).stat().st_size,
            "sha256": reacher_pairs.sha256_of_file(stored.folder / name),
        }
        (stored.folder / MANIFEST).write_text(json.dumps(manifest))

    def beyond(file: h5py.File) -> None:
        file["pairs"][0, 0, 0] = 300

    resealed(STATES, beyond)
    with pytest.raises(InputError, match=r"does not fit to pairs\.yaml"):
        PairSet.open(stored.folder)
    resealed(FRAMES, lambda file: file["frames"].resize(299, axis=0))
    with pytest.raises(InputError, match="expected uint8"):
        PairSet.open(stored.folder)


def test_a_folder_without_a_set_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no pair set: it has no pairs\.yaml"):
        PairSet.open(tmp_path)


def test_draws_know_their_count() -> None:
    assert Draw("eval", (), np.zeros((4, 2)), (), 0).count == 4
