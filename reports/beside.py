"""The table of what stands beside the read-out: ranking, geometry and other probes, encoder by encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bars.study import Study
from reports.model import BesideRow, BesideTable, EncoderLine, Number, PlainTable
from reports.numbers import count, flat, interval, listed, plain


def beside_tables(
    study: Study, encoders: tuple[EncoderLine, ...], numbers: Mapping[str, Number]
) -> tuple[BesideTable, ...]:
    """One table a data entry on which anything of it was measured, in the study's order."""
    ordered = sorted((line for line in encoders if line.measured), key=lambda line: not line.is_model)
    found = []
    for data in study.data:
        sources = {line.name: study.source(line.name, data) for line in ordered}
        rows = []
        wanted = list(_wanted(study, sources, numbers))
        for suffix, label, about in wanted:
            cells = {
                name: numbers.get(f"{source}.{suffix}", Number(f"{source}.{suffix}"))
                for name, source in sources.items()
            }
            if any(cell.value is not None for cell in cells.values()):
                rows.append(BesideRow(label, about, cells))
        columns = tuple(name for name in sources if any(row.cells[name].value is not None for row in rows))
        models = tuple(line.name for line in ordered if line.is_model and line.name in columns)
        if rows:
            notes = tuple(_not_ranked(wanted, sources, numbers))
            found.append(BesideTable(data, columns, models, tuple(rows), notes))
    return tuple(found)


def _wanted(
    study: Study, sources: Mapping[str, str], numbers: Mapping[str, Number]
) -> Iterator[tuple[str, str, str]]:
    """(path after the source, label, what it is) of each row that there may be."""
    ranking = study.ranking
    kind = {"hard": "the same episode", "easy": "other episodes"}
    other = "easy" if ranking.distractors == "hard" else "hard"
    asked = f"{ranking.candidates} candidates from {kind[ranking.distractors]}, {ranking.horizon} rows ahead"
    yield (
        "g1b.top1",
        "G1b top-1",
        f"executed chunk ranked first; {asked}; chance {1 / ranking.candidates:.3f}",
    )
    yield "g1b.mrr", "G1b mrr", "mean reciprocal rank of the executed chunk"
    yield "g1b.action_only", "top-1, action only", "ranked by continuity of the action, without latents"
    yield "g1b.oracle", "top-1, true joints", "the same ranking done on the true joints"
    yield f"g1b.{other}.top1", f"top-1, {other}", f"candidates from {kind[other]}"
    for horizon in sorted(set(ranking.beside) - {ranking.horizon}):
        yield f"g1b.h{horizon}.top1", f"top-1, {horizon} ahead", f"{count(horizon, 'row')} ahead"
    yield "g1b.own.top1", "top-1, own predictor", "predicted by the encoder itself, from its latent history"
    yield "g1b.own_anchor.top1", "the same, from one latent", "rolled out from the anchor's latent alone"
    yield "g1b.own_ridge.top1", "ridge on the same anchors", "the common predictor, at the same horizon"
    yield "g1b.agreement", "latent and state cost", "rank correlation of the two over the candidates"
    yield "planning.ratio", "straight-line ratio", "joint path of straight latent lines over its chord"
    yield "planning.above_oracle", "above straight joints", "the same, minus that of straight lines in joints"
    yield "refit.mean", "mean R2, refitted", "interval with training episodes drawn too"
    yield "refit.anisotropy", "anisotropy, refitted", "interval with training episodes drawn too"
    yield "selectivity.mean", "selectivity", "R2 minus that of the control task"
    yield "shift_null.mean", "mean, targets shifted", "R2 after targets were shifted within their episodes"
    yield "mlp.mean", "mean R2, MLP", "a network with one hidden layer in the ridge's place"
    for path in _parts(sources, numbers, "angle"):
        yield path, f"{path.removeprefix('angle.')}, as an angle", "circular R2 of a joint whose log wraps"
    yield "reverse.mean", "R2 joints to latents", "mean over latent dimensions"
    yield "reverse.weighted", "the same, weighted", "weighted by variance; no rotation changes it"
    yield (
        "procrustes.residual",
        "Procrustes residual",
        "squared error left by joints = scale x rotation x latents",
    )
    yield (
        "map.rcond",
        "reciprocal condition",
        "smallest over largest singular value of joints to latents; 1: rotation, 0: one is lost in noise",
    )
    yield "map.orthogonality_error", "orthogonality error", "0 for a rotation"
    yield "mcc.rotated", "MCC, rotated", "mean correlation with the joints after the best rotation"
    yield "width.rankme", "RankMe", "dimensions in use"
    yield "width.participation", "participation ratio", "dimensions in use, by variance"


