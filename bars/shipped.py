"""The study templates that ship with the room: `bars/templates/*.yaml`."""

from __future__ import annotations

from importlib import resources

from bars.errors import StudyError
from bars.study_checks import nearest


def template_names() -> list[str]:
    """Names of the templates that ship."""
    folder = resources.files("bars") / "templates"
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


def template(name: str) -> str:
    """The text of a shipped study template, ready to be written as study.yaml."""
    names = template_names()
    if name not in names:
        raise StudyError(f"template {name!r}", "does not ship with jointprobe", nearest(name, names))
    return (resources.files("bars") / "templates" / f"{name}.yaml").read_text(encoding="utf-8")
