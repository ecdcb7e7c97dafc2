"""The probe that needs no encoder: from frames averaged down to 16 x 16 grey pixels to joints, by ridge.

Weak, but it sees what the checks need to see: which view shows which joints, how many rows late the frames
are, whose frames an episode has. Frames and joints are taken about each episode's own mean: what differs
between episodes (lighting, a neutral that moved) is no motion, and with few episodes it would decide all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve

from hardware.alignment import align
from hardware.checks.frames import Look
from hardware.errors import InputError
from hardware.recording import Recording
from probe.clusters import EpisodeClusters, balanced_folds
from probe.moments import FloatArray, Moments
from probe.ridge import ridge_path
from probe.spectrum import feature_scale

ALPHAS = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6]
FOLDS = 10
MIN_ROWS = 30  # an episode with fewer rows enters no check
MIN_STD = {"rad": 0.02, "percent": 1.0, "source": 1e-9}  # a joint that moves less cannot be tested


@dataclass(frozen=True, eq=False)
class PixelRows:
    """One view of a recording, row by row: N frames that show something, and the joints at their times.

    Attributes
    ----------
    small : RGB uint8 (N, 16, 16, 3), rows of an episode together and in their order.
    position : float64 (N, J), in the recording's units.
    clusters : the rows' episodes.
    moving : bool (J,), joints that move enough within episodes to be tested.
    """

    view: str
    joints: tuple[str, ...]
    small: NDArray[np.uint8]
    position: FloatArray
    clusters: EpisodeClusters
    moving: NDArray[np.bool_]

    @property
    def features(self) -> FloatArray:
        """Grey levels from 0 to 1, (N, 256)."""
        return self.small.mean(axis=3).reshape(len(self.small), -1) / 255.0

    @property
    def episodes(self) -> list[int]:
        return [int(label) for label in self.clusters.labels]

    @cached_property
    def held_out(self) -> HeldOut:
        """What `held_out` says of all joints, each about the mean of its episode; several checks ask."""
        x, y = centred(self.features, self.clusters), centred(self.position, self.clusters)
        return held_out(x, y, self.clusters, self.moving)


def pixel_rows(recording: Recording, looks: Sequence[Look]) -> dict[str, PixelRows]:
    """The rows of each view that can be probed; a view without any is left out.

    Left out are episodes that cannot be read to the end, have fewer than 30 rows, or are black for more than
    half; of the others all rows are kept, black ones too, so that rows keep their distance in time.
    """
    found = {}
    for view in recording.info.view_names:
        parts = [rows for look in looks if look.view == view and (rows := _rows_of(recording, look))]
        if parts:
            small, position, labels = (np.concatenate(each) for each in zip(*parts))
            clusters = EpisodeClusters.of(labels)
            moving = moving_joints(recording, position, clusters)
            found[view] = PixelRows(
                view, tuple(recording.info.joint_names), small, position, clusters, moving
            )
    return found


def _rows_of(recording: Recording, look: Look) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    if look.error or look.frame_count < MIN_ROWS or look.black.mean() > 0.5:
        return None
    try:
        aligned = align(recording.episode(look.episode), [look.view])
    except InputError:
        return None  # other checks say what is wrong with the file
    there = aligned.anchor_frame < look.frame_count
    if there.sum() < MIN_ROWS:
        return None
    small = look.small[aligned.anchor_frame[there]]
    return small, aligned.position[there], np.full(len(small), look.episode)


def moving_joints(recording: Recording, position: FloatArray, clusters: EpisodeClusters) -> NDArray[np.bool_]:
    """Joints that move enough within episodes to be tested, bool [J], of positions [N, J]."""
    least = np.array([MIN_STD[joint.unit] for joint in recording.info.joints])
    return centred(position, clusters).std(axis=0) >= least


def centred(values: NDArray[Any], clusters: EpisodeClusters) -> FloatArray:
    """Values [N, K] about the mean of their episode."""
    mean = clusters.sums(values) / clusters.count[:, None]
    return np.asarray(values, dtype=np.float64) - mean[clusters.index]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What a ridge probe says of rows whose episode it has not seen: prediction [N, J], and its alpha."""

    prediction: FloatArray
    alpha: float


def held_out(
    x: NDArray[Any], y: NDArray[Any], clusters: EpisodeClusters, moving: NDArray[np.bool_] | None = None
) -> HeldOut:
    """Predict every row's joints by a probe fitted to other episodes; alpha by the same leaving-out.

    Alpha has the highest mean R2, in which a joint below 0 counts as 0: the joints that a view does not show
    must not decide how well it reads those that it does.

    Parameters
    ----------
    x, y : features [N, D] and joints [N, J].
    moving : bool [J], the joints that choose alpha.

    Raises
    ------
    ValueError : fewer than two episodes, or values that are not finite.
    """
    path = ridge_path(x, y, clusters, alphas=ALPHAS, folds=FOLDS)
    table = np.nan_to_num(path.joint_scores(), nan=0.0).clip(min=0.0)  # [A, J]
    score = (table if moving is None or not moving.any() else table[:, moving]).mean(axis=1)
    alpha = float(path.alphas[np.flatnonzero(score >= score.max() - 1e-12)[-1]])
    return HeldOut(predict_held_out(x, y, clusters, alpha), alpha)


def predict_held_out(
    x: NDArray[Any], y: NDArray[Any], clusters: EpisodeClusters, alpha: float, *, centre: bool = False
) -> FloatArray:
    """The predictions [N, J] of `held_out` at a given alpha.

    With `centre` the slope is fitted to rows about their episode's mean and then applied to rows about the
    mean of all: every prediction is slope (x - mean(x)), so that y less it holds each episode's level.
    """
    folds = clusters.merged(balanced_folds(clusters.count, FOLDS))
    middle = x.mean(axis=0) if centre else 0.0
    moments = Moments.of(centred(x, clusters) if centre else x, centred(y, clusters) if centre else y, folds)
    prediction = np.empty((len(x), y.shape[1]))
    for fold in range(len(folds)):
        rows = folds.rows(fold)
        slope, mean, level = slope_at(moments.total(leaving_out=fold), alpha)
        prediction[rows] = (x[rows] - middle - mean) @ slope + level
    return prediction


def slope_at(moments: Moments, alpha: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The ridge fit of `probe.ridge.refit_ridge`, by one Cholesky solve: a scan needs hundreds of fits, each
    at a known alpha, and for one alpha a decomposition into eigenvectors takes several times as long.

    Returns
    -------
    slope [D, J], mean of x [D], mean of y [J]; prediction = (x - mean) slope + mean of y.
    """
    n = float(moments.count[0])
    mean, level = moments.x_sum[0] / n, moments.y_sum[0] / n  # about the origins
    second = np.einsum("ii->i", moments.xx[0]) / n
    kept, scale = feature_scale(second - mean**2, second, moments.x_origin + mean, n)
    inverse = np.where(kept, 1 / scale, 0.0)
    # (Xs'Xs + alpha) w = Xs'Y      Xs'Xs = diag(1/s) (X'X - n m m') diag(1/s)
    gram = (moments.xx[0] - n * np.outer(mean, mean)) * inverse[:, None] * inverse
    cross = (moments.xy[0] - n * np.outer(mean, level)) * inverse[:, None]
    np.einsum("ii->i", gram)[...] += alpha
    weight = solve(gram, cross, assume_a="pos", overwrite_a=True, overwrite_b=True, check_finite=False)
    return weight * inverse[:, None], moments.x_origin + mean, moments.y_origin + level
