"""A sweep: results by hash, nothing twice, killed and gone on with, and errors in words."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hardware import InputError
from probe.experiments import sweep
from probe.experiments.experiment import load_experiment
from probe.experiments.jobs import Job, groups
from probe.experiments.numbers import LOSSES, NUMBERS
from probe.experiments.plan import plan
from probe.experiments.sweep import Task, read_result, result_path, work
from probe.experiments.training import measured, perform, trained
from tests.probe.experiments.small import SMALL, write_small


class Inline(Executor):
    """Does the work at once, in this process, as an executor of another kind would do it elsewhere."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.tasks += args
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


def run_sweep(jobs: list[Job], to: Path, at_once: int = 8, **options: Any) -> int:
    return sweep.run_sweep(groups(jobs, at_once), perform, to, **options)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> list[Job]:
    path = write_small(tmp_path_factory.mktemp("experiment"))
    return [one.job for one in plan(load_experiment(str(path)), "published")]


def results(to: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((to / "runs").iterdir())}


def numbers(to: Path) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text())["numbers"] for path in (to / "runs").iterdir()}


@pytest.fixture(scope="module")
def swept(jobs: list[Job], tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("swept")
    run_sweep(jobs, to, executor=Inline())
    return to


def test_every_job_gets_its_result_and_nothing_is_left_behind(jobs: list[Job], swept: Path) -> None:
    assert {path.stem for path in (swept / "runs").iterdir()} == {job.key for job in jobs}
    assert not list((swept / "checkpoints").iterdir()) and not list((swept / "running").iterdir())
    result = read_result(swept, jobs[0])
    assert result is not None and Job.model_validate(result.job) == jobs[0]
    assert result.machine["torch"] == torch.__version__
    assert 0 < (result.numbers["r2_hz_in"] or 0) <= 1 and (result.losses.last or 0) > 0
    assert result.losses.model_dump()["steps"][-1] == jobs[0].steps
    assert {*result.numbers, *LOSSES} == set(NUMBERS["worlds"])  # whatever a file may name is there


def test_what_is_done_is_not_done_again(jobs: list[Job], swept: Path) -> None:
    before = results(swept)
    again = Inline()
    assert run_sweep(jobs, swept, executor=again) == 0
    assert again.tasks == [] and results(swept) == before
    gone = jobs[2]
    result_path(swept, gone).unlink()
    assert run_sweep(jobs, swept, executor=again) == 1
    assert [task.jobs for task in again.tasks] == [(gone,)]
    now = results(swept)
    name = f"{gone.key}.json"
    # alone or beside others: single and batched products round differently
    same, made = (json.loads(held[name])["numbers"] for held in (before, now))
    assert made == pytest.approx(same, rel=1e-3)
    assert {key: value for key, value in now.items() if key != name} == {
        key: value for key, value in before.items() if key != name
    }


def test_processes_give_what_one_gives(jobs: list[Job], swept: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    chosen = jobs[:6]
    told = lambda *call: calls.append(call)  # noqa: E731
    assert run_sweep(chosen, tmp_path, workers=2, at_once=2, progress=told) == 6
    one, many = numbers(swept), numbers(tmp_path)
    assert many.keys() == {job.key for job in chosen}
    for key, found in many.items():
        assert found == pytest.approx(one[key], rel=1e-3)
    assert calls[-1][:2] == (6 * 30, 6 * 30) and calls[-1][2].startswith("0 of 3 groups left")


def test_the_numbers_are_those_of_the_network_that_was_trained(jobs: list[Job]) -> None:
    found = trained([jobs[0], jobs[1]])
    assert found.losses(0)["tail"] == pytest.approx(found.history[-3:, 0, 0].mean())
    for number, job in enumerate((jobs[0], jobs[1])):
        encode = found.encoder(number)
        z = np.random.default_rng(0).normal(size=(5, 2))
        x = torch.from_numpy(np.column_stack([z[:, 0], z[:, 1] + z[:, 0] ** 2])).float()
        np.testing.assert_allclose(encode(z), found.networks.run(number)(x).detach().numpy(), atol=1e-5)
        assert measured(job, encode)["r2_hz"] is not None


def test_a_rotation_is_found_by_every_number(jobs: list[Job]) -> None:
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    perfect = measured(jobs[0], lambda z: z @ turn)
    for name in ("r2_hz", "r2_hz_in", "r2_zh", "r2_hz_grid", "r2_hz_support", "r2_hz_uniform"):
        assert perfect[name] == pytest.approx(1, abs=1e-9), name
    for name in ("orthogonality_error", "orthogonality_error_grid", "shape_error", "recovery"):
        assert perfect[name] == pytest.approx(0, abs=1e-6), name
    # pairs of the evaluation correlate by rho, whatever training pairs do: E (h - h')^2 = 2 (1 - rho)
    assert perfect["alignment"] == pytest.approx(2 * (1 - jobs[0].world.rho), rel=0.2)
    assert measured(jobs[0], lambda z: np.full_like(z, np.nan)) == {}
    flat = measured(jobs[0], lambda z: 0 * z)
    assert flat["r2_hz"] == pytest.approx(0, abs=0.05) and flat["r2_zh"] is None
    assert flat["orthogonality_error"] == pytest.approx(1) and flat["shape_error"] is None


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda text: "{", "cannot be read"),
        (lambda text: "[" * 100_000, "cannot be read"),
        (lambda text: "[]", "dictionary"),
        (lambda text: "{}", "field 'job'"),
        (
            lambda text: text.replace('"r2_hz_in": ', '"r2_hz_in": NaN, "was": ', 1),
            "NaN is no number of JSON",
        ),
        (lambda text: text.replace('"r2_hz_in": ', '"r2_hz_in": "high", "was": ', 1), "numbers.r2_hz_in"),
        (lambda text: text.replace('"tail"', '"tale"', 1), "field 'losses.tail'"),
        (lambda text: text.replace('"machine"', '"machines"', 1), "unknown key 'machines'"),
        (lambda text: text.replace('"seed": 0', '"seed": 1', 1), "is the result of another job"),
    ],
)
def test_a_damaged_result_is_named(
    jobs: list[Job], swept: Path, tmp_path: Path, damage: Callable[[str], str], told: str
) -> None:
    path = result_path(tmp_path, jobs[0])
    path.parent.mkdir(parents=True)
    whole = result_path(swept, jobs[0]).read_text()
    path.write_text(damage(whole))
    assert path.read_text() != whole
    with pytest.raises(InputError, match="remove it: it is then made again") as stopped:
        run_sweep(jobs[:1], tmp_path, executor=Inline())
    assert str(path) in str(stopped.value) and told in str(stopped.value)


