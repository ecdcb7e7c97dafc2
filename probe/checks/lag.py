"""Lag: do the frames (or latents) of a row show the joints of that row, or those some rows before or after?

Two scans over shifts. Of levels: from x[t + s] to y[t], the curve one would draw. Of steps: from |x[t + s] -
x[t + s - 1]| to |y[t] - y[t - 1]|, how much changes when how much moves. Poses change slowly, so the first
curve is flat at its top; movements start and stop, so the second has a sharp peak, and it decides wherever it
explains anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.checks import Check, not_testable
from probe.checks.pixels import PixelRows, centred, held_out, predict_held_out
from probe.clusters import EpisodeClusters
from probe.moments import FloatArray
from probe.statistics import r2

SHIFTS = 10  # rows to either side
MIN_EPISODES = 6  # with fewer no pattern of signs is rare enough to show anything
MIN_R2 = 0.1  # a probe that explains less cannot date anything
LEVEL = 0.05
MOST_FLIPS = 4096
COMPONENTS = 128  # leading components stand for wider features: a scan needs 21 fits for each fold


@dataclass(frozen=True, eq=False)
class LagScan:
    """Held-out R2 of features against joints, the features taken `shift` rows later.

    Attributes
    ----------
    shifts : int [S], rows; positive: the frame of a later row fits, the frames are late.
    r2 : [S], uniform mean over the joints that move, within episodes.
    peak : the shift of the highest R2.
    p_value : that no shift is better than 0 (see `lag_scan`); None where there is nothing to test.
    gain : R2 at the peak less R2 at 0.
    n_episodes, n_rows : what was compared.
    note : why nothing can be said, or empty.
    """

    shifts: NDArray[np.int64]
    r2: FloatArray
    peak: int
    p_value: float | None
    gain: float
    n_episodes: int
    n_rows: int
    note: str

    @property
    def shown(self) -> bool:
        """Whether another shift than 0 is shown to fit better."""
        return self.peak != 0 and self.p_value is not None and self.p_value < LEVEL

    @property
    def r2_at_zero(self) -> float:
        return float(self.r2[len(self.shifts) // 2])

    def evidence(self) -> dict[str, Any]:
        """The numbers, for a Check."""
        return {
            "peak": self.peak,
            "p_value": None if self.p_value is None else round(self.p_value, 5),
            "gain": round(self.gain, 5),
            "episodes_compared": self.n_episodes,
            "rows": self.n_rows,
            "r2_by_shift": {
                str(shift): None if np.isnan(value) else round(float(value), 4)
                for shift, value in zip(self.shifts, self.r2)
            },
        }


@dataclass(frozen=True, eq=False)
class Lag:
    """The scan of levels and that of steps; `decisive` is the one to believe."""

    levels: LagScan
    steps: LagScan

    @property
    def decisive(self) -> LagScan:
        return self.levels if self.steps.note else self.steps


def measure_lag(
    x: NDArray[Any],
    y: NDArray[Any],
    clusters: EpisodeClusters,
    *,
    moving: NDArray[np.bool_] | None = None,
    most: int = SHIFTS,
) -> Lag:
    """Both scans of latents x [N, D] against joints y [N, J]; see `lag_scan`."""
    levels = lag_scan(x, y, clusters, moving=moving, most=most)
    dx, dy, of = steps(x, y, clusters)
    return Lag(levels, lag_scan(dx, dy, of, moving=moving, most=most))


def steps(
    x: NDArray[Any], y: NDArray[Any], clusters: EpisodeClusters
) -> tuple[FloatArray, FloatArray, EpisodeClusters]:
    """Absolute changes from row to row within episodes: [N - E, D], [N - E, J], and their episodes."""
    rows = [clusters.rows(e) for e in range(len(clusters))]
    dx, dy = (
        np.concatenate([np.abs(np.diff(np.asarray(values[each], np.float64), axis=0)) for each in rows])
        for values in (x, y)
    )
    return dx, dy, EpisodeClusters.of(np.concatenate([clusters.index[each[1:]] for each in rows]))


def lag_scan(
    x: NDArray[Any],
    y: NDArray[Any],
    clusters: EpisodeClusters,
    *,
    moving: NDArray[np.bool_] | None = None,
    most: int = SHIFTS,
) -> LagScan:
    """Scan shifts of features against joints, and test whether the best is really better than none.

    Every shift is scored on the same rows (those at least `most` from either end of their episode), at the
    alpha chosen at shift 0, by probes that have not seen the row's episode. The test is paired by episode:
    d[s, e] is how much less of the joints' variance is left over in episode e at shift s than at 0, and
    t[s] = mean(d[s]) / se(d[s]). Under the null the signs of an episode's d are arbitrary; max over s of t is
    compared with its distribution when the signs of whole episodes are flipped (all 2^E ways, or 4096 random
    ones), which pays for the choice of the best of 2 `most` shifts. Where the true lag is 0, every other
    shift is worse, so the test errs far less often than its level says.

    Parameters
    ----------
    x, y : features [N, D] and joints [N, J], an episode's rows in order.
    moving : bool [J], the joints that count; all by default.
    """
    keep = np.ones(y.shape[1], bool) if moving is None else np.asarray(moving, dtype=bool)
    shifts = np.arange(-most, most + 1)
    rows = [each for e in range(len(clusters)) if len(each := clusters.rows(e)) > 3 * most]
    if len(rows) < 2 or not keep.any():
        why = "no joint moves enough" if len(rows) >= 2 else f"fewer than 2 episodes of {3 * most + 1} rows"
        return LagScan(shifts, np.full(len(shifts), np.nan), 0, None, 0.0, len(rows), 0, why)
    inner = EpisodeClusters.of(np.repeat(np.arange(len(rows)), [len(each) - 2 * most for each in rows]))
    features = _leading_components(np.asarray(x, dtype=np.float64))

    def at(values: FloatArray, shift: int) -> FloatArray:
        index = np.concatenate([each[most + shift : len(each) - most + shift] for each in rows])
        return centred(values[index], inner)

    joints = at(y[:, keep], 0)
    variance = np.maximum((joints**2).sum(axis=0), 1e-300)
    start = held_out(at(features, 0), joints, inner)
    left, score = np.empty((len(shifts), len(inner))), np.empty(len(shifts))
    for place, shift in enumerate(shifts):
        predicted = (
            start.prediction
            if shift == 0
            else predict_held_out(at(features, int(shift)), joints, inner, start.alpha)
        )
        residual = (joints - predicted) ** 2
        score[place] = r2(residual.sum(axis=0), variance).mean()
        left[place] = inner.sums((residual / variance).mean(axis=1)[:, None])[:, 0]
    note = ""
    if len(inner) < MIN_EPISODES:
        note = f"{len(inner)} episodes are too few to show a lag ({MIN_EPISODES} are needed)"
    elif score.max() < MIN_R2:
        note = f"the probe explains too little (R2 {score.max():.2f} at best)"
    p_value = None if note else _flip_p(left[most] - left[shifts != 0])
    best = int(np.argmax(score))
    gain = float(score[best] - score[most])
    return LagScan(shifts, score, int(shifts[best]), p_value, gain, len(inner), inner.n_rows, note)


def _leading_components(x: FloatArray) -> FloatArray:
    """Features [N, D] as at most 128 leading principal components."""
    if x.shape[1] <= COMPONENTS:
        return x
    about = x - x.mean(axis=0)
    _, vectors = np.linalg.eigh(about.T @ about)
    return about @ vectors[:, : -COMPONENTS - 1 : -1]


def _flip_p(gain: FloatArray) -> float:
    """P-value of max over s of t[s] for gains [S, E], by flipping the signs of episodes; one-sided."""
    n_episodes = gain.shape[1]
    if 2**n_episodes <= MOST_FLIPS:
        flips = np.array(list(product([1.0, -1.0], repeat=n_episodes)))
    else:
        flips = np.random.default_rng(0).choice([1.0, -1.0], size=(MOST_FLIPS, n_episodes))
        flips[0] = 1.0
    mean = flips @ gain.T / n_episodes  # [F, S]
    square = (gain**2).mean(axis=1)  # flips do not change it
    error = np.sqrt(np.maximum(square - mean**2, 1e-12 * square + 1e-300) / (n_episodes - 1))
    highest = (mean / error).max(axis=1)
    return float((highest >= highest[0] * (1 - 1e-12) - 1e-12).mean())


def check_lag(rows: PixelRows) -> tuple[Check, Lag]:
    """Whether a view's frames are early or late against the joints; one frame is claimed only when shown."""
    levels = lag_scan(rows.features, rows.position, rows.clusters, moving=rows.moving)
    dx, dy, of = steps(rows.features, rows.position, rows.clusters)
    cells = dx.reshape(-1, 8, 2, 8, 2).mean(axis=(2, 4)).reshape(len(dx), -1)  # steadier than single pixels
    lag = Lag(levels, lag_scan(cells, dy, of, moving=rows.moving))
    return lag_finding(f"lag_{rows.view}", f"frames of {rows.view}", lag), lag


