"""Pictures of findings about frames: the frames with their times, and what the joints did meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hardware.checks import Check, Look
from hardware.checks.stuck_frames import runs
from hardware.recording import Recording
from probe.checks.episodes import paired_at, scaled_by_joint
from probe.checks.joint_pictures import PANELS, liveliest, seconds
from probe.checks.pixels import PixelRows
from probe.checks.sheets import Line, Sheet, Trace

FRAMES = 4  # of one view, side by side
SHOWN_S = 4.0  # of a trace to either side of what is marked in it


def _look(looks: Sequence[Look], episode: int, view: str) -> Look:
    return next(one for one in looks if (one.episode, one.view) == (episode, view))


def _of(name: str) -> tuple[int, str]:
    """`3/front` as a check's evidence has it."""
    episode, view = name.split("/", 1)
    return int(episode), view


def with_joint(recording: Recording, look: Look, numbers: Sequence[int], marked: tuple[int, int]) -> Sheet:
    """Frames of a view under their times, above the joint that moves most while frames `marked` are there."""
    episode = recording.episode(look.episode)
    log = episode.joints()
    times = log.time_ns if recording.info.pairing == "row" else episode.frame_times(look.view)
    images = episode.frames(look.view, list(numbers))
    if not len(log.time_ns) or not len(times):
        return Sheet([(image, f"frame {number}") for number, image in zip(numbers, images)])
    at = (times[np.minimum(np.arange(look.frame_count), len(times) - 1)] - log.time_ns[0]) / 1e9
    frames = [(image, f"frame {number}, {at[number]:.2f} s") for number, image in zip(numbers, images)]
    first, last = (float(at[number]) for number in marked)
    shown = (seconds(log) >= first - SHOWN_S) & (seconds(log) <= last + SHOWN_S)
    inside = np.flatnonzero((seconds(log) >= first) & (seconds(log) <= last))
    part = log.position[inside] if len(inside) > 1 else log.position[shown]
    column = liveliest(recording, part)
    joint = recording.info.joints[column]
    spots = [(first, last), *((float(at[number]),) * 2 for number in numbers)]
    title = f"{joint.name} meanwhile, {look}"
    line = Line("", seconds(log)[shown], log.position[shown, column])
    return Sheet(frames, [Trace(title, [line], y=joint.unit, spots=spots)])


def _spread(first: int, last: int, count: int = FRAMES) -> list[int]:
    """Frame numbers from `first` to `last`, evenly, each once."""
    return sorted(set(np.linspace(first, last, count).round().astype(int).tolist()))


def draw_black(check: Check, recording: Recording, looks: Sequence[Look]) -> Sheet:
    """The longest black stretch, with the frames around it."""
    look = _look(looks, *_of(max(check.evidence["black"], key=lambda one: check.evidence["black"][one])))
    first, past = max(runs(look.black), key=lambda run: run[1] - run[0])
    numbers = _spread(max(0, first - 1), min(look.frame_count - 1, past))
    return with_joint(recording, look, numbers, (first, past - 1))


def draw_repeated(check: Check, recording: Recording, looks: Sequence[Look]) -> Sheet:
    """The longest stretch of repeats while joints move, of the view that repeats most and is not black."""
    shares = check.evidence["repeated_while_moving"]
    found = [_look(looks, *_of(name)) for name in sorted(shares, key=lambda one: -shares[one])]
    look = next((one for one in found if not one.black.all()), found[0])
    first, past = max(runs(look.same & look.moving), key=lambda run: run[1] - run[0])
    numbers = sorted({max(0, first - 1), first, past - 1, min(look.frame_count - 1, past)})
    return with_joint(recording, look, numbers, (first, past - 1))


def draw_frozen(check: Check, recording: Recording, looks: Sequence[Look]) -> Sheet:
    """The longest stretch of one and the same frame, with the frames before and after it."""
    episode, view, first, last = max(check.evidence["frames"], key=lambda one: one[3] - one[2])
    look = _look(looks, episode, view)
    numbers = sorted({max(0, first - 1), first, last, min(look.frame_count - 1, last + 1)})
    return with_joint(recording, look, numbers, (first, last))


def draw_beat(check: Check, recording: Recording, looks: Sequence[Look]) -> Sheet:
    """Frames one after the other over the first beat."""
    name, first = next(iter(check.evidence["first_frame"].items()))
    look = _look(looks, *_of(name))
    numbers = list(range(max(0, first - 1), min(look.frame_count, first + FRAMES)))
    return with_joint(recording, look, numbers, (numbers[0], numbers[-1]))


def draw_row_order(check: Check, recording: Recording, looks: Sequence[Look]) -> Sheet:
    """Frames that are stored one after the other, and the joint that moves most."""
    look = _look(looks, check.evidence["episodes"][0], check.name.removeprefix("row_order_"))
    middle = look.frame_count // 2
    numbers = list(range(middle, min(look.frame_count, middle + FRAMES)))
    return with_joint(recording, look, numbers, (numbers[0], numbers[-1]))


