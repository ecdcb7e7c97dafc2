"""Network cameras as badly behaved as a test needs: one Python function a connection, over real sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

import cv2
import numpy as np

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n"


def picture(seed: int = 0, size: tuple[int, int] = (64, 48)) -> bytes:
    """A JPEG of `size` (width, height) that is unlike that of another seed."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return cv2.imencode(".jpg", cv2.resize(coarse, size))[1].tobytes()


class ScriptedServer:
    """Runs `script(connection)` for each client, after its request was read.

    The connection is closed when the script returns. `stopping` is set when the test is over; scripts that
    wait should wait for it.
    """

    def __init__(self, script: Callable[[socket.socket, threading.Event], None]) -> None:
        self._script = script
        self.requests: list[bytes] = []
        self.stopping = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/video"

    def __enter__(self) -> ScriptedServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: socket.socket) -> None:
        request = b""
        with connection, contextlib.suppress(OSError):
            while b"\r\n\r\n" not in request:
                received = connection.recv(4096)
                if not received:
                    return
                request += received
            self.requests.append(request)
            self._script(connection, self.stopping)


def sends(*blocks: bytes | str) -> ScriptedServer:
    """A server that sends these blocks and then waits until the test is over."""

    def script(connection: socket.socket, stopping: threading.Event) -> None:
        for block in blocks:
            connection.sendall(block.encode() if isinstance(block, str) else block)
        stopping.wait(60)

    return ScriptedServer(script)


def trickles(first: bytes | str, drop: bytes = b"x", every_s: float = 0.05) -> ScriptedServer:
    """A server that sends `first` and then one byte after the other for ever."""

    def script(connection: socket.socket, stopping: threading.Event) -> None:
        connection.sendall(first.encode() if isinstance(first, str) else first)
        while not stopping.wait(every_s):
            connection.sendall(drop)

    return ScriptedServer(script)


def part(data: bytes, boundary: str = "--frame", length: int | None = -1, more: str = "") -> bytes:
    """A part with its delimiter before it; length None leaves the header out, -1 is the true one."""
    said = "" if length is None else f"Content-Length: {len(data) if length < 0 else length}\r\n"
    return f"{boundary}\r\nContent-Type: image/jpeg\r\n{said}{more}\r\n".encode() + data + b"\r\n"
