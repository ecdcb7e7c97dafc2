"""What a freeze binds, read from disk: recordings, untestable joints, encoders, earlier latents."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bars import DataFacts, FreezeFacts, Ledger, RecordingBytes, hash_recording, latent_words
from bars.binding import Binding
from bars.seeds import base_encoder
from bars.study import Study
from encoders import Encoder, LatentStore, WeightsUnavailable, load_encoder, parse_recipe, recipe_sha256
from encoders.checkpoints import CARD, read_card
from encoders.recipes import CnnRecipe, LewmRecipe, Recipe, untrained_twin
from encoders.training_frames import plan_pairs
from encoders.windows import plan_windows
from hardware.alignment import align
from hardware.errors import InputError
from hardware.recording import Progress, Recording, software_versions
from probe.checks.view_map import joint_groups
from probe.clusters import EpisodeClusters
from probe.statistics import min_std_of_units, spread_of_joints

SOFTWARE = ("numpy", "torch", "scikit-learn", "transformers")


@dataclass(frozen=True)
class DataEntry:
    """A data entry of a study with its recording opened.

    Attributes
    ----------
    joints, columns, units : names of the probed joints, their columns in the recording, their units.
    """

    name: str
    recording: Recording
    views: tuple[str, ...]
    joints: tuple[str, ...]
    columns: tuple[int, ...]
    units: tuple[str, ...]
    train: tuple[int, ...]
    evaluate: tuple[int, ...]


def open_data(study: Study, name: str) -> DataEntry:
    """Open a data entry's recording and check its views, joints and episodes."""
    entry = study.data[name]
    recording = Recording.open(study.recording_folder(name))
    where = f"{study.folder / 'study.yaml'}, data.{name}"
    for view in entry.views:
        if view not in recording.info.view_names:
            there = ", ".join(recording.info.view_names) or "none: it holds joints only"
            raise InputError(
                f"{where}.views", f"{view!r} is not a view of {recording.folder}", f"its views: {there}"
            )
    names = recording.info.joint_names
    if entry.joints == "all":
        joints = [joint.name for joint in recording.info.joints if joint.unit != "source"]
        if not joints:
            raise InputError(
                f"{where}.joints", "no joint of the recording has an angle", "name joints in rad or percent"
            )
    else:
        joints = list(entry.joints)
        for joint in joints:
            if joint not in names:
                raise InputError(
                    f"{where}.joints", f"{joint!r} is not a joint", f"its joints: {', '.join(names)}"
                )
    held = set(recording.episode_indices)
    for split, episodes in (("train", entry.train), ("evaluate", entry.evaluate)):
        absent = [episode for episode in episodes if episode not in held]
        if absent:
            raise InputError(
                f"{where}.{split}",
                f"{recording.folder} has no episode {absent[0]}"
                + (f" (and {len(absent) - 1} more)" if absent[1:] else ""),
                f"it holds {len(held)}: {min(held)} to {max(held)}",
            )
        for episode in episodes:
            for view in entry.views:
                if not recording.episode(episode).has_view(view):
                    raise InputError(
                        f"{where}.{split}",
                        f"episode {episode} has no frames of view {view!r}",
                        "leave the episode out",
                    )
    groups = joint_groups(names)
    for view, group in entry.expect.items():
        if view not in entry.views:
            raise InputError(f"{where}.expect", f"{view!r} is not among its views", ", ".join(entry.views))
        if group not in groups:
            raise InputError(
                f"{where}.expect",
                f"{group!r} is not a group of its joints",
                f"its groups: {', '.join(groups)}",
            )
    columns = tuple(names.index(joint) for joint in joints)
    units = tuple(recording.info.joints[column].unit for column in columns)
    return DataEntry(
        name, recording, tuple(entry.views), tuple(joints), columns, units, entry.train, entry.evaluate
    )


def joints_of(entry: DataEntry) -> tuple[np.ndarray, EpisodeClusters]:
    """Probed joints (N, J) of the aligned rows of all episodes of the split, and their episodes."""
    episodes = [*entry.train, *entry.evaluate]
    positions = [align(entry.recording.episode(episode), entry.views).position for episode in episodes]
    labels = np.repeat(episodes, [len(rows) for rows in positions])
    return np.concatenate(positions)[:, entry.columns], EpisodeClusters.of(labels)


def evaluation_std(entry: DataEntry, min_std_rad: float) -> tuple[np.ndarray, np.ndarray]:
    """Std (J,) of the probed joints over the evaluation rows, and whether each is testable (J,)."""
    positions = [align(entry.recording.episode(episode), entry.views).position for episode in entry.evaluate]
    least = min_std_of_units(entry.units, min_std_rad=min_std_rad)
    spread = spread_of_joints(np.concatenate(positions)[:, entry.columns], least)
    return spread.std, spread.testable


