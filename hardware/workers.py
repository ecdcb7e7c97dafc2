"""What worker processes of every pool here have in common: how they begin, and what their death is called."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hardware.errors import InputError


@contextmanager
def starting_workers() -> Iterator[None]:
    """Around what may start a process: it is born deaf to Ctrl-C, before `begin_worker` can make it so."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin_worker() -> None:
    """In a worker: Ctrl-C is its parent's affair, and without a parent there is no work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def worker_died(where: str, remedy: str) -> InputError:
    """The error that a pool whose process has died amounts to."""
    return InputError(where, "a worker process died (was it killed, or was there no memory left?)", remedy)
