"""The MJPEG client over real sockets: dialects, hostile servers, refusals, and that nothing makes it hang."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware import mjpeg
from hardware.errors import InputError
from hardware.mjpeg import MjpegStream, Part, StreamEnded, without_secrets
from tests.hardware.mjpeg_server import HEAD, ScriptedServer, part, picture, sends, trickles

PICTURES = [picture(seed) for seed in range(4)]
HANG_GUARD_S = 60


def within(call: Callable[[], Any]) -> Any:
    """The result of a call that must not hang; what it raises is raised here."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append((call(), None))
        except Exception as error:
            results.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANG_GUARD_S)
    assert results, "still waiting"
    value, error = results[0]
    if error is not None:
        raise error
    return value


def read_all(server: ScriptedServer, count: int) -> list[Part]:
    with server:
        stream = MjpegStream(server.url)
        within(stream.open)
        parts = [within(stream.read) for _ in range(count)]
        stream.close()
        return parts


def head(content_type: str) -> str:
    return f"HTTP/1.1 200 OK\r\nServer: camera\r\nContent-Type: {content_type}\r\n\r\n"


DIALECTS = {
    "as in the standard": ("multipart/x-mixed-replace; boundary=abc", "--abc"),
    "declared with its dashes": ("multipart/x-mixed-replace;boundary=--abc", "--abc"),
    "in quotes, dashes and all": ('multipart/x-mixed-replace; boundary="--abc"', "--abc"),
    "four dashes": ("multipart/x-mixed-replace; boundary=--abc", "----abc"),
    "no dashes in the stream": ("multipart/x-mixed-replace; boundary=abcdefgh", "abcdefgh"),
    "dashes within": ("multipart/x-mixed-replace; boundary=a-b--c", "--a-b--c"),
    "not declared": ("multipart/x-mixed-replace", "--whatever"),
    "shouted, with more after it": ("Multipart/X-Mixed-Replace; BOUNDARY=abc; charset=x", "--abc"),
    "ESP32": (
        "multipart/x-mixed-replace;boundary=123456789000000000000987654321",
        "--123456789000000000000987654321",
    ),
}


@pytest.mark.parametrize("with_length", [True, False], ids=["length", "no length"])
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_every_dialect_gives_the_very_bytes(dialect: tuple[str, str], with_length: bool) -> None:
    content_type, boundary = dialect
    length = -1 if with_length else None
    parts = read_all(
        sends(head(content_type), *(part(one, boundary, length) for one in PICTURES)), len(PICTURES)
    )
    assert [one.data for one in parts] == PICTURES
    assert [one.stray_bytes for one in parts] == [0] * len(PICTURES)
    arrivals = [one.arrived_ns for one in parts]
    assert arrivals == sorted(arrivals)


@pytest.mark.parametrize("with_length", [True, False], ids=["length", "no length"])
@pytest.mark.parametrize("end", [b"\n", b"", b"\r\n\r\n"], ids=["LF", "nothing", "an empty line"])
def test_line_ends_before_the_boundary_are_no_part_of_a_picture(end: bytes, with_length: bool) -> None:
    length = -1 if with_length else None
    blocks = [part(one, length=length).removesuffix(b"\r\n") + end for one in PICTURES]
    parts = read_all(sends(HEAD, "\r\n", *blocks), len(PICTURES))
    assert [one.data for one in parts] == PICTURES


def test_lines_may_end_with_a_line_feed_alone() -> None:
    blocks = [part(one).replace(b"\r\n", b"\n", 4) for one in PICTURES]
    assert [one.data for one in read_all(sends(HEAD, *blocks), 4)] == PICTURES


