"""The OU walk against its definition: the law at the knots, what is refused, minimum jerk between knots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hardware.errors import InputError
from hardware.motions import (
    PEAK_OF_MINIMUM_JERK,
    WalkPlan,
    WalkSettings,
    blend,
    knot_correlation,
    minimum_jerk,
    walk_knots,
)

WIDE = np.array([[-100.0, 100.0], [-50.0, 50.0], [-20.0, 60.0]])  # far limits: hardly a draw is refused


def free_walk(seed: int, rho: float = 0.9, n_knots: int = 10_000) -> WalkPlan:
    settings = WalkSettings(rho=rho, sigma_fraction=0.1, max_velocity_rad_s=100, knot_period_s=60)
    return walk_knots(settings, WIDE, n_knots, None, np.random.default_rng(seed))


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_knots_follow_the_stationary_gaussian_law(rho: float) -> None:
    plan = free_walk(3, rho)
    assert plan.rejected == {} and plan.acceptance == 1.0
    z = plan.standardised
    effective = len(z) * (1 - rho) / (1 + rho)  # an autoregression of n values knows its mean like so many
    assert np.all(np.abs(z.mean(axis=0)) < 4 / np.sqrt(effective))
    assert np.all(np.abs(z.std(axis=0) - 1) < 4 / np.sqrt(effective))
    # normal marginals, on knots far enough apart to be independent
    apart = z[:: 1 if rho == 0 else int(np.ceil(np.log(0.01) / np.log(rho)))]
    assert all(stats.kstest(apart[:, joint], "norm").pvalue > 1e-3 for joint in range(3))
    # isotropic: joints are uncorrelated with each other, at the same knot
    off_diagonal = np.corrcoef(z.T)[np.triu_indices(3, 1)]
    assert np.all(np.abs(off_diagonal) < 4 / np.sqrt(effective))


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 0.99])
def test_consecutive_knots_have_correlation_rho(rho: float) -> None:
    plan = free_walk(5, rho)
    assert np.all(np.abs(plan.correlation() - rho) < 4 * np.sqrt((1 - rho**2) / len(plan.knots)))
    # the residual of the transition is white and has the stated variance
    eta = (plan.standardised[1:] - rho * plan.standardised[:-1]) / np.sqrt(1 - rho**2)
    assert np.all(np.abs(eta.std(axis=0) - 1) < 4 / np.sqrt(2 * len(eta)))


def test_a_walk_starts_from_the_stationary_law() -> None:
    starts = np.concatenate([free_walk(seed, n_knots=1).standardised for seed in range(400)])
    assert stats.kstest(starts.ravel(), "norm").pvalue > 1e-3


def test_sigma_is_the_stated_share_of_half_the_range_about_the_stated_centre() -> None:
    plan = free_walk(0, n_knots=2)
    np.testing.assert_allclose(plan.sigma, [10.0, 5.0, 4.0])
    np.testing.assert_allclose(plan.centre, [0.0, 0.0, 20.0])


def test_pooled_correlation_pairs_no_knots_of_different_walks() -> None:
    one, other = free_walk(1, 0.9, 50), free_walk(2, 0.9, 50)
    a, b = one.standardised, other.standardised
    before, after = np.vstack([a[:-1], b[:-1]]), np.vstack([a[1:], b[1:]])
    by_hand = (before * after).sum(0) / np.sqrt((before**2).sum(0) * (after**2).sum(0))
    np.testing.assert_allclose(knot_correlation([one, other]), by_hand)
    assert np.isnan(free_walk(1, 0.9, 1).correlation()).all()


def test_refused_draws_are_counted_and_no_refused_knot_is_kept() -> None:
    limits = np.array([[-1.0, 1.0], [-1.0, 1.0]])
    settings = WalkSettings(rho=0.5, sigma_fraction=0.25, margin_rad=0.3, max_velocity_rad_s=3.2)

    def allowed(position: np.ndarray) -> str | None:
        return "table" if position[0] + position[1] < -0.2 else None

    plan = walk_knots(settings, limits, 2000, allowed, np.random.default_rng(1))
    assert np.all(np.abs(plan.knots) <= 0.7)
    assert all(allowed(knot) is None for knot in plan.knots)
    steps = np.abs(np.diff(plan.knots, axis=0))
    assert steps.max() * PEAK_OF_MINIMUM_JERK / settings.knot_period_s <= settings.max_velocity_rad_s
    assert set(plan.rejected) <= {"limits", "velocity", "table", "table between knots"}
    assert plan.rejected["limits"] > 0 and plan.rejected["table"] > 100
    assert plan.draws == 2000 + sum(plan.rejected.values())
    assert plan.acceptance == pytest.approx(2000 / plan.draws)


def test_the_path_between_knots_is_asked_about_too() -> None:
    limits = np.array([[-2.0, 2.0]])

    def post(position: np.ndarray) -> str | None:  # a thin post at 0 that no knot is likely to hit
        return "post" if abs(position[0]) < 0.1 else None

    settings = WalkSettings(rho=0.0, sigma_fraction=0.25, path_points=20, knot_period_s=4)
    plan = walk_knots(settings, limits, 300, post, np.random.default_rng(2))
    assert plan.rejected["post between knots"] > 100
    assert len(set(np.sign(plan.knots[:, 0]))) == 1  # it never got past


def test_same_generator_same_walk() -> None:
    one, again, other = free_walk(7, n_knots=20), free_walk(7, n_knots=20), free_walk(8, n_knots=20)
    np.testing.assert_array_equal(one.knots, again.knots)
    assert not np.array_equal(one.knots, other.knots)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rho": 1.0}, "rho"),
        ({"knot_period_s": 0.5}, "knot_period_s"),
        ({"sigma_fraction": 0.3}, "sigma_fraction"),
        ({"sigma_fraction": float("nan")}, "sigma_fraction"),
        ({"max_velocity_rad_s": 0.0}, "max_velocity_rad_s"),
        ({"path_points": -1}, "path_points"),
    ],
)
def test_settings_outside_their_bounds_are_named(change: dict, named: str) -> None:
    with pytest.raises(InputError, match=named):
        WalkSettings(**change)


def test_a_period_too_short_for_the_velocity_limit_names_the_one_that_does() -> None:
    limits = np.array([[-3.0, 3.0]])
    fast = WalkSettings(rho=0.5, sigma_fraction=0.25, max_velocity_rad_s=4.0)
    with pytest.raises(InputError, match=r"take (\d+\.\d+) s or more") as error:
        walk_knots(fast, limits, 5, None, np.random.default_rng(0))
    needed = float(str(error.value).split("take ")[1].split(" s")[0])
    walk_knots(
        WalkSettings(rho=0.5, sigma_fraction=0.25, max_velocity_rad_s=4.0, knot_period_s=needed),
        limits,
        5,
        None,
        np.random.default_rng(0),
    )


def test_a_walk_with_nowhere_to_go_ends_with_a_remedy() -> None:
    with pytest.raises(InputError, match="10 draws in a row were refused") as error:
        walk_knots(
            WalkSettings(max_redraws=10), np.array([[-1, 1]]), 5, lambda q: "table", np.random.default_rng(0)
        )
    assert "centre_rad" in error.value.remedy


def test_a_centre_outside_the_soft_limits_or_of_another_arm_is_refused() -> None:
    limits = np.array([[-1.0, 1.0], [-1.0, 1.0]])
    with pytest.raises(InputError, match=r"joint 1 at 0\.970"):
        walk_knots(WalkSettings(centre_rad=(0.0, 0.97)), limits, 5, None, np.random.default_rng(0))
    with pytest.raises(InputError, match="1 angles for 2 joints"):
        walk_knots(WalkSettings(centre_rad=(0.0,)), limits, 5, None, np.random.default_rng(0))


finite = st.floats(-3, 3)


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=6), st.floats(0.1, 5))
def test_minimum_jerk_passes_its_knots_at_rest_and_never_leaves_their_box(
    points: list[tuple[float, float]], period_s: float
) -> None:
    knots = np.array(points)
    at_knots = minimum_jerk(knots, period_s, np.arange(len(knots)) * period_s)
    np.testing.assert_allclose(at_knots, knots, atol=1e-9)
    # rest at each knot: displacement over a time h about it falls as h^3
    h = 1e-3
    for side in (-h, h):
        near = minimum_jerk(knots, period_s, (np.arange(len(knots)) + side) * period_s)
        assert np.all(np.abs(near - knots) <= 10 * h**3 * 6.001 + 1e-12)
    dense = minimum_jerk(knots, period_s, np.linspace(-1, len(knots) + 1, 200) * period_s)
    assert np.all(dense >= knots.min(axis=0) - 1e-12) and np.all(dense <= knots.max(axis=0) + 1e-12)
    assert minimum_jerk(knots, period_s, 0.0).shape == (2,)


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_blend_rises_and_is_symmetric(u: float, v: float) -> None:
    low, high = min(u, v), max(u, v)
    assert blend(low) <= blend(high) + 1e-12
    assert float(blend(u) + blend(1 - u)) == pytest.approx(1.0)


def test_the_peak_speed_is_the_stated_one() -> None:
    u = np.linspace(0, 1, 100_001)
    assert np.gradient(blend(u), u).max() == pytest.approx(PEAK_OF_MINIMUM_JERK, rel=1e-6)
