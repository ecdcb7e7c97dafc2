"""Columns of numbers and of pictures out of a parquet file that may come from anybody, bounded before they
are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hardware.errors import InputError
from hardware.importers.pictures import Header, NotPicture, picture_header
from hardware.importers.source import Disagreements

MAX_SECONDS = 9e9  # what int64 nanoseconds hold
MAX_TABLE_ROWS = 20_000_000
MAX_COLUMN_BYTES = 2 << 30
PICTURES_A_STEP = 16  # held in memory at once
CUT_OFF = "LeRobot completes its files only when recording ends: record again, or take the file away"


def read_table(path: Path, columns: Sequence[str]) -> pa.Table:
    """Columns of a parquet file that are there, bounded before they are read."""
    with _opened(path) as file:
        _bound(path, file, range(file.metadata.num_row_groups), columns)
        return file.read([name for name in columns if name in file.schema_arrow.names])


def read_schema(path: Path) -> pa.Schema:
    """Names and types of a file's columns."""
    with _opened(path) as file:
        return file.schema_arrow


def is_picture_column(kind: pa.DataType) -> bool:
    """Whether a column of this type holds encoded pictures: bytes, or (Hugging Face) structs with `bytes`."""
    if pa.types.is_struct(kind):
        index = kind.get_field_index("bytes")
        return index >= 0 and _is_bytes(kind.field(index).type)
    return _is_bytes(kind)


def stream_pictures(path: Path, column: str, rows: np.ndarray | None = None) -> Iterator[bytes | None]:
    """The encoded pictures of a column, some at a time; None where a row has none.

    A struct's `path` is never followed.

    Parameters
    ----------
    rows : int (n,), rising row numbers that are wanted; None for all.
    """
    with _opened(path) as file:
        if column not in file.schema_arrow.names or not is_picture_column(
            file.schema_arrow.field(column).type
        ):
            raise InputError(
                path, f"the table has no column {column!r} that holds pictures", "restore the table"
            )
        first = 0
        for group in range(file.metadata.num_row_groups):
            stop = first + file.metadata.row_group(group).num_rows
            wanted = np.arange(first, stop) if rows is None else rows[(rows >= first) & (rows < stop)]
            if len(wanted):
                _bound(path, file, [group], [column])
                yield from _pictures_of(file, group, column, wanted - first)
            first = stop


def first_header(episodes: Iterable[tuple[Path, np.ndarray | None]], column: str) -> Header | None:
    """What the first picture of `column` that can be kept says of all of them; None where no file has it.

    Parameters
    ----------
    episodes : file and rows (see `stream_pictures`) of each.

    Raises
    ------
    InputError : where files have the column, and none of the episodes begins with such a picture.
    """
    refused: InputError | None = None
    for path, rows in episodes:
        try:
            if column not in read_schema(path).names:
                continue
            data = next(stream_pictures(path, column, rows), None)
        except InputError:
            continue  # a damaged file: reading its rows says so
        try:
            if data is None:
                raise NotPicture("is not there")
            return picture_header(data)
        except NotPicture as error:
            refused = refused or InputError(
                f"{path}, column {column!r}",
                f"the first picture {error}",
                "restore the file, or take the column out of the set",
            )
    if refused is not None:
        raise refused
    return None


def _pictures_of(file: Any, group: int, column: str, wanted: np.ndarray) -> Iterator[bytes | None]:
    at = 0
    for batch in file.iter_batches(PICTURES_A_STEP, row_groups=[group], columns=[column]):
        array = batch.column(batch.schema.get_field_index(column))
        for row in wanted[(wanted >= at) & (wanted < at + len(array))] - at:
            value = array[int(row)].as_py()
            data = value.get("bytes") if isinstance(value, dict) else value
            yield data or None  # no bytes are no picture
        at += len(array)


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a parquet file; what pyarrow raises while it is read becomes one InputError."""
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise InputError(path, f"has two columns {twice[0]!r}", "give each a name of its own")
            yield file
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


def _bound(path: Path, file: Any, groups: Sequence[int], columns: Sequence[str]) -> None:
    """InputError where the columns of these row groups claim more than is read at once."""
    meta = file.metadata
    chunks = _wanted_chunks((meta.row_group(group) for group in groups), columns)
    size = sum(chunk.total_uncompressed_size for chunk in chunks)
    if meta.num_rows > MAX_TABLE_ROWS or size > MAX_COLUMN_BYTES:
        raise InputError(path, f"claims {meta.num_rows:,} rows and {size:,} bytes: more than is read at once")


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


def column_values(table: pa.Table, name: str) -> list[Any]:
    """The different values of a column of numbers or words; none of a column of lists."""
    column = table.column(name)
    return [] if pa.types.is_nested(column.type) else column.unique().to_pylist()


def column_time(table: pa.Table, name: str, where: object) -> np.ndarray:
    """A column of time stamps in seconds, float64 (n,), each of them a number."""
    stamps = column_1d(table, name, where)
    bad = np.flatnonzero(~(np.abs(stamps) < MAX_SECONDS))
    if len(bad):
        raise InputError(
            where, f"row {bad[0]}: {name} {stamps[bad[0]]} is no time in seconds", "restore the table"
        )
    return stamps


def note_rows_out_of_step(table: pa.Table, where: object, disagreements: Disagreements) -> None:
    """Rows must count themselves from 0, where there is a column `frame_index`."""
    if "frame_index" not in table.column_names:
        return
    frame_index = column_1d(table, "frame_index", where)
    off = np.flatnonzero(frame_index != np.arange(len(frame_index)))
    if len(off):
        disagreements.note(
            "frame_index",
            "joints",
            f"row {off[0]} has frame_index {frame_index[off[0]]:.0f} ({len(off)} rows out of step)",
            "rows were lost, repeated or reordered: restore the table",
        )