def _not_ranked(
    wanted: Sequence[tuple[str, str, str]], sources: Mapping[str, str], numbers: Mapping[str, Number]
) -> Iterator[str]:
    """Why action chunks were not ranked, once for all rows and encoders of a data entry that lack it."""
    for own in (False, True):  # by the common ridge, and by an encoder's own predictor
        missing = [
            (label, name, number)
            for suffix, label, _ in wanted
            for name, source in sources.items()
            if suffix.startswith("g1b.") and suffix.startswith("g1b.own") == own
            if (number := numbers.get(f"{source}.{suffix}")) is not None and number.missing
        ]
        if missing:
            labels = list(dict.fromkeys(label for label, _, _ in missing))
            names = list(dict.fromkeys(name for _, name, _ in missing))
            of = "" if len(names) == len(sources) else f" of {listed(names)}"
            yield f"Not measured{of}: {'; '.join(labels)}. {_reason(missing[0][2].note)}"


def _reason(note: str) -> str:
    """The part of a ranking's note that says why it has no number, as a sentence."""
    parts = [part for part in note.split("; ") if part]
    dropped = [part for part in parts if "dropped:" in part]
    text = (dropped or parts[-1:] or ["no reason was given"])[0].rstrip(".")
    return f"Because: {text}."


def _parts(sources: Mapping[str, str], numbers: Mapping[str, Number], metric: str) -> list[str]:
    """`metric.PART` of every part that was measured of some encoder, in the order of measurement."""
    found: dict[str, None] = {}
    for source in sources.values():
        start = f"{source}.{metric}."
        found.update(
            dict.fromkeys(f"{metric}.{path[len(start) :]}" for path in numbers if path.startswith(start))
        )
    return list(found)


def plain_tables(tables: Mapping[str, Any]) -> tuple[PlainTable, ...]:
    """What results.json holds in tables of its own: learning curves, similarity, encoders at equal width."""
    found = [_curves(tables), _similarity(tables), _equal_width(tables)]
    return tuple(table for table in found if table.rows)


def _curves(tables: Mapping[str, Any]) -> PlainTable:
    curves = tables.get("learning_curves") or {}
    sizes = sorted({point["episodes"] for curve in curves.values() for point in curve})
    rows = []
    for source, curve in curves.items():
        at = {point["episodes"]: point for point in curve}
        rows.append((flat(source), *(_number(at[size], "r2_mean") if size in at else "" for size in sizes)))
    return PlainTable(
        "Mean R2 by training episodes",
        "Mean over random orders of the training episodes; a curve that still rises asks for more of them.",
        ("encoder", *(f"{size} episodes" for size in sizes)),
        tuple(rows),
    )


def _similarity(tables: Mapping[str, Any]) -> PlainTable:
    rows = [
        (
            flat(" and ".join(map(str, row["pair"]))),
            _number(row, "cka_by_episode"),
            _number(row, "cka_by_row", False),
        )
        for row in tables.get("similarity") or ()
    ]
    return PlainTable(
        "Similarity of encoders",
        "Debiased linear CKA on the evaluation rows, from pairs of rows of different episodes; by row it is "
        "too high where rows of an episode are alike.",
        ("encoders", "by episode", "by row"),
        tuple(rows),
    )


def _equal_width(tables: Mapping[str, Any]) -> PlainTable:
    rows = [
        (
            flat(row["encoder"]),
            flat(row["at_the_width_of"]),
            str(row["width"]),
            _number(row, "r2_mean"),
            _number(row, "variance_kept", False),
        )
        for row in tables.get("equal_width") or ()
    ]
    return PlainTable(
        "At equal width",
        "The wider model's latents at the narrower one's width (PCA of training rows), probed anew.",
        ("encoder", "at the width of", "width", "mean R2", "variance kept"),
        tuple(rows),
    )


def _number(row: Mapping[str, Any], key: str, bounded: bool = True) -> str:
    if row.get(key) is None:
        return "not measured"
    bounds = interval(row.get("low"), row.get("high"), 3) if bounded else ""
    return f"{plain(row[key])} {bounds}".rstrip()