def data_facts(
    study: Study, name: str, bound: Mapping[str, Any] | None = None, progress: Progress | None = None
) -> DataFacts:
    """A recording as it lies on disk now: every bound episode's bytes are hashed, not believed.

    `bound` is what the ledger holds of it; where the bytes differ from that, nothing of them is read.
    """
    entry = open_data(study, name)
    lying = hash_recording(entry.recording.folder, [*entry.train, *entry.evaluate], progress)
    for index in (*entry.train, *entry.evaluate):
        if lying.episodes[index] is None:
            path = entry.recording.episode(index).path
            raise InputError(path, lying.unreadable.get(index, "does not exist"), "restore it from a copy")
    changed = bound is not None and any(
        lying.episodes.get(int(index)) != sha for index, sha in bound["episodes"].items()
    )
    if bound is not None and changed:
        return _facts(study, entry, lying, bound["untestable"])
    for index in entry.train:
        align(entry.recording.episode(index), entry.views)  # an episode that cannot be read stops it here
    std, testable = evaluation_std(entry, study.probe.min_std)
    return _facts(
        study,
        entry,
        lying,
        {joint: round(float(std[i]), 9) for i, joint in enumerate(entry.joints) if not testable[i]},
    )


def _facts(
    study: Study, entry: DataEntry, lying: RecordingBytes, untestable: Mapping[str, float]
) -> DataFacts:
    return DataFacts(
        recording=study.data[entry.name].recording,
        manifest_sha256=lying.manifest_sha256 or "",
        recording_sha256=lying.recording_sha256 or "",
        episodes={index: sha for index, sha in lying.episodes.items() if sha is not None},
        untestable=untestable,
        joints=entry.joints,
    )


def encoder_recipe(study: Study, name: str) -> tuple[Recipe, str] | None:
    """The recipe of an encoder that is made here and the data entry it is made on; None for a given one."""
    name = base_encoder(name)
    entry = study.networks[name]
    where = f"{study.folder / 'study.yaml'}, encoders.{name}"
    if entry.train is not None:
        if "views" in entry.train:
            raise InputError(
                f"{where}.train", "has views, which are the encoder's own", "write them beside train"
            )
        fields: dict[str, Any] = {"seed": study.seed, **entry.train, "views": study.encoder_views(name)}
        return parse_recipe(fields, f"{where}.train"), entry.on or study.first_data
    if (entry.load or "").startswith("untrained:"):
        if entry.twin_of is None:
            raise InputError(
                where, "is untrained, but of what?", "write twin_of: the encoder whose recipe it shares"
            )
        made = encoder_recipe(study, entry.twin_of)
        twin = made or _kept_recipe(study, entry.twin_of, entry.on or study.first_data)
        if twin is None or not isinstance(twin[0], CnnRecipe | LewmRecipe):
            raise InputError(
                f"{where}.twin_of",
                f"{entry.twin_of} was not trained by a cnn or lewm recipe, as far as its encoder.json tells",
                "name one that was",
            )
        control = untrained_twin(twin[0])
        if entry.load != f"untrained:{control.of}":
            raise InputError(
                f"{where}.load", f"{entry.twin_of} is a {twin[0].kind}", f"write untrained:{control.of}"
            )
        return control, twin[1]
    return None


def _kept_recipe(study: Study, name: str, on: str) -> tuple[Recipe, str] | None:
    """The recipe by which a given encoder was trained elsewhere, and `on`; None where its folder has none."""
    folder = study.encoder_folder(name)
    if folder is None or not (folder / CARD).is_file():
        return None
    recipe = read_card(folder).recipe
    return None if recipe is None else (parse_recipe(recipe, folder / CARD), on)


def given_encoder(study: Study, name: str) -> Encoder:
    """Load an encoder that a study names by `load`; WeightsUnavailable where its weights cannot be had."""
    base, at, latent = name.partition("@")
    entry = study.networks[base]
    views = study.encoder_views(name)
    shapes = None
    for data in study.data.values():
        if set(views) <= set(data.views):
            info = Recording.open(study.folder / data.recording).info
            shapes = {view: (info.view(view).height, info.view(view).width) for view in views}
            break
    spec = f"{entry.load or ''}{at}{latent}"
    return load_encoder(
        spec,
        views=views,
        image_shapes=shapes,
        base=study.folder,
        precision=entry.precision,
        runtime=entry.runtime,
        clip_frames=entry.clip_frames,
        clip_stride=entry.clip_stride,
    )


def check_recipes(study: Study, facts: FreezeFacts) -> None:
    """Refuse a recipe that cannot be trained on its data, before it is bound for good."""
    for name in study.networks:
        made = encoder_recipe(study, name) if "@" not in name else None
        if made is None or made[1] not in facts.data:
            continue
        recipe, entry = made[0], open_data(study, made[1])
        views = tuple(recipe.views or entry.views)
        if isinstance(recipe, CnnRecipe):
            plan_pairs(entry.recording, entry.train, recipe, views)
        elif isinstance(recipe, LewmRecipe):
            plan_windows(entry.recording, entry.train, recipe, views)


