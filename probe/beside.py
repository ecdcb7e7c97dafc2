"""What stands beside the ridge probe of one encoder on one data entry.

Two families, each measured with the resamples of the probe itself, so that encoders compare in pairs:

    beside_probe    other ways to read the same rows: the map in both directions, its distance from a
                    rotation, how many dimensions are in use, an MLP, angles that wrap, plans along straight
                    latent lines, and how the read-out grows with the number of training episodes
    rank            G1b: does the latent tell the action chunk that was executed from others; by ridge, and
                    by the encoder's own predictor where it has one

None of them decides a bar that does not name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bars import Measurement, part_names
from bars.study import ProbeSettings, RankingSettings
from probe.angles import find_wraps, probe_angles
from probe.bootstrap import Bootstrap, Estimate
from probe.geometry import measure_geometry
from probe.learning import learning_curve
from probe.planning import straight_line_plans
from probe.ranking import Ranking, latent_state_rank_correlation, rank_chunks
from probe.ridge import RidgeFit
from probe.rows import Rows, measurement
from probe.similarity import effective_width
from probe.statistics import ResidualSums, score_joints

if TYPE_CHECKING:
    from encoders.lewm_encoder import Rollout
    from probe.chunks import TimedRows

Found = Iterator[tuple[str, Estimate | float, str]]
"""Path, number (with an interval or without one), and what a reader should know."""


@dataclass(frozen=True, eq=False)
class Beside:
    """Further measurements, and those estimates among them that paired differences need."""

    measurements: tuple[Measurement, ...]
    estimates: dict[str, Estimate]
    curve: list[dict[str, Any]]
    """The learning curve: episodes, rows, mean R2 and its range over the orders of episodes."""


def beside_probe(
    source: str,
    fit: RidgeFit,
    train: Rows,
    evaluate: Rows,
    joints: Sequence[str],
    testable: np.ndarray,
    settings: ProbeSettings,
    bootstrap: Bootstrap,
    seed: np.random.SeedSequence,
    radians: np.ndarray,
) -> Beside:
    """Read the same rows in the other ways; parameters as `probe.measure.probe_rows`.

    `seed` draws the MLP's weights, the pairs of plans and the orders of the learning curve; `radians` (J,)
    says which joints are angles.
    """
    if not testable.any() or len(train.clusters) < 2 or len(evaluate.clusters) < 2:
        return Beside((), {}, [])
    of_mlp, of_plans, of_curve = seed.spawn(3)
    found = [
        *_geometry(source, fit, train, evaluate, testable, bootstrap),
        *_mlp(source, train, evaluate, joints, testable, bootstrap, settings, of_mlp),
        *_angles(source, train, evaluate, joints, testable & radians, settings, bootstrap),
        *_plans(source, train, evaluate, testable, bootstrap, of_plans),
    ]
    curve = _curve(train, evaluate, testable, settings, of_curve) if settings.learning_curve else []
    return _gathered(found, len(evaluate.y), bootstrap, curve)


def rank(
    source: str,
    train: TimedRows,
    evaluate: TimedRows,
    settings: RankingSettings,
    bootstrap: Bootstrap,
    seed: np.random.SeedSequence,
) -> Beside:
    """G1b at the study's horizon and at those beside it, with both kinds of distractors.

    `seed` is the data entry's: every encoder on it is asked the same questions.
    """
    horizons = sorted({settings.horizon, *settings.beside})
    rankings = rank_chunks(
        train, evaluate, bootstrap, seed=seed, horizons=horizons, candidates=settings.candidates
    )
    own: Ranking = rankings[settings.distractors, settings.horizon]
    prefix = f"{source}.g1b"
    found: list[tuple[str, Estimate | float, str]] = [
        (f"{prefix}.top1", own.latents.top1, _asked(own)),
        (f"{prefix}.mrr", own.latents.mrr, f"chance {own.chance_mrr:.3f}"),
        (f"{prefix}.action_only", own.action_only.top1, "top-1 by continuity of the action alone"),
        (f"{prefix}.oracle", own.state_oracle.top1, "top-1 by the true joints"),
        (
            f"{prefix}.agreement",
            latent_state_rank_correlation(own, bootstrap),
            "Spearman correlation of latent cost and state cost over the candidates",
        ),
    ]
    counts = {path: own.n_anchors for path, _, _ in found}
    for one in rankings:
        if one.distractors != settings.distractors and one.horizon == settings.horizon:
            path = f"{prefix}.{one.distractors}.top1"
        elif one.distractors == settings.distractors and one.horizon != settings.horizon:
            path = f"{prefix}.h{one.horizon}.top1"
        else:
            continue
        found.append((path, one.latents.top1, _asked(one)))
        counts[path] = one.n_anchors
    return _gathered(found, counts, bootstrap, [])


def rank_by_own_predictor(
    source: str,
    model: PredictingEncoder,
    train: TimedRows,
    evaluate: TimedRows,
    settings: RankingSettings,
    bootstrap: Bootstrap,
    seed: np.random.SeedSequence,
) -> Beside:
    """G1b with the encoder's own predictor, in both of its rollouts, and with ridge on the same anchors.

    The horizon is the study's, or the next one that is a whole number of the model's steps.
    """
    prefix = f"{source}.g1b"
    why = model.why_no_prediction(train.actions.shape[1], train.step_ns / 1e9)
    if why:
        return Beside((Measurement(f"{prefix}.own.top1", None, testable=False, note=why),), {}, [])
    horizon = -(-settings.horizon // model.step_rows) * model.step_rows

    def ranked(rollout: Rollout | None) -> Ranking:
        rankings = rank_chunks(
            train,
            evaluate,
            bootstrap,
            seed=seed,
            horizons=(horizon,),
            distractors=(settings.distractors,),
            candidates=settings.candidates,
            predictor=None if rollout is None else RolledOut(model, rollout),
            predictor_name=f"the encoder's own, rollout from {rollout}",
            history=max(2, model.history_rows),
        )
        return rankings[settings.distractors, horizon]

    found: list[tuple[str, Estimate | float, str]] = []
    counts: dict[str, int] = {}
    for name, rollout in (("own", "history"), ("own_anchor", "anchor"), ("own_ridge", None)):
        one = ranked(rollout)  # type: ignore[arg-type]
        found.append((f"{prefix}.{name}.top1", one.latents.top1, _asked(one)))
        found.append((f"{prefix}.{name}.mrr", one.latents.mrr, f"chance {one.chance_mrr:.3f}"))
        counts |= {f"{prefix}.{name}.top1": one.n_anchors, f"{prefix}.{name}.mrr": one.n_anchors}
    return _gathered(found, counts, bootstrap, [])


class PredictingEncoder(Protocol):
    """What an encoder that is a world model has beside its latents; `encoders.lewm_encoder` is one."""

    @property
    def history_rows(self) -> int: ...

    @property
    def step_rows(self) -> int: ...

    def why_no_prediction(self, actions: int, row_s: float) -> str: ...

    def predict(
        self, history: NDArray[Any], past: NDArray[Any], chunks: NDArray[Any], rollout: Rollout
    ) -> NDArray[Any]: ...


@dataclass(frozen=True)
class RolledOut:
    """A model's predictor with one of its rollouts, as `probe.chunks.Predictor` wants it."""

    model: PredictingEncoder
    rollout: Rollout

    def predict(self, history: NDArray[Any], past: NDArray[Any], chunks: NDArray[Any]) -> NDArray[Any]:
        """Latents [n, K, D] after each chunk."""
        return self.model.predict(history, past, chunks, self.rollout)


