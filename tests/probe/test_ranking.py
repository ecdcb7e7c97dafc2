"""G1b against loops, in worlds whose answer is known, and against the ways in which it could be fooled."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise, permutations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import chisquare, kendalltau, spearmanr
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

import probe.chunks
import probe.ranking
from encoders.latents import EpisodeLatents
from hardware.errors import InputError
from hardware.importers import import_recording
from hardware.recording import Recording
from probe.bootstrap import Bootstrap
from probe.chunks import (
    MOST_COMPONENTS,
    Coordinates,
    RidgePredictor,
    TimedRows,
    chunk_costs,
    draw_candidates,
    held_actions,
    timed_rows,
    valid_anchors,
)
from probe.clusters import EpisodeClusters
from probe.ranking import (
    Ranking,
    latent_state_rank_correlation,
    mean_over_episodes,
    rank_chunks,
    rank_correlation,
    rank_credit,
    ranking_difference,
)

STEP_NS = 50_000_000
ROTATION = np.linalg.qr(np.random.default_rng(5).standard_normal((3, 3)))[0]


def world(n_episodes: int, length: int, seed: int, *, first: int = 0, smooth: float = 0.9) -> TimedRows:
    """Joints that follow what is sent, with a lag and some noise; latents are the joints, turned.

    `smooth` 0.9 sends targets that go on as they were; 0 sends one that has nothing to do with the last.
    """
    rng = np.random.default_rng(seed)
    joints, actions = np.zeros((2, n_episodes, length, 3))
    actions[:, 0] = rng.standard_normal((n_episodes, 3))
    joints[:, 0] = actions[:, 0]
    for t in range(1, length):
        fresh = rng.standard_normal((n_episodes, 3))
        actions[:, t] = smooth * actions[:, t - 1] + np.sqrt(1 - smooth**2) * fresh
        noise = 0.15 * rng.standard_normal((n_episodes, 3))
        joints[:, t] = joints[:, t - 1] + 0.4 * (actions[:, t - 1] - joints[:, t - 1]) + noise
    joints, actions = joints.reshape(-1, 3), actions.reshape(-1, 3)
    episode = np.repeat(np.arange(first, first + n_episodes), length)
    time_ns = np.tile(np.arange(length) * STEP_NS, n_episodes)
    return TimedRows(joints @ ROTATION, joints, actions, time_ns, episode)


def bootstrap_of(rows: TimedRows, seed: int = 0, **options) -> Bootstrap:
    return Bootstrap.draw(rows.clusters.labels, np.random.default_rng(seed), **options)


@pytest.fixture(scope="module")
def train() -> TimedRows:
    return world(12, 120, 0)


@pytest.fixture(scope="module")
def evaluate() -> TimedRows:
    return world(18, 150, 1, first=12)


# -- the whole against loops


def rank_by_loops(
    train: TimedRows, rows: TimedRows, start: np.ndarray, horizon: int, values: str, alpha: float
) -> np.ndarray:
    """Costs of the candidates that begin at `start`, one anchor and one candidate at a time."""
    given = getattr(train, values).astype(float)
    centre = given.mean(axis=0)
    if values == "latents":  # whitened by the singular vectors of the rows
        _, singular, axes = np.linalg.svd(given - centre, full_matrices=False)
        matrix = axes.T / singular * np.sqrt(len(given))
    else:
        matrix = np.diag(1 / given.std(axis=0))

    def at(of: TimedRows, t: int) -> np.ndarray:
        return (getattr(of, values)[t] - centre) @ matrix

    def question(of: TimedRows, t: int, s: int) -> np.ndarray:
        return np.concatenate([at(of, t), at(of, t - 1), of.actions[s : s + horizon].ravel()])

    anchors = anchors_by_loops(train, horizon, history=2)
    x = np.array([question(train, t, t) for t in anchors])
    y = np.array([at(train, t + horizon) for t in anchors])
    scaler = StandardScaler().fit(x)
    model = Ridge(alpha).fit(scaler.transform(x), y)
    cost = np.zeros(start.shape)
    for row, candidates in enumerate(start):
        t = candidates[0]
        for column, s in enumerate(candidates):
            predicted = model.predict(scaler.transform(question(rows, t, s)[None]))[0]
            cost[row, column] = np.sqrt(np.sum((predicted - at(rows, t + horizon)) ** 2))
    return cost


def anchors_by_loops(rows: TimedRows, horizon: int, history: int) -> list[int]:
    found = []
    for t in range(len(rows.episode)):
        window = list(range(t - history + 1, t + horizon + 1))
        if window[0] < 0 or window[-1] >= len(rows.episode):
            continue
        one = all(rows.episode[r] == rows.episode[t] for r in window)
        steps = [rows.time_ns[b] - rows.time_ns[a] for a, b in pairwise(window)]
        even = all(0.6 * STEP_NS <= step <= 1.6 * STEP_NS for step in steps)
        if one and even and all(np.isfinite(rows.actions[r]).all() for r in window[:-1]):
            found.append(t)
    return found


def credit_by_counting(cost: np.ndarray) -> tuple[float, float]:
    """Expected top-1 and reciprocal rank of candidate 0 over all orders that sort the costs."""
    orders = [order for order in permutations(range(len(cost))) if (np.diff(cost[list(order)]) >= 0).all()]
    ranks = np.array([order.index(0) + 1 for order in orders])
    return float((ranks == 1).mean()), float((1 / ranks).mean())


def damaged(rows: TimedRows) -> TimedRows:
    """The same rows with some missing, some without an action, and some latents in float32."""
    actions = rows.actions.copy()
    actions[:3] = np.nan
    actions[200] = np.nan
    kept = np.ones(len(rows.episode), bool)
    kept[[40, 41, 270]] = False
    return TimedRows(
        rows.latents[kept].astype(np.float32),
        rows.joints[kept],
        actions[kept],
        rows.time_ns[kept],
        rows.episode[kept],
    )


@pytest.mark.parametrize("distractors", ["hard", "easy"])
@pytest.mark.parametrize("horizon", [1, 4])
def test_the_whole_equals_loops(distractors: str, horizon: int) -> None:
    train, rows = world(3, 40, 2), damaged(world(4, 70, 3, first=3))
    ranking = rank_chunks(
        train,
        rows,
        bootstrap_of(rows),
        seed=7,
        horizons=[horizon],
        distractors=[distractors],
        candidates=4,
        alphas=[3.0],
    )[distractors, horizon]
    drawn = draw_candidates(rows, horizon, distractors, step_ns=STEP_NS, seed=7, candidates=4)
    assert set(drawn.anchor) == set(anchors_by_loops(rows, horizon, history=2))
    assert len(drawn) > 200 and drawn.dropped == 0
    for values, cost in (("latents", ranking.latent_cost), ("joints", ranking.state_cost)):
        slow = rank_by_loops(train, rows, drawn.start, horizon, values, alpha=3.0)
        np.testing.assert_allclose(cost, slow, rtol=1e-6)
        by_hand = np.array([credit_by_counting(row) for row in slow])
        np.testing.assert_array_equal(rank_credit(cost)[0], by_hand[:, 0])
        np.testing.assert_allclose(rank_credit(cost)[1], by_hand[:, 1], rtol=1e-14)
    std = train.actions.std(axis=0)
    for row, candidates in enumerate(drawn.start):
        for column, s in enumerate(candidates):
            jump = (rows.actions[s] - rows.actions[candidates[0] - 1]) / std
            assert ranking.action_cost[row, column] == pytest.approx(np.sqrt((jump**2).sum()), rel=1e-12)
    top1 = rank_credit(ranking.latent_cost)[0]
    assert ranking.latents.top1.value == pytest.approx(top1.mean(), rel=1e-14)
    np.testing.assert_array_equal(ranking.start_ns, rows.time_ns[drawn.start])


def test_memory_is_bounded_without_changing_a_cost(
    train: TimedRows, evaluate: TimedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cost() -> Ranking:
        return rank_chunks(train, evaluate, bootstrap_of(evaluate), seed=1, distractors=["easy"])["easy", 8]

    whole = cost()
    correlation = latent_state_rank_correlation(whole, bootstrap_of(evaluate))
    monkeypatch.setattr(probe.chunks, "_BLOCK", 3000)
    monkeypatch.setattr(probe.ranking, "_BLOCK", 3000)
    parts = cost()
    np.testing.assert_allclose(parts.latent_cost, whole.latent_cost, rtol=1e-12)
    assert latent_state_rank_correlation(parts, bootstrap_of(evaluate)).value == pytest.approx(
        correlation.value, abs=1e-12
    )


# -- worlds whose answer is known


def test_turned_joints_rank_as_well_as_the_oracle(train: TimedRows, evaluate: TimedRows) -> None:
    bootstrap = bootstrap_of(evaluate)
    for one in rank_chunks(train, evaluate, bootstrap, seed=1, horizons=[1, 4, 8]):
        latents, oracle = one.latents.top1.value, one.state_oracle.top1.value
        assert abs(latents - oracle) < 0.02 and oracle > 5 * one.chance_top1
        assert abs(one.latents.mrr.value - one.state_oracle.mrr.value) < 0.02
        assert latent_state_rank_correlation(one, bootstrap).value > 0.95
        assert latent_state_rank_correlation(one, bootstrap, "kendall").value > 0.9


def test_an_invertible_linear_map_of_the_latents_changes_next_to_nothing(
    train: TimedRows, evaluate: TimedRows
) -> None:
    matrix = np.random.default_rng(3).standard_normal((3, 3)) * [1.0, 100.0, 0.1]

    def mapped(rows: TimedRows) -> TimedRows:
        return replace(rows, latents=rows.latents @ matrix + 100)

    one, other = (
        rank_chunks(*pair, bootstrap_of(evaluate), seed=1, distractors=["hard"])["hard", 8]
        for pair in ((train, evaluate), (mapped(train), mapped(evaluate)))
    )
    # not exactly nothing: ridge standardises its features at the anchors, after a rotation that may differ
    np.testing.assert_allclose(other.latent_cost, one.latent_cost, rtol=0.01, atol=0.001)
    assert abs(other.latents.top1.value - one.latents.top1.value) < 0.001


def test_latents_that_mean_nothing_score_chance() -> None:
    # slow targets, so that neighbouring chunks are alike: where a biased draw would show
    train, evaluate = world(12, 200, 0, smooth=0.98), world(18, 300, 1, first=12, smooth=0.98)
    found: dict[str, list[float]] = {"hard": [], "easy": []}
    for seed in range(5):
        rng = np.random.default_rng(seed)
        noisy = [
            replace(rows, latents=rng.standard_normal((len(rows.episode), 5))) for rows in (train, evaluate)
        ]
        for one in rank_chunks(*noisy, bootstrap_of(evaluate), seed=seed):
            assert one.state_oracle.top1.value > 0.5
            for estimate, chance in (
                (one.latents.top1, one.chance_top1),
                (one.latents.mrr, one.chance_mrr),
            ):
                assert abs(estimate.value - chance) < 4 * estimate.draws.std()
            found[one.distractors].append(one.latents.top1.value)
            assert abs(latent_state_rank_correlation(one, bootstrap_of(evaluate)).value) < 0.1
    for values in found.values():
        error = np.std(values, ddof=1) / np.sqrt(len(values))
        assert abs(np.mean(values) - 1 / 16) < 4 * error and error < 0.004


@pytest.mark.parametrize("distractors", ["hard", "easy"])
def test_the_executed_chunk_is_as_any_other(distractors: str) -> None:
    """A ranking by any property of a chunk alone wins one time in K: here, to lie furthest in a direction."""
    rows = world(20, 400, 4, smooth=0.99)
    drawn = draw_candidates(rows, 16, distractors, step_ns=STEP_NS, seed=0)
    directions = np.random.default_rng(1).standard_normal((3, 400))
    value = (rows.actions @ directions)[drawn.start]  # [n, K, directions]
    share = (value[:, 0] >= value.max(axis=1)).mean()
    assert abs(share - 1 / 16) < 0.002
    # what the draw avoids: distractors kept off the executed chunk alone, or out of a few episodes
    naive = []
    rng = np.random.default_rng(2)
    for t in drawn.anchor[::10]:
        same = rows.episode[drawn.anchor] == rows.episode[t]
        allowed = (
            drawn.anchor[same & (np.abs(drawn.anchor - t) >= 16)]
            if distractors == "hard"
            else drawn.anchor[~same & (rows.episode[drawn.anchor] % 5 == 0)]
        )
        naive.append([t, *rng.choice(allowed, 15, replace=False)])
    value = (rows.actions @ directions)[np.array(naive)]
    assert (value[:, 0] >= value.max(axis=1)).mean() > 1 / 16 + 0.005


def test_the_action_only_baseline_knows_continuity_alone() -> None:
    for smooth, low, high in ((0.995, 0.8, 1.0), (0.0, 1 / 16 - 0.02, 1 / 16 + 0.02)):
        train, evaluate = world(6, 120, 0, smooth=smooth), world(16, 150, 1, first=6, smooth=smooth)
        for one in rank_chunks(train, evaluate, bootstrap_of(evaluate), seed=1):
            assert low <= one.action_only.top1.value <= high
            assert one.state_oracle.top1.value > 0.5


def test_chunks_that_are_all_the_same_score_exactly_chance(train: TimedRows, evaluate: TimedRows) -> None:
    still = replace(evaluate, actions=np.broadcast_to([0.3, -0.1, 0.7], evaluate.actions.shape))
    bootstrap = bootstrap_of(still)
    for one in rank_chunks(train, still, bootstrap, seed=1, candidates=6):
        for scores in (one.latents, one.action_only, one.state_oracle):
            assert scores.top1.value == pytest.approx(1 / 6, rel=1e-12)
            assert scores.mrr.value == pytest.approx(np.sum(1 / np.arange(1, 7)) / 6, rel=1e-12)
        correlation = latent_state_rank_correlation(one, bootstrap)
        assert correlation.value is None and "all candidates tie" in correlation.note


def test_equal_chunks_tie_whatever_rounding_makes_of_them(train: TimedRows, evaluate: TimedRows) -> None:
    still = replace(evaluate, actions=np.broadcast_to([0.3, -0.1, 0.7], evaluate.actions.shape))

    class Rounding:
        """Answers in float32 that depend on the place of a candidate, as a batched network's may."""

        def predict(self, history: np.ndarray, past: np.ndarray, chunks: np.ndarray) -> np.ndarray:
            answer = np.repeat(history[:, -1:], chunks.shape[1], axis=1).astype(np.float32)
            return answer * (1 + np.arange(chunks.shape[1], dtype=np.float32)[:, None] * 1e-6)

    one = rank_chunks(train, still, bootstrap_of(still), seed=1, predictor=Rounding())["hard", 8]
    assert one.latents.top1.value == pytest.approx(1 / 16, rel=1e-12)


