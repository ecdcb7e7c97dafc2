"""`jointprobe record` on an arm, real or emulated: open what is plugged in, check it, record, let go."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hardware.arm import Arm
from hardware.bus import BusFault, ServoBus
from hardware.calibration import load_calibration
from hardware.cameras import Camera, CameraFacts
from hardware.errors import InputError
from hardware.keys import Keys
from hardware.preflight import preflight, require
from hardware.programmes import Observe, Programme, Replays, Teleoperate, Walks
from hardware.recorder import Recorder
from hardware.recording import Recording, host_facts, read_info, software_versions
from hardware.recovery import recover, unfinished
from hardware.safety import CLEARANCE_M, TOUCHING, SafetyLimits
from hardware.schema import NAME_PATTERN, RecordingInfo, parse_model
from hardware.serial_port import serial_ports
from hardware.session import RecorderSettings, RecordReport
from hardware.snapshot import Snapshot
from hardware.trajectories import WALK_SECONDS

ArmMotion = Literal["observe", "teleop", "walk", "replay"]
Robot = Literal["so101", "twin"]
TWIN_FPS = 15.0
TWIN_BLIND_S = 2.0
LEROBOT_CALIBRATIONS = Path("~/.cache/huggingface/lerobot/calibration")


@dataclass(frozen=True)
class ArmSession:
    """What `jointprobe record --robot so101|twin` was asked for.

    Parameters
    ----------
    to : folder of the recording.
    robot : a real SO-101, or its twin: the emulated bus and cameras, on the same path.
    motion : observe, teleop, walk or replay.
    episodes : how many the recording holds in the end.
    seconds : length of an episode; None ends it by key, or with the motion.
    port, leader_port : serial ports of the arm and of the leader; the twin brings its own.
    calibration, leader_calibration : LeRobot's JSON of each.
    views : name -> device path, index, file or URL; of the twin: name -> its own camera of that name.
    replay, replay_episode : the recording whose targets are sent again, and which of its episodes.
    size, fps : asked of the cameras; None takes what they give.
    """

    to: Path
    robot: Robot
    motion: ArmMotion
    episodes: int
    seconds: float | None = None
    port: str | None = None
    calibration: Path | None = None
    leader_port: str | None = None
    leader_calibration: Path | None = None
    views: Mapping[str, str] | None = None
    replay: Path | None = None
    replay_episode: int | None = None
    joints_hz: float = 100.0
    rest_s: float = 0.0
    size: tuple[int, int] | None = None
    fps: float | None = None
    seed: int = 0
    mjcf: Path | None = None


def record_on_arm(
    session: ArmSession,
    *,
    view: Callable[[Snapshot], None] | None = None,
    word: Callable[[str], None] | None = None,
    by_key: bool | None = None,
) -> RecordReport:
    """Record a session on the arm; everything is opened, checked and closed here.

    Parameters
    ----------
    view : shown a `Snapshot` four times a second.
    word : told in a line what happens.
    by_key : whether episodes begin by key; None: where there is a terminal and no length was given.

    Raises
    ------
    InputError
        for what is missing, unplugged, held by somebody else or does not fit, before anything moves.
    """
    try:
        return _record(session, view, word or (lambda text: None), by_key)
    except BusFault as fault:
        raise InputError("the arm's bus", str(fault), "check its cable and its power") from None


def _record(
    session: ArmSession,
    view: Callable[[Snapshot], None] | None,
    say: Callable[[str], None],
    by_key: bool | None,
) -> RecordReport:
    keys = Keys.available() if by_key is None else by_key
    _check(session, keys)
    with ExitStack() as open_things:
        plugged = open_things.enter_context(_plugged_in(session))
        arm = open_things.enter_context(_arm(plugged.port, plugged.calibration))
        findings = preflight(arm, observing=session.motion == "observe")
        for finding in findings:
            if finding.state != "pass":
                say(f"{finding.state}: {finding}")
        require(findings)
        cameras, seen = [], {}
        for name, source in plugged.views.items():
            camera = Camera(
                name,
                source,
                width=session.size[0] if session.size else None,
                height=session.size[1] if session.size else None,
                fps=plugged.fps or session.fps,
            )
            open_things.callback(camera.close)
            facts = seen[name] = camera.open()
            cameras.append(camera)
            say(f"view {name}: {facts.width}x{facts.height} at {facts.fps:g} fps, {facts.source}")
        clear = open_things.enter_context(_obstacles(session)) if session.motion != "observe" else None
        programme = _programme(session, arm, plugged, clear)
        open_things.callback(programme.close)
        if session.motion == "walk":
            say(_walk_sentence(programme))
        if unfinished(session.to):
            for line in recover(session.to).lines():
                say(line)
        recorder = Recorder(
            session.to,
            _describe(session, arm, programme, seen),
            arm,
            cameras,
            programme,
            RecorderSettings(
                episodes=session.episodes,
                seconds=session.seconds,
                joints_hz=session.joints_hz,
                limits=_limits(session),
                rest_s=session.rest_s,
                by_key=keys and session.seconds is None,
            ),
            clear=None if clear is None else clear.path,
            watch=view,
            word=say,
        )
        with Keys(recorder.press):
            return recorder.run()


@dataclass(frozen=True)
class _Plugged:
    """Where everything is, and the rate of the cameras where it is known."""

    port: str
    calibration: Path
    leader_port: str | None
    leader_calibration: Path | None
    views: Mapping[str, str]
    fps: float | None = None


def _check(session: ArmSession, keys: bool) -> None:
    if session.episodes < 1:
        raise InputError("--episodes", f"{session.episodes} is no number of episodes", "use 1 or more")
    if session.seconds is not None and not 0.2 <= session.seconds <= 24 * 3600:
        raise InputError("--seconds", f"{session.seconds} is not between 0.2 and 86400")
    if session.seed < 0:
        raise InputError("--seed", f"{session.seed} is negative", "use 0 or more")
    if session.motion == "teleop" and (session.leader_port is None) != (session.leader_calibration is None):
        missing = "--leader-port" if session.leader_port is None else "--leader-calibration"
        raise InputError(missing, "is missing", "a leader arm has a port and a calibration of its own")
    if not 1 <= session.joints_hz <= 500:
        raise InputError("--joints-hz", f"{session.joints_hz} is not between 1 and 500")
    if session.motion in ("observe", "teleop") and session.seconds is None and not keys:
        raise InputError(
            "--seconds",
            "is needed where there is no terminal to press keys in",
            "give the length of an episode",
        )
    if session.motion == "replay" and session.replay is None:
        raise InputError("--replay", "is missing", "name the recording whose targets are to be sent again")
    if session.motion != "replay" and session.replay is not None:
        raise InputError("--replay", f"does not apply to {session.motion}", "use --motion replay")


@contextmanager
def _plugged_in(session: ArmSession) -> Iterator[_Plugged]:
    """The ports and cameras that were named; for the twin those of an emulator started for the session."""
    if session.robot == "twin" and session.port is None:
        from sim.twin_process import Twin

        names = list(session.views or {"front": "", "wrist": ""})
        with Twin(
            views=names,
            size=session.size or (320, 240),
            fps=session.fps or TWIN_FPS,
            hand="demos" if session.motion == "observe" else "none",
            leader=session.motion == "teleop" and session.leader_port is None,
            seed=session.seed,
            mjcf=session.mjcf,
        ) as twin:
            urls = {
                name: source or twin.views[name]
                for name, source in (session.views or dict.fromkeys(names, "")).items()
            }
            yield _Plugged(
                twin.port,
                twin.calibration,
                twin.leader_port,
                twin.leader_calibration,
                urls,
                session.fps or TWIN_FPS,
            )
        return
    if session.port is None:
        raise InputError("--port", "is missing", f"name the arm's serial port; there are: {_ports()}")
    if session.calibration is None:
        raise InputError("--calibration", "is missing", _calibration_help())
    for name, source in (session.views or {}).items():
        if not source:
            raise InputError(f"--view {name}", "names no camera", "write NAME=DEVICE, NAME=INDEX or NAME=URL")
    if session.motion == "teleop" and (session.leader_port is None or session.leader_calibration is None):
        missing = "--leader-port" if session.leader_port is None else "--leader-calibration"
        raise InputError(missing, "is missing", "teleoperation reads a leader arm on a bus of its own")
    yield _Plugged(
        session.port,
        session.calibration,
        session.leader_port,
        session.leader_calibration,
        session.views or {},
    )


@contextmanager
def _arm(port: str, calibration: Path) -> Iterator[Arm]:
    loaded = load_calibration(calibration)
    bus = ServoBus(port)
    try:
        arm = Arm(bus, loaded)
    except BaseException:
        bus.close()
        raise
    try:
        yield arm
    finally:
        arm.close()


@contextmanager
def _obstacles(session: ArmSession) -> Iterator[Any]:
    """The model of the arm and its table, in a process of its own: this one must not load it."""
    from sim.obstacles_process import Obstacles

    service = Obstacles(session.mjcf, clearance_m=CLEARANCE_M)
    try:
        yield service
    finally:
        service.close()


def _programme(session: ArmSession, arm: Arm, plugged: _Plugged, clear: Any) -> Programme:
    if session.motion == "observe":
        return Observe()
    if session.motion == "teleop":
        assert plugged.leader_port is not None and plugged.leader_calibration is not None
        leader = Arm(ServoBus(plugged.leader_port), load_calibration(plugged.leader_calibration))
        try:
            require(preflight(leader, observing=True))
        except BaseException:
            leader.close()
            raise
        return Teleoperate(leader)
    if session.motion == "walk":
        return Walks(arm.limits_rad, clear, seconds=session.seconds or WALK_SECONDS, seed=session.seed)
    assert session.replay is not None
    replays = Replays(
        Recording.open(session.replay), session.replay_episode, arm.limits_rad, list(arm.joint_names)
    )
    replays.check()
    return replays


def _walk_sentence(programme: Any) -> str:
    plan = programme.plan(0)
    refused = ", ".join(f"{reason} {count}" for reason, count in plan.rejected.items()) or "none"
    return (
        f"the walk of episode 0: {len(plan.knots)} knots every {programme.walk.knot_period_s:g} s, "
        f"{plan.draws} draws, refused: {refused}"
    )


def _describe(
    session: ArmSession, arm: Arm, programme: Programme, cameras: Mapping[str, CameraFacts]
) -> RecordingInfo:
    names = list(arm.joint_names)
    rates = _declared_rates(session.to, cameras)
    content = {
        "robot": "so101" if session.robot == "so101" else "twin-so101",
        "joints": [
            {"name": name, "unit": "rad", "lower": float(low), "upper": float(high)}
            for name, (low, high) in zip(names, np.round(arm.limits_rad, 9), strict=True)
        ],
        "actions": {"names": names, "unit": "rad", "meaning": "target"} if programme.moves else None,
        "views": [
            {
                "name": name,
                "width": facts.width,
                "height": facts.height,
                "fps": rates[name],
                "encoding": "jpeg",
            }
            for name, facts in cameras.items()
        ],
        "joints_hz": session.joints_hz,
        "pairing": "clock",
        "motion": session.motion,
        "motion_settings": {"frame": "model" if arm.commandable else "calibration", **programme.settings},
        "calibration": arm.calibration.describe(),
        "devices": {
            "arm": {"port": arm.bus.port, "servos": arm.eeprom},
            "cameras": {
                name: {
                    "source": facts.source,
                    "backend": facts.backend,
                    "jpeg_by": facts.jpeg_by,
                    "fps_by": facts.fps_by,
                }
                for name, facts in cameras.items()
            },
        },
        "software": software_versions("pyserial", "opencv-python-headless", "numpy"),
        "host": {**host_facts(), "clock": "CLOCK_MONOTONIC"},
    }
    return parse_model(RecordingInfo, content, "this session")


def _limits(session: ArmSession) -> SafetyLimits:
    limits = SafetyLimits() if session.motion == "walk" else TOUCHING
    # An emulated arm shares this computer, which may be busy, and can hurt nobody meanwhile.
    return replace(limits, blind_s=TWIN_BLIND_S) if session.robot == "twin" else limits


def _declared_rates(to: Path, cameras: Mapping[str, CameraFacts]) -> dict[str, float]:
    """Rates for recording.yaml, fps: a rate that nobody declares is that of the session that began it."""
    before = {view.name: view.fps for view in read_info(to).views} if (to / "recording.yaml").exists() else {}
    return {
        name: before.get(name, facts.fps) if facts.fps_by == "measured" else facts.fps
        for name, facts in cameras.items()
    }


def _ports() -> str:
    return ", ".join(serial_ports()) or "none"


def _calibration_help() -> str:
    there: Sequence[Path] = sorted(LEROBOT_CALIBRATIONS.expanduser().rglob("*.json"))
    if there:
        return "give the arm's LeRobot calibration; there are: " + ", ".join(map(str, there[:8]))
    return (
        "calibrate the arm with LeRobot (lerobot-calibrate --robot.type=so101_follower) and give the JSON "
        f"that it writes under {LEROBOT_CALIBRATIONS}"
    )


def views_of(options: Sequence[str]) -> dict[str, str]:
    """`NAME=SOURCE` (of the twin also `NAME`), as given to --view."""
    found: dict[str, str] = {}
    for text in options:
        name, _, source = text.partition("=")
        if not name:
            raise InputError(
                "--view", f"{text!r} has no name", "write front=/dev/v4l/by-id/..., or wrist=URL"
            )
        if not re.fullmatch(NAME_PATTERN, name):
            raise InputError("--view", f"{name!r} is no name of a view", "use letters, digits, _ . and -")
        if name in found:
            raise InputError("--view", f"the name {name!r} is given twice", "name each camera once")
        if source and source in found.values():
            raise InputError("--view", f"{source} is given twice", "one camera is one view")
        found[name] = source
    return found


def size_of(text: str | None) -> tuple[int, int] | None:
    """`640x480` or `96` (a square) as (width, height) in pixels."""
    if text is None:
        return None
    parts = text.lower().split("x")
    if (
        not all(part.isdigit() for part in parts)
        or len(parts) > 2
        or not all(16 <= int(part) <= 8192 for part in parts)
    ):
        raise InputError("--size", f"{text!r} is no size", "write 640x480, or 96 for a square")
    return int(parts[0]), int(parts[-1])
