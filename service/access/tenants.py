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

from glow.options import StrictModel, describe
from glow.search import Index, not_found, parse_filter
from glow_service.errors import NotAvailableError

__all__ = ["Tenant", "confined", "read_tenants", "require_visible"]


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


def read_tenants(path: str, names: Collection[str]) -> dict[str, Tenant]:
    """Reads the file.

    Args:
        path: of the file; "" for none, which binds no key.
        names: of the API keys.

    Returns:
        name of a key -> what it opens; empty where there is no file.

    Raises:
        ValueError: if it cannot be read, or its tables are not those of the keys; every fault is named.
    """
    if not path:
        return {}
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        found = {name: Tenant.model_validate(table) for name, table in tables.items()}
    except ValidationError as error:
        raise ValueError(f"tenants: {describe(error)}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"tenants: cannot read the file: {error}") from None
    absent, unknown = sorted(set(names) - set(found)), sorted(set(found) - set(names))
    if absent or unknown or not names:
        faults = [f"no table for the API key {name}" for name in absent]
        faults += [f"[{name}] is no API key" for name in unknown]
        raise ValueError(
            f"tenants: {'; '.join(faults) or 'there are no API keys'}; every key needs a table of its own"
        )
    return found


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
        NotAvailableError, FilterError: if the index cannot tell.
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
        NotAvailableError, FilterError: if the index cannot tell.
    """
    if tenant is None:
        return
    if index.columns is None or index.masks is None:
        raise NotAvailableError("this index holds no metadata, by which a key's documents are told")
    row = index.documents.find(document_id)
    mask = index.masks.mask(parse_filter(tenant.filter, index.columns), check)
    if row is None or not mask.mask[row]:
        raise not_found(document_id)
