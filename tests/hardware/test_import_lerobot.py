"""Sets that are whole: what comes out is what went in, bit by bit."""

from __future__ import annotations

import io
import json
from fractions import Fraction
from pathlib import Path

import av
import h5py
import lerobot_sets as sets
import numpy as np
import pyarrow.parquet as pq
import pytest

from hardware import InputError, Recording
from hardware.importers import import_recording


def frames_of(recording: Recording, episode: int, view: str) -> list[np.ndarray]:
    return list(recording.episode(episode).frames(view))


def same_pictures(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other))


def test_v21_whole(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [12, 9], views=("front", "wrist"))
    report = import_recording(source, tmp_path / "rec", unit="degrees")
    assert (report.episodes, report.rows, report.frames) == ([0, 1], 21, {"front": 21, "wrist": 21})
    assert (report.missing, report.faults) == ([], [])
    recording = Recording.open(tmp_path / "rec")
    assert recording.info.joint_names == [name.removesuffix(".pos") for name in sets.NAMES]
    assert [joint.unit for joint in recording.info.joints] == ["rad"] * 5 + ["percent"]
    assert (recording.info.pairing, recording.info.motion, recording.info.joints_hz) == (
        "row",
        "imported",
        30,
    )
    assert recording.info.source is not None
    assert recording.info.source["unit"] == "degrees"
    assert recording.info.source["version"] == "v2.1"
    for episode, length in enumerate([12, 9]):
        log = recording.episode(episode).joints()
        states = sets.joint_states(length, episode)
        np.testing.assert_array_equal(log.raw, states)
        np.testing.assert_allclose(log.position[:, :5], np.deg2rad(states[:, :5]), rtol=0, atol=0)
        np.testing.assert_array_equal(log.position[:, 5], states[:, 5])
        stamps = (np.arange(length) / 30).astype(np.float32).astype(np.float64)
        np.testing.assert_array_equal(log.source_timestamp, stamps)
        np.testing.assert_array_equal(log.time_ns, np.round(stamps * 1e9).astype(np.int64))
        for view in ("front", "wrist"):
            mp4 = source / f"videos/chunk-000/observation.images.{view}/episode_{episode:06d}.mp4"
            assert same_pictures(frames_of(recording, episode, view), sets.decoded(mp4))
            with h5py.File(recording.folder / f"episodes/{episode:06d}.h5") as file:
                assert file[f"views/{view}/video"][()].tobytes() == mp4.read_bytes()  # verbatim


V30_CASES = {
    "mpeg4": ("mpeg4", {"g": "6"}),
    "h264 with B-frames": ("libx264", {"bf": "2", "g": "6"}),
    "av1": ("libsvtav1", {"g": "2", "preset": "12", "crf": "30"}),
}


@pytest.mark.parametrize("case", V30_CASES)
def test_v30_whole(tmp_path: Path, case: str) -> None:
    codec, options = V30_CASES[case]
    lengths = [11, 8, 14, 7]
    files = [[0, 1, 2], [3]]
    source = sets.write_v30(tmp_path / "set", lengths, files=files, codec=codec, options=options)
    report = import_recording(source, tmp_path / "rec", unit="degrees")
    assert (report.episodes, report.rows, report.frames) == ([0, 1, 2, 3], 40, {"front": 40})
    assert (report.missing, report.faults) == ([], [])
    recording = Recording.open(tmp_path / "rec")
    for number, group in enumerate(files):
        pictures = sets.decoded(source / f"videos/observation.images.front/chunk-000/file-{number:03d}.mp4")
        first = 0
        for episode in group:
            stop = first + lengths[episode]
            assert same_pictures(frames_of(recording, episode, "front"), pictures[first:stop])
            log = recording.episode(episode).joints()
            np.testing.assert_array_equal(log.raw, sets.joint_states(lengths[episode], episode))
            times = recording.episode(episode).frame_times("front")
            expected = [round(Fraction(row * 10**9, 30)) for row in range(lengths[episode])]
            np.testing.assert_array_equal(times, expected)
            first = stop


