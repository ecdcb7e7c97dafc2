"""The lines of a card: each bar, claim, encoder and data entry, from the study and its results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bars.bar import Bar, Comparison, Difference, Equals, SameOrder
from bars.judging import BarResult
from bars.measurement import difference_path, finite
from bars.results import DataResult, EncoderResult, Results
from bars.seeds import base_encoder
from bars.study import BarEntry, Claim, Study
from bars.verdict import ClaimVerdict, StudyVerdict
from reports.history import History, when
from reports.model import BarLine, CheckLine, ClaimLine, DataLine, EncoderLine, Number
from reports.numbers import NOT_TESTABLE, against, count, duration, flat, interval, listed, plain


def bar_line(entry: BarEntry, result: BarResult, numbers: Mapping[str, Number]) -> BarLine:
    """A bar as judged."""
    bar = entry.parsed
    mark = bar.mark if isinstance(bar, (Comparison, Difference)) else None
    measures = _measures(bar)
    number, ours = Number(measures), ""
    if result.state != "not tested":
        if isinstance(bar, SameOrder):
            ours = "; ".join(_order(bar.encoders, metric, numbers) for metric in (bar.first, bar.second))
        elif (value := finite(result.value)) is not None:
            low, high = finite(result.low), finite(result.high)
            number = Number(measures, value, low, high, "", result.n_rows, result.n_episodes)
            ours = plain(value) if mark is None else against(value, mark)
            ours = f"+{ours}" if isinstance(bar, Difference) and value > 0 else ours
    theirs_value = float(entry.theirs) if isinstance(entry.theirs, (int, float)) else None
    return BarLine(
        id=entry.id,
        claim=entry.claim,
        text=entry.bar,
        measures=measures,
        mark_text=_mark(bar),
        theirs=f"{theirs_value:g}" if theirs_value is not None else str(entry.theirs or ""),
        ours=ours,
        interval=interval(number.low, number.high),
        state=result.state,
        firm=result.firm,
        reason=result.reason,
        why=entry.why,
        number=number,
        mark=mark,
        theirs_value=theirs_value,
        n_episodes=result.n_episodes,
    )


def claim_line(claim: Claim, verdict: ClaimVerdict, bars: Sequence[BarLine]) -> ClaimLine:
    """A claim with its state and its own bars."""
    return ClaimLine(
        id=claim.id,
        text=claim.text,
        hypothesis=claim.hypothesis,
        primary=claim.primary,
        not_proven=claim.not_proven,
        theirs=claim.theirs,
        state=verdict.state,
        firm=verdict.firm,
        reason=verdict.reason,
        bars=tuple(bar for bar in bars if bar.claim == claim.id),
    )


def encoder_line(study: Study, results: Results, name: str, numbers: Mapping[str, Number]) -> EncoderLine:
    """An encoder: what study.yaml says of it, and what it turned out to be."""
    entry = study.encoders[name]
    facts = results.encoders.get(name, EncoderResult(kind=""))
    measured = any(re.match(rf"{re.escape(name)}[./]", path) for path in numbers)
    if entry.train is not None:
        kind = str(entry.train.get("kind", ""))
        twin_kind = str(entry.train.get("of", "cnn")) if kind == "untrained" else ""
        settings = flat({key: value for key, value in entry.train.items() if key not in ("kind", "of")})
        made = {"untrained": f"initial weights of a {twin_kind}", "pixels": f"fitted here on {entry.on}"}
        source = made.get(kind, f"trained here on {entry.on}") + (f" ({settings})" if settings else "")
    elif "@" in name:
        base, _, latent = name.partition("@")
        kind, twin_kind = "", ""
        source = f"{latent} of {base}"
    else:
        kind = str(entry.load)
        twin_kind = kind.removeprefix("untrained:") if kind.startswith("untrained:") else ""
        source = f"untrained twin of {entry.twin_of}" if entry.twin_of else f"loaded: {entry.load}"
    if entry.seeds:
        source += f", once for each seed: {', '.join(map(str, entry.seeds))}"
    note = "" if measured else "not measured"
    if facts.unavailable:
        note = f"not available here: {facts.unavailable}"
    return EncoderLine(
        name=name,
        role=entry.role,
        kind=facts.kind or kind,
        about=entry.about or facts.about,
        source=source,
        trained_on="" if kind.startswith("untrained") else study.encoders[base_encoder(name)].on or "",
        twin_of=entry.twin_of or "",
        twin_kind=twin_kind,
        width=facts.width,
        alpha={data: alpha for data, alpha in facts.alpha.items() if alpha is not None},
        null_p=_null_p(facts),
        fingerprint=facts.fingerprint or "",
        measured=measured,
        note=note,
    )


def data_line(study: Study, facts: DataResult, name: str, history: History) -> DataLine:
    """A data entry: its split, its n, how far its joints move."""
    entry = study.data[name]
    extra = facts.model_extra or {}
    named = entry.joints if isinstance(entry.joints, list) else []
    units = extra.get("units")
    return DataLine(
        name=name,
        recording=entry.recording,
        views=tuple(entry.views),
        joints=tuple(facts.joints or named),
        train_episodes=entry.train,
        evaluate_episodes=entry.evaluate,
        train_rows=facts.train_rows or None,
        evaluate_rows=facts.evaluate_rows or None,
        evaluate_std=_floats(facts.evaluate_std),
        train_std=_floats(extra.get("train_std")),
        ceiling=_floats(facts.ceiling),
        untestable={joint: finite(std) for joint, std in facts.untestable.items()},
        units={str(joint): str(unit) for joint, unit in units.items()} if isinstance(units, Mapping) else {},
        manifest_sha256=str(history.bound_data(name).get("manifest_sha256", "")),
    )


def settings_lines(study: Study) -> tuple[tuple[str, str], ...]:
    """The probe's settings in words, with the penalties that it chose."""
    probe = study.probe
    if len(probe.alphas) == 1:
        penalty = f"{probe.alphas[0]:g}, fixed"
    else:
        penalty = (
            f"{len(probe.alphas)} values from {probe.alphas[0]:g} to {probe.alphas[-1]:g}, chosen by "
            f"{probe.folds}-fold cross-validation over training episodes"
        )
    rows = f"at most {probe.max_rows_per_episode} an episode" if probe.max_rows_per_episode else "all"
    null = f"{probe.permutations:,} exchanges of targets between episodes" if probe.permutations else "none"
    settings = {
        "ridge penalty": penalty,
        "intervals": f"{probe.level:.0%}, cluster bootstrap over episodes, {probe.resamples:,} resamples",
        "permutation null": null,
        "not testable": f"a joint whose std over the evaluated rows is below {probe.min_std:g} rad",
        "rows": rows + (", and equally many to train on for every encoder" if probe.equal_rows else ""),
        "seed": str(study.seed),
    }
    return tuple((label, value) for label, value in settings.items() if value)


