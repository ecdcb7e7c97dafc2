"""From latents to measurements: one encoder on one data entry, and the differences that bars ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bars import Measurement, difference_path, part_names
from bars.study import ProbeSettings
from encoders.pairs import evenly_spaced
from probe.bootstrap import Bootstrap, Estimate, difference
from probe.clusters import EpisodeClusters
from probe.permutation import NullValue, PermutationNull, permutation_null
from probe.ridge import RidgeFit, fit_ridge
from probe.statistics import JointScores, ResidualSums, score_joints

BOOTSTRAP_METHOD = (
    "percentile cluster bootstrap over evaluation episodes, {resamples} resamples, probe held fixed"
)
PAIRED_METHOD = "paired percentile cluster bootstrap over evaluation episodes, {resamples} resamples"


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one split: latents `x` (N, D), joints `y` (N, J) in their units, `episode` (N,) of each row."""

    x: np.ndarray
    y: np.ndarray
    episode: np.ndarray

    @property
    def clusters(self) -> EpisodeClusters:
        """The rows by episode."""
        return EpisodeClusters.of(self.episode)

    def thinned(self, count: int) -> Rows:
        """At most `count` rows, evenly spread over all of them."""
        rows = evenly_spaced(len(self.y), count)
        return Rows(self.x[rows], self.y[rows], self.episode[rows])


@dataclass(frozen=True, eq=False)
class Probed:
    """One encoder on one data entry.

    Attributes
    ----------
    source : `ENCODER` or `ENCODER/DATA`, how its measurement paths start.
    estimates : by path, with the resampled values that paired differences need.
    measurements : the same for results.json.
    """

    source: str
    fit: RidgeFit
    scores: JointScores
    null: PermutationNull | None
    estimates: Mapping[str, Estimate]
    measurements: Sequence[Measurement] = field(default_factory=tuple)


def probe_rows(
    source: str,
    train: Rows,
    evaluate: Rows,
    joints: Sequence[str],
    testable: np.ndarray,
    settings: ProbeSettings,
    bootstrap: Bootstrap,
    rng: np.random.Generator,
    weighted: np.ndarray | None = None,
) -> Probed:
    """Fit the ridge probe on the training rows, score it on the evaluation rows, and set the null beside it.

    Parameters
    ----------
    joints : names of the J columns.
    testable : bool (J,), decided from joints alone and bound at the freeze.
    bootstrap : of the evaluation episodes, shared by all encoders on this data entry.
    rng : for the exchanges of the permutation null.
    weighted : bool (J,), joints whose variances compare (those in rad), for the variance-weighted mean.
    """
    fit = fit_ridge(
        train.x, train.y, train.clusters, alphas=settings.alphas, folds=settings.folds, testable=testable
    )
    sums = ResidualSums.of(evaluate.y, fit.predict(evaluate.x), evaluate.clusters)
    scores = score_joints(sums, bootstrap, testable, weighted=weighted)
    null = None
    if settings.permutations:
        null = permutation_null(
            train.x,
            train.y,
            train.clusters,
            evaluate.x,
            evaluate.y,
            alpha=fit.alpha_by_joint,
            testable=testable,
            rng=rng,
            exchanges=settings.permutations,
        )
    estimates = {f"{source}.r2.mean": scores.mean, f"{source}.r2.weighted": scores.weighted}
    parts = part_names(joints)
    estimates.update(
        {f"{source}.r2.{parts[joint]}": scores.joints[column] for column, joint in enumerate(joints)}
    )
    estimates[f"{source}.anisotropy"] = scores.anisotropy
    rows = len(evaluate.y)
    method = BOOTSTRAP_METHOD.format(resamples=settings.resamples)
    measured = [measurement(path, estimate, rows, method) for path, estimate in estimates.items()]
    if null is not None:
        named = {f"{source}.null.mean": null.mean}
        named.update(
            {f"{source}.null.{parts[joint]}": null.joints[column] for column, joint in enumerate(joints)}
        )
        measured += [null_measurement(path, value, null, rows, bootstrap) for path, value in named.items()]
    return Probed(source, fit, scores, null, estimates, tuple(measured))


def measurement(path: str, estimate: Estimate, rows: int, method: str) -> Measurement:
    """An estimate as results.json holds it."""
    return Measurement(
        path,
        estimate.value,
        n_rows=rows,
        n_episodes=estimate.n_episodes,
        low=estimate.low,
        high=estimate.high,
        level=estimate.level,
        method=method if estimate.low is not None else "",
        testable=estimate.value is not None,
        note=estimate.note,
    )


def null_measurement(
    path: str, value: NullValue | None, null: PermutationNull, rows: int, bootstrap: Bootstrap
) -> Measurement:
    """The mean of a null distribution, with its 95th percentile and p-value in words."""
    notes = [] if value is None else [f"95th percentile {value.q95:.3f}, p = {value.p_value:.3g}"]
    return Measurement(
        path,
        None if value is None else value.mean,
        n_rows=rows,
        n_episodes=len(bootstrap.episodes),
        high=None if value is None else value.q95,
        method=f"mean (high: 95th percentile) of {len(null.draws)} exchanges of targets between episodes",
        testable=value is not None,
        note="; ".join([*notes, *([null.note] if null.note else [])]),
    )


def differences(
    wanted: Sequence[tuple[str, str]],
    estimates: Mapping[str, Estimate],
    rows: Mapping[str, int],
    resamples: int,
) -> list[Measurement]:
    """The paired differences that bars and tables name, where both sides were measured."""
    found = []
    for a, b in dict.fromkeys(wanted):
        if a in estimates and b in estimates:
            path = difference_path(a, b)
            gap = difference(estimates[a], estimates[b])
            method = PAIRED_METHOD.format(resamples=resamples) if gap.low is not None else ""
            found.append(measurement(path, gap, min(rows[a], rows[b]), method))
    return found


def fit_facts(probed: Probed) -> dict[str, Any]:
    """What results.json says about the fit itself."""
    fit = probed.fit
    return {
        "alpha": float(fit.alpha_by_joint[0]),
        "alpha_edge": fit.edge,
        "cv_r2": None if fit.path is None else float(np.max(fit.cv_scores)),
        "train_rows": int(fit.n_rows),
        "constant_features": fit.n_constant,
        "notes": list(fit.notes),
        "null_p_value": None if probed.null is None or probed.null.mean is None else probed.null.mean.p_value,
    }
