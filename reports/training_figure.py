"""The figure of a training, drawn from its log: loss terms, how the latents are spread, the learning rate."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from reports.marks import FAINT, INK, MODEL_COLOURS, STYLE

LOG, FIGURE = "training.jsonl", "training.png"
MAX_POINTS = 2000  # of a curve: more are not to be told apart
SPREAD = {"effective_rank", "smallest_std", "median_std"}
WIDTH, HEIGHT, DPI = 7.0, 6.4, 150  # inches


def draw_training(folder: str | Path) -> Path | None:
    """Draw `training.png` of the log in a training's folder, finished or not.

    Parameters
    ----------
    folder : of the encoder.

    Returns
    -------
    Path or None
        The figure; None where there is no log with a line in it (principal components are not trained).
    """
    folder = Path(folder)
    lines = read_log(folder / LOG)
    if not lines:
        return None
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        training_figure(lines).savefig(buffer, format="png", dpi=DPI, metadata={"Software": "jointprobe"})
    temporary = folder / f"{FIGURE}.partial"
    temporary.write_bytes(buffer.getvalue())
    return temporary.replace(folder / FIGURE)


def read_log(path: Path) -> list[dict[str, Any]]:
    """Lines of a training.jsonl; one that is not whole, as a kill may leave it, is left out."""
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and line.keys() >= {"step", "loss", "learning_rate"}:
            lines.append(line)
    return lines


def training_figure(lines: Sequence[Mapping[str, Any]]) -> Figure:
    """Three panels over the steps; a dashed line stands where the log warns of a collapse.

    Parameters
    ----------
    lines : at least one, each with `step`, `loss`, its terms, `learning_rate`, and `effective_rank`,
        `smallest_std` and `median_std` where these were logged.
    """
    every = -(-len(lines) // MAX_POINTS)
    drawn = [*lines[:-1:every], lines[-1]]
    steps = [line["step"] for line in drawn]
    terms = [name for name in lines[0] if name not in {"step", "learning_rate", "warning"} | SPREAD]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        FigureCanvasAgg(figure)
        loss, spread, rate = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2.4, 1.2))
        for name, colour in zip(terms, MODEL_COLOURS):
            width = 3.2 if name == "loss" else 1.5  # seen below a term that it is equal to
            values = [line[name] for line in drawn]
            loss.plot(steps, values, color=colour, linewidth=width, label=name.replace("_", " "))
        loss.set_title("loss")
        if all(line[name] > 0 for line in drawn for name in terms):
            loss.set_yscale("log")
            loss.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            loss.yaxis.set_minor_formatter(NullFormatter())
        _legend(loss, loss.lines)
        _draw_spread(spread, steps, drawn)
        rate.plot(steps, [line["learning_rate"] for line in drawn], color=INK)
        rate.set_title("learning rate")
        rate.set_ylim(bottom=0)
        rate.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
        rate.set_xlabel("step")
        for axes in (loss, spread, rate):
            axes.grid(axis="y", color=FAINT, linewidth=0.8)
            axes.set_axisbelow(True)
        for line in lines:
            if "warning" in line:
                _mark_collapse((loss, spread, rate), line["step"])
    return figure


def _draw_spread(axes: Axes, steps: Sequence[int], drawn: Sequence[Mapping[str, Any]]) -> None:
    """Effective rank on the left scale, standard deviations of the dimensions on the right one."""
    if not all(line.keys() >= SPREAD for line in drawn):
        axes.set_title("latents: spread not logged")
        return
    axes.set_title("latents")
    curves = axes.plot(
        steps,
        [line["effective_rank"] for line in drawn],
        color=MODEL_COLOURS[0],
        label="effective rank (left)",
    )
    axes.set_ylim(bottom=0)
    right = axes.twinx()
    for name, style in (("median_std", "-"), ("smallest_std", ":")):
        label = f"{name.removesuffix('_std')} std (right)"
        values = [line[name] for line in drawn]
        curves += right.plot(steps, values, color=MODEL_COLOURS[1], linestyle=style, label=label)
    right.set_ylim(bottom=0)
    _legend(axes, curves)


def _legend(axes: Axes, curves: Sequence[Line2D]) -> None:
    """A line of names above the panel, at its right end."""
    labels = [str(curve.get_label()) for curve in curves]
    axes.legend(
        list(curves), labels, loc="lower right", bbox_to_anchor=(1, 0.97), ncols=len(labels), handlelength=1.4
    )


def _mark_collapse(panels: Sequence[Axes], step: int) -> None:
    for axes in panels:
        axes.axvline(step, color=INK, linestyle="--", linewidth=1.2)
    first = panels[0]
    first.text(step, 0.5, " collapse", transform=first.get_xaxis_transform(), fontweight="bold")
