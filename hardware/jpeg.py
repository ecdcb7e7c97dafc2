"""A JPEG as bytes: checked by its markers without decoding it, looked at, and made."""

from __future__ import annotations

import cv2
import numpy as np

from hardware.frames import MAX_PIXELS

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


def brightness(jpeg: bytes) -> float:
    """Mean of a picture decoded to grey at an eighth of its size, 0..255.

    Raises
    ------
    NotJpeg : when it cannot be decoded in spite of its markers.
    """
    return float(_decode(jpeg, cv2.IMREAD_REDUCED_GRAYSCALE_8).mean())


def shrink_jpeg(jpeg: bytes, width: int) -> bytes:
    """The picture at most `width` pixels wide, encoded anew.

    Raises
    ------
    NotJpeg : when it cannot be decoded.
    """
    image = _decode(jpeg, cv2.IMREAD_COLOR)
    if image.shape[1] > width:
        height = max(1, round(image.shape[0] * width / image.shape[1]))
        image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    return encode_jpeg(image)


def _decode(jpeg: bytes, flags: int) -> np.ndarray:
    try:
        image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), flags)
    except cv2.error:  # sizes that OpenCV refuses
        image = None
    if image is None:
        raise NotJpeg("cannot be decoded")
    return image
