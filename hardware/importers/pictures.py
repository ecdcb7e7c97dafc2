"""Pictures of an episode that come one by one and not as a video: JPEG or PNG bytes, or arrays.

What becomes of them in the recording:

- JPEG bytes are stored as they came (encoding `jpeg`) and never encoded again.
- PNG bytes are decoded and stored as `rgb8`, which loses nothing: pictures of 8 bits a colour are taken, grey
  ones and palettes as the RGB they stand for. PNGs of 16 bits or with transparency would lose something, so
  they are refused.
- Arrays are stored as `rgb8`, as they are.

A view has one encoding and one size, those of its first picture. Each picture is looked at before it is kept:
a JPEG by its markers and by decoding it, a PNG by its checksums. The bytes may come from anybody; sizes are
read from the header and bounded before anything is decoded. A JPEG whose data is damaged, though it can be
decoded, is kept and told of: grey or garbled parts of a frame are no reason to lose those after it.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

import numpy as np
import PIL.Image

from hardware.errors import InputError
from hardware.jpeg import MAX_PIXELS, NotJpeg, damage_in, jpeg_size, orientation

Encoding = Literal["jpeg", "rgb8"]
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_COLOURS = {0: "grey", 2: "RGB", 3: "a palette", 4: "grey with transparency", 6: "RGB with transparency"}
PNG_CRITICAL = (b"IHDR", b"PLTE", b"IDAT", b"IEND")  # the others say how to show it
PNG_LOSSLESS = (0, 2, 3)  # colour types that RGB of 8 bits holds


class NotPicture(ValueError):
    """Bytes that are no picture which can be kept; the message completes "a picture ..."."""


@dataclass(frozen=True)
class Header:
    """What the first bytes of a picture say: how it will be stored, and its size in pixels."""

    encoding: Encoding
    width: int
    height: int


@dataclass(frozen=True)
class Problem:
    """Why an episode's pictures end before its rows do: a fault's kind, and words for a person."""

    kind: str
    message: str


@dataclass(frozen=True)
class Pictures:
    """The pictures of one view in one episode, one a row.

    Attributes
    ----------
    header : encoding and size of each of them.
    count : how many can be used, from the first row on.
    each : called for a fresh stream of them: bytes for `jpeg`, uint8 (H, W, 3) for `rgb8`.
    problem : what is wrong with the one after the last, if anything.
    damaged : words for each row whose picture is damaged, though it can be decoded.
    """

    header: Header
    count: int
    each: Callable[[], Iterator[bytes | np.ndarray]]
    problem: Problem | None = None
    damaged: dict[int, str] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Pixels in a row."""
        return self.header.width

    @property
    def height(self) -> int:
        """Rows of pixels."""
        return self.header.height

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes | np.ndarray]:
        return islice(self.each(), self.count)


def encoded_pictures(read: Callable[[], Iterator[bytes | None]], expected: Header, file: str) -> Pictures:
    """Look at each picture that `read()` streams, up to the first that cannot be kept.

    Parameters
    ----------
    read : called for a fresh stream of JPEG or PNG bytes, one a row; None where a row has none.
    expected : encoding and size of the view.
    file : its name, for people.
    """
    count, problem = 0, None
    damaged: dict[int, str] = {}
    try:
        for data in read():
            where = f"row {count} of {file}"
            problem, damage = _look_at(data, expected, where)
            if problem is not None:
                break
            if damage:
                damaged[count] = f"{where} is a damaged JPEG ({damage})"
            count += 1
    except InputError as error:  # the file breaks off there
        problem = Problem("picture_unreadable", f"row {count}: {error.where} {error.problem}")

    def each() -> Iterator[bytes | np.ndarray]:
        for number, data in enumerate(read()):
            assert data is not None  # those that are counted were looked at
            where = f"{file}, row {number}"
            yield data if expected.encoding == "jpeg" else _decode_png(data, where)

    return Pictures(expected, count, each, problem, damaged)


