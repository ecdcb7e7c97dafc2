"""Columns of an HDF5 file that may come from anybody and may be larger than the memory: what is checked
before a row is read, and reading some rows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hardware.episode import _dataset, _refuse_foreign
from hardware.errors import InputError
from hardware.frames import MAX_PIXELS
from hardware.importers.pictures import Header

MAX_COLUMNS = 256
MAX_LIST = 1 << 22
MAX_TABLE_BYTES = 256 << 20  # rows of a column that are read at once
STEP_BYTES = 8 << 20  # pictures held in memory at once, or one chunk
RESTORE = "restore the file from its source"


@contextmanager
def opened_foreign(path: Path, check: Callable[[h5py.File, Path], None], restore: str) -> Iterator[h5py.File]:
    """Open a file of others for reading; refuse what reaches outside it, and what `check` refuses.

    Whatever h5py raises inside the block is damage: one InputError with `restore` for its remedy.
    """
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        truncated = "is truncated" if "truncated" in str(error) else "is not a readable HDF5 file"
        raise InputError(path, truncated, restore) from None
    with file:
        try:
            _refuse_foreign(file, path)
            check(file, path)
            yield file
        except InputError:
            raise
        except (OSError, RuntimeError, LookupError, TypeError, ValueError) as error:  # h5py's, of damage
            raise InputError(path, f"is damaged ({str(error)[:150]})", restore) from None


def is_column(data: Any) -> bool:
    """Whether a member of a file is a dataset with rows."""
    return isinstance(data, h5py.Dataset) and data.ndim > 0


def is_table(data: Any) -> bool:
    """Whether it holds numbers, (N, columns)."""
    return is_column(data) and data.ndim == 2 and data.dtype.kind in "fiu"


def is_pictures(data: Any) -> bool:
    """Whether it holds pictures: uint8, (N, H, W, 3) or (N, 3, H, W)."""
    if not is_column(data) or data.dtype != np.uint8 or data.ndim != 4:
        return False
    return data.shape[3] == 3 or are_channels_first(data)


def are_channels_first(data: h5py.Dataset) -> bool:
    """Whether pictures are (N, 3, H, W): the second axis is 3, and the last neither 3 nor 1 (grey)."""
    return data.shape[1] == 3 and data.shape[3] not in (1, 3)


def picture_column(file: h5py.File, name: str) -> Header:
    """The size of the pictures in a column, which is whole and whose first row can be read."""
    data = file[name]
    where = f"{file.filename}, {name}"
    height, width = data.shape[2:] if are_channels_first(data) else data.shape[1:3]
    if not 0 < height * width <= MAX_PIXELS:
        raise InputError(where, f"claims pictures of {width}x{height} pixels", RESTORE)
    _require_whole(_dataset(file, name, np.uint8, 4))
    if len(data):
        read_rows(data, slice(0, 1))
    return Header("rgb8", int(width), int(height))


def number_column(file: h5py.File, name: str, kinds: str, axes: int) -> h5py.Dataset:
    """A column of numbers that is whole: of `kinds` ("fiu" or "iu"), with 1 or 2 axes."""
    where, data = f"{file.filename}, {name}", file.get(name)
    if not is_column(data):
        raise InputError(where, "is no column of rows", RESTORE)
    if data.dtype.kind not in kinds or data.ndim != axes:
        wanted = "numbers" if "f" in kinds else "whole numbers"
        raise InputError(
            where, f"is {data.dtype} with {data.ndim} axes, expected {wanted} with {axes}", RESTORE
        )
    if axes == 2 and not 0 < data.shape[1] <= MAX_COLUMNS:
        raise InputError(where, f"has {data.shape[1]} columns, not 1 to {MAX_COLUMNS}", RESTORE)
    return _require_whole(_dataset(file, name, data.dtype, axes))


def number_list(file: h5py.File, name: str) -> np.ndarray:
    """A whole list of whole numbers, int64 (n,)."""
    data = number_column(file, name, "iu", 1)
    if len(data) > MAX_LIST:
        raise InputError(
            f"{file.filename}, {name}", f"lists {len(data):,} numbers, not up to {MAX_LIST:,}", RESTORE
        )
    return np.asarray(read_rows(data, slice(None)), np.int64)


def number_rows(data: h5py.Dataset, start: int, count: int) -> np.ndarray:
    """`count` rows of numbers from `start` on, as they are."""
    if count * int(np.prod(data.shape[1:], dtype=np.int64)) * 8 > MAX_TABLE_BYTES:
        raise InputError(
            f"{data.file.filename}, {data.name.lstrip('/')}",
            f"has {count:,} rows in one episode, more than is read at once",
            "see whether the episodes' lengths are right",
        )
    return read_rows(data, slice(start, start + count))


def picture_rows(file: h5py.File, name: str, start: int, count: int) -> Iterator[np.ndarray]:
    """`count` pictures from row `start` on, uint8 (H, W, 3); memory holds one chunk, or some MiB."""
    data = _dataset(file, name, np.uint8, 4)
    for block in _blocks(data, start, start + count):
        yield from np.ascontiguousarray(block.transpose(0, 2, 3, 1)) if are_channels_first(data) else block


def _blocks(data: h5py.Dataset, start: int, stop: int) -> Iterator[np.ndarray]:
    """Rows from border to border of chunks, so that each is decompressed once, up to one that is damaged."""
    chunk = data.chunks[0] if data.chunks else 1
    rows = chunk * max(1, STEP_BYTES // (chunk * int(np.prod(data.shape[1:], dtype=np.int64))))
    while start < stop:
        end = min(stop, (start // chunk) * chunk + rows)
        try:
            yield read_rows(data, slice(start, end))
        except InputError:
            yield from (read_rows(data, slice(row, row + 1)) for row in range(start, end))
        start = end


def read_rows(data: h5py.Dataset, selection: slice) -> np.ndarray:
    """Rows of a dataset; InputError names a compression that is not here, or says that they are damaged."""
    try:
        return data[selection]
    except (OSError, RuntimeError) as error:
        where = f"{data.file.filename}, {data.name.lstrip('/')}"
        unknown = _unknown_filters(data)
        if unknown:
            raise InputError(
                where,
                f"is compressed by {', '.join(unknown)}, which neither HDF5 nor hdf5plugin has",
                "rewrite it with h5repack where that filter is installed",
            ) from None
        raise InputError(where, f"is damaged ({str(error)[:150]})", RESTORE) from None


def text_attribute(data: h5py.Dataset, name: str) -> str | None:
    """An attribute of a column that is a text of up to 64 KiB, or None."""
    value = data.attrs.get(name)
    return value if isinstance(value, str) and len(value) < 1 << 16 else None


def _require_whole(data: h5py.Dataset) -> h5py.Dataset:
    """The dataset; InputError where chunks were never written, which would read as zeros."""
    if data.chunks:
        chunks = [-(-size // chunk) for size, chunk in zip(data.shape, data.chunks)]
        stored, whole = data.id.get_num_chunks(), int(np.prod(chunks, dtype=object))
        if stored < whole:
            raise InputError(
                f"{data.file.filename}, {data.name.lstrip('/')}",
                f"stores {stored:,} of its {whole:,} chunks: the rest was never written",
                RESTORE,
            )
    return data


def _unknown_filters(data: h5py.Dataset) -> list[str]:
    """The filters of a dataset that cannot be undone here, by number and name."""
    creation = data.id.get_create_plist()
    filters = [creation.get_filter(number) for number in range(creation.get_nfilters())]
    return [
        f"filter {one[0]} ({one[3].decode(errors='replace')[:40]})"
        for one in filters
        if not h5py.h5z.filter_avail(one[0])
    ]
