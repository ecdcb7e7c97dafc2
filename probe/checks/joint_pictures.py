"""Pictures of findings about joints, actions and clocks: the trace with the spot marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.checks import Check
from hardware.checks.frames import angle_columns
from hardware.episode import ActionLog, JointLog
from hardware.errors import InputError
from hardware.recording import Recording
from probe.checks.sheets import Line, Sheet, Trace

PANELS = 3  # traces of one finding
AROUND = 40  # rows shown to either side of a spot that is a few rows long
FEW = 12  # rows shown to either side where single rows are compared
UNITS = {"rad": "rad", "percent": "percent", "source": "as it came"}


def _unit(recording: Recording, joint: str) -> str:
    return UNITS[recording.info.joints[recording.info.joint_names.index(joint)].unit]


def seconds(log: JointLog) -> NDArray[np.float64]:
    """Time of each row since the episode's first, (n,)."""
    return np.asarray((log.time_ns - log.time_ns[0]) / 1e9)


def liveliest(recording: Recording, values: NDArray[np.float64], columns: Sequence[int] = ()) -> int:
    """The column of values (n, J) that moves furthest, of angles where there are any."""
    angles = angle_columns(recording)
    columns = list(columns) or list(range(values.shape[1]))
    columns = [column for column in columns if column in angles] or columns
    return columns[int(np.argmax(np.ptp(values[:, columns], axis=0)))]


def draw_offsets(check: Check, recording: Recording) -> Sheet:
    """Where joints went: the episode in which, or the end of one and the start of the next."""
    moves = sorted(
        check.evidence["moves"], key=lambda one: abs(one["to_rad"] - one["from_rad"]), reverse=True
    )
    chosen = list({move["joint"]: move for move in reversed(moves)}.values())[::-1]
    chosen += [move for move in moves if move not in chosen]
    return Sheet(traces=[_move(recording, move) for move in chosen[:PANELS]])


def _move(recording: Recording, move: dict[str, Any]) -> Trace:
    joint, (first, *rest) = move["joint"], move["episodes"]
    column = recording.info.joint_names.index(joint)
    if move["lasting"]:
        return _by_episode(recording, joint, column, first, rest[0])
    log = recording.episode(first).joints()
    if not rest:
        spot = float(seconds(log)[min(move["row"], len(log.time_ns) - 1)])
        title = f"{joint}, episode {first}: moves at row {move['row']} and stays"
        line = Line("", seconds(log), log.position[:, column])
        return Trace(title, [line], spots=[(spot, spot)])
    after = recording.episode(rest[0]).joints()
    times = (seconds(log) - seconds(log)[-1], seconds(after))
    names = (f"episode {first}", f"episode {rest[0]}")
    lines = [
        Line(name, time_s, one.position[:, column], colour)
        for colour, (name, time_s, one) in enumerate(zip(names, times, (log, after)))
    ]
    title = f"{joint}: moves between episodes {first} and {rest[0]}"
    return Trace(title, lines, x="seconds from where one ends and the other begins", spots=[(0.0, 0.0)])


def _by_episode(recording: Recording, joint: str, column: int, before: int, after: int) -> Trace:
    """Middle and start of a joint in each episode."""
    indices = recording.episode_indices
    values = [recording.episode(index).joints().position[:, column] for index in indices]
    lines = [
        Line("median", indices, [np.median(one) for one in values], dots=True),
        Line("start", indices, [np.median(one[:3]) for one in values], 1, True, True),
    ]
    spots = [((before + after) / 2,) * 2]
    title = f"{joint}: another level from episode {after} on"
    return Trace(title, lines, "episode", spots=spots, whole_numbers=True)


def draw_limits(check: Check, recording: Recording) -> Sheet:
    """The joints that are furthest beyond, each in the episode where it is."""
    beyond = check.evidence["beyond"]
    traces = []
    for name in sorted(beyond, key=lambda one: -beyond[one])[:PANELS]:
        column = recording.info.joint_names.index(name)
        joint, episode = recording.info.joints[column], check.evidence["most_in"][name]
        log = recording.episode(episode).joints()
        assert joint.lower is not None and joint.upper is not None
        title = f"{name}, episode {episode}: its range is {joint.lower:.2f} to {joint.upper:.2f}"
        line = Line("", seconds(log), log.position[:, column])
        limits = (joint.lower, joint.upper)
        traces.append(Trace(title, [line], y=_unit(recording, name), range=limits))
    return Sheet(traces=traces)


