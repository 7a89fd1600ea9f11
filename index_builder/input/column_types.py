"""Types of a table's columns: guessed from all values of a column, or given; and the values of cells by them."""

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from glow.errors import ConfigError

FieldType = Literal["number", "boolean", "date", "string"]
FIELD_TYPES: tuple[str, ...] = get_args(FieldType)
MAX_DIGITS = 15
"""Digits that a floating-point number keeps exactly."""
# Marks between thousands count only before decimals: 1.249 alone is a little more than one.
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*|[1-9][0-9]{0,2}(?:,[0-9]{3})+(?=\.))(?:\.[0-9]+)?")
_COMMA = re.compile(r"-?(?:0|[1-9][0-9]*|[1-9][0-9]{0,2}(?:\.[0-9]{3})+(?=,))(?:,[0-9]+)?")
_BOOLEANS = {"true": True, "false": False}
_GUESSES = ("number", "comma", "boolean", "date")


def read_field_types(pairs: Sequence[str]) -> dict[str, str]:
    """Reads `column=type` pairs."""
    types = {}
    for pair in pairs:
        name, _, kind = pair.rpartition("=")
        if not name or kind not in FIELD_TYPES:
            raise ConfigError(
                f"--field-type takes NAME={'|'.join(FIELD_TYPES)}, for example price=number; found {pair!r}"
            )
        types[name] = kind
    return types


@functools.cache
def _instant_of() -> Callable[[str], int | None]:
    """Reads dates; imported late, because parsers of files have little memory."""
    from glow.index.columns import instant_of

    return instant_of


def _fits(cell: str, kind: str) -> bool:
    if kind in ("number", "comma"):
        form = _NUMBER if kind == "number" else _COMMA
        return form.fullmatch(cell) is not None and sum(map(str.isdigit, cell)) <= MAX_DIGITS
    return cell.lower() in _BOOLEANS if kind == "boolean" else _instant_of()(cell) is not None


def typed_value(
    cell: str,
    kind: str,
    has_commas: bool,  # whether a decimal comma is allowed
) -> Any:
    """The JSON value of a cell; None if it does not fit the type."""
    text = cell.strip()
    if kind == "string":
        return cell
    if kind == "number" and has_commas and _fits(text, "comma"):
        text = text.replace(".", "").replace(",", ".")
    if not _fits(text, kind):
        return None
    if kind == "number":
        text = text.replace(",", "")
        return float(text) if "." in text else int(text)
    return _BOOLEANS[text.lower()] if kind == "boolean" else text


class TypeGuesses:
    """Guesses the types of columns by name, over all tables of an input."""

    def __init__(
        self,
        texts: Collection[str],  # columns that stay strings: text fields and ids
    ) -> None:
        self._texts = texts
        self._kinds: dict[str, set[str]] = {}  # column -> types that all of its values have
        self._table: dict[str, set[str]] = {}  # the same for the current table

    def add(self, names: Sequence[str], cells: Iterable[str], has_commas: bool) -> None:
        """Looks at a row of the current table."""
        for name, cell in zip(names, cells, strict=True):
            if not cell or name in self._texts:
                continue
            kinds = self._table.setdefault(name, {*_GUESSES} if has_commas else {*_GUESSES} - {"comma"})
            text = cell.strip()
            for kind in [each for each in kinds if not _fits(text, each)]:
                kinds.discard(kind)

    def end(self) -> None:
        """Merges the columns of the current table into those of the others, which may have other decimal marks."""
        for name, kinds in self._table.items():
            all_kinds = {"number" if each == "comma" else each for each in kinds}
            self._kinds[name] = self._kinds.get(name, all_kinds) & all_kinds
        self._table = {}

    def types(self, given: Mapping[str, str]) -> dict[str, str]:
        """The type of each column that is not a string or is given."""
        for name in given:
            if name in self._texts:
                raise ConfigError(f"--field-type {name}: the column is text or an id, which stays a string")
            if self._kinds and name not in self._kinds:
                raise ConfigError(f"--field-type {name}: no table has a value in a column of this name")
        guesses = {
            name: next((each for each in _GUESSES if each in kinds), "")
            for name, kinds in self._kinds.items()
        }
        return {name: kind for name, kind in {**guesses, **given}.items() if kind}
