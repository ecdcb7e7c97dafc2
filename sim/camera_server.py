"""Cameras that misbehave on request: MJPEG over HTTP on loopback.

    with CameraServer({"front": arm_image, "wrist": jpegs}, fps=30) as server:
        server.url("front")                       # http://127.0.0.1:PORT/front.mjpg
        server.fault("front", "freeze")
        server.clear("front")

Each part bears `Content-Length`, `X-Timestamp` (seconds of CLOCK_MONOTONIC when the picture was taken; a
reader on this host has the same clock) and `X-Sequence`. A client that is too slow misses pictures, as with
real cameras.

One thread takes all pictures, so that a renderer with one OpenGL context can be behind them; each client has
a thread of its own. `python -m sim.camera_server --views front,wrist --size 640x480 --fps 30` serves moving
test pictures from a process of its own and takes faults as JSON lines; see `main`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import cv2
import numpy as np

from hardware.frames import decode_jpeg

Pictures = Callable[[], np.ndarray] | Sequence[bytes]
"""Of a view: a function that gives RGB uint8 (H, W, 3), or JPEGs that are played in a loop."""

FAULTS: dict[str, str] = {
    "stall": "no more pictures; the connection stays",
    "freeze": "the last picture again and again",
    "black": "black pictures, with the sensor's noise",
    "slow": "value: pictures a second instead of the view's own",
    "disconnect": "connections are closed, new ones refused; value: for how many seconds, else until cleared",
    "swap": "value: the other view; each shows what the other sees",
    "red_blue": "red and blue are exchanged",
    "garbage": "random bytes instead of pictures",
    "truncated": "only the first half of each picture's bytes",
    "no_length": "parts without Content-Length",
}
_BOUNDARY = b"--frame\r\n"
_NOISE_MARGIN = 32
_SEND_TIMEOUT_S = 5.0


class _Packet(NamedTuple):
    sequence: int
    stamp_ns: int
    jpeg: bytes
    with_length: bool


class _Camera:
    """One view: its pictures, its faults and the newest packet, which clients wait for."""

    def __init__(self, pictures: Pictures, fps: float) -> None:
        self.pictures, self.fps = pictures, fps
        self.faults: dict[str, Any] = {}
        self.refused_until = 0.0
        self.packet: _Packet | None = None
        self.news = threading.Condition()
        self.clients: set[socket.socket] = set()
        self.taken = self.played = 0
        self.due = time.monotonic()

    @property
    def refuses(self) -> bool:
        return "disconnect" in self.faults and time.monotonic() < self.refused_until

    def hang_up(self) -> None:
        """End the connection of every client."""
        for client in list(self.clients):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        with self.news:
            self.news.notify_all()


class CameraServer:
    """Serves views at `/NAME.mjpg` from a thread; a context manager.

    Parameters
    ----------
    sources : the pictures of each view. A function is called in the server's own thread, at the view's rate.
    fps : pictures a second, of all views or by view.
    noise : standard deviation, in grey levels, of what is added to the pictures of functions: two pictures of
        a still scene then differ, as a sensor's do. JPEGs are served as they are; to be told from a frozen
        camera there should be more than one.
    quality : of the JPEGs made here.
    seed : of the noise and the garbage.
    port : 0 takes a free one; a server that is started again keeps it.
    """

    def __init__(
        self,
        sources: Mapping[str, Pictures],
        fps: float | Mapping[str, float] = 30.0,
        *,
        noise: float = 2.0,
        quality: int = 90,
        seed: int = 0,
        port: int = 0,
    ) -> None:
        rates = dict(fps) if isinstance(fps, Mapping) else dict.fromkeys(sources, fps)
        self._cameras = {name: _Camera(pictures, rates[name]) for name, pictures in sources.items()}
        self._noise_std, self._quality, self._port = noise, quality, port
        self._rng = np.random.default_rng(seed)
        self._noise: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}
        self._stopping = threading.Event()
        self._server: _Server | None = None
        self._threads: list[threading.Thread] = []

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> CameraServer:
        """Begin to serve; the port is known afterwards."""
        self._stopping = threading.Event()
        self._server = _Server(("127.0.0.1", self._port), self)
        self._port = self._server.server_address[1]
        serve = partial(self._server.serve_forever, poll_interval=0.05)
        for target in (serve, self._take_pictures):
            thread = threading.Thread(target=target, name="camera server", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def stop(self) -> None:
        """End all connections and close the port; a second call does nothing."""
        if self._server is None:
            return
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._server = None
        for camera in self._cameras.values():
            camera.hang_up()
        for thread in self._threads:
            thread.join(10)
        self._threads = []

    def __enter__(self) -> CameraServer:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    # -- what it serves --------------------------------------------------------------------------------------

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the views."""
        return tuple(self._cameras)

    def url(self, view: str) -> str:
        """Where a view is served."""
        if view not in self._cameras:
            raise KeyError(f"no view {view!r} among {', '.join(self._cameras)}")
        return f"http://127.0.0.1:{self._port}/{view}.mjpg"

    def taken(self, view: str) -> int:
        """Pictures taken of a view so far; the next one's X-Sequence."""
        return self._cameras[view].taken

    def fault(self, view: str, kind: str, value: Any = None) -> None:
        """Begin a fault; the kinds, and what `value` means, are in `FAULTS`."""
        if kind not in FAULTS:
            raise ValueError(f"no fault {kind!r} among {', '.join(FAULTS)}")
        camera = self._cameras[view]
        if kind == "swap":
            self._cameras[value].faults["swap"] = view
        if kind == "disconnect":
            camera.refused_until = time.monotonic() + (1e9 if value is None else float(value))
        camera.faults[kind] = float(value) if kind == "slow" else value
        if kind == "disconnect":
            camera.hang_up()

    def clear(self, view: str, kind: str | None = None) -> None:
        """End one fault of a view, or all of them."""
        camera = self._cameras[view]
        for one in [kind] if kind else list(camera.faults):
            value = camera.faults.pop(one, None)
            if one == "swap" and value is not None:
                self._cameras[value].faults.pop("swap", None)

    # -- taking pictures -------------------------------------------------------------------------------------

    def _take_pictures(self) -> None:
        """Each view at its rate; one that is late skips what it missed, as a camera does."""
        try:
            while not self._stopping.is_set():
                camera = min(self._cameras.values(), key=lambda one: one.due)
                if self._stopping.wait(max(0.0, camera.due - time.monotonic())):
                    return
                now = time.monotonic()
                period = 1.0 / (camera.faults.get("slow") or camera.fps)
                camera.due = camera.due + period if camera.due + period > now else now
                stamp_ns = time.monotonic_ns()
                jpeg = self._picture(camera)
                if jpeg is not None:
                    with_length = "no_length" not in camera.faults
                    with camera.news:
                        camera.packet = _Packet(camera.taken, stamp_ns, jpeg, with_length)
                        camera.taken += 1
                        camera.news.notify_all()
        finally:  # also when a function raised: no client may wait for ever
            self._stopping.set()
            for camera in self._cameras.values():
                camera.hang_up()

    def _picture(self, camera: _Camera) -> bytes | None:
        """What the view sends now, its faults applied; None for nothing."""
        faults = dict(camera.faults)
        if "stall" in faults:
            return None
        if "freeze" in faults and camera.packet is not None:
            return camera.packet.jpeg
        seen = self._cameras[faults["swap"]] if "swap" in faults else camera
        jpeg = self._seen(seen, black="black" in faults, red_blue="red_blue" in faults)
        if "garbage" in faults:
            return self._rng.bytes(len(jpeg))
        return jpeg[: len(jpeg) // 2] if "truncated" in faults else jpeg

    def _seen(self, camera: _Camera, black: bool, red_blue: bool) -> bytes:
        if callable(camera.pictures):
            image = camera.pictures()
        else:
            jpeg = camera.pictures[camera.played % len(camera.pictures)]
            camera.played += 1
            if not (black or red_blue):
                return jpeg
            image = decode_jpeg(jpeg, "the emulated camera")
        if black:
            image = np.zeros_like(image)
        if red_blue:
            image = image[..., ::-1]
        bgr = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2BGR)
        if self._noise_std > 0 and (black or callable(camera.pictures)):
            bgr = self._noisy(bgr)
        whole, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, self._quality])
        assert whole
        return data.tobytes()

    def _noisy(self, image: np.ndarray) -> np.ndarray:
        """The image plus noise cut at random from one larger field of it: drawing it anew costs ten times
        as much.
        """
        height, width = image.shape[:2]
        if image.shape not in self._noise:
            shape = (height + _NOISE_MARGIN, width + _NOISE_MARGIN, 3)
            field = np.rint(self._rng.normal(0, self._noise_std, shape)).clip(-127, 127).astype(np.int16)
            brighter, darker = field.clip(0, None), (-field).clip(0, None)
            self._noise[image.shape] = brighter.astype(np.uint8), darker.astype(np.uint8)
        y, x = self._rng.integers(0, _NOISE_MARGIN, 2)
        cut = np.s_[y : y + height, x : x + width]
        brighter, darker = self._noise[image.shape]
        return cv2.subtract(cv2.add(image, brighter[cut]), darker[cut])

    # -- serving ---------------------------------------------------------------------------------------------

    def _packets(self, camera: _Camera) -> Iterator[_Packet]:
        """The newest packet each time there is one, until the view hangs up."""
        last = camera.packet.sequence if camera.packet else -1
        while not (self._stopping.is_set() or camera.refuses):
            with camera.news:
                packet = camera.packet
                if packet is None or packet.sequence <= last:
                    camera.news.wait(0.5)
                    continue
            last = packet.sequence
            yield packet

    def _serve(self, handler: _Handler) -> None:
        name = handler.path.lstrip("/").removesuffix(".mjpg")
        camera = self._cameras.get(name)
        if camera is None:
            index = "".join(f'<p><a href="/{one}.mjpg">{one}</a>' for one in self._cameras)
            handler.reply("text/html; charset=utf-8", index.encode() if not name else None)
            return
        if camera.refuses:
            return  # without a word
        camera.clients.add(handler.connection)
        try:
            handler.reply("multipart/x-mixed-replace; boundary=frame")
            handler.wfile.write(_BOUNDARY)
            for packet in self._packets(camera):
                length = f"Content-Length: {len(packet.jpeg)}\r\n" if packet.with_length else ""
                seconds, ns = divmod(packet.stamp_ns, 1_000_000_000)
                head = (
                    f"Content-Type: image/jpeg\r\n{length}X-Timestamp: {seconds}.{ns:09d}\r\n"
                    f"X-Sequence: {packet.sequence}\r\n\r\n"
                )
                handler.wfile.write(b"".join((head.encode(), packet.jpeg, b"\r\n", _BOUNDARY)))
        except OSError:
            pass  # the client is gone, or was hung up on
        finally:
            camera.clients.discard(handler.connection)


