"""The isotropic random walk of the arm, as arrays: knots of an Ornstein-Uhlenbeck process, minimum jerk
between them.

In units of each joint's sigma the knots follow z' = rho z + sqrt(1 - rho^2) eta with eta ~ N(0, I), started
from the stationary law N(0, I). Gaussian marginals and the correlation rho hold at the knots, up to the
rejected draws that a plan counts; between knots the arm follows minimum-jerk segments, which are no such
process. Pairs for training are pairs of knots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from hardware.errors import InputError

PEAK_OF_MINIMUM_JERK = (
    1.875  # peak speed of a minimum-jerk segment over its mean speed: 30 u^2 (1-u)^2 at u = 1/2
)
SHORTEST_KNOT_PERIOD_S = 0.6
LARGEST_SIGMA_FRACTION = 0.25
_STEP_SIGMAS = (
    4.0  # the step that the velocity limit must leave room for; one in 16,000 is larger, and redrawn
)


@dataclass(frozen=True)
class WalkSettings:
    """What defines a walk.

    Parameters
    ----------
    rho : correlation between consecutive knots, in [0, 1).
    knot_period_s : seconds between knots, at least 0.6.
    sigma_fraction : each joint's sigma as a share of half its range, in (0, 0.25].
    max_velocity_rad_s : no segment may be faster anywhere; the expected four-sigma step must fit.
    margin_rad : how far the soft limits lie within the joint limits.
    centre_rad : mean of the walk, one angle a joint; None takes the middles of the ranges.
    path_points : how many points between two knots are asked about obstacles.
    max_redraws : refused draws in a row after which a walk gives up.
    """

    rho: float = 0.9
    knot_period_s: float = 0.6
    sigma_fraction: float = 0.22
    max_velocity_rad_s: float = 4.0
    margin_rad: float = 0.05
    centre_rad: tuple[float, ...] | None = None
    path_points: int = 3
    max_redraws: int = 10_000

    def __post_init__(self) -> None:
        _demand(0 <= self.rho < 1, "rho", self.rho, "at least 0 and less than 1")
        _demand(
            SHORTEST_KNOT_PERIOD_S <= self.knot_period_s <= 60,
            "knot_period_s",
            self.knot_period_s,
            "0.6 to 60 seconds",
        )
        _demand(
            0 < self.sigma_fraction <= LARGEST_SIGMA_FRACTION,
            "sigma_fraction",
            self.sigma_fraction,
            "more than 0 and at most a quarter of half the range",
        )
        _demand(
            0 < self.max_velocity_rad_s <= 100, "max_velocity_rad_s", self.max_velocity_rad_s, "more than 0"
        )
        _demand(0 <= self.margin_rad < 1, "margin_rad", self.margin_rad, "at least 0 and less than 1")
        _demand(0 <= self.path_points <= 100, "path_points", self.path_points, "0 to 100")
        _demand(self.max_redraws >= 1, "max_redraws", self.max_redraws, "at least 1")

    def describe(self) -> dict[str, object]:
        """The settings as plain values, for recording.yaml."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()
        }