def draw_sentinels(check: Check, recording: Recording) -> Sheet:
    """The constants as the source gave them, and a joint of the same episode that was read."""
    names = recording.info.joint_names
    whole = check.evidence["constant_joints"]
    partly = check.evidence["joints"]
    traces = []
    for episode in [*list(whole)[:1], *list(partly)[:1]]:
        log = recording.episode(int(episode)).joints()
        values = log.position if log.raw is None else log.raw
        unit = "in the source"
        if episode in whole:
            group = whole[episode]
            line = Line("", seconds(log), values[:, names.index(group[0])])
            title = f"{_few(group)}, episode {episode}: one value in all rows"
            traces.append(Trace(title, [line], y=unit))
            others = [column for column, name in enumerate(names) if name not in group]
            if others:
                column = liveliest(recording, log.position, others)
                line = Line("", seconds(log), values[:, column])
                traces.append(Trace(f"{names[column]}, the same episode", [line], y=unit))
        if episode in partly:
            rows = check.evidence["rows"][episode]
            spots = [(float(seconds(log)[row]),) * 2 for row in rows if abs(row - rows[0]) <= AROUND]
            traces += [
                _around(log, values[:, names.index(name)], rows[0], f"{name}, episode {episode}", unit, spots)
                for name in partly[episode][: PANELS - 1]
            ]
    return Sheet(traces=traces[:PANELS])


