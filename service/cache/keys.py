"""Cache keys.

A key is the hash of everything that an entry depends on. A change gives a new key, so invalidation is not needed.
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

# Part of every key; increase it if the format of entries or the input of keys changes.
_KEY_VERSION = 5
# 160 bits: nobody can find two texts with the same hash.
_DIGEST_BYTES = 20
_FACTS = (b"f", b"t")


class Keys:
    """Makes the keys of one index version.

    Args:
        model: the model hash.
        terms: hash of the term statistics.
        version: identifies the index version and all its files.
    """

    def __init__(self, model: str, terms: str, version: str) -> None:
        # Vectors stay valid across index versions: they depend only on the model and the term statistics.
        self._vector = blake2b(_encoded(("vector", model, terms)), digest_size=_DIGEST_BYTES)
        # Another release may give a different response.
        page = ("response", __version__, model, terms, version)
        self._page = blake2b(_encoded(page), digest_size=_DIGEST_BYTES)

    @classmethod
    def of(cls, index: Index) -> "Keys":
        """The keys of an open index; making them takes about a millisecond, so keep them.

        They contain the manifest's hash, because versions of different indexes may have the same name.
        """
        hashes = index.manifest.hashes
        return cls(hashes["model"], hashes["terms"], f"{index.version}@{index.manifest.hash}")

    def vector(self, text: str) -> bytes:
        """The key of a query's vector.

        Args:
            text: the received query; any string, including lone surrogates.

        Returns:
            printable ASCII, the same length for every text.
        """
        state = self._vector.copy()
        state.update(text.encode("utf-8", "surrogatepass"))
        return b"glow:%d:vector:%s" % (_KEY_VERSION, state.hexdigest().encode())

    def page(self, *request: Any) -> bytes:
        """The key of a response.

        Args:
            request: all parts of the request that affect the response: None, booleans, numbers, strings, bytes, and
                sequences, mappings (with string keys), dataclasses and models of these. Lists equal tuples, and the
                order of mappings does not matter; 1, 1.0 and True differ, as do classes of different names.

        Returns:
            printable ASCII, the same length for every request.

        Raises:
            TypeError: if a value has another type.
        """
        state = self._page.copy()
        state.update(_encoded(request))
        return b"glow:%d:page:%s" % (_KEY_VERSION, state.hexdigest().encode())


def _encoded(value: Any) -> bytes:
    """Encodes a value so that different values give different bytes: each part starts with its type and length."""
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
        # The name is needed: `And` and `Or` of a filter have the same fields.
        parts = [_name_of(type(value))]
        for start, name, default in _fields(type(value)):
            part = getattr(value, name)
            # Defaults are left out, for speed: a request sets few of its fields.
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
    """Each field's encoded name, name, and default if that is a plain value, sorted by name."""
    fields = sorted(dataclasses.fields(kind), key=lambda field: field.name)
    defaults = (field.default if _is_plain(field.default) else dataclasses.MISSING for field in fields)
    return tuple(
        (_encoded(field.name), field.name, default) for field, default in zip(fields, defaults, strict=True)
    )


def _is_plain(value: object) -> bool:
    return value is None or value == () or isinstance(value, bool | int | str)
