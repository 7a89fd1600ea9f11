"""Writes training pairs of link texts and their target sections, from documentation in packages of Debian.

python -m research links --root UNPACKED --out DIR
"""

import hashlib
import os
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import unquote, urlsplit

import typer

from glow.commands import package_app, say
from research.folders import Record, given_folder, write_folder
from research.prose import collapsed

_MADE_ANCHOR = re.compile(r"^(index-.*|id\d+|id-[\d.]+|module-.*)$")
_NUMBER = re.compile(
    r"^((chapter|section|appendix|part)\s+)?([A-Z0-9]{1,2}(\.\d+)*[.:]\s+|\d+(\.\d+)+\.?\s+)", re.I
)
MAX_HEADING_CHARACTERS = 160


@dataclass
class Part:
    """A heading or a defined term, and the text up to the next one."""

    page: str  # path of its page below the documentation's root, without the suffix
    heading: str  # words of the heading, without its number
    parents: list[str] = field(default_factory=list)  # headings above it, the page's title first
    anchors: list[str] = field(default_factory=list)  # anchors on the page that lead here
    links: list[tuple[str, str]] = field(default_factory=list)  # (page, anchor), in the order of its text
    text: str = ""  # paragraphs, lists and tables, without code blocks
    is_definition: bool = False  # whether it is a function, option or other term of a list of definitions
    section: str = ""  # its id; "" if it has too few words
    link_texts: list[str] = field(default_factory=list)  # text of each link, in HTML

    @property
    def title(self) -> str:
        """The heading path, outermost first, without duplicates."""
        return ": ".join(dict.fromkeys(title for title in (*self.parents, self.heading) if title))

    @property
    def anchor(self) -> str:
        """The author's anchor, or the heading in lower case with hyphens."""
        named = [anchor for anchor in self.anchors if not _MADE_ANCHOR.match(anchor)]
        return named[0] if named else slug(self.heading)


