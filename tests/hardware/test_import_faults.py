"""Sets that are not whole: one clear error each, or with lenient a fault that stays visible."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import av
import lerobot_sets as sets
import numpy as np
import pyarrow.parquet as pq
import pytest

from hardware import InputError, Recording
from hardware.checks import check_recording
from hardware.importers import import_recording

V21_DATA = "data/chunk-000/episode_00000{}.parquet"
V21_VIDEO = "videos/chunk-000/observation.images.front/episode_00000{}.mp4"
V30_VIDEO = "videos/observation.images.front/chunk-000/file-000.mp4"


def error_of(source: Path, to: Path, **options) -> str:
    with pytest.raises(InputError) as error:
        import_recording(source, to, **{"unit": "degrees", **options})
    return str(error.value)


def change_info(source: Path, change) -> None:
    info = json.loads((source / "meta/info.json").read_text())
    change(info)
    sets.write_json(source / "meta/info.json", info)


# -- counts --------------------------------------------------------------------------------------------------


def test_v21_fewer_frames_than_rows(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [8, 9, 7], frames={1: 6})
    text = error_of(source, tmp_path / "rec")
    assert "episode 1: view front: 9 rows, 6 decoded frames, 9 in the metadata" in text
    assert "--lenient" in text
    assert Recording.open(tmp_path / "rec").episode_indices == [0]  # what was sealed before is not lost

    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert report.faults == [
        "episode 1: count: view front: 9 rows, 6 decoded frames, 9 in the metadata; "
        "the first 6 rows are paired with frames"
    ]
    recording = Recording.open(tmp_path / "lenient")
    (aligned,) = recording.aligned(["front"], episodes=[1])
    assert (len(aligned), aligned.dropped) == (6, {"unpaired": 3})
    assert recording.manifest[1].faults == {"count": 1}
    states = {check.name: check.state for check in check_recording(recording)}
    assert (states["faults"], states["counts"]) == ("warn", "fail")


def test_v21_more_frames_than_rows(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [8], frames={0: 11})
    assert "8 rows, 11 decoded frames, 8 in the metadata" in error_of(source, tmp_path / "rec")
    import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    recording = Recording.open(tmp_path / "lenient")
    assert recording.episode(0).frame_count("front") == 8
    assert len(list(recording.episode(0).frames("front"))) == 8


@pytest.mark.parametrize("views", [(), ("front",)])
def test_metadata_that_claims_another_length(tmp_path: Path, views: tuple[str, ...]) -> None:
    source = sets.write_v21(tmp_path / "set", [8], views=views)
    (source / "meta/episodes.jsonl").write_text('{"episode_index": 0, "length": 7}\n')
    text = error_of(source, tmp_path / "rec")
    assert "episode 0" in text
    assert "8 rows" in text and "7 in the metadata" in text
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert report.rows == 8 and len(report.faults) == 1


def test_v30_frames_dropped_inside_an_episode(tmp_path: Path) -> None:
    # LeRobot's streaming encoder drops frames and keeps rows; from_timestamp follows the encoded frames.
    source = sets.write_v30(tmp_path / "set", [9, 10, 8], frames={0: 5})
    text = error_of(source, tmp_path / "rec")
    assert "episode 0: view front: 9 rows, 5 decoded frames, 9 in the metadata" in text
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert [fault.split(":")[0] for fault in report.faults] == ["episode 0"]
    recording = Recording.open(tmp_path / "lenient")
    pictures = sets.decoded(source / V30_VIDEO)
    for episode, (first, stop) in enumerate([(0, 5), (5, 15), (15, 23)]):
        shown = list(recording.episode(episode).frames("front"))
        assert all(np.array_equal(one, other) for one, other in zip(shown, pictures[first:stop], strict=True))


def test_v30_shifted_from_timestamp(tmp_path: Path) -> None:
    source = sets.write_v30(tmp_path / "set", [9, 10, 8], from_timestamps={1: 10 / 30})
    text = error_of(source, tmp_path / "rec")
    assert "episode 1: view observation.images.front: from_timestamp 0.333" in text
    assert "is frame 10, the lengths of the episodes before it in the file sum to 9" in text
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert [fault[:26] for fault in report.faults] == ["episode 1: video_position:"]
    shown = list(Recording.open(tmp_path / "lenient").episode(1).frames("front"))
    pictures = sets.decoded(source / V30_VIDEO)[9:19]
    assert all(np.array_equal(one, other) for one, other in zip(shown, pictures, strict=True))


@pytest.mark.parametrize("dust", [-1e-4, 1e-4])
def test_v30_float_dust_in_from_timestamp_is_no_shift(tmp_path: Path, dust: float) -> None:
    source = sets.write_v30(tmp_path / "set", [9, 10], from_timestamps={1: 9 / 30 + dust})
    assert import_recording(source, tmp_path / "rec", unit="degrees").faults == []


def test_v30_frames_left_over(tmp_path: Path) -> None:
    source = sets.write_v30(tmp_path / "set", [9, 10], frames={1: 13})
    assert "episode 1: view front: 10 rows, 13 decoded frames, 10 in the metadata" in error_of(
        source, tmp_path / "rec"
    )


def test_v30_rows_of_an_episode_that_are_not_in_the_table(tmp_path: Path) -> None:
    source = sets.write_v30(tmp_path / "set", [9, 10], views=())
    path = source / "data/chunk-000/file-000.parquet"
    pq.write_table(pq.read_table(path).slice(0, 9), path)
    assert "episode 1: has no rows" in error_of(source, tmp_path / "rec")
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert report.episodes == [0]
    assert "episode 1 is left out" in report.missing[0]


def test_v30_row_span_unlike_the_length(tmp_path: Path) -> None:
    source = sets.write_v30(tmp_path / "set", [9], views=())
    rows = sets.read_episode_list(source)
    rows[0]["dataset_to_index"] = 8
    sets.write_episode_list(source, rows)
    assert "gives it rows 0 to 8, length 9" in error_of(source, tmp_path / "rec")


# -- damaged files -------------------------------------------------------------------------------------------


def test_parquet_without_footer(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [8, 9], views=())
    path = source / V21_DATA.format(1)
    path.write_bytes(path.read_bytes()[:-8])
    text = error_of(source, tmp_path / "rec")
    assert "episode_000001.parquet: has no parquet footer: it was cut off" in text
    assert not (tmp_path / "rec").exists()  # all tables are read before anything is written
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert report.episodes == [0]
    assert "episode 1 is left out" in report.missing[0] and "no parquet footer" in report.missing[0]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not a parquet file, but long enough to hold a footer"])
def test_files_that_are_no_parquet(tmp_path: Path, content: bytes) -> None:
    source = sets.write_v30(tmp_path / "set", [8], views=())
    (source / "data/chunk-000/file-000.parquet").write_bytes(content)
    assert "file-000.parquet: has no parquet footer" in error_of(source, tmp_path / "rec")


def test_parquet_with_a_damaged_page(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [80], views=())
    path = source / V21_DATA.format(0)
    data = bytearray(path.read_bytes())
    data[4:600] = bytes(596)
    path.write_bytes(data)
    assert "episode_000000.parquet: is not a readable parquet file" in error_of(source, tmp_path / "rec")


def test_v30_killed_before_it_wrote_its_episode_list(tmp_path: Path) -> None:
    source = sets.write_v30(tmp_path / "set", [8], views=())
    shutil.rmtree(source / "meta/episodes")
    assert "meta/episodes: holds no episode list" in error_of(source, tmp_path / "rec")


def test_truncated_mp4(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [8, 9])
    path = source / V21_VIDEO.format(1)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    text = error_of(source, tmp_path / "rec")
    assert "episode 1: view front" in text and "episode_000001.mp4 is not a readable video" in text
    assert Recording.open(tmp_path / "rec").episode_indices == [0]
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert report.rows == 17 and report.frames == {"front": 8}
    assert "episode 1: video_unreadable" in report.faults[0]


def test_v30_truncated_mp4_whose_index_comes_first(tmp_path: Path) -> None:
    source = sets.write_v30(tmp_path / "set", [8, 9])
    path = source / V30_VIDEO
    with (
        av.open(str(path)) as file,
        av.open(str(tmp_path / "fast.mp4"), "w", options={"movflags": "faststart"}) as fast,
    ):
        copy = fast.add_stream_from_template(file.streams.video[0], opaque=True)
        for packet in file.demux(video=0):
            if packet.size:
                packet.stream = copy
                fast.mux(packet)
    content = (tmp_path / "fast.mp4").read_bytes()
    path.write_bytes(content[: len(content) - 2000])
    text = error_of(source, tmp_path / "rec")
    assert "episode" in text and "view front" in text
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert report.rows == 17
    assert any(
        "episode 1: count" in fault or "episode 1: video_unreadable" in fault for fault in report.faults
    )
    recording = Recording.open(tmp_path / "lenient")
    assert {check.name: check.state for check in check_recording(recording)}["decoded"] == "pass"


def test_a_video_of_another_size(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [8, 8])
    with av.open(str(source / V21_VIDEO.format(1)), "w") as file:
        stream = file.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for _ in range(8):
            file.mux(
                stream.encode(av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24"))
            )
        file.mux(stream.encode())
    assert "its video is 32x32, that of the other episodes 64x48" in error_of(source, tmp_path / "rec")
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert report.frames == {"front": 8}


# -- values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_joints_that_are_not_numbers(tmp_path: Path, value: float) -> None:
    states = sets.joint_states(9, 1)
    states[6, 2] = value
    source = sets.write_v21(tmp_path / "set", [8, 9], states={1: states})
    text = error_of(source, tmp_path / "rec")
    assert f"episode 1: row 6, joint elbow_flex: {value} is not a number (1 such values)" in text
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert "episode 1: not_finite: row 6, joint elbow_flex" in report.faults[0]
    assert "rows from 6 are cut off" in report.faults[0]
    recording = Recording.open(tmp_path / "lenient")
    (aligned,) = recording.aligned(["front"], episodes=[1])
    assert len(aligned) == 6


def test_an_episode_without_one_good_row_is_left_out(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [8, 9], views=(), states={0: np.full((8, 6), np.nan)})
    report = import_recording(source, tmp_path / "rec", unit="degrees", lenient=True)
    assert report.episodes == [1]
    assert "episode 0 is left out" in report.missing[0]


def test_actions_that_are_not_numbers_stay_as_a_fault(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [8], views=())
    actions = sets.joint_states(8, 0)
    actions[3, 5] = np.nan
    pq.write_table(sets.table(sets.joint_states(8, 0), 0, 0, actions), source / V21_DATA.format(0))
    assert "row 3, action gripper: nan" in error_of(source, tmp_path / "rec")
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert report.rows == 8 and "not_finite" in report.faults[0]


@pytest.mark.parametrize(
    ("column", "change", "words"),
    [
        ("frame_index", lambda v: np.r_[v[:3], v[4:], 99], "row 3 has frame_index 4 (5 rows out of step)"),
        ("episode_index", lambda v: v + 1, "episode_000000.parquet holds rows of episode 1"),
    ],
)
def test_rows_out_of_step(tmp_path: Path, column: str, change, words: str) -> None:
    source = sets.write_v21(tmp_path / "set", [8], views=())
    path = source / V21_DATA.format(0)
    table = pq.read_table(path)
    values = change(table.column(column).to_numpy())
    pq.write_table(table.set_column(table.column_names.index(column), column, [values]), path)
    assert words in error_of(source, tmp_path / "rec")
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert f"episode 0: {column}" in report.faults[0]


def test_timestamps_that_are_not_numbers_are_an_error_even_when_lenient(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [8], views=())
    path = source / V21_DATA.format(0)
    table = pq.read_table(path)
    stamps = np.where(np.arange(8) == 2, np.nan, np.arange(8) / 30).astype(np.float32)
    pq.write_table(table.set_column(table.column_names.index("timestamp"), "timestamp", [stamps]), path)
    for lenient in (False, True):
        assert "row 2: timestamp nan is no time in seconds" in error_of(
            source, tmp_path / "rec", lenient=lenient
        )


def test_a_table_of_another_width(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [8], views=())
    pq.write_table(sets.table(sets.joint_states(8, 0)[:, :4], 0, 0), source / V21_DATA.format(0))
    assert "row 0: action has 4 values, not 6" in error_of(source, tmp_path / "rec")


# -- metadata ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([(0, 8), (0, 8)], "line 2: lists episode 0 twice"),
        ([(1, 8), (0, 8)], "line 2: lists episode 0 after 1"),
        ([(0, -1)], "length is '-1', not a count"),
        ([("0", 8)], "episode_index is '0', not a count"),
    ],
)
def test_episode_lists_that_do_not_rise(tmp_path: Path, lines: list, words: str) -> None:
    source = sets.write_v21(tmp_path / "set", [8, 8], views=())
    text = "\n".join(json.dumps({"episode_index": episode, "length": length}) for episode, length in lines)
    (source / "meta/episodes.jsonl").write_text(text)
    assert words in error_of(source, tmp_path / "rec")


def test_v30_episode_list_with_a_repeated_episode(tmp_path: Path) -> None:
    source = sets.write_v30(tmp_path / "set", [8, 8], views=())
    rows = sets.read_episode_list(source)
    sets.write_episode_list(source, [rows[0], rows[0]])
    assert "lists episode 0 twice" in error_of(source, tmp_path / "rec")


@pytest.mark.parametrize("key", ["codebase_version", "fps", "data_path", "features"])
def test_info_without_a_key(tmp_path: Path, key: str) -> None:
    source = sets.write_v21(tmp_path / "set", [8], views=())
    change_info(source, lambda info: info.pop(key))
    assert f"info.json: has no '{key}'" in error_of(source, tmp_path / "rec")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda info: info.update(codebase_version="v1.6"),
            "codebase_version is 'v1.6' - read are v2.1, v3.0",
        ),
        (lambda info: info.update(fps=0), "fps: Input should be greater than or equal to 0.001"),
        (lambda info: info["features"].pop("observation.state"), "no joints are logged"),
        (lambda info: info["features"]["observation.state"].update(names=["a"] * 6), "a name of its own"),
        (lambda info: info["features"]["observation.state"].update(names=["a", "b"]), "a name of its own"),
        (lambda info: info.update(data_path="../{episode_index}.parquet"), "leads out of the set"),
        (lambda info: info.update(data_path="/etc/passwd"), "leads out of the set"),
        (lambda info: info.update(data_path="data/{episode_index.__class__}"), "is no field of it"),
        (lambda info: info.update(data_path="data/{episode_index:099999d}"), "is no field of it"),
        (lambda info: info.update(data_path="data/{"), "path template"),
        (lambda info: info.update(data_path="data/\0"), "gives no path"),
        (lambda info: info.update(data_path="data/" + "x" * 300), "gives no path"),
        (
            lambda info: info.update(data_path="data/{split}/x.parquet"),
            "known fields: episode_chunk, chunk_index",
        ),
    ],
)
def test_info_that_is_wrong_or_hostile(tmp_path: Path, change, words: str) -> None:
    source = sets.write_v21(tmp_path / "set", [8], views=())
    change_info(source, change)
    assert words in error_of(source, tmp_path / "rec")


def test_a_view_whose_name_leaves_the_folder(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [8])

    def rename(info: dict) -> None:
        info["features"]["observation.images.../../x"] = info["features"].pop("observation.images.front")

    change_info(source, rename)
    assert "gives no usable name for a view" in error_of(source, tmp_path / "rec")


def test_a_view_of_a_size_that_no_recording_has(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [8])
    change_info(
        source, lambda info: info["features"]["observation.images.front"].update(shape=[48, 20_000, 3])
    )
    (source / V21_VIDEO.format(0)).write_bytes(b"no video")
    assert "views.0.width" in error_of(source, tmp_path / "rec", lenient=True)


def test_a_link_that_leaves_the_folder(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [8], views=())
    path = source / V21_DATA.format(0)
    path.rename(tmp_path / "elsewhere.parquet")
    path.symlink_to(tmp_path / "elsewhere.parquet")
    assert "leads out of the set" in error_of(source, tmp_path / "rec")
    path.unlink()
    path.symlink_to(path)
    assert "gives no path" in error_of(source, tmp_path / "rec")


def test_empty_sets(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [8], views=())
    (source / V21_DATA.format(0)).unlink()
    assert "holds no data file of its 1 episodes" in error_of(source, tmp_path / "rec")
    (source / "meta/episodes.jsonl").write_text("")
    assert "lists no episode: the set is empty" in error_of(source, tmp_path / "rec")
    (source / "meta/info.json").write_text("{")
    assert "info.json: is not valid JSON" in error_of(source, tmp_path / "rec")
    (tmp_path / "nothing").mkdir()
    assert "known: LeRobotDataset v2.1 and v3.0" in error_of(tmp_path / "nothing", tmp_path / "rec")
    assert "is not a folder" in error_of(tmp_path / "none", tmp_path / "rec")


# -- the disk ------------------------------------------------------------------------------------------------

FILL = """
import resource, sys
from hardware import InputError
from hardware.importers import import_recording
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))
try:
    import_recording(sys.argv[1], sys.argv[2], unit="degrees")
