"""A clean simulated recording with all that is made of it, on which mutations are tried."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from encoders import LatentStore, parse_recipe
from encoders.cnn import CnnEncoder
from encoders.recipes import UntrainedRecipe
from encoders.untrained import measured_untrained
from hardware.checks import Check, Look
from hardware.recording import Recording
from probe.checks import check_extraction, check_leakage, check_recording, check_row_split, look
from sim.record import MotionName, record_simulated

TESTS = Path(__file__).resolve().parents[1]
# Helpers of other tests: found from a script as well, not by pytest alone.
sys.path += [str(folder) for folder in (TESTS / "hardware", TESTS / "probe" / "checks")]

from checked_recording import VIEWS  # noqa: E402

Layer = Literal["recording", "extraction", "split"]
ExposedBy = Literal["the set itself", "a reference recording", "the declaration", "nothing"]

EPISODES = 8
TRAIN, EVALUATE = (0, 1, 2, 3, 4), (5, 6, 7)
EXPECT = {"front": "shoulder_pan", "wrist": "gripper"}  # what each view of a demonstration shows best
REFERENCE_SEED = 1_000_000
WIDTH, SIDE = 16, 16  # of the encoder: dimensions, pixels
SOURCE = "z"  # the encoder's name in front of each check of its latents


@dataclass(frozen=True, eq=False)
class Bench:
    """A clean recording, a reference of the same set-up, an encoder of it, and its true latents.

    Attributes
    ----------
    latents : folder of the store; copied before it is spoiled.
    clean : the state of every check on what is clean, by name.
    """

    recording: Recording
    reference: Recording
    looks: Sequence[Look]
    encoder: CnnEncoder
    latents: Path
    clean: dict[str, str]

    @property
    def rows(self) -> np.ndarray:
        """The episode of each row of latents, int64 (n,)."""
        return episode_of_rows(LatentStore(self.latents), self.encoder, self.recording)


@dataclass(frozen=True)
class Mutation:
    """One mistake.

    Attributes
    ----------
    mistake : what is done wrong, in one sentence.
    named_by : patterns of the names of checks that name the mistake; others may alarm as well.
    run : makes the mistake on a bench, in an empty folder, and checks the result by a public function.
    """

    name: str
    mistake: str
    layer: Layer
    exposed_by: ExposedBy
    named_by: tuple[str, ...]
    run: Callable[[Bench, Path, np.random.Generator], list[Check]]


def simulate(
    folder: Path,
    seed: int,
    *,
    motion: MotionName = "demos",
    episodes: int = EPISODES,
    image_size: int = 48,
    seconds: float = 8.0,
    fps: float = 10.0,
) -> Recording:
    """A clean recording of two views, as small as checks of pixels allow."""
    return record_simulated(
        folder,
        motion=motion,
        episodes=episodes,
        seed=seed,
        views=VIEWS,
        image_size=image_size,
        seconds=seconds,
        fps=fps,
    )


def make_bench(folder: Path, seed: int, reference: Recording | None = None) -> Bench:
    """Record, extract and check; `reference` saves making one."""
    recording = simulate(folder / "clean", seed)
    if reference is None:
        reference = simulate(folder / "reference", REFERENCE_SEED)
    looks, encoder = look(recording), small_encoder(recording, TRAIN)
    found = check_all(recording, reference, looks, encoder, folder / "latents", TRAIN, EVALUATE)
    clean = {check.name: check.state for check in found}
    return Bench(recording, reference, looks, encoder, folder / "latents", clean)


def check_all(
    recording: Recording,
    reference: Recording,
    looks: Sequence[Look],
    encoder: CnnEncoder,
    latents: Path,
    train: Sequence[int],
    evaluate: Sequence[int],
) -> list[Check]:
    """Extract, and every check of a recording, its latents and its split. What demonstrations show is
    declared of them."""
    store = LatentStore(latents)
    store.extract(encoder, recording, VIEWS, [*train, *evaluate])
    rows = episode_of_rows(store, encoder, recording)
    expect = EXPECT if recording.info.motion == "demos" else None
    return [
        *check_recording(recording, looks=looks, reference=reference, expect=expect),
        *check_extraction(SOURCE, encoder, recording, store, train, evaluate, VIEWS, looks=looks),
        *check_leakage(recording, train, evaluate, looks),
        check_row_split(rows[np.isin(rows, train)], rows[np.isin(rows, evaluate)]),
    ]


def episode_of_rows(store: LatentStore, encoder: CnnEncoder, recording: Recording) -> np.ndarray:
    """The episode of each row of latents, int64 (n,)."""
    indices = recording.episode_indices
    counts = [len(store.read(encoder.fingerprint, recording.episode(index).sha256)) for index in indices]
    return np.repeat(indices, counts)


def small_encoder(recording: Recording, train: Sequence[int]) -> CnnEncoder:
    """An untrained network at the smallest size it takes, with statistics of the training episodes."""
    recipe = parse_recipe(
        {"kind": "untrained", "latent_dim": WIDTH, "image_size": SIDE, "seed": 0, "max_frames": 256}
    )
    assert isinstance(recipe, UntrainedRecipe)
    return measured_untrained(recording, train, recipe, VIEWS)[0]


def check_latents(bench: Bench, encoder: CnnEncoder, latents: Path) -> list[Check]:
    """The checks of an encoder's latents in a folder."""
    return check_extraction(SOURCE, encoder, bench.recording, LatentStore(latents), TRAIN, EVALUATE, VIEWS)
