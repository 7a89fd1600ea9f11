"""The documentation is short and in plain English: limits of pages and words, sentences, and words that no page has."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FIRST = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")]
GUIDE, RESULTS, PAPERS, DECISIONS = (
    sorted((DOCS / folder).glob("*.md")) for folder in (".", "results", "papers", "decisions")
)
CODE_FOLDERS = (
    "glow",
    "service",
    "index_builder",
    "model_export",
    "demo",
    "scripts",
    "benchmarks",
    "research",
)
LONGEST = 25
"""Words of a sentence."""
BANNED = {
    r"rooms?": "package",
    r"slips?": "typo",
    r"read again": "re-rank",
    r"by words|by meaning": "lexical, dense",
    r"word tables?": "token embedding matrix",
    r"term tables?": "term statistics",
    r"lanes?": "worker pool",
    r"mates": "peer workers",
    r"judgements?": "relevance judgment",
    r"whoever": "a noun",
    r"goes on|go on": "continues, resumes",
    r"is told|are told": "receives",
    r"ours": "GLOW's",
}
CODE = re.compile(r"^ *```.*?^ *```[^\n]*$|(?<=\n\n)(?: {4}[^\n]*\n+)+", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
END = re.compile(r"(?<=[.!?])(?:\*{0,2}\s+|(?=\|))|\n\s*\n|\n\s*(?:[-*]|\d+\.)\s|\||\n#+ ")


def prose(page: str) -> str:
    """A page without code; a link is its text, and code in a sentence one word."""
    return LINK.sub(r"\1", re.sub(r"`[^`\n]+`", "code", CODE.sub("\n\n", page)))


def sentences(page: str) -> Iterator[str]:
    """The sentences of a page; a heading, a list's item and a table's cell are sentences, too."""
    for part in END.split("\n" + prose(page)):
        if words := part.split():
            yield " ".join(words)


@pytest.mark.parametrize("page", [*FIRST, *GUIDE, *RESULTS, *PAPERS, *DECISIONS], ids=lambda page: page.stem)
def test_a_page_is_in_plain_english(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = [f"{len(each.split())} words: {each}" for each in sentences(text) if len(each.split()) > LONGEST]
    for word, standard in BANNED.items():
        for match in re.finditer(rf"\b(?:{word})\b", prose(text), re.IGNORECASE):
            found.append(
                f"{match[0]!r} is {standard}: {prose(text)[match.start() - 40 : match.end() + 20]!r}"
            )
    assert not found, "\n" + "\n".join(found)


def test_docstrings_have_the_standard_terms() -> None:
    found = []
    for path in (path for folder in CODE_FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = prose(ast.get_docstring(node) or "")
                found += [
                    f"{path.name}: {word}" for word in BANNED if re.search(rf"(?i)\b(?:{word})\b", text)
                ]
    assert not found


@pytest.mark.parametrize(
    ("pages", "most", "words"),
    [(GUIDE, 25, 30_000), (RESULTS, 6, 10_400), (PAPERS, 5, 4_500), (DECISIONS, 23, 8_000)],
    ids=str,
)
def test_pages_are_few_and_short(pages: list[Path], most: int, words: int) -> None:
    counted = {page.name: len(page.read_text(encoding="utf-8").split()) for page in pages}
    assert len(counted) <= most and sum(counted.values()) <= words, counted


@pytest.mark.parametrize("page", PAPERS, ids=lambda page: page.stem)
def test_a_page_of_a_paper_is_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").split()) <= 900


def test_a_long_sentence_is_seen_and_code_is_not() -> None:
    page = f"# A\n\n{'one ' * 25}one.\n\n```sh\n{'one ' * 40}\n```\n\n| {'two ' * 20}| {'two ' * 20}|\n\nSee [a b](c). `d e f`.\n"
    assert [len(each.split()) for each in sentences(page)] == [1, 26, 20, 20, 3, 1]
