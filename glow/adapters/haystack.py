"""Haystack: a document store and a retriever over a GLOW service (extra `haystack`)."""

from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.utils.filters import document_matches_filter

from glow.adapters.store import FoundText, GlowStore, comparison
from glow.errors import ConfigError


class GlowDocumentStore:
    """A Haystack document store whose documents are in a GLOW service.

    `filter_documents` reads up to `most` documents and applies Haystack's filters here, so it suits small collections.
    The retriever's filters are applied by the service.

    Args:
        most: most documents that counting and filtering read.
        options: arguments of `GlowStore`.
    """

    def __init__(self, most: int = 1_000, **options: Any) -> None:
        self._options, self._most = options, most
        self.store = GlowStore(**options)

    def to_dict(self) -> dict[str, Any]:
        """Serializes the store for Haystack, without its API keys."""
        options = {name: value for name, value in self._options.items() if not name.endswith("_key")}
        return default_to_dict(self, most=self._most, **options)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "GlowDocumentStore":
        """Restores a store that Haystack saved."""
        store: GlowDocumentStore = default_from_dict(cls, data)
        return store

    def count_documents(self) -> int:
        """Number of documents, up to `most`."""
        return sum(1 for _ in self.store.scan(limit=self._most))

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """The documents that match a Haystack filter."""
        documents = (_document(each) for each in self.store.scan(limit=self._most))
        return [each for each in documents if not filters or document_matches_filter(filters, each)]

    def write_documents(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Writes documents; an existing id is a DuplicateDocumentError unless the policy is OVERWRITE or SKIP."""
        if not isinstance(documents, list) or not all(isinstance(each, Document) for each in documents):
            raise ValueError("expected a list of haystack.Document")
        new = documents
        if policy != DuplicatePolicy.OVERWRITE:
            there = {each.id for each in documents if self.store.get(each.id) is not None}
            if there and policy != DuplicatePolicy.SKIP:
                raise DuplicateDocumentError(f"document {sorted(there)[0]} already exists")
            new = [each for each in documents if each.id not in there]
        if new:
            texts = [each.content or "" for each in new]
            self.store.write([each.id for each in new], texts, [each.meta for each in new])
        return len(new)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Deletes documents by id; unknown ids are ignored."""
        if document_ids:
            self.store.delete(document_ids)


@component
class GlowHaystackRetriever:
    """A Haystack retriever over a document store; filters are Haystack's, or as for `GlowStore.search`."""

    def __init__(
        self, document_store: GlowDocumentStore, top_k: int = 10, filters: dict[str, Any] | None = None
    ) -> None:
        self.document_store, self.top_k, self.filters = document_store, top_k, filters

    def to_dict(self) -> dict[str, Any]:
        """Serializes the retriever for Haystack."""
        store = self.document_store.to_dict()
        return default_to_dict(self, document_store=store, top_k=self.top_k, filters=self.filters)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "GlowHaystackRetriever":
        """Restores a retriever that Haystack saved."""
        store = GlowDocumentStore.from_dict(data["init_parameters"]["document_store"])
        parameters = {**data["init_parameters"], "document_store": store}
        retriever: GlowHaystackRetriever = default_from_dict(cls, {**data, "init_parameters": parameters})
        return retriever

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, top_k: int | None = None, filters: dict[str, Any] | None = None
    ) -> dict[str, list[Document]]:
        """Returns the documents that match a query."""
        condition = _service_filter(filters or self.filters)
        texts = self.document_store.store.search(query, top_k or self.top_k, condition)
        return {"documents": [_document(each) for each in texts]}


def _service_filter(filters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Converts a Haystack filter to a service filter; other filters stay unchanged."""
    if not filters or "operator" not in filters:
        return filters
    if "conditions" not in filters:
        field = str(filters.get("field", "")).removeprefix("meta.")
        return comparison(field, filters["operator"], filters.get("value"))
    parts = [_service_filter(each) for each in filters["conditions"]]
    operator = filters["operator"]
    if operator not in ("AND", "OR", "NOT"):
        raise ConfigError(f"filters can be joined by AND, OR or NOT, not by {operator!r:.40}")
    return {"not": {"and": parts}} if operator == "NOT" else {operator.lower(): parts}


def _document(text: FoundText) -> Document:
    return Document(id=text.id, content=text.text, meta=text.metadata, score=text.score or None)
