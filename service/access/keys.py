"""Keys, of which the settings contain SHA-256 digests, their tenants, and signed request ids.

A plain SHA-256 is enough because keys are random: 256 bits cannot be guessed. It would not be enough for passwords that
people choose.
"""

import hashlib
import hmac
import re
import secrets
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from glow.errors import ConfigError
from glow.index import Index
from glow.index.columns import COLUMNS
from glow.index.columns.filters import parse_filter
from glow.index.stored_fields import STORED_FIELDS, not_found
from glow.options import StrictModel, describe

ADMIN = "admin"
"""Name of the admin key in log lines; reserved."""
WRITE = "write"
"""Name of the write key; reserved."""
MAX_KEY_BYTES = 1_024
"""A longer key is refused without hashing it."""
_KEY_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DIGEST = re.compile(r"[0-9A-Fa-f]{64}")
_HOW = "`glow key NAME` makes one"


def parse_keys(text: str) -> dict[str, bytes]:
    """The API keys of a setting `name:hex,name:hex`: name -> SHA-256 digest (32 bytes), in order.

    Error messages give positions only, because the text may contain a key.
    """
    digests: dict[str, bytes] = {}
    entries = [entry.strip() for entry in text.split(",")] if text.strip() else []
    for position, entry in enumerate(entries, start=1):
        place = f"entry {position} of {len(entries)}"
        name, colon, digest = (part.strip() for part in entry.partition(":"))
        if not colon:
            raise ValueError(f"{place} has no colon; expected name:SHA-256, {_HOW}")
        _check_name(name, place)
        if name in digests:
            raise ValueError(
                f"{place} has the same name as entry {list(digests).index(name) + 1}; choose another name"
            )
        value = _parse_digest(digest, place)
        if value in digests.values():
            same = list(digests.values()).index(value) + 1
            raise ValueError(f"{place} has the same key as entry {same}; make another key")
        digests[name] = value
    return digests


def parse_admin_key(text: str) -> bytes | None:
    """The SHA-256 digest (32 bytes) of the setting `admin_key` or `write_key`; None for no key."""
    return _parse_digest(text.strip(), "it") if text.strip() else None


def check_keys(api_keys: str, admin_key: str, write_key: str = "") -> None:
    """Checks the three settings, and that the admin key and the write key differ from all other keys."""
    settings: dict[str, Any] = {}
    for name, parse, text in (
        ("api_keys", parse_keys, api_keys),
        ("admin_key", parse_admin_key, admin_key),
        ("write_key", parse_admin_key, write_key),
    ):
        try:
            settings[name] = parse(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    keys, admin, write = settings.values()
    if write is not None and write in (admin, *keys.values()):
        raise ValueError("write_key: it is also the admin key or an API key; make a separate key")
    if admin is not None and admin in keys.values():
        position = list(keys.values()).index(admin) + 1
        raise ValueError(f"admin_key: it is also entry {position} of api_keys; make a separate key")


def find_name(key: bytes, digests: Mapping[str, bytes]) -> str | None:
    """The name of a key; None if it is unknown.

    The hash is compared with every digest in constant time, so that timing reveals nothing.
    """
    if len(key) > MAX_KEY_BYTES:
        return None
    given = hashlib.sha256(key).digest()
    match = None
    for name, digest in digests.items():
        if hmac.compare_digest(given, digest):
            match = name
    return match


def _check_name(name: str, place: str) -> None:
    if not _NAME.fullmatch(name) or name in (ADMIN, WRITE):
        raise ValueError(
            f"{place}: the name has {len(name)} characters; expected 1 to 64 of A-Z a-z 0-9 . _ - "
            f"and not '{ADMIN}' or '{WRITE}'"
        )


def _parse_digest(text: str, place: str) -> bytes:
    if not _DIGEST.fullmatch(text):
        raise ValueError(
            f"{place} has {len(text)} characters, expected the 64 hexadecimal digits of a SHA-256; "
            f"settings contain a key's hash, never the key; {_HOW}"
        )
    return bytes.fromhex(text)


def make_key(name: str = "", *, is_admin: bool = False, is_write: bool = False) -> tuple[str, str]:
    """Makes a key, to be shown once, and its entry for the settings, such as `NAME:SHA-256`."""
    if is_admin + is_write + bool(name) != 1:
        raise ConfigError("give exactly one of NAME, --admin and --write")
    if name:
        try:
            _check_name(name, "NAME")
        except ValueError as error:
            raise ConfigError(str(error)) from error
    key = secrets.token_urlsafe(_KEY_BYTES)
    digest = hashlib.sha256(key.encode()).hexdigest()
    if name:
        return key, f"{name}:{digest}"
    return key, f"GLOW_{'ADMIN' if is_admin else 'WRITE'}_KEY={digest}"


# Signed request ids, so that the service can recognize its own ids in feedback without storing them. A signature, a
# keyed hash of the id, follows it. Every process with the same key can check it.

SIGNATURE_CHARACTERS = 24
"""Length in hexadecimal digits: 96 bits, too many to guess by sending requests."""


class RequestIds:
    """Signs the ids of searches, and checks the ids in feedback; an empty key does neither."""

    def __init__(self, key: bytes = b"") -> None:
        self._key = key

    def signed(self, request_id: str) -> str:
        """The id with its signature, for a response."""
        return f"{request_id}.{self._signature(request_id)}" if self._key else request_id

    def read(self, given: str) -> str | None:
        """The id without its signature, as in the logs; None if the signature is invalid."""
        if not self._key:
            return given
        request_id, _, signature = given.rpartition(".")
        expected = self._signature(request_id)
        return request_id if hmac.compare_digest(signature.encode(), expected.encode()) else None

    def _signature(self, request_id: str) -> str:
        digest = hmac.new(self._key, request_id.encode("utf-8", "replace"), hashlib.sha256)
        return digest.hexdigest()[:SIGNATURE_CHARACTERS]


# Tenants: API keys that are limited to some collections, and to the documents that match a filter. The file is TOML
# with one table per API key. A key without a table is an error, so that no key is open by mistake:
#
#     [alice]
#     collections = ["books"]
#     filter = {field = "owner", eq = "alice"}
#
#     [operator]          # everything

MAX_DEPTH = 16
"""Most nested groups of a filter; searches have the same limit."""


class Tenant(StrictModel):
    """The collections and documents that a key may read."""

    collections: tuple[str, ...] = ()  # names of collections; empty: all
    filter: dict[str, Any] | None = None  # documents that can be found, counted or read; None: all


def read_tenants(
    path: str, names: Collection[str], collections: Collection[str] | None = None
) -> dict[str, Tenant]:
    """Reads the tenants file: name of a key -> its tenant; empty without a file, so that no key is limited."""
    if not path:
        return {}
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        found = {name: Tenant.model_validate(table) for name, table in tables.items()}
    except ValidationError as error:
        raise ValueError(f"tenants: {describe(error)}") from None
    except RecursionError:
        raise ValueError("tenants: cannot read the file: it is nested too deeply") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"tenants: cannot read the file: {error}") from None
    absent, unknown = sorted(set(names) - set(found)), sorted(set(found) - set(names))
    if absent or unknown or not names:
        faults = [f"no table for the API key {name}" for name in absent]
        faults += [f"[{name}] is not the name of an API key" for name in unknown]
        raise ValueError(
            f"tenants: {'; '.join(faults) or 'there are no API keys'}; every key needs its own table"
        )
    for name, tenant in found.items():
        _check(name, tenant, tables[name], collections)
    return found


