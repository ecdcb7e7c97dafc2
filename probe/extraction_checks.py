"""Checks of an extraction: latents that cannot carry what the probe asks of them."""

from __future__ import annotations

from typing import Any

import numpy as np

COLLAPSED_STD = 1e-6


def check_latents(source: str, train: np.ndarray, evaluate: np.ndarray) -> list[dict[str, Any]]:
    """Finite values and dimensions that move, over training and evaluation rows.

    Parameters
    ----------
    source : `ENCODER` or `ENCODER/DATA`.
    train, evaluate : latents (N, D) and (M, D).

    Returns
    -------
    One dict a check: name, state (`pass`, `warn` or `fail`), message, evidence, remedy.
    """
    bad = int((~np.isfinite(train)).sum() + (~np.isfinite(evaluate)).sum())
    finite = {
        "name": f"{source}: finite latents",
        "state": "fail" if bad else "pass",
        "message": f"{bad} values that are not numbers"
        if bad
        else f"{len(train) + len(evaluate):,} latents, all finite",
        "evidence": {"not_finite": bad},
        "remedy": "train with a lower learning rate" if bad else "",
    }
    still = int((train.std(axis=0) < COLLAPSED_STD * max(float(train.std()), 1e-30)).sum())
    moving = {
        "name": f"{source}: dimensions that move",
        "state": "warn" if still else "pass",
        "message": f"{train.shape[1] - still} of {train.shape[1]} dimensions move over the training rows",
        "evidence": {"collapsed": still, "width": int(train.shape[1])},
        "remedy": "the encoder has collapsed in part: look at its loss" if still else "",
    }
    return [finite, moving]
