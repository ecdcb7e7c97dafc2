"""Figures: the same bytes for the same numbers, values that leave the axis, names that are only names."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from report_studies import Made, small

from reports.figures import draw_figures, draw_spread
from reports.marks import CLIP_FLOOR, MODEL_COLOURS, Series, canvas, figure_svg, whisker
from reports.model import Number


def svgs(card) -> dict[str, str]:
    return {picture.line.name: picture.svg for picture in draw_figures(card)}


def texts(svg: str) -> list[str]:
    return [
        "".join(node.itertext()).strip()
        for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    ]


@pytest.fixture(scope="module")
def drawn(full) -> dict[str, str]:
    """The full study's figures, drawn once."""
    return svgs(full)


def test_deterministic_and_dateless(full, drawn):
    first, second = drawn, svgs(full)
    assert first == second
    assert list(first) == ["joints-demos", "joints-walk", "transfer", "spread"]
    assert not any(re.search(r"<dc:date>|20\d\d-\d\d-\d\d", svg) for svg in first.values())


def test_every_joint_and_encoder_is_named(drawn):
    shown = texts(drawn["joints-demos"])
    for name in (
        "shoulder_pan",
        "gripper",
        "mean",
        "W1",
        "W1walk",
        "dinov2",
        "pixels",
        "untrained",
        "ceiling",
    ):
        assert name in shown
    assert "targets exchanged" in shown


def test_models_differ_in_colour_and_controls_are_grey(drawn):
    svg = drawn["joints-demos"]
    assert all(colour in svg for colour in MODEL_COLOURS[:3])
    assert not any(colour in svg for colour in MODEL_COLOURS[3:])
    assert "#6f7378" in svg


def test_a_far_negative_r2_is_an_arrow_with_its_value(card_of):
    made = small()
    made.r2["W1", "demos"] = (0.64, 0.72, -24.0)
    shown = texts(svgs(card_of(made))["joints-demos"])
    assert "−24.0" in shown
    ticks = [float(text.replace("−", "-")) for text in shown if re.fullmatch(r"−?\d\.\d", text)]
    assert min(ticks) >= CLIP_FLOOR  # the axis does not follow it down


@pytest.mark.parametrize(
    ("value", "low", "high", "arrows"),
    [(0.2, 0.1, 0.3, []), (0.2, -9.0, 0.3, ["<"]), (0.2, 0.1, 2.0, [">"]), (0.2, -9.0, 2.0, ["<", ">"])],
)
def test_an_interval_that_leaves_the_axis_ends_in_an_arrow(value, low, high, arrows):
    figure, axes = canvas(2.0)
    whisker(axes, Number("W1.r2.pan", value, low, high), 0.0, Series("W1", "#000000", "o"), CLIP_FLOOR)
    axes.set_xlim(CLIP_FLOOR, 1.04)
    axes.set_ylim(-1, 1)
    drawn = [line for line in axes.get_lines() if line.get_marker() in ("<", ">")]
    assert [line.get_marker() for line in drawn] == arrows
    inside = axes.get_window_extent()
    for line in drawn:  # its tip meets the axis' end from within, so that it covers no label beside it
        (x, _), *_ = line.get_transform().transform(line.get_xydata())
        reach = line.get_markersize() / 2 * figure.dpi / 72
        assert x - reach >= inside.x0 - 0.5 and x + reach <= inside.x1 + 0.5


def test_joints_that_are_not_testable_say_so(card_of):
    made = small()
    made.untestable = {"demos": ("wrist_roll",)}
    assert "not testable: it hardly moves" in texts(svgs(card_of(made))["joints-demos"])


def test_transfer_shows_both_panels(drawn):
    shown = texts(drawn["transfer"])
    for text in ("mean R2", "difference in mean R2 from a control", "on demos", "on walk", "minus pixels"):
        assert text in shown
    assert "W1, trained on demos" in shown


def test_two_controls_of_a_kind_can_be_told_apart(card_of):
    made = Made()
    made.study["encoders"]["pixelswalk"] = {"train": {"kind": "pixels"}, "on": "walk", "role": "baseline"}
    made.r2["pixelswalk", "demos"] = made.r2["pixels", "demos"]
    made.r2["pixelswalk", "walk"] = made.r2["pixels", "walk"]
    card = card_of(made)
    from reports.figures import _encoder_series

    styles = _encoder_series(card, card.joint_tables[0].columns)
    assert (styles["pixels"].filled, styles["pixelswalk"].filled) == (True, False)
    assert len(set(styles.values())) == len(styles)


@pytest.mark.filterwarnings("error")
def test_names_are_names(card_of):
    """Mathematics, markup, long names and line breaks in a joint's name neither fail nor come to life."""
    made = small()
    made.joints = (
        "$\\frac{1",
        "<script>alert(1)</script>",
        "a joint\nwith a very, very long name of its own" * 3,
    )
    svg = svgs(card_of(made))["joints-demos"]
    assert "<script" not in svg
    shown = texts(svg)
    assert "$\\frac{1" in shown and "<script>alert(1)</scr…" in shown


def test_nothing_measured_draws_nothing(card_of):
    made = small()
    made.r2 = {}
    assert list(svgs(card_of(made))) == ["spread"]
    card = card_of(made)
    assert draw_figures(replace(card, data=())) == ()


def test_joints_that_are_not_in_radians_have_no_place_beside_radians(full):
    line = replace(full.data[0], units={"gripper": "percent"})
    shown = texts(figure_svg(draw_spread(replace(full, data=(line,)))))
    assert "gripper" not in shown and "shoulder_pan" in shown
