"""A training pair, the cleaning of texts, and the sections of HTML, XML and POD."""

import re
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser

MAX_WORDS = 220
MIN_WORDS = 15
MAX_QUERY_WORDS = 40
MIN_COMMON_SHARE = 0.18
# Datasets for testing only: pairs that name one of them are left out.
HELD_OUT = ("cranfield",)
COMMON_WORDS = frozenset(
    "a an the and or but if then than that this these those it its is are was were be been being has have had do "
    "does did will would can could may might must should shall not no nor of in on at by for from to with without "
    "into onto over under between through during before after above below up down out off as so such when where "
    "which who whom whose what how why all any both each few more most other some only own same too very you your "
    "he she they them their we our i his her one two also there here use used using".split()
)
_WORD = re.compile(r"[A-Za-z]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"'(]?[A-Z])")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|cf|vs|resp|Fig|Eq|No|Dr|Mr|St|ca|approx)|\b[A-Z])\.$")


@dataclass(frozen=True)
class Pair:
    """One document with the query that its author wrote for it."""

    id: str  # document id, with the source in front (`deb:bash`)
    query: str  # short description, heading or first sentence
    title: str  # name of the described object, not the query itself
    text: str  # the description, at most 220 words of plain English
    url: str = ""  # address of the object, or ""

    @property
    def source(self) -> str:
        """The part of the id before the first colon."""
        return self.id.partition(":")[0]


def make_pair(
    identifier: str, query: str, title: str, text: str, url: str = "", min_words: int = MIN_WORDS
) -> Pair | None:
    """Cleans a pair and decides whether it is suitable for training."""
    query = collapsed(query).rstrip(".:;, ")
    text = without_start(collapsed(without_drawings(text)), query)
    text = cut(text, MAX_WORDS)
    words = len(text.split())
    if not _WORD.search(query) or len(query.split()) > MAX_QUERY_WORDS or words < min_words:
        return None
    if not is_english(text) or any(name in f"{title} {query} {text}".lower() for name in HELD_OUT):
        return None
    return Pair(identifier[:200].replace(" ", "_"), query, collapsed(title), text, collapsed(url))


def collapsed(text: str) -> str:
    """Text with each run of white space replaced by one blank, and without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def without_drawings(text: str) -> str:
    """Text without lines of which less than half is letters: drawings and tables."""
    kept = []
    for line in text.splitlines():
        marks = [character for character in line if not character.isspace()]
        letters = sum(character.isalpha() for character in marks)
        if len(marks) < 4 or letters >= 0.5 * len(marks):
            kept.append(line)
    return "\n".join(kept)


def without_start(text: str, query: str) -> str:
    """Text without the query if it begins with it as a separate sentence or heading."""
    if query and text.lower().startswith(query.lower()):
        rest = text[len(query) :]
        start = rest.lstrip(" .:;,-\u2013\u2014")
        if not start or rest[0] in ".:;-" or (rest[0] == " " and start[0].isupper()):
            return start
    return text


def cut(text: str, max_words: int) -> str:
    """The first words of a text, up to the end of a sentence if one is in the last third."""
    words = text.split()
    if len(words) <= max_words:
        return text
    kept = " ".join(words[:max_words])
    end = max(kept.rfind(mark) for mark in (". ", "! ", "? "))
    return kept[: end + 1] if end > 0.67 * len(kept) else kept


def is_english(text: str) -> bool:
    """Whether the fraction of common English words exceeds that of other languages and lists."""
    words = [word.lower() for word in _WORD.findall(text)]
    return bool(words) and sum(word in COMMON_WORDS for word in words) >= MIN_COMMON_SHARE * len(words)


def first_sentence(text: str) -> tuple[str, str]:
    """Splits a collapsed text after its first sentence."""
    for match in _SENTENCE_END.finditer(text):
        if not _ABBREVIATION.search(text[: match.start()]):
            return text[: match.start()], text[match.end() :]
    return text, ""


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
    """A heading and the prose up to the next one."""

    heading: str  # the heading's words
    parents: list[str] = field(default_factory=list)  # the headings above it, the page's own title first
    text: str = ""  # paragraphs, with empty lines between them


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
