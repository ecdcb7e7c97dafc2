"""Memory between the steps of a training on the CPU."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGEST = (1 << 31) - 1


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, for its next allocation.

    glibc maps large blocks and unmaps them when they are freed, so each step would have the kernel clear the
    same pages again: a third of the time of a step of the paper's CNN. Nothing else changes; the peak stays.

    Returns
    -------
    Whether the allocator took it; other C libraries than glibc have no such setting.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST) and mallopt(_TRIM_THRESHOLD, _LARGEST))
