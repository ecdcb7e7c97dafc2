"""What a freeze has bound, in order: data, encoders, claims, and what can come of every bar.

Nothing here decides anything. It says before the first latent what the author can still change: that an
encoder is missing, that a joint is still, that so few episodes leave every bar undecided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from bars.bar import Bar, Comparison, Difference, Equals, SameOrder, bar_paths
from bars.judging import FEWEST_EPISODES
from bars.ledger import Event
from bars.measurement import MeasurementPath, part_names
from bars.seeds import base_encoder
from bars.study import Study
from encoders import WeightsUnavailable
from hardware.alignment import align
from hardware.errors import InputError
from probe.facts import given_encoder, open_data
from reports.numbers import count

# Metrics that come without an interval, so that no bar on them can be firm.
WITHOUT_INTERVAL = ("null", "shift_null", "map", "mcc", "width")


@dataclass(frozen=True)
class BoundData:
    """A data entry as it is bound: (episodes, rows) of each split; None where nothing is recorded yet."""

    name: str
    train: tuple[int, int] | None
    evaluate: tuple[int, int] | None
    untestable: Mapping[str, float]

    @property
    def words(self) -> str:
        if self.train is None or self.evaluate is None:
            return "not recorded yet: bound when it is"
        splits = (("train on", self.train), ("evaluate on", self.evaluate))
        text = ", ".join(f"{verb} {count(n, 'episode')} ({rows:,} rows)" for verb, (n, rows) in splits)
        still = ", ".join(f"{joint} (std {std:.4f})" for joint, std in self.untestable.items())
        return f"{text}; not testable, hardly moving: {still}" if still else text


@dataclass(frozen=True)
class Outlook:
    """What can come of a bar: `open`, `undecided` or `not tested`, and why, known from the freeze alone."""

    bar: str
    claim: str
    text: str
    outlook: str
    why: str


@dataclass(frozen=True)
class Bound:
    """Everything that a freeze has bound, in words and numbers."""

    data: tuple[BoundData, ...]
    encoders: Mapping[str, str]
    bars: tuple[Outlook, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "data": {
                one.name: {
                    kind: None if split is None else {"episodes": split[0], "rows": split[1]}
                    for kind, split in (("train", one.train), ("evaluate", one.evaluate))
                }
                | {"untestable": dict(one.untestable)}
                for one in self.data
            },
            "encoders": dict(self.encoders),
            "bars": [vars(one) for one in self.bars],
        }


def read_bound(study: Study, event: Event) -> Bound:
    """What the `registered` event of a study binds.

    Raises
    ------
    InputError : a recording cannot be read.
    """
    data = tuple(_data(study, name, event.body["data"].get(name)) for name in study.data)
    missing = dict(_missing(study, event.body["encoders"]))
    encoders = {
        name: _encoder(study, name, event.body["encoders"].get(name), missing) for name in study.networks
    }
    return Bound(data, encoders, tuple(_outlooks(study, data, missing, event.body.get("power", {}))))


def bound_table(study: Study, bound: Bound) -> Table:
    """The screen: three columns, one block each for data, encoders, claims with their bars."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for row, one in enumerate(bound.data):
        table.add_row("" if row else "data", Text(one.name, "bold"), Text(one.words))
    for row, (name, words) in enumerate(bound.encoders.items()):
        style = "yellow" if words.startswith("not available") else ""
        table.add_row("" if row else "encoders", Text(name, "bold"), Text(words, style))
    for row, claim in enumerate(study.claims):
        said = Text(claim.text).append(" (primary: the study's verdict)" if claim.primary else "", "dim")
        table.add_row("" if row else "claims", Text(claim.id, "bold"), said)
        for bar in (bar for bar in bound.bars if bar.claim == claim.id):
            style = "" if bar.outlook == "open" else "yellow"
            table.add_row(
                "",
                Text(f"  {bar.bar}"),
                Text(bar.text, "bold").append(f"\n{_said(bar)}", f"not bold {style}"),
            )
        if not study.bars_of(claim.id):
            table.add_row("", "", Text("no bar: will read not tested", "dim"))
    return table


def _said(one: Outlook) -> str:
    head = {"undecided": "undecided whatever comes: ", "not tested": "will read not tested: "}
    return head.get(one.outlook, "") + one.why


def _data(study: Study, name: str, bound: Mapping[str, Any] | None) -> BoundData:
    if bound is None:
        return BoundData(name, None, None, {})
    entry, most = open_data(study, name), study.probe.max_rows_per_episode
    splits = []
    for episodes in (entry.train, entry.evaluate):
        rows = [len(align(entry.recording.episode(index), entry.views).position) for index in episodes]
        splits.append((len(episodes), sum(min(one, most or one) for one in rows)))
    return BoundData(name, splits[0], splits[1], bound["untestable"])


