"""The cameras of this machine: which there are, and frames from one of them through OpenCV's V4L2 backend."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from hardware.camera_sources import Captured, SourceLost
from hardware.errors import InputError
from hardware.jpeg import NotJpeg, encode_jpeg

_MJPG = cv2.VideoWriter.fourcc(*"MJPG")
_VIDIOC_QUERYCAP = 0x80685600  # _IOR('V', 0, struct v4l2_capability), 104 bytes
_CAN_CAPTURE = 0x1 | 0x1000  # V4L2_CAP_VIDEO_CAPTURE, .._MPLANE


class DeviceSource:
    """A camera of this machine, through OpenCV's V4L2 backend.

    MJPG is asked for. Where the camera has it, conversion is switched off and `read` gives the camera's own
    bytes; else OpenCV's BGR image is encoded here. The driver's stamp (CLOCK_MONOTONIC, at the start of the
    frame) is the capture time where `capture_time` believes it.

    OpenCV's four buffers stay: with one, many drivers lose every second frame, and since this thread reads
    all the time and the driver stamps each frame, nothing in the queue grows old or is dated wrongly.

    `read` cannot be interrupted: without a frame OpenCV waits for 10 s before it gives up.
    """

    live = reconnects = True

    def __init__(
        self,
        path: str,
        width: int | None = None,
        height: int | None = None,
        fps: float | None = None,
        open_capture: Callable[[str], Any] | None = None,
    ) -> None:
        self.shown, self._path = path, path
        self._asked = (width, height, fps)
        self._open_capture = open_capture or _open_v4l2
        self._capture: Any = None
        self.backend, self.jpeg_by, self.fps = "v4l2", "camera", fps

    def open(self) -> None:
        """Open the device and ask for MJPG, the size and the rate."""
        self.close()
        _require_device(self._path)
        # by-id names are links; where they lead can change each time the camera is plugged in
        self._capture = self._open_capture(os.path.realpath(self._path))
        if not self._capture.isOpened():
            self.close()
            raise InputError(self.shown, "cannot be opened as a camera", _who_holds(self._path))
        raw = configure(self._capture, *self._asked)
        self.jpeg_by = "camera" if raw else "recorder"
        told = float(self._capture.get(cv2.CAP_PROP_FPS))
        self.fps = told if 0 < told < 1000 else self._asked[2]

    def read(self) -> Captured:
        """The next frame; raises SourceLost when the device is gone or gave nothing for 10 s."""
        if self._capture is None:
            raise SourceLost("is not open")
        try:
            there, image = self._capture.read()
        except cv2.error as error:
            raise SourceLost(f"cannot be read: {str(error).strip()[:120]}") from None
        arrived_ns = time.monotonic_ns()
        if not there or image is None:
            gone = not os.path.exists(self._path)
            raise SourceLost(
                "is unplugged" if gone else "gives no frames (unplugged, or another program has it)"
            )
        stamp_ms = float(self._capture.get(cv2.CAP_PROP_POS_MSEC))
        try:
            data, self.jpeg_by = jpeg_of(image)
        except NotJpeg as error:
            raise SourceLost(f"gives what is not read here: a frame {error}") from None
        return Captured(data, arrived_ns, int(stamp_ms * 1e6) if stamp_ms > 0 else None)

    def abort(self) -> None:
        """Nothing: another thread must not touch an OpenCV capture that is reading."""

    def close(self) -> None:
        if self._capture is not None:
            self._capture.release()
            self._capture = None


def _open_v4l2(path: str) -> Any:
    if sys.platform.startswith("linux"):
        return cv2.VideoCapture(path, cv2.CAP_V4L2)
    return cv2.VideoCapture(int(path.removeprefix("/dev/video") or 0))  # elsewhere cameras have numbers only


def configure(capture: Any, width: int | None, height: int | None, fps: float | None) -> bool:
    """Ask a capture for MJPG, a size and a rate; whether the camera's own JPEG bytes will come out.

    The order matters: each setting restarts the device, and conversion may only be switched off once MJPG is
    sure, since otherwise raw YUV would come out.
    """
    capture.set(cv2.CAP_PROP_FOURCC, _MJPG)
    if width and height:
        capture.set(cv2.CAP_PROP_FRAME_WIDTH, width)
        capture.set(cv2.CAP_PROP_FRAME_HEIGHT, height)
    if fps:
        capture.set(cv2.CAP_PROP_FPS, fps)
    if int(capture.get(cv2.CAP_PROP_FOURCC)) != _MJPG:
        return False
    return bool(capture.set(cv2.CAP_PROP_CONVERT_RGB, 0))


def jpeg_of(image: np.ndarray) -> tuple[bytes, str]:
    """The JPEG of what OpenCV gave, and by whom it is: `camera` or `recorder`.

    With conversion off and MJPG, OpenCV gives the compressed bytes as an array of one row (or column); a BGR
    image has three axes, a grey one two that are longer than 1.

    Raises
    ------
    NotJpeg : for anything else.
    """
    if image.dtype != np.uint8 or image.size == 0:
        raise NotJpeg(f"is {image.dtype} of shape {image.shape}")
    if image.size == max(image.shape):
        return image.tobytes(), "camera"
    if image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3):
        return encode_jpeg(image), "recorder"
    raise NotJpeg(f"is an image of shape {image.shape}")


def _require_device(path: str) -> None:
    """An InputError for a device that is not there, is none, or may not be opened."""
    try:
        is_device = stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        raise InputError(path, "no such device", cameras_there()) from None
    if not is_device:
        raise InputError(path, "is no camera device", cameras_there())
    if not os.access(path, os.R_OK | os.W_OK):
        raise InputError(path, "may not be opened by you", "sudo usermod -aG video $USER, then log in again")


def _who_holds(path: str) -> str:
    """What to do about a device that does not open: names the processes of ours that have it open."""
    target = os.path.realpath(path)
    holders = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(folder.name) != os.getpid() and any(
                os.readlink(link) == target for link in (folder / "fd").iterdir()
            ):
                holders.append(f"{folder.name} ({(folder / 'comm').read_text().strip()})")
    if holders:
        return f"it is in use by process {', '.join(holders[:3])}: end that first"
    return f"another program may have it, or it is no capture device; {cameras_there()}"


class CameraPath(NamedTuple):
    """A camera of this machine: the path to give (a stable one, if any), its device, its name or ''."""

    path: str
    device: str
    name: str


def list_cameras(dev: Path = Path("/dev")) -> list[CameraPath]:
    """The capture devices there are, stable paths first: by-id, then by-path, then what has neither."""
    found: dict[str, CameraPath] = {}
    names = sorted((dev / "v4l" / "by-id").glob("*")) + sorted((dev / "v4l" / "by-path").glob("*"))
    for link in [*names, *sorted(dev.glob("video*"))]:
        device = os.path.realpath(link)
        if device not in found and os.path.exists(device):
            captures, name = _card(device)
            if captures:
                found[device] = CameraPath(str(link), device, name)
    return list(found.values())


def _card(device: str) -> tuple[bool, str]:
    """Whether a node captures (webcams have a second one, for metadata) and the camera's name.

    A node that cannot be asked counts as one that does.
    """
    try:
        descriptor = os.open(device, os.O_RDWR | os.O_NONBLOCK)
    except OSError:
        return True, ""
    try:
        answer = fcntl.ioctl(descriptor, _VIDIOC_QUERYCAP, bytes(104))
    except OSError:
        return True, ""
    finally:
        os.close(descriptor)
    _, card, _, _, capabilities, device_capabilities = struct.unpack("=16s32s32sIII", answer[:92])
    name = card.split(b"\0")[0].decode("utf-8", "replace")
    return bool((device_capabilities or capabilities) & _CAN_CAPTURE), name


def cameras_there() -> str:
    """A line that names the cameras there are, for help and errors."""
    cameras = list_cameras()
    if not cameras:
        return "no camera is connected here (there is no /dev/video*)"
    return "cameras here: " + ", ".join(f"{one.path} ({one.name or one.device})" for one in cameras)
