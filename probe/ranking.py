"""G1b: does a world model find the action chunk that was executed among others that were not?

At every anchor row t the model predicts the latent at t+H after each of K candidate chunks, from the latent
history and the chunk. Candidates are ranked by the distance between that prediction and the latent really
observed at t+H, Euclidean in the latents whitened on the training episodes (their 256 leading directions).
top-1 is the share of anchors whose executed chunk comes first; mrr the mean reciprocal rank. Candidates whose
distances tie share credit: both are expectations over the orders of the tied, so that a model which cannot
tell the chunks apart scores exactly chance, 1/K and (1 + 1/2 + ... + 1/K)/K.

Beside it stand two rankings of the same candidates: one by continuity, the distance of a chunk's first action
from the action in force before the anchor, which looks at no latent; and one by a state oracle, the same
predictor fitted on the true joints, with the distance in standardised joints. The oracle is a yardstick and
no upper bound: latents may hold what joints do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from probe.bootstrap import ANYWHERE, SHARE_RANGE, Bootstrap, Estimate, difference
from probe.chunks import (
    ALPHAS,
    Candidates,
    Coordinates,
    Distractors,
    IntArray,
    Predictor,
    RidgePredictor,
    TimedRows,
    chunk_costs,
    continuity_costs,
    draw_candidates,
    valid_anchors,
)
from probe.clusters import EpisodeClusters
from probe.frame import to_frame
from probe.moments import FloatArray

if TYPE_CHECKING:
    import pandas

_TIE = 1e-9  # costs nearer than this, relative and in standard deviations, differ by rounding alone
_BLOCK = 4_000_000  # numbers held at once


@dataclass(frozen=True, eq=False)
class RankScores:
    """One ranking's top-1 and mean reciprocal rank, or the difference of two."""

    top1: Estimate
    mrr: Estimate


@dataclass(frozen=True, eq=False)
class Ranking:
    """G1b at one horizon with one kind of distractors.

    Attributes
    ----------
    horizon, distractors, n_candidates : H in rows, "hard" or "easy", K.
    horizon_s : H in seconds, by the usual step of the training rows.
    predictor : what predicted the latents: "ridge", or the name of the encoder's own.
    latents, action_only, state_oracle : scores of the three rankings of the same candidates.
    latent_cost, action_cost, state_cost : [n, K], the distances ranked; column 0 is the executed chunk's.
    episode : [n], label of each anchor's episode.
    start_ns : int64 [n, K], time at which each candidate begins; column 0 is the anchor's own.
    dropped : anchors left out for want of K-1 distractors.
    notes : what a reader should know, in words.
    """

    horizon: int
    distractors: Distractors
    n_candidates: int
    horizon_s: float
    predictor: str
    latents: RankScores
    action_only: RankScores
    state_oracle: RankScores
    latent_cost: FloatArray
    action_cost: FloatArray
    state_cost: FloatArray
    episode: NDArray[Any]
    start_ns: IntArray
    dropped: int
    notes: tuple[str, ...]

    @property
    def n_anchors(self) -> int:
        return len(self.episode)

    @property
    def n_episodes(self) -> int:
        """Episodes that have an anchor; the intervals' own count includes those that have none."""
        return len(np.unique(self.episode))

    @property
    def chance_top1(self) -> float:
        return 1 / self.n_candidates

    @property
    def chance_mrr(self) -> float:
        return float(_harmonic(self.n_candidates)[-1]) / self.n_candidates

    def rows(self) -> list[dict[str, Any]]:
        """One dict a ranking, chance among them: a table, or `pandas.DataFrame(ranking.rows())`."""
        about = {
            "horizon": self.horizon,
            "distractors": self.distractors,
            "n_candidates": self.n_candidates,
            "n_anchors": self.n_anchors,
            "n_episodes": self.n_episodes,
            "dropped": self.dropped,
        }
        found: list[dict[str, Any]] = []
        for ranked_by in ("latents", "action_only", "state_oracle"):
            scores: RankScores = getattr(self, ranked_by)
            numbers = {
                f"{metric}{suffix}": value
                for metric, one in (("top1", scores.top1), ("mrr", scores.mrr))
                for suffix, value in (("", one.value), ("_low", one.low), ("_high", one.high))
            }
            found.append({**about, "ranked_by": ranked_by, **numbers})
        chance = {**dict.fromkeys(numbers), "top1": self.chance_top1, "mrr": self.chance_mrr}
        return [*found, {**about, "ranked_by": "chance", **chance}]

    def __str__(self) -> str:
        lines = [
            f"G1b: {self.n_candidates} candidates, {self.distractors} distractors, H = {self.horizon} rows "
            f"({self.horizon_s:.2f} s), {self.n_anchors} anchors of {self.n_episodes} episodes, "
            f"{self.dropped} dropped; predictor: {self.predictor}"
        ]
        for row in self.rows():
            cells = [
                _shown(row[metric], row[f"{metric}_low"], row[f"{metric}_high"]) for metric in ("top1", "mrr")
            ]
            name = row["ranked_by"].replace("_", " ")
            lines.append(f"  {name:<13} top-1 {cells[0]:<22} mrr {cells[1]}".rstrip())
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