# -- ties, ranks, correlations


def test_ties_share_credit() -> None:
    cost = np.random.default_rng(0).integers(0, 4, size=(200, 5)).astype(float)
    by_hand = np.array([credit_by_counting(row) for row in cost])
    top1, reciprocal = rank_credit(cost)
    np.testing.assert_allclose(top1, by_hand[:, 0], rtol=1e-14)
    np.testing.assert_allclose(reciprocal, by_hand[:, 1], rtol=1e-14)
    assert set(np.round(top1, 3)) == {0.0, 0.2, 0.25, 0.333, 0.5, 1.0}


def test_rounding_is_a_tie_and_a_difference_is_none() -> None:
    top1, _ = rank_credit(np.array([[20, 20 + 1e-10], [20, 20 - 1e-10], [20, 20 + 1e-5], [20, 20 - 1e-5]]))
    np.testing.assert_array_equal(top1, [0.5, 0.5, 1.0, 0.0])


def test_rank_correlations_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 6, (300, 9)).astype(float)
    b = np.where(rng.random((300, 9)) < 0.5, a, rng.integers(0, 6, (300, 9)))
    a[0], b[1] = 2.0, 3.0  # all tie
    for method, of in (("spearman", spearmanr), ("kendall", kendalltau)):
        found = rank_correlation(a, b, method)
        assert np.isnan(found[:2]).all()
        slow = [of(one, other).statistic for one, other in zip(a[2:], b[2:])]
        np.testing.assert_allclose(found[2:], slow, atol=1e-12)
    # distances in wide latents: large, and nearly the same for all candidates
    a, b = 20 + 0.25 * rng.standard_normal((2, 2000, 16))
    slow = [spearmanr(one, other).statistic for one, other in zip(a, b)]
    np.testing.assert_allclose(rank_correlation(a, b), slow, atol=1e-12)
    with pytest.raises(ValueError, match="expected 'spearman' or 'kendall'"):
        rank_correlation(a, b, "pearson")


