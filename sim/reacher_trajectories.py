"""Episodes of the Reacher, of which trajectory pairs are cut, and numbers that tell their policies apart.

    FILE.h5     LeWM's own set in its real layout (columns ep_len, ep_offset, qpos, action)
    random      actions independent and uniform in [-1, 1]
    goal        goes for a random target by inverse kinematics and a PD controller, then for the next

Our policies hold an action for two control steps, as stable-worldmodel's Reacher does by default: a row is
0.04 s. The paper (arXiv 2605.26379) takes its set for one of a trained SAC policy; users of it found
independent uniform actions (LeWM's issue 98). The autocorrelations that the paper prints,
`PUBLISHED_AUTOCORRELATION`, are those of `random` to 0.002 at all seven strides, and not those of `goal`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401  registers compressions with HDF5
import numpy as np

from hardware.errors import InputError
from hardware.importers.episode_spans import LENGTHS, OFFSETS, episode_spans
from hardware.importers.hdf5_columns import RESTORE, number_column, opened_foreign, read_rows
from hardware.recording import Progress
from sim.reacher import (
    CONTROL_STEP_S,
    FINGER_RADIUS_M,
    HARD_TARGET_RADIUS_M,
    Arms,
    fingertip,
    inverse_kinematics,
    random_states,
    random_targets,
    wrap,
)

QPOS, ACTION = "qpos", "action"
PUBLISHED_ROWS = 201
STRIDES = (1, 2, 4, 8, 16, 32, 64)
PUBLISHED_AUTOCORRELATION = {  # the paper's Table 2: shoulder, wrist
    1: (1.000, 0.999),
    2: (0.999, 0.996),
    4: (0.997, 0.991),
    8: (0.992, 0.982),
    16: (0.981, 0.963),
    32: (0.959, 0.928),
    64: (0.915, 0.863),
}

ACTION_REPEAT = 2
ROW_S = ACTION_REPEAT * CONTROL_STEP_S

# Shares of the greatest torque a rad, and a rad/s: near critical damping, the wrist's by its joint alone.
_PD_GAIN, _PD_DAMPING = np.array([4.0, 1.5]), np.array([0.6, 0.0])
_GOAL_ROWS = 50  # after which another target is chosen, reached or not
_STAY_ROWS = 3  # in a target, before the next is chosen
_BLOCK_EPISODES = 500


@dataclass(frozen=True)
class Episodes:
    """Episodes one after the other.

    Attributes
    ----------
    qpos : (R, 2), rad.
    lengths, offsets : (E,), rows of each episode and its first row.
    name : of the policy or the file.
    sha256 : of lengths, offsets and angles.
    actions : (R, A), NaN where none was sent; None where they are not known.
    targets : (R, 2), m, where the episode's target was; None where that is not known.
    """

    qpos: np.ndarray
    lengths: np.ndarray
    offsets: np.ndarray
    name: str
    sha256: str
    actions: np.ndarray | None = None
    targets: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.lengths)


def read_lewm(path: str | Path) -> Episodes:
    """The episodes of LeWM's `reacher.h5`; its pictures are not read.

    Raises
    ------
    InputError : a file that is none of these, is damaged, or whose `qpos` is not two finite angles a row.
    """
    path = Path(path)
    with opened_foreign(path, _refuse_others, RESTORE) as file:
        lengths, offsets = episode_spans(file)
        qpos = np.asarray(read_rows(number_column(file, QPOS, "f", 2), slice(None)), np.float64)
        actions = None
        if ACTION in file:
            actions = np.asarray(read_rows(number_column(file, ACTION, "f", 2), slice(None)), np.float64)
    if qpos.shape[1] != 2:
        raise InputError(
            f"{path}, {QPOS}", f"has {qpos.shape[1]} columns; the Reacher has two joints", "give its set"
        )
    if np.any(offsets + lengths > len(qpos)):
        raise InputError(f"{path}, {LENGTHS}", f"lists rows beyond the {len(qpos):,} of {QPOS}", RESTORE)
    if not np.isfinite(qpos).all():
        row = int(np.flatnonzero(~np.isfinite(qpos).all(axis=1))[0])
        raise InputError(f"{path}, {QPOS}", f"is not finite in row {row}", RESTORE)
    if actions is not None and len(actions) != len(qpos):
        raise InputError(f"{path}, {ACTION}", f"has {len(actions):,} rows, {QPOS} {len(qpos):,}", RESTORE)
    return Episodes(qpos, lengths, offsets, path.name, _sha256(lengths, offsets, qpos), actions)


def _refuse_others(file: h5py.File, path: Path) -> None:
    absent = [name for name in (LENGTHS, OFFSETS, QPOS) if name not in file]
    if absent:
        raise InputError(
            path,
            f"has no {' and no '.join(absent)}: it holds {', '.join(file)[:300] or 'nothing'}",
            "give LeWM's reacher.h5, or a policy: " + ", ".join(POLICIES),
        )


def episodes_of(
    source: str, count: int, seed: int, *, rows: int = PUBLISHED_ROWS, progress: Progress | None = None
) -> Episodes:
    """Episodes of a policy by its name, or those of a file.

    Parameters
    ----------
    source : a name of `POLICIES`, or a path.
    count, rows, seed : how many episodes of how many rows a policy makes; a file has its own. Episode i of a
        policy depends on the seed and on i alone.

    Raises
    ------
    InputError : no such policy or file.
    """
    if source in POLICIES:
        return POLICIES[source](count, rows, seed, progress)
    if not Path(source).exists():
        raise InputError(
            "--source", f"{source!r} is no policy and no file", f"policies: {', '.join(POLICIES)}"
        )
    return read_lewm(source)


# -- policies of our own -----------------------------------------------------------------------------------


def random_policy(count: int, rows: int, seed: int, progress: Progress | None = None) -> Episodes:
    """Independent uniform actions, from starts as the suite draws them."""

    def steps(generators: list[np.random.Generator]) -> _Steps:
        starts = np.concatenate([random_states(1, rng) for rng in generators])
        targets = np.concatenate([random_targets(1, rng) for rng in generators])
        actions = np.stack([rng.uniform(-1, 1, (rows - 1, 2)) for rng in generators])
        moved = Arms(starts).follow(np.repeat(actions, ACTION_REPEAT, axis=1))
        return _Steps(moved.qpos[:, ::ACTION_REPEAT], actions, np.repeat(targets[:, None], rows, axis=1))

    return _simulated("random", steps, count, rows, seed, progress)


def goal_policy(count: int, rows: int, seed: int, progress: Progress | None = None) -> Episodes:
    """Goes for a random target by the nearer of the two ways to bend the arm; the next target follows once it
    has stayed in one for three rows, or after 2 s.
    """

    def steps(generators: list[np.random.Generator]) -> _Steps:
        arms = Arms(np.concatenate([random_states(1, rng) for rng in generators]))
        target = np.concatenate([random_targets(1, rng) for rng in generators])
        goal = nearer_goal(arms.qpos, target)
        age, inside = np.zeros((2, len(generators)), np.int64)
        qpos, actions, targets = [arms.qpos], [], [target.copy()]
        for _ in range(rows - 1):
            action = np.clip(_PD_GAIN * (goal - arms.qpos) - _PD_DAMPING * arms.qvel, -1, 1)
            arms.step(np.repeat(action[:, None], ACTION_REPEAT, axis=1))
            inside = np.where(in_target(arms.qpos, target), inside + 1, 0)
            age += 1
            for arm in np.flatnonzero((inside >= _STAY_ROWS) | (age >= _GOAL_ROWS)):
                target[arm] = random_targets(1, generators[arm])[0]
                goal[arm] = nearer_goal(arms.qpos[arm : arm + 1], target[arm : arm + 1])[0]
                age[arm] = inside[arm] = 0
            qpos.append(arms.qpos)
            actions.append(action)
            targets.append(target.copy())
        return _Steps(np.stack(qpos, 1), np.stack(actions, 1), np.stack(targets, 1))

    return _simulated("goal", steps, count, rows, seed, progress)


def nearer_goal(qpos: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Joint angles (E, 2) that reach targets (E, 2), those that are fewer rad away from qpos (E, 2).

    The shoulder turns the short way round, so its angle is one near to where it is.
    """
    goals = inverse_kinematics(target)
    goals[..., 0] = qpos[:, None, 0] + wrap(goals[..., 0] - qpos[:, None, 0])
    far = np.abs(goals - qpos[:, None]).sum(axis=-1)
    return goals[np.arange(len(goals)), np.argmin(far, axis=1)]


