"""Markdown and HTML are documents; a page that takes too long, too much memory or crashes its parser is a reject by name."""

import json
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from glow.errors import InputError, RecordError
from glow_index_builder.input.files import file_lines
from glow_index_builder.input.parsers import PAGE_CPU_S, FileParser
from glow_index_builder.input.source import open_sources
from tests.index_builder.conftest import Run

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


def request_of(folder: Path, name: str, data: bytes) -> dict[str, Any]:
    path = folder / f"page{Path(name).suffix}"
    path.write_bytes(data)
    place = {"name": name, "path": str(path), "size": len(data)}
    return {**place, "modified": "", "base_url": "", "max_line_bytes": 1_000_000}


@pytest.fixture
def document(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def read(name: str, page: str | bytes) -> dict[str, Any]:
        data = page if isinstance(page, bytes) else page.encode()
        line, *_ = file_lines(request_of(tmp_path, name, data))
        assert isinstance(line, bytes)
        return dict(json.loads(line))

    return read


Read = Callable[..., dict[str, Any]]


def test_html_is_read_without_menus(document: Read) -> None:
    found = document("zoo/bees.html", HTML)
    assert (found["_id"], found["url"], found["title"]) == ("zoo/bees.html", "zoo/bees.html", "How bees live")
    assert found["anchor"] == ["Dance"]
    assert "Bees find home by the sun" in found["text"] and "one item" in found["text"]
    assert not [part for part in ("Home", "imprint", "var x") if part in found["text"]]


def test_markdown_is_read_whole(document: Read) -> None:
    found = document("guide/owls.md", MARKDOWN)
    assert found["title"] == "A guide to owls"
    assert found["anchor"] == ["Owls", "Food & nests"]
    assert found["text"].splitlines()[0] == "They hunt at night and a picture sleep by day."
    assert found["text"].splitlines()[1:] == ["who", "eats", "barn owl", "voles", "owl --list"]
    assert document("a.md", "# Only a title")["title"] == "Only a title"
    assert document("b/a-long_name.md", "No title")["title"] == "a long name"


def test_front_matter_becomes_fields_and_metadata(document: Read) -> None:
    matter = (
        "title: 'Owls: a guide'\ndate: 2024-01-02\ntags: [a, b]\ndraft: true\nanchor: {no: text}\nrank: 3"
    )
    found = document("b/a.md", f"---\n{matter}\n---\n# Owls")
    assert (found["title"], found["date"], found["tags"]) == ("Owls: a guide", "2024-01-02", ["a", "b"])
    assert (found["draft"], found["rank"], found["anchor"], found["folder"]) == (True, 3, ["Owls"], "b")
    damaged = document("a.md", "---\ntitle: Owls: a guide\ndate: soon\n---\n# Owls\n\nThey hunt.")
    assert (damaged["title"], damaged["text"]) == ("Owls: a guide", "They hunt.") and "date" not in damaged
    ruled = document("a.md", "---\nA text between rules.\n\n---\nAnd more.")
    assert ruled["text"].startswith("A text between")


def test_what_the_head_of_html_says_is_kept(document: Read) -> None:
    head = """<html lang="de"><head><meta charset="iso-8859-1"><title>Straße</title><meta name="date" content="2020-05-06">
    <meta name="description" content="Ein Weg"><meta name="keywords" content="köln, weg">
    <link rel="canonical" href="https://example.org/weg"></head><body><p>Die Straße in Köln ist lang.</p></body></html>"""
    expected = {
        "title": "Straße", "text": "Die Straße in Köln ist lang.", "url": "https://example.org/weg", "lang": "de",
        "description": "Ein Weg", "keywords": ["köln", "weg"], "date": "2020-05-06",
    }  # fmt: skip
    assert document("a.html", head.encode("latin-1")).items() >= expected.items()


@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.html"])
@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Die Straße in Köln – “breit”", "windows-1252"),
        ("Die Straße in Köln", "utf-8-sig"),
        ("Die Straße in Köln", "utf-16"),
        ("Пчёлы живут в улье и собирают мёд летом", "windows-1251"),
    ],
)
def test_an_encoding_is_recognized(document: Read, name: str, text: str, encoding: str) -> None:
    page = f"<html><body><p>{text}</p></body></html>" if name == "a.html" else text
    assert document(name, page.encode(encoding))["text"].replace("\n", " ") == text


