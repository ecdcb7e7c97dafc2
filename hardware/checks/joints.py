"""Joints and actions: do they move, within their limits, from the same zero; and was anything sent."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from hardware.checks.check import Check
from hardware.episode import JointLog
from hardware.errors import InputError
from hardware.recording import Recording

STILL_RAD = 0.02  # below this std a joint cannot be tested (see the probe)
LIMIT_SLACK = 0.05  # share of the calibrated range that a joint may go beyond it
OFFSET_RAD = 0.15  # a step of a joint's median between two episodes is one from here on,
OFFSET_RATIO = 10.0  # where it is this many times the joint's usual std within an episode


def check_still_joints(recording: Recording, logs: dict[int, JointLog]) -> Check:
    if not any(len(log.position) for log in logs.values()):
        return Check("still_joints", "fail", "no episode can be read")
    spread = np.concatenate([log.position for log in logs.values()]).std(axis=0)
    joints = recording.info.joints
    still = {
        joint.name: float(std)
        for joint, std in zip(joints, spread)
        if std < (STILL_RAD if joint.unit == "rad" else 1e-9)
    }
    evidence = {
        "std": {joint.name: round(float(std), 6) for joint, std in zip(joints, spread)},
        "joints": list(still),
    }
    if not still:
        return Check("still_joints", "pass", f"each of {len(joints)} joints moves", evidence)
    said = ", ".join(f"{name} (std {std:.4f})" for name, std in still.items())
    return Check(
        "still_joints",
        "warn",
        f"{said}: under {STILL_RAD} rad over the whole recording",
        evidence,
        "not testable: an R2 on them means nothing",
    )


def check_limits(recording: Recording, logs: dict[int, JointLog]) -> Check:
    beyond: dict[str, tuple[float, int]] = {}
    bounded = 0
    for column, joint in enumerate(recording.info.joints):
        if joint.lower is None or joint.upper is None:
            continue
        bounded += 1
        slack = LIMIT_SLACK * (joint.upper - joint.lower)
        for index, log in logs.items():
            values = log.position[:, column]
            excess = (
                max(float(values.max() - joint.upper), float(joint.lower - values.min()))
                if len(values)
                else 0.0
            )
            if excess > max(slack, beyond.get(joint.name, (0.0, 0))[0]):
                beyond[joint.name] = (excess, index)
    evidence = {
        "beyond": {name: round(excess, 4) for name, (excess, _) in beyond.items()},
        "episodes": sorted({index for _, index in beyond.values()}),
    }
    if not beyond:
        message = f"{bounded} joints stay within their limits" if bounded else "no joint has known limits"
        return Check("joint_limits", "pass", message, evidence)
    said = ", ".join(f"{name} by {excess:.3f} in episode {index}" for name, (excess, index) in beyond.items())
    return Check(
        "joint_limits",
        "warn",
        f"beyond the calibrated range: {said}",
        evidence,
        "the calibration may be another arm's, or older than the recording",
    )


def check_offsets(recording: Recording, logs: dict[int, JointLog]) -> Check:
    """A joint that rests elsewhere in another episode, by far more than it moves in either."""
    steps: dict[str, tuple[float, int, int]] = {}
    for column, joint in enumerate(recording.info.joints):
        if joint.unit != "rad":
            continue
        rest = [(index, log.position[:, column]) for index, log in logs.items() if len(log.position)]
        spread = max(float(np.median([values.std() for _, values in rest] or [0])), 1e-4)
        for (before, one), (after, other) in pairwise(rest):
            step = abs(float(np.median(other) - np.median(one)))
            if step > OFFSET_RAD and step > OFFSET_RATIO * spread and step > steps.get(joint.name, (0.0,))[0]:
                steps[joint.name] = (step, before, after)
    evidence = {
        "step_rad": {name: round(step, 4) for name, (step, _, _) in steps.items()},
        "episodes": sorted({index for _, *pair in steps.values() for index in pair}),
    }
    if not steps:
        return Check("joint_offsets", "pass", "no joint's rest jumps between episodes", evidence)
    said = ", ".join(
        f"{name} by {step:.3f} rad between episodes {one} and {two}"
        for name, (step, one, two) in steps.items()
    )
    return Check(
        "joint_offsets",
        "warn",
        f"a joint that hardly moves within episodes rests elsewhere: {said}",
        evidence,
        "calibrated again or remounted in between? an R2 across that step measures the step",
    )


def check_actions(recording: Recording, logs: dict[int, JointLog]) -> Check:
    """Whether actions are the joints themselves, some rows away: then nothing was sent."""
    names = recording.info.actions.names if recording.info.actions else []
    columns = [recording.info.joint_names.index(name) for name in names if name in recording.info.joint_names]
    if not names or len(columns) < len(names):
        return Check(
            "actions",
            "pass",
            "no actions to compare with the joints"
            if not names
            else "actions do not carry the joints' names",
        )
    same: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for index, log in logs.items():
        try:
            actions = recording.episode(index).actions()
        except InputError:
            continue  # a damaged file: its hash says so
        joints = log.raw if log.raw is not None else log.position
        if actions is None or len(actions.target) != len(joints):
            continue
        sent = actions.raw if actions.raw is not None else actions.target
        for lag in range(-2, 3):
            ahead, behind = max(0, lag), max(0, -lag)
            state = joints[ahead : len(joints) - behind, columns]
            action = sent[behind : len(sent) - ahead]
            moved = np.any(np.diff(state, axis=0, prepend=state[:1]) != 0, axis=1)
            same[lag] += int((np.all(state == action, axis=1) & moved).sum())
            total[lag] += int(moved.sum())
    shares = {lag: same[lag] / total[lag] for lag in sorted(total) if total[lag]}
    evidence = {"equal_share_by_lag": {str(lag): round(share, 4) for lag, share in shares.items()}}
    identical = [lag for lag, share in shares.items() if share > 0.95]
    if not identical:
        return Check("actions", "pass", "actions are not copies of the joints", evidence)
    lag = identical[0]
    return Check(
        "actions",
        "warn",
        f"action[t] equals joints[t{lag:+d}] in {shares[lag]:.1%} of the rows that move",
        evidence,
        "nothing was sent here: do not read these actions as commands",
    )
