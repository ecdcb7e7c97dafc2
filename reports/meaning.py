"""What the gap between theirs and ours means, and what would change it: sentences that the numbers decide."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from bars.judging import FEWEST_EPISODES
from reports.caveats import orders_of, primary_sources
from reports.comparison import compare, controls_of, path_on
from reports.findings import sentence
from reports.model import BarLine, Card, Number
from reports.numbers import count, listed, plain

# Cover of a cluster-bootstrap interval by the number of episodes behind it (design.md).
COVERAGE = "intervals that say 95 % cover 92 % of the time at 25 episodes, 77 % at 6 and 31 % at 2"
MOST_EPISODES = 500  # beyond this, "more episodes" is no practical advice
SPREAD_RATIO = 1.5  # of standard deviations, beyond which R2 on two data entries cannot be compared


def gap(card: Card) -> tuple[str, ...]:
    """What lies between theirs and ours, and how much weight it bears."""
    lines: list[str] = []
    if card.exploratory:
        lines.append(
            "The bars were not frozen before the numbers were known: nothing on this card confirms a claim."
        )
    primary = {claim.id for claim in card.claims if claim.primary}
    for bar in sorted(card.bars, key=lambda bar: bar.claim not in primary):
        lines += _distance(bar)
        lines.append(_outcome(bar))
    for model in dict.fromkeys(model for model, _ in primary_sources(card)):
        lines += _beside_controls(card, model)
        lines += _uneven_controls(card, model)
    lines += _spread(card)
    if card.seen_before:
        lines.append(f"{_capital(card.seen_before)}: whoever wrote them could have known these numbers.")
    if card.too_few:
        lines.append(f"{_capital(card.too_few)}; {COVERAGE}.")
    return tuple(lines)


def change(card: Card) -> tuple[str, ...]:
    """What would have to be measured, or to come out otherwise, for the card to say something else."""
    lines: list[str] = []
    if card.exploratory:
        lines.append(
            "Freeze these bars and probe episodes that no encoder has seen: then the card can confirm."
        )
    lines += _undecided(card)
    for bar in card.bars:
        lines += _turn(bar)
    for claim in card.claims:
        for bar in claim.bars:
            if bar.state == "not tested":
                reason = bar.reason.rstrip(" .") or "nothing was measured"
                lines.append(
                    f"{bar.id} was not tested, because {reason}; measuring it would decide {claim.id}."
                )
        if not claim.bars:
            lines.append(f"{claim.id} has no bar in this study, so that no number here can decide it.")
    for line in card.data:
        if line.untestable:
            joints = listed(list(line.untestable))
            lines.append(f"Episodes of {line.name} in which {joints} moves more would make it testable.")
    lines += [
        f"{check.name}: {sentence(check.remedy)}"
        for check in card.checks
        if check.tone == "bad" and check.remedy
    ]
    return tuple(lines)


def _distance(bar: BarLine) -> Iterator[str]:
    """Theirs against ours, where both are numbers."""
    number = bar.number
    if bar.theirs_value is None or number.value is None:
        return
    distance = number.value - bar.theirs_value
    if round(abs(distance), 3) == 0:
        text = f"{bar.measures}: ours equals theirs to three decimals ({number.text})"
    else:
        side = "above" if distance > 0 else "below"
        far = plain(abs(distance))
        text = f"{bar.measures}: ours ({number.text}) is {far} {side} theirs ({plain(bar.theirs_value)})"
    if number.bounds is not None:
        low, high = number.bounds
        place = "inside" if low <= bar.theirs_value <= high else "outside"
        text += f", which lies {place} our interval {number.interval}"
    yield f"{text}."


def _outcome(bar: BarLine) -> str:
    """What became of a bar, and how firmly."""
    name = f"{bar.id} ({bar.text})"
    if bar.state == "not tested":
        return f"{name} was not tested: {sentence(bar.reason or 'nothing was measured')}"
    ours = f" at {bar.ours} {bar.interval}".rstrip() if bar.number.value is not None else ""
    if bar.firm == "firm":
        return f"{name} is {bar.state}{ours}, firmly."
    return f"{name} is undecided: {bar.state}{ours} by its point estimate, but {sentence(bar.reason)}"


def _beside_controls(card: Card, model: str) -> Iterator[str]:
    """What the controls allow one to conclude from the model's R2 on the first data entry."""
    table = next((table for table in card.joint_tables if model in table.models), None)
    if table is None:
        return
    orders = orders_of(card, table, model)
    unclear = [control for control, order in orders.items() if order.state == "open"]
    better = [control for control, order in orders.items() if order.state == "below"]
    if unclear:
        shown = [f"{control} ({orders[control].words})" for control in unclear]
        yield (
            f"{model} is not shown to carry more about the joints than {listed(shown, 'or')} "
            f"on {table.data}, so that its R2 alone says little about what training put there."
        )
    if better:
        shown = [f"{control} ({orders[control].words})" for control in better]
        yield f"{model} carries less about the joints than {listed(shown, 'and')} on {table.data}."
    for control in (control for control, order in orders.items() if order.state == "above"):
        line, own = card.encoder(control), card.encoder(model)
        if line is not None and own is not None and line.is_twin_of(own):
            yield (
                f"{model} carries more about the joints than the same network untrained ({control}), "
                f"on {table.data}: training put that there"
                + (", as far as so few episodes can tell." if card.too_few else ".")
            )
        else:
            yield f"{model} carries more about the joints than {control} does, on {table.data}."


