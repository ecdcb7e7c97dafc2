"""A recording written once more with something changed: what a check must name, made from what is clean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hardware import Recording, RecordingWriter


@dataclass
class Streams:
    """The streams of an episode, to be changed in place."""

    index: int
    joint_ns: np.ndarray
    position: np.ndarray
    raw: np.ndarray | None
    action_ns: np.ndarray
    target: np.ndarray
    frame_ns: dict[str, np.ndarray]
    frames: dict[str, np.ndarray]


def read(recording: Recording, index: int) -> Streams:
    """All streams of one episode in memory."""
    episode = recording.episode(index)
    log, actions = episode.joints(), episode.actions()
    assert actions is not None
    return Streams(
        index=index,
        joint_ns=log.time_ns.copy(),
        position=log.position.copy(),
        raw=None if log.raw is None else log.raw.copy(),
        action_ns=actions.time_ns.copy(),
        target=actions.target.copy(),
        frame_ns={view: episode.frame_times(view).copy() for view in recording.info.view_names},
        frames={view: np.stack(list(episode.frames(view))) for view in recording.info.view_names},
    )


def rewritten(
    recording: Recording, folder: Path, change: Callable[[list[Streams]], None], **info: Any
) -> Recording:
    """Copy a recording of rgb8 views into `folder` after `change` was made to the list of its episodes."""
    episodes = [read(recording, index) for index in recording.episode_indices]
    change(episodes)
    with RecordingWriter.create(folder, recording.info.model_copy(update=info)) as writer:
        for one in episodes:
            with writer.episode(one.index) as episode:
                more = {} if one.raw is None else {"raw": one.raw}
                episode.joints(one.joint_ns, one.position, **more)
                episode.actions(one.action_ns, one.target)
                for view, frames in one.frames.items():
                    for number, (time_ns, image) in enumerate(zip(one.frame_ns[view], frames)):
                        episode.frame(view, int(time_ns), number, image)
    return Recording.open(folder)