def _few(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _around(
    log: JointLog,
    values: NDArray[np.float64],
    row: int,
    title: str,
    unit: str,
    spots: Sequence[tuple[float, float]],
) -> Trace:
    shown = slice(max(0, row - AROUND), row + AROUND + 1)
    return Trace(f"{title}: row {row}", [Line("", seconds(log)[shown], values[shown])], y=unit, spots=spots)


def draw_raw_ticks(check: Check, recording: Recording) -> Sheet:
    """Raw ticks of the joints concerned, with what a 12-bit encoder can give, beside a joint within."""
    traces: dict[tuple[float, int], Trace] = {}  # joints that hold the same constant look the same
    for name in check.evidence["joints"]:
        column = recording.info.joint_names.index(name)
        for episode in check.evidence["episodes"]:
            log = recording.episode(episode).joints()
            if log.raw is None or not _outside(log.raw[:, column]).any():
                continue
            raw, row = log.raw, int(np.argmax(_outside(log.raw[:, column])))
            spot = float(seconds(log)[row])
            lines = [Line(name, seconds(log), raw[:, column])]
            within = [other for other in range(raw.shape[1]) if not _outside(raw[:, other]).any()]
            if within:
                other = liveliest(recording, raw, within)
                lines.append(Line(recording.info.joint_names[other], seconds(log), raw[:, other], 1, True))
            title = f"{name}, episode {episode}: {raw[row, column]:g} at row {row}"
            trace = Trace(title, lines, y="ticks", spots=[(spot, spot)], range=(0.0, 4095.0))
            traces.setdefault((float(raw[row, column]), row), trace)
            break
    return Sheet(traces=list(traces.values())[:PANELS])


def _outside(ticks: NDArray[np.float64]) -> NDArray[np.bool_]:
    return (ticks < 0) | (ticks > 4095)


def draw_leaps(check: Check, recording: Recording) -> Sheet:
    """The rows around a turn or a leap; of two heaps all values in the order of the rows."""
    names = recording.info.joint_names
    traces = []
    drawn: list[tuple[int, int, str]] = []
    for episode, row, name, _ in [*check.evidence["turns"], *check.evidence["leaps"]]:
        if any((e, n) == (episode, name) and abs(row - r) <= AROUND for e, r, n in drawn):
            continue
        drawn.append((episode, row, name))
        if len(drawn) > PANELS:
            break
        log = recording.episode(episode).joints()
        spot = float(seconds(log)[row])
        values = log.position[:, names.index(name)]
        traces.append(_around(log, values, row, f"{name}, episode {episode}", "rad", [(spot, spot)]))
    for name in list(check.evidence["heaps"])[: PANELS - len(traces)]:
        everything = [recording.episode(index).joints().position for index in recording.episode_indices]
        values = np.concatenate(everything)[:, names.index(name)]
        line = Line("", np.arange(len(values)), values)
        traces.append(Trace(f"{name}: two heaps of values", [line], x="rows of all episodes"))
    return Sheet(traces=traces)


def draw_stuck(check: Check, recording: Recording) -> Sheet:
    """The joints that hold one value, with a joint that moves meanwhile."""
    names = recording.info.joint_names
    traces = []
    for episode, name, first, last in check.evidence["rows"][: PANELS - 1]:
        log = recording.episode(episode).joints()
        spots = [(float(seconds(log)[first]), float(seconds(log)[last]))]
        columns = [names.index(name)] if name in names else [liveliest(recording, log.position)]
        others = [column for column in range(len(names)) if column not in columns]
        meanwhile = np.ptp(log.position[first:last], axis=0)[others] if others else np.zeros(0)
        if len(meanwhile) and meanwhile.max() > 0:
            columns.append(others[int(np.argmax(meanwhile))])
        traces += [
            Trace(
                f"{names[column]}, episode {episode}, rows {first} to {last}",
                [Line("", seconds(log), log.position[:, column])],
                y=_unit(recording, names[column]),
                spots=spots,
            )
            for column in columns
        ]
    return Sheet(traces=traces[:PANELS])


def draw_actions(check: Check, recording: Recording) -> Sheet:
    """A joint and its action, row by row where the joint moves most."""
    assert recording.info.actions is not None
    episode, log, sent = _longest(recording)
    names = recording.info.actions.names
    own = [recording.info.joint_names.index(name) for name in names if name in recording.info.joint_names]
    joint = liveliest(recording, log.position, own)
    name = recording.info.joint_names[joint]
    column = names.index(name) if name in names else joint
    steps = np.convolve(np.abs(np.diff(log.position[:, joint])), np.ones(FEW), "same")
    middle = int(np.argmax(steps))
    shown = slice(max(0, middle - FEW), middle + FEW)
    start = log.time_ns[0]
    there = (sent.time_ns >= log.time_ns[shown][0]) & (sent.time_ns <= log.time_ns[shown][-1])
    lines = [
        Line("joint", seconds(log)[shown], log.position[shown, joint], 0, dots=True),
        Line("action", (sent.time_ns[there] - start) / 1e9, sent.target[there, column], 1, True, True),
    ]
    title = f"{name} and its action, episode {episode}, a dot a row"
    return Sheet(traces=[Trace(title, lines, y=_unit(recording, name))])


def draw_followed(check: Check, recording: Recording) -> Sheet:
    """A joint (or its velocity) and its action, each about its mean in units of its own spread."""
    assert recording.info.actions is not None
    episode, log, sent = _longest(recording)
    named = [name for name in check.evidence.get("joints", ()) if name in recording.info.joint_names]
    joints = [recording.info.joint_names.index(name) for name in named[: PANELS - 1]]
    joints = joints or [liveliest(recording, log.position[:, : sent.target.shape[1]])]
    traces = []
    for joint in joints:
        name = recording.info.joint_names[joint]
        names = recording.info.actions.names
        column = names.index(name) if name in names else joint
        values = log.position[:, joint]
        action = Line(
            "action", (sent.time_ns - log.time_ns[0]) / 1e9, _scaled(sent.target[:, column]), 1, True
        )
        lines = [Line("position", seconds(log), _scaled(values), 0), action]
        followed = check.evidence.get("follows", {}).get(name, name)
        if followed != name:
            column = (
                names.index(followed) if followed in names else recording.info.joint_names.index(followed)
            )
            values_of = _scaled(sent.target[:, column])
            lines.append(Line(f"action of {followed}", action.x, values_of, 2, True))
        traces.append(Trace(f"{name} and its action, episode {episode}", lines, y="in own spreads"))
        if check.evidence.get("velocity"):
            speed = Line("velocity", seconds(log), _scaled(np.gradient(values)), 2)
            title = f"velocity of {name} and the same action"
            traces.append(Trace(title, [speed, action], y="in own spreads"))
    return Sheet(traces=traces[:PANELS])


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((values - values.mean()) / max(float(values.std()), 1e-12))


def _longest(recording: Recording) -> tuple[int, JointLog, ActionLog]:
    """The episode with actions in which joints move most; damaged ones are passed over."""
    best, most = None, -1.0
    for index in recording.episode_indices:
        try:
            log, sent = recording.episode(index).joints(), recording.episode(index).actions()
        except InputError:
            continue  # other checks say so
        moved = float(np.ptp(log.position, axis=0).sum()) if len(log.position) else -1.0
        if sent is not None and len(sent.target) and moved > most:
            best, most = (index, log, sent), moved
    assert best is not None
    return best


def draw_clocks(check: Check, recording: Recording) -> Sheet:
    """Seconds from each sample to the next, of the joints and of each view, beside what is declared."""
    indices = recording.episode_indices
    episode = recording.episode((check.evidence["episodes"] or indices)[0])
    streams = [("joints", recording.info.joints_hz, episode.joints().time_ns)]
    streams += [
        (f"view {view.name}", view.fps, episode.frame_times(view.name))
        for view in recording.info.views
        if episode.has_view(view.name)
    ]
    traces = []
    for name, hertz, time_ns in streams[:PANELS]:
        if len(time_ns) > 1:
            at = (time_ns[1:] - streams[0][2][0]) / 1e9
            lines = [
                Line("step", at, np.diff(time_ns) / 1e6),
                Line(f"declared, {hertz:g} Hz", [at[0], at[-1]], [1e3 / hertz] * 2, 1, True),
            ]
            title = f"{name}, episode {episode.index}: from each sample to the next"
            traces.append(Trace(title, lines, y="ms", least_span=0.4e3 / hertz))
    return Sheet(traces=traces)
