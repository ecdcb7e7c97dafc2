"""The probe and the ranking for a notebook: arrays in, one object out that prints as a table.

    from probe import g1b_probe, ridge_probe
    probed = ridge_probe(latents, joints, episodes, evaluate=range(24, 36), joint_names=names)
    print(probed)
    probed.to_frame()
    print(g1b_probe(latents, joints, actions, time_s, episodes, evaluate=range(24, 36)))

They are what `jointprobe probe` does with one encoder, without the study around it: nothing was frozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bars.study import ProbeSettings, RankingSettings
from hardware.errors import InputError
from probe.bootstrap import Bootstrap, Estimate
from probe.chunks import TimedRows
from probe.clusters import EpisodeClusters
from probe.frame import to_frame
from probe.permutation import PermutationNull, permutation_null
from probe.ranking import Rankings, rank_chunks
from probe.ridge import RidgeFit, fit_ridge
from probe.statistics import JointScores, ResidualSums, score_joints, spread_of_joints

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class RidgeProbe:
    """What a ridge probe reads from latents, on episodes that it was not fitted to.

    Attributes
    ----------
    joints : names of the J joints.
    std : [J], of the evaluation rows, in the joints' units.
    fit : the probe; `fit.predict(latents)` gives joints.
    scores : R2 of each joint, means and anisotropy, with intervals over evaluation episodes.
    null : R2 after targets were exchanged between training episodes; None where that was not asked for.
    n_train, n_evaluate : rows; n_episodes : evaluation episodes.
    """

    joints: tuple[str, ...]
    std: NDArray[np.float64]
    fit: RidgeFit
    scores: JointScores
    null: PermutationNull | None
    n_train: int
    n_evaluate: int
    n_episodes: int

    def rows(self) -> list[dict[str, Any]]:
        """One dict a joint, then one each for the mean, the weighted mean and the anisotropy."""
        nulls = self.null.joints if self.null is not None else (None,) * len(self.joints)
        mean = None if self.null is None else self.null.mean
        table = [
            (name, float(std), score, null)
            for name, std, score, null in zip(self.joints, self.std, self.scores.joints, nulls)
        ]
        found = [_row(name, score, std, null) for name, std, score, null in table]
        return [
            *found,
            _row("mean", self.scores.mean, None, mean),
            _row("weighted mean", self.scores.weighted, None, None),
            _row("anisotropy", self.scores.anisotropy, None, None),
        ]

    def to_frame(self) -> pandas.DataFrame:
        """`rows` as a pandas frame."""
        return to_frame(self.rows())

    def __str__(self) -> str:
        lines = [
            f"ridge probe: {self.n_train:,} training rows, {self.n_evaluate:,} evaluation rows of "
            f"{self.n_episodes} episodes, alpha {self.fit.alpha:g}",
            f"{'':16}{'std':>8}{'R2':>9}   {'interval':<18}{'null':>7}",
        ]
        for row in self.rows():
            interval = "" if row["low"] is None else f"[{row['low']:.3f}, {row['high']:.3f}]"
            cells = [_cell(row["std"]), _cell(row["r2"]), _cell(row["null"])]
            lines.append(
                f"{row['joint']:16}{cells[0]:>8}{cells[1]:>9}   {interval:<18}{cells[2]:>7}".rstrip()
            )
        notes = [*self.fit.notes, self.scores.mean.note]
        return "\n".join([*lines, *(f"note: {note}" for note in notes if note)])


def ridge_probe(
    latents: ArrayLike,
    joints: ArrayLike,
    episodes: ArrayLike,
    *,
    evaluate: Sequence[Any],
    joint_names: Sequence[str] | None = None,
    settings: ProbeSettings | None = None,
    seed: int = 0,
) -> RidgeProbe:
    """Fit the ridge probe to some episodes and score it on the others.

    Parameters
    ----------
    latents, joints : [N, D], and [N, J] in rad; row by row of the same moment.
    episodes : [N], the episode of each row: the split is by episode, never by row.
    evaluate : labels of the episodes that are held out.
    joint_names : of the J columns.
    settings : penalties, folds, resamples, permutations, level; those of a study without any.
    seed : of resamples and exchanges.

    Raises
    ------
    InputError : shapes that disagree, values that are not finite, or a split that leaves a side empty.
    """
    settings = settings or ProbeSettings()
    x, y = _numbers("ridge_probe, latents", latents), _numbers("ridge_probe, joints", joints)
    labels = np.asarray(episodes)
    held = _held_out("ridge_probe", {"latents": x, "joints": y}, labels, evaluate)
    names = tuple(joint_names) if joint_names is not None else tuple(f"joint{i}" for i in range(y.shape[1]))
    if len(names) != y.shape[1]:
        raise InputError("ridge_probe, joint_names", f"{len(names)} names for {y.shape[1]} joints")
    train, test = EpisodeClusters.of(labels[~held]), EpisodeClusters.of(labels[held])
    spread = spread_of_joints(y[held], settings.min_std)
    one, two = np.random.SeedSequence(seed).spawn(2)
    bootstrap = Bootstrap.draw(
        test.labels,
        np.random.default_rng(one),
        resamples=settings.resamples,
        level=settings.level,
        interval=settings.interval,
    )
    try:
        fit = fit_ridge(
            x[~held], y[~held], train, alphas=settings.alphas, folds=settings.folds, testable=spread.testable
        )
        sums = ResidualSums.of(y[held], fit.predict(x[held]), test)
        null = None
        if settings.permutations:
            null = permutation_null(
                x[~held],
                y[~held],
                train,
                x[held],
                y[held],
                alpha=fit.alpha_by_joint,
                testable=spread.testable,
                rng=np.random.default_rng(two),
                exchanges=settings.permutations,
            )
    except ValueError as error:
        raise InputError("ridge_probe", str(error)) from None
    scores = score_joints(sums, bootstrap, spread.testable)
    return RidgeProbe(
        names, spread.std, fit, scores, null, int((~held).sum()), int(held.sum()), len(test.labels)
    )


def g1b_probe(
    latents: ArrayLike,
    joints: ArrayLike,
    actions: ArrayLike,
    time_s: ArrayLike,
    episodes: ArrayLike,
    *,
    evaluate: Sequence[Any],
    settings: RankingSettings | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> Rankings:
    """Rank the action chunk that was executed among others (G1b), by a ridge predictor of the latents.

    Parameters
    ----------
    latents, joints, actions : [N, D], [N, J] in rad and [N, A]; `actions` are those in force at each row, NaN
        before the first one of an episode. The rows of an episode lie together, in the order of time.
    time_s : [N], seconds, rising within an episode.
    episodes, evaluate : as for `ridge_probe`.
    settings : candidates, horizons; those of a study without any.
    resamples, seed : of the bootstrap; the seed draws the candidates as well.

    Raises
    ------
    InputError : shapes that disagree, values that are not finite, or a split that leaves a side empty.
    """
    settings = settings or RankingSettings()
    arrays = {
        "latents": _numbers("g1b_probe, latents", latents),
        "joints": _numbers("g1b_probe, joints", joints),
        "actions": _numbers("g1b_probe, actions", actions),
    }
    labels, seconds = np.asarray(episodes), _numbers("g1b_probe, time_s", time_s)
    held = _held_out("g1b_probe", arrays, labels, evaluate)
    if seconds.shape != labels.shape or not np.isfinite(seconds).all():
        raise InputError("g1b_probe, time_s", f"must be {len(labels)} finite seconds, has {seconds.shape}")
    draws, candidates = np.random.SeedSequence(seed).spawn(2)
    try:
        train, test = (
            TimedRows(
                arrays["latents"][side],
                arrays["joints"][side],
                arrays["actions"][side],
                np.round(seconds[side] * 1e9).astype(np.int64),
                labels[side],
            )
            for side in (~held, held)
        )
        bootstrap = Bootstrap.draw(
            test.clusters.labels, np.random.default_rng(draws), resamples=resamples, interval="studentised"
        )
        return rank_chunks(
            train,
            test,
            bootstrap,
            seed=candidates,
            horizons=sorted({settings.horizon, *settings.beside}),
            candidates=settings.candidates,
        )
    except ValueError as error:
        raise InputError("g1b_probe", str(error)) from None


def _numbers(where: str, values: ArrayLike) -> NDArray[np.float64]:
    """Real numbers as float64, masked ones as NaN; InputError where they are none."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    try:
        array = np.asarray(values)
        if array.dtype.kind == "c":
            raise TypeError("complex")
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: a torch tensor's, with a gradient
        raise InputError(where, f"are no real numbers ({error})", "give an array of floats") from None


