"""The emulated cameras, read with the standard library's HTTP client: every picture and every fault."""

from __future__ import annotations

import http.client
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from email.message import Message
from typing import Any

import numpy as np
import pytest

from hardware.errors import InputError
from hardware.frames import decode_jpeg
from sim.camera_server import CameraServer, moving_pictures
from sim.json_process import JsonProcess

pytestmark = pytest.mark.realtime

TIMEOUT_S = 60
JPEGS = moving_pictures(20, (96, 64))
RED = np.zeros((64, 96, 3), np.uint8)
RED[..., 0] = 200
GREEN = np.zeros((64, 96, 3), np.uint8)
GREEN[..., 1] = 200


@pytest.fixture
def server() -> Iterator[CameraServer]:
    sources = {"red": lambda: RED, "green": lambda: GREEN, "film": JPEGS}
    with CameraServer(sources, {"red": 60, "green": 60, "film": 60}) as server:
        yield server


class Client:
    """Reads parts that have a Content-Length."""

    def __init__(self, url: str) -> None:
        self.response = urllib.request.urlopen(url, timeout=TIMEOUT_S)

    def part(self) -> tuple[Message, bytes]:
        assert self.response.readline() == b"--frame\r\n"
        headers = http.client.parse_headers(self.response)
        data = self.response.read(int(headers["Content-Length"]))
        assert self.response.readline() == b"\r\n"
        return headers, data

    def until(self, done: Callable[[bytes], bool]) -> bytes:
        """The first picture for which `done` holds."""
        for _ in range(2000):
            data = self.part()[1]
            if done(data):
                return data
        raise AssertionError("2000 pictures later still not")


def colour(jpeg: bytes) -> np.ndarray:
    return decode_jpeg(jpeg, "").mean((0, 1))


def is_jpeg(data: bytes) -> bool:
    return data[:2] == b"\xff\xd8" and data[-2:] == b"\xff\xd9"


def test_jpegs_are_served_as_they_are_in_a_loop_with_stamps_and_numbers(server: CameraServer) -> None:
    client = Client(server.url("film"))
    assert client.response.headers["Content-Type"] == "multipart/x-mixed-replace; boundary=frame"
    before = time.monotonic()
    parts = [client.part() for _ in range(30)]
    numbers = [int(headers["X-Sequence"]) for headers, _ in parts]
    stamps = [float(headers["X-Timestamp"]) for headers, _ in parts]
    assert [data for _, data in parts] == [JPEGS[number % 20] for number in numbers]
    assert numbers == sorted(set(numbers)) and stamps == sorted(set(stamps))
    assert before - 1 < stamps[0] and stamps[-1] < time.monotonic()
    assert {headers["Content-Type"] for headers, _ in parts} == {"image/jpeg"}
    assert server.taken("film") > numbers[-1]


def test_every_client_gets_the_same_pictures(server: CameraServer) -> None:
    clients = [Client(server.url("red")) for _ in range(3)]
    seen = [
        {headers["X-Sequence"]: data for headers, data in (client.part() for _ in range(20))}
        for client in clients
    ]
    common = set(seen[0]) & set(seen[1]) & set(seen[2])
    assert common
    assert all(seen[0][number] == seen[1][number] == seen[2][number] for number in common)


def test_a_still_scene_has_noise_and_is_the_same_scene() -> None:
    with CameraServer({"red": lambda: RED}, 60, noise=2.0) as server:
        client = Client(server.url("red"))
        pictures = [client.part()[1] for _ in range(20)]
    assert len(set(pictures)) == 20
    assert all(np.abs(colour(one) - (200, 0, 0)).max() < 3 for one in pictures), "RGB in, red out"
    with CameraServer({"red": lambda: RED}, 60, noise=0) as server:
        client = Client(server.url("red"))
        assert len({client.part()[1] for _ in range(10)}) == 1


def test_a_function_is_called_in_one_thread_for_all_views() -> None:
    """Rendering stands behind it, and an OpenGL context belongs to one thread."""
    threads = set()

    def image() -> np.ndarray:
        threads.add(threading.get_ident())
        return RED

    with CameraServer({"a": image, "b": image}, 60) as server:
        for client in [Client(server.url(view)) for view in ("a", "b", "a")]:
            client.part()
    assert len(threads) == 1 and threads != {threading.get_ident()}


def test_index_and_pages_that_are_not_there(server: CameraServer) -> None:
    root = server.url("red").removesuffix("red.mjpg")
    with urllib.request.urlopen(root, timeout=TIMEOUT_S) as page:
        assert b'href="/film.mjpg"' in page.read()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(root + "blue.mjpg", timeout=TIMEOUT_S)
    with pytest.raises(KeyError, match="blue"):
        server.url("blue")
    with pytest.raises(ValueError, match="no fault 'smoke' among stall"):
        server.fault("red", "smoke")


# -- faults --------------------------------------------------------------------------------------------------


def test_stall_and_slow(server: CameraServer) -> None:
    client = Client(server.url("red"))
    client.part()
    server.fault("red", "stall")
    time.sleep(0.2)  # one that was under way may still come
    taken = server.taken("red")
    time.sleep(0.3)
    assert server.taken("red") == taken
    server.clear("red", "stall")
    client.until(lambda data: server.taken("red") > taken)
    server.fault("red", "slow", 5)
    time.sleep(0.2)
    taken, begin = server.taken("red"), time.monotonic()
    time.sleep(1)
    assert server.taken("red") - taken <= 5 * (time.monotonic() - begin) + 2


