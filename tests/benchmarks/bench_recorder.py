"""The recorder at work: six joints at 100 Hz and three 640x480 MJPEG streams at 30 fps, onto this disk.

    python tests/benchmarks/bench_recorder.py [--seconds 20] [--to DIR]

The servo bus (paced at 1 Mbaud) and the cameras are emulated in processes of their own, on the same cores.
Prints what was reached: rates, jitter of the joint stream (|interval - 10 ms|) and of the frames' arrival,
samples and frames lost, what was written, and the recorder's share of one core.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from hardware.arm import Arm
from hardware.bus import ServoBus
from hardware.calibration import load_calibration
from hardware.cameras import Camera
from hardware.programmes import Observe
from hardware.recorder import Recorder
from hardware.recording import Recording
from hardware.schema import Joint, RecordingInfo, View
from hardware.session import RecorderSettings
from sim.json_process import JsonProcess
from sim.lagging_arm import LaggingArm
from sim.servo import calibrated_servos
from sim.servo_bus import ServoBusEmulator
from sim.servo_bus_process import ServoBusProcess
from sim.twin_calibration import twin_calibration

VIEWS = ("front", "wrist", "top")
HZ, FPS, SIZE = 100.0, 30.0, (640, 480)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--to", type=Path, default=None, help="where to record; a temporary folder if absent")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=asked.to))
    try:
        _bench(folder, asked.seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _bench(folder: Path, seconds: float) -> None:
    calibration = twin_calibration(folder / "arm.json")
    middles = {motor.id: 2047.0 for motor in calibration.motors}
    make = partial(ServoBusEmulator, LaggingArm(middles), calibrated_servos(calibration), paced=True)
    arguments = ["--views", ",".join(VIEWS), "--size", f"{SIZE[0]}x{SIZE[1]}", "--fps", f"{FPS:g}"]
    served = JsonProcess("sim.camera_server", arguments, "the cameras", 60.0)
    with ServoBusProcess(make) as bus:
        arm = Arm(ServoBus(bus.port), load_calibration(folder / "arm.json"))
        arm.learn()
        cameras = [Camera(name, url) for name, url in served.hello["views"].items()]
        views = []
        for camera in cameras:
            facts = camera.open()
            views.append(
                View(name=camera.name, width=facts.width, height=facts.height, fps=FPS, encoding="jpeg")
            )
        info = RecordingInfo(
            robot="bench",
            joints=[Joint(name=name) for name in arm.joint_names],
            views=views,
            joints_hz=HZ,
            motion="observe",
        )
        settings = RecorderSettings(episodes=1, seconds=seconds, joints_hz=HZ)
        recorder = Recorder(folder / "recording", info, arm, cameras, Observe(), settings)
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        recorder.run()
        after, passed = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - began
        for camera in cameras:
            camera.close()
        arm.close()
        overruns = recorder.loop.overruns
    taken = {name: served.ask({"taken": name}, 10)["taken"] for name in VIEWS}
    served.close()
    _print(Recording.open(folder / "recording"), seconds, overruns, taken)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    share = (user + system) / passed
    print(f"CPU of the recorder: {share:.0%} of one core ({user:.1f} s user, {system:.1f} s system)")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, the emulators' work included")


def _print(recording: Recording, seconds: float, overruns: int, taken: dict[str, int]) -> None:
    episode = recording.episode(0)
    streams = f"{len(VIEWS)} MJPEG streams of {SIZE[0]}x{SIZE[1]} at {FPS:g} fps"
    print(f"{seconds:g} s: six joints at {HZ:g} Hz, {streams}")
    print(f"{'stream':<8}{'rate':>9}{'rows':>8}{'lost':>6}{'jitter p50':>13}{'p99':>9}{'max':>9}")
    joints = episode.joints().time_ns
    lost = sum(episode.line.faults.values())
    print(_row("joints", joints, 1e3 / HZ, lost))
    for view in VIEWS:
        times = episode.frame_times(view)
        with_gaps = round((times[-1] - times[0]) / 1e9 * FPS) + 1
        print(_row(view, times, 1e3 / FPS, with_gaps - len(times)))
    print(f"faults {episode.line.faults or 'none'}, cycles skipped {overruns}")
    megabytes = episode.line.bytes / 1e6
    print(f"written {megabytes:.1f} MB, {megabytes / episode.line.seconds:.1f} MB/s")


def _row(name: str, times: np.ndarray, period_ms: float, lost: int) -> str:
    intervals = np.diff(times) / 1e6
    off = np.abs(intervals - period_ms)
    rate = (len(times) - 1) / (times[-1] - times[0]) * 1e9
    p50, p99 = np.percentile(off, [50, 99])
    return (
        f"{name:<8}{rate:>6.2f} Hz{len(times):>8,}{lost:>6}{p50:>10.2f} ms{p99:>6.2f} ms{off.max():>6.1f} ms"
    )


if __name__ == "__main__":
    main()
