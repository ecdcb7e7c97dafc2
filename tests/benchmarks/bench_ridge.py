"""The probe's fast formulas against scikit-learn, in the same run on the same data.

    python tests/benchmarks/bench_ridge.py [--widths 192 384 768] [--rounds 3]

Sizes are those of the reference result: 17,724 training rows of 75 episodes, 8,447 evaluation rows of 25, 6
joints. Only ratios travel between machines: each round times both sides, one after the other, and medians of
rounds are divided. What scikit-learn would need for 1,000 permutations and 2,000 resamples is extrapolated
from the number given in the table.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probe.bootstrap import Bootstrap
from probe.clusters import EpisodeClusters, balanced_folds
from probe.permutation import episode_exchanges, permutation_null, stretch
from probe.ridge import fit_ridge
from probe.statistics import ResidualSums, score_joints

ALPHAS = np.logspace(-3, 5, 13)
ALL = np.ones(6, dtype=bool)
PERMUTATIONS, NAIVE_PERMUTATIONS = 1000, 5
RESAMPLES, NAIVE_RESAMPLES = 2000, 100


def rows(n_rows: int, n_episodes: int, width: int, rng: np.random.Generator, weight: np.ndarray):
    labels = np.sort(
        np.concatenate([np.arange(n_episodes), rng.integers(0, n_episodes, n_rows - n_episodes)])
    )
    x = rng.standard_normal((n_rows, width)) + 0.5 * rng.standard_normal((n_episodes, width))[labels]
    x = (x * np.logspace(0, -2, width)).astype(np.float32)
    y = x @ weight + 0.3 * rng.standard_normal((n_rows, 6))
    return x, y, EpisodeClusters.of(labels)


def race(ours: Callable, theirs: Callable, rounds: int) -> tuple[float, float, object, object]:
    """Median seconds of both, interleaved, and what they returned last."""
    ours()  # caches and threads are warm
    taken = np.zeros((rounds, 2))
    for i in range(rounds):
        start = time.perf_counter()
        a = ours()
        middle = time.perf_counter()
        b = theirs()
        taken[i] = middle - start, time.perf_counter() - middle
    fast, slow = np.median(taken, axis=0)
    return float(fast), float(slow), a, b


def line(what: str, width: int, fast: float, slow: float, difference: float, note: str = "") -> None:
    cells = (what, width, f"{slow:.3g} s", f"{fast:.3g} s", f"{slow / fast:.0f}x", f"{difference:.0e}", note)
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def bench(width: int, rounds: int) -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((width, 6))
    x, y, train = rows(17_724, 75, width, rng, weight)
    xe, ye, evaluate = rows(8_447, 25, width, rng, weight)

    split = PredefinedSplit(balanced_folds(train.count, 5)[train.index])
    x64 = x.astype(np.float64)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": ALPHAS}, cv=split, scoring="r2"
    )
    fast, slow, fit, found = race(
        lambda: fit_ridge(x, y, train, alphas=ALPHAS, score="folds"), lambda: search.fit(x64, y), rounds
    )
    assert fit.alpha == found.best_params_["ridge__alpha"]
    scores = found.cv_results_["mean_test_score"]
    line(
        "13 alphas x 5 folds",
        width,
        fast,
        slow,
        np.abs(fit.cv_scores / scores - 1).max(),
        f"alpha {fit.alpha:.3g}",
    )

    scaler = StandardScaler().fit(x64)
    xs, xes = scaler.transform(x64), scaler.transform(xe.astype(np.float64))
    donors, _ = episode_exchanges(len(train), PERMUTATIONS, np.random.default_rng(1))

    def refit(exchange) -> np.ndarray:
        exchanged = np.concatenate(
            [y[train.rows(d)][stretch(train.count[d], train.count[e])] for e, d in enumerate(exchange)]
        )
        return r2_score(ye, Ridge(alpha=fit.alpha).fit(xs, exchanged).predict(xes), multioutput="raw_values")

    fast, slow, null, by_hand = race(
        lambda: permutation_null(
            x,
            y,
            train,
            xe,
            ye,
            alpha=fit.alpha,
            testable=ALL,
            rng=np.random.default_rng(1),
            exchanges=PERMUTATIONS,
        ),
        lambda: np.array([refit(exchange) for exchange in donors[:NAIVE_PERMUTATIONS]]),
        rounds,
    )
    slow *= PERMUTATIONS / NAIVE_PERMUTATIONS
    difference = np.abs(null.draws[:NAIVE_PERMUTATIONS] - by_hand).max()
    line("1,000 permutation refits", width, fast, slow, difference, f"naive from {NAIVE_PERMUTATIONS}")

    prediction = fit.predict(xe)
    bootstrap = Bootstrap.draw(evaluate.labels, np.random.default_rng(2), resamples=RESAMPLES)

    def resample(weights) -> np.ndarray:
        taken = np.concatenate([np.tile(evaluate.rows(e), int(w)) for e, w in enumerate(weights)])
        return r2_score(ye[taken], prediction[taken], multioutput="raw_values")

    fast, slow, quick, by_hand = race(
        lambda: score_joints(ResidualSums.of(ye, prediction, evaluate), bootstrap, ALL),
        lambda: np.array([resample(weights) for weights in bootstrap.weights[:NAIVE_RESAMPLES]]),
        rounds,
    )
    slow *= RESAMPLES / NAIVE_RESAMPLES
    difference = np.abs(
        np.stack([joint.draws for joint in quick.joints], axis=1)[:NAIVE_RESAMPLES] - by_hand
    ).max()
    line("2,000 cluster resamples", width, fast, slow, difference, f"naive from {NAIVE_RESAMPLES}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--widths", type=int, nargs="+", default=[192, 384])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(
        "| job | width | scikit-learn | ours | ratio | largest difference | |\n|---|---|---|---|---|---|---|"
    )
    for width in options.widths:
        bench(width, options.rounds)


if __name__ == "__main__":
    main()
