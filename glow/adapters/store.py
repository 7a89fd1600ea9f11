"""Texts with metadata in a GLOW service, and filters of frameworks as filters of the service; shared by the adapters."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from glow.client import GlowClient, Hit, NotFoundError
from glow.errors import ConfigError
from glow.records import Document

NAMESPACE = "namespace"
PAGE = 100
Retriever = Literal["auto", "dense", "lexical", "learned-sparse", "hybrid"]


@dataclass(frozen=True, slots=True)
class FoundText:
    """A text that was found by a search or read by its id."""

    id: str  # without the store's namespace
    text: str  # the best passage if a search found one, otherwise the body; the title if there is no body
    metadata: dict[str, Any]  # the document's metadata and its other fields
    score: float = 0.0  # of the search; 0 for a text that was read by its id
    vector: tuple[float, ...] = ()  # the stored vector, if requested


class GlowStore:
    """Texts in a GLOW service. Threads may share one store.

    Args:
        url: address of the service; `http://HOST/v1/NAME` for a collection.
        api_key: key for searching, if the service needs one.
        write_key: key for writing; None: read-only.
        namespace: separates texts from others in the same index: ids begin with it, and searches find only its texts.
            The index must have the metadata field `namespace`. "" for all documents.
        retriever: the retriever; `auto`: the service's default.
        body: field of the text.
        wait_s: how long a write waits until searches find it, in seconds; 0: it does not wait.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        write_key: str | None = None,
        namespace: str = "",
        retriever: Retriever = "auto",
        body: str = "text",
        wait_s: float = 30.0,
    ) -> None:
        self.client = GlowClient(url, api_key=api_key)  # searches
        self._writer = write_key and GlowClient(url, api_key=write_key, timeout_s=wait_s + 10.0)
        self._namespace, self._body, self._wait_s = namespace, body, wait_s
        self.retriever = retriever
        self._options: dict[str, Any] = {} if retriever == "auto" else {"retriever": retriever}

    def close(self) -> None:
        """Closes the connections."""
        self.client.close()
        if self._writer:
            self._writer.close()

    def write(self, ids: Sequence[str], texts: Sequence[str], metadata: Sequence[Mapping[str, Any]]) -> None:
        """Adds texts, or replaces those with the same ids; waits up to `wait_s` until searches find them."""
        own = {NAMESPACE: self._namespace} if self._namespace else {}
        rows = zip(map(self._id, ids), texts, metadata, strict=True)
        records = [{**more, self._body: text, "_id": identifier, **own} for identifier, text, more in rows]
        for start in range(0, len(records), PAGE):
            result = self._writing().write(records[start : start + PAGE], wait_s=self._wait_s)
            if rejects := result.rejects:
                first = f"{rejects[0].id or rejects[0].place}: {rejects[0].reason}"
                raise ConfigError(f"{len(rejects)} texts were rejected; {first}")
            if result.state == "failed":
                raise ConfigError(f"the write failed: {result.reason}")

    def delete(self, ids: Sequence[str]) -> None:
        """Deletes texts; unknown ids are ignored."""
        for start in range(0, len(ids), PAGE):
            page = [self._id(each) for each in ids[start : start + PAGE]]
            self._writing().delete(page, wait_s=self._wait_s)

    def get(self, identifier: str) -> FoundText | None:
        """A text by its id; None if there is none."""
        try:
            document = self.client.document(self._id(identifier))
        except NotFoundError:
            return None
        return self._of_document(document)

    def search(
        self, query: str, k: int = 10, filter: Mapping[str, Any] | None = None, *, vectors: bool = False
    ) -> list[FoundText]:
        """The `k` best texts for a query, also such that do not match; a filter is {"lang": "de", "year": [2020, 2021]}."""
        options = {"match": "any", **self._options, **({"vectors": True} if vectors else {})}
        result = self.client.search(query, top_k=k, filter=self._own(filter), **options)
        return [self._of_hit(hit) for hit in result.hits]

    def scan(self, filter: Mapping[str, Any] | None = None, limit: int = 1_000) -> Iterator[FoundText]:
        """The texts that match a filter, in index order, up to a limit."""
        condition = self._own(filter) or {"and": []}
        for page in self.client.search_pages(filter=condition, page_size=PAGE, limit=limit):
            yield from map(self._of_hit, page.hits)

    def _writing(self) -> GlowClient:
        if not self._writer:
            raise ConfigError("this store is read-only; give write_key")
        return self._writer

    def _id(self, identifier: str) -> str:
        return f"{self._namespace}/{identifier}" if self._namespace else identifier

    def _own(self, filter: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """A filter that restricts another one to this store's namespace."""
        own = {"field": NAMESPACE, "eq": self._namespace} if self._namespace else None
        parts = [dict(part) for part in (own, filter) if part]
        return {"and": parts} if len(parts) > 1 else next(iter(parts), None)

    def _of_hit(self, hit: Hit) -> FoundText:
        fields = {name: hit.values(name) for name in hit.fields}
        whole = self._of_document(Document(hit.id, fields, hit.metadata))
        text = hit.passage.text if hit.passage is not None and hit.passage.text else whole.text
        return FoundText(whole.id, text, whole.metadata, hit.score, hit.vector or ())

    def _of_document(self, document: Document) -> FoundText:
        identifier = document.id.removeprefix(f"{self._namespace}/") if self._namespace else document.id
        metadata = dict(document.metadata)
        if self._namespace:
            metadata.pop(NAMESPACE, None)
        for name, values in document.fields.items():
            if name != self._body and any(values):
                metadata[name] = values[0] if len(values) == 1 else list(values)
        text = "\n".join(document.fields.get(self._body, ()))
        return FoundText(identifier, text or str(metadata.get("title", "")), metadata)


_CONDITIONS = {"==": "eq", "in": "in", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_NEGATED = {"!=": "==", "nin": "in", "not in": "in"}


def comparison(field: str, operator: str, value: Any) -> dict[str, Any]:
    """A service filter that compares a metadata field; None, with `==` and `!=` only, means that the field is missing."""
    if operator in _NEGATED:
        return {"not": comparison(field, _NEGATED[operator], value)}
    if operator not in _CONDITIONS or (value is None and operator != "=="):
        raise ConfigError(
            f"the service has no filter {operator} {value!r:.40}; use ==, !=, >, >=, <, <=, in or not in"
        )
    if value is None:
        return {"field": field, "exists": False}
    return {"field": field, _CONDITIONS[operator]: value}
