"""Video of an episode: counted by decoding, cut by packets, never encoded again.

Positions are frame numbers and presentation stamps (pts) in the container's own time base: integers
throughout. Seconds are never used to find a frame, since sums of durations drift and seeks by seconds land
beside their target.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from hardware.errors import InputError
from hardware.frames import MAX_PIXELS, open_video

NANOSECONDS = 10**9
MAX_YEARS = 292  # what int64 nanoseconds hold
MAX_VIDEO_BYTES = 2 << 30
DAMAGED = "the file is damaged or was cut off: restore it or take it away"


class VideoUnreadable(InputError):
    """A video that cannot be opened or decoded to its end."""


@dataclass(frozen=True)
class Clip:
    """The video of one episode, as a container of its own.

    Attributes
    ----------
    container : bytes of the mp4.
    pts : int64 (n,), stamps of the n frames that belong to the episode, in units of `time_base` seconds.
    skip : frames that decoding gives before the first of them.
    origin : the stamp that counts as time zero of the episode.
    width, height : of the decoded frames, in pixels.
    """

    container: bytes
    pts: np.ndarray
    time_base: Fraction
    skip: int
    origin: int
    width: int
    height: int

    def __len__(self) -> int:
        return len(self.pts)

    def time_ns(self) -> np.ndarray:
        """Time of each frame in ns since `origin`, int64 (n,)."""
        return stamps_to_ns(self.pts - self.origin, self.time_base)


def stamps_to_ns(pts: np.ndarray, time_base: Fraction) -> np.ndarray:
    """Nanoseconds, int64 (n,), of stamps in `time_base` seconds: exact integers, rounded to the nearest."""
    numerator, denominator = time_base.numerator * NANOSECONDS, time_base.denominator
    exact = [(2 * int(stamp) * numerator + denominator) // (2 * denominator) for stamp in pts]
    if any(abs(nanoseconds) >= 1 << 63 for nanoseconds in exact):
        raise VideoUnreadable("a video's time stamps", f"reach beyond {MAX_YEARS} years", DAMAGED)
    return np.array(exact, np.int64)


def frame_size(path: Path) -> tuple[int, int]:
    """(width, height) in pixels that a video's header claims."""
    with _opened(path, path) as (_, stream):
        return stream.width, stream.height


def whole_file(path: Path) -> Clip:
    """The clip that is a whole file (v2.1): its bytes as they are, its frames counted by decoding."""
    container = _read(path)
    decoded = _decode(container, path)
    return Clip(container, decoded.pts, decoded.time_base, 0, 0, decoded.width, decoded.height)


