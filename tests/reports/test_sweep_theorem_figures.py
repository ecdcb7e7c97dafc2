"""The bound is shown where the theorem holds, and losses are held against R2 only where comparable."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import same_color
from scipy.stats import spearmanr
from sweep_cells import Cell, Number, below, labels, line, names, number, xy

from reports.marks import CONTROL_COLOUR, MODEL_COLOURS
from reports.sweep_theorem_figures import (
    MOST_NAMED,
    _spearman,
    bound_figure,
    is_gaussian,
    matched,
    predictivity_figure,
)

# -- theorem 5.3 -------------------------------------------------------------------------------------------


def bound_cells() -> list[Cell]:
    def numbers(bound: float, recovery: float) -> dict[str, Number]:
        return {"bound": number(bound, 2 * bound, 3 * bound), "recovery": number(*[recovery] * 3)}

    return [
        *(Cell("main", {"world.source.alpha": alpha}, numbers(1.0, 0.1 * alpha)) for alpha in (0.5, 2, 8)),
        Cell("main", {"world.dim": 4}, numbers(0.5, 0.01)),
        Cell("untrained", {"world.source.alpha": 2}, numbers(0.5, 0.6)),
        Cell("no regulariser", {}, numbers(0.7, 0.1)),
        Cell("no regulariser", {"world.source.alpha": 8}, numbers(0.7, 0.1)),
    ]


def test_the_bound_is_shown_for_gaussian_latents_only() -> None:
    figure = bound_figure(bound_cells(), "A title")
    assert figure is not None
    (at,) = figure.axes
    np.testing.assert_allclose(
        xy(at, "main (6 runs, 0 above the line)"),
        [[1, 0.2], [2, 0.2], [3, 0.2], [0.5, 0.01], [1, 0.01], [1.5, 0.01]],
    )
    assert "3 of 7 cells left out: their latents are not Gaussian" in below(figure)
    assert at.get_xlim() == at.get_ylim()
    assert "recovery = bound" in at.texts[0].get_text() and "recovery = bound" in labels(at)
    assert bound_figure([cell for cell in bound_cells() if not is_gaussian(cell)], "A title") is None


def test_controls_of_the_bound_are_grey_and_told_apart() -> None:
    figure = bound_figure(bound_cells(), "A title")
    assert figure is not None
    (at,) = figure.axes
    assert same_color(line(at, "main (6 runs, 0 above the line)").get_color(), MODEL_COLOURS[0])
    controls = [line(at, "untrained (3 runs, 1 above the line)")]
    controls.append(line(at, "no regulariser (3 runs, 0 above the line)"))
    assert all(same_color(one.get_color(), CONTROL_COLOUR) for one in controls)
    assert controls[0].get_marker() != controls[1].get_marker()


def test_a_collapsed_encoder_is_on_the_line_and_not_above_it() -> None:
    cell = Cell("main", {}, {"bound": number(2.0), "recovery": number(2.01)}, seeds=1)
    figure = bound_figure([cell], "A title")
    assert figure is not None and "main (1 run, 0 above the line)" in below(figure)


def test_latents_are_taken_for_gaussian_unless_an_axis_says_otherwise() -> None:
    wanted = {
        "{}": True,
        "{'world.source.alpha': 2}": True,
        "{'world.source.alpha': 2.5}": False,
        "{'world.source.name': 'laplace'}": False,
    }
    places = ({}, {"world.source.alpha": 2}, {"world.source.alpha": 2.5}, {"world.source.name": "laplace"})
    assert {str(at): is_gaussian(Cell("main", dict(at), {})) for at in places} == wanted


# -- does the loss tell? -----------------------------------------------------------------------------------


def of_loss(
    at: dict[str, Any], losses: Sequence[float], r2: Sequence[float], seeds: int | None = None
) -> Cell:
    numbers = {"loss_tail": number(*losses)} | ({"r2_hz": number(*r2)} if len(r2) else {})
    return Cell("main", at, numbers, seeds=len(losses) if seeds is None else seeds)


def test_only_runs_whose_losses_mean_the_same_are_compared() -> None:
    rng = np.random.default_rng(2)
    cells, pooled = [], {}
    for lam, rho in itertools.product((0.01, 0.1), (0.9, 0.99)):
        for mixing in ("spiral", "banana"):  # the least loss is the same whatever the mixing
            losses, r2 = rng.uniform(0.1, 9, 4), rng.uniform(0.2, 0.9, 4)
            cells.append(of_loss({"mixing": mixing, "lam": lam, "world.rho": rho}, losses, r2))
            pooled.setdefault(f"lambda {lam:g}, rho {rho:g}", []).extend(zip(losses, r2))
    figure = predictivity_figure(cells[::-1], "A title")
    assert figure is not None
    (at,) = figure.axes
    wanted = {}
    for name, runs in pooled.items():
        loss, r2 = np.array(runs).T
        wanted[f"{name}: r {spearmanr(loss, 1 - r2).statistic:+.2f} (n 8)"] = np.column_stack((loss, 1 - r2))
    assert labels(at) == list(wanted)
    for label, runs in wanted.items():
        np.testing.assert_allclose(np.sort(xy(at, label), axis=0), np.sort(runs, axis=0))
    assert names(at.get_legend().get_texts()) == list(wanted)
    looks = {(str(one.get_color()), str(one.get_marker())) for one in at.lines}
    assert len(looks) == 4


def test_dims_and_kinds_of_pairs_are_apart_and_an_objective_has_its_panel() -> None:
    cells = [
        of_loss({"objective": objective, "world.dim": dim}, (1.0, 2, 3, 4, 5), (0.9, 0.8, 0.7, 0.6, 0.5))
        for objective, dim in itertools.product(("sigreg", "infonce"), (2, 64))
    ]
    figure = predictivity_figure(cells, "A title")
    assert figure is not None
    assert [at.get_title(loc="left") for at in figure.axes] == ["SIGReg", "InfoNCE"]
    for at in figure.axes:
        assert labels(at) == ["N 2: r +1.00 (n 5)", "N 64: r +1.00 (n 5)"]
    pairs = [of_loss({"data": data}, (1.0, 2), (0.9, 0.8)) for data in ("rho 0.9", "delta 8")]
    figure = predictivity_figure(pairs, "A title")
    assert figure is not None and labels(figure.axes[0])[1] == "delta 8: too few to tell (n 2)"


def test_more_groups_than_can_be_told_apart_are_summed_up() -> None:
    losses = (1.0, 2, 3, 4, 5)
    rising, falling = (0.9, 0.8, 0.7, 0.6, 0.5), (0.5, 0.6, 0.7, 0.8, 0.9)
    cells = [of_loss({"lam": float(lam)}, losses, rising) for lam in range(MOST_NAMED + 2)]
    cells += [of_loss({"lam": 998.0}, losses, falling), of_loss({"lam": 999.0}, losses[:2], falling[:2])]
    figure = predictivity_figure(cells, "A title")
    assert figure is not None
    said = names(figure.axes[0].get_legend().get_texts())
    assert len(said) == MOST_NAMED + 1
    assert said[-1] == "4 more: r -1.00 to +1.00, median +1.00, 1 with fewer than 5 runs"
    looks = {(str(one.get_color()), str(one.get_marker())) for one in figure.axes[0].lines}
    assert len(looks) == MOST_NAMED + 1
    assert sum(len(one.get_xdata()) for one in figure.axes[0].lines) == 5 * (MOST_NAMED + 3) + 2


def test_runs_that_are_all_alike_have_no_rank_correlation() -> None:
    figure = predictivity_figure([of_loss({}, (1.0, 2, 3, 4, 5), (0.9,) * 5)], "A title")
    assert figure is not None and labels(figure.axes[0]) == ["all runs: all alike (n 5)"]


def test_few_runs_tell_nothing() -> None:
    figure = predictivity_figure([of_loss({}, (1.0, 2, 3, 4), (0.9, 0.8, 0.7, 0.6))], "A title")
    assert figure is not None and labels(figure.axes[0]) == ["all runs: too few to tell (n 4)"]
    assert "fewer than 5 runs cannot tell" in below(figure)


def test_numbers_that_may_be_of_other_runs_are_not_paired() -> None:
    whole = of_loss({"lam": 0.1}, (1.0, 2.0), (0.9, 0.8))
    lacks_r2 = of_loss({"lam": 0.2}, (1.0, 2.0, 3.0), (0.9, 0.8))
    crossed = of_loss({"lam": 0.3}, (1.0,), (0.9,), seeds=2)  # one run's loss, perhaps the other's R2
    lost = of_loss({"lam": 0.4}, (1.0, 2.0), ())
    assert matched(lacks_r2, "loss_tail", "r2_hz") is None and matched(crossed, "loss_tail", "r2_hz") is None
    figure = predictivity_figure([whole, lacks_r2, crossed, lost], "A title")
    assert figure is not None
    assert labels(figure.axes[0]) == ["lambda 0.1: too few to tell (n 2)"]
    assert "3 of 4 cells left out" in below(figure)
    assert predictivity_figure([lacks_r2], "A title") is None


def test_the_rank_correlation_is_scipys() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 6, 40).astype(float), rng.normal(size=40).round(1)
    assert _spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert np.isnan(_spearman(a, np.ones(40)))
    ranks = np.array([1.0, 2.5, 2.5, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])  # by hand: ties share theirs
    assert _spearman(np.array([7.0, 8, 8, 20]), ranks[1]) == pytest.approx(np.corrcoef(*ranks)[0, 1])
