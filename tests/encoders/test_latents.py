"""The latent store: resumes after SIGKILL, keeps provenance, and trusts no file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from encoders import LatentStore
from encoders.encoder import Encoder
from hardware import InputError, Recording

ROOT = Path(__file__).resolve().parents[2]
VIEWS = ["front", "wrist"]


class MeanEncoder(Encoder):
    """Mean colour of each view at half size: cheap, and a slow definition is at hand."""

    kind = "cnn"

    def __init__(self, views: tuple[str, ...] | None = ("front", "wrist"), salt: float = 0.0) -> None:
        self.views = views
        self.width = 6
        self.image_size = (16, 16)
        self.architecture = {"salt": salt}
        self.preprocessing = {}
        self.batches: list[int] = []

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        return []

    def encode(self, frames: np.ndarray) -> np.ndarray:
        self.batches.append(len(frames))
        return (
            frames.mean(axis=(2, 3)).reshape(len(frames), -1).astype(np.float32) + self.architecture["salt"]
        )


def test_latents_stand_beside_the_joints_of_their_frames(demos: Recording, tmp_path: Path) -> None:
    encoder, store = MeanEncoder(), LatentStore(tmp_path / "latents")
    path = store.extract(encoder, demos, VIEWS, [0, 2], batch_size=16, ledger_head="ab" * 32)
    assert path == store.path(encoder.fingerprint) == tmp_path / "latents" / f"{encoder.fingerprint}.h5"
    assert os.listdir(tmp_path / "latents") == [path.name]
    assert store.fingerprints() == [encoder.fingerprint]
    assert encoder.batches == [16, 16, 8] * 2
    for aligned in demos.aligned(VIEWS, [0, 2]):
        latents = store.read(encoder.fingerprint, aligned.sha256)
        (frames,) = aligned.batches(100, (16, 16))
        np.testing.assert_array_equal(latents.latent, MeanEncoder().encode(frames))
        np.testing.assert_array_equal(latents.position, aligned.position)
        np.testing.assert_array_equal(latents.anchor_frame, aligned.anchor_frame)
        np.testing.assert_array_equal(latents.time_ns, aligned.time_ns)
        assert latents.latent.dtype == np.float32 and latents.position.dtype == np.float64
        assert latents.facts["recording"] == demos.manifest_sha256
        assert latents.facts["episode"] == aligned.index and latents.facts["views"] == VIEWS
        assert latents.facts["dropped"] == aligned.dropped == {"joints": 0} or latents.facts["dropped"] == {}
        assert latents.facts["ledger_head"] == "ab" * 32 and latents.facts["max_rows"] is None
    found = store.episodes(encoder.fingerprint)
    assert [facts["rows"] for facts in found.values()] == [40, 40]
    assert {facts["episode"] for facts in found.values()} == {0, 2}


def test_the_file_is_as_formats_says(demos: Recording, tmp_path: Path) -> None:
    encoder = MeanEncoder()
    path = LatentStore(tmp_path).extract(encoder, demos, VIEWS, [1])
    with h5py.File(path) as file:
        assert file.attrs["schema"] == "jointprobe-latents/1"
        assert json.loads(file.attrs["describe"])["fingerprint"] == encoder.fingerprint
        (name,) = file
        assert name == demos.episode(1).sha256 and file[name].attrs["complete"]
        kinds = {key: (data.dtype.str, data.shape) for key, data in file[name].items()}
        assert kinds == {
            "latent": ("<f4", (40, 6)),
            "position": ("<f8", (40, 2)),
            "anchor_frame": ("<i8", (40,)),
            "time_ns": ("<i8", (40,)),
        }
        assert all(data.fletcher32 for data in file[name].values())


def test_finished_episodes_are_not_done_again_and_new_ones_are_added(
    demos: Recording, tmp_path: Path
) -> None:
    encoder, store = MeanEncoder(), LatentStore(tmp_path)
    store.extract(encoder, demos, VIEWS, [0])
    stamp = store.read(encoder.fingerprint, demos.episode(0).sha256).facts
    encoder.batches.clear()
    calls: list[tuple[int, int]] = []
    store.extract(encoder, demos, VIEWS, [0, 1], batch_size=40, progress=lambda *call: calls.append(call[:2]))
    assert encoder.batches == [40] and calls == [(40, 40)]
    assert store.read(encoder.fingerprint, demos.episode(0).sha256).facts == stamp
    store.extract(encoder, demos, VIEWS, [0, 1])
    assert encoder.batches == [40]
    assert len(store.episodes(encoder.fingerprint)) == 2
    assert store.episodes(MeanEncoder(salt=1.0).fingerprint) == {}


def test_max_rows_takes_rows_spread_evenly_and_asking_for_more_does_it_again(
    demos: Recording, tmp_path: Path
) -> None:
    encoder, store, sha256 = MeanEncoder(), LatentStore(tmp_path), demos.episode(0).sha256
    store.extract(encoder, demos, VIEWS, [0], max_rows=5)
    few = store.read(encoder.fingerprint, sha256)
    assert few.anchor_frame.tolist() == [0, 10, 20, 29, 39] and few.facts["max_rows"] == 5
    store.extract(encoder, demos, VIEWS, [0])
    every = store.read(encoder.fingerprint, sha256)
    assert len(every) == 40 and every.facts["max_rows"] is None
    np.testing.assert_array_equal(every.latent[few.anchor_frame], few.latent)


def test_hash_is_over_the_arrays_and_not_the_order(demos: Recording, tmp_path: Path) -> None:
    encoder, store = MeanEncoder(), LatentStore(tmp_path / "one")
    store.extract(encoder, demos, VIEWS, [0, 1, 2], batch_size=7)
    other = LatentStore(tmp_path / "other")
    for index in (2, 1, 0):
        other.extract(encoder, demos, VIEWS, [index], ledger_head="cd" * 32)
    names = [demos.episode(index).sha256 for index in range(3)]
    whole = store.sha256(encoder.fingerprint, names)
    assert whole == other.sha256(encoder.fingerprint, names[::-1])
    assert whole != store.sha256(encoder.fingerprint, names[:2])
    with h5py.File(store.path(encoder.fingerprint), "r+") as file:
        file[names[0]]["latent"][0, 0] += 1e-3
    assert whole != store.sha256(encoder.fingerprint, names)


def test_a_latent_that_is_not_finite_is_named_and_nothing_of_its_episode_is_kept(
    demos: Recording, tmp_path: Path
) -> None:
    class Breaks(MeanEncoder):
        def encode(self, frames: np.ndarray) -> np.ndarray:
            latent = super().encode(frames)
            if len(self.batches) == 5:  # the second batch of the second episode
                latent[3, 2] = np.nan
            return latent

    store = LatentStore(tmp_path)
    encoder = Breaks()
    with pytest.raises(
        InputError, match=rf"encoder cnn {encoder.fingerprint[:12]}, episode 1, frame 19: .*not finite"
    ):
        store.extract(encoder, demos, VIEWS, [0, 1], batch_size=16)
    assert list(store.episodes(encoder.fingerprint)) == [demos.episode(0).sha256]


def test_views_must_be_the_encoders(demos: Recording, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="made for the views front, wrist, asked for wrist, front"):
        LatentStore(tmp_path).extract(MeanEncoder(), demos, ["wrist", "front"], [0])
    LatentStore(tmp_path).extract(MeanEncoder(), demos, None, [0])
    with pytest.raises(InputError, match="episode 7: does not exist"):
        LatentStore(tmp_path).extract(MeanEncoder(), demos, VIEWS, [7])


_KILLED = """
import os, signal, sys
sys.path.insert(0, "tests/encoders")
from test_latents import MeanEncoder, VIEWS
from encoders import LatentStore
from hardware import Recording

