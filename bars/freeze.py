"""The freeze: a registration binds study.yaml, recordings and encoders; a check finds what no longer matches.

The rule that matters: no latent of an evaluation episode exists before `registered`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bars.bar import bar_paths
from bars.binding import Binding, DataFacts, FreezeFacts, latent_words, read_binding
from bars.errors import StudyError
from bars.events import Extracted
from bars.judging import FEWEST_EPISODES
from bars.ledger import Event, Ledger
from bars.seeds import base_encoder
from bars.study import STUDY_FILE, Study
from bars.study_checks import unknown_joint

HOW_TO_SUPERSEDE = (
    "a frozen study is replaced only by a dated `superseded` event that gives a reason "
    '(jointprobe freeze STUDY --supersede "REASON"), after which the new study.yaml binds'
)


def is_registered(study_folder: Path | str) -> bool:
    """Whether a registration is in force."""
    return read_binding(study_folder).registered is not None


def register(study_folder: Path | str, facts: FreezeFacts) -> Event:
    """Freeze a study: bind its study.yaml, its recordings and its encoders, before any latent exists.

    Raises
    ------
    StudyError : bad study.yaml, latents that exist already, a registration in force, an episode or an
        encoder that is not there, a bar that names no joint.
    """
    folder = Path(study_folder)
    study, sha = Study.load(folder), Study.sha256(folder)
    ledger = Ledger.open(folder)
    binding = read_binding(folder, ledger)
    if binding.registered is not None:
        changed = (
            "and study.yaml has changed since"
            if binding.study_sha256 != sha
            else "and study.yaml has not changed"
        )
        raise StudyError(folder, f"was frozen on {binding.registered.time}, {changed}", HOW_TO_SUPERSEDE)
    seen = _seen_before(study, ledger)
    first = ledger.last("registered") is None
    existing = [*facts.prior_latents, *(seen if first else ())]
    if existing:
        raise StudyError(
            folder,
            f"{existing[0]} exist already" + _and_more(existing),
            "bars are frozen before any latent of an evaluation episode: evaluate on episodes that no "
            "encoder has seen, or run jointprobe probe --exploratory, and the card will say so",
        )
    _check_facts(study, facts)
    body: dict[str, Any] = {
        "study_sha256": sha,
        "data": {name: data.binding() for name, data in facts.data.items()},
        "encoders": {name: dict(known) for name, known in facts.encoders.items()},
        "git_commit": facts.git_commit,
        "software": dict(facts.software),
    }
    if facts.power:
        body["power"] = {name: dict(effects) for name, effects in facts.power.items()}
    earlier = ledger.last("registered")
    if earlier is not None:
        body["supersedes"] = earlier.hash
        body["seen_before"] = seen
    return ledger.append("registered", body, expect_head=ledger.head)


def power_words(effects: Mapping[str, Any]) -> str:
    """What evaluation episodes can show, from one entry of a registration's `power`."""
    n = effects["evaluation_episodes"]
    if n < FEWEST_EPISODES:
        return (
            f"{n} evaluation episodes leave every bar undecided, whatever comes; {FEWEST_EPISODES} are needed"
        )
    marks, pairs = (
        ", ".join(f"{effect:.2f} (R2 {r2})" for r2, effect in effects[key].items())
        for key in ("smallest_effect_on_mean_r2", "smallest_difference_of_mean_r2")
    )
    return (
        f"with {n} evaluation episodes, {effects['power']:.0%} of such studies tell a mean R2 from a mark "
        f"that lies this far from it: {marks}; and two encoders whose mean R2 lie this far apart: {pairs}"
    )


def _seen_before(study: Study, ledger: Ledger) -> list[str]:
    """Latents of this study's evaluation episodes that were ever extracted, by the ledger's own events."""
    seen: dict[str, None] = {}
    for event in ledger.all("extracted"):
        extracted = event.read(Extracted)
        if extracted.data in study.data:
            both = sorted(set(extracted.episodes) & set(study.data[extracted.data].evaluate))
            seen.update(dict.fromkeys(latent_words(extracted.encoder, extracted.data, e) for e in both))
    return list(seen)


