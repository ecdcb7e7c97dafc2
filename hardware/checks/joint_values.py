"""Values that no joint takes: constants in the place of failed reads, stuck joints, turns and leaps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hardware.checks.check import Check, and_more, counted, in_words, listed, not_testable
from hardware.checks.frames import Look, angle_columns
from hardware.checks.stuck_frames import runs
from hardware.checks.units import raw_unit
from hardware.episode import JointLog
from hardware.recording import Recording

FEW_ROWS = 10
# What drivers log in place of a failed read: known from interbotix_ros_core#46 (-pi) and LeRobot's own sets
# (-1, 0); their forms in degrees too.
SENTINELS = (-1.0, 0.0, -np.pi, np.pi, -180.0, 180.0)
OUT_AND_BACK_RAD = 0.2  # a sentinel is this far from the rows around it (11 degrees, or a tenth of the range)
SENTINEL_S = 1.0  # the longest gap of sentinels that is one excursion
# An STS3215 turns 0.9 times a second without load at 12 V: 5.65 rad/s, and 8 with what a hand may add. Half
# as much again is no motion of its own.
FASTEST_RAD_S = 1.5 * 8.0
SMALL_STEP_RAD = 0.2  # a step below this is no leap, however close its time stamps lie
TURN_SLACK_RAD = 0.35  # a step is k turns within this: what the fastest joint moves in 1/30 s
TICKS = 4096
# Two heaps of values with so wide a gap between them were cut by a wrap: a joint that was ever between would
# have been seen there.
HEAPS_APART_RAD = 1.5 * np.pi
STUCK_ROWS, STUCK_S = 10, 0.3  # a joint is stuck for at least so many rows, and so long
# A last digit flickers that moved in 20 rests of 10 rows, where at most 3 runs of one value were that long.
FEW_RESTS, FEW_LONG_RUNS = 20, 3
LEAP_OUT_RAD = 0.05  # after which it is found this far away,
LEAP_OUT_RATIO = 4.0  # and by this many times its largest usual step


def source_values(log: JointLog) -> np.ndarray:
    """The numbers as the source gave them, (n, J): `raw` where it was kept."""
    return log.position if log.raw is None else log.raw


def check_sentinels(recording: Recording, logs: dict[int, JointLog]) -> Check:
    """Constants in place of readings: a group of joints all through an episode, or rows in between."""
    constant: dict[int, list[str]] = {}
    value: dict[int, float] = {}
    rows: dict[int, list[int]] = {}
    joints: dict[int, list[str]] = {}
    names = recording.info.joint_names
    for index, log in logs.items():
        if len(log.time_ns) < FEW_ROWS:
            continue
        values = source_values(log)
        columns = _constant_group(values)
        if columns:
            constant[index] = [names[column] for column in columns]
            value[index] = float(values[0, columns[0]])
        out = _excursions(recording, log, values, skip=columns)
        if len(out):
            rows[index] = sorted(set(out[:, 0].tolist()))
            joints[index] = [names[column] for column in sorted(set(out[:, 1].tolist()))]
    if not any(len(log.time_ns) >= FEW_ROWS for log in logs.values()):
        return not_testable("sentinels", f"no episode of {counted(FEW_ROWS, 'row')}")
    if not constant and not rows:
        return Check("sentinels", "pass", "no constant stands in the place of readings")
    alike: dict[tuple[tuple[str, ...], float], list[int]] = {}
    for index, group in constant.items():
        alike.setdefault((tuple(group), value[index]), []).append(index)
    said = [
        f"{listed(group)} {'is' if len(group) == 1 else 'are'} {one:g} in all rows of {in_words(of)}"
        for (group, one), of in alike.items()
    ] + [
        f"{listed(joints[index])} {'leaps' if len(joints[index]) == 1 else 'leap'} to a constant and back in "
        f"{counted(len(out), 'row')} of episode {index}, first at row {out[0]}"
        for index, out in rows.items()
    ]
    evidence: dict[str, Any] = {
        "episodes": sorted({*constant, *rows}),
        "constant_joints": {str(index): group for index, group in constant.items()},
        "constant_value": {str(index): one for index, one in value.items()},
        "rows": {str(index): out for index, out in rows.items()},
        "joints": {str(index): group for index, group in joints.items()},
    }
    return Check(
        "sentinels",
        "fail",
        f"constants in the place of readings: {said[0]}{and_more(said)}",
        evidence,
        "failed reads were logged as numbers: leave these joints, rows or episodes out",
    )


def constant_columns(log: JointLog) -> list[int]:
    """Columns of an episode that hold a constant in the place of readings in all rows."""
    return _constant_group(source_values(log)) if len(log.time_ns) >= FEW_ROWS else []


def _constant_group(values: np.ndarray) -> list[int]:
    """Columns that hold one and the same value in all rows: two or more, or one with a known sentinel while
    other columns move.
    """
    still = np.flatnonzero(np.all(values == values[0], axis=0))
    groups = [still[values[0, still] == one] for one in np.unique(values[0, still])]
    alike = [group for group in groups if len(group) > 1]
    if not alike and len(still) < values.shape[1]:
        alike = [group for group in groups if _is_sentinel(values[0, group[0]]) and values[0, group[0]] != 0]
    return sorted(int(column) for group in alike for column in group)


def _is_sentinel(values: Any) -> Any:
    return np.any([np.isclose(values, one, rtol=0, atol=1e-6) for one in SENTINELS], axis=0)


def _excursions(recording: Recording, log: JointLog, values: np.ndarray, skip: list[int]) -> np.ndarray:
    """(row, column) of values that leap to a constant and back, int64 (k, 2).

    The constant is a known sentinel, or one that two joints share to the last digit.
    """
    far = _far(recording, log)
    steps = np.abs(np.diff(log.position, axis=0)) > far
    steps[:, skip] = False
    found = []
    seconds = (log.time_ns - log.time_ns[0]) / 1e9
    for column in np.flatnonzero(steps.any(axis=0)).tolist():
        leaps = np.flatnonzero(steps[:, column]) + 1
        for first, past in zip(leaps[:-1].tolist(), leaps[1:].tolist()):
            stretch = values[first:past, column]
            back = abs(log.position[past, column] - log.position[first - 1, column])
            leap = abs(log.position[first, column] - log.position[first - 1, column])
            if (
                np.any(stretch != stretch[0])
                or seconds[past] - seconds[first] > SENTINEL_S
                or back > leap / 2
            ):
                continue
            others = np.flatnonzero((values[first] == stretch[0]) & steps[first - 1] & steps[past - 1])
            if len(others) > 1 or _is_sentinel(stretch[0]):
                found += [(row, column) for row in range(first, past)]
    return np.array(found, np.int64).reshape(-1, 2)


def _far(recording: Recording, log: JointLog) -> np.ndarray:
    """From which step on a value is far from the one before, by joint, in its unit (J,)."""
    spans = np.ptp(log.position, axis=0)
    angle = np.array([joint.unit == "rad" for joint in recording.info.joints])
    return np.where(angle, OUT_AND_BACK_RAD, np.maximum(0.1 * spans, 1e-9))


def check_joint_leaps(recording: Recording, logs: dict[int, JointLog]) -> Check:
    """Steps of whole turns, and steps faster than a servo turns."""
    turns: list[tuple[int, int, str, float]] = []
    leaps: list[tuple[int, int, str, float]] = []
    columns = angle_columns(recording)
    names = [recording.info.joint_names[column] for column in columns]
    for index, log in logs.items():
        if len(log.time_ns) < 2 or not columns:
            continue
        step = np.diff(log.position[:, columns], axis=0)
        # Rows that came late all at once bear time stamps too close together.
        seconds = np.diff(log.time_ns) / 1e9
        speed = np.abs(step) / np.maximum(seconds, 0.5 * max(float(np.median(seconds)), 1e-6))[:, None]
        whole = np.round(step / (2 * np.pi))
        turned = (whole != 0) & (np.abs(step - whole * 2 * np.pi) < TURN_SLACK_RAD)
        fast = (speed > FASTEST_RAD_S) & (np.abs(step) > SMALL_STEP_RAD) & ~turned
        turns += [(index, int(r) + 1, names[c], float(step[r, c])) for r, c in np.argwhere(turned)]
        leaps += [(index, int(r) + 1, names[c], float(speed[r, c])) for r, c in np.argwhere(fast)]
    heaps = _heaps(recording, logs) if not turns else {}
    if not columns or not any(len(log.time_ns) > 1 for log in logs.values()):
        return not_testable("joint_leaps", "no joint is an angle, or no episode has two rows")
    if not turns and not leaps and not heaps:
        return Check("joint_leaps", "pass", "no joint leaps or turns round")
    said = [f"{name} steps by {step:+.3f} rad at row {row} of episode {i}" for i, row, name, step in turns]
    said += [
        f"{name} moves at {speed:.0f} rad/s at row {row} of episode {i}" for i, row, name, speed in leaps
    ]
    said += [f"{name} holds two heaps of values {gap:.2f} rad apart" for name, gap in heaps.items()]
    return Check(
        "joint_leaps",
        "fail" if turns else "warn",
        f"{'; '.join(said[:3])}{and_more(said[2:])}",
        {
            "episodes": sorted({one[0] for one in turns + leaps}),
            "turns": [[i, row, name, round(step, 4)] for i, row, name, step in turns],
            "leaps": [[i, row, name, round(speed, 2)] for i, row, name, speed in leaps],
            "heaps": {name: round(gap, 4) for name, gap in heaps.items()},
        },
        "the encoder wrapped inside the joint's travel, or readings are corrupt: set the servo's offset so "
        "that its travel crosses no wrap, and leave these episodes out",
    )


def _heaps(recording: Recording, logs: dict[int, JointLog]) -> dict[str, float]:
    """Joints whose values lie in two heaps with nothing between: {joint: gap in rad}."""
    found = {}
    if not sum(len(log.position) for log in logs.values()):
        return {}
    position = np.concatenate([log.position for log in logs.values()])
    for column in angle_columns(recording):
        values = np.sort(position[:, column])
        gaps = np.diff(values)
        if not len(gaps) or gaps.max() < HEAPS_APART_RAD:
            continue
        below = (int(np.argmax(gaps)) + 1) / len(values)
        if 0.01 < below < 0.99:
            found[recording.info.joint_names[column]] = float(gaps.max())
    return found


def check_raw_ticks(recording: Recording, logs: dict[int, JointLog]) -> Check:
    """Raw values of a 12-bit encoder lie within 0 and 4095."""
    if raw_unit(recording) != "ticks" or all(log.raw is None for log in logs.values()):
        return not_testable("raw_ticks", "no raw ticks were kept")
    names = recording.info.joint_names
    beyond: dict[str, tuple[int, float, int]] = {}
    constants: dict[str, float] = {}
    episodes = set()
    for index, log in logs.items():
        if log.raw is None:
            continue
        outside = (log.raw < 0) | (log.raw >= TICKS)
        if not outside.any():
            continue
        episodes.add(index)
        sentinel = sentinel_mask(recording, log)
        for column in np.flatnonzero((outside & sentinel).any(axis=0)).tolist():
            first = int(np.argmax(outside[:, column] & sentinel[:, column]))
            constants.setdefault(names[column], float(log.raw[first, column]))
        for row, column in np.argwhere(outside & ~sentinel).tolist():
            beyond.setdefault(names[column], (index, float(log.raw[row, column]), row))
    if not episodes:
        return Check("raw_ticks", "pass", "raw values lie within 0 and 4095")
    said = [f"{name} {one:g} at row {row} of episode {index}" for name, (index, one, row) in beyond.items()]
    message = f"raw ticks outside 0..4095: {'; '.join(said[:4])}{and_more(said[3:])}"
    remedies = []
    if beyond:
        remedies.append("the homing offset pushes the joint past the encoder's wrap: calibrate the arm again")
    if constants:
        values = ", ".join(f"{value:g}" for value in sorted(set(constants.values())))
        message += (
            "; " if beyond else ""
        ) + f"{listed(list(constants))} hold {values} in {in_words(sorted(episodes))}"
        remedies.append("a constant in the place of readings is no position: see sentinels")
    return Check(
        "raw_ticks",
        "warn",
        message,
        {
            "episodes": sorted(episodes),
            "joints": [name for name in names if name in beyond or name in constants],
            "constants": constants,
        },
        "; ".join(remedies),
    )


def sentinel_mask(recording: Recording, log: JointLog) -> np.ndarray:
    """Which values are constants in the place of readings, bool (n, J)."""
    values = source_values(log)
    found = np.zeros(values.shape, bool)
    if len(values) >= FEW_ROWS:
        columns = _constant_group(values)
        found[:, columns] = True
        rows, out = _excursions(recording, log, values, skip=columns).T
        found[rows, out] = True
    return found


def check_stuck_joints(recording: Recording, logs: dict[int, JointLog], looks: list[Look]) -> Check:
    """Joints that hold one value to the last digit for long, and cannot have rested.

    A joint is found elsewhere in the row after; or its last digit flickers whenever else it rests; or all
    joints hold while the pictures go on moving.
    """
    found: list[tuple[int, int, int, str]] = []
    usual = _usual_steps(logs)
    flickers = _flickers(recording, logs)
    for index, log in logs.items():
        if len(log.time_ns) < 2 * STUCK_ROWS:
            continue
        found += list(_stuck(recording, index, log, usual, flickers))
        found += [
            (index, first, past, "all joints")
            for first, past in _all_hold(log)
            if any(
                _pictures_move(recording, look, log, first, past) for look in looks if look.episode == index
            )
        ]
    if not any(len(log.time_ns) >= 2 * STUCK_ROWS for log in logs.values()):
        return not_testable("stuck_joints", f"no episode of {counted(2 * STUCK_ROWS, 'row')}")
    if not found:
        return Check("stuck_joints", "pass", "no joint holds one value while it moves")
    said = [f"{name} in rows {first} to {past - 1} of episode {i}" for i, first, past, name in found]
    return Check(
        "stuck_joints",
        "warn",
        f"one value to the last digit: {'; '.join(said[:4])}{and_more(said[3:])}",
        {
            "episodes": sorted({index for index, *_ in found}),
            "rows": [[index, name, first, past - 1] for index, first, past, name in found],
        },
        "the bus or its reader gave the last value again: leave these rows or episodes out",
    )


def _usual_steps(logs: dict[int, JointLog]) -> np.ndarray:
    """The largest usual step of each joint (99.5 % of those that are steps), (J,)."""
    if not logs:
        return np.empty(0)
    steps = np.concatenate([np.abs(np.diff(log.position, axis=0)) for log in logs.values()])
    moved = np.where(steps > 0, steps, np.nan)
    with np.errstate(invalid="ignore"):
        return np.array(
            [np.nanquantile(column, 0.995) if np.isfinite(column).any() else np.inf for column in moved.T]
        )


def _long_runs(held: np.ndarray, time_ns: np.ndarray) -> list[tuple[int, int]]:
    """[first, past last) of the rows of one value, where `held` marks rows equal to the one before."""
    return [
        (first - 1, past)
        for first, past in runs(held)
        if past - first + 1 >= STUCK_ROWS and (time_ns[past - 1] - time_ns[first - 1]) / 1e9 >= STUCK_S
    ]


def _stuck(
    recording: Recording, index: int, log: JointLog, usual: np.ndarray, flickers: np.ndarray
) -> Iterator[tuple[int, int, int, str]]:
    values = source_values(log)
    held = np.zeros(values.shape, bool)
    held[1:] = values[1:] == values[:-1]
    constant = constant_columns(log)
    for column in angle_columns(recording):
        if column in constant:
            continue  # told by check_sentinels
        for first, past in _long_runs(held[:, column], log.time_ns):
            leap = 0.0
            if past < len(values):
                leap = abs(float(log.position[past, column] - log.position[past - 1, column]))
            others = np.ptp(log.position[first:past], axis=0).max()  # its own is 0
            leapt = leap > max(LEAP_OUT_RAD, LEAP_OUT_RATIO * usual[column])
            if leapt or (flickers[column] and others > LEAP_OUT_RAD):
                yield index, first, past, recording.info.joint_names[column]


def _flickers(recording: Recording, logs: dict[int, JointLog]) -> np.ndarray:
    """Joints whose last digit is never still: resting they give other values from row to row, bool (J,)."""
    resting = np.zeros(len(recording.info.joints), np.int64)
    long_runs = np.zeros(len(recording.info.joints), np.int64)
    for log in logs.values():
        values = source_values(log)
        steps = np.abs(np.diff(values, axis=0))
        digit = np.where(steps > 0, steps, np.inf).min(axis=0, initial=np.inf)
        windows = values[: len(values) // STUCK_ROWS * STUCK_ROWS].reshape(-1, STUCK_ROWS, values.shape[1])
        span = np.ptp(windows, axis=1)
        resting += ((span > 0) & (span < 4.5 * digit)).sum(axis=0)
        held = np.zeros(values.shape, bool)
        held[1:] = values[1:] == values[:-1]
        long_runs += [len(_long_runs(column, log.time_ns)) for column in held.T]
    return (resting >= FEW_RESTS) & (long_runs <= FEW_LONG_RUNS)


def _all_hold(log: JointLog) -> list[tuple[int, int]]:
    values = source_values(log)
    held = np.zeros(len(values), bool)
    held[1:] = np.all(values[1:] == values[:-1], axis=1)
    return _long_runs(held, log.time_ns)


def _pictures_move(recording: Recording, look: Look, log: JointLog, first: int, past: int) -> bool:
    """Whether this view changes in rows `first` to `past` as much as it does where joints move."""
    if recording.info.pairing == "row":
        frames = np.arange(first + 1, min(past, look.frame_count))
    else:
        times = recording.episode(look.episode).frame_times(look.view)[: look.frame_count]
        frames = np.flatnonzero((times > log.time_ns[first]) & (times < log.time_ns[past - 1]))
        frames = frames[1:]  # its change began before the rows did
    moving = look.change[look.moving]
    if len(frames) < 3 or len(moving) < 5:
        return False
    return float(np.median(look.change[frames])) > 0.5 * float(np.median(moving))
