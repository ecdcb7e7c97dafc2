"""Small real recordings for the tests of every room: a bright square whose place follows the joints."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from hardware import Actions, Joint, Recording, RecordingInfo, RecordingWriter, View

PERIOD_NS = 10_000_000
START_NS = 1_000_000_000


def scene(position: np.ndarray, size: int = 32) -> np.ndarray:
    """uint8 (size, size, 3): joint 0 moves a square sideways, joint 1 up and down, in a colour of its own."""
    image = np.zeros((size, size, 3), np.uint8)
    image[..., 2] = int(60 + 30 * position[0])  # no two frames of a moving arm are alike
    column, row = (int((0.5 + angle / 4) * (size - 8)) for angle in position[:2])
    image[max(row, 0) : row + 8, max(column, 0) : column + 8] = (220, 90, 10)
    return image


def small_info(views: tuple[View, ...] | None = None, joints: int = 2, **changes: object) -> RecordingInfo:
    """A valid RecordingInfo with views `front` (rgb8) and `side` (jpeg), both 32x32 at 10 Hz."""
    if views is None:
        views = (
            View(name="front", width=32, height=32, fps=10, encoding="rgb8"),
            View(name="side", width=32, height=32, fps=10, encoding="jpeg"),
        )
    names = [f"joint{number}" for number in range(joints)]
    fields = dict(
        robot="test",
        joints=[Joint(name=name, lower=-2.0, upper=2.0) for name in names],
        actions=Actions(names=names),
        views=list(views),
        joints_hz=100,
        motion="demos",
    )
    return RecordingInfo(**{**fields, **changes})


def make_recording(
    folder: Path, episodes: int = 4, frames: int = 20, seed: int = 0, knots: bool = False
) -> Recording:
    """Record `episodes` smooth random motions of two joints with two views; `knots` marks one every 0.6 s."""
    info = small_info(motion="walk" if knots else "demos")
    with RecordingWriter.resume(folder, info) as writer:
        for index in range(episodes):
            if index not in writer.sealed:
                _record_one(writer, index, frames, np.random.default_rng([seed, index]), knots)
    return Recording.open(folder)


def _record_one(
    writer: RecordingWriter, index: int, frames: int, rng: np.random.Generator, knots: bool
) -> None:
    phase, rate = rng.uniform(0, 6, 2), rng.uniform(0.5, 2.0, 2)

    def joints_at(time_ns: np.ndarray) -> np.ndarray:
        return np.sin(phase + np.multiply.outer((time_ns - START_NS) / 1e9, rate))

    with writer.episode(index) as episode:
        samples = START_NS + PERIOD_NS * np.arange(frames * 10 + 5)
        episode.joints(samples, joints_at(samples))
        episode.actions(samples, joints_at(samples + PERIOD_NS))
        if knots:
            reached = START_NS + 600_000_000 * np.arange(frames // 6 + 1)
            episode.knots(reached, joints_at(reached))
        for number in range(frames):
            for view, offset_ns in (("front", 3_000_000), ("side", 7_000_000)):
                captured = START_NS + number * 100_000_000 + offset_ns
                image = scene(joints_at(np.array([captured]))[0])
                if view == "side":  # from the other side, or it would be one camera under two names
                    image = image[::-1, ::-1]
                    image = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))[1].tobytes()
                episode.frame(view, captured, number, image)
        episode.clocks(start=(START_NS, START_NS), end=(int(samples[-1]), int(samples[-1])))
