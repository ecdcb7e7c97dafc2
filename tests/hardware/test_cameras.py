"""Cameras over real sockets and real video files: what is delivered, what is told, and that nothing hangs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest

from hardware import camera_watch, cameras
from hardware.camera_devices import DeviceSource
from hardware.camera_sources import UrlSource
from hardware.cameras import Camera, Frame
from hardware.errors import InputError
from hardware.frames import decode_jpeg
from hardware.jpeg import jpeg_size
from sim.camera_server import CameraServer, moving_pictures
from tests.hardware.mjpeg_server import HEAD, ScriptedServer, part, picture, sends, trickles

pytestmark = pytest.mark.realtime

HANG_GUARD_S = 60
PICTURES = moving_pictures(30, (160, 120), seed=1)
OTHERS = moving_pictures(30, (160, 120), seed=2)
SMALL = moving_pictures(30, (80, 60), seed=3)


class Listener:
    """Takes what a camera delivers and tells, and waits for it."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.faults: list[tuple[str, str, int]] = []
        self.cameras: list[Camera] = []
        self._news = threading.Condition()

    def deliver(self, frame: Frame) -> None:
        with self._news:
            self.frames.append(frame)
            self._news.notify_all()

    def fault(self, kind: str, message: str, time_ns: int) -> None:
        with self._news:
            self.faults.append((kind.removeprefix("camera_"), message, time_ns))
            self._news.notify_all()

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.faults]

    def wait(self, done: Callable[[], Any]) -> None:
        with self._news:
            assert self._news.wait_for(done, HANG_GUARD_S), f"waited in vain; told: {self.faults}"

    def wait_frames(self, more: int) -> None:
        count = len(self.frames) + more
        self.wait(lambda: len(self.frames) >= count)

    def wait_kinds(self, *kinds: str) -> None:
        self.wait(lambda: len(self.faults) >= len(kinds))
        assert self.kinds == list(kinds), self.faults


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The true times are held by test_camera_watch, where waiting costs nothing."""
    for name, seconds in (
        ("FROZEN_AFTER_S", 0.4),
        ("GARBAGE_OVER_S", 0.5),
        ("SLOW_AFTER_S", 1.0),
        ("SLOW_WINDOW_S", 1.0),
    ):
        monkeypatch.setattr(camera_watch, name, seconds)
    monkeypatch.setattr(cameras, "_BACKOFF_S", (0.1, 0.2))


@pytest.fixture
def server() -> Iterator[CameraServer]:
    with CameraServer({"front": PICTURES, "wrist": OTHERS, "small": SMALL}, fps=30) as server:
        yield server


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    for camera in listener.cameras:
        camera.close()


def started(source: str | Path, listener: Listener, **settings: Any) -> Camera:
    """A camera that is patient and content with few frames, so that a busy machine is no fault."""
    if str(source).startswith("http"):
        settings = {"fps": 5, **settings}
    camera = Camera("front", source, **{"timeout_s": 30, **settings})
    listener.cameras.append(camera)
    camera.open()
    camera.start(listener.deliver, listener.fault)
    return camera


def eventually(done: Callable[[], bool]) -> None:
    until = time.monotonic() + HANG_GUARD_S
    while not done():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def rises(values: list[int]) -> bool:
    return all(later > earlier for earlier, later in pairwise(values))


def test_the_servers_own_bytes_with_its_stamps_and_numbers(server: CameraServer, listener: Listener) -> None:
    with Camera("front", server.url("front"), fps=30) as camera:
        facts = camera.open()
        assert (facts.width, facts.height, facts.fps, facts.fps_by) == (160, 120, 30.0, "asked")
        assert (facts.backend, facts.jpeg_by, facts.source) == ("mjpeg-http", "camera", server.url("front"))
        assert camera.state == "stopped"
        camera.start(listener.deliver, listener.fault)
        listener.wait_frames(40)
        assert camera.state == "running" and camera.rate_hz > 0 and camera.frames >= 40
        assert camera.repeated == camera.dropped == 0 and listener.faults == []
        camera.stop()
        count = len(listener.frames)
        assert camera.state == "stopped" and camera.frames == count, "the counts stay"
    frames = listener.frames
    assert {frame.jpeg for frame in frames} <= set(PICTURES)
    positions = [PICTURES.index(frame.jpeg) for frame in frames]
    gaps = [later.sequence - earlier.sequence for earlier, later in pairwise(frames)]
    assert [(later - earlier) % 30 for earlier, later in pairwise(positions)] == [gap % 30 for gap in gaps], (
        "the numbers say exactly which pictures are missing"
    )
    assert rises([frame.time_ns for frame in frames])
    assert all(frame.time_ns < frame.arrived_ns for frame in frames), "captured before it arrived"
    assert len(listener.frames) == count, "nothing after stop"


def test_stamps_that_stand_still_or_are_of_another_clock_and_numbers_with_gaps(listener: Listener) -> None:
    now_ns = time.monotonic_ns()
    stamps = [f"{now_ns // 10**9}.{now_ns % 10**9:09d}"] * 3 + ["1700000000.0", "5.25"]
    numbers = [7, 8, 12, 13, 2]  # the last: the camera began to count anew
    blocks = [
        part(picture(seed), more=f"X-Timestamp: {stamp}\r\nX-Sequence: {number}\r\n")
        for seed, (stamp, number) in enumerate(zip(stamps, numbers))
    ]
    go = threading.Event()

    def script(connection: socket.socket, stopping: threading.Event) -> None:
        connection.sendall(HEAD.encode() + blocks[0])
        assert go.wait(HANG_GUARD_S)
        connection.sendall(b"".join(blocks[1:]))
        stopping.wait(HANG_GUARD_S)

    with ScriptedServer(script) as server:
        started(server.url, listener)
        go.set()
        listener.wait_frames(4)
    same = listener.frames[0].time_ns
    assert now_ns < same, "the first of the three was taken before start"
    assert [frame.time_ns - now_ns for frame in listener.frames[:2]] == [1, 2]
    assert all(frame.time_ns == frame.arrived_ns for frame in listener.frames[2:])
    first = listener.frames[0].sequence
    assert [frame.sequence - first for frame in listener.frames] == [0, 4, 5, 6]


def test_the_stamps_of_another_host_are_not_ours(server: CameraServer) -> None:
    source = UrlSource(server.url("front"))
    source.open()
    assert source.read().stamp_ns is not None
    source._stream.same_clock = False
    assert source.read().stamp_ns is None
    source.close()


def test_a_rate_that_nobody_declares_is_measured(server: CameraServer) -> None:
    with Camera("front", server.url("front")) as camera:
        facts = camera.open()
        assert facts.fps_by == "measured" and 0 < facts.fps < 100


def test_two_cameras_and_a_thumbnail(server: CameraServer) -> None:
    both = [Camera(view, server.url(view), fps=30) for view in ("front", "wrist")]
    with pytest.raises(InputError, match="no picture yet"):
        both[0].thumbnail()
    for camera in both:
        camera.open()
    assert jpeg_size(both[0].thumbnail()) == (160, 120)
    assert jpeg_size(both[1].thumbnail(width=40)) == (40, 30)
    seen = [decode_jpeg(camera.thumbnail(), "").astype(int) for camera in both]
    sent = [decode_jpeg(pictures[0], "").astype(int) for pictures in (PICTURES, OTHERS)]
    own = [np.abs(seen[i].mean((0, 1)) - sent[i].mean((0, 1))).max() for i in range(2)]
    assert max(own) < 15, "each shows its own view, red as red"
    for camera in both:
        camera.close()
        camera.close()


# -- faults, as the emulated camera makes them ---------------------------------------------------------------


def test_a_stall_is_told_and_ends(server: CameraServer, listener: Listener) -> None:
    camera = started(server.url("front"), listener, timeout_s=0.5)
    listener.wait_frames(3)
    server.fault("front", "stall")
    listener.wait_kinds("stalled")
    assert camera.state == "stalled"
    server.clear("front")
    listener.wait_kinds("stalled", "back")
    listener.wait_frames(3)
    assert camera.state == "running"
    camera.close()


def test_frozen_and_black_pictures(server: CameraServer, listener: Listener) -> None:
    camera = started(server.url("front"), listener)
    listener.wait_frames(3)
    server.fault("front", "freeze")
    listener.wait_kinds("frozen")
    assert camera.state == "frozen" and camera.repeated > 0
    assert listener.frames[-1].jpeg == listener.frames[-2].jpeg, "the frames are delivered all the same"
    server.clear("front")
    listener.wait_kinds("frozen", "back")
    server.fault("front", "black")
    listener.wait_kinds("frozen", "back", "black")
    repeated = camera.repeated
    server.clear("front")
    listener.wait_kinds("frozen", "back", "black", "back")
    assert camera.repeated == repeated, "black frames have noise"
    camera.close()


@pytest.mark.parametrize("kind", ["garbage", "truncated"])
def test_what_is_no_picture_is_dropped_counted_and_leaves_a_gap(
    server: CameraServer, listener: Listener, kind: str
) -> None:
    camera = started(server.url("front"), listener)
    listener.wait_frames(3)
    server.fault("front", kind)
    listener.wait_kinds("garbage")
    before = len(listener.frames)
    eventually(lambda: camera.dropped >= 5)
    server.clear("front")
    listener.wait_frames(5)
    dropped = camera.dropped
    frames = listener.frames[before - 1 :]
    assert sum(later.sequence - earlier.sequence - 1 for earlier, later in pairwise(frames)) >= dropped
    assert all(frame.jpeg in PICTURES for frame in listener.frames)
    listener.wait_kinds("garbage", "back")
    assert f"{dropped} dropped" in listener.faults[1][1]
    camera.close()


def test_a_picture_of_another_size_is_dropped(server: CameraServer, listener: Listener) -> None:
    camera = started(server.url("front"), listener, timeout_s=1)
    listener.wait_frames(3)
    server.fault("front", "swap", "small")
    listener.wait_kinds("garbage", "stalled")
    assert "is 80x60, the view is 160x120" in listener.faults[0][1]
    assert {jpeg_size(frame.jpeg) for frame in listener.frames} == {(160, 120)}
    camera.close()


def test_views_that_are_swapped_and_colours_too_are_delivered_as_they_come(
    server: CameraServer, listener: Listener
) -> None:
    """No camera can know; what was recorded says it: the thumbnail and the check of colours are for that."""
    camera = started(server.url("front"), listener)
    server.fault("front", "swap", "wrist")
    listener.wait(lambda: listener.frames and listener.frames[-1].jpeg in OTHERS)
    assert listener.faults == []
    camera.close()


def test_a_slow_camera(server: CameraServer, listener: Listener) -> None:
    server.fault("front", "slow", 12)
    camera = started(server.url("front"), listener, fps=30)
    listener.wait_kinds("slow")
    camera.close()


def test_a_connection_that_closes_and_a_camera_that_comes_back(
    server: CameraServer, listener: Listener
) -> None:
    camera = started(server.url("front"), listener)
    listener.wait_frames(3)
    server.fault("front", "disconnect", 1.0)
    listener.wait_kinds("lost")
    assert camera.state == "lost"
    listener.wait_kinds("lost", "back")
    listener.wait_frames(3)
    server.stop()  # and the whole server, its port refusing
    listener.wait_kinds("lost", "back", "lost")
    server.start()
    listener.wait_kinds("lost", "back", "lost", "back")
    listener.wait_frames(3)
    assert camera.state == "running"
    assert rises([frame.sequence for frame in listener.frames])
    assert rises([frame.time_ns for frame in listener.frames])
    camera.close()


def test_who_begins_to_listen_to_a_lost_camera_is_told_at_once(server: CameraServer) -> None:
    first, second = Listener(), Listener()
    camera = started(server.url("front"), first)
    server.fault("front", "disconnect")
    first.wait_kinds("lost")
    camera.stop()
    camera.start(second.deliver, second.fault)
    assert second.kinds == ["lost"] and camera.state == "lost"
    server.clear("front")
    second.wait_kinds("lost", "back")
    second.wait_frames(1)
    assert first.kinds == ["lost"]
    camera.close()


def test_a_connection_that_brings_nothing_is_given_up_and_made_anew(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that trickles would hold it for ever."""
    monkeypatch.setattr(cameras, "GIVE_UP_S", 1.0)
    visits = []

    def script(connection: socket.socket, stopping: threading.Event) -> None:
        visits.append(connection)
        connection.sendall(HEAD.encode() + part(picture(1)) + part(picture(2)))
        while len(visits) == 1 and not stopping.wait(0.05):
            connection.sendall(b"x")
        connection.sendall(part(picture(3)))
        stopping.wait(HANG_GUARD_S)

    with ScriptedServer(script) as server:
        camera = started(server.url, listener, timeout_s=0.5)
        listener.wait(lambda: listener.kinds[:3] == ["stalled", "lost", "back"])
        listener.wait(lambda: listener.frames and listener.frames[-1].jpeg == picture(3))
        camera.close()


