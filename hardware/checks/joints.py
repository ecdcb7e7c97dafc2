"""Joints: do they move, within their limits, from the same zero."""

from __future__ import annotations

import numpy as np

from hardware.checks.check import Check
from hardware.episode import JointLog
from hardware.recording import Recording

STILL_RAD = 0.02  # below this std a joint cannot be tested (see the probe)
LIMIT_SLACK = 0.05  # share of the calibrated range that a joint may go beyond it
OFFSET_RAD = 0.15  # a step of a joint's median between two episodes is one from here on,
OFFSET_RATIO = 10.0  # where it is this many times the joint's usual std within an episode,
HARDLY_RAD = 0.03  # and that is under this: joints that move have other medians in each episode anyway
# A joint that moves within episodes has another zero from one episode on where all its medians (or all its
# starts) before lie apart from all after by this much more than they spread on either side. With 5 episodes
# on either side this happens to the medians of 6 joints that wander at random in under 1 of 1000 recordings.
SHIFT_EPISODES, SHIFT_RATIO = 5, 2.0


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
    """A joint that rests elsewhere in another episode by far more than it moves in either, or that keeps
    another middle or start from one episode on.
    """
    rests: dict[str, tuple[float, int, int]] = {}
    shifts: dict[str, tuple[float, int, int]] = {}
    indices = [index for index, log in logs.items() if len(log.position)]
    for column, joint in enumerate(recording.info.joints):
        if joint.unit != "rad" or len(indices) < 2:
            continue
        values = [logs[index].position[:, column] for index in indices]
        medians = np.array([np.median(one) for one in values])
        spread = max(float(np.median([one.std() for one in values])), 1e-4)
        steps = np.abs(np.diff(medians))
        at = int(np.argmax(steps))
        if spread < HARDLY_RAD and steps[at] > max(OFFSET_RAD, OFFSET_RATIO * spread):
            rests[joint.name] = (float(steps[at]), indices[at], indices[at + 1])
            continue
        starts = np.array([np.median(one[:3]) for one in values])
        found = max((shift_between(levels) for levels in (medians, starts)), key=lambda one: one[0])
        if found[0] > OFFSET_RAD:
            shifts[joint.name] = (found[0], indices[found[1] - 1], indices[found[1]])
    both = rests | shifts
    evidence = {
        "step_rad": {name: round(step, 4) for name, (step, _, _) in both.items()},
        "episodes": sorted({index for _, *pair in both.values() for index in pair}),
    }
    if not both:
        return Check("joint_offsets", "pass", "no joint's zero jumps between episodes", evidence)
    said = [
        f"{words}: "
        + ", ".join(
            f"{name} by {step:.3f} rad between episodes {one} and {two}"
            for name, (step, one, two) in found.items()
        )
        for words, found in (
            ("a joint that hardly moves within episodes rests elsewhere", rests),
            ("a joint keeps another middle or start from one episode on", shifts),
        )
        if found
    ]
    return Check(
        "joint_offsets",
        "warn",
        "; ".join(said),
        evidence,
        "calibrated again or remounted in between? an R2 across that step measures the step",
    )


def shift_between(levels: np.ndarray) -> tuple[float, int]:
    """(size, first episode after) of a lasting shift of `levels`, one an episode, (E,); size 0 for none."""
    best = (0.0, 0)
    for at in range(SHIFT_EPISODES, len(levels) - SHIFT_EPISODES + 1):
        before, after = levels[:at], levels[at:]
        apart = max(float(after.min() - before.max()), float(before.min() - after.max()))
        if apart > SHIFT_RATIO * max(np.ptp(before), np.ptp(after)):
            best = max(best, (abs(float(np.median(after) - np.median(before))), at))
    return best
