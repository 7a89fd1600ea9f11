"""No page holds up a build: one that takes too long, too much memory or crashes its parser is a reject by name."""

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from glow.errors import RecordError
from glow_index_builder.input.child import PAGE_CPU_S
from glow_index_builder.input.pages import page_line
from glow_index_builder.input.parsers import PageParser
from tests.index_builder.conftest import Run
from tests.index_builder.hostile_pages import hostile_page

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
