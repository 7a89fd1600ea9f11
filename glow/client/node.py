"""Reads JSON responses; errors name the place of the invalid value.

Unknown members are ignored: a newer service may send more than this client knows.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from glow.client.errors import InvalidResponseError

__all__ = ["Node"]


class Node:
    """A JSON object of a response, read by expected names and types.

    Args:
        value: the decoded value.
        place: JSON pointer to it, for error messages.

    Raises:
        InvalidResponseError: if it is not an object.
    """

    def __init__(self, value: object, place: str = "") -> None:
        if not isinstance(value, dict):
            raise _fault(place, "an object", value)
        self.value: dict[str, Any] = value
        self.place = place

    def __contains__(self, name: str) -> bool:
        return self.value.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        """A string member; the default if it is absent or null, an error without a default."""
        value = self.value.get(name, default)
        value = default if value is None else value
        if not isinstance(value, str):
            raise _fault(f"{self.place}/{name}", "a string", value)
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A number member."""
        return _number(self.value.get(name), default, f"{self.place}/{name}")

    def integer(self, name: str, default: int | None = None) -> int:
        """A number member, as an integer."""
        return int(self.number(name, default))

    def flag(self, name: str) -> bool:
        """Whether a member is true."""
        return self.value.get(name) is True

    def node(self, name: str) -> "Node":
        """An object member."""
        return Node(self.value.get(name), f"{self.place}/{name}")

    def optional(self, name: str) -> "Node | None":
        """An object member; None if it is absent or null."""
        return self.node(name) if name in self else None

    def mapping(self, name: str) -> Mapping[str, Any]:
        """An object member as received; empty if it is absent."""
        return self.node(name).value if name in self else {}

    def numbers(self, name: str) -> dict[str, float]:
        """A member that maps names to numbers, without nulls; empty if it is absent."""
        place = f"{self.place}/{name}"
        members = self.mapping(name).items()
        return {key: _number(value, None, f"{place}/{key}") for key, value in members if value is not None}

    def nodes(self, name: str, *, required: bool = False) -> Iterator["Node"]:
        """A member that is a list of objects; empty if it is absent and not required."""
        for place, value in enumerate(self.items(name, required=required)):
            yield Node(value, f"{self.place}/{name}/{place}")

    def items(self, name: str, *, required: bool = False) -> list[Any]:
        """A list member as received; empty if it is absent and not required."""
        value = self.value.get(name)
        if value is None and not required:
            return []
        if not isinstance(value, list):
            raise _fault(f"{self.place}/{name}", "a list", value)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A member that is a string or a list of strings; empty if it is absent."""
        value = self.value.get(name)
        values = [] if value is None else value if isinstance(value, list) else [value]
        for position, item in enumerate(values):
            if not isinstance(item, str):
                raise _fault(f"{self.place}/{name}/{position}", "a string", item)
        return tuple(values)

    def lists(self, name: str) -> dict[str, tuple[str, ...]]:
        """An object member that maps names to a string or a list of strings; each becomes a tuple."""
        if name not in self:
            return {}
        inner = self.node(name)
        return {key: inner.texts(key) for key in inner.value}


def _number(value: object, default: float | None, place: str) -> float:
    number = default if value is None else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise _fault(place, "a number", number)
    return number


def _fault(place: str, expected: str, found: object) -> InvalidResponseError:
    return InvalidResponseError(
        f"the response has {found!r:.80} at {place or 'its top'}, expected {expected}; "
        "check that the address is a GLOW service of a supported version"
    )
