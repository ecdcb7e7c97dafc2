"""Where frames come from, as one protocol; and the two sources that are no device of this machine.

A source gives JPEG bytes, the camera's own wherever the backend hands them out. BGR exists behind sources and
nowhere else: the images of OpenCV and libav go into OpenCV's encoder in the order that it expects.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import av

from hardware.errors import InputError
from hardware.frames import MAX_PIXELS, open_video
from hardware.jpeg import NotJpeg, encode_jpeg
from hardware.mjpeg import MjpegStream, StreamEnded

STAMP_MAX_AGE_NS = 1_000_000_000
_NO_VIDEOS = (
    "tty",
    "_pipe",
    "image2",
)  # what libav also takes for one: text as on a terminal, single pictures


class SourceLost(Exception):
    """No more frames from here; the message completes "the camera ..."."""


class Captured(NamedTuple):
    """What a source read.

    jpeg : bytes that should be a JPEG; nobody has checked.
    arrived_ns : CLOCK_MONOTONIC.
    stamp_ns : capture time on CLOCK_MONOTONIC as the camera says, or None.
    advance : how far the camera's own counter went on since the one before; more than 1: frames are missing.
    stray_bytes : bytes between the frames that belong to none.
    """

    jpeg: bytes
    arrived_ns: int
    stamp_ns: int | None = None
    advance: int = 1
    stray_bytes: int = 0


class Source(Protocol):
    """A source. `open`, `read` and `close` belong to one thread, `abort` to any other.

    Attributes
    ----------
    shown : its name in messages, without passwords.
    backend : what reads it.
    jpeg_by : `camera` where its own bytes come out, `recorder` where we encode.
    fps : the rate it declares, or None.
    live : frames pass whether read or not (a camera), or wait (a file).
    reconnects : whether opening it again after a loss makes sense.
    """

    shown: str
    backend: str
    jpeg_by: str
    fps: float | None
    live: bool
    reconnects: bool

    def open(self) -> None: ...
    def read(self) -> Captured: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


def capture_time(stamp_ns: int | None, arrived_ns: int) -> int:
    """The driver's stamp where it lies within the last second before the arrival, else the arrival.

    Stamps of another clock (wall time, a camera's uptime) and stamps from the future are told by that.
    """
    if stamp_ns is not None and arrived_ns - STAMP_MAX_AGE_NS <= stamp_ns <= arrived_ns:
        return stamp_ns
    return arrived_ns


class FileSource:
    """A video file, played at its own rate; for trials without a camera. Its end is the camera's end."""

    live = reconnects = False
    backend, jpeg_by = "libav", "recorder"

    def __init__(self, path: Path) -> None:
        self.shown, self._path = str(path), path
        self.fps: float | None = None
        self._container: Any = None
        self._frames: Iterator[Any] = iter(())
        self._due_s: float | None = None
        self._played_s = 0.0
        self._aborted = threading.Event()

    def open(self) -> None:
        self.close()
        try:
            self._container = open_video(str(self._path))
            if self._container.format.name.endswith(_NO_VIDEOS):
                raise InputError(self.shown, "is a text or a picture, not a video", "give a video file")
            stream = self._container.streams.video[0]
        except (av.error.FFmpegError, IndexError, OSError) as error:
            told = "it holds no video stream" if isinstance(error, IndexError) else error
            raise InputError(
                self.shown, f"is no video that can be read: {told}", "give a video file"
            ) from None
        if (stream.width or 0) * (stream.height or 0) > MAX_PIXELS:
            raise InputError(self.shown, f"claims frames of {stream.width}x{stream.height} pixels")
        self.fps = float(stream.average_rate or stream.guessed_rate or 0) or None
        self._frames = self._container.decode(stream)
        self._due_s = None

    def read(self) -> Captured:
        """The next frame, when its time has come. After a pause playing goes on where it was."""
        try:
            frame = next(self._frames)
            data = encode_jpeg(frame.to_ndarray(format="bgr24"))
        except StopIteration:
            raise SourceLost("file is at its end") from None
        except (av.error.FFmpegError, NotJpeg, ValueError) as error:
            raise SourceLost(f"file cannot be decoded any further: {error}") from None
        now, played = time.monotonic(), float(frame.time or 0.0)
        due = now if self._due_s is None else self._due_s + max(0.0, played - self._played_s)
        if now - due > 0.5:  # paused meanwhile, or too slow to keep up
            due = now
        self._due_s, self._played_s = due, played
        self._aborted.wait(max(0.0, due - now))
        return Captured(data, time.monotonic_ns())

    def abort(self) -> None:
        self._aborted.set()

    def close(self) -> None:
        if self._container is not None:
            self._frames = iter(())
            self._container.close()
            self._container = None


class UrlSource:
    """MJPEG over HTTP.

    `X-Timestamp` is the capture time only where the server runs on this very host: another host's clock is
    not ours, and a frame from there is dated by its arrival.
    """

    live = reconnects = True
    backend, jpeg_by = "mjpeg-http", "camera"
    fps: float | None = None

    def __init__(self, url: str) -> None:
        self._stream = MjpegStream(url)
        self.shown = self._stream.shown
        self._sequence: int | None = None

    def open(self) -> None:
        self._stream.open()
        self._sequence = None

    def read(self) -> Captured:
        try:
            part = self._stream.read()
        except StreamEnded as error:
            raise SourceLost(str(error)) from None
        advance = 1
        if part.sequence is not None and self._sequence is not None:
            advance = part.sequence - self._sequence
            if not 0 < advance < 1_000_000:  # the counter started again
                advance = 1
        self._sequence = part.sequence
        stamp_ns = part.stamp_ns if self._stream.same_clock else None
        return Captured(part.data, part.arrived_ns, stamp_ns, advance, part.stray_bytes)

    def abort(self) -> None:
        self._stream.abort()

    def close(self) -> None:
        self._stream.close()
