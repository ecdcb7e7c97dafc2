"""One simulated recording, its frames looked at once, and an encoder's latents of it, for all these tests."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from checked_recording import EVALUATE, TRAIN, VIEWS, Extracted, tiny_encoder

from encoders import LatentStore
from hardware.checks import Look
from hardware.recording import Recording
from probe.checks import PixelRows, look, pixel_rows
from sim.record import record_simulated


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("checks") / "demos"
    return record_simulated(folder, motion="demos", episodes=8, seed=0, image_size=64, seconds=12.0, fps=15.0)


@pytest.fixture(scope="session")
def looks(recording: Recording) -> list[Look]:
    return look(recording)


@pytest.fixture(scope="session")
def rows(recording: Recording, looks: Sequence[Look]) -> dict[str, PixelRows]:
    return pixel_rows(recording, looks)


@pytest.fixture(scope="session")
def extracted(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Extracted:
    encoder = tiny_encoder(recording)
    folder = tmp_path_factory.mktemp("latents") / "latents"
    LatentStore(folder).extract(encoder, recording, VIEWS, [*TRAIN, *EVALUATE])
    return Extracted(encoder, folder)
