"""The cheap look at a JPEG's markers, against the decoder."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import PIL.Image
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.jpeg import (
    NotJpeg,
    brightness,
    damage_in,
    decode,
    encode_jpeg,
    jpeg_size,
    orientation,
    shrink_jpeg,
)

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


# -- decoding, and what is damaged -------------------------------------------------------------------------


def scan_of(whole: bytes) -> int:
    """Where the picture data begins."""
    start = whole.index(b"\xff\xda")
    return start + 2 + int.from_bytes(whole[start + 2 : start + 4], "big")


def without_huffman_tables(whole: bytes) -> bytes:
    """As many cameras send MJPEG: the tables are those of the standard, and left out."""
    kept, at = bytearray(whole[:2]), 2
    while whole[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(whole[at + 2 : at + 4], "big")
        if whole[at + 1] != 0xC4:
            kept += whole[at:end]
        at = end
    return bytes(kept) + whole[at:]


def intact() -> dict[str, bytes]:
    sound = {name: jpeg(settings) for name, settings in VARIANTS.items()}
    return sound | {
        "grey": jpeg(image=IMAGE[..., 0]),
        "our own": encode_jpeg(IMAGE),
        "without Huffman tables": without_huffman_tables(jpeg()),
        "zeros behind its end": jpeg() + bytes(4096),
        "fill bytes before its end": jpeg()[:-2] + b"\xff\xff\xff" + jpeg()[-2:],
    }


@pytest.mark.parametrize("name", intact())
def test_sound_pictures_are_not_damaged_and_decode_to_opencvs_pixels(name: str) -> None:
    data = intact()[name]
    assert damage_in(data) == ""
    expected = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    np.testing.assert_array_equal(decode(data, "BGR"), expected)
    np.testing.assert_array_equal(decode(np.frombuffer(data, np.uint8)), expected[..., ::-1])
    assert decode(data, "GRAY", small=True).shape == (5, 7, 1)


def test_no_picture_of_a_real_camera_is_called_damaged(shared_data: Path) -> None:
    found = 0
    for path in sorted((shared_data / "so101_bimanual/data/chunk-001").glob("*.parquet")):
        table = pq.read_table(path)
        for name in (one for one in table.column_names if one.endswith("_image")):
            pictures = table.column(name).to_pylist()
            assert {damage_in(data) for data in pictures} == {""}
            found += len(pictures)
    assert found == 326


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_data_that_ends_early_is_damage_though_the_markers_are_whole(
    settings: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    whole = jpeg(settings)
    cut = whole[: scan_of(whole) + (len(whole) - scan_of(whole)) // 3] + b"\xff\xd9"
    assert jpeg_size(cut) == (53, 37)
    assert damage_in(cut) in ("premature end of data segment", "Premature end of JPEG file")
    assert decode(cut).shape == (37, 53, 3)  # what can be made of it
    with pytest.raises(NotJpeg, match="remature end"):
        decode(cut, strict=True)
    assert capfd.readouterr() == ("", "")


def test_damage_is_what_opencvs_libjpeg_complains_of() -> None:
    """An independent way: OpenCV's libjpeg writes to stderr, read from a process of its own."""
    rng, whole = np.random.default_rng(1), jpeg()
    pictures = []
    for number in range(60):
        data = bytearray(whole)
        at, length = int(rng.integers(scan_of(whole), len(whole) - 40)), (1, 16, 32)[number % 3]
        data[at : at + length] = rng.integers(0, 255, length, dtype=np.uint8).tobytes()
        pictures.append(bytes(data))
    code = (
        "import sys, os, cv2, numpy as np\n"
        "lengths, data = eval(sys.stdin.buffer.readline()), sys.stdin.buffer.read()\n"
        "for n in lengths:\n"
        "    cv2.imdecode(np.frombuffer(data[:n], np.uint8), cv2.IMREAD_COLOR); data = data[n:]\n"
        "    os.write(2, b'|')\n"
    )
    given = repr([len(data) for data in pictures]).encode() + b"\n" + b"".join(pictures)
    told = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, check=True).stderr
    complaints = [one.decode().strip() for one in told.split(b"|")[:-1]]
    assert len(complaints) == len(pictures)

    def damage(data: bytes) -> str:
        try:
            return damage_in(data)
        except NotJpeg as error:
            return str(error).removeprefix("cannot be decoded: ")

    found = [damage(data) for data in pictures]
    assert [bool(one) for one in found] == [bool(one) for one in complaints]
    assert 20 < sum(map(bool, found)) < 60
    for mine, theirs in zip(found, complaints):
        assert mine in theirs


def test_an_undecodable_picture_is_no_damaged_one() -> None:
    for data in (b"", b"hello" * 9, jpeg()[:100]):
        with pytest.raises(NotJpeg, match="cannot be decoded"):
            damage_in(data)
    whole = bytearray(jpeg())
    at = whole.index(b"\xff\xc0") + 5
    whole[at : at + 4] = b"\xf0\x00\xf0\x00"
    with pytest.raises(NotJpeg, match="claims 61440x61440 pixels"):
        decode(bytes(whole))


@pytest.mark.parametrize("tag", [None, 1, 3, 6, 8, 9])
@pytest.mark.parametrize("order", [b"II", b"MM"])
def test_the_orientation_tag(tag: int | None, order: bytes) -> None:
    exif = PIL.Image.Exif()
    exif.endian = "<" if order == b"II" else ">"
    exif[0x010E] = "a description that comes first"
    if tag is not None:
        exif[0x0112] = tag
    file = io.BytesIO()
    PIL.Image.fromarray(IMAGE).save(file, "JPEG", exif=exif)
    assert order + b"*" in file.getvalue()[:40] or order + b"\0*" in file.getvalue()[:40]
    assert orientation(file.getvalue()) == (tag if tag in range(2, 9) else 1)
    assert decode(file.getvalue()).shape == IMAGE.shape  # as it lies in the file


@given(st.binary(max_size=60))
def test_no_exif_crashes_the_search_for_a_tag(data: bytes) -> None:
    assert 1 <= orientation(b"\xff\xd8\xff\xe1\0\x40Exif\0\0" + data) <= 8