except InputError as error:
    print(error)
    sys.exit(2)
"""


def test_a_disk_that_fills_loses_nothing_that_was_sealed(tmp_path: Path) -> None:
    # A limit on the size of files fails in the same writes as a full disk does.
    source = sets.write_v21(tmp_path / "set", [6, 2000, 7], views=())
    command = [sys.executable, "-c", FILL, str(source), str(tmp_path / "rec")]
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert run.returncode == 2, run.stderr
    assert "the disk is full" in run.stdout and "sealed episodes are safe" in run.stdout
    assert "Traceback" not in run.stderr
    recording = Recording.open(tmp_path / "rec")
    assert recording.episode_indices == [0]
    recording.episode(0).verify()
    report = import_recording(source, tmp_path / "rec", unit="degrees")  # with room again, it goes on
    assert report.episodes == [0, 1, 2]


# -- anything else -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_damaged_files_raise_input_errors_and_nothing_else(tmp_path: Path, version: str) -> None:
    whole = tmp_path / "whole"
    if version == "v2.1":
        sets.write_v21(whole, [8, 9])
    else:
        sets.write_v30(whole, [8, 9], codec="libx264", options={"bf": "2", "g": "6"})
        shutil.rmtree(whole / "clips")
    rng = np.random.default_rng(20)
    files = [path.relative_to(whole) for path in sorted(whole.rglob("*")) if path.is_file()]
    outcomes = {"imported": 0, "refused": 0}
    for trial in range(40):
        source = tmp_path / f"set{trial}"
        shutil.copytree(whole, source)
        path = source / files[rng.integers(len(files))]
        content = bytearray(path.read_bytes())
        first, last = sorted(rng.integers(0, len(content), 2).tolist())
        match trial % 3:
            case 0:
                del content[first:]
            case 1:
                del content[first:last]
            case _:
                for place in rng.integers(0, len(content), 4):
                    content[place] = rng.integers(256)
        path.write_bytes(content)
        try:
            to = tmp_path / f"rec{trial}"
            import_recording(source, to, unit="degrees", lenient=True)
            recording = Recording.open(to)
            for episode in map(recording.episode, recording.episode_indices):
                if episode.line.frames.get("front"):
                    assert len(list(episode.frames("front"))) == episode.frame_count("front")
            outcomes["imported"] += 1
        except InputError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 5
