"""Straight-line plans against loops and in worlds whose answer is known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import probe.planning
from probe.bootstrap import Bootstrap
from probe.clusters import EpisodeClusters
from probe.planning import MIN_CHORD, StraightLinePlans, plan_difference, straight_line_plans


class Frames:
    """Frames of episodes, their joints spread over a square, each episode round a place of its own."""

    def __init__(self, n_episodes: int = 12, length: int = 200, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.labels = np.repeat(np.arange(10, 10 + n_episodes), length)
        offset = np.repeat(rng.uniform(-0.5, 0.5, (n_episodes, 2)), length, axis=0)
        self.joints = (rng.uniform(-1, 1, (n_episodes * length, 2)) + offset) * [1.0, 30.0]
        self.std = np.array([1.0, 30.0])
        self.state = self.joints / self.std
        self.episodes = EpisodeClusters.of(self.labels)
        self.bootstrap = Bootstrap.draw(self.episodes.labels, np.random.default_rng(1), resamples=500)

    def plans(self, latents: np.ndarray, **options) -> StraightLinePlans:
        options = {"seed": 3, "pairs": 200, "bootstrap": self.bootstrap, **options}
        return straight_line_plans(latents, self.joints, self.episodes, self.std, **options)


@pytest.fixture(scope="module")
def frames() -> Frames:
    return Frames()


def turned(angle: float, values: np.ndarray) -> np.ndarray:
    return values @ np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def bent(state: np.ndarray) -> np.ndarray:
    """The paper's spiral: each point turned by as much as it lies out."""
    angle = np.pi * np.linalg.norm(state, axis=1)
    one = state[:, 0] * np.cos(angle) - state[:, 1] * np.sin(angle)
    return np.stack([one, state[:, 0] * np.sin(angle) + state[:, 1] * np.cos(angle)], axis=1)


def test_plans_equal_loops(frames: Frames) -> None:
    latents = np.hstack([bent(frames.state), 0.3 * frames.state]).astype(np.float32)
    found = frames.plans(latents, steps=7, pairs=20)
    for library, scores in ((latents.astype(float), found.latents), (frames.state, found.oracle)):
        for row, (s, g) in enumerate(found.pairs):
            path = [frames.state[s]]
            for i in range(1, 7):
                point = (1 - i / 7) * library[s] + i / 7 * library[g]
                path.append(frames.state[np.argmin([np.sum((point - one) ** 2) for one in library])])
            path.append(frames.state[g])
            chord = frames.state[g] - frames.state[s]
            length = sum(np.linalg.norm(b - a) for a, b in pairwise(path))
            assert scores.ratios[row] == pytest.approx(length / np.linalg.norm(chord), rel=1e-9)
            across = np.array([-chord[1], chord[0]]) / np.linalg.norm(chord)
            off = np.mean([abs((one - frames.state[s]) @ across) for one in path])
            assert scores.deviations[row] == pytest.approx(off, rel=1e-9)
        assert scores.ratio.value == pytest.approx(scores.ratios.mean())
        assert scores.deviation.value == pytest.approx(scores.deviations.mean())
    assert found.above_oracle.value == pytest.approx(found.latents.ratios.mean() - found.oracle.ratios.mean())


def test_an_orthogonal_encoder_equals_the_oracle(frames: Frames) -> None:
    found = frames.plans(5 * turned(0.7, frames.state) + 40)
    np.testing.assert_allclose(found.latents.ratios, found.oracle.ratios, rtol=1e-9)
    assert found.above_oracle.value == pytest.approx(0, abs=1e-9)
    assert found.oracle.ratios.min() >= 1 - 1e-12 and found.oracle.ratio.value < 1.2


def test_the_ratio_nears_one_as_frames_fill_joint_space() -> None:
    ratios = []
    for length in (30, 300, 3000):
        frames = Frames(length=length)
        ratios.append(frames.plans(turned(1.0, frames.state)).latents.ratio.value)
    assert ratios[0] > ratios[1] > ratios[2] and ratios[2] < 1.02


def test_a_bent_encoder_makes_detours(frames: Frames) -> None:
    found = frames.plans(bent(frames.state))
    assert found.above_oracle.low > 0.3 and found.latents.deviation.low > found.oracle.deviation.high
    assert found.latents.median.value > found.oracle.median.value


def test_latents_that_mean_nothing_are_as_shuffled_ones(frames: Frames) -> None:
    noise = np.random.default_rng(0).standard_normal((len(frames.labels), 16))
    found = frames.plans(noise, pairs=400)
    gap = found.latents.ratio.value - found.shuffled.ratio.value
    assert abs(gap) < 0.25 * found.latents.ratio.value
    assert found.shuffled.ratio.value > 1.5 * found.oracle.ratio.value
    # latents that mean something are not
    assert (
        frames.plans(frames.state).shuffled.ratio.value > 2 * frames.plans(frames.state).latents.ratio.value
    )


def test_collapsed_latents_have_a_finite_ratio(frames: Frames) -> None:
    found = frames.plans(np.ones((len(frames.labels), 4)))
    # every inner point is the first frame: there and on
    there = frames.state[0] - frames.state[found.pairs]  # [P, 2, 2]
    chord = np.linalg.norm(there[:, 0] - there[:, 1], axis=1)
    detour = np.linalg.norm(there, axis=2).sum(axis=1) / chord
    np.testing.assert_allclose(found.latents.ratios, detour, rtol=1e-9)