POLICIES: dict[str, Callable[[int, int, int, Progress | None], Episodes]] = {
    "random": random_policy,
    "goal": goal_policy,
}
"""Policies by name; a trained one is added here."""


@dataclass(frozen=True)
class _Steps:
    """Episodes of equal length: states (E, T, 2), actions (E, T - 1, 2), targets (E, T, 2)."""

    qpos: np.ndarray
    actions: np.ndarray
    targets: np.ndarray


def _simulated(
    name: str,
    steps: Callable[[list[np.random.Generator]], _Steps],
    count: int,
    rows: int,
    seed: int,
    progress: Progress | None,
) -> Episodes:
    made = []
    for first in range(0, count, _BLOCK_EPISODES):
        last = min(first + _BLOCK_EPISODES, count)
        made.append(
            steps(
                [
                    np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(5, number)))
                    for number in range(first, last)
                ]
            )
        )
        if progress:
            progress(last, count, f"simulating {name}")
    qpos = np.concatenate([one.qpos for one in made]).reshape(-1, 2)
    actions = np.full((count, rows, 2), np.nan)
    actions[:, :-1] = np.concatenate([one.actions for one in made])
    targets = np.concatenate([one.targets for one in made]).reshape(-1, 2)
    lengths = np.full(count, rows, np.int64)
    offsets = np.arange(count, dtype=np.int64) * rows
    sha256 = _sha256(lengths, offsets, qpos)
    return Episodes(qpos, lengths, offsets, name, sha256, actions.reshape(-1, 2), targets)


