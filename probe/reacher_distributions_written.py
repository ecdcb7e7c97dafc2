"""Distributions of pair sets as written: JSON with all numbers, CSV with a row each, Markdown to be read."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

from probe.reacher_distributions import (
    DIRECTIONS,
    PUBLISHED_BEYOND_PI,
    PUBLISHED_FLOOR,
    PUBLISHED_SIGREG,
    RAW,
    Gauge,
    told_apart,
)
from reports.numbers import interval, plain, signed
from reports.reacher_found import BOTH, JOINTS, Outcome, SetFound, Shape, ValueFound
from sim.reacher_trajectories import PUBLISHED_AUTOCORRELATION

SCHEMA = "jointprobe-reacher-distributions/1"
THEIRS = "arXiv 2605.26379, Table 2 and the appendix on the Reacher"
DIGITS = 6  # significant ones that are written: those that rounding on another processor leaves alone
COLUMNS = (
    "set", "condition", "source", "value", "of", "joint", "n", "mean", "sd", "sd_expected", "skewness",
    "excess_kurtosis", "ks", "ks_standardised", "beyond_pi", "beyond_pi_theirs", "correlation",
    "correlation_low", "correlation_high", "correlation_theirs", "sigreg", "sigreg_low", "sigreg_high",
    "floor_mean", "floor_low", "floor_high", "excess_per_sample", "told_apart", "once_n", "once_sigreg",
    "once_floor_high",
)  # fmt: skip

Row = dict[str, Any]


def as_json(found: Sequence[SetFound], gauge: Gauge, sha256: Sequence[str]) -> dict[str, Any]:
    """All numbers; `sha256` of each set's draw says which pairs they are of."""

    counts = sorted({of_value.of_differences[BOTH].n for one in found for of_value in one.values})
    result = {
        "schema": SCHEMA,
        "seed": gauge.seed,
        "repeats": gauge.repeats,
        "directions": DIRECTIONS,
        "theirs": {
            "from": f"{THEIRS}, as printed there",
            "floor": PUBLISHED_FLOOR,
            "floor_is_of": "i.i.d. standard normal samples of matched size; which size is not said",
            "autocorrelation": {str(delta): two for delta, two in PUBLISHED_AUTOCORRELATION.items()},
            "beyond_pi": {name: written for name, (_, written) in PUBLISHED_BEYOND_PI.items()},
            "sigreg": {str(delta): words for delta, words in PUBLISHED_SIGREG.items()},
        },
        "floor_not_standardised": [_floor_json(gauge.floor(n, RAW)) for n in counts],
        "sets": [
            {
                "name": one.name,
                "condition": one.condition,
                "source": one.source,
                "seed": one.seed,
                "draw_sha256": digest,
                "pairs": one.count,
                "states": one.states,
                "episodes": one.episodes,
                "marginals": {joint: _angles_json(shape) for joint, shape in _by_joint(one.marginals)},
                "values": [_value_json(one, of_value) for of_value in one.values],
            }
            for one, digest in zip(found, sha256)
        ],
    }
    written: dict[str, Any] = _rounded(result)
    return written