def _check(name: str, tenant: Tenant, table: dict[str, Any], collections: Collection[str] | None) -> None:
    if "collections" in table and not tenant.collections:
        raise ValueError(
            f"tenants: [{name}] collections is an empty list, expected names of indexes; remove it to allow all of them"
        )
    unknown = [each for each in tenant.collections if collections is not None and each not in collections]
    if unknown:
        raise ValueError(
            f"tenants: [{name}] collections has {', '.join(map(repr, unknown))}, expected names of served indexes: "
            f"{', '.join(sorted(collections or ()))}"
        )
    if tenant.filter is not None and _verdict(tenant.filter, name) is True:
        raise ValueError(
            f"tenants: [{name}] filter restricts nothing, expected a condition, such as "
            f'{{field = "owner", eq = "{name}"}}; remove it to allow all documents'
        )


def _verdict(value: Any, name: str, depth: int = 1) -> bool | None:
    """Whether the groups of a filter alone match every document or none; None if conditions decide.

    No index is open yet, so the first search checks fields and values.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"tenants: [{name}] filter is nested deeper than {MAX_DEPTH} levels")
    key, inner = next(iter(value.items()), (None, None)) if isinstance(value, dict) else (None, None)
    if key == "not" and len(value) == 1:
        verdict = _verdict(inner, name, depth + 1)
        return None if verdict is None else not verdict
    if key in ("and", "or") and len(value) == 1 and isinstance(inner, list):
        verdicts = {_verdict(each, name, depth + 1) for each in inner}
        decisive = key == "or"
        return decisive if decisive in verdicts else None if None in verdicts else not decisive
    if not isinstance(value, dict) or not isinstance(value.get("field"), str):
        raise ValueError(
            f"tenants: [{name}] filter has {str(value)[:60]}, expected and, or, not, or a condition with a field "
            "(docs/filters.md)"
        )
    return None


def require_visible(document_id: str, tenant: Tenant | None, index: Index, check: Callable[[], None]) -> None:
    """Raises the error of a missing document if a key may not read a document."""
    if tenant is None:
        return
    row, metadata = index[STORED_FIELDS].find(document_id), index[COLUMNS]
    mask = metadata.masks.mask(parse_filter(tenant.filter, metadata.columns), check)
    if row is None or not mask.mask[row]:
        raise not_found(document_id)
