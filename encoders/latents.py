"""Latents on disk, by encoder and episode: extraction survives a kill, and reading trusts nothing."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from encoders.encoder import Encoder, canonical_json
from encoders.extraction import Work, encoded
from encoders.pairs import evenly_spaced
from hardware.disk import disk_errors, fsync_path
from hardware.errors import InputError
from hardware.recording import Progress, Recording

LATENTS_SCHEMA = "jointprobe-latents/1"
MAX_ARRAY_BYTES = 4 << 30
SPARE_BYTES = 1 << 20
DATASETS: dict[str, tuple[str, int]] = {
    "latent": ("<f4", 2),
    "position": ("<f8", 2),
    "anchor_frame": ("<i8", 1),
    "time_ns": ("<i8", 1),
}
FACTS = ("recording", "episode", "views", "dropped", "max_rows", "extracted_at", "ledger_head")


@dataclass(frozen=True)
class EpisodeLatents:
    """The rows of one episode as an encoder sees them.

    Attributes
    ----------
    latent : float32 (n, D).
    position : float64 (n, J), joints at the same moments, in the recording's units.
    anchor_frame, time_ns : int64 (n,), frame number in the first view and its time.
    facts : recording (manifest hash), episode, views, dropped, max_rows, extracted_at, ledger_head.
    """

    latent: np.ndarray
    position: np.ndarray
    anchor_frame: np.ndarray
    time_ns: np.ndarray
    facts: dict[str, Any]

    def __len__(self) -> int:
        return len(self.latent)


class LatentStore:
    """`FINGERPRINT.h5` an encoder, in it a group an episode (FORMATS.md).

    While an extraction runs, each finished episode is a file of its own in `FINGERPRINT.parts/`, sealed by
    fsync and rename; at the end all of them are merged into a new FINGERPRINT.h5 that replaces the old one
    by rename. A kill or a full disk therefore costs the episode in progress and never what was finished:
    appending to one HDF5 file could tear it, since HDF5 keeps no journal. Readers see the parts as well.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, fingerprint: str) -> Path:
        """The file of an encoder; it exists once an extraction has ended."""
        return self.folder / f"{_hex(fingerprint)}.h5"

    def fingerprints(self) -> list[str]:
        """Encoders that have latents here, finished or not."""
        if not self.folder.is_dir():
            return []
        names = {path.stem for path in self.folder.iterdir() if path.suffix in (".h5", ".parts")}
        return sorted(name for name in names if re.fullmatch(r"[0-9a-f]{64}", name) and self.episodes(name))

    def episodes(self, fingerprint: str) -> dict[str, dict[str, Any]]:
        """Facts of each finished episode, by the SHA-256 of its file; empty where nothing was extracted."""
        found = {}
        for path in self._files(fingerprint):
            with _opened(path, fingerprint) as file:
                for sha256 in file:
                    if _is_complete(file, sha256):
                        found[sha256] = _facts(file, sha256)
        return found

    def read(self, fingerprint: str, episode_sha256: str) -> EpisodeLatents:
        """Latents of one episode; InputError where they are not there or not whole."""
        for path in reversed(
            self._files(fingerprint)
        ):  # a part is newer than the file it will be merged into
            with _opened(path, fingerprint) as file:
                if episode_sha256 in file and _is_complete(file, episode_sha256):
                    return _read_group(file, episode_sha256)
        raise InputError(
            f"{self.path(fingerprint)}, episode {episode_sha256[:12]}...",
            "has no latents",
            "extract them first (jointprobe probe does)",
        )

    def sha256(self, fingerprint: str, episode_sha256s: Sequence[str]) -> str:
        """SHA-256 over the arrays of some episodes, whatever the order in which they are named."""
        digest = hashlib.sha256()
        for name in sorted(set(episode_sha256s)):
            latents = self.read(fingerprint, name)
            for key, (dtype, _) in DATASETS.items():
                array = np.ascontiguousarray(getattr(latents, key), dtype)
                digest.update(canonical_json([name, key, dtype, list(array.shape)]) + array.tobytes())
        return digest.hexdigest()

    def extract(
        self,
        encoder: Encoder,
        recording: Recording,
        views: Sequence[str] | None = None,
        episodes: Sequence[int] | None = None,
        batch_size: int | None = None,
        max_rows: int | None = None,
        progress: Progress | None = None,
        ledger_head: str = "",
    ) -> Path:
        """Encode the aligned rows of episodes; see `extract_all`. Returns the path of the encoder's file."""
        self.extract_all([encoder], recording, views, episodes, batch_size, max_rows, progress, ledger_head)
        return self.path(encoder.fingerprint)

    def extract_all(
        self,
        encoders: Sequence[Encoder],
        recording: Recording,
        views: Sequence[str] | None = None,
        episodes: Sequence[int] | None = None,
        batch_size: int | None = None,
        max_rows: int | None = None,
        progress: Progress | None = None,
        ledger_head: str = "",
    ) -> None:
        """Encode the aligned rows of episodes by several encoders over one decoding; what is finished already
        is not done again.

        Parameters
        ----------
        views : views in order; None takes the encoders'.
        episodes : episode numbers; None takes all.
        batch_size : rows decoded at once; None chooses by their size. Memory is bounded by it, not by the
            recording.
        max_rows : most rows of an episode, spread evenly over it; None takes all.
        progress : called with rows done and rows in all after each batch.
        ledger_head : hash of the study's last ledger event, kept as provenance.

        Raises
        ------
        InputError
            views that are not the encoders', a latent that is not finite (encoder, episode and frame are
            named), a full disk.
        """
        wanted = recording.episode_indices if episodes is None else list(episodes)
        shas = {line.episode: line.sha256 for line in recording.manifest}
        groups: dict[Any, list[Encoder]] = {}
        for encoder in encoders:
            chosen = self._views(encoder, views)
            facts = {"views": list(chosen), "max_rows": max_rows}
            done = self.episodes(encoder.fingerprint)
            todo = [
                index
                for index in wanted
                if index not in shas or any(done.get(shas[index], {}).get(key) != facts[key] for key in facts)
            ]
            sizes = {(recording.info.view(view).height, recording.info.view(view).width) for view in chosen}
            # Views of different sizes have no common frame as recorded: such encoders decode for themselves.
            size = encoder.image_size if len(sizes) > 1 else None
            clip = encoder.clip_frames, encoder.clip_stride
            groups.setdefault((chosen, tuple(todo), size, clip), []).append(encoder)
        for (chosen, todo, _, _), together in groups.items():
            self._extract(together, recording, chosen, todo, batch_size, max_rows, progress, ledger_head)

    def _extract(
        self,
        encoders: Sequence[Encoder],
        recording: Recording,
        views: Sequence[str],
        episodes: Sequence[int],
        batch_size: int | None,
        max_rows: int | None,
        progress: Progress | None,
        ledger_head: str,
    ) -> None:
        for encoder in encoders:
            with disk_errors(self.folder):
                self._parts(encoder.fingerprint).mkdir(parents=True, exist_ok=True)
        aligned = recording.aligned(
            views, list(episodes)
        )  # times only: a missing view is found before the work
        work = [Work(one, evenly_spaced(len(one), max_rows or len(one))) for one in aligned]
        own_sizes = {encoder.image_size for encoder in encoders}
        latents = encoded(
            encoders,
            work,
            image_size=own_sizes.pop() if len(own_sizes) == 1 else None,
            batch_size=batch_size,
            progress=progress,
        )
        for one, of_each in zip(work, latents):
            about = {
                "views": list(views),
                "max_rows": max_rows,
                "recording": recording.manifest_sha256,
                "episode": one.episode.index,
                "dropped": one.episode.dropped,
                "extracted_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "ledger_head": ledger_head,
            }
            rows, sha256 = one.rows, one.episode.sha256
            for encoder, latent in zip(encoders, of_each):
                arrays = EpisodeLatents(
                    latent,
                    one.episode.position[rows],
                    one.episode.anchor_frame[rows],
                    one.episode.time_ns[rows],
                    about,
                )
                _write_part(self._parts(encoder.fingerprint) / f"{sha256}.h5", encoder, sha256, arrays)
        for encoder in encoders:
            self._merge(encoder)

    def _merge(self, encoder: Encoder) -> None:
        final, parts = self.path(encoder.fingerprint), self._parts(encoder.fingerprint)
        sealed = sorted(parts.glob("*.h5"))
        if sealed:
            temporary = final.with_name(final.name + ".partial")
            sources = [final, *sealed] if final.is_file() else sealed
            room = sum(source.stat().st_size for source in sources)
            with disk_errors(final), _created(temporary, encoder, room) as target:
                for source in sources:
                    with _opened(source, encoder.fingerprint) as file:
                        for sha256 in file:
                            if sha256 in target:
                                del target[sha256]  # a part replaces what was extracted before
                            file.copy(sha256, target)
            with disk_errors(final):
                os.replace(temporary, final)
                fsync_path(final.parent)
        shutil.rmtree(parts, ignore_errors=True)

    def _views(self, encoder: Encoder, views: Sequence[str] | None) -> tuple[str, ...]:
        chosen = tuple(views or encoder.views or ())
        if encoder.views is not None and chosen != encoder.views:
            raise InputError(
                f"encoder {encoder.kind}",
                f"was made for the views {', '.join(encoder.views)}, asked for {', '.join(chosen)}",
                "name the same views in the same order",
            )
        return chosen

    def _parts(self, fingerprint: str) -> Path:
        return self.folder / f"{_hex(fingerprint)}.parts"

    def _files(self, fingerprint: str) -> list[Path]:
        parts = self._parts(fingerprint)
        final = self.path(fingerprint)
        return ([final] if final.is_file() else []) + sorted(parts.glob("*.h5") if parts.is_dir() else [])


