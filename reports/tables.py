"""Per-joint tables and the trained-on x evaluated-on table, gathered from a study's measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bars.measurement import R2_MEANS, Measurement, MeasurementPath, difference_path, finite, part_names
from bars.results import DataResult, Results
from bars.study import Study
from reports.model import (
    EXCHANGED,
    MEAN,
    BesideTable,
    EncoderLine,
    JointRow,
    JointTable,
    Number,
    TransferDifference,
    TransferRow,
    TransferTable,
)

SUMMARIES = {
    MEAN: "r2.mean",
    EXCHANGED: "null.mean",
    "weighted mean": "r2.weighted",
    "anisotropy": "anisotropy",
    "anisotropy by chance": "anisotropy.null",
    "anisotropy, joints chosen in training": "anisotropy.contrast",
}


def number_of(measurement: Measurement) -> Number:
    """A measurement as the card shows it; a joint that is not testable loses whatever number it came with."""
    shown = measurement.testable
    return Number(
        path=measurement.path,
        value=finite(measurement.value) if shown else None,
        low=finite(measurement.low) if shown else None,
        high=finite(measurement.high) if shown else None,
        unit=measurement.unit,
        n_rows=measurement.n_rows,
        n_episodes=measurement.n_episodes,
        testable=shown,
        note=measurement.note,
        digits=2 if _is_joint(measurement.path) else 3,
        powers=measurement.path.endswith(".map.rcond"),
    )


def _is_joint(path: str) -> bool:
    """Whether a path names one joint's R2: two decimals are enough there."""
    if " - " in path:
        return False
    parsed = MeasurementPath.parse(path)
    return parsed.metric in ("r2", "null") and parsed.part not in R2_MEANS


def joint_tables(
    study: Study, results: Results, encoders: tuple[EncoderLine, ...], numbers: Mapping[str, Number]
) -> tuple[JointTable, ...]:
    """One table a data entry on which anything was measured, in the study's order.

    Columns are the encoders measured there, models first; rows the joints, then the means and the anisotropy.
    """
    tables = (
        _joint_table(study, results.data.get(data, DataResult()), data, encoders, numbers)
        for data in study.data
    )
    return tuple(table for table in tables if table is not None)


def transfer_table(
    study: Study, encoders: tuple[EncoderLine, ...], numbers: Mapping[str, Number]
) -> TransferTable | None:
    """Mean R2 of what was trained here on every data entry; None with one entry, or with nothing trained."""
    if len(study.data) < 2:
        return None

    def row(line: EncoderLine, about: str) -> TransferRow:
        paths = {data: f"{study.source(line.name, data)}.r2.mean" for data in study.data}
        return TransferRow(
            line.name, about, {data: numbers.get(path, Number(path)) for data, path in paths.items()}
        )

    trained = [row(line, line.trained_on) for line in encoders if line.is_model and line.trained_on]
    values = [line for line in trained if any(not cell.missing for cell in line.cells.values())]
    if not values:
        return None
    references = [row(line, _reference(line)) for line in encoders if not (line.is_model and line.trained_on)]
    measured = [line for line in references if any(not cell.missing for cell in line.cells.values())]
    lines = {line.name: line for line in encoders}
    differences = [
        _difference(study, value, control, numbers)
        for value in values
        for control in measured
        if not lines[control.encoder].is_model
        and control_of(lines[control.encoder], lines[value.encoder], encoders)
    ]
    return TransferTable(tuple(study.data), tuple(values), tuple(measured), tuple(differences))


def control_of(control: EncoderLine, model: EncoderLine, encoders: tuple[EncoderLine, ...]) -> bool:
    """Whether a control stands beside a model: a named twin does beside models of its own kind only."""
    if not control.twin_of or control.twin_of == model.name:
        return True
    return any(line.name == control.twin_of and line.kind == model.kind for line in encoders)


