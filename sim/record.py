"""Recordings of the simulated arm, written as the real one writes them: each stream at its own rate, on its
own clock.

Simulated time is the clock. Targets go out at `ACTIONS_HZ`; joints are read with the noise and the resolution
of the servo's encoder; each camera ticks at its own phase and its frames bear the time of the physics state
they show. Every episode draws all its chance from its own child of the seed, so an interrupted recording
continues to the same episodes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from hardware.episode_writer import EpisodeWriter
from hardware.errors import InputError
from hardware.motions import WalkSettings, knot_correlation, walk_knots
from hardware.recording import Progress, Recording, RecordingWriter, host_facts, software_versions
from hardware.schema import RecordingInfo, parse_model
from hardware.servo_table import RADIANS_PER_TICK
from hardware.so101 import WALK_CENTRE_RAD
from hardware.trajectories import WALK_SECONDS, Motion, Walk
from sim.demonstrations import Demonstration
from sim.so101 import SimArm
from sim.so101_model import build_mjcf

MotionName = Literal["demos", "walk"]
ACTIONS_HZ = 50.0
ENCODER_NOISE_RAD = RADIANS_PER_TICK / 2
LOAD_STEP = 0.001


@dataclasses.dataclass
class _Ticker:
    """Counts out the physics steps at which a stream is due."""

    period_steps: float
    phase_steps: float
    count: int = 0

    @property
    def due(self) -> int:
        """The step of the next tick: the first at or after it."""
        return int(np.ceil(self.phase_steps + self.count * self.period_steps - 1e-9))


def record_simulated(
    to: Path | str,
    *,
    motion: MotionName,
    episodes: int,
    seed: int,
    views: Sequence[str] = ("front", "wrist"),
    fps: float = 15.0,
    joints_hz: float = 100.0,
    image_size: int | tuple[int, int] = 96,
    mjcf: Path | str | None = None,
    seconds: float | None = None,
    walk: WalkSettings | None = None,
    progress: Progress | None = None,
) -> Recording:
    """Record the simulated arm; called again with the same arguments it continues where it stopped.

    Parameters
    ----------
    to : folder of the recording.
    motion : "demos" (blocks carried between the bowls) or "walk" (the isotropic random walk).
    episodes, seed : how many; episode i depends on the seed and i alone.
    views, fps, image_size : cameras, frames a second of each, pixels: a side, or (width, height).
    joints_hz : joint samples a second, at most one a physics step.
    mjcf : the user's own model in place of ours.
    seconds : length of an episode; None gives walks 30 s and lets demonstrations end by themselves.
    walk : settings of the walk; without a centre it is `WALK_CENTRE_RAD`.
    progress : called with episodes done, episodes in all and a word on the last.

    Raises
    ------
    InputError : for arguments that make no recording, a model without the joints or cameras, or no OpenGL
        library.
    """
    _check(motion, episodes, seed, seconds, walk)
    seeds = np.random.SeedSequence(seed).spawn(episodes)
    with SimArm(mjcf, views, image_size) as arm:
        _check_rates(arm, fps, joints_hz)
        walks: list[Walk] = []
        settings: dict[str, Any] = {"seed": seed, "episodes": episodes, "seconds": seconds}
        if motion == "walk":
            walks, walk_facts = _plan_walks(arm, walk or WalkSettings(), seconds or WALK_SECONDS, seeds)
            settings |= {"seconds": seconds or WALK_SECONDS, **walk_facts}
        arm.render(arm.views[0])  # a missing OpenGL library shows itself before anything is written
        info = _describe(arm, motion, settings, fps, joints_hz, mjcf)
        with RecordingWriter.resume(to, info) as writer:
            for index, child in enumerate(seeds):
                word = f"{motion} {index + 1}"
                if index not in writer.sealed:
                    with writer.episode(index) as episode:
                        word += _record_episode(
                            arm, episode, child, walks[index] if walks else None, seconds, fps, joints_hz
                        )
                if progress is not None:
                    progress(index + 1, episodes, word)
            return writer.close()


def _check(motion: str, episodes: int, seed: int, seconds: float | None, walk: WalkSettings | None) -> None:
    known = get_args(MotionName)
    if motion not in known:
        raise InputError("motion", f"{motion!r} is not simulated", f"use {' or '.join(known)}")
    if not 1 <= episodes <= 100_000:
        raise InputError("episodes", f"{episodes} is no number of episodes", "use 1 or more")
    if seed < 0:
        raise InputError("seed", f"{seed} is negative", "use 0 or more")
    if seconds is not None and not 0.5 <= seconds <= 3600:
        raise InputError("seconds", f"{seconds} is not between 0.5 and 3600")
    if walk is not None and motion != "walk":
        raise InputError("walk settings", f"do not apply to {motion}", "leave them out, or record a walk")


def _check_rates(arm: SimArm, fps: float, joints_hz: float) -> None:
    fastest = 1 / arm.timestep_s
    for name, rate in (("fps", fps), ("joints_hz", joints_hz)):
        if not 0 < rate <= fastest * (1 + 1e-9):
            raise InputError(name, f"{rate} Hz is not between 0 and {fastest:.0f}, one a physics step")
    if not arm.views:
        raise InputError("views", "there are none", "name at least one camera")
    if len(set(arm.views)) < len(arm.views):
        raise InputError("views", f"a name repeats among {', '.join(arm.views)}", "name each camera once")


def _plan_walks(
    arm: SimArm, settings: WalkSettings, seconds: float, seeds: Sequence[np.random.SeedSequence]
) -> tuple[list[Walk], dict[str, Any]]:
    """All walks before the first is recorded, so that what was refused stands in recording.yaml."""
    if settings.centre_rad is None:
        settings = dataclasses.replace(settings, centre_rad=WALK_CENTRE_RAD)
    n_knots = int(seconds / settings.knot_period_s + 1e-9) + 1
    plans = [
        walk_knots(
            settings, arm.limits, n_knots, arm.blocked, np.random.default_rng(_streams(child)["motion"])
        )
        for child in seeds
    ]
    rejected = Counter[str]()
    for plan in plans:
        rejected.update(plan.rejected)
    kept = sum(len(plan.knots) for plan in plans)
    facts = {
        **settings.describe(),
        "sigma_rad": [round(float(value), 9) for value in plans[0].sigma],
        "knots": kept,
        "rejected": dict(sorted(rejected.items())),
        "acceptance": round(kept / (kept + sum(rejected.values())), 6),
        "knot_correlation": [
            None if np.isnan(value) else round(float(value), 4) for value in knot_correlation(plans)
        ],
    }
    return [Walk(plan, settings.knot_period_s) for plan in plans], facts


def _streams(child: np.random.SeedSequence) -> dict[str, np.random.SeedSequence]:
    """One source of chance for each thing that needs one; made anew from the child's key, so asking twice
    changes nothing.
    """
    names = ("motion", "sensors", "cameras")
    fresh = np.random.SeedSequence(child.entropy, spawn_key=child.spawn_key)
    return dict(zip(names, fresh.spawn(len(names)), strict=True))


def _describe(
    arm: SimArm,
    motion: MotionName,
    settings: dict[str, Any],
    fps: float,
    joints_hz: float,
    mjcf: Path | str | None,
) -> RecordingInfo:
    settings = {
        **settings,
        "actions_hz": ACTIONS_HZ,
        "target_glide_s": 1 / ACTIONS_HZ,
        "timestep_s": arm.timestep_s,
        "encoder_tick_rad": float(RADIANS_PER_TICK),
        "encoder_noise_rad": float(ENCODER_NOISE_RAD),
    }
    text = build_mjcf().encode() if mjcf is None else Path(mjcf).read_bytes()
    name = "built in" if mjcf is None else Path(mjcf).name
    settings["mjcf"] = {"file": name, "sha256": hashlib.sha256(text).hexdigest()}
    content = {
        "robot": "sim-so101",
        "joints": [
            {"name": name, "unit": "rad", "lower": float(low), "upper": float(high)}
            for name, (low, high) in zip(arm.joint_names, arm.limits, strict=True)
        ],
        "actions": {"names": list(arm.joint_names), "unit": "rad", "meaning": "target"},
        "views": [
            {"name": view, "width": arm.width, "height": arm.height, "fps": fps, "encoding": "rgb8"}
            for view in arm.views
        ],
        "joints_hz": joints_hz,
        "pairing": "clock",
        "motion": motion,
        "motion_settings": settings,
        "software": software_versions("mujoco", "numpy"),
        "host": {
            **host_facts(),
            "clock": "simulated; wall time counts from 1970",
            "opengl": os.environ.get("MUJOCO_GL", "default"),
        },
    }
    return parse_model(RecordingInfo, content, "the simulated recording")


def _record_episode(
    arm: SimArm,
    episode: EpisodeWriter,
    child: np.random.SeedSequence,
    walk: Walk | None,
    seconds: float | None,
    fps: float,
    joints_hz: float,
) -> str:
    """Simulate and write one episode; returns a word on how it went."""
    chance = {name: np.random.default_rng(stream) for name, stream in _streams(child).items()}
    demonstration: Demonstration | None = None
    motion: Motion
    if walk is not None:
        motion = walk
        # Blocks lie where the model has them: the walk's world is the arm alone. A layout that changed
        # between episodes and never within one would be the slowest factor, and no part of an OU process.
        arm.reset(None, walk.plan.knots[0])
    else:
        motion = demonstration = Demonstration(arm, chance["motion"], seconds)
    start_ns = (episode.index + 1) * int(max(1000.0, 2 * (seconds or 0.0))) * 10**9
    end_s = _stream(arm, episode, motion, start_ns, chance, fps, joints_hz)
    if walk is not None:
        episode.knots(start_ns + np.round(walk.knot_times_s * 1e9).astype(np.int64), walk.plan.knots)
    end_ns = start_ns + round(end_s * 1e9)
    episode.clocks(start=(start_ns, start_ns), end=(end_ns, end_ns))
    if demonstration is None:
        return ""
    delivered = sum(pick.delivered for pick in demonstration.picks)
    return f": {delivered} of {len(demonstration.picks)} grasps delivered"


def _stream(
    arm: SimArm,
    episode: EpisodeWriter,
    motion: Motion,
    start_ns: int,
    chance: dict[str, np.random.Generator],
    fps: float,
    joints_hz: float,
) -> float:
    """Run the motion to its end, each stream written when it is due; returns the simulated seconds that
    passed.
    """
    rate = 1 / arm.timestep_s
    actions, joints = _Ticker(rate / ACTIONS_HZ, 0.0), _Ticker(rate / joints_hz, 0.0)
    cameras = {view: _Ticker(rate / fps, chance["cameras"].uniform(0, rate / fps)) for view in arm.views}
    sent: list[tuple[int, np.ndarray]] = []
    read: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = []
    step = 0
    while True:
        time_ns = start_ns + round(step * arm.timestep_s * 1e9)
        if step >= actions.due:
            target = motion.target(step * arm.timestep_s)
            if target is None:
                break
            sent.append((time_ns, arm.set_target(target, glide_s=1 / ACTIONS_HZ)))
            actions.count += 1
        if step >= joints.due:
            read.append((time_ns, arm.position, arm.velocity, arm.load))
            joints.count += 1
        for view, camera in cameras.items():
            if step >= camera.due:
                episode.frame(view, time_ns, camera.count, arm.render(view))
                camera.count += 1
        following = min(actions.due, joints.due, *(camera.due for camera in cameras.values()))
        arm.step(following - step)
        step = following
    if sent:
        episode.actions(np.array([row[0] for row in sent]), np.array([row[1] for row in sent]))
    position, velocity, load = (np.array([row[column] for row in read]) for column in (1, 2, 3))
    episode.joints(
        np.array([row[0] for row in read]),
        _encoded(position + chance["sensors"].normal(0, ENCODER_NOISE_RAD, position.shape), RADIANS_PER_TICK),
        velocity=_encoded(velocity, RADIANS_PER_TICK),
        load=_encoded(load, LOAD_STEP),
    )
    return step * arm.timestep_s


def _encoded(values: np.ndarray, unit: float) -> np.ndarray:
    """Rounded to what the servo's registers resolve."""
    return np.round(values / unit) * unit
