"""The simulated arm as hardware: a servo bus on a pty, cameras over HTTP, physics in real time, one process.

    python -m sim.twin --views front,wrist --size 320x240 --fps 15 [--hand demos|none] [--leader]
                       [--seed N] [--faults late=0.01,lost=0.01] [--mjcf FILE]

When all is up one JSON line says where: {"port", "leader", "calibration", "leader_calibration", "views"}.
Then each line in is a request and is answered by a line, {} or {"error": ...}; what may be asked is in
`sim.twin_requests`. It ends on SIGTERM, on SIGINT, when its input closes and when its parent is gone.
`sim.twin_process.Twin` is its front.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import queue
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from hardware.errors import InputError
from sim.arm_behind import LeaderArm, TwinArm
from sim.bus_faults import FAULT_KINDS, BusFaults
from sim.camera_server import CameraServer
from sim.hand import Mind, demonstrations
from sim.servo import calibrated_servos
from sim.servo_bus import ServoBusEmulator
from sim.so101 import SimArm
from sim.twin_calibration import twin_calibration
from sim.twin_requests import TwinParts, answer

_TICK_S = 0.005  # of physics and of thoughts
_LOOK_S = 0.5  # between two looks whether the parent is there and everything works
# Threads that compute in Python hand over this soon, since a servo's reply is due within a millisecond.
_SWITCH_S = 0.0002
# What can wait does: on a busy machine of two cores this halves the replies that come too late.
_NICE_MIND, _NICE_CAMERAS = 5, 15


@dataclass(frozen=True)
class TwinSettings:
    """What is asked for on the command line."""

    views: tuple[str, ...]
    size: tuple[int, int]
    fps: float
    hand: str
    leader: bool
    seed: int
    faults: BusFaults
    mjcf: Path | None


class Workers:
    """Threads that do something again and again; the first exception of any is kept."""

    def __init__(self) -> None:
        self.failures: queue.SimpleQueue[Exception] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def every(self, period_s: float, what: Callable[[], None], name: str, nice: int = 0) -> None:
        """Do `what` each period, later when it takes longer."""

        def work() -> None:
            step_back(nice)
            due = time.monotonic()
            while not self._stopped.wait(max(0.0, due - time.monotonic())):
                due = max(due + period_s, time.monotonic())
                if not self.watched(what):
                    return

        self._threads.append(threading.Thread(target=work, name=name, daemon=True))
        self._threads[-1].start()

    def watched(self, what: Callable[[], None]) -> bool:
        """Do it once; False, and the exception kept, when it failed."""
        try:
            what()
        except Exception as error:
            self.failures.put(error)
            return False
        return True

    def stop(self) -> None:
        """Wait for all of them to end."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()


def step_back(nice: int) -> None:
    """Let other threads go before this one, where the system can (on Linux each thread has its niceness)."""
    with contextlib.suppress(OSError):
        if nice and sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)


def start(settings: TwinSettings, folder: Path, life: contextlib.ExitStack) -> tuple[TwinParts, Workers]:
    """Build the twin and set it going; `life` stops it.

    Raises
    ------
    InputError : for a model or a view that cannot be used, or when there is no OpenGL library.
    """
    seeds = np.random.SeedSequence(settings.seed).generate_state(5).tolist()
    arm = SimArm(settings.mjcf, views=())
    arm.reset(np.random.default_rng(seeds[0]))
    calibration = twin_calibration(folder / "calibration.json", seeds[1])
    twin = TwinArm(arm, calibration, seeds[2])
    eyes = SimArm(settings.mjcf, settings.views, settings.size)
    os.environ.setdefault("LP_NUM_THREADS", "0")  # software OpenGL: a third less CPU time, and no slower
    for view in settings.views:
        eyes.render(view)  # a missing OpenGL library shows itself here
    eyes.close()  # the context is made anew in the thread that takes the pictures
    workers = Workers()

    def camera(view: str) -> Callable[[], np.ndarray]:
        def picture() -> np.ndarray:
            try:
                step_back(_NICE_CAMERAS)
                twin.advance(time.monotonic_ns())
                with twin.lock:
                    scene = twin.arm.scene
                eyes.show(scene)
                return eyes.render(view)
            except Exception as error:
                workers.failures.put(error)
                raise

        return picture

    buses = {
        "follower": ServoBusEmulator(
            twin, calibrated_servos(calibration), faults=settings.faults, seed=seeds[3]
        )
    }
    calibrations = {"follower": folder / "calibration.json"}
    if settings.leader or settings.hand == "demos":
        mind = Mind(
            twin, SimArm(settings.mjcf, views=()), demonstrations(seeds[4]), at_arm=not settings.leader
        )
        if settings.leader:
            calibrations["leader"] = folder / "leader-calibration.json"
            own = twin_calibration(calibrations["leader"], seeds[1] + 1)
            leader = LeaderArm(mind, own, seeds[2])
            buses["leader"] = ServoBusEmulator(leader, calibrated_servos(own), seed=seeds[3] + 1)
        else:
            twin.hand = mind
        twin.advance(time.monotonic_ns())
        mind.think()  # a scene that demonstrations cannot do with shows itself here
        workers.every(_TICK_S, mind.think, "mind", _NICE_MIND)
    life.callback(workers.stop)
    for bus in buses.values():
        life.enter_context(bus)
    cameras = None
    if settings.views:
        sources = {view: camera(view) for view in settings.views}
        cameras = life.enter_context(CameraServer(sources, settings.fps, seed=settings.seed))
    workers.every(_TICK_S, lambda: twin.advance(time.monotonic_ns()), "physics")
    return TwinParts(twin, buses, calibrations, cameras), workers


