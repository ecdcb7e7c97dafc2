"""What can be tested of V4L2 without a camera: how it is set up, what comes out, and every refusal.

A stand-in takes the place of `cv2.VideoCapture`; it behaves as OpenCV's V4L2 backend does by its source
(its cap_v4l.cpp): with MJPG and conversion off `read` gives an array of one row.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from hardware import camera_devices
from hardware.camera_devices import DeviceSource, jpeg_of, list_cameras
from hardware.camera_sources import SourceLost, capture_time
from hardware.cameras import Camera, source_of
from hardware.errors import InputError
from hardware.jpeg import NotJpeg, jpeg_size
from tests.hardware.mjpeg_server import picture

MJPG, YUYV = (cv2.VideoWriter.fourcc(*code) for code in ("MJPG", "YUYV"))
S = 1_000_000_000
A_DEVICE = "/dev/null"  # a character device that everybody has


class Capture:
    """A webcam as OpenCV shows it."""

    def __init__(self, has_mjpg: bool = True, frames: int = 1000, opens: bool = True) -> None:
        self.has_mjpg, self.left, self.opens = has_mjpg, frames, opens
        self.asked: list[tuple[int, float]] = []
        self.values: dict[int, float] = {
            cv2.CAP_PROP_FOURCC: YUYV,
            cv2.CAP_PROP_FPS: 30.0,
            cv2.CAP_PROP_CONVERT_RGB: 1,
        }
        self.stamp_ms: float | None = None
        self.released = False

    def isOpened(self) -> bool:
        return self.opens

    def set(self, key: int, value: float) -> bool:
        self.asked.append((key, value))
        if key == cv2.CAP_PROP_FOURCC and not self.has_mjpg:
            return False
        self.values[key] = value
        return True

    def get(self, key: int) -> float:
        if key == cv2.CAP_PROP_POS_MSEC:
            return time.monotonic() * 1e3 - 20 if self.stamp_ms is None else self.stamp_ms
        return self.values.get(key, 0.0)

    def read(self) -> tuple[bool, Any]:
        if self.left <= 0:
            return False, None
        self.left -= 1
        time.sleep(0.002)
        data = picture(self.left)
        if self.values[cv2.CAP_PROP_FOURCC] == MJPG and not self.values[cv2.CAP_PROP_CONVERT_RGB]:
            return True, np.frombuffer(data, np.uint8)[None]
        return True, cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)

    def release(self) -> None:
        self.released = True


def device(capture: Capture, *settings: Any) -> DeviceSource:
    return DeviceSource(A_DEVICE, *settings, open_capture=lambda path: capture)


def test_mjpg_is_asked_for_first_and_the_cameras_own_bytes_come_out() -> None:
    capture = Capture()
    source = device(capture, 640, 480, 25)
    source.open()
    keys = [key for key, _ in capture.asked]
    assert keys == [
        cv2.CAP_PROP_FOURCC,
        cv2.CAP_PROP_FRAME_WIDTH,
        cv2.CAP_PROP_FRAME_HEIGHT,
        cv2.CAP_PROP_FPS,
        cv2.CAP_PROP_CONVERT_RGB,
    ]
    before = time.monotonic_ns()
    frame = source.read()
    assert frame.jpeg == picture(999) and source.jpeg_by == "camera" and source.fps == 25
    assert frame.stamp_ns is not None and frame.stamp_ns < frame.arrived_ns and frame.arrived_ns > before
    assert capture_time(frame.stamp_ns, frame.arrived_ns) == frame.stamp_ns
    source.close()
    assert capture.released


def test_a_camera_without_mjpg_keeps_conversion_and_is_encoded_here() -> None:
    """Without conversion its raw YUV would come out."""
    capture = Capture(has_mjpg=False)
    source = device(capture)
    source.open()
    assert capture.values[cv2.CAP_PROP_CONVERT_RGB] == 1
    frame = source.read()
    assert source.jpeg_by == "recorder" and frame.jpeg != picture(999) and jpeg_size(frame.jpeg) == (64, 48)
    seen, sent = (
        cv2.imdecode(np.frombuffer(one, np.uint8), cv2.IMREAD_COLOR).astype(int)
        for one in (frame.jpeg, picture(999))
    )
    assert np.abs(seen - sent).mean() < 3, "and its colours are in order"


def test_bytes_and_images_are_told_apart() -> None:
    data = np.frombuffer(picture(), np.uint8)
    for array in (data, data[None], data[:, None]):
        assert jpeg_of(array) == (picture(), "camera")
    assert jpeg_of(np.zeros((48, 64, 3), np.uint8))[1] == "recorder"
    assert jpeg_of(np.zeros((48, 64), np.uint8))[1] == "recorder"
    for image in (
        np.zeros((48, 64, 2), np.uint8),  # YUYV
        np.zeros((48, 64), np.uint16),
        np.zeros((0,), np.uint8),
        np.zeros((48, 64, 4), np.uint8),
    ):
        with pytest.raises(NotJpeg):
            jpeg_of(image)


def test_a_stamp_is_believed_within_the_last_second_only() -> None:
    now = 1000 * S
    assert capture_time(now - 30_000_000, now) == now - 30_000_000
    assert capture_time(now - S, now) == now - S
    assert capture_time(now, now) == now
    for stamp in (None, now - S - 1, now + 1, 0, 1_700_000_000 * S):  # too old, the future, uptime, wall time
        assert capture_time(stamp, now) == now


def test_zero_is_no_stamp() -> None:
    capture = Capture()
    capture.stamp_ms = 0.0
    source = device(capture)
    source.open()
    assert source.read().stamp_ns is None


def test_a_device_that_ends_is_lost_and_says_whether_it_is_still_plugged(tmp_path: Path) -> None:
    link = tmp_path / "usb-camera"
    link.symlink_to(A_DEVICE)
    source = DeviceSource(str(link), open_capture=lambda path: Capture(frames=1))
    source.open()
    source.read()
    with pytest.raises(SourceLost, match="gives no frames"):
        source.read()
    link.unlink()
    with pytest.raises(SourceLost, match="is unplugged"):
        source.read()
    with pytest.raises(InputError, match="no such device"):
        source.open()
    with pytest.raises(SourceLost, match="not open"):
        source.read()


def test_the_link_is_followed_anew_each_time(tmp_path: Path) -> None:
    """A camera that was plugged in again may be another /dev/videoN behind the same by-id name."""
    link, opened = tmp_path / "by-id", []
    source = DeviceSource(str(link), open_capture=lambda path: opened.append(path) or Capture())
    for target in ("/dev/null", "/dev/zero"):
        link.symlink_to(target)
        source.open()
        link.unlink()
    assert opened == ["/dev/null", "/dev/zero"]


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no such device"):
        Camera("front", "/dev/v4l/by-id/usb-nothing").open()
    with pytest.raises(InputError, match=r"/dev/video97: no such device"):
        Camera("front", 97).open()
    with pytest.raises(InputError, match="cannot be opened as a camera"):
        device(Capture(opens=False)).open()
    file = tmp_path / "x"
    file.write_bytes(b"")
    with pytest.raises(InputError, match="is no camera device"):
        DeviceSource(str(file)).open()
    with pytest.raises(InputError, match="is not read here"):
        source_of("rtsp://user:secret@camera/1", None, None, None)
    with pytest.raises(InputError, match="no device, no video file"):
        source_of("frnot.mp4", None, None, None)
    with pytest.raises(InputError, match="both or none"):
        Camera("front", 0, width=640)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match="usermod -aG video"):
        device(Capture()).open()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_who_holds_a_busy_device_is_named(tmp_path: Path) -> None:
    file = tmp_path / "video0"
    file.write_bytes(b"")
    code = f"f = open({str(file)!r}); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"open\n"
        assert f"in use by process {other.pid} (" in camera_devices._who_holds(str(file))
        other.communicate(b"\n")
    assert "in use by" not in camera_devices._who_holds(str(file))


def test_cameras_are_listed_by_the_path_that_stays(tmp_path: Path) -> None:
    dev = tmp_path / "dev"
    for folder in ("v4l/by-id", "v4l/by-path"):
        (dev / folder).mkdir(parents=True)
    for number in range(3):
        (dev / f"video{number}").write_bytes(b"")
    (dev / "v4l/by-id/usb-cam-video-index0").symlink_to("../../video1")
    (dev / "v4l/by-path/pci-0-usb-0:1").symlink_to("../../video1")
    (dev / "v4l/by-path/pci-0-usb-0:2").symlink_to("../../video0")
    (dev / "v4l/by-path/pci-0-usb-gone").symlink_to("../../video9")
    listed = [
        (Path(one.path).relative_to(dev).as_posix(), Path(one.device).name) for one in list_cameras(dev)
    ]
    assert listed == [
        ("v4l/by-id/usb-cam-video-index0", "video1"),
        ("v4l/by-path/pci-0-usb-0:2", "video0"),
        ("video2", "video2"),
    ]
    assert list_cameras(tmp_path / "nothing") == []