def test_a_few_wrong_bytes_do_not_make_utf_8_another_encoding(document: Read) -> None:
    assert document("a.txt", "Die Straße in Köln".encode() + b"\xff")["text"] == "Die Straße in Köln\ufffd"


def test_a_folder_is_what_can_be_read_of_it(tmp_path: Path) -> None:
    given = {
        "zoo/bees.html": HTML, "INDEX.MD": MARKDOWN, "large.txt": "long words " * 500, "logo.png": "x", "zoo/x": "x",
        "zoo/.notes/a.md": "# x", ".hidden.md": "# x", "drafts/a.md": "# x", "zoo/old/b.md": "# x", "zoo/c.tmp.md": "# x",
        "zoo/more.csv": "_id,text\n1,ants\n", "zoo/package.json": "{}", "zoo/index/CURRENT": "x", "zoo/index/r.jsonl": "{}",
    }  # fmt: skip
    for name, text in given.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "zoo" / "loop").symlink_to(tmp_path)
    sources = open_sources(str(tmp_path), ("drafts", "zoo/old/", "*.tmp.md"), "https://wiki.example/")
    assert [each.name for each in sources] == ["INDEX.MD", "large.txt", "zoo/bees.html", "zoo/more.csv"]
    assert sources.skipped == {"link to a folder": 1, ".png": 1, "without ending": 1, ".json": 1}
    lines = [json.loads(line.data) for each in sources for line in each.lines(3_000)]
    assert [each["_id"] for each in lines] == [
        "INDEX.MD", "large.txt#part=1", "large.txt#part=2", "zoo/bees.html", "1"
    ]  # fmt: skip
    assert [each.get("url") for each in lines[2:4]] == [
        f"https://wiki.example/{name}" for name in ("large.txt", "zoo/bees.html")
    ]
    assert all(len(line.data) <= 3_000 for line in sources[1].lines(3_000))
    (tmp_path / "corpus.jsonl").write_text("{}")  # BEIR's layout is only its corpus
    assert [each.name for each in open_sources(str(tmp_path))] == ["corpus.jsonl"]


def test_a_folder_with_nothing_to_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(b"x")
    with pytest.raises(InputError, match=r"holds neither corpus.jsonl nor any other file of .*\.md"):
        open_sources(str(tmp_path))


OF_MARKDOWN = (
    "<!--\n", "![", "| a | b |\n|---|---|\n", "[a", "<![CDATA[", "[a](", "<", "title: a" + " " * 50, "*a ", "**", "`", "``` ",
    "> ", "- ", "1. ", "  - a\n", "[a]: b\n", "&", "&#", "\\", "~~", "_a_", "<a ", "<a b='", "<?", "<!A ", "](", "[](<",
    '![a](b "', "\t", "# ", "===\n", "a\n---\n", "***", "```\n", "|", "| |\n", "[[", "]]", "!", "<x@y", "http://a ", "\0", "a  \n",
)  # fmt: skip
OF_HTML = (
    "<div>", "<p>", "<table><tr><td>", "<b>", "<a href='", "<a>", "<!--", "<![CDATA[", "<script>", "<style>", "<h1>", "<h2>a</h2>",
    "<li>", "<ul><li>", "</div>", "</p>", "&", "&#", "<svg>", "<math>", "<template>", "<select><option>", "<form><input>", "<font>",
    "<time datetime='2020-01-01'>", "<meta name='a' content='b'>", "<title>", "<nav>", "<br>", "<q>", "<blockquote>",
    "<p class='post'>a", "<span>a</span>", "<td>", "<iframe>", "<base>", "<head>", "<body>", "<em><strong>", "<x-y>",
    "<p>2020-01-01 ", "<script type='application/ld+json'>[", "| ", "<pre>",
)  # fmt: skip


