"""One episode of a recording as one picture: `jointprobe show`."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from hardware.disk import disk_errors
from hardware.errors import InputError
from hardware.recording import Recording
from probe.episode_page import DPI, PAGE_STYLE, Page
from probe.episode_streams import Streams, by_kind, read_streams


def draw_recording(
    recording: Recording | str | Path,
    episode: int | None = None,
    to: str | Path | None = None,
    *,
    frames: int = 8,
) -> tuple[Path, dict[str, Any]]:
    """Draw one episode of a recording as a PNG.

    Parameters
    ----------
    recording : opened, or its folder.
    episode : its number; the first by default.
    to : file to write (.png); NAME-EPISODE.png in the working directory by default. An older one is replaced.
    frames : how many frames of each view, evenly spread, the first and the last among them.

    Returns
    -------
    The file, and the facts that stand in its head, as plain values.

    Raises
    ------
    InputError : no such episode, a file that cannot be written, damaged data.
    """
    recording = recording if isinstance(recording, Recording) else Recording.open(recording)
    chosen = recording.episode(recording.episode_indices[0] if episode is None else episode)
    path = Path(f"{recording.folder.resolve().name}-{chosen.index:06d}.png" if to is None else to)
    if path.suffix.lower() != ".png":
        raise InputError(path, "is no name of a PNG picture", "end it in .png")
    streams = read_streams(chosen)
    _save(draw_episode(recording, streams, frames), path)
    return path, _facts(recording, streams)


def draw_episode(recording: Recording, streams: Streams, frames: int = 8) -> Figure:
    """The same as a figure."""
    if frames < 1:
        raise InputError("frames", f"{frames} is no number of frames", "use 1 or more")
    with mpl.rc_context(PAGE_STYLE):
        return Page(recording, streams, frames).draw()


def _save(figure: Figure, path: Path) -> None:
    temporary = path.with_name(path.name + ".partial")
    with disk_errors(path), mpl.rc_context(PAGE_STYLE):
        try:
            figure.savefig(temporary, format="png", dpi=DPI, metadata={"Software": "jointprobe"})
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def _facts(recording: Recording, streams: Streams) -> dict[str, Any]:
    episode = streams.episode
    return {
        "recording": str(recording.folder),
        "episode": episode.index,
        "sha256": episode.sha256,
        "robot": episode.info.robot,
        "motion": episode.info.motion,
        "seconds": episode.line.seconds,
        "streams": {name: asdict(one) for name, one in streams.paces.items()},
        "gaps": {name: len(found) for name, found in streams.gaps_ns.items()},
        "actions": 0 if streams.actions is None else len(streams.actions.time_ns),
        "knots": 0 if streams.knots is None else len(streams.knots.time_ns),
        "faults": by_kind(streams.faults),
    }
