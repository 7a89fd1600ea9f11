"""Markdown and HTML are documents; a page that takes too long, too much memory or crashes its parser is a reject by name."""

import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.collection import parse_document
from glow.errors import InputError, RecordError
from glow_index_builder.input import open_sources
from glow_index_builder.input.child import PAGE_CPU_S
from glow_index_builder.input.pages import page_line
from glow_index_builder.input.parsers import PageParser
from tests.index_builder.conftest import Run
from tests.index_builder.hostile_pages import hostile_page

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


SIZE_BYTES = 1_000_000
REAL_BYTES = 300_000
PAGES = 200
FEW = range(0, PAGES, 7)
REST = [number for number in range(PAGES) if number not in FEW]
PROSE = "How do bees find home when the *sun* is hidden? They see [light](x.md) and dance.\n\n"
HTML_PROSE = "<p>How do bees find home when the <em>sun</em> is hidden? They see light and dance.</p>"


@pytest.fixture
def parser() -> Iterator[PageParser]:
    made = PageParser()
    yield made
    made.close()


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def require_bounded(parser: PageParser, numbers: Iterator[int] | list[int] | range) -> None:
    """Each page has its end, and all of them at most the time of the bound each; processor time, for the machine is busy."""
    before, faults = children_cpu_s(), []
    for number in numbers:
        started = time.monotonic()
        try:
            parser.line(*hostile_page(number, SIZE_BYTES))
        except RecordError as error:
            faults.append(str(error))
        assert time.monotonic() - started < 20 * PAGE_CPU_S, number
    parser.close()
    assert children_cpu_s() - before < (PAGE_CPU_S + 0.1) * len(list(numbers)) + 2.0
    assert faults, "no page is hostile any more"
    assert all(f"its parser takes more than {PAGE_CPU_S:g} s" in each for each in faults)


def test_hostile_pages_end_in_time(parser: PageParser) -> None:
    require_bounded(parser, FEW)


@pytest.mark.slow
def test_more_hostile_pages_end_in_time(parser: PageParser) -> None:
    require_bounded(parser, REST)


@pytest.mark.parametrize(
    "text",
    ["---\ntitle: a" + " " * 200_000 + "b\n---\n# c", "<div>\n" + "<" * 400_000],
    ids=["blanks in a title", "angle brackets"],
)
def test_front_matter_and_tags_take_linear_time(text: str) -> None:
    """Of our own patterns; either took hours before."""
    started = time.process_time()
    page_line("a.md", text.encode())
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(("name", "unit"), [("a.md", PROSE), ("a.html", HTML_PROSE)])
def test_large_pages_of_prose_are_read(parser: PageParser, name: str, unit: str) -> None:
    """Of a size that a machine a third as fast reads within the bound, too."""
    data = (unit * (REAL_BYTES // len(unit))).encode()
    assert len(parser.line(name, data)) > 0.7 * len(data) * (1.0 if name == "a.md" else 0.1)


def test_a_hostile_page_is_a_reject_by_name(build: Run, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    for number in range(9):
        (folder / f"{number}.md").write_text("# Bees\n\nThey dance.")
    (folder / "slow.md").write_bytes(b"![" * 400_000)
    (folder / os.fsdecode(b"\xff.md")).write_text("# A name that is no id")
    done = build(folder)
    assert done.exit_code == 0, done.stderr
    assert "9 documents" in done.stdout and "2 lines rejected" in done.stdout
    rejects = next((tmp_path / "index").glob("*/rejects.jsonl")).read_text()
    assert "slow.md is not a page: its parser takes more than 1 s" in rejects
    assert "its name, which becomes its id, is not UTF-8" in rejects


def test_a_parser_that_crashes_costs_its_page(parser: PageParser) -> None:
    """No page is known that crashes it, so a signal from outside stands for one."""
    parser.line("a.md", b"# Bees")
    assert parser._process is not None
    zygote = parser._process.pid
    (fork,) = Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()
    os.kill(int(fork), signal.SIGSEGV)
    with pytest.raises(RecordError, match=r"b\.md is not a page: its parser crashed \(SIGSEGV\)"):
        parser.line("b.md", b"# Ants")
    assert b"Owls" in parser.line("c.md", b"# Owls")
    assert parser._process.pid == zygote


def test_links_out_of_a_folder_are_rejects(build: Run, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("# Secret\n\nNobody reads this.")
    folder = tmp_path / "pages"
    (folder / "more").mkdir(parents=True)
    for number in range(20):
        (folder / f"{number}.md").write_text("# Bees\n\nThey dance.")
    links: dict[str, Callable[[], str | Path]] = {
        "absolute.md": lambda: outside / "secret.md",
        "relative.md": lambda: "../outside/secret.md",
        "second.md": lambda: "relative.md",
        "within.md": lambda: "more/../1.md",
        "folder": lambda: outside,
    }
    for name, target in links.items():
        (folder / name).symlink_to(target())
    done = build(folder)
    assert done.exit_code == 0, done.stderr
    assert "21 documents" in done.stdout
    assert "3 lines rejected: 3 x a link out of the input directory" in done.stdout
    version = next(path for path in (tmp_path / "index").iterdir() if (path / "manifest.json").is_file())
    assert not any(b"Nobody" in path.read_bytes() for path in version.rglob("*") if path.is_file())
    for path in folder.glob("*.md"):
        if not path.is_symlink():
            path.unlink()
    done = build(folder)
    assert done.exit_code == 2 and "only links out of it" in done.stderr
