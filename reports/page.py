"""The card as one self-contained HTML page: inline CSS, inline SVG, nothing fetched, everything escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports.fields import SYMBOLS, VERIFY, card_fields, describe_data, describe_table, penalties, reasons
from reports.figures import Picture, draw_figures
from reports.marks import inline_svg
from reports.model import Card, FigureLine
from reports.numbers import behind, shorten

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class _Shown:
    line: FigureLine
    svg: Markup


def render_html(card: Card, pictures: Sequence[Picture] | None = None) -> str:
    """Lay a card out as one HTML file.

    Parameters
    ----------
    card : Card
    pictures : sequence of Picture, optional
        The card's figures where they are drawn already; drawn here otherwise.
    """
    drawn = draw_figures(card) if pictures is None else pictures
    shown = {p.line.name: _Shown(p.line, Markup(inline_svg(p.svg, p.line.name, p.line.alt))) for p in drawn}
    return (
        _environment()
        .get_template("card.html.j2")
        .render(
            card=card,
            css=Markup((_TEMPLATES / "card.css").read_text(encoding="utf-8")),
            fields=card_fields(card),
            reasons=reasons(card),
            pictures=shown,
            symbols=SYMBOLS,
            verify=VERIFY,
            described={line.name: describe_data(line) for line in card.data},
            captions={table.data: describe_table(table) for table in card.joint_tables},
        )
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["short"] = shorten
    environment.filters["penalties"] = penalties
    environment.filters["behind"] = lambda number: behind(number.n_rows, number.n_episodes)
    return environment
