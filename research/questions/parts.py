"""Parts of documentation with their links, read from HTML, Info and POD, and the packages that they come from."""

import gzip
import posixpath
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from glow.errors import InputError
from research.debian.text import collapsed

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
    address: str = ""  # web address of its page
    document: str = ""  # id of its document by `make_documents`; "" if it has too few words
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

    def is_below(self, other: "Part") -> bool:
        """Whether this part is a section or a definition within `other`."""
        above = [*other.parents, other.heading]
        return self.page == other.page and self.parents[: len(above)] == above


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


_NODE = re.compile(r"^File: [^\n]*?Node: ([^,\n]+)(?:[^\n]*?Up: ([^,\n]+))?[^\n]*\n", re.MULTILINE)
_HEADING = re.compile(r"^(\S[^\n]*)\n([=*\-.])\2{2,}\n", re.MULTILINE)
_MENU = re.compile(r"^\* Menu:.*", re.MULTILINE | re.DOTALL)
_REFERENCE = re.compile(r"\*[Nn]ote\s+([^:]+)::")


def info_parts(source: str, page: str) -> list[Part]:
    """A part for each node, with the headings of the nodes above it; without menus."""
    nodes: dict[str, Part] = {}
    for text in source.split("\x1f\n")[1:]:
        node = _NODE.match(text)
        if node is None:
            continue
        body = _MENU.sub("", text[node.end() :])
        heading = _HEADING.search(body)
        title = plain_heading(heading[1] if heading else node[1])
        above = nodes.get(collapsed(node[2] or ""))
        links = [(page, collapsed(name)) for name in _REFERENCE.findall(body)]
        words = _REFERENCE.sub(r"\1", body[heading.end() :] if heading else body)
        parents = [*above.parents, above.heading] if above else []
        nodes[collapsed(node[1])] = Part(page, title, parents, [collapsed(node[1])], links, collapsed(words))
    return list(nodes.values())


_LINK = re.compile(r"L<(<*)\s*(.*?)\s*\1>", re.DOTALL)
_CODE = re.compile(r"[A-Z](?:<<+\s(.*?)\s>>+|<([^<>]*)>)", re.DOTALL)
_NAMED = {"lt": "<", "gt": ">", "verbar": "|", "sol": "/"}
_ITEM_PAGES = ("perlfunc", "perlvar")
"""Pages whose items are functions and variables; elsewhere items are lists."""
_ITEM_LEVEL = 5


def pod_parts(source: str, page: str) -> list[Part]:
    """The parts of one POD file; its DESCRIPTION begins with the words of NAME, and is the target of the whole page."""
    found: list[Part] = []
    above: dict[int, str] = {}
    depth, is_pod, is_other = 0, False, False
    for block in re.split(r"\n[ \t]*\n", source):
        command = re.match(r"\s*=([a-z]\w*)\s*(.*)", block, re.DOTALL)
        if command:
            name, rest = command[1], command[2]
            is_pod = name != "cut"
            is_other = name == "begin" or (is_other and name != "end")
            depth += (name == "over") - (name == "back")
            level = int(name[4]) if re.fullmatch(r"head[1-4]", name) else 0
            if name == "item" and page in _ITEM_PAGES and depth == 1:
                level = _ITEM_LEVEL
            if level:
                _open(found, above, level, rest, page)
            elif name == "item" and found:
                _append(found[-1], rest)
        elif found and is_pod and not is_other and not block.lstrip("\n")[:1].isspace():
            _append(found[-1], block)
    return _without_name(found)


def _open(found: list[Part], above: dict[int, str], level: int, block: str, page: str) -> None:
    heading = collapsed(_plain(block))
    anchors = [heading, *re.findall(r"^[\w:]+", heading)[: level == _ITEM_LEVEL]]
    last = found[-1] if found else None
    if level == _ITEM_LEVEL and last and last.is_definition and not last.text:
        last.heading += f"; {heading}"
        last.anchors += anchors
        return
    for each in [each for each in above if each >= level]:
        del above[each]
    parents = [page, *(above[each] for each in sorted(above))]
    above[level] = heading
    part = Part(page, heading, parents, anchors, is_definition=level == _ITEM_LEVEL)
    found.append(part)


