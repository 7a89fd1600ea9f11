"""An answer's members as JSON, made once and put into every answer that holds them."""

from collections.abc import Mapping
from typing import Any, Self

import orjson

__all__ = ["ResultFragment"]


class ResultFragment:
    """Members of a JSON object (`index`, `query`, `hits`, `facets`) that depend on index and request alone.

    What differs between two answers of the same search (its id, its times) goes around it by `enclose`, so that a cached
    fragment is never parsed again to be sent. Nobody else joins or cuts these bytes.

    Args:
        members: JSON members without the braces around them, UTF-8.
    """

    __slots__ = ("members",)

    def __init__(self, members: bytes) -> None:
        self.members = members

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """A fragment with these members; at least one."""
        return cls(orjson.dumps(values)[1:-1])

    def hits(self) -> list[dict[str, Any]]:
        """The hits as they were sent."""
        hits: list[dict[str, Any]] = orjson.loads(b"{%b}" % self.members)["hits"]
        return hits

    def enclose(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> bytes:
        """A JSON object of its members between others; `before` and `after` have one or more each."""
        return b"".join((orjson.dumps(before)[:-1], b",", self.members, b",", orjson.dumps(after)[1:]))
