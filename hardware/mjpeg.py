"""Motion JPEG over HTTP: one connection that brings one picture after the other.

Phone apps, ESP32-CAMs and network cameras serve `multipart/x-mixed-replace` each in their own dialect. Taken
here: parts with or without a Content-Length, boundaries declared with or without leading dashes, in quotes or
not at all, chunked transfer, basic authentication in the URL. Nothing is decoded, and all searching of bytes
happens in C.

What a server sends is bounded: a part by `MAX_PART_BYTES`, a header line, the lines of a header, the bytes
before the first boundary. Time is not bounded here, since a server may trickle a byte a second for ever:
`MjpegStream.abort`, from another thread, ends whatever the stream is waiting for.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import ipaddress
import re
import socket
import ssl
import time
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from hardware.errors import InputError
from hardware.jpeg import EOI, NotJpeg, jpeg_size

MAX_PART_BYTES = 32 << 20
MAX_LINE_BYTES = 8 << 10
MAX_HEADER_LINES = 64
MAX_PREAMBLE_BYTES = 1 << 20
CONNECT_TIMEOUT_S = 3.0
SILENCE_TIMEOUT_S = 10.0  # no byte at all for so long: the connection is dead
_CHUNK_BYTES = 64 << 10

_SECRET = re.compile(r"pass|pwd|token|key|secret|auth|user|login", re.IGNORECASE)


class StreamEnded(Exception):
    """The stream is over; the message completes "the camera ...". Connecting again may help."""


class Part(NamedTuple):
    """One part of the stream.

    data : its bytes; nobody has looked whether they are a JPEG.
    arrived_ns : CLOCK_MONOTONIC when its last byte was here.
    stamp_ns : its X-Timestamp (seconds, in the camera's own clock) in ns, or None.
    sequence : its X-Sequence, or None (cameras rarely send one; our emulator does).
    stray_bytes : bytes before it that belonged to no part: a wrong Content-Length shows itself here.
    """

    data: bytes
    arrived_ns: int
    stamp_ns: int | None
    sequence: int | None
    stray_bytes: int


class MjpegStream:
    """One connection to an MJPEG server.

    Parameters
    ----------
    url : http or https; user and password before the host become basic authentication.

    Attributes
    ----------
    shown : the URL without user, password and secrets of its query, for messages and provenance.
    same_clock : whether the server runs on this host, so that its X-Timestamp may be CLOCK_MONOTONIC.
    """

    def __init__(self, url: str) -> None:
        self.shown = without_secrets(url)
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InputError(self.shown, f"is no valid URL: {error}") from None
        if parts.scheme not in ("http", "https") or not host:
            raise InputError(self.shown, "is no http:// or https:// address", "give http://HOST:PORT/PATH")
        self._tls, self._host = parts.scheme == "https", host
        self._port = port or (443 if self._tls else 80)
        self._path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        self._user = None if parts.username is None else unquote(parts.username)
        self._password = unquote(parts.password or "")
        self.same_clock = False
        self._connection: http.client.HTTPConnection | None = None
        self._sock: socket.socket | None = None
        self._response: http.client.HTTPResponse | None = None
        self._aborted = False

    # -- connecting ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect and read up to the end of the response's head.

        Raises
        ------
        InputError : refused, unknown host, no answer, an HTTP error, not a multipart stream.
        """
        self.close()
        self._aborted = False
        kind = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
        self._connection = kind(self._host, self._port, timeout=CONNECT_TIMEOUT_S)
        try:
            self._connection.connect()
            sock: socket.socket = self._connection.sock
            self._sock = sock  # the connection forgets it once the response is there
            sock.settimeout(SILENCE_TIMEOUT_S)
            self.same_clock = ipaddress.ip_address(sock.getpeername()[0].split("%")[0]).is_loopback
            if self._aborted:
                raise ConnectionAbortedError("given up")
            headers = {"Accept": "multipart/x-mixed-replace, */*", "User-Agent": "jointprobe"}
            if self._user is not None:
                secret = base64.b64encode(f"{self._user}:{self._password}".encode()).decode()
                headers["Authorization"] = f"Basic {secret}"
            self._connection.request("GET", self._path, headers=headers)
            response = self._connection.getresponse()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise self._refusal(error) from None
        self._response = response
        try:
            self._begin(response)
        except InputError:
            self.close()
            raise

    def _begin(self, response: http.client.HTTPResponse) -> None:
        """Check the head of the response and take the boundary from it."""
        if response.status != 200:
            raise self._http_refusal(response)
        told = response.getheader("Content-Type") or "no content type"
        if not told.lower().lstrip().startswith("multipart/"):
            kind = told.split(";")[0].strip().lower()
            remedy = "give the address of its MJPEG stream (often /video, /mjpeg, /stream or :81/stream)"
            if kind.startswith("image/"):
                raise InputError(self.shown, f"serves single pictures ({kind}), not a stream", remedy)
            raise InputError(
                self.shown, f"is no MJPEG stream: its content type is {told[:80]}, not multipart", remedy
            )
        found = re.search(r'boundary\s*=\s*("[^"]*"|[^;\s]*)', told, re.IGNORECASE)
        name = found.group(1).strip('"') if found else ""
        self._boundary = name.encode("latin-1", "replace").lstrip(b"-")  # declared with its dashes by some
        self._delimiter = b""
        self._incoming = _Incoming(response)
        self._past_delimiter = False  # whether the one before the next part has been taken

    def _refusal(self, error: Exception) -> InputError:
        where, host = self.shown, f"{self._host}:{self._port}"
        if isinstance(error, ConnectionRefusedError):
            return InputError(
                where, f"refuses the connection: nothing listens at {host}", "start the camera's server"
            )
        if isinstance(error, socket.gaierror):
            return InputError(where, f"the host {self._host!r} is not known", "check the address")
        if isinstance(error, TimeoutError):
            return InputError(
                where, f"{host} does not answer", "check the address, and that both are in one network"
            )
        if isinstance(error, ssl.SSLError):
            return InputError(where, f"no secure connection: {error}", "use http:// within your own network")
        told = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return InputError(where, f"cannot be read over HTTP: {told[:200]}", "is it an HTTP server?")

    def _http_refusal(self, response: http.client.HTTPResponse) -> InputError:
        status = response.status
        if status == 401:
            asked = (response.getheader("WWW-Authenticate") or "").split(" ")[0].lower()
            if asked == "digest":
                return InputError(
                    self.shown, "asks for digest authentication (401)", "set the camera to basic or none"
                )
            if self._user is None:
                return InputError(
                    self.shown, "asks for a password (401)", "give it as http://USER:PASSWORD@HOST/..."
                )
            return InputError(self.shown, "refuses the user or the password (401)", "check both")
        if status in (301, 302, 303, 307, 308):
            target = without_secrets(response.getheader("Location") or "nowhere")
            return InputError(self.shown, f"sends on to {target[:200]} ({status})", "give that address")
        return InputError(
            self.shown, f"answers {status} {response.reason[:80]}", "check the path of the address"
        )

    # -- reading ---------------------------------------------------------------------------------------------

    def read(self) -> Part:
        """The next part; waits for it.

        Raises
        ------
        StreamEnded : the connection was closed, aborted or silent for 10 s, or the bounds were exceeded.
        """
        if self._response is None:
            raise StreamEnded("is not connected")
        try:
            return self._read()
        except StreamEnded:
            raise
        except TimeoutError:
            raise StreamEnded(f"sent nothing for {SILENCE_TIMEOUT_S:.0f} s") from None
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            # ValueError, AttributeError: what a socket that was shut down meanwhile leads to
            if self._aborted:
                raise StreamEnded("was given up") from None
            told = getattr(error, "strerror", None) or type(error).__name__
            raise StreamEnded(f"broke the connection: {told}") from None

    def _read(self) -> Part:
        stray = 0
        if not self._delimiter:
            self._first_delimiter()
        elif not self._past_delimiter:
            between = self._incoming.until(self._delimiter, MAX_PART_BYTES)
            stray = len(between.strip(b"\r\n-"))
        if self._incoming.line().strip() == b"--":
            raise StreamEnded("ended the stream")
        length, stamp_ns, sequence = self._part_header()
        if length is None:
            data, self._past_delimiter = self._incoming.picture(self._delimiter)
        else:
            data, self._past_delimiter = self._incoming.exactly(length), False
        return Part(data, time.monotonic_ns(), stamp_ns, sequence, stray)

    def _first_delimiter(self) -> None:
        """Find the first boundary and learn how it is really written, dashes included; stops behind it."""
        if self._boundary:
            before = self._incoming.until(self._boundary, MAX_PREAMBLE_BYTES)
            dashes = len(before) - len(before.rstrip(b"-"))
            self._delimiter = b"-" * dashes + self._boundary
        else:  # not declared: the first line with dashes is it
            read = 0
            while not self._delimiter:
                line = self._incoming.line(stop_at_end=True)
                if line.startswith(b"--") and line.strip(b"-"):
                    self._delimiter = line.rstrip()
                    return
                self._incoming.line()
                read += len(line) + 1
                if read > MAX_PREAMBLE_BYTES:
                    raise StreamEnded("sends no boundary")

    def _part_header(self) -> tuple[int | None, int | None, int | None]:
        """Content-Length, X-Timestamp in ns and X-Sequence of the part; None where absent."""
        length = stamp_ns = sequence = None
        for _ in range(MAX_HEADER_LINES):
            line = self._incoming.line()
            if not line:
                return length, stamp_ns, sequence
            name, _, value = line.partition(b":")
            name = name.strip().lower()
            if name == b"content-length":
                length = _whole(value)
                if length is not None and length > MAX_PART_BYTES:
                    raise StreamEnded(f"announces a part of {length} bytes")
            elif name == b"x-timestamp":
                stamp_ns = _nanoseconds(value)
            elif name == b"x-sequence":
                sequence = _whole(value)
        raise StreamEnded(f"sends more than {MAX_HEADER_LINES} lines of header")

    # -- ending ----------------------------------------------------------------------------------------------

    def abort(self) -> None:
        """End what `open` or `read` is waiting for in another thread; they raise at once."""
        self._aborted = True
        sock = self._sock or getattr(self._connection, "sock", None)
        if sock is not None:
            with contextlib.suppress(OSError):  # the plain socket's: a TLS one would first say goodbye
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; for the thread that reads."""
        for part in (self._response, self._connection, self._sock):
            if part is not None:
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    part.close()
        self._response = self._connection = self._sock = None


class _Incoming:
    """What has arrived and was not taken yet. The searching is done by `bytearray.find`, in C."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self._held = bytearray()
        self._at = 0

    def _more(self) -> None:
        if self._at:
            del self._held[: self._at]
            self._at = 0
        chunk = self._response.read1(_CHUNK_BYTES)
        if not chunk:
            raise StreamEnded("closed the connection")
        self._held += chunk

    def _take(self, end: int, skip: int = 0) -> bytes:
        """The bytes up to index `end`; the `skip` bytes after them are passed over."""
        data = bytes(memoryview(self._held)[self._at : end])
        self._at = end + skip
        return data

    def line(self, stop_at_end: bool = False) -> bytes:
        """The next line without its line end, which is passed over or, if asked, comes next."""
        while (end := self._held.find(b"\n", self._at)) < 0:
            if len(self._held) - self._at > MAX_LINE_BYTES:
                raise StreamEnded(f"sends a header line of more than {MAX_LINE_BYTES} bytes")
            self._more()
        return self._take(end, skip=0 if stop_at_end else 1).rstrip(b"\r")

    def exactly(self, count: int) -> bytes:
        """The next `count` bytes; those that are not here yet go straight from the socket into the result."""
        head = self._take(min(self._at + count, len(self._held)))
        if len(head) == count:
            return head
        rest = self._response.read(count - len(head))
        if len(head) + len(rest) < count:
            raise StreamEnded("closed the connection within a frame")
        return head + rest

    def until(self, mark: bytes, limit: int) -> bytes:
        """The bytes before `mark`, which is passed over; at most `limit` of them."""
        seen = 0
        while (end := self._held.find(mark, self._at + seen)) < 0:
            seen = max(0, len(self._held) - self._at - len(mark) + 1)
            if seen > limit:
                raise StreamEnded(f"sends {limit} bytes without its boundary")
            self._more()
        return self._take(end, skip=len(mark))

    def picture(self, delimiter: bytes) -> tuple[bytes, bool]:
        """A part without a length, and whether the delimiter after it was passed over.

        Most servers send the delimiter together with the *next* picture. Waiting for it would make each frame
        a period late, so a part ends as soon as what is here is a whole JPEG and nothing else.
        """
        seen = 0
        while (end := self._held.find(delimiter, self._at + seen)) < 0:
            if self._held[max(self._at, len(self._held) - 16) :].rstrip(b"\r\n").endswith(EOI):
                whole = bytes(memoryview(self._held)[self._at :]).rstrip(b"\r\n")
                with contextlib.suppress(NotJpeg):
                    jpeg_size(whole)
                    self._at = len(self._held)
                    return whole, False
            seen = max(0, len(self._held) - self._at - len(delimiter) + 1)
            if seen > MAX_PART_BYTES:
                raise StreamEnded(f"sends a part of more than {MAX_PART_BYTES} bytes")
            self._more()
        return self._take(end, skip=len(delimiter)).rstrip(b"-").rstrip(b"\r\n"), True


def _whole(value: bytes) -> int | None:
    value = value.strip()
    return int(value) if value.isdigit() and len(value) <= 18 else None


def _nanoseconds(value: bytes) -> int | None:
    """ "123.456789" in ns, exactly; None where it is no such number."""
    whole, _, fraction = value.strip().partition(b".")
    seconds = _whole(whole)
    part = _whole(fraction[:9].ljust(9, b"0"))
    return None if seconds is None or part is None else seconds * 1_000_000_000 + part


def without_secrets(url: str) -> str:
    """The URL without user and password, and with dots for what its query calls a password, key or token."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return re.sub(r"//[^/@]*@", "//", url)
    query = parts.query
    if _SECRET.search(query):
        pairs = parse_qsl(query, keep_blank_values=True)
        query = urlencode([(key, "..." if _SECRET.search(key) else value) for key, value in pairs])
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, parts.fragment))
