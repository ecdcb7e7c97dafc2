"""Actions against the joints: copies, the lag between them, velocities, signs and order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hardware.calibration import is_gripper
from hardware.checks.check import Check, counted, in_words, not_testable, readable
from hardware.episode import ActionLog, JointLog
from hardware.errors import InputError
from hardware.recorder import is_whole
from hardware.recording import Recording

IDENTITY_LAGS = range(-3, 4)
LONGEST_LAG_S = 0.5  # a follower is never later
LAGS = 25  # tried on either side, at most
FEW_LAGS = 10  # the data must be this many times as long as the longest lag
FEW_MOVING = 0.02  # rad of std: a joint that moves less has no correlation worth a word
# Correlations: of an action with what it commands (0.98 and more on 4 real arms and the twin), and the least
# that another explanation must be better by: as a difference, and as one of Fisher's z.
FOLLOWS, BETTER, BETTER_Z = 0.8, 0.15, 0.7
NONE_SENT = "it has no action, and recording.yaml declares them"
VELOCITY = 0.7  # of an action with the velocity it commands, which is noisy (0.99 on a Dobot CR5)


def read_actions(
    recording: Recording, logs: dict[int, JointLog]
) -> tuple[dict[int, ActionLog], dict[int, str]]:
    """What was sent, by episode, and what is wrong with the episodes that are left out."""
    found: dict[int, ActionLog] = {}
    wrong: dict[int, str] = {}
    for index in logs:
        try:
            actions = recording.episode(index).actions()
        except InputError as error:
            wrong[index] = str(error)
            continue
        if actions is None or not len(actions.target):
            if recording.info.actions is not None:
                wrong[index] = NONE_SENT
            continue
        bad = int((~np.isfinite(actions.target)).any(axis=1).sum())
        if bad:
            wrong[index] = f"{counted(bad, 'row')} of its {len(actions.target)} actions hold no number"
        else:
            found[index] = actions
    return found, wrong


def check_actions_readable(recording: Recording, wrong: dict[int, str]) -> Check:
    """Whether every episode has the actions that recording.yaml declares, whole and in numbers.

    One that was cut short before its first action says so itself, and is damaged in nothing.
    """
    name = "actions_readable"
    if recording.info.actions is None:
        return not_testable(name, "the recording has no actions")
    early = [
        index
        for index, problem in wrong.items()
        if problem == NONE_SENT and not is_whole(recording.episode(index).line)
    ]
    damaged = {index: problem for index, problem in wrong.items() if index not in early}
    said = f"cut short before the first action: {in_words(early)}"
    if early and not damaged:
        remedy = (
            "leave what was cut short out where actions matter (ranking, LeWM); run again, jointprobe record "
            "makes up for it"
        )
        return Check(name, "warn", said, {"episodes": early}, remedy)
    found = readable(
        name,
        damaged,
        "all actions can be read and are finite numbers",
        "restore these files from a copy, or leave the episodes out where actions matter (ranking, LeWM)",
    )
    return replace(found, message=f"{found.message}; {said}") if early else found


def check_actions(recording: Recording, logs: dict[int, JointLog], actions: dict[int, ActionLog]) -> Check:
    """Whether actions are the joints themselves, some rows away: then nothing was sent."""
    names = recording.info.actions.names if recording.info.actions else []
    columns = [recording.info.joint_names.index(name) for name in names if name in recording.info.joint_names]
    if not names or len(columns) < len(names):
        why = "actions do not carry the joints' names" if names else "the recording has no actions"
        return not_testable("actions", why)
    same: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for index, sent_log in actions.items():
        log = logs[index]
        both_raw = log.raw is not None and sent_log.raw is not None
        joints = (log.raw if log.raw is not None and both_raw else log.position)[:, columns]
        sent = sent_log.raw if sent_log.raw is not None and both_raw else sent_log.target
        rows = np.arange(len(joints))
        if len(sent) != len(joints):  # two clocks: the row that was there when the action was sent
            rows = np.searchsorted(log.time_ns, sent_log.time_ns, side="right") - 1
        moves = np.any(np.diff(joints, axis=0, prepend=joints[:1]) != 0, axis=1)
        for lag in IDENTITY_LAGS:
            there = (rows >= 0) & (rows + lag >= 0) & (rows + lag < len(joints))
            at = rows[there] + lag
            same[lag] += int((np.all(joints[at] == sent[there], axis=1) & moves[at]).sum())
            total[lag] += int(moves[at].sum())
    shares = {lag: same[lag] / total[lag] for lag in sorted(total) if total[lag]}
    evidence = {"equal_share_by_lag": {str(lag): round(share, 4) for lag, share in shares.items()}}
    if not shares:
        return not_testable("actions", "no joint moves while actions are sent")
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


@dataclass(frozen=True)
class Pairing:
    """How actions and joints go together: P joints that move, each with an action column of its own.

    Attributes
    ----------
    names : the joints, and `columns` their numbers.
    lag_rows, lag_s : the joints follow the actions by so much.
    velocity : whether the actions go with the joints' velocity rather than with their position.
    own : median correlation of each joint with its own action, over position and over velocity, (2,).
    correlation : of each joint (rows) with each of those actions (columns) at that lag, (P, P).
    """

    names: list[str]
    columns: list[int]
    lag_rows: int
    lag_s: float
    velocity: bool
    own: tuple[float, float]
    correlation: np.ndarray


def pair_actions(
    recording: Recording, logs: dict[int, JointLog], actions: dict[int, ActionLog]
) -> Pairing | None:
    """Compare each joint that moves with each action at every lag; None where there is too little.

    Correlations are over all rows, each episode around its own mean, so that what differs between episodes
    cannot make them.
    """
    info = recording.info
    if info.actions is None:
        return None
    columns = _own_columns(info.joint_names, info.actions.names)
    pairs = list(_on_one_clock(logs, actions))
    enough = FEW_LAGS * LONGEST_LAG_S * info.joints_hz
    if not columns or sum(len(state) for state, _ in pairs) < enough:
        return None
    states = [_centred(state[:, [joint for joint, _ in columns]]) for state, _ in pairs]
    sent = [_centred(target[:, [column for _, column in columns]]) for _, target in pairs]
    spread = [np.concatenate(one).std(axis=0) for one in (states, sent)]
    floor = np.array([FEW_MOVING if info.joints[joint].unit == "rad" else 1e-9 for joint, _ in columns])
    moving = np.flatnonzero((spread[0] > floor) & (spread[1] > 1e-9))
    if not len(moving):
        return None
    states, sent = ([one[:, moving] for one in parts] for parts in (states, sent))
    speeds = [np.gradient(one, axis=0) if len(one) > 1 else np.zeros_like(one) for one in states]
    stride = max(1, round(LONGEST_LAG_S * info.joints_hz / LAGS))
    reach = max(3, round(LONGEST_LAG_S * info.joints_hz))
    lags = range(-reach // stride * stride, reach + 1, stride)
    best = []
    for followed in (states, speeds):
        by_lag = {lag: _correlations(followed, sent, lag) for lag in lags}
        # The sign is for later: a reversed gripper must not choose the lag, so the size does.
        lag = max(by_lag, key=lambda one: float(np.median(np.abs(np.diag(by_lag[one])))))
        best.append((lag, by_lag[lag], float(np.median(np.abs(np.diag(by_lag[lag]))))))
    velocity = best[1][2] > VELOCITY and best[1][2] > best[0][2] + BETTER
    lag, correlation, _ = best[velocity]
    return Pairing(
        names=[info.joint_names[columns[number][0]] for number in moving],
        columns=[columns[number][0] for number in moving],
        lag_rows=lag,
        lag_s=lag / info.joints_hz,
        velocity=velocity,
        own=(best[0][2], best[1][2]),
        correlation=correlation,
    )


def _own_columns(joints: list[str], actions: list[str]) -> list[tuple[int, int]]:
    """(joint, action) columns that belong together: by name, or else by order where as many are there."""
    named = [(joints.index(name), column) for column, name in enumerate(actions) if name in joints]
    if named or len(actions) < len(joints):
        return named
    return [(number, number) for number in range(len(joints))]


def _on_one_clock(
    logs: dict[int, JointLog], actions: dict[int, ActionLog]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(position (n, J), target (n, A)) of each episode; an action holds until the next one."""
    for index, sent in actions.items():
        log = logs[index]
        if len(sent.time_ns) == len(log.time_ns) and np.array_equal(sent.time_ns, log.time_ns):
            yield log.position, sent.target
        elif len(log.time_ns):
            latest = np.searchsorted(sent.time_ns, log.time_ns, side="right") - 1
            known = latest >= 0
            yield log.position[known], sent.target[latest[known]]


