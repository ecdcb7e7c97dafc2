"""Is the map from joints to latents a rotation? What the paper claims, measured on held-out episodes.

The paper (Klindt, LeCun, Balestriero, arXiv 2605.26379, theorem 5.1) says that the latents are the world's
own state up to a rotation, h = Q z with Q orthogonal. Here z are the J joints, each divided by its standard
deviation over the training rows, and h the D latents as the encoder gives them. Neither is whitened: whitened
latents are a rotation of z for *any* invertible linear map, so whitening would erase what is asked. The
theorem speaks of state variables that move independently, as on the random walk; where demonstrations couple
joints, z itself is no isotropic state, and a rotation of it is not what the theorem promises.

Three questions, each weaker than the next needs, all fitted on training rows and scored on evaluation rows:

1. Is the state there, linearly?  R2 of the joints from the latents: the ridge probe itself.
2. Is little else there?  R2 of the latents from the joints, by least squares on J regressors. Low where the
   latents hold other things as well (objects, light, nonlinear copies of the joints).
3. Is it there as a rotation?  z = s Q h with one scale s and a J x D matrix Q of orthonormal rows. Its
   residual is 0 when the claim holds, whatever else the latents hold at right angles to it.

Latents of D > J dimensions are first projected onto the J dimensions that the ridge probe reads, by an
orthonormal basis of its weights' column space; within them the rotation and scale of least squares are exact
(`scipy.linalg.orthogonal_procrustes`). Where z = s Q h holds the basis is Q's own row space (but for ridge's
shrinkage), so the residual is 0; where it does not, the best frame of all might leave less. PCA in place of
the probe would choose by variance, and latents that SIGReg made isotropic have no largest directions. Latents
of D < J dimensions are padded with zeros: they cannot hold J joints, and the residual says how much is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import orthogonal_procrustes
from scipy.optimize import linear_sum_assignment

from probe.bootstrap import NOT_NEGATIVE, Bootstrap, Estimate
from probe.clusters import EpisodeClusters
from probe.moments import FloatArray, check_rows
from probe.ridge import RidgeFit
from probe.statistics import ResidualSums, score_joints


@dataclass(frozen=True, eq=False)
class JointMap:
    """The least-squares map B from joints to latents, h = B z + rest, and how far it is from s Q.

    Attributes
    ----------
    singular_values : [J], decreasing, in latent units per standard deviation of a joint; what estimating B
        from few episodes adds to them is taken off, so that one which noise explains is 0.
    noise_floor : root mean square singular value that noise alone would show, same unit.
    scale : root mean square of the singular values, the s of s Q.
    condition : largest over smallest singular value; 1 for a rotation, inf where the smallest is 0.
    orthogonality_error : ||B'B / s^2 - I||_F / sqrt(J), 0 for a rotation; nan where s is 0. The paper's
        ||Q'Q - I||_F / sqrt(N), with the scale left free.
    """

    singular_values: FloatArray
    noise_floor: float
    scale: float
    condition: float
    orthogonality_error: float

    def __str__(self) -> str:
        values = " ".join(f"{value:.3g}" for value in self.singular_values)
        return (
            f"singular values {values} (noise floor {self.noise_floor:.3g}), condition {self.condition:.3g}, "
            f"orthogonality error {self.orthogonality_error:.3g}"
        )


@dataclass(frozen=True, eq=False)
class Geometry:
    """How the latents hold the joints. Joints are in training standard deviations throughout.

    Attributes
    ----------
    joints : R2 of the joints from the latents, uniform mean: the probe's own `r2.mean`.
    joints_weighted : the same, variance-weighted.
    latents : R2 of the latents from the joints, uniform mean over the D dimensions that vary. It depends on
        the latents' axes, which mean nothing where only a rotation is identified.
    latents_weighted : the same, variance-weighted, which no rotation of the latents changes.
    procrustes_residual : squared error of z = s Q h over the joints' squares, all joints together, on
        evaluation rows. Beside 1 - `joints_weighted` it says what insisting on a rotation costs.
    procrustes_scale : s.
    frame : [D, J], Q' of z = s Q h; orthonormal columns where D >= J.
    joint_map : singular values, condition and orthogonality error of joints -> latents.
    mcc_before, mcc_after : `mean_correlation` with the joints of the latents as they are, and of Q h. The
        first means nothing for an encoder that is identified up to a rotation only: any rotation of a perfect
        encoder changes it. It is here because papers print it.
    """

    joints: Estimate
    joints_weighted: Estimate
    latents: Estimate
    latents_weighted: Estimate
    procrustes_residual: Estimate
    procrustes_scale: float
    frame: FloatArray
    joint_map: JointMap
    mcc_before: float
    mcc_after: float

    def __str__(self) -> str:
        def line(what: str, estimate: Estimate) -> str:
            interval = "" if estimate.low is None else f"  [{estimate.low:.3f}, {estimate.high:.3f}]"
            value = "-" if estimate.value is None else f"{estimate.value:.3f}"
            return f"{what:34}{value:>7}{interval}" + (f"  ({estimate.note})" if estimate.note else "")

        return "\n".join(
            [
                line("R2 latents -> joints", self.joints),
                line("R2 latents -> joints, weighted", self.joints_weighted),
                line("R2 joints -> latents", self.latents),
                line("R2 joints -> latents, weighted", self.latents_weighted),
                line("Procrustes residual, scale free", self.procrustes_residual),
                f"joints -> latents: {self.joint_map}",
                f"MCC after rotation {self.mcc_after:.3f} (before it, saying nothing: {self.mcc_before:.3f})",
            ]
        )


def measure_geometry(
    fit: RidgeFit,
    x_train: NDArray[Any],
    y_train: NDArray[Any],
    train: EpisodeClusters,
    x_evaluate: NDArray[Any],
    y_evaluate: NDArray[Any],
    evaluate: EpisodeClusters,
    *,
    testable: NDArray[np.bool_],
    bootstrap: Bootstrap,
) -> Geometry:
    """Measure how one encoder's latents hold the joints.

    Parameters
    ----------
    fit : the ridge probe of the same training rows.
    x_train, y_train, train : latents [N, D], joints [N, J] and their episodes.
    x_evaluate, y_evaluate, evaluate : [M, D], [M, J] and their episodes.
    testable : bool [J]; other joints are left out, at least one must stay.
    bootstrap : of the evaluation episodes; the fits are held as they are.

    Raises
    ------
    ValueError : shapes that disagree, values that are not finite, no testable joint, or a testable joint that
        is constant over the training rows: it has no unit here.
    """
    testable = np.asarray(testable, dtype=bool)
    check_rows(x_train, y_train, train)
    check_rows(x_evaluate, y_evaluate, evaluate)
    if not testable.any():
        raise ValueError("no testable joint: there is no map to measure")
    mean, std = y_train[:, testable].mean(axis=0), y_train[:, testable].std(axis=0)
    if (np.ptp(y_train[:, testable], axis=0) == 0).any():
        raise ValueError("a testable joint is constant over the training rows: give only joints that move")
    z_train, z = (y_train[:, testable] - mean) / std, (y_evaluate[:, testable] - mean) / std
    every = np.ones(z.shape[1], dtype=bool)

    read = (fit.predict(x_evaluate)[:, testable] - mean) / std
    joints = score_joints(ResidualSums.of(z, read, evaluate), bootstrap, every)

    x_mean, z_mean = x_train.mean(axis=0, dtype=np.float64), z_train.mean(axis=0)
    encoding = _least_squares(z_train - z_mean, x_train - x_mean)  # [J, D]
    sums = ResidualSums.of(x_evaluate, (z - z_mean) @ encoding + x_mean, evaluate)
    vary = sums.squares(np.ones((1, len(sums))))[1][0] > 0
    # a studentised interval would hold the influence of each episode on D numbers in each draw
    latents = score_joints(sums, replace(bootstrap, interval="bca"), vary)

    basis = np.linalg.qr((fit.coef / fit.scale[:, None])[:, testable])[0]
    frame, scale = fit_isometry(x_train - x_mean, z_train - z_mean, basis)
    turned = (x_evaluate - x_mean) @ frame
    isometric = score_joints(ResidualSums.of(z, scale * turned + z_mean, evaluate), bootstrap, every).weighted
    return Geometry(
        joints=joints.mean,
        joints_weighted=joints.weighted,
        latents=latents.mean,
        latents_weighted=latents.weighted,
        procrustes_residual=_one_minus(isometric),
        procrustes_scale=scale,
        frame=frame,
        joint_map=measure_map(x_train, z_train, train),
        mcc_before=mean_correlation(x_evaluate, z),
        mcc_after=mean_correlation(turned, z),
    )


def _one_minus(r2: Estimate) -> Estimate:
    """1 - R2 with its interval."""
    if r2.value is None:
        return r2
    return r2.bootstrap.estimate(
        1 - r2.value,
        1 - r2.draws,
        jackknife=None if r2.jackknife is None else 1 - r2.jackknife,
        influence=None if r2.influence is None else -r2.influence,
        within=NOT_NEGATIVE,
    )


def fit_isometry(h: FloatArray, z: FloatArray, basis: FloatArray) -> tuple[FloatArray, float]:
    """Frame F [D, J] and scale s that minimise ||z - s h F||^2 with F = basis R, R orthogonal.

    Parameters
    ----------
    h, z : [N, D], [N, J], both centred.
    basis : [D, K], K = min(D, J) orthonormal columns; where K < J the missing J - K dimensions are zeros.
    """
    n_joints = z.shape[1]
    missing = n_joints - basis.shape[1]
    basis = np.pad(basis, ((0, 0), (0, missing)))
    reduced = h @ basis
    rotation, trace = orthogonal_procrustes(reduced, z)
    # s = tr(R'(hU)'z) / ||hU||^2
    square = float(np.einsum("nj,nj->", reduced, reduced))
    return basis @ rotation, float(trace) / square if square > 0 else 0.0


def measure_map(h: NDArray[Any], z: FloatArray, episodes: EpisodeClusters) -> JointMap:
    """Singular values of the least-squares map from joints to latents.

    The error of the estimated map adds to its squares: E[Best'Best] = B'B + V. V is estimated with episodes
    as clusters (the sandwich of Liang and Zeger 1986, summed over latent dimensions, times E / (E - 1)) and
    taken off before the square root; with a single episode nothing is taken off.

    Parameters
    ----------
    h : latents [N, D].
    z : joints [N, J], each of standard deviation 1.
    episodes : of the rows.
    """
    check_rows(h, z, episodes)
    n_joints, n_episodes = z.shape[1], len(episodes)
    z = z - z.mean(axis=0)
    h = h - h.mean(axis=0, dtype=np.float64)
    encoding = _least_squares(z, h)  # [J, D]: h = z B' + rest
    gram, meat = encoding @ encoding.T, np.zeros((n_joints, n_joints))
    for episode in range(n_episodes):
        rows = episodes.rows(episode)
        score = z[rows].T @ (h[rows] - z[rows] @ encoding)
        meat += score @ score.T
    bread = np.linalg.pinv(z.T @ z)
    noise = bread @ meat @ bread * (n_episodes / (n_episodes - 1) if n_episodes > 1 else 0.0)
    squared, vectors = np.linalg.eigh(gram - noise)
    squared[squared <= n_joints * np.finfo(np.float64).eps * np.trace(gram)] = 0.0  # rounding is none either
    values = np.sqrt(squared[::-1])
    scale = float(np.sqrt(squared.mean()))
    clean = (vectors * squared) @ vectors.T
    with np.errstate(divide="ignore", invalid="ignore"):
        condition = float(values[0] / values[-1]) if values[0] > 0 else float("nan")
        error = float(np.linalg.norm(clean / np.float64(scale) ** 2 - np.eye(n_joints)) / np.sqrt(n_joints))
    return JointMap(values, float(np.sqrt(np.trace(noise) / n_joints)), scale, condition, error)


def mean_correlation(latents: NDArray[Any], joints: NDArray[Any]) -> float:
    """MCC: mean over joints of |Pearson r| with the latent dimension that the best matching gives each.

    Each of `joints` [N, J] gets its own dimension of `latents` [N, D] (Hungarian algorithm; Hyvärinen and
    Morioka 2016); a constant column correlates with nothing, and joints beyond D are matched with nothing and
    count 0. For an encoder that is identified up to a rotation this means nothing before the rotation is
    undone.
    """
    table = np.abs(_unit(latents).T @ _unit(joints))  # (D, J)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / joints.shape[1])


def _unit(values: NDArray[Any]) -> FloatArray:
    """Columns centred and of length 1; 0 where constant."""
    centred = values - values.mean(axis=0, dtype=np.float64)
    length = np.where(np.ptp(values, axis=0) > 0, np.linalg.norm(centred, axis=0), np.inf)
    return np.asarray(centred / length, dtype=np.float64)


def _least_squares(z: FloatArray, h: FloatArray) -> FloatArray:
    """B' [J, D] of h = z B', of least norm where joints are coupled; both centred."""
    return np.asarray(np.linalg.lstsq(z, h, rcond=None)[0], dtype=np.float64)
