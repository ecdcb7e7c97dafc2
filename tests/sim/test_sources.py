"""Sources have the distribution that they say, at every alpha; pairs their correlation and marginals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.special import gamma
from scipy.stats import gennorm, kstest, laplace, norm

from sim.sources import Source, check_stationary, draw_pairs, langevin, marginal_error, move

ALPHAS = [2.0**power for power in range(-3, 6)]
COUNT = 100_000


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _gennorm(alpha: float) -> Source:
    return Source(name="gennorm", alpha=alpha)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_draws_have_the_distribution_and_no_atoms(alpha: float) -> None:
    source = _gennorm(alpha)
    z = source.sample((COUNT,), _generator()).numpy()
    assert z.dtype == np.float32
    scale = math.sqrt(gamma(1 / alpha) / gamma(3 / alpha))
    assert source.scale == pytest.approx(scale, rel=1e-12)
    assert kstest(z.astype(float), gennorm(alpha, scale=scale).cdf).pvalue > 1e-3
    # |z| alone as well: an atom at one |z|, or nothing below it, would show there at twice the size
    assert kstest(np.abs(z).astype(float) / scale, lambda x: 2 * gennorm(alpha).cdf(x) - 1).pvalue > 1e-3
    assert np.unique(np.abs(z), return_counts=True)[1].max() <= 5
    small = gennorm(alpha, scale=scale).ppf(0.505)  # the 1 % nearest to 0
    assert (np.abs(z) < small).mean() == pytest.approx(0.01, abs=5 * math.sqrt(0.01 / COUNT))


@pytest.mark.parametrize("alpha", [alpha for alpha in ALPHAS if alpha >= 1])
def test_moments(alpha: float) -> None:
    z = _gennorm(alpha).sample((COUNT,), _generator(1)).double()
    moment = {n: gamma((n + 1) / alpha) * gamma(1 / alpha) ** (n / 2 - 1) for n in (2, 4, 8)}
    moment = {n: value / gamma(3 / alpha) ** (n / 2) for n, value in moment.items()}
    assert moment[2] == pytest.approx(1)
    error = math.sqrt((moment[4] - 1) / COUNT)
    assert z.mean().item() == pytest.approx(0, abs=5 / math.sqrt(COUNT))
    assert z.square().mean().item() == pytest.approx(1, abs=5 * error)
    kurtosis_error = math.sqrt((moment[8] - moment[4] ** 2) / COUNT)
    assert z.pow(4).mean().item() == pytest.approx(moment[4], abs=5 * kurtosis_error)


def test_names_density_and_force() -> None:
    assert Source().power == 2 and Source(name="laplace").power == 1
    z = np.linspace(-3, 3, 25)
    np.testing.assert_allclose(Source().density(z), norm.pdf(z), rtol=1e-12)
    np.testing.assert_allclose(Source(name="laplace").density(z), laplace.pdf(z, scale=0.5**0.5), rtol=1e-12)
    for alpha in (1.5, 2.0, 8.0):
        source, at = _gennorm(alpha), torch.tensor([-1.1, -0.3, 0.2, 0.9], dtype=torch.float64)
        slope = (np.log(source.density(at.numpy() + 1e-6)) - np.log(source.density(at.numpy() - 1e-6))) / 2e-6
        np.testing.assert_allclose(source.force(at).numpy(), slope, rtol=1e-6, atol=1e-9)


def test_draws_are_the_generators_and_nothing_else() -> None:
    before = torch.get_rng_state()
    for alpha in (0.5, 1.0, 2.0, 8.0):
        source = _gennorm(alpha)
        first = draw_pairs(source, 0.9, "published", (6, 2), _generator(3))
        torch.rand(7)
        again = draw_pairs(source, 0.9, "published", (6, 2), _generator(3))
        other = draw_pairs(source, 0.9, "published", (6, 2), _generator(4))
        assert all(torch.equal(a, b) for a, b in zip(first, again))
        assert not torch.equal(first[0], other[0])
    torch.set_rng_state(before)


@pytest.mark.parametrize("source", [Source(), Source(name="laplace"), _gennorm(8.0)], ids=str)
def test_published_pairs_correlate_by_the_square(source: Source) -> None:
    rho = 0.8
    first, second = (
        x.double().numpy() for x in draw_pairs(source, rho, "published", (COUNT,), _generator(5))
    )
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(rho**2, abs=0.01)
    # each is rho z + Gaussian noise, whose excess kurtosis is rho^4 times the source's
    expected = rho**4 * (gennorm.stats(source.power, moments="k") if source.power != 2 else 0.0)
    for member in (first, second):
        assert member.var() == pytest.approx(1, abs=0.03)
        assert (member**4).mean() / member.var() ** 2 - 3 == pytest.approx(float(expected), abs=0.25)


def test_ou_is_stationary_for_the_gaussian_only() -> None:
    for source, stays in ((Source(), True), (_gennorm(1.0), False), (_gennorm(32.0), False)):
        found = marginal_error(source, 0.6, "ou", COUNT, _generator(6))
        assert found.correlation == pytest.approx(0.6, abs=0.01)
        assert found.variance == pytest.approx(1, abs=0.03)
        assert found.by_chance == pytest.approx(1.36 / math.sqrt(COUNT))
        assert (found.kolmogorov < 1.5 * found.by_chance) is stays


STATIONARY = [(1.0, 0.5), (1.0, 0.95), (1.2, 0.9), (2.0, 0.95), (4.0, 0.9), (32.0, 0.9), (32.0, 0.99)]


@pytest.mark.parametrize("alpha, rho", STATIONARY)
def test_stationary_pairs_keep_the_distribution_and_have_the_correlation(alpha: float, rho: float) -> None:
    source = _gennorm(alpha)
    found = marginal_error(source, rho, "stationary", COUNT, _generator(7))
    assert found.kolmogorov < 1.5 * found.by_chance
    error = math.sqrt((gamma(5 / alpha) * gamma(1 / alpha) / gamma(3 / alpha) ** 2 - 1) / COUNT)
    assert found.variance == pytest.approx(1, abs=5 * error)
    # the correlation's error over n pairs, with room for heavy tails
    assert found.correlation == pytest.approx(rho, abs=10 * (1 - rho**2) / math.sqrt(COUNT))


def test_laplace_noise_does_not_depend_on_where_it_starts() -> None:
    """Additive: z' - rho z is 0 with probability rho^2 and Laplace otherwise, near 0 as in the tail."""
    rho = 0.7
    for start in (0.0, -2.5):
        z = torch.full((COUNT,), start)
        noise = (move(Source(name="laplace"), rho, "stationary", z, _generator(8)) - rho * z).double().numpy()
        still = np.abs(noise) < 1e-6
        assert still.mean() == pytest.approx(rho**2, abs=5 * math.sqrt(0.25 / COUNT))
        assert kstest(noise[~still], laplace(scale=0.5**0.5).cdf).pvalue > 1e-3