def _missing(study: Study, bound: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Encoders that are not here, and why."""
    for name in study.networks:
        if bound.get(name):
            continue
        try:
            given_encoder(study, name)
        except (WeightsUnavailable, InputError) as error:
            yield name, error.problem
        else:
            yield name, "was not here at the freeze"


def _encoder(study: Study, name: str, bound: Mapping[str, str] | None, missing: Mapping[str, str]) -> str:
    if not bound:
        return f"not available: {missing[name]}"
    entry, (base, at, latent) = study.networks[base_encoder(name)], name.partition("@")
    if at:
        return f"{latent} of {base}, made with it"
    if "recipe_sha256" not in bound:
        return f"given ({entry.load}), by its fingerprint {bound['fingerprint'][:12]}"
    recipe = f"recipe {bound['recipe_sha256'][:12]}"
    if entry.twin_of:
        return f"untrained twin of {entry.twin_of}, by its {recipe}"
    kind = (entry.train or {}).get("kind", "")
    made = {
        "untrained": f"untrained {(entry.train or {}).get('of', 'cnn')},",
        "pixels": f"pixels, fitted on {entry.on}",
    }
    return f"{made.get(kind, f'{kind}, trained on {entry.on}')} by its {recipe}"


def _outlooks(
    study: Study, data: tuple[BoundData, ...], missing: Mapping[str, str], power: Mapping[str, Any]
) -> Iterator[Outlook]:
    bound = {one.name: one for one in data}
    for entry in study.bars:
        paths = bar_paths(entry.parsed)
        named = [bound[path.data or study.first_data] for path in paths]
        outlook, why = (
            _not_tested(study, paths, named, missing)
            or _undecided(entry.parsed, paths, named)
            or ("open", _open(study, entry.parsed, paths, power))
        )
        yield Outlook(entry.id, entry.claim, entry.bar, outlook, why)


def _not_tested(
    study: Study, paths: list[MeasurementPath], named: list[BoundData], missing: Mapping[str, str]
) -> tuple[str, str] | None:
    for path, data in zip(paths, named):
        if path.encoder in missing:
            return "not tested", f"{path.encoder} is not here, unless its weights come before the probe"
        if data.evaluate is None:
            return "not tested", f"{data.name} is not recorded, unless it is before the probe"
        still = part_names(data.untestable)
        joint = next((joint for joint, part in still.items() if part == path.part), None)
        if joint is not None:
            return "not tested", f"{joint} hardly moves in {data.name} (std {data.untestable[joint]:.4f})"
    return None


def _undecided(bar: Bar, paths: list[MeasurementPath], named: list[BoundData]) -> tuple[str, str] | None:
    fewest = min(data.evaluate[0] for data in named if data.evaluate is not None)
    if fewest < FEWEST_EPISODES:
        return "undecided", f"{fewest} evaluation episodes, {FEWEST_EPISODES} needed"
    if isinstance(bar, Comparison) and (paths[0].metric in WITHOUT_INTERVAL or paths[0].part == "null"):
        return "undecided", f"{paths[0].metric} is measured without an interval"
    return None


def _open(study: Study, bar: Bar, paths: list[MeasurementPath], power: Mapping[str, Any]) -> str:
    """When a bar will be firm; for a mean R2 how far from its mark it must lie."""
    if isinstance(bar, SameOrder):
        return "firm where the interval of every difference it rests on leaves out 0"
    if isinstance(bar, Equals):
        return f"met where the whole interval lies in {bar.mark - bar.margin:g} .. {bar.mark + bar.margin:g}"
    known = power.get(paths[0].data or study.first_data)
    means = all(path.metric == "r2" and path.part == "mean" for path in paths)
    if known is None or not means or len({path.data for path in paths}) > 1:
        return f"firm where its interval leaves out {bar.mark:g}"
    often = f"firm in {known['power']:.0%} of such studies if"
    if isinstance(bar, Difference):
        effects = known["smallest_difference_of_mean_r2"].values()
        return (
            f"{often} they truly lie {min(effects):.2f} to {max(effects):.2f} from {bar.mark:g} (by their R2)"
        )
    effects = known["smallest_effect_on_mean_r2"]
    nearest = min(effects, key=lambda level: abs(float(level) - bar.mark))
    return f"{often} it truly lies {effects[nearest]:.2f} or more from {bar.mark:g}"
