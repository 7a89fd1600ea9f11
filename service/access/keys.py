"""Keys, of which the settings contain SHA-256 digests, and signed request ids.

A plain SHA-256 is enough because keys are random: 256 bits cannot be guessed. It would not be enough for passwords that
people choose.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping

from glow.errors import ConfigError

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
    try:
        keys = parse_keys(api_keys)
    except ValueError as error:
        raise ValueError(f"api_keys: {error}") from None
    try:
        admin = parse_admin_key(admin_key)
    except ValueError as error:
        raise ValueError(f"admin_key: {error}") from None
    try:
        write = parse_admin_key(write_key)
    except ValueError as error:
        raise ValueError(f"write_key: {error}") from None
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