def lag_finding(name: str, what: str, lag: Lag, recording: Lag | None = None) -> Check:
    """A lag as a Check: one that is shown warns, and fails latents where the recording has none like it.

    Parameters
    ----------
    what : whose lag, in words.
    recording : the lag of the recording's own pixels, where `lag` is of latents.
    """
    scan = lag.decisive
    evidence = {**scan.evidence(), "of": "levels" if scan is lag.levels else "steps"}
    evidence["r2_of_levels_by_shift"] = lag.levels.evidence()["r2_by_shift"]
    if scan.note:
        return not_testable(name, scan.note, evidence)
    if not scan.shown:
        near = (
            ""
            if scan.peak == 0
            else f"; shift {scan.peak:+d} is not shown to be better (p {scan.p_value:.3f})"
        )
        message = f"{what} fit the joints of their own row, R2 {scan.r2_at_zero:.3f}{near}"
        return Check(name, "pass", message, evidence)
    rows = f"{abs(scan.peak)} row{'s' if abs(scan.peak) > 1 else ''} {'late' if scan.peak > 0 else 'early'}"
    message = (
        f"{what} are {rows}: R2 rises by {scan.gain:.3f} from {scan.r2_at_zero:.3f} "
        f"(p {scan.p_value:.4f}, {scan.n_episodes} episodes)"
    )
    own = recording is not None and not (recording.decisive.shown and recording.decisive.peak == scan.peak)
    if own:
        remedy = "latents and joints are paired off by that: look where rows are taken, then extract again"
        return Check(name, "fail", message, evidence, remedy)
    remedy = (
        "the camera's latency, or frames and joints paired off by that: correct the times and check again"
    )
    return Check(name, "warn", message, evidence, remedy)