def test_two_sweeps_of_one_folder_do_not_meet(jobs: list[Job], swept: Path) -> None:
    inside: list[str] = []

    class Second(Inline):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            with pytest.raises(InputError, match="is being filled by another process - wait for it") as told:
                run_sweep(jobs[:1], swept, executor=Inline())
            inside.append(str(told.value))
            return super().submit(fn, *args, **kwargs)

    result_path(swept, jobs[0]).unlink()
    assert run_sweep(jobs[:1], swept, executor=Second()) == 1 and len(inside) == 1
    assert run_sweep(jobs[:1], swept, executor=Inline()) == 0  # and the folder is free again


def test_what_a_killed_sweep_left_is_removed_where_it_is_of_no_use(jobs: list[Job], tmp_path: Path) -> None:
    run_sweep(jobs[:1], tmp_path, executor=Inline())
    done, under_way = (tmp_path / "checkpoints" / f"{job.key}-1" for job in jobs[:2])
    for folder in (done, under_way):
        folder.mkdir()
        (folder / "state.pt").write_bytes(b"...")
    (tmp_path / "running" / "old.json").write_text("{}")
    assert run_sweep(jobs[:1], tmp_path, executor=Inline()) == 0
    assert not done.exists() and under_way.exists() and not list((tmp_path / "running").iterdir())


def test_a_run_that_diverges_has_no_numbers_and_spoils_no_other(jobs: list[Job], tmp_path: Path) -> None:
    wild = [job.model_copy(update={"learning_rate": 1e30}) for job in jobs[:1]]
    run_sweep([*wild, jobs[1]], tmp_path, executor=Inline())
    result = read_result(tmp_path, wild[0])
    assert result is not None and result.numbers == {} and result.losses.last is None
    beside = read_result(tmp_path, jobs[1])
    assert beside is not None and beside.numbers