def _centred(values: np.ndarray) -> np.ndarray:
    return values - values.mean(axis=0) if len(values) else values


def _correlations(states: list[np.ndarray], sent: list[np.ndarray], lag: int) -> np.ndarray:
    """Correlation of state[t + lag] with action[t], (P, P): joints by actions."""
    ahead, behind = max(0, lag), max(0, -lag)
    later = np.concatenate([one[ahead : max(0, len(one) - behind)] for one in states])
    earlier = np.concatenate([one[behind : max(0, len(one) - ahead)] for one in sent])
    size = np.sqrt(np.outer((later**2).sum(axis=0), (earlier**2).sum(axis=0)))
    return np.asarray(later.T @ earlier / np.maximum(size, 1e-12))


def check_action_lag(recording: Recording, pairing: Pairing | None) -> Check:
    """By how much the joints follow the actions, and whether actions are positions at all."""
    if pairing is None:
        return not_testable("action_lag", "no actions beside joints that move")
    evidence = {
        "lag_rows": pairing.lag_rows,
        "lag_s": round(pairing.lag_s, 4),
        "correlation_with_position": round(pairing.own[0], 4),
        "correlation_with_velocity": round(pairing.own[1], 4),
        "velocity": pairing.velocity,
    }
    order = "leads" if pairing.lag_rows > 0 else "follows"
    by = f"by {counted(abs(pairing.lag_rows), 'row')}" if pairing.lag_rows else ""
    if pairing.velocity:
        declared = recording.info.actions is not None and "velocit" in recording.info.actions.meaning
        return Check(
            "action_lag",
            "pass" if declared else "warn",
            f"actions are velocities: they go with the joints' velocity (median correlation "
            f"{pairing.own[1]:.2f}), not with their position ({pairing.own[0]:.2f}), "
            + (f"which the action {order} {by}" if by else "at the same row"),
            evidence,
            "" if declared else "do not read them as positions: a comparison with the joints means nothing",
        )
    if pairing.own[0] < FOLLOWS:
        why = f"actions go with neither position ({pairing.own[0]:.2f}) nor velocity ({pairing.own[1]:.2f})"
        return not_testable("action_lag", why, evidence)
    message = f"the action {order} the joints {by} ({pairing.lag_s:+.3f} s)"
    if not by:
        message = "the action and the joints go together, at the same row"
    if pairing.lag_rows < 0:
        return Check(
            "action_lag",
            "warn",
            message,
            evidence,
            "no command comes after its motion: the streams are shifted, or actions were made of joints",
        )
    return Check("action_lag", "pass", message, evidence)