def made_encoder(study: Study, name: str) -> Encoder | None:
    """The trained (or untrained) encoder in the study's own folder, None where it was not made yet."""
    base, at, latent = name.partition("@")
    folder = study.folder / "encoders" / base
    return (
        load_encoder(f"{folder}{at}{latent}", views=study.encoder_views(name))
        if (folder / "encoder.json").is_file()
        else None
    )


def encoder_facts(study: Study) -> tuple[dict[str, dict[str, str]], dict[str, Encoder], dict[str, str]]:
    """Hashes of every encoder as it is now, the loaded encoders, and why optional ones are not available."""
    facts: dict[str, dict[str, str]] = {}
    loaded: dict[str, Encoder] = {}
    unavailable: dict[str, str] = {}
    for name in study.networks:
        recipe = encoder_recipe(study, name)
        if recipe is not None:
            facts[name] = {"recipe_sha256": recipe_sha256(recipe[0])}
            encoder = made_encoder(study, name)
        else:
            try:
                encoder = given_encoder(study, name)
            except WeightsUnavailable as error:
                if not study.networks[base_encoder(name)].optional:
                    raise
                unavailable[name] = error.problem
                continue
            facts[name] = {}
        if encoder is not None:
            loaded[name] = encoder
            facts[name]["fingerprint"] = encoder.fingerprint
    return facts, loaded, unavailable


def latents_on_disk(
    study: Study,
    data: dict[str, DataFacts],
    encoders: dict[str, dict[str, str]],
    binding: Binding,
    ledger: Any,
) -> list[str]:
    """Latents of evaluation episodes that no freeze covers, in words.

    Those in the study's own folder and, before a freeze, those of the same weights in sibling studies.
    Latents made under a registration that was superseded are in the ledger, and the next one names them.
    """
    first = next((event.seq for event in ledger.events if event.event == "registered"), len(ledger.events))
    covered = {event.hash for event in ledger.events[first:]}
    found = []
    names = {facts["fingerprint"]: name for name, facts in encoders.items() if "fingerprint" in facts}
    evaluation = {
        facts.episodes[index]: (name, index)
        for name, facts in data.items()
        for index in study.data[name].evaluate
        if index in facts.episodes
    }
    own = LatentStore(study.folder / "latents")
    for fingerprint in own.fingerprints():
        for sha, facts in own.episodes(fingerprint).items():
            if sha in evaluation and facts["ledger_head"] not in covered:
                name = names.get(fingerprint, f"with fingerprint {fingerprint[:12]}")
                found.append(latent_words(name, *evaluation[sha]))
    if binding.registered is None:
        for folder in sorted(study.folder.resolve().parent.glob("*/latents")):
            if folder.parent == study.folder.resolve():
                continue
            other = LatentStore(folder)
            for fingerprint in set(other.fingerprints()) & set(names):
                for sha in set(other.episodes(fingerprint)) & set(evaluation):
                    words = latent_words(names[fingerprint], *evaluation[sha])
                    found.append(f"{words} in the study {folder.parent.name}")
    return sorted(found)


def freeze_facts(
    study: Study, binding: Binding, ledger: Ledger, progress: Progress | None = None
) -> tuple[FreezeFacts, dict[str, Encoder], dict[str, str]]:
    """Everything a freeze binds or is checked against, the loaded encoders, and the unavailable ones."""
    data = {
        name: data_facts(study, name, binding.data.get(name), progress)
        for name in study.data
        if study.recording_folder(name).is_dir()
    }
    if not data:
        first = study.first_data
        raise InputError(
            study.recording_folder(first), "is not a folder", f"record it, or correct data.{first}.recording"
        )
    encoders, loaded, unavailable = encoder_facts(study)
    store = LatentStore(study.folder / "latents")
    latents = {}
    for (encoder, name), extracted in binding.latents.items():
        shas = [data[name].episodes[index] for index in extracted.episodes] if name in data else []
        if shas and set(shas) <= set(store.episodes(extracted.fingerprint)):
            latents[encoder, name] = store.sha256(extracted.fingerprint, shas)
    facts = FreezeFacts(
        data=data,
        encoders=encoders,
        prior_latents=latents_on_disk(study, data, encoders, binding, ledger),
        software=software_versions(*SOFTWARE),
        git_commit=git_commit(study.folder),
        latents=latents,
    )
    return facts, loaded, unavailable


def git_commit(folder: Path) -> str | None:
    """The commit that the folder's repository is at, None where there is none."""
    try:
        shown: Sequence[str] = ("git", "-C", str(folder), "rev-parse", "HEAD")
        done = subprocess.run(shown, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