# -- opening -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "match"),
    [
        ([HEAD, *[part(b"not a picture")] * 80], "sends no JPEG pictures: a frame is no JPEG"),
        ([HEAD], "gave no frame within 1 s"),
        ([HEAD, part(picture()), part(picture())[:300]], "single frame"),
        ([HEAD, part(picture()), "--frame--\r\n"], "ended after its first frames"),
        (["HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n"], "content type is text/html"),
    ],
    ids=["garbage", "nothing", "one frame", "one frame and the end", "a web page"],
)
def test_a_url_that_is_no_camera(blocks: list[bytes | str], match: str) -> None:
    with sends(*blocks) as server, pytest.raises(InputError, match=match):
        Camera("front", server.url).open(deadline_s=1)


def test_one_good_frame_after_bad_ones_is_enough() -> None:
    with sends(HEAD, part(b"x"), part(picture()[:500]), part(picture())) as server:
        camera = Camera("front", server.url, fps=30)
        assert camera.open().width == 64
        camera.close()


def test_an_open_camera_has_the_size_that_was_asked_for(server: CameraServer) -> None:
    camera = Camera("front", server.url("front"), 160, 120, 30)
    camera.open()
    camera.close()
    with pytest.raises(InputError, match="gives frames of 160x120, not the 640x480 asked for"):
        Camera("front", server.url("front"), 640, 480, 30).open()