def _held_out(
    function: str, arrays: Mapping[str, NDArray[Any]], labels: NDArray[Any], evaluate: Sequence[Any]
) -> NDArray[np.bool_]:
    """Which rows are evaluated, bool [N]; InputError where rows do not fit or the split leaves a side
    empty."""
    if labels.ndim != 1 or any(array.ndim != 2 or len(array) != len(labels) for array in arrays.values()):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InputError(function, f"{shapes} and episodes {labels.shape} do not fit: one row a moment")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError(f"{function}, episodes", "are not all finite", "label every row")
    chosen = np.asarray(list(evaluate) if isinstance(evaluate, Iterable) else evaluate)
    if chosen.ndim != 1 or chosen.dtype == np.bool_:
        raise InputError(
            f"{function}, evaluate", "must be labels of episodes", "give a list of them, not a mask of rows"
        )
    absent = [label for label in evaluate if label not in labels]
    if absent:
        raise InputError(f"{function}, evaluate", f"{absent[0]!r} is no episode of the rows")
    held = np.isin(labels, list(evaluate))
    if held.all() or not held.any():
        raise InputError(f"{function}, evaluate", "leaves no episode to train on, or none to evaluate")
    return held


def _row(name: str, score: Estimate, std: float | None, null: Any) -> dict[str, Any]:
    return {
        "joint": name,
        "std": std,
        "r2": score.value,
        "low": score.low,
        "high": score.high,
        "null": None if null is None else null.mean,
        "p": None if null is None else null.p_value,
        "note": score.note,
    }


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
