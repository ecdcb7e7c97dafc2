"""What every test stands on: an offline, headless, quiet process, and the real recordings where they are.

Set before anything imports torch, mujoco or matplotlib, since each reads its environment once.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("MUJOCO_GL", "egl")
os.environ.setdefault("MPLBACKEND", "Agg")
# One thread for the small matrices of tests: on shared cores two that wait for each other take several times
# as long as one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

# A busy machine is no failure: examples have no deadline. CI tries the same examples each time.
settings.register_profile("jointprobe", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("jointprobe")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real recordings (never part of the repository); the test is skipped where it is absent."""
    folder = Path(os.environ.get("JOINTPROBE_SHARED_DATA") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real recordings at {folder} (set JOINTPROBE_SHARED_DATA to their folder)")
    return folder
