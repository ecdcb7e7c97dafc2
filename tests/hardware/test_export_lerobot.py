"""A LeRobotDataset made of a recording, as LeRobot's own reader finds it.

Tests that write one need the extra `lerobot`; the refusals run everywhere.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from export_recordings import hand_made, moving_pattern
from recordings import PERIOD_NS, START_NS, make_recording, scene, small_info

from hardware import InputError, Recording, RecordingWriter, View
from hardware.alignment import align
from hardware.exporters import export_lerobot
from hardware.importers import import_recording

needs_lerobot = pytest.mark.skipif(
    importlib.util.find_spec("lerobot") is None,
    reason="LeRobot is not installed (pip install -c constraints-lerobot.txt -e '.[dev,lerobot]')",
)


# -- refusals ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return make_recording(tmp_path_factory.mktemp("export") / "rec", episodes=3, frames=24)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"views": []}, "there are none"),
        ({"anchor": "top"}, "is not in the recording - its views: front, side"),
        ({"views": ["front", "back"]}, "is not in the recording"),
        ({"to": "{rec}"}, "already exists"),
        ({"to": "{rec}/set"}, "lies inside the recording"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    recording: Recording, tmp_path: Path, options: dict, words: str
) -> None:
    to = str(options.pop("to", tmp_path / "set")).format(rec=recording.folder)
    with pytest.raises(InputError, match=words):
        export_lerobot(recording.folder, to, **options)
    assert not any(tmp_path.iterdir())


def test_video_of_tiny_frames_is_refused_since_the_encoder_would_end_the_process(tmp_path: Path) -> None:
    small = View(name="front", width=16, height=64, fps=10, encoding="rgb8")
    with RecordingWriter.create(tmp_path / "rec", small_info(views=(small,))) as writer:
        with writer.episode(0) as episode:
            episode.joints([START_NS], np.zeros((1, 2)))
            episode.frame("front", START_NS, 0, np.zeros((64, 16, 3), np.uint8))
    with pytest.raises(
        InputError, match=r"is 16x64, and LeRobot's video needs 32 pixels a side - .* --images"
    ):
        export_lerobot(tmp_path / "rec", tmp_path / "set")


def test_without_the_extra_the_error_names_it(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lerobot", "lerobot.datasets", "lerobot.datasets.lerobot_dataset"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"needs LeRobot .* - pip install 'jointprobe\[lerobot\]'"):
        export_lerobot(recording, tmp_path / "set")
    assert not any(tmp_path.iterdir())


# -- read by LeRobot ---------------------------------------------------------------------------------------


def opened(folder: Path):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    return LeRobotDataset("local/test", root=folder, video_backend="pyav")


def sources(recording: Recording, views: list[str]):
    """(aligned episode, its frames by view) of each episode."""
    for aligned in recording.aligned(views):
        yield aligned, {view: list(aligned.episode.frames(view, aligned.frame_index[view])) for view in views}


def picture(item: dict, view: str) -> np.ndarray:
    """RGB uint8 (H, W, 3) of what LeRobot gives as float (3, H, W)."""
    return np.round(item[f"observation.images.{view}"].numpy().transpose(1, 2, 0) * 255).astype(np.uint8)


@needs_lerobot
def test_images_come_back_pixel_for_pixel_with_their_true_times(recording: Recording, tmp_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    report = export_lerobot(
        recording,
        tmp_path / "set",
        anchor="side",
        images=True,
        task="watch",
        progress=lambda *call: calls.append(call),
    )
    dataset = opened(tmp_path / "set")
    assert (dataset.meta.total_episodes, len(dataset), dataset.meta.fps) == (3, report.rows, 10)
    assert report.views == ["side", "front"] and report.rows == 72 and report.dropped == {}
    assert calls[-1][:2] == (72, 72) and [call[0] for call in calls] == sorted(call[0] for call in calls)
    row = 0
    for number, (aligned, frames) in enumerate(sources(recording, ["side", "front"])):
        for at in range(len(aligned)):
            item = dataset[row]
            assert (item["episode_index"], item["frame_index"], item["index"]) == (number, at, row)
            assert item["task"] == "watch"
            for view in ("side", "front"):
                np.testing.assert_array_equal(picture(item, view), frames[view][at])
                captured = aligned.episode.frame_times(view)[aligned.frame_index[view][at]]
                assert item[f"time_ns.{view}"].item() == captured
            assert item["time_ns"].item() == aligned.time_ns[at]
            np.testing.assert_allclose(item["observation.state"], np.rad2deg(aligned.position[at]), rtol=1e-6)
            log = aligned.episode.actions()
            sent = log.target[log.time_ns <= aligned.time_ns[at]][-1]
            np.testing.assert_allclose(item["action"], np.rad2deg(sent), rtol=1e-6)
            row += 1
    assert row == len(dataset)


@needs_lerobot
def test_every_frame_of_a_video_is_its_own(tmp_path: Path) -> None:
    """Each decoded frame is nearer to its own source frame than to any other of its episode."""
    recording = moving_pattern(tmp_path / "rec", episodes=3, frames=20)
    report = export_lerobot(recording, tmp_path / "set")
    dataset = opened(tmp_path / "set")
    assert len(dataset) == report.rows == 63
    row, psnr = 0, []
    for _, frames in sources(recording, ["front", "wrist"]):
        for at in range(len(frames["front"])):
            item = dataset[row]
            for view, images in frames.items():
                error = [np.mean((picture(item, view) - image.astype(float)) ** 2) for image in images]
                assert np.argmin(error) == at, (row, view)
                psnr.append(10 * np.log10(255**2 / error[at]))
            row += 1
    print(f"PSNR {min(psnr):.1f} dB at least, {np.median(psnr):.1f} dB median")
    assert min(psnr) > 28  # at LeRobot's crf 30
    for path in (tmp_path / "set").rglob("*.mp4"):
        assert path.stat().st_mode & 0o044 == 0o044 & ~umask()


@needs_lerobot
def test_dropped_rows_are_reported_and_the_others_stay_in_step(tmp_path: Path) -> None:
    recording = hand_made(tmp_path / "rec", action_at_ms=[150], hole=(350, 640))
    report = export_lerobot(recording, tmp_path / "set", images=True)
    dataset = opened(tmp_path / "set")
    frames = list(recording.episode(0).frames("front"))
    kept = [round((dataset[row]["time_ns"].item() - START_NS) / 1e8 - 0.05) for row in range(len(dataset))]
    assert kept == [2, 3, 7, 8, 9, 10, 11]
    for row, number in enumerate(kept):
        np.testing.assert_array_equal(picture(dataset[row], "front"), frames[number])
    assert report.dropped == {"joints": 3, "actions": 2}
    readme = (tmp_path / "set" / "README.md").read_text()
    assert "3 rows dropped: no joint samples around the frame's time" in readme
    assert "2 rows dropped: before the first action" in readme
    facts = json.loads((tmp_path / "set" / "jointprobe.json").read_text())
    assert facts["made_of"]["manifest_sha256"] == recording.manifest_sha256
    assert facts["episodes"][0]["start_monotonic_ns"] == recording.episode(0).clocks()["start_monotonic_ns"]


@needs_lerobot
def test_a_recording_without_actions_is_read_and_says_so(tmp_path: Path) -> None:
    report = export_lerobot(hand_made(tmp_path / "rec", action_at_ms=None), tmp_path / "set", images=True)
    assert "action" not in opened(tmp_path / "set")[0]
    assert any(line.startswith("no action") for line in report.notes)


@needs_lerobot
def test_a_policy_is_offered_joints_and_pictures_and_no_clock(recording: Recording, tmp_path: Path) -> None:
    try:
        from lerobot.utils.feature_utils import dataset_to_policy_features
    except ImportError:
        from lerobot.datasets.utils import dataset_to_policy_features

    export_lerobot(recording, tmp_path / "set", episodes=[1], images=True)
    offered = dataset_to_policy_features(opened(tmp_path / "set").meta.features)
    images = {"observation.images.front", "observation.images.side"}
    assert set(offered) == {"observation.state", "action", *images}


@needs_lerobot
def test_our_importer_reads_it_back(recording: Recording, tmp_path: Path) -> None:
    export_lerobot(recording, tmp_path / "set", episodes=[2, 0])
    import_recording(tmp_path / "set", tmp_path / "again", unit="degrees")
    again = Recording.open(tmp_path / "again")
    for new, old in ((0, 2), (1, 0)):
        expected = align(recording.episode(old), ["front", "side"]).position
        np.testing.assert_allclose(again.episode(new).joints().position, expected, atol=1e-6)
        assert again.episode(new).frame_count("side") == 24


@needs_lerobot
@pytest.mark.parametrize(
    ("images", "lost", "words"),
    [
        (False, 49, "did not write what it was given; .* 129 frames of front for 130 rows"),
        (False, 50, "could not write frame-000050.png"),  # one of those that it reads for statistics
        (True, 49, "could not write frame-000049.png"),
    ],
)
def test_a_frame_that_lerobot_loses_quietly_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: bool, lost: int, words: str
) -> None:
    """LeRobot prints an error for an image it cannot write and saves the episode one frame short."""
    import PIL.Image

    long = make_recording(tmp_path / "rec", episodes=1, frames=130)  # of so many, not all are read for stats
    save = PIL.Image.Image.save

    def fail_once(self, path, *arguments, **options):
        if f"frame-{lost:06d}" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return save(self, path, *arguments, **options)

    monkeypatch.setattr(PIL.Image.Image, "save", fail_once)
    with pytest.raises(InputError, match=words):
        export_lerobot(long, tmp_path / "set", views=["front"], images=images)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rec"]


@needs_lerobot
def test_episodes_without_a_view_are_left_out_and_named(tmp_path: Path) -> None:
    with RecordingWriter.create(tmp_path / "rec", small_info()) as writer:
        for index, views in enumerate((("front", "side"), ("front",))):
            with writer.episode(index) as episode:
                samples = START_NS + PERIOD_NS * np.arange(60)
                episode.joints(samples, np.zeros((60, 2)))
                episode.actions(samples, np.zeros((60, 2)))
                for number in range(5):
                    for view in views:
                        at = START_NS + 100_000_000 * number + 5_000_000
                        image = scene(np.array([number / 5, 0.0]))
                        episode.frame(view, at, number, image if view == "front" else _jpeg(image))
    report = export_lerobot(tmp_path / "rec", tmp_path / "set", images=True)
    assert [one.episode for one in report.episodes] == [0] and report.left_out == [1]
    with pytest.raises(InputError, match="episode 1: has no frames of view 'side'"):
        export_lerobot(tmp_path / "rec", tmp_path / "named", episodes=[0, 1])
    both = export_lerobot(tmp_path / "rec", tmp_path / "front", views=["front"], images=True)
    assert [one.episode for one in both.episodes] == [0, 1]


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _jpeg(image: np.ndarray) -> bytes:
    import cv2

    return cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))[1].tobytes()