def test_what_a_worker_raises_is_raised_and_the_rest_is_kept(
    jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    run_sweep(jobs[:1], tmp_path, executor=Inline())
    before = results(tmp_path)
    monkeypatch.setattr("probe.experiments.sweep.write_atomically", full)
    with pytest.raises(InputError, match="the disk is full"):
        run_sweep(jobs, tmp_path, executor=Inline())
    assert results(tmp_path) == before


SCRIPT = """
import sys
from tests.probe.experiments.small import *
from probe.experiments.experiment import load_experiment
from probe.experiments.plan import plan
from probe.experiments.jobs import groups
from probe.experiments.sweep import run_sweep
from probe.experiments.training import perform
if __name__ == "__main__":
    jobs = [one.job for one in plan(load_experiment(sys.argv[1]), "published")]
    run_sweep(groups(jobs, 2), perform, sys.argv[2], workers=2)
"""


def _sweep_process(path: Path, to: Path) -> subprocess.Popen[bytes]:
    script = path.with_name("script.py")
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, str(script), str(path), str(to)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, start_new_session=True)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_stopped_at_any_time_it_goes_on_and_repeats_nothing(tmp_path: Path, ending: signal.Signals) -> None:
    """Killed or interrupted: workers end too, results are whole, and the second call does the rest."""
    path = write_small(tmp_path, SMALL.replace("steps: 30", "steps: 1500"))
    to, whole = tmp_path / "stopped", tmp_path / "whole"
    process = _sweep_process(path, to)
    runs = to / "runs"
    deadline = time.monotonic() + 120
    while len(list(runs.glob("*.json")) if runs.is_dir() else []) < 2:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, ending)
    process.communicate(timeout=60)
    deadline = time.monotonic() + 30
    while _alive(process.pid):
        assert time.monotonic() < deadline, "a worker outlived its sweep"
        time.sleep(0.1)
    kept = results(to)
    for content in kept.values():
        json.loads(content)
    assert 2 <= len(kept) < 10
    assert _sweep_process(path, to).wait(timeout=300) == 0
    assert {name: content for name, content in results(to).items() if name in kept} == kept
    assert _sweep_process(path, whole).wait(timeout=300) == 0
    after, never = numbers(to), numbers(whole)
    assert after.keys() == never.keys() and len(after) == 10
    for key, found in after.items():
        assert found == pytest.approx(never[key], rel=0.05, abs=0.02)


def _alive(group: int) -> bool:
    """Whether any process of a session is there that is not a zombie."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == group and fields[0] != "Z":
                return True
    return False


def test_a_killed_worker_is_told_in_words(jobs: list[Job], tmp_path: Path) -> None:
    long = [job.model_copy(update={"steps": 100_000}) for job in jobs[:2]]
    killed = []

    def told(done: int, total: int, what: str) -> None:
        running = [path for path in (tmp_path / "running").glob("*.json")]
        if running and not killed:
            children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
            for child in children:
                command = Path(f"/proc/{child}/cmdline").read_bytes()
                if b"spawn_main" in command:
                    os.kill(int(child), signal.SIGKILL)
                    killed.append(child)

    with pytest.raises(InputError, match=r"a worker process died .* what is finished is kept"):
        run_sweep(long, tmp_path, workers=1, progress=told)
    assert killed


def test_work_is_what_another_executor_calls(jobs: list[Job], tmp_path: Path) -> None:
    for name in ("runs", "running", "checkpoints"):
        (tmp_path / name).mkdir()
    assert work(Task("one", (jobs[0],), perform, str(tmp_path))) == "one"
    assert read_result(tmp_path, jobs[0]) is not None


def test_an_error_of_a_worker_arrives_as_itself() -> None:
    error = InputError("here", "is wrong", "mend it")
    same = pickle.loads(pickle.dumps(error))
    assert (type(same), str(same), same.remedy) == (InputError, str(error), "mend it")