def check_directions(pairing: Pairing | None) -> Check:
    """Whether each joint, and the gripper above all, moves the way it is told."""
    if pairing is None or max(pairing.own) < FOLLOWS:
        return not_testable("directions", "no actions that the joints follow")
    own = np.diag(pairing.correlation)
    evidence = {"correlation": {name: round(float(one), 4) for name, one in zip(pairing.names, own)}}
    against = [name for name, one in zip(pairing.names, own) if one < -FOLLOWS]
    if not against and pairing.velocity:
        why = "actions are velocities, not targets; as velocities they have the signs of the joints'"
        return not_testable("directions", why, evidence)
    if not against:
        return Check("directions", "pass", "joints move the way they are told", evidence)
    moves = "moves against its action" if len(against) == 1 else "move against their actions"
    what = "gripper polarity differs: " if any(is_gripper(name) for name in against) else ""
    return Check(
        "directions",
        "fail",
        f"{what}{', '.join(against)} {moves} (correlation "
        f"{min(evidence['correlation'][name] for name in against):.2f})",
        evidence | {"joints": against},
        "joints and actions were converted with different signs: reverse one of them",
    )


def check_joint_order(pairing: Pairing | None) -> Check:
    """Whether each joint follows the action of its own name, and none another's."""
    if pairing is None or len(pairing.names) < 2:
        return not_testable("joint_order", "fewer than two joints that move beside actions")
    # Fisher's z: joints that move together all have high correlations, whose differences lie near 1.
    z = np.arctanh(np.minimum(np.abs(pairing.correlation), 0.9999))
    if z.max() < np.arctanh(FOLLOWS):
        return not_testable("joint_order", "no joint follows any action")
    best = z.argmax(axis=1)
    rows = range(len(z))
    crossed = [
        row
        for row in rows
        if best[row] != row
        and z[row, best[row]] > np.arctanh(FOLLOWS)
        and z[row, best[row]] > z[row, row] + BETTER_Z
    ]
    evidence = {"follows": {pairing.names[row]: pairing.names[int(best[row])] for row in rows}}
    # Several joints may go with one action in a reach; crossed columns each have a best one of their own.
    if len(crossed) < 2 or len({int(best[row]) for row in crossed}) < len(crossed):
        what = "joint's velocity" if pairing.velocity else "joint"
        return Check("joint_order", "pass", f"no {what} follows another joint's action", evidence)
    said = ", ".join(
        f"{pairing.names[row]} follows the action of {pairing.names[int(best[row])]}" for row in crossed
    )
    return Check(
        "joint_order",
        "fail",
        said,
        evidence | {"joints": [pairing.names[row] for row in crossed]},
        "the columns of joints and actions are in different orders: import the set again with its names",
    )
