"""Encoded JSON members of a response, which caches store and responses reuse."""

from collections.abc import Mapping
from typing import Any, Self

import orjson

from glow.contract import FoundHits, encode


class ResultFragment:
    """Encoded members (`index`, `query`, `hits`, `facets`) that depend only on index and request, sent without parsing."""

    __slots__ = ("members",)

    def __init__(self, members: bytes) -> None:
        self.members = members

    @classmethod
    def of(cls, found: FoundHits) -> Self:
        """The fragment of a result."""
        return cls(encode(found)[1:-1])

    def hits(self) -> list[dict[str, Any]]:
        """The decoded hits."""
        hits: list[dict[str, Any]] = orjson.loads(b"{%b}" % self.members)["hits"]
        return hits

    def enclose(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> bytes:
        """A JSON object of the members `before`, this fragment, and `after`; each has at least one."""
        return b"".join((orjson.dumps(before)[:-1], b",", self.members, b",", orjson.dumps(after)[1:]))
