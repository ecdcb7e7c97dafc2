"""A sweep: many jobs, trained some at a time in several processes, each result a file by its job's hash.

    TO/runs/KEY.json           a result: the job, its numbers, the machine; written whole or not at all
    TO/checkpoints/            trainings that are under way; a group's is removed when its results are there
    TO/running/NAME.json       how far each worker is

Killed at any time and called again, it trains what has no result, from its last checkpoint on, and nothing
twice.
Work is handed out through the interface of `concurrent.futures`, so that another executor can take its place.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch
from pydantic import BaseModel, ConfigDict

from encoders.encoder import canonical_json
from hardware.disk import disk_errors, held_alone, write_atomically
from hardware.errors import InputError
from hardware.recording import Progress
from hardware.schema import parse_model
from hardware.workers import WorkerPool, begin_worker, worker_died

TELL_EVERY_S = 1.0


class Stopped(Exception):
    """Raised in a worker whose sweep has ended."""


class AnyJob(Protocol):
    """A run: all that decides its result, and the hash of it."""

    @property
    def key(self) -> str:
        """Hash of all fields."""
        ...

    @property
    def label(self) -> str:
        """What it is about, in a few words."""
        ...

    @property
    def run_steps(self) -> int:
        """Steps of its training."""
        ...

    @property
    def cost(self) -> float:
        """About how long it takes, in any unit; the longest are begun first."""
        ...

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """All fields, as JSON has them."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What came of a job: JSON-able numbers, and its losses (`last`, `tail`, and some in between)."""

    numbers: dict[str, float | None]
    losses: dict[str, Any]


def key_of(version: int, job: BaseModel) -> str:
    """24 hex digits of a SHA-256 over all fields of a job, and over what these fields mean."""
    facts = {"version": version, **job.model_dump(mode="json")}
    return hashlib.sha256(canonical_json(facts)).hexdigest()[:24]


Perform = Callable[[Sequence[Any], Path, Progress], Sequence[Outcome]]
"""perform(jobs, folder, progress): train jobs together, with checkpoints in a folder, and measure each.

It is sent to the workers, so it is a function of a module, or a `functools.partial` of one."""


@dataclass(frozen=True)
class Task:
    """What a worker is given: jobs that are trained together, how, and where their results go."""

    name: str
    jobs: tuple[AnyJob, ...]
    perform: Perform
    to: str

    @property
    def run_steps(self) -> int:
        """Steps of all its runs, for progress."""
        return sum(job.run_steps for job in self.jobs)


def result_path(to: str | Path, job: AnyJob) -> Path:
    """Where a job's result lies."""
    return Path(to) / "runs" / f"{job.key}.json"


class Losses(BaseModel):
    """The last batch's loss, the mean of the last tenth; None: not finite, or nothing was trained."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    last: float | None
    tail: float | None


class Result(BaseModel):
    """The content of a result's file; `job` is all that decided it."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    job: dict[str, Any]
    numbers: dict[str, float | None]
    losses: Losses
    seconds_of_training: float
    machine: dict[str, Any]


