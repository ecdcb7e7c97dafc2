"""The text side of a recording: `recording.yaml` and the lines of `manifest.jsonl` (see FORMATS.md)."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hardware.errors import InputError

EPISODE_SCHEMA = "jointprobe-episode/1"
MAX_YAML_BYTES = 1 << 20

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Unit = Literal["rad", "percent", "source"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Joint(_Model):
    """One logged joint. `lower` and `upper` are its limits in `unit`, where known."""

    name: Name
    unit: Unit = "rad"
    lower: float | None = None
    upper: float | None = None


class Actions(_Model):
    """What was sent to the arm: one name a column."""

    names: list[Name]
    unit: Unit = "rad"
    meaning: str = "target"


class View(_Model):
    """One camera. `fps` is the declared rate in Hz, sizes are in pixels."""

    name: Name
    width: int = Field(gt=0, le=16384)
    height: int = Field(gt=0, le=16384)
    fps: float = Field(gt=0, le=10_000)
    encoding: Literal["rgb8", "jpeg", "video"]


class RecordingInfo(_Model):
    """The content of `recording.yaml`."""

    schema_: Literal["jointprobe-recording/1"] = Field(default="jointprobe-recording/1", alias="schema")
    robot: str
    joints: list[Joint] = Field(min_length=1, max_length=256)
    actions: Actions | None = None
    views: list[View] = Field(default_factory=list, max_length=32)
    joints_hz: float = Field(gt=0, le=100_000)
    pairing: Literal["clock", "row"] = "clock"
    motion: Literal["demos", "walk", "observe", "teleop", "replay", "imported"]
    motion_settings: dict[str, Any] = Field(default_factory=dict)
    calibration: dict[str, Any] | None = None
    source: dict[str, Any] | None = None
    software: dict[str, str] = Field(default_factory=dict)
    host: dict[str, str] = Field(default_factory=dict)
    devices: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _names_are_unique(self) -> RecordingInfo:
        for what, names in (
            ("joint", [joint.name for joint in self.joints]),
            ("view", [view.name for view in self.views]),
        ):
            repeated = {name for name in names if names.count(name) > 1}
            if repeated:
                raise ValueError(f"{what} names must differ; repeated: {', '.join(sorted(repeated))}")
        return self

    @property
    def joint_names(self) -> list[str]:
        """Names of the joints, in column order."""
        return [joint.name for joint in self.joints]

    @property
    def view_names(self) -> list[str]:
        """Names of the views, in the order of recording.yaml."""
        return [view.name for view in self.views]

    def view(self, name: str) -> View:
        """The view called `name`; InputError lists the ones there are."""
        for view in self.views:
            if view.name == name:
                return view
        there = ", ".join(self.view_names) or "none: this recording holds joints only"
        raise InputError(f"view {name!r}", "is not in the recording", f"its views: {there}")

    def to_yaml(self) -> str:
        """The text of recording.yaml."""
        data = self.model_dump(by_alias=True, mode="json")
        if self.devices is None:  # as before the field existed: recordings without devices keep their bytes
            del data["devices"]
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)


class ManifestLine(_Model):
    """One sealed episode, as a line of manifest.jsonl."""

    episode: int = Field(ge=0)
    file: str = Field(pattern=r"^episodes/[0-9]{6,}\.h5$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)
    joint_rows: int = Field(ge=0)
    frames: dict[str, int]
    seconds: float
    faults: dict[str, int] = Field(default_factory=dict)


def load_yaml(path: Path, max_bytes: int = MAX_YAML_BYTES) -> Any:
    """Parse a YAML file from anybody: bounded, no aliases, no duplicate keys, plain types only."""
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise InputError(path, f"is {size:,} bytes, more than the {max_bytes:,} allowed for a YAML file")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(path, "does not exist") from None
    except UnicodeDecodeError as error:
        raise InputError(path, f"is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror}") from None
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"{path}, line {mark.line + 1}" if mark else path
        raise InputError(line, f"is not valid YAML: {getattr(error, 'problem', error)}") from None
    except RecursionError:
        raise InputError(path, "is nested too deeply") from None


class _StrictLoader(yaml.SafeLoader):
    """safe_load without aliases (they can expand without bound) and without silently repeated keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not allowed", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (str, int, float, bool)) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} appears twice", key_node.start_mark
                )
            if isinstance(key, (str, int, float, bool)):
                seen.add(key)
        return super().construct_mapping(node, deep)


def parse_model(model: type[BaseModel], data: Any, where: object) -> Any:
    """Validate `data` as `model`; an InputError names the file, the field, and the nearest valid key."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        errors = error.errors()
        first = next(
            (one for one in errors if one["type"] == "extra_forbidden"), errors[0]
        )  # a typo explains the rest
        field = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            inner = _model_at(model, first["loc"][:-1])
            keys = [info.alias or name for name, info in inner.model_fields.items()]
            near = difflib.get_close_matches(str(first["loc"][-1]), keys, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(keys)}"
            raise InputError(where, f"unknown key {field!r}", remedy) from None
        found = first.get("input")
        shown = "" if isinstance(found, dict) else f" (found {str(found)[:60]!r})"
        message = first["msg"].removeprefix("Value error, ")
        raise InputError(where, (f"field {field!r}: " if field else "") + message + shown) from None


def _model_at(model: type[BaseModel], path: Sequence[str | int]) -> type[BaseModel]:
    """The model of a nested mapping, whose keys are then the valid ones; the nearest that can be told."""
    models = [model]
    for part in path:
        tagged = [one for one in models if part in _constants(one)]  # which of a union, by its tag
        if tagged:
            models = tagged
            continue
        annotations = [
            info.annotation
            for one in models
            for name, info in one.model_fields.items()
            if part in (name, info.alias)
        ]
        below = [found for annotation in annotations for found in _models_in(annotation)]
        models = below or models
    return models[0]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _models_in(part)]


def _constants(model: type[BaseModel]) -> list[Any]:
    """Defaults of fields that have one value only, by which members of a union are told apart."""
    return [
        info.default for info in model.model_fields.values() if get_args(info.annotation) == (info.default,)
    ]