def _write_part(path: Path, encoder: Encoder, sha256: str, latents: EpisodeLatents) -> None:
    temporary = path.with_name(path.name + ".partial")
    room = sum(getattr(latents, name).nbytes for name in DATASETS)
    with disk_errors(path), _created(temporary, encoder, room) as file:
        group = file.create_group(sha256)
        for name, (dtype, _) in DATASETS.items():
            group.create_dataset(
                name, data=np.asarray(getattr(latents, name), dtype), fletcher32=True, chunks=True
            )
        for key, value in latents.facts.items():
            group.attrs[key] = value if isinstance(value, (str, int)) else json.dumps(value, sort_keys=True)
        group.attrs["complete"] = True
    with disk_errors(path):
        os.replace(temporary, path)
        fsync_path(path.parent)


@contextmanager
def _created(path: Path, encoder: Encoder, room: int) -> Iterator[h5py.File]:
    """A new file with the encoder's attributes, on disk when the block has ended; an error removes it.

    `room` is the bytes it will take. They are asked of the disk first, since HDF5 may crash the process when
    a disk fills up under it.
    """
    try:
        with path.open("wb") as reserved:
            os.posix_fallocate(reserved.fileno(), 0, room + SPARE_BYTES)
        with h5py.File(path, "w") as file:
            file.attrs["schema"] = LATENTS_SCHEMA
            file.attrs["fingerprint"] = encoder.fingerprint
            file.attrs["describe"] = canonical_json(encoder.describe()).decode()
            yield file
        fsync_path(path)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, RuntimeError):  # h5py reports some failed writes so
            raise OSError(str(error)) from None
        raise


