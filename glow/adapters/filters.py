"""Converts frameworks' filters to the service's filters."""

from typing import Any

from glow.errors import ConfigError

__all__ = ["comparison"]

_CONDITIONS = {"==": "eq", "in": "in", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_NEGATED = {"!=": "==", "nin": "in", "not in": "in"}


def comparison(field: str, operator: str, value: Any) -> dict[str, Any]:
    """A service filter that compares a metadata field.

    Args:
        field: the field's name in the index.
        operator: `==`, `!=`, `>`, `>=`, `<`, `<=`, `in`, and `nin` or `not in`.
        value: value to compare with; None, with `==` and `!=` only, means that the field is missing.

    Raises:
        ConfigError: if the service has no such comparison.
    """
    if operator in _NEGATED:
        return {"not": comparison(field, _NEGATED[operator], value)}
    if operator not in _CONDITIONS or (value is None and operator != "=="):
        raise ConfigError(
            f"the service has no filter {operator} {value!r:.40}; use ==, !=, >, >=, <, <=, in or not in"
        )
    if value is None:
        return {"field": field, "exists": False}
    return {"field": field, _CONDITIONS[operator]: value}
