"""The bookkeeping of faults, on invented time: each begins once, ends once, and costs what it costs."""

from __future__ import annotations

import pytest

from hardware.camera_watch import CameraWatch, Fault, RateMeter

S = 1_000_000_000


class Story:
    """Plays a camera to a watch: frames at a rate, garbage, silence; ticks four times a second in between."""

    def __init__(self, declared_hz: float | None = None) -> None:
        self.now = 100 * S
        self.watch = CameraWatch(self.now, declared_hz)
        self.faults: list[Fault] = []

    def quiet(self, seconds: float) -> Story:
        end = self.now + round(seconds * S)
        while self.now < end:
            self.now += S // 4
            self.faults += self.watch.tick(self.now)
        return self

    def frames(
        self, seconds: float, hz: float = 30.0, repeated: bool = False, brightness: float = 100.0
    ) -> Story:
        for number in range(round(seconds * hz)):
            self.now += round(S / hz)
            self.faults += self.watch.frame(self.now, repeated, brightness if number % 10 == 0 else None)
            self.faults += self.watch.tick(self.now)
        return self

    @property
    def kinds(self) -> list[str]:
        return [fault.kind.removeprefix("camera_") for fault in self.faults]


def test_a_good_camera_tells_nothing() -> None:
    story = Story(30).frames(20)
    assert story.faults == [] and story.watch.state == "running" and story.watch.frames == 600


def test_a_stall_is_told_once_and_its_length_at_its_end() -> None:
    story = Story().frames(1).quiet(1.5)
    assert story.kinds == [] and story.watch.state == "running"
    story.quiet(5)
    assert story.kinds == ["stalled"] and story.watch.state == "stalled"
    assert 2.0 < (story.faults[0].time_ns - 101 * S) / S < 2.5
    story.frames(1)
    assert story.kinds == ["stalled", "back"] and story.watch.state == "running"
    assert "after 6.5 s without" in story.faults[1].message


def test_a_camera_that_never_gives_a_frame_is_stalled() -> None:
    assert Story().quiet(3).kinds == ["stalled"]


def test_a_loss_is_told_once_hides_the_stall_and_ends_with_a_frame() -> None:
    story = Story().frames(1)
    for _ in range(3):
        story.faults += story.watch.lost(story.now, "closed the connection")
    story.quiet(5)
    assert story.kinds == ["lost"] and story.watch.state == "lost"
    assert story.faults[0].message == "the camera closed the connection"
    story.frames(0.1)
    assert story.kinds == ["lost", "back"] and story.watch.state == "running"


def test_a_stall_that_becomes_a_loss_ends_as_one() -> None:
    story = Story().frames(1).quiet(3)
    story.faults += story.watch.lost(story.now, "is unplugged")
    assert story.frames(0.5).kinds == ["stalled", "lost", "back"]


def test_identical_frames_are_counted_and_told_after_their_time() -> None:
    story = Story().frames(1).frames(1.4, repeated=True)
    assert story.kinds == [] and story.watch.repeated == 42
    story.frames(2, repeated=True)
    assert story.kinds == ["frozen"] and story.watch.state == "frozen"
    story.frames(1)
    assert story.kinds == ["frozen", "back"]
    assert "102 were identical over 3.4 s" in story.faults[1].message
    assert story.watch.repeated == 102 and story.watch.state == "running"


def test_now_and_then_a_repeated_frame_is_no_frozen_camera() -> None:
    story = Story()
    for _ in range(60):
        story.frames(0.1).frames(1 / 30, repeated=True)
    assert story.kinds == [] and story.watch.repeated == 60
    assert story.frames(1.4, repeated=True).kinds == [], "what went before does not add up"


def test_a_repeated_frame_after_a_gap_is_no_frozen_camera() -> None:
    story = Story().frames(1).quiet(3).frames(1.4, repeated=True)
    assert story.kinds == ["stalled", "back"]
    assert story.frames(0.2, repeated=True).kinds == ["stalled", "back", "frozen"]


def test_a_slow_camera_is_not_frozen_by_two_repeated_frames() -> None:
    story = Story().frames(4, hz=1).frames(2, hz=1, repeated=True)
    assert story.kinds == []
    assert story.frames(1, hz=1, repeated=True).kinds == ["frozen"]


def test_black_is_told_on_change_only_and_does_not_flicker() -> None:
    story = Story().frames(1).frames(3, brightness=1.0)
    assert story.kinds == ["black"] and "mean 1.0 of 255" in story.faults[0].message
    story.frames(1, brightness=12.0).frames(1, brightness=1.0)
    assert story.kinds == ["black"], "between the two marks nothing changes"
    assert story.frames(1, brightness=50.0).kinds == ["black", "back"]
    assert story.watch.state == "running"


def test_garbage_among_frames_is_one_story_with_its_count() -> None:
    story = Story(30)
    for _ in range(40):
        story.faults += story.watch.garbage(story.now, "is no JPEG")
        story.frames(0.2)
    assert story.kinds == ["garbage"] and story.watch.dropped == 40
    story.frames(3)
    assert story.kinds == ["garbage", "back"] and "40 dropped" in story.faults[1].message
    story.faults += story.watch.garbage(story.now, "is no JPEG")
    assert story.kinds == ["garbage", "back", "garbage"] and story.watch.dropped == 41


def test_nothing_but_garbage_is_a_stall_too() -> None:
    story = Story()
    for _ in range(100):
        story.faults += story.watch.garbage(story.now, "is no JPEG")
        story.quiet(0.25)
    assert story.kinds == ["garbage", "stalled"]


@pytest.mark.parametrize(("hz", "told"), [(30, False), (22, False), (20, True), (5, True)])
def test_a_slow_camera_is_told_once_after_five_seconds(hz: float, told: bool) -> None:
    story = Story(30).frames(4.9, hz)
    assert story.kinds == []
    story.frames(30, hz)
    assert story.kinds == (["slow"] if told else [])
    if told:
        assert f"{hz:.1f} frames a second of the 30 declared" in story.faults[0].message


def test_a_hiccup_a_stall_or_garbage_does_not_make_a_camera_slow() -> None:
    story = Story(30).frames(6)
    for _ in range(5):
        story.quiet(1).frames(3)
    story.quiet(3).frames(3)
    for _ in range(57):
        story.faults += story.watch.garbage(story.now, "is no JPEG")
        story.now += S // 30
    assert "slow" not in story.frames(10).kinds


def test_without_a_declared_rate_nothing_is_slow() -> None:
    assert Story(None).frames(20, hz=3).kinds == []


def test_the_rate_is_that_of_the_last_two_seconds() -> None:
    meter, now = RateMeter(), 0
    assert meter.hz(now) == 0
    for _ in range(100):
        now += S // 25
        meter.add(now)
    assert meter.hz(now) == pytest.approx(25)
    for _ in range(30):
        now += S // 10
        meter.add(now)
    assert meter.hz(now) == pytest.approx(10)
    assert meter.hz(now + S) < 6
    assert meter.hz(now + 3 * S) == 0
    meter.clear()
    assert meter.hz(now) == 0 and meter.span_s == 0
