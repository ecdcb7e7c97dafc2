"""RankMe, participation ratio and CKA against slow twins, against known cases, and against themselves."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import ortho_group

from probe.bootstrap import Bootstrap, difference
from probe.clusters import EpisodeClusters
from probe.similarity import effective_width, linear_cka


def bootstrap_of(episodes: EpisodeClusters, resamples: int = 50, seed: int = 0) -> Bootstrap:
    return Bootstrap.draw(episodes.labels, np.random.default_rng(seed), resamples=resamples)


def hsic_song(k: np.ndarray, l: np.ndarray) -> float:  # noqa: E741
    """Unbiased HSIC of n x n kernels, as Song et al. 2012 print it."""
    n = len(k)
    k, l = k - np.diag(np.diag(k)), l - np.diag(np.diag(l))  # noqa: E741
    one = np.ones(n)
    middle = (one @ k @ one) * (one @ l @ one) / ((n - 1) * (n - 2))
    return float((np.trace(k @ l) + middle - 2 / (n - 2) * one @ k @ l @ one) / (n * (n - 3)))


def cka_song(x: np.ndarray, y: np.ndarray) -> float:
    k, l = x @ x.T, y @ y.T  # noqa: E741
    return hsic_song(k, l) / np.sqrt(hsic_song(k, k) * hsic_song(l, l))


def hsic_by_episode(x: np.ndarray, y: np.ndarray, episode: np.ndarray, weight: np.ndarray) -> float:
    """The definition: the mean over all quadruples of rows of four different episodes, each weighing w."""
    k, l = x @ x.T, y @ y.T  # noqa: E741
    total = count = 0.0
    for i, j, q, r in permutations(range(len(x)), 4):
        if len({episode[row] for row in (i, j, q, r)}) == 4:
            w = float(np.prod([weight[episode[row]] for row in (i, j, q, r)]))
            total += w * k[i, j] * (l[i, j] + l[q, r] - 2 * l[i, q])
            count += w
    return total / count


@pytest.mark.parametrize("shape", [(60, 5), (40, 60)])
def test_by_row_is_the_n_by_n_estimator(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(shape) + 100.0
    y = np.tanh(x[:, :4] - 100) @ rng.standard_normal((4, 7)) + 0.3 * rng.standard_normal((shape[0], 7))
    episodes = EpisodeClusters.of(np.arange(shape[0]) % 6)
    found = linear_cka(x, y, episodes, bootstrap_of(episodes))
    # an offset of 100 costs the n x n form digits, hence no sharper tolerance
    assert found.by_row == pytest.approx(cka_song(x - x.mean(axis=0), y), abs=1e-10)
    assert found.by_row == pytest.approx(cka_song(x, y), abs=1e-6)


def test_with_one_row_an_episode_leaving_out_episodes_is_leaving_out_rows() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((30, 6))
    y = x[:, :3] + rng.standard_normal((30, 3))
    episodes = EpisodeClusters.of(np.arange(30))
    found = linear_cka(x, y, episodes, bootstrap_of(episodes))
    assert found.by_episode.value == pytest.approx(found.by_row, abs=1e-12)


def test_by_episode_is_its_definition_in_the_sample_and_in_every_resample() -> None:
    rng = np.random.default_rng(3)
    label = np.array([0, 1, 1, 2, 0, 3, 3, 4, 2])
    x = rng.standard_normal((9, 3)) + rng.standard_normal((5, 3))[label]
    y = x @ rng.standard_normal((3, 2)) + 0.5 * rng.standard_normal((9, 2))
    x, y = x + 2.0, y - 5.0
    episodes = EpisodeClusters.of(label)
    bootstrap = bootstrap_of(episodes, resamples=12)
    found = linear_cka(x, y, episodes, bootstrap)

    def slow(weight: np.ndarray) -> float:
        xy, xx, yy = (hsic_by_episode(a, b, label, weight) for a, b in ((x, y), (x, x), (y, y)))
        return xy / np.sqrt(xx * yy) if xx > 0 and yy > 0 else np.nan

    assert found.by_episode.value == pytest.approx(slow(np.ones(5)), abs=1e-10)
    enough = (bootstrap.weights > 0).sum(axis=1) >= 4
    assert enough.any() and not enough.all()
    assert np.isnan(found.by_episode.draws[~enough]).all()
    expected = [slow(weight) for weight in bootstrap.weights[enough][:4]]
    np.testing.assert_allclose(found.by_episode.draws[enough][:4], expected, atol=1e-10)


def test_a_rotated_scaled_shifted_copy_has_cka_1() -> None:
    rng = np.random.default_rng(4)
    label = np.repeat(np.arange(8), 25)
    x = rng.standard_normal((200, 12)) * np.linspace(0.2, 3, 12)
    y = 5 * x @ ortho_group.rvs(12, random_state=0) + 7
    episodes = EpisodeClusters.of(label)
    found = linear_cka(x, y, episodes, bootstrap_of(episodes))
    assert found.by_row == pytest.approx(1, abs=1e-12)
    assert found.by_episode.value == pytest.approx(1, abs=1e-12)
    assert found.by_episode.low == pytest.approx(1, abs=1e-12)
    assert "debiased linear CKA 1.000 [1.000, 1.000]" in str(found)


def test_independent_noise_at_two_rows_a_dimension() -> None:
    """Where plain CKA reads 0.5 and more, both debiased ones are about 0."""
    rng = np.random.default_rng(5)
    label = np.repeat(np.arange(20), 20)
    episodes = EpisodeClusters.of(label)
    plain, by_row, by_episode = [], [], []
    for _ in range(20):
        x, y = rng.standard_normal((400, 200)), rng.standard_normal((400, 200))
        xc, yc = x - x.mean(axis=0), y - y.mean(axis=0)
        squares = [np.linalg.norm(a.T @ b) ** 2 for a, b in ((xc, yc), (xc, xc), (yc, yc))]
        plain.append(squares[0] / np.sqrt(squares[1] * squares[2]))
        found = linear_cka(x, y, episodes, bootstrap_of(episodes, resamples=1))
        by_row.append(found.by_row)
        by_episode.append(found.by_episode.value)
    assert np.mean(plain) > 0.3
    assert abs(np.mean(by_row)) < 0.005 and np.max(np.abs(by_row)) < 0.02
    assert abs(np.mean(by_episode)) < 0.005 and np.max(np.abs(by_episode)) < 0.02


def smooth(rng: np.random.Generator, n_episodes: int, length: int, width: int, keep: float) -> np.ndarray:
    """Latents that drift within an episode: autocorrelation `keep` from row to row, variance 1."""
    out = np.empty((n_episodes, length, width))
    out[:, 0] = rng.standard_normal((n_episodes, width))
    for t in range(1, length):
        out[:, t] = keep * out[:, t - 1] + np.sqrt(1 - keep**2) * rng.standard_normal((n_episodes, width))
    return out.reshape(-1, width)


def test_independent_drifting_latents_are_alike_by_row_and_not_by_episode() -> None:
    rng = np.random.default_rng(6)
    episodes = EpisodeClusters.of(np.repeat(np.arange(25), 60))
    found = []
    for _ in range(8):
        x, y = (smooth(rng, 25, 60, 40, 0.97) for _ in "xy")
        cka = linear_cka(x, y, episodes, bootstrap_of(episodes, resamples=1))
        found.append((cka.by_row, cka.by_episode.value))
    by_row, by_episode = np.mean(found, axis=0)
    assert by_row > 0.15
    assert abs(by_episode) < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("n_episodes", [12, 25])
def test_the_interval_holds_the_truth_nine_times_in_ten(n_episodes: int) -> None:
    """Latents that share half of their dimensions, 200 times over (95 % intervals)."""
    width, half = 10, 5

    def pair(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, EpisodeClusters]:
        x = smooth(rng, n_episodes, 30, width, 0.9)
        y = np.hstack([x[:, :half], smooth(rng, n_episodes, 30, width - half, 0.9)])
        return x, y, EpisodeClusters.of(np.repeat(np.arange(n_episodes), 30))

    truth = half / width  # ||C_xy||^2 / (||C_x|| ||C_y||) with identity blocks
    rng = np.random.default_rng(7)
    held, values = 0, []
    for run in range(200):
        x, y, episodes = pair(rng)
        found = linear_cka(x, y, episodes, bootstrap_of(episodes, resamples=400, seed=run)).by_episode
        assert found.value is not None and found.low is not None and found.high is not None
        values.append(found.value)
        held += found.low <= truth <= found.high
    assert np.mean(values) == pytest.approx(truth, abs=0.02)
    assert held / 200 >= 0.85


def test_differences_between_encoders_are_paired() -> None:
    rng = np.random.default_rng(8)
    episodes = EpisodeClusters.of(np.repeat(np.arange(12), 30))
    bootstrap = bootstrap_of(episodes)
    x = rng.standard_normal((360, 6))
    near, far = (x + noise * rng.standard_normal((360, 6)) for noise in (0.2, 2.0))
    gap = difference(
        linear_cka(x, near, episodes, bootstrap).by_episode,
        linear_cka(x, far, episodes, bootstrap).by_episode,
    )
    assert gap.value is not None and gap.low is not None and gap.low > 0.3
    assert "unpaired" not in gap.note


def test_what_cannot_be_compared_is_said() -> None:
    rng = np.random.default_rng(9)
    x, y = rng.standard_normal((12, 30)), rng.standard_normal((12, 4))
    few = EpisodeClusters.of(np.repeat(np.arange(3), 4))
    found = linear_cka(x, y, few, bootstrap_of(few))
    assert found.by_episode.value is None and found.by_episode.low is None
    assert "at least 4 episodes, got 3" in found.by_episode.note
    assert "wider (30) than there are rows (12)" in str(found)
    other = EpisodeClusters.of(np.repeat(np.arange(6), 2))
    with pytest.raises(ValueError, match="other episodes"):
        linear_cka(x, y, few, bootstrap_of(other))
    constant = linear_cka(x, np.ones((12, 4)), other, bootstrap_of(other))
    assert constant.by_episode.value is None and "without variance" in constant.by_episode.note


@pytest.mark.parametrize("shape", [(300, 20), (15, 40)])
def test_effective_width_is_its_definition(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(10).standard_normal(shape) * np.linspace(0.1, 2, shape[1]) + 0.5
    found = effective_width(x)
    sigma = np.linalg.svd(x, compute_uv=False)
    p = sigma / sigma.sum() + 1e-7
    assert found.rankme == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-9)
    values = np.linalg.eigvalsh(np.cov(x.T))
    assert found.participation_ratio == pytest.approx(values.sum() ** 2 / (values**2).sum(), rel=1e-9)
    assert found.mean_share == pytest.approx(
        (x.mean(axis=0) ** 2).sum() / (x**2).sum(axis=1).mean(), rel=1e-9
    )


def test_effective_width_of_known_cases() -> None:
    rng = np.random.default_rng(11)
    isotropic = ortho_group.rvs(100, random_state=1)[:, :8]
    assert effective_width(isotropic).rankme == pytest.approx(8, rel=1e-4)
    line = rng.standard_normal((500, 1)) @ rng.standard_normal((1, 16))
    collapsed = effective_width(line)
    assert collapsed.rankme == pytest.approx(1, abs=1e-3)
    assert collapsed.participation_ratio == pytest.approx(1, abs=1e-9)
    shifted = effective_width(rng.standard_normal((500, 16)) + 100)
    assert shifted.rankme < 2 < 15 < shifted.participation_ratio and shifted.mean_share > 0.99
    assert "of 16 dimensions, 500 rows" in str(shifted)
    assert np.isnan(effective_width(np.ones((5, 3))).participation_ratio)
    assert np.isnan(effective_width(np.zeros((5, 3))).rankme)
    with pytest.raises(ValueError, match="finite latents"):
        effective_width(np.full((3, 2), np.nan))
