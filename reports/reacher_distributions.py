"""How pairs of the Reacher are distributed, as figures: marginals, differences, SIGReg, autocorrelation.

`draw_distributions` draws what `SetFound` holds: sets beside each other, the paper's numbers too.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullLocator

from bars.files import write_whole
from reports.marks import CONTROL_COLOUR, INK, MODEL_COLOURS, MODEL_MARKERS, STYLE, Series
from reports.numbers import clipped, plain
from reports.reacher_found import BOTH, JOINTS, WHATS, SetFound, Shape, ValueFound
from reports.sweep_panels import SMALL, at_values, canvas, legend, line_handle, log_ticks, name_axes

DPI = 150
MOST_COLUMNS = 7  # panels of differences side by side
SPAN = 5.0  # of standardised differences that is shown, in sd
ROOM = 0.055  # of an axis, for the name of a tick
ROUNDED = 0.0005  # the paper's correlations have three decimals


MARGINALS, DIFFERENCES, SIGREG, AUTOCORRELATION = (
    "marginals.png",
    "differences.png",
    "sigreg.png",
    "autocorrelation.png",
)


def draw_distributions(found: Sequence[SetFound], folder: str | Path, floor_theirs: float) -> list[Path]:
    """Draw four figures into a folder: the same bytes for the same numbers.

    Parameters
    ----------
    floor_theirs : the paper's SIGReg of Gaussian samples.
    """
    figures: dict[str, Callable[[], Figure]] = {
        MARGINALS: lambda: marginals_figure(found),
        DIFFERENCES: lambda: differences_figure(found),
        SIGREG: lambda: sigreg_figure(found, floor_theirs),
        AUTOCORRELATION: lambda: autocorrelation_figure(found),
    }
    paths = []
    for name, make in figures.items():
        buffer = io.BytesIO()
        figure = make()
        with mpl.rc_context(STYLE):
            figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": "jointprobe"})
        paths.append(Path(folder) / name)
        write_whole(paths[-1], buffer.getvalue())
    return paths


# -- densities ---------------------------------------------------------------------------------------------


def marginals_figure(found: Sequence[SetFound]) -> Figure:
    """A row a set: histograms of both joints over all states, N(0, 1), the Gaussian of that mean and sd."""
    figure, axes = canvas(len(found), 2, "Angles of all states", width=4.6, height=2.6)
    with mpl.rc_context(STYLE):
        for row, one in enumerate(found):
            for column, (joint, shape) in enumerate(zip(JOINTS, one.marginals)):
                at, theirs = axes[row, column], ""
                if column == 0 or one.condition == "ou":
                    theirs = f" (theirs {one.beyond_theirs[1]})"
                _histogram(at, shape.samples, _series(row).colour)
                left, right = at.get_xlim()
                grid = np.linspace(left, right, 300)
                at.plot(grid, _gauss(grid, shape.mean, shape.sd), color=CONTROL_COLOUR, lw=1.2, ls="--")
                at.plot(grid, _gauss(grid), color=INK, lw=1.2)
                for edge in (-np.pi, np.pi):
                    if left < edge < right:
                        at.axvline(edge, color=CONTROL_COLOUR, lw=0.8, ls=":")
                title = (
                    f"{clipped(one.name)}, {joint}: mean {plain(shape.mean, 2)}, sd {plain(shape.sd, 2)}, "
                    f"KS {plain(shape.ks)}\nbeyond ±π {100 * shape.beyond_pi:.3g} %{theirs}"
                )
                name_axes(at, title=title, xlabel="rad" if row == len(found) - 1 else "")
                at.set_title(title, fontsize=8.5)
                at.set_yticks([])
                at.tick_params(labelsize=SMALL)
        handles: list[Artist] = [
            Patch(color=CONTROL_COLOUR, alpha=0.4, label="histogram of a set"),
            Line2D([], [], color=INK, lw=1.2, label="N(0, 1), the theorem's"),
            Line2D([], [], color=CONTROL_COLOUR, lw=1.2, ls="--", label="Gaussian of the set's mean and sd"),
            Line2D([], [], color=CONTROL_COLOUR, lw=0.8, ls=":", label="half a turn either way"),
        ]
        legend(figure, handles, ["KS: largest distance of the distribution functions, set and N(0, 1)."])
    return figure


def differences_figure(found: Sequence[SetFound]) -> Figure:
    """Rows of sets and joints, a column a value: standardised differences, logarithmic for their tails."""
    beside = max(len(one.values) for one in found) <= MOST_COLUMNS // 2  # both joints of a set in one row
    rows: list[list[tuple[int, int, ValueFound]]] = []
    for number, one in enumerate(found):
        for first in range(0, len(one.values), MOST_COLUMNS):
            values = one.values[first : first + MOST_COLUMNS]
            of_joints = [[(number, joint, value) for value in values] for joint in range(2)]
            rows += [of_joints[0] + of_joints[1]] if beside else of_joints
    columns = max(map(len, rows))
    title = "Differences of pairs, standardised: z' - rho z of OU pairs, z' - z of trajectories"
    figure, axes = canvas(len(rows), columns, title, width=max(1.9, 4.4 / columns), height=1.75)
    with mpl.rc_context(STYLE):
        for row, cells in enumerate(rows):
            for at in axes[row][len(cells) :]:
                at.set_axis_off()
            for column, (at, (number, joint, value)) in enumerate(zip(axes[row], cells)):
                one, shape = found[number], value.differences[joint]
                _difference(at, shape, _series(number).colour)
                name = f"{one.letter} {value.value:g}"
                head = f"{JOINTS[joint]}, {name}\n" if beside else f"{name}\n" if joint == 0 else ""
                said = f"skew {_minus(shape.skewness, 2)}, kurt {_minus(shape.excess_kurtosis, 2)}"
                at.set_title(head + said, fontsize=7.5, loc="center", weight="normal")
                if column == 0:
                    named = clipped(one.name, 18) + ("" if beside else f"\n{JOINTS[joint]}")
                    at.set_ylabel(named, fontsize=8.5)
        handles: list[Artist] = [
            Patch(color=CONTROL_COLOUR, alpha=0.4, label="density, logarithmic"),
            Line2D([], [], color=INK, lw=1.2, label="N(0, 1)"),
        ]
        note = "kurt: excess kurtosis, 0 for a Gaussian. x: sd."
        legend(figure, handles, [note])
    return figure


def _difference(at: Axes, shape: Shape, colour: str) -> None:
    x = np.clip(shape.standardised, -SPAN, SPAN)
    bins = int(np.clip(np.sqrt(len(x)), 8, 50))
    heights, edges = np.histogram(x, bins=bins, range=(-SPAN, SPAN), density=True)
    at.stairs(heights, edges, fill=True, color=colour, alpha=0.55)
    grid = np.linspace(-SPAN, SPAN, 200)
    at.plot(grid, _gauss(grid), color=INK, lw=1)
    at.set_yscale("log")
    low = min(0.3 * bins / (2 * SPAN * len(x)), 3e-3)
    at.set_ylim(low, max(1.3, 1.5 * float(heights.max())))
    at.set_xlim(-SPAN, SPAN)
    at.yaxis.set_major_locator(NullLocator())
    at.yaxis.set_minor_locator(NullLocator())
    at.set_xticks([-4, -2, 0, 2, 4])
    at.tick_params(labelsize=7)
    beyond = int((np.abs(shape.standardised) > SPAN).sum())
    if beyond:  # they stand in the outermost bars
        at.text(
            0.97,
            0.95,
            f"{beyond} beyond ±{SPAN:g}",
            transform=at.transAxes,
            ha="right",
            va="top",
            fontsize=6.5,
        )


def _histogram(at: Axes, samples: np.ndarray, colour: str) -> None:
    bins = int(np.clip(np.sqrt(len(samples)), 8, 80))
    at.hist(samples, bins=bins, density=True, color=colour, alpha=0.55)


def _gauss(x: np.ndarray, mean: float = 0.0, sd: float = 1.0) -> np.ndarray:
    density: np.ndarray = np.exp(-(((x - mean) / sd) ** 2) / 2) / (sd * np.sqrt(2 * np.pi))
    return density


# -- SIGReg ------------------------------------------------------------------------------------------------


def sigreg_figure(found: Sequence[SetFound], floor_theirs: float) -> Figure:
    """SIGReg by rho and delta: differences above, marginals below, a column for each of `WHATS`; the floor is
    grey. (The paper draws it over the correlation of pairs, which falls with delta.)
    """
    places = _places(found)
    title = "SIGReg of z-scored differences and marginals, beside that of as many Gaussian samples"
    width = max(2.9, 0.22 * len(places) + 0.6)
    figure, axes = canvas(2, len(WHATS), title, width=width, height=2.9)
    bars = any(one.of_differences[BOTH].interval for each in found for one in each.values)
    with mpl.rc_context(STYLE):
        for row, of in enumerate(("differences", "marginals")):
            ends = [_sigreg_panel(at, found, of, what, places) for at, what in zip(axes[row], WHATS)]
            bottom = min(floor_theirs, *(low for low, _ in ends)) / 1.6
            top = max(floor_theirs, *(high for _, high in ends)) * 1.6
            for at, what in zip(axes[row], WHATS):
                at.axhline(floor_theirs, color=INK, lw=0.9, ls="--", zorder=1)
                _log_y(at, bottom, top)
                name_axes(at, title=f"{of}: {what}", ylabel="SIGReg" if what == WHATS[0] else "")
                _value_axis(at, places)
        handles = [*_set_handles(found, line="-"), *_floor_handles(found, floor_theirs)]
        if bars:
            handles.append(
                Line2D([], [], color=INK, marker="_", ms=6, lw=1, label="bar: 95 %, episodes drawn again")
            )
        notes = [
            "both: the plane of both joints; whitened: without their correlation. SIGReg above the floor "
            "grows with the number of pairs. Marginals are those of second members."
        ]
        if any(one.condition == "traj" for one in found):
            notes.append(
                "The floor assumes independent pairs; those of one episode are not: a bar that reaches down "
                "to the floor says that dependence may be all there is."
            )
        legend(figure, handles, notes)
    return figure


def _places(found: Sequence[SetFound]) -> dict[tuple[str, float], float]:
    """Where each rho and each delta stands on the axis: rho first, then a gap."""
    rhos = sorted({value.value for one in found if one.condition == "ou" for value in one.values})
    deltas = sorted({value.value for one in found if one.condition == "traj" for value in one.values})
    places = {("rho", rho): float(place) for place, rho in enumerate(rhos)}
    gap = len(rhos) + 0.6 * bool(rhos)
    return places | {("delta", delta): place + gap for place, delta in enumerate(deltas)}


def _value_axis(at: Axes, places: dict[tuple[str, float], float]) -> None:
    at.set_xlim(min(places.values()) - 0.6, max(places.values()) + 0.6)
    at.xaxis.set_major_locator(FixedLocator(list(places.values())))
    names = [f"{value:g}".removeprefix("0") or "0" for _, value in places]
    at.set_xticklabels(names, fontsize=7)
    letters = {letter: [place for (one, _), place in places.items() if one == letter] for letter, _ in places}
    for letter, where in letters.items():
        text = "rho" if letter == "rho" else "delta, rows"
        middle = (where[0] + where[-1]) / 2
        at.text(
            middle, -0.11, text, transform=at.get_xaxis_transform(), ha="center", va="top", fontsize="small"
        )
    at.set_xlabel(" ", fontsize="small")  # room for them


def _sigreg_panel(
    at: Axes, found: Sequence[SetFound], of: str, what: str, places: dict[tuple[str, float], float]
) -> tuple[float, float]:
    """Draw it; the lowest and the highest that the axis must show."""
    floors, heights = [], []
    for number, one in enumerate(found):
        series = _series(number)
        alike = [each for each, other in enumerate(found) if other.condition == one.condition]
        shift = 0.36 * (alike.index(number) - (len(alike) - 1) / 2) / max(1, len(alike) - 1)
        ordered = sorted(one.values, key=lambda value: value.value)
        tested = [
            (each.of_differences if of == "differences" else each.of_marginals)[what] for each in ordered
        ]
        x = [places[one.letter, each.value] + shift for each in ordered]
        y = [each.sigreg for each in tested]
        at.plot(x, y, marker=series.marker, color=series.colour, ms=4.5, lw=1.1, zorder=3)
        floors += [each.floor for each in tested]
        heights += y
        for place, each in zip(x, tested):
            if each.interval is not None:
                low, high = each.interval
                heights += [max(low, 0.5 * each.floor.low), high]
                at.plot([place] * 2, [max(low, 1e-6), high], color=series.colour, marker="_", ms=4, lw=0.8)
    low, high = min(one.low for one in floors), max(one.high for one in floors)
    at.axhspan(low, high, color=CONTROL_COLOUR, alpha=0.3, lw=0, zorder=1)
    at.axhline(sum(one.mean for one in floors) / len(floors), color=CONTROL_COLOUR, lw=1, zorder=1)
    return min([low, *heights]), max([high, *heights])


def _log_y(at: Axes, bottom: float, top: float) -> None:
    at.set_yscale("log")
    at.set_ylim(bottom, top)
    at.yaxis.set_major_locator(FixedLocator(log_ticks(bottom, top, most=7)))
    at.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    at.yaxis.set_minor_locator(NullLocator())
    at.tick_params(labelsize=SMALL)


def _floor_handles(found: Sequence[SetFound], floor_theirs: float) -> list[Artist]:
    floors = [
        tested.floor for one in found for value in one.values for tested in [value.of_differences[BOTH]]
    ]
    counts = sorted({floor.n for floor in floors})
    n = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return [
        Patch(color=CONTROL_COLOUR, alpha=0.3, label=f"floor: 95 % of Gaussian samples, z-scored, n = {n}"),
        Line2D(
            [], [], color=INK, lw=0.9, ls="--", label=f"theirs: floor of Gaussian samples, {floor_theirs:g}"
        ),
    ]


# -- autocorrelation ---------------------------------------------------------------------------------------


def autocorrelation_figure(found: Sequence[SetFound]) -> Figure:
    """1 - correlation of pairs by delta, theirs beside ours; and of OU pairs beside 1 - rho."""
    kinds = [kind for kind in ("traj", "ou") if any(one.condition == kind for one in found)]
    figure, axes = canvas(len(kinds), 2, "1 - correlation of pairs", width=4.4, height=3.0)
    with mpl.rc_context(STYLE):
        for row, kind in enumerate(kinds):
            for joint, at in enumerate(axes[row]):
                _autocorrelation_panel(at, found, kind, joint)
        handles = _set_handles(found, line="-")
        if "traj" in kinds:
            handles.append(line_handle(Series("hollow: theirs, and its rounding", INK, "s", filled=False)))
        if "ou" in kinds:
            handles.append(Line2D([], [], color=INK, lw=0.9, ls="--", label="rho itself"))
        handles.append(Line2D([], [], color=INK, marker="_", ms=6, lw=1, label="bar: 95 %"))
        legend(figure, handles, [])
    return figure


def _autocorrelation_panel(at: Axes, found: Sequence[SetFound], kind: str, joint: int) -> None:
    theirs: dict[float, float] = {}
    heights: list[float] = []
    values = sorted({value.value for one in found if one.condition == kind for value in one.values})
    for number, one in enumerate(found):
        if one.condition != kind:
            continue
        series = _series(number)
        ordered = sorted(one.values, key=lambda value: value.value)
        x = [value.value if kind == "traj" else 1 - value.value for value in ordered]
        ours = [value.correlations[joint] for value in ordered]
        lacking = [1 - each.value for each in ours]
        heights += [each for each in lacking if each > 0]
        at.plot(x, lacking, marker=series.marker, color=series.colour, ms=5, lw=1.1, zorder=3)
        for place, each in zip(x, ours):
            if each.low is not None and each.high is not None:
                ends = [max(1 - each.high, 1e-7), 1 - each.low]
                heights += [ends[1], max(ends[0], 0.3 * (1 - each.value))]
                at.plot([place] * 2, ends, color=series.colour, marker="_", ms=6, lw=1, zorder=3)
        theirs |= {
            place: each.theirs for place, each in zip(x, ours) if each.theirs is not None and kind == "traj"
        }
    if kind == "traj":
        for place, correlation in theirs.items():
            if correlation < 1:  # of 1.000 the rounding alone can be shown
                at.plot([place], [1 - correlation], "s", color=INK, mfc="none", ms=8, zorder=4)
            ends = [max(1 - correlation - ROUNDED, 1e-7), 1 - correlation + ROUNDED]
            at.plot([place] * 2, ends, color=INK, lw=0.9, zorder=4)
            heights.append(ends[1])
        at_values(at, values, base=2)
        _name_ticks(at, values, values)
        name_axes(at, title=f"trajectories, {JOINTS[joint]}", xlabel="delta, rows", ylabel="1 - correlation")
    else:
        places = [1 - value for value in values]
        low, high = min(places) / 1.6, min(1.6 * max(places), 2)
        at.plot([low, high], [low, high], color=INK, lw=0.9, ls="--", zorder=2)
        at.set_xlim(high, low)
        at.set_xscale("log")
        _name_ticks(at, places, values)
        heights += places
        name_axes(at, title=f"OU, {JOINTS[joint]}", xlabel="rho", ylabel="1 - correlation")
    _log_y(at, min(heights, default=0.1) / 2, max(heights, default=1) * 2)


def _name_ticks(at: Axes, places: Sequence[float], values: Sequence[float]) -> None:
    """A tick at each place of a logarithmic axis, named by its value where there is room for the name."""
    left, right = at.get_xlim()
    names, last = [], -1.0
    for place, value in zip(places, values):
        share = np.log(place / left) / np.log(right / left)
        fits = share - last > ROOM
        names.append(f"{value:g}" if fits else "")
        last = share if fits else last
    at.xaxis.set_major_locator(FixedLocator(list(places)))
    at.set_xticklabels(names, fontsize=SMALL)
    at.xaxis.set_minor_locator(NullLocator())


def _set_handles(found: Sequence[SetFound], line: str) -> list[Artist]:
    return [
        line_handle(Series(clipped(one.name, 30), _series(number).colour, _series(number).marker), line)
        for number, one in enumerate(found)
    ]


def _series(number: int) -> Series:
    """Colours go round; with each round they get other markers."""
    turn, place = divmod(number, len(MODEL_COLOURS))
    return Series(str(number), MODEL_COLOURS[place], MODEL_MARKERS[(place + turn) % len(MODEL_MARKERS)])


def _minus(value: float, digits: int) -> str:
    return plain(value, digits).replace("-", "−")
