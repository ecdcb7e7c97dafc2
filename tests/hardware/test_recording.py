from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
from fractions import Fraction
from pathlib import Path

import av
import h5py
import numpy as np
import pytest

from hardware import InputError, Recording, RecordingInfo, RecordingWriter, View
from hardware.alignment import nearest_frames
from hardware.schema import load_yaml, parse_model
from tests.recordings import PERIOD_NS, START_NS, make_recording, scene, small_info

GOLDEN = Path(__file__).parents[1] / "golden"
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return make_recording(tmp_path_factory.mktemp("recordings") / "small")


def test_streams_come_back_as_they_were_written(recording: Recording) -> None:
    episode = recording.episode(1)
    joints, actions = episode.joints(), episode.actions()
    assert joints.time_ns[0] == START_NS and np.all(np.diff(joints.time_ns) == PERIOD_NS)
    assert actions is not None and np.allclose(actions.target[:-1], joints.position[1:])
    front = list(episode.frames("front"))
    times = episode.frame_times("front")
    expected = scene(np.array([np.interp(times[7], joints.time_ns, joints.position[:, j]) for j in range(2)]))
    assert np.array_equal(front[7], expected)
    side = next(iter(episode.frames("side", [7])))
    assert np.abs(side.astype(int) - expected[::-1, ::-1]).mean() < 8  # JPEG, but red stays red
    assert episode.knots() is None and episode.faults() == []


def test_golden_recording_yaml_and_episode_layout(recording: Recording) -> None:
    """The content of the format: change it only together with the schema's version."""
    assert (GOLDEN / "recording.yaml").read_text() == (recording.folder / "recording.yaml").read_text()
    layout = []
    with h5py.File(recording.episode(0).path) as file:
        layout += [f"{name} {file.attrs[name]}" for name in sorted(file.attrs)]
        file.visititems(
            lambda name, item: (
                layout.append(f"{name} {item.dtype} {item.shape} fletcher32={item.fletcher32}")
                if isinstance(item, h5py.Dataset) and not name.endswith("side/data")
                else None
            )
        )
    assert (GOLDEN / "episode.txt").read_text() == "\n".join(layout) + "\n"


def test_golden_recording_is_still_read() -> None:
    info = parse_model(RecordingInfo, load_yaml(GOLDEN / "recording.yaml"), "golden")
    assert info.view_names == ["front", "side"] and info.joint_names == ["joint0", "joint1"]


def test_aligned_interpolates_joints_at_frame_times(recording: Recording) -> None:
    aligned = next(recording.aligned(["front", "side"], [2]))
    joints = recording.episode(2).joints()
    slow = [np.interp(t, joints.time_ns, joints.position[:, 0]) for t in aligned.time_ns]
    assert np.allclose(aligned.position[:, 0], slow, atol=1e-12)
    assert np.array_equal(aligned.frame_index["side"], aligned.anchor_frame)
    batches = list(aligned.batches(8, image_size=(16, 16)))
    assert [batch.shape for batch in batches] == [(8, 2, 16, 16, 3), (8, 2, 16, 16, 3), (4, 2, 16, 16, 3)]