def not_ranked(source: str, why: str) -> Beside:
    """The measurements of G1b where it cannot be measured, with the reason."""
    return Beside((Measurement(f"{source}.g1b.top1", None, testable=False, note=why),), {}, [])


def _asked(ranking: Ranking) -> str:
    said = (
        f"{ranking.n_candidates} candidates from {_FROM[ranking.distractors]}, chance "
        f"{ranking.chance_top1:.3f}, H = {ranking.horizon} rows ({ranking.horizon_s:.2f} s), "
        f"predictor {ranking.predictor}, {ranking.n_anchors} anchors"
    )
    return "; ".join([said, *ranking.notes])


_FROM = {"hard": "the same episode", "easy": "other episodes"}


def _geometry(
    source: str, fit: RidgeFit, train: Rows, evaluate: Rows, testable: np.ndarray, bootstrap: Bootstrap
) -> Found:
    moves = testable & (np.ptp(train.y, axis=0) > 0)
    if not moves.any():
        return
    geometry = measure_geometry(
        fit,
        train.x,
        train.y,
        train.clusters,
        evaluate.x,
        evaluate.y,
        evaluate.clusters,
        testable=moves,
        bootstrap=bootstrap,
    )
    yield (
        f"{source}.reverse.mean",
        geometry.latents,
        "R2 of the latents from the joints, mean over dimensions",
    )
    yield f"{source}.reverse.weighted", geometry.latents_weighted, "the same, weighted by variance"
    yield (
        f"{source}.procrustes.residual",
        geometry.procrustes_residual,
        "squared error of joints = scale x rotation x latents, over the joints' squares",
    )
    error = geometry.joint_map.orthogonality_error
    yield f"{source}.map.rcond", 1 / geometry.joint_map.condition, str(geometry.joint_map)
    yield f"{source}.map.orthogonality_error", error, "0 for a rotation"
    yield f"{source}.mcc.rotated", geometry.mcc_after, "mean correlation with the joints after rotation"
    width = effective_width(train.x)
    yield f"{source}.width.rankme", width.rankme, str(width)
    yield f"{source}.width.participation", width.participation_ratio, ""