def test_v30_packets_are_copied_not_encoded_again(tmp_path: Path) -> None:
    source = sets.write_v30(tmp_path / "set", [6, 6])
    import_recording(source, tmp_path / "rec", unit="degrees")
    with av.open(str(source / "videos/observation.images.front/chunk-000/file-000.mp4")) as file:
        packets = [bytes(packet) for packet in file.demux(video=0) if packet.size]
    found = []
    for episode in (0, 1):
        with h5py.File(tmp_path / f"rec/episodes/{episode:06d}.h5") as file:
            container = file["views/front/video"][()].tobytes()
        with av.open(io.BytesIO(container)) as clip:
            found += [bytes(packet) for packet in clip.demux(video=0) if packet.size]
    assert found == packets


def test_an_episode_that_begins_between_key_frames_keeps_what_comes_before_it(tmp_path: Path) -> None:
    # One group of pictures over both episodes: the second can only be decoded from the first's key frame.
    source = sets.write_v30(tmp_path / "set", [10, 10], options={"g": "100"})
    whole = source / "videos/observation.images.front/chunk-000/file-000.mp4"
    sets.encode(whole, 20, seed=7, options={"g": "100"})
    import_recording(source, tmp_path / "rec", unit="degrees")
    recording = Recording.open(tmp_path / "rec")
    pictures = sets.decoded(whole)
    assert same_pictures(frames_of(recording, 0, "front"), pictures[:10])
    assert same_pictures(frames_of(recording, 1, "front"), pictures[10:])
    with h5py.File(tmp_path / "rec/episodes/000001.h5") as file:
        assert file["views/front/video"].attrs["skip"] == 10


def test_the_same_import_gives_the_same_bytes(tmp_path: Path) -> None:
    source = sets.write_v30(tmp_path / "set", [6, 7])
    for name in ("one", "two"):
        import_recording(source, tmp_path / name, unit="degrees")
    assert (
        Recording.open(tmp_path / "one").manifest_sha256 == Recording.open(tmp_path / "two").manifest_sha256
    )


