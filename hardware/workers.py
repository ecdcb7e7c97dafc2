"""What worker processes of every pool here have in common: how they begin, and what their death is called."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

from hardware.errors import InputError


def begin_worker() -> None:
    """In a worker: Ctrl-C is its parent's affair, and without a parent there is no work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class WorkerPool(ProcessPoolExecutor):
    """Spawned processes that begin by `begin_worker`, and are deaf to Ctrl-C from their birth on.

    Parameters
    ----------
    count : most processes; one is started where a task finds none idle.
    begin, arguments : what a process calls first, in place of `begin_worker`, which it is to call.
    """

    def __init__(
        self, count: int, begin: Callable[..., None] = begin_worker, arguments: tuple[Any, ...] = ()
    ) -> None:
        context = multiprocessing.get_context("spawn")
        super().__init__(count, mp_context=context, initializer=begin, initargs=arguments)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As any executor's; a process that is started here inherits that SIGINT is blocked."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def worker_died(where: str, remedy: str) -> InputError:
    """The error that a pool whose process has died amounts to."""
    return InputError(where, "a worker process died (was it killed, or was there no memory left?)", remedy)
