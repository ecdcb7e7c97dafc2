"""Recording sessions over a real pty and real sockets: whatever ends one, what was captured is sealed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from hardware import InputError, Recording
from hardware.arm import Arm
from hardware.bus import ServoBus
from hardware.cameras import Camera
from hardware.checks import check_recording
from hardware.motions import WalkSettings
from hardware.programmes import Observe, Programme, Replays, Teleoperate, Walks
from hardware.recorder import Recorder
from hardware.safety import SafetyLimits
from hardware.schema import Actions, Joint, RecordingInfo, View
from hardware.session import RecorderSettings, RecordReport
from hardware.snapshot import Snapshot
from sim.camera_server import CameraServer, moving_pictures
from sim.lagging_arm import LaggingArm
from sim.servo import calibrated_servos
from sim.servo_bus import ServoBusEmulator
from sim.twin_calibration import twin_calibration

pytestmark = pytest.mark.realtime

PICTURES = moving_pictures(30, (64, 48))
PATIENT = SafetyLimits(blind_s=3.0, patience_s=3.0)  # the machine that runs the tests may be busy


@dataclass
class Bench:
    """An emulated arm with its cameras, and a recorder to be made for them."""

    folder: Path
    bus: ServoBusEmulator
    cameras_at: CameraServer
    arm: Arm
    cameras: list[Camera]
    words: list[str] = field(default_factory=list)
    shown: list[Snapshot] = field(default_factory=list)

    def recorder(self, programme: Programme, to: str = "r", **settings: object) -> Recorder:
        fields = {"episodes": 1, "joints_hz": 50.0, "limits": PATIENT, **settings}
        names = list(self.arm.joint_names)
        info = RecordingInfo(
            robot="bench",
            joints=[Joint(name=name) for name in names],
            actions=Actions(names=names) if programme.moves else None,
            views=[View(name=c.name, width=64, height=48, fps=20, encoding="jpeg") for c in self.cameras],
            joints_hz=fields["joints_hz"],
            motion=programme.motion,
            motion_settings={"frame": "model", **programme.settings},
        )
        return Recorder(
            self.folder / to,
            info,
            self.arm,
            self.cameras,
            programme,
            RecorderSettings(**fields),
            watch=self.shown.append,
            word=self.words.append,
        )

    def walks(self, seconds: float = 1.3) -> Walks:
        walk = WalkSettings(knot_period_s=0.6, sigma_fraction=0.05, centre_rad=(0, 0, 0, 0, 0, 0.7))
        return Walks(self.arm.limits_rad, lambda q: None, settings=walk, seconds=seconds)

    def torque(self) -> list[int]:
        return [servo.get("Torque_Enable") for servo in self.bus.servos.values()]


@contextmanager
def bench(folder: Path, views: tuple[str, ...] = ("front", "wrist")) -> Iterator[Bench]:
    calibration = twin_calibration(folder / "arm.json")
    ticks = {motor.id: 2047.0 + 40 * motor.id for motor in calibration.motors}
    servos = calibrated_servos(calibration)
    bus = ServoBusEmulator(LaggingArm(ticks), servos, paced=False)
    server = CameraServer(dict.fromkeys(views or ("unused",), PICTURES), fps=20)
    with bus, server:
        arm = Arm(ServoBus(bus.port), calibration)
        arm.learn()
        cameras = [Camera(view, server.url(view), timeout_s=1.0) for view in views]
        for camera in cameras:
            camera.open()
        try:
            yield Bench(folder, bus, server, arm, cameras)
        finally:
            for camera in cameras:
                camera.close()
            arm.close()


def run_and(recorder: Recorder, act: Callable[[], None], when: Callable[[], bool]) -> RecordReport:
    """Run a session while another thread waits for `when` and then acts, as the world does."""
    done = threading.Event()

    def world() -> None:
        until = time.monotonic() + 60
        while not when() and time.monotonic() < until and not done.is_set():
            time.sleep(0.01)
        if not done.is_set():
            act()

    thread = threading.Thread(target=world)
    thread.start()
    try:
        return recorder.run()
    finally:
        done.set()
        thread.join()


def recording(recorder: Recorder, rows: int = 10) -> Callable[[], bool]:
    """Whether an episode is under way and has `rows` joint rows already."""
    return lambda: recorder._phase == "recording" and recorder.tape.rows >= rows


def test_observing_writes_no_register_and_every_stream_lies_within_its_episode(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        report = b.recorder(Observe(), episodes=2, seconds=1.0).run()
        assert (report.sealed, report.ended, report.problem) == ([0, 1], "done", "")
        assert all(not servo.writes for servo in b.bus.servos.values())
    made = Recording.open(tmp_path / "r")
    for number in (0, 1):
        episode = made.episode(number)
        episode.verify()
        clocks = episode.clocks()
        joints = episode.joints()
        assert len(joints.time_ns) > 25 and episode.frame_count("front") > 10
        for times in (joints.time_ns, episode.frame_times("front"), episode.frame_times("wrist")):
            assert clocks["start_monotonic_ns"] <= times[0] and times[-1] <= clocks["end_monotonic_ns"]
            assert (np.diff(times) > 0).all()
        assert episode.actions() is None and joints.raw.shape == joints.position.shape
        assert joints.temperature is not None and joints.voltage is not None
        bytes_of_server = {picture for picture in PICTURES}
        with_bytes = next(iter(episode.frames("front")))
        assert with_bytes.shape == (48, 64, 3) and len(bytes_of_server) > 20
    assert sorted(path.name for path in (tmp_path / "r/thumbnails").iterdir()) == ["front.jpg", "wrist.jpg"]
    # The bench's cameras show the same pictures in both views and in every episode.
    failed = {check.name for check in check_recording(made) if check.state == "fail"}
    assert failed <= {"identical_views", "shared_frames"}
    assert len(list(made.aligned(["front", "wrist"]))) == 2


def test_the_camera_s_own_bytes_are_stored(tmp_path: Path) -> None:
    import h5py

    with bench(tmp_path, views=("front",)) as b:
        b.recorder(Observe(), seconds=0.6).run()
    with h5py.File(tmp_path / "r/episodes/000000.h5") as file:
        group = file["views/front"]
        data, offset, length = (group[name][()] for name in ("data", "offset", "length"))
        stored = [bytes(data[start : start + size]) for start, size in zip(offset, length)]
    assert len(stored) > 5 and set(stored) <= set(PICTURES)


def test_a_session_goes_on_where_it_stopped_and_says_when_all_is_there(tmp_path: Path) -> None:
    with bench(tmp_path, views=()) as b:
        recorder = b.recorder(Observe(), episodes=3, seconds=0.5)
        report = run_and(recorder, lambda: recorder.stop("quit"), lambda: recorder._index == 1)
        assert report.ended == "quit" and report.sealed[0] == 0 and len(report.sealed) < 3
        assert b.recorder(Observe(), episodes=3, seconds=0.5).run().ended == "done"
        assert b.recorder(Observe(), episodes=3, seconds=0.5).run().sealed == []
        assert "3 whole episodes already" in b.words[-1]
    lines = Recording.open(tmp_path / "r").manifest
    assert sum("ended_early" not in line.faults for line in lines) == 3
    assert all(line.seconds > 0.45 for line in lines if "ended_early" not in line.faults)


def test_a_walk_is_sent_through_its_knots_and_the_arm_comes_back_and_is_let_go_of(tmp_path: Path) -> None:
    with bench(tmp_path, views=("front",)) as b:
        found = b.arm.read().position
        report = b.recorder(b.walks(), episodes=2).run()
        assert (report.sealed, report.ended) == ([0, 1], "done"), (report, b.words)
        assert b.torque() == [0] * 6
        assert all(servo.eeprom_writes == [] for servo in b.bus.servos.values())
        assert [servo.get("Torque_Limit") for servo in b.bus.servos.values()] == [1000] * 6
        b.arm.confirm()
        np.testing.assert_allclose(b.arm.read().position, found, atol=0.05)
        plan = b.walks().plan(1)
    episode = Recording.open(tmp_path / "r").episode(1)
    knots, actions = episode.knots(), episode.actions()
    np.testing.assert_allclose(knots.position, plan.knots)
    assert np.diff(knots.time_ns) == pytest.approx(0.6e9, rel=0.02)
    at_knots = np.array([np.interp(knots.time_ns, actions.time_ns, column) for column in actions.target.T]).T
    np.testing.assert_allclose(at_knots, plan.knots, atol=0.02)
    assert episode.notes()["draws"] == plan.draws
    phases = list(dict.fromkeys(snapshot.phase for snapshot in b.shown))
    assert phases[-1] == "returning" and {"approaching", "recording"} <= set(phases)


def test_a_replay_sends_what_was_sent(tmp_path: Path) -> None:
    with bench(tmp_path, views=()) as b:
        b.recorder(b.walks(), to="walk").run()
        source = Recording.open(tmp_path / "walk")
        replays = Replays(source, None, b.arm.limits_rad, list(b.arm.joint_names))
        b.recorder(replays, to="again").run()
    before, after = (Recording.open(tmp_path / name).episode(0).actions() for name in ("walk", "again"))
    time_s = (before.time_ns - before.time_ns[0]) / 1e9
    again_s = (after.time_ns - after.time_ns[0]) / 1e9
    for joint in range(6):
        expected = np.interp(again_s, time_s, before.target[:, joint])
        assert np.abs(after.target[:, joint] - expected)[again_s < time_s[-1]].max() < 0.06


def test_a_pulled_bus_ends_the_session_with_what_there_is(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        recorder = b.recorder(Observe(), episodes=2, seconds=30.0)
        report = run_and(recorder, b.bus.unplug, recording(recorder))
        assert report.problem.startswith("bus_lost") and report.sealed == [0]
    episode = Recording.open(tmp_path / "r").episode(0)
    episode.verify()
    assert episode.line.joint_rows >= 10 and episode.line.faults["bus_lost"] == 1


def test_a_silent_servo_ends_watching_and_is_named(tmp_path: Path) -> None:
    with bench(tmp_path, views=()) as b:
        recorder = b.recorder(Observe(), seconds=30.0)
        report = run_and(recorder, lambda: setattr(b.bus.servos[3], "dead", True), recording(recorder))
        assert "elbow_flex" in report.problem and report.sealed == [0]


def test_a_lost_camera_marks_a_watched_episode_and_stops_a_walk(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        recorder = b.recorder(Observe(), to="watched", seconds=4.0)
        report = run_and(recorder, lambda: b.cameras_at.fault("wrist", "stall"), recording(recorder))
        assert report.sealed == [0] and report.problem == ""
        line = Recording.open(tmp_path / "watched").episode(0).line
        assert line.faults["camera_stalled"] == 1 and line.frames["front"] > line.frames["wrist"] > 0
        b.cameras_at.clear("wrist")
        recorder = b.recorder(b.walks(seconds=30.0), to="walk")
        report = run_and(recorder, lambda: b.cameras_at.fault("wrist", "stall"), recording(recorder))
        assert report.sealed == [0] and report.problem == "camera_lost: wrist"
        assert b.torque() == [0] * 6


def test_an_overloaded_servo_ends_a_walk_and_the_arm_is_let_go_of_where_it_is(tmp_path: Path) -> None:
    with bench(tmp_path, views=()) as b:
        recorder = b.recorder(b.walks(seconds=30.0))
        report = run_and(recorder, lambda: b.bus.servos[2].raise_flags("overload"), recording(recorder))
        assert "shoulder_lift" in report.problem and report.sealed == [0]
        assert b.torque() == [0] * 6 and "returning" not in {snapshot.phase for snapshot in b.shown}
    faults = Recording.open(tmp_path / "r").episode(0).line.faults
    assert faults["servo_overload"] == 1 and faults["stopped_servo_error"] == 1


def test_the_stop_key_lets_go_at_once_and_seals(tmp_path: Path) -> None:
    with bench(tmp_path, views=()) as b:
        recorder = b.recorder(b.walks(seconds=30.0))
        report = run_and(recorder, lambda: recorder.press("x"), recording(recorder))
        assert report.sealed == [0] and report.ended == "the stop key" and b.torque() == [0] * 6
        assert "returning" not in {snapshot.phase for snapshot in b.shown}


def test_space_pauses_a_walk_and_sets_it_going_again(tmp_path: Path) -> None:
    with bench(tmp_path, views=()) as b:
        recorder = b.recorder(b.walks(seconds=1.3))

        def pause_a_while() -> None:
            recorder.press(" ")
            time.sleep(1.5)
            recorder.press(" ")

        report = run_and(recorder, pause_a_while, recording(recorder))
        assert report.sealed == [0]
    knots = Recording.open(tmp_path / "r").episode(0).knots()
    assert len(knots.time_ns) == 3
    assert np.diff(knots.time_ns).max() / 1e9 > 1.5
    assert "paused" in {snapshot.phase for snapshot in b.shown}


def test_keys_begin_end_and_repeat_episodes(tmp_path: Path) -> None:
    with bench(tmp_path, views=()) as b:
        recorder = b.recorder(Observe(), episodes=2, by_key=True)

        def presses() -> None:
            def wait(phase: str, sealed: int) -> None:
                until = time.monotonic() + 20
                while (recorder._phase, recorder._sealed) != (phase, sealed) and time.monotonic() < until:
                    time.sleep(0.005)
                time.sleep(0.15)

            for key, phase, sealed in (
                ("\n", "waiting", 0), ("r", "recording", 0),
                ("\n", "waiting", 0), ("\n", "recording", 0),
                ("\n", "waiting", 1), ("q", "recording", 1),
            ):  # fmt: skip
                wait(phase, sealed)
                recorder.press(key)

        report = run_and(recorder, presses, lambda: True)
        assert report.sealed == [0, 1] and report.ended in ("done", "quit")
        assert "episode 0 is not kept" in b.words
    assert sorted(path.name for path in (tmp_path / "r/episodes").iterdir()) == ["000000.h5", "000001.h5"]


def test_a_wall_clock_set_back_an_hour_changes_nothing_but_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(tmp_path, views=("front",)) as b:
        recorder = b.recorder(Observe(), seconds=1.0)
        real = time.time_ns
        offset = [0]
        monkeypatch.setattr(time, "time_ns", lambda: real() + offset[0])
        run_and(recorder, lambda: offset.__setitem__(0, -3600 * 10**9), recording(recorder))
    episode = Recording.open(tmp_path / "r").episode(0)
    assert episode.line.faults["wall_clock_stepped"] == 1
    assert "-3600" in next(f["message"] for f in episode.faults() if f["kind"] == "wall_clock_stepped")
    assert (np.diff(episode.joints().time_ns) > 0).all() and 0.9 < episode.line.seconds < 10


def test_a_full_disk_ends_the_session_with_one_error_and_the_arm_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hardware.recorder
    import hardware.session

    space = [100_000_000]
    for module in (hardware.recorder, hardware.session):
        monkeypatch.setattr(module, "free_bytes", lambda path: space[0])
    with bench(tmp_path, views=()) as b:
        with pytest.raises(InputError, match="100 MB left"):
            b.recorder(b.walks()).run()
        assert all(not servo.writes for servo in b.bus.servos.values())
        space[0] = 10**12
        recorder = b.recorder(b.walks(seconds=30.0))
        report = run_and(recorder, lambda: space.__setitem__(0, 1000), recording(recorder))
        assert report.problem.startswith("disk_low") and report.sealed == [0] and b.torque() == [0] * 6


def test_a_second_recorder_is_told_that_the_port_and_the_folder_are_taken(tmp_path: Path) -> None:
    with bench(tmp_path, views=()) as b:
        with pytest.raises(InputError, match="in use"):
            ServoBus(b.bus.port)
        recorder = b.recorder(Observe(), seconds=30.0)

        def second() -> None:
            with pytest.raises(InputError, match="another process"):
                b.recorder(Observe(), seconds=1.0).run()
            recorder.stop("quit")

        assert run_and(recorder, second, recording(recorder)).sealed == [0]


def test_an_arm_without_power_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with bench(tmp_path, views=()) as b:
        b.bus.hang()
        with pytest.raises(InputError, match="no good reading"):
            b.recorder(Observe(), seconds=1.0).run()
        assert not list((tmp_path / "r/episodes").iterdir())


def in_phase(recorder: Recorder, phase: str) -> Callable[[], bool]:
    return lambda: recorder._phase == phase


@pytest.mark.parametrize("way", ["x", "SIGTERM twice"])
def test_letting_go_on_the_way_back_ends_there(tmp_path: Path, way: str) -> None:
    with bench(tmp_path, views=()) as b:
        recorder = b.recorder(b.walks())

        def act() -> None:
            recorder.press(" ")  # pauses nothing now
            for _ in range(1 if way == "x" else 2):
                recorder.press("x") if way == "x" else recorder.stop("SIGTERM")

        report = run_and(recorder, act, in_phase(recorder, "returning"))
        assert report.sealed == [0] and b.torque() == [0] * 6


@pytest.mark.parametrize("broken", ["disk", "watch", "word"])
def test_nothing_that_breaks_meanwhile_leaves_the_arm_powered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    import hardware.recorder

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with bench(tmp_path, views=()) as b:
        recorder = b.recorder(b.walks(seconds=30.0))

        def act() -> None:
            if broken == "disk":
                monkeypatch.setattr(hardware.recorder, "free_bytes", fail)
            elif broken == "watch":
                recorder._watch = fail
            else:
                recorder.keeper._word = fail
                recorder.stop("quit")

        if broken == "disk":
            assert run_and(recorder, act, recording(recorder)).problem.startswith("disk_low")
        else:
            with pytest.raises(OSError):
                run_and(recorder, act, recording(recorder))
        assert b.torque() == [0] * 6


def test_a_leader_that_is_unplugged_or_silent_ends_teleoperation_and_the_arm_is_let_go_of(
    tmp_path: Path,
) -> None:
    for act in ("unplug", "hang"):
        folder = tmp_path / act
        (folder / "leader").mkdir(parents=True)
        with bench(folder, views=()) as b, bench(folder / "leader", views=()) as leader:
            recorder = b.recorder(Teleoperate(leader.arm), seconds=60.0)
            report = run_and(recorder, getattr(leader.bus, act), recording(recorder))
            assert "leader" in report.problem and report.sealed == [0], report
            assert b.torque() == [0] * 6
            assert all(not servo.writes for servo in leader.bus.servos.values())


def test_an_arm_that_cannot_be_powered_is_not_commanded(tmp_path: Path) -> None:
    with bench(tmp_path, views=()) as b:
        b.bus.arm.ticks[5] = 4080.0  # within the calibrated turn of the wrist, beyond the model's range
        with pytest.raises(InputError, match="jump"):
            b.recorder(b.walks()).run()
        assert all(not servo.writes for servo in b.bus.servos.values()) and b.torque() == [0] * 6


def test_a_bus_lost_on_the_way_back_is_a_problem_that_is_told(tmp_path: Path) -> None:
    with bench(tmp_path, views=()) as b:
        recorder = b.recorder(b.walks())
        report = run_and(recorder, b.bus.unplug, in_phase(recorder, "returning"))
        assert report.sealed == [0] and "still_powered" in report.problem


def test_an_episode_in_which_a_view_gave_nothing_does_not_count(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        recorder = b.recorder(Observe(), episodes=2, seconds=0.6)
        recorder.tape.frame = lambda view, frame, keep=recorder.tape.frame: (
            view == "wrist" or keep(view, frame)
        )
        report = recorder.run()
        assert report.problem == "nothing_came: wrist" and report.sealed == [0]
    assert Recording.open(tmp_path / "r").episode(0).line.faults["ended_early"] == 1


def test_a_recording_in_another_frame_is_not_replayed(tmp_path: Path) -> None:
    from tests.recordings import make_recording

    made = make_recording(tmp_path / "imported", episodes=1)
    with pytest.raises(InputError, match="calibration's own zero"):
        Replays(made, None, np.array([[-3.0, 3.0]] * 2), ["joint0", "joint1"])


def test_a_signal_amid_the_sealing_of_an_episode_changes_nothing_about_it(tmp_path: Path) -> None:
    with bench(tmp_path, views=("front",)) as b:
        recorder = b.recorder(Observe(), episodes=3, seconds=0.6)
        report = run_and(recorder, lambda: recorder.stop("SIGTERM"), in_phase(recorder, "sealing"))
        assert report.ended == "SIGTERM" and report.sealed == [0]
    episode = Recording.open(tmp_path / "r").episode(0)
    episode.verify()
    assert "ended_early" not in episode.line.faults and episode.line.seconds > 0.5
