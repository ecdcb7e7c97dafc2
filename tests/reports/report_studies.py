"""Study folders with believable results, built through bars' own API: what these tests' cards are made of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import yaml

from bars import Ledger, Measurement, Results, Study, difference_path, judge_study, part_names
from bars.results import DataResult, EncoderResult

START = datetime(2026, 10, 29, 9, 0, 0, tzinfo=timezone.utc)
JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
STD = {"demos": (0.42, 0.55, 0.51, 0.23, 0.31, 0.38), "walk": (0.47, 0.41, 0.40, 0.42, 0.66, 0.40)}
# R2 by encoder and data entry. W1 and dinov2 on demos are the numbers of the published reference result.
R2: dict[tuple[str, str], tuple[float, ...]] = {
    ("W1", "demos"): (0.58, 0.91, 0.88, 0.27, 0.30, 0.45),
    ("W1walk", "demos"): (0.66, 0.86, 0.84, 0.41, 0.12, 0.37),
    ("dinov2", "demos"): (0.92, 0.98, 0.97, 0.74, 0.68, 0.91),
    ("untrained", "demos"): (0.49, 0.74, 0.70, 0.22, 0.08, 0.33),
    ("pixels", "demos"): (0.61, 0.83, 0.79, 0.31, 0.11, 0.40),
    ("W1", "walk"): (0.51, 0.66, 0.59, 0.28, 0.09, 0.21),
    ("W1walk", "walk"): (0.78, 0.85, 0.83, 0.64, 0.47, 0.52),
    ("dinov2", "walk"): (0.90, 0.94, 0.93, 0.81, 0.66, 0.85),
    ("untrained", "walk"): (0.44, 0.58, 0.52, 0.25, 0.04, 0.18),
    ("pixels", "walk"): (0.57, 0.69, 0.66, 0.38, 0.07, 0.24),
}

STUDY: dict[str, Any] = {
    "schema": "jointprobe-study/1",
    "name": "lejepa",
    "title": "When Does LeJEPA Learn a World Model? On an SO-101",
    "summary": "A world model is trained on a robot arm's camera pictures. Does it know where the arm is? "
    "The arm logs its true joint angles, so we can look: a straight line from latents to each joint tells.",
    "paper": {
        "title": "When Does LeJEPA Learn a World Model?",
        "authors": ["Klindt", "LeCun", "Balestriero"],
        "arxiv": "2605.26379",
        "url": "https://arxiv.org/abs/2605.26379",
        "code": "https://github.com/example/lejepa-id",
        "goal": "Say under which worlds LeJEPA recovers the latent state, and how recovery degrades outside.",
        "measured_by": "Linear regression between learned and true latents, R2 both ways and per joint.",
    },
    "series": {
        "name": "Papers tested",
        "position": 17,
        "of": 22,
        "previous": "2026-10-22-vjepa",
        "next": "dreamer",
    },
    "registration": {
        "question": "Is recovery partial and uneven from demonstrations?",
        "stopping": "One look.",
    },
    "seed": 20261029,
    "data": {
        "demos": {
            "recording": "../../recordings/demos",
            "views": ["front", "wrist"],
            "train": "0-23",
            "evaluate": "24-35",
        },
        "walk": {
            "recording": "../../recordings/walk",
            "views": ["front", "wrist"],
            "train": "0-23",
            "evaluate": "24-35",
        },
    },
    "encoders": {
        "W1": {
            "train": {"kind": "cnn", "objective": "sigreg", "steps": 300},
            "on": "demos",
            "about": "The paper's CNN.",
        },
        "W1walk": {"train": {"kind": "cnn", "objective": "sigreg", "steps": 300}, "on": "walk"},
        "dinov2": {
            "load": "transformers:facebook/dinov2-small",
            "optional": True,
            "about": "Frozen DINOv2-S.",
        },
        "untrained": {"train": {"kind": "untrained", "of": "cnn"}, "on": "demos", "role": "control"},
        "pixels": {"train": {"kind": "pixels"}, "on": "demos", "role": "baseline"},
    },
    "compute": "Orin NX beside the arm, no external GPU, $0.",
    "claims": [
        {
            "id": "C1",
            "primary": True,
            "text": "On goal-directed data recovery of the true state is partial and anisotropic.",
            "hypothesis": "The joints are recovered in part only, and unevenly.",
            "theirs": "Reacher, trajectories: mean R2 between 0.34 and 0.79 by stride.",
        },
        {"id": "C2", "text": "Under a random walk the same recipe recovers the state better."},
        {
            "id": "C3",
            "text": "What carries more of the state ranks actions better.",
            "theirs": "Planning is as good.",
        },
        {"id": "C4", "text": "All theorems are verified in Lean 4.", "not_proven": True},
    ],
    "bars": [
        {"id": "B1", "claim": "C1", "bar": "W1.r2.mean < 0.80", "theirs": 0.565, "why": "Partial."},
        {
            "id": "B2",
            "claim": "C1",
            "bar": "W1.anisotropy >= 0.20",
            "theirs": "0.02 to 0.74 by stride",
            "why": "Uneven.",
        },
        {"id": "B3", "claim": "C3", "bar": "same_order(W1, dinov2; r2.mean; g1b.top1)"},
        {"id": "B4", "claim": "C2", "bar": "W1walk/walk.r2.mean - W1/walk.r2.mean > 0"},
        {"id": "B5", "claim": "C2", "bar": "equals(W1walk/walk.r2.mean, 0.95, margin 0.05)", "theirs": 0.95},
    ],
    "bars_note": "Marks are those of the hardware study.",
    "what_would_change_it": "The same recipe on the arm itself.",
}


@dataclass
class Made:
    """A study folder to be, and everything that a test may want to change in it before it is written."""

    study: dict[str, Any] = field(default_factory=lambda: yaml.safe_load(yaml.safe_dump(STUDY)))
    joints: tuple[str, ...] = JOINTS
    r2: dict[tuple[str, str], tuple[float, ...]] = field(default_factory=lambda: dict(R2))
    untestable: dict[str, tuple[str, ...]] = field(default_factory=dict)  # data entry -> joints
    unavailable: dict[str, str] = field(default_factory=dict)
    extra: list[Measurement] = field(default_factory=list)
    drop: tuple[str, ...] = ()  # measurement paths, or their beginnings, that were not measured
    checks: list[dict[str, Any]] = field(
        default_factory=lambda: [
            {
                "name": "W1: finite latents",
                "state": "pass",
                "message": "8,447 latents, all finite",
                "remedy": "",
            },
            {
                "name": "clocks of demos",
                "state": "warn",
                "message": "wrist runs at 27.9 of 30 Hz",
                "remedy": "Check USB.",
            },
        ]
    )
    provenance: dict[str, Any] = field(
        default_factory=lambda: {
            "software": {"jointprobe": "0.1.0", "numpy": "2.3.5"},
            "host": {"machine": "aarch64", "cpus": 8},
            "seconds": 431.2,
        }
    )
    exploratory: bool = False
    half_width: float = 0.06

    @property
    def study_data(self) -> dict[str, Any]:
        return self.study["data"]

    def measurements(self) -> list[Measurement]:
        """Per-joint R2, mean, weighted mean, anisotropy, null of each encoder, and the paired differences."""
        found: dict[str, Measurement] = {}
        first = next(iter(self.study_data))
        means: dict[tuple[str, str], float] = {}
        for (encoder, data), values in self.r2.items():
            if encoder not in self.study["encoders"] or data not in self.study_data:
                continue
            source = encoder if data == first else f"{encoder}/{data}"
            still = self.untestable.get(data, ())
            known = [value for joint, value in zip(self.joints, values) if joint not in still]
            for joint, part in part_names(self.joints).items():
                value = values[self.joints.index(joint)]
                self._add(found, data, f"{source}.r2.{part}", None if joint in still else value)
            means[encoder, data] = sum(known) / len(known)
            self._add(found, data, f"{source}.r2.mean", means[encoder, data], 0.6)
            self._add(found, data, f"{source}.r2.weighted", sum(known) / len(known) + 0.03, 0.6)
            self._add(found, data, f"{source}.anisotropy", max(known) - min(known), 1.5)
            self._add(found, data, f"{source}.null.mean", -0.02, 0.5)
        for (a, data), (b, other) in ((p, q) for p in means for q in means if p[1] == q[1] and p[0] != q[0]):
            paths = [e if data == first else f"{e}/{data}" for e in (a, b)]
            name = difference_path(f"{paths[0]}.r2.mean", f"{paths[1]}.r2.mean")
            if self.study["encoders"][a].get("role", "model") == "model":
                self._add(found, data, name, means[a, data] - means[b, other], 0.5)
        found.update({measurement.path: measurement for measurement in self.extra})
        return [m for path, m in found.items() if not path.startswith(self.drop or ("\0",))]

    def _add(
        self, found: dict[str, Measurement], data: str, path: str, value: float | None, width: float = 1.0
    ) -> None:
        episodes = len(yaml_range(self.study_data[data]["evaluate"]))
        half = self.half_width * width
        found[path] = Measurement(
            path,
            value,
            n_rows=340 * episodes,
            n_episodes=episodes,
            low=None if value is None else value - 1.1 * half,
            high=None if value is None else value + 0.9 * half,
            testable=value is not None,
            note="" if value is not None else "it hardly moves",
        )

    def write(self, folder: Path) -> Path:
        """Write study.yaml, ledger.jsonl (registered, trained, probed, judged) and results.json."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "study.yaml").write_text(
            yaml.safe_dump(self.study, sort_keys=False, allow_unicode=True), encoding="utf-8"
        )
        study = Study.load(folder)
        ledger = Ledger.open(folder)
        clock = iter(START + timedelta(minutes=7 * step) for step in range(100))
        if not self.exploratory:
            ledger.append("registered", self._registration(study, folder), next(clock))
            for name, entry in study.encoders.items():
                if entry.train is not None:
                    body = {"encoder": name, "recipe_sha256": sha(f"recipe {name}"), "fingerprint": sha(name)}
                    ledger.append(
                        "trained", {**body, "data": entry.on, "episodes": list(range(24))}, next(clock)
                    )
        results = self.results(study, folder, ledger.head)
        verdict = judge_study(study, results.by_path, results.unavailable)
        probed = {"results_sha256": results.save(folder), "exploratory": self.exploratory}
        ledger.append("probed", probed, next(clock))
        ledger.append("judged", verdict.to_json(), next(clock))
        return folder

    def results(self, study: Study, folder: Path, head: str) -> Results:
        encoders = {}
        for name, entry in study.encoders.items():
            if name in self.unavailable:
                encoders[name] = EncoderResult(
                    kind="transformers", unavailable=self.unavailable[name], role=entry.role
                )
                continue
            kind = str(entry.train["kind"]) if entry.train is not None else "transformers"
            encoders[name] = EncoderResult(
                kind=kind,
                width=6 if kind == "cnn" else 128,
                fingerprint=sha(name),
                role=entry.role,
                alpha=dict.fromkeys(study.data, 1000.0),
                fits={data: {"null_p_value": 0.005} for data in study.data},
            )
        data = {name: self._data_result(study, name) for name in study.data}
        return Results(
            study=study.name,
            study_sha256=Study.sha256(folder),
            ledger_head=head,
            exploratory=self.exploratory,
            made_at="2026-10-29T10:00:00Z",
            measurements=self.measurements(),
            encoders=encoders,
            data=data,
            checks=self.checks,
            provenance=self.provenance,
        )

    def _data_result(self, study: Study, name: str) -> DataResult:
        entry = study.data[name]
        spread = dict(zip(self.joints, STD.get(name, STD["demos"])))
        still = self.untestable.get(name, ())
        spread.update(dict.fromkeys(still, 0.004))
        ceiling = {joint: 1 - (0.01 / std) ** 2 for joint, std in spread.items() if joint not in still}
        return DataResult(
            recording=entry.recording,
            train_rows=738 * len(entry.train),
            evaluate_rows=340 * len(entry.evaluate),
            train_episodes=len(entry.train),
            evaluate_episodes=len(entry.evaluate),
            joints=list(self.joints),
            untestable=dict.fromkeys(still, 0.004),
            evaluate_std=spread,
            ceiling=ceiling,
        )

    def _registration(self, study: Study, folder: Path) -> dict[str, Any]:
        episodes = {name: [*entry.train, *entry.evaluate] for name, entry in study.data.items()}
        return {
            "study_sha256": Study.sha256(folder),
            "data": {
                name: {
                    "recording": study.data[name].recording,
                    "manifest_sha256": sha(f"manifest {name}"),
                    "episodes": {str(index): sha(f"{name} {index}") for index in used},
                    "untestable": dict.fromkeys(self.untestable.get(name, ()), 0.004),
                }
                for name, used in episodes.items()
            },
            "encoders": {name: {"recipe_sha256": sha(f"recipe {name}")} for name in study.encoders},
            "git_commit": None,
            "software": {"jointprobe": "0.1.0"},
        }


def yaml_range(text: str) -> list[int]:
    from bars import parse_episodes

    return list(parse_episodes(text))


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def small() -> Made:
    """One data entry, one model and its two controls, three joints: the study of the golden card."""
    made = Made(joints=("pan", "lift", "wrist_roll"))
    made.study["data"].pop("walk")
    for name in ("W1walk", "dinov2"):
        made.study["encoders"].pop(name)
    made.study["claims"] = made.study["claims"][:1] + made.study["claims"][3:]
    made.study["bars"] = made.study["bars"][:2]
    made.r2 = {
        ("W1", "demos"): (0.58, 0.91, 0.30),
        ("untrained", "demos"): (0.49, 0.74, 0.08),
        ("pixels", "demos"): (0.61, 0.83, 0.11),
    }
    return made


def with_measurements(made: Made, values: Mapping[str, float], half: float = 0.03) -> Made:
    """Put further measurements in."""
    made.extra += [
        Measurement(path, value, n_rows=4080, n_episodes=12, low=value - half, high=value + half)
        for path, value in values.items()
    ]
    return made