# -- candidates


@pytest.mark.parametrize("horizon", [1, 8])
def test_hard_candidates_never_overlap(evaluate: TimedRows, horizon: int) -> None:
    drawn = draw_candidates(evaluate, horizon, "hard", step_ns=STEP_NS, seed=3)
    assert drawn.dropped == 0 and len(drawn) == 18 * (150 - 1 - horizon)
    np.testing.assert_array_equal(drawn.start[:, 0], drawn.anchor)
    assert (evaluate.episode[drawn.start] == evaluate.episode[drawn.anchor][:, None]).all()
    assert (np.diff(np.sort(drawn.start, axis=1), axis=1) >= horizon).all()
    assert np.isin(drawn.start, drawn.anchor).all()


def test_easy_candidates_come_from_different_other_episodes(evaluate: TimedRows) -> None:
    drawn = draw_candidates(evaluate, 8, "easy", step_ns=STEP_NS, seed=3)
    episodes = np.sort(evaluate.episode[drawn.start], axis=1)
    assert len(drawn) == 18 * 141 and (np.diff(episodes, axis=1) > 0).all()
    assert np.isin(drawn.start, drawn.anchor).all()
    # each other episode is drawn as often as any
    other = evaluate.episode[drawn.start[:, 1:][drawn.anchor < 150]]
    assert 12 not in other and chisquare(list(Counter(other.ravel()).values())).pvalue > 1e-3


