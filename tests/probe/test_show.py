"""The picture of an episode: what stands on the page is what the recording holds, and nothing else."""

from __future__ import annotations

import io
import json
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from matplotlib.figure import Figure
from recordings import PERIOD_NS, START_NS, make_recording, small_info

from hardware import Actions, InputError, Joint, Recording, RecordingInfo, RecordingWriter, View
from probe.episode_page import FAULT, MEASURED, MUTED
from probe.episode_streams import gaps, pace, read_streams
from probe.show import draw_episode, draw_recording


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return make_recording(tmp_path_factory.mktemp("show") / "walk", episodes=3, frames=20, knots=True)


def info_of(joints: list[Joint] | None = None, **changes: object) -> RecordingInfo:
    """The settings of a recording without views and actions, unless said otherwise."""
    info = small_info(**{"views": (), "actions": None, **changes})
    return info if joints is None else info.model_copy(update={"joints": joints})


def figure_of(recording: Recording, index: int = 0, frames: int = 8) -> Figure:
    return draw_episode(recording, read_streams(recording.episode(index)), frames)


def words(figure: Figure) -> list[str]:
    """All text on the page, legend and axes aside."""
    return [text.get_text() for text in figure.texts]


def pictures(figure: Figure) -> list[np.ndarray]:
    return [np.asarray(image.get_array()) for axes in figure.axes for image in axes.get_images()]


def panels(figure: Figure) -> list:
    """The axes of the joints, from the top down."""
    return [axes for axes in figure.axes if any(line.get_label() == "measured" for line in axes.lines)]


def line(axes, label: str) -> tuple[np.ndarray, np.ndarray] | None:
    for one in axes.lines:
        if one.get_label() == label:
            return np.asarray(one.get_xdata(), float), np.asarray(one.get_ydata(), float)
    return None


# -- the file ----------------------------------------------------------------------------------------------


def test_the_picture_is_a_png_named_after_recording_and_episode(
    walk: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, facts = draw_recording(walk.folder)
    assert path == Path("walk-000000.png")
    image = cv2.imread(str(tmp_path / path))
    assert image.shape[1] == 1560 and image.shape[0] > 500
    blue = [int(MEASURED[at : at + 2], 16) for at in (5, 3, 1)]  # OpenCV gives BGR
    assert (image == blue).all(axis=2).sum() > 500
    assert draw_recording(walk, 2)[0] == Path("walk-000002.png")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["walk-000000.png", "walk-000002.png"]
    json.dumps(facts)


def test_the_same_episode_gives_the_same_bytes_and_replaces_the_picture(
    walk: Recording, tmp_path: Path
) -> None:
    first, _ = draw_recording(walk, 1, tmp_path / "a.png")
    kept = first.read_bytes()
    draw_recording(walk, 1, tmp_path / "a.png")
    assert first.read_bytes() == kept
    assert [one.name for one in tmp_path.iterdir()] == ["a.png"]


def test_a_name_with_signs_of_mathematics_is_a_name(tmp_path: Path) -> None:
    make_recording(tmp_path / "walk_$x^2$", episodes=1, frames=5)
    assert "walk_$x^2$, episode 0" in words(figure_of(Recording.open(tmp_path / "walk_$x^2$")))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"episode": 9}, "episode 9: does not exist"),
        ({"to": "picture.jpg"}, "is no name of a PNG picture"),
        ({"frames": 0}, "0 is no number of frames"),
        ({"to": "nowhere/picture.png"}, "cannot be written: No such file or directory"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    walk: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=problem):
        draw_recording(walk, **options)
    assert not any(tmp_path.iterdir())


# -- frames ------------------------------------------------------------------------------------------------


def test_frames_are_spread_evenly_from_the_first_to_the_last(walk: Recording) -> None:
    figure = figure_of(walk, 1, frames=5)
    expected = [0, 5, 10, 14, 19]  # of twenty
    for at, view in enumerate(("front", "side")):
        stored = list(walk.episode(1).frames(view))
        for number, image in zip(expected, pictures(figure)[5 * at : 5 * at + 5]):
            np.testing.assert_array_equal(image, stored[number])
    captions = [text for text in words(figure) if text.endswith(" s")]
    assert captions == [f"{number * 0.1 + offset:.2f} s" for offset in (0.003, 0.007) for number in expected]


