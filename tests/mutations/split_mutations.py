"""Mistakes in what is trained on and what is evaluated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from bench import EVALUATE, TRAIN, Bench, Mutation
from recording_mutations import duplicated_episode
from rewritten_recordings import rewritten

from hardware.checks import Check
from probe.checks import check_leakage, check_row_split, look

Rng = np.random.Generator


def by_frame(bench: Bench, folder: Path, rng: Rng) -> list[Check]:
    train = rng.random(len(bench.rows)) < 0.7
    return [check_row_split(bench.rows[train], bench.rows[~train])]


def boundary_one_off(bench: Bench, folder: Path, rng: Rng) -> list[Check]:
    cut = int((bench.rows < EVALUATE[0]).sum()) - 1
    return [check_row_split(bench.rows[:cut], bench.rows[cut:])]


def in_both(bench: Bench, folder: Path, rng: Rng) -> list[Check]:
    return check_leakage(bench.recording, [*TRAIN, EVALUATE[0]], EVALUATE, bench.looks)


def statistics_from_all(bench: Bench, folder: Path, rng: Rng) -> list[Check]:
    """The encoder's record of what its statistics were measured on, against the split."""
    measured_on = bench.recording.episode_indices
    return check_leakage(bench.recording, measured_on, EVALUATE, bench.looks)


def copy_evaluated(bench: Bench, folder: Path, rng: Rng) -> list[Check]:
    doubled = rewritten(bench.recording, folder / "spoiled", lambda one: duplicated_episode(one, rng))
    last = doubled.episode_indices[-1]
    return check_leakage(doubled, TRAIN, [*EVALUATE, last], look(doubled))


SPLIT_MUTATIONS = (
    Mutation(
        "split by frame",
        "rows are split at random, whatever their episode",
        "split",
        "the set itself",
        ("row_split",),
        by_frame,
    ),
    Mutation(
        "split one row off",
        "the last row of a training episode is evaluated",
        "split",
        "the set itself",
        ("row_split",),
        boundary_one_off,
    ),
    Mutation(
        "evaluated in training",
        "an evaluation episode is trained on",
        "split",
        "the set itself",
        ("split",),
        in_both,
    ),
    Mutation(
        "statistics from evaluation",
        "means and deviations were measured on evaluation episodes too, and the encoder's record says so",
        "split",
        "the declaration",
        ("split", "near_duplicates"),
        statistics_from_all,
    ),
    Mutation(
        "copy evaluated",
        "a copy of a training episode is evaluated",
        "split",
        "the set itself",
        ("near_duplicates",),
        copy_evaluated,
    ),
)
