"""A section of a page, or the definition of one function or option, with its anchors and links."""

import re
from dataclasses import dataclass, field

_MADE_ANCHOR = re.compile(r"^(index-.*|id\d+|id-[\d.]+|module-.*)$")
_NUMBER = re.compile(
    r"^((chapter|section|appendix|part)\s+)?([A-Z0-9]{1,2}(\.\d+)*[.:]\s+|\d+(\.\d+)+\.?\s+)", re.I
)
MAX_HEADING_CHARACTERS = 160


@dataclass
class Part:
    """A heading or a defined term, and the text up to the next one.

    Attributes:
        page: path of its page below the documentation's root, without the suffix.
        heading: words of the heading, without its number.
        parents: headings above it, the page's title first.
        anchors: anchors on the page that lead here.
        links: (page, anchor) of the links in its text, in order; the anchor is "" for a whole page.
        text: paragraphs, lists and tables, without code blocks.
        is_definition: whether it is a function, option or other term of a list of definitions.
        address: web address of its page.
        document: id of its document by `make_documents`; "" if it has too few words.
        link_texts: text of each link, in HTML.
    """

    page: str
    heading: str
    parents: list[str] = field(default_factory=list)
    anchors: list[str] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    text: str = ""
    is_definition: bool = False
    address: str = ""
    document: str = ""
    link_texts: list[str] = field(default_factory=list)

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