@pytest.mark.parametrize(("frames", "shown"), [(1, 1), (40, 20)])
def test_no_frame_is_shown_twice_and_none_is_invented(walk: Recording, frames: int, shown: int) -> None:
    assert len(pictures(figure_of(walk, 0, frames))) == 2 * shown


def imported(folder: Path, rows: int) -> Recording:
    """Rows at 9 Hz that pair by number with a video of 10 Hz."""
    view = View(name="top", width=48, height=32, fps=10, encoding="video")
    joints = [Joint(name="turn"), Joint(name="gripper", unit="percent")]
    info = info_of(joints, views=(view,), pairing="row", motion="imported", joints_hz=10)
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv420p"
        for number in range(rows):
            picture = np.full((32, 48, 3), 25 * number, np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode())
    buffer.seek(0)
    with av.open(buffer) as file:
        pts = np.array([frame.pts for frame in file.decode(video=0)])
        base = Fraction(file.streams.video[0].time_base)
    with RecordingWriter.create(folder, info) as writer, writer.episode(0) as episode:
        times = np.round(np.arange(rows) / 9 * 1e9).astype(np.int64)
        episode.joints(times, np.stack([np.arange(rows) / 10, np.full(rows, 40.0)], axis=1))
        in_ns = np.round(pts * float(base) * 1e9).astype(np.int64)
        episode.video("top", buffer.getvalue(), pts=pts, time_base=base, time_ns=in_ns)
        episode.clocks(start=(0, 0), end=(int(times[-1]), 0))
    return Recording.open(folder)


def test_frames_of_an_imported_video_stand_at_the_times_of_their_rows(tmp_path: Path) -> None:
    recording = imported(tmp_path / "rec", rows=9)
    figure = figure_of(recording, frames=3)
    stored = list(recording.episode(0).frames("top"))
    assert len(pictures(figure)) == 3
    for image, number in zip(pictures(figure), (0, 4, 8)):
        np.testing.assert_array_equal(image, stored[number])
        assert abs(image.mean() - 25 * number) < 6
    assert [text for text in words(figure) if text.endswith(" s")] == ["0.00 s", "0.44 s", "0.89 s"]
    assert any("pair by number" in text for text in words(figure))
    assert "9.00 Hz" in words(figure) and "10.00 Hz" in words(figure)  # the table's clock, the video's clock


def test_an_episode_that_lacks_a_view_is_drawn_with_the_others(tmp_path: Path) -> None:
    with RecordingWriter.create(tmp_path / "rec", small_info()) as writer:
        for index, views in enumerate((["front"], [])):
            with writer.episode(index) as episode:
                episode.joints(START_NS + PERIOD_NS * np.arange(30), np.zeros((30, 2)))
                for view in views:
                    episode.frame(view, START_NS, 0, np.zeros((32, 32, 3), np.uint8))
    recording = Recording.open(tmp_path / "rec")
    assert len(pictures(figure_of(recording, 0))) == 1
    assert pictures(figure_of(recording, 1)) == []
    path, facts = draw_recording(recording, 1, tmp_path / "p.png")
    assert path.is_file() and list(facts["streams"]) == ["joints"]


# -- traces ------------------------------------------------------------------------------------------------


def test_each_joint_shows_what_was_measured_sent_and_meant(walk: Recording) -> None:
    episode = walk.episode(0)
    joints, actions, knots = episode.joints(), episode.actions(), episode.knots()
    shown = panels(figure_of(walk))
    assert len(shown) == 2
    for number, axes in enumerate(shown):
        for label, log, values in (
            ("measured", joints, joints.position),
            ("target", actions, actions.target),
            ("knots", knots, knots.position),
        ):
            times, degrees = line(axes, label)
            np.testing.assert_allclose(times, (log.time_ns - START_NS) / 1e9)
            np.testing.assert_allclose(degrees, np.rad2deg(values[:, number]))
            assert axes.get_ylim()[0] < degrees.min() and degrees.max() < axes.get_ylim()[1]
        assert axes.lines[1].get_drawstyle() == "steps-post"  # a target is held until the next


