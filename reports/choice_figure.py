"""The figure of a choice: held-out R2 of each value that was tried, with its interval."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bars.files import write_whole
from reports.marks import FAINT, INK, MODEL_COLOURS, STYLE

FIGURE = "choice.png"
WIDTH, HEIGHT, DPI = 6.0, 3.6, 150  # inches


def draw_choice(choice: Mapping[str, Any], folder: str | Path) -> Path:
    """Draw `choice.png` in `folder`.

    Parameters
    ----------
    choice : as choice.json holds it: `setting`, `chosen`, `held_out`, and `candidates` with `value`,
        `r2_mean`, `low`, `high` and `warnings`.
    """
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure = choice_figure(choice)
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": "jointprobe"})
    write_whole(Path(folder) / FIGURE, buffer.getvalue())
    return Path(folder) / FIGURE


def choice_figure(choice: Mapping[str, Any]) -> Figure:
    """A point and an interval for each value, in the order asked for; see `draw_choice`."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for place, one in enumerate(choice["candidates"]):
            if one["r2_mean"] is None:
                continue
            colour = MODEL_COLOURS[0] if one["value"] == choice["chosen"] else INK
            if one["low"] is not None:
                axes.plot([place, place], [one["low"], one["high"]], color=colour, linewidth=1.5)
            axes.plot(place, one["r2_mean"], "o", color=colour)
            text = f"{one['r2_mean']:.2f}{', collapsed' if one['warnings'] else ''}"
            axes.annotate(text, (place, one["r2_mean"]), (7, 0), textcoords="offset points", va="center")
        axes.set_xticks(range(len(choice["candidates"])), [str(one["value"]) for one in choice["candidates"]])
        axes.set_xlim(-0.5, len(choice["candidates"]) - 0.2)
        axes.set_xlabel(choice["setting"])
        axes.set_title(f"mean R2 on {len(choice['held_out'])} held-out training episodes")
        axes.grid(axis="y", color=FAINT, linewidth=0.8)
        axes.set_axisbelow(True)
    return figure
