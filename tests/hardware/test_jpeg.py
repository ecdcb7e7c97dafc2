"""The cheap look at a JPEG's markers, against the decoder."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.jpeg import NotJpeg, brightness, encode_jpeg, jpeg_size, shrink_jpeg

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (37, 53, 3), dtype=np.uint8)
VARIANTS = {
    "baseline": [],
    "progressive": [cv2.IMWRITE_JPEG_PROGRESSIVE, 1],
    "optimised": [cv2.IMWRITE_JPEG_OPTIMIZE, 1],
    "restart markers": [cv2.IMWRITE_JPEG_RST_INTERVAL, 2],
}


def jpeg(settings: list[int] | None = None, image: np.ndarray = IMAGE) -> bytes:
    return cv2.imencode(".jpg", image, settings or [])[1].tobytes()


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_the_size_is_that_of_the_decoded_picture(settings: list[int]) -> None:
    assert jpeg_size(jpeg(settings)) == (53, 37)
    assert jpeg_size(jpeg(settings, IMAGE[..., 0])) == (53, 37)


def test_padding_after_the_end_and_fill_bytes_and_comments_before_the_size_are_allowed() -> None:
    whole = jpeg()
    assert jpeg_size(whole + bytes(4096)) == (53, 37)
    comment = b"\xff\xfe" + (6).to_bytes(2, "big") + b"text"
    assert jpeg_size(whole[:2] + b"\xff\xff\xff" + comment[1:] + whole[2:]) == (53, 37)


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_every_cut_is_noticed(settings: list[int]) -> None:
    whole = jpeg(settings)
    for end in range(len(whole) - 1):
        with pytest.raises(NotJpeg):
            jpeg_size(whole[:end])


def test_an_end_marker_in_front_of_the_scan_does_not_hide_a_cut() -> None:
    whole = jpeg()
    thumbnail = b"\xff\xe1" + (len(whole) + 2).to_bytes(2, "big") + whole  # a picture within the header
    nested = whole[:2] + thumbnail + whole[2:]
    assert jpeg_size(nested) == (53, 37)
    with pytest.raises(NotJpeg, match="cut off"):
        jpeg_size(nested[: len(nested) - 20])


@given(st.binary(max_size=300))
def test_no_bytes_crash_it(data: bytes) -> None:
    for start in (b"", b"\xff\xd8", b"\xff\xd8\xff\xff", b"\xff\xd8\xff\xc0\x00\x11\x08"):
        try:
            width, height = jpeg_size(start + data)
        except NotJpeg:
            continue
        assert width * height > 0


def test_bytes_that_would_be_walked_for_ever_are_refused() -> None:
    with pytest.raises(NotJpeg, match="segments"):
        jpeg_size(b"\xff\xd8" + b"\xff" * 20_000_000)


def test_sizes_that_would_fill_memory_are_refused() -> None:
    whole = bytearray(jpeg())
    at = whole.index(b"\xff\xc0") + 5
    whole[at : at + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(NotJpeg, match="65535x65535"):
        jpeg_size(bytes(whole))


def test_our_encoder_keeps_colours_at_full_size() -> None:
    """Single red and blue columns survive; with shared colour planes (4:2:0) they become purple."""
    stripes = np.zeros((32, 32, 3), np.uint8)
    stripes[:, ::2, 2] = stripes[:, 1::2, 0] = 255
    decoded = cv2.imdecode(np.frombuffer(encode_jpeg(stripes), np.uint8), cv2.IMREAD_COLOR)
    assert np.abs(decoded.astype(int) - stripes).max() < 40
    shared = cv2.imdecode(np.frombuffer(jpeg([], stripes), np.uint8), cv2.IMREAD_COLOR)
    assert np.abs(shared.astype(int) - stripes).max() > 100
    with pytest.raises(NotJpeg):
        encode_jpeg(np.zeros((0, 0, 3), np.uint8))


def test_brightness_is_the_mean_of_the_grey_picture() -> None:
    assert brightness(jpeg(image=np.zeros((64, 64, 3), np.uint8))) < 1
    assert abs(brightness(jpeg(image=np.full((64, 64, 3), 90, np.uint8))) - 90) < 2
    broken = bytearray(jpeg())
    broken[broken.index(b"\xff\xc0") + 4] = 7  # bits a sample: markers whole, no decoder takes it
    assert jpeg_size(bytes(broken)) == (53, 37)
    with pytest.raises(NotJpeg, match="decoded"):
        brightness(bytes(broken))


def test_shrinking_keeps_the_shape_and_never_enlarges() -> None:
    large = jpeg(image=cv2.resize(IMAGE, (640, 480)))
    assert jpeg_size(shrink_jpeg(large, 320)) == (320, 240)
    assert jpeg_size(shrink_jpeg(jpeg(), 320)) == (53, 37)
