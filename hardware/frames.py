"""Frames in and out of bytes: JPEG, mp4 packets, and the resize every room shares. RGB uint8 everywhere."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import av
import cv2
import numpy as np

from hardware.errors import InputError
from hardware.jpeg import MAX_PIXELS, NotJpeg, decode


def decode_jpeg(data: np.ndarray | bytes, where: object) -> np.ndarray:
    """RGB uint8 (H, W, 3) of one JPEG; where its data is damaged, what can be made of it."""
    try:
        return decode(data)
    except NotJpeg:
        raise InputError(
            where, "is not a JPEG image that can be decoded", "the file is damaged; check its sha256"
        ) from None


def open_video(source: str | io.BytesIO) -> Any:
    """Open a video with PyAV; tags in an unknown encoding are no reason to refuse it."""
    try:
        return av.open(source)
    except UnicodeDecodeError:  # only PyAV before 19 raises it, and only there the option exists
        if isinstance(source, io.BytesIO):
            source.seek(0)
        tolerant: dict[str, Any] = {"metadata_errors": "ignore"}
        return av.open(source, **tolerant)


def decode_video(container: bytes, where: object, skip: int = 0) -> Iterator[np.ndarray]:
    """Decode a video from its first packet to its last, in order, without seeking.

    Parameters
    ----------
    container : the bytes of one mp4 (or any container libav reads from memory).
    where : named in errors.
    skip : decoded frames to drop at the start (an episode cut out of a longer video starts at a key frame).

    Yields
    ------
    uint8 array (H, W, 3), RGB.
    """
    try:
        with open_video(io.BytesIO(container)) as file:
            if not file.streams.video:
                raise InputError(where, "holds no video stream")
            stream = file.streams.video[0]
            if stream.codec_context is None:
                raise InputError(where, "is in a codec that is not known here")
            if (stream.width or 0) * (stream.height or 0) > MAX_PIXELS:
                raise InputError(where, f"claims frames of {stream.width}x{stream.height} pixels")
            stream.thread_type = "AUTO"
            for number, frame in enumerate(file.decode(stream)):
                if number >= skip:
                    yield frame.to_ndarray(format="rgb24")
    except av.error.FFmpegError as error:
        raise InputError(where, f"cannot be decoded: {error}", "the video is damaged or truncated") from None


def resize(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize an RGB image (H, W, 3) to `size` (height, width).

    Area averaging when shrinking (it is its own antialias filter), bilinear when enlarging.
    """
    height, width = size
    if image.shape[:2] == (height, width):
        return image
    shrinks = height <= image.shape[0] and width <= image.shape[1]
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
