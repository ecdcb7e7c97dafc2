"""SIGKILL at random moments: what was sealed stays, what was committed is salvaged."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from killed_recorder import COMMIT, FRONT, JOINTS, MARK, SIDE

from hardware import Recording
from hardware.recovery import recover, unfinished

REPOSITORY = Path(__file__).parents[2]


def kill_often(tmp_path: Path, times: int) -> None:
    """Recordings killed at random moments, twenty times each, and what is left each time."""
    chance = random.Random(5)
    lost_ms: list[float] = []
    nursery = subprocess.Popen(
        [sys.executable, REPOSITORY / "tests/hardware/killed_recorder.py"],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert nursery.stdin is not None and nursery.stdout is not None
    with nursery:
        for attempt in range(times):
            folder, log = tmp_path / f"r{attempt // 20}", tmp_path / f"log{attempt}"
            nursery.stdin.write(f"{folder} {log}\n")
            pid = int(nursery.stdout.readline())
            deadline = time.monotonic() + 60
            if chance.random() < 0.9:  # else even before the first episode
                while not log.exists() and time.monotonic() < deadline:
                    time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.6))
            os.kill(pid, signal.SIGKILL)
            killed_ns = time.monotonic_ns()
            assert int(nursery.stdout.readline()) == signal.SIGKILL
            recover(folder)
            assert not unfinished(folder)
            marks = list(MARK.iter_unpack(log.read_bytes())) if log.exists() else []
            if marks:
                recording = Recording.open(folder) if (folder / "manifest.jsonl").exists() else None
                age_ns = check_left(recording, marks, killed_ns)
                if age_ns is not None:
                    lost_ms.append(age_ns / 1e6)
        nursery.stdin.close()
    manifest = []
    for folder in tmp_path.glob("r*"):
        recording = Recording.open(folder)
        manifest += recording.manifest
        for episode in map(recording.episode, recording.episode_indices):
            episode.verify()
            if episode.has_view("front"):
                assert len(list(episode.frames("front"))) == episode.frame_count("front")
    sealed = sum("recovered" not in line.faults for line in manifest)
    print(
        f"{times} kills: {sealed} episodes sealed, {len(lost_ms)} cut off; "
        f"the oldest lost row was {max(lost_ms):.0f} ms old at the kill"
    )
    assert sealed + len(lost_ms) > times / 2  # how many of each is the machine's affair
    assert sorted(lost_ms)[len(lost_ms) // 2] < 1_000  # a busy machine may delay a commit, not most of them


def check_left(recording: Recording | None, marks: list[tuple[int, int, int]], killed_ns: int) -> int | None:
    """The last episode has what its child wrote, from the first row on, and all that was committed.

    Returns how long before the kill the oldest lost row was captured; None where the episode was sealed.
    """
    index = max(index for _, index, _ in marks)
    own = [(stream, time_ns) for stream, of, time_ns in marks if of == index]
    commits = [place for place, (stream, _) in enumerate(own) if stream == COMMIT]
    last_commit = commits[-1] if commits else 0
    there = recording is not None and index in recording.episode_indices
    assert there or not commits
    if there:
        assert recording is not None
        episode = recording.episode(index)
        stamps = {
            JOINTS: episode.joints().time_ns[4::5],
            FRONT: episode.frame_times("front") if episode.has_view("front") else np.empty(0),
            SIDE: episode.frame_times("side") if episode.has_view("side") else np.empty(0),
        }
        if "recovered" not in episode.line.faults:
            last_commit = len(own)
    else:
        stamps = dict.fromkeys((JOINTS, FRONT, SIDE), np.empty(0))
    lost = []
    for stream, found in stamps.items():
        written = [time_ns for kind, time_ns in own if kind == stream]
        committed = [time_ns for kind, time_ns in own[:last_commit] if kind == stream]
        assert len(committed) <= len(found) <= len(written) + 1  # the child may die before it makes its mark
        assert list(found[: len(written)]) == written[: len(found)]
        lost += written[len(found) :]
    if there and last_commit == len(own):
        assert not lost
        return None
    return killed_ns - min(lost, default=killed_ns)


def test_killed_again_and_again(tmp_path: Path) -> None:
    kill_often(tmp_path, 20)


@pytest.mark.slow
def test_killed_two_hundred_times(tmp_path: Path) -> None:
    kill_often(tmp_path, 200)