def slug(text: str) -> str:
    """Lower-case letters, digits and hyphens, at most 48 characters: `--no-edit <file>` gives `no-edit-file`."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:48].rstrip("-")


def plain_heading(text: str) -> str:
    """A heading without its number and repeated blanks."""
    return _NUMBER.sub("", " ".join(text.split()).rstrip("¶# ")).strip()[:MAX_HEADING_CHARACTERS]


_BLOCKS = frozenset("p li dd dt td th blockquote".split())
_SKIPPED = frozenset(
    "script style pre nav header footer head svg math button form select textarea noscript".split()
)
_SKIPPED_CLASS = re.compile(
    r"(?<![\w-])(sphinxsidebar\w*|related|nav\w*|headerlink|highlight\S*|toc(?!-backref)\S*|contents|header|footer|breadcrumbs?|"
    r"menu|menubar|viewcode-link|versionadded|versionchanged|deprecated|synopsis|field-list|footnotes?)(?![\w-])"
)
_SKIPPED_ID = re.compile(r"^(docs-(sidebar|top)\S*|sphinxsidebar|searchbox)$")
_SECTION_CLASS = re.compile(r"\b(section|sect\d|chapter|appendix|preface|part|refentry|refsect\d|target)\b")
_BOX_CLASS = re.compile(r"^(note|tip|warning|caution|important|sidebar)$")
"""The heading of such a box ("Note") does not open a section."""
_ANCHORED = frozenset("section span a dt dd p li table tr td h1 h2 h3 h4 h5 h6".split())
_VOID = frozenset("br hr img meta link input area base col embed source track wbr".split())
_DEFINITION_LEVEL = 7
"""The level of definitions, below h1 to h6."""


def html_parts(source: str, page: str) -> list[Part]:
    """The parts of one HTML page in order, including those without text."""
    reader = _Reader(page)
    reader.feed(source)
    reader.close()
    for part in reader.parts:
        part.text = collapsed(part.text)
        title = reader.parts[0].heading
        if part is not reader.parts[0] and part.parents[:1] != [
            title
        ]:  # of its sections' level in manual pages
            part.parents.insert(0, title)
    return reader.parts


class _Reader(HTMLParser):
    """Gathers parts. After a list of definitions, text belongs to the surrounding section."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[Part] = []
        self._page = page
        self._open: list[str] = []
        self._blocks = 0
        self._skipped_from = 0  # length of `_open` with the skipped element; 0: none
        self._box_from = 0  # the same for a box
        self._around: list[Part | None] = []  # the part that contains each open list
        self._current: Part | None = None
        self._linking: Part | None = None  # the part with the open link
        self._above: dict[int, str] = {}
        self._ids: list[str] = []  # since the last text or heading
        self._level = 0  # of the present heading
        self._heading: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag in _VOID:
            self._add(" ")
            return
        self._open.append(tag)
        self._blocks += tag in _BLOCKS
        if self._skipped_from:
            return
        kind = values.get("class", "")
        self._note_anchor(tag, kind, values.get("id") or values.get("name", ""))
        if _BOX_CLASS.match(kind) and not self._box_from:
            self._box_from = len(self._open)
        if tag in _SKIPPED or _SKIPPED_CLASS.search(kind) or _SKIPPED_ID.match(values.get("id", "")):
            self._skipped_from = len(self._open)
        else:
            self._enter(tag, values)
        if tag in _BLOCKS:
            self._add(" ")

    def _note_anchor(self, tag: str, kind: str, name: str) -> None:
        if name and (tag in _ANCHORED or _SECTION_CLASS.search(kind)):
            self._ids.append(name)

    def _enter(self, tag: str, values: dict[str, str]) -> None:
        """Begins a heading, a list of definitions or a link."""
        level = _heading_level(tag, values)
        if level and not (self._box_from and level < _DEFINITION_LEVEL):
            self._level, self._heading = level, []
        elif tag == "dl":
            self._around.append(self._current)
        elif tag == "dt" and self._around:  # a term without an address ends the definition before it
            self._current = self._around[-1] or self._current
        elif tag == "a" and values.get("href"):
            self._link(values["href"])

    def handle_endtag(self, tag: str) -> None:
        if tag not in self._open:
            return
        while self._open:
            closed = self._open.pop()
            self._blocks -= closed in _BLOCKS
            if self._box_from > len(self._open):
                self._box_from = 0
            if self._skipped_from > len(self._open):
                self._skipped_from = 0
            elif not self._skipped_from:
                self._close(closed)
            if closed == tag:
                return

    def handle_data(self, data: str) -> None:
        if not self._skipped_from:
            self._add(data)

    def _close(self, tag: str) -> None:
        if self._level and _heading_level(tag, {"id": "any"}):
            self._open_part("".join(self._heading))
        elif tag == "dl" and self._around:
            self._current = self._around.pop() or self._current
        elif tag == "a":
            self._linking = None
        elif tag in _BLOCKS:
            self._add(" ")

    def _add(self, data: str) -> None:
        if self._level:
            self._heading.append(data)
        elif self._blocks and self._current is not None:
            self._current.text += data
            if self._linking is self._current:
                self._linking.link_texts[-1] += data
            if data.strip():
                self._current.anchors += self._ids
                self._ids = []

    def _link(self, href: str) -> None:
        try:
            address = urlsplit(href)
        except ValueError:  # an example such as http://[HOST]:PORT
            return
        if self._current is None or self._level or address.scheme or address.netloc:
            return
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self._page), unquote(address.path)))
        page = path.removesuffix(".html").removesuffix(".en") if address.path else self._page
        self._current.links.append((page, unquote(address.fragment)))
        self._current.link_texts.append("")
        self._linking = self._current

    def _open_part(self, text: str) -> None:
        level, self._level = self._level, 0
        heading = plain_heading(text)
        is_definition = level == _DEFINITION_LEVEL
        last = self._current
        if is_definition and last is not None and last.is_definition and not last.text.strip():
            if last is not (self._around[-1] if self._around else None):  # two terms of one definition
                last.heading += f"; {heading}"
                last.anchors += self._ids
                self._ids = []
                return
        if is_definition:
            around = self._around[-1] if self._around else None
            parents = [*around.parents, around.heading] if around else []
        else:
            parents = [self._above[each] for each in sorted(self._above) if each < level]
            self._above = {each: title for each, title in self._above.items() if each < level} | {
                level: heading
            }
        self._current = Part(self._page, heading, parents, self._ids, is_definition=is_definition)
        self._ids = []
        self.parts.append(self._current)


def _heading_level(tag: str, values: dict[str, str]) -> int:
    """1 to 6 for headings, 7 for a term with its own address or an option of a manual page, else 0."""
    if re.fullmatch(r"h[1-6]", tag):
        return int(tag[1])
    is_term = tag == "dt" and ("id" in values or re.search(r"\b(sig|hdlist1)\b", values.get("class", "")))
    return _DEFINITION_LEVEL if is_term else 0


MIN_WORDS, MAX_WORDS = 8, 1000
"""Of a section: shorter ones hold only links or code."""
MIN_QUESTION_WORDS = 3
MAX_TARGETS = 6
"""If the section of a question links to more, the relevant one is unknown."""
_ASKS = re.compile(
    r"(?i)^\W*(how|why|what|where|when|which|who|whose|can|could|do|does|did|is|are|was|has|have|should|will|would|i|i[\u2019']m|my)\b"
)
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
    """Documents and queries of one package."""

    documents: list[Record]  # `_id`, `title`, `anchor`, `text`
    queries: dict[str, list[str]]  # text -> ids of the relevant documents