def test_the_diffusion_of_the_gaussian_is_ornstein_uhlenbeck() -> None:
    for rho in (0.3, 0.9, 0.99):
        how = langevin(_gennorm(2.0), rho)
        assert how.gap == pytest.approx(1, rel=1e-4)
        assert how.time == pytest.approx(-math.log(rho), rel=2e-3)  # what a cell forgets is made up for
        z = Source().sample((COUNT,), _generator(11)).double()
        noise = how(z, _generator(12)) - rho * z
        spread = math.sqrt(1 - rho**2)
        for part in (noise, noise[z.abs() < 0.5], noise[z > 1.5]):  # the same wherever it starts
            assert part.mean().item() == pytest.approx(0, abs=5 * spread / math.sqrt(len(part)))
            assert part.std().item() == pytest.approx(spread, rel=5 / math.sqrt(2 * len(part)))


@pytest.mark.parametrize("alpha", [1.5, 4.0])
def test_langevin_is_what_many_plain_small_steps_do(alpha: float) -> None:
    """Euler's scheme with steps a tenth as long from one start: the transition, not only its marginal."""
    source, rho, start = _gennorm(alpha), 0.8, 0.9
    how = langevin(source, rho)
    z, generator = torch.full((COUNT,), start, dtype=torch.float64), _generator(9)
    steps = math.ceil(how.time / 2e-4)
    for _ in range(steps):
        noise = torch.randn(z.shape, generator=generator, dtype=torch.float64)
        z = z + source.force(z) * how.time / steps + math.sqrt(2 * how.time / steps) * noise
    ours = move(source, rho, "stationary", torch.full((COUNT,), start), _generator(10)).double()
    assert kstest(ours.numpy(), z.numpy()).pvalue > 1e-3
    assert ours.mean().item() == pytest.approx(z.mean().item(), abs=5 * z.std().item() * math.sqrt(2 / COUNT))
    assert ours.var().item() == pytest.approx(z.var().item(), rel=5 * 2 / math.sqrt(COUNT))


def test_below_alpha_one_there_are_no_stationary_pairs() -> None:
    for alpha in (0.125, 0.5):
        with pytest.raises(ValueError, match=f"alpha {alpha:g} have independent draws only.*no spectral gap"):
            draw_pairs(_gennorm(alpha), 0.9, "stationary", (4,), _generator())
        assert not _gennorm(alpha).stationary_pairs
    check_stationary(_gennorm(1.0), 0.9)
    with pytest.raises(ValueError, match=r"alpha 4 need rho up to 0\.999, not 0\.9999"):
        check_stationary(_gennorm(4.0), 0.9999)
    check_stationary(Source(), 0.9999)
    with pytest.raises(ValueError, match="neither member is the step of the other"):
        move(Source(), 0.9, "published", torch.zeros(3), _generator())


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"name": "gennorm"}, "gennorm needs alpha"),
        ({"name": "laplace", "alpha": 1.0}, "laplace has no alpha, which is for gennorm"),
        ({"name": "gennorm", "alpha": 1000.0}, "less than or equal to 64"),
        ({"name": "cauchy"}, "'gaussian', 'laplace' or 'gennorm'"),
        ({"name": "gennorm", "alfa": 2.0}, "alfa"),
    ],
)
def test_what_is_wrong_is_said(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Source.model_validate(wrong)