def hostile_page(number: int, size_bytes: int) -> tuple[str, bytes]:
    """Name and content: even ones are Markdown, odd ones HTML; small ones repeat one pattern, larger ones a mixture."""
    chance = random.Random(number)  # noqa: S311 - pages that can be made again
    patterns, kind = (OF_HTML, "html") if number % 2 else (OF_MARKDOWN, "md")
    mixture = "".join(chance.choice(patterns) for _ in range(chance.randint(1, 6)))
    unit = patterns[number // 2] if number // 2 < len(patterns) else mixture
    count = size_bytes // len(unit) + 1
    text = (
        unit * count,
        f"---\n{unit * count}\n---\n# a",
        (unit * 200 + "\n") * (count // 200 + 1),
        f"# a\n\n{unit * (count // 2)}b{unit * (count // 2)}",
    )[chance.randrange(4)]
    return f"page-{number}.{kind}", text.encode()[:size_bytes]


SIZE_BYTES = 1_000_000
REAL_BYTES = 300_000
PAGES = 200
FEW = range(0, PAGES, 13)
REST = [number for number in range(PAGES) if number not in FEW]
PROSE = "How do bees find home when the *sun* is hidden? They see [light](x.md) and dance.\n\n"
HTML_PROSE = "<p>How do bees find home when the <em>sun</em> is hidden? They see light and dance.</p>"


@pytest.fixture
def parser() -> Iterator[FileParser]:
    made = FileParser("pages")
    yield made
    made.close()


def read(parser: FileParser, folder: Path, name: str, data: bytes) -> bytes:
    line, *_ = parser.lines(request_of(folder, name, data))
    if isinstance(line, RecordError):
        raise line
    return line


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("numbers", [FEW, pytest.param(REST, marks=pytest.mark.slow)], ids=["few", "rest"])
def test_hostile_pages_end_in_time(parser: FileParser, tmp_path: Path, numbers: Sequence[int]) -> None:
    """Each page has its end, and all of them at most the time of the bound each; processor time, for the machine is busy."""
    before, faults = children_cpu_s(), []
    for number in numbers:
        started = time.monotonic()
        try:
            read(parser, tmp_path, *hostile_page(number, SIZE_BYTES))
        except RecordError as error:
            faults.append(str(error))
        assert time.monotonic() - started < 20 * PAGE_CPU_S, number
    parser.close()
    assert children_cpu_s() - before < (PAGE_CPU_S + 0.1) * len(numbers) + 2.0
    assert any("takes more" in each for each in faults), "no page is hostile any more"
    known = (f"its parser takes more than {PAGE_CPU_S:g} s", "no text: ", "not text: ")
    assert all(each.startswith(known) for each in faults), set(faults)


@pytest.mark.parametrize(
    "text",
    ["---\ntitle: a" + " " * 200_000 + "b\n---\n# c", "<div>\n" + "<" * 400_000],
    ids=["blanks in a title", "angle brackets"],
)
def test_front_matter_and_tags_take_linear_time(document: Read, text: str) -> None:
    """Of our own patterns; either took hours before."""
    started = time.process_time()
    document("a.md", text)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(("name", "unit"), [("a.md", PROSE), ("a.html", HTML_PROSE)])
def test_large_pages_of_prose_are_read(parser: FileParser, tmp_path: Path, name: str, unit: str) -> None:
    """Of a size that a machine a third as fast reads within the bound, too."""
    data = (unit * (REAL_BYTES // len(unit))).encode()
    lines = [line for line in parser.lines(request_of(tmp_path, name, data)) if isinstance(line, bytes)]
    assert sum(map(len, lines)) > 0.7 * len(data) * (1.0 if name == "a.md" else 0.1)


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
    assert "its parser takes more than 1 s" in rejects
    assert "the name, which becomes the id, is not UTF-8" in rejects


def test_a_parser_that_crashes_costs_its_page(parser: FileParser, tmp_path: Path) -> None:
    """No page is known that crashes it, so a signal from outside stands for one."""
    read(parser, tmp_path, "a.md", b"# Bees")
    assert parser._process is not None
    zygote = parser._process.pid
    (fork,) = Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()
    os.kill(int(fork), signal.SIGSEGV)
    with pytest.raises(RecordError, match=r"its parser crashed \(SIGSEGV\)"):
        read(parser, tmp_path, "b.md", b"# Ants")
    assert b"Owls" in read(parser, tmp_path, "c.md", b"# Owls")
    assert parser._process.pid == zygote


def test_links_out_of_a_folder_are_rejects(build: Run, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("# Secret\n\nNobody reads this.")
    folder = tmp_path / "pages"
    (folder / "more").mkdir(parents=True)
    for number in range(20):
        (folder / f"{number}.md").write_text("# Bees\n\nThey dance.")
    links = {
        "absolute.md": outside / "secret.md",
        "relative.md": "../outside/secret.md",
        "second.md": "relative.md",
        "within.md": "more/../1.md",
        "folder": outside,
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
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
