"""Frozen networks run by OpenVINO on x86_64 CPUs (extra `openvino`): converted once, batches in parallel."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from encoders.model_files import WeightsUnavailable
from hardware.errors import InputError

HINTS = {"fp32": "f32", "bf16": "bf16"}
IMAGES_AT_ONCE = 4
"""In a batch, of which there are several at once; 2 and 8 are slower (ViT-S)."""
MACHINES = ("x86_64", "AMD64")


class OpenVinoNetwork:
    """A network compiled for this CPU and for batches of one shape.

    It works in the throughput mode of OpenVINO: the cores are shared out among several requests, each of
    which runs a batch of its own (two requests on two cores). The latency mode, all cores at one batch, loses
    a fifth in bf16: where a batch is done, its cores wait for the next.

    Parameters
    ----------
    network : what `features` runs; its weights become constants of the compiled network.
    features : features (n, d), several of them, of pixel values.
    example : pixel values; every batch has this shape.
    precision : `fp32` or `bf16`. OpenVINO would choose by itself, and differently on each machine.
    where : the encoder, for errors.

    Raises
    ------
    WeightsUnavailable : the package or the machine is not one that can.
    InputError : the network cannot be converted.
    """

    def __init__(
        self,
        network: nn.Module,
        features: Callable[[torch.Tensor], tuple[torch.Tensor, ...]],
        example: torch.Tensor,
        precision: str,
        where: str,
    ) -> None:
        openvino = import_openvino(where)
        core = openvino.Core()
        if precision == "bf16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise WeightsUnavailable(  # OpenVINO would compute in fp32, under the fingerprint of bf16
                where,
                "is asked for in bf16, which this CPU has not",
                "write precision: fp32, or leave runtime out",
            )
        try:
            with torch.no_grad():
                exported = torch.export.export(_Features(network, features).eval(), (example,))
            converted = openvino.convert_model(exported, input=list(example.shape))
            self._compiled = core.compile_model(
                converted,
                "CPU",
                {
                    "INFERENCE_PRECISION_HINT": HINTS[precision],
                    "PERFORMANCE_HINT": "THROUGHPUT",
                    "INFERENCE_NUM_THREADS": torch.get_num_threads(),
                },
            )
        except Exception as error:  # of torch.export and of OpenVINO, which name no common class
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
            raise InputError(
                where, f"cannot be converted for OpenVINO: {reason}", "leave runtime out: torch runs it"
            ) from None
        self._queue = openvino.AsyncInferQueue(self._compiled)  # as many requests as OpenVINO finds best

    def run(self, batches: Iterable[torch.Tensor], outputs: Sequence[int]) -> list[list[np.ndarray]]:
        """These of the features (n, d) of each batch; the next ones are made while some are computed."""
        found: dict[int, list[np.ndarray]] = {}

        def keep(request: Any, number: int) -> None:
            found[number] = [request.get_output_tensor(output).data.copy() for output in outputs]

        self._queue.set_callback(keep)
        try:
            for number, values in enumerate(batches):
                self._queue.start_async([values.numpy()], number)  # waits for a request that is free
        finally:
            self._queue.wait_all()
        return [found[number] for number in sorted(found)]


class _Features(nn.Module):
    """What is converted; the network is a part of it, so that its weights are found."""

    def __init__(
        self, network: nn.Module, features: Callable[[torch.Tensor], tuple[torch.Tensor, ...]]
    ) -> None:
        super().__init__()
        self.network, self._of = network, features

    def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self._of(values)


def import_openvino(where: str) -> Any:
    """The package, without its reports to Google Analytics and the files in the home folder they need."""
    if platform.machine() not in MACHINES:
        raise WeightsUnavailable(
            where,
            f"is to be run by OpenVINO, which is for x86_64; this machine is {platform.machine()}",
            "leave runtime out",
        )
    # OpenVINO sends them where it finds its package openvino_telemetry, unless told not to in a file of the
    # user's; where it finds none, it sends none.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    try:
        import openvino
    except ImportError:
        raise WeightsUnavailable(
            where, "needs the package openvino", "pip install -e '.[openvino]'"
        ) from None
    return openvino