@contextmanager
def _opened(path: Path, fingerprint: str) -> Iterator[h5py.File]:
    """Open for reading; refuse what is not ours and what reaches outside the file."""
    try:
        file = h5py.File(path, "r")
    except OSError:
        raise InputError(path, "is not a readable HDF5 file", "remove it and extract again") from None
    with file:
        if file.attrs.get("schema") != LATENTS_SCHEMA:
            raise InputError(
                path, f"has schema {file.attrs.get('schema')!r}, this version reads {LATENTS_SCHEMA!r}"
            )
        if file.attrs.get("fingerprint") != fingerprint:
            raise InputError(path, "holds latents of another encoder than its name says", "restore the file")
        for name in file:
            _refuse_foreign(file, name, path)
        yield file


def _refuse_foreign(group: h5py.Group, name: str, path: Path) -> None:
    where = f"{path}, {group.name.rstrip('/')}/{name}"
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise InputError(where, "is a soft or external link, which is refused")
    member = group[name]
    if isinstance(member, h5py.Dataset):
        if member.is_virtual or member.external:
            raise InputError(where, "stores its data outside the file, which is refused")
        return
    if group.name != "/":
        raise InputError(where, "is nested deeper than latents are")
    for inner in member:
        _refuse_foreign(member, inner, path)


def _is_complete(file: h5py.File, sha256: str) -> bool:
    return isinstance(file[sha256], h5py.Group) and bool(file[sha256].attrs.get("complete", False))


def _facts(file: h5py.File, sha256: str) -> dict[str, Any]:
    group = file[sha256]
    facts: dict[str, Any] = {}
    for key in FACTS:
        value = group.attrs.get(key)
        if key in ("views", "dropped", "max_rows"):
            value = json.loads(value) if isinstance(value, str) else value
        facts[key] = value.item() if isinstance(value, np.generic) else value
    rows, width = group["latent"].shape if "latent" in group else (0, 0)
    return {**facts, "rows": int(rows), "width": int(width)}


def _read_group(file: h5py.File, sha256: str) -> EpisodeLatents:
    group = file[sha256]
    arrays: dict[str, np.ndarray] = {}
    for name, (dtype, ndim) in DATASETS.items():
        where = f"{file.filename}, {sha256[:12]}.../{name}"
        data = group.get(name)
        if not isinstance(data, h5py.Dataset) or data.dtype != np.dtype(dtype) or data.ndim != ndim:
            raise InputError(
                where, f"is missing or not {dtype} with {ndim} axes", "extract the latents again"
            )
        if data.nbytes > MAX_ARRAY_BYTES or (data.size and not data.id.get_storage_size()):
            raise InputError(where, f"claims {data.nbytes:,} bytes that are not there, or too many")
        try:
            arrays[name] = data[()]
        except (OSError, RuntimeError) as error:
            raise InputError(where, f"is damaged ({error})", "extract the latents again") from None
    if len({len(array) for array in arrays.values()}) != 1:
        raise InputError(
            f"{file.filename}, {sha256[:12]}...", "its arrays differ in length", "extract them again"
        )
    return EpisodeLatents(**arrays, facts=_facts(file, sha256))


def _hex(fingerprint: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", fingerprint):
        raise InputError(
            "fingerprint", f"{fingerprint!r} is not a SHA-256", "it also names a file, so it is checked"
        )
    return fingerprint