def _append(part: Part, block: str) -> None:
    part.links += [link for match in _LINK.finditer(block) if (link := _target(match[2], part.page))]
    part.text = f"{part.text} {collapsed(_plain(block))}".strip()


def _target(link: str, page: str) -> tuple[str, str] | None:
    """Page and heading of a link; None for a web address."""
    where = link.rpartition("|")[2] if not link.startswith(('"', "/")) else link
    if re.match(r"\w+:[^:\s]", where) or "(" in where.partition("/")[0]:
        return None
    name, _, heading = where.partition("/")
    return name.strip() or page, collapsed(_plain(heading)).strip('"')


def _plain(text: str) -> str:
    text = re.sub(r"E<(\w+)>", lambda match: _NAMED.get(match[1], ""), re.sub(r"[XZ]<[^>]*>", "", text))
    for _ in range(3):  # codes hold codes
        text = _CODE.sub(lambda match: _shown(match[1] or match[2] or ""), text)
    return text


def _shown(inside: str) -> str:
    shown, bar, _ = inside.partition("|")
    return shown if bar and shown else inside


def _without_name(found: list[Part]) -> list[Part]:
    if len(found) < 2 or found[0].heading != "NAME":
        return found
    name, *rest = found
    described = sorted(
        (part for part in rest if part.text and not part.is_definition),
        key=lambda part: part.heading != "DESCRIPTION",
    )
    if described:
        described[0].text = f"{name.text}. {described[0].text}"
        described[0].anchors += ["NAME", ""]
    for part in rest:
        part.parents[0] = name.text or name.page
    return rest


_READERS = {".html": html_parts, ".pod": pod_parts, ".pm": pod_parts, ".info.gz": info_parts}
_ALWAYS_OUT = r"(^|/)(genindex\S*|py-modindex|search|changelog|contents|glossary|copyright)$|(^|/)_(modules|sources|static|images)/"


@dataclass(frozen=True)
class Source:
    """One package's documentation."""

    package: str  # name in Debian
    version: str  # the version that the questions were written for
    folder: str  # directory of its pages in the unpacked package
    base: str  # web address of the documentation
    licence: str  # license of the texts, from the package's copyright file
    prefix: str = ""  # prefix of its pages, if a dataset has several packages
    leave_out: str = "$^"  # pattern of pages to skip, in addition to indices and change logs


@dataclass(frozen=True)
class Collection:
    """A dataset of questions."""

    name: str  # name of the dataset
    sources: list[str]  # keys of `SOURCES`
    pages: str = ""  # pattern of the pages with the questions of a FAQ; "": the questions are in `howto/`
    own_answers: bool = True  # whether an answer without links is a document itself
    whole_pages: str = ""  # pattern of pages that a link without an anchor may mean


_TABLES = tomllib.loads((Path(__file__).parent / "sources.toml").read_text(encoding="utf-8"))
SOURCES = {name: Source(**values) for name, values in _TABLES["source"].items()}
COLLECTIONS = [Collection(**values) for values in _TABLES["collection"]]


def read_parts(source: Source, packages: Path) -> Iterator[Part]:
    """Every part of a package, page by page in name order."""
    out = re.compile(f"{source.leave_out}|{_ALWAYS_OUT}")
    folder = packages / source.package / source.folder
    if not folder.is_dir():
        raise InputError(
            f"{folder} is missing: apt-get download {source.package}={source.version}; "
            f"dpkg -x {source.package}_*.deb {packages / source.package}"
        )
    for path in sorted(path for path in folder.rglob("*") if path.name.endswith(tuple(_READERS))):
        suffix = next(each for each in _READERS if path.name.endswith(each))
        name = path.relative_to(folder).as_posix().removesuffix(suffix)
        page = name.replace("/", "::") if suffix in (".pod", ".pm") else source.prefix + name
        if out.search(page) or not path.is_file():
            continue
        data = gzip.decompress(path.read_bytes()) if suffix.endswith(".gz") else path.read_bytes()
        for part in _READERS[suffix](data.decode("utf-8", errors="replace"), page):
            part.address = source.base + (f"{name}.html" if suffix == ".html" else page)
            yield part