def test_easy_candidates_of_few_episodes_are_distinct_and_elsewhere() -> None:
    rows = world(3, 60, 0)
    drawn = draw_candidates(rows, 4, "easy", step_ns=STEP_NS, seed=3)
    assert len(drawn) == 3 * 55
    assert (rows.episode[drawn.start[:, 1:]] != rows.episode[drawn.anchor][:, None]).all()
    assert (np.diff(np.sort(drawn.start, axis=1), axis=1) > 0).all()


def test_all_hard_draws_are_equally_likely() -> None:
    rows = world(1, 13, 0)  # windows begin at rows 1 .. 10: a circle of ten
    drawn = [
        tuple(np.sort(draw_candidates(rows, 2, "hard", step_ns=STEP_NS, seed=seed, candidates=4).start[6]))
        for seed in range(3000)
    ]
    expected = [
        tuple(sorted((7, *others)))
        for others in combinations([row for row in range(1, 11) if row != 7], 3)
        if all(
            2 <= (b - a) % 10 <= 8 for a, b in combinations(sorted((7, *others)), 2)
        )  # as rows on a circle
    ]
    counts = Counter(drawn)
    assert set(counts) == set(expected) and len(expected) == 10
    assert chisquare([counts[one] for one in expected]).pvalue > 1e-3


def test_anchors_with_too_few_distractors_are_dropped_and_counted(train: TimedRows) -> None:
    # an episode of n rows has n - 9 windows of 8 rows; four candidates need 32 of them
    lengths = [40, 41, 60]
    rows = world(3, 60, 1, first=50)
    kept = np.concatenate([np.arange(60) < length for length in lengths])
    rows = TimedRows(
        rows.latents[kept], rows.joints[kept], rows.actions[kept], rows.time_ns[kept], rows.episode[kept]
    )
    one = rank_chunks(train, rows, bootstrap_of(rows), seed=0, candidates=4, distractors=["hard"])["hard", 8]
    assert (one.dropped, one.n_anchors, one.n_episodes) == (31, 32 + 51, 2)
    assert "31 anchors dropped: their episodes have fewer than 4 x 8 windows" in one.notes[0]
    assert one.notes[1].startswith("1 of 3 evaluation episodes have no anchor")


