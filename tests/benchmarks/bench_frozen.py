"""Frozen encoders beside the plain Hugging Face loop (processor, then model, batch 1 and 32).

    PYTHONPATH=. python tests/benchmarks/bench_frozen.py [--threads 2] [--rounds 5] [--frames 32]

DINOv2-S/14 with random weights (as fast as the published), 224 px from 640 x 480 frames; by torch and, where
it is installed, by OpenVINO. Every variant of a round runs once, in turn, on the same frames. Beside frames/s
stands what share that is of the machine's own matrix product in the same precision, measured in the same
rounds, and how far latents are from those of the plain loop: cosine, and cosine after taking the mean latent
away, since the latents of a network have much in common. Preprocessing alone comes first.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn import functional

from encoders import WeightsUnavailable
from encoders.frame_preprocessing import hard_frames
from encoders.transformers_models import TransformersEncoder

GFLOP_A_FRAME = 12.25  # DINOv2-S/14 at 224 px: 257 tokens, 12 layers; matrix products and attention
MATRIX = 2048
SIZE = (480, 640)
PRECISIONS = ("fp32", "bf16")
SMALL = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frames", type=int, default=32)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    frames = hard_frames(*SIZE, arguments.frames)
    with tempfile.TemporaryDirectory() as folder:
        save_network(Path(folder))
        print(
            f"{os.cpu_count()} cores, {arguments.threads} threads, {torch.backends.cpu.get_cpu_capability()}"
        )
        compare_preprocessing(folder, frames, arguments.rounds)
        compare_encoding(folder, frames, arguments.rounds)


def compare_preprocessing(folder: str, frames: np.ndarray, rounds: int) -> None:
    """The processors of transformers, on tensors and of Pillow, beside our steps; one thread.

    Batches are thrown away once they are made, as encoding does; the last frame is looked at.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    tensors = transformers.AutoImageProcessor.from_pretrained(folder)
    pillow = transformers.BitImageProcessorPil.from_pretrained(folder)
    encoder = _encoder(folder)

    def by(processor: Any) -> Callable[[np.ndarray], Any]:
        return lambda some: processor(images=list(some), return_tensors="pt")["pixel_values"].numpy()

    variants: dict[str, Callable[[], Any]] = {
        "processor on tensors, batch 1": _in_batches(by(tensors), frames, 1),
        "processor on tensors, batch 32": _in_batches(by(tensors), frames, 32),
        "processor of Pillow, batch 32": _in_batches(by(pillow), frames, 32),
        "ours, batch 8": _in_batches(lambda some: encoder.preprocessed(some[:, None]), frames, 8),
    }
    seconds, found = _interleaved(variants, rounds)
    print(f"\npreprocessing {SIZE[1]} x {SIZE[0]} -> 224, one thread")
    print(f"{'':34}{'frames/s':>9}{'ours is faster by':>19}{'grey levels':>13}")
    std = np.reshape(tensors.image_std, (3, 1, 1))
    for name, times in seconds.items():
        ratio = float(np.median(np.divide(times, seconds["ours, batch 8"])))
        apart = np.abs((found[name][-1] - found["ours, batch 8"][-1]) * std).max() * 255
        print(f"{name:34}{len(frames) / np.median(times):9.0f}{ratio:19.2f}{apart:13.2g}")
    torch.set_num_threads(threads)


