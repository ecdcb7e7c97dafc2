"""What reaches an encoder: every channel, every view, frame by frame, normalised once; and what comes out.

Distances between latents are in units of the typical distance between latents of different frames (their
median), so that one tolerance serves every encoder.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoders import Encoder
from hardware.checks import Check, not_testable
from hardware.errors import InputError
from probe.checks.colours import is_grey

NO_RESPONSE = 1e-6  # latents that move by less do not hear a channel at all
SAME = 1e-3  # the same frame in another batch: other kernels round differently, by far less than this
NORMALISED_MEAN, NORMALISED_STD, NORMALISED_MOST = 3.0, (0.05, 5.0), 50.0
CHANNELS = ("red", "green", "blue")

Encode = Callable[[NDArray[np.uint8]], NDArray[np.float32]]


def typical_distance(latents: NDArray[np.floating[Any]]) -> float:
    """Median Euclidean distance between latents [n, D] of different rows; 0 where all are the same."""
    z = np.asarray(latents, dtype=np.float64)
    i, j = np.triu_indices(len(z), 1)
    return float(np.median(np.linalg.norm(z[i] - z[j], axis=1))) if len(i) else 0.0


def distances(
    a: NDArray[np.floating[Any]], b: NDArray[np.floating[Any]], typical: float
) -> NDArray[np.float64]:
    """Distance of latents row by row, [n], in typical distances."""
    apart = np.linalg.norm(np.asarray(a, np.float64) - np.asarray(b, np.float64), axis=1)
    return apart / typical if typical > 0 else apart


def check_channels(name: str, encoder: Encoder, frames: NDArray[np.uint8]) -> Check:
    """Whether red, green and blue each reach the latents.

    The frames are encoded with channels permuted, each one set to 0, and each one copied into all three. A
    channel whose loss moves no latent is not reaching the encoder: the "red channel only" mistake. An encoder
    may declare `preprocessing["colour"] = "grey"`.

    Parameters
    ----------
    frames : uint8 (n, V, H, W, 3), a few that differ from each other.
    """
    base = encoder.encode(frames)
    typical = typical_distance(base)
    if typical == 0:
        return Check(name, "fail", "all frames give the same latent", {}, "the encoder has collapsed")
    grey, colour = is_grey(frames), str(encoder.preprocessing.get("colour", "rgb"))

    def response(changed: NDArray[np.uint8]) -> float:
        return float(np.median(distances(encoder.encode(np.ascontiguousarray(changed)), base, typical)))

    zeroed: dict[str, float | None] = {}
    copied = {}
    for c, channel in enumerate(CHANNELS):
        without = frames.copy()
        without[..., c] = 0
        zeroed[channel] = response(without) if frames[..., c].max() > 0 else None
        copied[channel] = response(np.repeat(frames[..., c : c + 1], 3, axis=-1))
    orders = {
        "".join("RGB"[c] for c in order): list(order)
        for order in permutations(range(3))
        if order != (0, 1, 2)
    }
    permuted = {order: response(frames[..., index]) for order, index in orders.items()}
    sensitivity = max(permuted.values())
    evidence = {"zeroed": zeroed, "copied_into_all": copied, "permuted": permuted, "unit": "typical distance"}
    deaf = [channel for channel, value in zeroed.items() if value is not None and value < NO_RESPONSE]
    if deaf:
        return Check(
            name,
            "fail",
            f"{' and '.join(deaf)} do{'es' if len(deaf) == 1 else ''} not reach the encoder: "
            "latents are the same without",
            evidence,
            "look at how frames become tensors: a channel axis is indexed or repeated",
        )
    if grey:
        return not_testable(name, "the frames themselves are grey: only that they reach it is seen", evidence)
    if sensitivity < NO_RESPONSE:
        if colour in ("grey", "gray"):
            return Check(name, "pass", "the encoder declares grey, and sees brightness only", evidence)
        message = "the encoder sees brightness only: exchanging channels moves no latent"
        return Check(name, "warn", message, evidence, "if it is meant to, declare preprocessing colour: grey")
    empty = [channel for channel, value in zeroed.items() if value is None]
    message = (
        f"all channels reach the latents: exchanging them moves one by {sensitivity:.3f} typical distances"
    )
    return Check(name, "pass", message + (f"; {', '.join(empty)} empty" if empty else ""), evidence)


def check_views_reach(name: str, encoder: Encoder, frames: NDArray[np.uint8]) -> Check:
    """Whether every view moves the latents, when its frames are exchanged with those of other rows."""
    base = encoder.encode(frames)
    typical = typical_distance(base)
    moved = {}
    for v, view in enumerate(encoder.views or [str(v) for v in range(frames.shape[1])]):
        other = frames.copy()
        other[:, v] = np.roll(frames[:, v], len(frames) // 2, axis=0)
        moved[view] = float(np.median(distances(encoder.encode(other), base, typical)))
    deaf = [view for view, value in moved.items() if value < NO_RESPONSE]
    if deaf:
        return Check(
            name,
            "fail",
            f"latents do not move with {', '.join(deaf)}",
            {"response": moved},
            "the view is not reaching the encoder, or its frames never change",
        )
    return Check(name, "pass", f"latents move with every view ({', '.join(moved)})", {"response": moved})


def check_batches(name: str, encoder: Encoder, frames: NDArray[np.uint8]) -> Check:
    """Whether a frame's latent depends on what else is in its batch (batch norm left in training mode), on
    its place there, or on chance (dropout)."""
    n = len(frames)
    base = encoder.encode(frames)
    typical = typical_distance(base)
    order = np.random.default_rng(0).permutation(n)
    tried: dict[str, Callable[[], NDArray[np.float32]]] = {
        "again": lambda: encoder.encode(frames),
        "in another order": lambda: encoder.encode(frames[order])[np.argsort(order)],
        "in other company": lambda: np.concatenate([encoder.encode(frames[k::3]) for k in range(3)])[
            np.argsort(np.concatenate([np.arange(n)[k::3] for k in range(3)]))
        ],
        "alone": lambda: np.concatenate([encoder.encode(frames[i : i + 1]) for i in range(min(n, 4))]),
    }
    apart: dict[str, float] = {}
    for how, encode in tried.items():
        try:
            latents = encode()
        except (InputError, ValueError, RuntimeError) as error:
            return Check(
                name,
                "fail",
                f"a frame cannot be encoded {how}: {str(error).splitlines()[0][:160]}",
                {"apart": apart},
                "a batch norm left in training mode refuses single frames: call eval() before encoding",
            )
        apart[how] = float(distances(latents, base[: len(latents)], typical).max())
    worst = max(apart, key=lambda how: apart[how])
    if apart[worst] <= SAME:
        message = (
            f"a frame's latent is its own: at most {apart[worst]:.1e} typical distances in another batch"
        )
        return Check(name, "pass", message, {"apart": apart})
    cause = (
        "dropout or another source of chance"
        if worst == "again" or apart["again"] > SAME
        else ("a batch norm left in training mode, or statistics taken from the batch")
    )
    return Check(
        name,
        "fail",
        f"the same frame encoded {worst} gives another latent: {apart[worst]:.3g} typical distances",
        {"apart": apart},
        f"{cause}: call eval() before encoding, then extract again",
    )


def check_preprocessed(name: str, encoder: Encoder, frames: NDArray[np.uint8]) -> Check:
    """Range, mean and std of what the network reads, where the encoder shows it as `preprocessed(frames)`."""
    shown = getattr(encoder, "preprocessed", None)
    values = shown(frames) if callable(shown) else None
    if values is None:
        return not_testable(name, "the encoder does not show what its network reads")
    x = np.asarray(values, dtype=np.float64)
    mean, std, most = float(x.mean()), float(x.std()), float(np.abs(x).max())
    evidence = {"mean": mean, "std": std, "most": most}
    low, high = NORMALISED_STD
    cause = ""
    if not np.isfinite(x).all():
        cause = "it holds values that are not numbers"
    elif most > NORMALISED_MOST or std > high:
        cause = "frames go in as they are, 0 to 255, unscaled"
    elif std < low:
        cause = "it hardly varies: scaled twice"
    elif abs(mean) > NORMALISED_MEAN:
        cause = "its mean is far from 0: statistics of other frames"
    told = f"mean {mean:.3g}, std {std:.3g}, at most {most:.3g}"
    if cause:
        return Check(
            name, "fail", f"what the network reads has {told}: {cause}", evidence, "scale and normalise once"
        )
    return Check(name, "pass", f"what the network reads has {told}", evidence)