def read_result(to: str | Path, job: AnyJob) -> Result | None:
    """A job's result, None where there is none yet.

    Raises
    ------
    InputError : a file that is damaged or is another job's.
    """
    path, remedy = result_path(to, job), "remove it: it is then made again"
    try:
        content = json.loads(path.read_text("utf-8"), parse_constant=_no_number)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(path, f"cannot be read: {error}", remedy) from None
    try:
        result: Result = parse_model(Result, content, path)
    except InputError as error:
        raise InputError(path, error.problem, remedy) from None
    if result.job != job.model_dump(mode="json"):
        raise InputError(path, "is the result of another job", remedy)
    return result


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def run_sweep(
    groups: Sequence[Sequence[AnyJob]],
    perform: Perform,
    to: str | Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> int:
    """Train and measure every job that has no result in `to` yet.

    Parameters
    ----------
    groups : jobs that are trained together; depending on the jobs alone, so that a training that was stopped
        is found again.
    perform : how.
    workers : processes, each with one thread; None takes as many as there are cores, one beside a GPU.
    progress : called about twice a second with run-steps done, run-steps in all, and what is going on.
    executor : takes the place of the processes, which are then not made; its workers read and write `to`.

    Returns
    -------
    How many results are new.

    Raises
    ------
    InputError : a full disk, a damaged result, a worker that died.
    """
    to = Path(to)
    with disk_errors(to):
        for folder in ("runs", "checkpoints", "running"):
            (to / folder).mkdir(parents=True, exist_ok=True)
    with held_alone(to / "runs", "filled"):
        return _run_missing(groups, perform, to, workers, progress, executor)


def _run_missing(
    groups: Sequence[Sequence[AnyJob]],
    perform: Perform,
    to: Path,
    workers: int | None,
    progress: Progress | None,
    executor: Executor | None,
) -> int:
    tasks = []
    for group in groups:
        missing = tuple(job for job in group if read_result(to, job) is None)
        if missing:
            tasks.append(Task(f"{missing[0].key}-{len(missing)}", missing, perform, str(to)))
    _clear(to)
    if not tasks:
        return 0
    tasks.sort(key=lambda task: -sum(job.cost for job in task.jobs))
    if executor is not None:
        _run_all(executor, tasks, to, progress)
    else:
        with _processes(min(workers or _default_workers(), len(tasks))) as pool:
            _run_all(pool, tasks, to, progress)
    return sum(len(task.jobs) for task in tasks)


def _clear(to: Path) -> None:
    """Remove what sweeps that were killed have left and no later one would use."""
    with disk_errors(to):
        for old in (to / "running").glob("*.json"):
            old.unlink()
        for folder in (to / "checkpoints").iterdir():
            if (to / "runs" / f"{folder.name.partition('-')[0]}.json").exists():
                shutil.rmtree(folder, ignore_errors=True)  # a group is named after its first missing result


def work(task: Task) -> str:
    """Train, measure and write the jobs of one task; what an executor calls."""
    torch.set_num_threads(1)
    to, told = Path(task.to), [0.0]

    def tell(done: int, total: int, what: str) -> None:
        if _stop is not None and _stop.is_set():
            raise Stopped
        now = time.monotonic()
        if now - told[0] > TELL_EVERY_S:
            told[0] = now
            state = {"run_steps": done * len(task.jobs), "what": f"{task.jobs[0].label}, {what}"}
            with disk_errors(to):
                write_atomically(to / "running" / f"{task.name}.json", json.dumps(state).encode())

    started = time.monotonic()
    outcomes = task.perform(task.jobs, to / "checkpoints" / task.name, tell)
    seconds = (time.monotonic() - started) / len(task.jobs)
    for job, outcome in zip(task.jobs, outcomes):
        if _stop is not None and _stop.is_set():
            raise Stopped
        result = {
            "job": job.model_dump(mode="json"),
            "numbers": outcome.numbers,
            "losses": outcome.losses,
            "seconds_of_training": round(seconds, 3),
            "machine": machine(),
        }
        text = json.dumps(result, indent=1, allow_nan=False)
        with disk_errors(result_path(to, job)):
            write_atomically(result_path(to, job), text.encode())
    shutil.rmtree(to / "checkpoints" / task.name, ignore_errors=True)
    (to / "running" / f"{task.name}.json").unlink(missing_ok=True)
    return task.name


def machine() -> dict[str, Any]:
    """What a result was computed on."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


# -- processes ---------------------------------------------------------------------------------------------

_stop: Event | None = None


def _start(stop: Event) -> None:
    """In a worker: `stop` is what the sweep sets when it ends."""
    global _stop
    _stop = stop
    begin_worker()


@contextmanager
def _processes(count: int) -> Iterator[WorkerPool]:
    """A pool whose workers end within a step when the block is left, however it is left."""
    stop = multiprocessing.get_context("spawn").Event()
    with _one_thread_each():
        pool = WorkerPool(count, _start, (stop,))
        try:
            yield pool
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Libraries of arithmetic read the number of their threads from the environment when they are loaded."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _default_workers() -> int:
    return 1 if torch.cuda.is_available() else os.cpu_count() or 1


def _run_all(executor: Executor, tasks: Sequence[Task], to: Path, progress: Progress | None) -> None:
    total = sum(task.run_steps for task in tasks)
    pending: dict[Future[str], Task] = {executor.submit(work, task): task for task in tasks}
    finished, told = 0, ""
    try:
        while pending:
            done, _ = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in done:
                task = pending.pop(future)
                future.result()
                finished += task.run_steps
            if progress:
                under_way, what = _under_way(to)
                said = f"{len(pending)} of {len(tasks)} groups left{what}"
                if done or said != told:
                    progress(min(total, finished + under_way), total, said)
                told = said
    except BrokenExecutor:
        remedy = "call the same command again, with fewer --workers: what is finished is kept"
        raise worker_died("sweep", remedy) from None
    finally:
        for future in pending:
            future.cancel()


def _under_way(to: Path) -> tuple[int, str]:
    """Run-steps of trainings that are not finished yet, and what one of them is doing."""
    steps, what = 0, ""
    for path in (to / "running").glob("*.json"):
        try:
            state = json.loads(path.read_text("utf-8"))
            steps += int(state["run_steps"])
            what = f", {state['what']}"
        except (OSError, ValueError, KeyError, TypeError):
            continue  # just removed by its worker
    return steps, what