def test_alignment_drops_and_counts_what_it_cannot_pair(tmp_path: Path) -> None:
    info = small_info()
    with RecordingWriter.create(tmp_path / "r", info) as writer, writer.episode(0) as episode:
        samples = START_NS + PERIOD_NS * np.arange(100)
        kept = np.r_[0:40, 60:100]  # a gap of 21 periods in the joints
        episode.joints(samples[kept], np.zeros((len(kept), 2)))
        for number, at_ms in enumerate(
            (-5, 0, 95, 300, 395, 450, 500, 700, 990, 995)
        ):  # frame 5 falls into the gap
            episode.frame("front", START_NS + at_ms * 1_000_000, number, np.zeros((32, 32, 3), np.uint8))
        jpeg = b"\xff\xd8 never decoded here"
        for number, at_ms in enumerate((-5, 0, 100, 600, 995)):  # nothing near 300, 395, 700
            episode.frame("side", START_NS + at_ms * 1_000_000, number, jpeg)
    aligned = next(Recording.open(tmp_path / "r").aligned(["front", "side"]))
    # -5 and 995 lie outside the joints (never extrapolated), 395, 450 and 500 in the gap; 300 and 700 lack a
    # frame of `side` that is near enough
    assert aligned.dropped == {"joints": 5, "side": 2}
    assert ((aligned.time_ns - START_NS) // 1_000_000).tolist() == [0, 95, 990]
    assert aligned.frame_index["side"].tolist() == [1, 2, 4]


def camera_ns(phase: float, count: int, seed: int) -> np.ndarray:
    """30 frames a second, captured with 1 ms of jitter (std), from `phase` periods on."""
    jitter_ns = np.random.default_rng(seed).normal(0, 1e6, count)
    return START_NS + np.round((np.arange(count) + phase) * (1e9 / 30) + jitter_ns).astype(np.int64)


@pytest.mark.parametrize("phase", [0.0, 0.3, 0.5, 0.7])
def test_no_row_is_lost_between_two_cameras_of_one_rate(phase: float) -> None:
    at, frames = camera_ns(1, 3000, 1), camera_ns(phase, 3002, 2)
    nearest, valid = nearest_frames(frames, at, 1e9 / 30)
    assert valid.all()
    brute = np.abs(frames - at[:, None]).argmin(axis=1)
    np.testing.assert_array_equal(nearest, brute)
    if phase == 0.5:  # what half the declared period would lose
        assert (np.abs(frames[brute] - at) > 0.5e9 / 30).sum() > 300


@pytest.mark.parametrize(("phase", "missing"), [(0.0, [50]), (0.3, [50]), (0.5, [50, 51])])
def test_rows_at_a_dropped_frame_are_lost_and_no_others(phase: float, missing: list[int]) -> None:
    at, frames = camera_ns(0, 100, 1), camera_ns(phase, 102, 2) - 33_333_333
    kept = np.delete(frames, missing)
    _, valid = nearest_frames(kept, at, 1e9 / 30)
    valid[[0, -1]] = True
    far = np.abs(kept - at[:, None]).min(axis=1) > 0.5e9 / 30
    inside = (at > frames[missing[0] - 1]) & (at < frames[missing[-1] + 1])
    np.testing.assert_array_equal(~valid, far & inside)
    assert 1 <= (~valid).sum() <= len(missing) + 1


def test_a_slower_view_is_near_within_half_of_its_own_period_and_not_at_its_ends() -> None:
    frames = np.array([100, 200, 300, 461, 561])  # one step of 1.61 periods
    at = np.array([49, 50, 145, 155, 249, 350, 351, 380, 410, 411, 500, 611, 612])
    nearest, valid = nearest_frames(frames, at, 100)
    assert nearest.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4]
    assert valid.tolist() == [False, *[True] * 5, False, False, False, True, True, True, False]
    assert not nearest_frames(frames[:0], at, 100)[1].any()


def test_two_cameras_half_a_period_apart_give_every_row(tmp_path: Path) -> None:
    views = tuple(View(name=name, width=8, height=8, fps=30, encoding="rgb8") for name in ("front", "side"))
    with (
        RecordingWriter.create(tmp_path / "r", small_info(views=views, actions=None)) as writer,
        writer.episode(0) as episode,
    ):
        samples = START_NS + PERIOD_NS * np.arange(500)
        episode.joints(samples, np.zeros((500, 2)))
        for view, times in (("front", camera_ns(1, 100, 1)), ("side", camera_ns(0.5, 101, 2))):
            for number, time_ns in enumerate(times):
                episode.frame(view, int(time_ns), number, np.zeros((8, 8, 3), np.uint8))
    (aligned,) = Recording.open(tmp_path / "r").aligned(["front", "side"])
    assert (len(aligned), aligned.dropped) == (100, {})


def test_interpolation_is_exact_for_large_clocks(tmp_path: Path) -> None:
    boot = 2**60 + 1  # about 36 years of nanoseconds: float64 would be 256 ns off
    info = small_info(joints=1)
    with RecordingWriter.create(tmp_path / "r", info) as writer, writer.episode(0) as episode:
        episode.joints([boot, boot + 10], np.array([[0.0], [10.0]]))
        episode.frame("front", boot + 3, 0, np.zeros((32, 32, 3), np.uint8))
    assert next(Recording.open(tmp_path / "r").aligned(["front"])).position[0, 0] == 3.0


