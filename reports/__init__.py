"""The reports room: turns a judged study into a card that a sceptic can read and check.

`build_card` computes everything a card shows, once (`load_card`: from a study folder); `render_markdown`,
`render_html` and `print_card` only lay it out. `write_report` writes card.md, card.html and figures/.
Findings are derived from the numbers by rules; text from study.yaml is used verbatim, escaped.
The room imports `bars` and nothing else of ours.
"""

from reports.card import build_card, load_card, write_report
from reports.markdown import render_markdown
from reports.model import Card
from reports.page import render_html
from reports.terminal import print_card, print_verdict

__all__ = [
    "Card", "build_card", "load_card", "print_card", "print_verdict", "render_html", "render_markdown",
    "write_report",
]  # fmt: skip
