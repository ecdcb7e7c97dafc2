"""Offsets: a joint that rests elsewhere than before, and where it went there.

A joint that hardly moves within episodes was either turned while it was recorded, which its rows show, or
between two episodes, of which nothing is recorded: only then may its calibration have changed. Of a joint
that moves within episodes only a level that stays changed from one episode on can be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hardware.checks.check import Check, not_testable
from hardware.checks.joint_values import constant_columns
from hardware.episode import JointLog
from hardware.recording import Recording

OFFSET_RAD = 0.15  # a step of a joint's median between two episodes is one from here on,
OFFSET_RATIO = 10.0  # where it is this many times the joint's usual std within an episode,
HARDLY_RAD = 0.03  # and that is under this: joints that move have other medians in each episode anyway
ENDS, MOST_END_ROWS = 10, 10  # an episode's start and end are a tenth of it each, 10 rows at most
MOST_MOVES = 4  # of one joint that are told one by one
# A joint that moves within episodes has another zero from one episode on where all its medians (or all its
# starts) before lie apart from all after by this much more than they spread on either side. With 5 episodes
# on either side this happens to the medians of 6 joints that wander at random in under 1 of 1000 recordings.
SHIFT_EPISODES, SHIFT_RATIO = 5, 2.0


@dataclass(frozen=True)
class Move:
    """A joint that was left elsewhere: at `row` of `episode`, or (row None) between `episode` and `after`."""

    joint: str
    episode: int
    after: int
    row: int | None
    start_rad: float
    end_rad: float

    @property
    def size_rad(self) -> float:
        return abs(self.end_rad - self.start_rad)

    def __str__(self) -> str:
        where = (
            f"at row {self.row} of episode {self.episode}"
            if self.row is not None
            else f"between episodes {self.episode} and {self.after}"
        )
        start, end = (round(one, 2) + 0.0 for one in (self.start_rad, self.end_rad))  # never -0.00
        return f"from {start:.2f} to {end:.2f} rad {where}"


def check_offsets(recording: Recording, logs: dict[int, JointLog]) -> Check:
    """A joint that rests elsewhere in another episode by far more than it moves in either, or that keeps
    another middle or start from one episode on.
    """
    moves: list[Move] = []
    shifts: list[Move] = []
    skipped = {index: constant_columns(log) for index, log in logs.items()}
    testable = False
    for column, joint in enumerate(recording.info.joints):
        values = {
            index: log.position[:, column]
            for index, log in logs.items()
            if len(log.position) and column not in skipped[index]
        }
        if joint.unit != "rad" or len(values) < 2:
            continue
        testable = True
        found = moves_between(joint.name, values)
        moves += found
        shift = None if found else _lasting_shift(joint.name, values)
        shifts += [] if shift is None else [shift]
    if not testable:
        return not_testable("joint_offsets", "no joint is an angle and there in two episodes")
    inside = [one for one in moves if one.row is not None]
    between = [one for one in moves if one.row is None]
    everything = [*inside, *between, *shifts]
    evidence = {
        "step_rad": {
            name: round(max(one.size_rad for one in everything if one.joint == name), 4)
            for name in dict.fromkeys(one.joint for one in everything)
        },
        "moves": [
            {
                "joint": one.joint,
                "lasting": one in shifts,
                "episodes": [one.episode] if one.row is not None else [one.episode, one.after],
                "row": one.row,
                "from_rad": round(one.start_rad, 4),
                "to_rad": round(one.end_rad, 4),
            }
            for one in everything
        ],
        "episodes": sorted({index for one in everything for index in (one.episode, one.after)}),
    }
    if not everything:
        return Check("joint_offsets", "pass", "no joint is left elsewhere in or between episodes", evidence)
    said = [f"{one} and stayed there" for one in _by_joint(inside)] + _by_joint(between)
    said += [
        f"{one.joint} keeps another middle or start from episode {one.after} on, by {one.size_rad:.3f} rad"
        for one in shifts
    ]
    remedies = []
    if inside:
        remedies.append(
            "moved within an episode: turned by hand, or it slipped, and no sign of a new calibration; an R2 "
            "on that joint measures the one move"
        )
    if between or shifts:
        remedies.append(
            "moved between episodes: calibrated again, remounted, or turned while nothing was recorded? an "
            "R2 across that step measures the step"
        )
    return Check("joint_offsets", "warn", "; ".join(said), evidence, "; ".join(remedies))


def _by_joint(moves: Sequence[Move]) -> list[str]:
    """The moves of each joint, the first few of many."""
    said = []
    for name in dict.fromkeys(one.joint for one in moves):
        own = [str(one) for one in moves if one.joint == name]
        more = f" (and {len(own) - MOST_MOVES} more)" if len(own) > MOST_MOVES else ""
        said.append(f"{name} moved {', '.join(own[:MOST_MOVES])}{more}")
    return said


def moves_between(name: str, values: Mapping[int, np.ndarray]) -> list[Move]:
    """Where a joint that hardly moves went, for each two neighbouring episodes whose medians are far apart.

    Parameters
    ----------
    values : episode -> positions in rad, (n,), in the order of the episodes.
    """
    indices = list(values)
    spread = max(float(np.median([one.std() for one in values.values()])), 1e-4)
    if spread >= HARDLY_RAD:
        return []
    far = max(OFFSET_RAD, OFFSET_RATIO * spread)
    medians = {index: float(np.median(one)) for index, one in values.items()}
    ends = {index: _ends(one) for index, one in values.items()}
    found: dict[tuple[int, bool], Move] = {}
    for one, two in pairwise(indices):
        if abs(medians[two] - medians[one]) <= far:
            continue
        parts = [
            Move(name, one, one, _row_of_move(values[one], *ends[one]), *ends[one]),
            Move(name, one, two, None, ends[one][1], ends[two][0]),
            Move(name, two, two, _row_of_move(values[two], *ends[two]), *ends[two]),
        ]
        largest = max(parts, key=lambda move: move.size_rad)
        # A joint that went elsewhere and came back within an episode has all three small.
        named = [move for move in parts if move.size_rad > far]
        if not named and largest.size_rad > far / 2:
            named = [largest]
        found |= {(move.episode, move.row is None): move for move in named}
    return list(found.values())


def _ends(values: np.ndarray) -> tuple[float, float]:
    rows = max(1, min(MOST_END_ROWS, len(values) // ENDS))
    return float(np.median(values[:rows])), float(np.median(values[-rows:]))


def _row_of_move(values: np.ndarray, start: float, end: float) -> int:
    """The first row from which on all are nearer to `end` than to `start`."""
    nearer_start = np.abs(values - start) <= np.abs(values - end)
    return int(np.flatnonzero(nearer_start)[-1]) + 1 if nearer_start.any() else 0


def _lasting_shift(name: str, values: Mapping[int, np.ndarray]) -> Move | None:
    """A joint's middle, or its start, that lies elsewhere from one episode on."""
    indices = list(values)
    best: tuple[float, Move] | None = None
    for levels in (
        np.array([np.median(one) for one in values.values()]),
        np.array([np.median(one[:3]) for one in values.values()]),
    ):
        size, at = shift_between(levels)
        if size > OFFSET_RAD and (best is None or size > best[0]):
            before, after = (float(np.median(side)) for side in (levels[:at], levels[at:]))
            best = size, Move(name, indices[at - 1], indices[at], None, before, after)
    return None if best is None else best[1]


def shift_between(levels: np.ndarray) -> tuple[float, int]:
    """(size, first episode after) of a lasting shift of `levels`, one an episode, (E,); size 0 for none."""
    best = (0.0, 0)
    for at in range(SHIFT_EPISODES, len(levels) - SHIFT_EPISODES + 1):
        before, after = levels[:at], levels[at:]
        apart = max(float(after.min() - before.max()), float(before.min() - after.max()))
        if apart > SHIFT_RATIO * max(np.ptp(before), np.ptp(after)):
            best = max(best, (abs(float(np.median(after) - np.median(before))), at))
    return best
