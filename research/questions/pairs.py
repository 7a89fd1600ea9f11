"""Training pairs from links in documentation: the text of a link is the query for its target section.

A FAQ question is also the query for the targets of its answer. Half of a section's link texts are its field `anchor`.
"""

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from research.folders import Record
from research.questions.collection import Documents, make_documents
from research.questions.faq import MAX_TARGETS, is_question
from research.questions.pages import html_parts
from research.questions.part import Part, plain_heading

__all__ = ["LinkPairs", "link_pairs"]

SHARE = Path("usr/share/doc")
FEWEST_WORDS, MOST_WORDS = 2, 12
MAX_SECTIONS_OF_A_TEXT = 3
"""A text with more target sections does not describe one ("for more information")."""
MAX_ANCHORS, MAX_PAGE_BYTES = 8, 1 << 21
LETTERS = 0.7
_OUT = re.compile(
    r"(^|/)(genindex\S*|py-modindex|search|changelog\S*|contents|copyright|index-all|overview-\S*|package-\S*|class-use|api|javadoc)(/|$)"
)
_NO_QUERY = re.compile(
    r"(?i)^(see|next|prev(ious)?|up|back|home|top|table|chapter|section|figure|appendix|example|part|page|click|read|this|that|these|the "
    r"(above|following|previous|next|section)|here|more|further|full|all|old|new|download|edit|view|source)\b|https?:|[_{}<>=\\|]|::|\(\)"
)


_OTHER_LANGUAGE = re.compile(r"^(?!en)[a-z]{2}([-_@][A-Za-z]+)?$")


class LinkPairs(NamedTuple):
    """Documents and queries of one package.

    Attributes:
        documents: `_id`, `title`, `anchor`, `text`.
        queries: text -> ids of the relevant documents.
    """

    documents: list[Record]
    queries: dict[str, list[str]]


def link_pairs(root: Path) -> Iterator[LinkPairs]:
    """Reads each directory of documentation below a root.

    Args:
        root: directory that holds `usr/share/doc`, unpacked with `dpkg -x`.
    """
    for folder in sorted(
        each for each in (root / SHARE).iterdir() if each.is_dir() and not each.is_symlink()
    ):
        parts = [part for page in _pages(folder) for part in page]
        if parts:
            yield _pairs(folder.name, parts)


def _pages(folder: Path) -> Iterator[list[Part]]:
    for directory, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if not _OTHER_LANGUAGE.match(name))
        for file in sorted(files):
            path = Path(directory, file)
            page = path.relative_to(folder).with_suffix("").as_posix()
            readable = path.suffix in (".html", ".htm") and not _OUT.search(page) and path.is_file()
            readable = readable and not _OTHER_LANGUAGE.match(Path(page).suffix.removeprefix("."))
            if readable and path.stat().st_size <= MAX_PAGE_BYTES:
                yield html_parts(path.read_text(encoding="utf-8", errors="replace"), page)


def _pairs(package: str, parts: Sequence[Part]) -> LinkPairs:
    found = make_documents(parts)
    texts = _link_texts(found, parts)
    sections = Counter(text for counts in texts.values() for text in counts)
    queries: dict[str, list[str]] = defaultdict(list)
    documents = []
    for identifier, document in found.by_id.items():
        if (
            not document.text.isascii()
            and sum(letter > "\u024f" for letter in document.text) > len(document.text) / 20
        ):
            continue
        name, anchors = f"link:{package}/{identifier}", []
        for text, _ in texts.get(identifier, Counter()).most_common():
            if sections[text] > MAX_SECTIONS_OF_A_TEXT:
                continue
            if _first_byte(text) % 2:
                anchors.append(text)
            else:
                queries[text].append(name)
        documents.append(
            {"_id": name, "title": document.title, "anchor": anchors[:MAX_ANCHORS], "text": document.text}
        )
    return LinkPairs(documents, dict(queries))


def _link_texts(found: Documents, parts: Sequence[Part]) -> dict[str, Counter[str]]:
    """Document -> number of links per text, including FAQ questions as texts."""
    texts: dict[str, Counter[str]] = defaultdict(Counter)
    for part in parts:
        for link, text in zip(part.links, part.link_texts, strict=True):
            target, words = found.addresses.get(link), plain_heading(text).strip(" .,:;\u201c\u201d\"'")
            if target and target != part.document and link[1] and _asks(words):
                texts[target][words] += 1
        targets = found.targets(part.links, whole_pages="$^")
        if is_question(part.heading) and len(targets) <= MAX_TARGETS:
            for target in targets:
                texts[target][part.heading] += 1
    return texts


def _asks(text: str) -> bool:
    letters = sum(letter.isalpha() or letter == " " for letter in text)
    return (
        FEWEST_WORDS <= len(text.split()) <= MOST_WORDS
        and letters >= LETTERS * len(text)
        and not _NO_QUERY.search(text)
    )


def _first_byte(text: str) -> int:
    return hashlib.sha256(text.lower().encode()).digest()[0]