class _Server(ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False

    def __init__(self, address: tuple[str, int], cameras: CameraServer) -> None:
        self.cameras = cameras
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's would ask the name service who 127.0.0.1 is
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SEND_TIMEOUT_S  # a client that reads nothing is let go
    disable_nagle_algorithm = True  # a picture's last packet must not wait for an acknowledgement

    def do_GET(self) -> None:
        self.server.cameras._serve(self)

    def reply(self, content_type: str, body: bytes | None = b"") -> None:
        """The head, and the body where it is not a stream; None is a page that is not there."""
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Type", content_type)
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def moving_pictures(count: int, size: tuple[int, int], seed: int = 0, quality: int = 90) -> list[bytes]:
    """JPEGs of soft blobs that move around once in `count` pictures, with noise; about 60 kB each at 640x480.

    Parameters
    ----------
    count : of pictures.
    size : width and height in pixels.
    """
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    jpegs = []
    for step in range(count):
        shifted = np.roll(coarse, round(16 * step / count), axis=1)
        image = cv2.resize(shifted, size, interpolation=cv2.INTER_CUBIC)
        image = cv2.add(image, np.asarray(rng.integers(0, 12, image.shape), np.uint8))
        jpegs.append(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes())
    return jpegs


def main() -> None:
    """Serve moving pictures until standard input ends.

    The first line written is `{"views": {NAME: URL}}`. Each line read is `{"view": NAME, "fault": KIND,
    "value": ...}` or `{"view": NAME, "clear": KIND or null}`, or `{"taken": NAME}`; each is answered by an
    object, with `error` where it was not understood.
    """
    parser = argparse.ArgumentParser(prog="sim.camera_server", description="serves moving test pictures")
    parser.add_argument("--views", default="front,wrist")
    parser.add_argument("--size", default="640x480")
    parser.add_argument("--fps", type=float, default=30.0)
    arguments = parser.parse_args()
    width, height = (int(part) for part in arguments.size.split("x"))
    names = arguments.views.split(",")
    sources = {name: moving_pictures(30, (width, height), seed) for seed, name in enumerate(names)}
    with CameraServer(sources, arguments.fps) as server:
        print(json.dumps({"views": {name: server.url(name) for name in names}}), flush=True)
        for line in sys.stdin:
            print(json.dumps(_answer(server, line)), flush=True)


def _answer(server: CameraServer, line: str) -> dict[str, Any]:
    try:
        asked = json.loads(line)
        if "taken" in asked:
            return {"taken": server.taken(asked["taken"])}
        if "fault" in asked:
            server.fault(asked["view"], asked["fault"], asked.get("value"))
        else:
            server.clear(asked["view"], asked["clear"])
        return {}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
