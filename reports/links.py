"""Links of a card: addresses that are safe to follow, and texts that stay texts."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from bars.study import Paper, Study
from reports.model import Link, SeriesPlace

_ARXIV = re.compile(
    r"(?:arxiv:)?\s*([0-9]{4}\.[0-9]{4,5}(?:v[0-9]+)?|[a-z-]+(?:\.[A-Z]{2})?/[0-9]{7})", re.IGNORECASE
)
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ADDRESS = re.compile(r"[!#-;=?-~]+")  # printable ASCII without spaces, quotes and angle brackets
_MARKDOWN = str.maketrans({"(": "%28", ")": "%29", "|": "%7C", "\\": "%5C"})


def link(text: str) -> Link:
    """A link where the text is a plain http(s) address; the bare text otherwise (`javascript:` too)."""
    if not _ADDRESS.fullmatch(text):
        return Link(text)
    try:
        parts = urlsplit(text)
    except ValueError:
        return Link(text)
    safe = parts.scheme in ("http", "https") and parts.netloc
    return Link(text, text.translate(_MARKDOWN)) if safe else Link(text)


def paper_link(paper: Paper) -> Link:
    """The paper's page on arXiv where it has one, else its address."""
    match = _ARXIV.fullmatch(paper.arxiv.strip())
    if match:
        return Link(f"arXiv {match[1]}", f"https://arxiv.org/abs/{match[1]}")
    return link(paper.url) if paper.url else Link(paper.arxiv)


def series_place(study: Study, folder: Path) -> SeriesPlace | None:
    """Where the card stands in its series; a neighbour is linked where its card lies beside this study."""
    series = study.series
    if series is None:
        return None

    def neighbour(name: str) -> Link | None:
        if not name:
            return None
        if _FOLDER.fullmatch(name) and (folder.resolve().parent / name / "card.html").is_file():
            return Link(name, f"../{name}/card.html")
        return link(name)

    return SeriesPlace(
        series.name, series.position, series.of, neighbour(series.previous), neighbour(series.next)
    )