def test_pairs_join_different_episodes_and_depend_on_seed_and_joints_alone(frames: Frames) -> None:
    found = frames.plans(frames.state, pairs=1000)
    assert (frames.labels[found.pairs[:, 0]] != frames.labels[found.pairs[:, 1]]).all()
    chord = np.linalg.norm(np.diff(frames.state[found.pairs], axis=1)[:, 0], axis=1)
    assert chord.min() >= MIN_CHORD and found.dropped == 1000 - len(found.pairs) > 0
    counts = np.bincount(frames.episodes.index[found.pairs.ravel()])
    assert counts.min() > 0.6 * counts.max()
    np.testing.assert_array_equal(frames.plans(bent(frames.state), pairs=1000).pairs, found.pairs)
    assert not np.array_equal(frames.plans(frames.state, pairs=1000, seed=4).pairs, found.pairs)


def test_rows_of_episodes_need_not_lie_together(frames: Frames) -> None:
    order = np.random.default_rng(0).permutation(len(frames.labels))
    mixed = Frames()
    mixed.labels, mixed.joints, mixed.state = frames.labels[order], frames.joints[order], frames.state[order]
    mixed.episodes = EpisodeClusters.of(mixed.labels)
    found = mixed.plans(mixed.state)
    assert (mixed.labels[found.pairs[:, 0]] != mixed.labels[found.pairs[:, 1]]).all()


def test_intervals_are_over_pairs_of_episodes(frames: Frames) -> None:
    found = frames.plans(bent(frames.state))
    start, goal = (frames.episodes.index[found.pairs[:, end]] for end in (0, 1))

    def by_hand(times: np.ndarray, of) -> float:
        """A pair once for each copy of its start's episode and each of its goal's."""
        copies = [int(times[s] * times[g]) for s, g in zip(start, goal)]
        return float(of(np.repeat(found.latents.ratios, copies)))

    def lower_median(values: np.ndarray) -> float:
        return np.sort(values)[(len(values) - 1) // 2]

    for b in range(30):
        weights = frames.bootstrap.weights[b]
        assert found.latents.ratio.draws[b] == pytest.approx(by_hand(weights, np.mean))
        assert found.latents.median.draws[b] == pytest.approx(by_hand(weights, lower_median))
    for e in range(len(frames.episodes)):
        left = np.arange(len(frames.episodes)) != e
        assert found.latents.ratio.jackknife[e] == pytest.approx(by_hand(left, np.mean))
    assert found.latents.ratio.low < found.latents.ratio.value < found.latents.ratio.high


def test_encoders_are_compared_on_the_same_pairs(frames: Frames) -> None:
    bend, straight = frames.plans(bent(frames.state)), frames.plans(turned(1, frames.state))
    gap = plan_difference(bend, straight)
    assert gap.value == pytest.approx(bend.latents.ratio.value - straight.latents.ratio.value)
    assert gap.low > 0 and "unpaired" not in gap.note
    other = Bootstrap.draw(frames.episodes.labels, np.random.default_rng(2), resamples=500)
    for changed in ({"seed": 4}, {"steps": 9}, {"bootstrap": other}):
        with pytest.raises(ValueError, match="not given the same pairs"):
            plan_difference(bend, frames.plans(frames.state, **changed))


def test_memory_is_bounded_without_changing_a_path(frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = frames.plans(bent(frames.state))
    monkeypatch.setattr(probe.planning, "_BLOCK", 100_000)
    np.testing.assert_array_equal(frames.plans(bent(frames.state)).latents.ratios, whole.latents.ratios)


def test_joints_that_do_not_move_are_left_out(frames: Frames) -> None:
    joints = np.hstack([frames.joints, np.full((len(frames.labels), 1), 0.4)])
    found = straight_line_plans(
        frames.state, joints, frames.episodes, np.append(frames.std, 0.0), frames.bootstrap, seed=3, pairs=200
    )
    np.testing.assert_array_equal(found.latents.ratios, frames.plans(frames.state).latents.ratios)


def test_bad_questions_are_refused(frames: Frames) -> None:
    single = Frames(n_episodes=1)
    with pytest.raises(ValueError, match="there is only one"):
        single.plans(single.state)
    with pytest.raises(ValueError, match="other episodes"):
        frames.plans(frames.state, bootstrap=single.bootstrap)
    with pytest.raises(ValueError, match="steps 2 or more: 200, 1"):
        frames.plans(frames.state, steps=1)
    with pytest.raises(ValueError, match="not finite"):
        frames.plans(np.full_like(frames.state, np.nan))
    with pytest.raises(ValueError, match=r"joint_std must be \[2\]"):
        straight_line_plans(
            frames.state, frames.joints, frames.episodes, np.zeros(2), frames.bootstrap, seed=0
        )
    with pytest.raises(ValueError, match=r"none of 200 pairs of frames lies 0\.5 standard deviations apart"):
        straight_line_plans(
            frames.state,
            frames.joints * 1e-3,
            frames.episodes,
            frames.std,
            frames.bootstrap,
            seed=0,
            pairs=200,
        )


def test_results_print_and_are_rows(frames: Frames) -> None:
    found = frames.plans(bent(frames.state))
    rows = found.rows()
    assert [row["decoded_from"] for row in rows] == ["latents", "oracle", "shuffled"]
    assert rows[0]["ratio"] == found.latents.ratio.value and rows[1]["median_low"] == found.oracle.median.low
    assert rows[0]["n_pairs"] + rows[0]["dropped"] == 200
    text = str(found).splitlines()
    assert text[0].startswith(f"straight-line plans: {len(found.pairs)} pairs, 15 steps")
    assert text[1].startswith(f"  latents  ratio {found.latents.ratio.value:.3f} [") and len(text) == 5
