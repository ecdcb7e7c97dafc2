"""Clocks: the rate that was declared, that of the time stamps and that of each video."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from hardware.checks.check import Check, and_more, not_testable
from hardware.episode import JointLog
from hardware.errors import InputError
from hardware.recording import Recording

RATE_TOLERANCE = 0.02  # two rates agree within 2 %
LONG_STEP = 1.5  # a step of the clock is long from 1.5 times the median on


def _streams(recording: Recording, index: int, log: JointLog) -> Iterator[tuple[str, float, np.ndarray]]:
    """(name, declared Hz, time_ns) of the joints and of each view of an episode."""
    yield "joints", recording.info.joints_hz, log.time_ns
    episode = recording.episode(index)
    for view in recording.info.views:
        if episode.has_view(view.name):
            try:
                yield f"view {view.name}", view.fps, episode.frame_times(view.name)
            except InputError:
                continue  # counted by check_counts


def check_clock_order(recording: Recording, logs: dict[int, JointLog]) -> Check:
    if not any(len(log.time_ns) > 1 for log in logs.values()):
        return not_testable("clock_order", "no episode of two rows can be read")
    backward: dict[int, str] = {}
    for index, log in logs.items():
        for name, _, time_ns in _streams(recording, index, log):
            steps = np.diff(time_ns)
            if np.any(steps <= 0):
                row = int(np.argmax(steps <= 0))
                backward[index] = (
                    f"{name}: row {row + 1} is {steps[row] / 1e9:+.6f} s after the row before it"
                )
        if index not in backward and (problem := _counted_wrongly(recording, index)):
            backward[index] = problem
    if not backward:
        return Check("clock_order", "pass", "every clock advances with every row")
    first = next(iter(backward))
    return Check(
        "clock_order",
        "fail",
        f"episode {first}: {backward[first]}{and_more(backward)}",
        {"episodes": list(backward)},
        "rows were reordered or repeated: leave these episodes out",
    )


def _counted_wrongly(recording: Recording, index: int) -> str:
    """What is wrong with the cameras' counters, which rise with every frame; empty for nothing."""
    episode = recording.episode(index)
    for view in filter(episode.has_view, recording.info.view_names):
        try:
            numbers = episode.sequence(view)
        except InputError as error:
            return str(error)
        falls = np.flatnonzero(np.diff(numbers) <= 0)
        if len(falls):
            before, after = numbers[falls[0] : falls[0] + 2]
            return f"view {view}: frame {falls[0] + 1} has sequence number {after} after {before}"
    return ""


def check_clock_rate(recording: Recording, logs: dict[int, JointLog]) -> Check:
    """The rate that was declared, that of the time stamps, and that of each video."""
    declared: dict[str, float] = {}
    steps: dict[str, list[np.ndarray]] = {}
    apart_s: dict[int, float] = {}
    for index, log in logs.items():
        lasted = []
        for name, hertz, time_ns in _streams(recording, index, log):
            declared[name] = hertz
            if len(time_ns) > 1:
                steps.setdefault(name, []).append(np.diff(time_ns))
                lasted.append((int(time_ns[-1]) - int(time_ns[0])) / 1e9)
        if len(lasted) > 1:
            apart_s[index] = max(lasted) - min(lasted)
    rates = {name: _rates(np.concatenate(parts)) for name, parts in steps.items()}
    if not rates:
        return not_testable("clock_rate", "no episode of two rows can be read")
    widest = max(apart_s, key=lambda index: apart_s[index]) if apart_s else None
    evidence: dict[str, Any] = {
        "declared_hz": declared,
        "median_hz": {name: round(median, 3) for name, (median, _) in rates.items()},
        "mean_hz": {name: round(mean, 3) for name, (_, mean) in rates.items()},
        "episodes": [] if widest is None else [widest],
    }
    if widest is not None:
        evidence["widest_apart_s"] = round(apart_s[widest], 3)
    stamped = {
        f"view {view.name}": ", by the pts of its video"
        for view in recording.info.views
        if view.encoding == "video"
    }
    said = "; ".join(
        f"{name} {median:.1f} Hz"
        + (f" by the median step, {mean:.1f} on average" if abs(median - mean) > 0.005 * mean else "")
        + f" ({declared[name]:g} declared{stamped.get(name, '')})"
        for name, (median, mean) in rates.items()
    )
    # The mean judges: a clock of coarse ticks (15 Hz as steps of 65 and 70 ms) has an odd median and loses
    # nothing.
    off = [name for name, (_, mean) in rates.items() if _differ(mean, declared[name])]
    means = [mean for _, mean in rates.values()]
    parted = recording.info.pairing == "row" and bool(means) and _differ(max(means), min(means))
    if not off and not parted:
        return Check("clock_rate", "pass", f"rates are as declared: {said}", evidence)
    ends = (
        f"; in episode {widest} the streams end {apart_s[widest]:.2f} s apart"
        if parted and widest is not None
        else ""
    )
    pairs = "rows pair by number, so none is shifted; but " if recording.info.pairing == "row" else ""
    return Check(
        "clock_rate",
        "warn",
        f"time stamps say {said}{ends}",
        evidence,
        f"{pairs}say which clock a speed or a stride was taken from",
    )


def _rates(steps_ns: np.ndarray) -> tuple[float, float]:
    """(by the median step, on average), in Hz; a clock that stands still has rate 0."""
    median, mean = float(np.median(steps_ns)), float(np.mean(steps_ns))
    return (1e9 / median if median > 0 else 0.0, 1e9 / mean if mean > 0 else 0.0)


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > RATE_TOLERANCE * max(one, other)


def check_clock_steps(recording: Recording, logs: dict[int, JointLog]) -> Check:
    worst: tuple[float, int, str] = (0.0, -1, "")
    long_steps: Counter[str] = Counter()
    all_steps: Counter[str] = Counter()
    spans: dict[str, list[float]] = {}
    for index, log in logs.items():
        for name, _, time_ns in _streams(recording, index, log):
            if len(time_ns) < 3:
                continue
            steps = np.diff(time_ns) / 1e9
            median = float(np.median(steps))
            long_steps[name] += int((steps > LONG_STEP * median).sum())
            all_steps[name] += len(steps)
            low, high = spans.get(name, [np.inf, -np.inf])
            spans[name] = [min(low, float(steps.min())), max(high, float(steps.max()))]
            if median > 0:
                worst = max(worst, (float(steps.max()) / median, index, name))
    if not all_steps:
        return not_testable("clock_steps", "no episode of three rows can be read")
    shares = {name: long_steps[name] / count for name, count in all_steps.items()}
    evidence = {
        "step_s": {name: [round(low, 6), round(high, 6)] for name, (low, high) in spans.items()},
        "long_share": {name: round(share, 4) for name, share in shares.items()},
        "episodes": [worst[1]] if worst[1] >= 0 else [],
    }
    uneven = [name for name, share in shares.items() if share > 0.01]
    if not uneven:
        return Check("clock_steps", "pass", "steps of every clock are even", evidence)
    said = "; ".join(
        f"{name}: steps of {spans[name][0]:.3f} to {spans[name][1]:.3f} s, {shares[name]:.1%} of them long"
        for name in uneven
    )
    return Check(
        "clock_steps",
        "warn",
        f"{said} (longest in episode {worst[1]})",
        evidence,
        "samples were late or lost; a stride in rows is no fixed time here",
    )
