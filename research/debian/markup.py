"""Reads headings and the prose below them from HTML, DocBook and Mallard XML, and Perl's POD."""

import re
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser

from research.debian.pair import collapsed

_SECTION_TAGS = frozenset("book part chapter appendix article section page preface glossary".split())
_SECTION_TAG = re.compile(r"^(sect\d|refsect\d)$")
_BLOCKS = frozenset("p li dd para simpara blockquote".split())
_SKIPPED = frozenset(
    "script style pre table nav header footer head informaltable programlisting screen synopsis cmdsynopsis math svg "
    "funcsynopsis literallayout code-block figcaption figure mediaobject info indexterm button form select bookinfo "
    "articleinfo legalnotice textarea footnote noscript comment".split()
)
_SKIPPED_CLASS = re.compile(
    r"\b(sphinxsidebar|related|nav\w*|headerlink|highlight\S*|toc\w*|contents|header|footer|breadcrumbs?|sig|menu|menubar|howtoget\w*|docnav|"
    r"footnotes?|admonition-\S+|versionadded|versionchanged|deprecated|synopsis|index\S*|math|equation)\b"
)
_VOID = frozenset("br hr img meta link input area base col embed source track wbr".split())
_POD_CODE = re.compile(r"[A-Z](?:<<+\s(.*?)\s>>+|<([^<>]*)>)", re.DOTALL)
_POD_NAMED = {"lt": "<", "gt": ">", "verbar": "|", "sol": "/"}


@dataclass
class Section:
    """A heading and the prose up to the next one.

    Attributes:
        heading: the heading's words.
        parents: the headings above it, the page's own title first.
        text: paragraphs, with empty lines between them.
    """

    heading: str
    parents: list[str] = field(default_factory=list)
    text: str = ""


def html_sections(source: str) -> list[Section]:
    """Sections of an HTML page (h1 to h6; paragraphs, list items and definitions)."""
    found = _parsed(source, is_html=True)
    if match := re.search(r"<title[^>]*>(.*?)</title>", source, re.DOTALL | re.IGNORECASE):
        title = re.split(r" [—–|] | :: ", collapsed(unescape(match[1])))[0]
        for section in found:
            section.parents.insert(0, title)
    return found


def xml_sections(source: str) -> list[Section]:
    """Sections of a DocBook or Mallard file (`title` and paragraphs)."""
    return _parsed(source, is_html=False)


def pod_sections(source: str) -> list[Section]:
    """Sections of a POD file (=head1 to =head4; indented blocks are code)."""
    found: list[Section] = []
    levels: list[str] = []
    title = re.search(r"=head1 NAME\s+(.+)", source)
    page = [_pod_text(title[1])] if title else []
    for block in re.split(r"\n\s*\n", source):
        if match := re.match(r"=head([1-4])\s+(.*)", block, re.DOTALL):
            levels = [*levels[: int(match[1]) - 1], _pod_text(match[2])]
            found.append(Section(levels[-1], [*page, *levels[:-1]]))
        elif found and not block.startswith("=") and not block[:1].isspace():
            found[-1].text += _pod_text(block) + "\n\n"
    return found


def _pod_text(text: str) -> str:
    text = re.sub(r"E<(\w+)>", lambda match: _POD_NAMED.get(match[1], ""), re.sub(r"[XZ]<[^>]*>", "", text))
    for _ in range(3):  # codes hold codes
        text = _POD_CODE.sub(lambda match: (match[1] or match[2] or "").partition("|")[0], text)
    return text


def _parsed(source: str, *, is_html: bool) -> list[Section]:
    parser = _Reader(is_html=is_html)
    parser.feed(source)
    parser.close()
    return parser.found


class _Reader(HTMLParser):
    """Gathers sections; tolerates malformed HTML."""

    def __init__(self, *, is_html: bool) -> None:
        super().__init__(convert_charrefs=True)
        self._is_html = is_html
        self.found: list[Section] = []
        self._headings: dict[int, str] = {}
        self._depth = 0
        self._skipping: list[str] = []
        self._blocks = 0
        self._divisions: list[bool] = []  # of the open div elements: whether it is a paragraph
        self._level = 0
        self._heading: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            self._add(" ")
        elif self._skipping:
            self._skipping += [tag] if tag == self._skipping[0] else []
        elif level := self._heading_level(tag):
            self._level, self._heading = level, []
        elif tag in _SKIPPED or self._is_skipped(attrs):
            self._skipping = [tag]
        elif tag in _SECTION_TAGS or _SECTION_TAG.match(tag):
            self._depth += 1
        elif self._is_block(tag, attrs):
            self._blocks += 1
            self._add("\n\n")

    def handle_endtag(self, tag: str) -> None:
        if self._skipping:
            self._skipping = self._skipping[1:] if tag == self._skipping[0] else self._skipping
        elif self._level and self._heading_level(tag):
            self._open("".join(self._heading))
        elif tag in _SECTION_TAGS or _SECTION_TAG.match(tag):
            self._depth -= 1
        elif tag in _BLOCKS or (tag == "div" and self._divisions and self._divisions.pop()):
            self._blocks = max(0, self._blocks - 1)
            self._add("\n\n")

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self._add(data)

    def _add(self, data: str) -> None:
        if self._level:
            self._heading.append(data)
        elif self._blocks and self.found and not self._skipping:
            self.found[-1].text += data

    def _open(self, heading: str) -> None:
        above = {level: text for level, text in self._headings.items() if level < self._level}
        self._headings = {**above, self._level: heading}
        self.found.append(Section(heading, [above[level] for level in sorted(above)]))
        self._level = 0

    def _heading_level(self, tag: str) -> int:
        if self._is_html:
            return int(tag[1]) if re.fullmatch(r"h[1-6]", tag) else 0
        return max(1, self._depth) if tag == "title" else 0

    def _is_block(self, tag: str, attrs: list[tuple[str, str | None]]) -> bool:
        if tag == "div":
            self._divisions.append(("class", "para") in attrs)  # Publican's form of a paragraph
            return self._divisions[-1]
        return tag in _BLOCKS

    def _is_skipped(self, attrs: list[tuple[str, str | None]]) -> bool:
        return self._is_html and any(
            (name == "class" and _SKIPPED_CLASS.search(value or ""))
            or (name, value) == ("role", "navigation")
            for name, value in attrs
        )
