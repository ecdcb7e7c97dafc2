"""What a training keeps on disk while it runs: the checkpoint that it goes on from, and its log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn

from encoders.checkpoints import read_tensors
from hardware.disk import disk_errors, write_atomically
from hardware.errors import InputError

CHECKPOINT = "checkpoint.safetensors"
LOG = "training.jsonl"


class Checkpoint:
    """Network, optimiser and step in one safetensors file: one rename makes all of them new at once.

    Parameters
    ----------
    run : text that only this very training has; another one's checkpoint is refused.
    """

    def __init__(self, path: Path, run: str) -> None:
        self.path = path
        self.run = run

    def save(self, network: nn.Module, optimiser: torch.optim.Optimizer, step: int) -> None:
        """Write the state after `step` steps."""
        tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
        for number, state in optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{number}.{name}": value for name, value in state.items()}
        # contiguous: safetensors knows no channels-last memory; the values are the same
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        data = safetensors.torch.save(tensors, {"step": str(step), "run": self.run})
        with disk_errors(self.path):
            write_atomically(self.path, data)

    def restore(self, network: nn.Module, optimiser: torch.optim.Optimizer) -> int:
        """Load what was saved, if anything; returns the number of steps done."""
        if not self.path.is_file():
            return 0
        tensors = read_tensors(self.path)
        with safetensors.safe_open(self.path, framework="pt") as file:
            facts = file.metadata() or {}
        if facts.get("run") != self.run:
            raise InputError(
                self.path.parent,
                "holds an unfinished training with another recipe or other data",
                "choose another folder, or remove this one",
            )
        own = network.state_dict()
        for name, value in own.items():
            value.copy_(tensors[f"network.{name}"])
        state: dict[int, dict[str, torch.Tensor]] = {}
        parameters = list(network.parameters())
        for name, tensor in tensors.items():
            if name.startswith("optimiser."):
                _, number, entry = name.split(".")
                like = parameters[int(number)]
                if tensor.shape == like.shape:  # moments live in their parameter's memory format
                    tensor = torch.empty_like(like).copy_(tensor)
                state.setdefault(int(number), {})[entry] = tensor
        optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
        return int(facts["step"])


class Log:
    """training.jsonl: a line every few steps; a resumed run cuts the lines it will write again.

    Attributes
    ----------
    kept : the lines of before that stay.
    """

    def __init__(self, path: Path, keep_steps_to: int) -> None:
        with disk_errors(path):
            kept = [(line, facts) for line, facts in _whole_lines(path) if facts["step"] <= keep_steps_to]
            write_atomically(path, "".join(f"{line}\n" for line, _ in kept).encode())
            self._file = path.open("a", encoding="utf-8")
        self.kept = [facts for _, facts in kept]
        self.path = path

    def write(self, terms: Mapping[str, Any]) -> None:
        """Append a line; it can be watched as it grows."""
        with disk_errors(self.path):
            self._file.write(json.dumps(terms) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with disk_errors(self.path):
            self._file.close()


def logged_lines(folder: Path) -> list[dict[str, Any]]:
    """The log of a finished or interrupted training in `folder`."""
    return [facts for _, facts in _whole_lines(folder / LOG)]


def logged_warnings(folder: Path) -> list[str]:
    """What the log of a training in `folder` warns of."""
    return [facts["warning"] for facts in logged_lines(folder) if "warning" in facts]


def _whole_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Lines that end in a newline, and what they say: a kill may have torn the last one."""
    if not path.is_file():
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            continue
        try:
            facts = json.loads(line)
            int(facts["step"])
        except (ValueError, TypeError, KeyError):
            raise InputError(
                f"{path}, line {number}", "is no line of a training's log", "remove it"
            ) from None
        yield line.rstrip("\n"), facts