def test_what_cannot_be_ranked_says_why(train: TimedRows) -> None:
    rows = world(1, 60, 1, first=50)
    found = rank_chunks(train, rows, bootstrap_of(rows), seed=0, candidates=4, horizons=[8, 70, 130])
    assert found["hard", 8].latents.top1.value is not None
    assert found["hard", 8].latents.top1.low is None  # one episode
    for key, why in (
        (("easy", 8), "51 anchors, none with enough distractors"),
        (("hard", 70), "no window of 70 rows without a gap"),
        (("hard", 130), "fewer than two training episodes have a window of 130 rows without a gap"),
    ):
        assert found[key].latents.top1.value is None and why in found[key].latents.top1.note
        assert (
            found[key].n_anchors == 0
            and latent_state_rank_correlation(found[key], bootstrap_of(rows)).value is None
        )
        assert "latents       top-1 -" in str(found[key])


def test_the_seed_decides_and_latents_do_not(train: TimedRows, evaluate: TimedRows) -> None:
    def ask(seed: int | np.random.SeedSequence, horizons: list[int], rows: TimedRows = evaluate) -> Ranking:
        return rank_chunks(train, rows, bootstrap_of(rows), seed=seed, horizons=horizons)["hard", 4]

    one = ask(3, [4])
    other = replace(evaluate, latents=np.random.default_rng(0).standard_normal(evaluate.latents.shape))
    for again in (ask(3, [8, 4]), ask(np.random.SeedSequence(3), [4]), ask(3, [4], other)):
        np.testing.assert_array_equal(again.start_ns, one.start_ns)
    np.testing.assert_array_equal(ask(3, [8, 4]).latent_cost, one.latent_cost)
    for seed in (4, np.random.SeedSequence(3, spawn_key=(1,))):
        assert (ask(seed, [4]).start_ns != one.start_ns).mean() > 0.5


# -- rows, gaps and actions


def test_actions_are_held_until_the_next() -> None:
    sent_ns = np.array([10, 20, 20, 35])
    target = np.array([[1.0], [2.0], [3.0], [4.0]])
    held = held_actions(np.array([0, 9, 10, 19, 20, 34, 35, 999]), sent_ns, target)
    np.testing.assert_array_equal(held[:, 0], [np.nan, np.nan, 1, 1, 3, 3, 4, 4])
    with pytest.raises(ValueError, match="falls after action 1"):
        held_actions(np.array([0]), np.array([1, 5, 3]), np.zeros((3, 1)))


def test_no_window_crosses_a_gap_or_lacks_an_action() -> None:
    rows = damaged(world(6, 100, 3))
    for horizon, history in ((1, 2), (5, 2), (5, 4)):
        anchors = valid_anchors(rows, horizon, step_ns=STEP_NS, history=history)
        assert anchors.tolist() == anchors_by_loops(rows, horizon, history)
        assert 0 < len(anchors) < 6 * (100 - horizon - history + 1)


@pytest.mark.parametrize(
    ("every", "windows"), [(1.0, True), (1.5, False), (2.5, True), (3.0, True), (4.3, True)]
)
def test_evenly_thinned_rows(every: float, windows: bool) -> None:
    rows = world(1, 600, 0)
    taken = np.unique(np.round(np.arange(0, 599, every)).astype(int))
    thin = TimedRows(
        rows.latents[taken], rows.joints[taken], rows.actions[taken], rows.time_ns[taken], rows.episode[taken]
    )
    anchors = valid_anchors(thin, 8, step_ns=thin.step_ns)
    assert (len(anchors) == len(taken) - 9) if windows else (len(anchors) < 0.05 * len(taken))
    assert len(valid_anchors(thin, 8, step_ns=2.1 * thin.step_ns)) == 0  # another pace than in training


def test_rows_out_of_order_are_refused() -> None:
    good = world(2, 20, 0)
    for change, why in (
        ({"time_ns": good.time_ns[::-1].copy()}, "time does not advance after row 0, episode 0"),
        ({"episode": np.tile([0, 1], 20)}, "must lie together"),
        ({"joints": good.joints[:-1]}, "joints must be"),
        ({"latents": np.full((40, 3), np.nan)}, "latents of row 0, episode 0, are not finite"),
    ):
        with pytest.raises(ValueError, match=why):
            replace(good, **change)