folder, to, kill_at = sys.argv[1:4]
def progress(done, total, what):
    print("encoded", done, flush=True)
    if done == int(kill_at):
        os.kill(os.getpid(), signal.SIGKILL)
LatentStore(to).extract(MeanEncoder(), Recording.open(folder), VIEWS, batch_size=8, progress=progress)
"""


def _run(demos: Recording, to: Path, kill_at: int) -> tuple[int, list[str]]:
    command = [sys.executable, "-c", _KILLED, str(demos.folder), str(to), str(kill_at)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout.splitlines()


def test_sigkill_costs_the_episode_in_progress_and_no_other(demos: Recording, tmp_path: Path) -> None:
    names = [demos.episode(index).sha256 for index in range(3)]
    store, killed, fingerprint = (
        LatentStore(tmp_path / "whole"),
        LatentStore(tmp_path / "killed"),
        MeanEncoder().fingerprint,
    )
    store.extract(MeanEncoder(), demos, VIEWS, batch_size=8)
    code, lines = _run(demos, killed.folder, 56)  # in the middle of the second episode
    assert code == -signal.SIGKILL and len(lines) == 7
    assert list(killed.episodes(fingerprint)) == names[:1]  # readable although nothing was closed
    finished = killed.read(fingerprint, names[0])
    code, lines = _run(demos, killed.folder, 24)  # again, in the middle of the same episode
    assert code == -signal.SIGKILL and len(killed.episodes(fingerprint)) == 1
    code, lines = _run(demos, killed.folder, -1)
    assert code == 0 and lines[-1] == "encoded 80"  # 40 rows of each of the two others, none of the first
    assert killed.read(fingerprint, names[0]).facts == finished.facts
    assert killed.sha256(fingerprint, names) == store.sha256(fingerprint, names)
    assert os.listdir(killed.folder) == [f"{fingerprint}.h5"]


def test_a_kill_while_merging_loses_nothing(
    demos: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, store = MeanEncoder(), LatentStore(tmp_path)
    store.extract(encoder, demos, VIEWS, [0])

    class Killed(BaseException):
        pass

    def stop(*_: object, **__: object) -> None:
        raise Killed

    monkeypatch.setattr("encoders.latents.shutil.rmtree", stop)  # merged, but the parts are still there
    with pytest.raises(Killed):
        store.extract(encoder, demos, VIEWS, [1])
    monkeypatch.undo()
    monkeypatch.setattr(LatentStore, "_merge", stop)  # not merged at all
    with pytest.raises(Killed):
        store.extract(encoder, demos, VIEWS, [2])
    monkeypatch.undo()
    assert {facts["episode"] for facts in store.episodes(encoder.fingerprint).values()} == {0, 1, 2}
    encoder.batches.clear()
    store.extract(encoder, demos, VIEWS)
    assert not encoder.batches and len(store.episodes(encoder.fingerprint)) == 3
    assert os.listdir(tmp_path) == [f"{encoder.fingerprint}.h5"]


def test_foreign_links_and_wrong_files_are_refused(demos: Recording, tmp_path: Path) -> None:
    encoder, store = MeanEncoder(), LatentStore(tmp_path)
    path, sha256 = store.extract(encoder, demos, VIEWS, [0]), demos.episode(0).sha256
    whole = path.read_bytes()
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["latent"] = np.zeros((40, 6), np.float32)

    def attempt(message: str) -> None:
        for use in (
            lambda: store.read(encoder.fingerprint, sha256),
            lambda: store.episodes(encoder.fingerprint),
        ):
            with pytest.raises(InputError, match=message):
                use()
        path.write_bytes(whole)

    with h5py.File(path, "r+") as file:
        del file[sha256]["latent"]
        file[sha256]["latent"] = h5py.ExternalLink(str(secret), "latent")
    attempt("soft or external link, which is refused")
    with h5py.File(path, "r+") as file:
        file["other"] = h5py.SoftLink(f"/{sha256}")
    attempt("soft or external link, which is refused")
    with h5py.File(path, "r+") as file:
        layout = h5py.VirtualLayout((40, 6), np.float32)
        layout[:] = h5py.VirtualSource(str(secret), "latent", (40, 6))
        del file[sha256]["latent"]
        file[sha256].create_virtual_dataset("latent", layout)
    attempt("stores its data outside the file, which is refused")
    with h5py.File(path, "r+") as file:
        del file[sha256]["latent"]
        file[sha256].create_dataset("latent", (40, 6), np.float32, external=[(str(secret), 0, 960)])
    attempt("stores its data outside the file, which is refused")
    with h5py.File(path, "r+") as file:
        file.attrs["fingerprint"] = "0" * 64
    attempt("latents of another encoder than its name says")
    with h5py.File(path, "r+") as file:
        file.attrs["schema"] = "something/2"
    attempt("has schema 'something/2'")
    path.write_bytes(whole[: len(whole) // 2])
    attempt("not a readable HDF5 file")


def test_arrays_are_checked_before_they_are_read(demos: Recording, tmp_path: Path) -> None:
    encoder, store = MeanEncoder(), LatentStore(tmp_path)
    path, sha256 = store.extract(encoder, demos, VIEWS, [0]), demos.episode(0).sha256
    whole = path.read_bytes()

    def attempt(message: str) -> None:
        with pytest.raises(InputError, match=message):
            store.read(encoder.fingerprint, sha256)
        path.write_bytes(whole)

    with h5py.File(path, "r+") as file:
        del file[sha256]["latent"]
        file[sha256].create_dataset("latent", (1 << 40, 6), np.float32, chunks=(1024, 6))
    attempt("claims .* bytes that are not there, or too many")
    with h5py.File(path, "r+") as file:
        del file[sha256]["time_ns"]
    attempt("time_ns: is missing")
    with h5py.File(path, "r+") as file:
        del file[sha256]["position"]
        file[sha256]["position"] = np.zeros((39, 2))
    attempt("its arrays differ in length")
    with h5py.File(path, "r+") as file:
        file[sha256].attrs["complete"] = False
    attempt("has no latents")
    at = whole.index(store.read(encoder.fingerprint, sha256).latent[:2].tobytes())
    path.write_bytes(whole[:at] + b"\x01\x02\x03\x04" + whole[at + 4 :])
    attempt("is damaged")  # fletcher32 sees one changed float
    for name in ("../../etc/passwd", "", "A" * 64):
        with pytest.raises(InputError, match="is not a SHA-256"):
            store.path(name)


def test_a_full_disk_keeps_what_was_finished(demos: Recording, tmp_path: Path) -> None:
    """A file-size limit stands in for the disk; in a process of its own, since the limit is for all of it."""
    code = f"""
import resource, signal, sys
sys.path.insert(0, "tests/encoders")
from test_latents import MeanEncoder, VIEWS
from encoders import LatentStore
from hardware import InputError, Recording

class Wide(MeanEncoder):
    def __init__(self):
        super().__init__()
        self.width = 60_000
    def encode(self, frames):
        return super().encode(frames).repeat(10_000, axis=1)

recording, store = Recording.open({str(demos.folder)!r}), LatentStore({str(tmp_path)!r})
store.extract(Wide(), recording, VIEWS, [0], max_rows=2)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))
try:
    store.extract(Wide(), recording, VIEWS, [0, 1], max_rows=None)
except InputError as error:
    print(error)
print(store.read(Wide().fingerprint, recording.episode(0).sha256).latent.shape)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said, shape = done.stdout.splitlines()
    assert "the disk is full - free space and start again" in said
    assert shape == "(2, 60000)"
