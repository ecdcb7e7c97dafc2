"""Rendering many states in processes over all cores, each with an OpenGL context of its own."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future
from types import TracebackType

import numpy as np

from hardware.recording import Progress
from hardware.workers import WorkerPool, worker_died
from sim.reacher_rendering import FRAME_BYTES, SIDE, ReacherRenderer, require_angles

BLOCK = (1 << 20) // FRAME_BYTES  # images a task, and a chunk of a store: about 1 MiB
_AHEAD = 3  # tasks a worker that are handed out before their images are taken


class ReacherRenderers:
    """Renders blocks of states in order; a context manager.

    Parameters
    ----------
    workers : processes; None takes as many as there are cores, and 1 renders in this one.
    images : how many there will be, so that no more processes are started than have work.

    Raises
    ------
    InputError : OpenGL is missing, or a process died.
    """

    def __init__(self, workers: int | None = None, images: int | None = None) -> None:
        blocks = 1 << 30 if images is None else -(-images // BLOCK)
        self._workers = max(1, min(workers or cores(), blocks // 2))  # a process takes a second to start
        self._here: ReacherRenderer | None = None
        self._pool: WorkerPool | None = None

    def __enter__(self) -> ReacherRenderers:
        if self._workers == 1:
            self._here = ReacherRenderer()
        else:
            self._pool = WorkerPool(self._workers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._here is not None:
            self._here.close()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def description(self) -> dict[str, str]:
        """As `ReacherRenderer.description`."""
        if self._here is not None:
            return self._here.description()
        assert self._pool is not None
        return _result(self._pool.submit(_describe))

    def blocks(self, angles: np.ndarray, start: int = 0) -> Iterator[np.ndarray]:
        """Images of the states from row `start` on, uint8 (up to `BLOCK`, 64, 64, 3) each, in order.

        Parameters
        ----------
        angles : (N, 2), rad.
        """
        angles = require_angles(angles)
        parts = (angles[first : first + BLOCK] for first in range(start, len(angles), BLOCK))
        if self._here is not None:
            yield from map(self._here.render, parts)
            return
        assert self._pool is not None
        waiting: deque[Future] = deque()
        try:
            for part in parts:
                waiting.append(self._pool.submit(_render, part))
                if len(waiting) >= _AHEAD * self._workers:
                    yield _result(waiting.popleft())
            while waiting:
                yield _result(waiting.popleft())
        finally:
            for future in waiting:
                future.cancel()


def render_states(
    angles: np.ndarray, *, workers: int | None = None, progress: Progress | None = None
) -> np.ndarray:
    """Images of states, uint8 (N, 64, 64, 3) of angles (N, 2) in rad; see `ReacherRenderers`."""
    frames = np.empty((len(angles), SIDE, SIDE, 3), np.uint8)
    with ReacherRenderers(workers, len(angles)) as renderers:
        done = 0
        for block in renderers.blocks(angles):
            frames[done : done + len(block)] = block
            done += len(block)
            if progress:
                progress(done, len(angles), "rendering")
    return frames


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _result(future: Future):
    """What a worker made; the error that it raised, or its death, as an InputError."""
    try:
        return future.result()
    except BrokenExecutor:
        remedy = "run the same command again, with fewer workers: what is stored is kept"
        raise worker_died("rendering", remedy) from None


# -- in a worker -------------------------------------------------------------------------------------------


_own: ReacherRenderer | None = None


def _renderer() -> ReacherRenderer:
    global _own
    if _own is None:
        _own = ReacherRenderer()
    return _own


def _render(angles: np.ndarray) -> np.ndarray:
    return _renderer().render(angles)


def _describe() -> dict[str, str]:
    return _renderer().description()
