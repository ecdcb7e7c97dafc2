"""Mistakes in a recording: frames, clocks, joints, actions and names that are not what they claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bench import EXPECT, Bench, ExposedBy, Mutation
from rewritten_recordings import Streams, rewritten

from hardware.checks import Check
from probe.checks import check_recording

Change = Callable[[list[Streams], np.random.Generator], None]
PAN, LIFT, ELBOW, FLEX, ROLL, GRIPPER = range(6)


def mutation(
    name: str,
    mistake: str,
    named_by: str,
    change: Change,
    exposed_by: ExposedBy = "the set itself",
    info: Callable[[Bench], dict[str, Any]] | None = None,
    frames: bool = True,
) -> Mutation:
    """A mutation of a recording's streams, or of its recording.yaml; `named_by` is parted by spaces.

    Without `frames` it is checked as `check_recording(frames=False)` does, which is enough to name it.
    """

    def run(bench: Bench, folder: Path, rng: np.random.Generator) -> list[Check]:
        spoiled = rewritten(
            bench.recording,
            folder / "spoiled",
            lambda episodes: change(episodes, rng),
            **(info(bench) if info else {}),
        )
        unlimited = exposed_by == "nothing"  # then nothing helps, whatever is at hand
        return check_recording(
            spoiled,
            frames=frames,
            reference=bench.reference if unlimited or exposed_by == "a reference recording" else None,
            expect=EXPECT if unlimited or exposed_by == "the declaration" else None,
        )

    return Mutation(name, mistake, "recording", exposed_by, tuple(named_by.split()), run)


# -- frames: colours --------------------------------------------------------------------------------------


def each_frame(episodes: list[Streams], rng: np.random.Generator, channels: list[int]) -> None:
    for one in episodes:
        one.frames = {view: frames[..., channels] for view, frames in one.frames.items()}


# -- frames: times and episodes ---------------------------------------------------------------------------


def late(episodes: list[Streams], rng: np.random.Generator) -> None:
    for one in episodes:
        one.frames = {view: frames[:-1] for view, frames in one.frames.items()}
        one.frame_ns = {view: times[1:] for view, times in one.frame_ns.items()}


def early(episodes: list[Streams], rng: np.random.Generator) -> None:
    for one in episodes:
        one.frames = {view: frames[1:] for view, frames in one.frames.items()}
        one.frame_ns = {view: times[:-1] for view, times in one.frame_ns.items()}


def give_video(to: Streams, frames: dict[str, np.ndarray]) -> None:
    """Frames in the place of an episode's own, at its own times, as many as both have."""
    for view, own in to.frame_ns.items():
        count = min(len(own), len(frames[view]))
        to.frames[view], to.frame_ns[view] = frames[view][:count], own[:count]


def neighbours_video(episodes: list[Streams], rng: np.random.Generator) -> None:
    give_video(episodes[3], episodes[4].frames)


def exchanged_videos(episodes: list[Streams], rng: np.random.Generator) -> None:
    third, fourth = dict(episodes[3].frames), dict(episodes[4].frames)
    give_video(episodes[3], fourth)
    give_video(episodes[4], third)


def all_videos_next(episodes: list[Streams], rng: np.random.Generator) -> None:
    videos = [dict(one.frames) for one in episodes]
    for one, frames in zip(episodes, videos[1:] + videos[:1]):
        give_video(one, frames)


def first_frame_before(episodes: list[Streams], rng: np.random.Generator) -> None:
    for one, before in zip(episodes[1:], episodes):
        for view, frames in one.frames.items():
            frames[0] = before.frames[view][-1]


def shuffled_frames(episodes: list[Streams], rng: np.random.Generator) -> None:
    for frames in episodes[2].frames.values():
        frames[:] = rng.permutation(frames)


def duplicated_episode(episodes: list[Streams], rng: np.random.Generator) -> None:
    episodes.append(replace(episodes[2], index=len(episodes)))


def lost_frames(episodes: list[Streams], rng: np.random.Generator) -> None:
    for one in episodes:
        for view, frames in one.frames.items():
            kept = rng.random(len(frames)) > 0.1
            one.frames[view], one.frame_ns[view] = frames[kept], one.frame_ns[view][kept]


# -- frames: views ----------------------------------------------------------------------------------------


def exchange_views(one: Streams) -> None:
    front, wrist = one.frames
    one.frames = {front: one.frames[wrist], wrist: one.frames[front]}
    one.frame_ns = {front: one.frame_ns[wrist], wrist: one.frame_ns[front]}


def swapped_views(episodes: list[Streams], rng: np.random.Generator) -> None:
    for one in episodes:
        exchange_views(one)


def swapped_once(episodes: list[Streams], rng: np.random.Generator) -> None:
    exchange_views(episodes[3])


