"""Documents cut to what an agent can read: one of them must not fill its context."""

from typing import Any

__all__ = ["Excerpt"]

_NUMBER = 8
"""Characters that a value which is no text counts for, about."""


class Excerpt:
    """Copies JSON values as long as there is room, over several of them.

    Args:
        characters: room for all values together, names of members included, >= 0.
        each: most characters of one text, >= 1.

    Attributes:
        is_cut: whether something was left out.
    """

    def __init__(self, characters: int, each: int) -> None:
        self.is_cut = False
        self._left, self._each = characters, each

    def copy(self, value: Any) -> Any:
        """The value, or the beginning of it."""
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