def draw_own_video(check: Check, recording: Recording, looks: Sequence[Look], rows: PixelRows) -> Sheet:
    """Two episodes that fit each other: frames of both, and what those say of a joint beside what was logged
    of it, in their own episode and in the other.
    """
    if "offset" in check.evidence:
        return _whole_set(check.evidence["offset"], recording, looks, rows)
    first = check.evidence["episodes"][0]
    pair = (first, check.evidence["belongs_to"][str(first)])
    said, logged = scaled_by_joint(rows)
    index = [rows.clusters.rows(rows.episodes.index(episode)) for episode in pair]
    index = [each[: min(map(len, index))] for each in index]
    column = _most_telling(said, logged, index)
    name = _moving(rows)[column]
    traces = [
        _said_and_logged(
            name,
            (episode, said[own, column]),
            (f"logged in {episode}, its own", logged[own, column]),
            (f"logged in {mate}", logged[others, column]),
        )
        for episode, mate, own, others in ((*pair, *index), (*pair[::-1], *index[::-1]))
    ]
    return Sheet(_of_episodes(recording, looks, rows.view, pair), traces)


def _whole_set(offset: int, recording: Recording, looks: Sequence[Look], rows: PixelRows) -> Sheet:
    """Of a set whose videos are `offset` episodes off: two of them beside the joints that they fit."""
    paired, said, logged = paired_at(rows, offset)
    scale = logged.std(axis=0)
    column = int(np.argmin(((said - logged) ** 2).sum(axis=0) / (logged**2).sum(axis=0)))
    own_y = scaled_by_joint(rows)[1][:, column]
    traces, shown = [], []
    for place in range(min(2, len(paired))):
        joints_of = rows.episodes[int(paired.labels[place])]
        frames_of = rows.episodes[int(paired.labels[place]) + offset]
        there = paired.rows(place)
        own = own_y[rows.clusters.rows(rows.episodes.index(frames_of))][: len(there)]
        shown.append(frames_of)
        traces.append(
            _said_and_logged(
                _moving(rows)[column],
                (frames_of, said[there, column] / scale[column]),
                (f"logged in {frames_of}, its own", own),
                (f"logged in {joints_of}", logged[there, column] / scale[column]),
            )
        )
    return Sheet(_of_episodes(recording, looks, rows.view, shown), traces)


def _moving(rows: PixelRows) -> list[str]:
    return [name for name, moves in zip(rows.joints, rows.moving) if moves]


def _of_episodes(
    recording: Recording, looks: Sequence[Look], view: str, episodes: Sequence[int]
) -> list[tuple[NDArray[np.uint8], str]]:
    """Two frames of each episode."""
    frames = []
    for episode in episodes:
        count = _look(looks, episode, view).frame_count
        numbers = _spread(count // 4, 3 * count // 4, 2)
        images = recording.episode(episode).frames(view, numbers)
        frames += [(image, f"episode {episode}, frame {n}") for n, image in zip(numbers, images)]
    return frames


def _said_and_logged(
    joint: str, said: tuple[int, NDArray[np.float64]], *logged: tuple[str, NDArray[np.float64]]
) -> Trace:
    episode, values = said
    lines = [Line("what the frames say", np.arange(len(values)), values - values.mean())]
    lines += [
        Line(label, np.arange(len(one)), one - one.mean(), colour, True)
        for colour, (label, one) in enumerate(logged, start=1)
    ]
    title = f"{joint} as the frames of episode {episode} have it, and as it was logged"
    return Trace(title, lines, "rows", "in spreads", whole_numbers=True)


def _most_telling(
    said: NDArray[np.float64], logged: NDArray[np.float64], index: Sequence[NDArray[np.int64]]
) -> int:
    """The joint of which the frames of both episodes fit the other's course most before their own."""
    better = np.zeros(said.shape[1])
    for own, others in ((index[0], index[1]), (index[1], index[0])):
        p = said[own] - said[own].mean(axis=0)
        for rows, sign in ((own, 1), (others, -1)):
            t = logged[rows] - logged[rows].mean(axis=0)
            better += sign * ((p - t) ** 2).sum(axis=0)
    return int(np.argmax(better))


def draw_lag(check: Check) -> Sheet:
    """R2 over shifts."""
    by_shift = check.evidence["r2_by_shift"]
    shifts = [int(shift) for shift in by_shift]
    values = [np.nan if value is None else value for value in by_shift.values()]
    peak = check.evidence["peak"]
    what = "how much moves" if check.evidence["of"] == "steps" else "where joints are"
    title = f"how well frames of a later row tell {what}: best at {peak:+d}"
    spots = [(0.0, 0.0), (float(peak), float(peak))]
    line = Line("", shifts, values, dots=True)
    return Sheet(traces=[Trace(title, [line], "rows later", "R2, held out", spots, whole_numbers=True)])


def draw_calibration_step(check: Check) -> Sheet:
    """What a joint reads beyond what the frames show, episode by episode."""
    bias = check.evidence["bias_rad"]
    before, after = check.evidence["episodes"]
    title = f"{check.evidence['joint']}: what is logged less what the frames show"
    line = Line("", [int(episode) for episode in bias], list(bias.values()), dots=True)
    spots = [((before + after) / 2,) * 2]
    return Sheet(traces=[Trace(title, [line], "episode", spots=spots, whole_numbers=True)][:PANELS])
