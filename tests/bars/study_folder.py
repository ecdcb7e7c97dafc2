"""A whole study on disk without torch or HDF5: files that stand for recordings, bound by their bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from bars import DataFacts, FreezeFacts, Study, hash_recording

STUDY = (Path(__file__).parents[1] / "golden" / "study.yaml").read_text("utf-8")
FINGERPRINT = hashlib.sha256(b"W1").hexdigest()
RECIPE = hashlib.sha256(b"recipe").hexdigest()
TRAINED = hashlib.sha256(b"W1walk").hexdigest()


@dataclass
class StudyFolder:
    """A study in `root/studies/small`, with two recordings beside it."""

    root: Path

    @property
    def folder(self) -> Path:
        return self.root / "studies" / "small"

    @property
    def study_yaml(self) -> Path:
        return self.folder / "study.yaml"

    def episode(self, data: str, episode: int) -> Path:
        return self.root / "recordings" / data / "episodes" / f"{episode:06d}.h5"

    def edit_study(self, old: str, new: str) -> None:
        text = self.study_yaml.read_text()
        assert old in text
        self.study_yaml.write_text(text.replace(old, new))

    def data_facts(self, data: str) -> DataFacts:
        """Hashed from the files as they lie there now."""
        entry = Study.load(self.folder).data[data]
        now = hash_recording(self.folder / entry.recording, [*entry.train, *entry.evaluate])
        return DataFacts(
            recording=entry.recording,
            manifest_sha256=now.manifest_sha256 or "",
            episodes={index: sha for index, sha in now.episodes.items() if sha is not None},
            untestable={"lift": 0.01},
            recording_sha256=now.recording_sha256 or "",
            joints=("pan", "lift"),
        )

    def facts(self, **changes: object) -> FreezeFacts:
        values: dict = {
            "data": {"demos": self.data_facts("demos"), "walk": self.data_facts("walk")},
            "encoders": {"W1": {"fingerprint": FINGERPRINT}, "W1walk": {"recipe_sha256": RECIPE}},
            "software": {"jointprobe": "0.1.0"},
            "git_commit": "c0ffee",
        }
        return FreezeFacts(**{**values, **changes})


def make_study(root: Path, study: str = STUDY) -> StudyFolder:
    """Write the study and its recordings; nothing is frozen."""
    made = StudyFolder(root)
    made.folder.mkdir(parents=True)
    made.study_yaml.write_text(study)
    for data, episodes in (("demos", 6), ("walk", 4)):
        lines = []
        for episode in range(episodes):
            file = made.episode(data, episode)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(f"{data} {episode}".encode() * 50)
            sha = hashlib.sha256(file.read_bytes()).hexdigest()
            lines.append(json.dumps({"episode": episode, "file": f"episodes/{file.name}", "sha256": sha}))
        recording = root / "recordings" / data
        (recording / "manifest.jsonl").write_text("\n".join(lines) + "\n")
        (recording / "recording.yaml").write_text("schema: jointprobe-recording/1\n")
    weights = made.folder / "weights" / "W1"
    weights.mkdir(parents=True)
    (weights / "encoder.json").write_text("{}")
    (weights / "weights.safetensors").write_bytes(b"W1")
    return made
