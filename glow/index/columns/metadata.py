"""A document's metadata as fields: dotted path -> values of three types.

`{"year": 2024, "place": {"city": "Bern"}, "authors": [{"name": "Ada"}, {"name": "Bo"}]}` has the fields `year`,
`place.city` and `authors.name`, the last with two values. null and empty lists and objects are not values.
"""

from collections.abc import Iterator, Mapping, Set
from typing import Any, Literal

__all__ = ["MAX_NAME_CHARACTERS", "VALUE_TYPES", "Scalar", "ValueType", "field_values", "pick", "type_of"]

Scalar = str | int | float | bool
ValueType = Literal["string", "number", "boolean", "date"]
"""Types of values; a field that only holds dates has its strings also as `date` values, which are instants."""
VALUE_TYPES: tuple[ValueType, ...] = ("string", "number", "boolean")
"""Types of values as output."""

MAX_NAME_CHARACTERS = 256
"""A longer path is ignored: unlimited names would let one document take all memory."""


def field_values(metadata: Mapping[str, Any]) -> Iterator[tuple[str, Scalar]]:
    """Yields each value with its field, in the document's order; a list's members one by one.

    Args:
        metadata: JSON values, nested no deeper than `glow.collection` allows.
    """
    for name, value in metadata.items():
        yield from _walk(name, value)


def pick(metadata: Mapping[str, Any], names: Set[str]) -> dict[str, Any]:
    """The fields of a document's metadata with the given names, nested as in the document.

    Args:
        metadata: as for `field_values`.
        names: dotted paths; missing fields are left out.
    """
    found: dict[str, Any] = {}
    for key, value in metadata.items():
        below = {name[len(key) + 1 :] for name in names if name.startswith(f"{key}.")}
        if key in names:
            found[key] = value
        elif below and (part := _pick(value, below)) is not None:
            found[key] = part
    return found


def _pick(value: Any, names: Set[str]) -> Any:
    if isinstance(value, list):
        return [part for item in value if (part := _pick(item, names)) is not None] or None
    return pick(value, names) or None if isinstance(value, dict) else None


def type_of(value: object) -> ValueType | None:
    """The type of a single value; None for null, lists and objects. true is not a number."""
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else None


def _walk(name: str, value: Any) -> Iterator[tuple[str, Scalar]]:
    if len(name) > MAX_NAME_CHARACTERS:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(f"{name}.{key}", item)
    elif isinstance(value, list):
        for item in value:
            yield from _walk(name, item)
    elif value is not None:
        yield name, value
