"""The streams of one episode as they came: pace, gaps and faults, on the episode's own clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardware.alignment import MAX_GAP_PERIODS
from hardware.episode import ActionLog, Episode, JointLog, KnotLog
from hardware.errors import InputError

MISSING_PERIODS = 1.5  # of a camera: a longer step lacks a frame


@dataclass(frozen=True)
class Pace:
    """How a stream came: rows, rate and declared rate (Hz), |step - median step| at its 50th and 99th
    percentile and the longest step (ms); None where there are too few rows.
    """

    rows: int
    rate_hz: float | None
    declared_hz: float
    jitter_p50_ms: float | None
    jitter_p99_ms: float | None
    longest_step_ms: float | None


@dataclass(frozen=True)
class Streams:
    """What an episode holds, read once.

    Attributes
    ----------
    frames_ns : by view, the times at which its frames belong among the joints, int64 (n,): their capture, or
        (imports, which pair by number) that of their row.
    gaps_ns : by stream, (beginning, end) of each gap, int64 (g, 2): steps of the joints that alignment does
        not bridge, steps of a camera that lack a frame. Streams without a gap have no entry.
    paces : by stream, `joints` first.
    """

    episode: Episode
    joints: JointLog
    actions: ActionLog | None
    knots: KnotLog | None
    frames_ns: dict[str, np.ndarray]
    gaps_ns: dict[str, np.ndarray]
    paces: dict[str, Pace]
    faults: list[dict[str, Any]]
    start_ns: int
    start_wall_ns: int

    def seconds(self, time_ns: np.ndarray) -> np.ndarray:
        """Seconds since the episode's start; integers are subtracted first, as float64 cannot hold them."""
        return (np.asarray(time_ns, np.int64) - self.start_ns) / 1e9

    def target(self, joint: int) -> np.ndarray | None:
        """What was sent to a joint, in its unit, (m,); None where no action carries its name and unit."""
        info, actions = self.episode.info, self.actions
        if actions is None or info.actions is None or info.actions.unit != info.joints[joint].unit:
            return None
        if info.joints[joint].name not in info.actions.names:
            return None
        return actions.target[:, info.actions.names.index(info.joints[joint].name)]

    @property
    def has_targets(self) -> bool:
        """Whether any joint has targets of its own."""
        return any(self.target(joint) is not None for joint in range(len(self.episode.info.joints)))

    @property
    def timed_faults(self) -> list[dict[str, Any]]:
        """The faults that say when they were; imports note theirs without a time."""
        return [
            fault
            for fault in self.faults
            if isinstance(fault.get("time_ns"), int) and 1 << 63 > fault["time_ns"] >= self.start_ns > 0
        ]


def read_streams(episode: Episode) -> Streams:
    """Read all of an episode but its pictures; InputError where it is damaged."""
    info, joints, clocks = episode.info, episode.joints(), episode.clocks()
    frames_ns = {
        view.name: episode.frame_times(view.name) for view in info.views if episode.has_view(view.name)
    }
    paces = {"joints": pace(joints.time_ns, info.joints_hz)}
    gaps_ns = {"joints": gaps(joints.time_ns, MAX_GAP_PERIODS * 1e9 / info.joints_hz)}
    for view, stamps in frames_ns.items():
        paces[view] = pace(stamps, info.view(view).fps)
        if info.pairing == "clock":
            gaps_ns[view] = gaps(stamps, MISSING_PERIODS * 1e9 / info.view(view).fps)
    if info.pairing == "row":  # the clock of the video is not that of the table
        frames_ns = {view: _as_rows(len(stamps), joints.time_ns) for view, stamps in frames_ns.items()}
    actions, knots = episode.actions(), episode.knots()
    if actions is not None and info.actions is not None:
        _require_columns(actions.target, len(info.actions.names), f"{episode.path}, actions/target")
    if knots is not None:
        _require_columns(knots.position, len(info.joints), f"{episode.path}, knots/position")
    first = [stamps[0] for stamps in (joints.time_ns, *frames_ns.values()) if len(stamps)]
    return Streams(
        episode=episode,
        joints=joints,
        actions=actions,
        knots=knots,
        frames_ns=frames_ns,
        gaps_ns={stream: found for stream, found in gaps_ns.items() if len(found)},
        paces=paces,
        faults=[fault for fault in episode.faults() if isinstance(fault, dict)],
        start_ns=clocks.get("start_monotonic_ns", int(min(first, default=0))),
        start_wall_ns=clocks.get("start_wall_ns", 0),
    )


def _require_columns(values: np.ndarray, count: int, where: str) -> None:
    if values.shape[1] != count:
        raise InputError(where, f"has {values.shape[1]} columns, recording.yaml names {count}")


def _as_rows(count: int, row_ns: np.ndarray) -> np.ndarray:
    """The times of the rows that `count` frames belong to; frames beyond the last row take its time."""
    if not len(row_ns):
        return np.zeros(count, np.int64)
    return row_ns[np.minimum(np.arange(count), len(row_ns) - 1)]


def pace(time_ns: np.ndarray, declared_hz: float) -> Pace:
    """Rate and jitter of a stream's stamps, int64 ns (n,)."""
    if len(time_ns) < 3 or time_ns[-1] <= time_ns[0]:
        return Pace(len(time_ns), None, declared_hz, None, None, None)
    steps = np.diff(time_ns) / 1e6
    p50, p99 = np.percentile(np.abs(steps - np.median(steps)), [50, 99])
    rate = (len(time_ns) - 1) * 1e9 / (time_ns[-1] - time_ns[0])
    return Pace(len(time_ns), float(rate), declared_hz, float(p50), float(p99), float(steps.max()))


def gaps(time_ns: np.ndarray, longest_ns: float) -> np.ndarray:
    """(beginning, end) of each step longer than `longest_ns`, int64 (g, 2), of stamps, int64 ns (n,)."""
    before = np.flatnonzero(np.diff(time_ns) > longest_ns)
    return np.stack([time_ns[before], time_ns[before + 1]], axis=1)


def by_kind(faults: list[dict[str, Any]]) -> dict[str, int]:
    """How many faults there are of each kind, the most frequent first."""
    return dict(Counter(kind_of(fault) for fault in faults).most_common())


def kind_of(fault: dict[str, Any]) -> str:
    """The kind of a fault."""
    return str(fault.get("kind", "?"))
