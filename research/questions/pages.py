"""Reads sections and definitions of an HTML page with their anchors and links, which `research.debian.markup` omits."""

import posixpath
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

from research.debian.pair import collapsed
from research.questions.part import Part, plain_heading

__all__ = ["html_parts"]

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
    """The parts of one HTML page in order, including those without text.

    Args:
        source: the page.
        page: its path below the documentation's root, without the suffix; links are resolved against it.
    """
    reader = _Reader(page)
    reader.feed(source)
    reader.close()
    for part in reader.parts:
        part.text = collapsed(part.text)
        title = reader.parts[0].heading
        if part is not reader.parts[0] and part.parents[:1] != [
            title
        ]:  # a manual page's title has the same level as its sections
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