def _demand(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise InputError(f"walk {name}", f"is {value}", f"must be {allowed}")


@dataclass(frozen=True)
class WalkPlan:
    """The knots of one walk.

    Attributes
    ----------
    knots : rad, float64 [k, J]; knot i is reached i * knot_period_s after the start.
    centre, sigma : rad, float64 [J].
    rejected : draws refused, by reason: "limits", "velocity", what `allowed` says, and that with " between
        knots".
    """

    knots: np.ndarray
    centre: np.ndarray
    sigma: np.ndarray
    rejected: dict[str, int] = field(default_factory=dict)

    @property
    def draws(self) -> int:
        """Knots drawn, kept or not."""
        return len(self.knots) + sum(self.rejected.values())

    @property
    def acceptance(self) -> float:
        """Share of the draws that were kept."""
        return len(self.knots) / self.draws

    @property
    def standardised(self) -> np.ndarray:
        """The knots in units of sigma about the centre, float64 [k, J]."""
        return (self.knots - self.centre) / self.sigma

    def correlation(self) -> np.ndarray:
        """Empirical correlation between consecutive knots about the known centre, per joint, float64 [J]; NaN
        under 2 knots.

        Sum z_i z_{i+1} over the root of (sum z_i^2)(sum z_{i+1}^2): with the mean known, no degree of freedom
        is spent on it.
        """
        return knot_correlation([self])


def knot_correlation(plans: Sequence[WalkPlan]) -> np.ndarray:
    """`WalkPlan.correlation` over several walks taken together, float64 [J]; no pair crosses from one walk to
    the next.
    """
    before = np.concatenate([plan.standardised[:-1] for plan in plans])
    after = np.concatenate([plan.standardised[1:] for plan in plans])
    if len(before) == 0:
        return np.full(before.shape[1], np.nan)
    return (before * after).sum(0) / np.sqrt((before**2).sum(0) * (after**2).sum(0))


def walk_knots(
    settings: WalkSettings,
    limits: np.ndarray,
    n_knots: int,
    allowed: Callable[[np.ndarray], str | None] | None,
    rng: np.random.Generator,
) -> WalkPlan:
    """Draw the knots of a walk; a knot that is refused is drawn again whole, from the same predecessor.

    Parameters
    ----------
    limits : lower and upper joint limits, rad, [J, 2].
    n_knots : how many knots, the start included.
    allowed : says for joint angles [J] what is hit there, or None; asked at each knot and between knots.
    rng : the only source of chance.

    Raises
    ------
    InputError : when the centre lies outside the soft limits, when the four-sigma step is too fast for the
        knot period, or when `max_redraws` draws in a row are refused.

    Notes
    -----
    The step between knots has standard deviation sigma sqrt(2 (1 - rho)) at rest in the stationary law; its
    minimum-jerk peak speed is 1.875 step / T. The period must leave room for four of these deviations in the
    fastest joint; the rare larger step is redrawn and counted, so no segment exceeds the limit. The minimum-
    jerk path is the straight line between knots, so asking about points of that line asks about the path, to
    the resolution of `path_points`.
    """
    limits = np.asarray(limits, float)
    lower, upper = limits[:, 0] + settings.margin_rad, limits[:, 1] - settings.margin_rad
    centre = _centre(settings, limits, lower, upper)
    sigma = settings.sigma_fraction * (limits[:, 1] - limits[:, 0]) / 2
    _check_speed(settings, sigma)
    if n_knots < 1:
        raise InputError("walk", f"has {n_knots} knots", "a walk has one knot at least: make it longer")
    largest_step = settings.max_velocity_rad_s * settings.knot_period_s / PEAK_OF_MINIMUM_JERK
    fractions = np.arange(1, settings.path_points + 1) / (settings.path_points + 1)
    innovation = np.sqrt(1 - settings.rho**2)

    def refusal(knot: np.ndarray, previous: np.ndarray | None) -> str | None:
        if (knot < lower).any() or (knot > upper).any():
            return "limits"
        if previous is not None and (np.abs(knot - previous) > largest_step).any():
            return "velocity"
        if allowed is None:
            return None
        reason = allowed(knot)
        if reason is None and previous is not None:
            for fraction in fractions:
                reason = allowed(previous + fraction * (knot - previous))
                if reason is not None:
                    return f"{reason} between knots"
        return reason

    knots: list[np.ndarray] = []
    rejected: Counter[str] = Counter()
    z = np.zeros(len(centre))
    for index in range(n_knots):
        for _attempt in range(settings.max_redraws):
            eta = rng.standard_normal(len(centre))
            candidate = (
                eta if index == 0 else settings.rho * z + innovation * eta
            )  # z' = rho z + sqrt(1 - rho^2) eta
            knot = centre + sigma * candidate
            reason = refusal(knot, knots[-1] if knots else None)
            if reason is None:
                break
            rejected[reason] += 1
        else:
            raise InputError(
                f"walk knot {index}",
                f"{settings.max_redraws} draws in a row were refused ({dict(rejected)} so far)",
                "move centre_rad away from what is hit, or make sigma_fraction smaller",
            )
        z = candidate
        knots.append(knot)
    return WalkPlan(
        knots=np.array(knots), centre=centre, sigma=sigma, rejected=dict(sorted(rejected.items()))
    )


def _centre(settings: WalkSettings, limits: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    centre = limits.mean(axis=1) if settings.centre_rad is None else np.asarray(settings.centre_rad, float)
    if centre.shape != lower.shape:
        raise InputError(
            "walk centre_rad", f"has {centre.size} angles for {len(limits)} joints", "give one angle a joint"
        )
    if not ((centre > lower) & (centre < upper)).all():
        joint = int(np.argmin(np.minimum(centre - lower, upper - centre)))
        raise InputError(
            "walk centre_rad",
            f"joint {joint} at {centre[joint]:.3f} rad lies outside its soft limits "
            f"{lower[joint]:.3f}..{upper[joint]:.3f}",
            "move it inside, or make margin_rad smaller",
        )
    return centre


def _check_speed(settings: WalkSettings, sigma: np.ndarray) -> None:
    step = _STEP_SIGMAS * float(sigma.max()) * np.sqrt(2 * (1 - settings.rho))
    needed_s = PEAK_OF_MINIMUM_JERK * step / settings.max_velocity_rad_s
    if needed_s > settings.knot_period_s:
        raise InputError(
            "walk knot_period_s",
            f"is {settings.knot_period_s} s, in which a four-sigma step of {step:.2f} rad passes "
            f"{settings.max_velocity_rad_s} rad/s",
            f"take {np.ceil(needed_s * 100) / 100:.2f} s or more, or a smaller sigma_fraction or larger rho",
        )


def minimum_jerk(knots: np.ndarray, period_s: float, time_s: np.ndarray | float) -> np.ndarray:
    """Minimum-jerk motion through `knots`, resting at each.

    Parameters
    ----------
    knots : [k, J]; knot i is reached at i * period_s.
    time_s : times, [n] or one number; before the first knot the first holds, after the last the last.

    Returns
    -------
    Positions, float64 [n, J], or [J] for one time.
    """
    knots = np.asarray(knots, float)
    progress = np.clip(np.asarray(time_s, float) / period_s, 0, len(knots) - 1)
    index = np.minimum(progress.astype(int), max(len(knots) - 2, 0))
    share = blend(progress - index)[..., None]
    following = np.minimum(index + 1, len(knots) - 1)
    return knots[index] + share * (knots[following] - knots[index])


def blend(u: np.ndarray | float) -> np.ndarray:
    """The minimum-jerk course from 0 to 1: 10 u^3 - 15 u^4 + 6 u^5 for u in [0, 1], clipped outside."""
    u = np.clip(np.asarray(u, float), 0.0, 1.0)
    return u**3 * (10 + u * (6 * u - 15))