class SharedVideo:
    """A video that holds several episodes one after the other (v3.0), and is cut without encoding it again.

    The packets are indexed once, without decoding. `len` is the number of frames, which are numbered in the
    order in which they are shown; packets lie in the order in which they are decoded.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with _opened(path, path) as (file, stream):
            self.time_base = Fraction(stream.time_base)
            self.width, self.height = stream.width, stream.height
            packets = [(p.pts, p.dts, bool(p.is_keyframe)) for p in _packets(file, stream, path)]
        if any(pts is None or dts is None for pts, dts, _ in packets):
            raise VideoUnreadable(
                path, "has packets without time stamps, so no frame of it can be named", DAMAGED
            )
        self.pts = np.array([pts for pts, _, _ in packets], np.int64)
        self.dts = np.array([dts for _, dts, _ in packets], np.int64)
        self._is_key = np.array([key for _, _, key in packets], bool)
        self._shown = np.argsort(self.pts, kind="stable")  # _shown[frame] = packet
        self._frame = np.argsort(self._shown, kind="stable")  # _frame[packet] = frame
        if len(np.unique(self.pts)) < len(self.pts):
            raise VideoUnreadable(
                path, "shows two frames at one time stamp, so none of them can be named", DAMAGED
            )

    def __len__(self) -> int:
        return len(self.pts)

    def cut(self, first: int, count: int) -> Clip:
        """The clip of frames [first, first + count), verified by decoding it.

        It starts at the last key frame from which all of them can be decoded; `skip` frames come before the
        first wanted. Fewer than `count` frames are given where the video ends or breaks off before.
        """
        count = max(0, min(count, len(self) - first))
        if first < 0 or count == 0:
            return Clip(b"", np.zeros(0, np.int64), self.time_base, 0, 0, self.width, self.height)
        wanted = self._shown[first : first + count]
        keys = np.flatnonzero(self._is_key & (self._frame <= first))
        if not len(keys):
            raise VideoUnreadable(
                f"{self.path}, frame {first}",
                "no key frame comes before it, so it cannot be decoded",
                DAMAGED,
            )
        start, stop = int(keys[-1]), int(wanted.max()) + 1
        decoded, container = self._remux(start, stop)
        expected = self.pts[wanted] - self.dts[start]
        skip = int(np.searchsorted(decoded.pts, expected[0]))
        pts = decoded.pts[skip : skip + count]
        if decoded.time_base != self.time_base or not np.array_equal(pts, expected[: len(pts)]):
            last = first + count - 1
            raise VideoUnreadable(
                self.path, f"frames {first} to {last} do not decode to the stamps they have", DAMAGED
            )
        return Clip(container, pts, self.time_base, skip, int(expected[0]), decoded.width, decoded.height)

    def _remux(self, start: int, stop: int) -> tuple[_Decoded, bytes]:
        """Copy packets [start, stop) into an mp4 whose decoding begins at stamp 0, and decode it."""
        buffer = io.BytesIO()
        # No edit list: readers drop the frames outside one, and every packet here is there to be decoded.
        options = {"use_editlist": "0", "video_track_timescale": str(self.time_base.denominator)}
        origin = int(self.dts[start])
        try:
            with _opened(self.path, self.path) as (source, stream):
                with av.open(buffer, "w", format="mp4", options=options) as target:
                    copy = target.add_stream_from_template(stream, opaque=True)
                    for packet in self._from(source, stream, start, stop):
                        packet.pts, packet.dts = packet.pts - origin, packet.dts - origin
                        packet.stream = copy
                        target.mux(packet)
        except av.error.FFmpegError as error:
            raise VideoUnreadable(self.path, f"cannot be cut into episodes: {error}", DAMAGED) from None
        return _decode(buffer.getvalue(), f"{self.path}, packets {start} to {stop - 1}"), buffer.getvalue()

    def _from(self, source: Any, stream: Any, start: int, stop: int) -> Iterator[Any]:
        """Packets [start, stop): found by the stamp of a key frame, recognised by their own stamps."""
        source.seek(int(self.dts[start]), stream=stream, backward=True)
        position = start
        for packet in _packets(source, stream, self.path):
            if position == start and packet.dts < self.dts[start]:
                continue  # the container's index may lead to an earlier key frame
            if (packet.pts, packet.dts) != (self.pts[position], self.dts[position]):
                raise VideoUnreadable(self.path, f"packet {position} is not where the index has it", DAMAGED)
            yield packet
            position += 1
            if position == stop:
                return
        raise VideoUnreadable(self.path, f"ends at packet {position} of {len(self)}", DAMAGED)


@dataclass(frozen=True)
class _Decoded:
    pts: np.ndarray
    time_base: Fraction
    width: int
    height: int


def _decode(container: bytes, where: object) -> _Decoded:
    """Decode a container from memory to its end, keeping the stamps and no picture."""
    stamps: list[int] = []
    with _opened(io.BytesIO(container), where) as (file, stream):
        stream.thread_type = "AUTO"
        time_base, size = Fraction(stream.time_base), (stream.width, stream.height)
        try:
            for frame in file.decode(stream):
                if frame.pts is None:
                    raise VideoUnreadable(where, f"frame {len(stamps)} has no time stamp", DAMAGED)
                if (frame.width, frame.height) != size:
                    raise VideoUnreadable(
                        where,
                        f"frame {len(stamps)} is {frame.width}x{frame.height}, not {size[0]}x{size[1]}",
                    )
                stamps.append(frame.pts)
        except av.error.FFmpegError as error:
            raise VideoUnreadable(
                where, f"cannot be decoded past frame {len(stamps)}: {error}", DAMAGED
            ) from None
    return _Decoded(np.array(stamps, np.int64), time_base, *size)


def _packets(file: Any, stream: Any, where: object) -> Iterator[Any]:
    """Packets that hold a frame to be shown, in decoding order."""
    try:
        for packet in file.demux(stream):
            if packet.size and not packet.is_discard:  # the last packet is empty: it only flushes
                yield packet
    except av.error.FFmpegError as error:
        raise VideoUnreadable(where, f"cannot be read to its end: {error}", DAMAGED) from None


@contextmanager
def _opened(source: Path | io.BytesIO, where: object) -> Iterator[tuple[Any, Any]]:
    """Open a video and give (container, its one video stream)."""
    try:
        file = open_video(str(source) if isinstance(source, Path) else source)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise VideoUnreadable(where, f"is not a readable video: {error}", DAMAGED) from None
    with file:
        if not file.streams.video:
            raise VideoUnreadable(where, "holds no video", DAMAGED)
        stream = file.streams.video[0]
        if stream.codec_context is None:
            raise VideoUnreadable(where, "is in a codec that is not known here", DAMAGED)
        width, height = stream.width or 0, stream.height or 0
        if not 0 < width * height <= MAX_PIXELS:
            raise VideoUnreadable(where, f"claims frames of {width}x{height} pixels", DAMAGED)
        yield file, stream


def _read(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_VIDEO_BYTES:
            raise VideoUnreadable(path, f"is {size:,} bytes, more than one episode of video may have")
        return path.read_bytes()
    except OSError as error:
        raise VideoUnreadable(path, f"cannot be read: {error.strerror}", DAMAGED) from None
