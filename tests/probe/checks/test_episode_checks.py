"""Episodes among each other: each mistake is named with its episode, and the clean set passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probe import EpisodeClusters
from probe.checks import PixelRows
from probe.checks.episodes import (
    _exchanged,
    _Fit,
    _strongest_step,
    check_calibration_step,
    check_own_video,
    check_row_order,
    step_ratio,
)

VIEWS = ("front", "wrist")


def with_frames(rows: PixelRows, into: int, of: int) -> PixelRows:
    """The frames of episode `of` in place of those of episode `into`."""
    small = rows.small.copy()
    to, source = rows.clusters.rows(into), rows.clusters.rows(of)
    n = min(len(to), len(source))
    small[to[:n]] = rows.small[source[:n]]
    return replace(rows, small=small)


def shuffled(rows: PixelRows, episode: int, window: int) -> np.ndarray:
    """Row numbers with those of one episode shuffled within windows."""
    rng, index = np.random.default_rng(0), np.arange(rows.clusters.n_rows)
    of = rows.clusters.rows(episode)
    for start in range(0, len(of), window):
        index[of[start : start + window]] = rng.permutation(of[start : start + window])
    return index


def calibration(rows: PixelRows) -> object:
    return check_calibration_step(
        "step", rows.features, rows.position, rows.clusters, rows.joints, rows.moving
    )


@pytest.mark.parametrize("view", VIEWS)
def test_a_clean_set_passes(rows: dict[str, PixelRows], view: str) -> None:
    one = rows[view]
    assert check_row_order(one).state == "pass"
    assert check_own_video(one).state == "pass"
    assert calibration(one).state == "pass"


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("window", [1000, 16])
def test_shuffled_frames_are_named(rows: dict[str, PixelRows], view: str, window: int) -> None:
    one = rows[view]
    check = check_row_order(replace(one, small=one.small[shuffled(one, 2, window)]))
    assert (check.state, check.evidence["episodes"]) == ("fail", [2])
    assert "frames are in no order" in check.message


def test_shuffled_joints_are_named(rows: dict[str, PixelRows]) -> None:
    one = rows["front"]
    check = check_row_order(replace(one, position=one.position[shuffled(one, 5, 1000)]))
    assert (check.state, check.evidence["episodes"]) == ("fail", [5])
    assert "joints are in no order" in check.message


def test_step_ratio_of_a_line_and_of_noise() -> None:
    assert step_ratio(np.arange(100.0)[:, None]) == pytest.approx(0.25)
    assert step_ratio(np.random.default_rng(0).normal(size=(2000, 3))) == pytest.approx(1.0, abs=0.05)
    assert np.isnan(step_ratio(np.ones((10, 2))))


@pytest.mark.parametrize("view", VIEWS)
def test_a_neighbours_video_is_named(rows: dict[str, PixelRows], view: str) -> None:
    check = check_own_video(with_frames(rows[view], into=2, of=3))
    assert check.state == "fail"
    assert check.evidence["episodes"] == [2]
    assert check.evidence["belongs_to"] == {"2": 3}


def test_exchanged_videos_are_named(rows: dict[str, PixelRows]) -> None:
    one = rows["wrist"]
    small, (a, b) = one.small.copy(), (one.clusters.rows(3), one.clusters.rows(4))
    n = min(len(a), len(b))
    small[a[:n]], small[b[:n]] = one.small[b[:n]], one.small[a[:n]]
    check = check_own_video(replace(one, small=small))
    assert check.alarm and check.evidence["belongs_to"] == {"3": 4, "4": 3}


@pytest.mark.parametrize("view", VIEWS)
def test_a_set_that_is_one_episode_off_is_named(rows: dict[str, PixelRows], view: str) -> None:
    one = rows[view]
    off = one
    for episode in range(len(one.clusters) - 1):
        off = replace(off, small=_taken(off, one, episode))
    check = check_own_video(off)
    assert (check.state, check.evidence["offset"]) == ("fail", -1)


def _taken(off: PixelRows, one: PixelRows, episode: int) -> np.ndarray:
    small = off.small.copy()
    to, source = one.clusters.rows(episode), one.clusters.rows(episode + 1)
    n = min(len(to), len(source))
    small[to[:n]] = one.small[source[:n]]
    return small


def test_a_neutral_that_moves_is_named(rows: dict[str, PixelRows]) -> None:
    one = rows["front"]
    position = one.position.copy()
    position[one.clusters.index >= 4, 0] += 0.3
    check = calibration(replace(one, position=position))
    assert check.state == "warn"
    assert check.evidence["joint"] == "shoulder_pan"
    assert check.evidence["episodes"] == [3, 4]
    assert check.evidence["step_rad"] == pytest.approx(0.3, abs=0.1)


@pytest.mark.slow
def test_steps_that_are_not_there_are_seldom_claimed() -> None:
    """Biases that are chance alone: the p-value, times its comparisons, keeps its level."""
    rng = np.random.default_rng(0)
    claimed = [_strongest_step(rng.normal(scale=0.2, size=(8, 3)))[2] < 0.05 for _ in range(2000)]
    assert np.mean(claimed) < 0.06


def test_whose_frames_they_are_is_not_asked_of_a_view_that_shows_little(rows: dict[str, PixelRows]) -> None:
    one, rng = rows["front"], np.random.default_rng(0)
    noise = rng.normal(0, 60, one.small.shape)
    seen = np.clip(one.small * 0.4 + noise, 0, 255).astype(np.uint8)
    check = check_own_video(with_frames(replace(one, small=seen), into=1, of=4))
    assert check.state == "not testable" and check.message.startswith("frames of front say too little")


def test_three_episodes_are_not_testable(rows: dict[str, PixelRows]) -> None:
    one = rows["front"]
    keep = one.clusters.index < 3
    few = replace(
        one,
        small=one.small[keep],
        position=one.position[keep],
        clusters=EpisodeClusters.of(one.clusters.index[keep]),
    )
    assert check_own_video(few).state == calibration(few).state == "not testable"


def test_what_a_neutral_that_holds_covers_is_said(rows: dict[str, PixelRows]) -> None:
    check = calibration(rows["front"])
    read = check.evidence["joints_read"]
    assert check.message.startswith(f"no neutral of {', '.join(read)} is shown to move over episodes 0-7")
    left = [joint for joint in rows["front"].joints if joint not in read]
    assert left and check.message.endswith(f"; says nothing of {', '.join(left)}")


def fits(own: float, mutual: float) -> np.ndarray:
    """Correlations of 5 episodes with their own joints, of which 1 and 3 fit each other's."""
    correlation = np.full((5, 5), 0.1)
    np.fill_diagonal(correlation, 0.8)
    correlation[1, 1] = correlation[3, 3] = own
    correlation[1, 3] = correlation[3, 1] = mutual
    return correlation


