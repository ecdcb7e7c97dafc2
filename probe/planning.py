"""Straight-line planning: does the straight line between two latents lead straight through joint space?

The test of the planning corollary in "When Does LeJEPA Learn a World Model?" (arXiv 2605.26379, section on
latent-space planning and appendix "Planning Experiment"). Take two held-out frames, start and goal, with
latents y_s and y_g and joints q_s and q_g. The plan is the straight line

    y_i = (1 - i/T) y_s + (i/T) y_g,    i = 0 ... T,    T = 15

and each y_i is decoded to the joints q_i of the held-out frame whose latent is nearest (k = 1, Euclidean, the
latents as they are). A linear decoder would not do: it maps every straight line to a straight line. Then

    ratio     = (sum over i of ||q_{i+1} - q_i||) / ||q_g - q_s||     1 for a straight path, else longer
    deviation = mean over i of the distance of q_i from the straight line through q_s and q_g

The paper draws 30 pairs of i.i.d. frames and reads about 1.0 (median) for its Gaussian encoder, about 1.15
for the one trained on trajectories. What differs here, and why:
- joints are standardised by the training episodes' std, so that units mix; the paper's have unit variance;
- frames of an episode resemble each other, so the goal lies in another episode than the start, and intervals
  are over episodes: a pair counts as often in a resample as its two episodes were drawn, multiplied;
- start and goal decode to themselves even where another frame has the same latent;
- pairs that are closer than `MIN_CHORD` are left out: near a common rest pose the ratio measures noise.

Decoding can only stop at frames that exist, and six joints are sampled sparsely: even the joints themselves,
taken as latents, give a ratio above 1. That is the oracle, on the same pairs, and `above_oracle` what the
encoder adds to it. An encoder that is an orthogonal map of the standardised joints, up to scale, equals the
oracle. Read the ratio with both of these in mind:
- the oracle is no lower bound. Where frames are sparse an encoder that is not linear can come out below it
  (made-up sine features of six joints, 384 wide: 1.42 against 1.51), so `above_oracle` < 0 is no merit;
- latents that mean nothing need not give a large number: the inner points of a plan may decode to a few
  frames in the middle, again and again. `shuffled`, the encoder's own latents handed to the wrong frames,
  shows what that amounts to here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probe.bootstrap import Bootstrap, Estimate, difference
from probe.clusters import EpisodeClusters
from probe.moments import FloatArray, check_rows

MIN_CHORD = 0.5  # least distance of start and goal, in standard deviations of a joint

_BLOCK = 4_000_000  # distances held at once: bounds the memory whatever the number of frames


@dataclass(frozen=True, eq=False)
class PathScores:
    """Paths decoded from one kind of latents.

    Attributes
    ----------
    ratio, median : mean and median over pairs of path length over chord length; 1 is straight.
    deviation : mean over pairs of the mean distance from the chord, in standard deviations of a joint.
    ratios, deviations : [P], of each pair.
    """

    ratio: Estimate
    median: Estimate
    deviation: Estimate
    ratios: FloatArray
    deviations: FloatArray


@dataclass(frozen=True, eq=False)
class StraightLinePlans:
    """Straight lines in latents, as paths of joints.

    Attributes
    ----------
    latents, oracle, shuffled : paths decoded from the encoder's latents, from the standardised joints
        themselves, and from latents exchanged at random between frames.
    above_oracle : mean ratio of the latents minus that of the oracle, paired.
    pairs : int64 [P, 2], rows of start and goal.
    steps : T, straight steps of a plan.
    dropped : pairs left out because start and goal are closer than `MIN_CHORD`.
    """

    latents: PathScores
    oracle: PathScores
    shuffled: PathScores
    above_oracle: Estimate
    pairs: NDArray[np.int64]
    steps: int
    dropped: int

    def rows(self) -> list[dict[str, Any]]:
        """One dict each for latents, oracle and shuffled: a table, or `pandas.DataFrame(plans.rows())`."""
        return [
            {"decoded_from": name, "n_pairs": len(self.pairs), "dropped": self.dropped, **_numbers(scores)}
            for name, scores in self._named()
        ]

    def _named(self) -> tuple[tuple[str, PathScores], ...]:
        return ("latents", self.latents), ("oracle", self.oracle), ("shuffled", self.shuffled)

    def __str__(self) -> str:
        lines = [f"straight-line plans: {len(self.pairs)} pairs, {self.steps} steps, {self.dropped} dropped"]
        for name, scores in self._named():
            cells = [_shown(one) for one in (scores.ratio, scores.median, scores.deviation)]
            lines.append(f"  {name:<8} ratio {cells[0]}, median {cells[1]}, deviation {cells[2]}")
        return "\n".join([*lines, f"  latents - oracle: ratio {_shown(self.above_oracle)}"])


def straight_line_plans(
    latents: NDArray[Any],
    joints: NDArray[Any],
    episodes: EpisodeClusters,
    joint_std: FloatArray,
    bootstrap: Bootstrap,
    *,
    seed: int | np.random.SeedSequence,
    pairs: int = 300,
    steps: int = 15,
) -> StraightLinePlans:
    """Path-length ratio of straight latent lines between held-out frames; the definition is the module's.

    Parameters
    ----------
    latents, joints : [N, D], [N, J], rows of the evaluation episodes; they are the library as well.
    episodes : of these rows.
    joint_std : [J], of the training rows; joints where it is 0 are left out.
    bootstrap : of the evaluation episodes, shared by all encoders on this data.
    seed : the study's; with the same joints every encoder is given the same pairs.
    pairs : drawn; those too close are left out of them.

    Raises
    ------
    ValueError : shapes that disagree, values that are not finite, a bootstrap of other episodes, fewer than
        two episodes, or no pair left.
    """
    check_rows(latents, joints, episodes)
    if not np.array_equal(bootstrap.episodes, episodes.labels):
        raise ValueError("the bootstrap was drawn for other episodes than the ones evaluated")
    if pairs < 1 or steps < 2:
        raise ValueError(f"pairs must be 1 or more and steps 2 or more: {pairs}, {steps}")
    moves = np.asarray(joint_std) > 0
    if joint_std.shape != (joints.shape[1],) or not moves.any():
        raise ValueError(f"joint_std must be [{joints.shape[1]}] and not all 0, got {joint_std}")
    state = np.asarray(joints, dtype=np.float64)[:, moves] / joint_std[moves]
    rng = np.random.default_rng(seed)
    drawn = _draw_pairs(episodes, pairs, rng)
    chord = np.linalg.norm(state[drawn[:, 1]] - state[drawn[:, 0]], axis=1)
    kept = drawn[chord >= MIN_CHORD]
    if not len(kept):
        raise ValueError(f"none of {pairs} pairs of frames lies {MIN_CHORD} standard deviations apart")
    # a pair of episodes e, f is drawn w_e w_f times where its episodes are drawn w_e and w_f times
    start, goal = (episodes.index[kept[:, end]] for end in (0, 1))
    once = np.ones((1, len(episodes)))
    of_episode = np.concatenate([once, bootstrap.weights, bootstrap.left_out])
    weights = of_episode[:, start] * of_episode[:, goal]
    library = np.asarray(latents, dtype=np.float64)
    scores = [
        _score(state, _decode(one, kept, steps), weights, bootstrap)
        for one in (library, state, library[rng.permutation(len(library))])
    ]
    return StraightLinePlans(
        latents=scores[0],
        oracle=scores[1],
        shuffled=scores[2],
        above_oracle=difference(scores[0].ratio, scores[1].ratio),
        pairs=kept,
        steps=steps,
        dropped=len(drawn) - len(kept),
    )


def plan_difference(a: StraightLinePlans, b: StraightLinePlans) -> Estimate:
    """Mean ratio of a minus that of b, paired: the same pairs of frames and the same resamples.

    Raises
    ------
    ValueError : the two were not given the same pairs.
    """
    same = a.latents.ratio.bootstrap.pairs_with(b.latents.ratio.bootstrap)
    if not same or a.steps != b.steps or not np.array_equal(a.oracle.ratios, b.oracle.ratios):
        raise ValueError(
            "the two were not given the same pairs of frames: use the same rows, seed and bootstrap"
        )
    return difference(a.latents.ratio, b.latents.ratio)


def _draw_pairs(episodes: EpisodeClusters, pairs: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Start and goal rows, int64 [P, 2]: start uniform over all rows, goal over those of other episodes."""
    if len(episodes) < 2:
        raise ValueError("plans lead from one episode to another, and there is only one")
    order = np.concatenate([episodes.rows(episode) for episode in range(len(episodes))])
    first = (np.cumsum(episodes.count) - episodes.count)[episodes.index]  # where a row's episode begins
    start = rng.integers(0, episodes.n_rows, size=pairs)
    own = episodes.count[episodes.index[start]]
    goal = rng.integers(0, episodes.n_rows - own)
    goal += np.where(goal >= first[start], own, 0)
    return np.stack([start, order[goal]], axis=1)


