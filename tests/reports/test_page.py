"""The HTML card: escaped, self-contained, well formed; what hostile text cannot do."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from report_studies import Made, small
from rich.console import Console

from reports import load_card, print_card, render_html, render_markdown, write_report

HOSTILE = "<script>document.title='pwned'</script><img src=x onerror=alert(1)>\"'&amp;</style></svg>{{ 7*7 }}"
VOID = {"meta", "br", "img", "link", "hr", "input", "path", "use", "rect"}


class Tags(HTMLParser):
    """Every tag and attribute, and whether tags close in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
            self.open.pop()

    def handle_data(self, data):
        self.text.append(data)


def parsed(html: str) -> Tags:
    tags = Tags()
    tags.feed(html)
    tags.close()
    assert not tags.open
    return tags


def hostile() -> Made:
    """A study whose every free text, joint name and fact is an attack."""
    made = small()
    made.joints = (f"pan {HOSTILE}", "lift | $x_1^2$ `code`", "roll\n\n# heading")
    study = made.study
    study.update(
        title=HOSTILE, summary=HOSTILE, compute=HOSTILE, bars_note=HOSTILE, what_would_change_it=HOSTILE
    )
    for key in ("title", "goal", "measured_by", "arxiv"):
        study["paper"][key] = HOSTILE
    study["paper"].update(
        authors=[HOSTILE], url="javascript:alert(1)", code="javascript:alert(1)//http://a.b"
    )
    study["series"].update(name=HOSTILE, previous="javascript:alert(1)", next=f"http://a.b/{HOSTILE}")
    study["registration"] = {"question": HOSTILE}
    study["encoders"]["W1"]["about"] = HOSTILE
    study["data"]["demos"].update(recording=HOSTILE, views=[HOSTILE])
    for claim in study["claims"]:
        claim.update(text=HOSTILE, hypothesis=HOSTILE, theirs=HOSTILE)
    for bar in study["bars"]:
        bar.update(theirs=HOSTILE, why=HOSTILE)
    made.checks = [{"name": HOSTILE, "state": HOSTILE, "message": HOSTILE, "remedy": HOSTILE}]
    made.provenance = {HOSTILE: HOSTILE, "host": {HOSTILE: HOSTILE}, "mismatches": [HOSTILE]}
    made.exploratory = True
    return made


def test_well_formed_and_self_contained(full_html):
    tags = parsed(full_html)
    names = {tag for tag, _ in tags.seen}
    assert names.isdisjoint(
        {"script", "iframe", "object", "embed", "form", "link", "img", "base", "foreignobject"}
    )
    for tag, attributes in tags.seen:
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        for name in ("href", "xlink:href"):
            address = attributes.get(name)
            assert address is None or re.match(r"https://|\.\./|#", address), address
    html = full_html
    style = html[html.index("<style>") : html.index("</style>")]
    assert "@import" not in style and "url(" not in style


def test_readable_on_a_phone_in_light_and_dark(full_html):
    html = full_html
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html
    assert "prefers-color-scheme: dark" in html and "max-width: 46rem" in html
    tags = parsed(html)
    tables = sum(tag == "table" for tag, _ in tags.seen)
    scrolls = sum(attributes.get("class") == "scroll" for _, attributes in tags.seen)
    assert tables == scrolls > 5  # every table scrolls by itself, never the page
    assert not re.search(r'<svg[^>]*\s(width|height)="', html)


def test_figures_are_inline_and_take_the_page_s_colours(full_html):
    tags = parsed(full_html)
    figures = [attributes for tag, attributes in tags.seen if tag == "svg"]
    assert len(figures) == 4
    assert all(figure["role"] == "img" and figure["aria-label"] for figure in figures)
    html = full_html
    svg = html[html.index("<svg") : html.rindex("</svg>")]
    assert "var(--series-1)" in svg and "var(--ink)" in svg
    assert not re.search(r"#(0072b2|1b1e23|fdfefe)", svg)
    ids = [attributes["id"] for _, attributes in tags.seen if attributes.get("id")]
    assert len(ids) == len(set(ids))
    targets = re.findall(r'(?:url\(|href=")#([^")]+)', svg)
    assert targets and set(targets) <= set(ids)


def test_hostile_text_stays_text(card_of):
    card = card_of(hostile())
    tags = parsed(render_html(card))
    names = {tag for tag, _ in tags.seen}
    assert names.isdisjoint({"script", "img", "iframe"})
    for _, attributes in tags.seen:
        assert not any(name.startswith("on") for name in attributes)
        assert not (attributes.get("href") or "").lower().startswith("javascript")
    text = "".join(tags.text)
    assert text.count(HOSTILE) > 20  # verbatim, wherever it stands


def test_hostile_text_in_markdown_and_terminal(card_of):
    card = card_of(hostile())
    markdown = render_markdown(card)
    assert not re.search(r"<(?!br>)[A-Za-z/!?]", markdown)
    assert "](javascript:" not in markdown
    assert not re.search(r"^# heading", markdown, re.MULTILINE)
    console = Console(width=100, record=True, file=io.StringIO())
    print_card(card, console)
    assert "<script>" in console.export_text()


def test_rich_markup_in_a_title_is_not_markup(card_of):
    made = small()
    made.study["title"] = "[bold red]loud[/bold red] [/] [link=http://a.b]x"
    console = Console(width=100, record=True, file=io.StringIO())
    print_card(card_of(made), console)
    assert made.study["title"] in console.export_text()


def test_a_browser_runs_nothing_of_it(tmp_path):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    folder = hostile().write(tmp_path / "lejepa")
    write_report(folder)
    command = [
        chromium,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    run = subprocess.run(
        [*command, "--virtual-time-budget=2000", "--dump-dom", (folder / "card.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if run.returncode != 0:
        pytest.skip(f"chromium does not start here: {run.stderr[-200:]}")
    title = re.search(r"<title>(.*?)</title>", run.stdout, re.DOTALL)
    assert title is not None and title[1] != "pwned" and "script" in title[1]
    assert "<script>" not in run.stdout
    assert "exploratory: bars were not frozen" in run.stdout


def test_the_same_page_twice(card_of, tmp_path):
    card = load_card(small().write(tmp_path / "again"))
    assert render_html(card) == render_html(card)
