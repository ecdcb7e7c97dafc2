"""Action chunks: which rows can be ranked at, what was sent after each and what else could have been, and how
far what a model predicts after each lies from what was observed.

A chunk of horizon H at row t holds the actions in force at rows t, t+1, ..., t+H-1: what was sent, held
until the next. All of it lies in the future of row t; what was sent before is common to all candidates.

H counts rows, so a row must mean the same time everywhere. A step between neighbouring rows counts when it
lasts 0.6 to 1.6 times the usual step (the median over the training rows); a window is valid when every step
from its first history row to row t+H counts and an action is in force at each of its rows but the last. Hence
- dropped rows: no window reaches across the gap they leave;
- rows thinned evenly to every k-th one: a chunk spans H thinned rows, k times as long, its actions are those
  in force at the thinned rows, and steps of k and k+1 frames count as the same from k = 2 on;
- an episode with another pace than the training rows (thinned more, or less) has no valid window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hardware.alignment import held_actions, steady_steps, unbroken
from hardware.errors import InputError
from probe.clusters import EpisodeClusters
from probe.moments import FloatArray
from probe.ridge import RidgeFit, fit_ridge

if TYPE_CHECKING:
    from encoders.latents import EpisodeLatents
    from hardware.episode import Episode

Distractors = Literal["hard", "easy"]
IntArray = NDArray[np.int64]

ALPHAS = tuple(10.0**power for power in range(-3, 8))

MOST_COMPONENTS = 256  # directions of the latents that distances are taken in
_ABSENT = 1e-6  # a direction with a standard deviation below this share of the largest is rounding of float32
_BLOCK = 4_000_000  # numbers held at once: bounds the memory whatever the number of anchors
_KINDS: tuple[Distractors, ...] = ("hard", "easy")


@dataclass(frozen=True, eq=False)
class TimedRows:
    """Rows of one split in their order in time, episode after episode.

    Attributes
    ----------
    latents, joints : [N, D] and [N, J], finite.
    actions : [N, A], the action in force at each row; NaN where none had been sent yet (`held_actions`).
    time_ns : int64 [N], rising within an episode.
    episode : [N], labels; the rows of an episode lie together.

    Raises
    ------
    ValueError : shapes that disagree, values that are not finite, episodes or times out of order.
    """

    latents: NDArray[Any]
    joints: NDArray[Any]
    actions: NDArray[Any]
    time_ns: IntArray
    episode: NDArray[Any]

    def __post_init__(self) -> None:
        rows = len(self.episode)
        for name in ("latents", "joints", "actions"):
            values = getattr(self, name)
            if values.ndim != 2 or len(values) != rows or values.shape[1] == 0:
                raise ValueError(f"{name} must be [{rows}, at least 1], got shape {values.shape}")
            if name != "actions" and not np.isfinite(values).all():
                row = int(np.argmin(np.isfinite(values).all(axis=1)))
                raise ValueError(f"{name} of row {row}, episode {self.episode[row]}, are not finite")
        if self.time_ns.shape != (rows,):
            raise ValueError(f"time_ns must be [{rows}], got shape {self.time_ns.shape}")
        same = self.episode[1:] == self.episode[:-1]
        if rows and 1 + int((~same).sum()) != len(np.unique(self.episode)):
            raise ValueError("the rows of an episode must lie together, episode after episode")
        if np.any(np.diff(self.time_ns)[same] <= 0):
            row = int(np.argmax(same & (np.diff(self.time_ns) <= 0)))
            raise ValueError(f"time does not advance after row {row}, episode {self.episode[row]}")

    @property
    def clusters(self) -> EpisodeClusters:
        """The rows by episode."""
        return EpisodeClusters.of(self.episode)

    @property
    def step_ns(self) -> float:
        """Median time between neighbouring rows of an episode; NaN where no episode has two."""
        steps = np.diff(self.time_ns)[self.episode[1:] == self.episode[:-1]]
        return float(np.median(steps)) if len(steps) else float("nan")


def timed_rows(
    latents: Sequence[EpisodeLatents], episodes: Sequence[Episode], columns: Sequence[int]
) -> TimedRows:
    """Rows of extracted episodes with the actions in force at them.

    Parameters
    ----------
    latents, episodes : the same episodes in the same order.
    columns : of the recording's joints, those that are probed.

    Raises
    ------
    InputError : an episode without logged actions, or with none before its last row.
    """
    actions = []
    for rows, episode in zip(latents, episodes):
        log = episode.actions()
        if log is None or not len(log.time_ns):
            raise InputError(
                episode.path, "holds no actions, and ranking needs what was sent", "leave the ranking out"
            )
        held = held_actions(rows.time_ns, log.time_ns, log.target)
        if np.isnan(held).all():
            raise InputError(
                f"{episode.path}, actions",
                "all were sent after the last row",
                "see whether actions and frames share a clock",
            )
        actions.append(held)
    labels = np.repeat([episode.index for episode in episodes], [len(rows) for rows in latents])
    return TimedRows(
        np.concatenate([rows.latent for rows in latents]),
        np.concatenate([rows.position for rows in latents])[:, list(columns)],
        np.concatenate(actions),
        np.concatenate([rows.time_ns for rows in latents]),
        labels,
    )


def valid_anchors(rows: TimedRows, horizon: int, *, step_ns: float, history: int = 2) -> IntArray:
    """Rows t with a whole window: `history` rows up to t and `horizon` after it, no gap, actions throughout.

    `step_ns` is the usual step, of the training rows. The rule is this module's docstring.
    """
    if horizon < 1 or history < 2:
        raise ValueError(f"horizon must be 1 or more and history 2 or more: {horizon}, {history}")
    n, back = len(rows.episode), history - 1
    if n < back + horizon + 1:
        return np.zeros(0, np.int64)
    counts = steady_steps(rows.time_ns, step_ns) & (rows.episode[1:] == rows.episode[:-1])
    # a window is back + horizon steps, each with an action in force at its beginning
    return unbroken(counts & np.isfinite(rows.actions[:-1]).all(axis=1), back + horizon) + back


@dataclass(frozen=True, eq=False)
class Candidates:
    """The chunks to be ranked at each anchor.

    Attributes
    ----------
    horizon, history : rows a chunk spans; rows up to and with the anchor that a predictor is given.
    distractors : "hard" (other windows of the same episode) or "easy" (windows of other episodes).
    anchor : int64 [n], row t of each anchor.
    start : int64 [n, K], row at which each candidate begins; column 0 is the executed one, `anchor` itself.
    dropped : valid anchors left out because they have fewer than K-1 distractors.
    """

    horizon: int
    history: int
    distractors: Distractors
    anchor: IntArray
    start: IntArray
    dropped: int

    def __len__(self) -> int:
        return len(self.anchor)

    def chunks(self, actions: NDArray[Any], block: slice = slice(None)) -> NDArray[Any]:
        """The candidates' actions, [n, K, H, A], of all anchors or a `block` of them."""
        return actions[self.start[block][:, :, None] + np.arange(self.horizon)]


