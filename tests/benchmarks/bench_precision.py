"""What bf16 costs a probe: R2 of joints from latents of one frozen network in fp32 and in bf16.

    PYTHONPATH=. python tests/benchmarks/bench_precision.py [--episodes 36] [--evaluate 12] [--every 3]

By torch and, where it is installed, by OpenVINO. The network is EfficientNet-Lite0 with its ImageNet weights
(extra `dev`), frames are those of demonstrations on the simulated arm. Beside the mean R2 stands its
difference from torch in fp32 with its interval over evaluation episodes, the largest difference of a joint,
and `1 - cosine` of latents with and without their mean. `--random` takes DINOv2-S with random weights.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_frozen import save_network
from torch.nn import functional

from encoders import WeightsUnavailable
from encoders.efficientnet_lite0 import FEATURES, build, pixels
from encoders.frozen import FrozenEncoder
from encoders.transformers_models import TransformersEncoder
from probe import ridge_probe
from probe.bootstrap import difference
from sim.record import record_simulated

VIEWS = ("front", "wrist")


class Lite0(FrozenEncoder):
    """EfficientNet-Lite0 under the adapter of frozen networks, which knows precisions and runtimes."""

    kind, where = "import", "EfficientNet-Lite0"
    outputs = {"pooled": FEATURES}  # noqa: RUF012

    def __init__(self, **settings: Any) -> None:
        self.network = build().network
        self.architecture = {"name": "efficientnet-lite0", "feature": "pooled"}
        super().__init__(None, "area to 224, (x - 127) / 128", **settings)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from sorted(self.network.state_dict().items())

    def _published(self, images: np.ndarray) -> torch.Tensor:
        return pixels(images)

    def _features(self, values: torch.Tensor, outputs: Sequence[str]) -> tuple[torch.Tensor, ...]:
        return (self.network.extract_features(values).mean(dim=(2, 3)),)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=36)
    parser.add_argument("--evaluate", type=int, default=12, help="episodes that are held out, of these")
    parser.add_argument("--every", type=int, default=3, help="take one row of so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--random", action="store_true", help="DINOv2-S with random weights instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        latents, joints, episodes = extract(folder, options)
    held = range(options.episodes - options.evaluate, options.episodes)
    print(f"{len(joints):,} rows of {options.episodes} demonstrations, {options.evaluate} of them held out")
    heads = f"{'mean R2':>9}{'apart':>10}   {'interval':22}{'largest':>10}{'1 - cosine':>12}{'centred':>9}"
    print(" " * 16 + heads)
    probed = {
        name: ridge_probe(values, joints, episodes, evaluate=held, seed=options.seed)
        for name, values in latents.items()
    }
    first = next(iter(latents))
    for name, one in probed.items():
        mean = one.scores.mean
        line = f"{name:16}{mean.value:9.4f}"
        if name != first:
            apart = difference(mean, probed[first].scores.mean)
            pairs = zip(one.scores.joints, probed[first].scores.joints)
            largest = max(abs(a.value - b.value) for a, b in pairs if a.value is not None)
            middle = latents[first].mean(axis=0)
            cosines = [
                one_minus_cosine(latents[name] - off, latents[first] - off) for off in (0 * middle, middle)
            ]
            line += f"{apart.value:+10.4f}   {f'[{apart.low:+.4f}, {apart.high:+.4f}]':<22}{largest:10.4f}"
            line += f"{cosines[0]:12.1e}{cosines[1]:9.1e}"
        print(line)


def extract(folder: str, options: argparse.Namespace) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Latents (N, D) by name of the arithmetic, joints (N, J) in rad and the episode of each row."""
    recording = record_simulated(
        f"{folder}/demos", motion="demos", episodes=options.episodes, seed=options.seed
    )
    network = f"{folder}/network"
    if options.random:
        save_network(Path(network))
    found: dict[str, list[np.ndarray]] = {}
    encoders: dict[str, FrozenEncoder] = {}
    for runtime, precision in product(("torch", "openvino"), ("fp32", "bf16")):
        settings: dict[str, Any] = {"views": VIEWS, "precision": precision, "runtime": runtime}
        try:
            encoders[f"{runtime}, {precision}"] = (
                TransformersEncoder(network, **settings) if options.random else Lite0(**settings)
            )
        except WeightsUnavailable as absent:
            print(f"{runtime} in {precision} left out: {absent}")
    joints, episodes = [], []
    for episode in recording.aligned(VIEWS):
        rows = np.arange(len(episode))[:: options.every]
        for frames in episode.batches(48, rows=rows):
            for name, encoder in encoders.items():
                found.setdefault(name, []).append(encoder.encode(frames))
        joints.append(episode.position[rows])
        episodes += [episode.index] * len(rows)
    latents = {name: np.concatenate(parts) for name, parts in found.items()}
    return latents, np.concatenate(joints), np.array(episodes)


def one_minus_cosine(one: np.ndarray, other: np.ndarray) -> float:
    """The largest over rows."""
    pair = torch.from_numpy(one).double(), torch.from_numpy(other).double()
    return 1 - float(functional.cosine_similarity(*pair).min())


if __name__ == "__main__":
    main()
