"""SIGReg of a batch spread over two processes, gradients averaged by DistributedDataParallel, against the
whole batch in one process."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.multiprocessing import spawn
from torch.nn.parallel import DistributedDataParallel

from encoders import losses

PROCESSES = 2
# samples of each process, of 3 time steps; with uneven batches neither statistic is a mean of local ones
BATCHES = {"even": (20, 20), "uneven": (7, 33), "one sample": (39, 1), "none": (40, 0)}


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4)).double()


def _frames(counts: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    """Each process's frames (3, N, 5)."""
    drawn = np.random.default_rng(1).standard_normal((3, sum(counts), 5))
    return torch.from_numpy(drawn).split(counts, dim=1)


def _learn(
    network: nn.Module, frames: torch.Tensor, seed: int, group: object | None
) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = network(frames)
    z.retain_grad()
    value = losses.sigreg(z, slices=16, generator=generator, group=group)  # type: ignore[arg-type]
    (0.3 * value).backward()
    gradient = torch.cat([p.grad.flatten() for p in network.parameters()])  # type: ignore[union-attr]
    return {"value": value.detach(), "parameters": gradient, "z": z.grad}


def _process(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'rendezvous'}",
        rank=rank,
        world_size=PROCESSES,
        timeout=timedelta(seconds=60),
    )
    group = distributed.group.WORLD
    found = {}
    for name, counts in BATCHES.items():
        network = DistributedDataParallel(_network())
        # a seed of its own, as training that augments has it: the first process's directions count
        found[name] = _learn(network, _frames(counts)[rank], 10 + rank, group)
    alone = losses.sigreg(_frames((20, 20))[rank], slices=16, generator=torch.Generator().manual_seed(10))
    found["alone"] = {"value": alone}
    torch.save(found, folder / f"{rank}.pt")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, torch.Tensor]]]:
    folder = tmp_path_factory.mktemp("processes")
    spawn(_process, args=(folder,), nprocs=PROCESSES)
    return [torch.load(folder / f"{rank}.pt") for rank in range(PROCESSES)]


@pytest.mark.parametrize("name", BATCHES)
def test_two_processes_are_one_on_the_whole_batch(
    name: str, found: list[dict[str, dict[str, torch.Tensor]]]
) -> None:
    counts = BATCHES[name]
    whole = _learn(_network(), torch.cat(_frames(counts), dim=1), 10, None)
    exact = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-12)
    for process, of_z in zip(found, whole["z"].split(counts, dim=1)):
        exact(process[name]["value"], whole["value"])
        exact(process[name]["parameters"], whole["parameters"])
        exact(process[name]["z"], PROCESSES * of_z)
    assert whole["parameters"].norm() > 0.1


def test_without_a_group_a_process_is_alone(found: list[dict[str, dict[str, torch.Tensor]]]) -> None:
    for process, frames in zip(found, _frames((20, 20))):
        expected = losses.sigreg(frames, slices=16, generator=torch.Generator().manual_seed(10))
        torch.testing.assert_close(process["alone"]["value"], expected)
    together = losses.sigreg(
        torch.cat(_frames((20, 20)), dim=1), slices=16, generator=torch.Generator().manual_seed(10)
    )
    local = torch.stack([process["alone"]["value"] for process in found])
    assert abs(local.mean() - together) > 0.1 and abs(local.sum() - together) > 0.1
