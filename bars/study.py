"""The study file: claims, bars, data and its split, encoders, settings. These models are its reference."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from bars.bar import Bar, parse_bar
from bars.episodes import parse_episodes
from bars.files import read_bytes
from bars.measurement import ENCODER_PATTERN, NAME_PATTERN, difference_path
from bars.seeds import base_encoder, networks_of
from bars.strict_yaml import MAX_BYTES, read_yaml

STUDY_FILE = "study.yaml"
STUDY_SCHEMA = "jointprobe-study/1"

GIVEN_OR_TRAINED = "needs either load (a given encoder) or train (a recipe), one of the two"

Name = Annotated[str, StringConstraints(pattern=rf"^{NAME_PATTERN}$")]
EncoderName = Annotated[str, StringConstraints(pattern=rf"^{ENCODER_PATTERN}$")]
Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
Text = Annotated[str, StringConstraints(strip_whitespace=True)]
NonEmpty = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Number = Annotated[float, Field(allow_inf_nan=False)]
EpisodeRange = Annotated[tuple[int, ...], BeforeValidator(parse_episodes)]


class Entry(BaseModel):
    """What every part of a study has in common: an unknown key is an error, and nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Paper(Entry):
    """The paper under test. `goal` and `measured_by`: what it wants, and how it measures it."""

    title: NonEmpty
    authors: list[NonEmpty] = []
    arxiv: Text = ""
    url: Text = ""
    code: Text = ""
    goal: Text = ""
    measured_by: Text = ""


class Series(Entry):
    """The study's place in a series of cards: `Papers tested, 17 of 22`, and its neighbours' names."""

    name: NonEmpty
    position: int = Field(ge=1)
    of: int = Field(ge=1)
    previous: Text = ""
    next: Text = ""

    @model_validator(mode="after")
    def _within(self) -> Series:
        if self.position > self.of:
            raise ValueError(f"position {self.position} lies beyond the {self.of} of the series")
        return self


class Registration(Entry):
    """What a sceptic asks of a pre-registration, in words; all optional, all frozen with the rest."""

    question: Text = ""
    sample: Text = ""
    stopping: Text = ""
    exclusions: Text = ""
    data_seen: Text = ""


class Data(Entry):
    """A recording, its views and joints, and the split by episode.

    Parameters
    ----------
    recording : folder, relative to the study's folder.
    views : the first one anchors the alignment.
    joints : names, or `all`.
    train, evaluate : disjoint episode ranges, `0-23`, `0-3,7` or a list.
    expect : view -> the group of joints that it is meant to show best; a check says where it does not.
    """

    recording: NonEmpty
    views: list[NonEmpty] = Field(min_length=1)
    joints: Literal["all"] | list[NonEmpty] = "all"
    train: EpisodeRange
    evaluate: EpisodeRange
    expect: dict[NonEmpty, NonEmpty] = {}

    @field_validator("views", "joints")
    @classmethod
    def _no_name_twice(cls, value: Any) -> Any:
        if isinstance(value, list):
            if not value:
                raise ValueError("names nothing; name one at least, or write all")
            for name in value:
                if value.count(name) > 1:
                    raise ValueError(f"{name} is named twice")
        return value

    @property
    def train_episodes(self) -> list[int]:
        return list(self.train)

    @property
    def evaluate_episodes(self) -> list[int]:
        return list(self.evaluate)


