"""What holds a study: the facts that a freeze binds, and the ledger replayed into what is bound now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bars.events import DataBound, Extracted, Registered, Trained
from bars.ledger import Event, Ledger


@dataclass(frozen=True)
class DataFacts:
    """A recording as it lies on disk now.

    Parameters
    ----------
    recording : the folder as study.yaml names it.
    manifest_sha256 : of manifest.jsonl.
    episodes : episode -> SHA-256 of the file's bytes, hashed now (`bars.hash_recording`), not read from
        the manifest; the train and evaluate episodes of the split at least.
    untestable : joint -> its evaluation std in rad, for the joints under `probe.min_std`.
    recording_sha256 : of recording.yaml (joint order, units, calibration); not bound when empty.
    joints : names of the joints in use; where given, a freeze refuses bars that name another one.
    """

    recording: str
    manifest_sha256: str
    episodes: Mapping[int, str]
    untestable: Mapping[str, float] = field(default_factory=dict)
    recording_sha256: str = ""
    joints: Sequence[str] = ()

    def binding(self) -> dict[str, Any]:
        """The body under which the ledger holds it."""
        body: dict[str, Any] = {"recording": self.recording, "manifest_sha256": self.manifest_sha256}
        if self.recording_sha256:
            body["recording_sha256"] = self.recording_sha256
        body["episodes"] = {str(episode): sha for episode, sha in sorted(self.episodes.items())}
        body["untestable"] = {joint: float(std) for joint, std in self.untestable.items()}
        return body


@dataclass(frozen=True)
class FreezeFacts:
    """What is there when a study is frozen or checked against its freeze.

    Parameters
    ----------
    data : by data entry; one that is not recorded yet is left out, and bound later.
    encoders : name -> {"fingerprint": hash} and / or {"recipe_sha256": hash}.
    prior_latents : latents of evaluation episodes that exist although no freeze covers them, in words:
        `latents of evaluation episode 25 of demos (encoder W1)`; see `latent_words`.
    latents : (encoder, data) -> hash of the latents of the evaluation episodes, as `extracted` binds it.
    software, git_commit : what registers.
    power : by data entry, the smallest effects that its evaluation episodes show; kept, never compared.
    """

    data: Mapping[str, DataFacts]
    encoders: Mapping[str, Mapping[str, str]]
    prior_latents: Sequence[str] = ()
    software: Mapping[str, Any] = field(default_factory=dict)
    git_commit: str | None = None
    latents: Mapping[tuple[str, str], str] = field(default_factory=dict)
    power: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def latent_words(encoder: str, data: str, episode: int) -> str:
    """How a message names the latents of one evaluation episode."""
    return f"latents of evaluation episode {episode} of {data} (encoder {encoder})"


@dataclass(frozen=True)
class Binding:
    """What the ledger holds a study to: the registration in force and what was bound after it.

    Parameters
    ----------
    registered : the event in force, None before a freeze and after it was superseded.
    registrations : how many there have been.
    encoders : name -> {"fingerprint" / "recipe_sha256": hash}, `trained` events included.
    """

    registered: Event | None
    registrations: int
    study_sha256: str
    data: Mapping[str, Mapping[str, Any]]
    encoders: Mapping[str, Mapping[str, str]]
    latents: Mapping[tuple[str, str], Extracted]
    seen_before: Sequence[str]

    def covers(self, ledger: Ledger, head: str) -> bool:
        """Whether something made when the ledger's head was `head` came after the registration in force."""
        if self.registered is None:
            return False
        return any(event.hash == head for event in ledger.events[self.registered.seq :])


def read_binding(study_folder: Path | str, ledger: Ledger | None = None) -> Binding:
    """Replay the ledger: the last registration that was not superseded, then what was bound after it."""
    ledger = ledger or Ledger.open(study_folder)
    registered, superseded = ledger.last("registered"), ledger.last("superseded")
    count = len(ledger.all("registered"))
    if registered is None or (superseded is not None and superseded.seq > registered.seq):
        return Binding(None, count, "", {}, {}, {}, ())
    body = registered.read(Registered)
    data: dict[str, Mapping[str, Any]] = {name: bound.to_json() for name, bound in body.data.items()}
    encoders: dict[str, Mapping[str, str]] = {name: bound.to_json() for name, bound in body.encoders.items()}
    latents: dict[tuple[str, str], Extracted] = {}
    for event in ledger.events[registered.seq + 1 :]:
        if event.event == "data":
            late = event.read(DataBound).to_json()
            data[late.pop("name")] = late
        elif event.event == "trained":
            trained = event.read(Trained)
            encoders[trained.encoder] = {
                **encoders.get(trained.encoder, {}),
                "fingerprint": trained.fingerprint,
            }
        elif event.event == "extracted":
            extracted = event.read(Extracted)
            if not extracted.exploratory:
                latents[extracted.encoder, extracted.data] = extracted
    return Binding(registered, count, body.study_sha256, data, encoders, latents, tuple(body.seen_before))
