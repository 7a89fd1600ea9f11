"""Cuts documents for agents: one document must not fill an agent's context."""

from typing import Any

__all__ = ["Excerpt"]

_NUMBER = 8
"""Approximate length of a value that is not text, in characters."""


class Excerpt:
    """Copies JSON values until a total number of characters is reached.

    Args:
        characters: limit for all values together, including member names, >= 0.
        each: limit for one text, >= 1.

    Attributes:
        is_cut: whether anything was cut or omitted.
    """

    def __init__(self, characters: int, each: int) -> None:
        self.is_cut = False
        self._left, self._each = characters, each

    def copy(self, value: Any) -> Any:
        """Copies a value, cut if it is too long."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            copied = {}
            for name, inner in value.items():
                if self._is_full(len(name)):
                    break
                self._left -= len(name)
                copied[name] = self.copy(inner)
            return copied
        if isinstance(value, list | tuple):
            items = []
            for inner in value:
                if self._is_full(1):
                    break
                items.append(self.copy(inner))
            return items
        self._left -= _NUMBER
        return value

    def _text(self, value: str) -> str:
        kept = value[: max(min(self._each, self._left), 0)]
        self._left -= len(kept)
        self.is_cut |= len(kept) < len(value)
        return kept

    def _is_full(self, needed: int) -> bool:
        is_full = self._left < needed
        self.is_cut |= is_full
        return is_full
