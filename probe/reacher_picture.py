"""The picture of a pair set of the Reacher: some pairs, the joints' distributions, how pairs correlate."""

from __future__ import annotations

import io
import math

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from reports.marks import CONTROL_COLOUR, INK, MODEL_COLOURS, STYLE
from sim.reacher import JOINTS
from sim.reacher_pairs import PairSet
from sim.reacher_trajectories import PUBLISHED_AUTOCORRELATION

DPI = 110
SHOWN = 8  # pairs a value
MOST_VALUES = 4


def pair_correlations(pairs: PairSet) -> dict[float, tuple[float, float]]:
    """By rho or delta: the correlation of both members of its pairs, of the shoulder and the wrist; NaN for
    one pair alone.
    """
    found = {}
    for value in pairs.info.values:
        if pairs.info.count < 2:
            found[value] = (math.nan, math.nan)
            continue
        first, second = pairs.states[pairs.pairs(value)].transpose(1, 2, 0)
        shoulder, wrist = (float(np.corrcoef(one, other)[0, 1]) for one, other in zip(first, second))
        found[value] = (shoulder, wrist)
    return found


def draw_pair_set(pairs: PairSet) -> bytes:
    """The picture as PNG."""
    values = pairs.info.values[:MOST_VALUES]
    strips = max(len(values), 1)
    with mpl.rc_context({**STYLE, "axes.spines.left": True}):
        figure = Figure(figsize=(SHOWN + 0.6, 2.15 * strips + 3.4), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(2, 1, height_ratios=[2.15 * strips, 3.4])
        above, below = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
        above.suptitle(f"{pairs.folder.name}: {_headline(pairs)}", x=0.01, ha="left", weight="bold")
        for row, axes in enumerate(np.atleast_1d(above.subplots(strips, 1))):
            axes.imshow(_strip(pairs, values[row] if values else None), interpolation="nearest")
            axes.set_axis_off()
            if values:
                axes.set_title(f"{_letter(pairs)} = {values[row]:g}: first members above, second below")
        panels = below.subplots(1, 3 if values else 2)
        for joint, name in enumerate(JOINTS):
            _marginal(panels[joint], pairs.states[:, joint], name)
        if values:
            _correlations(panels[2], pairs)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": "jointprobe"})
    return buffer.getvalue()


def _headline(pairs: PairSet) -> str:
    what = {"ou": "OU pairs", "traj": "trajectory pairs", "eval": "evaluation images"}[pairs.condition]
    source = f" of {pairs.info.source['name']}" if pairs.info.source else ""
    images = f", {len(pairs):,} different images" if pairs.info.values else ""
    return f"{pairs.info.count:,} {what}{source}{images}"


def _letter(pairs: PairSet) -> str:
    return "rho" if pairs.condition == "ou" else "delta"


def _strip(pairs: PairSet, value: float | None) -> np.ndarray:
    """Pairs from all over the set side by side, the first member above the second; or images in two rows."""
    if value is None:
        rows = np.arange(min(2 * SHOWN, len(pairs)))
        rows = rows[: len(rows) // 2 * 2].reshape(2, -1) if len(rows) > 1 else rows[None]
    else:
        chosen = np.linspace(0, pairs.info.count - 1, min(SHOWN, pairs.info.count)).astype(np.int64)
        rows = pairs.pairs(value)[chosen].T
    images = pairs.frames(rows.reshape(-1)).reshape(*rows.shape, 64, 64, 3)
    framed = np.full((*rows.shape, 66, 66, 3), 255, np.uint8)
    framed[:, :, 1:-1, 1:-1] = images
    return np.concatenate([np.concatenate(list(row), axis=1) for row in framed], axis=0)


def _marginal(axes: Axes, angles: np.ndarray, name: str) -> None:
    """A histogram of all states' angles, with the standard normal density for comparison."""
    bins = int(np.clip(np.sqrt(len(angles)), 5, 80))
    axes.hist(angles, bins=bins, density=True, color=MODEL_COLOURS[0], alpha=0.75)
    left, right = axes.get_xlim()
    grid = np.linspace(left, right, 200)
    axes.plot(grid, np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi), color=INK, linewidth=1, label="N(0, 1)")
    axes.set_title(f"{name}: mean {angles.mean():.2f}, sd {angles.std():.2f}")
    axes.set_xlabel("rad")
    axes.set_yticks([])
    axes.legend(frameon=False)


def _correlations(axes: Axes, pairs: PairSet) -> None:
    """Measured correlation of pairs by rho or delta; beside the rho itself, or the published ones."""
    found = pair_correlations(pairs)
    places = list(found)
    for joint, name in enumerate(JOINTS):
        measured = [found[place][joint] for place in places]
        axes.plot(places, measured, "o-", color=MODEL_COLOURS[joint], markersize=5, label=name)
    if pairs.condition == "ou":
        axes.plot(places, places, "_", color=INK, markersize=12, label="rho")
        axes.set_xlabel("rho")
    else:
        published = [place for place in places if int(place) in PUBLISHED_AUTOCORRELATION]
        for joint in range(2):
            theirs = [PUBLISHED_AUTOCORRELATION[int(place)][joint] for place in published]
            label = "published" if joint == 0 else None
            axes.plot(published, theirs, "_", color=CONTROL_COLOUR, markersize=14, label=label)
        axes.set_xscale("log", base=2)
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.set_xlabel("delta, rows")
    axes.set_title("correlation of pairs")
    axes.legend(frameon=False)
