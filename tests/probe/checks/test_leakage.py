"""Leakage between training and evaluation episodes: by number, by bytes, in time, and by what frames show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from checked_recording import EVALUATE, TRAIN

from hardware.checks import Look
from hardware.recording import Recording
from probe.checks import check_leakage, check_row_split


def test_a_split_by_episode_passes(recording: Recording, looks: list[Look]) -> None:
    split, near = check_leakage(recording, TRAIN, EVALUATE, looks)
    assert (split.state, near.state) == ("pass", "pass")
    assert split.evidence["seconds_to_nearest_training_episode"]["least"] > 0


def test_an_episode_on_both_sides_fails(recording: Recording) -> None:
    check = check_leakage(recording, [0, 1, 2], [2, 3])[0]
    assert (check.state, check.evidence["episodes"]) == ("fail", [2])


def test_the_same_file_under_two_numbers_fails(recording: Recording) -> None:
    lines = [
        line.model_copy(update={"sha256": recording.manifest[0].sha256, "file": recording.manifest[0].file})
        if line.episode == 6
        else line
        for line in recording.manifest
    ]
    check = check_leakage(Recording(recording.folder, recording.info, lines), TRAIN, EVALUATE)[0]
    assert (check.state, check.evidence["episodes"]) == ("fail", [6])
    assert "6 is 0" in check.message


def test_a_replayed_episode_is_found_by_its_frames(recording: Recording, looks: list[Look]) -> None:
    """Episode 6 shows what episode 1 shows, with the camera's noise: other bytes, the same frames."""
    rng = np.random.default_rng(0)
    source = {look.view: look for look in looks if look.episode == 1}

    def copied(look: Look) -> Look:
        small, n = look.small.astype(int), min(len(look.small), len(source[look.view].small))
        small[:n] = source[look.view].small[:n] + rng.integers(-1, 2, size=small[:n].shape)
        return replace(look, small=small.clip(0, 255).astype(np.uint8))

    changed = [copied(look) if look.episode == 6 else look for look in looks]
    check = check_leakage(recording, TRAIN, EVALUATE, changed)[1]
    assert (check.state, check.evidence["episodes"]) == ("fail", [6])
    assert "6 repeats 1" in check.message


def test_a_split_by_frame_is_named() -> None:
    episode = np.repeat(np.arange(5), 20)
    chosen = np.random.default_rng(0).random(100) < 0.7
    check = check_row_split(episode[chosen], episode[~chosen])
    assert check.state == "fail"
    assert check.evidence["rows"] == int((~chosen).sum())
    assert check_row_split(episode[:60], episode[60:]).state == "pass"
