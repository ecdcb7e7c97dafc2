"""Windows: exactly those that a slow reading of the rule gives, with the actions in force at every row."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from lewm_recipes import TINY_LEWM

from encoders.lewm_training import initial_lewm, latents_and_predictions
from encoders.recipes import LewmSmallRecipe
from encoders.training_frames import decoded
from encoders.windows import _standard, plan_windows
from hardware import InputError, Recording

VIEWS = ("front", "wrist")
RECIPE = LewmSmallRecipe(**TINY_LEWM)
STEPS = RECIPE.history * RECIPE.action_block


@cache
def _sent(recording: Recording, index: int) -> tuple[np.ndarray, np.ndarray]:
    log = recording.episode(index).actions()
    assert log is not None
    return log.time_ns, log.target


def _in_force(recording: Recording, index: int, time_ns: int) -> np.ndarray | None:
    before = [target for at, target in zip(*_sent(recording, index)) if at <= time_ns]
    return before[-1] if before else None


def _slow_windows(recording: Recording, episodes: list[int]) -> list[tuple[int, int]]:
    """(episode, first row) by the text of the rule; rows are 0.1 s apart."""
    found = []
    for aligned in recording.aligned(VIEWS, episodes):
        for first in range(len(aligned) - STEPS):
            times = aligned.time_ns[first : first + STEPS + 1]
            steady = all(0.06e9 <= later - earlier <= 0.16e9 for earlier, later in itertools.pairwise(times))
            known = all(_in_force(recording, aligned.index, time) is not None for time in times[:-1])
            if steady and known:
                found.append((aligned.index, first))
    return found


def test_windows_are_those_of_the_rule(acting: Recording) -> None:
    plan = plan_windows(acting, [0, 2], RECIPE, VIEWS)
    wanted = _slow_windows(acting, [0, 2])
    lengths = {episode.index: len(episode) for episode in plan.aligned}
    assert lengths == {0: 59, 2: 59}
    assert plan.first.tolist() == [row + (lengths[0] if index == 2 else 0) for index, row in wanted]
    assert min(row for _, row in wanted) >= 3  # no action is known before
    assert not {row for _, row in wanted} & set(range(36, 40))  # these would reach over the missing row
    for (index, row), frames in zip(wanted, plan.groups):
        number = 0 if index == 0 else 1
        offset = 0 if number == 0 else len(plan.rows[0])
        np.testing.assert_array_equal(plan.rows[number][frames - offset], row + np.array([0, 2, 4]))


def test_actions_are_laid_side_by_side_and_standardised_on_training_rows(acting: Recording) -> None:
    plan = plan_windows(acting, [0, 2], RECIPE, VIEWS)
    known = []
    for aligned in plan.aligned:
        at = [_in_force(acting, aligned.index, time) for time in aligned.time_ns]
        known += [action for action in at if action is not None]
    mean, std = np.mean(known, axis=0), np.std(known, axis=0, ddof=1)
    np.testing.assert_allclose(plan.action_mean, mean, rtol=1e-12)
    np.testing.assert_allclose(plan.action_std, std, rtol=1e-12)
    number = len(plan.first) - 1
    aligned, row = plan.aligned[1], plan.first[number] - len(plan.aligned[0])
    blocks = [
        np.concatenate([_in_force(acting, 2, aligned.time_ns[row + 2 * block + place]) for place in (0, 1)])
        for block in (0, 1)
    ]
    wanted = (np.array(blocks) - np.tile(mean, 2)) / np.tile(std, 2)
    np.testing.assert_allclose(plan.blocks(np.array([number]))[0], wanted, rtol=1e-5, atol=1e-6)
    assert plan.row_s == pytest.approx(0.1)
    others = plan_windows(acting, [1], RECIPE, VIEWS)
    assert others.action_mean != plan.action_mean


def test_training_and_prediction_lay_actions_out_alike(acting: Recording) -> None:
    """What the loss predicts for a window is what `LewmEncoder.predict` gives for it from actions as sent."""
    plan = plan_windows(acting, [0], RECIPE, VIEWS)
    encoder = initial_lewm(RECIPE, VIEWS, plan, "lewm")
    for block in encoder.network.predictor.transformer.layers:  # at the start nothing depends on actions
        block.adaLN_modulation[1].weight.data.normal_()
    frames = np.concatenate(list(decoded(plan, 16)))[plan.groups[:5]]
    z, predicted = latents_and_predictions(encoder, frames, plan.blocks(np.arange(5)))
    sent = plan.actions * np.array(plan.action_std) + np.array(plan.action_mean)
    rows = plan.first[:5, None] + np.arange(4)
    history = np.zeros((5, 3, 4), np.float32)  # rows 0, 1 and 2 of a window; row 1 is none of its frames
    history[:, 0], history[:, 2] = z[:, 0].detach(), z[:, 1].detach()
    found = encoder.predict(history, sent[rows[:, :2]], sent[rows[:, 2:]][:, None])
    np.testing.assert_allclose(found[:, 0], predicted[:, -1].detach(), atol=1e-5)


def test_max_frames_bounds_the_distinct_frames(acting: Recording) -> None:
    whole = plan_windows(acting, [0, 1, 2], RECIPE, VIEWS)
    fewer = plan_windows(acting, [0, 1, 2], RECIPE.model_copy(update={"max_frames": 60}), VIEWS)
    assert whole.frames > 100 and 50 <= fewer.frames <= 60 and len(fewer.groups) >= 8
    wanted = set(whole.first.tolist())
    assert set(fewer.first.tolist()) < wanted and all(len(rows) for rows in fewer.rows)
    one = RECIPE.model_copy(update={"max_frames": 3, "batch_size": 2})  # less than a window of each episode
    with pytest.raises(InputError, match=r"give 1 window\(s\) of 5 rows, fewer than one batch of 2"):
        plan_windows(acting, [0, 1, 2], one, VIEWS)


def test_what_gives_no_windows_is_said(
    acting: Recording, demos: Recording, recording_maker: Callable[..., Recording]
) -> None:
    with pytest.raises(InputError, match=r"holds no actions, .*LeWM.* - train kind: cnn"):
        plan_windows(demos, [0], RECIPE, VIEWS)
    long = RECIPE.model_copy(update={"action_block": 10})
    with pytest.raises(
        InputError,
        match=r"episodes 0: give 17 window\(s\) of 21 rows, fewer than one batch of 64 \(of 59 rows, 3 have "
        r"no known action, and 1 step\(s\) between rows are gaps\) - use more episodes",
    ):
        plan_windows(acting, [0], long.model_copy(update={"batch_size": 64}), VIEWS)
    late = recording_maker(actions_from_s=3.95)
    with pytest.raises(InputError, match=r"give 0 window\(s\) of 5 rows.* 120 have no known action"):
        plan_windows(late, [0, 1, 2], RECIPE, VIEWS)


def test_an_action_that_never_changes_is_not_divided_by_zero() -> None:
    actions = np.array([[np.nan, np.nan], [0.1, 1.0], [0.1, 3.0], [0.1, 2.0]])
    mean, std = _standard(actions)
    np.testing.assert_allclose(mean, [0.1, 2.0])
    np.testing.assert_array_equal(std, [1.0, 1.0])
    assert _standard(actions[:2])[1].tolist() == [1.0, 1.0]  # one known row has no deviation