def _uneven_controls(card: Card, model: str) -> Iterator[str]:
    """Where a bar asks for anisotropy: whether the model is any more uneven than its controls."""
    for data in card.data:
        path = path_on(card, model, data.name, "anisotropy")
        table = next((table for table in card.joint_tables if table.data == data.name), None)
        if table is None or model not in table.models or not any(path in bar.text for bar in card.bars):
            continue
        paths = {c: path_on(card, c, data.name, "anisotropy") for c in controls_of(card, table, model)}
        orders = {control: compare(card, path, other) for control, other in paths.items()}
        own = f"The anisotropy of {model} on {data.name} ({card.numbers[path].text})"
        for state, said in (("open", "is not shown to be above"), ("below", "is below")):
            shown = [
                f"that of {control} ({_beside(card.numbers[paths[control]], order.words)})"
                for control, order in orders.items()
                if order.state == state
            ]
            if shown:
                last = "or" if state == "open" else "and"
                yield f"{own} {said} {listed(shown, last)}: so much may be there without its training."


def _beside(other: Number, words: str) -> str:
    """A control's number and its paired difference; where none was measured the words hold both numbers."""
    return words if " against " in words else f"{other.text}; difference {words}"


def _spread(card: Card) -> Iterator[str]:
    """R2 is relative to the variance of what is evaluated: say where two data entries differ in it."""
    for first, second in pairwise(card.data):
        parts = []
        for joint, std in first.evaluate_std.items():
            other = second.evaluate_std.get(joint)
            still = joint in first.untestable or joint in second.untestable
            if other and std and not still and not 1 / SPREAD_RATIO < other / std < SPREAD_RATIO:
                parts.append(f"{joint} ({plain(std, 2)} and {plain(other, 2)})")
        if parts:
            yield (
                f"R2 is relative to how far a joint moves, in which {first.name} and {second.name} differ "
                f"(std of {listed(parts)}): across them compare differences from the controls, not values."
            )


def _undecided(card: Card) -> Iterator[str]:
    """Undecided bars whose interval does not straddle a mark, together by their reason."""
    reasons: dict[str, list[str]] = {}
    for bar in card.bars:
        if bar.firm == "undecided" and _episodes_needed(bar) is None:
            reasons.setdefault(bar.reason, []).append(bar.id)
    for reason, bars in reasons.items():
        yield f"{listed(bars)} {'is' if len(bars) == 1 else 'are'} undecided: {sentence(reason)}"


def _turn(bar: BarLine) -> Iterator[str]:
    """How far a firm bar is from turning, or how many episodes would settle one that straddles its mark."""
    number = bar.number
    if number.value is None or bar.mark is None or number.bounds is None:
        return
    away, reach, verb = _reach(bar.mark, number, bar.state)
    if bar.firm == "firm":
        times = f", {plain(away / reach, 1)} times the reach of its interval" if reach > 0 else ""
        yield f"{bar.id} would turn if {bar.measures} {verb} by {plain(away)} to {bar.mark:g}{times}."
        return
    needed = _episodes_needed(bar)
    if needed is None:
        return
    if needed > MOST_EPISODES:
        yield f"{bar.id} lies {plain(away)} from its mark, too close for more such episodes to settle it."
    else:
        like = count(max(math.ceil(needed), FEWEST_EPISODES), "evaluation episode")
        yield (
            f"{bar.id} would be settled by about {like} like these {number.n_episodes}, "
            "if the estimate stayed where it is."
        )


def _episodes_needed(bar: BarLine) -> float | None:
    """Episodes after which an interval that straddles its mark would not, as its reach falls with their root.

    None where the interval does not straddle the mark, or where there is none.
    """
    number = bar.number
    if number.value is None or bar.mark is None or number.bounds is None:
        return None
    away, reach, _ = _reach(bar.mark, number, bar.state)
    if reach < away:
        return None
    return math.inf if away == 0 else number.n_episodes * (reach / away) ** 2


def _reach(mark: float, number: Number, state: str) -> tuple[float, float, str]:
    """Distance to the mark, how far the interval reaches towards it, and which way that is."""
    assert number.value is not None and number.bounds is not None
    rises = number.value < mark or (number.value == mark and state == "not met")
    reach = number.bounds[1] - number.value if rises else number.value - number.bounds[0]
    return abs(number.value - mark), reach, "rose" if rises else "fell"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
