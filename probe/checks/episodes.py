"""Episodes among each other: another episode's video, rows out of order, a neutral that moved in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t

from hardware.checks import Check, not_testable
from hardware.checks.check import and_more, in_words, listed
from probe.checks.pixels import MIN_ROWS, PixelRows, centred, held_out, predict_held_out
from probe.clusters import EpisodeClusters
from probe.moments import FloatArray
from probe.statistics import ResidualSums, r2

MIN_EPISODES = 4
FITS_BETTER = 0.6  # frames are another episode's where they leave this share of what their own leaves over
# Correlation with another episode's joints, and by how much it must exceed that with its own. Of one episode
# alone more is asked than the most seen in 100 clean simulated recordings (0.56, better by 0.44); of two that
# fit each other's joints, of each twice what any two did in 60 of them (0.11): that is a suspicion, and a
# mistake for certain only where each is better by as much as one alone must be. Those recordings had episodes
# of 80 rows or more. Correlations of n rows scatter as 1 / sqrt(n): short episodes agree by chance (by 0.26
# at 40 rows), and with n rows in the shorter one sqrt(80 / n) times as much is asked.
MIN_R, BETTER_R = 0.6, 0.5
MIN_MUTUAL_R, MUTUALLY_BETTER_R, MUTUAL_ROWS = 0.5, 0.22, 80
# Median correlation of frames with their own joints: where it is less, any other's may fit better.
READ_R = 0.4
ROUGH, SMOOTH = 0.8, 0.6  # one-step against four-step distance: rows in no order, rows in order
OFFSET_R2, TIMES_BETTER = 0.1, 3  # R2 of the right pairing lies far above that of a wrong one
CHANGES = 0.6 / 255  # a step of less (root mean square, of 1) may be the camera's noise, which has no order
# A step is one from 0.15 rad on, as in `hardware.checks`. Each view and each encoder is tested: at this level
# 100 clean recordings of three tests each give 0.6 false alarms at most on average, fewer for the size.
STEP_RAD, STEP_LEVEL = 0.15, 0.002
MIN_STEP_EPISODES, MIN_STEP_R2 = 6, 0.5


def step_ratio(values: NDArray[np.generic]) -> float:
    """Mean distance of rows one apart over that of rows four apart, of values [n, K].

    About 0.25 to 0.6 for a smooth course, 1 for rows in no order (or for noise around a standstill); NaN
    where nothing changes.
    """
    v = np.asarray(values, dtype=np.float64)
    near, far = (float(np.linalg.norm(v[k:] - v[:-k], axis=1).mean()) for k in (1, 4))
    return near / far if far > 0 else float("nan")


def check_row_order(rows: PixelRows) -> Check:
    """Whether frames follow each other as smoothly as joints do, episode by episode."""
    name = f"row_order_{rows.view}"
    scale = np.maximum(rows.position.std(axis=0), 1e-9)
    features = rows.features
    found, ratios = [], {}
    for cluster, episode in enumerate(rows.episodes):
        index = rows.clusters.rows(cluster)
        frames = step_ratio(features[index])
        joints = step_ratio(rows.position[index][:, rows.moving] / scale[rows.moving])
        ratios[str(episode)] = {"frames": round(frames, 3), "joints": round(joints, 3)}
        change = np.sqrt((np.diff(features[index], axis=0) ** 2).mean())
        if frames > ROUGH and joints < SMOOTH and change > CHANGES:
            found.append((episode, "frames", frames, joints))
        elif joints > ROUGH and frames < SMOOTH:
            found.append((episode, "joints", frames, joints))
    if not rows.moving.any():
        return not_testable(name, "no joint moves")
    if not found:
        return Check(name, "pass", f"frames of {rows.view} and joints follow one another in order")
    said = ", ".join(
        f"episode {e}: {what} are in no order (frames {f:.2f}, joints {j:.2f})" for e, what, f, j in found[:5]
    )
    return Check(
        name,
        "fail",
        f"{rows.view}, {said}",
        {"episodes": [e for e, *_ in found], "one_step_over_four": ratios},
        "rows were shuffled on one side only: sort both by time, or leave these episodes out",
    )


@dataclass(frozen=True, eq=False)
class _Fit:
    """How well the frames of episode e fit the joints of episode k: correlation [E, E], over joints."""

    correlation: FloatArray
    residual: FloatArray


def check_own_video(rows: PixelRows) -> Check:
    """Whether each episode's frames are its own: if not, they fit another episode's joints better.

    A probe that has not seen an episode predicts joints from its frames; they are compared, about their
    means, with the joints of every episode over the rows that both have. A whole set that is off by one
    episode has no such probe: for it, frames of episode e + k are paired with joints of episode e from the
    start.
    """
    name = f"own_video_{rows.view}"
    clusters, keep = rows.clusters, rows.moving
    if len(clusters) < MIN_EPISODES or not keep.any():
        return not_testable(name, f"fewer than {MIN_EPISODES} episodes in which a joint moves")
    offset = _set_offset(rows)
    if offset is not None:
        k, there, here = offset
        return Check(
            name,
            "fail",
            f"{rows.view}: joints of episode e fit the video of episode e{k:+d} "
            f"(R2 {there:.2f}, with their own {here:.2f})",
            {"episodes": rows.episodes, "offset": k, "r2": there, "r2_own": here},
            "videos and joints were paired off by one: pair them by episode number, or leave the set out",
        )
    fit = _cross_fit(*scaled_by_joint(rows), clusters)
    read = float(np.median(np.diag(fit.correlation)))
    if read < READ_R:
        why = f"frames of {rows.view} say too little of the joints (correlation {read:.2f})"
        return not_testable(name, why)
    found, pairs = _claims(rows, fit)
    belongs_to = {episode: fits.other for episode, fits in found.items()}
    for one, two in pairs:
        belongs_to.setdefault(two.other, one.other)
        belongs_to.setdefault(one.other, two.other)
    evidence = {
        "episodes": list(belongs_to),
        "own_correlation": {
            str(episode): round(float(fit.correlation[e, e]), 3) for e, episode in enumerate(rows.episodes)
        },
        "belongs_to": {str(episode): other for episode, other in belongs_to.items()},
    }
    if not belongs_to:
        message = f"no episode's frames of {rows.view} fit another episode's joints better"
        return Check(name, "pass", message, evidence)
    said = [f"episode {e} has the video of episode {fits.other} ({fits})" for e, fits in found.items()]
    said += [
        f"episodes {two.other} and {one.other} may have each other's video ({one}; {two})"
        for one, two in pairs
    ]
    return Check(
        name,
        "fail" if found else "warn",
        f"{rows.view}: {', '.join(said[:5])}{and_more(said[4:])}",
        evidence,
        "compare their frames with their joints (jointprobe check --pictures): where they do not belong "
        "together, leave these episodes out, or record or import them again",
    )


@dataclass(frozen=True)
class _Fits:
    """Whose joints an episode's frames fit: another's, with their correlation and that with its own."""

    other: int
    correlation: float
    own: float

    @property
    def better(self) -> float:
        return self.correlation - self.own

    def __str__(self) -> str:
        return f"correlation {self.correlation:.2f}, with its own joints {self.own:.2f}"


def _claims(rows: PixelRows, fit: _Fit) -> tuple[dict[int, _Fits], list[tuple[_Fits, _Fits]]]:
    """Episodes whose frames are another's, and pairs of others that may have each other's."""
    count = len(rows.clusters)
    own = np.diag(fit.residual)

    def fits(e: int, k: int) -> _Fits:
        return _Fits(rows.episodes[k], float(fit.correlation[e, k]), float(fit.correlation[e, e]))

    found: dict[int, _Fits] = {}
    for e, episode in enumerate(rows.episodes):
        k = int(np.argmax(np.where(np.arange(count) == e, -np.inf, fit.correlation[e])))
        typical = float(np.median(np.delete(own, e)))
        if (
            fit.residual[e, k] < FITS_BETTER * own[e]
            and fit.correlation[e, k] > MIN_R
            and fits(e, k).better > BETTER_R
            and own[e] > 1.5 * typical
        ):
            found[episode] = fits(e, k)
    pairs = []
    for e, k in _exchanged(fit.correlation, rows.clusters.count):
        one, two = fits(e, k), fits(k, e)
        if min(one.better, two.better) > BETTER_R:
            found.setdefault(rows.episodes[e], one)
            found.setdefault(rows.episodes[k], two)
        else:
            pairs.append((one, two))
    return found, [pair for pair in pairs if not any(one.other in found for one in pair)]


def scaled_by_joint(rows: PixelRows) -> tuple[FloatArray, FloatArray]:
    """What held-out frames say, and what was logged, about the mean of each episode: [N, M] of the M joints
    that move, in units of each one's std."""
    logged = centred(rows.position, rows.clusters)[:, rows.moving]
    scale = logged.std(axis=0)
    return rows.held_out.prediction[:, rows.moving] / scale, logged / scale