def test_bad_questions_are_refused(train: TimedRows, evaluate: TimedRows) -> None:
    bootstrap = bootstrap_of(evaluate)
    with pytest.raises(ValueError, match="other episodes"):
        rank_chunks(train, evaluate, bootstrap_of(train), seed=0)
    with pytest.raises(ValueError, match="its windows would rank themselves"):
        rank_chunks(evaluate, evaluate, bootstrap, seed=0)
    with pytest.raises(ValueError, match="latents have 3 columns in training, 2 in evaluation"):
        rank_chunks(train, replace(evaluate, latents=evaluate.latents[:, :2]), bootstrap, seed=0)
    with pytest.raises(ValueError, match="latents are constant"):
        rank_chunks(replace(train, latents=np.ones((1440, 3))), evaluate, bootstrap, seed=0)
    with pytest.raises(ValueError, match="no training row has an action"):
        rank_chunks(replace(train, actions=np.full((1440, 3), np.nan)), evaluate, bootstrap, seed=0)
    with pytest.raises(ValueError, match="candidates = 1"):
        rank_chunks(train, evaluate, bootstrap, seed=0, candidates=1)
    with pytest.raises(ValueError, match="expected 'hard' or 'easy'"):
        rank_chunks(train, evaluate, bootstrap, seed=0, distractors=["soft"])
    with pytest.raises(ValueError, match="horizon must be 1 or more"):
        rank_chunks(train, evaluate, bootstrap, seed=0, horizons=[0])


# -- predictors


class Truth:
    """The world's own dynamics on turned joints, without the noise; it looks at the last row alone."""

    def predict(self, history: np.ndarray, past: np.ndarray, chunks: np.ndarray) -> np.ndarray:
        assert past.shape == (len(history), history.shape[1] - 1, 3)
        state = np.repeat(history[:, -1:] @ ROTATION.T, chunks.shape[1], axis=1)
        for step in range(chunks.shape[2]):
            state = state + 0.4 * (chunks[:, :, step] - state)
        return state @ ROTATION


def test_an_own_predictor_goes_beside_the_common_one(train: TimedRows, evaluate: TimedRows) -> None:
    bootstrap = bootstrap_of(evaluate)
    common, own = (
        rank_chunks(train, evaluate, bootstrap, seed=1, history=3, predictor=predictor, predictor_name="true")
        for predictor in (None, Truth())
    )
    for one in common:
        beside = own[one.distractors, one.horizon]
        assert (one.predictor, beside.predictor) == ("ridge", "true")
        gap = ranking_difference(beside, one)
        assert gap.top1.value == pytest.approx(beside.latents.top1.value - one.latents.top1.value)
        assert abs(gap.top1.value) < 0.03 and abs(gap.mrr.value) < 0.03  # this world is linear
        np.testing.assert_array_equal(beside.state_cost, one.state_cost)
        assert one.start_ns[0, 0] == 2 * STEP_NS  # a history of three rows


def test_a_predictor_is_given_what_happened(train: TimedRows, evaluate: TimedRows) -> None:
    drawn = draw_candidates(evaluate, 4, "hard", step_ns=STEP_NS, seed=0, history=3)
    seen = []

    class Witness:
        def predict(self, history: np.ndarray, past: np.ndarray, chunks: np.ndarray) -> np.ndarray:
            seen.append((history, past, chunks))
            return np.zeros((len(history), chunks.shape[1], 3))

    cost = chunk_costs(Witness(), evaluate.latents, evaluate.actions, drawn)
    history, past, chunks = (np.concatenate(parts) for parts in zip(*seen))
    row = 777
    t, s = drawn.anchor[row], drawn.start[row, 5]
    np.testing.assert_array_equal(history[row], evaluate.latents[t - 2 : t + 1])
    np.testing.assert_array_equal(past[row], evaluate.actions[t - 2 : t])
    np.testing.assert_array_equal(chunks[row, 5], evaluate.actions[s : s + 4])
    np.testing.assert_array_equal(chunks[row, 0], evaluate.actions[t : t + 4])
    assert cost[row, 5] == pytest.approx(np.linalg.norm(evaluate.latents[t + 4]))


def test_the_ridge_is_a_predictor_as_any_other(train: TimedRows, evaluate: TimedRows) -> None:
    """Handed over as the encoder's own, in its own latents, it gives what the common one does."""
    space = Coordinates.whitened(train.latents)
    anchors = valid_anchors(train, 8, step_ns=STEP_NS)
    episodes = EpisodeClusters.of(train.episode[anchors])
    fitted = RidgePredictor.fitted(space(train.latents), train.actions, anchors, 8, episodes)

    class Own:
        def predict(self, history: np.ndarray, past: np.ndarray, chunks: np.ndarray) -> np.ndarray:
            white = fitted.predict(space(history), past, chunks)
            return white @ np.linalg.inv(space.matrix) + space.mean

    bootstrap = bootstrap_of(evaluate)
    one, other = (
        rank_chunks(train, evaluate, bootstrap, seed=1, predictor=predictor)["hard", 8]
        for predictor in (None, Own())
    )
    np.testing.assert_allclose(other.latent_cost, one.latent_cost, rtol=1e-9)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda n, k: np.zeros((n, k, 2)), r"answered with shape \(\d+, 16, 2\), expected \(\d+, 16, 3\)"),
        (lambda n, k: np.full((n, k, 3), np.nan), "prediction at row 1 is not finite"),
    ],
)
def test_a_predictor_that_answers_nonsense(train: TimedRows, evaluate: TimedRows, answer, why: str) -> None:
    class Wrong:
        def predict(self, history: np.ndarray, past: np.ndarray, chunks: np.ndarray) -> np.ndarray:
            return answer(*chunks.shape[:2])

    with pytest.raises(ValueError, match=why):
        rank_chunks(train, evaluate, bootstrap_of(evaluate), seed=0, predictor=Wrong())


