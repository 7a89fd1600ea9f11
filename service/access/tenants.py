"""Tenants: API keys that are limited to some collections, and to the documents that match a filter.

The file is TOML with one table per API key. A key without a table is an error, so that no key is open by mistake:

    [alice]
    collections = ["books"]
    filter = {field = "owner", eq = "alice"}

    [operator]          # everything
"""

import tomllib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from glow.index import Index
from glow.index.columns import COLUMNS
from glow.index.columns.filters import parse_filter
from glow.index.stored_fields import STORED_FIELDS, not_found
from glow.options import StrictModel, describe

MAX_DEPTH = 16
"""Most nested groups of a filter; searches have the same limit."""


class Tenant(StrictModel):
    """The collections and documents that a key may read."""

    collections: tuple[str, ...] = ()  # names of collections; empty: all
    filter: dict[str, Any] | None = None  # documents that can be found, counted or read; None: all

    def confine(self, body: dict[str, Any]) -> dict[str, Any]:
        """Adds the key's filter to the body of a search.

        Typos are not corrected: a correction could come from documents that the key may not read.
        """
        if self.filter is None:
            return body
        given = body.get("filter")
        return {
            **body,
            "filter": self.filter if given is None else {"and": [self.filter, given]},
            "typos": "off",
        }


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
    """Refuses a table with an empty restriction, or with unknown collections."""
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
        if key == "and":
            return False if False in verdicts else None if None in verdicts else True
        return True if True in verdicts else None if None in verdicts else False
    if not isinstance(value, dict) or not isinstance(value.get("field"), str):
        raise ValueError(
            f"tenants: [{name}] filter has {str(value)[:60]}, expected and, or, not, or a condition with a field "
            "(docs/filters.md)"
        )
    return None


def confined(
    body: dict[str, Any], tenant: Tenant | None, index: Index, check: Callable[[], None]
) -> dict[str, Any]:
    """Checks and restricts a search's body by the tenant of its key; calls `check`, which may raise, repeatedly."""
    if tenant is None:
        return body
    like = body.get("like")
    if isinstance(like, dict) and isinstance(like.get("id"), str):
        require_visible(like["id"], tenant, index, check)
    return tenant.confine(body)


def require_visible(document_id: str, tenant: Tenant | None, index: Index, check: Callable[[], None]) -> None:
    """Raises the error of a missing document if a key may not read a document."""
    if tenant is None:
        return
    row, metadata = index[STORED_FIELDS].find(document_id), index[COLUMNS]
    mask = metadata.masks.mask(parse_filter(tenant.filter, metadata.columns), check)
    if row is None or not mask.mask[row]:
        raise not_found(document_id)
