"""Keys: parsing of the settings, which contain SHA-256 digests, checking, and making new keys.

A plain SHA-256 is enough because keys are random: 256 bits cannot be guessed. It would not be enough for passwords that
people choose.
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
    """Parses the setting `api_keys`. Error messages give positions only, because the text may contain a key.

    Args:
        text: `name:hex,name:hex`; white space around entries is allowed; "" for no keys.

    Returns:
        name -> SHA-256 digest (32 bytes), in order.

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
                f"{place} has the same name as entry {list(digests).index(name) + 1}; choose another name"
            )
        value = _parse_digest(digest, place)
        if value in digests.values():
            same = list(digests.values()).index(value) + 1
            raise ValueError(f"{place} has the same key as entry {same}; make another key")
        digests[name] = value
    return digests


def parse_admin_key(text: str) -> bytes | None:
    """Parses the setting `admin_key` or `write_key`.

    Args:
        text: 64 hexadecimal digits, or "" for none.

    Returns:
        The SHA-256 digest (32 bytes), or None for no key.

    Raises:
        ValueError: if it is anything else, such as the key itself.
    """
    return _parse_digest(text.strip(), "it") if text.strip() else None


def check_keys(api_keys: str, admin_key: str, write_key: str = "") -> None:
    """Checks the three settings, and that the admin key and the write key differ from all other keys.

    Raises:
        ValueError: if one is malformed (the message names the setting without its value), or two have the same key.
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
        raise ValueError("write_key: it is also the admin key or an API key; make a separate key")
    if admin is not None and admin in keys.values():
        position = list(keys.values()).index(admin) + 1
        raise ValueError(f"admin_key: it is also entry {position} of api_keys; make a separate key")


def find_name(key: bytes, digests: Mapping[str, bytes]) -> str | None:
    """The name of a key; None if it is unknown.

    The hash is compared with every digest in constant time, so that timing reveals nothing.

    Args:
        key: the received bytes.
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
            f"{place} has {len(text)} characters, expected the 64 hexadecimal digits of a SHA-256; "
            f"settings contain a key's hash, never the key; {_HOW}"
        )
    return bytes.fromhex(text)


def make_key(name: str = "", *, is_admin: bool = False, is_write: bool = False) -> tuple[str, str]:
    """Makes a key, to be shown once, and its entry for the service's settings.

    Args:
        name: name of an API key.
        is_admin: make the admin key, which has no name.
        is_write: make the write key, which has no name.

    Returns:
        The key, and its entry: `NAME:SHA-256`, `GLOW_ADMIN_KEY=SHA-256` or `GLOW_WRITE_KEY=SHA-256`.

    Raises:
        ConfigError: unless exactly one of the three is given, or if the name is invalid.
    """
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
