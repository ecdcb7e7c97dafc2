"""The probe's fast formulas against scikit-learn, in the same run on the same data.

    python tests/benchmarks/bench_ridge.py [--widths 192 384 768] [--rounds 3]

Sizes are those of the reference result: 17,724 training rows of 60 episodes, 8,447 evaluation rows of 25, 6
joints. Only ratios travel between machines: each round times both sides, one after the other, and medians of
rounds are divided. They are ratios of processor time, over all threads, which other programs do not lengthen.
What scikit-learn would need for all refits and resamples is extrapolated from the number given in the table.
The last line of a width is everything together, as one probe of one encoder would run it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probe.bootstrap import Bootstrap
from probe.clusters import EpisodeClusters, balanced_folds
from probe.moments import Moments
from probe.permutation import circular_shifts, episode_exchanges, permutation_null, stretch
from probe.refit import refit_scores
from probe.ridge import fit_ridge
from probe.statistics import JointScores, ResidualSums, score_joints

ALPHAS = np.logspace(-3, 5, 17)
ALL = np.ones(6, dtype=bool)
PERMUTATIONS, RESAMPLES, REFITS = 1000, 2000, 200
BY_HAND = 4  # refits that scikit-learn does; of resamples 100


class Case:
    """One encoder's rows, and each job done our way and scikit-learn's."""

    def __init__(self, width: int):
        rng = np.random.default_rng(0)
        weight = rng.standard_normal((width, 6))
        self.x, self.y, self.train = rows(17_724, 60, width, rng, weight)
        self.xe, self.ye, self.evaluate = rows(8_447, 25, width, rng, weight)
        self.x64, self.xe64 = self.x.astype(np.float64), self.xe.astype(np.float64)
        scaler = StandardScaler().fit(self.x64)
        self.xs, self.xes = scaler.transform(self.x64), scaler.transform(self.xe64)
        self.bootstrap = Bootstrap.draw(self.evaluate.labels, rng, resamples=RESAMPLES)
        self.training = Bootstrap.draw(self.train.labels, rng, resamples=REFITS)
        self.fit = fit_ridge(self.x, self.y, self.train, alphas=ALPHAS, score="folds")

    # -- alpha path

    def path(self) -> np.ndarray:
        return fit_ridge(self.x, self.y, self.train, alphas=ALPHAS, score="folds").cv_scores

    def path_by_hand(self) -> np.ndarray:
        split = PredefinedSplit(balanced_folds(self.train.count, 5)[self.train.index])
        ridge = make_pipeline(StandardScaler(), Ridge())
        search = GridSearchCV(ridge, {"ridge__alpha": ALPHAS}, cv=split, scoring="r2").fit(self.x64, self.y)
        assert search.best_params_["ridge__alpha"] == self.fit.alpha
        return search.cv_results_["mean_test_score"]

    # -- permutations

    def null(self, scheme: Any = "exchange") -> np.ndarray:
        return permutation_null(
            self.x,
            self.y,
            self.train,
            self.xe,
            self.ye,
            alpha=self.fit.alpha,
            testable=ALL,
            rng=np.random.default_rng(1),
            exchanges=PERMUTATIONS,
            scheme=scheme,
        ).draws

    def null_by_hand(self, scheme: str = "exchange") -> np.ndarray:
        found = []
        rng = np.random.default_rng(1)
        if scheme == "exchange":
            moves, _ = episode_exchanges(len(self.train), PERMUTATIONS, rng)
        else:
            moves = circular_shifts(self.train.count, PERMUTATIONS, rng)
        count = self.train.count
        for move in moves[:BY_HAND]:
            moved = np.empty_like(self.y)
            for e, by in enumerate(move):
                target = self.y[self.train.rows(by if scheme == "exchange" else e)]
                moved[self.train.rows(e)] = (
                    target[stretch(count[by], count[e])]
                    if scheme == "exchange"
                    else np.roll(target, by, axis=0)
                )
            guess = Ridge(alpha=self.fit.alpha).fit(self.xs, moved).predict(self.xes)
            found.append(r2_score(self.ye, guess, multioutput="raw_values"))
        return np.array(found)

    # -- bootstrap of the held probe

    def scores(self) -> JointScores:
        sums = ResidualSums.of(self.ye, self.fit.predict(self.xe), self.evaluate)
        return score_joints(sums, self.bootstrap, ALL)

    def held(self, sums: ResidualSums) -> np.ndarray:
        return draws(score_joints(sums, self.bootstrap, ALL))

    def held_by_hand(self, prediction: np.ndarray) -> np.ndarray:
        found = []
        for weights in self.bootstrap.weights[:100]:
            taken = gathered(self.evaluate, weights)
            found.append(r2_score(self.ye[taken], prediction[taken], multioutput="raw_values"))
        return np.array(found)

    # -- bootstrap with refit

    def refits(self) -> np.ndarray:
        return draws(
            refit_scores(
                Moments.of(self.x, self.y, self.train),
                self.xe,
                self.ye,
                self.evaluate,
                alpha=self.fit.alpha,
                testable=ALL,
                bootstrap=self.bootstrap,
                training=self.training,
            )
        )

    def refits_by_hand(self) -> np.ndarray:
        found = []
        for of_train, weights in zip(self.training.weights[:BY_HAND], self.bootstrap.weights):
            taken, new = gathered(self.train, of_train), gathered(self.evaluate, weights)
            ridge = make_pipeline(StandardScaler(), Ridge(alpha=self.fit.alpha))
            guess = ridge.fit(self.x64[taken], self.y[taken]).predict(self.xe64[new])
            found.append(r2_score(self.ye[new], guess, multioutput="raw_values"))
        return np.array(found)

    def everything(self) -> None:
        self.path()
        self.scores()
        self.refits()
        self.null()


def rows(n_rows: int, n_episodes: int, width: int, rng: np.random.Generator, weight: np.ndarray):
    """Latents whose directions fade, joints, and episodes of unequal length."""
    labels = np.sort(
        np.concatenate([np.arange(n_episodes), rng.integers(0, n_episodes, n_rows - n_episodes)])
    )
    x = rng.standard_normal((n_rows, width)) + 0.5 * rng.standard_normal((n_episodes, width))[labels]
    x = (x * np.logspace(0, -2, width)).astype(np.float32)
    y = x @ weight + 0.3 * rng.standard_normal((n_rows, 6))
    return x, y, EpisodeClusters.of(labels)


def gathered(clusters: EpisodeClusters, weights: np.ndarray) -> np.ndarray:
    return np.concatenate([np.tile(clusters.rows(e), int(w)) for e, w in enumerate(weights)])


def draws(scores: JointScores) -> np.ndarray:
    return np.stack([joint.draws for joint in scores.joints], axis=1)


def race(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int) -> tuple[float, float, Any, Any]:
    """Median processor seconds of both, interleaved, and what they returned last."""
    ours()  # caches and threads are warm
    taken = np.zeros((rounds, 2))
    for i in range(rounds):
        start = time.process_time()
        a = ours()
        middle = time.process_time()
        b = theirs()
        taken[i] = middle - start, time.process_time() - middle
    fast, slow = np.median(taken, axis=0)
    return float(fast), float(slow), a, b


def line(what: str, width: int, fast: float, slow: float, difference: float, note: str = "") -> None:
    cells = (what, width, f"{slow:.3g} s", f"{fast:.3g} s", f"{slow / fast:.0f}x", f"{difference:.0e}", note)
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def bench(width: int, rounds: int) -> None:
    case = Case(width)
    fast, slow, ours, theirs = race(case.path, case.path_by_hand, rounds)
    line(f"{len(ALPHAS)} alphas x 5 folds", width, fast, slow, np.abs(ours / theirs - 1).max())

    for scheme, what in (("exchange", "exchanges of episodes"), ("shift", "shifts within episodes")):
        fast, slow, ours, theirs = race(
            lambda scheme=scheme: case.null(scheme), lambda scheme=scheme: case.null_by_hand(scheme), rounds
        )
        gap = np.abs(ours[:BY_HAND] - theirs).max()
        note = f"naive from {BY_HAND}"
        line(f"{PERMUTATIONS:,} refits, {what}", width, fast, slow * PERMUTATIONS / BY_HAND, gap, note)

    prediction = case.fit.predict(case.xe)
    sums = ResidualSums.of(case.ye, prediction, case.evaluate)
    fast, slow, ours, theirs = race(
        lambda: case.held(sums), lambda: case.held_by_hand(prediction), max(rounds, 5)
    )
    gap = np.abs(ours[: len(theirs)] - theirs).max()
    # BCa leaves each episode out as well
    slow *= (RESAMPLES + len(case.evaluate)) / len(theirs)
    line(f"{RESAMPLES:,} resamples, BCa", width, fast, slow, gap, f"naive from {len(theirs)}")

    fast, slow, ours, theirs = race(case.refits, case.refits_by_hand, rounds)
    # ours are recentred by one number a joint: compared without it
    gap = np.abs((ours[:BY_HAND] - ours[0]) - (theirs - theirs[0])).max()
    line(f"{REFITS} resamples with refit", width, fast, slow * REFITS / BY_HAND, gap, f"naive from {BY_HAND}")

    wall, processor = time.perf_counter(), time.process_time()
    case.everything()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(f"| everything | {width} | | {processor:.3g} s ({wall:.3g} s by the clock) | | | |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--widths", type=int, nargs="+", default=[192, 384, 768])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| job | width | scikit-learn | ours | ratio | largest difference | |")
    print("|---|---|---|---|---|---|---|")
    for width in options.widths:
        bench(width, options.rounds)


if __name__ == "__main__":
    main()