def as_csv(found: Sequence[SetFound]) -> str:
    """A row for each set, value and joint, of each kind of sample."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for one in found:
        for row in _rows(one):
            row |= {"set": one.name, "condition": one.condition, "source": one.source}
            writer.writerow({name: "" if value is None else _rounded(value) for name, value in row.items()})
    return text.getvalue()


def _rows(one: SetFound) -> Iterator[Row]:
    for joint, shape in _by_joint(one.marginals):
        theirs = one.beyond_theirs[1] if joint == "shoulder" or one.condition == "ou" else None
        yield {"of": "all states", "joint": joint, **_angles_json(shape), "beyond_pi_theirs": theirs}
    for of_value in one.values:
        for of, tests, once in (
            ("difference", of_value.of_differences, of_value.once_differences),
            ("second members", of_value.of_marginals, of_value.once_marginals),
        ):
            for what, tested in tests.items():
                row = {
                    "value": of_value.value,
                    "of": of,
                    "joint": what,
                    **_tested_row(one, tested, once.get(what)),
                }
                for joint, shape, correlation in zip(JOINTS, of_value.differences, of_value.correlations):
                    if of == "difference" and joint == what:
                        row |= _shape_json(shape) | {
                            "sd_expected": of_value.sd_expected,
                            "correlation": correlation.value,
                            "correlation_low": correlation.low,
                            "correlation_high": correlation.high,
                            "correlation_theirs": correlation.theirs,
                        }
                yield row


def _tested_row(one: SetFound, tested: Outcome, once: Outcome | None) -> Row:
    low, high = tested.interval or (None, None)
    return {
        "n": tested.n,
        "sigreg": tested.sigreg,
        "sigreg_low": low,
        "sigreg_high": high,
        "floor_mean": tested.floor.mean,
        "floor_low": tested.floor.low,
        "floor_high": tested.floor.high,
        "excess_per_sample": tested.excess,
        "told_apart": told_apart(tested, once, one.dependent),
        "once_n": once and once.n,
        "once_sigreg": once and once.sigreg,
        "once_floor_high": once and once.floor.high,
    }


def _value_json(one: SetFound, of_value: ValueFound) -> dict[str, Any]:
    return {
        one.letter: of_value.value,
        "correlation": {
            joint: {
                "value": each.value,
                "low": each.low,
                "high": each.high,
                "expected_or_theirs": each.theirs,
            }
            for joint, each in _by_joint(of_value.correlations)
        },
        "differences": {
            "are": "z' - rho z" if one.condition == "ou" else "z' - z",
            "sd_expected": of_value.sd_expected,
            "correlation_of_both_joints": of_value.joint_correlation,
            **{joint: _shape_json(shape) for joint, shape in _by_joint(of_value.differences)},
            "sigreg": _tests_json(one, of_value.of_differences, of_value.once_differences),
        },
        "second_members": {"sigreg": _tests_json(one, of_value.of_marginals, of_value.once_marginals)},
    }


def _tests_json(one: SetFound, tests: dict[str, Outcome], once: dict[str, Outcome]) -> dict[str, Any]:
    return {
        what: {
            **_test_json(tested),
            "told_apart": told_apart(tested, once.get(what), one.dependent),
            "one_pair_an_episode": _test_json(once[what]) if what in once else None,
        }
        for what, tested in tests.items()
    }


def _test_json(tested: Outcome) -> dict[str, Any]:
    return {
        "n": tested.n,
        "sigreg": tested.sigreg,
        "interval": tested.interval,
        "floor": _floor_json(tested.floor),
        "share_of_gaussian_as_large": tested.share,
        "above_floor": tested.above,
        "excess_per_sample": tested.excess,
    }


def _floor_json(floor: Any) -> dict[str, Any]:
    return {"n": floor.n, "repeats": floor.repeats, "mean": floor.mean, "low": floor.low, "high": floor.high}


def _angles_json(shape: Shape) -> dict[str, Any]:
    return {**_shape_json(shape), "ks": shape.ks, "beyond_pi": shape.beyond_pi}


def _shape_json(shape: Shape) -> dict[str, Any]:
    names = ("mean", "sd", "skewness", "excess_kurtosis", "ks_standardised")
    return {"n": len(shape.samples), **{name: getattr(shape, name) for name in names}}


def _by_joint(two: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    return zip(JOINTS, two)


def _rounded(value: Any) -> Any:
    """Numbers to `DIGITS` significant digits, all through; None for one that is not finite."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


# -- what people read --------------------------------------------------------------------------------------


def as_table(found: Sequence[SetFound], gauge: Gauge) -> str:
    """All of it as Markdown."""
    lines = ["# How pairs of the Reacher are distributed", "", *map(_set_line, found), ""]
    lines += [f"Theirs: as printed in {THEIRS}.", ""]
    lines += _section(
        "Angles of all states beside N(0, 1)",
        "set|joint|states|mean|sd|skewness|excess kurtosis|KS|KS, z-scored|beyond ±π|theirs",
        list(_marginal_rows(found)),
        "KS: the largest distance of the distribution functions. Members of a pair, and all rows of an "
        "episode, depend on each other.",
    )
    lines += _section(
        "Correlation of pairs",
        "set|pairs|joint|ours|95 %|rho, or theirs",
        list(_correlation_rows(found)),
        "Intervals: Fisher's for OU pairs, 1,000 draws of episodes for trajectories.",
    )
    lines += _section(
        "Differences: z' - rho z of OU pairs, z' - z of trajectories",
        "set|pairs|joint|mean|sd|sd expected|skewness|excess kurtosis|KS, z-scored|correlation of joints",
        list(_difference_rows(found)),
    )
    columns = "set|pairs|of|SIGReg|95 % over episodes|floor|told apart from Gaussian|one pair an episode"
    lines += _section(
        "SIGReg of differences",
        f"{columns}|its floor|theirs",
        list(_sigreg_rows(found, "of_differences", "once_differences")),
        f"Floor: 95 % range of SIGReg of {gauge.repeats} samples of as many independent Gaussian pairs, "
        "z-scored (or whitened) alike. Told apart: above it; of trajectories, whose "
        "pairs depend on each other within an episode, only where the interval over episodes lies above it "
        "as well, or one pair an episode above the floor of that many. Two or three of a hundred Gaussian "
        "sets lie above a floor by chance.",
    )
    lines += _section(
        "SIGReg of marginals (second members)",
        f"{columns}|its floor|theirs",
        list(_sigreg_rows(found, "of_marginals", "once_marginals")),
    )
    return "\n".join([*lines, _about_floors(found[0].count, gauge), ""])


