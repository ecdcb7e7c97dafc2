"""Recording on the arm: streams start, episodes are sealed one by one, the arm is let go of at the end.

Three kinds of threads: one for the joints' bus, one a camera, and the caller's, which writes to disk, shows
what happens and decides when an episode ends. Whatever ends it, what was captured is sealed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hardware.arm import Arm
from hardware.arm_keeper import ArmKeeper
from hardware.cameras import Camera
from hardware.disk import free_bytes
from hardware.drivers import Follow, Teleop
from hardware.episode_writer import EpisodeWriter
from hardware.errors import InputError
from hardware.joint_loop import JointLoop
from hardware.programmes import Programme
from hardware.recording import RecordingWriter
from hardware.safety import Clear, Guard
from hardware.schema import ManifestLine, RecordingInfo
from hardware.session import (
    RecorderSettings,
    RecordReport,
    ended_by_signals,
    quick_threads,
    require_space,
)
from hardware.snapshot import Snapshot, ViewState
from hardware.tape import Tape
from hardware.trajectories import Walk

TICK_S = 0.05
WATCH_EVERY_S = 0.25
COMMIT_EVERY_S = 0.5
FIRST_SAMPLE_S = 3.0
LET_LAST_ARRIVE_S = 0.15
WHOLE = ("time", "motion", "key")  # ends of an episode that is as long as it was meant to be
ENDED_EARLY = "ended_early"
STOPPED = "the stop key"
SPACE_TO_START, SPACE_TO_GO_ON = 1 << 30, 256 << 20
SILENT_S = 3.0  # an arm that is only watched may be silent this long
CAMERAS_BACK_S = 8.0

Word = Callable[[str], None]


class Recorder:
    """One session at the arm. `run` records; `press` and `stop` may be called from anywhere.

    Parameters
    ----------
    to : folder of the recording, new or to be continued.
    info : what recording.yaml says.
    arm, cameras : open, and checked by their preflights.
    programme : what happens in an episode.
    clear : asks a model what is hit at joint angles; None leaves slow motions unchecked.
    watch : shown a `Snapshot` four times a second.
    word : told, in a line, what happens.
    """

    def __init__(
        self,
        to: Path | str,
        info: RecordingInfo,
        arm: Arm,
        cameras: Sequence[Camera],
        programme: Programme,
        settings: RecorderSettings,
        *,
        clear: Clear | None = None,
        watch: Callable[[Snapshot], None] | None = None,
        word: Word | None = None,
    ) -> None:
        self.to, self.info, self.arm, self.cameras = Path(to), info, arm, list(cameras)
        self.programme, self.settings = programme, settings
        self._watch, self._word = watch, word or (lambda text: None)
        self.tape = Tape()
        guard = Guard(arm.joint_names, settings.limits) if programme.moves else None
        self.loop = JointLoop(arm, settings.joints_hz, self.tape, guard)
        self.keeper = ArmKeeper(self.loop, clear, self._word)
        self.report = RecordReport()
        self._go = threading.Event()
        self._end: str | None = None  # how the episode is to end
        self._stop: str | None = None  # why the session is to end
        self._stops = 0
        self._shown_s = 0.0
        self._phase = "starting"
        self._index: int | None = None
        self._began_s = 0.0
        self._sealed = 0

    # -- from other threads and signal handlers --------------------------------------------------------------

    def press(self, key: str) -> None:
        """What a key does: Enter begins or ends an episode, space pauses a motion, r records the episode
        again, q ends the session after sealing, x stops the arm at once.
        """
        if key in "\r\n":
            if self._phase == "recording":
                self._end = self._end or "key"
            else:
                self._go.set()
        elif key == " " and self._phase == "recording" and isinstance(self.loop.driver, Follow):
            self.loop.driver.paused = not self.loop.driver.paused
        elif key == "r" and self._phase == "recording":
            self._end = "again"
        elif key == "q":
            self.stop("quit")
        elif key == "x":
            self.keeper.hold()
            self.stop(STOPPED)

    def stop(self, why: str) -> None:
        """End the episode in progress, seal it, let go of the arm; asked twice, let go where it is."""
        self._stop = self._stop or why
        self._stops += 1
        self._go.set()

    # -- the session -----------------------------------------------------------------------------------------

    def run(self) -> RecordReport:
        """Record until all episodes are there or something ends the session; what was captured is sealed.

        Raises
        ------
        InputError
            when nothing can be recorded, or the disk fails; the arm is let go of and what was sealed stays.
        """
        require_space(self.to, SPACE_TO_START)
        with RecordingWriter.resume(self.to, self.info) as writer:
            self._sealed = sum(is_whole(line) for line in writer.manifest)
            if self._sealed >= self.settings.episodes:
                self._word(f"{self.to} holds {self._sealed} whole episodes already; --episodes asks for more")
                return self.report
            with self._streams(), ended_by_signals(self.stop), quick_threads():
                try:
                    self._first_sample()
                    for camera in self.cameras:
                        writer.thumbnail(camera.name, camera.thumbnail())
                    if self.programme.moves:
                        self._power()
                    while self._sealed < self.settings.episodes and self._stop is None:
                        self._episode(writer, max(writer.sealed, default=-1) + 1)
                finally:
                    self._let_go()
                    if self.keeper.trouble not in self.report.problem:
                        told = [text for text in (self.report.problem, self.keeper.trouble) if text]
                        self.report.problem = "; ".join(told)
        self.report.ended = self._stop or "done"
        self.report.faults += self.loop.faults
        return self.report

    @contextmanager
    def _streams(self) -> Iterator[None]:
        def frame_of(name: str) -> Callable[[Any], None]:
            return lambda frame: self.tape.frame(name, frame)

        def fault_of(name: str) -> Callable[[str, str, int], None]:
            def fault(kind: str, message: str, time_ns: int) -> None:
                self.report.faults[kind] += 1
                self.tape.fault(kind, name, message, time_ns)

            return fault

        try:
            for camera in self.cameras:
                camera.start(frame_of(camera.name), fault_of(camera.name))
            self.loop.start()
            yield
        finally:
            self.loop.stop()
            for camera in self.cameras:
                camera.stop()

    # -- before the first episode ----------------------------------------------------------------------------

    def _first_sample(self) -> None:
        deadline = time.monotonic() + FIRST_SAMPLE_S
        while self.loop.latest is None and self._stop is None:
            if self.loop.lost is not None or time.monotonic() > deadline:
                why = str(self.loop.lost) if self.loop.lost else f"no good reading in {FIRST_SAMPLE_S:.0f} s"
                faults = ", ".join(f"{kind} {count}" for kind, count in self.loop.faults.items())
                raise InputError("the arm", why + (f" ({faults})" if faults else ""), "check power and cable")
            self._tick()

    def _power(self) -> None:
        """Torque on; in a terminal somebody says when, since the arm moves from then on."""
        if self.settings.by_key:
            self._phase = "ready"
            self._word("Enter switches the torque on: the arm then moves slowly to its start")
            self._wait_for_enter()
        if self._stop is None:
            self.keeper.power()

    def _wait_for_enter(self) -> None:
        self._go.clear()
        while not self._go.is_set() and self._stop is None and self._broken() is None:
            self._tick()

    # -- one episode -----------------------------------------------------------------------------------------

    def _episode(self, writer: RecordingWriter, index: int) -> None:
        """Record one episode and seal it, unless there is a reason not to."""
        self._index, self._end = index, None
        if not self._make_ready(index):
            return
        driver = self.programme.driver(index, self.keeper.here)
        discarded: EpisodeWriter | None = None
        end: str | None = None
        try:
            with writer.episode(index, commit_every_s=COMMIT_EVERY_S) as episode:
                self._began_s, start_ns = time.monotonic(), time.monotonic_ns()
                episode.clocks(start=(start_ns, time.time_ns()))
                self.tape.roll(start_ns)
                self.loop.drive(driver)
                self._phase = "recording"
                while end is None:
                    self.tape.drain(episode)
                    self._tick()
                    end = self._ending(driver)
                if isinstance(driver, Follow):
                    self.keeper.hold()
                end_ns = time.monotonic_ns()
                self.tape.cut(end_ns)
                self._phase = "sealing"
                episode.clocks(end=(end_ns, time.time_ns()))
                time.sleep(max(LET_LAST_ARRIVE_S, 2 / self.settings.joints_hz))
                self.tape.drain(episode)
                self.tape.stop()
                if end == "again" or (self.tape.rows == 0 and not any(self._frames_of(episode))):
                    discarded = episode
                    raise _Discarded
                silent = self._silent_streams(episode)
                if silent and end in WHOLE:
                    end = self.report.problem = f"nothing_came: {', '.join(silent)}"
                self._finish(episode, driver, index, end, end_ns)
        except _Discarded:
            assert discarded is not None
            discarded.discard()
            self._word(f"episode {index} is not kept" + ("" if end == "again" else ": it holds nothing"))
            if end in WHOLE:  # or the next would be as empty, and the next
                end = self.report.problem = "nothing_came: no reading and no frame in a whole episode"
        finally:
            self.tape.stop()
            self._phase = "waiting"
        if discarded is None:
            self._sealed += is_whole(writer.line(index))
            self.report.sealed.append(index)
            self._word(self._sentence(writer, index, str(end)))
        if end not in WHOLE and end != "again":
            self._stop = self._stop or end

    def _make_ready(self, index: int) -> bool:
        """Bring arm and cameras to where episode `index` begins; False when the session ends instead."""
        require_space(self.to, SPACE_TO_GO_ON)
        if self.programme.moves and not self._approach(index):
            self._stop = self._stop or self.keeper.unsafe()
            self.report.problem = self.report.problem or self.keeper.unsafe() or ""
            return False
        self._phase = "waiting"
        if self.settings.by_key and self.programme.by_hand:
            self._wait_for_enter()
        elif self.report.sealed:
            until = time.monotonic() + self.settings.rest_s
            while time.monotonic() < until and self._stop is None and self._broken() is None:
                self._tick()
        until = time.monotonic() + CAMERAS_BACK_S
        while self._absent() and time.monotonic() < until and self._stop is None:
            self._tick()
        if self._stop is None:
            self._stop = self._broken() or (
                f"camera_lost: {', '.join(self._absent())}" if self._absent() else None
            )
            self.report.problem = self.report.problem or self._stop or ""
        return self._stop is None

    def _approach(self, index: int) -> bool:
        """Bring the arm to where episode `index` begins; whether it arrived."""
        self._phase = "approaching"
        start = self.programme.start(index)
        if start is not None:
            arrived = self.keeper.glide_to(start, f"the way to the start of episode {index}", self._ticking)
            if not arrived:
                return False
        driver = self.programme.driver(index, self.keeper.here)
        if isinstance(driver, Teleop):
            self.loop.drive(driver)
            while not driver.caught_up:
                if self.keeper.unsafe() is not None or not self._ticking():
                    return False
        return True

    def _ending(self, driver: Any) -> str | None:
        """Why the episode ends now, or None."""
        broken = self._broken()
        if broken is not None:
            self.report.problem = broken
            return broken
        if self._stop is not None:
            return self._stop
        if self._end is not None:
            return self._end
        if driver.finished:
            return "motion"
        limit = self.settings.seconds
        planned = isinstance(driver, Follow) and isinstance(driver.motion, Walk)  # as long as was asked for
        if limit is not None and not planned and time.monotonic() - self._began_s >= limit:
            return "time"
        return None

    def _broken(self) -> str | None:
        """What makes it impossible, or unsafe, to go on."""
        unsafe = self.keeper.unsafe()
        if unsafe is not None:
            return unsafe
        if not self.programme.moves and self.loop.silent_s > SILENT_S:
            silent = self.loop.last_silent
            who = f"no answer from {', '.join(silent)}" if silent else f"no good reading for {SILENT_S:.0f} s"
            return f"bus_silent: {who}"
        if self.programme.moves and self._phase == "recording" and self._absent():
            self.keeper.hold()
            return f"camera_lost: {', '.join(self._absent())}"
        if self.tape.full:
            return "disk_behind: the disk is too slow for the cameras"
        free = self._free()
        if free < SPACE_TO_GO_ON:
            return f"disk_low: {free / 1e6:.0f} MB are left"
        return None

    def _absent(self) -> list[str]:
        return [camera.name for camera in self.cameras if camera.state != "running"]

    def _finish(self, episode: EpisodeWriter, driver: Any, index: int, end: str, end_ns: int) -> None:
        if end not in WHOLE:
            episode.fault(ENDED_EARLY, "episode", f"ended by {end}", time.monotonic_ns())
        if isinstance(driver, Follow) and driver.knots:
            reached = [(time_ns, knot) for time_ns, knot in driver.knots if time_ns <= end_ns]
            episode.knots(
                np.array([time_ns for time_ns, _ in reached]), np.array([knot for _, knot in reached])
            )
        notes = self.programme.notes(index)
        if notes:
            episode.notes(notes)

    def _let_go(self) -> None:
        """Of the arm, and show it."""
        if not self.programme.moves:
            return
        returns = self._stop != STOPPED and self._stops < 2 and self.keeper.unsafe() is None
        self._phase = "returning" if returns else "releasing"
        self.keeper.let_go(return_first=returns, go_on=lambda: self._stops < 2 and self._ticked())

    # -- watching --------------------------------------------------------------------------------------------

    def _ticking(self) -> bool:
        """A tick; False once the session is to end."""
        self._tick()
        return self._stop is None

    def _ticked(self) -> bool:
        self._tick()
        return True

    def _tick(self) -> None:
        if time.monotonic() - self._shown_s > WATCH_EVERY_S:
            self._show()
        time.sleep(TICK_S)

    def _show(self) -> None:
        self._shown_s = time.monotonic()
        if self._watch is not None:
            self._watch(self.snapshot())

    def snapshot(self) -> Snapshot:
        """The state of everything, now."""
        recording = self._phase == "recording"
        p50, p99 = self.loop.pace.jitter_ms(50, 99)
        paused = isinstance(self.loop.driver, Follow) and self.loop.driver.paused
        return Snapshot(
            phase="paused" if paused else self._phase,
            episode=self._index,
            sealed=self._sealed,
            episodes=self.settings.episodes,
            seconds=time.monotonic() - self._began_s if recording else 0.0,
            limit_s=self.settings.seconds,
            rows=self.tape.rows,
            joints_hz=self.loop.pace.rate_hz,
            declared_hz=self.settings.joints_hz,
            jitter_ms=(p50, p99),
            overruns=self.loop.overruns,
            sample=self.loop.latest,
            target=self.loop.target,
            joint_names=list(self.arm.joint_names),
            views=[
                ViewState(
                    camera.name,
                    camera.state,
                    camera.rate_hz,
                    self.info.view(camera.name).fps,
                    camera.frames,
                    camera.repeated,
                )
                for camera in self.cameras
            ],
            faults=dict(self.loop.faults + self.report.faults),
            free_bytes=self._free(),
            waiting_bytes=self.tape.waiting_bytes,
            keys=self._keys(),
        )

    def _keys(self) -> str:
        keys = ["x lets go of the arm"] if self.programme.moves else []
        if self._phase == "recording":
            keys += ["Enter ends it", "r again"]
            keys += ["space pauses"] if isinstance(self.loop.driver, Follow) else []
        elif self._phase == "ready" or (self._phase == "waiting" and self.programme.by_hand):
            keys.append("Enter begins")
        return "   ".join([*keys, "q quits"])

    def _sentence(self, writer: RecordingWriter, index: int, end: str) -> str:
        line = writer.line(index)
        frames = ", ".join(f"{view} {count}" for view, count in line.frames.items())
        faults = ", ".join(f"{kind} {count}" for kind, count in line.faults.items())
        return (
            f"episode {index}: {line.seconds:.1f} s, {line.joint_rows} joint rows"
            + (f", frames {frames}" if frames else "")
            + (f", faults {faults}" if faults else "")
            + (f", ended by {end}" if end in WHOLE else f", cut short by {end}: it does not count")
        )

    def _silent_streams(self, episode: EpisodeWriter) -> list[str]:
        views = [view.name for view in self.info.views if episode.frame_count(view.name) == 0]
        return ([] if self.tape.rows else ["joints"]) + views

    def _free(self) -> int:
        """Bytes left on the disk; one that does not answer has none."""
        try:
            return free_bytes(self.to)
        except OSError:
            return 0

    @staticmethod
    def _frames_of(episode: EpisodeWriter) -> list[int]:
        return [episode.frame_count(view.name) for view in episode.info.views]


def is_whole(line: ManifestLine) -> bool:
    """Whether an episode counts: it was neither cut short nor salvaged after a kill."""
    return not {ENDED_EARLY, "recovered"} & line.faults.keys()


class _Discarded(Exception):
    """The episode in progress is not to be kept."""
