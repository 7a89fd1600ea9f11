"""Haystack: a document store and a retriever over a GLOW service (extra `haystack`)."""

from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.utils.filters import document_matches_filter

from glow.adapters.filters import comparison
from glow.adapters.store import FoundText, GlowStore
from glow.errors import ConfigError

__all__ = ["GlowDocumentStore", "GlowHaystackRetriever"]


class GlowDocumentStore:
    """Documents in a service.

    Filters of Haystack are applied here, to what is read: `filter_documents` is for collections of at most `most` documents. A
    retriever's filter is the service's own.

    Args:
        most: documents that are looked at.
        options: of `GlowStore`.
    """

    def __init__(self, most: int = 1_000, **options: Any) -> None:
        self._options, self._most = options, most
        self.store = GlowStore(**options)

    def to_dict(self) -> dict[str, Any]:
        """As Haystack saves it: with its address, without its keys."""
        kept = {name: value for name, value in self._options.items() if not name.endswith("_key")}
        return default_to_dict(self, most=self._most, **kept)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "GlowDocumentStore":
        """As Haystack loads it."""
        made: GlowDocumentStore = default_from_dict(cls, data)
        return made

    def count_documents(self) -> int:
        """How many there are, at most `most`."""
        return sum(1 for _ in self.store.scan(limit=self._most))

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Documents that match a filter of Haystack's."""
        found = [_document(each) for each in self.store.scan(limit=self._most)]
        return [each for each in found if document_matches_filter(filters, each)] if filters else found

    def write_documents(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Writes documents; without a policy an id that is there is an error.

        Raises:
            ValueError: if they are no documents.
            DuplicateDocumentError: if the policy says so.
        """
        if not isinstance(documents, list) or not all(isinstance(each, Document) for each in documents):
            raise ValueError("expected a list of haystack.Document")
        wanted = documents
        if policy != DuplicatePolicy.OVERWRITE:
            there = {each.id for each in documents if self.store.get(each.id) is not None}
            if there and policy != DuplicatePolicy.SKIP:
                raise DuplicateDocumentError(f"{sorted(there)[0]} is there already")
            wanted = [each for each in documents if each.id not in there]
        if wanted:
            self.store.write(
                [each.id for each in wanted],
                [each.content or "" for each in wanted],
                [each.meta for each in wanted],
            )
        return len(wanted)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Deletes documents by id; one that is not there is no error."""
        if document_ids:
            self.store.delete(document_ids)


@component
class GlowHaystackRetriever:
    """Documents for a question.

    Args:
        document_store: where they are.
        top_k: how many.
        filters: Haystack's, or as `GlowStore.search` takes them.

    Raises:
        ConfigError: if the service has no such filter.
    """

    def __init__(
        self, document_store: GlowDocumentStore, top_k: int = 10, filters: dict[str, Any] | None = None
    ) -> None:
        self.document_store, self.top_k, self.filters = document_store, top_k, filters

    def to_dict(self) -> dict[str, Any]:
        """As Haystack saves it."""
        store = self.document_store.to_dict()
        return default_to_dict(self, document_store=store, top_k=self.top_k, filters=self.filters)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "GlowHaystackRetriever":
        """As Haystack loads it."""
        given = data["init_parameters"]
        store = GlowDocumentStore.from_dict(given["document_store"])
        made: GlowHaystackRetriever = default_from_dict(
            cls, {**data, "init_parameters": {**given, "document_store": store}}
        )
        return made

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, top_k: int | None = None, filters: dict[str, Any] | None = None
    ) -> dict[str, list[Document]]:
        """Searches."""
        wanted = _wanted(filters or self.filters)
        found = self.document_store.store.search(query, top_k or self.top_k, wanted)
        return {"documents": [_document(each) for each in found]}


def _wanted(filters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Haystack's filter in the service's language; other filters as they are."""
    if not filters or "operator" not in filters:
        return filters
    if "conditions" not in filters:
        field = str(filters.get("field", "")).removeprefix("meta.")
        return comparison(field, filters["operator"], filters.get("value"))
    parts = [_wanted(each) for each in filters["conditions"]]
    joined: dict[str, dict[str, Any]] = {
        "AND": {"and": parts},
        "OR": {"or": parts},
        "NOT": {"not": {"and": parts}},
    }
    if filters["operator"] not in joined:
        raise ConfigError(f"filters are joined by AND, OR or NOT, not by {filters['operator']!r:.40}")
    return joined[filters["operator"]]


def _document(found: FoundText) -> Document:
    return Document(id=found.id, content=found.text, meta=found.metadata, score=found.score or None)