def _mlp(
    source: str,
    train: Rows,
    evaluate: Rows,
    joints: Sequence[str],
    testable: np.ndarray,
    bootstrap: Bootstrap,
    settings: ProbeSettings,
    seed: np.random.SeedSequence,
) -> Found:
    if not settings.mlp:
        return
    from probe.mlp import fit_mlp  # torch, which nothing else here needs

    fit = fit_mlp(train.x, train.y, train.clusters, seed=int(seed.generate_state(1)[0]), testable=testable)
    sums = ResidualSums.of(evaluate.y, fit.predict(evaluate.x), evaluate.clusters)
    scores = score_joints(sums, bootstrap, testable)
    yield f"{source}.mlp.mean", scores.mean, str(fit)
    parts = part_names(joints)
    for column, joint in enumerate(joints):
        yield f"{source}.mlp.{parts[joint]}", scores.joints[column], ""


def _angles(
    source: str,
    train: Rows,
    evaluate: Rows,
    joints: Sequence[str],
    angles: np.ndarray,
    settings: ProbeSettings,
    bootstrap: Bootstrap,
) -> Found:
    """Joints whose log jumps by a turn, read through sine and cosine."""
    wraps = find_wraps(train.y, train.clusters).wrapping | find_wraps(evaluate.y, evaluate.clusters).wrapping
    columns = np.flatnonzero(angles & wraps)
    if not len(columns):
        return
    probed = probe_angles(
        train.x,
        train.y[:, columns],
        train.clusters,
        evaluate.x,
        evaluate.y[:, columns],
        evaluate.clusters,
        alphas=settings.alphas,
        bootstrap=bootstrap,
        folds=settings.folds,
    )
    parts = part_names(joints)
    for score, column in zip(probed.scores, columns):
        yield (
            f"{source}.angle.{parts[joints[column]]}",
            score.r2,
            "circular R2: its log wraps, so its plain R2 measures the wrap",
        )


def _plans(
    source: str,
    train: Rows,
    evaluate: Rows,
    testable: np.ndarray,
    bootstrap: Bootstrap,
    seed: np.random.SeedSequence,
) -> Found:
    try:
        plans = straight_line_plans(
            evaluate.x,
            evaluate.y[:, testable],
            evaluate.clusters,
            train.y[:, testable].std(axis=0),
            bootstrap,
            seed=seed,
        )
    except ValueError:  # no two frames are far enough apart
        return
    yield (
        f"{source}.planning.ratio",
        plans.latents.ratio,
        f"length in joints of straight latent lines over the chord, {len(plans.pairs)} pairs; 1 is straight",
    )
    yield f"{source}.planning.above_oracle", plans.above_oracle, "above the ratio of straight lines in joints"


def _curve(
    train: Rows,
    evaluate: Rows,
    testable: np.ndarray,
    settings: ProbeSettings,
    seed: np.random.SeedSequence,
) -> list[dict[str, Any]]:
    curve = learning_curve(
        train.x,
        train.y,
        train.clusters,
        evaluate.x,
        evaluate.y,
        evaluate.clusters,
        alphas=settings.alphas,
        testable=testable,
        rng=np.random.default_rng(seed),
        folds=settings.folds,
    )
    return [
        {
            "episodes": int(size),
            "rows": float(curve.rows[:, i].mean()),
            "r2_mean": float(curve.mean[i]),
            "r2_low": float(curve.r2[:, i].min()),
            "r2_high": float(curve.r2[:, i].max()),
        }
        for i, size in enumerate(curve.sizes)
    ]


def _gathered(
    found: Sequence[tuple[str, Estimate | float, str]],
    rows: int | dict[str, int],
    bootstrap: Bootstrap,
    curve: list[dict[str, Any]],
) -> Beside:
    measured, estimates = [], {}
    for path, number, note in found:
        n_rows = rows if isinstance(rows, int) else rows[path]
        if isinstance(number, Estimate):
            measured.append(measurement(path, number, n_rows, note=note))
            estimates[path] = number
        else:
            value = float(number) if np.isfinite(number) else None
            measured.append(
                Measurement(path, value, n_rows=n_rows, n_episodes=len(bootstrap.episodes), note=note)
            )
    return Beside(tuple(measured), estimates, curve)