def test_video_packets_are_kept_and_decoded_in_order(tmp_path: Path) -> None:
    path, images = tmp_path / "v.mp4", [np.full((32, 32, 3), 20 * number, np.uint8) for number in range(12)]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10, options={"g": "4"})
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    info = small_info(views=(View(name="top", width=32, height=32, fps=10, encoding="video"),), pairing="row")
    with RecordingWriter.create(tmp_path / "r", info) as writer, writer.episode(0) as episode:
        episode.joints(np.arange(9) * 55_000_000, np.zeros((9, 2)))
        episode.video(
            "top",
            path.read_bytes(),
            pts=np.arange(9) * 512,
            time_base=Fraction(1, 5120),
            time_ns=np.arange(9) * 100_000_000,
            skip=2,
        )
    aligned = next(Recording.open(tmp_path / "r").aligned(["top"]))
    frames = np.concatenate(list(aligned.batches(4)))
    assert np.abs(frames[:, 0, 16, 16, 0].astype(int) - 20 * np.arange(2, 11)).max() <= 4
    with h5py.File(tmp_path / "r/episodes/000000.h5") as file:
        assert file["views/top/video"][()].tobytes() == path.read_bytes()


def test_frames_may_repeat_but_not_go_back(recording: Recording) -> None:
    episode = recording.episode(0)
    assert len(list(episode.frames("front", [3, 3, 4]))) == 3
    with pytest.raises(InputError, match="frame numbers must rise from 0 to 19"):
        list(episode.frames("front", [4, 3]))


def test_clean_errors_name_file_and_remedy(recording: Recording, tmp_path: Path) -> None:
    for folder, text in ((tmp_path / "none", "is not a folder"), (tmp_path, "holds no recording.yaml")):
        with pytest.raises(InputError, match=text):
            Recording.open(folder)
    with pytest.raises(InputError, match="its views: front, side"):
        next(recording.aligned(["wrist"]))
    with pytest.raises(InputError, match="it holds 4: 0 to 3"):
        recording.episode(9)
    with RecordingWriter.create(tmp_path / "empty", small_info()):
        pass
    with pytest.raises(InputError, match="holds no sealed episode"):
        Recording.open(tmp_path / "empty")


def test_nan_joints_are_refused_by_writer_and_reader(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", episodes=2, frames=4)
    with RecordingWriter.resume(tmp_path / "r", recording.info) as writer:
        with pytest.raises(InputError, match=r"row 1, joint joint0: nan"), writer.episode(2) as episode:
            episode.joints([1, 2], np.array([[0.0, 0.0], [np.nan, 0.0]]))
        assert writer.sealed == {0, 1}
    with h5py.File(recording.episode(1).path, "r+") as file:
        file["joints/position"][5, 1] = np.inf
    with pytest.raises(InputError, match=r"row 5, joint joint1: inf"):
        recording.episode(1).joints()
    with pytest.raises(InputError, match="has changed since it was sealed"):
        recording.episode(1).verify()


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.99])
def test_truncated_episode_is_one_clear_error(tmp_path: Path, share: float) -> None:
    recording = make_recording(tmp_path / "r", episodes=1, frames=12)
    path = recording.episode(0).path
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(InputError, match=r"000000\.h5: (is truncated|is not a readable HDF5 file)"):
        recording.episode(0).joints()


def test_flipped_bytes_never_pass_unseen(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", episodes=1, frames=6)
    path = recording.episode(0).path
    whole = bytearray(path.read_bytes())
    for place in np.random.default_rng(5).integers(0, len(whole), 60):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="has changed since it was sealed"):
            recording.episode(0).verify()


def test_links_and_outside_data_are_refused(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", episodes=3, frames=4)
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"x" * 64)
    with h5py.File(recording.episode(0).path, "r+") as file:
        file["views/front/other"] = h5py.ExternalLink("elsewhere.h5", "/data")
    with h5py.File(recording.episode(1).path, "r+") as file:
        file.create_dataset("outside", (8,), "f8", external=[(str(secret), 0, 64)])
    with h5py.File(recording.episode(2).path, "r+") as file:
        del file["joints/position"]
        file.create_dataset(
            "joints/position", (1 << 40, 2), "f8", chunks=(512, 2)
        )  # claims 16 TiB, stores nothing
    for index, text in ((0, "external link"), (1, "outside the file"), (2, "stores none")):
        with pytest.raises(InputError, match=text):
            recording.episode(index).joints()


