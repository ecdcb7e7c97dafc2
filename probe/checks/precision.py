"""What arithmetic of fewer bits costs: the joints that a probe reads, from latents in bf16 and in fp32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bars.study import ProbeSettings
from encoders import Encoder
from hardware.checks import Check, not_testable
from probe.clusters import EpisodeClusters
from probe.ridge import fit_ridge

MOST_SHARE = 0.002  # of a joint's variance


def check_precision(
    name: str,
    encoder: Encoder,
    frames: NDArray[np.uint8],
    x_train: NDArray[np.float32],
    y_train: NDArray[np.float64],
    train: EpisodeClusters,
    moving: NDArray[np.bool_],
) -> Check | None:
    """How far bf16 moves what a ridge probe of the stored latents reads; None for an encoder in fp32.

    The frames are encoded as the encoder does it, and by the same network in fp32 under torch. From both the
    probe, fitted to the training latents, reads joints, y and y'. Rounding moves of joint j the share

        mean_n (y_nj - y'_nj)^2 / var_train(y_j)

    R2 falls by about that much where the probe stays the same, and by more where its fit had to do with noisy
    latents: 0.06 to 0.10 was lost by EfficientNet-Lite0, whose share is far above `MOST_SHARE`.

    Parameters
    ----------
    frames : uint8 (n, V, H, W, 3), of several episodes.
    x_train, y_train, train : latents [N, D], joints [N, J] and their episodes.
    moving : bool [J], joints that move enough to be read.
    """
    exact = encoder.in_fp32()
    if exact is None:
        return None
    if not moving.any() or len(train) < 2:
        return not_testable(name, "no joint moves enough, or there is one training episode")
    fit = fit_ridge(x_train, y_train, train, alphas=ProbeSettings().alphas, testable=moving)
    apart = fit.predict(encoder.encode(frames)) - fit.predict(exact.encode(frames))  # [n, J]
    share = np.square(apart).mean(axis=0)[moving] / y_train[:, moving].var(axis=0)
    worst = float(share.max())
    evidence = {"share_of_variance": share.tolist(), "frames": len(frames)}
    message = f"rounding to bf16 moves what a probe reads of a joint by {worst:.1e} of its variance at most"
    if worst > MOST_SHARE:
        return Check(name, "warn", message, evidence, "R2 is lower for it: extract in fp32 where it matters")
    return Check(name, "pass", message, evidence)