def identical_views(episodes: list[Streams], rng: np.random.Generator) -> None:
    for one in episodes:
        front, wrist = one.frames
        one.frames[wrist], one.frame_ns[wrist] = one.frames[front], one.frame_ns[front]


# -- frames: stuck, black, torn ---------------------------------------------------------------------------


def stale_every_fourth(episodes: list[Streams], rng: np.random.Generator) -> None:
    for one in episodes:
        for frames in one.frames.values():
            frames[3::4] = frames[2 : len(frames) - 1 : 4][: len(frames[3::4])]


def frozen_view(episodes: list[Streams], rng: np.random.Generator) -> None:
    front = next(iter(episodes[1].frames.values()))
    front[len(front) // 3 :] = front[len(front) // 3]


def black_frames(episodes: list[Streams], rng: np.random.Generator) -> None:
    front = next(iter(episodes[1].frames.values()))
    front[10:20] = 0


def torn_frames(episodes: list[Streams], rng: np.random.Generator) -> None:
    for one in episodes:
        for frames in one.frames.values():
            whole = frames.copy()
            half = frames.shape[1] // 2
            for number in range(4, len(frames), 7):
                frames[number, half:] = whole[number - 1, half:]


# -- joints -----------------------------------------------------------------------------------------------


def scaled(episodes: list[Streams], rng: np.random.Generator, by: float) -> None:
    for one in episodes:
        one.position, one.target = one.position * by, one.target * by


def reversed_gripper(episodes: list[Streams], rng: np.random.Generator, actions: bool) -> None:
    values = np.concatenate([one.position[:, GRIPPER] for one in episodes])
    both = values.min() + values.max()
    for one in episodes:
        one.position[:, GRIPPER] = both - one.position[:, GRIPPER]
        if actions:
            one.target[:, GRIPPER] = both - one.target[:, GRIPPER]


def half_turn_wrap(episodes: list[Streams], rng: np.random.Generator) -> None:
    position = np.concatenate([one.position for one in episodes])
    joint = int(np.argmax(np.ptp(position, axis=0)))
    to_half_turn = np.pi - np.median(position[:, joint])
    for one in episodes:
        for values in (one.position, one.target):
            values[:, joint] = np.angle(np.exp(1j * (values[:, joint] + to_half_turn)))


def sentinels(episodes: list[Streams], rng: np.random.Generator) -> None:
    for one in episodes[2:4]:
        for first in rng.choice(len(one.position) - 40, size=4, replace=False):
            one.position[first : first + 6, [PAN, ROLL]] = -1.0


def frozen_joint(episodes: list[Streams], rng: np.random.Generator) -> None:
    """Hold the joint and the 80 rows that moved farthest, as a bus does that gives the last value again."""
    for one in episodes[2:5]:
        travel = np.abs(one.position[80:] - one.position[:-80])
        first, joint = np.unravel_index(int(np.argmax(travel)), travel.shape)
        one.position[first : first + 80, joint] = one.position[first, joint]


def calibration_offset(episodes: list[Streams], rng: np.random.Generator, since: int, by: float) -> None:
    for one in episodes[since:]:
        one.position[:, PAN] += by
        one.target[:, PAN] += by


# -- actions ----------------------------------------------------------------------------------------------


def action_columns(episodes: list[Streams], rng: np.random.Generator) -> None:
    for one in episodes:
        one.target = one.target[:, [PAN, ELBOW, LIFT, FLEX, ROLL, GRIPPER]]


def velocity_actions(episodes: list[Streams], rng: np.random.Generator) -> None:
    for one in episodes:
        seconds = (one.action_ns - one.action_ns[0]) / 1e9
        one.target = np.gradient(one.target, seconds, axis=0)


def copied_actions(episodes: list[Streams], rng: np.random.Generator) -> None:
    for one in episodes:
        one.action_ns, one.target = one.joint_ns, one.position.copy()


def late_actions(episodes: list[Streams], rng: np.random.Generator) -> None:
    for one in episodes:
        one.action_ns = one.action_ns + 200_000_000


def unchanged(episodes: list[Streams], rng: np.random.Generator) -> None:
    pass


def names_exchanged(bench: Bench) -> dict[str, Any]:
    """Each column keeps its limits."""
    info = bench.recording.info
    names = list(info.joint_names)
    names[PAN], names[GRIPPER] = names[GRIPPER], names[PAN]
    joints = [joint.model_copy(update={"name": name}) for joint, name in zip(info.joints, names)]
    assert info.actions is not None
    return {"joints": joints, "actions": info.actions.model_copy(update={"names": names})}


def declared_twice_as_fast(bench: Bench) -> dict[str, Any]:
    views = bench.recording.info.views
    return {"views": [view.model_copy(update={"fps": 2 * view.fps}) for view in views]}


RECORDING_MUTATIONS = (
    mutation(
        "red channel only",
        "the red channel is copied into all three",
        "grey",
        partial(each_frame, channels=[0, 0, 0]),
    ),
    mutation(
        "BGR",
        "red and blue are exchanged in every frame",
        "colours_reference",
        partial(each_frame, channels=[2, 1, 0]),
        "a reference recording",
    ),
    mutation("frames one late", "each frame bears the time of the next one", "lag_*", late),
    mutation("frames one early", "each frame bears the time of the one before", "lag_*", early),
    mutation(
        "neighbour's video",
        "an episode holds the video of the next one",
        "shared_frames own_video_*",
        neighbours_video,
    ),
    mutation("exchanged videos", "two episodes hold each other's video", "own_video_*", exchanged_videos),
    mutation(
        "all videos one off", "each episode holds the video of the next one", "own_video_*", all_videos_next
    ),
    mutation(
        "previous first frame",
        "each episode begins with the last frame of the one before",
        "first_frames",
        first_frame_before,
    ),
    mutation("shuffled frames", "an episode's frames are in no order", "row_order_*", shuffled_frames),
    mutation("duplicated episode", "an episode is stored twice", "shared_frames", duplicated_episode),
    mutation("lost frames", "one frame in ten was never stored", "clock_steps", lost_frames, frames=False),
    mutation(
        "swapped views",
        "the two views are exchanged in all episodes",
        "views_reference",
        swapped_views,
        "a reference recording",
    ),
    mutation(
        "misnamed views",
        "the two views bear each other's name, against what was declared of them",
        "view_map",
        swapped_views,
        "the declaration",
    ),
    mutation(
        "views swapped once", "the two views are exchanged in one episode", "views_within", swapped_once
    ),
    mutation("identical views", "one camera is stored under two names", "identical_views", identical_views),
    mutation(
        "stale every fourth",
        "every fourth frame is the one before again",
        "repeat_pattern repeated_frames",
        stale_every_fourth,
    ),
    mutation(
        "frozen view",
        "a view stands still for most of an episode",
        "frozen_frames repeated_frames",
        frozen_view,
    ),
    mutation("black frames", "ten frames show nothing", "black_frames", black_frames),
    mutation(
        "torn frames", "the lower half of a frame is that of the one before", "torn_frames", torn_frames
    ),
    mutation(
        "degrees as radians",
        "numbers in degrees are declared radians",
        "units",
        partial(scaled, by=180 / np.pi),
        frames=False,
    ),
    mutation(
        "radians as degrees",
        "radians are taken for degrees and converted once more",
        "units",
        partial(scaled, by=np.pi / 180),
        frames=False,
    ),
    mutation(
        "gripper against action",
        "the gripper's state is reversed, its action is not",
        "directions",
        partial(reversed_gripper, actions=False),
        frames=False,
    ),
    mutation(
        "gripper all reversed",
        "the gripper's state and action are reversed alike",
        "joints_reference",
        partial(reversed_gripper, actions=True),
        "a reference recording",
    ),
    mutation(
        "half-turn wrap",
        "a joint crosses the half turn and is wrapped",
        "joint_leaps",
        half_turn_wrap,
        frames=False,
    ),
    mutation("sentinels", "failed reads are stored as -1", "sentinels", sentinels, frames=False),
    mutation(
        "frozen joint",
        "a joint gives its last value for 0.8 s while it moves",
        "stuck_joints",
        frozen_joint,
        frames=False,
    ),
    mutation(
        "calibrated in between",
        "a joint reads 0.5 rad more from the middle of the set on (a servo horn set two teeth on)",
        "calibration_step_* joint_offsets",
        partial(calibration_offset, since=4, by=0.5),
    ),
    mutation(
        "calibration off",
        "a joint reads 0.1 rad more in all episodes",
        "*",
        partial(calibration_offset, since=0, by=0.1),
        "nothing",
    ),
    mutation(
        "action columns",
        "two columns of the actions are exchanged",
        "joint_order",
        action_columns,
        frames=False,
    ),
    mutation(
        "joint names",
        "pan and gripper bear each other's name, in joints and actions alike",
        "joints_reference",
        unchanged,
        "a reference recording",
        names_exchanged,
    ),
    mutation("action is velocity", "actions are velocities", "action_lag", velocity_actions, frames=False),
    mutation("actions copied", "actions are the joints themselves", "actions", copied_actions, frames=False),
    mutation(
        "actions late",
        "actions bear times 0.2 s after they were sent",
        "action_lag",
        late_actions,
        frames=False,
    ),
    mutation(
        "declared rate",
        "the views are declared twice as fast as they are",
        "clock_rate",
        unchanged,
        info=declared_twice_as_fast,
        frames=False,
    ),
)
