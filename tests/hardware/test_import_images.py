"""Pictures that lie in parquet tables: in LeRobot sets (dtype `image`), and in folders of tables alone."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import cv2
import h5py
import lerobot_sets as sets
import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recordings import make_recording

from hardware import InputError, Recording
from hardware.alignment import align
from hardware.checks import check_recording
from hardware.exporters.columns import action_columns, state_columns
from hardware.exporters.rows import export_rows
from hardware.frames import decode_jpeg
from hardware.importers import import_recording
from hardware.importers.pictures import NotPicture, picture_header

KEY = "observation.images.front"
JOINTS = ("arm_j1", "arm_j2")


def pictures(seed: int, count: int, suffix: str) -> list[bytes]:
    return [sets.encoded(sets.picture(seed, number), suffix) for number in range(count)]


def stored_jpegs(recording: Recording, episode: int, view: str) -> list[bytes]:
    with h5py.File(recording.folder / f"episodes/{episode:06d}.h5") as file:
        group = file[f"views/{view}"]
        data = group["data"][()].tobytes()
        return [data[at : at + n] for at, n in zip(group["offset"][()], group["length"][()])]


def error_of(source: Path, to: Path, **options) -> str:
    with pytest.raises(InputError) as error:
        import_recording(source, to, **{"unit": "degrees", **options})
    return str(error.value)


def flat_table(count: int, seed: int = 0, suffix: str = ".jpg", rate: float | None = 5.0) -> pa.Table:
    """A table as a small recorder writes it: a column a joint, a clock, the pictures as bytes."""
    states = sets.joint_states(count, seed)
    columns: dict[str, object] = {"episode": np.ones(count, np.int32)}
    if rate is not None:
        columns["t"] = (np.arange(count) / rate).astype(np.float32)
    columns |= {name: states[:, number] for number, name in enumerate(JOINTS)}
    columns["cam0_image"] = pa.array(pictures(seed, count, suffix), pa.large_binary())
    return pa.table(columns)


def write_flat(folder: Path, tables: dict[str, pa.Table]) -> Path:
    folder.mkdir(parents=True)
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def replaced(table: pa.Table, row: int, data: bytes | None, column: str = "cam0_image") -> pa.Table:
    values = table[column].to_pylist()
    values[row] = data
    return table.set_column(table.column_names.index(column), column, pa.array(values, pa.large_binary()))


# -- LeRobot sets ------------------------------------------------------------------------------------------


def test_jpegs_of_a_v21_set_are_stored_as_they_came_beside_a_video(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [7, 5], views=("wrist",))
    given = {0: pictures(0, 7, ".jpg"), 1: pictures(1, 5, ".jpg")}
    sets.store_pictures(source, KEY, given)
    report = import_recording(source, tmp_path / "rec", unit="degrees")
    assert (report.rows, report.frames) == (12, {"wrist": 12, "front": 12})
    assert (report.missing, report.faults) == ([], [])
    recording = Recording.open(tmp_path / "rec")
    view = recording.info.view("front")
    assert (view.encoding, view.width, view.height, view.fps) == ("jpeg", 64, 48, 30)
    assert recording.info.view("wrist").encoding == "video"
    for episode, mine in given.items():
        assert stored_jpegs(recording, episode, "front") == mine
        log = recording.episode(episode).joints()
        np.testing.assert_array_equal(log.raw, sets.joint_states(len(mine), episode))
        np.testing.assert_array_equal(recording.episode(episode).frame_times("front"), log.time_ns)
        shown = list(recording.episode(episode).frames("front"))
        assert all(np.array_equal(one, decode_jpeg(data, "")) for one, data in zip(shown, mine, strict=True))


@pytest.mark.parametrize("row_group", [None, 4])
def test_pngs_of_a_v30_set_lose_nothing(tmp_path: Path, row_group: int | None) -> None:
    # Groups of 4 rows begin within episodes, which share the file.
    source = sets.write_v30(tmp_path / "set", [6, 7, 3], views=())
    sets.store_pictures(source, KEY, {e: pictures(e, n, ".png") for e, n in enumerate([6, 7, 3])}, row_group)
    report = import_recording(source, tmp_path / "rec", unit="degrees")
    assert (report.frames, report.missing, report.faults) == ({"front": 16}, [], [])
    recording = Recording.open(tmp_path / "rec")
    assert recording.info.view("front").encoding == "rgb8"
    for episode, count in enumerate([6, 7, 3]):
        shown = list(recording.episode(episode).frames("front"))
        expected = [sets.picture(episode, number) for number in range(count)]
        assert all(np.array_equal(one, other) for one, other in zip(shown, expected, strict=True))
    states = {check.name: check.state for check in check_recording(recording)}
    assert states["counts"] == states["decoded"] == states["hashes"] == "pass"


def test_a_declared_size_that_the_pictures_do_not_have_is_said(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [3], views=())
    small = [sets.encoded(sets.picture(0, number, 32, 24), ".png") for number in range(3)]
    sets.store_pictures(source, KEY, {0: small})
    report = import_recording(source, tmp_path / "rec", unit="degrees")
    assert report.missing == ["view front: info.json claims 64x48, its pictures are 32x24"]


def test_an_image_feature_that_no_table_has(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [3, 4], views=())
    bare = {path: pq.read_table(path) for path in (source / "data").rglob("*.parquet")}
    sets.store_pictures(source, KEY, {e: pictures(e, n, ".png") for e, n in enumerate([3, 4])})
    first, second = sorted(bare)
    pq.write_table(bare[second], second)
    text = error_of(source, tmp_path / "rec")
    assert "episode 1" in text and f"no column {KEY!r} that holds pictures" in text
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert report.frames == {"front": 3} and report.rows == 7
    assert "episode 1: picture_unreadable: view front" in report.faults[0]
    pq.write_table(bare[first], first)
    report = import_recording(source, tmp_path / "none", unit="degrees")
    assert report.missing == ["view front: no data file here has its pictures"]


def test_a_damaged_table_of_several_costs_its_own_episodes(tmp_path: Path) -> None:
    source = sets.write_v30(tmp_path / "set", [5, 6], views=())
    sets.store_pictures(source, KEY, {e: pictures(e, n, ".png") for e, n in enumerate([5, 6])})
    whole, second = (source / f"data/chunk-000/file-00{number}.parquet" for number in (0, 1))
    table = pq.read_table(whole)
    pq.write_table(table.slice(5), second)
    rows = sets.read_episode_list(source)
    rows[1]["data/file_index"] = 1
    sets.write_episode_list(source, rows)
    whole.write_bytes(whole.read_bytes()[:-9])
    assert "file-000.parquet: has no parquet footer" in error_of(source, tmp_path / "rec")
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert (report.episodes, report.frames) == ([1], {"front": 6})


def test_pictures_that_lie_beside_the_table_are_not_followed(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [3], views=())
    sets.store_pictures(source, KEY, {0: [pictures(0, 1, ".png")[0], None, None]})
    text = error_of(source, tmp_path / "rec")
    assert "episode 0: view front: row 1 of episode_000000.parquet has no picture" in text


def test_a_set_that_declares_its_rate_takes_no_other(tmp_path: Path) -> None:
    source = sets.write_v21(tmp_path / "set", [3], views=())
    assert "--fps: the set's info.json declares 30 fps - leave --fps out" in error_of(
        source, tmp_path / "rec", fps=20
    )


# -- there and back ----------------------------------------------------------------------------------------


def test_a_recording_laid_out_as_exported_images_comes_back_the_same(tmp_path: Path) -> None:
    """What `export --images` hands to LeRobot, in the layout that LeRobot gives it."""
    recording = make_recording(tmp_path / "rec", episodes=2, frames=12)
    views = recording.info.view_names
    state, action = state_columns(recording.info), []
    action = action_columns(recording.info, state)
    rows = [export_rows(align(recording.episode(number), views), state, action) for number in (0, 1)]
    lengths = [len(one) for one in rows]
    source = sets.write_v30(tmp_path / "set", lengths, views=())
    sets.write_json(
        source / "meta/info.json",
        sets.info_of("v3.0", lengths, (), names=[column.name for column in state]),
    )
    tables = [
        sets.table(one.state, number, sum(lengths[:number]), one.action) for number, one in enumerate(rows)
    ]
    pq.write_table(pa.concat_tables(tables), source / "data/chunk-000/file-000.parquet")
    shown = {
        view: {
            number: list(one.episode.frames(view, one.frame_index[view])) for number, one in enumerate(rows)
        }
        for view in views
    }
    for view, mine in shown.items():
        encoded = {
            number: [sets.encoded(image, ".png") for image in images] for number, images in mine.items()
        }
        sets.store_pictures(source, f"observation.images.{view}", encoded)
    import_recording(source, tmp_path / "again", unit="degrees")
    again = Recording.open(tmp_path / "again")
    for number in (0, 1):
        for view in views:
            back = list(again.episode(number).frames(view))
            assert all(np.array_equal(a, b) for a, b in zip(back, shown[view][number], strict=True))
        expected = align(recording.episode(number), views).position
        np.testing.assert_allclose(again.episode(number).joints().position, expected, atol=1e-6)
        actions = again.episode(number).actions()
        assert actions is not None
        np.testing.assert_array_equal(actions.raw, rows[number].action)


def test_lerobots_own_images_come_back_the_same(tmp_path: Path) -> None:
    pytest.importorskip("lerobot", reason="needs the extra lerobot")
    from hardware.exporters import export_lerobot

    recording = make_recording(tmp_path / "rec", episodes=2, frames=12)
    export_lerobot(recording, tmp_path / "set", images=True)
    report = import_recording(tmp_path / "set", tmp_path / "again", unit="degrees")
    assert (report.missing, report.faults) == ([], [])
    again = Recording.open(tmp_path / "again")
    for number in (0, 1):
        aligned = align(recording.episode(number), ["front", "side"])
        for view in ("front", "side"):
            given = recording.episode(number).frames(view, aligned.frame_index[view])
            back = again.episode(number).frames(view)
            assert all(np.array_equal(a, b) for a, b in zip(back, given, strict=True))
        np.testing.assert_allclose(again.episode(number).joints().position, aligned.position, atol=1e-6)


# -- folders of tables alone -------------------------------------------------------------------------------


def test_a_folder_of_tables(tmp_path: Path) -> None:
    tables = {"episode_000065": flat_table(7, 1), "episode_000007": flat_table(5, 2)}
    tables["episode_000007"] = tables["episode_000007"].append_column("task", pa.array(["x"] * 5))
    source = write_flat(tmp_path / "set", tables)
    report = import_recording(source, tmp_path / "rec", unit="degrees")
    assert (report.episodes, report.rows, report.frames) == ([7, 65], 12, {"cam0": 12})
    assert report.missing == ["columns that are not imported: task"]
    recording = Recording.open(tmp_path / "rec")
    assert recording.info.joint_names == list(JOINTS)
    assert recording.info.joints_hz == recording.info.view("cam0").fps == 5
    assert recording.info.source is not None
    assert recording.info.source["facts"] == {
        "episode numbers": "those of the file names",
        "rate": "median step of 't' in episode_000007.parquet",
    }
    assert stored_jpegs(recording, 65, "cam0") == tables["episode_000065"]["cam0_image"].to_pylist()
    log = recording.episode(65).joints()
    np.testing.assert_array_equal(log.source_timestamp, tables["episode_000065"]["t"].to_numpy())
    np.testing.assert_array_equal(log.raw, sets.joint_states(7, 1)[:, :2])
    np.testing.assert_array_equal(recording.episode(65).frame_times("cam0"), log.time_ns)


def test_the_order_of_columns_and_the_name_of_the_episode_are_no_matter(tmp_path: Path) -> None:
    table = flat_table(5).set_column(0, "episode", pa.array(["first"] * 5))
    other = table.select(list(reversed(table.column_names)))
    source = write_flat(tmp_path / "set", {"episode_1": table, "episode_2": other})
    import_recording(source, tmp_path / "rec", unit="degrees")
    recording = Recording.open(tmp_path / "rec")
    one, two = (recording.episode(number).joints() for number in (1, 2))
    np.testing.assert_array_equal(one.position, two.position)
    assert stored_jpegs(recording, 1, "cam0") == stored_jpegs(recording, 2, "cam0")


def test_a_declared_rate_leaves_the_stamps_as_they_are(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "set", {"a1": flat_table(9)})
    import_recording(source, tmp_path / "rec", unit="degrees", fps=20)
    recording = Recording.open(tmp_path / "rec")
    rate = {check.name: check for check in check_recording(recording)}["clock_rate"]
    assert rate.state == "warn"
    assert rate.evidence["declared_hz"]["joints"] == 20
    assert rate.evidence["median_hz"]["joints"] == pytest.approx(5)


def test_a_folder_within_a_lerobot_set_has_that_sets_rate(tmp_path: Path) -> None:
    sets.write_json(tmp_path / "set/meta/info.json", sets.info_of("v2.1", [9], ()))
    source = write_flat(tmp_path / "set/data/chunk-001", {"episode_1": flat_table(9)})
    import_recording(source, tmp_path / "rec", unit="degrees")
    info = Recording.open(tmp_path / "rec").info
    assert (info.joints_hz, info.robot) == (30, "so101_follower")
    assert info.source is not None
    assert info.source["facts"]["rate"].startswith("declared by meta/info.json")
    assert "--fps: 20: meta/info.json of the set around the folder declares 30" in error_of(
        source, tmp_path / "other", fps=20
    )


def test_without_a_clock_the_rate_is_asked_for(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "set", {"one": flat_table(6, rate=None)})
    text = error_of(source, tmp_path / "rec")
    assert "says nowhere at what rate its rows were recorded" in text and "say --fps" in text
    for fps in (0, -1, float("nan"), float("inf")):
        assert "is no rate" in error_of(source, tmp_path / "rec", fps=fps)
    report = import_recording(source, tmp_path / "rec", unit="degrees", fps=8)
    assert report.episodes == [0]
    recording = Recording.open(tmp_path / "rec")
    log = recording.episode(0).joints()
    np.testing.assert_array_equal(log.time_ns, np.arange(6) * 125_000_000)
    assert log.source_timestamp is None
    assert recording.info.source is not None
    assert recording.info.source["facts"]["episode numbers"] == "counted in the order of the file names"


def test_list_columns_and_structs_are_those_of_lerobots_tables(tmp_path: Path) -> None:
    table = sets.table(sets.joint_states(5, 0), 3, 0)
    column = pa.array([{"path": "x", "bytes": data} for data in pictures(0, 5, ".png")])
    source = write_flat(tmp_path / "set", {"episode_000003": table.append_column(KEY, column)})
    report = import_recording(source, tmp_path / "rec", unit="degrees")
    assert report.missing == [
        "names of observation.state: called joint_0 to joint_5",
        "names of action: called action_0 to action_5",
    ]
    recording = Recording.open(tmp_path / "rec")
    assert recording.info.view("front").encoding == "rgb8"
    np.testing.assert_array_equal(recording.episode(3).joints().raw, sets.joint_states(5, 0))


def test_actions_a_column_each_carry_the_joints_names(tmp_path: Path) -> None:
    table = flat_table(5)
    for name in JOINTS:
        table = table.append_column(f"action_{name}", pa.array(np.arange(5) + 0.5))
    source = write_flat(tmp_path / "set", {"episode_0": table})
    import_recording(source, tmp_path / "rec", unit="degrees")
    recording = Recording.open(tmp_path / "rec")
    assert recording.info.joint_names == list(JOINTS)
    assert recording.info.actions is not None
    assert (recording.info.actions.names, recording.info.actions.unit) == (list(JOINTS), "rad")
    actions = recording.episode(0).actions()
    assert actions is not None
    np.testing.assert_array_equal(actions.target[:, 0], np.deg2rad(np.arange(5) + 0.5))


def test_a_sentinel_in_ticks_stays_in_the_data(shared_data: Path, tmp_path: Path) -> None:
    table = flat_table(5)
    table = table.set_column(2, "arm_j1", pa.array(np.full(5, -1, np.int32)))
    table = table.set_column(3, "arm_j2", pa.array(np.arange(2000, 2005, dtype=np.int32)))
    names = [f"arm_j{number}" for number in range(1, 7)]
    for name in names[2:]:
        table = table.append_column(name, pa.array(np.full(5, 2048, np.int32)))
    source = write_flat(tmp_path / "set", {"episode_0": table})
    arms = {"arm": shared_data / "so101_bimanual/arm1.json"}
    report = import_recording(source, tmp_path / "rec", unit="ticks", calibrations=arms)
    assert report.faults == []
    recording = Recording.open(tmp_path / "rec")
    raw = recording.episode(0).joints().raw
    assert raw is not None and set(raw[:, 0]) == {-1.0}
    assert recording.info.joint_names == names


# -- pictures that cannot be kept --------------------------------------------------------------------------

JPEG = sets.encoded(sets.picture(0, 3), ".jpg")
PNG = sets.encoded(sets.picture(0, 3), ".png")
TURNED = io.BytesIO()
_exif = PIL.Image.Exif()
_exif[0x0112] = 6  # orientation: turn by a quarter
PIL.Image.fromarray(sets.picture(0, 3)).save(TURNED, "JPEG", exif=_exif)

BAD = {
    "truncated": (JPEG[: len(JPEG) // 2], "picture_unreadable", "is cut off: it has no end marker"),
    "no picture": (b"GIF89a, long enough", "picture_unreadable", "is neither JPEG nor PNG"),
    "none": (None, "picture_missing", "has no picture"),
    "empty": (b"", "picture_missing", "has no picture"),
    "another size": (
        sets.encoded(sets.picture(0, 3, 32, 24), ".jpg"),
        "picture_size",
        "is 32x24, the view's first picture is 64x48",
    ),
    "another kind": (PNG, "picture_kind", "is PNG, the view's first picture is not"),
    "two headers": (PNG[:33] + PNG[8:], "picture_unreadable", "is a damaged PNG: it has two headers"),
    "turned": (TURNED.getvalue(), "picture_unreadable", "has an orientation tag (EXIF: 6)"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_picture_that_cannot_be_kept(tmp_path: Path, case: str) -> None:
    data, kind, words = BAD[case]
    tables = {"episode_4": flat_table(6, 1), "episode_5": replaced(flat_table(6, 2), 3, data)}
    source = write_flat(tmp_path / "set", tables)
    text = error_of(source, tmp_path / "rec")
    assert f"{source}, episode 5: view cam0: row 3 of episode_5.parquet " in text and words in text
    assert "--lenient" in text
    assert Recording.open(tmp_path / "rec").episode_indices == [4]  # what was sealed before is not lost
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert report.frames == {"cam0": 9} and report.rows == 12
    (fault,) = report.faults
    assert fault.startswith(f"episode 5: {kind}: view cam0: row 3 of episode_5.parquet ") and words in fault
    assert "its frames from 3 on are left out" in fault
    recording = Recording.open(tmp_path / "lenient")
    (aligned,) = recording.aligned(["cam0"], episodes=[5])
    assert (len(aligned), aligned.dropped) == (3, {"unpaired": 3})
    assert {check.name: check.state for check in check_recording(recording)}["faults"] == "warn"


def test_a_picture_whose_data_is_damaged_is_named_and_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hurt = JPEG[: len(JPEG) * 2 // 3] + JPEG[-2:]  # its markers are whole
    table = replaced(replaced(flat_table(6, 2), 1, hurt), 3, hurt)
    source = write_flat(tmp_path / "set", {"episode_4": flat_table(6, 1), "episode_5": table})
    words = "row 1 of episode_5.parquet is a damaged JPEG (premature end of data segment) (and 1 more)"
    text = error_of(source, tmp_path / "rec")
    assert f"{source}, episode 5: view cam0: {words} - restore the file" in text and "--lenient" in text
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert report.faults == [f"episode 5: picture_damaged: view cam0: {words}; kept as it came"]
    assert report.frames == {"cam0": 12}  # none is lost, and the rows stay paired
    recording = Recording.open(tmp_path / "lenient")
    assert stored_jpegs(recording, 5, "cam0") == table["cam0_image"].to_pylist()
    assert recording.episode(5).damaged_frames("cam0") == dict.fromkeys(
        (1, 3), "premature end of data segment"
    )
    decoded = {check.name: check for check in check_recording(recording)}["decoded"]
    assert decoded.state == "warn" and decoded.evidence["damaged"] == {"5/cam0": [1, 3]}
    assert decoded.message == (
        "2 of 12 frames decode with damage: episode 5, view cam0, frame 1: premature end of data segment "
        "(and 1 more)"
    )
    assert capfd.readouterr() == ("", "")  # libjpeg's own words go nowhere else


def test_what_a_png_library_would_write_to_the_terminal_is_not_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        crc = zlib.crc32(kind + content)
        return len(content).to_bytes(4, "big") + kind + content + crc.to_bytes(4, "big")

    header = PNG.index(b"IDAT") - 4
    profile = PNG[:header] + chunk(b"iCCP", b"x\0\0" + zlib.compress(b"no profile")) + PNG[header:]
    cv2.imdecode(np.frombuffer(profile, np.uint8), cv2.IMREAD_COLOR)
    assert "libpng warning" in capfd.readouterr().err  # the case is one of those
    short = PNG[:header] + chunk(b"IDAT", zlib.compress(b"too few rows")) + chunk(b"IEND", b"")
    for data, problem in ((profile, None), (short, "picture_unreadable")):
        table = replaced(flat_table(3, 0, ".png"), 2, data)
        source = write_flat(tmp_path / f"set {problem}", {"episode_0": table})
        to = tmp_path / f"rec {problem}"
        report = import_recording(source, to, unit="degrees", lenient=problem is not None)
        assert report.frames == {"cam0": 2 if problem else 3}
        assert [fault.split(": ")[1] for fault in report.faults] == ([problem] if problem else [])
        if problem is None:
            last = list(Recording.open(to).episode(0).frames("cam0"))[2]
            np.testing.assert_array_equal(last, sets.picture(0, 3))
    assert capfd.readouterr() == ("", "")


def test_a_first_picture_that_is_damaged_does_not_stand_for_the_view(tmp_path: Path) -> None:
    tables = {"episode_1": replaced(flat_table(4, 1), 0, JPEG[:100]), "episode_2": flat_table(4, 2)}
    source = write_flat(tmp_path / "set", tables)
    assert "episode 1: view cam0: row 0 of episode_1.parquet" in error_of(source, tmp_path / "rec")
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert report.frames == {"cam0": 4}
    assert not Recording.open(tmp_path / "lenient").episode(1).has_view("cam0")
    (source / "episode_2.parquet").unlink()
    text = error_of(source, tmp_path / "none")
    assert "episode_1.parquet, column 'cam0_image': the first picture ends within its header" in text


def test_grey_and_palette_pngs_are_the_rgb_they_stand_for(tmp_path: Path) -> None:
    grey = sets.picture(0, 0)[..., 0]
    flat = sets.picture(0, 0) // 128 * 255  # 8 colours: a palette holds them all
    palette = io.BytesIO()
    PIL.Image.fromarray(flat).quantize(8, method=PIL.Image.Quantize.FASTOCTREE).save(palette, "PNG")
    given = [sets.encoded(grey, ".png"), palette.getvalue()]
    assert given[1][25] == 3  # its colour type
    table = flat_table(2)
    for row, data in enumerate(given):
        table = replaced(table, row, data)
    import_recording(write_flat(tmp_path / "set", {"e0": table}), tmp_path / "rec", unit="degrees")
    shown = list(Recording.open(tmp_path / "rec").episode(0).frames("cam0"))
    np.testing.assert_array_equal(shown[0], np.stack([grey] * 3, axis=2))
    expected = np.asarray(PIL.Image.open(io.BytesIO(given[1])).convert("RGB"))
    np.testing.assert_array_equal(shown[1], expected)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (sets.encoded(sets.picture(0, 0).astype(np.uint16) * 257, ".png"), "of RGB with 16 bits"),
        (cv2.imencode(".png", np.zeros((8, 8, 4), np.uint8))[1].tobytes(), "of RGB with transparency"),
        (PNG[:-20], "is cut off: the PNG does not end"),
        (PNG[:60] + bytes([PNG[60] ^ 1]) + PNG[61:], "is a damaged PNG: the checksum"),
        (PNG[:8] + PNG[33:], "does not begin with its header"),
        (b"\xff\xd8\xff\xc0\x00\x11\x08\xff\xff\xff\xff" + bytes(20), "claims 65535x65535 pixels"),
    ],
)
def test_pictures_by_their_headers(data: bytes, words: str) -> None:
    with pytest.raises(NotPicture, match=words):
        picture_header(data)


def test_a_png_that_claims_a_size_without_bounds(tmp_path: Path) -> None:
    import zlib

    content = b"IHDR" + (1 << 20).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    header = (13).to_bytes(4, "big") + content + zlib.crc32(content).to_bytes(4, "big")
    with pytest.raises(NotPicture, match="claims 1048576x1048576 pixels"):
        picture_header(PNG[:8] + header + PNG[33:])


# -- tables that cannot be read ----------------------------------------------------------------------------


def test_tables_that_are_wrong(tmp_path: Path) -> None:
    whole = flat_table(5)
    several = whole.set_column(0, "episode", pa.array([1, 1, 2, 2, 3]))
    cases: dict[str, tuple[pa.Table, str]] = {
        "joints": (
            whole.drop_columns(["arm_j2"]),
            "its joints: arm_j1; those of episode_1.parquet: arm_j1, arm_j2",
        ),
        "pictures": (
            whole.drop_columns(["cam0_image"]),
            "its pictures: none; those of episode_1.parquet: cam0_image",
        ),
        "clock": (whole.drop_columns(["t"]), "its clock: none; those of episode_1.parquet: t"),
        "episodes": (several, "column 'episode' holds 3 episodes: 1, 2, 3"),
        "rows": (whole.slice(0, 0), "has no rows"),
        "whole stamps": (
            whole.set_column(1, "t", pa.array([0, 50, 100, 150, 200])),
            "column 't' holds int64, expected seconds",
        ),
        "stamps": (whole.set_column(1, "t", pa.array([0, 1, np.nan, 3, 4])), "row 2: t nan is no time"),
    }
    for name, (table, words) in cases.items():
        source = write_flat(tmp_path / name, {"episode_1": whole, "episode_2": table})
        text = error_of(source, tmp_path / "rec")
        assert words in text and "episode_2.parquet" in text, text
        assert not (tmp_path / "rec").exists()  # all tables are read before anything is written
        report = import_recording(source, tmp_path / f"{name}-lenient", unit="degrees", lenient=True)
        assert report.episodes == [1] and "episode 2 is left out" in report.missing[-1]


def test_joints_that_are_not_there_or_not_named(tmp_path: Path) -> None:
    bare = flat_table(4).drop_columns(list(JOINTS))
    text = error_of(write_flat(tmp_path / "bare", {"e1": bare}), tmp_path / "rec")
    assert "e1.parquet: holds no joints" in text and "observation.state" in text
    odd = flat_table(4).rename_columns(["episode", "t", "a b", "arm_j2", "cam0_image"])
    assert "no usable names of joints: a b" in error_of(
        write_flat(tmp_path / "odd", {"e1": odd}), tmp_path / "rec"
    )
    word = flat_table(4).append_column("observation.state", pa.array(["x"] * 4))
    text = error_of(write_flat(tmp_path / "word", {"e1": word}), tmp_path / "rec")
    assert "column 'observation.state' is string" in text
    wide = flat_table(4)
    wide = wide.append_column("observation.state", pa.array([[1.0, 2.0], [1.0, 2.0], [1.0], [1.0, 2.0]]))
    text = error_of(write_flat(tmp_path / "wide", {"e1": wide}), tmp_path / "rec")
    assert "row 2: observation.state has 1 values, not 2" in text


def test_files_that_are_damaged_or_lead_elsewhere(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "set", {"episode_1": flat_table(4), "episode_2": flat_table(4)})
    path = source / "episode_1.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert "episode_1.parquet: has no parquet footer: it was cut off" in error_of(source, tmp_path / "rec")
    report = import_recording(source, tmp_path / "lenient", unit="degrees", lenient=True)
    assert report.episodes == [2]
    path.unlink()
    (tmp_path / "elsewhere.parquet").write_bytes(whole)
    path.symlink_to(tmp_path / "elsewhere.parquet")
    assert "a link that leads out of the folder" in error_of(source, tmp_path / "rec")
    path.unlink()
    path.symlink_to(path)
    assert "a link that leads out of the folder" in error_of(source, tmp_path / "rec")
    (tmp_path / "nothing").mkdir()
    text = error_of(tmp_path / "nothing", tmp_path / "rec")
    assert "is in no format that can be imported" in text
    for known in ("LeRobotDataset v2.1 and v3.0", "folder of parquet files", "ALOHA-style"):
        assert known in text


def test_a_column_named_twice(tmp_path: Path) -> None:
    table = flat_table(4)
    names = [*table.column_names[:-1], "arm_j1"]
    source = write_flat(tmp_path / "set", {"e1": table.rename_columns(names)})
    assert "e1.parquet: has two columns 'arm_j1'" in error_of(source, tmp_path / "rec")


# -- the way there -----------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from hardware.episode_writer import EpisodeWriter
from hardware.importers import import_recording
frame, count = EpisodeWriter.frame, [0]
def killing(self, *arguments):
    count[0] += 1
    if count[0] == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return frame(self, *arguments)
EpisodeWriter.frame = killing
import_recording(sys.argv[1], sys.argv[2], unit="degrees")
"""


