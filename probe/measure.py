"""From latents to measurements: one encoder on one data entry, and the differences that bars ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bars import Measurement, difference_path, part_names
from bars.study import ProbeSettings
from probe.anisotropy import Contrast, anisotropy_null, crossfit_contrast
from probe.bootstrap import Bootstrap, Estimate, difference
from probe.effective_size import effective_size
from probe.moments import Moments
from probe.permutation import NullValue, PermutationNull, Scheme, permutation_null, selectivity
from probe.refit import refit_scores
from probe.ridge import RidgeFit, fit_ridge
from probe.rows import Rows, measurement
from probe.statistics import JointScores, ResidualSums, score_joints

SCHEMES: dict[Scheme, str] = {"exchange": "null", "shift": "shift_null"}
WORDS = {"exchange": "exchanges of targets between episodes", "shift": "shifts of targets within episodes"}
MOST_MOMENTS_GIB = 2.0
_CONTROL_TASK = "R2 minus the mean R2 of the control task, targets exchanged between episodes"


@dataclass(frozen=True, eq=False)
class Probed:
    """One encoder on one data entry.

    Attributes
    ----------
    source : `ENCODER` or `ENCODER/DATA`, how its measurement paths start.
    null : of exchanges between episodes.
    effective_rows : joint -> evaluation rows that its residuals amount to, were they independent.
    estimates : by path, with the resampled values that paired differences need.
    measurements : the same for results.json.
    """

    source: str
    fit: RidgeFit
    scores: JointScores
    null: PermutationNull | None
    effective_rows: Mapping[str, float]
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
    training: Bootstrap,
    rng: np.random.Generator,
    weighted: np.ndarray | None = None,
) -> Probed:
    """Fit the ridge probe on the training rows, score it on the evaluation rows, and set the nulls beside it.

    Parameters
    ----------
    joints : names of the J columns.
    testable : bool (J,), decided from joints alone and bound at the freeze.
    bootstrap, training : of the evaluation and of the training episodes, shared by all encoders on this data.
    rng : for the exchanges and shifts of the nulls.
    weighted : bool (J,), joints whose variances compare (those in rad), for the variance-weighted mean.
    """
    fit = fit_ridge(
        train.x, train.y, train.clusters, alphas=settings.alphas, folds=settings.folds, testable=testable
    )
    sums = ResidualSums.of(evaluate.y, fit.predict(evaluate.x), evaluate.clusters)
    scores = score_joints(sums, bootstrap, testable, weighted=weighted)
    contrast = crossfit_contrast(fit, scores)
    estimates = {f"{source}.r2.mean": scores.mean, f"{source}.r2.weighted": scores.weighted}
    parts = part_names(joints)
    estimates |= {f"{source}.r2.{parts[joint]}": scores.joints[i] for i, joint in enumerate(joints)}
    estimates[f"{source}.anisotropy"] = scores.anisotropy
    estimates[f"{source}.anisotropy.contrast"] = contrast.estimate
    rows = len(evaluate.y)
    notes = {f"{source}.anisotropy.contrast": _chosen(contrast, joints)}
    measured = [
        measurement(path, estimate, rows, note=notes.get(path, "")) for path, estimate in estimates.items()
    ]
    anisotropy = anisotropy_null(sums, scores, bootstrap)
    drawn = f"{len(anisotropy.draws)} resamples with all joints drawn to their mean R2"
    measured.append(
        null_measurement(
            f"{source}.anisotropy.null", anisotropy.null, anisotropy.note, drawn, rows, bootstrap
        )
    )
    null = None
    for scheme, metric in SCHEMES.items() if settings.permutations else ():
        moved = permutation_null(
            train.x,
            train.y,
            train.clusters,
            evaluate.x,
            evaluate.y,
            alpha=fit.alpha_by_joint,
            testable=testable,
            rng=rng,
            exchanges=settings.permutations,
            scheme=scheme,
            evaluate=evaluate.clusters,
        )
        null = null or moved
        drawn = f"{len(moved.draws)} {WORDS[scheme]}"
        values = {"mean": moved.mean} | {parts[joint]: moved.joints[i] for i, joint in enumerate(joints)}
        measured += [
            null_measurement(f"{source}.{metric}.{part}", value, moved.note, drawn, rows, bootstrap)
            for part, value in values.items()
        ]
    if null is not None and null.control_ss is not None and null.mean is not None:
        estimates[f"{source}.selectivity.mean"] = above = selectivity(sums, scores, null, bootstrap).mean
        measured.append(measurement(f"{source}.selectivity.mean", above, rows, note=_CONTROL_TASK))
    measured += _refitted(source, fit, train, evaluate, testable, bootstrap, training, weighted)
    size = effective_size(evaluate.y - fit.predict(evaluate.x), evaluate.clusters)
    effective = {joint: float(size.size[i]) for i, joint in enumerate(joints)}
    return Probed(source, fit, scores, null, effective, estimates, tuple(measured))


def _chosen(contrast: Contrast, joints: Sequence[str]) -> str:
    if contrast.best is None or contrast.worst is None:
        return ""
    return f"{joints[contrast.best]} minus {joints[contrast.worst]}, chosen on training episodes"


def _refitted(
    source: str,
    fit: RidgeFit,
    train: Rows,
    evaluate: Rows,
    testable: np.ndarray,
    bootstrap: Bootstrap,
    training: Bootstrap,
    weighted: np.ndarray | None,
) -> list[Measurement]:
    """Mean R2 and anisotropy with intervals that draw training episodes too."""
    paths = (f"{source}.refit.mean", f"{source}.refit.anisotropy")
    if not len(training) or not len(bootstrap):
        return []
    clusters = train.clusters
    gigabytes = len(clusters) * train.x.shape[1] ** 2 * 8 / 2**30
    if gigabytes > MOST_MOMENTS_GIB:
        note = f"refits would hold {gigabytes:.1f} GiB of moments; narrow the latents"
        return [Measurement(path, None, testable=False, note=note) for path in paths]
    again = refit_scores(
        Moments.of(train.x, train.y, clusters),
        evaluate.x,
        evaluate.y,
        evaluate.clusters,
        alpha=fit.alpha_by_joint,
        testable=testable,
        bootstrap=bootstrap,
        training=training,
        weighted=weighted,
    )
    method = f"{len(training)} cluster-bootstrap draws of training and evaluation episodes, refitted"
    return [
        replace(
            measurement(path, estimate, len(evaluate.y)), method=method if estimate.low is not None else ""
        )
        for path, estimate in zip(paths, (again.mean, again.anisotropy))
    ]


def null_measurement(
    path: str, value: NullValue | None, note: str, drawn: str, rows: int, bootstrap: Bootstrap
) -> Measurement:
    """The mean of a null distribution, with its 95th percentile and p-value in words."""
    notes = [] if value is None else [f"95th percentile {value.q95:.3f}, p = {value.p_value:.3g}"]
    return Measurement(
        path,
        None if value is None else value.mean,
        n_rows=rows,
        n_episodes=len(bootstrap.episodes),
        high=None if value is None else value.q95,
        method=f"mean (high: 95th percentile) of {drawn}",
        testable=value is not None,
        note="; ".join([*notes, *([note] if note else [])]),
    )


def differences(
    wanted: Sequence[tuple[str, str]],
    estimates: Mapping[str, Estimate],
    rows: Mapping[str, int],
) -> list[Measurement]:
    """The paired differences that bars and tables name, where both sides were measured."""
    found = []
    for a, b in dict.fromkeys(wanted):
        if a in estimates and b in estimates:
            path = difference_path(a, b)
            gap = difference(estimates[a], estimates[b])
            paired = estimates[a].bootstrap.pairs_with(estimates[b].bootstrap)
            found.append(measurement(path, gap, min(rows[a], rows[b]), paired=paired))
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
        "effective_rows": dict(probed.effective_rows),
        "null_p_value": None if probed.null is None or probed.null.mean is None else probed.null.mean.p_value,
    }
