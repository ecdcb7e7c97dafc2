"""A JPEG as bytes: checked by its markers, decoded, searched for damage, and made.

Decoding is libjpeg-turbo's, through simplejpeg: the pixels are those that OpenCV gives, and where libjpeg has
something to say, it is told to the caller and not written to the terminal.
"""

from __future__ import annotations

from typing import Literal

import cv2
import numpy as np
import simplejpeg

MAX_PIXELS = 1 << 27
JPEG_QUALITY = 95

_SOI, EOI = b"\xff\xd8", b"\xff\xd9"
_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0..15 without DHT, JPG, DAC
_BARE_MARKERS = frozenset(range(0xD0, 0xD8)) | {0x01}  # restart markers and TEM carry no length
_MAX_SEGMENTS = 256


class NotJpeg(ValueError):
    """Bytes that are no whole JPEG picture; the message completes "a frame ..."."""


def jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height of a JPEG in pixels, from its markers, without decoding it.

    Walks the segments up to the start of the scan and asks for an end marker after it: within the scan FF D9
    cannot occur, so a picture that was cut off is always noticed. Bytes after the end marker (padding of USB
    cameras) are allowed.

    Raises
    ------
    NotJpeg : saying what is wrong.
    """
    if data[:2] != _SOI:
        raise NotJpeg(f"is no JPEG: it starts with {data[:4].hex() or 'nothing'}, not with ffd8")
    at, size = 2, None
    for _ in range(_MAX_SEGMENTS):
        if at + 9 > len(data):
            raise NotJpeg("ends within its header")
        if data[at] != 0xFF:
            raise NotJpeg(f"is no JPEG: its header is broken at byte {at}")
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker in _BARE_MARKERS:
            at += 2
        elif marker == 0xDA:  # start of scan
            if size is None:
                raise NotJpeg("has no size in its header")
            if data.rfind(EOI, at) < 0:
                raise NotJpeg(f"of {len(data)} bytes is cut off: it has no end marker")
            return size
        else:
            if marker in _SIZE_MARKERS:
                size = data[at + 7] << 8 | data[at + 8], data[at + 5] << 8 | data[at + 6]
                if not 0 < size[0] * size[1] <= MAX_PIXELS:
                    raise NotJpeg(f"claims {size[0]}x{size[1]} pixels")
            at += 2 + max(2, data[at + 2] << 8 | data[at + 3])
    raise NotJpeg(f"is no JPEG: more than {_MAX_SEGMENTS} segments in its header")


def encode_jpeg(bgr: np.ndarray, quality: int = JPEG_QUALITY) -> bytes:
    """A JPEG of a BGR image (H, W, 3) or a grey one (H, W), uint8, with full-size colour planes (4:4:4).

    Raises
    ------
    NotJpeg : for an image that cannot be encoded.
    """
    settings = [cv2.IMWRITE_JPEG_QUALITY, quality]
    settings += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]
    try:
        whole, data = cv2.imencode(".jpg", bgr, settings)
    except cv2.error:
        whole = False
    if not whole:
        raise NotJpeg(f"cannot be encoded: {bgr.dtype} {bgr.shape}")
    return data.tobytes()


def decode(
    jpeg: bytes | np.ndarray,
    colours: Literal["RGB", "BGR", "GRAY"] = "RGB",
    *,
    small: bool = False,
    strict: bool = False,
) -> np.ndarray:
    """The pixels of a JPEG, uint8 (H, W, 3), of `GRAY` (H, W, 1), as they lie in the file: an orientation tag
    turns nothing.

    Parameters
    ----------
    small : at an eighth of its width and height, which takes a third of the time; all data is read all the
        same.
    strict : refuse what libjpeg warns of, see `damage_in`. Otherwise damaged parts are grey or garbled.

    Raises
    ------
    NotJpeg : when it cannot be decoded.
    """
    try:
        height, width, _, _ = simplejpeg.decode_jpeg_header(jpeg, strict=False)
        if height * width > MAX_PIXELS:
            raise NotJpeg(f"claims {width}x{height} pixels")
        least = dict(min_width=1, min_height=1, min_factor=8) if small else {}
        return np.asarray(simplejpeg.decode_jpeg(jpeg, colours, strict=strict, **least))
    except NotJpeg:
        raise
    except (ValueError, KeyError) as error:  # KeyError: a header without a colour space
        raise NotJpeg(f"cannot be decoded: {_in_words(error)}") from None


def damage_in(jpeg: bytes | np.ndarray) -> str:
    """What libjpeg says of damaged picture data, such as `premature end of data segment`; empty for none.

    Markers may be whole around data that is not; libjpeg then goes on with what it can make of it. It notices
    where codes are missing, left over or undefined: that is nearly all that was lost or overwritten, but of
    single bits that changed about a quarter, as most of them are read as other picture data.

    Raises
    ------
    NotJpeg : when it cannot be decoded at all.
    """
    try:
        decode(jpeg, "GRAY", small=True, strict=True)
    except NotJpeg as told:
        decode(jpeg, "GRAY", small=True)
        return str(told).partition(": ")[2]
    return ""


def _in_words(error: Exception) -> str:
    """libjpeg's message as the rest of a sentence."""
    return str(error).removeprefix("Corrupt JPEG data: ").removeprefix("tjDecompressHeader3(): ")


def orientation(jpeg: bytes) -> int:
    """The orientation tag of a JPEG: 2 to 8 for pixels to be turned or mirrored, else 1.

    Exif 2.32: an APP1 segment with a TIFF header, whose first directory holds entries of 12 bytes: tag, type,
    count, value; orientation is tag 0x0112.
    """
    begin = jpeg.find(b"Exif\0\0", 0, 1 << 16) + 6
    tiff = jpeg[begin : begin + (1 << 16)] if begin >= 6 else b""
    order: Literal["little", "big"] = "little" if tiff[:2] == b"II" else "big"
    at = int.from_bytes(tiff[4:8], order)
    for entry in range(int.from_bytes(tiff[at : at + 2], order)):
        field = tiff[at + 2 + 12 * entry :][:12]
        if int.from_bytes(field[:2], order) == 0x0112:
            value = int.from_bytes(field[8:10], order)
            return value if 1 < value <= 8 else 1
    return 1


def brightness(jpeg: bytes) -> float:
    """Mean of a picture decoded to grey at an eighth of its size, 0..255.

    Raises
    ------
    NotJpeg : when it cannot be decoded in spite of its markers.
    """
    return float(decode(jpeg, "GRAY", small=True).mean())


def shrink_jpeg(jpeg: bytes, width: int) -> bytes:
    """The picture at most `width` pixels wide, encoded anew.

    Raises
    ------
    NotJpeg : when it cannot be decoded.
    """
    image = decode(jpeg, "BGR")
    if image.shape[1] > width:
        height = max(1, round(image.shape[0] * width / image.shape[1]))
        image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    return encode_jpeg(image)