def draw_candidates(
    rows: TimedRows,
    horizon: int,
    distractors: Distractors,
    *,
    step_ns: float,
    seed: int | np.random.SeedSequence,
    candidates: int = 16,
    history: int = 2,
) -> Candidates:
    """Draw K-1 distractors, chunks of other valid anchors, for every valid anchor.

    hard : of the same episode. No two of the K chunks share a row; the episode's windows are taken as a
        circle, on which all such sets are equally likely. It takes K H windows; anchors of an episode that
        has fewer are dropped.
    easy : of K-1 different other episodes, all choices equally likely; of any other episodes where fewer than
        K have windows.

    So drawn, the executed chunk is as any other of its set, and a ranking that knows nothing scores chance
    (exactly so for hard ones, and for easy ones of episodes with equally many windows). Were distractors only
    kept off the executed chunk, it alone would have no near neighbour among the candidates, would come out
    extreme more often and win too often: on a real recording 0.075 instead of 0.0625 at K = H = 16. So it is
    for easy distractors of fewer than K episodes: 0.072 with ten.

    The draw depends on times, actions and seed alone, never on latents, so that all encoders on the same rows
    are asked the same questions.
    """
    if candidates < 2:
        raise ValueError(f"candidates = {candidates}: ranking needs the executed chunk and another")
    if distractors not in _KINDS:
        raise ValueError(f"distractors = {distractors!r}: expected 'hard' or 'easy'")
    anchors = valid_anchors(rows, horizon, step_ns=step_ns, history=history)
    parent = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    kind = _KINDS.index(distractors)
    stream = np.random.SeedSequence(parent.entropy, spawn_key=(*parent.spawn_key, kind, horizon))
    draw = _draw_hard if distractors == "hard" else _draw_easy
    kept, drawn = draw(np.random.default_rng(stream), rows.episode[anchors], candidates, horizon)
    start = np.concatenate([anchors[kept, None], anchors[drawn]], axis=1)
    return Candidates(horizon, history, distractors, anchors[kept], start, int((~kept).sum()))