class EncoderEntry(Entry):
    """An encoder: given (`load`), or a recipe trained on the train episodes of one data entry.

    An entry named `W1@cls` is another latent of the encoder W1, made with it: it has neither. Which ones
    there are is the encoder's affair: `lewm` has `cls`, before its projector, and one by each view's name.

    Parameters
    ----------
    load : `cnn:FOLDER`, `pixels:FOLDER`, `lewm:FOLDER`, `FOLDER`, `untrained:cnn`, `untrained:lewm`,
        `transformers:ID`, `torchvision:NAME`, `onnx:FILE`, `import:MODULE:FACTORY`; folders relative to the
        study's folder.
    precision : of a given frozen network's products; bf16 is twice as fast where the machine has it.
    runtime : of a given transformers or torchvision network; `openvino` needs x86_64 and its extra.
    clip_frames, clip_stride : of a given transformers network of clips (V-JEPA 2, VideoMAE): frames of the
        clip that ends at a row, as many as in its training when left out, and how many rows apart they are.
    train : a recipe; its keys are the encoders room's.
    seeds : of a recipe: one network each, measured by itself; the encoder's own numbers are means over them.
    on : the data entry on whose train episodes a recipe is trained (or an untrained one's input and
        batch-norm statistics are measured).
    twin_of : for `untrained:KIND`, the encoder whose recipe gives its architecture: trained here, or loaded
        from a folder that says how it was trained.
    views : the views it sees; those of the data entry when left out.
    role : `model`, or a `control` or `baseline` that stands beside every model.
    optional : its weights may be missing; its bars then read "not tested here".
    """

    load: NonEmpty | None = None
    train: dict[str, Any] | None = None
    seeds: tuple[Annotated[int, Field(strict=True, ge=0, lt=1 << 63)], ...] | None = Field(
        default=None, min_length=2, max_length=100
    )
    on: Name | None = None
    twin_of: Name | None = None
    views: list[NonEmpty] | None = Field(default=None, min_length=1)
    precision: Literal["fp32", "bf16"] = "fp32"
    runtime: Literal["torch", "openvino"] = "torch"
    clip_frames: int | None = Field(default=None, strict=True, ge=1, le=1024)
    clip_stride: int = Field(default=1, strict=True, ge=1, le=1024)
    role: Literal["model", "control", "baseline"] = "model"
    about: Text = ""
    optional: bool = False

    @model_validator(mode="after")
    def _given_or_trained(self) -> EncoderEntry:
        if self.load is not None and self.train is not None:
            raise ValueError(GIVEN_OR_TRAINED)
        if self.train is not None and self.on is None:
            raise ValueError("is trained, so it needs on: the data entry whose train episodes it sees")
        untrained = (self.load or "").startswith("untrained:")
        if self.load is not None and self.on is not None and not untrained:
            raise ValueError("is loaded, so it cannot have on, which is for trained encoders")
        if self.precision != "fp32" and (self.load is None or untrained):
            raise ValueError("has precision, which is for given networks; a recipe says it under train")
        if self.runtime != "torch" and (self.load is None or untrained):
            raise ValueError("has runtime, which is for given networks; torch trains and runs a recipe")
        clips = self.clip_frames is not None or self.clip_stride != 1
        if clips and not (self.load or "").startswith("transformers:"):
            raise ValueError("has clip_frames or clip_stride, which are for load: transformers:ID")
        if self.twin_of is not None and not untrained:
            raise ValueError("has twin_of, which is for load: untrained:KIND only")
        if self.seeds is not None and self.train is None:
            raise ValueError("has seeds, which are for a recipe; an untrained twin has those of its twin")
        if self.seeds is not None and len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"names a seed twice: {', '.join(map(str, self.seeds))}")
        if self.seeds is not None and "seed" in (self.train or {}):
            raise ValueError("has seeds beside the seed of its recipe; leave one of the two out")
        return self


class Settings(Entry):
    """Numbers are numbers here, and yes and no are true and false: `refits: true` is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, strict=True)


class ProbeSettings(Settings):
    """How the ridge probe is fitted and how its uncertainty is measured.

    Parameters
    ----------
    alphas : ridge penalties, chosen by cross-validation grouped by training episode.
    folds : of that cross-validation.
    resamples : cluster-bootstrap resamples of the evaluation episodes.
    refits : resamples of training and evaluation episodes together, with a refit each.
    permutations : refits with targets exchanged between episodes, and as many with targets shifted within.
    level : of the intervals.
    interval : how they are made from resamples; studentised ones hold their level best (probe/bootstrap.py).
    mlp, learning_curve : whether an MLP is probed beside the ridge, and the probe repeated on fewer episodes.
    min_std : evaluation standard deviation in rad under which a joint is not testable.
    max_rows_per_episode : rows taken of each episode, evenly spread; all when left out.
    equal_rows : every data entry trains on as many rows as the smallest one has.
    """

    alphas: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default=[10.0 ** (step / 2) for step in range(-6, 11)], min_length=1, max_length=1000
    )
    folds: int = Field(default=5, ge=2)
    resamples: int = Field(default=2000, ge=100, le=1_000_000)
    refits: int = Field(default=200, ge=1, le=100_000)
    permutations: int = Field(default=200, ge=0, le=1_000_000)
    level: float = Field(default=0.95, gt=0, lt=1)
    interval: Literal["studentised", "bca", "percentile"] = "studentised"
    mlp: bool = True
    learning_curve: bool = True
    min_std: float = Field(default=0.02, gt=0, allow_inf_nan=False)
    max_rows_per_episode: int | None = Field(default=None, ge=2)
    equal_rows: bool = False

    @field_validator("alphas")
    @classmethod
    def _sorted(cls, value: list[float]) -> list[float]:
        return sorted(set(value))


class RankingSettings(Settings):
    """How action chunks are ranked (G1b).

    Parameters
    ----------
    candidates : K, the executed chunk among them.
    horizon : H, rows that a chunk spans; a row is an anchor frame, or each k-th one where rows are thinned.
    beside : further horizons that stand beside it.
    distractors : which ones `g1b.top1` means: `hard`, windows of the same episode, or `easy`, of others.
    """

    candidates: int = Field(default=16, ge=2, le=1024)
    horizon: int = Field(default=8, ge=1, le=1000)
    beside: list[Annotated[int, Field(ge=1, le=1000)]] = Field(default=[1, 4, 16], max_length=20)
    distractors: Literal["hard", "easy"] = "hard"


class Claim(Entry):
    """One claim of the paper. The study's verdict is that of its one primary claim.

    Parameters
    ----------
    theirs : what the paper reports, in words.
    not_proven : it is listed under "not proven" on the card.
    """

    id: Identifier
    text: NonEmpty
    primary: bool = False
    hypothesis: Text = ""
    theirs: Text = ""
    not_proven: bool = False


class BarEntry(Entry):
    """A bar, the claim that it decides, the paper's own number, and why the mark stands where it does."""

    id: Identifier
    claim: Identifier
    bar: NonEmpty
    theirs: Number | Text | None = None
    why: Text = ""

    @property
    def parsed(self) -> Bar:
        return parse_bar(self.bar)


