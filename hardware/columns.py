"""Datasets of an HDF5 file that grow row by row."""

from __future__ import annotations

from typing import Any

import h5py
import hdf5plugin
import numpy as np


class Columns:
    """The growing datasets of `file`: chunked, with checksums, pictures compressed.

    It works on h5py's low level: the resizing and assignment of its datasets cost fifteen times as much.
    """

    def __init__(self, file: h5py.File) -> None:
        self._file = file
        self._datasets: dict[str, h5py.h5d.DatasetID] = {}
        self._lengths: dict[str, int] = {}

    def length(self, name: str) -> int:
        """Rows of a dataset; 0 where it does not exist."""
        return self._lengths.get(name, 0)

    def create(self, name: str, dtype: Any, shape: tuple[int, ...], chunk: int = 512) -> None:
        """Make an empty dataset with rows of `shape`, stored by `chunk` rows."""
        compression: Any = hdf5plugin.Blosc(cname="zstd", clevel=3) if len(shape) == 3 else {}
        data = self._file.create_dataset(
            name,
            (0, *shape),
            dtype,
            maxshape=(None, *shape),
            chunks=(chunk, *shape),
            fletcher32=True,
            **compression,
        )
        self._datasets[name], self._lengths[name] = data.id, 0

    def append(self, name: str, values: np.ndarray, chunk: int = 512) -> None:
        """Append rows, `values` (n, ...), to a dataset; it is made where it does not exist."""
        rest = values.shape[1:]
        if name not in self._datasets and name in self._file:
            self._datasets[name], self._lengths[name] = self._file[name].id, len(self._file[name])
        elif name not in self._datasets:
            self.create(name, values.dtype, rest, chunk)
        data, start = self._datasets[name], self._lengths[name]
        data.set_extent((start + len(values), *rest))
        if values.size:
            place = data.get_space()
            place.select_hyperslab((start, *[0] * len(rest)), values.shape)
            data.write(h5py.h5s.create_simple(values.shape), place, np.ascontiguousarray(values))
        self._lengths[name] = start + len(values)