def test_passwords_are_in_no_message_and_no_fact(server: CameraServer) -> None:
    url = server.url("front").replace("http://", "http://ann:secret@")
    camera = Camera("front", url, fps=30)
    assert "secret" not in str(camera.open())
    camera.close()
    with pytest.raises(InputError) as caught:
        Camera("front", url.replace("front", "nothing"), fps=30).open()
    assert "404" in str(caught.value) and "secret" not in str(caught.value)


# -- nothing hangs -------------------------------------------------------------------------------------------


def ends_in_time(action: Callable[[], Any]) -> None:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(HANG_GUARD_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("first", [HEAD + "--frame\r\n", HEAD + "--frame\r\nContent-Length: 9999\r\n\r\n"])
def test_a_server_that_trickles_does_not_hold_close(first: str, listener: Listener) -> None:
    start = HEAD.encode() + part(picture(1)) + part(picture(2)) + first.removeprefix(HEAD).encode()
    with trickles(start) as server:
        camera = started(server.url, listener)
        ends_in_time(camera.close)
        assert not [one for one in threading.enumerate() if one.name == "camera front"]


def test_a_server_that_sends_garbage_for_ever_does_not_hold_close(listener: Listener) -> None:
    def script(connection: socket.socket, stopping: threading.Event) -> None:
        connection.sendall(HEAD.encode() + part(picture(1)))
        while not stopping.is_set():
            connection.sendall(bytes(100_000))

    with ScriptedServer(script) as server:
        camera = started(server.url, listener)
        ends_in_time(camera.close)


def test_a_listener_that_does_not_return_holds_neither_stop_nor_close(server: CameraServer) -> None:
    entered, leave = threading.Event(), threading.Event()
    faults: list[tuple[str, str, int]] = []

    def deliver(frame: Frame) -> None:
        entered.set()
        leave.wait(HANG_GUARD_S)

    camera = Camera("front", server.url("front"), fps=30)
    camera.open()
    camera.start(deliver, lambda *fault: faults.append(fault))
    assert entered.wait(HANG_GUARD_S)
    ends_in_time(camera.stop)
    ends_in_time(camera.close)
    leave.set()


def test_stop_from_within_a_delivery(server: CameraServer) -> None:
    frames, done = [], threading.Event()

    def deliver(frame: Frame) -> None:
        frames.append(frame)
        camera.close()
        done.set()

    camera = Camera("front", server.url("front"), fps=30)
    camera.open()
    camera.start(deliver, lambda *fault: None)
    assert done.wait(HANG_GUARD_S)
    assert len(frames) == 1


def test_a_device_whose_read_blocks_is_stalled_and_left_behind(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with V4L2 when a camera hangs: the watchdog tells, `close` returns, its thread ends later."""
    unblock, blocked = threading.Event(), threading.Event()

    class Hangs:
        count = 0

        def isOpened(self) -> bool:
            return True

        def set(self, *_: Any) -> bool:
            return True

        def get(self, key: int) -> float:
            return cv2.VideoWriter.fourcc(*"MJPG") if key == cv2.CAP_PROP_FOURCC else 30.0

        def read(self) -> tuple[bool, np.ndarray]:
            self.count += 1
            if self.count > 3:
                blocked.set()
                unblock.wait(HANG_GUARD_S)
            return True, np.frombuffer(picture(self.count), np.uint8)[None]

        def release(self) -> None: ...

    monkeypatch.setattr(
        cameras, "source_of", lambda *_: DeviceSource("/dev/null", open_capture=lambda path: Hangs())
    )
    camera = started("whatever", listener, timeout_s=0.3)
    assert blocked.wait(HANG_GUARD_S)
    listener.wait_kinds("stalled")
    ends_in_time(camera.close)
    left = [one for one in threading.enumerate() if one.name == "camera front"]
    assert len(left) == 1 and left[0].daemon
    count = len(listener.frames)
    unblock.set()
    left[0].join(HANG_GUARD_S)
    assert not left[0].is_alive() and len(listener.frames) == count, "and delivers nothing more"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_listener_that_fails_is_told_not_hidden(server: CameraServer, listener: Listener) -> None:
    def deliver(frame: Frame) -> None:
        raise OSError("no space left")

    camera = Camera("front", server.url("front"), fps=30)
    camera.open()
    camera.start(deliver, listener.fault)
    listener.wait_kinds("lost")
    assert "OSError: no space left" in listener.faults[0][1] and camera.state == "lost"
    camera.close()


# -- video files ---------------------------------------------------------------------------------------------


def video(path: Path, count: int = 10, rate: int = 20) -> list[np.ndarray]:
    """Writes a video whose frames get redder and less blue; returns them, RGB."""
    images = []
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = 64, 48, "yuv420p", 4_000_000
        for number in range(count):
            image = np.zeros((48, 64, 3), np.uint8)
            image[..., 0], image[..., 2] = 40 + 12 * number, 250 - 12 * number
            images.append(image)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return images


def test_a_video_file_plays_whole_from_start_in_its_colours_and_ends(
    tmp_path: Path, listener: Listener
) -> None:
    images = video(tmp_path / "clip.mp4")
    camera = Camera("front", tmp_path / "clip.mp4")
    facts = camera.open()
    assert (facts.backend, facts.jpeg_by, facts.fps, facts.fps_by) == ("libav", "recorder", 20.0, "camera")
    assert jpeg_size(camera.thumbnail()) == (64, 48)
    time.sleep(0.3)  # nobody listens yet: it waits
    camera.start(listener.deliver, listener.fault)
    listener.wait_kinds("lost")
    assert listener.faults[0][1] == "the camera file is at its end" and camera.state == "lost"
    assert len(listener.frames) == len(images)
    for frame, image in zip(listener.frames, images):
        seen = decode_jpeg(frame.jpeg, "").astype(int)
        assert np.abs(seen.mean((0, 1)) - image.mean((0, 1))).max() < 12
    times = [frame.time_ns for frame in listener.frames]
    assert rises(times) and times[-1] - times[0] >= 0.9 * (len(images) - 1) / 20 * 1e9, (
        "not faster than it is"
    )
    camera.close()


def test_a_pause_does_not_skip_a_file(tmp_path: Path) -> None:
    video(tmp_path / "clip.mp4", count=16)
    first, second = Listener(), Listener()
    camera = started(tmp_path / "clip.mp4", first)
    first.wait_frames(3)
    camera.stop()
    time.sleep(0.7)
    camera.start(second.deliver, second.fault)
    second.wait_kinds("lost")
    assert len(first.frames) + len(second.frames) >= 15, "at most the frame that was under way is lost"
    camera.close()


def test_what_is_no_video(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a video " * 100)
    with pytest.raises(InputError, match="is a text or a picture"):
        Camera("front", tmp_path / "notes.txt").open()
    with pytest.raises(RuntimeError, match="not open"):
        Camera("front", tmp_path / "notes.txt").start(print, print)