def serve(parts: TwinParts, workers: Workers) -> None:
    """Answer requests until the input closes or the parent is gone; raises what a worker failed of."""
    parent, unread = os.getppid(), b""
    while os.getppid() == parent:
        ready = select.select([sys.stdin], [], [], _LOOK_S)[0]
        if not workers.failures.empty():
            raise workers.failures.get()
        if not ready:
            continue
        received = os.read(sys.stdin.fileno(), 1 << 16)
        if not received:
            return
        *lines, unread = (unread + received).split(b"\n")
        for line in lines:
            print(json.dumps(answer(parts, line)), flush=True)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    try:
        settings = _parse(arguments)
        with tempfile.TemporaryDirectory(prefix="jointprobe-twin-") as folder, contextlib.ExitStack() as life:
            parts, workers = start(settings, Path(folder), life)
            gc.freeze()  # what was imported needs no looking through; a collection would make a reply late
            print(json.dumps(parts.hello()), flush=True)
            serve(parts, workers)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:
        pass  # whoever asked is gone
    return 0


def _own_process() -> None:
    """What is set for the whole process: how it ends, and that no thread keeps others waiting."""
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    sys.setswitchinterval(_SWITCH_S)
    cv2.setNumThreads(1)


def _leave(_signal: int, _frame: Any) -> None:
    """The way out of wherever the main thread is, once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise SystemExit(0)


def _parse(arguments: list[str] | None) -> TwinSettings:
    parser = argparse.ArgumentParser(prog="python -m sim.twin", description="the simulated arm as hardware")
    parser.add_argument("--views", default="front,wrist", help="cameras, with commas; empty for none")
    parser.add_argument("--size", default="320x240", help="of the images, WIDTHxHEIGHT")
    parser.add_argument("--fps", type=float, default=15.0, help="of each camera")
    parser.add_argument("--hand", choices=("demos", "none"), default="demos", help="what moves the limp arm")
    parser.add_argument("--leader", action="store_true", help="a leader arm on a second bus")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", default="", help=f"KIND=SHARE, with commas: {', '.join(FAULT_KINDS)}")
    parser.add_argument("--mjcf", type=Path, help="a model of your own in place of ours")
    found = parser.parse_args(arguments)
    try:
        width, height = (int(side) for side in found.size.split("x"))
    except ValueError:
        raise InputError("--size", f"{found.size!r} is no WIDTHxHEIGHT", "use 320x240") from None
    if not 0 < found.fps <= 200:
        raise InputError("--fps", f"{found.fps} is not between 0 and 200")
    if found.seed < 0:
        raise InputError("--seed", f"{found.seed} is negative", "use 0 or more")
    views = tuple(view for view in found.views.split(",") if view)
    faults = _faults(found.faults)
    return TwinSettings(
        views, (width, height), found.fps, found.hand, found.leader, found.seed, faults, found.mjcf
    )


def _faults(text: str) -> BusFaults:
    try:
        shares = {kind: float(share) for kind, share in (part.split("=") for part in text.split(",") if part)}
        return BusFaults(**shares)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(
            "--faults", f"{text!r} is no list of KIND=SHARE", f"the kinds are {', '.join(FAULT_KINDS)}"
        ) from None


if __name__ == "__main__":
    _own_process()
    sys.exit(main())