def test_chunked_transfer() -> None:
    body = b"".join(part(one) for one in PICTURES)
    chunks = [body[at : at + 1000] for at in range(0, len(body), 1000)]
    coded = b"".join(f"{len(one):x}\r\n".encode() + one + b"\r\n" for one in chunks)
    head = HEAD.replace("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert [one.data for one in read_all(sends(head, coded), 4)] == PICTURES


class _Arrives:
    """What http.client's response gives, in pieces of the sizes asked for."""

    status = 200

    def __init__(self, body: bytes, cuts: list[int]) -> None:
        ends = sorted({min(cut, len(body)) for cut in cuts} | {len(body)})
        self._pieces = [body[begin:end] for begin, end in zip([0, *ends], ends)]

    def getheader(self, name: str) -> str:
        return "multipart/x-mixed-replace; boundary=frame"

    def read1(self, count: int) -> bytes:
        piece = next((one for one in self._pieces if one), b"")
        self._pieces = self._pieces[self._pieces.index(piece) :] if piece else []
        if not piece:
            return b""
        self._pieces[0] = piece[count:]
        return piece[:count]

    def read(self, count: int) -> bytes:
        got = b""
        while len(got) < count and (piece := self.read1(count - len(got))):
            got += piece
        return got

    def close(self) -> None: ...


@given(
    st.lists(st.integers(0, 8000), max_size=30),
    st.lists(st.sampled_from([-1, None]), min_size=4, max_size=4),
)
@settings(max_examples=200)
def test_however_the_bytes_arrive_the_pictures_are_the_same(
    cuts: list[int], lengths: list[int | None]
) -> None:
    body = b"".join(part(one, length=length) for one, length in zip(PICTURES, lengths)) + b"--frame--\r\n"
    response: Any = _Arrives(body, cuts)
    stream = MjpegStream("http://camera/")
    stream._response = response
    stream._begin(response)
    assert [stream.read().data for _ in PICTURES] == PICTURES
    with pytest.raises(StreamEnded, match="ended the stream"):
        stream.read()


def test_a_picture_without_length_is_there_before_the_next_one_begins() -> None:
    """The boundary comes with the next picture; waiting for it would make every frame a period late."""
    more = threading.Event()

    def script(connection: socket.socket, stopping: threading.Event) -> None:
        connection.sendall(HEAD.encode() + part(PICTURES[0], length=None))
        assert more.wait(HANG_GUARD_S)
        connection.sendall(part(PICTURES[1], length=None))
        stopping.wait(HANG_GUARD_S)

    with ScriptedServer(script) as server:
        stream = MjpegStream(server.url)
        stream.open()
        assert within(stream.read).data == PICTURES[0]
        more.set()
        assert within(stream.read).data == PICTURES[1]
        stream.close()


def test_a_wrong_length_is_noticed_and_the_next_picture_is_whole() -> None:
    short, long = len(PICTURES[0]) - 100, len(PICTURES[0]) + 300
    parts = read_all(sends(HEAD, part(PICTURES[0], length=short), part(PICTURES[1])), 2)
    assert parts[0].data == PICTURES[0][:short]
    assert parts[1].data == PICTURES[1] and 0 < parts[1].stray_bytes <= 100
    blocks = [part(PICTURES[0], length=long), *(part(one) for one in PICTURES[1:])]
    parts = read_all(sends(HEAD, *blocks), 3)
    assert parts[1].data == PICTURES[2] and parts[1].stray_bytes > 300, (
        "picture 1 was eaten, and that is told"
    )


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("123.456789", 123_456_789_000),
        ("98765.000001", 98_765_000_001_000),
        ("7", 7_000_000_000),
        ("1700000000.5", 1_700_000_000_500_000_000),
        ("-3.5", None),
        ("nan", None),
        ("1e9", None),
        ("9" * 40, None),
        ("12:30", None),
    ],
)
def test_timestamps_are_read_exactly_or_not_at_all(text: str, ns: int | None) -> None:
    (one,) = read_all(sends(HEAD, part(PICTURES[0], more=f"X-Timestamp: {text}\r\nX-Sequence: 41\r\n")), 1)
    assert one.stamp_ns == ns and one.sequence == 41


# -- servers that mean no good -------------------------------------------------------------------------------


def ends(server: ScriptedServer, match: str, reads: int = 1) -> None:
    with server:
        stream = MjpegStream(server.url)
        within(stream.open)
        with pytest.raises(StreamEnded, match=match):
            for _ in range(reads):
                within(stream.read)
        stream.close()


def test_what_a_server_sends_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mjpeg, "MAX_PART_BYTES", 200_000)
    monkeypatch.setattr(mjpeg, "MAX_PREAMBLE_BYTES", 200_000)
    noise = bytes(range(256)).replace(b"\n", b"") * 4000
    ends(sends(HEAD, part(b"", length=10**15)), "announces a part of 1000000000000000 bytes")
    ends(sends(HEAD, noise), "without its boundary")
    ends(sends(HEAD.replace("; boundary=frame", ""), noise), "line of more than")
    ends(sends(HEAD.replace("; boundary=frame", ""), b"x\n" * 200_000), "sends no boundary")
    ends(sends(HEAD, "--frame\r\n", noise), "line of more than")
    ends(sends(HEAD, "--frame\r\n", "X-Y: z\r\n" * 1000), "lines of header")
    ends(sends(HEAD, "--frame\r\n\r\n", noise), "part of more than")
    ends(sends(HEAD, part(PICTURES[0]), noise), "without its boundary", reads=2)


