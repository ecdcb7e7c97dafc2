"""What a running recorder looks like at one moment, for whoever shows it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hardware.arm import JointSample


@dataclass(frozen=True)
class ViewState:
    """One camera as it runs now."""

    name: str
    state: str
    rate_hz: float
    declared_hz: float
    frames: int
    repeated: int


@dataclass(frozen=True)
class Snapshot:
    """What a person in front of the arm wants to see, now."""

    phase: str
    episode: int | None
    sealed: int
    episodes: int
    seconds: float
    limit_s: float | None
    rows: int
    joints_hz: float
    declared_hz: float
    jitter_ms: tuple[float, float]
    overruns: int
    sample: JointSample | None
    target: np.ndarray | None
    joint_names: list[str]
    views: list[ViewState]
    faults: dict[str, int]
    free_bytes: int
    waiting_bytes: int
    keys: str