def hand_made(
    folder: Path, position: np.ndarray, keep: np.ndarray | None = None, joints: list[Joint] | None = None
) -> Recording:
    """One episode of joints at 100 Hz without views."""
    with RecordingWriter.create(folder, info_of(joints)) as writer:
        with writer.episode(3) as episode:
            times = START_NS + PERIOD_NS * np.arange(len(position))
            keep = np.ones(len(position), bool) if keep is None else keep
            episode.joints(times[keep], position[keep])
            episode.fault("bus_timeout", "joints", "no answer", START_NS + 250_000_000)
            episode.fault("bus_timeout", "joints", "no answer", START_NS + 300_000_000)
            episode.fault("space", "disk", "little", START_NS + 900_000_000)
            episode.fault("no_video", "front", "noted without a time")
            episode.clocks(start=(START_NS, START_NS), end=(START_NS + 10**9, START_NS + 10**9))
    return Recording.open(folder)


def test_no_line_bridges_a_gap_and_faults_and_gaps_have_lines_of_their_own(tmp_path: Path) -> None:
    keep = np.ones(100, bool)
    keep[20:35] = False
    keep[60:62] = False  # two lost samples: alignment bridges them, and so does the line
    recording = hand_made(tmp_path / "rec", np.zeros((100, 2)), keep)
    figure = figure_of(recording, 3)
    times, degrees = line(panels(figure)[0], "measured")
    assert np.flatnonzero(np.isnan(degrees)).tolist() == [20]
    assert np.isnan(times[20]) and times[19] == pytest.approx(0.19) and times[21] == pytest.approx(0.35)
    incidents = figure.axes[-1]
    labels = [label.get_text() for label in incidents.get_yticklabels()]
    assert labels == ["bus_timeout", "space", "joints: gap"]
    marks = next(one for one in incidents.lines if one.get_color() == FAULT)
    np.testing.assert_allclose(marks.get_xdata(), [0.25, 0.3, 0.9])
    np.testing.assert_allclose(marks.get_ydata(), [0, 0, 1])
    (bar,) = incidents.collections[0].get_segments()
    np.testing.assert_allclose(bar, [[0.19, 2], [0.35, 2]])
    assert "4  of 3 kinds" in words(figure)  # one line for one stream; the kinds stand below


def test_limits_are_shaded_where_they_come_into_view(tmp_path: Path) -> None:
    position = np.zeros((50, 2))
    position[:, 0] = np.linspace(-0.2, 0.6, 50)
    joints = [Joint(name="near", lower=-2.0, upper=0.5), Joint(name="far", lower=-2.0, upper=2.0)]
    near, far = panels(figure_of(hand_made(tmp_path / "rec", position, joints=joints), 3))
    (shade,) = near.patches
    high = near.get_ylim()[1]
    assert shade.get_y() == pytest.approx(np.rad2deg(0.5))
    assert shade.get_y() + shade.get_height() == pytest.approx(high) and high > np.rad2deg(0.6)
    assert not far.patches
    assert [text.get_text() for text in far.texts] == ["limits\n115\n−115"]
    assert far.get_ylim()[1] - far.get_ylim()[0] == pytest.approx(4)  # a joint at rest looks like rest


def test_units_are_those_of_the_joints_and_actions_of_other_names_are_not_drawn(tmp_path: Path) -> None:
    info = info_of(
        [Joint(name="turn"), Joint(name="gripper", unit="percent"), Joint(name="x.vel", unit="source")],
        actions=Actions(names=["speed"], unit="source", meaning="velocity of the wheel"),
    )
    with RecordingWriter.create(tmp_path / "rec", info) as writer, writer.episode(0) as episode:
        times = START_NS + PERIOD_NS * np.arange(5)
        episode.joints(times, np.tile([np.pi, 40.0, 7.0], (5, 1)))
        episode.actions(times, np.zeros((5, 1)))
    figure = figure_of(Recording.open(tmp_path / "rec"))
    assert [line(axes, "measured")[1][0] for axes in panels(figure)] == pytest.approx([180, 40, 7])
    assert all(line(axes, "target") is None for axes in panels(figure))
    assert any("5 actions, not drawn: velocity of the wheel" in text for text in words(figure))
    for unit in ("degrees", "% of travel", "as it came"):
        assert unit in words(figure)


