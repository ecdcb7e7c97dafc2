"""What a study must satisfy beyond its types, and how a type error is told to a person."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bars.bar import bar_paths
from bars.errors import StudyError
from bars.measurement import METRICS, NEEDS_PART, R2_MEANS, USUAL_PART, MeasurementPath, part_names
from bars.seeds import base_encoder
from bars.strict_yaml import Document, FieldPath
from bars.study import (
    GIVEN_OR_TRAINED,
    BarEntry,
    Claim,
    Data,
    EncoderEntry,
    Paper,
    ProbeSettings,
    RankingSettings,
    Registration,
    Series,
    Study,
)

_MODELS: dict[str, type[BaseModel]] = {
    "paper": Paper,
    "series": Series,
    "registration": Registration,
    "probe": ProbeSettings,
    "ranking": RankingSettings,
    "data": Data,
    "encoders": EncoderEntry,
    "claims": Claim,
    "bars": BarEntry,
}


def nearest(name: str, valid: Iterable[str]) -> str:
    """A remedy: the valid name closest to a wrong one, or all of them where none is close."""
    options = list(valid)
    folded = {option.casefold(): option for option in reversed(options)}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    if close:
        return f"did you mean {folded[close[0]]}?"
    return f"it can be {', '.join(options)}" if options else "there is none"


def first_error(document: Document, error: ValidationError) -> StudyError:
    """The error that stands first in the file, as a StudyError; how many more there are is said."""
    details = error.errors(include_url=False)
    unknown = [detail for detail in details if detail["type"] == "extra_forbidden"]
    told = unknown or details

    def order(detail: ErrorDetails) -> tuple[int, int]:
        """By line, and the deepest first: of the branches of a union the one that came furthest."""
        known = _known(document, detail["loc"])
        return document.lines.get(known, 0), -len(known)

    detail = min(told, key=order)
    field, problem, remedy = _explain(document, detail)
    fields = {_explain(document, d)[0] for d in details}
    others = sum(not any(f != g and g[: len(f)] == f for g in fields) for f in fields) - 1
    if others > 0:
        problem += f" (and {others} more to mend)"
    return StudyError(document.where(field), problem, remedy)


def _known(document: Document, loc: tuple[int | str, ...]) -> FieldPath:
    """The part of pydantic's location that exists in the file (it appends names of types and validators)."""
    field: FieldPath = ()
    for part in loc:
        if (*field, part) in document.lines:
            field = (*field, part)
    return field


