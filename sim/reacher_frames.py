"""The images of a pair set on disk: `frames.h5` in its folder, written so that it can be gone on with.

Chunks of about 1 MiB, Blosc-zstd with checksums: some 550 bytes an image. While it is written it is
`frames.h5.partial` with a journal beside it, and whatever ends the program leaves it as of its last commit.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401  registers compressions with HDF5
import numpy as np

from hardware.columns import Columns
from hardware.disk import disk_error, disk_errors, fsync_path
from hardware.errors import InputError
from hardware.journal import journal_path
from hardware.journaled_file import JournaledFile
from hardware.recording import Progress
from sim.reacher_processes import BLOCK, ReacherRenderers
from sim.reacher_rendering import SIDE

FRAMES = "frames.h5"
REMAKE = "remove the folder and make the set again"
STORED_IS_SAFE = "the images stored so far are kept"
_COMMIT_BLOCKS = 8  # about 700 images: what a kill can cost


def write_frames(
    to: Path, states: np.ndarray, renderers: ReacherRenderers, progress: Progress | None
) -> None:
    """Render and store the images of states behind those that are on the disk already, and give the whole its
    name.

    Raises
    ------
    InputError : a full disk, or damage to what was stored; those of rendering.
    """
    partial = to / f"{FRAMES}.partial"
    disk, file = _opened(partial, len(states))
    try:
        with _errors_of(partial, disk):
            columns = Columns(file)
            if "frames" not in file:
                columns.create("frames", np.uint8, (SIDE, SIDE, 3), chunk=BLOCK)
        done = len(file["frames"])
        for number, block in enumerate(renderers.blocks(states, done)):
            with _errors_of(partial, disk):
                columns.append("frames", block, chunk=BLOCK)
                if number % _COMMIT_BLOCKS == _COMMIT_BLOCKS - 1:
                    file.flush()
                    disk.commit()
            done += len(block)
            if progress:
                progress(done, len(states), "rendering")
        with _errors_of(partial, disk):
            file.close()
            disk.raise_error()
            disk.finish()
    finally:
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            file.close()
        disk.close()
    with disk_errors(partial, STORED_IS_SAFE):
        os.replace(partial, to / FRAMES)
        fsync_path(to)
        journal_path(partial).unlink(missing_ok=True)


def _opened(partial: Path, total: int) -> tuple[JournaledFile, h5py.File]:
    """The file of images as of its last commit; empty where it had none."""
    with disk_errors(partial, STORED_IS_SAFE):
        if partial.exists():
            disk = JournaledFile.reopen(partial)
            if disk.size:
                try:
                    file = h5py.File(disk, "r+")
                    stored = len(file["frames"])
                    if stored == total or (stored < total and stored % BLOCK == 0):
                        return disk, file
                    file.close()
                    raise ValueError(f"{stored} images")
                except (OSError, RuntimeError, KeyError, ValueError) as error:
                    disk.close()
                    raise InputError(
                        partial, f"is damaged ({str(error)[:150]})", "remove it: its images are made again"
                    ) from None
            disk.close()
        disk = JournaledFile.create(partial)
        return disk, h5py.File(disk, "w")


@contextlib.contextmanager
def _errors_of(path: Path, disk: JournaledFile) -> Iterator[None]:
    """The disk's errors, which HDF5 must not see, and HDF5's own, as one InputError."""
    try:
        yield
        disk.raise_error()
    except (OSError, RuntimeError) as error:
        raise disk_error(path, disk.error or error, STORED_IS_SAFE) from None


def read_frames(folder: Path, rows: np.ndarray, progress: Progress | None) -> np.ndarray:
    """Images uint8 (n, 64, 64, 3) of rows int64 (n,), which are there; each chunk is decompressed once.

    Raises
    ------
    InputError : damaged images.
    """
    frames = np.empty((len(rows), SIDE, SIDE, 3), np.uint8)
    order = np.argsort(rows, kind="stable")
    chunks, starts = np.unique(rows[order] // BLOCK, return_index=True)
    path = folder / FRAMES
    try:
        with h5py.File(path, "r") as file:
            stored = file["frames"]
            for number, (chunk, places) in enumerate(zip(chunks, np.split(order, starts[1:]))):
                block = stored[chunk * BLOCK : (chunk + 1) * BLOCK]
                frames[places] = block[rows[places] - chunk * BLOCK]
                if progress:
                    progress(number + 1, len(chunks), f"reading {folder.name}")
    except (OSError, RuntimeError, KeyError) as error:
        raise InputError(path, f"is damaged ({str(error)[:150]})", REMAKE) from None
    return frames
