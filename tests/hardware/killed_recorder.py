"""A recorder to be killed: each line of stdin, `FOLDER LOG`, forks one that records into FOLDER for ever.

Its pid and then how it ended come back on stdout. It notes in LOG what it has written, as it writes.
"""

from __future__ import annotations

import os
import struct
import sys
import time

import numpy as np

from hardware import RecordingWriter
from tests.recordings import small_info

BEGIN, JOINTS, FRONT, SIDE, COMMIT = range(5)
MARK = struct.Struct("<IIq")  # what, episode, time of its last row in ns


def record(folder: str, log: str) -> None:
    """Episodes of random length with three streams, as fast as it goes."""
    notes = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    rng = np.random.default_rng(os.getpid())
    picture, jpeg = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8), rng.bytes(20_000)
    with RecordingWriter.resume(folder, small_info()) as writer:
        for index in range(max(writer.sealed, default=-1) + 1, 10**6):

            def mark(what: int, time_ns: int = 0, index: int = index) -> None:
                os.write(notes, MARK.pack(what, index, time_ns))

            with writer.episode(index, commit_every_s=0.2) as episode:
                commit = episode.commit
                episode.commit = lambda: (commit(), mark(COMMIT))  # type: ignore[method-assign] # noqa: B023
                mark(BEGIN)
                ends, number = time.monotonic() + rng.uniform(0.1, 1.2), 0
                while time.monotonic() < ends:
                    number += 1
                    now = time.monotonic_ns() + 1_000 * np.arange(5)
                    episode.joints(now, np.full((5, 2), number), velocity=np.zeros((5, 2)))
                    mark(JOINTS, now[-1])
                    episode.frame("front", now[0], number, picture)
                    mark(FRONT, now[0])
                    episode.frame("side", now[0], number, jpeg)
                    mark(SIDE, now[0])


if __name__ == "__main__":
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            record(*line.split())
            os._exit(1)
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)
