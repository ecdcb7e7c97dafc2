"""Choosing a setting of a recipe, the weight of a regulariser for one, on training episodes alone.

Every fourth training episode is held out. A network is trained on the others with each value, the ridge
probe is fitted on what it makes of them, and the value whose held-out mean R2 is highest wins. No evaluation
episode is read, so that it may be done before a freeze or after one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bars.files import write_whole
from bars.results import plain_json
from bars.study import ProbeSettings
from encoders import LatentStore, parse_recipe, train
from encoders.training_state import logged_warnings
from hardware.errors import InputError
from hardware.recording import Progress, Recording
from probe.bootstrap import Estimate
from probe.notebook import ridge_probe

EVERY = 4
MAX_ROWS = 120  # of an episode, evenly spread: neighbouring rows say the same


@dataclass(frozen=True, eq=False)
class Candidate:
    """One value of the setting.

    Attributes
    ----------
    r2 : mean over the testable joints, on the held-out training episodes, with its interval over them.
    anisotropy : the same of the best joint minus the worst.
    warnings : what the training said, a collapse for one.
    """

    value: Any
    r2: Estimate
    anisotropy: Estimate
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """What choice.json holds of it."""
        facts = {"value": self.value, "r2_mean": self.r2.value, "low": self.r2.low, "high": self.r2.high}
        return {**facts, "anisotropy": self.anisotropy.value, "warnings": list(self.warnings)}


@dataclass(frozen=True, eq=False)
class Choice:
    """What was tried, in the order asked for, and what won.

    Attributes
    ----------
    fitted, held_out : training episodes that the candidates were trained and probed on, and those that they
        were scored on.
    """

    setting: str
    fitted: tuple[int, ...]
    held_out: tuple[int, ...]
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        """The highest held-out mean R2; of equal ones the first."""
        return max(self.candidates, key=lambda one: -np.inf if one.r2.value is None else one.r2.value)

    @property
    def at_the_edge(self) -> bool:
        """Whether the winner is the smallest or the largest of numbers tried: a better one may lie beyond."""
        values = [one.value for one in self.candidates]
        numbers = all(isinstance(value, int | float) for value in values)
        return numbers and self.best.value in (min(values), max(values))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, as choice.json holds them."""
        return {
            "setting": self.setting,
            "chosen": self.best.value,
            "at_the_edge": self.at_the_edge,
            "fitted": list(self.fitted),
            "held_out": list(self.held_out),
            "candidates": [one.to_json() for one in self.candidates],
        }


def choose_setting(
    recording: Recording,
    episodes: Sequence[int],
    recipe: Mapping[str, Any],
    setting: str,
    values: Sequence[Any],
    to: str | Path,
    progress: Progress | None = None,
) -> Choice:
    """Try `values` of one setting of a recipe on training episodes; see this module.

    Parameters
    ----------
    recording, episodes : the training episodes; no other one is read.
    recipe : its other fields, views included.
    to : folder of the encoders tried, one in `SETTING=VALUE` each, and of choice.json. What is there already
        is not trained again.
    progress : called as trainings and extractions go on, with the value they are of.

    Raises
    ------
    InputError : fewer than eight episodes, an unknown setting, a value that the recipe does not take, or
        recordings without joints in rad or percent.
    """
    held_out = tuple(episodes[EVERY - 1 :: EVERY])
    fitted = tuple(index for index in episodes if index not in held_out)
    if len(held_out) < 2:
        raise InputError(
            f"choosing {setting}",
            f"needs {2 * EVERY} training episodes and has {len(episodes)}: every fourth is held out",
            "give more episodes",
        )
    if len(set(map(repr, values))) < len(values) or len(values) < 2:
        raise InputError(
            f"choosing {setting}", "needs two different values at the least", f"{setting}=0.01,0.1"
        )
    recipes = [parse_recipe({**recipe, setting: value}, f"choosing {setting}, {value}") for value in values]
    columns = [i for i, joint in enumerate(recording.info.joints) if joint.unit != "source"]
    if not columns:
        raise InputError(
            recording.folder, "no joint of the recording has an angle", "give joints in rad or percent"
        )
    names = [recording.info.joints[i].name for i in columns]
    to, views = Path(to), tuple(recipe["views"])
    candidates = []
    for value, one in zip(values, recipes):
        said = f"{setting}={value}"
        told = None if progress is None else _named(progress, said)
        encoder = train(recording, fitted, one, to / said, told)
        store = LatentStore(to / said / "latents")
        store.extract(encoder, recording, views, episodes, max_rows=MAX_ROWS, progress=told)
        read = [store.read(encoder.fingerprint, recording.episode(index).sha256) for index in episodes]
        probed = ridge_probe(
            np.concatenate([rows.latent for rows in read]),
            np.concatenate([rows.position for rows in read])[:, columns],
            np.repeat(np.asarray(episodes), [len(rows) for rows in read]),
            evaluate=held_out,
            joint_names=names,
            settings=ProbeSettings(permutations=0),
        )
        warnings = tuple(logged_warnings(to / said))
        candidates.append(Candidate(value, probed.scores.mean, probed.scores.anisotropy, warnings))
    choice = Choice(setting, fitted, held_out, tuple(candidates))
    write_whole(to / "choice.json", (json.dumps(plain_json(choice.to_json()), indent=1) + "\n").encode())
    return choice


def _named(progress: Progress, name: str) -> Progress:
    return lambda done, total, what: progress(done, total, f"{name}: {what}")
