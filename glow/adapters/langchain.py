"""LangChain: a retriever and a vector store over a GLOW service, which computes the vectors (extra `langchain`)."""

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from pydantic import ConfigDict

from glow.adapters.store import FoundText, GlowStore
from glow.errors import ConfigError


class GlowRetriever(BaseRetriever):
    """A LangChain retriever over a GLOW service; returns `k` documents, with a filter as for `GlowStore.search`."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    store: GlowStore
    k: int = 10
    filter: dict[str, Any] | None = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None, **unused: Any
    ) -> list[Document]:
        return [_document(text) for text in self.store.search(query, k or self.k, self.filter)]


class GlowVectorStore(VectorStore):
    """A LangChain vector store in a GLOW service; adding and deleting need a store with a `write_key`."""

    def __init__(self, store: GlowStore) -> None:
        self._store = store

    @property
    def embeddings(self) -> Embeddings | None:
        """None: the service encodes."""
        return None

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **unused: Any,
    ) -> list[str]:
        """Adds texts, or replaces those with the same ids; returns the ids."""
        listed = list(texts)
        named = [each or uuid.uuid4().hex for each in ids or [""] * len(listed)]
        self._store.write(named, listed, metadatas or [{}] * len(listed))
        return named

    def delete(self, ids: list[str] | None = None, **unused: Any) -> bool:
        """Deletes texts by id."""
        self._store.delete(ids or [])
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Texts by id; unknown ids are left out."""
        return [_document(text) for text in map(self._store.get, ids) if text is not None]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Texts that match a query; `filter` as for `GlowStore.search`."""
        return [_document(text) for text in self._store.search(query, k, kwargs.get("filter"))]

    def similarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Texts that match a query, with their ranking scores."""
        texts = self._store.search(query, k, kwargs.get("filter"))
        return [(_document(each), each.score) for each in texts]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Texts that match a query and differ from each other: `k` of `fetch_k`, chosen by the service's vectors."""
        texts = self._store.search(query, fetch_k, kwargs.get("filter"), vectors=True)
        (vector,) = self._store.client.embeddings([query]).vectors
        vectors = [list(each.vector) for each in texts]
        places = maximal_marginal_relevance(np.array(vector), vectors, lambda_mult, k)
        return [_document(texts[place]) for place in places]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        """Function from score to relevance in [0, 1]: hybrid scores are probabilities, dense ones cosines."""
        if self._store.retriever in ("lexical", "learned-sparse"):
            raise ConfigError(
                f"scores of the retriever {self._store.retriever} have no bound, so they cannot be relevance scores; search with hybrid or dense"
            )
        return lambda score: min(max(score, 0.0), 1.0)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> "GlowVectorStore":
        """Makes a store and adds texts; `embedding` is ignored, and `kwargs` are arguments of `GlowStore`."""
        store = cls(GlowStore(**kwargs))
        store.add_texts(texts, metadatas, ids=ids)
        return store


def _document(text: FoundText) -> Document:
    return Document(id=text.id, page_content=text.text, metadata=text.metadata)
