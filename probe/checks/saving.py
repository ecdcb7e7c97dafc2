"""Pictures of what checks saw, as files that people open."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2

from hardware.checks import Check, Look
from hardware.disk import disk_errors
from hardware.errors import InputError
from hardware.recording import Recording
from probe.checks.pictures import picture_of
from probe.checks.pixels import pixel_rows
from probe.checks.view_map import draw_view_map, measure_view_map

HEAT_MAP = "heat_map.svg"  # of views against joints
FILES = {"view_map": "view_map_frames"}  # what the view map's finding shows are frames, not the map


@dataclass(frozen=True)
class Saved:
    """The files that were written, and the checks that warn or fail of which there is nothing to see."""

    written: list[Path]
    unseen: list[str]

    def lines(self) -> list[str]:
        """What to tell."""
        told = [f"wrote {path}" for path in self.written]
        if self.unseen:
            told.append(f"no picture of {', '.join(self.unseen)}: nothing to see in frames or traces")
        if not self.written:
            told.append("no picture: nothing failed" if not self.unseen else "no picture was written")
        return told


def picture_folder(folder: str | Path, recording: Recording) -> Path:
    """A folder that pictures can be written to; InputError where it cannot be made, or lies in the recording.

    One that is not there is made and removed again: it is there for good only with a picture in it.
    """
    folder = Path(folder)
    if Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(recording.folder)):
        raise InputError(folder, "lies inside the recording, which is only read", "choose another folder")
    if folder.exists() and not folder.is_dir():
        raise InputError(folder, "is a file", "name a folder for the pictures")
    if not folder.exists():
        with disk_errors(folder):
            folder.mkdir(parents=True)
            folder.rmdir()
    return folder


def save_pictures(
    folder: str | Path, recording: Recording, checks: Sequence[Check], looks: Sequence[Look]
) -> Saved:
    """Write `CHECK.png` of each warning and failure that can be seen, and a heat map of views against joints.

    Raises
    ------
    InputError : the folder cannot be made, or a file cannot be written.
    """
    folder = picture_folder(folder, recording)
    rows = pixel_rows(recording, looks) if looks else {}
    files: dict[Path, bytes] = {}
    unseen = []
    for check in checks:
        if check.alarm:
            picture = picture_of(check, recording, looks, rows)
            if picture is None:
                unseen.append(check.name)
                continue
            done, png = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
            assert done
            name = re.sub("[^A-Za-z0-9_.-]+", "-", FILES.get(check.name, check.name))
            files[folder / f"{name}.png"] = png.tobytes()
    measured = measure_view_map(rows) if rows else None
    if measured is not None:
        from reports.marks import figure_svg

        files[folder / HEAT_MAP] = figure_svg(draw_view_map(measured)).encode()
    if files:
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for path, content in files.items():
                path.write_bytes(content)
    return Saved(list(files), unseen)
