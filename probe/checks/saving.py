"""Pictures of what checks saw, as files that people open."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import cv2

from hardware.checks import Check, Look
from hardware.disk import disk_errors
from hardware.errors import InputError
from hardware.recording import Recording
from probe.checks.pixels import pixel_rows
from probe.checks.view_map import draw_view_map, measure_view_map


def picture_folder(folder: str | Path) -> Path:
    """A folder for pictures, made where it is not there; InputError where it cannot be."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(folder, "is a file", "name a folder for the pictures")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def save_pictures(
    folder: str | Path, recording: Recording, checks: Sequence[Check], looks: Sequence[Look]
) -> list[Path]:
    """Write `CHECK.png` of each warning and failure that has a picture, and `view-map.svg` where one is.

    Returns
    -------
    The files written.

    Raises
    ------
    InputError : the folder cannot be made, or a file cannot be written.
    """
    folder = picture_folder(folder)
    written = []
    with disk_errors(folder):
        for check in checks:
            if check.picture is not None and check.state != "pass":
                path = folder / f"{re.sub('[^A-Za-z0-9_.-]+', '-', check.name)}.png"
                done, png = cv2.imencode(".png", cv2.cvtColor(check.picture, cv2.COLOR_RGB2BGR))
                assert done
                path.write_bytes(png.tobytes())
                written.append(path)
        measured = measure_view_map(pixel_rows(recording, looks)) if looks else None
        if measured is not None:
            from reports.marks import figure_svg

            path = folder / "view-map.svg"
            path.write_text(figure_svg(draw_view_map(measured)), encoding="utf-8")
            written.append(path)
    return written
