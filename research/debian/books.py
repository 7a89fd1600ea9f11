"""Pairs from installed books and manuals: a section's heading is the query for its first words."""

import gzip
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from research.debian.markup import Section, html_sections, pod_sections, xml_sections
from research.debian.pair import Pair, collapsed, cut, first_sentence, make_pair

SHARE = Path("usr/share")
MAX_SECTION_WORDS = 150
MIN_SECTION_WORDS = 25
MIN_SENTENCE_WORDS = 4
MAX_TITLE_CHARACTERS = 80
MAX_HEADINGS = 5
_READERS = {
    ".html": html_sections, ".htm": html_sections, ".pod": pod_sections,
    ".page": xml_sections, ".docbook": xml_sections, ".xml": xml_sections,
}  # fmt: skip
# Other languages, indices, extra files of packages, and change logs.
_OTHER_FOLDERS = re.compile(
    r"^(?!en)[a-z]{2}([-_@][A-Za-z]+)?$|^(locale|man|i18n|_static|_sources|demos|examples?|tests?|icons|mime|themes|"
    r"node_modules|nodejs|javascript|python3?|gir-1.0|glib-2.0|gcc|fontconfig|dbus-1|polkit-1|xml|api|javadoc)$"
)
_OTHER_FILES = re.compile(
    r"(?i)^(genindex|py-modindex|search|copyright|changelog|news|releasenotes|release-|fdl|gpl|legal|license|classindex)"
)
# These headings alone do not describe the section, so its first sentence is the query.
_GENERIC = frozenset(
    "introduction overview description summary notes note background preface abstract about remarks general purpose "
    "concept concepts details comments definition usage basics foreword".split()
)
# Below these are lists, code or names.
_REFUSED = re.compile(
    r"(?i)^(see also|examples?|references|bibliography|authors?|copyright|license|licen[cs]ing|keywords|synopsis|"
    r"parameters|arguments|calling sequences?|history|contents|table of contents|index|name|options|bugs|search|"
    r"(more )?related (topics|links|information)|returns?|activat(e|ing) (the )?\w+|legal notice|credits|acknowledge?ments|warning|tip|"
    r"important|caution|syntax|flags|changelog|used functions|navigation|what.s new.*|return value|source code|"
    r"how to call|exercises?|module contents|class inheritance diagram)$"
)
_BOILERPLATE = re.compile(
    r"^(Source code: \S+ |To access this command\.\.\. )|This help page needs further work.*?Help contents\. ?"
)
_NUMBER = re.compile(
    r"^((chapter|section|appendix|part)\s+)?([A-Z0-9]{1,2}(\.\d+)*[.:)]?\s+(?=\S)|[A-Z]?\d+(\.\d+)*\.?\s+)",
    re.I,
)


def book_pairs(root: Path, whole: bool = False) -> Iterator[Pair]:
    """Yields the sections of every HTML page, DocBook or Mallard file and POD file below `usr/share`.

    A heading that many sections have ("Compatibility") is replaced by the section's first sentence.

    Args:
        root: directory that holds `usr/share`.
        whole: whether to also yield the rest of a section, as passages whose first sentences are the queries.
    """
    share = root / SHARE
    found = [(path.relative_to(share), file_sections(_read(path), _kind(path))) for path in _files(share)]
    counts = Counter(_heading(section.heading).lower() for _, sections in found for section in sections)
    common = frozenset(heading for heading, count in counts.items() if count > MAX_HEADINGS)
    seen: set[str] = set()
    for path, sections in found:
        for number, section in enumerate(sections):
            pair = section_pair(section, book_name(path), f"book:{path}#{number}", common)
            rest = later_passages(section, pair) if pair and whole else ()
            for each in (pair, *rest):
                if each and each.text not in seen:
                    seen.add(each.text)
                    yield each


def file_sections(source: str, kind: str) -> list[Section]:
    """The sections of one file that have enough words.

    Args:
        source: the file's text.
        kind: suffix of its name, such as `.html`.
    """
    return [section for section in _READERS[kind](source) if len(section.text.split()) >= MIN_SECTION_WORDS]


def section_pair(
    section: Section, book: str, identifier: str, common: frozenset[str] = frozenset()
) -> Pair | None:
    """The pair of one section, or None if heading or text are not usable.

    Args:
        section: heading, headings above it and text.
        book: title for sections without a heading above them.
        identifier: document id.
        common: lower-case headings that are too general.
    """
    heading = _heading(section.heading)
    above = [_heading(parent) for parent in section.parents]
    titles = [
        title for title in above if _says_something(title, common) and heading.lower() not in title.lower()
    ]
    text = cut(_BOILERPLATE.sub("", collapsed(section.text)), MAX_SECTION_WORDS)
    if not heading or _REFUSED.match(heading):
        return None
    if not _says_something(heading, common):
        heading, text = first_sentence(text)
        if len(heading.split()) < MIN_SENTENCE_WORDS:
            return None
    return make_pair(identifier, heading, titles[-1] if titles else book, text, min_words=MIN_SECTION_WORDS)


def later_passages(section: Section, first: Pair) -> Iterator[Pair]:
    """Pairs from a section's text after its first words, which `first` has: a passage's first sentence is the query.

    Args:
        section: as for `section_pair`.
        first: the section's pair, for id and title.
    """
    text = collapsed(section.text)
    start = len(cut(text, MAX_SECTION_WORDS))
    number = 0
    while len(text) - start > MIN_SECTION_WORDS:
        passage = cut(text[start:].strip(), MAX_SECTION_WORDS)
        start = text.index(passage, start) + len(passage)
        number += 1
        query, rest = first_sentence(passage)
        title = f"{first.title}: {first.query}" if len(first.query) < MAX_TITLE_CHARACTERS else first.title
        pair = make_pair(f"{first.id}.{number}", query, title, rest, min_words=MIN_SECTION_WORDS)
        if pair and len(query.split()) >= MIN_SENTENCE_WORDS:
            yield pair


def book_name(path: Path) -> str:
    """Name of the book a file belongs to, from its path below `usr/share`."""
    parts = [part for part in path.parts[:-1] if part not in ("doc", "help", "C", "html", "share")]
    name = parts[0] if parts else path.stem
    return re.sub(r"-docs?\b|-common\b|[-\d.]+$", "", name).replace("-", " ")


def _says_something(heading: str, common: frozenset[str]) -> bool:
    lower = heading.lower()
    return bool(lower) and lower not in _GENERIC and lower not in common and not _REFUSED.match(heading)


def _heading(text: str) -> str:
    text = collapsed(text).strip("¶§# ")
    return _NUMBER.sub("", text).strip(" .:\u00b6") or text


def _files(share: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(share):
        folders[:] = sorted(name for name in folders if not _OTHER_FOLDERS.match(name))
        for name in sorted(names):
            path = Path(folder, name)
            kind = _kind(path)
            is_help = kind != ".xml" or "/help/" in folder
            if kind in _READERS and is_help and not _OTHER_FILES.match(name) and path.is_file():
                yield path


def _kind(path: Path) -> str:
    return path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix


def _read(path: Path) -> str:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode("utf-8", errors="replace")
