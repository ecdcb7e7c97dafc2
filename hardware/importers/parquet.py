"""Columns of numbers out of a parquet file that may come from anybody, bounded before they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hardware.errors import InputError

MAX_TABLE_ROWS = 20_000_000
MAX_COLUMN_BYTES = 2 << 30
CUT_OFF = "LeRobot completes its files only when recording ends: record again, or take the file away"


def read_table(path: Path, columns: Sequence[str]) -> pa.Table:
    """Columns of a parquet file that are there, bounded before they are read."""
    try:
        with pq.ParquetFile(path) as file:
            meta = file.metadata
            groups = (meta.row_group(group) for group in range(meta.num_row_groups))
            size = sum(chunk.total_uncompressed_size for chunk in _wanted_chunks(groups, columns))
            if meta.num_rows > MAX_TABLE_ROWS or size > MAX_COLUMN_BYTES:
                raise InputError(
                    path, f"claims {meta.num_rows:,} rows and {size:,} bytes: more than is read at once"
                )
            return file.read([name for name in columns if name in file.schema_arrow.names])
    except InputError:
        raise
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        TypeError,
        LookupError,
    ) as error:  # pyarrow's, of damaged files
        reason = (str(error) or type(error).__name__).splitlines()[0]
        footer = (
            "magic bytes" in reason or "footer" in reason or "too small" in reason or "is 0 bytes" in reason
        )
        problem = "has no parquet footer: it was cut off" if footer else "is not a readable parquet file"
        raise InputError(path, f"{problem} ({reason[:150]})", CUT_OFF) from None


def _wanted_chunks(groups: Iterator[Any], columns: Sequence[str]) -> Iterator[Any]:
    for group in groups:
        for number in range(group.num_columns):
            chunk = group.column(number)
            if any(
                chunk.path_in_schema == name or chunk.path_in_schema.startswith(f"{name}.")
                for name in columns
            ):
                yield chunk


def column_1d(table: pa.Table, name: str, where: object) -> np.ndarray:
    """A column of numbers, float64 (n,); nulls become NaN. Lists of one are taken as numbers."""
    return column_2d(table, name, 1, where)[:, 0]


def column_2d(table: pa.Table, name: str, width: int, where: object) -> np.ndarray:
    """A column of lists of `width` numbers, float64 (n, width); null numbers become NaN."""
    if name not in table.column_names:
        raise InputError(where, f"the table has no column {name!r}", "restore the table")
    array = table.column(name).combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        raise InputError(where, f"column {name!r} is too large to be read at once")
    if (
        pa.types.is_list(array.type)
        or pa.types.is_large_list(array.type)
        or pa.types.is_fixed_size_list(array.type)
    ):
        lengths = array.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(lengths != width)
        if len(wrong):
            found = lengths[wrong[0]] if lengths[wrong[0]] >= 0 else "no"
            raise InputError(
                where,
                f"row {wrong[0]}: {name} has {found} values, not {width}",
                "restore the table",
            )
        array = array.flatten()
    elif width != 1:
        raise InputError(
            where, f"column {name!r} is {array.type}, expected lists of {width} numbers", "restore the table"
        )
    kind = array.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise InputError(where, f"column {name!r} holds {kind}, expected numbers", "restore the table")
    return array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).reshape(-1, width)