def test_twelve_joints_stand_in_two_columns_and_an_empty_stream_is_no_error(tmp_path: Path) -> None:
    info = info_of([Joint(name=f"j{number}") for number in range(12)])
    with RecordingWriter.create(tmp_path / "rec", info) as writer:
        with writer.episode(0) as episode:
            episode.joints(START_NS + PERIOD_NS * np.arange(9), np.zeros((9, 12)))
        with writer.episode(1):
            pass
    recording = Recording.open(tmp_path / "rec")
    lefts = {round(axes.get_position().x0, 3) for axes in panels(figure_of(recording, 0))}
    assert len(lefts) == 2
    _, facts = draw_recording(recording, 1, tmp_path / "p.png")
    assert facts["streams"]["joints"] == {
        "rows": 0,
        "rate_hz": None,
        "declared_hz": 100,
        "jitter_p50_ms": None,
        "jitter_p99_ms": None,
        "longest_step_ms": None,
    }


# -- numbers -----------------------------------------------------------------------------------------------


def test_rate_and_jitter_by_hand() -> None:
    stamps = 10**18 + np.array([0, 10, 20, 31, 40, 50, 90]) * 1_000_000
    one = pace(stamps, 100)
    assert one.rows == 7 and one.rate_hz == pytest.approx(6 / 0.09)
    # steps 10 10 11 9 10 40 ms, their median 10: deviations 0 0 1 1 0 30
    assert one.jitter_p50_ms == pytest.approx(0.5)
    assert one.jitter_p99_ms == pytest.approx(1 + 0.95 * 29)
    assert one.longest_step_ms == pytest.approx(40)
    assert gaps(stamps, 39e6).tolist() == [[stamps[5], stamps[6]]]
    assert gaps(stamps, 40e6).tolist() == []
    assert pace(stamps[:2], 100).rate_hz is None


def test_the_facts_are_those_of_the_episode(walk: Recording, tmp_path: Path) -> None:
    _, facts = draw_recording(walk, 1, tmp_path / "p.png")
    assert facts["episode"] == 1 and facts["sha256"] == walk.episode(1).sha256
    assert list(facts["streams"]) == ["joints", "front", "side"]
    assert facts["streams"]["joints"]["rows"] == 205
    assert facts["streams"]["joints"]["rate_hz"] == pytest.approx(100)
    assert facts["streams"]["side"]["rate_hz"] == pytest.approx(10)
    assert (facts["actions"], facts["knots"], facts["faults"], facts["gaps"]) == (205, 4, {}, {})
    recording = hand_made(tmp_path / "rec", np.zeros((100, 2)))
    _, facts = draw_recording(recording, None, tmp_path / "p.png")
    assert facts["faults"] == {"bus_timeout": 2, "space": 1, "no_video": 1}


def test_a_lost_frame_is_a_gap_of_its_view(tmp_path: Path) -> None:
    view = View(name="front", width=32, height=32, fps=10, encoding="rgb8")
    with RecordingWriter.create(tmp_path / "rec", small_info(views=(view,))) as writer:
        with writer.episode(0) as episode:
            episode.joints(START_NS + PERIOD_NS * np.arange(100), np.zeros((100, 2)))
            for number in (0, 1, 2, 4, 5):
                episode.frame(
                    "front", START_NS + number * 100_000_000, number, np.zeros((32, 32, 3), np.uint8)
                )
            episode.clocks(start=(START_NS, 0))
    recording = Recording.open(tmp_path / "rec")
    figure = figure_of(recording)
    (bars,) = figure.axes[-1].collections
    np.testing.assert_allclose(bars.get_segments()[0][:, 0], [0.2, 0.4])
    assert [label.get_text() for label in figure.axes[-1].get_yticklabels()] == ["front: gap"]
    assert bars.get_color()[0][:3] == pytest.approx([int(MUTED[at : at + 2], 16) / 255 for at in (1, 3, 5)])
