"""What every export is asked for: which views, which episodes, and where to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hardware.errors import InputError
from hardware.recording import Recording
from hardware.schema import RecordingInfo


def chosen_views(info: RecordingInfo, anchor: str | None, views: Sequence[str] | None) -> list[str]:
    """The views to export, all or `views`, and first the anchor: `anchor`, or the first of them."""
    chosen = list(dict.fromkeys(info.view_names if views is None else views))
    if anchor is not None:
        chosen = [anchor, *(view for view in chosen if view != anchor)]
    if not chosen:
        raise InputError("views", "there are none, and rows are made of frames", "export needs a view")
    for name in chosen:
        info.view(name)
    return chosen


def refuse_target(recording: Recording, to: Path) -> None:
    """InputError where `to` exists, or lies inside the recording."""
    if to.exists() or to.is_symlink():
        raise InputError(to, "already exists", "choose another name for the dataset")
    if to.resolve().is_relative_to(recording.folder.resolve()):
        raise InputError(to, "lies inside the recording", "choose a folder outside of it")


def chosen_episodes(
    recording: Recording, views: Sequence[str], episodes: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    """(episodes to export, episodes left out because a view has no frames there)."""
    if episodes is not None:
        return list(dict.fromkeys(episodes)), []
    whole = [
        number
        for number in recording.episode_indices
        if all(recording.episode(number).has_view(view) for view in views)
    ]
    if not whole:
        raise InputError(
            recording.folder, f"no episode has frames of {' and '.join(views)}", "choose other views"
        )
    return whole, sorted(set(recording.episode_indices) - set(whole))
