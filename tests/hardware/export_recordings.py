"""Small recordings whose export can be told by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from recordings import PERIOD_NS, START_NS, scene, small_info

from hardware import Actions, Recording, RecordingWriter, View


def hand_made(
    folder: Path, *, action_at_ms: list[int] | None, hole: tuple[int, int] = (0, 0), frames: int = 12
) -> Recording:
    """One episode of 12 frames at 10 Hz; joint samples from `hole[0]` to `hole[1]` (ms) are missing."""
    actions = None if action_at_ms is None else Actions(names=["joint0", "joint1"])
    view = View(name="front", width=32, height=32, fps=10, encoding="rgb8")
    with RecordingWriter.create(folder, small_info(views=(view,), actions=actions)) as writer:
        with writer.episode(0) as episode:
            samples = START_NS + PERIOD_NS * np.arange(frames * 10 + 1)
            ms = (samples - START_NS) // 1_000_000
            samples = samples[(ms < hole[0]) | (ms >= hole[1])]
            seconds = (samples - START_NS) / 1e9
            episode.joints(samples, np.stack([seconds, -seconds], axis=1))
            if action_at_ms:
                at = START_NS + 1_000_000 * np.array(action_at_ms)
                episode.actions(at, np.arange(2 * len(at)).reshape(-1, 2))
            for number in range(frames):
                captured = START_NS + number * 100_000_000 + 5_000_000
                episode.frame("front", captured, number, scene(np.array([number / 10, 0.3])))
    return Recording.open(folder)


def moving_pattern(folder: Path, episodes: int, frames: int) -> Recording:
    """Blocks of chance (grey: video keeps colour at half the resolution) that move three pixels a frame, in
    two views of different sizes.
    """
    sizes = {"front": (96, 64), "wrist": (64, 80)}
    views = tuple(
        View(name=name, width=width, height=height, fps=30, encoding="rgb8")
        for name, (width, height) in sizes.items()
    )
    period = 33_333_333
    with RecordingWriter.create(folder, small_info(views=views, actions=None)) as writer:
        for index in range(episodes):
            rng = np.random.default_rng(index)
            grounds = {
                name: rng.integers(0, 255, (height // 8, width // 8, 1), np.uint8)
                .repeat(8, 0)
                .repeat(8, 1)
                .repeat(3, 2)
                for name, (width, height) in sizes.items()
            }
            with writer.episode(index) as episode:
                samples = START_NS + PERIOD_NS * np.arange(4 * frames)
                episode.joints(samples, np.zeros((len(samples), 2)))
                for number in range(frames + index):
                    for offset, (name, ground) in enumerate(grounds.items()):
                        at = START_NS + 1 + number * period + offset * 5_000_000
                        episode.frame(name, at, number, np.roll(ground, 3 * number, axis=1))
    return Recording.open(folder)
