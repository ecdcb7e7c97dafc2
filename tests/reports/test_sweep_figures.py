"""Figures of a sweep: drawn for whatever is there, nothing of it lost, and ours beside what theirs is."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import same_color
from PIL import Image
from sweep_cells import AXES, MANY, Cell, Number, below, labels, line, names, number, places, some_cells, xy

from reports.marks import CLIP_FLOOR, CONTROL_COLOUR, MODEL_COLOURS
from reports.sweep_figures import KINDS, draw_sweep
from reports.sweep_panels import log_ticks
from reports.sweep_theorem_figures import bound_figure, predictivity_figure
from tests.reports.overlaps import assert_apart

# -- every kind --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn(kind: str, tmp_path: Path) -> None:
    paths = draw_sweep(kind, some_cells(AXES[kind]), "A title", tmp_path)
    assert [path.name for path in paths] == [f"{kind}.png", "bound.png", "predictivity.png"]
    for path in paths:
        with Image.open(path) as image:
            assert min(image.size) > 200
            assert len(np.unique(np.asarray(image.convert("L")))) > 20


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_and_nothing_of_the_paper(kind: str, tmp_path: Path) -> None:
    cells = some_cells(AXES[kind])[:1]
    of_one = ("r2_hz", "r2_hz_in", "orthogonality_error", "r2_hz_uniform")
    cells[0].theirs, cells[0].seeds = {}, 1
    cells[0].numbers = {name: Number(0.5, (0.5,)) for name in of_one}
    assert [path.name for path in draw_sweep(kind, cells, "A title", tmp_path)] == [f"{kind}.png"]
    figure = KINDS[kind](cells, "A title")
    drawn = [label for at in figure.axes for label in labels(at)]
    assert not [label for label in drawn if label.endswith((", theirs", ", seeds", ", interval"))]
    assert "hollow" not in below(figure) and "bar:" not in below(figure)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("many", [False, True])
def test_no_text_lies_on_another(kind: str, many: bool) -> None:
    cells = some_cells(MANY[kind] if many else AXES[kind])
    title = "A title that is long enough to be broken over lines where the figure is not wide (as: published)"
    for figure in (KINDS[kind](cells, title), bound_figure(cells, title), predictivity_figure(cells, title)):
        assert figure is not None
        assert_apart(figure, figure.axes, kind)


def test_a_figure_that_these_cells_do_not_give_is_removed(tmp_path: Path) -> None:
    cells = some_cells(AXES["gennorm"])
    draw_sweep("gennorm", cells, "A title", tmp_path)
    assert (tmp_path / "bound.png").exists()
    draw_sweep("gennorm", [cell for cell in cells if cell.at["world.source.alpha"] == 8], "A title", tmp_path)
    assert not (tmp_path / "bound.png").exists() and (tmp_path / "gennorm.png").exists()


def test_numbers_of_a_logarithmic_axis_are_round_and_there_are_some() -> None:
    assert log_ticks(1e-6, 2.0, most=8) == pytest.approx([1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1])
    for low in np.geomspace(1e-6, 10, 97):
        assert 3 <= len(log_ticks(low, 4 * low, most=8)) <= 8
        assert len(log_ticks(low, 1e9 * low, most=5)) <= 5


# -- scaling -----------------------------------------------------------------------------------------------


def scaling_cells() -> list[Cell]:
    at = [{"world.dim": dim, "objective": "sigreg"} for dim in (2, 4, 8)]
    found = [
        Cell(
            "main",
            place,
            {
                "r2_hz": number(r2, r2 - 1e-6, r2 + 1e-6),
                "r2_hz_in": number(r2, r2 - 1e-6, r2 + 1e-6),
                "orthogonality_error": number(error, 1.1 * error),
            },
            {"r2_hz_in": theirs, "orthogonality_error": their_error},
        )
        for place, r2, error, theirs, their_error in zip(
            at, (0.99999, 0.9, -0.4), (1e-3, 1e-2, 2.0), (0.999998, 1.0, 0.5), (0.0, 0.02, 1.5)
        )
    ]
    control = Cell("untrained", {"world.dim": 4}, {"r2_hz": number(0.2), "r2_hz_in": number(0.2)}, seeds=1)
    random.Random(1).shuffle(found)
    return [*found, control]


def test_scaling_shows_what_is_lacking_of_1_on_logarithmic_axes() -> None:
    figure = KINDS["scaling"](scaling_cells(), "A title")
    rows, new, rotation = figure.axes
    for at in figure.axes:
        assert (at.get_xscale(), at.get_yscale()) == ("log", "log")
        assert names(at.get_xticklabels()) == ["2", "4", "8"] and not at.get_xticklabels(minor=True)
        assert np.all(np.diff(xy(at, "SIGReg")[:, 0]) > 0)
    for at in (rows, new):
        np.testing.assert_allclose(xy(at, "SIGReg")[:, 1], [1e-5, 0.1, 1.4], rtol=1e-9)
        low, high = at.get_ylim()
        assert low < 1e-5 and high > 1.4  # below 0 and near 1 alike
        assert at.get_ylabel().startswith("1 - R2")
    np.testing.assert_allclose(xy(rotation, "SIGReg")[:, 1], [1.05e-3, 1.05e-2, 2.1])
    assert rotation.get_ylabel().startswith("orthogonality error")


def test_scaling_has_theirs_hollow_and_says_what_a_logarithm_cannot_show() -> None:
    figure = KINDS["scaling"](scaling_cells(), "A title")
    rows, new, rotation = figure.axes
    np.testing.assert_allclose(xy(rows, "SIGReg, theirs")[:, 1], [2e-6, np.nan, 0.5], rtol=1e-6)
    np.testing.assert_allclose(xy(rotation, "SIGReg, theirs")[:, 1], [np.nan, 0.02, 1.5])
    np.testing.assert_array_equal(xy(rows, "SIGReg, theirs")[:, 0], xy(rows, "SIGReg")[:, 0])
    hollow = line(rows, "SIGReg, theirs")
    assert hollow.get_markerfacecolor() == "none" and same_color(hollow.get_color(), MODEL_COLOURS[0])
    assert not same_color(line(rows, "SIGReg").get_markerfacecolor(), "none")
    assert "SIGReg, theirs" not in labels(new)  # they have no such number
    said = below(figure)
    assert "theirs of SIGReg at N 4 (R2 1)" in said
    assert "theirs of SIGReg at N 2 (orthogonality error 0)" in said
    assert "hollow: the paper's" in said


def test_scaling_has_intervals_seeds_and_controls_in_grey() -> None:
    figure = KINDS["scaling"](scaling_cells(), "A title")
    rows = figure.axes[0]
    assert labels(rows).count("SIGReg, interval") == 3 and labels(rows).count("SIGReg, seeds") == 3
    control = line(rows, "untrained")
    assert same_color(control.get_color(), CONTROL_COLOUR) and control.get_linestyle() == "--"
    np.testing.assert_allclose(control.get_ydata(), [0.8])
    assert "bar: 95 %" in below(figure) and "dot: one seed" in below(figure) and "untrained" in below(figure)


def test_an_interval_that_goes_below_0_leaves_a_logarithmic_axis() -> None:
    cell = scaling_cells()[0]
    cell.numbers["r2_hz"] = Number(0.9, (0.8, 1 - 1e-9), 0.7, 1.1)
    figure = KINDS["scaling"]([cell], "A title")
    new = figure.axes[1]
    low, high = xy(new, "SIGReg, interval")[:, 1]
    assert low < new.get_ylim()[0] and high == pytest.approx(0.3)
    assert "goes on to 0 or beyond" in below(figure)


def test_a_diverged_cell_breaks_the_line_and_is_counted() -> None:
    cells = sorted(scaling_cells()[:3], key=lambda cell: cell.at["world.dim"])
    cells[1].numbers, cells[1].failed = {}, 3
    figure = KINDS["scaling"](cells, "A title")
    np.testing.assert_allclose(xy(figure.axes[0], "SIGReg")[:, 1], [1e-5, np.nan, 1.4])
    assert "3 of 9 runs diverged" in below(figure)


# -- the other kinds ---------------------------------------------------------------------------------------


def test_two_d_compares_the_orthogonality_error_of_the_grid() -> None:
    cells = some_cells(AXES["two-d"])[:1]
    cells[0].numbers |= {"orthogonality_error": number(0.11), "orthogonality_error_grid": number(0.5)}
    cells[0].theirs = {"orthogonality_error_grid": 0.54, "orthogonality_error": 0.3328, "r2_hz_grid": 0.982}
    new, grid, rotation = KINDS["two-d"](cells, "A title").axes
    np.testing.assert_allclose(line(rotation, "SIGReg").get_ydata(), [0.5])
    np.testing.assert_allclose(line(rotation, "SIGReg, theirs").get_ydata(), [0.54])
    np.testing.assert_array_equal(xy(rotation, "SIGReg")[:, 0], xy(rotation, "SIGReg, theirs")[:, 0])
    assert (
        "grid" in rotation.get_ylabel() and line(rotation, "SIGReg, theirs").get_markerfacecolor() == "none"
    )
    np.testing.assert_allclose(line(grid, "SIGReg, theirs").get_ydata(), [1 - 0.982])
    assert "SIGReg, theirs" not in labels(new)


def test_two_d_has_a_place_for_controls_of_all_mixings_and_of_none() -> None:
    cells = some_cells(AXES["two-d"])
    for arm, at in (("alone", {"mixing": "banana"}), ("batch norm", {"objective": "infonce"})):
        cells.append(Cell(arm, at, cells[0].numbers))
    figure = KINDS["two-d"](cells, "A title")
    at = figure.axes[0]
    assert names(at.get_xticklabels()) == ["spiral", "banana", "batch norm"]
    assert np.round(xy(at, "alone")[:, 0]) == 1 and np.round(xy(at, "batch norm, InfoNCE")[:, 0]) == 2
    taken = np.concatenate([one.get_xdata() for one in at.lines if one.get_marker() not in ("_", "None")])
    means = [x for label in ("SIGReg", "InfoNCE", "alone", "untrained, SIGReg") for x in xy(at, label)[:, 0]]
    assert len(set(np.round(means, 6))) == len(means) and len(taken)  # none hides another
    for label in ("alone", "batch norm, InfoNCE"):
        assert same_color(line(at, label).get_color(), CONTROL_COLOUR)
        assert line(at, label).get_linestyle() == "None"


def test_grid_has_theirs_ours_and_their_difference_with_numbers() -> None:
    cells = [
        Cell("main", at, {"r2_hz_in": number(0.9), "orthogonality_error": number(0.25)}, {"r2_hz_in": 0.95})
        for at in places({"lam": [1e-6, 5e-3], "world.rho": [0.9, 0.3]})
    ]
    cells.append(Cell("no regulariser", {"world.rho": 0.9}, {"r2_hz_in": number(0.4)}))
    cells.append(Cell("untrained", {}, {"r2_hz_in": number(0.123)}))
    figure = KINDS["grid"](cells, "A title")
    maps = [at for at in figure.axes if at.images]
    bars = [at.get_ylabel() for at in figure.axes if not at.images]
    theirs, ours, apart = maps[:3]
    assert [at.get_title(loc="left").rpartition(", ")[2] for at in maps[:3]] == [
        "theirs",
        "ours",
        "ours - theirs",
    ]
    np.testing.assert_allclose(theirs.images[0].get_array()[:2], np.full((2, 2), 0.95))
    np.testing.assert_allclose(ours.images[0].get_array()[:2], np.full((2, 2), 0.9))
    np.testing.assert_allclose(apart.images[0].get_array()[:2], np.full((2, 2), -0.05))
    assert names(theirs.get_yticklabels()) == ["0.005", "1e-06", ""]
    assert names(theirs.get_xticklabels()) == ["0.3", "0.9"]
    assert names(ours.get_yticklabels()) == ["0.005", "1e-06", "no regulariser"]
    assert same_color(ours.get_yticklabels()[2].get_color(), CONTROL_COLOUR)
    assert [text.get_text() for text in apart.texts] == ["-0.050"] * 4
    assert [text.get_text() for text in ours.texts] == ["0.900"] * 4 + ["0.400"]
    assert bars[:3] == ["R2 of z from h (1: all of z)"] * 2 + ["ours - theirs, R2 of z from h"]
    assert "Control untrained: R2 of z from h 0.123" in below(figure)
    assert theirs.get_xlabel() == "rho of pairs" and "lambda" in theirs.get_ylabel()


def test_grid_says_how_wide_intervals_are_and_what_diverged() -> None:
    cells = some_cells(AXES["grid"])
    cells[0].numbers["r2_hz_in"] = Number(0.9, (0.8, 1.0), 0.7, 1.1)
    figure = KINDS["grid"](cells, "A title")
    ours = figure.axes[1]
    assert ours.texts[0].get_text() == "0.900\n±0.200"
    assert "diverged" in [text.get_text() for text in ours.texts]
    assert "3 of 24 runs diverged" in below(figure)


def test_reacher_compares_what_theirs_is_and_shows_what_lies_far_below() -> None:
    numbers = {"r2_hz": number(0.6), "r2_hz_uniform": number(-3.0), "r2_hz_uniform_own": number(0.8)}
    cells = [
        Cell("main", {"data": "rho 0.9", "recipe.lam": 0.05}, numbers, {"r2_hz": 0.7}),
        Cell("main", {"data": "delta 8", "recipe.lam": 0.05}, numbers, {"r2_hz_uniform": 0.79}),
    ]
    rho, delta, _, own = KINDS["reacher"](cells, "A title").axes
    np.testing.assert_allclose(xy(rho, "lambda 0.05"), [[0.9, 0.6]])
    np.testing.assert_allclose(xy(rho, "lambda 0.05, theirs"), [[0.9, 0.7]])
    np.testing.assert_allclose(xy(delta, "lambda 0.05, theirs"), [[8, 0.79]])
    assert delta.get_ylim()[0] == CLIP_FLOOR and [text.get_text() for text in delta.texts] == ["to -3.00"]
    np.testing.assert_allclose(xy(own, "lambda 0.05"), [[8, 0.8]])


def test_gennorm_puts_controls_of_no_said_mixing_into_a_column_of_their_own() -> None:
    cells = some_cells(AXES["gennorm"])[:3]
    cells.append(Cell("alone", {"world.source.alpha": 2}, {"r2_hz_grid": number(0.1), "r2_hz": number(-0.2)}))
    figure = KINDS["gennorm"](cells, "A title")
    spiral, controls, _, new = figure.axes
    assert [at.get_title(loc="left") for at in (spiral, controls)] == ["spiral", "controls"]
    assert "alone" not in labels(spiral) and same_color(line(controls, "alone").get_color(), CONTROL_COLOUR)
    np.testing.assert_allclose(line(new, "alone").get_ydata(), [-0.2])
    assert new.get_ylim()[0] < -0.2
    assert names(spiral.get_xticklabels()) == ["0.5", "2", "8"]
