"""The rows that an export writes: aligned frames and joints, and the action that was in force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hardware.alignment import AlignedEpisode
from hardware.episode import ActionLog, Episode
from hardware.exporters.columns import Column

UNEVEN_PERIODS = 1.5  # a step between rows longer than this many periods is counted


@dataclass(frozen=True)
class ExportRows:
    """The rows of one episode as they are exported.

    Attributes
    ----------
    episode : what they were recorded as.
    frame_index : frame numbers by view, int64 (n,).
    state : float32 (n, J), in LeRobot's units.
    action : float32 (n, A): the target in force at each row's time; None where none were recorded.
    time_ns : int64 (n,) each: "" holds the moment of the joints, a view's name the capture of its frame.
    dropped : rows left out, by reason.
    """

    episode: Episode
    frame_index: dict[str, np.ndarray]
    state: np.ndarray
    action: np.ndarray | None
    time_ns: dict[str, np.ndarray]
    dropped: dict[str, int]

    def __len__(self) -> int:
        return len(self.state)

    @property
    def rate_hz(self) -> float | None:
        """Rows a second as they were captured (median step); None for a single row."""
        steps = np.diff(self.time_ns[""])
        return float(1e9 / np.median(steps)) if len(steps) and np.median(steps) > 0 else None

    def uneven(self, fps: float) -> int:
        """Steps between rows that are longer than 1.5 periods of `fps`: rows or frames are missing there."""
        return int((np.diff(self.time_ns[""]) > UNEVEN_PERIODS * 1e9 / fps).sum())


def export_rows(aligned: AlignedEpisode, state: Sequence[Column], action: Sequence[Column]) -> ExportRows:
    """Convert the rows of one aligned episode.

    A row without a target in force (`actions_in_force`) is dropped.
    """
    episode = aligned.episode
    log = episode.actions() if action else None
    keep, targets, dropped = np.arange(len(aligned)), None, dict(aligned.dropped)
    if log is not None:
        in_force = actions_in_force(aligned, log)
        keep = np.flatnonzero(in_force >= 0)
        targets = _converted(log.target[in_force[keep]], action)
        if len(keep) < len(aligned):
            dropped["actions"] = len(aligned) - len(keep)
    captured = {view: episode.frame_times(view)[aligned.frame_index[view][keep]] for view in aligned.views}
    return ExportRows(
        episode,
        {view: aligned.frame_index[view][keep] for view in aligned.views},
        _converted(aligned.position[keep], state),
        targets,
        {"": aligned.time_ns[keep], **captured},
        dropped,
    )


def actions_in_force(aligned: AlignedEpisode, log: ActionLog) -> np.ndarray:
    """Which action of `log` is in force at each row, int64 (n,); -1 where none is.

    The last one sent by then, held until the next; -1 before the first. Where rows pair by index (imports),
    and the actions are those of the first rows, each is in force at its own row alone.
    """
    time_ns, sent_ns = aligned.time_ns, log.time_ns
    both = min(len(time_ns), len(sent_ns))
    if aligned.episode.info.pairing == "row" and np.array_equal(sent_ns[:both], time_ns[:both]):
        rows = np.arange(len(time_ns))
        return np.where(rows < len(sent_ns), rows, -1)
    return np.searchsorted(sent_ns, time_ns, side="right") - 1


def _converted(values: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
    return np.stack(
        [column.convert(values[:, number]) for number, column in enumerate(columns)], axis=1
    ).astype(np.float32)
