"""Small pictures as evidence: a suspect frame beside its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from hardware.errors import InputError
from hardware.recording import Recording

WIDTH = 640  # of the whole strip, in pixels
CAPTION = 16  # height of the line above each frame
FONT, FONT_SIZE = cv2.FONT_HERSHEY_SIMPLEX, 0.4

Wanted = tuple[int, str, int]
"""(episode, view, frame number)."""


def strip(recording: Recording, wanted: Sequence[Wanted]) -> np.ndarray | None:
    """Frames side by side, each under its name: RGB uint8 (h, w, 3), at most `WIDTH` wide.

    None where one of them cannot be read: a picture is never worth an error.
    """
    try:
        frames = _frames(recording, wanted)
    except InputError:
        return None
    width = WIDTH // len(frames)
    tallest = max(round(frame.shape[0] * width / frame.shape[1]) for frame in frames)
    cells = []
    for frame, (episode, view, number) in zip(frames, wanted):
        height = round(frame.shape[0] * width / frame.shape[1])
        cell = np.full((CAPTION + tallest, width, 3), 255, np.uint8)
        how = cv2.INTER_AREA if width < frame.shape[1] else cv2.INTER_NEAREST
        cell[CAPTION : CAPTION + height] = cv2.resize(frame, (width, height), interpolation=how)
        names = (
            f"episode {episode} {view}, frame {number}",
            f"{episode} {view}, frame {number}",
            f"{number}",
        )
        name = next((one for one in names if _text_width(one) < width - 6), names[-1])
        cv2.putText(cell, name, (3, 12), FONT, FONT_SIZE, (0, 0, 0), 1, cv2.LINE_AA)
        cells.append(cell)
    return np.concatenate(cells, axis=1)


def _text_width(text: str) -> int:
    return int(cv2.getTextSize(text, FONT, FONT_SIZE, 1)[0][0])


def _frames(recording: Recording, wanted: Sequence[Wanted]) -> list[np.ndarray]:
    """The frames in the order wanted, each view of an episode read once."""
    numbers: dict[tuple[int, str], set[int]] = {}
    for episode, view, number in wanted:
        numbers.setdefault((episode, view), set()).add(number)
    found = {}
    for (episode, view), some in numbers.items():
        rising = sorted(some)
        for number, frame in zip(rising, recording.episode(episode).frames(view, rising)):
            found[episode, view, number] = frame
    return [found[one] for one in wanted]
