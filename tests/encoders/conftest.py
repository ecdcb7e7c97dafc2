"""Small recordings of a coloured dot that follows two joints, made by the real writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from hardware import Joint, Recording, RecordingInfo, RecordingWriter, View
from hardware.schema import Actions

SIDE = 32
FPS = 10.0
KNOT_PERIOD_S = 0.6


def dot(position: np.ndarray, view: int) -> np.ndarray:
    """A frame (SIDE, SIDE, 3): a dot at (pan, lift), red in view 0, green in view 1, on a grey ramp."""
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    image = np.repeat((40 + rows)[:, :, None], 3, axis=2).astype(np.uint8)
    centre = SIDE / 2 + np.asarray(position) * SIDE / 3
    near = (rows - centre[1]) ** 2 + (columns - centre[0]) ** 2 < 16
    image[near] = np.roll([250, 30, 30], view)
    return image


def make_recording(
    folder: Path,
    *,
    motion: str = "demos",
    episodes: int = 3,
    rows: int = 40,
    views: tuple[str, ...] = ("front", "wrist"),
    seed: int = 0,
    actions_from_s: float | None = None,
    dropped: Sequence[int] = (),
) -> Recording:
    """Demos are sines, walks an AR(1) process at knots with straight lines between; 10 fps, 50 Hz.

    Actions, where there are any, are where the joints will be 0.1 s later, sent at 25 Hz from that second
    of an episode on. Rows `dropped` have no frames.
    """
    info = RecordingInfo(
        robot="dot",
        joints=[Joint(name="pan"), Joint(name="lift")],
        views=[View(name=name, width=SIDE, height=SIDE, fps=FPS, encoding="rgb8") for name in views],
        joints_hz=50.0,
        motion=motion,
        actions=None if actions_from_s is None else Actions(names=["pan", "lift"]),
    )
    seconds = rows / FPS
    times = np.arange(0.0, seconds, 0.02)
    with RecordingWriter.create(folder, info) as writer:
        for index in range(episodes):
            rng = np.random.default_rng([seed, index])
            knot_times = np.arange(0.0, seconds + KNOT_PERIOD_S, KNOT_PERIOD_S)
            knots = np.zeros((len(knot_times), 2))
            for step in range(len(knots)):
                drawn = rng.standard_normal(2) * 0.4
                knots[step] = drawn if step == 0 else 0.7 * knots[step - 1] + np.sqrt(1 - 0.49) * drawn
            phase = rng.uniform(0, 6, 2)

            def position(t: np.ndarray, knots=knots, knot_times=knot_times, phase=phase) -> np.ndarray:
                if motion == "walk":
                    return np.stack(
                        [np.interp(t, knot_times, knots[:, joint]) for joint in range(2)], axis=-1
                    )
                return 0.8 * np.stack([np.sin(1.1 * t + phase[0]), np.sin(0.7 * t + phase[1])], axis=-1)

            with writer.episode(index) as episode:
                episode.clocks(start=(0, 0), end=(round(seconds * 1e9), round(seconds * 1e9)))
                episode.joints(np.round(times * 1e9).astype(np.int64), position(times))
                if motion == "walk":
                    reached = np.round(knot_times * 1e9).astype(np.int64)
                    inside = knot_times < seconds
                    episode.knots(reached[inside], knots[inside])
                if actions_from_s is not None:
                    sent = np.arange(actions_from_s, seconds, 0.04)
                    episode.actions(np.round(sent * 1e9).astype(np.int64), position(sent + 0.1))
                for row in sorted({*range(rows)} - {*dropped}):
                    at = row / FPS
                    for number, view in enumerate(views):
                        episode.frame(view, round(at * 1e9), row, dot(position(np.array(at)), number))
    return Recording.open(folder)


@pytest.fixture(scope="session")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Three episodes of 40 rows, two views."""
    return make_recording(tmp_path_factory.mktemp("recordings") / "demos")


@pytest.fixture(scope="session")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """The same as a walk, with knots."""
    return make_recording(tmp_path_factory.mktemp("recordings") / "walk", motion="walk")


@pytest.fixture(scope="session")
def acting(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Three episodes of 60 rows with actions, unknown at the first three rows; row 40 is missing."""
    folder = tmp_path_factory.mktemp("recordings") / "acting"
    return make_recording(folder, rows=60, actions_from_s=0.25, dropped=[40])


@pytest.fixture(scope="session")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Eight episodes of 60 rows with actions: enough to learn from."""
    folder = tmp_path_factory.mktemp("recordings") / "eight"
    return make_recording(folder, episodes=8, rows=60, actions_from_s=0.0)


@pytest.fixture
def recording_maker(tmp_path: Path) -> Callable[..., Recording]:
    """make_recording in a folder of the test's own."""
    return lambda **settings: make_recording(tmp_path / "recording", **settings)
