"""A camera of the recorder: frames with capture times and numbers, faults at their edges, and no surprises.

    camera = Camera("front", "/dev/v4l/by-id/usb-...-video-index0")
    facts = camera.open()                   # one frame is there, or an InputError says why not
    camera.start(deliver, fault)            # from here on frames and faults are handed over
    camera.stop()                           # and from here on no more; the camera stays open
    camera.close()

From `open` to `close` one daemon thread reads all the time, also while nobody listens: the first frame that
is handed over is then a new one, and not one that waited in a queue. (A video file waits for `start`.) A
second thread, the watchdog, wakes four times a second: it tells that frames stay away also while the reading
call blocks, and gives up a connection that brought no good frame for ten seconds.

`stop` and `close` return within about a second whatever the camera does. A network connection is cut; a V4L2
read that blocks cannot be, so its thread is left behind, hands nothing over and ends with the read (10 s).
"""

from __future__ import annotations

import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from hardware.camera_devices import CameraPath, DeviceSource, cameras_there, list_cameras
from hardware.camera_handover import Frame, Handover
from hardware.camera_sources import Captured, FileSource, Source, SourceLost, UrlSource, capture_time
from hardware.camera_watch import STALLED_AFTER_S, RateMeter
from hardware.errors import InputError
from hardware.jpeg import NotJpeg, brightness, jpeg_size, shrink_jpeg

__all__ = ["Camera", "CameraFacts", "CameraPath", "Frame", "cameras_there", "list_cameras"]

THUMBNAIL_WIDTH = 320
LOOK_EVERY = 10  # frames between two looks at the brightness, which cost a decoding each
GIVE_UP_S = 10.0  # a connection without a good frame for so long is cut
_WATCH_PERIOD_S = 0.25
_FIRST_TRIES = 60  # frames that are none before a camera is refused
_BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 5.0)
_CLOSE_S = 1.0


@dataclass(frozen=True, slots=True)
class CameraFacts:
    """What a camera is, once it is open.

    source : without passwords.
    backend : `v4l2`, `libav` or `mjpeg-http`.
    width, height : of its frames, in pixels.
    fps : its rate as declared; fps_by says by whom: `asked` (by you), `camera`, or `measured` where neither
        says.
    jpeg_by : `camera` where its own bytes are kept, `recorder` where we encode its images.
    """

    source: str
    backend: str
    width: int
    height: int
    fps: float
    fps_by: str
    jpeg_by: str


