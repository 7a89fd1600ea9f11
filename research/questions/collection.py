"""Makes documents with stable ids from parts, and resolves links."""

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from research.questions.part import Part

__all__ = ["Document", "Documents", "free_id", "make_documents"]

MIN_WORDS = 8
"""Shorter sections hold only links or code."""
MAX_WORDS = 1000


@dataclass(frozen=True)
class Document:
    """One section or definition.

    Attributes:
        id: page and anchor, `library/os.path#os.path.join`.
        url: the section's address on the web.
        title: heading path.
        text: at most 1,000 words.
    """

    id: str
    url: str
    title: str
    text: str


@dataclass
class Documents:
    """The documents of a dataset and their addresses.

    Attributes:
        by_id: documents by id, in page order.
        addresses: (page, anchor) -> id; the anchor is "" for a page's first document.
    """

    by_id: dict[str, Document] = field(default_factory=dict)
    addresses: dict[tuple[str, str], str] = field(default_factory=dict)

    def targets(self, links: Iterable[tuple[str, str]], whole_pages: str = "") -> list[str]:
        """Distinct ids of linked documents in order; other links are left out.

        Args:
            links: (page, anchor); the anchor is "" for a whole page.
            whole_pages: pattern of the pages that a link may mean as a whole.
        """
        named = [link for link in links if link[1] or re.search(whole_pages, link[0])]
        return list(dict.fromkeys(self.addresses[link] for link in named if link in self.addresses))


def make_documents(parts: Sequence[Part]) -> Documents:
    """Makes a document of each part that has enough words; equal texts under equal headings become one.

    Args:
        parts: parts of all pages; sets their `document`. A part without a heading has only its page's title and address.
    """
    documents = Documents()
    ids: dict[tuple[str, str], str] = {}
    first: dict[tuple[str, str], str] = {}
    for part in parts:
        if len(part.text.split()) < MIN_WORDS:
            continue
        key = part.heading, part.text
        if key not in ids:
            ids[key] = free_id(f"{part.page}#{part.anchor}".replace(" ", "_"), documents.by_id)
            documents.by_id[ids[key]] = _document(part, ids[key])
        part.document = ids[key]
        first.setdefault((part.page, ""), ids[key])
        for anchor in (*part.anchors, part.anchor):
            documents.addresses.setdefault((part.page, anchor), ids[key])
    documents.addresses = {**first, **documents.addresses}
    return documents


def _document(part: Part, identifier: str) -> Document:
    url = f"{part.address}#{part.anchor.replace(' ', '-')}" if part.heading else part.address
    return Document(identifier, url, part.title, " ".join(part.text.split()[:MAX_WORDS]))


def free_id(name: str, taken: Container[str]) -> str:
    """The name, with the suffix `~2`, `~3` and so on if it is taken."""
    number = 1
    identifier = name
    while identifier in taken:
        number += 1
        identifier = f"{name}~{number}"
    return identifier