def test_manifest_faults_are_named(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", episodes=2, frames=4)
    path = recording.folder / "manifest.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-20])
    with pytest.raises(InputError, match=r"manifest\.jsonl, line 2: is torn"):
        Recording.open(recording.folder)
    path.write_text(whole.replace('"episode":1', '"episode":0'))
    with pytest.raises(InputError, match="lists episode 0 twice"):
        Recording.open(recording.folder)
    path.write_text(whole.replace("episodes/000001.h5", "../000001.h5"))
    with pytest.raises(InputError, match=r"line 2: field 'file'"):
        Recording.open(recording.folder)


def test_resume_adopts_what_the_manifest_lacks_and_cuts_a_torn_line(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", episodes=3, frames=4)
    path = recording.folder / "manifest.jsonl"
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    again = make_recording(tmp_path / "r", episodes=4, frames=4)
    assert again.episode_indices == [0, 1, 2, 3]
    assert [line.sha256 for line in again.manifest[:3]] == [line.sha256 for line in recording.manifest]


def test_resume_refuses_other_settings_and_a_second_writer(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", episodes=1, frames=4)
    with pytest.raises(InputError, match=r"other settings \(joints_hz: 100\.0, now 50\.0\)"):
        RecordingWriter.resume(recording.folder, small_info(joints_hz=50))
    with RecordingWriter.resume(recording.folder, recording.info):
        with pytest.raises(InputError, match="being written by another process"):
            RecordingWriter.resume(recording.folder, recording.info)
    with pytest.raises(InputError, match="already exists"):
        RecordingWriter.create(recording.folder, recording.info)


def test_unknown_key_names_the_nearest_one(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", episodes=1, frames=4)
    path = recording.folder / "recording.yaml"
    path.write_text(path.read_text().replace("joints_hz:", "joint_hz:"))
    with pytest.raises(
        InputError, match=r"recording\.yaml: unknown key 'joint_hz' - did you mean 'joints_hz'\?"
    ):
        Recording.open(recording.folder)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &x [1]\nb: *x\n", "aliases"),
        ("a: 1\na: 2\n", "appears twice"),
        ("a: !!python/object/apply:os.system ['true']\n", "not valid YAML"),
        ("a: [\n", "not valid YAML"),
        ("x" * (1 << 21), "more than the"),
        ("[" * 5000, "(nested too deeply|not valid YAML)"),
    ],
)
def test_hostile_yaml_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=problem):
        load_yaml(path)


RECORD_FOREVER = """
    import sys
    from tests.recordings import make_recording
    make_recording(sys.argv[1], episodes=1000, frames=int(sys.argv[2]))
"""


def _record_in_a_process(folder: Path, frames: int, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(RECORD_FOREVER), str(folder), str(frames)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE, text=True, **options
    )


def test_sealed_episodes_survive_kill_9(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    process = _record_in_a_process(folder, 30)
    manifest = folder / "manifest.jsonl"
    while process.poll() is None and (not manifest.exists() or manifest.read_text().count("\n") < 5):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    acknowledged = manifest.read_text().count("\n")
    recording = make_recording(folder, episodes=acknowledged + 2, frames=30)
    assert len(recording.manifest) >= acknowledged + 2
    for index in recording.episode_indices:
        recording.episode(index).verify()
        assert recording.episode(index).frame_count("front") == 30


def test_a_full_disk_is_one_clear_error_and_loses_nothing(tmp_path: Path) -> None:
    """A file-size limit makes every write beyond it fail, as a full disk does, without needing one."""
    make_recording(tmp_path / "r", episodes=2, frames=4)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    process = _record_in_a_process(tmp_path / "r", 4000, preexec_fn=limit)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "InputError" in errors.splitlines()[-1] and "the disk is full" in errors.splitlines()[-1], errors
    recording = Recording.open(tmp_path / "r")
    assert recording.episode_indices == [0, 1]
    recording.episode(1).verify()


def test_manifest_is_plain_json_lines(recording: Recording) -> None:
    lines = (recording.folder / "manifest.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    assert list(first) == ["episode", "file", "sha256", "bytes", "joint_rows", "frames", "seconds", "faults"]
    assert (
        first["frames"] == {"front": 20, "side": 20}
        and first["joint_rows"] == 205
        and first["seconds"] == 2.04
    )