@pytest.mark.parametrize("killed_at", [3, 9])
def test_an_import_that_was_killed_goes_on_and_ends_in_the_same_bytes(tmp_path: Path, killed_at: int) -> None:
    source = write_flat(tmp_path / "set", {f"episode_{e}": flat_table(6, e) for e in (1, 2, 3)})
    import_recording(source, tmp_path / "whole", unit="degrees")
    command = [sys.executable, "-c", KILLED, str(source), str(tmp_path / "rec"), str(killed_at)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert run.returncode == -signal.SIGKILL, run.stderr
    sealed = sorted(path.name for path in (tmp_path / "rec/episodes").glob("*.h5"))
    assert sealed == ["000001.h5"][: killed_at // 6]
    report = import_recording(source, tmp_path / "rec", unit="degrees")
    assert report.episodes == [1, 2, 3]
    assert (
        Recording.open(tmp_path / "rec").manifest_sha256 == Recording.open(tmp_path / "whole").manifest_sha256
    )
    assert sorted(os.listdir(tmp_path / "rec/episodes")) == ["000001.h5", "000002.h5", "000003.h5"]


def test_an_import_goes_on_only_with_the_same_files(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "set", {"episode_1": flat_table(6, 1), "episode_2": flat_table(6, 2)})
    import_recording(source, tmp_path / "rec", unit="degrees")
    pq.write_table(flat_table(8, 2), source / "episode_2.parquet")
    assert "was started with other settings (source.info_sha256" in error_of(source, tmp_path / "rec")


def test_damaged_tables_raise_input_errors_and_nothing_else(tmp_path: Path) -> None:
    flat = write_flat(tmp_path / "flat", {"episode_0": flat_table(9, 0), "episode_1": flat_table(9, 1)})
    lerobot = sets.write_v30(tmp_path / "lerobot", [8, 9], views=())
    sets.store_pictures(lerobot, KEY, {0: pictures(0, 8, ".png"), 1: pictures(1, 9, ".png")})
    rng = np.random.default_rng(7)
    outcomes = {"imported": 0, "refused": 0}
    for trial in range(45):
        whole, view = ((flat, "cam0"), (lerobot, "front"))[trial % 2]
        source = tmp_path / f"set{trial}"
        shutil.copytree(whole, source)
        path = rng.choice(sorted(source.rglob("*.parquet")))
        content = bytearray(path.read_bytes())
        first, last = sorted(rng.integers(0, len(content), 2).tolist())
        match trial % 3:
            case 0:
                content[first : first + 40] = rng.bytes(40)
            case 1:
                del content[first:last]
            case _:
                for place in rng.integers(0, len(content), 4):
                    content[place] = rng.integers(256)
        path.write_bytes(content)
        try:
            import_recording(source, tmp_path / f"rec{trial}", unit="degrees", lenient=True)
            recording = Recording.open(tmp_path / f"rec{trial}")
            for episode in map(recording.episode, recording.episode_indices):
                if episode.line.frames.get(view):
                    assert len(list(episode.frames(view))) == episode.frame_count(view)
            outcomes["imported"] += 1
        except InputError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 5, outcomes