def _set_line(one: SetFound) -> str:
    of = f", episodes of {one.source}" if one.source else ""
    episodes = f" from {one.episodes:,} episodes" if one.episodes else ""
    values = ", ".join(f"{of_value.value:g}" for of_value in one.values)
    unknown = "; their episodes are not known" if one.condition == "traj" and one.episodes is None else ""
    return (
        f"- **{one.name}**: {one.condition}{of}, {one.count:,} pairs of each {one.letter} ({values})"
        f"{episodes}, seed {one.seed}{unknown}"
    )


def _marginal_rows(found: Sequence[SetFound]) -> Iterator[list[str]]:

    for one in found:
        for joint, shape in _by_joint(one.marginals):
            theirs = one.beyond_theirs[1] if joint == "shoulder" or one.condition == "ou" else ""
            yield [
                one.name, joint, f"{len(shape.samples):,}", plain(shape.mean), plain(shape.sd),
                signed(shape.skewness, 2), signed(shape.excess_kurtosis, 2), plain(shape.ks),
                plain(shape.ks_standardised), f"{100 * shape.beyond_pi:.3g} %", theirs,
            ]  # fmt: skip


def _correlation_rows(found: Sequence[SetFound]) -> Iterator[list[str]]:

    for one in found:
        for of_value in one.values:
            for joint, each in _by_joint(of_value.correlations):
                theirs = "" if each.theirs is None else f"{each.theirs:.3f}"
                yield [
                    one.name, f"{one.letter} {of_value.value:g}", joint, plain(each.value, 4),
                    interval(each.low, each.high, 4), theirs,
                ]  # fmt: skip


def _difference_rows(found: Sequence[SetFound]) -> Iterator[list[str]]:

    for one in found:
        for of_value in one.values:
            expected = "" if of_value.sd_expected is None else plain(of_value.sd_expected, 4)
            for joint, shape in _by_joint(of_value.differences):
                yield [
                    one.name, f"{one.letter} {of_value.value:g}", joint, plain(shape.mean, 4),
                    plain(shape.sd, 4), expected, signed(shape.skewness, 2), signed(shape.excess_kurtosis, 2),
                    plain(shape.ks_standardised), signed(of_value.joint_correlation, 2),
                ]  # fmt: skip


def _about_floors(n: int, gauge: Gauge) -> str:
    """Our floors and theirs, in a sentence."""

    raw, one, both = (gauge.floor(n, what) for what in (RAW, JOINTS[0], BOTH))
    return (
        f"Their floor, about {PUBLISHED_FLOOR:g}, is said to be of i.i.d. standard normal samples. Ours as "
        f"drawn, of {n:,} pairs: mean {plain(raw.mean, 2)}, 95 % range {_written((raw.low, raw.high))} (1.05 "
        f"expected). z-scored as the samples are: mean {plain(one.mean, 2)} of one joint, "
        f"{plain(both.mean, 2)} of both."
    )


def _sigreg_rows(found: Sequence[SetFound], tests: str, once: str) -> Iterator[list[str]]:

    for one in found:
        for of_value in one.values:
            for what, tested in getattr(of_value, tests).items():
                alone: Outcome | None = getattr(of_value, once).get(what)
                words = tests == "of_differences" and one.condition == "traj" and what == BOTH
                yield [
                    one.name,
                    f"{one.letter} {of_value.value:g}",
                    what,
                    plain(tested.sigreg, 2),
                    _written(tested.interval),
                    _written((tested.floor.low, tested.floor.high)),
                    told_apart(tested, alone, one.dependent),
                    plain(alone.sigreg, 2) if alone else "",
                    f"{_written((alone.floor.low, alone.floor.high))}, n = {alone.n:,}" if alone else "",
                    PUBLISHED_SIGREG.get(int(of_value.value), "") if words else "",
                ]


def _written(bounds: tuple[float, float] | None) -> str:

    low, high = bounds or (None, None)
    return interval(low, high, 2)


def _section(head: str, names: str, rows: Sequence[Sequence[str]], note: str = "") -> list[str]:
    columns = names.split("|")
    table = [columns, ["---"] * len(columns), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return [f"## {head}", "", *([note, ""] if note else []), *(f"| {' | '.join(row)} |" for row in table), ""]
