"""Which states a pair set of the Reacher holds, and which of them are pairs.

    ou      z ~ N(0, I), z' = rho z + sqrt(1 - rho^2) eta, the angles in rad are z: the theorem's transition
            (arXiv 2605.26379). One z for all rho, as published, so its images are shared
    traj    ten pairs of rows `delta` apart in each episode, the first row uniform
    eval    z ~ N(0, I), single states

What is drawn depends on the seed and on the value of rho or delta, never on the other values of the set. The
published seed of z, 9999, is our default, but which generator drew the published states is not known: ours
are other draws of the same distribution, by numpy's SeedSequence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hardware.errors import InputError
from sim.reacher_trajectories import Episodes

Condition = Literal["ou", "traj", "eval"]

PUBLISHED_SEED = 9999
RHOS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
PAIRS_PER_EPISODE = 10

# Streams of a seed; 5 is that of simulated episodes.
_Z, _ETA, _EVALUATION, _ROWS = 1, 2, 3, 4


@dataclass(frozen=True)
class Draw:
    """The content of a pair set.

    Attributes
    ----------
    condition : see the module.
    values : rho or delta of each set of pairs; none for `eval`.
    states : (U, 2), rad, each once.
    pairs : one int64 (P, 2) a value, rows of `states`.
    episodes : (U,), the episode of each state, for `traj`.
    seed : what it was drawn with.
    source : for `traj`, where the episodes come from.
    """

    condition: Condition
    values: tuple[float, ...]
    states: np.ndarray
    pairs: tuple[np.ndarray, ...]
    seed: int
    episodes: np.ndarray | None = None
    source: dict[str, Any] | None = None

    @property
    def count(self) -> int:
        """Pairs a value, or single states."""
        return len(self.pairs[0]) if self.pairs else len(self.states)

    @property
    def sha256(self) -> str:
        """Of states and pairs."""
        digest = hashlib.sha256(np.ascontiguousarray(self.states, "<f8").tobytes())
        for pairs in self.pairs:
            digest.update(np.ascontiguousarray(pairs, "<i8").tobytes())
        return digest.hexdigest()


def draw_ou(rhos: Sequence[float], count: int, seed: int = PUBLISHED_SEED) -> Draw:
    """Pairs of the Ornstein-Uhlenbeck transition.

    Parameters
    ----------
    rhos : correlations, each within [0, 1).
    count : pairs of each.

    Raises
    ------
    InputError : no rho, one twice, or one that is none.
    """
    _require_values("--rho", rhos, [rho for rho in rhos if not 0 <= rho < 1], "within [0, 1)")
    z = _generator(seed, _Z).standard_normal((count, 2))
    second = [
        rho * z + np.sqrt(1 - rho**2) * _generator(seed, _ETA, round(rho * 1e9)).standard_normal((count, 2))
        for rho in rhos
    ]
    first = np.arange(count, dtype=np.int64)
    pairs = tuple(np.stack([first, first + (number + 1) * count], 1) for number in range(len(rhos)))
    return Draw("ou", tuple(map(float, rhos)), np.concatenate([z, *second]), pairs, seed)


def draw_evaluation(count: int, seed: int = PUBLISHED_SEED) -> Draw:
    """Single states; none is a state of an `ou` set of the same seed."""
    return Draw("eval", (), _generator(seed, _EVALUATION).standard_normal((count, 2)), (), seed)


def draw_trajectory(
    episodes: Episodes, deltas: Sequence[int], count: int, seed: int = PUBLISHED_SEED
) -> Draw:
    """Pairs of rows within episodes: of the first `count / 10` episodes, rounded up, ten each.

    Parameters
    ----------
    deltas : strides, in rows.
    count : pairs of each.

    Raises
    ------
    InputError : too few episodes, or one that is too short for a stride.
    """
    wrong = [delta for delta in deltas if delta < 1 or delta != int(delta)]
    _require_values("--delta", deltas, wrong, "a whole number of rows from 1 on")
    used = -(-count // PAIRS_PER_EPISODE)
    if used > len(episodes):
        raise InputError(
            "--pairs",
            f"{count:,} need {used:,} episodes of {PAIRS_PER_EPISODE} each; {episodes.name} has "
            f"{len(episodes):,}",
            f"ask for up to {len(episodes) * PAIRS_PER_EPISODE:,}",
        )
    lengths = np.repeat(episodes.lengths[:used], PAIRS_PER_EPISODE)[:count]
    offsets = np.repeat(episodes.offsets[:used], PAIRS_PER_EPISODE)[:count]
    rows = []
    for delta in map(int, deltas):
        short = np.flatnonzero(lengths <= delta)
        if len(short):
            which = int(short[0]) // PAIRS_PER_EPISODE
            raise InputError(
                "--delta",
                f"{delta} rows do not fit into episode {which} of {episodes.name}, which has "
                f"{lengths[short[0]]}",
                "take smaller strides",
            )
        first = offsets + _generator(seed, _ROWS, delta).integers(0, lengths - delta)
        rows.append(np.stack([first, first + delta], axis=1))
    kept, places = np.unique(np.stack(rows), return_inverse=True)
    places = places.reshape(len(rows), count, 2)
    own = np.argsort(episodes.offsets[:used], kind="stable")
    number = own[np.searchsorted(episodes.offsets[:used][own], kept, side="right") - 1]
    source = {
        "name": episodes.name,
        "episodes": len(episodes),
        "used": used,
        "pairs_per_episode": PAIRS_PER_EPISODE,
        "sha256": episodes.sha256,
        "sha256_of": "lengths, offsets (int64) and qpos (float64) of all episodes",
    }
    return Draw(
        "traj",
        tuple(map(float, deltas)),
        episodes.qpos[kept],
        tuple(np.ascontiguousarray(one, np.int64) for one in places),
        seed,
        number.astype(np.int64),
        source,
    )


def _require_values(where: str, values: Sequence[float], wrong: Sequence[float], wanted: str) -> None:
    if not values:
        raise InputError(where, "names no value", "give one, or several separated by commas")
    if wrong:
        raise InputError(where, f"{wrong[0]:g} is not {wanted}")
    if len(set(values)) < len(values):
        raise InputError(where, "names a value twice", "give each once")


def _generator(seed: int, *stream: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=stream))