def provenance_lines(facts: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Provenance as lines; seconds (`seconds`, `..._s`) as durations; `mismatches` have their own place."""
    lines = []
    for key, value in facts.items():
        label = "run time" if key == "seconds" else key.removesuffix("_s").replace("_", " ")
        timed = key == "seconds" or key.endswith("_s")
        if isinstance(value, Mapping):
            parts = [f"{name} {_shown(item, timed)}" for name, item in value.items() if _shown(item, timed)]
            shown = ", ".join(parts)
        else:
            shown = _shown(value, timed)
        if shown and key != "mismatches":
            lines.append((label, shown))
    return tuple(lines)


def check_lines(results: Results, verdict: StudyVerdict, history: History) -> tuple[CheckLine, ...]:
    """Integrity checks of the run, and whether the ledger's judgement is what the numbers give now."""
    lines = [
        CheckLine(
            name=flat(check.get("name", "check")),
            state=flat(check.get("state", "")),
            message=flat(check.get("message", "")),
            remedy=flat(check.get("remedy", "")),
        )
        for check in results.checks
    ]
    lines = _unpassed(lines) + _passed(lines)
    judged = history.judged()
    if judged is not None and judged.body["verdict"] != verdict.verdict:
        said = (
            f"the ledger's judgement of {when(judged.time)} is {judged.body['verdict']}, "
            f"and the same numbers give {verdict.verdict} now"
        )
        lines.append(CheckLine("judgement", "fail", said, "judge with the version of jointprobe named below"))
    return tuple(lines)


def _unpassed(lines: Sequence[CheckLine]) -> list[CheckLine]:
    """The checks that did not pass, each with what it saw: failures, warnings, what could not be tested."""
    order = {"fail": 0, "warn": 1, NOT_TESTABLE: 3}
    found = [line for line in lines if line.state != "pass"]
    return sorted(found, key=lambda line: order.get(line.state, 2))


def _passed(lines: Sequence[CheckLine]) -> list[CheckLine]:
    """The checks that passed, a line for each thing checked."""
    passed: dict[str, list[str]] = {}
    for line in lines:
        about, _, name = line.name.rpartition(": ")
        if line.state == "pass":
            passed.setdefault(about, []).append(name)
    return [
        CheckLine(about or "checks", "pass", f"{count(len(names), 'check')} passed: {', '.join(names)}")
        for about, names in passed.items()
    ]


def _measures(bar: Bar) -> str:
    """The path, or the two, whose number a bar compares."""
    if isinstance(bar, Difference):
        return difference_path(bar.a, bar.b)
    if isinstance(bar, SameOrder):
        return f"order of {listed(bar.encoders)} by {bar.first} and by {bar.second}"
    return bar.path


def _mark(bar: Bar) -> str:
    if isinstance(bar, (Comparison, Difference)):
        return f"{bar.op} {bar.mark:g}"
    return f"{bar.mark:g} within {bar.margin:g}" if isinstance(bar, Equals) else "same order"


def _order(encoders: Sequence[str], metric: str, numbers: Mapping[str, Number]) -> str:
    """`r2.mean: W2 0.867 > W1 0.565`"""
    known = [(name, numbers.get(f"{name}.{metric}", Number(name))) for name in encoders]
    known.sort(key=lambda item: -(item[1].value or 0.0))
    return f"{metric}: " + " > ".join(f"{name} {number.text}" for name, number in known)


def _null_p(facts: EncoderResult) -> dict[str, float]:
    """Data entry -> p-value of the permutation null, from the facts of each fit."""
    fits = (facts.model_extra or {}).get("fits")
    if not isinstance(fits, Mapping):
        return {}
    return _floats({data: fit.get("null_p_value") for data, fit in fits.items() if isinstance(fit, Mapping)})


def _floats(values: object) -> dict[str, float]:
    """The entries of a mapping that are finite numbers."""
    if not isinstance(values, Mapping):
        return {}
    numbers = {str(key): finite(v) for key, v in values.items() if isinstance(v, (int, float))}
    return {key: number for key, number in numbers.items() if number is not None}


def _shown(value: object, seconds: bool) -> str:
    if seconds and isinstance(value, (int, float)) and not isinstance(value, bool):
        return duration(value)
    return flat(value)
