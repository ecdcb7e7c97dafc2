from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import lerobot_sets as sets
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware import InputError
from hardware.frames import decode_video
from hardware.importers.video import SharedVideo, VideoUnreadable, frame_size, stamps_to_ns, whole_file

CODECS = {
    "mpeg4": ("mpeg4", {"g": "12"}),
    "mpeg4 with B-frames": ("mpeg4", {"g": "12", "bf": "2"}),
    "h264": ("libx264", {"bf": "3", "g": "12"}),
    "h264 with open groups": ("libx264", {"bf": "2", "g": "10", "x264-params": "open-gop=1:log-level=none"}),
    "av1": ("libsvtav1", {"g": "2", "preset": "12"}),
}


@pytest.mark.parametrize("codec", CODECS)
def test_cuts_decode_to_the_frames_of_the_whole(tmp_path: Path, codec: str) -> None:
    parts = []
    for number, frames in enumerate([17, 23, 20]):
        parts.append(tmp_path / f"{number}.mp4")
        sets.encode(parts[-1], frames, number, *CODECS[codec])
    sets.concatenate(parts, tmp_path / "all.mp4")
    pictures = sets.decoded(tmp_path / "all.mp4")
    video = SharedVideo(tmp_path / "all.mp4")
    assert len(video) == len(pictures) == 60
    for first, count in [(0, 17), (17, 23), (40, 20), (5, 9), (3, 40), (39, 2), (18, 13), (59, 1)]:
        clip = video.cut(first, count)
        shown = list(decode_video(clip.container, "clip", clip.skip))[: len(clip)]
        assert len(clip) == count
        assert all(np.array_equal(a, b) for a, b in zip(shown, pictures[first : first + count], strict=True))
        np.testing.assert_array_equal(np.diff(clip.pts), np.diff(np.sort(video.pts)[first : first + count]))
        np.testing.assert_array_equal(
            clip.time_ns(), [round(Fraction(row * 10**9, sets.FPS)) for row in range(count)]
        )


def test_cuts_beyond_the_end_are_short(tmp_path: Path) -> None:
    sets.encode(tmp_path / "v.mp4", 10, 0)
    video = SharedVideo(tmp_path / "v.mp4")
    assert [len(video.cut(first, count)) for first, count in ((8, 5), (10, 3), (12, 1), (0, 0), (-1, 2))] == [
        2,
        0,
        0,
        0,
        0,
    ]


def test_whole_file_is_verbatim(tmp_path: Path) -> None:
    sets.encode(tmp_path / "v.mp4", 10, 0)
    clip = whole_file(tmp_path / "v.mp4")
    assert clip.container == (tmp_path / "v.mp4").read_bytes()
    assert (len(clip), clip.skip, clip.width, clip.height) == (10, 0, sets.WIDTH, sets.HEIGHT)
    assert frame_size(tmp_path / "v.mp4") == (sets.WIDTH, sets.HEIGHT)


@given(st.lists(st.integers(-(1 << 40), 1 << 40), max_size=20), st.integers(1, 1001), st.integers(1, 1 << 20))
def test_nanoseconds_are_exact(stamps: list[int], numerator: int, denominator: int) -> None:
    time_base = Fraction(numerator, denominator)
    if any(abs(stamp * time_base * 10**9) >= (1 << 63) - 1 for stamp in stamps):
        with pytest.raises(InputError, match="reach beyond 292 years"):
            stamps_to_ns(np.array(stamps, np.int64), time_base)
        return
    for stamp, nanoseconds in zip(stamps, stamps_to_ns(np.array(stamps, np.int64), time_base).tolist()):
        assert abs(Fraction(stamp) * time_base * 10**9 - nanoseconds) <= Fraction(1, 2)


def test_tags_in_no_known_encoding_are_no_reason_to_refuse_a_video(tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    sets.encode(path, 5, 0)
    content = path.read_bytes()
    assert b"VideoHandler" in content
    path.write_bytes(content.replace(b"VideoHandler", b"Video\xff\xfe\xc1\xd3ler"))
    assert len(whole_file(path)) == len(SharedVideo(path)) == 5
    assert len(list(decode_video(path.read_bytes(), "v.mp4"))) == 5


def test_a_sound_file_and_other_bytes_hold_no_video(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "sound.mp4"), "w") as file:
        stream = file.add_stream("aac", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 8000
        for packet in [*stream.encode(frame), *stream.encode()]:
            file.mux(packet)
    with pytest.raises(VideoUnreadable, match="holds no video"):
        whole_file(tmp_path / "sound.mp4")
    (tmp_path / "bytes.mp4").write_bytes(b"\0" * 4000)
    for read in (whole_file, SharedVideo, frame_size):
        with pytest.raises(VideoUnreadable, match=r"bytes\.mp4: is not a readable video"):
            read(tmp_path / "bytes.mp4")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        whole_file(tmp_path / "none.mp4")