def _sha256(lengths: np.ndarray, offsets: np.ndarray, qpos: np.ndarray) -> str:
    digest = hashlib.sha256()
    for values, kind in ((lengths, "<i8"), (offsets, "<i8"), (qpos, "<f8")):
        digest.update(np.ascontiguousarray(values, kind).tobytes())
    return digest.hexdigest()


# -- what tells policies apart -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Diagnosis:
    """What a set of episodes looks like.

    Attributes
    ----------
    autocorrelation : by stride in rows, of the shoulder and the wrist.
    mean, std : of each joint over all rows, rad.
    action_lag1 : correlation of an action with the one before, by actuator; None where there are none.
    in_target : share of rows whose fingertip is in the hard task's target; None where targets are unknown.
    """

    autocorrelation: dict[int, tuple[float, float]]
    mean: tuple[float, float]
    std: tuple[float, float]
    action_lag1: tuple[float, ...] | None
    in_target: float | None


def diagnose(episodes: Episodes, strides: tuple[int, ...] = STRIDES) -> Diagnosis:
    """All of it; strides that no episode is long enough for are NaN."""
    rows = np.concatenate(
        [np.arange(start, start + count) for start, count in zip(episodes.offsets, episodes.lengths)]
    )
    qpos = episodes.qpos[rows]
    lag1 = None
    if episodes.actions is not None:
        lag1 = tuple(lagged_correlation(episodes.actions, episodes.lengths, episodes.offsets, 1).tolist())
    inside = None
    if episodes.targets is not None:
        inside = float(in_target(qpos, episodes.targets[rows]).mean())
    found = {
        stride: lagged_correlation(episodes.qpos, episodes.lengths, episodes.offsets, stride)
        for stride in strides
    }
    return Diagnosis(
        {stride: (float(two[0]), float(two[1])) for stride, two in found.items()},
        (float(qpos[:, 0].mean()), float(qpos[:, 1].mean())),
        (float(qpos[:, 0].std()), float(qpos[:, 1].std())),
        lag1,
        inside,
    )


def lagged_correlation(
    values: np.ndarray, lengths: np.ndarray, offsets: np.ndarray, stride: int
) -> np.ndarray:
    """Correlation of each column with itself `stride` rows later, over all pairs within an episode.

    Parameters
    ----------
    values : (R, C); pairs with a NaN are left out.
    lengths, offsets : (E,), rows of each episode and its first row.

    Returns
    -------
    (C,): Pearson's, NaN where there are fewer than two pairs.
    """
    first = np.concatenate(
        [np.arange(start, start + max(count - stride, 0)) for start, count in zip(offsets, lengths)]
        or [np.zeros(0, np.int64)]
    ).astype(np.int64)
    x, y = values[first], values[first + stride]
    kept = ~(np.isnan(x).any(axis=1) | np.isnan(y).any(axis=1))
    x, y = x[kept], y[kept]
    if len(x) < 2:
        return np.full(values.shape[1], np.nan)
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    with np.errstate(invalid="ignore"):
        return (x * y).sum(axis=0) / np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))


def in_target(qpos: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Whether the fingertip (of angles (..., 2)) touches targets (..., 2) as the hard task rewards it."""
    distance = np.linalg.norm(fingertip(qpos) - targets, axis=-1)
    return distance <= HARD_TARGET_RADIUS_M + FINGER_RADIUS_M
