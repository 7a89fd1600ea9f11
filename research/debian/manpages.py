"""Pairs from installed manual pages: the short description in the NAME line is the query for the DESCRIPTION."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

from research.debian.packages import LISTS, read_list, stanzas
from research.debian.pair import Pair, collapsed, make_pair
from research.debian.troff import sections

MANUALS = Path("usr/share/man")
_DPKG = Path("var/lib/dpkg/info")
_BODIES = ("DESCRIPTION", "OVERVIEW", "INTRODUCTION")
_NAME_LINE = re.compile(r"^(?P<names>[^ ].{0,200}?)\s+(?:\\?-+|\u2013|\u2014)\s+(?P<short>.+)$")
_PAGE = re.compile(r"(?P<name>.+)\.(?P<section>[1-8][a-z0-9]*)(?:\.gz)?$")


def manual_pairs(root: Path) -> Iterator[Pair]:
    """Yields the pairs of sections 1 to 8; skips links and pages that only refer to others.

    Pages of installed packages outside of the distribution are left out, because they have their vendors'
    licenses.

    Args:
        root: directory that holds `usr/share/man`.
    """
    foreign = _foreign_pages(root)
    seen: set[str] = set()
    for path in sorted((root / MANUALS).glob("man[1-8]/*")):
        match = _PAGE.match(path.name)
        if match is None or path.is_symlink() or f"/{path.relative_to(root)}" in foreign:
            continue
        pair = page_pair(_read(path), match["name"], match["section"])
        if pair and pair.text not in seen:
            seen.add(pair.text)
            yield pair


def page_pair(source: str, name: str, section: str) -> Pair | None:
    """The pair of one page, or None if it has no short description or too little text.

    Args:
        source: troff source.
        name: name of the page's file.
        section: section of the manual, with its suffix (`3pm`).
    """
    if source.lstrip().startswith(".so "):
        return None
    found = sections(source)
    match = _NAME_LINE.match(collapsed(found.get("NAME", "")))
    body = next((found[heading] for heading in _BODIES if found.get(heading, "").strip()), "")
    if match is None:
        return None
    title = match["names"].split(",")[0].strip() if len(match["names"].split(",")) > 3 else match["names"]
    url = f"https://manpages.debian.org/{name}.{section}"
    return make_pair(f"man:{name}.{section}", match["short"], title, body, url, min_words=20)


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
    except OSError:  # not a gzip file, or a damaged one
        return ""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _foreign_pages(root: Path) -> set[str]:
    """Pages owned by installed packages that are in none of apt's lists; empty without lists."""
    names: set[str] = set()
    for path in sorted((root / LISTS).glob("*_Packages*")):
        names.update(stanza.get("Package", "") for stanza in stanzas(read_list(path)))
    pages: set[str] = set()
    if not names:
        return pages
    for path in sorted((root / _DPKG).glob("*.list")):
        if path.stem.partition(":")[0] not in names:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            pages.update(line for line in lines if line.startswith(f"/{MANUALS}/"))
    return pages