@dataclass(frozen=True, eq=False)
class Rankings:
    """All that one call ranked; `rankings["hard", 8]` is one of them."""

    rankings: tuple[Ranking, ...]

    def __iter__(self) -> Iterator[Ranking]:
        return iter(self.rankings)

    def __getitem__(self, key: tuple[str, int]) -> Ranking:
        for one in self.rankings:
            if (one.distractors, one.horizon) == key:
                return one
        there = [(one.distractors, one.horizon) for one in self.rankings]
        raise KeyError(f"{key} was not ranked; there are {there}")

    def rows(self) -> list[dict[str, Any]]:
        """The rows of all rankings, one below the other."""
        return [row for one in self.rankings for row in one.rows()]

    def to_frame(self) -> pandas.DataFrame:
        """`rows` as a pandas frame."""
        return to_frame(self.rows())

    def __str__(self) -> str:
        return "\n".join(map(str, self.rankings))


def rank_chunks(
    train: TimedRows,
    evaluate: TimedRows,
    bootstrap: Bootstrap,
    *,
    seed: int | np.random.SeedSequence,
    horizons: Sequence[int] = (8,),
    distractors: Sequence[Distractors] = ("hard", "easy"),
    candidates: int = 16,
    predictor: Predictor | None = None,
    predictor_name: str = "own",
    history: int = 2,
    alphas: Sequence[float] | FloatArray = ALPHAS,
    folds: int = 5,
) -> Rankings:
    """Rank the executed chunk among distractors, at every valid anchor of the evaluation episodes.

    Parameters
    ----------
    train : rows of training episodes: whitening, standardisation and ridge predictors come from them alone.
    evaluate : rows of held-out episodes, of which anchors and distractors are made.
    bootstrap : of the evaluation episodes, shared by all encoders on this data.
    seed : the study's; with the same rows and seed every encoder is asked the same questions.
    horizons : rows a chunk spans.
    predictor : the encoder's own, None for ridge on the whitened latents. Ridge is the one to compare
        encoders by; an own predictor goes beside it, not in its place.
    history : rows that a predictor is given. Ridge uses two; give all calls that are to be compared the
        longest one needed, since anchors need a whole history.
    alphas, folds : of the ridge predictors' cross-validation.

    A horizon that leaves no window to train on, or no anchor to rank at, has scores without a value and a
    note saying why.

    Raises
    ------
    ValueError : rows of different widths, a bootstrap of other episodes, one training episode and several
        alphas, a predictor whose answer has another shape or is not finite.
    """
    _check(train, evaluate, bootstrap)
    step_ns = train.step_ns
    space, joint_space = Coordinates.whitened(train.latents), Coordinates.standardised(train.joints)
    white = space(train.latents), space(evaluate.latents)
    state = joint_space(train.joints), joint_space(evaluate.joints)
    sent = Coordinates.standardised(train.actions[np.isfinite(train.actions).all(axis=1)])

    def ridge(latents: FloatArray, anchors: IntArray, horizon: int) -> RidgePredictor:
        episodes = EpisodeClusters.of(train.episode[anchors])
        return RidgePredictor.fitted(
            latents, train.actions, anchors, horizon, episodes, alphas=alphas, folds=folds
        )

    found = []
    for horizon in horizons:
        anchors = valid_anchors(train, horizon, step_ns=step_ns, history=history)
        if len(alphas) > 1 and len(np.unique(train.episode[anchors])) < 2:
            anchors = anchors[:0]  # an alpha is chosen by leaving episodes out
        common = ridge(white[0], anchors, horizon) if len(anchors) and predictor is None else None
        oracle = ridge(state[0], anchors, horizon) if len(anchors) else None
        for kind in distractors:
            drawn = draw_candidates(
                evaluate, horizon, kind, step_ns=step_ns, seed=seed, candidates=candidates, history=history
            )
            latent_cost = action_cost = state_cost = np.zeros((0, candidates))
            if oracle is None or not len(drawn):
                drawn = Candidates(horizon, history, kind, drawn.anchor[:0], drawn.start[:0], drawn.dropped)
            else:
                action_cost = continuity_costs(evaluate.actions, drawn, sent)
                state_cost = chunk_costs(oracle, state[1], evaluate.actions, drawn)
                if predictor is not None:
                    latent_cost = chunk_costs(predictor, evaluate.latents, evaluate.actions, drawn, space)
                elif common is not None:
                    latent_cost = chunk_costs(common, white[1], evaluate.actions, drawn)
            scored = _scorer(evaluate.episode[drawn.anchor], bootstrap, len(anchors), drawn)
            fits = {"latents": common, "state oracle": oracle}
            found.append(
                Ranking(
                    horizon=horizon,
                    distractors=kind,
                    n_candidates=candidates,
                    horizon_s=horizon * step_ns / 1e9,
                    predictor="ridge" if predictor is None else predictor_name,
                    latents=scored(latent_cost),
                    action_only=scored(action_cost),
                    state_oracle=scored(state_cost),
                    latent_cost=latent_cost,
                    action_cost=action_cost,
                    state_cost=state_cost,
                    episode=evaluate.episode[drawn.anchor],
                    start_ns=evaluate.time_ns[drawn.start],
                    dropped=drawn.dropped,
                    notes=_notes(drawn, evaluate, fits),
                )
            )
    return Rankings(tuple(found))


