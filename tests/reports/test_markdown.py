"""Escaping for Markdown: what was written is what is read, and tables keep their shape."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import render_markdown
from reports.markdown import block, code, inline

AWKWARD = st.text(alphabet=st.sampled_from("ab_*`[]()<>|\\#-+1. \n&;~!:\"'"), max_size=40)


@given(AWKWARD)
def test_inline_stays_on_one_line_and_in_its_cell(text):
    escaped = inline(text)
    assert "\n" not in escaped
    assert not re.search(r"(?<!\\)(\\\\)*\|", escaped)
    assert not re.search(r"<[A-Za-z/!?]", escaped)
    assert not re.search(r"(?<!\\)(?:\\\\)*\]\(", escaped)


@given(AWKWARD)
def test_inline_is_read_as_it_was_written(text):
    """Undoing backslash escapes and the two entities gives the text back (white space joined)."""
    read = re.sub(r"\\([\\`*\[\]<|~_])", r"\1", inline(text)).replace("&lt;", "<").replace("&amp;", "&")
    assert read == " ".join(text.split())


class Words(HTMLParser):
    """The text of rendered HTML; any tag beside a paragraph's is remembered."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text, self.tags = "", set[str]()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.text += data


@given(AWKWARD)
def test_a_renderer_reads_it_as_it_was_written(text):
    """An independent CommonMark renderer (the one rich brings along) sees the words and no markup."""
    markdown_it = pytest.importorskip("markdown_it")
    renderer = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])
    words = Words()
    words.feed(renderer.render(f"word {inline(text)} word"))
    assert words.tags == {"p"}
    assert words.text.split() == f"word {text} word".split()
    words = Words()
    words.feed(renderer.render(block(text)))
    assert words.tags <= {"p"}
    assert words.text.split() == text.split()


@given(AWKWARD)
def test_a_block_starts_no_heading_quote_or_list(text):
    for line in block(text).splitlines():
        assert not re.match(r"\s*(#{1,6}\s|>|[-+]\s|\d{1,9}[.)]\s|=+\s*$|-+\s*$)", line)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("wrist_flex of W1", "wrist_flex of W1"),
        ("_emphasis_", r"\_emphasis\_"),
        ("0.58 [0.51, 0.63]", "0.58 [0.51, 0.63]"),
        ("[a](javascript:alert(1))", r"[a\](javascript:alert(1))"),
        ("[x] done", r"\[x] done"),
        ("a < 0.8 and <b>", "a < 0.8 and &lt;b>"),
        ("&lt; is kept", "&amp;lt; is kept"),
        ("L = lambda * SIGReg", r"L = lambda \* SIGReg"),
        ("a | b", r"a \| b"),
    ],
)
def test_examples(text, escaped):
    assert inline(text) == escaped


def test_code_spans_hold_the_notation_of_bars():
    assert code("W1.r2.mean < 0.80") == "`W1.r2.mean < 0.80`"
    assert code("a ` b") == r"a \` b"


def test_every_table_has_as_many_cells_in_each_row(full):
    rows: list[int] = []
    tables = 0
    for line in [*render_markdown(full).splitlines(), ""]:
        if line.startswith("|"):
            rows.append(len(re.findall(r"(?<!\\)\|", line)))
        elif rows:
            assert len(set(rows)) == 1 and len(rows) > 2
            tables, rows = tables + 1, []
    assert tables == 12