def compare_encoding(folder: str, frames: np.ndarray, rounds: int) -> None:
    """Frames to latents, all of it."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()

    def plain(batch: int) -> np.ndarray:
        parts = []
        with torch.no_grad():
            for start in range(0, len(frames), batch):
                inputs = processor(images=list(frames[start : start + batch]), return_tensors="pt")
                parts.append(model(**inputs).last_hidden_state[:, 0].numpy())
        return np.concatenate(parts)

    ours = {f"ours, {precision}": _encoder(folder, precision=precision) for precision in PRECISIONS}
    for precision in PRECISIONS:
        try:
            by_openvino = _encoder(folder, precision=precision, runtime="openvino")
        except WeightsUnavailable as absent:
            print(f"OpenVINO in {precision} left out: {absent}")
        else:
            ours[f"OpenVINO, {precision}"] = by_openvino
    encoding = {name: partial(encoder.encode, frames[:, None]) for name, encoder in ours.items()}
    variants: dict[str, Callable[[], Any]] = {
        "plain loop, batch 1": lambda: plain(1),
        "plain loop, batch 32": lambda: plain(32),
        **encoding,
        "matrix product, fp32": lambda: _product(torch.float32),
        "matrix product, bf16": lambda: _product(torch.bfloat16),
    }
    seconds, found = _interleaved(variants, rounds)
    peak = {name: 2 * MATRIX**3 / 1e9 / np.median(seconds[f"matrix product, {name}"]) for name in PRECISIONS}
    reference = found["plain loop, batch 1"]
    print(f"\nDINOv2-S/14, {len(frames)} frames; matrix products of {MATRIX}: " + _peaks(peak))
    print(
        f"{'':22}{'frames/s':>9}{'x batch 1':>11}{'x batch 32':>12}{'GFLOP/s':>9}{'of peak':>9}"
        f"{'1 - cosine':>12}{'centred':>10}{'largest':>10}"
    )
    for name in list(variants)[:-2]:
        rate = len(frames) / float(np.median(seconds[name]))
        ratios = [
            np.median(np.divide(seconds[f"plain loop, batch {size}"], seconds[name])) for size in (1, 32)
        ]
        share = rate * GFLOP_A_FRAME / peak["bf16" if "bf16" in name else "fp32"]
        mean = reference.mean(axis=0)
        apart = (
            _one_minus_cosine(found[name], reference),
            _one_minus_cosine(found[name] - mean, reference - mean),
        )
        largest = np.abs(found[name] - reference).max()
        print(
            f"{name:22}{rate:9.2f}{ratios[0]:11.2f}{ratios[1]:12.2f}{rate * GFLOP_A_FRAME:9.0f}{share:9.0%}"
            f"{apart[0]:12.1e}{apart[1]:10.1e}{largest:10.1e}"
        )


def save_network(folder: Path) -> None:
    """DINOv2-S/14 with random weights and its processor, as transformers saves them."""
    torch.manual_seed(0)
    config = transformers.Dinov2Config(**SMALL, image_size=518, patch_size=14)
    transformers.Dinov2Model(config).save_pretrained(folder)
    transformers.BitImageProcessor(
        size={"shortest_edge": 256},
        crop_size={"height": 224, "width": 224},
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    ).save_pretrained(folder)


def _encoder(folder: str, **settings: Any) -> TransformersEncoder:
    return TransformersEncoder(folder, views=["front"], image_shapes={"front": SIZE}, **settings)


def _in_batches(
    process: Callable[[np.ndarray], Any], frames: np.ndarray, batch: int
) -> Callable[[], np.ndarray]:
    """Process all frames, batch by batch; the pixel values of the last one."""

    def run() -> np.ndarray:
        values: Any = None
        for start in range(0, len(frames), batch):
            values = None  # its memory is free for the next
            values = process(frames[start : start + batch])
        return np.array(values)

    return run


def _product(dtype: torch.dtype) -> None:
    matrix = torch.ones(MATRIX, MATRIX, dtype=dtype)
    matrix @ matrix


def _interleaved(
    variants: dict[str, Callable[[], Any]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Seconds of each round, and the last result, of every variant; a first round is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    found: dict[str, Any] = {}
    for number in range(rounds + 1):
        for name, run in variants.items():
            started = time.perf_counter()
            found[name] = run()
            if number:
                seconds[name].append(time.perf_counter() - started)
    return seconds, found


def _one_minus_cosine(one: np.ndarray, other: np.ndarray) -> float:
    pair = torch.from_numpy(one).double(), torch.from_numpy(other).double()
    return 1 - float(functional.cosine_similarity(*pair).min())


def _peaks(peak: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.0f} GFLOP/s" for name, value in peak.items())


if __name__ == "__main__":
    main()
