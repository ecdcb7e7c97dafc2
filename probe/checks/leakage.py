"""Leakage: does what is evaluated lie among what was trained on?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardware.checks import Check, not_testable
from hardware.errors import InputError
from hardware.recording import Recording
from probe.checks.pixels import PixelRows

NEAR_SHARE = 0.5  # of an episode's frames that follow a training episode before it counts as seen
MIN_RUN = 20  # moving rows that are needed to say so


def check_split(recording: Recording, train: Sequence[int], evaluate: Sequence[int]) -> Check:
    """Training and evaluation episodes are different ones: by number, by the bytes of their files, and in
    time."""
    name = "split"
    shared = sorted(set(train) & set(evaluate))
    if shared:
        return _split_fails(name, f"episodes {shared[:8]} are in both", shared)
    shas = {recording.episode(index).sha256: index for index in train}
    twins = {index: shas[sha] for index in evaluate if (sha := recording.episode(index).sha256) in shas}
    if twins:
        said = ", ".join(f"{index} is {other}" for index, other in list(twins.items())[:5])
        return _split_fails(
            name, f"evaluation episodes have the very file of training episodes: {said}", list(twins)
        )
    spans = {index: _span(recording, index) for index in (*train, *evaluate)}
    known = {index: span for index, span in spans.items() if span is not None}
    overlaps = [
        (e, t)
        for e in evaluate
        for t in train
        if e in known and t in known and known[e][0] < known[t][1] and known[t][0] < known[e][1]
    ]
    if overlaps:
        said = ", ".join(f"{e} and {t}" for e, t in overlaps[:5])
        return _split_fails(
            name, f"cut from the same stretch of time: episodes {said}", [e for e, _ in overlaps]
        )
    evidence: dict[str, Any] = {"train": len(train), "evaluate": len(evaluate)}
    message = f"{len(train)} training and {len(evaluate)} evaluation episodes, none in both"
    if len(known) == len(spans) and train and evaluate:
        gaps = [
            min(max(known[t][0] - known[e][1], known[e][0] - known[t][1]) for t in train) / 1e9
            for e in evaluate
        ]
        evidence["seconds_to_nearest_training_episode"] = {
            "least": min(gaps),
            "median": float(np.median(gaps)),
        }
        message += f"; the nearest are {min(gaps):.0f} s apart"
    else:
        message += "; their distance in time is not known"
    return Check(name, "pass", message, evidence)


def _split_fails(name: str, message: str, episodes: Sequence[int]) -> Check:
    remedy = "split by episode: no episode, whole or in part, on both sides"
    return Check(name, "fail", message, {"episodes": sorted(set(episodes))}, remedy)


def _span(recording: Recording, index: int) -> tuple[int, int] | None:
    """Wall-clock start and end of an episode, ns; None where they are not known."""
    try:
        clocks = recording.episode(index).clocks()
    except InputError:
        return None
    start, end = clocks.get("start_wall_ns", 0), clocks.get("end_wall_ns", 0)
    return (start, end) if 0 < start < end else None


def check_row_split(train_episode: ArrayLike, evaluate_episode: ArrayLike, name: str = "row_split") -> Check:
    """A split given row by row, as the episode of each training and each evaluation row: none in both."""
    train, evaluate = np.asarray(train_episode), np.asarray(evaluate_episode)
    shared = np.intersect1d(train, evaluate)
    if not len(shared):
        return Check(name, "pass", "no episode has rows on both sides", {"episodes": []})
    rows = int(np.isin(evaluate, shared).sum())
    return Check(
        name,
        "fail",
        f"split by frame: {len(shared)} episodes have rows on both sides, "
        f"{rows} of {len(evaluate)} evaluation rows are of them",
        {"episodes": shared.tolist(), "rows": rows},
        "split by episode: neighbouring frames are all but the same frame",
    )


def check_near_duplicates(
    rows: Mapping[str, PixelRows], train: Sequence[int], evaluate: Sequence[int]
) -> Check:
    """Evaluation episodes whose frames follow those of a training episode nearly pixel by pixel.

    A moving evaluation frame is near a training frame where it is nearer than half of what changes between
    consecutive moving frames of its own episode (median, over 16 x 16 colour pixels), in every view. An
    episode of which more than half the moving frames are near frames of one training episode was seen.
    """
    name = "near_duplicates"
    followed = [_followed(one, train, evaluate) for one in rows.values()]
    common = set.intersection(*(set(each) for each in followed)) if followed else set()
    shares = {episode: min(each[episode] for each in followed) for episode in sorted(common)}
    if not shares:
        return not_testable(name, "no evaluation episode with moving frames")
    seen = {episode: pair for episode, pair in shares.items() if pair[0] > NEAR_SHARE}
    evidence = {
        "episodes": list(seen),
        "near_share": {str(e): round(share, 4) for e, (share, _) in shares.items()},
    }
    if not seen:
        most = max(share for share, _ in shares.values())
        message = (
            f"no evaluation episode repeats a training episode (at most {most:.0%} of its frames are near)"
        )
        return Check(name, "pass", message, evidence)
    said = ", ".join(f"{e} repeats {other} ({share:.0%})" for e, (share, other) in list(seen.items())[:5])
    return Check(
        name,
        "fail",
        f"evaluation episodes repeat training episodes frame by frame: {said}",
        evidence,
        "a copied or replayed episode, or one cut in two: keep both parts on one side",
    )


def _followed(rows: PixelRows, train: Sequence[int], evaluate: Sequence[int]) -> dict[int, tuple[float, int]]:
    """Of each evaluation episode the largest share of moving frames near a training episode, and which."""
    small = {
        episode: rows.small[rows.clusters.rows(e)].reshape(-1, 768).astype(np.float32)
        for e, episode in enumerate(rows.episodes)
    }
    out: dict[int, tuple[float, int]] = {}
    for episode in evaluate:
        if episode not in small:
            continue
        frames = small[episode]
        change = np.linalg.norm(np.diff(frames, axis=0), axis=1)
        moves = change > max(float(np.median(change)) * 0.5, 1e-6)
        if moves.sum() < MIN_RUN:
            continue
        limit = 0.5 * float(np.median(change[moves]))
        moving = frames[1:][moves]
        best = (0.0, -1)
        for other in train:
            if other in small:
                best = max(best, (float((_nearest(moving, small[other]) < limit).mean()), other))
        out[episode] = best
    return out


def _nearest(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    """Distance of each row of a [n, D] to its nearest row of b [m, D]."""
    square = (a.astype(np.float64) ** 2).sum(axis=1)[:, None] + (b.astype(np.float64) ** 2).sum(axis=1)
    return np.sqrt(np.maximum((square - 2 * (a @ b.T)).min(axis=1), 0.0))
