"""Keys: how settings hold them (as SHA-256), how one is recognised, and how one is made.

A plain SHA-256 is enough because keys are random: 256 bits cannot be guessed, with or without a slow hash. It would not be
enough for passwords that people think up.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping

from glow.errors import ConfigError

__all__ = [
    "ADMIN",
    "MAX_KEY_BYTES",
    "WRITE",
    "check_keys",
    "find_name",
    "make_key",
    "parse_admin_key",
    "parse_keys",
]

ADMIN = "admin"
"""Name of the admin key in log lines; no other key may have it."""
WRITE = "write"
"""Name of the key for writing."""
MAX_KEY_BYTES = 1_024
"""A longer key is refused unread."""
_KEY_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DIGEST = re.compile(r"[0-9A-Fa-f]{64}")
_HOW = "`glow key NAME` makes one"


def parse_keys(text: str) -> dict[str, bytes]:
    """Reads the setting `api_keys`; messages give places, never any of the text, which may be a key.

    Args:
        text: `name:hex,name:hex`; white space around entries is fine, "" is no keys.

    Returns:
        name -> SHA-256 digest (32 bytes), in the order given.

    Raises:
        ValueError: if an entry is malformed, or two have the same name or the same key.
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
                f"{place} has the name of entry {list(digests).index(name) + 1}; each needs its own"
            )
        value = _parse_digest(digest, place)
        if value in digests.values():
            same = list(digests.values()).index(value) + 1
            raise ValueError(f"{place} is the same key as entry {same}; give each its own")
        digests[name] = value
    return digests


def parse_admin_key(text: str) -> bytes | None:
    """Reads the setting `admin_key`.

    Args:
        text: 64 hexadecimal digits, or "" for none.

    Returns:
        The SHA-256 digest (32 bytes), or None where there is no admin key.

    Raises:
        ValueError: if it is something else, perhaps the key itself.
    """
    return _parse_digest(text.strip(), "it") if text.strip() else None


def check_keys(api_keys: str, admin_key: str, write_key: str = "") -> None:
    """Checks the settings, and that neither the admin key nor the one for writing is another one.

    Raises:
        ValueError: if one is malformed (the message names the setting and shows none of it), or they share a key.
    """
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
        raise ValueError("write_key: it is also another key; a key that searches must not write")
    if admin is not None and admin in keys.values():
        position = list(keys.values()).index(admin) + 1
        raise ValueError(
            f"admin_key: it is also entry {position} of api_keys; a search key must not open /admin"
        )


def find_name(key: bytes, digests: Mapping[str, bytes]) -> str | None:
    """Which key this is.

    The hash is compared with every digest, each in constant time, so that the time tells nothing of which one was near.

    Args:
        key: as it came, any bytes.
        digests: name -> SHA-256.
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
            f"{place} has {len(text)} characters where the 64 hexadecimal digits of a SHA-256 were expected; "
            f"settings hold a key's hash, never the key; {_HOW}"
        )
    return bytes.fromhex(text)


def make_key(name: str = "", *, is_admin: bool = False, is_write: bool = False) -> tuple[str, str]:
    """Makes a key, to be shown once, and what the service is to keep of it.

    Args:
        name: whose key it is.
        is_admin: makes the key of /admin, which has no name.
        is_write: makes the key for writing, which has none either.

    Returns:
        The key, and its entry: `NAME:SHA-256`, `GLOW_ADMIN_KEY=SHA-256` or `GLOW_WRITE_KEY=SHA-256`.

    Raises:
        ConfigError: if none or several of them were given, or the name is none.
    """
    if is_admin + is_write + bool(name) != 1:
        raise ConfigError("give a NAME, --admin or --write, one of them")
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