def _check_facts(study: Study, facts: FreezeFacts) -> None:
    for name, data in facts.data.items():
        check_data(study, name, data)
    for name in facts.encoders:
        if name not in study.networks:
            raise StudyError(f"encoder {name}", "is not in study.yaml")
    for name in study.networks:
        known = facts.encoders.get(name, {})
        if not known and not study.networks[base_encoder(name)].optional:
            raise StudyError(
                f"encoder {name}",
                "has neither weights nor a recipe to bind",
                f"give its weights, or write optional: true under encoders.{name}",
            )


def check_data(study: Study, name: str, facts: DataFacts) -> None:
    """The recording holds every episode of the split, and every joint that a bar names; else StudyError."""
    if name not in study.data:
        raise StudyError(f"data {name}", "is not in study.yaml")
    data = study.data[name]
    for split, episodes in (("train", data.train), ("evaluate", data.evaluate)):
        absent = [episode for episode in episodes if episode not in facts.episodes]
        if absent:
            raise StudyError(
                f"recording {name}",
                f"has no episode {absent[0]}" + _and_more(absent),
                f"record it, or change data.{name}.{split}",
            )
    if facts.joints:
        for bar in study.bars:
            for path in bar_paths(bar.parsed):
                if (path.data or study.first_data) == name and (problem := unknown_joint(path, facts.joints)):
                    raise StudyError(f"{study.folder / STUDY_FILE}, bar {bar.id}", *problem)


def _and_more(items: Sequence[object]) -> str:
    return f" (and {len(items) - 1} more)" if items[1:] else ""


def supersede(study_folder: Path | str, reason: str, what: str = "study.yaml") -> Event:
    """Give up the registration in force, with a reason; the next `register` then binds again.

    Latents that were extracted under the old one stay in the ledger, and the new registration names them.
    """
    ledger = Ledger.open(study_folder)
    if read_binding(study_folder, ledger).registered is None:
        raise StudyError(study_folder, "has no registration in force to supersede", "jointprobe freeze STUDY")
    if not reason.strip():
        raise StudyError(study_folder, "a registration is not superseded without a reason", "give one")
    return ledger.append("superseded", {"reason": reason, "what": what}, expect_head=ledger.head)


@dataclass(frozen=True)
class Mismatch:
    """Something bound that is not what it was: `study.yaml`, `recording demos, episode 24`, `encoder W1`."""

    what: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.what}: frozen as {shorten(self.expected)}, now {shorten(self.found)}"


ABSENT = "not there"
UNBOUND = "not bound"


def check_frozen(study_folder: Path | str, facts: FreezeFacts) -> list[Mismatch]:
    """Everything bound that is not what it was, the most telling first; empty when the freeze holds.

    Without a registration in force the only mismatch is `the freeze` itself. A ledger that is damaged
    raises StudyError instead.
    """
    folder = Path(study_folder)
    binding = read_binding(folder)
    if binding.registered is None:
        found = "superseded, and not frozen again" if binding.registrations else "not frozen"
        return [Mismatch("the freeze", "registered before any probing", found)]
    found_study = Study.sha256(folder)
    mismatches = _differ(STUDY_FILE, binding.study_sha256, found_study)
    for name in dict.fromkeys((*binding.data, *facts.data)):
        mismatches += _recording_mismatches(name, binding.data.get(name), facts.data.get(name))
    optional = set()
    if not mismatches or found_study == binding.study_sha256:
        optional = {name for name, entry in Study.load(folder).networks.items() if entry.optional}
    for name in dict.fromkeys((*binding.encoders, *facts.encoders)):
        bound, now = binding.encoders.get(name), facts.encoders.get(name)
        if now is None and name in optional:
            continue  # weights that are missing: its bars read "not tested here"
        mismatches += _encoder_mismatches(name, bound, now)
    mismatches += _latent_mismatches(binding, facts.latents)
    mismatches += [Mismatch(words, "none before the freeze", "there") for words in facts.prior_latents]
    return mismatches