def _cross_fit(prediction: FloatArray, y: FloatArray, clusters: EpisodeClusters) -> _Fit:
    count = len(clusters)
    correlation, residual = np.zeros((count, count)), np.full((count, count), np.inf)
    for e in range(count):
        for k in range(count):
            n = min(clusters.count[e], clusters.count[k])
            if n < MIN_ROWS:
                continue
            p, t = prediction[clusters.rows(e)[:n]], y[clusters.rows(k)[:n]]
            p, t = p - p.mean(axis=0), t - t.mean(axis=0)
            correlation[e, k] = (p * t).sum() / max(np.linalg.norm(p) * np.linalg.norm(t), 1e-12)
            residual[e, k] = ((p - t) ** 2).mean()
    return _Fit(correlation, residual)


def _exchanged(correlation: FloatArray, count: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Pairs of episodes whose frames fit each other's joints better than their own.

    Parameters
    ----------
    correlation : [E, E], of frames (rows) with joints (columns).
    count : [E], rows of each episode.
    """
    better = correlation - np.diag(correlation)[:, None]
    shorter = np.minimum(count[:, None], count)
    least = MUTUALLY_BETTER_R * np.maximum(1.0, np.sqrt(MUTUAL_ROWS / shorter))
    both = (np.minimum(correlation, correlation.T) > MIN_MUTUAL_R) & (np.minimum(better, better.T) > least)
    return [(int(e), int(k)) for e, k in np.argwhere(np.triu(both, 1))]


def _set_offset(rows: PixelRows) -> tuple[int, float, float] | None:
    """(k, R2 at k, R2 at 0) where the whole set's videos are k episodes off and it is beyond doubt."""
    y = centred(rows.position, rows.clusters)[:, rows.moving]
    own = _mean_r2(y, rows.held_out.prediction[:, rows.moving])
    if own > 1 / TIMES_BETTER:
        return None
    other, k = max((_r2_at_offset(rows, k), k) for k in (-1, 1))
    return (k, other, own) if other > OFFSET_R2 and other > TIMES_BETTER * own else None


def _r2_at_offset(rows: PixelRows, k: int) -> float:
    _, prediction, y = paired_at(rows, k)
    return _mean_r2(y, prediction)


def paired_at(rows: PixelRows, k: int) -> tuple[EpisodeClusters, FloatArray, FloatArray]:
    """Joints of episode e paired with frames of episode e + k, as far as both go.

    Returns
    -------
    clusters, labelled by e; what the frames say (held out) and what was logged of the M joints that move,
    [n, M] each, about the mean of each episode.
    """
    pairs = [(e, e + k) for e in range(len(rows.clusters)) if 0 <= e + k < len(rows.clusters)]
    frames, joints, labels = [], [], []
    for e, other in pairs:
        n = min(rows.clusters.count[e], rows.clusters.count[other])
        frames.append(rows.clusters.rows(other)[:n])
        joints.append(rows.clusters.rows(e)[:n])
        labels.append(np.full(n, e))
    clusters = EpisodeClusters.of(np.concatenate(labels))
    x = centred(rows.features[np.concatenate(frames)], clusters)
    y = centred(rows.position[np.concatenate(joints)][:, rows.moving], clusters)
    return clusters, held_out(x, y, clusters).prediction, y


def _mean_r2(y: FloatArray, prediction: FloatArray) -> float:
    """Mean R2 over joints, of values about their episode's mean; a joint below 0 counts as 0."""
    variance = np.maximum((y**2).sum(axis=0), 1e-300)
    return float((1 - ((y - prediction) ** 2).sum(axis=0) / variance).clip(min=0.0).mean())


def check_calibration_step(
    name: str,
    x: NDArray[np.generic],
    y: FloatArray,
    clusters: EpisodeClusters,
    joints: Sequence[str],
    radians: NDArray[np.bool_],
) -> Check:
    """Whether a joint's neutral moves between two episodes while the probe's slope stays: a step in its bias.

    The slope is fitted within other episodes, so that a step cannot bend it; an episode's bias is mean(y) -
    mean(x) slope. For every joint that the probe reads (R2 within episodes at least 0.5) and every place
    between two episodes (at least two on each side) the two sides' biases are compared by Student's t with
    pooled variance, and the smallest p is multiplied by the number of comparisons (Bonferroni). A step also
    has to be 0.15 rad at least.

    Parameters
    ----------
    x, y : features [N, D] (pixels or latents) and joints [N, J], episodes numbered in the order of time.
    radians : bool [J], joints in rad that move; the others are left out.
    """
    count = len(clusters)
    columns = np.flatnonzero(radians)
    if count < MIN_STEP_EPISODES or not len(columns):
        return not_testable(name, f"fewer than {MIN_STEP_EPISODES} episodes in which a joint in rad moves")
    within = centred(y[:, columns], clusters)
    fit = held_out(centred(x, clusters), within, clusters)
    read = r2(((within - fit.prediction) ** 2).sum(axis=0), (within**2).sum(axis=0)) >= MIN_STEP_R2
    columns = columns[read]
    if not len(columns):
        return not_testable(name, f"no joint is read with an R2 of {MIN_STEP_R2}")
    level = predict_held_out(x, y[:, columns], clusters, fit.alpha, centre=True)
    bias = ResidualSums.of(y[:, columns], level, clusters).bias()  # [E, J]
    cut, j, p_value, step_rad = _strongest_step(bias)
    evidence = {
        "joints_read": [joints[c] for c in columns],
        "episodes_compared": clusters.labels.tolist(),
        "p_value": p_value,
        "step_rad": round(step_rad, 4),
    }
    if p_value >= STEP_LEVEL:
        names = [joints[c] for c in columns]
        left = [joint for joint in joints if joint not in names]
        message = f"no neutral of {listed(names)} is shown to move over {in_words(clusters.labels.tolist())}"
        return Check(name, "pass", message + (f"; says nothing of {listed(left)}" if left else ""), evidence)
    before, after = (int(clusters.labels[e]) for e in (cut - 1, cut))
    return Check(
        name,
        "warn",
        f"{joints[columns[j]]} reads {step_rad:+.3f} rad from episode {after} on, "
        f"against what the frames show (p {p_value:.1e})",
        {
            **evidence,
            "episodes": [before, after],
            "joint": joints[columns[j]],
            "bias_rad": {str(e): round(float(one), 4) for e, one in zip(clusters.labels, bias[:, j])},
        },
        "calibrated again, or the camera moved, in between: do not train across that step",
    )


def _strongest_step(bias: FloatArray) -> tuple[int, int, float, float]:
    """Of biases [E, J]: first episode after the step, joint, p (times the comparisons made), step."""
    count, joints = bias.shape
    best = (2, 0, 1.0, 0.0)
    for cut in range(2, count - 1):
        before, after = bias[:cut], bias[cut:]
        step = after.mean(axis=0) - before.mean(axis=0)
        squares = before.var(axis=0) * cut + after.var(axis=0) * (count - cut)
        error = np.sqrt(squares / (count - 2) * (1 / cut + 1 / (count - cut)))
        p = 2 * student_t.sf(np.abs(step) / np.maximum(error, 1e-9), count - 2) * joints * (count - 3)
        p[np.abs(step) < STEP_RAD] = 1.0
        j = int(np.argmin(p))
        if p[j] < best[2]:
            best = (cut, j, float(p[j]), float(step[j]))
    return best
