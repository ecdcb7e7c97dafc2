"""The MLP probe: repeatable, stopped by whole episodes, better than ridge only where it should be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from sklearn.neural_network import MLPRegressor

from probe.bootstrap import Bootstrap
from probe.clusters import EpisodeClusters
from probe.mlp import fit_mlp
from probe.ridge import fit_ridge
from probe.statistics import ResidualSums, score_joints


def rows(n_episodes: int, seed: int, *, bent: bool) -> tuple[np.ndarray, np.ndarray, EpisodeClusters]:
    """Two joints in 8 latent dimensions, as they are or bent by squares, cubes and a product."""
    rng = np.random.default_rng(seed)
    y = rng.uniform(-1, 1, (n_episodes * 60, 2)) * [0.5, 3.0] + [0.0, 4.0]
    z = (y - [0.0, 4.0]) / [0.5, 3.0]
    features = np.stack([z[:, 0] + z[:, 1] ** 2, z[:, 1] ** 3, z.prod(axis=1)], axis=1) if bent else z
    mixing = np.random.default_rng(99).standard_normal((features.shape[1], 8))
    x = features @ mixing + 0.02 * rng.standard_normal((len(y), 8))
    return x, y, EpisodeClusters.of(np.repeat(np.arange(n_episodes), 60))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_is_linear_needs_no_mlp_and_what_is_bent_does() -> None:
    for bent in (False, True):
        x, y, train = rows(15, 1, bent=bent)
        x_new, y_new, evaluate = rows(10, 2, bent=bent)
        ridge = fit_ridge(x, y, train, alphas=np.logspace(-3, 3, 7))
        mlp = fit_mlp(x, y, train, seed=0, most_epochs=60)
        bootstrap = Bootstrap.draw(evaluate.labels, np.random.default_rng(0), resamples=50)
        linear, nonlinear = (
            score_joints(
                ResidualSums.of(y_new, fit.predict(x_new), evaluate), bootstrap, np.ones(2, dtype=bool)
            )
            for fit in (ridge, mlp)
        )
        assert nonlinear.mean.value is not None and linear.mean.value is not None
        assert nonlinear.mean.value > 0.97
        if bent:
            assert linear.mean.value < 0.9
        else:
            assert linear.mean.value > nonlinear.mean.value - 1e-3
        # scikit-learn's own network of the same size, optimiser and number of epochs reaches the same
        scale = y.std(axis=0)
        theirs = MLPRegressor(hidden_layer_sizes=(256,), batch_size=256, max_iter=mlp.epochs, random_state=0)
        theirs.fit((x - x.mean(axis=0)) / x.std(axis=0), (y - y.mean(axis=0)) / scale)
        predicted = theirs.predict((x_new - x.mean(axis=0)) / x.std(axis=0)) * scale + y.mean(axis=0)
        assert nonlinear.mean.value == pytest.approx(r2_score(y_new, predicted), abs=0.02)


def test_the_same_seed_is_the_same_network_whatever_the_global_generator_did() -> None:
    x, y, train = rows(6, 3, bent=True)
    one = fit_mlp(x, y, train, seed=5, most_epochs=5)
    torch.manual_seed(123)
    torch.rand(7)
    state = torch.get_rng_state()
    two = fit_mlp(x, y, train, seed=5, most_epochs=5)
    assert torch.equal(state, torch.get_rng_state())
    np.testing.assert_array_equal(one.predict(x), two.predict(x))
    np.testing.assert_array_equal(one.held_out_error, two.held_out_error)
    other = fit_mlp(x, y, train, seed=6, most_epochs=5)
    assert not np.array_equal(one.predict(x), other.predict(x))


def test_epochs_are_chosen_on_whole_episodes() -> None:
    """Latents that only name their episode: held-out episodes stop it at once, held-out rows never would."""
    rng = np.random.default_rng(4)
    label = np.repeat(np.arange(20), 40)
    x = rng.standard_normal((20, 30))[label] + 0.05 * rng.standard_normal((800, 30))
    y = rng.standard_normal((20, 2))[label] + 0.05 * rng.standard_normal((800, 2))
    by_episode = fit_mlp(x, y, EpisodeClusters.of(label), seed=0, most_epochs=60)
    assert by_episode.epochs < 20 and not by_episode.at_limit
    assert len(by_episode.held_out_error) == by_episode.epochs + 10
    assert by_episode.held_out_error.min() == by_episode.held_out_error[by_episode.epochs - 1] > 0.5
    by_row = fit_mlp(x, y, EpisodeClusters.of(rng.integers(0, 20, 800)), seed=0, most_epochs=60)
    assert by_row.held_out_error.min() < 0.1
    assert "most allowed" in str(fit_mlp(*rows(6, 0, bent=True), seed=0, most_epochs=2))


def test_joints_that_are_not_testable_are_their_mean_and_cost_nothing() -> None:
    x, y, train = rows(6, 6, bent=False)
    y = np.hstack([y, np.full((len(y), 1), 2.5), np.random.default_rng(0).standard_normal((len(y), 1))])
    fit = fit_mlp(x, y, train, seed=0, testable=np.array([True, True, False, False]), most_epochs=40)
    predicted = fit.predict(x)
    np.testing.assert_allclose(predicted[:, 2], 2.5)
    np.testing.assert_allclose(predicted[:, 3], y[:, 3].mean())
    assert fit.held_out_error.min() < 0.05
    with pytest.raises(ValueError, match="0 testable joints"):
        fit_mlp(x, y, train, seed=0, testable=np.zeros(4, dtype=bool))


def test_units_and_offsets_of_latents_and_joints_do_not_matter() -> None:
    x, y, train = rows(6, 7, bent=True)
    plain = fit_mlp(x, y, train, seed=0, most_epochs=5)
    moved = fit_mlp(x * 1000 + 5, y / 50 - 3, train, seed=0, most_epochs=5)
    np.testing.assert_allclose(moved.predict(x * 1000 + 5), plain.predict(x) / 50 - 3, atol=1e-3)


def test_bad_rows_are_refused() -> None:
    x, y, train = rows(6, 8, bent=False)
    with pytest.raises(ValueError, match="only 1 training episode"):
        fit_mlp(x, y, EpisodeClusters.of(np.zeros(len(x))), seed=0)
    with pytest.raises(ValueError, match="fitted to 8 features"):
        fit_mlp(x, y, train, seed=0, most_epochs=1).predict(x[:, :5])
    x[3, 2] = np.nan
    with pytest.raises(ValueError, match="row 3, column 2"):
        fit_mlp(x, y, train, seed=0)