def test_short_episodes_must_fit_each_other_by_more() -> None:
    """As a clean recording of 40 rows an episode did (0.65 against 0.39), which is no exchange."""
    by_chance = fits(0.39, 0.65)
    assert _exchanged(by_chance, np.full(5, 40)) == []
    assert _exchanged(by_chance, np.full(5, 80)) == _exchanged(by_chance, np.full(5, 200)) == [(1, 3)]
    assert _exchanged(by_chance, np.array([200, 40, 200, 200, 200])) == []  # the shorter one counts
    assert _exchanged(fits(0.3, 0.65), np.full(5, 40)) == [(1, 3)]


@pytest.mark.parametrize(
    ("own", "state", "said"),
    [
        (0.2, "fail", "episode 1 has the video of episode 3 (correlation 0.75, with its own joints 0.20)"),
        (
            0.4,
            "warn",
            "episodes 1 and 3 may have each other's video (correlation 0.75, with its own joints 0.40",
        ),
    ],
)
def test_what_is_not_certain_is_not_said_as_if_it_were(
    rows: dict[str, PixelRows], monkeypatch: pytest.MonkeyPatch, own: float, state: str, said: str
) -> None:
    correlation = np.full((8, 8), 0.1)
    correlation[:5, :5] = fits(own, 0.75)
    np.fill_diagonal(correlation[5:, 5:], 0.8)
    known = _Fit(correlation, np.ones((8, 8)))
    monkeypatch.setattr("probe.checks.episodes._cross_fit", lambda *given: known)
    check = check_own_video(rows["front"])
    assert (check.state, check.evidence["belongs_to"]) == (state, {"1": 3, "3": 1})
    assert said in check.message
    assert "record or import them again" in check.remedy  # nobody may have imported them
