"""Memory that is freed is kept, seen in the pages that the kernel has to clear again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import torch
from encoders.kept_memory import keep_freed_memory

if sys.argv[1] == "kept":
    assert keep_freed_memory()
for _ in range(3):
    torch.ones(16 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones(16 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc's allocator")
def test_what_is_freed_is_not_mapped_again() -> None:
    faults = {
        name: int(subprocess.check_output([sys.executable, "-c", SCRIPT, name], text=True))
        for name in ("mapped", "kept")
    }
    assert faults["mapped"] > 10 * 16_000  # pages of 4 KiB in 64 MiB
    assert faults["kept"] < faults["mapped"] / 3  # one block or two may still find no room