def rank_credit(cost: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Top-1 and reciprocal rank of column 0 of `cost` [n, K], expected over the orders of the tied, [n] each.

    With b candidates nearer and t tied with the executed one its rank is evenly one of b+1 ... b+t+1:
    top-1 is 1/(t+1) where b = 0, else 0; the reciprocal rank is the mean of 1/(b+1) ... 1/(b+t+1).
    """
    own, others = cost[:, :1], cost[:, 1:]
    tied = np.abs(others - own) <= _TIE * (1 + np.maximum(own, others))
    nearer = ((others < own) & ~tied).sum(axis=1)
    ties = tied.sum(axis=1)
    harmonic = _harmonic(cost.shape[1])
    reciprocal = (harmonic[nearer + ties + 1] - harmonic[nearer]) / (ties + 1)
    return np.where(nearer == 0, 1 / (ties + 1), 0.0), reciprocal


def mean_over_episodes(
    values: FloatArray,
    episode: NDArray[Any],
    bootstrap: Bootstrap,
    note: str = "",
    within: tuple[float, float] = ANYWHERE,
) -> Estimate:
    """Mean of `values` [n] over anchors, with its interval over episodes; NaN values are left out. `within`
    as in `Bootstrap.estimate`."""
    known = np.isfinite(values)
    index = np.searchsorted(bootstrap.episodes, episode[known])
    sums = np.bincount(index, values[known], minlength=len(bootstrap.episodes))
    counts = np.bincount(index, minlength=len(bootstrap.episodes)).astype(np.float64)
    if not counts.any():
        return bootstrap.estimate(None, np.full(len(bootstrap), np.nan), note or "no anchor")
    # the sample itself, its resamples, then the jackknife: mean = sum w s / sum w n
    weights = np.concatenate([np.ones((1, len(counts))), bootstrap.weights, bootstrap.left_out])
    drawn = weights @ counts
    drawn = np.where(drawn > 0, drawn, np.nan)
    means, resampled = (weights @ sums) / drawn, 1 + len(bootstrap)
    influence = None
    if bootstrap.interval == "studentised":
        # d mean / d w_e = (s_e - mean n_e) / sum w n
        influence = (sums - means[:resampled, None] * counts) / drawn[:resampled, None]
    return bootstrap.estimate(
        float(means[0]),
        means[1:resampled],
        note,
        jackknife=means[resampled:],
        influence=influence,
        within=within,
    )


def latent_state_rank_correlation(
    ranking: Ranking, bootstrap: Bootstrap, method: Literal["spearman", "kendall"] = "spearman"
) -> Estimate:
    """Does ranking by latents agree with ranking by joints: mean over anchors of a rank correlation.

    At each anchor it is taken over the K candidates, between the latent cost and the state cost (the distance
    of the joints that the state oracle predicts from those observed at t+H). Anchors at which all candidates
    tie in either cost have none and are left out.
    """
    correlation = rank_correlation(ranking.latent_cost, ranking.state_cost, method)
    undefined = int(np.isnan(correlation).sum())
    note = f"{undefined} anchors left out: all candidates tie" if undefined else ""
    return mean_over_episodes(correlation, ranking.episode, bootstrap, note, (-1.0, 1.0))


def rank_correlation(
    a: FloatArray, b: FloatArray, method: Literal["spearman", "kendall"] = "spearman"
) -> FloatArray:
    """Spearman's rho (mid-ranks) or Kendall's tau-b between the rows of `a` and `b` [n, K], [n].

    NaN where all values of a row tie. Both come from the signs s[j, k] of the differences between candidates:
    tau-b = sum s_a s_b / sqrt(sum s_a^2 sum s_b^2), and the mid-rank of k, centred, is sum_j s[j, k] / 2.
    """
    if method not in ("spearman", "kendall"):
        raise ValueError(f"method = {method!r}: expected 'spearman' or 'kendall'")
    out = np.empty(len(a))
    size = max(1, _BLOCK // max(1, a.shape[1] ** 2))
    for first in range(0, len(a), size):
        block = slice(first, first + size)
        signs = [_signs(values[block]) for values in (a, b)]
        one, two = (s.sum(axis=1) if method == "spearman" else s.reshape(len(s), -1) for s in signs)
        both = np.einsum("nk,nk->n", one, two)
        scale = np.sqrt(np.einsum("nk,nk->n", one, one) * np.einsum("nk,nk->n", two, two))
        out[block] = both / np.where(scale > 0, scale, np.nan)
    return out


def ranking_difference(a: Ranking, b: Ranking) -> RankScores:
    """Scores by latents of a minus those of b, paired: the same anchors, candidates and resamples.

    Raises
    ------
    ValueError : the two were not asked the same questions.
    """
    same = (
        np.array_equal(a.start_ns, b.start_ns)
        and np.array_equal(a.episode, b.episode)
        and (a.horizon, a.distractors) == (b.horizon, b.distractors)
        and a.latents.top1.bootstrap.pairs_with(b.latents.top1.bootstrap)
    )
    if not same:
        raise ValueError(
            "the two rankings differ in anchors, candidates or resamples: "
            "rank both encoders on the same rows with the same seed, history and bootstrap"
        )
    return RankScores(difference(a.latents.top1, b.latents.top1), difference(a.latents.mrr, b.latents.mrr))


def _signs(cost: FloatArray) -> FloatArray:
    """Sign of cost[k] - cost[j] for all pairs, [n, K, K]; 0 for ties."""
    one, other = cost[:, None, :], cost[:, :, None]
    return np.where(np.abs(one - other) <= _TIE * (1 + np.maximum(one, other)), 0.0, np.sign(one - other))


def _harmonic(count: int) -> FloatArray:
    """0, 1, 1 + 1/2, ... up to the sum of `count` terms, [count + 1]."""
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, count + 1))])


def _scorer(
    episode: NDArray[Any], bootstrap: Bootstrap, n_training: int, drawn: Candidates
) -> Callable[[FloatArray], RankScores]:
    """Costs to scores, for the anchors of these episodes; the note says why there are none."""
    note = ""
    if not n_training:
        note = f"fewer than two training episodes have a window of {drawn.horizon} rows without a gap"
    elif not len(drawn):
        note = (
            f"{drawn.dropped} anchors, none with enough distractors"
            if drawn.dropped
            else f"no window of {drawn.horizon} rows without a gap"
        )

    def scored(cost: FloatArray) -> RankScores:
        top1, reciprocal = rank_credit(cost)
        return RankScores(
            mean_over_episodes(top1, episode, bootstrap, note, SHARE_RANGE),
            mean_over_episodes(reciprocal, episode, bootstrap, note, SHARE_RANGE),
        )

    return scored


def _notes(drawn: Candidates, evaluate: TimedRows, fits: dict[str, RidgePredictor | None]) -> tuple[str, ...]:
    notes, n_candidates = [], drawn.start.shape[1]
    n_episodes, n_ranked = len(evaluate.clusters), len(np.unique(evaluate.episode[drawn.anchor]))
    if drawn.dropped and drawn.distractors == "hard":
        notes.append(
            f"{drawn.dropped} anchors dropped: their episodes have fewer than {n_candidates} x "
            f"{drawn.horizon} windows"
        )
    elif drawn.dropped:
        notes.append(f"{drawn.dropped} anchors dropped: fewer than {n_candidates - 1} other windows")
    if n_ranked < n_episodes:
        notes.append(
            f"{n_episodes - n_ranked} of {n_episodes} evaluation episodes have no anchor (too short, gaps, "
            "no action, or another time between rows than the training rows)"
        )
    if drawn.distractors == "easy" and 0 < n_ranked < n_candidates:
        notes.append(
            f"{n_candidates} candidates from {n_ranked} episodes: some share one, and a ranking that knows "
            "nothing scores a little above chance"
        )
    for name, predictor in fits.items():
        if predictor is not None and predictor.fit.edge == "high":
            notes.append(
                f"ridge on {name} took the largest alpha of the grid, {predictor.fit.alpha:g}: "
                "extend it, or they say little about what follows"
            )
    return tuple(notes)


def _check(train: TimedRows, evaluate: TimedRows, bootstrap: Bootstrap) -> None:
    for name in ("latents", "joints", "actions"):
        widths = getattr(train, name).shape[1], getattr(evaluate, name).shape[1]
        if widths[0] != widths[1]:
            raise ValueError(f"{name} have {widths[0]} columns in training, {widths[1]} in evaluation")
    if not np.array_equal(bootstrap.episodes, evaluate.clusters.labels):
        raise ValueError("the bootstrap was drawn for other episodes than the ones evaluated")
    if set(np.unique(train.episode)) & set(bootstrap.episodes):
        raise ValueError("an episode is in training and in evaluation: its windows would rank themselves")
    if not np.isfinite(train.actions).all(axis=1).any():
        raise ValueError("no training row has an action in force")


def _shown(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" + (f" [{low:.3f}, {high:.3f}]" if low is not None else "")
