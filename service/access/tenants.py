"""Keys that open a part of what is served: some collections of it, and of their documents those that a filter allows.

The file is TOML with a table for each API key; a key without a table is refused at start, so that none opens more than was meant:

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

__all__ = ["Tenant", "confined", "read_tenants", "require_visible"]


MAX_DEPTH = 16
"""Most levels of groups in a filter; a search refuses deeper ones, too."""


class Tenant(StrictModel):
    """What a key opens.

    Attributes:
        collections: by name; none named: all.
        filter: that every document which the key finds, counts or reads passes, as a search has it; None: all documents.
    """

    collections: tuple[str, ...] = ()
    filter: dict[str, Any] | None = None

    def confine(self, body: dict[str, Any]) -> dict[str, Any]:
        """A search's body as this key may ask it.

        Words are not corrected: what they would be corrected to stands in documents of others, too.
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
    """Reads the file.

    Args:
        path: of the file; "" for none, which binds no key.
        names: of the API keys.
        collections: names of the indexes that are served; None: not compared.

    Returns:
        name of a key -> what it opens; empty where there is no file.

    Raises:
        ValueError: if it cannot be read, its tables are not those of the keys, or one of them opens nothing that is there
            or more than it seems to; every fault is named.
    """
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
        faults += [f"[{name}] is no API key" for name in unknown]
        raise ValueError(
            f"tenants: {'; '.join(faults) or 'there are no API keys'}; every key needs a table of its own"
        )
    for name, tenant in found.items():
        _check(name, tenant, tables[name], collections)
    return found


def _check(name: str, tenant: Tenant, table: dict[str, Any], collections: Collection[str] | None) -> None:
    """Refuses a table that is empty where it seems to restrict, or that names what is not served."""
    if "collections" in table and not tenant.collections:
        raise ValueError(
            f"tenants: [{name}] collections is an empty list, expected names of indexes; leave it out to open all of them"
        )
    unknown = [each for each in tenant.collections if collections is not None and each not in collections]
    if unknown:
        raise ValueError(
            f"tenants: [{name}] collections has {', '.join(map(repr, unknown))}, expected names of what is served: "
            f"{', '.join(sorted(collections or ()))}"
        )
    if tenant.filter is not None and _verdict(tenant.filter, name) is True:
        raise ValueError(
            f"tenants: [{name}] filter restricts nothing, expected a condition, such as "
            f'{{field = "owner", eq = "{name}"}}; leave it out to open all documents'
        )


def _verdict(value: Any, name: str, depth: int = 1) -> bool | None:
    """What a filter says of every document alike, by its groups alone; None where a condition decides.

    No index is open yet, so fields and values are checked by the first search.
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
    """A search's body as its key may ask it.

    Args:
        body: as it came.
        tenant: what the key opens; None: all.
        index: the version that answers.
        check: called while it works; may raise.

    Raises:
        DocumentNotFoundError: if hits are to be like a document that the key does not open.
        FilterError: if the index cannot tell.
    """
    if tenant is None:
        return body
    like = body.get("like")
    if isinstance(like, dict) and isinstance(like.get("id"), str):
        require_visible(like["id"], tenant, index, check)
    return tenant.confine(body)


def require_visible(document_id: str, tenant: Tenant | None, index: Index, check: Callable[[], None]) -> None:
    """Refuses a document that a key does not open as one that is not there.

    Raises:
        DocumentNotFoundError: if the key does not open it.
        FilterError: if the index cannot tell.
    """
    if tenant is None:
        return
    row, metadata = index[STORED_FIELDS].find(document_id), index[COLUMNS]
    mask = metadata.masks.mask(parse_filter(tenant.filter, metadata.columns), check)
    if row is None or not mask.mask[row]:
        raise not_found(document_id)
