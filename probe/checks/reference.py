"""The reference recording: whether it can serve, and joints against its own.

Against it a sign or an order is seen that is wrong on both sides alike. Where state and action were converted
by the same wrong rule they agree with each other, and a probe that is fitted anew learns the wrong rule as
well as the right one. A probe that was fitted to a reference does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hardware.checks import Check, Look, not_testable
from hardware.checks.check import and_more, counted, in_words
from hardware.errors import InputError
from hardware.recording import Recording
from probe.checks.pixels import PixelRows, centred, slope_at
from probe.moments import FloatArray, Moments
from probe.statistics import r2

# A joint is judged where a probe reads it that well in episodes it has not seen, in the reference and here:
# where the view does not show it here, what the reference's probe says of it is chance.
READ_R2 = 0.5
CORRELATES, BETTER = 0.5, 0.3  # what it must say of a joint, and by how much better than what it ought to say


def damaged_episodes(reference: Recording, looks: Sequence[Look]) -> dict[int, str]:
    """Episodes of a reference that cannot serve, and why: the file is not there or has changed, or joints or
    frames cannot be read. Frames are judged where they were looked at.
    """
    wrong: dict[int, str] = {}
    for index in reference.episode_indices:
        episode = reference.episode(index)
        try:
            episode.verify()
            episode.joints()
        except InputError as error:
            wrong[index] = f"{error.where} {error.problem}"
    for one in looks:
        short = f"{one.frame_count} of {counted(one.expected, 'frame')} can be decoded"
        if one.error or one.frame_count < one.expected:
            wrong.setdefault(one.episode, f"{one}: {one.error or short}")
    return wrong


def check_reference(reference: Recording, damaged: Mapping[int, str]) -> Check:
    """Whether all of the reference served.

    Raises
    ------
    InputError : none of it can.
    """
    folder, indices = reference.folder, reference.episode_indices
    remedy = f"see jointprobe check {folder}: restore these files from a copy, or name another reference"
    if not damaged:
        message = f"{counted(len(indices), 'episode')} of {folder} served as reference"
        return Check("reference", "pass", message, {"reference": str(folder)})
    first = next(iter(damaged))
    said = f"{damaged[first]}{and_more(damaged)}"
    if len(damaged) == len(indices):
        raise InputError(folder, f"cannot serve as a reference: {said}", remedy)
    return Check(
        "reference",
        "warn",
        f"{in_words(sorted(damaged))} of {folder} left out, of {len(indices)}: {said}",
        {"reference": str(folder), "reference_episodes": sorted(damaged)},
        remedy,
    )


def check_joints_against(rows: Mapping[str, PixelRows], reference: Mapping[str, PixelRows]) -> Check:
    """Whether joints move the way, and in the order, that a probe fitted to the reference says.

    Each joint is judged by the view that reads it best in both recordings. Its prediction here, about the
    mean of each episode, is correlated with every logged joint: with its own it must not be below -0.5, and
    no two joints may each go with the other's (0.5 at least, and 0.3 better than with their own).
    """
    name = "joints_reference"
    best: dict[str, tuple[float, str]] = {}
    said: dict[str, dict[str, FloatArray]] = {}
    for view in rows:
        if view in reference and set(rows[view].joints) == set(reference[view].joints):
            read, correlation = _compared(rows[view], reference[view])
            said[view] = correlation
            for joint in correlation:
                best[joint] = max(best.get(joint, (READ_R2, "")), (read[joint], view))
    judged = {joint: view for joint, (_, view) in best.items() if view}
    if not judged:
        return not_testable(name, f"no joint is read in both with an R2 of {READ_R2}")
    joints = next(iter(rows.values())).joints
    table = {joint: dict(zip(joints, said[view][joint])) for joint, view in judged.items()}
    against = [joint for joint in judged if table[joint][joint] < -CORRELATES]
    crossed = [
        (a, b)
        for a in judged
        for b in judged
        if a < b and _goes_with(table, a, b) and _goes_with(table, b, a)
    ]
    evidence: dict[str, Any] = {
        "read_by": judged,
        "correlation": {
            joint: {other: round(float(value), 3) for other, value in row.items()}
            for joint, row in table.items()
        },
        "joints": sorted({*against, *(joint for pair in crossed for joint in pair)}),
    }
    if not against and not crossed:
        return Check(name, "pass", f"joints move as in the reference: {', '.join(judged)}", evidence)
    found = [f"{joint} moves the other way" for joint in against]
    found += [f"{a} and {b} are exchanged" for a, b in crossed]
    remedy = "signs or columns were converted wrongly, in joints and actions alike: import the set again"
    return Check(name, "fail", f"against the reference, {'; '.join(found)}", evidence, remedy)


def _goes_with(table: Mapping[str, Mapping[str, float]], joint: str, other: str) -> bool:
    value = table[joint][other]
    return value > CORRELATES and value > table[joint][joint] + BETTER


def _compared(rows: PixelRows, reference: PixelRows) -> tuple[dict[str, float], dict[str, FloatArray]]:
    """Of each joint that moves in both: the lower of its two R2, and the correlations, [J], of what the
    reference's probe says here with every joint.
    """
    of = reference.clusters
    there = np.array([reference.joints.index(joint) for joint in rows.joints])
    columns = np.flatnonzero(rows.moving & reference.moving[there])
    if len(of) < 2 or not len(columns):
        return {}, {}
    x, y = centred(reference.features, of), centred(reference.position, of)[:, there[columns]]
    known = reference.held_out
    logged = centred(rows.position, rows.clusters)
    read = np.minimum(
        _r2(y, known.prediction[:, there[columns]]),
        _r2(logged[:, columns], rows.held_out.prediction[:, columns]),
    )
    slope = slope_at(Moments.of(x, y, of).total(), known.alpha)[0]
    predicted = centred(centred(rows.features, rows.clusters) @ slope, rows.clusters)
    size = np.outer(np.linalg.norm(predicted, axis=0), np.linalg.norm(logged, axis=0))
    correlation = predicted.T @ logged / np.maximum(size, 1e-12)  # [columns, J]
    names = [rows.joints[column] for column in columns]
    return dict(zip(names, read.tolist())), dict(zip(names, correlation))


def _r2(y: FloatArray, prediction: FloatArray) -> FloatArray:
    """Of values about their episode's mean, [N, J]: one a joint."""
    return r2(((y - prediction) ** 2).sum(axis=0), (y**2).sum(axis=0))
