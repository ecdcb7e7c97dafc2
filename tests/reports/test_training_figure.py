"""The figure of a training: drawn from its log alone, whatever a kill has left of it."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.image
import numpy as np
from matplotlib.axes import Axes

from reports.training_figure import MAX_POINTS, draw_training, read_log, training_figure


def _lines(count: int, warning_at: int | None = None) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    for number in range(1, count + 1):
        line: dict[str, object] = {
            "step": 10 * number,
            "loss": 2.0 / number,
            "prediction": 1.0 / number,
            "sigreg": 9.0 / number,
            "learning_rate": 1e-3 * (1 - number / count),
            "effective_rank": 3.0 + number / count,
            "smallest_std": 0.2,
            "median_std": 0.8,
        }
        lines.append({**line, "warning": "the latents collapse"} if number == warning_at else line)
    return lines


def _write(folder: Path, lines: list[dict[str, object]]) -> None:
    (folder / "training.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _curve(axes: Axes, label: str) -> np.ndarray:
    (line,) = [line for line in axes.lines if line.get_label() == label]
    return np.asarray(line.get_xydata())


def test_every_number_of_the_log_is_drawn() -> None:
    lines = _lines(30)
    figure = training_figure(lines)
    loss, spread, rate, right = figure.axes
    for name in ("loss", "prediction", "sigreg"):
        wanted = [[line["step"], line[name]] for line in lines]
        np.testing.assert_allclose(_curve(loss, name), wanted)
    np.testing.assert_allclose(
        _curve(spread, "effective rank (left)")[:, 1], [line["effective_rank"] for line in lines]
    )
    assert set(_curve(right, "median std (right)")[:, 1]) == {0.8}
    assert set(_curve(right, "smallest std (right)")[:, 1]) == {0.2}
    np.testing.assert_allclose(rate.lines[0].get_ydata(), [line["learning_rate"] for line in lines])
    assert loss.get_yscale() == "log" and not [line for line in loss.lines if line.get_linestyle() == "--"]


def test_a_collapse_is_marked_in_every_panel() -> None:
    figure = training_figure(_lines(30, warning_at=12))
    for axes in figure.axes[:3]:
        marks = [line for line in axes.lines if line.get_linestyle() == "--" and len(line.get_xdata())]
        assert [list(line.get_xdata()) for line in marks] == [[120, 120]]
    assert [text.get_text().strip() for text in figure.axes[0].texts] == ["collapse"]


def test_long_logs_are_thinned_and_keep_their_last_line() -> None:
    figure = training_figure(_lines(5 * MAX_POINTS + 3))
    drawn = _curve(figure.axes[0], "loss")
    assert len(drawn) <= MAX_POINTS + 1 and drawn[-1, 0] == 10 * (5 * MAX_POINTS + 3)


def test_a_loss_of_zero_is_drawn_on_a_linear_scale() -> None:
    assert (
        training_figure([{**line, "prediction": 0.0} for line in _lines(3)]).axes[0].get_yscale() == "linear"
    )


def test_logs_of_before_the_spread_was_logged_are_drawn() -> None:
    old = [{name: line[name] for name in ("step", "loss", "sigreg", "learning_rate")} for line in _lines(5)]
    assert "not logged" in training_figure(old).axes[1].get_title(loc="left")


def test_the_file_is_the_same_for_the_same_log_and_leaves_nothing_else(tmp_path: Path) -> None:
    _write(tmp_path, _lines(20, warning_at=5))
    path = draw_training(tmp_path)
    assert path == tmp_path / "training.png"
    first = path.read_bytes()
    assert draw_training(tmp_path) == path and path.read_bytes() == first
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["training.jsonl", "training.png"]
    picture = matplotlib.image.imread(path)
    assert picture.shape[0] > 600 and picture[..., :3].std() > 0.02


def test_torn_lines_are_left_out_and_nothing_is_drawn_of_nothing(tmp_path: Path) -> None:
    assert draw_training(tmp_path) is None
    _write(tmp_path, [])
    assert draw_training(tmp_path) is None
    _write(tmp_path, _lines(3))
    with (tmp_path / "training.jsonl").open("a") as file:
        file.write('{"step": 40, "lo')
    assert [line["step"] for line in read_log(tmp_path / "training.jsonl")] == [10, 20, 30]
    assert draw_training(tmp_path) is not None