def test_a_connection_that_breaks_within_a_picture_is_told() -> None:
    def script(connection: socket.socket, stopping: threading.Event) -> None:
        connection.sendall(HEAD.encode() + part(PICTURES[0]) + part(PICTURES[1])[:600])

    ends(ScriptedServer(script), "closed the connection within a frame", reads=2)


@pytest.mark.parametrize(
    "first",
    [HEAD, HEAD + "--frame\r\n", HEAD + "--frame\r\n\r\n", HEAD + "--frame\r\nContent-Length: 9999\r\n\r\n"],
    ids=["before a boundary", "in a header", "in a part without length", "in a part"],
)
def test_abort_ends_a_read_from_a_server_that_trickles(first: str) -> None:
    with trickles(first) as server:
        stream = MjpegStream(server.url)
        within(stream.open)
        threading.Timer(0.3, stream.abort).start()
        with pytest.raises(StreamEnded, match=r"given up|closed the connection"):
            within(stream.read)
        stream.close()


@pytest.mark.parametrize("first", ["", "HTTP/1.1 200 OK\r\n"], ids=["nothing", "half a head"])
def test_abort_ends_an_open_that_waits_for_the_head(first: str) -> None:
    with trickles(first) as server:
        stream = MjpegStream(server.url)
        threading.Timer(0.3, stream.abort).start()
        with pytest.raises(InputError):
            within(stream.open)


# -- refusals ------------------------------------------------------------------------------------------------


def refusal(answer: str, url_of: Callable[[str], str] = str) -> str:
    with sends(answer) as server, pytest.raises(InputError) as caught:
        within(MjpegStream(url_of(server.url)).open)
    return str(caught.value)


def with_password(url: str) -> str:
    return url.replace("http://", "http://ann:s%40crt@")


def test_each_refusal_says_what_and_what_to_do() -> None:
    html = refusal("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<html>")
    assert "content type is text/html; charset=utf-8, not multipart" in html and "/stream" in html
    assert "no content type" in refusal("HTTP/1.1 200 OK\r\n\r\n")
    still = refusal("HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n\r\n")
    assert "serves single pictures (image/jpeg), not a stream" in still
    unauthorised = 'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: {} realm="x"\r\n\r\n'
    assert "http://USER:PASSWORD@HOST" in refusal(unauthorised.format("Basic"))
    assert "refuses the user or the password" in refusal(unauthorised.format("Basic"), with_password)
    assert "digest" in refusal(unauthorised.format("Digest"))
    assert "answers 404 Not Found" in refusal("HTTP/1.1 404 Not Found\r\n\r\n")
    moved = refusal("HTTP/1.1 302 Found\r\nLocation: http://u:p@other/cam?pwd=x\r\n\r\n")
    assert "sends on to http://other/cam?pwd=..." in moved
    assert "is it an HTTP server?" in refusal("SSH-2.0-OpenSSH_9.6\r\n")


def test_a_port_where_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(InputError, match=f"nothing listens at 127.0.0.1:{port}"):
        MjpegStream(f"http://127.0.0.1:{port}/").open()


@pytest.mark.parametrize(
    "url", ["http://", "ftp://camera/", "http://camera:port/", "http://[::1", "http:///video"]
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(InputError):
        MjpegStream(url)


def test_the_password_goes_to_the_camera_and_nowhere_else() -> None:
    with sends(HEAD, part(PICTURES[0])) as server:
        stream = MjpegStream(with_password(server.url) + "?user=ann&password=x&size=big")
        stream.open()
        within(stream.read)
        stream.close()
    sent = server.requests[0].decode()
    assert "GET /video?user=ann&password=x&size=big HTTP/1.1\r\n" in sent
    assert f"Authorization: Basic {base64.b64encode(b'ann:s@crt').decode()}\r\n" in sent
    assert stream.shown == f"http://127.0.0.1:{server.port}/video?user=...&password=...&size=big"
    assert "s%40crt" not in refusal("HTTP/1.1 404 No\r\n\r\n", with_password)
    assert without_secrets("http://u:p@[broken") == "http://[broken"
