"""Anchors: what the summaries of other objects say where they mention one, as links do on the web."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from glow_demo.entries import Entry

MAX_ANCHORS = 5

_MAX_ANCHOR_CHARS = 200
_NAME = re.compile(r"(?<![\w.])([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(\(| module\b)?")
# A bare word is a name and not English when it is called, or written as only code is: snake_case, CamelCase.
_CODE_WORD = re.compile(r"[A-Za-z0-9]_[A-Za-z0-9]|[a-z][A-Z]")


class NameTable:
    """Resolves a name in running text to the one object that it can mean."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._kinds = {entry.title: entry.kind for entry in entries}
        self._by_suffix: dict[str, list[str]] = defaultdict(list)
        for title in self._kinds:
            parts = title.split(".")
            for start in range(1, len(parts)):
                self._by_suffix[".".join(parts[start:])].append(title)

    def mentions(self, entry: Entry) -> set[str]:
        """Find the objects that an entry's summary names.

        Args:
            entry: The object whose summary is read.

        Returns:
            Titles of other objects; a word that may mean several objects means none.
        """
        found = {self._resolve(entry, *match.groups()) for match in _NAME.finditer(entry.summary)}
        return {title for title in found if title and title != entry.title}

    def _resolve(self, entry: Entry, name: str, follower: str | None) -> str | None:
        if follower == " module":
            return name if self._kinds.get(name) == "module" else None
        if "." in name:
            return name if name in self._kinds else self._only(name)
        is_called = follower == "("
        if not is_called and not _CODE_WORD.search(name):
            return None
        for scope in _scopes(entry.title):
            if f"{scope}{name}" in self._kinds:
                return f"{scope}{name}"
        title = self._only(name)
        # A word in snake_case is more often a parameter than some class's method of that name.
        is_member = title is not None and self._kinds[title] in ("method", "property")
        return None if is_member and not is_called else title

    def _only(self, suffix: str) -> str | None:
        titles = self._by_suffix.get(suffix, [])
        return titles[0] if len(titles) == 1 else None


def _scopes(title: str) -> Iterator[str]:
    """Prefixes under which a name used by `title` is looked up: its class, its module, the built-ins."""
    parts = title.split(".")
    for end in range(len(parts) - 1, 0, -1):
        yield ".".join(parts[:end]) + "."
    yield ""


def collect_anchors(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """Gather for each object the summaries of other objects that mention it.

    Args:
        entries: All objects; titles are unique.

    Returns:
        By title, at most `MAX_ANCHORS` different summaries in the order of the entries that make them,
        each at most 200 characters. Objects that nobody mentions are absent.
    """
    table = NameTable(entries)
    anchors: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        summary = entry.summary
        if len(summary) > _MAX_ANCHOR_CHARS:
            continue  # a cut one might lose the very name that makes it an anchor
        for title in table.mentions(entry):
            if len(anchors[title]) < MAX_ANCHORS and summary not in anchors[title]:
                anchors[title].append(summary)
    return dict(anchors)
