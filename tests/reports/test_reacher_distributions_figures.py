"""Figures of the Reacher's distributions: nothing of the numbers lost, no text on another, same bytes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from reports.marks import INK
from reports.reacher_distributions import (
    autocorrelation_figure,
    differences_figure,
    draw_distributions,
    marginals_figure,
    sigreg_figure,
)
from reports.reacher_found import BOTH, WHATS, Correlation, Floor, Outcome, SetFound, Shape, ValueFound
from tests.reports.overlaps import assert_apart

RHOS, DELTAS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99), (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


def shape(seed: int, scale: float = 1.0, tail: bool = False) -> Shape:
    rng = np.random.default_rng(seed)
    x = scale * (rng.standard_t(2, 300) if tail else rng.standard_normal(300))
    return Shape(
        x, float(x.mean()), float(x.std()), 0.123, -0.456, 0.05, 0.04, float((abs(x) > np.pi).mean())
    )


def outcomes(first: float, interval: bool) -> dict[str, Outcome]:
    floor = Floor(300, 40, 0.33, 0.1, 1.0)
    return {
        what: Outcome(300, first * (1 + place), floor, 0.5, (0.0, 3 * first) if interval else None)
        for place, what in enumerate(WHATS)
    }


def found(condition: str, values: tuple[float, ...], name: str, scale: float = 1.0) -> SetFound:
    traj = condition == "traj"

    def of_value(place: int, value: float) -> ValueFound:
        correlation = 1 - 0.0003 * (place + 1) ** 2 if traj else value
        theirs = (1.0 if place == 0 else round(correlation, 3)) if traj else value
        low, high = (
            (None, None) if traj and len(values) == 1 else (2 * correlation - 1, (1 + correlation) / 2)
        )
        return ValueFound(
            value,
            (Correlation(correlation, low, high, theirs), Correlation(correlation, low, high, None)),
            (shape(place, tail=traj), shape(place + 50)),
            0.1,
            None if traj else float(np.sqrt(1 - value**2)),
            outcomes(scale * (place + 1) ** 2, traj),
            outcomes(5 * scale, traj),
            {},
            {},
        )

    return SetFound(
        name, condition, "random" if traj else None, 9999, 300, 600, 30 if traj else None,
        (shape(1, 2.2), shape(2, 1.4)), (0.136, "13.6 %"),
        tuple(of_value(place, value) for place, value in enumerate(values)),
    )  # fmt: skip


ONE = [found("ou", (0.5,), "one")]
BESIDE = [found("ou", RHOS[:3], "ou"), found("traj", DELTAS, "random"), found("traj", DELTAS, "goal", 7.0)]
MANY = [
    BESIDE[0],
    found("ou", RHOS, "a set whose name is so long that it cannot be drawn"),
    found("traj", tuple(range(1, 12)), "eleven strides", 0.01),
    *(found("traj", (8.0,), name) for name in ("$x_1$", "b", "c", "seventh")),
]
FIGURES: dict[str, Callable[[list[SetFound]], Figure]] = {
    "marginals": marginals_figure,
    "differences": differences_figure,
    "sigreg": lambda sets: sigreg_figure(sets, 1.2),
    "autocorrelation": autocorrelation_figure,
}


def texts(figure: Figure) -> str:
    parts = [one.get_text() for at in figure.axes for one in (at.title, at._left_title, *at.texts)]  # type: ignore[attr-defined]
    for legend in figure.legends:
        parts += [legend.get_title().get_text(), *(one.get_text() for one in legend.get_texts())]
    return "\n".join(parts)


def titled(figure: Figure, title: str) -> Axes:
    return next(at for at in figure.axes if at.get_title(loc="left") == title)


def marks(at: Axes, colour: str | None = None) -> list[Line2D]:
    """Lines of markers, but for the ends of bars."""
    kept = [line for line in at.lines if line.get_marker() not in ("None", "_", "")]
    return [line for line in kept if colour is None or line.get_color() == colour]


@pytest.mark.parametrize("kind", FIGURES)
@pytest.mark.parametrize("sets", [ONE, BESIDE, MANY], ids=["one", "beside", "many"])
def test_no_text_lies_on_another(kind: str, sets: list[SetFound]) -> None:
    figure = FIGURES[kind](sets)
    assert_apart(figure, [at for at in figure.axes if at.axison], kind, 1.5)
    for at in (one for one in figure.axes if one.axison):
        left, right = sorted(at.get_xlim())
        ticks = [one for one in at.get_xticklabels() if left <= one.get_position()[0] <= right]
        names = sorted((one.get_window_extent() for one in ticks if one.get_text()), key=lambda box: box.x0)
        assert names and all(second.x0 > first.x1 for first, second in itertools.pairwise(names)), kind


def test_no_two_sets_look_the_same() -> None:
    handles = autocorrelation_figure(MANY).legends[0].legend_handles
    looks = [(one.get_color(), one.get_marker()) for one in handles[: len(MANY)]]  # type: ignore[union-attr]
    assert len(set(looks)) == len(MANY) == 7


def test_the_same_numbers_give_the_same_bytes(tmp_path: Path) -> None:
    sets = [found("ou", (0.5,), "ou"), found("traj", (1.0, 8.0), "traj")]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        paths = draw_distributions(sets, tmp_path / name, 1.2)
    assert [path.name for path in paths] == [
        "marginals.png",
        "differences.png",
        "sigreg.png",
        "autocorrelation.png",
    ]
    for path in paths:
        assert path.read_bytes() == (tmp_path / "a" / path.name).read_bytes()
        with Image.open(path) as image:
            assert min(image.size) > 300 and len(np.unique(np.asarray(image.convert("L")))) > 20


def test_marginals_say_their_numbers_beside_theirs() -> None:
    figure = marginals_figure(BESIDE)
    assert len(figure.axes) == 6
    one = BESIDE[1].marginals[0]
    said = texts(figure)
    assert f"random, shoulder: mean {one.mean:.2f}, sd {one.sd:.2f}, KS 0.050" in said
    assert f"beyond ±π {100 * one.beyond_pi:.3g} % (theirs 13.6 %)" in said
    at = figure.axes[2]
    gauss = next(line for line in at.lines if line.get_color() == INK)
    x, y = gauss.get_data()
    np.testing.assert_allclose(y, np.exp(-(np.asarray(x) ** 2) / 2) / np.sqrt(2 * np.pi), atol=1e-12)
    area = sum(bar.get_width() * bar.get_height() for bar in at.patches)  # type: ignore[attr-defined]
    assert area == pytest.approx(1)


def test_differences_have_a_panel_each_and_none_is_left_out_at_the_edges() -> None:
    figure = differences_figure(MANY)
    drawn = [at for at in figure.axes if at.axison]
    assert len(drawn) == sum(2 * len(one.values) for one in MANY)
    assert "delta 11" in texts(figure) and "skew 0.12, kurt −0.46" in texts(figure)
    one_value = differences_figure(ONE)
    heads = [at.get_title().partition("\n")[0] for at in one_value.axes]
    assert heads == ["shoulder, rho 0.5", "wrist, rho 0.5"]
    figure = differences_figure(BESIDE[1:2])
    for at, value in zip(figure.axes, BESIDE[1].values):
        (stairs,) = at.patches
        heights, edges, _ = stairs.get_data()  # type: ignore[attr-defined]
        assert (heights * np.diff(edges)).sum() == pytest.approx(1)
        beyond = int((abs(value.differences[0].standardised) > 5).sum())
        width = np.diff(edges)[0]
        assert round((heights[0] + heights[-1]) * width * 300) >= beyond  # they stand in the outermost bars
        assert [one.get_text() for one in at.texts] == ([f"{beyond} beyond ±5"] if beyond else [])
        low, high = at.get_ylim()
        assert at.get_yscale() == "log" and low < heights[heights > 0].min() and high > heights.max()


def test_sigreg_stands_over_its_value_and_beside_the_floor() -> None:
    figure = sigreg_figure(BESIDE, 1.2)
    assert [at.get_title(loc="left") for at in figure.axes] == [
        f"{of}: {what}" for of in ("differences", "marginals") for what in WHATS
    ]
    at = titled(figure, f"differences: {BOTH}")
    ou, random, goal = marks(at)
    assert len(ou.get_xdata()) == 3 and len(random.get_xdata()) == 7  # type: ignore[arg-type]
    expected = [each.of_differences[BOTH].sigreg for each in BESIDE[2].values]
    np.testing.assert_allclose(goal.get_ydata(), expected)  # type: ignore[arg-type]
    assert [one.get_text() for one in at.get_xticklabels()] == [
        ".3", ".5", ".7", "1", "2", "4", "8", "16", "32", "64",
    ]  # fmt: skip
    ticks = at.get_xticks()
    assert np.all(abs(np.asarray(goal.get_xdata()) - ticks[3:]) < 0.3)
    np.testing.assert_allclose(ou.get_xdata(), ticks[:3])  # type: ignore[arg-type]
    assert max(ou.get_xdata()) < min(random.get_xdata()) < min(goal.get_xdata())  # type: ignore[arg-type]
    (band,) = at.patches
    corners = band.get_extents().transformed(at.transData.inverted())
    assert (corners.y0, corners.y1) == pytest.approx((0.1, 1.0))
    low, high = at.get_ylim()
    assert low < 0.1 and high > max(expected)
    assert "floor: 95 % of Gaussian samples, z-scored, n = 300" in texts(figure)
    assert "theirs: floor of Gaussian samples, 1.2" in texts(figure) and "bar: 95 %" in texts(figure)
    assert any(list(line.get_ydata()) == [1.2, 1.2] for line in at.lines)


def test_ou_sets_alone_say_nothing_of_episodes() -> None:
    said = texts(sigreg_figure(ONE, 1.2))
    assert "episode" not in said
    assert len(autocorrelation_figure(ONE).axes) == 2
    assert "theirs" not in texts(autocorrelation_figure(ONE))


def test_autocorrelation_has_theirs_hollow_with_their_rounding() -> None:
    figure = autocorrelation_figure(BESIDE)
    assert [at.get_title(loc="left") for at in figure.axes] == [
        "trajectories, shoulder", "trajectories, wrist", "OU, shoulder", "OU, wrist",
    ]  # fmt: skip
    shoulder, wrist, ou, _ = figure.axes
    hollow = marks(shoulder, INK)
    assert len(hollow) == 6 and not marks(wrist, INK)  # 1.000 is a bar alone: the axis has no 0
    assert {one.get_markerfacecolor() for one in hollow} == {"none"}
    second = BESIDE[1].values[1].correlations[0]
    assert hollow[0].get_ydata()[0] == pytest.approx(1 - second.theirs)  # type: ignore[index, operator]
    first = [line for line in shoulder.lines if line.get_color() == INK and list(line.get_xdata()) == [1, 1]]
    assert first[0].get_ydata()[1] == pytest.approx(0.0005)  # type: ignore[index]
    np.testing.assert_allclose(
        marks(shoulder)[0].get_ydata(),  # type: ignore[arg-type]
        [1 - each.correlations[0].value for each in BESIDE[1].values],
    )
    np.testing.assert_allclose(marks(ou)[0].get_xdata(), [0.7, 0.5, 0.3], atol=1e-12)  # type: ignore[arg-type]
    assert [one.get_text() for one in ou.get_xticklabels()] == ["0.3", "0.5", "0.7"]
