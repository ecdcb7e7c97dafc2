"""YAML as a study may use it: plain data, one meaning, bounded; every value remembers its line.

PyYAML's safe loader reads YAML 1.1, in which the key `on` is True, `1e-3` is text, `010` is 8 and
`2026-10-29` is a date. Here the scalars are those of the YAML 1.2 core schema without `.nan` and `.inf`.
Aliases, tags, merge keys, keys that are not text and keys given twice are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bars.errors import StudyError
from bars.files import read_bytes

FieldPath = tuple[str | int, ...]

MAX_BYTES = 1 << 20
_MAX_DEPTH = 24
_INT = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


@dataclass(frozen=True)
class Document:
    """A parsed file: its data, its bytes, and the line (from 1) on which each field stands."""

    path: Path
    content: bytes
    data: dict[str, Any]
    lines: dict[FieldPath, int]

    def where(self, field: FieldPath) -> str:
        """`study.yaml, line 12, data.demos.train`, with the line of the nearest field that is there."""
        known = field
        while known and known not in self.lines:
            known = known[:-1]
        line = f", line {self.lines[known]}" if known in self.lines else ""
        return f"{self.path}{line}, {field_name(field)}" if field else f"{self.path}{line}"


def field_name(field: FieldPath) -> str:
    """`("bars", 1, "bar")` as `bars[1].bar`."""
    name = ""
    for part in field:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name


def read_yaml(path: Path, max_bytes: int = MAX_BYTES) -> Document:
    """Read one mapping from `path`; StudyError names the file and the line of whatever is wrong."""
    content = read_bytes(path, max_bytes, "a study is a folder that holds study.yaml")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StudyError(path, f"is not UTF-8 text (byte {error.start})", "save it as UTF-8") from None
    try:
        _refuse_events(path, text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(path, error) from None
    except yaml.YAMLError as error:
        raise StudyError(path, f"is not valid YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(root, yaml.MappingNode):
        raise StudyError(path, "holds no mapping of keys to values", "start it with `schema: ...`")
    lines: dict[FieldPath, int] = {}
    data = _value(path, root, (), lines)
    return Document(path, content, data, lines)


def _refuse_events(path: Path, text: str) -> None:
    """Look at the flat event stream first: nothing is built, and nothing recurses, before it is bounded."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        mark = event.start_mark
        where = f"{path}, line {mark.line + 1}" if mark is not None else str(path)
        if isinstance(event, yaml.AliasEvent):
            raise StudyError(where, f"the alias *{event.anchor} is not allowed", "write the value out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise StudyError(where, f"the tag {tag} is not allowed", "write plain values")
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            if depth > _MAX_DEPTH:
                raise StudyError(where, f"is nested more than {_MAX_DEPTH} levels deep")
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1


def _value(path: Path, node: yaml.Node, field: FieldPath, lines: dict[FieldPath, int]) -> Any:
    lines.setdefault(field, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_value(path, item, (*field, index), lines) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        return _scalar(path, node)
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        where = f"{path}, line {key_node.start_mark.line + 1}"
        key = _scalar(path, key_node) if isinstance(key_node, yaml.ScalarNode) else None
        if not isinstance(key, str):
            shown = (
                repr(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "that is a list or mapping"
            )
            raise StudyError(where, f"the key {shown} is not text", "put it in quotes")
        if key == "<<" and key_node.style is None:
            raise StudyError(where, "the merge key << is not allowed", "write the values out")
        below = (*field, key)
        if key in mapping:
            raise StudyError(where, f"the key {field_name(below)} is given twice", "keep one of them")
        lines[below] = key_node.start_mark.line + 1
        mapping[key] = _value(path, value_node, below, lines)
    return mapping


def _scalar(path: Path, node: yaml.ScalarNode) -> Any:
    text: str = node.value
    if node.style is not None:  # quoted, or a block: text whatever it looks like
        return text
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    try:
        if _INT.fullmatch(text):
            return int(text, 0) if text[:2] in ("0x", "0o") else int(text, 10)
        if _FLOAT.fullmatch(text):
            number = float(text)
            if number in (float("inf"), float("-inf")):
                raise ValueError
            return number
    except ValueError:
        where = f"{path}, line {node.start_mark.line + 1}"
        raise StudyError(where, f"the number {text[:40]} is too large") from None
    return text


def _syntax_error(path: Path, error: yaml.MarkedYAMLError) -> StudyError:
    mark = error.problem_mark or error.context_mark
    where = f"{path}, line {mark.line + 1}" if mark is not None else str(path)
    return StudyError(
        where, f"is not valid YAML: {error.problem or error.context}", "check its indentation and quotes"
    )