def test_freeze_repeats_the_bytes_and_clears(server: CameraServer) -> None:
    client = Client(server.url("red"))
    server.fault("red", "freeze")
    last = [b""]
    frozen = client.until(lambda data: data == last[0] or last.__setitem__(0, data) is not None)
    assert client.part()[1] == frozen
    server.clear("red")
    client.until(lambda data: data != frozen)


@pytest.mark.parametrize("view", ["red", "film"])
def test_black_has_noise(server: CameraServer, view: str) -> None:
    client = Client(server.url(view))
    server.fault(view, "black")
    first = client.until(lambda data: colour(data).max() < 5)
    assert client.part()[1] != first
    server.clear(view)
    client.until(lambda data: colour(data).max() > 50)


def test_red_and_blue_exchanged(server: CameraServer) -> None:
    red, film = Client(server.url("red")), Client(server.url("film"))
    server.fault("red", "red_blue")
    server.fault("film", "red_blue")
    assert np.abs(colour(red.until(lambda data: colour(data)[0] < 50)) - (0, 0, 200)).max() < 5
    swapped = colour(film.until(lambda data: data not in JPEGS))
    assert min(np.abs(swapped[::-1] - colour(one)).max() for one in JPEGS) < 3


def test_swapped_views_and_back(server: CameraServer) -> None:
    red, green = Client(server.url("red")), Client(server.url("green"))
    server.fault("red", "swap", "green")
    red.until(lambda data: colour(data)[1] > 150)
    green.until(lambda data: colour(data)[0] > 150)
    server.clear("green")
    red.until(lambda data: colour(data)[0] > 150)
    green.until(lambda data: colour(data)[1] > 150)


def test_garbage_and_truncated_parts(server: CameraServer) -> None:
    client = Client(server.url("film"))
    server.fault("film", "garbage")
    client.until(lambda data: data[:2] != b"\xff\xd8")
    server.clear("film")
    server.fault("film", "truncated")
    half = client.until(lambda data: data[:2] == b"\xff\xd8" and not is_jpeg(data))
    assert any(one.startswith(half) and len(half) == len(one) // 2 for one in JPEGS)
    server.clear("film")
    client.until(is_jpeg)


def test_parts_without_length(server: CameraServer) -> None:
    server.fault("film", "no_length")
    time.sleep(0.1)
    with urllib.request.urlopen(server.url("film"), timeout=TIMEOUT_S) as response:
        begin = response.read(20_000)
    parts = begin.split(b"--frame\r\n")[1:-1]
    assert parts and all(b"Content-Length" not in one for one in parts)
    assert all(one.split(b"\r\n\r\n", 1)[1].removesuffix(b"\r\n") in JPEGS for one in parts)


def test_disconnect_closes_refuses_and_returns(server: CameraServer) -> None:
    client, other = Client(server.url("red")), Client(server.url("green"))
    server.fault("red", "disconnect")
    with pytest.raises((OSError, http.client.HTTPException, AssertionError, TypeError)):
        for _ in range(1000):
            client.part()
    with pytest.raises((OSError, http.client.HTTPException)):
        urllib.request.urlopen(server.url("red"), timeout=TIMEOUT_S)
    other.part()  # the other view goes on
    server.clear("red")
    Client(server.url("red")).part()
    server.fault("red", "disconnect", 0.2)
    time.sleep(0.3)
    Client(server.url("red")).part()


def test_a_server_that_stops_refuses_and_keeps_its_port(server: CameraServer) -> None:
    url = server.url("red")
    Client(url).part()
    server.stop()
    with pytest.raises(OSError):
        urllib.request.urlopen(url, timeout=TIMEOUT_S)
    server.start()
    assert server.url("red") == url
    Client(url).part()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_source_that_fails_ends_the_streams() -> None:
    def image() -> np.ndarray:
        raise RuntimeError("no OpenGL")

    with CameraServer({"a": image}, 60) as server:
        client = urllib.request.urlopen(server.url("a"), timeout=TIMEOUT_S)
        assert b"image/jpeg" not in client.read()


def test_a_client_that_reads_nothing_holds_nobody(server: CameraServer) -> None:
    idle = Client(server.url("film"))
    other = Client(server.url("film"))
    for _ in range(50):
        other.part()
    server.stop()
    idle.response.close()


def test_a_process_of_its_own_takes_faults() -> None:
    arguments = ["--views", "front,wrist", "--size", "96x64", "--fps", "60"]
    with JsonProcess("sim.camera_server", arguments, "the camera server", 60) as process:
        views: dict[str, Any] = process.hello["views"]
        assert list(views) == ["front", "wrist"]
        client = Client(views["wrist"])
        assert is_jpeg(client.part()[1])
        process.ask({"view": "wrist", "fault": "garbage"}, 30)
        client.until(lambda data: not is_jpeg(data))
        process.ask({"view": "wrist", "clear": None}, 30)
        client.until(is_jpeg)
        assert process.ask({"taken": "front"}, 30)["taken"] > 0
        for request in ({"view": "nose", "fault": "stall"}, {"view": "wrist", "fault": "smoke"}, {}):
            with pytest.raises(InputError):
                process.ask(request, 30)
