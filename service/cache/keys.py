"""Keys: which entries may stand for one another.

A key is the hash of everything that an entry depends on, so nothing is ever invalidated: what changed has another key.
"""

import dataclasses
import struct
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from typing import Any

from pydantic import BaseModel

from glow import __version__
from glow.index import Index

__all__ = ["Keys"]

# Part of every key; raise it when the bytes of an entry, or what a key covers, change their meaning.
_KEY_VERSION = 5
# No two texts that anyone can find share a hash of 160 bits.
_DIGEST_BYTES = 20
_FACTS = (b"f", b"t")


class Keys:
    """Makes the keys of one index version.

    Args:
        model: the model hash.
        terms: the term-table hash.
        version: what names the index version and all its files, besides.
    """

    def __init__(self, model: str, terms: str, version: str) -> None:
        # A vector outlives its index version: the query tower reads the model and the term table only.
        self._vector = blake2b(_encoded(("vector", model, terms)), digest_size=_DIGEST_BYTES)
        # Another release may write another answer.
        page = ("response", __version__, model, terms, version)
        self._page = blake2b(_encoded(page), digest_size=_DIGEST_BYTES)

    @classmethod
    def of(cls, index: Index) -> "Keys":
        """The keys of an open index; takes about a millisecond, so keep them beside it.

        The manifest's hash stands for the version, because folders of different indices may bear one name.
        """
        hashes = index.manifest.hashes
        return cls(hashes["model"], hashes["terms"], f"{index.version}@{index.manifest.hash}")

    def vector(self, text: str) -> bytes:
        """The key of a query's vector.

        Args:
            text: the query as it came; any string, lone surrogates too.

        Returns:
            printable ASCII, the same length for every text.
        """
        state = self._vector.copy()
        state.update(text.encode("utf-8", "surrogatepass"))
        return b"glow:%d:vector:%s" % (_KEY_VERSION, state.hexdigest().encode())

    def page(self, *request: Any) -> bytes:
        """The key of an answer.

        Args:
            request: every part of the request that changes the answer: None, booleans, numbers, strings, bytes, and
                sequences, mappings (with string keys), dataclasses and models of such. Lists and tuples are alike, and
                so are mappings in any order; 1, 1.0 and True are not, nor are classes of different names.

        Returns:
            printable ASCII, the same length for every request.

        Raises:
            TypeError: if a value of another type, of which it is not known when two are equal.
        """
        state = self._page.copy()
        state.update(_encoded(request))
        return b"glow:%d:page:%s" % (_KEY_VERSION, state.hexdigest().encode())


def _encoded(value: Any) -> bytes:
    """A value such that different ones give different bytes: each part has its type and length before it."""
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
        return b"s%d:%b" % (len(raw), raw)
    if isinstance(value, int):
        return _FACTS[value] if isinstance(value, bool) else b"i%d;" % value
    if value is None:
        return b"n"
    if isinstance(value, tuple | list):
        return b"l%d:%b" % (len(value), b"".join(map(_encoded, value)))
    if isinstance(value, float):
        return b"d" + struct.pack(">d", value)
    if isinstance(value, bytes):
        return b"b%d:%b" % (len(value), value)
    return _encoded_mapping(value)


def _encoded_mapping(value: Any) -> bytes:
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        parts = [_encoded(name) + _encoded(value[name]) for name in sorted(value)]
    elif isinstance(value, BaseModel):
        parts = [_name_of(type(value)), _encoded(value.model_dump())]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        # The name counts: `And` and `Or` of a filter have the same fields.
        parts = [_name_of(type(value))]
        for start, name, default in _fields(type(value)):
            part = getattr(value, name)
            # What is as always is left out: a request names few of its parts, and this is on the way of each.
            if type(part) is not type(default) or part != default:
                parts.append(start + _encoded(part))
    else:
        raise TypeError(
            f"cannot make a key of {value!r:.80} ({type(value).__name__}); give it as numbers, strings, lists, "
            "mappings with string keys, or dataclasses of them"
        )
    return b"m%d:%b" % (len(parts), b"".join(parts))


@cache
def _name_of(kind: type[Any]) -> bytes:
    return b"c" + _encoded(kind.__name__)


@cache
def _fields(kind: type[Any]) -> tuple[tuple[bytes, str, Any], ...]:
    """Each field's name, encoded and as it is, and its default if that is a plain value, in the order of the names."""
    fields = sorted(dataclasses.fields(kind), key=lambda field: field.name)
    defaults = (field.default if _is_plain(field.default) else dataclasses.MISSING for field in fields)
    return tuple(
        (_encoded(field.name), field.name, default) for field, default in zip(fields, defaults, strict=True)
    )


def _is_plain(value: object) -> bool:
    return value is None or value == () or isinstance(value, bool | int | str)