def test_whitening_and_standardising() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((500, 4)) @ rng.standard_normal((4, 4)) + 50
    values = np.concatenate([values, values[:, :1] * 2, np.full((500, 1), 0.1)], axis=1)  # rank 4 of 6
    white = Coordinates.whitened(values.astype(np.float32))
    assert white.matrix.shape == (6, 4)
    np.testing.assert_allclose(np.cov(white(values).T, ddof=0), np.eye(4), atol=1e-3)
    standard = Coordinates.standardised(values)
    assert standard.matrix.shape == (6, 5)
    np.testing.assert_allclose(standard(values), StandardScaler().fit_transform(values)[:, :5], atol=1e-12)


# -- intervals and pairs


@pytest.mark.parametrize("interval", ["percentile", "bca", "studentised"])
def test_intervals_are_over_episodes(interval: str) -> None:
    rng = np.random.default_rng(0)
    episode = np.repeat([3, 5, 8, 9, 11, 20], [5, 9, 2, 30, 11, 4])
    values = rng.random(len(episode)) + 0.1 * episode
    values[7] = np.nan
    labels = np.array([3, 5, 8, 9, 11, 20, 21])  # the last one has no anchor
    bootstrap = Bootstrap.draw(labels, np.random.default_rng(1), resamples=400, interval=interval)
    found = mean_over_episodes(values, episode, bootstrap)
    assert found.value == pytest.approx(np.nanmean(values)) and found.interval == interval
    for b in range(20):
        taken = np.concatenate(
            [np.tile(values[episode == label], int(w)) for label, w in zip(labels, bootstrap.weights[b])]
        )
        assert found.draws[b] == pytest.approx(np.nanmean(taken))
    for e, label in enumerate(labels):
        assert found.jackknife[e] == pytest.approx(np.nanmean(values[episode != label]))
    if interval == "studentised":  # against a numerical derivative
        for e in range(len(labels)):
            nudged = replace(bootstrap, weights=np.ones((1, 7)) + 1e-6 * np.eye(7)[e])
            slope = (mean_over_episodes(values, episode, nudged).draws[0] - found.value) / 1e-6
            assert found.influence[0, e] == pytest.approx(slope, abs=1e-5)


def test_differences_are_paired(train: TimedRows, evaluate: TimedRows) -> None:
    def blurred(rows: TimedRows, amount: float, seed: int) -> TimedRows:
        noise = np.random.default_rng(seed).standard_normal(rows.latents.shape)
        return replace(rows, latents=rows.latents + amount * noise)

    def ask(amount: float, *, seed: int = 1, draws: int = 0) -> Ranking:
        noisy = blurred(train, amount, 7), blurred(evaluate, amount, 8)
        bootstrap = bootstrap_of(evaluate, draws)
        return rank_chunks(*noisy, bootstrap, seed=seed, distractors=["hard"])["hard", 8]

    sharp, soft = ask(0.1), ask(0.3)
    gap = ranking_difference(sharp, soft)
    np.testing.assert_allclose(gap.top1.draws, sharp.latents.top1.draws - soft.latents.top1.draws)
    assert gap.top1.low > 0 and "unpaired" not in gap.top1.note
    apart = np.hypot(sharp.latents.top1.draws.std(), soft.latents.top1.draws.std())
    assert gap.top1.draws.std() < apart
    for other in (ask(0.3, seed=2), ask(0.3, draws=1)):
        with pytest.raises(ValueError, match="differ in anchors, candidates or resamples"):
            ranking_difference(sharp, other)


@pytest.mark.slow
def test_intervals_hold_the_truth() -> None:
    """95 % intervals of top-1 over 25 episodes that differ, by simulation of the anchors' outcomes."""
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(1000):
        length = rng.integers(150, 500, size=25)
        episode = np.repeat(np.arange(25), length)
        hit = (rng.random(len(episode)) < rng.beta(6, 4, size=25)[episode]).astype(float)
        bootstrap = Bootstrap.draw(np.arange(25), rng, resamples=1000)
        found = mean_over_episodes(hit, episode, bootstrap)
        inside += found.low <= 0.6 <= found.high
    assert 0.90 <= inside / 1000 <= 0.97


# -- what is read and shown