class Camera:
    """One camera.

    Parameters
    ----------
    name : of the view; for whoever holds several.
    source : an index, a device path (best a stable one, see `list_cameras`), an http URL, or a video file.
    width, height : of the frames, both or none; asked of a device, checked for all.
    fps : the declared rate; asked of a device.
    timeout_s : without a frame for so long the camera is stalled.

    Raises
    ------
    InputError : for a source that is none.
    """

    def __init__(
        self,
        name: str,
        source: str | int | Path,
        width: int | None = None,
        height: int | None = None,
        fps: float | None = None,
        timeout_s: float = STALLED_AFTER_S,
    ) -> None:
        if (width is None) != (height is None):
            raise InputError(f"view {name}", "has a width or a height only", "give both or none")
        self.name = name
        self.facts: CameraFacts | None = None
        self._asked_size, self._asked_fps = (width, height), fps
        self._make_source = lambda: source_of(source, width, height, fps)
        self._source = self._make_source()
        self._handover = Handover(timeout_s)
        self._closing, self._started = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._rate = RateMeter()
        self._progress_ns = 0  # of the last good frame or attempt to connect
        self._size: tuple[int, int] | None = None
        self._before: Frame | None = None  # the newest frame
        self._picture: bytes | None = None  # the newest JPEG; of a file also before it starts
        self._sequence = self._since_look = -1

    # -- life ------------------------------------------------------------------------------------------------

    def open(self, deadline_s: float = 10.0) -> CameraFacts:
        """Connect and take a first frame.

        Raises
        ------
        InputError : no such device, busy, refused, no JPEG, no frame in time, another size than asked for.
        """
        self.close()
        self._closing, self._rate, self._size = threading.Event(), RateMeter(), None
        self._source = self._make_source()  # a thread left behind may still hold the one before
        self._progress_ns = time.monotonic_ns()
        ready: Future[tuple[int, int]] = Future()
        self._spawn(self._read, self._source, self._closing, ready)
        try:
            width, height = ready.result(timeout=deadline_s)
            self._check_size(width, height)
            fps, fps_by = self._declared_rate()
        except (FutureTimeoutError, InputError) as error:
            self.close()
            if isinstance(error, InputError):
                raise
            remedy = "is another program using it, or is the network slow?"
            raise InputError(self._source.shown, f"gave no frame within {deadline_s:g} s", remedy) from None
        source = self._source
        self.facts = CameraFacts(source.shown, source.backend, width, height, fps, fps_by, source.jpeg_by)
        self._spawn(self._watch, source, self._closing)
        return self.facts

    def start(self, deliver: Callable[[Frame], None], fault: Callable[[str, str, int], None]) -> None:
        """Hand every frame from now on to `deliver`, faults to `fault(kind, message, time_ns)`.

        Both are called from the camera's threads, never at the same time, and should return quickly. What is
        wrong already is told again: a lost camera at once, a frozen or stalled one when its time is up.
        """
        if not self._threads or self.facts is None:
            raise RuntimeError(f"camera {self.name} is not open")
        self._handover.begin(deliver, fault, self.facts.fps)
        self._started.set()

    def stop(self) -> None:
        """Hand over nothing more; the camera stays open, and the counts stay until the next start."""
        self._started.clear()
        self._handover.end(_CLOSE_S)

    def close(self) -> None:
        """Stop and let go of the camera; a second call does nothing."""
        until = time.monotonic() + _CLOSE_S
        self._closing.set()
        self.stop()
        for thread in self._threads:
            while thread is not threading.current_thread() and thread.is_alive():
                self._source.abort()  # again and again: it may just have been about to connect
                thread.join(0.1)
                if time.monotonic() > until:
                    break
        self._threads = []

    def __enter__(self) -> Camera:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what is known ---------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """`running`, `stalled`, `frozen` or `lost`; `stopped` while nobody listens."""
        return self._handover.watch.state if self._handover.listened_to else "stopped"

    @property
    def rate_hz(self) -> float:
        """Frames a second that arrived over the last two seconds; also before `start`."""
        return self._rate.hz(time.monotonic_ns())

    @property
    def frames(self) -> int:
        """Good frames since the last start."""
        return self._handover.watch.frames

    @property
    def repeated(self) -> int:
        """Those among them that were byte for byte the frame before."""
        return self._handover.watch.repeated

    @property
    def dropped(self) -> int:
        """What was dropped since the last start: no JPEG, or of another size."""
        return self._handover.watch.dropped

    def thumbnail(self, width: int = THUMBNAIL_WIDTH) -> bytes:
        """A JPEG of the newest frame, at most `width` pixels wide, by our own encoder.

        Raises
        ------
        InputError : when there is no frame yet, or it cannot be decoded.
        """
        if self._picture is None:
            raise InputError(f"view {self.name}", "has no picture yet", "open the camera first")
        try:
            return shrink_jpeg(self._picture, width)
        except NotJpeg as error:
            raise InputError(f"view {self.name}", f"has a picture that {error}", "try again") from None

    # -- opening ---------------------------------------------------------------------------------------------

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        name = f"camera {self.name}"
        thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _check_size(self, width: int, height: int) -> None:
        if self._asked_size[0] is not None and (width, height) != self._asked_size:
            asked = "{}x{}".format(*self._asked_size)
            raise InputError(
                self._source.shown,
                f"gives frames of {width}x{height}, not the {asked} asked for",
                "ask for a size that it has (v4l2-ctl --list-formats-ext shows them)",
            )

    def _declared_rate(self) -> tuple[float, str]:
        """The rate and who says so; measured over a second or two where nobody does."""
        asked, told = self._asked_fps, self._source.fps
        if told:
            return (asked, "asked") if asked and abs(told - asked) < 0.5 else (told, "camera")
        if asked:
            return asked, "asked"
        begin = time.monotonic()
        while (passed := time.monotonic() - begin) < 2.0 and not (passed > 1.0 and self._rate.span_s > 0.8):
            time.sleep(0.05)
            if self._handover.watch.state == "lost":
                raise InputError(self._source.shown, "ended after its first frames", "is it a stream?")
        if self._rate.span_s == 0:
            raise InputError(self._source.shown, "gave a single frame in 2 s", "is it a stream?")
        measured = self.rate_hz
        whole = float(round(measured))  # what was meant, where a second of measuring cannot tell them apart
        return (whole if abs(measured - whole) < 0.02 * measured else round(measured, 2)), "measured"

    def _first(self, source: Source, closing: threading.Event) -> tuple[Captured, tuple[int, int]]:
        """The first good frame and its size. Raises InputError when there is none."""
        where, problem = source.shown, "sends no picture"
        try:
            source.open()
            for _ in range(_FIRST_TRIES):
                if closing.is_set():
                    break
                captured = source.read()
                try:
                    size = jpeg_size(captured.jpeg)
                    brightness(captured.jpeg)  # its markers may be whole and its picture not
                    return captured, size
                except NotJpeg as error:
                    problem = f"sends no JPEG pictures: a frame {error}"
        except SourceLost as error:
            raise InputError(where, f"gave no frame: the camera {error}", "try again") from None
        raise InputError(where, problem, "is it an MJPEG camera?")

    # -- the reading thread ----------------------------------------------------------------------------------

    def _read(self, source: Source, closing: threading.Event, ready: Future[tuple[int, int]]) -> None:
        try:
            captured, self._size = self._first(source, closing)
            self._picture = captured.jpeg
            if source.live:  # a file's first frame waits for start like the others
                self._take(captured)
            ready.set_result(self._size)
        except Exception as error:
            source.close()
            ready.set_exception(error)
            return
        try:
            if not source.live:
                self._pause(closing)
                self._take(captured)
            while True:
                if not source.live:
                    self._pause(closing)
                try:
                    captured = source.read()
                except SourceLost as error:
                    if not self._again(source, closing, str(error)):
                        break
                    continue
                if closing.is_set():
                    break
                self._take(captured)
        except (
            Exception
        ) as error:  # whoever takes the frames failed, or this code did: tell, do not go silent
            self._handover.lost(f"thread failed: {type(error).__name__}: {error}")
            raise
        finally:
            source.close()

    def _pause(self, closing: threading.Event) -> None:
        while not (self._started.wait(0.1) or closing.is_set()):
            pass

    def _take(self, captured: Captured) -> None:
        """Number, date and hand over a frame, or drop and count what is none."""
        now_ns = captured.arrived_ns
        self._sequence += captured.advance
        if captured.stray_bytes:
            self._handover.garbage(now_ns, f"had {captured.stray_bytes} stray bytes before it")
        try:
            light = self._look(captured.jpeg)
        except NotJpeg as error:
            self._handover.garbage(now_ns, str(error))
            return
        before = self._before
        time_ns = capture_time(captured.stamp_ns, now_ns)
        if before is not None:
            time_ns = max(time_ns, before.time_ns + 1)
        frame = Frame(time_ns, self._sequence, captured.jpeg, now_ns)
        self._picture, self._before, self._progress_ns = frame.jpeg, frame, now_ns
        self._rate.add(now_ns)
        self._handover.frame(frame, before is not None and before.jpeg == frame.jpeg, light)

    def _look(self, jpeg: bytes) -> float | None:
        """The brightness where it is time to look at it. Raises NotJpeg also for another size."""
        size = jpeg_size(jpeg)
        if size != self._size and self._size is not None:
            raise NotJpeg("is {}x{}, the view is {}x{}".format(*size, *self._size))
        self._since_look = (self._since_look + 1) % LOOK_EVERY
        return brightness(jpeg) if self._since_look == 0 else None

    def _again(self, source: Source, closing: threading.Event, reason: str) -> bool:
        """Connect again, with longer and longer pauses; False when that makes no sense or we are closing."""
        if closing.is_set():
            return False
        self._handover.lost(reason)
        if not source.reconnects:
            return False
        attempt = 0
        while not closing.wait(_BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)]):
            attempt += 1
            self._progress_ns = time.monotonic_ns()
            try:
                source.open()
                return True
            except (InputError, SourceLost):
                source.close()
        return False

    # -- the watchdog ----------------------------------------------------------------------------------------

    def _watch(self, source: Source, closing: threading.Event) -> None:
        while not closing.wait(_WATCH_PERIOD_S):
            now_ns = time.monotonic_ns()
            if source.live and now_ns - self._progress_ns > GIVE_UP_S * 1e9:
                self._progress_ns = now_ns
                source.abort()
            self._handover.tick(now_ns)


def source_of(source: str | int | Path, width: int | None, height: int | None, fps: float | None) -> Source:
    """The source that a text names: an index, a device, an http(s) URL or a video file.

    Raises
    ------
    InputError : for what is none of these, with the cameras there are.
    """
    text = str(source).strip()
    if text.isdecimal():
        return DeviceSource(f"/dev/video{int(text)}", width, height, fps)
    if text.startswith(("http://", "https://")):
        return UrlSource(text)
    if "://" in text:
        scheme = text.split("://")[0]
        raise InputError(
            f"{scheme}://...", "is not read here", "give the camera's MJPEG stream: http://HOST:PORT/PATH"
        )
    path = Path(text)
    if text.startswith("/dev/") or (path.exists() and stat.S_ISCHR(path.stat().st_mode)):
        return DeviceSource(text, width, height, fps)
    if not path.is_file():
        raise InputError(text, "is no device, no video file and no http:// address", cameras_there())
    return FileSource(path)