def picture_header(data: bytes) -> Header:
    """Encoding and size of a JPEG or PNG, whose bytes are all there.

    Raises
    ------
    NotPicture : saying what is wrong.
    """
    if data.startswith(PNG_SIGNATURE):
        return Header("rgb8", *_png_size(data))
    if not data.startswith(b"\xff\xd8"):
        raise NotPicture(f"is neither JPEG nor PNG: it starts with {data[:4].hex() or 'nothing'}")
    try:
        return Header("jpeg", *jpeg_size(data))
    except NotJpeg as error:
        raise NotPicture(str(error)) from None


def _look_at(data: bytes | None, expected: Header, where: str) -> tuple[Problem | None, str]:
    """Why a picture cannot be kept, and what is damaged in one that can."""
    if data is None:
        return Problem("picture_missing", f"{where} has no picture"), ""
    try:
        found = picture_header(data)
        if found.encoding != expected.encoding:
            kind = "JPEG" if found.encoding == "jpeg" else "PNG"
            return Problem("picture_kind", f"{where} is {kind}, the view's first picture is not"), ""
        if found != expected:
            size = (
                f"{where} is {found.width}x{found.height}, "
                f"the view's first picture is {expected.width}x{expected.height}"
            )
            return Problem("picture_size", size), ""
        if expected.encoding == "jpeg":
            return None, _damage(data)
    except (NotPicture, NotJpeg) as error:
        return Problem("picture_unreadable", f"{where} {error}"), ""
    return None, ""


def _damage(jpeg: bytes) -> str:
    if (tag := orientation(jpeg)) != 1:
        raise NotPicture(f"has an orientation tag (EXIF: {tag}), which some readers obey: take it away")
    return damage_in(jpeg)


def _decode_png(data: bytes, where: str) -> np.ndarray:
    """RGB uint8 (H, W, 3), from the chunks that make up the picture.

    By Pillow, which gives OpenCV's pixels; OpenCV's libpng writes its warnings to the terminal.
    """
    parts = [whole for kind, _, whole in _png_chunks(data) if kind in PNG_CRITICAL]
    try:
        with PIL.Image.open(io.BytesIO(PNG_SIGNATURE + b"".join(parts)), formats=["PNG"]) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError):
        raise InputError(where, "cannot be decoded", "restore the file") from None


def _png_size(data: bytes) -> tuple[int, int]:
    """(width, height) of a PNG whose chunks are all there, each with the checksum it should have."""
    size = None
    for kind, content, _ in _png_chunks(data):
        if size is None:
            size = _ihdr(kind, content)
        elif kind == b"IHDR":
            raise NotPicture("is a damaged PNG: it has two headers")
        if kind == b"tRNS":
            raise NotPicture("is a PNG with transparency, which a recording does not hold")
        if kind == b"IEND":
            return size
    raise NotPicture(f"of {len(data)} bytes is cut off: the PNG does not end")


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """(type, content, the chunk as it lies there) of each whole chunk of a PNG, up to its end.

    A PNG is its signature and chunks: length (4 bytes), type (4), content, CRC-32 of type and content (4);
    IHDR is the first, IEND the last (PNG specification, section 5).
    """
    at = len(PNG_SIGNATURE)
    while at + 12 <= len(data):
        stop = at + 8 + int.from_bytes(data[at : at + 4], "big")
        if stop + 4 > len(data):
            return
        if zlib.crc32(data[at + 4 : stop]) != int.from_bytes(data[stop : stop + 4], "big"):
            raise NotPicture(f"is a damaged PNG: the checksum at byte {stop} is wrong")
        yield data[at + 4 : at + 8], data[at + 8 : stop], data[at : stop + 4]
        if data[at + 4 : at + 8] == b"IEND":
            return
        at = stop + 4


def _ihdr(kind: bytes, content: bytes) -> tuple[int, int]:
    if kind != b"IHDR" or len(content) != 13:
        raise NotPicture("is a damaged PNG: it does not begin with its header")
    width, height = int.from_bytes(content[:4], "big"), int.from_bytes(content[4:8], "big")
    depth, colour = content[8], content[9]
    if not 0 < width * height <= MAX_PIXELS:
        raise NotPicture(f"claims {width}x{height} pixels")
    if depth > 8 or colour not in PNG_LOSSLESS:
        shown = PNG_COLOURS.get(colour, f"colour type {colour}")
        raise NotPicture(f"is a PNG of {shown} with {depth} bits; 8 bits of grey, RGB or a palette are read")
    return width, height
