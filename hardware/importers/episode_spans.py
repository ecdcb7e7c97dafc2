"""Which rows of a file belong to which episode, where it lists their lengths and their first rows."""

from __future__ import annotations

import h5py
import numpy as np

from hardware.errors import InputError
from hardware.importers.hdf5_columns import RESTORE, number_list

LENGTHS, OFFSETS = "ep_len", "ep_offset"


def episode_spans(file: h5py.File) -> tuple[np.ndarray, np.ndarray]:
    """(rows of each episode, its first row), int64 (E,) each: not negative, and no row in two episodes."""
    lengths, offsets = (number_list(file, name) for name in (LENGTHS, OFFSETS))
    where = f"{file.filename}, {LENGTHS}, {OFFSETS}"
    if len(lengths) != len(offsets):
        raise InputError(where, f"list {len(lengths)} and {len(offsets)} episodes", RESTORE)
    if not len(lengths):
        raise InputError(where, "list no episode: the set is empty", "give a set that holds recordings")
    for name, values in ((LENGTHS, lengths), (OFFSETS, offsets)):
        negative = np.flatnonzero(values < 0)
        if len(negative):
            raise InputError(
                f"{file.filename}, {name}, episode {negative[0]}",
                f"is {values[negative[0]]}, and no number of rows is negative",
                RESTORE,
            )
    order = np.argsort(offsets, kind="stable")
    order = order[lengths[order] > 0]
    ahead, behind = order[1:], order[:-1]
    overlap = np.flatnonzero(offsets[ahead] - offsets[behind] < lengths[behind])
    if len(overlap):
        one, other = behind[overlap[0]], ahead[overlap[0]]
        raise InputError(
            where,
            f"episode {one} (from row {offsets[one]} on, {lengths[one]} rows) and episode {other} (from row "
            f"{offsets[other]} on) share rows",
            RESTORE,
        )
    return lengths, offsets