def _explain(document: Document, detail: ErrorDetails) -> tuple[FieldPath, str, str]:
    field, kind, found = _known(document, detail["loc"]), detail["type"], detail["input"]
    if kind == "extra_forbidden":
        key = str(detail["loc"][-1])
        return field, "is an unknown key", nearest(key, _valid_keys(field[:-1]))
    if kind == "missing":
        missing = (*field, detail["loc"][-1])
        return missing, "is missing", f"add {missing[-1]}: ..."
    if field and "[key]" in detail["loc"]:
        return field, f"the name {field[-1]!r} has other characters than letters, digits and _", "rename it"
    problem = detail["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        return field, problem, ""
    shown = repr(found)
    problem = (
        f"{problem[:1].lower()}{problem[1:]}, and is {shown if len(shown) <= 60 else shown[:57] + '...'}"
    )
    remedy = "put it in quotes" if kind == "string_type" and isinstance(found, (int, float)) else ""
    return field, problem, remedy


def _valid_keys(parent: FieldPath) -> list[str]:
    model = _MODELS[str(parent[0])] if parent else Study
    return [info.alias or name for name, info in model.model_fields.items()]


def check_study(study: Study, document: Document) -> None:
    """Everything that refers to something else in the study refers to what is there."""
    for name, data in study.data.items():
        _check_split(study, document, name, data)
    for name, encoder in study.encoders.items():
        _check_encoder(study, document, name, encoder)
    for name in study.encoders:
        for made in study.seeds_of(name):
            if made in study.encoders:
                raise StudyError(
                    document.where(("encoders", made)),
                    f"has the name of one of the networks of {name}, one for each seed",
                    "rename it",
                )
    _check_claims(study, document)
    _check_bars(study, document)


def _check_split(study: Study, document: Document, name: str, data: Data) -> None:
    at: FieldPath = ("data", name)
    for split, episodes in (("train", data.train), ("evaluate", data.evaluate)):
        if not episodes:
            raise StudyError(document.where((*at, split)), "holds no episode", "write a range like 0-23")
    shared = sorted(set(data.train) & set(data.evaluate))
    if shared:
        raise StudyError(
            document.where((*at, "evaluate")),
            f"episode {shared[0]} is in train as well"
            + (f", and {len(shared) - 1} more" if shared[1:] else ""),
            "a split is by episode: no episode may be on both sides",
        )
    if len(data.evaluate) < 2:
        raise StudyError(
            document.where((*at, "evaluate")),
            "holds one episode only, and an interval over episodes needs two at least",
            "evaluate on more episodes (under 10 the card says too few)",
        )
    if len(data.train) < 2 and len(study.probe.alphas) > 1:
        raise StudyError(
            document.where((*at, "train")),
            f"holds one episode only, which cannot choose among {len(study.probe.alphas)} alphas by episode",
            "train on more episodes, or state one value in probe.alphas",
        )


def _check_encoder(study: Study, document: Document, name: str, entry: EncoderEntry) -> None:
    at: FieldPath = ("encoders", name)
    if "@" in name:
        _check_other_latent(study, document, name, entry)
        return
    if entry.load is None and entry.train is None:
        raise StudyError(
            document.where(at), GIVEN_OR_TRAINED, f"or name it ENCODER@{name}, a latent of another"
        )
    if entry.on is not None and entry.on not in study.data:
        raise StudyError(
            document.where((*at, "on")), f"there is no data entry {entry.on}", nearest(entry.on, study.data)
        )
    if entry.twin_of is not None:
        with_recipe = [other for other, e in study.encoders.items() if _has_recipe(e) and "@" not in other]
        if entry.twin_of not in with_recipe:
            raise StudyError(
                document.where((*at, "twin_of")),
                f"there is no encoder {entry.twin_of} whose recipe it could share",
                nearest(entry.twin_of, with_recipe),
            )
    for view in entry.views or ():
        if entry.on is not None and view not in study.data[entry.on].views:
            raise StudyError(
                document.where((*at, "views")),
                f"the view {view} is not in data.{entry.on}.views",
                nearest(view, study.data[entry.on].views),
            )


def _has_recipe(entry: EncoderEntry) -> bool:
    """Trained here, or loaded from a folder, whose encoder.json says how it was trained."""
    kind, colon, _ = (entry.load or "").partition(":")
    return entry.train is not None or not colon or kind in ("cnn", "lewm")


def _check_other_latent(study: Study, document: Document, name: str, entry: EncoderEntry) -> None:
    """An entry such as W1@cls: W1 is there, and all that decides the latents is said of W1."""
    base = base_encoder(name)
    if base not in study.encoders:
        bases = [other for other in study.encoders if "@" not in other]
        raise StudyError(
            document.where(("encoders", name)), f"there is no encoder {base}", nearest(base, bases)
        )
    for field in (
        "load",
        "train",
        "on",
        "twin_of",
        "seeds",
        "views",
        "precision",
        "runtime",
        "clip_frames",
        "clip_stride",
        "optional",
    ):
        if field in entry.model_fields_set:
            raise StudyError(
                document.where(("encoders", name, field)),
                f"is said of {base}, of which {name} is another latent",
                "leave it out",
            )


def _check_claims(study: Study, document: Document) -> None:
    ids = {"claims": [claim.id for claim in study.claims], "bars": [bar.id for bar in study.bars]}
    for key, listed in ids.items():
        for index, name in enumerate(listed):
            if name in listed[:index]:
                where = document.where((key, index, "id"))
                raise StudyError(where, f"the id {name} is given twice", "rename one")
    primary = [claim.id for claim in study.claims if claim.primary]
    if len(primary) != 1:
        found = f"{', '.join(primary)} are all primary" if primary else "no claim is primary"
        raise StudyError(document.where(("claims",)), found, "mark exactly one with primary: true")
    claims = ids["claims"]
    for index, bar in enumerate(study.bars):
        if bar.claim not in claims:
            raise StudyError(
                document.where(("bars", index, "claim")),
                f"there is no claim {bar.claim}",
                nearest(bar.claim, claims),
            )
    if not study.bars_of(primary[0]):
        index = claims.index(primary[0])
        raise StudyError(
            document.where(("claims", index)),
            f"the primary claim {primary[0]} has no bar, so that the study could have no verdict",
            f"give a bar claim: {primary[0]}",
        )


def _check_bars(study: Study, document: Document) -> None:
    for index, entry in enumerate(study.bars):
        where = document.where(("bars", index, "bar"))
        try:
            paths = bar_paths(entry.parsed)
        except StudyError as error:
            raise StudyError(where, f"{error.where} {error.problem}", error.remedy) from None
        for path in paths:
            problem = path_problem(study, path)
            if problem is not None:
                raise StudyError(where, *problem)
        on = list(dict.fromkeys(path.data or study.first_data for path in paths))
        if len(on) > 1:
            raise StudyError(
                where,
                f"compares measurements on different data, {on[0]} and {on[1]}",
                "R2 depends on what it is evaluated on: compare encoders on the same data",
            )


def path_problem(study: Study, path: MeasurementPath) -> tuple[str, str] | None:
    """What is wrong with a path in this study (problem, remedy), or None."""
    if path.encoder not in (study.encoders.keys() | study.networks.keys()):
        return f"{path} names no encoder of the study", nearest(path.encoder, study.encoders)
    if path.data is not None and path.data not in study.data:
        return f"{path} names no data entry of the study", nearest(path.data, study.data)
    if path.data == study.first_data:
        short = MeasurementPath(path.encoder, None, path.metric, path.part)
        return f"{path} names the first data entry, which paths leave out", f"write {short}"
    if path.metric not in METRICS:
        return f"{path}: nothing measures {path.metric}", nearest(path.metric, METRICS)
    if path.part is None and path.metric in NEEDS_PART:
        return (
            f"{path} does not say which {path.metric}",
            f"write {path}.{USUAL_PART.get(path.metric, 'mean')}",
        )
    data = study.data[path.data or study.first_data]
    for view in study.encoder_views(path.encoder):
        if view not in data.views:
            return (
                f"{path}: {path.encoder} sees the view {view}, which that data does not list",
                "add the view",
            )
    unmeasured = _unmeasured(study, path)
    if unmeasured is not None:
        return unmeasured
    if path.metric == "r2" and isinstance(data.joints, list):
        return unknown_joint(path, data.joints)
    return None


def _unmeasured(study: Study, path: MeasurementPath) -> tuple[str, str] | None:
    """Problem and remedy where the study's own settings leave a path without a measurement, else None."""
    probe, ranking = study.probe, study.ranking
    if path.metric == "mlp" and not probe.mlp:
        return f"{path} is not measured: probe.mlp is false", "write probe: {mlp: true}"
    if path.metric in ("null", "shift_null", "selectivity") and not probe.permutations:
        return f"{path} is not measured: probe.permutations is 0", "write probe: {permutations: 200}"
    first, _, rest = (path.part or "").partition(".")
    if path.metric != "g1b" or not rest:
        return None
    if first == ranking.distractors or first == f"h{ranking.horizon}":
        return f"{path} is what g1b.{rest} means in this study", f"write {path.source}.g1b.{rest}"
    horizons = [f"h{horizon}" for horizon in ranking.beside]
    if first[:1] == "h" and first[1:].isdigit() and first not in horizons:
        return f"{path} is not measured: ranking.beside has no {first[1:]}", f"add {first[1:]} to it"
    return None


def unknown_joint(path: MeasurementPath, joints: Iterable[str]) -> tuple[str, str] | None:
    """Problem and remedy where an `r2` path names no joint of a list; None where it is fine."""
    parts = [*R2_MEANS, *part_names(joints).values()]
    if path.metric == "r2" and path.part not in parts:
        return f"{path} names no joint", nearest(str(path.part), parts)
    return None
