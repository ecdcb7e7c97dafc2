"""Stored latents of one encoder: everything that is checked of them before a probe may believe them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from encoders import Encoder, LatentStore
from hardware.checks import Check, Look, not_testable
from hardware.recording import Recording
from probe.checks.episodes import check_calibration_step
from probe.checks.extraction import check_batches, check_channels, check_preprocessed, check_views_reach
from probe.checks.lag import check_lag, lag_finding, measure_lag
from probe.checks.pixels import moving_joints, pixel_rows
from probe.checks.precision import check_precision
from probe.checks.reextraction import check_reextraction
from probe.checks.samples import common_frame_size, sample_episodes, take_sample
from probe.clusters import EpisodeClusters

COLLAPSED_STD = 1e-6
SAMPLE_EPISODES, SAMPLE_FRAMES = 6, 4  # frames on which an encoder's response is measured: 24


def check_extraction(
    source: str,
    encoder: Encoder,
    recording: Recording,
    store: LatentStore,
    train: Sequence[int],
    evaluate: Sequence[int],
    views: Sequence[str],
    *,
    looks: Sequence[Look] | None = None,
) -> list[Check]:
    """All checks of one encoder's latents of one recording.

    Parameters
    ----------
    source : `ENCODER` or `ENCODER/DATA`, put before each check's name.
    train, evaluate : episodes whose latents are stored; a sample of them is encoded again.
    looks : the recording's frames as looked at (`look`), where they are at hand: a lag of the latents can
        then be told from a lag of the recording itself.

    Raises
    ------
    InputError : latents of an episode that are not there, or frames that cannot be read.
    """
    episodes = [*train, *evaluate]
    stored = {index: store.read(encoder.fingerprint, recording.episode(index).sha256) for index in episodes}
    x_train = np.concatenate([stored[index].latent for index in train])
    x_evaluate = np.concatenate([stored[index].latent for index in evaluate])
    checks = [
        check_finite(f"{source}: finite latents", x_train, x_evaluate),
        check_collapse(f"{source}: dimensions that move", x_train),
    ]
    if checks[0].alarm:
        return checks
    size = common_frame_size(recording, views, encoder)
    frames = np.concatenate(
        [
            take_sample(recording, views, index, SAMPLE_FRAMES, size).frames
            for index in sample_episodes(episodes, SAMPLE_EPISODES)
        ]
    )
    of_clips = encoder.clip_frames > 1
    if of_clips:  # clips in which nothing moves do to see what reaches the encoder
        frames = np.repeat(frames[:, :, None], encoder.clip_frames, axis=2)
    checks += [
        check_batches(f"{source}: batch independence", encoder, frames),
        check_channels(f"{source}: channels", encoder, frames),
        check_views_reach(f"{source}: views", encoder, frames),
        check_preprocessed(f"{source}: normalisation", encoder, frames),
    ]
    if of_clips:
        why = "clips are not encoded again: each would need the frames before its row"
        checks.append(not_testable(f"{source}: re-extraction", why))
    else:
        checks += check_reextraction(source, encoder, recording, store, episodes, views)
    x = np.concatenate([x_train, x_evaluate])
    y = np.concatenate([stored[index].position for index in episodes])
    clusters = EpisodeClusters.of(np.repeat(episodes, [len(stored[index]) for index in episodes]))
    whole = all(stored[index].facts.get("max_rows") is None for index in episodes)
    pixels = pixel_rows(recording, looks).get(views[0]) if looks is not None and whole else None
    moving = moving_joints(recording, y, clusters)
    rows = np.repeat(train, [len(stored[index]) for index in train])
    precision = check_precision(
        f"{source}: precision", encoder, frames, x_train, y[: len(x_train)], EpisodeClusters.of(rows), moving
    )
    checks += [] if precision is None else [precision]
    own = check_lag(pixels)[1] if pixels is not None else None
    checks.append(lag_finding(f"{source}: lag", "latents", measure_lag(x, y, clusters, moving=moving), own))
    radians = moving & np.array([joint.unit == "rad" for joint in recording.info.joints])
    checks.append(
        check_calibration_step(
            f"{source}: calibration step", x, y, clusters, recording.info.joint_names, radians
        )
    )
    return checks


def check_finite(name: str, train: NDArray[np.float32], evaluate: NDArray[np.float32]) -> Check:
    """Latents [N, D] and [M, D]: all numbers."""
    bad = int((~np.isfinite(train)).sum() + (~np.isfinite(evaluate)).sum())
    if bad:
        message = f"{bad} values that are not numbers"
        return Check(name, "fail", message, {"not_finite": bad}, "train with a lower learning rate")
    return Check(name, "pass", f"{len(train) + len(evaluate):,} latents, all finite", {"not_finite": 0})


def check_collapse(name: str, train: NDArray[np.float32]) -> Check:
    """Dimensions of latents [N, D] that do not move over the training rows."""
    std = train.std(axis=0, dtype=np.float64)
    still = int((std < COLLAPSED_STD * max(float(train.std(dtype=np.float64)), 1e-30)).sum())
    width = train.shape[1]
    message = f"{width - still} of {width} dimensions move over the training rows"
    evidence = {"collapsed": still, "width": width}
    if still:
        return Check(name, "warn", message, evidence, "the encoder has collapsed in part: look at its loss")
    return Check(name, "pass", message, evidence)