def test_results_print_and_are_rows(train: TimedRows, evaluate: TimedRows) -> None:
    found = rank_chunks(train, evaluate, bootstrap_of(evaluate), seed=1, horizons=[4, 8])
    rows = found.rows()
    assert len(rows) == 2 * 2 * 4 and len({tuple(row) for row in rows}) == 1
    one = found["easy", 4]
    mine = [row for row in rows if (row["horizon"], row["distractors"]) == (4, "easy")]
    assert [row["ranked_by"] for row in mine] == ["latents", "action_only", "state_oracle", "chance"]
    assert mine[0]["top1"] == one.latents.top1.value and mine[0]["mrr_high"] == one.latents.mrr.high
    assert mine[3]["top1"] == 1 / 16 and mine[3]["mrr"] == pytest.approx(3.380728993 / 16)
    text = str(one).splitlines()
    assert text[0].startswith("G1b: 16 candidates, easy distractors, H = 4 rows (0.20 s), 2610 anchors of 18")
    top1 = one.latents.top1
    assert f"latents       top-1 {top1.value:.3f} [{top1.low:.3f}, {top1.high:.3f}]" in text[1]
    assert str(found).count("G1b:") == 4
    with pytest.raises(KeyError, match="was not ranked"):
        found["hard", 2]


def test_few_episodes_and_latents_that_say_nothing_are_noted(train: TimedRows) -> None:
    rows = world(4, 150, 1, first=50)
    rng = np.random.default_rng(0)
    noisy = [replace(one, latents=rng.standard_normal((len(one.episode), 4))) for one in (train, rows)]
    one = rank_chunks(*noisy, bootstrap_of(rows), seed=0, alphas=[1.0, 1e6])["easy", 8]
    assert one.notes[0].startswith("16 candidates from 4 episodes: some share one")
    assert (
        "ridge on latents took the largest alpha of the grid, 1e+06" in one.notes[1] and len(one.notes) == 2
    )
    assert "too few episodes" in one.latents.top1.note


def extracted(latent: np.ndarray, position: np.ndarray, time_ns: np.ndarray) -> EpisodeLatents:
    return EpisodeLatents(latent.astype(np.float32), position, np.arange(len(latent)), time_ns, {})


def test_rows_of_extracted_episodes() -> None:
    time_ns = np.arange(4) * 10
    log = SimpleNamespace(time_ns=np.array([5, 20]), target=np.array([[1.0], [2.0]]))
    position = np.arange(12.0).reshape(4, 3)
    read = [extracted(np.ones((4, 2)) * i, position, time_ns) for i in range(2)]
    episodes = [SimpleNamespace(actions=lambda: log, index=i, path=Path(f"{i}.h5")) for i in (6, 9)]
    rows = timed_rows(read, episodes, [2, 0])
    np.testing.assert_array_equal(rows.episode, np.repeat([6, 9], 4))
    np.testing.assert_array_equal(rows.joints[:4], position[:, [2, 0]])
    np.testing.assert_array_equal(rows.actions[:4, 0], [np.nan, 1, 2, 2])
    without = SimpleNamespace(actions=lambda: None, index=9, path=Path("9.h5"))
    with pytest.raises(InputError, match=r"9\.h5: holds no actions"):
        timed_rows(read, [episodes[0], without], [0])
    late = SimpleNamespace(time_ns=np.array([99]), target=np.array([[1.0]]))
    with pytest.raises(InputError, match="all were sent after the last row"):
        timed_rows(
            read, [episodes[0], SimpleNamespace(actions=lambda: late, index=9, path=Path("9.h5"))], [0]
        )


def test_a_real_arm(shared_data: Path, tmp_path: Path) -> None:
    import_recording(shared_data / "joint_logs/so101_b", tmp_path / "rec", unit="degrees")
    recording = Recording.open(tmp_path / "rec")
    episodes = [recording.episode(index) for index in recording.episode_indices]
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0]
    noise = np.random.default_rng(1)

    def rows(chosen: list, turned: bool) -> TimedRows:
        read = []
        for log in (episode.joints() for episode in chosen):
            latent = log.position @ turn if turned else noise.standard_normal((len(log.position), 8))
            read.append(extracted(latent, log.position, log.time_ns))
        return timed_rows(read, chosen, range(6))

    for turned in (True, False):
        train, evaluate = rows(episodes[:10], turned), rows(episodes[10:], turned)
        one = rank_chunks(train, evaluate, bootstrap_of(evaluate), seed=0, distractors=["hard"])["hard", 8]
        assert one.dropped == 0 and one.n_anchors == len(evaluate.episode) - 10 * 9
        assert one.state_oracle.top1.value > 0.7 and one.action_only.top1.value > 0.9
        if turned:
            assert abs(one.latents.top1.value - one.state_oracle.top1.value) < 0.05
        else:
            assert abs(one.latents.top1.value - 1 / 16) < 4 * one.latents.top1.draws.std()


def test_wide_latents_are_ranked_in_the_directions_that_vary_most() -> None:
    rng = np.random.default_rng(2)
    scale = np.r_[np.full(MOST_COMPONENTS, 10.0), np.full(20, 0.1)]
    values = rng.standard_normal((900, MOST_COMPONENTS + 20)) * scale
    white = Coordinates.whitened(values)(values)
    assert white.shape == (900, MOST_COMPONENTS)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(MOST_COMPONENTS), atol=1e-9)
    noise = Coordinates.whitened(values).matrix[MOST_COMPONENTS:]
    assert np.abs(noise * 0.1).max() < 0.01  # what hardly varies has next to no say