class Predictor(Protocol):
    """An action-conditioned world model, in the encoder's own latents."""

    def predict(self, history: NDArray[Any], past: NDArray[Any], chunks: NDArray[Any]) -> NDArray[Any]:
        """Latents [n, K, D] at t+H after each of K chunks [n, K, H, A], strictly future actions.

        `history` [n, h, D] holds the latents of the last h rows, row t the last of them; `past` [n, h-1, A]
        the actions in force between these.
        """
        ...


@dataclass(frozen=True, eq=False)
class RidgePredictor:
    """The common predictor: ridge on [z_t, z_{t-1}, chunk] -> z_{t+H}; it does not use `past`."""

    fit: RidgeFit

    @classmethod
    def fitted(
        cls,
        latents: NDArray[Any],
        actions: NDArray[Any],
        anchors: IntArray,
        horizon: int,
        episodes: EpisodeClusters,
        *,
        alphas: Sequence[float] | FloatArray = ALPHAS,
        folds: int = 5,
    ) -> RidgePredictor:
        """Fit at the training rows `anchors` [n]; alpha by cross-validation over their `episodes`.

        Alpha has the best held-out R2 averaged over the columns of `latents`, so give them in the coordinates
        in which distances are taken.
        """
        chunk = actions[anchors[:, None] + np.arange(horizon)].reshape(len(anchors), -1)
        x = np.concatenate([latents[anchors], latents[anchors - 1], chunk], axis=1)
        return cls(fit_ridge(x, latents[anchors + horizon], episodes, alphas=alphas, folds=folds))

    def predict(self, history: NDArray[Any], past: NDArray[Any], chunks: NDArray[Any]) -> FloatArray:
        """As `Predictor.predict`; the history's part is computed once for all candidates."""
        n, candidates = chunks.shape[:2]
        weight = self.fit.coef / self.fit.scale[:, None]
        split = 2 * history.shape[2]
        state = np.concatenate([history[:, -1], history[:, -2]], axis=1)
        flat = chunks.reshape(n * candidates, -1)
        from_state = (state - self.fit.mean[:split]) @ weight[:split] + self.fit.intercept
        from_chunk = (flat - self.fit.mean[split:]) @ weight[split:]
        return from_state[:, None, :] + from_chunk.reshape(n, candidates, -1)


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Coordinates in which distances are taken: (values - mean [D]) @ matrix [D, R]."""

    mean: FloatArray
    matrix: FloatArray

    @classmethod
    def whitened(cls, training: NDArray[Any]) -> Coordinates:
        """Unit covariance over training rows [N, D]; directions that do not vary are left out (R <= D).

        Of wider latents only the `MOST_COMPONENTS` directions that vary most are kept: whitening gives every
        direction the same say, and among a thousand from a few thousand rows most are noise.
        """
        mean = training.mean(axis=0, dtype=np.float64)
        centred = training - mean
        values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
        kept = values > _ABSENT**2 * max(float(values[-1]), float(np.finfo(np.float64).tiny))
        kept[: max(len(values) - MOST_COMPONENTS, 0)] = False  # eigenvalues rise
        if not kept.any():
            raise ValueError("the latents are constant over the training rows: no distance can be taken")
        return cls(mean, vectors[:, kept] / np.sqrt(values[kept]))

    @classmethod
    def standardised(cls, training: NDArray[Any]) -> Coordinates:
        """Unit variance of each column over training rows [N, D]; columns that do not vary are left out."""
        moves = np.ptp(training, axis=0) > 0
        if not moves.any():
            raise ValueError("every column is constant over the training rows: no distance can be taken")
        std = training.std(axis=0, dtype=np.float64)
        return cls(training.mean(axis=0, dtype=np.float64), np.diag(1 / np.where(moves, std, 1.0))[:, moves])

    def __call__(self, values: NDArray[Any]) -> FloatArray:
        return (values - self.mean) @ self.matrix


def chunk_costs(
    predictor: Predictor,
    latents: NDArray[Any],
    actions: NDArray[Any],
    candidates: Candidates,
    space: Coordinates | None = None,
) -> FloatArray:
    """Distance [n, K] between the latent predicted after each candidate and the one observed at t+H.

    `latents` [N, D] are those the predictor speaks of; the distance is taken in `space`, None for in these.
    A candidate that is the executed chunk over again (an arm at rest) has its very cost: what a predictor in
    float32 makes of equal questions at different places of a batch may differ in the last digits.
    """
    n_candidates, width = candidates.start.shape[1], latents.shape[1]
    numbers = n_candidates * max(width, candidates.horizon * actions.shape[1])
    size = max(1, _BLOCK // numbers)
    before = np.arange(1 - candidates.history, 1)
    cost = np.empty(candidates.start.shape)
    for first in range(0, len(candidates), size):
        block = slice(first, first + size)
        anchor = candidates.anchor[block]
        chunks = candidates.chunks(actions, block)
        predicted = predictor.predict(
            latents[anchor[:, None] + before], actions[anchor[:, None] + before[:-1]], chunks
        )
        if predicted.shape != (len(anchor), n_candidates, width):
            raise ValueError(
                f"the predictor answered with shape {predicted.shape}, "
                f"expected {(len(anchor), n_candidates, width)}"
            )
        miss = predicted - latents[anchor + candidates.horizon][:, None, :]
        if space is not None:
            miss = miss @ space.matrix
        distance = np.sqrt(np.einsum("nkd,nkd->nk", miss, miss))
        same = (chunks == chunks[:, :1]).all(axis=(2, 3))
        cost[block] = np.where(same, distance[:, :1], distance)
    if not np.isfinite(cost).all():
        row = int(candidates.anchor[np.argmin(np.isfinite(cost).all(axis=1))])
        raise ValueError(f"the prediction at row {row} is not finite")
    return cost


def continuity_costs(actions: NDArray[Any], candidates: Candidates, space: Coordinates) -> FloatArray:
    """Distance [n, K] of each candidate's first action from the one in force before the anchor."""
    jump = (actions[candidates.start] - actions[candidates.anchor - 1][:, None, :]) @ space.matrix
    return np.sqrt(np.einsum("nka,nka->nk", jump, jump))


