"""Whether what a figure says can be read: nothing lies on something else, nor beyond the edge."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from reports.marks import STYLE


def assert_apart(figure: Figure, axes: Sequence[Axes], kind: str, most: float = 1) -> None:
    """Panels, legends and title share less than `most` pixels, and stand within the figure."""
    with mpl.rc_context(STYLE):
        figure.canvas.draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = [at.get_tightbbox(renderer) for at in axes]
    boxes += [one.get_window_extent(renderer) for one in figure.legends]
    boxes.append(figure._suptitle.get_window_extent(renderer))  # type: ignore[attr-defined]
    for first, second in itertools.combinations(boxes, 2):
        shared = Bbox.intersection(first, second)
        assert shared is None or min(shared.width, shared.height) < most, kind
    for box in boxes:
        assert box.x0 > -1 and box.y0 > -1 and box.x1 < figure.bbox.x1 + 1 and box.y1 < figure.bbox.y1 + 1