class Study(Entry):
    """A whole study. Load one with `Study.load(folder)`."""

    schema_: Literal["jointprobe-study/1"] = Field(alias="schema")
    name: Identifier
    title: NonEmpty
    summary: Text = ""
    paper: Paper
    series: Series | None = None
    registration: Registration = Registration()
    seed: int = Field(ge=0, lt=2**63)
    data: dict[Name, Data] = Field(min_length=1)
    encoders: dict[EncoderName, EncoderEntry] = Field(min_length=1)
    probe: ProbeSettings = ProbeSettings()
    ranking: RankingSettings = RankingSettings()
    compute: Text = ""
    claims: list[Claim] = Field(min_length=1)
    bars: list[BarEntry] = Field(min_length=1)
    bars_note: Text = ""
    what_would_change_it: Text = ""

    _folder: Path = PrivateAttr(default=Path())

    @classmethod
    def load(cls, path: Path | str) -> Study:
        """Read and check a study.

        Parameters
        ----------
        path : the study's folder or its study.yaml.

        Raises
        ------
        StudyError : names the file, the line, the field, and the nearest valid key or name.
        """
        from bars.study_checks import check_study, first_error  # they speak of these models

        document = read_yaml(study_file(path))
        try:
            study = cls.model_validate(document.data)
        except ValidationError as error:
            raise first_error(document, error) from None
        study._folder = document.path.parent
        check_study(study, document)
        return study

    @staticmethod
    def sha256(path: Path | str) -> str:
        """SHA-256 of the bytes of study.yaml: what a freeze binds."""
        return hashlib.sha256(read_bytes(study_file(path), MAX_BYTES)).hexdigest()

    @property
    def folder(self) -> Path:
        """The folder that relative paths start from."""
        return self._folder

    @property
    def primary_claim(self) -> Claim:
        return next(claim for claim in self.claims if claim.primary)

    @property
    def first_data(self) -> str:
        """The data entry that measurement paths leave out."""
        return next(iter(self.data))

    def source(self, encoder: str, data: str) -> str:
        """`ENCODER` or `ENCODER/DATA`: how a measurement path starts."""
        return encoder if data == self.first_data else f"{encoder}/{data}"

    @cached_property
    def networks(self) -> dict[str, EncoderEntry]:
        """What is made and probed: the encoders, those of several seeds once a seed (`W1_s0`, `W1_s1`)."""
        return {made: one for name in self.encoders for made, one in networks_of(self.encoders, name).items()}

    def seeds_of(self, encoder: str) -> list[str]:
        """The networks, one a seed, over which an encoder's numbers are means; none where it is one."""
        made = list(networks_of(self.encoders, encoder))
        return made if made != [encoder] else []

    def bars_of(self, claim: str) -> list[BarEntry]:
        return [entry for entry in self.bars if entry.claim == claim]

    def needed_paths(self) -> list[str]:
        """Every measurement path that some bar names, once, paired differences included."""
        paths: dict[str, None] = {}
        for entry in self.bars:
            bar = entry.parsed
            paths.update(dict.fromkeys(bar.paths()))
            paths.update(dict.fromkeys(difference_path(a, b) for a, b in bar.differences()))
        return list(paths)

    def recording_folder(self, data: str) -> Path:
        return self._folder / self.data[data].recording

    def encoder_views(self, encoder: str, data: str | None = None) -> list[str]:
        """The views an encoder sees: its own, else those of the data entry it trains on or is given."""
        entry = self.networks.get(base_encoder(encoder)) or self.encoders[base_encoder(encoder)]
        return entry.views or self.data[entry.on or data or self.first_data].views

    def encoder_folder(self, encoder: str) -> Path | None:
        """Where an encoder's weights lie: `encoders/NAME` when made here, else its folder, if any."""
        encoder = base_encoder(encoder)
        entry = self.networks[encoder]
        if entry.load is None or entry.load.startswith("untrained:"):
            return self._folder / "encoders" / encoder
        kind, _, rest = entry.load.rpartition(":")
        if kind.startswith(("import", "torchvision", "onnx")):
            return None
        folder = self._folder / rest
        return None if kind == "transformers" and not folder.is_dir() else folder


def study_file(path: Path | str) -> Path:
    """The study.yaml of a study folder; a file is taken as it is."""
    path = Path(path)
    return path / STUDY_FILE if path.is_dir() else path