def _draw_hard(
    rng: np.random.Generator, episode: NDArray[Any], candidates: int, horizon: int
) -> tuple[NDArray[np.bool_], IntArray]:
    """Which of the n windows have distractors, bool [n], and theirs, positions [kept, K-1]."""
    begin, count, run = _runs(episode)
    size, place = count[run], np.arange(len(episode)) - begin[run]
    # K - 1 of m places, each at least H after the one before: as many ways as K - 1 of m - (K - 2)(H - 1)
    free = size - (2 * horizon - 1) - (candidates - 2) * (horizon - 1)
    kept = free >= candidates - 1
    steps = np.sort(_distinct(rng, free[kept], candidates - 1), axis=1)
    steps += np.arange(candidates - 1) * (horizon - 1) + horizon
    return kept, begin[run][kept, None] + (place[kept, None] + steps) % size[kept, None]


def _draw_easy(
    rng: np.random.Generator, episode: NDArray[Any], candidates: int, horizon: int
) -> tuple[NDArray[np.bool_], IntArray]:
    """As `_draw_hard`."""
    begin, count, run = _runs(episode)
    if len(begin) >= candidates:
        other = _distinct(rng, np.full(len(episode), len(begin) - 1), candidates - 1)
        other += other >= run[:, None]
        return np.ones(len(episode), bool), begin[other] + rng.integers(0, count[other])
    pool = len(episode) - count[run]
    kept = pool >= candidates - 1
    other = _distinct(rng, pool[kept], candidates - 1)
    return kept, np.where(other >= begin[run][kept, None], other + count[run][kept, None], other)


def _runs(episode: NDArray[Any]) -> tuple[IntArray, IntArray, IntArray]:
    """First position and length of each episode's run, [E], [E], and the run of each position, [n]."""
    begin = np.flatnonzero(np.concatenate([[True], episode[1:] != episode[:-1]])[: len(episode)])
    count = np.diff(np.append(begin, len(episode)))
    return begin, count, np.repeat(np.arange(len(begin)), count)


def _distinct(rng: np.random.Generator, pool: IntArray, count: int) -> IntArray:
    """`count` distinct numbers of 0 .. pool[i]-1 for each i, int64 [n, count], every subset equally likely.

    R. W. Floyd's algorithm (Bentley, "Programming pearls: a sample of brilliance", CACM 1987), all i at once.
    """
    chosen = np.empty((len(pool), count), np.int64)
    for taken in range(count):
        top = pool - count + taken
        number = rng.integers(0, top + 1)
        repeated = (chosen[:, :taken] == number[:, None]).any(axis=1)
        chosen[:, taken] = np.where(repeated, top, number)
    return chosen
