"""The bodies of ledger events: what each kind of event must say, and nothing else."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from bars.errors import StudyError

Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
EpisodeIndex = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,8})$")]
Episodes = list[Annotated[int, Field(ge=0)]]
Said = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Verdict = Literal["reproduces", "does not reproduce", "not tested here"]


class Body(BaseModel):
    # The pattern engine is Rust's, in which `$` is the very end of the text and nothing before a newline.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def to_json(self) -> dict[str, Any]:
        """The body as it is hashed; optional parts that were not given are left out.

        Dumped as Python, not as JSON: pydantic would turn a NaN into null, and hash what nobody said.
        """
        return self.model_dump(exclude_unset=True)


class RecordingBinding(Body):
    """A bound recording: the hashes of its manifest, of its recording.yaml and of the episodes in use."""

    recording: Said
    manifest_sha256: Hash
    recording_sha256: Hash | None = None
    episodes: dict[EpisodeIndex, Hash]
    untestable: dict[str, float]


class EncoderBinding(Body):
    """A bound encoder: its fingerprint, or the hash of the recipe that will train it."""

    fingerprint: Hash | None = None
    recipe_sha256: Hash | None = None


class Registered(Body):
    """The freeze. `supersedes` and `seen_before` only where an earlier registration was given up:
    its hash, and the encoders whose latents of the evaluation episodes had been extracted by then.
    `power`: what each data entry's evaluation episodes can show, known from joints alone."""

    study_sha256: Hash
    data: dict[str, RecordingBinding]
    encoders: dict[str, EncoderBinding]
    git_commit: str | None
    software: dict[str, Any]
    supersedes: Hash | None = None
    seen_before: list[str] = []
    power: dict[str, dict[str, Any]] = {}


class DataBound(RecordingBinding):
    """A recording bound after the registration."""

    name: Said


class Trained(Body):
    """A recipe's fingerprint, bound after the registration. No recipe: weights that came later."""

    encoder: Said
    recipe_sha256: Hash | None
    fingerprint: Hash
    data: str | None
    episodes: Episodes


class Extracted(Body):
    """Latents of evaluation episodes exist from here on. Exploratory ones are remembered and bind nothing."""

    encoder: Said
    fingerprint: Hash
    data: Said
    latents_sha256: Hash
    episodes: Episodes
    exploratory: bool = False


class Probed(Body):
    results_sha256: Hash
    exploratory: bool


class Judged(Body):
    verdict: Verdict
    claims: dict[str, Any]
    bars: dict[str, Any]


class Published(Body):
    files: dict[str, Hash]


class Correction(Body):
    """`corrected` and `superseded`: dated additions, never edits."""

    reason: Said
    what: Said


BODIES: dict[str, type[Body]] = {
    "registered": Registered,
    "data": DataBound,
    "trained": Trained,
    "extracted": Extracted,
    "probed": Probed,
    "judged": Judged,
    "published": Published,
    "corrected": Correction,
    "superseded": Correction,
}

AnyBody = TypeVar("AnyBody", bound=Body)


def read_body(kind: type[AnyBody], body: object, where: object) -> AnyBody:
    """A body as its model; StudyError names the first field that is wrong."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in detail["loc"]) or "body"
        problem = {"missing": "is missing", "extra_forbidden": "is unknown"}.get(
            detail["type"], detail["msg"]
        )
        raise StudyError(where, f"{field}: {problem}") from None
