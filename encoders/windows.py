"""Windows of frames and actions, from which a world model learns.

A window that starts at row t, with blocks of k rows and a history of h latents:

    frames   t, t+k, ..., t+hk                           h + 1 of them
    actions  in force at t ... t+k-1 | t+k ... t+2k-1 | ...    h blocks, each laid side by side

So each block holds what was sent between one frame of the window and the next, none left out (the published
frameskip: frames are strided, actions are not). A window never crosses an episode or a gap: every step from
its first row to its last counts (`hardware.alignment.steady_steps`, the usual step being the median over the
training rows), and at each of its rows but the last an action is in force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoders.pairs import evenly_spaced, thin_pairs
from encoders.recipes import LewmRecipe, UntrainedLewmRecipe
from encoders.training_frames import FramePlan, aligned_episodes, number_frames, shown_episodes
from hardware.alignment import AlignedEpisode, held_actions, steady_steps, unbroken
from hardware.errors import InputError
from hardware.recording import Recording


@dataclass(frozen=True, eq=False)
class WindowPlan(FramePlan):
    """The frames of windows (`groups`, int64 (W, history + 1)) and their actions.

    Attributes
    ----------
    first : int64 (W,), each window's first row among all rows of the episodes.
    actions : float32 (rows, A), in force at each of these rows, standardised; NaN where none is known.
    action_mean, action_std : (A,), over the training rows whose action is known. The deviation divides by
        n - 1, as the published training does (stable-worldmodel divides by n); where an action never changes
        it is 1.
    row_s : usual time between rows, in seconds.
    block : rows of a step.
    """

    first: np.ndarray
    actions: np.ndarray
    action_mean: tuple[float, ...]
    action_std: tuple[float, ...]
    row_s: float
    block: int

    def blocks(self, chosen: np.ndarray) -> np.ndarray:
        """Actions of the windows `chosen` (B,), float32 (B, history, block * A)."""
        history = self.groups.shape[1] - 1
        rows = self.first[chosen, None] + np.arange(history * self.block)
        return self.actions[rows].reshape(len(chosen), history, -1)


def plan_windows(
    recording: Recording,
    episodes: Sequence[int],
    recipe: LewmRecipe | UntrainedLewmRecipe,
    views: tuple[str, ...],
) -> WindowPlan:
    """Choose the windows of a recipe.

    Raises
    ------
    InputError : a recording or an episode without actions; fewer windows than a batch, with what is missing.
    """
    if recording.info.actions is None:
        raise InputError(
            recording.folder,
            "holds no actions, from which a LeWM learns to predict",
            "train kind: cnn, which needs none, or record with what is sent to the arm",
        )
    aligned = aligned_episodes(recording, views, episodes)
    step_ns = _usual_step_ns(aligned)
    actions = [_held(recording, episode) for episode in aligned]
    found = []
    for episode, held in zip(aligned, actions):
        good = steady_steps(episode.time_ns, step_ns) & np.isfinite(held[:-1]).all(axis=1)
        start = unbroken(good, recipe.history * recipe.action_block)
        found.append(start[:, None] + np.arange(recipe.history + 1) * recipe.action_block)
    least = recipe.batch_size if isinstance(recipe, LewmRecipe) else 1
    if recipe.max_frames is not None:
        found = thin_pairs(_of_fewer_episodes(found, recipe.max_frames), recipe.max_frames)
    if sum(map(len, found)) < least:
        raise _too_few(recording, aligned, actions, sum(map(len, found)), recipe.window_rows, step_ns, least)
    rows, groups = number_frames(found)
    before = np.cumsum([0, *map(len, aligned)])
    every = np.concatenate(actions)
    mean, std = _standard(every)
    return WindowPlan(
        views,
        tuple(aligned),
        rows,
        groups,
        np.concatenate([windows[:, 0] + offset for windows, offset in zip(found, before)]),
        ((every - mean) / std).astype(np.float32),
        tuple(mean.tolist()),
        tuple(std.tolist()),
        step_ns / 1e9,
        recipe.action_block,
    )


@dataclass(frozen=True)
class ActionStatistics:
    """Mean and deviation (A,) of known actions, as in `WindowPlan`, and the usual time between rows."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    row_s: float


def measure_actions(recording: Recording, views: Sequence[str]) -> ActionStatistics:
    """How the actions of a whole recording are standardised, and its pace.

    Raises
    ------
    InputError : a recording or an episode without actions, or a view that it does not have.
    """
    if recording.info.actions is None:
        raise InputError(recording.folder, "holds no actions", "give the recording that it was trained on")
    aligned = aligned_episodes(recording, views, recording.episode_indices)
    held = np.concatenate([_held(recording, episode) for episode in aligned])
    if not np.isfinite(held).all(axis=1).any():
        raise InputError(recording.folder, "has no row with a known action", "check its actions")
    mean, std = _standard(held)
    return ActionStatistics(tuple(mean.tolist()), tuple(std.tolist()), _usual_step_ns(aligned) / 1e9)


def _of_fewer_episodes(windows: list[np.ndarray], max_frames: int) -> list[np.ndarray]:
    """Windows of evenly spaced episodes where there are too many for a whole window of each."""
    have = np.flatnonzero([len(of_one) for of_one in windows])
    kept = have[evenly_spaced(len(have), max_frames // windows[0].shape[1])]
    return [of_one if number in kept else of_one[:0] for number, of_one in enumerate(windows)]


def _usual_step_ns(aligned: Sequence[AlignedEpisode]) -> float:
    steps = np.concatenate([np.diff(episode.time_ns) for episode in aligned])
    return float(np.median(steps)) if len(steps) else 1.0  # one row an episode: there is no window anyhow


def _held(recording: Recording, episode: AlignedEpisode) -> np.ndarray:
    """Actions in force at an episode's rows, (n, A)."""
    where = f"{recording.folder}, episode {episode.index}"
    log = episode.episode.actions()
    if log is None or not len(log.time_ns):
        raise InputError(where, "holds no actions", "leave the episode out, or train kind: cnn")
    try:
        return held_actions(episode.time_ns, log.time_ns, log.target)
    except ValueError as error:
        raise InputError(where, str(error), "leave the episode out; look at the source's clock") from None


def _standard(actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation (A,) over the rows whose action is known."""
    known = actions[np.isfinite(actions).all(axis=1)]
    moves = np.ptp(known, axis=0) > 0
    std = known.std(axis=0, ddof=1) if len(known) > 1 else np.ones(actions.shape[1])
    return known.mean(axis=0), np.where(moves, std, 1.0)


def _too_few(
    recording: Recording,
    aligned: Sequence[AlignedEpisode],
    actions: Sequence[np.ndarray],
    count: int,
    window_rows: int,
    step_ns: float,
    least: int,
) -> InputError:
    rows = sum(map(len, aligned))
    unknown = sum(int((~np.isfinite(held).all(axis=1)).sum()) for held in actions)
    gaps = sum(int((~steady_steps(episode.time_ns, step_ns)).sum()) for episode in aligned)
    wanted = f"fewer than one batch of {least}" if least > 1 else "and one is needed"
    return InputError(
        f"{recording.folder}, episodes {shown_episodes([episode.index for episode in aligned])}",
        f"give {count} window(s) of {window_rows} rows, {wanted} (of {rows} rows, {unknown} have no known "
        f"action, and {gaps} step(s) between rows are gaps)",
        "use more episodes, a smaller batch_size, or a smaller action_block",
    )