def _decode(library: FloatArray, pairs: NDArray[np.int64], steps: int) -> NDArray[np.int64]:
    """Rows nearest to the points of each plan, int64 [P, T + 1]; of equally near rows the first."""
    centred = library - library.mean(axis=0)
    square = np.einsum("nd,nd->n", centred, centred)
    path = np.empty((len(pairs), steps + 1), np.int64)
    path[:, 0], path[:, -1] = pairs.T
    between = np.arange(1, steps)[:, None] / steps
    size = max(1, _BLOCK // (len(library) * (steps - 1)))
    for first in range(0, len(pairs), size):
        start, goal = (centred[pairs[first : first + size, end], None] for end in (0, 1))
        points = ((1 - between) * start + between * goal).reshape(-1, library.shape[1])
        # argmin over n of ||y - l_n||^2 = argmin of ||l_n||^2 - 2 y'l_n
        nearest = np.argmin(square - 2 * points @ centred.T, axis=1)
        path[first : first + size, 1:-1] = nearest.reshape(-1, steps - 1)
    return path


def _score(
    state: FloatArray, path: NDArray[np.int64], weights: FloatArray, bootstrap: Bootstrap
) -> PathScores:
    """Ratio and deviation of decoded paths [P, T + 1].

    `weights` [1 + B + E, P] are those of each pair: in the sample, in each resample, and in the jackknife.
    """
    joints = state[path]
    chord = joints[:, -1] - joints[:, 0]
    length = np.linalg.norm(chord, axis=1)
    ratios = np.linalg.norm(np.diff(joints, axis=1), axis=2).sum(axis=1) / length
    offset = joints - joints[:, :1]
    along = np.einsum("ptj,pj->pt", offset, chord) / length[:, None] ** 2
    deviations = np.linalg.norm(offset - along[:, :, None] * chord[:, None, :], axis=2).mean(axis=1)
    total = weights.sum(axis=1)
    total = np.where(total > 0, total, np.nan)  # a resample of one episode, many times over, has no pair

    def estimate(values: FloatArray) -> Estimate:
        resampled = 1 + len(bootstrap)
        return bootstrap.estimate(float(values[0]), values[1:resampled], jackknife=values[resampled:])

    order = np.argsort(ratios, kind="stable")
    middle = np.argmax(np.cumsum(weights[:, order], axis=1) >= total[:, None] / 2, axis=1)
    medians = np.where(np.isfinite(total), ratios[order][middle], np.nan)
    return PathScores(
        ratio=estimate(weights @ ratios / total),
        median=estimate(medians),
        deviation=estimate(weights @ deviations / total),
        ratios=ratios,
        deviations=deviations,
    )


def _numbers(scores: PathScores) -> dict[str, float | None]:
    return {
        f"{metric}{suffix}": value
        for metric, one in (
            ("ratio", scores.ratio),
            ("median", scores.median),
            ("deviation", scores.deviation),
        )
        for suffix, value in (("", one.value), ("_low", one.low), ("_high", one.high))
    }


def _shown(one: Estimate) -> str:
    interval = f" [{one.low:.3f}, {one.high:.3f}]" if one.low is not None else ""
    return "-" if one.value is None else f"{one.value:.3f}{interval}"