def test_an_interrupted_import_goes_on(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [6, 7, 8])

    def stop_after_first(done: int, total: int, what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_recording(source, tmp_path / "rec", unit="degrees", progress=stop_after_first)
    sealed = tmp_path / "rec/episodes/000000.h5"
    before = (sealed.stat().st_mtime_ns, sealed.read_bytes())
    assert not (tmp_path / "rec/episodes/000001.h5").exists()
    seen: list[tuple[int, int, str]] = []
    report = import_recording(
        source, tmp_path / "rec", unit="degrees", progress=lambda *step: seen.append(step)
    )
    assert report.episodes == [0, 1, 2]
    assert seen == [(1, 3, "episode 0"), (2, 3, "episode 1"), (3, 3, "episode 2")]
    assert (sealed.stat().st_mtime_ns, sealed.read_bytes()) == before
    again = import_recording(source, tmp_path / "rec", unit="degrees")
    assert again == report


def test_an_import_goes_on_only_with_the_same_settings(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [6], views=())
    import_recording(source, tmp_path / "rec", unit="degrees")
    with pytest.raises(InputError, match="was started with other settings"):
        import_recording(source, tmp_path / "rec", unit="degrees", lenient=True)


def test_a_partial_set_says_what_is_not_here(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [6, 7, 8, 9], views=("front", "wrist"))
    (source / "data/chunk-000/episode_000001.parquet").unlink()
    (source / "videos/chunk-000/observation.images.front/episode_000002.mp4").unlink()
    for path in (source / "videos/chunk-000/observation.images.wrist").iterdir():
        path.unlink()
    report = import_recording(source, tmp_path / "rec", unit="degrees")
    assert report.episodes == [0, 2, 3]
    assert report.frames == {"front": 15}
    assert report.missing == [
        "episodes 1 (1 of 4) have no data file here",
        "view front: episodes 2 have no video and are joint logs",
        "view wrist: no video file is here",
    ]
    assert report.faults == ["episode 2: no_video: view front: its video is not in the source"]
    recording = Recording.open(tmp_path / "rec")
    assert recording.info.view_names == ["front"]
    assert recording.info.source is not None
    assert recording.info.source["missing"] == report.missing
    assert not recording.episode(2).has_view("front")
    assert len(recording.episode(2).joints().time_ns) == 8


def test_totals_that_the_list_does_not_hold_and_files_it_does_not_name(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [6, 7], views=())
    info = json.loads((source / "meta/info.json").read_text())
    sets.write_json(source / "meta/info.json", {**info, "total_episodes": 5, "total_frames": 99})
    extra = source / "data/chunk-000/episode_000005.parquet"
    extra.write_bytes((source / "data/chunk-000/episode_000001.parquet").read_bytes())
    report = import_recording(source, tmp_path / "rec", unit="degrees")
    assert report.missing == [
        "info.json claims 5 episodes, the episode list has 2",
        "info.json claims 99 frames, the episode list has 13",
        "1 data file(s) that the metadata does not list: data/chunk-000/episode_000005.parquet",
    ]


def test_a_size_that_info_json_has_wrong_is_said_and_the_video_is_believed(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [6])
    info = json.loads((source / "meta/info.json").read_text())
    info["features"]["observation.images.front"]["shape"] = [480, 640, 3]
    sets.write_json(source / "meta/info.json", info)
    report = import_recording(source, tmp_path / "rec", unit="degrees")
    assert report.missing == ["view front: info.json claims 640x480, the video is 64x48"]
    assert Recording.open(tmp_path / "rec").info.view("front").width == 64


def test_images_depth_maps_and_unnamed_joints_are_said(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [6], views=("depth",))
    info = json.loads((source / "meta/info.json").read_text())
    info["features"]["observation.images.depth"]["info"]["video.is_depth_map"] = True
    info["features"]["observation.images.stills"] = {"dtype": "image", "shape": [48, 64, 3], "names": None}
    info["features"]["observation.state"]["names"] = None
    info["features"]["action"]["names"] = {"motors": sets.NAMES}
    sets.write_json(source / "meta/info.json", info)
    report = import_recording(source, tmp_path / "rec", unit="degrees")
    assert report.missing == [
        "names of observation.state: called joint_0 to joint_5",
        "view depth: a depth map, which is not imported",
        "view stills: no data file here has its pictures",
    ]
    recording = Recording.open(tmp_path / "rec")
    assert recording.info.joint_names == [f"joint_{number}" for number in range(6)]
    assert recording.info.actions is not None
    assert recording.info.actions.unit == "source"  # their names are not those of the joints


def test_actions_named_as_the_joints_are_converted_with_them(tmp_path: Path) -> None:
    names = sets.NAMES[:5]
    states = sets.joint_states(6, 0)[:, :5]
    source = sets.write_v21(tmp_path / "set", [6], views=(), names=names, states={0: states})
    table = sets.table(states, 0, 0, actions=states + 1)
    pq.write_table(table, source / "data/chunk-000/episode_000000.parquet")
    import_recording(source, tmp_path / "rec", unit="degrees")
    recording = Recording.open(tmp_path / "rec")
    actions = recording.episode(0).actions()
    assert actions is not None and recording.info.actions is not None
    assert (recording.info.actions.unit, recording.info.actions.meaning) == ("rad", "target")
    raw = (states + 1).astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(actions.raw, raw)
    np.testing.assert_array_equal(actions.target, np.deg2rad(raw))


def test_a_chunk_key_of_v30_in_a_v21_path_is_understood(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [6, 6])
    info = json.loads((source / "meta/info.json").read_text())
    for key in ("data_path", "video_path"):
        info[key] = info[key].replace("episode_chunk", "chunk_index")
    sets.write_json(source / "meta/info.json", info)
    assert import_recording(source, tmp_path / "rec", unit="degrees").frames == {"front": 12}
