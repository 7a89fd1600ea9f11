"""Markdown and HTML are documents: title, headings, text; what is no page of either costs itself alone."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.collection import parse_document
from glow.errors import InputError, RecordError
from glow_index_builder.input import open_sources
from glow_index_builder.input.pages import page_line

HTML = """<html><head><title>How bees live</title></head><body><nav><a href="/">Home</a></nav><main>
<h1>How bees live</h1><p>Bees find home by the sun. They dance to tell others where flowers are, and how far.</p>
<h2>Dance</h2><p>The waggle dance tells it. Round dances are for near places.</p><ul><li>one item</li></ul></main>
<footer>Copyright, imprint</footer><script>var x = 1;</script></body></html>"""
MARKDOWN = """---
title: "A guide to owls"
tags: [a, b]
---
# Owls

They [hunt](https://example.org/hunt) at *night*
and ![a picture](owl.png) sleep by day.

## Food &amp; nests

| who | eats |
|---|---|
| barn owl | voles |

```sh
owl --list
```
"""


def document(name: str, text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page_line(name, text.encode()))
    return found


def test_html_is_read_without_menus() -> None:
    found = document("zoo/bees.html", HTML)
    assert (found["_id"], found["url"], found["title"]) == ("zoo/bees.html", "zoo/bees.html", "How bees live")
    assert found["anchor"] == ["Dance"]
    assert "Bees find home by the sun" in found["text"] and "one item" in found["text"]
    assert not {"Home", "imprint", "var x", "Dance\n"} & {
        part for part in ("Home", "imprint", "var x") if part in found["text"]
    }


def test_markdown_is_read_whole() -> None:
    found = document("guide/owls.md", MARKDOWN)
    assert found["title"] == "A guide to owls"
    assert found["anchor"] == ["Owls", "Food & nests"]
    assert found["text"].splitlines()[0] == "They hunt at night and a picture sleep by day."
    assert found["text"].splitlines()[1:] == ["who", "eats", "barn owl", "voles", "owl --list"]
    assert document("a.md", "# Only a title")["title"] == "Only a title"


@given(st.text(max_size=200), st.sampled_from(["a.md", "a.html"]))
def test_whatever_a_page_holds_it_is_a_document_or_a_reject(text: str, name: str) -> None:
    with suppress(RecordError):
        line = page_line(name, text.encode("utf-8", "replace"))
        assert parse_document(line, ["title", "text"], {}).id == name


def test_a_folder_of_pages_is_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "bees.html").write_text(HTML)
    (tmp_path / "index.md").write_text(MARKDOWN)
    (tmp_path / "logo.png").write_bytes(b"x")
    (tmp_path / "large.htm").write_text("x" * 5_000)
    sources = open_sources(str(tmp_path))
    assert [each.name for each in sources] == ["index.md", "large.htm", "zoo/bees.html"]
    lines = [line for each in sources for line in each.lines(3_000)]
    assert [line.is_too_long for line in lines] == [False, True, False]
    assert json.loads(lines[0].data)["_id"] == "index.md"
    (tmp_path / "more.jsonl").write_text("{}")  # lines are read, where there are any
    assert [each.name for each in open_sources(str(tmp_path))] == ["more.jsonl"]


def test_a_folder_with_nothing_to_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(b"x")
    with pytest.raises(InputError, match=r"holds neither corpus.jsonl nor any other file of .*\.md"):
        open_sources(str(tmp_path))