def link_pairs(root: Path) -> Iterator[LinkPairs]:
    """Reads each directory of documentation below a root."""
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
    sections, addresses = sections_of(parts)
    texts = _link_texts(parts, addresses)
    targets = Counter(text for counts in texts.values() for text in counts)
    queries: dict[str, list[str]] = defaultdict(list)
    documents = []
    for identifier, part in sections.items():
        body = " ".join(part.text.split()[:MAX_WORDS])
        if sum(letter > "\u024f" for letter in body) > len(body) / 20:
            continue
        name, anchors = f"link:{package}/{identifier}", []
        for text, _ in texts.get(identifier, Counter()).most_common():
            if targets[text] <= MAX_SECTIONS_OF_A_TEXT:
                # A text is either a query or in the document, which would give it away.
                if hashlib.sha256(text.lower().encode()).digest()[0] % 2:
                    anchors.append(text)
                else:
                    queries[text].append(name)
        documents.append({"_id": name, "title": part.title, "anchor": anchors[:MAX_ANCHORS], "text": body})
    return LinkPairs(documents, dict(queries))


def sections_of(parts: Sequence[Part]) -> tuple[dict[str, Part], dict[tuple[str, str], str]]:
    """Parts with enough words by id, and ids by page and anchor; equal texts under equal headings are one."""
    found: dict[str, Part] = {}
    addresses: dict[tuple[str, str], str] = {}
    ids: dict[tuple[str, str], str] = {}
    for part in parts:
        if len(part.text.split()) < MIN_WORDS:
            continue
        key = part.heading, part.text
        if key not in ids:
            name = identifier = f"{part.page}#{part.anchor}".replace(" ", "_")
            number = 1
            while identifier in found:
                number += 1
                identifier = f"{name}~{number}"
            ids[key], found[identifier] = identifier, part
        part.section = ids[key]
        for anchor in (*part.anchors, part.anchor):
            addresses.setdefault((part.page, anchor), ids[key])
    return found, addresses


def _link_texts(parts: Sequence[Part], addresses: Mapping[tuple[str, str], str]) -> dict[str, Counter[str]]:
    """Section -> number of links per text, including questions of a FAQ, which their answers' links lead from."""
    texts: dict[str, Counter[str]] = defaultdict(Counter)
    for part in parts:
        targets: dict[str, None] = {}
        for link, text in zip(part.links, part.link_texts, strict=True):
            target, words = addresses.get(link), plain_heading(text).strip(" .,:;\u201c\u201d\"'")
            if target and link[1]:
                targets[target] = None
                if target != part.section and _describes(words):
                    texts[target][words] += 1
        if is_question(part.heading) and len(targets) <= MAX_TARGETS:
            for target in targets:
                texts[target][part.heading] += 1
    return texts


def _describes(text: str) -> bool:
    letters = sum(letter.isalpha() or letter == " " for letter in text)
    is_long_enough = FEWEST_WORDS <= len(text.split()) <= MOST_WORDS
    return is_long_enough and letters >= LETTERS * len(text) and not _NO_QUERY.search(text)


def is_question(heading: str) -> bool:
    """A question mark, a question word, or a problem ("I cannot ...")."""
    is_cut = len(heading.split()) < MIN_QUESTION_WORDS or heading.endswith(("…", "..."))
    return not is_cut and ("?" in heading or _ASKS.match(heading) is not None)


def main(
    root: Annotated[list[Path], given_folder("holds usr/share/doc; may be given several times")],
    out: Annotated[Path, typer.Option(help="folder to write, in BEIR's layout")],
) -> None:
    """Writes training pairs of link texts and their target sections."""
    found = [each for folder in root for each in link_pairs(folder)]
    documents = [document for each in found for document in each.documents]
    judged: dict[str, list[str]] = defaultdict(list)
    for each in found:
        for text, sections in each.queries.items():
            judged[text] += sections
    ids = {text: f"q{number}" for number, text in enumerate(judged)}
    queries = ({"_id": key, "text": text} for text, key in ids.items())
    write_folder(out, documents, queries, {"train": {ids[text]: judged[text] for text in judged}})
    anchors = sum(len(document["anchor"]) for document in documents)
    say(f"{len(documents):,} documents with {anchors:,} anchors, {len(ids):,} queries")


app = package_app({"links": main}, "Training pairs of link texts and their target sections.")

if __name__ == "__main__":
    app()