def difference_of(first: str, second: str, numbers: Mapping[str, Number]) -> Number:
    """The paired difference of two measurements, in whichever order it was measured.

    Where it was not, the difference of the two values, without an interval.
    """
    path = difference_path(first, second)
    if path in numbers:
        return numbers[path]
    turned = numbers.get(difference_path(second, first))
    if turned is not None and turned.value is not None:
        low, high = (-turned.bounds[1], -turned.bounds[0]) if turned.bounds else (None, None)
        return Number(path, -turned.value, low, high, turned.unit, turned.n_rows, turned.n_episodes)
    a, b = numbers.get(first), numbers.get(second)
    if a is None or b is None or a.value is None or b.value is None:
        return Number(path)
    return Number(
        path, a.value - b.value, n_rows=min(a.n_rows, b.n_rows), n_episodes=min(a.n_episodes, b.n_episodes)
    )


def shown_paths(tables: tuple[JointTable, ...], beside: tuple[BesideTable, ...]) -> set[str]:
    """The paths of every measurement that these tables show."""
    rows = [row for table in tables for row in table.rows]
    shown = {number.path for row in rows for number in (*row.cells.values(), *row.nulls.values())}
    return shown | {n.path for table in beside for row in table.rows for n in row.cells.values()}


def _joint_table(
    study: Study,
    data: DataResult,
    name: str,
    encoders: tuple[EncoderLine, ...],
    numbers: Mapping[str, Number],
) -> JointTable | None:
    sources = {line.name: study.source(line.name, name) for line in encoders}
    measured = [
        line
        for line in encoders
        if any(
            path.startswith((f"{sources[line.name]}.r2.", f"{sources[line.name]}.anisotropy"))
            for path in numbers
        )
    ]
    if not measured:
        return None
    models = tuple(line.name for line in measured if line.is_model)
    columns = models + tuple(line.name for line in measured if not line.is_model)
    rows = [*_joint_rows(study, data, name, columns, models, sources, numbers)]
    for label, metric in SUMMARIES.items():
        cells = _cells(columns, sources, metric, numbers)
        if any(not cell.missing for cell in cells.values()):
            rows.append(JointRow(label, False, None, "", None, True, cells, {}))
    known = [cell for row in rows for cell in row.cells.values() if cell.n_episodes]
    n_rows = data.evaluate_rows or max((cell.n_rows for cell in known), default=0)
    n_episodes = data.evaluate_episodes or len(study.data[name].evaluate)
    return JointTable(name, columns, models, tuple(rows), n_rows or None, n_episodes)


def _joint_rows(
    study: Study,
    data: DataResult,
    name: str,
    columns: tuple[str, ...],
    models: tuple[str, ...],
    sources: Mapping[str, str],
    numbers: Mapping[str, Number],
) -> Iterator[JointRow]:
    listed = study.data[name].joints
    joints = data.joints or (list(listed) if isinstance(listed, list) else list(data.evaluate_std))
    units = (data.model_extra or {}).get("units") or {}
    for joint, part in part_names(joints).items():
        cells = _cells(columns, sources, f"r2.{part}", numbers)
        # Not testable by the data entry's own word, or by that of every encoder measured on it.
        said = [cell for cell in cells.values() if cell.value is not None or not cell.testable]
        testable = joint not in data.untestable and not (said and all(not cell.testable for cell in said))
        if not testable:
            cells = {encoder: Number(cell.path, testable=False) for encoder, cell in cells.items()}
        yield JointRow(
            label=joint,
            joint=True,
            std=finite(data.evaluate_std.get(joint, data.untestable.get(joint))),
            unit=str(units.get(joint, "")),
            ceiling=finite(data.ceiling.get(joint)) if testable else None,
            testable=testable,
            cells=cells,
            nulls=_cells(models, sources, f"null.{part}", numbers),
        )


def _cells(
    encoders: tuple[str, ...], sources: Mapping[str, str], metric: str, numbers: Mapping[str, Number]
) -> dict[str, Number]:
    paths = {name: f"{sources[name]}.{metric}" for name in encoders}
    return {name: numbers.get(path, Number(path)) for name, path in paths.items()}


def _difference(
    study: Study, value: TransferRow, control: TransferRow, numbers: Mapping[str, Number]
) -> TransferDifference:
    cells = {
        data: difference_of(value.cells[data].path, control.cells[data].path, numbers) for data in study.data
    }
    paired = any(cell.bounds is not None for cell in cells.values())
    return TransferDifference(value.encoder, value.trained_on, control.encoder, cells, paired)


def _reference(line: EncoderLine) -> str:
    if line.is_model:
        return "given, not trained here"
    return f"control, fitted on {line.trained_on}" if line.trained_on else "control"
