"""G1b vectorised against the loop that one would write first, in the same run on the same questions.

    python tests/benchmarks/bench_ranking.py [--widths 192 384] [--rounds 3] [--anchors 300]

Sizes are those of the reference result: 17,724 training rows of 75 episodes, 8,447 evaluation rows of 25, 6
joints and 6 actions, 16 candidates. Both sides draw K distractors for every anchor and take the distance of
every prediction with the same fitted ridge; the loop does it an anchor and a candidate at a time, on the
number of anchors given, from which all are extrapolated. "fit" is the ridge itself, 11 alphas and 5 folds.
Only ratios travel between machines: each round times both sides, and medians of rounds are divided.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from scipy.stats import spearmanr

from probe.bootstrap import Bootstrap
from probe.chunks import (
    Coordinates,
    RidgePredictor,
    TimedRows,
    chunk_costs,
    draw_candidates,
    valid_anchors,
)
from probe.clusters import EpisodeClusters
from probe.planning import straight_line_plans
from probe.ranking import rank_chunks, rank_correlation, rank_credit

STEP_NS = 50_000_000
CANDIDATES = 16


def rows(n_rows: int, n_episodes: int, first: int, width: int, seed: int) -> TimedRows:
    rng, world = np.random.default_rng(seed), np.random.default_rng(99)
    bounds = np.linspace(0, n_rows, n_episodes + 1).astype(int)
    episode = np.repeat(np.arange(first, first + n_episodes), np.diff(bounds))
    time_ns = (np.arange(n_rows) - bounds[episode - first]) * STEP_NS
    actions, joints = np.zeros((2, n_rows, 6))
    for t in range(n_rows):
        fresh = rng.standard_normal((2, 6))
        if time_ns[t] == 0:
            actions[t] = joints[t] = fresh[0]
            continue
        actions[t] = 0.95 * actions[t - 1] + 0.3 * fresh[0]
        joints[t] = joints[t - 1] + 0.4 * (actions[t - 1] - joints[t - 1]) + 0.05 * fresh[1]
    mixed = np.sin(joints @ world.standard_normal((6, 64)) * 0.5) @ world.standard_normal((64, width))
    latents = mixed * np.logspace(0, -2, width) + 0.01 * rng.standard_normal((n_rows, width))
    return TimedRows(latents.astype(np.float32), joints, actions, time_ns, episode)


def race(ours: Callable, theirs: Callable, rounds: int) -> tuple[float, float, object, object]:
    """Median seconds of both, interleaved, and what they returned last."""
    ours()  # caches are warm
    taken = np.zeros((rounds, 2))
    for i in range(rounds):
        start = time.perf_counter()
        a = ours()
        middle = time.perf_counter()
        b = theirs()
        taken[i] = middle - start, time.perf_counter() - middle
    fast, slow = np.median(taken, axis=0)
    return float(fast), float(slow), a, b


def line(what: str, width: int, horizon: int, fast: float, slow: float | None, note: str = "") -> None:
    against = ("-", "-") if slow is None else (f"{slow:.3g} s", f"{slow / fast:.0f}x")
    print(
        f"| {what} | {width} | {horizon} | {against[0]} | {fast:.3g} s | {against[1]} | {note} |", flush=True
    )


def bench(width: int, horizon: int, rounds: int, n_loop: int) -> None:
    train, evaluate = rows(17_724, 75, 0, width, 0), rows(8_447, 25, 75, width, 1)
    space = Coordinates.whitened(train.latents)
    white, seen = space(train.latents), space(evaluate.latents)
    anchors = valid_anchors(train, horizon, step_ns=STEP_NS)
    episodes = EpisodeClusters.of(train.episode[anchors])
    start = time.perf_counter()
    predictor = RidgePredictor.fitted(white, train.actions, anchors, horizon, episodes)
    fit_s = time.perf_counter() - start

    def draw():
        return draw_candidates(evaluate, horizon, "hard", step_ns=STEP_NS, seed=0)

    drawn = draw()
    valid = {e: np.flatnonzero(evaluate.episode == e)[1:-horizon] for e in np.unique(evaluate.episode)}
    rng = np.random.default_rng(0)

    def draw_by_loop() -> None:
        for t in drawn.anchor[:n_loop]:
            circle = valid[evaluate.episode[t]]
            place, taken = int(np.searchsorted(circle, t)), []
            while len(taken) < CANDIDATES - 1:  # until a set fits: no more room, start again
                free = np.ones(len(circle), bool)
                free[(place + np.arange(1 - horizon, horizon)) % len(circle)] = False
                taken = []
                while free.any() and len(taken) < CANDIDATES - 1:
                    s = rng.choice(np.flatnonzero(free))
                    taken.append(s)
                    free[(s + np.arange(1 - horizon, horizon)) % len(circle)] = False

    fit = predictor.fit
    weight = fit.coef / fit.scale[:, None]  # once: the loop is not to pay for it at every candidate

    def cost_by_loop() -> np.ndarray:
        cost = np.empty((n_loop, CANDIDATES))
        for row, candidates in enumerate(drawn.start[:n_loop]):
            t = candidates[0]
            for column, s in enumerate(candidates):
                chunk = evaluate.actions[s : s + horizon].ravel()
                question = np.concatenate([seen[t], seen[t - 1], chunk])
                predicted = (question - fit.mean) @ weight + fit.intercept
                cost[row, column] = np.linalg.norm(predicted - seen[t + horizon])
        return cost

    def score_by_loop() -> tuple[np.ndarray, np.ndarray]:
        top1 = np.array([float(np.argmin(row) == 0) for row in costs[:n_loop]])
        return top1, np.array([spearmanr(a, b).statistic for a, b in pairwise(costs[: n_loop + 1])])

    every = len(drawn) / n_loop
    fast, slow, _, _ = race(draw, draw_by_loop, rounds)
    line("draw", width, horizon, fast, slow * every, f"{len(drawn):,} anchors")
    fast, slow, costs, by_hand = race(
        lambda: chunk_costs(predictor, seen, evaluate.actions, drawn), cost_by_loop, rounds
    )
    gap = np.abs(costs[:n_loop] / by_hand - 1).max()
    line("costs", width, horizon, fast, slow * every, f"largest relative difference {gap:.0e}")
    fast, slow, (credit, correlation), (top1, slow_correlation) = race(
        lambda: (rank_credit(costs), rank_correlation(costs[:-1], costs[1:])), score_by_loop, rounds
    )
    same = (credit[0][:n_loop] == top1).all()
    gap = np.abs(correlation[:n_loop] - slow_correlation).max()
    line("ranks", width, horizon, fast, slow * every, f"top-1 equal: {same}; Spearman differs by {gap:.0e}")
    line("fit", width, horizon, fit_s, None, f"alpha {fit.alpha:g}")

    bootstrap = Bootstrap.draw(evaluate.clusters.labels, np.random.default_rng(2))
    start = time.perf_counter()
    found = rank_chunks(train, evaluate, bootstrap, seed=0, horizons=[horizon])
    hard = found["hard", horizon]
    line(
        "rank_chunks, hard and easy",
        width,
        horizon,
        time.perf_counter() - start,
        None,
        f"top-1 {hard.latents.top1.value:.3f}, oracle {hard.state_oracle.top1.value:.3f}",
    )
    start = time.perf_counter()
    plans = straight_line_plans(
        evaluate.latents, evaluate.joints, evaluate.clusters, train.joints.std(axis=0), bootstrap, seed=0
    )
    seconds = time.perf_counter() - start
    note = f"ratio {plans.latents.ratio.value:.2f}, oracle {plans.oracle.ratio.value:.2f}"
    line("straight-line plans, 300 pairs", width, horizon, seconds, None, note)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--widths", type=int, nargs="+", default=[192, 384])
    parser.add_argument("--horizons", type=int, nargs="+", default=[8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--anchors", type=int, default=300, help="of the loop, from which all are extrapolated"
    )
    options = parser.parse_args()
    print("| job | width | H | loop, all anchors | ours | ratio | |\n|---|---|---|---|---|---|---|")
    for width in options.widths:
        for horizon in options.horizons:
            bench(width, horizon, options.rounds, options.anchors)


if __name__ == "__main__":
    main()