def refuse_mismatches(study_folder: Path | str, mismatches: Sequence[Mismatch]) -> None:
    """Raise StudyError naming the first mismatch, and how many more there are; nothing for none."""
    if not mismatches:
        return
    first = mismatches[0]
    more = f" (and {len(mismatches) - 1} more)" if mismatches[1:] else ""
    if first.what == "the freeze":
        raise StudyError(
            study_folder,
            f"its bars are {first.found}",
            "freeze it first: jointprobe freeze STUDY; or jointprobe probe --exploratory",
        )
    remedy = f"restore it; {HOW_TO_SUPERSEDE}"
    raise StudyError(study_folder, f"{first}{more}", f"{remedy}; or jointprobe probe --exploratory")


def shorten(value: str) -> str:
    """A hash by its first 12 digits; anything else as it is."""
    return f"{value[:12]}..." if len(value) == 64 and not set(value) - set("0123456789abcdef") else value


def _differ(what: str, expected: str | None, found: str | None) -> list[Mismatch]:
    if expected is None or expected == found:
        return []
    return [Mismatch(what, expected, found or ABSENT)]


def _recording_mismatches(
    name: str, bound: Mapping[str, Any] | None, now: DataFacts | None
) -> list[Mismatch]:
    what = f"recording {name}"
    if bound is None:
        return [Mismatch(what, UNBOUND, "there, without a `data` event")]
    if now is None:
        return [Mismatch(what, bound["manifest_sha256"], ABSENT)]
    mismatches: list[Mismatch] = []
    for index, sha in sorted(bound["episodes"].items(), key=lambda item: int(item[0])):
        mismatches += _differ(f"{what}, episode {index}", sha, now.episodes.get(int(index)))
    mismatches += _differ(f"{what}, recording.yaml", bound.get("recording_sha256"), now.recording_sha256)
    mismatches += _differ(f"{what}, manifest.jsonl", bound["manifest_sha256"], now.manifest_sha256)
    expected, found = (
        ", ".join(sorted(joints)) or "none" for joints in (bound["untestable"], now.untestable)
    )
    return mismatches + _differ(f"{what}, joints that are not testable", expected, found)


def _encoder_mismatches(
    name: str, bound: Mapping[str, str] | None, now: Mapping[str, str] | None
) -> list[Mismatch]:
    what = f"encoder {name}"
    if not bound:
        return [Mismatch(what, UNBOUND, "there, without a `trained` event")] if now else []
    now = now or {}
    mismatches: list[Mismatch] = []
    if "recipe_sha256" in now:
        mismatches += _differ(f"{what}, recipe", bound.get("recipe_sha256"), now["recipe_sha256"])
    if "fingerprint" in bound:
        mismatches += _differ(what, bound["fingerprint"], now.get("fingerprint"))
    elif "fingerprint" in now:
        mismatches.append(Mismatch(what, "a recipe", "weights without a `trained` event"))
    elif "recipe_sha256" not in now:
        mismatches.append(Mismatch(what, bound["recipe_sha256"], ABSENT))
    return mismatches


def _latent_mismatches(binding: Binding, latents: Mapping[tuple[str, str], str]) -> Iterator[Mismatch]:
    for (encoder, data), sha in latents.items():
        extracted = binding.latents.get((encoder, data))
        what = f"latents of the evaluation episodes of {data} (encoder {encoder})"
        if extracted is None:
            yield Mismatch(what, UNBOUND, "there, without an `extracted` event")
        else:
            yield from _differ(what, extracted.latents_sha256, sha)
